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

pub mod ic3;
mod plan;
