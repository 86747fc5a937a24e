//! The flags of `advise`.

use clap::Args;
use contend_lab::advise::{BUDGET_MAX, BUDGET_MIN, Question};
use contend_runner::RunConfig;
use contend_runner::arrivals::parse_late;
use contend_runner::machine::NATIVE;
use contend_runner::units::parse_time;

use super::outputs::OutputArgs;
use super::setup::SetupArgs;
use crate::UserError;

/// The chip that is simulated if none is named.
const CHIP: &str = "abyss";

#[derive(Debug, Args)]
pub(crate) struct AdviseArgs {
    // With --machine the tournament still runs on this machine: the chip is for more cores.
    #[command(flatten)]
    setup: SetupArgs,
    /// The time for measuring on this machine, at least 5s, as in 60s or 10m. Loading the tables,
    /// proving the candidates and checking the rows at the end come on top, and so does what --p99
    /// and --cores ask for; how long loading and proving take at least is told beforehand
    #[arg(long, value_name = "TIME", default_value = "60s", allow_hyphen_values = true)]
    budget: String,
    /// The weakest isolation level that is enough: serializable or snapshot
    #[arg(long, value_name = "LEVEL", default_value = "serializable")]
    isolation: String,
    /// Only protocols whose commits can be durable, measured with a log
    #[arg(long)]
    durable: bool,
    /// Rank the finalists by the highest rate of arrivals at which 99 of 100 responses take at most
    /// this time, as in 1ms
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    p99: Option<String>,
    /// Also measure the best on simulated chips with these numbers of cores, as in 1,16,64; the
    /// chip is that of --machine [default chip: abyss]
    #[arg(long, value_name = "N,N,...", value_delimiter = ',')]
    cores: Vec<String>,
    /// Measure at once, without proving the candidates right first
    #[arg(long)]
    no_verify: bool,
    #[command(flatten)]
    pub(crate) outputs: OutputArgs,
}

impl AdviseArgs {
    /// Returns the configuration and the question that the flags ask for.
    ///
    /// # Errors
    /// A flag is not valid.
    pub(crate) fn question(&self) -> Result<(RunConfig, Question), UserError> {
        let mut config = RunConfig::default();
        self.setup.apply(&mut config)?;
        let (chip, on_chip) = match &config.chip {
            None => (CHIP.to_string(), None),
            Some(_) => {
                let (machine, cores) = (config.machine.clone(), config.threads);
                let name = machine.rsplit_once(':').map_or(machine.as_str(), |(name, _)| name).to_string();
                let native = RunConfig::default().threads;
                config = RunConfig { threads: self.setup.threads().unwrap_or(native), ..config.on(NATIVE)? };
                (name, Some(cores))
            }
        };
        config.verify = !self.no_verify;
        let seconds = parse_time(&self.budget).map_err(|why| UserError::refused(format!("--budget: {why}")))?;
        let budget_seconds = seconds.as_secs_f64();
        if !(BUDGET_MIN..=BUDGET_MAX).contains(&budget_seconds) {
            return Err(UserError::refused(format!(
                "--budget {}: too short or too long a time for a tournament; valid: {BUDGET_MIN}s to {BUDGET_MAX}s",
                self.budget
            )));
        }
        if !["serializable", "snapshot"].contains(&self.isolation.as_str()) {
            return Err(UserError::refused(format!(
                "--isolation: unknown level '{}'; valid: serializable, snapshot",
                self.isolation
            )));
        }
        let limit = |text: &String| {
            parse_late(text).map(|seconds| (seconds * 1e9).ceil() as u64).map_err(|_| {
                UserError::refused(format!("--p99: '{text}' is no limit of a time; valid: above 0, as in 80us or 1ms"))
            })
        };
        let mut cores = Vec::new();
        for text in &self.cores {
            match text.trim().parse::<usize>() {
                Ok(number) if number > 0 => cores.push(number),
                _ => {
                    return Err(UserError::refused(format!(
                        "--cores: '{text}' is no number of cores; valid: from 1 on, as in 1,16,64"
                    )));
                }
            }
        }
        if cores.is_empty() {
            cores.extend(on_chip);
        }
        cores.sort_unstable();
        cores.dedup();
        // A chip that has fewer cores is refused before anything runs.
        for number in &cores {
            config.clone().on(&format!("{chip}:{number}"))?;
        }
        let question = Question {
            budget_seconds,
            isolation: self.isolation.clone(),
            durable: self.durable,
            p99_ns: self.p99.as_ref().map(limit).transpose()?,
            chip,
            cores,
        };
        Ok((config, question))
    }
}
