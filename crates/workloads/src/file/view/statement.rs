//! From accesses of compiled scripts to statements.

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::error::{Place, Read, mistake};
use super::super::interpret::Memory;
use super::super::invariant::{Argument, Side};
use super::super::known::registers_of;
use super::super::program::{Access, Aggregate, Change, Code, Load, Operator, Register, Source, Step, Store};
use super::super::schema::{Column, ColumnAt, TEXT_MAX, Table, Type};
use super::Sums;

/// A statement. Its values come with each [`Call`](super::Call).
#[derive(Clone, Debug)]
pub struct Statement {
    /// Its number among all statements of the file, from 0.
    pub number: usize,
    /// The relation.
    pub relation: usize,
    /// What it does.
    pub action: Action,
    /// The columns that equal a value of [`Call::key`](super::Call::key).
    pub equal: Vec<usize>,
    /// The column that is bounded.
    pub bounds: Option<Bounds>,
    /// The columns by which the rows of a scan are ordered. A statement on one row has none.
    pub order: Vec<usize>,
    /// Whether the order is a descending one.
    pub descending: bool,
    /// The line in the script.
    pub line: u64,
}

/// The bounds of a column, both included.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// The column.
    pub column: usize,
    /// Whether there is a lower bound.
    pub low: bool,
    /// Whether there is an upper bound.
    pub high: bool,
}

/// What a statement does.
#[derive(Clone, Debug)]
pub enum Action {
    /// Reads columns of one row.
    Read {
        /// The columns.
        columns: Vec<usize>,
        /// Whether the row is read as a write does.
        for_update: bool,
    },
    /// Reads columns of the rows of a range.
    Scan(Vec<usize>),
    /// Reads aggregates of the rows of a range; a count has no column.
    Aggregate(Vec<(Aggregate, Option<usize>)>),
    /// Sets columns of one row.
    Update(Vec<(usize, Formula)>),
    /// Inserts a row: [`Call::values`](super::Call::values) has a value for each column.
    Insert {
        /// Whether an existing key is no mistake.
        or_nothing: bool,
    },
    /// Deletes a row.
    Delete,
}

/// A value that may depend on the columns of the row. Numbers are whole; a condition is 1 or 0.
#[derive(Clone, Debug, PartialEq)]
pub enum Formula {
    /// A column of the row before the statement.
    Column(usize),
    /// A value of the call, by its place.
    Value(usize),
    /// An operation on two numbers. What is divided by 0 gives 0.
    Apply(Operator, Box<Formula>, Box<Formula>),
    /// Whether two texts are the same.
    SameText(Box<Formula>, Box<Formula>),
    /// The second formula if the first is not 0, otherwise the third.
    Choose(Box<[Formula; 3]>),
}

/// What an aggregate sums up, or compares.
#[derive(Clone, Debug, PartialEq)]
pub enum Summed {
    /// Each row counts 1.
    Row,
    /// A value of each row.
    Formula(Formula),
}

/// A statement, and where its values stand in the frame.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) statement: Statement,
    pub(super) values: Vec<Stored>,
}

/// Where a value stands in the frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored {
    pub(super) store: Store,
    pub(super) is_bytes: bool,
}

/// The new values of columns, and the values that they need besides columns.
type Formulas = (Vec<(usize, Formula)>, Vec<Stored>);

/// Returns the column of a table that a source is, if it is one.
pub(super) fn column_of(table: &Table, source: Source) -> Option<usize> {
    let at = |wanted: &dyn Fn(ColumnAt) -> bool| table.columns.iter().position(|column| wanted(column.at));
    match source {
        Source::One => None,
        Source::Key(part) => table.key.get(part as usize).copied(),
        Source::Row(word) => at(&|at| matches!(at, ColumnAt::Row { word: of, .. } if of == word as usize)),
    }
}

/// Returns the statement of each access of a script. `number` is that of the next statement.
pub(super) fn plan(
    code: &Code,
    tables: &[Table],
    relation_of: &[Option<usize>],
    number: &mut usize,
) -> Read<Vec<Planned>> {
    let mut planned: Vec<Option<Planned>> = code.accesses.iter().map(|_| None).collect();
    for (at, step) in code.steps.iter().enumerate() {
        let (access, action, values) = match *step {
            Step::Read { access } => {
                let action = Action::Read { columns: loaded(code, tables, access), for_update: false };
                (access, action, Vec::new())
            }
            Step::Modify { access, .. } if code.accesses[access as usize].stores.is_empty() => {
                let action = Action::Read { columns: loaded(code, tables, access), for_update: true };
                (access, action, Vec::new())
            }
            Step::Modify { access, end } => {
                let (formulas, values) = formulas(code, tables, access, at + 1..end as usize)?;
                (access, Action::Update(formulas), values)
            }
            Step::Update { access } => {
                let (formulas, values) = changes(&code.accesses[access as usize], tables);
                (access, Action::Update(formulas), values)
            }
            Step::Write { access } => {
                let of = &code.accesses[access as usize];
                let (formulas, values) = written(of, &tables[of.table as usize]);
                (access, Action::Update(formulas), values)
            }
            Step::Insert { access, or_nothing } => {
                let values = inserted(&code.accesses[access as usize], tables);
                (access, Action::Insert { or_nothing }, values)
            }
            Step::Delete { access } => (access, Action::Delete, Vec::new()),
            Step::Scan { access } | Step::Each { access, .. } => {
                let of = &code.accesses[access as usize];
                let aggregate = |(load, aggregate): (&Load, &Aggregate)| {
                    (*aggregate, column_of(&tables[of.table as usize], load.from))
                };
                let action = if of.aggregates.is_empty() {
                    Action::Scan(loaded(code, tables, access))
                } else {
                    Action::Aggregate(of.loads.iter().zip(&of.aggregates).map(aggregate).collect())
                };
                (access, action, Vec::new())
            }
            _ => continue,
        };
        let of = &code.accesses[access as usize];
        let statement = statement(of, tables, relation_of, action, *number);
        *number += 1;
        planned[access as usize] = Some(Planned { statement, values });
    }
    Ok(planned.into_iter().flatten().collect())
}

fn statement(
    access: &Access,
    tables: &[Table],
    relation_of: &[Option<usize>],
    action: Action,
    number: usize,
) -> Statement {
    let table = &tables[access.table as usize];
    let index = table.indexes.iter().find(|index| Some(index.table) == access.by_index.map(usize::from));
    let columns: Vec<usize> = index.map_or(&[][..], |index| &index.columns).iter().chain(&table.key).copied().collect();
    let is_insert = matches!(action, Action::Insert { .. });
    let next = columns.get(access.key.len()).copied();
    let (low, high) = (access.low.is_some(), access.high.is_some());
    let is_scan = matches!(action, Action::Scan(_) | Action::Aggregate(_));
    Statement {
        number,
        relation: relation_of[access.table as usize].unwrap_or(0),
        action,
        equal: if is_insert { Vec::new() } else { columns.iter().copied().take(access.key.len()).collect() },
        bounds: next.filter(|_| low || high).map(|column| Bounds { column, low, high }),
        order: if is_scan { columns } else { Vec::new() },
        descending: access.direction == contend_model::Direction::Backward,
        line: access.line,
    }
}

/// Returns the columns that an access reads.
fn loaded(code: &Code, tables: &[Table], access: u16) -> Vec<usize> {
    let of = &code.accesses[access as usize];
    of.loads.iter().filter_map(|load| column_of(&tables[of.table as usize], load.from)).collect()
}

/// Returns the formulas of an update that replaces columns.
fn written(access: &Access, table: &Table) -> Formulas {
    let (mut formulas, mut values) = (Vec::new(), Vec::new());
    for store in &access.stores {
        let Some(column) = column_of(table, Source::Row(store.word)) else { continue };
        formulas.push((column, Formula::Value(values.len())));
        values.push(Stored { store: *store, is_bytes: table.columns[column].is_bytes });
    }
    (formulas, values)
}

/// Returns the formulas of an update that changes columns without reading others.
fn changes(access: &Access, tables: &[Table]) -> Formulas {
    let table = &tables[access.table as usize];
    let mut values = Vec::new();
    let mut formulas = Vec::new();
    for (change, word, from) in &access.changes {
        let Some(column) = column_of(table, Source::Row(*word)) else { continue };
        let value = Formula::Value(values.len());
        values.push(number_at(*from));
        let own = Box::new(Formula::Column(column));
        let formula = match change {
            Change::Set => value,
            Change::Add => Formula::Apply(Operator::Add, own, Box::new(value)),
            Change::Subtract => Formula::Apply(Operator::Subtract, own, Box::new(value)),
        };
        formulas.push((column, formula));
    }
    (formulas, values)
}

/// Returns where the values of a new row stand, in the order of the columns.
fn inserted(access: &Access, tables: &[Table]) -> Vec<Stored> {
    let table = &tables[access.table as usize];
    let of_column = |column: &Column| match column.at {
        ColumnAt::Key(part) => number_at(access.key[part]),
        ColumnAt::Row { word, .. } => {
            let store = access.stores.iter().find(|store| store.word as usize == word);
            Stored { store: *store.expect("an insert stores each column"), is_bytes: column.is_bytes }
        }
    };
    table.columns.iter().map(of_column).collect()
}

fn number_at(from: Register) -> Stored {
    Stored { store: Store { word: 0, from, text: None, words: 1 }, is_bytes: false }
}

/// Returns what a side of an invariant asks of its table.
pub(super) fn sums(side: &Side, table: &Table, relation: usize) -> Sums {
    let mut symbols = Symbols::new(&side.row, table, 0);
    for (source, register) in &side.loads {
        symbols.load(*source, *register);
    }
    let run = symbols.run(0..side.row.steps.len(), false);
    debug_assert!(run.is_ok(), "an argument of an aggregate draws nothing");
    let sums = side.aggregates.iter().map(|of| {
        let summed = match of.of {
            Argument::Column(source) => column_of(table, source).map(Formula::Column),
            Argument::Computed(register) => Some(*symbols.number(register)),
        };
        (of.aggregate, summed.map_or(Summed::Row, Summed::Formula))
    });
    let sums = sums.collect();
    let mut memory = Memory::new(0, 1);
    memory.evaluate(&side.row, 0, |_| ());
    let values = symbols.values.iter().map(|of| of.value(&memory.frame)).collect();
    let groups = side.groups.iter().filter_map(|source| column_of(table, *source)).collect();
    Sums { relation, groups, sums, values }
}

/// What registers hold while steps run on the columns of an unknown row.
struct Symbols<'a> {
    code: &'a Code,
    table: &'a Table,
    /// The registers that depend on a column.
    known: BTreeMap<Register, Formula>,
    values: Vec<Stored>,
    line: u64,
}

impl<'a> Symbols<'a> {
    fn new(code: &'a Code, table: &'a Table, line: u64) -> Self {
        Symbols { code, table, known: BTreeMap::new(), values: Vec::new(), line }
    }

    /// Puts a column into a register.
    fn load(&mut self, source: Source, register: Register) {
        let column = column_of(self.table, source);
        self.known.extend(column.map(|column| (register, Formula::Column(column))));
    }

    /// Returns the formula of a register: that of its symbol, or a value of the call.
    fn of(&mut self, stored: Stored) -> Formula {
        match self.known.get(&stored.store.from) {
            Some(formula) => formula.clone(),
            None => {
                self.values.push(stored);
                Formula::Value(self.values.len() - 1)
            }
        }
    }

    fn number(&mut self, register: Register) -> Box<Formula> {
        Box::new(self.of(number_at(register)))
    }

    fn text(&mut self, from: Register, most: u16) -> Box<Formula> {
        let store = Store { word: 0, from, text: Some(most), words: 1 + most.div_ceil(8) };
        Box::new(self.of(Stored { store, is_bytes: false }))
    }

    fn is_known(&self, registers: &[Register]) -> bool {
        registers.iter().any(|register| self.known.contains_key(register))
    }

    /// Whether a step takes what depends on a column.
    fn takes_column(&self, step: &Step) -> bool {
        match *step {
            Step::Unless { condition, .. } => self.is_known(&[condition]),
            Step::Distinct { a, .. } => self.is_known(&[a]),
            _ => registers_of(step, &[]).1.is_some_and(|sources| self.is_known(&sources)),
        }
    }

    /// Runs steps: what they make of columns becomes a formula. In a branch all that they compute
    /// does, since it is not known beforehand whether they run.
    fn run(&mut self, steps: Range<usize>, in_branch: bool) -> Read<()> {
        let code = self.code;
        let mut at = steps.start;
        while at < steps.end {
            let step = &code.steps[at];
            at += 1;
            let Step::Unless { condition, to, .. } = *step else {
                if in_branch || self.takes_column(step) {
                    self.step(step)?;
                }
                continue;
            };
            // A branch of `case` ends with a jump behind its other branches.
            let otherwise = to as usize;
            let Step::Jump { to: end, .. } = code.steps[otherwise - 1] else { return self.refuse("a branch") };
            let all = &code.steps[at - 1..end as usize];
            if in_branch || all.iter().any(|step| self.takes_column(step)) {
                let condition = *self.number(condition);
                self.branches(condition, at..otherwise - 1, otherwise..end as usize)?;
            }
            at = end as usize;
        }
        Ok(())
    }

    /// Runs two branches of which one is chosen, and joins what they leave.
    fn branches(&mut self, condition: Formula, then: Range<usize>, otherwise: Range<usize>) -> Read<()> {
        let before = self.known.clone();
        self.run(then, true)?;
        let first = std::mem::replace(&mut self.known, before);
        self.run(otherwise, true)?;
        // What only one of them has computed is not used behind them.
        let both = first.into_iter().filter_map(|(register, then)| {
            let otherwise = self.known.get(&register)?.clone();
            let joined =
                if then == otherwise { then } else { Formula::Choose(Box::new([condition.clone(), then, otherwise])) };
            Some((register, joined))
        });
        self.known = both.collect();
        Ok(())
    }

    /// Runs a step that computes a formula.
    fn step(&mut self, step: &Step) -> Read<()> {
        let (to, formula) = match *step {
            Step::Copy { to, from, words: 1 } => (to, *self.number(from)),
            Step::Copy { to, from, words } => (to, *self.text(from, (words - 1) * 8)),
            Step::Compute { operator: Operator::Permute, .. } => return self.refuse("permute"),
            Step::Compute { operator, to, a, b } => (to, Formula::Apply(operator, self.number(a), self.number(b))),
            Step::SameText { to, a, b } => {
                let is_bytes = |of: &Register| match self.known.get(of) {
                    Some(Formula::Column(column)) => self.table.columns[*column].is_bytes,
                    _ => false,
                };
                if [a, b].iter().any(is_bytes) {
                    return self.refuse("a comparison of bytes");
                }
                let most = TEXT_MAX as u16;
                (to, Formula::SameText(self.text(a, most), self.text(b, most)))
            }
            Step::Distinct { .. } => return self.refuse("distinct"),
            _ => return self.refuse("a draw"),
        };
        self.known.insert(to, formula);
        Ok(())
    }

    fn refuse<T>(&self, what: &str) -> Read<T> {
        let place = Place { line: self.line, column: 1 };
        let table = &self.table.name;
        mistake(place, format!("{what} of a column of {table} can't be said in SQL; valid: read the column first"))
    }
}

/// Returns what an update makes of the row that it reads.
fn formulas(code: &Code, tables: &[Table], access: u16, steps: Range<usize>) -> Read<Formulas> {
    let access = &code.accesses[access as usize];
    let table = &tables[access.table as usize];
    let mut symbols = Symbols::new(code, table, access.line);
    access.loads.iter().for_each(|load| symbols.load(load.from, load.to));
    symbols.run(steps, false)?;
    let mut formulas = Vec::new();
    for store in &access.stores {
        let Some(column) = column_of(table, Source::Row(store.word)) else { continue };
        let Column { of, is_bytes, .. } = table.columns[column];
        debug_assert!(matches!(of, Type::Text(_)) == store.text.is_some());
        let formula = symbols.of(Stored { store: *store, is_bytes });
        formulas.push((column, formula));
    }
    Ok((formulas, symbols.values))
}
