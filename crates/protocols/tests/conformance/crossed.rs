//! Pairs of transactions that exclude each other, on real threads, without a recorded history.
//!
//! Where a history is recorded, a protocol copies more than else: rows that are absent, and writes
//! that it could leave out. So here nothing is recorded. Each round has two transactions, one on
//! each thread, and two rows that no other round has. The rows tell afterwards whether both took
//! effect.

use std::ops::ControlFlow;
use std::sync::{Arc, Barrier};

use contend_engine::{
    Abort, Direction, Engine, EngineOptions, Erased, Groups, IndexKind, Isolation, NamedProtocol, Projection, Protocol,
    RawTxn, Table, Transaction, Txn,
};
use contend_machine::Native;
use contend_protocols::multiversion::snapshot_isolation::SnapshotIsolation;

use crate::concurrent::Threads;
use crate::jitter::{self, Jitter};
use crate::support::{ENGINE_OPTIONS, GenericTest, INDEXES, engine_with, for_each_protocol, rounds, table};

/// What each of the two transactions of a round does with its own row and that of the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crossing {
    /// It inserts its row if the other's is absent.
    Insert,
    /// It inserts its row if a scan finds neither.
    ScanAndInsert,
    /// It writes its row if the other's has not been written.
    Write,
    /// It deletes its row if the other's is there.
    Delete,
    /// It increments the first row, until it commits.
    Increment,
}

const CROSSINGS: [Crossing; 5] =
    [Crossing::Insert, Crossing::ScanAndInsert, Crossing::Write, Crossing::Delete, Crossing::Increment];

/// The first words of the two rows of a round.
type Rows = [Option<u64>; 2];

impl Crossing {
    /// Whether the rows are there when a round begins, with zeros.
    fn begins_with_rows(self) -> bool {
        matches!(self, Crossing::Write | Crossing::Delete | Crossing::Increment)
    }

    /// Whether transactions that see a snapshot each may both take effect.
    fn is_write_skew(self) -> bool {
        self != Crossing::Increment
    }

    /// Judges what a round leaves: whether one of the transactions took effect (both of them, one
    /// after the other, for increments), or none. `None`: no order of the transactions leaves this.
    fn judge(self, rows: Rows) -> Option<bool> {
        let effects = match (self, rows) {
            (Crossing::Increment, [first, _]) => return (first == Some(2)).then_some(true),
            (Crossing::Delete, rows) => rows.iter().filter(|row| row.is_none()).count(),
            (_, rows) => rows.iter().filter(|row| **row == Some(1)).count(),
        };
        (effects < 2).then_some(effects == 1)
    }

    /// Runs one of the transactions. `batch`: it reads with the call for several keys. Returns
    /// whether its own row was as only its own thread may have left it.
    fn run<P: Protocol<M>, M: Threads>(
        self,
        tx: &mut Transaction<'_, P, M>,
        table: &Table<u64>,
        [own, other]: [u64; 2],
        batch: bool,
    ) -> Result<bool, Abort> {
        let mut seen = None;
        match self {
            Crossing::Increment => {
                let row = tx.modify_row(table, own.min(other), Groups::ALL)?;
                return Ok(row.map(|row| row[0] += 1).is_some());
            }
            Crossing::ScanAndInsert => {
                let both = own.min(other)..=own.max(other);
                tx.scan_rows(table, both, 2, Direction::Forward, Projection::WHOLE, |_, row| {
                    seen = Some(row[0]);
                    ControlFlow::Continue(())
                })?;
            }
            _ if batch => {
                tx.read_rows(table, &[other], Projection::WHOLE, |_, row| seen = row.map(|row| row[0]))?;
            }
            _ => seen = tx.read_row(table, other, Projection::WHOLE)?.map(|row| row[0]),
        }
        match (self, seen) {
            (Crossing::Insert | Crossing::ScanAndInsert, None) => {
                Ok(tx.insert_row(table, own)?.map(|row| row.fill(1)).is_some())
            }
            (Crossing::Write, Some(0)) => Ok(tx.write_row(table, own, Groups::ALL)?.map(|row| row.fill(1)).is_some()),
            (Crossing::Delete, Some(_)) => tx.delete(table, own),
            _ => Ok(true),
        }
    }
}

/// What two threads did.
#[derive(Default)]
struct Outcome {
    /// Rounds that are right and in which a transaction took effect.
    effective: u64,
    /// What was wrong first.
    wrong: Option<String>,
}

/// Runs rounds of a crossing on two threads.
fn cross<P: Protocol<M>, M: Threads>(
    protocol: P,
    index: IndexKind,
    options: &EngineOptions,
    crossing: Crossing,
    rounds: u64,
) -> Outcome {
    let engine: &Arc<Engine<P, M>> = &engine_with(protocol, false, options.clone());
    let rows: &Table<u64> = &table(engine, "crossed", index, 16);
    let mut loader = engine.loader().expect("a free slot");
    // One row is always there, so that a transaction can begin with a read.
    let first = 2 * rounds;
    let keys = (0..=first).filter(|&key| key == first || crossing.begins_with_rows());
    keys.for_each(|key| assert!(loader.insert(rows, key, |row| row.fill(0)).expect("memory")));
    drop(loader);
    let together = &Barrier::new(2);
    let outcomes = M::all(2, |side| {
        jitter::seed(side as u64 + 1);
        let mut worker = engine.worker().expect("a free slot");
        let mut outcome = Outcome::default();
        for round in 0..rounds {
            let [own, other] = [side as u64, 1 - side as u64].map(|side| 2 * round + side);
            // The transaction that begins first is sometimes the one that looks last.
            let pauses = if (round / 2 + side as u64).is_multiple_of(2) { round % 5 } else { 0 };
            together.wait();
            loop {
                let done = worker.run(|tx| {
                    tx.read_row(rows, first, Projection::WHOLE)?;
                    (0..pauses).for_each(|_| std::thread::yield_now());
                    crossing.run(tx, rows, [own, other], round % 3 == 0)
                });
                // A panic would leave the other thread at the barrier for ever.
                match done {
                    Ok(true) => break,
                    Ok(false) => {
                        outcome.wrong.get_or_insert(format!("a row that is its own surprised it in round {round}"));
                        break;
                    }
                    // An exclusion may end with no effect at all, but additions may not be lost.
                    Err(abort) if abort.reason.is_conflict() && crossing == Crossing::Increment => {}
                    Err(abort) if abort.reason.is_conflict() => break,
                    Err(abort) => {
                        outcome.wrong.get_or_insert(format!("it aborted in round {round}: {abort}"));
                        break;
                    }
                }
            }
            together.wait();
            if side == 0 {
                let mut row = Vec::new();
                let found = [own, other].map(|key| engine.peek(rows, key, &mut row).map(|_| row[0]));
                match crossing.judge(found) {
                    Some(is_effective) => outcome.effective += u64::from(is_effective),
                    None => _ = outcome.wrong.get_or_insert(format!("{found:?} in round {round}")),
                }
            }
        }
        outcome
    });
    let effective = outcomes.iter().map(|outcome| outcome.effective).sum();
    Outcome { effective, wrong: outcomes.into_iter().find_map(|outcome| outcome.wrong) }
}

struct Excludes;

impl<M: Threads> GenericTest<M> for Excludes {
    fn run<P: Protocol<M>>(&self, name: &str, make: &dyn Fn() -> P) {
        let is_serializable = make().info().isolation == Isolation::Serializable;
        let kinds = CROSSINGS.into_iter().flat_map(|crossing| INDEXES.map(|index| (crossing, index)));
        let kinds = kinds.filter(|&(crossing, index)| {
            (is_serializable || !crossing.is_write_skew())
                && (crossing != Crossing::ScanAndInsert || index == IndexKind::Ordered)
        });
        for (number, (crossing, index)) in kinds.enumerate() {
            // Each crossing with all of them, over the protocols and their options.
            let options = &ENGINE_OPTIONS[(number + name.len()) % ENGINE_OPTIONS.len()];
            let Outcome { effective, wrong } = cross(make(), index, options, crossing, 100 * rounds());
            let place = format!("{name} on {}: {crossing:?} over the {index:?} index, {options:?}", M::NAME);
            assert_eq!(wrong, None, "{place}");
            assert!(effective > 0, "{place}: no transaction took effect");
        }
    }
}

#[test]
fn of_two_that_exclude_each_other_one_takes_effect() {
    for_each_protocol::<Native>(&Excludes);
}

#[test]
fn of_two_that_exclude_each_other_one_takes_effect_with_races_opened() {
    for_each_protocol::<Jitter>(&Excludes);
}

/// The test can find what it looks for: snapshot isolation does not exclude write skew.
#[test]
fn snapshot_isolation_lets_both_take_effect() {
    for crossing in CROSSINGS.into_iter().filter(|crossing| crossing.is_write_skew()) {
        let index = IndexKind::Ordered;
        let is_found = (0..20).any(|_| {
            let protocol = Erased::new(SnapshotIsolation::<Jitter>::new(Default::default()));
            cross(protocol, index, &ENGINE_OPTIONS[0], crossing, 200).wrong.is_some()
        });
        assert!(is_found, "{crossing:?}");
    }
}
