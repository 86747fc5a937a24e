//! What workers append, and the files that it is written to.
//!
//! Each worker has a [`Writer`]: a buffer in memory and the file that it writes (P-WAL). The buffer
//! is a sequence of blocks, one for each epoch in which the worker has committed since the buffer
//! was written. A block's header is filled in when the buffer is written ([`format::seal`]).
//!
//! Two locks guard a writer, always taken in this order: `output` (the files), then `buffer`. A
//! worker that appends takes the buffer's lock alone, so it never waits for a disk, unless its own
//! buffer is full. [`Log::try_write`] exchanges the buffer for an empty one while it holds both, so
//! blocks reach the file in the order in which they were appended.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering;

use contend_machine::{Machine, Native};
use crossbeam_utils::CachePadded;
use parking_lot::Mutex;

use super::{BUFFER_BYTES_MAX, FIRST_SEGMENT_BYTES, Log};
use crate::disk::DiskFile;
use crate::error::LogError;
use crate::format::{self, BLOCK_HEADER, END_BYTES, End, FILE_HEADER};
use crate::manifest::{ManifestContents, Segment, Tail};

/// What a worker has appended, and not written to a file yet.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// The blocks: where each begins, and its epoch. They have room for their headers, which are
    /// filled in when they are written.
    blocks: Vec<(usize, u64)>,
    pub(super) bytes: Vec<u8>,
    /// The largest LSN of the transactions; 0 if they have none.
    last_lsn: u64,
}

impl Buffer {
    /// Returns the bytes to append a transaction of `epoch` to: they end with a block of this
    /// epoch.
    #[inline]
    fn block_of(&mut self, epoch: u64) -> &mut Vec<u8> {
        if self.blocks.last().is_none_or(|&(_, last)| last != epoch) {
            self.blocks.push((self.bytes.len(), epoch));
            self.bytes.resize(self.bytes.len() + BLOCK_HEADER, 0);
        }
        &mut self.bytes
    }
}

/// The file that a worker writes.
#[derive(Debug)]
pub(crate) struct OpenFile {
    pub(crate) file: Box<dyn DiskFile>,
    /// The file's entry in the manifest, as it will be once the file is synchronised.
    pub(crate) segment: Segment,
    /// Whether the manifest names the file: recovery does not look for others.
    pub(super) is_known: bool,
}

impl OpenFile {
    /// Ends the file: nothing more is written to it. It may be trimmed once the manifest says so.
    pub(crate) fn end(&mut self) {
        self.segment.capacity = self.segment.bytes;
    }

    /// Cuts the file off behind its content. A failure, or a crash that undoes it, leaves the file
    /// longer, which does no harm.
    pub(super) fn trim(&mut self) {
        let _ = self.file.truncate(self.segment.bytes);
    }

    /// Writes the end of a flush, for which there is room.
    pub(super) fn write_end(&mut self, end: End) -> std::io::Result<()> {
        self.file.write_at(self.segment.bytes, &end.bytes(self.segment.salt))?;
        self.segment.bytes += END_BYTES as u64;
        Ok(())
    }

    /// Whether `bytes` more fit into the file.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.segment.bytes + bytes <= self.segment.capacity
    }
}

/// The files of a worker that the next flush has to synchronise, or to name in the manifest.
#[derive(Debug, Default)]
pub(super) struct Output {
    /// The file that the worker writes to.
    pub(super) open: Option<OpenFile>,
    /// Files that are full.
    pub(super) full: Vec<OpenFile>,
    /// How many files the worker has begun.
    begun: u32,
    /// Whether a file differs from its entry in the manifest.
    pub(super) is_dirty: bool,
    /// Whether a block was written since the last synchronisation.
    pub(super) has_written: bool,
    /// How many synchronisations had something to do. Each block says in which of these it was
    /// flushed.
    pub(super) flushes: u64,
    /// An empty buffer, which keeps the memory of the last one.
    /// The two buffers change places at each write, so no buffer is allocated anew.
    spare: Buffer,
}

impl Output {
    /// Notes what the files have, which were synchronised. Returns those that are full.
    pub(super) fn note_in(&mut self, contents: &mut ManifestContents) -> Vec<OpenFile> {
        self.full.iter_mut().for_each(OpenFile::end);
        for open in self.full.iter().chain(&self.open) {
            contents.put(&open.segment);
        }
        std::mem::take(&mut self.full)
    }
}

/// What a worker writes with.
#[derive(Debug, Default)]
pub(super) struct Writer {
    pub(super) buffer: Mutex<Buffer>,
    /// This lock is taken before that of the buffer.
    pub(super) output: Mutex<Output>,
}

/// The most lines that are prefetched for the next transaction.
const LINES_AHEAD_MAX: usize = 16;

/// Prefetches the lines that the next transaction will be appended to, if it is as long as the last
/// one, which begins at `before`. They come while the worker runs it. Else its commit would wait
/// for them: giving up the buffer's lock waits until all stores are done.
#[inline]
fn prefetch_next(bytes: &Vec<u8>, before: usize) {
    const LINE: usize = 64;
    let lines = (bytes.len() - before).div_ceil(LINE).min(LINES_AHEAD_MAX);
    // The line of the last byte is there already.
    let ahead = (1..=lines).map(|line| bytes.len() - 1 + line * LINE);
    for place in ahead.take_while(|place| *place < bytes.capacity()) {
        Native::prefetch_to_write(bytes.as_ptr().wrapping_add(place));
    }
}

impl Log {
    /// Appends a transaction that committed in `epoch` to a worker's buffer, and writes the buffer
    /// to a file if it has become too large. `put` appends the bytes.
    #[inline]
    pub(crate) fn append(&self, worker: usize, epoch: u64, lsn: u64, put: impl FnOnce(&mut Vec<u8>)) {
        let writer = &self.writers[worker];
        // The lock is the worker's own but for the moment at which a flush exchanges the buffer, so
        // it is nearly always free, and its line stays with the worker. The worker is still in
        // `epoch`, or in the one before it, until this call has ended (`CommitSink::committed`). So
        // a flush of this epoch comes later, and finds the bytes.
        let mut buffer = writer.buffer.lock();
        let before = buffer.bytes.len();
        put(buffer.block_of(epoch));
        buffer.last_lsn = buffer.last_lsn.max(lsn);
        prefetch_next(&buffer.bytes, before);
        let is_full = buffer.bytes.len() > self.config.buffer_bytes.min(BUFFER_BYTES_MAX);
        // Given up before `output` is taken. A flush takes the two in the other order, so a worker
        // that held its buffer and waited for `output` could wait for ever.
        drop(buffer);
        if is_full {
            let written = self.write(writer, &mut writer.output.lock());
            // A thread that waits for the transaction gets the error from the log.
            let _ = written.map_err(|error| self.stop(error));
        }
    }

    /// Whether a worker's buffer has anything that was not written to a file.
    pub(crate) fn has_buffered(&self, worker: usize) -> bool {
        !self.writers[worker].buffer.lock().bytes.is_empty()
    }

    /// Writes a worker's buffer to its file.
    pub(super) fn write(&self, writer: &Writer, output: &mut Output) -> Result<(), LogError> {
        self.check()?;
        self.try_write(writer, output).map_err(|error| self.fail(error))
    }

    fn try_write(&self, writer: &Writer, output: &mut Output) -> Result<(), LogError> {
        // The caller holds `output`, and this holds `buffer` for the exchange only: the worker goes
        // on appending while the disk is slow. Without `output` two threads could each take a
        // buffer, and the later one could reach the file first. Recovery would then find the blocks
        // of a worker out of order.
        let spare = std::mem::take(&mut output.spare);
        let Buffer { mut blocks, mut bytes, last_lsn } = std::mem::replace(&mut *writer.buffer.lock(), spare);
        // A worker goes on after a failure, because what it has begun can't end otherwise. Its
        // later transactions may depend on what was lost.
        self.check()?;
        let ends = blocks.iter().skip(1).map(|&(start, _)| start).chain([bytes.len()]).collect::<Vec<_>>();
        for ((start, epoch), end) in blocks.drain(..).zip(ends) {
            let block = &mut bytes[start..end];
            let length = block.len() as u64;
            if output.open.as_ref().is_none_or(|open| !open.has_room(length)) {
                let room = FIRST_SEGMENT_BYTES.saturating_mul(1 << output.begun.min(32)).min(self.config.segment_bytes);
                let new = self.begin_file(room.max(FILE_HEADER as u64 + length), self.tail())?;
                output.begun += 1;
                output.full.extend(output.open.replace(new));
            }
            let open = output.open.as_mut().expect("there is one now");
            let durable = if open.segment.tail == Tail::InOrder { self.durable_lsn() } else { 0 };
            format::seal(block, epoch, open.segment.salt, output.flushes, durable);
            let written = open.file.write_at(open.segment.bytes, block);
            written.map_err(LogError::io("write", self.disk.place(&open.segment.name())))?;
            open.segment.bytes += length;
            open.segment.blocks = Some((open.segment.blocks.map_or(epoch, |(first, _)| first), epoch));
            open.segment.last_lsn = open.segment.last_lsn.max(last_lsn);
            (output.is_dirty, output.has_written) = (true, true);
            // Relaxed: `try_flush` and `begin_files` load this after they have held the lock of
            // this output, which orders their loads behind this store.
            self.last_written.fetch_max(epoch, Ordering::Relaxed);
            // Relaxed: a count that no other memory depends on.
            self.bytes.fetch_add(length, Ordering::Relaxed);
        }
        bytes.clear();
        output.spare = Buffer { blocks, bytes, last_lsn: 0 };
        Ok(())
    }

    /// Creates a file with room for `capacity` bytes. Its name is not durable until the directory
    /// is synchronised.
    pub(crate) fn begin_file(&self, capacity: u64, tail: Tail) -> Result<OpenFile, LogError> {
        // Relaxed: the exchange alone makes the number unique. No other memory is reached by it:
        // the file's contents pass from thread to thread by the locks of the output and of the
        // manifest.
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        // The system gives each process new random keys.
        let salt = RandomState::new().hash_one(number);
        let header = format::file_header(salt, *self.known_tables.lock());
        let segment = Segment { number, salt, bytes: header.len() as u64, capacity, tail, ..Segment::EMPTY };
        let place = self.disk.place(&segment.name());
        let mut file = self.disk.create(&segment.name(), capacity).map_err(LogError::io("create", &place))?;
        let written = file.write_at(0, &header).map_err(LogError::io("write", &place));
        // A file without a header has no use.
        written.inspect_err(|_| _ = self.disk.remove(&segment.name()))?;
        // Release: pairs with the AcqRel swap of `try_flush`, which synchronises the directory
        // after the file was created.
        self.has_new_names.store(true, Ordering::Release);
        Ok(OpenFile { file, segment, is_known: false })
    }

    /// Returns the numbers of the files that workers write to, and of full files that no flush has
    /// put into the manifest yet.
    pub(crate) fn open_files(&self) -> Vec<u64> {
        let of_writer = |writer: &CachePadded<Writer>| {
            let output = writer.output.lock();
            output.full.iter().chain(&output.open).map(|open| open.segment.number).collect::<Vec<_>>()
        };
        self.writers.iter().flat_map(of_writer).collect()
    }

    /// Ends the files of all workers: what a worker writes next goes to a new file. Returns the
    /// largest epoch of the blocks that were written.
    ///
    /// Workers are visited one after the other. So a transaction may be in an ended file while an
    /// earlier one that it depends on, of the same epoch, is still in the buffer of another worker,
    /// and goes to a new file.
    #[doc(hidden)]
    pub fn begin_files(&self) -> u64 {
        for writer in &self.writers {
            let output = &mut *writer.output.lock();
            if let Some(open) = output.open.take() {
                output.full.push(open);
                output.is_dirty = true;
            }
        }
        // Relaxed: the locks that were held above order this load behind the stores of `try_write`.
        self.last_written.load(Ordering::Relaxed)
    }
}
