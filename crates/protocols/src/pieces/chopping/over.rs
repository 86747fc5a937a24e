//! The protocols that a part of a chopped transaction may commit by, as one protocol.
//!
//! Each operation asks which protocol it is, and calls it directly. The operations are compiled
//! once for each machine, and not once for each workload, so they are not inlined.

use contend_engine::{
    Abort, AbortReason, Cells, Change, Context, Groups, Leaf, LeafWords, Located, NamedProtocol, Projection, Protocol,
    ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode, option_choices,
};
use contend_machine::Machine;

use crate::locking::ordered::Ordered;
use crate::locking::wait_die::WaitDie;
use crate::locking::wound_wait::WoundWait;
use crate::optimistic::silo::Silo;

/// A protocol by which the parts of transactions commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// Silo.
    Silo,
    /// Two-phase locking by wait-die.
    WaitDie,
    /// Two-phase locking by wound-wait.
    WoundWait,
    /// Two-phase locking that waits for locks in the order of their addresses. A part declares no
    /// rows: it takes each lock when it needs it, and one out of the order only if it is free.
    Ordered,
}

option_choices!(Over {
    Silo => "silo",
    WaitDie => "2pl-waitdie",
    WoundWait => "2pl-woundwait",
    Ordered => "2pl-ordered",
});

/// The chosen protocol, with its default options.
#[derive(Debug)]
pub(super) enum Inner<M: Machine> {
    Silo(Silo),
    WaitDie(WaitDie<M>),
    WoundWait(WoundWait<M>),
    Ordered(Ordered),
}

/// The chosen protocol's state of a worker.
pub(super) enum InnerWorker<M: Machine> {
    Silo(<Silo as Protocol<M>>::WorkerState),
    WaitDie(<WaitDie<M> as Protocol<M>>::WorkerState),
    WoundWait(<WoundWait<M> as Protocol<M>>::WorkerState),
    Ordered(<Ordered as Protocol<M>>::WorkerState),
}

impl<M: Machine> std::fmt::Debug for InnerWorker<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("InnerWorker")
    }
}

impl<M: Machine> Inner<M> {
    pub(super) fn new(over: Over) -> Self {
        fn made<M: Machine, P: NamedProtocol<M>>() -> P {
            P::new(Default::default())
        }
        match over {
            Over::Silo => Inner::Silo(made::<M, _>()),
            Over::WaitDie => Inner::WaitDie(made::<M, _>()),
            Over::WoundWait => Inner::WoundWait(made::<M, _>()),
            Over::Ordered => Inner::Ordered(made::<M, _>()),
        }
    }
}

/// Calls a method of the chosen protocol that needs no worker.
macro_rules! ask {
    ($inner:expr, $method:ident($($argument:expr),*)) => {
        match $inner {
            Inner::Silo(chosen) => <Silo as Protocol<M>>::$method(chosen, $($argument),*),
            Inner::WaitDie(chosen) => <WaitDie<M> as Protocol<M>>::$method(chosen, $($argument),*),
            Inner::WoundWait(chosen) => <WoundWait<M> as Protocol<M>>::$method(chosen, $($argument),*),
            Inner::Ordered(chosen) => <Ordered as Protocol<M>>::$method(chosen, $($argument),*),
        }
    };
}

/// Calls a method of the chosen protocol for a worker.
macro_rules! run {
    ($inner:expr, $method:ident($cx:expr, $local:expr $(, $argument:expr)*)) => {
        match ($inner, $local) {
            (Inner::Silo(chosen), InnerWorker::Silo(local)) => chosen.$method($cx, local $(, $argument)*),
            (Inner::WaitDie(chosen), InnerWorker::WaitDie(local)) => chosen.$method($cx, local $(, $argument)*),
            (Inner::WoundWait(chosen), InnerWorker::WoundWait(local)) => chosen.$method($cx, local $(, $argument)*),
            (Inner::Ordered(chosen), InnerWorker::Ordered(local)) => chosen.$method($cx, local $(, $argument)*),
            _ => unreachable!("the state of a worker is that of the chosen protocol"),
        }
    };
}

impl<M: Machine> Protocol<M> for Inner<M> {
    type WorkerState = InnerWorker<M>;

    fn info(&self) -> ProtocolInfo {
        ask!(self, info())
    }

    fn meta_words(&self) -> usize {
        ask!(self, meta_words())
    }

    fn leaf_words(&self) -> LeafWords {
        ask!(self, leaf_words())
    }

    fn prepare(&mut self, workers: usize, partitions: usize) {
        ask!(self, prepare(workers, partitions));
    }

    fn provides_write_counters(&self) -> bool {
        ask!(self, provides_write_counters())
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        match self {
            Inner::Silo(silo) => InnerWorker::Silo(silo.new_worker_state(worker)),
            Inner::WaitDie(wait_die) => InnerWorker::WaitDie(wait_die.new_worker_state(worker)),
            Inner::WoundWait(wound_wait) => InnerWorker::WoundWait(wound_wait.new_worker_state(worker)),
            Inner::Ordered(ordered) => {
                InnerWorker::Ordered(<Ordered as Protocol<M>>::new_worker_state(ordered, worker))
            }
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        ask!(self, init(cells, initial));
    }

    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        run!(self, begin(cx, local))
    }

    #[inline(never)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        run!(self, read(cx, local, at, columns))
    }

    #[inline(never)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        run!(self, write(cx, local, at, groups, mode))
    }

    #[inline(never)]
    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        run!(self, placeholder_inserted(cx, local, at, change))
    }

    #[inline(never)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        run!(self, observe_leaf(cx, local, table, leaf, version))
    }

    #[inline(never)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        run!(self, commit(cx, local))
    }

    #[inline(never)]
    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        run!(self, abort(cx, local, reason));
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        ask!(self, unlink(tombstone))
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        ask!(self, is_absent(record))
    }
}
