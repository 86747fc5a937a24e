//! The versions that transactions read and write, as the database returns them, and the history
//! that they make.
//!
//! Each row has two more columns: the mark of the write that made it, and the mark before. A mark
//! names the transaction and the write within it. Every try of a transaction has a number of its
//! own. So a number that no committed transaction has, but a row had, is a read of an aborted
//! write. The mark itself is the row's fingerprint in the history: it tells a read of an earlier
//! write from a read of the last one.

use contend_history::{Applied, History, Op, PushError, Scan, State, TableId, Transaction, Value as Fingerprint};
use contend_workloads::file::view::{Action, Aggregate, Call, Executor, Relation, Value, View};

use crate::connection::{Failure, Session};
use crate::system::Product;
use crate::target::Family;
use crate::text::{PREDECESSOR, Purpose, Text, WRITER, select_version};

/// A wrong recorder, for tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fault {
    /// None.
    #[default]
    None,
    /// A write returns the writer for the predecessor.
    #[cfg(test)]
    SwapsColumns,
    /// The writer of a row that was read is asked for when the transaction has ended.
    #[cfg(test)]
    ReadsLate,
    /// Every second transaction is not put into the history.
    #[cfg(test)]
    ForgetsCommits,
}

/// Writes of a transaction that have marks of their own.
pub(crate) const WRITES: u64 = 1 << 20;

/// Returns the number of the transaction that has left a mark; 0 is the loader.
pub(crate) fn transaction_of(mark: u64) -> u64 {
    mark / WRITES
}

/// What a transaction did to rows: marks are what it saw and left. A key has a number for each
/// column of the primary key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Read { table: usize, key: Vec<i64>, seen: Option<u64> },
    Write { table: usize, key: Vec<i64>, over: Option<u64>, left: Option<u64> },
    Scan { table: usize, low: Option<Vec<i64>>, high: Option<Vec<i64>>, seen: Vec<(Vec<i64>, u64)> },
}

/// A transaction that was committed, or may have been.
#[derive(Clone, Debug)]
pub(crate) struct Recorded {
    pub(crate) number: u64,
    pub(crate) worker: u64,
    pub(crate) operations: Vec<Operation>,
}

/// The texts of statements that record.
pub(crate) struct RecordingTexts {
    statements: Vec<Text>,
    /// The select of the version, where no statement returns it.
    versions: Vec<Option<Text>>,
}

impl RecordingTexts {
    pub(crate) fn new(product: Product, view: &View) -> RecordingTexts {
        let version = |statement: &contend_workloads::file::view::Statement| {
            let relation = &view.relations()[statement.relation];
            match statement.action {
                Action::Update(_) if product.family() == Family::MySql => {
                    Some(select_version(product, relation, statement, PREDECESSOR))
                }
                Action::Delete if !product.deletes_return() => {
                    Some(select_version(product, relation, statement, WRITER))
                }
                _ => None,
            }
        };
        RecordingTexts {
            statements: crate::execute::texts(product, view, Purpose::Record),
            versions: view.statements().map(version).collect(),
        }
    }
}

/// Runs statements, and records what they read and write.
pub(crate) struct Recorder<'a> {
    pub(crate) session: &'a mut dyn Session,
    pub(crate) texts: &'a RecordingTexts,
    pub(crate) relations: &'a [Relation],
    /// The number of this try.
    pub(crate) writer: u64,
    pub(crate) operations: Vec<Operation>,
    /// The mark of the last write.
    pub(crate) mark: u64,
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests make a fault"))]
    pub(crate) fault: Fault,
}

impl Recorder<'_> {
    /// Executes the statement that returns the version of a call's row.
    fn version(&mut self, call: &Call<'_>) -> Result<Option<u64>, Failure> {
        let Some(text) = &self.texts.versions[call.statement.number] else { return Ok(None) };
        let (rows, _) = self.session.execute(&text.sql, &text.values(call, self.mark))?;
        rows.first().map(|row| version_of(row.last())).transpose()
    }

    /// Ends the record of a transaction that was committed.
    pub(crate) fn committed(&mut self) -> Result<(), Failure> {
        #[cfg(test)]
        match self.fault {
            Fault::ReadsLate => self.read_late()?,
            Fault::ForgetsCommits if self.writer.is_multiple_of(2) => self.operations.clear(),
            Fault::None | Fault::SwapsColumns | Fault::ForgetsCommits => {}
        }
        Ok(())
    }

    #[cfg(test)]
    fn read_late(&mut self) -> Result<(), Failure> {
        for operation in &mut self.operations {
            if let Operation::Read { table, key, seen: Some(seen) } = operation {
                let name = &self.relations[*table].name;
                let (rows, _) = self.session.execute(&format!("select _w from {name} where id = {}", key[0]), &[])?;
                *seen = version_of(rows.first().and_then(|row| row.last()))?;
            }
        }
        Ok(())
    }

    fn read(&mut self, call: &Call<'_>, seen: Option<u64>) {
        self.operations.push(Operation::Read { table: call.statement.relation, key: call.key.clone(), seen });
    }

    /// Records a change of a row, or that the row was not there.
    fn changed(&mut self, call: &Call<'_>, over: Option<u64>, delete: bool) -> u64 {
        let Some(over) = over else {
            self.read(call, None);
            return 0;
        };
        let (table, key) = (call.statement.relation, call.key.clone());
        let left = (!delete).then_some(self.mark);
        self.operations.push(Operation::Write { table, key, over: Some(over), left });
        1
    }

    /// Records the rows of a scan. Each row has its columns, its key and its writer.
    fn scanned(&mut self, call: &Call<'_>, found: &[Vec<Value>]) -> Result<(), Failure> {
        let statement = call.statement;
        let table = statement.relation;
        let relation = &self.relations[table];
        let mut seen = Vec::new();
        for row in found {
            let key = row[row.len() - 1 - relation.key.len()..row.len() - 1].iter();
            let numbers = key.map(|value| value.number());
            seen.push((numbers.collect::<Vec<i64>>(), version_of(row.last())?));
        }
        // The gaps of an index, and what an offset skips, are not known.
        if statement.order != relation.key || call.offset > 0 {
            let read = |(key, version)| Operation::Read { table, key, seen: Some(version) };
            self.operations.extend(seen.into_iter().map(read));
            return Ok(());
        }
        if call.limit == 0 || call.key.iter().any(|value| *value < 0) {
            return Ok(());
        }
        let has_bounds = statement.bounds.is_some();
        let mut low = bound(call, relation.key.len(), call.low.unwrap_or(0).max(0), 0);
        let mut high = bound(call, relation.key.len(), call.high.unwrap_or(i64::MAX), i64::MAX);
        if low > high {
            return Ok(());
        }
        let is_cut = found.len() as u64 >= call.limit;
        if let (true, Some((last, _))) = (is_cut, seen.last()) {
            let end = if statement.descending { &mut low } else { &mut high };
            end.clone_from(last);
        }
        let is_whole = !has_bounds && call.key.is_empty();
        let of = |end: Vec<i64>, is_end: bool| Some(end).filter(|_| !(is_whole && is_end));
        let (low, high) = (of(low, !(is_cut && statement.descending)), of(high, !is_cut || statement.descending));
        self.operations.push(Operation::Scan { table, low, high, seen });
        Ok(())
    }
}

/// Returns an end of a range: the fixed columns, the bounded one, and `rest` for the others.
fn bound(call: &Call<'_>, parts: usize, next: i64, rest: i64) -> Vec<i64> {
    let mut key = call.key.clone();
    if key.len() < parts {
        key.push(if call.statement.bounds.is_some() { next } else { rest });
    }
    key.resize(parts, rest);
    key
}

fn version_of(value: Option<&Value>) -> Result<u64, Failure> {
    match value {
        Some(Value::Number(number)) if *number >= 0 => Ok(*number as u64),
        _ => Err(Failure::Fatal("the database has returned no number of a transaction".into())),
    }
}

impl Executor for Recorder<'_> {
    type Error = Failure;

    fn execute(&mut self, call: &Call<'_>, rows: &mut Vec<Vec<Value>>) -> Result<u64, Failure> {
        let statement = call.statement;
        // A version that a delete does not return is read before it.
        let before = match statement.action {
            Action::Delete => self.version(call)?,
            _ => None,
        };
        if matches!(statement.action, Action::Update(_) | Action::Insert { .. } | Action::Delete) {
            self.mark = if self.mark == 0 { self.writer * WRITES } else { self.mark + 1 };
        }
        let text = &self.texts.statements[statement.number];
        let (mut found, changed) = match self.session.execute(&text.sql, &text.values(call, self.mark)) {
            Err(Failure::Duplicate) if matches!(statement.action, Action::Insert { .. }) => return Ok(0),
            executed => executed?,
        };
        match &statement.action {
            Action::Read { .. } => {
                let seen = found.first_mut().map(|row| version_of(row.pop().as_ref())).transpose()?;
                self.read(call, seen);
                *rows = found;
                Ok(u64::from(seen.is_some()))
            }
            Action::Scan(columns) => {
                self.scanned(call, &found)?;
                found.iter_mut().for_each(|row| row.truncate(columns.len()));
                *rows = found;
                Ok(rows.len() as u64)
            }
            Action::Aggregate(aggregates) => {
                self.scanned(call, &found)?;
                rows.push(aggregated(aggregates, &found));
                Ok(found.len() as u64)
            }
            Action::Update(_) => {
                let over = match found.first() {
                    #[cfg(test)]
                    Some(_) if self.fault == Fault::SwapsColumns => Some(self.mark),
                    Some(row) => Some(version_of(row.last())?),
                    None if changed > 0 => self.version(call)?,
                    None => None,
                };
                Ok(self.changed(call, over, false))
            }
            Action::Delete => {
                let over = match found.first() {
                    Some(row) => Some(version_of(row.last())?),
                    None => before,
                };
                Ok(self.changed(call, over, true))
            }
            Action::Insert { .. } => {
                if changed > 0 {
                    let relation = &self.relations[statement.relation];
                    let number = |column: &usize| call.values[*column].number();
                    let key = relation.key.iter().map(number).collect();
                    let (table, left) = (statement.relation, Some(self.mark));
                    self.operations.push(Operation::Write { table, key, over: None, left });
                }
                Ok(changed.min(1))
            }
        }
    }

    fn idle(&mut self, microseconds: u64) {
        std::thread::sleep(std::time::Duration::from_micros(microseconds));
    }
}

/// Computes aggregates of rows: a script sees the same as if the database had computed them.
fn aggregated(aggregates: &[(Aggregate, Option<usize>)], found: &[Vec<Value>]) -> Vec<Value> {
    let mut column = 0;
    let value = |(aggregate, of): &(Aggregate, Option<usize>)| {
        if of.is_none() {
            return Value::Number(found.len() as i64);
        }
        let place = column;
        column += 1;
        let numbers = found.iter().map(|row| row[place].number());
        Value::Number(match aggregate {
            Aggregate::Sum => numbers.fold(0, i64::wrapping_add),
            Aggregate::Least => numbers.min().unwrap_or(0),
            Aggregate::Greatest => numbers.max().unwrap_or(0),
        })
    };
    aggregates.iter().map(value).collect()
}

/// Returns the history of committed transactions.
///
/// # Errors
/// Two transactions have one number.
pub(crate) fn history(relations: &[Relation], committed: &[Recorded]) -> Result<History, PushError> {
    let mut history = History::new();
    let tables: Vec<TableId> = relations.iter().map(|relation| history.table(&relation.name)).collect();
    for transaction in committed {
        let ops = transaction.operations.iter().map(|operation| op(&mut history, &tables, operation)).collect();
        history.push(Transaction { txn: transaction.number, worker: transaction.worker, ops })?;
    }
    Ok(history)
}

fn state_of(mark: Option<u64>) -> State {
    mark.map_or(State::Absent, |mark| State::Version(transaction_of(mark)))
}

fn op(history: &mut History, tables: &[TableId], operation: &Operation) -> Op {
    match operation {
        Operation::Read { table, key, seen } => Op::Read {
            item: history.item(tables[*table], &name_of(key)),
            seen: state_of(*seen),
            value: seen.filter(|mark| *mark > 0).map(Fingerprint::Unsigned),
        },
        Operation::Write { table, key, over, left } => Op::Write {
            item: history.item(tables[*table], &name_of(key)),
            over: state_of(*over),
            delete: left.is_none(),
            applied: Applied::InOrder,
            value: left.map(Fingerprint::Unsigned),
        },
        Operation::Scan { table, low, high, seen } => {
            let table = tables[*table];
            let mut item = |key: &Vec<i64>| history.item(table, &name_of(key));
            let (low, high) = (low.as_ref().map(&mut item), high.as_ref().map(&mut item));
            let seen = seen.iter().map(|(key, mark)| (item(key), transaction_of(*mark))).collect();
            Op::Scan(Box::new(Scan { table, low, high, seen, gone: Vec::new() }))
        }
    }
}

/// Returns the name of a key in a history. Names of several columns have one length, so that they
/// are ordered as the keys are.
pub(crate) fn name_of(key: &[i64]) -> String {
    match key {
        [one] => one.to_string(),
        several => several.iter().map(|part| format!("{part:019}")).collect::<Vec<_>>().join("/"),
    }
}
