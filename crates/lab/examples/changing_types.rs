//! IC3's figure 22: types of transactions are added while others run.
//!
//! TPC-C with one warehouse on a simulated chip of 64 cores. First only New-Order, Order-Status and
//! Stock-Level run, then Payment as well, then Delivery as well. Either all types are declared at
//! the beginning, or each one when it is first needed. The chip charges nothing for the analysis
//! itself, so the program also times the whole declaration on this host, while two threads run.
//!
//! `cargo run --release -p contend-lab --example changing_types`

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use contend_engine::{Engine, EngineConfig, EngineOptions, IndexKind, NamedProtocol, Worker};
use contend_machine::{Machine, Native};
use contend_model::pieces::TypeSet;
use contend_protocols::method::{Backoff, BackoffPolicy, Retry, RetryOptions};
use contend_protocols::pieces::ic3::{Ic3, Ic3Options};
use contend_sim::{Chip, ChipOptions, Preset, Simulated};
use contend_workloads::tpcc::{Tpcc, TpccOptions};
use contend_workloads::{Workload, declared_types};

const CORES: usize = 64;
/// Of simulated time: before the first bin, and of one bin, in seconds.
const WARM_UP: f64 = 0.001;
const BIN: f64 = 0.000_1;
/// The bins of one phase.
const BINS: usize = 30;
/// The types that are first run in each phase, by their names.
const PHASES: [&[&str]; 3] = [&["new_order", "order_status", "stock_level"], &["payment"], &["delivery"]];
/// The declarations that are timed on the host.
const TIMED: usize = 200;

/// Returns whether a type runs in a phase.
fn runs_in(phase: usize, kind: usize) -> bool {
    PHASES[..=phase].iter().any(|types| types.contains(&<Tpcc as Workload>::KINDS[kind]))
}

/// An engine with a loaded workload.
struct World<M: Machine> {
    engine: Arc<Engine<Ic3<M>, M>>,
    workload: Arc<Tpcc>,
    backoff: Arc<Backoff<M>>,
}

impl<M: Machine> World<M> {
    fn new(threads: usize) -> Self {
        let options =
            EngineOptions { commit_time_updates: true, timestamp_splitting: true, ..EngineOptions::default() };
        // One worker more loads the rows.
        let config = EngineConfig { workers_max: threads + 1, options, ..EngineConfig::default() };
        let engine = Engine::new(Ic3::new(Ic3Options::default()), config);
        let options = TpccOptions { warehouses: 1, items: 10_000, customers: 300, ..TpccOptions::default() };
        let workload = Arc::new(Tpcc::create(&options, IndexKind::Ordered, &engine));
        let mut loader = engine.loader().expect("a free slot");
        workload.load(&mut loader, 0, 1, &mut |_| std::ops::ControlFlow::Continue(())).expect("memory");
        drop(loader);
        let retry = RetryOptions { backoff: BackoffPolicy::Exponential, ..RetryOptions::default() };
        World { engine, workload, backoff: Backoff::new(retry, threads) }
    }

    /// Returns the declarations of the types that run in a phase; the others have no pieces.
    fn types(&self, phase: usize) -> TypeSet {
        let types = declared_types(&*self.workload, self.engine.declared_tables()).expect("valid declarations");
        let mut types = types.expect("TPC-C declares its types");
        for (kind, of) in types.types.iter_mut().enumerate() {
            if !runs_in(phase, kind) {
                of.pieces.clear();
            }
        }
        types
    }

    fn declare(&self, phase: usize) {
        self.engine.declare(self.types(phase)).expect("valid declarations");
    }
}

/// A client and its worker.
struct Terminal<M: Machine> {
    world: Rc<World<M>>,
    worker: Worker<Ic3<M>, M>,
    retry: Retry<M>,
    client: <Tpcc as Workload>::Client,
    input: <Tpcc as Workload>::Input,
}

impl<M: Machine> Terminal<M> {
    fn new(world: &Rc<World<M>>, number: usize, threads: usize) -> Self {
        let worker = world.engine.worker().expect("a free slot");
        let (retry, client) = (world.backoff.retry(number, number as u64), world.workload.client(number, threads, 7));
        Terminal { world: Rc::clone(world), worker, retry, client, input: Default::default() }
    }

    /// Runs one transaction of a type that runs in this phase until it ends, or `is_over`.
    fn run(&mut self, phase: usize, is_over: impl Fn() -> bool) {
        let Terminal { world, worker, retry, client, input } = self;
        let workload = &*world.workload;
        let kind = loop {
            workload.next(worker, client, input);
            let kind = workload.kind(input);
            if runs_in(phase, kind) {
                break kind;
            }
        };
        while let Err(abort) = worker.run_declared(
            |declaration| {
                declaration.kind(kind);
                workload.declare(input, declaration);
            },
            |tx| workload.execute(tx, client, input),
        ) {
            let violation = worker.take_undeclared();
            assert!(violation.is_none(), "{violation:?}");
            if !abort.reason.is_conflict() || is_over() {
                return;
            }
            retry.aborted();
        }
        retry.done();
        workload.committed(client, input);
    }
}

/// Returns the transactions that end in each bin, if all types are declared at the beginning or
/// each when it is first needed.
fn on_the_chip(at_the_beginning: bool) -> Vec<u64> {
    let preset = Preset::named("opteron-6474x8").expect("a chip of this name");
    preset.set_clock();
    let world = Rc::new(World::<Simulated>::new(CORES));
    let declared = Rc::new(Cell::new(if at_the_beginning { PHASES.len() - 1 } else { 0 }));
    world.declare(declared.get());
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
                    terminal.world.declare(next);
                    declared.set(next);
                }
                terminal.run(phase.get().min(declared.get()), || is_over.get());
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
    let world = World::<Native>::new(2);
    world.declare(0);
    let (engine, workload) = (&world.engine, &world.workload);
    let run = |number: usize| {
        let (is_over, backoff) = (&is_over, &world.backoff);
        move || {
            let own =
                World { engine: Arc::clone(engine), workload: Arc::clone(workload), backoff: Arc::clone(backoff) };
            let mut terminal = Terminal::new(&Rc::new(own), number, 2);
            // Relaxed: a hint to stop.
            while !is_over.load(Ordering::Relaxed) {
                terminal.run(0, || is_over.load(Ordering::Relaxed));
            }
        }
    };
    let mut times: Vec<f64> = thread::scope(|scope| {
        for number in 0..2 {
            scope.spawn(run(number));
        }
        let timed = (0..TIMED).map(|number| {
            thread::sleep(std::time::Duration::from_millis(2));
            let types = world.types(number % PHASES.len());
            let start = Instant::now();
            engine.declare(types).expect("valid declarations");
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
