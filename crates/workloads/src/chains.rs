//! Litmus tests of declared pieces: a few types of transactions that are chains of pieces, each
//! shape made for one mistake of a protocol that lets pieces take effect by themselves.
//!
//! Worker `w` runs program `w` of its shape, modulo the number of programs, or draws one. The
//! declarations follow from the programs. So a shape is a test of the analysis and of the protocol
//! at once. `litmus-pieces-plan` draws its programs, from a number that is an option.
//!
//! An anomaly shows in the history.

use std::ops::ControlFlow;

use contend_derive::Row;
use contend_model::pieces::{Piece, PieceBuilder, Types};
use contend_model::{
    Abort, Core, Declare, Direction, Groups, IndexKind, Inspect, Load, OutOfMemory, TableSpec, Tables, Txn, TypedTable,
    Update, counted, option_choices, options,
};

use crate::litmus::LEAF;
use crate::random::Random;
use crate::workload::{Checked, Declares, Violation, Workload, WorkloadInfo};

/// The programs of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// All transactions change a row of one table, then a row of another.
    Pair,
    /// Three types, each two of which meet in one table.
    Chain,
    /// Two types change two tables in opposite orders, so that the analysis merges their pieces.
    Cross,
    /// Two readers of a row, which a third transaction writes, and then looks at what they write.
    Readers,
    /// A transaction rolls back after others have seen what it has shown.
    Cancel,
    /// A range is scanned while rows are inserted into it and deleted from it.
    Phantom,
    /// A row is inserted and deleted by transactions that may roll back afterwards.
    Revive,
    /// A scan passes a tombstone. Its deletion may be rolled back, or the row comes back later.
    Passed,
    /// Columns of two groups of one row are changed in two pieces.
    Groups,
    /// Sums of two tables are increased in opposite orders, and read as of the end of an epoch.
    Sums,
    /// Rows are shown by two pieces, and the second may roll back. Readers see them as of the end
    /// of an epoch.
    Snapshot,
    /// Rows that are inserted are read as settled ones: by transactions that have learned of them
    /// from uncommitted writes, or before, and by the transaction itself.
    Settled,
    /// Two types change the same rows, so that pieces run again, and count their effects.
    Retry,
    /// Sums stand beside columns that a step of several pieces shows, and sums of one row are
    /// changed by several pieces.
    Beside,
    /// Drawn programs.
    Plan,
}

option_choices!(Shape {
    Pair => "pair", Chain => "chain", Cross => "cross", Readers => "readers", Cancel => "cancel",
    Phantom => "phantom", Revive => "revive", Passed => "passed", Groups => "groups", Sums => "sums", Snapshot => "snapshot",
    Settled => "settled", Retry => "retry", Beside => "beside", Plan => "plan",
});

options! {
    /// The options of the tests.
    pub struct ChainsOptions {
        /// The test.
        "chains.shape" shape: Shape = Shape::Plan, in ();
        /// `plan`: the number from which the programs are drawn.
        "chains.plan" plan: u64 = 0, in 0..=u64::MAX;
    }
}

const fn info(
    name: &'static str,
    summary: &'static str,
    preset: &'static [(&'static str, &'static str)],
) -> WorkloadInfo {
    const SOURCE: &str =
        "Wang, Mu, Cui, Yi, Chen, Li: Scaling multicore databases via constrained parallel execution, SIGMOD 2016";
    WorkloadInfo { name, summary, source: SOURCE, preset }
}

/// The tests in a list.
pub const INFOS: &[WorkloadInfo] = &[
    info("litmus-pieces-pair", "pieces of two tables, in one order", &[("chains.shape", "pair")]),
    info("litmus-pieces-chain", "three types, each two of which meet once", &[("chains.shape", "chain")]),
    info("litmus-pieces-cross", "two tables in opposite orders", &[("chains.shape", "cross")]),
    info("litmus-pieces-readers", "a writer behind two readers", &[("chains.shape", "readers")]),
    info("litmus-pieces-cancel", "a rollback after a piece was shown", &[("chains.shape", "cancel")]),
    info("litmus-pieces-phantom", "a scanned range changes between pieces", &[("chains.shape", "phantom")]),
    info("litmus-pieces-revive", "a row comes and goes between pieces", &[("chains.shape", "revive")]),
    info("litmus-pieces-passed", "a scan passes a tombstone of a running transaction", &[("chains.shape", "passed")]),
    info("litmus-pieces-groups", "groups of one row in two pieces", &[("chains.shape", "groups")]),
    info("litmus-pieces-sums", "sums in opposite orders", &[("chains.shape", "sums")]),
    info("litmus-pieces-snapshot", "rows shown and taken back beside snapshots", &[("chains.shape", "snapshot")]),
    info("litmus-pieces-settled", "inserted rows are read as settled ones", &[("chains.shape", "settled")]),
    info("litmus-pieces-retry", "pieces run again, and count their effects", &[("chains.shape", "retry")]),
    info("litmus-pieces-beside", "sums beside columns that are shown", &[("chains.shape", "beside")]),
    info("litmus-pieces-plan", "drawn pieces", &[("chains.shape", "plan")]),
];

/// A row: two groups of columns.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct Pair {
    left: i64,
    #[group = 1]
    right: i64,
}

/// An update that adds to both columns.
#[derive(Clone, Copy, Debug)]
struct Both(i64);

impl Update<Pair> for Both {
    fn groups(&self) -> Groups {
        Groups::ALL
    }

    fn apply(&self, row: &mut Pair) {
        row.left += self.0;
        row.right += self.0;
    }

    fn commutes(&self) -> bool {
        true
    }
}

/// A step of a piece: a table, and a key or a range.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// Read the left column.
    Read(usize, u64),
    /// Read the right column.
    ReadRight(usize, u64),
    /// Change the left column.
    Modify(usize, u64),
    /// Change the right column.
    ModifyRight(usize, u64),
    /// Add to the right column.
    Add(usize, u64),
    /// Add to the left column.
    AddLeft(usize, u64),
    /// Add to both columns, by one update.
    AddBoth(usize, u64),
    /// Change the left column, and count that in the client.
    Count(usize, u64),
    /// Read the right column of a settled row.
    Settled(usize, u64),
    /// Read the left column, which tells whether a row was inserted.
    Look(usize, u64),
    /// Read the right column of a settled row, if [`Op::Look`] has told of it.
    IfSeen(usize, u64),
    /// Read the left column, which tells whether a row was inserted, and remember it in later
    /// transactions. Then roll back, in half of the transactions. If the client remembers already,
    /// do nothing.
    Remember(usize, u64),
    /// Read the right column of a settled row, if the client remembers one.
    IfRemembered(usize, u64),
    Insert(usize, u64),
    Delete(usize, u64),
    /// Read the left columns of a range.
    Scan(usize, u64, u64),
    /// Roll back, in half of the transactions.
    Cancel,
}

use Op::{
    Add, AddBoth, AddLeft, Cancel, Count, Delete, IfRemembered, IfSeen, Insert, Look, Modify, ModifyRight, Read,
    ReadRight, Remember, Scan, Settled,
};

type Pieces = &'static [&'static [Op]];

/// Tables of a test.
const TABLES: usize = 4;
/// The most types of a test.
const TYPES: usize = 4;
/// Pieces of a type.
const NAMES: [&str; 4] = ["first", "second", "third", "fourth"];
/// The keys that the first table begins with: as many as fill a leaf of an ordered index.
const LOADED: u64 = LEAF;
/// The distance of two loaded keys.
const DISTANCE: u64 = 10;
/// The rows that are loaded into each table, and that no transaction inserts or deletes.
const LASTING: usize = 2;

/// Sums of what was added to the lasting rows: by tables, rows and columns.
type Sums = [[[i64; 2]; LASTING]; TABLES];

impl Op {
    /// Returns the table, the key and the columns of an addition.
    fn adds(self) -> Option<(usize, u64, &'static [usize])> {
        match self {
            Modify(table, key) | AddLeft(table, key) | Count(table, key) => Some((table, key, &[0])),
            ModifyRight(table, key) | Add(table, key) => Some((table, key, &[1])),
            AddBoth(table, key) => Some((table, key, &[0, 1])),
            _ => None,
        }
    }
}

impl Shape {
    /// Returns the programs; none if they are drawn.
    fn programs(self) -> &'static [Pieces] {
        match self {
            Shape::Pair => &[&[&[Modify(0, 0)], &[Modify(1, 0)]]],
            Shape::Chain => &[
                &[&[Modify(1, 0)], &[Modify(2, 0)]],
                &[&[Modify(0, 0)], &[Modify(1, 0)]],
                &[&[Modify(0, 0)], &[Modify(2, 0)]],
            ],
            Shape::Cross => &[&[&[Modify(0, 0)], &[Modify(1, 0)]], &[&[Modify(1, 0)], &[Modify(0, 0)]]],
            Shape::Readers => &[
                &[&[Read(0, 0)], &[Modify(1, 0)]],
                &[&[Modify(0, 0)], &[Read(1, 0), Read(1, 10)]],
                &[&[Read(0, 0)], &[Modify(1, 10)]],
            ],
            Shape::Cancel => {
                &[&[&[Modify(0, 0)], &[Modify(3, 0), Cancel]], &[&[Modify(0, 0)]], &[&[Read(0, 0)], &[Modify(1, 0)]]]
            }
            Shape::Phantom => &[
                &[&[Scan(0, 0, 300)], &[Modify(1, 0)]],
                &[&[Insert(0, 115)], &[Read(1, 0)]],
                &[&[Delete(0, 115)], &[Read(1, 0)]],
            ],
            Shape::Revive => &[
                &[&[Insert(0, 5)], &[Modify(1, 0), Cancel]],
                &[&[Delete(0, 5)], &[Modify(1, 0), Cancel]],
                &[&[Read(0, 5)], &[Modify(1, 0)]],
            ],
            Shape::Passed => &[
                &[&[Delete(0, 20)], &[Modify(1, 0), Cancel]],
                &[&[Scan(0, 0, 300)], &[Modify(1, 0)]],
                &[&[Insert(0, 20)], &[Read(1, 0), Cancel]],
            ],
            Shape::Groups => &[
                &[&[Modify(0, 0)], &[ModifyRight(0, 0)]],
                &[&[Read(0, 0)], &[ModifyRight(0, 0)]],
                &[&[Modify(0, 0)], &[ReadRight(0, 0)]],
            ],
            Shape::Sums => &[
                &[&[Add(0, 0)], &[Add(1, 0)]],
                &[&[Add(1, 0)], &[Add(0, 0)]],
                &[&[ReadRight(0, 0)], &[ReadRight(1, 0)]],
            ],
            Shape::Snapshot => &[
                &[&[Modify(0, 0)], &[Modify(1, 0), Cancel]],
                &[&[Read(0, 0)], &[Read(1, 0)]],
                &[&[Modify(0, 0)], &[Modify(1, 0)]],
            ],
            // The third type never rolls back once it has shown its insert. So what the fourth
            // has seen of it, and remembers, is there for good.
            Shape::Settled => &[
                &[&[Insert(0, 5)], &[Insert(3, 5)], &[Modify(1, 0)], &[Modify(2, 10), Cancel]],
                &[&[Modify(0, 10)], &[Look(1, 0), IfSeen(0, 5)], &[IfSeen(3, 5)], &[Modify(2, 10)]],
                &[&[Insert(0, 15)], &[Modify(1, 10)], &[Modify(2, 0), Settled(0, 15)]],
                &[&[IfRemembered(0, 15)], &[Remember(1, 10)], &[Modify(2, 0)]],
            ],
            Shape::Retry => &[&[&[Count(0, 0)], &[Count(1, 0)]], &[&[Count(0, 0), Count(0, 10)], &[Count(1, 0)]]],
            Shape::Beside => &[
                &[&[Modify(0, 0)], &[Modify(1, 0), Add(0, 0)], &[Modify(2, 0), Cancel]],
                &[&[Modify(1, 0)], &[Modify(0, 0)]],
                &[&[Add(0, 0)], &[AddLeft(3, 0)], &[AddBoth(3, 0)]],
                &[&[ReadRight(0, 0)], &[Read(3, 0)], &[ReadRight(3, 0)]],
            ],
            Shape::Plan => &[],
        }
    }

    /// Returns the number of keys that the first table begins with.
    fn loaded(index: IndexKind) -> u64 {
        // Only a leaf that is full splits, and only an ordered index has leaves.
        if index == IndexKind::Ordered { LOADED } else { LASTING as u64 }
    }
}

/// Returns drawn programs: two to four types, whose pieces access few rows of few tables.
fn drawn(number: u64) -> Vec<Vec<Vec<Op>>> {
    let mut random = Random::new(number, 77);
    let op = |random: &mut Random| {
        let (table, key) = (random.uniform(0, TABLES as u64 - 2) as usize, random.uniform(0, 1) * DISTANCE);
        match random.uniform(0, 9) {
            0..=1 => Read(table, key),
            2 => ReadRight(table, key),
            3..=4 => Modify(table, key),
            5 => ModifyRight(table, key),
            6 => Add(table, key),
            7 => Insert(table, key + 1),
            8 => Delete(table, key + 1),
            _ => Cancel,
        }
    };
    let types = random.uniform(2, TYPES as u64);
    let piece = |random: &mut Random| (0..random.uniform(1, 2)).map(|_| op(random)).collect();
    (0..types).map(|_| (0..random.uniform(1, 3)).map(|_| piece(&mut random)).collect()).collect()
}

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    program: usize,
    cancels: bool,
}

/// A worker's generator.
#[derive(Debug)]
pub struct Client {
    worker: usize,
    random: Random,
    commits: u64,
    /// What the committed transactions have added.
    sums: Sums,
    /// The additions that the running transaction has counted.
    counted: Vec<(usize, u64)>,
    /// The first difference between what a transaction counted and its program.
    miscounted: Option<String>,
    /// What [`Op::Look`] and [`Op::Remember`] have told.
    has_seen: bool,
    remembers: bool,
}

impl Client {
    fn mark(&self) -> i64 {
        self.worker as i64 + 1
    }
}

/// The workload.
#[derive(Debug)]
pub struct Chains {
    tables: [TypedTable<Pair>; TABLES],
    /// The types, each with its pieces.
    programs: Vec<Vec<Vec<Op>>>,
    /// The number of keys that the first table begins with.
    loaded: u64,
}

impl Chains {
    fn only_reads(program: &[Vec<Op>]) -> bool {
        program.iter().flatten().all(|op| matches!(op, Read(..) | ReadRight(..) | Scan(..)))
    }

    fn declare_piece(&self, mut piece: PieceBuilder, ops: &[Op]) -> PieceBuilder {
        for op in ops {
            piece = match *op {
                Read(table, _) | Scan(table, ..) | Look(table, _) => piece.read(&self.tables[table], Pair::LEFT),
                ReadRight(table, _) => piece.read(&self.tables[table], Pair::RIGHT),
                Remember(table, _) => piece.read(&self.tables[table], Pair::LEFT).cancels(),
                Settled(table, _) | IfSeen(table, _) | IfRemembered(table, _) => {
                    piece.settled(&self.tables[table], Pair::RIGHT)
                }
                Modify(table, _) | Count(table, _) => piece.modify(&self.tables[table], Pair::LEFT),
                ModifyRight(table, _) => piece.modify(&self.tables[table], Pair::RIGHT),
                Add(table, _) => piece.update(&self.tables[table], Pair::RIGHT.add(1)),
                AddBoth(table, _) => piece.update(&self.tables[table], Both(1)),
                AddLeft(table, _) => piece.update(&self.tables[table], Pair::LEFT.add(1)),
                Insert(table, _) => piece.insert(&self.tables[table]),
                Delete(table, _) => piece.delete(&self.tables[table]),
                Cancel => piece.cancels(),
            };
        }
        piece
    }

    /// Returns whether a row says that another row was inserted.
    fn tells<T: Txn>(&self, tx: &mut T, table: usize, key: u64) -> Result<bool, Abort> {
        Ok(tx.read(&self.tables[table], key, Pair::LEFT)?.is_some_and(|left| left != 0))
    }

    fn run<T: Txn>(&self, tx: &mut T, op: Op, client: &mut Client, cancels: bool) -> Result<(), Abort> {
        let mark = client.mark();
        // The check is left to the history: whether a key had a row, and which, does not matter
        // here.
        match op {
            Read(table, key) => _ = tx.read(&self.tables[table], key, Pair::LEFT)?,
            ReadRight(table, key) | Settled(table, key) => _ = tx.read(&self.tables[table], key, Pair::RIGHT)?,
            IfSeen(table, key) if client.has_seen => self.run(tx, Settled(table, key), client, cancels)?,
            IfRemembered(table, key) if client.remembers => self.run(tx, Settled(table, key), client, cancels)?,
            Look(table, key) => client.has_seen = self.tells(tx, table, key)?,
            Remember(table, key) if !client.remembers => {
                client.remembers = self.tells(tx, table, key)?;
                return if cancels { Err(tx.cancel()) } else { Ok(()) };
            }
            IfSeen(..) | IfRemembered(..) | Remember(..) => {}
            Count(table, key) => {
                self.run(tx, Modify(table, key), client, cancels)?;
                client.counted.push((table, key));
            }
            AddBoth(table, key) => _ = tx.update(&self.tables[table], key, Both(mark))?,
            AddLeft(table, key) => _ = tx.update(&self.tables[table], key, Pair::LEFT.add(mark))?,
            Modify(table, key) => _ = tx.modify_columns(&self.tables[table], key, Pair::LEFT, |left| *left += mark)?,
            ModifyRight(table, key) => {
                _ = tx.modify_columns(&self.tables[table], key, Pair::RIGHT, |right| *right += mark)?;
            }
            Add(table, key) => _ = tx.update(&self.tables[table], key, Pair::RIGHT.add(mark))?,
            Insert(table, key) => _ = tx.insert(&self.tables[table], key, Pair { left: mark, right: mark })?,
            Delete(table, key) => _ = tx.delete(&self.tables[table], key)?,
            Scan(table, low, high) => {
                let on = |_: u64, _: i64| ControlFlow::Continue(());
                _ = tx.scan(&self.tables[table], low..=high, usize::MAX, Direction::Forward, Pair::LEFT, on)?;
            }
            Cancel if cancels => return Err(tx.cancel()),
            Cancel => {}
        }
        Ok(())
    }
}

/// The names of the transaction types.
const KIND_NAMES: &[&str] = &["one", "two", "three", "four"];

impl Workload for Chains {
    type Options = ChainsOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        KIND_NAMES
    }

    fn validate(options: &ChainsOptions, index: IndexKind) -> Result<(), String> {
        let scans = matches!(options.shape, Shape::Phantom | Shape::Passed);
        if scans && index == IndexKind::Hash {
            return Err("this litmus test scans, and needs an ordered index: use --index ordered".into());
        }
        Ok(())
    }

    fn tables(_: &ChainsOptions, index: IndexKind) -> Vec<TableSpec> {
        ["a", "b", "c", "d"].map(|name| TableSpec::of::<Pair>(name, index, 32)).into()
    }

    fn create<S: Tables>(options: &ChainsOptions, index: IndexKind, store: &S) -> Self {
        let specs = Self::tables(options, index);
        let programs = match options.shape {
            Shape::Plan => drawn(options.plan),
            shape => {
                let pieces = |pieces: &Pieces| pieces.iter().map(|ops| ops.to_vec()).collect();
                shape.programs().iter().map(pieces).collect()
            }
        };
        Chains {
            tables: std::array::from_fn(|table| store.create_typed(&specs[table])),
            programs,
            loaded: Shape::loaded(index),
        }
    }

    fn load_units(&self) -> u64 {
        self.loaded
    }

    fn for_verification(options: &ChainsOptions) -> ChainsOptions {
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
            for (number, table) in self.tables.iter().enumerate() {
                let count = if number == 0 { self.loaded } else { LASTING as u64 };
                for key in 0..count {
                    loader.insert(table, key * DISTANCE, |_| ())?;
                }
            }
            let _ = done(self.loaded);
        }
        Ok(())
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        Client {
            worker,
            random: Random::new(seed, worker as u64),
            commits: 0,
            sums: Sums::default(),
            counted: Vec::new(),
            miscounted: None,
            has_seen: false,
            remembers: false,
        }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        let count = self.programs.len();
        // Half of the transactions are of the worker's own type, so that all types are run.
        let own = client.random.happens(0.5);
        let drawn = client.random.uniform(0, count as u64 - 1) as usize;
        input.program = if own { client.worker % count } else { drawn };
        input.cancels = client.random.happens(0.5);
    }

    fn kind(&self, input: &Input) -> usize {
        input.program
    }

    fn declares(_: &ChainsOptions) -> Declares {
        Declares::default()
    }

    fn types(&self, types: &mut Types) {
        for (kind, name) in KIND_NAMES.iter().enumerate() {
            let pieces = self.programs.get(kind).map_or(&[][..], Vec::as_slice);
            let only_reads = !pieces.is_empty() && Self::only_reads(pieces);
            let mut builder = if only_reads { types.add_read_only(name) } else { types.add(name) };
            for (number, ops) in pieces.iter().enumerate() {
                let piece = Piece::new(number as u16, NAMES[number]);
                builder = builder.piece(piece, |piece| self.declare_piece(piece, ops));
            }
        }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if Self::only_reads(&self.programs[input.program]) {
            declaration.read_only();
        }
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        client.counted.clear();
        client.has_seen = false;
        for (number, ops) in self.programs[input.program].iter().enumerate() {
            let (piece, before) = (Piece::new(number as u16, NAMES[number]), client.counted.len());
            tx.piece(piece, |tx| {
                // The piece may have run before.
                client.counted.truncate(before);
                ops.iter().try_for_each(|op| self.run(tx, *op, client, input.cancels))
            })?;
        }
        Ok(())
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        client.commits += 1;
        let ops = || self.programs[input.program].iter().flatten();
        for (table, key, columns) in ops().filter_map(|op| op.adds()) {
            for &column in columns {
                client.sums[table][(key / DISTANCE) as usize][column] += client.mark();
            }
        }
        let counts = ops().filter_map(|op| if let Count(table, key) = *op { Some((table, key)) } else { None });
        if !counts.eq(client.counted.iter().copied()) {
            client.miscounted.get_or_insert_with(|| format!("a transaction counted {:?}", client.counted));
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        if let Some(miscounted) = clients.iter().find_map(|client| client.miscounted.clone()) {
            return Err(Violation(format!("{miscounted}, which is not what its program does")));
        }
        let mut row = Vec::new();
        for (number, table) in self.tables.iter().enumerate() {
            for key in 0..LASTING {
                let expected = [0, 1].map(|column| clients.iter().map(|client| client.sums[number][key][column]).sum());
                store.peek(table, key as u64 * DISTANCE, &mut row).expect("no transaction deletes it");
                let found = [row[0] as i64, row[1] as i64];
                if found != expected {
                    let name = store.table_name(table);
                    return Err(Violation(format!(
                        "row {} of {name} is {found:?}, and {expected:?} was added to it",
                        key as u64 * DISTANCE
                    )));
                }
            }
        }
        let commits: u64 = clients.iter().map(|client| client.commits).sum();
        Ok(Checked(format!("{}, judged by their history", counted(commits, "transaction"))))
    }
}
