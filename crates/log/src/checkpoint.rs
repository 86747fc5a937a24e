//! Checkpoints: files of rows, in the place of the log files that led to them.
//!
//! A checkpoint is made of files, and not of what is in memory: the old ones are read as at a recovery, and what comes of it is written. So it is the
//! same for every protocol and index, no transaction waits for it or sees anything of it, and what it holds was durable before. It takes as
//! much memory as the rows do, for as long as it lasts.
//!
//! Files that are read hold nothing that is not durable yet; others stay, and may have older writes of the same rows, of which the stamp says so. A
//! deletion is kept as long as a file that stays may have an older write.
//!
//! Small files are put together in the same way when there are many ([`Log::merge`]): each opening of a log leaves one a thread.

use contend_engine::Groups;
use contend_engine::journal::Addition;

use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, BLOCK_HEADER, Change, Write};
use crate::log::{Log, Open};
use crate::manifest::{Contents, Segment, Tail};
use crate::recovery;
use crate::rows::{Known, Rows};
use crate::schema::{Form, Schema};

/// A block of a checkpoint has so many bytes, or a row more.
const BLOCK_BYTES: usize = 1 << 18;

/// What a checkpoint has done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Rows that it has.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Files that it has replaced, and their bytes.
    pub replaced: (usize, u64),
    /// How long it took, in seconds.
    pub seconds: f64,
}

impl Log {
    /// Takes a checkpoint of all that is durable when it begins. Meanwhile somebody flushes ([`Log::serve`]).
    ///
    /// # Errors
    /// The disk has failed, now or before. If it was full, nothing has changed, and the log goes on.
    pub fn checkpoint(&self) -> Result<Checkpoint, LogError> {
        let _alone = self.checkpoint.lock();
        let last = self.begin_files();
        // So that the manifest has the old ones as they are, also if nobody commits any more.
        self.flush(self.durable())?;
        self.wait(last)?;
        self.compact(true, |_| true)
    }

    /// The same, for who flushes by hand: what is in files that were begun before [`Log::begin_files`] was called, if all of it is durable.
    ///
    /// # Errors
    /// As of [`Log::checkpoint`].
    #[doc(hidden)]
    pub fn checkpoint_by_hand(&self) -> Result<Checkpoint, LogError> {
        let _alone = self.checkpoint.lock();
        self.check()?;
        self.compact(false, |_| true)
    }

    /// Puts small files that nobody writes to any more together, if there are many of them; the others stay.
    ///
    /// # Errors
    /// As of [`Log::checkpoint`].
    pub fn merge(&self) -> Result<(), LogError> {
        let is_small = |segment: &Segment| segment.bytes < self.config.segment_bytes / 2;
        if self.manifest.lock().contents.segments.iter().filter(|segment| is_small(segment)).count()
            <= self.config.small_files
        {
            return Ok(());
        }
        let _alone = self.checkpoint.lock();
        self.check()?;
        let (open, segments) = {
            let manifest = self.manifest.lock();
            (self.open_files(), manifest.contents.segments.clone())
        };
        let of_nobody = |segment: &&Segment| is_small(segment) && !open.contains(&segment.number);
        if segments.iter().filter(of_nobody).count() > self.config.small_files {
            self.compact(true, is_small)?;
        }
        Ok(())
    }

    /// Replaces those of the files that hold nothing but what is durable; with `behind`, while others have work that comes first.
    fn compact(&self, behind: bool, which: impl Fn(&Segment) -> bool) -> Result<Checkpoint, LogError> {
        let began = std::time::Instant::now();
        // Both while no flush goes on: a file that is not open then is in the manifest as it will be, and one that is in it and is open is not taken for
        // one that is over.
        let (open, contents) = {
            let manifest = self.manifest.lock();
            (self.open_files(), manifest.contents.clone())
        };
        // Where numbers have to be without gaps, those that a checkpoint no longer has must be known to be durable.
        let lsn = self.durable_lsn();
        let is_over = |segment: &Segment| {
            which(segment)
                && !open.contains(&segment.number)
                && segment.last_lsn < lsn.max(1)
                && (segment.newest() <= contents.epoch || self.has(Fault::CheckpointTooMuch))
        };
        let (old, staying): (Vec<_>, Vec<_>) = contents.segments.iter().cloned().partition(is_over);
        // In the files that stay, and in those to come, all is of later epochs. What is of a checkpoint may be of any.
        let first_blocks = staying.iter().map(|segment| segment.blocks.map_or(0, |(first, _)| first - 1));
        let settled = first_blocks.fold(contents.epoch, u64::min);
        let of_old = Contents { segments: old.clone(), ..contents };
        let bytes: u64 = old.iter().map(|segment| segment.bytes).sum();
        let rewrite = || {
            let all = recovery::read_all(&*self.disk, &of_old, self.config.threads, false, self.config.fault, &|_| ())?;
            // One after the other, so that the memory of each is free again before the next.
            self.write_checkpoint(&of_old.tables, settled, bytes, all.tables.into_iter())
        };
        // What others wait for is done before it and after it. Where the log grows faster than what comes behind can follow, it has to be done as soon.
        let behind = behind && bytes < self.config.checkpoint_bytes.saturating_mul(OVERDUE);
        let Written { files, rows } = if behind { at_low_priority(rewrite) } else { rewrite() }?;
        let mut manifest = self.manifest.lock();
        self.check()?;
        let mut contents = manifest.contents.clone();
        contents.lsn = contents.lsn.max(lsn);
        contents.segments.retain(|segment| old.iter().all(|old| old.number != segment.number));
        contents.segments.extend_from_slice(&files);
        manifest.make_room(&*self.disk, None, contents.segments.len()).inspect_err(|_| self.discard(&files))?;
        manifest.write(&*self.disk, contents).map_err(|error| self.stop(error))?;
        drop(manifest);
        self.remove(&old)?;
        Ok(Checkpoint {
            rows,
            bytes: files.iter().map(|segment| segment.bytes).sum(),
            replaced: (old.len(), bytes),
            seconds: began.elapsed().as_secs_f64(),
        })
    }
}

impl Log {
    fn remove(&self, old: &[Segment]) -> Result<(), LogError> {
        for segment in old {
            let name = segment.name();
            self.disk.remove(&name).map_err(LogError::io("remove", self.disk.place(&name)))?;
        }
        Ok(())
    }

    /// Removes what was written and is of no use; whether that is possible changes nothing.
    fn discard(&self, files: &[Segment]) {
        files.iter().for_each(|segment| _ = self.disk.remove(&segment.name()));
    }

    /// The files of a checkpoint of these tables, synchronised, in the place of so many bytes.
    fn write_checkpoint(
        &self,
        schemas: &[Schema],
        settled: u64,
        bytes: u64,
        tables: impl Iterator<Item = impl AsRef<[Rows]> + Sync>,
    ) -> Result<Written, LogError> {
        // As many threads as read, each with files of its own; but no more than there are files to fill.
        let files = bytes / self.config.segment_bytes.max(1) + 1;
        let threads = self.config.threads.clamp(1, usize::try_from(files).unwrap_or(usize::MAX));
        let new = |_| Files { log: self, open: None, full: Vec::new(), block: vec![0; BLOCK_HEADER], rows: 0 };
        let mut parts: Vec<_> = (0..threads).map(new).collect();
        let mut tables = (0..).zip(schemas).zip(tables);
        let written = tables.try_for_each(|((table, schema), rows)| {
            let of_thread = |number| rows.as_ref().iter().skip(number).step_by(threads);
            at_once(&mut parts, |number, part| part.write_table(table, schema, of_thread(number), settled))
        });
        let written = written.and_then(|()| at_once(&mut parts, |_, part| part.finish())).and_then(|()| {
            let synced = self.disk.sync_names();
            // The next one would succeed, and other files may have been new as well.
            let stop = |error| self.stop(LogError::io("synchronise the directory of", self.disk.place(""))(error));
            synced.map_err(stop)
        });
        let rows = parts.iter().map(|part| part.rows).sum();
        let segments = |part: Files<'_>| part.full.into_iter().chain(part.open.map(|open| open.segment));
        let files: Vec<_> = parts.into_iter().flat_map(segments).collect();
        written.inspect_err(|_| self.discard(&files))?;
        Ok(Written { files, rows })
    }
}

/// What a checkpoint has written.
struct Written {
    files: Vec<Segment>,
    rows: u64,
}

/// How much less of a core a checkpoint gets than others who want it: a third of what each of them has, by the weights of Linux.
const NICE: i32 = 5;

/// A checkpoint comes behind nobody when there are so many times the bytes after which one is taken.
const OVERDUE: u64 = 4;

/// Does this in a thread that comes behind all others. Those that it makes do so as well.
fn at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        // Where this is not allowed it takes the time that it takes.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("a checkpoint does not panic"))
}

/// Does this with all parts at once, each on a thread of its own.
fn at_once<T: Send>(
    parts: &mut [T],
    work: impl Fn(usize, &mut T) -> Result<(), LogError> + Sync,
) -> Result<(), LogError> {
    if let [only] = parts {
        return work(0, only);
    }
    std::thread::scope(|scope| {
        let work = &work;
        let start = |(number, part)| scope.spawn(move || work(number, part));
        let threads: Vec<_> = parts.iter_mut().enumerate().map(start).collect();
        let outcomes = threads.into_iter().map(|thread| thread.join().expect("writing does not panic"));
        outcomes.fold(Ok(()), Result::and)
    })
}

/// The files of a checkpoint.
struct Files<'l> {
    log: &'l Log,
    /// The one that is written; and those that are full, and synchronised.
    open: Option<Open>,
    full: Vec<Segment>,
    /// The next block: room for its header, and its body.
    block: Vec<u8>,
    rows: u64,
}

impl Files<'_> {
    fn write_table<'r>(
        &mut self,
        table: u32,
        schema: &Schema,
        parts: impl Iterator<Item = &'r Rows>,
        settled: u64,
    ) -> Result<(), LogError> {
        for (key, known) in parts.flat_map(|rows| rows.iter(schema)) {
            self.rows += u64::from(known.is_there());
            // A file that stays may have an older write if it has commits of the deletion's epoch, or of the one after: a protocol that shows rows before
            // it commits takes their stamps in the epoch before that of its commit, at the earliest.
            // (The second is slack: who deletes a row that was shown commits after the one that has shown it, and takes its stamp then.)
            let last = settled + u64::from(self.log.has(Fault::ForgetLastTombstones));
            let is_needed = known.deleted().epoch() + 1 > last && !self.log.has(Fault::ForgetTombstones);
            if known.deleted().0 > 0 && is_needed {
                self.put(schema, Write { table, key, stamp: known.deleted(), change: Change::Delete });
            }
            self.put_row(table, schema, key, known);
            if self.block.len() >= BLOCK_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    /// The groups that were written last by one transaction are one write.
    fn put_row(&mut self, table: u32, schema: &Schema, key: &[u64], known: Known<'_>) {
        let mut left = schema.all_groups();
        while let Some(first) = left.into_iter().next() {
            let written = known.written(first);
            let is_sum = known.is_sum(first);
            let same = left.into_iter();
            let same = same.filter(|&group| known.written(group) == written && known.is_sum(group) == is_sum);
            let groups = same.fold(Groups::NONE, |groups, group| groups.union(Groups::of(group as u32)));
            left = left.without(groups);
            // What was deleted later, or never written.
            let Some(stamp) = written.filter(|stamp| *stamp > known.deleted()) else { continue };
            if !is_sum {
                self.put(schema, Write { table, key, stamp, change: Change::Put(groups, known.row()) });
                continue;
            }
            if self.log.has(Fault::ForgetSums) {
                continue;
            }
            // What was added to is in a file that stays, or will be in one that is to come.
            let words = schema.words(groups).flatten();
            let additions: Vec<_> = words.map(|word| Addition { word: word as u32, by: known.row()[word] }).collect();
            self.put(schema, Write { table, key, stamp, change: Change::Add(&additions) });
        }
    }

    fn put(&mut self, schema: &Schema, write: Write<'_>) {
        // Epoch 0: it is durable, whatever else is.
        format::put_transaction(0, 0, std::iter::once((write, schema)), &mut self.block);
    }

    fn write(&mut self) -> Result<(), LogError> {
        if self.block.len() == BLOCK_HEADER {
            return Ok(());
        }
        let length = self.block.len() as u64;
        if self.open.as_ref().is_some_and(|open| open.segment.bytes + length > self.log.config.segment_bytes) {
            self.end_file()?;
        }
        let open = match &mut self.open {
            Some(open) => open,
            // It is as long as what is written to it.
            none => none.insert(self.log.begin_file(0, Tail::Nothing)?),
        };
        format::seal(&mut self.block, 0, open.segment.salt, 0, 0);
        let place = self.log.disk.place(&open.segment.name());
        open.file.write_at(open.segment.bytes, &self.block).map_err(LogError::io("write", place))?;
        open.segment.bytes += length;
        self.block.truncate(BLOCK_HEADER);
        Ok(())
    }

    /// Has all of the file stay, but for its name.
    fn end_file(&mut self) -> Result<(), LogError> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        open.end();
        let synced = open.file.sync();
        let place = self.log.disk.place(&open.segment.name());
        self.full.push(open.segment);
        synced.map_err(LogError::io("synchronise", place))
    }

    fn finish(&mut self) -> Result<(), LogError> {
        self.write()?;
        self.end_file()
    }
}
