//! Processes that are killed: whether what they had acknowledged is there afterwards.
//!
//! A process runs transactions on a directory and says which of them are durable ([`live`]). It is killed at a random moment (SIGKILL), also while it opens
//! the directory. Then the log is read, and what is found is checked (`store`); and another process goes on in the same directory, also
//! with other options, until it is killed.

mod child;
mod store;

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use contend_engine::{Isolation, Protocol};
use contend_log::{Directory, Log, LogConfig, LogError};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, with_protocol};
use serde::Serialize;

pub use child::{Life, live};
pub use store::Scale;
use store::{Expected, State};

use crate::config::{LabError, RunConfig, options};
use crate::dice::Dice;
use crate::durable::LogOptions;
use crate::watch::Stop;

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

/// When a transaction is durable that was acknowledged: names, and what they are called among the log's options.
pub const DURABILITIES: [(&str, &str); 3] = [("epoch", "epoch"), ("early", "elr"), ("conservative", "clr")];

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

/// One of this many processes is killed at any moment from its start on; the others after their first acknowledgement.
const KILLED_EARLY: u64 = 8;
/// A process that is silent for longer does not go on.
const PATIENCE: Duration = Duration::from_secs(120);

/// Who may run in a directory.
#[derive(Clone, Debug)]
struct Entry {
    protocol: String,
    name: String,
    durability: &'static str,
    settings: BTreeMap<String, String>,
}

struct Promises;

impl ProtocolVisitor<Native> for Promises {
    type Output = (Isolation, bool);

    fn visit<P: Protocol<Native>>(self) -> Self::Output {
        (P::INFO.isolation, P::SHOWS_UNCOMMITTED)
    }
}

fn entries(run: &RunConfig, config: &KillConfig) -> Result<Vec<Entry>, LabError> {
    let refuse = |message: String| Err(LabError::BadInput(message));
    let names = DURABILITIES.map(|(name, _)| name);
    if let Some(unknown) = config.durabilities.iter().find(|name| !names.contains(&name.as_str())) {
        return refuse(format!("unknown durability '{unknown}'; valid: {}", names.join(", ")));
    }
    let Scale { keys, threads, .. } = config.scale;
    if !(2..=1_000_000).contains(&keys) {
        return refuse(format!("keys is {keys}; valid: 2 to 1000000"));
    }
    if !(1..=256).contains(&threads) {
        return refuse(format!("threads is {threads}; valid: 1 to 256"));
    }
    if !(1..=60_000).contains(&config.life_ms) {
        return refuse(format!("life is {} ms; valid: 1 to 60000", config.life_ms));
    }
    if config.kills == 0 {
        return refuse("kills is 0; valid: 1 or more".into());
    }
    let mut all = Vec::new();
    for entrant in run.entrants()? {
        if entrant.settings.contains_key("log") {
            let valid = names.join(", ");
            return refuse(format!(
                "'{}' sets log, which follows from --durability here; valid: {valid}",
                entrant.name
            ));
        }
        let (isolation, shows) = with_protocol::<Native, _>(&entrant.protocol, Promises).expect("it is validated");
        // What has no isolation promises nothing.
        if isolation == Isolation::None {
            continue;
        }
        for (durability, log) in DURABILITIES {
            let is_asked = config.durabilities.iter().any(|name| name == durability);
            if is_asked && !(shows && durability == "conservative") {
                let mut settings = entrant.settings.clone();
                settings.insert("log".into(), log.into());
                options::<LogOptions>(&[], &settings)?.check(true)?;
                let (protocol, name) = (entrant.protocol.clone(), entrant.name.clone());
                all.push(Entry { protocol, name, durability, settings });
            }
        }
    }
    if all.is_empty() {
        let protocols = run.protocols.join(", ");
        return refuse(format!("there is nothing to test: {protocols} promises nothing, or not with this durability"));
    }
    Ok(all)
}

/// How many kills there will be.
///
/// # Errors
/// Bad input.
pub fn kills(run: &RunConfig, config: &KillConfig) -> Result<u64, LabError> {
    let entries = entries(&run.validated()?, config)?.len() as u64;
    Ok(config.kills.saturating_mul(if config.mixed { entries.min(1) } else { entries }))
}

/// Kills processes of each protocol with each durability. What is taken of `run`: protocols and settings. `command` makes the process of a life, which has to
/// call [`live`]; `progress` is told of each kill.
///
/// # Errors
/// Bad input, or a process can't be started.
pub fn kill_test(
    run: &RunConfig,
    config: &KillConfig,
    command: &dyn Fn(&Life) -> Result<Command, LabError>,
    stop: &Stop,
    progress: &dyn Fn(),
) -> Result<Vec<Killed>, LabError> {
    let entries = entries(&run.validated()?, config)?;
    let groups: Vec<Vec<Entry>> =
        if config.mixed { vec![entries] } else { entries.into_iter().map(|entry| vec![entry]).collect() };
    let mut all = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        if stop.is_requested() {
            break;
        }
        let Some(first) = group.first() else { continue };
        let (protocol, durability) = match group.len() {
            1 => (first.name.clone(), first.durability.to_owned()),
            count => (format!("{count} in turns"), "in turns".to_owned()),
        };
        let directory = config.directory.join(format!("{number}-{}-{}", first.protocol, first.durability));
        std::fs::create_dir_all(&directory)
            .map_err(|error| LabError::BadInput(format!("{} can't be made: {error}", directory.display())))?;
        let killed = Killed { protocol, durability, ..Killed::default() };
        let mut test = Test { config, group, command, killed, expected: Expected::new(config.scale) };
        if let Err(wrong) = test.run(&directory, stop, progress)? {
            test.killed.wrong = Some((wrong, directory));
        } else {
            // What is right is of no use to anybody, and it takes room.
            let _ = std::fs::remove_dir_all(&directory);
        }
        all.push(test.killed);
    }
    Ok(all)
}

struct Test<'a> {
    config: &'a KillConfig,
    group: &'a [Entry],
    command: &'a dyn Fn(&Life) -> Result<Command, LabError>,
    killed: Killed,
    expected: Expected,
}

impl Test<'_> {
    /// All kills in a directory; what is wrong, if anything is.
    fn run(&mut self, directory: &Path, stop: &Stop, progress: &dyn Fn()) -> Result<Result<(), String>, LabError> {
        let mut dice = Dice::new(self.config.scale.seed);
        let mut last = vec![0; self.config.scale.threads as usize];
        for number in 1..=self.config.kills {
            if stop.is_requested() {
                break;
            }
            let entry = &self.group[dice.below(self.group.len() as u64) as usize];
            let mut settings = entry.settings.clone();
            for option in ["cu", "ts"] {
                let value = if dice.one_in(2) { "on" } else { "off" };
                settings.entry(option.to_owned()).or_insert_with(|| value.to_owned());
            }
            let scale = self.config.scale;
            let seed = dice.next();
            let life =
                Life { directory: directory.to_owned(), protocol: entry.protocol.clone(), settings, scale, seed };
            let pause = Duration::from_micros(dice.below(self.config.life_ms * 1000));
            let lines = match self.kill(&life, !dice.one_in(KILLED_EARLY), pause)? {
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
            let found = match self.find(directory, dice.one_in(2)) {
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

    /// Runs a process and kills it after a while; with `waits` not before it has acknowledged a transaction. Returns what it has said: threads, and their
    /// last transactions that are durable.
    fn kill(&self, life: &Life, waits: bool, pause: Duration) -> Result<Result<Vec<(usize, u64)>, String>, LabError> {
        let failed = |error: std::io::Error| LabError::BadInput(format!("a process can't be run: {error}"));
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
