//! Tests how often comparisons are right on a machine that drifts, as shared ones do. Everything is
//! drawn from seeds, so the counts are the same everywhere.

use crate::power::{Machine, SHARED, told_of_equals, told_of_five_percent};
use contend_runner::config::WINDOWS;

#[test]
fn of_equals_at_most_one_comparison_in_twenty_tells_any_apart() {
    for entries in [2, 6, 18] {
        let told = told_of_equals(&SHARED, entries, WINDOWS, 200);
        assert!(told <= 10, "{told} of 200 comparisons of {entries} equals");
    }
    // The machine drifts, however fast. The order within a round is drawn, so drift is noise like
    // any other.
    let fast = Machine { noise: 0.0, hiccup_every: f64::INFINITY, drift: 0.3, memory: 3.0, step_every: 20.0 };
    let told = told_of_equals(&fast, 2, WINDOWS, 2000);
    assert!(told <= 100, "{told} of 2000 comparisons on a machine that does nothing but drift");
}

#[test]
fn five_percent_are_told_in_the_default_rounds() {
    for entries in [2, 6, 18] {
        let (told, rounds) = told_of_five_percent(&SHARED, entries, WINDOWS, 200);
        assert!(told >= 160, "{told} of 200 comparisons of {entries}, in {rounds} rounds");
    }
}

/// There is something to find: without the rounds, the same figures tell little.
#[test]
fn rounds_are_what_tells() {
    let few = told_of_five_percent(&SHARED, 18, 5, 20);
    assert_eq!(few.0, 0, "five rounds tell nothing");
}
