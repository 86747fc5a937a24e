//! IC3's figure 22: types of transactions are added while others run.
//!
//! TPC-C with one warehouse on a simulated chip of 64 cores. First only New-Order, Order-Status and
//! Stock-Level run, then Payment as well, then Delivery as well. Either all types are declared at
//! the beginning, or each one when it is first needed. The chip charges nothing for the analysis
//! itself, so the program also times the whole declaration on this host, while two threads run.
//!
//! `cargo run --release -p contend-lab --example changing_types`

#[path = "shared/terminals.rs"]
mod terminals;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use contend_engine::{EngineConfig, EngineOptions};
use contend_machine::{Machine, Native};
use contend_protocols::pieces::ic3::Ic3Options;
use contend_sim::{Chip, ChipOptions, Preset, Simulated};
use contend_workloads::tpcc::{KIND_NAMES, TpccOptions};
use terminals::{Terminal, World};

const CORES: usize = 64;
/// Of simulated time: before the first bin, and of one bin, in seconds.
const WARM_UP: f64 = 0.001;
const BIN: f64 = 0.000_1;
/// The bins of one phase.
const BINS: usize = 100;
/// The types that are first run in each phase, by their names.
const PHASES: [&[&str]; 3] = [&["new_order", "order_status", "stock_level"], &["payment"], &["delivery"]];
/// The declarations that are timed on the host.
const TIMED: usize = 200;

/// Returns whether a type runs in a phase.
fn runs_in(phase: usize, kind: usize) -> bool {
    PHASES[..=phase].iter().any(|types| types.contains(&KIND_NAMES[kind]))
}

/// Returns TPC-C with one warehouse, under IC3 with all options.
fn world<M: Machine>(threads: usize) -> World<M> {
    let options = EngineOptions { commit_time_updates: true, timestamp_splitting: true, ..EngineOptions::default() };
    let config = EngineConfig { options, ..EngineConfig::default() };
    let tpcc = TpccOptions { warehouses: 1, items: 10_000, customers: 300, ..TpccOptions::default() };
    World::new(threads, Ic3Options::default(), config, &tpcc)
}

/// Returns the transactions that end in each bin, if all types are declared at the beginning or
/// each when it is first needed.
fn on_the_chip(at_the_beginning: bool) -> Vec<u64> {
    let preset = Preset::named("opteron-6474x8").expect("a chip of this name");
    preset.set_clock();
    let world = world::<Simulated>(CORES);
    let declared = Rc::new(Cell::new(if at_the_beginning { PHASES.len() - 1 } else { 0 }));
    world.declare(|kind| runs_in(declared.get(), kind));
    let [commits, phase] = [(); 2].map(|()| Rc::new(Cell::new(0)));
    let is_over = Rc::new(Cell::new(false));
    let mut chip = Chip::new(&preset, CORES, ChipOptions::default()).expect("a chip of this size");
    for core in 0..CORES {
        let mut terminal = Terminal::new(&world, core, CORES);
        let [commits, phase, declared] = [&commits, &phase, &declared].map(Rc::clone);
        let is_over = Rc::clone(&is_over);
        chip.spawn(move || {
            while !is_over.get() {
                if core == 0 && declared.get() < phase.get() {
                    let next = phase.get();
                    terminal.worker.go_offline();
                    terminal.world.declare(|kind| runs_in(next, kind));
                    declared.set(next);
                }
                let now = phase.get().min(declared.get());
                terminal.run(|kind| runs_in(now, kind), || is_over.get());
                commits.set(commits.get() + 1);
            }
        });
    }
    let at = |seconds: f64| (seconds * preset.core.hertz) as u64;
    chip.run_until(at(WARM_UP));
    let mut bins = Vec::new();
    for bin in 0..BINS * PHASES.len() {
        phase.set(bin / BINS);
        let before = commits.get();
        chip.run_until(at(WARM_UP + (bin + 1) as f64 * BIN));
        bins.push((commits.get() - before) as u64);
    }
    // The cores end their transactions before their engine is dropped.
    is_over.set(true);
    while chip.run_until(u64::MAX / 2) {}
    bins
}

/// Returns how long declarations take on this host while two threads run, in seconds, in order.
fn on_the_host() -> Vec<f64> {
    // Two workers run, and the thread that declares has none.
    let is_over = AtomicBool::new(false);
    let world = world::<Native>(2);
    world.declare(|kind| runs_in(0, kind));
    let run = |number: usize| {
        let (is_over, world) = (&is_over, &world);
        move || {
            let mut terminal = Terminal::new(world, number, 2);
            // Relaxed: a hint to stop.
            while !is_over.load(Ordering::Relaxed) {
                terminal.run(|kind| runs_in(0, kind), || is_over.load(Ordering::Relaxed));
            }
        }
    };
    let mut times: Vec<f64> = thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(run(number));
        }
        let timed = (0..TIMED).map(|number| {
            thread::sleep(std::time::Duration::from_millis(2));
            let types = world.types(|kind| runs_in(number % PHASES.len(), kind));
            let start = Instant::now();
            world.engine.declare(types).expect("valid declarations");
            start.elapsed().as_secs_f64()
        });
        let times = timed.collect();
        is_over.store(true, Ordering::Relaxed);
        times
    });
    times.sort_by(f64::total_cmp);
    times
}

fn lowest_of(bins: &[u64]) -> u64 {
    *bins.iter().min().expect("there are bins")
}

fn main() {
    let [begin, online] = [true, false].map(on_the_chip);
    println!("transactions a second, in bins of {:.0} us of simulated time", BIN * 1e6);
    println!("| phase | declared | mean | first bin | lowest bin |");
    println!("| --- | --- | --- | --- | --- |");
    let mean = |bins: &[u64]| bins.iter().sum::<u64>() as f64 / bins.len() as f64 / BIN;
    for (phase, types) in PHASES.iter().enumerate() {
        for (declared, all) in [("at the beginning", &begin), ("when needed", &online)] {
            let bins = &all[phase * BINS..(phase + 1) * BINS];
            let [first, lowest] = [bins[0], lowest_of(bins)].map(|commits| commits as f64 / BIN);
            println!("| {} | {declared} | {:.3e} | {first:.3e} | {lowest:.3e} |", types.join(", "), mean(bins));
        }
    }
    // Second 9.5 to 11 of the paper's 30, and 11 to 15.
    let (at_change, behind) = (&online[BINS - BINS / 20..BINS + BINS / 10], &online[BINS + BINS / 10..BINS + BINS / 2]);
    let lowest = lowest_of(at_change) as f64 / BIN;
    let verdict = |holds: bool| if holds { "holds" } else { "FAILS" };
    let earlier = [&begin, &online].map(|bins| mean(&bins[..BINS]));
    println!("\nic3-22.1: tmean('begin',0,10) < tmean('online',0,10): {}", verdict(earlier[0] < earlier[1]));
    println!(
        "ic3-22.2: tmin('online',9.5,11) > 0.7*tmean('online',11,15): {} [{lowest:.3e}, {:.3e}]",
        verdict(lowest > 0.7 * mean(behind)),
        mean(behind)
    );
    let times = on_the_host();
    let [middle, slow] = [times[TIMED / 2], times[TIMED * 99 / 100]].map(|seconds| seconds * 1e6);
    println!("\non this host a declaration takes {middle:.0} us (99 of 100: up to {slow:.0} us), with two threads");
}
