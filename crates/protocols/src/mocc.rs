//! MOCC: Silo, with read locks on records that have proved hot.
//!
//! **Idea.** Optimistic validation is cheap where it succeeds, and locks are where it would fail. Each record has a temperature: it rises when
//! a validation fails because of it. A record that is hot is locked before it is read or written, all others are read and validated as
//! in Silo.
//!
//! **Paper.** T. Wang, H. Kimura: "Mostly-optimistic concurrency control for highly contended dynamic workloads on a thousand cores", VLDB
//! 2016.
//!
//! **Promises** serializability. A running transaction may see an inconsistent state before it aborts.
//!
//! **Metadata.** Two words a cell. The first is Silo's TID word: epoch and sequence number above the flags of [`crate::optimistic`]. The
//! second is a reader-writer lock with the temperature:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..40 | the epoch, its lower bits, for which the temperature holds: it is 0 in all others |
//! | 39..32 | temperature |
//! | 31 | held exclusively |
//! | 30..0 | how many hold it shared |
//!
//! Whoever installs a write holds the lock exclusively, and besides sets the lock bit of the TID word while it commits: readers that take no
//! lock look at one word only. (With the lock in a word of its own, read after the TID, a writer that comes and goes between goes unseen.)
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation. All reads are validated, those under
//! locks too.
//!
//! **Waits.** Locks are waited for in the order of addresses only. Who needs one that comes before some that it holds tries it; if it is taken,
//! gives back those that come after, whose reads validation protects as well, and then waits. So no cycle of waits can form. An exclusive
//! lock of a write that was given back is taken again by the commit. All waits are bounded and end in an abort.
//!
//! **Retries.** What was written, and what failed to validate, is locked before use by the next transaction of the worker, which as a rule
//! is the same again.
//!
//! **Departures from the paper.** Temperature is the record's, not the page's. The list of locks for the retry says which records to lock, but
//! does not lock them before they are asked for: they may be others' by then.

use std::marker::PhantomData;

use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::{Faults, Sound, dekker_fence};
use crate::flags::{ABSENT, LOCKED};
use crate::method::ReadPhaseOptions;
use crate::optimistic::{self, FLAGS, Footprint, OWN, WAITS_MAX, observed};

options! {
    /// MOCC's options.
    pub struct MoccOptions {
        /// The temperature from which on a record is locked; 0: all are, always.
        "mocc.hot" hot: u32 = 5, in 0..=20;
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Mocc<F = Sound> {
    options: MoccOptions,
    read_phase: ReadPhaseOptions,
    faults: PhantomData<fn() -> F>,
}

const EXCLUSIVE: u64 = 1 << 31;
const READERS: u64 = EXCLUSIVE - 1;
const LOCK: u64 = EXCLUSIVE | READERS;
const TEMPERATURE_SHIFT: u32 = 32;
const TEMPERATURE_MAX: u64 = 20;
const STAMP_SHIFT: u32 = 40;

/// The lock of a cell.
fn lock_of<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: cells have two words.
    unsafe { cell.meta(1) }
}

fn temperature(lock: u64, epoch: u64) -> u64 {
    if lock >> STAMP_SHIFT == epoch << STAMP_SHIFT >> STAMP_SHIFT { lock >> TEMPERATURE_SHIFT & 0xff } else { 0 }
}

/// A worker's state.
#[derive(Debug)]
pub struct MoccLocal<M: Machine> {
    footprint: Footprint<M>,
    /// The locks that are held, in the order of addresses, each with whether it is exclusive.
    held: Vec<(Cell<M>, bool)>,
    /// Addresses of cells to be locked before use, in their order: of the transaction before, if it was aborted.
    suspects: Vec<u64>,
    /// The newest version that the commit will overwrite, and that of the worker's last commit.
    overwritten: u64,
    last: u64,
    /// The epoch in which the transaction began: temperatures of others are void.
    epoch: u64,
    random: u64,
}

impl<F: Faults> Mocc<F> {
    fn is_hot<M: Machine>(&self, local: &MoccLocal<M>, cell: Cell<M>) -> bool {
        // Relaxed: a guess.
        F::TRUST_LOCKS
            || F::WAIT_OUT_OF_ORDER
            || temperature(lock_of(cell).load(Ordering::Relaxed), local.epoch) >= u64::from(self.options.hot)
            || !local.suspects.is_empty() && local.suspects.binary_search(&cell.address()).is_ok()
    }

    fn try_lock<M: Machine>(cell: Cell<M>, exclusive: bool) -> bool {
        // Relaxed: the exchange decides.
        let mut lock = lock_of(cell).load(Ordering::Relaxed);
        loop {
            if lock & if exclusive { LOCK } else { EXCLUSIVE } != 0 {
                return false;
            }
            let new = if exclusive { lock | EXCLUSIVE } else { lock + 1 };
            // Acquire: pairs with the Release of `unlock`.
            match lock_of(cell).compare_exchange(lock, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => lock = now,
            }
        }
    }

    fn unlock<M: Machine>(cell: Cell<M>, exclusive: bool) {
        // Release: what was read and written comes before; pairs with the Acquire of `try_lock`.
        lock_of(cell).fetch_sub(if exclusive { EXCLUSIVE } else { 1 }, Ordering::Release);
    }

    /// Holds the lock of a cell, at least so.
    fn lock<M: Machine>(local: &mut MoccLocal<M>, cell: Cell<M>, exclusive: bool) -> Result<(), Abort> {
        let position = local.held.partition_point(|(held, _)| held.address() < cell.address());
        let mine = local.held.get(position).filter(|(held, _)| held.address() == cell.address());
        match mine {
            Some((_, held_exclusive)) if *held_exclusive || !exclusive => return Ok(()),
            Some(_) => {}
            None if Self::try_lock(cell, exclusive) => {
                local.held.insert(position, (cell, exclusive));
                return Ok(());
            }
            None => {}
        }
        // What comes after is given back, a share of this one, too: from here on the order is kept.
        M::step("give back");
        let given_back = if F::WAIT_OUT_OF_ORDER { position..position } else { position..local.held.len() };
        local.held.drain(given_back).for_each(|(held, exclusive)| Self::unlock(held, exclusive));
        let mut spin = Spin::<M>::new();
        while !Self::try_lock(cell, exclusive) {
            if spin.count() > WAITS_MAX {
                return Err(Abort::new(if exclusive { AbortReason::WriteLocked } else { AbortReason::ReadLocked }));
            }
            spin.wait();
        }
        local.held.insert(position, (cell, exclusive));
        Ok(())
    }

    /// Locks those of the cells that are hot.
    #[inline(always)]
    fn lock_hot<M: Machine>(&self, local: &mut MoccLocal<M>, cells: Cells<M>, exclusive: bool) -> Result<(), Abort> {
        for cell in cells {
            if self.is_hot(local, cell) {
                M::step("lock hot");
                Self::lock(local, cell, exclusive)?;
            }
        }
        Ok(())
    }

    /// A validation has failed because of this cell: it gets warmer, the less likely the warmer it is.
    fn heat<M: Machine>(local: &mut MoccLocal<M>, cell: Cell<M>, epoch: u64) {
        // Xorshift (Marsaglia, 2003).
        local.random ^= local.random << 13;
        local.random ^= local.random >> 7;
        local.random ^= local.random << 17;
        // Relaxed: the exchange decides; a temperature orders nothing.
        let lock = lock_of(cell).load(Ordering::Relaxed);
        let now = temperature(lock, epoch);
        if now < TEMPERATURE_MAX && local.random.trailing_zeros() as u64 >= now {
            let new = epoch << STAMP_SHIFT | (now + 1) << TEMPERATURE_SHIFT | lock & LOCK;
            // Should it fail another has been here, which is as good.
            let _ = lock_of(cell).compare_exchange(lock, new, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Checks that everything read is as it was.
    fn validate<M: Machine>(cx: &Context<M>, local: &mut MoccLocal<M>) -> Result<(), Abort> {
        M::step("validate");
        let mut valid = true;
        for read in 0..local.footprint.reads.len() {
            let (cell, observation) = local.footprint.reads[read];
            // SeqCst: in one order with the load of the epoch ([`optimistic::order_of_epochs`]). Acquire, in it: validation comes before the
            // writes.
            let now = cell.word().load(optimistic::order_of_epochs::<F>());
            let locked_by_other = now & LOCKED != 0 && observation & OWN == 0 && !local.footprint.has_locked(cell);
            let changed = observed(now) != observation & !OWN || locked_by_other && !F::IGNORE_LOCKS_IN_VALIDATION;
            if changed && !F::TRUST_LOCKS {
                Self::heat(local, cell, cx.current_epoch());
                local.suspects.push(cell.address());
                valid = false;
            }
        }
        if valid {
            cx.nodes.validate_as(optimistic::order_of_epochs::<F>())
        } else {
            Err(Abort::new(AbortReason::ReadValidation))
        }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Mocc<F> {
    const INFO: Info = Info {
        name: "mocc",
        summary: "optimistic like Silo, with read locks on records that have proved hot",
        paper: "Wang, Kimura: Mostly-optimistic concurrency control for highly contended dynamic workloads, VLDB 2016",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    type Options = (MoccOptions, ReadPhaseOptions);

    fn new((options, read_phase): Self::Options) -> Self {
        Mocc { options, read_phase, faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for Mocc<F> {
    type Local = MoccLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        2
    }

    fn stamps_commits(&self) -> bool {
        true
    }

    fn local(&self, worker: usize) -> MoccLocal<M> {
        let (held, suspects) = (Vec::with_capacity(64), Vec::with_capacity(64));
        let random = (worker as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        MoccLocal { footprint: Footprint::default(), held, suspects, overwritten: 0, last: 0, epoch: 0, random }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        // Relaxed: the index publishes the record.
        cells.clone().for_each(|cell| lock_of(cell).store(0, Ordering::Relaxed));
        optimistic::init(cells, initial, ABSENT);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        local.footprint.clear();
        local.epoch = cx.current_epoch();
        local.overwritten = 0;
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        columns: Projection<'_>,
    ) -> Result<Found, Abort> {
        self.lock_hot(local, at.cells(columns.groups()), false)?;
        local.footprint.observe(cx, at, columns, |_, _| true)
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
    ) -> Result<Found, Abort> {
        // An update that is not read is locked at commit only, for a moment.
        if mode != Mode::Merge {
            self.lock_hot(local, at.cells(groups), true)?;
        }
        local.footprint.prepare_write(cx, at, groups, mode, true, |_, _| true)
    }

    fn inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        local.footprint.observe_placeholder(at, ABSENT)?;
        cx.nodes.follow(change)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M>, _: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        self.read_phase.extend::<M>(local.footprint.extra_looks);
        local.suspects.clear();
        // Phase 1: lock what is written, in order: first all that may be waited for, and then, waiting for nobody, the TID words.
        M::step("lock");
        cx.writes.sort();
        for rank in 0..cx.writes.len() {
            for cell in cx.writes.entries()[cx.writes.sorted(rank)].cells() {
                Self::lock(local, cell, true)?;
            }
        }
        for write in cx.writes.entries() {
            for cell in write.cells() {
                let word = local.footprint.lock(cell, write.needs_row(), WAITS_MAX)?;
                local.overwritten = local.overwritten.max(word & !FLAGS);
            }
        }
        // SeqCst: as in Silo, the locks come before the loads of validation and the stores to the rows. Pairs with itself, and with
        // the fence of `Footprint::observe`.
        dekker_fence::<M, F>();
        M::step("epoch");
        let epoch = optimistic::epoch_of_commit::<M, F>(cx);
        // Phase 2: check what was read.
        Self::validate(cx, local)?;
        // Phase 3: install, under a TID larger than all that was read and overwritten, and than the worker's last.
        if !cx.writes.is_empty() {
            let newest = local.footprint.newest_read().max(local.overwritten).max(local.last);
            let version = optimistic::next_tid(newest, epoch)?;
            optimistic::install_as_tid(cx, |cx, position| cx.writes.entries()[position].cells(), version);
            local.last = version;
        }
        M::step("release");
        local.held.drain(..).for_each(|(cell, exclusive)| Self::unlock(cell, exclusive));
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::Local, reason: AbortReason) {
        local.footprint.unlock_all();
        if reason.is_conflict() {
            let written = cx.writes.entries().iter().flat_map(|write| write.cells());
            let cells = local.held.iter().map(|(cell, _)| *cell).chain(written);
            local.suspects.extend(cells.map(|cell| cell.address()));
            local.suspects.sort_unstable();
            local.suspects.dedup();
        } else {
            local.suspects.clear();
        }
        local.held.drain(..).for_each(|(cell, exclusive)| Self::unlock(cell, exclusive));
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        optimistic::unlink::<M, F>(tombstone, |word| tombstone.is_over(optimistic::epoch_of(word)))
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        optimistic::is_absent(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_engine::{Engine, EngineConfig, IndexKind, Table, TableSpec, Txn};
    use contend_machine::Native;
    use std::sync::Arc;

    #[test]
    fn a_record_that_fails_validations_gets_hot_and_is_locked_by_who_reads_it() {
        let protocol: Mocc = Protocol::<Native>::new(Default::default());
        // One epoch for all: temperatures hold that long.
        let engine =
            Engine::<Mocc, Native>::new(protocol, EngineConfig { epoch_ms: u64::MAX, ..EngineConfig::default() });
        let rows: Arc<Table<Native, u64>> = engine.create_table(&TableSpec::of_bytes("t", IndexKind::Hash, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        for key in 0..40 {
            assert!(loader.insert(&rows, key, |_| ()).expect("memory"));
        }
        drop(loader);
        let mut workers = [(); 2].map(|()| engine.worker().expect("a slot"));
        let ([reader, writer], mut failed) = (&mut workers, 0);
        // Each time the record is read by who suspects nothing, and then it is written.
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
