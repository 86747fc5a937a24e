//! Each verb: its output, and its exit status.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{TINY, contend, contend_without_reader, refuses, text, validator};

/// Flags that make a run short.
const SHORT: [&str; 8] = ["--seconds", "0.05", "--windows", "2", "--warmup", "0.01", "--threads", "2"];

fn with_short<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    [arguments, &SHORT, &["--set", "ycsb.records=1000"]].concat()
}

#[test]
fn unknown_names_are_refused_with_the_known_ones() {
    refuses(&["compare", "--protocols", "sillo"], &["sillo", "silo", "2pl-nowait", "none"]);
    refuses(&["run", "--protocol", "ocx"], &["ocx", "occ", "silo"]);
    refuses(&["compare", "ycsb-x"], &["ycsb-x", "ycsb-a", "bank"]);
    refuses(&["compare", "--set", "ycsb.tehta=0.5"], &["ycsb.tehta", "ycsb.theta"]);
    refuses(&["compare", "--set", "ycsb.theta"], &["ycsb.theta", "NAME=VALUE"]);
    refuses(&["compare", "--index", "trie"], &["trie", "hash", "ordered"]);
    refuses(&["list", "protocol"], &["protocol", "protocols", "workloads"]);
    refuses(&["check", "no-such-file"], &["no-such-file"]);
    for history in ["{:type :ok, :f :txn, :value [[:append 1 1]]}", "[{\"index\":0,\"type\":\"ok\",\"value\":[]}]"] {
        let folder = TempDir::new().expect("a folder");
        let file = folder.path().join("history.edn");
        std::fs::write(&file, history).expect("written");
        refuses(&["check", file.to_str().expect("a name")], &["--format elle-append", "elle-register"]);
    }
    refuses(&["measure"], &["measure"]);
    refuses(&["compare", "--threds", "2"], &["--threds", "--threads"]);
}

#[test]
fn values_out_of_range_are_refused_with_the_range() {
    refuses(&["compare", "--threads", "0"], &["threads is 0", "1 to 1000"]);
    refuses(&["run", "--threads", "100000"], &["threads is 100000", "1 to 1000"]);
    refuses(&["compare", "--threads", "-1"], &["-1"]);
    refuses(&["compare", "--windows", "0"], &["windows is 0"]);
    refuses(&["compare", "--seconds", "0"], &["seconds is 0"]);
    refuses(&["compare", "--seconds", "nan"], &["seconds is NaN"]);
    refuses(&["compare", "--set", "ycsb.theta=1"], &["ycsb.theta", "below 1"]);
    refuses(&["compare", "--set", "ycsb.theta=1.5"], &["ycsb.theta", "1.5"]);
    refuses(&["compare", "--set", "ycsb.records=0"], &["ycsb.records", "from 1"]);
    refuses(&["compare", "--set", "ycsb.scan=0.7", "--set", "ycsb.insert=0.7"], &["ycsb.scan", "ycsb.insert"]);
    refuses(&["compare", "ycsb-e", "--index", "hash"], &["ycsb.scan", "--index ordered"]);
    refuses(&["compare", "--protocols", "none", "--set", "silo.wait=wait"], &["silo.wait", "silo"]);
    refuses(&["bench", "limit", "--threads", "0"], &["threads is 0"]);
    refuses(&["bench", "limit", "ycsb-c", "--protocols", "sillo"], &["sillo", "silo"]);
    refuses(&["explore", "--protocol", "silo+interleave=8"], &["silo+interleave=8", "exploration", "interleave=1"]);
    refuses(&["crash-test", "--protocol", "silo+interleave=2"], &["silo+interleave=2", "crash test", "interleave=1"]);
    refuses(&["kill-test", "--set", "interleave=auto"], &["kill test", "interleave=1"]);
    refuses(&["compare", "--machine", "abyss:4", "--limit"], &["--limit", "native"]);
    refuses(&["check", "x", "--isolation", "perfect"], &["perfect", "serializable"]);
}

#[test]
fn more_memory_than_there_is_is_refused_with_the_estimate() {
    refuses(&["compare", "--set", "ycsb.records=10G"], &["GiB", "silo", "available"]);
    refuses(&["run", "--set", "ycsb.records=1G", "--set", "ycsb.payload=65536"], &["GiB", "available"]);
}

#[test]
fn unwritable_outputs_are_refused_before_anything_runs() {
    refuses(&["compare", "--out", "/proc/nowhere"], &["/proc/nowhere"]);
    refuses(&["run", "--json", "/no/such/folder/result.json"], &["/no/such/folder/result.json"]);
    refuses(&["run", "--history", "/"], &["/", "folder"]);
    refuses(&["run", "--history", "-", "--csv", "-"], &["--csv - and --history - would both go to stdout"]);
}

#[test]
fn a_full_disk_loses_nothing_else() {
    if !Path::new("/dev/full").exists() {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let output = contend(folder.path(), &with_short(&["run", "--json", "/dev/full"]));
    assert_eq!(output.status.code(), Some(2), "no check has failed");
    assert!(text(&output.stderr).contains("/dev/full"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("silo commits"), "the table is shown all the same");
}

/// A disk that has no room for the log of the loaded rows ends a run before it begins.
#[test]
fn rows_that_can_not_be_made_durable_are_refused_before_the_run() {
    let folder = TempDir::new().expect("a folder");
    // No file may have more than 256 blocks, of 512 bytes or of 1 KiB by shell. The file of the
    // tables fits, a loader's does not.
    let limited = "ulimit -f 256; exec \"$0\" \"$@\"";
    for mode in ["epoch", "clr", "elr-group"] {
        let log = format!("log={mode}");
        let output = Command::new("sh")
            .args(["-c", limited, env!("CARGO_BIN_EXE_contend"), "run", "--dir", mode, "--set", &log])
            .args(["--set", "ycsb.records=100k", "--threads", "2", "--seconds", "0.1"])
            .current_dir(folder.path())
            .output()
            .expect("a shell");
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let message = "error: the rows that silo begins with can't be made durable: the log has stopped, and acknowledges nothing any more: can't ";
        assert!(stderr.starts_with(message) && stderr.lines().count() == 1, "{stderr}");
        assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    }
}

/// `contend compare | head -1` ends well and writes its files.
#[test]
fn a_reader_that_has_seen_enough_loses_nothing() {
    let folder = TempDir::new().expect("a folder");
    let output = contend_without_reader(folder.path(), &with_short(&["compare", "--no-verify"]));
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let latest = folder.path().join("contend-results/latest");
    assert!(latest.join("report.html").exists() && latest.join("results.json").exists());
}

#[test]
fn compare_writes_its_report_and_runs_again_from_it() {
    let folder = TempDir::new().expect("a folder");
    let some = "none,silo,2pl-nowait";
    let output = contend(folder.path(), &with_short(&["compare", "--out", ".", "--protocols", some]));
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    for part in ["none", "silo", "2pl-nowait", "serializable (", "promises nothing", "huge pages", "report.html"] {
        assert!(stdout.contains(part), "'{part}' is not in: {stdout}");
    }
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("the report");
    assert!(page.starts_with("<!doctype html>") && page.trim_end().ends_with("</html>"));
    assert!(page.contains(&format!("contend compare ycsb-a --protocols {some}")));
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("results.json")).expect("results"))
            .expect("JSON");
    assert!(result["protocols"].as_array().expect("a list").len() >= 3);
    assert_eq!(result["partial"], false);

    let again = contend(folder.path(), &["compare", "--from", "results.json", "--protocols", "silo", "--json", "-"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let second: Value = serde_json::from_slice(&again.stdout).expect("stdout is JSON and nothing else");
    assert_eq!(second["config"]["settings"], result["config"]["settings"]);
    assert_eq!(second["config"]["window_seconds"], result["config"]["window_seconds"]);
    assert_eq!(second["config"]["protocols"], serde_json::json!(["silo"]));
    assert!(text(&again.stderr).contains("silo"), "the table goes to stderr");
}

/// A protocol that is plainly slower is in a group of its own. The rounds end once that is known,
/// and the faster one is recommended. Few rounds tell nothing.
#[test]
fn a_comparison_tells_groups_and_what_to_take() {
    for precision in ["3", "0%", "-3%", "70%", "x%", "nan%", ""] {
        refuses(&["compare", "--precision", precision], &["--precision", "as in 3%; valid: 0.1% to 50%"]);
    }
    refuses(&["compare", "--protocols", "silo", "--precision", "3%"], &["silo is alone", "two protocols or more"]);
    refuses(&["compare", "--machine", "abyss:4", "--precision", "3%"], &["precision", "native", "--windows"]);
    let folder = TempDir::new().expect("a folder");
    let latest = folder.path().join("contend-results/latest");
    let slow = "silo,silo+read_phase.extension=fixed+read_phase.ns=300000";
    let compare = |windows: &str, more: &[&str]| {
        let mut arguments = vec!["compare", "--no-verify", "--seconds", "0.02", "--warmup", "0", "--threads", "2"];
        arguments.extend(["--set", "ycsb.records=1k", "--protocols", slow, "--windows", windows]);
        let output = contend(folder.path(), &[&arguments[..], more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let shown = compare("400", &[]);
    for part in [
        "of the first",
        "every ratio that was asked for is known",
        "silo is the fastest: ",
        "- Take silo on ycsb-a with 2 threads",
    ] {
        assert!(shown.contains(part), "'{part}' is not in: {shown}");
    }
    for part in [
        "rounds, with 95 % confidence; ",
        "- silo costs: ",
        "- Not tested: ",
        "ycsb.theta other than",
        "- To try next: ",
    ] {
        assert!(shown.contains(part), "'{part}' is not in: {shown}");
    }
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(latest.join("results.json")).expect("results")).expect("JSON");
    assert_eq!((&json["comparison"]["ended"], &json["comparison"]["first"]), (&"told".into(), &"silo".into()));
    let of_slow = &json["protocols"][1]["measured"];
    assert_eq!((&of_slow["group"], &of_slow["to_first"]["told_apart"]), (&2.into(), &true.into()));
    assert!(of_slow["windows"].as_array().expect("a list").len() < 400);
    let few = compare("2", &["--precision", "1%"]);
    assert!(few.contains("2 rounds tell nothing: one pair of entries needs 6 or more"), "{few}");
    assert!(!few.contains("Take silo"), "{few}");
    let page = std::fs::read_to_string(latest.join("report.html")).expect("the report");
    assert!(page.contains("--windows 2") && page.contains("--precision 1%"), "the command that does the same");
}

#[test]
fn more_threads_than_cores_are_allowed_and_said() {
    let folder = TempDir::new().expect("a folder");
    let many =
        ["run", "--threads", "64", "--seconds", "0.1", "--windows", "1", "--warmup", "0", "--set", "ycsb.records=1k"];
    let output = contend(folder.path(), &many);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("64 threads share") && stdout.contains("oversubscribed"), "{stdout}");
}

#[test]
fn a_recorded_history_passes_the_checker_and_a_spoilt_one_does_not() {
    let folder = TempDir::new().expect("a folder");
    let run = with_short(&["run", "ycsb-e", "--protocol", "2pl-nowait", "--history", "history.jsonl", "--verify"]);
    let output = contend(folder.path(), &run);
    assert_eq!(output.status.code(), Some(0), "{}{}", text(&output.stdout), text(&output.stderr));
    let output = contend(folder.path(), &["check", "history.jsonl"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{stdout}");
    assert!(stdout.contains("0 cycles") && stdout.contains("serializable: yes"), "{stdout}");

    let run = with_short(&["run", "ycsb-a", "--history", "-"]);
    let output = contend(folder.path(), &run);
    std::fs::write(folder.path().join("piped.jsonl"), &output.stdout).expect("a file");
    assert!(
        text(&output.stderr).contains("history: stdout") && !folder.path().join("-").exists(),
        "{}",
        text(&output.stderr)
    );
    let output = contend(folder.path(), &["check", "piped.jsonl"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));

    let content = std::fs::read_to_string(folder.path().join("history.jsonl")).expect("the history");
    let validator = validator("history");
    for line in content.lines() {
        let mut line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert!(validator.is_valid(&line), "{:?}: {line}", validator.iter_errors(&line).next());
        line["ops"][0]["version"] = "3".into();
        assert!(!validator.is_valid(&line), "a version is a number: {line}");
    }
    std::fs::write(folder.path().join("cut.jsonl"), &content[..content.len() - 20]).expect("a file");
    let output = contend(folder.path(), &["check", "cut.jsonl"]);
    let lines = content.lines().count();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&format!("line {lines}")), "{}", text(&output.stderr));
}

#[test]
fn a_lost_update_is_explained() {
    let folder = TempDir::new().expect("a folder");
    let lines = r#"{"txn":1,"worker":0,"ops":[{"op":"read","table":"t","key":"x","version":0},{"op":"write","table":"t","key":"x","version":1,"over":0}]}
{"txn":2,"worker":1,"ops":[{"op":"read","table":"t","key":"x","version":0},{"op":"write","table":"t","key":"x","version":2,"over":1}]}
"#;
    std::fs::write(folder.path().join("lost.jsonl"), lines).expect("a file");
    let output = contend(folder.path(), &["check", "lost.jsonl"]);
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stdout}");
    for part in ["G-single", "T1 --[ww t/x]--> T2 --[rw t/x]--> T1", "serializable: NO"] {
        assert!(stdout.contains(part), "'{part}' is not in: {stdout}");
    }
    let output = contend(folder.path(), &["check", "lost.jsonl", "--isolation", "read-committed", "--json"]);
    assert_eq!(output.status.code(), Some(0), "read committed allows it");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(json["kept"], true);
}

#[test]
fn lists_say_what_there_is() {
    let folder = TempDir::new().expect("a folder");
    let output = contend(folder.path(), &["list", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let names = |what: &str| -> Vec<String> {
        let list = json[what].as_array().expect("a list");
        list.iter().map(|entry| entry["name"].as_str().expect("a name").to_string()).collect()
    };
    assert!(names("protocols").contains(&"silo".into()) && names("workloads").contains(&"ycsb-f".into()));
    assert_eq!(names("indexes"), ["hash", "ordered"]);
    let entry = |what: &str, name: &str| {
        let list = json[what].as_array().expect("a list");
        list.iter().find(|entry| entry["name"] == name).cloned().unwrap_or_else(|| panic!("{name} is not listed"))
    };
    assert_eq!(entry("options", "engine.commit_time_updates")["short"], "cu");
    assert_eq!(entry("options", "msto.late")["former"], "mvcc.late");
    assert_eq!(entry("protocols", "timestamp-ordering")["former"], serde_json::json!(["to"]));
    for option in json["options"].as_array().expect("a list") {
        for field in ["name", "default", "valid", "meaning", "of"] {
            assert!(option[field].as_str().is_some_and(|text| !text.is_empty()), "{option}");
        }
    }
    let listed = text(&contend(folder.path(), &["list"]).stdout);
    for name in names("protocols").into_iter().chain(names("workloads")).chain(names("options")) {
        assert!(listed.contains(&name), "{name} is not listed");
    }
    let wide = Command::new(env!("CARGO_BIN_EXE_contend")).arg("list").env("COLUMNS", "400").output().expect("it runs");
    for part in ["engine.timestamp_splitting (short: ts)", "msto.late (formerly mvcc.late)", "msto (formerly mvcc)"] {
        assert!(text(&wide.stdout).contains(part), "'{part}' is not listed");
    }
    refuses(&["list", "options", "--protocol", "tictac"], &["unknown protocol 'tictac'; did you mean 'tictoc'?"]);
}

#[test]
fn the_limits_of_the_machine_are_measured() {
    let folder = TempDir::new().expect("a folder");
    let output = contend(folder.path(), &["bench", "limit", "--rounds", "1", "--seconds", "0.01", "--json"]);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for field in ["dependent_reads_per_second", "prefetched_reads_per_second"] {
        assert!(json[field]["median"].as_f64().is_some_and(|rate| rate > 0.0), "{json}");
    }
    assert!(!json["increments_per_second"].as_array().expect("a list").is_empty());
    assert!(json.get("memory_limits").is_none(), "no workload was named");
    let of_workload = [
        "bench",
        "limit",
        "ycsb-c",
        "--protocols",
        "silo,silo+interleave=2",
        "--set",
        "ycsb.records=5k",
        "--rounds",
        "1",
    ];
    let output = contend(folder.path(), &[&of_workload[..], &["--seconds", "0.05", "--json"]].concat());
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    for entry in ["silo", "silo+interleave=2"] {
        assert!(json["memory_limits"][entry]["share"].as_f64().is_some_and(|share| share > 0.0), "{json}");
    }
    let output = contend(folder.path(), &[&of_workload[..], &["--seconds", "0.05"]].concat());
    let shown = text(&output.stdout);
    assert!(shown.contains("silo+interleave=2 reaches ") && shown.contains("prefetched 32 at a time"), "{shown}");
}

/// Ctrl-C stops a run at once, and its result so far is shown.
#[test]
fn an_interrupted_run_shows_what_it_has() {
    let folder = TempDir::new().expect("a folder");
    let arguments = [
        "run",
        "--seconds",
        "0.05",
        "--windows",
        "10000",
        "--warmup",
        "0",
        "--set",
        "ycsb.records=1k",
        "--json",
        "r.json",
    ];
    let child = Command::new(env!("CARGO_BIN_EXE_contend"))
        .args(arguments)
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    std::thread::sleep(std::time::Duration::from_secs(3));
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(killed.success());
    let output = child.wait_with_output().expect("it ends");
    let stdout = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{stdout}{}", text(&output.stderr));
    assert!(stdout.contains("PARTIAL") && stdout.contains("silo"), "{stdout}");
    let result: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("r.json")).expect("the result"))
            .expect("JSON");
    assert_eq!(result["partial"], true);
}

#[test]
fn simulated_runs_say_so_and_bad_machines_are_refused() {
    refuses(&["run", "--machine", "abiss:4"], &["unknown machine 'abiss'", "native", "host", "abyss", "xeon-8176x4"]);
    refuses(&["run", "--machine", "abyss:1025"], &["1025 cores", "1 to 1024"]);
    refuses(&["run", "--machine", "abyss:x"], &["'x' is no number of cores"]);
    refuses(&["run", "--machine", "abyss:4", "--threads", "2000"], &["threads on abyss is 2000", "1 to 1024"]);
    refuses(&["run", "--machine", "no-such.toml"], &["no-such.toml"]);
    refuses(&["run", "--set", "chip.lookahead=2"], &["chip.lookahead"]);
    refuses(&["run", "--machine", "abyss:4", "--set", "chip.lookahead=0"], &["chip.lookahead", "from 1"]);
    refuses(&["run", "--set", "chip.work=2"], &["chip.work", "--machine CHIP"]);
    refuses(&["run", "--machine", "abyss:4", "--set", "chip.work=1001"], &["'1001'", "chip.work", "1 to 1000"]);
    refuses(&["bench", "timestamps", "--set", "chip.work=2"], &["unknown option 'chip.work'", "timestamp.batch"]);
    refuses(
        &["bench", "timestamps", "--machine", "abyss:4", "--set", "chip.wrok=2"],
        &["unknown option 'chip.wrok'", "chip.work"],
    );
    refuses(&["run", "--machine", "native:4"], &["'native:4'", "--threads", "CHIP:CORES"]);
    refuses(&["compare", "--protocols", "silo+cu=on+cu=off"], &["'cu' is set twice, to on and to off"]);
    let folder = TempDir::new().expect("a folder");
    let arguments = ["run", "ycsb-a", "--machine", "abyss:8", "--set", "ycsb.records=1000", "--json", "r.json"];
    let output = contend(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    let first = shown.lines().next().unwrap_or_default();
    assert!(first.contains("SIMULATED on abyss, 8 cores") && first.contains("simulated time"), "{first}");
    assert!(shown.contains("accesses simulated in") && shown.contains("ts alloc"), "{shown}");
    let again = contend(folder.path(), &["run", "--from", "r.json", "--json", "again.json"]);
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let hash = |file: &str| {
        let json: Value =
            serde_json::from_str(&std::fs::read_to_string(folder.path().join(file)).expect("a file")).expect("JSON");
        assert_eq!(json["environment"]["machine"], "abyss:8");
        json["protocols"][0]["measured"]["simulation"]["trace_hash"].clone()
    };
    assert_eq!(hash("r.json"), hash("again.json"), "another process does the same");
}

#[test]
fn an_exploration_ends_with_its_table_and_a_found_schedule_replays() {
    refuses(&["explore", "--strategy", "pct"], &["unknown strategy 'pct'", "pct:DEPTH", "exhaustive:PREEMPTIONS"]);
    refuses(&["explore", "--cores", "0"], &["cores is 0", "1 to 64"]);
    refuses(&["explore", "--workload", "litmus-x"], &["litmus-x", "litmus-counter"]);
    refuses(&["explore", "--replay", "0x5,b"], &["'b' is no part of a schedule"]);
    refuses(&["explore", "--budget", "10 parsecs"], &["parsecs"]);
    let folder = TempDir::new().expect("a folder");
    let arguments = ["explore", "--workload", "litmus-write-skew", "--schedules", "200", "--json", "r.json"];
    let output = contend(folder.path(), &arguments);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("serializable: nothing wrong found") && shown.contains("litmus-write-skew"), "{shown}");
    let json: Value =
        serde_json::from_str(&std::fs::read_to_string(folder.path().join("r.json")).expect("a file")).expect("JSON");
    let none =
        json.as_array().expect("a list").iter().find(|entry| entry["protocol"] == "none").expect("it is explored");
    let found = &none["found"];
    let (seed, schedule) = (found["seed"].to_string(), found["schedule"].as_str().expect("a schedule"));
    let replay =
        ["explore", "--protocol", "none", "--workload", "litmus-write-skew", "--seed", &seed, "--replay", schedule];
    let output = contend(folder.path(), &replay);
    let shown = text(&output.stdout);
    assert!(shown.contains(found["verdict"].as_str().expect("a verdict")), "{shown}");
    assert!(shown.contains("core 0") && shown.contains("item[0]") && shown.contains("--replay"), "{shown}");
}

#[test]
fn what_is_found_is_shown_step_by_step_with_the_command_that_replays_it() {
    let folder = TempDir::new().expect("a folder");
    for (protocol, workload, verdict, cycle) in [
        (
            "none",
            "litmus-lost-update",
            "none on litmus-lost-update: promises nothing: found G-single",
            "lost update, a cycle",
        ),
        ("si", "litmus-write-skew", "si on litmus-write-skew: G2-item, which snapshot allows", "write skew, a cycle"),
    ] {
        let output = contend(folder.path(), &["explore", "--protocol", protocol, "--workload", workload]);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "a promise is kept: {shown}");
        for part in [verdict, cycle, "--[rw item/", "core 0", "core 1", "item[0]", "shrunk from", "the same again:"] {
            assert!(shown.contains(part), "'{part}' is not in: {shown}");
        }
        let command = shown.lines().find_map(|line| line.strip_prefix("the same again: contend ")).expect("a command");
        let replayed = contend(folder.path(), &command.split(' ').collect::<Vec<_>>());
        let again = text(&replayed.stdout);
        let steps =
            |text: &str| text.lines().filter(|line| line.contains("item[")).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(replayed.status.code(), Some(0));
        assert!(again.contains(verdict), "{again}");
        assert_eq!(steps(&again), steps(&shown), "the same steps");
    }
    // If nothing is wrong, an interleaving is shown only with --show.
    let sound = ["explore", "--protocol", "silo", "--workload", "litmus-write-skew", "--schedules", "50"];
    let shown = text(&contend(folder.path(), &sound).stdout);
    assert!(shown.contains("nothing wrong found") && !shown.contains("the same again"), "{shown}");
    let shown = text(&contend(folder.path(), &[&sound[..], &["--show"]].concat()).stdout);
    for part in ["silo on litmus-write-skew: nothing wrong (execution 1;", "core 0", "the same again:", "--replay"] {
        assert!(shown.contains(part), "'{part}' is not in: {shown}");
    }
    // Several protocols show allowed anomalies only with --show.
    let many = ["explore", "--protocol", "none,si", "--workload", "litmus-write-skew", "--schedules", "50"];
    let shown = text(&contend(folder.path(), &many).stdout);
    assert!(!shown.contains("the same again"), "{shown}");
    let shown = text(&contend(folder.path(), &[&many[..], &["--show"]].concat()).stdout);
    assert_eq!(shown.matches("the same again").count(), 2, "{shown}");
    refuses(&["explore", "--show", "all"], &["all"]);
}

#[test]
fn an_anomaly_that_is_allowed_is_drawn_by_a_run_and_in_the_report() {
    let folder = TempDir::new().expect("a folder");
    let hot = ["--seconds", "0.01", "--windows", "1", "--warmup", "0", "--threads", "4", "--set", "ycsb.records=20"];
    let run = [&["run", "ycsb-f", "--protocol", "si", "--verify"][..], &hot].concat();
    let output = contend(folder.path(), &run);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "its promise is kept: {shown}");
    assert!(
        shown.contains("si: found G2") && shown.contains("which its promise allows\n") && shown.contains("--> T"),
        "{shown}"
    );
    let compare = [&["compare", "ycsb-f", "--protocols", "si", "--out", "out"][..], &hot].concat();
    let output = contend(folder.path(), &compare);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = std::fs::read_to_string(folder.path().join("out/report.html")).expect("a report");
    assert!(page.contains("A cycle of dependencies: T") && page.contains("--&gt; T"), "the cycle is in the report");
}

#[test]
fn histories_of_elle_are_checked() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write(
        "skew.edn",
        "{:type :ok, :process 0, :f :txn, :value [[:r x []] [:append y 1]]}
         {:type :ok, :process 1, :f :txn, :value [[:r y []] [:append x 1]]}
         {:type :ok, :process 1, :f :txn, :value [[:r x [1]] [:r y [1]]]}",
    );
    let output = contend(folder.path(), &["check", "--format", "elle-append", "skew.edn"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}");
    for part in ["G2-item: write skew", "T1 --[rw list/", "serializable: NO", "3 committed", "None shown is no proof"] {
        assert!(shown.contains(part), "'{part}' is not in: {shown}");
    }
    let snapshot = ["check", "--format", "elle-append", "skew.edn", "--isolation", "snapshot", "--json"];
    let output = contend(folder.path(), &snapshot);
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!((output.status.code(), &json["kept"]), (Some(0), &Value::Bool(true)));
    assert!(json["inferred"].as_array().is_some_and(|notes| notes.len() == 3), "{json}");

    write(
        "good.json",
        r#"[{"type":"ok","process":0,"value":[["w","x",1]]},{"type":"ok","process":1,"value":[["r","x",1]]}]"#,
    );
    let output = contend(folder.path(), &["check", "--format", "elle-register", "good.json"]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}");
    assert!(
        shown.contains("serializable: nothing found against it") && !shown.contains("serializable: yes"),
        "{shown}"
    );

    for (arguments, parts) in [
        (
            ["elle-append", "good.json"],
            &["good.json: operation 1: unknown operation 'w' (of --format elle-register)"][..],
        ),
        (["elle-list", "good.json"], &["unknown format 'elle-list'", "contend, elle-append, elle-register"]),
        (["contend", "skew.edn"], &["skew.edn: line 1"]),
        (["elle-append", "none.edn"], &["none.edn"]),
        (["elle-append", "/dev/null"], &["/dev/null: no transaction is in it"]),
    ] {
        let output = contend(folder.path(), &["check", "--format", arguments[0], arguments[1]]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty() && parts.iter().all(|part| stderr.contains(part)), "{arguments:?}: {stderr}");
    }
    let help = text(&contend(folder.path(), &["check", "--help"]).stdout);
    for part in ["elle-append", "docs/history.md", "\"over\":3", "Exit status"] {
        assert!(help.contains(part), "'{part}' is not in: {help}");
    }
}

#[test]
fn a_sweep_keeps_its_points_and_is_drawn_again() {
    let folder = TempDir::new().expect("a folder");
    let write = |text: &str| std::fs::write(folder.path().join("tiny.toml"), text).expect("written");
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    write(&TINY.replace("name = \"threads\"", "name = \"cores\""));
    let bad = run(&["sweep", "tiny.toml"]);
    assert_eq!(bad.status.code(), Some(2));
    let complaint = text(&bad.stderr);
    assert!(complaint.contains("tiny.toml: line 13, column 8: unknown axis 'cores'"), "{complaint}");
    write(TINY);
    let first = run(&["sweep", "tiny.toml", "--out", "out"]);
    let shown = text(&first.stdout);
    assert_eq!(first.status.code(), Some(1), "one fails: {shown}{}", text(&first.stderr));
    assert!(shown.contains("3 points measured, 0 kept") && shown.contains("1 holds, 1 fails"), "{shown}");
    assert!(shown.contains("T(add,1) = "), "the numbers are said: {shown}");
    for file in ["points.csv", "figure.svg", "index.html", "experiment.toml"] {
        assert!(folder.path().join("out/tiny").join(file).is_file(), "{file}");
    }
    let second = text(&run(&["sweep", "tiny.toml", "--out", "out"]).stdout);
    assert!(second.contains("0 points measured, 3 kept"), "{second}");
    std::fs::remove_file(folder.path().join("out/tiny/figure.svg")).expect("removed");
    assert_eq!(run(&["plot", "out"]).status.code(), Some(1));
    assert!(folder.path().join("out/tiny/figure.svg").is_file());
    write(&TINY.replace("1e-5", "2e-5"));
    let other = text(&run(&["sweep", "tiny.toml", "--out", "out"]).stdout);
    assert!(other.contains("3 points measured, 0 kept"), "other windows make other points: {other}");
    refuses(&["sweep", "tiny.toml", "--seeds", "0"], &["seeds is 0; valid: 1 to 100"]);
    refuses(&["sweep", "tiny.toml", "--seeds", "101"], &["seeds is 101; valid: 1 to 100"]);
    refuses(&["sweep", "tiny.toml", "--seeds", "x"], &["--seeds", "'x'"]);
    refuses(&["plot", "."], &["no results of contend sweep"]);
    refuses(&["sweep", "no-such.toml"], &["no-such.toml"]);
}

/// An experiment with windows so short that few transactions commit, even after the sweep has
/// lengthened them as far as it may.
const FEW: &str = r#"
id = "few"
title = "Few commits"
question = "q"
source = "s"
[run]
workload = "ycsb"
machine = "abyss"
seconds = 3e-6
warmup = 0.0
windows = 1
[run.set]
"ycsb.records" = "1000"
[[axis]]
name = "threads"
values = [1, 2]
[[series]]
name = "Silo"
protocol = "silo"
[[assertion]]
id = "few.1"
paper = "two are faster"
holds = 'T("Silo",2) > T("Silo",1)'
"#;

#[test]
fn what_few_commits_decide_is_not_told_and_seeds_are_added() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("few.toml"), FEW).expect("written");
    let run = |arguments: &[&str]| text(&contend(folder.path(), arguments).stdout);
    let first = run(&["sweep", "few.toml", "--out", "out"]);
    assert!(first.contains("commits, and 200 are needed: ") && first.contains("1 not told"), "{first}");
    let more = run(&["sweep", "few.toml", "--out", "out", "--seeds", "3"]);
    assert!(more.contains("4 points measured, 2 kept"), "{more}");
    let table = std::fs::read_to_string(folder.path().join("out/few/points.csv")).expect("the table");
    let seeds = table.lines().skip(1).map(|line| line.rsplit(',').nth(1));
    assert!(seeds.clone().count() == 2 && seeds.clone().all(|seeds| seeds == Some("3")), "{table}");
}

/// The log of a durable run is recovered and printed, and another run does not overwrite it.
#[test]
fn a_log_is_written_recovered_and_printed() {
    let folder = TempDir::new().expect("a folder");
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    let durable = with_short(&["run", "ycsb-b", "--protocol", "mvcc", "--set", "log=epoch", "--dir", "log"]);
    let output = run(&durable);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let shown = text(&output.stdout);
    assert!(shown.contains("log bytes of a commit") && shown.contains("durable after p50"), "{shown}");
    let again = run(&durable);
    assert_eq!(again.status.code(), Some(2));
    assert!(text(&again.stderr).contains("log has a log already"), "{}", text(&again.stderr));
    for arguments in [&["recover", "log", "--check"][..], &["recover", "log"], &["recover", "log"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(text(&output.stdout).starts_with("recovered 1000 rows up to epoch "), "{}", text(&output.stdout));
    }
    let output = run(&["log", "dump", "log", "--limit", "3"]);
    let dump = text(&output.stdout);
    assert!(dump.contains("table 0 'usertable': keys of 1 word") && dump.contains("of a checkpoint"), "{dump}");
    assert_eq!(dump.lines().filter(|line| line.starts_with("  epoch ")).count(), 3, "{dump}");
    // The message names the place of the damage.
    let name = dump.lines().find(|line| line.contains("of a checkpoint")).and_then(|line| line.split(':').next());
    let path = folder.path().join(name.expect("a file"));
    let bytes = std::fs::read(&path).expect("a file");
    for (place, why) in [(30, "byte 0: the checksum of its header is wrong"), (2000, ": the checksum is wrong")] {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        std::fs::write(&path, damaged).expect("a file of one's own");
        let output = run(&["recover", "log", "--check"]);
        assert_eq!(output.status.code(), Some(2));
        let error = text(&output.stderr);
        assert!(error.contains("is damaged at ") && error.contains(why), "{error}");
    }
    std::fs::write(&path, bytes).expect("a file of one's own");
    // A reader needs no permission to write, and changes nothing. The checkpoint is about as long
    // as its rows.
    let of_files = || {
        let entries =
            std::fs::read_dir(folder.path().join("log")).expect("a folder").map(|entry| entry.expect("a file"));
        let mut files: Vec<_> = entries.map(|file| (file.path(), file.metadata().expect("a file").len())).collect();
        files.sort();
        files
    };
    let before = of_files();
    let total: u64 = before.iter().map(|(_, bytes)| bytes).sum();
    assert!(total < 500_000, "{before:?}");
    let allow = |file: u32, folder_mode: u32| {
        use std::os::unix::fs::PermissionsExt;
        let set = |path: &Path, mode| std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
        before.iter().for_each(|(path, _)| set(path, file).expect("a file of one's own"));
        set(&folder.path().join("log"), folder_mode).expect("a folder of one's own");
    };
    allow(0o400, 0o500);
    for arguments in [&["recover", "log", "--check"][..], &["log", "dump", "log", "--limit", "3"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    }
    allow(0o600, 0o700);
    assert_eq!(of_files(), before);
    // In a folder without a log, none is begun.
    std::fs::create_dir(folder.path().join("empty")).expect("a new folder");
    for arguments in [&["recover", "empty"][..], &["recover", "empty", "--check"], &["log", "dump", "empty"]] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("empty/ has no log"), "{}", text(&output.stderr));
        assert_eq!(std::fs::read_dir(folder.path().join("empty")).expect("it is there").count(), 0);
    }
    refuses(&["recover", "no-such-folder"], &["can't open no-such-folder"]);
    refuses(&["log", "dump", "no-such-folder"], &["can't open no-such-folder"]);
    refuses(&["run", "--set", "log=always"], &["log", "always", "off, epoch"]);
    refuses(&["run", "--dir", "log"], &["--dir", "--set log=epoch"]);
    let on_chip = ["run", "--machine", "abyss:4", "--set", "log=epoch", "--set", "log.device=file"];
    refuses(&on_chip, &["log=epoch", "native", "log.device=emulated"]);
    refuses(&["run", "--protocol", "bamboo", "--set", "log=clr"], &["log=clr does not go with bamboo"]);
    refuses(&["run", "--set", "log=elr", "--set", "log.lsn=off"], &["can't be recovered", "log.device=emulated"]);
    refuses(&["run", "--set", "log=epoch", "--dir", "/proc/none"], &["can't create /proc/none"]);
}

#[test]
fn crashes_are_tested() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    let output = run(&["crash-test", "--protocol", "silo,bamboo", "--workload", "ycsb-a", "--seeds", "3"]);
    let table = text(&output.stdout);
    assert_eq!((output.status.code(), table.matches("nothing is lost").count()), (Some(0), 8), "{table}");
    let output = run(&["crash-test", "--protocol", "silo", "--seeds", "1", "--set", "log=elr", "--json", "-"]);
    assert_eq!(text(&output.stdout).matches("\"log\": \"elr\"").count(), 3, "{}", text(&output.stdout));
    for (args, needs) in [
        (["--cores", "99"], "1 to 16"),
        (["--crashes", "0"], "1 to 100"),
        (["--workload", "nope"], "unknown workload 'nope'"),
        (["--set", "log=nope"], "off, epoch, clr"),
    ] {
        let output = run(&["crash-test", "--protocol", "silo", args[0], args[1]]);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(needs), "{error}");
    }
}

/// Real processes are killed, and with --mixed each protocol goes on with the database of the last;
/// nothing is lost.
#[test]
fn processes_are_killed() {
    let folder = tempfile::tempdir().expect("a folder");
    let run = |arguments: &[&str]| contend(folder.path(), arguments);
    let output = run(&["kill-test", "--protocol", "silo,tictoc", "--kills", "6", "--life-ms", "60", "--dir", "kills"]);
    let table = text(&output.stdout);
    assert_eq!((output.status.code(), table.matches("nothing is lost").count()), (Some(0), 6), "{table}");
    let left = std::fs::read_dir(folder.path().join("kills")).expect("the folder").count();
    assert_eq!(left, 0, "databases that are right are removed");
    let output = run(&["kill-test", "--mixed", "--kills", "24", "--life-ms", "120", "--json", "-"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    assert_eq!(
        (output.status.code(), &json[0]["kills"], &json[0]["wrong"]),
        (Some(0), &24.into(), &().into()),
        "{json}"
    );
    assert!(json[0]["acknowledged"].as_u64() > Some(0), "{json}");
    for (args, needs) in [
        (["--durability", "always"], "valid: epoch, early, conservative"),
        (["--keys", "1"], "2 to 1000000"),
        (["--threads", "0"], "1 to 256"),
        (["--life-ms", "0"], "1 to 60000"),
        (["--protocol", "nope"], "unknown protocol 'nope'"),
        (["--index", "nope"], "hash, ordered"),
    ] {
        let output = run(&["kill-test", args[0], args[1]]);
        let error = text(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(needs), "{error}");
    }
}

#[test]
fn memory_is_watched() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = contend(folder.path(), &["soak", "--protocol", "silo", "--threads", "4", "--seconds", "1"]);
    // One second is too short to judge growth.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("silo"), "{}", text(&output.stdout));
    let output = contend(folder.path(), &["soak", "--seconds", "0"]);
    assert!(
        output.status.code() == Some(2) && text(&output.stderr).contains("valid: 1 to"),
        "{}",
        text(&output.stderr)
    );
}

/// Every experiment of the repository can be read, and has the id of its file's name.
#[test]
fn the_experiments_of_the_repository_are_valid() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a file");
        // The chip `host` would be measured first, which takes seconds; another chip serves here.
        let text = text.replace("machine = \"host\"", "machine = \"xeon-e5-2695v2\"");
        let experiment =
            contend_lab::experiment::Experiment::from_toml(&path.display().to_string(), &text).expect("valid");
        assert_eq!(path.file_stem().and_then(|stem| stem.to_str()), Some(experiment.id.as_str()));
        count += 1;
    }
    assert!(count >= 12, "{count} experiments");
}
