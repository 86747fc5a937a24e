//! Conditions: which of their terms choose rows by a key or an index.

use sqlparser::ast::{BinaryOperator, Expr};

use super::{ColumnAt, Role, Translated, Translation, marker, parameter_of};

/// The rows that a condition selects.
pub(super) struct Chosen {
    /// The condition in the file's language, with `where` before it; empty if there is none.
    pub(super) text: String,
    /// Whether the whole primary key is given.
    pub(super) is_row: bool,
    /// The index by which rows are found.
    pub(super) index: Option<usize>,
    /// The columns by which rows are found, in their order.
    pub(super) way: Vec<usize>,
    /// The number of columns that are given by `=`.
    pub(super) fixed: usize,
}

/// A term that compares a column with a value.
struct Term {
    column: usize,
    operator: &'static str,
    parameter: Option<usize>,
    /// The other end, of `between`.
    second: Option<usize>,
}

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

impl Translation<'_> {
    fn term(&self, table: usize, term: &Expr) -> Translated<Option<Term>> {
        // Unknown columns and queries inside are found in every term.
        self.columns_in(table, term, &mut Vec::new())?;
        match term {
            Expr::BinaryOp { left, op, right } => {
                let (column, value, swapped) = match (self.column(table, left)?, self.column(table, right)?) {
                    (Some(column), None) => (column, right, false),
                    (None, Some(column)) => (column, left, true),
                    _ => return Ok(None),
                };
                let operator = match (op, swapped) {
                    (BinaryOperator::Eq, _) => "=",
                    (BinaryOperator::Lt, false) | (BinaryOperator::Gt, true) => "<",
                    (BinaryOperator::LtEq, false) | (BinaryOperator::GtEq, true) => "<=",
                    (BinaryOperator::Gt, false) | (BinaryOperator::Lt, true) => ">",
                    (BinaryOperator::GtEq, false) | (BinaryOperator::LtEq, true) => ">=",
                    _ => return Ok(None),
                };
                let Some(parameter) = parameter_of(value) else { return Ok(None) };
                Ok(Some(Term { column, operator, parameter: Some(parameter), second: None }))
            }
            Expr::Between { expr, negated: false, low, high } => {
                let Some(column) = self.column(table, expr)? else { return Ok(None) };
                let (parameter, second) = (parameter_of(low), parameter_of(high));
                if parameter.is_none() || second.is_none() {
                    return Ok(None);
                }
                Ok(Some(Term { column, operator: "between", parameter, second }))
            }
            _ => Ok(None),
        }
    }

    /// Finds the way to the rows that uses most of a condition, and leaves out the rest.
    pub(super) fn chosen(&mut self, table: usize, condition: Option<&Expr>) -> Translated<Chosen> {
        let mut parts = Vec::new();
        condition.into_iter().for_each(|condition| flatten(condition, &mut parts));
        let mut terms = Vec::new();
        let count = parts.len();
        for part in parts {
            terms.extend(self.term(table, part)?);
        }
        let of = &self.schema.tables[table];
        let equal = |column: usize| terms.iter().position(|term| term.column == column && term.operator == "=");
        let mut best: Option<(usize, usize, Vec<usize>, Option<usize>)> = None;
        for (number, way) in of.ways().enumerate() {
            // An index leads to rows by its columns, and then by the primary key.
            let way: Vec<usize> = if number == 0 { way.to_vec() } else { way.iter().chain(&of.key).copied().collect() };
            let fixed = way.iter().take_while(|&&column| equal(column).is_some()).count();
            let ranges = way
                .get(fixed)
                .map_or(0, |next| usize::from(terms.iter().any(|term| term.column == *next && term.operator != "=")));
            let is_whole = number == 0 && fixed == way.len() && fixed > 0;
            let score = if is_whole { usize::MAX } else { 2 * fixed + ranges };
            let is_possible = number == 0 || fixed > 0;
            if is_possible && best.as_ref().is_none_or(|(most, ..)| score > *most) {
                best = Some((score, fixed, way, number.checked_sub(1)));
            }
        }
        let Some((score, fixed, way, index)) = best else { return Err("there is no key".into()) };
        if score == 0 && count > 0 {
            let ways = of.ways().filter(|way| !way.is_empty()).map(|way| {
                let names: Vec<&str> = way.iter().map(|&column| of.columns[column].name.as_str()).collect();
                format!("({})", names.join(", "))
            });
            let ways: Vec<String> = ways.collect();
            let valid = if ways.is_empty() { "none, there is no key".into() } else { ways.join(", ") };
            return Err(format!("no key of {} leads to its rows; keys and indexes: {valid}", of.name));
        }
        let mut used: Vec<usize> = way[..fixed].iter().filter_map(|&column| equal(column)).collect();
        used.extend(self.bounds(&terms, way.get(fixed).copied()));
        if used.len() < count {
            self.left_out.push("conditions on other columns");
        }
        let text = self.written_terms(table, &terms, &used);
        Ok(Chosen { text, is_row: score == usize::MAX, index, way, fixed })
    }

    /// Returns the terms that bound a column, one for each side.
    fn bounds(&self, terms: &[Term], column: Option<usize>) -> Vec<usize> {
        let (mut low, mut high, mut used) = (false, false, Vec::new());
        for (number, term) in terms.iter().enumerate().filter(|(_, term)| Some(term.column) == column) {
            let (is_low, is_high) = match term.operator {
                ">" | ">=" => (true, false),
                "<" | "<=" => (false, true),
                "between" => (true, true),
                _ => continue,
            };
            if (is_low && low) || (is_high && high) {
                continue;
            }
            (low, high) = (low || is_low, high || is_high);
            used.push(number);
        }
        used
    }

    fn written_terms(&mut self, table: usize, terms: &[Term], used: &[usize]) -> String {
        let low = used.iter().map(|&at| &terms[at]).find(|term| matches!(term.operator, ">" | ">="));
        let low = low.and_then(|term| term.parameter);
        let mut texts = Vec::new();
        for term in used.iter().map(|&at| &terms[at]) {
            let at = ColumnAt { table, column: term.column };
            let first = term.parameter.expect("a term has a parameter");
            let name = self.written(table, term.column);
            self.roles[first] = match term.operator {
                "=" => Role::Key(at),
                "<" | "<=" => Role::High(at, low),
                _ => Role::Low(at),
            };
            match term.second {
                Some(second) => {
                    self.roles[second] = Role::High(at, Some(first));
                    texts.push(format!("{name} between {} and {}", marker(first), marker(second)));
                }
                None => texts.push(format!("{name} {} {}", term.operator, marker(first))),
            }
        }
        if texts.is_empty() { String::new() } else { format!(" where {}", texts.join(" and ")) }
    }
}
