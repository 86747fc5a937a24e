//! What a log needs of a file system, so that tests can put a worse one below it.
//!
//! Three things are taken to hold of every disk, and of nothing else: what was written to a file and then synchronised stays as it was written; a
//! name that was made, changed or removed stays so once the directory is synchronised; and a write that was not synchronised may be there or not,
//! in whole or in part, sector by sector.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

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
    /// Whether files are written past the system's page cache.
    direct: bool,
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
            Ok(()) => Ok(Directory { path: path.to_owned(), direct: false, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(LogError::InUse { place }),
            Err(TryLockError::Error(error)) => Err(LogError::io("lock", &place)(error)),
        }
    }
}

impl Directory {
    /// Whether files are written past the system's page cache (`O_DIRECT`), page by page: a flush then costs the device what it writes and nothing else,
    /// and pages that are not full are written again with the next. Not all file systems can.
    pub fn direct(self, direct: bool) -> Self {
        Directory { direct, ..self }
    }

    fn open_to_write(
        &self,
        options: &mut OpenOptions,
        name: &str,
        is_new: bool,
    ) -> io::Result<(File, Box<dyn DiskFile>)> {
        if !self.direct {
            let file = options.open(self.path.join(name))?;
            return Ok((file.try_clone()?, Box::new(file)));
        }
        let file = options.custom_flags(rustix::fs::OFlags::DIRECT.bits() as i32).open(self.path.join(name));
        let file = file.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidInput => io::Error::new(error.kind(), "the file system knows no O_DIRECT"),
            _ => error,
        })?;
        // Behind this there are zeros.
        let end = if is_new { 0 } else { file.metadata()?.len() };
        Ok((file.try_clone()?, Box::new(DirectFile { file, end, last: None })))
    }
}

impl Disk for Directory {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        let (file, opened) =
            self.open_to_write(OpenOptions::new().create_new(true).read(true).write(true), name, true)?;
        // So that a log that goes on finds its disk full when it begins a file, and not in the midst.
        rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes.next_multiple_of(PAGE))?;
        Ok(opened)
    }

    fn open(&self, name: &str, writes: bool) -> io::Result<Box<dyn DiskFile>> {
        if !writes {
            return Ok(Box::new(File::open(self.path.join(name))?));
        }
        Ok(self.open_to_write(OpenOptions::new().read(true).write(true), name, false)?.1)
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

/// What is written past the page cache is written in these, from where they begin, and from memory that begins so.
const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE as usize]);

const EMPTY: Page = Page([0; PAGE as usize]);

/// A file that is written past the page cache.
#[derive(Debug)]
struct DirectFile {
    file: File,
    /// Behind this there is nothing but zeros.
    end: u64,
    /// The last page that was written, and where it is: the next write mostly goes on in it.
    last: Option<(u64, Box<Page>)>,
}

impl DirectFile {
    /// The page at this place as it is.
    fn page(&self, start: u64) -> io::Result<Page> {
        let mut page = EMPTY;
        match &self.last {
            Some((at, last)) if *at == start => page = **last,
            _ if start < self.end => {
                // It may be the last of the file, and not whole: the rest is zeros.
                FileExt::read_at(&self.file, &mut page.0, start)?;
            }
            _ => {}
        }
        Ok(page)
    }
}

impl DiskFile for DirectFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, end) = (offset / PAGE * PAGE, offset + bytes.len() as u64);
        let last = (end - 1) / PAGE * PAGE;
        let mut pages = vec![EMPTY; ((last - start) / PAGE) as usize + 1];
        // Of the pages in between all is written.
        let count = pages.len();
        pages[count - 1] = self.page(last)?;
        pages[0] = self.page(start)?;
        let begin = (offset - start) as usize;
        pages.as_mut_bytes()[begin..begin + bytes.len()].copy_from_slice(bytes);
        // If only a part of it gets there, nobody knows which.
        self.last = None;
        self.end = self.end.max(end);
        self.file.write_all_at(pages.as_bytes(), start)?;
        self.last = Some((last, Box::new(pages[count - 1])));
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut place = offset;
        let mut rest = bytes;
        while !rest.is_empty() {
            if place >= self.bytes()? {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let page = self.page(place / PAGE * PAGE)?;
            let from = &page.0[(place % PAGE) as usize..];
            let length = from.len().min(rest.len());
            rest[..length].copy_from_slice(&from[..length]);
            (place, rest) = (place + length as u64, &mut rest[length..]);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    /// Written past the page cache or not, a file is what was written.
    #[test]
    fn a_file_is_what_was_written() {
        // Where files are built there is a file system of the usual kind.
        let here = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).expect("a directory");
        for direct in [false, true] {
            let path = here.path().join(format!("direct-{direct}"));
            let directory = Directory::open(&path).expect("a directory").direct(direct);
            let mut file = match directory.create("file", 100_000) {
                Ok(file) => file,
                Err(error) if direct && error.kind() == io::ErrorKind::InvalidInput => {
                    assert_eq!(error.to_string(), "the file system knows no O_DIRECT");
                    return;
                }
                Err(error) => panic!("{error}"),
            };
            let (mut expected, random) = (vec![0; 100_000], &mut SmallRng::seed_from_u64(1));
            let mut at = 0;
            for round in 0..300 {
                if round % 50 == 49 {
                    drop(file);
                    file = directory.open("file", true).expect("it is there");
                }
                let length = [1, 17, 700, 4096, 9000][random.random_range(0..5)];
                // Mostly one behind the other.
                if random.random_bool(0.2) || at + length > expected.len() {
                    at = random.random_range(0..expected.len() - length);
                }
                let bytes: Vec<u8> = (0..length).map(|_| random.random()).collect();
                file.write_at(at as u64, &bytes).expect("a disk that works");
                expected[at..at + length].copy_from_slice(&bytes);
                at += length;
                file.sync().expect("a disk that works");
                let from = random.random_range(0..expected.len());
                let mut read = vec![0; random.random_range(0..expected.len() - from)];
                file.read_at(from as u64, &mut read).expect("it is there");
                assert!(read == expected[from..from + read.len()], "direct {direct}, round {round}");
            }
            let mut all = vec![0; expected.len()];
            directory.open("file", false).and_then(|file| file.read_at(0, &mut all)).expect("it is there");
            assert!(all == expected);
            assert!(file.bytes().expect("it is there") >= expected.len() as u64);
        }
    }
}
