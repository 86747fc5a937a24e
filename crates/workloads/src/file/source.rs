//! A workload file as it is written, in TOML.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::workload::ThinkTime;

/// The largest file, in bytes.
pub(super) const BYTES_MAX: usize = 1 << 20;

/// A file, read but not compiled.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Source {
    /// The version of the format.
    #[serde(default = "first_version")]
    pub(super) version: u32,
    pub(super) name: String,
    #[serde(default)]
    pub(super) summary: String,
    pub(super) schema: String,
    #[serde(default)]
    pub(super) rows: BTreeMap<String, Amount>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, Amount>,
    #[serde(default)]
    pub(super) fill: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) groups: BTreeMap<String, Vec<Vec<String>>>,
    #[serde(default)]
    pub(super) partition: Option<Partition>,
    #[serde(rename = "transaction", default)]
    pub(super) transactions: Vec<TransactionSource>,
    #[serde(rename = "invariant", default)]
    pub(super) invariants: Vec<InvariantSource>,
    #[serde(default)]
    pub(super) verify: BTreeMap<String, Amount>,
}

fn first_version() -> u32 {
    1
}

/// A number, or an expression of parameters.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Amount {
    Whole(i64),
    Fraction(f64),
    Text(String),
}

/// The partitions of the data.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Partition {
    /// The first column of the keys of the tables that are partitioned.
    pub(super) by: String,
    /// The number of partitions.
    pub(super) count: Amount,
}

/// A type of transactions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TransactionSource {
    pub(super) name: String,
    #[serde(default = "one")]
    pub(super) weight: f64,
    #[serde(default)]
    pub(super) read_only: bool,
    /// The time that a client thinks after it.
    #[serde(default)]
    pub(super) think: Option<Think>,
    pub(super) script: String,
}

/// A time between transactions: `exponential 2 ms`, or `constant 500 us`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Think(pub(super) ThinkTime);

/// The longest mean time between transactions, in microseconds.
const THINK_MAX_US: f64 = 1e9;

impl TryFrom<String> for Think {
    type Error = String;

    fn try_from(text: String) -> Result<Think, String> {
        let wrong = || {
            format!(
                "think is '{text}'; valid: exponential or constant, a number above 0 up to 1000 s, and us, ms or s, \
                 as in 'exponential 2 ms'"
            )
        };
        let words: Vec<&str> = text.split_whitespace().collect();
        let [distribution, amount, unit] = words[..] else { return Err(wrong()) };
        let unit = match unit {
            "us" => 1.0,
            "ms" => 1e3,
            "s" => 1e6,
            _ => return Err(wrong()),
        };
        let microseconds = amount.parse::<f64>().map_err(|_| wrong())? * unit;
        if !(microseconds > 0.0 && microseconds <= THINK_MAX_US) {
            return Err(wrong());
        }
        match distribution {
            "constant" => Ok(Think(ThinkTime::Constant(microseconds))),
            "exponential" => Ok(Think(ThinkTime::Exponential(microseconds))),
            _ => Err(wrong()),
        }
    }
}

/// Returns the transaction that can't be read for this reason, as the beginning of a message. TOML
/// tells the line, and not whose it is.
fn transaction_of(text: &str, why: &str) -> Option<String> {
    let file: toml::Table = text.parse().ok()?;
    let wrong = |of: &&toml::Value| {
        TransactionSource::deserialize((*of).clone()).is_err_and(|error: toml::de::Error| error.message() == why)
    };
    let name = file.get("transaction")?.as_array()?.iter().find(wrong)?.get("name")?.as_str()?;
    Some(format!("transaction '{name}': "))
}

fn one() -> f64 {
    1.0
}

/// A condition on the tables after a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InvariantSource {
    pub(super) name: String,
    /// Two queries whose results are equal.
    #[serde(default)]
    pub(super) equal: Option<[String; 2]>,
    /// Two queries. The first has the larger result, or the same.
    #[serde(default)]
    pub(super) at_least: Option<[String; 2]>,
}

/// The values of a file's parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Parameters {
    values: BTreeMap<String, f64>,
}

impl Parameters {
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).copied()
    }

    pub(super) fn set(&mut self, name: &str, value: f64) {
        self.values.insert(name.to_owned(), value);
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.values.keys().map(String::as_str)
    }
}

impl Source {
    /// Reads a file.
    ///
    /// # Errors
    /// A sentence with the place of the first mistake.
    pub(super) fn read(text: &str) -> Result<Source, String> {
        if text.len() > BYTES_MAX {
            return Err(format!("the file has more than {BYTES_MAX} bytes; valid: up to {BYTES_MAX}"));
        }
        let source: Source = toml::from_str(text).map_err(|error| {
            let place = error.span().map(|span| {
                let before = &text[..span.start.min(text.len())];
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().map_or(1, |last| last.chars().count() + 1);
                format!("line {line}, column {column}: ")
            });
            let (place, of) = (place.unwrap_or_default(), transaction_of(text, error.message()).unwrap_or_default());
            format!("{place}{of}{}", error.message().replace('\n', " "))
        })?;
        source.check()?;
        Ok(source)
    }

    fn check(&self) -> Result<(), String> {
        if self.version != 1 {
            return Err(format!("version is {}; valid: 1", self.version));
        }
        let is_name = |name: &str| {
            let rest = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
            (1..=40).contains(&name.len())
                && name.starts_with(|first: char| first.is_ascii_alphabetic())
                && name.chars().all(rest)
        };
        const VALID: &str = "valid: a letter, then letters, digits, _ and -, 40 in all";
        if !is_name(&self.name) {
            return Err(format!("name is '{}'; {VALID}", self.name));
        }
        if let Some(name) =
            self.parameters.keys().find(|name| !is_name(name) || name.contains('-') || **name != name.to_lowercase())
        {
            return Err(format!("parameter '{name}'; valid: a small letter, then small letters, digits and _"));
        }
        if self.transactions.is_empty() {
            return Err("there is no [[transaction]]".into());
        }
        let mut names: Vec<&str> = Vec::new();
        for of in &self.transactions {
            if !is_name(&of.name) {
                return Err(format!("a transaction's name is '{}'; {VALID}", of.name));
            }
            if names.contains(&of.name.as_str()) {
                return Err(format!("two transactions are named '{}'", of.name));
            }
            if !(0.0..=1e12).contains(&of.weight) {
                return Err(format!("transaction '{}': weight is {}; valid: 0 to 1e12", of.name, of.weight));
            }
            names.push(&of.name);
        }
        if self.transactions.iter().all(|of| of.weight == 0.0) {
            return Err("all transactions have the weight 0".into());
        }
        if self.transactions.len() > 64 {
            return Err(format!("there are {} transactions; valid: up to 64", self.transactions.len()));
        }
        for invariant in &self.invariants {
            if invariant.equal.is_some() == invariant.at_least.is_some() {
                return Err(format!("invariant '{}' has to have either equal or at_least", invariant.name));
            }
        }
        Ok(())
    }
}
