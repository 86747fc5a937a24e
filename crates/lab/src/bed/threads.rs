//! Workers are threads of the host.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use contend_engine::{AbortReason, Control};
use contend_machine::{Machine, Native, Ordering, SampledThread, available_cores, pin_to_core};
use contend_workloads::Workload;

use super::world::{Slot, World, not_loaded, stuck};
use super::{Count, Driver, Purpose, Span, Tally};
use crate::config::{LabError, RunConfig};
use crate::memory::is_short;
use crate::start::Start;
use crate::verify::{Interleaved, interleaving_seed};
use crate::watch::Stop;

/// How often a waiting main thread looks whether it was asked to stop.
const SLICE: Duration = Duration::from_millis(10);
/// How often it looks at what the workers do, if their time is to be broken down. Not a round number: nothing else should keep time with it.
pub(crate) const SAMPLE_EVERY: Duration = Duration::from_micros(487);
/// How often it looks whether memory is left: tables may grow.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

type Word = <Native as Machine>::U64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Threads {
    breakdown: bool,
}

impl<P: Control<Native>, W: Workload<Native>> Driver<P, W> for Threads {
    type Machine = Native;

    fn new(config: &RunConfig, _: Purpose) -> Self {
        Threads { breakdown: config.breakdown }
    }

    fn load(
        &mut self,
        world: &World<P, W, Native>,
        stop: &Stop,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), LabError> {
        let parts = available_cores().len().min(world.slots.len());
        let results: Vec<Result<(), contend_engine::OutOfMemory>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..parts)
                .map(|part| {
                    let (engine, workload) = (&world.engine, &world.workload);
                    scope.spawn(move || {
                        let mut loader = engine.loader().expect("more workers than threads");
                        let mut done = |units| {
                            advance(units);
                            if stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                        };
                        workload.load(&mut loader, part, parts, &mut done)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("loading does not panic")).collect()
        });
        results
            .into_iter()
            .collect::<Result<(), _>>()
            .map_err(|error| not_loaded(world.engine.protocol().info(), &error))
    }

    fn run(
        &mut self,
        world: &mut World<P, W, Native>,
        span: Span,
        stop: &Stop,
        tick: &dyn Fn(f64),
    ) -> Result<Count, LabError> {
        let cores = available_cores();
        let (over, running) = (Word::new(0), Word::new(world.slots.len() as u64));
        let (start_line, threads_count) = (Start::new(), world.slots.len());
        let share = span.transactions_max.map_or(u64::MAX, |max| max.div_ceil(world.slots.len() as u64));
        let (workload, purpose, breakdown) = (&*world.workload, world.purpose, self.breakdown);
        let (over, running, start_line) = (&over, &running, &start_line);
        let (registry, registered) = mpsc::channel();
        let (seconds, outcomes) = std::thread::scope(|scope| {
            let threads: Vec<_> = world
                .slots
                .iter_mut()
                .zip(cores.iter().cycle())
                .map(|(slot, &core)| {
                    let registry = registry.clone();
                    scope.spawn(move || {
                        // A core that can't be had is no reason not to measure.
                        let _ = pin_to_core(core);
                        let tally = RefCell::new(Tally::new(W::KINDS.len()));
                        registry.send(SampledThread::this()).expect("the main thread listens");
                        start_line.wait();
                        let outcome = work(slot, workload, share, &tally, over, purpose);
                        slot.worker.go_offline();
                        // Relaxed: the threads are joined before anything else is read.
                        running.fetch_sub(1, Ordering::Relaxed);
                        // Whoever is sampled must live until the sampling is over.
                        while breakdown && over.load(Ordering::Relaxed) == 0 {
                            Native::yield_now();
                        }
                        outcome.map(|()| tally.into_inner())
                    })
                })
                .collect();
            start_line.release(threads_count);
            let sampled: Vec<SampledThread> = registered.iter().take(threads_count).collect();
            let slice = if breakdown { SAMPLE_EVERY } else { SLICE };
            let start = Instant::now();
            let (mut last_tick, mut last_look) = (Duration::ZERO, Duration::ZERO);
            // Relaxed, here and below: hints to end.
            while start.elapsed() < span.length && !stop.is_requested() && running.load(Ordering::Relaxed) > 0 {
                std::thread::sleep(slice.min(span.length.saturating_sub(start.elapsed())));
                if breakdown {
                    // SAFETY: no thread ends before `over` is set, below.
                    sampled.iter().for_each(|thread| unsafe { thread.sample() });
                }
                let elapsed = start.elapsed();
                if elapsed - last_look >= MEMORY_EVERY {
                    last_look = elapsed;
                    if is_short() {
                        stop.request_for_memory();
                    }
                }
                if elapsed - last_tick >= SLICE {
                    tick((elapsed - last_tick).as_secs_f64() / span.length.as_secs_f64());
                    last_tick = elapsed;
                }
            }
            over.store(1, Ordering::Relaxed);
            let seconds = start.elapsed().as_secs_f64();
            let outcomes: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("a transaction does not panic")).collect();
            (seconds, outcomes)
        });
        let mut count = Count { seconds, ..Count::default() };
        for outcome in outcomes {
            count.tally.add(&outcome.map_err(|reason| stuck(world.engine.protocol().info(), reason))?);
        }
        Ok(count)
    }

    fn settle(&mut self, _: &mut World<P, W, Native>) -> Result<(), LabError> {
        Ok(())
    }
}

fn work<P: Control<Native>, W: Workload<Native>>(
    slot: &mut Slot<P, W, Native>,
    workload: &W,
    share: u64,
    tally: &RefCell<Tally>,
    over: &Word,
    purpose: Purpose,
) -> Result<(), AbortReason> {
    // Relaxed: a hint to end.
    let over = || over.load(Ordering::Relaxed) != 0;
    match purpose {
        Purpose::Verify => {
            let mut pauses = interleaving_seed(slot.worker.number());
            slot.work(workload, share, tally, over, |workload, tx, client, input| {
                workload.execute(&mut Interleaved::new(tx, &mut pauses), client, input)
            })
        }
        Purpose::Measure | Purpose::Record => {
            slot.work(workload, share, tally, over, |workload, tx, client, input| workload.execute(tx, client, input))
        }
    }
}
