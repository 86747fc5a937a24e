//! Sweeps in parts: shards, single points, merged folders, killed processes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::common::{TINY, contend, keeps_schema, refuses, text};

/// A workload file whose invariant holds if `bonus` is 0.
const WORKLOAD: &str = r#"
version = 1
name = "counters"
schema = "create table counter (id bigint primary key, count bigint)"
[rows]
counter = 1000
[parameters]
bonus = 0
[[transaction]]
name = "add"
script = '''
\set id random(0, rows(counter) - 1)
update counter set count = count + :bonus where id = :id;
'''
[[invariant]]
name = "nothing is counted"
equal = ["select sum(count) from counter", "0"]
"#;

/// An experiment beside the workload file. Points with a bonus fail.
const EXPERIMENT: &str = r#"
id = "counters"
title = "Counters"
question = "q"
source = "s"
[run]
workload = "../workloads/counters.toml"
machine = "abyss"
seconds = 5e-5
warmup = 0.0
windows = 1
[[axis]]
name = "threads"
values = [1, 2, 3, 4, 5, 6]
[[axis]]
name = "counters.bonus"
values = [0]
[[series]]
name = "Silo"
protocol = "silo"
[[series]]
name = "NO_WAIT"
protocol = "2pl-nowait"
[[assertion]]
id = "counters.1"
paper = "four are faster"
holds = 'T("Silo 0",4) > T("Silo 0",1)'
"#;

/// Returns a folder with the two experiments and the workload file.
fn folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (name, text) in [
        ("experiments/tiny.toml", TINY),
        ("experiments/counters.toml", EXPERIMENT),
        ("workloads/counters.toml", WORKLOAD),
    ] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("written");
    }
    folder
}

const BOTH: [&str; 3] = ["sweep", "experiments/counters.toml", "experiments/tiny.toml"];

/// Runs a sweep of both experiments with these further arguments. Returns the exit status, and what
/// was printed.
fn sweep(folder: &Path, further: &[&str]) -> (i32, String, String) {
    let output = contend(folder, &[&BOTH, further].concat());
    (output.status.code().expect("a status"), text(&output.stdout), text(&output.stderr))
}

/// Returns the contents of the files of a sweep's folder that are the same for any division of the
/// work.
fn outcome(out: &Path) -> BTreeMap<String, String> {
    let of_experiment =
        |id: &str| ["figure.svg", "points.csv", "index.html", "experiment.toml"].map(|name| format!("{id}/{name}"));
    let names = ["counters", "tiny"].into_iter().flat_map(of_experiment);
    let names = names.chain(["verdicts.md".into(), "index.html".into()]);
    names.map(|name| (name.clone(), std::fs::read_to_string(out.join(&name)).expect(&name))).collect()
}

/// Returns the names of the points' files.
fn points(out: &Path) -> Vec<String> {
    let files = std::fs::read_dir(out.join("points")).expect("points");
    let names = files.map(|file| file.expect("a file").file_name().into_string().expect("a name"));
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".json")).collect();
    names.sort();
    names
}

#[test]
fn shards_merge_to_the_whole_byte_for_byte() {
    let folder = folder();
    let (status, shown, stderr) = sweep(folder.path(), &["--out", "whole"]);
    // One assertion of the small experiment is meant to fail.
    assert!(status == 1 && shown.contains("12 points measured"), "{shown}{stderr}");
    for name in points(&folder.path().join("whole")) {
        let file = std::fs::read_to_string(folder.path().join("whole/points").join(name)).expect("a point");
        keeps_schema("point", &file);
    }
    for number in 1..=3 {
        let (shard, out) = (format!("{number}/3"), format!("part{number}"));
        let (status, shown, stderr) = sweep(folder.path(), &["--shard", &shard, "--out", &out]);
        let of_shard = format!("shard {number}/3: 5 points measured, 0 kept, 0 failed");
        assert!(status == 0 && shown.contains(&of_shard), "{shown}{stderr}");
        let listed = sweep(folder.path(), &["--shard", &shard, "--out", &out, "--list"]).1;
        assert_eq!(listed, "", "nothing is missing of the shard");
    }
    let merge = ["sweep", "merge", "part1", "part2", "part3", "--out", "merged"];
    let merged = text(&contend(folder.path(), &merge).stdout);
    assert!(merged.contains("15 points of 2 experiments, 0 failed"), "{merged}");
    // The folder stands alone: the workload file is in it.
    std::fs::remove_dir_all(folder.path().join("workloads")).expect("removed");
    assert_eq!(contend(folder.path(), &["plot", "merged"]).status.code(), Some(1));
    assert_eq!(outcome(&folder.path().join("merged")), outcome(&folder.path().join("whole")));
    let status = contend(folder.path(), &["sweep", "status", "part1"]);
    assert_eq!(status.status.code(), Some(0));
    assert!(text(&status.stdout).contains("counters: 4 there, 8 missing, 0 failed"), "{}", text(&status.stdout));
    // Files of two folders never collide, so a copy is as good.
    for part in ["part2", "part3"] {
        for name in points(&folder.path().join(part)) {
            let (from, to) = (folder.path().join(part), folder.path().join("part1"));
            std::fs::copy(from.join("points").join(&name), to.join("points").join(&name)).expect("copied");
        }
    }
    let status = text(&contend(folder.path(), &["sweep", "status", "part1"]).stdout);
    assert_eq!(status, "counters: 12 there, 0 missing, 0 failed\ntiny: 3 there, 0 missing, 0 failed\n");
}

#[test]
fn listed_points_are_measured_one_by_one() {
    let folder = folder();
    let before = std::fs::read_dir(folder.path()).expect("the folder").count();
    let (status, listed, _) = sweep(folder.path(), &["--list", "--hash"]);
    assert_eq!((status, listed.lines().count()), (0, 15));
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), before, "a list writes nothing");
    let (_, long, _) = sweep(folder.path(), &["--list"]);
    assert!(long.lines().next().expect("a line").contains("simulated counters, "), "{long}");
    let hash = listed.lines().next().expect("a hash");
    let first = sweep(folder.path(), &["--point", hash]);
    assert_eq!((first.0, first.1), (0, format!("point {hash}: 1 point measured, 0 kept, 0 failed\n")), "{}", first.2);
    let again = sweep(folder.path(), &["--point", hash]);
    assert_eq!((again.0, again.1), (0, format!("point {hash}: 0 points measured, 1 kept, 0 failed\n")));
    let (_, rest, _) = sweep(folder.path(), &["--list", "--hash"]);
    assert_eq!(rest.lines().collect::<Vec<_>>(), listed.lines().skip(1).collect::<Vec<_>>());
    let file = std::fs::read_to_string(folder.path().join(format!("sweep/points/{hash}.json"))).expect("a point");
    assert!(file.contains("\"host\": \"") && file.contains("experiments/tiny.toml"), "{file}");
    let next = rest.lines().next().expect("a hash");
    assert_eq!(sweep(folder.path(), &["--point", next, "--anonymous"]).0, 0);
    let file = std::fs::read_to_string(folder.path().join(format!("sweep/points/{next}.json"))).expect("a point");
    assert!(file.contains("\"host\": null") && file.contains("\"command\": null"), "{file}");
}

#[test]
fn a_point_that_fails_keeps_its_reason_and_the_others_are_measured() {
    let folder = folder();
    let path = folder.path().join("experiments/counters.toml");
    let text_of = EXPERIMENT.replace("values = [0]", "values = [0, 1]").replace(", 3, 4, 5, 6]", ", 4]");
    std::fs::write(&path, text_of).expect("written");
    let run = |further: &[&str]| {
        let output =
            contend(folder.path(), &[&["sweep", "experiments/counters.toml", "--out", "out"], further].concat());
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (status, shown, stderr) = run(&[]);
    assert_eq!(status, Some(1), "{stderr}");
    assert!(shown.contains("6 points measured, 0 kept") && shown.contains("holds    counters.1"), "{shown}");
    let failures: Vec<&str> = stderr.lines().filter(|line| line.starts_with("failed: ")).collect();
    assert!(failures.len() == 6 && failures[0].contains("failed a check"), "{stderr}");
    assert!(stderr.contains("--retry-failed"), "{stderr}");
    let (status, shown, stderr) = run(&[]);
    assert!(status == Some(1) && shown.contains("0 points measured, 6 kept"), "{shown}{stderr}");
    let state = contend(folder.path(), &["sweep", "status", "out"]);
    assert_eq!(state.status.code(), Some(1));
    assert!(text(&state.stdout).contains("counters: 6 there, 0 missing, 6 failed"), "{}", text(&state.stdout));
    assert!(text(&state.stderr).contains("nothing is counted"), "the reason: {}", text(&state.stderr));
    assert_eq!(run(&["--list", "--hash"]).1, "");
    let listed = run(&["--list", "--hash", "--retry-failed"]).1;
    assert_eq!(listed.lines().count(), 6);
    let hash = listed.lines().next().expect("a hash");
    assert_eq!(run(&["--point", hash]).0, Some(1));
    assert_eq!(run(&["--point", hash, "--retry-failed"]).0, Some(1));
    let file = std::fs::read_to_string(folder.path().join(format!("out/points/{hash}.json"))).expect("a point");
    assert!(file.contains("\"attempt\": 2"), "{file}");
}

/// Processes are killed in the middle of their work, again and again. Whatever they had written is
/// whole, and the last sweep measures the rest.
#[test]
fn killed_shards_lose_nothing_and_tear_nothing() {
    let folder = folder();
    let whole = sweep(folder.path(), &["--out", "whole"]);
    assert_eq!(whole.0, 1, "{}", whole.2);
    for round in 0..10u64 {
        let mut shards: Vec<_> = ["1/2", "2/2"]
            .iter()
            .map(|shard| {
                Command::new(env!("CARGO_BIN_EXE_contend"))
                    .args([&BOTH[..], &["--out", "out", "--shard", shard, "--jobs", "1"]].concat())
                    .current_dir(folder.path())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .expect("the binary runs")
            })
            .collect();
        std::thread::sleep(Duration::from_millis(20 + round * 17 % 60));
        for shard in &mut shards {
            shard.kill().expect("killed");
            shard.wait().expect("ended");
        }
    }
    let there = if folder.path().join("out/points").exists() { points(&folder.path().join("out")).len() } else { 0 };
    let (status, shown, stderr) = sweep(folder.path(), &["--out", "out"]);
    assert!(status == 1 && !stderr.contains("can't be read"), "no point was torn: {stderr}");
    let numbers = |what: &str| -> usize {
        let before = shown.match_indices(what).map(|(at, _)| shown[..at].trim_end().rsplit([' ', '(']).next());
        before.map(|number| number.expect("a number").parse::<usize>().expect("a number")).sum()
    };
    let measured = numbers("points measured") + numbers("point measured");
    assert_eq!((numbers("kept"), measured), (there, 15 - there), "{shown}");
    assert_eq!(points(&folder.path().join("out")), points(&folder.path().join("whole")));
    assert_eq!(outcome(&folder.path().join("out")), outcome(&folder.path().join("whole")));
    let again = sweep(folder.path(), &["--out", "out"]).1;
    assert_eq!(again.matches("(0 points measured").count(), 2, "{again}");
}

#[test]
fn folders_that_do_not_go_together_are_not_merged() {
    let folder = folder();
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    for out in ["one", "other"] {
        assert_eq!(run(&["sweep", "experiments/tiny.toml", "--out", out]).status.code(), Some(1));
    }
    let name = points(&folder.path().join("other")).remove(0);
    let path = folder.path().join("other/points").join(&name);
    let good = std::fs::read_to_string(&path).expect("a point");
    let at = good.find("\"trace_hash\": \"").expect("a hash") + "\"trace_hash\": \"".len();
    std::fs::write(&path, format!("{}{}{}", &good[..at], "0123456789abcdef", &good[at + 16..])).expect("written");
    let output = run(&["sweep", "merge", "one", "other", "--out", "both"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    for part in ["one/points/", "other/points/", &name, "trace hashes differ"] {
        assert!(stderr.contains(part), "'{part}' is not in: {stderr}");
    }
    assert!(!folder.path().join("both/points").exists());
    // A point that was cut off is missing, and the other folder has it.
    std::fs::write(&path, &good[..good.len() / 3]).expect("written");
    let output = run(&["sweep", "merge", "other", "one", "--out", "other"]);
    assert!(text(&output.stderr).contains("counts as missing"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(0));
    let status = text(&run(&["sweep", "status", "other"]).stdout);
    assert_eq!(status, "tiny: 3 there, 0 missing, 0 failed\n");
    std::fs::write(folder.path().join("other/tiny/experiment.toml"), TINY.replace("1e-5", "2e-5")).expect("written");
    let output = run(&["sweep", "merge", "one", "other", "--out", "both"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("two versions of experiment tiny"), "{}", text(&output.stderr));
    std::fs::write(folder.path().join("one/tiny/points.jsonl"), "").expect("written");
    for arguments in [&["sweep", "status", "one"][..], &["plot", "one"], &["sweep", "merge", "one", "--out", "both"]] {
        let output = run(arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("one/tiny/points.jsonl is of a former version"), "{stderr}");
    }
}

/// A terminal takes control characters as commands, so a point from a stranger must have none.
#[test]
fn a_reason_can_not_command_the_terminal() {
    let folder = folder();
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    assert_eq!(run(&["sweep", "experiments/tiny.toml", "--out", "out"]).status.code(), Some(1));
    let name = points(&folder.path().join("out")).remove(0);
    let path = folder.path().join("out/points").join(&name);
    let good = std::fs::read_to_string(&path).expect("a point");
    let mut value: serde_json::Value = serde_json::from_str(&good).expect("JSON");
    value["outcome"] = serde_json::json!({ "failed": "\u{1b}[2J" });
    std::fs::write(&path, value.to_string()).expect("written");
    let output = run(&["sweep", "status", "out"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&name) && stderr.contains("control characters") && !stderr.contains('\u{1b}'), "{stderr}");
}

#[test]
fn parts_that_do_not_exist_are_refused() {
    for shard in ["0/4", "5/4", "a/b", "1", "/"] {
        refuses(&["sweep", "tiny.toml", "--shard", shard], &["--shard", shard, "valid: I/N"]);
    }
    refuses(&["sweep", "tiny.toml", "--shard", "1/2", "--point", "0"], &["--point", "--shard"]);
    refuses(&["sweep", "tiny.toml", "--point", "x y"], &["point is 'x y'", "32 digits"]);
    refuses(&["sweep", "tiny.toml", "--hash"], &["--list"]);
    refuses(&["sweep", "merge", "--out", "x"], &["<DIR>"]);
    refuses(&["sweep", "merge", "nowhere", "--out", "x"], &["nowhere", "No such file"]);
    refuses(&["sweep", "status", "."], &[". holds no results of contend sweep"]);
    refuses(&["sweep", "status", "x", "--seeds", "0"], &["seeds is 0; valid: 1 to 100"]);
    let folder = folder();
    let (status, shown, stderr) = sweep(folder.path(), &["--point", &"0".repeat(32)]);
    assert_eq!((status, shown.as_str()), (2, ""));
    assert!(stderr.contains("among the 15 of these experiments"), "{stderr}");
    std::fs::remove_file(folder.path().join("workloads/counters.toml")).expect("removed");
    let (status, _, stderr) = sweep(folder.path(), &[]);
    assert_eq!(status, 2);
    let path = "experiments/../workloads/counters.toml can't be read: No such file";
    assert!(stderr.contains("experiments/counters.toml: the workload file ") && stderr.contains(path), "{stderr}");
}
