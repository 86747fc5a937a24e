//! The facade, as an application uses it.

mod durable;
mod named;
mod protection;
mod room;
mod snapshots;
mod threads;
mod transactions;
mod types;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use contend::{AnyProtocol, Builder, Config, Database};

/// Runs the same test under each of these protocols, in two threads. All run behind a pointer, so
/// that each test is compiled once.
fn under_all(protocols: &[&'static str], test: impl Fn(&'static str) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                // Relaxed: a count that orders nothing.
                while let Some(protocol) = protocols.get(next.fetch_add(1, Ordering::Relaxed)) {
                    println!("under {protocol}");
                    test(protocol);
                }
            });
        }
    });
    assert!(!protocols.is_empty(), "there are protocols");
}

/// Returns a builder of a database with a registered protocol.
fn builder(protocol: &str, config: Config) -> Builder<AnyProtocol> {
    Database::named(protocol, &[]).expect("it is registered").config(config)
}
