//! The serial oracle: runs committed transactions again, one at a time, over a plain ordered map.
//!
//! If the transactions are serializable in the order given, then each read, each miss and each scan
//! finds here exactly what it found in the run, and the state at the end is the run's. What this
//! finds and the dependency graph does not: values that are wrong though their versions are right,
//! and a final state that lacks a committed write.
//!
//! Initially the map has a row for each key of which any operation saw or overwrote version 0.
//! Loaded rows that no operation met are not in it: no scan's range covers them, or the scan would
//! have met them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use serde::Serialize;

use crate::commute::{Commuting, Group};
use crate::key_order::KeyOrder;
use crate::model::{History, ItemId, Op, Scan, State, TableId, Value};

/// The first operation that found something else than the serial run does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The transaction; none: the final state differs.
    pub txn: Option<u64>,
    /// Which of its operations, from 0.
    pub op: Option<usize>,
    /// The table.
    pub table: Box<str>,
    /// The key.
    pub key: Box<str>,
    /// What the serial run has.
    pub expected: Box<str>,
    /// What the history has.
    pub found: Box<str>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { table, key, expected, found, .. } = self;
        match (self.txn, self.op) {
            (Some(txn), Some(op)) => write!(f, "T{txn}, operation {}, {table}/{key}", op + 1)?,
            _ => write!(f, "final state, {table}/{key}")?,
        }
        write!(f, ": expected {expected}, found {found}")
    }
}

impl std::error::Error for Divergence {}

/// Replays the transactions in `order` (places in the history) and compares what every operation
/// found.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// If `order` does not name every transaction once.
pub fn replay(history: &History, order: &[usize]) -> Result<(), Divergence> {
    Replay::run(history, order).map(drop)
}

/// As [`replay`], and compares the state at the end with `final_state`: every row as table, key and
/// version, in any order. Rows of version 0 that no operation met may be in it or not.
///
/// # Errors
/// The first difference.
///
/// # Panics
/// If `order` does not name every transaction once.
pub fn replay_to<T: AsRef<str>, K: AsRef<str>>(
    history: &History,
    order: &[usize],
    final_state: impl IntoIterator<Item = (T, K, u64)>,
) -> Result<(), Divergence> {
    Replay::run(history, order)?.compare(final_state)
}

/// Where a row is: rows of one table are in key order.
type RowPlace = (TableId, u32, ItemId);

#[derive(Clone)]
struct Row {
    version: u64,
    /// The row written last, if its value is known.
    value: Option<Value>,
    /// Whether its writer found no row.
    is_insert: bool,
    /// Of a write that was omitted: the row that it is in the place of until the next write. To be
    /// read by nobody else.
    instead_of: Option<Box<Row>>,
    /// The group of writes that commute of which some were the last to be applied, and how many.
    group: Option<(usize, usize)>,
}

/// The transactions that may be called the deleter of a key, and the last of them.
struct Deleters {
    all: HashSet<u64>,
    last: u64,
}

impl Default for Deleters {
    fn default() -> Self {
        Deleters { all: HashSet::from([0]), last: 0 }
    }
}

struct Replay<'h> {
    history: &'h History,
    keys: KeyOrder,
    commuting: Commuting,
    omitted: HashSet<(ItemId, u64)>,
    rows: BTreeMap<RowPlace, Row>,
    /// The transactions that may be called the deleter of a key that has no row, or had none before
    /// its row was inserted. They are several if transactions inserted a row and deleted it again.
    /// 0 means that the key never existed, the default.
    deleters: HashMap<ItemId, Deleters>,
    /// By item: the last transaction that wrote it.
    last_writer: Vec<u64>,
    /// The transaction that runs, or [`NOBODY`] in the end.
    running: u64,
}

const NOBODY: u64 = u64::MAX;

/// A difference within one transaction: the operation's item, expected, found.
type Difference = (ItemId, String, String);

impl<'h> Replay<'h> {
    fn run(history: &'h History, order: &[usize]) -> Result<Self, Divergence> {
        let mut is_done = vec![false; history.transactions().len()];
        for &place in order {
            assert!(!std::mem::replace(&mut is_done[place], true), "the order names transaction {place} twice");
        }
        assert_eq!(order.len(), is_done.len(), "the order names every transaction");
        let mut replay = Self::load(history);
        for &place in order {
            let transaction = &history.transactions()[place];
            replay.running = transaction.txn;
            for (op, operation) in transaction.ops.iter().enumerate() {
                replay.apply(operation).map_err(|(item, expected, found)| {
                    replay.divergence(Some((transaction.txn, op)), item, expected, found)
                })?;
            }
        }
        replay.running = NOBODY;
        let lost = replay.rows.iter().find(|(_, row)| row.instead_of.is_some()).map(|(&(_, _, item), _)| item);
        match lost.map(|item| replay.lost(item)) {
            Some((item, expected, found)) => Err(replay.divergence(None, item, expected, found)),
            None => Ok(replay),
        }
    }

    fn load(history: &'h History) -> Self {
        let mut replay = Self {
            history,
            keys: KeyOrder::new(history),
            commuting: Commuting::new(history),
            omitted: history.omitted(),
            rows: BTreeMap::new(),
            deleters: HashMap::new(),
            last_writer: vec![0; history.item_count()],
            running: 0,
        };
        for transaction in history.transactions() {
            for op in &transaction.ops {
                replay.load_met(transaction.txn, op);
            }
        }
        replay.last_writer.fill(0);
        replay
    }

    /// Puts the rows in place of which the operation saw or overwrote version 0.
    fn load_met(&mut self, txn: u64, op: &Op) {
        match op {
            Op::Read { item, seen: State::Version(0), .. } => self.load_row(*item),
            Op::Write { item, over, .. } => {
                // What a later write of the transaction calls overwritten is not looked at.
                let is_first = std::mem::replace(&mut self.last_writer[item.index()], txn) != txn;
                if is_first && *over == State::Version(0) {
                    self.load_row(*item);
                }
            }
            Op::Scan(scan) => {
                scan.seen.iter().filter(|(_, version)| *version == 0).for_each(|(item, _)| self.load_row(*item));
            }
            Op::Read { .. } => {}
        }
    }

    fn load_row(&mut self, item: ItemId) {
        self.rows
            .insert(self.place(item), Row { version: 0, value: None, is_insert: false, instead_of: None, group: None });
    }

    fn place(&self, item: ItemId) -> RowPlace {
        (self.history.item_table(item), self.keys.rank(item), item)
    }

    fn divergence(&self, place: Option<(u64, usize)>, item: ItemId, expected: String, found: String) -> Divergence {
        Divergence {
            txn: place.map(|(txn, _)| txn),
            op: place.map(|(_, op)| op),
            table: self.history.table_name(self.history.item_table(item)).into(),
            key: self.history.item_key(item).into(),
            expected: expected.into(),
            found: found.into(),
        }
    }

    fn apply(&mut self, op: &Op) -> Result<(), Difference> {
        match op {
            Op::Read { item, seen, value } => {
                self.compare_state(*item, *seen)?;
                value.as_ref().map_or(Ok(()), |value| self.compare_value(*item, value))
            }
            Op::Write { item, over, delete, value, .. } => {
                let is_first = self.last_writer[item.index()] != self.running;
                match self.commuting.group(*item, self.running) {
                    Some((number, group)) => {
                        let group = group.clone();
                        self.update(*item, number, &group, is_first, value.clone())?;
                    }
                    None => {
                        if is_first {
                            self.compare_overwritten(*item, *over)?;
                        }
                        let is_omitted = self.omitted.contains(&(*item, self.running));
                        self.write(*item, *delete, is_omitted, value.clone());
                    }
                }
                self.last_writer[item.index()] = self.running;
                Ok(())
            }
            Op::Scan(scan) => self.compare_scan(scan),
        }
    }

    fn write(&mut self, item: ItemId, delete: bool, is_omitted: bool, value: Option<Value>) {
        let (txn, place) = (self.running, self.place(item));
        let old = self.rows.get(&place);
        let own = old.filter(|row| row.version == txn);
        if delete {
            let found_absent = own.map_or(old.is_none(), |row| row.is_insert);
            let deleters = self.deleters.entry(item).or_default();
            if !found_absent {
                deleters.all.clear();
            }
            deleters.all.insert(txn);
            deleters.last = txn;
            self.rows.remove(&place);
        } else {
            let is_insert = own.map_or(old.is_none(), |row| row.is_insert);
            let instead_of =
                old.filter(|_| is_omitted).map(|old| old.instead_of.clone().unwrap_or(Box::new(old.clone())));
            self.rows.insert(place, Row { version: txn, value, is_insert, instead_of, group: None });
        }
    }

    /// A write that commutes: one of a group, in whatever order.
    fn update(
        &mut self,
        item: ItemId,
        number: usize,
        group: &Group,
        is_first: bool,
        value: Option<Value>,
    ) -> Result<(), Difference> {
        let place = self.place(item);
        let row = self.rows.get(&place);
        let applied = row.and_then(|row| row.group).filter(|(of, _)| *of == number).map(|(_, applied)| applied);
        if applied.is_none() {
            if row.is_some_and(|row| row.instead_of.is_some()) {
                return Err(self.lost(item));
            }
            self.compare_overwritten(item, group.base)?;
        }
        let applied = applied.unwrap_or(0) + usize::from(is_first);
        // What the last has left when all were applied.
        let value = value.filter(|_| applied == group.size && group.last == self.running);
        self.rows.insert(
            place,
            Row { version: self.running, value, is_insert: false, instead_of: None, group: Some((number, applied)) },
        );
        Ok(())
    }

    /// Whether the row is what the transaction has left.
    fn is_version(&self, item: ItemId, row: &Row, version: u64) -> bool {
        if row.instead_of.is_some() && self.last_writer[item.index()] != self.running {
            return false;
        }
        match (row.group, self.commuting.group(item, row.version)) {
            (Some((_, applied)), Some((_, group))) if self.last_writer[item.index()] != self.running => {
                version == group.last && applied == group.size
            }
            _ => row.version == version,
        }
    }

    /// A write that was omitted, and the next is none that may replace it unseen.
    fn lost(&self, item: ItemId) -> Difference {
        (item, self.describe(item), "nothing of it".to_owned())
    }

    fn compare_overwritten(&self, item: ItemId, over: State) -> Result<(), Difference> {
        let row = self.rows.get(&self.place(item));
        if let Some(before) = row.and_then(|row| row.instead_of.as_deref()) {
            let agrees = matches!(over, State::Version(version) if self.is_version(item, before, version));
            return if agrees { Ok(()) } else { Err((item, before.version.to_string(), over.to_string())) };
        }
        match over {
            _ if self.omitted.contains(&(item, self.running)) => self.compare_state(item, over),
            // Some systems call an insert over a deleted version a write over it.
            State::Version(version) if !self.rows.contains_key(&self.place(item)) => {
                self.compare_state(item, State::deleted_by(version))
            }
            _ => self.compare_state(item, over),
        }
    }

    fn compare_state(&self, item: ItemId, found: State) -> Result<(), Difference> {
        let row = self.rows.get(&self.place(item));
        let may_be_by = |deleter| self.deleters.get(&item).map_or(deleter == 0, |known| known.all.contains(&deleter));
        let agrees = match (row, found) {
            (Some(row), State::Version(version)) => self.is_version(item, row, version),
            (None, State::Absent) => true,
            // Of a key that the transaction itself deleted, whatever it says of older deletes is as
            // good.
            (None, State::DeletedBy(_) | State::NeverExisted) if self.last_writer[item.index()] == self.running => true,
            (None, State::NeverExisted) => may_be_by(0),
            (None, State::DeletedBy(deleter)) => may_be_by(deleter),
            _ => false,
        };
        if agrees { Ok(()) } else { Err((item, self.describe(item), found.to_string())) }
    }

    fn describe(&self, item: ItemId) -> String {
        let deleter = self.deleters.get(&item).map(|deleters| deleters.last);
        match (self.rows.get(&self.place(item)), deleter) {
            (Some(row), _) => State::Version(row.version).to_string(),
            (None, Some(deleter)) => State::deleted_by(deleter).to_string(),
            (None, None) => State::NeverExisted.to_string(),
        }
    }

    fn compare_value(&mut self, item: ItemId, found: &Value) -> Result<(), Difference> {
        let place = self.place(item);
        let Some(row) = self.rows.get_mut(&place) else {
            return Err((item, "no row".to_owned(), format!("value {found}")));
        };
        match &row.value {
            Some(value) if value != found => {
                Err((item, format!("value {value} of version {}", row.version), format!("value {found}")))
            }
            Some(_) => Ok(()),
            // The first read of a row of unknown value says what it is.
            None => {
                row.value = Some(found.clone());
                Ok(())
            }
        }
    }

    fn compare_scan(&self, scan: &Scan) -> Result<(), Difference> {
        let mut seen = BTreeMap::new();
        for &(item, version) in &scan.seen {
            if let Some(other) = seen.insert(item, version) {
                return Err((item, "one row".to_owned(), format!("two, versions {other} and {version}")));
            }
            if !self.keys.contains(scan, item) {
                return Err((item, "only keys of the range".to_owned(), State::Version(version).to_string()));
            }
            self.compare_state(item, State::Version(version))?;
        }
        for &(item, deleter) in &scan.gone {
            self.compare_state(item, State::deleted_by(deleter))?;
        }
        let low = scan.low.map_or(0, |low| self.keys.rank(low));
        let high = scan.high.map_or(u32::MAX, |high| self.keys.rank(high));
        if low > high {
            return Ok(());
        }
        let first = (scan.table, low, ItemId::from_index(0));
        let last = (scan.table, high, ItemId::from_index(u32::MAX as usize));
        match self.rows.range(first..=last).find(|((_, _, item), _)| !seen.contains_key(item)) {
            Some(((_, _, item), row)) => Err((*item, State::Version(row.version).to_string(), "no row".to_owned())),
            None => Ok(()),
        }
    }

    fn compare<T: AsRef<str>, K: AsRef<str>>(
        mut self,
        final_state: impl IntoIterator<Item = (T, K, u64)>,
    ) -> Result<(), Divergence> {
        for (table, key, version) in final_state {
            let (table, key) = (table.as_ref(), key.as_ref());
            let found = State::Version(version).to_string();
            let Some(item) = self.history.find_item(table, key) else {
                if version == 0 {
                    continue;
                }
                let (table, key) = (table.into(), key.into());
                let (expected, found) = (State::NeverExisted.to_string().into(), found.into());
                return Err(Divergence { txn: None, op: None, table, key, expected, found });
            };
            self.compare_state(item, State::Version(version))
                .map_err(|(item, expected, _)| self.divergence(None, item, expected, found))?;
            self.rows.remove(&self.place(item));
        }
        match self.rows.first_key_value() {
            None => Ok(()),
            Some((&(_, _, item), row)) => {
                let expected = State::Version(row.version).to_string();
                Err(self.divergence(None, item, expected, State::Absent.to_string()))
            }
        }
    }
}
