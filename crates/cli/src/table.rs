//! Tables that fit the terminal: columns are wrapped between words or left out. No word is broken.

use std::fmt;

use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Table as Drawn, Width, presets};

/// The width in characters if `COLUMNS` is not set and stdout is no terminal.
const WIDTH: u16 = 160;
/// The narrowest width that a table is fitted to.
const WIDTH_MIN: u16 = 20;
/// The narrowest column of text, in characters, while another column can be left out.
const COMFORT: usize = 20;
/// The blanks around a cell, one on either side.
const PADDING: usize = 2;
/// The characters between two columns.
const GAP: usize = 1;

/// A table that can be printed.
#[derive(Debug, Default)]
pub(crate) struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Default)]
struct Column {
    name: String,
    /// Whether its cells are aligned at the right.
    right: bool,
    /// Whether its cells are never wrapped.
    solid: bool,
    /// Its place among the columns that can be left out, the lowest first; `None` for one that
    /// can't.
    spare: Option<usize>,
}

/// How far columns are narrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Squeeze {
    /// Names stand on one line, and text has at least the comfortable width.
    Nothing,
    /// Names are wrapped.
    Names,
    /// A column is as wide as its longest word.
    All,
}

impl Table {
    /// Returns an empty table with these columns.
    pub(crate) fn new<'a>(columns: impl IntoIterator<Item = &'a str>) -> Table {
        let column = |name: &str| Column { name: name.into(), ..Column::default() };
        Table { columns: columns.into_iter().map(column).collect(), rows: Vec::new() }
    }

    /// Marks columns of numbers: their cells are aligned at the right, and a number stays with its
    /// unit.
    pub(crate) fn numbers(mut self, columns: impl IntoIterator<Item = usize>) -> Table {
        for column in columns {
            (self.columns[column].right, self.columns[column].solid) = (true, true);
        }
        self
    }

    /// Marks columns whose cells are never wrapped.
    pub(crate) fn solid(mut self, columns: impl IntoIterator<Item = usize>) -> Table {
        columns.into_iter().for_each(|column| self.columns[column].solid = true);
        self
    }

    /// Names the columns that are left out if the terminal is too narrow, in this order.
    pub(crate) fn spare(mut self, names: &[&str]) -> Table {
        for column in &mut self.columns {
            column.spare = names.iter().position(|name| *name == column.name);
        }
        self
    }

    /// Lets all columns be left out but the first `kept`, the last one first.
    pub(crate) fn spare_behind(mut self, kept: usize) -> Table {
        let count = self.columns.len();
        for (number, column) in self.columns.iter_mut().enumerate().skip(kept) {
            column.spare = Some(count - number);
        }
        self
    }

    /// Adds a row.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = impl Into<String>>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Returns the table in at most `width` characters a line, unless single words need more.
    fn show(&self, width: usize) -> String {
        let mut chosen: Vec<usize> = (0..self.columns.len()).collect();
        let total = |chosen: &[usize], squeeze: Squeeze| -> usize {
            let cells: usize = chosen.iter().map(|column| self.least(*column, squeeze) + PADDING).sum();
            cells + GAP * chosen.len().saturating_sub(1)
        };
        let mut left_out: Vec<usize> = Vec::new();
        while total(&chosen, Squeeze::Names) > width {
            let spare = chosen.iter().copied().filter_map(|column| Some((self.columns[column].spare?, column))).min();
            let Some((_, column)) = spare else { break };
            chosen.retain(|other| *other != column);
            left_out.push(column);
        }
        // The columns that stay are no narrower than they have to be.
        let squeezes = [Squeeze::Nothing, Squeeze::Names];
        let squeeze = squeezes.into_iter().find(|squeeze| total(&chosen, *squeeze) <= width).unwrap_or(Squeeze::All);
        let mut drawn = Drawn::new();
        drawn.load_preset(presets::UTF8_HORIZONTAL_ONLY).set_content_arrangement(ContentArrangement::Dynamic);
        drawn.set_width(u16::try_from(width.max(total(&chosen, squeeze))).unwrap_or(u16::MAX));
        drawn.set_header(chosen.iter().map(|column| &self.columns[*column].name));
        for row in &self.rows {
            drawn.add_row(chosen.iter().map(|column| row.get(*column).map_or("", String::as_str)));
        }
        for (place, column) in chosen.iter().enumerate() {
            let least = u16::try_from(self.least(*column, squeeze) + PADDING).unwrap_or(u16::MAX);
            let Some(shown) = drawn.column_mut(place) else { continue };
            let Column { right, solid, .. } = self.columns[*column];
            shown.set_constraint(match solid {
                true => ColumnConstraint::Absolute(Width::Fixed(least)),
                false => ColumnConstraint::LowerBoundary(Width::Fixed(least)),
            });
            if right {
                shown.set_cell_alignment(CellAlignment::Right);
            }
        }
        let mut text = drawn.to_string();
        if !left_out.is_empty() {
            left_out.sort_unstable();
            let names: Vec<&str> = left_out.iter().map(|column| self.columns[*column].name.as_str()).collect();
            text += &format!("\nno room for: {}", names.join(", "));
        }
        text
    }

    /// Returns the least width of a column's cells, without their padding.
    fn least(&self, column: usize, squeeze: Squeeze) -> usize {
        let Column { name, solid, .. } = &self.columns[column];
        let cells = || self.rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| cell.lines());
        let longest = |words: &mut dyn Iterator<Item = &str>| words.map(|word| word.chars().count()).max().unwrap_or(0);
        let of_name = match squeeze {
            Squeeze::Nothing => name.chars().count(),
            Squeeze::Names | Squeeze::All => longest(&mut name.split(' ')),
        };
        let comfort = if squeeze == Squeeze::All { 0 } else { COMFORT };
        let lines = longest(&mut cells());
        let least = if *solid { lines } else { longest(&mut cells().flat_map(|line| line.split(' '))) };
        of_name.max(least).max(lines.min(comfort))
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.show(usize::from(width())))
    }
}

/// Returns the width of the output in characters: that of `COLUMNS`, or else the terminal's.
pub(crate) fn width() -> u16 {
    let said = std::env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let drawn = Drawn::new();
    let of_terminal = || if drawn.is_tty() { drawn.width() } else { None };
    said.or_else(of_terminal).unwrap_or(WIDTH).max(WIDTH_MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let mut table = Table::new(["protocol", "median /s", "aborts", "verified"]).numbers([1]).solid([2]);
        table.add_row([
            "silo+cu=on+ts=on",
            "1.90 M",
            "5.6 %\nwrite_locked 3.1 %",
            "serializable (20000 transactions, 0 cycles)",
        ]);
        table.add_row(["none", "2.00 M", "0.0 %", "promises nothing"]);
        table.spare(&["aborts", "verified"])
    }

    #[test]
    fn nothing_is_wider_than_the_terminal_and_no_word_is_broken() {
        for width in 32..140 {
            let shown = table().show(width);
            let widest = shown.lines().map(|line| line.trim_end().chars().count()).max().unwrap_or(0);
            assert!(widest <= width, "{width}: {widest}\n{shown}");
            let words = ["silo+cu=on+ts=on", "1.90 M", "2.00 M", "protocol", "median"];
            assert!(words.iter().all(|word| shown.contains(word)), "{width}\n{shown}");
            let is_there = !shown.contains("no room for") || !shown.ends_with("verified");
            let whole = ["serializable", "transactions,", "cycles)", "promises", "nothing"];
            assert!(!is_there || whole.iter().all(|word| shown.contains(word)), "{width}\n{shown}");
        }
    }

    #[test]
    fn columns_are_left_out_in_their_order() {
        assert!(!table().show(120).contains("no room for"));
        assert!(table().show(120).contains("median /s"), "a name is wrapped only where there is little room");
        let shown = table().show(60);
        assert!(shown.ends_with("\nno room for: aborts") && shown.contains("verified"), "{shown}");
        let shown = table().show(40);
        assert!(shown.ends_with("\nno room for: aborts, verified") && shown.contains("median"), "{shown}");
        // A word that is longer than the terminal stays whole.
        let shown = table().show(20);
        assert!(shown.contains("silo+cu=on+ts=on") && shown.contains("1.90 M"), "{shown}");
        let spare = |table: Table| table.columns.iter().map(|column| column.spare).collect::<Vec<_>>();
        assert_eq!(spare(Table::new(["a", "b", "c"])), [None, None, None]);
        assert_eq!(spare(Table::new(["a", "b", "c"]).spare_behind(1)), [None, Some(2), Some(1)]);
    }
}
