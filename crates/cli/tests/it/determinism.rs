//! `contend determinism`: what it proves, and what it refuses.

use crate::common::{contend, refuses, text};

#[test]
fn determinism_is_proved() {
    let folder = tempfile::tempdir().expect("a folder");
    let small = ["determinism", "--workload", "bank,ycsb-a", "--clients", "4", "--transactions", "20"];
    let output = contend(folder.path(), &[&small[..], &["--schedules", "5", "--json", "-"]].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("json");
    let proved = json.as_array().expect("a list");
    assert_eq!(output.status.code(), Some(0), "{json}");
    assert!(proved.len() >= 4, "two protocols and two workloads: {json}");
    for proof in proved {
        let places = proof["places"].as_array().expect("a list");
        let states: std::collections::HashSet<&str> = places[..6].iter().filter_map(|p| p["state"].as_str()).collect();
        assert!(places.len() == 12 && states.len() == 1 && proof["wrong"].is_null(), "{json}");
    }
    assert!(text(&output.stderr).contains("the same state everywhere"), "{}", text(&output.stderr));
}

#[test]
fn a_proof_of_determinism_that_can_t_be_is_refused() {
    refuses(&["determinism", "--protocol", "silo"], &["silo is not deterministic; valid: aria, calvin"]);
    refuses(&["run", "tpce", "--protocol", "calvin"], &["which tpce can't declare", "workloads that can: ycsb"]);
    refuses(&["determinism", "--protocol", "nope"], &["unknown protocol 'nope'"]);
    refuses(&["determinism", "--protocol", "aria,aria"], &["protocol 'aria' was chosen twice"]);
    refuses(&["determinism", "--workload", "nope"], &["unknown workload 'nope'"]);
    refuses(&["determinism", "--clients", "0"], &["clients is 0; valid: 1 to 32"]);
    refuses(&["determinism", "--clients", "33"], &["clients is 33; valid: 1 to 32"]);
    refuses(&["determinism", "--transactions", "0"], &["transactions is 0; valid: 1 to 100000"]);
    refuses(&["determinism", "--repeats", "0"], &["repeats is 0"]);
    refuses(&["determinism", "--schedules", "0"], &["schedules is 0"]);
    refuses(&["determinism", "--machine", "toaster"], &["toaster"]);
    refuses(&["determinism", "--machine", "native"], &["'native' is not a simulated chip"]);
    refuses(&["determinism", "--set", "aria.nope=1"], &["aria.nope"]);
    refuses(&["determinism", "--set", "rounds.patience_us=3"], &["'rounds.patience_us' is chosen by the proof itself"]);
}

#[test]
fn latencies_of_batches_are_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let run =
        ["run", "bank", "--threads", "2", "--windows", "1", "--seconds", "0.02", "--warmup", "0.01", "--protocol"];
    for (protocol, told) in [("calvin+interleave=4", "batches: calvin+interleave=4 (8 transactions)"), ("silo", "")] {
        let output = contend(folder.path(), &[&run[..], &[protocol]].concat());
        let printed = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(printed.contains(told), "{printed}");
        assert_eq!(printed.contains("those of batches"), !told.is_empty(), "{printed}");
    }
}
