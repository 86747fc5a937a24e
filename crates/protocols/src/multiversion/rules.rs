//! From the rules of one multi-version protocol to the engine's `Protocol`: what all protocols of
//! the family do in the same way.

use contend_engine::{
    Abort, AbortReason, Cells, Change, Context, DeclarationNeeds, Groups, Leaf, Located, NamedProtocol, Options,
    Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode,
};
use contend_machine::Machine;

use super::WORDS;
use super::collect::{Collector, RetiredVersions};

/// What one multi-version protocol does at each step of a transaction; [`MultiVersion`] adds the
/// rest.
///
/// The methods without a comment of their own are those of `contend_engine::Protocol`.
#[expect(missing_docs, reason = "documented where they come from")]
#[expect(clippy::missing_errors_doc, reason = "documented where they come from")]
pub trait VersionRules<M: Machine>: Sized + Send + Sync + 'static {
    /// Name, paper and promise.
    const INFO: ProtocolInfo;
    /// The options with which a transaction can read a snapshot; `None` if there are no such
    /// options.
    const SNAPSHOTS: Option<&'static str> = None;
    /// The protocol's options.
    type Options: Options;
    /// A worker's own state.
    type WorkerState: Send + 'static;

    fn options_with_snapshots() -> Self::Options {
        Self::Options::default()
    }

    fn new(options: Self::Options) -> Self;

    /// Makes room for workers numbered below `workers`, in all but the collector. Called before any
    /// worker exists.
    fn prepare(&mut self, workers: usize) {
        let _ = workers;
    }

    fn wants_declarations(&self) -> bool {
        Self::INFO.needs != DeclarationNeeds::Nothing
    }

    fn reads_snapshots(&self) -> bool {
        false
    }

    fn sees_own_commits(&self, local: &mut Self::WorkerState) -> bool {
        let _ = local;
        true
    }

    fn reorders_updates(&self) -> bool {
        false
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState;

    /// Returns the collector of old versions.
    fn collector(&self) -> &Collector<M>;

    /// Returns the collector, to be replaced by one for more workers.
    fn collector_mut(&mut self) -> &mut Collector<M>;

    /// Returns the versions that a worker has replaced.
    fn retired(local: &mut Self::WorkerState) -> &mut RetiredVersions<M>;

    /// Called with the tombstone of a record that may leave its index.
    fn before_unlink(&self, tombstone: Tombstone<'_, M>) {
        let _ = tombstone;
    }

    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort>;

    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort>;

    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort>;

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort>;

    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        _: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort>;

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort>;

    fn abort(&self, local: &mut Self::WorkerState, reason: AbortReason);
}

/// A multi-version protocol with these rules.
#[derive(Debug)]
pub struct MultiVersion<R> {
    rules: R,
}

impl<M: Machine, R: VersionRules<M>> NamedProtocol<M> for MultiVersion<R> {
    const INFO: ProtocolInfo = R::INFO;
    const SNAPSHOTS: Option<&'static str> = R::SNAPSHOTS;
    type Options = R::Options;

    fn options_with_snapshots() -> Self::Options {
        R::options_with_snapshots()
    }

    fn new(options: Self::Options) -> Self {
        MultiVersion { rules: R::new(options) }
    }
}

impl<M: Machine, R: VersionRules<M>> Protocol<M> for MultiVersion<R> {
    type WorkerState = R::WorkerState;

    fn info(&self) -> ProtocolInfo {
        R::INFO
    }

    fn meta_words(&self) -> usize {
        WORDS
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.rules.prepare(workers);
        let collector = self.rules.collector_mut();
        *collector = collector.resized(workers);
    }

    fn wants_declarations(&self) -> bool {
        self.rules.wants_declarations()
    }

    fn reads_snapshots(&self) -> bool {
        self.rules.reads_snapshots()
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        self.rules.sees_own_commits(local)
    }

    fn reorders_updates(&self) -> bool {
        self.rules.reorders_updates()
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        self.rules.new_worker_state(worker)
    }

    fn init(&self, cells: Cells<M>, origin: RecordOrigin) {
        super::init(cells, origin);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.rules.begin(cx, local)
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        self.rules.read(cx, local, at, columns)
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        self.rules.write(cx, local, at, groups, mode)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        self.rules.placeholder_inserted(cx, local, at, change)
    }

    #[inline(always)]
    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        self.rules.observe_leaf(cx, local, table, leaf, version)
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.rules.commit(cx, local)
    }

    fn abort(&self, _: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        self.rules.abort(local, reason);
    }

    fn go_offline(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) {
        self.rules.collector().go_offline(cx, R::retired(local));
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        self.rules.before_unlink(tombstone);
        super::unlink(tombstone, self.rules.collector().snapshot_watermark())
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        crate::flags::is_absent(record)
    }

    fn older_versions(&self, record: Record<M>) -> u64 {
        self.rules.collector().old_versions(record)
    }
}
