//! Litmus tests of the model: what is known of such hardware must come out of it.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::NonNull;
use std::rc::Rc;

use contend_machine::{Activity, Atomic64, Machine, Operation, Ordering, Phase};

use super::*;
use crate::Simulated;

type Word = <Simulated as Machine>::U64;

/// Lines of simulated memory, a word each.
struct Lines(NonNull<Word>, Layout);

impl Lines {
    fn new(count: usize) -> Rc<Lines> {
        let layout = Layout::from_size_align(count * LINE_BYTES, LINE_BYTES).expect("lines");
        let block = Simulated::alloc(layout).expect("memory").cast::<Word>();
        for word in 0..count * LINE_BYTES / 8 {
            // SAFETY: inside the block.
            unsafe { block.add(word).write(Word::new(0)) };
        }
        Rc::new(Lines(block, layout))
    }

    fn line(&self, number: usize) -> &Word {
        assert!((number + 1) * LINE_BYTES <= self.1.size());
        // SAFETY: inside the block, which was written.
        unsafe { self.0.add(number * LINE_BYTES / 8).as_ref() }
    }
}

impl Drop for Lines {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { Simulated::dealloc(self.0.cast(), self.1) };
    }
}

fn chip(threads: usize) -> Box<Chip> {
    chip_of("abyss", threads, ChipOptions::default())
}

fn chip_of(name: &str, threads: usize, options: ChipOptions) -> Box<Chip> {
    Chip::new(&Preset::named(name).expect("a preset"), threads, options).expect("a chip")
}

/// Every thread adds to one counter until the time is up: additions in all.
fn count_up(chip: &mut Chip, threads: usize, cycles: u64) -> u64 {
    let lines = Lines::new(1);
    let done = Rc::new(Cell::new(0));
    for _ in 0..threads {
        let (lines, done) = (Rc::clone(&lines), Rc::clone(&done));
        chip.spawn(move || {
            while Simulated::now() < cycles {
                lines.line(0).fetch_add(1, Ordering::Relaxed);
                done.set(done.get() + 1);
            }
        });
    }
    while chip.run_until(u64::MAX - 1) {}
    assert_eq!(lines.line(0).load(Ordering::Relaxed), done.get());
    done.get()
}

#[test]
fn a_line_that_is_written_in_turns_costs_two_transfers_a_round() {
    const ROUNDS: u64 = 100;
    let lines = Lines::new(1);
    let mut chip = chip(2);
    for player in 0..2 {
        let lines = Rc::clone(&lines);
        chip.spawn(move || {
            for _ in 0..ROUNDS {
                while lines.line(0).load(Ordering::Relaxed) % 2 != player {
                    Simulated::pause();
                }
                lines.line(0).fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while chip.run_until(1 << 40) {}
    let statistics = chip.take_statistics();
    // Each turn: the player that waits reads the line (a transfer from its owner), then takes it
    // exclusively.
    assert_eq!(lines.line(0).load(Ordering::Relaxed), 2 * ROUNDS);
    let per_round = statistics.from_owner as f64 / ROUNDS as f64;
    assert!((1.9..=2.1).contains(&per_round), "{per_round} transfers a round: {statistics:?}");
}

#[test]
fn a_line_that_is_only_read_costs_nothing_after_the_first_time() {
    const THREADS: usize = 16;
    let lines = Lines::new(1);
    let mut chip = chip(THREADS);
    for _ in 0..THREADS {
        let lines = Rc::clone(&lines);
        chip.spawn(move || {
            for _ in 0..1000 {
                lines.line(0).load(Ordering::Relaxed);
            }
        });
    }
    while chip.run_until(1 << 40) {}
    let statistics = chip.take_statistics();
    assert_eq!(statistics.accesses, THREADS as u64 * 1000);
    assert_eq!(statistics.misses, THREADS as u64, "one miss a core: {statistics:?}");
    assert_eq!(statistics.from_memory, 0, "the lines used last are in the last level: {statistics:?}");
}

#[test]
fn a_contended_counter_saturates_at_the_rate_of_its_home() {
    const CYCLES: u64 = 100_000;
    let alone = count_up(&mut chip(1), 1, CYCLES);
    let preset = Preset::named("abyss").expect("a preset");
    // Alone: the clock, the instructions of the access, the hit, the addition.
    let cycles =
        preset.core.clock_cycles + preset.core.instructions_per_access + preset.l1.cycles + preset.core.atomic_cycles;
    assert!(alone.abs_diff(CYCLES / u64::from(cycles)) <= CYCLES / u64::from(cycles) / 50 + 2, "{alone} additions");
    for threads in [64, 256] {
        let mut chip = chip(threads);
        let count = count_up(&mut chip, threads, CYCLES);
        let home = chip.home(chip.directory.lines().start);
        let way = (0..threads).map(|unit| chip.network.cycles(home, unit)).sum::<u64>() as f64 / threads as f64;
        // The home: tags, the owner asked, its cache, back with the line, which is written down.
        let (llc, transfer) = (&preset.llc, preset.coherence.line_cycles);
        // No core waits for a late one: the perturbation hides in the queue.
        let busy = 2.0 * way + f64::from(llc.tag_cycles + preset.l1.cycles + transfer + llc.data_cycles);
        let predicted = CYCLES as f64 / busy;
        // A core that is queued when the time is up still adds once.
        let measured = count as f64 - threads as f64;
        assert!(
            (measured / predicted - 1.0).abs() < 0.1,
            "{threads} threads: {measured} additions, {predicted} predicted"
        );
    }
}

#[test]
fn a_mesh_gets_slower_with_distance_and_the_centre_takes_one_a_cycle() {
    const CYCLES: u64 = 20_000;
    let mut chip = chip(1024);
    let lines = Lines::new(1);
    let done = Rc::new(Cell::new(0u64));
    for _ in 0..1024 {
        let (lines, done) = (Rc::clone(&lines), Rc::clone(&done));
        chip.spawn(move || {
            while Simulated::now() < CYCLES {
                Simulated::central_add(lines.line(0), 1);
                done.set(done.get() + 1);
            }
        });
    }
    while chip.run_until(u64::MAX - 1) {}
    let rate = (done.get() - 1024) as f64 / CYCLES as f64;
    assert!((0.9..=1.0).contains(&rate), "{rate} additions a cycle");
}

/// A little of everything, by many threads: the hash of what happened, and how many accesses that
/// were.
fn medley(options: ChipOptions) -> (u64, u64) {
    const THREADS: usize = 32;
    let lines = Lines::new(4096);
    let mut chip = chip_of("abyss", THREADS, options);
    for thread in 0..THREADS {
        let lines = Rc::clone(&lines);
        chip.spawn(move || {
            let mut state = thread as u64 + 1;
            for round in 0..500u64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                // A tenth of the accesses goes to a few lines.
                let line = if state >> 60 == 0 { (state >> 40) % 4 } else { (state >> 40) % 4096 } as usize;
                match round % 3 {
                    0 => lines.line(line).store(state, Ordering::Relaxed),
                    1 => drop(lines.line(line).fetch_add(1, Ordering::Relaxed)),
                    _ => drop(lines.line(line).load(Ordering::Relaxed)),
                }
            }
        });
    }
    while chip.run_until(1 << 40) {}
    (chip.trace_hash(), chip.take_statistics().accesses)
}

#[test]
fn the_same_seed_does_the_same_and_another_does_not() {
    let first = medley(ChipOptions::default());
    assert_eq!(first, medley(ChipOptions::default()));
    assert_ne!(first.0, medley(ChipOptions { seed: 1, ..ChipOptions::default() }).0);
    assert_ne!(first.0, medley(ChipOptions { lookahead: 64, ..ChipOptions::default() }).0);
    // What every host and every build must find: change it only with the model.
    assert_eq!(first, (MEDLEY, 16_000));
}

/// Trace of the medley.
const MEDLEY: u64 = 7870236275113107812;

#[test]
fn every_preset_keeps_its_caches_coherent() {
    for preset in Preset::all() {
        let threads = preset.threads_max().min(256);
        let lines = Lines::new(64);
        let mut chip = Chip::new(&preset, threads, ChipOptions::default()).expect("a chip");
        for thread in 0..threads {
            let lines = Rc::clone(&lines);
            chip.spawn(move || {
                for round in 0..50 {
                    let line = (thread * 7 + round * 13) % 64;
                    Simulated::prefetch(lines.line(line));
                    lines.line(round % 64).load(Ordering::Relaxed);
                    lines.line(line).fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while chip.run_until(1 << 40) {}
        let sum: u64 = (0..64).map(|line| lines.line(line).load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 50 * threads as u64, "{}", preset.name);
        let statistics = chip.take_statistics();
        assert!(statistics.from_owner > 0 && statistics.invalidations > 0, "{}: {statistics:?}", preset.name);
    }
}

#[test]
fn what_does_not_fit_into_the_last_level_comes_from_memory() {
    // One tile has 8192 lines; 16384 are read in turn, twice.
    let lines = Lines::new(16384);
    let mut chip = chip(1);
    let reader = Rc::clone(&lines);
    chip.spawn(move || {
        for line in (0..16384).chain(0..16384) {
            reader.line(line).load(Ordering::Relaxed);
        }
    });
    while chip.run_until(1 << 40) {}
    let statistics = chip.take_statistics();
    assert_eq!(statistics.misses, 32768, "{statistics:?}");
    assert!(statistics.from_memory > 16384, "{statistics:?}");
}

#[test]
fn times_are_a_partition_of_the_clock() {
    let lines = Lines::new(1);
    let mut chip = chip(2);
    let index = Phase::of(Operation::Read, Activity::Index);
    let sums = Rc::new(Cell::new((0, 0)));
    for _ in 0..2 {
        let (lines, sums) = (Rc::clone(&lines), Rc::clone(&sums));
        chip.spawn(move || {
            let mut times = [0; Phase::COUNT];
            Simulated::take_times(&mut times);
            let begin = Simulated::now();
            times = [0; Phase::COUNT];
            for _ in 0..100 {
                Simulated::enter(index);
                lines.line(0).fetch_add(1, Ordering::Relaxed);
                Simulated::enter(Phase::BODY);
                Simulated::work(7);
            }
            Simulated::take_times(&mut times);
            let elapsed = Simulated::now() - begin;
            assert!(times[index.number()] > 700 && times[Phase::BODY.number()] >= 700);
            let (sum, all) = sums.get();
            sums.set((sum + times.iter().sum::<u64>(), all + elapsed));
        });
    }
    while chip.run_until(1 << 40) {}
    let (sum, all) = sums.get();
    assert!(sum.abs_diff(all) <= 40, "{sum} of {all} cycles");
}

/// Has core 0 read a line of which a core holds a copy that the home does not know, and checks what
/// the core has then. Without debug assertions the read itself checks nothing.
fn read_beside_a_copy_of(unit: usize) {
    let lines = Lines::new(1);
    let mut chip = chip(2);
    let line = chip.directory.line(std::ptr::from_ref(lines.line(0)).addr());
    chip.l1.insert(unit, line, LineState::Shared);
    chip.perform(line, Access::Read);
    chip.check_hit(0, line, LineState::Shared);
    chip.check(line);
}

#[test]
#[should_panic(expected = "its home does not know")]
fn a_hit_that_the_home_does_not_know_is_noticed() {
    read_beside_a_copy_of(0);
}

#[test]
#[should_panic(expected = "shared by [0]")]
fn a_copy_beside_those_of_the_sharers_is_noticed() {
    read_beside_a_copy_of(1);
}

/// The cycles of a transaction's own work, and those of an access, where that work takes `factor`
/// times as long.
fn work_and_access(factor: u32) -> (u64, u64) {
    let lines = Lines::new(1);
    let mut chip = chip_of("abyss", 1, ChipOptions { work: factor, ..ChipOptions::default() });
    let cycles = Rc::new(Cell::new((0, 0)));
    let (own, seen) = (Rc::clone(&cycles), Rc::clone(&lines));
    chip.spawn(move || {
        let begin = Simulated::now();
        Simulated::work(1000);
        let between = Simulated::now();
        seen.line(0).fetch_add(1, Ordering::Relaxed);
        Simulated::yield_now();
        own.set((between - begin, Simulated::now() - between));
    });
    while chip.run_until(1 << 40) {}
    cycles.get()
}

#[test]
fn a_slower_systems_work_takes_longer_and_its_accesses_do_not() {
    let ((own, access), (slow, same)) = (work_and_access(1), work_and_access(23));
    assert_eq!((slow - own, same), (22 * 1000, access), "an instruction takes this core a cycle");
}

#[test]
fn more_threads_than_there_are_are_refused() {
    let error =
        Chip::new(&Preset::named("abyss").expect("a preset"), 1025, ChipOptions::default()).expect_err("too many");
    assert!(error.to_string().contains("1025 threads on chip abyss; valid: 1 to 1024"), "{error}");
    assert!(Preset::named("abiss").expect_err("unknown").to_string().contains("abyss, xeon-8176x4"));
}

/// The cycles that a core takes for 4 x 64 reads of lines far away, one after the other or in as
/// many contexts.
fn reads_far_away(contexts: usize) -> u64 {
    const READS: usize = 256;
    let lines = Lines::new(READS);
    // Not warm: the lines come from memory.
    let mut chip = chip_of("xeon-8176x4", 1, ChipOptions { contexts, warm: false, ..ChipOptions::default() });
    let end = Rc::new(Cell::new(0));
    for context in 0..contexts {
        let (lines, end) = (Rc::clone(&lines), Rc::clone(&end));
        chip.spawn(move || {
            for number in (context..READS).step_by(contexts) {
                Simulated::await_line(lines.line(number));
                lines.line(number).load(Ordering::Relaxed);
            }
            end.set(Simulated::now());
        });
    }
    while chip.run_until(u64::MAX - 1) {}
    assert_eq!(chip.take_statistics().from_memory, READS as u64);
    end.get()
}

#[test]
fn several_contexts_overlap_their_misses() {
    // The first one hides a part of each miss as well, by the instructions behind it.
    let [one, four, eight] = [1, 4, 8].map(reads_far_away);
    assert!(four * 10 < one * 6, "four misses at once: {four} cycles, {one} one after the other");
    assert!(eight * 3 < one, "eight misses at once: {eight} cycles, {one} one after the other");
}

#[test]
fn a_context_that_waits_lets_the_one_go_on_that_it_waits_for() {
    let lines = Lines::new(2);
    let mut chip = chip_of("abyss", 2, ChipOptions { contexts: 2, ..ChipOptions::default() });
    // Bodies 0 and 2 share a core, and 1 and 3. Each waits for the one before: all for body 3.
    for body in 0..4u64 {
        let lines = Rc::clone(&lines);
        chip.spawn(move || {
            Simulated::enter(Phase::of(Operation::Read, Activity::Wait));
            while body < 3 && lines.line(0).load(Ordering::Relaxed) != body + 1 {
                Simulated::yield_now();
            }
            Simulated::idle(1_000);
            lines.line(0).store(body, Ordering::Relaxed);
        });
    }
    while chip.run_until(1 << 40) {}
    assert_eq!(lines.line(0).load(Ordering::Relaxed), 0);
    // No time is counted twice: that of the contexts is that of the cores.
    let mut times = [0; Phase::COUNT];
    chip.take_all_times(0, &mut times);
    let counted: u64 = times.iter().sum();
    assert!((4_000..60_000).contains(&counted), "{counted} cycles of two cores");
}
