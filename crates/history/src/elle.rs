//! Histories of Elle: list-append and rw-register, as Jepsen and elle-cli have them (K. Kingsbury,
//! P. Alvaro: "Elle: inferring isolation anomalies from experimental observations", VLDB 2020).
//!
//! Such a history says what clients saw: values, and not versions. So what the checker needs is
//! inferred here, and no more than follows whatever the database did:
//!
//! | | lists | registers |
//! | --- | --- | --- |
//! | the writer of a value that was read | the value, which is written once | the same |
//! | order of versions | the longest list that was read | nil is first; a transaction that reads and then writes comes after what it read |
//! | values that no transaction read | have no place, and are left out | come after nil |
//!
//! An anomaly that is found is one. That none is found means less than for a history of versions:
//! where the order is not known an anomaly can hide, more often in registers than in lists. Real
//! time and the order of a process's transactions are not used.
//!
//! **Registers** have an item for nil, `k`, and one for each value, `k=value`. The value's writer
//! writes that item, and the transactions that read the value and then write overwrite it. So a
//! blind write, whose place among the others is unknown, is ordered after nil, and before no other.

mod edn;

use std::collections::{HashMap, HashSet};

use contend_model::Applied;
use contend_model::{counted, is_or_are};
use serde_json::Value;

use crate::anomaly::{Anomaly, Class, Step};
use crate::check::{EXPLAINED, Report, TooComplex, check, check_bounded};
use crate::model::{History, ItemId, Op, State, TableId, Transaction};

/// What the transactions of a history of Elle do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workload {
    /// Append a unique element to a list, or read the list.
    ListAppend,
    /// Write a unique value to a register, or read it.
    Register,
}

impl Workload {
    fn write(self) -> &'static str {
        match self {
            Self::ListAppend => "append",
            Self::Register => "w",
        }
    }

    fn table(self) -> &'static str {
        match self {
            Self::ListAppend => "list",
            Self::Register => "register",
        }
    }
}

/// A history of versions that was inferred from one of values.
#[derive(Clone, Debug)]
pub struct Inferred {
    history: History,
    /// Anomalies that show before there is any graph: of each class as many as are explained, and
    /// how many more there are.
    found: Vec<Anomaly>,
    found_besides: usize,
    notes: Vec<String>,
}

impl Inferred {
    /// Reads a history of Elle: EDN, or JSON, a list or one operation after the other.
    ///
    /// # Errors
    /// It is none: the message names the line or the operation, and what was expected.
    pub fn read(text: &str, workload: Workload) -> Result<Self, String> {
        let transactions = transactions(text, workload)?;
        let mut inference = Inference::new(workload, &transactions)?;
        match workload {
            Workload::ListAppend => inference.lists(&transactions),
            Workload::Register => inference.registers(&transactions),
        }
        Ok(inference.finish(&transactions))
    }

    /// The versions.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// What was inferred, and what could not be: a sentence each.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Checks it in time that is proportional to its size.
    ///
    /// # Errors
    /// As [`check_bounded`].
    pub fn check_bounded(&self) -> Result<Report, TooComplex> {
        Ok(check_bounded(&self.history)?.with_inferred(&self.found, self.found_besides))
    }

    /// Checks it.
    #[must_use]
    pub fn check(&self) -> Report {
        check(&self.history).with_inferred(&self.found, self.found_besides)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Committed,
    Aborted,
    Unknown,
}

/// A read, or a write of the workload's kind.
struct Micro {
    is_read: bool,
    key: String,
    value: Value,
}

struct Done {
    /// The number of the operation that says how it ended, from 1.
    number: u64,
    process: u64,
    outcome: Outcome,
    ops: Vec<Micro>,
    /// Where in `ops` a key stands.
    places: HashMap<String, Places>,
}

/// Where a transaction names a key: first, and in its last write.
#[derive(Clone, Copy)]
struct Places {
    first: usize,
    last_write: Option<usize>,
}

impl Done {
    fn new(number: u64, process: u64, outcome: Outcome, ops: Vec<Micro>) -> Self {
        let mut places: HashMap<String, Places> = HashMap::new();
        for (position, micro) in ops.iter().enumerate() {
            let known = places.entry(micro.key.clone()).or_insert(Places { first: position, last_write: None });
            if !micro.is_read {
                known.last_write = Some(position);
            }
        }
        Done { number, process, outcome, ops, places }
    }

    /// The first operation on a key; 0 if there is none.
    fn first(&self, key: &str) -> usize {
        self.places.get(key).map_or(0, |places| places.first)
    }

    /// The last write of a key.
    fn last_write(&self, key: &str) -> Option<usize> {
        self.places.get(key)?.last_write
    }
}

/// A key, a value of a keyword or a string, without quotes.
fn name(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The operations of a file, each with where it is.
fn operations(text: &str) -> Result<Vec<(String, Value)>, String> {
    let inside = text.find('{').map(|at| text[at + 1..].trim_start());
    let mut values = Vec::new();
    if inside.is_some_and(|inside| inside.starts_with('"')) {
        for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
            values.push((0, value.map_err(|error| format!("not JSON: {error}"))?));
        }
    } else {
        let mut reader = edn::Reader::new(text);
        while let Some(next) = reader.next().map_err(|error| format!("not EDN: {error}"))? {
            values.push(next);
        }
    }
    let mut all = Vec::new();
    for (line, value) in values {
        match value {
            Value::Array(list) => {
                all.extend(list.into_iter().enumerate().map(|(place, op)| (format!("operation {}", place + 1), op)));
            }
            op if line == 0 => all.push((format!("operation {}", all.len() + 1), op)),
            op => all.push((format!("line {line}"), op)),
        }
    }
    Ok(all)
}

/// The transactions of a file.
fn transactions(text: &str, workload: Workload) -> Result<Vec<Done>, String> {
    let mut all: Vec<Done> = Vec::new();
    // By process: the transaction that has not ended.
    let mut begun: HashMap<String, Done> = HashMap::new();
    for (number, (place, op)) in (1..).zip(operations(text)?) {
        let error = |message: String| format!("{place}: {message}");
        let field = |name: &str| op.get(name).or_else(|| op.get(format!(":{name}")));
        if !op.is_object() {
            return Err(error(format!("an operation is a map, such as {}", example(workload))));
        }
        let kind = field("type").map(name).ok_or_else(|| error("an operation needs `type`".into()))?;
        let kind = kind.trim_start_matches(':').to_owned();
        let process = field("process").map(name).ok_or_else(|| error("an operation needs `process`".into()))?;
        // The nemesis and other helpers have names, and no transactions.
        let Ok(worker) = process.parse::<u64>() else { continue };
        let outcome = match kind.as_str() {
            "invoke" | "info" => Outcome::Unknown,
            "ok" => Outcome::Committed,
            "fail" => Outcome::Aborted,
            other => {
                return Err(error(format!(
                    "unknown type '{}'; valid: invoke, ok, fail, info",
                    crate::json::short(other)
                )));
            }
        };
        let before = begun.remove(&process);
        let list = field("value").unwrap_or(&Value::Null);
        let ops = match list {
            Value::Null => None,
            Value::Array(list) => {
                let ops = list.iter().map(|micro| micro_operation(micro, workload));
                Some(ops.collect::<Result<Vec<_>, _>>().map_err(error)?)
            }
            _ => return Err(error(format!("`value` is a list of operations, such as {}", example(workload)))),
        };
        // How it ended may be said without what it did.
        let ops = ops.or_else(|| before.map(|before| before.ops)).unwrap_or_default();
        let done = Done::new(number, worker, outcome, ops);
        if kind == "invoke" {
            begun.insert(process, done);
        } else {
            all.push(done);
        }
    }
    all.extend(begun.into_values());
    all.sort_by_key(|done| done.number);
    if all.is_empty() {
        return Err(format!("no transaction is in it; expected operations such as {}", example(workload)));
    }
    Ok(all)
}

fn example(workload: Workload) -> String {
    let value = if workload == Workload::ListAppend { "[1 2]" } else { "2" };
    format!("{{:type :ok, :process 0, :f :txn, :value [[:{} x 1] [:r y {value}]]}}", workload.write())
}

fn micro_operation(micro: &Value, workload: Workload) -> Result<Micro, String> {
    let parts = micro.as_array().filter(|parts| (2..=3).contains(&parts.len()));
    let parts = parts.ok_or_else(|| format!("{} is no operation on a key: expected [kind key value]", short(micro)))?;
    let kind = name(&parts[0]);
    let kind = kind.trim_start_matches(':');
    let value = parts.get(2).cloned().unwrap_or(Value::Null);
    let is_read = kind == "r";
    if !is_read && kind != workload.write() {
        let other = match kind {
            "w" => " (of --format elle-register)",
            "append" => " (of --format elle-append)",
            _ => "",
        };
        let kind = crate::json::short(kind);
        return Err(format!("unknown operation '{kind}'{other}; valid: {}, r", workload.write()));
    }
    if !is_read && value.is_null() {
        return Err(format!("'{kind}' needs a value that is not nil"));
    }
    if is_read && workload == Workload::ListAppend && !(value.is_null() || value.is_array()) {
        return Err(format!("a read of a list answers a list, not {}", short(&value)));
    }
    Ok(Micro { is_read, key: name(&parts[1]), value })
}

/// By key: the longest list of it that was read.
type Longest<'t> = HashMap<&'t str, &'t [Value]>;

/// The writer of a value.
#[derive(Clone, Copy)]
struct Writer {
    number: u64,
    /// Its place among the transactions.
    place: usize,
    outcome: Outcome,
}

struct Inference {
    workload: Workload,
    /// By key, and by value.
    writers: HashMap<String, HashMap<String, Writer>>,
    history: History,
    table: TableId,
    found: Vec<Anomaly>,
    /// By transaction: what it did, in terms of versions.
    ops: Vec<Vec<Op>>,
    /// By transaction: whether it has committed, as it said or as others saw.
    committed: Vec<bool>,
    /// A number that nobody has: the writer of values that nobody wrote.
    nobody: u64,
    no_writers: HashMap<String, Writer>,
    /// Anomalies that were found and are not in `found`.
    found_besides: usize,
    /// By register: the last transaction that was put behind nil.
    after_nil: HashMap<String, u64>,
    /// Appends that nobody read.
    unread: usize,
    /// Writes of registers that were not read before.
    blind: usize,
}

impl Inference {
    fn new(workload: Workload, transactions: &[Done]) -> Result<Self, String> {
        let mut writers: HashMap<String, HashMap<String, Writer>> = HashMap::new();
        for (place, done) in transactions.iter().enumerate() {
            for micro in done.ops.iter().filter(|micro| !micro.is_read) {
                let writer = Writer { number: done.number, place, outcome: done.outcome };
                let of_key = writers.entry(micro.key.clone()).or_default();
                if of_key.insert(micro.value.to_string(), writer).is_some() {
                    return Err(format!(
                        "operation {}: {} {} {} is there twice: each value is written once, so that a read tells its writer",
                        done.number,
                        workload.write(),
                        crate::json::short(&micro.key),
                        short(&micro.value)
                    ));
                }
            }
        }
        let mut history = History::new();
        let table = history.table(workload.table());
        Ok(Inference {
            workload,
            writers,
            table,
            history,
            found: Vec::new(),
            ops: transactions.iter().map(|_| Vec::new()).collect(),
            committed: transactions.iter().map(|done| done.outcome == Outcome::Committed).collect(),
            nobody: transactions.last().map_or(0, |done| done.number) + 1,
            no_writers: HashMap::new(),
            found_besides: 0,
            after_nil: HashMap::new(),
            unread: 0,
            blind: 0,
        })
    }

    /// Returns the writers of a key's values.
    fn writers_of(&self, key: &str) -> &HashMap<String, Writer> {
        self.writers.get(key).unwrap_or(&self.no_writers)
    }

    fn writer(&self, key: &str, value: &Value) -> Option<Writer> {
        self.writers_of(key).get(&value.to_string()).copied()
    }

    /// The version that somebody has read: its writer's number, or nobody's.
    fn version(&self, key: &str, value: &Value) -> u64 {
        self.writer(key, value).map_or(self.nobody, |writer| writer.number)
    }

    fn item(&mut self, key: &str) -> ItemId {
        self.history.item(self.table, key)
    }

    /// Whether an anomaly of this class would be explained; counts it if not.
    fn wants(&mut self, class: Class) -> bool {
        let wants = self.found.iter().filter(|anomaly| anomaly.class == class).count() < EXPLAINED;
        self.found_besides += usize::from(!wants);
        wants
    }

    fn report(&mut self, class: Class, name: &'static str, steps: &[(&Done, usize, String)]) {
        let steps = steps.iter().map(|(done, op, reason)| Step {
            txn: done.number,
            op: *op,
            operation: if done.ops[*op].is_read { "read" } else { self.workload.write() },
            table: self.workload.table().into(),
            key: done.ops[*op].key.clone(),
            version: None,
            dependency: None,
            reason: reason.clone(),
        });
        let steps = steps.collect();
        self.found.push(Anomaly { class, name, steps });
    }

    /// Lists: the longest that was read of each key is the order of its versions.
    fn lists(&mut self, transactions: &[Done]) {
        let mut longest: Longest<'_> = HashMap::new();
        let read = |micro: &Micro| micro.is_read && micro.value.is_array();
        let committed = transactions.iter().filter(|done| done.outcome == Outcome::Committed);
        for micro in committed.flat_map(|done| &done.ops).filter(|micro| read(micro)) {
            let list = elements(&micro.value);
            let known = longest.entry(&micro.key).or_default();
            if list.len() > known.len() {
                *known = list;
            }
        }
        // A transaction whose value was read has committed, also if its client does not know.
        for (key, list) in &longest {
            let of_key = self.writers.get(*key).unwrap_or(&self.no_writers);
            for writer in list.iter().filter_map(|value| of_key.get(&value.to_string())) {
                self.committed[writer.place] |= writer.outcome == Outcome::Unknown;
            }
        }
        // By key and transaction that appended: the transaction that appended before.
        let mut over: HashMap<&str, HashMap<u64, u64>> = HashMap::new();
        for (&key, list) in &longest {
            over.insert(key, self.order_list(transactions, key, list));
        }
        for (place, done) in transactions.iter().enumerate() {
            if !self.committed[place] {
                continue;
            }
            let mut own: HashMap<&str, Vec<&Value>> = HashMap::new();
            for (position, micro) in done.ops.iter().enumerate() {
                let key = micro.key.as_str();
                if micro.is_read {
                    // What a transaction of unknown end saw is not known either.
                    if done.outcome == Outcome::Committed {
                        let own = own.get(key).map_or(&[][..], Vec::as_slice);
                        self.read_list((place, done, position), own, &longest);
                    }
                    continue;
                }
                own.entry(key).or_default().push(&micro.value);
                match over.get(key).and_then(|over| over.get(&done.number)) {
                    Some(&before) => self.write(place, key, before, &micro.value),
                    None => self.unread += 1,
                }
            }
        }
    }

    /// Finds for each transaction that appended to the key's longest list the one that appended
    /// before.
    fn order_list(&mut self, transactions: &[Done], key: &str, list: &[Value]) -> HashMap<u64, u64> {
        let mut over: HashMap<u64, u64> = HashMap::new();
        let writers = self.writers_of(key).clone();
        let (mut last, mut seen) = (0, HashSet::new());
        for value in list {
            let written = writers.get(&value.to_string()).copied();
            let Some(writer) = written.filter(|writer| self.committed[writer.place]) else { continue };
            if writer.number != last && !over.contains_key(&writer.number) {
                over.insert(writer.number, last);
            } else if writer.number != last && self.wants(Class::G0) {
                let op = transactions[writer.place].first(key);
                let reason = format!("T{last} has written between two appends of T{}", writer.number);
                self.report(Class::G0, "dirty write", &[(&transactions[writer.place], op, reason)]);
            }
            last = writer.number;
            if !seen.insert(value.to_string()) && self.wants(Class::G0) {
                let op = transactions[writer.place].first(key);
                let reason = format!("element {value} is twice in a list that was read");
                self.report(Class::G0, "duplicate element", &[(&transactions[writer.place], op, reason)]);
            }
        }
        over
    }

    /// A read of a list by a committed transaction, which has appended the elements `own` to it
    /// before.
    fn read_list(&mut self, (place, done, position): (usize, &Done, usize), own: &[&Value], longest: &Longest<'_>) {
        let Micro { key, value, .. } = &done.ops[position];
        let list = elements(value);
        if !list.iter().rev().take(own.len()).eq(own.iter().rev().copied()) {
            if self.wants(Class::Internal) {
                let reason = format!("T{} read {}, which does not end with its own appends", done.number, short(value));
                let name = "a transaction did not see its own write";
                self.report(Class::Internal, name, &[(done, position, reason)]);
            }
            return;
        }
        let order = longest.get(key.as_str()).copied().unwrap_or_default();
        if !order.starts_with(list) {
            if self.wants(Class::G0) {
                let reason = format!("T{} read {}, which does not begin the longest list", done.number, short(value));
                self.report(Class::G0, "incompatible orders", &[(done, position, reason)]);
            }
            return;
        }
        let of_key = self.writers_of(key);
        let is_aborted =
            |value: &&Value| of_key.get(&value.to_string()).is_none_or(|writer| !self.committed[writer.place]);
        let aborted = list.iter().find(is_aborted).filter(|value| Some(*value) != list.last());
        if let Some(element) = aborted {
            if self.wants(Class::G1a) {
                let by = self
                    .writer(key, element)
                    .map_or_else(|| "nobody".into(), |writer| format!("T{}, which aborted", writer.number));
                let reason = format!("T{} read {}: {element} was appended by {by}", done.number, short(value));
                self.report(Class::G1a, "aborted read", &[(done, position, reason)]);
            }
            return;
        }
        let version = list.last().map_or(0, |last| self.version(key, last));
        self.read(place, key, version, list.last());
    }

    /// Registers: values have items of their own.
    fn registers(&mut self, transactions: &[Done]) {
        let reads = transactions.iter().filter(|done| done.outcome == Outcome::Committed).flat_map(|done| &done.ops);
        for micro in reads.filter(|micro| micro.is_read) {
            if let Some(writer) = self.writer(&micro.key, &micro.value) {
                self.committed[writer.place] |= writer.outcome == Outcome::Unknown;
            }
        }
        for (place, done) in transactions.iter().enumerate() {
            if !self.committed[place] {
                continue;
            }
            // By key: what was read last, and where; and whether it was written.
            let mut seen: HashMap<&str, (usize, &Value)> = HashMap::new();
            let mut wrote: HashSet<&str> = HashSet::new();
            for (position, micro) in done.ops.iter().enumerate() {
                let key = micro.key.as_str();
                if micro.is_read {
                    // What a transaction saw that does not know how it ended is not known either.
                    if done.outcome == Outcome::Committed {
                        let before = (!wrote.contains(key)).then(|| seen.insert(key, (position, &micro.value)));
                        self.read_register(transactions, place, position, before.is_none());
                        if let Some(Some((earlier, value))) = before
                            && *value != micro.value
                            && !value.is_null()
                            && !micro.value.is_null()
                            && self.wants(Class::GSingle)
                        {
                            let reason = |value| format!("T{} read {value}", done.number);
                            let steps = [(done, earlier, reason(value)), (done, position, reason(&micro.value))];
                            self.report(Class::GSingle, "read skew", &steps);
                        }
                    }
                    continue;
                }
                let item = item_of_last(done, key);
                self.write(place, &item, 0, &micro.value);
                if wrote.insert(key) {
                    let known = seen.get(key).map(|(_, value)| *value);
                    self.overwrite_register(transactions, place, key, known);
                }
            }
        }
    }

    /// A read of a register, which the transaction has written before or not.
    fn read_register(&mut self, transactions: &[Done], place: usize, position: usize, after_own: bool) {
        let done = &transactions[place];
        let Micro { key, value, .. } = &done.ops[position];
        if after_own {
            // Its own write should be there, whatever is.
            let version = if value.is_null() { 0 } else { self.version(key, value) };
            self.read(place, &item_of_last(done, key), version, Some(value));
        } else if value.is_null() {
            self.read(place, key, 0, None);
            if done.last_write(key).is_some_and(|last| last > position) {
                self.read(place, &item_of_value(key, value), 0, None);
            }
        } else {
            let item = self.item_of_writer(transactions, key, value);
            self.read(place, &item, self.version(key, value), Some(value));
        }
    }

    /// Notes a transaction's first write of a register; `known` is the value that it read before.
    fn overwrite_register(&mut self, transactions: &[Done], place: usize, key: &str, known: Option<&Value>) {
        // After nil, in no order with the other writes after nil. Updates that commute are just so;
        // each names the one before.
        let before = self.after_nil.insert(key.to_owned(), transactions[place].number).unwrap_or(0);
        self.overwrite(place, key, before, Applied::Commuting);
        match known {
            None => self.blind += 1,
            Some(value) if value.is_null() => self.overwrite(place, &item_of_value(key, value), 0, Applied::InOrder),
            Some(value) => {
                let writer = self.writer(key, value).filter(|writer| self.committed[writer.place]);
                if let Some(writer) = writer.filter(|writer| writer.place != place) {
                    let item = self.item_of_writer(transactions, key, value);
                    self.overwrite(place, &item, writer.number, Applied::InOrder);
                }
            }
        }
    }

    /// The item of the last value that the writer of this one has written of the key.
    fn item_of_writer(&self, transactions: &[Done], key: &str, value: &Value) -> String {
        let writer = self.writer(key, value);
        writer.map_or_else(|| item_of_value(key, value), |writer| item_of_last(&transactions[writer.place], key))
    }

    fn read(&mut self, place: usize, key: &str, version: u64, value: Option<&Value>) {
        let item = self.item(key);
        let value = value.map(fingerprint);
        self.ops[place].push(Op::Read { item, seen: State::Version(version), value });
    }

    fn write(&mut self, place: usize, key: &str, over: u64, value: &Value) {
        let item = self.item(key);
        let (over, value) = (State::Version(over), Some(fingerprint(value)));
        self.ops[place].push(Op::Write { item, over, delete: false, applied: Applied::InOrder, value });
    }

    fn overwrite(&mut self, place: usize, key: &str, over: u64, applied: Applied) {
        let item = self.item(key);
        self.ops[place].push(Op::Write { item, over: State::Version(over), delete: false, applied, value: None });
    }

    fn finish(self, transactions: &[Done]) -> Inferred {
        let Inference { workload, mut history, found, found_besides, ops, committed, unread, blind, .. } = self;
        let (mut aborted, mut unknown, mut others_saw) = (0, 0, 0);
        for ((done, ops), committed) in transactions.iter().zip(ops).zip(committed) {
            if committed {
                others_saw += usize::from(done.outcome == Outcome::Unknown);
                let transaction = Transaction { txn: done.number, worker: done.process, ops };
                history.push(transaction).expect("operations have numbers of their own, from 1");
            } else if done.outcome == Outcome::Aborted {
                aborted += 1;
            } else {
                unknown += 1;
            }
        }
        let mut notes = vec![format!(
            "T7 is the transaction whose end is operation 7 of the file. {} committed, {others_saw} of them by what others read; left out: {aborted} \
             aborted, {unknown} of unknown end.",
            history.transactions().len()
        )];
        notes.push(match workload {
            Workload::ListAppend => format!(
                "The order of appends is that of the longest list read. {} in no such list: nothing is concluded from that.",
                format_args!("{} {}", counted(unread, "append"), is_or_are(unread))
            ),
            Workload::Register => format!(
                "A write comes after nil, and after what its transaction read of the key. {} made without such a read: the order is \
                 unknown, and cycles through it go unseen.",
                if blind == 1 { "1 write was".into() } else { format!("{blind} writes were") }
            ),
        });
        notes.push(
            "An anomaly shown is one. None shown is no proof. Real time and the order within a process are not judged."
                .into(),
        );
        Inferred { history, found, found_besides, notes }
    }
}

/// The elements of a list that was read; a list that is not there has none.
fn elements(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// The item of a register's value.
fn item_of_value(key: &str, value: &Value) -> String {
    if value.is_null() { format!("{key}=nil") } else { format!("{key}={}", name(value)) }
}

/// The item of the last value that a transaction writes of a key.
fn item_of_last(done: &Done, key: &str) -> String {
    done.last_write(key).map_or_else(|| key.to_owned(), |last| item_of_value(key, &done.ops[last].value))
}

fn fingerprint(value: &Value) -> crate::Value {
    crate::Value::Text(std::sync::Arc::new(value.to_string()))
}

/// A value in words that fit a line.
fn short(value: &Value) -> String {
    const CHARACTERS_MAX: usize = 60;
    let text = value.to_string();
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
