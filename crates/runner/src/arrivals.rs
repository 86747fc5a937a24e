//! An open loop: transactions arrive at a rate, whether or not the system keeps up.
//!
//! In a closed loop a worker starts its next transaction when the last one has ended. So a stall
//! delays the transactions behind it, and their wait is in no latency. In an open loop the start of
//! a transaction is scheduled beforehand, and a late start counts as part of its response time
//! (G. Tene: "How NOT to measure latency", 2013; B. Schroeder et al.: "Open versus closed: a
//! cautionary tale", NSDI 2006).

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::RunError;
use crate::units::{parse_time, show_given};

/// How transactions arrive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Arrivals {
    /// The rate of arrivals at some moments of the measurement, as pairs of a time in seconds and a
    /// rate per second. The rate is linear between two moments, and constant before the first and
    /// after the last. All windows of an entry share one clock, which stands still between them.
    pub rates: Moments,
    /// The distribution of the gaps between arrivals.
    pub process: ArrivalProcess,
    /// The longest delay of a start, in seconds. A transaction that would start later is skipped
    /// and counted. `None`: each is started, however late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub late_seconds: Option<f64>,
}

/// Times in seconds, and the rates per second at these times.
pub type Moments = Vec<(f64, f64)>;

/// The distribution of the gaps between arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArrivalProcess {
    /// Exponential gaps, as of many clients that know nothing of each other.
    #[default]
    Poisson,
    /// Equal gaps.
    Constant,
}

/// The highest rate of arrivals per second. A draw takes some nanoseconds.
pub const RATE_MAX: f64 = 1e8;
/// The longest time of a schedule, in seconds.
const TIME_MAX: f64 = 1e6;
/// The most moments of a schedule.
const MOMENTS_MAX: usize = 100_000;
/// The largest file with a schedule, in bytes.
const FILE_MAX: u64 = 16 << 20;

impl ArrivalProcess {
    /// Returns the process of this name.
    ///
    /// # Errors
    /// There is none; the message has the valid names.
    pub fn parse(name: &str) -> Result<Self, String> {
        match name {
            "poisson" => Ok(ArrivalProcess::Poisson),
            "constant" => Ok(ArrivalProcess::Constant),
            _ => Err(format!("'{name}' is no process of arrivals; valid: poisson, constant")),
        }
    }

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            ArrivalProcess::Poisson => "poisson",
            ArrivalProcess::Constant => "constant",
        }
    }
}

/// A rate as a user gives it.
#[derive(Clone, Debug, PartialEq)]
pub enum Rate {
    /// The same rate all the time.
    Constant(f64),
    /// A rate that changes linearly, from the first value to the second.
    Ramp(f64, f64),
    /// The rates at some times.
    Series(Moments),
}

impl Rate {
    /// Parses a rate per second, as in `200k`; two rates of a ramp, as in `50k..400k`; or the path
    /// of a file `NAME.csv` whose lines are `second,rate`.
    ///
    /// # Errors
    /// It is none of these, or a rate is out of range. The message says what is valid.
    pub fn parse(text: &str) -> Result<Rate, String> {
        let text = text.trim();
        if text.ends_with(".csv") {
            return Self::read(Path::new(text));
        }
        match text.split_once("..") {
            Some((from, to)) => Ok(Rate::Ramp(above_zero(from)?, above_zero(to)?)),
            None => above_zero(text).map(Rate::Constant),
        }
    }

    fn read(path: &Path) -> Result<Rate, String> {
        let shown = path.display();
        let size = std::fs::metadata(path).map_err(|error| format!("can't read '{shown}': {error}"))?.len();
        if size > FILE_MAX {
            return Err(format!("'{shown}' has {size} bytes; valid: at most {FILE_MAX}"));
        }
        let text = std::fs::read_to_string(path).map_err(|error| format!("can't read '{shown}': {error}"))?;
        let mut moments = Vec::new();
        // Some programs begin a file with a byte order mark.
        for (number, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.trim();
            let is_header = number == 0 && line.replace(' ', "") == "second,rate";
            if line.is_empty() || line.starts_with('#') || is_header {
                continue;
            }
            let here = |why: &str| format!("{shown}, line {}: '{line}': {why}", number + 1);
            let Some((second, rate)) = line.split_once(',') else {
                return Err(here("valid: a time in seconds, a comma, and a rate per second"));
            };
            let second = second.trim().parse::<f64>().map_err(|_| here("the time is no number"))?;
            let rate = parse_rate(rate).map_err(|why| here(&why))?;
            moments.push((second, rate));
        }
        check_moments(&moments).map_err(|why| format!("{shown}: {why}"))?;
        Ok(Rate::Series(moments))
    }

    /// Returns the moments of a schedule, and the length of the measurement if the rate has one.
    ///
    /// # Errors
    /// The length of a ramp is missing, or the rate does not change and has one.
    pub fn moments(&self, ramp_seconds: Option<f64>) -> Result<(Moments, Option<f64>), String> {
        match (self, ramp_seconds) {
            (Rate::Constant(rate), None) => Ok((vec![(0.0, *rate)], None)),
            (Rate::Ramp(from, to), Some(length)) => Ok((vec![(0.0, *from), (length, *to)], Some(length))),
            (Rate::Series(moments), None) => Ok((moments.clone(), moments.last().map(|last| last.0))),
            (Rate::Ramp(from, to), None) => Err(format!(
                "--rate {}..{} changes, and no time is given for it; valid: --ramp TIME, as in --ramp 60s",
                show_given(*from),
                show_given(*to)
            )),
            (_, Some(_)) => Err("--ramp is for a rate that changes, as in --rate 50k..400k".into()),
        }
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let (digits, unit) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1e3),
        Some((at, 'M')) => (&text[..at], 1e6),
        _ => (text, 1.0),
    };
    let rate = digits.trim_end().parse::<f64>().ok().map(|number| number * unit);
    rate.filter(|rate| (0.0..=RATE_MAX).contains(rate))
        .ok_or_else(|| format!("'{text}' is no rate per second; valid: 0 to {}, as in 0.1, 250 or 200k", shown_max()))
}

fn above_zero(text: &str) -> Result<f64, String> {
    match parse_rate(text) {
        Ok(rate) if rate > 0.0 => Ok(rate),
        _ => Err(format!(
            "'{}' is no rate per second; valid: above 0, to {}, as in 0.1, 250 or 200k; two of them with .. between, \
             as in 50k..400k; or a file NAME.csv",
            text.trim(),
            shown_max()
        )),
    }
}

fn shown_max() -> String {
    format!("{:.0}M", RATE_MAX / 1e6)
}

/// Parses the longest delay of a start, in seconds.
///
/// # Errors
/// It is no time above 0.
pub fn parse_late(text: &str) -> Result<f64, String> {
    let seconds = parse_short_time(text)?;
    if seconds > 0.0 { Ok(seconds) } else { Err(format!("'{text}' is no delay; valid: above 0, as in 10ms")) }
}

/// Parses a time as [`parse_time`] does, also in microseconds (`us`), and returns it in seconds.
///
/// # Errors
/// As those of [`parse_time`].
pub fn parse_short_time(text: &str) -> Result<f64, String> {
    let text = text.trim();
    match text.strip_suffix("us").or_else(|| text.strip_suffix("µs")) {
        Some(number) => {
            let number = number.trim_end().parse::<f64>().ok().filter(|number| (0.0..=1e15).contains(number));
            number.map(|number| number / 1e6).ok_or_else(|| format!("'{text}' is no time; valid: as in 80us"))
        }
        None => parse_time(text)
            .map(|time| time.as_secs_f64())
            .map_err(|message| message.replace("valid: ms, s, m, h", "valid: us, ms, s, m, h")),
    }
}

fn check_moments(moments: &[(f64, f64)]) -> Result<(), String> {
    if moments.is_empty() || moments.len() > MOMENTS_MAX {
        return Err(format!("{} lines with a rate; valid: 1 to {MOMENTS_MAX}", moments.len()));
    }
    for (second, rate) in moments {
        if !(0.0..=TIME_MAX).contains(second) {
            return Err(format!("the time {} s is out of range; valid: 0 to {TIME_MAX}", show_given(*second)));
        }
        if !(0.0..=RATE_MAX).contains(rate) {
            return Err(format!("the rate {} is out of range; valid: 0 to {RATE_MAX}", show_given(*rate)));
        }
    }
    if let Some(pair) = moments.windows(2).find(|pair| pair[1].0 <= pair[0].0) {
        return Err(format!("the time {} s does not come after {} s", pair[1].0, pair[0].0));
    }
    if moments.iter().all(|(_, rate)| *rate == 0.0) {
        return Err("no rate is above 0, so nothing arrives".into());
    }
    Ok(())
}

impl Arrivals {
    /// Returns arrivals at this rate per second, at random moments.
    pub fn at(rate: f64) -> Arrivals {
        Arrivals { rates: vec![(0.0, rate)], process: ArrivalProcess::Poisson, late_seconds: None }
    }

    /// Whether the rate is the same all the time.
    pub fn is_steady(&self) -> bool {
        self.rates.len() == 1
    }

    /// Describes the arrivals in a few words.
    pub fn in_words(&self) -> String {
        let rate = |rate: f64| crate::units::show_rate(rate).trim_end().to_string();
        let rates = match &self.rates[..] {
            [(_, only)] => format!("{}/s", rate(*only)),
            [(_, first), (_, last)] => format!("{}/s to {}/s", rate(*first), rate(*last)),
            many => format!("rates at {} moments", many.len()),
        };
        let late = self
            .late_seconds
            .map(|late| format!(", not started if later than {}", crate::units::show_ns((late * 1e9) as u64)));
        format!("{rates}, {} arrivals{}", self.process.name(), late.unwrap_or_default())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// The first that is out of range.
    pub fn check(&self) -> Result<(), RunError> {
        check_moments(&self.rates).map_err(|why| RunError::BadInput(format!("arrivals: {why}")))?;
        match self.late_seconds {
            Some(late) if !(late > 0.0 && late <= TIME_MAX) => Err(RunError::BadInput(format!(
                "arrivals: the longest delay is {} s; valid: above 0, to {TIME_MAX}",
                show_given(late)
            ))),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_numbers_ramps_or_files() {
        assert_eq!(Rate::parse("200k"), Ok(Rate::Constant(200e3)));
        assert_eq!(Rate::parse(" 0.1 "), Ok(Rate::Constant(0.1)));
        assert_eq!(Rate::parse("50k..400k"), Ok(Rate::Ramp(50e3, 400e3)));
        assert_eq!(Rate::parse("400k..50k"), Ok(Rate::Ramp(400e3, 50e3)));
        for wrong in ["0", "-1", "1e12", "", "nan", "inf", "fast", "1..", "..2", "1..0", "1..2..3"] {
            let message = Rate::parse(wrong).expect_err(wrong);
            assert!(message.contains("valid: above 0, to 100M"), "{message}");
        }
        assert!(Rate::parse("no-such-file.csv").expect_err("no file").contains("can't read 'no-such-file.csv'"));
    }

    #[test]
    fn a_file_has_a_time_and_a_rate_in_each_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rates.csv");
        let parse = |text: &str| {
            std::fs::write(&path, text).expect("written");
            Rate::parse(path.to_str().expect("text"))
        };
        let good = parse("second, rate\n# morning\n0,100\n\n 10 , 2k \n20,0\n").expect("valid");
        assert_eq!(good, Rate::Series(vec![(0.0, 100.0), (10.0, 2000.0), (20.0, 0.0)]));
        assert_eq!(good.moments(None).expect("a length").1, Some(20.0));
        assert!(parse("\u{feff}0,100\n").is_ok(), "a byte order mark");
        for (text, part) in [
            ("", "0 lines with a rate"),
            ("second,rate\n", "0 lines with a rate"),
            ("0;100\n", "line 1: '0;100': valid: a time in seconds, a comma"),
            ("0,1\nx,1\n", "line 2: 'x,1': the time is no number"),
            ("0,-1\n", "'-1' is no rate per second"),
            ("1,5\n1,6\n", "the time 1 s does not come after 1 s"),
            ("-1,5\n", "the time -1 s is out of range"),
            ("nan,5\n", "out of range"),
            ("0,0\n1,0\n", "nothing arrives"),
        ] {
            let message = parse(text).expect_err(text);
            assert!(message.contains(part), "{text:?}: {message}");
        }
        std::fs::write(&path, [0xff, 0xfe, 0x00]).expect("written");
        assert!(Rate::parse(path.to_str().expect("text")).expect_err("no text").contains("can't read"));
    }

    #[test]
    fn only_a_rate_that_changes_has_a_length() {
        assert!(Rate::Ramp(1.0, 2.0).moments(None).expect_err("no length").contains("--ramp TIME"));
        assert!(Rate::Constant(1.0).moments(Some(1.0)).expect_err("a length").contains("--ramp is for"));
        assert_eq!(Rate::Ramp(1.0, 2.0).moments(Some(3.0)), Ok((vec![(0.0, 1.0), (3.0, 2.0)], Some(3.0))));
    }

    #[test]
    fn short_times_have_microseconds() {
        assert_eq!(parse_short_time("80us"), Ok(80e-6));
        assert_eq!(parse_short_time("10ms"), Ok(0.01));
        assert!(parse_late("0").is_err() && parse_late("-1ms").is_err() && parse_late("x").is_err());
    }
}
