//! A log of pgbench: its three scripts come back, with their weights and the skew of their
//! accounts.

use contend_import::ImportOptions;

use crate::common::{Form, Protocol, TPCB, import_log, log_of, pgbench, skews, weights};

#[test]
fn the_scripts_of_pgbench_come_back() {
    const TRANSACTIONS: usize = 20_000;
    let come_back = |(form, protocol, theta)| {
        let log = log_of(form, &pgbench(protocol, TRANSACTIONS, theta, 11));
        let imported = import_log(&log, TPCB, &ImportOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let text = &imported.text;
        let found = weights(text);
        assert_eq!(found.len(), 3, "{text}");
        for ((_, weight), expected) in found.iter().zip([0.5, 0.3, 0.2]) {
            assert!((weight / TRANSACTIONS as f64 - expected).abs() < 0.01, "{found:?}");
        }
        let found = skews(text, "pgbench_accounts");
        assert_eq!(found.len(), 3, "{text}");
        assert!(found.iter().all(|found| (found - theta).abs() < 0.05), "{theta}: {found:?}");
        // An account is drawn once in a transaction, and used three times.
        let whole =
            text.split("[[transaction]]").find(|part| part.contains("pgbench_tellers set")).expect("the first script");
        assert_eq!(whole.matches(":aid").count(), 3, "{whole}");
        assert!(whole.contains("\\set tid random(0, :pgbench_tellers - 1)"), "{whole}");
        assert!(
            whole.contains("update pgbench_branches set bbalance = bbalance + :abalance where bid = 0;"),
            "{whole}"
        );
        assert!(text.contains("the file covers 100.0 % of the statements"), "{text}");
        assert!(text.contains("pgbench_tellers = 10\n") && text.contains("pgbench_branches = 1\n"), "{text}");
        assert!(!text.contains("5000"), "no value of the trace is in the file: {text}");
        let values =
            import_log(&log, TPCB, &ImportOptions { values: true, ..ImportOptions::default() }).expect("taken");
        assert!(values.text.contains("\\set abalance random(-"), "{}", values.text);
    };
    let cases = [
        (Form::Json, Protocol::Simple, 0.9),
        (Form::Csv, Protocol::Simple, 0.9),
        (Form::Json, Protocol::Extended, 0.5),
        (Form::Csv, Protocol::Extended, 0.99),
    ];
    std::thread::scope(|scope| cases.into_iter().for_each(|case| _ = scope.spawn(move || come_back(case))));
}

#[test]
fn both_forms_and_both_protocols_give_the_same_scripts() {
    let import = |form, protocol| {
        let log = log_of(form, &pgbench(protocol, 3_000, 0.8, 5));
        let text = import_log(&log, TPCB, &ImportOptions::default()).expect("taken").text;
        // The times of the log are counted in different ways.
        text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
    };
    let first = import(Form::Json, Protocol::Simple);
    assert_eq!(first, import(Form::Csv, Protocol::Simple));
    assert_eq!(first, import(Form::Json, Protocol::Extended));
    assert_eq!(first, import(Form::Json, Protocol::Simple), "an import repeats itself");
}
