//! The run of a workload file at each isolation level: measured as it is, then recorded and judged.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use contend_history::{History, Isolation, check_bounded, replay};
use contend_workloads::file::view::{RowMemory, Value, View};

use crate::client::{Done, Try, Until, histogram};
use crate::connection::{Failure, Place};
use crate::execute::{Plain, Tried, attempt, texts};
use crate::losses::{LastRows, add_seen, losses};
use crate::record::{Fault, Recorded, Recorder, RecordingTexts, history};
use crate::result::{Counts, KindResult, LevelResult, Losses, Measured, OpenLoop, SqlResult, Verified};
use crate::system::{Level, Server};
use crate::target::{Family, Target};
use crate::text::{Purpose, create, last_versions, load, quoted, whole_table};

/// The most rows that one statement loads, and the most values: SQLite takes 32,766.
const LOADED_TOGETHER: usize = 100;
const VALUES_MAX: usize = 30_000;
/// Statements of a transaction that loads.
const STATEMENTS_IN_TRANSACTION: u64 = 100;
/// The longest recorded run, in lengths of a measured one: deadlocks may take seconds each.
const VERIFY_SECONDS: f64 = 10.0;
/// The least of this longest time.
const VERIFY_LEAST: Duration = Duration::from_secs(60);
/// Statements by which the round trip is measured.
const ROUND_TRIPS: usize = 201;

/// What to run.
#[derive(Clone, Debug)]
pub struct SqlConfig {
    /// The database.
    pub target: Target,
    /// The names of the levels, or `all`.
    pub levels: Vec<String>,
    /// The clients.
    pub clients: usize,
    /// The length of a measured run in seconds.
    pub seconds: f64,
    /// The transactions of a recorded run.
    pub verify_transactions: u64,
    /// The rate at which transactions arrive in a measured run, a second; none: each client begins
    /// one when its last one has ended.
    pub rate: Option<f64>,
    /// How long a client that has lost its connection tries to get another one, on any host. 0 ends
    /// the run.
    pub reconnect: Duration,
    /// The seed of all draws.
    pub seed: u64,
}

/// Why there is no result. A run that fails when it has figures returns them, with its error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The input is bad, or the server refuses the run before it has begun.
    #[error("{0}")]
    Refused(String),
    /// The run began, and could not go on.
    #[error("{0}")]
    Failed(String),
}

impl SqlError {
    fn with(self, more: impl Fn(String) -> String) -> SqlError {
        match self {
            SqlError::Refused(message) => SqlError::Refused(more(message)),
            SqlError::Failed(message) => SqlError::Failed(more(message)),
        }
    }
}

/// What a run tells its caller, and asks it.
pub trait Watcher: Sync {
    /// Whether the run is to stop.
    fn is_stopped(&self) -> bool;

    /// A piece of work begins.
    fn begin(&self, what: &str);

    /// The history of a level has been judged. If the caller can't keep it, the run goes on.
    fn history(&self, level: &str, history: &History);
}

/// The tables of a run: a place of their own that is removed at the end, whatever happens.
pub(crate) struct Made {
    pub(crate) place: Place,
    pub(crate) server: Server,
    is_there: bool,
}

impl Made {
    pub(crate) fn new(target: &Target) -> Result<Made, SqlError> {
        let random = RandomState::new().hash_one(std::process::id()) as u32;
        let place = Place { target: target.clone(), name: format!("contend_{random:08x}") };
        // A place that is made may still be of no use. Then it is removed again.
        let server = place.make().map_err(SqlError::Refused)?;
        Ok(Made { place, server, is_there: true })
    }

    /// Removes the place when a run has ended. If that is not possible, the run's error says so:
    /// that of its result, if it has one. `error` returns its place.
    pub(crate) fn remove<R>(
        mut self,
        outcome: Result<R, SqlError>,
        error: fn(&mut R) -> &mut Option<String>,
    ) -> Result<R, SqlError> {
        self.is_there = false;
        let Err(removed) = self.place.remove() else { return outcome };
        let removed = format!("{} could not be removed: {removed}", self.place.name);
        let both = |first: String| format!("{first}; {removed}");
        outcome.map_err(|first| first.with(both)).map(|mut result| {
            let place = error(&mut result);
            *place = Some(place.take().map_or(removed.clone(), both));
            result
        })
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.is_there {
            // The run has failed already, and its error is the one to tell.
            let _ = self.place.remove();
        }
    }
}

/// Runs a workload file at each level. `measured` has the user's size, `verified` a small one. If
/// the database fails when there are figures, the result has them and the error. The tables are
/// removed in any case.
///
/// # Errors
/// The database can't be reached, refuses, or fails before there are figures.
pub fn run(
    config: &SqlConfig,
    workload: &str,
    measured: &View,
    verified: &View,
    watcher: &dyn Watcher,
) -> Result<SqlResult, SqlError> {
    let made = Made::new(&config.target)?;
    let outcome = match made.server.product.chosen(&config.levels) {
        Ok(chosen) => levels(config, workload, [measured, verified], watcher, &made, &chosen),
        Err(error) => Err(SqlError::Refused(format!("{}: {error}", made.server.version))),
    };
    made.remove(outcome, |result| &mut result.error)
}

/// Runs a workload file at these levels.
///
/// # Errors
/// The database fails before there are figures.
pub(crate) fn levels(
    config: &SqlConfig,
    workload: &str,
    [measured, verified]: [&View; 2],
    watcher: &dyn Watcher,
    made: &Made,
    chosen: &[Level],
) -> Result<SqlResult, SqlError> {
    let Made { place, server, .. } = made;
    let mut result = SqlResult {
        workload: workload.into(),
        database: config.target.to_string(),
        server: server.version.clone(),
        clients: config.clients,
        round_trip_us: round_trip(place).map_err(SqlError::Failed)?,
        seed: config.seed,
        levels: Vec::new(),
        partial: false,
        error: None,
    };
    for level in chosen {
        let run = Run { config, place, server, level: *level, watcher };
        let mut of_level = None;
        let outcome = run.both([measured, verified], &mut of_level);
        let is_whole = of_level.as_ref().is_some_and(|of: &LevelResult| of.verified.is_some());
        result.levels.extend(of_level);
        result.error = outcome.err().map(|error| format!("{}: {error}", level.name));
        if result.error.is_some() || !is_whole {
            result.partial = true;
            break;
        }
    }
    match result.error {
        Some(error) if result.levels.is_empty() => Err(SqlError::Failed(error)),
        _ => Ok(result),
    }
}

/// Returns the median time of the smallest statement, in microseconds.
fn round_trip(place: &Place) -> Result<f64, String> {
    let mut session = place.open(0, true)?;
    let mut times = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let start = Instant::now();
        session.execute("select 1", &[]).map_err(Failure::words)?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    Ok(times[ROUND_TRIPS / 2].as_nanos() as f64 / 1e3)
}

/// Creates the tables of a view, and loads them. Tables of these names are removed before.
///
/// # Errors
/// A statement fails, in the database's words.
pub(crate) fn prepare(
    place: &Place,
    server: &Server,
    view: &View,
    purpose: Purpose,
    watcher: &dyn Watcher,
) -> Result<(), String> {
    let mut session = place.open_any(server.product)?;
    let words = |failure: Failure| failure.words();
    for (number, relation) in view.relations().iter().enumerate() {
        let name = quoted(server.product.family(), &relation.name);
        session.batch(&format!("drop table if exists {name}")).map_err(words)?;
        for statement in create(server.product, relation, purpose) {
            session.batch(&statement).map_err(words)?;
        }
        let mut memory = RowMemory::default();
        let together = (VALUES_MAX / relation.columns.len()).clamp(1, LOADED_TOGETHER);
        let full = load(server.product, relation, together, purpose);
        let mut rows = (0..relation.rows).filter_map(|row| view.row(number, row, &mut memory)).peekable();
        let mut loaded = 0;
        while rows.peek().is_some() && !watcher.is_stopped() {
            session.batch("begin").map_err(words)?;
            while rows.peek().is_some() {
                let some: Vec<Vec<Value>> = rows.by_ref().take(together).collect();
                let count = some.len();
                let values: Vec<Value> = some.into_iter().flatten().collect();
                let last = (count < together).then(|| load(server.product, relation, count, purpose));
                session.execute(last.as_ref().unwrap_or(&full), &values).map_err(words)?;
                loaded += 1;
                if loaded % STATEMENTS_IN_TRANSACTION == 0 {
                    break;
                }
            }
            session.batch("commit").map_err(words)?;
        }
        if server.product.family() == Family::Postgres {
            // Without figures of a new table, the planner takes it to be small.
            session.batch(&format!("analyze {name}")).map_err(words)?;
        }
    }
    Ok(())
}

/// Checks the invariants on the database. Returns a sentence about each that does not hold.
fn check(place: &Place, server: &Server, view: &View) -> Result<Vec<String>, String> {
    let mut session = place.open_any(server.product)?;
    let checks = view.check(|asked| {
        let (text, values) = whole_table(server.product, &view.relations()[asked.relation], asked);
        let (rows, _) = session.execute(&text, &values)?;
        Ok(rows.iter().map(|row| row.iter().map(Value::number).collect()).collect())
    });
    checks
        .map(|checks| checks.failed)
        .map_err(|failure: Failure| format!("the check of the invariants: {}", failure.words()))
}

/// Returns the last version of each row.
fn last_rows(place: &Place, server: &Server, view: &View) -> Result<LastRows, String> {
    let mut session = place.open_any(server.product)?;
    let mut last = LastRows::new();
    for (table, relation) in view.relations().iter().enumerate() {
        let (rows, _) = session.execute(&last_versions(server.product, relation), &[]).map_err(Failure::words)?;
        for mut row in rows {
            let mark = row.pop().map_or(0, |mark| mark.number()) as u64;
            last.insert((table, row.iter().map(Value::number).collect()), mark);
        }
    }
    Ok(last)
}

/// One level of a run.
pub(crate) struct Run<'a> {
    pub(crate) config: &'a SqlConfig,
    pub(crate) place: &'a Place,
    pub(crate) server: &'a Server,
    pub(crate) level: Level,
    pub(crate) watcher: &'a dyn Watcher,
}

impl Run<'_> {
    /// Measures and verifies. What was found until an error or a stop is in `found`.
    ///
    /// # Errors
    /// The database has failed, in its own words.
    fn both(&self, [measured, verified]: [&View; 2], found: &mut Option<LevelResult>) -> Result<(), String> {
        let Some(figures) = self.measure(measured)? else { return Ok(()) };
        let found = found.insert(LevelResult { level: self.level, measured: figures, verified: None });
        found.measured.failed_invariants = check(self.place, self.server, measured)?;
        let Some(judged) = self.verify(verified)? else { return Ok(()) };
        let judged = found.verified.insert(judged);
        judged.failed_invariants = check(self.place, self.server, verified)?;
        Ok(())
    }

    /// Runs the workload as it is. Returns no figures if it was stopped. The invariants are not
    /// checked yet.
    fn measure(&self, view: &View) -> Result<Option<Measured>, String> {
        let SqlConfig { seconds, .. } = *self.config;
        self.watcher.begin(&format!("{}: load", self.level.name));
        prepare(self.place, self.server, view, Purpose::Measure, self.watcher)?;
        self.watcher.begin(&format!("{}: measure", self.level.name));
        let texts = texts(self.server.product, view, Purpose::Measure);
        let until = Until::Time(Duration::from_secs_f64(seconds));
        let done = self.clients(view, until, |session, Try { client, input, .. }| {
            let mut plain = Plain { session, texts: &texts };
            let tried = attempt(view, client, input, &mut plain, |plain| &mut *plain.session)?;
            Ok((tried, None))
        })?;
        if self.watcher.is_stopped() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        done.iter().for_each(|done| counts.add(&done.counts));
        let seconds = done.iter().map(|done| done.seconds).fold(0.0, f64::max);
        let kinds = view.kinds().iter().enumerate().map(|(kind, name)| {
            let mut all = histogram();
            done.iter().for_each(|done| all.add(&done.latencies[kind]).expect("histograms of one shape"));
            let at = |quantile: f64| all.value_at_quantile(quantile) as f64;
            KindResult {
                kind: (*name).into(),
                commits: all.len(),
                p50_us: at(0.5),
                p99_us: at(0.99),
                p999_us: at(0.999),
            }
        });
        let open_loop = self.config.rate.map(|rate| {
            let sum = |of: fn(&Done) -> u64| done.iter().map(of).sum();
            OpenLoop::new(rate, sum(|done| done.offered), sum(|done| done.not_begun))
        });
        Ok(Some(Measured {
            seconds,
            open_loop,
            throughput_tps: counts.commits as f64 / seconds,
            abort_rate: counts.abort_rate(),
            kinds: kinds.collect(),
            failed_invariants: Vec::new(),
            counts,
        }))
    }

    /// Runs the workload with recording, and judges the history. Returns nothing if it was stopped.
    /// The invariants are not checked yet.
    fn verify(&self, view: &View) -> Result<Option<Verified>, String> {
        if self.watcher.is_stopped() {
            return Ok(None);
        }
        self.watcher.begin(&format!("{}: verify", self.level.name));
        prepare(self.place, self.server, view, Purpose::Record, self.watcher)?;
        let texts = RecordingTexts::new(self.server.product, view);
        let clients = self.config.clients as u64;
        let longest = Duration::from_secs_f64(self.config.seconds * VERIFY_SECONDS).max(VERIFY_LEAST);
        let until = Until::Transactions(self.config.verify_transactions.div_ceil(clients), longest);
        let done = self.clients(view, until, |session, Try { client, input, worker, number }| {
            let mut recorder = Recorder {
                session,
                texts: &texts,
                relations: view.relations(),
                // Each try has a number of its own; 0 is the loader.
                writer: number * clients + worker as u64 + 1,
                operations: Vec::new(),
                mark: 0,
                fault: Fault::None,
            };
            let tried = attempt(view, client, input, &mut recorder, |recorder| &mut *recorder.session)?;
            if tried == Tried::Committed {
                recorder.committed()?;
            }
            let Recorder { writer, operations, .. } = recorder;
            Ok((tried, Some(Recorded { number: writer, worker: worker as u64, operations })))
        })?;
        if self.watcher.is_stopped() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        done.iter().for_each(|done| counts.add(&done.counts));
        let (mut committed, mut unknown) = (Vec::new(), Vec::new());
        for of in done {
            committed.extend(of.committed);
            unknown.extend(of.unknown);
        }
        let last = last_rows(self.place, self.server, view)?;
        add_seen(&mut committed, unknown, &last);
        let losses = losses(view.relations(), &committed, &last);
        let history = history(view.relations(), &committed).map_err(|error| error.to_string())?;
        let verified = Verified { losses, ..judge(&history, self.level.promise, counts)? };
        self.watcher.history(self.level.name, &history);
        Ok(Some(verified))
    }
}

/// Judges a history by a level's promise.
///
/// # Errors
/// The check would take too long.
pub(crate) fn judge(history: &History, promise: Isolation, counts: Counts) -> Result<Verified, String> {
    let report = check_bounded(history).map_err(|error| error.to_string())?;
    // The serial replay is a second oracle. The serial order of an inexact history is a guess, so a
    // difference would prove nothing.
    let differs = match report.serial_order() {
        Some(order) if promise == Isolation::Serializable && report.is_exact() => replay(history, order).err(),
        _ => None,
    };
    Ok(Verified {
        counts,
        operations: report.operations,
        kept: report.violates(promise).is_none() && differs.is_none(),
        anomalies: report.anomalies_met,
        worst: report.anomalies.first().cloned(),
        further: report.anomalies.iter().skip(1).cloned().collect(),
        serial_replay_differs: differs.map(|differs| differs.to_string()),
        exact: report.is_exact(),
        losses: Losses::default(),
        failed_invariants: Vec::new(),
    })
}
