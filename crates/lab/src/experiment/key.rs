//! What decides the measurement of a point, and the hash that names its file.

use std::sync::OnceLock;

use contend_machine::available_cores;
use contend_model::counted;
use contend_runner::machine::HOST;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use xxhash_rust::xxh3::xxh3_128;

use super::Point;
use crate::environment;
use crate::microbench::Microbench;

/// The version of how points are measured. It rises when the same configuration is measured in
/// another way: all points are measured again then.
pub const POINT_VERSION: u32 = 1;

/// All that decides the measurement of a point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PointKey {
    /// [`POINT_VERSION`].
    version: u32,
    /// The micro-benchmark, if it is one.
    micro: Option<Microbench>,
    /// The validated configuration. Names that decide nothing are left out: those of the machine,
    /// of its chip, and of a workload file. The chip's parameters and the file's text are there.
    config: Value,
    /// The machine, if figures depend on it. Those of a simulated chip don't.
    pub(super) machine: Option<Fingerprint>,
}

/// The properties of a machine without which its figures can't be compared with others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct Fingerprint {
    /// The name that the processor reports.
    pub processor: String,
    /// Cores that the process may use.
    pub cores: usize,
    /// The kernel's major version.
    pub kernel: String,
}

impl Fingerprint {
    /// Returns the fingerprint of this machine.
    pub fn here() -> Fingerprint {
        static HERE: OnceLock<Fingerprint> = OnceLock::new();
        let read = || Fingerprint {
            processor: environment::processor(),
            cores: available_cores().len(),
            kernel: environment::kernel().split('.').next().unwrap_or_default().to_owned(),
        };
        HERE.get_or_init(read).clone()
    }
}

impl std::fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {}, kernel {}", self.processor, counted(self.cores, "core"), self.kernel)
    }
}

/// Returns whether the same point has the same figures on every machine. A chip that is fitted to
/// this machine is measured anew in each process.
pub(super) fn is_reproducible(point: &Point) -> bool {
    let config = point.config();
    config.chip.is_some() && config.machine.split(':').next() != Some(HOST)
}

impl PointKey {
    /// Returns the key of a point that is measured on this machine.
    pub fn of(point: &Point) -> PointKey {
        let mut config = serde_json::to_value(point.config()).expect("plain data");
        let fields = config.as_object_mut().expect("a configuration has fields");
        if is_reproducible(point) {
            fields.remove("machine");
        } else {
            // The measured parameters of a chip that is like this machine differ each time.
            fields.remove("chip");
        }
        if let Some(chip) = fields.get_mut("chip").and_then(Value::as_object_mut) {
            ["name", "summary", "source"].iter().for_each(|name| drop(chip.remove(*name)));
        }
        if fields.contains_key("workload_text") {
            fields.remove("workload");
        }
        let machine = (!is_reproducible(point)).then(Fingerprint::here);
        PointKey { version: POINT_VERSION, micro: point.micro(), config, machine }
    }

    /// Returns the hash, as 32 hexadecimal digits: XXH3-128 of the canonical JSON, which has sorted
    /// fields and no blanks.
    pub fn hash(&self) -> String {
        let mut value = serde_json::to_value(self).expect("plain data");
        value.sort_all_objects();
        format!("{:032x}", xxh3_128(value.to_string().as_bytes()))
    }

    /// Returns the seed.
    pub(super) fn seed(&self) -> u64 {
        self.config["seed"].as_u64().unwrap_or(0)
    }

    /// Returns the hash of the same point on any machine.
    pub(super) fn anywhere(&self) -> String {
        PointKey { machine: None, ..self.clone() }.hash()
    }

    /// Returns the hash of the same point on any machine and from any seed.
    pub(super) fn family(&self) -> String {
        let mut key = PointKey { machine: None, ..self.clone() };
        key.config["seed"] = Value::Null;
        key.hash()
    }
}

/// Whether this is the hash of a point.
pub fn is_hash(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::super::Experiment;
    use super::*;

    const TEXT: &str = r#"
id = "one"
title = "t"
question = "q"
source = "s"
[run]
workload = "ycsb"
machine = "abyss:4"
[[axis]]
name = "ycsb.theta"
values = [0.5]
[[series]]
name = "Silo"
protocol = "silo"
"#;

    fn key(text: &str) -> PointKey {
        let experiment = Experiment::from_toml("one.toml", text).expect("valid");
        PointKey::of(&experiment.points().expect("points")[0])
    }

    /// The hash is part of the file's format: a change of it loses all points, so it must be meant.
    #[test]
    fn what_decides_a_point_changes_its_hash_and_nothing_else_does() {
        let hash = key(TEXT).hash();
        assert!(is_hash(&hash), "{hash}");
        for (from, to) in [
            ("id = \"one\"", "id = \"two\""),
            ("title = \"t\"", "title = \"u\""),
            ("name = \"Silo\"", "name = \"another\""),
            ("machine = \"abyss:4\"", "machine = \"abyss\"\nthreads = 4"),
            ("protocol = \"silo\"", "protocol = \"silo\"\nextra = true"),
        ] {
            assert_eq!(key(&TEXT.replace(from, to)).hash(), hash, "{to}");
        }
        for (from, to) in [
            ("abyss:4", "abyss:5"),
            ("abyss:4", "xeon-8176x4:4"),
            ("[[axis]]", "[run.set]\n\"chip.work\" = \"2\"\n[[axis]]"),
            ("values = [0.5]", "values = [0.6]"),
            ("protocol = \"silo\"", "protocol = \"tictoc\""),
            ("[[axis]]", "seed = 43\n[[axis]]"),
            ("[[axis]]", "verify = true\n[[axis]]"),
            ("[[axis]]", "windows = 7\n[[axis]]"),
            ("abyss:4", "native"),
        ] {
            assert_ne!(key(&TEXT.replacen(from, to, 1)).hash(), hash, "{to}");
        }
    }

    #[test]
    fn a_point_of_this_machine_has_its_fingerprint() {
        assert_eq!(key(TEXT).machine, None);
        let native = key(&TEXT.replace("abyss:4", "native"));
        assert_eq!(native.machine, Some(Fingerprint::here()));
        let cores = Fingerprint::here().cores + 1;
        let elsewhere = PointKey { machine: Some(Fingerprint { cores, ..Fingerprint::here() }), ..native.clone() };
        assert_ne!(elsewhere.hash(), native.hash());
        assert_eq!(elsewhere.anywhere(), native.anywhere());
    }

    #[test]
    fn the_fields_of_canonical_json_are_sorted() {
        let mut value: Value = serde_json::from_str(r#"{"b":{"d":1,"c":0.1},"a":[]}"#).expect("JSON");
        value.sort_all_objects();
        assert_eq!(value.to_string(), r#"{"a":[],"b":{"c":0.1,"d":1}}"#);
    }
}
