//! Nested OCC: Silo, whose pieces are validated when they end, and run again by themselves.
//!
//! **Idea.** A transaction is a chain of pieces (`contend_model::pieces`). What a piece has read is
//! validated once more when the piece ends. If something has changed, only this piece runs again,
//! on what is there now. What earlier pieces have done stays. The commit validates everything, as
//! Silo does. So a conflict that came late in a long transaction costs a piece and not the
//! transaction.
//!
//! **Paper.** The baseline "nested transactions" of Z. Wang, S. Mu, Y. Cui, H. Yi, H. Chen, J. Li:
//! "Scaling multicore databases via constrained parallel execution", SIGMOD 2016, section 6. Silo:
//! S. Tu et al.: "Speedy transactions in multicore in-memory databases", SOSP 2013.
//!
//! | step | function |
//! | --- | --- |
//! | a piece begins: what is undone if it runs again | `begin_piece` |
//! | read, write, insert, delete, scan | as Silo: [`Validating`], [`ReadsAndLocks`] |
//! | a piece ends: look at what it has read, without locks | `end_piece` |
//! | a conflict: drop the piece's reads, leaves and writes | `undo_piece`; the engine drops the writes |
//! | commit: lock the write set, validate all reads, install | `commit`, `ReadsAndLocks::{lock_writes, validate}` |
//!
//! **Pieces are hints.** The validation of a piece decides nothing but whether the piece runs
//! again. So no analysis of the types is needed, and a transaction without pieces is one of Silo.
//! Where types are declared, the engine checks their accesses.
//!
//! **What a piece can't take back.** A piece runs again only if dropping its own part of the
//! transaction leaves the rest as it was. So the transaction aborts instead if the piece has
//! changed a row that an earlier piece had written, or if it has inserted a key into a leaf that an
//! earlier piece had observed. A piece inside another one is a part of that one.
//!
//! **Promises** serializability, as Silo.
//!
//! **Metadata.** One word for each cell, as Silo: a TID above the flags of [`crate::flags`].
//!
//! **Commit point**: as Silo, the load of the global epoch, between the last lock and the first
//! validation.
//!
//! **Waits.** As in Silo: a reader waits while a cell is locked, and `nested-occ.wait` says what a
//! committing writer does. A piece that runs again waits for a moment, the longer the more often.
//!
//! **Phantoms.** Misses and scans observe leaf versions. They are validated when the piece ends,
//! and at commit.
//!
//! **Departures from the paper.** The paper says neither how often a piece runs again nor what a
//! piece does about the writes of earlier pieces. Here it runs again at most `nested-occ.retries`
//! times, because the stale read may be an earlier piece's. There are no snapshots: types that only
//! read are validated like all others.
//!
//! **Defaults.** `nested-occ.wait=spin`, as Silo.

use std::marker::PhantomData;

use contend_engine::sets::Write;
use contend_engine::{
    Abort, AbortReason, Change, Context, DeclarationNeeds, Isolation, Leaf, Located, PieceBegin, ProtocolInfo,
    Tombstone, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::flags::LOCKED;
use crate::method::ReadPhaseOptions;
use crate::method::wait::Wait;
use crate::optimistic::{OptimisticFaults, ReadsAndLocks, Validating, Validation, observed, tid};

options! {
    /// Options of nested OCC.
    pub struct NestedOccOptions {
        /// The number of times that a piece runs again after a conflict, before its transaction
        /// aborts.
        "nested-occ.retries" retries: u32 = 3, in 0..=1_000_000;
        /// What a committing writer does about a lock that another holds: wait in address order,
        /// spin for a moment, or abort.
        "nested-occ.wait" wait: Wait = Wait::Spin, in Wait::SIMPLE;
        flatten read_phase: ReadPhaseOptions;
    }
}

/// The protocol.
pub type NestedOcc<F = Sound> = Validating<NestedValidation<F>>;

/// How nested OCC validates.
#[derive(Debug)]
pub struct NestedValidation<F> {
    options: NestedOccOptions,
    faults: PhantomData<fn() -> F>,
}

/// Nested OCC's part of a worker's state.
#[derive(Debug, Default)]
pub struct NestedWorker {
    /// The largest TID that the commit will overwrite.
    overwritten: u64,
    /// The TID of the worker's last commit.
    last: u64,
    /// The number of pieces that are open, each inside the one before.
    depth: u32,
    /// The numbers of reads, of observed leaves and of writes at the beginning of the outermost
    /// open piece, or else of the last piece.
    first_read: usize,
    first_leaf: usize,
    first_write: usize,
    /// Whether the open piece has done what it can't take back.
    is_final: bool,
    /// The number of times that the open piece has failed.
    retries: u32,
}

/// The longest wait of a piece before it runs again, in turns of the spin.
const TURNS_MAX: u32 = 6;

impl<M: Machine, F: NestedFaults> Validation<M> for NestedValidation<F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "nested-occ",
        summary: "optimistic like Silo, with pieces that are validated when they end and run again by themselves",
        paper: "Wang, Mu, Cui, Yi, Chen, Li: Scaling multicore databases via constrained parallel execution, SIGMOD 2016",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const PROVIDES_WRITE_COUNTERS: bool = true;
    const PIECES: bool = true;
    type Options = NestedOccOptions;
    type Faults = F;
    type WorkerState = NestedWorker;

    fn new(options: NestedOccOptions) -> Self {
        NestedValidation { options, faults: PhantomData }
    }

    #[inline(always)]
    fn read_phase(&self) -> &ReadPhaseOptions {
        &self.options.read_phase
    }

    fn new_worker_state(&self, _: usize) -> NestedWorker {
        NestedWorker::default()
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, own: &mut NestedWorker) {
        *own = NestedWorker { last: own.last, ..NestedWorker::default() };
    }

    fn begin_piece(&self, cx: &Context<M>, reads: &ReadsAndLocks<M>, own: &mut NestedWorker) -> PieceBegin {
        own.depth += 1;
        if own.depth > 1 {
            return PieceBegin::Inside;
        }
        (own.first_read, own.first_leaf, own.first_write) = (reads.entries.len(), cx.nodes.len(), cx.writes.len());
        own.is_final = false;
        PieceBegin::Step
    }

    /// Looks at what the piece has read. The commit judges it again, under its locks, so nothing
    /// is ordered here, and a change that comes right after the look does no harm.
    fn end_piece(&self, cx: &Context<M>, reads: &ReadsAndLocks<M>, own: &mut NestedWorker) -> Result<(), Abort> {
        own.depth -= 1;
        if own.depth > 0 {
            return Ok(());
        }
        M::step("validate piece");
        for read in &reads.entries[own.first_read..] {
            // Relaxed: as above.
            let now = read.cell.word().load(Ordering::Relaxed);
            // The transaction holds no lock yet, so a lock is that of another commit.
            if now & LOCKED != 0 || observed(now) != read.observed_word() {
                return Err(cx.conflict_at(read.cell, Abort::new(AbortReason::ReadValidation)));
            }
        }
        // Acquire: as `NodeSet::validate`.
        let changed = |(leaf, version): &(Leaf<M>, u64)| leaf.version_as(Ordering::Acquire) != *version;
        if let Some((leaf, _)) = cx.nodes.observed().skip(own.first_leaf).find(changed) {
            return Err(cx.conflict_in(leaf, Abort::new(AbortReason::Phantom)));
        }
        own.retries = 0;
        Ok(())
    }

    fn undo_piece(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut NestedWorker) -> bool {
        if own.is_final || own.retries >= self.options.retries {
            return false;
        }
        own.retries += 1;
        own.depth = 0;
        reads.entries.truncate(own.first_read);
        cx.nodes.roll_back(own.first_leaf);
        let mut spin = Spin::<M>::new();
        (0..own.retries.min(TURNS_MAX)).for_each(|_| spin.wait());
        true
    }

    #[inline(always)]
    fn before_rewrite(&self, own: &mut NestedWorker, position: usize) {
        own.is_final |= position < own.first_write;
    }

    fn prepare_placeholder(
        &self,
        cx: &Context<M>,
        own: &mut NestedWorker,
        _: Located<'_, M>,
        change: &Change<M>,
    ) -> u64 {
        // An earlier piece has observed the gap. Its observation is about to be carried over to the
        // version with the placeholder, which does not change if another transaction gives the
        // placeholder a row. Only this piece's own read of the placeholder would find that row.
        let mut earlier = cx.nodes.leaves().take(own.first_leaf);
        own.is_final |= own.depth > 0 && earlier.any(|leaf| leaf == change.leaf) && Self::keeps_filled_gaps();
        <Self as Validation<M>>::PLACEHOLDER
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut NestedWorker) -> Result<(), Abort> {
        let first = Self::first_validated(own);
        if cx.writes.is_empty() {
            return reads.validate::<F>(cx, first, |_, _| false);
        }
        own.overwritten = reads.lock_writes(cx, self.options.wait, Write::cells)?;
        // SeqCst: pairs with the same fence of other commits, and with the fence of
        // `ReadsAndLocks::observe`: as in Silo, the locks come before the loads of validation and
        // before the stores to the rows.
        dekker_fence::<M, F>();
        M::step("epoch");
        let epoch = tid::epoch_of_commit::<M, F>(cx);
        reads.validate::<F>(cx, first, |_, _| false)?;
        // By Silo's three rules: larger than all TIDs read, than all TIDs overwritten, and than the
        // worker's last.
        let tid = tid::next_tid(reads.newest_read().max(own.overwritten).max(own.last), epoch)?;
        tid::install_as_tid(cx, Write::cells, tid);
        own.last = tid;
        Ok(())
    }

    fn lets_unlink(&self, tombstone: Tombstone<'_, M>, word: u64) -> bool {
        tombstone.is_over(tid::epoch_of(word))
    }
}

faults! {
    /// The deliberate faults of nested OCC.
    pub trait NestedFaults: OptimisticFaults {
        /// The commit validates only what the last piece has read: the others were validated when
        /// they ended.
        validate_last_piece,
        /// A piece runs again although its insert has filled a gap that an earlier piece had
        /// observed.
        forget_filled_gaps,
    }
    pub const FAULTS;
}

/// The places at which the algorithm has its faults.
impl<F: NestedFaults> NestedValidation<F> {
    /// Returns the position of the first read that the commit validates: 0 without a fault.
    #[inline(always)]
    fn first_validated(own: &NestedWorker) -> usize {
        if F::validate_last_piece() { own.first_read } else { 0 }
    }

    /// Whether a piece that has filled an observed gap does not run again: always, without a fault.
    #[inline(always)]
    fn keeps_filled_gaps() -> bool {
        !F::forget_filled_gaps()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contend_engine::{
        Abort, AbortReason, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, Table,
        TableSpec, Transaction, Txn, Worker,
    };
    use contend_machine::Native;
    use contend_model::pieces::Piece;

    use super::{NestedOcc, NestedOccOptions};

    type Running<'w> = Transaction<'w, NestedOcc, Native>;
    type Rows = Table<u64>;

    const FIRST: Piece = Piece::new(0, "first");
    const SECOND: Piece = Piece::new(1, "second");

    struct World {
        rows: Rows,
        one: Worker<NestedOcc, Native>,
        other: Worker<NestedOcc, Native>,
    }

    /// Rows 0 to 9 of one word.
    fn world(options: NestedOccOptions) -> World {
        let protocol = <NestedOcc as NamedProtocol<Native>>::new(options);
        let engine: Arc<Engine<NestedOcc, Native>> = Engine::new(protocol, EngineConfig::default());
        let rows: Rows = engine.create_table(&TableSpec::of_bytes("t", IndexKind::Ordered, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..10 {
            assert!(loader.insert(&rows, key, |row| row[0] = 0).expect("memory"));
        }
        drop(loader);
        let [one, other] = [(); 2].map(|()| engine.worker().expect("a slot"));
        World { rows, one, other }
    }

    fn add(tx: &mut Running<'_>, rows: &Rows, key: u64) -> Result<u64, Abort> {
        let row = tx.modify_row(rows, key, Groups::ALL)?.expect("it is there");
        row[0] += 1;
        Ok(row[0])
    }

    /// Adds to row 1 in one piece and to row `key` in the next. Before the second piece ends,
    /// another transaction adds to row 2 in each of its first `disturbed` runs. Returns the outcome
    /// and the number of runs of both pieces.
    fn disturbed(world: &mut World, key: u64, disturbed: u32) -> (Result<u64, Abort>, [u32; 2]) {
        let World { rows, one, other } = world;
        let mut runs = [0; 2];
        let outcome = one.run(|tx| {
            tx.piece(FIRST, |tx| {
                runs[0] += 1;
                add(tx, rows, 1)
            })?;
            tx.piece(SECOND, |tx| {
                runs[1] += 1;
                let seen = add(tx, rows, 2)?;
                add(tx, rows, key)?;
                if runs[1] <= disturbed {
                    other.run(|tx| add(tx, rows, 2)).expect("nothing is locked");
                }
                Ok(seen)
            })
        });
        (outcome, runs)
    }

    #[test]
    fn a_piece_that_has_met_a_conflict_runs_again_alone() {
        let mut world = world(NestedOccOptions::default());
        assert_eq!(disturbed(&mut world, 3, 3), (Ok(4), [1, 4]));
        assert_eq!(world.one.piece_retries(), Some(3));
        assert_eq!((world.one.commits(), world.one.aborts().conflicts()), (1, 0));
        let World { rows, other, .. } = &mut world;
        // Each of the rows 1 and 3 was changed once.
        for key in [1, 3] {
            assert_eq!(other.run(|tx| add(tx, rows, key)), Ok(2));
        }
    }

    #[test]
    fn a_piece_runs_again_as_often_as_the_option_says() {
        for retries in [0, 1, 3] {
            let mut world = world(NestedOccOptions { retries, ..NestedOccOptions::default() });
            let (outcome, runs) = disturbed(&mut world, 3, u32::MAX);
            assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::ReadValidation));
            assert_eq!((runs, world.one.piece_retries()), ([1, retries + 1], Some(retries.into())));
            assert_eq!(world.one.aborts().conflicts(), 1);
        }
    }

    #[test]
    fn a_piece_that_has_changed_the_write_of_an_earlier_one_does_not_run_again() {
        let mut world = world(NestedOccOptions::default());
        let (outcome, runs) = disturbed(&mut world, 1, 1);
        assert_eq!(outcome.map_err(|abort| abort.reason), Err(AbortReason::ReadValidation));
        assert_eq!(runs, [1, 1]);
        assert_eq!(disturbed(&mut world, 1, 0), (Ok(2), [1, 1]));
        let World { rows, other, .. } = &mut world;
        assert_eq!(other.run(|tx| add(tx, rows, 1)), Ok(3));
    }

    #[test]
    fn a_row_that_a_piece_inserts_again_after_a_delete_is_no_write_of_its_own() {
        let mut world = world(NestedOccOptions::default());
        let World { rows, one, other } = &mut world;
        let mut runs = 0;
        let outcome = one.run(|tx| {
            tx.piece(FIRST, |tx| tx.delete_row(rows, 1))?;
            tx.piece(SECOND, |tx| {
                runs += 1;
                tx.insert_row(rows, 1)?.expect("it is deleted")[0] = 7;
                let seen = add(tx, rows, 2)?;
                if runs == 1 {
                    other.run(|tx| add(tx, rows, 2)).expect("nothing is locked");
                }
                Ok(seen)
            })
        });
        assert_eq!((outcome.map_err(|abort| abort.reason), runs), (Err(AbortReason::ReadValidation), 1));
        assert_eq!(other.run(|tx| add(tx, rows, 1)), Ok(1), "nothing was changed");
    }

    #[test]
    fn a_conflict_of_an_outer_piece_does_not_drop_a_part_of_it() {
        let mut world = world(NestedOccOptions::default());
        let World { rows, one, other } = &mut world;
        let mut runs = [0; 2];
        let outcome = one.run(|tx| {
            tx.piece(FIRST, |tx| {
                runs[0] += 1;
                add(tx, rows, 1)?;
                tx.piece(SECOND, |tx| {
                    runs[1] += 1;
                    add(tx, rows, 2)
                })?;
                other.run(|tx| add(tx, rows, 1)).expect("nothing is locked");
                Ok(())
            })
        });
        assert_eq!((outcome.map_err(|abort| abort.reason), runs), (Err(AbortReason::ReadValidation), [1, 1]));
    }

    #[test]
    fn an_insert_of_a_piece_that_runs_again_is_one_insert() {
        let mut world = world(NestedOccOptions::default());
        let World { rows, one, other } = &mut world;
        for key in 100..300 {
            let mut runs = 0;
            let inserted = one.run(|tx| {
                tx.piece(FIRST, |tx| {
                    runs += 1;
                    let inserted = tx.insert_row(rows, key)?.map(|row| row[0] = key).is_some();
                    add(tx, rows, 2)?;
                    if runs == 1 {
                        other.run(|tx| add(tx, rows, 2)).expect("nothing is locked");
                    }
                    Ok(inserted)
                })
            });
            assert_eq!((inserted, runs), (Ok(true), 2), "{key}");
            assert_eq!(other.run(|tx| tx.delete(rows, key)), Ok(true), "{key}");
        }
        assert_eq!((one.commits(), one.aborts().conflicts()), (200, 0), "also where a leaf was split");
    }

    #[test]
    fn a_piece_that_has_filled_a_gap_which_an_earlier_one_had_observed_does_not_run_again() {
        let mut world = world(NestedOccOptions::default());
        let World { rows, one, other } = &mut world;
        // The second piece inserts the key that the first has missed, or another one beside it.
        for (missed, key) in [(100, 100), (200, 201)] {
            let mut runs = 0;
            let outcome = one.run(|tx| {
                let is_there = tx.piece(FIRST, |tx| Ok(tx.read_row(rows, missed, Projection::WHOLE)?.is_some()))?;
                tx.piece(SECOND, |tx| {
                    runs += 1;
                    tx.insert_row(rows, key)?.expect("it is new")[0] = 1;
                    add(tx, rows, 2)?;
                    other.run(|tx| add(tx, rows, 2)).map(|_| is_there)
                })
            });
            let reason = outcome.map_err(|abort| abort.reason);
            assert_eq!((reason, runs), (Err(AbortReason::ReadValidation), 1), "{key}");
        }
    }
}
