//! IC3: each piece of a transaction takes effect by itself, in an order that the declarations of
//! all types of transactions give beforehand.
//!
//! **Idea.** The pieces of all types that access one contended unit get one *rank*, and the ranks
//! of a transaction grow (`contend_analysis`). A piece is validated and shown when it ends. From
//! then on its transaction stands in the list of accessors of each cell that the piece has touched.
//! A transaction that comes after it in a list depends on it. It lets its own piece of rank `k`
//! take effect only when each transaction that it depends on is *past* `k`. So all conflicts
//! between two transactions have one order, and transactions that conflict in their first pieces
//! run their later pieces in parallel, one behind the other.
//!
//! **Paper.** Z. Wang, S. Mu, Y. Cui, H. Yi, H. Chen, J. Li: "Scaling multicore databases via
//! constrained parallel execution", SIGMOD 2016 (TR2016-981).
//!
//! | step of the paper | function | what it does |
//! | --- | --- | --- |
//! | static analysis | `plan` | classes of units, steps, ranks |
//! | a piece runs by OCC | `read`, `write` | reads without locks, buffers writes |
//! | wait for the pieces of predecessors | `wait_for_steps` | the rank rule |
//! | a piece commits | `step::take_effect` | locks, validates, announces, joins the lists, shows |
//! | the transaction commits | `commit` | waits for predecessors, applies sums and appends |
//! | cascading abort | `undo` | restores what was there, dooms later accessors |
//!
//! **Promises** serializability. Suppose that transactions T1 -> T2 -> ... -> T1 depend on each
//! other in a circle, and let `k` be the highest rank of these dependencies, from X to T. When X
//! let its step of rank `k` take effect, each dependency on the way from T to X had a rank up to
//! `k`. So T was past `k` by then: by induction along the way, as each transaction there was past
//! `k` when its successor's step took effect, and what it depends on was before. But T's own step
//! of rank `k` comes after X's, and T's ranks grow. The same argument shows that no circle of waits
//! forms.
//!
//! **Without declarations** a transaction is one step of rank 1, and every unit is contended. Then
//! IC3 is an optimistic protocol. Only a transaction that cannot commit as a whole stands in lists.
//!
//! **Classes of units.** A *constant* is only read, so its reads leave no trace. A *sum* is only
//! changed by updates that commute: they are applied at the commit. Rows that are only inserted
//! (*append*) become visible at the commit. All other units are *contended*.
//!
//! **Metadata.** A cell has two words: a version above [`crate::flags`], as in the optimistic
//! family, and the address of its newest accessor. The version grows whenever a step shows a row,
//! and when that is taken back. A worker has a line with its transaction's progress. Both stand in
//! [`crate::accessors`].
//!
//! **Commit point**: the exchange that sets *commits* in the worker's progress, after all
//! predecessors have ended or are sure to commit. It fails if one of them has aborted and so doomed
//! the transaction.
//!
//! **Waits** are for transactions that this one depends on. They form no circle (above).
//!
//! **Phantoms.** A step validates the versions of the leaves that it has scanned or missed in. A
//! reader of a gap that has taken effect leaves the bit of its worker in the leaf's word. An insert
//! that changes the leaf later finds it, and depends on the reader (`gaps`). An insert before the
//! scan stands in the index, and the scan meets its record. A scan that passes a record without a
//! row joins no list (`passed`).
//!
//! **Without contention** a transaction runs as one step and commits as in Silo, if no running one
//! stands in its way (`whole`).
//!
//! **Settled reads** need no order. Each checks that the transaction that has inserted the row has
//! ended (`settled`).
//!
//! **Departures from the paper.** The paper's cases of partner pieces and rendezvous pieces are one
//! rule: past the rank (`ic3.rendezvous=off` is the paper's rule without rendezvous). A write
//! depends on all readers since the last writer; the paper's algorithm 1 keeps only the last
//! accessor. Inserts into tables without readers need no order (`ic3.append`). A cell's lock is a
//! bit, not a queue. Pieces that fail again and again take turns (`turns`). Transactions without
//! contention leave no trace in the lists (`ic3.whole=off` is the paper's way). A worker runs one
//! transaction at a time.
//!
//! **Defaults.** `ic3.constraint=optimistic`: a piece runs first and waits then, as in the paper.
//! `ic3.snapshots=needed`: the analysis says whether snapshots for types that only read pay
//! (`snapshot`).

mod constraint;
mod gaps;
mod keep;
mod late;
mod passed;
mod settled;
mod snapshot;
mod step;
mod turns;
mod undo;
mod wait;
mod whole;

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::in_force::{InForce, Known};
use contend_engine::sets::Write;
use contend_engine::{
    Abort, AbortReason, CellCopy, Cells, Change, Context, DeclarationNeeds, EngineOptions, Groups, Isolation, Leaf,
    LeafWords, Located, NamedProtocol, PieceBegin, PieceOutcome, Projection, Protocol, ProtocolInfo, Record,
    RecordOrigin, RecordState, Tombstone, UnlinkOutcome, WriteMode, options,
};
use contend_machine::{Machine, Spin};
use contend_model::pieces::{Piece, TypeSet};

use super::plan::{Place, Plan, Step, TableClasses};
use crate::accessors::{self, AccessFaults, META_WORDS, Member, Pool, Progress, Running, Shown, list_of, lock, unlock};
use crate::fault::Sound;
use crate::faults;
use crate::flags::{self, ABSENT};
use crate::optimistic::{Read, ReadsAndLocks};
use crate::snapshot::Snapshots;
pub use constraint::Constraint;
pub use keep::KeepSnapshots;
use snapshot::Kept;
use step::StepCell;
use turns::{OwnTurns, Turns};
use whole::Contention;

options! {
    /// IC3's options.
    pub struct Ic3Options {
        /// When a piece waits for the transactions that its own depends on: behind its accesses, or
        /// before them.
        "ic3.constraint" constraint: Constraint = Constraint::Optimistic, in ();
        /// Whether a piece may go on when a transaction that it depends on has passed its rank in a
        /// later piece. Otherwise it waits for the piece of the same rank or, without one, for the
        /// end.
        "ic3.rendezvous" rendezvous: bool = true, in ();
        /// Whether a transaction runs as one step, and commits without a trace in any list, while
        /// its type meets no contention.
        "ic3.whole" whole: bool = true, in ();
        /// Whether inserts into tables that are only appended to need no order.
        "ic3.append" append: bool = true, in ();
        /// Whether types that only read see snapshots: always, never, or where some other type has
        /// more ordered steps then, or fewer. Without snapshots their reads need an order like all
        /// others.
        "ic3.snapshots" snapshots: KeepSnapshots = KeepSnapshots::Needed, in ();
        /// The number of epochs from one snapshot to the next.
        "ic3.snapshot_epochs" snapshot_epochs: u32 = 1, in 1..=1000;
        /// The number of times that a piece has failed when it begins to take turns with others.
        "ic3.turn_after" turn_after: u32 = 4, in 1..=1_000_000;
        /// The number of times that a piece runs again after a conflict, before its transaction
        /// aborts.
        "ic3.retries" retries: u32 = 1000, in 0..=1_000_000;
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Ic3<M: Machine, F = Sound> {
    options: Ic3Options,
    progress: Progress<M>,
    pool: Pool<M>,
    plans: InForce<Plan>,
    turns: Turns<M>,
    faults: PhantomData<fn() -> F>,
}

/// A cell that shows a row which is not committed yet.
#[derive(Debug)]
struct Exposed<M: Machine> {
    shown: Shown<M>,
    /// The copy of the former contents for readers of snapshots, which is linked; and one that the
    /// commit may link.
    copy: Option<CellCopy<M>>,
    late_copy: Option<CellCopy<M>>,
}

/// A worker's state.
#[derive(Debug)]
pub struct Ic3Worker<M: Machine> {
    member: Member<M>,
    known: Known<Plan>,
    /// The transaction's type, if it has declared one and there is a plan.
    of: Option<usize>,
    /// Whether the transaction is to commit as a whole, and what the worker knows for that.
    runs_whole: bool,
    contention: Contention,
    /// Whether an accessor stood in the list of a cell when the transaction read it.
    meets_accessors: bool,
    /// The step that has begun and has not taken effect. A transaction without a type is one step,
    /// and so is one that runs as a whole.
    step: Option<Step>,
    /// The number of the running piece, or of the last one, and where its classes are.
    piece: usize,
    place: Place,
    /// The reads of the step, and the locks by which it takes effect.
    reads: ReadsAndLocks<M>,
    /// The records without a row that scans of the step have passed, and the workers that have
    /// deleted the rows.
    passed: Vec<Read<M>>,
    passed_of: Vec<usize>,
    /// The position of the step's first write.
    first_write: usize,
    /// The reads of placeholders of appended rows, which the commit validates, and its locks.
    late: ReadsAndLocks<M>,
    exposed: Vec<Exposed<M>>,
    /// The former contents of the exposed cells, word by word.
    saved: Vec<u64>,
    cells: Vec<StepCell<M>>,
    /// The positions of the writes that wait for the commit. Kept for its memory.
    late_writes: Vec<usize>,
    /// The leaves in whose words the worker's bit stands, and the tables that it has scanned.
    observed: Vec<Leaf<M>>,
    scans: u64,
    /// The transactions that may have read gaps which inserts of the step have filled.
    gap_readers: Vec<Running>,
    /// The number of times that the running piece has failed.
    retries: u32,
    turns: OwnTurns,
    /// The number of reads in `late` at the beginning of the step.
    late_reads: usize,
    /// The number of settled rows that were missed since the last commit.
    settled_misses: u32,
    /// The snapshots for which the transaction keeps what it replaces, if there are any.
    kept: Option<Snapshots>,
    /// The epoch whose end the transaction sees, if it sees a snapshot.
    snapshot: Option<u64>,
    /// The transaction that must leave its lists before the step can take effect.
    awaited: Option<Running>,
    /// The epoch of the worker's last commit, or of the commit that is under way.
    epoch: u64,
}

impl<M: Machine> Ic3Worker<M> {
    /// Returns the classes of a table's units.
    #[inline(always)]
    fn classes(&self, table: u32) -> TableClasses {
        let plan = self.known.value.as_ref();
        plan.map_or(TableClasses::CONTENDED, |plan| plan.classes(self.place, table))
    }

    /// Fails if the transaction sees a snapshot, and so must not write.
    fn refuse_write(&self) -> Result<(), Abort> {
        match self.snapshot {
            Some(_) => Err(Abort::new(AbortReason::Unsupported)),
            None => Ok(()),
        }
    }

    /// Returns whether a write waits for the commit: it is a sum, or appends.
    fn is_late(&self, write: &Write<M>) -> bool {
        let classes = self.classes(write.table().id());
        classes.is_appended || !classes.contended.meets(write.groups())
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Takes a committed transaction out of all lists, and commits what its cells show.
    fn leave_lists(&self, cx: &mut Context<M>, local: &mut Ic3Worker<M>) {
        M::step("leave lists");
        // Both lists are in the order in which the cells were shown.
        let mut exposed = local.exposed.iter().peekable();
        for (cell, accessor) in local.member.listed.drain(..) {
            let shown = exposed.next_if(|exposed| exposed.shown.cell.address() == cell.address());
            let word = shown.map_or_else(|| lock(cell), |shown| self.lock_behind_older(shown));
            if let Some(shown) = shown {
                Self::commit_shown(cx, shown, (local.kept, &local.saved), local.epoch);
            }
            list_of(cell).remove(&accessor);
            if shown.is_some() {
                Self::note_uncommitted(local.kept, cell);
            }
            unlock(cell, word);
        }
    }

    /// Ends the transaction, which has left all lists.
    fn end(&self, local: &mut Ic3Worker<M>) {
        if !local.observed.is_empty() || local.scans != 0 {
            self.forget_gaps(local);
        }
        local.exposed.clear();
        local.saved.clear();
        local.member.end(&self.progress);
    }
}

impl<M: Machine, F: Ic3Faults> NamedProtocol<M> for Ic3<M, F> {
    const SHOWS_UNCOMMITTED: bool = true;
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "ic3",
        summary: "pieces take effect one by one, in an order that a static analysis of all transactions gives",
        paper: "Wang, Mu, Cui, Yi, Chen, Li: Scaling multicore databases via constrained parallel execution, SIGMOD 2016",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    const SNAPSHOTS: Option<&'static str> = Some("ic3.snapshots=on");
    type Options = Ic3Options;

    fn options_with_snapshots() -> Ic3Options {
        Ic3Options { snapshots: KeepSnapshots::On, ..Ic3Options::default() }
    }

    fn new(options: Ic3Options) -> Self {
        Ic3 {
            options,
            progress: Progress::new(0),
            pool: Pool::default(),
            plans: InForce::default(),
            turns: Turns::new(),
            faults: PhantomData,
        }
    }
}

impl<M: Machine, F: Ic3Faults> Protocol<M> for Ic3<M, F> {
    type WorkerState = Ic3Worker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        if self.options.snapshots == KeepSnapshots::Off { META_WORDS } else { META_WORDS + 2 }
    }

    fn leaf_words(&self) -> LeafWords {
        if F::larger_word_of_leaves() { LeafWords::Times } else { LeafWords::Masks }
    }

    fn prepare(&mut self, workers: usize, _: usize) {
        self.progress = Progress::new(workers);
    }

    fn wants_declarations(&self) -> bool {
        true
    }

    fn reorders_updates(&self) -> bool {
        true
    }

    fn uses_pieces(&self) -> bool {
        true
    }

    fn reads_snapshots(&self) -> bool {
        self.options.snapshots == KeepSnapshots::On
    }

    fn is_doomed(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        local.snapshot.is_none() && self.progress.is_doomed(local.member.own)
    }

    fn sees_own_commits(&self, _: &mut Context<M>, local: &mut Self::WorkerState) -> bool {
        local.snapshot.is_some_and(|snapshot| local.epoch <= snapshot)
    }

    fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String> {
        let mut options = options.clone();
        options.timestamp_splitting |= F::coarse_cells();
        let mut plan = self.plan(types, &options)?;
        if F::skip_merge() {
            plan.break_by_positions();
        }
        if F::forget_second_instance() {
            plan.break_by_single_types(types);
        }
        if F::sum_that_is_read() {
            plan.break_by_readers(types);
        }
        if F::show_inserts_late() {
            plan.break_by_inserts(types);
        }
        // What transactions of before have replaced may not be kept. So the first snapshot is at
        // the end of the running epoch, or later.
        let begins = plan.keeps_snapshots && self.kept(self.plans.get().as_deref()).is_none();
        let epochs = if begins { u64::from(self.options.snapshot_epochs) + 1 } else { 0 };
        self.plans.replace(Arc::new(plan));
        Ok(epochs)
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        Ic3Worker {
            member: Member::new(worker, &self.progress, &self.pool),
            known: Known::default(),
            of: None,
            runs_whole: false,
            contention: Contention::default(),
            meets_accessors: false,
            step: None,
            piece: 0,
            place: Place::OF_NONE,
            reads: ReadsAndLocks::default(),
            passed: Vec::with_capacity(64),
            passed_of: Vec::with_capacity(16),
            first_write: 0,
            late: ReadsAndLocks::default(),
            exposed: Vec::with_capacity(64),
            saved: Vec::new(),
            cells: Vec::with_capacity(64),
            late_writes: Vec::with_capacity(64),
            observed: Vec::with_capacity(16),
            scans: 0,
            gap_readers: Vec::with_capacity(16),
            retries: 0,
            turns: OwnTurns::default(),
            late_reads: 0,
            settled_misses: 0,
            kept: None,
            snapshot: None,
            awaited: None,
            epoch: 0,
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        if self.options.snapshots != KeepSnapshots::Off {
            cells.clone().for_each(Kept::init);
        }
        accessors::init(cells, initial);
    }

    #[inline(always)]
    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.plans.refresh(&mut local.known);
        let types = local.known.value.as_ref().map_or(0, |plan| plan.type_count());
        local.of = cx.declaration.kind_of().filter(|of| *of < types);
        local.place = Place::OF_NONE;
        let reads_only = cx.declaration.is_read_only();
        let plan = local.known.value.as_deref();
        let is_declared = local.of.zip(plan).is_some_and(|(of, plan)| plan.is_on_snapshot(of));
        let sees_snapshot = is_declared || reads_only && self.reads_snapshots();
        local.kept = self.kept(plan);
        local.snapshot = local.kept.filter(|_| sees_snapshot).map(|all| all.seen_from(Self::began_in(cx)));
        local.step = None;
        if local.snapshot.is_some() {
            return Ok(());
        }
        local.runs_whole = self.options.whole && local.of.is_none_or(|of| local.contention.begin(of));
        local.awaited = None;
        local.meets_accessors = false;
        local.member.begin(&self.progress, local.of.map_or(Running::NO_KIND, |of| of as u32));
        local.reads.clear();
        local.passed.clear();
        local.late.clear();
        local.gap_readers.clear();
        local.first_write = 0;
        local.retries = 0;
        Ok(())
    }

    fn begin_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceBegin, Abort> {
        let (Some(plan), Some(of), None) = (&local.known.value, local.of, local.snapshot) else {
            return Ok(PieceBegin::Inside);
        };
        let step = plan.step(of, piece.number());
        (local.piece, local.place) = (piece.number(), plan.place(of, piece.number()));
        if local.runs_whole {
            let is_first = local.step.is_none();
            local.late_reads = if is_first { local.late.entries.len() } else { local.late_reads };
            local.step = Some(step);
            return Ok(if is_first { PieceBegin::Step } else { PieceBegin::Inside });
        }
        match local.step {
            Some(open) if open == step => return Ok(PieceBegin::Inside),
            // The last piece of the open step was not executed.
            Some(open) => self.take_effect(cx, local, open.rank)?,
            None => {}
        }
        local.step = Some(step);
        local.late_reads = local.late.entries.len();
        if self.options.constraint == Constraint::Early && step.rank > 0 {
            self.wait_for_steps(local, step.rank)?;
        }
        if step.rank > 0 {
            self.take_turn(local, step.rank)?;
        }
        Ok(PieceBegin::Step)
    }

    fn end_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceOutcome, Abort> {
        let Some(step) = local.step.filter(|_| !local.runs_whole) else { return Ok(PieceOutcome::Open) };
        if piece.number() == step.last {
            self.take_effect(cx, local, step.rank)?;
            local.step = None;
        } else {
            local.seal_sums(cx);
        }
        Ok(PieceOutcome::Open)
    }

    fn undo_piece(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) -> bool {
        self.give_turn(local);
        let is_last = local.retries >= self.options.retries;
        if is_last || reason == AbortReason::Cascaded || self.progress.is_doomed(local.member.own) {
            return false;
        }
        local.reads.unlock_all();
        Self::free_copies(cx, local);
        if !self.wait_for_awaited(local) {
            local.retries += 1;
        }
        if local.retries >= self.options.turn_after && local.step.is_some() {
            local.want_turn();
        }
        local.reads.clear();
        local.passed.clear();
        local.late.entries.truncate(local.late_reads);
        local.gap_readers.clear();
        local.step = None;
        cx.nodes.clear();
        // The longer a piece has failed, the longer it leaves the cells to others.
        let mut spin = Spin::<M>::new();
        (0..local.retries.min(6)).for_each(|_| spin.wait());
        true
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        if let Some(snapshot) = local.snapshot {
            return Ok(Kept::read::<M, F>(cx, at, columns, snapshot));
        }
        let classes = local.classes(at.table.id());
        let contended = columns.groups().common(classes.contended);
        if !classes.settled.is_empty() && classes.settled.contains(columns.groups()) {
            return self.read_settled(cx, local, at, columns);
        }
        if contended.is_empty() {
            return self.read_untracked(cx, local, at, columns, classes);
        }
        if F::whole_looks_first() {
            Self::note_accessors(local, at, contended);
        }
        let found = local.reads.observe_within(cx, at, columns, contended, |_| true)?;
        if !F::whole_looks_first() {
            Self::note_accessors(local, at, contended);
        }
        Ok(found)
    }

    #[inline(always)]
    fn read_entry(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        let classes = local.classes(at.table.id());
        let contended = columns.groups().common(classes.contended);
        if local.snapshot.is_some() || contended.is_empty() || !classes.settled.is_empty() {
            return self.read(cx, local, at, columns);
        }
        Self::read_passing(cx, local, at, columns, contended)
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
        local.refuse_write()?;
        let classes = local.classes(at.table.id());
        let reads = if classes.is_appended { &mut local.late } else { &mut local.reads };
        let first = reads.entries.len();
        let found = reads.prepare_write(cx, at, groups, mode, false, |_| true)?;
        if reads.entries.len() > first {
            Self::note_accessors(local, at, groups);
        }
        Ok(found)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        local.refuse_write()?;
        if local.classes(at.table.id()).is_appended {
            return local.late.observe_placeholder(at, ABSENT);
        }
        self.note_change(local, at.table.id(), change);
        local.reads.observe_placeholder(at, ABSENT)?;
        cx.nodes.follow(change)
    }

    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        // A key that a snapshot lacks will not come into it.
        if local.snapshot.is_some() {
            return Ok(());
        }
        let classes = local.classes(table);
        if classes.is_settled {
            return self.miss_settled_leaf(cx, local);
        }
        if !classes.contended.is_empty() {
            self.note_gap(local, table, leaf);
            cx.nodes.add(leaf, version);
        }
        Ok(())
    }

    fn absent_found(&self, local: &mut Self::WorkerState, table: u32, leaf: Leaf<M>, version: u64) {
        if !local.classes(table).is_appended {
            self.note_placeholder(local, table, leaf, version);
        }
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        if local.snapshot.is_some() {
            return Ok(());
        }
        if local.runs_whole {
            let has_committed = self.commit_whole(cx, local)?;
            if let Some(of) = local.of.filter(|_| has_committed) {
                local.contention.end(of, true);
            }
            if has_committed {
                return Ok(());
            }
            if local.of.is_some() {
                return Err(Abort::new(AbortReason::WriteLocked));
            }
        }
        match (local.of, local.step) {
            // The last pieces of a step were not executed.
            (Some(_), Some(step)) => self.take_effect(cx, local, step.rank)?,
            (Some(_), None) => {}
            (None, _) => self.take_effect(cx, local, 1)?,
        }
        local.member.wait_for_commits::<F>(&self.progress, None)?;
        self.commit_late(cx, local)?;
        if !local.exposed.is_empty() {
            // Before any transaction can commit that has seen the exposed rows.
            cx.writes.will_commit();
        }
        // Leaving the lists takes long. The successors need not wait for it.
        self.progress.decide(local.member.own);
        self.leave_lists(cx, local);
        local.settled_misses = 0;
        self.end(local);
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        if local.snapshot.is_some() {
            return;
        }
        if let Some(of) = local.of.filter(|_| local.runs_whole && reason.is_conflict()) {
            local.contention.end(of, false);
        }
        self.give_turn(local);
        local.reads.unlock_all();
        local.late.unlock_all();
        if F::doom_after_end() {
            self.progress.end(local.member.own);
        }
        self.undo(cx, local);
        // Behind those that `undo` gives back, which were made later.
        Self::free_copies(cx, local);
        self.end(local);
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        // A snapshot may show the row that was there. Where none are kept the epoch is an old one.
        let has_words = self.options.snapshots != KeepSnapshots::Off;
        let snapshots = Snapshots::every(self.options.snapshot_epochs);
        accessors::unlink::<M, F>(tombstone, |cell| {
            has_words && !snapshots.let_unlink(Kept::epoch(cell), tombstone.oldest())
        })
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::is_absent(record)
    }
}

faults! {
    /// The deliberate faults of IC3.
    pub trait Ic3Faults: AccessFaults {
        /// A step does not wait for the steps of the transactions that its own depends on.
        forget_piece_wait,
        /// A transaction that has read a cell leaves no trace there.
        forget_reads,
        /// An insert does not look for scans that have passed its record.
        forget_passers,
        /// A scan that passes a tombstone does not depend on the transaction that deleted the row.
        pass_blindly,
        /// A transaction that aborts does not doom those that have passed its tombstones.
        spare_passers,
        /// A step is announced before its cells are locked.
        announce_before_locking,
        /// A step takes effect although what it has read has changed.
        skip_piece_validation,
        /// A reader of a gap leaves no trace in the leaf.
        forget_gap_readers,
        /// An insert into the placeholder of another does not look for readers of the gap.
        trust_placeholders,
        /// An insert does not wait for a reader of its gap that is validating.
        ignore_validating,
        /// The analysis merges no pieces: each has the rank of its position.
        skip_merge,
        /// A unit that one type only accesses is no contended one.
        forget_second_instance,
        /// A step copies what a cell holds for snapshots, also if that is not committed.
        copy_uncommitted,
        /// A snapshot shows what a cell holds, also if that is not committed.
        show_uncommitted,
        /// A step writes over an uncommitted version of a transaction that began in an earlier
        /// epoch.
        forget_earlier_epochs,
        /// A snapshot is at the end of the epoch in which its reader begins: others still commit in
        /// it.
        snapshot_of_running_epoch,
        /// A reader of a snapshot follows the copies of a cell without a second look at the cell's
        /// word.
        trust_chains,
        /// A step of several pieces shows the sums that stand beside contended columns of the same
        /// row, and other types take them for sums.
        show_sums,
        /// The analysis takes each group of columns for a unit, though a row has one cell.
        coarse_cells,
        /// The classes of units ignore their readers: what is only added to is a sum, although it
        /// is read.
        sum_that_is_read,
        /// Rows that are inserted are shown at the commit, although other types read them.
        show_inserts_late,
        /// A settled read does not look for a running transaction that has written the row.
        trust_settled,
        /// A transaction that commits as a whole does not look whether a row that it has read is
        /// committed.
        whole_reads_uncommitted,
        /// A transaction looks at the list of a cell before it reads the row, and not after it.
        whole_looks_first,
        /// A transaction that commits as a whole overwrites what running ones have accessed.
        whole_forgets_accessors,
        /// A transaction that commits as a whole does not look for running readers of the gaps that
        /// it has filled, nor for those whose tombstones it has passed.
        whole_forgets_gap_readers,
        /// The index keeps the larger of two leaves' words when it merges them, and not the bits of
        /// both.
        larger_word_of_leaves,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults. Without a fault each is true.
impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Whether a step waits for the steps of predecessors.
    #[inline(always)]
    fn waits_for_steps() -> bool {
        !F::forget_piece_wait()
    }

    /// Returns the epoch in which the transaction began; a fault adds two.
    #[inline(always)]
    fn began_in(cx: &Context<M>) -> u64 {
        cx.began_in() + if F::snapshot_of_running_epoch() { 2 } else { 0 }
    }
}
