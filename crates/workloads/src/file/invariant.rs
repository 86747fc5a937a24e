//! Conditions on the tables after a run.

use contend_model::Inspect;
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, Query, SelectItem, SetExpr, Spanned, Statement, TableFactor,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::compile::expression_of;
use super::error::{Place, Read, mistake, of_parser, unknown};
use super::expression::{Names, Writer};
use super::interpret::{Handle, Memory, with_table};
use super::program::{Aggregate, Code, Register, Source};
use super::schema::{ColumnAt, Table, Type, name_of, simple_name};
use super::source::Parameters;

/// A condition: two numbers that are compared.
#[derive(Clone, Debug)]
pub(super) struct Invariant {
    pub(super) name: String,
    pub(super) sides: [Side; 2],
    /// Whether the first may be larger.
    pub(super) at_least: bool,
}

/// A number: aggregates of a table, and what is computed of them.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) table: Option<usize>,
    pub(super) aggregates: Vec<(Aggregate, Source, Register)>,
    code: Code,
    result: Register,
    text: String,
}

impl Invariant {
    /// Whether the condition reads this table.
    pub(super) fn reads(&self, table: usize) -> bool {
        self.sides.iter().any(|side| side.table == Some(table))
    }

    /// Checks the condition. Returns a sentence about how it fails.
    pub(super) fn check<S: Inspect>(
        &self,
        store: &S,
        tables: &[Table],
        handles: &[Handle],
        rows: &[u64],
    ) -> Result<(), String> {
        self.judge([0, 1].map(|side| self.sides[side].value(store, tables, handles, rows)))
    }

    /// Judges the values of the two sides. Returns a sentence about how the condition fails.
    pub(super) fn judge(&self, [first, second]: [i64; 2]) -> Result<(), String> {
        let holds = if self.at_least { first >= second } else { first == second };
        if holds {
            return Ok(());
        }
        let relation = if self.at_least { "is less than" } else { "differs from" };
        let [left, right] = &self.sides;
        Err(format!("invariant '{}': {first} ({}) {relation} {second} ({})", self.name, left.text, right.text))
    }
}

impl Side {
    /// Compiles one side of a condition.
    pub(super) fn read(text: &str, tables: &[Table], rows: &[u64], parameters: &Parameters) -> Read<Side> {
        let at = Place { line: 1, column: 1 };
        super::compile::short(text, at)?;
        let mut writer = Writer::new(tables, rows, parameters);
        if !text.trim_start().to_lowercase().starts_with("select") {
            let expression = expression_of(text, at)?;
            let result = writer.number(&expression, &mut Names::None)?;
            return Ok(Side { table: None, aggregates: Vec::new(), code: writer.code, result, text: text.into() });
        }
        let parsed = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(50).try_with_sql(text);
        let statements =
            parsed.and_then(|mut parser| parser.parse_statements()).map_err(|error| of_parser(at, &error))?;
        let [Statement::Query(query)] = &statements[..] else {
            return mistake(at, "a side of an invariant is one select, or an expression");
        };
        let (table, expression) = parts_of(query, tables, at)?;
        let mut aggregates = Vec::new();
        let replaced = replace_aggregates(expression, &tables[table], at, &mut writer, &mut aggregates)?;
        let result = replaced;
        Ok(Side { table: Some(table), aggregates, code: writer.code, result, text: text.trim().into() })
    }

    fn value<S: Inspect>(&self, store: &S, tables: &[Table], handles: &[Handle], rows: &[u64]) -> i64 {
        let mut sums = vec![0i64; self.aggregates.len()];
        if let Some(table) = self.table {
            let mut first = true;
            let mut visit = |key: &contend_model::KeyWords, row: &[u64]| {
                for ((aggregate, source, _), sum) in self.aggregates.iter().zip(&mut sums) {
                    let value = match source {
                        Source::Row(word) => row[*word as usize] as i64,
                        Source::Key(part) => tables[table].shape.parts[*part as usize].of(key),
                        Source::One => 1,
                    };
                    *sum = match aggregate {
                        Aggregate::Sum => sum.wrapping_add(value),
                        _ if first => value,
                        Aggregate::Least => value.min(*sum),
                        Aggregate::Greatest => value.max(*sum),
                    };
                }
                first = false;
            };
            with_table!(handles[table], of => {
                use contend_model::Key;
                let listed = store.peek_all(&of, |key, row| visit(&key.to_words(), row));
                if !listed {
                    // No row is inserted or deleted: the keys are those that were loaded.
                    let mut row = Vec::new();
                    for number in 0..rows[table] {
                        let key = [number, 0, 0, 0];
                        if store.peek(&of, Key::from_words(key), &mut row).is_some() {
                            visit(&key, &row);
                        }
                    }
                }
            });
        }
        self.computed(&sums)
    }

    /// Returns what is computed of the aggregates' values.
    pub(super) fn computed(&self, sums: &[i64]) -> i64 {
        let mut memory = Memory::new(0, 1);
        memory.evaluate(&self.code, 0, |frame| {
            self.aggregates.iter().zip(sums).for_each(|((.., register), sum)| frame[*register as usize] = *sum);
        });
        memory.frame[self.result as usize]
    }
}

fn parts_of<'a>(query: &'a Query, tables: &[Table], at: Place) -> Read<(usize, &'a Expr)> {
    let SetExpr::Select(select) = &*query.body else {
        return mistake(at, "a side of an invariant is one select, or an expression");
    };
    let has_more = query.order_by.is_some() || query.limit_clause.is_some() || select.distinct.is_some();
    if select.selection.is_some() || select.having.is_some() || has_more {
        return mistake(at, "the select of an invariant reads a whole table: select AGGREGATES from TABLE");
    }
    let ([SelectItem::UnnamedExpr(expression)], [from]) = (&select.projection[..], &select.from[..]) else {
        return mistake(at, "the select of an invariant has one result, and reads one table");
    };
    let TableFactor::Table { name, .. } = &from.relation else {
        return mistake(at, "the select of an invariant reads one table");
    };
    if !from.joins.is_empty() {
        return mistake(at, "the select of an invariant reads one table; joins are not possible");
    }
    let (name, place) = simple_name(at, name)?;
    match tables.iter().position(|table| table.name == name) {
        Some(table) => Ok((table, expression)),
        None => unknown(place, "table", &name, tables.iter().map(|table| table.name.as_str())),
    }
}

/// Returns an aggregate and the column that it reads; `None` for another function.
fn aggregate_of(
    name: &str,
    arguments: &[FunctionArg],
    table: &Table,
    place: Place,
) -> Read<Option<(Aggregate, Source)>> {
    let aggregate = match name {
        "count" | "sum" => Aggregate::Sum,
        "min" => Aggregate::Least,
        "max" => Aggregate::Greatest,
        _ => return Ok(None),
    };
    match (name, arguments) {
        ("count", [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]) => Ok(Some((aggregate, Source::One))),
        ("sum" | "min" | "max", [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(ident)))]) => {
            let column = &table.columns[table.column(place, &name_of(ident))?];
            match (column.of, column.at) {
                (Type::Text(_), _) => mistake(place, format!("{} is a text", column.name)),
                (_, ColumnAt::Key(part)) => Ok(Some((aggregate, Source::Key(part as u8)))),
                (_, ColumnAt::Row { word, .. }) => Ok(Some((aggregate, Source::Row(word as u16)))),
            }
        }
        _ => mistake(place, "valid: count(*), sum(COLUMN), min(COLUMN), max(COLUMN)"),
    }
}

/// Compiles the result of a select: numbers and operators around aggregates.
fn replace_aggregates(
    expression: &Expr,
    table: &Table,
    at: Place,
    writer: &mut Writer<'_>,
    found: &mut Vec<(Aggregate, Source, Register)>,
) -> Read<Register> {
    // Each aggregate becomes a column with a name that no schema can have, and the columns are
    // looked up by it.
    fn walk(
        expression: &mut Expr,
        table: &Table,
        at: Place,
        writer: &mut Writer<'_>,
        found: &mut Vec<(Aggregate, Source, Register)>,
    ) -> Read<()> {
        let place = at.of(expression.span());
        match expression {
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => walk(inner, table, at, writer, found),
            Expr::BinaryOp { left, right, .. } => {
                walk(left, table, at, writer, found)?;
                walk(right, table, at, writer, found)
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let FunctionArguments::List(list) = &function.args else {
                    return mistake(place, "valid: count(*), sum(COLUMN), min(COLUMN), max(COLUMN)");
                };
                let Some((aggregate, source)) = aggregate_of(&name, &list.args, table, place)? else { return Ok(()) };
                let register = writer.registers(1)?;
                found.push((aggregate, source, register));
                *expression = Expr::Identifier(sqlparser::ast::Ident::new(format!("#{}", found.len() - 1)));
                Ok(())
            }
            _ => Ok(()),
        }
    }
    let mut replaced = expression.clone();
    walk(&mut replaced, table, at, writer, found)?;
    let registers: Vec<Register> = found.iter().map(|(.., register)| *register).collect();
    let mut lookup = |ident: &sqlparser::ast::Ident| match ident
        .value
        .strip_prefix('#')
        .and_then(|number| number.parse::<usize>().ok())
    {
        Some(number) if number < registers.len() => Ok((registers[number], Type::Number(8))),
        _ => mistake(at, format!("'{}' stands outside of an aggregate", ident.value)),
    };
    writer.number(&replaced, &mut Names::Columns(&mut lookup))
}
