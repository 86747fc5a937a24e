//! Comparisons: whole runs, and how often their conclusions are right.

mod paired;
mod power;
mod runs;
