//! Versions of the files that this program writes, and the versions that it reads.
//!
//! A version is `MAJOR.MINOR`. A new field raises the second number, and a field that changes its
//! meaning raises the first. A reader takes files of its own MAJOR and of the one before. It skips
//! fields of a newer MINOR, and says so. It refuses a newer MAJOR.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::advise::Advice;
use crate::experiment::PointFile;
use crate::result::ResultFile;
use crate::saturate::SaturationFile;

/// The version of a schema. In a file it is a text; former result files have MAJOR alone, as a
/// number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, JsonSchema)]
#[schemars(with = "String")]
pub struct Version {
    /// Rises when a field changes its meaning.
    pub major: u32,
    /// Rises when there is a new field.
    pub minor: u32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = ();

    fn from_str(text: &str) -> Result<Version, ()> {
        let (major, minor) = text.split_once('.').ok_or(())?;
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map_err(drop),
            false => Err(()),
        };
        Ok(Version { major: number(major)?, minor: number(minor)? })
    }
}

impl Version {
    /// Returns the version that a field of a file has.
    fn of(field: &Value) -> Option<Version> {
        match field {
            Value::String(text) => text.parse().ok(),
            _ => Some(Version { major: u32::try_from(field.as_u64()?).ok()?, minor: 0 }),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Version::of(&value)
            .ok_or_else(|| serde::de::Error::custom(format!("{value} is no version; valid: MAJOR.MINOR")))
    }
}

/// Returns the JSON schemas of the files that programs read: for each the name of its file in
/// `docs`, and its text.
pub fn documents() -> [(&'static str, String); 5] {
    let pretty = |schema: schemars::Schema| serde_json::to_string_pretty(&schema).expect("plain data") + "\n";
    [
        ("result.schema.json", pretty(schemars::schema_for!(ResultFile))),
        ("advice.schema.json", pretty(schemars::schema_for!(Advice))),
        ("saturation.schema.json", pretty(schemars::schema_for!(SaturationFile))),
        ("point.schema.json", pretty(schemars::schema_for!(PointFile))),
        ("history.schema.json", pretty(contend_history::line_schema())),
    ]
}

/// Checks the field `schema_version` of a file, which is a [`Version`]. `what` names
/// the kind of file. Returns a note for the user if the file has a newer MINOR.
///
/// # Errors
/// The file has no version, or one that can't be read; the message names both versions.
pub fn check(what: &str, file: &Value, current: Version) -> Result<Option<String>, String> {
    let found = file.get("schema_version").and_then(Version::of);
    let oldest = current.major.saturating_sub(1).max(1);
    match found {
        None => Err(format!("it has no schema_version of the form MAJOR.MINOR, as {what} has")),
        Some(version) if version.major > current.major => Err(format!(
            "its schema_version is {version}, of a newer contend; valid: {oldest} to {} as the first number",
            current.major
        )),
        Some(version) if version.major < oldest => Err(format!(
            "its schema_version is {version}, of a former contend; valid: {oldest} to {} as the first number",
            current.major
        )),
        Some(version) if version.major == current.major && version.minor > current.minor => Ok(Some(format!(
            "schema_version {version} of {what} is newer than {current}, which this contend knows; new fields are left out"
        ))),
        Some(_) => Ok(None),
    }
}

/// Whether a text of this JSON has control characters, which a terminal takes as commands, either
/// as they are or escaped. No run writes any.
pub fn has_control_characters(json: &str) -> bool {
    let is_command = |number: u32| char::from_u32(number).is_some_and(|c| c.is_control() && !c.is_whitespace());
    let escaped = json.match_indices("\\u").filter_map(|(at, part)| json.get(at + part.len()..at + part.len() + 4));
    let mut escaped = escaped.filter_map(|digits| u32::from_str_radix(digits, 16).ok());
    json.chars().any(|c| is_command(u32::from(c))) || escaped.any(is_command)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CURRENT: Version = Version { major: 3, minor: 2 };

    #[test]
    fn a_newer_minor_is_noted_and_a_newer_major_is_refused() {
        let of = |version: Value| check("a result", &serde_json::json!({ "schema_version": version }), CURRENT);
        for read in ["3.2", "3.0", "2.9"] {
            assert_eq!(of(read.into()), Ok(None), "{read}");
        }
        let note = of("3.3".into()).expect("it is read").expect("with a note");
        assert!(note.contains("3.3 of a result is newer than 3.2"), "{note}");
        for (refused, part) in [("4.0", "newer contend; valid: 2 to 3"), ("1.9", "former contend"), ("0.1", "former")] {
            assert!(of(refused.into()).expect_err("refused").contains(part), "{refused}");
        }
        for wrong in ["", "3", "3.", ".3", "+3.1", "3.1.1", "3.99999999999"] {
            assert!(of(wrong.into()).expect_err("no version").contains("MAJOR.MINOR"), "{wrong}");
        }
        assert_eq!(of(2.into()), Ok(None), "a former file has a number");
        assert!(of(4.into()).is_err() && of(Value::from(3.1)).is_err() && of(Value::Null).is_err());
        assert!(check("a result", &Value::Null, CURRENT).is_err());
    }
}
