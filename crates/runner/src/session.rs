//! A session: the engine of one protocol with the tables of one workload, and the workers that run
//! on it.
//!
//! Code that depends on protocol, workload and machine is generic and stands here; all other code
//! sees a [`Session`]. The crate `dispatch` compiles it for the types of the registries.
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
use std::time::Duration;

use contend_engine::{
    ConflictMap, Engine, Erased, NamedConflicts, NamedProtocol, Protocol, ProtocolInfo, VersionCounts,
};
use contend_machine::{Interleaved, Machine, Native};
use contend_model::pieces::TypeSet;
use contend_sim::{Simulated, Statistics};
use contend_workloads::{Checked, Violation, Workload, declared_types};

use crate::arrivals::Arrivals;
use crate::config::RunConfig;
use crate::error::RunError;
use crate::names::options;
use crate::plan::{ProtocolPlan, RunPlan};
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
    /// Returns the name of each table, and the number of its rows; must be called after [`settle`].
    /// Every record is visited.
    ///
    /// [`settle`]: Session::settle
    fn rows(&self) -> Vec<(String, u64)>;
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

/// What a session is made of, but for its protocol.
#[derive(Debug)]
pub struct NewSession<'a, W: Workload> {
    /// The plan of the run.
    pub plan: &'a RunPlan,
    /// The entry of the plan.
    pub entry: &'a ProtocolPlan,
    /// The workload's options.
    pub options: &'a W::Options,
    /// What the session is for.
    pub purpose: RunPurpose,
}

impl<W: Workload> NewSession<'_, W> {
    /// Returns a session on the threads of the host.
    ///
    /// # Errors
    /// The log can't be begun.
    pub fn native<P: Protocol<Native>>(self, protocol: P) -> Result<Box<dyn Session>, RunError> {
        self.on::<Native, threads::Threads<Native>, P>(protocol)
    }

    /// Returns a session on the threads of the host, with several transactions in flight on each.
    ///
    /// # Errors
    /// The log can't be begun.
    pub fn interleaved<P: Protocol<Interleaved>>(self, protocol: P) -> Result<Box<dyn Session>, RunError> {
        self.on::<Interleaved, threads::Threads<Interleaved>, P>(protocol)
    }

    /// Returns a session on the cores of a simulated chip.
    ///
    /// # Errors
    /// The log can't be begun, or the chip's memory can't be reserved.
    pub fn simulated<P: Protocol<Simulated>>(self, protocol: P) -> Result<Box<dyn Session>, RunError> {
        contend_sim::reserve_memory().map_err(|error| RunError::OutOfMemory(error.to_string()))?;
        self.on::<Simulated, chip::OnChip<P, W>, P>(protocol)
    }

    fn on<M, D, P>(self, protocol: P) -> Result<Box<dyn Session>, RunError>
    where
        M: Machine,
        D: Driver<P, W, Machine = M>,
        P: Protocol<M>,
    {
        let options = match self.purpose {
            RunPurpose::Verify | RunPurpose::Repeat => W::for_verification(self.options),
            RunPurpose::Measure | RunPurpose::Record => self.options.clone(),
        };
        let driver = D::new(self.plan, self.purpose);
        let loaded = LoadedEngine::new(self.plan, self.entry, protocol, options, self.purpose)?;
        Ok(Box::new(TypedSession { driver, loaded }))
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
    let (entry, own) = ProtocolPlan::with_options::<P, Native>(&plan.config.settings)?;
    let options = options::<W::Options>(&[], &plan.config.settings)?;
    NewSession::<W> { plan: &plan, entry: &entry, options: &options, purpose }.native(Erased::new(P::new(own)))
}
