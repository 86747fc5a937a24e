//! The parameters of a workload file, as options.

use std::collections::BTreeMap;
use std::sync::Arc;

use contend_model::{OptionError, OptionSpec, OptionValue, Options};

use super::expression::Writer;
use super::source::{Amount, Parameters};
use super::{WorkloadFile, compile, interned};

/// The values that a parameter may have, in words.
pub(super) const WHOLE: &str = "a whole number from 0 to 9e15 (k, M, G, 1e6 allowed)";
const WHOLE_MAX: u64 = 9_000_000_000_000_000;

/// The parameters of a workload file, as options.
#[derive(Clone, Debug, Default)]
pub struct FileOptions {
    pub(super) file: Option<Arc<WorkloadFile>>,
    pub(super) given: BTreeMap<String, f64>,
    /// Whether the tables are small, for verified runs.
    pub(super) is_verified: bool,
}

impl FileOptions {
    pub(super) fn file(&self) -> &Arc<WorkloadFile> {
        self.file.as_ref().expect("the options of a file, as the registry gives them")
    }

    /// Returns the values of all parameters.
    pub(super) fn parameters(&self) -> Result<Parameters, String> {
        let source = &self.file().source;
        let mut parameters = Parameters::default();
        if self.is_verified {
            for (name, amount) in &source.verify {
                if !source.parameters.contains_key(name) {
                    let valid: Vec<&str> = source.parameters.keys().map(String::as_str).collect();
                    return Err(format!("[verify]: unknown parameter '{name}'; valid: {}", valid.join(", ")));
                }
                let value = match amount {
                    Amount::Whole(value) => *value as f64,
                    Amount::Fraction(value) => *value,
                    Amount::Text(_) => return Err(format!("[verify]: {name} is a text; valid: a number")),
                };
                // A verified run is never larger than the user's.
                parameters.set(name, self.given.get(name).map_or(value, |given| given.min(value)));
            }
        }
        let mut open = Vec::new();
        for name in source.parameters.keys() {
            self.parameter(name, &mut parameters, &mut open)?;
        }
        Ok(parameters)
    }

    fn parameter(&self, name: &str, known: &mut Parameters, open: &mut Vec<String>) -> Result<(), String> {
        if known.get(name).is_some() {
            return Ok(());
        }
        if open.iter().any(|other| other == name) {
            return Err(format!("[parameters]: {} refers to itself", open.join(", which refers to ")));
        }
        let value = match (self.given.get(name), &self.file().source.parameters[name]) {
            (Some(&given), _) => given,
            (None, Amount::Whole(value)) => *value as f64,
            (None, Amount::Fraction(value)) => *value,
            (None, Amount::Text(text)) => {
                open.push(name.into());
                let others: Vec<&String> = self.file().source.parameters.keys().collect();
                for other in others {
                    let is_named = text.split(':').skip(1).any(|rest| {
                        rest.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').next()
                            == Some(other)
                    });
                    if is_named {
                        self.parameter(other, known, open)?;
                    }
                }
                open.pop();
                let mut writer = Writer::new(&[], &[], known);
                let value = compile::expression_of(text, writer.at).and_then(|of| writer.fixed(&of, "a parameter"));
                value.map_err(|error| error.in_part(&format!("[parameters] {name}")))? as f64
            }
        };
        if !value.is_finite() || value.abs() > WHOLE_MAX as f64 {
            return Err(format!("[parameters]: {name} is {value}; valid: up to 9e15"));
        }
        known.set(name, value);
        Ok(())
    }
}

impl Options for FileOptions {
    /// The options are those of a file, which no type knows: see [`WorkloadFile::specs`].
    fn specs() -> Vec<OptionSpec> {
        Vec::new()
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), OptionError> {
        let all = self.values();
        let Some((known, old)) = all.iter().find(|(known, _)| *known == name) else {
            let valid = all.iter().map(|(name, _)| *name).collect();
            return Err(OptionError::UnknownName { name: name.into(), valid });
        };
        let own = name.split_once('.').map_or(name, |(_, own)| own).to_owned();
        let is_fraction =
            matches!(self.file().source.parameters.get(&own), Some(Amount::Fraction(_))) || old.contains('.');
        let (parsed, range) = if is_fraction {
            (value.parse::<f64>().ok().filter(|value| value.is_finite()), "a number")
        } else {
            (u64::parse(value, &(0..=WHOLE_MAX)).map(|value| value as f64), WHOLE)
        };
        let Some(parsed) = parsed else {
            return Err(OptionError::InvalidValue { name: known, value: value.into(), range: range.into() });
        };
        self.given.insert(own, parsed);
        Ok(())
    }

    fn values(&self) -> Vec<(&'static str, String)> {
        let Some(file) = &self.file else { return Vec::new() };
        let parameters = self.parameters().unwrap_or_default();
        let shown = |name: &str| {
            let value = parameters.get(name).unwrap_or(0.0);
            let is_fraction = matches!(file.source.parameters.get(name), Some(Amount::Fraction(_)));
            let shown = if is_fraction && value.fract() == 0.0 { format!("{value:.1}") } else { value.to_string() };
            (interned(&format!("{}.{name}", file.source.name)), shown)
        };
        file.source.parameters.keys().map(|name| shown(name)).collect()
    }
}
