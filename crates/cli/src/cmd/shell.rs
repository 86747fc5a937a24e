//! `contend completions` and `contend man`.

use std::io;

use clap::Command;
use clap::builder::PossibleValuesParser;
use contend_engine::OptionSpec;
use contend_machine::Native;
use contend_protocols::all_protocols;
use contend_runner::config::ALL;
use contend_runner::machine::machines;
use contend_runner::names::{common_specs, short_option_name, simulation_specs};
use contend_workloads::all_workloads;

use crate::args::{CompletionsArgs, ManArgs, command};
use crate::files::{Target, folder};
use crate::{Status, UserError, show};

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Status, UserError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut with_names(command()), "contend", &mut script);
    show::print(&String::from_utf8_lossy(&script))?;
    Ok(Status::Good)
}

pub(crate) fn man(args: &ManArgs) -> Result<Status, UserError> {
    let mut whole = command().disable_help_subcommand(true);
    whole.build();
    if let Some(directory) = &args.out {
        let directory = folder(directory)?;
        let mut count = 0;
        for (name, page) in pages(&whole)? {
            Target::new(&directory.join(format!("{name}.1")))?.write(|file| file.write_all(&page))?;
            count += 1;
        }
        show::print(&format!("{count} pages: {}\n", directory.display()))?;
        return Ok(Status::Good);
    }
    let wanted = args.verb.as_ref().map_or("contend".to_owned(), |verb| format!("contend-{verb}"));
    let pages = pages(&whole)?;
    let Some((_, page)) = pages.iter().find(|(name, _)| *name == wanted) else {
        let verbs: Vec<&str> = pages.iter().filter_map(|(name, _)| name.strip_prefix("contend-")).collect();
        let verb = args.verb.as_deref().unwrap_or_default();
        return Err(UserError::refused(format!("unknown verb '{verb}'; valid: {}", verbs.join(", "))));
    };
    show::print(&String::from_utf8_lossy(page))?;
    Ok(Status::Good)
}

/// Returns the pages of a command and of all below it, with their names.
fn pages(command: &Command) -> io::Result<Vec<(String, Vec<u8>)>> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut page)?;
    let mut all = vec![(name, page)];
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        all.extend(pages(below)?);
    }
    Ok(all)
}

/// Returns the command line with the names that arguments may be, for shells to complete. The real
/// command line has no such lists: they would refuse other valid arguments, such as several names.
fn with_names(command: Command) -> Command {
    let protocols = || all_protocols::<Native>().into_iter();
    let workloads = || all_workloads().into_iter();
    let of_groups = [common_specs(), simulation_specs()].concat();
    let specs = protocols().flat_map(|(_, specs)| specs).chain(workloads().flat_map(|(_, specs)| specs));
    let names_of = |OptionSpec { name, .. }: OptionSpec| [Some(name), short_option_name(name)].into_iter().flatten();
    let mut options: Vec<String> = specs.chain(of_groups).flat_map(names_of).map(|name| format!("{name}=")).collect();
    options.sort_unstable();
    options.dedup();
    let names = Names {
        protocols: protocols().map(|(info, _)| info.name.to_owned()).chain([ALL.to_owned()]).collect(),
        workloads: workloads().map(|(info, _)| info.name.to_owned()).collect(),
        machines: machines().into_iter().map(|machine| machine.name).collect(),
        options,
    };
    let visible: Vec<Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).cloned().collect();
    // A subcommand can't be removed, so a new command takes the visible ones, the name and the
    // version.
    let mut shown = Command::new("contend").subcommands(visible);
    if let Some(version) = command.get_version() {
        shown = shown.version(version.to_owned().leak() as &'static str);
    }
    names.of_command(shown)
}

/// The names that shells complete.
struct Names {
    protocols: Vec<String>,
    workloads: Vec<String>,
    machines: Vec<String>,
    options: Vec<String>,
}

impl Names {
    /// Returns the command with the names that each argument may be.
    fn of_command(&self, command: Command) -> Command {
        let argument = |argument: clap::Arg| {
            let names: Vec<String> = match argument.get_id().as_str() {
                "protocol" | "protocols" => self.protocols.clone(),
                "workload" => self.workloads.clone(),
                "machine" => self.machines.clone(),
                "settings" => self.options.clone(),
                "index" => ["hash", "ordered"].map(str::to_owned).to_vec(),
                _ => return argument,
            };
            // The names live as long as the process, which ends once the script is printed.
            let names: Vec<&'static str> = names.into_iter().map(|name| &*name.leak()).collect();
            argument.value_parser(PossibleValuesParser::new(names))
        };
        command.mut_args(argument).mut_subcommands(|below| self.of_command(below))
    }
}
