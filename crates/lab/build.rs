//! Tells the lab from what it is built: the commit, whether the sources are those of the commit,
//! and the compiler.

use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A package from a registry may lie in a repository that has nothing to do with it.
    let is_packaged = Path::new(".cargo_vcs_info.json").exists();
    let git = |arguments: &[&str]| match is_packaged {
        true => None,
        false => output(Command::new("git").args(arguments)),
    };
    if let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"]) {
        println!("cargo::rerun-if-changed={log}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=CONTEND_COMMIT={commit}");
    }
    // To know this, cargo has to look at all sources. In a build for development that would compile
    // the lab again after a change of any test.
    if std::env::var("PROFILE").is_ok_and(|profile| profile == "release")
        && let Some(changes) = git(&["status", "--porcelain", "--", ".."])
    {
        println!("cargo::rerun-if-changed=..");
        println!("cargo::rustc-env=CONTEND_TREE_CLEAN={}", changes.is_empty());
    }
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let version = output(Command::new(compiler).arg("--version")).unwrap_or_else(|| "unknown".into());
    println!("cargo::rustc-env=CONTEND_RUSTC={version}");
}

/// Returns what a command prints, without the blanks around it. Returns `None` if it fails.
fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
