//! Silo: optimistic concurrency control with epochs and invisible reads.
//!
//! **Idea.** A transaction reads without writing to shared memory and buffers what it writes. At commit it locks its write set, checks
//! that nothing it read has changed, and installs its writes under a transaction identifier (TID) that it computes from what it read: no
//! counter is shared by all. The TID's upper part is the global epoch, in which commits of different epochs are ordered.
//!
//! **Paper.** S. Tu, W. Zheng, E. Kohler, B. Liskov, S. Madden: "Speedy transactions in multicore in-memory databases", SOSP 2013.
//!
//! **Promises** serializability. A running transaction may see an inconsistent state before it aborts (no opacity).
//!
//! **Metadata.** One word a record:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..32 | epoch of the commit that wrote the version |
//! | 31..4 | sequence number in the epoch |
//! | 3 | queued: somebody will have the tombstone collected |
//! | 2 | unlinked: out of the index; look the key up again |
//! | 1 | absent: a placeholder, or a tombstone |
//! | 0 | locked by a committing writer |
//!
//! Lock and queued bit are not part of what a reader observes; the rest is.
//!
//! **Commit point.** The load of the global epoch, between the last lock and the first validation.
//!
//! **Waits.** A reader waits for a writer's write phase. With `silo.wait=wait` a committing writer waits for locks, taken in the order of
//! addresses, so no cycle of waits can form; with `nowait` it aborts. Both waits are bounded and end in an abort.
//!
//! **Phantoms.** Misses and scans observe leaf versions, which are validated like reads. An insert puts an absent, *unlocked* placeholder
//! into the index at once: who meets it observes an absent record. (A placeholder that stays locked until commit lets two crossing
//! inserts and scans wait for each other.)
//!
//! **Departures from the paper.** No snapshots yet. The TID has no worker number; it is unique in a record's history, which is all that
//! validation needs. Tombstones are reused by an insert of the same key.
//!
//! **Defaults.** `silo.wait=nowait`, as in CCBench.

use std::marker::PhantomData;

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, Access, At, Change, Context, Info, Initial, Isolation, Key, Leaf, Mode, Projection, Protocol,
    Record, Unlink, option_choices, options,
};
use contend_machine::{Atomic64, Machine, Ordering, Spin};

/// What a committing writer does about a lock that another holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Wait for it, in the order of addresses.
    Wait,
    /// Abort.
    NoWait,
}

option_choices!(Wait { Wait => "wait", NoWait => "nowait" });

options! {
    /// Silo's options.
    pub struct SiloOptions {
        /// What a committing writer does about a lock that another holds: wait in address order, or abort.
        "silo.wait" wait: Wait = Wait::NoWait, in ();
    }
}

/// Deliberate bugs, each off here. A test turns one on to show that the proof would find it; see [`Sound`].
pub trait Faults: Send + Sync + 'static {
    /// Validation does not look whether a record that was read is being written.
    const IGNORE_LOCKS_IN_VALIDATION: bool = false;
    /// Records that were read and are also written are not validated.
    const SKIP_VALIDATION_OF_WRITTEN: bool = false;
    /// Misses and scans observe no leaf.
    const FORGET_GAPS: bool = false;
    /// A placeholder looks like a committed row.
    const SHOW_PLACEHOLDERS: bool = false;
    /// A commit's TID need not be larger than those it has read and overwritten: one record can have one TID twice.
    const FORGET_OLDER_TIDS: bool = false;
}

/// No fault: the protocol as published.
#[derive(Debug)]
pub struct Sound;

impl Faults for Sound {}

/// The protocol.
#[derive(Debug)]
pub struct Silo<F = Sound> {
    options: SiloOptions,
    faults: PhantomData<fn() -> F>,
}

/// A TID word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Tid(u64);

const LOCKED: u64 = 1;
const ABSENT: u64 = 1 << 1;
const UNLINKED: u64 = 1 << 2;
const QUEUED: u64 = 1 << 3;
const FLAGS: u64 = LOCKED | ABSENT | UNLINKED | QUEUED;
const SEQUENCE_SHIFT: u32 = 4;
const EPOCH_SHIFT: u32 = 32;

impl Tid {
    fn is(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// What a reader observes.
    fn observed(self) -> u64 {
        self.0 & !(LOCKED | QUEUED)
    }

    /// Epoch and sequence number.
    fn version(self) -> u64 {
        self.0 & !FLAGS
    }
}

/// A worker's state.
#[derive(Debug)]
pub struct SiloLocal<M: Machine> {
    /// The records read, each with what was observed.
    reads: Vec<(Record<M>, u64)>,
    /// How many entries of the write set, from the front, are locked.
    locked: usize,
    /// The version of the worker's last commit.
    last: u64,
}

impl<M: Machine> Default for SiloLocal<M> {
    fn default() -> Self {
        SiloLocal { reads: Vec::with_capacity(64), locked: 0, last: 0 }
    }
}

/// How often a wait is prolonged before it ends in an abort: some milliseconds, far longer than any write phase, unless its thread
/// has lost its core.
const WAITS_MAX: u32 = 10_000;

type Local<M> = SiloLocal<M>;

impl<F: Faults> Silo<F> {
    /// Copies a row that nobody writes at the time: the optimistic read.
    #[inline(always)]
    fn stable_copy<M: Machine, K: Key>(
        cx: &mut Context<M, Local<M>>,
        at: At<'_, M, K>,
        columns: Projection<'_>,
    ) -> Result<Tid, Abort> {
        let mut spin = Spin::<M>::new();
        loop {
            // Acquire: pairs with the Release of `install_all`; the row read next is at least as new as the word.
            let before = Tid(at.record.word().load(Ordering::Acquire));
            if !before.is(LOCKED) {
                cx.copy_row(at.table, at.record, columns);
                // Acquire: the copy comes before the second load of the word; pairs with the fence of `commit`, which comes
                // between the lock and the stores to the row: a copy that saw such a store also sees the lock.
                M::fence(Ordering::Acquire);
                // Relaxed: ordered by the fence.
                let after = Tid(at.record.word().load(Ordering::Relaxed));
                if after.0 & !QUEUED == before.observed() {
                    return Ok(before);
                }
            }
            if spin.count() > WAITS_MAX {
                return Err(Abort::new(AbortReason::ReadLocked));
            }
            spin.wait();
        }
    }

    /// Reads a record that the transaction does not write, and remembers what was observed.
    #[inline(always)]
    fn observe<M: Machine, K: Key>(
        cx: &mut Context<M, Local<M>>,
        at: At<'_, M, K>,
        columns: Projection<'_>,
    ) -> Result<Access, Abort> {
        let tid = Self::stable_copy(cx, at, columns)?;
        if tid.is(UNLINKED) {
            return Ok(Access::Unlinked);
        }
        cx.local.reads.push((at.record, tid.observed()));
        Ok(if tid.is(ABSENT) { Access::Absent } else { Access::Row })
    }

    /// Locks the record of the write at this position.
    #[inline(always)]
    fn lock<M: Machine>(&self, cx: &mut Context<M, Local<M>>, position: usize) -> Result<(), Abort> {
        let mut spin = Spin::<M>::new();
        let write = &mut cx.writes.entries_mut()[position];
        let word = write.record.word();
        loop {
            // Relaxed: the exchange below decides.
            let tid = Tid(word.load(Ordering::Relaxed));
            if tid.is(LOCKED) {
                if self.options.wait == Wait::NoWait || spin.count() > WAITS_MAX {
                    return Err(Abort::new(AbortReason::WriteLocked));
                }
                spin.wait();
                continue;
            }
            let needs_row = matches!(write.kind, WriteKind::Update | WriteKind::Delete);
            if tid.is(UNLINKED) || needs_row && tid.is(ABSENT) {
                return Err(Abort::new(AbortReason::RecordGone));
            }
            // AcqRel: the Acquire pairs with the Release of the last unlock; the Release orders nothing that matters here.
            if word.compare_exchange(tid.0, tid.0 | LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                write.observed = tid.0;
                return Ok(());
            }
        }
    }

    /// Checks that everything read is as it was.
    #[inline(always)]
    fn validate<M: Machine>(cx: &Context<M, Local<M>>) -> Result<(), Abort> {
        for &(record, observed) in &cx.local.reads {
            // Acquire: validation comes before the writes; and no load of it before the load of the epoch.
            let now = Tid(record.word().load(Ordering::Acquire));
            if F::SKIP_VALIDATION_OF_WRITTEN && cx.writes.find(record).is_some() {
                continue;
            }
            let locked_by_other = now.is(LOCKED) && !F::IGNORE_LOCKS_IN_VALIDATION && cx.writes.find(record).is_none();
            if now.observed() != observed || locked_by_other {
                return Err(Abort::new(AbortReason::ReadValidation));
            }
        }
        cx.nodes.validate()
    }

    /// The commit's TID: larger than all that the transaction has read and overwritten, and than the worker's last; in this epoch.
    #[inline(always)]
    fn next_version<M: Machine>(cx: &Context<M, Local<M>>, epoch: u64) -> Result<u64, Abort> {
        let read = cx.local.reads.iter().map(|&(_, observed)| Tid(observed).version());
        let overwritten = cx.writes.entries().iter().map(|write| Tid(write.observed).version());
        let older = read.chain(overwritten).filter(|_| !F::FORGET_OLDER_TIDS);
        let newest = older.fold(cx.local.last, u64::max);
        let version = (newest + (1 << SEQUENCE_SHIFT)).max(epoch << EPOCH_SHIFT);
        if version >> EPOCH_SHIFT == epoch { Ok(version) } else { Err(Abort::new(AbortReason::EpochExhausted)) }
    }

    /// Installs every write and unlocks its record.
    #[inline(always)]
    fn install_all<M: Machine>(cx: &mut Context<M, Local<M>>, version: u64) {
        for position in 0..cx.writes.len() {
            let write = &mut cx.writes.entries_mut()[position];
            let (record, old) = (write.record, Tid(write.observed));
            let new = match write.kind {
                WriteKind::Update => version | old.0 & QUEUED,
                WriteKind::Insert if write.fresh => version,
                WriteKind::Insert => version | old.0 & QUEUED,
                WriteKind::Delete => {
                    write.collect = !old.is(QUEUED);
                    version | ABSENT | QUEUED
                }
                WriteKind::Nothing => old.0,
            };
            if write.kind != WriteKind::Nothing {
                cx.writes.install(position);
            }
            // Release: the row comes before the word; pairs with the Acquire of `stable_copy` and of `lock`.
            record.word().store(new, Ordering::Release);
        }
    }
}

impl<M: Machine, F: Faults> Protocol<M> for Silo<F> {
    const INFO: Info = Info {
        name: "silo",
        summary: "optimistic: invisible reads, validation at commit, epochs instead of a shared counter",
        paper: "Tu, Zheng, Kohler, Liskov, Madden: Speedy transactions in multicore in-memory databases, SOSP 2013",
        isolation: Isolation::Serializable,
    };
    const META_WORDS: usize = 1;
    type Options = SiloOptions;
    type Local = SiloLocal<M>;

    fn new(options: SiloOptions) -> Self {
        Silo { options, faults: PhantomData }
    }

    fn init(&self, record: Record<M>, initial: Initial) {
        let word = match initial {
            Initial::Loaded => 0,
            Initial::Inserting if F::SHOW_PLACEHOLDERS => QUEUED,
            Initial::Inserting => ABSENT | QUEUED,
        };
        // Relaxed: the index publishes the record.
        record.word().store(word, Ordering::Relaxed);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M, Self::Local>) {
        cx.local.reads.clear();
        cx.local.locked = 0;
    }

    #[inline(always)]
    fn read<K: Key>(
        &self,
        cx: &mut Context<M, Self::Local>,
        at: At<'_, M, K>,
        columns: Projection<'_>,
    ) -> Result<Access, Abort> {
        match cx.writes.find(at.record) {
            Some(position) => Ok(cx.writes.own(position)),
            None => Self::observe(cx, at, columns),
        }
    }

    #[inline(always)]
    fn write<K: Key>(&self, cx: &mut Context<M, Self::Local>, at: At<'_, M, K>, mode: Mode) -> Result<Access, Abort> {
        if let Some(position) = cx.writes.find(at.record) {
            return Ok(cx.writes.rewrite(position, mode));
        }
        // The lock is taken at commit, but its line may as well come for writing at once.
        at.record.prefetch_to_write();
        match mode {
            Mode::Blind => {
                // Relaxed: a first look; locking looks again.
                if Tid(at.record.word().load(Ordering::Relaxed)).is(ABSENT | UNLINKED) {
                    // A miss is observed. Should the record have a row by now, having read it costs nothing but the read.
                    match Self::observe(cx, at, Projection::WHOLE)? {
                        Access::Row => {}
                        miss => return Ok(miss),
                    }
                }
                Ok(Access::Own(cx.writes.push(at.table, at.key, at.record, WriteKind::Update)))
            }
            Mode::Modify | Mode::Delete => match Self::observe(cx, at, Projection::WHOLE)? {
                Access::Row => {
                    let kind = if mode == Mode::Modify { WriteKind::Update } else { WriteKind::Delete };
                    let position = cx.writes.push(at.table, at.key, at.record, kind);
                    cx.scratch_to_image(position);
                    Ok(Access::Own(position))
                }
                miss => Ok(miss),
            },
            // The engine has just read that it is absent; validation will see whether it still is.
            Mode::Insert => Ok(Access::Own(cx.writes.push(at.table, at.key, at.record, WriteKind::Insert))),
        }
    }

    fn inserted<K: Key>(
        &self,
        cx: &mut Context<M, Self::Local>,
        at: At<'_, M, K>,
        change: &Change<M>,
    ) -> Result<usize, Abort> {
        let position = cx.writes.push(at.table, at.key, at.record, WriteKind::Insert);
        // Relaxed: the word as `init` left it, or as another has changed it; validation compares.
        let observed = Tid(at.record.word().load(Ordering::Relaxed)).observed();
        cx.local.reads.push((at.record, observed));
        if observed != if F::SHOW_PLACEHOLDERS { 0 } else { ABSENT } {
            return Err(Abort::new(AbortReason::ReadValidation));
        }
        cx.nodes.follow(change)?;
        Ok(position)
    }

    #[inline(always)]
    fn gap(&self, cx: &mut Context<M, Self::Local>, leaf: Leaf<M>, version: u64) -> Result<(), Abort> {
        if !F::FORGET_GAPS {
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M, Self::Local>) -> Result<(), Abort> {
        if cx.writes.is_empty() {
            return Self::validate(cx);
        }
        // Phase 1: lock what is written.
        if self.options.wait == Wait::Wait {
            cx.writes.sort();
        }
        for position in 0..cx.writes.len() {
            self.lock(cx, position)?;
            cx.local.locked += 1;
        }
        // SeqCst: the locks come before the loads of validation, in one order for all (two transactions that each read what the
        // other writes: at least one sees the other's lock). And they come before the stores to the rows; pairs with the fence of
        // `stable_copy`.
        M::fence(Ordering::SeqCst);
        let epoch = cx.current_epoch();
        // Phase 2: check what was read.
        Self::validate(cx)?;
        // Phase 3: install.
        let version = Self::next_version(cx, epoch)?;
        Self::install_all(cx, version);
        cx.local.last = version;
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M, Self::Local>) {
        for write in &cx.writes.entries()[..cx.local.locked] {
            // Release: as any unlock; nothing was written under the lock.
            write.record.word().store(write.observed, Ordering::Release);
        }
        cx.local.locked = 0;
    }

    fn unlink(&self, record: Record<M>) -> Unlink {
        // Relaxed: the exchange decides.
        let tid = Tid(record.word().load(Ordering::Relaxed));
        if tid.is(LOCKED) {
            return Unlink::Busy;
        }
        let (new, outcome) =
            if tid.is(ABSENT) { (tid.0 | UNLINKED, Unlink::Marked) } else { (tid.0 & !QUEUED, Unlink::Alive) };
        // AcqRel: pairs with unlocks before, and with `lock` and `stable_copy` after.
        match record.word().compare_exchange(tid.0, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => outcome,
            Err(_) => Unlink::Busy,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        // Acquire: pairs with the Release of `install_all`.
        Tid(record.word().load(Ordering::Acquire)).is(ABSENT)
    }
}
