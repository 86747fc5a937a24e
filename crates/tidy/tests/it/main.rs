//! The rules, held against the repository: each finds nothing. The necessary exceptions are listed
//! with their reasons in `src/exceptions.rs`.

use contend_tidy::{ATOMICS, BETWEEN_FAMILIES, Finding, INTERNAL_VARIABLES, OVER_PROTOCOLS, Tree};

#[track_caller]
fn hold(findings: Vec<Finding>) {
    let shown: Vec<String> = findings.iter().map(Finding::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), shown.join("\n"));
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
    hold(contend_tidy::siblings(&Tree::of_repository(), &BETWEEN_FAMILIES, &OVER_PROTOCOLS));
}

#[test]
fn headers_of_protocols_have_their_headings_in_order() {
    hold(contend_tidy::headers(&Tree::of_repository()));
}

#[test]
fn the_facade_exports_every_registered_protocol() {
    hold(contend_tidy::facade(&Tree::of_repository()));
}

#[test]
fn variables_of_the_environment_are_listed() {
    hold(contend_tidy::environment(&Tree::of_repository(), &INTERNAL_VARIABLES));
}

#[test]
fn a_crate_has_one_test_binary_or_says_why_not() {
    hold(contend_tidy::test_binaries(&Tree::of_repository()));
}

#[test]
fn sentences_have_a_noun_as_their_subject() {
    hold(contend_tidy::words(&Tree::of_repository()));
}

#[test]
fn prose_has_at_most_100_columns() {
    hold(contend_tidy::columns(&Tree::of_repository()));
}

#[test]
fn each_atomic_ordering_is_argued() {
    hold(contend_tidy::orderings(&Tree::of_repository()));
}

#[test]
fn code_depends_on_platforms_tests_and_features_only() {
    hold(contend_tidy::configuration(&Tree::of_repository()));
}

#[test]
fn files_have_at_most_800_lines() {
    hold(contend_tidy::lengths(&Tree::of_repository()));
}

#[test]
fn atomics_of_the_standard_library_stand_where_they_are_listed() {
    hold(contend_tidy::atomics(&Tree::of_repository(), &ATOMICS));
}

#[test]
fn functions_have_at_most_70_lines() {
    hold(contend_tidy::functions(&Tree::of_repository()));
}
