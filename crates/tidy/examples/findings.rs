//! Prints what each rule finds in the repository, and how much: `cargo run -p contend-tidy
//! --example findings [RULE]`.

use contend_tidy::{ATOMICS, BETWEEN_FAMILIES, Finding, INTERNAL_VARIABLES, Tree};

fn main() {
    let tree = Tree::of_repository();
    let only = std::env::args().nth(1);
    let functions = contend_tidy::functions(&tree, 70);
    let functions = functions.into_iter().map(|function| Finding {
        path: function.path,
        line: function.line,
        why: format!("`{}` has {} lines", function.name, function.lines),
    });
    for (rule, findings) in [
        ("siblings", contend_tidy::siblings(&tree, &BETWEEN_FAMILIES)),
        ("headers", contend_tidy::headers(&tree)),
        ("facade", contend_tidy::facade(&tree)),
        ("environment", contend_tidy::environment(&tree, &INTERNAL_VARIABLES)),
        ("test binaries", contend_tidy::test_binaries(&tree)),
        ("words", contend_tidy::words(&tree)),
        ("columns", contend_tidy::columns(&tree)),
        ("orderings", contend_tidy::orderings(&tree)),
        ("atomics", contend_tidy::atomics(&tree, &ATOMICS)),
        ("configuration", contend_tidy::configuration(&tree)),
        ("file lengths", contend_tidy::lengths(&tree)),
        ("functions", functions.collect()),
    ] {
        if only.as_ref().is_none_or(|only| only == rule) {
            findings.iter().for_each(|finding| println!("{finding}"));
            println!("{rule}: {}", findings.len());
        }
    }
}
