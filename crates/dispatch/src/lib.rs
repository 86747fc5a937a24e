//! Sessions by the names of protocols and workloads.
//!
//! Here, and only here, the registered protocols, workloads and machines are multiplied: each
//! combination that a run may have is compiled. That takes minutes, so nothing else stands here,
//! and no test.
//!
//! **Two ways to a session.** Each workload is compiled once for a kind of machine, and calls the
//! protocol through a pointer. That costs the shortest transactions a twentieth of their
//! throughput, and the others less. So a release build compiles the workload whose operations are
//! the shortest, [`Ycsb`], with each protocol besides: on the host, since on a chip a call costs
//! nothing compared with the simulation of memory. Whatever names a pair of a workload and a
//! protocol has the compiler look at all their code, also behind a condition that never holds. So
//! the protocol goes behind its pointer before it meets a workload, and no other pair is named.
//!
//! This crate must not know what a run is for: comparisons, proofs, reports.

use std::any::{Any, TypeId};
use std::marker::PhantomData;

use contend_engine::{Erased, NamedProtocol, Protocol};
use contend_machine::{Interleaved, Machine, Native};
use contend_runner::in_flight::Interleave;
use contend_runner::plan::{PlannedProtocolVisitor, PlannedWorkloadVisitor};
use contend_runner::session::{NewSession, RunPurpose, Session};
use contend_runner::{ProtocolPlan, RunError, RunPlan};
use contend_sim::Simulated;
use contend_workloads::ycsb::{Ycsb, YcsbOptions};
use contend_workloads::{Workload, WorkloadInfo};

/// Returns a session of an entry of a plan.
///
/// # Errors
/// The log can't be begun, or the memory of a chip can't be reserved.
pub fn session(plan: &RunPlan, entry: &ProtocolPlan, purpose: RunPurpose) -> Result<Box<dyn Session>, RunError> {
    match &plan.chip {
        None if entry.threads.interleave == Interleave::Count(1) => on_host::<Native>(plan, entry, purpose),
        None => on_host::<Interleaved>(plan, entry, purpose),
        Some(_) => behind_pointer::<Simulated>(plan, entry, purpose),
    }
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
    /// Returns the dispatch of a plan's sessions. It is static for [`Ycsb`] on the host, in a
    /// release build and with the feature `static-dispatch`.
    pub fn of(plan: &RunPlan) -> Dispatch {
        let is_inlined = plan.chip.is_none() && ycsb(plan).is_some();
        if cfg!(contend_static_dispatch) && is_inlined { Dispatch::Static } else { Dispatch::Dynamic }
    }

    /// Returns the name that results record.
    pub fn name(self) -> &'static str {
        match self {
            Dispatch::Static => "static",
            Dispatch::Dynamic => "dynamic",
        }
    }
}

/// Returns the options of a plan's workload, if that is [`Ycsb`].
fn ycsb(plan: &RunPlan) -> Option<YcsbOptions> {
    struct IfYcsb;
    impl PlannedWorkloadVisitor for IfYcsb {
        type Output = Option<YcsbOptions>;

        fn visit<W: Workload>(self, _: WorkloadInfo, options: &W::Options) -> Self::Output {
            // Another workload might have options of the same type.
            let is_ycsb = TypeId::of::<W>() == TypeId::of::<Ycsb>();
            (options as &dyn Any).downcast_ref::<YcsbOptions>().filter(|_| is_ycsb).cloned()
        }
    }
    plan.workload.visit(IfYcsb)
}

/// Returns a session on a machine of the host: of the protocol inlined into the workload, or behind
/// a pointer.
fn on_host<M: SessionMachine>(
    plan: &RunPlan,
    entry: &ProtocolPlan,
    purpose: RunPurpose,
) -> Result<Box<dyn Session>, RunError> {
    #[cfg(contend_static_dispatch)]
    if let Some(options) = &ycsb(plan) {
        return entry.visit::<M, _>(Inlined(NewSession::<Ycsb> { plan, entry, options, purpose }));
    }
    behind_pointer::<M>(plan, entry, purpose)
}

/// Returns a session of the protocol behind a pointer.
fn behind_pointer<M: SessionMachine>(
    plan: &RunPlan,
    entry: &ProtocolPlan,
    purpose: RunPurpose,
) -> Result<Box<dyn Session>, RunError> {
    plan.workload.visit(BehindPointer::<M> { plan, entry, purpose, machine: PhantomData })
}

/// A machine that a session can run on.
trait SessionMachine: Machine {
    /// Returns the protocol of an entry behind a pointer.
    fn erased(entry: &ProtocolPlan) -> Erased<Self> {
        entry.erased()
    }

    /// Makes the session of a protocol on this machine.
    fn session<P: Protocol<Self>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError>;
}

impl SessionMachine for Native {
    fn erased(entry: &ProtocolPlan) -> Erased<Native> {
        entry.erased_on_host()
    }

    fn session<P: Protocol<Native>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        new.native(protocol)
    }
}

impl SessionMachine for Interleaved {
    fn session<P: Protocol<Interleaved>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        new.interleaved(protocol)
    }
}

impl SessionMachine for Simulated {
    fn session<P: Protocol<Simulated>, W: Workload>(
        new: NewSession<'_, W>,
        protocol: P,
    ) -> Result<Box<dyn Session>, RunError> {
        new.simulated(protocol)
    }
}

struct BehindPointer<'a, M> {
    plan: &'a RunPlan,
    entry: &'a ProtocolPlan,
    purpose: RunPurpose,
    machine: PhantomData<M>,
}

impl<M: SessionMachine> PlannedWorkloadVisitor for BehindPointer<'_, M> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<W: Workload>(self, _: WorkloadInfo, options: &W::Options) -> Self::Output {
        let BehindPointer { plan, entry, purpose, .. } = self;
        M::session(NewSession::<W> { plan, entry, options, purpose }, M::erased(entry))
    }
}

#[cfg_attr(not(contend_static_dispatch), expect(dead_code, reason = "nothing is inlined in a development build"))]
struct Inlined<'a, W: Workload>(NewSession<'a, W>);

impl<M: SessionMachine, W: Workload> PlannedProtocolVisitor<M> for Inlined<'_, W> {
    type Output = Result<Box<dyn Session>, RunError>;

    fn visit<P: NamedProtocol<M>>(self, options: &P::Options) -> Self::Output {
        M::session(self.0, P::new(options.clone()))
    }
}
