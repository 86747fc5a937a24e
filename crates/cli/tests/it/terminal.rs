//! Output that fits a terminal, and messages about wrong arguments.

use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::common::{contend, refuses, text};

/// Runs the binary as in a terminal that is `columns` characters wide.
fn in_columns(columns: &str, folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_contend"));
    command.args(arguments).current_dir(folder).env("COLUMNS", columns).output().expect("the binary runs")
}

const SHORT: [&str; 10] =
    ["--seconds", "0.05", "--windows", "2", "--warmup", "0.01", "--threads", "2", "--set", "ycsb.records=1000"];

#[test]
fn lists_fit_the_terminal_and_break_no_word() {
    let folder = TempDir::new().expect("a folder");
    for columns in ["60", "80", "120"] {
        let limit: usize = columns.parse().expect("a number");
        for what in ["protocols", "workloads", "options", "machines", "indexes"] {
            let shown = text(&in_columns(columns, folder.path(), &["list", what]).stdout);
            let too_wide: Vec<&str> = shown.lines().filter(|line| line.trim_end().chars().count() > limit).collect();
            assert!(too_wide.is_empty(), "{columns}, {what}: {too_wide:?}");
        }
        let shown = text(&in_columns(columns, folder.path(), &["list", "protocols"]).stdout);
        for word in ["2pl-dldetect", "2pl-nowait", "optimistic", "timestamp", "serializable"] {
            assert!(shown.contains(word) || shown.contains("no room for: isolation"), "{columns}: {word}: {shown}");
        }
    }
    let narrow = text(&in_columns("60", folder.path(), &["list", "protocols"]).stdout);
    assert!(narrow.contains("\nno room for: ") && narrow.contains("paper"), "{narrow}");
    let wide = text(&in_columns("250", folder.path(), &["list", "protocols"]).stdout);
    assert!(!wide.contains("no room for"), "{wide}");
}

#[test]
fn results_fit_the_terminal() {
    let folder = TempDir::new().expect("a folder");
    for columns in ["60", "80", "120"] {
        let limit: usize = columns.parse().expect("a number");
        let arguments = [&["compare", "--protocols", "none,2pl-nowait,silo"][..], &SHORT].concat();
        let output = in_columns(columns, folder.path(), &arguments);
        let shown = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
        let rules: Vec<usize> =
            shown.lines().filter(|line| line.contains("──")).map(|line| line.chars().count()).collect();
        assert!(!rules.is_empty() && rules.iter().all(|rule| *rule <= limit), "{columns}: {rules:?}\n{shown}");
        assert!(shown.contains("2pl-nowait") && shown.contains("median"), "{shown}");
    }
}

#[test]
fn numbers_below_zero_are_called_that() {
    let said = "it is below 0; valid: a whole number, such as 8, 10k or 1e6";
    refuses(&["compare", "--threads", "-1"], &["invalid value '-1' for '--threads <N>'", said]);
    refuses(&["run", "--windows", "-5"], &["'-5' for '--windows <N>'", said]);
    refuses(&["explore", "--cores", "-2"], &["'-2' for '--cores <C>'", said]);
    refuses(&["run", "--threads", "two"], &["'two' for '--threads <N>'", "it is no whole number"]);
    refuses(&["run", "--threads", "1e99"], &["'1e99'", "too large"]);
    refuses(&["run", "--threads", "1e6"], &["threads is 1000000; valid: 1 to 1000"]);
    refuses(&["run", "--seconds", "1e300"], &["seconds is 1e300; valid"]);
    refuses(&["run", "--seconds", "-1"], &["seconds is -1; valid: 0.001 to 86400"]);
    refuses(&["run", "--threads"], &["a value is required for '--threads <N>'"]);
}

#[test]
fn options_of_others_and_slips_are_told() {
    let foreign = "option 'bank.accounts' belongs to the workload bank, which does not run here (chosen: ycsb-a)";
    refuses(&["run", "--set", "bank.accounts=5"], &[foreign]);
    refuses(&["run", "--set", "theta=0.5"], &["unknown option 'theta'; did you mean 'ycsb.theta'?; valid: "]);
    refuses(&["run", "--set", "ycsb.teta=0.5"], &["did you mean 'ycsb.theta'?"]);
    refuses(&["run", "ycbs-a"], &["unknown workload 'ycbs-a'; did you mean 'ycsb-a'?"]);
    refuses(&["run", "--protocol", "tictac"], &["unknown protocol 'tictac'; did you mean 'tictoc'?"]);
    refuses(&["run", "--protocol", "silo+wait=nowait"], &["did you mean 'silo.wait'?"]);
    let backoff = ["run", "--set", "retry.min_us=100", "--set", "retry.max_us=10"];
    refuses(&backoff, &["retry.max_us is 10 and retry.min_us is 100; valid: retry.max_us from retry.min_us on"]);
}

#[test]
fn a_setting_is_there_once() {
    let twice = ["run", "--set", "ycsb.theta=0.5", "--set", "ycsb.theta = 0.6"];
    refuses(&twice, &["--set ycsb.theta is given twice, with 0.5 and with 0.6"]);
    refuses(&["explore", "--set", "cu=on", "--set", "cu=off"], &["--set cu is given twice, with on and with off"]);
    let folder = TempDir::new().expect("a folder");
    let same = [&["run", "--set", "ycsb.theta=0.5", "--set", "ycsb.theta=0.5"][..], &SHORT].concat();
    let output = contend(folder.path(), &same);
    assert_eq!(output.status.code(), Some(0), "the same twice is once: {}", text(&output.stderr));
}

#[test]
fn powers_of_ten_are_whole_numbers() {
    let folder = TempDir::new().expect("a folder");
    let records = |records: &str| {
        let set = format!("ycsb.records={records}");
        let output = contend(folder.path(), &[&["run", "--json", "-", "--set", &set], &SHORT[..8]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        json["options"]["ycsb.records"].clone()
    };
    assert_eq!(records("1e3"), "1000");
    assert_eq!(records("1e3"), records("1k"));
    refuses(&["run", "--set", "ycsb.records=1e99"], &["ycsb.records", "1e99", "1e6 allowed"]);
}

#[test]
fn a_very_long_argument_is_not_repeated_whole() {
    let long = "x".repeat(100_000);
    let words = "x y ".repeat(25_000);
    let (set, entry) = (format!("{long}=1"), format!("silo+{long}"));
    for arguments in [
        &["run", &long][..],
        &["run", &words],
        &["run", "--protocol", &long],
        &["run", "--protocol", &entry],
        &["run", "--threads", &long],
        &["run", "--set", &set],
        &["run", "--set", &words],
        &["check", &long],
        &["sweep", &words],
        &[&long],
    ] {
        let folder = TempDir::new().expect("a folder");
        let output = contend(folder.path(), arguments);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{}", stderr.len());
        assert!(stderr.len() < 8_000, "{} bytes for {:?}", stderr.len(), &arguments[0][..4.min(arguments[0].len())]);
        assert!(stderr.contains("characters)") && stderr.contains("error: "), "{stderr}");
    }
}

/// Beyond a limit of file sizes (`ulimit -f`), an error names the file; no signal ends the process.
#[test]
fn a_limit_of_file_sizes_is_an_error() {
    let folder = TempDir::new().expect("a folder");
    let script = format!(
        "ulimit -f 1; exec '{}' run --json r.json --history h.jsonl {}",
        env!("CARGO_BIN_EXE_contend"),
        SHORT.join(" ")
    );
    let output = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().expect("bash");
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("can't write ") && stderr.contains("r.json: File too large"), "{stderr}");
    assert!(text(&output.stdout).contains("silo"), "the table is shown all the same");
    assert_eq!(std::fs::read_dir(folder.path()).expect("the folder").count(), 0, "half a file is no file");
}

/// Memory that a limit refuses ends a command with one message, however little there is.
#[test]
fn a_limit_of_memory_is_an_error() {
    let folder = TempDir::new().expect("a folder");
    let run = format!("run --threads 64 {}", SHORT.join(" "));
    let mut refused = 0;
    for command in [&*run, "explore --protocol silo --schedules 5", "run --machine abyss:1024 --seconds 1e-5"] {
        for kib in [100_000, 200_000, 400_000, 800_000] {
            let script = format!("ulimit -v {kib}; exec '{}' {command}", env!("CARGO_BIN_EXE_contend"));
            let output = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().expect("bash");
            let stderr = text(&output.stderr);
            let is_refused = output.status.code() == Some(2) && stderr.contains("error: ");
            assert!(is_refused || output.status.success(), "{command}, {kib} KiB: {}: {stderr}", output.status);
            assert!(!stderr.contains("panicked") && !stderr.contains("backtrace"), "{command}, {kib} KiB: {stderr}");
            refused += u32::from(is_refused);
        }
    }
    assert!(refused >= 3, "the least memory is too little for each command");
}

#[test]
fn protocols_are_named_alike_everywhere() {
    let folder = TempDir::new().expect("a folder");
    for flag in ["--protocol", "--protocols"] {
        for arguments in [
            [&["run", flag, "silo"][..], &SHORT].concat(),
            [&["compare", flag, "silo,none", "--no-verify"][..], &SHORT].concat(),
            vec!["explore", flag, "silo,tictoc", "--workload", "litmus-counter", "--schedules", "20"],
        ] {
            let output = contend(folder.path(), &arguments);
            assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output.stderr));
        }
    }
    refuses(&["run", "--protocols", "silo,none"], &["run takes one protocol, not 'silo,none'; contend compare takes"]);
    refuses(&["run", "--protocol", "all"], &["run takes one protocol, not 'all'"]);
    refuses(&["run", "--protocol", "silo", "--protocols", "none"], &["cannot be used multiple times"]);
}

#[test]
fn nothing_timed_is_no_time() {
    let folder = TempDir::new().expect("a folder");
    // One transaction in sixteen is timed, and none of these few is.
    let arguments = ["run", "tpcc", "--machine", "abyss:1", "--seconds", "0.00002", "--warmup", "0", "--windows", "1"];
    let output = contend(folder.path(), &arguments);
    let shown = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{shown}{}", text(&output.stderr));
    assert!(!shown.contains(" 0 ns ") && shown.contains(" - "), "{shown}");
}

#[test]
fn shells_complete_names() {
    let folder = TempDir::new().expect("a folder");
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = contend(folder.path(), &["completions", shell]);
        let script = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        assert!(script.contains("crash-test") && script.contains("protocols"), "{shell}: verbs and flags");
        // The scripts of these two complete verbs and flags only.
        let knows_values = !["elvish", "powershell"].contains(&shell);
        for name in ["2pl-nowait", "tpcc", "ycsb.theta=", "engine.alignment=", "align=", "xeon-8176x4"] {
            assert!(script.contains(name) || !knows_values, "{shell}: {name}");
        }
        assert!(!script.contains("kill-child"), "{shell}: what is hidden stays hidden");
    }
    refuses(&["completions", "tcsh"], &["tcsh", "bash", "zsh", "fish"]);
    refuses(&["completions"], &["<SHELL>"]);
    // bash runs the printed script, and completes by it.
    let completes = |line: &str, expected: &[&str]| {
        let words: Vec<&str> = line.split(' ').collect();
        let script = format!(
            "source <('{}' completions bash); COMP_WORDS=({line}); COMP_CWORD={}; _contend contend '{}' '{}'; echo \"${{COMPREPLY[@]}}\"",
            env!("CARGO_BIN_EXE_contend"),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let output = Command::new("bash").args(["-c", &script]).output().expect("bash");
        let answered = text(&output.stdout);
        for part in expected {
            assert!(answered.contains(part), "{line}: {answered}{}", text(&output.stderr));
        }
    };
    completes("contend cra", &["crash-test"]);
    completes("contend run --protocol 2pl-n", &["2pl-nowait"]);
    completes("contend compare --machine xe", &["xeon-8176x4"]);
    completes("contend explore --set ycsb.th", &["ycsb.theta="]);
    completes("contend explore --set c", &["cu="]);
    completes("contend explore --workload litmus-w", &["litmus-write-skew"]);
}

#[test]
fn there_are_manual_pages() {
    let folder = TempDir::new().expect("a folder");
    let page = text(&contend(folder.path(), &["man"]).stdout);
    assert!(page.contains(".TH contend 1") && page.contains("compare"), "{page}");
    let page = text(&contend(folder.path(), &["man", "crash-test"]).stdout);
    assert!(page.contains("seeds") && page.contains(".TH"), "{page}");
    let output = contend(folder.path(), &["man", "--out", "man1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for name in ["contend", "contend-run", "contend-compare", "contend-bench-limit", "contend-log-dump"] {
        assert!(folder.path().join(format!("man1/{name}.1")).is_file(), "{name}");
    }
    assert!(!folder.path().join("man1/contend-kill-child.1").exists());
    refuses(&["man", "rnu"], &["unknown verb 'rnu'", "compare", "explore"]);
    refuses(&["man", "run", "--out", "x"], &["cannot be used with"]);
}
