//! Which transactions are there after a crash.
//!
//! A set of transactions *explains* the rows that a recovery found if
//!
//! - every acknowledged transaction is in it;
//! - every transaction is in it whose writes another one of the set has seen;
//! - each row is as its last writer in the set left it, in the order of versions.
//!
//! [`Past::explain`] looks for the smallest such set. It begins with the acknowledged transactions.
//! As long as a row differs, it adds the next transaction in the order of the row's versions that
//! could have left the row so. With each transaction it adds all those that this one has seen. If a
//! row differs and no transaction could have left it so, a write was lost, or a transaction is
//! there without one that it depends on.
//!
//! The other transactions are undone by the crash: the transactions after it see only what those of
//! the set have left. So the histories of the sets, one life after the other, form one history. It
//! is checked like any other ([`Past::recorded`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use contend_engine::history::{Applied, Committed, Operation, Part, Version, fingerprint};
use contend_engine::{Engine, Erased, KeyWords};
use contend_log::Recovered;
use contend_sim::Simulated;

use contend_judge::{Recorded, recorded_with_keys};

/// A cell of a row.
type Place = (Part, KeyWords);

/// The fingerprint of each cell; an absent cell may be missing or `None`.
pub(super) type Cells = BTreeMap<Place, Option<u64>>;

/// What a transaction did to a cell.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// The transaction whose version it replaced; 0 if the life began with that version, or without
    /// the row.
    over: Version,
    /// The fingerprint of what it left; `None` if it deleted the row.
    value: Option<u64>,
    /// Whether the row was absent before.
    inserts: bool,
}

/// The last transaction that wrote a cell.
#[derive(Clone, Copy, Debug)]
struct Writer {
    txn: Version,
    has_deleted: bool,
}

/// What the last crash left.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The rows.
    pub(super) rows: Cells,
    /// All transactions that are there, numbered from 1 in the order of lives.
    history: Vec<Committed>,
    writers: BTreeMap<Place, Writer>,
    /// Whether the history can't be told exactly: some writes commuted or were omitted, so that the
    /// order of versions is not that of the writes.
    is_inexact: bool,
}

/// Returns all recovered rows, by the engine's cells.
pub(super) fn found_rows(engine: &Engine<Erased<Simulated>, Simulated>, recovered: &Recovered) -> Cells {
    let parts: Vec<Part> = engine.parts().into_iter().map(|(part, _)| part).collect();
    let mut cells = Cells::new();
    for table in &recovered.tables {
        let own: Vec<&Part> = parts.iter().filter(|part| part.table == table.number).collect();
        for part in &own {
            let (start, end) = match own.len() {
                1 => (0, table.schema.row_words),
                _ => table.schema.groups[part.cell as usize],
            };
            let of_part = |(key, row): (KeyWords, &[u64])| ((**part, key), Some(fingerprint(&row[start..end])));
            cells.extend(table.rows().map(of_part));
        }
    }
    cells
}

/// What the transactions of a life did to the cells that they wrote.
struct Writes {
    links: BTreeMap<Place, HashMap<Version, Link>>,
    /// The versions of each cell, in their order.
    chains: BTreeMap<Place, Vec<Version>>,
}

impl Writes {
    fn of(committed: &[Committed]) -> Self {
        let mut links: BTreeMap<Place, HashMap<Version, Link>> = BTreeMap::new();
        for commit in committed {
            for operation in &commit.operations {
                let (part, key, link) = match *operation {
                    // An omitted write has left nothing.
                    Operation::Write { applied: Applied::Omitted, .. } => continue,
                    Operation::Write { part, key, over, value, insert, .. } => {
                        (part, key, Link { over, value, inserts: insert })
                    }
                    Operation::Delete { part, key, over } => (part, key, Link { over, value: None, inserts: false }),
                    _ => continue,
                };
                // The first write of a transaction to a row knows what was there before, the last
                // one what the transaction left.
                let first = links.entry((part, key)).or_default().entry(commit.txn).or_insert(link);
                (first.value, first.inserts) = (link.value, first.inserts || link.inserts);
            }
        }
        let order = |links: &HashMap<Version, Link>| {
            let next: HashMap<Version, Version> = links.iter().map(|(txn, link)| (link.over, *txn)).collect();
            let mut at = 0;
            let chain = std::iter::from_fn(|| {
                at = *next.get(&at)?;
                Some(at)
            });
            chain.take(links.len()).collect()
        };
        let chains = links.iter().map(|(place, links)| (*place, order(links))).collect();
        Writes { links, chains }
    }

    fn chain(&self, place: &Place) -> &[Version] {
        self.chains.get(place).map_or(&[], Vec::as_slice)
    }

    fn value(&self, place: &Place, txn: Version) -> Option<u64> {
        self.links[place][&txn].value
    }

    /// Returns the transactions whose versions an operation has seen or depends on.
    fn needed(&self, txn: Version, operation: &Operation) -> Vec<Version> {
        match operation {
            Operation::Read { version, .. } => vec![*version],
            Operation::Miss { deleted_by, .. } => vec![*deleted_by],
            Operation::Scan { seen, gone, .. } => seen.iter().chain(gone).map(|(_, version)| *version).collect(),
            // An omitted write depends on the writes that replaced the version before it.
            Operation::Write { applied: Applied::Omitted, part, key, over, .. } => {
                let links = self.links.get(&(*part, *key)).into_iter().flatten();
                links.filter(|(_, link)| link.over == *over).map(|(txn, _)| *txn).collect()
            }
            // The write depends on the last insert before it; there is none if the row was there
            // when the life began.
            Operation::Write { part, key, insert: false, .. } | Operation::Delete { part, key, .. } => {
                let place = (*part, *key);
                let chain = self.chain(&place);
                let before = chain.iter().position(|of| *of == txn).unwrap_or(0);
                let inserts = |of: &&Version| self.links[&place][of].inserts;
                chain[..before].iter().rev().find(inserts).copied().into_iter().collect()
            }
            Operation::Write { over, .. } => vec![*over],
        }
    }
}

impl Past {
    /// Explains the rows that were found by the transactions that committed since the last crash,
    /// and makes those that are there a part of the past. Returns their number.
    ///
    /// # Errors
    /// No set of transactions explains the rows; in words.
    pub(super) fn explain(
        &mut self,
        committed: Vec<Committed>,
        acknowledged: &BTreeSet<Version>,
        found: Cells,
    ) -> Result<usize, String> {
        let writes = Writes::of(&committed);
        let there = self.find(&writes, &committed, acknowledged, &found)?;
        let count = there.len();
        self.go_on(&writes, committed, &there);
        self.rows = found;
        Ok(count)
    }

    /// Checks that some of the transactions that committed by the end of the life explain the rows
    /// that a crash at an earlier moment would have left.
    ///
    /// # Errors
    /// No set of transactions explains the rows; in words.
    pub(super) fn explains(
        &self,
        committed: &[Committed],
        acknowledged: &BTreeSet<Version>,
        found: &Cells,
    ) -> Result<(), String> {
        self.find(&Writes::of(committed), committed, acknowledged, found).map(|_| ())
    }

    /// Returns the smallest set of transactions that explains the rows.
    fn find(
        &self,
        writes: &Writes,
        committed: &[Committed],
        acknowledged: &BTreeSet<Version>,
        found: &Cells,
    ) -> Result<BTreeSet<Version>, String> {
        let by_number: HashMap<Version, &Committed> = committed.iter().map(|commit| (commit.txn, commit)).collect();
        let mut there = BTreeSet::new();
        let add = |there: &mut BTreeSet<Version>, txn: Version| {
            let mut open = vec![txn];
            while let Some(txn) = open.pop() {
                let Some(commit) = by_number.get(&txn) else { continue };
                if there.insert(txn) {
                    open.extend(commit.operations.iter().flat_map(|operation| writes.needed(txn, operation)));
                }
            }
        };
        acknowledged.iter().for_each(|txn| add(&mut there, *txn));
        loop {
            let mut missing = None;
            for place in self.rows.keys().chain(writes.chains.keys()).chain(found.keys()) {
                let chain = writes.chain(place);
                let last = chain.iter().rposition(|txn| there.contains(txn));
                let expected = match last {
                    Some(last) => writes.value(place, chain[last]),
                    None => self.rows.get(place).copied().flatten(),
                };
                let value = found.get(place).copied().flatten();
                if value == expected {
                    continue;
                }
                let from = last.map_or(0, |last| last + 1);
                match chain[from..].iter().find(|txn| writes.value(place, **txn) == value) {
                    Some(txn) => missing = Some(*txn),
                    None => {
                        let (part, key) = place;
                        let writer = match last {
                            Some(last) => format!("transaction {}", chain[last]),
                            None => "loading, or a transaction before the last crash".to_owned(),
                        };
                        let state = if value.is_none() { "is not there" } else { "has other contents" };
                        return Err(format!(
                            "row {key:x?} of table {} {state}: the last to write it was {writer}, which was acknowledged, or is \
                             seen by a transaction that is there; acknowledged are {acknowledged:?}, there are {there:?}",
                            part.table
                        ));
                    }
                }
            }
            match missing {
                Some(txn) => add(&mut there, txn),
                None => return Ok(there),
            }
        }
    }

    /// Makes the transactions that are there a part of the past.
    fn go_on(&mut self, writes: &Writes, committed: Vec<Committed>, there: &BTreeSet<Version>) {
        let is_in_order = |operation: &Operation| !matches!(operation, Operation::Write { applied, .. } if *applied != Applied::InOrder);
        let mut staying: Vec<Committed> = committed.into_iter().filter(|commit| there.contains(&commit.txn)).collect();
        self.is_inexact |= !staying.iter().flat_map(|commit| &commit.operations).all(is_in_order);
        let numbers: HashMap<Version, Version> =
            staying.iter().map(|commit| commit.txn).zip(self.history.len() as u64 + 1..).collect();
        for commit in &mut staying {
            for operation in &mut commit.operations {
                self.renumber(commit.txn, operation, writes, &numbers);
            }
            commit.txn = numbers[&commit.txn];
        }
        for (place, chain) in &writes.chains {
            if let Some(last) = chain.iter().rev().find(|txn| there.contains(txn)) {
                let has_deleted = writes.value(place, *last).is_none();
                self.writers.insert(*place, Writer { txn: numbers[last], has_deleted });
            }
        }
        self.history.extend(staying);
    }

    /// Replaces the numbers of transactions in an operation of `txn` by their new numbers. A
    /// version that was there when the life began gets the number of its writer in an earlier life.
    fn renumber(&self, txn: Version, operation: &mut Operation, writes: &Writes, numbers: &HashMap<Version, Version>) {
        let before = |place: &Place| self.writers.get(place).map_or(0, |writer| writer.txn);
        // A transaction that is there has seen only transactions that are there.
        let number = |place: &Place, version: Version| match version {
            0 => before(place),
            version => numbers.get(&version).copied().unwrap_or(version),
        };
        match operation {
            Operation::Read { part, key, version, .. } | Operation::Miss { part, key, deleted_by: version } => {
                *version = number(&(*part, *key), *version);
            }
            // The version that it replaced may be undone. Then it replaced, in effect, the last
            // version before that which is there.
            Operation::Write { part, key, over, .. } | Operation::Delete { part, key, over } => {
                let place = (*part, *key);
                let chain = writes.chain(&place);
                let position = chain.iter().position(|of| *of == txn).unwrap_or(0);
                let last = chain[..position].iter().rev().find_map(|of| numbers.get(of));
                *over = last.copied().unwrap_or_else(|| before(&place));
            }
            Operation::Scan { part, low, high, seen, gone, own } => {
                // The engine does not know the rows that were deleted before the crash, so the scan
                // does not name them.
                let range = self.writers.range((*part, *low)..=(*part, *high));
                let deleted =
                    range.filter(|(_, writer)| writer.has_deleted).map(|((_, key), writer)| (*key, writer.txn));
                let is_named =
                    |key: &KeyWords| seen.iter().chain(gone.iter()).any(|(named, _)| named == key) || own.contains(key);
                let forgotten: Vec<_> = deleted.filter(|(key, _)| !is_named(key)).collect();
                for (key, version) in seen.iter_mut().chain(gone.iter_mut()) {
                    *version = number(&(*part, *key), *version);
                }
                gone.extend(forgotten);
            }
        }
    }

    /// Returns the history of all transactions that are there, from the first life on; `None` if it
    /// can't be told exactly.
    pub(super) fn recorded(&mut self, engine: &Engine<Erased<Simulated>, Simulated>) -> Option<Recorded> {
        if self.is_inexact {
            return None;
        }
        let names: BTreeMap<Part, String> = engine.parts().into_iter().collect();
        let (mut recorded, keys) = recorded_with_keys(engine, std::mem::take(&mut self.history));
        let final_state = keys.iter().filter(|place| self.rows.contains_key(place)).map(|place| {
            let (part, key) = place;
            let writer = self.writers.get(place).map_or(0, |writer| writer.txn);
            (names[part].clone(), engine.key_name(part.table, key), writer)
        });
        recorded.final_state = final_state.collect();
        Some(recorded)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: Part = Part { table: 0, cell: 0 };
    const KEY: KeyWords = [3, 0, 0, 0];

    fn write(over: Version, insert: bool, value: Option<u64>) -> Operation {
        Operation::Write { part: PART, key: KEY, over, insert, applied: Applied::InOrder, value }
    }

    fn committed(txn: Version, operations: Vec<Operation>) -> Committed {
        Committed { txn, worker: 0, operations }
    }

    fn found_of(value: Option<u64>) -> Cells {
        Cells::from([((PART, KEY), value)])
    }

    /// A transaction inserts a row and updates it: both writes together are an insert, and not an
    /// update of a row that was there before.
    #[test]
    fn a_write_depends_on_an_insert_that_its_transaction_has_updated_at_once() {
        let inserts = committed(1, vec![write(0, true, None), write(0, false, Some(10))]);
        let overwrites = committed(2, vec![write(1, false, Some(20))]);
        let all = [inserts, overwrites];
        let there = |found, acknowledged: &[Version]| {
            let acknowledged = acknowledged.iter().copied().collect();
            Past::default().find(&Writes::of(&all), &all, &acknowledged, &found)
        };
        assert_eq!(there(found_of(Some(20)), &[]), Ok(BTreeSet::from([1, 2])));
        assert_eq!(there(found_of(Some(10)), &[]), Ok(BTreeSet::from([1])));
        assert_eq!(there(Cells::new(), &[]), Ok(BTreeSet::new()));
        assert!(there(Cells::new(), &[2]).is_err(), "what was acknowledged is lost");
        assert!(there(found_of(Some(30)), &[]).is_err(), "no transaction wrote that");
    }
}
