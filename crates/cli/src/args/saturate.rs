//! The flags of `saturate`.

use clap::Args;
use contend_lab::saturate::Goal;
use contend_runner::RunConfig;
use contend_runner::arrivals::{ArrivalProcess, parse_late};

use super::outputs::OutputArgs;
use super::setup::SetupArgs;
use super::values::{names, whole};
use crate::UserError;
use contend_runner::units::parse_percent;

#[derive(Debug, Args)]
pub(crate) struct SaturateArgs {
    #[command(flatten)]
    setup: SetupArgs,
    /// Protocols, separated by commas, or `all`; each may have options of its own, as in silo+cu+ts
    /// [default: silo]
    #[arg(long, visible_alias = "protocol", value_name = "A,B,...", value_delimiter = ',')]
    protocols: Vec<String>,
    /// The largest 99th percentile of the response times, as in 1ms [default: no limit; a rate
    /// fails if the backlog grows]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    p99: Option<String>,
    /// The largest 99.9th percentile of the response times
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    p999: Option<String>,
    /// The distance of the rate that passes and the one that fails, 1% to 100% [default: 5%]
    #[arg(long, value_name = "P%", allow_hyphen_values = true)]
    precision: Option<String>,
    /// Transactions in each of the three windows of a rate [default: 20000; with --p999 200000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    transactions: Option<u64>,
    /// The gaps between arrivals: poisson or constant [default: poisson]
    #[arg(long, value_name = "PROCESS")]
    arrivals: Option<String>,
    /// Search at once, without proving the protocols right first
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

/// The fewest transactions of a window that have a 99th percentile, and a 99.9th one.
const FEWEST: u64 = 1000;
const FEWEST_P999: u64 = 10_000;
/// The most: a window of them is measured three times at each rate.
const MOST: u64 = 1_000_000_000;

impl SaturateArgs {
    /// Returns the configuration that the flags ask for.
    ///
    /// # Errors
    /// A flag is not valid.
    pub(crate) fn config(&self) -> Result<RunConfig, UserError> {
        let mut config = RunConfig { protocols: vec!["silo".into()], ..RunConfig::default() };
        self.setup.apply(&mut config)?;
        if !self.protocols.is_empty() {
            config.protocols = names(&self.protocols);
        }
        config.verify = !self.no_verify;
        Ok(config)
    }

    /// Returns what a rate has to keep.
    ///
    /// # Errors
    /// A flag is not valid.
    pub(crate) fn goal(&self) -> Result<Goal, UserError> {
        let limit = |flag: &str, value: &Option<String>| {
            let nanoseconds = |text: &String| {
                let seconds = parse_late(text).map_err(|_| {
                    UserError::refused(format!(
                        "{flag}: '{text}' is no limit of a time; valid: above 0, as in 80us or 1ms"
                    ))
                })?;
                Ok::<u64, UserError>((seconds * 1e9).ceil() as u64)
            };
            value.as_ref().map(nanoseconds).transpose()
        };
        let precision = match &self.precision {
            None => 0.05,
            Some(text) => parse_percent(text).filter(|part| (0.01..=1.0).contains(part)).ok_or_else(|| {
                UserError::refused(format!("--precision: '{text}' is no precision; valid: 1% to 100%, as in 5%"))
            })?,
        };
        let p999_ns = limit("--p999", &self.p999)?;
        let (usual, fewest) = if p999_ns.is_some() { (200_000, FEWEST_P999) } else { (20_000, FEWEST) };
        let transactions = self.transactions.unwrap_or(usual);
        if !(fewest..=MOST).contains(&transactions) {
            return Err(UserError::refused(format!(
                "--transactions: {transactions} have no such percentile or take too long; valid: {fewest} to {MOST}"
            )));
        }
        let process = self.arrivals.as_deref().map(ArrivalProcess::parse).transpose();
        let process = process.map_err(|why| UserError::refused(format!("--arrivals: {why}")))?.unwrap_or_default();
        Ok(Goal { p99_ns: limit("--p99", &self.p99)?, p999_ns, precision, transactions, process })
    }
}
