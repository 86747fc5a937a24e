//! How many accesses a second the simulation makes, by cores and by how often a private cache
//! misses.
//!
//! `cargo bench -p contend-sim`

use std::alloc::Layout;
use std::ptr::NonNull;
use std::time::Instant;

use contend_machine::{Atomic64, Machine, Ordering};
use contend_sim::{Chip, ChipOptions, Preset, Simulated};

type Word = <Simulated as Machine>::U64;

const LINE_WORDS: usize = 8;

/// The word that begins a line of a block.
fn word(block: NonNull<Word>, line: usize) -> &'static Word {
    // SAFETY: the block is never returned, and `line` is inside it.
    unsafe { block.add(line * LINE_WORDS).as_ref() }
}

fn measure(cores: usize, lines: usize, shared: bool, lookahead: u64) -> (f64, f64) {
    let per_core = if shared { 0 } else { lines };
    let all = if shared { lines } else { lines * cores };
    let layout = Layout::from_size_align(all * LINE_WORDS * 8, 64).expect("lines");
    let block = Simulated::alloc(layout).expect("memory").cast::<Word>();
    for word in 0..all * LINE_WORDS {
        // SAFETY: inside the block.
        unsafe { block.add(word).write(Word::new(0)) };
    }
    let preset = Preset::named("abyss").expect("a preset");
    let mut chip = Chip::new(&preset, cores, ChipOptions { lookahead, ..ChipOptions::default() }).expect("a chip");
    for core in 0..cores {
        chip.spawn(move || {
            let mut state = core as u64 + 1;
            loop {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                let line = core * per_core + (((state >> 32) as usize * lines) >> 32);
                word(block, line).load(Ordering::Relaxed);
            }
        });
    }
    let mut time = 0;
    let mut run = |seconds: f64| {
        let start = Instant::now();
        chip.take_statistics();
        while start.elapsed().as_secs_f64() < seconds {
            time += 1000;
            chip.run_until(time);
        }
        let statistics = chip.take_statistics();
        (
            statistics.accesses as f64 / start.elapsed().as_secs_f64() / 1e6,
            statistics.misses as f64 / statistics.accesses as f64 * 100.0,
        )
    };
    run(0.2);
    run(0.5)
}

fn main() {
    println!("{:>6} {:>12} {:>9} {:>10} {:>8}", "cores", "lines", "lookahead", "M access/s", "miss %");
    for (lines, shared) in [(8, false), (1 << 10, false), (1 << 20, true)] {
        for cores in [1, 64, 1024] {
            for lookahead in [1, 64] {
                let (rate, misses) = measure(cores, lines, shared, lookahead);
                let of = if shared { "shared" } else { "own" };
                println!("{cores:>6} {:>12} {lookahead:>9} {rate:>10.1} {misses:>8.1}", format!("{lines} {of}"));
            }
        }
    }
}
