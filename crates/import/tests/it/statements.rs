//! `pg_stat_statements`.

use contend_import::{ImportOptions, TraceSource};

use crate::common::{Files, TPCB, checked, refused, weights};

const COUNTS: &str = "query,calls,rows
\"UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2\",6000,6000
SELECT abalance FROM pgbench_accounts WHERE aid = $1,3000,3000
SELECT abalance FROM pgbench_accounts WHERE aid BETWEEN $1 AND $2,900,45000
\"INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)\",100,100
BEGIN,6000,0
END,6000,0
";

#[test]
fn a_mix_of_statements_asks_for_a_skew() {
    let files = Files::new();
    let schema = files.write("s.sql", TPCB);
    let source = TraceSource::PgStatStatements { schema, theta: 0.0 };
    let options = ImportOptions { rows: [("pgbench_accounts".to_owned(), 50_000)].into(), ..ImportOptions::default() };
    let text = checked(&files.write("c.csv", COUNTS), &source, &options).unwrap_or_else(|error| panic!("{error}")).text;
    let found: Vec<f64> = weights(&text).into_iter().map(|(_, weight)| weight).collect();
    assert_eq!(found, [6000.0, 3000.0, 900.0, 100.0]);
    for part in [
        "skew of the keys is unknown. Set the parameter theta",
        "theta = 0.0\n",
        "zipf(:pgbench_accounts, :theta)",
        "where aid between :aid and :aid + 49;",
        "pgbench_accounts = 50000\n",
        "12000 statements without a table of the schema",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
    let joins =
        format!("{COUNTS}\"select a.aid from pgbench_accounts a, pgbench_branches b where a.bid = b.bid\",500,1\n");
    let path = files.write("j.csv", joins);
    let error = refused(checked(&path, &source, &ImportOptions::default()));
    assert!(error.contains("4.8 %: line 8: select a.aid from") && error.contains("several tables"), "{error}");
    let allowed = ImportOptions { allow_uncovered: 0.05, ..ImportOptions::default() };
    let text = checked(&path, &source, &allowed).expect("allowed").text;
    assert!(text.contains("#   4.8 %: line 8:") && text.contains("covers 95.2 %"), "{text}");
}
