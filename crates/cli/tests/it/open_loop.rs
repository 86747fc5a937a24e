//! Open loops: `--rate` and its flags.

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, keeps_schema, refuses, text};

/// Runs a command that succeeds. Returns what it printed.
fn good(folder: &TempDir, arguments: &[&str]) -> String {
    let output = contend(folder.path(), arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

/// Returns the JSON that a command prints.
fn json(folder: &TempDir, arguments: &[&str]) -> Value {
    serde_json::from_str(&good(folder, arguments)).expect("JSON")
}

/// One transaction in a thousand holds its worker for a millisecond.
const STALL: &str = r#"
name = "stall"
schema = "create table t (id bigint primary key, n bigint);"
[rows]
t = 1000
[[transaction]]
name = "touch"
script = '''
\set i random(0, rows(t) - 1)
\set stall random(1, 1000)
update t set n = n + 1 where id = :i;
\if :stall = 1
  \sleep 1 ms
\endif
'''
"#;

#[test]
fn a_stall_is_in_the_response_times_of_those_that_it_delays() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("stall.toml"), STALL).expect("written");
    let run = ["run", "stall.toml", "--machine", "abyss:1", "--protocol", "silo", "--json", "-", "--windows", "5"];
    let windows = [&run[..], &["--seconds", "0.2", "--warmup", "0.01"]].concat();
    let closed = json(&folder, &windows);
    let closed = &closed["protocols"][0]["measured"];
    // 99 of 100 transactions do not stall. The closed loop starts none meanwhile.
    assert!(closed["latency_ns_p99"].as_u64().expect("a time") < 20_000, "{closed}");
    // At 50,000 a second a stall delays 50 transactions, which is a twentieth of all. They wait for
    // up to a millisecond, all times equally often. So one in a hundred waits for four fifths of
    // it, and more where a stall follows on another.
    let open = json(&folder, &[&windows[..], &["--rate", "50k"]].concat());
    let open = &open["protocols"][0]["measured"]["open_loop"];
    let p99 = open["response"]["p99_ns"].as_u64().expect("a time");
    assert!((700_000..1_100_000).contains(&p99), "{open}");
    assert!(open["response"]["max_ns"].as_u64().expect("a time") >= 1_000_000 && open["saturated"] == false, "{open}");
}

#[test]
fn an_open_loop_prints_lines_writes_distributions_and_repeats() {
    let folder = TempDir::new().expect("a folder");
    let run = ["run", "ycsb-c", "--machine", "abyss:2", "--set", "ycsb.records=1000", "--warmup", "1e-4"];
    let ramp = ["--rate", "100k..900k", "--ramp", "2ms", "--every", "500us", "--arrivals", "constant"];
    let out = ["--json", "r.json", "--hdr", "hdr"];
    let shown = good(&folder, &[&run[..], &ramp, &out].concat());
    let lines: Vec<&str> = shown.lines().filter(|line| line.contains("offered")).collect();
    assert!(lines.len() > 4 && lines[0].contains("0.0005 s") && lines[3].contains("0.002 s"), "{shown}");
    let response = std::fs::read_to_string(folder.path().join("hdr/silo.response.hgrm")).expect("responses");
    assert!(response.contains("#[Mean") && folder.path().join("hdr/silo.hgrm").exists(), "{response}");
    let read = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(folder.path().join(name)).expect("a result")).expect("JSON")
    };
    let first = read("r.json");
    assert_eq!(first["config"]["windows"], 4);
    assert_eq!(first["config"]["arrivals"]["process"], "constant");
    good(&folder, &["run", "--from", "r.json", "--json", "again.json"]);
    let figures = |result: &Value| result["protocols"][0]["measured"]["open_loop"].clone();
    assert_eq!(figures(&first), figures(&read("again.json")), "a simulation repeats");
    // The flags that the page shows give the same run again.
    let compare = ["compare", "ycsb-c", "--protocols", "silo", "--machine", "abyss:2", "--set", "ycsb.records=1000"];
    good(&folder, &[&compare[..], &["--rate", "400k", "--late", "20us", "--windows", "2", "--out", "c"]].concat());
    let page = std::fs::read_to_string(folder.path().join("c/report.html")).expect("a page");
    assert!(page.contains("--rate 400000 --late 0.00002") && page.contains("Open loop"), "no flags of the open loop");
}

#[test]
fn an_interval_log_has_each_window_of_each_entry() {
    let folder = TempDir::new().expect("a folder");
    let run = ["compare", "ycsb-c", "--protocols", "silo,mvto", "--machine", "abyss:2", "--no-verify", "--out", "o"];
    good(&folder, &[&run[..], &["--windows", "3", "--set", "ycsb.records=1000", "--hdr", "all.hlog"]].concat());
    let log = std::fs::read_to_string(folder.path().join("all.hlog")).expect("a log");
    for entry in ["silo", "mvto"] {
        let of_entry: Vec<&str> = log.lines().filter(|line| line.starts_with(&format!("Tag={entry}/"))).collect();
        let tag = of_entry[0].split(',').next().expect("a tag");
        // A second of the log is a millisecond of the chip. A window has 0.1 of them.
        let begins: Vec<&str> = of_entry
            .iter()
            .filter(|line| line.starts_with(&format!("{tag},")))
            .map(|line| &line[tag.len()..])
            .collect();
        assert_eq!(begins.len(), 3, "{log}");
        for (begin, expected) in begins.iter().zip([",0.000,0.100,", ",0.100,0.100,", ",0.200,0.100,"]) {
            assert!(begin.starts_with(expected) && begin.contains(",HISTF"), "{begin}");
        }
    }
    assert!(log.contains("millisecond of the chip") && !log.contains("/response"), "{log}");
    refuses(&["run", "ycsb-c", "--hdr", "/proc/nowhere.hlog"], &["can't write /proc/nowhere.hlog"]);
    refuses(&["run", "ycsb-c", "--hdr", "no-such-folder/x.hlog"], &["can't write no-such-folder/x.hlog"]);
    std::fs::create_dir(folder.path().join("d.hlog")).expect("a folder");
    let output = contend(folder.path(), &["run", "ycsb-c", "--hdr", "d.hlog"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("can't write d.hlog: it is a folder"), "{}", text(&output.stderr));
    // The result is still shown where the log has no room.
    std::os::unix::fs::symlink("/dev/full", folder.path().join("full.hlog")).expect("a link");
    let small = ["run", "ycsb-c", "--machine", "abyss:2", "--windows", "2", "--hdr", "full.hlog"];
    let output = contend(folder.path(), &small);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("can't write full.hlog: No space left on device"), "{stderr}");
    assert!(text(&output.stdout).contains("silo"), "the figures are there");
}

#[test]
fn a_series_of_rates_comes_from_a_file() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("rates.csv"), "second,rate\n0,0\n0.001,1M\n0.002,0\n").expect("written");
    let run = ["run", "ycsb-c", "--machine", "abyss:2", "--set", "ycsb.records=1000", "--rate", "rates.csv"];
    let result = json(&folder, &[&run[..], &["--json", "-"]].concat());
    let offered = result["protocols"][0]["measured"]["open_loop"]["offered"].as_u64().expect("a number");
    assert!((900..1100).contains(&offered), "the area is 1000: {offered}");
    std::fs::write(folder.path().join("bad.csv"), "0,10\n0,20\n").expect("written");
    let output = contend(folder.path(), &["run", "ycsb-c", "--rate", "bad.csv"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("bad.csv: the time 0 s does not come after 0 s"));
}

#[test]
fn flags_of_an_open_loop_are_checked() {
    for (rate, part) in [
        ("0", "'0' is no rate per second; valid: above 0, to 100M"),
        ("-1", "'-1' is no rate"),
        ("1e12", "'1e12' is no rate"),
        ("fast", "'fast' is no rate"),
        ("400k..50k", "valid: --ramp TIME"),
        ("1..x", "'x' is no rate"),
        ("none.csv", "can't read 'none.csv'"),
    ] {
        refuses(&["run", "ycsb-c", "--rate", rate], &["--rate", part]);
    }
    refuses(&["run", "ycsb-c", "--late", "1ms"], &["--late 1ms belongs to an open loop", "--rate RATE"]);
    refuses(&["run", "ycsb-c", "--ramp", "1s"], &["--ramp 1s belongs to an open loop"]);
    refuses(&["run", "ycsb-c", "--arrivals", "poisson"], &["belongs to an open loop"]);
    refuses(&["run", "ycsb-c", "--rate", "1k", "--ramp", "1s"], &["--ramp is for a rate that changes"]);
    refuses(&["run", "ycsb-c", "--rate", "1..2", "--ramp", "0"], &["--ramp: 0 s; valid: above 0"]);
    refuses(&["run", "ycsb-c", "--rate", "1k", "--arrivals", "x"], &["valid: poisson, constant"]);
    refuses(&["run", "ycsb-c", "--rate", "1k", "--late", "0"], &["--late", "valid: above 0"]);
    refuses(&["run", "ycsb-c", "--rate", "1k", "--late", "-3ms"], &["--late"]);
    refuses(&["run", "ycsb-c", "--every", "0"], &["--every: '0' is no length"]);
    refuses(&["run", "ycsb-c", "--every", "3parsecs"], &["unknown unit 'parsecs'; valid: us, ms, s"]);
    refuses(&["run", "ycsb-c", "--rate", "1k", "--set", "interleave=auto"], &["interleave=auto", "1 to 32"]);
    let precise = ["compare", "ycsb-c", "--protocols", "silo,mvto", "--rate", "1k", "--precision", "3%"];
    refuses(&precise, &["--precision without --rate"]);
}

#[test]
fn the_highest_rate_is_searched_and_its_limits_are_checked() {
    let folder = TempDir::new().expect("a folder");
    let search = ["saturate", "ycsb-c", "--machine", "abyss:2", "--set", "ycsb.records=1000", "--transactions", "1000"];
    let shown = good(&folder, &[&search[..], &["--p99", "20us", "--out", "s", "--json", "s.json"]].concat());
    assert!(shown.contains("passes  p99") && shown.contains("silo keeps p99 of at most 20.0 µs"), "{shown}");
    let page = std::fs::read_to_string(folder.path().join("s/saturation.html")).expect("a page");
    assert!(page.contains("contend saturate ycsb-c --machine abyss:2 --protocols silo"), "the page has its command");
    keeps_schema("saturation", &std::fs::read_to_string(folder.path().join("s.json")).expect("a file"));
    for (flag, value, part) in [
        ("--p99", "0", "valid: above 0"),
        ("--p99", "soon", "'soon' is no limit"),
        ("--precision", "0%", "valid: 1% to 100%"),
        ("--transactions", "5", "valid: 1000 to"),
        ("--arrivals", "x", "valid: poisson, constant"),
        ("--protocols", "nope", "unknown protocol 'nope'"),
    ] {
        refuses(&["saturate", "ycsb-c", flag, value], &[part]);
    }
}
