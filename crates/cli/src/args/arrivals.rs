//! The flags of an open loop.

use clap::Args;
use contend_runner::RunConfig;
use contend_runner::arrivals::{ArrivalProcess, Arrivals, Rate, parse_late, parse_short_time};
use contend_runner::config::SECONDS_MAX;
use contend_runner::units::show_given;

use crate::UserError;

/// The windows of a rate that changes, if nothing says how long they are.
const PARTS: f64 = 20.0;

#[derive(Debug, Args)]
pub(crate) struct ArrivalArgs {
    /// Let transactions arrive at this rate a second, whether or not they are served, as in 200k,
    /// and measure response times from the moment when each was due; 50k..400k with --ramp; or a
    /// file NAME.csv with lines `second,rate` [default: a closed loop, in which a worker starts a
    /// transaction when its last one has ended]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// The time in which a rate of two values goes from the first to the second, as in 60s; it is
    /// the length of the measurement
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    ramp: Option<String>,
    /// The gaps between arrivals: poisson (exponential, as of many independent clients) or constant
    /// [default: poisson]
    #[arg(long, value_name = "PROCESS")]
    arrivals: Option<String>,
    /// Skip, and count, a transaction that would start later than this after it was due, as in 10ms
    /// [default: start each, however late]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    late: Option<String>,
    /// Print a line for each window, which has this length, as in 1s
    #[arg(long, value_name = "TIME", conflicts_with = "seconds", allow_hyphen_values = true)]
    pub(crate) every: Option<String>,
}

impl ArrivalArgs {
    /// Puts the flags into a configuration. `windows` is the number of windows that was asked for,
    /// and `has_seconds` whether their length was.
    ///
    /// # Errors
    /// A value is not valid, or a flag is missing.
    pub(crate) fn apply(
        &self,
        config: &mut RunConfig,
        windows: Option<usize>,
        has_seconds: bool,
    ) -> Result<(), UserError> {
        let refused = |flag: &'static str| move |why: String| UserError::refused(format!("{flag}: {why}"));
        if let Some(every) = &self.every {
            let seconds = parse_short_time(every).map_err(refused("--every"))?;
            if seconds <= 0.0 {
                return Err(UserError::refused(format!("--every: '{every}' is no length; valid: above 0, as in 1s")));
            }
            config.window_seconds = seconds;
        }
        let Some(rate) = &self.rate else { return self.without_rate(config) };
        let rate = Rate::parse(rate).map_err(refused("--rate"))?;
        let ramp = self.ramp.as_deref().map(parse_short_time).transpose().map_err(refused("--ramp"))?;
        if let Some(seconds) = ramp.filter(|seconds| !(*seconds > 0.0 && *seconds <= SECONDS_MAX)) {
            let seconds = show_given(seconds);
            return Err(UserError::refused(format!("--ramp: {seconds} s; valid: above 0, to {SECONDS_MAX} s")));
        }
        let (rates, length) = rate.moments(ramp).map_err(UserError::refused)?;
        let process = self.arrivals.as_deref().map(ArrivalProcess::parse).transpose().map_err(refused("--arrivals"))?;
        let late_seconds = self.late.as_deref().map(parse_late).transpose().map_err(refused("--late"))?;
        if let Some(length) = length.filter(|length| *length > 0.0) {
            if !has_seconds && self.every.is_none() {
                config.window_seconds = length / windows.map_or(PARTS, |windows| windows.max(1) as f64);
            }
            // The last window may be longer than what is left of the ramp.
            let needed = (length / config.window_seconds - 1e-9).ceil().max(1.0);
            config.windows = windows.unwrap_or(needed as usize);
        }
        config.arrivals = Some(Arrivals { rates, process: process.unwrap_or_default(), late_seconds });
        Ok(())
    }

    /// Refuses the flags that need a rate. A configuration of a result keeps its arrivals.
    fn without_rate(&self, config: &mut RunConfig) -> Result<(), UserError> {
        let mut arrivals = config.arrivals.take();
        for (flag, value) in [("--ramp", &self.ramp), ("--arrivals", &self.arrivals), ("--late", &self.late)] {
            let Some(value) = value else { continue };
            let Some(arrivals) = arrivals.as_mut().filter(|_| flag != "--ramp") else {
                return Err(UserError::refused(format!(
                    "{flag} {value} belongs to an open loop; valid with --rate RATE"
                )));
            };
            let set = match flag {
                "--late" => parse_late(value).map(|late| arrivals.late_seconds = Some(late)),
                _ => ArrivalProcess::parse(value).map(|process| arrivals.process = process),
            };
            set.map_err(|why| UserError::refused(format!("{flag}: {why}")))?;
        }
        config.arrivals = arrivals;
        Ok(())
    }
}

/// Returns the flags that give the arrivals of a configuration again. The name of a file of rates
/// is not known, so the result stands for it.
pub(crate) fn flags(config: &RunConfig) -> String {
    let Some(arrivals) = &config.arrivals else { return String::new() };
    let mut text = match &arrivals.rates[..] {
        [(_, rate)] => format!(" --rate {rate}"),
        [(begin, from), (length, to)] if *begin == 0.0 && *from > 0.0 && *to > 0.0 => {
            format!(" --rate {from}..{to} --ramp {length}")
        }
        _ => " --from results.json".into(),
    };
    if arrivals.process != ArrivalProcess::default() {
        text += &format!(" --arrivals {}", arrivals.process.name());
    }
    if let Some(late) = arrivals.late_seconds {
        text += &format!(" --late {late}");
    }
    text
}
