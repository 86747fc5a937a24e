//! `contend sweep` and `contend plot`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use contend_lab::experiment::{
    Curves, Experiment, Folder, Judgement, SEEDS_MAX, Swept, Verdict, drawn, index, judge, kept, page, published,
    sweep as run, verdict_table,
};
use contend_machine::available_cores;

use crate::args::{PlotArgs, SweepArgs};
use crate::files::{Target, folder, read_text};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

/// The name of the copy of the experiment's file that `plot` reads: the file as it was when the
/// points were measured.
const EXPERIMENT: &str = "experiment.toml";

pub(crate) fn sweep(args: &SweepArgs) -> Result<Status, UserError> {
    let jobs = args.jobs.unwrap_or_else(|| available_cores().len());
    if !(1..=1024).contains(&jobs) {
        return Err(UserError::refused(format!("jobs is {jobs}; valid: 1 to 1024")));
    }
    if let Some(seeds) = args.seeds.filter(|seeds| !(1..=SEEDS_MAX).contains(seeds)) {
        return Err(UserError::refused(format!("seeds is {seeds}; valid: 1 to {SEEDS_MAX}")));
    }
    let allowed = Allowed::read(args.allow.as_deref())?;
    // Every file is read before the first point is measured, so that bad input is told at once.
    let mut experiments = Vec::new();
    for path in &args.files {
        let (experiment, text) = read(path)?;
        if experiments.iter().any(|(other, _): &(Experiment, String)| other.id == experiment.id) {
            return Err(UserError::refused(format!(
                "{}: there is another experiment of id {}",
                path.display(),
                experiment.id
            )));
        }
        if let Some(seeds) = args.seeds {
            experiment.check_seeds(seeds)?;
        }
        experiments.push((experiment, text));
    }
    let out = folder(&args.out)?;
    for (experiment, _) in &experiments {
        kept(experiment, &Folder::new(out, experiment))?;
    }
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    let mut judged = Vec::new();
    let mut missing = 0;
    for (number, (experiment, text)) in experiments.iter().enumerate() {
        if experiments.len() > 1 {
            show::complain(&format!("{} of {}: {}", number + 1, experiments.len(), experiment.id));
        }
        let folder = Folder::new(out, experiment);
        let swept = run(experiment, &folder, jobs, args.seeds, &stop, &bars)?;
        Target::new(&folder.path().join(EXPERIMENT))?.write_text(text)?;
        missing += swept.missing;
        judged.push((experiment.clone(), deliver(experiment, &folder, &swept)?));
        if stop.is_requested() {
            break;
        }
    }
    finish(out, &judged)?;
    if missing > 0 || judged.len() < experiments.len() {
        show::complain(&format!("PARTIAL: {missing} points are missing; the same command goes on with them"));
        return Ok(Status::Interrupted);
    }
    let paths: Vec<&Path> = args.files.iter().map(PathBuf::as_path).collect();
    Ok(allowed.status(&paths, &judged))
}

pub(crate) fn plot(args: &PlotArgs) -> Result<Status, UserError> {
    let error = |error: std::io::Error| UserError::refused(format!("can't read {}: {error}", args.results.display()));
    let mut files: Vec<PathBuf> = std::fs::read_dir(&args.results)
        .map_err(error)?
        .filter_map(|entry| Some(entry.ok()?.path().join(EXPERIMENT)))
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    if files.is_empty() {
        return Err(UserError::refused(format!("{} holds no results of contend sweep", args.results.display())));
    }
    let allowed = Allowed::read(args.allow.as_deref())?;
    let mut judged = Vec::new();
    for file in &files {
        let (experiment, _) = read(file)?;
        let folder = Folder::new(&args.results, &experiment);
        let swept = kept(&experiment, &folder)?;
        judged.push((experiment.clone(), deliver(&experiment, &folder, &swept)?));
    }
    finish(&args.results, &judged)?;
    Ok(allowed.status(&files.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &judged))
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

/// Reads an experiment; also returns its text.
fn read(path: &Path) -> Result<(Experiment, String), UserError> {
    let text = read_text(path, EXPERIMENT_BYTES_MAX, "an experiment")
        .map_err(|error| UserError::refused(format!("can't read the experiment {}: {error}", path.display())))?;
    let experiment = Experiment::from_toml(&path.display().to_string(), &text)?;
    Ok((experiment, text))
}

/// Writes the figure, table and page of one experiment, prints its verdicts, and returns them.
fn deliver(experiment: &Experiment, folder: &Folder, swept: &Swept) -> Result<Vec<Judgement>, UserError> {
    let judgements = judge(experiment, &swept.curves);
    let write = |name: &str, text: &str| Target::new(&folder.path().join(name))?.write_text(text);
    write("points.csv", &csv(&swept.curves))?;
    if let Some(figure) = drawn(experiment, &swept.curves) {
        write("figure.svg", &figure.file)?;
    }
    if let Some(figure) = published(experiment, &swept.curves) {
        write("published.svg", &figure.file)?;
    }
    write("index.html", &page(experiment, &swept.curves, &judgements))?;
    let accesses: u64 = swept.curves.values().flatten().map(|point| point.accesses).sum();
    let seconds: f64 = swept.curves.values().flatten().map(|point| point.host_seconds).sum();
    let mut text =
        format!("{}: {} ({} points measured, {} kept", experiment.id, experiment.title, swept.measured, swept.kept);
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
    show::print(&text)?;
    Ok(judgements)
}

/// Writes the page and the table of all verdicts, and prints their counts.
fn finish(out: &Path, judged: &[(Experiment, Vec<Judgement>)]) -> Result<(), UserError> {
    let target = Target::new(&out.join("index.html"))?;
    target.write_text(&index(judged))?;
    Target::new(&out.join("verdicts.md"))?.write_text(&verdict_table(judged))?;
    let count = |verdict: Verdict| {
        judged.iter().flat_map(|(_, judgements)| judgements).filter(|judgement| judgement.verdict == verdict).count()
    };
    show::print(&format!(
        "{} hold, {} fail, {} not told, {} wait for protocols, {} unclear · page: {}\n",
        count(Verdict::Holds),
        count(Verdict::Fails),
        count(Verdict::NotTold),
        count(Verdict::Waits),
        count(Verdict::Unclear),
        target.path().display()
    ))
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
