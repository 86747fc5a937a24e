//! The advisor: which protocol, with which options, suits a workload on this machine?
//!
//! It is a tournament by successive halving (K. Jamieson, A. Talwalkar: "Non-stochastic best arm
//! identification and hyperparameter optimization", AISTATS 2016) over rounds in which each
//! candidate has a window, so that the machine's drift is common to all.
//!
//! | rung | candidates | proof | rounds |
//! | --- | --- | --- | --- |
//! | 0 | each protocol that runs the workload and keeps the level, plain and with the methods that its accesses allow | 2,000 transactions, for a quarter of the budget | 3 of at most 20 ms |
//! | 1 | the best third, and those that are near it | | 3 of at most 60 ms |
//! | final | four, and the options of the first, one at a time | the whole verification | until the budget ends |
//!
//! The budget is the time of all rounds. Loading tables, proving candidates and checking the
//! finalists' rows come on top. How long the first two take at least is told beforehand. A short
//! budget has shorter windows in each rung.
//!
//! | module | what it does |
//! | --- | --- |
//! | `candidates` | the protocols and options that are tried |
//! | `tournament` | the rounds, and the choice of those that stay |
//! | `pieces` | what IC3's analysis says of declared pieces |
//! | `words` | the advice in sentences |

mod candidates;
mod pieces;
mod tournament;
mod words;

use std::time::{Duration, Instant, SystemTime};

use contend_engine::Isolation;
use contend_model::counted;
use contend_runner::{Observer, RunConfig, RunError, RunPlan, Stop};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::compare::compare;
use crate::paired::{self, Ratio};
use crate::result::{Environment, Measured, Spread};
use crate::saturate::{Goal, Saturation, saturate};
use crate::schema::Version;
use candidates::Features;
use tournament::{Left, Tournament, WARMUP_AGAIN};

/// The version of the schema of an advice.
pub const ADVICE_SCHEMA: Version = Version { major: 1, minor: 1 };
/// The shortest budget, in seconds.
pub const BUDGET_MIN: f64 = 5.0;
/// The longest budget, in seconds.
pub const BUDGET_MAX: f64 = 86_400.0;

/// The transactions of the proof before the first rung, and the part of the budget after which
/// further candidates begin without it.
const FIRST_PROOF: u64 = 2_000;
const FIRST_PROOFS: f64 = 0.25;
/// The rounds of the first two rungs, the part of the budget for each, and the lengths of their
/// windows in seconds.
const ROUNDS: usize = 3;
const RUNG: f64 = 0.2;
const FIRST_WINDOW: (f64, f64) = (0.005, 0.02);
const SECOND_WINDOW: (f64, f64) = (0.01, 0.06);
/// The most candidates that stay after the second rung, and the most of different protocols and
/// methods in the final.
const SECOND_MOST: usize = 6;
const FINALISTS: usize = 4;
/// The lengths of a window in the final, in seconds.
const FINAL_WINDOW: (f64, f64) = (0.01, 0.5);
/// The rounds of the final beyond those that can just tell two entries apart.
const FURTHER_ROUNDS: usize = 3;
/// The entries that are tried on simulated cores, their windows, and the length of these in
/// simulated seconds.
const ON_CHIP: usize = 3;
const CHIP_WINDOWS: usize = 3;
const CHIP_WINDOW: f64 = 5e-4;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Question {
    /// The time for measuring on this machine, in seconds.
    pub budget_seconds: f64,
    /// The weakest isolation level that is enough: `snapshot` or `serializable`.
    pub isolation: String,
    /// Whether commits have to be durable.
    pub durable: bool,
    /// The limit of the 99th percentile of response times, in nanoseconds. With it the finalists
    /// are ranked by the highest rate that keeps it.
    pub p99_ns: Option<u64>,
    /// The simulated chip on which the best are tried.
    pub chip: String,
    /// The numbers of its cores; none: no chip.
    pub cores: Vec<usize>,
}

/// A candidate, and where it left the tournament.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Candidate {
    /// The protocol with its options.
    pub entry: String,
    /// The rung in which it left, or the final: `proof`, `0`, `1`, `final`.
    pub left: String,
    /// The reason, in words. Empty for those of the final.
    pub why: String,
    /// Its throughput as a part of the best of its last rung.
    pub of_best: Option<f64>,
}

/// An entry of the final.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Finalist {
    /// The protocol with its options.
    pub entry: String,
    /// Whether it is the first candidate of the rung before with an option changed.
    pub is_option: bool,
    /// Its figures.
    pub measured: Measured,
    /// The ratio of its throughput to that of the fastest; `None` for that one.
    pub to_first: Option<Ratio>,
    /// Whether it is not told apart from the fastest.
    pub is_best: bool,
    /// The ratio to the entry whose option it changes.
    pub to_base: Option<Ratio>,
}

/// Groups of columns of a workload file that were measured in the place of the file's own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MeasuredSplit {
    /// The groups in words, a table each.
    pub tables: Vec<String>,
    /// The lines that the file's `[groups]` would have.
    pub lines: Vec<String>,
    /// The entry that was measured with them.
    pub entry: String,
    /// The entry without them that it is compared with.
    pub base: String,
    /// The ratio of its throughput to that of the other. `None` if the final had too few rounds.
    pub to_base: Option<Ratio>,
}

/// The throughput of an entry on simulated cores.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OnCores {
    /// The number of cores.
    pub cores: usize,
    /// The protocol with its options.
    pub entry: String,
    /// Committed transactions per simulated second: the median of the windows.
    pub throughput_tps: f64,
    /// That of the slowest window.
    pub min: f64,
    /// That of the fastest window.
    pub max: f64,
}

/// The columns of a table, as the types of transactions use them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Use {
    /// The type of transactions.
    pub kind: String,
    /// The use: `reads`, `writes`, `updates`, `inserts into`, ...
    pub how: String,
    /// The table, with the columns of a group if it has several.
    pub what: String,
}

/// The advice, with its evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Advice {
    /// [`ADVICE_SCHEMA`].
    pub schema_version: Version,
    /// Whether it was stopped before its end.
    pub partial: bool,
    /// The start, in seconds since 1970.
    pub started_unix_seconds: u64,
    /// The time that it took in all, in seconds.
    pub elapsed_seconds: f64,
    /// The part of it that the rounds of the tournament took, which the budget is for. 0 in advice
    /// that is older than this field.
    #[serde(default)]
    pub measured_seconds: f64,
    /// The configuration: workload, threads, options of all candidates.
    pub config: RunConfig,
    /// The machine and the build.
    pub environment: Environment,
    /// What was asked.
    pub question: Question,
    /// The entry to use.
    pub entry: Option<String>,
    /// The advice in one sentence.
    pub advice: String,
    /// Reasons, a sentence each.
    pub reasons: Vec<String>,
    /// All candidates, in the order in which they left, the last first.
    pub candidates: Vec<Candidate>,
    /// The entries of the final, the fastest first.
    pub finalists: Vec<Finalist>,
    /// The rounds of the final.
    pub rounds: usize,
    /// All windows that were measured.
    pub windows: usize,
    /// The finalists' highest rates, if a limit of response times was asked for.
    pub rates: Vec<Saturation>,
    /// The best on simulated cores.
    pub on_cores: Vec<OnCores>,
    /// The uses of each table by the types of transactions.
    pub uses: Vec<Use>,
    /// The groups of columns that were measured, if the workload is a file.
    #[serde(default)]
    pub splits: Vec<MeasuredSplit>,
}

/// Answers the question.
///
/// # Errors
/// No protocol runs the workload and keeps the level, the tables do not fit into memory, or the
/// run was stopped before anything was known.
pub fn advise(
    config: &RunConfig,
    question: &Question,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Advice, RunError> {
    let started_unix_seconds =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    let begun = Instant::now();
    let mut config = config.clone();
    // A log that the user has chosen stays.
    if question.durable && !config.settings.keys().any(|name| name == "log" || name == "log.mode") {
        config.settings.insert("log".into(), "epoch".into());
    }
    let isolation = Isolation::ALL.into_iter().find(|level| level.name() == question.isolation);
    let features = Features::of(&config)?;
    let names = candidates::of(&config, isolation.unwrap_or(Isolation::Serializable), &features)?;
    let mut tournament = Tournament::new(&config, stop, observer);
    let ended = tournament.rungs(&names, question.budget_seconds);
    match ended {
        Ok(()) => {}
        // What was measured until then is still known.
        Err(RunError::Stopped) if tournament.has_figures() => {}
        Err(error) => return Err(error),
    }
    let (first_plan, environment) = tournament.setting()?;
    let mut advice = Advice {
        schema_version: ADVICE_SCHEMA,
        partial: false,
        started_unix_seconds,
        elapsed_seconds: 0.0,
        measured_seconds: tournament.measured_seconds,
        config: first_plan.config.clone(),
        environment,
        question: question.clone(),
        entry: None,
        advice: String::new(),
        reasons: Vec::new(),
        rounds: tournament.rounds_of_final,
        windows: tournament.windows,
        candidates: Vec::new(),
        finalists: Vec::new(),
        rates: Vec::new(),
        on_cores: Vec::new(),
        uses: features.uses.clone(),
        splits: Vec::new(),
    };
    // The finalists' tables make room for what follows.
    let (finalists, splits, candidates, checks) = tournament.ended()?;
    (advice.finalists, advice.splits, advice.candidates) = (finalists, splits, candidates);
    let best: Vec<String> = advice.finalists.iter().filter(|it| !it.is_option).map(|it| it.entry.clone()).collect();
    if let Some(p99_ns) = question.p99_ns.filter(|_| !stop.is_requested() && !best.is_empty()) {
        let found = rates(&config, &best, p99_ns, stop, observer)?;
        // A search that was stopped has no last rate.
        advice.rates = if stop.is_requested() { Vec::new() } else { found };
    }
    let (on_cores, lacking) = on_cores(&config, question, &advice.finalists, stop, observer);
    advice.on_cores = on_cores;
    advice.partial = stop.is_requested();
    advice.elapsed_seconds = begun.elapsed().as_secs_f64();
    words::conclude(&mut advice, &features, &checks);
    advice.reasons.extend(lacking);
    Ok(advice)
}

impl Tournament<'_> {
    /// Runs all rungs, whose rounds take about `budget` seconds together.
    fn rungs(&mut self, names: &[String], budget: f64) -> Result<(), RunError> {
        // Without a first proof, a protocol that breaks its promise leaves behind rung 1 only.
        let begun = Instant::now();
        let for_proofs = Duration::from_secs_f64(budget * FIRST_PROOFS);
        let names = self.fitting(names)?;
        for name in &names {
            self.enter(name, if begun.elapsed() < for_proofs { FIRST_PROOF } else { 0 })?;
            if *name == names[0] {
                self.tell_beforehand(name, names.len(), budget)?;
            }
        }
        self.refuse_if_empty()?;
        self.rounds(ROUNDS, window(budget * RUNG, ROUNDS * self.len(), FIRST_WINDOW))?;
        self.leave("0", (self.len().div_ceil(3)).max(FINALISTS), true);
        self.rounds(ROUNDS, window(budget * RUNG, ROUNDS * self.len(), SECOND_WINDOW))?;
        self.leave("1", SECOND_MOST, false);
        self.prove_all()?;
        self.refuse_if_empty()?;
        self.leave("1", FINALISTS, false);
        let base = self.best();
        for option in candidates::options_of(&self.plan_of(&base)?, &base) {
            self.enter_option(&base, &option)?;
        }
        self.enter_splits()?;
        // Enough rounds to tell any two of them apart, and more while there is time.
        let least = paired::rounds_to_tell(self.len()) + FURTHER_ROUNDS;
        let window = window(budget - self.measured_seconds, least * self.len(), FINAL_WINDOW);
        self.begin_final();
        while self.rounds_of_final < least || self.measured_seconds < budget {
            self.rounds(1, window)?;
            self.rounds_of_final += 1;
        }
        Ok(())
    }

    /// Says what comes on top of the budget, and how long it takes at least, once the first
    /// candidate is proved and loaded.
    fn tell_beforehand(&self, first: &str, candidates: usize, budget: f64) -> Result<(), RunError> {
        let options = candidates::options_of(&self.plan_of(first)?, first).len();
        let entered = candidates + options;
        let loading = self.first_entry.loading_seconds * entered as f64;
        // The whole proof has more transactions than the first one, and those that stay have it.
        let factor = (self.verify_transactions() as f64 / FIRST_PROOF as f64).max(1.0);
        let proof = self.first_entry.proof_seconds;
        let proofs =
            (proof * candidates as f64).min(budget * FIRST_PROOFS) + proof * factor * (SECOND_MOST + options) as f64;
        self.tell(&on_top(budget, candidates, options, loading, (self.verify_transactions() > 0).then_some(proofs)));
        Ok(())
    }
}

/// The sentences about what comes on top of a budget, in seconds. The checks at the end have no
/// estimate: nobody knows beforehand how many rows the windows insert.
fn on_top(budget: f64, candidates: usize, options: usize, loading: f64, proofs: Option<f64>) -> String {
    let tables = format!("the tables of {} and {}", counted(candidates, "candidate"), counted(options, "variant"));
    let parts = match proofs {
        Some(proofs) => {
            format!("{} to load {tables}, and {} to prove them right", show_seconds(loading), show_seconds(proofs))
        }
        None => format!("{} to load {tables}", show_seconds(loading)),
    };
    format!(
        "the budget of {} is the time for measuring. Besides it the tournament takes at least {parts}, by the times of \
         the first. Checking the finalists' rows at the end comes on top: the more rows were inserted, the longer it takes",
        show_seconds(budget)
    )
}

/// Formats a time in whole seconds.
fn show_seconds(seconds: f64) -> String {
    format!("{:.0} s", seconds.max(1.0))
}

/// Returns the length of each of these windows, which take this time together with the run before
/// each. It has a least and a largest value.
fn window(seconds: f64, windows: usize, (least, most): (f64, f64)) -> f64 {
    (seconds / windows.max(1) as f64 / (1.0 + WARMUP_AGAIN)).clamp(least, most)
}

/// Returns the highest rates of these entries that keep a limit of the 99th percentile.
fn rates(
    config: &RunConfig,
    entries: &[String],
    p99_ns: u64,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Vec<Saturation>, RunError> {
    let config = RunConfig { protocols: entries.to_vec(), verify: false, ..config.clone() };
    let goal =
        Goal { p99_ns: Some(p99_ns), p999_ns: None, precision: 0.1, transactions: 10_000, process: Default::default() };
    match saturate(&config.resolve()?, &goal, stop, observer) {
        Ok(file) => Ok(file.protocols),
        Err(RunError::Stopped) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Measures the best entries on each number of simulated cores. What can't be measured there is a
/// reason, and no error: the tournament is over.
fn on_cores(
    config: &RunConfig,
    question: &Question,
    finalists: &[Finalist],
    stop: &Stop,
    observer: &dyn Observer,
) -> (Vec<OnCores>, Vec<String>) {
    let entries: Vec<String> = finalists.iter().take(ON_CHIP).map(|it| it.entry.clone()).collect();
    let (mut all, mut reasons) = (Vec::new(), Vec::new());
    for &cores in &question.cores {
        if stop.is_requested() || entries.is_empty() {
            break;
        }
        let measured = config.clone().on(&format!("{}:{cores}", question.chip)).and_then(|mut here| {
            (here.protocols, here.verify) = (entries.clone(), false);
            (here.windows, here.window_seconds) = (CHIP_WINDOWS, CHIP_WINDOW);
            compare(&here.resolve()?, stop, observer)
        });
        match measured {
            Ok(result) => all.extend(result.protocols.into_iter().filter_map(|entry| {
                let Spread { median, min, max } = entry.measured?.throughput_tps;
                (median > 0.0).then_some(OnCores { cores, entry: entry.protocol, throughput_tps: median, min, max })
            })),
            Err(RunError::Stopped) => break,
            Err(error) => {
                reasons.push(format!("On {} nothing was measured: {error}.", counted(cores, "simulated core")))
            }
        }
    }
    (all, reasons)
}

/// Returns the plan of one entry.
fn plan_of(config: &RunConfig, entry: &str) -> Result<RunPlan, RunError> {
    RunConfig { protocols: vec![entry.into()], ..config.clone() }.resolve()
}

impl Advice {
    /// Describes the tournament behind the advice.
    pub fn basis(&self) -> String {
        let last = match self.rounds {
            0 => format!("{} left when it was stopped", self.finalists.len()),
            rounds => format!("{} in the final with {}", self.finalists.len(), counted(rounds, "round")),
        };
        format!(
            "advice for {} on {} ({}): {}, {last}, {}, {} of measuring and {} in all",
            self.config.workload,
            counted(self.environment.cores, "core"),
            self.environment.cpu_model,
            counted(self.candidates.len(), "candidate"),
            counted(self.windows, "window"),
            show_seconds(self.measured_seconds),
            show_seconds(self.elapsed_seconds)
        )
    }
}

impl Candidate {
    fn new(entry: &str, left: &str, why: String, of_best: Option<f64>) -> Candidate {
        Candidate { entry: entry.into(), left: left.into(), why, of_best }
    }
}

impl From<Left> for Candidate {
    fn from(left: Left) -> Candidate {
        Candidate::new(&left.entry, left.rung, left.why, left.of_best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An estimate without the checks at the end would be too low, so it says "at least".
    #[test]
    fn what_comes_on_top_of_the_budget_is_told_as_the_least() {
        let told = on_top(10.0, 30, 1, 4.0, Some(25.4));
        let parts = ["at least 4 s to load the tables of 30 candidates and 1 variant, and 25 s to prove", "Checking"];
        assert!(parts.iter().all(|part| told.contains(part)), "{told}");
        let unproved = on_top(10.0, 1, 2, 4.0, None);
        assert!(unproved.contains("1 candidate and 2 variants, by") && !unproved.contains("prove"), "{unproved}");
    }

    #[test]
    fn windows_share_their_part_of_the_budget() {
        // A budget of 10 s with 49 candidates: a fifth for each of the first two rungs.
        let first = window(10.0 * RUNG, ROUNDS * 49, FIRST_WINDOW);
        assert!((first * 1.2 * (ROUNDS * 49) as f64 - 2.0).abs() < 1e-9, "{first}");
        assert_eq!(window(600.0 * RUNG, ROUNDS * 49, FIRST_WINDOW), FIRST_WINDOW.1, "more is of no use there");
        assert_eq!(window(0.0, 9, FINAL_WINDOW), FINAL_WINDOW.0);
        assert_eq!(window(-1.0, 0, FINAL_WINDOW), FINAL_WINDOW.0, "nothing is left");
    }
}
