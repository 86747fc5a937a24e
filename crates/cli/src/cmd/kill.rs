//! `contend kill-test`, and the process that it kills.

use std::path::Path;
use std::process::Command;

use contend_proof::kill::{Killed, Life, live};
use contend_runner::names::entry_name;
use contend_runner::{Observer, RunError};

use super::{Place, Tested, left_out};
use crate::args::{KillChildArgs, KillTestArgs};
use crate::progress::{Bars, stop_on_interrupt};
use crate::{Status, UserError, show};

/// Runs a life of the kill test until the process is killed.
///
/// # Errors
/// The life is not valid, or can't go on.
pub(crate) fn child(args: &KillChildArgs) -> Result<Status, UserError> {
    // Ctrl-C goes to all processes of a terminal. This one ends when its parent kills it.
    ctrlc::set_handler(|| ())?;
    let life: Life = serde_json::from_str(&args.life)?;
    live(&life)?;
    Ok(Status::Good)
}

/// Returns the command of the process that runs a life.
fn command(life: &Life) -> Result<Command, RunError> {
    let own = std::env::current_exe();
    let own = own.map_err(|error| RunError::Io(format!("this program is not found: {error}")))?;
    let mut command = Command::new(own);
    command.arg("kill-child").arg(serde_json::to_string(life).expect("plain data"));
    Ok(command)
}

pub(crate) fn run(args: &KillTestArgs) -> Result<Status, UserError> {
    let run = args.run()?;
    left_out(&run)?;
    let directory = match &args.dir {
        Some(directory) => directory.clone(),
        None => std::env::temp_dir().join(format!("contend-kill-test-{}", std::process::id())),
    };
    let config = args.config(&directory)?;
    let plan = config.resolve(&run)?;
    let json = Place::new(args.json.as_deref())?;
    let stop = stop_on_interrupt()?;
    let bars = Bars::default();
    bars.begin("killing", plan.kills());
    let all = plan.run(&command, &stop, &|| bars.advance(1));
    bars.end();
    if args.dir.is_none() {
        // A folder that still has a broken database can't be removed, and stays.
        let _ = std::fs::remove_dir(&directory);
    }
    let all = all?;
    if !args.mixed && !stop.is_requested() && !run.has_all() {
        let is_tested = |name: &String| all.iter().any(|killed| killed.protocol == *name);
        for name in run.protocols.iter().map(|name| entry_name(name)).filter(|name| !is_tested(name)) {
            show::complain(&format!("left out: {name} promises no isolation, or does not support this durability"));
        }
    }
    json.deliver(&table(&all), &all)?;
    Ok(Tested::status(all.iter().map(tested), stop.is_requested()))
}

/// Returns the outcome of a protocol with a durability.
pub(super) fn tested(killed: &Killed) -> Tested {
    match &killed.wrong {
        Some(_) => Tested::Bad("WRONG".into()),
        None if killed.acknowledged == 0 => Tested::Nothing("no transaction was acknowledged"),
        None => Tested::Good("nothing is lost".into()),
    }
}

fn table(all: &[Killed]) -> String {
    let mut text = String::new();
    let mut table = show::table(["protocol", "durability", "kills", "acknowledged", "others there", "verdict"])
        .numbers(2..5)
        .spare(&["others there", "kills"]);
    for killed in all {
        let Killed { protocol, durability, kills, acknowledged, others, wrong } = killed;
        if let Some((wrong, directory)) = wrong {
            text += &format!("{protocol}, {durability}: {wrong}\n{}\n\n", kept(directory));
        }
        table.add_row([
            protocol.clone(),
            durability.clone(),
            kills.to_string(),
            acknowledged.to_string(),
            others.to_string(),
            tested(killed).words(),
        ]);
    }
    text += &format!("{table}\n");
    text
}

fn kept(directory: &Path) -> String {
    let directory = directory.display();
    format!("the database is kept in {directory}; `contend log dump {directory}` shows its log")
}
