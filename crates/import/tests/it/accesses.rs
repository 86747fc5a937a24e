//! Lists of accesses.

use std::fmt::Write as _;

use contend_import::{ImportOptions, Imported, TraceSource};
use contend_workloads::zipf::Zipf;
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

use crate::common::{Files, checked, skews, weights};

fn import(text: &str) -> Imported {
    let files = Files::new();
    let path = files.write("a.csv", text);
    checked(&path, &TraceSource::Accesses { row_bytes: 100 }, &ImportOptions::default())
        .unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn weights_and_skews_come_back() {
    const TRANSACTIONS: usize = 10_000;
    let mut random = SmallRng::seed_from_u64(9);
    let zipf = Zipf::new(20_000, 0.8);
    let mut text = "time,session,txn,op,table,key,key2\n".to_owned();
    for number in 0..TRANSACTIONS {
        let (time, session) = (number as f64 / 1e3, number % 5);
        let mut line = |op: &str, table: &str, key: u64, key2: &str| {
            writeln!(text, "{time:.3},s{session},{number},{op},{table},{key},{key2}").expect("a text");
        };
        let key = zipf.draw(random.next_u64());
        if random.random_bool(0.75) {
            line("r", "stock", key, "");
            line("u", "stock", key, "");
            line("i", "orders", number as u64, "");
        } else {
            let first = random.random_range(0..19_000);
            line("s", "stock", first, &(first + 49).to_string());
            line("w", "people", random.random_range(0..500), "");
            line("d", "orders", random.random_range(0..9_000), "");
        }
    }
    let text = import(&text).text;
    let found = weights(&text);
    assert_eq!(found.len(), 2, "{text}");
    assert!((found[0].1 / TRANSACTIONS as f64 - 0.75).abs() < 0.01, "{found:?}");
    let found = skews(&text, "stock");
    assert!(found.len() == 1 && (found[0] - 0.8).abs() < 0.05, "{found:?}");
    for part in [
        "select v, filling from stock where k = :k;\nupdate stock set v = v * 1 where k = :k;",
        "\\set k_2 unique()",
        "where k between :k and :k + 49;",
        "update people set v = 1, filling = random_text(84) where k = :k_2;",
        "random(0, :people - 1)",
        "delete from orders where k = ",
        "people = 500\n",
        "filling char(84)",
        "5 sessions",
        "mean 1000.0, least 1000, most 1000, over 10 seconds",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
}

#[test]
fn keys_may_be_texts_and_sessions_may_be_mixed() {
    let mut text = String::new();
    for number in 0..300 {
        let key = format!("user-{}", number % 40);
        writeln!(text, ",a,{number},r,\"The Users\",{key}\n,b,x{number},r,other.table,{number}").expect("a text");
        writeln!(text, ",a,{number},w,\"The Users\",{key}").expect("a text");
    }
    let text = import(&text).text;
    assert_eq!(weights(&text), [("update-the-users".to_owned(), 300.0), ("read-other-table".to_owned(), 300.0)]);
    assert!(text.contains("create table the_users ("), "{text}");
    assert!(text.contains("the_users = 40\n"), "{text}");
}

#[test]
fn rounds_become_a_loop() {
    let mut random = SmallRng::seed_from_u64(4);
    let mut text = String::new();
    for number in 0..2_000 {
        writeln!(text, "0,a,{number},r,customer,{}", random.random_range(0..100)).expect("a text");
        for _ in 0..random.random_range(5..=15) {
            let item = random.random_range(0..1000);
            writeln!(text, "0,a,{number},r,item,{item}\n0,a,{number},u,stock,{item}").expect("a text");
        }
    }
    let text = import(&text).text;
    assert_eq!(weights(&text).len(), 1, "{text}");
    assert!(text.contains("\\set rounds_0 random(5, 15)\n\\repeat :rounds_0\n"), "{text}");
    assert!(text.contains("  update stock set v = v * 1 where k = :k_2;\n\\endrepeat"), "{text}");
}
