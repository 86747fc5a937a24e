//! A quick proof that what workers recorded is serializable, without names and without building a
//! history.

use contend_engine::history::{Applied, Committed, Operation, Part};
use contend_engine::{Engine, KeyWords, Protocol};
use contend_history::{Quick, State};
use contend_machine::Machine;

/// A quick proof, with the keys in it by their numbers. A new proof reuses its memory.
#[derive(Debug, Default)]
pub struct QuickProof {
    quick: Quick,
    items: Vec<(Part, KeyWords)>,
}

impl QuickProof {
    /// Whether some serial order of the transactions certainly explains all that they have seen,
    /// and the rows in the tables. If not, the checker must decide. No transaction may run
    /// meanwhile.
    pub fn succeeds<P: Protocol<M>, M: Machine>(&mut self, engine: &Engine<P, M>, committed: &[Committed]) -> bool {
        self.quick.clear();
        self.items.clear();
        // All keys get their numbers first: a scan has found no row under the keys of its range
        // that it does not name.
        let operations = || committed.iter().flat_map(|transaction| &transaction.operations);
        for operation in operations() {
            match operation {
                Operation::Read { part, key, .. }
                | Operation::Miss { part, key, .. }
                | Operation::Write { part, key, .. }
                | Operation::Delete { part, key, .. } => _ = self.item(*part, key),
                Operation::Scan { part, low, high, seen, gone, .. } => {
                    let named = seen.iter().chain(gone).map(|(key, _)| key);
                    [low, high].into_iter().chain(named).for_each(|key| _ = self.item(*part, key));
                }
            }
        }
        for transaction in committed {
            self.quick.transaction(transaction.txn);
            transaction.operations.iter().for_each(|operation| self.tell(transaction.txn, operation));
        }
        let QuickProof { quick, items } = self;
        quick.is_proved(|item| engine.last_writer(items[item].0, &items[item].1))
    }

    /// Returns the number of a key, and numbers it if it is new.
    fn item(&mut self, part: Part, key: &KeyWords) -> usize {
        let known = self.items.iter().position(|(other, words)| words == key && *other == part);
        known.unwrap_or_else(|| {
            self.items.push((part, *key));
            self.items.len() - 1
        })
    }

    /// Tells the proof an operation of a transaction.
    fn tell(&mut self, txn: u64, operation: &Operation) {
        match operation {
            Operation::Read { part, key, version, value } => {
                let item = self.item(*part, key);
                self.quick.read(item, State::Version(*version), Some(*value));
            }
            Operation::Miss { part, key, deleted_by } => {
                let item = self.item(*part, key);
                self.quick.read(item, State::deleted_by(*deleted_by), None);
            }
            Operation::Write { applied: Applied::Omitted, .. } => self.quick.give_up(),
            // Commuting writes are valid in any order. The proof looks for the recorded one.
            Operation::Write { part, key, over, insert, value, applied: Applied::InOrder | Applied::Commuting } => {
                let item = self.item(*part, key);
                let over = if *insert { State::deleted_by(*over) } else { State::Version(*over) };
                self.quick.write(item, over, false, *value);
            }
            Operation::Delete { part, key, over } => {
                let item = self.item(*part, key);
                self.quick.write(item, State::Version(*over), true, None);
            }
            Operation::Scan { part, low, high, seen, gone, own } => {
                let seen = seen.iter().map(|(key, by)| (key, State::Version(*by)));
                let gone = gone.iter().map(|(key, by)| (key, State::deleted_by(*by)));
                let mut named = 0_u64;
                for (key, state) in seen.chain(gone) {
                    let item = self.item(*part, key);
                    let bit = 1_u64.checked_shl(item as u32).unwrap_or(0);
                    if named & bit != 0 || !(low..=high).contains(&key) {
                        self.quick.give_up();
                    }
                    named |= bit;
                    self.quick.read(item, state, None);
                }
                let QuickProof { quick, items } = self;
                for (item, (other, key)) in items.iter().enumerate() {
                    if other == part
                        && (low..=high).contains(&key)
                        && named & 1_u64.checked_shl(item as u32).unwrap_or(0) == 0
                    {
                        let is_own = own.contains(key);
                        quick.read(item, if is_own { State::DeletedBy(txn) } else { State::NeverExisted }, None);
                    }
                }
            }
        }
    }
}
