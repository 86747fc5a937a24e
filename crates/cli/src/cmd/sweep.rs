//! `contend sweep` and `contend plot`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use contend_lab::environment::Origin;
use contend_lab::experiment::{
    Curves, Experiment, Judgement, Machines, Manner, Measurement, Progress, SEEDS_MAX, Store, Verdict, drawn, index,
    is_hash, judge, page, published, sweep as run, tasks, verdict_table,
};
use contend_machine::available_cores;
use contend_model::counted;
use contend_runner::{Observer, Stop};

use super::cluster::{self, complain_of, keep_experiment, partial, points};
use crate::args::{PlotArgs, SweepArgs, SweepCommand};
use crate::files::{Target, folder, read_text};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

/// The name of the copy of the experiment's file that `plot` reads: the file as it was when the
/// points were measured.
pub(crate) const EXPERIMENT: &str = "experiment.toml";

pub(crate) fn sweep(args: &SweepArgs) -> Result<Status, UserError> {
    match &args.command {
        Some(SweepCommand::Merge(args)) => return cluster::merge(args),
        Some(SweepCommand::Status(args)) => return cluster::status(args),
        None => {}
    }
    let (stop, bars) = (stop_on_interrupt()?, Bars::default());
    let command = std::env::args().collect();
    let caller = Caller { command, stop: &stop, observer: &bars, tell: &show::print };
    measured(args, &caller).map(|swept| swept.status)
}

/// The caller of a sweep.
pub(crate) struct Caller<'a> {
    /// The command, which the points' files keep.
    pub(crate) command: Vec<String>,
    pub(crate) stop: &'a Stop,
    pub(crate) observer: &'a dyn Observer,
    /// Takes each text for people.
    pub(crate) tell: Tell<'a>,
}

/// What a sweep has come to.
pub(crate) struct SweepOutcome {
    pub(crate) status: Status,
    /// The experiments that were drawn, each with the judgement on its assertions.
    pub(crate) judged: Vec<(Experiment, Vec<Judgement>)>,
}

impl From<Status> for SweepOutcome {
    fn from(status: Status) -> Self {
        SweepOutcome { status, judged: Vec::new() }
    }
}

/// Does what the flags of a sweep ask for.
///
/// # Errors
/// A flag or an experiment is not valid, or a file can't be read or written.
pub(crate) fn measured(args: &SweepArgs, caller: &Caller<'_>) -> Result<SweepOutcome, UserError> {
    let jobs = args.jobs.unwrap_or_else(|| available_cores().len());
    if !(1..=1024).contains(&jobs) {
        return Err(UserError::refused(format!("jobs is {jobs}; valid: 1 to 1024")));
    }
    check_seeds(args.seeds)?;
    if let Some(hash) = args.point.as_deref().filter(|hash| !is_hash(hash)) {
        return Err(UserError::refused(format!("point is '{hash}'; valid: a hash of 32 digits that --list prints")));
    }
    let allowed = Allowed::read(args.allow.as_deref())?;
    let experiments = read_all(&args.files, args.seeds)?;
    let all = tasks(experiments.iter().map(|(experiment, _)| experiment), args.seeds)?;
    let origin = Origin { command: caller.command.clone(), is_anonymous: args.anonymous };
    let machines = if args.mixed { Machines::Mixed } else { Machines::Here };
    let manner = Manner { jobs, retry_failed: args.retry_failed, machines, origin };
    let part = match (&args.point, args.shard) {
        (Some(hash), _) => Some((format!("point {hash}"), cluster::only(hash, all)?)),
        (None, Some(shard)) => Some((format!("shard {shard}"), shard.of(all))),
        (None, None) if args.list => Some((String::new(), all)),
        (None, None) => None,
    };
    let mut store = points(&args.out)?;
    match part {
        Some((_, tasks)) if args.list => Ok(cluster::list(args, &tasks, &store, machines)?.into()),
        Some((part, tasks)) => {
            keep_all(&args.out, &experiments)?;
            Ok(cluster::measure(&part, &tasks, &mut store, &manner, caller)?.into())
        }
        None => {
            keep_all(&args.out, &experiments)?;
            whole(args, &experiments, &mut store, &manner, &allowed, caller)
        }
    }
}

/// Keeps all experiments below `out`.
fn keep_all(out: &Path, experiments: &[(Experiment, String)]) -> Result<(), UserError> {
    folder(out)?;
    experiments.iter().try_for_each(|(experiment, text)| keep_experiment(out, experiment, text))
}

/// Reads all experiments, before the first point is measured, so that bad input is told at once.
fn read_all(files: &[PathBuf], seeds: Option<usize>) -> Result<Vec<(Experiment, String)>, UserError> {
    let mut experiments = Vec::new();
    for path in files {
        let (experiment, text) = read(path)?;
        if experiments.iter().any(|(other, _): &(Experiment, String)| other.id == experiment.id) {
            return Err(UserError::refused(format!(
                "{}: there is another experiment of id {}",
                path.display(),
                experiment.id
            )));
        }
        if let Some(seeds) = seeds {
            experiment.check_seeds(seeds)?;
        }
        experiments.push((experiment, text));
    }
    Ok(experiments)
}

/// Checks the value of --seeds.
///
/// # Errors
/// It is out of range.
pub(crate) fn check_seeds(seeds: Option<usize>) -> Result<(), UserError> {
    match seeds.filter(|seeds| !(1..=SEEDS_MAX).contains(seeds)) {
        Some(seeds) => Err(UserError::refused(format!("seeds is {seeds}; valid: 1 to {SEEDS_MAX}"))),
        None => Ok(()),
    }
}

/// Measures what is missing of each experiment, draws it, and judges its assertions.
fn whole(
    args: &SweepArgs,
    experiments: &[(Experiment, String)],
    store: &mut Store,
    manner: &Manner,
    allowed: &Allowed,
    caller: &Caller<'_>,
) -> Result<SweepOutcome, UserError> {
    let mut judged = Vec::new();
    let mut missing = 0;
    let mut failed = Vec::new();
    for (number, (experiment, _)) in experiments.iter().enumerate() {
        if experiments.len() > 1 {
            show::complain(&format!("{} of {}: {}", number + 1, experiments.len(), experiment.id));
        }
        let tasks = tasks([experiment], args.seeds)?;
        let measured = run(&tasks, store, manner, caller.stop, caller.observer)?;
        let progress = Progress::of(&tasks, store, manner.machines);
        missing += progress.missing;
        let kept = progress.there - measured;
        let swept = Swept { curves: store.curves(experiment, manner.machines)?, kept, measured };
        judged.push((experiment.clone(), deliver(experiment, &args.out, &swept, caller.tell)?));
        failed.extend(progress.failed);
        if caller.stop.is_requested() {
            break;
        }
    }
    finish(&args.out, &judged, caller.tell)?;
    complain_of(&failed);
    if missing > 0 || judged.len() < experiments.len() {
        show::complain(&partial(missing));
        return Ok(SweepOutcome { status: Status::Interrupted, judged });
    }
    let paths: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    let status = allowed.status(&paths, &judged);
    Ok(SweepOutcome { status: if failed.is_empty() { status } else { Status::CheckFailed }, judged })
}

/// What takes a text for people.
type Tell<'a> = &'a dyn Fn(&str) -> Result<(), UserError>;

/// An experiment of a sweep's folder: the path of its file, the experiment, and the text.
pub(crate) type Named = (PathBuf, Experiment, String);

/// Reads the experiments of a sweep's folder.
///
/// # Errors
/// There is none, or one can't be read.
pub(crate) fn experiments_of(folder: &Path) -> Result<Vec<Named>, UserError> {
    let error = |error: std::io::Error| UserError::refused(format!("can't read {}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .map_err(error)?
        .filter_map(|entry| Some(entry.ok()?.path().join(EXPERIMENT)))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(UserError::refused(format!("{} holds no results of contend sweep", folder.display())));
    }
    let read = |path: PathBuf| read(&path).map(|(experiment, text)| (path, experiment, text));
    files.into_iter().map(read).collect()
}

pub(crate) fn plot(args: &PlotArgs) -> Result<Status, UserError> {
    let experiments = experiments_of(&args.results)?;
    let allowed = Allowed::read(args.allow.as_deref())?;
    let store = points(&args.results)?;
    let machines = if args.mixed { Machines::Mixed } else { Machines::One };
    let mut judged = Vec::new();
    for (_, experiment, _) in &experiments {
        let curves = store.curves(experiment, machines)?;
        let points = |point: &Measurement| point.seeds.len().max(1);
        let kept = curves.values().flatten().map(points).sum();
        let swept = Swept { curves, kept, measured: 0 };
        judged.push((experiment.clone(), deliver(experiment, &args.results, &swept, &show::print)?));
    }
    finish(&args.results, &judged, &show::print)?;
    Ok(allowed.status(&experiments.iter().map(|(path, ..)| path.as_path()).collect::<Vec<_>>(), &judged))
}

/// What is told of an experiment.
struct Swept {
    /// All measurements.
    curves: Curves,
    /// The number of points that were there.
    kept: usize,
    /// The number of points that this sweep measured.
    measured: usize,
}

/// The assertions that may fail, since they are known to.
#[derive(Debug, Default)]
struct Allowed {
    /// The file's name, for messages.
    file: String,
    ids: BTreeSet<String>,
}

impl Allowed {
    /// Reads a file with an id a line; `#` begins a comment. Without a file, no assertion may fail.
    ///
    /// # Errors
    /// The file can't be read, or a line has more than an id.
    fn read(path: Option<&Path>) -> Result<Allowed, UserError> {
        let Some(path) = path else { return Ok(Allowed::default()) };
        let file = path.display().to_string();
        let text = read_text(path, EXPERIMENT_BYTES_MAX, "the file")
            .map_err(|error| UserError::refused(format!("can't read --allow {file}: {error}")))?;
        let mut ids = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let id = line.split('#').next().unwrap_or_default().trim();
            if id.contains(char::is_whitespace) {
                let number = number + 1;
                return Err(UserError::refused(format!(
                    "--allow {file}: line {number}: '{id}' is no id of an assertion; valid: one id a line, and # before a comment"
                )));
            }
            if !id.is_empty() {
                ids.insert(id.to_owned());
            }
        }
        Ok(Allowed { file, ids })
    }

    /// Prints the assertions that fail and may not, and those that can't be evaluated, to stderr.
    /// Returns how the command ends.
    fn status(&self, files: &[&Path], judged: &[(Experiment, Vec<Judgement>)]) -> Status {
        let mut status = Status::Good;
        for (path, (experiment, judgements)) in files.iter().zip(judged) {
            for Judgement { id, verdict, numbers, .. } in judgements {
                let (line, column) = experiment.place_of(id).unwrap_or((1, 1));
                let place = format!("{}: line {line}, column {column}: assertion '{id}'", path.display());
                let is_allowed = self.ids.contains(id);
                match verdict {
                    Verdict::Unclear => {
                        show::complain(&format!("{place} can't be evaluated: {numbers}"));
                        status = Status::CheckFailed;
                    }
                    Verdict::Fails if !is_allowed => {
                        show::complain(&format!("{place} fails: {numbers}"));
                        status = Status::CheckFailed;
                    }
                    Verdict::Holds if is_allowed => {
                        show::complain(&format!("note: assertion '{id}' holds; {} allows it to fail", self.file));
                    }
                    Verdict::NotTold => show::complain(&format!("note: {place} is not told: {numbers}")),
                    Verdict::Fails | Verdict::Holds | Verdict::Waits => {}
                }
            }
        }
        status
    }
}

/// The largest experiments have some kilobytes.
const EXPERIMENT_BYTES_MAX: u64 = 4 << 20;

/// Reads an experiment. Also returns its text, with the workload files that it names.
fn read(path: &Path) -> Result<(Experiment, String), UserError> {
    let text = read_text(path, EXPERIMENT_BYTES_MAX, "an experiment")
        .map_err(|error| UserError::refused(format!("can't read the experiment {}: {error}", path.display())))?;
    let experiment = Experiment::from_toml(&path.display().to_string(), &text)?;
    let text = experiment.with_workload_files(&text);
    Ok((experiment, text))
}

/// Prints the verdicts of one experiment, writes its figure, table and page, and returns the
/// verdicts.
fn deliver(experiment: &Experiment, out: &Path, swept: &Swept, tell: Tell<'_>) -> Result<Vec<Judgement>, UserError> {
    let judgements = judge(experiment, &swept.curves);
    let accesses: u64 = swept.curves.values().flatten().map(|point| point.accesses).sum();
    let seconds: f64 = swept.curves.values().flatten().map(|point| point.host_seconds).sum();
    let mut text = format!(
        "{}: {} ({} measured, {} kept",
        experiment.id,
        experiment.title,
        counted(swept.measured, "point"),
        swept.kept
    );
    if seconds > 0.0 {
        text +=
            &format!("; {} simulated accesses a second", contend_runner::units::show_rate(accesses as f64 / seconds));
    }
    text += ")\n";
    for judgement in &judgements {
        text += &format!(
            "  {:8} {}: {} [{}]\n",
            judgement.verdict.name(),
            judgement.id,
            judgement.paper,
            judgement.numbers
        );
    }
    // A full disk must not hide the verdicts.
    tell(&text)?;
    let write = |name: &str, text: &str| Target::new(&out.join(&experiment.id).join(name))?.write_text(text);
    write("points.csv", &csv(&swept.curves))?;
    if let Some(figure) = drawn(experiment, &swept.curves) {
        write("figure.svg", &figure.file)?;
    }
    if let Some(figure) = published(experiment, &swept.curves) {
        write("published.svg", &figure.file)?;
    }
    write("index.html", &page(experiment, &swept.curves, &judgements))?;
    Ok(judgements)
}

/// Prints the counts of all verdicts, and writes their page and table.
fn finish(out: &Path, judged: &[(Experiment, Vec<Judgement>)], tell: Tell<'_>) -> Result<(), UserError> {
    let target = Target::new(&out.join("index.html"))?;
    let table = Target::new(&out.join("verdicts.md"))?;
    let count = |verdict: Verdict| {
        judged.iter().flat_map(|(_, judgements)| judgements).filter(|judgement| judgement.verdict == verdict).count()
    };
    let verb = |verdict: Verdict, verb: &str| match count(verdict) {
        1 => format!("1 {verb}s"),
        count => format!("{count} {verb}"),
    };
    tell(&format!(
        "{}, {}, {} not told, {} for protocols, {} unclear · page: {}\n",
        verb(Verdict::Holds, "hold"),
        verb(Verdict::Fails, "fail"),
        count(Verdict::NotTold),
        verb(Verdict::Waits, "wait"),
        count(Verdict::Unclear),
        target.path().display()
    ))?;
    target.write_text(&index(judged))?;
    table.write_text(&verdict_table(judged))
}

/// Returns all points as comma-separated values, a line each.
fn csv(curves: &Curves) -> String {
    let mut text = String::from(
        "series,x,throughput_per_second_median,throughput_per_second_min,throughput_per_second_max,abort_rate,latency_ns_p50,\
         latency_ns_p99,last_level_miss_ratio,useful,abort,timestamp,index,wait,manager,seeds,commits\n",
    );
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    for point in curves.values().flatten() {
        let spread = point.throughput;
        text += &format!(
            "{},{},{},{},{},{},{},{},{}",
            quoted(&point.series),
            quoted(&point.x.to_string()),
            spread.median,
            spread.min,
            spread.max,
            point.abort_rate,
            point.latency_ns_p50,
            point.latency_ns_p99,
            point.last_level_misses.map(|ratio| ratio.to_string()).unwrap_or_default()
        );
        match &point.breakdown {
            Some(breakdown) => breakdown.categories().iter().for_each(|(_, share)| text += &format!(",{share}")),
            None => text += ",,,,,,",
        }
        // The operations of a microbenchmark are no commits.
        let commits = point.commits.map(|commits| commits.to_string()).unwrap_or_default();
        text += &format!(",{},{commits}", point.seeds.len().max(1));
        text += "\n";
    }
    text
}
