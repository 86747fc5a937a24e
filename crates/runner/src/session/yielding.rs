//! Transactions that overlap also where cores are few.

use contend_machine::Machine;
use contend_model::random::{GOLDEN_GAMMA, Xorshift64};
use contend_model::{Before, Txn};

/// Returns the random generator of a worker for [`yielding`], a different one for each worker.
pub(crate) fn pauses_of(worker: usize) -> Xorshift64 {
    Xorshift64::new((worker as u64 + 1).wrapping_mul(GOLDEN_GAMMA))
}

/// Returns a transaction that yields its core before some of the operations of `inner`.
///
/// Other transactions then run in the middle of it, even on a machine with few cores.
pub(crate) fn yielding<'t, T: Txn, M: Machine>(
    inner: &'t mut T,
    random: &'t mut Xorshift64,
) -> Before<'t, T, impl FnMut()> {
    Before::new(inner, || {
        if random.draw().is_multiple_of(16) {
            std::thread::yield_now();
            // And to the others in flight on this thread.
            M::pause();
        }
    })
}
