//! Strict two-phase locking without waiting: a reader-writer word per record; who meets a conflict aborts.
//!
//! **Idea.** A transaction locks each record before it touches it, shared to read and exclusive to write, and holds all its locks to the
//! end. A lock that can't be had at once aborts the transaction that asks, so there is no deadlock and nothing to detect.
//!
//! **Papers.** K. P. Eswaran, J. N. Gray, R. A. Lorie, I. L. Traiger: "The notions of consistency and predicate locks in a database
//! system", CACM 1976. The policy NO_WAIT: P. A. Bernstein, N. Goodman: "Concurrency control in distributed database systems", ACM
//! Computing Surveys 1981; measured in X. Yu, G. Bezerra, A. Pavlo, S. Devadas, M. Stonebraker: "Staring into the abyss", VLDB 2014.
//!
//! **Promises** serializability; and a transaction sees a consistent state of the records while it runs.
//!
//! **Metadata.** One word a record:
//!
//! | bits | meaning |
//! | --- | --- |
//! | 63..4 | how many transactions hold the record shared |
//! | 3 | queued: somebody will have the tombstone collected |
//! | 2 | unlinked: out of the index; look the key up again |
//! | 1 | absent: a placeholder, or a tombstone |
//! | 0 | held exclusively |
//!
//! While a record is held exclusively its word belongs to the holder alone, so that it is released by a plain store.
//!
//! **Commit point.** The validation of the leaves, when all locks are held.
//!
//! **Waits** for nothing.
//!
//! **Phantoms.** A key that is absent has nothing to lock. Misses and scans observe leaf versions, which are checked at commit while all
//! locks are held (the hybrid of locking and Silo's node sets). An insert holds its placeholder exclusively from birth.
//!
//! **Departures from the papers.** Writes are buffered and installed at commit, so an abort has nothing to undo. A blind write takes its
//! lock when it is announced, not at commit.
//!
//! **Options.** None yet.

use std::marker::PhantomData;

use contend_engine::sets::{RecordMap, WriteKind};
use contend_engine::{
    Abort, AbortReason, Access, At, Change, Context, Info, Initial, Isolation, Key, Leaf, Mode, Projection, Protocol,
    Record, Unlink, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

options! {
    /// There is nothing to choose.
    pub struct NoWaitOptions {}
}

/// Deliberate bugs, each off here. A test turns one on to show that the proof would find it; see [`Sound`].
pub trait Faults: Send + Sync + 'static {
    /// Shared locks are released right after the read.
    const RELEASE_SHARED_EARLY: bool = false;
    /// An exclusive lock is granted while others read.
    const IGNORE_READERS: bool = false;
    /// Misses and scans observe no leaf.
    const FORGET_GAPS: bool = false;
    /// An insert that aborts leaves its placeholder behind as a row.
    const KEEP_ABORTED_INSERTS: bool = false;
}

/// No fault: the protocol as published.
#[derive(Debug)]
pub struct Sound;

impl Faults for Sound {}

/// The protocol.
#[derive(Debug)]
pub struct NoWait<F = Sound> {
    faults: PhantomData<fn() -> F>,
}

const EXCLUSIVE: u64 = 1;
const ABSENT: u64 = 1 << 1;
const UNLINKED: u64 = 1 << 2;
const QUEUED: u64 = 1 << 3;
/// One reader.
const READER: u64 = 1 << 4;
/// What is left of a word when nobody holds the record.
const FLAGS: u64 = ABSENT | UNLINKED | QUEUED;

/// How a record is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Shared,
    /// Exclusively; the flags that the word had, and will have again unless a write changes them.
    Exclusive {
        flags: u64,
    },
}

/// A worker's state: the locks that its transaction holds.
#[derive(Debug)]
pub struct NoWaitLocal<M: Machine> {
    positions: RecordMap<M>,
    locks: Vec<(Record<M>, Held)>,
}

impl<M: Machine> Default for NoWaitLocal<M> {
    fn default() -> Self {
        NoWaitLocal { positions: RecordMap::default(), locks: Vec::with_capacity(64) }
    }
}

impl<M: Machine> NoWaitLocal<M> {
    fn push(&mut self, record: Record<M>, held: Held) {
        self.positions.push(record);
        self.locks.push((record, held));
    }

    fn clear(&mut self) {
        self.positions.clear();
        self.locks.clear();
    }
}

/// What asking for a lock came to.
enum Lock {
    /// It is held; these are the record's flags.
    Held(u64),
    /// The record is out of the index, and not locked.
    Unlinked,
}

impl<F: Faults> NoWait<F> {
    /// Holds the record shared, or still exclusively.
    #[inline(always)]
    fn lock_shared<M: Machine>(local: &mut NoWaitLocal<M>, record: Record<M>) -> Result<Lock, Abort> {
        if let Some(position) = local.positions.find(record) {
            return Ok(Lock::Held(match local.locks[position].1 {
                Held::Exclusive { flags } => flags,
                // Relaxed: flags of a record that is held don't change.
                Held::Shared => record.word().load(Ordering::Relaxed) & FLAGS,
            }));
        }
        // A first guess instead of a load: a row that nobody holds. It saves a transfer of the line.
        let mut word = 0;
        loop {
            // Acquire: pairs with the Release of `release_exclusive`: the row is seen as its last writer left it.
            match record.word().compare_exchange(word, word + READER, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) if now & EXCLUSIVE != 0 => return Err(Abort::new(AbortReason::ReadLocked)),
                Err(now) if now & UNLINKED != 0 => return Ok(Lock::Unlinked),
                Err(now) => word = now,
            }
        }
        if F::RELEASE_SHARED_EARLY {
            record.word().fetch_sub(READER, Ordering::Release);
        } else {
            local.push(record, Held::Shared);
        }
        Ok(Lock::Held(word & FLAGS))
    }

    /// Holds the record exclusively.
    #[inline(always)]
    fn lock_exclusive<M: Machine>(local: &mut NoWaitLocal<M>, record: Record<M>) -> Result<Lock, Abort> {
        let position = local.positions.find(record);
        let own_share = match position.map(|position| local.locks[position].1) {
            Some(Held::Exclusive { flags }) => return Ok(Lock::Held(flags)),
            Some(Held::Shared) => READER,
            None => 0,
        };
        let mut word = own_share;
        loop {
            let new = word - own_share + EXCLUSIVE;
            // Acquire: pairs with the Release of `release_exclusive` and `release_shared`: the row is as its last writer left
            // it, and its readers are done.
            match record.word().compare_exchange(word, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) if now & UNLINKED != 0 => return Ok(Lock::Unlinked),
                Err(now) if now & !FLAGS == own_share => word = now,
                Err(now) if F::IGNORE_READERS && now & EXCLUSIVE == 0 => word = now,
                Err(_) => return Err(Abort::new(AbortReason::WriteLocked)),
            }
        }
        let flags = word & FLAGS;
        match position {
            Some(position) => local.locks[position].1 = Held::Exclusive { flags },
            None => local.push(record, Held::Exclusive { flags }),
        }
        Ok(Lock::Held(flags))
    }

    /// Gives an exclusive lock back.
    #[inline(always)]
    fn release_exclusive<M: Machine>(record: Record<M>, old_flags: u64, new_flags: u64) {
        if F::IGNORE_READERS {
            // There may be readers, whose shares stay.
            record.word().fetch_add(new_flags.wrapping_sub(old_flags | EXCLUSIVE), Ordering::Release);
        } else {
            // Release: the row comes before; pairs with the Acquire of the next lock.
            record.word().store(new_flags, Ordering::Release);
        }
    }

    /// Gives a shared lock back.
    #[inline(always)]
    fn release_shared<M: Machine>(record: Record<M>) {
        // Release: what was read was read before; pairs with the Acquire of `lock_exclusive`.
        record.word().fetch_sub(READER, Ordering::Release);
    }

    /// Gives all locks back, and forgets them. `flags_after` says which flags a record that was held exclusively gets.
    #[inline(always)]
    fn release_all<M: Machine>(
        cx: &mut Context<M, NoWaitLocal<M>>,
        mut flags_after: impl FnMut(&mut Context<M, NoWaitLocal<M>>, Record<M>, u64) -> u64,
    ) {
        for position in 0..cx.local.locks.len() {
            let (record, held) = cx.local.locks[position];
            match held {
                Held::Shared => Self::release_shared(record),
                Held::Exclusive { flags } => {
                    let new = flags_after(cx, record, flags);
                    Self::release_exclusive(record, flags, new);
                }
            }
        }
        cx.local.clear();
    }

    /// Installs the record's write, if there is one; the flags it leaves.
    #[inline(always)]
    fn install<M: Machine>(cx: &mut Context<M, NoWaitLocal<M>>, record: Record<M>, flags: u64) -> u64 {
        let Some(position) = cx.writes.find(record) else { return flags };
        let write = &mut cx.writes.entries_mut()[position];
        let new = match write.kind {
            WriteKind::Update => flags,
            WriteKind::Insert if write.fresh => flags & !(ABSENT | QUEUED),
            WriteKind::Insert => flags & !ABSENT,
            WriteKind::Delete => {
                write.collect = flags & QUEUED == 0;
                flags | ABSENT | QUEUED
            }
            WriteKind::Nothing => return flags,
        };
        cx.writes.install(position);
        new
    }
}

impl<M: Machine, F: Faults> Protocol<M> for NoWait<F> {
    const INFO: Info = Info {
        name: "2pl-nowait",
        summary: "two-phase locking: a reader-writer lock per record, held to the end; a conflict aborts at once",
        paper: "Bernstein, Goodman: Concurrency control in distributed database systems, ACM Computing Surveys 1981",
        isolation: Isolation::Serializable,
    };
    const META_WORDS: usize = 1;
    type Options = NoWaitOptions;
    type Local = NoWaitLocal<M>;

    fn new(_: NoWaitOptions) -> Self {
        NoWait { faults: PhantomData }
    }

    fn init(&self, record: Record<M>, initial: Initial) {
        let word = match initial {
            Initial::Loaded => 0,
            Initial::Inserting => EXCLUSIVE | ABSENT | QUEUED,
        };
        // Relaxed: the index publishes the record.
        record.word().store(word, Ordering::Relaxed);
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M, Self::Local>) {}

    #[inline(always)]
    fn read<K: Key>(
        &self,
        cx: &mut Context<M, Self::Local>,
        at: At<'_, M, K>,
        columns: Projection<'_>,
    ) -> Result<Access, Abort> {
        if let Some(position) = cx.writes.find(at.record) {
            return Ok(cx.writes.own(position));
        }
        let Lock::Held(flags) = Self::lock_shared(&mut cx.local, at.record)? else { return Ok(Access::Unlinked) };
        cx.copy_row(at.table, at.record, columns);
        Ok(if flags & ABSENT == 0 { Access::Row } else { Access::Absent })
    }

    #[inline(always)]
    fn write<K: Key>(&self, cx: &mut Context<M, Self::Local>, at: At<'_, M, K>, mode: Mode) -> Result<Access, Abort> {
        if let Some(position) = cx.writes.find(at.record) {
            return Ok(cx.writes.rewrite(position, mode));
        }
        let Lock::Held(flags) = Self::lock_exclusive(&mut cx.local, at.record)? else { return Ok(Access::Unlinked) };
        let absent = flags & ABSENT != 0;
        let kind = match mode {
            Mode::Insert if !absent => return Ok(Access::Row),
            Mode::Insert => WriteKind::Insert,
            _ if absent => {
                // The miss stays protected by the exclusive lock.
                cx.copy_row(at.table, at.record, Projection::WHOLE);
                return Ok(Access::Absent);
            }
            Mode::Blind | Mode::Modify => WriteKind::Update,
            Mode::Delete => WriteKind::Delete,
        };
        let position = cx.writes.push(at.table, at.key, at.record, kind);
        if matches!(mode, Mode::Modify | Mode::Delete) {
            cx.copy_row(at.table, at.record, Projection::WHOLE);
            cx.scratch_to_image(position);
        }
        Ok(Access::Own(position))
    }

    fn inserted<K: Key>(
        &self,
        cx: &mut Context<M, Self::Local>,
        at: At<'_, M, K>,
        change: &Change<M>,
    ) -> Result<usize, Abort> {
        // Born exclusive: `init`.
        cx.local.push(at.record, Held::Exclusive { flags: ABSENT | QUEUED });
        let position = cx.writes.push(at.table, at.key, at.record, WriteKind::Insert);
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
        if !cx.nodes.is_empty() {
            // SeqCst: own inserts into the index come before the look at others' leaves (two transactions, each inserting
            // where the other has scanned: at least one sees the other's insert). Pairs with itself.
            M::fence(Ordering::SeqCst);
            cx.nodes.validate()?;
        }
        Self::release_all(cx, Self::install);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M, Self::Local>) {
        Self::release_all(cx, |cx, record, flags| {
            let fresh = cx.writes.find(record).is_some_and(|position| cx.writes.entries()[position].fresh);
            if F::KEEP_ABORTED_INSERTS && fresh { flags & !ABSENT } else { flags }
        });
    }

    fn unlink(&self, record: Record<M>) -> Unlink {
        // Relaxed: the exchange decides.
        let word = record.word().load(Ordering::Relaxed);
        if word & !FLAGS != 0 {
            return Unlink::Busy;
        }
        let (new, outcome) =
            if word & ABSENT != 0 { (word | UNLINKED, Unlink::Marked) } else { (word & !QUEUED, Unlink::Alive) };
        // AcqRel: pairs with releases before, and with locks after.
        match record.word().compare_exchange(word, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => outcome,
            Err(_) => Unlink::Busy,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        // Acquire: pairs with the Release of `release_exclusive`.
        record.word().load(Ordering::Acquire) & ABSENT != 0
    }
}
