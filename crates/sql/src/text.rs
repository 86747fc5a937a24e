//! Statements as text, in the dialect of a system.

use contend_workloads::file::view::{Action, Aggregate, Bounds, Call, Formula, Operator, Relation, Statement, Value};

use crate::system::Product;
use crate::target::Family;

/// The column with the mark of the write that has made a row; 0 is the loader.
pub(crate) const WRITER: &str = "_w";
/// The column with the mark before it.
pub(crate) const PREDECESSOR: &str = "_p";

/// Where the value of a placeholder comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Key(usize),
    Low,
    High,
    Limit,
    Offset,
    Value(usize),
    /// The mark of the write.
    Mark,
}

/// A statement as text.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    pub(crate) sql: String,
    pub(crate) slots: Vec<Slot>,
}

impl Text {
    /// Returns the values of the placeholders.
    pub(crate) fn values(&self, call: &Call<'_>, mark: u64) -> Vec<Value> {
        let number = |number: u64| Value::Number(i64::try_from(number).unwrap_or(i64::MAX));
        let value = |slot: &Slot| match *slot {
            Slot::Key(place) => Value::Number(call.key[place]),
            Slot::Low => Value::Number(call.low.unwrap_or(i64::MIN)),
            Slot::High => Value::Number(call.high.unwrap_or(i64::MAX)),
            Slot::Limit => number(call.limit),
            Slot::Offset => number(call.offset),
            Slot::Value(place) => call.values[place].clone(),
            Slot::Mark => number(mark),
        };
        self.slots.iter().map(value).collect()
    }
}

/// Returns a name in quotes.
pub(crate) fn quoted(family: Family, name: &str) -> String {
    match family {
        Family::MySql => format!("`{}`", name.replace('`', "``")),
        Family::Postgres | Family::Sqlite => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

/// What a statement returns and writes besides what the script asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Nothing.
    Measure,
    /// The versions of rows: reads return keys and marks, writes leave their marks.
    Record,
}

/// Returns the text of a statement.
pub(crate) fn text_of(product: Product, relation: &Relation, statement: &Statement, purpose: Purpose) -> Text {
    let mut writer = Writer { product, relation, text: Text::default() };
    let records = purpose == Purpose::Record;
    match &statement.action {
        Action::Read { columns, for_update } => {
            let mut names = writer.names(columns);
            names.extend(records.then(|| writer.quoted(WRITER)));
            writer.select(&names);
            writer.condition(statement);
            if *for_update && product.family() != Family::Sqlite {
                writer.push(" for update");
            }
        }
        Action::Scan(columns) => {
            let mut names = writer.names(columns);
            if records {
                names.extend(writer.names(&relation.key));
                names.push(writer.quoted(WRITER));
            }
            writer.select(&names);
            writer.range(statement);
        }
        Action::Aggregate(aggregates) if records => {
            let mut names = writer.names(&aggregates.iter().filter_map(|(_, column)| *column).collect::<Vec<_>>());
            names.extend(writer.names(&relation.key));
            names.push(writer.quoted(WRITER));
            writer.select(&names);
            writer.range(statement);
        }
        Action::Aggregate(aggregates) => writer.aggregates(aggregates, Some(statement)),
        Action::Update(formulas) => writer.update(statement, formulas, records),
        Action::Insert { or_nothing } => writer.insert(*or_nothing, records),
        Action::Delete => {
            let table = writer.table();
            writer.push(&format!("delete from {table}"));
            writer.condition(statement);
            if records && product.deletes_return() {
                let name = writer.quoted(WRITER);
                writer.push(&format!(" returning {name}"));
            }
        }
    }
    writer.text
}

/// Returns the text of a select of aggregates over a whole table, without a row 0.
pub(crate) fn whole_table(product: Product, relation: &Relation, aggregates: &[(Aggregate, Option<usize>)]) -> String {
    let mut writer = Writer { product, relation, text: Text::default() };
    writer.aggregates(aggregates, None);
    writer.text.sql
}

/// Returns the select of one column of the row of a statement: with MySQL a statement of its own.
pub(crate) fn select_version(product: Product, relation: &Relation, statement: &Statement, column: &str) -> Text {
    let mut writer = Writer { product, relation, text: Text::default() };
    let name = writer.quoted(column);
    writer.select(&[name]);
    writer.condition(statement);
    if matches!(statement.action, Action::Delete) {
        writer.push(" for update");
    }
    writer.text
}

/// Returns the statements that create a table.
pub(crate) fn create(product: Product, relation: &Relation, purpose: Purpose) -> Vec<String> {
    let writer = Writer { product, relation, text: Text::default() };
    let is_mysql = product.family() == Family::MySql;
    let mut columns: Vec<String> = relation
        .columns
        .iter()
        .map(|column| {
            let of = match column.text {
                None => "bigint".to_owned(),
                // Texts are the same if their bytes are.
                Some(bytes) if is_mysql => format!("varchar({bytes}) character set utf8mb4 collate utf8mb4_bin"),
                Some(bytes) => format!("varchar({bytes})"),
            };
            format!("{} {of} not null", writer.quoted(&column.name))
        })
        .collect();
    if purpose == Purpose::Record {
        columns.extend([WRITER, PREDECESSOR].map(|name| format!("{} bigint not null", writer.quoted(name))));
    }
    columns.push(format!("primary key ({})", writer.names(&relation.key).join(", ")));
    let engine = if is_mysql { " engine=InnoDB" } else { "" };
    let mut all = vec![format!("create table {} ({}){engine}", writer.table(), columns.join(", "))];
    for (number, index) in relation.indexes.iter().enumerate() {
        let name = writer.quoted(&format!("{}_index_{number}", relation.name));
        all.push(format!("create index {name} on {} ({})", writer.table(), writer.names(index).join(", ")));
    }
    all
}

/// Returns the insert of `rows` rows, with the loader as the writer.
pub(crate) fn load(product: Product, relation: &Relation, rows: usize, purpose: Purpose) -> String {
    let mut writer = Writer { product, relation, text: Text::default() };
    writer.insert_into(purpose == Purpose::Record);
    for row in 0..rows {
        writer.push(if row == 0 { "(" } else { ", (" });
        writer.row_values();
        writer.push(if purpose == Purpose::Record { ", 0, 0)" } else { ")" });
    }
    // Rows whose key is there already are left out.
    match product.family() {
        Family::MySql => writer.text.sql = writer.text.sql.replacen("insert into", "insert ignore into", 1),
        Family::Postgres | Family::Sqlite => writer.push(" on conflict do nothing"),
    }
    writer.text.sql
}

struct Writer<'a> {
    product: Product,
    relation: &'a Relation,
    text: Text,
}

impl Writer<'_> {
    fn push(&mut self, text: &str) {
        self.text.sql.push_str(text);
    }

    fn quoted(&self, name: &str) -> String {
        quoted(self.product.family(), name)
    }

    fn table(&self) -> String {
        self.quoted(&self.relation.name)
    }

    fn column(&self, column: usize) -> String {
        self.quoted(&self.relation.columns[column].name)
    }

    fn names(&self, columns: &[usize]) -> Vec<String> {
        columns.iter().map(|column| self.column(*column)).collect()
    }

    /// Writes a placeholder.
    fn slot(&mut self, slot: Slot, is_text: bool) {
        self.text.slots.push(slot);
        let place = self.text.slots.len();
        match self.product.family() {
            Family::Postgres => self.push(&format!("${place}::{}", if is_text { "text" } else { "bigint" })),
            Family::MySql | Family::Sqlite => self.push("?"),
        }
    }

    fn select(&mut self, names: &[String]) {
        let table = self.table();
        let names = if names.is_empty() { "1".to_owned() } else { names.join(", ") };
        self.push(&format!("select {names} from {table}"));
    }

    /// Writes which rows a statement is about.
    fn condition(&mut self, statement: &Statement) {
        let mut word = " where ";
        for (place, column) in statement.equal.iter().enumerate() {
            let name = self.column(*column);
            self.push(&format!("{word}{name} = "));
            self.slot(Slot::Key(place), false);
            word = " and ";
        }
        let Some(Bounds { column, low, high }) = statement.bounds else { return };
        let name = self.column(column);
        for (is_there, operator, slot) in [(low, ">=", Slot::Low), (high, "<=", Slot::High)] {
            if is_there {
                self.push(&format!("{word}{name} {operator} "));
                self.slot(slot, false);
                word = " and ";
            }
        }
    }

    fn range(&mut self, statement: &Statement) {
        self.condition(statement);
        let way = if statement.descending { " desc" } else { "" };
        let order: Vec<String> = self.names(&statement.order).iter().map(|name| format!("{name}{way}")).collect();
        self.push(&format!(" order by {} limit ", order.join(", ")));
        self.slot(Slot::Limit, false);
        self.push(" offset ");
        self.slot(Slot::Offset, false);
    }

    /// Writes a select of aggregates, and of the number of rows behind them.
    fn aggregates(&mut self, aggregates: &[(Aggregate, Option<usize>)], of: Option<&Statement>) {
        let number = if self.product.family() == Family::MySql { "signed" } else { "bigint" };
        let mut parts: Vec<String> = Vec::new();
        for (aggregate, column) in aggregates {
            let name = match aggregate {
                Aggregate::Sum => "sum",
                Aggregate::Least => "min",
                Aggregate::Greatest => "max",
            };
            parts.push(match column {
                None => "count(*)".into(),
                Some(column) => format!("cast(coalesce({name}({}), 0) as {number})", self.column(*column)),
            });
        }
        parts.push("count(*)".into());
        let table = self.table();
        let Some(statement) = of else { return self.push(&format!("select {} from {table}", parts.join(", "))) };
        let mut columns: Vec<usize> = aggregates.iter().filter_map(|(_, column)| *column).collect();
        columns.sort_unstable();
        columns.dedup();
        let names = self.names(&columns);
        self.push(&format!("select {} from (", parts.join(", ")));
        self.select(&names);
        self.range(statement);
        self.push(") as scanned");
    }

    fn update(&mut self, statement: &Statement, formulas: &[(usize, Formula)], records: bool) {
        let table = self.table();
        self.push(&format!("update {table} set "));
        for (number, (column, formula)) in formulas.iter().enumerate() {
            let name = self.column(*column);
            self.push(&format!("{}{name} = ", if number == 0 { "" } else { ", " }));
            self.formula(formula, self.relation.columns[*column].text.is_some());
        }
        if records {
            // MySQL assigns from left to right, other systems all at once. In this order both keep
            // the old writer.
            let (writer, predecessor) = (self.quoted(WRITER), self.quoted(PREDECESSOR));
            self.push(&format!(", {predecessor} = {writer}, {writer} = "));
            self.slot(Slot::Mark, false);
        }
        self.condition(statement);
        if records && self.product.family() != Family::MySql {
            let predecessor = self.quoted(PREDECESSOR);
            self.push(&format!(" returning {predecessor}"));
        }
    }

    fn insert_into(&mut self, records: bool) {
        let mut names: Vec<String> = self.relation.columns.iter().map(|column| self.quoted(&column.name)).collect();
        if records {
            names.extend([WRITER, PREDECESSOR].map(|name| self.quoted(name)));
        }
        let table = self.table();
        self.push(&format!("insert into {table} ({}) values ", names.join(", ")));
    }

    fn row_values(&mut self) {
        for (place, column) in self.relation.columns.iter().enumerate() {
            if place > 0 {
                self.push(", ");
            }
            // A later row of the same statement has places of its own.
            let place = self.text.slots.len().max(place);
            self.slot(Slot::Value(place), column.text.is_some());
        }
    }

    fn insert(&mut self, or_nothing: bool, records: bool) {
        self.insert_into(records);
        self.push("(");
        self.row_values();
        if records {
            self.push(", ");
            self.slot(Slot::Mark, false);
            self.push(", 0");
        }
        self.push(")");
        match self.product.family() {
            _ if !or_nothing => {}
            Family::MySql => self.text.sql = self.text.sql.replacen("insert into", "insert ignore into", 1),
            Family::Postgres | Family::Sqlite => self.push(" on conflict do nothing"),
        }
    }

    fn formula(&mut self, formula: &Formula, is_text: bool) {
        match formula {
            Formula::Column(column) => {
                let name = self.column(*column);
                self.push(&name);
            }
            Formula::Value(place) => self.slot(Slot::Value(*place), is_text),
            Formula::Apply(operator, a, b) => self.apply(*operator, a, b),
            Formula::SameText(a, b) => {
                self.push("case when ");
                self.formula(a, true);
                self.push(" = ");
                self.formula(b, true);
                self.push(" then 1 else 0 end");
            }
            Formula::Choose(parts) => {
                let [condition, then, otherwise] = &**parts;
                self.push("(case when ");
                self.formula(condition, false);
                self.push(" <> 0 then ");
                self.formula(then, false);
                self.push(" else ");
                self.formula(otherwise, false);
                self.push(" end)");
            }
        }
    }

    fn apply(&mut self, operator: Operator, a: &Formula, b: &Formula) {
        let family = self.product.family();
        // What is written before, between and behind the two.
        let [before, between, behind] = match operator {
            Operator::Add => ["(", " + ", ")"],
            Operator::Subtract => ["(", " - ", ")"],
            Operator::Multiply => ["(", " * ", ")"],
            Operator::Divide | Operator::Modulo => {
                self.push("(case when ");
                self.formula(b, false);
                let between = match (operator, family) {
                    (Operator::Modulo, _) => " % ",
                    (_, Family::MySql) => " div ",
                    _ => " / ",
                };
                [" = 0 then 0 else ", between, " end)"]
            }
            Operator::Equal => ["(case when ", " = ", " then 1 else 0 end)"],
            Operator::Unequal => ["(case when ", " <> ", " then 1 else 0 end)"],
            Operator::Less => ["(case when ", " < ", " then 1 else 0 end)"],
            Operator::AtMost => ["(case when ", " <= ", " then 1 else 0 end)"],
            Operator::And => ["(case when ", " <> 0 and ", " <> 0 then 1 else 0 end)"],
            Operator::Or => ["(case when ", " <> 0 or ", " <> 0 then 1 else 0 end)"],
            Operator::Least if family == Family::Sqlite => ["min(", ", ", ")"],
            Operator::Greatest if family == Family::Sqlite => ["max(", ", ", ")"],
            Operator::Least => ["least(", ", ", ")"],
            Operator::Greatest => ["greatest(", ", ", ")"],
            Operator::Absolute => {
                self.push("abs(");
                self.formula(a, false);
                return self.push(")");
            }
            Operator::Xor => match family {
                Family::Postgres => ["(", " # ", ")"],
                Family::MySql => ["cast(", " ^ ", " as signed)"],
                Family::Sqlite => {
                    self.push("((");
                    self.formula(a, false);
                    self.push(" | ");
                    self.formula(b, false);
                    [") - (", " & ", "))"]
                }
            },
            Operator::ShiftLeft | Operator::ShiftRight => {
                let is_left = operator == Operator::ShiftLeft;
                match (family, is_left) {
                    (Family::Postgres, true) => ["(", " << (", ")::int)"],
                    (Family::Postgres, false) => ["(", " >> (", ")::int)"],
                    (Family::MySql, true) => ["cast(", " << ", " as signed)"],
                    (Family::MySql, false) => ["cast(", " >> ", " as signed)"],
                    (Family::Sqlite, true) => ["(", " << ", ")"],
                    (Family::Sqlite, false) => ["(", " >> ", ")"],
                }
            }
            Operator::Permute => unreachable!("the view refuses a permutation of a column"),
        };
        self.push(before);
        self.formula(a, false);
        self.push(between);
        self.formula(b, false);
        self.push(behind);
    }
}
