//! Snapshots: transactions that only read see a state some epochs old, and never abort (Silo,
//! section 4.9).
//!
//! **Which state.** Commits of an epoch come after those of all epochs before. A worker that begins
//! in epoch `e` knows that no transaction can commit in `e - 2` or before any more: the state at
//! the end of that epoch is final. Of all epochs only every `silo.snapshot_epochs`-th has a
//! snapshot at its end.
//!
//! (The state at the end of `e - 1` is final, too. A transaction that commits in that epoch had all
//! its locks when it loaded the epoch, which was before `e` began, and a reader waits for locked
//! cells. The paper, and this code, have an epoch more.)
//!
//! **Versions.** A commit that overwrites a cell keeps a copy of it if a snapshot lies between the
//! old version's epoch and its own. A cell's second word leads to the newest copy, and each copy's
//! second word to the next older one: a copy begins with the cell's word as it was.
//!
//! **Reuse.** A copy that was overwritten in epoch `e` serves snapshots before `e`. Let `s` be the
//! first snapshot at or after `e`: the copy is reused once every transaction that began before
//! epoch `s + 2` has ended. A tombstone stays in the index as long.
//!
//! **Memory ordering.** A reader goes from the cell's word to its copies, a commit from the copies
//! to the word. The commit links a copy with Release before it installs the new word with Release;
//! the reader loads the word with Acquire and then the link with Acquire. So a reader that finds a
//! word that is too new finds the copy that was made before it. The interleaving that remains is a
//! commit between the reader's load of the word and its copy of the row: a sequence lock excludes
//! it, as in `ReadsAndLocks::observe`.

use contend_engine::sets::WriteKind;
use contend_engine::{Abort, Cell, Cells, Context, Groups, Located, Projection, Record, RecordState};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::optimistic::VERSION_SHIFT;
use crate::optimistic::tid::epoch_of;

/// Returns the link from a cell, or from a copy, to the next older copy.
fn older_than<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: with snapshots cells have two words.
    unsafe { cell.meta(1) }
}

/// Says that a new record has no copies.
pub(super) fn forget_copies<M: Machine>(cell: Cell<M>) {
    // Relaxed: the index publishes the record.
    older_than(cell).store(0, Ordering::Relaxed);
}

/// Returns the cell of this number.
fn cell_of<M: Machine>(at: Located<'_, M>, number: usize) -> Cell<M> {
    at.cells(Groups::of(number as u32)).next().expect("a cell of the record")
}

/// Which epochs have a snapshot at their end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Snapshots {
    /// The number of epochs from one snapshot to the next.
    pub(super) every: u64,
}

impl Snapshots {
    /// Returns the epoch whose end a transaction sees that began in `began_in`.
    pub(super) fn seen_from(self, began_in: u64) -> u64 {
        began_in.saturating_sub(2) / self.every * self.every
    }

    /// Returns the first epoch, from `epoch` on, with a snapshot at its end.
    fn first_from(self, epoch: u64) -> u64 {
        epoch.div_ceil(self.every) * self.every
    }

    /// Returns whether all transactions have ended that see a snapshot from before the tombstone
    /// with this `word`: none runs that began before epoch `oldest`.
    pub(super) fn lets_unlink(self, word: u64, oldest: u64) -> bool {
        oldest >= self.first_from(epoch_of(word)) + 2
    }

    /// Copies what the commit with the TID `tid` is going to overwrite, where a snapshot needs it.
    /// The cells are locked. `copies` is passed for its memory.
    ///
    /// # Errors
    /// The machine has no more memory.
    pub(super) fn keep<M: Machine>(
        self,
        cx: &mut Context<M>,
        copies: &mut Vec<(usize, Record<M>)>,
        tid: u64,
    ) -> Result<(), Abort> {
        M::step("keep");
        let epoch = epoch_of(tid);
        copies.clear();
        // If memory runs out, copies were made that are not linked yet: no reader finds them.
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            let records_history = write.table().records_history();
            if write.kind != WriteKind::Nothing && write.cells().any(|cell| self.needs(cell, epoch, records_history)) {
                let copy = cx.copy_version(position)?;
                cx.retire_version(copy, self.first_from(epoch));
                copies.push((position, copy.record()));
            }
        }
        for &(position, copy) in copies.iter() {
            let write = &cx.writes.entries()[position];
            let records_history = write.table().records_history();
            let copied: Cells<M> = write.table().cells(copy, write.groups());
            for (cell, copied) in write.cells().zip(copied) {
                if !self.needs(cell, epoch, records_history) {
                    continue;
                }
                // Relaxed, all but the last: no other transaction changes a locked cell, and none
                // sees the copy yet.
                copied.word().store(cell.word().load(Ordering::Relaxed) & !(LOCKED | QUEUED), Ordering::Relaxed);
                older_than(copied).store(older_than(cell).load(Ordering::Relaxed), Ordering::Relaxed);
                // Release: pairs with the Acquire of `read_cell`: the copy comes before its link.
                older_than(cell).store(copy.value(), Ordering::Release);
            }
        }
        Ok(())
    }

    /// Returns whether a snapshot lies between the version of the cell, which is locked, and
    /// `epoch`.
    fn needs<M: Machine>(self, cell: Cell<M>, epoch: u64, records_history: bool) -> bool {
        // Relaxed: no other transaction changes the word of a locked cell.
        let word = cell.word().load(Ordering::Relaxed);
        // A cell without versions is as absent as one that says so. But a recorded history wants to
        // know which transaction deleted the key before.
        let never_was = word >> VERSION_SHIFT == 0 && word & ABSENT != 0 && !records_history;
        !never_was && self.first_from(epoch_of(word)) < epoch
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
            all |= Self::read_cell(cx, at, number, snapshot);
        }
        // A record that is out of the index was deleted before all snapshots that any transaction
        // sees.
        Ok(flags::found(all & !UNLINKED))
    }

    /// Reads a cell as it was at the end of the epoch `snapshot`, and returns its flags.
    fn read_cell<M: Machine>(cx: &mut Context<M>, at: Located<'_, M>, number: usize, snapshot: u64) -> u64 {
        let mut cell = cell_of(at, number);
        let mut spin = Spin::<M>::new();
        loop {
            // Acquire: pairs with the Release of `install_all`: the row, and the links to copies,
            // are at least as new as the word.
            let word = cell.word().load(Ordering::Acquire);
            if epoch_of(word) > snapshot {
                break;
            }
            if word & LOCKED == 0 {
                cx.copy_cell(at, number);
                // Acquire: pairs with the fence of a commit, between its locks and its stores to
                // the rows: step (d) of `ReadsAndLocks::observe`.
                M::fence(Ordering::Acquire);
                // Relaxed: ordered by the fence.
                if cell.word().load(Ordering::Relaxed) & !QUEUED == word & !QUEUED {
                    return word;
                }
            }
            // A commit is at work. After it there is a copy; and it waits for no reader of a
            // snapshot.
            spin.wait();
        }
        loop {
            // Acquire: pairs with the Release of `keep`.
            let address = older_than(cell).load(Ordering::Acquire);
            if address == 0 {
                return ABSENT;
            }
            // SAFETY: `keep` has put a copy of this table there. A copy that a snapshot needs, and
            // any newer one, is not reused before the readers of the snapshot have ended.
            let copy = Located { table: at.table, record: unsafe { at.table.version(address) } };
            cell = cell_of(copy, number);
            // Relaxed: a copy does not change; the Acquire above orders it.
            let word = cell.word().load(Ordering::Relaxed);
            if epoch_of(word) <= snapshot {
                cx.copy_cell(copy, number);
                return word;
            }
        }
    }
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
                if step == 2000 {
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
