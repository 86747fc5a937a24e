//! A test bed: one protocol's engine with one workload's tables, and what runs on it.
//!
//! What depends on protocol, workload and machine is generic and lives here; all else sees a [`Bed`].
//!
//! | module | what it does |
//! | --- | --- |
//! | `world` | engine, workload and workers, and the loop in which a worker runs transactions |
//! | `tally` | what happened |
//! | `threads` | workers are threads of the host |
//! | `chip` | workers are cores of a simulated chip |

mod chip;
mod tally;
mod threads;
mod world;

use std::collections::BTreeMap;
use std::time::Duration;

use contend_engine::{Control, Erased, Info, Protocol, VersionCounts};
use contend_machine::{Machine, Native};
use contend_protocols::{ProtocolVisitor, with_protocol};
use contend_sim::{Simulated, Statistics};
use contend_workloads::{Checked, Violation, Workload, WorkloadInfo, WorkloadVisitor, with_workload};

use crate::config::{Entrant, LabError, RunConfig, options, values};
use crate::recording::Recorded;
use crate::watch::Stop;
pub(crate) use tally::{KindCount, Tally};
pub(crate) use threads::SAMPLE_EVERY;
#[cfg(test)]
pub(crate) use threads::Threads;
pub(crate) use world::TypedBed;
use world::World;

/// For what a bed is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To measure.
    Measure,
    /// To measure, with a history.
    Record,
    /// To prove right: small, with a history, and with transactions that overlap.
    Verify,
}

/// How long a bed runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    /// On the machine's own clock.
    pub(crate) length: Duration,
    /// The most transactions that may commit, if there is a limit. A simulated bed keeps to that of its first span.
    pub(crate) transactions_max: Option<u64>,
}

/// What a simulated chip did in a span, besides transactions.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Simulation {
    pub(crate) statistics: Statistics,
    pub(crate) trace_hash: u64,
    pub(crate) host_seconds: f64,
}

/// What happened in a span.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// On the machine's own clock.
    pub(crate) seconds: f64,
    pub(crate) tally: Tally,
    pub(crate) simulation: Option<Simulation>,
    /// Bytes that were written to the log, if there is one.
    pub(crate) log_bytes: Option<u64>,
}

/// A loaded or loadable test bed.
pub(crate) trait Bed {
    /// The protocol.
    fn info(&self) -> Info;
    /// The values of the protocol's options, the engine's, and those of trying again.
    fn protocol_options(&self) -> BTreeMap<String, String>;
    /// The values of the workload's options.
    fn workload_options(&self) -> BTreeMap<String, String>;
    /// The names of the workload's types of transactions.
    fn kinds(&self) -> &'static [&'static str];
    /// How many units loading has.
    fn load_units(&self) -> u64;
    /// Loads by as many threads as will run. Stops early if asked to. If there is a log of files, what was loaded is durable then.
    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), LabError>;
    /// Runs for a span. `tick` is called now and then with the part of the span, from 0 to 1, that has passed since the last call.
    fn run(&mut self, span: Span, stop: &Stop, tick: &dyn Fn(f64)) -> Result<Count, LabError>;
    /// Ends what is under way: to be called before a check.
    fn settle(&mut self) -> Result<(), LabError>;
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

/// What runs the workers of a bed on a machine.
pub(crate) trait Driver<P: Control<Self::Machine>, W: Workload<Self::Machine>>: Sized + 'static {
    /// The machine.
    type Machine: Machine;
    /// For a bed of this configuration.
    fn new(config: &RunConfig, purpose: Purpose) -> Self;
    /// See [`Bed::load`].
    fn load(
        &mut self,
        world: &World<P, W, Self::Machine>,
        stop: &Stop,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), LabError>;
    /// See [`Bed::run`].
    fn run(
        &mut self,
        world: &mut World<P, W, Self::Machine>,
        span: Span,
        stop: &Stop,
        tick: &dyn Fn(f64),
    ) -> Result<Count, LabError>;
    /// See [`Bed::settle`].
    fn settle(&mut self, world: &mut World<P, W, Self::Machine>) -> Result<(), LabError>;
}

/// A bed for this entrant of this validated configuration.
pub(crate) fn bed(config: &RunConfig, entrant: &Entrant, purpose: Purpose) -> Result<Box<dyn Bed>, LabError> {
    let make = OfWorkload { config, entrant, purpose };
    let made = match config.chip {
        None => with_workload::<Native, _>(&config.workload, make),
        Some(_) => with_workload::<Simulated, _>(&config.workload, make),
    };
    made.expect("the configuration is validated")
}

/// The driver of a machine.
trait HasDriver: Machine {
    /// What a protocol runs as.
    type Ran<P: Protocol<Self>>: Control<Self>;
    /// For these types.
    type Driver<P: Control<Self>, W: Workload<Self>>: Driver<P, W, Machine = Self>;

    /// This protocol, as it runs.
    fn ran<P: Protocol<Self>>(protocol: P) -> Self::Ran<P>;
}

impl HasDriver for Native {
    /// Itself, to be inlined into each workload. A build for tests has no use for that and can't wait for it: the protocols times
    /// the workloads are most of what there is to compile.
    #[cfg(not(debug_assertions))]
    type Ran<P: Protocol<Native>> = P;
    #[cfg(debug_assertions)]
    type Ran<P: Protocol<Native>> = Erased<Native>;
    type Driver<P: Control<Native>, W: Workload<Native>> = threads::Threads;

    #[cfg(not(debug_assertions))]
    fn ran<P: Protocol<Native>>(protocol: P) -> P {
        protocol
    }

    #[cfg(debug_assertions)]
    fn ran<P: Protocol<Native>>(protocol: P) -> Erased<Native> {
        Erased::new(protocol)
    }
}

impl HasDriver for Simulated {
    // Behind a pointer: next to the simulation of memory a dynamic call costs nothing, and workloads are compiled once for all protocols.
    type Ran<P: Protocol<Simulated>> = Erased<Simulated>;
    type Driver<P: Control<Simulated>, W: Workload<Simulated>> = chip::OnChip<P, W>;

    fn ran<P: Protocol<Simulated>>(protocol: P) -> Erased<Simulated> {
        Erased::new(protocol)
    }
}

struct OfWorkload<'a> {
    config: &'a RunConfig,
    entrant: &'a Entrant,
    purpose: Purpose,
}

impl<M: HasDriver> WorkloadVisitor<M> for OfWorkload<'_> {
    type Output = Result<Box<dyn Bed>, LabError>;

    fn visit<W: Workload<M>>(self, info: WorkloadInfo) -> Self::Output {
        let mut workload_options = options::<W::Options>(info.preset, &self.entrant.settings)?;
        if self.purpose == Purpose::Verify {
            workload_options = W::for_verification(&workload_options);
        }
        let make = OfProtocol::<M, W> {
            config: self.config,
            settings: &self.entrant.settings,
            workload_options,
            purpose: self.purpose,
        };
        with_protocol::<M, _>(&self.entrant.protocol, make).expect("the configuration is validated")
    }
}

struct OfProtocol<'a, M: Machine, W: Workload<M>> {
    config: &'a RunConfig,
    settings: &'a BTreeMap<String, String>,
    workload_options: W::Options,
    purpose: Purpose,
}

impl<M: HasDriver, W: Workload<M>> ProtocolVisitor<M> for OfProtocol<'_, M, W> {
    type Output = Result<Box<dyn Bed>, LabError>;

    fn visit<P: Protocol<M>>(self) -> Self::Output {
        let options = options::<P::Options>(&[], self.settings)?;
        let (values, protocol) = (values(&options), M::ran(P::new(options)));
        let OfProtocol { config, settings, workload_options, purpose } = self;
        type Made<M, P, W> =
            TypedBed<<M as HasDriver>::Ran<P>, W, <M as HasDriver>::Driver<<M as HasDriver>::Ran<P>, W>>;
        Ok(Box::new(Made::<M, P, W>::new(config, (protocol, values), settings, workload_options, purpose)?))
    }
}
