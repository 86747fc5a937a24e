//! Statements as text, in the dialect of a system.

use contend_workloads::file::view::{
    Action, Aggregate, Bounds, Call, ColumnType, Formula, Operator, Relation, Statement, Summed, Sums, Value,
};

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
        Action::Aggregate(aggregates) => writer.aggregates(aggregates, statement),
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

/// Returns the text of a select of aggregates over a whole table, and the values for it.
pub(crate) fn whole_table(product: Product, relation: &Relation, asked: &Sums) -> (String, Vec<Value>) {
    let mut writer = Writer { product, relation, text: Text::default() };
    writer.push("select ");
    let groups = writer.names(&asked.groups).join(", ");
    if !groups.is_empty() {
        writer.push(&format!("{groups}, "));
    }
    for (number, (aggregate, summed)) in asked.sums.iter().enumerate() {
        writer.push(if number == 0 { "" } else { ", " });
        writer.aggregate(*aggregate, summed);
    }
    let table = writer.table();
    // A select needs a column.
    writer.push(&format!("{} from {table}", if asked.sums.is_empty() { "1" } else { "" }));
    if !groups.is_empty() {
        writer.push(&format!(" group by {groups}"));
    }
    let of_slot = |slot: &Slot| match *slot {
        Slot::Value(place) => asked.values[place].clone(),
        _ => unreachable!("formulas have values alone"),
    };
    let values = writer.text.slots.iter().map(of_slot).collect();
    (writer.text.sql, values)
}

/// Returns the select of the keys and marks of all rows.
pub(crate) fn last_versions(product: Product, relation: &Relation) -> String {
    let mut writer = Writer { product, relation, text: Text::default() };
    let mut names = writer.names(&relation.key);
    names.push(writer.quoted(WRITER));
    writer.select(&names);
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
            let of = match column.of {
                ColumnType::Number => "bigint".to_owned(),
                // Texts are the same if their bytes are.
                ColumnType::Text(bytes) if is_mysql => {
                    format!("varchar({bytes}) character set utf8mb4 collate utf8mb4_bin")
                }
                ColumnType::Text(bytes) => format!("varchar({bytes})"),
                ColumnType::Bytes(bytes) if is_mysql => format!("varbinary({bytes})"),
                ColumnType::Bytes(_) if product.family() == Family::Postgres => "bytea".to_owned(),
                ColumnType::Bytes(_) => "blob".to_owned(),
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
    fn slot(&mut self, slot: Slot, of: ColumnType) {
        self.text.slots.push(slot);
        let place = self.text.slots.len();
        match self.product.family() {
            Family::Postgres => {
                let of = match of {
                    ColumnType::Number => "bigint",
                    ColumnType::Text(_) => "text",
                    ColumnType::Bytes(_) => "bytea",
                };
                self.push(&format!("${place}::{of}"));
            }
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
            self.slot(Slot::Key(place), ColumnType::Number);
            word = " and ";
        }
        let Some(Bounds { column, low, high }) = statement.bounds else { return };
        let name = self.column(column);
        for (is_there, operator, slot) in [(low, ">=", Slot::Low), (high, "<=", Slot::High)] {
            if is_there {
                self.push(&format!("{word}{name} {operator} "));
                self.slot(slot, ColumnType::Number);
                word = " and ";
            }
        }
    }

    fn range(&mut self, statement: &Statement) {
        self.condition(statement);
        let way = if statement.descending { " desc" } else { "" };
        let order: Vec<String> = self.names(&statement.order).iter().map(|name| format!("{name}{way}")).collect();
        self.push(&format!(" order by {} limit ", order.join(", ")));
        self.slot(Slot::Limit, ColumnType::Number);
        self.push(" offset ");
        self.slot(Slot::Offset, ColumnType::Number);
    }

    /// Writes an aggregate; without a row it is 0.
    fn aggregate(&mut self, aggregate: Aggregate, summed: &Summed) {
        let number = if self.product.family() == Family::MySql { "signed" } else { "bigint" };
        let name = match aggregate {
            Aggregate::Sum => "sum",
            Aggregate::Least => "min",
            Aggregate::Greatest => "max",
        };
        match summed {
            Summed::Row => self.push("count(*)"),
            Summed::Formula(formula) => {
                self.push(&format!("cast(coalesce({name}("));
                self.formula(formula, ColumnType::Number);
                self.push(&format!("), 0) as {number})"));
            }
        }
    }

    /// Writes a select of aggregates of the rows of a range, and of the number of rows behind them.
    fn aggregates(&mut self, aggregates: &[(Aggregate, Option<usize>)], statement: &Statement) {
        self.push("select ");
        for (aggregate, column) in aggregates {
            let summed = column.map_or(Summed::Row, |column| Summed::Formula(Formula::Column(column)));
            self.aggregate(*aggregate, &summed);
            self.push(", ");
        }
        let mut columns: Vec<usize> = aggregates.iter().filter_map(|(_, column)| *column).collect();
        columns.sort_unstable();
        columns.dedup();
        let names = self.names(&columns);
        self.push("count(*) from (");
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
            self.formula(formula, self.relation.columns[*column].of);
        }
        if records {
            // MySQL assigns from left to right, other systems all at once. In this order both keep
            // the old writer.
            let (writer, predecessor) = (self.quoted(WRITER), self.quoted(PREDECESSOR));
            self.push(&format!(", {predecessor} = {writer}, {writer} = "));
            self.slot(Slot::Mark, ColumnType::Number);
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
            self.slot(Slot::Value(place), column.of);
        }
    }

    fn insert(&mut self, or_nothing: bool, records: bool) {
        self.insert_into(records);
        self.push("(");
        self.row_values();
        if records {
            self.push(", ");
            self.slot(Slot::Mark, ColumnType::Number);
            self.push(", 0");
        }
        self.push(")");
        match self.product.family() {
            _ if !or_nothing => {}
            Family::MySql => self.text.sql = self.text.sql.replacen("insert into", "insert ignore into", 1),
            Family::Postgres | Family::Sqlite => self.push(" on conflict do nothing"),
        }
    }

    fn formula(&mut self, formula: &Formula, of: ColumnType) {
        match formula {
            Formula::Column(column) => {
                let name = self.column(*column);
                self.push(&name);
            }
            Formula::Value(place) => self.slot(Slot::Value(*place), of),
            Formula::Apply(operator, a, b) => self.apply(*operator, a, b),
            Formula::SameText(a, b) => {
                self.push("case when ");
                self.formula(a, ColumnType::Text(0));
                self.push(" = ");
                self.formula(b, ColumnType::Text(0));
                self.push(" then 1 else 0 end");
            }
            Formula::Choose(parts) => {
                let [condition, then, otherwise] = &**parts;
                self.push("(case when ");
                self.formula(condition, ColumnType::Number);
                self.push(" <> 0 then ");
                self.formula(then, ColumnType::Number);
                self.push(" else ");
                self.formula(otherwise, ColumnType::Number);
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
                self.formula(b, ColumnType::Number);
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
                self.formula(a, ColumnType::Number);
                return self.push(")");
            }
            Operator::Xor => match family {
                Family::Postgres => ["(", " # ", ")"],
                Family::MySql => ["cast(", " ^ ", " as signed)"],
                Family::Sqlite => {
                    self.push("((");
                    self.formula(a, ColumnType::Number);
                    self.push(" | ");
                    self.formula(b, ColumnType::Number);
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
        self.formula(a, ColumnType::Number);
        self.push(between);
        self.formula(b, ColumnType::Number);
        self.push(behind);
    }
}
