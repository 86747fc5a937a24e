//! `contend analyse WORKLOAD --learn N`: runs sample transactions, and proposes declarations.

use std::ops::ControlFlow;
use std::path::Path;

use contend_analysis::{Learned, Noted, Trace};
use contend_engine::{AbortReason, Engine, EngineConfig, NamedProtocol};
use contend_machine::Native;
use contend_model::IndexKind;
use contend_protocols::optimistic::silo::Silo;
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_workloads::{Workload, WorkloadInfo, declared_types};

use super::analyse::workload_of;
use crate::UserError;
use crate::args::{AnalyseArgs, AnalysisForm};

/// The most samples of each type.
const SAMPLES_MAX: u64 = 100_000;

/// The number of draws in a row after which a type that was not among them counts as one that never
/// runs.
const DRAWS_MAX: u64 = 10_000;

/// Returns what `samples` transactions of each type of each application teach, in words.
///
/// # Errors
/// The number is out of range, an application is no workload, or the form is no text.
pub(super) fn learn(args: &AnalyseArgs, samples: u64) -> Result<String, UserError> {
    if !(1..=SAMPLES_MAX).contains(&samples) {
        return Err(UserError::refused(format!(
            "--learn {samples} is no number of transactions; valid: 1 to {SAMPLES_MAX}"
        )));
    }
    if args.format != AnalysisForm::Text {
        return Err(UserError::refused("--learn answers in text only; valid: --format text"));
    }
    let learned = |path: &std::path::PathBuf| of_application(args, path, samples);
    Ok(args.applications.iter().map(learned).collect::<Result<Vec<_>, _>>()?.join("\n"))
}

fn of_application(args: &AnalyseArgs, path: &Path, samples: u64) -> Result<String, UserError> {
    let Some(name) = workload_of(path) else {
        return Err(UserError::refused(format!(
            "{}: --learn runs transactions, and a file has none to run; valid: a workload, see `contend list workloads`",
            path.display()
        )));
    };
    args.config(name)?.resolve()?.workload.visit(Samples(samples))
}

/// Runs this number of transactions of each type of a workload, on one thread and a small
/// population.
struct Samples(u64);

impl PlannedWorkloadVisitor for Samples {
    type Output = Result<String, UserError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        let options = W::for_verification(options);
        let protocol = <Silo as NamedProtocol<Native>>::new(Default::default());
        let engine = Engine::<Silo, Native>::new(protocol, EngineConfig::default());
        let workload = W::create(&options, IndexKind::Ordered, &engine);
        let mut loader = engine.loader().expect("a new engine has free slots");
        let loaded = workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(()));
        loaded.map_err(|error| UserError::refused(format!("{}: {error}", info.name)))?;
        drop(loader);
        let tables = engine.declared_tables();
        let declared = declared_types(&workload, tables.clone()).map_err(UserError::refused)?;

        let mut learned = Learned::new(tables, workload.kinds().iter().map(|kind| (*kind).to_owned()));
        let mut worker = engine.worker().expect("a new engine has free slots");
        let (mut client, mut input, mut trace) = (workload.client(0, 1, 42), W::Input::default(), Trace::default());
        let runs = |kind: usize| declared.as_ref().is_none_or(|declared| !declared.types[kind].pieces.is_empty());
        let lacks = |learned: &Learned, kind| runs(kind) && learned.runs(kind) < self.0;
        let mut since_lacking = 0;
        while since_lacking < DRAWS_MAX && (0..workload.kinds().len()).any(|kind| lacks(&learned, kind)) {
            workload.next(&mut (), &mut client, &mut input);
            let kind = workload.kind(&input);
            since_lacking = if lacks(&learned, kind) { 0 } else { since_lacking + 1 };
            match worker.run(|tx| workload.execute(&mut Noted::new(tx, &mut trace), &mut client, &input)) {
                Ok(()) => workload.committed(&mut client, &input),
                Err(abort) if abort.reason == AbortReason::User => {}
                Err(abort) => return Err(UserError::failed(format!("{}: {abort}", info.name))),
            }
            learned.add(kind, &trace);
        }
        let mut text = String::new();
        for (kind, name) in workload.kinds().iter().enumerate() {
            text += &format!("// {}: {name} ran {} times\n", info.name, learned.runs(kind));
        }
        match declared {
            None => text += "// nothing is declared\n",
            Some(declared) => {
                let differences = learned.compare(&declared);
                let agree = differences.is_empty().then(|| "all that is declared was used, and nothing else".into());
                for line in differences.into_iter().chain(agree) {
                    text += &format!("// {line}\n");
                }
            }
        }
        Ok(text + "\n" + learned.to_rust().as_str())
    }
}
