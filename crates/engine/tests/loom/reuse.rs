//! The epoch under a model checker: memory is not reused while a transaction can hold it.

use contend_engine::epoch::Epochs;
use contend_machine::{Atomic64, Loom, LoomWord, Ordering};
use loom::sync::Arc;
use loom::thread;

struct World {
    epochs: Epochs<Loom>,
    /// The index's entry: 1 while the record is found, 0 once it is unlinked.
    link: LoomWord,
    /// Whether the record's memory is in use: 1 until it is reused.
    memory: LoomWord,
}

fn explore(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// The number of executions in which the memory was reused. A collector that never reuses it proves
/// nothing.
static REUSED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

/// Runs a reader that may be anywhere in its transaction, beside a collector that unlinks, waits
/// for the epochs, and reuses. `waits` is the collector's rule.
fn reuse(waits: fn(&Epochs<Loom>, u64) -> bool) {
    let epochs = Epochs::new(2, 0);
    let (reader, collector) = (epochs.register().expect("a slot"), epochs.register().expect("a slot"));
    let world = Arc::new(World { epochs, link: LoomWord::new(1), memory: LoomWord::new(1) });
    let shared = Arc::clone(&world);
    let reading = thread::spawn(move || {
        shared.epochs.refresh(reader, Epochs::<Loom>::NOT_SEEN);
        if shared.link.load(Ordering::Acquire) == 1 {
            assert_eq!(shared.memory.load(Ordering::Relaxed), 1, "read after it was reused");
        }
        shared.epochs.offline(reader);
    });
    let mut seen = world.epochs.refresh(collector, Epochs::<Loom>::NOT_SEEN);
    world.link.store(0, Ordering::Release);
    let unlinked = world.epochs.current();
    for _ in 0..3 {
        world.epochs.try_advance();
        seen = world.epochs.refresh(collector, seen);
    }
    if waits(&world.epochs, unlinked) {
        world.memory.store(0, Ordering::Relaxed);
        REUSED.fetch_add(1, Ordering::Relaxed);
    }
    reading.join().expect("no panic");
}

#[test]
fn memory_is_not_reused_under_a_reader() {
    explore(|| reuse(|epochs, unlinked| epochs.is_reusable(unlinked)));
    assert!(REUSED.load(Ordering::Relaxed) > 10, "it is reused sometimes");
}

#[test]
#[should_panic(expected = "read after it was reused")]
fn a_collector_that_does_not_wait_is_caught() {
    explore(|| reuse(|_, _| true));
}
