//! Workers are threads of the host.
//!
//! **What passes between threads.** A thread gets its worker as an exclusive borrow, when it is
//! started, and gives its results back when it is joined. Both synchronise. So the atomics of this
//! module carry no data: they say that it is time to begin, or to end, and with a breakdown that a
//! thread may end (`Signals::leave`). A worker that sees a value late runs some transactions more,
//! and counts them.
//!
//! **What is measured.** A worker loads one word of this module (`Signals::over`) for each
//! transaction. No thread stores to its line until the interval ends or a worker has done its
//! share. So the line stays in the caches of all cores, and the load costs no transfer.

use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use contend_engine::{Protocol, ProtocolInfo, Worker};
use contend_machine::{
    Interleaved, Machine, Native, Ordering, SampledThread, SetAside, Stack, available_cores, is_alone, park,
    pin_to_core, run_together, wake_all,
};
use contend_model::pieces::Checked;
use contend_workloads::Workload;

use super::acknowledged::Waiting;
use super::climb::{Climb, LOOK_EVERY};
use super::epoch_lag::EpochLag;
use super::loaded_engine::{GivenUp, LoadedEngine, WorkerSlot, epochs_now, not_loaded, stuck};
use super::schedule::{Schedule, await_start};
use super::yielding::{Between, with_between};
use super::{ArrivalCount, Driver, Interval, IntervalResult, RunPurpose, Tally};
use crate::error::RunError;
use crate::memory::{address_space_left, available_bytes, is_short};
use crate::plan::RunPlan;
use crate::progress::Stop;
use crate::start_gate::StartGate;

/// The time between two checks of the main thread whether it was asked to stop.
const SLICE: Duration = Duration::from_millis(10);
/// The time between two samples of the workers' phases, if a breakdown is asked for. It is not a
/// round number, so that no periodic activity keeps time with it.
pub const SAMPLE_EVERY: Duration = Duration::from_micros(487);
/// The memory that is set aside for an interval, as a multiple of what an interval of this length
/// would take at the speed of those so far.
const MORE_THAN_SO_FAR: f64 = 1.5;
/// The longest time, in seconds, that a worker waits for a start before it looks whether the
/// interval is over.
const START_SLICE: f64 = 0.01;
/// The time between two checks of the free memory: tables may grow.
const MEMORY_EVERY: Duration = Duration::from_millis(100);

type Word = <Native as Machine>::U64;

/// The driver; see the module.
#[derive(Debug)]
pub(crate) struct Threads<M> {
    breakdown: bool,
    /// The length of the intervals so far, in seconds. Each further one takes a quarter from the
    /// weight of those before.
    seconds: f64,
    /// The bytes that tables and indexes have taken within these intervals, with the same weights.
    grown: f64,
    /// What each thread knows of the number of transactions in flight that pays, if it is to find
    /// that number.
    climbs: Vec<Climb>,
    machine: PhantomData<M>,
}

/// A machine whose cores are threads of the host.
pub(crate) trait Host: Machine<U64 = Word> {
    /// The stacks that this number of workers of a thread need. `None` if there is no memory.
    fn stacks(workers: usize) -> Option<Vec<Stack>>;
    /// Runs the bodies of a thread's workers until all have ended.
    fn run_workers<'b>(bodies: Vec<Box<dyn FnOnce() + 'b>>, stacks: &mut [Stack]);
    /// Whether no other worker of the thread runs.
    fn is_alone() -> bool;
    /// Lets the thread's other workers run, until one of them calls [`Host::wake_all`] or ends.
    fn park();
    /// Wakes the thread's parked workers.
    fn wake_all();
}

impl Host for Native {
    fn stacks(_: usize) -> Option<Vec<Stack>> {
        Some(Vec::new())
    }

    fn run_workers<'b>(bodies: Vec<Box<dyn FnOnce() + 'b>>, _: &mut [Stack]) {
        assert!(bodies.len() <= 1, "a worker on each thread");
        bodies.into_iter().for_each(|body| body());
    }

    fn is_alone() -> bool {
        true
    }

    fn park() {}

    fn wake_all() {}
}

impl Host for Interleaved {
    fn stacks(workers: usize) -> Option<Vec<Stack>> {
        Stack::many(workers)
    }

    fn run_workers<'b>(bodies: Vec<Box<dyn FnOnce() + 'b>>, stacks: &mut [Stack]) {
        run_together(bodies, stacks);
    }

    fn is_alone() -> bool {
        is_alone()
    }

    fn park() {
        park();
    }

    fn wake_all() {
        wake_all();
    }
}

/// What the workers have set aside and not used yet, by the number of the worker. The entries of a
/// comparison share it, since they run in turns: each would hold memory for the windows of others
/// otherwise.
static ASIDE: Mutex<Vec<SetAside>> = Mutex::new(Vec::new());

fn aside() -> MutexGuard<'static, Vec<SetAside>> {
    ASIDE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<M> Threads<M> {
    /// Returns the bytes that each thread is to set aside for an interval of this length.
    fn to_set_aside(&self, length: Duration, threads: usize) -> usize {
        if self.seconds == 0.0 {
            return 0;
        }
        let wanted = self.grown / self.seconds * length.as_secs_f64() * MORE_THAN_SO_FAR;
        if wanted < SetAside::BLOCK as f64 / 4.0 {
            return 0;
        }
        // Each thread's share is rounded up by a block or two. It must not endanger the machine: a
        // window without it is only slower.
        let each = (wanted as usize / threads).saturating_add(SetAside::BLOCK);
        let all = (each as u64).saturating_add(SetAside::BLOCK as u64).saturating_mul(threads as u64);
        let mut left = available_bytes().into_iter().chain(address_space_left());
        if left.all(|left| all < left / 4) { each } else { 0 }
    }
}

impl<M: Host> Threads<M> {
    /// Notes how many bytes the tables and indexes took in an interval of this length.
    fn note_growth(&mut self, seconds: f64, grown: u64) {
        self.seconds = self.seconds * 0.75 + seconds;
        self.grown = self.grown * 0.75 + grown as f64;
    }

    /// Returns what each thread knows of the number of transactions in flight that pays.
    fn climbs(&mut self, purpose: RunPurpose, threads: usize) -> std::slice::IterMut<'_, Climb> {
        let climb = || match purpose {
            RunPurpose::Verify | RunPurpose::Repeat => Climb::in_a_hurry(),
            RunPurpose::Measure | RunPurpose::Record => Climb::new(M::cycles_per_second()),
        };
        self.climbs.resize_with(threads, climb);
        self.climbs.iter_mut()
    }
}

impl<P: Protocol<M>, W: Workload, M: Host> Driver<P, W> for Threads<M> {
    type Machine = M;

    fn new(plan: &RunPlan, _: RunPurpose) -> Self {
        let breakdown = plan.config.breakdown;
        Threads { breakdown, seconds: 0.0, grown: 0.0, climbs: Vec::new(), machine: PhantomData }
    }

    fn load(
        &mut self,
        loaded: &LoadedEngine<P, W, M>,
        stop: &Stop,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), RunError> {
        let parts = available_cores().len().min(loaded.threads);
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
            // The loaders insert into the same tables at the same time; the index and the arenas
            // order that. The joins order all that they have stored before the first transaction.
            threads.into_iter().map(|thread| thread.join().expect("loading does not panic")).collect()
        });
        results
            .into_iter()
            .collect::<Result<(), _>>()
            .map_err(|error| not_loaded(loaded.engine.protocol().info(), &error))
    }

    fn run(
        &mut self,
        loaded: &mut LoadedEngine<P, W, M>,
        interval: Interval,
        stop: &Stop,
        tick: &dyn Fn(f64),
    ) -> Result<IntervalResult, RunError> {
        // Each worker has a share of its own, so that no counter is shared by all.
        let share = interval.transactions_max.map_or(u64::MAX, |max| max.div_ceil(loaded.slots.len() as u64));
        let threads = loaded.threads;
        let (signals, breakdown) = (&Signals::new(threads), self.breakdown);
        let running = Running { workload: &*loaded.workload, share, over: &signals.over, purpose: loaded.purpose };
        let each = if loaded.sets_aside { self.to_set_aside(interval.length, threads) } else { 0 };
        let mut all_aside = std::mem::take(&mut *aside());
        all_aside.resize_with(all_aside.len().max(threads), SetAside::default);
        let mut climbs = if loaded.climbs { self.climbs(loaded.purpose, threads) } else { [].iter_mut() };
        let mut slots_of: Vec<Vec<_>> = (0..threads).map(|_| Vec::new()).collect();
        loaded.slots.iter_mut().enumerate().for_each(|(number, slot)| slots_of[number % threads].push(slot));
        let (bytes_before, kinds) = (loaded.engine.bytes(), loaded.workload.kinds().len());
        let (registry, registered) = mpsc::channel();
        let (engine, log, lag, begun) =
            (&loaded.engine, &loaded.log, RefCell::new(EpochLag::default()), Instant::now());
        let tick = |part: f64| {
            tick(part);
            let (current, unsettled) = epochs_now(engine, log);
            lag.borrow_mut().look(current, unsettled, begun.elapsed().as_secs_f64());
        };
        let (seconds, outcomes) = std::thread::scope(|scope| {
            let threads: Vec<_> = slots_of
                .into_iter()
                .zip(&mut all_aside)
                .zip(available_cores().into_iter().cycle())
                .map(|((slots, aside), core)| {
                    let (registry, climb) = (registry.clone(), climbs.next());
                    scope.spawn(move || {
                        // Before the gate, so that no thread moves to another core within the
                        // interval.
                        // A thread that can't be pinned is still measured.
                        let _ = pin_to_core(core);
                        // By the thread that will use it, so that the memory is near its core.
                        aside.grow_to(each);
                        let tally = RefCell::new(Tally::new(kinds));
                        let mut stacks = M::stacks(slots.len());
                        // Before the gate as well: once it has opened, all handles have been sent,
                        // and `take` below need not wait for a thread.
                        registry.send(SampledThread::this()).expect("the main thread listens");
                        signals.start.wait();
                        let stacks = stacks.as_deref_mut();
                        let outcomes =
                            stacks.map(|stacks| aside.lend(|| work_all(slots, stacks, running, &tally, climb)));
                        signals.leave(breakdown);
                        outcomes.map(|outcomes| (outcomes, tally.into_inner()))
                    })
                })
                .collect();
            signals.start.release(threads.len());
            let sampled: Vec<SampledThread> = registered.iter().take(threads.len()).collect();
            let seconds = signals.watch(if breakdown { &sampled } else { &[] }, interval.length, stop, &tick);
            let outcomes: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("a transaction does not panic")).collect();
            (seconds, outcomes)
        });
        *aside() = all_aside;
        self.note_growth(seconds, loaded.engine.bytes().saturating_sub(bytes_before));
        let epoch_lag_seconds = lag.take().take();
        let arrivals = ArrivalCount::sum(loaded.slots.iter().filter_map(|slot| slot.schedule.as_ref()?.counted()));
        let tally = summed(loaded.engine.protocol().info(), outcomes)?;
        Ok(IntervalResult { seconds, tally, arrivals, epoch_lag_seconds, ..IntervalResult::default() })
    }

    fn pace(&mut self, loaded: &mut LoadedEngine<P, W, M>, schedules: Vec<Option<Schedule>>) {
        loaded.slots.iter_mut().zip(schedules).for_each(|(slot, schedule)| slot.schedule = schedule);
    }

    fn settle(&mut self, _: &mut LoadedEngine<P, W, M>) -> Result<(), RunError> {
        Ok(())
    }
}

impl<M> Drop for Threads<M> {
    fn drop(&mut self) {
        // Others that still run take new memory before their next window.
        aside().clear();
    }
}

/// The signals between the main thread and the workers of an interval.
/// They may share a line: the gate's words change before the interval, `running` when a worker has
/// done its share, and `over` at the end.
struct Signals {
    start: StartGate,
    /// Not 0 once the interval is over.
    over: Word,
    /// The workers that still run transactions.
    running: Word,
}

impl Signals {
    fn new(workers: usize) -> Self {
        Signals { start: StartGate::new(), over: Word::new(0), running: Word::new(workers as u64) }
    }

    /// Called by a worker that runs no more transactions. With a breakdown it returns only once the
    /// interval is over: a thread that is sampled must not end before the sampling does.
    fn leave(&self, breakdown: bool) {
        // Relaxed: pairs with the load in `watch`, which takes no other data from it. The results
        // are read after the threads are joined.
        self.running.fetch_sub(1, Ordering::Relaxed);
        // Acquire: pairs with the store in `watch`: the samples of this thread come before its end,
        // which frees what they read.
        while breakdown && self.over.load(Ordering::Acquire) == 0 {
            Native::yield_now();
        }
    }

    /// Watches the workers until the interval has passed, a stop is requested, or all have left.
    /// Samples the phases of the threads in `sampled`; if it is not empty, they must be those of
    /// all workers, and these must leave with a breakdown. Returns the length of the interval in
    /// seconds.
    fn watch(&self, sampled: &[SampledThread], length: Duration, stop: &Stop, tick: &dyn Fn(f64)) -> f64 {
        let slice = if sampled.is_empty() { SLICE } else { SAMPLE_EVERY };
        // The workers have begun, since the gate was opened just before. What commits in between
        // counts, and so does the transaction that each worker ends after `over` is set. Both take
        // microseconds.
        let start = Instant::now();
        let (mut last_tick, mut last_look) = (Duration::ZERO, Duration::ZERO);
        // Relaxed: pairs with the `fetch_sub` in `leave`; the count only ends the loop.
        while start.elapsed() < length && !stop.is_requested() && self.running.load(Ordering::Relaxed) > 0 {
            std::thread::sleep(slice.min(length.saturating_sub(start.elapsed())));
            // SAFETY: a sampled thread waits in `leave` until `over` is set, below.
            sampled.iter().for_each(|thread| unsafe { thread.sample() });
            let elapsed = start.elapsed();
            if elapsed - last_look >= MEMORY_EVERY {
                last_look = elapsed;
                if is_short() {
                    stop.request_for_memory();
                }
            }
            if elapsed - last_tick >= SLICE {
                tick((elapsed - last_tick).as_secs_f64() / length.as_secs_f64());
                last_tick = elapsed;
            }
        }
        // Release: pairs with the Acquire of `leave`; the load in `work` needs no order.
        self.over.store(1, Ordering::Release);
        start.elapsed().as_secs_f64()
    }
}

/// The outcome of a thread: those of its workers, and its tally. `None` if it had no memory.
type OfThread = Option<(Vec<Result<(), GivenUp>>, Tally)>;

/// Returns the sum of the threads' tallies.
///
/// # Errors
/// A worker has given up, or a thread had no memory.
fn summed(protocol: ProtocolInfo, outcomes: Vec<OfThread>) -> Result<Tally, RunError> {
    let mut sum = Tally::default();
    for outcome in outcomes {
        let (outcomes, tally) = outcome.ok_or_else(no_stacks)?;
        for outcome in outcomes {
            outcome.map_err(|given_up| stuck(protocol, given_up))?;
        }
        sum.add(&tally);
    }
    Ok(sum)
}

fn no_stacks() -> RunError {
    RunError::OutOfMemory(
        "there is no memory for the stacks of the transactions in flight; interleave=1 needs none".into(),
    )
}

/// What the workers of an interval run.
struct Running<'a, W> {
    workload: &'a W,
    /// The transactions that each worker commits.
    share: u64,
    over: &'a Word,
    purpose: RunPurpose,
}

impl<W> Clone for Running<'_, W> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for Running<'_, W> {}

/// Runs the transactions of a thread's workers, which add to its tally. Returns their outcomes.
fn work_all<P: Protocol<M>, W: Workload, M: Host>(
    slots: Vec<&mut WorkerSlot<P, W, M>>,
    stacks: &mut [Stack],
    running: Running<'_, W>,
    tally: &RefCell<Tally>,
    climb: Option<&mut Climb>,
) -> Vec<Result<(), GivenUp>> {
    let outcomes = RefCell::new(Vec::new());
    let in_flight = climb.map(InFlight::new);
    let bodies = slots.into_iter().enumerate().map(|(position, slot)| {
        let outcomes = &outcomes;
        let in_flight = in_flight.as_ref().map(|in_flight| (in_flight, position));
        Box::new(move || {
            let outcome = work(slot, running, tally, in_flight);
            // Before the thread leaves, where a breakdown keeps it, and before the other workers of
            // the thread end: a worker that runs no transaction must not hold back the epoch, or
            // the gate, of others.
            slot.worker.go_offline();
            outcomes.borrow_mut().push(outcome);
        }) as Box<dyn FnOnce() + '_>
    });
    M::run_workers(bodies.collect(), stacks);
    outcomes.into_inner()
}

/// The workers of a thread that have transactions in flight, while it finds out how many of them
/// pay: those at the first positions.
struct InFlight<'c> {
    climb: RefCell<&'c mut Climb>,
    /// How many workers are to run transactions.
    wanted: Cell<usize>,
    /// The transactions that have begun.
    begun: Cell<u64>,
}

impl<'c> InFlight<'c> {
    fn new(climb: &'c mut Climb) -> Self {
        climb.resume();
        let wanted = Cell::new(climb.in_flight());
        InFlight { climb: RefCell::new(climb), wanted, begun: Cell::new(0) }
    }

    /// Called by the worker at this position before each of its transactions. Returns when it is
    /// one of those that are to be in flight, or the interval is over; and whether it has been
    /// parked until then.
    fn join<P: Protocol<M>, M: Host>(
        &self,
        worker: &mut Worker<P, M>,
        position: usize,
        over: impl Fn() -> bool,
    ) -> bool {
        self.begun.set(self.begun.get() + 1);
        if self.begun.get().is_multiple_of(LOOK_EVERY) {
            let mut climb = self.climb.borrow_mut();
            climb.note(M::now());
            if self.wanted.replace(climb.in_flight()) < climb.in_flight() {
                M::wake_all();
            }
        }
        let mut was_parked = false;
        while position >= self.wanted.get() && !M::is_alone() && !over() {
            // A worker that runs no transaction must not hold back the epoch. With a log this may
            // take a while, and others may run meanwhile.
            worker.go_offline();
            if position >= self.wanted.get() {
                M::park();
                was_parked = true;
            }
        }
        was_parked
    }
}

/// Runs transactions until the interval is over or the worker's share has committed.
fn work<P: Protocol<M>, W: Workload, M: Host>(
    slot: &mut WorkerSlot<P, W, M>,
    running: Running<'_, W>,
    tally: &RefCell<Tally>,
    in_flight: Option<(&InFlight<'_>, usize)>,
) -> Result<(), GivenUp> {
    let Running { workload, share, over, purpose } = running;
    // Relaxed: pairs with the store in `Signals::watch`; the flag only ends the loop.
    let over = || over.load(Ordering::Relaxed) != 0;
    let schedule = &RefCell::new(slot.schedule.take().map(|mut schedule| {
        schedule.resume(M::now());
        schedule
    }));
    let slice = (START_SLICE * M::cycles_per_second()) as u64;
    let next = |worker: &mut Worker<P, M>, waiting: &mut Waiting| {
        if M::overlaps() {
            // Transactions that never await anything must not keep the thread to themselves.
            M::await_prefetched();
            if let Some((in_flight, position)) = in_flight
                && in_flight.join(worker, position, over)
            {
                // A commit that was waiting for the log has also waited while the worker did.
                waiting.clear();
            }
        }
        await_start(schedule, (worker, waiting), tally, slice, over)
    };
    let mut between = match purpose {
        RunPurpose::Verify | RunPurpose::Repeat => Between::yields(slot.worker.number()),
        RunPurpose::Measure | RunPurpose::Record => Between::round_trips::<M>(slot.round_trip_us),
    };
    let outcome = match between {
        Between::Nothing => slot.work(workload, share, tally, next, over, |workload, tx, client, input, _| {
            workload.execute(tx, client, input)
        }),
        // The checker allows everything, unless the session verifies.
        _ => slot.work(workload, share, tally, next, over, |workload, tx, client, input, checker| {
            let mut before = with_between::<_, M>(tx, &mut between);
            workload.execute(&mut Checked::new(&mut before, checker, workload.kind(input)), client, input)
        }),
    };
    slot.schedule = schedule.take().map(|mut schedule| {
        schedule.pause(M::now());
        schedule
    });
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_worker_sets_aside_its_share_of_what_the_tables_will_take() {
        const MB: f64 = (1 << 20) as f64;
        let so_far = |seconds, grown| Threads::<Native> {
            breakdown: false,
            seconds,
            grown,
            climbs: Vec::new(),
            machine: PhantomData,
        };
        let second = Duration::from_secs(1);
        assert_eq!(so_far(0.0, 0.0).to_set_aside(second, 2), 0, "before the first interval");
        assert_eq!(so_far(5.0, 0.0).to_set_aside(second, 2), 0, "tables that do not grow");
        assert_eq!(so_far(5.0, MB).to_set_aside(second, 2), 0, "tables that have stopped to grow");
        // 20 MB a second, and half as much again, by two workers.
        assert_eq!(so_far(2.0, 40.0 * MB).to_set_aside(second, 2), 15 * MB as usize + SetAside::BLOCK);
        assert_eq!(so_far(1.0, 1e15).to_set_aside(second, 2), 0, "more than the machine has");
    }
}
