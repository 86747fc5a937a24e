//! When commits are durable, under a model checker: the LSNs of early release, and the holds of
//! conservative release.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p contend-log --test loom`
//!
//! Two workers and one row, which is a word here, as is what each worker has in its buffer and on
//! its disk. Executions with up to three preemptions are tried: some ten thousand, in seconds.
//! METHODOLOGY.md says what that leaves out.
#![cfg(loom)]

use std::sync::Arc;

use contend_engine::commit_sink::Hold;
use contend_log::commit::{Commits, Committer};
use contend_log::fault::Fault;
use contend_log::{CommitProtocol, Release};
use contend_machine::{Atomic64, Loom, LoomWord, Ordering};
use loom::thread;

fn explore(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.max_branches = 10_000;
    model.check(check);
}

struct World {
    commits: Arc<Commits<Loom>>,
    /// The row: 0, or the number of the first worker's transaction that wrote it last.
    row: LoomWord,
    /// The hold of the row.
    hold: LoomWord,
    /// The first worker's last transaction in its buffer, and on its disk.
    buffer: LoomWord,
    disk: LoomWord,
}

impl World {
    fn new(release: Release, fault: Option<Fault>) -> Arc<World> {
        let protocol = CommitProtocol::Workers { release, group: 1, lsn: release == Release::Early };
        let commits = Arc::new(Commits::new(protocol, 2, 0, fault));
        let [row, hold, buffer, disk] = [(); 4].map(|()| LoomWord::new(0));
        Arc::new(World { commits, row, hold, buffer, disk })
    }

    /// The first worker commits two transactions, and flushes each.
    fn write(&self) {
        let mut committer = Committer::new(&self.commits, 0);
        for number in [1, 2] {
            let hold = committer.committing();
            self.hold.store(hold.0, Ordering::Relaxed);
            // Release: as a protocol's lock does. Pairs with the Acquire load in `read` and
            // `read_held`.
            self.row.store(number, Ordering::Release);
            // Relaxed: `appended` says that it is there.
            self.buffer.store(number, Ordering::Relaxed);
            committer.appended(1, true);
            self.flush();
            committer.flushed();
        }
    }

    /// Writes the first worker's buffer to its disk.
    fn flush(&self) {
        // Relaxed, both: the disk is not memory; `flushed` publishes that it was written.
        self.disk.fetch_max(self.buffer.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Asserts that what was read is on the disk.
    fn check(&self, seen: u64) {
        assert!(self.disk.load(Ordering::Relaxed) >= seen, "what a durable transaction has read is not durable");
    }

    /// The second worker reads the row and commits, with a write or without, and does so again:
    /// what it found durable the first time it knows then.
    fn read(&self, writes: bool) {
        let mut committer = Committer::new(&self.commits, 1);
        for _ in 0..2 {
            // Acquire: pairs with the Release store in `write`.
            let seen = self.row.load(Ordering::Acquire);
            if writes {
                committer.committing();
            }
            committer.appended(1, writes);
            if writes {
                committer.flushed();
            }
            if committer.is_durable(committer.ticket()) {
                self.check(seen);
            }
        }
    }

    /// The second worker reads the row, if what it has left lets it.
    fn read_held(&self) {
        let mut committer = Committer::new(&self.commits, 1);
        let seen = self.row.load(Ordering::Acquire);
        if seen > 0 {
            // Relaxed: it was left before the row. It may be of a later transaction.
            let hold = Hold(self.hold.load(Ordering::Relaxed));
            committer.wait_for(hold, |_| {
                self.flush();
                true
            });
            self.check(seen);
        }
    }
}

fn early(writes: bool, fault: Option<Fault>) {
    explore(move || {
        let world = World::new(Release::Early, fault);
        let theirs = Arc::clone(&world);
        let writing = thread::spawn(move || theirs.write());
        world.read(writes);
        writing.join().expect("no panic");
        // All that had a number is flushed.
        let mut committer = Committer::new(&world.commits, 1);
        assert!(committer.is_durable(3), "what all have flushed is not durable");
    });
}

#[test]
fn who_has_read_and_written_is_durable_after_what_it_has_read() {
    early(true, None);
}

#[test]
fn who_has_only_read_is_durable_after_what_it_has_read() {
    early(false, None);
}

#[test]
#[should_panic(expected = "is not durable")]
fn a_commit_that_waits_for_its_own_worker_only() {
    early(true, Some(Fault::AcknowledgeOwn));
}

fn conservative(fault: Option<Fault>) {
    explore(move || {
        let world = World::new(Release::Conservative, fault);
        let theirs = Arc::clone(&world);
        let writing = thread::spawn(move || theirs.write());
        world.read_held();
        writing.join().expect("no panic");
    });
}

#[test]
fn who_waits_for_a_hold_reads_what_is_durable() {
    conservative(None);
}

#[test]
#[should_panic(expected = "is not durable")]
fn who_ignores_holds() {
    conservative(Some(Fault::IgnoreHolds));
}
