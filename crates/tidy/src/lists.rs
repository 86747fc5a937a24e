//! Lists that people read, and what they list.

use std::collections::BTreeMap;

use crate::protocols::registered;
use crate::source::words_of;
use crate::{Finding, Tree};

/// The document that lists the variables of the environment, and the heading above the list.
const KNOBS: (&str, &str) = ("CONTRIBUTING.md", "## Environment");

/// What the header of a test binary says beside the first of its crate.
const OWN_BINARY: &str = "A binary of its own:";

/// Finds registered protocols that the facade does not export.
pub fn facade(tree: &Tree) -> Vec<Finding> {
    let path = "crates/contend/src/lib.rs";
    let Some(facade) = tree.source(path) else { return vec![Finding::new(path, 1, "there is no facade")] };
    let code = facade.joined();
    let Some(begin) = code.find("pub mod protocols") else {
        return vec![Finding::new(path, 1, "the facade has no module `protocols`")];
    };
    let exported: Vec<&str> = words_of(&code[begin..]).collect();
    let missing = registered(tree).into_iter().filter(|(_, name)| !exported.contains(&name.as_str()));
    missing
        .map(|(module, name)| {
            Finding::new(path, facade.line_at(begin) + 1, format!("`{module}::{name}` is not exported"))
        })
        .collect()
}

/// Finds variables of the environment that are read and not listed in CONTRIBUTING.md, and the
/// other way round. `internal` names those by which a program talks to itself.
pub fn environment(tree: &Tree, internal: &[&str]) -> Vec<Finding> {
    let mut read: BTreeMap<String, (String, usize)> = BTreeMap::new();
    for source in &tree.rust {
        // Built-in ones, which cargo sets, are read by `env!`.
        let reads = source.code.iter().any(|code| code.contains("env::var") || code.contains("env::vars"));
        // Cargo sets the variables that a build script reads.
        if !reads || source.path.starts_with("crates/tidy/") || source.path.ends_with("/build.rs") {
            continue;
        }
        for (line, text) in source.strings.iter().filter(|(_, text)| is_name_of_variable(text)) {
            let beside = &source.code[*line];
            // A name without an underscore is one only where it is read.
            if !beside.contains("env!(") && (text.contains('_') || beside.contains("env::var")) {
                read.entry(text.clone()).or_insert((source.path.clone(), line + 1));
            }
        }
    }
    for script in &tree.scripts {
        for (number, line) in script.lines.iter().enumerate() {
            for name in read_by_script(line) {
                read.entry(name).or_insert((script.path.clone(), number + 1));
            }
        }
    }
    let listed = listed(tree);
    let mut findings = Vec::new();
    for (name, (path, line)) in &read {
        if !listed.contains_key(name) && !internal.contains(&name.as_str()) {
            findings.push(Finding::new(path, *line, format!("`{name}` is read and not listed in {}", KNOBS.0)));
        }
    }
    for (name, line) in &listed {
        if !read.contains_key(name) {
            findings.push(Finding::new(KNOBS.0, *line, format!("`{name}` is listed, and nothing reads it")));
        }
    }
    findings
}

fn is_name_of_variable(text: &str) -> bool {
    text.len() >= 4
        && text.starts_with(|c: char| c.is_ascii_uppercase())
        && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
}

/// Variables that a line of a script reads: `${NAME:-default}` and `os.environ`.
fn read_by_script(line: &str) -> Vec<String> {
    let mut names = Vec::new();
    if line.trim_start().starts_with('#') {
        return names;
    }
    for begins in ["${", "environ[\"", "environ.get(\""] {
        for (at, part) in line.match_indices(begins) {
            let rest = &line[at + part.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            // Without a default it is a variable of the script itself.
            if is_name_of_variable(&rest[..end]) && (begins != "${" || rest[end..].starts_with(":-")) {
                names.push(rest[..end].to_owned());
            }
        }
    }
    names
}

/// The variables of the list, with their lines.
fn listed(tree: &Tree) -> BTreeMap<String, usize> {
    let Some(document) = tree.document(KNOBS.0) else { return BTreeMap::new() };
    let lines = document.lines.iter().enumerate().skip_while(|(_, line)| *line != KNOBS.1).skip(1);
    let section = lines.take_while(|(_, line)| !line.starts_with("## "));
    let rows = section
        .filter_map(|(number, line)| Some((line.strip_prefix("| `")?.split('`').next()?.to_owned(), number + 1)));
    rows.collect()
}

/// Finds test binaries beside the first of a crate whose headers don't say why they are not part of
/// it. Those for the model checker are built only when they are named.
pub fn test_binaries(tree: &Tree) -> Vec<Finding> {
    let mut binaries: BTreeMap<&str, Vec<&crate::Source>> = BTreeMap::new();
    for source in &tree.rust {
        let parts: Vec<&str> = source.path.split('/').collect();
        match parts[..] {
            ["crates", name, "tests", file] if file.ends_with(".rs") => binaries.entry(name).or_default().push(source),
            ["crates", name, "tests", folder, "main.rs"] if folder != "loom" => {
                binaries.entry(name).or_default().push(source);
            }
            _ => {}
        }
    }
    let mut findings = Vec::new();
    for (name, binaries) in binaries {
        let says_why = |source: &&&crate::Source| {
            source.lines.iter().take_while(|line| line.starts_with("//!")).any(|line| line.contains(OWN_BINARY))
        };
        let others: Vec<_> = binaries.iter().filter(|source| !says_why(source)).collect();
        for source in others.iter().skip(1) {
            let why = format!("one more test binary of `{name}`: make it a module, or say why (\"{OWN_BINARY} ...\")");
            findings.push(Finding::new(&source.path, 1, why));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Source, Text};

    #[test]
    fn types_that_are_not_exported_are_found() {
        let registry = ("crates/protocols/src/registry.rs", "protocols! {\n    crate::a::A,\n    crate::b::B<M>,\n}\n");
        let facade_of = |text| facade(&Tree::of_rust(&[registry, ("crates/contend/src/lib.rs", text)])).len();
        assert_eq!(facade_of("pub mod protocols {\n    pub use x::{A, B};\n}\n"), 0);
        assert_eq!(facade_of("pub use x::B;\npub mod protocols {\n    pub use x::A;\n}\n"), 1);
    }

    #[test]
    fn variables_are_listed_and_read() {
        let list = "## Environment\n\n| variable | meaning |\n| --- | --- |\n| `A_SEED` | a |\n| `C_ROUNDS` | c |\n\n## Next\n| `X_Y` |\n";
        let tree = Tree {
            rust: vec![Source::parse(
                "crates/x/src/lib.rs",
                "fn f() {\n    env::var(\"A_SEED\");\n    env::var(\"B_SEED\");\n    g(\"OWN_NAME\");\n}\n",
            )],
            documents: vec![Text::parse("CONTRIBUTING.md", list)],
            scripts: vec![Text::parse(".ci/run", "# ${NOT_READ:-}\na=\"${D_DIR:-target}\" ${own}\n")],
        };
        let found: Vec<String> = environment(&tree, &["OWN_NAME"]).iter().map(Finding::to_string).collect();
        assert_eq!(
            found,
            [
                "crates/x/src/lib.rs:3: `B_SEED` is read and not listed in CONTRIBUTING.md",
                ".ci/run:2: `D_DIR` is read and not listed in CONTRIBUTING.md",
                "CONTRIBUTING.md:6: `C_ROUNDS` is listed, and nothing reads it",
            ]
        );
    }

    #[test]
    fn test_binaries_say_why_they_are_apart() {
        let of = |header: &str| {
            let files = [
                ("crates/x/tests/it/main.rs", "mod a;\n"),
                ("crates/x/tests/it/a.rs", ""),
                ("crates/x/tests/b.rs", header),
                ("crates/x/tests/loom/main.rs", ""),
            ];
            test_binaries(&Tree::of_rust(&files)).len()
        };
        assert_eq!(of("//! Counts.\n"), 1);
        assert_eq!(of("//! Counts.\n//! A binary of its own: a process has one allocator.\n"), 0);
    }
}
