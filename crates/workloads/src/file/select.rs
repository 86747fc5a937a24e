//! Selects: which rows a condition names, and which columns are read.

use contend_model::{Direction, Groups, Span};
use sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, LimitClause, OrderByKind,
    OrderBySort, Query, Select, SelectItem, SetExpr, Spanned,
};

use super::error::{Place, Read, mistake};
use super::expression::{Names, Writer};
use super::instead;
use super::program::{Access, Aggregate, Load, Operator, Register, Source, Step};
use super::rows::AGGREGATES_MAX;
use super::schema::{ColumnAt, Type, name_of};

/// The rows that a condition selects.
pub(super) struct Selected {
    pub(super) key: Vec<Register>,
    pub(super) by_index: Option<usize>,
    pub(super) low: Option<Register>,
    pub(super) high: Option<Register>,
    /// Whether it is one row: the whole primary key is given.
    pub(super) is_row: bool,
}

/// The terms of a condition: columns that equal a value, and bounds of columns, both inclusive.
#[derive(Default)]
struct Terms {
    equal: Vec<(usize, Register)>,
    bounds: Vec<(usize, Option<Register>, Option<Register>)>,
}

impl Writer<'_> {
    pub(super) fn step_of_select(&self, access: u16) -> Step {
        let of = &self.code.accesses[access as usize];
        let is_row = of.by_index.is_none() && of.key.len() == self.tables[of.table as usize].key.len();
        match (is_row && of.aggregates.is_empty(), of.reads) {
            (true, true) => Step::Read { access },
            (true, false) => Step::Modify { access, end: 0 },
            _ => Step::Scan { access },
        }
    }

    /// Compiles a select. Returns the number of its access.
    pub(super) fn select(&mut self, query: &Query, variables: Option<&str>, loops: bool) -> Read<u16> {
        let at = self.at;
        let SetExpr::Select(select) = &*query.body else {
            return mistake(at, "a select is 'select ... from TABLE where ...', without union and values");
        };
        let has_group = !matches!(&select.group_by, sqlparser::ast::GroupByExpr::Expressions(all, _) if all.is_empty());
        if select.distinct.is_some()
            || has_group
            || select.having.is_some()
            || query.with.is_some()
            || query.fetch.is_some()
        {
            return mistake(at, "a select has no distinct, group by, having, with or fetch");
        }
        let table = self.only_table(&select.from)?;
        let selected = self.selected(table, select.selection.as_ref())?;
        let mut access = self.access(table, &selected);
        let for_update = match &query.locks[..] {
            [] => false,
            [lock] if lock.lock_type.to_string() == "UPDATE" && lock.nonblock.is_none() => true,
            _ => return mistake(at, "valid locks of a select: for update"),
        };
        if for_update && (!selected.is_row || loops) {
            return mistake(at, "for update is possible where the whole primary key is given");
        }
        access.reads = !for_update;
        self.columns(select, table, variables, &mut access)?;
        if access.aggregates.is_empty() != (access.loads.len() != access.aggregates.len()) && !access.loads.is_empty() {
            return mistake(at, "a select has aggregates alone or columns alone");
        }
        if !access.aggregates.is_empty() && loops {
            return mistake(at, "\\foreach reads rows, and an aggregate makes one row of them");
        }
        self.order_and_limit(query, table, &selected, &mut access)?;
        Ok(self.add(access))
    }

    /// Compiles the columns of a select.
    fn columns(&mut self, select: &Select, table: usize, variables: Option<&str>, access: &mut Access) -> Read<()> {
        let at = self.at;
        let mut groups = Groups::NONE;
        let mut spans = Vec::new();
        for item in &select.projection {
            let (expression, alias) = match item {
                SelectItem::UnnamedExpr(expression) => (expression, None),
                SelectItem::ExprWithAlias { expr, alias } => (expr, Some(name_of(alias))),
                other => {
                    return mistake(at, format!("'{other}' is not possible; valid: columns, count(*), sum, min, max"));
                }
            };
            let place = at.of(expression.span());
            let (column, aggregate, default_name) = self.selected_column(table, expression, place)?;
            let (from, of) = match column {
                None => (Source::One, Type::Number(8)),
                Some(column) => {
                    let column = &self.tables[table].columns[column];
                    match column.at {
                        ColumnAt::Key(part) => (Source::Key(part as u8), column.of),
                        ColumnAt::Row { word, group } => {
                            groups = groups.union(Groups::of(group));
                            spans.push(Span { first: word as u32, count: column.of.words() as u32 });
                            (Source::Row(word as u16), column.of)
                        }
                    }
                }
            };
            let name = alias.unwrap_or(default_name);
            let to = match variables {
                Some(prefix) => self.variable(place, &format!("{prefix}{name}"), of)?.register,
                None => self.registers(of.words())?,
            };
            access.loads.push(Load { from, words: of.words() as u16, to });
            access.aggregates.extend(aggregate);
        }
        if access.aggregates.len() > AGGREGATES_MAX {
            return mistake(at, format!("a select has up to {AGGREGATES_MAX} aggregates"));
        }
        if !access.reads && !access.aggregates.is_empty() {
            return mistake(at, "for update is possible for columns, not for aggregates");
        }
        access.groups = if groups.is_empty() { Groups::FIRST } else { groups };
        access.spans = joined(spans);
        Ok(())
    }

    fn selected_column(
        &self,
        table: usize,
        expression: &Expr,
        place: Place,
    ) -> Read<(Option<usize>, Option<Aggregate>, String)> {
        match expression {
            Expr::Identifier(ident) => {
                let name = name_of(ident);
                Ok((Some(self.tables[table].column(place, &name)?), None, name))
            }
            Expr::Function(function) => {
                let name = function.name.to_string().to_lowercase();
                let aggregate = match name.as_str() {
                    "count" | "sum" => Aggregate::Sum,
                    "min" => Aggregate::Least,
                    "max" => Aggregate::Greatest,
                    "avg" => return mistake(place, instead::AVERAGE),
                    _ => return mistake(place, format!("unknown aggregate '{name}'; valid: count, sum, min, max")),
                };
                match (name.as_str(), argument_of(function)) {
                    ("count", Some(None)) => Ok((None, Some(aggregate), name)),
                    (of, Some(Some(ident))) if of != "count" => {
                        let column = self.tables[table].column(place, &name_of(ident))?;
                        match self.tables[table].columns[column].of {
                            Type::Number(_) => Ok((Some(column), Some(aggregate), name)),
                            Type::Text(_) => mistake(place, format!("{} is a text", name_of(ident))),
                        }
                    }
                    _ => mistake(place, "valid: count(*), sum(COLUMN), min(COLUMN), max(COLUMN)"),
                }
            }
            other => {
                let plain = || format!("'{other}' is not possible; valid: columns, count(*), sum, min, max");
                mistake(place, instead::instead_of(other).unwrap_or_else(plain))
            }
        }
    }

    fn order_and_limit(&mut self, query: &Query, table: usize, selected: &Selected, access: &mut Access) -> Read<()> {
        let at = self.at;
        if let Some(order) = &query.order_by {
            let OrderByKind::Expressions(expressions) = &order.kind else {
                return mistake(at, "rows are ordered by columns of the primary key");
            };
            let mut direction = None;
            let (columns, mut skipped) = (self.columns_of(table, selected.by_index), None);
            for (number, ordered) in expressions.iter().enumerate() {
                let place = at.of(ordered.expr.span());
                let Expr::Identifier(ident) = &ordered.expr else {
                    return mistake(place, "rows are ordered by columns");
                };
                let column = self.tables[table].column(place, &name_of(ident))?;
                // Columns that are fixed may be left out.
                let fixed = selected.key.len();
                let first = *skipped.get_or_insert(if columns.first() == Some(&column) { 0 } else { fixed });
                if columns.get(first + number) != Some(&column) {
                    let valid: Vec<&str> = columns[fixed..]
                        .iter()
                        .map(|&column| self.tables[table].columns[column].name.as_str())
                        .collect();
                    return mistake(
                        place,
                        format!("rows can't be ordered by {}; valid: {}", name_of(ident), valid.join(", ")),
                    );
                }
                let this = match ordered.options.sort {
                    Some(OrderBySort::Desc) => Direction::Backward,
                    _ => Direction::Forward,
                };
                if *direction.get_or_insert(this) != this {
                    return mistake(place, "all columns of an order have the same direction");
                }
            }
            access.direction = direction.unwrap_or(Direction::Forward);
        }
        if let Some(clause) = &query.limit_clause {
            if selected.is_row {
                return mistake(at, "the whole primary key is given, so there is one row at most; valid: no limit");
            }
            let LimitClause::LimitOffset { limit, offset, limit_by } = clause else {
                return mistake(at, "valid: limit ROWS offset ROWS");
            };
            if !limit_by.is_empty() {
                return mistake(at, "valid: limit ROWS offset ROWS");
            }
            access.limit = limit.as_ref().map(|limit| self.number(limit, &mut Names::None)).transpose()?;
            access.offset = offset.as_ref().map(|offset| self.number(&offset.value, &mut Names::None)).transpose()?;
        }
        Ok(())
    }

    /// Returns the columns by which rows are found: those of the primary key, or of an index, which
    /// end with the primary key.
    pub(super) fn columns_of(&self, table: usize, by_index: Option<usize>) -> Vec<usize> {
        let own = &self.tables[table];
        let index = own.indexes.iter().find(|index| Some(index.table) == by_index);
        index.map_or(&[][..], |index| &index.columns).iter().chain(&own.key).copied().collect()
    }

    pub(super) fn access(&self, table: usize, selected: &Selected) -> Access {
        let columns = self.columns_of(table, selected.by_index);
        let first = columns.iter().position(|column| *column == self.tables[table].key[0]);
        Access {
            first: first.and_then(|first| selected.key.get(first).copied()),
            table: table as u16,
            key: selected.key.clone(),
            by_index: selected.by_index.map(|index| index as u16),
            groups: Groups::NONE,
            written: None,
            spans: Vec::new(),
            is_whole: false,
            loads: Vec::new(),
            stores: Vec::new(),
            changes: Vec::new(),
            indexes: Vec::new(),
            low: selected.low,
            high: selected.high,
            limit: None,
            offset: None,
            direction: Direction::Forward,
            aggregates: Vec::new(),
            varying: Vec::new(),
            stored: Vec::new(),
            names_row: false,
            parts: Vec::new(),
            known: false,
            known_first: false,
            reads: false,
            is_endless: false,
            remembers: false,
            line: self.at.line,
        }
    }

    pub(super) fn add(&mut self, access: Access) -> u16 {
        self.code.accesses.push(access);
        (self.code.accesses.len() - 1) as u16
    }

    /// Compiles a condition.
    pub(super) fn selected(&mut self, table: usize, condition: Option<&Expr>) -> Read<Selected> {
        let at = self.at;
        let mut terms = Vec::new();
        condition.into_iter().for_each(|condition| flatten(condition, &mut terms));
        let mut found = Terms::default();
        for term in terms {
            self.term(table, term, &mut found)?;
        }
        let Terms { equal, bounds } = found;
        let value_of = |column: usize| equal.iter().find(|(of, _)| *of == column).map(|(_, register)| *register);
        let prefix_of =
            |columns: &[usize]| -> Vec<Register> { columns.iter().map_while(|&column| value_of(column)).collect() };
        // By the primary key, or by the index that uses most of the condition.
        let own = &self.tables[table];
        let used = |columns: &[usize]| {
            let key = prefix_of(columns);
            let next = columns.get(key.len()).copied();
            let of_next = bounds.iter().filter(|(column, ..)| Some(*column) == next).count();
            (key.len() + of_next == equal.len() + bounds.len()).then_some((key, next))
        };
        let candidates = std::iter::once((None, own.key.clone())).chain(own.indexes.iter().map(|index| {
            let all = index.columns.iter().chain(&own.key).copied().collect();
            (Some(index.table), all)
        }));
        for (by_index, columns) in candidates {
            let Some((key, next)) = used(&columns) else { continue };
            if by_index.is_some() && key.is_empty() {
                continue;
            }
            let mut selected = Selected {
                is_row: by_index.is_none() && key.len() == columns.len(),
                key,
                by_index,
                low: None,
                high: None,
            };
            for (column, low, high) in &bounds {
                if Some(*column) != next {
                    continue;
                }
                if selected.low.is_some() && low.is_some() || selected.high.is_some() && high.is_some() {
                    let name = &self.tables[table].columns[*column].name;
                    return mistake(at, format!("{name} is bounded twice on one side; valid: one bound on each side"));
                }
                selected.low = selected.low.or(*low);
                selected.high = selected.high.or(*high);
            }
            return Ok(selected);
        }
        let names = |columns: &[usize]| -> String {
            columns.iter().map(|&column| own.columns[column].name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let keys = std::iter::once(names(&own.key)).chain(own.indexes.iter().map(|index| names(&index.columns)));
        let keys: Vec<String> = keys.map(|names| format!("({names})")).collect();
        mistake(
            at,
            format!(
                "the condition on {} is no key; valid: the first columns of {} by =, and a range of the next one",
                own.name,
                keys.join(" or of ")
            ),
        )
    }

    /// Compiles a term of a condition.
    fn term(&mut self, table: usize, term: &Expr, found: &mut Terms) -> Read<()> {
        let place = self.at.of(term.span());
        let refuse = || {
            let valid = "COLUMN = VALUE, <, <=, >, >=, between, and";
            let plain = || format!("condition '{term}' is not possible; valid: {valid}");
            mistake(place, instead::instead_of(term).unwrap_or_else(plain))
        };
        match term {
            Expr::Between { expr, negated: false, low, high } => {
                let Expr::Identifier(ident) = &**expr else { return refuse() };
                let column = self.tables[table].column(place, &name_of(ident))?;
                let low = self.number(low, &mut Names::None)?;
                let high = self.number(high, &mut Names::None)?;
                found.bounds.push((column, Some(low), Some(high)));
            }
            Expr::BinaryOp { left, op, right } => {
                let (ident, value, swapped) = match (&**left, &**right) {
                    (Expr::Identifier(ident), value) => (ident, value, false),
                    (value, Expr::Identifier(ident)) => (ident, value, true),
                    _ => return refuse(),
                };
                let column = self.tables[table].column(place, &name_of(ident))?;
                let register = self.number(value, &mut Names::None)?;
                let op = match (op, swapped) {
                    (BinaryOperator::Lt, true) => &BinaryOperator::Gt,
                    (BinaryOperator::LtEq, true) => &BinaryOperator::GtEq,
                    (BinaryOperator::Gt, true) => &BinaryOperator::Lt,
                    (BinaryOperator::GtEq, true) => &BinaryOperator::LtEq,
                    (op, _) => op,
                };
                let one = self.constant(1)?;
                match op {
                    BinaryOperator::Eq => found.equal.push((column, register)),
                    BinaryOperator::LtEq => found.bounds.push((column, None, Some(register))),
                    BinaryOperator::GtEq => found.bounds.push((column, Some(register), None)),
                    BinaryOperator::Lt | BinaryOperator::Gt => {
                        let is_below = *op == BinaryOperator::Lt;
                        // A bound beyond the largest number stays at it.
                        let (inner, edge) =
                            if is_below { (Operator::Greatest, i64::MIN + 1) } else { (Operator::Least, i64::MAX - 1) };
                        let (inside, edge) = (self.registers(1)?, self.constant(edge)?);
                        self.push(Step::Compute { operator: inner, to: inside, a: register, b: edge });
                        let to = self.registers(1)?;
                        let operator = if is_below { Operator::Subtract } else { Operator::Add };
                        self.push(Step::Compute { operator, to, a: inside, b: one });
                        let (low, high) = if is_below { (None, Some(to)) } else { (Some(to), None) };
                        found.bounds.push((column, low, high));
                    }
                    _ => return refuse(),
                }
            }
            _ => return refuse(),
        }
        Ok(())
    }
}

/// Returns the argument of an aggregate: `Some(None)` is `*`.
fn argument_of(function: &Function) -> Option<Option<&Ident>> {
    let FunctionArguments::List(list) = &function.args else { return None };
    match &list.args[..] {
        [FunctionArg::Unnamed(FunctionArgExpr::Wildcard)] => Some(None),
        [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Identifier(ident)))] => Some(Some(ident)),
        _ => None,
    }
}

/// Returns the terms of a conjunction.
fn flatten<'a>(condition: &'a Expr, terms: &mut Vec<&'a Expr>) {
    match condition {
        Expr::Nested(inner) => flatten(inner, terms),
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            flatten(left, terms);
            flatten(right, terms);
        }
        other => terms.push(other),
    }
}

/// Joins spans that follow each other.
fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_by_key(|span| span.first);
    let mut joined: Vec<Span> = Vec::new();
    for span in spans {
        match joined.last_mut() {
            Some(last) if last.first + last.count >= span.first => {
                last.count = (span.first + span.count).max(last.first + last.count) - last.first;
            }
            _ => joined.push(span),
        }
    }
    joined
}
