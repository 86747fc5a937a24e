//! From what workers recorded to a history that can be checked.

use std::collections::BTreeMap;

use contend_engine::history::{Committed, Operation};
use contend_engine::{Engine, KeyWords, Protocol};
use contend_history::{History, ItemId, Op, Scan, State, TableId, Transaction, Value};
use contend_machine::Machine;

/// A history, and how it ended.
#[derive(Debug)]
pub struct Recorded {
    /// What happened.
    pub history: History,
    /// Every row that is named in it, as it stands in the end: table, key, and who wrote it.
    pub final_state: Vec<(String, String, u64)>,
}

/// What the engine's workers recorded, as a history, with the final state of all keys in it. No transaction runs.
pub fn recorded<P: Protocol<M>, M: Machine>(engine: &Engine<P, M>, committed: Vec<Committed>) -> Recorded {
    let names = engine.table_names();
    let mut history = History::new();
    let tables = names.iter().map(|name| history.table(name)).collect();
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
    let rows = items.into_keys().filter_map(|(table, key)| {
        let writer = engine.last_writer(table, &key)?;
        Some((names[table as usize].clone(), engine.key_name(table, &key), writer))
    });
    Recorded { final_state: rows.collect(), history }
}

type Items = BTreeMap<(u32, KeyWords), ItemId>;

/// A scan names the rows that it saw and the keys that it found deleted. Of all other keys in its range, those that the transaction
/// itself had written apart, it is so known that they had never existed; with that said, the history leaves nothing to guess.
fn name_what_never_existed(ops: &mut [Op], operations: &[Operation], items: &Items) {
    for (op, operation) in ops.iter_mut().zip(operations) {
        if let (Op::Scan(scan), Operation::Scan { table, low, high, own, .. }) = (op, operation) {
            let mut named: Vec<ItemId> = scan.seen.iter().chain(&scan.gone).map(|(item, _)| *item).collect();
            named.extend(own.iter().filter_map(|key| items.get(&(*table, *key))));
            named.sort_unstable();
            let range = items.range((*table, *low)..=(*table, *high)).map(|(_, item)| *item);
            scan.gone.extend(range.filter(|item| named.binary_search(item).is_err()).map(|item| (item, 0)));
        }
    }
}

struct Convert<'e, P: Protocol<M>, M: Machine> {
    engine: &'e Engine<P, M>,
    tables: Vec<TableId>,
    history: History,
    items: Items,
}

impl<P: Protocol<M>, M: Machine> Convert<'_, P, M> {
    fn item(&mut self, table: u32, key: &KeyWords) -> ItemId {
        *self
            .items
            .entry((table, *key))
            .or_insert_with(|| self.history.item(self.tables[table as usize], &self.engine.key_name(table, key)))
    }

    fn operation(&mut self, operation: &Operation) -> Op {
        match operation {
            Operation::Read { table, key, version, value } => Op::Read {
                item: self.item(*table, key),
                seen: State::Version(*version),
                value: Some(Value::Unsigned(*value)),
            },
            Operation::Miss { table, key, deleted_by } => {
                Op::Read { item: self.item(*table, key), seen: State::deleted_by(*deleted_by), value: None }
            }
            Operation::Write { table, key, over, insert, value } => Op::Write {
                item: self.item(*table, key),
                over: if *insert { State::deleted_by(*over) } else { State::Version(*over) },
                delete: false,
                value: value.map(Value::Unsigned),
            },
            Operation::Delete { table, key, over } => {
                Op::Write { item: self.item(*table, key), over: State::Version(*over), delete: true, value: None }
            }
            Operation::Scan { table, low, high, seen, gone, .. } => {
                let (low, high) = (Some(self.item(*table, low)), Some(self.item(*table, high)));
                let mut rows = |rows: &[(KeyWords, u64)]| -> Vec<(ItemId, u64)> {
                    rows.iter().map(|(key, version)| (self.item(*table, key), *version)).collect()
                };
                let (seen, gone) = (rows(seen), rows(gone));
                Op::Scan(Box::new(Scan { table: self.tables[*table as usize], low, high, seen, gone }))
            }
        }
    }
}
