//! YCSB: point operations, scans and inserts on one table.
//!
//! B. F. Cooper, A. Silberstein, E. Tam, R. Ramakrishnan, R. Sears: "Benchmarking cloud serving
//! systems with YCSB", SoCC 2010; as transactions of several operations, with the parameters of T.
//! Tanabe et al.: "An analysis of concurrency control protocols for in-memory databases with
//! CCBench", VLDB 2020, section 5.
//!
//! # What a row says
//! The first word of a row is the *stamp* of the transaction that wrote it: worker and sequence
//! number. All further words follow from stamp and key, so that a row that is torn, or stands under
//! the wrong key, shows. With `ycsb.rmw=on` and 16 bytes or more the second word counts the writes;
//! with `ycsb.update=on` a write does nothing but count. With `ycsb.fields` above 1 all this holds
//! of each field. After a run each record must hold a stamp of a committed transaction; and each
//! *tracked* record (all of them, up to 65,536; else one in a power of two) the last stamp that the
//! client that wrote it remembers, and the number of all clients' writes. Of the records that are
//! not tracked it is not checked that the stamp is the last writer's, nor that this writer wrote
//! this record. Rows of 8 bytes hold the stamp alone: of them a wrong key shows if the record is
//! tracked.
//!
//! A committed transaction must have found every key that it asked for, and its scans must begin at
//! their key and ascend. Every insert that committed must be there; those that a client would make
//! next must not.

mod check;
mod row;

use std::ops::ControlFlow;

use contend_model::options::Fraction;
use contend_model::{
    Abort, AddToWord, Core, DeclarationNeeds, Declare, Direction, GROUPS_MAX, Groups, IndexKind, Inspect, Load,
    OutOfMemory, Projection, RowUpdate, Span, Table, TableSpec, Tables, Txn, option_choices, options,
};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::sample::Sample;
use crate::workload::{Checked, Declares, Violation, Workload, WorkloadInfo};
use crate::zipf::Zipf;

use row::Shape;

/// Which key a record has.
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
        /// Bytes of a row. 8 is the least: a row says who wrote it.
        "ycsb.payload" payload: usize = 8, in 8..=65_536;
        /// Fields of a row, as long as each other but for a word. A transaction reads and writes
        /// one of them, drawn uniformly; an insert writes all. Each is a group of columns: with
        /// `--set ts=on` it has a version of its own. YCSB's own rows are 10 fields of 100 bytes.
        "ycsb.fields" fields: usize = 1, in 1..=GROUPS_MAX;
        /// Operations of a transaction.
        "ycsb.ops" ops: usize = 10, in 1..=10_000;
        /// Of the operations that are neither scan nor insert, the fraction that reads; the others
        /// write.
        "ycsb.read" read: Fraction = Fraction(0.5), in ();
        /// Whether a write reads the row first (read-modify-write), or replaces it unseen.
        "ycsb.rmw" rmw: bool = false, in ();
        /// Whether a write adds to the second word of a field instead, by an update that commutes:
        /// with `--set cu=on` it reads nothing.
        "ycsb.update" update: bool = false, in ();
        /// Skew of the zipfian choice of records; 0 is uniform.
        "ycsb.theta" theta: f64 = 0.0, in 0.0..1.0;
        /// The fraction of operations that scan. Needs the ordered index.
        "ycsb.scan" scan: Fraction = Fraction(0.0), in ();
        /// A scan's largest number of rows; each scan draws its own, from 1 on.
        "ycsb.scan_length" scan_length: usize = 100, in 1..=1_000_000;
        /// The fraction of operations that insert a new record.
        "ycsb.insert" insert: Fraction = Fraction(0.0), in ();
        /// Whether records are chosen by age, the newest being the most popular: first those that
        /// this worker has inserted, from the last one back, then the loaded ones.
        "ycsb.latest" latest: bool = false, in ();
        /// Keys: a bijective hash of the record's number, or the number itself.
        "ycsb.keys" keys: Keys = Keys::Hashed, in ();
        /// Whether a transaction looks its keys up in batches: it makes its point reads first, all
        /// at once, and announces its writes before.
        "ycsb.batch" batch: bool = false, in ();
        /// Partitions of the records, by their numbers. A thread's transactions choose records of
        /// one partition, threads taking turns among them.
        "ycsb.partitions" partitions: u64 = 1, in 1..=65_536;
        /// The fraction of transactions that choose their records from several partitions.
        "ycsb.multi_partition" multi_partition: Fraction = Fraction(0.0), in ();
        /// From how many these do: the thread's own, and others.
        "ycsb.multi_partitions" multi_partitions: u64 = 2, in 2..=65_536;
        /// The first thread's transactions, unless this is 0: they only read, stay open for so
        /// long, in microseconds, and then read the same again before they commit. A run does not
        /// end before the last of them.
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

/// In a stamp: the worker above, the sequence number below.
const WORKER_SHIFT: u32 = 48;
/// The stamp of a row that was loaded.
const LOADED: u64 = 0;
/// Records that a loader reports at once.
const LOAD_STEP: u64 = 4096;
/// Records that are asked for at once before each is loaded or checked: what a core can have under
/// way, and some.
const AHEAD: usize = 32;

/// The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection of 64 bits.
#[inline(always)]
fn mix(x: u64) -> u64 {
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

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
    /// Rows of a scan.
    length: u32,
    record: u64,
    key: u64,
}

/// A transaction's operations.
#[derive(Debug, Default)]
pub struct Input {
    stamp: u64,
    /// The field that is read and written.
    field: usize,
    operations: Vec<Operation>,
    /// The keys of the point reads, if they are made in one batch.
    reads: Vec<u64>,
    /// The keys of the writes, in this case.
    writes: Vec<u64>,
    read_only: bool,
    /// It stays open for long: `ycsb.long_us`.
    is_long: bool,
    /// The partitions from which records are chosen, in turns.
    partitions: Vec<u64>,
}

/// A worker's generator, and what it knows of its committed transactions.
#[derive(Debug)]
pub struct Client {
    worker: u64,
    workers: u64,
    rng: SmallRng,
    committed: u64,
    inserted: u64,
    /// Of each tracked field: the last stamp that this client wrote, and how often it wrote.
    tracked: Vec<(u64, u64)>,
    /// What was read, so that reading is not optimised away.
    sink: u64,
    /// Keys that the running execution found missing, or that it could not insert, and scans that
    /// began or went on at a wrong key: none, if it commits.
    surprises: u64,
    /// The same, of committed transactions.
    wrong: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Ycsb {
    options: YcsbOptions,
    shape: Shape,
    table: Table,
    zipf: Zipf,
    /// Below the first of 32 random bits: a scan; below the second: an insert.
    scan_below: u64,
    insert_below: u64,
    /// Below: a read, of 32 other bits.
    read_below: u64,
    /// The fields of the loaded records that clients remember writing.
    tracked: Sample,
    /// The words of each field.
    spans: Box<[Span]>,
}

/// What drawing a key takes a simulated core: with skew a power, 12 to 16 ns on the hosts where it
/// was measured; else next to nothing.
const ZIPF_INSTRUCTIONS: u32 = 150;
const UNIFORM_INSTRUCTIONS: u32 = 20;

/// A fraction of the 2^32 values of 32 random bits.
fn below(fraction: f64) -> u64 {
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

    /// Chooses the partitions of a transaction: the client's own first, and others if it is to have
    /// several.
    #[inline(always)]
    fn choose_partitions(&self, client: &mut Client, input: &mut Input) {
        let YcsbOptions { partitions, multi_partition, multi_partitions, .. } = self.options;
        input.partitions.clear();
        input.partitions.push(client.worker % partitions);
        if multi_partition.0 > 0.0 && client.rng.next_u64() >> 32 < below(multi_partition.0) {
            while (input.partitions.len() as u64) < multi_partitions {
                let other = ((u128::from(client.rng.next_u64()) * u128::from(partitions)) >> 64) as u64;
                if !input.partitions.contains(&other) {
                    input.partitions.push(other);
                }
            }
        }
    }

    /// The number of the record that the client inserts as its `nth`.
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
            // There are as many ranks as loaded records: the oldest of these fall out as new ones
            // come.
            self.options.records - 1 - (rank - client.inserted)
        }
    }

    /// What the transaction reads and writes of a row.
    #[inline(always)]
    fn groups(&self, field: usize) -> Groups {
        if self.options.fields == 1 { Groups::ALL } else { Groups::of(field as u32) }
    }

    /// The same, to be read.
    #[inline(always)]
    fn columns(&self, field: usize) -> Projection<'_> {
        if self.options.fields == 1 {
            Projection::WHOLE
        } else {
            Projection::columns(&self.spans[field..=field], self.groups(field))
        }
    }

    /// Where the books have a field, if they have it.
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

    const KINDS: &'static [&'static str] = &["read_only", "read_write", "long"];

    fn validate(options: &YcsbOptions, index: IndexKind) -> Result<(), String> {
        let sum = options.scan.0 + options.insert.0;
        if sum > 1.0 {
            return Err(format!(
                "ycsb.scan and ycsb.insert are fractions of all operations: their sum is {sum}, above 1"
            ));
        }
        if options.scan.0 > 0.0 && index == IndexKind::Hash {
            return Err("a scan (ycsb.scan above 0) needs an index with an order: use --index ordered".into());
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
                "transactions of ycsb.multi_partitions={multi_partitions} partitions need as many: ycsb.partitions is {partitions}"
            ));
        }
        Ok(())
    }

    fn tables(options: &YcsbOptions, index: IndexKind) -> Vec<TableSpec> {
        let records = usize::try_from(options.records).unwrap_or(usize::MAX);
        let shape = Shape::new(options);
        vec![TableSpec {
            groups: (0..options.fields).map(|field| shape.span(field)).collect(),
            ..TableSpec::of_bytes("usertable", index, options.payload, records)
        }]
    }

    fn create<S: Tables>(options: &YcsbOptions, index: IndexKind, store: &S) -> Self {
        let table = store.create_table(&Self::tables(options, index)[0]);
        let shape = Shape::new(options);
        Ycsb {
            shape,
            spans: (0..options.fields).map(|field| shape.span(field)).collect(),
            table,
            // The records of a partition, as many in each.
            zipf: Zipf::new(options.records / options.partitions, options.theta),
            scan_below: below(options.scan.0),
            insert_below: below(options.scan.0 + options.insert.0),
            read_below: below(options.read.0),
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
        let bound = |part: usize| (u128::from(self.options.records) * part as u128 / parts as u128) as u64;
        let (mut next, end) = (bound(part), bound(part + 1));
        while next < end {
            let step = (end - next).min(LOAD_STEP);
            let keys: Vec<u64> = (next..next + step).map(|record| self.key(record)).collect();
            for keys in keys.chunks(AHEAD) {
                loader.announce(&self.table, keys);
                for &key in keys {
                    loader.insert(&self.table, key, |row| self.shape.fill_all(row, key, LOADED))?;
                }
            }
            next += step;
            if done(step).is_break() {
                break;
            }
        }
        Ok(())
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
        input.stamp = (client.worker + 1) << WORKER_SHIFT | (client.committed + 1);
        input.field = match self.options.fields {
            1 => 0,
            fields => ((u128::from(client.rng.next_u64()) * fields as u128) >> 64) as usize,
        };
        input.operations.clear();
        input.reads.clear();
        input.writes.clear();
        // At once what any transaction can need, so that no later one allocates.
        input.operations.reserve(self.options.ops);
        if self.options.batch {
            input.reads.reserve(self.options.ops);
            input.writes.reserve(self.options.ops);
        }
        input.read_only = true;
        input.is_long = self.options.long_us > 0 && client.worker == 0;
        self.choose_partitions(client, input);
        let mut inserts = 0;
        for operation in 0..self.options.ops {
            let partition = input.partitions[operation % input.partitions.len()];
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
            if self.options.batch && kind == Kind::Read {
                input.reads.push(key);
                continue;
            }
            if self.options.batch && kind == Kind::Write {
                input.writes.push(key);
            }
            input.operations.push(Operation { kind, length, record, key });
        }
    }

    fn kind(&self, input: &Input) -> usize {
        if input.is_long { 2 } else { usize::from(!input.read_only) }
    }

    fn declares(options: &YcsbOptions) -> Declares {
        Declares { rows: options.scan.0 == 0.0, partitions: Some(options.partitions as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if input.read_only {
            declaration.read_only();
        }
        if declaration.needs() == DeclarationNeeds::Rows {
            for operation in &input.operations {
                declaration.row(&self.table, operation.key, operation.kind == Kind::Write);
            }
            input.reads.iter().for_each(|&key| declaration.row(&self.table, key, false));
        } else if self.scan_below > 0 {
            // A scan goes through all of them.
            (0..self.options.partitions).for_each(|partition| declaration.partition(partition as usize));
        } else {
            input.partitions.iter().for_each(|&partition| declaration.partition(partition as usize));
        }
    }

    #[inline]
    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let mut sink = 0;
        let mut surprises = 0;
        let (field, first) = (input.field, self.spans[input.field].first as usize);
        let (groups, columns) = (self.groups(field), self.columns(field));
        if self.options.batch {
            tx.announce_writes(&self.table, &input.writes, groups);
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
                        self.shape.fill(row, field, key, input.stamp, writes);
                    }
                    None => surprises += 1,
                },
                Kind::Write => match tx.write_row(&self.table, key, groups)? {
                    Some(row) => self.shape.fill(row, field, key, input.stamp, 0),
                    None => surprises += 1,
                },
                Kind::Scan => {
                    let (limit, range) = (operation.length as usize, key..=u64::MAX);
                    // No record is ever deleted: the first key is the one asked for, and the others
                    // ascend.
                    let (mut previous, mut ascending) = (None, true);
                    tx.scan_rows(&self.table, range, limit, Direction::Forward, columns, |found, row| {
                        ascending &= previous.map_or(found == key, |previous| found > previous);
                        previous = Some(found);
                        sink ^= row[first];
                        ControlFlow::Continue(())
                    })?;
                    surprises += u64::from(!ascending || previous.is_none());
                }
                Kind::Insert => match tx.insert_row(&self.table, key)? {
                    Some(row) => self.shape.fill_all(row, key, input.stamp),
                    None => surprises += 1,
                },
            }
        }
        if input.is_long {
            tx.idle(self.options.long_us);
            let mut again = 0;
            let keys = input.reads.iter().copied().chain(input.operations.iter().map(|operation| operation.key));
            for key in keys {
                tx.read_row(&self.table, key, columns)?.into_iter().for_each(|row| again ^= row[first]);
            }
            surprises += u64::from(again != sink);
        }
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
                            *last = input.stamp;
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

#[cfg(test)]
mod tests {
    use super::*;
    use contend_engine::Options;

    #[test]
    fn the_key_hash_is_a_bijection() {
        /// The inverse of an odd number modulo 2^64, by Newton's method.
        fn inverse(odd: u64) -> u64 {
            (0..6).fold(odd, |guess, _| guess.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(guess))))
        }
        fn unshift(x: u64, by: u32) -> u64 {
            (0..64 / by).fold(x, |guess, _| x ^ guess >> by)
        }
        let unmix = |x| {
            let x = unshift(x, 31).wrapping_mul(inverse(0x94d0_49bb_1331_11eb));
            unshift(unshift(x, 27).wrapping_mul(inverse(0xbf58_476d_1ce4_e5b9)), 30)
        };
        for x in (0..1000).chain([u64::MAX, u64::MAX - 1, 1 << 63]) {
            assert_eq!(unmix(mix(x)), x);
        }
    }

    fn engine() -> std::sync::Arc<contend_engine::Engine<contend_protocols::none::NoControl, contend_machine::Native>> {
        contend_engine::Engine::new(contend_protocols::none::NoControl, contend_engine::EngineConfig::default())
    }

    #[test]
    fn only_the_first_draw_allocates() {
        // Reads that are nearly all, or nearly none, of a transaction: the rare longest list of the
        // other kind is not to grow.
        for read in [0.05, 0.95] {
            let options = YcsbOptions { batch: true, read: Fraction(read), ops: 100, ..YcsbOptions::default() };
            let ycsb = Ycsb::create(&options, IndexKind::Hash, &engine());
            let (mut client, mut input) = (ycsb.client(0, 1, 3), Input::default());
            ycsb.next(&mut (), &mut client, &mut input);
            let capacities = |input: &Input| [&input.reads, &input.writes].map(Vec::capacity);
            let before = (capacities(&input), input.operations.capacity());
            for _ in 0..20_000 {
                ycsb.next(&mut (), &mut client, &mut input);
            }
            assert_eq!((capacities(&input), input.operations.capacity()), before);
            assert!(before.0.into_iter().all(|capacity| capacity >= 100) && before.1 >= 100, "{before:?}");
        }
    }

    #[test]
    fn operations_come_in_the_ratios_asked_for() {
        let mut options = YcsbOptions::default();
        for (name, value) in [("ycsb.scan", "0.2"), ("ycsb.insert", "0.1"), ("ycsb.read", "0.75"), ("ycsb.ops", "100")]
        {
            options.set(name, value).expect("a valid option");
        }
        let ycsb = Ycsb::create(&options, IndexKind::Ordered, &engine());
        let mut client = ycsb.client(0, 1, 11);
        let mut input = Input::default();
        let (mut counts, mut lengths) = ([0.0f64; 4], 0.0f64);
        for _ in 0..1000 {
            ycsb.next(&mut (), &mut client, &mut input);
            for operation in &input.operations {
                counts[operation.kind as usize] += 1.0;
                lengths += f64::from(operation.length);
            }
        }
        // Of 100,000 draws: five standard deviations are below 0.008.
        for (count, expected) in counts.iter().zip([0.7 * 0.75, 0.7 * 0.25, 0.2, 0.1]) {
            assert!((count / 100_000.0 - expected).abs() < 0.008, "{counts:?}");
        }
        assert!((lengths / counts[Kind::Scan as usize] - 50.5).abs() < 1.5, "scans of 1 to 100 rows");
    }

    #[test]
    fn presets_are_valid() {
        for info in INFOS {
            let mut options = YcsbOptions::default();
            for (name, value) in info.preset {
                options.set(name, value).unwrap_or_else(|error| panic!("{}: {error}", info.name));
            }
            assert_eq!(Ycsb::validate(&options, IndexKind::Ordered), Ok(()));
            let on_hash = Ycsb::validate(&options, IndexKind::Hash);
            assert_eq!(on_hash.is_err(), info.name == "ycsb-e", "{}", info.name);
        }
        let options = YcsbOptions { scan: Fraction(0.6), insert: Fraction(0.5), ..YcsbOptions::default() };
        let error = Ycsb::validate(&options, IndexKind::Ordered).expect_err("a sum of 1.1");
        assert!(error.contains("ycsb.scan") && error.contains("ycsb.insert"), "{error}");
        let validate = |payload, rmw| {
            let options = YcsbOptions { payload, rmw, update: true, fields: 2, ..YcsbOptions::default() };
            Ycsb::validate(&options, IndexKind::Hash)
        };
        assert_eq!(validate(32, false), Ok(()));
        assert!(validate(24, false).expect_err("too short").contains("32 or more"));
        assert!(validate(32, true).expect_err("both").contains("ycsb.rmw"));
    }
}
