//! `contend analyse`.

use std::path::{Path, PathBuf};

use contend_analysis::{AnalysisOptions, Application, Chopping, Hints, Plan};
use contend_model::{IndexKind, TablesOnly};
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_workloads::file::WorkloadFile;
use contend_workloads::{Workload, WorkloadInfo, all_workloads, declared_types};
use serde_json::json;

use crate::args::{AnalyseArgs, AnalysisForm, OnOff};
use crate::files::read_text;
use crate::{Status, UserError, show};

use super::learn::learn;

/// The largest file, in bytes. Real ones have some kilobytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The most steps of a graph or a picture. A larger one can't be read, and takes quadratic time.
const DRAWN_MAX: usize = 500;

/// The most conflicts of a graph: pairs of steps, for each unit that they conflict about.
const EDGES_MAX: usize = 200_000;

pub(crate) fn run(args: &AnalyseArgs) -> Result<Status, UserError> {
    if let Some(samples) = args.learn {
        show::print(&learn(args, samples)?)?;
        return Ok(Status::Good);
    }
    let named = args.applications()?;
    if args.format == AnalysisForm::Svg && named.len() > 1 {
        let count = named.len();
        return Err(UserError::refused(format!(
            "--format svg has {count} applications; valid: one, as a file is one picture"
        )));
    }
    let is_on = |flag| flag == OnOff::On;
    let options = AnalysisOptions {
        split: is_on(args.ts),
        updates: is_on(args.cu),
        snapshots: is_on(args.snapshots),
        ..AnalysisOptions::default()
    };
    let analysed = |(path, text): (PathBuf, _)| Analysed::new(args, &path, text, options);
    let applications = named.into_iter().map(analysed).collect::<Result<Vec<_>, _>>()?;
    let text: String = match args.format {
        AnalysisForm::Text => applications.iter().map(Analysed::text).collect::<Vec<_>>().join("\n"),
        AnalysisForm::Json => {
            let all: Vec<_> = applications.iter().map(Analysed::json).collect();
            serde_json::to_string_pretty(&all).expect("plain data") + "\n"
        }
        AnalysisForm::Csv => {
            let head = "name,transactions,on_several_tables,deadlock_prone,gain\n".to_owned();
            [head].into_iter().chain(applications.iter().map(Analysed::csv)).collect()
        }
        AnalysisForm::Dot => applications.iter().map(Analysed::dot).collect::<Result<_, _>>()?,
        AnalysisForm::Svg => applications.iter().map(Analysed::svg).collect::<Result<_, _>>()?,
    };
    show::print(&text)?;
    Ok(Status::Good)
}

/// Returns the name of the workload that an argument means, or the path of its file. `None` means
/// that the file declares an application.
pub(super) fn workload_of(path: &Path, is_script: bool) -> Option<&str> {
    let is_registered = |name: &&str| all_workloads().iter().any(|(info, _)| info.name == *name);
    let is_file = || read_text(path, FILE_BYTES_MAX, "a file").is_ok_and(|text| WorkloadFile::is_meant(&text));
    path.to_str().filter(|name| is_script || is_registered(name) || is_file())
}

/// Reads what a workload declares.
struct Declarations;

impl PlannedWorkloadVisitor for Declarations {
    type Output = Result<Application, UserError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        let tables = TablesOnly::new();
        let workload = W::create(options, IndexKind::Ordered, &tables);
        let types = declared_types(&workload, tables.into_tables()).map_err(UserError::refused)?;
        let Some(types) = types else {
            return Err(UserError::refused(format!(
                "{} declares no pieces; valid: a workload that does, such as tpcc or pieces, or a TOML file",
                info.name
            )));
        };
        Ok(Application { name: info.name.into(), types, notes: Vec::new() })
    }
}

/// An application with the results of its analysis.
struct Analysed {
    application: Application,
    plan: Plan,
    chopping: Chopping,
}

impl Analysed {
    /// Analyses a workload, if `path` is the name or the file of one, or else an application.
    fn new(args: &AnalyseArgs, path: &Path, text: Option<String>, options: AnalysisOptions) -> Result<Self, UserError> {
        let refused = |error: String| UserError::refused(format!("{}: {error}", path.display()));
        let application = match workload_of(path, text.is_some()) {
            Some(name) => args.config(name, text)?.resolve()?.workload.visit(Declarations)?,
            None => {
                let text = read_text(path, FILE_BYTES_MAX, "an application").map_err(refused)?;
                Application::from_toml(&text).map_err(|error| refused(error.to_string()))?
            }
        };
        let plan = Plan::new(&application.types, options).map_err(|error| refused(error.to_string()))?;
        let chopping = Chopping::new(&application.types, options).map_err(|error| refused(error.to_string()))?;
        Ok(Analysed { application, plan, chopping })
    }

    fn text(&self) -> String {
        let Analysed { application, plan, chopping } = self;
        let mut text = format!("{}: {}", application.name, plan.describe(&application.types, chopping));
        // The lines about cancels say what the notes on the plan say.
        for note in &application.notes {
            text += &format!("note       {note}\n");
        }
        text += &format!("{}\n", application.study(plan).describe());
        text
    }

    fn json(&self) -> serde_json::Value {
        let Analysed { application, plan, chopping } = self;
        let types = &application.types;
        let conflicts = plan.conflicts(types);
        json!({
            "name": application.name,
            "tables": types.tables,
            "types": types.types,
            "plan": plan,
            "waits": plan.waits(types, &conflicts),
            "conflicts": conflicts,
            "cycles": plan.cycles(types),
            "last_accesses": plan.last_accesses(types),
            "cancels": plan.cancels(types, chopping),
            "chopping": chopping,
            "hints": Hints::new(types, plan),
            "study": application.study(plan),
            "notes": application.notes_on(plan, chopping),
        })
    }

    fn dot(&self) -> Result<String, UserError> {
        self.check_size("a graph")?;
        let conflicts = self.plan.conflicts(&self.application.types);
        let edges = conflicts.iter().map(|unit| unit.changed_by.len() * (unit.changed_by.len() + unit.read_by.len()));
        let edges: usize = edges.sum();
        if edges > EDGES_MAX {
            let name = &self.application.name;
            return Err(UserError::refused(format!(
                "{name} has {edges} conflicts; valid for a graph: up to {EDGES_MAX}"
            )));
        }
        Ok(self.plan.to_dot(&self.application.types))
    }

    fn svg(&self) -> Result<String, UserError> {
        self.check_size("a picture")?;
        Ok(self.plan.to_svg(&self.application.types))
    }

    fn check_size(&self, what: &str) -> Result<(), UserError> {
        let steps: usize = self.plan.types.iter().map(|of| of.groups.len()).sum();
        if steps > DRAWN_MAX {
            let name = &self.application.name;
            return Err(UserError::refused(format!("{name} has {steps} steps; valid for {what}: up to {DRAWN_MAX}")));
        }
        Ok(())
    }

    fn csv(&self) -> String {
        let study = self.application.study(&self.plan);
        let name = study.name.replace('"', "\"\"");
        let (all, several) = (study.transactions, study.on_several_tables);
        format!("\"{name}\",{all},{several},{},{}\n", study.deadlock_prone, study.gain)
    }
}
