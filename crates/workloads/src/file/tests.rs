//! Workload files, tried as their writers would.

use contend_machine::Native;
use contend_model::{DeclarationNeeds, Declare, IndexKind, Key, Options, Table};
use contend_protocols::locking::ordered::Ordered;
use contend_protocols::multiversion::hekaton::Hekaton;
use contend_protocols::optimistic::silo::Silo;

use super::{FileOptions, FileWorkload, WorkloadFile};
use crate::run_for_tests::{check, clients, run, world};
use crate::workload::{DeclaredRows, Declares, ThinkTime, Workload};

pub(super) const SHOP: &str = include_str!("../../../../workloads/shop.toml");
const SHIPPED: [(&str, &str); 5] = [
    ("shop.toml", SHOP),
    ("bank.toml", include_str!("../../../../workloads/bank.toml")),
    ("tpcb.toml", include_str!("../../../../workloads/tpcb.toml")),
    ("ycsb-a.toml", include_str!("../../../../workloads/ycsb-a.toml")),
    ("tpcc.toml", include_str!("../../../../workloads/tpcc.toml")),
];

pub(super) fn options(name: &str, text: &str) -> FileOptions {
    WorkloadFile::read(name, text).unwrap_or_else(|error| panic!("{error}")).options().expect("valid")
}

/// A file with this script, over tables `t` and `u`.
pub(super) fn with_script(script: &str) -> String {
    format!(
        "name = \"one\"\nschema = '''\ncreate table t (id int primary key, a int, b int, s varchar(20));\n\
         create table u (x smallint, y int, a int, primary key (x, y));\ncreate index by_a on u (a);\n'''\n\
         [rows]\nt = 10\n[parameters]\nhalf = 0.5\n[fill]\n\"t.a\" = \":row * 2\"\n\"t.s\" = \"'old'\"\n\
         [[transaction]]\nname = \"only\"\nscript = '''\n{script}\n'''\n"
    )
}

#[test]
fn shipped_files_run_right_under_an_optimistic_and_a_multiversion_protocol() {
    for (name, text) in SHIPPED {
        let small = FileWorkload::for_verification(&options(name, text));
        let checked = run::<Silo, FileWorkload>(&small, 3, 800).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(!checked.0.contains("warning"), "{name}: {}", checked.0);
        run::<Hekaton<Native>, FileWorkload>(&small, 3, 400).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// Runs a script once. Returns the values of a query after it.
fn after(script: &str, query: &str, expected: &str) -> Result<(), String> {
    let text =
        format!("{}\n[[invariant]]\nname = \"end\"\nequal = [\"{query}\", \"{expected}\"]\n", with_script(script));
    let options = WorkloadFile::read("one.toml", &text)?.options()?;
    let world = world::<Silo, FileWorkload>(&options);
    let clients = clients(&world, 1, 1);
    check(&world, &clients).map(drop).map_err(|violation| violation.0)
}

#[test]
fn statements_do_what_they_say() {
    for (script, query, expected) in [
        ("update t set a = 7 where id = 3;", "select sum(a) from t", "90 - 6 + 7"),
        ("update t set a = a + 5, b = b - 1 where id = 3;", "select sum(a) + sum(b) from t", "94"),
        ("update t set a = a * 3 + b where id = 3;", "select sum(a) from t", "90 + 12"),
        (
            "select a, b from t where id = 4 \\gset v_\nupdate t set b = :v_a + :v_b where id = 1;",
            "select sum(b) from t",
            "8",
        ),
        ("delete from t where id = 9;", "select count(*) from t", "9"),
        ("insert into t (id, a) values (10, 100);", "select max(a) from t", "100"),
        (
            "insert into t values (3, 1, 1, 'x') on conflict do nothing;\n\\set f :found\nupdate t set b = :f + 5 where id = 0;",
            "select sum(b) from t",
            "5",
        ),
        ("insert into t values (3, 1, 1, 'x');\nupdate t set b = 9 where id = 0;", "select sum(b) from t", "0"),
        (
            "select count(*), sum(a) as s, max(a) as m from t where id between 2 and 5 \\gset\nupdate t set b = :count * 1000 + :s * 10 + :m where id = 0;",
            "select sum(b) from t",
            "4290",
        ),
        (
            "select id from t where id > 2 and id < 100 order by id desc limit 1 offset 2 \\gset\nupdate t set b = :id where id = 0;",
            "select sum(b) from t",
            "7",
        ),
        (
            "\\foreach select id, a from t where id >= 8\nupdate t set b = :a where id = :id;\n\\endforeach",
            "select sum(b) from t",
            "34",
        ),
        (
            "\\foreach select id from t where id < 3\n\\foreach select a from t where id < 2\nupdate t set b = b + 1 where id = :id;\n\\endforeach\n\\endforeach",
            "select sum(b) from t",
            "6",
        ),
        ("\\repeat 5\n\\set k :k_next\n\\endrepeat", "select 0 + count(*) from t", "10"),
        (
            "\\set n 0\n\\repeat 7\n\\set n :n + 1\n\\endrepeat\nupdate t set b = :n where id = 0;",
            "select sum(b) from t",
            "7",
        ),
        (
            "\\set x 5\n\\if :x < 3\nupdate t set b = 1 where id = 0;\n\\elif :x between 4 and 6\nupdate t set b = 2 where id = 0;\n\\else\nupdate t set b = 3 where id = 0;\n\\endif",
            "select sum(b) from t",
            "2",
        ),
        ("update t set b = 1 where id = 0;\nrollback;", "select sum(b) from t", "0"),
        (
            "select a from t where id = 77 \\gset\n\\if :found\nupdate t set b = 1 where id = 0;\n\\endif",
            "select sum(b) from t",
            "0",
        ),
        (
            "update t set s = 'new', b = case when 1 = 1 then 4 else 5 end where id = 2;\nselect s, b from t where id = 2 \\gset\n\\if :s = 'new'\nupdate t set b = :b + 10 where id = 0;\n\\endif",
            "select sum(b) from t",
            "18",
        ),
        (
            // Each result of a case is computed where it is chosen, and all end in one register.
            "\\set n 0\n\\repeat 4\n\\set x case when :n < 2 then case when :n = 0 then :n + 1 else :n * 20 end when :n = 2 then 300 else :n * 1000 + 2 end\nupdate t set b = :x where id = :n;\n\\set n :n + 1\n\\endrepeat",
            "select sum(b) from t",
            "3323",
        ),
        (
            "insert into u values (1, 2, 50);\ninsert into u values (1, 3, 50);\ninsert into u values (2, 1, 60);\nupdate u set a = a + 1 where x = 1 and y = 3;\nselect count(*) as n, sum(y) as s from u where a = 51 \\gset\nupdate t set b = :n * 10 + :s where id = 0;",
            "select sum(b) from t",
            "13",
        ),
        ("insert into u values (1, 2, 50);\ndelete from u where x = 1 and y = 2;", "select count(*) from by_a", "0"),
        (
            "insert into u values (1, 2, 50);\ninsert into u values (1, 9, 50);\nselect sum(y) as s from u where x = 1 and y >= 3 \\gset\nupdate t set b = :s where id = 0;",
            "select sum(b) from t",
            "9",
        ),
        (
            "select a from t where id = 5 for update \\gset\nupdate t set b = :a / 3 where id = 5;",
            "select sum(b) from t",
            "3",
        ),
        (
            "select a from t where id = -1 \\gset\nupdate t set b = :found + 3 where id = 0;",
            "select sum(b) from t",
            "3",
        ),
        (
            "\\set d distinct(4) + distinct(4) * 10 + distinct(5) * 100\nupdate t set b = :d where id = 0;",
            "select sum(b) from t",
            "101",
        ),
        (
            "select count(*) from t where id > 9223372036854775807 \\gset\nupdate t set b = :count + 1 where id = 0;",
            "select sum(b) from t",
            "1",
        ),
        ("\\if 1 -- always\nupdate t set b = 1 where id = 0;\n\\endif -- the end", "select sum(b) from t", "1"),
        ("\\set z 0\n\\set q 10 / :z\nupdate t set b = :q + 1 where id = 0;", "select sum(b) from t", "1"),
    ] {
        let script = script.replace("\\set k :k_next\n", "\\set k 1\nselect a from t where id = :k;\n");
        after(&script, query, expected).unwrap_or_else(|error| panic!("{script}\n{error}"));
    }
}

/// A change of a range changes each of its rows, whatever the kind of the change and however the
/// rows are found.
#[test]
fn changes_of_ranges_change_each_row() {
    let rows = "insert into u values (1, 2, 50);\ninsert into u values (1, 3, 50);\ninsert into u values (2, 1, 60);\n\
                insert into u values (3, 1, 50);\n";
    for (script, query, expected) in [
        ("update t set b = b + 1 where id >= 4;", "select sum(b) from t", "6"),
        ("update t set b = 3 where id between 4 and 5;", "select sum(b) from t", "6"),
        ("update t set b = b + 2;", "select sum(b) from t", "20"),
        ("update t set b = a * 2 + id where id < 3;", "select sum(b) from t", "12 + 3"),
        ("update t set a = 1, b = 1, s = 'new' where id > 7;", "select sum(a) + sum(b) from t", "56 + 2 + 2"),
        ("update u set a = a + 1 where x = 1;", "select sum(a) from u", "51 + 51 + 60 + 50"),
        // By an index, also one whose entries the change moves.
        ("update u set a = 70 where a = 50;", "select sum(a) from u", "70 + 70 + 60 + 70"),
        ("update u set a = a + 10 where a = 50 and x <= 2;", "select sum(a) from u", "60 + 60 + 60 + 50"),
        ("update u set a = 70 where a = 50 and x = 1;", "select sum(a) from u", "70 + 70 + 60 + 50"),
        ("update u set a = 50 where a = 60;\ndelete from u where a = 50;", "select count(*) from u", "0"),
        ("delete from u where x = 1;", "select count(*) from u", "2"),
        ("delete from u where x <= 2;", "select count(*) from by_a", "1"),
        ("delete from u;", "select count(*) from by_a", "0"),
        // No row, and values that no key has.
        ("update u set a = 1 where x = 9;\nupdate u set a = 1 where x = -1;", "select sum(a) from u", "210"),
        ("delete from u where x = 70000;", "select count(*) from u", "4"),
        // The number of changed rows.
        ("update u set a = 1 where x = 1;\nupdate t set b = :found where id = 0;", "select sum(b) from t", "2"),
        ("delete from u where a = 50;\nupdate t set b = :FOUND where id = 0;", "select sum(b) from t", "3"),
        (
            "select a from t where id = 1;\nupdate u set a = 1 where x = 9;\nupdate t set b = 5 + :found where id = 0;",
            "select sum(b) from t",
            "5",
        ),
        // Inside of the statement, that of the one before.
        (
            "select a from t where id = 1;\nupdate u set a = 1 where x = :found;",
            "select sum(a) from u",
            "1 + 1 + 60 + 50",
        ),
        ("select a from t where id = 99;\nupdate t set b = :found + 3 where id >= 4;", "select sum(b) from t", "18"),
        ("select a from t where id = 1;\ndelete from u where a = 50 and x <= :found;", "select count(*) from u", "2"),
        // In loops, and with loops around them.
        (
            "\\foreach select x from u\nupdate u set a = a + 1 where x = :x;\n\\endforeach",
            "select sum(a) from u",
            "210 + 2 * 2 + 2",
        ),
        ("\\repeat 3\nupdate u set a = a * 2 where x = 1;\n\\endrepeat", "select sum(a) from u", "800 + 110"),
        ("delete from u where x = 1;\nrollback;", "select count(*) from u", "0"),
    ] {
        let script = format!("{rows}{script}");
        after(&script, query, expected).unwrap_or_else(|error| panic!("{script}\n{error}"));
    }
    // More rows than a scan visits, and rows without a primary key.
    let many = with_script("update t set b = 1;\nupdate h set c = c + 1;\ndelete from u where x = 0;")
        .replace("create index", "create table h (c int);\ncreate index");
    let many = many.replace("t = 10", "t = 3_000\nh = 1_500").replace("[fill]", "[fill]\n\"h.c\" = \"1\"");
    let end = "\n[[invariant]]\nname = \"end\"\nequal = [\"select sum(b) * 10000 + max(b) from t\", \"3000 * 10000 + 1\"]\n\
               [[invariant]]\nname = \"h\"\nequal = [\"select sum(c) from h\", \"3000\"]\n";
    let options = options("many.toml", &format!("{many}{end}"));
    let world = world::<Silo, FileWorkload>(&options);
    let clients = clients(&world, 1, 1);
    check(&world, &clients).unwrap_or_else(|violation| panic!("{}", violation.0));
}

#[test]
fn latest_rows_are_loaded_and_then_inserted_ones() {
    let script = "\\set k latest(t, 0)\nupdate t set b = 1 where id = :k;\ninsert into t (id) values (unique());";
    // The ten newest rows: after 50 inserts none of them was loaded, and none of them is missing.
    let more = "\n[[invariant]]\nname = \"hit\"\nat_least = [\"select sum(b) from t\", \"20\"]\n";
    let options = options("one.toml", &(with_script(script) + more));
    assert_eq!(FileWorkload::declares(&options).rows, DeclaredRows::All, "the age is drawn, and decides alone");
    let checked = run::<Silo, FileWorkload>(&options, 1, 50).expect("rows that are not loaded are hit");
    assert!(!checked.0.contains("warning"), "{}", checked.0);
    // A transaction that cancels itself inserts nothing, so all keys stay loaded ones.
    let cancelled = script.to_owned() + "\n\\if :client_id = 0\nrollback;\n\\endif";
    let error = run::<Silo, FileWorkload>(&self::options("one.toml", &(with_script(&cancelled) + more)), 1, 50);
    assert!(error.expect_err("nothing is committed").0.contains("'hit': 0"));
}

#[test]
fn bytes_are_drawn_and_stored_like_texts() {
    let file = |script: &str, fill: &str| {
        format!(
            "name = \"raw\"\nschema = '''\ncreate table t (id int primary key, r bytea(20), s BYTEA (3), v varchar(20), n int);\n\
             '''\n[rows]\nt = 40\n[fill]\n{fill}\n[[transaction]]\nname = \"only\"\nscript = '''\n{script}\n'''\n"
        )
    };
    // Bytes of the drawn length differ, and a text is one of the values.
    let script = "select r from t where id = 1 \\gset a_\nselect r from t where id = 2 \\gset b_\n\
        update t set n = (:a_r <> :b_r) where id = 0;\n\
        update t set r = 'letters', s = random_bytes(2) where id = 1;\nselect r, s from t where id = 1 \\gset a_\n\
        update t set n = (:a_r = 'letters') + (:a_s <> 'ab') where id = 3;\n\
        insert into t values (99, random_bytes(7), (random_bytes()), 'x', 0);";
    let more = "[[invariant]]\nname = \"n\"\nequal = [\"select sum(n) from t\", \"3\"]\n";
    let options = options("raw.toml", &(file(script, "") + more));
    run::<Silo, FileWorkload>(&options, 1, 1).unwrap_or_else(|error| panic!("{error}"));
    for (script, fill, part) in [
        ("update t set v = random_bytes(2) where id = 1;", "", "line 1, column 18: v is a text, and random_bytes"),
        ("update t set n = random_bytes(2) where id = 1;", "", "random_bytes draws a text, and a number was expected"),
        ("update t set r = 7 where id = 1;", "", "'7' is no text; valid: 'text'"),
        ("update t set s = 'long' where id = 1;", "", "4 bytes, and there is room for 3"),
        ("update t set r = random_bytes(1, 2) where id = 1;", "", "2 or more arguments"),
        ("\\set x random_bytes(4)\nselect r from t where id = 1;", "", "drawn where it is stored"),
        ("select r from t where id = 1;", "\"t.v\" = \"(random_bytes(4))\"", "v is a text, and random_bytes"),
    ] {
        let error = WorkloadFile::read("raw.toml", &file(script, fill)).expect_err(script);
        assert!(error.contains(part), "{script}: {error}");
    }
}

#[test]
fn clients_think_after_transactions() {
    let with = |think: &str| SHOP.replace("read_only = true", &format!("read_only = true\nthink = \"{think}\""));
    let times = |think: &str| FileWorkload::think_times(&options("shop.toml", &with(think)));
    assert_eq!(times("exponential 2 ms"), [None, Some(ThinkTime::Exponential(2000.0)), None]);
    assert_eq!(times("constant 0.5 s")[1], Some(ThinkTime::Constant(5e5)));
    assert_eq!(FileWorkload::think_times(&options("shop.toml", SHOP)), []);
    for wrong in [
        "",
        "2 ms",
        "exponential 2",
        "exponential 0 ms",
        "constant -1 s",
        "constant inf s",
        "normal 1 s",
        "constant 2000 s",
        "constant 1 h",
        "constant 1 ms 2",
    ] {
        let error = WorkloadFile::read("shop.toml", &with(wrong)).expect_err(wrong);
        assert!(
            error.contains("line 53, column 9") && error.contains(&format!("think is '{wrong}'; valid: exp")),
            "{error}"
        );
    }
}

#[test]
fn a_mistake_in_a_script_names_the_place_and_what_is_valid() {
    for (script, parts) in [
        (
            "select c from t where id = 1;",
            &["transaction 'only', line 1, column 8", "unknown column of t 'c'", "valid: id, a"][..],
        ),
        ("select a from v where id = 1;", &["unknown table 'v'; valid: t, u"]),
        ("\\set x 1\nselect a from t where a = 1;", &["line 2", "no key", "(id)"]),
        ("update u set a = 1 where y = 1;", &["the condition on u is no key", "(x, y) or of (a)"]),
        ("update t set a = 1 where id < 5 limit 3;", &["an update has no limit"]),
        ("delete from u where x = 1 limit 2;", &["a delete has no returning, using, limit"]),
        ("update t set id = 1 where id = 2;", &["id is of the primary key"]),
        ("select a from t where id = :y;", &["unknown variable ':y'", "half", "found"]),
        ("select a from t join u on t.id = u.x;", &["joins are not possible"]),
        ("\\if 1\nselect a from t where id = 1;", &["\\if has no \\endif"]),
        ("\\endif\nselect a from t where id = 1;", &["\\endif is not inside"]),
        ("\\repeat 3\nselect a from t where id = 1;\n\\endif", &["line 3", "\\endif is not inside"]),
        (
            "\\repeat 3\n\\if 1\nselect a from t where id = 1;\n\\endrepeat",
            &["line 4", "\\endrepeat is not inside", "before it, the \\if of line 2 needs its \\endif"],
        ),
        ("\\set x 1 / 0\nselect a from t where id = 1;", &["division by 0"]),
        ("\\set x random(5, 1)\nselect a from t where id = 1;", &["from 5 to 1 is empty"]),
        ("\\set x zipf(10, 1.5)\nselect a from t where id = 1;", &["skew of zipf is 1.5", "random_zipfian"]),
        ("\\set x latest(t, 1.5)\nselect a from t where id = 1;", &["skew of latest is 1.5", "random_zipfian"]),
        (
            "\\set x latest(u)\nselect a from t where id = 1;",
            &["line 1, column 8", "u has no primary key of one column"],
        ),
        ("\\set x latest(v)\nselect a from t where id = 1;", &["unknown table 'v'; valid: t, u"]),
        ("\\set x random_zipfian(1, 9, 0.5)\nselect a from t where id = 1;", &["0.5", "1.001 or more"]),
        ("\\set x rnd(1)\nselect a from t where id = 1;", &["unknown function 'rnd'", "random_gaussian"]),
        ("\\set half 1\nselect a from t where id = 1;", &["can't be set"]),
        ("update t set s = 'a text that is longer than 20' where id = 1;", &["29 bytes", "room for 20"]),
        ("update t set a = 'x' where id = 1;", &["'x' is no whole number"]),
        ("insert into t values (1, 2);", &["2 values for 4 columns", "id, a, b, s"]),
        ("insert into u (x, a) values (1, 2);", &["column y of the primary key"]),
        ("drop table t;", &["'drop' is not possible", "select, update"]),
        ("select a from t where id = 1", &["no ';'"]),
        ("select a from t where id = 1 or id = 2;", &["condition", "not possible"]),
        ("select sum(s) from t where id = 1;", &["s is a text"]),
        ("select a, count(*) from t where id < 5;", &["aggregates alone"]),
        ("select 7 from t where id = 1;", &["'7' is not possible"]),
        ("select a from t where id >= 2 and id >= 8;", &["id is bounded twice"]),
        ("select a from t where id = 1 limit 0;", &["no limit"]),
        ("select sum(a) from t where id = 1 for update;", &["not for aggregates"]),
        ("select y from u where a = 1 order by y;", &["can't be ordered by y", "x, y"]),
        ("\\set x random_zipfian(1, 9, 1.0000001)\nselect a from t where id = 1;", &["1.001 or more"]),
        // What the language lacks has something in its place.
        ("select a from t where id in (select x from u);", &["a select of its own before it", "\\gset"]),
        ("select a from t where id = (select x from u);", &["a select of its own before it", "\\gset"]),
        ("select a from (select a from t) as i;", &["a select of its own before it", "\\gset"]),
        ("update t set a = (select max(y) from u) where id = 1;", &["a select of its own before it", "\\gset"]),
        ("select i.a from t i where i.id = 1;", &["column 17: a table has no other name here; valid: t by itself"]),
        ("update t as i set a = 1 where i.id = 1;", &["a table has no other name here; valid: t by itself"]),
        ("delete from t as i where i.id = 1;", &["a table has no other name here; valid: t by itself"]),
        ("select t.a from t where id = 1;", &["'t.a': a column has no table before it; valid: a"]),
        ("select a from t where t.id = 1;", &["'t.id': a column has no table before it; valid: id"]),
        ("update t set a = t.a * 2 where id = 1;", &["'t.a': a column has no table before it; valid: a"]),
        ("select avg(a) from t where id < 5;", &["avg is not possible", "sum(A), count(*)", ":sum / :count"]),
        ("\\set x avg(3)\nselect a from t where id = 1;", &["avg is not possible"]),
        (
            "select a from t where id = 1;\nupdate t set b = :a where id = 1;",
            &["line 2", "unknown variable ':a'", "a is a column of t: its select sets it, if it ends with \\gset"],
        ),
        (
            "update t set a = 12.5 where id = 1;",
            &["'12.5' is no whole number", "12.50 of a numeric(9, 2) is written 1250"],
        ),
        ("update t set a = :half where id = 1;", &["half is 0.5, no whole number", "in its smallest unit"]),
        (
            "select (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1)))))))))))))))))))))))))))))))))))))))))))))))))))))))))))));",
            &["parentheses"],
        ),
        ("\\set x 1", &["accesses no table"]),
    ] {
        let error = WorkloadFile::read("one.toml", &with_script(script)).expect_err(script);
        assert!(error.starts_with("one.toml: "), "{error}");
        parts.iter().for_each(|part| assert!(error.contains(part), "{script}: '{part}' is not in: {error}"));
    }
}

#[test]
fn a_mistake_in_a_file_names_the_thing() {
    let change = |from: &str, to: &str| {
        assert!(SHOP.contains(from), "{from}");
        WorkloadFile::read("shop.toml", &SHOP.replacen(from, to, 1)).expect_err(to)
    };
    for (from, to, parts) in [
        ("weight = 60", "weight = -1", &["'buy'", "weight is -1"][..]),
        ("weight = 60", "weight = \"x\"", &["line ", "transaction 'buy': ", "\"x\", expected f64"][..]),
        ("theta = 0.9", "theta = \":items + :theta\"", &["theta refers to itself"]),
        ("customers = 100_000", "customers = \":more\"\nmore = \":customers\"", &["refers to itself"]),
        ("orders = 0", "ordres = 0", &["unknown table 'ordres'"]),
        ("\"item.price\"", "\"item.prize\"", &["no column 'item.prize'"]),
        ("name = \"look\"", "name = \"buy\"", &["two transactions are named 'buy'"]),
        (
            "read_only = true\nscript = '''\n",
            "read_only = true\nscript = '''\ndelete from customer where id = 1;\n",
            &["'look'", "read_only changes customer"],
        ),
        ("summary", "summery", &["line 4", "summery"]),
        ("version = 1", "version = 2", &["version is 2; valid: 1"]),
        ("[\"stock\", \"sold\"]", "[\"stock\", \"stock\"]", &["stock of item is in two groups"]),
        ("equal = [\"select sum(sold)", "at_most = [\"select sum(sold)", &["at_most"]),
        ("select sum(sold) from item", "select sold from item", &["'sold' stands outside"]),
        ("orders = 0", "orders = 10", &["'orders.customer' has no expression"]),
        (
            "[verify]\nitems = 100",
            "[verify]\nthings = 100",
            &["unknown parameter 'things'", "valid: customers, items, theta"],
        ),
    ] {
        let error = change(from, to);
        parts.iter().for_each(|part| assert!(error.contains(part), "{to}: '{part}' is not in: {error}"));
    }
    let duplicate = SHOP.replace("orders = 0", "orders = 5");
    let duplicate = duplicate.replace("[fill]", "[fill]\n\"orders.customer\" = \"1\"\n\"orders.no\" = \":row / 2\"");
    let error = WorkloadFile::read("shop.toml", &duplicate).expect_err("two rows with one key");
    assert!(error.contains("row 1 of orders has the key (1, 0), as a row before it"), "{error}");
    // Expressions that are too deep for the stack, wherever one may stand.
    let deep = ["1"; 20_000].join(" + ");
    for (from, to) in [
        ("price bigint,", format!("price bigint default {deep},")),
        ("theta = 0.9", format!("theta = \"{deep}\"")),
        ("orders = 0", format!("orders = \"{deep}\"")),
        ("random(1, 500)", deep.clone()),
        ("\\set sum 0", format!("\\set sum {deep}")),
        ("\\if :found = 0", format!("\\if {deep}")),
        ("where id = :i \\gset", format!("where id = {deep} \\gset")),
        ("select count(*) from orders", deep.clone()),
    ] {
        assert!(change(from, &to).contains("valid: up to 4000"), "{from}");
    }
    assert!(WorkloadFile::read("x", &"a".repeat(2 << 20)).expect_err("too long").contains("bytes; valid"));
    assert!(WorkloadFile::read("x", "").expect_err("nothing").contains("name"));
}

#[test]
fn parameters_are_options() {
    let mut shop = options("shop.toml", SHOP);
    assert_eq!(shop.values()[1], ("shop.items", "10000".into()));
    shop.set("shop.items", "1k").expect("a number");
    shop.set("shop.theta", "0.5").expect("a fraction");
    assert_eq!(FileWorkload::tables(&shop, IndexKind::Hash)[0].expected_rows, 1000);
    assert!(shop.set("shop.itms", "1").expect_err("unknown").to_string().contains("shop.customers, shop.items"));
    assert!(shop.set("shop.items", "-1").is_err() && shop.set("shop.theta", "x").is_err());
    shop.set("shop.theta", "1.5").expect("a number");
    assert!(FileWorkload::validate(&shop, IndexKind::Hash).expect_err("too skewed").contains("skew of zipf is 1.5"));
}

#[test]
fn what_is_known_beforehand_is_declared() {
    let declares = |name: &str, text: &str| FileWorkload::declares(&options(name, text));
    assert_eq!(declares("ycsb-a.toml", SHIPPED[3].1), Declares { rows: DeclaredRows::All, partitions: None });
    let known = DeclaredRows::Known;
    assert_eq!(declares("shop.toml", SHOP), Declares { rows: known, partitions: None });
    assert_eq!(declares("tpcc.toml", SHIPPED[4].1), Declares { rows: known, partitions: Some(1) });
    // A branch that depends on a row: both may run, and both rows are declared.
    let both = "select a from t where id = 1 \\gset\n\\if :a > 5\nupdate t set b = 1 where id = 2;\n\\else\nupdate t set b = 1 where id = 3;\n\\endif";
    let rows = |script: &str| declares("one.toml", &with_script(script)).rows;
    assert_eq!(rows(both), DeclaredRows::All);
    let by_row = "select a from t where id = 1 \\gset\nupdate t set b = 1 where id = :a;";
    assert_eq!(rows(by_row), DeclaredRows::Known);
    assert_eq!(rows("select sum(b) from t;"), DeclaredRows::None);
    assert_eq!(rows("select sum(b) from t;\ninsert into t (id) values (unique());"), DeclaredRows::None);
    let drawn_in_branch = "select a from t where id = 1 \\gset\n\\if :a > 5\n\\set k random(1, 5)\nupdate t set b = 1 where id = :k;\n\\endif";
    assert_eq!(rows(drawn_in_branch), DeclaredRows::None);
    let partitioned = |script: &str| {
        let text = with_script(script).replace("[parameters]", "[partition]\nby = \"x\"\ncount = 4\n[parameters]");
        WorkloadFile::read("one.toml", &text)
            .map(|file| FileWorkload::declares(&file.options().expect("valid")).partitions)
    };
    assert_eq!(partitioned("select count(*) from u where x = 3;"), Ok(Some(4)));
    // An index leads to a partition, if the condition gives its column.
    assert_eq!(partitioned("select y from u where a = 5 and x = 3;"), Ok(Some(4)));
    assert!(partitioned("select y from u where a = 5;").expect_err("in each").contains("the partition of u"));
    assert!(partitioned("update t set b = 1 where id = 2;").expect_err("not partitioned").contains("partition of t"));
    assert!(partitioned("select a from t where id = 1 \\gset\nselect a from u where x = :a and y = 1;").is_err());
}

/// The keys that a transaction declares.
#[derive(Debug, Default)]
struct Keys(Vec<u64>);

impl Declare for Keys {
    fn needs(&self) -> DeclarationNeeds {
        DeclarationNeeds::Rows
    }

    fn kind(&mut self, _: usize) {}

    fn read_only(&mut self) {}

    fn row<K: Key>(&mut self, _: &Table<K>, key: K, _: bool) {
        self.0.push(key.to_words()[0]);
    }

    fn partition(&mut self, _: usize) {}
}

/// A type that knows its row, and one whose draws depend on a row, share an input.
#[test]
fn a_type_that_knows_no_row_declares_none() {
    let knows = with_script("update t set b = 1 where id = 7;");
    let draws = "select a from t where id = 1 \\gset\n\\if :a > 5\n\\set k random(1, 5)\nupdate t set b = 1 where id = :k;\n\\endif";
    let other = with_script(draws).replace("only", "other");
    let options = options("one.toml", &(knows + &other[other.find("[[transaction]]").expect("a transaction")..]));
    assert_eq!(FileWorkload::declares(&options).rows, DeclaredRows::Known);
    let (_, workload) = world::<Ordered, FileWorkload>(&options);
    let (mut client, mut input) = (workload.client(0, 1, 1), Default::default());
    let mut counts = [0; 2];
    for _ in 0..100 {
        workload.next(&mut (), &mut client, &mut input);
        let mut keys = Keys::default();
        workload.declare(&input, &mut keys);
        let kind = workload.kind(&input);
        assert_eq!(keys.0, if kind == 0 { vec![7] } else { vec![] });
        counts[kind] += 1;
    }
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn invariants_compare_groups_of_rows() {
    let rows = "insert into u values (1, 2, 50);\ninsert into u values (1, 3, 60);\ninsert into u values (2, 1, -7);";
    let check = |first: &str, second: &str| after(rows, first, second);
    let by_x = "select x, sum(a) from u group by x";
    assert_eq!(check(by_x, by_x), Ok(()));
    assert_eq!(
        check("select x, count(*) from u group by x", "select x, max(y) - min(y) + 1 from u group by x"),
        Ok(())
    );
    let error =
        check(by_x, "select x, sum(case when a > 55 then a else 0 end) from u group by x").expect_err("50 less");
    assert!(error.contains("group (1): 110 (select x, sum(a) from u group by x) differs from 60"), "{error}");
    // A group that one side lacks is 0 there.
    let error = check("select id, sum(a) from t group by id", by_x).expect_err("row 1 of t has 2");
    assert!(error.contains("group (1): 2 ("), "{error}");
    let negative =
        check("select x, y, sum(y * 0) from u group by x, y", "select y, x, sum(a - a) from u group by y, x");
    assert_eq!(negative, Ok(()));
    assert_eq!(check("select sum(a * 2 + id) from t", "90 * 2 + 45"), Ok(()));
    assert_eq!(check("select sum(case when a > 10 then 1 end) from t", "4"), Ok(()));
    for (first, second, part) in [
        (by_x, "5", "one side has 1 column in its group by, and the other 0"),
        ("select x, sum(a) from u", "1", "the columns of its group by"),
        ("select sum(a) from u group by x", "1", "the columns of its group by"),
        ("select x, y, sum(a) from u group by y, x", "1", "the columns of its group by"),
        ("select z, sum(a) from u group by z", "1", "unknown column of u 'z'; valid: x, y, a"),
        ("select x, sum(a) as s from u group by x", "1", "which has no name"),
        ("select x, sum(b) from u group by x", "1", "unknown column of u 'b'"),
        ("select s, count(*) from t group by s", "1", "s is a text"),
        ("select sum(a + s) from t", "1", "s is a text"),
        ("select sum(a, b) from t", "1", "valid: count(*), sum(VALUE)"),
        ("select sum(a) from u where x = 1", "1", "whole table"),
        ("select sum(a) from u where x = 1", "1", "sum(case when CONDITION then VALUE else 0 end)"),
        ("select avg(a) from u", "1", "valid: sum(A) on one side, and NUMBER * count(*) on the other"),
        ("select sum(o.a) from u o", "1", "a table has no other name here; valid: u by itself"),
        ("select sum(u.a) from u", "1", "'u.a': a column has no table before it; valid: a"),
        ("select sum(a) - (select sum(a) from t) from u", "1", "valid: one select on each side"),
        ("select sum(b) from (select sum(a) as b from u group by x) as s", "1", "valid: one select on each side"),
        ("(select sum(a) from u) + 1", "1", "valid: one select on each side"),
        ("select sum(a) from u", "1.5", "'1.5' is no whole number"),
    ] {
        let error = check(first, second).expect_err(first);
        assert!(error.contains("invariant 'end'") && error.contains(part), "{first}: {error}");
    }
}

#[test]
fn rows_are_listed_by_their_keys_where_no_index_has_an_order() {
    // The first 10,000 keys differ; then 500 more do, and 1,500 come again and are left out.
    let text = "name = \"many\"\nschema = 'create table t (a int, b int, n int, primary key (a, b))'\n\
                rows.t = 12000\n[fill]\n\"t.a\" = \":row % 10500 / 100\"\n\"t.b\" = \":row % 10500 % 100\"\n\
                \"t.n\" = \"1\"\n[[transaction]]\nname = \"one\"\n\
                script = 'update t set n = n + 1 where a = 3 and b = random(0, 99);'\n\
                [[invariant]]\nname = \"each once\"\nequal = [\"select sum(n) - count(*) from t\", \"50\"]\n\
                [[invariant]]\nname = \"all\"\nequal = [\"select count(*) from t\", \"10500\"]\n";
    let options = options("many.toml", text);
    let described = WorkloadFile::describe(&options).expect("valid");
    assert!(described.contains("hash index"), "no order is needed");
    assert!(described.contains("t: 10500 rows of the 12000 in [rows]"), "{described}");
    let checked = run::<Silo, FileWorkload>(&options, 1, 50).unwrap_or_else(|error| panic!("{error}"));
    assert!(checked.0.starts_with("2 invariants of many hold: 'each once', 'all'; warning: "), "{}", checked.0);
    assert!(checked.0.contains("loaded were 10500 of 12000 rows of t: [fill]"), "{}", checked.0);
}

/// A wrong invariant is found, and says by how much.
#[test]
fn invariants_can_fail() {
    let wrong = SHOP.replace("rows(item) * 1000000000", "rows(item) * 1000000000 + 1");
    let small = FileWorkload::for_verification(&options("shop.toml", &wrong));
    let error = run::<Silo, FileWorkload>(&small, 1, 50).expect_err("one more").0;
    assert!(error.contains("what is sold is not in stock") && error.contains("100000000001"), "{error}");
}

#[test]
fn a_file_is_described() {
    let text = WorkloadFile::describe(&options("shop.toml", SHOP)).expect("valid");
    for part in [
        "item: 10000 rows, 5 columns",
        "2 groups of columns",
        "by_item: 0 rows, index of orders",
        "look (35.0 %), declared read-only: scans orders",
        "buy and buy: item*, orders",
        "look and look: none",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}

/// Groups of columns have versions of their own, if the protocol has them.
#[test]
fn conflicts_between_groups_of_columns_are_marked() {
    let described = |script: &str, groups: &str| {
        let other = "[[transaction]]\nname = \"other\"\nscript = 'select b from t where id = 1;'\n";
        let text = with_script(script).replace("[parameters]", &format!("{groups}\n[parameters]")) + other;
        WorkloadFile::describe(&options("one.toml", &text)).expect("valid")
    };
    let groups = "[groups]\nt = [[\"a\"], [\"b\", \"s\"]]";
    let apart = described("update t set a = a * 2 where id = 1;", groups);
    assert!(apart.contains("only and other: t*\n") && apart.contains("only and only: t\n"), "{apart}");
    assert!(apart.contains("* they touch different groups of columns there"), "{apart}");
    for (script, groups) in [
        ("update t set a = a * 2 where id = 1;", ""),
        ("update t set b = b * 2 where id = 1;", groups),
        ("delete from t where id = 1;", groups),
        ("insert into t (id) values (99);", groups),
    ] {
        let together = described(script, groups);
        assert!(together.contains("only and other: t\n") && !together.contains('*'), "{script}: {together}");
    }
    // A scan by an index depends on the columns of the index.
    let script = "\\foreach select x, y from u where a = 1\nupdate u set a = 2 where x = :x and y = :y;\n\\endforeach";
    assert!(described(script, "").contains("only and only: u\n"));
}

/// Files that were cut, swapped and changed at random give an error or a workload that runs, and
/// never a panic.
#[test]
fn broken_files_never_panic() {
    use rand::rngs::SmallRng;
    use rand::{RngCore, SeedableRng};
    let pieces: Vec<&str> = SHIPPED.iter().flat_map(|(_, text)| text.split_inclusive([' ', '\n', ',', '('])).collect();
    let mut random = SmallRng::seed_from_u64(5);
    let mut below = |count: usize| random.next_u64() as usize % count;
    let (mut valid, mut wrong) = (0, 0);
    for round in 0..3000 {
        let mut words: Vec<&str> = SHIPPED[round % SHIPPED.len()].1.split_inclusive([' ', '\n', ',', '(']).collect();
        for _ in 0..=below(3) {
            let at = below(words.len());
            match below(4) {
                0 => drop(words.remove(at)),
                1 => words.insert(at, pieces[below(pieces.len())]),
                2 => words[at] = pieces[below(pieces.len())],
                _ => words[at] = ["99999999999999999999 ", "-1 ", "'", "\\", ":x ", "0 ", ")", "\"", "é "][below(9)],
            }
        }
        match WorkloadFile::read("broken.toml", &words.concat()) {
            Ok(file) => {
                valid += 1;
                let small = FileWorkload::for_verification(&file.options().expect("valid"));
                // What a check finds is right: the file may say something else now.
                let large =
                    FileWorkload::tables(&small, IndexKind::Hash).iter().any(|table| table.expected_rows > 2000);
                if valid % 8 == 0 && !large {
                    let _ = run::<Silo, FileWorkload>(&small, 1, 20);
                }
            }
            Err(error) => {
                wrong += 1;
                assert!(error.starts_with("broken.toml: ") && !error.contains('\n'), "{error}");
            }
        }
    }
    assert!(valid > 100 && wrong > 1000, "{valid} valid, {wrong} wrong");
}
