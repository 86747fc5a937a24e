//! Comparisons: whole runs, and how often their conclusions are right.

mod conflicts;
mod lines;
mod notes;
mod open_loop;
mod paired;
mod power;
mod runs;
mod sessions;
