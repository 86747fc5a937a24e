//! Files of results. A file that a command will write is tried before the command's work begins. It
//! is written as a whole, or left as it was.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contend_lab::ResultFile;
use contend_lab::schema::has_control_characters;
use contend_lab::whole_file::{read_bounded, replace};

use crate::{UserError, show};

/// A file to be written later.
#[derive(Debug)]
pub(crate) struct Target(PathBuf);

impl Target {
    /// Makes sure that the file can be written, before hours of work go into its contents.
    ///
    /// # Errors
    /// The path is a folder, or the file can't be opened for writing.
    pub(crate) fn new(path: &Path) -> Result<Self, UserError> {
        let target = Target(path.to_path_buf());
        if path.is_dir() {
            return Err(target.refused("it is a folder"));
        }
        // Opening and closing a pipe would end its reader.
        if path.metadata().is_ok_and(|data| data.file_type().is_fifo()) {
            return Ok(target);
        }
        let existed = path.exists();
        OpenOptions::new().append(true).create(true).open(path).map_err(|error| target.refused(&error))?;
        if !existed {
            // A run that fails leaves no empty file behind.
            let _ = fs::remove_file(path);
        }
        Ok(target)
    }

    fn refused(&self, why: impl Display) -> UserError {
        UserError::refused(format!("can't write {}: {why}", self.0.display()))
    }

    /// Returns the file's path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the file: first to a new file beside it, which then takes its name. So a full disk
    /// leaves the old contents.
    ///
    /// # Errors
    /// The disk is full or fails.
    pub(crate) fn write(&self, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), UserError> {
        let error = |error: std::io::Error| UserError::refused(format!("can't write {}: {error}", self.0.display()));
        if self.0.exists() && !self.0.is_file() {
            // A device or a pipe can't be replaced by another file.
            let mut file = std::io::BufWriter::new(OpenOptions::new().write(true).open(&self.0).map_err(error)?);
            return fill(&mut file).and_then(|()| file.flush()).map_err(error);
        }
        replace(&self.0, fill).map_err(error)
    }

    /// Writes the file with this text, as [`write`](Target::write) does.
    pub(crate) fn write_text(&self, text: &str) -> Result<(), UserError> {
        self.write(|file| file.write_all(text.as_bytes()))
    }
}

/// Reads the result in a file, or in the folder of a run.
///
/// # Errors
/// The file can't be read, is too long, or is no result. The message names it.
pub(crate) fn read_result(path: &Path) -> Result<ResultFile, UserError> {
    let path = result_path(path);
    let text = read_text(&path, RESULT_BYTES_MAX, "a result")
        .map_err(|error| UserError::refused(format!("{}: {error}", path.display())))?;
    if has_control_characters(&text) {
        return Err(UserError::refused(format!(
            "{}: not a result file: a text in it has control characters",
            path.display()
        )));
    }
    let (result, note) =
        ResultFile::with_note(&text).map_err(|error| UserError::refused(format!("{}: {error}", path.display())))?;
    if let Some(note) = note {
        show::complain(&format!("note: {}: {note}", path.display()));
    }
    Ok(result)
}

/// Returns the text of a file that may come from a stranger.
///
/// # Errors
/// The file can't be read, or is longer than `bytes_max`, as an endless device is. `what` names the
/// kind of file in that message.
pub(crate) fn read_text(path: &Path, bytes_max: u64, what: &str) -> Result<String, String> {
    let bytes = read_bounded(path, bytes_max, what).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| "it is no text in UTF-8".into())
}

/// Returns the path of the result's file, if `path` is that file or the folder of its run.
pub(crate) fn result_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RESULT_FILE) } else { path.to_path_buf() }
}

/// The largest results have some megabytes.
const RESULT_BYTES_MAX: u64 = 256 << 20;

/// The name of the result's file in the folder of a run.
pub(crate) const RESULT_FILE: &str = "results.json";

/// The folder for the results of comparisons without --out.
const RESULTS: &str = "contend-results";
/// The link in that folder that leads to the last result.
const LATEST: &str = "latest";
/// The most comparisons that may begin in one second.
const NAMES_MAX: usize = 1000;

/// The folder of a run's files. If the run fails, folders that were made for it are removed again.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Folders that were made for it, the innermost first.
    made: Vec<PathBuf>,
    /// Whether the link `latest` will lead to it.
    is_latest: bool,
}

impl RunFolder {
    /// Makes the folder `asked`, or else a new one that is named by the time and the workload.
    ///
    /// # Errors
    /// The folder can't be made; or it has one of these files already, and `force` does not allow
    /// to overwrite them.
    pub(crate) fn new(asked: Option<&Path>, force: bool, workload: &str, files: &[&str]) -> Result<Self, UserError> {
        let Some(path) = asked else { return Self::named(workload) };
        if !force && let Some(file) = files.iter().find(|file| path.join(file).exists()) {
            return Err(UserError::refused(format!(
                "{} is there already; --force overwrites it, and another --out keeps it",
                path.join(file).display()
            )));
        }
        let missing = |path: &&Path| !path.as_os_str().is_empty() && !path.exists();
        let made = path.ancestors().take_while(missing).map(Path::to_path_buf).collect();
        folder(path)?;
        Ok(RunFolder { path: path.to_path_buf(), made, is_latest: false })
    }

    fn named(workload: &str) -> Result<Self, UserError> {
        // A workload may be a path; the folder has the name of the file.
        let workload = Path::new(workload).file_stem().map_or("workload".into(), |stem| stem.to_string_lossy());
        let results = Path::new(RESULTS);
        let was_there = results.exists();
        folder(results)?;
        // Some tools and file systems don't take colons in names.
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string().replace(':', "-");
        let names = (1..=NAMES_MAX).map(|number| match number {
            1 => results.join(format!("{now}-{workload}")),
            _ => results.join(format!("{now}-{workload}-{number}")),
        });
        for path in names {
            match fs::create_dir(&path) {
                Ok(()) => {
                    let outer = (!was_there).then(|| results.to_path_buf());
                    let made = [path.clone()].into_iter().chain(outer).collect();
                    return Ok(RunFolder { path, made, is_latest: true });
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(UserError::refused(format!("can't make the folder {}: {error}", path.display())));
                }
            }
        }
        Err(UserError::refused(format!("{RESULTS} has {NAMES_MAX} results of this second already")))
    }

    /// Returns a file in it, to be written later.
    ///
    /// # Errors
    /// As [`Target::new`].
    pub(crate) fn file(&self, name: &str) -> Result<Target, UserError> {
        Target::new(&self.path.join(name))
    }

    /// Makes the link `latest` lead here, now that the files are written. A note on stderr says so
    /// if it can't.
    pub(crate) fn finish(&self) {
        if !self.is_latest {
            return;
        }
        let latest = Path::new(RESULTS).join(LATEST);
        let is_ours = fs::symlink_metadata(&latest).map_or(true, |data| data.file_type().is_symlink());
        let part = Path::new(RESULTS).join(format!("{LATEST}.{}.part", std::process::id()));
        let linked = match is_ours {
            true => std::os::unix::fs::symlink(self.path.file_name().unwrap_or_default(), &part)
                .and_then(|()| fs::rename(&part, &latest)),
            false => Err(std::io::Error::other("it is no link")),
        };
        if let Err(error) = linked {
            let _ = fs::remove_file(&part);
            show::complain(&format!("note: {} does not lead to this result: {error}", latest.display()));
        }
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        // A folder with files in it can't be removed, and stays.
        self.made.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// Makes a folder if it does not exist, and returns its path.
///
/// # Errors
/// The folder can't be made.
pub(crate) fn folder(path: &Path) -> Result<&Path, UserError> {
    fs::create_dir_all(path)
        .map_err(|error| UserError::refused(format!("can't make the folder {}: {error}", path.display())))?;
    Ok(path)
}
