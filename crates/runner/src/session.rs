//! A session: the engine of one protocol with the tables of one workload, and the workers that run
//! on it.
//!
//! Code that depends on protocol, workload and machine is generic and stands here; all other code
//! sees a [`Session`].
//!
//! | module | what it does |
//! | --- | --- |
//! | `acknowledged` | commits that wait until they are durable |
//! | `epoch_lag` | how long epochs were held back |
//! | `loaded_engine` | engine, workload and workers, and the loop in which a worker runs transactions |
//! | `tally` | counts, latencies and times of transactions |
//! | `yielding` | what happens between operations, and between transactions: yields, round trips, thinking |
//! | `threads` | workers are threads of the host |
//! | `schedule` | the starts of a worker's transactions in an open loop |
//! | `climb` | the search for the number of transactions in flight that pays most |
//! | `chip` | workers are cores of a simulated chip |

mod acknowledged;
mod chip;
mod climb;
mod epoch_lag;
mod loaded_engine;
mod schedule;
mod tally;
mod threads;
mod yielding;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use contend_engine::{
    ConflictMap, Engine, Erased, NamedConflicts, NamedProtocol, Protocol, ProtocolInfo, VersionCounts,
};
use contend_machine::{Interleaved, Machine, Native};
use contend_model::pieces::TypeSet;
use contend_sim::{Simulated, Statistics};
use contend_workloads::{Checked, Violation, Workload, WorkloadInfo, declared_types};

use crate::arrivals::Arrivals;
use crate::config::RunConfig;
use crate::error::RunError;
use crate::in_flight::Interleave;
use crate::names::options;
use crate::plan::{PlannedProtocolVisitor, PlannedWorkloadVisitor, ProtocolPlan, RunPlan};
use crate::progress::Stop;
use contend_judge::Recorded;
use loaded_engine::{LoadedEngine, TypedSession};
pub use schedule::ArrivalCount;
use schedule::Schedule;
pub use tally::{KindCount, Tally};
pub use threads::SAMPLE_EVERY;

/// The purpose of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPurpose {
    /// A measurement.
    Measure,
    /// A measurement that records a history.
    Record,
    /// A proof: a small workload, a history, and transactions that overlap.
    Verify,
    /// A proof by the final state: the workload of a verification, on exactly the workers of the
    /// plan, so that the same input can run elsewhere.
    Repeat,
}

/// The length of an interval of a run.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// By the machine's own clock.
    pub length: Duration,
    /// The most transactions that may commit, if there is a limit. A simulated session keeps the
    /// limit of its first interval.
    pub transactions_max: Option<u64>,
}

/// The activity of a simulated chip in an interval.
#[derive(Clone, Copy, Debug, Default)]
pub struct Simulation {
    /// Accesses of the interval, by the level that answered them.
    pub statistics: Statistics,
    /// A hash over every access since the chip was built.
    pub trace_hash: u64,
    /// The time that the simulation took on the host, in seconds.
    pub host_seconds: f64,
}

/// The result of an interval.
#[derive(Debug, Default)]
pub struct IntervalResult {
    /// The length by the machine's own clock.
    pub seconds: f64,
    /// Transactions, their latencies and times.
    pub tally: Tally,
    /// The activity of the chip, if the machine is simulated.
    pub simulation: Option<Simulation>,
    /// Bytes written to the log, if there is one.
    pub log_bytes: Option<u64>,
    /// The starts of an open loop.
    pub arrivals: Option<ArrivalCount>,
    /// The longest time from the end of an epoch until no transaction could commit in it any more,
    /// or until its commits were durable, in seconds.
    pub epoch_lag_seconds: f64,
}

/// A session, whatever the types of its protocol, workload and machine.
pub trait Session {
    /// Returns the protocol.
    fn info(&self) -> ProtocolInfo;
    /// Returns the values of the options of the protocol, the engine, retries, the log and the
    /// memory.
    fn protocol_options(&self) -> BTreeMap<String, String>;
    /// Returns the values of the workload's options.
    fn workload_options(&self) -> BTreeMap<String, String>;
    /// Returns the names of the workload's types of transactions.
    fn kinds(&self) -> &'static [&'static str];
    /// Returns the number of units that loading has.
    fn load_units(&self) -> u64;
    /// Loads with as many threads as will run, or fewer. Stops early if asked to. With a log of
    /// files the loaded rows are durable when this returns.
    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), RunError>;
    /// Runs for an interval. `tick` is called now and then with the part of the interval, from 0 to
    /// 1, that has passed since the last call.
    fn run(&mut self, interval: Interval, stop: &Stop, tick: &dyn Fn(f64)) -> Result<IntervalResult, RunError>;
    /// Sets the arrivals of an open loop, which begin with the next interval; `None` is a closed
    /// loop. The measurement begins after `warmup_seconds`; until then the rate is the first one.
    fn pace(&mut self, arrivals: Option<&Arrivals>, warmup_seconds: f64);
    /// Ends the running transactions; must be called before a check.
    fn settle(&mut self) -> Result<(), RunError>;
    /// Returns the bytes of tables and indexes.
    fn bytes(&self) -> u64;
    /// Returns the numbers of old versions that were made, reused and so on.
    fn versions(&self) -> VersionCounts;
    /// Returns a histogram of the lengths of version chains:
    /// [`contend_engine::Engine::version_chains`].
    fn version_chains(&self) -> Vec<u64>;
    /// Returns the number of deleted records whose memory is not free for reuse yet.
    fn tombstones(&self) -> u64;
    /// Returns a hash of all keys and rows ([`Engine::state_hash`]).
    fn state_hash(&self) -> u64;
    /// Gives the places of the session's conflicts their names. To be called once the running
    /// transactions have ended.
    fn name_conflicts(&self, map: &ConflictMap) -> NamedConflicts;
    /// Runs the workload's own check.
    fn check(&self) -> Result<Checked, Violation>;
    /// Returns the history recorded since the last call.
    fn take_history(&mut self) -> Recorded;
}

/// A driver that runs the workers of a session on a machine.
pub(crate) trait Driver<P: Protocol<Self::Machine>, W: Workload>: Sized + 'static {
    /// The machine.
    type Machine: Machine;
    /// Creates the driver for a session of this plan.
    fn new(plan: &RunPlan, purpose: RunPurpose) -> Self;
    /// See [`Session::load`].
    fn load(
        &mut self,
        loaded: &LoadedEngine<P, W, Self::Machine>,
        stop: &Stop,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), RunError>;
    /// See [`Session::run`].
    fn run(
        &mut self,
        loaded: &mut LoadedEngine<P, W, Self::Machine>,
        interval: Interval,
        stop: &Stop,
        tick: &dyn Fn(f64),
    ) -> Result<IntervalResult, RunError>;
    /// Gives each worker a schedule, which begins with the next interval.
    fn pace(&mut self, loaded: &mut LoadedEngine<P, W, Self::Machine>, schedules: Vec<Option<Schedule>>);
    /// See [`Session::settle`].
    fn settle(&mut self, loaded: &mut LoadedEngine<P, W, Self::Machine>) -> Result<(), RunError>;
}

/// Declares the types of a workload's transactions to the engine in which it has created its
/// tables, if it declares any. Returns the declarations.
///
/// # Errors
/// The declarations are not valid.
pub fn declare_types<P: Protocol<M>, W: Workload, M: Machine>(
    engine: &Engine<P, M>,
    workload: &W,
) -> Result<Option<TypeSet>, RunError> {
    let types = declared_types(workload, engine.declared_tables()).map_err(RunError::BadInput)?;
    if let Some(types) = &types {
        engine.declare(types.clone()).map_err(RunError::BadInput)?;
    }
    Ok(types)
}

/// Returns a session of an entry of a plan.
///
/// # Errors
/// The log can't be begun.
pub fn session(plan: &RunPlan, protocol: &ProtocolPlan, purpose: RunPurpose) -> Result<Box<dyn Session>, RunError> {
    match &plan.chip {
        None if protocol.threads.interleave == Interleave::Count(1) => {
            plan.workload.visit(OfWorkload::<Native> { plan, protocol, purpose, machine: PhantomData })
        }
        None => plan.workload.visit(OfWorkload::<Interleaved> { plan, protocol, purpose, machine: PhantomData }),
        Some(_) => plan.workload.visit(OfWorkload::<Simulated> { plan, protocol, purpose, machine: PhantomData }),
    }
}

/// Returns a session of a protocol that may be unregistered, such as a broken one, with a workload
/// given by its type.
///
/// # Errors
/// The configuration or an option of the protocol is not valid, or the log can't be begun.
pub fn session_of<P: NamedProtocol<Native>, W: Workload>(
    config: &RunConfig,
    purpose: RunPurpose,
) -> Result<Box<dyn Session>, RunError> {
    let plan = config.resolve()?;
    plan.refuse_in_flight("a session of a type")?;
    let (protocol, own) = ProtocolPlan::with_options::<P, Native>(&plan.config.settings)?;
    let options = options::<W::Options>(&[], &plan.config.settings)?;
    OfProtocol::<Native, W> { plan: &plan, protocol: &protocol, options: &options, purpose, machine: PhantomData }
        .made(Erased::new(P::new(own)))
}

/// The way in which the transactions of a session call their protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// The protocol is inlined into each workload. Every pair of them is compiled separately.
    Static,
    /// The protocol is behind a pointer, and each workload is compiled once.
    Dynamic,
    /// Entries with several transactions in flight on a core are dynamic, the others static: a
    /// build with the feature `lean`, whose figures are not comparable.
    Mixed,
}

impl Dispatch {
    /// The dispatch on this machine, chosen when this crate is built. It is dynamic in a
    /// development build, and static otherwise. The features `static-dispatch` and
    /// `dynamic-dispatch` override that.
    pub const NATIVE: Dispatch = if cfg!(contend_static_dispatch) { Dispatch::Static } else { Dispatch::Dynamic };

    /// Returns the dispatch of a plan's sessions.
    pub fn of(plan: &RunPlan) -> Dispatch {
        struct IsMeasured;
        impl PlannedWorkloadVisitor for IsMeasured {
            type Output = bool;

            fn visit<W: Workload>(self, _: WorkloadInfo, _: &W::Options) -> bool {
                W::IS_MEASURED
            }
        }
        // A dynamic call costs nothing compared with the simulation of memory.
        let in_flight = |entry: &ProtocolPlan| entry.threads.interleave != Interleave::Count(1);
        let mut entries = plan.protocols.iter();
        if cfg!(feature = "lean") && plan.chip.is_none() && Dispatch::NATIVE == Dispatch::Static {
            match (entries.clone().any(in_flight), entries.all(in_flight)) {
                (_, true) => return Dispatch::Dynamic,
                (true, false) => return Dispatch::Mixed,
                (false, _) => {}
            }
        }
        let is_dynamic = plan.chip.is_some() || !plan.workload.visit(IsMeasured);
        if is_dynamic { Dispatch::Dynamic } else { Dispatch::NATIVE }
    }

    /// Returns the name that results record.
    pub fn name(self) -> &'static str {
        match self {
            Dispatch::Static => "static",
            Dispatch::Dynamic => "dynamic",
            Dispatch::Mixed => "mixed",
        }
    }
}

/// A machine that a session can run on.
trait SessionMachine: Machine {
    /// The driver of the workers.
    type Driver<P: Protocol<Self>, W: Workload>: Driver<P, W, Machine = Self>;

    /// Makes the session of a protocol of the registry by the dispatch of this machine.
    fn session<P: NamedProtocol<Self>, W: Workload>(
        make: OfProtocol<'_, Self, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError>;
}

/// Makes the session of a protocol on the host.
// Twenty protocols times six workloads take minutes to compile. Only the build that is measured has
// them all.
#[cfg(contend_static_dispatch)]
fn on_host<M: SessionMachine, P: NamedProtocol<M>, W: Workload>(
    make: OfProtocol<'_, M, W>,
    protocol: P,
) -> Result<Box<dyn Session>, RunError> {
    if W::IS_MEASURED { make.made(protocol) } else { make.made(Erased::new(protocol)) }
}

/// Makes the session of a protocol on the host.
#[cfg(not(contend_static_dispatch))]
fn on_host<M: SessionMachine, P: NamedProtocol<M>, W: Workload>(
    make: OfProtocol<'_, M, W>,
    protocol: P,
) -> Result<Box<dyn Session>, RunError> {
    make.made(Erased::new(protocol))
}

#[cfg(not(feature = "lean"))]
use on_host as on_host_interleaved;

/// Makes the session of a protocol on the host with several transactions in flight, in a build that
/// is to be short.
#[cfg(feature = "lean")]
fn on_host_interleaved<M: SessionMachine, P: NamedProtocol<M>, W: Workload>(
    make: OfProtocol<'_, M, W>,
    protocol: P,
) -> Result<Box<dyn Session>, RunError> {
    make.made(Erased::new(protocol))
}

macro_rules! host {
    ($($machine:ty: $session:ident),*) => {$(
        impl SessionMachine for $machine {
            type Driver<P: Protocol<$machine>, W: Workload> = threads::Threads<$machine>;

            fn session<P: NamedProtocol<$machine>, W: Workload>(
                make: OfProtocol<'_, $machine, W>,
                protocol: P,
            ) -> Result<Box<dyn Session>, RunError> {
                $session(make, protocol)
            }
        }
    )*};
}

host!(Native: on_host, Interleaved: on_host_interleaved);

impl SessionMachine for Simulated {
    type Driver<P: Protocol<Simulated>, W: Workload> = chip::OnChip<P, W>;

    fn session<P: NamedProtocol<Simulated>, W: Workload>(
        make: OfProtocol<'_, Simulated, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        contend_sim::reserve_memory().map_err(|error| RunError::OutOfMemory(error.to_string()))?;
        make.made(Erased::new(protocol))
    }
}

struct OfWorkload<'a, M> {
    plan: &'a RunPlan,
    protocol: &'a ProtocolPlan,
    purpose: RunPurpose,
    machine: PhantomData<M>,
}

impl<M: SessionMachine> PlannedWorkloadVisitor for OfWorkload<'_, M> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<W: Workload>(self, _: WorkloadInfo, options: &W::Options) -> Self::Output {
        let OfWorkload { plan, protocol, purpose, .. } = self;
        protocol.visit::<M, _>(OfProtocol::<M, W> { plan, protocol, options, purpose, machine: PhantomData })
    }
}

struct OfProtocol<'a, M: Machine, W: Workload> {
    plan: &'a RunPlan,
    protocol: &'a ProtocolPlan,
    /// The workload's options.
    options: &'a W::Options,
    purpose: RunPurpose,
    machine: PhantomData<M>,
}

impl<M: SessionMachine, W: Workload> PlannedProtocolVisitor<M> for OfProtocol<'_, M, W> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<P: NamedProtocol<M>>(self, options: &P::Options) -> Self::Output {
        M::session(self, P::new(options.clone()))
    }
}

impl<M: SessionMachine, W: Workload> OfProtocol<'_, M, W> {
    /// Creates the session.
    fn made<P: Protocol<M>>(self, protocol: P) -> Result<Box<dyn Session>, RunError> {
        let workload_options = match self.purpose {
            RunPurpose::Verify | RunPurpose::Repeat => W::for_verification(self.options),
            RunPurpose::Measure | RunPurpose::Record => self.options.clone(),
        };
        let driver = M::Driver::<P, W>::new(self.plan, self.purpose);
        let loaded = LoadedEngine::new(self.plan, self.protocol, protocol, workload_options, self.purpose)?;
        Ok(Box::new(TypedSession { driver, loaded }))
    }
}
