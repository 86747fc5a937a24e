//! Tests of the module as a file. It needs no Python. That `cargo test` builds the module for them
//! is their other purpose: the tests in `python/tests` load that file.

use std::path::{Path, PathBuf};

/// The module, which stands beside this test.
fn module() -> PathBuf {
    std::env::current_exe().expect("this test is a file").with_file_name("lib_contend.so")
}

#[test]
fn the_module_has_the_entry_that_python_looks_for() {
    let module = module();
    let bytes = std::fs::read(&module).unwrap_or_else(|error| panic!("{}: {error}", module.display()));
    let entry = b"PyInit__contend\0";
    assert!(bytes.windows(entry.len()).any(|part| part == entry));
}

#[test]
fn the_package_has_the_version_of_the_crates() {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../python/pyproject.toml");
    let text = std::fs::read_to_string(project).expect("the package's file");
    let version = format!("version = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert!(text.lines().any(|line| line == version), "{version} is not in pyproject.toml");
}
