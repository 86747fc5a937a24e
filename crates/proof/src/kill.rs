//! Kill tests: after a process was killed, every transaction is there that it had acknowledged.
//!
//! A process runs transactions on a directory, and prints which of them are durable ([`live`]). It
//! is killed (SIGKILL) at a random moment, which may come while it still opens the directory. Then
//! the log is read, and its rows are checked (`store`). Another process, perhaps with other
//! options, goes on in the same directory until it is killed in turn.
//!
//! | module | what it holds |
//! | --- | --- |
//! | `child` | the process that is killed |
//! | `store` | its tables and transactions, and the check of the rows |

mod child;
mod store;

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use contend_engine::Isolation;
use contend_log::{Directory, Log, LogConfig, LogError};
use serde::Serialize;

pub use child::{Life, live};
pub use store::Scale;
use store::{Expected, State};

use contend_model::random::SplitMix64;
use contend_runner::durable::LogMode;
use contend_runner::{ProtocolPlan, RunConfig, RunError, Stop};

/// How to test.
#[derive(Clone, Debug)]
pub struct KillConfig {
    /// Kills of each protocol with each durability, at least 1.
    pub kills: u64,
    /// The durabilities, by their names in [`DURABILITIES`].
    pub durabilities: Vec<String>,
    /// Whether all protocols and durabilities take turns in one directory.
    pub mixed: bool,
    /// The size of the tables, and the seed of all random choices.
    pub scale: Scale,
    /// The longest life of a process after its first acknowledgement, in milliseconds, 1 to 60000.
    pub life_ms: u64,
    /// The directory in which each database gets one of its own.
    pub directory: PathBuf,
}

/// The durabilities by name, each with the mode of the log that gives it.
pub const DURABILITIES: [(&str, LogMode); 3] =
    [("epoch", LogMode::Epoch), ("early", LogMode::Elr), ("conservative", LogMode::Clr)];

/// The result of testing a protocol with a durability.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Killed {
    /// The protocol with its options, as it was written.
    pub protocol: String,
    /// Its durability.
    pub durability: String,
    /// Processes that were killed.
    pub kills: u64,
    /// Transactions that were acknowledged.
    pub acknowledged: u64,
    /// Other transactions that were there afterwards.
    pub others: u64,
    /// What is wrong, and the directory of the broken database.
    pub wrong: Option<(String, PathBuf)>,
}

/// One of this many processes may be killed before its first acknowledgement, the others only after
/// it.
const KILLED_EARLY: u64 = 8;
/// The exit status of a process that could not go on, for example because its disk is full. It has
/// said why on stderr. Such an end says nothing about the protocol or the log.
const COULD_NOT_GO_ON: i32 = 1;
/// A process that prints nothing for longer has failed.
const PATIENCE: Duration = Duration::from_secs(120);

/// A protocol with a durability.
#[derive(Clone, Debug)]
struct Entry {
    protocol: ProtocolPlan,
    durability: &'static str,
}

/// Tests that can be run: entries of a plan, each with the durabilities of the configuration.
#[derive(Clone, Debug)]
pub struct KillPlan {
    config: KillConfig,
    /// The entries that take turns in one directory.
    groups: Vec<Vec<Entry>>,
}

impl KillConfig {
    /// Turns a configuration into tests. Of `run`, the protocols and settings are used.
    ///
    /// # Errors
    /// A number is out of its range, `run` is not valid, or there is nothing to test.
    pub fn resolve(&self, run: &RunConfig) -> Result<KillPlan, RunError> {
        let plan = run.resolve()?;
        plan.refuse_in_flight("a kill test")?;
        self.check()?;
        let mut entries = Vec::new();
        for protocol in &plan.protocols {
            entries.extend(self.with_durabilities(protocol)?);
        }
        if entries.is_empty() {
            let protocols = run.protocols.join(", ");
            let or_else = || format!("{protocols} promises no isolation, or does not support this durability");
            let why = plan.refusal_of_logs().unwrap_or_else(or_else);
            return Err(RunError::BadInput(format!("there is nothing to test: {why}")));
        }
        let groups = if self.mixed { vec![entries] } else { entries.into_iter().map(|entry| vec![entry]).collect() };
        Ok(KillPlan { config: self.clone(), groups })
    }

    fn check(&self) -> Result<(), RunError> {
        let refuse = |message: String| Err(RunError::BadInput(message));
        let names = DURABILITIES.map(|(name, _)| name);
        if let Some(unknown) = self.durabilities.iter().find(|name| !names.contains(&name.as_str())) {
            return refuse(format!("unknown durability '{unknown}'; valid: {}", names.join(", ")));
        }
        let Scale { keys, threads, .. } = self.scale;
        if !(2..=1_000_000).contains(&keys) {
            return refuse(format!("keys is {keys}; valid: 2 to 1000000"));
        }
        if !(1..=256).contains(&threads) {
            return refuse(format!("threads is {threads}; valid: 1 to 256"));
        }
        if !(1..=60_000).contains(&self.life_ms) {
            return refuse(format!("life is {} ms; valid: 1 to 60000", self.life_ms));
        }
        if self.kills == 0 {
            return refuse("kills is 0; valid: 1 or more".into());
        }
        Ok(())
    }

    /// Returns the protocol with each durability of the configuration that it supports.
    fn with_durabilities(&self, protocol: &ProtocolPlan) -> Result<Vec<Entry>, RunError> {
        if protocol.sets("log.mode") {
            let valid = DURABILITIES.map(|(name, _)| name).join(", ");
            return Err(RunError::BadInput(format!(
                "'{}' sets log, which follows from --durability here; valid: {valid}",
                protocol.name
            )));
        }
        let mut all = Vec::new();
        for (durability, mode) in DURABILITIES {
            let is_asked = self.durabilities.iter().any(|name| name == durability);
            // A protocol without isolation has no promise that a test could break.
            let promises = protocol.info.isolation != Isolation::None
                && protocol.refuses_log.is_none()
                && !(protocol.shows_uncommitted && durability == "conservative");
            if is_asked && promises {
                let mut protocol = protocol.clone();
                protocol.log.mode = mode;
                protocol.log.check(true)?;
                protocol.settings.insert("log.mode".into(), mode.name().into());
                all.push(Entry { protocol, durability });
            }
        }
        Ok(all)
    }
}

impl KillPlan {
    /// Returns the number of kills.
    pub fn kills(&self) -> u64 {
        self.config.kills.saturating_mul(self.groups.len() as u64)
    }

    /// Kills processes of each protocol with each durability. `command` returns the command of a
    /// process that calls [`live`] with the given life. `progress` is called after each kill.
    ///
    /// # Errors
    /// A process can't be started, or a directory can't be made.
    pub fn run(
        &self,
        command: &dyn Fn(&Life) -> Result<Command, RunError>,
        stop: &Stop,
        progress: &dyn Fn(),
    ) -> Result<Vec<Killed>, RunError> {
        let config = &self.config;
        let mut all = Vec::new();
        for (number, group) in self.groups.iter().enumerate() {
            if stop.is_requested() {
                break;
            }
            let Some(first) = group.first() else { continue };
            let (protocol, durability) = match group.len() {
                1 => (first.protocol.name.clone(), first.durability.to_owned()),
                count => (format!("{count} in turns"), "in turns".to_owned()),
            };
            let directory = format!("{number}-{}-{}", first.protocol.info.name, first.durability);
            let directory = config.directory.join(directory);
            std::fs::create_dir_all(&directory)
                .map_err(|error| RunError::Io(format!("{} can't be made: {error}", directory.display())))?;
            let killed = Killed { protocol, durability, ..Killed::default() };
            let mut test = Test { config, group, command, killed, expected: Expected::new(config.scale) };
            if let Err(wrong) = test.run(&directory, stop, progress)? {
                test.killed.wrong = Some((wrong, directory));
            } else {
                // Only a broken database is worth its room.
                let _ = std::fs::remove_dir_all(&directory);
            }
            all.push(test.killed);
        }
        Ok(all)
    }
}

/// The test of the entries that take turns in one directory.
struct Test<'a> {
    config: &'a KillConfig,
    group: &'a [Entry],
    command: &'a dyn Fn(&Life) -> Result<Command, RunError>,
    killed: Killed,
    expected: Expected,
}

impl Test<'_> {
    /// Runs all kills in a directory. Returns what is wrong, if anything is.
    ///
    /// # Errors
    /// A process can't be run.
    fn run(&mut self, directory: &Path, stop: &Stop, progress: &dyn Fn()) -> Result<Result<(), String>, RunError> {
        let mut random = SplitMix64::new(self.config.scale.seed);
        let mut last = vec![0; self.config.scale.threads as usize];
        for number in 1..=self.config.kills {
            if stop.is_requested() {
                break;
            }
            let entry = &self.group[random.below(self.group.len() as u64) as usize];
            let mut settings = entry.protocol.settings.clone();
            for option in ["engine.commit_time_updates", "engine.timestamp_splitting"] {
                let value = if random.one_in(2) { "on" } else { "off" };
                settings.entry(option.to_owned()).or_insert_with(|| value.to_owned());
            }
            let scale = self.config.scale;
            let seed = random.draw();
            let protocol = entry.protocol.info.name.to_owned();
            let life = Life { directory: directory.to_owned(), protocol, settings, scale, seed };
            let pause = Duration::from_micros(random.below(self.config.life_ms * 1000));
            let lines = match self.kill(&life, !random.one_in(KILLED_EARLY), pause)? {
                Ok(lines) => lines,
                Err(wrong) => return Ok(Err(format!("process {number}: {wrong}"))),
            };
            self.killed.kills += 1;
            progress();
            let mut acknowledged = last.clone();
            for (thread, number) in lines {
                if let Some(last) = acknowledged.get_mut(thread) {
                    *last = number.max(*last);
                }
            }
            let found = match self.find(directory, random.one_in(2)) {
                Ok(state) => state,
                Err(error) => return Ok(Err(format!("after kill {number}: the log can't be opened: {error}"))),
            };
            // A thread may have committed those in flight, and one more that it has not counted
            // yet.
            if let Err(wrong) = self.expected.check(&found, &acknowledged, child::IN_FLIGHT + 1) {
                let shown: Vec<String> = life.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
                let (protocol, shown) = (&life.protocol, shown.join(","));
                return Ok(Err(format!("after kill {number}, of {protocol} with {shown}: {wrong}")));
            }
            let before: u64 = last.iter().sum();
            last = found.last(&scale);
            let acknowledged: u64 = acknowledged.iter().sum();
            self.killed.acknowledged += acknowledged - before;
            self.killed.others += last.iter().sum::<u64>() - acknowledged;
        }
        Ok(Ok(()))
    }

    /// Runs a process and kills it after `pause`; with `waits`, the pause begins at its first
    /// acknowledgement. Returns the lines that it printed: a thread, and the thread's last durable
    /// transaction. Returns in words if it ended by itself or printed nothing.
    ///
    /// # Errors
    /// The process can't be run.
    fn kill(&self, life: &Life, waits: bool, pause: Duration) -> Result<Result<Vec<(usize, u64)>, String>, RunError> {
        let failed = |error: std::io::Error| RunError::IoFailed(format!("a process can't be run: {error}"));
        let mut child = (self.command)(life)?.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut output = child.stdout.take().expect("it is piped");
        let (speaks, heard) = mpsc::channel();
        let listener = std::thread::spawn(move || {
            let (mut text, mut part) = (Vec::new(), [0; 4096]);
            // A pipe that fails is taken as closed.
            while let Ok(bytes @ 1..) = output.read(&mut part) {
                text.extend_from_slice(&part[..bytes]);
                // The receiver waits for the first message only, and may be gone.
                let _ = speaks.send(());
            }
            String::from_utf8_lossy(&text).into_owned()
        });
        let is_silent = waits && heard.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        std::thread::sleep(pause);
        let ended = child.try_wait().map_err(failed)?;
        if ended.is_none() {
            // On Unix this is SIGKILL.
            child.kill().map_err(failed)?;
        }
        let status = child.wait().map_err(failed)?;
        let text = listener.join().unwrap_or_default();
        if status.code() == Some(COULD_NOT_GO_ON) {
            return Err(RunError::IoFailed(format!(
                "a process could not go on, for the reason that it gives above; its database is {}",
                life.directory.display()
            )));
        }
        if let Some(ended) = ended.or_else(|| status.code().is_some().then_some(status)) {
            return Ok(Err(format!("it ended by itself, {ended}")));
        }
        if is_silent {
            return Ok(Err(format!("it has acknowledged nothing in {} seconds", PATIENCE.as_secs())));
        }
        // A line that was cut off is dropped.
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
        let parsed = lines.filter_map(|(thread, number)| Some((thread.parse().ok()?, number.parse().ok()?)));
        Ok(Ok(parsed.collect()))
    }

    /// Returns the rows in the directory. With `opens`, the log is opened, which may write to the
    /// directory; otherwise it is only read.
    fn find(&self, directory: &Path, opens: bool) -> Result<State, LogError> {
        let disk = Directory::open(directory)?;
        let recovered = match opens {
            true => {
                let config = LogConfig { threads: 1, workers: 1, ..LogConfig::default() };
                Log::open(Arc::new(disk), config)?.1
            }
            false => match contend_log::inspect::recover(&disk, 1, &|_| ()) {
                // The process was killed before it began a log.
                Err(LogError::NoLog { .. }) => return Ok(State::default()),
                found => found?,
            },
        };
        Ok(State::of(&recovered))
    }
}
