//! Litmus tests: a few transactions on a few rows, each shape made for one anomaly.
//!
//! Worker `w` runs program `w` of its shape, modulo the number of programs, again and again. In
//! some shapes each worker draws its next program instead, so that several transactions in a row
//! combine. An anomaly shows in the history. The tests are meant for an explorer of interleavings,
//! which runs a few transactions of each worker in many orders. `litmus-random` draws its
//! transactions: any operations on few keys.
//!
//! The shapes are those of Adya and of the Hermitage suite, and of bugs in published systems.

mod programs;

use std::ops::ControlFlow;

use contend_derive::Row;
use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, Direction, IndexKind, Inspect, Load, OutOfMemory, TableSpec, Tables, Txn,
    TypedTable, Whole, counted, option_choices, options,
};

use crate::random::Random;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};

/// The programs of a litmus test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All transactions add one to one row.
    Counter,
    /// A row is read, and then written.
    LostUpdate,
    /// Two rows are read, and either is written.
    WriteSkew,
    /// Write skew that only a reader sees.
    ReadOnly,
    /// Two rows are written, and read in either order.
    LongFork,
    /// A key that is absent is read, and another is inserted.
    Absent,
    /// A range is read twice, while a row is inserted into it; and ranges that decide about
    /// inserts.
    Scans,
    /// A row is deleted, and inserted again.
    Reinsert,
    /// A row moves under another key of a second table, and is looked up by it.
    Index,
    /// An insert and a write are rolled back.
    Abort,
    /// Columns of different groups are read and changed.
    Groups,
    /// A sum is read, and increased without being read. A maximum is taken as well, which does not
    /// commute with the increments.
    Updates,
    /// One transaction misses a key and increases a sum without reading it, while another reads the
    /// sum and inserts the key.
    LateUpdates,
    /// Rows are replaced without being read, together and alone, updated without being read, and
    /// read.
    Overwrites,
    /// Rows are written alone and together. Transactions that declare that they only read read
    /// them: with some protocols as of the end of an epoch.
    Snapshot,
    /// Rows are inserted and deleted, and read by transactions that declare that they only read.
    SnapshotRows,
    /// A full leaf of an ordered index, in which keys are missed and scanned, is split by inserts.
    Split,
    /// A leaf of an ordered index loses its last rows, and its range goes to another leaf, where
    /// keys are missed, scanned and inserted.
    Merge,
    /// Rows are deleted and inserted again, so that records are unlinked, and reused as epochs
    /// pass.
    Rebirth,
    /// A row moves from key to key, so that the memory of one key's record is reused for another's.
    Moves,
    /// As `Rebirth`, with a second table in which the row is looked up.
    RebirthIndex,
    /// Rows of few keys are inserted and deleted again and again.
    Births,
    /// Rows are read and written in the later parts of transactions ([`Txn::later`]), and in their
    /// first parts.
    Later,
    /// Rows are inserted in later parts, while their keys are missed, scanned, inserted and
    /// deleted.
    LaterInserts,
    /// Any operations on few keys.
    Random,
}

option_choices!(Shape {
    Counter => "counter", LostUpdate => "lost-update", WriteSkew => "write-skew", ReadOnly => "read-only",
    LongFork => "long-fork", Absent => "absent", Scans => "scans", Reinsert => "reinsert", Index => "index",
    Abort => "abort", Groups => "groups", Updates => "updates",
    LateUpdates => "late-updates", Overwrites => "overwrites", Snapshot => "snapshot",
    SnapshotRows => "snapshot-rows", Split => "split", Merge => "merge", Rebirth => "rebirth", Moves => "moves",
    RebirthIndex => "rebirth-index", Births => "births", Later => "later",
    LaterInserts => "later-inserts", Random => "random",
});

options! {
    /// Litmus tests' options.
    pub struct LitmusOptions {
        /// The test.
        "litmus.shape" shape: Shape = Shape::Random, in ();
        /// `random` and `births`: the number of keys that operations use. Half of them have a row
        /// at the start.
        "litmus.keys" keys: u64 = 4, in 1..=1_000;
        /// `random` and `births`: the most operations of a transaction.
        "litmus.operations" operations: u64 = 4, in 1..=100;
    }
}

const fn info(
    name: &'static str,
    summary: &'static str,
    preset: &'static [(&'static str, &'static str)],
) -> WorkloadInfo {
    const SOURCE: &str =
        "Adya, Liskov, O'Neil: Generalized isolation level definitions, ICDE 2000; Kleppmann: Hermitage, 2014";
    WorkloadInfo { name, summary, source: SOURCE, preset }
}

/// The tests in a list.
pub const INFOS: &[WorkloadInfo] = &[
    info("litmus-counter", "all add one to one row", &[("litmus.shape", "counter")]),
    info("litmus-lost-update", "a row is read, then written", &[("litmus.shape", "lost-update")]),
    info("litmus-write-skew", "two rows are read, either is written", &[("litmus.shape", "write-skew")]),
    info("litmus-read-only", "write skew that only a reader sees", &[("litmus.shape", "read-only")]),
    info("litmus-long-fork", "two rows are written, and read in either order", &[("litmus.shape", "long-fork")]),
    info("litmus-absent", "a missing key is read, another inserted", &[("litmus.shape", "absent")]),
    info("litmus-scans", "ranges are read while rows are inserted into them", &[("litmus.shape", "scans")]),
    info("litmus-reinsert", "a row is deleted, and inserted again", &[("litmus.shape", "reinsert")]),
    info("litmus-index", "a row moves in a secondary index, and is looked up by it", &[("litmus.shape", "index")]),
    info("litmus-abort", "an insert and a write are rolled back", &[("litmus.shape", "abort")]),
    info("litmus-groups", "columns of different groups are read and changed", &[("litmus.shape", "groups")]),
    info("litmus-updates", "sums are added to unread, read, and raised", &[("litmus.shape", "updates")]),
    info(
        "litmus-late-updates",
        "a key is missed and a sum added to, while the sum is read and the key inserted",
        &[("litmus.shape", "late-updates")],
    ),
    info("litmus-overwrites", "rows are replaced unread, and read", &[("litmus.shape", "overwrites")]),
    info("litmus-snapshot", "rows are written, and read by read-only transactions", &[("litmus.shape", "snapshot")]),
    info(
        "litmus-snapshot-rows",
        "rows are inserted and deleted, and read by read-only transactions",
        &[("litmus.shape", "snapshot-rows")],
    ),
    info("litmus-split", "keys are missed and scanned while inserts split a leaf", &[("litmus.shape", "split")]),
    info("litmus-merge", "a leaf is emptied, and its range goes to another", &[("litmus.shape", "merge")]),
    info("litmus-rebirth", "rows are deleted, collected, and inserted again", &[("litmus.shape", "rebirth")]),
    info(
        "litmus-moves",
        "a row moves from key to key, so that the memory of one key's record is reused for another's",
        &[("litmus.shape", "moves")],
    ),
    info(
        "litmus-rebirth-index",
        "rows are deleted and inserted again, with a secondary index",
        &[("litmus.shape", "rebirth-index")],
    ),
    info(
        "litmus-births",
        "rows of few keys are inserted and deleted again and again",
        &[("litmus.shape", "births"), ("litmus.keys", "4"), ("litmus.operations", "2")],
    ),
    info("litmus-later", "rows are read and written in the later parts of transactions", &[("litmus.shape", "later")]),
    info(
        "litmus-later-inserts",
        "rows are inserted in later parts, and missed, scanned and deleted",
        &[("litmus.shape", "later-inserts")],
    ),
    info("litmus-random", "any operations on few keys", &[("litmus.shape", "random")]),
];

/// An operation on a key of the first table, unless it says otherwise.
#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64),
    /// Reads both rows at once.
    Batch(u64, u64),
    Write(u64),
    Modify(u64),
    Insert(u64),
    /// Inserts a key that no other transaction inserts: the first ones are [`ABSENT`] and those
    /// behind it.
    InsertFresh,
    Delete(u64),
    Scan(u64, u64),
    ReadLeft(u64),
    ReadRight(u64),
    ModifyRight(u64),
    /// Adds to the left column without reading it.
    AddLeft(u64),
    /// Adds to both columns without reading them.
    AddBoth(u64),
    /// Raises the left column to the worker's mark if it is smaller, without reading it.
    RaiseLeft(u64),
    ScanOther(u64, u64),
    InsertOther(u64),
    DeleteOther(u64),
    /// The steps behind it are the later part.
    Later,
    Cancel,
}

use Step::{
    AddBoth, AddLeft, Batch, Cancel, Delete, DeleteOther, Insert, InsertFresh, InsertOther, Later, Modify, ModifyRight,
    RaiseLeft, Read, ReadLeft, ReadRight, Scan, ScanOther, Write,
};

/// Partitions of the keys, by their remainders.
const PARTITIONS: u64 = 2;

/// The number of keys that have a row at the start, in both tables.
const LOADED: u64 = 2;
/// The number of keys of a full leaf of an ordered index (`contend_index::LEAF_KEYS`) into which
/// they were inserted in order.
pub(crate) const LEAF: u64 = 32;
/// A key that has no row at the start, in the shapes that use it; nor have the next two keys.
const ABSENT: u64 = 10;

impl Shape {
    fn programs(self) -> &'static [&'static [Step]] {
        match self {
            Shape::Counter => programs::COUNTER,
            Shape::LostUpdate => programs::LOST_UPDATE,
            Shape::WriteSkew => programs::WRITE_SKEW,
            Shape::ReadOnly => programs::READ_ONLY,
            Shape::LongFork => programs::LONG_FORK,
            Shape::Absent => programs::ABSENT_KEYS,
            Shape::Scans => programs::SCANS,
            Shape::Reinsert => programs::REINSERT,
            Shape::Index => programs::INDEX,
            Shape::Abort => programs::ABORT,
            Shape::Groups => programs::GROUPS,
            Shape::Updates => programs::UPDATES,
            Shape::LateUpdates => programs::LATE_UPDATES,
            Shape::Overwrites => programs::OVERWRITES,
            Shape::Snapshot => programs::SNAPSHOT,
            Shape::SnapshotRows => programs::SNAPSHOT_ROWS,
            Shape::Split => programs::SPLIT,
            Shape::Merge => programs::MERGE,
            Shape::Rebirth => programs::REBIRTH,
            Shape::Moves => programs::MOVES,
            Shape::RebirthIndex => programs::REBIRTH_INDEX,
            Shape::Later => programs::LATER,
            Shape::LaterInserts => programs::LATER_INSERTS,
            // Drawn: see `Litmus::draw` and `Litmus::draw_births`.
            Shape::Births | Shape::Random => &[],
        }
    }

    /// Returns whether each worker draws the program that it runs next. This is so in tests that
    /// need several transactions, one after the other, in many combinations.
    fn draws_programs(self) -> bool {
        use Shape::{Later, LaterInserts, Merge, Moves, Rebirth, RebirthIndex, Snapshot, SnapshotRows, Split};
        matches!(self, Snapshot | SnapshotRows | Split | Merge | Moves | Rebirth | RebirthIndex | Later | LaterInserts)
    }

    /// Returns the number of keys of the first table that have a row at the start, and the distance
    /// from one such key to the next.
    fn loaded(self) -> (u64, u64) {
        match self {
            Shape::Split => (LEAF, 2),
            Shape::Merge => (LEAF + 2, 2),
            _ => (LOADED, 1),
        }
    }
}

/// The numbers of workers and transactions that suffice to show the anomaly of a litmus test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Workers.
    pub workers: usize,
    /// Transactions of each worker.
    pub transactions: u64,
}

/// Returns the extent of the test of this name, or `None` if there is no such test or its
/// transactions are drawn.
pub fn extent(name: &str) -> Option<Extent> {
    let info = INFOS.iter().find(|info| info.name == name)?;
    let (_, shape) = info.preset.first()?;
    let shape = <Shape as contend_model::OptionValue>::parse(shape, &())?;
    match shape.programs().len() {
        0 => None,
        _ if shape.draws_programs() => Some(Extent { workers: 3, transactions: 3 }),
        programs => Some(Extent { workers: programs.max(2), transactions: 2 }),
    }
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct Item {
    left: i64,
    #[group = 1]
    right: i64,
}

impl Item {
    fn increment(&mut self) {
        self.left = self.left.wrapping_add(1);
        self.right = self.right.wrapping_add(1);
    }
}

/// A transaction's operations.
#[derive(Debug, Default)]
pub struct Input(Vec<Step>);

/// A worker's generator.
#[derive(Debug)]
pub struct Client {
    worker: usize,
    random: Random,
    commits: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Litmus {
    options: LitmusOptions,
    index: IndexKind,
    items: TypedTable<Item>,
    others: TypedTable<Item>,
}

impl Litmus {
    /// Returns, for each table, the number of keys that have a row at the start, and the distance
    /// from one such key to the next.
    fn loaded(&self) -> [(u64, u64); 2] {
        match self.options.shape {
            Shape::Births | Shape::Random => [(self.options.keys.div_ceil(2), 1); 2],
            shape => [shape.loaded(), (LOADED, 1)],
        }
    }

    fn draw_births(&self, random: &mut Random, input: &mut Input) {
        for _ in 0..random.uniform(1, self.options.operations) {
            let key = random.uniform(0, self.options.keys - 1);
            input.0.push(match random.uniform(0, 15) {
                0..=4 => Insert(key),
                5..=9 => Delete(key),
                10 => Write(key),
                11 => Modify(key),
                12 => AddLeft(key),
                13 => AddBoth(key),
                14 if random.happens(0.3) => Cancel,
                _ => Read(key),
            });
        }
    }

    fn draw(&self, random: &mut Random, input: &mut Input) {
        let keys = self.options.keys;
        for _ in 0..random.uniform(1, self.options.operations) {
            let (key, other) = (random.uniform(0, keys - 1), random.uniform(0, keys - 1));
            let scans = self.index == IndexKind::Ordered;
            input.0.push(match random.uniform(0, 15) {
                0..=2 => Read(key),
                3 => Write(key),
                4..=5 => Modify(key),
                6 => Insert(key),
                7 => Delete(key),
                8 if scans => Scan(key.min(other), key.max(other)),
                9 => ReadLeft(key),
                10 => ReadRight(key),
                11 => ModifyRight(key),
                12 => AddLeft(key),
                13 => AddBoth(key),
                14 => Batch(key, other),
                15 if random.happens(0.3) => Cancel,
                _ => Read(other),
            });
        }
    }
}

impl Workload for Litmus {
    type Options = LitmusOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &["transaction"]
    }

    fn validate(options: &LitmusOptions, index: IndexKind) -> Result<(), String> {
        let scans = |step: &Step| matches!(step, Scan(..) | ScanOther(..));
        let needs_order = options.shape.programs().iter().any(|program| program.iter().any(scans));
        if needs_order && index == IndexKind::Hash {
            return Err("this litmus test scans, and needs an ordered index: use --index ordered".into());
        }
        Ok(())
    }

    fn tables(_: &LitmusOptions, index: IndexKind) -> Vec<TableSpec> {
        vec![TableSpec::of::<Item>("item", index, 16), TableSpec::of::<Item>("other", index, 16)]
    }

    fn create<S: Tables>(options: &LitmusOptions, index: IndexKind, store: &S) -> Self {
        let [items, others] = [0, 1].map(|table| {
            let spec = &Self::tables(options, index)[table];
            store.create_typed(spec)
        });
        Litmus { options: options.clone(), index, items, others }
    }

    fn load_units(&self) -> u64 {
        self.loaded().iter().map(|(count, _)| count).sum()
    }

    fn for_verification(options: &LitmusOptions) -> LitmusOptions {
        options.clone()
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        _: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        if part == 0 {
            for ((count, distance), table) in self.loaded().into_iter().zip([&self.items, &self.others]) {
                for key in 0..count {
                    loader.insert(table, key * distance, |_| ())?;
                }
            }
            let _ = done(self.load_units());
        }
        Ok(())
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        Client { worker, random: Random::new(seed, worker as u64), commits: 0 }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        input.0.clear();
        let programs = self.options.shape.programs();
        match programs.len() {
            0 if self.options.shape == Shape::Births => self.draw_births(&mut client.random, input),
            0 => self.draw(&mut client.random, input),
            count => {
                let program = match self.options.shape.draws_programs() {
                    true => client.random.uniform(0, count as u64 - 1) as usize,
                    false => client.worker % count,
                };
                input.0.extend_from_slice(programs[program]);
            }
        }
    }

    fn kind(&self, _: &Input) -> usize {
        0
    }

    fn declares(_: &LitmusOptions) -> Declares {
        Declares { rows: DeclaredRows::Known, partitions: Some(PARTITIONS as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        let reads = |step: &Step| {
            matches!(step, Read(_) | Batch(..) | Scan(..) | ReadLeft(_) | ReadRight(_) | ScanOther(..) | Later)
        };
        if input.0.iter().all(reads) {
            declaration.read_only();
        }
        // A transaction that scans is taken for one that does not know its rows.
        let unknown = |step: &Step| matches!(step, Scan(..) | ScanOther(..) | InsertFresh);
        let by_rows = match declaration.needs() {
            DeclarationNeeds::RowsOrPartitions => !input.0.iter().any(unknown),
            needs => needs == DeclarationNeeds::Rows,
        };
        for step in &input.0 {
            let (table, keys, writes) = match *step {
                Read(key) | ReadLeft(key) | ReadRight(key) => (&self.items, key..=key, false),
                Batch(one, two) => {
                    if by_rows {
                        declaration.row(&self.items, two, false);
                    }
                    declaration.partition((two % PARTITIONS) as usize);
                    (&self.items, one..=one, false)
                }
                Write(key) | Modify(key) | Insert(key) | Delete(key) | ModifyRight(key) | AddLeft(key)
                | AddBoth(key) | RaiseLeft(key) => (&self.items, key..=key, true),
                Scan(low, high) => (&self.items, low..=high, false),
                ScanOther(low, high) => (&self.others, low..=high, false),
                InsertOther(key) | DeleteOther(key) => (&self.others, key..=key, true),
                InsertFresh => {
                    (0..PARTITIONS).for_each(|partition| declaration.partition(partition as usize));
                    continue;
                }
                Later | Cancel => continue,
            };
            for key in keys {
                if by_rows {
                    declaration.row(table, key, writes);
                }
                declaration.partition((key % PARTITIONS) as usize);
            }
        }
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        // Each written value names its worker.
        let mut mark = client.worker as i64 + 1;
        // A row that comes back must differ from the one that was deleted.
        if self.options.shape == Shape::Births {
            mark += (client.commits as i64) << 16;
        }
        let Some(border) = input.0.iter().position(|step| matches!(step, Later)) else {
            return self.run(tx, &input.0, mark, 0);
        };
        let (now, later) = (&input.0[..border], &input.0[border + 1..]);
        let fresh = ABSENT + client.commits * 8 + client.worker as u64 % 8;
        self.run(tx, now, mark, fresh)?;
        later.iter().for_each(|step| self.name(tx, *step, fresh));
        tx.later(|tx| self.run(tx, later, mark, fresh))
    }

    fn committed(&self, client: &mut Client, _: &Input) {
        client.commits += 1;
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        let commits: u64 = clients.iter().map(|client| client.commits).sum();
        if self.options.shape != Shape::Counter {
            return Ok(Checked(format!("{}, judged by their history", counted(commits, "transaction"))));
        }
        let mut row = Vec::new();
        store.peek(&self.items, 0, &mut row).ok_or_else(|| Violation("the counter is gone".into()))?;
        if row[0] != commits && !clients.is_empty() {
            return Err(Violation(format!(
                "the counter is {}, after {}",
                row[0],
                counted(commits, "committed addition")
            )));
        }
        Ok(Checked(format!("the counter is {commits}, as many as have committed")))
    }
}

impl Litmus {
    /// Names what a step of the later part touches.
    fn name<T: Txn>(&self, tx: &mut T, step: Step, fresh: u64) {
        match step {
            Read(key) | ReadLeft(key) | ReadRight(key) => tx.later_row(&self.items, key, false),
            Batch(one, two) => [one, two].into_iter().for_each(|key| tx.later_row(&self.items, key, false)),
            Write(key) | Modify(key) | ModifyRight(key) | AddLeft(key) | AddBoth(key) | RaiseLeft(key) => {
                tx.later_row(&self.items, key, true);
            }
            InsertFresh => tx.later_inserts(&self.items, fresh..=fresh),
            Insert(_) | InsertOther(_) | Scan(..) | ScanOther(..) | Delete(_) | DeleteOther(_) | Later | Cancel => {
                unreachable!("no program has {step:?} in a later part")
            }
        }
    }

    /// Runs steps. Each written value is `mark`, and `fresh` is a key of this transaction.
    fn run<T: Txn>(&self, tx: &mut T, steps: &[Step], mark: i64, fresh: u64) -> Result<(), Abort> {
        let (items, others) = (&self.items, &self.others);
        let row = Item { left: mark, right: mark };
        let on = |_: u64, _: Item| ControlFlow::Continue(());
        for step in steps {
            // The check is left to the history: whether a key had a row, and which, does not matter
            // here.
            match *step {
                Read(key) => _ = tx.read(items, key, Whole)?,
                Batch(one, two) => tx.read_many(items, &[one, two], Whole, |_, _| ())?,
                Write(key) => _ = tx.write(items, key, row)?,
                Modify(key) => _ = tx.modify(items, key, Item::increment)?,
                Insert(key) => _ = tx.insert(items, key, row)?,
                InsertFresh => _ = tx.insert(items, fresh, row)?,
                Delete(key) => _ = tx.delete(items, key)?,
                Scan(low, high) => _ = tx.scan(items, low..=high, usize::MAX, Direction::Forward, Whole, on)?,
                ReadLeft(key) => _ = tx.read(items, key, Item::LEFT)?,
                ReadRight(key) => _ = tx.read(items, key, Item::RIGHT)?,
                ModifyRight(key) => _ = tx.modify_columns(items, key, Item::RIGHT, |right| *right += 1)?,
                AddLeft(key) => _ = tx.update(items, key, Item::LEFT.add(1))?,
                AddBoth(key) => _ = tx.update(items, key, (Item::LEFT.add(1), Item::RIGHT.add(1)))?,
                RaiseLeft(key) => _ = tx.update(items, key, Item::LEFT.max(mark))?,
                ScanOther(low, high) => _ = tx.scan(others, low..=high, usize::MAX, Direction::Forward, Whole, on)?,
                InsertOther(key) => _ = tx.insert(others, key, row)?,
                DeleteOther(key) => _ = tx.delete(others, key)?,
                Later => unreachable!("the border is no step"),
                Cancel => return Err(tx.cancel()),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::LEAF;

    #[test]
    fn a_full_leaf_has_as_many_keys_as_the_shapes_expect() {
        assert_eq!(LEAF, contend_engine::LEAF_KEYS as u64);
    }
}
