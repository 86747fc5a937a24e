//! The static analysis of transactions that are chains of pieces: which accesses conflict, which
//! pieces must be one step, and in which order the steps go.
//!
//! - [`TypeSet`] is what an author declares: types of transactions, the pieces of each in the order
//!   of the program, and what each piece accesses.
//! - [`Plan::new`] classifies what is accessed, merges the pieces that could not be ordered, and
//!   gives each remaining piece a rank. Two pieces that conflict have the same rank, and the ranks
//!   of a transaction grow. So a protocol can keep all conflicts in one order by looking at ranks.
//! - [`Chopping::new`] finds the finest division of transactions into smaller ones that stays
//!   serializable under any serializable protocol.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `check` | the checks of declarations |
//! | `classes` | the classes of units: constant, sum, append, contended |
//! | `merge` | the plan: groups of pieces, vertices, ranks |
//! | `chop` | transaction chopping |
//! | `conflicts` | conflicts by units (C-edges), cycles, last accesses, cancels |
//! | `waits` | what a step waits for |
//! | `hints` | changes under which merged steps fall apart |
//! | `text` | a plan in words, for people |
//! | `dot`, `svg` | a plan as a graph in DOT, and as a picture |
//! | `file` | transactions of any application, in a TOML file |
//! | `learn` | declarations that are learned from transactions as they run |
//!
//! **Papers.** Z. Wang, S. Mu, Y. Cui, H. Yi, H. Chen, J. Li: "Scaling multicore databases via
//! constrained parallel execution" (IC3), SIGMOD 2016, section 4; D. Shasha, F. Llirbat, E. Simon,
//! P. Valduriez: "Transaction chopping: algorithms and performance studies", TODS 1995.
//!
//! What this crate must not know: any engine, any protocol, any workload.

#![forbid(unsafe_code)]

mod check;
mod chop;
mod classes;
mod conflicts;
mod dot;
mod file;
mod hints;
mod learn;
mod merge;
mod svg;
mod text;
mod waits;

pub use check::{DeclarationError, check};
pub use chop::{Chopped, Chopping};
pub use classes::{Class, UnitClass};
pub use conflicts::{Cancel, Conflict, Cycle, LastAccess, Step};
pub use contend_model::pieces::TypeSet;
pub use file::{Application, FileError, Study};
pub use hints::{Change, Hint, Hints};
pub use learn::{Learned, Noted, Trace};
pub use merge::{AnalysisOptions, Group, Plan, TypePlan, Vertex};
pub use waits::{Until, Wait, Waits};
