//! The shape of files and functions, where atomics and `cfg` stand, and that each ordering is
//! argued.

use crate::source::{body_or_end, closing, words_of};
use crate::{Finding, Source, Tree};

/// The most lines of a file.
const FILE_LINES: usize = 800;
/// The most lines of a function.
const FUNCTION_LINES: usize = 70;

/// The lines above a statement in which the comment about its ordering may stand.
const COMMENT_ABOVE: usize = 4;

/// The memory orderings.
const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

/// What code may depend on: the platform, tests, the model checker, and features; and the dispatch
/// of a build (crates/runner/build.rs), since CI runs both dispatches.
const PREDICATES: [&str; 19] = [
    "all",
    "any",
    "not",
    "cfg",
    "cfg_attr",
    "test",
    "doctest",
    "loom",
    "miri",
    "feature",
    "contend_static_dispatch",
    "unix",
    "target_os",
    "target_arch",
    "target_env",
    "target_pointer_width",
    "target_has_atomic",
    "target_feature",
    "target_family",
];

/// A function of a source, with its place and length in lines.
struct Function {
    path: String,
    line: usize,
    name: String,
    lines: usize,
}

/// Returns the sources of the crates: no tests, benches or examples.
fn sources(tree: &Tree) -> impl Iterator<Item = &Source> {
    tree.rust.iter().filter(|source| source.path.starts_with("crates/") && source.path.contains("/src/"))
}

/// Finds files of more than 800 lines.
pub fn lengths(tree: &Tree) -> Vec<Finding> {
    let long = tree.rust.iter().filter(|source| source.lines.len() > FILE_LINES);
    long.map(|source| Finding::new(&source.path, 1, format!("{} lines, more than {FILE_LINES}", source.lines.len())))
        .collect()
}

/// Finds functions of more than 70 lines, without those of tests.
pub fn functions(tree: &Tree) -> Vec<Finding> {
    let long = sources(tree).flat_map(functions_of).filter(|function| function.lines > FUNCTION_LINES);
    long.map(|Function { path, line, name, lines }| {
        Finding::new(&path, line, format!("`{name}` has {lines} lines, more than {FUNCTION_LINES}"))
    })
    .collect()
}

fn functions_of(source: &Source) -> Vec<Function> {
    let code = source.joined();
    let mut functions = Vec::new();
    let mut from = 0;
    while let Some(found) = code[from..].find("fn ") {
        let begin = from + found;
        from = begin + 3;
        let is_word = !code[..begin].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let Some(name) = words_of(&code[from..]).next() else { break };
        if !is_word || !code[from..].trim_start().starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$') {
            continue;
        }
        let Some(body) = body_or_end(&code, from) else { continue };
        if code.as_bytes()[body] == b';' {
            continue;
        }
        let Some(end) = closing(&code, body) else { continue };
        let (first, last) = (source.line_at(begin), source.line_at(end - 1));
        if !source.is_test[first] {
            let (path, name) = (source.path.clone(), name.to_owned());
            functions.push(Function { path, line: first + 1, name, lines: last - first + 1 });
        }
    }
    functions
}

/// Finds the standard library's atomics outside of the machine and of the files that `listed` names
/// with a reason. A name in the list that is not needed is a finding too.
pub fn atomics(tree: &Tree, listed: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = Vec::new();
    for source in sources(tree).filter(|source| !source.path.starts_with("crates/machine/")) {
        for (number, code) in source.code.iter().enumerate() {
            if !code.contains("sync::atomic") || source.is_test[number] {
                continue;
            }
            used.push(source.path.as_str());
            if !listed.iter().any(|(path, _)| *path == source.path) {
                let why = "an atomic of the standard library: simulator, explorer and model checker don't see it";
                findings.push(Finding::new(&source.path, number + 1, why));
            }
        }
    }
    for (path, _) in listed.iter().filter(|(path, _)| !used.contains(path)) {
        findings.push(Finding::new(path, 1, "listed among the files with atomics, and has none"));
    }
    findings
}

/// Finds atomic orderings without a comment that names an ordering, in the four lines above the
/// statement or beside it.
pub fn orderings(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources(tree) {
        for (number, code) in source.code.iter().enumerate() {
            let names = code.match_indices("Ordering::").map(|(at, part)| &code[at + part.len()..]);
            let mut names = names.filter_map(|rest| words_of(rest).next());
            let is_atomic = names.any(|name| ORDERINGS.contains(&name));
            if is_atomic && !source.is_test[number] && !is_argued(source, number) {
                findings.push(Finding::new(&source.path, number + 1, "no comment says why this ordering suffices"));
            }
        }
    }
    findings
}

fn is_argued(source: &Source, number: usize) -> bool {
    let ends_statement = |line: usize| {
        let code = source.code[line].trim_end();
        code.is_empty() || code.ends_with([';', '{', '}'])
    };
    let mut first = number;
    while first > 0 && !ends_statement(first - 1) {
        first -= 1;
    }
    let lines = first.saturating_sub(COMMENT_ABOVE)..=number;
    source.comments[lines].iter().any(|comment| words_of(comment).any(|word| ORDERINGS.contains(&word)))
}

/// Finds code that depends on anything but the platform, tests, the model checker, or a feature.
pub fn configuration(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for source in sources(tree) {
        let code = source.joined();
        for attribute in ["#[cfg(", "#![cfg(", "#[cfg_attr("] {
            for (begin, _) in code.match_indices(attribute) {
                let Some(end) = closing(&code, begin + attribute.len() - 1) else { continue };
                let predicate = &code[begin + attribute.len()..end - 1];
                // Of `cfg_attr` the first part is the predicate.
                let predicate = if attribute.contains("attr") { first_argument(predicate) } else { predicate };
                let other = words_of(predicate).find(|word| !PREDICATES.contains(word));
                if let Some(other) = other {
                    let why = format!("code that depends on `{other}`: what is measured would not be what is tested");
                    findings.push(Finding::new(&source.path, source.line_at(begin) + 1, why));
                }
            }
        }
    }
    findings
}

fn first_argument(arguments: &str) -> &str {
    let mut depth = 0usize;
    for (at, c) in arguments.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return &arguments[..at],
            _ => {}
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATH: &str = "crates/x/src/lib.rs";

    fn lines(findings: Vec<Finding>) -> Vec<usize> {
        findings.iter().map(|finding| finding.line).collect()
    }

    #[test]
    fn long_functions_are_found() {
        let body = |lines: usize| "    x();\n".repeat(lines - 6);
        let function = |lines| format!("fn b(c: [u8; 3])\nwhere\n    X: Y,\n{{\n    \"}}\";\n{}}}\n", body(lines));
        let text =
            format!("trait A {{\n    fn a();\n}}\n{}{}#[cfg(test)]\n{}", function(70), function(71), function(99));
        let found = functions(&Tree::of_rust(&[(PATH, &text)]));
        assert_eq!(lines(found), [74]);
    }

    #[test]
    fn long_files_are_found() {
        assert_eq!(lengths(&Tree::of_rust(&[(PATH, &"\n".repeat(801)), ("b.rs", &"\n".repeat(800))])).len(), 1);
    }

    #[test]
    fn atomics_outside_the_machine_are_found() {
        let text =
            "// std::sync::atomic\nuse std::sync::atomic::AtomicU64;\n#[cfg(test)]\nuse std::sync::atomic::Ordering;\n";
        let tree =
            Tree::of_rust(&[(PATH, text), ("crates/machine/src/lib.rs", text), ("crates/x/tests/it/main.rs", text)]);
        assert_eq!(lines(atomics(&tree, &[])), [2]);
        assert_eq!(lines(atomics(&tree, &[(PATH, "a reason")])), []);
        assert_eq!(atomics(&tree, &[(PATH, "a reason"), ("crates/y/src/lib.rs", "none")]).len(), 1);
    }

    #[test]
    fn orderings_without_a_comment_are_found() {
        let text = "fn a() {\n    x.load(Ordering::Acquire);\n\n\n\n\n    // Acquire: pairs with the store in `b`.\n    x.f(\n        1,\n        2,\n        3,\n        4,\n        Ordering::Acquire,\n    );\n    y.load(Ordering::Less);\n    x.load(Ordering::Relaxed); // Relaxed: a count.\n}\n";
        assert_eq!(lines(orderings(&Tree::of_rust(&[(PATH, text)]))), [2]);
    }

    #[test]
    fn code_of_debug_builds_is_found() {
        let text = "#[cfg(debug_assertions)]\nfn a() {}\n#[cfg(all(unix, not(loom)))]\nfn b() {}\n#[cfg_attr(test, derive(Debug))]\nstruct C;\n#[cfg(feature = \"x\")]\nfn d() {}\n";
        assert_eq!(lines(configuration(&Tree::of_rust(&[(PATH, text)]))), [1]);
    }
}
