//! What differs from test to test, drawn from the seed unless the configuration says it.

use contend_engine::{EngineOptions, IndexKind};
use contend_workloads::Workload;

use contend_model::random::SplitMix64;
use contend_runner::ProtocolPlan;

/// How a test runs.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    pub(super) index: IndexKind,
    pub(super) engine: EngineOptions,
    /// Whether commit-time updates are drawn anew after each crash: an application may open its
    /// database with other options.
    draws_updates: bool,
    /// Whether a worker goes offline after each transaction, so that more epochs pass.
    pub(super) rests: bool,
    /// After one in this many transactions a worker collects tombstones.
    pub(super) collects_one_in: u64,
    /// For how many turns of the other cores the flusher waits between two flushes.
    pub(super) flush_pauses: u64,
    /// The same of the core that advances the epoch; there is none if an epoch ends with a flush
    /// only.
    pub(super) epoch_pauses: Option<u64>,
}

impl Habits {
    /// Draws the habits of the test of this seed. `index` is the index that was asked for, if any
    /// was.
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
            // From epochs that are shorter than a transaction to some of many.
            flush_pauses: 1 << random.below(9),
            epoch_pauses: (!random.one_in(4)).then(|| 1 << random.below(9)),
        }
    }

    /// What the workers do between two crashes.
    pub(super) fn of_life(&self, random: &mut SplitMix64) -> Habits {
        let mut habits = self.clone();
        let updates = random.one_in(2);
        if self.draws_updates {
            habits.engine.commit_time_updates = updates;
        }
        habits
    }
}
