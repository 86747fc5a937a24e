//! Measures the points that are missing, and keeps each in a file of its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use contend_runner::{Observer, RunError, RunPlan, Silent, Stop};

use super::store::{Claim, POINT_SCHEMA, PointFile, PointOutcome};
use super::tasks::Task;
use super::{COMMITS_MIN, Machines, Measurement, Point, PointWork, Store};
use crate::compare::compare;
use crate::environment::{Origin, provenance};
use crate::microbench::{MicrobenchResult, microbench};
use crate::result::{Environment, ResultFile};

/// How the points of a sweep are measured.
#[derive(Clone, Debug)]
pub struct Manner {
    /// Simulated points that run at once.
    pub jobs: usize,
    /// Whether points that failed are measured again.
    pub retry_failed: bool,
    /// Whose measurements count for points that depend on the machine.
    pub machines: Machines,
    /// What the files say about the command.
    pub origin: Origin,
}

/// How long a sweep waits between two looks at points that others have claimed.
const LOOKS_EVERY: Duration = Duration::from_millis(100);

/// Measures the tasks that are missing: simulated ones on several threads of the host at once, and
/// then native ones alone. Returns the number of points that now have figures because of it.
///
/// A point that another sweep of the folder measures at the moment is left to that one. At the end
/// this sweep waits for such points, and measures those that the other one has not finished: it was
/// stopped or killed.
///
/// # Errors
/// A point can't be kept. A point that can't be measured is kept as a failure.
pub fn sweep(
    tasks: &[Task],
    store: &mut Store,
    manner: &Manner,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<usize, RunError> {
    let is_missing = |task: &&Task| is_missing(task, store, manner.retry_failed, manner.machines);
    let missing: Vec<&Task> = tasks.iter().filter(is_missing).collect();
    observer.begin("sweeping", missing.len() as u64);
    let run = SweepRun {
        store: Mutex::new(store),
        measured: AtomicUsize::new(0),
        failure: Mutex::new(None),
        claimed: Mutex::new(Vec::new()),
        manner,
        stop,
        observer,
    };
    let (simulated, native): (Vec<&Task>, Vec<&Task>) = missing.iter().partition(|task| task.is_simulated());
    run.simulated(&simulated);
    run.native(&native);
    run.claimed_by_others();
    observer.end();
    match run.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some(error) => Err(error),
        None => Ok(run.measured.into_inner()),
    }
}

/// Returns whether a task is to be measured.
pub fn is_missing(task: &Task, store: &Store, retry_failed: bool, machines: Machines) -> bool {
    store.of_point(&task.key, machines).is_none_or(|file| retry_failed && file.failure().is_some())
}

/// A sweep while it measures. Its threads share it.
struct SweepRun<'a> {
    store: Mutex<&'a mut Store>,
    /// The tasks that another sweep has claimed.
    claimed: Mutex<Vec<&'a Task>>,
    measured: AtomicUsize,
    failure: Mutex<Option<RunError>>,
    manner: &'a Manner,
    stop: &'a Stop,
    observer: &'a dyn Observer,
}

/// Locks a mutex, also if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'a> SweepRun<'a> {
    /// Measures simulated points, several at once, in the order of the tasks. The longest come
    /// first, so that no thread is left with one at the end.
    fn simulated(&self, queue: &[&'a Task]) {
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..self.manner.jobs.min(queue.len()) {
                scope.spawn(|| {
                    // Relaxed: the counter only hands out each number once. The queue was written
                    // before the threads were spawned.
                    while let Some(task) = queue.get(next.fetch_add(1, Ordering::Relaxed))
                        && !self.is_over()
                    {
                        self.point(task);
                    }
                });
            }
        });
    }

    /// Measures points of this machine, one after the other.
    fn native(&self, tasks: &[&'a Task]) {
        for task in tasks {
            if self.is_over() {
                break;
            }
            self.point(task);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.is_requested() || lock(&self.failure).is_some()
    }

    /// Waits for the points that other sweeps have claimed, and measures what they leave. Native
    /// points are alone here as well.
    fn claimed_by_others(&self) {
        loop {
            let claimed = std::mem::take(&mut *lock(&self.claimed));
            if claimed.is_empty() || self.is_over() {
                return;
            }
            for task in &claimed {
                self.point(task);
            }
            if lock(&self.claimed).len() == claimed.len() {
                std::thread::sleep(LOOKS_EVERY);
            }
        }
    }

    /// Measures a point unless another sweep does.
    fn point(&self, task: &'a Task) {
        if self.is_over() {
            return;
        }
        let attempts = || lock(&self.store).files().get(&task.hash).map_or(0, |file| file.provenance.attempt);
        let before = attempts();
        let claim = lock(&self.store).claim(&task.hash);
        match claim {
            Err(error) => drop(lock(&self.failure).get_or_insert(error)),
            Ok(None) => lock(&self.claimed).push(task),
            Ok(Some(claim)) => {
                lock(&self.store).refresh(&task.hash);
                if attempts() == before {
                    self.claimed_point(task, before + 1, claim);
                } else {
                    self.observer.advance(1);
                }
            }
        }
    }

    /// Measures a point, and keeps it. The first file that can't be written is noted.
    fn claimed_point(&self, task: &Task, attempt: u32, _claim: Claim) {
        let (started, begin) = (SystemTime::now(), Instant::now());
        let outcome = measure(&task.point, self.stop);
        if matches!(outcome, Err(RunError::Stopped)) {
            return;
        }
        let mut provenance = provenance(&task.point, &self.manner.origin);
        provenance.started_unix_seconds =
            started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        provenance.elapsed_seconds = begin.elapsed().as_secs_f64();
        provenance.attempt = attempt;
        let (outcome, trace_hash) = match outcome {
            Ok(Measured { figures, trace_hash, environment }) => {
                provenance.environment = environment.unwrap_or(provenance.environment);
                (PointOutcome::Measured(Box::new(figures)), trace_hash)
            }
            Err(error) => (PointOutcome::Failed(error.to_string()), None),
        };
        let has_figures = matches!(outcome, PointOutcome::Measured(_));
        let decided_by = task.key.clone();
        let file = PointFile { schema_version: POINT_SCHEMA, decided_by, outcome, trace_hash, provenance };
        match lock(&self.store).keep(file) {
            // Relaxed: a count, which is read after the threads have ended.
            Ok(()) => drop(self.measured.fetch_add(usize::from(has_figures), Ordering::Relaxed)),
            Err(error) => drop(lock(&self.failure).get_or_insert(error)),
        }
        self.observer.advance(1);
    }
}

/// The largest factor by which the windows of a simulated point are lengthened.
const LONGER_MAX: f64 = 50.0;

/// Runs a point. If fewer than [`COMMITS_MIN`] transactions of a simulated point commit, its
/// throughput decides nothing. Such a point runs once more, with longer windows.
fn compared(plan: &RunPlan, stop: &Stop) -> Result<ResultFile, RunError> {
    let result = compare(plan, stop, &Silent)?;
    let commits = result.protocols.first().and_then(|entry| Some(entry.measured.as_ref()?.commits));
    match commits {
        Some(commits) if commits < COMMITS_MIN && plan.chip.is_some() && !result.partial => {
            // Half as many commits again as are needed, because the first windows may have had
            // unusually many.
            let longer = (1.5 * COMMITS_MIN as f64 / commits.max(1) as f64).min(LONGER_MAX);
            let mut plan = plan.clone();
            plan.config.window_seconds *= longer;
            compare(&plan, stop, &Silent)
        }
        _ => Ok(result),
    }
}

/// What was measured at a point.
struct Measured {
    figures: Measurement,
    trace_hash: Option<String>,
    /// The machine and the build, as the run itself saw them.
    environment: Option<Environment>,
}

/// Measures one point. Its curve, its place and its factor are those of an experiment, so the
/// figures are without them.
fn measure(point: &Point, stop: &Stop) -> Result<Measured, RunError> {
    let seed = point.config().chip.is_some().then_some(point.config().seed);
    let plan = match &point.work {
        PointWork::Workload(plan) => plan,
        PointWork::Microbench(plan) => return Ok(of_microbench(seed, microbench(plan, stop)?)),
    };
    let mut result = compared(plan, stop)?;
    if result.partial {
        return Err(RunError::Stopped);
    }
    let entry = result.protocols.remove(0);
    if entry.failed() {
        let check = entry.check.as_ref().filter(|check| !check.passed).map(|check| check.text.clone());
        let why = check.or_else(|| entry.verification.as_ref().map(|pass| pass.verdict.clone())).unwrap_or_default();
        return Err(RunError::CheckFailed(format!("{} failed a check, and gets no figures: {why}", entry.protocol)));
    }
    let measured =
        entry.measured.as_ref().ok_or_else(|| RunError::CheckFailed(format!("{} has no figures", entry.protocol)))?;
    let simulation = measured.simulation.as_ref();
    let figures = Measurement {
        abort_rate: measured.abort_rate,
        latency_ns_p50: measured.latency_ns_p50,
        latency_ns_p99: measured.latency_ns_p99,
        last_level_misses: simulation.and_then(|simulation| simulation.statistics.last_level_miss_ratio()),
        breakdown: measured.breakdown.clone(),
        accesses: simulation.map_or(0, |simulation| simulation.statistics.accesses),
        host_seconds: simulation.map_or(0.0, |simulation| simulation.host_seconds),
        verified: entry.verification.as_ref().map(|pass| pass.verdict.clone()),
        seed,
        commits: Some(measured.commits),
        throughput_of_one: 1.0 / measured.windows.iter().map(|window| window.seconds).sum::<f64>(),
        ..Measurement::of(measured.throughput_tps)
    };
    let trace_hash = simulation.map(|simulation| simulation.trace_hash.clone());
    Ok(Measured { figures, trace_hash, environment: Some(result.environment) })
}

/// Returns the measurement of a micro-benchmark.
fn of_microbench(seed: Option<u64>, result: MicrobenchResult) -> Measured {
    let MicrobenchResult { per_second, last_level_misses, trace_hash } = result;
    let figures = Measurement { last_level_misses, seed, ..Measurement::of(per_second) };
    Measured { figures, trace_hash, environment: None }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::super::{Curves, Experiment, Progress, Shard, Verdict, drawn, judge, merge, published, tasks};
    use super::*;
    use crate::result::Spread;

    const TEXT: &str = r#"
id = "tiny"
title = "t"
question = "q"
source = "s"
[run]
micro = "increments"
machine = "abyss"
seconds = 1e-5
warmup = 0.0
windows = 1
[[axis]]
name = "threads"
values = [1, 2, 4]
[[series]]
name = "add"
[[assertion]]
id = "tiny.1"
paper = "one is fastest"
holds = 'T("add",1) > T("add",4)'
"#;

    fn tiny(text: &str) -> Experiment {
        Experiment::from_toml("tiny.toml", text).expect("valid")
    }

    fn manner() -> Manner {
        Manner { jobs: 2, retry_failed: false, machines: Machines::Here, origin: Origin::default() }
    }

    /// Measures what is missing, and returns the curves and the numbers of points: those that were
    /// there, and those that were measured.
    fn swept(experiment: &Experiment, out: &Path, seeds: Option<usize>) -> (Curves, usize, usize) {
        let mut store = Store::open(out).expect("points");
        let all = tasks([experiment], seeds).expect("tasks");
        let there = Progress::of(&all, &store, Machines::Here).there;
        let measured = sweep(&all, &mut store, &manner(), &Stop::default(), &Silent).expect("a sweep");
        let now = Progress::of(&all, &store, Machines::Here);
        assert_eq!((now.there, now.missing, now.failed.len()), (there + measured, 0, 0));
        let curves = store.curves(experiment, Machines::Here).expect("curves");
        let again = Store::open(out).expect("points").curves(experiment, Machines::One).expect("curves");
        assert_eq!(curves, again, "the files say the same as the sweep");
        (curves, there, measured)
    }

    fn files(out: &Path) -> Vec<std::path::PathBuf> {
        super::super::store::files_in(&out.join("points")).expect("files")
    }

    #[test]
    fn a_file_that_was_cut_off_or_is_another_is_measured_again() {
        let out = tempfile::tempdir().expect("a folder");
        let experiment = tiny(TEXT);
        let (first, kept, measured) = swept(&experiment, out.path(), None);
        assert_eq!((kept, measured), (0, 3));
        let all = files(out.path());
        let texts: Vec<String> = all.iter().map(|file| fs::read_to_string(file).expect("a point")).collect();
        let zeros = "\0".repeat(texts[0].len());
        for damage in [&texts[0][..texts[0].len() / 2], "", &texts[1], &zeros] {
            fs::write(&all[0], damage).expect("written");
            let store = Store::open(out.path()).expect("points");
            assert!(store.notes().len() == 1 && store.notes()[0].contains("is measured again"), "{:?}", store.notes());
            let (second, kept, measured) = swept(&experiment, out.path(), None);
            assert_eq!((kept, measured), (2, 1));
            assert_eq!(second, first, "simulated points are the same again");
        }
        assert_eq!(files(out.path()), all);
        assert_eq!(judge(&experiment, &first)[0].verdict, Verdict::Holds);
        assert!(drawn(&experiment, &first).is_some_and(|figure| figure.file.contains("<svg")));
    }

    /// Sweeps on another thread while this one holds the claim of a point, until all other points
    /// are there. Returns what `meanwhile` does then, and the number of points that were measured.
    fn swept_beside_a_claim(meanwhile: impl FnOnce(&Path, &str)) -> usize {
        let out = tempfile::tempdir().expect("a folder");
        let all = tasks([&tiny(TEXT)], None).expect("tasks");
        let claim = Store::open(out.path()).expect("points").claim(&all[0].hash).expect("written").expect("free");
        std::thread::scope(|scope| {
            let sweep = scope.spawn(|| {
                let mut store = Store::open(out.path()).expect("points");
                sweep(&all, &mut store, &manner(), &Stop::default(), &Silent).expect("a sweep")
            });
            while Store::open(out.path()).expect("points").files().len() < 2 {
                std::thread::sleep(LOOKS_EVERY);
            }
            assert!(!sweep.is_finished(), "it waits for the point that is claimed");
            meanwhile(out.path(), &all[0].hash);
            drop(claim);
            let measured = sweep.join().expect("no panic");
            assert_eq!(files(out.path()).len(), 3, "no claim is left");
            measured
        })
    }

    #[test]
    fn a_point_that_another_sweep_measures_is_left_to_it() {
        let whole = tempfile::tempdir().expect("a folder");
        swept(&tiny(TEXT), whole.path(), None);
        let finishes = |out: &Path, hash: &str| {
            let name = format!("points/{hash}.json");
            fs::copy(whole.path().join(&name), out.join(&name)).expect("copied");
        };
        assert_eq!(swept_beside_a_claim(finishes), 2);
        assert_eq!(swept_beside_a_claim(|_, _| {}), 3, "the other one was stopped, so this one measures its point");
    }

    #[test]
    fn a_claim_ends_with_its_holder_and_a_file_that_stays_claims_nothing() {
        let out = tempfile::tempdir().expect("a folder");
        let store = Store::open(out.path()).expect("points");
        let claim = || store.claim("0123").expect("written");
        let first = claim();
        assert!(first.is_some() && claim().is_none());
        drop(first);
        assert_eq!(files(out.path()), [] as [std::path::PathBuf; 0]);
        fs::write(out.path().join("points/0123.claim"), "").expect("written");
        assert!(claim().is_some(), "as a killed process leaves it");
    }

    #[test]
    fn a_file_of_a_newer_version_is_never_replaced() {
        let out = tempfile::tempdir().expect("a folder");
        let experiment = tiny(TEXT);
        swept(&experiment, out.path(), None);
        let file = &files(out.path())[0];
        let text = fs::read_to_string(file).expect("a point");
        let of =
            |version: &str| text.replace("\"schema_version\": \"1.0\"", &format!("\"schema_version\": \"{version}\""));
        fs::write(file, of("1.9").replacen('{', "{\"further\": 1,", 1)).expect("written");
        let store = Store::open(out.path()).expect("points");
        assert!(
            store.files().len() == 3 && store.notes()[0].contains("1.9 of a point is newer"),
            "{:?}",
            store.notes()
        );
        let merged = tempfile::tempdir().expect("a folder");
        merge(&[store], merged.path()).expect("merged");
        assert!(fs::read_to_string(&files(merged.path())[0]).expect("a point").contains("further"), "copied as it is");
        fs::write(file, of("2.0")).expect("written");
        let error = Store::open(out.path()).expect_err("newer").to_string();
        assert!(error.contains(&file.display().to_string()) && error.contains("2.0"), "{error}");
    }

    #[test]
    fn shards_have_each_point_once_and_merge_to_the_whole() {
        let experiment = tiny(TEXT);
        let whole = tempfile::tempdir().expect("a folder");
        let (curves, ..) = swept(&experiment, whole.path(), Some(2));
        let folders: Vec<_> = (0..4).map(|_| tempfile::tempdir().expect("a folder")).collect();
        let mut stores = Vec::new();
        for (number, folder) in folders.iter().enumerate() {
            let shard: Shard = format!("{}/4", number + 1).parse().expect("a shard");
            let part = shard.of(tasks([&experiment], Some(2)).expect("tasks"));
            assert!((1..=2).contains(&part.len()), "six points are dealt to four");
            let mut store = Store::open(folder.path()).expect("points");
            assert_eq!(sweep(&part, &mut store, &manner(), &Stop::default(), &Silent).expect("a sweep"), part.len());
            stores.push(store);
        }
        let merged = merge(&stores, folders[2].path()).expect("merged");
        assert_eq!(merged.files().len(), 6);
        let merged = merged.curves(&experiment, Machines::One).expect("curves");
        let picture = |curves: &Curves| drawn(&experiment, curves).expect("points").file;
        assert_eq!(picture(&merged), picture(&curves));
        for wrong in
            ["0/4", "5/4", "a/b", "1/0", "1", "/", "1/", "+1/2", "-1/2", "1/2/3", " 1/2", "1/9999999999999999999999"]
        {
            assert!(wrong.parse::<Shard>().expect_err("no shard").contains("valid: I/N"), "{wrong}");
        }
    }

    #[test]
    fn measurements_of_two_simulators_do_not_merge() {
        let experiment = tiny(TEXT);
        let [one, other] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        swept(&experiment, one.path(), None);
        swept(&experiment, other.path(), None);
        let file = &files(other.path())[1];
        let text = fs::read_to_string(file).expect("a point");
        let at = text.find("\"trace_hash\": \"").expect("a hash") + 15;
        let digit = if &text[at..=at] == "0" { "1" } else { "0" };
        fs::write(file, [&text[..at], digit, &text[at + 1..]].concat()).expect("written");
        let stores = [one.path(), other.path()].map(|out| Store::open(out).expect("points"));
        let out = tempfile::tempdir().expect("a folder");
        let error = merge(&stores, out.path()).expect_err("another simulator").to_string();
        let name = file.file_name().expect("a name");
        for folder in [&one, &other] {
            let path = folder.path().join("points").join(name);
            assert!(error.contains(&path.display().to_string()), "{error}");
        }
        assert!(files(out.path()).is_empty(), "nothing was copied");
    }

    #[test]
    fn points_of_two_machines_are_one_curve_only_if_that_is_allowed() {
        let experiment = tiny(&TEXT.replace("abyss", "native").replace("1e-5", "1e-3"));
        let out = tempfile::tempdir().expect("a folder");
        let (_, kept, measured) = swept(&experiment, out.path(), None);
        assert_eq!((kept, measured), (0, 3));
        // The second point as another machine would have measured it.
        let mut store = Store::open(out.path()).expect("points");
        let moved = tasks([&experiment], None).expect("tasks").remove(1);
        let mut file = store.files()[&moved.hash].clone();
        fs::remove_file(store.path_of(&moved.hash)).expect("removed");
        file.decided_by.machine.as_mut().expect("a machine").processor = "another".into();
        store.keep(file).expect("kept");
        let store = Store::open(out.path()).expect("points");
        let all = tasks([&experiment], None).expect("tasks");
        assert_eq!(Progress::of(&all, &store, Machines::Here).missing, 1);
        assert_eq!(Progress::of(&all, &store, Machines::Mixed).missing, 0);
        assert_eq!(store.curves(&experiment, Machines::Here).expect("curves")["add"].len(), 2);
        let error = store.curves(&experiment, Machines::One).expect_err("two machines").to_string();
        assert!(error.contains("another, ") && error.contains("--mixed"), "{error}");
        let mixed = store.curves(&experiment, Machines::Mixed).expect("curves");
        assert_eq!(mixed["add"].len(), 3);
        let figure = drawn(&experiment, &mixed).expect("points").file;
        assert!(figure.contains("add (2 machines)"), "the figure says so: {figure}");
    }

    #[test]
    fn a_point_that_fails_is_kept_as_a_failure_until_it_is_asked_for() {
        let experiment = tiny(TEXT);
        let out = tempfile::tempdir().expect("a folder");
        swept(&experiment, out.path(), None);
        let mut store = Store::open(out.path()).expect("points");
        let all = tasks([&experiment], None).expect("tasks");
        let mut file = store.files()[&all[0].hash].clone();
        file.outcome = PointOutcome::Failed("the disk was full".into());
        store.keep(file).expect("kept");
        let mut store = Store::open(out.path()).expect("points");
        let mut sweep = |retry_failed| {
            let manner = Manner { retry_failed, ..manner() };
            let measured = sweep(&all, &mut store, &manner, &Stop::default(), &Silent).expect("a sweep");
            (
                measured,
                Progress::of(&all, &store, Machines::Here).failed,
                store.files()[&all[0].hash].provenance.attempt,
            )
        };
        let (measured, failed, attempt) = sweep(false);
        assert_eq!((measured, failed.len(), failed[0].reason.as_str(), attempt), (0, 1, "the disk was full", 1));
        assert_eq!(sweep(true), (1, Vec::new(), 2));
    }

    #[test]
    fn further_seeds_are_added_to_those_that_are_there() {
        let out = tempfile::tempdir().expect("a folder");
        let experiment = tiny(TEXT);
        let sweep = |seeds| swept(&experiment, out.path(), seeds);
        assert_eq!(sweep(None).2, 3);
        let ranges = |curves: &Curves| drawn(&experiment, curves).expect("points").file.matches(" range\"").count();
        assert_eq!(ranges(&sweep(None).0), 0, "of one window and one seed");
        let (three, kept, measured) = sweep(Some(3));
        assert_eq!(ranges(&three), 3, "a bar at each point, from the least to the greatest");
        assert_eq!((kept, measured), (3, 6));
        for point in three.values().flatten() {
            let seeds: Vec<_> = point.seeds.iter().map(|one| one.seed).collect();
            assert_eq!(seeds, [Some(42), Some(43), Some(44)]);
            let of_seeds = Spread::of(point.seeds.iter().map(|one| one.throughput.median));
            assert_eq!(Some(point.throughput), of_seeds, "the range is that of the seeds");
        }
        assert_eq!(sweep(Some(2)), (three, 6, 0), "a seed that is there is drawn");
        let of_axis =
            TEXT.replace("name = \"threads\"", "name = \"seed\"").replace("windows = 1", "windows = 1\nseeds = 2");
        for (text, part) in [
            (of_axis, "axis of seeds"),
            (TEXT.replace("windows = 1", "windows = 1\nseeds = 0"), "run.seeds is 0; valid: 1 to 100"),
        ] {
            let error = Experiment::from_toml("tiny.toml", &text).expect_err("bad").to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_point_of_few_commits_gets_longer_windows() {
        let text =
            TEXT.replace("micro = \"increments\"", "workload = \"ycsb-a\"\nset = { \"ycsb.records\" = \"1000\" }");
        let text = text.replace("name = \"add\"", "name = \"add\"\nprotocol = \"silo\"").replace("[1, 2, 4]", "[1, 4]");
        let experiment = tiny(&text.replace("seconds = 1e-5", "seconds = 5e-5"));
        let out = tempfile::tempdir().expect("a folder");
        let (curves, ..) = swept(&experiment, out.path(), None);
        for point in curves.values().flatten() {
            assert!(point.commits.is_some_and(|commits| commits >= COMMITS_MIN), "{point:?}");
            let of_one = 1.0 / point.throughput_of_one;
            assert!(of_one > 1e-4, "{point:?}: the windows have a length of {of_one} s");
        }
    }

    #[test]
    fn what_was_published_is_drawn_beside() {
        let source = |curves: &str| format!("{TEXT}\n[published]\nby = \"them\"\n[published.curves]\n{curves}\n");
        let experiment = tiny(&source("add = [[1, 5e6], [4, 2e6]]\nother = [[1, 1e6]]"));
        let figure = published(&experiment, &Curves::default()).expect("points");
        assert!(figure.file.contains("as published") && figure.file.contains("other"), "{}", figure.file);
        assert!(published(&tiny(TEXT), &Curves::default()).is_none());
        let error = Experiment::from_toml("tiny.toml", &source("add = []")).expect_err("no points").to_string();
        assert!(error.contains("[published]") && error.contains("pairs"), "{error}");
    }

    #[test]
    fn experiments_share_points_and_a_changed_one_keeps_what_is_the_same() {
        let out = tempfile::tempdir().expect("a folder");
        swept(&tiny(TEXT), out.path(), None);
        let more =
            tiny(&TEXT.replace("\"tiny\"", "\"more\"").replace("\"add\"", "\"sum\"").replace("[1, 2, 4]", "[1, 3, 4]"));
        let (_, kept, measured) = swept(&more, out.path(), None);
        assert_eq!((kept, measured), (2, 1));
        assert_eq!(tasks([&tiny(TEXT), &more], None).expect("tasks").len(), 4, "each point once");
    }

    #[test]
    fn a_folder_of_a_former_version_is_refused() {
        let out = tempfile::tempdir().expect("a folder");
        fs::create_dir(out.path().join("tiny")).expect("a folder");
        fs::write(out.path().join("tiny/points.jsonl"), "{}\n").expect("written");
        let error = Store::open(out.path()).expect_err("former").to_string();
        assert!(error.contains("tiny/points.jsonl is of a former version") && error.contains("--out"), "{error}");
    }
}
