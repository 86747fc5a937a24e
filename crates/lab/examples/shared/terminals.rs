//! TPC-C under IC3, with clients that an example drives by itself.

use std::sync::Arc;

use contend_engine::{Engine, EngineConfig, IndexKind, NamedProtocol, Worker};
use contend_machine::Machine;
use contend_model::pieces::TypeSet;
use contend_protocols::method::{Backoff, BackoffPolicy, Retry, RetryOptions};
use contend_protocols::pieces::ic3::{Ic3, Ic3Options};
use contend_workloads::tpcc::{Tpcc, TpccOptions};
use contend_workloads::{Workload, declared_types};

/// An engine with a loaded workload.
pub(crate) struct World<M: Machine> {
    pub(crate) engine: Arc<Engine<Ic3<M>, M>>,
    pub(crate) workload: Arc<Tpcc>,
    pub(crate) backoff: Arc<Backoff<M>>,
}

impl<M: Machine> Clone for World<M> {
    fn clone(&self) -> Self {
        World {
            engine: Arc::clone(&self.engine),
            workload: Arc::clone(&self.workload),
            backoff: Arc::clone(&self.backoff),
        }
    }
}

impl<M: Machine> World<M> {
    /// Loads a warehouse for this many clients. No type is declared yet.
    pub(crate) fn new(threads: usize, ic3: Ic3Options, config: EngineConfig, options: &TpccOptions) -> Self {
        // One worker more loads the rows.
        let engine = Engine::new(Ic3::new(ic3), EngineConfig { workers_max: threads + 1, ..config });
        let workload = Arc::new(Tpcc::create(options, IndexKind::Ordered, &engine));
        let mut loader = engine.loader().expect("a free slot");
        workload.load(&mut loader, 0, 1, &mut |_| std::ops::ControlFlow::Continue(())).expect("memory");
        drop(loader);
        let retry = RetryOptions { backoff: BackoffPolicy::Exponential, ..RetryOptions::default() };
        World { engine, workload, backoff: Backoff::new(retry, threads) }
    }

    /// Declares the types of which `is_wanted` holds, by their numbers; the others have no pieces.
    pub(crate) fn declare(&self, is_wanted: impl Fn(usize) -> bool) {
        self.engine.declare(self.types(is_wanted)).expect("valid declarations");
    }

    /// Returns the declarations of these types.
    pub(crate) fn types(&self, is_wanted: impl Fn(usize) -> bool) -> TypeSet {
        let types = declared_types(&*self.workload, self.engine.declared_tables()).expect("valid declarations");
        let mut types = types.expect("TPC-C declares its types");
        for (kind, of) in types.types.iter_mut().enumerate() {
            if !is_wanted(kind) {
                of.pieces.clear();
            }
        }
        types
    }
}

/// A client and its worker.
pub(crate) struct Terminal<M: Machine> {
    pub(crate) world: World<M>,
    pub(crate) worker: Worker<Ic3<M>, M>,
    retry: Retry<M>,
    client: <Tpcc as Workload>::Client,
    input: <Tpcc as Workload>::Input,
}

impl<M: Machine> Terminal<M> {
    pub(crate) fn new(world: &World<M>, number: usize, threads: usize) -> Self {
        let worker = world.engine.worker().expect("a free slot");
        let (retry, client) = (world.backoff.retry(number, number as u64), world.workload.client(number, threads, 7));
        Terminal { world: world.clone(), worker, retry, client, input: Default::default() }
    }

    /// Draws a transaction of a type of which `is_wanted` holds, and runs it until it ends, or
    /// `is_over`. Returns the time at which its last try began, if it has committed.
    pub(crate) fn run(&mut self, is_wanted: impl Fn(usize) -> bool, is_over: impl Fn() -> bool) -> Option<u64> {
        let Terminal { world, worker, retry, client, input } = self;
        let workload = &*world.workload;
        let kind = loop {
            workload.next(worker, client, input);
            let kind = workload.kind(input);
            if is_wanted(kind) {
                break kind;
            }
        };
        loop {
            let began = M::now();
            let declare = |declaration: &mut contend_engine::declaration::Declaration<M>| {
                declaration.kind(kind);
                workload.declare(input, declaration);
            };
            let Err(abort) = worker.run_declared(declare, |tx| workload.execute(tx, client, input)) else {
                retry.done();
                workload.committed(client, input);
                return Some(began);
            };
            let violation = worker.take_undeclared();
            assert!(violation.is_none(), "{violation:?}");
            if !abort.reason.is_conflict() || is_over() {
                return None;
            }
            retry.aborted();
        }
    }
}
