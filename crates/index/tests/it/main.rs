//! Both indexes, by one thread and by many.

mod concurrent;
mod leaves;
mod model;
mod world;
