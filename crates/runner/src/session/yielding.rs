//! What happens between the operations of a transaction, and between transactions.

use contend_engine::{Protocol, Worker};
use contend_machine::{Cycles, Machine};
use contend_model::random::{GOLDEN_GAMMA, SplitMix64, Xorshift64};
use contend_model::{Before, Txn};
use contend_workloads::ThinkTime;

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

/// A client that thinks between transactions of a closed loop.
#[derive(Clone, Debug)]
pub(crate) struct Thinking {
    /// The time before each transaction, if there is one.
    always: Option<ThinkTime>,
    /// The time after a transaction of each type, as the workload has it. It may be empty.
    by_kind: Vec<Option<ThinkTime>>,
    /// The type of the last transaction.
    last: Option<usize>,
    random: SplitMix64,
}

/// The longest time, in seconds, that a client thinks before it looks whether the interval is over.
const SLICE: f64 = 0.01;

impl Thinking {
    /// Returns a client that thinks for this many microseconds in the mean before each transaction,
    /// and besides for the times of the workload; `None` if it never thinks.
    pub(crate) fn new(
        microseconds: u64,
        by_kind: Vec<Option<ThinkTime>>,
        worker: usize,
        seed: u64,
    ) -> Option<Thinking> {
        let always = (microseconds > 0).then_some(ThinkTime::Exponential(microseconds as f64));
        (always.is_some() || !by_kind.is_empty()).then(|| Thinking {
            always,
            by_kind,
            last: None,
            random: SplitMix64::new(contend_model::random::mix(seed) ^ !(worker as u64)),
        })
    }

    /// Notes the type of a transaction.
    pub(crate) fn begins(&mut self, kind: usize) {
        self.last = Some(kind);
    }

    /// Draws how long the client thinks now, in microseconds.
    fn draw(&mut self) -> f64 {
        let after_last = self.last.and_then(|kind| self.by_kind.get(kind).copied().flatten());
        [self.always, after_last].into_iter().flatten().map(|time| time.draw(&mut self.random)).sum()
    }

    /// Thinks. The worker is offline meanwhile: it holds back no epoch.
    pub(crate) fn pass<P: Protocol<M>, M: Machine>(&mut self, worker: &mut Worker<P, M>, over: impl Fn() -> bool) {
        let cycles = (self.draw() * M::cycles_per_second() / 1e6) as Cycles;
        if cycles == 0 {
            return;
        }
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
