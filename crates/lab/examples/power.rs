//! Shows how often a comparison tells equal entries apart, and how often it tells a difference of 5
//! %, on a simulated machine that drifts.
//!
//! `cargo run --release -p contend-lab --example power`

#[path = "../tests/it/power.rs"]
mod power;

use contend_runner::config::WINDOWS;
use power::{Machine, SHARED, told_of_equals, told_of_five_percent};

const COMPARISONS: u64 = 200;

fn main() {
    println!("{COMPARISONS} comparisons, {WINDOWS} rounds at most, drift of {:.0} %\n", SHARED.drift * 100.0);
    println!("| entries | noise of a window | equals told apart | 5 % told | rounds for that |");
    println!("| --- | --- | --- | --- | --- |");
    for entries in [2, 6, 18] {
        for noise in [0.02, 0.03, 0.05] {
            let machine = Machine { noise, ..SHARED };
            let wrong = told_of_equals(&machine, entries, WINDOWS, COMPARISONS);
            let (right, rounds) = told_of_five_percent(&machine, entries, WINDOWS, COMPARISONS);
            let percent = |count: u64| count as f64 * 100.0 / COMPARISONS as f64;
            println!(
                "| {entries} | {:.0} % | {:.1} % | {:.1} % | {rounds:.0} |",
                noise * 100.0,
                percent(wrong),
                percent(right)
            );
        }
    }
}
