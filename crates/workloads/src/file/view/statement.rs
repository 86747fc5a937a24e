//! From accesses of compiled scripts to statements.

use std::collections::BTreeMap;

use super::super::error::{Place, Read, mistake};
use super::super::program::{Access, Aggregate, Change, Code, Operator, Register, Source, Step, Store};
use super::super::schema::{ColumnAt, Table, Type};

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

/// A statement, and where its values stand in the frame.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) statement: Statement,
    pub(super) values: Vec<Store>,
}

/// The new values of columns, and the values that they need besides columns.
type Formulas = (Vec<(usize, Formula)>, Vec<Store>);

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
                let table = &tables[of.table as usize];
                let set = |(place, store): (usize, &Store)| {
                    Some((column_of(table, Source::Row(store.word))?, Formula::Value(place)))
                };
                let formulas = of.stores.iter().enumerate().filter_map(set).collect();
                (access, Action::Update(formulas), of.stores.clone())
            }
            Step::Insert { access, or_nothing } => {
                let values = inserted(&code.accesses[access as usize], tables);
                (access, Action::Insert { or_nothing }, values)
            }
            Step::Delete { access } => (access, Action::Delete, Vec::new()),
            Step::Scan { access } | Step::Each { access, .. } => {
                let of = &code.accesses[access as usize];
                let aggregate = |(load, aggregate): (&super::super::program::Load, &Aggregate)| {
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
fn inserted(access: &Access, tables: &[Table]) -> Vec<Store> {
    let table = &tables[access.table as usize];
    let of_column = |column: &super::super::schema::Column| match column.at {
        ColumnAt::Key(part) => number_at(access.key[part]),
        ColumnAt::Row { word, .. } => {
            let store = access.stores.iter().find(|store| store.word as usize == word);
            *store.expect("an insert stores each column")
        }
    };
    table.columns.iter().map(of_column).collect()
}

fn number_at(from: Register) -> Store {
    Store { word: 0, from, text: None, words: 1 }
}

/// What registers hold while the steps of an update run on the columns of an unknown row.
struct Symbols<'a> {
    table: &'a Table,
    /// The registers that depend on a column.
    known: BTreeMap<Register, Formula>,
    values: Vec<Store>,
    line: u64,
}

impl Symbols<'_> {
    /// Returns the formula of a register: that of its symbol, or a value of the call.
    fn of(&mut self, store: Store) -> Formula {
        match self.known.get(&store.from) {
            Some(formula) => formula.clone(),
            None => {
                self.values.push(store);
                Formula::Value(self.values.len() - 1)
            }
        }
    }

    fn number(&mut self, register: Register) -> Box<Formula> {
        Box::new(self.of(number_at(register)))
    }

    fn text(&mut self, register: Register) -> Box<Formula> {
        let most = super::super::schema::TEXT_MAX as u16;
        Box::new(self.of(Store { word: 0, from: register, text: Some(most), words: 1 + most.div_ceil(8) }))
    }

    fn is_known(&self, registers: &[Register]) -> bool {
        registers.iter().any(|register| self.known.contains_key(register))
    }

    /// Takes a step: what it makes of columns becomes a formula.
    fn step(&mut self, step: &Step) -> Read<()> {
        match *step {
            Step::Copy { to, from, .. } if self.is_known(&[from]) => {
                let formula = self.known[&from].clone();
                self.known.insert(to, formula);
            }
            Step::Compute { operator, to, a, b } if self.is_known(&[a, b]) => {
                if operator == Operator::Permute {
                    return self.refuse("permute");
                }
                let formula = Formula::Apply(operator, self.number(a), self.number(b));
                self.known.insert(to, formula);
            }
            Step::Choose { to, condition, a, b } if self.is_known(&[condition, a, b]) => {
                let parts = [condition, a, b].map(|register| *self.number(register));
                self.known.insert(to, Formula::Choose(Box::new(parts)));
            }
            Step::SameText { to, a, b } if self.is_known(&[a, b]) => {
                let formula = Formula::SameText(self.text(a), self.text(b));
                self.known.insert(to, formula);
            }
            Step::Draw { a, b, .. } if self.is_known(&[a, b]) => return self.refuse("a draw"),
            Step::DrawText { length, .. } if self.is_known(&[length]) => return self.refuse("a draw"),
            Step::Distinct { a, .. } if self.is_known(&[a]) => return self.refuse("distinct"),
            // Whatever depends on no column is computed before the statement.
            _ => {}
        }
        Ok(())
    }

    fn refuse<T>(&self, what: &str) -> Read<T> {
        let place = Place { line: self.line, column: 1 };
        let table = &self.table.name;
        mistake(place, format!("{what} of a column of {table} can't be said in SQL; valid: read the column first"))
    }
}

/// Returns what an update makes of the row that it reads.
fn formulas(code: &Code, tables: &[Table], access: u16, steps: std::ops::Range<usize>) -> Read<Formulas> {
    let access = &code.accesses[access as usize];
    let table = &tables[access.table as usize];
    let loaded = access.loads.iter().filter_map(|load| Some((load.to, Formula::Column(column_of(table, load.from)?))));
    let mut symbols = Symbols { table, known: loaded.collect(), values: Vec::new(), line: access.line };
    code.steps[steps].iter().try_for_each(|step| symbols.step(step))?;
    let mut formulas = Vec::new();
    for store in &access.stores {
        let Some(column) = column_of(table, Source::Row(store.word)) else { continue };
        debug_assert!(matches!(table.columns[column].of, Type::Text(_)) == store.text.is_some());
        let formula = symbols.of(*store);
        formulas.push((column, formula));
    }
    Ok((formulas, symbols.values))
}
