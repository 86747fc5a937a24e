//! A check that tested nothing is not green.

use tempfile::TempDir;

use crate::common::{TINY, contend, contend_with_input, refuses, text};

#[test]
fn an_exploration_of_nothing_is_bad_input() {
    refuses(&["explore", "--budget", "0"], &["error: budget is 0; valid: more than 0, as in 60s or 10m"]);
    refuses(&["explore", "--budget", "0ms"], &["budget is 0"]);
    refuses(&["explore", "--schedules", "0"], &["error: schedules is 0; valid: 1 or more"]);
    refuses(&["explore", "--schedules", "0", "--budget", "1s"], &["schedules is 0"]);
    refuses(&["explore", "--transactions", "0"], &["error: transactions is 0; valid: 1 to 1000"]);
    refuses(&["explore", "--transactions", "1001"], &["transactions is 1001; valid: 1 to 1000"]);
    refuses(&["explore", "--schedules", "many"], &["many"]);
    refuses(&["explore", "--budget", "-1s"], &["'-1s'", "--budget"]);
}

#[test]
fn a_schedule_of_cores_that_are_not_there_is_bad_input() {
    let on = |schedule: &'static str| {
        ["explore", "--protocol", "silo", "--workload", "litmus-write-skew", "--cores", "2", "--replay", schedule]
    };
    refuses(&on("9x5"), &["the schedule has a core 9; litmus-write-skew runs on 2 cores", "valid are 0 to 1, and 2"]);
    refuses(&on("0x5,3"), &["the schedule has a core 3"]);
    refuses(&on(""), &["the schedule is empty", "0x5,1x3,0"]);
    refuses(&on("0x99999999999999999999"), &["is no part of a schedule"]);
    let folder = TempDir::new().expect("a folder");
    let output = contend(folder.path(), &on("0x5,2,1x3"));
    assert_eq!(output.status.code(), Some(0), "the core of the epochs is one: {}", text(&output.stderr));
}

/// It is no success if the time ends before every protocol has had an execution.
#[test]
fn an_exploration_that_had_no_time_fails() {
    let folder = TempDir::new().expect("a folder");
    let arguments = ["explore", "--protocol", "silo,tictoc", "--workload", "litmus-counter", "--budget", "0.000000001"];
    let output = contend(folder.path(), &arguments);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{shown}{}", text(&output.stderr));
    assert!(shown.contains("NOTHING TESTED"), "{shown}");
}

/// An exhaustive strategy that a limit cuts off has proved less than one that came to its end.
#[test]
fn a_search_that_is_cut_off_says_so() {
    let folder = TempDir::new().expect("a folder");
    let of = |schedules: &str| {
        let arguments = ["explore", "--protocol", "silo", "--workload", "litmus-write-skew", "--transactions", "1"];
        let more = ["--strategy", "exhaustive:0", "--schedules", schedules];
        let output = contend(folder.path(), &[&arguments[..], &more].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let (cut, whole) = (of("1"), of("100k"));
    assert!(cut.contains("nothing wrong found, but the strategy has more"), "{cut}");
    assert!(whole.contains("nothing wrong in all interleavings of the strategy"), "{whole}");
}

#[test]
fn what_is_chosen_twice_is_bad_input() {
    refuses(&["explore", "--workload", "ycsb-a,ycsb-a"], &["workload 'ycsb-a' was chosen twice"]);
    refuses(&["explore", "--workload", "litmus,litmus-counter"], &["workload 'litmus-counter' was chosen twice"]);
    refuses(&["crash-test", "--workload", "tatp, tatp"], &["workload 'tatp' was chosen twice"]);
    refuses(&["kill-test", "--durability", "epoch,early,epoch"], &["durability 'epoch' was chosen twice"]);
    refuses(&["compare", "--protocols", "all,silo"], &["protocol 'silo' was chosen twice"]);
    let names = ["run", "--set", "align=packed", "--set", "engine.alignment=line"];
    refuses(&names, &["'align' and 'engine.alignment' are names of one option", "packed", "line"]);
}

#[test]
fn crash_tests_of_nothing_are_bad_input() {
    refuses(&["crash-test", "--seeds", "0"], &["error: seeds is 0; valid: 1 or more"]);
    refuses(&["crash-test", "--transactions", "0"], &["transactions is 0; valid: 1 to 10000"]);
    refuses(&["crash-test", "--transactions", "10001"], &["transactions is 10001; valid: 1 to 10000"]);
    let off = ["crash-test", "--protocol", "silo", "--set", "log=off"];
    refuses(&off, &["'silo' has log=off", "valid: epoch, clr, clr-group, elr, elr-group"]);
    refuses(&["crash-test", "--protocol", "silo+log=off"], &["'silo+log=off' has log=off"]);
    refuses(&["crash-test", "--protocol", "none"], &["there is nothing to test: none promises no isolation"]);
    let folder = TempDir::new().expect("a folder");
    let tiny = ["crash-test", "--protocol", "silo", "--workload", "ycsb-a", "--transactions", "1", "--cores", "1"];
    let output =
        contend(folder.path(), &[&tiny[..], &["--seeds", "1", "--crashes", "1", "--set", "log=epoch"]].concat());
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "nothing was acknowledged: {shown}");
    assert!(shown.contains("NOTHING TESTED"), "{shown}");
}

/// A protocol that can't be tested is named, and the other one is tested.
#[test]
fn what_is_left_out_of_a_crash_test_is_said() {
    let folder = TempDir::new().expect("a folder");
    let arguments =
        ["crash-test", "--protocol", "none,silo", "--workload", "ycsb-a", "--seeds", "5", "--set", "log=elr"];
    let output = contend(folder.path(), &arguments);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    assert_eq!(text(&output.stderr), "left out: none promises no isolation, or does not support this log\n");
}

#[test]
fn kill_tests_of_nothing_are_bad_input() {
    refuses(&["kill-test", "--kills", "0"], &["kills is 0; valid: 1 or more"]);
    refuses(&["kill-test", "--protocol", "none"], &["there is nothing to test: none promises no isolation"]);
    let log = ["kill-test", "--protocol", "silo", "--set", "log=off"];
    refuses(&log, &["'silo' sets log", "--durability", "epoch, early, conservative"]);
}

#[test]
fn a_history_of_nothing_is_bad_input() {
    let folder = TempDir::new().expect("a folder");
    let empty = r#"{"txn":1,"worker":0,"ops":[]}"#;
    for (name, content, part) in [
        ("empty", "", "no transaction"),
        ("blank", "\n \n", "no transaction"),
        ("idle", empty, "1 transaction without"),
    ] {
        std::fs::write(folder.path().join(name), content).expect("a file");
        let output = contend(folder.path(), &["check", name]);
        let stderr = text(&output.stderr);
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{stderr}");
        assert!(stderr.contains(&format!("error: {name}: {part}")), "{stderr}");
    }
    let output = contend(folder.path(), &["check", "/dev/null", "--json"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{}", text(&output.stderr));
}

#[test]
fn a_standard_input_of_nothing_is_bad_input() {
    let folder = TempDir::new().expect("a folder");
    let output = contend_with_input(folder.path(), &["check", "-"], b"\n");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("standard input: no transaction"), "{}", text(&output.stderr));
}

#[test]
fn an_assertion_that_fails_is_not_green_unless_it_is_allowed() {
    let folder = TempDir::new().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
    write("tiny.toml", TINY);
    let sweep = ["sweep", "tiny.toml", "--out", "out"];
    for (arguments, file) in [(&sweep[..], "tiny.toml"), (&["plot", "out"], "out/tiny/experiment.toml")] {
        let output = contend(folder.path(), arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
        let failure = format!("{file}: line 24, column 10: assertion 'tiny.2' fails: T(add,2) = ");
        assert!(stderr.contains(&failure) && !stderr.contains("tiny.1"), "{stderr}");
        write("allowed.txt", "# known\ntiny.2 # two\n\nother.1\n");
        let output = contend(folder.path(), &[arguments, &["--allow", "allowed.txt"]].concat());
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), String::new()));
        write("allowed.txt", "tiny.1\ntiny.2");
        let output = contend(folder.path(), &[arguments, &["--allow", "allowed.txt"]].concat());
        assert_eq!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains("note: assertion 'tiny.1' holds; allowed.txt allows it to fail"));
        write("allowed.txt", "tiny.1 tiny.2");
        let output = contend(folder.path(), &[arguments, &["--allow", "allowed.txt"]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("allowed.txt: line 1: 'tiny.1 tiny.2' is no id"));
        let output = contend(folder.path(), &[arguments, &["--allow", "nowhere.txt"]].concat());
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains("can't read --allow nowhere.txt"), "{}", text(&output.stderr));
    }
}

#[test]
fn an_assertion_that_can_not_be_evaluated_is_not_green() {
    let folder = TempDir::new().expect("a folder");
    let write = |text: &str| std::fs::write(folder.path().join("tiny.toml"), text).expect("written");
    let sweep = || contend(folder.path(), &["sweep", "tiny.toml", "--out", "out"]);
    // Mistakes in the text are found before anything is measured.
    for (wrong, parts) in [
        (r#"T("ad",2) > 1"#, &["line 24, column 10: assertion 'tiny.2': there is no series 'ad'; valid: add"][..]),
        (r#"T("add",3) > 1"#, &["line 24, column 10: assertion 'tiny.2'", "'add'", "valid: 1, 2, 4"]),
        (r#"1 > 2 && TT("add",2) > 1"#, &["line 24, column 19: assertion 'tiny.2'", "no function 'TT'"]),
        (r#"T("add",2) > "#, &["line 24, column ", "assertion 'tiny.2'"]),
    ] {
        write(&TINY.replace(r#"T("add",2) > 2*T("add",1)"#, wrong));
        let output = sweep();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{wrong}: {stderr}");
        assert!(parts.iter().all(|part| stderr.contains(part)) && stderr.contains("tiny.toml: "), "{wrong}: {stderr}");
        assert!(!folder.path().join("out").exists(), "nothing was run");
    }
    // A mistake that shows only at the evaluation can't be allowed.
    write(&TINY.replace(r#"T("add",2) > 2*T("add",1)"#, r#"F("add","wait") > 0.5"#));
    std::fs::write(folder.path().join("allowed.txt"), "tiny.2").expect("written");
    let output = contend(folder.path(), &["sweep", "tiny.toml", "--out", "out", "--allow", "allowed.txt"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("tiny.toml: line 24, column 10: assertion 'tiny.2' can't be evaluated: "), "{stderr}");
}
