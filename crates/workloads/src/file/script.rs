//! Scripts: lines with a backslash, and SQL statements between them.

use super::error::{Mistake, Place, Read, mistake};

/// A text of a script, and the place where it begins.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) at: Place,
}

/// A part of a script.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    /// `\set NAME EXPRESSION`.
    Set {
        name: String,
        expression: Text,
    },
    If(Text),
    Elif(Text),
    Else,
    EndIf,
    Repeat(Text),
    EndRepeat,
    /// `\foreach SELECT`.
    ForEach(Text),
    EndForEach,
    /// `\sleep AMOUNT UNIT`, with the unit in microseconds.
    Sleep {
        amount: Text,
        unit: u32,
    },
    /// A statement. `variables` is the prefix of the variables that take its columns (`\gset`).
    Sql {
        text: String,
        variables: Option<String>,
    },
}

/// The commands of the language, for messages.
const COMMANDS: &str =
    "\\set, \\if, \\elif, \\else, \\endif, \\repeat, \\endrepeat, \\foreach, \\endforeach, \\sleep, \\gset";

/// Splits a script into its parts, each with its place.
pub(super) fn split(script: &str) -> Read<Vec<(Part, Place)>> {
    let mut parts = Vec::new();
    let mut sql = String::new();
    let mut sql_at = Place::default();
    for (number, line) in script.lines().enumerate() {
        let line_number = number as u64 + 1;
        let line = &line[..comment_at(line, &sql)];
        let trimmed = line.trim_start();
        let at = Place { line: line_number, column: (line.len() - trimmed.len()) as u64 + 1 };
        if sql.trim().is_empty() && trimmed.starts_with('\\') {
            parts.push((command(trimmed.trim_end(), at)?, at));
            continue;
        }
        if sql.trim().is_empty() {
            sql.clear();
            sql_at = Place { line: line_number, column: 1 };
        }
        let mut rest = line;
        // A statement ends with a semicolon or \gset outside of a text.
        while let Some((end, length)) = end_of(rest, &sql) {
            sql.push_str(&rest[..end]);
            let is_gset = length > 1;
            rest = &rest[end + length..];
            let mut variables = None;
            if is_gset {
                let prefix = rest.trim();
                if !prefix.chars().all(is_of_name) {
                    return mistake(
                        at,
                        format!("\\gset is followed by '{prefix}'; valid: a prefix of variables, or nothing"),
                    );
                }
                variables = Some(prefix.to_lowercase());
                rest = "";
            }
            let text = std::mem::take(&mut sql);
            if !is_blank(&text) {
                parts.push((Part::Sql { text, variables }, sql_at));
            } else if is_gset {
                return mistake(at, "\\gset follows no statement");
            }
            sql_at = Place { line: line_number, column: (line.len() - rest.len()) as u64 + 1 };
        }
        sql.push_str(rest);
        sql.push('\n');
    }
    if !is_blank(&sql) {
        return mistake(sql_at, "the last statement has no ';' and no \\gset");
    }
    Ok(parts)
}

/// Whether a letter may stand in the name of a variable.
fn is_of_name(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
}

/// Whether a text has nothing but blanks.
fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

/// Returns where the comment of a line begins, or the line's length. `before` is the part of the
/// statement on earlier lines.
fn comment_at(line: &str, before: &str) -> usize {
    let mut in_text = before.matches('\'').count() % 2 == 1;
    for (at, letter) in line.char_indices() {
        match letter {
            '\'' => in_text = !in_text,
            '-' if !in_text && line[at..].starts_with("--") => return at,
            _ => {}
        }
    }
    line.len()
}

/// Returns where a statement ends in a line, and the length of its end. `before` is the part of the
/// statement on earlier lines.
fn end_of(line: &str, before: &str) -> Option<(usize, usize)> {
    let mut in_text = before.matches('\'').count() % 2 == 1;
    for (at, letter) in line.char_indices() {
        match letter {
            '\'' => in_text = !in_text,
            _ if in_text => {}
            ';' => {
                // `;` before \gset is as good as none.
                let behind = line[at + 1..].trim_start();
                let skipped = line.len() - behind.len() - at;
                return Some((at, if behind.starts_with("\\gset") { skipped + "\\gset".len() } else { 1 }));
            }
            '\\' if line[at..].starts_with("\\gset") => return Some((at, "\\gset".len())),
            _ => {}
        }
    }
    None
}

fn command(line: &str, at: Place) -> Read<Part> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let rest = rest.trim();
    // The place of a part of the line, which begins at `at`.
    let placed = |part: &str| {
        let before = part.as_ptr() as usize - line.as_ptr() as usize;
        let column = at.column + line[..before].chars().count() as u64;
        Text { text: part.to_owned(), at: Place { column, ..at } }
    };
    let needs = |what: &str| -> Read<Text> {
        if rest.is_empty() { mistake(at, format!("{word} has no {what}")) } else { Ok(placed(rest)) }
    };
    let alone = |part: Part| {
        if rest.is_empty() { Ok(part) } else { mistake(at, format!("{word} is followed by '{rest}'; valid: nothing")) }
    };
    match word {
        "\\set" => {
            let Some((name, expression)) = rest.split_once(char::is_whitespace) else {
                return mistake(at, "\\set has no variable and no expression");
            };
            let is_first = |first: char| first.is_ascii_alphabetic() || first == '_';
            if !name.starts_with(is_first) || !name.chars().all(is_of_name) {
                return mistake(at, format!("'{name}' is no name of a variable; valid: letters, digits and _"));
            }
            Ok(Part::Set { name: name.to_lowercase(), expression: placed(expression.trim()) })
        }
        "\\if" => Ok(Part::If(needs("condition")?)),
        "\\elif" => Ok(Part::Elif(needs("condition")?)),
        "\\else" => alone(Part::Else),
        "\\endif" => alone(Part::EndIf),
        "\\repeat" => Ok(Part::Repeat(needs("number of rounds")?)),
        "\\endrepeat" => alone(Part::EndRepeat),
        "\\foreach" => Ok(Part::ForEach(needs("select")?)),
        "\\endforeach" => alone(Part::EndForEach),
        "\\sleep" => {
            let (amount, unit) = rest.rsplit_once(char::is_whitespace).unwrap_or((rest, "s"));
            let unit = match unit {
                "us" => 1,
                "ms" => 1_000,
                "s" => 1_000_000,
                _ => return mistake(at, format!("the unit of \\sleep is '{unit}'; valid: us, ms, s")),
            };
            if amount.is_empty() {
                return mistake(at, "\\sleep has no time");
            }
            Ok(Part::Sleep { amount: placed(amount), unit })
        }
        "\\gset" => mistake(at, "\\gset follows no statement"),
        _ => Err(Mistake { place: at, message: format!("unknown command '{word}'; valid: {COMMANDS}") }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_end_where_they_should() {
        let script = "-- a comment; no statement\nBEGIN;\n\\set x 1\nselect a\n from t; \\gset p_\nselect ';', '''' from t;select 1 \\gset\n  \\endif\n";
        let parts = split(script).expect("valid");
        let sql = |text: &str, variables: Option<&str>| Part::Sql {
            text: text.into(),
            variables: variables.map(str::to_owned),
        };
        assert_eq!(parts.len(), 6, "{parts:?}");
        let one = Text { text: "1".into(), at: Place { line: 3, column: 8 } };
        assert_eq!(parts[1].0, Part::Set { name: "x".into(), expression: one });
        assert_eq!(parts[2], (sql("select a\n from t", Some("p_")), Place { line: 4, column: 1 }));
        assert_eq!(parts[3], (sql("select ';', '''' from t", None), Place { line: 6, column: 1 }));
        assert_eq!(parts[4], (sql("select 1 ", Some("")), Place { line: 6, column: 25 }));
        assert_eq!(parts[5], (Part::EndIf, Place { line: 7, column: 3 }));
    }

    #[test]
    fn mistakes_have_places() {
        for (script, line, part) in [
            ("select 1", 1, "no ';'"),
            ("select 1;\n\\sett x 1", 2, "unknown command '\\sett'; valid: \\set, "),
            ("\\set x", 1, "no expression"),
            ("\\set 1x 2", 1, "'1x'"),
            ("\\if", 1, "no condition"),
            ("\\endif 3", 1, "followed by '3'"),
            ("\\sleep 3 days", 1, "'days'; valid: us, ms, s"),
            ("\n\\gset", 2, "follows no statement"),
            ("select 1 \\gset a b", 1, "followed by 'a b'"),
        ] {
            let error = split(script).expect_err(script);
            assert!(error.place.line == line && error.message.contains(part), "{script}: {error:?}");
        }
    }
}
