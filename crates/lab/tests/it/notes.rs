//! The sentences beside the figures. A simulated chip repeats its runs exactly.

use contend_lab::notes::{checked, notes};
use contend_lab::{ResultFile, compare, report};
use contend_runner::{Arrivals, RunConfig, Silent, Stop};

/// Orders are only inserted, and most of the payments find nothing to pay.
const ORDERS: &str = r#"
name = "orders"
schema = "create table item (id int primary key, stock int); create table orders (no bigint primary key, item int);"
rows.item = 100
[[transaction]]
name = "order"
script = '''
\set i random(0, 99)
update item set stock = stock - 1 where id = :i;
insert into orders values (unique(), :i);
'''
[[transaction]]
name = "pay"
script = '''
\set i random(0, 999)
select stock from item where id = :i \gset
\if :found = 0
  rollback;
\endif
'''
[[invariant]]
name = "each order takes one piece"
equal = ["select 0 - sum(stock) from item", "select count(*) from orders"]
"#;

fn result() -> ResultFile {
    let config = RunConfig {
        workload: "orders.toml".into(),
        workload_text: Some(ORDERS.into()),
        protocols: vec!["silo".into(), "none".into(), "mvto".into()],
        verify: false,
        ..RunConfig::default()
    };
    let chip = config.on("abyss:2").expect("a machine");
    let config = RunConfig { windows: 6, window_seconds: 5e-5, warmup_seconds: 2e-5, ..chip };
    compare(&config.resolve().expect("valid input"), &Stop::default(), &Silent).expect("a result")
}

/// Gives the windows of an entry these rates.
fn with_rates(result: &mut ResultFile, entry: usize, rate: impl Fn(usize) -> f64) {
    let measured = result.protocols[entry].measured.as_mut().expect("figures");
    measured.windows.iter_mut().enumerate().for_each(|(number, window)| window.throughput_tps = rate(number));
}

fn is_in(lines: &[String], parts: &[&str]) -> bool {
    lines.iter().any(|line| parts.iter().all(|part| line.contains(part)))
}

#[test]
fn a_steady_fall_is_told_with_the_tables_that_grow() {
    let mut result = result();
    for entry in &result.protocols {
        let tables = &entry.measured.as_ref().expect("figures").tables;
        let orders = tables.iter().find(|of| of.table == "orders").expect("it is counted");
        let items = tables.iter().find(|of| of.table == "item").expect("it is counted");
        assert!(orders.rows_loaded == 0 && orders.rows_at_end > 10, "{tables:?}");
        assert_eq!((items.rows_loaded, items.rows_at_end), (100, 100));
    }
    let rows = result.protocols[0].measured.as_ref().expect("figures").tables[1].rows_at_end;
    (0..3).for_each(|entry| with_rates(&mut result, entry, |_| 1e5));
    assert!(!is_in(&notes(&result), &["from window to window"]), "{:?}", notes(&result));
    with_rates(&mut result, 0, |window| 178e3 - 20e3 * window as f64);
    with_rates(&mut result, 1, |window| 1e5 + 30e3 * window as f64);
    let (falls, rises) = (result.protocols[0].protocol.clone(), result.protocols[1].protocol.clone());
    let lines = notes(&result);
    let growth = format!("orders from 0 to {rows} rows");
    assert!(
        is_in(&lines, &["throughput falls", &format!("{falls} 168.0 k to 88.0 k /s"), &growth, "--windows"]),
        "{lines:?}"
    );
    assert!(is_in(&lines, &["throughput rises", &format!("{rises} 115.0 k to 235.0 k /s"), "--warmup"]), "{lines:?}");
    assert!(report::html(&result, "contend compare").contains("throughput falls"));
    // Where no table grows, or none was counted, that is not the cause.
    result.protocols[0].measured.as_mut().expect("figures").tables.clear();
    assert!(is_in(&notes(&result), &["throughput falls", "no table is known to grow"]));
    // A rate that was asked for may fall.
    result.config.arrivals = Some(Arrivals::at(1e5));
    assert!(!is_in(&notes(&result), &["from window to window"]));
}

#[test]
fn transactions_that_give_up_are_told_and_so_is_what_was_checked() {
    let mut result = result();
    let lines = notes(&result);
    assert!(is_in(&lines, &["pay gives up in ", " % of its tries", "Load more of the rows"]), "{lines:?}");
    assert!(!is_in(&lines, &["order gives up"]), "{lines:?}");
    for entry in &mut result.protocols {
        entry.check.as_mut().expect("it was checked").text = "'each order takes one piece' holds".into();
    }
    assert_eq!(checked(&result), ["checked after the run: 'each order takes one piece' holds"]);
    let other = result.protocols[2].protocol.clone();
    result.protocols[2].check.as_mut().expect("it was checked").text = "nothing is promised; warning: keys".into();
    assert!(is_in(&checked(&result), &[&format!("({other}): nothing is promised")]), "{:?}", checked(&result));
    assert!(!is_in(&checked(&result), &["warning"]) && is_in(&notes(&result), &["warning", "keys"]));
    // What failed is told elsewhere.
    result.protocols[2].check.as_mut().expect("it was checked").passed = false;
    assert!(!is_in(&checked(&result), &["nothing is promised"]), "{:?}", checked(&result));
}
