//! Workloads that users write: a TOML file with a schema, and transactions as pgbench scripts.
//!
//! [`WorkloadFile`] is a file that was read and found valid. Its scripts are compiled to flat steps
//! on registers ([`program`]), which [`interpret`] runs as the body of a transaction, without a
//! name, a map or an allocation. docs/workload_file.md is the language's reference.
//!
//! | module | contents |
//! | --- | --- |
//! | [`source`], [`schema`], [`script`] | the file, its tables, and its scripts, as they are written |
//! | [`compile`], [`select`], [`change`], [`expression`], [`known`], [`pieces`] | from scripts to code, what of it is known before a transaction begins, and its pieces |
//! | [`options`] | its parameters |
//! | [`plain`] | files of plain pgbench scripts |
//! | [`program`], [`draws`], [`recent`], [`interpret`], [`rows`] | the code, and its execution |
//! | [`invariant`], [`loaded`], [`checked`] | conditions on the tables after a run, the keys of loaded rows, and what a check says |
//! | [`instead`] | what stands in the place of SQL that the language lacks |
//! | [`view`] | the file for systems outside: statements of SQL with their values |

mod change;
mod checked;
mod compile;
mod distribute;
mod draws;
mod error;
mod expression;
mod foresee;
mod fuse;
mod instead;
mod interpret;
mod invariant;
mod known;
mod loaded;
mod ops;
mod options;
mod partitions;
mod pieces;
mod plain;
mod program;
mod recent;
mod rounds;
mod rows;
mod schema;
mod script;
mod select;
mod source;
mod splits;
mod summary;
#[cfg(test)]
mod tests;
pub mod view;

use std::collections::{BTreeMap, HashSet};
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use contend_model::random::{GOLDEN_GAMMA, mix};
use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, Groups, IndexKind, Inspect, Key, KeyWords, Load, OptionSpec, Options,
    OutOfMemory, TableSpec, Tables, Txn, Types,
};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::loading::load_in_steps;
use crate::workload::{Checked, DeclaredRows, Declares, ThinkTime, Violation, Workload, WorkloadInfo};

use error::Read;
use expression::Writer;
use foresee::{KnownKeys, announce, declare_rows};
pub use interpret::Input;
use interpret::{Handle, Memory, key_of, put, with_table};
use invariant::{Invariant, invariant_of};
pub use options::FileOptions;
use options::WHOLE;
use partitions::{Partitions, partitions_of};
pub use plain::{PlainScript, of_scripts};
use program::{Code, ROW, Register, Step, Store};
use recent::Recent;
use schema::{ColumnAt, Table, Type};
use source::{Amount, Parameters, Source};
pub use splits::ColumnSplit;

/// The rows of the largest table in a verified run, if the file does not say.
const VERIFIED_ROWS: u64 = 500;
/// The most rows of a table.
const ROWS_MAX: i64 = 1_000_000_000;
/// The rows whose keys are checked when a file is read.
const CHECKED_ROWS: u64 = 10_000;
/// The known keys of a transaction from which it is worth finding them beforehand, and looking
/// them up together. With fewer, the second pass over the script costs more than the overlap of
/// cache misses saves.
const MANY_LOOKUPS: usize = 8;
const LOAD_STEP: u64 = 4096;

/// Returns the same text for as long as the process lives. Names of workloads, types of
/// transactions and options are few, and live that long everywhere.
pub(crate) fn interned(text: &str) -> &'static str {
    static NAMES: Mutex<Option<HashSet<&'static str>>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let names = names.get_or_insert_default();
    match names.get(text) {
        Some(name) => name,
        None => {
            let name: &'static str = Box::leak(text.to_owned().into_boxed_str());
            names.insert(name);
            name
        }
    }
}

/// A workload file that is valid.
#[derive(Debug)]
pub struct WorkloadFile {
    /// The path, as the user wrote it.
    path: String,
    text: String,
    source: Source,
}

impl WorkloadFile {
    /// Reads the text of a file, and compiles it. `path` is its name in messages.
    ///
    /// # Errors
    /// One sentence that names the file, the place, and the valid choices.
    pub fn read(path: &str, text: &str) -> Result<Arc<WorkloadFile>, String> {
        let of_file = |message: String| format!("{path}: {message}");
        let source = Source::read(text).map_err(of_file)?;
        let file = Arc::new(WorkloadFile { path: path.into(), text: text.into(), source });
        let options = file.options().map_err(of_file)?;
        FileWorkload::validate(&options, IndexKind::Hash)?;
        FileWorkload::validate(&FileWorkload::for_verification(&options), IndexKind::Hash)?;
        // All names are interned here, before any run. An explorer takes back the memory that is
        // allocated while it runs.
        let _ = (file.info(), file.specs(), FileWorkload::tables(&options, IndexKind::Hash));
        Ok(file)
    }

    /// Returns whether a text is that of a workload file, valid or not, and no other TOML file: it
    /// has a schema.
    pub fn is_meant(text: &str) -> bool {
        text.parse::<toml::Table>().is_ok_and(|file| file.contains_key("schema"))
    }

    /// The largest file, in bytes.
    pub const BYTES_MAX: u64 = source::BYTES_MAX as u64;

    /// Returns the text of the file.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the file as a workload in a list.
    pub fn info(&self) -> WorkloadInfo {
        WorkloadInfo {
            name: interned(&self.path),
            summary: interned(&self.source.summary),
            source: "a workload file",
            preset: &[],
        }
    }

    /// Returns the options of the file: its parameters.
    pub fn specs(self: &Arc<Self>) -> Vec<OptionSpec> {
        let defaults = self.options().map(|options| options.values()).unwrap_or_default();
        let spec = |(name, default): (&'static str, String)| OptionSpec {
            name,
            range: if default.contains('.') { "a number".into() } else { WHOLE.into() },
            default,
            doc: "A parameter of the workload file.",
        };
        defaults.into_iter().map(spec).collect()
    }

    /// Returns the options with the values that the file gives.
    ///
    /// # Errors
    /// A value is no number, or parameters refer to each other in a circle.
    pub fn options(self: &Arc<Self>) -> Result<FileOptions, String> {
        Ok(FileOptions { file: Some(Arc::clone(self)), given: BTreeMap::new(), is_verified: false })
            .and_then(|options| options.parameters().map(|_| options))
    }

    /// Describes the file: its tables, and what each transaction reads and writes.
    ///
    /// # Errors
    /// The values of the options are not valid.
    pub fn describe(options: &FileOptions) -> Result<String, String> {
        Ok(summary::describe(&Program::compiled_for(CompiledFor::Readers, options)?))
    }
}

/// How a column of a loaded row gets its value.
#[derive(Debug)]
struct Fill {
    code: Code,
    from: Register,
    store: Option<Store>,
    /// The part of the key, if it is one.
    part: Option<usize>,
}

impl Fill {
    /// Evaluates the expression for a row, in column `column` of table `table`.
    fn evaluate(&self, (table, column): (usize, usize), row: u64, memory: &mut Memory) {
        let seed = mix((row << 16 | column as u64).wrapping_add((table as u64).wrapping_mul(GOLDEN_GAMMA)));
        memory.evaluate(&self.code, seed, |frame| frame[ROW] = row as i64);
    }
}

/// A type of transactions.
#[derive(Debug)]
struct Kind {
    name: &'static str,
    read_only: bool,
    code: Code,
    /// The groups of each table that the transaction touches, and whether it writes rows whose keys
    /// are known.
    touched: Vec<(Groups, bool)>,
    /// Whether keys or partitions are known before the transaction begins.
    foresees: bool,
    /// Whether the known keys are many, so that it is worth finding them to look them up together.
    looks_up_many: bool,
}

/// A compiled file.
#[derive(Debug)]
struct Program {
    name: String,
    tables: Vec<Table>,
    rows: Vec<u64>,
    fills: Vec<Vec<Fill>>,
    kinds: Vec<Kind>,
    names: &'static [&'static str],
    /// The sums of the weights up to each type, of 1.
    weights: Vec<f64>,
    invariants: Vec<Invariant>,
    partitions: Option<Partitions>,
    /// The tables whose rows are listed.
    ordered: Vec<bool>,
    declared_rows: DeclaredRows,
}

/// What a program is compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompiledFor {
    /// The engine: statements become one access where they can.
    Engine,
    /// Readers, and databases: each statement is as it was written.
    Readers,
}

impl Program {
    fn new(options: &FileOptions) -> Result<Program, String> {
        Self::compiled_for(CompiledFor::Engine, options)
    }

    fn compiled_for(purpose: CompiledFor, options: &FileOptions) -> Result<Program, String> {
        Self::compile(options, purpose).map_err(|message| format!("{}: {message}", options.file().path))
    }

    fn compile(options: &FileOptions, purpose: CompiledFor) -> Result<Program, String> {
        let source = &options.file().source;
        let parameters = options.parameters()?;
        let groups: Vec<_> = source.groups.iter().map(|(table, groups)| (table.clone(), groups.clone())).collect();
        let tables = schema::read(&source.schema, &groups).map_err(|error| error.in_part("schema"))?;
        let rows = rows_of(options, &tables, &parameters)?;
        let fills = fills_of(source, &tables, &rows, &parameters)?;
        let kind = |of| kind_of(of, source, &tables, &rows, &parameters, purpose);
        let kinds = source.transactions.iter().map(kind);
        let mut kinds = kinds.collect::<Result<Vec<_>, _>>()?;
        remember_inserts(&mut kinds);
        let invariants = source.invariants.iter().map(|of| invariant_of(of, &tables, &rows, &parameters));
        let invariants = invariants.collect::<Result<Vec<_>, _>>()?;
        let partitions = partitions_of(source, &tables, &kinds, &parameters)?;
        let sum: f64 = source.transactions.iter().map(|of| of.weight).sum();
        let weights = source.transactions.iter().scan(0.0, |total, of| {
            *total += of.weight / sum;
            Some(*total)
        });
        let weights = weights.collect();
        let declared_rows = declared_rows_of(source, &kinds);
        let names: Vec<&'static str> = kinds.iter().map(|kind| kind.name).collect();
        let ordered = ordered_of(&tables, &kinds, &invariants);
        Ok(Program {
            name: source.name.clone(),
            tables,
            rows,
            fills,
            names: kinds_as_list(&names),
            kinds,
            weights,
            invariants,
            partitions,
            ordered,
            declared_rows,
        })
    }
}

/// Returns which rows transactions of these types know beforehand.
fn declared_rows_of(source: &Source, kinds: &[Kind]) -> DeclaredRows {
    let knows_all = |kind: &Kind| {
        let is_known =
            |access: &program::Access| access.names_row && access.indexes.is_empty() && access.aggregates.is_empty();
        kind.code.foreseeable && kind.code.accesses.iter().all(is_known)
    };
    // A row that is going to be inserted is not there to be declared.
    let knows_some = |Kind { code, foresees, .. }: &Kind| {
        let is_known = |step: &program::Step| {
            let access = step.access().filter(|_| !matches!(step, program::Step::Insert { .. }));
            access.is_some_and(|access| code.accesses[access as usize].names_row)
        };
        *foresees && code.steps.iter().any(is_known)
    };
    let mut that_run = kinds.iter().zip(&source.transactions).filter(|(_, of)| of.weight > 0.0);
    if kinds.iter().all(knows_all) {
        DeclaredRows::All
    } else if that_run.any(|(kind, _)| knows_some(kind)) {
        DeclaredRows::Known
    } else {
        DeclaredRows::None
    }
}

/// Compiles the script of a type of transactions.
fn kind_of(
    of: &source::TransactionSource,
    source: &Source,
    tables: &[Table],
    rows: &[u64],
    parameters: &Parameters,
    purpose: CompiledFor,
) -> Result<Kind, String> {
    let mut writer = Writer::new(tables, rows, parameters);
    let part = format!("transaction '{}'", of.name);
    compile::compile(&mut writer, &of.script).map_err(|error| error.in_part(&part))?;
    let mut code = writer.code;
    if purpose == CompiledFor::Engine {
        fuse::fuse(&mut code);
    }
    pieces::find(&mut code, tables);
    code.accesses.iter_mut().for_each(|access| access.prepare(&tables[access.table as usize]));
    code.batch = code.as_batch().filter(|_| source.partition.is_none());
    if purpose == CompiledFor::Engine && !code.replayable {
        code.distributed = distribute::find(&code);
    }
    let code = code.prepare();
    if of.read_only
        && let Some(access) = code.accesses.iter().find(|access| !access.reads)
    {
        let table = &tables[access.table as usize].name;
        return Err(format!("{part}, line {}: a transaction that is read_only changes {table}", access.line));
    }
    let is_known =
        |access: &program::Access| access.known && access.key.len() == tables[access.table as usize].key.len();
    let foresees = code.foreseeable && (source.partition.is_some() || code.accesses.iter().any(is_known));
    let looks_up_many = code.foreseeable && code.known_lookups(is_known) >= MANY_LOOKUPS;
    let mut touched = vec![(Groups::NONE, false); tables.len()];
    for access in &code.accesses {
        let (groups, writes) = &mut touched[access.table as usize];
        (*groups, *writes) =
            (groups.union(access.groups).union(access.changed()), *writes || access.names_row && !access.reads);
    }
    Ok(Kind { name: interned(&of.name), read_only: of.read_only, code, touched, foresees, looks_up_many })
}

/// Makes the inserts into the tables of which a script draws the newest rows remember them.
fn remember_inserts(kinds: &mut [Kind]) {
    let latest: HashSet<u16> = kinds.iter().flat_map(|kind| kind.code.latest.iter().copied()).collect();
    for code in kinds.iter_mut().map(|kind| &mut kind.code) {
        for step in &code.steps {
            if let Step::Insert { access, .. } = *step {
                let access = &mut code.accesses[access as usize];
                access.remembers = latest.contains(&access.table);
            }
        }
    }
}

/// Returns the list of names that lives as long as the process.
fn kinds_as_list(names: &[&'static str]) -> &'static [&'static str] {
    static LISTS: Mutex<Vec<&'static [&'static str]>> = Mutex::new(Vec::new());
    let mut lists = LISTS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    match lists.iter().find(|list| **list == names) {
        Some(list) => list,
        None => {
            let list: &'static [&'static str] = Box::leak(names.to_vec().into_boxed_slice());
            lists.push(list);
            list
        }
    }
}

fn amount(of: &Amount, what: &str, parameters: &Parameters) -> Result<i64, String> {
    match of {
        Amount::Whole(value) => Ok(*value),
        Amount::Fraction(value) => Err(format!("{what} is {value}, no whole number")),
        Amount::Text(text) => {
            let mut writer = Writer::new(&[], &[], parameters);
            let value = compile::expression_of(text, writer.at).and_then(|of| writer.fixed(&of, what));
            value.map_err(|error| error.in_part(what))
        }
    }
}

/// Returns the loaded rows of each table.
fn rows_of(options: &FileOptions, tables: &[Table], parameters: &Parameters) -> Result<Vec<u64>, String> {
    let source = &options.file().source;
    let mut rows = vec![0; tables.len()];
    for (name, of) in &source.rows {
        let Some(table) = tables.iter().position(|table| table.name == *name && table.index_of.is_none()) else {
            let valid: Vec<&str> =
                tables.iter().filter(|table| table.index_of.is_none()).map(|table| table.name.as_str()).collect();
            return Err(format!("[rows]: unknown table '{name}'; valid: {}", valid.join(", ")));
        };
        let count = amount(of, &format!("[rows] {name}"), parameters)?;
        if !(0..=ROWS_MAX).contains(&count) {
            return Err(format!("[rows]: {name} has {count} rows; valid: 0 to {ROWS_MAX}"));
        }
        rows[table] = count as u64;
    }
    let largest = rows.iter().copied().max().unwrap_or(0);
    if options.is_verified && source.verify.is_empty() && largest > VERIFIED_ROWS {
        for rows in &mut rows {
            let part = (u128::from(*rows) * u128::from(VERIFIED_ROWS)).div_ceil(u128::from(largest)) as u64;
            *rows = part.max((*rows).min(2));
        }
    }
    // An index has an entry for each row.
    for table in 0..tables.len() {
        if let Some(of) = tables[table].index_of {
            rows[table] = rows[of];
        }
    }
    Ok(rows)
}

fn fills_of(
    source: &Source,
    tables: &[Table],
    rows: &[u64],
    parameters: &Parameters,
) -> Result<Vec<Vec<Fill>>, String> {
    for name in source.fill.keys() {
        let known = name.split_once('.').is_some_and(|(table, column)| {
            tables
                .iter()
                .any(|of| of.name == table && of.index_of.is_none() && of.columns.iter().any(|of| of.name == column))
        });
        if !known {
            return Err(format!("[fill]: there is no column '{name}'; valid: TABLE.COLUMN of the schema"));
        }
    }
    let mut fills = Vec::new();
    for (number, table) in tables.iter().enumerate() {
        let mut of_table = Vec::new();
        for column in table.columns.iter().filter(|_| table.index_of.is_none()) {
            let name = format!("{}.{}", table.name, column.name);
            let text = match (source.fill.get(&name), column.at, column.of) {
                (Some(text), ..) => text.as_str(),
                (None, ColumnAt::Key(_), _) if table.key.len() == 1 => ":row",
                (None, ColumnAt::Key(_), _) if rows[number] == 0 => "0",
                (None, ColumnAt::Key(_), _) => {
                    return Err(format!("[fill]: '{name}' has no expression, and its key has several columns"));
                }
                (None, ColumnAt::Row { .. }, Type::Number(_)) => "0",
                (None, ColumnAt::Row { .. }, Type::Text(_)) if column.is_bytes => "random_bytes()",
                (None, ColumnAt::Row { .. }, Type::Text(_)) => "random_text()",
            };
            let writer = Writer::new(tables, rows, parameters);
            let filled: Read<(Code, Register)> = compile::fill(writer, text, column);
            let (code, from) = filled.map_err(|error| error.in_part(&format!("[fill] {name}")))?;
            let words = column.of.words() as u16;
            let (store, part) = match (column.at, column.of) {
                (ColumnAt::Key(part), _) => (None, Some(part)),
                (ColumnAt::Row { word, .. }, Type::Number(_)) => {
                    (Some(Store { word: word as u16, from, text: None, words }), None)
                }
                (ColumnAt::Row { word, .. }, Type::Text(bytes)) => {
                    (Some(Store { word: word as u16, from, text: Some(bytes as u16), words }), None)
                }
            };
            of_table.push(Fill { code, from, store, part });
        }
        fills.push(of_table);
    }
    Ok(fills)
}

/// Returns which tables need an order: those that are scanned, and those whose rows are checked and
/// come and go.
fn ordered_of(tables: &[Table], kinds: &[Kind], invariants: &[Invariant]) -> Vec<bool> {
    let mut ordered: Vec<bool> = tables.iter().map(|table| table.index_of.is_some()).collect();
    let mut grows = vec![false; tables.len()];
    for kind in kinds {
        for step in &kind.code.steps {
            match *step {
                Step::Scan { access } | Step::Each { access, .. } => {
                    let access = &kind.code.accesses[access as usize];
                    ordered[access.by_index.unwrap_or(access.table) as usize] = true;
                }
                Step::Insert { access, .. } | Step::Delete { access } => {
                    grows[kind.code.accesses[access as usize].table as usize] = true;
                }
                _ => {}
            }
        }
    }
    for (table, ordered) in ordered.iter_mut().enumerate() {
        let is_checked = invariants.iter().any(|invariant| invariant.reads(table));
        *ordered |= is_checked && grows[table];
    }
    ordered
}

/// A worker's generator, and the memory of its scripts.
#[derive(Debug)]
pub struct Client {
    random: SmallRng,
    memory: Memory,
    /// The numbers that `unique()` has given.
    uniques: i64,
    committed: u64,
    named: u64,
    missed: u64,
}

/// The workload of a file.
#[derive(Debug)]
pub struct FileWorkload {
    program: Program,
    /// Whether the protocol asks for what transactions declare.
    declares: bool,
    /// Whether the protocol may run a piece again.
    uses_pieces: bool,
    handles: Vec<Handle>,
    /// The rows of each table that loading has left out.
    left_out: Mutex<Vec<u64>>,
}

impl FileWorkload {
    /// Returns the key of row `row` of a table, and writes the columns of the row, for loading.
    fn fill(&self, table: usize, row: u64, memory: &mut Memory, words: &mut [u64], parts: &mut [i64]) {
        for (column, fill) in self.program.fills[table].iter().enumerate() {
            fill.evaluate((table, column), row, memory);
            match (&fill.store, fill.part) {
                (Some(store), _) => put(store, words, &memory.frame),
                (None, Some(part)) => parts[part] = memory.frame[fill.from],
                (None, None) => {}
            }
        }
    }
}

impl Workload for FileWorkload {
    type Options = FileOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        self.program.names
    }

    fn validate(options: &FileOptions, _: IndexKind) -> Result<(), String> {
        let program = Program::new(options)?;
        loaded::check_keys(&program).map_err(|message| format!("{}: {message}", options.file().path))
    }

    fn tables(options: &FileOptions, index: IndexKind) -> Vec<TableSpec> {
        Program::new(options).map_or(Vec::new(), |program| specs_of(&program, index))
    }

    fn create<S: Tables>(options: &FileOptions, index: IndexKind, store: &S) -> Self {
        let program = Program::new(options).expect("options that were validated");
        let handle = |(spec, table): (TableSpec, &Table)| {
            if table.shape.narrow {
                Handle::Narrow(store.create_table(&spec))
            } else {
                Handle::Wide(store.create_table(&spec))
            }
        };
        let handles = specs_of(&program, index).into_iter().zip(&program.tables).map(handle).collect();
        let (declares, uses_pieces) = (store.wants_declarations(), store.uses_pieces());
        let left_out = Mutex::new(vec![0; program.tables.len()]);
        FileWorkload { program, declares, uses_pieces, handles, left_out }
    }

    fn load_units(&self) -> u64 {
        let Program { tables, rows, .. } = &self.program;
        tables.iter().zip(rows).filter(|(table, _)| table.index_of.is_none()).map(|(_, rows)| rows).sum()
    }

    fn for_verification(options: &FileOptions) -> FileOptions {
        FileOptions { is_verified: true, ..options.clone() }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        let Program { tables, rows, .. } = &self.program;
        let mut memory = Memory::new(0, 1);
        for (number, table) in tables.iter().enumerate().filter(|(_, table)| table.index_of.is_none()) {
            let mut words = vec![0; table.words];
            let mut values = vec![0; table.key.len()];
            let mut left_out = 0;
            load_in_steps(rows[number], part, parts, LOAD_STEP, done, |range| {
                for row in range {
                    self.fill(number, row, &mut memory, &mut words, &mut values);
                    let Some(key) = key_of(&table.shape, values.len(), |part| values[part]) else {
                        left_out += 1;
                        continue;
                    };
                    let is_new = with_table!(self.handles[number], of => {
                        loader.insert(&of, Key::from_words(key), |row| row[..words.len()].copy_from_slice(&words))?
                    });
                    left_out += u64::from(!is_new);
                    for index in table.indexes.iter().filter(|_| is_new) {
                        let value = |&column: &usize| match table.columns[column].at {
                            ColumnAt::Key(part) => values[part],
                            ColumnAt::Row { word, .. } => words[word] as i64,
                        };
                        let entry: Vec<i64> = index.columns.iter().chain(&table.key).map(value).collect();
                        if let Some(key) = key_of(&tables[index.table].shape, entry.len(), |part| entry[part]) {
                            with_table!(self.handles[index.table], of => {
                                loader.insert(&of, Key::from_words(key), |_| ())?;
                            });
                        }
                    }
                }
                Ok(())
            })?;
            self.leave_out(number, left_out);
        }
        Ok(())
    }

    fn client(&self, worker: usize, workers: usize, seed: u64) -> Client {
        let Program { rows, kinds, .. } = &self.program;
        let largest = rows.iter().copied().max().unwrap_or(0);
        let mut memory = Memory::new(worker, workers);
        for &table in kinds.iter().flat_map(|kind| &kind.code.latest) {
            memory.recent.resize_with(rows.len(), Recent::default);
            memory.recent[table as usize] = Recent::new(rows[table as usize]);
        }
        Client {
            random: SmallRng::seed_from_u64(mix(seed) ^ worker as u64),
            memory,
            uniques: (largest / workers as u64 + 1) as i64,
            committed: 0,
            named: 0,
            missed: 0,
        }
    }

    fn next<C: Core>(&self, core: &mut C, client: &mut Client, input: &mut Input) {
        let Program { kinds, weights, tables, partitions, .. } = &self.program;
        if input.keys.is_empty() {
            let empty = |table: &Table| {
                if table.shape.narrow {
                    KnownKeys::Narrow(Default::default())
                } else {
                    KnownKeys::Wide(Default::default())
                }
            };
            input.keys = tables.iter().map(empty).collect();
        }
        let drawn = (client.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        input.kind = weights.iter().position(|end| drawn < *end).unwrap_or(weights.len() - 1);
        input.seed = client.random.next_u64();
        // No retry of the last transaction has returned more numbers.
        client.uniques += client.memory.uniques;
        client.memory.uniques = 0;
        input.first_unique = client.uniques;
        let kind = &kinds[input.kind];
        core.work(INSTRUCTIONS_OF_STEP * kind.code.steps.len() as u32);
        input.is_foreseen = kind.looks_up_many || kind.foresees && self.declares;
        if input.is_foreseen {
            client.memory.foresee(&kind.code, partitions.as_ref(), input);
            client.memory.uniques = 0;
        } else {
            // What an earlier transaction has left is not this one's.
            input.partitions.clear();
            client.memory.draw_first(&kind.code, input);
        }
    }

    fn kind(&self, input: &Input) -> usize {
        input.kind
    }

    fn declares(options: &FileOptions) -> Declares {
        Program::new(options).map_or(Declares::default(), |program| Declares {
            rows: program.declared_rows,
            partitions: program.partitions.map(|partitions| partitions.count),
        })
    }

    fn think_times(options: &FileOptions) -> Vec<Option<ThinkTime>> {
        let transactions = &options.file().source.transactions;
        if transactions.iter().all(|of| of.think.is_none()) {
            return Vec::new();
        }
        transactions.iter().map(|of| of.think.map(|think| think.0)).collect()
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if self.program.kinds[input.kind].read_only {
            declaration.read_only();
        }
        let by_rows = match declaration.needs() {
            // Otherwise the keys are those of an earlier transaction.
            DeclarationNeeds::Rows => input.is_foreseen,
            DeclarationNeeds::RowsOrPartitions => self.program.declared_rows == DeclaredRows::All,
            DeclarationNeeds::Nothing | DeclarationNeeds::Partitions => false,
        };
        if !by_rows {
            input.partitions.iter().for_each(|&partition| declaration.partition(partition));
            return;
        }
        for (handle, keys) in self.handles.iter().zip(&input.keys) {
            match (handle, keys) {
                (Handle::Narrow(table), KnownKeys::Narrow(known)) => declare_rows(declaration, table, known),
                (Handle::Wide(table), KnownKeys::Wide(known)) => declare_rows(declaration, table, known),
                _ => {}
            }
        }
    }

    fn types(&self, types: &mut Types) {
        let Program { kinds, weights, .. } = &self.program;
        let mut before = 0.0;
        for (kind, &until) in kinds.iter().zip(weights) {
            match (until > before, kind.read_only) {
                // A type of which no transaction runs takes part in no order.
                (false, _) => types.leave_out(kind.name),
                (true, true) => pieces::declare(types.add_read_only(kind.name), &kind.code, &self.handles),
                (true, false) => pieces::declare(types.add(kind.name), &kind.code, &self.handles),
            }
            before = until;
        }
    }

    #[inline]
    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Program { kinds, tables, .. } = &self.program;
        let kind = &kinds[input.kind];
        if input.is_foreseen && (kind.code.batch.is_none() || tx.uses_pieces()) {
            announce(tx, &self.handles, &input.keys, &kind.touched);
        }
        let tables = interpret::Tables { shapes: tables, handles: &self.handles };
        client.memory.run(tx, &kind.code, &tables, input, self.uses_pieces)
    }

    fn key_parts(&self, table: &str, key: &KeyWords) -> Vec<(String, u64)> {
        let tables = &self.program.tables;
        let Some(table) = tables.iter().find(|known| known.name == table && known.key.len() > 1) else {
            return Vec::new();
        };
        let parts = table.key.iter().zip(&table.shape.parts);
        parts.map(|(column, part)| (table.columns[*column].name.clone(), part.of(key) as u64)).collect()
    }

    fn committed(&self, client: &mut Client, _: &Input) {
        client.committed += 1;
        client.named += client.memory.named;
        client.missed += client.memory.missed;
        let Memory { inserted, recent, .. } = &mut client.memory;
        // A drain of nothing takes as long as three steps of a script.
        if !inserted.is_empty() {
            inserted.drain(..).for_each(|(table, key)| recent[table as usize].push(key));
        }
    }

    fn check_loaded<S: Inspect>(&self, store: &S) -> Result<(), String> {
        self.check_invariants(store).map_err(|broken| {
            format!(
                "{broken}: the rows that {} loads break it before any transaction; look at [fill]",
                self.program.name
            )
        })
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        self.check_invariants(store).map_err(Violation)?;
        Ok(self.checked(clients))
    }
}

/// Instructions that a simulated core is charged for a step of a script.
const INSTRUCTIONS_OF_STEP: u32 = 8;

fn specs_of(program: &Program, index: IndexKind) -> Vec<TableSpec> {
    let tables = program.tables.iter().zip(&program.rows).zip(&program.ordered);
    let kind = |ordered: bool| if ordered { IndexKind::Ordered } else { index };
    tables.map(|((table, rows), ordered)| table.spec(kind(*ordered), *rows)).collect()
}
