//! Snapshots: transactions that only read see a state some epochs old, and never abort (Silo,
//! section 4.9). [`crate::snapshot`] says which state, and how long copies are kept.
//!
//! (The state at the end of the epoch before the reader's is final, too. A transaction that commits
//! in that epoch had all its locks when it loaded the epoch, which was before the reader's began,
//! and a reader waits for locked cells. The paper, and this code, have an epoch more.)
//!
//! **Versions.** A commit that overwrites a cell keeps a copy of it if a snapshot lies between the
//! old version's epoch and its own. A cell's second word leads to the newest copy, and a copy has
//! the cell's word as it was.
//!
//! **Memory ordering.** A reader goes from the cell's word to its copies, a commit from the copies
//! to the word. The commit links a copy with Release before it installs the new word with Release;
//! the reader loads the word with Acquire and then the link with Acquire. So a reader that finds a
//! word that is too new finds the copy that was made before it. The interleaving that remains is a
//! commit between the reader's load of the word and its copy of the row: a sequence lock excludes
//! it, as in `ReadsAndLocks::observe`.

use contend_engine::sets::WriteKind;
use contend_engine::{Abort, Cell, CellCopy, Context, Groups, Located, Projection, RecordState};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::optimistic::VERSION_SHIFT;
use crate::optimistic::tid::epoch_of;
use crate::snapshot::{Snapshots, link, read_copy};

/// A copy that a commit is going to link.
#[derive(Debug)]
pub(super) struct Kept<M: Machine> {
    cell: Cell<M>,
    copy: CellCopy<M>,
}

/// Returns the link from a cell to its newest copy.
fn newest_copy<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: with snapshots cells have two words.
    unsafe { cell.meta(1) }
}

/// Says that a new record has no copies.
pub(super) fn forget_copies<M: Machine>(cell: Cell<M>) {
    // Relaxed: the index publishes the record.
    newest_copy(cell).store(0, Ordering::Relaxed);
}

/// Copies what the commit with the TID `tid` is going to overwrite, where a snapshot needs it. The
/// cells are locked. `kept` is passed for its memory, and the copies are needed until the epoch
/// `until`.
///
/// # Errors
/// The machine has no more memory. No copy is linked then.
pub(super) fn keep<M: Machine>(
    snapshots: Snapshots,
    cx: &mut Context<M>,
    kept: &mut Vec<Kept<M>>,
    tid: u64,
    until: u64,
) -> Result<(), Abort> {
    M::step("keep");
    let epoch = epoch_of(tid);
    kept.clear();
    for position in 0..cx.writes.len() {
        let write = &cx.writes.entries()[position];
        if write.kind == WriteKind::Nothing {
            continue;
        }
        let records_history = write.table().records_history();
        for (number, cell) in write.cell_numbers().into_iter().zip(write.cells()) {
            if is_shown(snapshots, cell, epoch, records_history) {
                let copy = cx.new_copy(position, number, until)?;
                cx.copy_present(position, number, copy);
                kept.push(Kept { cell, copy });
            }
        }
    }
    for &Kept { cell, copy } in kept.iter() {
        // Relaxed: no other transaction changes the word of a locked cell.
        link(newest_copy(cell), copy, cell.word().load(Ordering::Relaxed) & !(LOCKED | QUEUED));
    }
    Ok(())
}

/// Returns whether a snapshot lies between the version of the cell, which is locked, and `epoch`.
fn is_shown<M: Machine>(snapshots: Snapshots, cell: Cell<M>, epoch: u64, records_history: bool) -> bool {
    // Relaxed: no other transaction changes the word of a locked cell.
    let word = cell.word().load(Ordering::Relaxed);
    // A cell without versions is as absent as one that says so. But a recorded history wants to
    // know which transaction deleted the key before.
    let never_was = word >> VERSION_SHIFT == 0 && word & ABSENT != 0 && !records_history;
    !never_was && snapshots.show(epoch_of(word), epoch)
}

/// Reads a row as it was at the end of the epoch `snapshot`.
pub(super) fn read<M: Machine>(
    cx: &mut Context<M>,
    at: Located<'_, M>,
    columns: Projection<'_>,
    snapshot: u64,
) -> Result<RecordState, Abort> {
    M::step("read snapshot");
    let mut all = 0;
    for number in at.table.cell_numbers(columns.groups()) {
        all |= read_cell(cx, at, number, snapshot);
    }
    // A record that is out of the index was deleted before all snapshots that any transaction sees.
    Ok(flags::found(all & !UNLINKED))
}

/// Reads a cell as it was at the end of the epoch `snapshot`, and returns its flags.
fn read_cell<M: Machine>(cx: &mut Context<M>, at: Located<'_, M>, number: usize, snapshot: u64) -> u64 {
    let cell = at.cells(Groups::of(number as u32)).next().expect("a cell of the record");
    let mut spin = Spin::<M>::new();
    loop {
        // Acquire: pairs with the Release of `install_all`: the row, and the links to copies, are
        // at least as new as the word.
        let word = cell.word().load(Ordering::Acquire);
        if epoch_of(word) > snapshot {
            break;
        }
        if word & LOCKED == 0 {
            cx.copy_cell(at, number);
            // Acquire: pairs with the fence of a commit, between its locks and its stores to the
            // rows: step (d) of `ReadsAndLocks::observe`.
            M::fence(Ordering::Acquire);
            // Relaxed: ordered by the fence.
            if cell.word().load(Ordering::Relaxed) & !QUEUED == word & !QUEUED {
                return word;
            }
        }
        // A commit is at work. After it there is a copy; and it waits for no reader of a snapshot.
        spin.back_off();
    }
    // Acquire: pairs with the Release of `link`.
    let newest = newest_copy(cell).load(Ordering::Acquire);
    read_copy(cx, at, number, newest, |word| epoch_of(word) <= snapshot).unwrap_or(ABSENT)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contend_engine::{
        Abort, AbortReason, Engine, EngineConfig, IndexKind, NamedProtocol, RawTxn, Table, TableSpec, Txn, Worker,
    };
    use contend_engine::{Declaration, Groups, Projection};
    use contend_machine::Native;

    use crate::optimistic::silo::{Silo, SiloOptions};

    type Rows = Table<u64>;
    type Engines = Arc<Engine<Silo, Native>>;

    /// Rows 0 to 9 of one word, in the first epoch; epochs are advanced by hand.
    fn loaded(every: u32) -> (Engines, Rows, [Worker<Silo, Native>; 2]) {
        let options = SiloOptions { snapshots: true, snapshot_epochs: every, ..SiloOptions::default() };
        let config = EngineConfig { epoch_ms: u64::MAX, ..EngineConfig::default() };
        let engine = Engine::new(<Silo as NamedProtocol<Native>>::new(options), config);
        let rows: Rows = engine.create_table(&TableSpec::of_bytes("t", IndexKind::Ordered, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..10 {
            assert!(loader.insert(&rows, key, |row| row[0] = 0).expect("memory"));
        }
        drop(loader);
        let workers = [(); 2].map(|()| engine.worker().expect("a slot"));
        (engine, rows, workers)
    }

    fn advance(engine: &Engines, workers: &mut [Worker<Silo, Native>]) {
        workers.iter_mut().for_each(Worker::go_offline);
        assert!(engine.epochs().try_advance());
    }

    fn write(worker: &mut Worker<Silo, Native>, rows: &Rows, key: u64, value: u64) {
        worker
            .run(|tx| tx.write_row(rows, key, Groups::ALL).map(|row| row.expect("it is there")[0] = value))
            .expect("nobody else is there");
    }

    fn read(worker: &mut Worker<Silo, Native>, rows: &Rows, key: u64) -> Option<u64> {
        let read = |tx: &mut contend_engine::Transaction<'_, Silo, Native>| {
            Ok::<_, Abort>(tx.read_row(rows, key, Projection::WHOLE)?.map(|row| row[0]))
        };
        worker.run_declared(Declaration::read_only, read).expect("it never aborts")
    }

    #[test]
    fn a_reader_of_a_snapshot_sees_the_end_of_an_epoch_and_never_aborts() {
        let (engine, rows, mut workers) = loaded(1);
        for value in 1..20 {
            let [writer, reader] = &mut workers;
            write(writer, &rows, 1, value * 10);
            write(writer, &rows, 1, value);
            // Two epochs ago, or as loaded.
            assert_eq!(read(reader, &rows, 1), Some(value.saturating_sub(2)), "in step {value}");
            advance(&engine, &mut workers);
        }
        let [writer, reader] = &mut workers;
        // A long transaction keeps its state, whatever is overwritten.
        let mut long = reader.begin_read_only();
        let mut see =
            |rows: &Rows, key| long.read_row(rows, key, Projection::WHOLE).expect("it never aborts").map(|row| row[0]);
        assert_eq!(see(&rows, 1), Some(18));
        write(writer, &rows, 1, 100);
        write(writer, &rows, 2, 100);
        assert_eq!((see(&rows, 1), see(&rows, 2)), (Some(18), Some(0)));
        long.commit().expect("it never aborts");
    }

    #[test]
    fn rows_come_and_go_with_their_epochs() {
        let (engine, rows, mut workers) = loaded(1);
        let deleted = workers[0].run(|tx| tx.delete(&rows, 3)).expect("nobody else is there");
        let inserted = workers[0].run(|tx| tx.insert_row(&rows, 50).map(|row| row.expect("it is new")[0] = 5));
        assert!(deleted && inserted.is_ok());
        let mut seen = Vec::new();
        for _ in 0..8 {
            // A deleted row stays in the index as long as a transaction may see it.
            workers[0].collect();
            seen.push((read(&mut workers[1], &rows, 3), read(&mut workers[1], &rows, 50)));
            advance(&engine, &mut workers);
        }
        let (before, after) = ((Some(0), None), (None, Some(5)));
        assert_eq!(seen, [before, before, after, after, after, after, after, after]);
    }

    #[test]
    fn copies_are_reused() {
        for every in [1, 4] {
            let (engine, rows, mut workers) = loaded(every);
            let mut bytes = 0;
            for step in 0..20_000 {
                write(&mut workers[0], &rows, step % 10, step);
                if step % 10 == 9 {
                    advance(&engine, &mut workers);
                    workers[0].collect();
                }
                if step == 10_000 {
                    bytes = engine.bytes();
                }
            }
            assert_eq!(engine.bytes(), bytes, "a snapshot every {every} epochs");
        }
    }

    #[test]
    fn a_transaction_that_said_it_would_only_read_must_not_write() {
        let (_engine, rows, mut workers) = loaded(1);
        for key in [1, 77] {
            let outcome = workers[0]
                .run_declared(Declaration::read_only, |tx| tx.insert_row(&rows, key).map(|row| row.is_some()));
            match key {
                1 => assert_eq!(outcome, Ok(false), "there is a row: it has only read that"),
                _ => assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::Unsupported)),
            }
        }
        let outcome = workers[0].run_declared(Declaration::read_only, |tx| tx.delete(&rows, 1));
        assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::Unsupported));
    }
}
