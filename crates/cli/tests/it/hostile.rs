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
