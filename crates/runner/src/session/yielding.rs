//! What happens between the operations of a transaction, and between transactions.

use contend_engine::{Protocol, Worker};
use contend_machine::{Cycles, Machine};
use contend_model::random::{GOLDEN_GAMMA, SplitMix64, Xorshift64};
use contend_model::{Before, Txn};

/// What happens before an operation.
#[derive(Clone, Debug)]
pub(crate) enum Between {
    /// Nothing.
    Nothing,
    /// Now and then the core goes to others. So transactions overlap also where cores are few.
    Yields(Xorshift64),
    /// A round trip of this length to the client.
    Waits(Cycles),
}

impl Between {
    /// Returns pauses of a worker, different ones for each worker.
    pub(crate) fn yields(worker: usize) -> Between {
        Between::Yields(Xorshift64::new((worker as u64 + 1).wrapping_mul(GOLDEN_GAMMA)))
    }

    /// Returns round trips of this many microseconds.
    pub(crate) fn round_trips<M: Machine>(microseconds: u64) -> Between {
        match microseconds {
            0 => Between::Nothing,
            _ => Between::Waits((microseconds as f64 * M::cycles_per_second() / 1e6) as Cycles),
        }
    }

    fn pass<M: Machine>(&mut self) {
        match self {
            Between::Nothing => {}
            Between::Yields(random) => {
                if random.draw().is_multiple_of(16) {
                    std::thread::yield_now();
                    // And to the others in flight on this thread.
                    M::pause();
                }
            }
            Between::Waits(cycles) => M::idle(*cycles),
        }
    }
}

/// Returns a transaction before each of whose operations this happens.
pub(crate) fn with_between<'t, T: Txn, M: Machine>(
    inner: &'t mut T,
    between: &'t mut Between,
) -> Before<'t, T, impl FnMut()> {
    Before::new(inner, || between.pass::<M>())
}

/// A client that thinks before each transaction of a closed loop.
#[derive(Clone, Debug)]
pub(crate) struct Thinking {
    /// In cycles.
    mean: f64,
    random: SplitMix64,
}

/// The longest time, in seconds, that a client thinks before it looks whether the interval is over.
const SLICE: f64 = 0.01;

impl Thinking {
    /// Returns a client that thinks for this many microseconds in the mean; `None` for 0.
    pub(crate) fn new<M: Machine>(microseconds: u64, worker: usize, seed: u64) -> Option<Thinking> {
        (microseconds > 0).then(|| Thinking {
            mean: microseconds as f64 * M::cycles_per_second() / 1e6,
            random: SplitMix64::new(contend_model::random::mix(seed) ^ !(worker as u64)),
        })
    }

    /// Thinks. The worker is offline meanwhile: it holds back no epoch.
    pub(crate) fn pass<P: Protocol<M>, M: Machine>(&mut self, worker: &mut Worker<P, M>, over: impl Fn() -> bool) {
        // 1 minus a fraction is above 0, so the logarithm is finite.
        let cycles = (-(1.0 - self.random.fraction()).ln() * self.mean) as Cycles;
        worker.go_offline();
        let (start, slice) = (M::now(), (SLICE * M::cycles_per_second()) as Cycles);
        loop {
            let passed = M::now().wrapping_sub(start);
            if passed >= cycles || over() {
                return;
            }
            M::idle((cycles - passed).min(slice));
        }
    }
}
