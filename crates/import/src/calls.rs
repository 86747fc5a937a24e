//! From a logged statement to templates: the SQL without its constants, and the constants.
//!
//! A template has the same text for all statements that differ in constants, comments, blanks, the
//! case of words, or casts. A list (`in (1, 2)`, `= any('{1,2}')`, several rows of `values`)
//! becomes one call for each element, so that its length makes no template of its own.

use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::tokenizer::{Token, Tokenizer};

/// The most elements of a list that become calls.
const ELEMENTS_MAX: usize = 1000;

/// A constant of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Literal {
    /// The trace does not give it.
    Unknown,
    /// It is null.
    Null,
    /// Its text, without quotes.
    Given(String),
}

/// One call of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    /// The template, with `$1`, `$2`, ... for the constants.
    pub(crate) template: String,
    pub(crate) values: Vec<Literal>,
}

/// A token of a statement without blanks.
#[derive(Clone, Debug, PartialEq)]
enum Item {
    Word(String),
    Mark(String),
    Value(Literal),
}

impl Item {
    fn is(&self, text: &str) -> bool {
        matches!(self, Item::Word(word) | Item::Mark(word) if word == text)
    }
}

/// Divides a logged text into its statements, and each statement into calls. `parameters` are the
/// values of `$1`, `$2`, ...
///
/// # Errors
/// The text is no SQL; the message says where.
pub(crate) fn calls_of(sql: &str, parameters: &[Literal]) -> Result<Vec<Vec<Call>>, String> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().map_err(|error| error.to_string())?;
    let mut statements = Vec::new();
    for tokens in tokens.split(|token| *token == Token::SemiColon) {
        let items = without_casts(items_of(tokens, parameters));
        if !items.is_empty() {
            statements.push(expanded(items).iter().map(|items| call_of(items)).collect());
        }
    }
    Ok(statements)
}

fn items_of(tokens: &[Token], parameters: &[Literal]) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut in_cast = false;
    for token in tokens {
        let item = match token {
            Token::Whitespace(_) => continue,
            Token::Word(word) => match (word.quote_style, word.value.to_lowercase()) {
                (Some(_), _) => Item::Word(format!("\"{}\"", word.value.replace('"', "\"\""))),
                (None, text) if text == "true" || text == "false" => Item::Value(Literal::Given(text)),
                (None, text) if text == "null" && is_operand(items.last()) => Item::Value(Literal::Null),
                (None, text) => Item::Word(text),
            },
            Token::Number(digits, _) if in_cast => Item::Mark(digits.clone()),
            Token::Number(digits, _) => {
                let is_unary = items.last().is_some_and(|item| item.is("-"))
                    && is_before_operand(items.len().checked_sub(2).map(|at| &items[at]));
                let sign = if is_unary { "-" } else { "" };
                if is_unary {
                    items.pop();
                }
                Item::Value(Literal::Given(format!("{sign}{digits}")))
            }
            Token::SingleQuotedString(text)
            | Token::EscapedStringLiteral(text)
            | Token::UnicodeStringLiteral(text)
            | Token::NationalStringLiteral(text)
            | Token::HexStringLiteral(text)
            | Token::SingleQuotedByteStringLiteral(text) => {
                // `date '2026-01-01'` is a text whose type stands before it.
                if matches!(items.last(), Some(Item::Word(word)) if TYPED.contains(&word.as_str())) {
                    items.pop();
                }
                Item::Value(Literal::Given(text.clone()))
            }
            Token::DollarQuotedString(text) => Item::Value(Literal::Given(text.value.clone())),
            Token::Placeholder(name) => {
                let number = name.trim_start_matches(['$', ':']).parse::<usize>().ok();
                let value = number.and_then(|number| parameters.get(number.wrapping_sub(1)));
                Item::Value(value.cloned().unwrap_or(Literal::Unknown))
            }
            other => Item::Mark(other.to_string()),
        };
        in_cast = match (&item, in_cast) {
            (item, _) if item.is("::") => true,
            (item, true) => !(item.is(")") || item.is(",")),
            (_, false) => false,
        };
        items.push(item);
    }
    items
}

/// Words that may stand before a text as its type.
const TYPED: [&str; 5] = ["date", "time", "timestamp", "timestamptz", "interval"];

/// Whether `null` behind this item is a value: in `is null`, `not null` and `set null` it is none.
fn is_operand(before: Option<&Item>) -> bool {
    !before.is_some_and(|item| item.is("is") || item.is("not"))
}

/// Whether an operand comes behind this item, so that a minus there is a sign.
fn is_before_operand(before: Option<&Item>) -> bool {
    const WORDS: [&str; 17] = [
        "between", "and", "or", "then", "else", "when", "limit", "offset", "select", "in", "not", "return", "set",
        "values", "like", "by", "case",
    ];
    match before {
        None => true,
        Some(Item::Word(word)) => WORDS.contains(&word.as_str()),
        Some(Item::Mark(mark)) => mark != ")" && mark != "]",
        Some(Item::Value(_)) => false,
    }
}

/// Leaves out casts (`::type`), which change no row that is accessed.
fn without_casts(items: Vec<Item>) -> Vec<Item> {
    const REST: [&str; 6] = ["varying", "precision", "with", "without", "time", "zone"];
    let mut kept = Vec::new();
    let mut rest = items.into_iter().peekable();
    while let Some(item) = rest.next() {
        if !item.is("::") {
            kept.push(item);
            continue;
        }
        rest.next();
        while let Some(next) = rest.peek() {
            let is_rest = matches!(next, Item::Word(word) if REST.contains(&word.as_str()));
            let opens = next.is("(") || next.is("[");
            if !is_rest && !opens {
                break;
            }
            rest.next();
            while opens && rest.next().is_some_and(|inner| !inner.is(")") && !inner.is("]")) {}
        }
    }
    kept
}

/// Returns a statement for each element of its first list, or the statement itself.
fn expanded(items: Vec<Item>) -> Vec<Vec<Item>> {
    if let Some(groups) = rows_of_values(&items) {
        let (begin, end) = (groups[0].start, groups.last().expect("two or more").end);
        let one = |group: &std::ops::Range<usize>| [&items[..begin], &items[group.clone()], &items[end..]].concat();
        return groups.iter().take(ELEMENTS_MAX).map(one).collect();
    }
    let Some((begin, end, elements)) = list_of(&items) else { return vec![items] };
    let one = |element: Literal| {
        let equal = [Item::Mark("=".into()), Item::Value(element)];
        [&items[..begin], &equal, &items[end..]].concat()
    };
    elements.into_iter().take(ELEMENTS_MAX).map(one).collect()
}

/// Returns the places of the rows behind `values`, if there are several.
fn rows_of_values(items: &[Item]) -> Option<Vec<std::ops::Range<usize>>> {
    let start = items.iter().position(|item| item.is("values"))? + 1;
    let (mut groups, mut depth, mut begin) = (Vec::new(), 0usize, start);
    for (at, item) in items.iter().enumerate().skip(start) {
        match item {
            _ if item.is("(") => {
                if depth == 0 {
                    begin = at;
                }
                depth += 1;
            }
            _ if item.is(")") => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    groups.push(begin..at + 1);
                }
            }
            _ if depth == 0 && !item.is(",") => break,
            _ => {}
        }
    }
    (groups.len() > 1 && depth == 0).then_some(groups)
}

/// Returns the first list of constants of a condition: where it begins and ends, and its elements.
fn list_of(items: &[Item]) -> Option<(usize, usize, Vec<Literal>)> {
    for (at, item) in items.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| &items[before]);
        if item.is("in") && !before.is_some_and(|item| item.is("not")) && items.get(at + 1)?.is("(") {
            let inner = &items[at + 2..];
            let length = inner.iter().position(|item| item.is(")"))?;
            let values = inner[..length].iter().enumerate().map(|(number, item)| match item {
                Item::Value(value) if number % 2 == 0 => Some(Some(value.clone())),
                item if number % 2 == 1 && item.is(",") => Some(None),
                _ => None,
            });
            let values: Option<Vec<Option<Literal>>> = values.collect();
            if let Some(values) = values
                && length > 0
            {
                return Some((at, at + 3 + length, values.into_iter().flatten().collect()));
            }
        }
        let Some([equal, any, open, Item::Value(array), close]) = items.get(at..at + 5) else { continue };
        if equal.is("=") && any.is("any") && open.is("(") && close.is(")") {
            let elements = match array {
                Literal::Given(text) => {
                    let inner = text.trim().trim_start_matches('{').trim_end_matches('}');
                    let one = |element: &str| Literal::Given(element.trim().trim_matches('"').to_owned());
                    inner.split(',').filter(|element| !element.trim().is_empty()).map(one).collect()
                }
                _ => vec![Literal::Unknown],
            };
            return Some((at, at + 5, elements));
        }
    }
    None
}

fn call_of(items: &[Item]) -> Call {
    let mut template = String::new();
    let mut values = Vec::new();
    for (number, item) in items.iter().enumerate() {
        let glued = number == 0
            || item.is(".")
            || item.is(",")
            || item.is(")")
            || items[number - 1].is(".")
            || items[number - 1].is("(");
        if !glued {
            template.push(' ');
        }
        match item {
            Item::Word(text) | Item::Mark(text) => template.push_str(text),
            Item::Value(value) => {
                values.push(value.clone());
                template.push_str(&format!("${}", values.len()));
            }
        }
    }
    Call { template, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(sql: &str) -> (String, Vec<Literal>) {
        let mut statements = calls_of(sql, &[]).unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!(statements.len(), 1, "{sql}");
        assert_eq!(statements[0].len(), 1, "{sql}");
        let Call { template, values } = statements.swap_remove(0).swap_remove(0);
        (template, values)
    }

    fn given(values: &[&str]) -> Vec<Literal> {
        values.iter().map(|value| Literal::Given((*value).into())).collect()
    }

    #[test]
    fn constants_comments_blanks_and_casts_are_taken_out() {
        for (sql, template, values) in [
            ("SELECT  a FROM t\n WHERE id=5", "select a from t where id = $1", &["5"][..]),
            ("/* app:x */ select a -- why\nfrom t where id = '5'::bigint", "select a from t where id = $1", &["5"]),
            ("update t set a = a + -7, b = b - 3", "update t set a = a + $1, b = b - $2", &["-7", "3"]),
            ("insert into t values (-1, 'it''s')", "insert into t values ($1, $2)", &["-1", "it's"]),
            ("select * from \"T\" where d > date '2026-01-02'", "select * from \"T\" where d > $1", &["2026-01-02"]),
            ("select a from t where b between -3 and -1", "select a from t where b between $1 and $2", &["-3", "-1"]),
            ("select a::numeric(9, 2) from t", "select a from t", &[]),
            (
                "select a from t where b is not null and c = true",
                "select a from t where b is not null and c = $1",
                &["true"],
            ),
        ] {
            assert_eq!(only(sql), (template.to_owned(), given(values)), "{sql}");
        }
        assert_eq!(only("update t set a = NULL").1, [Literal::Null]);
    }

    #[test]
    fn parameters_take_their_values() {
        let values = [Literal::Given("7".into()), Literal::Null];
        let calls = calls_of("select a from t where id = $2 and b = $1 and c = $3", &values).expect("SQL");
        assert_eq!(calls[0][0].values, [Literal::Null, Literal::Given("7".into()), Literal::Unknown]);
    }

    #[test]
    fn lists_become_calls() {
        let calls = calls_of("select a from t where id in (1, 2, 3) and b = 4; commit", &[]).expect("SQL");
        assert_eq!(calls.len(), 2);
        assert_eq!(calls[0].len(), 3);
        assert_eq!(calls[0][1].template, "select a from t where id = $1 and b = $2");
        assert_eq!(calls[0][2].values, given(&["3", "4"]));
        let calls = calls_of("insert into t (a, b) values (1, f(2)), (3, 4) on conflict do nothing", &[]).expect("SQL");
        assert_eq!(calls[0][1].template, "insert into t (a, b) values ($1, $2) on conflict do nothing");
        let array = [Literal::Given("{8,9}".into())];
        let calls = calls_of("delete from t where id = ANY($1::int[])", &array).expect("SQL");
        assert_eq!(calls[0][1], Call { template: "delete from t where id = $1".into(), values: given(&["9"]) });
        assert_eq!(only("select a from t where id not in (1)").0, "select a from t where id not in ($1)");
        assert!(calls_of("select 'open", &[]).is_err());
    }
}
