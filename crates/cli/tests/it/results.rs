//! Results in files: where they go, how two of them are compared, and which forms they have.

use std::path::{Path, PathBuf};

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, refuses, text};

fn with_short<'a>(arguments: &[&'a str]) -> Vec<&'a str> {
    let short = ["--seconds", "0.02", "--windows", "5", "--warmup", "0.01", "--threads", "2"];
    [arguments, &short, &["--set", "ycsb.records=1000"]].concat()
}

/// Returns the folders of runs, sorted.
fn runs(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder.join("contend-results")) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| !path.is_symlink());
    paths.sort();
    paths
}

#[test]
fn each_comparison_has_a_folder_and_latest_leads_to_the_last() {
    let folder = TempDir::new().expect("a folder");
    let compare = with_short(&["compare", "--protocols", "silo,none", "--no-verify"]);
    for count in 1..=3 {
        let output = contend(folder.path(), &compare);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let runs = runs(folder.path());
        assert_eq!(runs.len(), count, "none is overwritten: {runs:?}");
        let said = shown.lines().find_map(|line| line.strip_prefix("report: ")).expect("it is said where");
        let report = said.split(" · ").next().expect("a path");
        let latest = folder.path().join("contend-results/latest/report.html").canonicalize().expect("it leads there");
        assert_eq!(latest, folder.path().join(report).canonicalize().expect("a file"), "{said}");
        assert!(report.contains("-ycsb-a") && report.starts_with("contend-results/20"), "{report}");
    }
    // A command that is refused leaves nothing.
    let bad = contend(folder.path(), &["compare", "--threads", "0"]);
    assert_eq!((bad.status.code(), runs(folder.path()).len()), (Some(2), 3));
    // A run may be named by its folder.
    let again = ["compare", "--from", "contend-results/latest", "--no-verify", "--out", "again"];
    assert_eq!(contend(folder.path(), &again).status.code(), Some(0));
    assert!(folder.path().join("again/report.html").is_file());
    // A file of someone else with the link's name stays.
    std::fs::remove_file(folder.path().join("contend-results/latest")).expect("a link");
    std::fs::write(folder.path().join("contend-results/latest"), "mine").expect("a file");
    let output = contend(folder.path(), &compare);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output.stderr).contains("contend-results/latest does not lead to this result"));
    let kept = std::fs::read_to_string(folder.path().join("contend-results/latest")).expect("it is there");
    assert_eq!((kept.as_str(), runs(folder.path()).len()), ("mine", 5));
}

#[test]
fn a_folder_that_has_a_result_is_not_overwritten() {
    let folder = TempDir::new().expect("a folder");
    let compare = with_short(&["compare", "--protocols", "silo", "--no-verify", "--out", "deep/mine"]);
    assert_eq!(contend(folder.path(), &compare).status.code(), Some(0));
    assert!(!folder.path().join("contend-results").exists(), "it was said where");
    let path = folder.path().join("deep/mine/results.json");
    let before = std::fs::read(&path).expect("the result");
    let output = contend(folder.path(), &compare);
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
    assert!(stderr.contains("deep/mine/report.html is there already; --force overwrites it"), "{stderr}");
    std::fs::remove_file(folder.path().join("deep/mine/report.html")).expect("the report");
    let output = contend(folder.path(), &compare);
    assert!(text(&output.stderr).contains("deep/mine/results.json is there already"), "{}", text(&output.stderr));
    assert_eq!(std::fs::read(&path).expect("the result"), before, "nothing was touched");
    let output = contend(folder.path(), &[&compare[..], &["--force"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_ne!(std::fs::read(&path).expect("the result"), before);
    refuses(&["compare", "--force"], &["--out <DIR>"]);
}

/// Writes a result whose entries have these throughputs in their windows.
fn write_result(folder: &Path, name: &str, entries: &[(&str, &[f64])]) {
    let template: Value = {
        let output = contend(folder, &with_short(&["run", "--json", "-"]));
        serde_json::from_slice(&output.stdout).expect("JSON")
    };
    let mut result = template.clone();
    let of = |(protocol, windows): &(&str, &[f64])| {
        let mut entry = template["protocols"][0].clone();
        entry["protocol"] = (*protocol).into();
        let mut sorted = windows.to_vec();
        sorted.sort_by(f64::total_cmp);
        let measured = &mut entry["measured"];
        measured["throughput_tps"] =
            serde_json::json!({"median": sorted[sorted.len() / 2], "min": sorted[0], "max": sorted[sorted.len() - 1]});
        let window = |throughput: &f64| serde_json::json!({"round": 1, "seconds": 1.0, "commits": 1, "aborts": 0, "throughput_tps": throughput});
        measured["windows"] = windows.iter().map(window).collect();
        entry
    };
    result["protocols"] = entries.iter().map(of).collect();
    std::fs::write(folder.join(name), result.to_string()).expect("a file");
}

#[test]
fn two_results_are_compared_with_intervals() {
    let folder = TempDir::new().expect("a folder");
    let base: &[f64] = &[100e3, 101e3, 99e3, 100.5e3, 99.5e3];
    let times = |factor: f64| base.iter().map(|value| value * factor).collect::<Vec<f64>>();
    let (slow, fast, less) = (times(0.9), times(1.2), times(0.97));
    write_result(folder.path(), "a.json", &[("silo", base), ("tictoc", base), ("mvcc", base), ("to", base)]);
    write_result(folder.path(), "b.json", &[("silo", &slow), ("tictoc", base), ("mvcc", &fast), ("to", &less)]);
    let diff = |more: &[&str]| contend(folder.path(), &[&["diff", "a.json", "b.json"], more].concat());
    let output = diff(&[]);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    let line = |protocol: &str| shown.lines().find(|line| line.trim_start().starts_with(protocol)).expect("a line");
    assert!(line("silo").contains("-10.0 %") && line("silo").contains("SLOWER"), "{shown}");
    assert!(line("tictoc").contains("+0.0 %") && line("tictoc").contains("not told apart"), "{shown}");
    assert!(line("msto").contains("+20.0 %") && line("msto").contains("faster"), "{shown}");
    let output = diff(&["--fail-if-slower", "5%"]);
    assert_eq!(
        (output.status.code(), text(&output.stderr)),
        (Some(1), "silo: 10.0 % slower, and 5.0 % is allowed\n".into())
    );
    assert_eq!(diff(&["--fail-if-slower", "11 %"]).status.code(), Some(0));
    // A loss of three percent is told apart, and 5 % are allowed.
    assert!(line("timestamp-ordering").contains("SLOWER"), "{shown}");
    let output = diff(&["--fail-if-slower", "0%"]);
    assert_eq!(text(&output.stderr).lines().count(), 2, "{}", text(&output.stderr));
    let json: Value = serde_json::from_slice(&diff(&["--json"]).stdout).expect("JSON");
    assert_eq!((&json["entries"][0]["change"], &json["entries"][2]["change"]), (&"slower".into(), &"faster".into()));
    assert!(json["entries"][0]["ratio"]["high"].as_f64() < Some(1.0), "{json}");
    for (value, part) in
        [("5", "as in 5%"), ("-5%", "as in 5%"), ("100%", "below 100%"), ("%", "as in 5%"), ("nan%", "5%")]
    {
        let output = diff(&[&format!("--fail-if-slower={value}")]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(part), "{}", text(&output.stderr));
    }
}

/// A gate that compared nothing does not pass.
#[test]
fn what_can_not_be_told_is_not_passed() {
    let folder = TempDir::new().expect("a folder");
    let five: &[f64] = &[100e3, 101e3, 99e3, 100.5e3, 99.5e3];
    write_result(folder.path(), "a.json", &[("silo", five), ("tictoc", five)]);
    write_result(folder.path(), "short.json", &[("silo", &five[..2]), ("tictoc", &five[..2])]);
    write_result(folder.path(), "fewer.json", &[("silo", five), ("mvcc", five)]);
    write_result(folder.path(), "others.json", &[("mvcc", five)]);
    let diff = |second: &str, more: &[&str]| contend(folder.path(), &[&["diff", "a.json", second], more].concat());
    let output = diff("short.json", &["--fail-if-slower", "5%"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("silo: too few windows to tell"), "{}", text(&output.stderr));
    assert_eq!(diff("short.json", &[]).status.code(), Some(0), "without a gate it is only said");
    let output = diff("fewer.json", &["--fail-if-slower", "5%"]);
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), "tictoc: only in the first\n".into()));
    assert!(text(&output.stdout).contains("only in the second"), "{}", text(&output.stdout));
    let output = diff("others.json", &[]);
    assert_eq!(output.status.code(), Some(2));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("no entry in common: the first has silo, tictoc, the second msto"), "{stderr}");
    let output = diff("./a.json", &[]);
    assert_eq!(output.status.code(), Some(2), "with itself everything agrees");
    assert!(text(&output.stderr).contains("a.json and ./a.json are the same result"), "{}", text(&output.stderr));
    refuses(&["diff"], &["<FIRST>", "<SECOND>"]);
    refuses(&["diff", "x.json", "y.json"], &["error: x.json: No such file"]);
    refuses(&["diff", ".", "."], &["error: ./results.json: No such file"]);
    std::fs::write(folder.path().join("odd.json"), "[]").expect("a file");
    let output = diff("odd.json", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("odd.json: not a result file"), "{}", text(&output.stderr));
    let bank = contend(
        folder.path(),
        &[
            "run",
            "bank",
            "--seconds",
            "0.02",
            "--windows",
            "1",
            "--warmup",
            "0",
            "--threads",
            "1",
            "--json",
            "bank.json",
        ],
    );
    assert_eq!(bank.status.code(), Some(0), "{}", text(&bank.stderr));
    let output = diff("bank.json", &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("of ycsb-a and the second of bank"), "{}", text(&output.stderr));
}

#[test]
fn the_page_of_a_result_is_drawn_from_its_file() {
    let folder = TempDir::new().expect("a folder");
    let run = with_short(&["run", "ycsb-a", "--protocol", "si", "--verify", "--json", "one.json"]);
    assert_eq!(contend(folder.path(), &run).status.code(), Some(0));
    let output = contend(folder.path(), &["report", "one.json"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "report: report.html\n".into()));
    let page = std::fs::read_to_string(folder.path().join("report.html")).expect("a page");
    for part in ["contend run ycsb-a --protocol si", "◐ snapshot only", "<h2>Throughput</h2>", "a weaker level"] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("Tails of latency"), "files don't keep them");
    std::fs::write(folder.path().join("empty.json"), "").expect("written");
    for (arguments, parts) in [
        (&["report", "one.json"][..], &["report.html is there already", "--force", "--out"][..]),
        (&["report", "none.json", "--out", "x.html"], &["none.json"]),
        (&["report", "empty.json", "--out", "x.html"], &["empty.json"]),
        (&["report", "one.json", "--out", "one.json", "--force"], &["one.json is the result itself"]),
    ] {
        let output = contend(folder.path(), arguments);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(2) && parts.iter().all(|part| said.contains(part)), "{said}");
    }
    assert!(!folder.path().join("x.html").exists());
    assert_eq!(contend(folder.path(), &["report", "one.json", "--force"]).status.code(), Some(0));
    let piped = contend(folder.path(), &["report", "one.json", "--out", "-"]);
    assert!(text(&piped.stdout).starts_with("<!doctype html>") && !folder.path().join("-").exists());
}

/// A result from elsewhere may have figures that no run has.
#[test]
fn a_page_is_drawn_of_any_figures() {
    let folder = TempDir::new().expect("a folder");
    let run = with_short(&["run", "ycsb-a", "--protocol", "si", "--json", "one.json"]);
    assert_eq!(contend(folder.path(), &run).status.code(), Some(0));
    let one = std::fs::read_to_string(folder.path().join("one.json")).expect("a result");
    let change = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut result: Value = serde_json::from_str(&one).expect("JSON");
        change(&mut result["protocols"][0]["measured"]);
        std::fs::write(folder.path().join("odd.json"), result.to_string()).expect("written");
        let output = contend(folder.path(), &["report", "odd.json", "--out", "-"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        let page = text(&output.stdout);
        assert!(page.len() < 1_000_000 && !page.contains("NaN"), "{name}: {} bytes", page.len());
        page
    };
    change("many classes of records", &|it| it["versions"]["records_by_versions"] = vec![1u64; 80].into());
    change("greatest counts", &|it| {
        it["commits"] = u64::MAX.into();
        it["aborts_by_reason"] = serde_json::json!({"user": u64::MAX, "write_locked": u64::MAX});
        it["kinds"][0]["commits"] = u64::MAX.into();
        it["kinds"][0]["aborts_by_reason"] = serde_json::json!({"user": u64::MAX});
    });
    change("a round far away", &|it| it["windows"][0]["round"] = 1_000_000_000.into());
    change("nothing at all", &|it| {
        it["throughput_tps"] = serde_json::json!({"median": 0.0, "min": 0.0, "max": 0.0});
        (it["windows"], it["kinds"], it["commits"]) = (Value::Array(vec![]), Value::Array(vec![]), 0.into());
    });
    change("many windows", &|it| {
        let window = it["windows"][0].clone();
        let at = |round: usize| {
            let mut window = window.clone();
            window["round"] = round.into();
            window
        };
        it["windows"] = (1..=400).map(at).collect::<Vec<_>>().into();
    });
}

#[test]
fn figures_come_as_csv_with_all_percentiles() {
    let folder = TempDir::new().expect("a folder");
    let compare = with_short(&["compare", "--protocols", "silo+cu=on,none", "--csv", "-", "--json", "r.json"]);
    let output = contend(folder.path(), &compare);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let csv = text(&output.stdout);
    let rows: Vec<Vec<&str>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows.len(), 3, "{csv}");
    let column = |name: &str| rows[0].iter().position(|column| *column == name).expect(name);
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("r.json")).expect("the result")).expect("JSON");
    for (row, entry) in rows[1..].iter().zip(json["protocols"].as_array().expect("a list")) {
        assert_eq!(row[column("protocol")], entry["protocol"].as_str().expect("a name"));
        let mut last = 0;
        for latency in ["p50", "p90", "p95", "p99", "p999", "max"].map(|name| format!("latency_ns_{name}")) {
            let value: u64 = row[column(&latency)].parse().expect("a number");
            assert_eq!(entry["measured"][&latency], value, "{latency}");
            assert!(value >= last && value > 0, "{latency}");
            last = value;
        }
    }
    assert!(text(&output.stderr).contains("p99.9") && text(&output.stderr).contains("max"), "the table goes to stderr");
    refuses(&["run", "--json", "-", "--csv", "-"], &["would both go to stdout"]);
    refuses(&["run", "--csv", "/no/such/folder/r.csv"], &["/no/such/folder/r.csv"]);
}

#[test]
fn the_distribution_of_latencies_is_kept() {
    let folder = TempDir::new().expect("a folder");
    let arguments =
        with_short(&["compare", "--protocols", "silo+cu=on,none", "--no-verify", "--hdr", "hdr", "--json", "r.json"]);
    let output = contend(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.path().join("r.json")).expect("the result")).expect("JSON");
    for entry in json["protocols"].as_array().expect("a list") {
        let name = entry["protocol"].as_str().expect("a name");
        let shown = std::fs::read_to_string(folder.path().join(format!("hdr/{name}.hgrm"))).expect("a file");
        let rows: Vec<Vec<f64>> = shown
            .lines()
            .filter(|line| !line.starts_with('#') && !line.contains("Value"))
            .filter(|line| !line.trim().is_empty())
            .map(|line| line.split_whitespace().map(|cell| cell.parse().expect("a number")).collect())
            .collect();
        assert!(shown.trim_start().starts_with("Value") && rows.len() > 1, "{shown}");
        assert!(rows.windows(2).all(|pair| pair[0][0] < pair[1][0] && pair[0][1] < pair[1][1]), "{shown}");
        let last = rows.last().expect("a row");
        let samples: u64 = entry["measured"]["kinds"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|kind| kind["samples"].as_u64())
            .sum();
        assert_eq!((last[1], last[2]), (1.0, samples as f64), "all that were timed");
        let half = rows.iter().find(|row| row[1] >= 0.5).expect("a median")[0];
        assert_eq!(Some(half), entry["measured"]["latency_ns_p50"].as_f64(), "{name}");
    }
    refuses(&["run", "--hdr", "/proc/nowhere"], &["/proc/nowhere"]);
}
