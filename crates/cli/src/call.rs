//! A verb, called by another program: the same arguments lead to an answer, in place of texts and
//! files.

use std::cell::RefCell;

use clap::FromArgMatches;
use contend_history::History;
use contend_lab::advise::{Advice, advise};
use contend_lab::experiment::Judgement;
use contend_lab::result::Bucket;
use contend_lab::saturate::{SaturationFile, saturate};
use contend_lab::{Outcome, ProtocolResult, ResultFile, compare, report};
use contend_proof::explore::Explored;
use contend_proof::playground::{self, Script};
use contend_runner::{Observer, Stop};
use serde_json::{Value, json};

use crate::args::{self, Cli, Command, SweepArgs};
use crate::cmd::sweep::{Caller, SweepOutcome};
use crate::cmd::{self, left_out, unless_stopped};
use crate::files::read_result;
use crate::{FAILED, Status, UserError, show};

/// Why a call has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The command line's sentence.
    pub message: String,
    /// Whether the input is to blame, or the machine, which has no room. Else the run began, and
    /// could not go on.
    pub is_input: bool,
}

impl From<UserError> for Refused {
    fn from(error: UserError) -> Self {
        Refused { message: show::shortened(&error.message), is_input: error.status != FAILED }
    }
}

/// How a call ended that was not refused.
#[derive(Debug)]
pub enum Called {
    /// With an answer; it is partial if the call was stopped.
    Answered(Box<Answer>),
    /// A request stopped it before there was an answer.
    Stopped,
}

/// What a verb has found.
#[derive(Debug)]
pub struct Answer {
    found: Found,
    json: Value,
    text: String,
}

#[derive(Debug)]
enum Found {
    Result(Box<ResultFile>, Option<History>),
    Saturation(Box<SaturationFile>),
    Advice(Box<Advice>),
    Explorations {
        violated: bool,
        partial: bool,
    },
    Sweep(Status),
    Judgement {
        kept: bool,
        picture: Option<String>,
    },
    #[cfg(feature = "sql")]
    Levels {
        status: Status,
        partial: bool,
        page: String,
    },
    Lists,
}

/// A flag of a verb, or an argument that has no dashes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// The name, without dashes.
    pub name: String,
    /// What it means.
    pub help: String,
    /// Whether it takes a value.
    pub takes_value: bool,
    /// Whether its place says what it is.
    pub is_positional: bool,
}

impl Answer {
    fn of_result(result: ResultFile, history: Option<History>) -> Answer {
        let json = serde_json::to_value(&result).expect("plain data");
        Answer { json, text: show::result(&result), found: Found::Result(Box::new(result), history) }
    }

    /// The answer for programs, as the verb writes it to its file.
    pub fn json(&self) -> String {
        match &self.found {
            Found::Result(result, _) => result.to_json(),
            _ => format!("{:#}\n", self.json),
        }
    }

    /// The answer for people, as the verb prints it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The page with the charts, if the verb writes one.
    pub fn page(&self) -> Option<String> {
        match &self.found {
            Found::Result(result, _) => Some(report::html(result, &show::command(result, verb_of(result)))),
            Found::Saturation(file) => Some(report::saturation_html(file, &cmd::saturate::command(file))),
            Found::Advice(advice) => Some(report::advice_html(advice, &cmd::advise::again(advice))),
            #[cfg(feature = "sql")]
            Found::Levels { page, .. } => Some(page.clone()),
            Found::Explorations { .. } | Found::Sweep(_) | Found::Judgement { .. } | Found::Lists => None,
        }
    }

    /// The worst anomaly of a judged history as a picture (SVG), if it is a cycle of two to eight
    /// transactions.
    pub fn picture(&self) -> Option<&str> {
        match &self.found {
            Found::Judgement { picture, .. } => picture.as_deref(),
            _ => None,
        }
    }

    /// Whether a check failed that must not fail.
    pub fn failed(&self) -> bool {
        match &self.found {
            Found::Result(result, _) => result.failed(),
            Found::Saturation(file) => file.protocols.iter().any(|found| found.failed()),
            Found::Explorations { violated, .. } => *violated,
            Found::Sweep(status) => *status == Status::CheckFailed,
            #[cfg(feature = "sql")]
            Found::Levels { status, .. } => *status == Status::CheckFailed,
            Found::Judgement { kept, .. } => !kept,
            Found::Advice(_) | Found::Lists => false,
        }
    }

    /// Whether it was stopped before its end.
    pub fn partial(&self) -> bool {
        match &self.found {
            Found::Result(result, _) => result.partial,
            Found::Saturation(file) => file.partial,
            Found::Advice(advice) => advice.partial,
            Found::Explorations { partial, .. } => *partial,
            Found::Sweep(status) => *status == Status::Interrupted,
            #[cfg(feature = "sql")]
            Found::Levels { partial, .. } => *partial,
            Found::Judgement { .. } | Found::Lists => false,
        }
    }

    /// The history, if one was recorded.
    pub fn history(&self) -> Option<&History> {
        match &self.found {
            Found::Result(_, history) => history.as_ref(),
            _ => None,
        }
    }

    /// The latencies of each entry by buckets, which the result file does not hold: nanoseconds and
    /// count, in ascending order. Entries of a result that was read from a file have none.
    pub fn latencies(&self) -> Vec<(&str, &[Bucket])> {
        let Found::Result(result, _) = &self.found else { return Vec::new() };
        fn buckets(entry: &ProtocolResult) -> &[Bucket] {
            entry.measured.as_ref().map_or(&[], |measured| &measured.latencies)
        }
        result.protocols.iter().map(|entry| (entry.protocol.as_str(), buckets(entry))).collect()
    }
}

/// Returns the verb whose result it is.
fn verb_of(result: &ResultFile) -> &'static str {
    if result.protocols.len() == 1 { "run" } else { "compare" }
}

/// Runs the verb that the arguments name, without the program's name before it. Flags that name
/// files for the answer do nothing: the caller has it.
///
/// # Errors
/// The arguments are refused, or the run could not go on.
pub fn call(arguments: &[String], stop: &Stop, observer: &dyn Observer) -> Result<Called, Refused> {
    let all = std::iter::once("contend").chain(arguments.iter().map(String::as_str));
    let parsed = args::command().try_get_matches_from(all).and_then(|matches| Cli::from_arg_matches(&matches));
    let command = parsed.map_err(|error| refused(&error))?.command;
    let found = match &command {
        Command::Sweep(args) => Some(swept(args, arguments, stop, observer)?),
        _ => answer(&command, stop, observer)?,
    };
    Ok(found.map_or(Called::Stopped, |answer| Called::Answered(Box::new(answer))))
}

/// Returns the answer that is in a result file, or in the folder of a run.
///
/// # Errors
/// The file can't be read, or is no result.
pub fn load(path: &str) -> Result<Answer, Refused> {
    Ok(Answer::of_result(read_result(path.as_ref())?, None))
}

/// Judges a history by an isolation level.
///
/// # Errors
/// The level is unknown, or the history is empty or too large for the checker.
pub fn judge(history: &History, level: &str) -> Result<Answer, Refused> {
    let judgement = cmd::check::judge(history, cmd::check::level_of(level)?).map_err(UserError::refused)?;
    Ok(Answer::of_judgement(judgement))
}

/// Plays a script of a few transactions, given as JSON ([`Script`]). Returns what became of it as
/// JSON: the fields of [`playground::Played`], and `picture`, the cycle of the anomaly as SVG or
/// null.
///
/// # Errors
/// The script is not valid.
pub fn play(script: &str) -> Result<String, Refused> {
    let refused = |message: String| Refused { message, is_input: true };
    let script: Script = serde_json::from_str(script).map_err(|error| refused(error.to_string()))?;
    let played = playground::play(&script).map_err(UserError::from)?;
    let mut value = serde_json::to_value(&played).expect("plain data");
    value["picture"] = json!(report::cycle_svg(&played.verification.cycle));
    Ok(value.to_string())
}

impl Answer {
    fn of_judgement(judgement: cmd::check::Judgement) -> Answer {
        let cmd::check::Judgement { kept, text, json, picture } = judgement;
        Answer { found: Found::Judgement { kept, picture }, json, text }
    }
}

/// Returns the flags of a verb; none if there is no such verb.
pub fn flags(verb: &str) -> Vec<Flag> {
    let command = args::command();
    let Some(verb) = command.find_subcommand(verb) else { return Vec::new() };
    let flag = |argument: &clap::Arg| Flag {
        name: argument.get_long().unwrap_or(argument.get_id().as_str()).to_owned(),
        help: argument.get_help().map(ToString::to_string).unwrap_or_default(),
        takes_value: argument.get_action().takes_values(),
        is_positional: argument.is_positional(),
    };
    verb.get_arguments().map(flag).collect()
}

/// Returns the refusal of arguments in one line.
fn refused(error: &clap::Error) -> Refused {
    let text = error.render().to_string();
    // What follows an empty line is how to get help, which this caller gets elsewhere.
    let first = text.split("\n\n").next().unwrap_or_default();
    let line = first.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    Refused { message: show::shortened(line), is_input: true }
}

/// Returns what the command finds, or `None` if it was stopped before that.
fn answer(command: &Command, stop: &Stop, observer: &dyn Observer) -> Result<Option<Answer>, UserError> {
    Ok(match command {
        Command::Run(args) => {
            let plan = args.config()?.resolve()?;
            let outcome = unless_stopped(cmd::run::measured(args, &plan, stop, observer), stop)?;
            outcome.map(|Outcome { result, recorded }| Answer::of_result(result, recorded.map(|it| it.history)))
        }
        Command::Compare(args) => {
            let config = args.config()?;
            left_out(&config)?;
            let plan = config.resolve()?;
            unless_stopped(compare(&plan, stop, observer), stop)?.map(|result| Answer::of_result(result, None))
        }
        Command::Saturate(args) => {
            let (config, goal) = (args.config()?, args.goal()?);
            left_out(&config)?;
            let found = saturate(&config.resolve()?, &goal, stop, observer);
            unless_stopped(found, stop)?.map(|file| Answer {
                json: serde_json::to_value(&file).expect("plain data"),
                text: cmd::saturate::text(&file),
                found: Found::Saturation(Box::new(file)),
            })
        }
        Command::Advise(args) => {
            let (config, question) = args.question()?;
            unless_stopped(advise(&config, &question, stop, observer), stop)?.map(|advice| Answer {
                json: serde_json::to_value(&advice).expect("plain data"),
                text: cmd::advise::text(&advice, &cmd::advise::again(&advice)),
                found: Found::Advice(Box::new(advice)),
            })
        }
        Command::Explore(args) => {
            let explorations = cmd::explore::Explorations::new(args)?;
            let all = explorations.explore(stop, observer)?;
            let text = explorations.text(&all);
            let violated = all.iter().any(|(explored, _)| explored.violated);
            Some(Answer {
                json: all.iter().map(|(explored, again)| exploration(explored, again)).collect(),
                text,
                found: Found::Explorations { violated, partial: stop.is_requested() },
            })
        }
        #[cfg(feature = "sql")]
        Command::Sql(args) if args.file != args::LITMUS => {
            let compared = cmd::sql::measured(args, stop, observer, &|_, _| ())?;
            Some(Answer {
                json: serde_json::to_value(&compared).expect("plain data"),
                text: compared.text_with_error(),
                found: Found::Levels {
                    status: compared.status(),
                    partial: compared.is_partial(),
                    page: compared.page(args),
                },
            })
        }
        #[cfg(not(feature = "sql"))]
        Command::Sql(_) => return Err(UserError::refused(crate::WITHOUT_SQL)),
        Command::Check(args) => Some(Answer::of_judgement(cmd::check::judged(args)?)),
        Command::List(args) => Some(Answer { json: cmd::list::lists(args)?, text: String::new(), found: Found::Lists }),
        _ => return Err(UserError::refused("this verb has no answer for programs; valid: the command line runs it")),
    })
}

/// Runs a sweep. Its points and pages are in the folder of `--out`.
fn swept(args: &SweepArgs, arguments: &[String], stop: &Stop, observer: &dyn Observer) -> Result<Answer, UserError> {
    if args.command.is_some() || args.list {
        return Err(UserError::refused(
            "only a sweep has an answer for programs; valid: the command line does the rest",
        ));
    }
    let text = RefCell::new(String::new());
    let tell = |more: &str| {
        text.borrow_mut().push_str(more);
        Ok(())
    };
    let command = std::iter::once("contend").chain(arguments.iter().map(String::as_str)).map(str::to_owned).collect();
    let caller = Caller { command, stop, observer, tell: &tell };
    let SweepOutcome { status, judged } = cmd::sweep::measured(args, &caller)?;
    let assertion = |it: &Judgement| {
        json!({"id": it.id, "verdict": it.verdict.name(), "paper": it.paper, "expression": it.expression,
               "numbers": it.numbers, "why": it.why})
    };
    let experiments = judged.iter().map(|(experiment, judgements)| {
        let assertions: Vec<Value> = judgements.iter().map(assertion).collect();
        json!({"id": experiment.id, "title": experiment.title, "assertions": assertions})
    });
    let json = json!({"out": args.out, "experiments": experiments.collect::<Vec<_>>()});
    Ok(Answer { found: Found::Sweep(status), json, text: text.into_inner() })
}

/// Returns an exploration with its verdict in words, and the command that replays what it found.
fn exploration(explored: &Explored, again: &str) -> Value {
    let mut value = serde_json::to_value(explored).expect("plain data");
    value["verdict"] = json!(explored.verdict());
    value["again"] = json!(again);
    value
}

#[cfg(test)]
mod tests {
    use contend_runner::Silent;

    use super::*;

    fn called(arguments: &[&str]) -> Result<Called, Refused> {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        call(&arguments, &Stop::default(), &Silent)
    }

    fn refusal(arguments: &[&str]) -> String {
        let refused = called(arguments).expect_err("it is refused");
        assert!(refused.is_input && !refused.message.contains('\n'), "{refused:?}");
        refused.message
    }

    #[test]
    fn what_the_command_line_refuses_is_refused_in_one_line() {
        assert!(refusal(&["compare", "--", "ycsb-z"]).contains("ycsb-z"));
        assert!(refusal(&["compare", "--threads=-1"]).contains("below 0"));
        assert!(refusal(&["compare", "--set=ycsb.thta=1"]).contains("ycsb.theta"));
        assert!(refusal(&["run", "--nothing=1"]).contains("--nothing"));
        assert!(refusal(&["soak"]).contains("command line"));
        assert!(!refusal(&[]).is_empty() && !refusal(&["--help"]).is_empty());
    }

    #[test]
    fn a_call_has_the_answer_of_the_verb() {
        let run = ["run", "--seconds=0.01", "--windows=1", "--warmup=0", "--threads=1", "--history=-", "--", "bank"];
        let Ok(Called::Answered(answer)) = called(&run) else { panic!("an answer") };
        assert!(!answer.failed() && !answer.partial());
        assert!(answer.text().contains("silo") && answer.json().contains("\"schema_version\""));
        assert!(answer.page().is_some_and(|page| page.starts_with("<!doctype html>")));
        assert!(answer.latencies().iter().any(|(entry, buckets)| *entry == "silo" && !buckets.is_empty()));
        let history = answer.history().expect("it was asked for");
        let judged = judge(history, "serializable").expect("a history");
        assert!(!judged.failed() && judged.text().contains("serializable: yes"));
        assert!(judge(history, "seri").expect_err("no level").message.contains("serializable"));
    }

    #[test]
    fn a_stopped_call_has_no_answer_or_a_partial_one() {
        let stop = Stop::default();
        stop.request();
        let arguments = ["compare".to_owned(), "bank".to_owned()];
        assert!(matches!(call(&arguments, &stop, &Silent), Ok(Called::Stopped)));
    }

    #[test]
    fn each_flag_is_told_with_its_meaning() {
        let all = flags("compare");
        let threads = all.iter().find(|flag| flag.name == "threads").expect("a flag");
        assert!(threads.takes_value && !threads.is_positional && !threads.help.is_empty());
        assert!(all.iter().any(|flag| flag.is_positional && flag.name == "workload"));
        assert!(flags("comparr").is_empty());
    }
}
