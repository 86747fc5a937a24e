//! The user's schema, and the schema of the workload file that stands for it.
//!
//! A schema may be what `pg_dump --schema-only` prints. Types that a workload file does not have
//! are replaced, and a note says so. Other statements than those of tables and indexes are left
//! out.

use std::collections::BTreeSet;
use std::path::Path;

use sqlparser::ast::{
    AlterTableOperation, ColumnOption, CreateTable, Expr, Ident, ObjectName, ObjectNamePart, Statement, TableConstraint,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::{
    ALL_KEYWORDS, ALL_KEYWORDS_INDEX, Keyword, RESERVED_FOR_COLUMN_ALIAS, RESERVED_FOR_IDENTIFIER,
    RESERVED_FOR_TABLE_ALIAS,
};
use sqlparser::parser::Parser;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::ImportError;
use crate::error::cut;

/// The bytes of a text whose type gives no length.
const TEXT_BYTES: u32 = 64;
/// The most bytes of a text in a workload file.
const TEXT_MAX: u32 = 4096;
/// The largest schema.
pub(crate) const BYTES_MAX: u64 = 16 << 20;
/// The types that are read, for messages.
const TYPES: &str = "bigint, int, smallint, serial, boolean, numeric, real, double precision, date, time, timestamp, \
                     interval, uuid, char(n), varchar(n), text, bytea, json, jsonb, inet";

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A whole number.
    Whole,
    /// A number with this number of digits behind the point.
    Scaled(u32),
    /// A time, in microseconds.
    Time,
    /// A text of up to this number of bytes.
    Text(u32),
    /// A value of which only the rank is kept: a text or a uuid in a key.
    Ranked,
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// The name as SQL compares it.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// The type in the workload file.
    pub(crate) written: String,
    /// The user's type, if the file has another.
    pub(crate) replaced: Option<String>,
}

/// A table.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// The name as SQL compares it, without a schema.
    pub(crate) name: String,
    pub(crate) columns: Vec<Column>,
    /// The primary key; empty if there is none.
    pub(crate) key: Vec<usize>,
    /// The columns of each index.
    pub(crate) indexes: Vec<Vec<usize>>,
    /// Columns that refer to a column of another table.
    pub(crate) references: Vec<(usize, String, Option<String>)>,
}

impl Table {
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Returns the columns by which rows are found: those of the primary key, and of each index.
    pub(crate) fn ways(&self) -> impl Iterator<Item = &[usize]> {
        std::iter::once(&self.key[..]).chain(self.indexes.iter().map(|columns| &columns[..]))
    }

    /// Whether a column is one of a key or an index.
    pub(crate) fn finds_rows(&self, column: usize) -> bool {
        self.ways().any(|way| way.contains(&column))
    }
}

/// The tables of a trace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Schema {
    pub(crate) tables: Vec<Table>,
    /// What the workload file leaves out of the user's schema.
    pub(crate) notes: BTreeSet<String>,
    /// The user's own types: enumerations and domains.
    own_types: BTreeSet<String>,
}

/// Returns a name as SQL compares it: in lower case, unless it is quoted.
pub(crate) fn name_of(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Returns the last part of a name: a workload file has one schema.
pub(crate) fn last_name(name: &ObjectName) -> String {
    match name.0.last() {
        Some(ObjectNamePart::Identifier(ident)) => name_of(ident),
        _ => name.to_string(),
    }
}

/// Returns a name as it is written in the workload file: in quotes if it has to be.
pub(crate) fn written(name: &str) -> String {
    let is_plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_');
    let keyword = ALL_KEYWORDS.binary_search(&name.to_uppercase().as_str()).map(|at| ALL_KEYWORDS_INDEX[at]);
    let is_reserved = keyword.is_ok_and(|keyword| {
        RESERVED_FOR_COLUMN_ALIAS.contains(&keyword)
            || RESERVED_FOR_TABLE_ALIAS.contains(&keyword)
            || RESERVED_FOR_IDENTIFIER.contains(&keyword)
            || [Keyword::USER, Keyword::TABLE, Keyword::CASE, Keyword::NULL, Keyword::ALL, Keyword::PRIMARY]
                .contains(&keyword)
    });
    if is_plain && !is_reserved { name.to_owned() } else { format!("\"{name}\"") }
}

impl Schema {
    /// Reads a schema. `path` is its name in messages.
    ///
    /// # Errors
    /// A table can't be read, or there is none.
    pub(crate) fn read(path: &Path, text: &str) -> Result<Schema, ImportError> {
        let mut schema = Schema::default();
        // A backslash begins a command of psql, which a dump may have.
        let text: String =
            text.lines().map(|line| if line.starts_with('\\') { "\n".into() } else { format!("{line}\n") }).collect();
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, &text)
            .tokenize_with_location()
            .map_err(|error| ImportError::of_file(path, format!("it is no schema in SQL: {error}")))?;
        for tokens in tokens.split(|token| token.token == Token::SemiColon) {
            let mut words = tokens.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
            let Some(first) = words.next() else { continue };
            let line = first.span.start.line;
            schema.own_type(tokens);
            let head =
                format!("{} {}", first.token, words.next().map(|token| token.token.to_string()).unwrap_or_default())
                    .to_lowercase();
            let is_table = head.starts_with("create")
                && !head.contains("function")
                && tokens
                    .iter()
                    .take(12)
                    .any(|token| matches!(&token.token, Token::Word(word) if word.keyword == Keyword::TABLE));
            let parsed = Parser::new(&PostgreSqlDialect {})
                .with_recursion_limit(50)
                .with_tokens_with_locations(tokens.to_vec())
                .parse_statements();
            match parsed {
                Ok(statements) => {
                    for statement in &statements {
                        schema.statement(statement).map_err(|message| ImportError::at(path, line, message))?;
                    }
                }
                Err(error) if is_table => {
                    return Err(ImportError::at(path, line, format!("create table can't be read: {error}")));
                }
                Err(_) => schema.left_out(&head),
            }
        }
        if schema.tables.is_empty() {
            return Err(ImportError::of_file(
                path,
                "it creates no table; valid: create table, create index, alter table",
            ));
        }
        Ok(schema)
    }

    /// Notes the name of `create type` or `create domain`.
    fn own_type(&mut self, tokens: &[TokenWithSpan]) {
        let words = tokens.iter().filter_map(|token| match &token.token {
            Token::Word(word) => Some(word.value.to_lowercase()),
            _ => None,
        });
        let words: Vec<String> = words.take_while(|word| word != "as").collect();
        if let [create, kind, .., name] = &words[..]
            && create == "create"
            && ["type", "domain"].contains(&kind.as_str())
        {
            self.own_types.insert(name.clone());
        }
    }

    fn left_out(&mut self, what: &str) {
        self.notes.insert(format!("left out of the schema: {}", cut(what)));
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        match statement {
            Statement::CreateTable(create) => self.create(create),
            Statement::CreateIndex(create) => {
                let name = last_name(&create.table_name);
                let Some(table) = self.tables.iter_mut().find(|table| table.name == name) else {
                    return Err(format!("an index is of an unknown table '{name}'"));
                };
                let columns = create.columns.iter().map(|column| match &column.column.expr {
                    Expr::Identifier(ident) => table.column(&name_of(ident)),
                    _ => None,
                });
                let columns: Option<Vec<usize>> = columns.collect();
                match columns.filter(|columns| create.predicate.is_none() && fits(table, columns)) {
                    Some(columns) => {
                        if columns != table.key && !table.indexes.contains(&columns) {
                            table.indexes.push(columns);
                        }
                    }
                    None => self.left_out(&format!(
                        "an index of {name}: a partial one, one of expressions or texts, or one of more than 32 bytes"
                    )),
                }
                Ok(())
            }
            Statement::AlterTable(alter) => {
                let name = last_name(&alter.name);
                for operation in &alter.operations {
                    match operation {
                        AlterTableOperation::AddConstraint { constraint, .. } => {
                            let Some(table) = self.tables.iter_mut().find(|table| table.name == name) else {
                                return Err(format!("alter table of an unknown table '{name}'"));
                            };
                            constrain(table, constraint, &mut self.notes)?;
                        }
                        _ => self.left_out(&format!("alter table {name}")),
                    }
                }
                Ok(())
            }
            other => {
                let head: Vec<String> = other.to_string().split_whitespace().take(2).map(str::to_lowercase).collect();
                self.left_out(&head.join(" "));
                Ok(())
            }
        }
    }

    fn create(&mut self, create: &CreateTable) -> Result<(), String> {
        let name = last_name(&create.name);
        if name.contains(['"', '\'', '.', '\n']) {
            return Err(format!("table '{}' has a name that a workload file can't have", cut(&name)));
        }
        if self.tables.iter().any(|table| table.name == name) {
            return Err(format!("table {name} is created twice"));
        }
        let mut table =
            Table { name, columns: Vec::new(), key: Vec::new(), indexes: Vec::new(), references: Vec::new() };
        for column in &create.columns {
            let number = table.columns.len();
            let column_name = name_of(&column.name);
            let type_name = column.data_type.to_string();
            let own = || {
                let name = type_name.to_lowercase().replace('"', "");
                let is_own = self.own_types.contains(name.rsplit('.').next().unwrap_or_default());
                is_own.then(|| ("bigint".to_owned(), Kind::Ranked))
            };
            let Some((written, kind)) = type_of(&type_name).or_else(own) else {
                return Err(format!(
                    "table {}: column {column_name} has the type {}; valid: {TYPES}",
                    table.name,
                    cut(&type_name)
                ));
            };
            let is_same = written == type_name.to_lowercase()
                || type_name.to_lowercase() == "integer"
                || written.starts_with("timestamp");
            let replaced = (!is_same).then(|| type_name.to_lowercase());
            table.columns.push(Column { name: column_name, kind, written, replaced });
            for option in &column.options {
                match &option.option {
                    ColumnOption::PrimaryKey(_) => table.key = vec![number],
                    ColumnOption::Unique(_) => table.indexes.push(vec![number]),
                    ColumnOption::ForeignKey(foreign) => {
                        let column = foreign.referred_columns.first().map(name_of);
                        table.references.push((number, last_name(&foreign.foreign_table), column));
                    }
                    _ => {}
                }
            }
        }
        for constraint in &create.constraints {
            constrain(&mut table, constraint, &mut self.notes)?;
        }
        self.tables.push(table);
        Ok(())
    }

    /// Makes numbers of the texts in keys, and leaves out indexes that can't be kept.
    pub(crate) fn finish(&mut self) {
        for table in &mut self.tables {
            for &column in &table.key {
                if let Kind::Text(_) = table.columns[column].kind {
                    let of = &mut table.columns[column];
                    let before = of.replaced.take().unwrap_or_else(|| of.written.clone());
                    *of = Column { kind: Kind::Ranked, written: "bigint".into(), replaced: Some(before), ..of.clone() };
                }
            }
            let indexes = std::mem::take(&mut table.indexes);
            for columns in indexes {
                if fits(table, &columns) && columns != table.key && !table.indexes.contains(&columns) {
                    table.indexes.push(columns);
                }
            }
        }
    }

    pub(crate) fn table(&self, name: &str) -> Option<usize> {
        self.tables.iter().position(|table| table.name == name)
    }

    /// Returns the names of the tables, for messages.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.tables.iter().take(20).map(|table| table.name.as_str()).collect();
        let more = if self.tables.len() > 20 { ", ..." } else { "" };
        format!("{}{more}", names.join(", "))
    }

    /// Returns the text of the tables that `used` chooses, as a workload file has it.
    pub(crate) fn text(&self, used: impl Fn(usize) -> bool, index: impl Fn(usize, usize) -> bool) -> String {
        let mut text = String::new();
        for (number, table) in self.tables.iter().enumerate().filter(|(number, _)| used(*number)) {
            let mut parts: Vec<String> = Vec::new();
            for column in &table.columns {
                parts.push(format!("  {} {}", written(&column.name), column.written));
            }
            let names = |columns: &[usize]| -> String {
                columns.iter().map(|&column| written(&table.columns[column].name)).collect::<Vec<_>>().join(", ")
            };
            if !table.key.is_empty() {
                parts.push(format!("  primary key ({})", names(&table.key)));
            }
            text += &format!("create table {} (\n{}\n);\n", written(&table.name), parts.join(",\n"));
            for (at, columns) in table.indexes.iter().enumerate().filter(|(at, _)| index(number, *at)) {
                text += &format!(
                    "create index {} on {} ({});\n",
                    written(&format!("{}_by_{at}", table.name.to_lowercase().replace(' ', "_"))),
                    written(&table.name),
                    names(columns)
                );
            }
        }
        text
    }
}

/// Whether an index of these columns, with the primary key behind them, fits into a key.
fn fits(table: &Table, columns: &[usize]) -> bool {
    let bytes = columns.iter().chain(&table.key).map(|&column| match table.columns[column].kind {
        Kind::Text(_) if !table.key.contains(&column) => 64,
        _ => 8,
    });
    !columns.is_empty() && bytes.sum::<u32>() <= 32
}

fn constrain(table: &mut Table, constraint: &TableConstraint, notes: &mut BTreeSet<String>) -> Result<(), String> {
    let name = table.name.clone();
    let find = |table: &Table, expr: &Expr| match expr {
        Expr::Identifier(ident) => {
            let column = name_of(ident);
            let valid: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            let unknown = || format!("table {name}: unknown column '{column}' in a key; valid: {}", valid.join(", "));
            table.column(&column).ok_or_else(unknown)
        }
        other => Err(format!("table {name}: a key has '{other}'; valid: columns")),
    };
    match constraint {
        TableConstraint::PrimaryKey(primary) => {
            table.key =
                primary.columns.iter().map(|column| find(table, &column.column.expr)).collect::<Result<_, _>>()?;
        }
        TableConstraint::Unique(unique) => {
            let columns =
                unique.columns.iter().map(|column| find(table, &column.column.expr)).collect::<Result<_, _>>()?;
            table.indexes.push(columns);
        }
        TableConstraint::ForeignKey(foreign) => {
            for (number, ident) in foreign.columns.iter().enumerate() {
                let column = find(table, &Expr::Identifier(ident.clone()))?;
                let referred = foreign.referred_columns.get(number).map(name_of);
                table.references.push((column, last_name(&foreign.foreign_table), referred));
            }
        }
        _ => {
            notes.insert(format!("left out of the schema: a constraint of {name}"));
        }
    }
    Ok(())
}

/// Returns the type that a workload file has for a type of PostgreSQL, and what the column holds.
fn type_of(name: &str) -> Option<(String, Kind)> {
    let name = name.to_lowercase();
    let name = name.trim_start_matches("pg_catalog.");
    let (base, rest) = name.split_once('(').unwrap_or((name, ""));
    let mut numbers = rest.split([',', ')']).map_while(|part| part.trim().parse::<u32>().ok());
    let (first, second) = (numbers.next(), numbers.next());
    let whole = |written: &str| Some((written.to_owned(), Kind::Whole));
    let text = |written: &str, bytes: u32| {
        let bytes = bytes.clamp(1, TEXT_MAX);
        Some((format!("{written}({bytes})"), Kind::Text(bytes)))
    };
    if name.contains('[') {
        return text("varchar", TEXT_BYTES);
    }
    match base.trim() {
        "bigint" | "int8" | "bigserial" | "serial8" | "oid" | "xid8" => whole("bigint"),
        "int" | "integer" | "int4" | "serial" | "serial4" => whole("int"),
        "smallint" | "int2" | "smallserial" | "serial2" => whole("smallint"),
        "boolean" | "bool" => whole("boolean"),
        "numeric" | "decimal" | "dec" => {
            let scale = second.unwrap_or(if first.is_some() { 0 } else { 4 }).min(18);
            let precision = first.unwrap_or(18).clamp(1, 18);
            Some((format!("numeric({precision}, {scale})"), Kind::Scaled(scale)))
        }
        "real" | "float4" | "float8" | "float" | "double" | "double precision" => {
            Some(("bigint".into(), Kind::Scaled(4)))
        }
        "money" => Some(("bigint".into(), Kind::Scaled(2))),
        "date"
        | "timestamp"
        | "timestamptz"
        | "datetime"
        | "timestamp without time zone"
        | "timestamp with time zone" => Some(("timestamp".into(), Kind::Time)),
        "time" | "timetz" | "time without time zone" | "time with time zone" | "interval" => {
            Some(("bigint".into(), Kind::Ranked))
        }
        "uuid" => Some(("bigint".into(), Kind::Ranked)),
        "char" | "character" | "bpchar" => text("char", first.unwrap_or(1)),
        "varchar" | "character varying" | "nvarchar" | "char varying" => text("varchar", first.unwrap_or(TEXT_BYTES)),
        "text" | "citext" | "bytea" | "json" | "jsonb" | "xml" | "tsvector" | "name" => text("varchar", TEXT_BYTES),
        "inet" | "cidr" | "macaddr" => text("varchar", 40),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Schema, String> {
        let mut schema = Schema::read(Path::new("s.sql"), text).map_err(|error| error.to_string())?;
        schema.finish();
        Ok(schema)
    }

    #[test]
    fn a_dump_is_read() {
        let schema = read(
            "\\restrict x\nSET statement_timeout = 0;\n\
             CREATE TABLE public.orders (id uuid NOT NULL, \"Total\" numeric(12,2) DEFAULT 0, person integer, note text);\n\
             CREATE TYPE public.mood AS ENUM ('sad', 'ok');\n\
             CREATE TABLE public.people (id integer NOT NULL, born date, is public.mood, tags text[]);\n\
             ALTER TABLE ONLY public.orders ADD CONSTRAINT o PRIMARY KEY (id);\n\
             ALTER TABLE ONLY public.people ADD CONSTRAINT p PRIMARY KEY (id);\n\
             ALTER TABLE public.people OWNER TO postgres;\n\
             CREATE INDEX orders_person ON public.orders USING btree (person);\n\
             CREATE FUNCTION f() RETURNS int AS $$ select 1; $$ LANGUAGE sql;\n\
             ALTER TABLE ONLY public.orders ADD CONSTRAINT f FOREIGN KEY (person) REFERENCES public.people(id);\n",
        )
        .expect("valid");
        let orders = &schema.tables[0];
        assert_eq!((orders.key.clone(), orders.indexes.clone()), (vec![0], vec![vec![2]]));
        assert_eq!(orders.columns[0].kind, Kind::Ranked);
        assert_eq!(orders.columns[1].kind, Kind::Scaled(2));
        assert_eq!(schema.tables[1].columns[2].kind, Kind::Ranked);
        assert_eq!(schema.tables[1].columns[3].kind, Kind::Text(64));
        assert_eq!(orders.references, [(2, "people".to_owned(), Some("id".to_owned()))]);
        assert!(schema.text(|_| true, |_, _| true).contains("\"Total\" numeric(12, 2)"));
        assert!(schema.text(|_| true, |_, _| true).contains("create index orders_by_0 on orders (person);"));
    }

    #[test]
    fn mistakes_name_the_table_the_column_and_the_types() {
        for (text, parts) in [
            ("create table t (\n a point)", &["s.sql, line 1", "table t: column a", "type point; valid: bigint"][..]),
            ("\n\ncreate table t (a int,,)", &["line 3", "create table can't be read"]),
            ("create table t (a int, b tsrange)", &["table t: column b"]),
            ("create table t (a int, primary key (b))", &["unknown column 'b'", "valid: a"]),
            ("create table t (a int); create table t (a int)", &["created twice"]),
            ("select 1", &["creates no table"]),
            ("", &["creates no table"]),
        ] {
            let error = read(text).expect_err(text);
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }
}
