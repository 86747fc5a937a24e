//! Transaction chopping: the parts of a transaction commit one by one, each by another protocol.
//!
//! **Idea.** A static analysis of all types divides each transaction into parts. Whatever the
//! interleaving of the parts, as long as each part is serializable by itself, the transactions are
//! serializable (no SC-cycle: no circle of conflicts and of neighbours in a transaction). So each
//! part is a transaction of its own for an inner protocol, which validates it or releases its locks
//! when it ends.
//!
//! **Paper.** D. Shasha, F. Llirbat, E. Simon, P. Valduriez: "Transaction chopping: algorithms and
//! performance studies", ACM TODS 1995. As a baseline: Z. Wang, S. Mu, Y. Cui, H. Yi, H. Chen, J.
//! Li: "Scaling multicore databases via constrained parallel execution", SIGMOD 2016, section 6.
//!
//! | step of the paper | function |
//! | --- | --- |
//! | the SC-graph, the finest chopping | `contend_analysis::Chopping` |
//! | rollback-safe: a rollback stands before the first commit | `Division` (`chopping/division.rs`) |
//! | a part begins | `begin_piece` |
//! | a part commits | `end_piece`; the engine settles its writes |
//! | a part that has met a conflict is executed again until it commits | `undo_piece` |
//! | the inner protocol | `Inner` (`chopping/over.rs`) |
//!
//! **Promises** serializability of transactions whose types are declared. A transaction without a
//! declared type is one part, and so one transaction of the inner protocol. While a transaction
//! runs, others see what its parts have committed.
//!
//! **Why that is enough.** All pieces of a type that access contended units are one part (the
//! analysis proves it). Every other part reads what nobody changes, or adds to sums that nobody
//! reads. So the order in which the contended parts commit is an order of the transactions.
//!
//! **All or nothing.** Once a part that changes a row has committed, the transaction must commit,
//! too. So a part behind it is one piece, which runs again after every conflict, and which must not
//! cancel. The division joins the pieces for which that would not hold. An abort for a reason that
//! does not go away (no memory, a wrong declaration, a panic) leaves the committed parts: it ends a
//! run in any case.
//!
//! **Metadata**: that of the inner protocol.
//!
//! **Commit point** of a part: that of the inner protocol. A transaction has committed when its
//! last part has.
//!
//! **Waits** are the inner protocol's. Between two parts a transaction holds no lock. A part that
//! runs again waits for a moment first, the longer the more often.
//!
//! **Phantoms** are the inner protocol's matter: scans and inserts of one table are in contended
//! parts.
//!
//! **Departures from the paper.** Inserts into a table without readers conflict with each other,
//! other than in IC3, because two transactions may insert one key. Two parts of a transaction never
//! add to the same sum.
//!
//! **Limits.** After a crash between two parts nobody would execute the second. So there is no log.
//! A snapshot could lie between two parts, so there are none, and types that only read are divided
//! like all others. The inner protocol has its default options.
//!
//! **Defaults.** `chopping.over=silo`.

mod division;
mod over;

use std::marker::PhantomData;
use std::sync::Arc;

use contend_engine::in_force::{InForce, Known};
use contend_engine::{
    Abort, AbortReason, Cells, Change, Context, DeclarationNeeds, EngineOptions, Groups, Isolation, Leaf, LeafWords,
    Located, NamedProtocol, PieceBegin, PieceOutcome, Projection, Protocol, ProtocolInfo, Record, RecordOrigin,
    RecordState, Tombstone, UnlinkOutcome, WriteMode, options,
};
use contend_machine::{Machine, Spin};
use contend_model::pieces::{Piece, TypeSet};

use crate::fault::Sound;
use crate::faults;
use division::Division;
pub use over::Over;
use over::{Inner, InnerWorker};

options! {
    /// Options of transaction chopping.
    pub struct ChoppingOptions {
        /// The protocol by which the parts of a transaction commit, with its default options.
        "chopping.over" over: Over = Over::Silo, in ();
    }
}

/// The protocol.
#[derive(Debug)]
pub struct Chopping<M: Machine, F = Sound> {
    inner: Inner<M>,
    divisions: InForce<Division>,
    faults: PhantomData<fn() -> F>,
}

/// A worker's state.
#[derive(Debug)]
pub struct ChoppingWorker<M: Machine> {
    inner: InnerWorker<M>,
    known: Known<Division>,
    /// The transaction's type, if it has declared one and there is a division.
    of: Option<usize>,
    /// Whether a part is open: a transaction of the inner protocol runs.
    is_open: bool,
    /// The piece with which the open part ends.
    last: usize,
    /// Whether a part has committed, and whether one that has changed a row.
    has_committed: bool,
    has_changed: bool,
    /// The number of times that the open part has failed.
    retries: u32,
}

/// The longest wait of a part before it runs again, in turns of the spin.
const TURNS_MAX: u32 = 6;

impl<M: Machine, F: ChoppingFaults> Chopping<M, F> {
    /// Begins a part, which is a transaction of the inner protocol.
    #[inline(always)]
    fn open(&self, cx: &mut Context<M>, local: &mut ChoppingWorker<M>) -> Result<(), Abort> {
        local.is_open = true;
        self.inner.begin(cx, &mut local.inner)
    }
}

impl<M: Machine, F: ChoppingFaults> NamedProtocol<M> for Chopping<M, F> {
    const REFUSES_LOG: Option<&'static str> =
        Some("a crash between two parts of a transaction would leave the first without the second");
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "chopping",
        summary: "parts of a transaction commit one by one, by another protocol, where a static analysis allows it",
        paper: "Shasha, Llirbat, Simon, Valduriez: Transaction chopping: algorithms and performance studies, TODS 1995",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = ChoppingOptions;

    fn new(options: ChoppingOptions) -> Self {
        Chopping { inner: Inner::new(options.over), divisions: InForce::default(), faults: PhantomData }
    }
}

impl<M: Machine, F: ChoppingFaults> Protocol<M> for Chopping<M, F> {
    type WorkerState = ChoppingWorker<M>;

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn meta_words(&self) -> usize {
        self.inner.meta_words()
    }

    fn leaf_words(&self) -> LeafWords {
        self.inner.leaf_words()
    }

    fn prepare(&mut self, workers: usize, partitions: usize) {
        self.inner.prepare(workers, partitions);
    }

    fn wants_declarations(&self) -> bool {
        // A transaction's type is a part of its declaration.
        true
    }

    fn provides_write_counters(&self) -> bool {
        self.inner.provides_write_counters()
    }

    fn reorders_updates(&self) -> bool {
        // Two transactions that add to two sums may commit these parts in opposite orders.
        true
    }

    fn uses_pieces(&self) -> bool {
        true
    }

    fn declare(&self, types: &TypeSet, options: &EngineOptions) -> Result<u64, String> {
        let mut division = Division::new(types, options)?;
        if F::leave_sc_cycle() {
            division.break_up();
        }
        self.divisions.replace(Arc::new(division));
        Ok(0)
    }

    fn new_worker_state(&self, worker: usize) -> Self::WorkerState {
        ChoppingWorker {
            inner: self.inner.new_worker_state(worker),
            known: Known::default(),
            of: None,
            is_open: false,
            last: 0,
            has_committed: false,
            has_changed: false,
            retries: 0,
        }
    }

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        self.inner.init(cells, initial);
    }

    fn begin(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        self.divisions.refresh(&mut local.known);
        let types = local.known.value.as_ref().map_or(0, |division| division.type_count());
        local.of = cx.declaration.kind_of().filter(|of| *of < types);
        (local.is_open, local.has_committed, local.has_changed, local.retries) = (false, false, false, 0);
        if local.of.is_some() { Ok(()) } else { self.open(cx, local) }
    }

    fn begin_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceBegin, Abort> {
        let (Some(division), Some(of)) = (&local.known.value, local.of) else {
            return Ok(PieceBegin::Inside);
        };
        let last = division.last_of(of, piece.number());
        if local.is_open {
            // If the last pieces of the open part were not executed, the next part joins it.
            local.last = local.last.max(last);
            return Ok(PieceBegin::Inside);
        }
        local.last = last;
        self.open(cx, local)?;
        Ok(PieceBegin::Step)
    }

    fn end_piece(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        piece: Piece,
    ) -> Result<PieceOutcome, Abort> {
        if local.of.is_none() || piece.number() < local.last {
            return Ok(PieceOutcome::Open);
        }
        M::step("commit part");
        self.inner.commit(cx, &mut local.inner)?;
        (local.is_open, local.has_committed, local.retries) = (false, true, 0);
        local.has_changed |= !cx.writes.is_empty();
        Ok(PieceOutcome::Settled)
    }

    fn undo_piece(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) -> bool {
        if !local.has_committed {
            // Nothing has happened yet: the inner protocol's abort is that of the transaction.
            return false;
        }
        self.inner.abort(cx, &mut local.inner, reason);
        cx.nodes.clear();
        local.is_open = false;
        local.retries = local.retries.saturating_add(1);
        let mut spin = Spin::<M>::new();
        (0..local.retries.min(TURNS_MAX)).for_each(|_| spin.wait());
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
        self.inner.read(cx, &mut local.inner, at, columns)
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
        self.inner.write(cx, &mut local.inner, at, groups, mode)
    }

    fn placeholder_inserted(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        at: Located<'_, M>,
        change: &Change<M>,
    ) -> Result<(), Abort> {
        self.inner.placeholder_inserted(cx, &mut local.inner, at, change)
    }

    fn observe_leaf(
        &self,
        cx: &mut Context<M>,
        local: &mut Self::WorkerState,
        table: u32,
        leaf: Leaf<M>,
        version: u64,
    ) -> Result<(), Abort> {
        self.inner.observe_leaf(cx, &mut local.inner, table, leaf, version)
    }

    fn commit(&self, cx: &mut Context<M>, local: &mut Self::WorkerState) -> Result<(), Abort> {
        // A part is open if the transaction has no declared type, or if the last pieces of its
        // last part were not executed.
        if local.is_open {
            self.inner.commit(cx, &mut local.inner)?;
            local.is_open = false;
        }
        Ok(())
    }

    fn abort(&self, cx: &mut Context<M>, local: &mut Self::WorkerState, reason: AbortReason) {
        debug_assert!(!local.has_changed || !reason.is_conflict(), "what a part has committed can't be taken back");
        if local.is_open {
            self.inner.abort(cx, &mut local.inner, reason);
            local.is_open = false;
        }
    }

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        self.inner.unlink(tombstone)
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        self.inner.is_absent(record)
    }
}

faults! {
    /// The deliberate fault of transaction chopping.
    pub trait ChoppingFaults {
        /// Each piece commits by itself, also if that leaves an SC-cycle.
        leave_sc_cycle,
    }
    pub const FAULTS;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contend_engine::{
        Abort, AbortReason, AddToWord, Engine, EngineConfig, EngineOptions, Groups, IndexKind, NamedProtocol, RawTxn,
        RowUpdate, Table, TableSpec, Transaction, Txn, Worker,
    };
    use contend_machine::Native;
    use contend_model::pieces::{DeclaredPiece, Mode, Piece, TypeSet};

    use super::{Chopping, ChoppingOptions, Over};

    type Protocol = Chopping<Native>;
    type Running<'w> = Transaction<'w, Protocol, Native>;
    type Rows = Table<u64>;

    const FIRST: Piece = Piece::new(0, "first");
    const SECOND: Piece = Piece::new(1, "second");
    /// The types: sums, then rows; and rows alone.
    const BOTH: usize = 0;
    const ALONE: usize = 1;

    struct World {
        sums: Rows,
        rows: Rows,
        one: Worker<Protocol, Native>,
        other: Worker<Protocol, Native>,
    }

    fn world(over: Over) -> World {
        let protocol = <Protocol as NamedProtocol<Native>>::new(ChoppingOptions { over });
        let options = EngineOptions { commit_time_updates: true, ..EngineOptions::default() };
        let config = EngineConfig { options, history: true, ..EngineConfig::default() };
        let engine: Arc<Engine<Protocol, Native>> = Engine::new(protocol, config);
        let [sums, rows] =
            ["sums", "rows"].map(|name| engine.create_table(&TableSpec::of_bytes(name, IndexKind::Hash, 8, 16)));
        let mut loader = engine.loader().expect("a free slot");
        for table in [&sums, &rows] {
            assert!(loader.insert(table, 1, |row| row[0] = 0).expect("memory"));
        }
        drop(loader);
        let mut types = TypeSet { tables: engine.declared_tables(), ..TypeSet::default() };
        let add = DeclaredPiece::new("first").access(Mode::Update, 0, Groups::ALL).cancels();
        let change = |name| DeclaredPiece::new(name).access(Mode::Write, 1, Groups::ALL);
        types.add("both", [add, change("second")]);
        types.add("alone", [change("first")]);
        engine.declare(types).expect("valid");
        let [one, other] = [(); 2].map(|()| engine.worker().expect("a slot"));
        World { sums, rows, one, other }
    }

    fn add(tx: &mut Running<'_>, sums: &Rows) -> Result<bool, Abort> {
        let one = AddToWord { groups: Groups::ALL, word: 0, value: 1 };
        tx.update_row(sums, 1, RowUpdate::add_to_word(&one))
    }

    fn change(tx: &mut Running<'_>, rows: &Rows) -> Result<u64, Abort> {
        let row = tx.modify_row(rows, 1, Groups::ALL)?.expect("it is there");
        row[0] += 1;
        Ok(row[0])
    }

    #[test]
    fn a_part_behind_a_committed_one_runs_again_until_it_commits() {
        let World { sums, rows, mut one, mut other } = world(Over::Silo);
        let mut runs = [0; 2];
        let outcome = one.run_declared(
            |declaration| declaration.kind(BOTH),
            |tx| {
                tx.piece(FIRST, |tx| {
                    runs[0] += 1;
                    add(tx, &sums)
                })?;
                tx.piece(SECOND, |tx| {
                    runs[1] += 1;
                    let seen = change(tx, &rows)?;
                    if runs[1] <= 5 {
                        let alone = |tx: &mut Running<'_>| tx.piece(FIRST, |tx| change(tx, &rows));
                        other.run_declared(|declaration| declaration.kind(ALONE), alone).expect("nothing is locked");
                    }
                    Ok(seen)
                })
            },
        );
        assert_eq!((outcome, runs), (Ok(6), [1, 6]));
        assert_eq!((one.commits(), one.aborts().conflicts(), one.piece_retries()), (1, 0, Some(5)));
        assert_eq!((other.commits(), other.piece_retries()), (5, Some(0)));
        // The history has one transaction, with the operations of both parts.
        let history = one.take_history();
        assert_eq!(history.len(), 1);
        let tables: Vec<u32> = history[0].operations.iter().map(table_of).collect();
        assert_eq!(tables, [sums.number(), rows.number(), rows.number()]);
    }

    fn table_of(operation: &contend_engine::history::Operation) -> u32 {
        use contend_engine::history::Operation::{Read, Write};
        match operation {
            Read { part, .. } | Write { part, .. } => part.table,
            other => panic!("nothing else was done: {other:?}"),
        }
    }

    #[test]
    fn before_the_first_commit_a_transaction_aborts_as_a_whole() {
        for over in [Over::Silo, Over::WaitDie, Over::WoundWait, Over::Ordered] {
            let World { sums, mut one, .. } = world(over);
            let cancelled: Result<(), Abort> = one.run_declared(
                |declaration| declaration.kind(BOTH),
                |tx| {
                    tx.piece(FIRST, |tx| {
                        add(tx, &sums)?;
                        Err(tx.cancel())
                    })
                },
            );
            assert_eq!(cancelled.map_err(|abort| abort.reason), Err(AbortReason::User), "{over:?}");
            assert_eq!((one.take_undeclared(), one.take_history().len()), (None, 0));
        }
    }

    #[test]
    fn behind_a_committed_part_a_transaction_must_not_cancel() {
        for over in [Over::Silo, Over::WaitDie, Over::WoundWait, Over::Ordered] {
            let World { sums, mut one, .. } = world(over);
            let cancelled: Result<(), Abort> = one.run_declared(
                |declaration| declaration.kind(BOTH),
                |tx| {
                    tx.piece(FIRST, |tx| add(tx, &sums))?;
                    Err(tx.cancel())
                },
            );
            assert_eq!(cancelled.map_err(|abort| abort.reason), Err(AbortReason::Undeclared), "{over:?}");
            let told = one.take_undeclared().expect("a sentence");
            assert!(told.starts_with("both, piece first: cancels behind a part that has committed"), "{told}");
        }
    }

    #[test]
    fn without_a_type_a_transaction_is_one_of_the_inner_protocol() {
        for over in [Over::Silo, Over::WaitDie, Over::WoundWait, Over::Ordered] {
            let protocol = <Protocol as NamedProtocol<Native>>::new(ChoppingOptions { over });
            let engine = Engine::new(protocol, EngineConfig::default());
            let rows: Rows = engine.create_table(&TableSpec::of_bytes("rows", IndexKind::Hash, 8, 16));
            let mut loader = engine.loader().expect("a free slot");
            assert!(loader.insert(&rows, 1, |row| row[0] = 0).expect("memory"));
            drop(loader);
            let mut worker = engine.worker().expect("a slot");
            for expected in 1..4 {
                let changed = worker.run(|tx| tx.piece(FIRST, |tx| change(tx, &rows)));
                assert_eq!(changed, Ok(expected), "{over:?}");
                let cancelled = worker.run(|tx| {
                    tx.piece(FIRST, |tx| change(tx, &rows))?;
                    Err::<(), _>(tx.cancel())
                });
                assert_eq!(cancelled.map_err(|abort| abort.reason), Err(AbortReason::User), "{over:?}");
            }
        }
    }
}
