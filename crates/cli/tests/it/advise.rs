//! `contend advise`.

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, refuses, text};

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

#[test]
fn a_question_that_can_not_be_answered_is_refused() {
    refuses(&["advise", "ycsb-a", "--budget", "1s"], &["--budget 1s", "valid: 5s to 86400s"]);
    refuses(&["advise", "ycsb-a", "--budget", "soon"], &["--budget"]);
    refuses(&["advise", "ycsb-a", "--isolation", "none"], &["unknown level 'none'; valid: serializable, snapshot"]);
    refuses(&["advise", "ycsb-a", "--cores", "0"], &["--cores: '0' is no number of cores"]);
    refuses(&["advise", "ycsb-a", "--cores", "4096"], &["abyss:4096", "1 to 1024"]);
    refuses(&["advise", "ycsb-a", "--p99", "0"], &["--p99: '0' is no limit"]);
    refuses(&["advise", "nothing"], &["unknown workload 'nothing'"]);
    refuses(&["advise", SHOP, "--set", "shop.itms=3"], &["did you mean 'shop.items'?"]);
}
