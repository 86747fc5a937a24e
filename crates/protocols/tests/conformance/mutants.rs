//! Controls: the tests must find what is wrong. The deliberate faults of protocols come from the
//! list of mutants, and the protocol without control is one more.

use contend_engine::{Erased, Isolation, NamedProtocol};
use contend_protocols::datm::Datm;
use contend_protocols::deterministic::aria::Aria;
use contend_protocols::deterministic::calvin::Calvin;
use contend_protocols::fault::{Chosen, Faulty, id};
use contend_protocols::locking::deadlock_detection::DeadlockDetection;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::locking::wait_die::WaitDie;
use contend_protocols::locking::wound_wait::WoundWait;
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;

use crate::concurrent::{Storm, run_storm, storms};
use crate::conducted::Conducted;
use crate::jitter::Jitter;
use crate::schedules::{Control, SCENARIOS, first_wrong_order};
use crate::support::{INDEXES, variants};

/// Returns the scenarios that go wrong in some order under this protocol.
fn wrong_scenarios<P: NamedProtocol<Conducted>>() -> Vec<&'static str> {
    let make = || Erased::new(P::new(Default::default()));
    let is_wrong = |scenario: &&crate::schedules::Scenario| {
        INDEXES.iter().any(|&index| first_wrong_order(&make, index, scenario, 1, Isolation::Serializable).is_some())
    };
    SCENARIOS.iter().filter(is_wrong).map(|scenario| scenario.name).collect()
}

/// Returns a schedule that this protocol gets wrong; panics if there is none.
#[track_caller]
fn caught_by_schedules<P: NamedProtocol<Conducted>>(expected: &str) {
    let wrong = wrong_scenarios::<P>();
    assert!(wrong.iter().any(|name| name.starts_with(expected)), "'{expected}' does not find it, but: {wrong:?}");
}

/// Runs storms until one of them finds the protocol wrong.
#[track_caller]
fn caught_by_storms<P: NamedProtocol<Jitter>>() {
    for (number, storm) in storms(1000, 0..40).enumerate() {
        for (_, options) in variants::<P::Options>() {
            if run_storm(Erased::<Jitter>::new(P::new(options)), storm, Isolation::Serializable).is_err() {
                println!("caught in storm {number}");
                return;
            }
        }
    }
    panic!("no storm has found it");
}

macro_rules! caught {
    ($protocol:ty, $fault:ident, by_schedules $($scenario:literal)+) => {
        type Machine = Conducted;
        let fault = id(stringify!($fault));
        $(Chosen::during(fault, || caught_by_schedules::<Faulty<$protocol, Broken>>($scenario));)+
    };
    ($protocol:ty, $fault:ident, by_storms) => {
        type Machine = Jitter;
        Chosen::during(id(stringify!($fault)), caught_by_storms::<Faulty<$protocol, Broken>>);
    };
}

/// The faults of the list: each protocol is compiled once for all of its own.
type Broken = Chosen;

/// Makes a test of each mutant of the list for which the list names a finder in this suite.
macro_rules! mutants {
    ($($protocol:ty $(, faults $($_faults:path),+)? {
        $($_show:ident $fault:ident, $_workload:literal $(, $_settings:ident)?
            $(=> $test:ident $by:ident $($scenario:literal)*)?;)*
    })*) => {$($($(
        #[test]
        #[allow(dead_code, reason = "most protocols do not name the machine")]
        fn $test() {
            caught!($protocol, $fault, $by $($scenario)*);
        }
    )?)*)*};
}

include!("mutants/list.rs");

#[test]
fn without_control_every_scenario_that_needs_it_goes_wrong() {
    let wrong = wrong_scenarios::<NoControl>();
    let expected: Vec<&str> =
        SCENARIOS.iter().filter(|scenario| scenario.control == Control::Needed).map(|scenario| scenario.name).collect();
    let silent: Vec<&&str> = expected.iter().filter(|name| !wrong.contains(name)).collect();
    let unexpected: Vec<&&str> = wrong.iter().filter(|name| !expected.contains(name)).collect();
    assert!(
        silent.is_empty() && unexpected.is_empty(),
        "not wrong: {silent:?}; wrong, and not said so: {unexpected:?}"
    );
}

#[test]
fn without_control_storms_go_wrong() {
    for storm in storms(300, 0..4) {
        // The system decides how the threads overlap: on a busy machine one storm may pass.
        let goes_wrong = (0..10).any(|again| {
            let storm = Storm { seed: storm.seed + 4 * again, ..storm };
            run_storm(Erased::<Jitter>::new(NoControl), storm, Isolation::Serializable).is_err()
        });
        assert!(goes_wrong, "no control, and no anomaly: {storm:?}");
    }
}
