//! What differs from test to test, drawn from the seed unless the configuration says it.

use std::collections::BTreeMap;

use contend_engine::{EngineOptions, IndexKind};
use contend_sim::Simulated;
use contend_workloads::Workload;

use crate::config::{LabError, options};
use crate::dice::Dice;

/// How a test runs.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    pub(super) index: IndexKind,
    pub(super) engine: EngineOptions,
    /// Whether commit-time updates are drawn anew after each crash: an application may open its database with other options.
    draws_updates: bool,
    /// Whether a worker goes offline after each transaction, so that more epochs pass.
    pub(super) rests: bool,
    /// After one in this many transactions a worker collects tombstones.
    pub(super) collects_one_in: u64,
    /// For how many turns of the other cores the flusher waits between two flushes.
    pub(super) flush_pauses: u64,
    /// The same of the core that advances the epoch; there is none if an epoch ends with a flush only.
    pub(super) epoch_pauses: Option<u64>,
}

impl Habits {
    /// Those of the test of this seed. `index` is the index that was asked for, if any was.
    ///
    /// # Errors
    /// Bad input.
    pub(super) fn draw<W: Workload<Simulated>>(
        seed: u64,
        index: Option<IndexKind>,
        settings: &BTreeMap<String, String>,
        workload: &W::Options,
    ) -> Result<Self, LabError> {
        let mut dice = Dice::new(seed);
        let mut engine = options::<EngineOptions>(&[], settings)?;
        let draws_updates = !settings.contains_key("cu");
        let splits = dice.one_in(2);
        if !settings.contains_key("ts") {
            engine.timestamp_splitting = splits;
        }
        let mut drawn = if dice.one_in(2) { IndexKind::Hash } else { IndexKind::Ordered };
        if W::validate(workload, drawn).is_err() {
            drawn = IndexKind::Ordered;
        }
        Ok(Habits {
            index: index.unwrap_or(drawn),
            engine,
            draws_updates,
            rests: dice.one_in(2),
            collects_one_in: 1 + dice.below(3),
            // From epochs that are shorter than a transaction to some of many.
            flush_pauses: 1 << dice.below(9),
            epoch_pauses: (!dice.one_in(4)).then(|| 1 << dice.below(9)),
        })
    }

    /// What the workers do between two crashes.
    pub(super) fn of_life(&self, dice: &mut Dice) -> Habits {
        let mut habits = self.clone();
        let updates = dice.one_in(2);
        if self.draws_updates {
            habits.engine.commit_time_updates = updates;
        }
        habits
    }
}
