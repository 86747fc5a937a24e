//! The structs that the macro accepts and refuses, with its messages.
//!
//! After a deliberate change of a message, run `TRYBUILD=overwrite cargo test -p contend-derive
//! --test ui`.

use std::process::Command;

/// The compiler's own messages change from one version to the next, so only those of this version
/// are compared. The examples in the macro's documentation see to it that other versions refuse the
/// same structs.
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
