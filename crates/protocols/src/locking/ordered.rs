//! Two-phase locking in one order for all transactions: waits can't form a cycle.
//!
//! **Idea.** A transaction declares the rows that it will touch before it begins. It then locks all
//! of them, each in the mode it needs, in an order that is the same for all transactions. So it may
//! wait for each lock, and there is no deadlock to avoid or to detect. This is the upper bound of
//! locking, for transactions that know their rows. One that knows only some of them locks the
//! others as it meets them.
//!
//! **Papers.** The classic remedy against deadlock: J. W. Havender: "Avoiding deadlock in
//! multitasking systems", IBM Systems Journal 1968. Measured in X. Yu et al.: "Staring into the
//! abyss", VLDB 2014, section 4.2 (lock thrashing), and as 2PL-wait in CCBench, VLDB 2020.
//!
//! | step | function |
//! | --- | --- |
//! | sort the declared rows by address, and lock them | `rows_to_lock`, at the begin |
//! | request a lock in the order; wait for it | `acquire`, `in_order` |
//! | request a lock out of the order; abort at a conflict | the same, not `in_order` |
//! | remember the end of the order | [`OrderedWorker`] |
//! | commit, and release all locks | [`TwoPhase`] |
//!
//! **Metadata.** One word a cell: [`crate::locking::word`].
//!
//! **Waits** end. A transaction waits for a cell only if its address is above those of all cells
//! that the transaction holds. So along a chain of waits the addresses rise, and the chain can't
//! close to a cycle. A row that was not declared, such as one that an insert meets, is waited for
//! by the same rule. A request below the greatest address aborts if it conflicts, and so does an
//! upgrade of a row that was read.
//!
//! **Aborts** may repeat. Two transactions may each hold what the other wants out of the order, and
//! both abort. Nothing but the pause before the next try keeps them apart (`retry.backoff`). Where
//! all rows are declared nothing is out of the order.
//!
//! **Groups of columns.** A declared row is locked as a whole. So commit-time updates and timestamp
//! splitting spare no conflict on it.
//!
//! **Departures from the papers.** The order is that of addresses, not of keys. Any order serves
//! that is the same for all transactions.

use std::marker::PhantomData;

use contend_engine::declaration::DeclaredRow;
use contend_engine::{Abort, AbortReason, Cell, Context, DeclarationNeeds, ProtocolInfo, options};
use contend_machine::{Machine, Spin};

use crate::fault::Sound;
use crate::faults;
use crate::locking::word::{self, ReaderWriterWord};
use crate::locking::{LockManager, LockMode, LockOutcome, LockingFaults, TwoPhase, info};
use crate::method::wait::LOCK_WAITS_MAX;

options! {
    /// There is nothing to choose.
    pub struct OrderedOptions {}
}

/// The protocol.
pub type Ordered<F = Sound> = TwoPhase<OrderedLocks<F>>;

/// The lock manager of ordered locking.
#[derive(Debug)]
pub struct OrderedLocks<F> {
    faults: PhantomData<fn() -> F>,
}

/// A worker's state: the greatest address of a cell that its transaction holds.
#[derive(Debug)]
pub struct OrderedWorker(u64);

impl<M: Machine, F: OrderedFaults> LockManager<M> for OrderedLocks<F> {
    const INFO: ProtocolInfo = ProtocolInfo {
        needs: DeclarationNeeds::Rows,
        ..info(
            "2pl-ordered",
            "two-phase locking: known rows are locked in one order before the transaction begins, and waited for",
            "Havender: Avoiding deadlock in multitasking systems, IBM Systems Journal 1968; Yu et al., VLDB 2014",
        )
    };
    type Options = OrderedOptions;
    type Faults = F;
    type WorkerState = OrderedWorker;
    type Handle = ();
    type Word = ReaderWriterWord<F>;

    fn new(_: OrderedOptions) -> Self {
        OrderedLocks { faults: PhantomData }
    }

    fn new_worker_state(&self, _: usize) -> OrderedWorker {
        OrderedWorker(0)
    }

    #[inline(always)]
    fn begin(&self, greatest: &mut OrderedWorker) {
        greatest.0 = 0;
    }

    fn rows_to_lock(cx: &mut Context<M>) -> &[DeclaredRow<M>] {
        if Self::sorts() { cx.declaration.sorted_rows() } else { cx.declaration.rows() }
    }

    fn adopt_placeholder(&self, greatest: &mut OrderedWorker, cell: Cell<M>) {
        greatest.0 = greatest.0.max(cell.address());
    }

    #[inline(always)]
    fn acquire(&self, greatest: &mut OrderedWorker, cell: Cell<M>, mode: LockMode) -> Result<LockOutcome<()>, Abort> {
        let in_order = Self::is_in_order(cell.address(), greatest.0);
        let mut spin = Spin::<M>::new();
        loop {
            match word::try_acquire::<M, F>(cell, mode) {
                Ok(outcome) => {
                    greatest.0 = greatest.0.max(cell.address());
                    return Ok(outcome);
                }
                Err(word::Conflict) if !in_order => return Err(Abort::new(mode.conflict())),
                Err(word::Conflict) if spin.count() > LOCK_WAITS_MAX => {
                    return Err(Abort::new(AbortReason::LockTimeout));
                }
                Err(word::Conflict) => spin.back_off(),
            }
        }
    }

    #[inline(always)]
    fn upgrade(&self, _: &mut OrderedWorker, cell: Cell<M>, (): ()) -> Result<(), Abort> {
        word::try_upgrade::<M, F>(cell).map_err(|word::Conflict| Abort::new(LockMode::Exclusive.conflict()))
    }

    #[inline(always)]
    fn release(&self, _: &mut OrderedWorker, cell: Cell<M>, mode: LockMode, (): ()) {
        word::release::<M, F>(cell, mode);
    }
}

faults! {
    /// The deliberate faults of ordered locking.
    pub trait OrderedFaults: LockingFaults {
        /// Rows are locked in the order in which they were declared, and each is waited for.
        lock_as_declared,
    }
    pub const FAULTS;
}

/// Where the algorithm asks for its faults.
impl<F: OrderedFaults> OrderedLocks<F> {
    /// Returns whether the transaction locks its declared rows in the order of addresses: always,
    /// without a fault.
    #[inline(always)]
    fn sorts() -> bool {
        !F::lock_as_declared()
    }

    /// Returns whether a cell comes after `greatest` in the order, so that the transaction may wait
    /// for it.
    #[inline(always)]
    fn is_in_order(address: u64, greatest: u64) -> bool {
        address > greatest || F::lock_as_declared()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use contend_engine::{
        AbortReason, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, TableSpec, Txn,
    };
    use contend_machine::{Native, Spin};

    use super::Ordered;

    #[test]
    fn waits_are_those_that_the_engine_was_told() {
        let new = |lock_backoff| {
            let mut config = EngineConfig::default();
            config.options.lock_backoff = lock_backoff;
            Engine::<Ordered, Native>::new(<Ordered as NamedProtocol<Native>>::new(Default::default()), config)
        };
        for lock_backoff in [false, true, false] {
            let engine = new(lock_backoff);
            let mut worker = engine.worker().expect("a free slot");
            let tx = worker.begin();
            let mut spin = Spin::<Native>::new();
            (0..40).for_each(|_| spin.back_off());
            assert_eq!(spin.count() > 40, lock_backoff);
            drop(tx);
        }
    }

    /// A row that is not declared is locked when it is touched: behind all that are held it is
    /// waited for, and before them it is not.
    #[test]
    fn rows_that_are_not_declared_are_waited_for_in_order_only() {
        let protocol = <Ordered as NamedProtocol<Native>>::new(Default::default());
        let engine = Engine::<Ordered, Native>::new(protocol, EngineConfig::default());
        let table = engine.create_table::<u64>(&TableSpec::of_bytes("rows", IndexKind::Hash, 8, 16));
        let mut loader = engine.loader().expect("a free slot");
        (0..2).for_each(|key| assert!(loader.insert(&table, key, |row| row[0] = key).expect("memory")));
        drop(loader);
        let [mut one, mut other] = [(); 2].map(|()| engine.worker().expect("a free slot"));
        let mut order = Vec::new();
        drop(one.begin_declared(|declaration| {
            (0..2).for_each(|key| declaration.row(&table, key, false));
            order.extend(declaration.sorted_rows().iter().map(|row| row.table_and_key().1[0]));
        }));
        let (low, high) = (order[0], order[1]);

        let mut holder = other.begin();
        holder.modify_row(&table, low, Groups::ALL).expect("free").expect("it is there")[0] += 10;
        let out_of_order = one.run(|tx| {
            tx.read_row(&table, high, Projection::WHOLE)?;
            tx.read_row(&table, low, Projection::WHOLE).map(drop)
        });
        assert_eq!(out_of_order.map_err(|abort| abort.reason), Err(AbortReason::ReadLocked));
        holder.commit().expect("nothing is in the way");

        let mut reader = other.begin();
        reader.read_row(&table, low, Projection::WHOLE).expect("free");
        let upgrade = one.run(|tx| {
            tx.read_row(&table, low, Projection::WHOLE)?;
            tx.modify_row(&table, low, Groups::ALL).map(drop)
        });
        assert_eq!(upgrade.map_err(|abort| abort.reason), Err(AbortReason::WriteLocked));
        drop(reader);

        let mut holder = other.begin();
        holder.modify_row(&table, high, Groups::ALL).expect("free").expect("it is there")[0] += 10;
        let holds_low = Barrier::new(2);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let mut is_first = true;
                loop {
                    let read = one.run(|tx| {
                        tx.read_row(&table, low, Projection::WHOLE)?;
                        if std::mem::take(&mut is_first) {
                            holds_low.wait();
                        }
                        Ok(tx.read_row(&table, high, Projection::WHOLE)?.expect("it is there")[0])
                    });
                    // On a busy machine the wait may be longer than any should be.
                    if !read.is_err_and(|abort| abort.reason == AbortReason::LockTimeout) {
                        break read;
                    }
                }
            });
            holds_low.wait();
            // Time for the other to come to the row.
            std::thread::sleep(std::time::Duration::from_millis(2));
            holder.commit().expect("the other waits for this one");
            assert_eq!(waiting.join().expect("no panic"), Ok(high + 10));
        });
    }

    #[test]
    fn declared_rows_are_found_in_whatever_order_they_are_touched() {
        let engine = Engine::<Ordered, Native>::new(
            <Ordered as NamedProtocol<Native>>::new(Default::default()),
            EngineConfig::default(),
        );
        let tables = ["one", "other"]
            .map(|name| engine.create_table::<u64>(&TableSpec::of_bytes(name, IndexKind::Ordered, 8, 16)));
        let mut loader = engine.loader().expect("a free slot");
        for (number, table) in (1..).zip(&tables) {
            for key in 0..8 {
                assert!(loader.insert(table, key, |row| row[0] = number * 100 + key).expect("memory"));
            }
        }
        drop(loader);
        let [one, other] = &tables;
        let mut worker = engine.worker().expect("a free slot");
        let mut values = Vec::new();
        // Twice: a declaration must end with its transaction.
        for _ in 0..2 {
            values.clear();
            let outcome = worker.run_declared(
                |declaration| {
                    for (table, key) in [(one, 1), (other, 1), (one, 2), (one, 3), (one, 3), (one, 99)] {
                        declaration.row(table, key, key == 3);
                    }
                },
                |tx| {
                    for (table, key) in [(one, 3), (other, 1), (one, 1), (one, 3), (other, 2), (one, 2), (one, 99)] {
                        values.push(tx.read_row(table, key, Projection::WHOLE)?.map(|row| row[0]));
                    }
                    tx.modify_row(one, 3, Groups::ALL)?.expect("it is there")[0] += 10;
                    assert!(tx.delete(one, 2)? && !tx.delete(one, 2)?);
                    tx.insert_row(one, 2)?.expect("it was deleted")[0] = 102;
                    Ok(())
                },
            );
            outcome.expect("no other transaction runs");
            let expected = [values[0], Some(201), Some(101), values[0], Some(202), Some(102), None];
            assert_eq!(values, expected);
        }
        assert_eq!(values[0], Some(113));
    }
}
