//! Which transactions are there after a crash.
//!
//! There has to be a set of transactions that explains all rows: it has every transaction that was
//! acknowledged, and every one whose writes another of the set has seen, and each row is as the
//! last of the set left it that wrote it, in the order of its versions. The least such set is
//! looked for: first what was acknowledged; then, as long as a row differs, the next that could
//! have left it as it is; and always what these have seen. If a row differs and nothing could have
//! left it so, it was lost, or is there without what it depends on.
//!
//! What is not in the set never was: those who come after the crash see what those of the set have
//! left. So their histories, one after the other, are one history, which is checked as any other
//! ([`Past::recorded`]).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use contend_engine::history::{Applied, Committed, Operation, Part, Version, fingerprint};
use contend_engine::{Engine, Erased, KeyWords};
use contend_log::Recovered;
use contend_sim::Simulated;

use contend_judge::{Recorded, recorded_with_keys};

/// A part of a row.
type Place = (Part, KeyWords);

/// Fingerprints of the rows that there are.
pub(super) type Cells = BTreeMap<Place, Option<u64>>;

/// What a transaction did to a row, or a part of one.
#[derive(Clone, Copy, Debug)]
struct Link {
    /// Whose version it replaced; 0: nobody's.
    over: Version,
    /// The fingerprint of what it left; none: it has deleted it.
    value: Option<u64>,
    /// Whether there was nothing before.
    inserts: bool,
}

/// Who has written a place last.
#[derive(Clone, Copy, Debug)]
struct Writer {
    txn: Version,
    has_deleted: bool,
}

/// What there was before the last crash.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The rows.
    pub(super) rows: Cells,
    /// All transactions that are there, numbered anew from 1.
    history: Vec<Committed>,
    writers: BTreeMap<Place, Writer>,
    /// Some writes are not where their number of versions says, and the history is not kept: these
    /// may have been put before others, or left out.
    is_inexact: bool,
}

/// All rows that were recovered, in the parts that the engine knows of.
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

/// What transactions did to the places that they wrote.
struct Writes {
    links: BTreeMap<Place, HashMap<Version, Link>>,
    /// The versions of each place, in their order.
    chains: BTreeMap<Place, Vec<Version>>,
}

impl Writes {
    fn of(committed: &[Committed]) -> Self {
        let mut links: BTreeMap<Place, HashMap<Version, Link>> = BTreeMap::new();
        for commit in committed {
            for operation in &commit.operations {
                let (part, key, link) = match *operation {
                    // It has left nothing.
                    Operation::Write { applied: Applied::Omitted, .. } => continue,
                    Operation::Write { part, key, over, value, insert, .. } => {
                        (part, key, Link { over, value, inserts: insert })
                    }
                    Operation::Delete { part, key, over } => (part, key, Link { over, value: None, inserts: false }),
                    _ => continue,
                };
                // Of a transaction's writes of a row, the first says what was there before, and the
                // last what it left.
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

    /// Whose versions an operation has seen, or counts on.
    fn needed(&self, txn: Version, operation: &Operation) -> Vec<Version> {
        match operation {
            Operation::Read { version, .. } => vec![*version],
            Operation::Miss { deleted_by, .. } => vec![*deleted_by],
            Operation::Scan { seen, gone, .. } => seen.iter().chain(gone).map(|(_, version)| *version).collect(),
            // What was left out counts on what replaced the version before it.
            Operation::Write { applied: Applied::Omitted, part, key, over, .. } => {
                let links = self.links.get(&(*part, *key)).into_iter().flatten();
                links.filter(|(_, link)| link.over == *over).map(|(txn, _)| *txn).collect()
            }
            // There was a row: somebody has inserted it, or it was there at first.
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
    /// Explains what was found by those that have committed since, of which these were
    /// acknowledged; how many are there.
    ///
    /// # Errors
    /// Nothing explains it.
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

    /// Whether what would have been found at a moment before is explained by some of those that
    /// have committed in the end.
    ///
    /// # Errors
    /// Nothing explains it.
    pub(super) fn explains(
        &self,
        committed: &[Committed],
        acknowledged: &BTreeSet<Version>,
        found: &Cells,
    ) -> Result<(), String> {
        self.find(&Writes::of(committed), committed, acknowledged, found).map(|_| ())
    }

    /// The transactions that are there.
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
                        let who = last.map_or("loading".to_owned(), |last| format!("transaction {}", chain[last]));
                        let what = if value.is_none() { "is not there" } else { "is another" };
                        return Err(format!(
                            "row {key:x?} of table {} {what}: {who} left it, which was acknowledged, or is seen by what is there; \
                             acknowledged were {acknowledged:?}, there are {there:?}",
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

    /// Those that are there become a part of the past.
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

    /// Has an operation of this transaction name others by their new numbers; and by those of
    /// before the crash what was there in the beginning.
    fn renumber(&self, txn: Version, operation: &mut Operation, writes: &Writes, numbers: &HashMap<Version, Version>) {
        let before = |place: &Place| self.writers.get(place).map_or(0, |writer| writer.txn);
        // Of what is there, nothing has seen what is not.
        let number = |place: &Place, version: Version| match version {
            0 => before(place),
            version => numbers.get(&version).copied().unwrap_or(version),
        };
        match operation {
            Operation::Read { part, key, version, .. } | Operation::Miss { part, key, deleted_by: version } => {
                *version = number(&(*part, *key), *version);
            }
            // What it replaced may not be there: then it is as if it had replaced what was there
            // before that.
            Operation::Write { part, key, over, .. } | Operation::Delete { part, key, over } => {
                let place = (*part, *key);
                let chain = writes.chain(&place);
                let position = chain.iter().position(|of| *of == txn).unwrap_or(0);
                let last = chain[..position].iter().rev().find_map(|of| numbers.get(of));
                *over = last.copied().unwrap_or_else(|| before(&place));
            }
            Operation::Scan { part, low, high, seen, gone, own } => {
                // The engine knows nothing of what was deleted before the crash.
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

    /// The history of all that is there, from the beginning; none, if a part of it can't be told
    /// exactly.
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

    /// A crash test took the insert for an update of a row that was there from the beginning.
    #[test]
    fn a_write_counts_on_an_insert_that_its_transaction_has_changed_at_once() {
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
        assert!(there(found_of(Some(30)), &[]).is_err(), "nobody wrote that");
    }
}
