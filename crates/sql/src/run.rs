//! The run of a workload file at each isolation level: measured as it is, then recorded and judged.

use std::hash::{BuildHasher, RandomState};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use contend_history::{History, Isolation, check_bounded, replay};
use contend_model::random::{SplitMix64, mix};
use contend_workloads::file::Input;
use contend_workloads::file::view::{Checks, RowMemory, Value, View};
use hdrhistogram::Histogram;

use crate::connection::{Failure, Place};
use crate::execute::{Plain, Tried, attempt, texts};
use crate::record::{Committed, Fault, Recorder, RecordingTexts, history};
use crate::result::{Counts, KindResult, LevelResult, Measured, SqlResult, Verified};
use crate::system::{Level, Server};
use crate::target::{Family, Target};
use crate::text::{Purpose, create, load, quoted, whole_table};

/// The most rows that one statement loads, and the most values: SQLite takes 32,766.
const LOADED_TOGETHER: usize = 100;
const VALUES_MAX: usize = 30_000;
/// Statements of a transaction that loads.
const STATEMENTS_IN_TRANSACTION: u64 = 100;
/// Tries after which a transaction is taken to be stuck.
const TRIES_MAX: u64 = 10_000;
/// The longest pause before a transaction is tried again. The first pause is a hundredth of it.
const PAUSE_MAX: Duration = Duration::from_millis(10);
/// The longest time that a client thinks before it looks whether the run is over.
const SLICE: Duration = Duration::from_millis(10);
/// The longest recorded run, in lengths of a measured one: deadlocks may take seconds each.
const VERIFY_SECONDS: f64 = 10.0;
/// The least of this longest time.
const VERIFY_LEAST: Duration = Duration::from_secs(60);
/// Statements by which the round trip is measured.
const ROUND_TRIPS: usize = 201;
/// The largest latency that is told from longer ones, in microseconds: ten minutes.
const LATENCY_MAX_US: u64 = 600_000_000;

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
    /// The seed of all draws.
    pub seed: u64,
}

/// Why there is no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SqlError {
    /// The input is bad, or the server refuses the run before it has begun.
    #[error("{0}")]
    Refused(String),
    /// The run began, and could not go on.
    #[error("{0}")]
    Failed(String),
}

/// What a run tells its caller, and asks it.
pub trait Watcher: Sync {
    /// Whether the run is to stop.
    fn is_stopped(&self) -> bool;

    /// A piece of work begins.
    fn begin(&self, what: &str);

    /// The history of a level has been judged.
    ///
    /// # Errors
    /// The history can't be kept.
    fn history(&self, level: &str, history: &History) -> Result<(), String>;
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

    /// Removes the place, and says so if that is not possible.
    pub(crate) fn remove(mut self) -> Result<(), String> {
        self.is_there = false;
        let name = &self.place.name;
        self.place.remove().map_err(|error| format!("{name} could not be removed: {error}"))
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

/// Runs a workload file at each level. `measured` has the user's size, `verified` a small one.
///
/// # Errors
/// The database can't be reached, refuses, or fails in the middle. The tables are removed then.
pub fn run(
    config: &SqlConfig,
    workload: &str,
    measured: &View,
    verified: &View,
    watcher: &dyn Watcher,
) -> Result<SqlResult, SqlError> {
    let made = Made::new(&config.target)?;
    let outcome = levels(config, workload, measured, verified, watcher, &made);
    match (outcome, made.remove()) {
        (Ok(_), Err(error)) => Err(SqlError::Failed(error)),
        (Err(SqlError::Failed(error)), Err(removed)) => Err(SqlError::Failed(format!("{error}; {removed}"))),
        (outcome, _) => outcome,
    }
}

fn levels(
    config: &SqlConfig,
    workload: &str,
    measured: &View,
    verified: &View,
    watcher: &dyn Watcher,
    made: &Made,
) -> Result<SqlResult, SqlError> {
    let Made { place, server, .. } = made;
    let chosen = server.product.chosen(&config.levels);
    let chosen = chosen.map_err(|error| SqlError::Refused(format!("{}: {error}", server.version)))?;
    let mut result = SqlResult {
        workload: workload.into(),
        database: config.target.to_string(),
        server: server.version.clone(),
        clients: config.clients,
        round_trip_us: round_trip(place).map_err(SqlError::Failed)?,
        seed: config.seed,
        levels: Vec::new(),
        partial: false,
    };
    for level in chosen {
        let run = Run { config, place, server, level, watcher };
        let of_level = run.measure(measured).and_then(|figures| {
            let judged = run.verify(verified)?;
            Ok((figures, judged))
        });
        let (figures, judged) = of_level.map_err(|error| SqlError::Failed(format!("{}: {error}", level.name)))?;
        let (Some(measured), Some(verified)) = (figures, judged) else {
            result.partial = true;
            break;
        };
        result.levels.push(LevelResult { level, measured, verified });
    }
    Ok(result)
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
    let mut session = place.open(0, true)?;
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

/// Checks the invariants on the database.
fn check(place: &Place, server: &Server, view: &View) -> Result<Checks, String> {
    let mut session = place.open(0, true)?;
    let checks = view.check(|asked| {
        let (text, values) = whole_table(server.product, &view.relations()[asked.relation], asked);
        let (rows, _) = session.execute(&text, &values)?;
        Ok(rows.iter().map(|row| row.iter().map(Value::number).collect()).collect())
    });
    checks.map_err(Failure::words)
}

/// One level of a run.
struct Run<'a> {
    config: &'a SqlConfig,
    place: &'a Place,
    server: &'a Server,
    level: Level,
    watcher: &'a dyn Watcher,
}

/// What a client has done.
struct Done {
    counts: Counts,
    /// The latencies of each type, in microseconds.
    latencies: Vec<Histogram<u64>>,
    committed: Vec<Committed>,
    seconds: f64,
}

/// When a client ends.
#[derive(Clone, Copy)]
enum Until {
    Time(Duration),
    /// This number of transactions, within this time.
    Transactions(u64, Duration),
}

impl Run<'_> {
    /// Runs the workload as it is. Returns no figures if it was stopped.
    fn measure(&self, view: &View) -> Result<Option<Measured>, String> {
        let SqlConfig { seconds, .. } = *self.config;
        self.watcher.begin(&format!("{}: load", self.level.name));
        prepare(self.place, self.server, view, Purpose::Measure, self.watcher)?;
        self.watcher.begin(&format!("{}: measure", self.level.name));
        let texts = texts(self.server.product, view, Purpose::Measure);
        let until = Until::Time(Duration::from_secs_f64(seconds));
        let done = self.clients(until, |worker, until, ends| {
            let mut session = self.place.open_at(worker, true, self.server.product, self.level)?;
            let mut plain = Plain { session: &mut *session, texts: &texts };
            self.client(view, worker, until, ends, &mut |client, input, _| {
                let tried = attempt(view, client, input, &mut plain, |plain| &mut *plain.session)?;
                Ok((tried, None))
            })
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
            KindResult { kind: (*name).into(), commits: all.len(), p50_us: at(0.5), p99_us: at(0.99) }
        });
        Ok(Some(Measured {
            seconds,
            throughput_tps: counts.commits as f64 / seconds,
            abort_rate: counts.abort_rate(),
            kinds: kinds.collect(),
            failed_invariants: check(self.place, self.server, view)?.failed,
            counts,
        }))
    }

    /// Runs the workload with recording, and judges the history. Returns nothing if it was stopped.
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
        let done = self.clients(until, |worker, until, ends| {
            let mut session = self.place.open_at(worker, true, self.server.product, self.level)?;
            let worker = worker as u64;
            self.client(view, worker as usize, until, ends, &mut |client, input, tries| {
                let mut recorder = Recorder {
                    session: &mut *session,
                    texts: &texts,
                    relations: view.relations(),
                    // Each try has a number of its own; 0 is the loader.
                    writer: tries * clients + worker + 1,
                    operations: Vec::new(),
                    mark: 0,
                    fault: Fault::None,
                };
                let tried = attempt(view, client, input, &mut recorder, |recorder| &mut *recorder.session)?;
                if tried == Tried::Committed {
                    recorder.committed()?;
                }
                let Recorder { writer, operations, .. } = recorder;
                Ok((tried, Some(Committed { number: writer, worker, operations })))
            })
        })?;
        if self.watcher.is_stopped() {
            return Ok(None);
        }
        let mut counts = Counts::default();
        done.iter().for_each(|done| counts.add(&done.counts));
        let committed: Vec<Committed> = done.into_iter().flat_map(|done| done.committed).collect();
        let history = history(view.relations(), &committed).map_err(|error| error.to_string())?;
        let verified = judge(&history, self.level.promise, counts)?;
        self.watcher.history(self.level.name, &history)?;
        Ok(Some(Verified { failed_invariants: check(self.place, self.server, view)?.failed, ..verified }))
    }

    /// Runs all clients, each on a thread. The first failure ends them all.
    fn clients(
        &self,
        until: Until,
        client: impl Fn(usize, Until, &Mutex<Option<String>>) -> Result<Done, String> + Sync,
    ) -> Result<Vec<Done>, String> {
        let failed = Mutex::new(None);
        let done = std::thread::scope(|scope| {
            let (client, failed) = (&client, &failed);
            let start = |worker: usize| {
                scope.spawn(move || {
                    client(worker, until, failed).map_err(|error| {
                        failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
                    })
                })
            };
            let threads: Vec<_> = (0..self.config.clients).map(start).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).collect()
        });
        match failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
            Some(error) => Err(error),
            None => Ok(done),
        }
    }

    /// Runs one client. `once` runs a try of a transaction; the number of the client's tries so far
    /// comes with it.
    fn client(
        &self,
        view: &View,
        worker: usize,
        until: Until,
        failed: &Mutex<Option<String>>,
        once: &mut Once<'_>,
    ) -> Result<Done, String> {
        let mut client = view.client(worker, self.config.clients, self.config.seed);
        let mut input = Input::default();
        let mut thinking = SplitMix64::new(mix(self.config.seed) ^ !(worker as u64));
        let mut latencies: Vec<Histogram<u64>> = view.kinds().iter().map(|_| histogram()).collect();
        let mut counts = Counts::default();
        let mut committed = Vec::new();
        let (begin, mut tries, mut transactions) = (Instant::now(), 0, 0);
        let is_over = |transactions: u64| match until {
            Until::Time(length) => begin.elapsed() >= length,
            Until::Transactions(count, longest) => transactions >= count || begin.elapsed() >= longest,
        };
        let is_ended =
            || self.watcher.is_stopped() || failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some();
        while !is_over(transactions) && !is_ended() {
            view.next(&mut client, &mut input);
            let start = Instant::now();
            let first = tries;
            loop {
                tries += 1;
                // The input is the same at each try: draws that followed an abort would choose
                // other keys.
                match once(&mut client, &input, tries - 1) {
                    Ok((Tried::Committed, record)) => {
                        counts.commits += 1;
                        committed.extend(record);
                        view.committed(&mut client, &input);
                        let micros = start.elapsed().as_micros() as u64;
                        latencies[view.kind(&input)].saturating_record(micros.max(1));
                        break;
                    }
                    Ok((Tried::Cancelled, _)) => {
                        counts.cancelled += 1;
                        break;
                    }
                    Err(Failure::Retry(reason)) => {
                        if tries - first >= TRIES_MAX {
                            let kind = view.kinds()[view.kind(&input)];
                            return Err(format!(
                                "transaction '{kind}' was aborted {TRIES_MAX} times in a row: {reason}"
                            ));
                        }
                        *counts.aborts_by_reason.entry(reason).or_default() += 1;
                        if is_ended() {
                            break;
                        }
                        // The one that is in the way needs time to end.
                        let failures = u32::try_from(tries - first).unwrap_or(u32::MAX);
                        std::thread::sleep((PAUSE_MAX / 100).saturating_mul(failures).min(PAUSE_MAX));
                    }
                    Err(failure) => return Err(failure.words()),
                }
            }
            transactions += 1;
            let time = view.think_time(view.kind(&input)).map_or(0.0, |time| time.draw(&mut thinking));
            let over = Instant::now() + Duration::from_secs_f64(time / 1e6);
            while !is_over(transactions) && !is_ended() && Instant::now() < over {
                std::thread::sleep(over.saturating_duration_since(Instant::now()).min(SLICE));
            }
        }
        Ok(Done { counts, latencies, committed, seconds: begin.elapsed().as_secs_f64() })
    }
}

/// A try of a transaction: how it ended, and what was recorded of it.
type Once<'a> =
    dyn FnMut(&mut contend_workloads::file::Client, &Input, u64) -> Result<(Tried, Option<Committed>), Failure> + 'a;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_US, 3).expect("valid bounds")
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
        serial_replay_differs: differs.map(|differs| differs.to_string()),
        exact: report.is_exact(),
        failed_invariants: Vec::new(),
    })
}
