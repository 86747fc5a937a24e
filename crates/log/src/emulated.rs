//! A log whose device is a delay: it shows what commits cost on a device of a given latency, on any
//! machine. Simulated chips use it always.
//!
//! As in the P-WAL paper (section 4), a worker's log is written to its own memory, and a flush
//! takes a given time. The devices of workers don't share anything, and their bandwidth has no
//! limit. Nothing can be recovered.
//!
//! The buffer is in the machine's memory, so that a simulated chip counts the writes to it. The
//! count of bytes is a standard atomic, because it is a statistic that must not cost simulated
//! time.

use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering as StdOrdering};

use contend_engine::commit_sink::{CommitSink, CommitSinks, Hold, Logged};
use contend_engine::sets::{WriteKind, WriteSet};
use contend_engine::{AbortReason, KeyWords};
use contend_machine::{Activity, Atomic64, Machine};

use crate::commit::{CommitProtocol, Commits, Committer};

/// The number of words of a worker's buffer.
const BUFFER_WORDS: usize = 1 << 13;

/// A log of which a flush takes a given time.
#[derive(Debug)]
pub struct Emulated<M: Machine> {
    commits: Arc<Commits<M>>,
    /// How long a flush takes, in cycles.
    latency: u64,
    /// Bytes that were flushed.
    bytes: Arc<AtomicU64>,
}

impl<M: Machine> Emulated<M> {
    /// Creates a log for `workers` workers, whose devices have this latency.
    pub fn new(protocol: CommitProtocol, workers: usize, latency_ns: u64) -> Self {
        let latency = (latency_ns as f64 * M::cycles_per_second() / 1e9) as u64;
        Emulated { commits: Arc::new(Commits::new(protocol, workers, 0, None)), latency, bytes: Arc::default() }
    }

    /// Returns the bytes that were flushed.
    pub fn bytes(&self) -> u64 {
        // Relaxed: a count that no other memory depends on.
        self.bytes.load(StdOrdering::Relaxed)
    }
}

impl<M: Machine> CommitSinks<M> for Emulated<M> {
    fn of_worker(&self, worker: usize) -> Box<dyn CommitSink<M>> {
        Box::new(EmulatedLog {
            committer: Committer::new(&self.commits, worker),
            latency: self.latency,
            buffer: EmulatedBuffer::new(),
            used: 0,
            bytes: Arc::clone(&self.bytes),
        })
    }

    fn holds_rows(&self) -> bool {
        self.commits.protocol().holds_rows()
    }
}

/// A worker's buffer, in the machine's memory.
#[derive(Debug)]
struct EmulatedBuffer<M: Machine>(NonNull<M::U64>);

impl<M: Machine> EmulatedBuffer<M> {
    const LAYOUT: Layout = match Layout::array::<M::U64>(BUFFER_WORDS) {
        Ok(layout) => layout,
        Err(_) => panic!("a buffer is small"),
    };

    /// Allocates a buffer. None if the machine has no more memory: then there is none for rows
    /// either, which is an error elsewhere.
    fn new() -> Option<Self> {
        let words = M::alloc(Self::LAYOUT)?.cast::<M::U64>();
        for word in 0..BUFFER_WORDS {
            // SAFETY: the word is within the block, which has no other owner, and is aligned by its
            // layout.
            unsafe { words.add(word).write(M::U64::new(0)) };
        }
        Some(EmulatedBuffer(words))
    }

    fn words(&self) -> &[M::U64] {
        // SAFETY: `BUFFER_WORDS` words were initialised in `new`, and the block lives as long as
        // `self`.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), BUFFER_WORDS) }
    }
}

impl<M: Machine> Drop for EmulatedBuffer<M> {
    fn drop(&mut self) {
        // SAFETY: the block came from `alloc` with this layout, and its words need no drop.
        unsafe { M::dealloc(self.0.cast(), Self::LAYOUT) };
    }
}

// SAFETY: the block is owned, and its words are `Send` and `Sync`.
unsafe impl<M: Machine> Send for EmulatedBuffer<M> {}

/// The part of one worker.
#[derive(Debug)]
struct EmulatedLog<M: Machine> {
    committer: Committer<M>,
    latency: u64,
    buffer: Option<EmulatedBuffer<M>>,
    /// Words that were appended since the last flush.
    used: usize,
    bytes: Arc<AtomicU64>,
}

impl<M: Machine> EmulatedLog<M> {
    fn append(&mut self, words: &[u64]) {
        let Some(buffer) = &self.buffer else { return };
        // The buffer is never read, so when it is full it is overwritten from its beginning.
        for part in words.chunks(BUFFER_WORDS) {
            if self.used % BUFFER_WORDS + part.len() > BUFFER_WORDS {
                self.used = self.used.next_multiple_of(BUFFER_WORDS);
            }
            let start = self.used % BUFFER_WORDS;
            M::copy_in(&buffer.words()[start..start + part.len()], part);
            self.used += part.len();
        }
    }

    fn flush(&mut self) {
        M::step("flush");
        // Relaxed: a count that no other memory depends on.
        self.bytes.fetch_add(self.used as u64 * 8, StdOrdering::Relaxed);
        let phase = M::phase();
        M::enter(phase.doing(Activity::Wait));
        M::idle(self.latency);
        M::enter(phase);
        self.used = 0;
        self.committer.flushed();
    }
}

impl<M: Machine> CommitSink<M> for EmulatedLog<M> {
    fn committing(&mut self) -> Hold {
        self.committer.committing()
    }

    fn committed(&mut self, epoch: u64, writes: &WriteSet<M>) {
        let appends = self.committer.is_to_append(!writes.logged().is_empty());
        if self.committer.is_of_earlier(epoch) {
            self.flush();
        }
        if appends {
            M::step("append");
            self.append(&[self.committer.lsn(), writes.logged().len() as u64]);
            for logged in writes.logged() {
                let &Logged { position, counter, .. } = logged;
                let write = &writes.entries()[position];
                let head = [u64::from(write.table().id()), counter.0];
                self.append(&head);
                self.append(writes.key(position));
                if let Some(additions) = writes.additions(logged) {
                    additions.iter().for_each(|added| self.append(&[u64::from(added.word), added.by]));
                } else if write.kind != WriteKind::Delete {
                    for span in write.table().spans(write.groups()) {
                        self.append(&writes.image(position)[span.words()]);
                    }
                }
            }
        }
        if self.committer.appended(epoch, appends) {
            self.flush();
        }
    }

    fn loaded(&mut self, _: u64, _: u32, _: &KeyWords, _: &[u64]) {
        // Rows that are loaded before a run count as durable.
    }

    fn may_pass(&mut self, hold: Hold) -> bool {
        self.committer.may_pass(hold)
    }

    fn is_released(&mut self, hold: Hold) -> bool {
        self.committer.is_released(hold)
    }

    fn wait_for(&mut self, hold: Hold) {
        let latency = self.latency;
        self.committer.wait_for(hold, |_| {
            M::idle(latency);
            true
        });
    }

    fn aborted(&mut self, reason: AbortReason) {
        // The transaction that was in the way may wait for a hold of this worker.
        if self.committer.holds_rows() && reason.is_conflict() && self.committer.has_unflushed() {
            self.flush();
        }
    }

    fn go_offline(&mut self) {
        if self.committer.has_unflushed() {
            self.flush();
        }
    }

    fn ticket(&self) -> u64 {
        self.committer.ticket()
    }

    fn is_durable(&mut self, ticket: u64) -> bool {
        self.committer.is_durable(ticket)
    }
}
