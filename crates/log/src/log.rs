//! The log: what workers append, and what makes it durable.
//!
//! Each worker has a buffer and a file of its own (P-WAL). A flush writes the buffers, synchronises the files, and then says in the manifest how
//! far they count, and up to which epoch; then what was committed up to that epoch is acknowledged (the epochs are Silo's group commits). Who
//! flushes must know that no transaction will commit in that epoch any more.
//!
//! With the other commit protocols ([`crate::commit`]) workers flush their own buffers besides, and the manifest is not written: what is behind the bytes
//! that it knows of counts as well, by the rules of [`crate::recovery`].

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contend_engine::epoch::Epochs;
use contend_machine::Machine;
use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, RwLock};

use crate::commit::{CommitProtocol, Release};
use crate::disk::{Disk, DiskFile};
use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, BLOCK_HEADER, FILE_HEADER};
use crate::manifest::{self, Manifest, Segment, Tail};
use crate::recovery::{self, Recovered};
use crate::schema::Schema;

/// What a log is to be like.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// The most workers.
    pub workers: usize,
    /// The most bytes of a file, for which there is room from the start. A worker's first file has [`FIRST_SEGMENT_BYTES`], if that is less, and each has
    /// twice as many as the one before. A file that is full, or over when the log is closed, is cut off behind what it holds. A block that is
    /// larger has a file of its own.
    pub segment_bytes: u64,
    /// A worker that has more bytes than these to be flushed writes them itself: while they are in its cache, and so that who flushes has little
    /// to write, and memory does not grow where the disk is slow.
    pub buffer_bytes: usize,
    /// The most bytes of keys and rows that one transaction may write, in memory: another is refused before anything of it is done. No larger than
    /// [`TRANSACTION_BYTES_MAX`], which it is unless another is asked for: a block of the log has 32 bits for its length.
    pub transaction_bytes: usize,
    /// A checkpoint is taken when so many bytes were written since the last, or as many as that one had, if it had more.
    pub checkpoint_bytes: u64,
    /// Small files are put together when there are more of them ([`Log::merge`]).
    pub small_files: usize,
    /// Threads that read files when a log is opened, and write those of a checkpoint.
    pub threads: usize,
    /// When commits are durable, and others see them.
    pub commit: CommitProtocol,
    /// Whether files are written past the system's page cache ([`Directory::direct`](crate::Directory::direct)); for who makes the directory.
    pub direct: bool,
    /// Whether they are written through io_uring ([`Directory::uring`](crate::Directory::uring)); for the same.
    pub uring: bool,
    /// Whether opening a log checks that the writes of each row can have happened in the order of their stamps. It keeps 24 bytes of each write for that.
    pub checks_order: bool,
    /// A deliberate bug, for tests of the proof.
    pub fault: Option<Fault>,
}

/// Bytes of a worker's first file: most threads of an application write little.
pub const FIRST_SEGMENT_BYTES: u64 = 16 << 10;

/// See [`LogConfig::transaction_bytes`]: 256 MiB.
pub const TRANSACTION_BYTES_MAX: usize = 256 << 20;

/// A buffer is not let grow larger, whatever is asked for: what a transaction adds to it is one block with what was there.
const BUFFER_BYTES_MAX: usize = 1 << 30;

const _: () = assert!(
    BUFFER_BYTES_MAX + TRANSACTION_BYTES_MAX / 8 * format::WORD_BYTES_MAX < u32::MAX as usize - format::BLOCK_HEADER,
    "a block has room for the largest transaction"
);

impl Default for LogConfig {
    fn default() -> Self {
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        LogConfig {
            workers: 1024,
            segment_bytes: 64 << 20,
            buffer_bytes: 256 << 10,
            transaction_bytes: TRANSACTION_BYTES_MAX,
            checkpoint_bytes: 256 << 20,
            small_files: 64,
            threads,
            commit: CommitProtocol::Epoch,
            direct: false,
            uring: true,
            checks_order: false,
            fault: None,
        }
    }
}

/// The log's number of a table, and what the table is made of; none, if the log does not know it.
pub(crate) type Bound = Option<(u32, Arc<Schema>)>;

/// What a worker has to be flushed.
#[derive(Debug, Default)]
struct Buffer {
    /// Blocks that are closed but for their checksums: where they begin, and their epochs.
    blocks: Vec<(usize, u64)>,
    bytes: Vec<u8>,
    /// The largest LSN, or 0.
    last_lsn: u64,
}

impl Buffer {
    /// Room for what was committed in this epoch.
    #[inline]
    fn open(&mut self, epoch: u64) -> &mut Vec<u8> {
        if self.blocks.last().is_none_or(|&(_, last)| last != epoch) {
            self.blocks.push((self.bytes.len(), epoch));
            self.bytes.resize(self.bytes.len() + BLOCK_HEADER, 0);
        }
        &mut self.bytes
    }
}

/// The file that a worker writes.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) file: Box<dyn DiskFile>,
    /// As it will be in the manifest once it is synchronised.
    pub(crate) segment: Segment,
    /// Whether the manifest is known to have it.
    is_known: bool,
}

impl Open {
    /// Nothing more is written to it. Once the manifest says so it may be trimmed.
    pub(crate) fn end(&mut self) {
        self.segment.capacity = self.segment.bytes;
    }

    /// Cuts it off behind what it holds. It may stay as long as it is: if that can't be done, or a crash undoes it.
    fn trim(&mut self) {
        let _ = self.file.truncate(self.segment.bytes);
    }

    /// Whether so many bytes more fit.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.segment.bytes + bytes <= self.segment.capacity
    }
}

/// What a worker has written, and a flush has still to see to.
#[derive(Debug, Default)]
struct Output {
    open: Option<Open>,
    /// Files that are full.
    full: Vec<Open>,
    /// Files that were begun.
    begun: u32,
    /// Whether there is anything that the manifest does not know of.
    is_dirty: bool,
    /// Whether anything was written since the last synchronisation; and how many of these there were that had anything to do.
    has_written: bool,
    flushes: u64,
    /// An empty buffer, with the memory of the last.
    spare: Buffer,
}

#[derive(Debug, Default)]
struct Writer {
    buffer: Mutex<Buffer>,
    /// Taken before the buffer's.
    output: Mutex<Output>,
}

/// The log of a database.
#[derive(Debug)]
pub struct Log {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) config: LogConfig,
    writers: Box<[CachePadded<Writer>]>,
    pub(crate) manifest: Mutex<Manifest>,
    /// Held while a checkpoint is taken.
    pub(crate) checkpoint: Mutex<()>,
    /// The number of the next file.
    next_file: AtomicU64,
    /// How many tables there are, and their checksum, as the header of a file has them.
    known_tables: Mutex<(usize, u64)>,
    /// By the engine's numbers of tables: the log's number, and the schema.
    tables: RwLock<Vec<Bound>>,
    /// How often a table was put there.
    bound: AtomicU64,
    /// All that was committed up to this epoch is durable.
    durable: AtomicU64,
    /// Who waits: for which epoch at the most.
    wanted: Mutex<u64>,
    /// Told when there is something to flush, and when something was.
    asked: Condvar,
    flushed: Condvar,
    /// What has gone wrong, and whether anything has.
    stopped: Mutex<Option<LogError>>,
    has_stopped: AtomicBool,
    closed: AtomicBool,
    /// Whether there are files of which the directory is not known to know.
    has_new_names: AtomicBool,
    /// All below this LSN is durable.
    lsn: AtomicU64,
    /// The largest epoch of what was written to files, and how many bytes.
    last_written: AtomicU64,
    bytes: AtomicU64,
}

impl Log {
    /// Opens the log of a directory, or begins one; with what it had.
    ///
    /// # Errors
    /// The disk fails, or what was acknowledged is not there.
    pub fn open(disk: Arc<dyn Disk>, config: LogConfig) -> Result<(Arc<Self>, Recovered), LogError> {
        Self::open_with(disk, config, &|_| ())
    }

    /// The same; `progress` is told of bytes that were read.
    ///
    /// # Errors
    /// As of [`Log::open`].
    pub fn open_with(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(Arc<Self>, Recovered), LogError> {
        let (manifest, found) = match Manifest::open(&*disk)? {
            None => (Manifest::create(&*disk)?, None),
            Some(found) => {
                let began = Instant::now();
                let before = found.contents.clone();
                let traces = config.checks_order;
                let mut all = recovery::read_all(&*disk, &before, config.threads, traces, config.fault, progress)?;
                all.check(&before)?;
                // Nothing of it was known to the manifest, and perhaps not to the disk.
                let skips = config.fault == Some(Fault::SkipTails);
                let has_tail = |segment: &Segment| segment.tail != Tail::Nothing && !skips;
                recovery::sync(&*disk, before.segments.iter().filter(|segment| has_tail(segment)))?;
                let mut manifest = Manifest::reopen(&*disk, found)?;
                // What was not durable now is not to be so ever, and what was is so without being looked for.
                manifest.write(&*disk, all.settled(&before))?;
                recovery::trim(&*disk, &all.longer);
                (manifest, Some((all, before, began)))
            }
        };
        let used = disk.names().map_err(LogError::io("list", disk.place("")))?;
        let number = |name: &String| name.strip_prefix("log-")?.parse::<u64>().ok();
        // What a crash has left that nobody has acknowledged, or that a checkpoint had replaced.
        for orphan in used.iter().filter_map(number) {
            if manifest.contents.segments.iter().all(|segment| segment.number != orphan) {
                let name = manifest::name(orphan);
                disk.remove(&name).map_err(LogError::io("remove", disk.place(&name)))?;
            }
        }
        if used.iter().any(|name| name == manifest::NEXT) {
            disk.remove(manifest::NEXT).map_err(LogError::io("remove", disk.place(manifest::NEXT)))?;
        }
        let numbers = used.iter().filter_map(number);
        let log = Log {
            next_file: AtomicU64::new(numbers.max().map_or(0, |last| last + 1)),
            writers: (0..config.workers).map(|_| CachePadded::default()).collect(),
            durable: AtomicU64::new(manifest.contents.epoch),
            known_tables: Mutex::new(manifest.contents.tables.count()),
            manifest: Mutex::new(manifest),
            checkpoint: Mutex::new(()),
            tables: RwLock::default(),
            bound: AtomicU64::new(0),
            wanted: Mutex::new(0),
            asked: Condvar::new(),
            flushed: Condvar::new(),
            stopped: Mutex::new(None),
            has_stopped: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            has_new_names: AtomicBool::new(false),
            lsn: AtomicU64::new(1),
            last_written: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            disk,
            config,
        };
        let recovered = found.map(|(all, before, began)| all.into_rows(&before, began)).unwrap_or_default();
        // Relaxed: nobody else is there.
        log.lsn.fetch_max(log.manifest.lock().contents.lsn, Ordering::Relaxed);
        Ok((Arc::new(log), recovered))
    }

    /// The first epoch in which transactions may commit: later than all that there was.
    pub fn first_epoch(&self) -> u64 {
        self.durable() + 1
    }

    /// All that was committed up to this epoch is durable.
    pub fn durable(&self) -> u64 {
        // Acquire: pairs with the Release of `flush`.
        self.durable.load(Ordering::Acquire)
    }

    /// Notes a table for good, if it is new; its number.
    ///
    /// # Errors
    /// There is a table of this name and another schema, or the disk has no room for one more: then the log goes on without it. Or the disk fails.
    pub fn add_table(&self, schema: &Schema) -> Result<u32, LogError> {
        self.check()?;
        let mut manifest = self.manifest.lock();
        let known = manifest.contents.tables.iter().position(|table| table.name == schema.name);
        let number = match known {
            Some(number) if manifest.contents.tables[number] == *schema => number,
            Some(number) => {
                let was = manifest.contents.tables[number].to_string();
                return Err(LogError::SchemaChanged { table: schema.name.clone(), was, now: schema.to_string() });
            }
            None => {
                let files = manifest.contents.segments.len();
                manifest.make_room(&*self.disk, Some(schema), files)?;
                manifest.add_table(schema).map_err(|error| self.stop(error))?;
                *self.known_tables.lock() = manifest.contents.tables.count();
                manifest.contents.tables.len() - 1
            }
        };
        Ok(u32::try_from(number).expect("fewer than 2^32 tables"))
    }

    /// Says that the engine's table of number `engine` is the one of this schema, which is noted for good if it is new.
    ///
    /// # Errors
    /// As of [`Log::add_table`].
    pub fn bind(&self, engine: u32, schema: &Schema) -> Result<u32, LogError> {
        let number = self.add_table(schema)?;
        let mut tables = self.tables.write();
        let length = tables.len().max(engine as usize + 1);
        tables.resize(length, None);
        tables[engine as usize] = Some((number, Arc::new(schema.clone())));
        // Relaxed: who uses the table has been handed it after this.
        self.bound.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// How many tables were bound: who knows of fewer asks for [`Log::tables`].
    #[inline]
    pub(crate) fn bound(&self) -> u64 {
        // Relaxed: see `bind`.
        self.bound.load(Ordering::Relaxed)
    }

    /// What is known of the tables, by the engine's numbers.
    pub(crate) fn tables(&self) -> Vec<Bound> {
        self.tables.read().clone()
    }

    /// Appends to a worker's buffer, and writes it if it has become too large.
    #[inline]
    pub(crate) fn append(&self, worker: usize, epoch: u64, lsn: u64, put: impl FnOnce(&mut Vec<u8>)) {
        let writer = &self.writers[worker];
        let mut buffer = writer.buffer.lock();
        put(buffer.open(epoch));
        buffer.last_lsn = buffer.last_lsn.max(lsn);
        let is_full = buffer.bytes.len() > self.config.buffer_bytes.min(BUFFER_BYTES_MAX);
        drop(buffer);
        if is_full {
            let written = self.write(writer, &mut writer.output.lock());
            // Who waits is told.
            let _ = written.map_err(|error| self.stop(error));
        }
    }

    /// Whether there is anything in a worker's buffer.
    pub(crate) fn has_buffered(&self, worker: usize) -> bool {
        !self.writers[worker].buffer.lock().bytes.is_empty()
    }

    /// Makes all durable that was committed up to this epoch. In which, the caller knows, no transaction commits any more.
    ///
    /// # Errors
    /// The disk has failed, now or before: nothing is acknowledged any more.
    pub fn flush(&self, epoch: u64) -> Result<(), LogError> {
        self.check()?;
        let epoch = epoch + u64::from(self.has(Fault::EndEpochEarly));
        if self.has(Fault::AcknowledgeBeforeFlush) {
            self.durable.fetch_max(epoch, Ordering::Release);
        }
        let flushed = self.try_flush(epoch);
        if flushed.is_err() && self.has(Fault::RetrySync) {
            return self.try_flush(epoch);
        }
        flushed.map_err(|error| self.stop(error))
    }

    pub(crate) fn has(&self, fault: Fault) -> bool {
        self.config.fault == Some(fault)
    }

    fn try_flush(&self, epoch: u64) -> Result<(), LogError> {
        let mut manifest = self.manifest.lock();
        let mut contents = manifest.contents.clone();
        let mut full = Vec::new();
        let mut note = |output: &mut Output| {
            output.full.iter_mut().for_each(Open::end);
            for open in output.full.iter().chain(&output.open) {
                contents.put(&open.segment);
            }
            full.append(&mut output.full);
        };
        // What is to be synchronised together, and is nobody else's until it is.
        let (mut dirty, mut has_written) = (Vec::new(), false);
        for (number, writer) in self.writers.iter().enumerate() {
            if number == 0 && self.has(Fault::FlushOutOfOrder) && epoch.is_multiple_of(2) {
                continue;
            }
            let mut output = writer.output.lock();
            self.write(writer, &mut output)?;
            if !std::mem::take(&mut output.is_dirty) {
                continue;
            }
            has_written = true;
            if self.config.commit == CommitProtocol::Epoch {
                dirty.push(output);
            } else {
                // Its worker does this itself, and is not to wait for that of all.
                self.sync(std::iter::once(&mut *output))?;
                note(&mut output);
            }
        }
        self.sync(dirty.iter_mut().map(|output| &mut **output))?;
        dirty.iter_mut().for_each(|output| note(output));
        drop(dirty);
        // Somebody else's part may have failed meanwhile.
        self.check()?;
        // AcqRel: pairs with the Release of `begin_file`.
        if has_written && self.has_new_names.swap(false, Ordering::AcqRel) && !self.has(Fault::SkipNames) {
            self.disk.sync_names().map_err(LogError::io("synchronise the directory of", self.disk.place("")))?;
        }
        // Where the files have nothing later than the manifest says, nobody has to know after a crash how late it is.
        // Relaxed: stored under the locks that were held above.
        let has_later = self.last_written.load(Ordering::Relaxed) > contents.epoch;
        if has_written || has_later && epoch > contents.epoch {
            contents.epoch = contents.epoch.max(epoch);
            manifest.write(&*self.disk, contents)?;
        }
        full.iter_mut().for_each(Open::trim);
        // Release: pairs with the Acquire of `durable`.
        self.durable.fetch_max(epoch, Ordering::Release);
        drop(manifest);
        let _wanted = self.wanted.lock();
        self.flushed.notify_all();
        Ok(())
    }

    /// Stops while the file is still nobody else's: whoever has it next must not synchronise it once more, which would succeed.
    fn fail(&self, error: LogError) -> LogError {
        if self.has(Fault::RetrySync) { error } else { self.stop(error) }
    }

    /// Synchronises what was written of workers'.
    fn sync<'o>(&self, outputs: impl Iterator<Item = &'o mut Output>) -> Result<(), LogError> {
        let (mut files, mut names): (Vec<&mut dyn DiskFile>, _) = (Vec::new(), Vec::new());
        for output in outputs {
            output.flushes += u64::from(std::mem::take(&mut output.has_written));
            for open in output.full.iter_mut().chain(&mut output.open) {
                names.push(open.segment.name());
                files.push(&mut *open.file);
            }
        }
        if self.has(Fault::SkipSync) {
            return Ok(());
        }
        let synced = self.disk.sync(&mut files);
        synced.map_err(|(file, error)| self.fail(LogError::io("synchronise", self.disk.place(&names[file]))(error)))
    }

    /// Makes durable what is in a worker's buffer, whatever the others do.
    pub(crate) fn flush_worker(&self, worker: usize) -> Result<(), LogError> {
        self.check()?;
        let flushed = self.try_flush_worker(&self.writers[worker]);
        flushed.map_err(|error| self.stop(error))
    }

    fn try_flush_worker(&self, writer: &Writer) -> Result<(), LogError> {
        {
            let output = &mut *writer.output.lock();
            self.write(writer, output)?;
            if output.full.iter().chain(&output.open).all(|open| open.is_known) {
                return self.sync(std::iter::once(output));
            }
        }
        // There is a file that recovery would not look for.
        let mut manifest = self.manifest.lock();
        let output = &mut *writer.output.lock();
        self.write(writer, output)?;
        self.sync(std::iter::once(&mut *output))?;
        if !self.has(Fault::SkipNames) {
            self.disk.sync_names().map_err(LogError::io("synchronise the directory of", self.disk.place("")))?;
        }
        let mut contents = manifest.contents.clone();
        for open in output.full.iter().chain(&output.open).filter(|open| !open.is_known) {
            contents.put(&open.segment);
        }
        manifest.write(&*self.disk, contents)?;
        output.full.iter_mut().chain(&mut output.open).for_each(|open| open.is_known = true);
        Ok(())
    }

    /// All below this LSN is durable, as far as is known.
    pub(crate) fn durable_lsn(&self) -> u64 {
        // Acquire: pairs with the Release of `note_durable_lsn`.
        self.lsn.load(Ordering::Acquire)
    }

    /// Who has flushed says so.
    pub(crate) fn note_durable_lsn(&self, lsn: u64) {
        // Release: pairs with the Acquire of `durable_lsn`.
        self.lsn.fetch_max(lsn, Ordering::Release);
    }

    /// Writes what is in a worker's buffer.
    fn write(&self, writer: &Writer, output: &mut Output) -> Result<(), LogError> {
        self.check()?;
        self.try_write(writer, output).map_err(|error| self.fail(error))
    }

    fn try_write(&self, writer: &Writer, output: &mut Output) -> Result<(), LogError> {
        let spare = std::mem::take(&mut output.spare);
        let Buffer { mut blocks, mut bytes, last_lsn } = std::mem::replace(&mut *writer.buffer.lock(), spare);
        // Who goes on after a failure, as what it has begun can't end otherwise, may have appended what depends on something that was lost.
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
            // Relaxed, both: read under the locks that are held here.
            self.last_written.fetch_max(epoch, Ordering::Relaxed);
            self.bytes.fetch_add(length, Ordering::Relaxed);
        }
        bytes.clear();
        output.spare = Buffer { blocks, bytes, last_lsn: 0 };
        Ok(())
    }

    /// What may be behind what the manifest knows of a worker's file.
    pub(crate) fn tail(&self) -> Tail {
        match self.config.commit {
            CommitProtocol::Epoch => Tail::Nothing,
            CommitProtocol::Workers { release: Release::Conservative, .. } => Tail::Flushed,
            CommitProtocol::Workers { release: Release::Early, .. } => Tail::InOrder,
        }
    }

    /// A new file, with room for so many bytes.
    pub(crate) fn begin_file(&self, capacity: u64, tail: Tail) -> Result<Open, LogError> {
        // Relaxed: a number that nobody else has.
        let number = self.next_file.fetch_add(1, Ordering::Relaxed);
        // From the keys that the system gives every process anew.
        let salt = RandomState::new().hash_one(number);
        let header = format::file_header(salt, *self.known_tables.lock());
        let segment = Segment { number, salt, bytes: header.len() as u64, capacity, tail, ..Segment::EMPTY };
        let place = self.disk.place(&segment.name());
        let mut file = self.disk.create(&segment.name(), capacity).map_err(LogError::io("create", &place))?;
        let written = file.write_at(0, &header).map_err(LogError::io("write", &place));
        // A file without a header is of use to nobody.
        written.inspect_err(|_| _ = self.disk.remove(&segment.name()))?;
        // Release: pairs with the exchange of `try_flush`.
        self.has_new_names.store(true, Ordering::Release);
        Ok(Open { file, segment, is_known: false })
    }

    /// The numbers of the files that workers write to, or that no flush has seen to yet.
    pub(crate) fn open_files(&self) -> Vec<u64> {
        let of_writer = |writer: &CachePadded<Writer>| {
            let output = writer.output.lock();
            output.full.iter().chain(&output.open).map(|open| open.segment.number).collect::<Vec<_>>()
        };
        self.writers.iter().flat_map(of_writer).collect()
    }

    /// Has all workers begin new files with what they write next; the largest epoch of what is in the old ones.
    #[doc(hidden)]
    pub fn begin_files(&self) -> u64 {
        for writer in &self.writers {
            let output = &mut *writer.output.lock();
            if let Some(open) = output.open.take() {
                output.full.push(open);
                output.is_dirty = true;
            }
        }
        // Relaxed: stored under the locks that were held above.
        self.last_written.load(Ordering::Relaxed)
    }

    /// Waits until all is durable that was committed up to this epoch.
    ///
    /// # Errors
    /// It will never be known to be.
    pub fn wait(&self, epoch: u64) -> Result<(), LogError> {
        if self.durable() >= epoch {
            return Ok(());
        }
        let mut wanted = self.wanted.lock();
        while self.durable() < epoch {
            self.check()?;
            *wanted = (*wanted).max(epoch);
            self.asked.notify_one();
            self.flushed.wait(&mut wanted);
        }
        Ok(())
    }

    /// Flushes what is asked for, as soon as somebody waits for it, and from time to time what nobody waits for, until the log is closed.
    /// `settle` moves the epoch on if it can, and says up to which no transaction commits any more.
    pub fn serve(&self, period: Duration, mut settle: impl FnMut() -> Settled) {
        let mut pause = period;
        loop {
            {
                let mut wanted = self.wanted.lock();
                if *wanted <= self.durable() && !self.is_closed() {
                    self.asked.wait_for(&mut wanted, pause);
                }
            }
            let is_closed = self.is_closed();
            let Settled { epoch: settled, current } = settle();
            // What was committed before is not to wait for a period more because somebody had just lost its core.
            pause = match settled + 1 < current {
                true if pause < period => period.min(2 * pause),
                true => period.min(PATIENCE),
                false => period,
            };
            if settled > self.durable() || is_closed {
                // Who waits is told, and whoever comes later.
                let _ = self.flush(settled);
            } else {
                // Somebody is in a transaction for long.
                std::thread::sleep(Duration::from_micros(100));
            }
            if is_closed && self.check().is_ok() {
                let _ = self.finish().map_err(|error| self.stop(error));
            }
            if is_closed || self.check().is_err() {
                return;
            }
        }
    }

    /// For [`Log::serve`]: moves the epoch on, if that is possible, and gives the workers a moment to be seen in it.
    pub fn settle<M: Machine>(&self, epochs: &Epochs<M>) -> Settled {
        let began = Instant::now();
        self.settle_while(epochs, || {
            std::thread::sleep(Duration::from_micros(50));
            began.elapsed() < PATIENCE
        })
    }

    /// Like [`Log::settle`], on a machine that has no threads: `wait` lets the workers go on, and says whether to wait once more.
    pub fn settle_while<M: Machine>(&self, epochs: &Epochs<M>, mut wait: impl FnMut() -> bool) -> Settled {
        epochs.try_advance();
        // A worker that runs transactions is seen at its next one, which takes microseconds, unless it has lost its core.
        while epochs.oldest_to_commit() < epochs.current() && wait() {}
        // A worker that is seen in an epoch has seen the end of those before.
        let running = u64::from(!self.has(Fault::SettleRunning));
        Settled { epoch: epochs.oldest_to_commit() - running, current: epochs.current() }
    }

    /// After the last flush: files are as long as what they hold, and the next who opens them has nothing to look for behind it.
    fn finish(&self) -> Result<(), LogError> {
        let mut manifest = self.manifest.lock();
        let (mut contents, mut over) = (manifest.contents.clone(), Vec::new());
        for writer in &self.writers {
            let output = &mut *writer.output.lock();
            if output.is_dirty || !writer.buffer.lock().bytes.is_empty() {
                // Somebody has committed since.
                return Ok(());
            }
            over.extend(output.full.drain(..).chain(output.open.take()));
        }
        for open in &mut over {
            open.end();
            contents.put(&open.segment);
        }
        // What is of a later epoch counts for what it is behind.
        if contents.segments.iter().all(|segment| segment.newest() <= contents.epoch) {
            contents.segments.iter_mut().for_each(|segment| segment.tail = Tail::Nothing);
        }
        manifest.write(&*self.disk, contents)?;
        over.iter_mut().for_each(Open::trim);
        Ok(())
    }

    /// Ends [`Log::serve`], after a last flush; files are trimmed then. Nobody may commit any more.
    pub fn close(&self) {
        // Release: pairs with the Acquire of `is_closed`.
        self.closed.store(true, Ordering::Release);
        let _wanted = self.wanted.lock();
        self.asked.notify_all();
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release of `close`.
        self.closed.load(Ordering::Acquire)
    }

    /// Whether commits can still become durable.
    ///
    /// # Errors
    /// The error after which nothing was acknowledged any more.
    pub fn check(&self) -> Result<(), LogError> {
        // Acquire: pairs with the Release of `stop`. Nearly always all that is looked at.
        if !self.has_stopped.load(Ordering::Acquire) {
            return Ok(());
        }
        let cause = self.stopped.lock().clone().expect("set before");
        Err(LogError::Stopped { cause: Arc::new(cause) })
    }

    /// After this error nothing is acknowledged any more: what the disk has is not known. In particular a synchronisation that failed is not tried
    /// again, as the next one would succeed, without what was lost.
    pub(crate) fn stop(&self, error: LogError) -> LogError {
        self.stopped.lock().get_or_insert_with(|| error.clone());
        // Release: pairs with the Acquire of `check`.
        self.has_stopped.store(true, Ordering::Release);
        let _wanted = self.wanted.lock();
        self.flushed.notify_all();
        error
    }

    /// How it was configured.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Bytes that were written to files, but for checkpoints.
    pub fn bytes(&self) -> u64 {
        // Relaxed: a count.
        self.bytes.load(Ordering::Relaxed)
    }
}

/// What [`Log::settle`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The last epoch in which no transaction commits any more.
    pub epoch: u64,
    /// The one that there is.
    pub current: u64,
}

/// How long is waited for workers to be seen in a new epoch.
const PATIENCE: Duration = Duration::from_millis(2);
