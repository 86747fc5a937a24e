//! The conflict map itself, and the names of its places.

use contend_machine::Machine;
use contend_model::{AbortCounts, AbortReason, Groups, KeyWords};
use rustc_hash::FxHashMap;

use super::{ConflictPlace, ConflictRow, Counter, SpaceSaving};
use crate::engine::Engine;
use crate::protocol::Protocol;
use crate::table::AnyTable;

/// The aborts by conflicts of some transactions, by place. A place is counted exactly; a key is
/// counted by a sketch ([`SpaceSaving`]).
#[derive(Clone, Debug, Default)]
pub struct ConflictMap {
    /// By type of transaction, those without a place.
    nowhere: Vec<(usize, AbortCounts)>,
    /// By the numbers of the tables.
    tables: Vec<TableConflicts>,
}

/// The conflicts at one table.
#[derive(Clone, Debug, Default)]
struct TableConflicts {
    /// By group and type of transaction.
    counts: Vec<((Option<u32>, usize), AbortCounts)>,
    by_key: SpaceSaving<KeyWords>,
    /// By the addresses of records whose keys were not at hand.
    by_record: SpaceSaving<u64>,
    /// The conflicts at records whose keys were not at hand.
    at_records: u64,
    /// The conflicts at gaps.
    at_gaps: u64,
}

/// Returns the counts under a key, in a short list.
fn counts_of<K: Copy + PartialEq>(counts: &mut Vec<(K, AbortCounts)>, key: K) -> &mut AbortCounts {
    let position = counts.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
        counts.push((key, AbortCounts::default()));
        counts.len() - 1
    });
    &mut counts[position].1
}

impl ConflictMap {
    /// Counts an abort of a transaction of this type, by a conflict at this place. The type is a
    /// number of the caller's.
    #[cold]
    pub fn add(&mut self, kind: usize, reason: AbortReason, place: Option<ConflictPlace>) {
        let Some(ConflictPlace { table, group, row }) = place else {
            return counts_of(&mut self.nowhere, kind).add(reason);
        };
        let table = self.table_mut(table as usize);
        counts_of(&mut table.counts, (group, kind)).add(reason);
        match row {
            ConflictRow::Key(key) => table.by_key.add(key),
            ConflictRow::Record(record) => {
                table.by_record.add(record);
                table.at_records += 1;
            }
            ConflictRow::Gap => table.at_gaps += 1,
        }
    }

    fn table_mut(&mut self, table: usize) -> &mut TableConflicts {
        if self.tables.len() <= table {
            self.tables.resize_with(table + 1, TableConflicts::default);
        }
        &mut self.tables[table]
    }

    /// Adds another map, of the same engine.
    pub fn merge(&mut self, other: &ConflictMap) {
        for (kind, counts) in &other.nowhere {
            counts_of(&mut self.nowhere, *kind).merge(counts);
        }
        for (number, theirs) in other.tables.iter().enumerate() {
            let table = self.table_mut(number);
            for (place, counts) in &theirs.counts {
                counts_of(&mut table.counts, *place).merge(counts);
            }
            table.by_key.merge(&theirs.by_key);
            table.by_record.merge(&theirs.by_record);
            table.at_records += theirs.at_records;
            table.at_gaps += theirs.at_gaps;
        }
    }

    /// Returns the number of aborts counted.
    pub fn total(&self) -> u64 {
        let at_tables = self.tables.iter().flat_map(|table| table.counts.iter().map(|(_, counts)| counts.conflicts()));
        self.nowhere.iter().map(|(_, counts)| counts.conflicts()).chain(at_tables).sum()
    }
}

/// The aborts at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictPlaceCount {
    /// The table's name. `None` for aborts whose place is not known.
    pub table: Option<String>,
    /// The columns of the group, or the group's number if they have no names. `None` if the table's
    /// groups have no versions of their own, or if it is not known which group it was.
    pub group: Option<String>,
    /// The type of transaction, by the number that [`ConflictMap::add`] was given.
    pub kind: usize,
    /// The aborts.
    pub aborts: AbortCounts,
}

/// A key at which transactions were aborted, with bounds for their number: it is between `count -
/// error` and `count`, without the aborts at keys that are not known ([`TableKeys::unknown`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The key as a history names it.
    pub key: String,
    /// The words of the key.
    pub words: KeyWords,
    /// The count.
    pub count: u64,
    /// The most by which the count is too large.
    pub error: u64,
}

/// The keys of a table at which transactions were aborted most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableKeys {
    /// The table's name.
    pub table: String,
    /// The keys, the hottest first.
    pub keys: Vec<HotKey>,
    /// The aborts at rows whose keys are not known, and at gaps between rows.
    pub unknown: u64,
}

/// A conflict map with names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedConflicts {
    /// The aborts by place and type of transaction, the most frequent first.
    pub places: Vec<ConflictPlaceCount>,
    /// The hottest keys of each table at which transactions were aborted.
    pub keys: Vec<TableKeys>,
}

impl<P: Protocol<M>, M: Machine> Engine<P, M> {
    /// Gives the places of a map their names. The map was counted by workers of this engine. To be
    /// called outside any transaction: it may look at all rows.
    pub fn name_conflicts(&self, map: &ConflictMap) -> NamedConflicts {
        let place =
            |table, group, (kind, aborts): (usize, AbortCounts)| ConflictPlaceCount { table, group, kind, aborts };
        let mut places: Vec<_> = map.nowhere.iter().map(|counts| place(None, None, *counts)).collect();
        let mut keys = Vec::new();
        let tables = self.catalog.read();
        for (table, conflicts) in tables.iter().zip(&map.tables).filter(|(_, conflicts)| !conflicts.counts.is_empty()) {
            let name = table.core().name().to_string();
            for ((group, kind), aborts) in &conflicts.counts {
                let group = group.map(|group| table.core().declared().columns_of(Groups::of(group)));
                places.push(place(Some(name.clone()), group, (*kind, *aborts)));
            }
            keys.push(keys_of(&**table, name, conflicts));
        }
        places.sort_by_key(|place| std::cmp::Reverse(place.aborts.conflicts()));
        NamedConflicts { places, keys }
    }
}

/// Returns the hottest keys of a table.
fn keys_of<M: Machine>(table: &dyn AnyTable<M>, name: String, conflicts: &TableConflicts) -> TableKeys {
    let mut sketch = conflicts.by_key.clone();
    let mut unknown = conflicts.at_gaps + conflicts.at_records;
    let records: Vec<u64> = conflicts.by_record.counters().iter().map(|counter| counter.item).collect();
    if !records.is_empty() && !table.core().has_reused() {
        let mut keys: FxHashMap<u64, KeyWords> = FxHashMap::default();
        table.for_each_record(&mut |key, record| {
            if records.contains(&record.value()) {
                keys.insert(record.value(), key);
            }
        });
        let counters = conflicts.by_record.counters().iter();
        let nameless: u64 = counters.filter(|it| !keys.contains_key(&it.item)).map(|it| it.count).sum();
        unknown = conflicts.at_gaps + nameless.min(conflicts.at_records);
        sketch.merge(&conflicts.by_record.renamed(|record| keys.get(&record).copied()));
    }
    let named = |&Counter { item, count, error }: &Counter<KeyWords>| HotKey {
        key: table.key_name(&item),
        words: item,
        count,
        error,
    };
    let mut keys: Vec<HotKey> = sketch.counters().iter().map(named).collect();
    keys.sort_by_key(|key| std::cmp::Reverse(key.count));
    TableKeys { table: name, keys, unknown }
}
