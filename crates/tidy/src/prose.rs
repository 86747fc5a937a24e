//! How comments and documents are written: with nouns as subjects, within 100 columns.

use crate::{Finding, Source, Tree};

/// The most columns of a line of prose.
const COLUMNS: usize = 100;

/// Nouns after which "who" is no subject of its own.
const NOUNS: [&str; 4] = ["people", "someone", "anybody", "those"];

/// Finds bare "who", "so many" and the like in comments and documents.
pub fn words(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_line(tree, |path, line, prose| {
        findings.extend(bare(prose).map(|why| Finding::new(path, line, why)));
    });
    findings
}

/// Finds lines of prose that are longer than 100 columns. A table's row and a line with an address
/// can't be broken.
pub fn columns(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    each_line(tree, |path, line, prose| {
        let begins = prose.trim_start().trim_start_matches(['/', '!']).trim_start();
        let length = prose.chars().count();
        if length > COLUMNS && !begins.starts_with('|') && !prose.contains("://") {
            findings.push(Finding::new(path, line, format!("{length} columns of prose, more than {COLUMNS}")));
        }
    });
    findings
}

/// Calls `see` with each line that is prose: a comment that has its line for itself, or a line of a
/// document. Blocks of code are left out.
fn each_line(tree: &Tree, mut see: impl FnMut(&str, usize, &str)) {
    for source in &tree.rust {
        for (number, line) in comment_lines(source) {
            see(&source.path, number + 1, line);
        }
    }
    for document in &tree.documents {
        let mut is_code = false;
        for (number, line) in document.lines.iter().enumerate() {
            if line.trim_start().starts_with("```") {
                is_code = !is_code;
            } else if !is_code {
                see(&document.path, number + 1, line);
            }
        }
    }
}

fn comment_lines(source: &Source) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    source.comments.iter().enumerate().filter_map(move |(number, comment)| {
        let text = comment.trim_start_matches(['/', '!']).trim();
        if comment.is_empty() {
            is_code = false;
            return None;
        }
        if text.starts_with("```") {
            is_code = !is_code;
            return None;
        }
        let is_alone = source.code[number].trim().is_empty();
        (!is_code).then(|| (number, if is_alone { source.lines[number].as_str() } else { comment.as_str() }))
    })
}

/// The text without what stands between backticks or quotation marks: names, and titles of papers.
fn without_quotations(line: &str) -> String {
    let mut text = String::new();
    for (number, part) in line.split('`').enumerate() {
        text.push_str(if number % 2 == 0 { part } else { "_" });
    }
    let parts: Vec<&str> = text.split('"').collect();
    if parts.len().is_multiple_of(2) {
        // A quotation that goes on in the next line.
        return text;
    }
    parts.iter().enumerate().map(|(number, part)| if number % 2 == 0 { *part } else { "_" }).collect()
}

fn bare(line: &str) -> impl Iterator<Item = String> {
    let text = without_quotations(line);
    // With the comma that a word ends with, as a word of its own.
    let spaced = text.replace(',', " , ");
    let words: Vec<&str> = spaced
        .split(|c: char| !c.is_alphanumeric() && c != ',' && c != '\'' && c != '_')
        .filter(|word| !word.is_empty())
        .collect();
    let mut found = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let before = at.checked_sub(1).map_or("", |at| words[at]);
        let after = words.get(at + 1).copied().unwrap_or_default();
        match *word {
            "who" | "Who" | "whoever" | "Whoever" if !NOUNS.contains(&before.to_lowercase().as_str()) => {
                found.push(format!("a bare \"{word}\": name the thing that does it"));
            }
            "so" | "So" if ["many", "often", "long"].contains(&after) => {
                found.push(format!("\"{word} {after}\": name the number or the time"));
            }
            "of" | "to" | "by" | "from" if before == "," && ["which", "whom", "what"].contains(&after) => {
                found.push(format!("\", {word} {after}\": make it a sentence of its own"));
            }
            _ => {}
        }
    }
    found.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Text;

    #[test]
    fn bare_words_are_found_in_comments_and_not_in_code() {
        let text = "//! Who reads, waits.\nlet who = \"who\"; // so many rows\n/// Those who read, `who`, and a lock, of which one is held.\n/// ```\n/// let who = 1;\n/// ```\n";
        let tree = Tree::of_rust(&[("crates/x/src/lib.rs", text)]);
        let lines: Vec<usize> = words(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 2, 3]);
        let document = Text::parse("a.md", "People who read.\nAnd whoever writes, so often.\n\n```\nwho\n```\nwho\n");
        let tree = Tree { documents: vec![document], ..Tree::default() };
        let lines: Vec<usize> = words(&tree).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [2, 2, 7]);
    }

    #[test]
    fn long_lines_of_prose_are_found() {
        let long = "x".repeat(100);
        let text = format!("// {long}\n// | {long}\n// https://{long}\nlet {long} = 1;\n// short\n");
        let findings = columns(&Tree::of_rust(&[("crates/x/src/lib.rs", &text)]));
        assert_eq!(findings.iter().map(|finding| finding.line).collect::<Vec<_>>(), [1]);
    }
}
