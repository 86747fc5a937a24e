//! Soak tests: memory stays flat while rows come and go for a long time.
//!
//! A run is divided into windows. Resident memory is sampled within windows, the engine's own count
//! of its memory after each window. Memory is flat if the median of the last quarter of the run is
//! not above that of the third quarter, with some room for chance (`grows`). In the first half of
//! the run, tables, free lists and queues grow to their size.

use std::cell::RefCell;
use std::time::Duration;

use serde::Serialize;

use contend_dispatch::session;
use contend_runner::memory::resident_bytes;
use contend_runner::session::{Interval, RunPurpose};
use contend_runner::units::{show_bytes, show_given};
use contend_runner::{Observer, Stop};
use contend_runner::{RunError, RunPlan};

/// Windows of a run, a multiple of four.
const WINDOWS: usize = 24;
/// The number of samples of resident memory in a window, about.
const SAMPLES: f64 = 20.0;
/// The shortest run, in seconds.
pub const SECONDS_MIN: f64 = 1.0;
/// The growth in the last quarter that is put down to chance: a fraction of the third quarter's
/// memory, plus a number of bytes.
const ROOM: (f64, u64) = (0.03, 4 << 20);

/// The result of a protocol.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Soaked {
    /// The protocol with its options, as it was written.
    pub protocol: String,
    /// How long it ran, in seconds.
    pub seconds: f64,
    /// Transactions that committed.
    pub commits: u64,
    /// Resident memory of the process in bytes, the median of each quarter.
    pub resident: [u64; 4],
    /// Memory of tables and indexes in bytes, with what they keep for reuse, the median of each
    /// quarter.
    pub tables: [u64; 4],
    /// Old versions at the end.
    pub old_versions: u64,
    /// Tombstones at the end, whose memory can't be used again yet.
    pub tombstones: u64,
    /// What has grown in the last quarter, if anything has.
    pub grew: Option<String>,
}

/// Runs each entry of a plan for `seconds` seconds, from [`SECONDS_MIN`] on.
///
/// # Errors
/// `seconds` is out of its range, or a run can't go on.
pub fn soak(plan: &RunPlan, seconds: f64, stop: &Stop, observer: &dyn Observer) -> Result<Vec<Soaked>, RunError> {
    // A NaN is in no range, and is refused too.
    if !(SECONDS_MIN..=contend_runner::config::SECONDS_MAX).contains(&seconds) {
        let (seconds, most) = (show_given(seconds), contend_runner::config::SECONDS_MAX);
        return Err(RunError::BadInput(format!("seconds is {seconds}; valid: {SECONDS_MIN} to {most}")));
    }
    let mut all = Vec::new();
    for protocol in &plan.protocols {
        if stop.is_requested() {
            break;
        }
        let mut session = session(plan, protocol, RunPurpose::Measure)?;
        session.load(stop, &|_| ())?;
        observer.begin(&protocol.name, 1000);
        let mut soaked = Soaked { protocol: protocol.name.clone(), ..Soaked::default() };
        let length = Duration::from_secs_f64(seconds / WINDOWS as f64);
        let (mut resident, mut tables) = (Vec::new(), Vec::new());
        for _ in 0..WINDOWS {
            let (samples, part, shown) = (RefCell::new(Vec::new()), RefCell::new(0.0), RefCell::new(0.0));
            let tick = |passed: f64| {
                let (part, shown) = (&mut *part.borrow_mut(), &mut *shown.borrow_mut());
                (*part, *shown) = (*part + passed, *shown + passed * 1000.0 / WINDOWS as f64);
                observer.advance(*shown as u64);
                *shown -= shown.floor();
                if *part >= 1.0 / SAMPLES {
                    *part = 0.0;
                    samples.borrow_mut().extend(resident_bytes());
                }
            };
            let count = session.run(Interval { length, transactions_max: None }, stop, &tick)?;
            soaked.seconds += count.seconds;
            soaked.commits += count.tally.kinds.iter().map(|kind| kind.commits).sum::<u64>();
            let mut samples = samples.into_inner();
            samples.extend(resident_bytes());
            resident.push(samples);
            tables.push(vec![session.bytes()]);
            if stop.is_requested() {
                break;
            }
        }
        observer.end();
        (soaked.old_versions, soaked.tombstones) = (session.versions().alive(), session.tombstones());
        let is_whole = resident.len() == WINDOWS;
        (soaked.resident, soaked.tables) = (quarters(&resident), quarters(&tables));
        let grown = [("resident memory", soaked.resident), ("tables", soaked.tables)];
        let grown = grown.into_iter().find(|(_, quarters)| is_whole && grows(quarters));
        soaked.grew = grown.map(|(what, [.., third, last])| {
            format!("{what} grew from {} to {} in the last quarter", show_bytes(third), show_bytes(last))
        });
        all.push(soaked);
    }
    Ok(all)
}

/// Returns the median of each quarter of the windows; 0 for a quarter without samples.
fn quarters(windows: &[Vec<u64>]) -> [u64; 4] {
    std::array::from_fn(|quarter| {
        let range = windows.len() * quarter / 4..windows.len() * (quarter + 1) / 4;
        let mut samples: Vec<u64> = windows[range].iter().flatten().copied().collect();
        samples.sort_unstable();
        samples.get(samples.len() / 2).copied().unwrap_or(0)
    })
}

/// Whether the last quarter has more than the third, beyond chance.
fn grows(quarters: &[u64; 4]) -> bool {
    let [.., third, last] = *quarters;
    last > third + (third as f64 * ROOM.0) as u64 + ROOM.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_runner::RunConfig;
    use contend_runner::Silent;

    #[test]
    fn growth_is_told_from_chance() {
        let mb = |megabytes: [u64; 4]| megabytes.map(|number| number << 20);
        assert!(!grows(&mb([10, 300, 306, 306])), "flat in the second half");
        assert!(!grows(&mb([10, 300, 306, 318])), "three percent and some megabytes");
        assert!(grows(&mb([10, 300, 306, 333])));
        assert!(grows(&mb([1, 2, 3, 8])), "small, and yet it doubles");
    }

    #[test]
    fn quarters_are_medians() {
        let windows: Vec<Vec<u64>> = (0..8).map(|window| vec![window, window, 1000]).collect();
        assert_eq!(quarters(&windows), [1, 3, 5, 7]);
        assert_eq!(quarters(&[vec![5]]), [0, 0, 0, 5]);
    }

    #[test]
    fn a_short_one_says_what_there_was() {
        let run = RunConfig {
            protocols: vec!["msto".into()],
            workload: "litmus-births".into(),
            threads: 4,
            ..RunConfig::default()
        };
        let plan = run.resolve().expect("valid input");
        let [soaked] = &soak(&plan, SECONDS_MIN, &Stop::default(), &Silent).expect("valid input")[..] else {
            unreachable!("one protocol")
        };
        assert!(soaked.commits > 0 && soaked.seconds >= SECONDS_MIN, "{soaked:?}");
        assert!(soaked.resident.iter().chain(&soaked.tables).all(|bytes| *bytes > 0), "{soaked:?}");
        assert!(soak(&plan, 0.0, &Stop::default(), &Silent).is_err());
    }
}
