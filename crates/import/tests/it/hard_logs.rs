//! Logs of applications: mixed sessions, savepoints, errors, quoted names, lists, nulls, dates.

use contend_import::ImportOptions;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::common::{Form, LogEntry, import_log, log_of, weights};

const SCHEMA: &str = "
create table public.\"Order Items\" (id uuid not null, \"Line\" int not null, item int, note text, price numeric(9, 2));
alter table only public.\"Order Items\" add constraint p primary key (id, \"Line\");
create table item (id serial primary key, name varchar(40), stock int default 0, seen date, deleted boolean);
create index item_seen on item (stock);
create table event (at timestamp with time zone, id bigserial primary key, kind text);
";

/// Writes the statements of sessions, each a list of messages, in turns.
fn mixed(sessions: Vec<Vec<(&'static str, String)>>) -> String {
    let mut log = Vec::new();
    let most = sessions.iter().map(Vec::len).max().unwrap_or(0);
    let mut ids = vec![1; sessions.len()];
    for at in 0..most {
        for (session, statements) in sessions.iter().enumerate() {
            let Some((severity, text)) = statements.get(at) else { continue };
            let is_begin = text.to_lowercase().starts_with("begin");
            if is_begin || *severity == "ALONE" {
                ids[session] += 1;
            }
            let mut entry = LogEntry::statement(session, ids[session], text);
            if *severity == "ERROR" {
                (entry.severity, entry.message) = ("ERROR", text.clone());
            }
            entry.milliseconds = log.len() as u64;
            log.push(entry);
        }
    }
    log_of(Form::Json, &log)
}

fn import(log: &str) -> String {
    import_log(log, SCHEMA, &ImportOptions::default()).unwrap_or_else(|error| panic!("{error}")).text
}

fn all(statements: &[&str]) -> Vec<(&'static str, String)> {
    statements.iter().map(|text| ("LOG", (*text).to_owned())).collect()
}

#[test]
fn sessions_are_told_apart_and_what_was_undone_is_left_out() {
    let mut random = SmallRng::seed_from_u64(1);
    let mut sessions: Vec<Vec<(&'static str, String)>> = vec![Vec::new(); 4];
    // In progress at the beginning.
    sessions[0].extend(all(&["update item set stock = 3 where id = 1", "commit"]));
    for _ in 0..200 {
        let id = random.random_range(1..=50);
        sessions[0].extend(all(&[
            "BEGIN",
            &format!("/* web */ update item\n set stock = stock - 1 -- one\n where id = {id}"),
            "COMMIT",
        ]));
        sessions[1].extend(all(&["begin", &format!("select stock from item where id = {id}"), "rollback"]));
        sessions[2].extend(all(&[
            "begin",
            &format!("select name from item where id = {id}"),
            "savepoint a",
            "delete from item where id = 3",
            "rollback to savepoint a",
            "release savepoint a",
            "end",
        ]));
    }
    for _ in 0..30 {
        sessions[3].extend(all(&["begin", "update item set stock = 1 where id = 7"]));
        sessions[3].push(("ERROR", "deadlock detected".to_owned()));
        sessions[3].extend(all(&["rollback"]));
    }
    // In progress at the end.
    sessions[3].extend(all(&["begin", "update item set stock = 2 where id = 8"]));
    let text = import(&mixed(sessions));
    assert_eq!(weights(&text).len(), 3, "{text}");
    for part in [
        "600 transactions with 600 statements",
        "1 transaction left out: the beginning is not in the trace",
        "1 transaction left out: the end is not in the trace",
        "30 transactions left out: ended with an error",
        "200 statements left out: undone by a return to a savepoint",
        "select stock from item where id = :id;\nrollback;\n",
        "\nupdate item set stock = stock - 1 where id = :id;\n",
        "item = 50\n",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
    assert!(!text.contains("delete from"), "{text}");
}

#[test]
fn names_lists_nulls_and_dates_are_taken() {
    let mut random = SmallRng::seed_from_u64(2);
    let mut statements = Vec::new();
    for number in 0..400u32 {
        let (a, b, c) = (random.random_range(1..=900), random.random_range(1..=900), random.random_range(1..=900));
        let order = format!("0a1b2c3d-0000-4000-8000-{:012x}", random.random_range(0..1u64 << 40));
        let mut alone = |text: String| statements.push(("ALONE", text));
        alone(format!(
            "select i.name, \"i\".stock from public.item as i where i.id in ({a}, {b}, {c}) and not i.deleted"
        ));
        alone(format!(
            "INSERT INTO \"Order Items\" VALUES ('{order}'::uuid, {}, {a}, NULL, {}.50), ('{order}', {}, {b}, 'it''s; fine', -3)",
            1,
            number % 7,
            2
        ));
        alone(format!(
            "update item set seen = DATE '2026-0{}-11', name = 'n{number}' where id = {b} returning *",
            number % 9 + 1
        ));
        alone(format!("insert into event (at, kind) values (now(), E'k\\n{number}') returning id"));
        alone(format!(
            "select * from item where stock = {} order by id limit 10 for share",
            random.random_range(-5..=5)
        ));
        alone(format!("update item set deleted = true, stock = null where id = {c} and stock > -1;"));
        alone("set application_name = 'x'; show work_mem".into());
    }
    let text = import(&mixed(vec![statements]));
    let found = weights(&text);
    assert_eq!(found.len(), 6, "{text}");
    for part in [
        "select name, stock from item where id = :id_3;",
        "# \"Order Items.id\" was \"uuid\"",
        "insert into \"Order Items\" (id, \"Line\", item, note, price) values (",
        "update item set seen = current_timestamp, name = random_text(",
        "insert into event (at, kind, id) values (current_timestamp, random_text(",
        "create index item_by_0 on item (stock);",
        "update item set deleted = 1, stock = 0 where id = ",
        "left out: conditions on other columns",
        "800 statements without a table",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
    for value in ["fine", "0a1b2c3d", "n17", "-3"] {
        assert!(!text.contains(value), "the value {value} is in the file:\n{text}");
    }
}

#[test]
fn cut_logs_and_strange_statements_do_no_harm() {
    let good = log_of(Form::Json, &[LogEntry::statement(1, 1, "select stock from item where id = 4")]);
    for end in [
        "{\"timestamp\":\"2026",
        "{\"error_severity\":\"LOG\",\"message\":\"statement: select 'open\"}",
        "\u{0}\u{0}\n",
    ] {
        let log = format!("{}{end}", good.repeat(200));
        let text = import(&log);
        assert_eq!(weights(&text).len(), 1, "{text}");
    }
    let csv = log_of(Form::Csv, &[LogEntry::statement(1, 1, "select stock from item where id = 4")]);
    let cut = &csv[..csv.len() / 2];
    assert_eq!(weights(&import(&format!("{}{cut}", csv.repeat(50)))).len(), 1);
}

#[test]
fn keys_of_two_columns_that_allow_too_many_rows_are_taken() {
    let mut random = SmallRng::seed_from_u64(6);
    let mut statements = Vec::new();
    for _ in 0..3_000 {
        let (a, b) = (random.random_range(1..=90_000), random.random_range(1..=90_000));
        statements.push(("ALONE", format!("insert into follows values ({a}, {b}) on conflict do nothing")));
        statements.push(("ALONE", format!("select 1 from follows where a = {b} and b = {a}")));
        statements.push(("ALONE", format!("select k from temp where k > {}", random.random_range(-500..400))));
        let key = random.random_range(-500..500);
        statements.push((
            "ALONE",
            format!("update temp set x = case when x > 5 then 0 else x + 1 end, y = y || 'a;' where k = {key}"),
        ));
    }
    let schema = "create table follows (a int, b int, primary key (a, b)); create table temp (k int primary key, x int, y text);";
    let imported = import_log(&mixed(vec![statements]), schema, &ImportOptions::default());
    let text = imported.unwrap_or_else(|error| panic!("{error}")).text;
    for part in [
        "follows = 1000000\n",
        "The keys of follows allow",
        "\"follows\" = \":follows\"",
        "-- k: a bound, uniform between",
        "update temp set x = 1, y = random_text(64) where k = :k;",
        "left out: an expression that the language does not have; an expression whose value is a text",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
}

#[test]
fn a_loop_counts_and_the_rows_of_an_index_are_loaded() {
    let mut random = SmallRng::seed_from_u64(8);
    let mut statements = Vec::new();
    for number in 0..500 {
        statements.push(("LOG", "begin".to_owned()));
        statements.push(("LOG", format!("insert into ord values ({number}, {}, 'new')", random.random_range(1..=40))));
        for line in 0..random.random_range(1..=4) {
            statements.push((
                "LOG",
                format!("insert into line values ({number}, {}, {})", line + 1, random.random_range(1..=9)),
            ));
        }
        statements.push(("LOG", "commit".to_owned()));
        statements.push((
            "ALONE",
            format!("select id from ord where person = {} order by id desc limit 5", random.random_range(1..=40)),
        ));
    }
    let schema = "create type state as enum ('new'); create table line (ord bigint references ord, no smallint, n int, primary key (ord, no));\
                  create table ord (id bigint primary key, person int, is state); create index on ord (person);";
    let imported = import_log(&mixed(vec![statements]), schema, &ImportOptions::default());
    let text = imported.unwrap_or_else(|error| panic!("{error}")).text;
    for part in [
        "\\set no 0\n",
        "\\repeat :rounds_0\n",
        "  \\set no :no + 1\n",
        "insert into line (ord, no, n) values (:id, :no, :n);",
        "# assumed, since no key is read; --rows sets the rows\nord = 10000\n",
        "\"ord.person\" = \"random(0, :ord_person - 1)\"",
        "ord_person = 40\n",
    ] {
        assert!(text.contains(part), "no '{part}':\n{text}");
    }
}
