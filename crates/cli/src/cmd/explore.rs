//! `contend explore`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use contend_model::counted;
use contend_proof::explore::{ExploreConfig, Explored, Found, Show, ShownStep, explore};
use contend_runner::{Observer, RunConfig, RunError, RunPlan, Stop};

use super::{Place, left_out};
use crate::args::ExploreArgs;
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

/// The explorations of a command.
pub(crate) struct Explorations {
    /// Each run, and its plan for one protocol.
    tasks: Vec<(RunConfig, RunPlan)>,
    config: ExploreConfig,
    budget: Option<Duration>,
    all_steps: bool,
}

/// The steps of an interleaving from which it is shortened.
const LONG: usize = 100;

/// The result of an exploration, and the command that replays what was found.
pub(crate) type Replayable = (Explored, String);

impl Explorations {
    /// Returns what the flags ask for. All plans are made before the first exploration, so that bad
    /// input is told at once.
    ///
    /// # Errors
    /// A flag, a workload or a protocol is not valid.
    pub(crate) fn new(args: &ExploreArgs) -> Result<Self, UserError> {
        let (runs, config) = (args.runs()?, args.config()?);
        config.check()?;
        let mut tasks = Vec::new();
        for run in &runs {
            left_out(run)?;
            tasks.extend(run.resolve()?.each().map(|plan| (run.clone(), plan)));
        }
        // Among many explorations, the anomalies that promises allow would bury the wrong ones.
        let show = match () {
            () if args.show => Show::Any,
            () if tasks.len() == 1 => Show::Allowed,
            () => Show::Wrong,
        };
        let (budget, all_steps) = (args.budget, args.all_steps);
        Ok(Explorations { tasks, config: ExploreConfig { show, ..config }, budget, all_steps })
    }

    /// Explores, until the end or a request to stop.
    ///
    /// # Errors
    /// As [`explore`].
    pub(crate) fn explore(&self, stop: &Stop, observer: &dyn Observer) -> Result<Vec<Replayable>, RunError> {
        let mut all: Vec<Replayable> = Vec::new();
        // An exploration whose share of the time is spent gets too little for an execution. Its
        // verdict says so.
        let least = Duration::from_nanos(1);
        let share = |left: usize, spent: Duration| {
            self.budget.map(|budget| (budget.saturating_sub(spent) / left as u32).max(least))
        };
        let started = std::time::Instant::now();
        observer.begin("exploring", self.tasks.len() as u64);
        for (number, (run, plan)) in self.tasks.iter().enumerate() {
            let budget = share(self.tasks.len() - number, started.elapsed());
            for explored in explore(plan, &ExploreConfig { budget, ..self.config.clone() }, stop)? {
                let found = explored.found.as_ref().or(explored.shown.as_ref());
                let command = found.map(|found| replay_command(run, &explored, found));
                all.push((explored, command.unwrap_or_default()));
            }
            observer.advance(1);
            if stop.is_requested() {
                break;
            }
        }
        observer.end();
        Ok(all)
    }

    /// Returns what was found, step by step, and the table.
    pub(crate) fn text(&self, all: &[Replayable]) -> String {
        let mut text = String::new();
        for (explored, command) in all {
            let found = explored.found.as_ref().filter(|_| explored.violated || self.config.show != Show::Wrong);
            if let Some(found) = found.or(explored.shown.as_ref()) {
                text += &interleaving(explored, found, command, self.all_steps);
            }
        }
        text += &table(&all.iter().map(|(explored, _)| explored).collect::<Vec<_>>());
        text
    }
}

pub(crate) fn run(args: &ExploreArgs) -> Result<Status, UserError> {
    let explorations = Explorations::new(args)?;
    let json = Place::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let all = explorations.explore(&stop, &Bars::default())?;
    json.deliver(&explorations.text(&all), &all.iter().map(|(explored, _)| explored).collect::<Vec<_>>())?;
    Ok(match () {
        () if all.iter().any(|(explored, _)| explored.violated) => Status::CheckFailed,
        () if stop.is_requested() => Status::Interrupted,
        () if all.iter().any(|(explored, _)| explored.is_vacuous()) => Status::CheckFailed,
        () => Status::Good,
    })
}

/// Returns the command that replays what was found.
fn replay_command(run: &RunConfig, explored: &Explored, found: &Found) -> String {
    let mut command = format!(
        "contend explore --protocol {} --workload {} --cores {} --transactions {} --seed {}",
        explored.protocol, explored.workload, explored.cores, explored.transactions, found.seed
    );
    if let Some(index) = &run.index {
        command += &format!(" --index {index}");
    }
    for (name, value) in &run.settings {
        command += &format!(" --set {name}={value}");
    }
    format!("{command} --replay {}", found.schedule)
}

/// Returns what happened, step by step.
fn interleaving(explored: &Explored, found: &Found, command: &str, all_steps: bool) -> String {
    let shrunk = match found.switches_found {
        switches if switches == found.switches => String::new(),
        switches => format!(", shrunk from {switches}"),
    };
    let mut text = format!(
        "{} on {}: {} (execution {}; {} between cores{shrunk})\n",
        explored.protocol,
        explored.workload,
        found.verdict,
        found.executions,
        counted(found.switches, "switch")
    );
    if let Some(explanation) = &found.explanation {
        text += &format!("{explanation}\n");
    }
    let mut columns: Vec<String> = (0..explored.cores).map(|core| format!("core {core}")).collect();
    columns.push("epochs".into());
    let mut table = show::table(["step"].into_iter().chain(columns.iter().map(String::as_str)));
    let all = &found.steps[..];
    let steps: Vec<&ShownStep> =
        if all_steps || all.len() <= LONG { all.iter().collect() } else { essential(all, &found.rows) };
    for step in &steps {
        let cells = (0..columns.len()).map(|core| if core == step.core { step.text.clone() } else { String::new() });
        table.add_row([step.number.to_string()].into_iter().chain(cells));
    }
    if steps.len() < all.len() {
        let rows = if told_apart(all, &found.rows) {
            "the rows of the anomaly"
        } else {
            "rows that several cores use and one changes"
        };
        text += &format!(
            "{} of {}: those at {rows}, and those at switches between cores; --all-steps shows all\n",
            steps.len(),
            counted(all.len(), "step")
        );
    }
    format!("{text}{table}\nthe same again: {command}\n\n")
}

/// Whether steps are at the rows of the anomaly, so that they alone tell it.
fn told_apart(steps: &[ShownStep], rows: &[String]) -> bool {
    let is_one = |step: &ShownStep| row_of(&step.text).is_some_and(|(_, row, _)| rows.iter().any(|of| of == row));
    steps.iter().any(is_one)
}

/// Returns the steps that tell what happened: at each row of the anomaly, the first of the steps
/// that do one thing with it; and those before and after a switch. If no rows are known, the rows
/// are those that several cores use and one of them changes.
fn essential<'s>(steps: &'s [ShownStep], rows: &[String]) -> Vec<&'s ShownStep> {
    let told_apart = told_apart(steps, rows);
    let mut users: BTreeMap<&str, (BTreeSet<usize>, bool)> = BTreeMap::new();
    for step in steps {
        if let Some((_, row, changes)) = row_of(&step.text) {
            let (cores, is_changed) = users.entry(row).or_default();
            cores.insert(step.core);
            *is_changed |= changes;
        }
    }
    let is_shared = |row: &str| {
        let is_used = || users.get(row).is_some_and(|(cores, is_changed)| cores.len() > 1 && *is_changed);
        if told_apart { rows.iter().any(|of| of == row) } else { is_used() }
    };
    let mut kept: Vec<&ShownStep> = Vec::new();
    let mut last = None;
    for (number, step) in steps.iter().enumerate() {
        let switches = |other: Option<&ShownStep>| other.is_none_or(|other| other.core != step.core);
        let is_at_switch =
            switches(number.checked_sub(1).map(|before| &steps[before])) || switches(steps.get(number + 1));
        let shared = row_of(&step.text).filter(|(_, row, _)| is_shared(row)).map(|deed| (step.core, deed));
        if is_at_switch || shared.is_some() && shared != last {
            kept.push(step);
        }
        last = shared.or(last.filter(|_| !is_at_switch));
    }
    kept
}

/// Returns the name of a step, the row that it touches, and whether it changes the row. `None` if
/// it touches none.
fn row_of(text: &str) -> Option<(&str, &str, bool)> {
    let (name, access) = text.split_once(": ")?;
    let (kind, place) = access.split_once(' ')?;
    // A place is TABLE[KEY], and then the part of the record.
    let end = place.rfind("] ")?;
    Some((name, &place[..=end], kind != "load"))
}

fn table(all: &[&Explored]) -> String {
    let columns = ["protocol", "workload", "executions", "distinct", "livelocks", "commits", "aborts", "/s", "verdict"];
    let spare = ["/s", "aborts", "commits", "livelocks", "distinct"];
    let mut table = show::table(columns).numbers(2..8).spare(&spare);
    for explored in all {
        table.add_row([
            explored.protocol.clone(),
            explored.workload.clone(),
            explored.executions.to_string(),
            explored.distinct.to_string(),
            explored.livelocks.to_string(),
            explored.commits.to_string(),
            explored.aborts.to_string(),
            format!("{:.0}", explored.executions as f64 / explored.seconds.max(1e-9)),
            explored.verdict(),
        ]);
    }
    format!("{table}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_interleaving_is_shortened_to_the_rows_that_several_cores_use() {
        let texts = [
            (0, "begin: load (2 x)"),
            (0, "read: load t[1] metadata"),
            (0, "read: load t[1] word 1"),
            (0, "read: load t[1] word 2"),
            (0, "read: load t[2] metadata"),
            (0, "look up: load (23 x)"),
            (1, "look up: load (4 x)"),
            (1, "read: load u[a b] word 1"),
            (1, "lock: atomic t[1] metadata"),
            (1, "install: store t[1] word 1 (3 x)"),
            (1, "end: store"),
            (0, "read: load u[a b] word 1"),
            (0, "check: load t[1] metadata"),
            (0, "end: wait"),
        ];
        let step = |(number, (core, text)): (usize, &(usize, &str))| ShownStep {
            number: number as u64 + 1,
            core: *core,
            text: text.to_string(),
        };
        let steps: Vec<ShownStep> = texts.iter().enumerate().map(step).collect();
        let kept = |rows: &[&str]| -> Vec<u64> {
            let rows: Vec<String> = rows.iter().map(|row| row.to_string()).collect();
            essential(&steps, &rows).iter().map(|step| step.number).collect()
        };
        // The words of one row are one read; a row that no core changes, or one core alone uses,
        // tells nothing.
        assert_eq!(kept(&[]), [1, 2, 6, 7, 9, 10, 11, 12, 13, 14]);
        // Of an anomaly the rows are known. Rows of no step tell as little as none.
        assert_eq!(kept(&["u[a b]"]), [1, 6, 7, 8, 11, 12, 14]);
        assert_eq!(kept(&["v[9]"]), kept(&[]));
        assert_eq!(row_of("copy row: load lines[00c2] word 4 (2 x)"), Some(("copy row", "lines[00c2]", false)));
        assert_eq!(row_of("scan: load (59 x)"), None);
        assert!(essential(&[], &[]).is_empty());
    }
}
