//! SQL that the language lacks, and what stands in its place.

use sqlparser::ast::{Expr, InTarget};

use super::schema::{Table, name_of};

/// A query inside another one, in an invariant.
pub(super) const QUERY_IN_INVARIANT: &str =
    "a query inside another one is not possible here; valid: one select on each side of equal or at_least";
/// An average, in an invariant.
pub(super) const AVERAGE_IN_INVARIANT: &str =
    "avg is not possible, because numbers are whole; valid: sum(A) on one side, and NUMBER * count(*) on the other";
/// An average, in a script.
pub(super) const AVERAGE: &str =
    "avg is not possible, because numbers are whole; valid: select sum(A), count(*) ... \\gset, and then :sum / :count";
/// A query inside a statement of a script.
pub(super) const QUERY: &str = "a query inside a statement is not possible; valid: a select of its own before it, which ends \
                                with \\gset and sets variables";

/// Returns what to write in the place of another name of a table.
pub(super) fn no_alias(table: &str) -> String {
    format!("a table has no other name here; valid: {table} by itself, and columns without a table before them")
}

/// Returns what to write in the place of a number with a fraction.
pub(super) fn no_fraction(digits: &str) -> String {
    let unit = "an amount is counted in its smallest unit: 12.50 of a numeric(9, 2) is written 1250";
    format!("'{digits}' is no whole number; {unit}")
}

/// Returns what to write in the place of a part of this expression, if it is known.
pub(super) fn instead_of(expression: &Expr) -> Option<String> {
    match expression {
        Expr::CompoundIdentifier(parts) => {
            let column = parts.last().map(name_of)?;
            Some(format!("'{expression}': a column has no table before it; valid: {column}"))
        }
        Expr::Subquery(_) | Expr::Exists { .. } | Expr::In { target: InTarget::Subquery(_), .. } => Some(QUERY.into()),
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => instead_of(inner),
        Expr::BinaryOp { left, right, .. } => instead_of(left).or_else(|| instead_of(right)),
        _ => None,
    }
}

/// Whether a query is inside this expression.
pub(super) fn has_query(expression: &Expr) -> bool {
    instead_of(expression).is_some_and(|instead| instead == QUERY)
}

/// Returns a hint for a variable that nothing has set, if a column has its name.
pub(super) fn no_gset(name: &str, tables: &[Table]) -> Option<String> {
    let table = tables.iter().find(|table| table.columns.iter().any(|column| column.name == name))?;
    Some(format!("; {name} is a column of {}: its select sets it, if it ends with \\gset and not with ';'", table.name))
}
