//! An estimate of the memory that loading takes, made before loading begins.

use contend_engine::estimated_bytes;
use contend_log::CommitProtocol;
use contend_workloads::{Workload, WorkloadInfo};

use crate::error::RunError;
use crate::memory::available_bytes;
use crate::plan::{PlannedWorkloadVisitor, ProtocolPlan, RunPlan};
use crate::units::show_bytes;

impl RunPlan {
    /// Returns an estimate of the bytes that loading takes, by entry. With `history` the run
    /// records a history.
    pub fn estimated_bytes(&self, history: bool) -> Vec<(&str, u64)> {
        let estimate = |protocol| self.workload.visit(Estimate { plan: self, protocol, history });
        self.protocols.iter().map(|protocol| (protocol.name.as_str(), estimate(protocol))).collect()
    }

    /// Checks that the machine's memory can hold the tables of all entries.
    ///
    /// # Errors
    /// It can't; the message has the estimate of each entry.
    pub fn check_memory(&self, history: bool) -> Result<(), RunError> {
        let estimates = self.estimated_bytes(history);
        let needed = estimates.iter().fold(0u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        match available_bytes() {
            Some(available) if needed > available / 20 * 19 => {
                let each: Vec<String> =
                    estimates.iter().map(|(name, bytes)| format!("{name} {}", show_bytes(*bytes))).collect();
                Err(RunError::OutOfMemory(format!(
                    "loading needs about {} of memory ({}), and {} are available; fewer or shorter records, or fewer \
                     protocols at a time, need less",
                    show_bytes(needed),
                    each.join(", "),
                    show_bytes(available)
                )))
            }
            _ => Ok(()),
        }
    }
}

struct Estimate<'a> {
    plan: &'a RunPlan,
    protocol: &'a ProtocolPlan,
    history: bool,
}

impl PlannedWorkloadVisitor for Estimate<'_> {
    type Output = u64;

    fn visit<W: Workload>(self, _: WorkloadInfo, options: &W::Options) -> u64 {
        let ProtocolPlan { engine, log, meta_words, provides_write_counters, .. } = self.protocol;
        let commit = log.commit();
        // A log that holds rows back needs a word in each cell. One that counts writes needs a word
        // in each group of columns.
        let words = meta_words + usize::from(commit.is_some_and(CommitProtocol::holds_rows));
        let counts_writes = commit.is_some() && (engine.commit_time_updates || !provides_write_counters);
        let tables = W::tables(options, self.plan.index);
        tables.iter().fold(0, |sum: u64, table| {
            let counters = if counts_writes { 8 * table.groups.len().max(1) as u64 } else { 0 };
            let counters = counters.saturating_mul(table.expected_rows as u64);
            sum.saturating_add(estimated_bytes(table, words, self.history, engine)).saturating_add(counters)
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::config::RunConfig;
    use crate::plan::RunPlan;

    fn with(protocol: &str, settings: &[(&str, &str)]) -> RunPlan {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let config = RunConfig { protocols: vec![protocol.into()], settings, ..RunConfig::default() };
        config.resolve().expect("valid as such")
    }

    #[test]
    fn more_than_the_machine_has_is_refused_with_the_estimate() {
        let error = with("silo", &[("ycsb.records", "10G")]).check_memory(false);
        let error = error.expect_err("ten billion records").to_string();
        assert!(error.contains("GiB") && error.contains("silo") && error.contains("available"), "{error}");
        with("silo", &[("ycsb.records", "1k")]).check_memory(false).expect("a thousand records fit");
    }

    #[test]
    fn options_that_take_words_of_a_record_are_in_the_estimate() {
        let bytes = |protocol: &str, settings: &[(&str, &str)]| with(protocol, settings).estimated_bytes(false)[0].1;
        assert!(bytes("silo", &[("silo.snapshots", "on")]) > bytes("silo", &[]));
        assert!(bytes("tictoc", &[("tictoc.history", "on")]) > bytes("tictoc", &[]));
        assert!(bytes("silo", &[("log", "elr"), ("cu", "on")]) > bytes("silo", &[]));
        let plan = with("silo", &[]);
        assert!(
            plan.estimated_bytes(true)[0].1 > plan.estimated_bytes(false)[0].1,
            "a history has a word of each cell"
        );
    }
}
