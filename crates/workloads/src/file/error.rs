//! Mistakes in a workload file.

use sqlparser::tokenizer::Span;

/// A place in a text: a line and a column, both from 1. A line of 0 is no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: u64,
    pub(super) column: u64,
}

impl Place {
    /// Returns the place where a part of a statement begins, if the statement begins at `self`.
    pub(super) fn of(self, span: Span) -> Place {
        match (span.start.line, span.start.column) {
            (0, _) => self,
            (1, column) => Place { line: self.line, column: self.column + column - 1 },
            (line, column) => Place { line: self.line + line - 1, column },
        }
    }
}

/// A mistake, with its place in the script or the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) place: Place,
    pub(super) message: String,
}

impl Mistake {
    /// Returns the mistake as a sentence of the part `part` of a file ("transaction 'buy'").
    pub(super) fn in_part(&self, part: &str) -> String {
        match self.place {
            Place { line: 0, .. } => format!("{part}: {}", self.message),
            Place { line, column } => format!("{part}, line {line}, column {column}: {}", self.message),
        }
    }
}

/// The result of reading a part of a file.
pub(super) type Read<T> = Result<T, Mistake>;

/// Returns a mistake.
pub(super) fn mistake<T>(place: Place, message: impl Into<String>) -> Read<T> {
    Err(Mistake { place, message: message.into() })
}

/// Returns the mistake of an unknown name, with the valid ones.
pub(super) fn unknown<'a, T>(
    place: Place,
    what: &str,
    name: &str,
    valid: impl IntoIterator<Item = &'a str>,
) -> Read<T> {
    let valid: Vec<&str> = valid.into_iter().collect();
    let valid = if valid.is_empty() { "there is none".into() } else { format!("valid: {}", valid.join(", ")) };
    mistake(place, format!("unknown {what} '{name}'; {valid}"))
}

/// Returns the mistake that the SQL parser has found in a text that begins at `at`. The parser adds
/// the place to its message.
pub(super) fn of_parser(at: Place, error: &sqlparser::parser::ParserError) -> Mistake {
    use sqlparser::parser::ParserError;
    let message = match error {
        ParserError::TokenizerError(message) | ParserError::ParserError(message) => message.as_str(),
        ParserError::RecursionLimitExceeded => "too many parentheses inside each other",
    };
    let (message, place) = match message.rsplit_once(" at Line: ") {
        Some((message, place)) => {
            let mut numbers = place.split(", Column: ").map(|number| number.trim().parse().unwrap_or(1));
            let (line, column) = (numbers.next().unwrap_or(1), numbers.next().unwrap_or(1));
            let location = sqlparser::tokenizer::Location { line, column };
            (message, at.of(Span { start: location, end: location }))
        }
        None => (message, at),
    };
    Mistake { place, message: message.replace('\n', " ") }
}
