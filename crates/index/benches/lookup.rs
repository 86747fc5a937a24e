//! Point lookups a second, single, batched, and with several in flight as coroutines, of both
//! indexes, with the time to load and the bytes per key.
//!
//! `cargo bench -p contend-index` measures; `-- --test`, or `cargo test --benches`, only shows that
//! it runs. Other arguments choose: `hash`, `ordered`, `sparse`, `1000000.`, ... Every figure is
//! the best of five windows on one thread; loads use two threads.

use std::hint::black_box;
use std::time::Instant;

use contend_index::{Direction, Index, IndexKind, Key, Leaf, ScanVisitor};
use contend_machine::{Interleaved, Machine, Native, Stack, run_together};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::ops::ControlFlow;

const SEED: u64 = 42;
const WINDOWS: usize = 5;
const BATCH: usize = 64;
/// Coroutines of a core.
const IN_FLIGHT: usize = 8;

/// In which order, and of what kind, the keys come.
#[derive(Clone, Copy, Debug)]
enum Keys {
    /// `0..n`, loaded in order.
    Sequential,
    /// `0..n`, loaded in random order.
    Permuted,
    /// Random 64-bit numbers.
    Sparse,
}

impl Keys {
    fn make(self, count: usize) -> Vec<u64> {
        let mut rng = SmallRng::seed_from_u64(SEED);
        let mut keys: Vec<u64> = match self {
            Keys::Sequential | Keys::Permuted => (0..count as u64).collect(),
            Keys::Sparse => (0..count).map(|_| rng.random()).collect(),
        };
        if let Keys::Permuted = self {
            keys.shuffle(&mut rng);
        }
        keys
    }
}

fn load<M: Machine>(index: &Index<M, u64>, keys: &[u64]) -> f64 {
    let start = Instant::now();
    std::thread::scope(|scope| {
        for half in keys.chunks(keys.len().div_ceil(2)) {
            scope.spawn(move || {
                for key in half {
                    index.insert(*key, key | 1);
                }
            });
        }
    });
    start.elapsed().as_secs_f64()
}

/// The best of the windows, in millions a second.
fn rate(operations: usize, mut window: impl FnMut()) -> f64 {
    let seconds = (0..WINDOWS).map(|_| {
        let start = Instant::now();
        window();
        start.elapsed().as_secs_f64()
    });
    operations as f64 / seconds.fold(f64::INFINITY, f64::min) / 1e6
}

/// Lookups of [`IN_FLIGHT`] coroutines of one thread.
fn in_flight(kind: IndexKind, keys: &[u64], probes: &[u64]) -> f64 {
    let index = Index::<Interleaved, u64>::new(kind, keys.len(), 64, contend_index::LeafWords::Times);
    load(&index, keys);
    let mut stacks = Stack::many(IN_FLIGHT).expect("room for a few stacks");
    let index = &index;
    rate(probes.len(), || {
        let part = |probes: &[u64]| {
            let found = |key: &u64| index.get(*key).value.expect("loaded");
            black_box(probes.iter().fold(0u64, |sum, key| sum.wrapping_add(found(key))));
        };
        let parts = probes.chunks(probes.len().div_ceil(IN_FLIGHT));
        let bodies = parts.map(|probes| Box::new(move || part(probes)) as Box<dyn FnOnce() + '_>);
        run_together(bodies.collect(), &mut stacks);
    })
}

struct Count(u64);

impl<K: Key> ScanVisitor<Native, K> for Count {
    fn leaf(&mut self, _: Leaf<Native>, _: u64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn entry(&mut self, _: K, value: u64) -> ControlFlow<()> {
        self.0 += value;
        ControlFlow::Continue(())
    }
}

fn measure(kind: IndexKind, order: Keys, count: usize, lookups: usize) {
    let keys = order.make(count);
    let index = Index::<Native, u64>::new(kind, count, 64, contend_index::LeafWords::Times);
    let loaded = load(&index, &keys);
    let mut rng = SmallRng::seed_from_u64(SEED + 1);
    let probes: Vec<u64> = (0..lookups).map(|_| keys[rng.random_range(0..count)]).collect();
    let single = rate(lookups, || {
        let sum = probes.iter().fold(0u64, |sum, key| sum.wrapping_add(index.get(*key).value.expect("loaded")));
        black_box(sum);
    });
    let batched = rate(lookups, || {
        let mut sum = 0u64;
        for batch in probes.chunks(BATCH) {
            index.get_many(batch, |_, found| sum = sum.wrapping_add(found.value.expect("loaded")));
        }
        black_box(sum);
    });
    let bytes = index.bytes() as f64 / count as f64;
    print!(
        "{kind:?} {order:?} {count}: load {loaded:.2} s, {bytes:.1} B/key, get {single:.1} M/s, get_many {batched:.1} M/s, \
         {IN_FLIGHT} in flight {:.1} M/s",
        in_flight(kind, &keys, &probes)
    );
    if kind == IndexKind::Ordered {
        let mut entries = Count(0);
        let scanned = rate(count, || {
            index.scan(0, u64::MAX, Direction::Forward, &mut entries);
        });
        black_box(entries.0);
        print!(", scan {scanned:.0} M entries/s");
    }
    println!();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |wanted: &str| arguments.iter().any(|argument| argument == wanted);
    let tiny = has("--test") || !has("--bench");
    let wanted =
        |name: &str| arguments.iter().filter(|argument| !argument.starts_with("--")).all(|part| name.contains(part));
    let sizes: &[usize] = if tiny { &[10_000] } else { &[1_000_000, 10_000_000] };
    for kind in [IndexKind::Hash, IndexKind::Ordered] {
        for order in [Keys::Sequential, Keys::Permuted, Keys::Sparse] {
            for &count in sizes {
                if wanted(&format!("{kind:?} {order:?} {count}.").to_lowercase()) {
                    measure(kind, order, count, if tiny { 10_000 } else { 2_000_000 });
                }
            }
        }
    }
}
