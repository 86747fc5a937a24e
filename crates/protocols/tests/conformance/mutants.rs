//! Controls: what is wrong must be found. Each deliberate bug of a protocol's `Faults`, and the protocol that controls nothing.

use contend_engine::{Erased, Isolation, Protocol};
use contend_protocols::deadlock_detection::DeadlockDetection;
use contend_protocols::fault::Faults;
use contend_protocols::no_wait::NoWait;
use contend_protocols::none::NoControl;
use contend_protocols::silo;
use contend_protocols::wait_die::WaitDie;
use contend_protocols::wound_wait::WoundWait;

use crate::concurrent::{run_storm, storms};
use crate::conducted::Conducted;
use crate::jitter::Jitter;
use crate::schedules::{SCENARIOS, first_wrong_order};
use crate::support::{INDEXES, variants};

/// The scenarios of which some order is wrong under this protocol.
fn wrong_scenarios<P: Protocol<Conducted>>() -> Vec<&'static str> {
    let make = || Erased::new(P::new(Default::default()));
    let is_wrong = |scenario: &&crate::schedules::Scenario| {
        INDEXES.iter().any(|&index| first_wrong_order(&make, index, scenario, Isolation::Serializable).is_some())
    };
    SCENARIOS.iter().filter(is_wrong).map(|scenario| scenario.name).collect()
}

/// A schedule that this protocol gets wrong; panics if there is none.
#[track_caller]
fn caught_by_schedules<P: Protocol<Conducted>>(expected: &str) {
    let wrong = wrong_scenarios::<P>();
    assert!(wrong.iter().any(|name| name.starts_with(expected)), "'{expected}' does not find it, but: {wrong:?}");
}

/// Storms until one of them finds the protocol wrong.
#[track_caller]
fn caught_by_storms<P: Protocol<Jitter>>() {
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

#[test]
fn silo_that_ignores_locks_in_validation_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const IGNORE_LOCKS_IN_VALIDATION: bool = true;
    }
    caught_by_storms::<silo::Silo<Broken>>();
}

#[test]
fn silo_that_writes_the_wrong_cell_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const WRITE_WRONG_CELL: bool = true;
    }
    caught_by_schedules::<silo::Silo<Broken>>("groups: lost update");
}

#[test]
fn silo_that_merges_before_it_locks_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const MERGE_BEFORE_LOCK: bool = true;
    }
    caught_by_storms::<silo::Silo<Broken>>();
}

#[test]
fn locking_that_locks_the_wrong_cell_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const WRITE_WRONG_CELL: bool = true;
    }
    caught_by_schedules::<NoWait<Broken>>("groups: lost update");
}

#[test]
fn locking_that_merges_before_it_locks_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const MERGE_BEFORE_LOCK: bool = true;
    }
    caught_by_storms::<NoWait<Broken>>();
}

#[test]
fn silo_that_uses_tids_twice_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const FORGET_OLDER_TIDS: bool = true;
    }
    caught_by_storms::<silo::Silo<Broken>>();
}

#[test]
fn silo_that_skips_the_validation_of_what_it_writes_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const SKIP_VALIDATION_OF_WRITTEN: bool = true;
    }
    caught_by_schedules::<silo::Silo<Broken>>("P4: lost read-modify-write");
}

#[test]
fn silo_that_validates_only_what_it_writes_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const FORGET_READ_ONLY: bool = true;
    }
    caught_by_schedules::<silo::Silo<Broken>>("G2-item: write skew");
}

#[test]
fn silo_that_forgets_gaps_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const FORGET_GAPS: bool = true;
    }
    caught_by_schedules::<silo::Silo<Broken>>("G2: empty ranges");
    caught_by_schedules::<silo::Silo<Broken>>("G2: misses and inserts");
}

#[test]
fn silo_that_shows_placeholders_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const SHOW_PLACEHOLDERS: bool = true;
    }
    caught_by_schedules::<silo::Silo<Broken>>("G1a: aborted insert");
}

#[test]
fn locking_that_releases_shared_locks_early_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const RELEASE_SHARED_EARLY: bool = true;
    }
    caught_by_schedules::<NoWait<Broken>>("G2-item: write skew");
}

#[test]
fn locking_that_ignores_readers_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const IGNORE_READERS: bool = true;
    }
    caught_by_schedules::<NoWait<Broken>>("G-single: read skew");
}

#[test]
fn locking_that_forgets_gaps_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const FORGET_GAPS: bool = true;
    }
    caught_by_schedules::<NoWait<Broken>>("G2: empty ranges");
}

#[test]
fn locking_that_keeps_aborted_inserts_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const KEEP_ABORTED_INSERTS: bool = true;
    }
    caught_by_schedules::<NoWait<Broken>>("G1a: aborted insert");
}

/// Locks with queues that have this fault, under each policy that it can harm.
macro_rules! queues_with_a_fault_are_caught {
    ($($test:ident: $fault:ident, $($protocol:ident)+ => $scenario:literal;)*) => {$(
        #[test]
        fn $test() {
            struct Broken;
            impl Faults for Broken {
                const $fault: bool = true;
            }
            $(caught_by_schedules::<$protocol<Conducted, Broken>>($scenario);)+
        }
    )*};
}

queues_with_a_fault_are_caught! {
    queues_that_ignore_readers_are_caught: IGNORE_READERS, WaitDie WoundWait DeadlockDetection => "G-single: read skew";
    queues_that_release_shared_locks_early_are_caught: RELEASE_SHARED_EARLY, WaitDie WoundWait DeadlockDetection => "G2-item: write skew";
    queues_in_which_all_wait_for_all_are_caught: WAIT_ANYWAY, WaitDie DeadlockDetection => "G2-item: write skew";
    wounds_that_are_ignored_are_caught: IGNORE_WOUNDS, WoundWait => "G2-item: write skew";
}

#[test]
fn without_control_every_scenario_that_needs_it_goes_wrong() {
    let wrong = wrong_scenarios::<NoControl>();
    let expected: Vec<&str> =
        SCENARIOS.iter().filter(|scenario| scenario.needs_control).map(|scenario| scenario.name).collect();
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
        let outcome = run_storm(Erased::<Jitter>::new(NoControl), storm, Isolation::Serializable);
        outcome.expect_err("no control, and no anomaly");
    }
}
