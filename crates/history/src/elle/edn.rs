//! As much of EDN as histories of Jepsen are written in: <https://github.com/edn-format/edn>.
//!
//! Keywords, symbols and characters become strings, every collection but a map a list, and a tag is
//! skipped: what it tells (`#jepsen.history.Op`) the map behind it tells as well.

use serde_json::{Map, Number, Value};

/// Collections within one another.
const DEPTH_MAX: usize = 64;

pub(super) struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// The line of position `counted_to`, from 1.
    line: usize,
    counted_to: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Reader { text, at: 0, line: 1, counted_to: 0 }
    }

    /// The next value, if there is one, and the line on which it begins.
    pub(super) fn next(&mut self) -> Result<Option<(usize, Value)>, String> {
        self.skip_blanks(0)?;
        let line = self.line();
        if self.at == self.text.len() {
            return Ok(None);
        }
        self.value(0).map(|value| Some((line, value)))
    }

    /// The line that the reader has come to. Each part of the text is counted once.
    fn line(&mut self) -> usize {
        self.line += self.text[self.counted_to..self.at].matches('\n').count();
        self.counted_to = self.at;
        self.line
    }

    fn error<T>(&mut self, message: impl std::fmt::Display) -> Result<T, String> {
        Err(format!("line {}: {message}", self.line()))
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    /// Takes characters as long as they are like this.
    fn take(&mut self, is_like: impl Fn(char) -> bool) -> &'a str {
        let rest = &self.text[self.at..];
        let length = rest.find(|c| !is_like(c)).unwrap_or(rest.len());
        self.at += length;
        &rest[..length]
    }

    /// Skips blanks, commas, comments, and values behind `#_`.
    fn skip_blanks(&mut self, depth: usize) -> Result<(), String> {
        // Values to be skipped: `#_ #_ a b` skips two.
        let mut discarded = 0_usize;
        loop {
            self.take(|c| c.is_whitespace() || c == ',');
            let rest = &self.text[self.at..];
            if rest.starts_with(';') {
                self.take(|c| c != '\n');
            } else if rest.starts_with("#_") {
                self.at += 2;
                discarded += 1;
            } else if discarded > 0 {
                self.value(depth + 1)?;
                discarded -= 1;
            } else {
                return Ok(());
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        if depth > DEPTH_MAX {
            return self.error(format_args!("more than {DEPTH_MAX} collections within one another"));
        }
        let Some(first) = self.peek() else { return self.error("the file ends where a value should be") };
        match first {
            '{' => {
                let all = self.list('}', depth)?;
                if !all.len().is_multiple_of(2) {
                    return self.error("a map has a key without a value");
                }
                let mut pairs = Map::new();
                let mut all = all.into_iter();
                while let (Some(key), Some(value)) = (all.next(), all.next()) {
                    // Written out as a string, a key that is a map would double its escapes with
                    // each map around it.
                    if key.is_object() || key.is_array() {
                        return self.error("a key of a map is a word, a number or a string, and no collection");
                    }
                    pairs.insert(super::name(&key), value);
                }
                Ok(Value::Object(pairs))
            }
            '[' => self.list(']', depth).map(Value::Array),
            '(' => self.list(')', depth).map(Value::Array),
            '"' => self.string(),
            '#' if self.text[self.at..].starts_with("#{") => {
                self.at += 1;
                self.list('}', depth).map(Value::Array)
            }
            '#' => {
                self.take(|c| !is_end(c));
                self.skip_blanks(depth)?;
                self.value(depth + 1)
            }
            '}' | ']' | ')' => self.error(format_args!("'{first}' closes nothing")),
            _ => {
                let word = self.take(|c| !is_end(c));
                Ok(atom(word))
            }
        }
    }

    /// The values up to the one that closes.
    fn list(&mut self, close: char, depth: usize) -> Result<Vec<Value>, String> {
        let line = self.line();
        self.at += 1;
        let mut all = Vec::new();
        loop {
            self.skip_blanks(depth)?;
            match self.peek() {
                Some(next) if next == close => {
                    self.at += 1;
                    return Ok(all);
                }
                Some(_) => all.push(self.value(depth + 1)?),
                None => return Err(format!("line {line}: the file ends before the '{close}' of what begins here")),
            }
        }
    }

    fn string(&mut self) -> Result<Value, String> {
        let line = self.line();
        self.at += 1;
        let mut text = String::new();
        let mut escaped = false;
        for c in self.text[self.at..].chars() {
            self.at += c.len_utf8();
            match c {
                _ if escaped => {
                    text.push(match c {
                        'n' => '\n',
                        't' => '\t',
                        'r' => '\r',
                        other => other,
                    });
                    escaped = false;
                }
                '\\' => escaped = true,
                '"' => return Ok(Value::String(text)),
                other => text.push(other),
            }
        }
        Err(format!("line {line}: the file ends within a string that begins here"))
    }
}

/// Whether a word ends before this character.
fn is_end(c: char) -> bool {
    c.is_whitespace() || ",;\"{}[]()".contains(c)
}

/// A word that is no collection and no string.
fn atom(word: &str) -> Value {
    match word {
        "nil" => return Value::Null,
        "true" => return Value::Bool(true),
        "false" => return Value::Bool(false),
        _ => {}
    }
    let digits = word.strip_suffix(['N', 'M']).unwrap_or(word);
    if let Ok(number) = digits.parse::<i64>() {
        return Value::Number(number.into());
    }
    let is_number = digits.starts_with(|c: char| c.is_ascii_digit() || c == '-' || c == '+');
    let float = digits.parse().ok().filter(|_| is_number).and_then(Number::from_f64);
    float.map_or_else(|| Value::String(word.strip_prefix(':').unwrap_or(word).to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Vec<Value>, String> {
        let mut reader = Reader::new(text);
        std::iter::from_fn(|| reader.next().map(|next| next.map(|(_, value)| value)).transpose()).collect()
    }

    #[test]
    fn what_jepsen_writes_is_read() {
        let text = "; a comment\n#jepsen.history.Op{:index 0, :time 1.5, :type :ok, :value [[:append 3 12N] [:r \"a\\\"b\" nil]]}\n(1 #_ 2 #{true})";
        let expected = serde_json::json!([
            {"index": 0, "time": 1.5, "type": "ok", "value": [["append", 3, 12], ["r", "a\"b", null]]},
            [1, [true]],
        ]);
        assert_eq!(all(text).map(Value::Array), Ok(expected));
    }

    #[test]
    fn what_is_no_edn_is_refused_with_its_line() {
        for (text, part) in [
            ("\n{:a", "line 2: the file ends before the '}'"),
            ("{:a}", "a key without a value"),
            ("]", "']' closes nothing"),
            ("\"a", "within a string"),
            (&"[".repeat(100), "more than 64"),
            ("{{:a 1} 2}", "no collection"),
            ("#_ #_ a", "the file ends where a value"),
            ("#a", "the file ends where a value"),
        ] {
            let error = all(text).expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
