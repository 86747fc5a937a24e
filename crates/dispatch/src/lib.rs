//! Sessions by the names of protocols and workloads.
//!
//! Here, and only here, the registered protocols, workloads and machines are multiplied: each
//! combination that a run may have is compiled. That takes minutes, so nothing else stands here,
//! and no test.
//!
//! This crate must not know what a run is for: comparisons, proofs, reports.

use std::marker::PhantomData;

use contend_engine::{Erased, NamedProtocol};
use contend_machine::{Interleaved, Machine, Native};
use contend_runner::in_flight::Interleave;
use contend_runner::plan::{PlannedProtocolVisitor, PlannedWorkloadVisitor};
use contend_runner::session::{NewSession, RunPurpose, Session};
use contend_runner::{ProtocolPlan, RunError, RunPlan};
use contend_sim::Simulated;
use contend_workloads::{Inlining, Workload, WorkloadInfo};

/// Returns a session of an entry of a plan.
///
/// # Errors
/// The log can't be begun, or the memory of a chip can't be reserved.
pub fn session(plan: &RunPlan, entry: &ProtocolPlan, purpose: RunPurpose) -> Result<Box<dyn Session>, RunError> {
    match &plan.chip {
        None if entry.threads.interleave == Interleave::Count(1) => of::<Native>(plan, entry, purpose),
        None => of::<Interleaved>(plan, entry, purpose),
        Some(_) => of::<Simulated>(plan, entry, purpose),
    }
}

fn of<M: SessionMachine>(
    plan: &RunPlan,
    entry: &ProtocolPlan,
    purpose: RunPurpose,
) -> Result<Box<dyn Session>, RunError> {
    plan.workload.visit(OfWorkload::<M> { plan, entry, purpose, machine: PhantomData })
}

/// The way in which the transactions of a session call their protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// The protocol is inlined into each workload. Every pair of them is compiled separately.
    Static,
    /// The protocol is behind a pointer, and each workload is compiled once.
    Dynamic,
    /// Entries with several transactions in flight on a core are dynamic, the others static. Some
    /// workloads are compiled so ([`Inlining::OneInFlight`]), and with the feature `lean` YCSB is,
    /// whose figures are then not comparable.
    Mixed,
}

impl Dispatch {
    /// The dispatch on this machine, chosen when this crate is built. It is dynamic in a
    /// development build, and static otherwise. The features `static-dispatch` and
    /// `dynamic-dispatch` override that.
    pub const NATIVE: Dispatch = if cfg!(contend_static_dispatch) { Dispatch::Static } else { Dispatch::Dynamic };

    /// Returns the dispatch of a plan's sessions.
    pub fn of(plan: &RunPlan) -> Dispatch {
        struct OfWorkload;
        impl PlannedWorkloadVisitor for OfWorkload {
            type Output = Inlining;

            fn visit<W: Workload>(self, _: WorkloadInfo, _: &W::Options) -> Inlining {
                W::INLINING
            }
        }
        // On a chip a dynamic call costs nothing compared with the simulation of memory.
        if plan.chip.is_some() || Dispatch::NATIVE == Dispatch::Dynamic {
            return Dispatch::Dynamic;
        }
        let inlining = plan.workload.visit(OfWorkload);
        let is_inlined = |entry: &&ProtocolPlan| inlining.covers(entry.threads.interleave != Interleave::Count(1));
        match plan.protocols.iter().filter(is_inlined).count() {
            0 => Dispatch::Dynamic,
            all if all == plan.protocols.len() => Dispatch::Static,
            _ => Dispatch::Mixed,
        }
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
    /// Makes the session of a protocol of the registry by the dispatch of this machine.
    fn session<P: NamedProtocol<Self>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError>;
}

// Twenty protocols times six workloads take minutes to compile. Only the build that is measured has
// them. The choice is a constant, and the compiler leaves out what is not chosen.
impl SessionMachine for Native {
    fn session<P: NamedProtocol<Native>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        #[cfg(contend_static_dispatch)]
        if const { W::INLINING.covers(false) } {
            return new.native(protocol);
        }
        new.native(Erased::new(protocol))
    }
}

impl SessionMachine for Interleaved {
    fn session<P: NamedProtocol<Interleaved>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        #[cfg(contend_static_dispatch)]
        if const { W::INLINING.covers(true) } {
            return new.interleaved(protocol);
        }
        new.interleaved(Erased::new(protocol))
    }
}

impl SessionMachine for Simulated {
    fn session<P: NamedProtocol<Simulated>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        new.simulated(Erased::new(protocol))
    }
}

struct OfWorkload<'a, M> {
    plan: &'a RunPlan,
    entry: &'a ProtocolPlan,
    purpose: RunPurpose,
    machine: PhantomData<M>,
}

impl<M: SessionMachine> PlannedWorkloadVisitor for OfWorkload<'_, M> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<W: Workload>(self, _: WorkloadInfo, options: &W::Options) -> Self::Output {
        let OfWorkload { plan, entry, purpose, .. } = self;
        entry.visit::<M, _>(OfProtocol(NewSession::<W> { plan, entry, options, purpose }))
    }
}

struct OfProtocol<'a, W: Workload>(NewSession<'a, W>);

impl<M: SessionMachine, W: Workload> PlannedProtocolVisitor<M> for OfProtocol<'_, W> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<P: NamedProtocol<M>>(self, options: &P::Options) -> Self::Output {
        M::session(self.0, P::new(options.clone()))
    }
}
