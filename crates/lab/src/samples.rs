//! Samples of a workload's transactions, and the accesses that they teach.

use std::ops::ControlFlow;

use contend_analysis::{Learned, Noted, Trace};
use contend_engine::{AbortReason, Engine, EngineConfig, NamedProtocol};
use contend_machine::Native;
use contend_model::IndexKind;
use contend_model::pieces::TypeSet;
use contend_protocols::optimistic::silo::Silo;
use contend_runner::plan::PlannedWorkloadVisitor;
use contend_runner::{RunError, RunPlan};
use contend_workloads::{Workload, WorkloadInfo, declared_types};

/// The number of draws in a row after which a type that was not among them counts as one that never
/// runs.
const DRAWS_MAX: u64 = 10_000;

/// The outcome of sample transactions.
#[derive(Debug)]
pub struct Samples {
    /// The accesses of each type.
    pub learned: Learned,
    /// The names of the types, and how often each was drawn until the last type had its samples.
    pub kinds: Vec<(String, u64)>,
    /// The declarations of the workload, if it has any.
    pub declared: Option<TypeSet>,
}

/// Runs this number of transactions of each type of a plan's workload, on one thread and a small
/// population.
///
/// # Errors
/// The tables can't be loaded, or a transaction aborts for a reason that does not go away.
pub fn sample(plan: &RunPlan, samples: u64) -> Result<Samples, RunError> {
    plan.workload.visit(OfEach(samples))
}

struct OfEach(u64);

impl PlannedWorkloadVisitor for OfEach {
    type Output = Result<Samples, RunError>;

    fn visit<W: Workload>(self, info: WorkloadInfo, options: &W::Options) -> Self::Output {
        let options = W::for_verification(options);
        let protocol = <Silo as NamedProtocol<Native>>::new(Default::default());
        let engine = Engine::<Silo, Native>::new(protocol, EngineConfig::default());
        let workload = W::create(&options, IndexKind::Ordered, &engine);
        let mut loader = engine.loader().expect("a new engine has free slots");
        let loaded = workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(()));
        loaded.map_err(|error| RunError::OutOfMemory(format!("{}: {error}", info.name)))?;
        drop(loader);
        let tables = engine.declared_tables();
        let declared = declared_types(&workload, tables.clone()).map_err(RunError::BadInput)?;

        let mut learned = Learned::new(tables, workload.kinds().iter().map(|kind| (*kind).to_owned()));
        let mut worker = engine.worker().expect("a new engine has free slots");
        let (mut client, mut input, mut trace) = (workload.client(0, 1, 42), W::Input::default(), Trace::default());
        let mut kinds: Vec<(String, u64)> = workload.kinds().iter().map(|kind| ((*kind).to_owned(), 0)).collect();
        let runs = |kind: usize| declared.as_ref().is_none_or(|declared| !declared.types[kind].pieces.is_empty());
        let lacks = |learned: &Learned, kind| runs(kind) && learned.runs(kind) < self.0;
        let mut since_lacking = 0;
        while since_lacking < DRAWS_MAX && (0..kinds.len()).any(|kind| lacks(&learned, kind)) {
            workload.next(&mut (), &mut client, &mut input);
            let kind = workload.kind(&input);
            kinds[kind].1 += 1;
            since_lacking = if lacks(&learned, kind) { 0 } else { since_lacking + 1 };
            match worker.run(|tx| workload.execute(&mut Noted::new(tx, &mut trace), &mut client, &input)) {
                Ok(()) => workload.committed(&mut client, &input),
                Err(abort) if abort.reason == AbortReason::User => {}
                Err(abort) => return Err(RunError::IoFailed(format!("{}: {abort}", info.name))),
            }
            learned.add(kind, &trace);
        }
        Ok(Samples { learned, kinds, declared })
    }
}
