//! Updates, inserts and deletes.

use contend_model::{Groups, counted};
use sqlparser::ast::{
    AssignmentTarget, BinaryOperator, Delete, Expr, FromTable, FunctionArg, FunctionArgExpr, FunctionArguments, Ident,
    Insert, OnConflictAction, OnInsert, SetExpr, Spanned, TableObject, Update, Value,
};

use super::error::{Read, mistake};
use super::expression::{Names, Writer};
use super::program::{Access, Change, FOUND, IndexChange, Load, Operator, Register, Source, Step, Store};
use super::schema::{ColumnAt, NUMBER, Type, name_of, simple_name};
use super::select::Selected;

impl Writer<'_> {
    pub(super) fn update(&mut self, update: &Update) -> Read<()> {
        let at = self.at;
        if update.from.is_some() || update.returning.is_some() {
            return mistake(at, "an update has no from and no returning");
        }
        if update.limit.is_some() || !update.order_by.is_empty() {
            return mistake(at, "an update has no limit and no order by: it changes all rows of its condition");
        }
        let table = self.only_table(std::slice::from_ref(&update.table))?;
        let assigned = self.assigned(update, table)?;
        self.each_row(table, update.selection.as_ref(), |writer, row| writer.update_row(table, row, &assigned))
    }

    /// Compiles a change of the rows that a condition selects: of one row, or of each row of a
    /// range. A range is a loop over the keys of its rows. If the script asks for `:found`, it is
    /// the number of changed rows behind the loop.
    fn each_row(
        &mut self,
        table: usize,
        condition: Option<&Expr>,
        change: impl FnOnce(&mut Self, &Selected) -> Read<()>,
    ) -> Read<()> {
        let mut selected = self.selected(table, condition)?;
        if selected.is_row {
            return change(self, &selected);
        }
        if self.reads_found {
            // The condition and the values mean that of the statement before.
            let before = self.registers(1)?;
            self.push(Step::Copy { to: before, from: FOUND, words: 1 });
            let Selected { key, low, high, .. } = &mut selected;
            let taken = key.iter_mut().chain(low).chain(high).filter(|register| **register == FOUND);
            taken.for_each(|register| *register = before);
            self.found = before;
        }
        let mut range = self.access(table, &selected);
        (range.reads, range.is_endless, range.groups) = (true, true, Groups::FIRST);
        let columns = self.columns_of(table, selected.by_index);
        let mut key = Vec::new();
        for (part, column) in self.tables[table].key.iter().enumerate() {
            // A column that the condition gives by `=` needs no register of its own.
            let given = columns.iter().position(|other| other == column).and_then(|at| selected.key.get(at));
            key.push(match given {
                Some(&register) => register,
                None => {
                    let to = self.registers(1)?;
                    range.loads.push(Load { from: Source::Key(part as u8), words: 1, to });
                    to
                }
            });
        }
        let row = Selected { key, by_index: None, low: None, high: None, is_row: true };
        let (none, changed) = (self.constant(0)?, self.registers(1)?);
        let access = self.add(range);
        // Rows are counted if the script asks: a step that reads `:found` is in the way of others.
        let counts = self.reads_found;
        if counts {
            self.push(Step::Copy { to: changed, from: none, words: 1 });
        }
        let each = self.code.steps.len();
        self.push(Step::Each { access, end: 0 });
        let start = self.here();
        change(self, &row)?;
        if counts {
            self.push(Step::Compute { operator: Operator::Add, to: changed, a: changed, b: FOUND });
        }
        self.push(Step::Next { access, start });
        self.aim(each);
        if counts {
            self.push(Step::Copy { to: FOUND, from: changed, words: 1 });
        }
        self.found = FOUND;
        Ok(())
    }

    /// Compiles an update of one row.
    fn update_row(&mut self, table: usize, row: &Selected, assigned: &[(usize, &Expr)]) -> Read<()> {
        let mut access = self.access(table, row);
        let is_indexed = |column: usize| self.tables[table].indexes.iter().any(|index| index.columns.contains(&column));
        let group_of = |column: usize| match self.tables[table].columns[column].at {
            ColumnAt::Row { group, .. } => group,
            ColumnAt::Key(_) => 0,
        };
        access.groups = assigned.iter().map(|(column, _)| group_of(*column) as usize).collect();
        let is_blind = assigned.iter().all(|(_, value)| !has_column(value));
        let of_groups = self.tables[table].columns.iter().filter(|column| match column.at {
            ColumnAt::Row { group, .. } => access.groups.contains(Groups::of(group)),
            ColumnAt::Key(_) => false,
        });
        let is_whole = is_blind && of_groups.count() == assigned.len();
        let any_indexed = assigned.iter().any(|(column, _)| is_indexed(*column));
        if is_whole && !any_indexed {
            for (column, value) in assigned {
                let store = self.store(table, *column, value, &mut Names::None)?;
                access.stores.push(store);
            }
            let access = self.add(access);
            self.push(Step::Write { access });
            return Ok(());
        }
        let is_number = |column: usize| matches!(self.tables[table].columns[column].of, Type::Number(_));
        let changes: Option<Vec<_>> = assigned
            .iter()
            .map(|(column, value)| {
                let name = &self.tables[table].columns[*column].name;
                change_of(name, value).filter(|_| is_number(*column))
            })
            .collect();
        if let (Some(changes), false) = (changes, any_indexed) {
            for ((column, _), (change, value)) in assigned.iter().zip(changes) {
                let register = self.number(value, &mut Names::None)?;
                let ColumnAt::Row { word, .. } = self.tables[table].columns[*column].at else { continue };
                access.changes.push((change, word as u16, register));
            }
            let access = self.add(access);
            self.push(Step::Update { access });
            return Ok(());
        }
        self.modify(table, access, assigned)
    }

    /// Returns the columns that an update sets, with their values.
    fn assigned<'u>(&self, update: &'u Update, table: usize) -> Read<Vec<(usize, &'u Expr)>> {
        let at = self.at;
        let mut assigned: Vec<(usize, &'u Expr)> = Vec::new();
        for assignment in &update.assignments {
            let AssignmentTarget::ColumnName(name) = &assignment.target else {
                return mistake(at, "columns are set one by one: set a = 1, b = 2");
            };
            let (name, place) = simple_name(at, name)?;
            let column = self.tables[table].column(place, &name)?;
            if matches!(self.tables[table].columns[column].at, ColumnAt::Key(_)) {
                return mistake(
                    place,
                    format!("{name} is of the primary key, and can't be changed: delete and insert"),
                );
            }
            if assigned.iter().any(|(other, _)| *other == column) {
                return mistake(place, format!("{name} is set twice"));
            }
            assigned.push((column, &assignment.value));
        }
        Ok(assigned)
    }

    /// Compiles an update that reads the row. First come the steps that need no column, then the
    /// step that reads the row, and the steps that do.
    fn modify(&mut self, table: usize, mut access: Access, assigned: &[(usize, &Expr)]) -> Read<()> {
        let tables = self.tables;
        let of = &tables[table];
        let step = self.code.steps.len();
        let number = self.add(access.clone());
        self.push(Step::Modify { access: number, end: 0 });
        let mut loads: Vec<(usize, Load)> = Vec::new();
        let mut groups = access.groups;
        for (column, value) in assigned {
            let at = self.at;
            let mut pending: Vec<(usize, Load)> = std::mem::take(&mut loads);
            let mut pending_groups = groups;
            let target = of.columns[*column].of;
            // The columns on the right-hand side are found before the expression is compiled.
            let mut idents = Vec::new();
            columns_in(value, &mut idents);
            let mut known: Vec<(String, Register, Type)> = Vec::new();
            for ident in idents {
                let place = at.of(ident.span);
                let column = of.column(place, &name_of(ident))?;
                let register = self.load_of(table, column, &access, &mut pending, &mut pending_groups)?;
                known.push((name_of(ident), register, of.columns[column].of));
            }
            (loads, groups) = (pending, pending_groups);
            let mut lookup = |ident: &Ident| -> Read<(Register, Type)> {
                let name = name_of(ident);
                let (_, register, of) = known.iter().find(|(known, ..)| *known == name).expect("found above");
                Ok((*register, *of))
            };
            let store = match (target, value) {
                (Type::Text(bytes), Expr::Identifier(ident)) if has_column(value) => {
                    let (from, of_source) = lookup(ident)?;
                    let ColumnAt::Row { word, .. } = of.columns[*column].at else { continue };
                    let Type::Text(_) = of_source else {
                        return mistake(at, format!("{} is no text", name_of(ident)));
                    };
                    Store { word: word as u16, from, text: Some(bytes as u16), words: of_source.words() as u16 }
                }
                _ => self.store(table, *column, value, &mut Names::Columns(&mut lookup))?,
            };
            access.stores.push(store);
        }
        self.moved_entries(table, assigned, &mut access, &mut loads, &mut groups)?;
        access.loads = loads.into_iter().map(|(_, load)| load).collect();
        access.groups = groups;
        self.code.accesses[number as usize] = access;
        self.aim(step);
        Ok(())
    }

    /// Compiles the changes of the indexes whose columns an update sets: keys before and after.
    fn moved_entries(
        &mut self,
        table: usize,
        assigned: &[(usize, &Expr)],
        access: &mut Access,
        loads: &mut Vec<(usize, Load)>,
        groups: &mut Groups,
    ) -> Read<()> {
        let of = &self.tables[table];
        for index in &of.indexes {
            if !index.columns.iter().any(|column| assigned.iter().any(|(assigned, _)| assigned == column)) {
                continue;
            }
            let mut old = Vec::new();
            let mut new = Vec::new();
            for column in &index.columns {
                let before = self.load_of(table, *column, access, loads, groups)?;
                old.push(before);
                let stored = assigned.iter().position(|(assigned, _)| assigned == column);
                new.push(stored.map_or(before, |position| access.stores[position].from));
            }
            old.extend(&access.key);
            new.extend(&access.key);
            access.indexes.push(IndexChange { table: index.table as u16, old: Some(old), new: Some(new) });
        }
        Ok(())
    }

    /// Returns the register to which a column is read.
    fn load_of(
        &mut self,
        table: usize,
        column: usize,
        access: &Access,
        loads: &mut Vec<(usize, Load)>,
        groups: &mut Groups,
    ) -> Read<Register> {
        if let Some((_, load)) = loads.iter().find(|(other, _)| *other == column) {
            return Ok(load.to);
        }
        let of = &self.tables[table].columns[column];
        match of.at {
            ColumnAt::Key(part) => Ok(access.key[part]),
            ColumnAt::Row { word, group } => {
                let words = of.of.words();
                *groups = groups.union(Groups::of(group));
                let to = self.registers(words)?;
                loads.push((column, Load { from: Source::Row(word as u16), words: words as u16, to }));
                Ok(to)
            }
        }
    }

    /// Compiles a value that is stored in a column.
    fn store(&mut self, table: usize, column: usize, value: &Expr, names: &mut Names<'_>) -> Read<Store> {
        let of = &self.tables[table].columns[column];
        let place = self.at.of(value.span());
        let word = match of.at {
            ColumnAt::Row { word, .. } => word as u16,
            ColumnAt::Key(_) => 0,
        };
        match of.of {
            Type::Number(_) if self.is_text(value) && !is_null(value) => {
                mistake(place, format!("{} is a number, and '{value}' a text", of.name))
            }
            Type::Number(_) if is_null(value) => Ok(Store { word, from: self.constant(0)?, text: None, words: 1 }),
            Type::Number(_) if is_now(value) => Ok(Store { word, from: self.constant(0)?, text: None, words: 1 }),
            Type::Number(_) => Ok(Store { word, from: self.value(of, value, names)?, text: None, words: 1 }),
            Type::Text(bytes) => {
                let from = self.value(of, value, names)?;
                Ok(Store { word, from, text: Some(bytes as u16), words: of.of.words() as u16 })
            }
        }
    }

    pub(super) fn insert(&mut self, insert: &Insert) -> Read<()> {
        let at = self.at;
        let TableObject::TableName(name) = &insert.table else {
            return mistake(at, "rows are inserted into a table, by its name");
        };
        let (name, place) = simple_name(at, name)?;
        let table = self.table(&name, place)?;
        let or_nothing = match &insert.on {
            None => false,
            Some(OnInsert::OnConflict(on)) if matches!(on.action, OnConflictAction::DoNothing) => true,
            Some(_) => return mistake(at, "valid behind values: on conflict do nothing"),
        };
        if insert.returning.is_some() {
            return mistake(at, "an insert has no returning");
        }
        let values = insert.source.as_deref().map(|source| &*source.body);
        let Some(SetExpr::Values(values)) = values else {
            return mistake(at, "an insert has values");
        };
        let [row] = &values.rows[..] else {
            return mistake(at, "an insert has one row of values; valid: several inserts");
        };
        let row: &[Expr] = row;
        let given = self.given(insert, row, table)?;
        let selected = Selected { key: Vec::new(), by_index: None, low: None, high: None, is_row: true };
        let mut access = self.access(table, &selected);
        access.groups = Groups::ALL;
        let mut at_register = vec![0; given.len()];
        for (column, value) in given.iter().enumerate() {
            let of = &self.tables[table].columns[column];
            let store = match value {
                Some(value) => self.store(table, column, value, &mut Names::None)?,
                None if of.name == NUMBER => {
                    let to = self.registers(1)?;
                    self.push(Step::Unique { to });
                    Store { word: 0, from: to, text: None, words: 1 }
                }
                None if matches!(of.at, ColumnAt::Key(_)) => {
                    return mistake(at, format!("column {} of the primary key has no value", of.name));
                }
                None => {
                    // Columns without a value are 0, or empty.
                    let ColumnAt::Row { word, .. } = of.at else { continue };
                    let (word, words) = (word as u16, of.of.words());
                    match of.of {
                        Type::Number(_) => Store { word, from: self.constant(0)?, text: None, words: 1 },
                        Type::Text(bytes) => {
                            Store { word, from: self.registers(words)?, text: Some(bytes as u16), words: words as u16 }
                        }
                    }
                }
            };
            at_register[column] = store.from;
            if matches!(of.at, ColumnAt::Row { .. }) {
                access.stores.push(store);
            }
        }
        let of = &self.tables[table];
        access.key = of.key.iter().map(|&column| at_register[column]).collect();
        access.first = access.key.first().copied();
        for index in &of.indexes {
            let columns = index.columns.iter().chain(&of.key);
            let new = columns.map(|&column| at_register[column]).collect();
            access.indexes.push(IndexChange { table: index.table as u16, old: None, new: Some(new) });
        }
        let access = self.add(access);
        self.push(Step::Insert { access, or_nothing });
        Ok(())
    }

    /// Returns the value that an insert gives to each column.
    fn given<'u>(&self, insert: &Insert, row: &'u [Expr], table: usize) -> Read<Vec<Option<&'u Expr>>> {
        let at = self.at;
        let name = &self.tables[table].name;
        let count = self.tables[table].columns.len();
        let named = self.tables[table].columns.iter().filter(|column| column.name != NUMBER).count();
        let mut given: Vec<Option<&'u Expr>> = vec![None; count];
        if insert.columns.is_empty() {
            if row.len() != named {
                let names: Vec<&str> = self.tables[table].columns.iter().map(|column| column.name.as_str()).collect();
                return mistake(
                    at,
                    format!(
                        "{} for {} of {name}: {}",
                        counted(row.len(), "value"),
                        counted(named, "column"),
                        names.join(", ")
                    ),
                );
            }
            given.iter_mut().zip(row).for_each(|(given, value)| *given = Some(value));
        } else {
            if row.len() != insert.columns.len() {
                return mistake(
                    at,
                    format!("{} for {}", counted(row.len(), "value"), counted(insert.columns.len(), "column")),
                );
            }
            for (column, value) in insert.columns.iter().zip(row) {
                let (column, place) = simple_name(at, column)?;
                let position = self.tables[table].column(place, &column)?;
                if given[position].replace(value).is_some() {
                    return mistake(place, format!("{column} is given twice"));
                }
            }
        }
        Ok(given)
    }

    pub(super) fn delete(&mut self, delete: &Delete) -> Read<()> {
        let at = self.at;
        if delete.returning.is_some() || delete.using.is_some() || delete.limit.is_some() || !delete.order_by.is_empty()
        {
            return mistake(at, "a delete has no returning, using, limit or order by");
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let table = self.only_table(from)?;
        self.each_row(table, delete.selection.as_ref(), |writer, row| writer.delete_row(table, row))
    }

    /// Compiles the deletion of one row.
    fn delete_row(&mut self, table: usize, row: &Selected) -> Read<()> {
        let mut access = self.access(table, row);
        access.groups = Groups::ALL;
        let of = &self.tables[table];
        let mut loads = Vec::new();
        let mut groups = Groups::NONE;
        for index in &of.indexes {
            let mut old = Vec::new();
            for column in &index.columns {
                old.push(self.load_of(table, *column, &access, &mut loads, &mut groups)?);
            }
            old.extend(&access.key);
            access.indexes.push(IndexChange { table: index.table as u16, old: Some(old), new: None });
        }
        access.loads = loads.into_iter().map(|(_, load)| load).collect();
        let access = self.add(access);
        self.push(Step::Delete { access });
        Ok(())
    }
}

/// Collects the columns that an expression names.
pub(super) fn columns_in<'a>(expression: &'a Expr, found: &mut Vec<&'a Ident>) {
    match expression {
        Expr::Identifier(ident) if !is_now(expression) => found.push(ident),
        Expr::Nested(inner) => columns_in(inner, found),
        Expr::UnaryOp { expr, .. } => columns_in(expr, found),
        Expr::BinaryOp { left, right, .. } => {
            columns_in(left, found);
            columns_in(right, found);
        }
        Expr::Between { expr, low, high, .. } => {
            [expr, low, high].into_iter().for_each(|inner| columns_in(inner, found))
        }
        Expr::Case { conditions, else_result, .. } => {
            for case in conditions {
                columns_in(&case.condition, found);
                columns_in(&case.result, found);
            }
            else_result.iter().for_each(|inner| columns_in(inner, found));
        }
        Expr::Function(function) => {
            if let FunctionArguments::List(list) = &function.args {
                for argument in &list.args {
                    if let FunctionArg::Unnamed(FunctionArgExpr::Expr(inner)) = argument {
                        columns_in(inner, found);
                    }
                }
            }
        }
        _ => {}
    }
}

fn has_column(expression: &Expr) -> bool {
    let mut found = Vec::new();
    columns_in(expression, &mut found);
    !found.is_empty()
}

fn is_null(expression: &Expr) -> bool {
    matches!(expression, Expr::Value(value) if value.value == Value::Null)
}

/// Whether an expression is the time of day, which a run that can be repeated takes as 0.
fn is_now(expression: &Expr) -> bool {
    let name = match expression {
        Expr::Identifier(ident) => name_of(ident),
        Expr::Function(function) => function.name.to_string().to_lowercase(),
        _ => return false,
    };
    matches!(name.as_str(), "current_timestamp" | "now" | "localtimestamp")
}

/// Returns the change that an assignment makes to the column `name` without reading it.
fn change_of<'a>(name: &str, value: &'a Expr) -> Option<(Change, &'a Expr)> {
    let is_own = |side: &Expr| matches!(side, Expr::Identifier(ident) if name_of(ident) == name);
    match value {
        Expr::Nested(inner) => change_of(name, inner),
        Expr::BinaryOp { left, op: BinaryOperator::Plus, right } if is_own(left) && !has_column(right) => {
            Some((Change::Add, right))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Plus, right } if is_own(right) && !has_column(left) => {
            Some((Change::Add, left))
        }
        Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if is_own(left) && !has_column(right) => {
            Some((Change::Subtract, right))
        }
        other if !has_column(other) && !is_null(other) && !is_now(other) => Some((Change::Set, other)),
        _ => None,
    }
}
