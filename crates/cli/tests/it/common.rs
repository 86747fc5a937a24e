//! Functions that the tests of the binary share.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Runs the binary in this folder, and returns its output.
pub(crate) fn contend(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_contend")).args(arguments).current_dir(folder).output().expect("the binary runs")
}

/// Runs the binary in this folder, with this on its stdin.
pub(crate) fn contend_with_input(folder: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contend"));
    let command = command.args(arguments).current_dir(folder);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary runs");
    // It need not read all.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("it ends")
}

/// Runs the binary in this folder with a reader of its stdout that has gone, and returns its end
/// and what it printed on stderr.
pub(crate) fn contend_without_reader(folder: &Path, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_contend"))
        .args(arguments)
        .current_dir(folder)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    drop(child.stdout.take());
    child.wait_with_output().expect("it ends")
}

/// Returns printed bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// Returns the validator of a schema in `docs`.
pub(crate) fn validator(name: &str) -> jsonschema::Validator {
    let path = format!("{}/../../docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR"));
    let schema = std::fs::read_to_string(path).expect("a schema");
    jsonschema::validator_for(&serde_json::from_str(&schema).expect("JSON")).expect("a JSON schema")
}

/// Asserts that a file keeps its schema, and that the schema refuses another file.
#[track_caller]
pub(crate) fn keeps_schema(name: &str, json: &str) {
    let validator = validator(name);
    let mut file: serde_json::Value = serde_json::from_str(json).expect("JSON");
    let wrong: Vec<String> = validator.iter_errors(&file).map(|error| error.to_string()).collect();
    assert_eq!(wrong, Vec::<String>::new());
    file["schema_version"] = 1.into();
    assert!(!validator.is_valid(&file), "a version is a text");
}

/// Asserts that the binary refuses these arguments: status 2, a message with these parts, nothing
/// on stdout, no panic, and no file left behind.
#[track_caller]
pub(crate) fn refuses(arguments: &[&str], parts: &[&str]) {
    let folder = TempDir::new().expect("a folder");
    let output = contend(folder.path(), arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}{}", text(&output.stdout));
    for part in parts {
        assert!(stderr.contains(part), "{arguments:?}: '{part}' is not in: {stderr}");
    }
    assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"), "{stderr}");
    assert!(output.stdout.is_empty(), "results are for runs that are: {}", text(&output.stdout));
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "{arguments:?} left files behind");
}

/// A sweep of one counter on a chip: one assertion holds, one fails.
pub(crate) const TINY: &str = r#"
id = "tiny"
title = "One counter"
question = "q"
source = "s"
[run]
micro = "increments"
machine = "abyss"
seconds = 1e-5
warmup = 0.0
windows = 1
[[axis]]
name = "threads"
values = [1, 2, 4]
[[series]]
name = "add"
[[assertion]]
id = "tiny.1"
paper = "one is fastest"
holds = 'T("add",1) > T("add",4)'
[[assertion]]
id = "tiny.2"
paper = "two are slower than one alone"
holds = 'T("add",2) > 2*T("add",1)'
"#;
