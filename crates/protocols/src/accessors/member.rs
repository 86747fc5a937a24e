//! A transaction as a member of lists of accessors: what it depends on, and where it stands.

use contend_engine::{Abort, AbortReason, Cell};
use contend_machine::{Cycles, Machine, Spin};

use super::list::{AccessList, Accessor, AccessorHandle, Accessors, Pool};
use super::progress::{Progress, Running};
use super::{AccessFaults, list_of, lock, unlock};
use crate::method::wait::LOCK_WAITS_MAX;

/// A worker's transaction, as a member of lists.
#[derive(Debug)]
pub(crate) struct Member<M: Machine> {
    pub(crate) own: Running,
    /// The transactions that this one depends on, and that had not ended when it looked last.
    pub(crate) predecessors: Vec<Running>,
    accessors: Accessors<M>,
    /// The cells in whose lists the transaction stands.
    pub(crate) listed: Vec<(Cell<M>, AccessorHandle<M>)>,
}

impl<M: Machine> Member<M> {
    /// Returns the state of a worker with this number, which runs no transaction.
    pub(crate) fn new(worker: usize, progress: &Progress<M>, pool: &Pool<M>) -> Self {
        Member {
            own: Running { worker, number: progress.register(worker), kind: Running::NO_KIND },
            predecessors: Vec::with_capacity(64),
            accessors: Accessors::new(pool),
            listed: Vec::with_capacity(64),
        }
    }

    /// Begins the worker's next transaction, which is of this type.
    #[inline(always)]
    pub(crate) fn begin(&mut self, progress: &Progress<M>, kind: u32) {
        self.own.number += 1;
        self.own.kind = kind;
        progress.begin(self.own);
    }

    /// Notes a transaction that this one depends on.
    pub(crate) fn depend_on(&mut self, other: Running) {
        // The same transactions are met in cell after cell.
        if other.worker != self.own.worker && !self.predecessors.contains(&other) {
            self.predecessors.push(other);
        }
    }

    /// Notes the transactions that come before the newest access to a cell, which the caller has
    /// locked: the last writer, and, if the access `writes`, all readers since. The last writer
    /// comes after all that stand behind it, and waits for them. A void access has left nothing in
    /// the cell.
    pub(crate) fn depend_on_earlier<F: AccessFaults>(&mut self, list: &AccessList<'_, M>, writes: bool) {
        for other in list.iter().filter(|other| !other.is(Accessor::<M>::VOID)) {
            let wrote = other.is(Accessor::<M>::WROTE);
            if wrote || writes && !F::ignore_readers() {
                self.depend_on(other.owner());
            }
            if wrote || F::last_accessor_only() {
                break;
            }
        }
    }

    /// Makes sure that the next `count` calls of [`Member::join`] allocate no accessors.
    pub(crate) fn reserve(&mut self, count: usize) {
        self.accessors.reserve(count);
    }

    /// Makes an access of this transaction the newest of a cell, which the caller has locked. The
    /// transaction began in this epoch, and does not stand in the list.
    pub(crate) fn join(&mut self, cell: Cell<M>, began_in: u64, wrote: bool) -> AccessorHandle<M> {
        let accessor = self.accessors.take();
        list_of(cell).push(&accessor, self.own, began_in, wrote);
        self.listed.push((cell, accessor));
        accessor
    }

    /// Waits until all predecessors have ended, or are sure to commit; for this time at most, in
    /// nanoseconds, if there is a limit.
    ///
    /// # Errors
    /// The transaction is doomed, or has waited too long.
    pub(crate) fn wait_for_commits<F: AccessFaults>(
        &mut self,
        progress: &Progress<M>,
        limit_ns: Option<u64>,
    ) -> Result<(), Abort> {
        let mut until = None;
        while let Some(&other) = self.predecessors.last().filter(|_| !F::forget_predecessors()) {
            M::step("wait for commits");
            let mut spin = Spin::<M>::new();
            while !progress.has_decided(other) {
                if let Some(limit) = limit_ns.filter(|_| until.is_none()) {
                    until = Some(M::now() + (M::cycles_per_second() * limit as f64 / 1e9) as Cycles);
                }
                self.wait(progress, &mut spin, until)?;
            }
            self.predecessors.pop();
        }
        Ok(())
    }

    /// Waits a little for another transaction.
    ///
    /// # Errors
    /// The transaction is doomed, or has waited too long: often, or until this time.
    pub(crate) fn wait(&self, progress: &Progress<M>, spin: &mut Spin<M>, until: Option<Cycles>) -> Result<(), Abort> {
        if progress.is_doomed(self.own) {
            return Err(Abort::new(AbortReason::Cascaded));
        }
        if spin.count() > LOCK_WAITS_MAX || until.is_some_and(|until| M::now() >= until) {
            return Err(Abort::new(AbortReason::LockTimeout));
        }
        spin.wait_briefly();
        Ok(())
    }

    /// Passes the commit point.
    ///
    /// # Errors
    /// The transaction is doomed.
    pub(crate) fn pass_commit_point(&self, progress: &Progress<M>) -> Result<(), Abort> {
        M::step("commit point");
        if progress.commit_point(self.own) { Ok(()) } else { Err(Abort::new(AbortReason::Cascaded)) }
    }

    /// Leaves all lists.
    pub(crate) fn leave_lists(&mut self) {
        M::step("leave lists");
        for (cell, accessor) in self.listed.drain(..) {
            let word = lock(cell);
            list_of(cell).remove(&accessor);
            unlock(cell, word);
        }
    }

    /// Ends the transaction, which has left all lists.
    pub(crate) fn end(&mut self, progress: &Progress<M>) {
        self.accessors.clear();
        self.predecessors.clear();
        progress.end(self.own);
    }
}
