//! Synchronises many files together through io_uring, if the kernel has it.
//!
//! A flush has a file of each worker to write and to synchronise. One after the other, each waits
//! for the device. A ring takes all of them with one system call, and the device sees them
//! together.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, Probe, opcode, squeue};
use parking_lot::Mutex;
use rustix::io::Errno;

/// What has to be done to synchronise a file.
#[derive(Clone, Copy, Debug)]
pub struct Unsynced<'f> {
    /// The file.
    pub file: BorrowedFd<'f>,
    /// The offset at which `bytes` must be written before.
    pub offset: u64,
    /// The bytes to write; empty if all were written.
    pub bytes: &'f [u8],
}

/// The kernel gets this many files at a time. Each has two entries, a write and a synchronisation.
const FILES: usize = 64;

/// A ring. It is dropped when it has failed.
pub(crate) struct Ring(Mutex<Option<IoUring>>);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ring")
    }
}

/// The kernel's results for a file: of its write, and of its synchronisation.
#[derive(Clone, Copy, Debug, Default)]
struct Results {
    written: Option<i32>,
    synced: Option<i32>,
}

impl Results {
    /// Whether all was done. `Ok(false)` if a part of the bytes was written, or an operation was
    /// not begun: then nothing has failed.
    fn outcome(self, file: &Unsynced<'_>) -> io::Result<bool> {
        let counts = [(!file.bytes.is_empty()).then_some((self.written, file.bytes.len())), Some((self.synced, 0))];
        for (result, wanted) in counts.into_iter().flatten() {
            match result {
                Some(count) if count as usize == wanted => {}
                // The kernel cancels the synchronisation after a short write. It also cancels if it
                // lacks a thread for an operation.
                Some(error) if error < 0 && error != -Errno::CANCELED.raw_os_error() => {
                    return Err(io::Error::from_raw_os_error(-error));
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

impl Ring {
    /// Returns a ring. None if the kernel has no io_uring, or does not allow it.
    pub(crate) fn new() -> Option<Self> {
        let ring = IoUring::new(2 * FILES as u32).ok()?;
        // A ring of Linux 5.1 does not know this kind of write.
        let mut known = Probe::new();
        ring.submitter().register_probe(&mut known).ok()?;
        let knows = known.is_supported(opcode::Write::CODE) && known.is_supported(opcode::Fsync::CODE);
        knows.then(|| Ring(Mutex::new(Some(ring))))
    }

    /// Writes and synchronises these files. Returns for each whether that was done; if not, and
    /// there was no error, it has still to be done.
    pub(crate) fn sync(&self, files: &[Unsynced<'_>]) -> Vec<io::Result<bool>> {
        let mut ring = self.0.lock();
        files.chunks(FILES).flat_map(|files| Self::sync_some(&mut ring, files)).collect()
    }

    fn sync_some(place: &mut Option<IoUring>, files: &[Unsynced<'_>]) -> Vec<io::Result<bool>> {
        let mut results = vec![Results::default(); files.len()];
        let Some(ring) = place else { return files.iter().map(|_| Ok(false)).collect() };
        let (mut asked, mut is_cut) = (0, false);
        for (number, file) in (0..).zip(files) {
            let fd = Fd(file.file.as_raw_fd());
            // Larger than any buffer: the caller writes it in parts.
            let Ok(length) = u32::try_from(file.bytes.len()) else { continue };
            let write = opcode::Write::new(fd, file.bytes.as_ptr(), length).offset(file.offset).build();
            let write = write.flags(squeue::Flags::IO_LINK).user_data(2 * number);
            let sync = opcode::Fsync::new(fd).flags(FsyncFlags::DATASYNC).build().user_data(2 * number + 1);
            let entries = [write, sync];
            let entries = if length > 0 { &entries[..] } else { &entries[1..] };
            // SAFETY: `files` borrows file and bytes until this function returns. It returns only
            // after the kernel has completed all entries that it took, and nothing in it panics
            // before.
            let pushed = unsafe { ring.submission().push_multiple(entries) };
            pushed.expect("there is room for all");
            asked += entries.len();
        }
        let mut done = 0;
        while done < asked {
            let submitted = ring.submit_and_wait(asked - done);
            for entry in ring.completion() {
                let results = &mut results[entry.user_data() as usize / 2];
                let place = if entry.user_data() % 2 == 0 { &mut results.written } else { &mut results.synced };
                *place = Some(entry.result());
                done += 1;
            }
            // The kernel has not taken all entries, for want of memory. A synchronisation may have
            // lost its link to the write, and be done before it.
            let left = ring.submission().len();
            is_cut |= left > 0;
            let Err(error) = submitted else { continue };
            if error.kind() == io::ErrorKind::Interrupted {
                continue;
            }
            // The kernel completes the entries that it took.
            if done + left == asked {
                // The ring is given up: the rest, and all later files, are synchronised by plain
                // calls.
                *place = None;
                break;
            }
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        let outcomes = results.iter().zip(files).map(|(results, file)| results.outcome(file));
        outcomes.map(|outcome| outcome.map(|is_done| is_done && !is_cut)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd;

    use super::*;

    fn unsynced(file: &File, bytes: &'static [u8]) -> Unsynced<'static> {
        // SAFETY: the files of these tests are open as long as they last.
        let file = unsafe { BorrowedFd::borrow_raw(file.as_fd().as_raw_fd()) };
        Unsynced { file, offset: 3, bytes }
    }

    #[test]
    fn more_files_than_a_ring_has_room_for() {
        let Some(ring) = Ring::new() else { return };
        let here = tempfile::tempdir().expect("a directory");
        let path = |number: usize| here.path().join(number.to_string());
        let files: Vec<File> =
            (0..3 * FILES + 1).map(|number| File::create(path(number)).expect("a new file")).collect();
        let all: Vec<_> = files.iter().map(|file| unsynced(file, b"bytes")).collect();
        for _ in 0..3 {
            assert!(ring.sync(&all).into_iter().all(|outcome| outcome.expect("a disk that works")));
        }
        for number in 0..files.len() {
            assert_eq!(std::fs::read(path(number)).expect("it is there"), b"\0\0\0bytes");
        }
    }

    /// An error is that of its own file, and hides in no other's.
    #[test]
    fn each_file_has_its_own_outcome() {
        let Some(ring) = Ring::new() else { return };
        let here = tempfile::tempdir().expect("a directory");
        let path = here.path().join("file");
        let good = File::create(&path).expect("a new file");
        // It can't be written to.
        let bad = File::open(&path).expect("it is there");
        // And this can be written to, but not synchronised; and this is always full.
        let (_, pipe) = std::io::pipe().expect("a pipe");
        // SAFETY: it lasts as long as the test.
        let pipe = unsafe { BorrowedFd::borrow_raw(pipe.as_fd().as_raw_fd()) };
        let full = File::options().write(true).open("/dev/full").expect("Linux has it");
        let all = [
            unsynced(&good, b"1"),
            unsynced(&bad, b"2"),
            unsynced(&good, b""),
            Unsynced { file: pipe, offset: 0, bytes: b"" },
            unsynced(&full, b"3"),
            unsynced(&good, b"123"),
        ];
        let outcomes = ring.sync(&all).into_iter().map(|outcome| outcome.map_err(|error| error.raw_os_error()));
        let errors = [Errno::BADF, Errno::INVAL, Errno::NOSPC];
        let [bad, no_sync, full] = errors.map(|error| Err(Some(error.raw_os_error())));
        assert_eq!(outcomes.collect::<Vec<_>>(), [Ok(true), bad, Ok(true), no_sync, full, Ok(true)]);
    }

    #[test]
    fn what_is_not_whole_is_not_done() {
        let here = tempfile::tempfile().expect("a file");
        let file = unsynced(&here, b"four");
        let canceled = Some(-Errno::CANCELED.raw_os_error());
        let outcome = |written, synced| Results { written, synced }.outcome(&file).ok();
        assert_eq!(outcome(Some(4), Some(0)), Some(true));
        assert_eq!(outcome(Some(3), canceled), Some(false));
        assert_eq!(outcome(Some(4), canceled), Some(false));
        assert_eq!(outcome(canceled, canceled), Some(false));
        assert_eq!(outcome(None, None), Some(false));
        assert_eq!(outcome(Some(4), None), Some(false));
        assert_eq!(outcome(Some(4), Some(-5)), None);
        assert_eq!(outcome(Some(-5), canceled), None);
    }
}
