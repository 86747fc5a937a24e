//! Turns what workers recorded into a history that can be checked.

use std::collections::BTreeMap;

use contend_engine::history::{Applied, Committed, Operation, Part};
use contend_engine::{Engine, KeyWords, Protocol};
use contend_history::{History, ItemId, Op, Scan, State, TableId, Transaction, Value};
use contend_machine::Machine;

/// A history, and the rows that the tables hold at its end.
#[derive(Debug)]
pub struct Recorded {
    /// The transactions.
    pub history: History,
    /// Every row at the end whose key the history names: table, key, and the last writer's number.
    pub final_state: Vec<(String, String, u64)>,
}

/// Turns what an engine's workers recorded into a history, and reads the final state of all keys in
/// it. No transaction may run meanwhile.
pub fn recorded<P: Protocol<M>, M: Machine>(engine: &Engine<P, M>, committed: Vec<Committed>) -> Recorded {
    recorded_with_keys(engine, committed).0
}

/// As [`recorded`]; also returns the keys in the history.
pub fn recorded_with_keys<P: Protocol<M>, M: Machine>(
    engine: &Engine<P, M>,
    committed: Vec<Committed>,
) -> (Recorded, Vec<(Part, KeyWords)>) {
    let parts = engine.parts();
    let names: BTreeMap<Part, String> = parts.into_iter().collect();
    let mut history = History::new();
    let tables = names.iter().map(|(part, name)| (*part, history.table(name))).collect();
    let mut convert = Convert { engine, tables, history, items: BTreeMap::new() };
    let converted: Vec<Vec<Op>> = committed
        .iter()
        .map(|transaction| transaction.operations.iter().map(|operation| convert.operation(operation)).collect())
        .collect();
    let Convert { mut history, items, .. } = convert;
    for (transaction, mut ops) in committed.iter().zip(converted) {
        name_what_never_existed(&mut ops, &transaction.operations, &items);
        let transaction = Transaction { txn: transaction.txn, worker: transaction.worker as u64, ops };
        history.push(transaction).expect("the engine's numbers are positive and unique");
    }
    let keys: Vec<(Part, KeyWords)> = items.into_keys().collect();
    let rows = keys.iter().filter_map(|(part, key)| {
        let writer = engine.last_writer(*part, key)?;
        Some((names[part].clone(), engine.key_name(part.table, key), writer))
    });
    (Recorded { final_state: rows.collect(), history }, keys)
}

type Items = BTreeMap<(Part, KeyWords), ItemId>;

/// Adds to each scan the keys of its range that had never existed. A scan names the rows that it
/// saw and the keys that it found deleted. So all other keys of the range had never existed, except
/// those that the transaction had written itself. With these keys named, the checker need not
/// guess.
fn name_what_never_existed(ops: &mut [Op], operations: &[Operation], items: &Items) {
    for (op, operation) in ops.iter_mut().zip(operations) {
        if let (Op::Scan(scan), Operation::Scan { part, low, high, own, .. }) = (op, operation) {
            let mut named: Vec<ItemId> = scan.seen.iter().chain(&scan.gone).map(|(item, _)| *item).collect();
            named.extend(own.iter().filter_map(|key| items.get(&(*part, *key))));
            named.sort_unstable();
            let range = items.range((*part, *low)..=(*part, *high)).map(|(_, item)| *item);
            scan.gone.extend(range.filter(|item| named.binary_search(item).is_err()).map(|item| (item, 0)));
        }
    }
}

struct Convert<'e, P: Protocol<M>, M: Machine> {
    engine: &'e Engine<P, M>,
    tables: BTreeMap<Part, TableId>,
    history: History,
    items: Items,
}

impl<P: Protocol<M>, M: Machine> Convert<'_, P, M> {
    fn item(&mut self, part: Part, key: &KeyWords) -> ItemId {
        *self
            .items
            .entry((part, *key))
            .or_insert_with(|| self.history.item(self.tables[&part], &self.engine.key_name(part.table, key)))
    }

    fn operation(&mut self, operation: &Operation) -> Op {
        match operation {
            Operation::Read { part, key, version, value } => Op::Read {
                item: self.item(*part, key),
                seen: State::Version(*version),
                value: Some(Value::Unsigned(*value)),
            },
            Operation::Miss { part, key, deleted_by } => {
                Op::Read { item: self.item(*part, key), seen: State::deleted_by(*deleted_by), value: None }
            }
            Operation::Write { part, key, over, insert, applied, value } => Op::Write {
                item: self.item(*part, key),
                over: if *insert { State::deleted_by(*over) } else { State::Version(*over) },
                delete: false,
                applied: *applied,
                value: value.map(Value::Unsigned),
            },
            Operation::Delete { part, key, over } => {
                let (item, over) = (self.item(*part, key), State::Version(*over));
                Op::Write { item, over, delete: true, applied: Applied::InOrder, value: None }
            }
            Operation::Scan { part, low, high, seen, gone, .. } => {
                let (low, high) = (Some(self.item(*part, low)), Some(self.item(*part, high)));
                let mut rows = |rows: &[(KeyWords, u64)]| -> Vec<(ItemId, u64)> {
                    rows.iter().map(|(key, version)| (self.item(*part, key), *version)).collect()
                };
                let (seen, gone) = (rows(seen), rows(gone));
                Op::Scan(Box::new(Scan { table: self.tables[part], low, high, seen, gone }))
            }
        }
    }
}
