//! The common form of all traces: types of transactions, with the values of their parameters.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::time::UNIX_EPOCH;

use contend_workloads::WorkloadFile;

use crate::calls::Literal;
use crate::schema::{Kind, Schema};
use crate::translate::{ColumnAt, Meaning, Role, Statement, filled, meaning_of};

/// The value of a parameter that is null.
pub(crate) const NULL: i64 = i64::MIN;
/// The value of a parameter that the trace does not give.
pub(crate) const UNKNOWN: i64 = i64::MIN + 1;
/// The first of the numbers that stand for values that are no numbers.
pub(crate) const INTERNED: i64 = 1 << 62;

/// The most templates that are told apart.
const TEMPLATES_MAX: usize = 10_000;
/// The most paths that are told apart.
const PATHS_MAX: usize = 100_000;
/// The most transactions of a path whose values are kept.
pub(crate) const SAMPLES_MAX: u64 = 1_000_000;
/// The most statements of a transaction.
const STATEMENTS_MAX: usize = 10_000;

/// A statement without its constants.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) text: String,
    pub(crate) meaning: Meaning,
    /// The line of the trace where it was seen first.
    pub(crate) line: u64,
    /// The statements of complete transactions that have this template.
    pub(crate) statements: u64,
}

impl Template {
    /// Returns the statement of the workload language.
    pub(crate) fn statement(&self) -> Option<&Statement> {
        match &self.meaning {
            Meaning::Statement(statement) => Some(statement),
            _ => None,
        }
    }
}

/// A statement of a transaction, with the values of its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) template: usize,
    pub(crate) values: Vec<i64>,
    /// Whether the trace has a statement here. Further elements of a list are none.
    pub(crate) is_logged: bool,
}

/// Transactions with the same templates in the same order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Path {
    pub(crate) count: u64,
    /// The logged statements of all these transactions, without refused ones.
    pub(crate) statements: u64,
    /// For each statement, the values of each of its parameters.
    pub(crate) values: Vec<Vec<Vec<i64>>>,
}

/// The templates of a path, and whether the transaction is cancelled at its end.
pub(crate) type Shape = (Vec<usize>, bool);

/// What a trace holds beside the transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Statements of complete transactions on tables.
    pub(crate) statements: u64,
    /// Statements without tables.
    pub(crate) ignored: u64,
    /// Statements that were undone by a return to a savepoint.
    pub(crate) undone: u64,
    /// Complete transactions.
    pub(crate) transactions: u64,
    /// Transactions whose beginning is not in the trace.
    pub(crate) without_begin: u64,
    /// Transactions whose end is not in the trace.
    pub(crate) without_end: u64,
    /// Transactions that ended with an error.
    pub(crate) failed: u64,
    pub(crate) sessions: u64,
}

/// A trace.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) schema: Schema,
    pub(crate) templates: Vec<Template>,
    by_text: HashMap<String, usize>,
    pub(crate) paths: HashMap<Shape, Path>,
    /// Numbers that stand for texts, by the hash of the text.
    interned: HashMap<u64, i64>,
    pub(crate) counts: Counts,
    /// The transactions that began in each second.
    pub(crate) arrivals: HashMap<i64, u64>,
    /// Times between two transactions of a session, in seconds.
    pub(crate) thinks: Vec<f64>,
}

impl Trace {
    pub(crate) fn new(schema: Schema) -> Self {
        Trace {
            schema,
            templates: Vec::new(),
            by_text: HashMap::new(),
            paths: HashMap::new(),
            interned: HashMap::new(),
            counts: Counts::default(),
            arrivals: HashMap::new(),
            thinks: Vec::new(),
        }
    }

    /// Returns the number of a template.
    pub(crate) fn template(&mut self, text: &str, parameters: usize, line: u64) -> usize {
        if let Some(&number) = self.by_text.get(text) {
            return number;
        }
        let (text, meaning) = if self.templates.len() < TEMPLATES_MAX {
            (text, self.tested(meaning_of(&self.schema, text, parameters)))
        } else {
            let why = format!("the trace has more than {TEMPLATES_MAX} different statements");
            ("(other statements)", Meaning::Refused(why))
        };
        match self.by_text.entry(text.to_owned()) {
            Entry::Occupied(entry) => *entry.get(),
            Entry::Vacant(entry) => {
                let number = self.templates.len();
                self.templates.push(Template { text: text.to_owned(), meaning, line, statements: 0 });
                *entry.insert(number)
            }
        }
    }

    /// Has the compiler of workload files look at a statement.
    fn tested(&self, meaning: Meaning) -> Meaning {
        let Meaning::Statement(statement) = meaning else { return meaning };
        let table = statement.table;
        let index = statement.index;
        let schema = self.schema.text(|number| number == table, |_, number| Some(number) == index);
        let body = filled(&statement.text, |parameter| match statement.roles[parameter] {
            Role::Text(_) => "random_text(3)".into(),
            _ => "1".into(),
        });
        let text = format!(
            "name = \"x\"\nschema = '''\n{schema}'''\n[[transaction]]\nname = \"x\"\nscript = '''\n{body}\n'''\n"
        );
        match WorkloadFile::read("x", &text) {
            Ok(_) => Meaning::Statement(statement),
            Err(why) => Meaning::Refused(why.rsplit_once(": ").map_or(why.clone(), |_| {
                let why = why.trim_start_matches("x: ");
                why.split_once(": ").map_or(why, |(_, message)| message).to_owned()
            })),
        }
    }

    /// Returns the numbers that stand for the constants of a call.
    pub(crate) fn values(&mut self, template: usize, literals: &[Literal]) -> Vec<i64> {
        let Some(statement) = self.templates[template].statement() else { return Vec::new() };
        let roles = statement.roles.clone();
        roles.iter().zip(literals).map(|(role, literal)| self.value(*role, literal)).collect()
    }

    fn value(&mut self, role: Role, literal: &Literal) -> i64 {
        let text = match literal {
            Literal::Unknown => return UNKNOWN,
            Literal::Null => return NULL,
            Literal::Given(text) => text,
        };
        let at = match role {
            Role::Unused => return 0,
            Role::Text(bytes) => return text.len().min(bytes as usize) as i64,
            Role::Count => return text.parse().unwrap_or(0),
            Role::Key(at) | Role::Low(at) | Role::High(at, _) | Role::Stored(at) | Role::Number(at) => at,
        };
        let number = match self.schema.tables[at.table].columns[at.column].kind {
            Kind::Whole => whole(text),
            Kind::Scaled(digits) => {
                text.parse::<f64>().ok().and_then(|value| rounded(value * 10f64.powi(digits as i32)))
            }
            Kind::Time => seconds_of(text).and_then(|seconds| rounded(seconds * 1e6)),
            Kind::Text(_) | Kind::Ranked => None,
        };
        number.unwrap_or_else(|| self.interned(text))
    }

    /// Returns the number that stands for a text.
    pub(crate) fn interned(&mut self, text: &str) -> i64 {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
        let next = INTERNED + self.interned.len() as i64;
        *self.interned.entry(hash).or_insert(next)
    }

    /// Adds a complete transaction, `count` times.
    pub(crate) fn add(&mut self, steps: Vec<Step>, is_cancelled: bool, count: u64) {
        self.counts.transactions += count;
        let mut statements = 0;
        for step in steps.iter().filter(|step| step.is_logged) {
            self.templates[step.template].statements += count;
            statements += count;
        }
        self.counts.statements += statements;
        let steps: Vec<Step> =
            steps.into_iter().filter(|step| self.templates[step.template].statement().is_some()).collect();
        if steps.is_empty() || steps.len() > STATEMENTS_MAX {
            return;
        }
        let shape: Shape = (steps.iter().map(|step| step.template).collect(), is_cancelled);
        if self.paths.len() >= PATHS_MAX && !self.paths.contains_key(&shape) {
            return;
        }
        let path = self.paths.entry(shape).or_default();
        path.statements += count * steps.iter().filter(|step| step.is_logged).count() as u64;
        if path.count == 0 {
            path.values = steps.iter().map(|step| vec![Vec::new(); step.values.len()]).collect();
        }
        if path.count < SAMPLES_MAX {
            for (values, step) in path.values.iter_mut().zip(&steps) {
                values.iter_mut().zip(&step.values).for_each(|(all, value)| all.push(*value));
            }
        }
        path.count += count;
    }

    /// Notes when a transaction began, and how long its session had waited.
    pub(crate) fn began(&mut self, at: Option<f64>, last_end: Option<f64>) {
        const THINKS_MAX: usize = 1_000_000;
        let Some(at) = at else { return };
        *self.arrivals.entry(at.floor() as i64).or_default() += 1;
        if let Some(last) = last_end
            && at >= last
            && self.thinks.len() < THINKS_MAX
        {
            self.thinks.push(at - last);
        }
    }
}

fn rounded(value: f64) -> Option<i64> {
    (value.is_finite() && value.abs() < 4e18).then_some(value.round() as i64)
}

fn whole(text: &str) -> Option<i64> {
    let text = text.trim();
    match text {
        "t" | "true" | "on" | "yes" => return Some(1),
        "f" | "false" | "off" | "no" => return Some(0),
        _ => {}
    }
    let number = text.parse::<i64>().ok().or_else(|| text.parse::<f64>().ok().and_then(rounded));
    number.filter(|number| number.unsigned_abs() < INTERNED as u64)
}

/// Returns the seconds since 1970 of a date or a time, whose zone does not count.
pub(crate) fn seconds_of(text: &str) -> Option<f64> {
    let text = text.trim();
    let (date, time) = match text.get(10..11) {
        Some(" " | "T") => (text.get(..10)?, text.get(11..)?),
        None => (text.get(..10)?, "00:00:00"),
        Some(_) => return None,
    };
    let end = time.find(|letter: char| !letter.is_ascii_digit() && letter != ':' && letter != '.');
    let time = &time[..end.unwrap_or(time.len())];
    let seconds = if time.matches(':').count() == 1 { ":00" } else { "" };
    let parsed = humantime::parse_rfc3339_weak(&format!("{date} {time}{seconds}")).ok()?;
    Some(parsed.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

impl Trace {
    /// Whether rows are found by a column: it is one of a primary key, or of an index that a
    /// statement uses.
    pub(crate) fn finds_rows(&self, at: ColumnAt) -> bool {
        let of = &self.schema.tables[at.table];
        let is_indexed = |template: &Template| {
            let known = template.statement().filter(|known| known.table == at.table);
            known.and_then(|known| known.index).is_some_and(|index| of.indexes[index].contains(&at.column))
        };
        of.key.contains(&at.column) || self.templates.iter().any(is_indexed)
    }

    /// Returns the template of statements that can't be divided into words.
    pub(crate) fn unreadable(&mut self, why: &str, line: u64) -> usize {
        const TEXT: &str = "(unreadable)";
        let number = self.template(TEXT, 0, line);
        self.templates[number].meaning = Meaning::Refused(format!("it is no SQL: {}", crate::error::cut(why)));
        number
    }
}
