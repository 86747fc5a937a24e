//! The history file: JSON lines, one committed transaction a line.
//!
//! ```json
//! {"txn":7,"worker":0,"ops":[{"op":"read","table":"t","key":"42","version":3},
//!                            {"op":"write","table":"t","key":"42","version":7,"over":3},
//!                            {"op":"scan","table":"t","low":"10","high":"20","seen":[["11",3]]}]}
//! ```
//!
//! (on one line). `version` names the transaction that wrote what was read: 0 is the loader, null a
//! miss. A write with `"over":null` is an insert, one with `"delete":true` a delete. A scan's
//! bounds are included; null is no bound.
//!
//! Fields that a file may have, and that say more: of a miss `deleted_by`, of an insert `after`, of
//! a scan `gone` (pairs of key and deleter) name the transaction whose delete left no row there, 0
//! if there never was one; `value` is a fingerprint of the row read or written; `"commutes":true`
//! says that a write was applied without a read, as an addition is, and that other such writes of
//! the key may come before it or after it with the same result; `"omitted":true` says that a write
//! was never applied, because a later blind write has replaced the version `over`. Fields may come
//! in any order; unknown ones are skipped, and so are empty lines. An empty file is a history
//! without a transaction.

use std::borrow::Cow;
use std::fmt;
use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::{Deserialize, Deserializer, Visitor};
use serde::{Deserialize as DeriveDeserialize, Serialize, Serializer};

use contend_model::Applied;

use crate::model::{History, ItemId, Op, Scan, State, TableId, Transaction, Value};

/// Why a file is not a history.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong, and what was expected.
    pub message: String,
}

/// A line of a history: a committed transaction.
#[derive(DeriveDeserialize, JsonSchema, Serialize)]
#[schemars(rename = "Transaction")]
struct TransactionLine<'a> {
    /// Its number: positive and unique.
    txn: u64,
    /// The worker that ran it.
    #[serde(default)]
    worker: u64,
    /// Its operations, in its own order.
    #[serde(borrow)]
    ops: Vec<OpField<'a>>,
}

/// An operation: a read, a write or a scan. A version is named by the transaction that wrote it; 0
/// is the version that was loaded.
// The fields of all three operations: which of them an operation needs depends on `op`, and a
// person is told which.
#[derive(DeriveDeserialize, JsonSchema, Serialize, Default)]
#[schemars(rename = "Operation")]
struct OpField<'a> {
    /// `read`, `write` or `scan`.
    #[serde(borrow)]
    op: Cow<'a, str>,
    /// The table.
    #[serde(borrow)]
    table: Cow<'a, str>,
    /// The key of a read or a write.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    key: Option<Text<'a>>,
    /// The first key of a scan; null: no bound.
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    low: Option<Option<Text<'a>>>,
    /// The last key of a scan; null: no bound.
    #[serde(borrow, default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    high: Option<Option<Text<'a>>>,
    /// The version read; null: there was no row.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    version: Option<Option<u64>>,
    /// The version that a write replaced; null: an insert.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    over: Option<Option<u64>>,
    /// Of an insert: the transaction whose delete left no row before; 0 if there never was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<u64>,
    /// Of a miss: the transaction whose delete left no row; 0 if there never was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    deleted_by: Option<u64>,
    /// Whether the write is a delete.
    #[serde(default, skip_serializing_if = "is_false")]
    delete: bool,
    /// Whether the write was applied without a look at the row.
    #[serde(default, skip_serializing_if = "is_false")]
    commutes: bool,
    /// Whether the write was never applied, because a later blind write had replaced `over`.
    #[serde(default, skip_serializing_if = "is_false")]
    omitted: bool,
    /// A fingerprint of the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Scalar>")]
    value: Option<Value>,
    /// The rows that a scan returned: pairs of key and version.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    seen: Option<Vec<(Text<'a>, u64)>>,
    /// Pairs of a key of a scan's range and the transaction that had deleted it.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    gone: Vec<(Text<'a>, u64)>,
}

/// A boolean, a number or a string, for the schema of [`Value`].
#[derive(JsonSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Scalar {
    Bool(bool),
    Number(f64),
    Text(String),
}

/// A string that borrows from the line unless it has escapes.
#[derive(DeriveDeserialize, JsonSchema, Serialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// Returns the JSON schema of a line of a history.
pub fn line_schema() -> schemars::Schema {
    schemars::schema_for!(TransactionLine<'static>)
}

/// Tells a field that is null from one that is not there.
fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Scalar;
        impl Visitor<'_> for Scalar {
            type Value = Value;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a boolean, a number or a string")
            }
            fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
                Ok(Value::Bool(value))
            }
            fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
                Ok(Value::Unsigned(value))
            }
            fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
                Ok(u64::try_from(value).map_or(Value::Negative(value), Value::Unsigned))
            }
            fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
                Ok(Value::Float(value))
            }
            fn visit_str<E>(self, value: &str) -> Result<Value, E> {
                Ok(Value::Text(Arc::new(value.to_owned())))
            }
        }
        deserializer.deserialize_any(Scalar)
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Negative(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}

/// The longest line of a history, in bytes. The limit guards against endless devices.
const LINE_BYTES_MAX: u64 = 256 << 20;

impl History {
    /// Reads a file of JSON lines, as this crate's documentation of the format says.
    ///
    /// # Errors
    /// At the first line that can't be read, is longer than 256 MiB or is no transaction, or whose
    /// transaction was there before.
    pub fn read_json_lines(mut source: impl BufRead) -> Result<Self, ParseError> {
        let mut history = Self::new();
        let mut bytes = Vec::new();
        for line in 1.. {
            bytes.clear();
            let error = |message: String| ParseError { line, message };
            let mut part = source.by_ref().take(LINE_BYTES_MAX + 1);
            let length = part.read_until(b'\n', &mut bytes).map_err(|e| error(format!("can't be read: {e}")))?;
            if length == 0 {
                break;
            }
            if length as u64 > LINE_BYTES_MAX {
                return Err(error(format!("it has more than {} MiB", LINE_BYTES_MAX >> 20)));
            }
            if bytes.trim_ascii().is_empty() {
                continue;
            }
            let parsed: TransactionLine<'_> = serde_json::from_slice(&bytes).map_err(|e| error(syntax_message(&e)))?;
            let transaction = history.intern(&parsed).map_err(error)?;
            history.push(transaction).map_err(|e| error(e.to_string()))?;
        }
        Ok(history)
    }

    /// Writes the history as a file of JSON lines, which [`History::read_json_lines`] reads back.
    ///
    /// # Errors
    /// What `target` fails with.
    pub fn write_json_lines(&self, mut target: impl Write) -> io::Result<()> {
        for transaction in self.transactions() {
            let ops = transaction.ops.iter().map(|op| self.op_field(transaction.txn, op)).collect();
            let line = TransactionLine { txn: transaction.txn, worker: transaction.worker, ops };
            serde_json::to_writer(&mut target, &line)?;
            target.write_all(b"\n")?;
        }
        target.flush()
    }

    fn intern(&mut self, line: &TransactionLine<'_>) -> Result<Transaction, String> {
        let mut ops = Vec::with_capacity(line.ops.len());
        for (index, field) in line.ops.iter().enumerate() {
            let op = self.intern_op(line.txn, field);
            ops.push(op.map_err(|message| format!("operation {} of transaction {}: {message}", index + 1, line.txn))?);
        }
        Ok(Transaction { txn: line.txn, worker: line.worker, ops })
    }

    fn intern_op(&mut self, txn: u64, field: &OpField<'_>) -> Result<Op, String> {
        let table = self.table(&field.table);
        match &*field.op {
            "read" => {
                let item = self.required_key(table, field)?;
                let version = field.version.ok_or("a read needs `version` (null: it found no row)")?;
                let seen = state(version, field.deleted_by, "deleted_by")?;
                Ok(Op::Read { item, seen, value: field.value.clone() })
            }
            "write" => {
                let item = self.required_key(table, field)?;
                let over = field.over.ok_or("a write needs `over` (the version overwritten; null: an insert)")?;
                if field.version.flatten().is_some_and(|version| version != txn) {
                    return Err(format!("a write's `version` is the transaction that writes, {txn}"));
                }
                let over = state(over, field.after, "after")?;
                let applied = match (field.commutes, field.omitted) {
                    (false, false) => Applied::InOrder,
                    (true, false) => Applied::Commuting,
                    (false, true) => Applied::Omitted,
                    (true, true) => return Err("a write that was `omitted` is none that `commutes`".to_owned()),
                };
                let delete = field.delete;
                if applied != Applied::InOrder && (delete || over.is_absent()) {
                    let what = if field.commutes { "`commutes`" } else { "was `omitted`" };
                    return Err(format!("a write that {what} changes a row: it is no insert, and no delete"));
                }
                Ok(Op::Write { item, over, delete, applied, value: field.value.clone() })
            }
            "scan" => self.intern_scan(table, field),
            other => Err(format!("unknown operation `{}`: expected read, write or scan", short(other))),
        }
    }

    fn intern_scan(&mut self, table: TableId, field: &OpField<'_>) -> Result<Op, String> {
        let low = field.low.as_ref().ok_or("a scan needs `low` (null: from the first key)")?;
        let high = field.high.as_ref().ok_or("a scan needs `high` (null: to the last key)")?;
        let seen = field.seen.as_ref().ok_or("a scan needs `seen`, a list of pairs of key and version")?;
        let mut item = |key: &Text<'_>| self.item(table, &key.0);
        let (low, high) = (low.as_ref().map(&mut item), high.as_ref().map(&mut item));
        let seen = seen.iter().map(|(key, version)| (item(key), *version)).collect();
        let gone = field.gone.iter().map(|(key, deleter)| (item(key), *deleter)).collect();
        Ok(Op::Scan(Box::new(Scan { table, low, high, seen, gone })))
    }

    fn required_key(&mut self, table: TableId, field: &OpField<'_>) -> Result<ItemId, String> {
        let key = field.key.as_ref().ok_or_else(|| format!("a {} needs `key`, a string", short(&field.op)))?;
        Ok(self.item(table, &key.0))
    }

    fn op_field(&self, txn: u64, op: &Op) -> OpField<'_> {
        let text = |item: ItemId| Text(Cow::Borrowed(self.item_key(item)));
        let table = |item: ItemId| Cow::Borrowed(self.table_name(self.item_table(item)));
        match op {
            Op::Read { item, seen, value } => {
                let (version, deleted_by) = state_fields(*seen);
                let (table, key, value) = (table(*item), Some(text(*item)), value.clone());
                OpField {
                    op: "read".into(),
                    table,
                    key,
                    version: Some(version),
                    deleted_by,
                    value,
                    ..OpField::default()
                }
            }
            Op::Write { item, over, delete, applied, value } => {
                let (over, after) = state_fields(*over);
                OpField {
                    op: "write".into(),
                    table: table(*item),
                    key: Some(text(*item)),
                    version: Some(Some(txn)),
                    over: Some(over),
                    after,
                    delete: *delete,
                    commutes: *applied == Applied::Commuting,
                    omitted: *applied == Applied::Omitted,
                    value: value.clone(),
                    ..OpField::default()
                }
            }
            Op::Scan(scan) => {
                let pairs = |list: &[(ItemId, u64)]| list.iter().map(|&(item, by)| (text(item), by)).collect();
                let table = Cow::Borrowed(self.table_name(scan.table));
                let (low, high) = (Some(scan.low.map(text)), Some(scan.high.map(text)));
                let (seen, gone) = (Some(pairs(&scan.seen)), pairs(&scan.gone));
                OpField { op: "scan".into(), table, low, high, seen, gone, ..OpField::default() }
            }
        }
    }
}

/// The state that a version and the name of a deleter say.
fn state(version: Option<u64>, deleter: Option<u64>, field: &str) -> Result<State, String> {
    match (version, deleter) {
        (Some(_), Some(_)) => Err(format!("`{field}` says why there was no row, but there was one")),
        (Some(version), None) => Ok(State::Version(version)),
        (None, Some(deleter)) => Ok(State::deleted_by(deleter)),
        (None, None) => Ok(State::Absent),
    }
}

fn state_fields(state: State) -> (Option<u64>, Option<u64>) {
    match state {
        State::Version(version) => (Some(version), None),
        State::DeletedBy(deleter) => (None, Some(deleter)),
        State::NeverExisted => (None, Some(0)),
        State::Absent => (None, None),
    }
}

/// What a message quotes from a file, cut where it gets long.
pub(crate) fn short(text: &str) -> Cow<'_, str> {
    const CHARACTERS_MAX: usize = 120;
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

fn syntax_message(error: &serde_json::Error) -> String {
    // Every line is a document of its own, so the line in the message is always 1.
    let text = error.to_string();
    let reason = short(text.rsplit_once(" at line ").map_or(text.as_str(), |(reason, _)| reason));
    if error.is_eof() {
        let column = error.column();
        format!("the line ends at column {column} in the midst of a transaction: is the file truncated? ({reason})")
    } else {
        let example = r#"{"txn":7,"worker":0,"ops":[...]}"#;
        format!("{reason} (column {}); expected a transaction such as {example}", error.column())
    }
}
