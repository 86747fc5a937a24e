//! Declarations as text in Rust, to be pasted into a program.

use std::fmt::Write;

use contend_model::counted;
use contend_model::pieces::{Access, DeclaredPiece, DeclaredTable, Mode, TransactionType, TypeSet};

use super::Learned;

/// The longest line of a piece that stays one line.
const LINE_MAX: usize = 100;

impl Learned {
    /// Returns the proposed declarations as text in Rust: constants for the pieces, a module for
    /// each type, and a function that declares them. Tables are fields of `tables`, by their names.
    /// A column stands for all columns of its group. An update that commutes is written as an
    /// addition to the first column of its group.
    pub fn to_rust(&self) -> String {
        let types = self.proposed();
        let mut text = String::new();
        for (of, declared) in types.types.iter().enumerate() {
            let runs = counted(self.runs(of), "transaction");
            let of = identifier(&declared.name);
            if declared.pieces.is_empty() {
                let _ = writeln!(text, "// {}: no access in {runs}.", declared.name);
                continue;
            }
            let _ = writeln!(text, "/// The pieces of {}, from {runs}.\nmod {of} {{", declared.name);
            text += "    use contend_model::pieces::Piece;\n\n";
            for (number, piece) in declared.pieces.iter().enumerate() {
                let name = constant(&piece.name);
                let _ = writeln!(text, "    pub const {name}: Piece = Piece::new({number}, \"{}\");", piece.name);
            }
            text += "}\n\n";
        }
        text += "fn types(types: &mut Types, tables: &Tables) {\n";
        for declared in &types.types {
            text += &type_in_rust(&types, declared);
        }
        text + "}\n"
    }
}

fn type_in_rust(types: &TypeSet, declared: &TransactionType) -> String {
    if declared.pieces.is_empty() {
        return format!("    types.leave_out(\"{}\");\n", declared.name);
    }
    let add = if declared.read_only { "add_read_only" } else { "add" };
    let mut text = format!("    types\n        .{add}(\"{}\")", declared.name);
    for piece in &declared.pieces {
        let name = format!("{}::{}", identifier(&declared.name), constant(&piece.name));
        let calls = calls(types, piece);
        let line = format!("        .piece({name}, |piece| piece{})", calls.concat());
        if line.len() <= LINE_MAX {
            let _ = write!(text, "\n{line}");
            continue;
        }
        let _ = write!(text, "\n        .piece({name}, |piece| {{\n            piece");
        for call in calls {
            let _ = write!(text, "\n                {call}");
        }
        text += "\n        })";
    }
    text + ";\n"
}

/// Returns the calls that declare a piece.
fn calls(types: &TypeSet, piece: &DeclaredPiece) -> Vec<String> {
    let accesses = piece.accesses.iter().map(|access| call(&types.tables[access.table], access));
    accesses.chain(piece.cancels.then(|| ".cancels()".into())).collect()
}

fn call(table: &DeclaredTable, access: &Access) -> String {
    let handle = format!("&tables.{}", identifier(&table.name));
    let by_rows = match access.mode {
        Mode::Insert => return format!(".insert({handle})"),
        Mode::Delete => return format!(".delete({handle})"),
        Mode::Read => "read",
        Mode::Settled => "settled",
        Mode::Write => "modify",
        Mode::Update => "update",
    };
    let Some(columns) = columns(table, access) else {
        // The rows are known by their words only.
        return format!(".access(Mode::{:?}, {handle}, {})", access.mode, groups(table, access));
    };
    format!(".{by_rows}({handle}, {columns})")
}

/// Returns the columns of an access: one for each group, or `Whole` for all of them. `None` if the
/// columns have no names.
fn columns(table: &DeclaredTable, access: &Access) -> Option<String> {
    let groups: Vec<usize> = access.groups.into_iter().take_while(|group| *group < table.groups).collect();
    if access.mode != Mode::Update && groups.len() == table.groups && !table.row.is_empty() {
        return Some("Whole".into());
    }
    let name = |group: &usize| {
        let column = table.columns.get(*group)?.first()?;
        let column = format!("{}::{}", table.row, constant(column));
        Some(if access.mode == Mode::Update { format!("{column}.add(0)") } else { column })
    };
    let names: Vec<String> = groups.iter().map(name).collect::<Option<_>>()?;
    Some(if names.len() == 1 { names.concat() } else { format!("({})", names.join(", ")) })
}

/// Returns the groups of an access as an expression.
fn groups(table: &DeclaredTable, access: &Access) -> String {
    let groups: Vec<usize> = access.groups.into_iter().take_while(|group| *group < table.groups).collect();
    match groups[..] {
        [first, ref others @ ..] if groups.len() < table.groups => {
            let others = others.iter().map(|group| format!(".union(Groups::of({group}))"));
            format!("Groups::of({first}){}", others.collect::<String>())
        }
        _ => "Groups::ALL".into(),
    }
}

/// The keywords of Rust, edition 2024: those that `r#` makes an identifier of, and the others.
const KEYWORDS: &str = "abstract as async await become box break const continue do dyn else enum extern false final \
    fn for gen if impl in let loop macro match mod move mut override priv pub ref return static struct trait true try \
    type typeof unsafe unsized use virtual where while yield";
const NEVER_IDENTIFIERS: &str = "_ crate self super Self";

/// Returns a name as an identifier of Rust.
fn identifier(name: &str) -> String {
    let text = letters(name);
    let is_of = |words: &str| words.split_ascii_whitespace().any(|word| word == text);
    match (is_of(KEYWORDS), is_of(NEVER_IDENTIFIERS)) {
        (true, _) => format!("r#{text}"),
        (_, true) => format!("{text}_"),
        _ => text,
    }
}

/// Returns a name as a constant of Rust.
fn constant(name: &str) -> String {
    letters(name).to_uppercase()
}

/// Returns a name made of letters, digits and underlines, which does not begin with a digit.
fn letters(name: &str) -> String {
    let text: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) { format!("_{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_becomes_an_identifier() {
        let cases = [
            ("new_order", "new_order"),
            ("new-order", "new_order"),
            ("2pl", "_2pl"),
            ("type", "r#type"),
            ("gen", "r#gen"),
            ("self", "self_"),
            ("_", "__"),
            ("", "__"),
            ("\u{fc}ber", "_ber"),
        ];
        for (name, wanted) in cases {
            assert_eq!(identifier(name), wanted, "{name:?}");
        }
        assert_eq!((constant("type"), constant("2nd")), ("TYPE".into(), "_2ND".into()));
    }
}
