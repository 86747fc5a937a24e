//! Times on the host, by sampling: a thread stores its phase in a byte of its own; another thread
//! looks at the byte now and then.
//!
//! To say it costs a store to a line that stays in the thread's own cache: another thread takes the
//! line only for a sample. A clock read at each change of phase would cost more than what it
//! measures.
//!
//! **The two writers.** Only the thread writes `now`. Both threads write the counts, by
//! read-modify-writes only (`sample` adds, `take_times` swaps). So no sample is counted twice, and
//! none is lost. The flag `sampled` spares most tries the swaps.
//!
//! **Relaxed everywhere.** No access publishes other data. If the flag becomes visible before its
//! count, the thread clears the flag, finds nothing, and takes the count with the next sample.

use std::sync::atomic::{AtomicU8, AtomicU16, Ordering};

use crate::{Phase, PhaseTimes};

/// What a thread does, and the samples of its running try.
pub(crate) struct ThreadPhase {
    now: AtomicU8,
    sampled: AtomicU8,
    /// A count wraps only after 65,536 samples of one phase in one try.
    samples: [AtomicU16; Phase::COUNT],
}

thread_local! {
    static THIS: ThreadPhase = const {
        ThreadPhase {
            now: AtomicU8::new(0),
            sampled: AtomicU8::new(0),
            samples: [const { AtomicU16::new(0) }; Phase::COUNT],
        }
    };
}

/// A thread that can be looked at while it lives.
#[derive(Clone, Copy, Debug)]
pub struct SampledThread(*const ThreadPhase);

// SAFETY: what the pointer leads to is made of atomics; that it lives is what `sample` asks for.
unsafe impl Send for SampledThread {}

impl SampledThread {
    /// The calling thread.
    pub fn this() -> SampledThread {
        SampledThread(THIS.with(std::ptr::from_ref))
    }

    /// Counts one sample of what the thread does now.
    ///
    /// # Safety
    /// The thread has not ended.
    pub unsafe fn sample(self) {
        // SAFETY: a thread's locals live as long as the thread.
        let thread = unsafe { &*self.0 };
        // Relaxed: pairs with the store in `enter`. A sample is of some moment, and its count goes
        // to the try that is running or to the next.
        let phase = usize::from(thread.now.load(Ordering::Relaxed));
        // Relaxed, both: pair with `take_times`. The flag comes last: mostly the thread that sees
        // it finds the count.
        thread.samples[phase].fetch_add(1, Ordering::Relaxed);
        thread.sampled.store(1, Ordering::Relaxed);
    }
}

/// Something of the calling thread's. `LocalKey::with` is not marked to be inlined, and would be a
/// call.
#[inline(always)]
fn with_this<R>(act: impl FnOnce(&ThreadPhase) -> R) -> R {
    THIS.try_with(act).expect("what has no destructor is there as long as the thread")
}

#[inline(always)]
pub(crate) fn enter(phase: Phase) {
    // Relaxed: `sample` reads it at any time, and orders nothing by it.
    with_this(|this| this.now.store(phase.number() as u8, Ordering::Relaxed));
}

#[inline(always)]
pub(crate) fn phase() -> Phase {
    // Relaxed: only this thread writes it, in `enter`.
    with_this(|this| Phase::from_byte(this.now.load(Ordering::Relaxed)))
}

#[inline(always)]
pub(crate) fn take_times(into: &mut PhaseTimes) {
    with_this(|this| {
        // Relaxed: pairs with the store in `sample`; see the module. The flag is cleared before the
        // counts are taken. The other way round, a sample between the two would lose its flag.
        if this.sampled.load(Ordering::Relaxed) != 0 {
            this.sampled.store(0, Ordering::Relaxed);
            for (sum, samples) in into.iter_mut().zip(&this.samples) {
                // Relaxed: pairs with the addition in `sample`, which comes before the swap and
                // counts here, or after it and counts for the next try.
                *sum += u64::from(samples.swap(0, Ordering::Relaxed));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Activity, Machine, Native, Operation};

    #[test]
    fn samples_count_what_the_thread_does() {
        let read = Phase::of(Operation::Read, Activity::Index);
        let mut times = [0; Phase::COUNT];
        Native::enter(read);
        assert_eq!(Native::phase(), read);
        for _ in 0..3 {
            // SAFETY: this thread lives.
            unsafe { SampledThread::this().sample() };
        }
        Native::enter(Phase::BODY);
        Native::take_times(&mut times);
        assert_eq!(times[read.number()], 3);
        assert_eq!(times.iter().sum::<u64>(), 3);
        Native::take_times(&mut times);
        assert_eq!(times.iter().sum::<u64>(), 3, "taken once");
    }
}
