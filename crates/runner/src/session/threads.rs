//! Workers are threads of the host.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use contend_engine::{AbortReason, Protocol};
use contend_machine::{Machine, Native, Ordering, SampledThread, available_cores, pin_to_core};
use contend_workloads::Workload;

use super::interleaved::{interleaved, pauses_of};
use super::loaded_engine::{LoadedEngine, WorkerSlot, not_loaded, stuck};
use super::{Driver, Interval, IntervalResult, RunPurpose, Tally};
use crate::error::RunError;
use crate::memory::is_short;
use crate::plan::RunPlan;
use crate::progress::Stop;
use crate::start_gate::StartGate;

/// How often a waiting main thread looks whether it was asked to stop.
const SLICE: Duration = Duration::from_millis(10);
/// How often it looks at what the workers do, if their time is to be broken down. Not a round
/// number: nothing else should keep time with it.
pub const SAMPLE_EVERY: Duration = Duration::from_micros(487);
/// How often it looks whether memory is left: tables may grow.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

type Word = <Native as Machine>::U64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Threads {
    breakdown: bool,
}

impl<P: Protocol<Native>, W: Workload> Driver<P, W> for Threads {
    type Machine = Native;

    fn new(plan: &RunPlan, _: RunPurpose) -> Self {
        Threads { breakdown: plan.config.breakdown }
    }

    fn load(
        &mut self,
        loaded: &LoadedEngine<P, W, Native>,
        stop: &Stop,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), RunError> {
        let parts = available_cores().len().min(loaded.slots.len());
        let results: Vec<Result<(), contend_engine::OutOfMemory>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..parts)
                .map(|part| {
                    let (engine, workload) = (&loaded.engine, &loaded.workload);
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
            .map_err(|error| not_loaded(loaded.engine.protocol().info(), &error))
    }

    fn run(
        &mut self,
        loaded: &mut LoadedEngine<P, W, Native>,
        interval: Interval,
        stop: &Stop,
        tick: &dyn Fn(f64),
    ) -> Result<IntervalResult, RunError> {
        let cores = available_cores();
        let (over, running) = (Word::new(0), Word::new(loaded.slots.len() as u64));
        let (start_line, threads_count) = (StartGate::new(), loaded.slots.len());
        let share = interval.transactions_max.map_or(u64::MAX, |max| max.div_ceil(loaded.slots.len() as u64));
        let (workload, purpose, breakdown) = (&*loaded.workload, loaded.purpose, self.breakdown);
        let (over, running, start_line) = (&over, &running, &start_line);
        let (registry, registered) = mpsc::channel();
        let (seconds, outcomes) = std::thread::scope(|scope| {
            let threads: Vec<_> = loaded
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
            while start.elapsed() < interval.length && !stop.is_requested() && running.load(Ordering::Relaxed) > 0 {
                std::thread::sleep(slice.min(interval.length.saturating_sub(start.elapsed())));
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
                    tick((elapsed - last_tick).as_secs_f64() / interval.length.as_secs_f64());
                    last_tick = elapsed;
                }
            }
            // Relaxed: pairs with the workers' loads as a hint; `join` orders their results.
            over.store(1, Ordering::Relaxed);
            let seconds = start.elapsed().as_secs_f64();
            let outcomes: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("a transaction does not panic")).collect();
            (seconds, outcomes)
        });
        let mut count = IntervalResult { seconds, ..IntervalResult::default() };
        for outcome in outcomes {
            count.tally.add(&outcome.map_err(|reason| stuck(loaded.engine.protocol().info(), reason))?);
        }
        Ok(count)
    }

    fn settle(&mut self, _: &mut LoadedEngine<P, W, Native>) -> Result<(), RunError> {
        Ok(())
    }
}

fn work<P: Protocol<Native>, W: Workload>(
    slot: &mut WorkerSlot<P, W, Native>,
    workload: &W,
    share: u64,
    tally: &RefCell<Tally>,
    over: &Word,
    purpose: RunPurpose,
) -> Result<(), AbortReason> {
    // Relaxed: a hint to end.
    let over = || over.load(Ordering::Relaxed) != 0;
    match purpose {
        RunPurpose::Verify => {
            let mut pauses = pauses_of(slot.worker.number());
            slot.work(workload, share, tally, over, |workload, tx, client, input| {
                workload.execute(&mut interleaved(tx, &mut pauses), client, input)
            })
        }
        RunPurpose::Measure | RunPurpose::Record => {
            slot.work(workload, share, tally, over, |workload, tx, client, input| workload.execute(tx, client, input))
        }
    }
}
