//! Processes that are killed: whether what they had acknowledged is there afterwards.
//!
//! A process runs transactions on a directory and says which of them are durable ([`live`]). It is
//! killed at a random moment (SIGKILL), also while it opens the directory. Then the log is read,
//! and what is found is checked (`store`); and another process goes on in the same directory, also
//! with other options, until it is killed.

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

/// What is to be tested.
#[derive(Clone, Debug)]
pub struct KillConfig {
    /// Kills of each protocol with each durability.
    pub kills: u64,
    /// Names of [`DURABILITIES`].
    pub durabilities: Vec<String>,
    /// Whether all protocols and durabilities take turns in one directory.
    pub mixed: bool,
    /// What is changed; its seed drives all chance.
    pub scale: Scale,
    /// The longest life of a process after its first acknowledgement, in milliseconds.
    pub life_ms: u64,
    /// The directory that the databases go to, one each.
    pub directory: PathBuf,
}

/// The durabilities by name, each with the mode of the log that gives it.
pub const DURABILITIES: [(&str, LogMode); 3] =
    [("epoch", LogMode::Epoch), ("early", LogMode::Elr), ("conservative", LogMode::Clr)];

/// What came of a protocol with a durability.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Killed {
    /// The protocol, as it was written.
    pub protocol: String,
    /// Its durability.
    pub durability: String,
    /// Processes that were killed.
    pub kills: u64,
    /// Transactions that were acknowledged.
    pub acknowledged: u64,
    /// Others that were there afterwards.
    pub others: u64,
    /// What is wrong, and the directory in which it is.
    pub wrong: Option<(String, PathBuf)>,
}

/// One of this many processes is killed at any moment from its start on; the others after their
/// first acknowledgement.
const KILLED_EARLY: u64 = 8;
/// A process that is silent for longer does not go on.
const PATIENCE: Duration = Duration::from_secs(120);

/// A protocol with a durability, one of those that run in a directory.
#[derive(Clone, Debug)]
struct Entry {
    protocol: ProtocolPlan,
    durability: &'static str,
}

/// Tests that can be run: entries of a plan, each with the durabilities that were asked for.
#[derive(Clone, Debug)]
pub struct KillPlan {
    config: KillConfig,
    /// The entries that take turns in one directory.
    groups: Vec<Vec<Entry>>,
}

impl KillConfig {
    /// Turns a configuration into tests. Protocols and settings of `run` have a meaning here.
    ///
    /// # Errors
    /// A number is out of range, `run` is not valid, or there is nothing to test.
    pub fn resolve(&self, run: &RunConfig) -> Result<KillPlan, RunError> {
        let plan = run.resolve()?;
        self.check()?;
        let mut entries = Vec::new();
        for protocol in &plan.protocols {
            entries.extend(self.with_durabilities(protocol)?);
        }
        if entries.is_empty() {
            let protocols = run.protocols.join(", ");
            return Err(RunError::BadInput(format!(
                "there is nothing to test: {protocols} promises nothing, or not with this durability"
            )));
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

    /// Returns the protocol with each durability that was asked for and goes with it.
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
            // A protocol without isolation promises nothing.
            let promises = protocol.info.isolation != Isolation::None
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

    /// Kills processes of each protocol with each durability. `command` makes the process of a
    /// life, which has to call [`live`]; `progress` is called after each kill.
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
                // A database that is right is of no use, and takes room.
                let _ = std::fs::remove_dir_all(&directory);
            }
            all.push(test.killed);
        }
        Ok(all)
    }
}

struct Test<'a> {
    config: &'a KillConfig,
    group: &'a [Entry],
    command: &'a dyn Fn(&Life) -> Result<Command, RunError>,
    killed: Killed,
    expected: Expected,
}

impl Test<'_> {
    /// All kills in a directory; what is wrong, if anything is.
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
                Err(error) => return Ok(Err(format!("after kill {number}: it can't be opened: {error}"))),
            };
            // Those in flight, and one more that is about to be.
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

    /// Runs a process and kills it after a while; with `waits` not before it has acknowledged a
    /// transaction. Returns what it has said: threads, and their last transactions that are
    /// durable.
    fn kill(&self, life: &Life, waits: bool, pause: Duration) -> Result<Result<Vec<(usize, u64)>, String>, RunError> {
        let failed = |error: std::io::Error| RunError::IoFailed(format!("a process can't be run: {error}"));
        let mut child = (self.command)(life)?.stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut output = child.stdout.take().expect("it is piped");
        let (speaks, heard) = mpsc::channel();
        let listener = std::thread::spawn(move || {
            let (mut text, mut part) = (Vec::new(), [0; 4096]);
            // A pipe that fails has no more to say.
            while let Ok(bytes @ 1..) = output.read(&mut part) {
                text.extend_from_slice(&part[..bytes]);
                // The other end is needed for the first word only.
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
        if let Some(ended) = ended.or_else(|| status.code().is_some().then_some(status)) {
            return Ok(Err(format!("it ended by itself, {ended}")));
        }
        if is_silent {
            return Ok(Err(format!("it has acknowledged nothing in {} seconds", PATIENCE.as_secs())));
        }
        // A line that was cut off says nothing.
        let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')?.split_once(' '));
        let parsed = lines.filter_map(|(thread, number)| Some((thread.parse().ok()?, number.parse().ok()?)));
        Ok(Ok(parsed.collect()))
    }

    /// What the directory has: found by a reader, or by opening it, which may write to it.
    fn find(&self, directory: &Path, opens: bool) -> Result<State, LogError> {
        let disk = Directory::open(directory)?;
        let recovered = match opens {
            true => {
                let config = LogConfig { threads: 1, workers: 1, ..LogConfig::default() };
                Log::open(Arc::new(disk), config)?.1
            }
            false => match contend_log::inspect::recover(&disk, 1, &|_| ()) {
                // It was killed before there was a log.
                Err(LogError::NoLog { .. }) => return Ok(State::default()),
                found => found?,
            },
        };
        Ok(State::of(&recovered))
    }
}
