//! A Rust file, its code apart from its comments.

use std::ops::Range;

/// A Rust file as the rules read it.
#[derive(Debug)]
pub struct Source {
    /// The file, from the root of the repository.
    pub path: String,
    /// The lines as they stand in the file.
    pub lines: Vec<String>,
    /// The code of each line. Comments are left out, and so are the contents of strings.
    pub code: Vec<String>,
    /// The text of the comments of each line, with their slashes.
    pub comments: Vec<String>,
    /// The contents of each string, with the line on which the string begins (from 0).
    pub strings: Vec<(usize, String)>,
    /// Whether each line is code of tests.
    pub is_test: Vec<bool>,
}

impl Source {
    /// Reads a file's text.
    pub fn parse(path: &str, text: &str) -> Source {
        let mut lexer = Lexer::new(text);
        lexer.run();
        let code: Vec<String> = lexer.code.lines().map(str::to_owned).collect();
        let comments: Vec<String> = lexer.comments.lines().map(str::to_owned).collect();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let mut is_test = vec![is_test_file(path); lines.len()];
        let mut source =
            Source { path: path.to_owned(), lines, code, comments, strings: lexer.strings, is_test: Vec::new() };
        for lines in source.test_items() {
            is_test[lines].fill(true);
        }
        source.is_test = is_test;
        source
    }

    /// Returns the code as one text. Offsets in it lead back to lines by [`Source::line_at`].
    pub fn joined(&self) -> String {
        self.code.join("\n")
    }

    /// Returns the line (from 0) of an offset into [`Source::joined`].
    pub fn line_at(&self, offset: usize) -> usize {
        let mut end = 0;
        for (number, line) in self.code.iter().enumerate() {
            end += line.len() + 1;
            if offset < end {
                return number;
            }
        }
        self.code.len().saturating_sub(1)
    }

    /// The lines of the items that are compiled for tests only.
    fn test_items(&self) -> Vec<Range<usize>> {
        let code = self.joined();
        let mut items = Vec::new();
        let mut from = 0;
        while let Some(found) = code[from..].find("#[cfg(") {
            let begin = from + found;
            let Some(end) = closing(&code, begin + 1) else { break };
            let predicate = &code[begin..end];
            from = end;
            if words_of(predicate).any(|word| word == "test") && !predicate.contains("not(test)") {
                let end = end_of_item(&code, end);
                items.push(self.line_at(begin)..self.line_at(end.min(code.len() - 1)) + 1);
                from = end;
            }
        }
        items
    }
}

/// Whether all code of a file belongs to tests, benches or examples.
fn is_test_file(path: &str) -> bool {
    ["/tests/", "/benches/", "/examples/"].iter().any(|part| path.contains(part)) || path.ends_with("/tests.rs")
}

/// Returns the identifiers and numbers of a piece of code.
pub(crate) fn words_of(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the offset behind the bracket that closes the one at `open`.
pub(crate) fn closing(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0usize;
    for (offset, byte) in code.as_bytes().iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(offset + 1);
                }
            }
            _ => {}
        }
    }
    None
}

/// Returns the offset of the first `{` or `;` that stands in no bracket.
pub(crate) fn body_or_end(code: &str, from: usize) -> Option<usize> {
    let mut offset = from;
    while offset < code.len() {
        match code.as_bytes()[offset] {
            b'(' | b'[' => offset = closing(code, offset)?,
            b'{' | b';' => return Some(offset),
            _ => offset += 1,
        }
    }
    None
}

fn end_of_item(code: &str, from: usize) -> usize {
    let Some(offset) = body_or_end(code, from) else { return code.len() };
    if code.as_bytes()[offset] == b'{' { closing(code, offset).unwrap_or(code.len()) } else { offset }
}

struct Lexer {
    text: Vec<char>,
    at: usize,
    line: usize,
    code: String,
    comments: String,
    strings: Vec<(usize, String)>,
}

impl Lexer {
    fn new(text: &str) -> Self {
        let text = text.chars().collect();
        Lexer { text, at: 0, line: 0, code: String::new(), comments: String::new(), strings: Vec::new() }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).copied()
    }

    fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, c)| self.peek(ahead) == Some(c))
    }

    /// Takes a character. A line's end belongs to the code and to the comments.
    fn take(&mut self) -> Option<char> {
        let c = self.peek(0)?;
        self.at += 1;
        if c == '\n' {
            self.line += 1;
            self.code.push('\n');
            self.comments.push('\n');
        }
        Some(c)
    }

    fn take_code(&mut self) {
        match self.take() {
            None | Some('\n') => {}
            Some(c) => self.code.push(c),
        }
    }

    fn run(&mut self) {
        while let Some(c) = self.peek(0) {
            match c {
                '/' if self.peek(1) == Some('/') => self.line_comment(),
                '/' if self.peek(1) == Some('*') => self.block_comment(),
                '"' => self.string(),
                'r' if self.begins_raw_string() => self.raw_string(),
                '\'' if self.peek(1) == Some('\\') || self.peek(2) == Some('\'') => self.character(),
                _ => self.take_code(),
            }
        }
    }

    fn line_comment(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            let c = self.take();
            self.comments.extend(c);
        }
    }

    fn block_comment(&mut self) {
        let mut depth = 0;
        loop {
            if self.starts_with("/*") {
                depth += 1;
            } else if self.starts_with("*/") {
                depth -= 1;
            }
            let ends = depth == 0;
            match self.take() {
                None => return,
                Some('\n') => {}
                Some(c) => self.comments.push(c),
            }
            if ends {
                let slash = self.take();
                self.comments.extend(slash);
                return;
            }
        }
    }

    /// Takes characters up to `ends` as the contents of a string.
    fn contents(&mut self, begins: usize, mut ends: impl FnMut(&Lexer) -> bool, escapes: bool) {
        let mut contents = String::new();
        while !ends(self) {
            let escaped = escapes && self.peek(0) == Some('\\');
            for _ in 0..=usize::from(escaped) {
                match self.take() {
                    None => return,
                    Some(c) => contents.push(c),
                }
            }
        }
        self.strings.push((begins, contents));
    }

    fn string(&mut self) {
        let begins = self.line;
        self.take_code();
        self.contents(begins, |lexer| lexer.peek(0) == Some('"'), true);
        self.take_code();
    }

    fn begins_raw_string(&self) -> bool {
        let before = self.at.checked_sub(1).map(|at| self.text[at]);
        if before.is_some_and(|c| (c.is_alphanumeric() || c == '_') && c != 'b' && c != 'c') {
            return false;
        }
        let hashes = (1..).take_while(|&ahead| self.peek(ahead) == Some('#')).count();
        self.peek(1 + hashes) == Some('"')
    }

    fn raw_string(&mut self) {
        let begins = self.line;
        self.take_code();
        let hashes = (0..).take_while(|&ahead| self.peek(ahead) == Some('#')).count();
        for _ in 0..=hashes {
            self.take_code();
        }
        let end: String = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
        self.contents(begins, |lexer| lexer.starts_with(&end), false);
        for _ in 0..=hashes {
            self.take_code();
        }
    }

    /// A literal character. Its contents are left out, like those of a string.
    fn character(&mut self) {
        self.take_code();
        if self.peek(0) == Some('\\') {
            self.take();
        }
        self.take();
        while self.peek(0).is_some_and(|c| c != '\'') {
            self.take();
        }
        self.take_code();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_strings_are_no_code() {
        let text = "let a = \"// no comment\"; // \"a comment\"\nlet b = r#\"a \" b\"#; /* 1 /* 2 */ 3 */ c('\"', '\\'', 'x');\n";
        let source = Source::parse("crates/x/src/lib.rs", text);
        assert_eq!(source.code, ["let a = \"\"; ", "let b = r#\"\"#;  c('', '', '');"]);
        assert_eq!(source.comments, ["// \"a comment\"", "/* 1 /* 2 */ 3 */"]);
        assert_eq!(source.strings, [(0, "// no comment".to_owned()), (1, "a \" b".to_owned())]);
    }

    #[test]
    fn lifetimes_are_code_and_strings_may_have_lines() {
        let source =
            Source::parse("crates/x/src/lib.rs", "fn f<'a>(x: &'a str) {}\nlet s = \"one\ntwo \\\" three\";\nlet t;\n");
        assert_eq!(source.code, ["fn f<'a>(x: &'a str) {}", "let s = \"", "\";", "let t;"]);
        assert_eq!(source.strings.len(), 1);
    }

    #[test]
    fn items_of_tests_are_known() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(all(test, unix))]\nuse d;\nfn e() {}\n";
        let source = Source::parse("crates/x/src/lib.rs", text);
        assert_eq!(source.is_test, [false, true, true, true, true, false, true, true, false]);
        assert!(Source::parse("crates/x/tests/it/main.rs", "fn a() {}\n").is_test[0]);
    }
}
