//! Protocols that treat the pieces of a transaction by themselves.
//!
//! A transaction of a declared type is a chain of pieces ([`contend_model::pieces`]). A protocol of
//! this family lets each piece take effect, or be validated, before the transaction commits.
//!
//! | file | contents |
//! | --- | --- |
//! | `plan` | what follows from the declarations: the step and the rank of each piece, the class of each unit |
//! | `accessors` | the list of a cell's accessors, which are transactions that have not ended |
//! | `progress` | how far each worker's transaction has come |
//! | `ic3` | the protocol IC3 |

mod accessors;
pub mod ic3;
mod plan;
mod progress;
