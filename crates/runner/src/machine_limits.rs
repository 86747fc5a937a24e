//! The bounds of this machine, which no protocol can exceed.

use std::alloc::Layout;
use std::hint::black_box;
use std::time::{Duration, Instant};

use contend_machine::{Machine, Native, Ordering, available_cores, pin_to_core};
use serde::Serialize;

use crate::error::RunError;
use crate::memory::available_bytes;
use crate::progress::{Observer, Stop};
use crate::start_gate::StartGate;
use crate::stats::Spread;
use crate::units::show_bytes;

/// The memory of the random reads: far more than any cache holds.
const ARENA_BYTES: usize = 1 << 30;
const LINE_BYTES: usize = 64;
/// Reads between two looks at the clock.
const BATCH: usize = 1 << 14;
/// Independent reads whose prefetches are outstanding at once.
const AHEAD: usize = 32;

/// The bounds of this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// The number of threads that ran at once.
    pub threads: usize,
    /// The bytes that the random reads covered.
    pub arena_bytes: u64,
    /// Random reads of a cache line, per second and thread, with all threads at once. The address
    /// of each read depends on the read before.
    pub dependent_reads_per_second: Spread,
    /// The time of one such read, in nanoseconds.
    pub dependent_read_ns: f64,
    /// Random reads of a cache line, per second and thread, prefetched well ahead, with all threads
    /// at once.
    pub prefetched_reads_per_second: Spread,
    /// Atomic increments of one line, per second, of all threads together: for 1, 2, ... threads.
    pub increments_per_second: Vec<Increments>,
}

/// Increments of one shared word.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Increments {
    /// The number of threads.
    pub threads: usize,
    /// Increments per second, of all threads together.
    pub increments_per_second: Spread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Probe {
    Dependent,
    Prefetched,
    Increments(usize),
}

/// Measures the bounds with up to `threads` threads, in interleaved rounds.
///
/// # Errors
/// The machine has too little memory, or the run was stopped.
pub fn limits(
    threads: usize,
    rounds: usize,
    window: Duration,
    stop: &Stop,
    observer: &dyn Observer,
) -> Result<Limits, RunError> {
    let arena = Arena::of_bytes(ARENA_BYTES)?;
    let mut probes = vec![Probe::Dependent, Probe::Prefetched];
    let mut counts: Vec<usize> = (0..).map(|power| 1 << power).take_while(|count| *count < threads).collect();
    counts.push(threads);
    probes.extend(counts.into_iter().map(Probe::Increments));
    let mut rates = vec![Vec::new(); probes.len()];
    observer.begin("measuring the machine", (rounds * probes.len()) as u64);
    for _ in 0..rounds {
        for (probe, rates) in probes.iter().zip(&mut rates) {
            rates.push(run(*probe, &arena, threads, window));
            observer.advance(1);
            if stop.is_requested() {
                observer.end();
                return Err(RunError::Stopped);
            }
        }
    }
    observer.end();
    let mut spreads = rates.into_iter().map(|rates| Spread::of(rates).expect("a round or more"));
    let mut next = || spreads.next().expect("a spread for each probe");
    let (dependent, prefetched) = (next(), next());
    let increments_per_second = probes
        .iter()
        .filter_map(|probe| match probe {
            Probe::Increments(threads) => Some(Increments { threads: *threads, increments_per_second: next() }),
            _ => None,
        })
        .collect();
    Ok(Limits {
        threads,
        arena_bytes: arena.lines.len() as u64 * LINE_BYTES as u64,
        dependent_reads_per_second: dependent,
        dependent_read_ns: 1e9 / dependent.median,
        prefetched_reads_per_second: prefetched,
        increments_per_second,
    })
}

/// Returns the random reads of cache lines per second, prefetched well ahead, of all threads
/// together, from the first `bytes` of an arena: the median of some rounds. Returns the bytes as
/// well, which are fewer than asked for where a quarter of the available memory is less.
///
/// # Errors
/// The machine has too little memory.
pub fn prefetched_line_reads(
    bytes: usize,
    threads: usize,
    rounds: usize,
    window: Duration,
) -> Result<(f64, usize), RunError> {
    let mut arena = Arena::of_bytes(bytes.next_power_of_two())?;
    arena.span = (bytes / LINE_BYTES).clamp(1, arena.lines.len());
    let rates: Vec<f64> = (0..rounds).map(|_| run(Probe::Prefetched, &arena, threads, window)).collect();
    let rate = Spread::of(rates).map_or(0.0, |spread| spread.median) * threads as f64;
    Ok((rate, arena.span * LINE_BYTES))
}

type Word = <Native as Machine>::U64;

/// Lines of memory, linked in random order into one ring. The first word of each line is the number
/// of the next.
struct Arena {
    lines: &'static [[Word; LINE_BYTES / 8]],
    /// The lines from which prefetched reads choose.
    span: usize,
    layout: Layout,
}

impl Arena {
    /// Allocates lines of this many bytes, rounded down to a power of two, or of a quarter of the
    /// available memory: that suffices on a small machine.
    fn of_bytes(bytes: usize) -> Result<Self, RunError> {
        let bytes = bytes.min(available_bytes().map_or(bytes, |available| available as usize / 4));
        let lines = (bytes / LINE_BYTES).max(1).ilog2();
        Arena::new(1 << lines).ok_or_else(|| {
            RunError::OutOfMemory(format!("{} of memory can't be had for random reads", show_bytes(bytes as u64)))
        })
    }

    /// Allocates `count` lines, a power of two. Returns `None` if there is not enough memory.
    fn new(count: usize) -> Option<Self> {
        let layout = Layout::from_size_align(count * LINE_BYTES, 2 << 20).ok()?;
        let first = Native::alloc(layout)?.cast::<[Word; LINE_BYTES / 8]>();
        for line in 0..count {
            // A generator with the full period, modulo a power of two (Knuth, TAOCP volume 2,
            // 3.2.1.2, theorem A), so that the lines form one ring.
            let next = (line.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)) & (count - 1);
            let words = std::array::from_fn(|word| Word::new(if word == 0 { next as u64 } else { 0 }));
            // SAFETY: the line is inside the block, and no other reference to it exists.
            unsafe { first.add(line).write(words) };
        }
        // SAFETY: all lines were written. The block is freed only with the arena, and no borrow
        // from the arena outlives it.
        let lines = unsafe { std::slice::from_raw_parts(first.as_ptr(), count) };
        Some(Arena { lines, span: count, layout })
    }

    fn next(&self, line: usize) -> usize {
        // Relaxed: the lines never change after `new`.
        self.lines[line & (self.lines.len() - 1)][0].load(Ordering::Relaxed) as usize
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let block = std::ptr::NonNull::from(self.lines).cast::<u8>();
        // SAFETY: allocated by `new` with this layout, and no borrow of the lines is left.
        unsafe { Native::dealloc(block, self.layout) };
    }
}

/// Returns the rate of a probe: reads per thread, or increments of all threads together.
fn run(probe: Probe, arena: &Arena, threads: usize, window: Duration) -> f64 {
    let threads = if let Probe::Increments(count) = probe { count } else { threads };
    let cores = available_cores();
    let (over, shared) = (Word::new(0), Word::new(0));
    let start_line = StartGate::new();
    let (over, shared, start_line) = (&over, &shared, &start_line);
    let (done, seconds) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|number| {
                let core = cores[number % cores.len()];
                scope.spawn(move || {
                    // A thread that can't be pinned is still measured.
                    let _ = pin_to_core(core);
                    start_line.wait();
                    let mut state = number * 0x9e37_79b9;
                    let mut done = 0u64;
                    // A thread that gets its core when the window is over still counts.
                    loop {
                        state = step(probe, arena, shared, state);
                        done += BATCH as u64;
                        // Relaxed: the flag only ends the loop; pairs with the store below.
                        if over.load(Ordering::Relaxed) != 0 {
                            break;
                        }
                    }
                    black_box(state);
                    done
                })
            })
            .collect();
        start_line.release(threads);
        let start = Instant::now();
        std::thread::sleep(window);
        // Relaxed: pairs with the workers' loads of the flag, which take no other data from it.
        over.store(1, Ordering::Relaxed);
        let done = workers.into_iter().map(|worker| worker.join().expect("no panic")).sum::<u64>();
        (done, start.elapsed().as_secs_f64())
    });
    let together = done as f64 / seconds;
    if let Probe::Increments(_) = probe { together } else { together / threads as f64 }
}

/// Runs [`BATCH`] operations of a probe from a state, and returns the next state.
fn step(probe: Probe, arena: &Arena, shared: &Word, mut state: usize) -> usize {
    match probe {
        Probe::Dependent => (0..BATCH).fold(state, |line, _| arena.next(line)),
        Probe::Prefetched => {
            let mut sum = 0;
            for _ in 0..BATCH / AHEAD {
                let mut lines = [0; AHEAD];
                for line in &mut lines {
                    // The constants of Knuth's MMIX generator. Its upper bits are the random ones.
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    // The upper half, as a fraction of the span.
                    *line = (((state as u64 >> 32) * arena.span as u64) >> 32) as usize;
                    Native::prefetch(&raw const arena.lines[*line]);
                }
                for line in lines {
                    sum ^= arena.next(line);
                }
            }
            black_box(sum);
            state
        }
        Probe::Increments(_) => {
            for _ in 0..BATCH {
                // Relaxed: only the transfer of the line between the cores matters.
                shared.fetch_add(1, Ordering::Relaxed);
            }
            state
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::Silent;

    #[test]
    fn the_ring_is_one() {
        let arena = Arena::new(1 << 10).expect("64 KiB");
        let mut seen = vec![false; 1 << 10];
        let mut line = 0;
        for _ in 0..1 << 10 {
            assert!(!std::mem::replace(&mut seen[line], true), "line {line} twice");
            line = arena.next(line);
        }
        assert_eq!(line, 0);
    }

    #[test]
    fn every_probe_counts() {
        let arena = Arena::new(1 << 10).expect("64 KiB");
        for probe in [Probe::Dependent, Probe::Prefetched, Probe::Increments(2)] {
            // On a busy machine a short window may end before a thread gets a core.
            let mut windows = (0..8).map(|doublings| Duration::from_millis(5 << doublings));
            assert!(windows.any(|window| run(probe, &arena, 2, window) > 0.0), "{probe:?}");
        }
    }

    #[test]
    fn a_stopped_measurement_says_so() {
        let stop = Stop::default();
        stop.request();
        let outcome = limits(1, 1, Duration::from_millis(1), &stop, &Silent);
        assert!(matches!(outcome, Err(RunError::Stopped)), "{outcome:?}");
    }
}
