//! Files, and what a log assumes of them. Tests put a disk below the log that is as bad as these
//! assumptions allow.
//!
//! After a crash:
//!
//! 1. What was written to a file and then synchronised is as it was written.
//! 2. A name that was made, changed or removed is so once the directory was synchronised.
//! 3. A write that was not synchronised is there or not, in whole or in part, sector by sector, in
//!    any order with others.
//!
//! Nothing else is assumed. In particular a write without a synchronisation orders nothing, and a
//! synchronisation that failed says nothing about what a later one keeps.

use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::LogError;
use crate::uring::{Ring, Unsynced};

/// A directory of files.
pub trait Disk: Send + Sync + std::fmt::Debug {
    /// Creates a file of `bytes` zeros. The room is reserved, unless the file system is in memory.
    ///
    /// # Errors
    /// There is a file of this name, or no room for it.
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>>;

    /// Opens a file for reading, and for writing if `writes`.
    ///
    /// # Errors
    /// There is none of this name, it is not a regular file, or it can't be read, or written.
    fn open(&self, name: &str, writes: bool) -> io::Result<Box<dyn DiskFile>>;

    /// Removes a file.
    ///
    /// # Errors
    /// There is none of this name, or it can't be removed.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Renames a file. It replaces a file of the new name: after a crash the new name is that of
    /// either file.
    ///
    /// # Errors
    /// It is not known which of the two files has the new name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Returns the names of the files in alphabetical order.
    ///
    /// # Errors
    /// The directory can't be read.
    fn names(&self) -> io::Result<Vec<String>>;

    /// Synchronises the directory: names that were made, changed or removed stay so.
    ///
    /// # Errors
    /// It is not known which names stay.
    fn sync_names(&self) -> io::Result<()>;

    /// Synchronises these files, as [`DiskFile::sync`] does, perhaps together.
    ///
    /// # Errors
    /// The position of a file of which it is not known what stays, and why. There may be others.
    fn sync(&self, files: &mut [&mut dyn DiskFile]) -> Result<(), (usize, io::Error)> {
        let outcomes = files.iter_mut().map(|file| file.sync());
        outcomes.enumerate().try_for_each(|(number, outcome)| outcome.map_err(|error| (number, error)))
    }

    /// Returns the path of a file, for messages.
    fn place(&self, name: &str) -> String;
}

/// An open file.
pub trait DiskFile: Send + std::fmt::Debug {
    /// Writes `bytes` at an offset.
    ///
    /// # Errors
    /// Nothing, or a part, was written.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Synchronises the file: what was written stays.
    ///
    /// # Errors
    /// It is not known what stays: any part of what was written since the last synchronisation may
    /// be lost.
    fn sync(&mut self) -> io::Result<()>;

    /// Returns what [`DiskFile::sync`] would do, for a caller that synchronises several files
    /// together. None if only [`DiskFile::sync`] can do it.
    fn unsynced(&self) -> Option<Unsynced<'_>> {
        None
    }

    /// Notes that what [`DiskFile::unsynced`] returned was done, or has failed.
    fn synced(&mut self, _is_done: bool) {}

    /// Cuts the file off after `bytes`. It is not written any more. After a crash it may be as long
    /// as before.
    ///
    /// # Errors
    /// It is as long as before.
    fn truncate(&mut self, bytes: u64) -> io::Result<()>;

    /// Returns the length of the file in bytes.
    ///
    /// # Errors
    /// The length can't be read.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `bytes` from an offset.
    ///
    /// # Errors
    /// The file is too short, or can't be read.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;
}

/// The file whose lock keeps a second process out.
const LOCK: &str = "lock";

/// A directory of the file system. It has one owner at a time, or several readers.
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    /// Whether anything may be changed.
    writes: bool,
    /// Whether files are written past the system's page cache.
    direct: bool,
    /// Synchronises several files together, if the kernel has io_uring.
    ring: Option<Ring>,
    /// Unlocked when it is closed, at the latest by the end of the process. None if the directory
    /// never had an owner, and is only read.
    _lock: Option<File>,
}

impl Directory {
    /// Opens an existing directory for reading, beside other readers. Nothing in it is changed or
    /// created, so it and its files need not be writable.
    ///
    /// # Errors
    /// It is not there, or can't be read; or it has an owner.
    pub fn read_only(path: &Path) -> Result<Self, LogError> {
        let place = path.display().to_string();
        std::fs::read_dir(path).map_err(LogError::io("open", &place))?;
        let lock = match check_regular(&path.join(LOCK)).and_then(|()| File::open(path.join(LOCK))) {
            Ok(lock) => Some(lock),
            // An owner would have made it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(LogError::io("read the lock of", place)(error)),
        };
        locked(|| lock.as_ref().map_or(Ok(()), File::try_lock_shared), &place)?;
        Ok(Directory { path: path.to_owned(), writes: false, direct: false, ring: None, _lock: lock })
    }

    /// Opens a directory as its owner. Makes it if it is not there.
    ///
    /// # Errors
    /// It has an owner or readers; or it can't be made, or be written to.
    pub fn open(path: &Path) -> Result<Self, LogError> {
        let place = path.display().to_string();
        std::fs::create_dir_all(path).map_err(LogError::io("create", &place))?;
        match check_regular(&path.join(LOCK)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(LogError::io("lock", place)(error)),
            _ => {}
        }
        let lock = OpenOptions::new().create(true).truncate(false).write(true).open(path.join(LOCK));
        let lock = lock.map_err(LogError::io("write to", &place))?;
        locked(|| lock.try_lock(), &place)?;
        Ok(Directory { path: path.to_owned(), writes: true, direct: false, ring: Ring::new(), _lock: Some(lock) })
    }

    /// Returns the path of a file that is there, if it is a regular one: a directory from a
    /// stranger may have a pipe, which would be waited for without end, or a link to a file
    /// elsewhere.
    fn regular(&self, name: &str) -> io::Result<PathBuf> {
        let path = self.path.join(name);
        check_regular(&path)?;
        Ok(path)
    }

    /// Checks that the directory may be changed.
    fn check(&self) -> io::Result<()> {
        if self.writes { Ok(()) } else { Err(io::ErrorKind::ReadOnlyFilesystem.into()) }
    }
}

/// Checks that there is a regular file at this path, and not a pipe or a link.
fn check_regular(path: &Path) -> io::Result<()> {
    let is_regular = std::fs::symlink_metadata(path)?.file_type().is_file();
    if is_regular { Ok(()) } else { Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")) }
}

/// How long to wait for the lock of a directory. A closed database keeps the lock until the last
/// thread that used it has ended. A killed process keeps it until the kernel has ended the process.
const LOCK_PATIENCE: Duration = Duration::from_millis(500);

/// Takes the lock of the directory at this place, which `lock` tries.
fn locked(mut lock: impl FnMut() -> Result<(), TryLockError>, place: &str) -> Result<(), LogError> {
    let began = Instant::now();
    loop {
        match lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if began.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(TryLockError::WouldBlock) => return Err(LogError::InUse { place: place.to_owned() }),
            Err(TryLockError::Error(error)) => return Err(LogError::io("lock", place)(error)),
        }
    }
}

impl Directory {
    /// Sets whether files bypass the system's page cache (`O_DIRECT`). They are written page by
    /// page: a flush then costs what the device takes for the write alone, and a page that is not
    /// full is written again with the next flush. Not all file systems know this.
    pub fn direct(self, direct: bool) -> Self {
        Directory { direct, ..self }
    }

    /// Sets whether several files are written and synchronised together through io_uring, if the
    /// kernel has it, or one after the other by plain system calls. The default is io_uring.
    pub fn uring(self, uring: bool) -> Self {
        Directory { ring: self.ring.filter(|_| uring), ..self }
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
        // Behind this offset there are zeros.
        let end = if is_new { 0 } else { file.metadata()?.len() };
        let keeps = self.ring.is_some();
        let direct = DirectFile { file: file.try_clone()?, end, start: 0, pages: Vec::new(), is_behind: false, keeps };
        Ok((file, Box::new(direct)))
    }
}

impl Disk for Directory {
    fn create(&self, name: &str, bytes: u64) -> io::Result<Box<dyn DiskFile>> {
        self.check()?;
        let (file, opened) =
            self.open_to_write(OpenOptions::new().create_new(true).read(true).write(true), name, true)?;
        let bytes = bytes.next_multiple_of(PAGE);
        if bytes == 0 {
            return Ok(opened);
        }
        if is_in_memory(&file)? {
            // A reservation there is cleared at once, which takes as long as a write.
            file.set_len(bytes)?;
        } else {
            // The log finds the disk full when it begins a file, and not in the middle of one.
            let room = rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes);
            // A file without room has no use.
            room.inspect_err(|_| _ = self.remove(name))?;
        }
        Ok(opened)
    }

    fn open(&self, name: &str, writes: bool) -> io::Result<Box<dyn DiskFile>> {
        if !writes {
            return Ok(Box::new(File::open(self.regular(name)?)?));
        }
        self.check()?;
        self.regular(name)?;
        Ok(self.open_to_write(OpenOptions::new().read(true).write(true), name, false)?.1)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.check()?;
        std::fs::remove_file(self.path.join(name))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.check()?;
        std::fs::rename(self.path.join(from), self.path.join(to))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path)? {
            // No file of a log has a name that is not UTF-8.
            names.extend(entry?.file_name().into_string().ok().filter(|name| name != LOCK));
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_names(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn sync(&self, files: &mut [&mut dyn DiskFile]) -> Result<(), (usize, io::Error)> {
        let mut outcomes: Vec<_> = files.iter().map(|_| Ok(false)).collect();
        if let Some(ring) = &self.ring {
            let (numbers, all): (Vec<_>, Vec<_>) =
                files.iter().enumerate().filter_map(|(number, file)| Some((number, file.unsynced()?))).unzip();
            // One file alone needs no ring, for which other threads would have to wait.
            if all.len() > 1 {
                for (number, outcome) in numbers.into_iter().zip(ring.sync(&all)) {
                    outcomes[number] = outcome;
                }
            }
        }
        // Even if one file has failed, each that was written must be told.
        let mut first = Ok(());
        for (number, (file, outcome)) in files.iter_mut().zip(outcomes).enumerate() {
            if !matches!(outcome, Ok(false)) {
                file.synced(outcome.is_ok());
            }
            let outcome = outcome.and_then(|is_done| if is_done { Ok(()) } else { file.sync() });
            first = first.and(outcome.map_err(|error| (number, error)));
        }
        first
    }

    fn place(&self, name: &str) -> String {
        self.path.join(name).display().to_string()
    }
}

/// Whether this file is on tmpfs, which has no disk.
fn is_in_memory(file: &File) -> io::Result<bool> {
    /// The type of tmpfs in `statfs(2)`.
    const TMPFS: u32 = 0x0102_1994;
    Ok(rustix::fs::fstatfs(file)?.f_type as u32 == TMPFS)
}

impl DiskFile for File {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_data()
    }

    fn unsynced(&self) -> Option<Unsynced<'_>> {
        Some(Unsynced { file: self.as_fd(), offset: 0, bytes: &[] })
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn bytes(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }
}

/// The unit of direct writes: their offsets, lengths and memory are multiples of it.
const PAGE: u64 = 4096;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct Page([u8; PAGE as usize]);

/// A file keeps fewer pages than this until it is synchronised.
const KEPT: usize = 1024;

const EMPTY: Page = Page([0; PAGE as usize]);

/// A file that bypasses the page cache.
#[derive(Debug)]
struct DirectFile {
    file: File,
    /// Behind this offset there are only zeros.
    end: u64,
    /// The offset of the first of `pages`.
    start: u64,
    /// The pages that were written last. The next write usually begins in the last of them. If the
    /// file has them all, only the last one is kept.
    pages: Vec<Page>,
    /// Whether the pages were not written to the file yet.
    is_behind: bool,
    /// Whether pages are kept until the file is synchronised, so that both are done together.
    keeps: bool,
}

impl DirectFile {
    /// Returns the page at this offset with all that was written to it.
    fn page(&self, start: u64) -> io::Result<Page> {
        let known = start.checked_sub(self.start).and_then(|distance| self.pages.get((distance / PAGE) as usize));
        let mut page = known.copied().unwrap_or(EMPTY);
        if known.is_none() && start < self.end {
            // The last page of the file may be cut off; the rest is zeros.
            FileExt::read_at(&self.file, &mut page.0, start)?;
        }
        Ok(page)
    }

    /// Writes the pages to the file.
    fn write_pages(&mut self) -> io::Result<()> {
        if self.is_behind {
            let written = self.file.write_all_at(self.pages.as_bytes(), self.start);
            self.synced(written.is_ok());
            written?;
        }
        Ok(())
    }
}

impl DiskFile for DirectFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let (start, end) = (offset / PAGE * PAGE, offset + bytes.len() as u64);
        let last = (end - 1) / PAGE * PAGE;
        let (first_page, last_page) = (self.page(start)?, self.page(last)?);
        let known = self.start..self.start + self.pages.len() as u64 * PAGE + 1;
        if self.pages.is_empty() || !known.contains(&start) {
            self.write_pages()?;
            self.pages.clear();
            self.start = start;
        }
        let (first, count) = (((start - self.start) / PAGE) as usize, ((last - self.start) / PAGE) as usize + 1);
        self.pages.resize(count.max(self.pages.len()), EMPTY);
        // The pages between them are overwritten as a whole.
        self.pages[first] = first_page;
        self.pages[count - 1] = last_page;
        let begin = (offset - self.start) as usize;
        self.pages.as_mut_bytes()[begin..begin + bytes.len()].copy_from_slice(bytes);
        self.end = self.end.max(end);
        self.is_behind = true;
        if self.keeps && self.pages.len() < KEPT { Ok(()) } else { self.write_pages() }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.write_pages()?;
        self.file.sync_data()
    }

    fn unsynced(&self) -> Option<Unsynced<'_>> {
        let bytes = if self.is_behind { self.pages.as_bytes() } else { &[] };
        Some(Unsynced { file: self.file.as_fd(), offset: self.start, bytes })
    }

    fn synced(&mut self, is_done: bool) {
        self.is_behind = false;
        // After a failure it is not known which pages were written, so none is kept.
        let old = if is_done { self.pages.len().saturating_sub(1) } else { self.pages.len() };
        self.pages.drain(..old);
        self.start += old as u64 * PAGE;
    }

    fn truncate(&mut self, bytes: u64) -> io::Result<()> {
        self.write_pages()?;
        self.pages.clear();
        self.end = self.end.min(bytes);
        self.file.set_len(bytes)
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
        for (direct, uring) in [(false, false), (false, true), (true, false), (true, true)] {
            let path = here.path().join(format!("direct-{direct}-{uring}"));
            let directory = Directory::open(&path).expect("a directory").direct(direct).uring(uring);
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
                    file.sync().expect("a disk that works");
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
                if random.random_bool(0.8) {
                    directory.sync(&mut [&mut *file]).expect("a disk that works");
                }
                let from = random.random_range(0..expected.len());
                let mut read = vec![0; random.random_range(0..expected.len() - from)];
                file.read_at(from as u64, &mut read).expect("it is there");
                assert!(read == expected[from..from + read.len()], "direct {direct}, uring {uring}, round {round}");
            }
            file.sync().expect("a disk that works");
            let mut all = vec![0; expected.len()];
            directory.open("file", false).and_then(|file| file.read_at(0, &mut all)).expect("it is there");
            assert!(all == expected);
            assert!(file.bytes().expect("it is there") >= expected.len() as u64);
        }
    }
}
