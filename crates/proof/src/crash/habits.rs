//! The habits of a test: what differs from test to test. They are drawn from the seed, unless the
//! configuration fixes them.

use contend_engine::{EngineOptions, IndexKind};
use contend_workloads::Workload;

use contend_model::random::SplitMix64;
use contend_runner::ProtocolPlan;

/// How a test runs.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    pub(super) index: IndexKind,
    pub(super) engine: EngineOptions,
    /// Whether commit-time updates are switched on or off anew after each crash. An application may
    /// do so as well when it opens its database.
    draws_updates: bool,
    /// Whether a worker goes offline after each transaction, so that more epochs pass.
    pub(super) rests: bool,
    /// A worker collects tombstones after one in this many transactions.
    pub(super) collects_one_in: u64,
    /// The turns of the other cores between two flushes.
    pub(super) flush_pauses: u64,
    /// The turns of the other cores between two advances of the epoch. `None` if no core advances
    /// it, so that an epoch ends with a flush only.
    pub(super) epoch_pauses: Option<u64>,
}

impl Habits {
    /// Draws the habits of the test of this seed. `index` is the index, if the configuration names
    /// one.
    pub(super) fn draw<W: Workload>(
        seed: u64,
        index: Option<IndexKind>,
        protocol: &ProtocolPlan,
        workload: &W::Options,
    ) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut engine = protocol.engine.clone();
        let draws_updates = !protocol.sets("engine.commit_time_updates");
        let splits = random.one_in(2);
        if !protocol.sets("engine.timestamp_splitting") {
            engine.timestamp_splitting = splits;
        }
        let mut drawn = if random.one_in(2) { IndexKind::Hash } else { IndexKind::Ordered };
        if W::validate(workload, drawn).is_err() {
            drawn = IndexKind::Ordered;
        }
        Habits {
            index: index.unwrap_or(drawn),
            engine,
            draws_updates,
            rests: random.one_in(2),
            collects_one_in: 1 + random.below(3),
            // Epochs are from shorter than a transaction to many transactions long.
            flush_pauses: 1 << random.below(9),
            epoch_pauses: (!random.one_in(4)).then(|| 1 << random.below(9)),
        }
    }

    /// Draws the habits of a life, the time between two crashes.
    pub(super) fn of_life(&self, random: &mut SplitMix64) -> Habits {
        let mut habits = self.clone();
        let updates = random.one_in(2);
        if self.draws_updates {
            habits.engine.commit_time_updates = updates;
        }
        habits
    }
}
