//! Basic timestamp ordering: transactions take effect in the order in which they began.
//!
//! **Idea.** A transaction takes a timestamp when it begins. A record knows the latest timestamps at which it was written and read. Who comes
//! too late, to read what a younger one has written, or to write what a younger one has read or written, aborts, and begins again with a new
//! timestamp. A write is announced (a *prewrite*) and takes effect at commit; younger ones that want the record wait for it.
//!
//! **Paper.** P. A. Bernstein, N. Goodman: "Concurrency control in distributed database systems", ACM Computing Surveys 1981, section 4; as
//! measured in X. Yu et al.: "Staring into the abyss", VLDB 2014 (TIMESTAMP).
//!
//! **Promises** serializability, in the order of timestamps; and a running transaction sees one state only.
//!
//! **Metadata.** Four words a cell:
//!
//! | word | meaning |
//! | --- | --- |
//! | 0 | latch and flags: [`crate::flags`]; above them, of a tombstone, the epoch in which it was deleted |
//! | 1 | the timestamp of the last write |
//! | 2 | that of the youngest read |
//! | 3 | that of the write that is announced; 0 if none is |
//!
//! **Commit point.** The first install. Nothing is validated: what is announced can't fail any more.
//!
//! **Waits** are of younger transactions for older ones that have announced a write, so there is no cycle of waits.
//!
//! **Phantoms.** A leaf has the timestamp of its youngest reader, by a scan or a miss; an insert that is older aborts. A tombstone leaves the
//! index when all transactions have ended that ran in the epoch of the deletion: those that begin later have later timestamps.
//!
//! **Departures from the paper.** One write at a time is announced of a record: an older one that comes after it aborts, where the paper
//! keeps them in a queue. So commits wait for nothing. No Thomas write rule.

mod cell;

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, GROUPS_MAX, Groups, Info, Initial, Isolation,
    Leaf, Mode, Needs, Projection, Protocol, Record, Tombstone, Unlink,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

use crate::fault::{Faults, Sound, dekker_fence};
use crate::flags::{self, ABSENT, LOCKED, QUEUED, UNLINKED};
use crate::method::timestamp::{Stamper, TimestampOptions, Timestamps};
use crate::optimistic::{FLAGS, VERSION_SHIFT as EPOCH_SHIFT, WAITS_MAX};
use crate::versions;
use cell::{Answer, Times, Want, ask, latch, times, unlatch};

/// The protocol.
#[derive(Debug)]
pub struct TimestampOrdering<M: Machine, F = Sound> {
    timestamps: Arc<Timestamps<M>>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct TimestampOrderingLocal<M: Machine> {
    stamps: Stamper<M>,
    /// The epoch in which the last timestamp was taken.
    epoch: u64,
    /// The transaction's timestamp.
    own: u64,
    /// The cells of which it has announced a write.
    announced: Vec<Cell<M>>,
}

impl<M: Machine, F: Faults> TimestampOrdering<M, F> {
    /// Gets what is wanted of these cells, at once, and calls `with` while they are latched; their flags. An absent record is read.
    #[inline(always)]
    fn get(
        local: &mut TimestampOrderingLocal<M>,
        cells: Cells<M>,
        want: Want,
        mut with: impl FnMut(u64),
    ) -> Result<u64, Abort> {
        let own = local.own;
        let reason = if want == Want::Read { AbortReason::ReadValidation } else { AbortReason::WriteLocked };
        let mut spin = Spin::<M>::new();
        loop {
            M::step(if want == Want::Read { "read" } else { "prewrite" });
            let mut word = [0; GROUPS_MAX];
            let mut answer = Answer::Yes;
            let mut latched = 0;
            for (cell, word) in cells.clone().zip(&mut word) {
                *word = latch(cell);
                latched += 1;
                answer = if *word & UNLINKED != 0 { Answer::Yes } else { ask::<M, F>(cell, own, want) };
                if !matches!(answer, Answer::Yes) {
                    break;
                }
            }
            let flags = word.iter().fold(0, |all, word| all | word) & FLAGS;
            let granted = matches!(answer, Answer::Yes) && flags & UNLINKED == 0;
            if granted {
                with(flags);
            }
            for (cell, word) in cells.clone().zip(word).take(latched) {
                if granted {
                    let times = times(cell);
                    // Relaxed, all of them: under the latch.
                    if want == Want::Write && flags & ABSENT == 0 {
                        if times.announced.load(Ordering::Relaxed) != own {
                            times.announced.store(own, Ordering::Relaxed);
                            local.announced.push(cell);
                        }
                    } else if times.read.load(Ordering::Relaxed) < own && !F::FORGET_READS {
                        times.read.store(own, Ordering::Relaxed);
                    }
                }
                unlatch(cell, word);
            }
            match answer {
                Answer::Yes => return Ok(flags),
                Answer::Never => return Err(Abort::new(reason)),
                Answer::Later(older) => {
                    // Without the latch, which whoever is waited for needs as well.
                    // Acquire: pairs with the Release of `withdraw`.
                    let asked = cells.clone().nth(latched - 1).expect("it was latched");
                    while times(asked).announced.load(Ordering::Acquire) == older {
                        if spin.count() > WAITS_MAX {
                            return Err(Abort::new(AbortReason::LockTimeout));
                        }
                        spin.wait();
                    }
                }
            }
        }
    }

    /// Announces the write of an absent record, which [`TimestampOrdering::get`] would take for a miss.
    fn announce_absent(local: &mut TimestampOrderingLocal<M>, cells: Cells<M>) -> Result<(), Abort> {
        let own = local.own;
        for cell in cells {
            let flags = latch(cell);
            let granted = flags & UNLINKED == 0
                && flags & ABSENT != 0
                && matches!(ask::<M, F>(cell, own, Want::Write), Answer::Yes);
            // Relaxed, both: under the latch.
            if granted && times(cell).announced.load(Ordering::Relaxed) != own {
                times(cell).announced.store(own, Ordering::Relaxed);
                local.announced.push(cell);
            }
            unlatch(cell, flags);
            if !granted {
                return Err(Abort::new(AbortReason::WriteLocked));
            }
        }
        Ok(())
    }
}

impl<M: Machine, F: Faults> Protocol<M> for TimestampOrdering<M, F> {
    const INFO: Info = Info {
        name: "to",
        summary: "timestamp ordering: transactions take effect in the order in which they began; who comes too late aborts",
        paper: "Bernstein, Goodman: Concurrency control in distributed database systems, ACM Computing Surveys 1981",
        isolation: Isolation::Serializable,
        needs: Needs::Nothing,
    };
    type Options = TimestampOptions;

    fn new(options: TimestampOptions) -> Self {
        TimestampOrdering { timestamps: Timestamps::new(options, 0), faults: PhantomData }
    }
}

impl<M: Machine, F: Faults> Control<M> for TimestampOrdering<M, F> {
    type Local = TimestampOrderingLocal<M>;

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        4
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.timestamps = self.timestamps.resized(workers);
    }

    fn local(&self, worker: usize) -> Self::Local {
        let (stamps, announced) = (self.timestamps.of_worker(worker), Vec::with_capacity(64));
        TimestampOrderingLocal { stamps, epoch: 0, own: 0, announced }
    }

    fn init(&self, cells: Cells<M>, initial: Initial) {
        flags::initial(cells, initial, |cell, flags, held| {
            let Times { written, read, announced } = times(cell);
            // Relaxed, all of them: the index publishes the record.
            [written, read, announced].into_iter().for_each(|time| time.store(0, Ordering::Relaxed));
            // Latched until `inserted` says whose it is.
            cell.word().store(flags | if held { LOCKED } else { 0 }, Ordering::Relaxed);
        });
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        let epoch = cx.current_epoch();
        if epoch != local.epoch {
            // Timestamps of a batch that is old may be older than tombstones that have left their indexes.
            local.stamps.drop_batch();
            local.epoch = epoch;
        }
        local.own = local.stamps.stamp();
        local.announced.clear();
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
        Ok(flags::found(Self::get(local, at.cells(columns.groups()), Want::Read, |_| cx.copy_row(at, columns))?))
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
        let cells = at.cells(groups);
        match mode {
            Mode::Insert => Self::announce_absent(local, at.cells(Groups::ALL)).map(|()| Found::Absent),
            Mode::Merge => {
                // Relaxed: a first look; the commit announces the write, and looks again.
                let gone = |cell: Cell<M>| cell.word().load(Ordering::Relaxed) & (ABSENT | UNLINKED) != 0;
                if !cells.clone().any(gone) {
                    return Ok(Found::Row);
                }
                // A miss is read. Should the record have a row by now, having read it costs nothing but the read.
                self.read(cx, local, at, Projection::columns(&[], groups))
            }
            Mode::Modify | Mode::Delete | Mode::Blind => {
                let reads = mode != Mode::Blind;
                let copy = |flags: u64| {
                    if flags & ABSENT != 0 {
                        cx.copy_row(at, Projection::EXISTENCE);
                    } else if reads {
                        cx.copy_row(at, Projection::of_groups(groups));
                    }
                };
                Ok(flags::found(Self::get(local, cells, Want::Write, copy)?))
            }
        }
    }

    fn inserted(
        &self,
        _: &mut Context<M>,
        local: &mut Self::Local,
        at: At<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        // SeqCst: the insert comes before the look at the leaves' times; pairs with the fence of `gap`.
        dekker_fence::<M, F>();
        let leaves = [change.leaf].into_iter().chain(change.split.map(|(leaf, _)| leaf));
        // Relaxed: ordered by the fence.
        let read_at = leaves.map(|leaf| leaf.word().load(Ordering::Relaxed)).max().unwrap_or(0);
        for cell in at.cells(Groups::ALL).rev() {
            // Who has missed the key has read that it is absent, also if this insert comes to nothing and another gives it a row.
            // Relaxed, all of them: the latch is this transaction's, by `init`.
            times(cell).read.store(read_at, Ordering::Relaxed);
            times(cell).announced.store(local.own, Ordering::Relaxed);
            local.announced.push(cell);
            unlatch(cell, cell.word().load(Ordering::Relaxed) & !LOCKED);
        }
        if read_at > local.own && !F::FORGET_GAPS {
            return Err(Abort::new(AbortReason::Phantom));
        }
        Ok(())
    }

    #[inline(always)]
    fn gap(&self, _: &mut Context<M>, local: &mut Self::Local, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        // Relaxed, both: ordered by the fence.
        if leaf.word().load(Ordering::Relaxed) < local.own && !F::FORGET_GAPS {
            leaf.word().fetch_max(local.own, Ordering::Relaxed);
        }
        // SeqCst: the time comes before the look at the keys (`Leaf::word`).
        dekker_fence::<M, F>();
        if leaf.version() == version { Ok(()) } else { Err(Abort::new(AbortReason::Phantom)) }
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::Local) -> Result<(), Abort> {
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            if write.kind == WriteKind::Nothing {
                // What was inserted and deleted again was absent: whoever inserts it next has to come later.
                Self::get(local, write.cells(), Want::Read, |_| {})?;
            }
            let merged = write.merged();
            if merged.is_empty() {
                continue;
            }
            let cells = write.table().cells(write.record, merged);
            let flags = Self::get(local, cells, Want::Write, |_| {})?;
            if flags & (ABSENT | UNLINKED) != 0 {
                return Err(Abort::new(AbortReason::RecordGone));
            }
        }
        cx.writes.apply_updates();
        M::step("install");
        // Not before the epoch in which anybody begins who could still miss what is deleted here: it is loaded under what was announced.
        let epoch = cx.current_epoch();
        for position in 0..cx.writes.len() {
            let kind = cx.writes.entries()[position].kind;
            if kind == WriteKind::Nothing {
                continue;
            }
            let cells = cx.writes.entries()[position].cells();
            let words: [u64; GROUPS_MAX] = {
                let mut words = [0; GROUPS_MAX];
                cells.clone().zip(&mut words).for_each(|(cell, word)| *word = latch(cell));
                words
            };
            cx.writes.install(position);
            let write = &mut cx.writes.entries_mut()[position];
            let first = write.record.first_cell().address();
            for (cell, word) in cells.zip(words) {
                let is_first = cell.address() == first;
                let flags = match kind {
                    WriteKind::Insert if write.fresh => 0,
                    WriteKind::Update | WriteKind::Insert => word & QUEUED,
                    _ if is_first => {
                        write.collect = word & QUEUED == 0;
                        epoch << EPOCH_SHIFT | ABSENT | QUEUED
                    }
                    _ => ABSENT,
                };
                // Relaxed, both: under the latch.
                times(cell).written.store(local.own, Ordering::Relaxed);
                times(cell).announced.store(0, Ordering::Relaxed);
                unlatch(cell, flags);
            }
        }
        self.withdraw(local);
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::Local, _: AbortReason) {
        // The rest of the batch is as old, and would come too late as well.
        local.stamps.drop_batch();
        self.withdraw(local);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        M::step("unlink");
        let cells = tombstone.cells();
        let mut words = [0; GROUPS_MAX];
        cells.clone().zip(&mut words).for_each(|(cell, word)| *word = latch(cell));
        // Relaxed: under the latch.
        let announced = cells.clone().any(|cell| times(cell).announced.load(Ordering::Relaxed) != 0);
        // Relaxed, likewise.
        let read = |cell: Cell<M>| times(cell).read.load(Ordering::Relaxed);
        let outcome = match words[0] & ABSENT {
            _ if announced => Unlink::Busy,
            0 => Unlink::Alive,
            _ if versions::is_young::<F>(words[0] >> EPOCH_SHIFT, tombstone.oldest()) => Unlink::Busy,
            _ if !tombstone.stamp_is_over() => Unlink::Busy,
            // Its readers live on in the leaf: who inserts the key anew must come after them.
            _ if F::FORGET_READERS_OF_TOMBSTONES => Unlink::Marked { time: 0 },
            _ => Unlink::Marked { time: cells.clone().map(read).max().unwrap_or(0) },
        };
        for (cell, word) in cells.zip(words) {
            unlatch(
                cell,
                match outcome {
                    Unlink::Busy => word,
                    Unlink::Alive => word & !QUEUED,
                    Unlink::Marked { .. } => word | UNLINKED,
                },
            );
        }
        outcome
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::optimistic::is_absent(record)
    }
}

impl<M: Machine, F: Faults> TimestampOrdering<M, F> {
    /// Takes back what was announced and is not installed.
    fn withdraw(&self, local: &mut TimestampOrderingLocal<M>) {
        for cell in local.announced.drain(..) {
            let announced = times(cell).announced;
            // Relaxed: only this transaction takes its own away. Release: pairs with the latch of who waits.
            if announced.load(Ordering::Relaxed) == local.own {
                announced.store(0, Ordering::Release);
            }
        }
    }
}
