//! The flags of `sql`.

use std::io::{BufRead, Read};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use contend_runner::RunConfig;
use contend_runner::arrivals::{ArrivalProcess, Arrivals, Rate};
use contend_runner::units::parse_time;
use contend_sql::litmus::LitmusResult;
use contend_sql::run::SqlConfig;
use contend_sql::system::ALL;
use contend_sql::target::Family;
use contend_sql::{SqlResult, Target};

use super::values::{add_settings, chosen_twice, names, whole};
use crate::UserError;

#[derive(Debug, Args)]
pub(crate) struct SqlArgs {
    /// The path of a workload file, or `litmus` for the table of anomalies by level, which takes
    /// --url, --isolation, --json, --out and --force alone
    #[arg(value_name = "FILE.toml|litmus")]
    pub(crate) file: String,
    /// The database: postgres://USER:PASSWORD@HOST:PORT/DATABASE, mysql://..., sqlite:PATH; of
    /// several hosts, separated by commas, each client takes one in turn; `-` reads the URL from
    /// stdin, so that no list of processes shows a password
    #[arg(long, value_name = "URL")]
    url: String,
    /// Isolation levels, separated by commas, as the system names them (repeatable-read), or `all`
    #[arg(long, value_name = "A,B,...", value_delimiter = ',', default_value = ALL)]
    isolation: Vec<String>,
    /// Clients, 1 to 1000, each with a connection and a thread of its own [default: 8]
    #[arg(long, visible_alias = "threads", value_name = "N", value_parser = whole::<usize>)]
    clients: Option<usize>,
    /// Length of the measured run of each level, in seconds [default: 5]
    #[arg(long, value_name = "S", allow_hyphen_values = true)]
    seconds: Option<f64>,
    /// Let the transactions of the measured run arrive at this rate a second, as in 2k, with
    /// exponential gaps, and measure response times from the moment when each was due [default: a
    /// closed loop, in which a client starts a transaction when its last one has ended]
    #[arg(long, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<String>,
    /// Transactions of the recorded run that each level is judged by; the run also ends after ten
    /// times --seconds, or after a minute if that is longer [default: 5000]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    verify_transactions: Option<u64>,
    /// How long a client that has lost its connection tries to get another one, on any of the
    /// hosts (30s, 2m); without it, a lost connection ends the run; SQLite has no connections
    #[arg(long, value_name = "TIME", value_parser = parse_time, allow_hyphen_values = true)]
    reconnect: Option<Duration>,
    /// Also run these protocols of the engine on the same file, with as many clients and the
    /// measured round trip before each statement
    #[arg(long, value_name = "P,Q,...", value_delimiter = ',')]
    beside: Vec<String>,
    /// Set a parameter of the file, as NAME.PARAMETER=VALUE, or with --beside an option of the
    /// engine; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE")]
    settings: Vec<String>,
    /// Seed of all random choices [default: 42]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    seed: Option<u64>,
    /// Write the history of the recorded run to this file as JSON lines, or to stdout (-); it needs
    /// a single isolation level
    #[arg(long, value_name = "FILE")]
    pub(crate) history: Option<PathBuf>,
    /// The folder for the page report.html, the data results.json, and for a workload file a
    /// history of each level, history-LEVEL.jsonl
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Overwrite the files in the folder of --out
    #[arg(long, requires = "out")]
    pub(crate) force: bool,
    /// Write the result to this file as JSON, or to stdout (-); the table then goes to stderr
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

/// The name that stands for the table of anomalies.
pub(crate) const LITMUS: &str = "litmus";
/// The values of flags that are not given.
const CLIENTS: usize = 8;
const SECONDS: f64 = 5.0;
const VERIFY_TRANSACTIONS: u64 = 5000;
const SEED: u64 = 42;
/// The most bytes of a URL that is read from stdin, which may have no end.
const URL_BYTES_MAX: u64 = 1 << 16;
/// The longest measured run, in seconds: a day.
const SECONDS_MAX: f64 = 86_400.0;
/// The longest recorded run.
const VERIFY_MAX: u64 = 1_000_000;

impl SqlArgs {
    /// Returns what the flags ask for.
    ///
    /// # Errors
    /// A flag is not valid.
    pub(crate) fn config(&self) -> Result<SqlConfig, UserError> {
        let (clients, seconds, verify_transactions) = (self.clients(), self.seconds(), self.verify_transactions());
        if !(1..=1000).contains(&clients) {
            return Err(UserError::refused(format!("--clients: {clients} is out of range; valid: 1 to 1000")));
        }
        if !(seconds > 0.0 && seconds <= SECONDS_MAX) {
            return Err(UserError::refused(format!("--seconds: {seconds} is out of range; valid: above 0, to 86400")));
        }
        if !(1..=VERIFY_MAX).contains(&verify_transactions) {
            return Err(UserError::refused(format!(
                "--verify-transactions: {verify_transactions} is out of range; valid: 1 to {VERIFY_MAX}"
            )));
        }
        let levels = names(&self.isolation);
        if self.history.is_some() && (levels.len() != 1 || levels[0] == ALL) {
            return Err(UserError::refused(
                "--history holds the history of one level; valid: one level by --isolation, or --out for all levels",
            ));
        }
        let (rate, target) = (self.rate()?, self.target()?);
        if self.reconnect.is_some() && target.family() == Family::Sqlite {
            return Err(UserError::refused(
                "--reconnect has no effect on SQLite, which has no connections; valid with postgres:// and mysql://",
            ));
        }
        Ok(SqlConfig {
            target,
            levels,
            clients,
            seconds,
            verify_transactions,
            rate,
            reconnect: self.reconnect.unwrap_or_default(),
            seed: self.seed(),
        })
    }

    fn clients(&self) -> usize {
        self.clients.unwrap_or(CLIENTS)
    }

    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(SECONDS)
    }

    fn verify_transactions(&self) -> u64 {
        self.verify_transactions.unwrap_or(VERIFY_TRANSACTIONS)
    }

    fn seed(&self) -> u64 {
        self.seed.unwrap_or(SEED)
    }

    /// Returns the database and the levels of the table of anomalies.
    ///
    /// # Errors
    /// A flag is not valid, or makes sense with a workload file only.
    pub(crate) fn litmus(&self) -> Result<(Target, Vec<String>), UserError> {
        let of_files = self.flags_of_files();
        if !of_files.is_empty() {
            let belong = if of_files.len() == 1 { "belongs" } else { "belong" };
            return Err(UserError::refused(format!(
                "{} {belong} to a workload file; valid with {LITMUS}: --url, --isolation, --json, --out, --force",
                of_files.join(", ")
            )));
        }
        Ok((self.target()?, names(&self.isolation)))
    }

    /// Returns the rate of arrivals, if there is one.
    fn rate(&self) -> Result<Option<f64>, UserError> {
        let parse = |text: &String| match Rate::parse(text) {
            Ok(Rate::Constant(rate)) => Ok(rate),
            Ok(_) => Err(UserError::refused(format!("--rate: '{text}' changes; valid here: one rate, as in 2k"))),
            // A schedule of rates, which other verbs take, is not valid here.
            Err(why) => {
                let what = why.split("; valid").next().unwrap_or_default();
                Err(UserError::refused(format!("--rate: {what}; valid here: one rate above 0, to 100M, as in 2k")))
            }
        };
        self.rate.as_ref().map(parse).transpose()
    }

    /// Returns the flags that were given and make sense with a workload file only.
    fn flags_of_files(&self) -> Vec<&'static str> {
        // All fields are named, so that a new flag has to be sorted in.
        let SqlArgs {
            file: _,
            url: _,
            isolation: _,
            clients,
            seconds,
            rate,
            verify_transactions,
            reconnect,
            beside,
            settings,
            seed,
            history,
            out: _,
            force: _,
            json: _,
        } = self;
        let given = [
            ("--clients", clients.is_some()),
            ("--seconds", seconds.is_some()),
            ("--rate", rate.is_some()),
            ("--verify-transactions", verify_transactions.is_some()),
            ("--reconnect", reconnect.is_some()),
            ("--beside", !beside.is_empty()),
            ("--set", !settings.is_empty()),
            ("--seed", seed.is_some()),
            ("--history", history.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(flag, _)| flag).collect()
    }

    /// Refuses an option of --set that has no effect without --beside: it is no parameter of the
    /// file.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn check_settings(&self, parameters: &[&str]) -> Result<(), UserError> {
        let name = |setting: &String| setting.split_once('=').map_or("", |(name, _)| name.trim()).to_owned();
        let mut names = self.settings.iter().map(name);
        let Some(other) = names.find(|name| self.beside.is_empty() && !parameters.contains(&name.as_str())) else {
            return Ok(());
        };
        let valid = if parameters.is_empty() { "none, for the file has no parameters" } else { &parameters.join(", ") };
        Err(UserError::refused(format!(
            "--set {other} has no effect on a database: it is an option of the engine; valid without --beside: {valid}"
        )))
    }

    /// Returns the command that repeats a run. Its URL has no password.
    pub(crate) fn command(&self, result: &SqlResult) -> String {
        let (clients, seconds, verify_transactions) = (self.clients(), self.seconds(), self.verify_transactions());
        let (file, seed) = (&self.file, self.seed());
        let mut command = format!(
            "contend sql {file} --url {} --isolation {} --clients {clients} --seconds {seconds} \
             --verify-transactions {verify_transactions} --seed {seed}",
            result.database,
            self.isolation.join(",")
        );
        let lists = [("--rate", self.rate.clone()), ("--beside", Some(self.beside.join(",")))];
        for (flag, value) in lists {
            command +=
                &value.filter(|value| !value.is_empty()).map_or(String::new(), |value| format!(" {flag} {value}"));
        }
        command += &self.reconnect.map_or(String::new(), |time| format!(" --reconnect {}s", time.as_secs_f64()));
        self.settings.iter().for_each(|setting| command += &format!(" --set {setting}"));
        command
    }

    /// Returns the command that repeats the table of anomalies. Its URL has no password.
    pub(crate) fn litmus_command(&self, result: &LitmusResult) -> String {
        format!("contend sql {LITMUS} --url {} --isolation {}", result.database, self.isolation.join(","))
    }

    fn target(&self) -> Result<Target, UserError> {
        let mut url = self.url.clone();
        if url == "-" {
            url.clear();
            std::io::stdin()
                .lock()
                .take(URL_BYTES_MAX)
                .read_line(&mut url)
                .map_err(|error| UserError::refused(format!("--url -: {error}")))?;
            if url.len() as u64 == URL_BYTES_MAX {
                return Err(UserError::refused(format!("--url -: the line has {URL_BYTES_MAX} bytes or more")));
            }
        }
        Target::read(url.trim()).map_err(|error| UserError::refused(format!("--url: {error}")))
    }

    /// Returns the engine's configuration with the workload file: for its tables and options.
    ///
    /// # Errors
    /// A setting is no setting.
    pub(crate) fn workload(&self) -> Result<RunConfig, UserError> {
        let mut config = RunConfig {
            workload: self.file.clone(),
            protocols: if self.beside.is_empty() { vec!["silo".into()] } else { names(&self.beside) },
            threads: self.clients(),
            seed: self.seed(),
            ..RunConfig::default()
        };
        add_settings(&mut config, &self.settings)?;
        Ok(config)
    }

    /// Refuses a protocol that is there twice.
    ///
    /// # Errors
    /// There is one.
    pub(crate) fn check_beside(&self) -> Result<(), UserError> {
        match chosen_twice(&names(&self.beside)) {
            Some(name) => Err(UserError::refused(format!("--beside: {name} is given twice; valid: once"))),
            None => Ok(()),
        }
    }

    /// Returns the configuration of the engine's runs, with this round trip in microseconds;
    /// nothing without `--beside`.
    ///
    /// # Errors
    /// A setting or a protocol is not valid.
    pub(crate) fn beside(&self, round_trip_us: f64) -> Result<Option<RunConfig>, UserError> {
        let protocols = names(&self.beside);
        if protocols.is_empty() {
            return Ok(None);
        }
        let mut config = RunConfig { protocols, window_seconds: self.seconds(), windows: 1, ..self.workload()? };
        config.arrivals = self.rate()?.map(|rate| Arrivals {
            rates: vec![(0.0, rate)],
            process: ArrivalProcess::Poisson,
            late_seconds: None,
        });
        let round_trip = (round_trip_us.round() as u64).to_string();
        config.settings.entry("interactive.round_trip_us".into()).or_insert(round_trip);
        Ok(Some(config))
    }
}
