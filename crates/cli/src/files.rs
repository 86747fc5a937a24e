//! Files that results go to: tried before the measuring, written whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::UserError;

/// A file to be written later.
#[derive(Debug)]
pub(crate) struct Target(PathBuf);

impl Target {
    /// Makes sure that the file can be written, before hours of work go into it.
    pub(crate) fn new(path: &Path) -> Result<Self, UserError> {
        let target = Target(path.to_path_buf());
        if path.is_dir() {
            return Err(target.error("it is a folder"));
        }
        let existed = path.exists();
        OpenOptions::new().append(true).create(true).open(path).map_err(|error| target.error(&error.to_string()))?;
        if !existed {
            // Nothing is left behind if the run comes to nothing.
            let _ = fs::remove_file(path);
        }
        Ok(target)
    }

    fn error(&self, why: &str) -> UserError {
        UserError(format!("can't write {}: {why}", self.0.display()))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the file by way of a neighbour, so that a full disk leaves what was there before.
    pub(crate) fn write(&self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), UserError> {
        let error = |error: std::io::Error| self.error(&error.to_string());
        if self.0.exists() && !self.0.is_file() {
            // A device or a pipe has no neighbour to be replaced by.
            let mut file = std::io::BufWriter::new(OpenOptions::new().write(true).open(&self.0).map_err(error)?);
            return fill(&mut file).and_then(|()| file.flush()).map_err(error);
        }
        let mut name = self.0.file_name().unwrap_or_default().to_os_string();
        name.push(format!(".{}.part", std::process::id()));
        let part = self.0.with_file_name(name);
        let written = fs::File::create(&part).and_then(|file| {
            let mut file = std::io::BufWriter::new(file);
            fill(&mut file)?;
            file.flush()
        });
        written.and_then(|()| fs::rename(&part, &self.0)).map_err(|failure| {
            let _ = fs::remove_file(&part);
            error(failure)
        })
    }

    /// Writes text.
    pub(crate) fn write_text(&self, text: &str) -> Result<(), UserError> {
        self.write(|file| file.write_all(text.as_bytes()))
    }
}

/// A folder that exists, made if need be.
pub(crate) fn folder(path: &Path) -> Result<&Path, UserError> {
    fs::create_dir_all(path)
        .map_err(|error| UserError(format!("can't make the folder {}: {error}", path.display())))?;
    Ok(path)
}
