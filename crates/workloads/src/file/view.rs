//! A workload file for systems outside: its tables, its rows, and its transactions as statements of
//! SQL with their values.
//!
//! [`View::run`] runs the same compiled script as an engine does, with the same draws. Where a step
//! touches rows, an [`Executor`] gets a [`Call`]: the statement as data, and the values for it.
//! How a statement is written in a dialect, and how it reaches a server, is the executor's.

mod statement;

use contend_model::IndexKind;

use super::interpret::{Frame, Memory, SLEEP_MAX_US, key_of, put};
use super::invariant::{Numbers, Side};
use super::program::{Code, FOUND, ROUNDS_MAX, Register, Step, Store};
use super::schema::{Column, ColumnAt, NUMBER, Table, Type};
use super::{Client, CompiledFor, FileOptions, FileWorkload, Input, Program};
use crate::workload::{ThinkTime, Workload};

pub use super::program::{Aggregate, Operator};
pub use statement::{Action, Bounds, Formula, Statement, Summed};
use statement::{Planned, Stored};

/// A value of a column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A whole number.
    Number(i64),
    /// A text.
    Text(String),
    /// Bytes.
    Bytes(Vec<u8>),
}

impl Value {
    /// Returns the number; 0 if it is none.
    pub fn number(&self) -> i64 {
        match self {
            Value::Number(number) => *number,
            Value::Text(_) | Value::Bytes(_) => 0,
        }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its name, in lower case unless the schema quotes it.
    pub name: String,
    /// The columns, in the order of the schema.
    pub columns: Vec<RelationColumn>,
    /// The columns of the primary key, as places in `columns`.
    pub key: Vec<usize>,
    /// The columns of each index.
    pub indexes: Vec<Vec<usize>>,
    /// The number of loaded rows.
    pub rows: u64,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub struct RelationColumn {
    /// Its name. The number of a row without a primary key is `_n`.
    pub name: String,
    /// Its type.
    pub of: ColumnType,
}

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ColumnType {
    /// A number of 64 bits.
    Number,
    /// A text of at most this number of bytes.
    Text(u32),
    /// At most this number of bytes.
    Bytes(u32),
}

/// A statement with its values.
#[derive(Debug)]
pub struct Call<'a> {
    /// The statement.
    pub statement: &'a Statement,
    /// The values of the columns that [`Statement::equal`] names.
    pub key: Vec<i64>,
    /// The lower bound, included.
    pub low: Option<i64>,
    /// The upper bound, included.
    pub high: Option<i64>,
    /// The most rows of a scan.
    pub limit: u64,
    /// The rows that a scan skips.
    pub offset: u64,
    /// The values that are stored, and those of formulas.
    pub values: Vec<Value>,
}

/// A system that executes statements.
pub trait Executor {
    /// Why a statement was not executed.
    type Error;

    /// Executes a statement within the transaction. Adds the rows that were read to `rows`, and
    /// returns how many rows were read or changed. An insert over an existing key changes none.
    ///
    /// # Errors
    /// The transaction can't go on.
    fn execute(&mut self, call: &Call<'_>, rows: &mut Vec<Vec<Value>>) -> Result<u64, Self::Error>;

    /// Leaves the transaction open for this time, in microseconds.
    fn idle(&mut self, microseconds: u64);
}

/// How a script ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is to be committed.
    Done,
    /// It has cancelled itself, and is to be rolled back.
    Cancelled,
}

/// A workload file as statements.
#[derive(Debug)]
pub struct View {
    workload: FileWorkload,
    /// The time between transactions of each type; empty if there is none.
    think_times: Vec<Option<ThinkTime>>,
    relations: Vec<Relation>,
    /// The relation of each table; `None` for an index.
    relation_of: Vec<Option<usize>>,
    /// The statement of each access of each type of transactions.
    planned: Vec<Vec<Planned>>,
}

impl View {
    /// Returns the view of a file with these options.
    ///
    /// # Errors
    /// The options are not valid, or a statement can't be said in SQL.
    pub fn new(options: &FileOptions) -> Result<View, String> {
        FileWorkload::validate(options, IndexKind::Ordered)?;
        let program = Program::compiled_for(CompiledFor::Readers, options)?;
        let mut relation_of = Vec::new();
        let mut relations = Vec::new();
        for (table, rows) in program.tables.iter().zip(&program.rows) {
            relation_of.push(table.index_of.is_none().then_some(relations.len()));
            if table.index_of.is_none() {
                relations.push(relation(table, *rows));
            }
        }
        let mut planned = Vec::new();
        let mut number = 0;
        for kind in &program.kinds {
            let of_kind = statement::plan(&kind.code, &program.tables, &relation_of, &mut number);
            let part = format!("{}: transaction '{}'", options.file().path, kind.name);
            planned.push(of_kind.map_err(|error| error.in_part(&part))?);
        }
        let think_times = FileWorkload::think_times(options);
        let workload = FileWorkload {
            program,
            declares: false,
            uses_pieces: false,
            handles: Vec::new(),
            left_out: Default::default(),
        };
        Ok(View { workload, think_times, relations, relation_of, planned })
    }

    /// Returns the tables.
    pub fn relations(&self) -> &[Relation] {
        &self.relations
    }

    /// Returns the names of the types of transactions.
    pub fn kinds(&self) -> &'static [&'static str] {
        self.workload.kinds()
    }

    /// Returns all statements, by their numbers.
    pub fn statements(&self) -> impl Iterator<Item = &Statement> {
        self.planned.iter().flatten().map(|planned| &planned.statement)
    }

    /// Returns the row `row` of a relation, in the order of its columns; `None` if its key does not
    /// fit the columns.
    pub fn row(&self, relation: usize, row: u64, memory: &mut RowMemory) -> Option<Vec<Value>> {
        let number = self.relation_of.iter().position(|of| *of == Some(relation))?;
        let table = &self.workload.program.tables[number];
        let (mut words, mut parts) = (vec![0; table.words], vec![0; table.key.len()]);
        self.workload.fill(number, row, &mut memory.0, &mut words, &mut parts);
        key_of(&table.shape, parts.len(), |part| parts[part])?;
        let value = |column: &Column| match (column.at, column.of) {
            (ColumnAt::Key(part), _) => Value::Number(parts[part]),
            (ColumnAt::Row { word, .. }, Type::Number(_)) => Value::Number(words[word] as i64),
            (ColumnAt::Row { word, .. }, Type::Text(_)) => value_of(&words[word..], column.is_bytes),
        };
        Some(table.columns.iter().map(value).collect())
    }

    /// Returns the client `worker` of `workers`.
    pub fn client(&self, worker: usize, workers: usize, seed: u64) -> Client {
        self.workload.client(worker, workers, seed)
    }

    /// Draws the next transaction.
    pub fn next(&self, client: &mut Client, input: &mut Input) {
        self.workload.next(&mut (), client, input);
    }

    /// Draws transactions until one has the type `kind`. Returns whether one may have it.
    pub fn next_of(&self, client: &mut Client, input: &mut Input, kind: usize) -> bool {
        let weights = &self.workload.program.weights;
        let before = kind.checked_sub(1).map_or(0.0, |before| weights[before]);
        if weights[kind] <= before {
            return false;
        }
        self.next(client, input);
        while input.kind != kind {
            self.next(client, input);
        }
        true
    }

    /// Returns the type of a transaction.
    pub fn kind(&self, input: &Input) -> usize {
        input.kind
    }

    /// Returns the time that a client takes behind a transaction of this type.
    pub fn think_time(&self, kind: usize) -> Option<ThinkTime> {
        self.think_times.get(kind).copied().flatten()
    }

    /// Tells the client that its transaction has committed.
    pub fn committed(&self, client: &mut Client, input: &Input) {
        self.workload.committed(client, input);
    }

    /// Checks the invariants. `query` returns a row for each group: the columns of the group, and
    /// then the aggregates, 0 without a row. Returns a sentence about each invariant that fails.
    ///
    /// # Errors
    /// That of a query.
    pub fn check<E>(&self, mut query: impl FnMut(&Sums) -> Result<Vec<Vec<i64>>, E>) -> Result<Checks, E> {
        let program = &self.workload.program;
        let mut checks = Checks { count: program.invariants.len(), failed: Vec::new() };
        for invariant in &program.invariants {
            let [first, second] = invariant.sides.each_ref().map(|side| self.numbers(side, &mut query));
            checks.failed.extend(invariant.judge([first?, second?]).err());
        }
        Ok(checks)
    }

    /// Returns the numbers of a side of an invariant.
    fn numbers<E>(&self, side: &Side, query: &mut impl FnMut(&Sums) -> Result<Vec<Vec<i64>>, E>) -> Result<Numbers, E> {
        let Some(table) = side.table else { return Ok(side.computed([(Vec::new(), Vec::new())])) };
        let relation = self.relation_of[table].unwrap_or(0);
        let rows = query(&statement::sums(side, &self.workload.program.tables[table], relation))?;
        let columns = side.groups.len();
        Ok(side.computed(rows.into_iter().map(|mut row| {
            let sums = row.split_off(columns.min(row.len()));
            (row, sums)
        })))
    }

    /// Runs a try of a transaction: all statements of its script.
    ///
    /// # Errors
    /// That of the executor.
    pub fn run<E: Executor>(&self, client: &mut Client, input: &Input, executor: &mut E) -> Result<Ended, E::Error> {
        let code = &self.workload.program.kinds[input.kind].code;
        let run = Run { view: self, code, planned: &self.planned[input.kind] };
        let start = client.memory.start(code, input);
        run.steps(&mut client.memory, executor, start)
    }
}

/// Aggregates of all rows of a table.
#[derive(Debug)]
pub struct Sums {
    /// The relation.
    pub relation: usize,
    /// The columns by which rows form groups. Without them all rows are one group.
    pub groups: Vec<usize>,
    /// The aggregates.
    pub sums: Vec<(Aggregate, Summed)>,
    /// The values of the formulas.
    pub values: Vec<Value>,
}

/// What became of the invariants.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    /// How many there are.
    pub count: usize,
    /// A sentence about each that fails.
    pub failed: Vec<String>,
}

/// The memory of the expressions of loaded rows.
#[derive(Debug)]
pub struct RowMemory(Memory);

impl Default for RowMemory {
    fn default() -> Self {
        RowMemory(Memory::new(0, 1))
    }
}

/// A script that runs.
struct Run<'a> {
    view: &'a View,
    code: &'a Code,
    planned: &'a [Planned],
}

impl Run<'_> {
    fn steps<E: Executor>(&self, memory: &mut Memory, executor: &mut E, start: usize) -> Result<Ended, E::Error> {
        let code = self.code;
        let mut at = start;
        loop {
            at = memory.advance(code, at, code.steps.len());
            let Some(&step) = code.steps.get(at) else { break };
            at += 1;
            match step {
                Step::Read { access } | Step::Update { access } | Step::Write { access } | Step::Delete { access } => {
                    self.row(memory, executor, access)?;
                }
                Step::Modify { access, end } => {
                    // What the new values need besides columns; the others are the statement's.
                    memory.advance(code, at, end as usize);
                    at = end as usize;
                    self.row(memory, executor, access)?;
                }
                Step::Insert { access, or_nothing } => {
                    let inserted = self.has_key(memory, access) && self.call(memory, executor, access)?.0 > 0;
                    if !inserted && !or_nothing {
                        return Ok(Ended::Cancelled);
                    }
                    memory.frame[FOUND] = i64::from(inserted);
                    let of = &code.accesses[access as usize];
                    if inserted && of.remembers {
                        memory.inserted.push((of.table, memory.frame[of.key[0]]));
                    }
                }
                Step::Scan { access } => {
                    let (found, rows) = self.call(memory, executor, access)?;
                    rows.iter().for_each(|row| self.load(memory, access, row));
                    memory.frame[FOUND] = found;
                }
                Step::Each { access, end } => {
                    let (found, rows) = self.call(memory, executor, access)?;
                    memory.frame[FOUND] = found;
                    self.begin_loop(memory, access, &rows);
                    if !memory.next_row(&code.accesses[access as usize]) {
                        at = end as usize;
                    }
                }
                Step::Next { access, start } => {
                    if memory.next_row(&code.accesses[access as usize]) {
                        at = start as usize;
                    }
                }
                Step::Cancel => return Ok(Ended::Cancelled),
                Step::Sleep { amount, unit } => {
                    let amount = u64::try_from(memory.frame[amount]).unwrap_or(0);
                    executor.idle(amount.saturating_mul(u64::from(unit)).min(SLEEP_MAX_US));
                }
                _ => unreachable!("a step that touches no row"),
            }
        }
        Ok(Ended::Done)
    }

    /// Executes a statement on one row.
    fn row<E: Executor>(&self, memory: &mut Memory, executor: &mut E, access: u16) -> Result<(), E::Error> {
        let mut found = false;
        if self.has_key(memory, access) {
            let (count, rows) = self.call(memory, executor, access)?;
            rows.iter().for_each(|row| self.load(memory, access, row));
            found = count > 0;
        }
        memory.found(found);
        Ok(())
    }

    /// Whether the key is one that its columns can hold. No row has another.
    fn has_key(&self, memory: &Memory, access: u16) -> bool {
        let access = &self.code.accesses[access as usize];
        let table = &self.view.workload.program.tables[access.table as usize];
        key_of(&table.shape, access.key.len(), |part| memory.frame[access.key[part]]).is_some()
    }

    /// Executes a statement. Returns how many rows were read or changed, and what was read.
    fn call<E: Executor>(
        &self,
        memory: &Memory,
        executor: &mut E,
        access: u16,
    ) -> Result<(i64, Vec<Vec<Value>>), E::Error> {
        let (of, planned) = (&self.code.accesses[access as usize], &self.planned[access as usize]);
        let at = |register: Register| memory.frame[register];
        let limit = |register: Option<Register>, usual: i64| -> u64 {
            register.map_or(usual, at).clamp(0, ROUNDS_MAX as i64) as u64
        };
        let call = Call {
            statement: &planned.statement,
            key: of.key.iter().map(|register| at(*register)).collect(),
            low: of.low.map(at),
            high: of.high.map(at),
            limit: if of.is_endless { i64::MAX as u64 } else { limit(of.limit, ROUNDS_MAX as i64) },
            offset: limit(of.offset, 0),
            values: planned.values.iter().map(|of| of.value(&memory.frame)).collect(),
        };
        let mut rows = Vec::new();
        let found = executor.execute(&call, &mut rows)?;
        Ok((i64::try_from(found).unwrap_or(i64::MAX), rows))
    }

    /// Puts the columns of a row into their registers.
    fn load(&self, memory: &mut Memory, access: u16, row: &[Value]) {
        for (load, value) in self.code.accesses[access as usize].loads.iter().zip(row) {
            into_words(value, memory.frame.words_mut(load.to, load.words as usize));
        }
    }

    /// Begins a loop over rows.
    fn begin_loop(&self, memory: &mut Memory, access: u16, rows: &[Vec<Value>]) {
        let loads = &self.code.accesses[access as usize].loads;
        let first = memory.rows.len();
        for row in rows {
            for (load, value) in loads.iter().zip(row) {
                let start = memory.rows.len();
                memory.rows.resize(start + load.words as usize, 0);
                into_words(value, &mut memory.rows[start..]);
            }
            // A row without columns is a round all the same.
            if loads.is_empty() {
                memory.rows.push(0);
            }
        }
        memory.loops.push(first..memory.rows.len());
    }
}

fn relation(table: &Table, rows: u64) -> Relation {
    let column = |column: &Column| RelationColumn {
        name: if column.name == NUMBER { "_n".into() } else { column.name.clone() },
        of: match column.of {
            Type::Number(_) => ColumnType::Number,
            Type::Text(bytes) if column.is_bytes => ColumnType::Bytes(bytes),
            Type::Text(bytes) => ColumnType::Text(bytes),
        },
    };
    Relation {
        name: table.name.clone(),
        columns: table.columns.iter().map(column).collect(),
        key: table.key.clone(),
        indexes: table.indexes.iter().map(|index| index.columns.clone()).collect(),
        rows,
    }
}

impl Stored {
    /// Returns the value that stands in the frame.
    fn value(&self, frame: &Frame) -> Value {
        let Some(bytes) = self.store.text else { return Value::Number(frame[self.store.from]) };
        let mut words = vec![0; 1 + (bytes as usize).div_ceil(8)];
        put(&Store { word: 0, ..self.store }, &mut words, frame);
        value_of(&words, self.is_bytes)
    }
}

/// Returns the value in words: the length, and the bytes. A text that was cut within a letter ends
/// with a sign for it.
fn value_of(words: &[u64], is_bytes: bool) -> Value {
    let bytes: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).take(words[0] as usize).collect();
    if is_bytes { Value::Bytes(bytes) } else { Value::Text(String::from_utf8_lossy(&bytes).into_owned()) }
}

/// Puts a value into words.
fn into_words(value: &Value, words: &mut [i64]) {
    let all = match value {
        Value::Number(number) => return words[0] = *number,
        Value::Text(text) => text.as_bytes(),
        Value::Bytes(bytes) => bytes,
    };
    let room = (words.len() - 1) * 8;
    let bytes = &all[..all.len().min(room)];
    words[0] = bytes.len() as i64;
    words[1..].fill(0);
    for (word, eight) in words[1..].iter_mut().zip(bytes.chunks(8)) {
        let mut padded = [0; 8];
        padded[..eight.len()].copy_from_slice(eight);
        *word = i64::from_le_bytes(padded);
    }
}
