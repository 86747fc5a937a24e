//! Comparisons: whole runs, and how often what they tell apart is right.

mod paired;
mod power;
mod runs;
