//! Opening a log: recovery, and the tables.
//!
//! **Order.** Recovery reads the tails of files and makes them durable as they were read. It reads
//! all files, makes the manifest durable that it has read, and then writes to the manifest what was
//! found. Only then the ends of files are cut off, and files without an entry are removed.
//! A crash before the write of the manifest repeats the recovery, with nothing decided and nothing
//! removed. A crash after it leaves only bytes and files that no longer count.
//!
//! **Threads.** No other thread has the log before [`Log::open`] returns. The `Arc` that it returns
//! is handed to workers and to the flusher by means that synchronise (a thread's start, a lock), so
//! the first values of all atomics are visible to them. Tables may be added later, while workers
//! run.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use parking_lot::{Condvar, Mutex, RwLock};

use super::{Bound, Log, LogConfig};
use crate::disk::Disk;
use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{COUNT_MAX, EPOCH_MAX};
use crate::manifest::{self, FoundManifest, Manifest, ManifestContents};
use crate::recovery::{self, All, FILE_BYTES_MAX, Recovered};
use crate::schema::Schema;

impl Log {
    /// Opens the log of a directory, or begins one if the directory has none. Returns the rows that
    /// the log has as well.
    ///
    /// # Errors
    /// The disk fails, or what was acknowledged is not there.
    pub fn open(disk: Arc<dyn Disk>, config: LogConfig) -> Result<(Arc<Self>, Recovered), LogError> {
        Self::open_with(disk, config, &|_| ())
    }

    /// Does the same as [`Log::open`]. `progress` is called with the number of bytes of each file
    /// that was read.
    ///
    /// # Errors
    /// As of [`Log::open`].
    pub fn open_with(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<(Arc<Self>, Recovered), LogError> {
        // A file must not be longer than recovery reads.
        let config = LogConfig { segment_bytes: config.segment_bytes.min(FILE_BYTES_MAX / 2), ..config };
        let (manifest, recovered) = match Manifest::open(&*disk)? {
            None => (Manifest::create(&*disk)?, Recovered::default()),
            Some(found) => {
                let began = Instant::now();
                let keeps = config.fault != Some(Fault::SkipTails);
                let before = recovery::with_tails(&*disk, found.contents.clone(), keeps, config.fault)?;
                let (manifest, all) = recover(&*disk, &config, found, &before, progress)?;
                (manifest, all.into_rows(&before, began))
            }
        };
        let next_file = remove_orphans(&*disk, &manifest.contents)?;
        let log = Log {
            next_file: AtomicU64::new(next_file),
            writers: (0..config.workers).map(|_| CachePadded::default()).collect(),
            // All that recovery returns is durable, so its epoch is the first durable one, and new
            // transactions commit in later epochs (`first_epoch`).
            durable: AtomicU64::new(manifest.contents.epoch),
            known_tables: Mutex::new(manifest.contents.tables.count()),
            // In the same way, LSNs go on behind all that were found, those of discarded
            // transactions included: a new commit must not get an LSN that stands in an old block.
            lsn: AtomicU64::new(manifest.contents.lsn.max(1)),
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
            last_written: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            disk,
            config,
        };
        Ok((Arc::new(log), recovered))
    }

    /// Returns the first epoch in which transactions may commit. It is later than those of all that
    /// the log has.
    pub fn first_epoch(&self) -> u64 {
        self.durable() + 1
    }

    /// Adds a table to the log, if it is new. Returns its number.
    ///
    /// # Errors
    /// No table can have this schema, the log has a table of this name with another schema, or the
    /// disk has no room for one more: then the log goes on without it. If the disk fails otherwise,
    /// the log has stopped.
    pub fn add_table(&self, schema: &Schema) -> Result<u32, LogError> {
        self.check()?;
        schema.check().map_err(|why| LogError::BadSchema { table: schema.name.clone(), why })?;
        // From the look-up to the addition, so that two threads don't add one table twice.
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
                // After the manifest has the table, and before any worker can write to it. So the
                // header of a new file never counts a table that the manifest lacks.
                *self.known_tables.lock() = manifest.contents.tables.count();
                manifest.contents.tables.len() - 1
            }
        };
        Ok(u32::try_from(number).expect("fewer than 2^32 tables"))
    }

    /// Binds the engine's table of number `engine` to the log's table of this schema, which is
    /// added if it is new. Returns the log's number.
    ///
    /// # Errors
    /// As of [`Log::add_table`].
    pub fn bind(&self, engine: u32, schema: &Schema) -> Result<u32, LogError> {
        let number = self.add_table(schema)?;
        let mut tables = self.tables.write();
        let length = tables.len().max(engine as usize + 1);
        tables.resize(length, None);
        tables[engine as usize] = Some((number, Arc::new(schema.clone())));
        // Under the lock. A worker that sees the new count then copies the vector under the lock
        // (`tables`), and finds this table. If the count were raised before the lock was taken, the
        // worker could copy the old vector under the new count, and would not look again.
        //
        // Relaxed: a worker that writes to the table was handed it after this, which orders its
        // load in `bound` behind this store.
        self.bound.fetch_add(1, Ordering::Relaxed);
        Ok(number)
    }

    /// Returns how many times a table was bound. A worker that knows another number calls
    /// [`Log::tables`].
    #[inline]
    pub(crate) fn bound(&self) -> u64 {
        // Relaxed: pairs with the count in `bind`, which the hand-over of the table orders before
        // this.
        self.bound.load(Ordering::Relaxed)
    }

    /// Returns the bound tables, by the engine's numbers.
    pub(crate) fn tables(&self) -> Vec<Bound> {
        self.tables.read().clone()
    }
}

/// Epochs, LSNs and flushes that a log must have left when it is opened. One that has fewer was not
/// made by an engine: it would take decades.
const LEFT_MIN: u64 = 1 << 30;

/// Reads all files of a log, and writes what was found to its manifest, so that it is not decided a
/// second time. `before` is the manifest with what the tails say ([`recovery::with_tails`]).
fn recover(
    disk: &dyn Disk,
    config: &LogConfig,
    found: FoundManifest,
    before: &ManifestContents,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<(Manifest, All), LogError> {
    let mut all = recovery::read_all(disk, before, config.how(config.checks_order), progress)?;
    all.check(before)?;
    let settled = all.settled(before);
    if settled.epoch > EPOCH_MAX - LEFT_MIN || settled.lsn.max(settled.flush) > COUNT_MAX - LEFT_MIN {
        // What is logged with a larger number could not be read again.
        let why = "its epochs, LSNs or flushes are used up".to_owned();
        return Err(LogError::Damaged { place: disk.place(manifest::NAME), offset: 0, why });
    }
    // A process that has ended may have made the manifest larger, under the same name.
    disk.sync_names().map_err(LogError::io("synchronise the directory of", disk.place("")))?;
    let mut manifest = Manifest::reopen(disk, found)?;
    // From now on what was found counts, and what was discarded never will.
    manifest.write(disk, settled)?;
    recovery::trim(disk, &all.longer);
    Ok((manifest, all))
}

/// Removes files that the manifest does not name: a crash left them before they were acknowledged,
/// or a checkpoint has replaced them. Returns the number of the next file.
fn remove_orphans(disk: &dyn Disk, contents: &ManifestContents) -> Result<u64, LogError> {
    let names = disk.names().map_err(LogError::io("list", disk.place("")))?;
    let known: HashSet<u64> = contents.segments.iter().map(|segment| segment.number).collect();
    let numbers: Vec<u64> = names.iter().filter_map(|name| manifest::number(name)).collect();
    let orphans = numbers.iter().filter(|number| !known.contains(number)).map(|&number| manifest::name(number));
    let next = names.iter().filter(|name| *name == manifest::NEXT).cloned();
    // A checkpoint's files are named by the same write of the manifest that drops the old ones. So
    // after any crash one of the two sets is named, and stays.
    for name in orphans.chain(next) {
        disk.remove(&name).map_err(LogError::io("remove", disk.place(&name)))?;
    }
    Ok(numbers.into_iter().max().map_or(0, |last| last + 1))
}
