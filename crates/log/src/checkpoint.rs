//! Checkpoints: files of rows, in the place of the log files that led to them.
//!
//! A checkpoint is made of files, and not of what is in memory: the old ones are read as at a recovery, and what comes of it is written. So it is the
//! same for every protocol and index, no transaction waits for it or sees anything of it, and what it holds was durable before. It takes as
//! much memory as the rows do, for as long as it lasts.
//!
//! Files that are read hold nothing that is not durable yet; others stay, and may have older writes of the same rows, of which the stamp says so. A
//! deletion is kept as long as a file that stays may have an older write.

use contend_engine::Groups;
use contend_engine::journal::Addition;

use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{self, BLOCK_HEADER, Change, Write};
use crate::log::{Log, Open};
use crate::manifest::{Contents, Segment, Tail};
use crate::recovery::{self, All};
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
        self.compact(true)
    }

    /// The same, for who flushes by hand: what is in files that were begun before [`Log::begin_files`] was called, if all of it is durable.
    ///
    /// # Errors
    /// As of [`Log::checkpoint`].
    #[doc(hidden)]
    pub fn checkpoint_by_hand(&self) -> Result<Checkpoint, LogError> {
        let _alone = self.checkpoint.lock();
        self.check()?;
        self.compact(false)
    }

    /// Replaces the files that hold nothing but what is durable; with `behind`, while others have work that comes first.
    fn compact(&self, behind: bool) -> Result<Checkpoint, LogError> {
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
            !open.contains(&segment.number)
                && segment.last_lsn < lsn.max(1)
                && (segment.newest() <= contents.epoch || self.has(Fault::CheckpointTooMuch))
        };
        let (old, staying): (Vec<_>, Vec<_>) = contents.segments.iter().cloned().partition(is_over);
        // In the files that stay, and in those to come, all is of later epochs.
        let first_blocks = staying.iter().filter_map(|segment| segment.blocks).map(|(first, _)| first - 1);
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
        let output = if behind { at_low_priority(rewrite) } else { rewrite() }?;
        let mut manifest = self.manifest.lock();
        self.check()?;
        let mut contents = manifest.contents.clone();
        contents.lsn = contents.lsn.max(lsn);
        contents.segments.retain(|segment| old.iter().all(|old| old.number != segment.number));
        contents.segments.extend(output.files.iter().map(|open| open.segment.clone()));
        manifest.write(contents).map_err(|error| self.stop(error))?;
        drop(manifest);
        self.remove(&old)?;
        Ok(Checkpoint {
            rows: output.rows,
            bytes: output.files.iter().map(|open| open.segment.bytes).sum(),
            replaced: (old.len(), bytes),
            seconds: began.elapsed().as_secs_f64(),
        })
    }
}

impl Log {
    /// Has these files hold all that is known of the rows, if not all of it was in the manifest: nothing that was behind it is looked at again.
    pub(crate) fn replace_all(&self, all: &All, epoch: u64) -> Result<(), LogError> {
        let mut manifest = self.manifest.lock();
        let bytes = manifest.contents.segments.iter().map(|segment| segment.bytes).sum();
        let output = self.write_checkpoint(&manifest.contents.tables, epoch, bytes, all.tables.iter())?;
        let segments = output.files.iter().map(|open| open.segment.clone()).collect();
        let contents = Contents { segments, epoch, lsn: all.last.lsn + 1, ..manifest.contents.clone() };
        let old = std::mem::take(&mut manifest.contents.segments);
        manifest.write(contents)?;
        drop(manifest);
        self.remove(&old)
    }

    fn remove(&self, old: &[Segment]) -> Result<(), LogError> {
        for segment in old {
            let name = segment.name();
            self.disk.remove(&name).map_err(LogError::io("remove", self.disk.place(&name)))?;
        }
        Ok(())
    }

    /// The files of a checkpoint of these tables, synchronised, in the place of so many bytes.
    fn write_checkpoint(
        &self,
        schemas: &[Schema],
        settled: u64,
        bytes: u64,
        tables: impl Iterator<Item = impl AsRef<[Rows]> + Sync>,
    ) -> Result<Files<'_>, LogError> {
        // As many threads as read, each with files of its own; but no more than there are files to fill.
        let files = bytes / self.config.segment_bytes.max(1) + 1;
        let threads = self.config.threads.clamp(1, usize::try_from(files).unwrap_or(usize::MAX));
        let new = |_| Files { log: self, files: Vec::new(), block: vec![0; BLOCK_HEADER], rows: 0 };
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
        let (rows, files) = (parts.iter().map(|part| part.rows).sum(), parts.into_iter().flat_map(|part| part.files));
        let output = Files { rows, files: files.collect(), ..new(0) };
        if let Err(error) = written {
            // What was written is of no use; whether it can be removed changes nothing.
            output.files.iter().for_each(|open| _ = self.disk.remove(&open.segment.name()));
            return Err(error);
        }
        Ok(output)
    }
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
    files: Vec<Open>,
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
            let is_needed = known.deleted().epoch() + 1 > settled && !self.log.has(Fault::ForgetTombstones);
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
        if self.files.last().is_none_or(|open| !open.has_room(length)) {
            self.files.push(self.log.begin_file(length, Tail::Nothing)?);
        }
        let open = self.files.last_mut().expect("there is one now");
        format::seal(&mut self.block, 0, open.segment.salt, 0, 0);
        let place = self.log.disk.place(&open.segment.name());
        open.file.write_at(open.segment.bytes, &self.block).map_err(LogError::io("write", place))?;
        open.segment.bytes += length;
        self.block.truncate(BLOCK_HEADER);
        Ok(())
    }

    /// Has all of it stay, but for the names.
    fn finish(&mut self) -> Result<(), LogError> {
        self.write()?;
        for open in &mut self.files {
            open.file.sync().map_err(LogError::io("synchronise", self.log.disk.place(&open.segment.name())))?;
        }
        Ok(())
    }
}
