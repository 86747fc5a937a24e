//! From a template to a statement of the workload language.
//!
//! The language accesses rows of one table by a key. A template that does more is made simpler
//! where the accessed rows stay the same: conditions on other columns, the order by them,
//! `returning` and expressions of columns are left out. The other templates are refused.

use sqlparser::ast::{Expr, SetExpr, Statement as Sql, TableFactor, TableWithJoins, Value};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use crate::schema::{Schema, last_name, name_of, written};

mod change;
mod condition;
mod select;

/// The longest template.
const TEMPLATE_BYTES_MAX: usize = 3000;

/// A column of a table of the schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ColumnAt {
    pub(crate) table: usize,
    pub(crate) column: usize,
}

/// What a parameter of a template is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Nothing: its condition is left out.
    Unused,
    /// It equals a column of a key or an index.
    Key(ColumnAt),
    /// It is the lower end of a range of a column.
    Low(ColumnAt),
    /// It is the upper end of a range of a column, whose lower end may be another parameter.
    High(ColumnAt, Option<usize>),
    /// It is stored in a column of numbers.
    Stored(ColumnAt),
    /// It is a text that is stored.
    Text(u32),
    /// It is a number of an expression that is stored in a column.
    Number(ColumnAt),
    /// It is a number of rows.
    Count,
}

/// What a statement does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Read,
    Scan,
    Update,
    Insert,
    Delete,
}

/// A statement of the workload language.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) verb: Verb,
    pub(crate) table: usize,
    /// The lines of the script, with a marker for each parameter.
    pub(crate) text: String,
    /// What each parameter of the template is for.
    pub(crate) roles: Vec<Role>,
    /// The index by which rows are found.
    pub(crate) index: Option<usize>,
    /// What the statement leaves out of the template.
    pub(crate) left_out: Vec<&'static str>,
}

/// What a template means.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    Begin,
    Commit,
    Rollback,
    Savepoint(String),
    Release,
    RollbackTo(String),
    /// It touches no table of a user.
    Ignored,
    Statement(Box<Statement>),
    /// The language has no such statement.
    Refused(String),
}

/// Returns the marker of a parameter.
pub(crate) fn marker(parameter: usize) -> String {
    format!("\u{1}{parameter}\u{2}")
}

/// Replaces the markers of a text.
pub(crate) fn filled(text: &str, mut with: impl FnMut(usize) -> String) -> String {
    let mut parts = text.split('\u{1}');
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('\u{2}').unwrap_or(("0", part));
        result += &with(number.parse().unwrap_or(0));
        result += rest;
    }
    result
}

/// The work on one template.
struct Translation<'a> {
    schema: &'a Schema,
    roles: Vec<Role>,
    left_out: Vec<&'static str>,
}

type Translated<T> = Result<T, String>;

/// Returns what a template means. `parameters` is the number of its constants.
pub(crate) fn meaning_of(schema: &Schema, template: &str, parameters: usize) -> Meaning {
    let words: Vec<&str> = template.split([' ', ',']).filter(|word| !word.is_empty()).take(8).collect();
    let name = |at: usize| words.get(at).copied().unwrap_or_default().to_owned();
    match words[..] {
        ["begin", ..] | ["start", "transaction", ..] => return Meaning::Begin,
        ["commit", "prepared", ..] => return Meaning::Ignored,
        ["commit", ..] | ["end", ..] => return Meaning::Commit,
        ["rollback" | "abort", "to", "savepoint", ..] => return Meaning::RollbackTo(name(3)),
        ["rollback" | "abort", "work" | "transaction", "to", "savepoint", ..] => return Meaning::RollbackTo(name(4)),
        ["rollback" | "abort", "to", ..] => return Meaning::RollbackTo(name(2)),
        ["rollback" | "abort", ..] => return Meaning::Rollback,
        ["savepoint", ..] => return Meaning::Savepoint(name(1)),
        ["release", ..] => return Meaning::Release,
        [
            "set" | "show" | "reset" | "discard" | "deallocate" | "listen" | "unlisten" | "notify" | "close"
            | "prepare",
            ..,
        ] => return Meaning::Ignored,
        _ => {}
    }
    if template.len() > TEMPLATE_BYTES_MAX {
        return Meaning::Refused(format!("it has more than {TEMPLATE_BYTES_MAX} bytes without its constants"));
    }
    let parsed = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(50).try_with_sql(template);
    let statement = match parsed.and_then(|mut parser| parser.parse_statements()) {
        Ok(mut statements) if statements.len() == 1 => statements.swap_remove(0),
        Ok(_) => return Meaning::Refused("it is no single statement".into()),
        Err(error) => return Meaning::Refused(format!("it can't be parsed: {}", reason(&error.to_string()))),
    };
    let mut work = Translation { schema, roles: vec![Role::Unused; parameters], left_out: Vec::new() };
    let translated = match &statement {
        Sql::Query(query) if names_no_table(query) => {
            return match unknown_function(template) {
                Some(name) => {
                    Meaning::Refused(format!("it calls {name}, and the statements of functions are not logged"))
                }
                None => Meaning::Ignored,
            };
        }
        Sql::Query(query) => work.select(query),
        Sql::Update(update) => work.update(update),
        Sql::Insert(insert) => work.insert(insert),
        Sql::Delete(delete) => work.delete(delete),
        _ => Err("it is no select, insert, update or delete".into()),
    };
    match translated {
        Ok((verb, table, index, text)) => {
            work.left_out.sort_unstable();
            work.left_out.dedup();
            let Translation { roles, left_out, .. } = work;
            Meaning::Statement(Box::new(Statement { verb, table, text, roles, index, left_out }))
        }
        Err(why) if why == SYSTEM => Meaning::Ignored,
        Err(why) => Meaning::Refused(why),
    }
}

/// Why a statement on a system catalog is left out.
const SYSTEM: &str = "a system catalog";

/// Shortens a message of the parser.
fn reason(message: &str) -> String {
    message.split(" at Line").next().unwrap_or(message).replace('\n', " ")
}

fn names_no_table(query: &sqlparser::ast::Query) -> bool {
    match &*query.body {
        SetExpr::Select(select) => {
            query.with.is_none() && select.from.is_empty() && !format!("{select}").to_lowercase().contains("(select")
        }
        _ => false,
    }
}

/// Returns a function that a template calls, and that may touch tables.
fn unknown_function(template: &str) -> Option<&str> {
    const HARMLESS: [&str; 34] = [
        "select",
        "version",
        "now",
        "current_setting",
        "set_config",
        "nextval",
        "currval",
        "lastval",
        "setval",
        "coalesce",
        "nullif",
        "greatest",
        "least",
        "cast",
        "txid_current",
        "current_schema",
        "current_schemas",
        "current_database",
        "current_user",
        "clock_timestamp",
        "statement_timestamp",
        "to_char",
        "to_timestamp",
        "date_trunc",
        "extract",
        "upper",
        "lower",
        "length",
        "abs",
        "random",
        "array",
        "row",
        "exists",
        "concat",
    ];
    let calls = template.match_indices('(').filter_map(|(at, _)| {
        let name = template[..at].trim_end().rsplit([' ', '(', ',']).next()?;
        name.starts_with(|first: char| first.is_alphabetic() || first == '_' || first == '"').then_some(name)
    });
    calls.into_iter().find(|name| {
        let plain = name.trim_start_matches("pg_catalog.");
        !plain.starts_with("pg_") && !plain.starts_with("inet_") && !HARMLESS.contains(&plain)
    })
}

impl Translation<'_> {
    /// Returns the one table of a statement.
    fn only_table(&self, from: &[TableWithJoins]) -> Translated<usize> {
        let is_system = |factor: &TableFactor| match factor {
            TableFactor::Table { name, .. } => {
                let whole = name.to_string().to_lowercase();
                whole.starts_with("pg_") || whole.starts_with("information_schema.")
            }
            _ => false,
        };
        let mut all =
            from.iter().flat_map(|of| std::iter::once(&of.relation).chain(of.joins.iter().map(|join| &join.relation)));
        if all.clone().next().is_some() && all.all(is_system) {
            return Err(SYSTEM.into());
        }
        match from {
            [TableWithJoins { relation: TableFactor::Table { name, args: None, .. }, joins }] if joins.is_empty() => {
                self.table(&last_name(name))
            }
            [] => Err("it reads no table".into()),
            _ => Err("it reads several tables or a subquery; valid: one table".into()),
        }
    }

    fn table(&self, name: &str) -> Translated<usize> {
        let unknown = || format!("unknown table '{name}'; valid: {}", self.schema.names());
        match self.schema.table(name) {
            Some(table) => Ok(table),
            None if name.starts_with("pg_") => Err(SYSTEM.into()),
            None => Err(unknown()),
        }
    }

    /// Returns the column that an expression names.
    fn column(&self, table: usize, expression: &Expr) -> Translated<Option<usize>> {
        let name = match expression {
            Expr::Nested(inner) => return self.column(table, inner),
            Expr::Identifier(ident) => name_of(ident),
            Expr::CompoundIdentifier(parts) => parts.last().map(name_of).unwrap_or_default(),
            _ => return Ok(None),
        };
        self.column_named(table, &name).map(Some)
    }

    fn column_named(&self, table: usize, name: &str) -> Translated<usize> {
        let of = &self.schema.tables[table];
        of.column(name).ok_or_else(|| {
            let valid: Vec<&str> = of.columns.iter().map(|column| column.name.as_str()).collect();
            format!("unknown column '{name}' of {}; valid: {}", of.name, valid.join(", "))
        })
    }

    /// Returns a column's name as the file writes it.
    fn written(&self, table: usize, column: usize) -> String {
        written(&self.schema.tables[table].columns[column].name)
    }

    /// Collects the columns that an expression names, and the queries inside it.
    fn columns_in(&self, table: usize, expression: &Expr, found: &mut Vec<usize>) -> Translated<()> {
        if let Some(column) = self.column(table, expression)? {
            found.push(column);
            return Ok(());
        }
        match expression {
            Expr::UnaryOp { expr, .. }
            | Expr::Cast { expr, .. }
            | Expr::Nested(expr)
            | Expr::IsNull(expr)
            | Expr::IsNotNull(expr) => self.columns_in(table, expr, found),
            Expr::BinaryOp { left, right, .. } => {
                self.columns_in(table, left, found)?;
                self.columns_in(table, right, found)
            }
            Expr::Subquery(_) | Expr::Exists { .. } => Err("it has a query inside an expression".into()),
            Expr::Function(function) => {
                if let sqlparser::ast::FunctionArguments::List(list) = &function.args {
                    for argument in &list.args {
                        if let sqlparser::ast::FunctionArg::Unnamed(sqlparser::ast::FunctionArgExpr::Expr(inner)) =
                            argument
                        {
                            self.columns_in(table, inner, found)?;
                        }
                    }
                }
                Ok(())
            }
            Expr::Case { conditions, else_result, .. } => {
                for case in conditions {
                    self.columns_in(table, &case.condition, found)?;
                    self.columns_in(table, &case.result, found)?;
                }
                else_result.iter().try_for_each(|inner| self.columns_in(table, inner, found))
            }
            other if other.to_string().to_lowercase().contains("(select") => {
                Err("it has a query inside an expression".into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the number of the parameter that an expression is, or that it is made of.
fn parameter_of(expression: &Expr) -> Option<usize> {
    match expression {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } | Expr::UnaryOp { expr: inner, .. } => parameter_of(inner),
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => name.trim_start_matches('$').parse::<usize>().ok()?.checked_sub(1),
            _ => None,
        },
        Expr::BinaryOp { left, right, .. } => parameter_of(left).or_else(|| parameter_of(right)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
