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
use contend_workloads::{Workload, WorkloadInfo};

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
    /// The protocol is inlined into the workload. Every pair of them is compiled separately.
    Static,
    /// The protocol is behind a pointer, and the workload is compiled once.
    Dynamic,
}

impl Dispatch {
    /// Returns the dispatch of a plan's sessions. It is static on the host, for the workloads that
    /// ask for it ([`Workload::IS_INLINED`]), in a release build and with the feature
    /// `static-dispatch`.
    pub fn of(plan: &RunPlan) -> Dispatch {
        struct OfWorkload;
        impl PlannedWorkloadVisitor for OfWorkload {
            type Output = bool;

            fn visit<W: Workload>(self, _: WorkloadInfo, _: &W::Options) -> bool {
                W::IS_INLINED
            }
        }
        // On a chip a dynamic call costs nothing compared with the simulation of memory.
        let is_static = cfg!(contend_static_dispatch) && plan.chip.is_none() && plan.workload.visit(OfWorkload);
        if is_static { Dispatch::Static } else { Dispatch::Dynamic }
    }

    /// Returns the name that results record.
    pub fn name(self) -> &'static str {
        match self {
            Dispatch::Static => "static",
            Dispatch::Dynamic => "dynamic",
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

// The choice is a constant, and the compiler leaves out what is not chosen.
impl SessionMachine for Native {
    fn session<P: NamedProtocol<Native>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        #[cfg(contend_static_dispatch)]
        if const { W::IS_INLINED } {
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
        if const { W::IS_INLINED } {
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
