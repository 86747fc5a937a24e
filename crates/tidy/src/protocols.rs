//! Protocols: what their files may import, and what their headers say.

use crate::source::{closing, words_of};
use crate::{Finding, Source, Tree};

const ROOT: &str = "crates/protocols/src/";

/// The headings of a protocol's header, in their order. Others may stand between them.
const HEADINGS: [&[&str]; 9] = [
    &["Idea"],
    &["Paper", "Papers"],
    &["Promises"],
    &["Metadata"],
    &["Commit point"],
    &["Waits"],
    &["Phantoms"],
    &["Departures", "Departures from the paper", "Departures from the papers"],
    &["Options", "Defaults", "Option"],
];

/// Returns the modules of the registered protocols, as `locking::no_wait`, each with its type.
pub(crate) fn registered(tree: &Tree) -> Vec<(String, String)> {
    let Some(registry) = tree.source("crates/protocols/src/registry.rs") else { return Vec::new() };
    let code = registry.joined();
    let Some(list) = code.rfind("protocols! {") else { return Vec::new() };
    let end = closing(&code, list + "protocols! ".len()).unwrap_or(code.len());
    let paths = code[list..end].match_indices("crate::").map(|(at, part)| &code[list..end][at + part.len()..]);
    paths
        .filter_map(|path| {
            let end = path.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(path.len());
            path[..end].rsplit_once("::").map(|(module, name)| (module.to_owned(), name.to_owned()))
        })
        .collect()
}

/// Returns the module of a file of the crate `protocols`, as `locking::no_wait`.
fn module_of(path: &str) -> Option<String> {
    let module = path.strip_prefix(ROOT)?.strip_suffix(".rs")?;
    Some(module.trim_end_matches("/mod").replace('/', "::"))
}

fn is_in(module: &str, outer: &str) -> bool {
    module == outer || module.strip_prefix(outer).is_some_and(|rest| rest.starts_with("::"))
}

/// Finds imports of a protocol by another file than its own, unless `over` names the file with a
/// reason. Finds imports of one family by another, unless `listed` names the two families with a
/// reason.
pub fn siblings(tree: &Tree, listed: &[(&str, &str, &str)], over: &[(&str, &str)]) -> Vec<Finding> {
    let protocols: Vec<String> = registered(tree).into_iter().map(|(module, _)| module).collect();
    let first = |module: &str| module.split("::").next().unwrap_or_default().to_owned();
    // A family is a folder of protocols, or a protocol alone.
    let families: Vec<String> = protocols.iter().map(|module| first(module)).collect();
    let mut findings = Vec::new();
    for source in &tree.rust {
        let Some(module) = module_of(&source.path) else { continue };
        let lists_all = ["lib", "registry"].contains(&module.as_str());
        if lists_all {
            continue;
        }
        let own = protocols.iter().find(|protocol| is_in(&module, protocol));
        for (line, import) in imports(source, &module) {
            if source.is_test[line] {
                continue;
            }
            let may_import = over.iter().any(|(path, _)| *path == source.path);
            let other = protocols.iter().find(|protocol| is_in(&import, protocol) && !may_import);
            if let Some(other) = other.filter(|other| Some(*other) != own && !is_in(other, &module)) {
                findings.push(Finding::new(&source.path, line + 1, format!("imports the protocol `{other}`")));
            } else if families.contains(&first(&import))
                && families.contains(&first(&module))
                && first(&import) != first(&module)
                && !listed.iter().any(|(from, to, _)| *from == first(&module) && *to == first(&import))
            {
                let why = format!("the family `{}` imports the family `{}`", first(&module), first(&import));
                findings.push(Finding::new(&source.path, line + 1, why));
            }
        }
    }
    findings.sort();
    findings.dedup();
    findings
}

/// The modules of the crate that a file names, with the lines. `super` is resolved.
fn imports(source: &Source, module: &str) -> Vec<(usize, String)> {
    let code = source.joined();
    let mut imports = Vec::new();
    for (begin, _) in code.match_indices("crate::") {
        let is_word = !code[..begin].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$');
        if is_word {
            expand(&code, begin + "crate::".len(), String::new(), &mut |at, path| {
                imports.push((source.line_at(at), path));
            });
        }
    }
    for (begin, _) in code.match_indices("super::") {
        if code[..begin].ends_with("super::") {
            continue;
        }
        let mut base: Vec<&str> = module.split("::").collect();
        let mut at = begin;
        while code[at..].starts_with("super::") {
            base.pop();
            at += "super::".len();
        }
        expand(&code, at, base.join("::"), &mut |at, path| imports.push((source.line_at(at), path)));
    }
    imports
}

/// Follows a path, and the groups in it, to their ends.
fn expand(code: &str, at: usize, base: String, see: &mut impl FnMut(usize, String)) {
    let rest = &code[at..];
    let skipped = rest.len() - rest.trim_start().len();
    let (at, rest) = (at + skipped, rest.trim_start());
    if rest.starts_with('{') {
        let Some(end) = closing(code, at) else { return };
        let mut begin = at + 1;
        let mut depth = 0usize;
        for offset in at + 1..end {
            match code.as_bytes()[offset] {
                b'{' => depth += 1,
                b'}' if depth > 0 => depth -= 1,
                b',' | b'}' if depth == 0 => {
                    if !code[begin..offset].trim().is_empty() {
                        expand(&code[..offset], begin, base.clone(), see);
                    }
                    begin = offset + 1;
                }
                _ => {}
            }
        }
        return;
    }
    let Some(word) = words_of(rest).next().filter(|word| rest.starts_with(word)) else {
        return see(at, base);
    };
    let path = if base.is_empty() { word.to_owned() } else { format!("{base}::{word}") };
    let behind = at + word.len();
    if code[behind..].starts_with("::") { expand(code, behind + 2, path, see) } else { see(at, path) }
}

/// Finds protocols whose headers lack a heading, or have their headings in another order. A
/// protocol of a family leaves out the headings that the family's own header has for all of its
/// protocols. Options are documented where they are declared, and need no heading.
pub fn headers(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (module, _) in registered(tree) {
        let path = format!("{ROOT}{}.rs", module.replace("::", "/"));
        let Some(source) = tree.source(&path) else {
            findings.push(Finding::new(&path, 1, "a registered protocol has no file of its own"));
            continue;
        };
        let family = module.split_once("::").and_then(|(family, _)| tree.source(&format!("{ROOT}{family}.rs")));
        findings.extend(header(source, family));
    }
    findings
}

/// The headings of a header, by their places in [`HEADINGS`], with the lines.
fn headings(source: &Source) -> Vec<(usize, usize)> {
    let header = source.lines.iter().take_while(|line| line.starts_with("//!"));
    let mut places = Vec::new();
    for (number, line) in header.enumerate() {
        let text = line.trim_start_matches("//!").trim_start();
        let headings = text.split("**").skip(1).step_by(2);
        // A heading begins a line; after another heading it may begin a sentence.
        let begins = text.starts_with("**");
        for heading in headings.filter(|_| begins) {
            let heading = heading.trim_end_matches(['.', ':']);
            let known = HEADINGS.iter().position(|names| names.contains(&heading));
            places.extend(known.map(|place| (place, number + 1)));
        }
    }
    places
}

fn header(source: &Source, family: Option<&Source>) -> Vec<Finding> {
    let places = headings(source);
    let of_family = family.map(headings).unwrap_or_default();
    let mut findings = Vec::new();
    for (place, names) in HEADINGS.iter().enumerate().take(HEADINGS.len() - 1) {
        if !places.iter().chain(&of_family).any(|(found, _)| *found == place) {
            findings.push(Finding::new(&source.path, 1, format!("the header has no **{}**", names[0])));
        }
    }
    for pair in places.windows(2) {
        if pair[1].0 < pair[0].0 {
            let why = format!("**{}** stands after **{}**", HEADINGS[pair[1].0][0], HEADINGS[pair[0].0][0]);
            findings.push(Finding::new(&source.path, pair[1].1, why));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    const REGISTRY: (&str, &str) = (
        "crates/protocols/src/registry.rs",
        "macro_rules! protocols { () => {} }\nprotocols! {\n    crate::none::None,\n    crate::fast::a::A<M>,\n    crate::fast::b::B,\n    crate::slow::c::C,\n}\n",
    );

    fn found(path: &str, text: &str) -> Vec<String> {
        let tree = Tree::of_rust(&[REGISTRY, (path, text)]);
        siblings(&tree, &[], &[]).into_iter().map(|finding| format!("{}: {}", finding.line, finding.why)).collect()
    }

    #[test]
    fn the_registry_is_read() {
        let modules: Vec<String> =
            registered(&Tree::of_rust(&[REGISTRY])).into_iter().map(|(module, _)| module).collect();
        assert_eq!(modules, ["none", "fast::a", "fast::b", "slow::c"]);
    }

    #[test]
    fn siblings_are_found_however_they_are_imported() {
        let a = "crates/protocols/src/fast/a.rs";
        assert_eq!(found(a, "use crate::fast::b::B;\n"), ["1: imports the protocol `fast::b`"]);
        assert_eq!(found(a, "use super::b;\n"), ["1: imports the protocol `fast::b`"]);
        assert_eq!(found(a, "use crate::{\n    flags,\n    fast::{shared, b::{B, C}},\n};\n").len(), 1);
        assert_eq!(found(a, "fn f() {\n    crate::slow::c::f()\n}\n"), ["2: imports the protocol `slow::c`"]);
        assert_eq!(found(a, "use crate::slow::shared;\n"), ["1: the family `fast` imports the family `slow`"]);
        assert_eq!(found("crates/protocols/src/fast/shared.rs", "use super::a::A;\n").len(), 1);
        assert_eq!(found("crates/protocols/src/flags.rs", "use crate::none::None;\n").len(), 1);
    }

    #[test]
    fn what_is_shared_may_be_imported() {
        let a = "crates/protocols/src/fast/a.rs";
        assert_eq!(
            found(a, "use crate::flags;\nuse crate::fast::shared;\nuse super::shared::X;\nmod word;\n"),
            [] as [&str; 0]
        );
        assert_eq!(
            found("crates/protocols/src/fast/a/word.rs", "use super::A;\nuse crate::fast::a::B;\n"),
            [] as [&str; 0]
        );
        assert_eq!(
            found(a, "// crate::fast::b\n#[cfg(test)]\nmod tests {\n    use crate::fast::b;\n}\n"),
            [] as [&str; 0]
        );
        assert_eq!(found("crates/protocols/src/fast.rs", "pub mod a;\nuse crate::flags;\n"), [] as [&str; 0]);
    }

    #[test]
    fn headings_are_all_there_and_in_order() {
        let all = "//! **Idea.** x\n//!\n//! **Papers.** x\n//! **Promises** x\n//! **Metadata.** x\n//! **Snapshots.** x\n//! **Commit point.** None. **Waits** for nothing.\n//! **Phantoms.** x\n//! **Departures from the paper.** x\n//! **Defaults.** x\n";
        let of = |text: &str| header(&Source::parse("crates/protocols/src/none.rs", text), None);
        assert_eq!(of(all), []);
        assert_eq!(of(&all.replace("//! **Phantoms.** x\n", "")).len(), 1);
        let family = Source::parse("crates/protocols/src/fast.rs", "//! **Phantoms.** x\n");
        let a = Source::parse("crates/protocols/src/fast/a.rs", &all.replace("//! **Phantoms.** x\n", ""));
        assert_eq!(header(&a, Some(&family)), []);
        let swapped = all.replace("**Metadata", "**X").replace("**Promises", "**Metadata").replace("**X", "**Promises");
        assert_eq!(of(&swapped).iter().map(|finding| finding.line).collect::<Vec<_>>(), [5]);
    }
}
