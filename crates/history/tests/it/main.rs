//! The checker, by histories that are written down and by random ones.

mod classes;
mod clean;
mod elle;
mod files;
mod hostile;
mod random;
mod support;
mod views;
