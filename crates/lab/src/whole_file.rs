//! Files that are written as a whole, or left as they were.

use std::fs;
use std::io::{BufWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Replaces a file: writes a new one beside it, which then takes its name. So a full disk or a
/// killed process leaves the old contents. The new file's first name is its own, also among
/// processes of other machines that write to the same folder.
///
/// # Errors
/// The disk is full or fails. The file is as it was.
pub fn replace(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> std::io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default();
    let mut part = tempfile::Builder::new();
    // As of any new file, the process's mask takes rights away.
    part.prefix(name).suffix(".part").permissions(fs::Permissions::from_mode(0o666));
    let part = part.tempfile_in(folder)?;
    let mut file = BufWriter::new(part.as_file());
    fill(&mut file)?;
    file.flush()?;
    drop(file);
    part.persist(path).map(drop).map_err(|error| error.error)
}

/// Reads a file that may come from a stranger, and be endless.
///
/// # Errors
/// The file can't be read, or is longer than `bytes_max`; `what` names the kind of file.
pub fn read_bounded(path: &Path, bytes_max: u64, what: &str) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Err(std::io::Error::other(format!("{what} has at most {} MiB", bytes_max >> 20)));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_can_not_be_filled_stays_as_it_was() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a");
        replace(&path, |file| file.write_all(b"old")).expect("written");
        let error = replace(&path, |_| Err(std::io::Error::other("full"))).expect_err("not written");
        assert_eq!((error.to_string().as_str(), fs::read(&path).expect("there").as_slice()), ("full", &b"old"[..]));
        assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "half a file is no file");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o600, 0o600);
        assert!(
            read_bounded(&path, 2, "a file").is_err() && read_bounded(Path::new("/dev/zero"), 2, "a file").is_err()
        );
    }
}
