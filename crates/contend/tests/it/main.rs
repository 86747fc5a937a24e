//! The facade, as an application uses it.

mod durable;
mod named;
mod protection;
mod room;
mod snapshots;
mod threads;
mod transactions;
mod types;
