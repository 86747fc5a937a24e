//! A whole concurrency-control protocol in some eighty lines: one lock for all transactions.
//!
//! A transaction acquires the lock when it begins and releases it when it ends, so transactions run
//! one after the other, and every history is serial. It is not in the registry; `main` runs it on
//! an engine.
//!
//! `cargo run -p contend-protocols --example toy_protocol`, and `cargo test` runs it as well.

use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Engine, EngineConfig, Groups, IndexKind,
    Isolation, Leaf, Located, NamedProtocol, Projection, Protocol, ProtocolInfo, RawTxn, Record, RecordOrigin,
    RecordState, TableSpec, Tombstone, UnlinkOutcome, WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Native, Ordering, Spin};
use contend_protocols::flags;

options! {
    /// There is nothing to choose.
    pub struct OneLockOptions {}
}

/// The result of an access.
type Found = Result<RecordState, Abort>;
/// The result of a step that has none.
type Done = Result<(), Abort>;

/// The protocol: a word that is 1 while a transaction runs.
struct OneLock<M: Machine>(M::U64);

impl<M: Machine> OneLock<M> {
    fn try_lock(&self) -> bool {
        // Acquire: pairs with the Release of `unlock`. The rows and flags are as the last
        // transaction left them, so Relaxed is enough for all other accesses in this file.
        self.0.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn unlock(&self) {
        // Release: pairs with the Acquire of `try_lock`.
        self.0.store(0, Ordering::Release);
    }

    /// Clears and sets flags of a cell, and returns the flags before: they tell whether there is a
    /// row, and whether the record has left the index.
    fn change(cell: Cell<M>, clear: u64, set: u64) -> u64 {
        let before = cell.word().load(Ordering::Relaxed);
        cell.word().store(before & !clear | set, Ordering::Relaxed);
        before
    }
}

impl<M: Machine> NamedProtocol<M> for OneLock<M> {
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "one-lock",
        summary: "one lock for all transactions",
        paper: "none",
        isolation: Isolation::Serializable,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = OneLockOptions;

    fn new(_: OneLockOptions) -> Self {
        OneLock(M::U64::new(0))
    }
}

impl<M: Machine> Protocol<M> for OneLock<M> {
    type WorkerState = ();

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn new_worker_state(&self, _: usize) {}

    fn init(&self, cells: Cells<M>, origin: RecordOrigin) {
        flags::initial(cells, origin, |cell, flags, _| cell.word().store(flags, Ordering::Relaxed));
    }

    fn begin(&self, _: &mut Context<M>, (): &mut ()) -> Done {
        let mut spin = Spin::<M>::new();
        while !self.try_lock() {
            spin.wait();
        }
        Ok(())
    }

    fn read(&self, cx: &mut Context<M>, (): &mut (), at: Located<M>, columns: Projection) -> Found {
        cx.copy_row(at, columns);
        Ok(flags::found(at.record.word().load(Ordering::Relaxed)))
    }

    fn write(&self, cx: &mut Context<M>, local: &mut (), at: Located<M>, groups: Groups, _: WriteMode) -> Found {
        // Some modes need no copy of the row, but it does them no harm.
        self.read(cx, local, at, Projection::of_groups(groups))
    }

    fn placeholder_inserted(&self, _: &mut Context<M>, (): &mut (), _: Located<M>, _: &Change<M>) -> Done {
        Ok(())
    }

    fn observe_leaf(&self, _: &mut Context<M>, (): &mut (), _: u32, _: Leaf<M>, _: u64) -> Done {
        // No other transaction inserts while this one runs: there are no phantoms.
        Ok(())
    }

    fn commit(&self, cx: &mut Context<M>, (): &mut ()) -> Done {
        cx.writes.apply_updates();
        for position in 0..cx.writes.len() {
            flags::install_held(cx, position, Self::change);
        }
        self.unlock();
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, (): &mut (), _: AbortReason) {
        self.unlock();
    }

    fn unlink(&self, tombstone: Tombstone<M>) -> UnlinkOutcome {
        // The engine collects tombstones outside of transactions.
        if !self.try_lock() {
            return UnlinkOutcome::Busy;
        }
        let outcome = flags::unlink_held(
            tombstone,
            |cell| Some(cell.word().load(Ordering::Relaxed)),
            |cell, clear, set| _ = Self::change(cell, clear, set),
        );
        self.unlock();
        outcome
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        flags::found(record.word().load(Ordering::Relaxed)) == RecordState::Absent
    }
}

/// Four threads move money between eight accounts; the sum stays.
fn main() {
    let engine = Engine::<OneLock<Native>, Native>::new(OneLock::new(Default::default()), EngineConfig::default());
    let accounts = engine.create_table::<u64>(&TableSpec::of_bytes("accounts", IndexKind::Hash, 8, 64));
    let mut loader = engine.loader().expect("a free slot");
    for key in 0..8 {
        assert!(loader.insert(&accounts, key, |row| row[0] = 1_000).expect("memory"));
    }
    drop(loader);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (engine, accounts) = (&engine, &accounts);
            scope.spawn(move || {
                let mut worker = engine.worker().expect("a free slot");
                for number in 0..1_000 {
                    let (from, to) = ((thread + number) % 8, (thread + number * 3 + 1) % 8);
                    let moved = worker.run(|txn| {
                        txn.modify_row(accounts, from, Groups::ALL)?.expect("an account")[0] -= 1;
                        txn.modify_row(accounts, to, Groups::ALL)?.expect("an account")[0] += 1;
                        Ok(())
                    });
                    moved.expect("a transaction that runs alone");
                }
            });
        }
    });
    let mut worker = engine.worker().expect("a free slot");
    let sum = worker.run(|txn| {
        let mut sum = 0;
        for key in 0..8 {
            sum += txn.read_row(&accounts, key, Projection::WHOLE)?.expect("an account")[0];
        }
        Ok(sum)
    });
    assert_eq!(sum.expect("a transaction that runs alone"), 8_000);
    println!("4000 transfers, one after the other, and no money is lost");
}

#[test]
fn no_money_is_lost() {
    main();
}
