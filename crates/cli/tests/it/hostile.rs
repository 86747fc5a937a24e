//! Files from a stranger. A result with any values in it and an endless experiment are read in
//! little time and memory, or refused in a sentence.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::common::{contend, refuses, text};

/// Text that becomes markup where a page takes it unescaped.
const MARKUP: &str = "</title><script>alert(1)</script>\"' onload=x & <img src=http://a>";

#[test]
fn an_endless_history_is_refused() {
    refuses(&["check", "/dev/zero"], &["/dev/zero: line 1", "it has more than 256 MiB"]);
    refuses(&["check", "/dev/zero", "--format", "elle-append"], &["/dev/zero: ", "at most 1024 MiB"]);
}

/// Asserts that the binary refuses these arguments in a folder with the files of [`wrong_files`],
/// by one line that has this part.
#[track_caller]
pub(crate) fn refuses_in(folder: &Path, arguments: &[&str], part: &str) {
    let output = contend(folder, arguments);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}{}", text(&output.stdout));
    assert!(stderr.starts_with("error: ") && stderr.contains(part), "{arguments:?}: '{part}' is not in: {stderr}");
    // What follows an empty line is how to get help.
    assert_eq!(stderr.lines().take_while(|line| !line.is_empty()).count(), 1, "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty() && stderr.len() < 4000, "{arguments:?}: {} bytes", stderr.len());
    assert!(!stderr.chars().any(|letter| letter.is_control() && letter != '\n'), "{arguments:?}: {stderr:?}");
}

/// Returns a folder with nothing, too much and the wrong thing: an empty file, bytes that are no
/// text, a line of 10 MB, a folder.
pub(crate) fn wrong_files() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let file = |name: &str, content: &[u8]| std::fs::write(folder.path().join(name), content).expect("written");
    file("empty.toml", b"");
    file("bytes.toml", &(0..4096).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect::<Vec<_>>());
    file("line.toml", &vec![b'a'; 10_000_000]);
    file("t.sql", b"create table t (id int primary key);");
    file("a.csv", b"time,session,txn,op,table,key\n1,1,1,r,t,1\n");
    std::fs::create_dir(folder.path().join("folder")).expect("a folder");
    folder
}

/// Files that are no workloads, and a part of the message about each.
pub(crate) const NO_WORKLOADS: [(&str, &str); 6] = [
    ("empty.toml", "empty.toml: line 1, column 1: missing field `name`"),
    ("bytes.toml", "the workload file bytes.toml can't be read: "),
    ("line.toml", "line.toml: the file has more than 1048576 bytes"),
    ("folder", "the workload file folder can't be read: "),
    ("/dev/zero", "/dev/zero: the file has more than 1048576 bytes"),
    ("\u{1b}[2J.toml", "the workload file \u{fffd}[2J.toml can't be read: "),
];

#[test]
fn a_workload_that_is_none_is_refused_by_each_verb() {
    let folder = wrong_files();
    for (file, part) in NO_WORKLOADS {
        for verb in [&["workload", "check"][..], &["advise"], &["explore", "--protocol", "silo", "--workload"]] {
            refuses_in(folder.path(), &[verb, &[file]].concat(), part);
        }
    }
    for name in ["", "bnk"] {
        let part = format!("there is no workload file '{name}'; valid: the path of a workload file");
        refuses_in(folder.path(), &["workload", "check", name], &part);
        refuses_in(folder.path(), &["advise", name], &format!("unknown workload '{name}'"));
    }
    refuses_in(folder.path(), &["explore", "--workload", ","], "unknown workload ''; valid: ycsb");
    refuses_in(folder.path(), &["explore", "--replay", "0x5,,1"], "'' is no part of a schedule");
}

#[test]
fn a_trace_or_a_schema_that_is_none_is_refused() {
    let folder = wrong_files();
    for kind in [&["accesses"][..], &["pg-log", "--schema", "t.sql"], &["pg-stat-statements", "--schema", "t.sql"]] {
        for file in ["empty.toml", "bytes.toml", "line.toml", "folder", "nowhere", "/dev/zero"] {
            refuses_in(folder.path(), &[&["workload", "import"], kind, &[file]].concat(), file);
        }
    }
    for (schema, part) in [
        ("empty.toml", "it creates no table"),
        ("bytes.toml", "it is no schema in SQL"),
        ("line.toml", "it creates no table"),
        ("folder", "folder: "),
        ("/dev/zero", "/dev/zero: the schema has more than 16777216 bytes"),
    ] {
        refuses_in(folder.path(), &["workload", "import", "pg-log", "a.csv", "--schema", schema], part);
    }
    for (flag, value, part) in [
        ("--rows", "t=-1", "it is below 0"),
        ("--rows", "none=1", "--rows names an unknown table 'none'; valid: t"),
        ("--row-bytes", "0", "valid: 8 to 4096 bytes"),
        ("--name", "", "valid: a letter"),
        ("--allow-uncovered", "nan", "valid: from 0 to 1"),
    ] {
        refuses_in(folder.path(), &["workload", "import", "accesses", "a.csv", flag, value], part);
    }
}

/// Returns a result of two protocols, and the folder that holds it.
fn result() -> (TempDir, Value) {
    let folder = TempDir::new().expect("a folder");
    let run = [
        "compare",
        "ycsb-a",
        "--protocols",
        "silo,mvto",
        "--seconds",
        "0.02",
        "--windows",
        "3",
        "--warmup",
        "0.01",
        "--threads",
        "2",
        "--set",
        "ycsb.records=1000",
        "--out",
        "run",
    ];
    let output = contend(folder.path(), &run);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let file = std::fs::read_to_string(folder.path().join("run/results.json")).expect("a result");
    let result = serde_json::from_str(&file).expect("JSON");
    (folder, result)
}

/// Calls `change` with each value that is no list and no object, and with its name. Only the first
/// two elements of a list are visited.
fn each_leaf(value: &mut Value, name: &str, change: &mut impl FnMut(&str, &mut Value)) {
    match value {
        Value::Array(list) => list.iter_mut().take(2).for_each(|value| each_leaf(value, name, change)),
        Value::Object(fields) => fields.iter_mut().for_each(|(name, value)| each_leaf(value, name, change)),
        _ => change(name, value),
    }
}

/// Asserts that the result is drawn and compared, or refused, without a panic, and that none of its
/// markup gets into the page.
fn survives(folder: &Path, what: &str, result: &Value) {
    std::fs::write(folder.join("odd.json"), result.to_string()).expect("written");
    for arguments in
        [&["report", "odd.json", "--out", "-"][..], &["diff", "run", "odd.json"], &["diff", "odd.json", "run"]]
    {
        let output = contend(folder, arguments);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        assert!(matches!(output.status.code(), Some(0..=2)), "{what}: {arguments:?}: {:?} {stderr}", output.status);
        assert!(stdout.len() < 4_000_000, "{what}: {arguments:?}: {} bytes", stdout.len());
        let has_markup = stdout.contains("<script") || stdout.contains("<img");
        assert!(arguments[0] != "report" || !has_markup, "{what}: markup in the page");
        assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{what}: {arguments:?}: an escape sequence");
    }
}

#[test]
fn a_result_of_any_numbers_is_drawn_or_refused() {
    let (folder, result) = result();
    let extremes = [json!(0), json!(-1), json!(u64::MAX), json!(i64::MIN), json!(1e308), json!(5e-324), json!(-1e308)];
    // First all numbers at once, then each alone.
    for extreme in &extremes {
        let mut odd = result.clone();
        each_leaf(&mut odd, "", &mut |name, value| {
            if value.is_number() && name != "schema_version" {
                *value = if value.is_f64() || extreme.is_u64() { extreme.clone() } else { json!(u64::MAX) };
            }
        });
        survives(folder.path(), &format!("all {extreme}"), &odd);
    }
    let mut leaves = 0;
    each_leaf(&mut result.clone(), "", &mut |_, _| leaves += 1);
    assert!(leaves > 100, "{leaves}");
    let mut names = std::collections::BTreeSet::new();
    for leaf in 0..leaves {
        let (mut odd, mut at, mut changed) = (result.clone(), 0, None);
        each_leaf(&mut odd, "", &mut |name, value| {
            if at == leaf && value.is_number() && name != "schema_version" && names.insert(name.to_owned()) {
                let kind = if value.is_f64() { [4, 5, 6, 0] } else { [2, 0, 2, 0] };
                *value = extremes[kind[leaf % 4]].clone();
                changed = Some(format!("{name} = {value}"));
            }
            at += 1;
        });
        if let Some(changed) = changed {
            survives(folder.path(), &changed, &odd);
        }
    }
}

/// Fields that a newer version added are left out, and a note names them.
#[test]
fn a_result_of_a_newer_version_is_drawn_with_a_note() {
    let (folder, mut result) = result();
    result["schema_version"] = json!("5.99");
    result["config"]["colour"] = json!("red");
    std::fs::write(folder.path().join("newer.json"), result.to_string()).expect("written");
    let output = contend(folder.path(), &["report", "newer.json", "--out", "-"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.starts_with("note: newer.json: schema_version 5.99") && stderr.lines().count() == 1, "{stderr}");
    assert!(stderr.contains("config.colour"), "{stderr}");
}

#[test]
fn a_result_of_any_text_is_drawn_or_refused() {
    let (folder, result) = result();
    let mut odd = result.clone();
    each_leaf(&mut odd, "", &mut |_, value| {
        if value.is_string() {
            *value = MARKUP.into();
        }
    });
    survives(folder.path(), "all text", &odd);
    for name in ["name", "workload", "verdict", "text", "cpu", "version"] {
        let mut odd = result.clone();
        each_leaf(&mut odd, "", &mut |field, value| {
            if value.is_string() && field == name {
                *value = MARKUP.into();
            }
        });
        survives(folder.path(), name, &odd);
    }
}

#[test]
fn a_result_with_escape_sequences_is_refused() {
    let (folder, result) = result();
    // JSON allows ESC only escaped, but CSI and DEL also unescaped.
    for (name, command) in
        [("escaped", "\\u001b[2J"), ("csi", "\u{9b}2J"), ("escaped csi", "\\u009B2J"), ("del", "\u{7f}")]
    {
        let odd = result.to_string().replacen("ycsb-a", command, 1);
        assert_ne!(odd, result.to_string());
        std::fs::write(folder.path().join("odd.json"), odd).expect("written");
        for arguments in [&["report", "odd.json", "--out", "-"][..], &["diff", "run", "odd.json"]] {
            let output = contend(folder.path(), arguments);
            let stderr = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{name}: {arguments:?}: {stderr}");
            assert!(
                stderr.contains("odd.json: not a result file") && stderr.contains("control characters"),
                "{stderr}"
            );
            assert!(!stderr.chars().any(|c| c.is_control() && c != '\n'), "{name}: {stderr:?}");
        }
    }
}

#[test]
fn a_result_that_is_deep_or_never_ends_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("deep.json");
    std::fs::write(&path, "[".repeat(1_000_000)).expect("written");
    refuses(&["report", path.to_str().expect("a name")], &["deep.json", "not a result file"]);
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    refuses(&["report", path.to_str().expect("a name")], &["deep.json", "at most 256 MiB"]);
}

#[test]
fn an_experiment_that_never_ends_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("endless.toml");
    std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    refuses(&["sweep", path.to_str().expect("a name")], &["endless.toml", "at most 4 MiB"]);
    std::fs::write(&path, format!("a = {}", "[".repeat(100_000))).expect("written");
    refuses(&["sweep", path.to_str().expect("a name")], &["endless.toml"]);
    std::fs::write(&path, "a = 1\n".repeat(200_000)).expect("written");
    refuses(&["run", "--machine", path.to_str().expect("a name")], &["endless.toml"]);
}

#[test]
fn broken_result_files_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("broken.json");
    for (content, part) in [
        ("{", "line 1"),
        ("{}", "no schema_version"),
        ("{\"schema_version\":\"5.0\"}", "missing field"),
        ("{\"schema_version\":\"6.0\"}", "6.0, of a newer contend; valid: 4 to 5"),
        ("[]", "not a result file"),
        ("", "EOF"),
    ] {
        std::fs::write(&path, content).expect("a file");
        let output = contend(folder.path(), &["compare", "--from", "broken.json"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("broken.json") && stderr.contains(part), "'{part}' is not in: {stderr}");
    }
    refuses(&["run", "--from", "nowhere.json"], &["nowhere.json"]);
}
