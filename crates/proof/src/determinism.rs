//! Proves a protocol deterministic: the same input leads to the same final state, wherever it runs
//! and however its transactions interleave.
//!
//! The input is what each client draws from the seed. It runs on the host with one thread for each
//! client, with fewer threads, and with one thread for all; on a simulated chip with as many
//! numbers of cores; and a shorter input also under the explorer, in many interleavings. Each run
//! is judged as any other: by its history, and by the workload's check.

use std::time::{Duration, Instant};

use contend_dispatch::session;
use contend_engine::Isolation;
use contend_judge::verify_history;
use contend_machine::Native;
use contend_model::counted;
use contend_protocols::deterministic_protocols;
use contend_runner::machine::NATIVE;
use contend_runner::names::option_name;
use contend_runner::session::{Interval, RunPurpose};
use contend_runner::{Observer, RunConfig, RunError, Stop};
use serde::Serialize;

use crate::explore::{ExploreConfig, StrategyChoice, explore};

/// How to prove.
#[derive(Clone, Debug)]
pub struct DeterminismConfig {
    /// The clients, 1 to [`CLIENTS_MAX`]. Each has a worker, and brings a transaction to each
    /// batch.
    pub clients: usize,
    /// The transactions that each client commits, 1 to [`TRANSACTIONS_MAX`].
    pub transactions: u64,
    /// The runs in each place, 1 or more.
    pub repeats: u64,
    /// The executions of the shorter input under the explorer with each of its strategies, 1 or
    /// more.
    pub executions: u64,
    /// The chip, as `--machine` names it.
    pub chip: String,
}

impl Default for DeterminismConfig {
    fn default() -> Self {
        DeterminismConfig { clients: 8, transactions: 200, repeats: 2, executions: 100, chip: "abyss".into() }
    }
}

/// The most clients: the most transactions that a thread has in flight.
pub const CLIENTS_MAX: usize = contend_runner::in_flight::INTERLEAVE_MAX;
/// The most transactions of a client. Each run's whole history is judged.
pub const TRANSACTIONS_MAX: u64 = 100_000;
/// The shorter input, which also runs under the explorer.
const SHORT: (usize, u64) = (3, 4);
/// The option by which clients share a thread.
const IN_FLIGHT: &str = "threads.interleave";
/// Options that let time decide about the members of a batch, or about a commit.
const AGAINST: [&str; 2] = ["engine.protect_after", "log.mode"];
/// The longest run, by the machine's clock. It ends much earlier.
const LENGTH: Duration = Duration::from_secs(600);

/// The runs of an input in a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The machine, and the number of its threads, cores or executions.
    pub place: String,
    /// Clients of the input.
    pub clients: usize,
    /// Transactions of each client.
    pub transactions: u64,
    /// Runs.
    pub runs: u64,
    /// Transactions that committed in all runs.
    pub commits: u64,
    /// Tries that a conflict aborted in all runs.
    pub aborts: u64,
    /// The final state of all runs, as a hash in hexadecimal digits.
    pub state: String,
}

/// The proof of an entry on a workload.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Determined {
    /// The protocol with its options, as it was written.
    pub protocol: String,
    /// The workload.
    pub workload: String,
    /// Where the inputs ran.
    pub places: Vec<Place>,
    /// The time that it took, in seconds.
    pub seconds: f64,
    /// The first difference of states, or what else was wrong.
    pub wrong: Option<String>,
}

impl Determined {
    /// Returns the transactions that committed in all runs.
    pub fn commits(&self) -> u64 {
        self.places.iter().map(|place| place.commits).sum()
    }
}

impl DeterminismConfig {
    /// Checks the numbers, and that all entries of a configuration can be proved deterministic on
    /// its workload.
    ///
    /// # Errors
    /// The first number that is out of its range, or the first entry that can't; the message names
    /// what is valid.
    pub fn check(&self, run: &RunConfig) -> Result<(), RunError> {
        self.check_numbers()?;
        run.resolve()?;
        let protocols: Vec<String> = entries(run)?.into_iter().map(|(_, entry)| entry).collect();
        let at = RunConfig { threads: self.clients, ..RunConfig { protocols, ..run.clone() }.on(&self.chip)? };
        if at.chip.is_none() {
            return Err(RunError::BadInput(format!(
                "'{}' is not a simulated chip; the host is tried anyway",
                self.chip
            )));
        }
        at.resolve().map(drop)
    }

    fn check_numbers(&self) -> Result<(), RunError> {
        let refuse = |message: String| Err(RunError::BadInput(message));
        match *self {
            Self { clients, .. } if !(1..=CLIENTS_MAX).contains(&clients) => {
                refuse(format!("clients is {clients}; valid: 1 to {CLIENTS_MAX}"))
            }
            Self { transactions, .. } if !(1..=TRANSACTIONS_MAX).contains(&transactions) => {
                refuse(format!("transactions is {transactions}; valid: 1 to {TRANSACTIONS_MAX}"))
            }
            Self { repeats: 0, .. } => refuse("repeats is 0; valid: 1 or more".into()),
            Self { executions: 0, .. } => refuse("schedules is 0; valid: 1 or more".into()),
            _ => Ok(()),
        }
    }
}

/// Returns the entries of a configuration, each with the setting that makes it deterministic. The
/// word `all` stands for the deterministic protocols that can run the workload.
///
/// # Errors
/// An entry's protocol is not deterministic, the workload is not valid, or an option is set that a
/// proof chooses itself.
fn entries(run: &RunConfig) -> Result<Vec<(String, String)>, RunError> {
    let deterministic = deterministic_protocols::<Native>();
    let own = deterministic.iter().map(|(_, with)| with.split('=').next().unwrap_or_default()).chain([IN_FLIGHT]);
    let own: Vec<&str> = own.chain(AGAINST).collect();
    let of_all = run.settings.clone();
    let of_entries =
        run.protocols.iter().flat_map(|entry| entry.split('+').skip(1).filter_map(|set| set.split_once('=')));
    let all = of_all.into_iter().chain(of_entries.map(|(name, value)| (name.to_owned(), value.to_owned())));
    for (name, _) in all {
        let name = option_name(&name);
        if own.contains(&name) {
            let why = if AGAINST.contains(&name) { "goes against it" } else { "is chosen by the proof itself" };
            return Err(RunError::BadInput(format!("a proof of determinism: '{name}' {why}; leave it out")));
        }
    }
    let refused = run.refused()?;
    let can_run = |name: &str| !refused.iter().any(|refusal| refusal.protocol == name);
    let mut entries = Vec::new();
    for entry in &run.protocols {
        if entry == contend_runner::config::ALL {
            let all = deterministic.iter().filter(|(name, _)| can_run(name));
            entries.extend(all.map(|(name, with)| (name.to_string(), format!("{name}+{with}"))));
            continue;
        }
        let name = entry.split('+').next().unwrap_or_default();
        let Some((_, with)) = deterministic.iter().find(|(other, _)| *other == name) else {
            let valid: Vec<&str> = deterministic.iter().map(|(name, _)| *name).collect();
            return Err(RunError::BadInput(format!("{name} is not deterministic; valid: {}", valid.join(", "))));
        };
        entries.push((entry.clone(), format!("{entry}+{with}")));
    }
    Ok(entries)
}

/// Proves each entry of a configuration deterministic on its workload. The configuration's machine,
/// threads and windows are not used.
///
/// # Errors
/// A number of `config` is out of its range, an entry is not deterministic or can't run the
/// workload, or a run can't go on.
pub fn determinism(
    run: &RunConfig,
    config: &DeterminismConfig,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Vec<Determined>, RunError> {
    config.check(run)?;
    let entries = entries(run)?;
    let mut all = Vec::new();
    for (name, entry) in entries {
        let proof = Proof { run, entry: &entry, config, stop };
        observer.begin(&format!("{name} on {}", run.workload), 1);
        let started = Instant::now();
        let mut determined = Determined { protocol: name, workload: run.workload.clone(), ..Determined::default() };
        determined.wrong = proof.run_all(&mut determined.places)?;
        determined.seconds = started.elapsed().as_secs_f64();
        observer.advance(1);
        observer.end();
        all.push(determined);
        if stop.is_requested() {
            break;
        }
    }
    Ok(all)
}

/// A proof of one entry.
struct Proof<'a> {
    run: &'a RunConfig,
    /// With the setting that makes it deterministic.
    entry: &'a str,
    config: &'a DeterminismConfig,
    stop: &'a Stop,
}

/// What came of an input, in a sentence, if it is wrong.
type Wrong = Option<String>;

impl Proof<'_> {
    /// Runs both inputs everywhere. Returns what is wrong.
    fn run_all(&self, places: &mut Vec<Place>) -> Result<Wrong, RunError> {
        let DeterminismConfig { clients, transactions, .. } = *self.config;
        let short = (SHORT.0.min(clients), SHORT.1.min(transactions));
        let mut wrong = self.run_input((clients, transactions), places)?;
        if wrong.is_none() && !self.stop.is_requested() {
            let before = places.len();
            wrong = self.run_input(short, places)?;
            if wrong.is_none() && !self.stop.is_requested() {
                wrong = self.explore_input(short, before, places)?;
            }
        }
        Ok(wrong)
    }

    /// Runs an input on the host and on a chip, with each number of threads that divides the number
    /// of clients.
    fn run_input(&self, input: (usize, u64), places: &mut Vec<Place>) -> Result<Wrong, RunError> {
        let begin = places.len();
        for machine in [NATIVE, &self.config.chip] {
            for threads in (1..=input.0).filter(|threads| input.0.is_multiple_of(*threads)) {
                if let Some(wrong) = self.run_at(machine, threads, input, places)? {
                    return Ok(Some(wrong));
                }
                if let Some(wrong) = difference(&places[begin..]) {
                    return Ok(Some(wrong));
                }
                if self.stop.is_requested() {
                    return Ok(None);
                }
            }
        }
        Ok(None)
    }

    /// Runs an input on a machine.
    fn run_at(
        &self,
        machine: &str,
        threads: usize,
        (clients, transactions): (usize, u64),
        places: &mut Vec<Place>,
    ) -> Result<Wrong, RunError> {
        let place = format!("{machine}, {threads} {}", if machine == NATIVE { "threads" } else { "cores" });
        let in_flight = clients / threads;
        let protocols = vec![format!("{}+{IN_FLIGHT}={in_flight}", self.entry)];
        let at = RunConfig { threads, protocols, ..self.run.clone().on(machine)? };
        let (mut commits, mut aborts, mut states) = (0, 0, Vec::new());
        for _ in 0..self.config.repeats {
            if self.stop.is_requested() {
                return Ok(None);
            }
            let plan = at.resolve()?;
            let mut session = session(&plan, &plan.protocols[0], RunPurpose::Repeat)?;
            session.load(self.stop, &|_| {})?;
            let all = clients as u64 * transactions;
            let interval = Interval { length: LENGTH, transactions_max: Some(all) };
            let result = session.run(interval, self.stop, &|_| {})?;
            session.settle()?;
            if self.stop.is_requested() {
                return Ok(None);
            }
            let verification = verify_history(&session.take_history(), session.info().isolation);
            if !verification.passed {
                return Ok(Some(format!("{place}: {}", verification.verdict)));
            }
            if let (Err(violation), true) = (session.check(), session.info().isolation != Isolation::None) {
                return Ok(Some(format!("{place}: the workload's check failed: {violation}")));
            }
            if verification.transactions != all {
                return Ok(Some(format!(
                    "{place}: {} of {} committed",
                    verification.transactions,
                    counted(all, "transaction")
                )));
            }
            commits += all;
            aborts += result.tally.conflicts();
            states.push(session.state_hash());
        }
        let state = states[0];
        if let Some(other) = states.iter().find(|other| **other != state) {
            return Ok(Some(format!("{place}: the final state is {state:016x} and {other:016x}")));
        }
        let (runs, state) = (self.config.repeats, format!("{state:016x}"));
        places.push(Place { place, clients, transactions, runs, commits, aborts, state });
        Ok(None)
    }

    /// Runs an input under the explorer. Its places on other machines stand behind `begin`.
    fn explore_input(
        &self,
        (clients, transactions): (usize, u64),
        begin: usize,
        places: &mut Vec<Place>,
    ) -> Result<Wrong, RunError> {
        for strategy in [StrategyChoice::Random, StrategyChoice::Pct(3)] {
            let at = RunConfig { protocols: vec![self.entry.to_owned()], ..self.run.clone() };
            let config = ExploreConfig {
                executions: self.config.executions,
                strategy: strategy.clone(),
                cores: Some(clients),
                transactions: Some(transactions),
                seed: self.run.seed,
                same_input: true,
                ..ExploreConfig::default()
            };
            for explored in explore(&at.resolve()?, &config, self.stop)? {
                let place = format!("explorer, {strategy}");
                if let Some(found) = &explored.found {
                    return Ok(Some(format!("{place}: {}", found.verdict)));
                }
                if explored.livelocks > 0 {
                    return Ok(Some(format!("{place}: {} without an end", counted(explored.livelocks, "execution"))));
                }
                let Some(state) = explored.state else { continue };
                places.push(Place {
                    place,
                    clients,
                    transactions,
                    runs: explored.executions,
                    commits: explored.commits,
                    aborts: explored.aborts,
                    state: format!("{state:016x}"),
                });
            }
            if let Some(wrong) = difference(&places[begin..]) {
                return Ok(Some(wrong));
            }
        }
        Ok(None)
    }
}

/// Returns a sentence that names the first place whose state differs from that of the first.
fn difference(places: &[Place]) -> Wrong {
    let (first, others) = places.split_first()?;
    let other = others.iter().find(|other| other.state != first.state)?;
    Some(format!("the final state is {} ({}) and {} ({})", first.state, first.place, other.state, other.place))
}
