//! The rules, held against the repository.
//!
//! What a rule finds still is counted in [`LEFT`]. A number there may only become smaller: a test
//! fails when there is more, and when there is less. `cargo run -p contend-tidy --example findings`
//! prints all that is left.

use contend_tidy::{ATOMICS, BETWEEN_FAMILIES, Finding, INTERNAL_VARIABLES, Tree};

/// The findings that are left of each rule.
const LEFT: [(&str, usize); 10] = [
    ("siblings", 0),
    ("headers", 0),
    ("facade", 0),
    ("environment", 0),
    ("test binaries", 0),
    ("words", 178),
    ("columns", 475),
    ("orderings", 35),
    ("configuration", 4),
    ("file lengths", 3),
];

/// Functions of more than 70 lines, with the most lines that each may have. None is added, and none
/// grows.
const LONG_FUNCTIONS: [(&str, &str, usize); 11] = [
    ("crates/cli/src/cmd/crash.rs", "run", 80),
    ("crates/engine/src/sets/logged.rs", "count_write", 73),
    ("crates/lab/src/experiment/sweep.rs", "sweep", 77),
    ("crates/proof/src/crash.rs", "live", 148),
    ("crates/proof/src/explore.rs", "run", 97),
    ("crates/proof/src/kill/child.rs", "live", 73),
    ("crates/runner/src/host_chip.rs", "measure", 71),
    ("crates/runner/src/session/threads.rs", "run", 75),
    ("crates/workloads/src/litmus.rs", "programs", 94),
    ("crates/workloads/src/tpcc/new_order.rs", "new_order", 84),
    ("crates/workloads/src/ycsb.rs", "execute", 71),
];

#[track_caller]
fn hold(rule: &str, findings: Vec<Finding>) {
    let (_, left) = *LEFT.iter().find(|(name, _)| *name == rule).expect("a rule of the list");
    let shown: Vec<String> = findings.iter().map(Finding::to_string).collect();
    let shown = shown.join("\n");
    let count = findings.len();
    assert!(
        count <= left,
        "{rule}: {count} findings, and at most {left} may be left:\n{shown}\n{rule}: {count} > {left}"
    );
    assert!(
        count == left,
        "{rule}: {count} findings are left; lower the number in LEFT from {left} to {count}:\n{shown}"
    );
}

#[test]
fn the_tree_is_read() {
    let tree = Tree::of_repository();
    let counts = (tree.rust.len(), tree.documents.len(), tree.scripts.len());
    assert!(counts.0 > 250 && counts.1 > 5 && counts.2 >= 3, "{counts:?}");
    let lines: usize = tree.rust.iter().map(|source| source.lines.len()).sum();
    assert!(lines > 50_000, "{lines}");
}

#[test]
fn protocols_import_no_sibling_and_families_no_family() {
    hold("siblings", contend_tidy::siblings(&Tree::of_repository(), &BETWEEN_FAMILIES));
}

#[test]
fn headers_of_protocols_have_their_headings_in_order() {
    hold("headers", contend_tidy::headers(&Tree::of_repository()));
}

#[test]
fn the_facade_exports_every_registered_protocol() {
    hold("facade", contend_tidy::facade(&Tree::of_repository()));
}

#[test]
fn variables_of_the_environment_are_listed() {
    hold("environment", contend_tidy::environment(&Tree::of_repository(), &INTERNAL_VARIABLES));
}

#[test]
fn a_crate_has_one_test_binary_or_says_why_not() {
    hold("test binaries", contend_tidy::test_binaries(&Tree::of_repository()));
}

#[test]
fn sentences_have_a_noun_as_their_subject() {
    hold("words", contend_tidy::words(&Tree::of_repository()));
}

#[test]
fn prose_has_at_most_100_columns() {
    hold("columns", contend_tidy::columns(&Tree::of_repository()));
}

#[test]
fn each_atomic_ordering_is_argued() {
    hold("orderings", contend_tidy::orderings(&Tree::of_repository()));
}

#[test]
fn code_depends_on_platforms_tests_and_features_only() {
    hold("configuration", contend_tidy::configuration(&Tree::of_repository()));
}

#[test]
fn files_have_at_most_800_lines() {
    hold("file lengths", contend_tidy::lengths(&Tree::of_repository()));
}

#[test]
fn atomics_of_the_standard_library_stand_where_they_are_listed() {
    let findings = contend_tidy::atomics(&Tree::of_repository(), &ATOMICS);
    let shown: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{}", shown.join("\n"));
}

#[test]
fn functions_have_at_most_70_lines() {
    let mut wrong = Vec::new();
    let long = contend_tidy::functions(&Tree::of_repository(), 70);
    for function in &long {
        let (path, name, lines) = (&function.path, &function.name, function.lines);
        let place = format!("{path}:{}: `{name}` has {lines} lines", function.line);
        let listed = LONG_FUNCTIONS.iter().find(|(listed, listed_name, _)| listed == path && listed_name == name);
        match listed {
            None => wrong.push(format!("{place}, more than 70")),
            Some((_, _, most)) if lines > *most => wrong.push(format!("{place}, more than its {most}")),
            Some((_, _, most)) if lines < *most => wrong.push(format!("{place}: lower its {most} in the list")),
            Some(_) => {}
        }
    }
    for (path, name, _) in LONG_FUNCTIONS {
        if !long.iter().any(|function| function.path == path && function.name == name) {
            wrong.push(format!("{path}: `{name}` is listed, and not longer than 70 lines any more"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
