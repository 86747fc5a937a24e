//! Workload files: `contend workload check`, and wherever a workload is named.

use serde_json::Value;
use tempfile::TempDir;

use crate::common::{contend, refuses, text};

const SHOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/shop.toml");
const SMALL: [&str; 6] = ["--set", "shop.items=1k", "--set", "shop.customers=1k", "--windows", "1"];

/// Runs a command that succeeds. Returns what it printed.
fn good(folder: &TempDir, arguments: &[&str]) -> String {
    let output = contend(folder.path(), arguments);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn a_file_is_described() {
    let folder = TempDir::new().expect("a folder");
    let shown = good(&folder, &["workload", "check", SHOP, "--set", "shop.items=7"]);
    assert!(shown.contains("item: 7 rows") && shown.contains("buy and buy: item*, orders"), "{shown}");
}

#[test]
fn a_result_repeats_without_the_file() {
    let folder = TempDir::new().expect("a folder");
    let file = folder.path().join("mine.toml");
    std::fs::copy(SHOP, &file).expect("a copy");
    let times = ["--seconds", "0.02", "--warmup", "0.02", "--protocols", "silo,mvto", "--verify-transactions", "1000"];
    let first = [&["compare", "mine.toml", "--out", "first"][..], &SMALL, &times].concat();
    good(&folder, &first);
    std::fs::remove_file(&file).expect("there");
    good(&folder, &["compare", "--from", "first/results.json", "--out", "again"]);
    let again = std::fs::read_to_string(folder.path().join("again/results.json")).expect("results");
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["config"]["workload"], "mine.toml");
    assert!(again["protocols"][1]["check"]["text"].as_str().is_some_and(|text| text.contains("3 invariants")));
}

#[test]
fn a_comparison_of_a_file_has_a_folder_of_its_name() {
    let folder = TempDir::new().expect("a folder");
    std::fs::create_dir(folder.path().join("sub")).expect("a folder");
    std::fs::copy(SHOP, folder.path().join("sub/mine.toml")).expect("a copy");
    let compare = ["compare", "sub/mine.toml", "--protocols", "silo", "--no-verify", "--seconds", "0.01"];
    let shown = good(&folder, &[&compare[..], &SMALL].concat());
    assert!(shown.contains("-mine/report.html"), "{shown}");
    assert!(folder.path().join("contend-results/latest/results.json").exists());
}

#[test]
fn files_run_on_chips_in_explorations_and_in_crash_tests() {
    let folder = TempDir::new().expect("a folder");
    let on_chip = [&["run", SHOP, "--protocol", "silo", "--machine", "abyss:4", "--verify"][..], &SMALL].concat();
    good(&folder, &on_chip);
    good(&folder, &["explore", "--workload", SHOP, "--protocol", "silo,2pl-waitdie,2pl-ordered", "--schedules", "50"]);
    let crash = ["crash-test", "--workload", SHOP, "--protocol", "silo", "--seeds", "5"];
    assert!(good(&folder, &crash).contains("nothing is lost"));
}

/// What the file itself breaks is no fault of a protocol.
#[test]
fn rows_that_break_an_invariant_before_any_transaction_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let bank = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/bank.toml"));
    let wrong = bank.expect("a file").replace("\"account.balance\" = \":balance\"", "\"account.balance\" = \"999\"");
    std::fs::write(folder.path().join("wrong.toml"), wrong).expect("written");
    for arguments in [
        &["run", "wrong.toml", "--protocol", "silo", "--seconds", "0.01"][..],
        &["run", "wrong.toml", "--protocol", "silo", "--machine", "abyss:2"],
        &["compare", "wrong.toml", "--protocols", "silo,mvto", "--seconds", "0.01"],
        &["explore", "--workload", "wrong.toml", "--protocol", "silo", "--schedules", "10"],
        &["advise", "wrong.toml", "--budget", "5s"],
        &["crash-test", "--workload", "wrong.toml", "--protocol", "silo", "--seeds", "2"],
    ] {
        let output = contend(folder.path(), arguments);
        let complaint = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {complaint}{}", text(&output.stdout));
        let said = "the sum of all accounts never changes";
        assert!(complaint.contains(said) && complaint.contains("look at [fill]"), "{arguments:?}: {complaint}");
        assert_eq!(complaint.lines().filter(|line| line.contains("error")).count(), 1, "{complaint}");
    }
}

const TABLES: &str = "create table pgbench_branches (bid int primary key, bbalance int, filler char(88));\n\
    create table pgbench_tellers (tid int primary key, bid int, tbalance int, filler char(84));\n\
    create table pgbench_accounts (aid int primary key, bid int, abalance int, filler char(84));\n\
    create table pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));\n\
    create table seats (no int primary key, free int);\n";
const TPCB: &str = "\\set aid random(1, 100000 * :scale)\n\\set bid random(1, 1 * :scale)\n\\set tid random(1, 10 * :scale)\n\
    \\set delta random(-5000, 5000)\nBEGIN;\n\
    UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;\n\
    SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n\
    UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;\n\
    UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = :bid;\n\
    INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, :bid, :aid, :delta, CURRENT_TIMESTAMP);\n\
    END;\n";

#[test]
fn plain_scripts_run_and_their_results_repeat() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("tables.sql", TABLES);
    write("tpcb.sql", TPCB);
    write("seat.sql", "\\set no random(1, 50)\nupdate seats set free = 1 where no = :no;\n");
    let times = ["--seconds", "0.02", "--warmup", "0.02", "--windows", "1"];
    let one = ["run", "tpcb.sql", "--schema", "tables.sql", "--set", "tpcb.scale=2", "--json", "one.json"];
    good(&folder, &[&one[..], &times].concat());
    // They are described and analysed like a file.
    let described = good(&folder, &["workload", "check", "tpcb.sql", "--schema", "tables.sql"]);
    assert!(described.contains("tpcb") && described.contains("seats"), "{described}");
    let both = ["-f", "tpcb.sql@3", "-f", "seat.sql", "--schema", "tables.sql", "--rows", "seats=50"];
    let described = good(&folder, &[&["workload", "check"], &both[..]].concat());
    assert!(described.contains("tpcb") && described.contains("seat"), "{described}");
    let analysed = good(&folder, &[&["analyse"], &both[..], &["--format", "csv"]].concat());
    assert_eq!(analysed.lines().count(), 2, "{analysed}");
    for verb in [&["workload", "check"][..], &["analyse"]] {
        let output = contend(folder.path(), verb);
        assert_eq!(output.status.code(), Some(2), "nothing is named");
    }
    let two = ["compare", "-f", "tpcb.sql@3", "-f", "seat.sql", "--schema", "tables.sql", "--rows", "seats=50"];
    let more = ["--protocols", "silo", "--no-verify", "--out", "two"];
    let shown = good(&folder, &[&two[..], &more, &times].concat());
    assert!(!shown.contains("warning"), "all keys are there: {shown}");
    std::fs::remove_file(folder.path().join("tpcb.sql")).expect("there");
    good(&folder, &["compare", "--from", "two/results.json", "--out", "again"]);
    let again = std::fs::read_to_string(folder.path().join("again/results.json")).expect("results");
    let again: Value = serde_json::from_str(&again).expect("JSON");
    assert_eq!(again["config"]["workload"], "tpcb.sql@3+seat.sql");
    // Keys that are not there are counted.
    let bare = ["run", "-f", "seat.sql", "--schema", "tables.sql"];
    let shown = good(&folder, &[&bare[..], &times].concat());
    assert!(shown.contains("100 % of the keys"), "{shown}");
    write("wrong.sql", "select free from seats\nwhere number = 1;");
    let fails = |arguments: &[&str], part: &str| {
        let output = contend(folder.path(), &[&["run"], arguments].concat());
        let complaint = text(&output.stderr);
        assert!(output.status.code() == Some(2) && complaint.contains(part), "{arguments:?}: {complaint}");
    };
    for (arguments, part) in [
        (
            &["wrong.sql", "--schema", "tables.sql"][..],
            "wrong.sql: transaction 'wrong', line 2, column 7: unknown column",
        ),
        (&["seat.sql"], "seat.sql is a pgbench script, which needs --schema"),
        (&["--schema", "tables.sql"], "--schema belongs to pgbench scripts"),
        (&["-f", "seat.sql@x", "--schema", "tables.sql"], "the weight is 'x'; valid: a whole number"),
        (&["-f", "seat.sql@0", "--schema", "tables.sql"], "all transactions have the weight 0"),
        (&["-f", "none.sql", "--schema", "tables.sql"], "the script none.sql can't be read"),
        (&["-f", "seat.sql", "--schema", "none.sql"], "the schema none.sql can't be read"),
        (&["-f", "seat.sql", "--schema", "/dev/zero"], "a schema has at most 1 MiB"),
        (&["seat.sql", "--schema", "tables.sql", "--rows", "seat=1"], "no table 'seat' for --rows; valid: pgbench_br"),
        (&["ycsb-a", "-f", "seat.sql", "--schema", "tables.sql"], "cannot be used with"),
        (&["none.toml", "--schema", "tables.sql"], "--schema belongs to pgbench scripts"),
    ] {
        fails(arguments, part);
    }
}

#[test]
fn mistakes_are_named() {
    refuses(&["workload", "check", "none.toml"], &["none.toml can't be read"]);
    refuses(&["workload", "check", "ycsb-a"], &["ycsb-a is a workload of the list"]);
    refuses(&["run", SHOP, "--set", "shop.itms=3"], &["did you mean 'shop.items'?"]);
    refuses(&["run", SHOP, "--set", "shop.theta=1.5"], &["transaction 'buy', line 5", "the skew of zipf is 1.5"]);
    refuses(&["run", SHOP, "--protocol", "calvin"], &["the rows or the partitions", "can't declare"]);
    refuses(&["compare", "shopp"], &["unknown workload 'shopp'", "the path of a workload file"]);
    refuses(&["workload", "check", env!("CARGO_MANIFEST_DIR")], &["can't be read"]);
}

#[test]
fn verbs_that_prove_take_scripts() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("s.sql", "create table t (id int primary key, a int, b int);");
    write("buy.sql", "\\set i random(1, 9)\nupdate t set a = a + 1 where id = :i;\n");
    write("look.sql", "\\set i random(1, 9)\nselect b from t where id = :i;\n");
    let tables = ["--schema", "s.sql", "--rows", "t=9", "--protocol", "silo"];
    let mixed =
        good(&folder, &[&["explore", "-f", "buy.sql@3", "-f", "look.sql", "--schedules", "20"][..], &tables].concat());
    assert!(mixed.contains("buy.sql@3+look.sql") && mixed.contains("nothing wrong found"), "{mixed}");
    let both = ["explore", "--workload", "buy.sql,look.sql,bank", "--schedules", "5", "--json", "-"];
    let both: Value = serde_json::from_str(&good(&folder, &[&both[..], &tables].concat())).expect("JSON");
    let workloads: Vec<&str> =
        both.as_array().expect("a list").iter().filter_map(|it| it["workload"].as_str()).collect();
    assert_eq!(workloads, ["buy.sql", "look.sql", "bank"]);
    good(&folder, &[&["crash-test", "--workload", "buy.sql", "--seeds", "2"][..], &tables].concat());
    for (arguments, part) in [
        (&["explore", "--workload", "buy.sql"][..], "buy.sql is a pgbench script, which needs --schema"),
        (&["explore", "--schema", "s.sql"], "--schema belongs to pgbench scripts"),
        (&["explore", "-f", "buy.sql@x", "--schema", "s.sql"], "the weight is 'x'"),
        (&["soak", "-f", "look.sql", "--workload", "buy.sql", "--schema", "s.sql"], "cannot be used with"),
        (&["crash-test", "-f", "none.sql", "--schema", "s.sql"], "the script none.sql can't be read"),
    ] {
        let output = contend(folder.path(), arguments);
        let complaint = text(&output.stderr);
        assert!(output.status.code() == Some(2) && complaint.contains(part), "{arguments:?}: {complaint}");
    }
}
