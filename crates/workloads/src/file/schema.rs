//! The tables of a workload file: `create table` and `create index`, and how rows and keys lie in
//! words.

pub(super) use contend_model::GROUPS_MAX;
use contend_model::{IndexKind, KeyWords, MAX_KEY_WORDS, Span, TableSpec};
use sqlparser::ast::{
    CharacterLength, ColumnOption, CreateIndex, CreateTable, DataType, ExactNumberInfo, Expr, Ident, ObjectName,
    ObjectNamePart, Statement, TableConstraint,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::keywords::Keyword;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, Tokenizer};

use super::error::{Mistake, Place, Read, mistake, of_parser, unknown};

/// The most tables of a file, indexes included.
pub(super) const TABLES_MAX: usize = 64;
/// The most words of a row.
const ROW_WORDS_MAX: usize = 4096;
/// The most bytes of a text.
pub(super) const TEXT_MAX: u64 = 4096;
/// The column that is the primary key of a table whose schema has none.
pub(super) const NUMBER: &str = "#number";
/// The types of columns, for messages.
const TYPES: &str = "bigint, int, smallint, boolean, numeric(p, s) with p up to 18, timestamp, char(n), \
                     varchar(n), bytea(n)";

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A whole number of this number of bytes. It takes a word of a row, and its bytes in a key.
    Number(u32),
    /// A text, or bytes, of at most this number of bytes. It takes a word for its length, and its
    /// bytes.
    Text(u32),
}

impl Type {
    /// Returns the words that a value takes in a row, or in the variables of a script.
    pub(super) fn words(self) -> usize {
        match self {
            Type::Number(_) => 1,
            Type::Text(bytes) => 1 + (bytes as usize).div_ceil(8),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) of: Type,
    /// Whether it has any bytes, and not a text alone.
    pub(super) is_bytes: bool,
    pub(super) at: ColumnAt,
}

/// Where a column's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnAt {
    /// It is this part of the primary key.
    Key(usize),
    /// It begins at this word of the row, and belongs to this group.
    Row { word: usize, group: u32 },
}

/// A part of a key: some bits of one of its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyPart {
    pub(super) word: u8,
    pub(super) shift: u8,
    pub(super) bits: u8,
}

impl KeyPart {
    /// Returns the largest value of the part; the smallest is 0.
    #[inline(always)]
    pub(super) fn max(self) -> u64 {
        u64::MAX >> (64 - u32::from(self.bits))
    }

    /// Returns the part's value in a key.
    #[inline(always)]
    pub(super) fn of(self, key: &KeyWords) -> i64 {
        (key[self.word as usize] >> self.shift & self.max()) as i64
    }
}

/// How the columns of a key lie in its words: one after the other from the high end, none across
/// two words, so that keys compare as their columns do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyShape {
    pub(super) parts: Vec<KeyPart>,
    /// Whether the key is one word; otherwise it has [`MAX_KEY_WORDS`].
    pub(super) narrow: bool,
}

impl KeyShape {
    /// Returns the shape of a key of columns of these bytes, or `None` if they don't fit.
    fn of(bytes: &[u32]) -> Option<KeyShape> {
        let mut parts = Vec::new();
        let (mut word, mut free) = (0, 64);
        for bits in bytes.iter().map(|bytes| bytes * 8) {
            if bits > free {
                (word, free) = (word + 1, 64);
            }
            free -= bits;
            parts.push(KeyPart { word, shift: free as u8, bits: bits as u8 });
        }
        let narrow = word == 0;
        if narrow {
            // A key of one word is a number that people can read.
            parts.iter_mut().for_each(|part| part.shift -= free as u8);
        }
        (usize::from(word) < MAX_KEY_WORDS).then_some(KeyShape { parts, narrow })
    }
}

/// A table, or an index of another table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) name: String,
    /// The columns, in the order of the schema. An index has those that it is made of, and then
    /// those of its table's primary key.
    pub(super) columns: Vec<Column>,
    /// The columns of the primary key.
    pub(super) key: Vec<usize>,
    pub(super) shape: KeyShape,
    /// The words of each group of columns.
    pub(super) groups: Vec<Span>,
    pub(super) words: usize,
    /// The indexes of this table.
    pub(super) indexes: Vec<Index>,
    /// The table of which this one is an index.
    pub(super) index_of: Option<usize>,
}

/// An index of a table: a table whose keys are the indexed columns and the primary key.
#[derive(Clone, Debug)]
pub(super) struct Index {
    /// The indexed columns.
    pub(super) columns: Vec<usize>,
    /// The number of the index among the tables.
    pub(super) table: usize,
}

impl Table {
    /// Returns the position of the column of this name.
    pub(super) fn column(&self, at: Place, name: &str) -> Read<usize> {
        match self.columns.iter().position(|column| column.name == name) {
            Some(column) => Ok(column),
            None => {
                let what = format!("column of {}", self.name);
                unknown(at, &what, name, self.columns.iter().map(|column| column.name.as_str()))
            }
        }
    }

    /// Returns the table's description for a store.
    pub(super) fn spec(&self, index: IndexKind, rows: u64) -> TableSpec {
        let mut names = vec![Vec::new(); self.groups.len()];
        for column in &self.columns {
            if let ColumnAt::Row { group, .. } = column.at {
                names[group as usize].push(super::interned(&column.name));
            }
        }
        TableSpec {
            groups: if self.groups.len() > 1 { self.groups.clone() } else { Vec::new() },
            columns: names,
            key_words: if self.shape.narrow { 1 } else { MAX_KEY_WORDS },
            ..TableSpec::of_bytes(&self.name, index, self.words * 8, usize::try_from(rows).unwrap_or(usize::MAX))
        }
    }
}

/// Returns the one name of an object, in lower case as SQL compares it.
pub(super) fn simple_name(at: Place, name: &ObjectName) -> Read<(String, Place)> {
    match &name.0[..] {
        [ObjectNamePart::Identifier(ident)] => Ok((name_of(ident), at.of(ident.span))),
        _ => mistake(at, format!("'{name}' has several parts; valid: a name without a schema")),
    }
}

/// Returns a name as SQL compares it: in lower case, unless it is quoted.
pub(super) fn name_of(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

/// Reads a schema. `groups` names the columns that have a version of their own, by table.
///
/// # Errors
/// The first mistake.
pub(super) fn read(text: &str, groups: &[(String, Vec<Vec<String>>)]) -> Read<Vec<Table>> {
    let start = Place { line: 1, column: 1 };
    // Statement by statement: an expression in one of them must not be too deep for the stack.
    text.split(';').try_for_each(|statement| super::compile::short(statement, start))?;
    let statements =
        parser_of(text).and_then(|mut parser| parser.parse_statements()).map_err(|error| of_parser(start, &error))?;
    let mut tables: Vec<Table> = Vec::new();
    for statement in &statements {
        match statement {
            Statement::CreateTable(create) => {
                let table = table_of(create, groups)?;
                if tables.iter().any(|other| other.name == table.name) {
                    return mistake(start, format!("table {} is created twice", table.name));
                }
                tables.push(table);
            }
            Statement::CreateIndex(create) => add_index(create, &mut tables)?,
            other => {
                let first: String = other.to_string().split_whitespace().take(2).collect::<Vec<_>>().join(" ");
                return mistake(start, format!("the schema has '{first}'; valid: create table, create index"));
            }
        }
    }
    if tables.is_empty() {
        return mistake(start, "the schema creates no table");
    }
    if tables.len() > TABLES_MAX {
        let count = tables.len();
        return mistake(start, format!("the schema has {count} tables and indexes; valid: up to {TABLES_MAX}"));
    }
    for (name, _) in groups {
        if !tables.iter().any(|table| table.name == *name) {
            let valid = tables.iter().filter(|table| table.index_of.is_none()).map(|table| table.name.as_str());
            return unknown(Place::default(), "table in [groups]", name, valid);
        }
    }
    Ok(tables)
}

/// Returns a parser of a schema. PostgreSQL's bytea has no length, and so the parser knows none. It
/// knows the length of a type `bytes`, so that each of the two names stands for the other.
fn parser_of(text: &str) -> Result<Parser<'_>, ParserError> {
    let mut tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location()?;
    for token in &mut tokens {
        if let Token::Word(word) = &mut token.token {
            word.keyword = match word.keyword {
                Keyword::BYTEA => Keyword::BYTES,
                Keyword::BYTES => Keyword::BYTEA,
                other => other,
            };
        }
    }
    Ok(Parser::new(&PostgreSqlDialect {}).with_recursion_limit(50).with_tokens_with_locations(tokens))
}

fn table_of(create: &CreateTable, groups: &[(String, Vec<Vec<String>>)]) -> Read<Table> {
    let start = Place { line: 1, column: 1 };
    let (name, at) = simple_name(start, &create.name)?;
    let mut types = Vec::new();
    let mut key: Vec<(String, Place)> = Vec::new();
    for column in &create.columns {
        let at = start.of(column.name.span);
        let column_name = name_of(&column.name);
        if types.iter().any(|(other, _)| *other == column_name) {
            return mistake(at, format!("table {name} has column {column_name} twice"));
        }
        for option in &column.options {
            match &option.option {
                ColumnOption::PrimaryKey(_) => key.push((column_name.clone(), at)),
                ColumnOption::NotNull | ColumnOption::Null | ColumnOption::ForeignKey(_) => {}
                other => {
                    return mistake(
                        at,
                        format!("column {column_name} has '{other}'; valid: primary key, not null, references"),
                    );
                }
            }
        }
        types.push((column_name, type_of(&column.data_type).map_err(|message| Mistake { place: at, message })?));
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(primary) => {
                for column in &primary.columns {
                    let Expr::Identifier(ident) = &column.column.expr else {
                        return mistake(at, "a primary key consists of columns");
                    };
                    key.push((name_of(ident), start.of(ident.span)));
                }
            }
            TableConstraint::ForeignKey(_) => {}
            other => {
                return mistake(
                    at,
                    format!("table {name} has '{other}'; valid: primary key (columns), foreign key (not enforced)"),
                );
            }
        }
    }
    if key.is_empty() {
        // Rows of a table without a primary key are only inserted and listed: they are numbered.
        key.push((NUMBER.into(), at));
        types.push((NUMBER.into(), Type::Number(8)));
    }
    let mut key_columns = Vec::new();
    let mut bytes = Vec::new();
    for (column, place) in &key {
        let Some(position) = types.iter().position(|(name, _)| name == column) else {
            return unknown(*place, &format!("column of {name}"), column, types.iter().map(|(name, _)| name.as_str()));
        };
        if key_columns.contains(&position) {
            return mistake(*place, format!("column {column} is twice in the primary key of {name}"));
        }
        key_columns.push(position);
        bytes.push(bytes_in_key(&name, column, types[position].1, *place)?);
    }
    let Some(shape) = KeyShape::of(&bytes) else {
        return mistake(at, too_long(&format!("the primary key of {name}"), &bytes));
    };
    let of_table = groups.iter().find(|(table, _)| *table == name).map_or(&[][..], |(_, groups)| groups);
    let (ats, groups, words) = row_of(&name, &types, &key_columns, of_table)?;
    let columns = columns_of(create, types, ats);
    Ok(Table { name, columns, key: key_columns, shape, groups, words, indexes: Vec::new(), index_of: None })
}

/// Returns the columns of a table, which has one more than its schema says if it has no key.
fn columns_of(create: &CreateTable, types: Vec<(String, Type)>, ats: Vec<ColumnAt>) -> Vec<Column> {
    let is_bytes =
        |column: usize| create.columns.get(column).is_some_and(|column| matches!(column.data_type, DataType::Bytes(_)));
    let columns = types.into_iter().zip(ats).enumerate();
    columns.map(|(number, ((name, of), at))| Column { name, of, is_bytes: is_bytes(number), at }).collect()
}

/// Returns a sentence about a key that is too long.
fn too_long(what: &str, bytes: &[u32]) -> String {
    let (sum, most) = (bytes.iter().sum::<u32>(), MAX_KEY_WORDS * 8);
    format!("{what} has {sum} bytes (no column lies across two words of 8 bytes); valid: up to {most}")
}

/// Returns the bytes that a column takes in a key.
fn bytes_in_key(table: &str, column: &str, of: Type, at: Place) -> Read<u32> {
    match of {
        Type::Number(bytes) => Ok(bytes),
        Type::Text(_) => mistake(at, format!("key column {column} of {table} is a text; valid: whole numbers")),
    }
}

/// Places the columns outside the key in a row: group after group.
fn row_of(
    table: &str,
    types: &[(String, Type)],
    key: &[usize],
    groups: &[Vec<String>],
) -> Read<(Vec<ColumnAt>, Vec<Span>, usize)> {
    let nowhere = Place::default();
    if groups.len() > GROUPS_MAX {
        let count = groups.len();
        return mistake(nowhere, format!("[groups] gives {table} {count} groups; valid: up to {GROUPS_MAX}"));
    }
    let mut group_of: Vec<Option<usize>> = vec![None; types.len()];
    for (number, group) in groups.iter().enumerate() {
        for column in group {
            let Some(position) = types.iter().position(|(name, _)| name == column) else {
                let valid = types.iter().map(|(name, _)| name.as_str());
                return unknown(nowhere, &format!("column of {table} in [groups]"), column, valid);
            };
            if key.contains(&position) {
                return mistake(nowhere, format!("[groups]: column {column} of {table} is of the primary key"));
            }
            if group_of[position].replace(number).is_some() {
                return mistake(nowhere, format!("[groups]: column {column} of {table} is in two groups"));
            }
        }
    }
    let is_of_row = |position: &usize| !key.contains(position);
    // The columns that no group names are one more group, if there are any.
    let rest = (0..types.len()).filter(is_of_row).any(|position| group_of[position].is_none());
    let count = (groups.len() + usize::from(rest)).max(1);
    if count > GROUPS_MAX {
        return mistake(
            nowhere,
            format!("[groups] gives {table} {GROUPS_MAX} groups and leaves columns; valid: name all columns"),
        );
    }
    let mut ats: Vec<ColumnAt> = vec![ColumnAt::Key(0); types.len()];
    key.iter().enumerate().for_each(|(part, &column)| ats[column] = ColumnAt::Key(part));
    let mut spans = Vec::new();
    let mut word = 0;
    for group in 0..count {
        let first = word;
        for position in (0..types.len()).filter(is_of_row) {
            if group_of[position].unwrap_or(groups.len()) == group {
                ats[position] = ColumnAt::Row { word, group: group as u32 };
                word += types[position].1.words();
            }
        }
        spans.push(Span { first: first as u32, count: (word - first) as u32 });
    }
    if word > ROW_WORDS_MAX {
        return mistake(
            nowhere,
            format!("a row of {table} has {} bytes; valid: up to {}", word * 8, ROW_WORDS_MAX * 8),
        );
    }
    Ok((ats, spans, word))
}

fn add_index(create: &CreateIndex, tables: &mut Vec<Table>) -> Read<()> {
    let start = Place { line: 1, column: 1 };
    let (table_name, at) = simple_name(start, &create.table_name)?;
    let Some(of) = tables.iter().position(|table| table.name == table_name && table.index_of.is_none()) else {
        let valid = tables.iter().filter(|table| table.index_of.is_none()).map(|table| table.name.as_str());
        return unknown(at, "table", &table_name, valid);
    };
    if create.unique || create.predicate.is_some() || !create.include.is_empty() {
        return mistake(at, "an index is neither unique nor partial, and includes nothing");
    }
    let name = match &create.name {
        Some(name) => simple_name(start, name)?.0,
        None => format!("{table_name}_index_{}", tables[of].indexes.len() + 1),
    };
    if tables.iter().any(|table| table.name == name) {
        return mistake(at, format!("'{name}' is the name of a table or index already"));
    }
    let mut columns = Vec::new();
    for column in &create.columns {
        let Expr::Identifier(ident) = &column.column.expr else {
            return mistake(at, "an index consists of columns");
        };
        let place = start.of(ident.span);
        let column = tables[of].column(place, &name_of(ident))?;
        if columns.contains(&column) {
            return mistake(place, format!("column {} is twice in index {name}", name_of(ident)));
        }
        columns.push(column);
    }
    let all: Vec<usize> = columns.iter().chain(&tables[of].key).copied().collect();
    let mut bytes = Vec::new();
    for &column in &all {
        let Column { name: column_name, of, .. } = &tables[of].columns[column];
        bytes.push(bytes_in_key(&name, column_name, *of, at)?);
    }
    let Some(shape) = KeyShape::of(&bytes) else {
        return mistake(at, too_long(&format!("index {name}, which ends with the primary key,"), &bytes));
    };
    let number = tables.len();
    let own = all
        .iter()
        .enumerate()
        .map(|(part, &column)| Column { at: ColumnAt::Key(part), ..tables[of].columns[column].clone() });
    let table = Table {
        name,
        columns: own.collect(),
        key: (0..all.len()).collect(),
        shape,
        groups: vec![Span { first: 0, count: 0 }],
        words: 0,
        indexes: Vec::new(),
        index_of: Some(of),
    };
    tables[of].indexes.push(Index { columns, table: number });
    tables.push(table);
    Ok(())
}

/// Returns a column's type.
fn type_of(of: &DataType) -> Result<Type, String> {
    let wrong = |why: &str| {
        let shown = of.to_string().replace("BYTES", "BYTEA");
        Err(format!("type {shown} {why}; valid: {TYPES}"))
    };
    let text = |length: &Option<CharacterLength>| match length {
        Some(CharacterLength::IntegerLength { length, .. }) if (1..=TEXT_MAX).contains(length) => {
            Ok(Type::Text(*length as u32))
        }
        None => Ok(Type::Text(1)),
        _ => wrong(&format!("is too long (up to {TEXT_MAX} bytes)")),
    };
    match of {
        DataType::BigInt(_) | DataType::Int8(_) | DataType::Timestamp(..) => Ok(Type::Number(8)),
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => Ok(Type::Number(4)),
        DataType::SmallInt(_) | DataType::Int2(_) => Ok(Type::Number(2)),
        DataType::Boolean | DataType::Bool => Ok(Type::Number(1)),
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => match info {
            ExactNumberInfo::Precision(precision) | ExactNumberInfo::PrecisionAndScale(precision, _)
                if *precision <= 18 =>
            {
                let largest = 10u64.pow(*precision as u32) - 1;
                Ok(Type::Number((u64::BITS - largest.leading_zeros()).div_ceil(8).max(1)))
            }
            _ => wrong("has more than 18 digits"),
        },
        DataType::Char(length) | DataType::Character(length) => text(length),
        DataType::Varchar(Some(length)) | DataType::CharacterVarying(Some(length)) => text(&Some(*length)),
        DataType::Bytes(Some(length)) => text(&Some(CharacterLength::IntegerLength { length: *length, unit: None })),
        DataType::Text | DataType::Varchar(None) | DataType::CharacterVarying(None) | DataType::Bytes(None) => {
            wrong("has no length, as in varchar(100)")
        }
        _ => wrong("is not one that a file can have"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(text: &str) -> Table {
        read(text, &[]).unwrap_or_else(|error| panic!("{}", error.in_part("schema"))).swap_remove(0)
    }

    #[test]
    fn keys_lie_in_order_and_short_ones_are_numbers() {
        let table = only("create table t (w smallint, d smallint, o int, x int, primary key (w, d, o))");
        assert!(table.shape.narrow);
        assert_eq!(table.shape.parts.iter().map(|part| part.shift).collect::<Vec<_>>(), [48, 32, 0]);
        let table = only("create table t (o int, d smallint, primary key (d, o))");
        assert_eq!(table.shape.parts.iter().map(|part| part.shift).collect::<Vec<_>>(), [32, 0], "no zeros behind");
        let table = only("create table t (a int)");
        assert_eq!((table.columns.len(), table.key.len()), (2, 1), "rows without a key are numbered");
        let table = only("create table t (a bigint, b int, c bigint, primary key (b, a, c))");
        let words: Vec<u8> = table.shape.parts.iter().map(|part| part.word).collect();
        assert_eq!((words, table.shape.narrow), (vec![0, 1, 2], false), "no part lies across two words");
    }

    #[test]
    fn a_numeric_takes_the_bytes_that_its_digits_need() {
        for (digits, bits) in [(1, 8), (2, 8), (3, 16), (4, 16), (5, 24), (7, 24), (8, 32), (9, 32), (10, 40), (18, 64)]
        {
            let table = only(&format!("create table t (a numeric({digits}) primary key)"));
            assert_eq!(table.shape.parts[0].bits, bits, "{digits} digits");
            assert!(table.shape.parts[0].max() >= 10u64.pow(digits) - 1, "{digits} digits");
        }
        let table =
            only("create table t (a numeric(2), b numeric(9, 2), c smallint, d numeric(1), primary key (a, b, c, d))");
        assert!(table.shape.narrow, "eight bytes");
    }

    #[test]
    fn groups_stand_together() {
        let groups = vec![("t".into(), vec![vec!["c".into(), "a".into()]])];
        let tables = read("create table t (id int primary key, a int, b varchar(9), c int)", &groups).expect("valid");
        let at: Vec<ColumnAt> = tables[0].columns.iter().map(|column| column.at).collect();
        assert_eq!(
            at,
            [
                ColumnAt::Key(0),
                ColumnAt::Row { word: 0, group: 0 },
                ColumnAt::Row { word: 2, group: 1 },
                ColumnAt::Row { word: 1, group: 0 }
            ]
        );
        assert_eq!((tables[0].words, tables[0].groups.len()), (5, 2));
    }

    #[test]
    fn a_mistake_names_the_thing_its_place_and_what_is_valid() {
        for (text, place, parts) in [
            ("create table t (a int, a int)", (1, 24), &["column a twice"][..]),
            ("create table t (\n  a uuid primary key)", (2, 3), &["UUID", "valid: bigint"]),
            ("create table t (a varchar primary key)", (1, 17), &["no length"]),
            ("create table t (a varchar(9) primary key)", (1, 17), &["a of t is a text", "whole numbers"]),
            ("create table t (a int, primary key (b))", (1, 37), &["unknown column of t 'b'", "valid: a"]),
            ("create table t (a int primary key default 5)", (1, 17), &["DEFAULT 5", "primary key"]),
            ("create table t (a int primary key); drop table t", (1, 1), &["DROP TABLE", "create index"]),
            (
                "create table t (a int primary key); create index i on u (a)",
                (1, 55),
                &["unknown table 'u'", "valid: t"],
            ),
            ("create table t (a int primary key); create unique index i on t (a)", (1, 62), &["unique"]),
            (
                "create table t (a bigint, b bigint, c bigint, d bigint, e int, primary key (a, b, c, d, e))",
                (1, 14),
                &["36 bytes", "up to 32"],
            ),
            ("create table t (a numeric(19, 2) primary key)", (1, 17), &["more than 18 digits"]),
            ("create table t (a int primary key, b bytea)", (1, 36), &["BYTEA has no length"]),
            ("create table t (a int primary key, b bytea(5000))", (1, 36), &["BYTEA(5000) is too long", "bytea(n)"]),
            ("create table t (a bytea(8) primary key)", (1, 17), &["a of t is a text", "whole numbers"]),
            ("create table t (a int primary key, b bytes(8))", (1, 43), &["Expected"]),
            ("create table t a int", (1, 16), &["Expected"]),
            ("", (1, 1), &["no table"]),
        ] {
            let error = read(text, &[]).expect_err(text);
            assert_eq!((error.place.line, error.place.column), place, "{text}: {}", error.message);
            for part in parts {
                assert!(error.message.contains(part), "{text}: {}", error.message);
            }
        }
    }
}
