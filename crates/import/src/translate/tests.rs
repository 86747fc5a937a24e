use std::path::Path;

use super::*;

fn schema() -> Schema {
    let text = "create table t (id int primary key, a int, b varchar(9), c int references u(x));\
                create index on t (c);\
                create table u (x int, y int, z int, \"Odd\" int, primary key (x, y));\
                create table h (a int);";
    let mut schema = Schema::read(Path::new("s.sql"), text).expect("a schema");
    schema.finish();
    schema
}

fn shown(template: &str) -> String {
    let count = template.matches('$').count();
    match meaning_of(&schema(), template, count) {
        Meaning::Statement(statement) => filled(&statement.text, |parameter| format!("${}", parameter + 1)),
        Meaning::Refused(why) => format!("refused: {why}"),
        other => format!("{other:?}"),
    }
}

#[test]
fn statements_keep_the_rows_that_they_access() {
    for (template, expected) in [
        ("select * from t where id = $1", "select id, a, b, c from t where id = $1;"),
        ("select x.a + $1 from public.t as x where x.id = $2 and b = $3 limit $4", "select a from t where id = $2;"),
        ("select a from t where id = $1 for update", "select a from t where id = $1 for update;"),
        (
            "select a from t where c = $1 order by id desc limit $2",
            "select a from t where c = $1 order by id desc limit $2;",
        ),
        ("select a from t where c = $1 order by b limit $2", "select a from t where c = $1;"),
        (
            "select count(*), avg(z) from u where x = $1 and y >= $2",
            "select count(*), sum(z) from u where x = $1 and y >= $2;",
        ),
        (
            "select $1 from u where x = $2 and y between $3 and $4",
            "select x from u where x = $2 and y between $3 and $4;",
        ),
        ("select \"Odd\" from u where $1 = x and y = $2", "select \"Odd\" from u where x = $1 and y = $2;"),
        ("update t set a = a + $1, b = $2 where id = $3 returning a", "update t set a = a + $1, b = $2 where id = $3;"),
        ("update t set a = coalesce(a, $1) where id = $2", "update t set a = 1 where id = $2;"),
        ("update u set z = $1 where x = $2", "update u set z = $1 where x = $2;"),
        ("delete from u where x = $1 and y = $2 and z < $3", "delete from u where x = $1 and y = $2;"),
        ("insert into t (a, b) values ($1, $2)", "insert into t (a, b, id) values ($1, $2, unique());"),
        ("insert into u values ($1, $2, now())", "insert into u (x, y, z) values ($1, $2, current_timestamp);"),
        (
            "insert into t (id, a) values ($1, $2) on conflict (id) do update set a = excluded.a",
            "insert into t (id, a) values ($1, $2) on conflict do nothing;\nupdate t set a = $2 where id = $1;",
        ),
        ("insert into h values ($1)", "insert into h (a) values ($1);"),
    ] {
        assert_eq!(shown(template), expected, "{template}");
    }
}

#[test]
fn other_statements_are_refused_with_a_reason() {
    for (template, part) in [
        ("select a from t, u where t.id = u.x", "several tables"),
        ("select a from nope", "unknown table 'nope'; valid: t, u, h"),
        ("select nope from t where id = $1", "unknown column 'nope' of t; valid: id, a, b, c"),
        ("select a from t where b = $1", "no key of t leads to its rows; keys and indexes: (id), (c)"),
        ("select a from t where id = (select $1)", "query inside"),
        ("select c from t group by c", "group by"),
        ("update t set id = $1 where id = $2", "changes the primary key"),
        ("update h set a = $1 where a = $2", "no key of h"),
        ("insert into t select * from t", "rows of a select"),
        ("select pay($1)", "it calls pay,"),
        ("select app.pay ( now ( ) )", "it calls app.pay,"),
        ("vacuum t", "no select, insert"),
        ("selec $1", "can't be parsed"),
        ("select a from t where id = $1 union select $2", "union"),
    ] {
        assert!(shown(template).contains(part), "{template}: {}", shown(template));
    }
}

#[test]
fn statements_without_tables_and_borders_are_known() {
    for (template, expected) in [
        ("begin isolation level serializable", "Begin"),
        ("start transaction read only", "Begin"),
        ("end", "Commit"),
        ("commit", "Commit"),
        ("abort", "Rollback"),
        ("rollback to savepoint s1", "RollbackTo(\"s1\")"),
        ("rollback to s1", "RollbackTo(\"s1\")"),
        ("savepoint s1", "Savepoint(\"s1\")"),
        ("release savepoint s1", "Release"),
        ("set application_name = $1", "Ignored"),
        ("select $1", "Ignored"),
        ("select version()", "Ignored"),
        ("select pg_catalog.set_config($1, $2, $3), now (), nextval ($4)", "Ignored"),
        ("select oid from pg_catalog.pg_type where typname = $1", "Ignored"),
    ] {
        assert_eq!(shown(template), expected, "{template}");
    }
}
