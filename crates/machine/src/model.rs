//! [`Loom`]: a machine whose memory is loom's model of C11 (`RUSTFLAGS="--cfg loom"`), so that the
//! code that runs is the code that is checked. Inside `loom::model` only.
//!
//! Loom tries the interleavings, and which older values a load may see. Three things are added.
//! Without them it would try too little, or claim too much.
//!
//! **Sequential consistency.** Loom treats a sequentially consistent access as an Acquire or
//! Release one, and keeps the one total order only for fences. So there is a fence before such a
//! load if the thread has made such a store before. Two threads need this if each stores and then
//! looks at what the other has stored. It is stronger than C11 in that it orders the accesses
//! around as well. The order of two loads of one thread matters less often: [`Loom::order_loads`].
//!
//! The pattern that this serves is store buffering (docs/memory_ordering.md, rule 2):
//!
//! | thread 1 | thread 2 |
//! | --- | --- |
//! | store `x` (SeqCst) | store `y` (SeqCst) |
//! | the fence of `before_load` | the fence of `before_load` |
//! | load `y` (SeqCst) | load `x` (SeqCst) |
//!
//! Loom keeps the two fences in one order, and the thread whose fence comes second sees the other's
//! store. Without the fences loom would let both loads miss the stores, which C11 forbids: a model
//! would fail though the code is right. A fence at every SeqCst access would hide the fences that
//! the code itself forgets. So there is one only between a store and a load.
//!
//! **Which comes first.** See `LoomWord::take_turn`.
//!
//! **Addresses** are the same in all executions: see `Memory`.

use std::alloc::Layout;
use std::cell::{Cell, OnceCell};
use std::ptr::NonNull;

use loom::sync::Condvar;
use loom::sync::atomic::{AtomicU64, fence};

use crate::{Atomic64, Cycles, Machine, Ordering};

/// The model checker's machine.
#[derive(Clone, Copy, Debug)]
pub struct Loom;

/// A word of it.
#[derive(Debug)]
pub struct LoomWord(AtomicU64);

loom::lazy_static! {
    /// Conditions on which nobody waits: see [`LoomWord::take_turn`].
    static ref TURNS: [Condvar; 64] = std::array::from_fn(|_| Condvar::new());
}

loom::thread_local! {
    /// Whether this thread of the model has made a sequentially consistent store, and no fence
    /// since. It belongs to a thread of the model, as the order does: the store and the load are of
    /// one thread.
    static STORED: Cell<bool> = Cell::new(false);
}

thread_local! {
    /// It belongs to the thread of the host: all threads of a model run there, and a test that sets
    /// it sets it for its own models only.
    static ORDERS_LOADS: Cell<bool> = const { Cell::new(false) };
}

impl Loom {
    /// From now on there is a fence before each sequentially consistent load, in the models that
    /// the caller runs: for those in which a thread makes two such loads, and their order matters.
    /// A fence that is missing elsewhere may be hidden by it.
    pub fn order_loads() {
        ORDERS_LOADS.set(true);
    }
}

/// Runs `body`, within which loom tries nothing.
fn at_once<R>(body: impl FnOnce() -> R) -> R {
    loom::stop_exploring();
    let result = body();
    loom::explore();
    result
}

impl LoomWord {
    /// Tells loom that it matters which thread comes first to the word. Loom itself takes two loads
    /// to be in any order, but remembers only the last access of a word: a thread that loads it,
    /// and stores to it then, hides that another has loaded it before, and that the store could
    /// have come before that. To notify a condition is an access that no other is in any order
    /// with, and that orders nothing in memory. Words may share a condition: there is only more to
    /// try then.
    fn take_turn(&self) {
        let hash = (std::ptr::from_ref(self) as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        TURNS[(hash >> 58) as usize].notify_one();
    }

    fn change<R>(&self, order: Ordering, change: impl FnOnce(&AtomicU64, Ordering) -> R) -> R {
        self.take_turn();
        // At once: the turn and the change are one step. Otherwise loom could run another thread
        // between the two, and the turns would tell another order than that of the changes.
        //
        // What the caller says, but for SeqCst: AcqRel, and the fence of `before_load` for the one
        // order. The partners are the caller's: a Release part pairs with an Acquire load of the
        // word in another thread, an Acquire part with the Release store whose value it reads.
        at_once(|| change(&self.0, Self::kept(order, Ordering::AcqRel)))
    }

    fn modify(&self, order: Ordering, modify: impl FnOnce(&AtomicU64, Ordering) -> u64) -> u64 {
        // A read-modify-write is a load and a store: it makes the fence that is due, and leaves one
        // due.
        Self::before_load(order);
        let before = self.change(order, modify);
        Self::after_store(order);
        before
    }

    /// What loom itself keeps of an order.
    fn kept(order: Ordering, of_seq_cst: Ordering) -> Ordering {
        // SeqCst: the caller pairs it with a SeqCst access of another thread. Loom orders such a
        // pair as Acquire and Release, which is `of_seq_cst`. The part that loom leaves out, the
        // one total order, is the fence of `before_load`.
        if order == Ordering::SeqCst { of_seq_cst } else { order }
    }

    // The fence stands before the load, not after the store: a store that no load follows needs
    // none, and a thread that makes many stores makes one fence. It takes the mark away, since it
    // orders all stores before it.
    //
    // SeqCst: pairs with the same fence of another thread of the model, which has stored and then
    // loads; see the module.
    fn before_load(order: Ordering) {
        if order == Ordering::SeqCst && (STORED.with(Cell::take) || ORDERS_LOADS.get()) {
            fence(Ordering::SeqCst);
        }
    }

    // SeqCst: notes that a fence is due, which `before_load` makes. It is compared with only: the
    // store was the caller's, and Release in loom. An Acquire or Release access is left as it is.
    fn after_store(order: Ordering) {
        if order == Ordering::SeqCst {
            STORED.with(|stored| stored.set(true));
        }
    }
}

impl Atomic64 for LoomWord {
    fn new(value: u64) -> Self {
        // Made before any thread is, they order nothing.
        let _ = &TURNS[0];
        LoomWord(AtomicU64::new(value))
    }
    fn load(&self, order: Ordering) -> u64 {
        Self::before_load(order);
        // What the caller says, but for SeqCst: Acquire, and the fence of `before_load` for the one
        // order.
        let value = self.0.load(Self::kept(order, Ordering::Acquire));
        // Afterwards: which values the load can see has to be tried.
        at_once(|| self.take_turn());
        value
    }
    fn store(&self, value: u64, order: Ordering) {
        // What the caller says, but for SeqCst: Release, and `after_store` for the one order.
        self.change(Self::kept(order, Ordering::Release), |word, order| word.store(value, order));
        Self::after_store(order);
    }
    fn swap(&self, value: u64, order: Ordering) -> u64 {
        self.modify(order, |word, order| word.swap(value, order))
    }
    fn compare_exchange(&self, current: u64, new: u64, success: Ordering, failure: Ordering) -> Result<u64, u64> {
        Self::before_load(success);
        // Acquire: as in `load`. A failed exchange is a load: it pairs with the Release store whose
        // value it finds, where the caller asks for Acquire. It stores nothing, so no fence is due
        // after it.
        let failed = Self::kept(failure, Ordering::Acquire);
        let exchanged = self.change(success, |word, success| word.compare_exchange(current, new, success, failed));
        if exchanged.is_ok() {
            Self::after_store(success);
        }
        exchanged
    }
    fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
        self.modify(order, |word, order| word.fetch_add(value, order))
    }
    fn fetch_sub(&self, value: u64, order: Ordering) -> u64 {
        self.modify(order, |word, order| word.fetch_sub(value, order))
    }
    fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
        self.modify(order, |word, order| word.fetch_or(value, order))
    }
    fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
        self.modify(order, |word, order| word.fetch_and(value, order))
    }
    fn fetch_max(&self, value: u64, order: Ordering) -> u64 {
        self.modify(order, |word, order| word.fetch_max(value, order))
    }
}

impl Machine for Loom {
    type U64 = LoomWord;
    const NAME: &'static str = "loom";
    const LOADS_ARE_COSTLY: bool = true;

    fn fence(order: Ordering) {
        fence(order);
    }
    // Time stands still. A clock that moved would make executions differ, and a wait that ends by
    // time has to end in a model by what another thread does.
    fn now() -> Cycles {
        0
    }
    fn cycles_per_second() -> f64 {
        1e9
    }
    // Loom lets all other threads go on before this one looks again. A spin loop that only paused
    // would be an execution without end: the value that it waits for could come later each time.
    fn pause() {
        loom::thread::yield_now();
    }
    fn pause_lets_others_run() -> bool {
        true
    }
    fn yield_now() {
        loom::thread::yield_now();
    }
    fn idle(_: Cycles) {
        loom::thread::yield_now();
    }
    // No access of the model: a prefetch neither reads a value nor orders one.
    fn prefetch<T>(_: *const T) {}
    fn alloc(layout: Layout) -> Option<NonNull<u8>> {
        MEMORY.with(|memory| memory.take(layout))
    }
    unsafe fn dealloc(_: NonNull<u8>, _: Layout) {
        MEMORY.with(Memory::give_back);
    }
}

/// What the models of a thread allocate from: all of an execution runs on one thread. Executions
/// have to be alike, and an address may decide what is done, such as in which order locks are
/// taken. So the same calls get the same addresses.
struct Memory {
    region: OnceCell<NonNull<u8>>,
    /// Bytes in use, and blocks.
    used: Cell<usize>,
    blocks: Cell<usize>,
}

const REGION: usize = 64 << 20;
const ALIGNMENT: usize = 2 << 20;

thread_local! {
    static MEMORY: Memory = const { Memory { region: OnceCell::new(), used: Cell::new(0), blocks: Cell::new(0) } };
}

impl Memory {
    fn layout() -> Layout {
        Layout::from_size_align(REGION, ALIGNMENT).expect("a power of two")
    }

    fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        let region = *self.region.get_or_init(|| {
            // SAFETY: the layout is not empty.
            let region = unsafe { std::alloc::alloc(Self::layout()) };
            NonNull::new(region).unwrap_or_else(|| std::alloc::handle_alloc_error(Self::layout()))
        });
        let begin = self.used.get().next_multiple_of(layout.align());
        if layout.align() > ALIGNMENT || begin + layout.size() > REGION {
            return None;
        }
        self.used.set(begin + layout.size());
        self.blocks.set(self.blocks.get() + 1);
        // SAFETY: inside the region.
        Some(unsafe { region.add(begin) })
    }

    /// When the last block comes back the execution is over, and the next begins anew. No block
    /// serves twice before: with a list of holes the order of the returns, which executions differ
    /// in, would decide about addresses.
    fn give_back(&self) {
        self.blocks.set(self.blocks.get() - 1);
        if self.blocks.get() == 0 {
            self.used.set(0);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Some(region) = self.region.get() {
            // SAFETY: it came from `alloc` with this layout, and the thread's models have ended.
            unsafe { std::alloc::dealloc(region.as_ptr(), Self::layout()) };
        }
    }
}
