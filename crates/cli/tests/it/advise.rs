//! `contend advise`.

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, keeps_schema, refuses, text};

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/shop.toml");

#[test]
fn advice_has_its_evidence() {
    let folder = TempDir::new().expect("a folder");
    let advise = ["advise", SHOP, "--budget", "5s", "--set", "shop.items=500", "--set", "shop.customers=500"];
    let flags = ["--verify-transactions", "1000", "--threads", "2", "--cores", "2,4", "--out", "a"];
    let output = contend(folder.path(), &[&advise[..], &flags].concat());
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}{shown}", text(&output.stderr));
    let advice = std::fs::read_to_string(folder.path().join("a/advice.json")).expect("advice");
    let advice: Value = serde_json::from_str(&advice).expect("JSON");
    let entry = advice["entry"].as_str().expect("an entry");
    assert!(shown.contains(entry) && shown.contains("Use ") && shown.contains("again: contend compare"), "{shown}");
    // Each candidate left somewhere, and is there once.
    let candidates: Vec<&str> = advice["candidates"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|it| it["entry"].as_str().expect("a name"))
        .collect();
    let distinct: std::collections::BTreeSet<&str> = candidates.iter().copied().collect();
    assert!(distinct.len() == candidates.len() && candidates.len() > 20, "{candidates:?}");
    assert!(candidates.contains(&"silo") && candidates.contains(&"silo+cu+ts") && !candidates.contains(&"none"));
    // The finalists have figures, and the best of them are on simulated cores as well.
    let finalists = advice["finalists"].as_array().expect("a list");
    assert!(finalists.len() > 4 && finalists[0]["to_first"].is_null(), "{shown}");
    assert!(finalists.iter().any(|it| it["entry"] == entry && it["is_best"] == true));
    assert_eq!(advice["on_cores"].as_array().expect("a list").len(), 6);
    let uses = advice["uses"].as_array().expect("a list");
    assert!(uses.iter().any(|it| it["kind"] == "buy" && it["how"] == "updates"), "{uses:?}");
    let page = std::fs::read_to_string(folder.path().join("a/advice.html")).expect("a page");
    for part in ["The final", "More cores", "Accesses", "Candidates", "The final again"] {
        assert!(page.contains(part), "{part}");
    }
}

/// All buyers write one row. The others read another column of it.
const COUNTER: &str = r#"
name = "counter"
schema = "create table item (id int primary key, price int, stock int);"
rows.item = 100
[[transaction]]
name = "buy"
script = "update item set stock = stock - 1 where id = 1;"
[[transaction]]
name = "look"
weight = 3
script = "select price from item where id = 1; select price from item where id = 2;"
"#;

#[test]
fn groups_of_columns_and_pieces_are_in_the_advice() {
    let folder = TempDir::new().expect("a folder");
    std::fs::write(folder.path().join("counter.toml"), COUNTER).expect("written");
    let advise = ["advise", "counter.toml", "--budget", "5s", "--threads", "2", "--verify-transactions", "1000"];
    let output = contend(folder.path(), &[&advise[..], &["--out", "a", "--json", "-"]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let advice: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    keeps_schema("advice", &text(&output.stdout));
    let splits = advice["splits"].as_array().expect("a list");
    assert_eq!(splits.len(), 1, "{splits:?}");
    assert_eq!(splits[0]["tables"][0], "item [stock] | [price]");
    assert_eq!(splits[0]["lines"][0], r#"item = [["stock"], ["price"]]"#);
    assert!(splits[0]["entry"].as_str().expect("a name").ends_with("+ts"), "{splits:?}");
    assert!(splits[0]["to_base"]["ratio"].as_f64().expect("it was measured") > 0.0, "{splits:?}");
    // The groups are advised, or said to make no difference; and the line runs as it stands there.
    let shown = text(&output.stderr);
    assert!(shown.contains("item [stock] | [price]") && shown.contains("The protocol ic3"), "{shown}");
    let grouped = format!("groups.{}\n{COUNTER}", splits[0]["lines"][0].as_str().expect("a line"));
    std::fs::write(folder.path().join("grouped.toml"), grouped).expect("written");
    let run = ["run", "grouped.toml", "--protocol", "silo+ts", "--seconds", "0.02", "--windows", "1", "--warmup", "0"];
    assert_eq!(contend(folder.path(), &run).status.code(), Some(0));
}

#[test]
fn a_question_that_can_not_be_answered_is_refused() {
    refuses(&["advise", "ycsb-a", "--budget", "1s"], &["--budget 1s", "valid: 5s to 86400s"]);
    refuses(&["advise", "ycsb-a", "--budget", "soon"], &["--budget"]);
    refuses(&["advise", "ycsb-a", "--isolation", "none"], &["unknown level 'none'; valid: serializable, snapshot"]);
    refuses(&["advise", "ycsb-a", "--cores", "0"], &["--cores: '0' is no number of cores"]);
    refuses(&["advise", "ycsb-a", "--cores", "4096"], &["abyss:4096", "1 to 1024"]);
    refuses(&["advise", "ycsb-a", "--p99", "0"], &["--p99: '0' is no limit"]);
    // The memory of all candidates is added up before any is built.
    refuses(&["advise", "ycsb-a", "--set", "ycsb.records=10G"], &["loading needs about", "are available"]);
    refuses(&["advise", "nothing"], &["unknown workload 'nothing'"]);
    refuses(&["advise", SHOP, "--set", "shop.itms=3"], &["did you mean 'shop.items'?"]);
}
