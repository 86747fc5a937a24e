//! Two-phase locking in one order for all: who asks in order waits, and nobody waits in a circle.
//!
//! **Idea.** A transaction says before it begins which rows it will touch, and locks them all, each as it will be needed, in an order that
//! is the same for all transactions. So it may wait for each, and there is no deadlock to avoid or to find: the upper bound of what
//! locking can do, for those that know their rows.
//!
//! **Papers.** The classic remedy against deadlock (J. W. Havender: "Avoiding deadlock in multitasking systems", IBM Systems Journal 1968);
//! measured in X. Yu et al.: "Staring into the abyss", VLDB 2014, section 4.2 (lock thrashing), and as 2PL-wait in CCBench, VLDB 2020.
//!
//! **Metadata.** One word a cell: [`crate::locking::word`].
//!
//! **Waits** end: a lock is waited for only if its address is above those of all that are held, so there is no cycle of waits. What was not
//! declared, such as a row that an insert meets, is waited for by the same rule, and else aborts if it can't be had at once; so does
//! a lock that turns out to be needed exclusively where it was declared as read.
//!
//! **Departures from the papers.** The order is that of addresses, not of keys. Any order will do that is the same for all.

use std::marker::PhantomData;

use contend_engine::{Abort, AbortReason, Cell, Info, Needs, options};
use contend_machine::{Machine, Spin};

use crate::fault::{Faults, Sound};
use crate::locking::{Asked, Held, Locks, TwoPhase, info, word};

options! {
    /// There is nothing to choose.
    pub struct OrderedOptions {}
}

/// The protocol.
pub type Ordered<F = Sound> = TwoPhase<OrderedLocks<F>>;

/// How often a wait is prolonged before it is given up: some milliseconds at least, and much longer where others have work to do.
const WAITS_MAX: u32 = 20_000;

/// Its locks.
#[derive(Debug)]
pub struct OrderedLocks<F> {
    faults: PhantomData<fn() -> F>,
}

/// A worker's state: the greatest address of what its transaction holds.
#[derive(Debug)]
pub struct OrderedLocal(u64);

impl<M: Machine, F: Faults> Locks<M> for OrderedLocks<F> {
    const INFO: Info = Info {
        needs: Needs::Rows,
        ..info(
            "2pl-ordered",
            "two-phase locking: all locks are taken in one order before the transaction begins, and waited for",
            "Havender: Avoiding deadlock in multitasking systems, IBM Systems Journal 1968; Yu et al., VLDB 2014",
        )
    };
    const META_WORDS: usize = 1;
    type Options = OrderedOptions;
    type Faults = F;
    type Local = OrderedLocal;
    type Handle = ();

    fn new(_: OrderedOptions) -> Self {
        OrderedLocks { faults: PhantomData }
    }

    fn local(&self, _: usize) -> OrderedLocal {
        OrderedLocal(0)
    }

    fn init(cell: Cell<M>, flags: u64, held: bool) {
        word::init(cell, flags, held);
    }

    #[inline(always)]
    fn begin(&self, greatest: &mut OrderedLocal) {
        greatest.0 = 0;
    }

    fn adopt(&self, greatest: &mut OrderedLocal, cell: Cell<M>) {
        greatest.0 = greatest.0.max(cell.address());
    }

    #[inline(always)]
    fn lock(&self, greatest: &mut OrderedLocal, cell: Cell<M>, held: Held) -> Result<Asked<()>, Abort> {
        let in_order = cell.address() > greatest.0 || F::LOCK_AS_DECLARED;
        let mut spin = Spin::<M>::new();
        loop {
            let asked = match held {
                Held::Shared => word::try_shared(cell),
                Held::Exclusive => word::try_exclusive::<M, F>(cell, 0),
            };
            match asked {
                Ok(asked) => {
                    greatest.0 = greatest.0.max(cell.address());
                    return Ok(asked);
                }
                Err(word::Taken) if in_order && spin.count() > WAITS_MAX => {
                    return Err(Abort::new(AbortReason::LockTimeout));
                }
                Err(word::Taken) if in_order => spin.wait(),
                Err(word::Taken) if held == Held::Shared => return Err(Abort::new(AbortReason::ReadLocked)),
                Err(word::Taken) => return Err(Abort::new(AbortReason::WriteLocked)),
            }
        }
    }

    #[inline(always)]
    fn upgrade(&self, _: &mut OrderedLocal, cell: Cell<M>, (): ()) -> Result<(), Abort> {
        word::try_exclusive::<M, F>(cell, 1).map(drop).map_err(|word::Taken| Abort::new(AbortReason::WriteLocked))
    }

    #[inline(always)]
    fn unlock(&self, _: &mut OrderedLocal, cell: Cell<M>, held: Held, (): ()) {
        word::unlock::<M, F>(cell, held);
    }

    #[inline(always)]
    fn flags(cell: Cell<M>) -> u64 {
        word::flags(cell)
    }

    fn set_flags(cell: Cell<M>, clear: u64, set: u64) -> u64 {
        word::set_flags::<M, F>(cell, clear, set)
    }

    fn seize(cell: Cell<M>) -> Option<u64> {
        word::seize(cell)
    }

    fn let_go(cell: Cell<M>, clear: u64, set: u64) {
        word::let_go(cell, clear, set);
    }
}

#[cfg(test)]
mod tests {
    use contend_engine::{Engine, EngineConfig, Groups, IndexKind, Projection, Protocol, TableSpec, Txn};
    use contend_machine::Native;

    use super::Ordered;

    #[test]
    fn declared_rows_are_found_in_whatever_order_they_are_touched() {
        let engine = Engine::<Ordered, Native>::new(
            <Ordered as Protocol<Native>>::new(Default::default()),
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
        // Twice: what one transaction has declared the next knows nothing of.
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
            outcome.expect("nobody else is there");
            let expected = [values[0], Some(201), Some(101), values[0], Some(202), Some(102), None];
            assert_eq!(values, expected);
        }
        assert_eq!(values[0], Some(113));
    }
}
