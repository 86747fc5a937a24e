//! The global epoch: it says when memory may be reused, and in which order commits lie.
//!
//! These are Silo's epochs (Tu et al., "Speedy transactions in multicore in-memory databases", SOSP
//! 2013, section 4.1), advanced by the workers themselves. Each worker has a slot on a cache line
//! of its own, with the epoch that it was last seen in. The global epoch advances only if every
//! online worker was seen in it, so `global - local <= 1` for all.
//!
//! A worker refreshes its slot when it begins a transaction, and stores only if the epoch has
//! changed. In the steady state a transaction reads one shared line and writes none. The price is
//! that a worker that does nothing must go offline, or it holds the epoch back.
//!
//! **Reuse.** A record that was unlinked while the global epoch was `e` can be reached only by
//! transactions that began in `e` or before. Its memory is reused once every online worker is past
//! `e + 1`. This is one epoch more than the argument needs, as slack.
//!
//! **Transactions that only read.** A worker that reads a snapshot marks its slot. It commits
//! nothing, so it holds back only the reuse of memory, and no epoch, however long it takes. The
//! slot of such a worker may be any number of epochs behind.
//!
//! **The gate.** The worker of a starving transaction may close the gate. Then no other worker
//! begins a transaction ([`Epochs::enter_if_open`]), the running ones end, and the starving one
//! runs alone. The gate is a bit of the global epoch's word, which every worker compares with the
//! epoch that it saw last. So a closed gate looks like a changed epoch, and an open gate costs
//! nothing. No protocol relies on it for correctness. Workers that want it queue by tickets. The
//! gate also lets a transaction run alone that is of none of the declared types, and it holds all
//! others back while types are declared. Both wait until it is sure that no other runs
//! ([`Epochs::wait_until_idle`]); a starving transaction waits for a while only.
//!
//! **Orderings.** Going online is Dekker's pattern. A worker stores its slot and then reads shared
//! pointers; the collector has unlinked a pointer and then reads the slots. Each side has a SeqCst
//! fence between its two steps, so at least one sees the other: either the collector sees the slot
//! and waits, or the worker no longer finds the pointer. A worker that goes online and one that has
//! closed the gate see each other in the same way. docs/memory_ordering.md, section 7, has the
//! whole argument.

use contend_machine::{Atomic64, Cycles, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// Value of a slot: its worker is offline and holds nothing.
const OFFLINE: u64 = u64::MAX;

/// Bit of a slot, beside the epoch: the worker's transaction commits nothing.
const READS: u64 = 1 << 63;

/// Bit of the global epoch's word, beside the epoch: the gate is closed.
const CLOSED: u64 = 1 << 63;

/// The part of the interval after which an epoch may end early: with 40 ms 1.25 ms.
const EARLY: u64 = 32;

/// The epoch from which none ends early. Silo's TIDs hold an epoch in 32 bits, which would last 62
/// days. So they last a month, and 2.7 years.
const EARLY_UNTIL: u64 = 1 << 31;

/// The first epoch. It is not 0, so that a difference of two epochs never underflows.
const FIRST: u64 = 2;

/// The global epoch and the slots of all workers.
pub struct Epochs<M: Machine> {
    global: CachePadded<M::U64>,
    /// The next ticket for the gate, and the ticket whose turn it is. The worker with that ticket
    /// closes the gate, and opens it again.
    next_ticket: CachePadded<M::U64>,
    turn: CachePadded<M::U64>,
    /// The time of the last attempt to advance the epoch.
    tried_at: CachePadded<M::U64>,
    slots: Box<[CachePadded<M::U64>]>,
    /// The number of the first slot that was never taken: no slot from it on needs to be read.
    taken_below: CachePadded<M::U64>,
    free_slots: Mutex<Vec<usize>>,
    interval: Cycles,
}

impl<M: Machine> Epochs<M> {
    /// Creates the epochs of up to `workers` workers. Each epoch lasts `interval` or longer.
    pub fn new(workers: usize, interval: Cycles) -> Self {
        Epochs {
            global: CachePadded::new(M::U64::new(FIRST)),
            next_ticket: CachePadded::new(M::U64::new(0)),
            turn: CachePadded::new(M::U64::new(0)),
            tried_at: CachePadded::new(M::U64::new(0)),
            slots: (0..workers).map(|_| CachePadded::new(M::U64::new(OFFLINE))).collect(),
            taken_below: CachePadded::new(M::U64::new(0)),
            free_slots: Mutex::new((0..workers).rev().collect()),
            interval,
        }
    }

    /// Goes on with `epoch`, if it is later than the current one. A log calls this when it is
    /// opened, before there is any worker.
    pub fn begin_at(&self, epoch: u64) {
        // Relaxed: no other thread uses the epochs yet.
        self.global.fetch_max(epoch, Ordering::Relaxed);
    }

    /// Takes a free slot for a new worker, which is offline, and returns the slot's number. `None`
    /// if all are taken.
    pub fn register(&self) -> Option<usize> {
        let slot = self.free_slots.lock().pop()?;
        // Relaxed: the fence in `show` stands between this and the worker's first use of shared
        // memory. A collector whose fence comes after it (in `least`) sees the larger number as
        // well as the slot's first epoch.
        self.taken_below.fetch_max(slot as u64 + 1, Ordering::Relaxed);
        Some(slot)
    }

    /// Gives a slot back. Its worker has ended.
    pub fn unregister(&self, slot: usize) {
        self.offline(slot);
        self.free_slots.lock().push(slot);
    }

    /// Returns the global epoch.
    #[inline(always)]
    pub fn current(&self) -> u64 {
        self.word() & !CLOSED
    }

    /// Returns the word of the global epoch, with the bit of the gate.
    #[inline(always)]
    fn word(&self) -> u64 {
        // Acquire: pairs with the Release of `try_advance`. A worker that sees an epoch sees
        // everything that its advance had seen: the last stores of workers to memory of older
        // epochs.
        self.global.load(Ordering::Acquire)
    }

    /// Returns the global epoch by a SeqCst load, which has its place in the one order of all
    /// sequentially consistent operations. The instruction is the same as in [`Epochs::current`].
    #[inline(always)]
    pub fn current_in_order(&self) -> u64 {
        // SeqCst: pairs with the commit fence of the caller. The caller needs the order among
        // commits and epochs; the load also acquires, as in `current`.
        self.global.load(Ordering::SeqCst) & !CLOSED
    }

    /// Whether the epoch is still `local` and the gate is open. A worker that was last seen in this
    /// epoch may then begin a transaction without a store to its slot.
    #[inline(always)]
    pub fn is_as_seen(&self, local: u64) -> bool {
        self.word() == local
    }

    /// Notes that the worker begins a transaction, or loads rows, whether the gate is open or not.
    /// It no longer holds any memory from before. `local` is the epoch that this returned last.
    /// Returns the epoch in which the worker is seen now.
    #[inline(always)]
    pub fn refresh(&self, slot: usize, local: u64) -> u64 {
        if self.is_as_seen(local) { local } else { self.enter(slot) }
    }

    /// Notes that the worker begins a transaction, if the gate is open, and returns the epoch in
    /// which it begins. `None`: the worker must go offline, and wait until the gate is open.
    pub fn enter_if_open(&self, slot: usize) -> Option<u64> {
        loop {
            let now = self.word();
            if now & CLOSED != 0 {
                return None;
            }
            self.show(slot, now);
            // The gate was still open after the slot was stored and fenced. A worker that closes it
            // later has its fence after ours, so it sees the slot and waits for this transaction.
            if self.is_as_seen(now) {
                return Some(now);
            }
        }
    }

    #[cold]
    fn enter(&self, slot: usize) -> u64 {
        self.enter_as(slot, 0)
    }

    /// Notes that the worker begins a transaction that commits nothing, and returns the epoch in
    /// which it begins. The worker holds back no epoch until it refreshes again or goes offline.
    /// The result of an earlier [`Epochs::refresh`] is void: pass [`Epochs::NOT_SEEN`] next.
    pub fn enter_reading(&self, slot: usize) -> u64 {
        self.enter_as(slot, READS)
    }

    fn enter_as(&self, slot: usize, mark: u64) -> u64 {
        loop {
            let now = self.current();
            self.show(slot, now | mark);
            if self.current() == now {
                return now;
            }
        }
    }

    fn show(&self, slot: usize, seen: u64) {
        // Release: the worker's accesses to memory of the former epoch come before this store;
        // pairs with the Acquire of `least`, after which that memory may be reused.
        self.slots[slot].store(seen, Ordering::Release);
        // SeqCst: pairs with the fences in `least` and `close` (the module comment's Dekker
        // pattern). Without it the worker could load a shared pointer before its slot is visible. A
        // collector could then unlink that record, miss the slot, and reuse memory that the worker
        // holds.
        M::fence(Ordering::SeqCst);
    }

    /// Waits until no other worker has the gate, and closes it. The worker must be offline, and in
    /// no transaction.
    pub fn close(&self) {
        // Relaxed: only the order of the tickets counts, which is that of the word's modifications.
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let mut spin = Spin::<M>::new();
        // Acquire: pairs with the Release in `open`. Everything that the last owner of the gate did
        // comes before.
        while self.turn.load(Ordering::Acquire) != ticket {
            spin.wait();
        }
        // AcqRel: the epoch stands in the same word. A worker that reads it together with the bit
        // (Acquire in `word`) sees everything that came before that epoch, as after `try_advance`.
        self.global.fetch_or(CLOSED, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `show`. Either `may_commit` of this worker sees the slot
        // of a worker that begins, or that worker sees the gate closed and does not begin.
        M::fence(Ordering::SeqCst);
    }

    /// Opens the gate. This worker has closed it.
    pub fn open(&self) {
        // AcqRel: the epoch stands in the same word, as in `close`; pairs with the Acquire in
        // `word`.
        self.global.fetch_and(!CLOSED, Ordering::AcqRel);
        // Release: the gate is open before the next owner closes it; pairs with the Acquire in
        // `close`.
        self.turn.fetch_add(1, Ordering::Release);
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.word() & CLOSED != 0
    }

    /// Whether the worker of this slot runs, or may be about to run, a transaction that can commit.
    /// Offline workers and workers that only read don't.
    pub fn may_commit(&self, slot: usize) -> bool {
        // Acquire: pairs with the Release stores of `show` and `offline`. A slot with the mark
        // `READS`, or offline, has this bit set.
        self.slots[slot].load(Ordering::Acquire) & READS == 0
    }

    /// Waits until no worker runs a transaction that can commit. The caller has closed the gate, so
    /// none begins meanwhile. A worker that pauses without going offline is waited for.
    pub fn wait_until_idle(&self) {
        let mut spin = Spin::<M>::new();
        for slot in 0..self.slots_taken() {
            while self.may_commit(slot) {
                spin.wait();
            }
        }
    }

    /// Lets this number of epochs pass. The caller has closed the gate, and no worker runs a
    /// transaction that can commit. So the epoch is held back for a moment at most: by a worker
    /// that finds the gate closed, or by one that loads rows.
    pub(crate) fn pass(&self, epochs: u64) {
        let until = self.current() + epochs;
        let mut spin = Spin::<M>::new();
        while self.current() < until {
            if !self.try_advance() {
                spin.wait();
            }
        }
    }

    /// The number of the first slot that was never taken: no slot from it on needs to be read.
    pub(crate) fn slots_taken(&self) -> usize {
        // Relaxed: ordered by the SeqCst fence of `close`, as in `least`.
        self.taken_below.load(Ordering::Relaxed) as usize
    }

    /// Notes that the worker holds no memory. It doesn't hold the epoch back until it refreshes
    /// again. The result of an earlier `refresh` is void: pass [`Epochs::NOT_SEEN`] next.
    pub fn offline(&self, slot: usize) {
        // Release: the worker's uses of shared memory come before this store; pairs with the
        // Acquire of `least`.
        self.slots[slot].store(OFFLINE, Ordering::Release);
    }

    /// The epoch that an offline worker passes to [`Epochs::refresh`]. No epoch has this number.
    pub const NOT_SEEN: u64 = 0;

    /// Returns the oldest epoch that an online worker was seen in, or the global epoch if none is
    /// online.
    pub fn oldest(&self) -> u64 {
        self.least(|slot| slot & !READS)
    }

    /// Returns the oldest epoch in which a transaction can still commit.
    pub fn oldest_to_commit(&self) -> u64 {
        // A slot with the mark `READS` is larger than every epoch, and so never the least.
        self.least(|slot| slot)
    }

    fn least(&self, epoch: impl Fn(u64) -> u64) -> u64 {
        let global = self.current();
        // SeqCst: pairs with the fence in `show`. The caller has unlinked records before this. A
        // worker whose slot is read here as offline, or in a later epoch, has its fence after this
        // one, so it no longer finds these records.
        M::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence. A slot that was taken later belongs to a worker that began
        // later.
        let taken = self.taken_below.load(Ordering::Relaxed) as usize;
        // Acquire: pairs with the Release stores of `show` and `offline`. The last accesses of
        // those workers to old memory happen before its reuse.
        self.slots[..taken].iter().map(|slot| epoch(slot.load(Ordering::Acquire))).fold(global, u64::min)
    }

    /// Whether memory that was unlinked in epoch `unlinked` may be reused.
    pub fn is_reusable(&self, unlinked: u64) -> bool {
        self.oldest() > unlinked + 1
    }

    /// Advances the epoch if the interval has passed and every online worker that can commit was
    /// seen in the current epoch. Returns whether it advanced.
    pub fn maybe_advance(&self, now: Cycles) -> bool {
        self.maybe_advance_after(self.interval, now)
    }

    /// Advances the epoch as [`Epochs::maybe_advance`] does, but after a part of the interval.
    /// Much waits for the end of epochs.
    pub fn maybe_advance_early(&self, now: Cycles) -> bool {
        let part = if self.current() < EARLY_UNTIL { EARLY } else { 1 };
        self.maybe_advance_after(self.interval / part, now)
    }

    fn maybe_advance_after(&self, interval: Cycles, now: Cycles) -> bool {
        // Relaxed, also below: the time is a hint. No memory is published by it, and the exchange
        // lets one of several workers try.
        let tried_at = self.tried_at.load(Ordering::Relaxed);
        now.wrapping_sub(tried_at) >= interval
            && self.tried_at.compare_exchange(tried_at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && self.try_advance()
    }

    /// Advances the epoch if every online worker that can commit was seen in the current epoch.
    /// Returns whether it advanced.
    pub fn try_advance(&self) -> bool {
        let mut word = self.word();
        let global = word & !CLOSED;
        if self.oldest_to_commit() != global {
            return false;
        }
        // AcqRel. Release: pairs with the Acquire of `word`, so a worker that sees the new epoch
        // sees everything that came before it. Acquire: pairs with the last change of the gate.
        // Relaxed on failure: only the value is compared, and the loop exchanges again.
        while let Err(found) = self.global.compare_exchange(word, word + 1, Ordering::AcqRel, Ordering::Relaxed) {
            if found & !CLOSED != global {
                return false;
            }
            // Only the bit of the gate has changed meanwhile.
            word = found;
        }
        true
    }
}

impl<M: Machine> std::fmt::Debug for Epochs<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Epochs")
            .field("global", &self.current())
            .field("oldest", &self.oldest())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    #[test]
    fn a_worker_in_an_old_epoch_holds_the_epoch_back() {
        let epochs = Epochs::<Native>::new(2, 0);
        let (a, b) = (epochs.register().expect("a slot"), epochs.register().expect("a slot"));
        assert!(epochs.register().is_none(), "two slots only");
        let start = epochs.refresh(a, Epochs::<Native>::NOT_SEEN);
        assert!(epochs.try_advance());
        assert!(!epochs.try_advance(), "a was not seen in the new epoch");
        let second = epochs.refresh(b, Epochs::<Native>::NOT_SEEN);
        assert_eq!(second, start + 1);
        assert!(!epochs.is_reusable(start - 1) || epochs.oldest() > start);
        assert!(!epochs.is_reusable(start), "a may still hold what was unlinked then");
        epochs.offline(a);
        assert!(epochs.try_advance());
        assert!(!epochs.is_reusable(start));
        epochs.refresh(b, second);
        assert!(epochs.is_reusable(start));
        assert!(!epochs.is_reusable(second));
    }

    #[test]
    fn an_epoch_lasts_the_interval_or_a_part_of_it() {
        const INTERVAL: Cycles = 320;
        let epochs = Epochs::<Native>::new(1, INTERVAL);
        let first = epochs.current();
        assert!(epochs.maybe_advance(1_000));
        assert!(!epochs.maybe_advance(1_000 + INTERVAL - 1), "the interval has not passed");
        assert!(!epochs.maybe_advance_early(1_000 + INTERVAL / EARLY - 1), "nor has the part");
        assert!(epochs.maybe_advance_early(1_000 + INTERVAL / EARLY));
        assert!(!epochs.maybe_advance(1_000 + INTERVAL), "the interval begins anew");
        assert!(epochs.maybe_advance(1_000 + INTERVAL / EARLY + INTERVAL));
        assert_eq!(epochs.current(), first + 3);
        epochs.begin_at(EARLY_UNTIL);
        let last = 1_000 + INTERVAL / EARLY + INTERVAL;
        assert!(!epochs.maybe_advance_early(last + INTERVAL - 1), "so late no epoch ends early");
        assert!(epochs.maybe_advance_early(last + INTERVAL));
    }

    #[test]
    fn a_worker_that_only_reads_holds_back_memory_and_no_epoch() {
        let epochs = Epochs::<Native>::new(2, 0);
        let (reader, writer) = (epochs.register().expect("a slot"), epochs.register().expect("a slot"));
        let began = epochs.enter_reading(reader);
        for epoch in began + 1..began + 9 {
            assert!(epochs.try_advance());
            assert_eq!((epochs.current(), epochs.oldest(), epochs.oldest_to_commit()), (epoch, began, epoch));
            assert!(!epochs.is_reusable(began) && !epochs.is_reusable(began - 1));
        }
        epochs.refresh(writer, Epochs::<Native>::NOT_SEEN);
        assert!(epochs.try_advance());
        assert!(!epochs.try_advance(), "a worker that may commit holds it back");
        epochs.offline(reader);
        assert!(epochs.is_reusable(began));
        // The same slot for both, in turns.
        let again = epochs.enter_reading(writer);
        assert!(epochs.try_advance());
        assert_eq!(epochs.refresh(writer, Epochs::<Native>::NOT_SEEN), again + 1);
        assert!(epochs.try_advance() && !epochs.try_advance());
    }

    #[test]
    fn a_closed_gate_holds_back_new_transactions_and_nothing_else() {
        let epochs = Epochs::<Native>::new(3, 0);
        let [alone, other, reader] = [(); 3].map(|()| epochs.register().expect("a slot"));
        assert_eq!(epochs.slots_taken(), 3);
        let seen = epochs.enter_if_open(other).expect("it is open");
        assert!(epochs.is_as_seen(seen) && epochs.may_commit(other) && !epochs.may_commit(alone));
        epochs.close();
        assert!(epochs.is_closed() && !epochs.is_as_seen(seen));
        // The epoch is as before, for all questions.
        assert_eq!((epochs.current(), epochs.oldest(), epochs.oldest_to_commit()), (seen, seen, seen));
        assert_eq!(epochs.enter_if_open(other), None);
        // Epochs pass as soon as the worker that waits is offline; the gate stays closed.
        assert!(epochs.try_advance() && !epochs.try_advance());
        epochs.offline(other);
        assert!(!epochs.may_commit(other) && epochs.try_advance());
        assert!(epochs.is_closed() && epochs.current() == seen + 2);
        assert_eq!((epochs.enter_if_open(other), epochs.may_commit(other)), (None, false));
        // The worker that has closed it, and one that only reads, need no open gate.
        assert_eq!(epochs.refresh(alone, Epochs::<Native>::NOT_SEEN), seen + 2);
        assert_eq!(epochs.refresh(alone, seen + 2), seen + 2);
        assert_eq!(epochs.enter_reading(reader), seen + 2);
        assert!(epochs.may_commit(alone) && !epochs.may_commit(reader));
        assert!(format!("{epochs:?}").contains("closed: true"));
        epochs.open();
        assert!(!epochs.is_closed() && epochs.is_as_seen(seen + 2));
        assert_eq!(epochs.enter_if_open(other), Some(seen + 2));
        epochs.close();
        assert!(epochs.is_closed());
    }

    #[test]
    fn the_gate_is_of_one_at_a_time_while_epochs_pass() {
        const TURNS: u64 = 2_000;
        let epochs = Epochs::<Native>::new(1, 0);
        let inside = <Native as Machine>::U64::new(0);
        let first = epochs.current();
        let advanced: u64 = std::thread::scope(|scope| {
            let all = [(); 3].map(|()| {
                scope.spawn(|| {
                    let mut advanced = 0;
                    for _ in 0..TURNS {
                        epochs.close();
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        advanced += u64::from(epochs.try_advance());
                        assert!(epochs.is_closed());
                        inside.fetch_sub(1, Ordering::Relaxed);
                        epochs.open();
                        advanced += u64::from(epochs.try_advance());
                    }
                    advanced
                })
            });
            all.into_iter().map(|thread| thread.join().expect("no panic")).sum()
        });
        assert_eq!(epochs.current(), first + advanced);
        assert!(!epochs.is_closed() && advanced >= TURNS);
    }

    #[test]
    fn slots_are_reused() {
        let epochs = Epochs::<Native>::new(1, 0);
        let slot = epochs.register().expect("a slot");
        epochs.unregister(slot);
        assert_eq!(epochs.register(), Some(slot));
    }
}
