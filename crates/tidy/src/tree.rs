//! The files of the repository.

use std::path::{Path, PathBuf};

use crate::source::Source;

/// A text file that is not Rust.
#[derive(Debug)]
pub struct Text {
    /// The file, from the root of the repository.
    pub path: String,
    /// Its lines.
    pub lines: Vec<String>,
}

impl Text {
    /// Reads a file's text.
    pub fn parse(path: &str, text: &str) -> Text {
        Text { path: path.to_owned(), lines: text.lines().map(str::to_owned).collect() }
    }
}

/// All files that a rule may read.
#[derive(Debug, Default)]
pub struct Tree {
    /// The Rust files of all crates and of `fuzz`, sorted by path.
    pub rust: Vec<Source>,
    /// The documents: files in Markdown.
    pub documents: Vec<Text>,
    /// Scripts: shell and Python.
    pub scripts: Vec<Text>,
}

impl Tree {
    /// Reads the repository that this crate belongs to.
    ///
    /// # Panics
    /// A file can't be read.
    pub fn of_repository() -> Tree {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut paths = Vec::new();
        walk(&root, &root, &mut paths);
        paths.sort();
        let mut tree = Tree::default();
        for path in paths {
            let name = path.to_str().expect("the repository's names are UTF-8");
            let text = || std::fs::read_to_string(root.join(&path)).unwrap_or_else(|error| panic!("{name}: {error}"));
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("rs") => tree.rust.push(Source::parse(name, &text())),
                Some("md") => tree.documents.push(Text::parse(name, &text())),
                Some("py") => tree.scripts.push(Text::parse(name, &text())),
                _ if name.starts_with(".ci/") => tree.scripts.push(Text::parse(name, &text())),
                _ => {}
            }
        }
        tree
    }

    /// Returns the Rust file of this path.
    pub fn source(&self, path: &str) -> Option<&Source> {
        self.rust.iter().find(|source| source.path == path)
    }

    /// Returns the document of this path.
    pub fn document(&self, path: &str) -> Option<&Text> {
        self.documents.iter().find(|text| text.path == path)
    }

    #[cfg(test)]
    pub(crate) fn of_rust(files: &[(&str, &str)]) -> Tree {
        Tree { rust: files.iter().map(|(path, text)| Source::parse(path, text)).collect(), ..Tree::default() }
    }
}

/// Collects the files below `folder`, from the root. What is built, or brought from elsewhere, is
/// left out.
fn walk(root: &Path, folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let entry = entry.expect("a folder's entry");
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_str().unwrap_or_default();
        let is_hidden = name.starts_with('.') && ![".ci", ".github"].contains(&name);
        let is_brought =
            name.starts_with("target") || ["contend-results", "shared", "corpus", "artifacts"].contains(&name);
        if is_hidden || is_brought {
            continue;
        }
        // A link leads out of the repository, or to a file that is here anyway.
        let kind = entry.file_type().expect("a file's type");
        if kind.is_dir() {
            walk(root, &path, paths);
        } else if kind.is_file() {
            paths.push(path.strip_prefix(root).expect("below the root").to_owned());
        }
    }
}
