//! MOCC: Silo, with read locks on records that have proved hot.
//!
//! **Idea.** Optimistic validation is cheap where it succeeds, and locks are cheap where validation
//! would fail. Each record has a temperature, which rises when a validation fails because of the
//! record. A record that is hot is locked before it is read or written; all others are read and
//! validated as in Silo.
//!
//! **Paper.** T. Wang, H. Kimura: "Mostly-optimistic concurrency control for highly contended
//! dynamic workloads on a thousand cores", VLDB 2016.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | temperature: rise with falling probability, reset | `MoccValidation::heat`, `temperature` |
//! | read or write: lock the record if it is hot | `before_access` |
//! | canonical mode: release what comes after, then wait | `MoccValidation::lock` |
//! | retrospective lock list | `MoccWorker::suspects` |
//! | commit: lock the write set, validate, install | `commit` |
//!
//! **Promises** serializability. A running transaction may see an inconsistent state before it
//! aborts.
//!
//! **Metadata.** Two words for each cell. The first is Silo's: a TID (epoch and sequence number)
//! above the flags of [`crate::flags`]. The second is a reader-writer lock with the temperature:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..40 | the epoch, its lower bits, for which the temperature holds: it is 0 in all others |
//! | 39..32 | temperature |
//! | 31 | held exclusively |
//! | 30..0 | the number of transactions that hold it shared |
//!
//! A transaction that installs a write holds the lock exclusively, and sets the lock bit of the TID
//! word while it commits, because readers that take no lock look at that word only. (If the lock
//! were in its own word alone, read after the TID, a reader could miss a writer that comes and goes
//! between its two loads.)
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation.
//! All reads are validated, those under locks too.
//!
//! **Waits.** A transaction waits for locks in the order of addresses only. If it needs a lock that
//! comes before some that it holds, it tries that lock once. If the lock is taken, the transaction
//! first gives back the locks that come after it, and then waits. The reads under these stay
//! protected by validation. So no cycle of waits can form. The commit takes the exclusive lock of a
//! write again if it was given back. All waits are bounded and end in an abort.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated when all locks are
//! held, as in Silo.
//!
//! **Retries.** The records that were written, and those that failed to validate, are locked before
//! use by the worker's next transaction, which usually is the same one again.
//!
//! **Departures from the paper.** The temperature belongs to the record, not to the page. The list
//! of locks for the retry names the records to lock. But a record is not locked before the retry
//! asks for it, and another transaction may hold it by then.

use std::marker::PhantomData;

use contend_engine::sets::Write;
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Context, DeclarationNeeds, Groups, Isolation, Located, ProtocolInfo, Tombstone,
    WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use contend_model::random::{GOLDEN_GAMMA, Xorshift64};

use crate::fault::{Sound, dekker_fence};
use crate::faults;
use crate::method::ReadPhaseOptions;
use crate::method::wait::WAITS_MAX;
use crate::optimistic::{FLAGS, OptimisticFaults, ReadsAndLocks, Validating, Validation, observed, tid};

options! {
    /// MOCC's options.
    pub struct MoccOptions {
        /// The temperature from which on a record is locked; 0: all records are always locked.
        "mocc.hot" hot: u32 = 5, in 0..=20;
        flatten read_phase: ReadPhaseOptions;
    }
}

/// The protocol.
pub type Mocc<F = Sound> = Validating<MoccValidation<F>>;

/// The validation of MOCC.
#[derive(Debug)]
pub struct MoccValidation<F> {
    options: MoccOptions,
    faults: PhantomData<fn() -> F>,
}

// The lock and the temperature share a word. So a transaction that looks whether a cell is hot has
// the lock's line when it then takes the lock.
const EXCLUSIVE: u64 = 1 << 31;
const READERS: u64 = EXCLUSIVE - 1;
const LOCK: u64 = EXCLUSIVE | READERS;
const TEMPERATURE_SHIFT: u32 = 32;
const TEMPERATURE_MAX: u64 = 20;
/// The lowest bit of the temperature's epoch.
const HEATED_IN_SHIFT: u32 = 40;

/// Returns the word with the lock of a cell.
fn lock_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: cells have two words.
    unsafe { cell.meta(1) }
}

fn temperature(lock: u64, epoch: u64) -> u64 {
    // No thread resets temperatures, because that would take every line from its readers. An old
    // temperature is void because its epoch differs. After 2^24 epochs it would hold again, which
    // would cost one needless lock.
    let holds = lock >> HEATED_IN_SHIFT == epoch << HEATED_IN_SHIFT >> HEATED_IN_SHIFT;
    if holds { lock >> TEMPERATURE_SHIFT & 0xff } else { 0 }
}

/// MOCC's part of a worker's state.
#[derive(Debug)]
pub struct MoccWorker<M: Machine> {
    /// The locks that are held, in the order of addresses, each with whether it is exclusive.
    held: Vec<(Cell<M>, bool)>,
    /// The sorted addresses of cells to lock before use: the cells that the transaction before has
    /// touched, if it was aborted.
    suspects: Vec<u64>,
    /// The largest TID that the commit will overwrite.
    overwritten: u64,
    /// The TID of the worker's last commit.
    last: u64,
    /// The epoch in which the transaction began: temperatures of other epochs are void.
    epoch: u64,
    random: Xorshift64,
}

impl<F: MoccFaults> MoccValidation<F> {
    fn is_hot<M: Machine>(&self, own: &MoccWorker<M>, cell: Cell<M>) -> bool {
        // Relaxed: a guess, with no partner. A transaction that takes a hot cell for a cold one
        // reads optimistically, as Silo does; validation protects both kinds of reads.
        Self::locks_all()
            || temperature(lock_of(cell).load(Ordering::Relaxed), own.epoch) >= u64::from(self.options.hot)
            || !own.suspects.is_empty() && own.suspects.binary_search(&cell.address()).is_ok()
    }

    fn try_lock<M: Machine>(cell: Cell<M>, exclusive: bool) -> bool {
        // Relaxed: the exchange decides. It is compared with the whole word, so it also fails if
        // only the temperature has changed; then the loop tries again with what it found.
        let mut lock = lock_of(cell).load(Ordering::Relaxed);
        loop {
            if lock & if exclusive { LOCK } else { EXCLUSIVE } != 0 {
                return false;
            }
            let new = if exclusive { lock | EXCLUSIVE } else { lock + 1 };
            // Acquire: pairs with the Release of `unlock`, so that a holder sees the row that the
            // last exclusive holder wrote. All changes of the word after that are exchanges and
            // subtractions, which continue its release sequence. So the pair holds even if other
            // readers have come and gone, or the cell was heated, in between.
            match lock_of(cell).compare_exchange(lock, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => lock = now,
            }
        }
    }

    fn unlock<M: Machine>(cell: Cell<M>, exclusive: bool) {
        // Release: pairs with the Acquire of `try_lock`: this transaction's reads and writes come
        // before. It is a subtraction and no store, because readers and `heat` may change the word
        // at the same time.
        lock_of(cell).fetch_sub(if exclusive { EXCLUSIVE } else { 1 }, Ordering::Release);
    }

    /// Makes the transaction hold the lock of a cell, exclusively if `exclusive`.
    fn lock<M: Machine>(own: &mut MoccWorker<M>, cell: Cell<M>, exclusive: bool) -> Result<(), Abort> {
        let position = own.held.partition_point(|(held, _)| held.address() < cell.address());
        let mine = own.held.get(position).filter(|(held, _)| held.address() == cell.address());
        match mine {
            Some((_, held_exclusive)) if *held_exclusive || !exclusive => return Ok(()),
            Some(_) => {}
            None if Self::try_lock(cell, exclusive) => {
                own.held.insert(position, (cell, exclusive));
                return Ok(());
            }
            None => {}
        }
        // The locks that come after are given back, with a share of this one: from here on every
        // lock held comes before the lock waited for. The excluded interleaving is a cycle of
        // waits. In a cycle one transaction would hold a lock with a larger address than the lock
        // that it waits for.
        M::step("give back");
        let given_back = Self::given_back(position, own.held.len());
        own.held.drain(given_back).for_each(|(held, exclusive)| Self::unlock(held, exclusive));
        let mut spin = Spin::<M>::new();
        while !Self::try_lock(cell, exclusive) {
            if spin.count() > WAITS_MAX {
                return Err(Abort::new(if exclusive { AbortReason::WriteLocked } else { AbortReason::ReadLocked }));
            }
            spin.back_off();
        }
        // `position` is still right: what was drained stood at it and behind it.
        own.held.insert(position, (cell, exclusive));
        Ok(())
    }

    /// Locks the hot cells among `cells`.
    #[inline(always)]
    fn lock_hot<M: Machine>(&self, own: &mut MoccWorker<M>, cells: Cells<M>, exclusive: bool) -> Result<(), Abort> {
        for cell in cells {
            if self.is_hot(own, cell) {
                M::step("lock hot");
                Self::lock(own, cell, exclusive)?;
            }
        }
        Ok(())
    }

    /// Raises the temperature of a cell that has made a validation fail. The warmer the cell, the
    /// less likely is a rise.
    fn heat<M: Machine>(own: &mut MoccWorker<M>, cell: Cell<M>, epoch: u64) {
        let random = own.random.draw();
        // Relaxed, all: the exchange decides, and a temperature orders nothing. The exchange leaves
        // the lock as it is, and other updates of the word are read-modify-writes, so that the
        // next holder still synchronizes with the last.
        let lock = lock_of(cell).load(Ordering::Relaxed);
        let now = temperature(lock, epoch);
        if now < TEMPERATURE_MAX && random.trailing_zeros() as u64 >= now {
            let new = epoch << HEATED_IN_SHIFT | (now + 1) << TEMPERATURE_SHIFT | lock & LOCK;
            // Relaxed: as above. If it fails, another transaction has changed the word, and the
            // cell stays as warm as it is.
            let _ = lock_of(cell).compare_exchange(lock, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Phase 1: locks the write set in the order of addresses. It first takes the locks that may be
    /// waited for, and then the lock bits of the TID words, without waiting for another
    /// transaction.
    fn lock_write_set<M: Machine>(
        cx: &mut Context<M>,
        reads: &mut ReadsAndLocks<M>,
        own: &mut MoccWorker<M>,
    ) -> Result<(), Abort> {
        M::step("lock");
        cx.writes.sort();
        for rank in 0..cx.writes.len() {
            for cell in cx.writes.entries()[cx.writes.sorted(rank)].cells() {
                Self::lock(own, cell, true).map_err(|abort| cx.conflict_at(cell, abort))?;
            }
        }
        // The exclusive locks keep other commits away from the words of these cells, so this second
        // round waits for no commit and needs no order.
        for write in cx.writes.entries() {
            for cell in write.cells() {
                let word = reads.lock(cx, cell, write.needs_row(), WAITS_MAX)?;
                own.overwritten = own.overwritten.max(word & !FLAGS);
            }
        }
        Ok(())
    }

    /// Phase 2: checks that all reads are still valid, and heats the cells of those that aren't.
    fn validate<M: Machine>(
        cx: &Context<M>,
        reads: &mut ReadsAndLocks<M>,
        own: &mut MoccWorker<M>,
    ) -> Result<(), Abort> {
        M::step("validate");
        let mut changed_at = None;
        for position in 0..reads.entries.len() {
            let read = reads.entries[position];
            // SeqCst: in one order with the fences of other commits and with the load of the epoch
            // (`tid::order_of_validation`), as in Silo. It is an Acquire, too: validation comes
            // before the writes.
            let now = read.cell.word().load(tid::order_of_validation::<F>());
            // A read made under a lock is compared as well. Its lock may have been given back since
            // (`lock`), and another transaction may have written the cell before it was locked
            // again.
            let changed = observed(now) != read.observed_word();
            let locked_by_other = reads.is_locked_by_other::<F>(read, now);
            if (changed || locked_by_other) && !Self::trusts_locks() {
                // The loop goes on after the first failure, so that all cells that have changed are
                // heated at once.
                Self::heat(own, read.cell, cx.current_epoch());
                own.suspects.push(read.cell.address());
                changed_at = changed_at.or(Some(read.cell));
            }
        }
        match changed_at {
            None => cx.nodes.validate_as(tid::order_of_validation::<F>()),
            Some(cell) => Err(cx.conflict_at(cell, Abort::new(AbortReason::ReadValidation))),
        }
    }

    fn release_all<M: Machine>(own: &mut MoccWorker<M>) {
        own.held.drain(..).for_each(|(cell, exclusive)| Self::unlock(cell, exclusive));
    }
}

impl<M: Machine, F: MoccFaults> Validation<M> for MoccValidation<F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "mocc",
        summary: "optimistic like Silo, with read locks on records that have proved hot",
        paper: "Wang, Kimura: Mostly-optimistic concurrency control for highly contended dynamic workloads, VLDB 2016",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const PROVIDES_WRITE_COUNTERS: bool = true;
    type Options = MoccOptions;
    type Faults = F;
    type WorkerState = MoccWorker<M>;

    fn new(options: MoccOptions) -> Self {
        MoccValidation { options, faults: PhantomData }
    }

    #[inline(always)]
    fn read_phase(&self) -> &ReadPhaseOptions {
        &self.options.read_phase
    }

    fn meta_words(&self) -> usize {
        2
    }

    fn new_worker_state(&self, worker: usize) -> MoccWorker<M> {
        let (held, suspects) = (Vec::with_capacity(64), Vec::with_capacity(64));
        let random = Xorshift64::new((worker as u64 + 1).wrapping_mul(GOLDEN_GAMMA));
        MoccWorker { held, suspects, overwritten: 0, last: 0, epoch: 0, random }
    }

    fn init_further_words(&self, cell: Cell<M>) {
        // Relaxed: the index publishes the record.
        lock_of(cell).store(0, Ordering::Relaxed);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, own: &mut MoccWorker<M>) {
        own.epoch = cx.current_epoch();
        own.overwritten = 0;
    }

    #[inline(always)]
    fn before_access(
        &self,
        own: &mut MoccWorker<M>,
        at: Located<'_, M>,
        groups: Groups,
        mode: Option<WriteMode>,
    ) -> Result<(), Abort> {
        match mode {
            // The record of a commit-time update is locked at commit only, for a moment.
            Some(WriteMode::CommitTimeUpdate) => Ok(()),
            mode => self.lock_hot(own, at.cells(groups), mode.is_some()),
        }
    }

    fn commit(&self, cx: &mut Context<M>, reads: &mut ReadsAndLocks<M>, own: &mut MoccWorker<M>) -> Result<(), Abort> {
        own.suspects.clear();
        Self::lock_write_set(cx, reads, own)?;
        // SeqCst: pairs with the same fence of other commits, and with the fence of
        // `ReadsAndLocks::observe`: as in Silo, the locks come before the loads of validation and
        // before the stores to the rows.
        dekker_fence::<M, F>();
        M::step("epoch");
        let epoch = tid::epoch_of_commit::<M, F>(cx);
        Self::validate(cx, reads, own)?;
        // Phase 3: install, under a TID by Silo's three rules: it is larger than all TIDs read,
        // than all TIDs overwritten, and than the worker's last.
        if !cx.writes.is_empty() {
            let newest = reads.newest_read().max(own.overwritten).max(own.last);
            let tid = tid::next_tid(newest, epoch)?;
            // The TID words are unlocked here, the locks below. In this order the next exclusive
            // holder finds each TID word unlocked, and phase 1 never waits at one.
            tid::install_as_tid(cx, Write::cells, tid);
            own.last = tid;
        }
        M::step("release");
        Self::release_all(own);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, own: &mut MoccWorker<M>, reason: AbortReason) {
        if reason.is_conflict() {
            let written = cx.writes.entries().iter().flat_map(|write| write.cells());
            let cells = own.held.iter().map(|(cell, _)| *cell).chain(written);
            own.suspects.extend(cells.map(|cell| cell.address()));
            own.suspects.sort_unstable();
            own.suspects.dedup();
        } else {
            own.suspects.clear();
        }
        Self::release_all(own);
    }

    fn lets_unlink(&self, tombstone: Tombstone<'_, M>, word: u64) -> bool {
        tombstone.is_over(tid::epoch_of(word))
    }
}

faults! {
    /// MOCC's deliberate faults.
    pub trait MoccFaults: OptimisticFaults {
        /// Every record is locked, and a read made under a lock is not validated, even if that lock
        /// was released before the commit.
        trust_locks,
        /// All records are locked, and locks are waited for in any order.
        wait_out_of_order,
    }
    pub const FAULTS;
}

/// The places where the algorithm asks for its faults. Without a fault, each of these does what its
/// name says.
impl<F: MoccFaults> MoccValidation<F> {
    /// Returns whether all records are locked, hot or not.
    #[inline(always)]
    fn locks_all() -> bool {
        F::trust_locks() || F::wait_out_of_order()
    }

    /// Returns which of the `count` locks held are given back before a wait for the one at
    /// `position`.
    #[inline(always)]
    fn given_back(position: usize, count: usize) -> std::ops::Range<usize> {
        if F::wait_out_of_order() { position..position } else { position..count }
    }

    /// Returns whether reads are not validated: never, without a fault.
    #[inline(always)]
    fn trusts_locks() -> bool {
        F::trust_locks()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_engine::{Engine, EngineConfig, IndexKind, NamedProtocol, Projection, RawTxn, Table, TableSpec};
    use contend_machine::Native;

    #[test]
    fn a_record_that_fails_validations_gets_hot_and_is_locked_by_its_readers() {
        let protocol: Mocc = NamedProtocol::<Native>::new(Default::default());
        // One epoch for the whole test: temperatures hold that long.
        let engine =
            Engine::<Mocc, Native>::new(protocol, EngineConfig { epoch_ms: u64::MAX, ..EngineConfig::default() });
        let rows: Table<u64> = engine.create_table(&TableSpec::of_bytes("t", IndexKind::Hash, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..40 {
            assert!(loader.insert(&rows, key, |_| ()).expect("memory"));
        }
        drop(loader);
        let mut workers = [(); 2].map(|()| engine.worker().expect("a slot"));
        let ([reader, writer], mut failed) = (&mut workers, 0);
        // In each round a worker that suspects nothing reads the record, and then the other writes
        // it.
        while failed < 10_000 {
            reader.run(|tx| tx.read_row(&rows, 2, Projection::WHOLE).map(drop)).expect("nobody else is there");
            let mut tx = reader.begin();
            tx.read_row(&rows, 0, Projection::WHOLE).expect("nobody writes").expect("it is there");
            let written =
                writer.run(|tx| tx.write_row(&rows, 0, Groups::ALL).map(|row| row.expect("it is there")[0] = failed));
            tx.write_row(&rows, 1, Groups::ALL).expect("nobody else is there").expect("it is there")[0] = failed;
            match (written, tx.commit()) {
                (Ok(()), outcome) => assert!(outcome.is_err(), "what was read has changed"),
                (Err(abort), outcome) => {
                    assert_eq!(abort.reason, AbortReason::WriteLocked);
                    outcome.expect("what was read was locked");
                    assert!(failed >= 5, "hot after {failed} failures");
                    return;
                }
            }
            failed += 1;
        }
        panic!("cold after {failed} failures");
    }
}
