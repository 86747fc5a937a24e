//! The gate under a model checker: a worker that was seen offline begins nothing before the gate is
//! open, and one worker at a time has the gate.

use std::sync::atomic::AtomicUsize;

use contend_engine::epoch::Epochs;
use contend_machine::{Atomic64, Loom, LoomWord, Ordering};
use loom::sync::Arc;
use loom::thread;

struct World {
    epochs: Epochs<Loom>,
    /// Whether one worker is alone, or has the gate.
    alone: LoomWord,
}

fn explore(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(check);
}

/// The number of executions in which the worker was alone. Without any the check would prove
/// nothing.
static ALONE: AtomicUsize = AtomicUsize::new(0);

/// One worker closes the gate, and is alone if `looks` says so of the other's slot. The other
/// worker runs two transactions, each if the gate is open, while an epoch may pass.
fn close(looks: fn(&Epochs<Loom>, usize) -> bool) {
    let epochs = Epochs::new(2, 0);
    let (starving, other) = (epochs.register().expect("a slot"), epochs.register().expect("a slot"));
    let world = Arc::new(World { epochs, alone: LoomWord::new(0) });
    let shared = Arc::clone(&world);
    let running = thread::spawn(move || {
        let mut seen = Epochs::<Loom>::NOT_SEEN;
        for _ in 0..2 {
            if !shared.epochs.is_as_seen(seen) {
                match shared.epochs.enter_if_open(other) {
                    Some(epoch) => seen = epoch,
                    None => break,
                }
            }
            assert_eq!(shared.alone.load(Ordering::Relaxed), 0, "one is alone, and another runs");
        }
        shared.epochs.offline(other);
    });
    world.epochs.close();
    world.epochs.try_advance();
    if looks(&world.epochs, other) {
        world.alone.store(1, Ordering::Relaxed);
        world.epochs.refresh(starving, Epochs::<Loom>::NOT_SEEN);
        world.epochs.offline(starving);
        world.alone.store(0, Ordering::Relaxed);
        ALONE.fetch_add(1, Ordering::Relaxed);
    }
    world.epochs.open();
    running.join().expect("no panic");
}

#[test]
fn who_is_alone_is_alone() {
    explore(|| close(|epochs, other| !epochs.may_commit(other)));
    assert!(ALONE.load(Ordering::Relaxed) > 10, "one is alone sometimes");
}

#[test]
#[should_panic(expected = "one is alone, and another runs")]
fn who_does_not_look_whether_others_run_is_caught() {
    explore(|| close(|_, _| true));
}

#[test]
fn one_at_a_time_has_the_gate() {
    explore(|| {
        let world = Arc::new(World { epochs: Epochs::new(2, 0), alone: LoomWord::new(0) });
        let have_it = |world: &World| {
            world.epochs.close();
            assert!(world.epochs.is_closed());
            // Plain stores: each owner of the gate sees those of the owner before.
            assert_eq!(world.alone.load(Ordering::Relaxed), 0);
            world.alone.store(1, Ordering::Relaxed);
            world.epochs.try_advance();
            world.alone.store(0, Ordering::Relaxed);
            world.epochs.open();
        };
        let shared = Arc::clone(&world);
        let other = thread::spawn(move || have_it(&shared));
        have_it(&world);
        other.join().expect("no panic");
        assert!(!world.epochs.is_closed());
    });
}
