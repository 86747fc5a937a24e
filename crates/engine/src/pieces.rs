//! Pieces in the frame: the check of each access against the declarations of its type, and the
//! second run of a piece that has met a conflict.
//!
//! Only protocols that treat pieces by themselves ([`Protocol::uses_pieces`]) have any of this at
//! run time. For all others a piece is its body, and the compiler removes the rest.

use contend_machine::Machine;
use contend_model::pieces::{CheckedTypes, DeclaredTable, PieceChecker, TypeSet, Types};
use contend_model::{counted, is_or_are};

use crate::engine::Engine;
use crate::epoch::Epochs;
use crate::in_force::{InForce, Known};
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

/// The pieces of a worker's running transaction.
#[derive(Debug, Default)]
pub(crate) struct RunningPieces {
    pub(crate) checker: PieceChecker,
    declared: Known<CheckedTypes>,
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
    pub(crate) fn begin(&mut self, types: &InForce<CheckedTypes>, of: Option<usize>) {
        if !types.is_current(&self.declared) {
            types.refresh(&mut self.declared);
            self.checker.declare(self.declared.value.clone());
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

    /// Declares the types of all transactions that run from now on, with their pieces. It may be
    /// called again, for other types. Transactions of two declarations have no common order: this
    /// waits for those that run and can commit, and none begins before the types are in force. So
    /// no worker of the calling thread may be online. A protocol that does not use declarations
    /// ignores them.
    ///
    /// A transaction that only reads a snapshot, and runs meanwhile, goes on with the types that it
    /// began with. The call waits for such a transaction if epochs have to pass
    /// ([`Protocol::declare`]).
    ///
    /// # Errors
    /// The declarations are not valid. One sentence says why. Then the types before stay in force.
    pub fn declare(&self, types: TypeSet) -> Result<(), String> {
        if !self.protocol.uses_pieces() {
            return Ok(());
        }
        let own = self.declared_tables();
        if types.tables.len() > own.len() {
            let (declared, own) = (types.tables.len(), own.len());
            let declared = format!("{} {} declared", counted(declared, "table"), is_or_are(declared));
            return Err(format!("{declared}; valid: {own}, the tables that there are"));
        }
        // The check of an access permits the groups that the declared table lacks. So it must lack
        // none that the engine's table has.
        for (declared, own) in types.tables.iter().zip(own) {
            if declared.groups != own.groups {
                let (name, groups, own) = (&declared.name, declared.groups, own.groups);
                return Err(format!(
                    "table {name} is declared with {groups} groups of columns; valid: {own}, its groups"
                ));
            }
        }
        self.while_idle(|| {
            self.types_in_force.replace_by(|| {
                let epochs = self.protocol.declare(&types, &self.config.options)?;
                self.epochs.pass(epochs);
                Ok(CheckedTypes::new(types))
            })
        })
    }

    /// Runs `change` while no transaction runs that can commit: it waits for those that run, and
    /// none begins before `change` has ended.
    fn while_idle<T>(&self, change: impl FnOnce() -> T) -> T {
        /// Opens the gate, also if `change` panics.
        struct Closed<'a, M: Machine>(&'a Epochs<M>);
        impl<M: Machine> Drop for Closed<'_, M> {
            fn drop(&mut self) {
                self.0.open();
            }
        }
        self.epochs.close();
        let _closed = Closed(&self.epochs);
        self.epochs.wait_until_idle();
        change()
    }
}
