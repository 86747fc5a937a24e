//! A session: the engine of one protocol with the tables of one workload, and the workers that run on it.
//!
//! Code that depends on protocol, workload and machine is generic and stands here; all other code sees a [`Session`].
//!
//! | module | what it does |
//! | --- | --- |
//! | `loaded_engine` | engine, workload and workers, and the loop in which a worker runs transactions |
//! | `tally` | counts, latencies and times of transactions |
//! | `interleaved` | transactions that yield their core between operations |
//! | `threads` | workers are threads of the host |
//! | `chip` | workers are cores of a simulated chip |

mod chip;
mod interleaved;
mod loaded_engine;
mod tally;
mod threads;

use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::time::Duration;

use contend_engine::{Erased, NamedProtocol, Protocol, ProtocolInfo, VersionCounts};
use contend_machine::{Machine, Native};
use contend_protocols::{ProtocolVisitor, with_protocol};
use contend_sim::{Simulated, Statistics};
use contend_workloads::{Checked, Violation, Workload, WorkloadInfo, WorkloadVisitor, with_workload};

use crate::config::{Entrant, RunConfig, options, values};
use crate::error::RunError;
use crate::progress::Stop;
use contend_judge::Recorded;
use loaded_engine::{LoadedEngine, TypedSession};
pub use tally::{KindCount, Tally};
pub use threads::SAMPLE_EVERY;

/// The purpose of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunPurpose {
    /// To measure.
    Measure,
    /// To measure, with a history.
    Record,
    /// To prove right: small, with a history, and with transactions that overlap.
    Verify,
}

/// The length of a run.
#[derive(Clone, Copy, Debug)]
pub struct Interval {
    /// On the machine's own clock.
    pub length: Duration,
    /// The most transactions that may commit, if there is a limit. A simulated session keeps to that of its first interval.
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

/// What happened in a interval.
#[derive(Debug, Default)]
pub struct IntervalResult {
    /// On the machine's own clock.
    pub seconds: f64,
    /// Transactions, their latencies and times.
    pub tally: Tally,
    /// The activity of the chip, if the machine is simulated.
    pub simulation: Option<Simulation>,
    /// Bytes that were written to the log, if there is one.
    pub log_bytes: Option<u64>,
}

/// A loaded or loadable test session.
pub trait Session {
    /// The protocol.
    fn info(&self) -> ProtocolInfo;
    /// The values of the protocol's options, the engine's, and those of trying again.
    fn protocol_options(&self) -> BTreeMap<String, String>;
    /// The values of the workload's options.
    fn workload_options(&self) -> BTreeMap<String, String>;
    /// The names of the workload's types of transactions.
    fn kinds(&self) -> &'static [&'static str];
    /// How many units loading has.
    fn load_units(&self) -> u64;
    /// Loads by as many threads as will run. Stops early if asked to. If there is a log of files, what was loaded is durable then.
    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), RunError>;
    /// Runs for a interval. `tick` is called now and then with the part of the interval, from 0 to 1, that has passed since the last call.
    fn run(&mut self, interval: Interval, stop: &Stop, tick: &dyn Fn(f64)) -> Result<IntervalResult, RunError>;
    /// Ends what is under way: to be called before a check.
    fn settle(&mut self) -> Result<(), RunError>;
    /// Bytes of tables and indexes.
    fn bytes(&self) -> u64;
    /// What has become of old versions.
    fn versions(&self) -> VersionCounts;
    /// Of how many records so many old versions are kept: [`contend_engine::Engine::version_chains`].
    fn version_chains(&self) -> Vec<u64>;
    /// Deleted records whose memory is not free to be used again.
    fn tombstones(&self) -> u64;
    /// The workload's own check.
    fn check(&self) -> Result<Checked, Violation>;
    /// What was recorded since the last call.
    fn take_history(&mut self) -> Recorded;
}

/// What runs the workers of a session on a machine.
pub(crate) trait Driver<P: Protocol<Self::Machine>, W: Workload>: Sized + 'static {
    /// The machine.
    type Machine: Machine;
    /// For a session of this configuration.
    fn new(config: &RunConfig, purpose: RunPurpose) -> Self;
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
    /// See [`Session::settle`].
    fn settle(&mut self, loaded: &mut LoadedEngine<P, W, Self::Machine>) -> Result<(), RunError>;
}

/// A session for this entrant of this validated configuration.
pub fn session(config: &RunConfig, entrant: &Entrant, purpose: RunPurpose) -> Result<Box<dyn Session>, RunError> {
    let made = match config.chip {
        None => with_workload(&config.workload, OfWorkload::<Native>::new(config, entrant, purpose)),
        Some(_) => with_workload(&config.workload, OfWorkload::<Simulated>::new(config, entrant, purpose)),
    };
    made.expect("the configuration is validated")
}

/// The driver of a machine.
trait HasDriver: Machine {
    /// What a protocol runs as.
    type Ran<P: NamedProtocol<Self>>: Protocol<Self>;
    /// For these types.
    type Driver<P: Protocol<Self>, W: Workload>: Driver<P, W, Machine = Self>;

    /// This protocol, as it runs.
    fn ran<P: NamedProtocol<Self>>(protocol: P) -> Self::Ran<P>;
}

impl HasDriver for Native {
    /// Itself, to be inlined into each workload. A build for tests has no use for that and can't wait for it: the protocols times
    /// the workloads are most of what there is to compile.
    #[cfg(not(debug_assertions))]
    type Ran<P: NamedProtocol<Native>> = P;
    #[cfg(debug_assertions)]
    type Ran<P: NamedProtocol<Native>> = Erased<Native>;
    type Driver<P: Protocol<Native>, W: Workload> = threads::Threads;

    #[cfg(not(debug_assertions))]
    fn ran<P: NamedProtocol<Native>>(protocol: P) -> P {
        protocol
    }

    #[cfg(debug_assertions)]
    fn ran<P: NamedProtocol<Native>>(protocol: P) -> Erased<Native> {
        Erased::new(protocol)
    }
}

impl HasDriver for Simulated {
    // Behind a pointer: next to the simulation of memory a dynamic call costs nothing, and workloads are compiled once for all protocols.
    type Ran<P: NamedProtocol<Simulated>> = Erased<Simulated>;
    type Driver<P: Protocol<Simulated>, W: Workload> = chip::OnChip<P, W>;

    fn ran<P: NamedProtocol<Simulated>>(protocol: P) -> Erased<Simulated> {
        Erased::new(protocol)
    }
}

struct OfWorkload<'a, M> {
    config: &'a RunConfig,
    entrant: &'a Entrant,
    purpose: RunPurpose,
    machine: PhantomData<M>,
}

impl<'a, M> OfWorkload<'a, M> {
    fn new(config: &'a RunConfig, entrant: &'a Entrant, purpose: RunPurpose) -> Self {
        OfWorkload { config, entrant, purpose, machine: PhantomData }
    }
}

impl<M: HasDriver> WorkloadVisitor for OfWorkload<'_, M> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<W: Workload>(self, info: WorkloadInfo) -> Self::Output {
        let mut workload_options = options::<W::Options>(info.preset, &self.entrant.settings)?;
        if self.purpose == RunPurpose::Verify {
            workload_options = W::for_verification(&workload_options);
        }
        let make = OfProtocol::<M, W> {
            config: self.config,
            settings: &self.entrant.settings,
            workload_options,
            purpose: self.purpose,
            machine: PhantomData,
        };
        with_protocol::<M, _>(&self.entrant.protocol, make).expect("the configuration is validated")
    }
}

struct OfProtocol<'a, M, W: Workload> {
    config: &'a RunConfig,
    settings: &'a BTreeMap<String, String>,
    workload_options: W::Options,
    purpose: RunPurpose,
    machine: PhantomData<M>,
}

impl<M: HasDriver, W: Workload> ProtocolVisitor<M> for OfProtocol<'_, M, W> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<P: NamedProtocol<M>>(self) -> Self::Output {
        let options = options::<P::Options>(&[], self.settings)?;
        let (values, protocol) = (values(&options), M::ran(P::new(options)));
        let OfProtocol { config, settings, workload_options, purpose, .. } = self;
        type Made<M, P, W> =
            TypedSession<<M as HasDriver>::Ran<P>, W, <M as HasDriver>::Driver<<M as HasDriver>::Ran<P>, W>>;
        Ok(Box::new(Made::<M, P, W>::new(config, (protocol, values), settings, workload_options, purpose)?))
    }
}

/// Returns a session of a protocol that need not be registered, a broken one say, with a workload by its type.
///
/// # Errors
/// An option has a wrong value.
pub fn session_of<P: NamedProtocol<Native>, W: Workload>(
    config: &RunConfig,
    purpose: RunPurpose,
) -> Result<Box<dyn Session>, RunError> {
    let protocol_options = options::<P::Options>(&[], &config.settings)?;
    let workload_options = options::<W::Options>(&[], &config.settings)?;
    let protocol = (Erased::new(P::new(protocol_options.clone())), values(&protocol_options));
    type Made<W> = TypedSession<Erased<Native>, W, threads::Threads>;
    Ok(Box::new(Made::<W>::new(config, protocol, &config.settings, workload_options, purpose)?))
}
