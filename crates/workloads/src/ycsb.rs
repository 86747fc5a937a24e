//! YCSB: point operations, scans and inserts on one table.
//!
//! B. F. Cooper, A. Silberstein, E. Tam, R. Ramakrishnan, R. Sears: "Benchmarking cloud serving
//! systems with YCSB", SoCC 2010; as transactions of several operations, with the parameters of T.
//! Tanabe et al.: "An analysis of concurrency control protocols for in-memory databases with
//! CCBench", VLDB 2020, section 5.
//!
//! # Contents of a row
//! The first word of a row is the *tag* of its writer: the worker and the sequence number of the
//! transaction that wrote it. Every other word is computed from the tag and the key. So a torn row,
//! or a row under the wrong key, is recognised.
//!
//! Three options change this. With `ycsb.rmw=on` and 16 bytes or more, the second word counts the
//! writes. With `ycsb.update=on` a write only adds to that count. With `ycsb.fields` above 1 each
//! field is laid out so, with a tag of its own.
//!
//! After a run each loaded record must hold the tag of a committed transaction. Each *tracked*
//! record must hold a tag that the client of that worker remembers as its last one for the record;
//! if writes are counted, it must also hold the number of all clients' writes. All records are
//! tracked up to 65,536; otherwise one in a power of two. For other records the check can't tell
//! whether the writer is the last one, nor whether it wrote this record. Rows of 8 bytes hold the
//! tag alone: a wrong key is recognised only for tracked records.
//!
//! A committed transaction must have found every key that it asked for. Its scans must begin at
//! their key and ascend. Every committed insert must be in the table; the inserts that a client
//! would make next must not.

mod check;
mod row;
#[cfg(test)]
mod tests;

use std::ops::ControlFlow;

use contend_model::options::Fraction;
use contend_model::pieces::{Mode, Piece, PieceBuilder};
use contend_model::random::{below, mix};
use contend_model::{
    Abort, AddToWord, Core, DeclarationNeeds, Declare, Direction, GROUPS_MAX, Groups, IndexKind, Inspect, Load,
    OutOfMemory, Projection, ReadOrWritten, RowUpdate, Span, Table, TableSpec, Tables, Txn, Types, option_choices,
    options,
};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::loading::load_in_steps;
use crate::sample::Sample;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};
use crate::zipf::Zipf;

use row::RowShape;

/// The key of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// A bijective hash of the record's number: neighbours in popularity are not neighbours in the
    /// index.
    Hashed,
    /// The record's number.
    Sequential,
}

option_choices!(Keys { Hashed => "hashed", Sequential => "sequential" });

options! {
    /// YCSB's options.
    pub struct YcsbOptions {
        /// Records that are loaded.
        "ycsb.records" records: u64 = 1_000_000, in 1..=10_000_000_000;
        /// Bytes of a row, at least 8 for the tag of its writer.
        "ycsb.payload" payload: usize = 8, in 8..=65_536;
        /// Fields of a row; their lengths differ by at most a word. A transaction reads and writes
        /// one field, drawn uniformly; an insert writes all. Each field is a group of columns: with
        /// `--set ts=on` it has a version of its own. YCSB's own rows have 10 fields of 100 bytes.
        "ycsb.fields" fields: usize = 1, in 1..=GROUPS_MAX;
        /// Operations of a transaction.
        "ycsb.ops" ops: usize = 10, in 1..=10_000;
        /// The fraction of reads among the operations that neither scan nor insert; the others
        /// write.
        "ycsb.read" read: Fraction = Fraction(0.5), in ();
        /// Whether a write reads the row first (read-modify-write), or replaces it without reading
        /// it.
        "ycsb.rmw" rmw: bool = false, in ();
        /// Whether a write adds to the second word of a field by a commuting update. With `--set
        /// cu=on` such a write reads nothing.
        "ycsb.update" update: bool = false, in ();
        /// Skew of the zipfian choice of records; 0 is uniform.
        "ycsb.theta" theta: f64 = 0.0, in 0.0..1.0;
        /// The fraction of operations that scan. Needs the ordered index.
        "ycsb.scan" scan: Fraction = Fraction(0.0), in ();
        /// The largest number of rows of a scan; each scan draws its own, from 1 on.
        "ycsb.scan_length" scan_length: usize = 100, in 1..=1_000_000;
        /// The fraction of operations that insert a new record.
        "ycsb.insert" insert: Fraction = Fraction(0.0), in ();
        /// Whether records are chosen by age, the newest ones most often: first the records that
        /// this worker has inserted, from the last one back, then the loaded ones.
        "ycsb.latest" latest: bool = false, in ();
        /// The key of a record: a bijective hash of the record's number, or the number itself.
        "ycsb.keys" keys: Keys = Keys::Hashed, in ();
        /// Whether a transaction looks its keys up in batches, as it knows them all beforehand: it
        /// makes all point reads at once, and all writes that replace a row without reading it. The
        /// other operations follow; it announces their writes. Otherwise it goes from one operation
        /// to the next, as in systems without such calls.
        "ycsb.batch" batch: bool = true, in ();
        /// Partitions of the records, by their numbers. A thread's transactions choose records of
        /// one partition, assigned to the threads in turn.
        "ycsb.partitions" partitions: u64 = 1, in 1..=65_536;
        /// The fraction of transactions that choose their records from several partitions.
        "ycsb.multi_partition" multi_partition: Fraction = Fraction(0.0), in ();
        /// The number of partitions of such a transaction: the thread's own, and others.
        "ycsb.multi_partitions" multi_partitions: u64 = 2, in 2..=65_536;
        /// How long the first thread's transactions stay open, in microseconds; 0 if that thread
        /// runs ordinary transactions. Long transactions only read, wait, and read the same again
        /// before they commit. A run does not end before the last of them.
        "ycsb.long_us" long_us: u64 = 0, in 0..=1_000_000_000;
    }
}

const SOURCE: &str =
    "Cooper, Silberstein, Tam, Ramakrishnan, Sears: Benchmarking cloud serving systems with YCSB, SoCC 2010";

const fn preset(
    name: &'static str,
    summary: &'static str,
    preset: &'static [(&'static str, &'static str)],
) -> WorkloadInfo {
    WorkloadInfo { name, summary, source: SOURCE, preset }
}

/// YCSB and its presets: the core workloads A to F, with YCSB's skew of 0.99.
pub const INFOS: &[WorkloadInfo] = &[
    preset("ycsb", "reads and writes of single records, half and half, uniform; everything can be set", &[]),
    preset("ycsb-a", "update heavy: half reads, half blind writes, skewed", &[("ycsb.theta", "0.99")]),
    preset(
        "ycsb-b",
        "read mostly: 95 % reads, 5 % blind writes, skewed",
        &[("ycsb.read", "0.95"), ("ycsb.theta", "0.99")],
    ),
    preset("ycsb-c", "read only, skewed", &[("ycsb.read", "1"), ("ycsb.theta", "0.99")]),
    preset(
        "ycsb-d",
        "read latest: 95 % reads of recent records, 5 % inserts",
        &[("ycsb.read", "1"), ("ycsb.insert", "0.05"), ("ycsb.latest", "on"), ("ycsb.theta", "0.99")],
    ),
    preset(
        "ycsb-e",
        "short ranges: 95 % scans, 5 % inserts, skewed; needs the ordered index",
        &[("ycsb.scan", "0.95"), ("ycsb.insert", "0.05"), ("ycsb.theta", "0.99")],
    ),
    preset("ycsb-f", "half reads, half read-modify-writes, skewed", &[("ycsb.rmw", "on"), ("ycsb.theta", "0.99")]),
];

/// The only piece of each transaction: all operations access one table, so they are one step.
const OPERATIONS: Piece = Piece::new(0, "operations");

/// The position of the worker in a tag: the worker's number plus 1 above, the sequence number
/// below.
const WORKER_SHIFT: u32 = 48;
/// The tag of a loaded row.
const LOADED: u64 = 0;
/// Records between two reports of a loader.
const LOAD_STEP: u64 = 4096;
/// Records that are announced together before each is loaded or checked: somewhat more cache misses
/// than a core can have outstanding.
const AHEAD: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Scan,
    Insert,
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    kind: Kind,
    /// The largest number of rows, for a scan.
    length: u32,
    record: u64,
    key: u64,
}

/// A transaction's operations.
#[derive(Debug, Default)]
pub struct Input {
    /// The tag that the transaction writes.
    tag: u64,
    /// The field that the transaction reads and writes.
    field: usize,
    operations: Vec<Operation>,
    /// The keys of the point reads, with `ycsb.batch` only.
    reads: Vec<u64>,
    /// The keys of the writes that are not blind, with `ycsb.batch` only.
    writes: Vec<u64>,
    /// The keys of all point reads and blind writes, in their order, and beside each whether it is
    /// a write; with `ycsb.batch` only, and if the options allow blind writes.
    points: Vec<u64>,
    are_writes: Vec<bool>,
    read_only: bool,
    /// Whether the transaction stays open for long: `ycsb.long_us`.
    is_long: bool,
    /// The partitions from which the operations choose their records in turn.
    partitions: Vec<u64>,
}

/// A worker's generator of inputs, and its memory of its committed transactions.
#[derive(Debug)]
pub struct Client {
    worker: u64,
    workers: u64,
    rng: SmallRng,
    committed: u64,
    inserted: u64,
    /// For each tracked field: the last tag that this client wrote, and the number of its writes.
    tracked: Vec<(u64, u64)>,
    /// A digest of the rows read, so that reading is not optimised away.
    sink: u64,
    /// How often the running execution missed a key, could not insert one, or scanned keys in a
    /// wrong order. A committed transaction must have none.
    surprises: u64,
    /// The sum of the surprises of committed transactions.
    wrong: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Ycsb {
    options: YcsbOptions,
    shape: RowShape,
    table: Table,
    zipf: Zipf,
    /// A draw of 32 random bits below this is a scan; a draw below the next is an insert.
    scan_below: u64,
    insert_below: u64,
    /// Another draw of 32 random bits, below this, is a read.
    read_below: u64,
    /// Whether point reads and blind writes are made at once.
    mixes: bool,
    /// The fields of the loaded records whose writes the clients remember.
    tracked: Sample,
    /// The words of each field.
    spans: Box<[Span]>,
}

/// Instructions that drawing a key takes a simulated core. A skewed draw computes a power, which
/// took 12 to 16 ns on the hosts where it was measured. A uniform draw takes next to nothing.
const ZIPF_INSTRUCTIONS: u32 = 150;
const UNIFORM_INSTRUCTIONS: u32 = 20;

/// Returns the number of 32-bit draws, of all 2^32, that an event of this probability takes.
fn threshold(fraction: f64) -> u64 {
    (fraction * (1u64 << 32) as f64).round() as u64
}

impl Ycsb {
    #[inline(always)]
    fn key(&self, record: u64) -> u64 {
        match self.options.keys {
            Keys::Hashed => mix(record),
            Keys::Sequential => record,
        }
    }

    /// Chooses the partitions of a transaction: the client's own first, then others if the
    /// transaction spans several.
    #[inline(always)]
    fn choose_partitions(&self, client: &mut Client, input: &mut Input) {
        let YcsbOptions { partitions, multi_partition, multi_partitions, .. } = self.options;
        input.partitions.clear();
        input.partitions.push(client.worker % partitions);
        if multi_partition.0 > 0.0 && client.rng.next_u64() >> 32 < threshold(multi_partition.0) {
            while (input.partitions.len() as u64) < multi_partitions {
                let other = below(client.rng.next_u64(), partitions);
                if !input.partitions.contains(&other) {
                    input.partitions.push(other);
                }
            }
        }
    }

    /// Returns the number of the record that the client inserts as its `nth`.
    fn inserted_record(&self, client: &Client, nth: u64) -> u64 {
        self.options.records + nth * client.workers + client.worker
    }

    #[inline(always)]
    fn choose<C: Core>(&self, core: &mut C, client: &mut Client, partition: u64) -> u64 {
        core.work(if self.options.theta > 0.0 { ZIPF_INSTRUCTIONS } else { UNIFORM_INSTRUCTIONS });
        let rank = self.zipf.draw(client.rng.next_u64());
        if self.options.partitions > 1 {
            return rank * self.options.partitions + partition;
        }
        if !self.options.latest {
            return rank;
        }
        if rank < client.inserted {
            self.inserted_record(client, client.inserted - 1 - rank)
        } else {
            // There are as many ranks as loaded records. So each insert pushes the oldest loaded
            // record out of the choice.
            self.options.records - 1 - (rank - client.inserted)
        }
    }

    /// Returns the groups of columns that the transaction reads and writes.
    #[inline(always)]
    fn groups(&self, field: usize) -> Groups {
        if self.options.fields == 1 { Groups::ALL } else { Groups::of(field as u32) }
    }

    /// Returns the same groups as a projection.
    #[inline(always)]
    fn columns(&self, field: usize) -> Projection<'_> {
        if self.options.fields == 1 {
            Projection::WHOLE
        } else {
            Projection::columns(&self.spans[field..=field], self.groups(field))
        }
    }

    /// Scans, and returns a digest of the rows. Returns as well whether the first key is the one
    /// asked for, and the others ascend.
    #[inline]
    fn scan<T: Txn>(
        &self,
        tx: &mut T,
        operation: &Operation,
        columns: Projection<'_>,
        first: usize,
    ) -> Result<(u64, bool), Abort> {
        let (limit, range) = (operation.length as usize, operation.key..=u64::MAX);
        // No record is ever deleted: the first key is the one asked for, and the others ascend.
        let (mut digest, mut previous, mut ascending) = (0, None, true);
        tx.scan_rows(&self.table, range, limit, Direction::Forward, columns, |found, row| {
            ascending &= previous.map_or(found == operation.key, |previous| found > previous);
            previous = Some(found);
            digest ^= row[first];
            ControlFlow::Continue(())
        })?;
        Ok((digest, ascending && previous.is_some()))
    }

    /// Leaves a long transaction open for its time, then reads its keys again and returns a digest
    /// of the rows.
    #[inline]
    fn read_again<T: Txn>(
        &self,
        tx: &mut T,
        input: &Input,
        columns: Projection<'_>,
        first: usize,
    ) -> Result<u64, Abort> {
        tx.idle(self.options.long_us);
        let mut digest = 0;
        let keys = input.reads.iter().copied().chain(input.operations.iter().map(|operation| operation.key));
        for key in keys {
            tx.read_row(&self.table, key, columns)?.into_iter().for_each(|row| digest ^= row[first]);
        }
        Ok(digest)
    }

    /// Returns the keys of the point reads and writes in the order in which they are accessed, and
    /// whether each is a write.
    #[inline(always)]
    fn points(&self, input: &Input) -> impl Iterator<Item = (u64, bool)> {
        let mixed = input.points.iter().copied().zip(input.are_writes.iter().copied());
        let reads = input.reads.iter().map(|&key| (key, false));
        let others = input.operations.iter().filter(|other| matches!(other.kind, Kind::Read | Kind::Write));
        let others = others.map(|other| (other.key, other.kind == Kind::Write));
        mixed.chain((!self.mixes).then(|| reads.chain(others)).into_iter().flatten())
    }

    /// Returns the keys of the inserts.
    #[inline(always)]
    fn inserts(&self, input: &Input) -> impl Iterator<Item = u64> {
        input.operations.iter().filter(|operation| operation.kind == Kind::Insert).map(|operation| operation.key)
    }

    /// Names the rows of all operations for the later part of the transaction, and returns it.
    #[inline(always)]
    fn name_rows<'t, T: Txn>(&self, tx: &'t mut T, input: &Input) -> &'t mut T {
        for (key, writes) in self.points(input) {
            tx.later_row(&self.table, key, writes);
        }
        for key in self.inserts(input) {
            tx.later_inserts(&self.table, key..=key);
        }
        tx
    }

    /// Runs the operations. Returns a digest of the rows read, and the number of surprises
    /// ([`Client::surprises`]).
    #[inline]
    fn operate<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<(u64, u64), Abort> {
        let (mut sink, mut surprises) = (0, 0);
        let (field, first) = (input.field, self.spans[input.field].first as usize);
        let (groups, columns) = (self.groups(field), self.columns(field));
        if !input.writes.is_empty() {
            tx.announce(&self.table, &input.writes, Projection::of_groups(groups), true);
        }
        // A transaction without blind writes only reads, by the call for that.
        if input.points.len() > input.reads.len() {
            let points = (&input.points[..], &input.are_writes[..]);
            tx.read_or_write_rows(&self.table, points, columns, groups, |position, row| match row {
                ReadOrWritten::Read(Some(row)) => sink ^= row[first],
                ReadOrWritten::Written(Some(row)) => self.shape.fill(row, field, input.points[position], input.tag, 0),
                ReadOrWritten::Read(None) | ReadOrWritten::Written(None) => surprises += 1,
            })?;
        } else if !input.reads.is_empty() {
            tx.read_rows(&self.table, &input.reads, columns, |_, row| match row {
                Some(row) => sink ^= row[first],
                None => surprises += 1,
            })?;
        }
        for operation in &input.operations {
            let key = operation.key;
            match operation.kind {
                Kind::Read => match tx.read_row(&self.table, key, columns)? {
                    Some(row) => sink ^= row[first],
                    None => surprises += 1,
                },
                Kind::Write if self.options.update => {
                    let word = first + 1;
                    surprises += u64::from(!tx.update_row(
                        &self.table,
                        key,
                        RowUpdate::add_to_word(&AddToWord { groups, word, value: 1 }),
                    )?);
                }
                Kind::Write if self.options.rmw => match tx.modify_row(&self.table, key, groups)? {
                    Some(row) => {
                        let writes = self.shape.writes(row, field) + 1;
                        sink ^= row[first];
                        self.shape.fill(row, field, key, input.tag, writes);
                    }
                    None => surprises += 1,
                },
                // It was among the points.
                Kind::Write if self.mixes => {}
                Kind::Write => match tx.write_row(&self.table, key, groups)? {
                    Some(row) => self.shape.fill(row, field, key, input.tag, 0),
                    None => surprises += 1,
                },
                Kind::Scan => {
                    let (digest, complete) = self.scan(tx, operation, columns, first)?;
                    sink ^= digest;
                    surprises += u64::from(!complete);
                }
                Kind::Insert => match tx.insert_row(&self.table, key)? {
                    Some(row) => self.shape.fill_all(row, key, input.tag),
                    None => surprises += 1,
                },
            }
        }
        if input.is_long {
            let again = self.read_again(tx, input, columns, first)?;
            surprises += u64::from(again != sink);
        }
        Ok((sink, surprises))
    }

    /// Returns the position of a field in the books, or `None` if it is not tracked.
    #[inline(always)]
    fn tracked(&self, record: u64, field: usize) -> Option<usize> {
        let records = self.options.records;
        if record < records { self.tracked.position(field as u64 * records + record) } else { None }
    }
}

impl Workload for Ycsb {
    type Options = YcsbOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &["read_only", "read_write", "long"]
    }

    fn validate(options: &YcsbOptions, index: IndexKind) -> Result<(), String> {
        let sum = options.scan.0 + options.insert.0;
        if sum > 1.0 {
            return Err(format!(
                "ycsb.scan and ycsb.insert are fractions of all operations: their sum is {sum}, above 1"
            ));
        }
        if options.scan.0 > 0.0 && index == IndexKind::Hash {
            return Err("scans (ycsb.scan above 0) need an ordered index: use --index ordered".into());
        }
        let YcsbOptions {
            records,
            partitions,
            multi_partition,
            multi_partitions,
            latest,
            payload,
            fields,
            update,
            rmw,
            ..
        } = *options;
        if update && rmw {
            return Err("a write is an update (ycsb.update) or a read-modify-write (ycsb.rmw), not both".into());
        }
        if update && payload / 8 / fields < 2 {
            return Err(format!(
                "ycsb.update adds to the second word of a field: with ycsb.fields={fields}, ycsb.payload has to be {} or more",
                16 * fields
            ));
        }
        if payload.div_ceil(8) < fields {
            return Err(format!(
                "ycsb.fields is {fields}, and each needs 8 bytes: ycsb.payload is {payload}, and has to be {} or more",
                8 * fields
            ));
        }
        if records < partitions {
            return Err(format!("ycsb.partitions is {partitions}, and ycsb.records only {records}"));
        }
        if partitions > 1 && latest {
            return Err("ycsb.latest chooses records by age, not by partition: ycsb.partitions must be 1".into());
        }
        if multi_partition.0 > 0.0 && multi_partitions > partitions {
            return Err(format!(
                "ycsb.partitions is {partitions}, below ycsb.multi_partitions, which is {multi_partitions}"
            ));
        }
        Ok(())
    }

    fn tables(options: &YcsbOptions, index: IndexKind) -> Vec<TableSpec> {
        let records = usize::try_from(options.records).unwrap_or(usize::MAX);
        let shape = RowShape::new(options);
        vec![TableSpec {
            groups: (0..options.fields).map(|field| shape.span(field)).collect(),
            ..TableSpec::of_bytes("usertable", index, options.payload, records)
        }]
    }

    fn create<S: Tables>(options: &YcsbOptions, index: IndexKind, store: &S) -> Self {
        let table = store.create_table(&Self::tables(options, index)[0]);
        let shape = RowShape::new(options);
        Ycsb {
            shape,
            spans: (0..options.fields).map(|field| shape.span(field)).collect(),
            table,
            // Every partition has the same number of records.
            zipf: Zipf::new(options.records / options.partitions, options.theta),
            scan_below: threshold(options.scan.0),
            insert_below: threshold(options.scan.0 + options.insert.0),
            read_below: threshold(options.read.0),
            mixes: options.batch && !options.update && !options.rmw && options.read.0 < 1.0,
            tracked: Sample::new(options.records * options.fields as u64),
            options: options.clone(),
        }
    }

    fn load_units(&self) -> u64 {
        self.options.records
    }

    fn for_verification(options: &YcsbOptions) -> YcsbOptions {
        YcsbOptions {
            records: options.records.min(500.max(options.partitions)),
            payload: options.payload.min(64.max(16 * options.fields)),
            ops: options.ops.min(16),
            scan_length: options.scan_length.min(20),
            long_us: options.long_us.min(1000),
            ..options.clone()
        }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load_in_steps(self.options.records, part, parts, LOAD_STEP, done, |records| {
            let keys: Vec<u64> = records.map(|record| self.key(record)).collect();
            for keys in keys.chunks(AHEAD) {
                loader.announce(&self.table, keys);
                for &key in keys {
                    loader.insert(&self.table, key, |row| self.shape.fill_all(row, key, LOADED))?;
                }
            }
            Ok(())
        })
    }

    fn client(&self, worker: usize, workers: usize, seed: u64) -> Client {
        Client {
            worker: worker as u64,
            workers: workers as u64,
            rng: SmallRng::seed_from_u64(mix(seed) ^ worker as u64),
            committed: 0,
            inserted: 0,
            tracked: vec![(LOADED, 0); self.tracked.len()],
            sink: 0,
            surprises: 0,
            wrong: 0,
        }
    }

    #[inline]
    fn next<C: Core>(&self, core: &mut C, client: &mut Client, input: &mut Input) {
        input.tag = (client.worker + 1) << WORKER_SHIFT | (client.committed + 1);
        input.field = match self.options.fields {
            1 => 0,
            fields => below(client.rng.next_u64(), fields as u64) as usize,
        };
        input.operations.clear();
        input.reads.clear();
        input.writes.clear();
        input.points.clear();
        input.are_writes.clear();
        // Reserve the most that any transaction can need, so that no later draw allocates.
        input.operations.reserve(self.options.ops);
        if self.options.batch {
            input.reads.reserve(self.options.ops);
            input.writes.reserve(self.options.ops);
            input.points.reserve(self.options.ops);
            input.are_writes.reserve(self.options.ops);
        }
        input.read_only = true;
        input.is_long = self.options.long_us > 0 && client.worker == 0;
        self.choose_partitions(client, input);
        let (mut inserts, mut turn) = (0, 0);
        for _ in 0..self.options.ops {
            let partition = input.partitions[turn];
            // Not a remainder of the operation's number: a division takes as long as all else.
            turn = if turn + 1 == input.partitions.len() { 0 } else { turn + 1 };
            let random = client.rng.next_u64();
            let (first, second) = (random >> 32, random & u64::from(u32::MAX));
            let kind = if input.is_long {
                Kind::Read
            } else if first < self.scan_below {
                Kind::Scan
            } else if first < self.insert_below {
                Kind::Insert
            } else if second < self.read_below {
                Kind::Read
            } else {
                Kind::Write
            };
            let mut length = 0;
            let record = match kind {
                Kind::Insert => {
                    inserts += 1;
                    self.inserted_record(client, client.inserted + inserts - 1)
                }
                Kind::Scan => {
                    length = ((second * self.options.scan_length as u64) >> 32) as u32 + 1;
                    self.choose(core, client, partition)
                }
                Kind::Read | Kind::Write => self.choose(core, client, partition),
            };
            let key = self.key(record);
            input.read_only &= matches!(kind, Kind::Read | Kind::Scan);
            if self.options.batch && matches!(kind, Kind::Read | Kind::Write) {
                if self.mixes {
                    input.points.push(key);
                    input.are_writes.push(kind == Kind::Write);
                } else if kind == Kind::Write {
                    input.writes.push(key);
                }
                if kind == Kind::Read {
                    input.reads.push(key);
                    continue;
                }
            }
            input.operations.push(Operation { kind, length, record, key });
        }
    }

    fn kind(&self, input: &Input) -> usize {
        if input.is_long { 2 } else { usize::from(!input.read_only) }
    }

    fn declares(options: &YcsbOptions) -> Declares {
        let rows = match (options.scan.0, options.insert.0) {
            (0.0, _) => DeclaredRows::All,
            // A scan learns its rows as it runs, and an insert makes its own.
            (scans, inserts) if scans + inserts >= 1.0 => DeclaredRows::None,
            _ => DeclaredRows::Known,
        };
        Declares { rows, partitions: Some(options.partitions as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if input.read_only {
            declaration.read_only();
        }
        let by_rows = match declaration.needs() {
            DeclarationNeeds::RowsOrPartitions => self.scan_below == 0,
            needs => needs == DeclarationNeeds::Rows,
        };
        if by_rows {
            self.points(input).for_each(|(key, writes)| declaration.row(&self.table, key, writes));
            self.inserts(input).for_each(|key| declaration.row(&self.table, key, true));
        } else if self.scan_below > 0 {
            // A scan crosses all partitions.
            (0..self.options.partitions).for_each(|partition| declaration.partition(partition as usize));
        } else {
            input.partitions.iter().for_each(|&partition| declaration.partition(partition as usize));
        }
    }

    /// A transaction draws its field, so it may access any.
    fn types(&self, types: &mut Types) {
        let all = Groups::ALL;
        let reads = |piece: PieceBuilder| piece.access(Mode::Read, &self.table, all);
        types.add_read_only("read_only").piece(OPERATIONS, reads);
        types.add("read_write").piece(OPERATIONS, |mut piece| {
            // The thresholds of the draws in `next`.
            const EVERY: u64 = 1 << 32;
            let points = self.insert_below < EVERY;
            if self.scan_below > 0 || points && self.read_below > 0 {
                piece = reads(piece);
            }
            if points && self.read_below < EVERY {
                let mode = if self.options.update { Mode::Update } else { Mode::Write };
                piece = piece.access(mode, &self.table, all);
            }
            if self.insert_below > self.scan_below { piece.insert(&self.table) } else { piece }
        });
        types.add_read_only("long").piece(OPERATIONS, reads);
    }

    #[inline]
    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let run = |tx: &mut T| tx.piece(OPERATIONS, |tx| self.operate(tx, input));
        // A scan must come now.
        let (sink, surprises) = if self.scan_below > 0 { run(tx)? } else { self.name_rows(tx, input).later(run)? };
        client.sink ^= sink;
        client.surprises = surprises;
        Ok(())
    }

    #[inline]
    fn committed(&self, client: &mut Client, input: &Input) {
        client.committed += 1;
        client.wrong += client.surprises;
        if input.read_only {
            return;
        }
        for operation in &input.operations {
            match operation.kind {
                Kind::Write => {
                    if let Some(position) = self.tracked(operation.record, input.field) {
                        let (last, writes) = &mut client.tracked[position];
                        if !self.options.update {
                            *last = input.tag;
                        }
                        *writes += 1;
                    }
                }
                Kind::Insert => client.inserted += 1,
                Kind::Read | Kind::Scan => {}
            }
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        self.check_rows(store, clients)
    }
}
