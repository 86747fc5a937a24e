//! Files of results. Those that results go to are tried before the measuring, and written whole or
//! not at all.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use contend_lab::ResultFile;

use crate::{UserError, show};

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
        // The first to open a pipe would take it from its reader.
        if path.metadata().is_ok_and(|data| data.file_type().is_fifo()) {
            return Ok(target);
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
        UserError::input(format!("can't write {}: {why}", self.0.display()))
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

/// The result in a file, or in the folder of a run.
pub(crate) fn read_result(path: &Path) -> Result<ResultFile, UserError> {
    let path = result_path(path);
    let text = read_text(&path, RESULT_BYTES_MAX, "a result")
        .map_err(|error| UserError::input(format!("{}: {error}", path.display())))?;
    if has_control_characters(&text) {
        return Err(UserError::input(format!(
            "{}: not a result file: a text in it has control characters",
            path.display()
        )));
    }
    ResultFile::from_json(&text).map_err(|error| UserError::input(format!("{}: {error}", path.display())))
}

/// Whether a text of this JSON has characters that a terminal takes as commands, as they are or
/// escaped. No run writes any.
fn has_control_characters(json: &str) -> bool {
    let is_command = |number: u32| char::from_u32(number).is_some_and(|c| c.is_control() && !c.is_whitespace());
    let escaped = json.match_indices("\\u").filter_map(|(at, part)| json.get(at + part.len()..at + part.len() + 4));
    let mut escaped = escaped.filter_map(|digits| u32::from_str_radix(digits, 16).ok());
    json.chars().any(|c| is_command(u32::from(c))) || escaped.any(is_command)
}

/// Returns the text of a file that may come from a stranger. `what` names the kind of file in the
/// message when the file is longer than `bytes_max`, as a device is that never ends.
pub(crate) fn read_text(path: &Path, bytes_max: u64, what: &str) -> Result<String, String> {
    let mut text = String::new();
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(bytes_max + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > bytes_max {
        return Err(format!("{what} has at most {} MiB", bytes_max >> 20));
    }
    Ok(text)
}

/// The file of a result that is named by it, or by the folder of its run.
pub(crate) fn result_path(path: &Path) -> PathBuf {
    if path.is_dir() { path.join(RESULT_FILE) } else { path.to_path_buf() }
}

/// The largest results have some megabytes.
const RESULT_BYTES_MAX: u64 = 256 << 20;

/// The result in the folder of a run.
pub(crate) const RESULT_FILE: &str = "results.json";

/// Where the results of runs go that name no folder.
const RESULTS: &str = "contend-results";
/// The name that leads to the last of them.
const LATEST: &str = "latest";
/// Runs that may begin in one second.
const NAMES_MAX: usize = 1000;

/// The folder of a run's files. If nothing comes of the run, folders that were made for it are
/// removed again.
#[derive(Debug)]
pub(crate) struct RunFolder {
    path: PathBuf,
    /// Folders that were not there, the innermost first.
    made: Vec<PathBuf>,
    /// Whether `latest` is to lead to it.
    is_latest: bool,
}

impl RunFolder {
    /// The folder that was asked for, in which none of these files may be there already unless they
    /// are to be overwritten; or a new one, named by the time and the workload.
    pub(crate) fn new(asked: Option<&Path>, force: bool, workload: &str, files: &[&str]) -> Result<Self, UserError> {
        let Some(path) = asked else { return Self::named(workload) };
        if !force && let Some(file) = files.iter().find(|file| path.join(file).exists()) {
            return Err(UserError::input(format!(
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
        let results = Path::new(RESULTS);
        let was_there = results.exists();
        folder(results)?;
        // Colons are for clocks, not for names of files.
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
                    return Err(UserError::input(format!("can't make the folder {}: {error}", path.display())));
                }
            }
        }
        Err(UserError::input(format!("{RESULTS} has {NAMES_MAX} results of this second")))
    }

    /// A file in it, to be written later.
    pub(crate) fn file(&self, name: &str) -> Result<Target, UserError> {
        Target::new(&self.path.join(name))
    }

    /// Lets `latest` lead here, now that the files are there; says so if it can't.
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
        // One that is not empty stays.
        self.made.iter().for_each(|path| drop(fs::remove_dir(path)));
    }
}

/// A folder that exists, made if need be.
pub(crate) fn folder(path: &Path) -> Result<&Path, UserError> {
    fs::create_dir_all(path)
        .map_err(|error| UserError::input(format!("can't make the folder {}: {error}", path.display())))?;
    Ok(path)
}
