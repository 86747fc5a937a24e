//! Runs the points of an experiment that are not there yet, and keeps each as a line.

use std::fs::{self, OpenOptions};
use std::hash::Hasher;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use super::{COMMITS_MIN, Curves, Experiment, Measurement, Point, PointWork, X};
use crate::compare::compare;
use crate::microbench::{MicrobenchResult, microbench};
use crate::result::ResultFile;
use contend_runner::machine::HOST;
use contend_runner::{Observer, Silent, Stop};
use contend_runner::{RunError, RunPlan};

/// The folder that an experiment's points are kept in.
#[derive(Clone, Debug)]
pub struct Folder(PathBuf);

/// The first line of a folder's points.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    experiment: String,
    /// A hash of everything that decides what the points are.
    points: String,
}

/// What came of a sweep.
#[derive(Clone, Debug)]
pub struct Swept {
    /// All measurements.
    pub curves: Curves,
    /// Points that were there already.
    pub kept: usize,
    /// Points that were measured now.
    pub measured: usize,
    /// Points that are still missing: it was stopped.
    pub missing: usize,
}

impl Folder {
    /// The folder of an experiment below `out`.
    pub fn new(out: &Path, experiment: &Experiment) -> Folder {
        Folder(out.join(&experiment.id))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    fn file(&self) -> PathBuf {
        self.0.join("points.jsonl")
    }

    /// The points that are kept of this experiment. A line that was broken off by an interruption
    /// is dropped.
    ///
    /// # Errors
    /// The file can't be read, or its points are those of something else.
    pub fn points(&self, experiment: &Experiment) -> Result<Vec<Measurement>, RunError> {
        let file = self.file();
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(RunError::Io(format!("can't read {}: {error}", file.display()))),
        };
        // Only what ends with a line's end was written whole.
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
        // FNV-1a (Fowler, Noll, Vo): the same on every host and in every build.
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
            // A chip that is measured anew each time is no change of the experiment.
            if config.machine.split(':').next() == Some(HOST) {
                config.chip = None;
            }
            let text = serde_json::to_string(&(&point.series, &point.x, &config, &point.micro(), point.factor));
            hasher.write(text.expect("plain data").as_bytes());
        }
        Ok(Header { experiment: experiment.id.clone(), points: format!("{:016x}", hasher.finish()) })
    }

    /// Begins the file, or cuts it to its whole lines.
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
    // A point that was kept without its seed is that of the first one.
    let is_kept = |point: &Point| {
        let seed = |old: &Measurement| old.seed.is_none_or(|seed| seed == point.config().seed);
        let is_first = points.iter().any(|first| is_same(first, point) && first.config().seed == point.config().seed);
        kept.iter().any(|old| old.is_of(point) && seed(old) && (old.seed.is_some() || is_first))
    };
    let (simulated, native): (Vec<Point>, Vec<Point>) =
        all.iter().filter(|point| !is_kept(point)).cloned().partition(|point| point.config().chip.is_some());
    let file = Mutex::new(folder.open(experiment)?);
    let new = Mutex::new(Vec::new());
    let failure = Mutex::new(None);
    observer.begin(&format!("sweeping {}", experiment.id), (simulated.len() + native.len()) as u64);
    let one = |point: &Point| {
        let outcome = measure(point, stop).and_then(|measurement| {
            let line = serde_json::to_string(&measurement).expect("plain data") + "\n";
            let mut file = file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            file.write_all(line.as_bytes())
                .and_then(|()| file.flush())
                .map_err(|error| RunError::Io(format!("can't write {}: {error}", folder.file().display())))?;
            Ok(measurement)
        });
        match outcome {
            Ok(measurement) => new.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(measurement),
            Err(RunError::Stopped) => {}
            Err(error) => {
                failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get_or_insert(error);
            }
        }
        observer.advance(1);
    };
    let failed = || failure.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).is_some();
    // The long ones first, so that no thread is left with one at the end.
    let mut queue: Vec<&Point> = simulated.iter().collect();
    queue.sort_by_key(|point| std::cmp::Reverse(point.config().threads));
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..jobs.min(queue.len()) {
            scope.spawn(|| {
                // Relaxed: each number is handed out once.
                while let Some(point) = queue.get(next.fetch_add(1, Ordering::Relaxed))
                    && !stop.is_requested()
                    && !failed()
                {
                    one(point);
                }
            });
        }
    });
    for point in &native {
        if stop.is_requested() || failed() {
            break;
        }
        one(point);
    }
    observer.end();
    if let Some(error) = failure.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()) {
        return Err(error);
    }
    let new = new.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    let kept_count = all.iter().filter(|point| is_kept(point)).count();
    let measured = new.len();
    let curves = curves(&points, kept.into_iter().chain(new));
    Ok(Swept { curves, kept: kept_count, measured, missing: all.len() - kept_count - measured })
}

/// What is there of an experiment, without running anything.
///
/// # Errors
/// The points can't be read, or are those of something else.
pub fn kept(experiment: &Experiment, folder: &Folder) -> Result<Swept, RunError> {
    let kept = folder.points(experiment)?;
    let all = experiment.points()?;
    let (count, missing) = (kept.len(), all.iter().filter(|point| !kept.iter().any(|old| old.is_of(point))).count());
    Ok(Swept { curves: curves(&all, kept), kept: count, measured: 0, missing })
}

/// The point from each seed; a native one as it is, as no seed decides what it measures.
fn from_seeds(point: &Point, seeds: usize) -> Vec<Point> {
    let seeds = if point.config().chip.is_some() { seeds as u64 } else { 1 };
    let from = |seed: u64| point.with_seed(point.config().seed.wrapping_add(seed));
    (0..seeds).map(from).collect()
}

/// Whether two points differ by their seeds at most.
fn is_same(a: &Point, b: &Point) -> bool {
    a.series == b.series && a.x == b.x
}

impl Measurement {
    /// Whether it is one of this point, from whatever seed.
    fn is_of(&self, point: &Point) -> bool {
        self.series == point.series && self.x == point.x
    }
}

/// The measurements by series, in the order in which the experiment asks for them.
pub(crate) fn curves(points: &[Point], measured: impl IntoIterator<Item = Measurement>) -> Curves {
    let mut left: Vec<Measurement> = measured.into_iter().collect();
    let mut curves = Curves::new();
    for point in points {
        let (mut of_point, others): (Vec<_>, Vec<_>) =
            left.into_iter().partition(|measurement| measurement.is_of(point));
        left = others;
        // Threads of the host finish in any order.
        of_point.sort_by_key(|measurement| measurement.seed);
        if let Some(measurement) = Measurement::merged(of_point) {
            curves.entry(point.series.clone()).or_default().push(measurement);
        }
    }
    curves
}

/// Windows of a simulated point become at most this many times as long.
const LONGER_MAX: f64 = 50.0;

/// Runs a point. The throughput of a simulated point decides nothing if fewer than [`COMMITS_MIN`]
/// transactions have committed. Such a point runs once more, with longer windows.
fn compared(plan: &RunPlan, stop: &Stop) -> Result<ResultFile, RunError> {
    let result = compare(plan, stop, &Silent)?;
    let commits = result.protocols.first().and_then(|entry| Some(entry.measured.as_ref()?.commits));
    match commits {
        Some(commits) if commits < COMMITS_MIN && plan.chip.is_some() && !result.partial => {
            // Half as many commits again as are needed, because the first windows may have had more
            // of them than usual.
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
        return Err(RunError::CheckFailed(format!("{} is wrong, and gets no figure: {why}", what())));
    }
    let measured = entry.measured.as_ref().ok_or_else(|| RunError::CheckFailed(format!("{} has no figure", what())))?;
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
        // As if it had been killed while it wrote the last point.
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
