//! Proving a protocol right on a workload: a small run whose history is checked, replayed, and compared with the tables.

use std::ops::{ControlFlow, RangeInclusive};
use std::time::Duration;

use contend_engine::{Abort, Direction, Groups, Isolation, Key, Projection, Row, RowUpdate, Table, Txn, Update};
use contend_history::{check, replay_to};

use crate::bed::{Bed, Purpose, Span, bed};
use crate::config::{Entrant, LabError, RunConfig};
use crate::recording::Recorded;
use crate::result::Verification;
use crate::watch::{Observer, Stop};

/// A pass that is slower than this ends early.
const SECONDS_MAX: u64 = 5;

/// The level, as the checker has it.
fn checked_level(isolation: Isolation) -> contend_history::Isolation {
    match isolation {
        Isolation::None => contend_history::Isolation::None,
        Isolation::Snapshot => contend_history::Isolation::Snapshot,
        Isolation::Serializable => contend_history::Isolation::Serializable,
    }
}

/// Runs the verification pass of one entrant. `None` if it was stopped.
pub(crate) fn verify(
    config: &RunConfig,
    entrant: &Entrant,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Option<Verification>, LabError> {
    let mut bed = bed(config, entrant, Purpose::Verify)?;
    verify_bed(&mut *bed, &entrant.name, config.verify_transactions, stop, observer)
}

pub(crate) fn verify_bed(
    bed: &mut dyn Bed,
    name: &str,
    transactions: u64,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Option<Verification>, LabError> {
    let info = bed.info();
    observer.begin(&format!("verifying {name}"), 1);
    bed.load(stop, &|_| {})?;
    let span = Span { length: Duration::from_secs(SECONDS_MAX), transactions_max: Some(transactions) };
    let count = bed.run(span, stop, &|_| {})?;
    bed.settle()?;
    if stop.is_requested() {
        observer.end();
        return Ok(None);
    }
    let recorded = bed.take_history();
    let mut verification = verify_history(&recorded, info.isolation);
    verification.aborts = count.tally.conflicts();
    if let (Err(violation), true) = (bed.check(), info.isolation.keeps_invariants() && verification.passed) {
        verification.passed = false;
        verification.verdict = format!("the workload's check failed: {violation}");
    }
    observer.advance(1);
    observer.end();
    Ok(Some(verification))
}

/// Judges a history by a level, and replays it serially if it is to be serializable.
pub fn verify_history(recorded: &Recorded, isolation: Isolation) -> Verification {
    let level = checked_level(isolation);
    let report = check(&recorded.history);
    let worst = report.anomalies.first();
    let mut verification = Verification {
        passed: true,
        verdict: String::new(),
        transactions: report.transactions as u64,
        aborts: 0,
        anomaly: worst.map(|anomaly| anomaly.class.to_string()),
        explanation: worst.map(ToString::to_string),
        cycle: worst.map(crate::cycle::edges).unwrap_or_default(),
    };
    let transactions = report.transactions;
    if let Some(anomaly) = report.violates(level) {
        verification.passed = false;
        verification.verdict = format!("not {level}: {} in {transactions} transactions", anomaly.class);
        verification.explanation = Some(anomaly.to_string());
        verification.cycle = crate::cycle::edges(anomaly);
        return verification;
    }
    if isolation == Isolation::None {
        let found = worst.map_or("found none".into(), |anomaly| format!("found {}", anomaly.class));
        verification.verdict = format!("promises nothing: {found} in {transactions} transactions");
        return verification;
    }
    verification.verdict = format!("{level} ({transactions} transactions, 0 cycles)");
    if let (contend_history::Isolation::Serializable, Some(order)) = (level, report.serial_order()) {
        let rows = recorded.final_state.iter().map(|(table, key, writer)| (table.as_str(), key.as_str(), *writer));
        if let Err(divergence) = replay_to(&recorded.history, order, rows) {
            verification.passed = false;
            verification.verdict = format!("not {level}: a serial run of the same transactions differs");
            let exactness = if report.is_exact() { "" } else { " (of an inexact history)" };
            verification.explanation = Some(format!("{divergence}{exactness}"));
        }
    }
    verification
}

/// The state of [`Interleaved`]'s random generator, different for each worker.
pub(crate) fn interleaving_seed(worker: usize) -> u64 {
    (worker as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A transaction that gives its core away now and then, in the middle, so that others run inside of it even where cores are few.
pub(crate) struct Interleaved<'t, T> {
    inner: &'t mut T,
    random: &'t mut u64,
}

impl<'t, T> Interleaved<'t, T> {
    pub(crate) fn new(inner: &'t mut T, random: &'t mut u64) -> Self {
        Interleaved { inner, random }
    }

    fn pause(&mut self) {
        // Xorshift (Marsaglia, 2003).
        *self.random ^= *self.random << 13;
        *self.random ^= *self.random >> 7;
        *self.random ^= *self.random << 17;
        if self.random.is_multiple_of(16) {
            std::thread::yield_now();
        }
    }
}

impl<T: Txn> Txn for Interleaved<'_, T> {
    type Machine = T::Machine;

    fn read_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort> {
        self.pause();
        self.inner.read_row(table, key, columns)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.read_rows(table, keys, columns, visit)
    }

    fn announce_writes<K: Key>(&mut self, table: &Table<Self::Machine, K>, keys: &[K], groups: Groups) {
        self.inner.announce_writes(table, keys, groups);
    }

    fn modify_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        groups: Groups,
    ) -> Result<Option<&mut [u64]>, Abort> {
        self.pause();
        self.inner.modify_row(table, key, groups)
    }

    fn update_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        update: RowUpdate<'_>,
    ) -> Result<bool, Abort> {
        self.pause();
        self.inner.update_row(table, key, update)
    }

    fn modify_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        groups: Groups,
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.modify_rows(table, keys, groups, visit)
    }

    fn update_rows<K: Key, R: Row, U: Update<R>>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>) -> Option<U>,
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.update_rows(table, keys, columns, visit)
    }

    fn insert_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        visit: impl FnMut(usize, Option<&mut [u64]>),
    ) -> Result<(), Abort> {
        self.pause();
        self.inner.insert_rows(table, keys, visit)
    }

    fn write_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        groups: Groups,
    ) -> Result<Option<&mut [u64]>, Abort> {
        self.pause();
        self.inner.write_row(table, key, groups)
    }

    fn insert_row<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        self.pause();
        self.inner.insert_row(table, key)
    }

    fn delete<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<bool, Abort> {
        self.pause();
        self.inner.delete(table, key)
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.pause();
        self.inner.scan_rows(table, range, limit, direction, columns, visit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bed::{Threads, TypedBed};
    use crate::config::options;
    use crate::watch::Silent;
    use contend_engine::Protocol;
    use contend_machine::Native;
    use contend_protocols::fault::Faults;
    use contend_protocols::silo::Silo;
    use contend_workloads::Workload;
    use contend_workloads::ycsb::Ycsb;

    struct NoValidation;
    impl Faults for NoValidation {
        const IGNORE_LOCKS_IN_VALIDATION: bool = true;
        const SKIP_VALIDATION_OF_WRITTEN: bool = true;
    }

    fn verify_ycsb<P: Protocol<Native>>(settings: &[(&str, &str)]) -> Verification {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let config = RunConfig { settings, threads: 4, ..RunConfig::default() };
        let workload = options::<<Ycsb<Native> as Workload<Native>>::Options>(&[], &config.settings).expect("valid");
        let protocol = (P::new(P::Options::default()), std::collections::BTreeMap::new());
        let bed = TypedBed::<P, Ycsb<Native>, Threads>::new;
        let mut bed = bed(&config, protocol, &config.settings, workload, Purpose::Verify).expect("a bed");
        verify_bed(&mut bed, P::INFO.name, config.verify_transactions, &Stop::default(), &Silent)
            .expect("a run")
            .expect("not stopped")
    }

    const HOT: &[(&str, &str)] =
        &[("ycsb.records", "20"), ("ycsb.rmw", "on"), ("ycsb.ops", "6"), ("ycsb.payload", "64")];

    #[test]
    fn a_protocol_that_keeps_its_promise_passes() {
        let verification = verify_ycsb::<Silo>(HOT);
        assert!(verification.passed, "{}: {:?}", verification.verdict, verification.explanation);
        assert!(verification.transactions >= RunConfig::default().verify_transactions, "{}", verification.transactions);
        assert!(verification.aborts > 0, "a run without a conflict proves nothing");
    }

    #[test]
    fn a_protocol_that_breaks_its_promise_is_caught() {
        let verification = verify_ycsb::<Silo<NoValidation>>(HOT);
        assert!(!verification.passed, "{}", verification.verdict);
        assert!(verification.explanation.is_some(), "{}", verification.verdict);
    }
}
