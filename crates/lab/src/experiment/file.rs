//! The format of an experiment's file, and the points of the experiment.

use std::collections::BTreeMap;
use std::path::Path;

use contend_engine::{OptionSpec, Options};
use contend_machine::Native;
use contend_protocols::all_protocols;
use contend_protocols::method::TimestampOptions;
use contend_workloads::{ChosenWorkload, all_workloads};
use serde::Deserialize;
use toml::Spanned;

use super::X;
use super::assertion::check;
use crate::microbench::{Microbench, MicrobenchPlan};
use crate::whole_file::read_bounded;
use contend_runner::names::{common_specs, named_settings, option_name, simulation_specs};
use contend_runner::{RunConfig, RunError, RunPlan};

/// An experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// A short name, which is also that of its folder and its figure.
    pub id: String,
    /// The title of the figure.
    pub title: String,
    /// The question that the experiment answers.
    pub question: String,
    /// The publication that it comes from.
    pub source: String,
    /// Notes for a reader: what differs from the source, and why.
    #[serde(default)]
    pub notes: String,
    /// The parameters that all points share.
    pub run: RunSpec,
    /// The varied parameters. The first is the x-axis; each combination of values of the others
    /// makes a curve of its own.
    pub axis: Vec<VariedParameter>,
    /// The curves.
    pub series: Vec<Series>,
    /// The figure.
    #[serde(default)]
    pub plot: Plot,
    /// The source's own measurements, which are drawn beside.
    #[serde(default)]
    pub published: Option<Published>,
    /// The assertions about the outcome.
    #[serde(default)]
    pub assertion: Vec<Assertion>,
    /// The texts of the workload files that the experiment names, by their paths as the experiment
    /// writes them. A file without this table has them beside it: the paths are relative to its
    /// folder. The copy that a sweep keeps has the table.
    #[serde(default)]
    pub workload_files: BTreeMap<String, String>,
    /// The place of each assertion's expression in the file: line and column, from 1.
    #[serde(skip)]
    places: Vec<(usize, usize)>,
}

/// The part of a file that tells where the expressions are.
#[derive(Deserialize)]
struct Places {
    #[serde(default)]
    assertion: Vec<Place>,
}

#[derive(Deserialize)]
struct Place {
    holds: Spanned<String>,
}

/// The source's own measurements.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// The machine of these measurements, and where the numbers come from.
    pub by: String,
    /// The curves by name: pairs of x and of the figure's value.
    pub curves: BTreeMap<String, Vec<(f64, f64)>>,
}

/// The parameters that all points share.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RunSpec {
    /// A workload or preset. `None` if `micro` is set.
    pub workload: Option<String>,
    /// A microbenchmark.
    pub micro: Option<Microbench>,
    /// The machine.
    pub machine: Option<String>,
    /// The index.
    pub index: Option<String>,
    /// Threads, or simulated cores.
    pub threads: Option<usize>,
    /// The length of a window, in seconds.
    pub seconds: Option<f64>,
    /// The number of windows.
    pub windows: Option<usize>,
    /// The length of the warm-up, in seconds.
    pub warmup: Option<f64>,
    /// The seed.
    pub seed: Option<u64>,
    /// The number of seeds from which each simulated point is run: `seed`, and the next ones.
    pub seeds: Option<usize>,
    /// Whether each point is verified before it is measured.
    pub verify: bool,
    /// Options.
    pub set: BTreeMap<String, String>,
    /// An option by whose value throughput is multiplied, to show operations instead of
    /// transactions per second.
    pub count: Option<String>,
}

/// A varied parameter.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariedParameter {
    /// `threads`, `machine`, `workload`, `protocol`, `index`, `seed`, or an option.
    pub name: Spanned<String>,
    /// Its values.
    pub values: Vec<X>,
}

/// A curve.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// The name by which assertions refer to it.
    pub name: String,
    /// Whether the source has no such curve. It is drawn, but not in the list `S` of all series.
    #[serde(default)]
    pub extra: bool,
    /// The protocol.
    #[serde(default)]
    pub protocol: Option<String>,
    /// The machine, if it differs from that of the run.
    #[serde(default)]
    pub machine: Option<String>,
    /// The index, if it differs from that of the run.
    #[serde(default)]
    pub index: Option<String>,
    /// The length of a window, if it differs from that of the run. Real and simulated time need
    /// different lengths.
    #[serde(default)]
    pub seconds: Option<f64>,
    /// The number of windows, if it differs from that of the run.
    #[serde(default)]
    pub windows: Option<usize>,
    /// The length of the warm-up, if it differs from that of the run.
    #[serde(default)]
    pub warmup: Option<f64>,
    /// Options in addition to those of the run.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
}

/// The figure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Plot {
    /// The label of the x-axis.
    pub x: String,
    /// `throughput`, `abort_rate`, `last_level_misses` or `latency_p50`.
    pub y: Metric,
    /// Whether the x-axis is logarithmic.
    pub x_log: bool,
    /// Whether the y-axis is logarithmic.
    pub y_log: bool,
    /// An x at which a breakdown of the time is drawn as stacked bars.
    pub breakdown: Option<X>,
}

impl Default for Plot {
    fn default() -> Self {
        Plot { x: "x".into(), y: Metric::Throughput, x_log: false, y_log: false, breakdown: None }
    }
}

/// The figure on the y-axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Transactions, or operations, per second.
    Throughput,
    /// The fraction of all tries that were aborted.
    AbortRate,
    /// The fraction of the requests beyond the private caches that the last level did not answer.
    LastLevelMisses,
    /// The median latency in nanoseconds.
    LatencyP50,
}

/// An assertion about the outcome.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Assertion {
    /// Its id.
    pub id: String,
    /// The claim of the source, in words or as an expression of the catalogue.
    pub paper: String,
    /// The claim as an expression; see the module `assertion`.
    pub holds: String,
    /// Series of the assertion that do not exist yet. As long as one is missing, the assertion is
    /// not judged.
    #[serde(default)]
    pub waits_for: Vec<String>,
    /// The reason for a failure that is expected to stay.
    #[serde(default)]
    pub why: String,
}

/// The work that measures a point.
#[derive(Clone, Debug)]
pub enum PointWork {
    /// A protocol on a workload.
    Workload(Box<RunPlan>),
    /// A micro-benchmark.
    Microbench(Box<MicrobenchPlan>),
}

/// A point of an experiment.
#[derive(Clone, Debug)]
pub struct Point {
    /// The curve.
    pub series: String,
    /// The place on the x-axis.
    pub x: X,
    /// The work that measures it.
    pub work: PointWork,
    /// The factor by which throughput is multiplied.
    pub factor: f64,
}

impl Point {
    /// Returns the configuration.
    pub fn config(&self) -> &RunConfig {
        match &self.work {
            PointWork::Workload(plan) => &plan.config,
            PointWork::Microbench(plan) => plan.config(),
        }
    }

    /// Returns the micro-benchmark, if it is one.
    pub fn micro(&self) -> Option<Microbench> {
        match &self.work {
            PointWork::Workload(_) => None,
            PointWork::Microbench(plan) => Some(plan.micro()),
        }
    }

    /// Returns the same point, measured from another seed.
    pub fn with_seed(&self, seed: u64) -> Point {
        let work = match &self.work {
            PointWork::Workload(plan) => PointWork::Workload(Box::new(plan.with_seed(seed))),
            PointWork::Microbench(plan) => PointWork::Microbench(Box::new(plan.with_seed(seed))),
        };
        Point { work, ..self.clone() }
    }
}

const AXES: [&str; 6] = ["threads", "machine", "workload", "protocol", "index", "seed"];
/// The largest number of seeds of a point.
pub const SEEDS_MAX: usize = 100;
/// The largest number of points of an experiment.
const POINTS_MAX: usize = 10_000;
/// A workload file has some kilobytes.
const WORKLOAD_BYTES_MAX: u64 = 4 << 20;

impl Experiment {
    /// Parses an experiment. Errors call it `path`.
    ///
    /// # Errors
    /// The text is no valid experiment; the message says where, and what would be valid.
    pub fn from_toml(path: &str, text: &str) -> Result<Experiment, RunError> {
        let bad = |message: String| RunError::BadInput(format!("{path}: {message}"));
        let mut experiment: Experiment = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        let simple = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        if experiment.id.is_empty() || !experiment.id.chars().all(simple) {
            return Err(bad(format!("id is '{}'; valid: letters, digits, - and _", experiment.id)));
        }
        if experiment.axis.is_empty() || experiment.axis.iter().any(|axis| axis.values.is_empty()) {
            return Err(bad("an experiment needs an [[axis]], and each axis needs values".into()));
        }
        if experiment.series.is_empty() {
            return Err(bad("an experiment needs a [[series]]".into()));
        }
        let published = experiment.published.iter().flat_map(|published| &published.curves);
        let mut values = published.flat_map(|(name, points)| points.iter().map(move |(x, y)| (name, x, y)));
        if let Some((name, ..)) = values.find(|(_, x, y)| !x.is_finite() || !y.is_finite()) {
            return Err(bad(format!(
                "[published] curve '{name}' has a point that is not a number; valid: finite numbers"
            )));
        }
        if experiment.published.as_ref().is_some_and(|published| published.curves.values().all(Vec::is_empty)) {
            return Err(bad("[published] needs curves, each a list of pairs: [[x, y], ...]".into()));
        }
        if experiment.workload_files.is_empty() {
            let folder = Path::new(path).parent().unwrap_or(Path::new(""));
            experiment.workload_files = experiment.read_workload_files(folder).map_err(bad)?;
        }
        let options = experiment.known_options().map_err(|error| bad(error.to_string()))?;
        for axis in &experiment.axis {
            let name = axis.name.get_ref().as_str();
            if !AXES.contains(&name) && !options.iter().any(|spec| spec.name == option_name(name)) {
                let (line, column) = line_and_column(text, axis.name.span().start);
                let valid = AXES.into_iter().chain(options.iter().map(|spec| spec.name)).collect::<Vec<_>>().join(", ");
                return Err(bad(format!("line {line}, column {column}: unknown axis '{name}'; valid: {valid}")));
            }
        }
        if let Some(seeds) = experiment.run.seeds {
            experiment.check_seeds(seeds).map_err(|error| bad(format!("run.{error}")))?;
        }
        // The points are resolved here, so that mistakes are reported before anything runs.
        let points = experiment.points().map_err(|error| bad(error.to_string()))?;
        let mut curves: BTreeMap<String, Vec<X>> = BTreeMap::new();
        for Point { series, x, .. } in points {
            curves.entry(series).or_default().push(x);
        }
        let places: Places = toml::from_str(text).map_err(|error| bad(error.to_string()))?;
        for (number, (assertion, place)) in experiment.assertion.iter().zip(&places.assertion).enumerate() {
            let Assertion { id, holds, waits_for, .. } = assertion;
            let span = place.holds.span();
            // The expression begins behind the quotation marks, unless it is written with escapes.
            let inside = text.get(span.clone()).and_then(|written| written.find(holds.as_str())).unwrap_or(0);
            let start = span.start + inside;
            experiment.places.push(line_and_column(text, start));
            if experiment.assertion[..number].iter().any(|other| other.id == *id) {
                let (line, column) = line_and_column(text, start);
                return Err(bad(format!("line {line}, column {column}: there are two assertions '{id}'")));
            }
            if let Err((at, what)) = check(holds, &curves, waits_for) {
                let (line, column) = line_and_column(text, start + offset(holds, at));
                return Err(bad(format!("line {line}, column {column}: assertion '{id}': {what}")));
            }
        }
        Ok(experiment)
    }

    /// Returns the texts of the workload files that the experiment names.
    ///
    /// # Errors
    /// A file can't be read. The message names it.
    fn read_workload_files(&self, folder: &Path) -> Result<BTreeMap<String, String>, String> {
        let of_axis = self.axis.iter().filter(|axis| axis.name.get_ref() == "workload");
        let names = of_axis.flat_map(|axis| axis.values.iter().map(X::to_string)).chain(self.run.workload.clone());
        let mut texts = BTreeMap::new();
        for name in names.filter(|name| ChosenWorkload::registered(name).is_none()) {
            let path = folder.join(&name);
            // Any other name may be a misspelled one of the list, and is refused as such.
            if name.contains(['/', '.']) || path.is_file() {
                let text = read_bounded(&path, WORKLOAD_BYTES_MAX, "a workload file")
                    .and_then(|bytes| String::from_utf8(bytes).map_err(std::io::Error::other))
                    .map_err(|error| format!("the workload file {} can't be read: {error}", path.display()))?;
                texts.insert(name, text);
            }
        }
        Ok(texts)
    }

    /// Returns the text of the experiment's file with the workload files that it names, so that the
    /// text stands alone.
    pub fn with_workload_files(&self, text: &str) -> String {
        let is_there = toml::from_str::<toml::Table>(text).is_ok_and(|table| table.contains_key("workload_files"));
        if self.workload_files.is_empty() || is_there {
            return text.to_owned();
        }
        let files = toml::Table::from_iter([("workload_files".to_owned(), self.workload_files.clone().into())]);
        format!("{}\n\n{files}", text.trim_end())
    }

    /// Returns whether an axis varies the seed.
    pub fn has_axis_of_seeds(&self) -> bool {
        self.axis.iter().any(|axis| axis.name.get_ref() == "seed")
    }

    /// Checks that each point can be run from `seeds` seeds.
    ///
    /// # Errors
    /// `seeds` is out of range, or an axis varies the seed already.
    pub fn check_seeds(&self, seeds: usize) -> Result<(), RunError> {
        if !(1..=SEEDS_MAX).contains(&seeds) {
            return Err(RunError::BadInput(format!("seeds is {seeds}; valid: 1 to {SEEDS_MAX}")));
        }
        if seeds > 1 && self.has_axis_of_seeds() {
            return Err(RunError::BadInput(format!(
                "seeds is {seeds}, and experiment {} has an axis of seeds; valid: 1, or no such axis",
                self.id
            )));
        }
        Ok(())
    }

    /// Returns the place of an assertion's expression in the file: line and column, from 1.
    pub fn place_of(&self, id: &str) -> Option<(usize, usize)> {
        let number = self.assertion.iter().position(|assertion| assertion.id == id)?;
        self.places.get(number).copied()
    }

    /// Returns the points of the experiment, curve by curve.
    ///
    /// # Errors
    /// A point can't be run.
    pub fn points(&self) -> Result<Vec<Point>, RunError> {
        let lengths = self.axis.iter().map(|axis| axis.values.len());
        let count = lengths.fold(self.series.len(), usize::saturating_mul);
        if count > POINTS_MAX {
            return Err(RunError::BadInput(format!("{count} points; valid: up to {POINTS_MAX}")));
        }
        let mut points = Vec::new();
        for series in &self.series {
            // Every combination of the further axes is a curve.
            let mut curves = vec![(series.name.clone(), Vec::new())];
            for axis in &self.axis[1..] {
                curves = curves
                    .into_iter()
                    .flat_map(|(name, chosen)| {
                        axis.values.iter().map(move |value| {
                            let mut chosen: Vec<(&str, &X)> = chosen.clone();
                            chosen.push((axis.name.get_ref(), value));
                            (format!("{name} {value}"), chosen)
                        })
                    })
                    .collect();
            }
            for (name, chosen) in curves {
                for x in &self.axis[0].values {
                    let all: Vec<(&str, &X)> =
                        chosen.iter().copied().chain([(self.axis[0].name.get_ref().as_str(), x)]).collect();
                    points.push(self.point(series, &name, x, &all)?);
                }
            }
        }
        Ok(points)
    }

    fn point(&self, series: &Series, name: &str, x: &X, chosen: &[(&str, &X)]) -> Result<Point, RunError> {
        let run = &self.run;
        let axis = |name: &str| chosen.iter().find(|(axis, _)| *axis == name).map(|(_, value)| value.to_string());
        let number = |name: &str| {
            let value = axis(name)?;
            Some(
                value
                    .parse::<u64>()
                    .map_err(|_| RunError::BadInput(format!("{name} is '{value}'; valid: a whole number"))),
            )
        };
        let machine = axis("machine").or_else(|| series.machine.clone()).or_else(|| run.machine.clone());
        let mut config = RunConfig::default();
        if let Some(machine) = machine {
            config = config.on(&machine)?;
        }
        if let Some(threads) = number("threads").transpose()?.map(|threads| threads as usize).or(run.threads) {
            config.threads = threads;
        }
        config.window_seconds = series.seconds.or(run.seconds).unwrap_or(config.window_seconds);
        config.windows = series.windows.or(run.windows).unwrap_or(config.windows);
        config.warmup_seconds = series.warmup.or(run.warmup).unwrap_or(config.warmup_seconds);
        config.seed = number("seed").transpose()?.or(run.seed).unwrap_or(config.seed);
        config.index = axis("index").or_else(|| series.index.clone()).or_else(|| run.index.clone());
        config.verify = run.verify;
        // A series overrides the run, whichever name of an option each of them uses.
        config.settings = named_settings(&run.set)?;
        config.settings.extend(named_settings(&series.set)?);
        for (option, value) in chosen.iter().filter(|(axis, _)| !AXES.contains(axis)) {
            config.settings.insert(option_name(option).into(), value.to_string());
        }
        if let Some(workload) = axis("workload").or_else(|| run.workload.clone()) {
            config.workload_text = self.workload_files.get(&workload).cloned();
            config.workload = workload;
        } else if run.micro.is_none() {
            return Err(RunError::BadInput("run.workload or run.micro must be set".into()));
        }
        match axis("protocol").or_else(|| series.protocol.clone()) {
            Some(protocol) => config.protocols = vec![protocol],
            None if run.micro.is_some() => config.protocols = Vec::new(),
            None => return Err(RunError::BadInput(format!("series '{}' has no protocol", series.name))),
        }
        let work = match run.micro {
            None => {
                let plan = config.resolve()?;
                config = plan.config.clone();
                PointWork::Workload(Box::new(plan))
            }
            Some(micro) => PointWork::Microbench(Box::new(MicrobenchPlan::resolve(&config, micro)?)),
        };
        let factor = match &run.count {
            None => 1.0,
            Some(option) => {
                let value = config.settings.get(option_name(option));
                value.and_then(|value| value.parse::<f64>().ok()).ok_or_else(|| {
                    RunError::BadInput(format!("run.count names '{option}', which is not set to a number"))
                })?
            }
        };
        Ok(Point { series: name.into(), x: x.clone(), work, factor })
    }

    /// Returns the options that an axis may vary.
    ///
    /// # Errors
    /// A workload file is not valid.
    fn known_options(&self) -> Result<Vec<OptionSpec>, RunError> {
        let mut all = simulation_specs();
        if self.run.micro.is_some() {
            all.extend(TimestampOptions::specs());
            return Ok(all);
        }
        all.extend(common_specs());
        let mut of_files = Vec::new();
        for (name, text) in &self.workload_files {
            let (workload, workload_text) = (name.clone(), Some(text.clone()));
            of_files.extend(RunConfig { workload, workload_text, ..RunConfig::default() }.chosen_workload()?.specs());
        }
        let of_workloads = all_workloads().into_iter().flat_map(|(_, specs)| specs);
        let of_protocols = all_protocols::<Native>().into_iter().flat_map(|(_, specs)| specs);
        for spec in of_files.into_iter().chain(of_workloads).chain(of_protocols) {
            if !all.iter().any(|known| known.name == spec.name) {
                all.push(spec);
            }
        }
        Ok(all)
    }
}

/// Returns the number of bytes of an expression before a position, which Rhai gives by line and
/// character.
fn offset(expression: &str, at: rhai::Position) -> usize {
    let line = at.line().unwrap_or(1) - 1;
    let before: usize = expression.split_inclusive('\n').take(line).map(str::len).sum();
    let rest = expression.get(before..).unwrap_or_default();
    let characters = at.position().unwrap_or(1).saturating_sub(1);
    before + rest.chars().take(characters).map(char::len_utf8).sum::<usize>()
}

/// Returns the line and the column, from 1, of a byte offset in a text.
fn line_and_column(text: &str, place: usize) -> (usize, usize) {
    let before = &text[..place.min(text.len())];
    let line = before.matches('\n').count() + 1;
    (line, before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
id = "small"
title = "t"
question = "q"
source = "s"
[run]
workload = "ycsb"
machine = "abyss"
[run.set]
"ycsb.records" = "1000"
[[axis]]
name = "threads"
values = [1, 4]
[[axis]]
name = "ycsb.theta"
values = [0, 0.8]
[[series]]
name = "Silo"
protocol = "silo"
"#;

    const ASSERTED: &str = r#"[[assertion]]
id = "a.1"
paper = ""
holds = 'T("Silo 0", 1) > 0'
[[assertion]]
id = "a.2"
paper = ""
holds = "S.all(|s| X.all(|x| T(s, x) > 0))"
"#;

    #[test]
    fn points_are_all_combinations() {
        let points = Experiment::from_toml("small.toml", SMALL).expect("valid").points().expect("valid");
        let all: Vec<_> = points
            .iter()
            .map(|point| {
                (point.series.as_str(), point.config().threads, point.config().settings["ycsb.theta"].as_str())
            })
            .collect();
        assert_eq!(all, [("Silo 0", 1, "0"), ("Silo 0", 4, "0"), ("Silo 0.8", 1, "0.8"), ("Silo 0.8", 4, "0.8")]);
    }

    /// The index is that of an axis, of the series, or of the run, in this order.
    #[test]
    fn a_series_may_have_its_own_index() {
        let index = |run: &str, series: &str, axis: &str| {
            let text = SMALL.replacen("machine = \"abyss\"\n", &format!("machine = \"abyss\"\n{run}"), 1);
            let text = text.replacen("name = \"ycsb.theta\"\nvalues = [0, 0.8]", axis, 1) + series;
            let points = Experiment::from_toml("small.toml", &text).expect("valid").points().expect("valid");
            points[0].config().index.clone()
        };
        let theta = "name = \"ycsb.theta\"\nvalues = [0, 0.8]";
        let (hash, ordered) = ("index = \"hash\"\n", "index = \"ordered\"\n");
        assert_eq!(index("", "", theta).as_deref(), Some("hash"));
        assert_eq!(index(ordered, "", theta).as_deref(), Some("ordered"));
        assert_eq!(index(hash, ordered, theta).as_deref(), Some("ordered"));
        assert_eq!(index("", ordered, "name = \"index\"\nvalues = [\"hash\"]").as_deref(), Some("hash"));
    }

    #[test]
    fn a_file_that_asks_for_too_many_points_is_refused() {
        // 2^64 points of each of four axes together: the product does not fit a word.
        let values = vec!["1"; 1 << 16].join(",");
        let more = |name: &str| format!("[[axis]]\nname = \"{name}\"\nvalues = [{values}]\n");
        for names in [&["ycsb.records"][..], &["ycsb.records", "ycsb.payload", "ycsb.fields", "ycsb.ops"]] {
            let axes: String = names.iter().map(|name| more(name)).collect();
            let text = SMALL.replacen("[[series]]", &format!("{axes}[[series]]"), 1);
            let error = Experiment::from_toml("large.toml", &text).expect_err("too many").to_string();
            assert!(error.contains("points; valid: up to 10000"), "{error}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (from, to, expected) in [
            (
                "name = \"threads\"",
                "name = \"cores\"",
                &["line 12, column 8", "unknown axis 'cores'", "threads", "ycsb.theta"][..],
            ),
            ("id = \"small\"", "id = \"a/b\"", &["id is 'a/b'"]),
            ("question = ", "qestion = ", &["qestion", "line 4"]),
            ("protocol = \"silo\"", "protocol = \"sillo\"", &["sillo", "2pl-nowait"]),
            ("values = [1, 4]", "values = [1, 2000]", &["2000", "1 to 1024"]),
            ("values = [0, 0.8]", "values = [0, 1.8]", &["ycsb.theta", "1.8"]),
            ("machine = \"abyss\"", "machine = \"abys\"", &["unknown machine 'abys'"]),
            ("'T(\"Silo 0\", 1)", "'T(\"Silo 0\", 1) >", &["line 23, column 27", "assertion 'a.1'"]),
            ("'T(\"Silo 0\", 1)", "'1 > T(\"Sillo 0\", 1)", &["line 23, column 14", "'a.1'", "'Sillo 0'", "Silo 0.8"]),
            ("'T(\"Silo 0\", 1)", "'false && T(\"Silo 0\", 3)", &["line 23, column 19", "'a.1'", "'Silo 0'", "1, 4"]),
            ("'T(\"Silo 0\", 1)", "'tmx(\"Silo 0\")", &["line 23, column 10", "'a.1'", "function 'tmx'", "tmax"]),
            ("'T(\"Silo 0\", 1)", "'Z(\"Silo 0\", 1)", &["function 'Z'"]),
            ("'T(\"Silo 0\", 1)", "'Y.len() > 0 && T(\"Silo 0\", 1)", &["line 23", "'a.1'", "Y"]),
            ("id = \"a.2\"", "id = \"a.1\"", &["line 27, column 10", "two assertions 'a.1'"]),
        ] {
            let valid = SMALL.to_owned() + ASSERTED;
            assert!(valid.contains(from), "{from}");
            let error = Experiment::from_toml("small.toml", &valid.replace(from, to)).expect_err("bad").to_string();
            for part in expected.iter().chain(&["small.toml"]) {
                assert!(error.contains(part), "'{part}' is not in: {error}");
            }
        }
    }
}
