//! Making durable what workers have written.
//!
//! [`Log::flush`] is the group commit of Silo: it makes an epoch durable. It does so in one of two
//! ways, and only then publishes the epoch in `Log::durable`.
//!
//! - If the manifest names all files that have something new, and none of them is full, each of
//!   them gets an end ([`crate::format::End`]), and they are synchronised together. A crash
//!   meanwhile leaves a flush without all of its ends, and none of it counts. A thread that commits
//!   alone waits for one synchronisation of one file.
//! - Otherwise, in this order: it synchronises the files, synchronises the directory if a file is
//!   new, and writes the manifest, which says how far each file counts and up to which epoch. A
//!   crash between two of these steps leaves what was durable before, and later bytes don't count.
//!
//! [`Log::flush_worker`] serves the other commit protocols ([`crate::commit`]): it synchronises the
//! file of one worker, and writes the manifest only for a file that the manifest does not name yet.
//!
//! A synchronisation that fails is never tried again: the kernel may have dropped the pages that it
//! could not write, and the next attempt would succeed without them. The log stops instead
//! ([`Log::stop`]).
//!
//! **Locks** are taken in this order: the manifest, an output, its buffer; `wanted` comes last.
//! Only a thread that holds the manifest's lock holds the outputs of several workers. A flush of an
//! epoch holds that lock until its number is published, so flushes come one after the other, and
//! the manifest never says less than before. A worker appends under the lock of its own buffer
//! alone. With group commit it waits for a flush only if that buffer is full, so all files are
//! synchronised together, under the locks of their outputs.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::Log;
use super::buffer::{OpenFile, Output, Writer};
use crate::commit::CommitProtocol;
use crate::disk::DiskFile;
use crate::error::LogError;
use crate::fault::Fault;
use crate::format::{END_BYTES, End};
use crate::manifest::ManifestContents;

impl Log {
    /// Returns the largest durable epoch: every transaction that committed in it, or earlier, is
    /// durable.
    pub fn durable(&self) -> u64 {
        // Acquire: pairs with the Release of `try_flush`, which follows the last synchronisation. A
        // thread that learns from this that a transaction is durable may tell its client, so the
        // disk must hold the transaction by then. The store comes after the last synchronisation,
        // so it does.
        self.durable.load(Ordering::Acquire)
    }

    /// Makes every transaction that committed in `epoch` or earlier durable. The caller guarantees
    /// that no transaction can still commit in `epoch`.
    ///
    /// # Errors
    /// The disk has failed, now or before. The log has stopped.
    pub fn flush(&self, epoch: u64) -> Result<(), LogError> {
        self.check()?;
        let epoch = epoch + u64::from(self.has(Fault::EndEpochEarly));
        if self.has(Fault::AcknowledgeBeforeFlush) {
            // Release: as in `try_flush`, but too early.
            self.durable.fetch_max(epoch, Ordering::Release);
        }
        let flushed = self.try_flush(epoch);
        if flushed.is_err() && self.has(Fault::RetrySync) {
            return self.try_flush(epoch);
        }
        flushed.map_err(|error| self.stop(error))
    }

    fn try_flush(&self, epoch: u64) -> Result<(), LogError> {
        let mut manifest = self.manifest.lock();
        // Not even a flush that does not write it is acknowledged without a manifest.
        manifest.check()?;
        let mut contents = manifest.contents.clone();
        let mut full = Vec::new();
        // Outputs whose files are synchronised together. Their locks are held until then. Otherwise
        // the manifest could count a block that was written after the synchronisation began.
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
                // The worker flushes its own file, and must not wait until the files of all others
                // are synchronised.
                self.sync(std::iter::once(&mut *output))?;
                full.extend(output.note_in(&mut contents));
            }
        }
        // If the files hold no epoch that is later than the durable one, recovery needs no later
        // epoch. Relaxed: the locks that were held above order this load behind the stores of
        // `try_write`.
        let has_later = self.last_written.load(Ordering::Relaxed) > contents.epoch && epoch > contents.epoch;
        contents.epoch = contents.epoch.max(epoch);
        contents.flush += 1;
        let is_ended = self.end(&mut dirty, &contents)?;
        self.sync(dirty.iter_mut().map(|output| &mut **output))?;
        full.extend(dirty.iter_mut().flat_map(|output| output.note_in(&mut contents)));
        drop(dirty);
        // A worker's own flush may have failed meanwhile. Then nothing is acknowledged any more.
        self.check()?;
        if is_ended {
            // The files say it themselves.
            manifest.contents = contents;
        } else if has_written || has_later {
            // The swap comes first, so a file that is created before the synchronisation ends sets
            // the flag again. In the other order its flag would be cleared, and a crash could lose
            // the file. AcqRel: the Acquire half pairs with the Release store of `begin_file`.
            if has_written && self.has_new_names.swap(false, Ordering::AcqRel) && !self.has(Fault::SkipNames) {
                self.disk.sync_names().map_err(LogError::io("synchronise the directory of", self.disk.place("")))?;
            }
            manifest.write(&*self.disk, contents)?;
        }
        full.iter_mut().for_each(OpenFile::trim);
        // Here the transactions are acknowledged. The maximum, because the epoch may be durable
        // already. Release: pairs with the Acquire load of `durable`; the ends or the manifest were
        // synchronised before.
        self.durable.fetch_max(epoch, Ordering::Release);
        drop(manifest);
        // After the number. A waiter checks the number under this lock and sleeps. So it sees the
        // new number, or it sleeps by now and is woken.
        let _wanted = self.wanted.lock();
        self.flushed.notify_all();
        Ok(())
    }

    /// Writes the end of a flush to each of its files, if the manifest names them all and they have
    /// room. `contents` is what will be durable then. Returns whether that was done: then the files
    /// must be synchronised, and the manifest need not be written.
    fn end(&self, dirty: &mut [MutexGuard<'_, Output>], contents: &ManifestContents) -> Result<bool, LogError> {
        let names = |number| contents.segments.iter().any(|segment| segment.number == number);
        let is_ready = |open: &OpenFile| {
            (names(open.segment.number) || self.has(Fault::EndUnnamed)) && open.has_room(END_BYTES as u64)
        };
        if dirty.is_empty()
            || !dirty.iter().all(|output| output.full.is_empty() && output.open.as_ref().is_some_and(is_ready))
        {
            return Ok(false);
        }
        let files = if self.has(Fault::EndAlone) { 1 } else { dirty.len() };
        let files = u32::try_from(files).expect("fewer than 2^32 workers");
        for open in dirty.iter_mut().filter_map(|output| output.open.as_mut()) {
            let written = open.write_end(End { files, epoch: contents.epoch, log_flush: contents.flush });
            written.map_err(|error| self.fail(LogError::io("write", self.disk.place(&open.segment.name()))(error)))?;
        }
        Ok(true)
    }

    /// Stops the log. This happens while the lock of the output is held: the thread that takes it
    /// next must not synchronise the file again, which would succeed.
    pub(super) fn fail(&self, error: LogError) -> LogError {
        if self.has(Fault::RetrySync) { error } else { self.stop(error) }
    }

    /// Synchronises the files of these outputs.
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

    /// Makes a worker's buffer durable, without those of the others.
    ///
    /// # Errors
    /// The disk has failed, now or before. The log has stopped.
    pub(crate) fn flush_worker(&self, worker: usize) -> Result<(), LogError> {
        self.check()?;
        let flushed = self.try_flush_worker(&self.writers[worker]);
        flushed.map_err(|error| self.stop(error))
    }

    fn try_flush_worker(&self, writer: &Writer) -> Result<(), LogError> {
        {
            // In most flushes the manifest names all files of the worker, and its lock is not
            // needed. So workers that flush by themselves don't wait for one another.
            let output = &mut *writer.output.lock();
            self.write(writer, output)?;
            if output.full.iter().chain(&output.open).all(|open| open.is_known) {
                return self.sync(std::iter::once(output));
            }
        }
        // Recovery would not look for one of the files: the manifest must name it first. The
        // manifest's lock is taken before that of an output.
        // The output's lock was given up for that, so the buffer may have more by now, and another
        // worker may have flushed it (`Committer::wait_for`). Each step below is right in any of
        // these cases.
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

    /// Returns an LSN below which every transaction is durable.
    pub(crate) fn durable_lsn(&self) -> u64 {
        // Acquire: pairs with the Release of `note_durable_lsn`, whose caller has seen the flushes
        // of all smaller LSNs. A block repeats this number, and recovery believes it; so those
        // flushes must come before the block is written.
        self.lsn.load(Ordering::Acquire)
    }

    /// Notes that every transaction below `lsn` is durable.
    pub(crate) fn note_durable_lsn(&self, lsn: u64) {
        // The maximum, because a worker that has loaded the slots earlier may come here later.
        // Release: pairs with the Acquire of `durable_lsn`.
        self.lsn.fetch_max(lsn, Ordering::Release);
    }

    /// Waits until every transaction that committed in `epoch` or earlier is durable.
    ///
    /// # Errors
    /// The log has stopped, so that will never be known.
    pub fn wait(&self, epoch: u64) -> Result<(), LogError> {
        if self.durable() >= epoch {
            return Ok(());
        }
        let mut wanted = self.wanted.lock();
        while self.durable() < epoch {
            self.check()?;
            *wanted = (*wanted).max(epoch);
            self.asked.notify_one();
            // The wait gives up the lock and sleeps in one step, so no notification of `try_flush`
            // or `stop` comes between the check and the sleep.
            self.flushed.wait(&mut wanted);
        }
        Ok(())
    }
}
