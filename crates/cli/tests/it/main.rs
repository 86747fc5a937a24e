//! The binary, as a user meets it.

mod common;
mod results;
mod terminal;
mod vacuous;
mod verbs;
