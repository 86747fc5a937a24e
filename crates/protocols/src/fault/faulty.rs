//! Faults that wrap a whole operation of a protocol, whichever protocol it is.

use std::marker::PhantomData;

use contend_engine::declaration::NamedRange;
use contend_engine::{
    Abort, AbortReason, Cells, Change, Context, EngineOptions, Groups, Leaf, LeafWords, Located, NamedProtocol,
    PieceBegin, PieceOutcome, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone,
    UnlinkOutcome, WriteMode,
};
use contend_machine::{Atomic64, Machine, Ordering};
use contend_model::pieces::{Piece, TypeSet};

use crate::faults;
use crate::flags::ABSENT;

faults! {
    /// Faults that wrap a whole operation.
    pub trait OperationFaults {
        /// Misses and scans leave no trace: they observe no leaf, or mark none as read.
        forget_gaps,
        /// A placeholder looks like a committed row.
        show_placeholders,
        /// An insert that aborts leaves its placeholder behind as a row.
        keep_aborted_inserts,
        /// Commit-time updates are applied before their cells are locked.
        merge_before_lock,
        /// Leaves are validated before the locks of updates are taken.
        validate_before_locks,
        /// A tombstone leaves its index two epochs before the last snapshot has ended that shows
        /// its row.
        forget_snapshots_of_tombstones,
        /// A tombstone leaves its index though a transaction may run that began before the
        /// deletion.
        forget_age_of_tombstones,
        /// A tombstone leaves its index one epoch earlier.
        unlink_early,
        /// A tombstone that leaves its index does not leave behind when it was read last.
        forget_readers_of_tombstones,
    }
    pub const OPERATION_FAULTS;
}

/// The protocol `P` with the faults `F` around its operations. The cells' first words must have the
/// flags of [`crate::flags`].
#[derive(Debug)]
pub struct Faulty<P, F> {
    protocol: P,
    faults: PhantomData<fn() -> F>,
}

/// Makes the placeholders that the transaction has inserted look like rows, or absent again.
fn show_placeholders<M: Machine>(cx: &Context<M>, shown: bool) {
    for write in cx.writes.entries().iter().filter(|write| write.fresh) {
        write.cells().for_each(|cell| show(cell.word(), shown));
    }
}

fn show<A: Atomic64>(word: &A, shown: bool) {
    // AcqRel: pairs with the loads of readers. The fault must be found because it shows a
    // placeholder, not because a row is torn.
    let order = Ordering::AcqRel;
    let _ = if shown { word.fetch_and(!ABSENT, order) } else { word.fetch_or(ABSENT, order) };
}

impl<M: Machine, P: NamedProtocol<M>, F: OperationFaults> NamedProtocol<M> for Faulty<P, F> {
    const INFO: ProtocolInfo = P::INFO;
    const SHOWS_UNCOMMITTED: bool = P::SHOWS_UNCOMMITTED;
    const REFUSES_LOG: Option<&'static str> = P::REFUSES_LOG;
    const DETERMINISTIC: Option<&'static str> = P::DETERMINISTIC;
    const SNAPSHOTS: Option<&'static str> = P::SNAPSHOTS;
    type Options = P::Options;

    fn options_with_snapshots() -> P::Options {
        P::options_with_snapshots()
    }

    fn new(options: P::Options) -> Self {
        Faulty { protocol: P::new(options), faults: PhantomData }
    }
}

impl<M: Machine, P: Protocol<M>, F: OperationFaults> Protocol<M> for Faulty<P, F> {
    type WorkerState = P::WorkerState;

    fn info(&self) -> ProtocolInfo {
        self.protocol.info()
    }

    fn meta_words(&self) -> usize {
        self.protocol.meta_words()
    }

    fn leaf_words(&self) -> LeafWords {
        self.protocol.leaf_words()
    }

    fn prepare(&mut self, workers: usize, partitions: usize) {
        self.protocol.prepare(workers, partitions);
    }

    fn wants_declarations(&self) -> bool {
        self.protocol.wants_declarations()
    }

    fn reads_snapshots(&self) -> bool {
        self.protocol.reads_snapshots()
    }

    fn sees_own_commits(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        self.protocol.sees_own_commits(cx, local)
    }

    fn is_doomed(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        self.protocol.is_doomed(cx, local)
    }

    fn provides_write_counters(&self) -> bool {
        self.protocol.provides_write_counters()
    }

    fn reorders_updates(&self) -> bool {
        self.protocol.reorders_updates()
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        self.protocol.new_worker_state(worker)
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        self.protocol.init(cells, initial);
    }

    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.protocol.begin(cx, local)
    }

    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        self.protocol.read(cx, local, at, columns)
    }

    fn read_entry(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        self.protocol.read_entry(cx, local, at, columns)
    }

    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        self.protocol.write(cx, local, at, groups, mode)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        self.protocol.placeholder_inserted(cx, local, at, change)?;
        if F::show_placeholders() {
            at.cells(Groups::ALL).for_each(|cell| show(cell.word(), true));
        }
        Ok(())
    }

    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        if F::forget_gaps() { Ok(()) } else { self.protocol.observe_leaf(cx, local, table, leaf, version) }
    }

    fn observes_ranges(&self) -> bool {
        self.protocol.observes_ranges()
    }

    fn observe_range(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        low: &[u64],
        high: &[u64],
    ) -> Result<(), Abort> {
        if F::forget_gaps() { Ok(()) } else { self.protocol.observe_range(cx, local, table, low, high) }
    }

    fn absent_found(&self, local: &mut Self::WorkerState, table: u32, leaf: Leaf<M>, version: u64) {
        self.protocol.absent_found(local, table, leaf, version);
    }

    fn rewrite(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, position: usize) -> Result<(), Abort> {
        self.protocol.rewrite(cx, local, position)
    }

    fn defers(&self) -> bool {
        self.protocol.defers()
    }

    fn begin_later(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.protocol.begin_later(cx, local)
    }

    fn await_inserts(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        range: NamedRange,
    ) -> Result<bool, Abort> {
        self.protocol.await_inserts(cx, local, range)
    }

    fn uses_pieces(&self) -> bool {
        self.protocol.uses_pieces()
    }

    fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String> {
        self.protocol.declare(types, options)
    }

    fn begin_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceBegin, Abort> {
        self.protocol.begin_piece(cx, local, piece)
    }

    fn end_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceOutcome, Abort> {
        self.protocol.end_piece(cx, local, piece)
    }

    fn undo_piece(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) -> bool {
        self.protocol.undo_piece(cx, local, reason)
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if F::show_placeholders() {
            // The transaction has observed them as absent, and its commit looks whether they are.
            show_placeholders(cx, false);
        }
        if F::merge_before_lock() {
            cx.writes.apply_updates();
        }
        if F::validate_before_locks() {
            cx.nodes.validate()?;
            cx.nodes.clear();
        }
        self.protocol.commit(cx, local)
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        if F::keep_aborted_inserts() {
            show_placeholders(cx, true);
        }
        self.protocol.abort(cx, local, reason);
    }

    fn go_offline(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) {
        self.protocol.go_offline(cx, local);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        let epochs = match () {
            () if F::forget_age_of_tombstones() => u64::MAX,
            () if F::forget_snapshots_of_tombstones() => 2,
            () => u64::from(F::unlink_early()),
        };
        match self.protocol.unlink(tombstone.aged(epochs)) {
            UnlinkOutcome::Marked { .. } if F::forget_readers_of_tombstones() => UnlinkOutcome::Marked { time: 0 },
            outcome => outcome,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        self.protocol.is_absent(record)
    }

    fn older_versions(&self, record: Record<M>) -> u64 {
        self.protocol.older_versions(record)
    }
}
