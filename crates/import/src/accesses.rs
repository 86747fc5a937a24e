//! A list of accesses in CSV: `time,session,txn,op,table,key[,key2]`.
//!
//! Any system can write it. A line is an access of a row; `op` is `r` (read), `w` (write without
//! reading), `u` (read and write), `i` (insert), `d` (delete) or `s` (scan from `key` to `key2`).
//! Accesses of a session with the same `txn` that follow each other are a transaction. Tables have
//! a number as key, and rows of a chosen size.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use contend_model::counted;

use crate::ImportError;
use crate::calls::Literal;
use crate::domain::{free, plain};
use crate::error::cut;
use crate::guard::Guard;
use crate::schema::{Column, Kind, Table};
use crate::trace::{Step, Trace, seconds_of};

const COLUMNS: &str = "time,session,txn,op,table,key[,key2]";
const OPERATIONS: &str = "r (read), w (write), u (read and write), i (insert), d (delete), s (scan)";
/// The bytes of a row beside its filling: a number, and the length of the filling.
const OVERHEAD: u32 = 16;
/// The most tables of a workload file.
const TABLES_MAX: usize = 64;

/// The smallest and the largest row.
pub const ROW_BYTES: std::ops::RangeInclusive<u32> = 8..=4096;

/// A transaction that is open.
#[derive(Debug)]
struct Open {
    transaction: String,
    steps: Vec<Step>,
    end: Option<f64>,
}

struct Accesses<'a> {
    path: &'a Path,
    trace: &'a mut Trace,
    row_bytes: u32,
    tables: HashMap<String, usize>,
    /// By session; ordered, so that the end of the file does not depend on a hash.
    open: BTreeMap<String, Open>,
}

/// Reads accesses.
///
/// # Errors
/// The file can't be read, or a line is no access.
pub(crate) fn read(path: &Path, row_bytes: u32, trace: &mut Trace) -> Result<(), ImportError> {
    let file = File::open(path).map_err(|error| ImportError::of_file(path, error))?;
    let guard = Guard::new(file);
    let since = guard.since();
    let mut reader =
        csv::ReaderBuilder::new().has_headers(false).flexible(true).trim(csv::Trim::All).from_reader(guard);
    let mut record = csv::ByteRecord::new();
    let mut accesses = Accesses { path, trace, row_bytes, tables: HashMap::new(), open: BTreeMap::new() };
    let mut count = 0;
    loop {
        since.set(0);
        let is_there = reader.read_byte_record(&mut record);
        let line = record.position().map_or(1, csv::Position::line);
        match is_there {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => return Err(ImportError::at(path, line, format!("{error}; valid: {COLUMNS}"))),
        }
        let fields: Vec<String> = record.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        let is_header = count == 0 && fields.first().is_some_and(|field| field.eq_ignore_ascii_case("time"));
        if is_header || fields.iter().all(String::is_empty) {
            continue;
        }
        count += 1;
        accesses.access(line, &fields)?;
    }
    if count == 0 {
        return Err(ImportError::of_file(path, format!("there is no access; valid: lines of {COLUMNS}")));
    }
    // The file has no ends of transactions, so the last ones count as complete.
    for (_, open) in std::mem::take(&mut accesses.open) {
        accesses.trace.add(open.steps, false, 1);
    }
    Ok(())
}

impl Accesses<'_> {
    fn access(&mut self, line: u64, fields: &[String]) -> Result<(), ImportError> {
        let wrong = |message: String| Err(ImportError::at(self.path, line, message));
        let [time, session, transaction, op, table, key, rest @ ..] = fields else {
            return wrong(format!("{}; valid: 6 or 7, {COLUMNS}", counted(fields.len(), "column")));
        };
        if rest.len() > 1 {
            return wrong(format!("{}; valid: 6 or 7, {COLUMNS}", counted(fields.len(), "column")));
        }
        let at = match time.parse::<f64>().ok().filter(|time| time.is_finite()).or_else(|| seconds_of(time)) {
            None if !time.is_empty() => {
                return wrong(format!("the time is '{}'; valid: seconds, or YYYY-MM-DD HH:MM:SS", cut(time)));
            }
            at => at,
        };
        if table.is_empty() || key.is_empty() {
            return wrong("the table or the key is empty".into());
        }
        let second = rest.first().filter(|second| !second.is_empty());
        let second = match (op.as_str(), second) {
            ("s", None) => return wrong("a scan (s) has no key2, the last key of its range".into()),
            ("s", second) => second,
            ("r" | "w" | "u" | "i" | "d", _) => None,
            _ => return wrong(format!("the op is '{}'; valid: {OPERATIONS}", cut(op))),
        };
        let Some(table) = self.table(table) else {
            return wrong(format!("there are more than {TABLES_MAX} tables; valid: up to {TABLES_MAX}"));
        };
        let (text, literals) = self.statement(table, op, key, second);
        let template = self.trace.template(&text, literals.len(), line);
        let values = self.trace.values(template, &literals);
        let step = Step { template, values, is_logged: true };
        let before = match self.open.get_mut(session) {
            Some(open) if open.transaction == *transaction => {
                open.steps.push(step);
                open.end = at.or(open.end);
                return Ok(());
            }
            _ => self.open.remove(session),
        };
        let last_end = before.as_ref().and_then(|open| open.end);
        match before {
            Some(open) => self.trace.add(open.steps, false, 1),
            None => self.trace.counts.sessions += 1,
        }
        self.trace.began(at, last_end);
        self.open.insert(session.clone(), Open { transaction: transaction.clone(), steps: vec![step], end: at });
        Ok(())
    }

    /// Returns the number of a table, which is made if it is new.
    fn table(&mut self, name: &str) -> Option<usize> {
        if let Some(&table) = self.tables.get(name) {
            return Some(table);
        }
        let tables = &mut self.trace.schema.tables;
        if tables.len() == TABLES_MAX {
            return None;
        }
        let taken = tables.iter().map(|table| table.name.clone()).collect();
        let column = |name: &str, kind, written: String| Column { name: name.into(), kind, written, replaced: None };
        let mut columns = vec![column("k", Kind::Whole, "bigint".into()), column("v", Kind::Whole, "bigint".into())];
        let filling = self.row_bytes.saturating_sub(OVERHEAD);
        if filling > 0 {
            columns.push(column("filling", Kind::Text(filling), format!("char({filling})")));
        }
        let number = tables.len();
        tables.push(Table {
            name: free(&plain(name, 32), &taken),
            columns,
            key: vec![0],
            indexes: Vec::new(),
            references: Vec::new(),
        });
        self.tables.insert(name.to_owned(), number);
        Some(number)
    }

    /// Returns the template of an access, and its constants.
    fn statement(&self, table: usize, op: &str, key: &str, second: Option<&String>) -> (String, Vec<Literal>) {
        let of = &self.trace.schema.tables[table];
        let name = crate::schema::written(&of.name);
        let given = |text: &str| Literal::Given(text.to_owned());
        let is_filled = of.columns.len() > 2;
        let read = if is_filled { "v, filling" } else { "v" };
        match (op, second) {
            ("w", _) => {
                let set = if is_filled { "v = $1, filling = $3" } else { "v = $1" };
                (format!("update {name} set {set} where k = $2"), vec![Literal::Unknown, given(key), Literal::Unknown])
            }
            // A product of the old value has to be read.
            ("u", _) => (format!("update {name} set v = v * $1 where k = $2"), vec![Literal::Unknown, given(key)]),
            ("i", _) => {
                let values = if is_filled { "$1, $2, $3" } else { "$1, $2" };
                let mut literals = vec![given(key), Literal::Unknown];
                literals.extend(is_filled.then_some(Literal::Unknown));
                (format!("insert into {name} values ({values})"), literals)
            }
            ("d", _) => (format!("delete from {name} where k = $1"), vec![given(key)]),
            (_, Some(second)) => {
                (format!("select {read} from {name} where k between $1 and $2"), vec![given(key), given(second)])
            }
            _ => (format!("select {read} from {name} where k = $1"), vec![given(key)]),
        }
    }
}
