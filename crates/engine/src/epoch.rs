//! The global epoch: when may memory be reused, and in which order do commits lie?
//!
//! Silo's epochs (Tu et al., "Speedy transactions in multicore in-memory databases", SOSP 2013,
//! section 4.1), advanced by the workers themselves. Each worker has a slot on a cache line of its
//! own with the epoch that it was last seen in; the global epoch advances only if every worker that
//! is online was seen in it, so `global - local <= 1` for all.
//!
//! A worker refreshes its slot when it begins a transaction, and stores only if the epoch has
//! changed: in the steady state a transaction reads one shared line and writes none. The price: a
//! worker that does nothing must go offline, or it holds the epoch back.
//!
//! **Reuse.** What was unlinked while the global epoch was `e` can be reached only by transactions
//! that began in `e` or before. It is reused once every online worker is past `e + 1`: one epoch
//! more than needed, as slack.
//!
//! **Who only reads** a snapshot says so in its slot: it commits nothing, so it holds back the
//! reuse of memory, and no epoch, however long it takes. A slot of such a worker may be any number
//! of epochs behind.
//!
//! **The gate.** The worker of a transaction that starves may close it. Then no other worker begins
//! a transaction ([`Epochs::enter_if_open`]), those that run end, and the one is alone. The gate is
//! a bit of the global epoch's word, which every worker compares with the epoch that it saw last.
//! So a closed gate is to it like a changed epoch, and an open gate costs nothing. The gate serves
//! progress only: no protocol relies on it to be right. Workers that want it queue by tickets.
//!
//! **Orderings.** Going online is Dekker's pattern: a worker stores its slot and then reads shared
//! pointers; the collector has unlinked a pointer and then reads the slots. Each side has a SeqCst
//! fence between, so at least one sees the other. A worker that goes online and one that has closed
//! the gate see each other in the same way.

use contend_machine::{Atomic64, Cycles, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

/// In a slot: this worker is offline and holds nothing.
const OFFLINE: u64 = u64::MAX;

/// In a slot, beside the epoch: this worker commits nothing.
const READS: u64 = 1 << 63;

/// In the global epoch's word, beside the epoch: the gate is closed.
const CLOSED: u64 = 1 << 63;

/// The first epoch. Not 0, so that a difference of two epochs never underflows.
const FIRST: u64 = 2;

/// The global epoch and every worker's.
pub struct Epochs<M: Machine> {
    global: CachePadded<M::U64>,
    /// The next ticket for the gate, and the one whose turn it is. The worker whose turn it is
    /// closes the gate, and opens it again.
    next_ticket: CachePadded<M::U64>,
    turn: CachePadded<M::U64>,
    /// When the epoch was last advanced, or the advance last tried.
    tried_at: CachePadded<M::U64>,
    slots: Box<[CachePadded<M::U64>]>,
    /// Slots from this one on were never taken.
    taken_below: CachePadded<M::U64>,
    free_slots: Mutex<Vec<usize>>,
    interval: Cycles,
}

impl<M: Machine> Epochs<M> {
    /// Epochs for up to `workers` workers, each epoch lasting `interval` or longer.
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

    /// Goes on with this epoch, if it is a later one: before any worker is there.
    pub fn begin_at(&self, epoch: u64) {
        // Relaxed: nobody else is there.
        self.global.fetch_max(epoch, Ordering::Relaxed);
    }

    /// A slot for a new worker, which is offline. `None` if all are taken.
    pub fn register(&self) -> Option<usize> {
        let slot = self.free_slots.lock().pop()?;
        // Relaxed: the fence in `enter` makes it visible together with the slot's first epoch.
        self.taken_below.fetch_max(slot as u64 + 1, Ordering::Relaxed);
        Some(slot)
    }

    /// Gives a slot back.
    pub fn unregister(&self, slot: usize) {
        self.offline(slot);
        self.free_slots.lock().push(slot);
    }

    /// The global epoch.
    #[inline(always)]
    pub fn current(&self) -> u64 {
        self.word() & !CLOSED
    }

    /// The global epoch, with the gate.
    #[inline(always)]
    fn word(&self) -> u64 {
        // Acquire: pairs with the Release of `try_advance`.
        self.global.load(Ordering::Acquire)
    }

    /// The global epoch, by a load that has its place in the one order of all that is sequentially
    /// consistent; the instruction is that of [`Epochs::current`].
    #[inline(always)]
    pub fn current_in_order(&self) -> u64 {
        // SeqCst: as the caller says; and what `current` says.
        self.global.load(Ordering::SeqCst) & !CLOSED
    }

    /// Whether the epoch is still this one, and the gate is open. A worker that was seen in this
    /// epoch last may then begin, and need not say so.
    #[inline(always)]
    pub fn is_as_seen(&self, local: u64) -> bool {
        self.word() == local
    }

    /// The worker begins a transaction, or loads, whether the gate is open or not: whatever it held
    /// before, it holds no more. `local` is what this returned last.
    #[inline(always)]
    pub fn refresh(&self, slot: usize, local: u64) -> u64 {
        if self.is_as_seen(local) { local } else { self.enter(slot) }
    }

    /// The worker begins a transaction, if the gate is open: the epoch in which it does. `None`: it
    /// is to go offline, and to wait until the gate is open.
    pub fn enter_if_open(&self, slot: usize) -> Option<u64> {
        loop {
            let now = self.word();
            if now & CLOSED != 0 {
                return None;
            }
            self.show(slot, now);
            // The gate was open after the slot was stored: a worker that closes it now sees the
            // slot.
            if self.is_as_seen(now) {
                return Some(now);
            }
        }
    }

    #[cold]
    fn enter(&self, slot: usize) -> u64 {
        self.enter_as(slot, 0)
    }

    /// The worker begins a transaction that commits nothing, and holds back no epoch until it
    /// refreshes again or goes offline; the epoch in which it begins. What [`Epochs::refresh`]
    /// returned before is void.
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
        // Release: what the worker did with memory of the former epoch comes before; pairs with the
        // Acquire of `oldest`.
        self.slots[slot].store(seen, Ordering::Release);
        // SeqCst: pairs with the fence in `oldest`, `try_advance` and `close` (the module comment's
        // Dekker pattern).
        M::fence(Ordering::SeqCst);
    }

    /// Waits until no other worker has the gate, and closes it. The worker is to be offline, and in
    /// no transaction.
    pub fn close(&self) {
        // Relaxed: tickets are in an order of their own.
        let ticket = self.next_ticket.fetch_add(1, Ordering::Relaxed);
        let mut spin = Spin::<M>::new();
        // Acquire: pairs with the Release in `open`.
        while self.turn.load(Ordering::Acquire) != ticket {
            spin.wait();
        }
        // AcqRel: a worker that sees the bit sees all that came before the epoch beside it, as in
        // `try_advance`.
        self.global.fetch_or(CLOSED, Ordering::AcqRel);
        // SeqCst: pairs with the fence in `show`. A worker whose slot is not seen online sees the
        // gate closed.
        M::fence(Ordering::SeqCst);
    }

    /// Opens the gate, which this worker has closed.
    pub fn open(&self) {
        // AcqRel: as in `close`.
        self.global.fetch_and(!CLOSED, Ordering::AcqRel);
        // Release: the gate is open before the next closes it; pairs with the Acquire in `close`.
        self.turn.fetch_add(1, Ordering::Release);
    }

    /// Whether the gate is closed.
    pub fn is_closed(&self) -> bool {
        self.word() & CLOSED != 0
    }

    /// Whether a worker runs, or may be about to run, a transaction that can commit; offline
    /// workers and those that only read do not.
    pub fn may_commit(&self, slot: usize) -> bool {
        // Acquire: pairs with the Release stores of `show` and `offline`. A slot with the mark, or
        // offline, is later than every epoch.
        self.slots[slot].load(Ordering::Acquire) & READS == 0
    }

    /// Slots from this one on were never taken.
    pub(crate) fn slots_taken(&self) -> usize {
        // Relaxed: ordered by the fence of `close`, as in `least`.
        self.taken_below.load(Ordering::Relaxed) as usize
    }

    /// The worker holds nothing, and does not hold the epoch back until it refreshes again. What
    /// `refresh` returned before is void: pass [`Epochs::NOT_SEEN`] next.
    pub fn offline(&self, slot: usize) {
        // Release: the worker's uses of shared memory come before; pairs with the Acquire of
        // `oldest`.
        self.slots[slot].store(OFFLINE, Ordering::Release);
    }

    /// What a worker that is offline passes to [`Epochs::refresh`].
    pub const NOT_SEEN: u64 = 0;

    /// The oldest epoch that an online worker was seen in; the global one if none is online.
    pub fn oldest(&self) -> u64 {
        self.least(|slot| slot & !READS)
    }

    /// The oldest epoch in which a transaction can commit still.
    pub fn oldest_to_commit(&self) -> u64 {
        // A slot with the mark is later than every epoch.
        self.least(|slot| slot)
    }

    fn least(&self, epoch: impl Fn(u64) -> u64) -> u64 {
        let global = self.current();
        // SeqCst: pairs with the fence in `enter`.
        M::fence(Ordering::SeqCst);
        // Relaxed: ordered by the fence.
        let taken = self.taken_below.load(Ordering::Relaxed) as usize;
        // Acquire: pairs with the Release stores of `enter` and `offline`.
        self.slots[..taken].iter().map(|slot| epoch(slot.load(Ordering::Acquire))).fold(global, u64::min)
    }

    /// Whether what was unlinked in epoch `unlinked` may be reused.
    pub fn is_reusable(&self, unlinked: u64) -> bool {
        self.oldest() > unlinked + 1
    }

    /// Advances the epoch if the interval has passed and every online worker that can commit was
    /// seen in the current one; says whether it did.
    pub fn maybe_advance(&self, now: Cycles) -> bool {
        // Relaxed: a hint about time; the exchange below decides who tries.
        let tried_at = self.tried_at.load(Ordering::Relaxed);
        now.wrapping_sub(tried_at) >= self.interval
            && self.tried_at.compare_exchange(tried_at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && self.try_advance()
    }

    /// Advances the epoch if every online worker that can commit was seen in the current one; says
    /// whether it did.
    pub fn try_advance(&self) -> bool {
        let mut word = self.word();
        let global = word & !CLOSED;
        if self.oldest_to_commit() != global {
            return false;
        }
        // AcqRel: the Release pairs with the Acquire of `word`: who sees the new epoch sees what
        // came before it.
        while let Err(found) = self.global.compare_exchange(word, word + 1, Ordering::AcqRel, Ordering::Relaxed) {
            if found & !CLOSED != global {
                return false;
            }
            // The gate was closed or opened meanwhile.
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
    fn who_only_reads_holds_back_memory_and_no_epoch() {
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
        assert!(!epochs.try_advance(), "who may commit holds it back");
        epochs.offline(reader);
        assert!(epochs.is_reusable(began));
        // The same slot for both, in turns.
        let again = epochs.enter_reading(writer);
        assert!(epochs.try_advance());
        assert_eq!(epochs.refresh(writer, Epochs::<Native>::NOT_SEEN), again + 1);
        assert!(epochs.try_advance() && !epochs.try_advance());
    }

    #[test]
    fn a_closed_gate_holds_back_who_begins_and_nothing_else() {
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
