//! Pieces in the frame: the check of each access against the declarations of its type, and the
//! second run of a piece that has met a conflict.
//!
//! Only protocols that treat pieces by themselves ([`Protocol::uses_pieces`]) have any of this at
//! run time. For all others a piece is its body, and the compiler removes the rest.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use contend_machine::Machine;
use contend_model::pieces::{CheckedTypes, DeclaredTable, PieceChecker, TypeSet, Types};
use parking_lot::RwLock;

use crate::engine::Engine;
use crate::protocol::Protocol;
use crate::sets::WriteMark;

/// Whether a piece that begins is the beginning of a step that may run again by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceBegin {
    /// Nothing of the step has run before. If the step fails, the piece may run again.
    Step,
    /// The piece belongs to a step that has begun before, or to the transaction as a whole.
    Inside,
}

/// What the end of a piece has brought about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PieceOutcome {
    /// The transaction goes on as before.
    Open,
    /// The protocol has committed what the transaction has written so far, and nothing will take it
    /// back. The engine forgets these writes, as after a commit. The transaction goes on.
    Settled,
}

/// The declarations of an engine, as they are now.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    now: RwLock<Option<Arc<CheckedTypes>>>,
    /// The number of declarations so far. A worker compares it with what it has seen, so that it
    /// takes the lock only after a change.
    changes: AtomicU64,
}

/// The pieces of a worker's running transaction.
#[derive(Debug, Default)]
pub(crate) struct RunningPieces {
    pub(crate) checker: PieceChecker,
    seen: u64,
    /// The state at the beginning of the step, if the running piece has begun it.
    pub(crate) mark: Option<StepMark>,
    /// Whether rows that the transaction has changed were settled ([`PieceOutcome::Settled`]).
    pub(crate) has_settled: bool,
    /// The number of pieces that ran again.
    pub(crate) retries: u64,
}

/// The state of a transaction at the beginning of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepMark {
    pub(crate) writes: WriteMark,
    /// The number of recorded operations.
    pub(crate) operations: usize,
}

impl RunningPieces {
    /// Begins a transaction of this type.
    #[inline]
    pub(crate) fn begin(&mut self, declarations: &Declarations, of: Option<usize>) {
        // Acquire: pairs with the Release in `declare`. The declarations themselves are behind the
        // lock.
        let changes = declarations.changes.load(Ordering::Acquire);
        if changes != self.seen {
            self.checker.declare(declarations.now.read().clone());
            self.seen = changes;
        }
        self.checker.begin(of);
        (self.mark, self.has_settled) = (None, false);
    }

    /// Begins a transaction that needs no declaration: it sees a snapshot, or runs alone.
    pub(crate) fn begin_unchecked(&mut self) {
        self.checker.begin_free();
        (self.mark, self.has_settled) = (None, false);
    }
}

impl<P: Protocol<M>, M: Machine> Engine<P, M> {
    /// Returns the tables as declarations know them, in the order of their numbers.
    pub fn declared_tables(&self) -> Vec<DeclaredTable> {
        self.catalog.read().iter().map(|table| table.core().declared().clone()).collect()
    }

    /// Returns an empty declaration for the tables of this engine. It refuses those of others.
    pub fn types(&self) -> Types {
        Types::of_store(self.catalog.store(), self.declared_tables())
    }

    /// Runs `change` while no transaction runs that can commit: it waits for those that run, and
    /// none begins before `change` has ended. The caller's thread must have no worker that is
    /// online.
    pub fn while_idle<T>(&self, change: impl FnOnce() -> T) -> T {
        self.epochs.close();
        self.epochs.wait_until_idle();
        let changed = change();
        self.epochs.open();
        changed
    }

    /// Declares the types of all transactions that will run, with their pieces. To be called once,
    /// before the first transaction: transactions of two declarations have no common order. A
    /// protocol that does not use declarations ignores them.
    ///
    /// # Errors
    /// The declarations are not valid. One sentence says why.
    pub fn declare(&self, types: TypeSet) -> Result<(), String> {
        if !self.protocol.uses_pieces() {
            return Ok(());
        }
        self.protocol.declare(&types, &self.config.options)?;
        *self.declarations.now.write() = Some(CheckedTypes::new(types));
        // Release: pairs with the Acquire in `RunningPieces::begin`.
        self.declarations.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }
}
