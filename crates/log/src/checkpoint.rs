//! Checkpoints: files of rows that replace the log files that led to them.
//!
//! **From files, not from memory.** A checkpoint reads the old files as a recovery does, and writes
//! the rows that come of it. So it is the same for every protocol and index, no transaction waits
//! for it or sees anything of it, and all that it holds was durable before. The price is memory for
//! the rows once more, while it lasts. Its threads have a lower priority than others (`NICE`),
//! unless the log grows so fast that they could not follow (`OVERDUE`).
//!
//! **Which files.** A file is replaced if no worker writes to it any more and all of its blocks are
//! durable. The others stay. They may hold older writes of rows that the checkpoint has, which lose
//! by their write counters. So a deletion is kept as long as a file that stays may hold an older
//! write of its key. A file that stays may also hold what the checkpoint's rows depend on: the
//! write that an addition was added to, or the insert of a row whose later write alone stands in
//! the replaced files. The checkpoint keeps what it has of such a row: the sum of the additions, or
//! single groups.
//!
//! **When it counts.** The new files are synchronised, then the directory, and then the manifest
//! names them in the place of the old ones, in one write. A crash before that leaves the old files
//! in force, and after it the new ones. A disk that is full ends the checkpoint and nothing else.
//!
//! Small files are merged in the same way when there are many ([`Log::merge`]): each start of a
//! database leaves one per thread.

use contend_engine::Groups;
use contend_engine::commit_sink::Addition;

use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, BLOCK_HEADER, Change, Write};
use crate::log::{Log, OpenFile};
use crate::manifest::{ManifestContents, Segment, Tail};
use crate::recovery;
use crate::rows::{Known, Rows};
use crate::schema::{Form, Schema};

/// A block of a checkpoint is written when it has this many bytes.
const BLOCK_BYTES: usize = 1 << 18;

/// Statistics of a checkpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Checkpoint {
    /// Rows that its files hold, in whole or in part. A part is what was written to a row whose
    /// insert is in a file that stays: another worker had not written that insert yet when the
    /// replaced files were ended.
    pub rows: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// The number of files that it has replaced, and their bytes.
    pub replaced: (usize, u64),
    /// The time it took, in seconds.
    pub seconds: f64,
}

impl Log {
    /// Takes a checkpoint of all that is durable when it begins. Another thread must flush
    /// meanwhile ([`Log::serve`]).
    ///
    /// # Errors
    /// The disk has failed, now or before, and the log has stopped. Or the disk was full: then
    /// nothing has changed, and the log goes on.
    pub fn checkpoint(&self) -> Result<Checkpoint, LogError> {
        let _alone = self.checkpoint.lock();
        let last = self.begin_files();
        // So that the manifest has the ended files as they are, even if no transaction commits any
        // more.
        self.flush(self.durable())?;
        self.wait(last)?;
        self.compact(true, |_| true)
    }

    /// Takes a checkpoint of the files that [`Log::begin_files`] has ended and whose blocks are
    /// durable, without a thread that flushes: for tests that flush by themselves.
    ///
    /// # Errors
    /// As of [`Log::checkpoint`].
    #[doc(hidden)]
    pub fn checkpoint_by_hand(&self) -> Result<Checkpoint, LogError> {
        let _alone = self.checkpoint.lock();
        self.check()?;
        self.compact(false, |_| true)
    }

    /// Merges small files that no worker writes to any more, if there are many of them. The others
    /// stay.
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
        let is_ended = |segment: &&Segment| is_small(segment) && !open.contains(&segment.number);
        if segments.iter().filter(is_ended).count() > self.config.small_files {
            self.compact(true, is_small)?;
        }
        Ok(())
    }

    /// Replaces the files that `which` selects and that hold nothing but what is durable. `behind`:
    /// at a low priority.
    fn compact(&self, behind: bool, which: impl Fn(&Segment) -> bool) -> Result<Checkpoint, LogError> {
        let began = std::time::Instant::now();
        // Both under the manifest's lock, so that no flush comes between them: a file that is not
        // open is in the manifest as it will stay, and an open one that the manifest names is not
        // taken for an ended one.
        let (open, contents) = {
            let manifest = self.manifest.lock();
            (self.open_files(), manifest.contents.clone())
        };
        // A checkpoint drops LSNs. Recovery looks for gaps in them, so the manifest must say that
        // those dropped are durable.
        let lsn = self.durable_lsn();
        let is_over = |segment: &Segment| {
            which(segment)
                && !open.contains(&segment.number)
                && segment.last_lsn < lsn.max(1)
                && (segment.newest() <= contents.epoch || self.has(Fault::CheckpointTooMuch))
        };
        let (old, staying): (Vec<_>, Vec<_>) = contents.segments.iter().cloned().partition(is_over);
        // All blocks of the files that stay, and of those to come, are of epochs after `settled`. A
        // checkpoint has rows of any epoch.
        let first_blocks = staying.iter().map(|segment| segment.blocks.map_or(0, |(first, _)| first.saturating_sub(1)));
        let settled = first_blocks.fold(contents.epoch, u64::min);
        let of_old = ManifestContents { segments: old.clone(), ..contents };
        let bytes: u64 = old.iter().map(|segment| segment.bytes).sum();
        let rewrite = || {
            let how = self.config.how(false);
            let all = recovery::read_all(&*self.disk, &of_old, how, &|_| ())?;
            // One table after the other, so that the memory of each is free again before the next.
            self.write_checkpoint(&of_old.tables, settled, bytes, all.tables.into_iter())
        };
        // Threads wait for locks that are taken before and after this, never for this. If the log
        // grows faster than a thread of low priority can follow, the priority is that of all
        // others.
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

    /// Removes files that were written for nothing. If that fails, the next start removes them.
    fn discard(&self, files: &[Segment]) {
        files.iter().for_each(|segment| _ = self.disk.remove(&segment.name()));
    }

    /// Writes the files of a checkpoint of these tables, and synchronises them. `bytes` is how many
    /// bytes the replaced files have.
    fn write_checkpoint(
        &self,
        schemas: &[Schema],
        settled: u64,
        bytes: u64,
        tables: impl Iterator<Item = impl AsRef<[Rows]> + Sync>,
    ) -> Result<Written, LogError> {
        // Each thread has files of its own, so there are no more threads than files to fill.
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
            // The log stops: the next attempt would succeed, and workers may have new files as
            // well.
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

/// The result of writing a checkpoint.
struct Written {
    files: Vec<Segment>,
    rows: u64,
}

/// The nice value of the threads of a checkpoint: a third of the share of a core that another
/// thread gets, by the weights of Linux.
const NICE: i32 = 5;

/// A checkpoint has the usual priority when it replaces this many times the bytes after which one
/// is due.
const OVERDUE: u64 = 4;

/// Runs `work` in a thread of low priority. Threads that it starts have the same priority.
fn at_low_priority<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let work = || {
        // If this is not allowed, the thread has the usual priority.
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
        work()
    };
    std::thread::scope(|scope| scope.spawn(work).join().expect("a checkpoint does not panic"))
}

/// Calls `work` with all parts at once, each on a thread of its own.
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

/// The files that one thread of a checkpoint writes.
struct Files<'l> {
    log: &'l Log,
    /// The file that is written.
    open: Option<OpenFile>,
    /// Files that are full, and synchronised.
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
            self.rows += u64::from(known.existed_last());
            // A file that stays may have an older write if it has commits of the deletion's epoch
            // or of the next one: a protocol that exposes rows before it commits takes their write
            // counters in the epoch before that of its commit, at the earliest. (The next epoch is
            // slack: a transaction that deletes an exposed row commits after the one that exposed
            // it, and takes its write counter then.)
            let last = settled + u64::from(self.log.has(Fault::ForgetLastTombstones));
            let is_needed = known.deleted().epoch() + 1 > last && !self.log.has(Fault::ForgetTombstones);
            if known.deleted().0 > 0 && is_needed {
                self.put(schema, Write { table, key, counter: known.deleted(), change: Change::Delete });
            }
            self.put_row(table, schema, key, known);
            if self.block.len() >= BLOCK_BYTES {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Puts the writes of a row. Groups that one transaction wrote last are one write.
    fn put_row(&mut self, table: u32, schema: &Schema, key: &[u64], known: Known<'_>) {
        let mut left = schema.all_groups();
        while let Some(first) = left.into_iter().next() {
            let written = known.written(first);
            let is_sum = known.is_sum(first);
            let same = left.into_iter();
            let same = same.filter(|&group| known.written(group) == written && known.is_sum(group) == is_sum);
            let groups = same.fold(Groups::NONE, |groups, group| groups.union(Groups::of(group as u32)));
            left = left.without(groups);
            // The group was deleted later, or never written.
            let Some(counter) = written.filter(|counter| *counter > known.deleted()) else { continue };
            if !is_sum {
                self.put(schema, Write { table, key, counter, change: Change::Put(groups, known.row()) });
                continue;
            }
            if self.log.has(Fault::ForgetSums) {
                continue;
            }
            // The write that was added to is in a file that stays, or will be in a later one.
            let words = schema.words(groups).flatten();
            let additions: Vec<_> = words.map(|word| Addition { word: word as u32, by: known.row()[word] }).collect();
            self.put(schema, Write { table, key, counter, change: Change::Add(&additions) });
        }
    }

    fn put(&mut self, schema: &Schema, write: Write<'_>) {
        // Epoch 0 counts in any case: all of it was durable before.
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
            // No room is reserved: it is as long as what is written to it.
            none => none.insert(self.log.begin_file(0, Tail::Nothing)?),
        };
        format::seal(&mut self.block, 0, open.segment.salt, 0, 0);
        let place = self.log.disk.place(&open.segment.name());
        open.file.write_at(open.segment.bytes, &self.block).map_err(LogError::io("write", place))?;
        open.segment.bytes += length;
        self.block.truncate(BLOCK_HEADER);
        Ok(())
    }

    /// Synchronises the file and ends it. Its name is not durable yet.
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
