//! Updates, inserts and deletes.

use contend_model::counted;
use sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, Delete, Expr, FromTable, Insert, OnConflictAction, OnInsert, SetExpr,
    TableObject, UnaryOperator, Update, Value,
};

use super::{ColumnAt, Role, Translated, Translation, Verb, marker, parameter_of};
use crate::schema::{Kind, last_name, name_of, written};

/// A statement in the file's language, with its table, and the index by which it finds rows.
type Written = (Verb, usize, Option<usize>, String);

impl Translation<'_> {
    pub(super) fn update(&mut self, update: &Update) -> Translated<Written> {
        if update.from.is_some() {
            return Err("it updates from another table".into());
        }
        if update.returning.is_some() {
            self.left_out.push("returning");
        }
        let table = self.only_table(std::slice::from_ref(&update.table))?;
        let chosen = self.chosen(table, update.selection.as_ref())?;
        let sets = self.assignments(table, &update.assignments, &[])?;
        let name = written(&self.schema.tables[table].name);
        let text = format!("update {name} set {}{};", sets.join(", "), chosen.text);
        Ok((Verb::Update, table, chosen.index, text))
    }

    pub(super) fn delete(&mut self, delete: &Delete) -> Translated<Written> {
        if delete.using.is_some() {
            return Err("it deletes by another table".into());
        }
        if delete.returning.is_some() {
            self.left_out.push("returning");
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let table = self.only_table(from)?;
        let chosen = self.chosen(table, delete.selection.as_ref())?;
        let name = written(&self.schema.tables[table].name);
        let text = format!("delete from {name}{};", chosen.text);
        Ok((Verb::Delete, table, chosen.index, text))
    }

    fn assignments(
        &mut self,
        table: usize,
        assignments: &[Assignment],
        excluded: &[(usize, String)],
    ) -> Translated<Vec<String>> {
        let mut sets = Vec::new();
        for assignment in assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return Err("it sets several columns at once".into());
            };
            let column = self.column_named(table, &last_name(name))?;
            if self.schema.tables[table].key.contains(&column) {
                // An update that leaves the key as it is: the row is found by the same key.
                if parameter_of(&assignment.value).is_some() && assignments.len() > 1 {
                    self.left_out.push("a key that is set");
                    continue;
                }
                return Err("it changes the primary key".into());
            }
            let value = self.value(table, column, &assignment.value, excluded)?;
            let set = format!("{} = {value}", self.written(table, column));
            if !sets.contains(&set) {
                sets.push(set);
            }
        }
        if sets.is_empty() {
            return Err("it sets no column outside the key".into());
        }
        Ok(sets)
    }

    /// Returns the value that is stored in a column.
    fn value(&mut self, table: usize, column: usize, value: &Expr, excluded: &[(usize, String)]) -> Translated<String> {
        let at = ColumnAt { table, column };
        // Queries inside are found here.
        if !format!("{value}").to_lowercase().contains("excluded.") {
            self.columns_in(table, value, &mut Vec::new())?;
        }
        if let Kind::Text(bytes) = self.schema.tables[table].columns[column].kind {
            let plain = parameter_of(value).filter(|_| !matches!(value, Expr::BinaryOp { .. }));
            if let Some(parameter) = plain {
                self.roles[parameter] = Role::Text(bytes);
                return Ok(marker(parameter));
            }
            if matches!(value, Expr::Value(value) if value.value == Value::Null) {
                return Ok("null".into());
            }
            self.left_out.push("an expression whose value is a text");
            return Ok(format!("random_text({bytes})"));
        }
        if let Expr::Value(value) = value
            && let Value::Placeholder(_) = value.value
            && let Some(parameter) = parameter_of(&Expr::Value(value.clone()))
        {
            let finds = self.schema.tables[table].finds_rows(column);
            self.roles[parameter] = if finds { Role::Key(at) } else { Role::Stored(at) };
            return Ok(marker(parameter));
        }
        match self.number(at, value, excluded) {
            Some(text) => Ok(text),
            None => {
                self.left_out.push("an expression that the language does not have");
                Ok("1".into())
            }
        }
    }

    /// Returns an expression of numbers, or `None` if the language does not have it.
    fn number(&mut self, at: ColumnAt, value: &Expr, excluded: &[(usize, String)]) -> Option<String> {
        match value {
            Expr::Nested(inner) => Some(format!("({})", self.number(at, inner, excluded)?)),
            Expr::Cast { expr, .. } => self.number(at, expr, excluded),
            Expr::Value(inner) => match &inner.value {
                Value::Placeholder(_) => {
                    let parameter = parameter_of(value)?;
                    self.roles[parameter] = Role::Number(at);
                    Some(marker(parameter))
                }
                Value::Null => Some("null".into()),
                _ => None,
            },
            Expr::Identifier(ident) if is_now(&ident.value) => Some("current_timestamp".into()),
            Expr::Function(function) if is_now(&function.name.to_string()) => Some("current_timestamp".into()),
            Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("nextval") => {
                Some("unique()".into())
            }
            Expr::CompoundIdentifier(parts) if parts.len() == 2 && name_of(&parts[0]) == "excluded" => {
                let column = self.column_named(at.table, &name_of(&parts[1])).ok()?;
                excluded.iter().find(|(other, _)| *other == column).map(|(_, value)| value.clone())
            }
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) => {
                let column = self.column(at.table, value).ok()??;
                let is_text = matches!(self.schema.tables[at.table].columns[column].kind, Kind::Text(_));
                (!is_text).then(|| self.written(at.table, column))
            }
            Expr::UnaryOp { op: UnaryOperator::Minus, expr } => Some(format!("-{}", self.number(at, expr, excluded)?)),
            Expr::BinaryOp { left, op, right } => {
                use BinaryOperator::{Minus, Multiply, Plus};
                if !matches!(op, Plus | Minus | Multiply) {
                    return None;
                }
                Some(format!("{} {op} {}", self.number(at, left, excluded)?, self.number(at, right, excluded)?))
            }
            _ => None,
        }
    }

    pub(super) fn insert(&mut self, insert: &Insert) -> Translated<Written> {
        let TableObject::TableName(name) = &insert.table else { return Err("it inserts into no table".into()) };
        let table = self.table(&last_name(name))?;
        if insert.returning.is_some() {
            self.left_out.push("returning");
        }
        let row: &[Expr] = match insert.source.as_deref().map(|source| &*source.body) {
            Some(SetExpr::Values(values)) => match &values.rows[..] {
                [row] => row,
                _ => return Err("it has no single row of values".into()),
            },
            None => &[],
            _ => return Err("it inserts the rows of a select".into()),
        };
        let of = &self.schema.tables[table];
        let named: Vec<usize> = if insert.columns.is_empty() {
            (0..row.len().min(of.columns.len())).collect()
        } else {
            let columns = insert.columns.iter().map(|column| self.column_named(table, &last_name(column)));
            columns.collect::<Translated<_>>()?
        };
        if named.len() != row.len() {
            return Err(format!("{} for {}", counted(row.len(), "value"), counted(named.len(), "column")));
        }
        let mut given: Vec<(usize, String)> = Vec::new();
        for (&column, value) in named.iter().zip(row) {
            if value.to_string().eq_ignore_ascii_case("default") {
                continue;
            }
            given.push((column, self.value(table, column, value, &[])?));
        }
        // The database numbers a key that is not given.
        for &column in &of.key {
            if !given.iter().any(|(other, _)| *other == column) {
                given.push((column, "unique()".into()));
            }
        }
        let columns: Vec<String> = given.iter().map(|&(column, _)| self.written(table, column)).collect();
        let values: Vec<&str> = given.iter().map(|(_, value)| value.as_str()).collect();
        let text = format!("insert into {} ({}) values ({})", written(&of.name), columns.join(", "), values.join(", "));
        let text = match &insert.on {
            None => format!("{text};"),
            Some(OnInsert::OnConflict(on)) => {
                let first = format!("{text} on conflict do nothing;");
                match &on.action {
                    OnConflictAction::DoNothing => first,
                    OnConflictAction::DoUpdate(change) => {
                        let sets = self.assignments(table, &change.assignments, &given)?;
                        let key = of.key.iter().map(|&column| {
                            let value =
                                given.iter().find(|(other, _)| *other == column).map(|(_, value)| value.as_str());
                            format!("{} = {}", self.written(table, column), value.unwrap_or("0"))
                        });
                        let key: Vec<String> = key.collect();
                        format!(
                            "{first}\nupdate {} set {} where {};",
                            written(&of.name),
                            sets.join(", "),
                            key.join(" and ")
                        )
                    }
                }
            }
            Some(_) => return Err("it has another clause behind its values".into()),
        };
        Ok((Verb::Insert, table, None, text))
    }
}

/// Whether a name is the time of day.
fn is_now(name: &str) -> bool {
    const NAMES: [&str; 5] = ["current_timestamp", "now", "localtimestamp", "clock_timestamp", "statement_timestamp"];
    NAMES.contains(&name.to_lowercase().as_str())
}
