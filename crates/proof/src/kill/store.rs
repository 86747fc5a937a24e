//! The tables and transactions of a kill test, and the check of the rows that a recovery finds.
//!
//! All transactions are drawn from a seed: the `n`th transaction of a thread is the same in every
//! process. Each changes two keys, and writes its own number to its thread's row. So the threads'
//! rows tell which transactions are there, and from these every other row follows:
//!
//! | table | row of a key | must be |
//! | --- | --- | --- |
//! | `threads` | the number of the thread's last transaction | at least the last acknowledged one, at most the last that can have begun |
//! | `versions` | the number of transactions that changed the key, the last of them, and whether it left a row in `rows` | the number of transactions that are there |
//! | `rows` | the same version; but the row is deleted and inserted, replaced and changed | equal to the row in `versions`, or absent |
//! | `sums` | a sum; transactions add to it without a read | the sum over the transactions that are there |
//!
//! A lost insert or delete, a row that has come back, a lost update and a torn transaction each
//! break one of these. A transaction that is there without one that it depends on breaks the count
//! of versions.

use contend_model::{counted, is_or_are};
use std::collections::BTreeMap;

use contend_derive::Row;
use contend_engine::{Abort, Declaration, Engine, IndexKind, Key, Protocol, Row, TableSpec, Txn, TypedTable};
use contend_log::Recovered;
use contend_machine::Native;
use serde::{Deserialize, Serialize};

use contend_model::random::SplitMix64;

/// The numbers of keys and threads, and the seed of all choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scale {
    /// Keys, 2 to 1000000.
    pub keys: u64,
    /// Threads, 1 to 256.
    pub threads: u64,
    /// The seed of the transactions.
    pub seed: u64,
    /// Whether the index is ordered. Otherwise it is a hash index.
    pub ordered: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Row)]
#[repr(C)]
pub(super) struct ThreadRow {
    last: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Row)]
#[repr(C)]
pub(super) struct Version {
    count: u64,
    is_there: u64,
    thread: u64,
    number: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Row)]
#[repr(C)]
pub(super) struct Item {
    count: u64,
    thread: u64,
    #[group = 1]
    number: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Row)]
#[repr(C)]
pub(super) struct Sum {
    sum: u64,
}

/// The tables, in the order of their numbers.
pub(super) struct Tables {
    threads: TypedTable<ThreadRow>,
    versions: TypedTable<Version>,
    rows: TypedTable<Item>,
    sums: TypedTable<Sum>,
}

const THREADS: &str = "threads";
const VERSIONS: &str = "versions";
const ROWS: &str = "rows";
const SUMS: &str = "sums";

/// What a transaction does to the row of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Inserts the row if it is absent, otherwise deletes it.
    Toggle,
    /// Deletes the row if it is there, and inserts it.
    Renew,
    /// Reads and changes the row if it is there, otherwise inserts it.
    Modify,
    /// Replaces the row unread if it is there, otherwise inserts it.
    Replace,
    /// Inserts the row if it is absent, and deletes it.
    Vanish,
}

/// What a transaction does to a key.
#[derive(Clone, Copy, Debug)]
struct Change {
    key: u64,
    kind: Kind,
    amount: u64,
}

/// A transaction of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct TransactionPlan {
    pub(super) thread: u64,
    /// Its number in its thread, from 1.
    pub(super) number: u64,
    changes: [Change; 2],
    /// Whether it runs once before, and cancels itself at its end.
    pub(super) is_cancelled_first: bool,
}

impl TransactionPlan {
    pub(super) fn new(scale: &Scale, thread: u64, number: u64) -> Self {
        let mut random = SplitMix64::new(scale.seed ^ SplitMix64::new(thread << 40 | number).draw());
        let one = random.below(scale.keys);
        let two = (one + 1 + random.below(scale.keys - 1)) % scale.keys;
        let mut change = |key| {
            let kind = match random.below(16) {
                0..9 => Kind::Toggle,
                9..11 => Kind::Renew,
                11..13 => Kind::Modify,
                13..15 => Kind::Replace,
                _ => Kind::Vanish,
            };
            Change { key, kind, amount: random.below(1000) }
        };
        // All transactions change their keys in one order, so that deadlocks are rare.
        let changes = [change(one.min(two)), change(one.max(two))];
        TransactionPlan { thread, number, changes, is_cancelled_first: random.one_in(16) }
    }

    pub(super) fn declare(&self, tables: &Tables, declaration: &mut Declaration<Native>) {
        declaration.partition(0);
        declaration.row(&tables.threads, self.thread, true);
        for change in &self.changes {
            declaration.row(&tables.versions, change.key, true);
            declaration.row(&tables.rows, change.key, true);
            declaration.row(&tables.sums, change.key, true);
        }
    }

    pub(super) fn execute<T: Txn>(&self, tx: &mut T, tables: &Tables) -> Result<(), Abort> {
        let TransactionPlan { thread, number, .. } = *self;
        for &Change { key, kind, amount } in &self.changes {
            let change = |version: &mut Version| {
                let was_there = version.is_there != 0;
                let is_there = match kind {
                    Kind::Toggle => !was_there,
                    Kind::Renew | Kind::Modify | Kind::Replace => true,
                    Kind::Vanish => false,
                };
                *version = Version { count: version.count + 1, is_there: u64::from(is_there), thread, number };
                (was_there, version.count)
            };
            // Every key's version was loaded. If one is missing, the check of the recovered rows
            // finds this change missing.
            let Some((was_there, count)) = tx.modify(&tables.versions, key, change)? else { continue };
            let row = Item { count, thread, number };
            // The results are ignored: a row in a wrong state fails the check of the recovered
            // rows.
            match (kind, was_there) {
                (Kind::Toggle, true) => _ = tx.delete(&tables.rows, key)?,
                (Kind::Renew, true) => {
                    tx.delete(&tables.rows, key)?;
                    tx.insert(&tables.rows, key, row)?;
                }
                (Kind::Modify, true) => _ = tx.modify(&tables.rows, key, |found| *found = row)?,
                (Kind::Replace, true) => _ = tx.write(&tables.rows, key, row)?,
                (Kind::Vanish, was_there) => {
                    if !was_there {
                        tx.insert(&tables.rows, key, row)?;
                    }
                    tx.delete(&tables.rows, key)?;
                }
                (_, false) => _ = tx.insert(&tables.rows, key, row)?,
            }
            tx.update(&tables.sums, key, Sum::SUM.add(amount))?;
        }
        tx.write(&tables.threads, thread, ThreadRow { last: number })?;
        Ok(())
    }
}

impl Tables {
    pub(super) fn create<P: Protocol<Native>>(scale: &Scale, engine: &Engine<P, Native>) -> Self {
        let index = if scale.ordered { IndexKind::Ordered } else { IndexKind::Hash };
        let keys = scale.keys as usize;
        let threads = TableSpec::of::<ThreadRow>(THREADS, index, scale.threads as usize);
        Tables {
            threads: TypedTable::new(engine.create_table(&threads)),
            versions: TypedTable::new(engine.create_table(&TableSpec::of::<Version>(VERSIONS, index, keys))),
            rows: TypedTable::new(engine.create_table(&TableSpec::of::<Item>(ROWS, index, keys))),
            sums: TypedTable::new(engine.create_table(&TableSpec::of::<Sum>(SUMS, index, keys))),
        }
    }

    /// Loads the rows that every database begins with, except those that are there already.
    pub(super) fn load<P: Protocol<Native>>(
        &self,
        scale: &Scale,
        loader: &mut contend_engine::Loader<P, Native>,
    ) -> Result<(), contend_engine::OutOfMemory> {
        for thread in 0..scale.threads {
            loader.insert(&self.threads, thread, |_| ())?;
        }
        for key in 0..scale.keys {
            loader.insert(&self.versions, key, |_| ())?;
            loader.insert(&self.sums, key, |_| ())?;
        }
        Ok(())
    }
}

/// All rows that a recovery found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    threads: BTreeMap<u64, ThreadRow>,
    versions: BTreeMap<u64, Version>,
    rows: BTreeMap<u64, Item>,
    sums: BTreeMap<u64, Sum>,
}

impl State {
    pub(super) fn of(recovered: &Recovered) -> Self {
        let mut state = State::default();
        for table in &recovered.tables {
            fn rows<R: Row>(table: &contend_log::RecoveredTable) -> BTreeMap<u64, R> {
                let row = |words: &[u64]| {
                    let mut words = words.to_vec();
                    *R::from_words_mut(&mut words)
                };
                table.rows().map(|(key, words)| (u64::from_words(key), row(words))).collect()
            }
            match table.schema.name.as_str() {
                THREADS => state.threads = rows(table),
                VERSIONS => state.versions = rows(table),
                ROWS => state.rows = rows(table),
                SUMS => state.sums = rows(table),
                _ => {}
            }
        }
        state
    }

    /// Returns, for each thread, the number of its last transaction that is there.
    pub(super) fn last(&self, scale: &Scale) -> Vec<u64> {
        (0..scale.threads).map(|thread| self.threads.get(&thread).map_or(0, |row| row.last)).collect()
    }
}

/// The rows that must be there, from the transactions that were there after the kills so far.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    scale: Scale,
    last: Vec<u64>,
    counts: Vec<u64>,
    sums: Vec<u64>,
}

impl Expected {
    pub(super) fn new(scale: Scale) -> Self {
        let zeros = vec![0; scale.keys as usize];
        Expected { last: vec![0; scale.threads as usize], counts: zeros.clone(), sums: zeros, scale }
    }

    /// Checks the rows that a recovery found. `acknowledged` has each thread's last acknowledged
    /// transaction; at most `window` later ones can have begun.
    ///
    /// # Errors
    /// The first difference, in words.
    pub(super) fn check(&mut self, state: &State, acknowledged: &[u64], window: u64) -> Result<(), String> {
        let last = state.last(&self.scale);
        for (thread, (&last, &acknowledged)) in last.iter().zip(acknowledged).enumerate() {
            // A transaction that an earlier recovery found is durable, acknowledged or not.
            let least = acknowledged.max(self.last[thread]);
            if last < least {
                return Err(format!(
                    "thread {thread}: transaction {least} was acknowledged, and the last that is there is {last}"
                ));
            }
            if last > least + window {
                return Err(format!(
                    "thread {thread}: transaction {last} is there, which had not begun: {acknowledged} was the last acknowledged"
                ));
            }
        }
        for (thread, last) in last.iter().enumerate() {
            for number in self.last[thread] + 1..=*last {
                for change in TransactionPlan::new(&self.scale, thread as u64, number).changes {
                    self.counts[change.key as usize] += 1;
                    self.sums[change.key as usize] += change.amount;
                }
            }
        }
        self.last = last;
        (0..self.scale.keys).try_for_each(|key| self.check_key(state, key))?;
        let strange = state.rows.keys().chain(state.versions.keys()).chain(state.sums.keys());
        match strange.copied().find(|key| *key >= self.scale.keys) {
            Some(key) => Err(format!("key {key} is there, which no transaction has written")),
            None => Ok(()),
        }
    }

    fn check_key(&self, state: &State, key: u64) -> Result<(), String> {
        let version = state.versions.get(&key).copied().unwrap_or_default();
        let Version { count, thread, number, .. } = version;
        let writer = format!("transaction {number} of thread {thread}");
        let expected = self.counts[key as usize];
        if count != expected {
            let state = if count < expected { "lost" } else { "there without one that it depends on" };
            return Err(format!(
                "key {key}: {} that {} there changed it, and its version is {count}, of {writer}: a write is {state}",
                counted(expected, "transaction"),
                is_or_are(expected)
            ));
        }
        match (version.is_there != 0, state.rows.get(&key)) {
            (true, None) => {
                return Err(format!("key {key}: its row is not there, which {writer} left as version {count}"));
            }
            (false, Some(row)) => {
                return Err(format!(
                    "key {key}: there is a row, of version {}, which {writer} deleted as version {count}",
                    row.count
                ));
            }
            (true, Some(row)) if *row != (Item { count, thread, number }) => {
                return Err(format!(
                    "key {key}: its row is of version {}, of transaction {} of thread {}, and {writer} left it as version {count}",
                    row.count, row.number, row.thread
                ));
            }
            _ => {}
        }
        let (sum, expected) = (state.sums.get(&key).copied().unwrap_or_default().sum, self.sums[key as usize]);
        if sum != expected {
            return Err(format!(
                "key {key}: its sum is {sum}, and the transactions that are there have added {expected}"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALE: Scale = Scale { keys: 3, threads: 2, seed: 7, ordered: false };

    /// Returns the state after the first `last` transactions of each thread, the threads one after
    /// the other.
    fn state(last: [u64; 2]) -> State {
        let mut state = State::default();
        for key in 0..SCALE.keys {
            state.versions.insert(key, Version::default());
            state.sums.insert(key, Sum::default());
        }
        for (thread, last) in (0..).zip(last) {
            state.threads.insert(thread, ThreadRow { last });
            for number in 1..=last {
                for Change { key, kind, amount } in TransactionPlan::new(&SCALE, thread, number).changes {
                    let version = state.versions.get_mut(&key).expect("loaded");
                    let is_there = match kind {
                        Kind::Toggle => version.is_there == 0,
                        Kind::Vanish => false,
                        _ => true,
                    };
                    let count = version.count + 1;
                    *version = Version { count, is_there: u64::from(is_there), thread, number };
                    state.sums.get_mut(&key).expect("loaded").sum += amount;
                    state.rows.remove(&key);
                    if is_there {
                        state.rows.insert(key, Item { count, thread, number });
                    }
                }
            }
        }
        state
    }

    fn wrong(state: &State, acknowledged: [u64; 2]) -> String {
        Expected::new(SCALE).check(state, &acknowledged, 4).expect_err("it is wrong")
    }

    #[test]
    fn what_is_right_passes() {
        let mut expected = Expected::new(SCALE);
        assert_eq!(expected.check(&state([5, 7]), &[5, 4], 4), Ok(()));
        assert_eq!(expected.check(&state([5, 7]), &[5, 4], 4), Ok(()));
        let fewer = expected.check(&state([5, 6]), &[5, 6], 4).expect_err("transaction 7 was there");
        assert!(fewer.contains("thread 1: transaction 7"), "{fewer}");
    }

    #[test]
    fn every_kind_of_loss_is_found() {
        let right = state([20, 20]);
        assert!(wrong(&right, [21, 20]).contains("thread 0: transaction 21 was acknowledged"));
        assert!(wrong(&right, [20, 15]).contains("had not begun"));
        let (there, row) = right.rows.iter().next().map(|(key, row)| (*key, *row)).expect("a row");
        let mut lost = right.clone();
        lost.rows.remove(&there);
        assert!(wrong(&lost, [20, 20]).contains("its row is not there"));
        let mut old = right.clone();
        old.rows.insert(there, Item { count: row.count - 1, ..row });
        assert!(wrong(&old, [20, 20]).contains("its row is of version"));
        let mut back = right.clone();
        back.versions.get_mut(&there).expect("loaded").is_there = 0;
        assert!(wrong(&back, [20, 20]).contains("there is a row"));
        let mut torn = right.clone();
        torn.versions.get_mut(&there).expect("loaded").count -= 1;
        assert!(wrong(&torn, [20, 20]).contains("a write is lost"));
        let mut alone = right.clone();
        alone.versions.get_mut(&there).expect("loaded").count += 1;
        assert!(wrong(&alone, [20, 20]).contains("without one that it depends on"));
        let mut sum = right;
        sum.sums.get_mut(&there).expect("loaded").sum += 1;
        assert!(wrong(&sum, [20, 20]).contains("its sum is"));
    }
}
