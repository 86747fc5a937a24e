//! The thread that flushes: when it does, up to which epoch, and how a log is closed.
//!
//! **What a flush of epoch `e` must find.** A worker appends a transaction of `e` under the lock of
//! its buffer, and leaves `e` afterwards, by a Release store of its slot. The flushing thread loads
//! the slots with Acquire (`Epochs::oldest_to_commit`), finds none in `e` or before, and only then
//! takes the locks of the buffers. So each append of `e` happens before the flush takes that
//! buffer. A worker that comes online unseen begins in a later epoch than `e`. In the other order a
//! transaction could be appended behind the flush, and be acknowledged with it.
//!
//! **Progress.** A wait ([`Log::wait`]) ends by a flush, or when the log stops. A flush waits for
//! workers that are in an old epoch, in each round for `PATIENCE` at most. No such worker waits for
//! a flush, except to write its own buffer when that is full.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use contend_engine::epoch::Epochs;
use contend_engine::{Engine, Protocol};
use contend_machine::Machine;

use super::Log;
use super::buffer::OpenFile;
use crate::error::LogError;
use crate::fault::Fault;
use crate::manifest::Tail;

/// The thread that flushes the log of an engine. When it is dropped, it closes the log and waits
/// for the last flush.
#[derive(Debug)]
pub struct Flusher {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

impl Flusher {
    /// Starts the thread. What no thread waits for is durable after about a `period`, which also is
    /// how long an epoch of the engine is.
    pub fn start<P: Protocol<M>, M: Machine>(log: &Arc<Log>, engine: &Arc<Engine<P, M>>, period: Duration) -> Self {
        let thread = {
            let (log, engine) = (Arc::clone(log), Arc::clone(engine));
            std::thread::spawn(move || log.serve(period, || log.settle(engine.epochs())))
        };
        Flusher { log: Arc::clone(log), thread: Some(thread) }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.log.close();
        if let Some(thread) = self.thread.take() {
            // It has no reason to panic, and a destructor could do nothing about a panic.
            let _ = thread.join();
        }
    }
}

impl Log {
    /// Flushes until the log is closed: at once when a thread waits ([`Log::wait`]), and otherwise
    /// every `period`. `settle` advances the epoch if it can, and returns the last epoch in which
    /// no transaction can still commit.
    pub fn serve(&self, period: Duration, mut settle: impl FnMut() -> Settled) {
        let mut pause = period;
        loop {
            {
                let mut wanted = self.wanted.lock();
                // The condition is checked under the lock that `wait` and `close` hold when they
                // notify. A waiter that raises `wanted` after this check notifies a thread that
                // sleeps already, so no wake-up is lost. One without a reason costs a round too
                // early.
                if *wanted <= self.durable() && !self.is_closed() {
                    self.asked.wait_for(&mut wanted, pause);
                }
            }
            // Before `settle`, and not again below: what was committed before the log was closed is
            // found by the flush of this round. A log that is closed later has another round.
            let is_closed = self.is_closed();
            let Settled { epoch: settled, current } = settle();
            // A worker that had just lost its core keeps the last epoch open. What was committed in
            // it must not wait for a whole period more.
            pause = match settled + 1 < current {
                true if pause < period => period.min(2 * pause),
                true => period.min(PATIENCE),
                false => period,
            };
            if settled > self.durable() || is_closed {
                // Threads that wait get the error from the log, and so do those that commit later.
                let _ = self.flush(settled);
            } else {
                // A worker is in a long transaction.
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

    /// Advances the epoch if that is possible, and gives the workers a moment to enter it. This is
    /// the `settle` of [`Log::serve`].
    pub fn settle<M: Machine>(&self, epochs: &Epochs<M>) -> Settled {
        let began = Instant::now();
        self.settle_while(epochs, || {
            std::thread::sleep(Duration::from_micros(50));
            began.elapsed() < PATIENCE
        })
    }

    /// Does the same as [`Log::settle`] on a machine that has no threads: `wait` lets the workers
    /// run, and says whether to wait once more.
    pub fn settle_while<M: Machine>(&self, epochs: &Epochs<M>, mut wait: impl FnMut() -> bool) -> Settled {
        epochs.try_advance();
        // A worker that runs transactions enters the epoch with its next one, within microseconds,
        // unless it has lost its core.
        while epochs.oldest_to_commit() < epochs.current() && wait() {}
        // A worker that has entered an epoch commits in no earlier one. So no worker commits in an
        // epoch before the oldest that one is in.
        // The lower bound may be too low by the time that it is used, which only makes a flush
        // promise less: workers go to later epochs, never back.
        let running = u64::from(!self.has(Fault::SettleRunning));
        Settled { epoch: epochs.oldest_to_commit() - running, current: epochs.current() }
    }

    /// Ends all files after the last flush: they are cut off behind their content, and the next
    /// start has nothing to look for behind it.
    fn finish(&self) -> Result<(), LogError> {
        let mut manifest = self.manifest.lock();
        let (mut contents, mut over) = (manifest.contents.clone(), Vec::new());
        for writer in &self.writers {
            let output = &mut *writer.output.lock();
            if output.is_dirty || !writer.buffer.lock().bytes.is_empty() {
                // A transaction has committed since.
                // The files stay as they are, and the next start reads them as after a crash.
                return Ok(());
            }
            over.extend(output.full.drain(..).chain(output.open.take()));
        }
        for open in &mut over {
            open.end();
            contents.put(&open.segment);
        }
        // A block of a later epoch than the manifest's may count because of its file's tail: a
        // worker has flushed it by itself.
        if contents.segments.iter().all(|segment| segment.newest() <= contents.epoch) {
            contents.segments.iter_mut().for_each(|segment| segment.tail = Tail::Nothing);
        }
        manifest.write(&*self.disk, contents)?;
        over.iter_mut().for_each(OpenFile::trim);
        Ok(())
    }

    /// Makes [`Log::serve`] return after a last flush, which cuts the files off behind their
    /// content. No transaction may commit any more.
    pub fn close(&self) {
        // Before the lock. The serving thread checks the flag under that lock and then sleeps. So
        // it either sees the flag, or sleeps when this thread has the lock, and is woken. If the
        // flag were set after the notification, it could be missed, and the thread would sleep for
        // its pause.
        //
        // Release: pairs with the Acquire of `is_closed`: the last flush finds what was committed
        // before this.
        self.closed.store(true, Ordering::Release);
        let _wanted = self.wanted.lock();
        self.asked.notify_all();
    }

    fn is_closed(&self) -> bool {
        // Acquire: pairs with the Release store of `close`.
        self.closed.load(Ordering::Acquire)
    }
}

/// What [`Log::settle`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settled {
    /// The last epoch in which no transaction can still commit.
    pub epoch: u64,
    /// The current epoch.
    pub current: u64,
}

/// How long [`Log::settle`] waits for workers to enter a new epoch.
const PATIENCE: Duration = Duration::from_millis(2);
