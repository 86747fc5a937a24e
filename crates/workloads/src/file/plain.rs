//! Workload files of plain pgbench scripts.
//!
//! A script as pgbench runs it says nothing of the loaded rows. The tables of pgbench itself have
//! the rows of `pgbench -i`, and the user says how many rows another table has. Keys count from 1,
//! as pgbench's do.

use std::collections::{BTreeMap, HashSet};

use super::schema::{self, Table};

/// A pgbench script.
#[derive(Clone, Debug)]
pub struct PlainScript {
    /// The name of its transactions.
    pub name: String,
    /// Its frequency, relative to the other scripts.
    pub weight: u64,
    /// The script.
    pub text: String,
}

/// A table of pgbench: its name, its loaded rows, and the columns of loaded rows that are no zeros.
type OfPgbench = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const PGBENCH: [OfPgbench; 3] = [
    ("pgbench_branches", ":scale", &[]),
    ("pgbench_tellers", ":scale * 10", &[("bid", ":row / 10 + 1")]),
    ("pgbench_accounts", ":scale * 100000", &[("bid", ":row / 100000 + 1")]),
];

/// Returns the text of a workload file of these scripts. `rows` are the loaded rows of tables.
///
/// # Errors
/// The schema is not valid, or `rows` names no table of it that can be loaded. One sentence says
/// which.
pub fn of_scripts(
    name: &str,
    schema: &str,
    scripts: &[PlainScript],
    rows: &BTreeMap<String, u64>,
) -> Result<String, String> {
    let tables = schema::read(schema, &[]).map_err(|error| error.in_part("schema"))?;
    let tables: Vec<&Table> = tables.iter().filter(|table| table.index_of.is_none()).collect();
    if let Some(unknown) = rows.keys().find(|name| !tables.iter().any(|table| table.name == **name)) {
        let valid: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        return Err(format!("the schema has no table '{unknown}' for --rows; valid: {}", valid.join(", ")));
    }
    let mut loaded = toml::Table::new();
    let mut fill = toml::Table::new();
    for table in tables {
        let own = PGBENCH.iter().find(|(name, ..)| *name == table.name);
        let count = rows.get(&table.name).map(u64::to_string).or_else(|| own.map(|(_, rows, _)| (*rows).to_owned()));
        let Some(count) = count else { continue };
        let [key] = table.key[..] else {
            return Err(format!(
                "--rows {}: its primary key has several columns; valid: tables with a primary key of one column, \
                 or a workload file with [fill]",
                table.name
            ));
        };
        loaded.insert(table.name.clone(), count.into());
        let filled = own.map_or(&[][..], |(.., filled)| *filled);
        let key = (table.columns[key].name.as_str(), ":row + 1");
        for (column, value) in filled.iter().copied().chain([key]) {
            if table.columns.iter().any(|of| of.name == column) {
                fill.insert(format!("{}.{column}", table.name), value.into());
            }
        }
    }
    let mut names = HashSet::new();
    let transaction = |script: &PlainScript| {
        let base = word(&script.name);
        let mut numbered = (2..).map(|number| format!("{base}-{number}"));
        let mut name = base.clone();
        while !names.insert(name.clone()) {
            name = numbered.next().unwrap_or_default();
        }
        toml::Table::from_iter([
            ("name".into(), name.into()),
            ("weight".into(), toml::Value::Integer(script.weight as i64)),
            ("script".into(), script.text.as_str().into()),
        ])
    };
    let transactions: Vec<toml::Value> = scripts.iter().map(transaction).map(toml::Value::Table).collect();
    let file = toml::Table::from_iter([
        ("version".into(), toml::Value::Integer(1)),
        ("name".into(), word(name).into()),
        ("summary".into(), "plain pgbench scripts".into()),
        ("schema".into(), schema.into()),
        ("rows".into(), loaded.into()),
        ("parameters".into(), toml::Table::from_iter([("scale".into(), toml::Value::Integer(1))]).into()),
        ("fill".into(), fill.into()),
        ("transaction".into(), transactions.into()),
    ]);
    toml::to_string(&file).map_err(|error| error.to_string())
}

/// Returns a name of the language: a letter, then letters, digits, `_` and `-`, 32 at most.
fn word(name: &str) -> String {
    let rest = |letter: char| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' };
    let word: String = name.chars().map(rest).take(31).collect();
    if word.starts_with(|first: char| first.is_ascii_alphabetic()) { word } else { format!("s{word}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::WorkloadFile;

    const SCHEMA: &str = "create table pgbench_accounts (aid int primary key, bid int, abalance int);\n\
                          create table t (id int primary key, a int);\ncreate table w (x int, y int, primary key (x, y));";

    fn script(name: &str, text: &str) -> PlainScript {
        PlainScript { name: name.into(), weight: 2, text: text.into() }
    }

    fn of(scripts: &[PlainScript], rows: &[(&str, u64)]) -> Result<String, String> {
        let rows = rows.iter().map(|(table, count)| ((*table).to_owned(), *count)).collect();
        let text = of_scripts("a b.c", SCHEMA, scripts, &rows)?;
        WorkloadFile::read("a.sql", &text).map(|file| file.text().to_owned())
    }

    #[test]
    fn scripts_become_a_file() {
        let select = "\\set aid random(1, 100000 * :scale)\nselect abalance from pgbench_accounts where aid = :aid;\n";
        let quoted = "-- ''' and \"\"\"\nupdate t set a = 1 where id = 1;";
        let text = of(&[script("x", select), script("x", quoted), script("7!", select)], &[("t", 9)]).expect("valid");
        for part in ["name = \"a-b-c\"", "name = \"x-2\"", "name = \"s7-\"", "weight = 2", "t = \"9\"", "\"t.id\""] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
        assert!(!text.contains("w.x"), "{text}");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let good = script("x", "select a from t where id = 1;");
        for (script, rows, part) in [
            (
                script("x", "select b from t where id = 1;"),
                &[][..],
                "a.sql: transaction 'x', line 1, column 8: unknown",
            ),
            (good.clone(), &[("v", 1)], "no table 'v' for --rows; valid: pgbench_accounts, t, w"),
            (good.clone(), &[("w", 1)], "--rows w: its primary key has several columns"),
            (script("x", ""), &[], "accesses no table"),
        ] {
            let error = of(&[script], rows).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        let none = BTreeMap::new();
        assert!(
            of_scripts("x", "create tabel t (a int)", &[good], &none).expect_err("a typo").contains("schema, line 1")
        );
    }
}
