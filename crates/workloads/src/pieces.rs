//! Pieces: IC3's microbenchmark. A transaction is a chain of pieces, each on a table of its own.
//!
//! Piece `i` changes a few rows of table `i`. The first row of each piece comes from the first
//! records of the table only (`pieces.scope`), so the contention is 1 / `pieces.scope`. The rows of
//! a piece are accessed in the order of their keys.
//!
//! A row has a counter of its changes, the sum of its writers' tags, and the last writer's tag in
//! all further words. So the check finds lost updates, transactions that took effect in part, and
//! torn rows.

use std::ops::ControlFlow;

use contend_model::options::Fraction;
use contend_model::pieces::{Mode, Piece, Types};
use contend_model::{
    Abort, Core, Declare, Groups, IndexKind, Inspect, Load, OutOfMemory, Table, TableSpec, Tables, Txn, counted,
    options,
};

use crate::loading::load_in_steps;
use crate::random::Random;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};

options! {
    /// The options of the workload.
    pub struct PiecesOptions {
        /// Pieces of a transaction, each with a table of its own.
        "pieces.pieces" pieces: u64 = 10, in 1..=PIECES_MAX;
        /// Records of each table. The paper's number is 1,000,000.
        "pieces.records" records: u64 = 100_000, in 1..=1_000_000_000;
        /// The number of first records of each table that the first row of a piece is drawn from:
        /// the fewer, the more conflicts. More than there are records stands for all of them.
        "pieces.scope" scope: u64 = 10, in 1..=1_000_000_000;
        /// Rows that a piece changes.
        "pieces.updates" updates: u64 = 4, in 1..=64;
        /// The fraction of transactions that roll back, behind a piece that is drawn uniformly.
        "pieces.cancel" cancel: Fraction = Fraction(0.0), in ();
    }
}

/// The workload in a list.
pub const INFOS: &[WorkloadInfo] = &[WorkloadInfo {
    name: "pieces",
    summary: "a chain of pieces, each of which changes rows of its own table: IC3's microbenchmark",
    source: "Wang, Mu, Cui, Yi, Chen, Li: Scaling multicore databases via constrained parallel execution, SIGMOD 2016",
    preset: &[],
}];

/// The most pieces.
const PIECES_MAX: u64 = NAMES.len() as u64;
/// The words of a row: 96 bytes. The paper's rows have 100.
const ROW_WORDS: usize = 12;
const LOAD_STEP: u64 = 4096;
/// The bits of a tag that count its worker's transactions; the worker's number is above.
const TAG_BITS: u32 = 40;

/// The names of the pieces.
const NAMES: [&str; 64] = [
    "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16", "17", "18", "19", "20",
    "21", "22", "23", "24", "25", "26", "27", "28", "29", "30", "31", "32", "33", "34", "35", "36", "37", "38", "39",
    "40", "41", "42", "43", "44", "45", "46", "47", "48", "49", "50", "51", "52", "53", "54", "55", "56", "57", "58",
    "59", "60", "61", "62", "63", "64",
];

/// Returns a piece by its number, from 0.
fn piece(number: usize) -> Piece {
    Piece::new(number as u16, NAMES[number])
}

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    /// The keys of all pieces, one piece behind the other.
    keys: Vec<u64>,
    tag: u64,
    /// The piece at whose beginning the transaction rolls back.
    cancel: Option<usize>,
}

/// A worker's generator, and its memory of what it committed.
#[derive(Debug)]
pub struct Client {
    random: Random,
    number: u64,
    drawn: u64,
    commits: u64,
    /// Whether the running execution has found a row missing; it counts if the transaction commits.
    misses: bool,
    /// The number of committed transactions that have found a row missing.
    wrong: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Pieces {
    options: PiecesOptions,
    tables: Vec<Table>,
}

impl Workload for Pieces {
    type Options = PiecesOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &["chain"]
    }

    fn validate(options: &PiecesOptions, _: IndexKind) -> Result<(), String> {
        if options.updates > options.records {
            return Err(format!(
                "pieces.updates={} needs as many records in each table; valid: pieces.updates up to {}, or more pieces.records",
                options.updates, options.records
            ));
        }
        Ok(())
    }

    fn tables(options: &PiecesOptions, index: IndexKind) -> Vec<TableSpec> {
        let table = |number| TableSpec::of_bytes(&format!("t{number}"), index, ROW_WORDS * 8, options.records as usize);
        (1..=options.pieces).map(table).collect()
    }

    fn create<S: Tables>(options: &PiecesOptions, index: IndexKind, store: &S) -> Self {
        let tables = Self::tables(options, index).iter().map(|spec| store.create_table(spec)).collect();
        Pieces { options: options.clone(), tables }
    }

    fn load_units(&self) -> u64 {
        self.options.records
    }

    fn for_verification(options: &PiecesOptions) -> PiecesOptions {
        let updates = options.updates.min(4);
        let records = options.records.min(64);
        PiecesOptions { pieces: options.pieces.min(4), records, updates, ..options.clone() }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load_in_steps(self.options.records, part, parts, LOAD_STEP, done, |records| {
            for table in &self.tables {
                for record in records.clone() {
                    loader.insert(table, record, |_| ())?;
                }
            }
            Ok(())
        })
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        let random = Random::new(seed, worker as u64 + 1);
        Client { random, number: worker as u64 + 1, drawn: 0, commits: 0, misses: false, wrong: 0 }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        let PiecesOptions { records, scope, updates, .. } = self.options;
        let random = &mut client.random;
        input.keys.clear();
        for _ in &self.tables {
            let first = input.keys.len();
            input.keys.push(random.uniform(0, scope.min(records) - 1));
            while input.keys.len() - first < updates as usize {
                let key = random.uniform(0, records - 1);
                if !input.keys[first..].contains(&key) {
                    input.keys.push(key);
                }
            }
            input.keys[first..].sort_unstable();
        }
        client.drawn += 1;
        input.tag = client.number << TAG_BITS | client.drawn;
        let last = self.tables.len() as u64 - 1;
        let cancels = last > 0 && random.happens(self.options.cancel.0);
        input.cancel = cancels.then(|| random.uniform(1, last) as usize);
    }

    fn kind(&self, _: &Input) -> usize {
        0
    }

    fn declares(_: &PiecesOptions) -> Declares {
        Declares { rows: DeclaredRows::All, partitions: None }
    }

    fn types(&self, types: &mut Types) {
        let mut chain = types.add("chain");
        for (number, table) in self.tables.iter().enumerate() {
            chain = chain.piece(piece(number), |piece| {
                let piece = piece.access(Mode::Write, table, Groups::ALL);
                if number > 0 && self.options.cancel.0 > 0.0 { piece.cancels() } else { piece }
            });
        }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        let updates = self.options.updates as usize;
        for (table, keys) in self.tables.iter().zip(input.keys.chunks(updates)) {
            keys.iter().for_each(|&key| declaration.row(table, key, true));
        }
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let updates = self.options.updates as usize;
        client.misses = false;
        for (number, (table, keys)) in self.tables.iter().zip(input.keys.chunks(updates)).enumerate() {
            let mut misses = false;
            tx.piece(piece(number), |tx| {
                if input.cancel == Some(number) {
                    return Err(tx.cancel());
                }
                misses = false;
                for &key in keys {
                    match tx.modify_row(table, key, Groups::ALL)? {
                        Some(row) => {
                            row[0] += 1;
                            row[1] = row[1].wrapping_add(input.tag);
                            row[2..].fill(input.tag);
                        }
                        None => misses = true,
                    }
                }
                Ok(())
            })?;
            client.misses |= misses;
        }
        Ok(())
    }

    fn committed(&self, client: &mut Client, _: &Input) {
        client.commits += 1;
        client.wrong += u64::from(client.misses);
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        if clients.iter().any(|client| client.wrong > 0) {
            return Err(Violation("a committed transaction has found a row missing".into()));
        }
        let commits: u64 = clients.iter().map(|client| client.commits).sum();
        let mut sums = Vec::new();
        let mut row = Vec::new();
        for table in &self.tables {
            let (mut changes, mut tags) = (0u64, 0u64);
            for record in 0..self.options.records {
                let name = || format!("row {record} of {}", store.table_name(table));
                if store.peek(table, record, &mut row).is_none() {
                    return Err(Violation(format!("{} is gone", name())));
                }
                if row[2..ROW_WORDS].iter().any(|word| *word != row[2]) {
                    return Err(Violation(format!("{} is torn: it has the tags of two writers", name())));
                }
                changes += row[0];
                tags = tags.wrapping_add(row[1]);
            }
            sums.push((changes, tags));
        }
        let expected = commits * self.options.updates;
        for (table, (changes, tags)) in self.tables.iter().zip(&sums) {
            let name = store.table_name(table);
            if !clients.is_empty() && *changes != expected {
                return Err(Violation(format!(
                    "the rows of {name} count {}, but the committed transactions made {expected}",
                    counted(*changes, "change")
                )));
            }
            if (*changes, *tags) != sums[0] {
                return Err(Violation(format!(
                    "the rows of {name} and of {} differ in what has changed them: a transaction took effect in part",
                    store.table_name(&self.tables[0])
                )));
            }
        }
        let changes = sums.first().map_or(0, |(changes, _)| *changes);
        Ok(Checked(format!(
            "{} of {} count the same changes, {changes}, by the same writers",
            sums.len(),
            counted(sums.len(), "table")
        )))
    }
}
