//! A disk that is full, and a reader that has seen enough: the figures are shown all the same, and
//! one line names the file.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::{TINY, contend, contend_without_reader, text};

/// A run in a moment.
const SHORT: [&str; 10] =
    ["--machine", "abyss:2", "--seconds", "1e-4", "--windows", "2", "--warmup", "0", "--set", "ycsb.records=1000"];

/// A device whose writes find no room; where there is none, the tests of it have nothing to test.
const FULL: &str = "/dev/full";

fn is_there() -> bool {
    Path::new(FULL).exists()
}

/// Asserts that the command has shown its figures, and has then complained about this file.
#[track_caller]
fn shows_and_names(output: &Output, shown: &str, file: &str) {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stdout.contains(shown), "'{shown}' is not in: {stdout}{stderr}");
    let last = stderr.lines().last().unwrap_or_default();
    assert!(last.starts_with(&format!("error: can't write {file}: ")), "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.starts_with("error")).count(), 1, "{stderr}");
}

/// A folder in which a name is a file that finds no room.
fn full_file(folder: &Path, name: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::os::unix::fs::symlink(FULL, path).expect("a link");
}

#[test]
fn a_file_without_room_hides_no_figures_and_no_other_file() {
    if !is_there() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| contend(folder.path(), &[arguments, &SHORT].concat());
    let content = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    for flag in ["--json", "--csv", "--history"] {
        let output = run(&["run", flag, FULL, "--json", "beside.json"][..if flag == "--json" { 3 } else { 5 }]);
        shows_and_names(&output, "silo commits", FULL);
    }
    assert!(content("beside.json").contains("schema_version"));
    // The history does not wait for the other files.
    let output = run(&["run", "--json", FULL, "--history", "h.jsonl"]);
    shows_and_names(&output, "silo commits", FULL);
    assert!(content("h.jsonl").contains("\"txn\""));
    full_file(folder.path(), "hdr/silo.hgrm");
    shows_and_names(&run(&["run", "--hdr", "hdr"]), "silo commits", "hdr/silo.hgrm");
    full_file(folder.path(), "out/report.html");
    let output = run(&["compare", "--protocols", "silo,mvto", "--out", "out", "--force"]);
    shows_and_names(&output, "mvto", "out/report.html");
    assert!(content("out/results.json").contains("schema_version"));
}

#[test]
fn other_verbs_show_what_they_found_before_they_write() {
    if !is_there() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    let explored = ["explore", "--protocol", "silo", "--workload", "litmus-write-skew", "--schedules", "3"];
    shows_and_names(&run(&[&explored[..], &["--json", FULL]].concat()), "nothing wrong found", FULL);
    full_file(folder.path(), "advice/advice.html");
    let few = ["advise", "ycsb-a", "--no-verify", "--budget", "5s", "--out", "advice", "--force"];
    let output = run(&[&few[..], &["--set", "ycsb.records=1000", "--threads", "2"]].concat());
    shows_and_names(&output, "again: ", "advice/advice.html");
    assert!(folder.path().join("advice/advice.json").exists());
    std::fs::write(folder.path().join("tiny.toml"), TINY).expect("written");
    full_file(folder.path(), "swept/tiny/figure.svg");
    shows_and_names(&run(&["sweep", "tiny.toml", "--out", "swept"]), "tiny.2", "swept/tiny/figure.svg");
    let man = TempDir::new().expect("a folder");
    full_file(man.path(), "contend-run.1");
    let output = run(&["man", "--out", man.path().to_str().expect("a name")]);
    shows_and_names(&output, "", man.path().join("contend-run.1").to_str().expect("a name"));
}

/// Verbs that print, and read the files of [`printing`].
const PRINTING: [&[&str]; 12] = [
    &["check", "h.jsonl"],
    &["check", "h.jsonl", "--json"],
    &["analyse", "tpcc"],
    &["analyse", "tpcc", "--format", "svg"],
    &["workload", "check", "tpcb.toml"],
    &["workload", "import", "accesses", "a.csv"],
    &["list"],
    &["completions", "bash"],
    &["man", "run"],
    &["--help"],
    &["run", "--help"],
    &["--version"],
];

/// A folder with the files that [`PRINTING`] reads.
fn printing() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str, content: &str| std::fs::write(folder.path().join(name), content).expect("written");
    file(
        "h.jsonl",
        "{\"txn\":1,\"worker\":0,\"ops\":[{\"op\":\"read\",\"table\":\"t\",\"key\":\"1\",\"version\":0}]}\n",
    );
    file("a.csv", "time,session,txn,op,table,key\n1,1,1,r,t,1\n2,1,1,w,t,1\n");
    file("tpcb.toml", include_str!("../../../../workloads/tpcb.toml"));
    folder
}

#[test]
fn stdout_without_room_is_an_error_in_one_line() {
    if !is_there() {
        return;
    }
    let folder = printing();
    for arguments in PRINTING {
        let full = File::options().write(true).open(FULL).expect("the device");
        let output = Command::new(env!("CARGO_BIN_EXE_contend"))
            .args(arguments)
            .current_dir(folder.path())
            .stdout(full)
            .output()
            .expect("the binary runs");
        let stderr = text(&output.stderr);
        let errors: Vec<&str> = stderr.lines().filter(|line| !line.starts_with("note: ")).collect();
        assert!(
            matches!(errors[..], [error] if error.starts_with("error: can't write to stdout: ")),
            "{arguments:?}: {stderr}"
        );
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let folder = printing();
    for arguments in PRINTING {
        let output = contend_without_reader(folder.path(), arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {stderr}");
        assert!(stderr.lines().all(|line| line.starts_with("note: ")), "{arguments:?}: {stderr}");
    }
}
