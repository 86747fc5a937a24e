//! A protocol behind a pointer: what runs on it is compiled once, not once for each protocol.

use std::any::Any;

use contend_index::{Change, Leaf, LeafWords};
use contend_machine::Machine;
use crossbeam_utils::CachePadded;

use crate::abort::{Abort, AbortReason};
use crate::config::EngineOptions;
use crate::declaration::NamedRange;
use crate::group::Groups;
use crate::pieces::{PieceBegin, PieceOutcome};
use crate::protocol::{
    Context, Located, NamedProtocol, Protocol, ProtocolInfo, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode,
};
use crate::record::{Cells, Record};
use contend_model::Projection;
use contend_model::pieces::{Piece, TypeSet};

/// Any protocol, behind a pointer, so that the code that runs on it is compiled only once. Each
/// operation costs a dynamic call, some forty instructions of a read's two hundred.
///
/// The protocol and the state of each worker have cache lines of their own. Their neighbours on the
/// heap may be written by other workers, and every access of a row reads both.
pub struct Erased<M: Machine> {
    behind: Box<dyn Behind<M>>,
    traits: Traits,
}

/// The answers of a protocol that stay the same after [`Protocol::prepare`]. The engine asks for
/// them at each access, which would be a dynamic call each time.
#[derive(Clone, Copy)]
struct Traits {
    wants_declarations: bool,
    reorders_updates: bool,
    provides_write_counters: bool,
    reads_snapshots: bool,
    observes_ranges: bool,
    uses_pieces: bool,
    defers: bool,
}

impl Traits {
    fn of<M: Machine>(behind: &dyn Behind<M>) -> Self {
        Traits {
            wants_declarations: behind.wants_declarations(),
            reorders_updates: behind.reorders_updates(),
            provides_write_counters: behind.provides_write_counters(),
            reads_snapshots: behind.reads_snapshots(),
            observes_ranges: behind.observes_ranges(),
            uses_pieces: behind.uses_pieces(),
            defers: behind.defers(),
        }
    }
}

impl<M: Machine> Erased<M> {
    /// Puts a protocol behind a pointer.
    pub fn new<P: NamedProtocol<M>>(protocol: P) -> Self {
        let behind: Box<dyn Behind<M>> = Box::new(CachePadded::new(protocol));
        Erased { traits: Traits::of(&*behind), behind }
    }
}

impl<M: Machine> std::fmt::Debug for Erased<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Erased").field(&self.behind.info().name).finish()
    }
}

type AnyWorkerState = Box<dyn Any + Send>;

/// [`Protocol`] as a trait that is dyn compatible: the worker's state may be of any type.
trait Behind<M: Machine>: Send + Sync {
    fn info(&self) -> ProtocolInfo;
    fn meta_words(&self) -> usize;
    fn leaf_words(&self) -> LeafWords;
    fn prepare(&mut self, workers: usize, partitions: usize);
    fn wants_declarations(&self) -> bool;
    fn reorders_updates(&self) -> bool;
    fn provides_write_counters(&self) -> bool;
    fn reads_snapshots(&self) -> bool;
    fn sees_own_commits(&self, cx: &mut Context<M>, local: &mut AnyWorkerState) -> bool;
    fn is_doomed(&self, cx: &mut Context<M>, local: &mut AnyWorkerState) -> bool;
    fn new_worker_state(&self, worker: usize) -> AnyWorkerState;
    fn init(&self, cells: Cells<M>, initial: RecordOrigin);
    fn begin(&self, cx: &mut Context<M>, local: &mut AnyWorkerState) -> Result<(), Abort>;
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyWorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort>;
    fn read_entry(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyWorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort>;
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyWorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort>;
    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyWorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort>;
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyWorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort>;
    fn absent_found(&self, local: &mut AnyWorkerState, table: u32, leaf: Leaf<M>, version: u64);
    fn rewrite(&self, cx: &mut Context<M>, local: &mut AnyWorkerState, position: usize) -> Result<(), Abort>;
    fn observes_ranges(&self) -> bool;
    fn observe_range(
        &self,
        cx: &mut Context<M>,
        local: &mut AnyWorkerState,
        table: u32,
        low: &[u64],
        high: &[u64],
    ) -> Result<(), Abort>;
    fn uses_pieces(&self) -> bool;
    fn defers(&self) -> bool;
    fn begin_later(&self, cx: &mut Context<M>, local: &mut AnyWorkerState) -> Result<(), Abort>;
    fn await_inserts(&self, cx: &mut Context<M>, local: &mut AnyWorkerState, range: NamedRange) -> Result<bool, Abort>;
    fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String>;
    fn begin_piece(&self, cx: &mut Context<M>, local: &mut AnyWorkerState, piece: Piece) -> Result<PieceBegin, Abort>;
    fn end_piece(&self, cx: &mut Context<M>, local: &mut AnyWorkerState, piece: Piece) -> Result<PieceOutcome, Abort>;
    fn undo_piece(&self, cx: &mut Context<M>, local: &mut AnyWorkerState, reason: AbortReason) -> bool;
    fn commit(&self, cx: &mut Context<M>, local: &mut AnyWorkerState) -> Result<(), Abort>;
    fn abort(&self, cx: &mut Context<M>, local: &mut AnyWorkerState, reason: AbortReason);
    fn go_offline(&self, cx: &mut Context<M>, local: &mut AnyWorkerState);
    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome;
    fn is_absent(&self, record: Record<M>) -> bool;
    fn older_versions(&self, record: Record<M>) -> u64;
}

/// Returns a worker's state as the type that it has.
#[inline(always)]
fn of<T: 'static>(local: &mut AnyWorkerState) -> &mut T {
    debug_assert!((**local).is::<CachePadded<T>>());
    // A checked cast would be one more dynamic call for each operation.
    // SAFETY: the state was made by `new_worker_state` of this protocol. An engine has one
    // protocol, and gives it the states of its own workers only.
    unsafe { &mut *std::ptr::from_mut(&mut **local).cast::<CachePadded<T>>() }
}

macro_rules! forward {
    ($($name:ident($($argument:ident: $type:ty),*) -> $output:ty;)*) => {
        impl<M: Machine, P: Protocol<M>> Behind<M> for CachePadded<P> {
            fn info(&self) -> ProtocolInfo {
                P::info(self)
            }

            fn meta_words(&self) -> usize {
                P::meta_words(self)
            }

            fn leaf_words(&self) -> LeafWords {
                P::leaf_words(self)
            }

            fn prepare(&mut self, workers: usize, partitions: usize) {
                P::prepare(self, workers, partitions);
            }

            fn wants_declarations(&self) -> bool {
                P::wants_declarations(self)
            }

            fn reorders_updates(&self) -> bool {
                P::reorders_updates(self)
            }

            fn provides_write_counters(&self) -> bool {
                P::provides_write_counters(self)
            }

            fn reads_snapshots(&self) -> bool {
                P::reads_snapshots(self)
            }

            fn uses_pieces(&self) -> bool {
                P::uses_pieces(self)
            }

            fn observes_ranges(&self) -> bool {
                P::observes_ranges(self)
            }

            fn defers(&self) -> bool {
                P::defers(self)
            }

            fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String> {
                P::declare(self, types, options)
            }

            fn absent_found(&self, local: &mut AnyWorkerState, table: u32, leaf: Leaf<M>, version: u64) {
                P::absent_found(self, of::<P::WorkerState>(local), table, leaf, version);
            }

            fn new_worker_state(&self, worker: usize) -> AnyWorkerState {
                Box::new(CachePadded::new(P::new_worker_state(self, worker)))
            }

            fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
                P::init(self, cells, initial);
            }

            fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
                P::unlink(self, tombstone)
            }

            fn is_absent(&self, record: Record<M>) -> bool {
                P::is_absent(self, record)
            }

            fn older_versions(&self, record: Record<M>) -> u64 {
                P::older_versions(self, record)
            }

            $(fn $name(&self, cx: &mut Context<M>, local: &mut AnyWorkerState $(, $argument: $type)*) -> $output {
                P::$name(self, cx, of::<P::WorkerState>(local) $(, $argument)*)
            })*
        }

        impl<M: Machine> Protocol<M> for Erased<M> {
            type WorkerState = AnyWorkerState;

            fn info(&self) -> ProtocolInfo {
                self.behind.info()
            }

            fn meta_words(&self) -> usize {
                self.behind.meta_words()
            }

            fn leaf_words(&self) -> LeafWords {
                self.behind.leaf_words()
            }

            fn prepare(&mut self, workers: usize, partitions: usize) {
                self.behind.prepare(workers, partitions);
                self.traits = Traits::of(&*self.behind);
            }

            #[inline(always)]
            fn wants_declarations(&self) -> bool {
                self.traits.wants_declarations
            }

            #[inline(always)]
            fn reorders_updates(&self) -> bool {
                self.traits.reorders_updates
            }

            #[inline(always)]
            fn provides_write_counters(&self) -> bool {
                self.traits.provides_write_counters
            }

            #[inline(always)]
            fn reads_snapshots(&self) -> bool {
                self.traits.reads_snapshots
            }

            #[inline(always)]
            fn uses_pieces(&self) -> bool {
                self.traits.uses_pieces
            }

            #[inline(always)]
            fn observes_ranges(&self) -> bool {
                self.traits.observes_ranges
            }

            #[inline(always)]
            fn defers(&self) -> bool {
                self.traits.defers
            }

            fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String> {
                self.behind.declare(types, options)
            }

            fn absent_found(&self, local: &mut AnyWorkerState, table: u32, leaf: Leaf<M>, version: u64) {
                self.behind.absent_found(local, table, leaf, version);
            }

            fn new_worker_state(&self, worker: usize) -> AnyWorkerState {
                self.behind.new_worker_state(worker)
            }

            fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
                self.behind.init(cells, initial);
            }

            fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
                self.behind.unlink(tombstone)
            }

            fn is_absent(&self, record: Record<M>) -> bool {
                self.behind.is_absent(record)
            }

            fn older_versions(&self, record: Record<M>) -> u64 {
                self.behind.older_versions(record)
            }

            $(fn $name(&self, cx: &mut Context<M>, local: &mut AnyWorkerState $(, $argument: $type)*) -> $output {
                self.behind.$name(cx, local $(, $argument)*)
            })*
        }
    };
}

forward! {
    sees_own_commits() -> bool;
    is_doomed() -> bool;
    begin() -> Result<(), Abort>;
    read(at: Located<'_, M>, columns: Projection<'_>) -> Result<RecordState, Abort>;
    read_entry(at: Located<'_, M>, columns: Projection<'_>) -> Result<RecordState, Abort>;
    write(at: Located<'_, M>, groups: Groups, mode: WriteMode) -> Result<RecordState, Abort>;
    placeholder_inserted(at: Located<'_, M>, change: &Change<M>) -> Result<(), Abort>;
    observe_leaf(table: u32, leaf: Leaf<M>, version: u64) -> Result<(), Abort>;
    observe_range(table: u32, low: &[u64], high: &[u64]) -> Result<(), Abort>;
    rewrite(position: usize) -> Result<(), Abort>;
    begin_later() -> Result<(), Abort>;
    await_inserts(range: NamedRange) -> Result<bool, Abort>;
    begin_piece(piece: Piece) -> Result<PieceBegin, Abort>;
    end_piece(piece: Piece) -> Result<PieceOutcome, Abort>;
    undo_piece(reason: AbortReason) -> bool;
    commit() -> Result<(), Abort>;
    abort(reason: AbortReason) -> ();
    go_offline() -> ();
}
