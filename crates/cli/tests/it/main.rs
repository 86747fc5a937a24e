//! The binary, as a user meets it.

mod common;
mod hostile;
mod results;
mod terminal;
mod vacuous;
mod verbs;
