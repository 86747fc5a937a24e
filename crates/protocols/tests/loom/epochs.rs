//! The order of epochs: a commit that must come before another has no later epoch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contend_engine::commit_sink::{CommitSink, CommitSinks, Hold};
use contend_engine::sets::WriteSet;
use contend_engine::{AbortReason, Engine, EngineConfig, IndexKind, KeyWords, NamedProtocol};
use contend_machine::Loom;
use contend_protocols::fault::{Only, id};
use contend_protocols::optimistic::mocc::Mocc;
use contend_protocols::optimistic::silo::Silo;

use crate::world::{self, World, read, spawn, write};

/// A log that keeps the epoch of each worker's last commit; 0 if there is none.
#[derive(Clone, Debug, Default)]
struct Epochs(Arc<[AtomicU64; 2]>);

#[derive(Debug)]
struct Of(Epochs, usize);

impl CommitSinks<Loom> for Epochs {
    fn of_worker(&self, worker: usize) -> Box<dyn CommitSink<Loom>> {
        Box::new(Of(self.clone(), worker))
    }
    fn holds_rows(&self) -> bool {
        false
    }
}

impl CommitSink<Loom> for Of {
    fn committing(&mut self) -> Hold {
        Hold::NONE
    }
    fn committed(&mut self, epoch: u64, _: &WriteSet<Loom>) {
        // Relaxed: read when all threads have ended.
        self.0.0[self.1].store(epoch, Ordering::Relaxed);
    }
    fn loaded(&mut self, _: u64, _: u32, _: &KeyWords, _: &[u64]) {}
    fn may_pass(&mut self, _: Hold) -> bool {
        true
    }
    fn is_released(&mut self, _: Hold) -> bool {
        true
    }
    fn wait_for(&mut self, _: Hold) {}
    fn aborted(&mut self, _: AbortReason) {}
    fn go_offline(&mut self) {}
    fn ticket(&self) -> u64 {
        0
    }
    fn is_durable(&mut self, _: u64) -> bool {
        false
    }
}

/// The first worker reads a row that the second overwrites, and writes another row. If it has not
/// seen the new row, it comes before. A third thread advances the epoch.
fn overwritten_reads<P: NamedProtocol<Loom>>() {
    let epochs = Epochs::default();
    let config = EngineConfig { workers_max: 2, epoch_ms: 40, ..EngineConfig::default() };
    let engine = Engine::with_commit_sinks(P::new(P::Options::default()), config, Some(Arc::new(epochs.clone())));
    let mut world = World::with(engine, IndexKind::Hash, 1, &[1, 2]);
    // From now on both workers are in the first epoch.
    for worker in [&mut world.first, world.second.as_mut().expect("not lent")] {
        worker.run(|_| Ok(())).expect("it does nothing");
    }
    let engine = Arc::clone(&world.engine);
    let advancing = spawn(move || engine.epochs().try_advance());
    let (mine, theirs) = world.both(
        |tx, rows| {
            let seen = read(tx, rows, 1)?;
            write(tx, rows, 2, 1).map(|()| seen)
        },
        |tx, rows| write(tx, rows, 1, 1).map(|()| None),
    );
    advancing.join().expect("no panic");
    if mine == Ok(Some(0)) && theirs.is_ok() {
        // Relaxed: all threads have ended.
        let [before, after] = [0, 1].map(|worker| epochs.0[worker].load(Ordering::Relaxed));
        assert!(before <= after, "who comes first has the later epoch: {before} and {after}");
    }
}

/// The property rests on the order of two loads.
fn explore(check: fn()) {
    Loom::order_loads();
    world::explore(2, check);
}

#[test]
fn silo_orders_epochs() {
    explore(overwritten_reads::<Silo>);
}

#[test]
fn mocc_orders_epochs() {
    explore(overwritten_reads::<Mocc>);
}

type Broken = Only<{ id("forget_order_of_epochs") }>;

#[test]
#[should_panic(expected = "has the later epoch")]
fn silo_that_forgets_the_order() {
    explore(overwritten_reads::<Silo<Broken>>);
}

#[test]
#[should_panic(expected = "has the later epoch")]
fn mocc_that_forgets_the_order() {
    explore(overwritten_reads::<Mocc<Broken>>);
}
