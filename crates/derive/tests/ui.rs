//! What the macro accepts and what it refuses, with the words it refuses it with.
//!
//! After a deliberate change of a message: `TRYBUILD=overwrite cargo test -p contend-derive --test ui`.

use std::process::Command;

/// The compiler's own words change from one version to the next, so only those of this version are
/// compared. The examples in the macro's documentation show that other versions refuse the same.
const WORDS_OF: &str = "rustc 1.95";

#[test]
fn rows() {
    let cases = trybuild::TestCases::new();
    cases.pass("tests/ui/pass/*.rs");
    cases.compile_fail("tests/ui/refused_by_macro/*.rs");
    let version = Command::new("rustc").arg("--version").output().expect("rustc runs").stdout;
    if version.starts_with(WORDS_OF.as_bytes()) {
        cases.compile_fail("tests/ui/refused_by_compiler/*.rs");
    }
}
