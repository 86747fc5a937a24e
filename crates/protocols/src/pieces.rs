//! Protocols that treat the pieces of a transaction by themselves.
//!
//! A transaction of a declared type is a chain of pieces ([`contend_model::pieces`]). A protocol of
//! this family lets each piece take effect, or be validated, before the transaction commits. What
//! it shares with others stands in [`crate::accessors`].
//!
//! | file | contents |
//! | --- | --- |
//! | `plan` | what follows from the declarations: the step and the rank of each piece, the class of each unit |
//! | `ic3` | the protocol IC3 |
//! | `chopping` | transaction chopping: the pieces of a transaction commit one by one, by another protocol |
//!
//! `nested-occ`, whose pieces are validated by themselves and take effect with the transaction, is
//! in the family `optimistic`.

pub mod chopping;
pub mod ic3;
mod plan;
