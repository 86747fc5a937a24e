//! The cost of the layers: Silo written by hand, the same over `Machine`, and the engine's.
//!
//! `cargo bench -p contend-protocols --bench abstraction` runs three Silos on two threads in turns,
//! on the same hash index, with transactions of ten operations on 8-byte rows, and prints the
//! median of the rounds' ratios:
//!
//! - *by hand*: as short as Silo can be, on `std::sync::atomic`; no inserts, no misses, no abort
//!   reasons, no history.
//! - *over Machine*: the same text, with `Machine`'s words and fences.
//! - *engine*: `contend_protocols::optimistic::silo` in the engine's frame.
//! - *none*: `contend_protocols::none` in the engine's frame, for comparison.
//!
//! `-- --test`, or `cargo test --benches`, only shows that it runs.

use std::alloc::Layout;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contend_engine::{Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, Table, TableSpec};
use contend_index::Index;
use contend_machine::{Machine, Native, Ordering, pin_to_core};
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;

const OPERATIONS: usize = 10;
const THREADS: usize = 2;

/// A generator of keys that costs almost nothing (Steele, Lea, Flood: splitmix64, OOPSLA 2014).
struct Keys {
    state: u64,
    records: u64,
}

impl Keys {
    #[inline(always)]
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ mixed >> 27
    }

    #[inline(always)]
    fn transaction(&mut self, writes: u64, keys: &mut [(u64, bool); OPERATIONS]) {
        for slot in keys {
            let random = self.random();
            let key = ((u128::from(random) * u128::from(self.records)) >> 64) as u64;
            *slot = (spread(key), random & 0xff < writes);
        }
    }
}

/// Returns a key of a set that is not dense: a bijection.
fn spread(key: u64) -> u64 {
    key.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The work of a contestant: it runs transactions until it is told to stop, and returns the number
/// of commits.
trait Contestant: Sync {
    fn run(&self, thread: usize, records: u64, writes: u64, stop: &<Native as Machine>::U64) -> u64;
}

/// Puts rows into memory that is never freed, on huge pages where the system has them, as the
/// engine does.
fn leak_huge<T>(rows: impl ExactSizeIterator<Item = T>) -> &'static [T] {
    let count = rows.len();
    let layout = Layout::array::<T>(count).and_then(|layout| layout.align_to(2 << 20)).expect("a size that can be had");
    let first = Native::alloc(layout).expect("memory").cast::<T>();
    for (position, row) in rows.enumerate() {
        // SAFETY: inside the block, which no other thread knows.
        unsafe { first.add(position).write(row) };
    }
    // SAFETY: all `count` rows were written, and the block is never freed.
    unsafe { std::slice::from_raw_parts(first.as_ptr(), count) }
}

/// Silo by hand. It is a macro, so that the two texts are one.
macro_rules! silo_by_hand {
    ($module:ident, $word:ty, $fence:path) => {
        mod $module {
            use super::*;
            use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

            type Word = $word;

            pub(crate) struct Store {
                index: Index<Native, u64>,
                rows: &'static [[Word; 2]],
                epoch: Word,
            }

            impl Store {
                pub(crate) fn new(records: u64) -> Self {
                    let index = Index::new(IndexKind::Hash, records as usize, 64, contend_index::LeafWords::Times);
                    let rows = leak_huge((0..records as usize).map(|_| [Word::new(0), Word::new(1)]));
                    for (row, key) in rows.iter().zip(0..) {
                        index.insert(spread(key), std::ptr::from_ref(row).expose_provenance() as u64);
                    }
                    Store { index, rows, epoch: Word::new(1) }
                }

                #[inline(always)]
                fn row(&self, key: u64) -> &[Word; 2] {
                    let address = self.index.get(key).value.expect("every key is loaded");
                    // SAFETY: `new` put the addresses of `rows` into the index, and `rows` is never
                    // freed.
                    unsafe { &*std::ptr::with_exposed_provenance(address as usize) }
                }

                #[inline(always)]
                fn transaction<'a>(
                    &'a self,
                    keys: &[(u64, bool); OPERATIONS],
                    reads: &mut Vec<(&'a [Word; 2], u64)>,
                    writes: &mut Vec<(&'a [Word; 2], u64, u64)>,
                    last: &mut u64,
                ) -> Option<u64> {
                    reads.clear();
                    writes.clear();
                    let mut sum = 0u64;
                    for &(key, write) in keys {
                        let row = self.row(key);
                        if write {
                            match writes.iter_mut().find(|write| std::ptr::eq(write.0, row)) {
                                Some(write) => write.1 = key,
                                None => writes.push((row, key, 0)),
                            }
                            continue;
                        }
                        if let Some(write) = writes.iter().find(|write| std::ptr::eq(write.0, row)) {
                            sum = sum.wrapping_add(write.1);
                            continue;
                        }
                        loop {
                            let before = row[0].load(Acquire);
                            let value = row[1].load(Relaxed);
                            $fence(Acquire);
                            if before & 1 == 0 && row[0].load(Relaxed) == before {
                                reads.push((row, before));
                                sum = sum.wrapping_add(value);
                                break;
                            }
                            std::hint::spin_loop();
                        }
                    }
                    if writes.is_empty() {
                        return reads.iter().all(|(row, tid)| row[0].load(Acquire) == *tid).then_some(sum);
                    }
                    for position in 0..writes.len() {
                        let row = writes[position].0;
                        let tid = row[0].load(Relaxed);
                        if tid & 1 != 0 || row[0].compare_exchange(tid, tid | 1, AcqRel, Relaxed).is_err() {
                            for (row, _, tid) in &writes[..position] {
                                row[0].store(*tid, Release);
                            }
                            return None;
                        }
                        writes[position].2 = tid;
                    }
                    $fence(SeqCst);
                    let epoch = self.epoch.load(Acquire);
                    let valid = reads.iter().all(|(row, tid)| {
                        let now = row[0].load(Acquire);
                        now == *tid || now == tid | 1 && writes.iter().any(|write| std::ptr::eq(write.0, *row))
                    });
                    if !valid {
                        for (row, _, tid) in writes.iter() {
                            row[0].store(*tid, Release);
                        }
                        return None;
                    }
                    let newest = reads.iter().map(|read| read.1).chain(writes.iter().map(|write| write.2));
                    let tid = (newest.fold(*last, u64::max) + 2).max(epoch << 32);
                    *last = tid;
                    for (row, value, _) in writes.iter() {
                        row[1].store(*value, Relaxed);
                        row[0].store(tid, Release);
                    }
                    Some(sum)
                }
            }

            impl Contestant for Store {
                fn run(&self, thread: usize, records: u64, writes: u64, stop: &<Native as Machine>::U64) -> u64 {
                    assert_eq!(self.rows.len() as u64, records);
                    let mut keys = [(0, false); OPERATIONS];
                    let mut draw = Keys { state: thread as u64, records };
                    let (mut reads, mut written) = (Vec::with_capacity(64), Vec::with_capacity(64));
                    let (mut commits, mut last) = (0, 0);
                    while stop.load(Ordering::Relaxed) == 0 {
                        draw.transaction(writes, &mut keys);
                        while self.transaction(&keys, &mut reads, &mut written, &mut last).map(black_box).is_none() {}
                        commits += 1;
                    }
                    commits
                }
            }
        }
    };
}

silo_by_hand!(by_hand, std::sync::atomic::AtomicU64, std::sync::atomic::fence);
silo_by_hand!(over_machine, <Native as Machine>::U64, Native::fence);

struct OnEngine<P: NamedProtocol<Native>> {
    engine: Arc<Engine<P, Native>>,
    table: Table<u64>,
}

impl<P: NamedProtocol<Native>> OnEngine<P> {
    fn new(records: u64) -> Self {
        let engine = Engine::new(P::new(Default::default()), EngineConfig::default());
        let spec = TableSpec::of_bytes("rows", IndexKind::Hash, 8, records as usize);
        let table = engine.create_table::<u64>(&spec);
        let mut loader = engine.loader().expect("the first worker");
        for key in 0..records {
            loader.insert(&table, spread(key), |row| row[0] = 1).expect("memory");
        }
        OnEngine { engine, table }
    }
}

impl<P: NamedProtocol<Native>> Contestant for OnEngine<P> {
    fn run(&self, thread: usize, records: u64, writes: u64, stop: &<Native as Machine>::U64) -> u64 {
        let mut keys = [(0, false); OPERATIONS];
        let mut draw = Keys { state: thread as u64, records };
        let mut worker = self.engine.worker().expect("a worker");
        let mut commits = 0;
        while stop.load(Ordering::Relaxed) == 0 {
            draw.transaction(writes, &mut keys);
            let body = |tx: &mut contend_engine::Transaction<'_, P, Native>| {
                let mut sum = 0u64;
                for &(key, write) in &keys {
                    if write {
                        tx.write_row(&self.table, key, Groups::ALL)?.expect("every key is loaded")[0] = key;
                    } else {
                        let row = tx.read_row(&self.table, key, Projection::WHOLE)?;
                        sum = sum.wrapping_add(row.expect("every key is loaded")[0]);
                    }
                }
                Ok(sum)
            };
            while worker.run(body).map(black_box).is_err() {}
            commits += 1;
        }
        commits
    }
}

/// Returns the committed transactions per second of all threads together.
fn window(contestant: &dyn Contestant, records: u64, writes: u64, length: Duration) -> f64 {
    let stop = <Native as Machine>::U64::new(0);
    let start = Instant::now();
    let commits: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let stop = &stop;
                scope.spawn(move || {
                    // If a thread can't be pinned to its core, it runs unpinned.
                    let _ = pin_to_core(thread);
                    contestant.run(thread, records, writes, stop)
                })
            })
            .collect();
        std::thread::sleep(length);
        stop.store(1, Ordering::Relaxed);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    commits as f64 / start.elapsed().as_secs_f64()
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test") || !std::env::args().any(|a| a == "--bench");
    let sizes: &[u64] = if test { &[1_000] } else { &[1_000_000, 10_000_000] };
    let (rounds, length) = if test { (1, Duration::from_millis(5)) } else { (9, Duration::from_millis(300)) };
    for &records in sizes {
        let contestants: [(&str, Box<dyn Contestant>); 4] = [
            ("by hand", Box::new(by_hand::Store::new(records))),
            ("over Machine", Box::new(over_machine::Store::new(records))),
            ("engine", Box::new(OnEngine::<Silo>::new(records))),
            ("none", Box::new(OnEngine::<NoControl>::new(records))),
        ];
        for (name, writes) in [("read only", 0), ("half writes", 128)] {
            let mut measured = vec![Vec::new(); contestants.len()];
            for round in 0..rounds {
                for turn in 0..contestants.len() {
                    let which = (round + turn) % contestants.len();
                    measured[which].push(window(&*contestants[which].1, records, writes, length));
                }
            }
            println!("{records} records, {name}, {THREADS} threads, {OPERATIONS} operations of 8 bytes, hash index:");
            for (which, (contestant, _)) in contestants.iter().enumerate() {
                let tps = median(measured[which].iter().copied());
                let ratio = median(measured[which].iter().zip(&measured[0]).map(|(own, hand)| own / hand));
                println!("  {contestant:<14} {:>6.2} M txn/s, {ratio:.3} x by hand", tps / 1e6);
            }
        }
    }
}
