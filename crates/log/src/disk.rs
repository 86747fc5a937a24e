//! What a log needs of a file system, so that tests can put a worse one below it.
//!
//! Three things are taken to hold of every disk, and of nothing else: what was written to a file and then synchronised stays as it was written; a
//! name that was made, changed or removed stays so once the directory is synchronised; and a write that was not synchronised may be there or not,
//! in whole or in part, sector by sector.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::error::LogError;

/// A directory of files.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Creates a file of zeros, of this many bytes, for which there is room then.
    ///
    /// # Errors
    /// There is a file of this name, or no room for it.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file to be read, or to be written as well.
    ///
    /// # Errors
    /// There is none of this name, or it can't be read, or written.
    fn open(&self, name: &str, writes: bool) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// There is none of this name, or it can't be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of the files, in their order.
    ///
    /// # Errors
    /// The directory can't be read.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Has the names stay as they are.
    ///
    /// # Errors
    /// It can't be said that they will.
    fn sync_names(&self) -> io::Result<()>;

    /// Where it is, for people.
    fn place(&self, name: &str) -> String;
}

/// An open file.
pub trait DiskFile: Send + std::fmt::Debug {
    /// Writes at an offset.
    ///
    /// # Errors
    /// Nothing, or a part of it, was written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Has what was written stay.
    ///
    /// # Errors
    /// It can't be said what stays: of all that was written since the last time, anything may be lost.
    fn sync(&mut self) -> io::Result<()>;

    /// How many bytes it has.
    ///
    /// # Errors
    /// That can't be read.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills the buffer from an offset.
    ///
    /// # Errors
    /// The file is too short, or can't be read.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// The file that keeps a second process out.
const LOCK: &str = "lock";

/// A directory of the file system, of which no other process is the owner as long as this is.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Unlocked when it is closed, at the latest by the end of the process.
    _lock: File,
}

impl Directory {
    /// Takes a directory that is there.
    ///
    /// # Errors
    /// It is not there; and as of [`Directory::open`].
    pub fn existing(path: &Path) -> Result<Self, LogError> {
        std::fs::read_dir(path).map_err(LogError::io("open", path.display().to_string()))?;
        Self::open(path)
    }

    /// Takes a directory; makes it, if it is not there.
    ///
    /// # Errors
    /// Another process has it, or it can't be made, or be written to.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let place = path.display().to_string();
        std::fs::create_dir_all(path).map_err(LogError::io("create", &place))?;
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK));
        let lock = lock.map_err(LogError::io("write to", &place))?;
        match lock.try_lock() {
            Ok(()) => Ok(Directory { path: path.to_owned(), _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LogError::InUse { place }),
            Err(TryLockError::Error(error)) => Err(LogError::io("lock", &place)(error)),
        }
    }
}

impl Disk for Directory {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let file = OpenOptions::new().create_new(true).read(true).write(true).open(self.path.join(name))?;
        // So that a log that goes on finds its disk full when it begins a file, and not in the midst.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes)?;
        Ok(Box::new(file))
    }

    fn open(&self, name: &str, writes: bool) -> io::Result<Box<dyn DiskFile>> {
        Ok(Box::new(OpenOptions::new().read(true).write(writes).open(self.path.join(name))?))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        std::fs::remove_file(self.path.join(name))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // Names that are no text are nobody's of ours.
            names.extend(entry?.file_name().into_string().ok().filter(|name| name != LOCK));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}
