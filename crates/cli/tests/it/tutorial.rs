//! The tutorial: each command of docs/tutorial.md runs, and prints what stands there.

use std::os::unix::fs::symlink;
use std::path::Path;

use tempfile::TempDir;

use crate::common::{contend, text};

const TUTORIAL: &str = include_str!("../../../../docs/tutorial.md");

/// A block of the document: its language, and its lines.
fn blocks(document: &str) -> Vec<(&str, Vec<&str>)> {
    let mut blocks = Vec::new();
    let mut open: Option<(&str, Vec<&str>)> = None;
    for line in document.lines() {
        match (line.strip_prefix("```"), open.take()) {
            (Some(language), None) => open = Some((language, Vec::new())),
            (Some(_), Some(block)) => blocks.push(block),
            (None, Some((language, mut lines))) => {
                lines.push(line);
                open = Some((language, lines));
            }
            (None, None) => {}
        }
    }
    blocks
}

/// Returns the words of a line without figures, units and the lines of tables.
fn words(line: &str) -> Vec<&str> {
    let units = ["k", "M", "G", "s", "ms", "µs", "ns", "%", "KiB", "MiB", "GiB", "B/record", "x", "-", "..."];
    let is_figure =
        |word: &str| word.contains(|c: char| c.is_ascii_digit()) && !word.contains("2pl") && !word.contains('=');
    let is_unit = |word: &str| units.contains(&word.trim_end_matches([',', ';', ':']));
    let is_word = |word: &&str| !is_figure(word) && !is_unit(word) && !word.starts_with(['─', '═']);
    line.split_whitespace().filter(is_word).collect()
}

/// Whether the words stand in this order in one of the lines.
fn is_printed(expected: &str, output: &str) -> bool {
    let expected = words(expected);
    output.lines().any(|line| {
        let mut printed = words(line).into_iter();
        expected.iter().all(|word| printed.any(|other| other == *word))
    })
}

#[test]
fn the_tutorial_does_what_it_says() {
    let folder = TempDir::new().expect("a folder");
    let workloads = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../workloads");
    symlink(workloads, folder.path().join("workloads")).expect("a link");
    let mut commands = 0;
    let mut printed: Option<(&str, String)> = None;
    for (language, lines) in blocks(TUTORIAL) {
        match (language, printed.take()) {
            ("sh", None) => {
                for line in lines {
                    let arguments: Vec<&str> = line.split_whitespace().collect();
                    assert_eq!(arguments.first(), Some(&"contend"), "{line}");
                    let output = contend(folder.path(), &arguments[1..]);
                    let is_mistake = line.ends_with("mine.toml");
                    assert_eq!(
                        output.status.code(),
                        Some(if is_mistake { 2 } else { 0 }),
                        "{line}: {}",
                        text(&output.stderr)
                    );
                    printed = Some((line, format!("{}{}", text(&output.stdout), text(&output.stderr))));
                    commands += 1;
                }
            }
            ("text", Some((command, output))) => {
                for line in lines.into_iter().filter(|line| *line != "...") {
                    // A machine that is busy may not keep up with a rate, which is true as well.
                    let is_too_slow = line.contains("keeps up") && output.contains("SATURATED");
                    assert!(is_printed(line, &output) || is_too_slow, "{command} does not print '{line}':\n{output}");
                }
            }
            ("text", None) => {}
            (other, printed) => panic!("a block of '{other}' after {printed:?}"),
        }
    }
    assert_eq!(commands, 8, "each of its commands was run");
}

#[test]
fn figures_may_differ_and_words_may_not() {
    assert!(is_printed(
        "silo 207.2 k - 0.9 % serializable (20 transactions)",
        "│ silo  1 M  - 3 %  x serializable (9 transactions)"
    ));
    assert!(!is_printed("silo keeps up", "silo does not keep up\nmvto keeps up"));
    assert_eq!(blocks("a\n```sh\nb\nc\n```\n```text\n```\n").len(), 2);
}
