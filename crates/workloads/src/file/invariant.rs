//! Conditions on the tables after a run.

use std::collections::BTreeMap;

use contend_model::{Inspect, Key, KeyWords, counted};
use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, Query, SelectItem, SetExpr, Spanned,
    Statement, TableFactor,
};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::Parser;

use super::change::columns_in;
use super::compile::expression_of;
use super::error::{Place, Read, mistake, of_parser, unknown};
use super::expression::{Names, Writer};
use super::instead;
use super::interpret::{Frame, Handle, Memory, with_table};
use super::loaded::each_loaded_key;
use super::program::{Aggregate, Code, Register, Source};
use super::rows::value_of;
use super::schema::{ColumnAt, Table, Type, name_of, simple_name};
use super::source::{InvariantSource, Parameters};
use super::{FileWorkload, Program};

/// A condition: two numbers that are compared, or those of each group of rows.
#[derive(Clone, Debug)]
pub(super) struct Invariant {
    pub(super) name: String,
    pub(super) sides: [Side; 2],
    /// Whether the first may be larger.
    pub(super) at_least: bool,
}

/// A number, or one for each group of rows: aggregates of a table, and what is computed of them.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub(super) table: Option<usize>,
    /// The columns by which rows form groups.
    pub(super) groups: Vec<Source>,
    /// The columns of a row that `row` computes with.
    pub(super) loads: Vec<(Source, Register)>,
    pub(super) row: Code,
    pub(super) aggregates: Vec<Aggregated>,
    code: Code,
    result: Register,
    text: String,
}

/// An aggregate, and the register of its result.
#[derive(Clone, Debug)]
pub(super) struct Aggregated {
    pub(super) aggregate: Aggregate,
    pub(super) of: Argument,
    to: Register,
}

/// What of a row an aggregate takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Argument {
    Column(Source),
    /// The value in this register, computed of columns.
    Computed(Register),
}

/// Visits the keys of the loaded rows of a table, each once.
pub(super) type LoadedKeys<'a> = &'a dyn Fn(usize, &mut dyn FnMut(KeyWords));

/// The numbers of a side, by the values of its groups. Without groups it is one, of no values.
pub(super) type Numbers = BTreeMap<Vec<i64>, i64>;

/// Returns an invariant of a file.
///
/// # Errors
/// One sentence that names the invariant and the mistake.
pub(super) fn invariant_of(
    of: &InvariantSource,
    tables: &[Table],
    rows: &[u64],
    parameters: &Parameters,
) -> Result<Invariant, String> {
    let at_least = of.at_least.is_some();
    let [first, second] = of.equal.as_ref().or(of.at_least.as_ref()).expect("checked when it was read");
    let side = |text: &str| {
        Side::read(text, tables, rows, parameters).map_err(|error| error.in_part(&format!("invariant '{}'", of.name)))
    };
    let invariant = Invariant { name: of.name.clone(), sides: [side(first)?, side(second)?], at_least };
    invariant.mismatch().map_or(Ok(invariant), Err)
}

impl FileWorkload {
    /// Checks all invariants of the file.
    ///
    /// # Errors
    /// The first one that does not hold, with both sides.
    pub(super) fn check_invariants<S: Inspect>(&self, store: &S) -> Result<(), String> {
        let loaded = |table: usize, visit: &mut dyn FnMut(KeyWords)| each_loaded_key(&self.program, table, visit);
        let Program { tables, invariants, .. } = &self.program;
        invariants.iter().try_for_each(|invariant| invariant.check(store, tables, &self.handles, &loaded))
    }
}

impl Invariant {
    /// Whether the condition reads this table.
    pub(super) fn reads(&self, table: usize) -> bool {
        self.sides.iter().any(|side| side.table == Some(table))
    }

    /// Returns a sentence if the sides can't be compared.
    pub(super) fn mismatch(&self) -> Option<String> {
        let [first, second] = self.sides.each_ref().map(|side| side.groups.len());
        (first != second).then(|| {
            format!(
                "invariant '{}': one side has {} in its group by, and the other {second}; valid: as many",
                self.name,
                counted(first, "column")
            )
        })
    }

    /// Checks the condition. Returns a sentence about how it fails.
    pub(super) fn check<S: Inspect>(
        &self,
        store: &S,
        tables: &[Table],
        handles: &[Handle],
        loaded: LoadedKeys<'_>,
    ) -> Result<(), String> {
        self.judge(self.sides.each_ref().map(|side| side.numbers(store, tables, handles, loaded)))
    }

    /// Judges the numbers of the two sides. A group that one side lacks counts as 0 there. Returns
    /// a sentence about how the condition fails.
    pub(super) fn judge(&self, [first, second]: [Numbers; 2]) -> Result<(), String> {
        for group in first.keys().chain(second.keys()) {
            let [a, b] = [&first, &second].map(|side| side.get(group).copied().unwrap_or(0));
            if a == b || self.at_least && a > b {
                continue;
            }
            let relation = if self.at_least { "is less than" } else { "differs from" };
            let [left, right] = &self.sides;
            let shown: Vec<String> = group.iter().map(i64::to_string).collect();
            let of = if group.is_empty() { String::new() } else { format!(", group ({})", shown.join(", ")) };
            return Err(format!("invariant '{}'{of}: {a} ({}) {relation} {b} ({})", self.name, left.text, right.text));
        }
        Ok(())
    }
}

impl Side {
    /// Compiles one side of a condition.
    pub(super) fn read(text: &str, tables: &[Table], rows: &[u64], parameters: &Parameters) -> Read<Side> {
        let at = Place { line: 1, column: 1 };
        super::compile::short(text, at)?;
        let mut side = Side {
            table: None,
            groups: Vec::new(),
            loads: Vec::new(),
            row: Code::default(),
            aggregates: Vec::new(),
            code: Code::default(),
            result: 0,
            text: text.trim().into(),
        };
        let mut writer = Writer::new(tables, rows, parameters);
        if !text.trim_start().to_lowercase().starts_with("select") {
            let expression = expression_of(text, at)?;
            if instead::has_query(&expression) {
                return mistake(at, instead::QUERY_IN_INVARIANT);
            }
            side.result = writer.number(&expression, &mut Names::None)?;
            side.code = writer.code.prepare();
            return Ok(side);
        }
        let parsed = Parser::new(&PostgreSqlDialect {}).with_recursion_limit(50).try_with_sql(text);
        let statements =
            parsed.and_then(|mut parser| parser.parse_statements()).map_err(|error| of_parser(at, &error))?;
        let [Statement::Query(query)] = &statements[..] else {
            return mistake(at, "a side of an invariant is one select, or an expression");
        };
        let (table, groups, expression) = parts_of(query, tables, at)?;
        side.table = Some(table);
        for ident in groups {
            side.groups.push(column_of(&tables[table], ident, at.of(ident.span))?);
        }
        let mut of_row = Writer::new(tables, rows, parameters);
        let mut replaced = expression.clone();
        side.replace_aggregates(&mut replaced, &tables[table], at, &mut writer, &mut of_row)?;
        let registers: Vec<Register> = side.aggregates.iter().map(|aggregated| aggregated.to).collect();
        let mut lookup = |ident: &Ident| match ident.value.strip_prefix('#').and_then(|n| n.parse::<usize>().ok()) {
            Some(number) if number < registers.len() => Ok((registers[number], Type::Number(8))),
            _ => mistake(at, format!("'{}' stands outside of an aggregate", ident.value)),
        };
        side.result = writer.number(&replaced, &mut Names::Columns(&mut lookup))?;
        (side.code, side.row) = (writer.code.prepare(), of_row.code.prepare());
        Ok(side)
    }

    /// Makes each aggregate a column with a name that no schema can have, and notes what it stands
    /// for.
    fn replace_aggregates(
        &mut self,
        expression: &mut Expr,
        table: &Table,
        at: Place,
        writer: &mut Writer<'_>,
        of_row: &mut Writer<'_>,
    ) -> Read<()> {
        let place = at.of(expression.span());
        match expression {
            Expr::Subquery(_) => mistake(place, instead::QUERY_IN_INVARIANT),
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => {
                self.replace_aggregates(inner, table, at, writer, of_row)
            }
            Expr::BinaryOp { left, right, .. } => {
                self.replace_aggregates(left, table, at, writer, of_row)?;
                self.replace_aggregates(right, table, at, writer, of_row)
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let aggregate = match name.as_str() {
                    "count" | "sum" => Aggregate::Sum,
                    "min" => Aggregate::Least,
                    "max" => Aggregate::Greatest,
                    "avg" => return mistake(place, instead::AVERAGE_IN_INVARIANT),
                    _ => return Ok(()),
                };
                let arguments = match &function.args {
                    FunctionArguments::List(list) => &list.args[..],
                    _ => &[],
                };
                let of = match (name.as_str(), arguments) {
                    ("count", [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)]) => Argument::Column(Source::One),
                    ("sum" | "min" | "max", [FunctionArg::Unnamed(FunctionArgExpr::Expr(argument))]) => {
                        self.argument(argument, table, place, of_row)?
                    }
                    _ => return mistake(place, "valid: count(*), sum(VALUE), min(VALUE), max(VALUE)"),
                };
                let to = writer.registers(1)?;
                self.aggregates.push(Aggregated { aggregate, of, to });
                *expression = Expr::Identifier(Ident::new(format!("#{}", self.aggregates.len() - 1)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Compiles the argument of an aggregate.
    fn argument(&mut self, argument: &Expr, table: &Table, at: Place, of_row: &mut Writer<'_>) -> Read<Argument> {
        if let Expr::Identifier(ident) = argument {
            return Ok(Argument::Column(column_of(table, ident, at)?));
        }
        let mut idents = Vec::new();
        columns_in(argument, &mut idents);
        let mut known = Vec::new();
        for ident in idents {
            let (source, register) = (column_of(table, ident, at)?, of_row.registers(1)?);
            self.loads.push((source, register));
            known.push((name_of(ident), register));
        }
        let mut lookup = |ident: &Ident| {
            let name = name_of(ident);
            let (_, register) = known.iter().find(|(known, _)| *known == name).expect("found above");
            Ok((*register, Type::Number(8)))
        };
        Ok(Argument::Computed(of_row.number(argument, &mut Names::Columns(&mut lookup))?))
    }

    /// Returns the side's numbers.
    fn numbers<S: Inspect>(&self, store: &S, tables: &[Table], handles: &[Handle], loaded: LoadedKeys<'_>) -> Numbers {
        let mut memory = Memory::new(0, 1);
        let mut sums: BTreeMap<Vec<i64>, Vec<i64>> = BTreeMap::new();
        if self.groups.is_empty() {
            sums.insert(Vec::new(), Vec::new());
        }
        if let Some(table) = self.table {
            let parts = &tables[table].shape.parts;
            let mut group = Vec::new();
            let mut visit = |key: &KeyWords, row: &[u64]| {
                let value = |source: &Source| value_of(*source, row, &|| *key, parts);
                group.clear();
                group.extend(self.groups.iter().map(value));
                if !self.row.steps.is_empty() {
                    let load = |frame: &mut Frame| {
                        self.loads.iter().for_each(|(source, to)| frame[*to] = value(source));
                    };
                    memory.evaluate(&self.row, 0, load);
                }
                let of_row = self.aggregates.iter().map(|of| match of.of {
                    Argument::Column(source) => value(&source),
                    Argument::Computed(register) => memory.frame[register],
                });
                match sums.get_mut(&group[..]) {
                    Some(sums) if !sums.is_empty() => {
                        for ((of, sum), value) in self.aggregates.iter().zip(sums).zip(of_row) {
                            *sum = of.aggregate.with(*sum, value);
                        }
                    }
                    _ => drop(sums.insert(group.clone(), of_row.collect())),
                }
            };
            with_table!(handles[table], of => {
                let listed = store.peek_all(&of, |key, row| visit(&key.to_words(), row));
                if !listed {
                    // No row is inserted or deleted: the keys are those that were loaded.
                    let mut row = Vec::new();
                    loaded(table, &mut |key| {
                        if store.peek(&of, Key::from_words(key), &mut row).is_some() {
                            visit(&key, &row);
                        }
                    });
                }
            });
        }
        self.computed(sums)
    }

    /// Returns what is computed of the aggregates of each group. Without groups an empty list of
    /// aggregates stands for no row.
    pub(super) fn computed(&self, sums: impl IntoIterator<Item = (Vec<i64>, Vec<i64>)>) -> Numbers {
        let mut memory = Memory::new(0, 1);
        let number = |(group, sums): (Vec<i64>, Vec<i64>)| {
            memory.evaluate(&self.code, 0, |frame| {
                self.aggregates.iter().zip(sums).for_each(|(of, sum)| frame[of.to] = sum);
            });
            (group, memory.frame[self.result])
        };
        sums.into_iter().map(number).collect()
    }
}

/// Returns where the values of a column are.
fn column_of(table: &Table, ident: &Ident, at: Place) -> Read<Source> {
    let column = &table.columns[table.column(at, &name_of(ident))?];
    match (column.of, column.at) {
        (Type::Text(_), _) => mistake(at, format!("{} is a text", column.name)),
        (_, ColumnAt::Key(part)) => Ok(Source::Key(part as u8)),
        (_, ColumnAt::Row { word, .. }) => Ok(Source::Row(word as u16)),
    }
}

/// Returns the parts of a select: its table, the columns of its groups, and its result.
fn parts_of<'a>(query: &'a Query, tables: &[Table], at: Place) -> Read<(usize, Vec<&'a Ident>, &'a Expr)> {
    let SetExpr::Select(select) = &*query.body else {
        return mistake(at, "a side of an invariant is one select, or an expression");
    };
    let [from] = &select.from[..] else {
        return mistake(at, "the select of an invariant reads one table");
    };
    let TableFactor::Table { name, alias, .. } = &from.relation else {
        return mistake(at, instead::QUERY_IN_INVARIANT);
    };
    if !from.joins.is_empty() {
        return mistake(at, "the select of an invariant reads one table; joins are not possible");
    }
    let (name, place) = simple_name(at, name)?;
    if alias.is_some() {
        return mistake(place, instead::no_alias(&name));
    }
    let has_more = query.order_by.is_some() || query.limit_clause.is_some() || select.distinct.is_some();
    if select.selection.is_some() || select.having.is_some() || has_more {
        return mistake(
            at,
            "the select of an invariant reads a whole table: select AGGREGATES from TABLE; valid in the place of where: \
             sum(case when CONDITION then VALUE else 0 end)",
        );
    }
    let groups = match &select.group_by {
        GroupByExpr::Expressions(expressions, modifiers) if modifiers.is_empty() => &expressions[..],
        _ => return mistake(at, "the groups of an invariant are columns: group by COLUMN, ..."),
    };
    let [grouped @ .., SelectItem::UnnamedExpr(expression)] = &select.projection[..] else {
        return mistake(at, "the select of an invariant ends with its result, which has no name");
    };
    let mut columns = Vec::new();
    for item in grouped {
        let SelectItem::UnnamedExpr(Expr::Identifier(ident)) = item else {
            return mistake(at, "the select of an invariant has columns of its group by, and then one result");
        };
        columns.push(ident);
    }
    let is_group =
        |(column, group): (&&Ident, &Expr)| matches!(group, Expr::Identifier(of) if name_of(of) == name_of(column));
    if columns.len() != groups.len() || !columns.iter().zip(groups).all(is_group) {
        return mistake(
            at,
            "before its result the select of an invariant has the columns of its group by, and no other; \
             valid: select A, B, sum(C) from TABLE group by A, B",
        );
    }
    match tables.iter().position(|table| table.name == name) {
        Some(table) => Ok((table, columns, expression)),
        None => unknown(place, "table", &name, tables.iter().map(|table| table.name.as_str())),
    }
}
