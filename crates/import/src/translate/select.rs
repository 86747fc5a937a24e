//! Selects.

use sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, LimitClause, LockType, OrderByKind,
    OrderBySort, Query, SelectItem, SetExpr,
};

use super::condition::Chosen;
use super::{Role, Translated, Translation, Verb, marker, parameter_of};
use crate::schema::{Kind, written};

/// The most columns of a select. The workload language counts them among its words of memory.
const COLUMNS_MAX: usize = 40;

impl Translation<'_> {
    pub(super) fn select(&mut self, query: &Query) -> Translated<(Verb, usize, Option<usize>, String)> {
        let SetExpr::Select(select) = &*query.body else { return Err("it is a union, or of values".into()) };
        if query.with.is_some() {
            return Err("it has with".into());
        }
        let table = self.only_table(&select.from)?;
        let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(all, _) if all.is_empty());
        if is_grouped || select.having.is_some() {
            return Err("it has group by or having".into());
        }
        if select.distinct.is_some() {
            self.left_out.push("distinct");
        }
        let chosen = self.chosen(table, select.selection.as_ref())?;
        let columns = self.projection(table, &select.projection)?;
        let mut text = format!("select {columns} from {}{}", written(&self.schema.tables[table].name), chosen.text);
        if !chosen.is_row {
            text += &self.order_and_limit(query, table, &chosen)?;
        }
        let locks = query.locks.iter().any(|lock| matches!(lock.lock_type, LockType::Update));
        if locks && chosen.is_row {
            text += " for update";
        } else if !query.locks.is_empty() {
            self.left_out.push("locks of a select");
        }
        Ok((if chosen.is_row { Verb::Read } else { Verb::Scan }, table, chosen.index, text + ";"))
    }

    /// Returns the columns of a select: those that its expressions name, or its aggregates.
    fn projection(&mut self, table: usize, items: &[SelectItem]) -> Translated<String> {
        let mut columns: Vec<usize> = Vec::new();
        let mut aggregates: Vec<String> = Vec::new();
        for item in items {
            let expression = match item {
                SelectItem::UnnamedExpr(expression) | SelectItem::ExprWithAlias { expr: expression, .. } => expression,
                _ => {
                    columns.extend(0..self.schema.tables[table].columns.len());
                    continue;
                }
            };
            match self.aggregate(table, expression)? {
                Some(aggregate) => aggregates.push(aggregate),
                None => self.columns_in(table, expression, &mut columns)?,
            }
        }
        if !aggregates.is_empty() {
            aggregates.dedup();
            aggregates.truncate(16);
            return Ok(aggregates.join(", "));
        }
        let mut once = Vec::new();
        for column in columns {
            if !once.contains(&column) {
                once.push(column);
            }
        }
        if once.len() > COLUMNS_MAX {
            once.truncate(COLUMNS_MAX);
            self.left_out.push("columns of a select beyond 40");
        }
        if once.is_empty() {
            once.push(self.schema.tables[table].key.first().copied().unwrap_or(0));
        }
        let names: Vec<String> = once.into_iter().map(|column| self.written(table, column)).collect();
        Ok(names.join(", "))
    }

    fn aggregate(&mut self, table: usize, expression: &Expr) -> Translated<Option<String>> {
        let Expr::Function(function) = expression else { return Ok(None) };
        let name = function.name.to_string().to_lowercase();
        if !["count", "sum", "min", "max", "avg"].contains(&name.as_str()) {
            return Ok(None);
        }
        let FunctionArguments::List(list) = &function.args else { return Ok(None) };
        let column = match &list.args[..] {
            [FunctionArg::Unnamed(FunctionArgExpr::Expr(inner))] => {
                let mut columns = Vec::new();
                self.columns_in(table, inner, &mut columns)?;
                columns.first().copied()
            }
            _ => None,
        };
        let is_number = |column: usize| !matches!(self.schema.tables[table].columns[column].kind, Kind::Text(_));
        Ok(Some(match (name.as_str(), column) {
            ("sum" | "avg", Some(column)) if is_number(column) => format!("sum({})", self.written(table, column)),
            ("min" | "max", Some(column)) if is_number(column) => format!("{name}({})", self.written(table, column)),
            _ => "count(*)".into(),
        }))
    }

    fn order_and_limit(&mut self, query: &Query, table: usize, chosen: &Chosen) -> Translated<String> {
        let mut text = String::new();
        if let Some(order) = &query.order_by {
            let OrderByKind::Expressions(expressions) = &order.kind else { return Err("it has order by all".into()) };
            let mut names = Vec::new();
            let mut first = None;
            let mut is_down = None;
            for (number, ordered) in expressions.iter().enumerate() {
                let column = self.column(table, &ordered.expr)?;
                let down = matches!(ordered.options.sort, Some(OrderBySort::Desc));
                let first = *first.get_or_insert(if column == chosen.way.first().copied() { 0 } else { chosen.fixed });
                if column.is_none()
                    || chosen.way.get(first + number).copied() != column
                    || *is_down.get_or_insert(down) != down
                {
                    // The database reads all rows, and sorts them.
                    self.left_out.push("the order by other columns, with its limit");
                    return Ok(String::new());
                }
                names.extend(column.map(|column| self.written(table, column)));
            }
            let direction = if is_down == Some(true) { " desc" } else { "" };
            text += &format!(" order by {}", names.join(&format!("{direction}, ")));
            text += direction;
        }
        let fetched = query.fetch.as_ref().and_then(|fetch| fetch.quantity.as_ref());
        if let Some(parameter) = fetched.and_then(parameter_of) {
            self.roles[parameter] = Role::Count;
            text += &format!(" limit {}", marker(parameter));
        }
        if let Some(LimitClause::LimitOffset { limit, offset, .. }) = &query.limit_clause {
            for (word, expression) in
                [("limit", limit.as_ref()), ("offset", offset.as_ref().map(|offset| &offset.value))]
            {
                if let Some(parameter) = expression.and_then(parameter_of) {
                    self.roles[parameter] = Role::Count;
                    text += &format!(" {word} {}", marker(parameter));
                }
            }
        }
        Ok(text)
    }
}
