//! Comparisons: whole runs, and how often their conclusions are right.

mod lines;
mod paired;
mod power;
mod runs;
mod sessions;
