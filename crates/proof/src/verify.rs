//! Proves a protocol right on a workload: the history of a small run is checked, replayed, and
//! compared with the tables.

use std::time::Duration;

use contend_dispatch::session;
use contend_judge::{Verification, verify_history};
use contend_runner::session::{Interval, RunPurpose, Session};
use contend_runner::{Observer, ProtocolPlan, RunError, RunPlan, Stop};

/// The longest verification pass, in seconds.
const SECONDS_MAX: u64 = 5;

/// Runs the verification pass of an entry of a plan. Returns `None` if `stop` was requested.
///
/// # Errors
/// The tables do not fit into memory, the log can't be begun, or the run can't go on.
pub fn verify(
    plan: &RunPlan,
    protocol: &ProtocolPlan,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Option<Verification>, RunError> {
    let mut session = session(plan, protocol, RunPurpose::Verify)?;
    verify_session(&mut *session, &protocol.name, plan.config.verify_transactions, stop, observer)
}

/// Runs the verification pass in a session that was made for it. Returns `None` if `stop` was
/// requested.
///
/// # Errors
/// The tables do not fit into memory, or the run can't go on.
pub fn verify_session(
    session: &mut dyn Session,
    name: &str,
    transactions: u64,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Option<Verification>, RunError> {
    let info = session.info();
    observer.begin(&format!("verifying {name}"), 1);
    session.load(stop, &|_| {})?;
    let span = Interval { length: Duration::from_secs(SECONDS_MAX), transactions_max: Some(transactions) };
    let count = session.run(span, stop, &|_| {})?;
    session.settle()?;
    if stop.is_requested() {
        observer.end();
        return Ok(None);
    }
    let recorded = session.take_history();
    let mut verification = verify_history(&recorded, info.isolation);
    verification.aborts = count.tally.conflicts();
    if let (Err(violation), true) = (session.check(), info.isolation.keeps_invariants() && verification.passed) {
        verification.passed = false;
        verification.verdict = format!("the workload's check failed: {violation}");
    }
    if verification.transactions < transactions {
        verification.verdict += &format!("; the time was up before {transactions}");
    }
    observer.advance(1);
    observer.end();
    Ok(Some(verification))
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_engine::NamedProtocol;
    use contend_machine::Native;
    use contend_protocols::fault::{Only, id};
    use contend_protocols::optimistic::silo::Silo;
    use contend_runner::session::session_of;
    use contend_runner::{RunConfig, Silent};
    use contend_workloads::ycsb::Ycsb;

    type NoValidation = Only<{ id("ignore_locks_in_validation") }, { id("skip_validation_of_written") }>;

    fn verify_ycsb<P: NamedProtocol<Native>>(settings: &[(&str, &str)]) -> Verification {
        let settings = settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
        let config = RunConfig { settings, threads: 4, ..RunConfig::default() };
        let mut session = session_of::<P, Ycsb>(&config, RunPurpose::Verify).expect("valid options");
        verify_session(&mut *session, P::INFO.name, config.verify_transactions, &Stop::default(), &Silent)
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
