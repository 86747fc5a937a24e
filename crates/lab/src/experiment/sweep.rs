//! Runs the points of an experiment that are missing, and keeps each as a line of a file.

use std::fs::{self, OpenOptions};
use std::hash::Hasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::{COMMITS_MIN, Curves, Experiment, Measurement, Point, PointWork, X};
use crate::compare::compare;
use crate::microbench::{MicrobenchResult, microbench};
use crate::result::ResultFile;
use contend_runner::machine::HOST;
use contend_runner::{Observer, Silent, Stop};
use contend_runner::{RunError, RunPlan};

/// The folder in which an experiment's points are kept.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// The first line of the file of points.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    experiment: String,
    /// A hash of everything that determines the points.
    points: String,
}

/// The result of a sweep.
#[derive(Clone, Debug)]
pub struct Swept {
    /// All measurements.
    pub curves: Curves,
    /// The number of points that were kept from an earlier sweep.
    pub kept: usize,
    /// The number of points that this sweep measured.
    pub measured: usize,
    /// The number of points that are still missing, because the sweep was stopped.
    pub missing: usize,
}

impl Folder {
    /// Returns the folder of an experiment below `out`.
    pub fn new(out: &Path, experiment: &Experiment) -> Folder {
        Folder(out.join(&experiment.id))
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("points.jsonl")
    }

    /// Returns the kept points of this experiment. Drops a last line that an interruption left
    /// incomplete.
    ///
    /// # Errors
    /// The file can't be read, or its points belong to another version of the experiment.
    pub fn points(&self, experiment: &Experiment) -> Result<Vec<Measurement>, RunError> {
        let file = self.file();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(RunError::Io(format!("can't read {}: {error}", file.display()))),
        };
        // Only a line that ends was written completely.
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        let mut lines = whole.lines();
        let Some(first) = lines.next() else { return Ok(Vec::new()) };
        let header: Option<Header> = serde_json::from_str(first).ok();
        if header != Some(self.header(experiment)?) {
            return Err(RunError::BadInput(format!(
                "{} holds the points of another version of experiment {}; remove the folder {} to start afresh, or choose another by --out",
                file.display(),
                experiment.id,
                self.0.display()
            )));
        }
        lines
            .enumerate()
            .map(|(number, line)| {
                serde_json::from_str(line)
                    .map_err(|error| RunError::BadInput(format!("{}, line {}: {error}", file.display(), number + 2)))
            })
            .collect()
    }

    fn header(&self, experiment: &Experiment) -> Result<Header, RunError> {
        // FNV-1a (Fowler, Noll, Vo) is the same on every host and in every build.
        #[derive(Default)]
        struct Fnv(u64);
        impl Hasher for Fnv {
            fn finish(&self) -> u64 {
                self.0
            }
            fn write(&mut self, bytes: &[u8]) {
                for byte in bytes {
                    self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
                }
            }
        }
        let mut hasher = Fnv(0xcbf2_9ce4_8422_2325);
        for point in experiment.points()? {
            let mut config = point.config().clone();
            // A chip that is measured anew each time does not change the experiment.
            if config.machine.split(':').next() == Some(HOST) {
                config.chip = None;
            }
            let text = serde_json::to_string(&(&point.series, &point.x, &config, &point.micro(), point.factor));
            hasher.write(text.expect("plain data").as_bytes());
        }
        Ok(Header { experiment: experiment.id.clone(), points: format!("{:016x}", hasher.finish()) })
    }

    /// Creates the file, or truncates it to its complete lines, and opens it for appending.
    fn open(&self, experiment: &Experiment) -> Result<fs::File, RunError> {
        let file = self.file();
        let error = |error: std::io::Error| RunError::Io(format!("can't write {}: {error}", file.display()));
        fs::create_dir_all(&self.0).map_err(error)?;
        let whole = fs::read_to_string(&file).ok().map_or(0, |text| text.rfind('\n').map_or(0, |end| end + 1));
        let mut points = OpenOptions::new().create(true).append(true).open(&file).map_err(error)?;
        points.set_len(whole as u64).map_err(error)?;
        if whole == 0 {
            let header = serde_json::to_string(&self.header(experiment)?).expect("plain data");
            writeln!(points, "{header}").map_err(error)?;
        }
        Ok(points)
    }
}

/// Measures the points that are missing: simulated ones on `jobs` threads of the host at once, from
/// `seeds` seeds each or as many as the experiment says; native ones alone.
///
/// # Errors
/// A point can't be measured, or can't be kept.
pub fn sweep(
    experiment: &Experiment,
    folder: &Folder,
    jobs: usize,
    seeds: Option<usize>,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Swept, RunError> {
    let seeds = seeds.or(experiment.run.seeds).unwrap_or(1);
    experiment.check_seeds(seeds)?;
    let kept = folder.points(experiment)?;
    let points = experiment.points()?;
    let all: Vec<Point> = points.iter().flat_map(|point| from_seeds(point, seeds)).collect();
    let (there, missing): (Vec<Point>, Vec<Point>) = all.into_iter().partition(|point| is_kept(point, &points, &kept));
    let run = SweepRun {
        file: Mutex::new(folder.open(experiment)?),
        path: folder.file(),
        measured: Mutex::new(Vec::new()),
        failure: Mutex::new(None),
        stop,
        observer,
    };
    observer.begin(&format!("sweeping {}", experiment.id), missing.len() as u64);
    let (simulated, native): (Vec<&Point>, Vec<&Point>) =
        missing.iter().partition(|point| point.config().chip.is_some());
    run.simulated(simulated, jobs);
    run.native(&native);
    observer.end();
    let new = run.outcome()?;
    let measured = new.len();
    let curves = curves(&points, kept.into_iter().chain(new));
    Ok(Swept { curves, kept: there.len(), measured, missing: missing.len() - measured })
}

/// Returns whether the measurement of a point, from its seed, is among those that were kept.
fn is_kept(point: &Point, points: &[Point], kept: &[Measurement]) -> bool {
    let seed = |old: &Measurement| old.seed.is_none_or(|seed| seed == point.config().seed);
    // A measurement that was kept without its seed is that of the experiment's first seed.
    let is_first = points.iter().any(|first| is_same(first, point) && first.config().seed == point.config().seed);
    kept.iter().any(|old| old.is_of(point) && seed(old) && (old.seed.is_some() || is_first))
}

/// A sweep while it measures. Its threads share it.
struct SweepRun<'a> {
    file: Mutex<fs::File>,
    path: PathBuf,
    measured: Mutex<Vec<Measurement>>,
    failure: Mutex<Option<RunError>>,
    stop: &'a Stop,
    observer: &'a dyn Observer,
}

/// Locks a mutex, also if a thread panicked while it held the lock.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SweepRun<'_> {
    /// Measures simulated points, by `jobs` threads at once.
    fn simulated(&self, mut queue: Vec<&Point>, jobs: usize) {
        // The points with most threads take longest. They come first, so that no thread is left
        // with one at the end.
        queue.sort_by_key(|point| std::cmp::Reverse(point.config().threads));
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(queue.len()) {
                scope.spawn(|| {
                    // Relaxed: the counter only hands out each number once. The queue was written
                    // before the threads were spawned.
                    while let Some(point) = queue.get(next.fetch_add(1, Ordering::Relaxed))
                        && !self.is_over()
                    {
                        self.point(point);
                    }
                });
            }
        });
    }

    /// Measures points of this machine, one after the other.
    fn native(&self, points: &[&Point]) {
        for point in points {
            if self.is_over() {
                break;
            }
            self.point(point);
        }
    }

    fn is_over(&self) -> bool {
        self.stop.is_requested() || lock(&self.failure).is_some()
    }

    /// Measures a point, and keeps it. The first failure is noted.
    fn point(&self, point: &Point) {
        match measure(point, self.stop).and_then(|measurement| self.keep(measurement)) {
            Ok(measurement) => lock(&self.measured).push(measurement),
            Err(RunError::Stopped) => {}
            Err(error) => {
                lock(&self.failure).get_or_insert(error);
            }
        }
        self.observer.advance(1);
    }

    /// Writes a measurement to the file.
    fn keep(&self, measurement: Measurement) -> Result<Measurement, RunError> {
        let line = serde_json::to_string(&measurement).expect("plain data") + "\n";
        let mut file = lock(&self.file);
        file.write_all(line.as_bytes())
            .and_then(|()| file.flush())
            .map_err(|error| RunError::IoFailed(format!("can't write {}: {error}", self.path.display())))?;
        Ok(measurement)
    }

    /// Returns what was measured, or the first failure.
    fn outcome(self) -> Result<Vec<Measurement>, RunError> {
        match self.failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some(error) => Err(error),
            None => Ok(self.measured.into_inner().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

/// Returns the kept points of an experiment, without running anything.
///
/// # Errors
/// The points can't be read, or belong to another version of the experiment.
pub fn kept(experiment: &Experiment, folder: &Folder) -> Result<Swept, RunError> {
    let kept = folder.points(experiment)?;
    let all = experiment.points()?;
    let (count, missing) = (kept.len(), all.iter().filter(|point| !kept.iter().any(|old| old.is_of(point))).count());
    Ok(Swept { curves: curves(&all, kept), kept: count, measured: 0, missing })
}

/// Returns the point from each seed. A native point has one seed only, because no seed determines
/// what it measures.
fn from_seeds(point: &Point, seeds: usize) -> Vec<Point> {
    let seeds = if point.config().chip.is_some() { seeds as u64 } else { 1 };
    let from = |seed: u64| point.with_seed(point.config().seed.wrapping_add(seed));
    (0..seeds).map(from).collect()
}

/// Returns whether two points differ by their seeds at most.
fn is_same(a: &Point, b: &Point) -> bool {
    a.series == b.series && a.x == b.x
}

impl Measurement {
    /// Returns whether it measures this point, from any seed.
    fn is_of(&self, point: &Point) -> bool {
        self.series == point.series && self.x == point.x
    }
}

/// Returns the measurements by series, in the order in which the experiment names the points.
pub(crate) fn curves(points: &[Point], measured: impl IntoIterator<Item = Measurement>) -> Curves {
    let mut left: Vec<Measurement> = measured.into_iter().collect();
    let mut curves = Curves::new();
    for point in points {
        let (mut of_point, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|measurement| measurement.is_of(point));
        left = others;
        // The threads of the host finish in any order.
        of_point.sort_by_key(|measurement| measurement.seed);
        if let Some(measurement) = Measurement::merged(of_point) {
            curves.entry(point.series.clone()).or_default().push(measurement);
        }
    }
    curves
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

/// Returns the measurement of a micro-benchmark.
fn of_microbench(point: &Point, seed: Option<u64>, result: MicrobenchResult) -> Measurement {
    Measurement {
        series: point.series.clone(),
        x: point.x.clone(),
        throughput: result.per_second,
        abort_rate: 0.0,
        latency_ns_p50: 0,
        latency_ns_p99: 0,
        last_level_misses: result.last_level_misses,
        breakdown: None,
        accesses: 0,
        host_seconds: 0.0,
        verified: None,
        seed,
        commits: None,
        throughput_of_one: 0.0,
        seeds: Vec::new(),
    }
}

/// Measures one point.
fn measure(point: &Point, stop: &Stop) -> Result<Measurement, RunError> {
    let (series, x): (String, X) = (point.series.clone(), point.x.clone());
    let seed = point.config().chip.is_some().then_some(point.config().seed);
    let plan = match &point.work {
        PointWork::Workload(plan) => plan,
        PointWork::Microbench(plan) => return Ok(of_microbench(point, seed, microbench(plan, stop)?)),
    };
    let mut result = compared(plan, stop)?;
    if result.partial {
        return Err(RunError::Stopped);
    }
    let entry = result.protocols.remove(0);
    let what = || format!("{} of {} at {}", entry.protocol, point.series, point.x);
    if entry.failed() {
        let check = entry.check.as_ref().filter(|check| !check.passed).map(|check| check.text.clone());
        let why = check.or_else(|| entry.verification.as_ref().map(|pass| pass.verdict.clone())).unwrap_or_default();
        return Err(RunError::CheckFailed(format!("{} failed a check, and gets no figures: {why}", what())));
    }
    let measured =
        entry.measured.as_ref().ok_or_else(|| RunError::CheckFailed(format!("{} has no figures", what())))?;
    let simulation = measured.simulation.as_ref();
    let mut throughput = measured.throughput_tps;
    for rate in [&mut throughput.median, &mut throughput.min, &mut throughput.max] {
        *rate *= point.factor;
    }
    Ok(Measurement {
        series,
        x,
        throughput,
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
        throughput_of_one: point.factor / measured.windows.iter().map(|window| window.seconds).sum::<f64>(),
        seeds: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn an_interrupted_sweep_goes_on_where_it_was() {
        let out = tempfile::tempdir().expect("a folder");
        let experiment = tiny(TEXT);
        let folder = Folder::new(out.path(), &experiment);
        let first = sweep(&experiment, &folder, 2, None, &Stop::default(), &Silent).expect("a sweep");
        assert_eq!((first.kept, first.measured, first.missing), (0, 3, 0));
        // The file as a kill in the middle of the last point would leave it.
        let text = fs::read_to_string(folder.file()).expect("points");
        let broken = &text[..text.len() - 20];
        fs::write(folder.file(), broken).expect("written");
        let second = sweep(&experiment, &folder, 2, None, &Stop::default(), &Silent).expect("a sweep");
        assert_eq!((second.kept, second.measured, second.missing), (2, 1, 0));
        assert_eq!(second.curves, first.curves, "simulated points are the same again");
        let third = sweep(&experiment, &folder, 2, None, &Stop::default(), &Silent).expect("a sweep");
        assert_eq!((third.kept, third.measured), (3, 0));
        assert_eq!(super::super::judge(&experiment, &third.curves)[0].verdict, super::super::Verdict::Holds);
        assert!(super::super::drawn(&experiment, &third.curves).is_some_and(|figure| figure.file.contains("<svg")));
    }

    #[test]
    fn further_seeds_are_added_to_those_that_are_there() {
        let out = tempfile::tempdir().expect("a folder");
        let experiment = tiny(TEXT);
        let folder = Folder::new(out.path(), &experiment);
        let sweep = |seeds| sweep(&experiment, &folder, 2, seeds, &Stop::default(), &Silent).expect("a sweep");
        assert_eq!(sweep(None).measured, 3);
        let ranges = |swept: &Swept| {
            let figure = super::super::drawn(&experiment, &swept.curves).expect("points");
            figure.file.matches(" range\"").count()
        };
        assert_eq!(ranges(&sweep(None)), 0, "of one window and one seed");
        let three = sweep(Some(3));
        assert_eq!(ranges(&three), 3, "a bar at each point, from the least to the greatest");
        assert_eq!((three.kept, three.measured, three.missing), (3, 6, 0));
        for point in three.curves.values().flatten() {
            let seeds: Vec<_> = point.seeds.iter().map(|one| one.seed).collect();
            assert_eq!(seeds, [Some(42), Some(43), Some(44)]);
            let of_seeds = Spread::of(point.seeds.iter().map(|one| one.throughput.median));
            assert_eq!(Some(point.throughput), of_seeds, "the range is that of the seeds");
        }
        assert_eq!(kept(&experiment, &folder).expect("points").curves, three.curves);
        assert_eq!((sweep(Some(2)).kept, sweep(Some(2)).measured), (6, 0));
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
        let folder = Folder::new(out.path(), &experiment);
        let swept = sweep(&experiment, &folder, 1, None, &Stop::default(), &Silent).expect("a sweep");
        for point in swept.curves.values().flatten() {
            assert!(point.commits.is_some_and(|commits| commits >= COMMITS_MIN), "{point:?}");
            let of_one = 1.0 / point.throughput_of_one;
            assert!(of_one > 1e-4, "{point:?}: the windows have a length of {of_one} s");
        }
    }

    #[test]
    fn what_was_published_is_drawn_beside() {
        let source = |curves: &str| format!("{TEXT}\n[published]\nby = \"them\"\n[published.curves]\n{curves}\n");
        let experiment = tiny(&source("add = [[1, 5e6], [4, 2e6]]\nother = [[1, 1e6]]"));
        let published = super::super::published;
        let figure = published(&experiment, &Curves::default()).expect("points");
        assert!(figure.file.contains("as published") && figure.file.contains("other"), "{}", figure.file);
        assert!(published(&tiny(TEXT), &Curves::default()).is_none());
        let error = Experiment::from_toml("tiny.toml", &source("add = []")).expect_err("no points").to_string();
        assert!(error.contains("[published]") && error.contains("pairs"), "{error}");
    }

    #[test]
    fn points_of_another_version_are_refused() {
        let out = tempfile::tempdir().expect("a folder");
        let experiment = tiny(TEXT);
        let folder = Folder::new(out.path(), &experiment);
        sweep(&experiment, &folder, 1, None, &Stop::default(), &Silent).expect("a sweep");
        let other = tiny(&TEXT.replace("seconds = 1e-5", "seconds = 2e-5"));
        let error = sweep(&other, &folder, 1, None, &Stop::default(), &Silent).expect_err("others").to_string();
        assert!(error.contains("start afresh") && error.contains("tiny") && error.contains("--out"), "{error}");
    }
}
