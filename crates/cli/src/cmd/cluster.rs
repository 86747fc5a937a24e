//! Sweeps in parts: `--list`, `--shard` and `--point`, `sweep merge` and `sweep status`.

use std::path::Path;

use contend_lab::experiment::{
    Experiment, FailedPoint, Machines, Manner, Progress, Store, Task, is_missing, merge as merged, sweep, tasks,
};
use contend_lab::whole_file::replace;
use contend_model::{counted, is_or_are};

use super::sweep::{Caller, EXPERIMENT, Named, check_seeds, experiments_of};
use crate::args::{MergeArgs, StatusArgs, SweepArgs};
use crate::files::folder;
use crate::{Status, UserError, show};

/// Prints the tasks that are missing, a line each.
pub(crate) fn list(args: &SweepArgs, tasks: &[Task], store: &Store, machines: Machines) -> Result<Status, UserError> {
    let missing = tasks.iter().filter(|task| is_missing(task, store, args.retry_failed, machines));
    let text: String = missing
        .map(|task| match args.hash {
            true => format!("{}\n", task.hash),
            false => {
                let kind = if task.is_simulated() { "simulated" } else { "native" };
                format!("{} {:>10.3} {kind:9} {}\n", task.hash, task.cost_seconds, task.place())
            }
        })
        .collect();
    show::print(&text)?;
    Ok(Status::Good)
}

/// Returns the task of this hash.
///
/// # Errors
/// The experiments have no such point.
pub(crate) fn only(hash: &str, tasks: Vec<Task>) -> Result<Vec<Task>, UserError> {
    let count = tasks.len();
    let native = tasks.iter().filter(|task| !task.is_simulated()).count();
    let found: Vec<Task> = tasks.into_iter().filter(|task| task.hash == hash).collect();
    if found.is_empty() {
        let of_machine = match native {
            0 => "",
            _ => "; the hash of a native point is that of one kind of machine, so list it where it is measured",
        };
        return Err(UserError::refused(format!(
            "no point '{hash}' among the {count} of these experiments; valid: the hashes that --list prints{of_machine}"
        )));
    }
    Ok(found)
}

/// Measures some of the points, and draws nothing.
pub(crate) fn measure(
    part: &str,
    tasks: &[Task],
    store: &mut Store,
    manner: &Manner,
    caller: &Caller<'_>,
) -> Result<Status, UserError> {
    let measured = sweep(tasks, store, manner, caller.stop, caller.observer)?;
    let Progress { there, missing, failed } = Progress::of(tasks, store, manner.machines);
    // Other sweeps of the folder may have measured some meanwhile.
    let kept = there - measured;
    (caller.tell)(&format!("{part}: {} measured, {kept} kept, {} failed\n", counted(measured, "point"), failed.len()))?;
    complain_of(&failed);
    if missing > 0 {
        show::complain(&partial(missing));
        return Ok(Status::Interrupted);
    }
    Ok(if failed.is_empty() { Status::Good } else { Status::CheckFailed })
}

/// Says that points are missing.
pub(crate) fn partial(missing: usize) -> String {
    let (points, are) = (counted(missing, "point"), is_or_are(missing));
    format!("PARTIAL: {points} {are} missing; the same command goes on from there")
}

/// Prints points that failed to stderr, a line each.
pub(crate) fn complain_of(failed: &[FailedPoint]) {
    for FailedPoint { place, hash, reason } in failed {
        show::complain(&format!("failed: {place} ({hash}): {reason}"));
    }
    if !failed.is_empty() {
        show::complain("note: --retry-failed measures points again that failed");
    }
}

/// Reads the points of a folder, and prints what a user should know about them.
///
/// # Errors
/// A file can't be read.
pub(crate) fn points(folder: &Path) -> Result<Store, UserError> {
    let store = Store::open(folder)?;
    store.notes().iter().for_each(|note| show::complain(&format!("note: {note}")));
    Ok(store)
}

pub(crate) fn merge(args: &MergeArgs) -> Result<Status, UserError> {
    // What the folder has already comes first.
    let own = Store::is_below(&args.out).then_some(&args.out);
    let mut stores = Vec::new();
    let mut experiments: Vec<Named> = Vec::new();
    for source in own.into_iter().chain(&args.folders) {
        for named in experiments_of(source)? {
            add(&mut experiments, named)?;
        }
        stores.push(points(source)?);
    }
    folder(&args.out)?;
    let store = merged(&stores, &args.out)?;
    for (_, experiment, text) in &experiments {
        keep_experiment(&args.out, experiment, text)?;
    }
    let failed = store.files().values().filter(|file| file.failure().is_some()).count();
    show::print(&format!(
        "{} of {}, {failed} failed; `contend plot {}` draws them\n",
        counted(store.files().len(), "point"),
        counted(experiments.len(), "experiment"),
        args.out.display()
    ))?;
    Ok(Status::Good)
}

/// Adds an experiment to a list, unless it is there.
///
/// # Errors
/// Another version of it is there.
fn add(experiments: &mut Vec<Named>, named: Named) -> Result<(), UserError> {
    let (path, experiment, text) = &named;
    match experiments.iter().find(|(_, other, _)| other.id == experiment.id) {
        None => experiments.push(named),
        Some((_, _, other)) if other == text => {}
        Some((other, ..)) => {
            return Err(UserError::refused(format!(
                "{} and {} are two versions of experiment {}; valid: folders with one version",
                other.display(),
                path.display(),
                experiment.id
            )));
        }
    }
    Ok(())
}

pub(crate) fn status(args: &StatusArgs) -> Result<Status, UserError> {
    check_seeds(args.seeds)?;
    let experiments = experiments_of(&args.folder)?;
    let store = points(&args.folder)?;
    let mut all_failed = Vec::new();
    let mut text = String::new();
    for (_, experiment, _) in &experiments {
        let Progress { there, missing, failed } =
            Progress::of(&tasks([experiment], args.seeds)?, &store, Machines::Mixed);
        text += &format!("{}: {there} there, {missing} missing, {} failed\n", experiment.id, failed.len());
        let machines = store.machines_of(experiment)?;
        if machines.len() > 1 {
            let machines: Vec<String> = machines.iter().map(ToString::to_string).collect();
            text += &format!("  measured on {} machines: {}\n", machines.len(), machines.join("; "));
        }
        all_failed.extend(failed);
    }
    show::print(&text)?;
    complain_of(&all_failed);
    Ok(if all_failed.is_empty() { Status::Good } else { Status::CheckFailed })
}

/// Keeps an experiment in its folder below `out`, with the workload files that it names. `plot`,
/// `sweep merge` and `sweep status` read it there.
///
/// # Errors
/// The file can't be written.
pub(crate) fn keep_experiment(out: &Path, experiment: &Experiment, text: &str) -> Result<(), UserError> {
    let path = folder(&out.join(&experiment.id))?.join(EXPERIMENT);
    // Many shards may be about to write the same.
    if std::fs::read_to_string(&path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    replace(&path, |file| file.write_all(text.as_bytes()))
        .map_err(|error| UserError::refused(format!("can't write {}: {error}", path.display())))
}
