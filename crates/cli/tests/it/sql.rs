//! `contend sql` on SQLite, which needs no server.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;

use crate::common::{contend, text};

/// A run in a moment.
const SHORT: [&str; 8] = ["--seconds", "0.05", "--clients", "2", "--verify-transactions", "40", "--url", "sqlite:t.db"];

/// Runs the counter's file in this folder.
fn counter(folder: &Path, arguments: &[&str]) -> Output {
    let file = include_str!("../../../../workloads/counter.toml");
    std::fs::write(folder.join("counter.toml"), file).expect("written");
    contend(folder, &[&["sql", "counter.toml"], &SHORT[..], arguments].concat())
}

/// A history that can't be written ends neither the run nor the other files.
#[test]
fn a_history_that_can_not_be_written_hides_no_figures() {
    let folder = TempDir::new().expect("a folder");
    std::fs::create_dir_all(folder.path().join("out/history-serializable.jsonl")).expect("a folder");
    let output = counter(folder.path(), &["--out", "out", "--json", "beside.json"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{stdout}{stderr}");
    assert_eq!(stderr, "error: can't write out/history-serializable.jsonl: it is a folder\n");
    assert!(stdout.contains("serializable") && stdout.contains("nothing in 40 transactions"), "{stdout}");
    for name in ["out/report.html", "out/results.json", "beside.json"] {
        assert!(folder.path().join(name).is_file(), "{name} is not there");
    }
}
