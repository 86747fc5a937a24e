//! Engine, workload and workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contend_engine::{
    Abort, AbortReason, ConflictMap, Declaration, Engine, EngineConfig, NamedConflicts, Protocol, ProtocolInfo,
    Transaction, VersionCounts, Worker,
};
use contend_machine::{Machine, Phase, available_cores};
use contend_model::pieces::{CheckedTypes, PieceChecker};
use contend_protocols::method::{Backoff, Retry, RetryOptions};
use contend_workloads::{Checked, Violation, Workload};

use super::acknowledged::{ASK_EVERY, Commit, Waiting, nanoseconds};
use super::schedule::{Next, Schedule};
use super::yielding::Thinking;
use super::{Driver, Interval, IntervalResult, RunPurpose, Session, Tally, declare_types};

use crate::arrivals::Arrivals;
use crate::durable::{LogMode, RunLog};
use crate::error::RunError;
use crate::in_flight::Interleave;
use crate::memory::MemoryOptions;
use crate::names::values;
use crate::plan::{ProtocolPlan, RunPlan};
use crate::progress::Stop;
use contend_judge::{Recorded, recorded};

/// In a closed loop one transaction in `TIMED_EVERY` is timed. Two readings of the clock cost about
/// 20 ns, which would slow down short transactions. In an open loop each is timed.
const TIMED_EVERY: u64 = 16;
/// Instructions that a simulated core is charged for the beginning and the end of a transaction.
const INSTRUCTIONS_AROUND: u32 = 100;

/// An engine with a loaded workload, and its workers.
pub(crate) struct LoadedEngine<P: Protocol<M>, W: Workload, M: Machine> {
    pub(crate) engine: Arc<Engine<P, M>>,
    pub(crate) workload: Arc<W>,
    /// The workers. Those of one thread are `threads` apart.
    pub(crate) slots: Vec<WorkerSlot<P, W, M>>,
    /// The number of workers; on a chip that runs they are not here.
    workers: usize,
    /// The seed of all random choices.
    seed: u64,
    /// The threads, or simulated cores, that share the workers.
    pub(crate) threads: usize,
    /// Whether each thread finds out how many transactions in flight pay.
    pub(crate) climbs: bool,
    pub(crate) purpose: RunPurpose,
    /// Whether workers set memory aside before an interval.
    pub(crate) sets_aside: bool,
    protocol_options: BTreeMap<String, String>,
    workload_options: BTreeMap<String, String>,
    /// The log comes after the workers: it flushes their last commits when it is dropped.
    pub(super) log: Option<RunLog<M>>,
}

/// The state of one worker, kept from window to window. The alignment of [`Worker`] keeps two of
/// them, which stand side by side, from sharing a cache line.
pub(crate) struct WorkerSlot<P: Protocol<M>, W: Workload, M: Machine> {
    pub(crate) worker: Worker<P, M>,
    pub(crate) client: W::Client,
    input: W::Input,
    retry: Retry<M>,
    drawn: u64,
    /// Whether commits are made durable.
    logs: bool,
    /// The timed transactions that are not durable yet.
    waiting: Waiting,
    /// Checks transactions against their declarations, if the session verifies.
    checker: PieceChecker,
    /// When transactions are to start, in an open loop on the host.
    pub(crate) schedule: Option<Schedule>,
    /// The time that passes before each operation, in microseconds.
    pub(crate) round_trip_us: u64,
    /// The client that thinks between transactions, if one does.
    thinking: Option<Thinking>,
}

/// The end of a worker whose transaction aborts for a reason that does not go away.
#[derive(Clone, Debug)]
pub(crate) struct GivenUp {
    reason: AbortReason,
    /// What the transaction did that its type has not declared.
    violation: Option<String>,
}

impl GivenUp {
    #[cold]
    fn of<P: Protocol<M>, M: Machine>(
        reason: AbortReason,
        worker: &mut Worker<P, M>,
        checker: &mut PieceChecker,
    ) -> GivenUp {
        GivenUp { reason, violation: worker.take_undeclared().or_else(|| checker.take_violation()) }
    }
}

/// Returns a checker of transactions; without declarations it allows everything.
fn checker_of(declared: Option<Arc<CheckedTypes>>) -> PieceChecker {
    let mut checker = PieceChecker::default();
    checker.declare(declared);
    checker
}

/// A session, by its types.
pub(crate) struct TypedSession<P: Protocol<D::Machine>, W: Workload, D: Driver<P, W>> {
    // The driver comes first: the running workers must end before the engine is dropped.
    pub(crate) driver: D,
    pub(crate) loaded: LoadedEngine<P, W, D::Machine>,
}

impl<P: Protocol<M>, W: Workload, M: Machine> LoadedEngine<P, W, M> {
    pub(crate) fn new(
        plan: &RunPlan,
        entry: &ProtocolPlan,
        protocol: P,
        workload_options: W::Options,
        purpose: RunPurpose,
    ) -> Result<Self, RunError> {
        let RunPlan { config, .. } = plan;
        let ProtocolPlan { retry, engine: engine_options, log: log_options, memory, .. } = entry;
        let mut protocol_options = entry.values.clone();
        protocol_options.extend(values(retry));
        protocol_options.extend(values(engine_options));
        protocol_options.extend(values(log_options));
        // Four threads overlap also where they share a core. A chip has enough cores.
        let overlapping = purpose == RunPurpose::Verify && config.chip.is_none();
        let threads = if overlapping { config.threads.max(4) } else { config.threads };
        let workers = threads * entry.threads.interleave.workers(purpose);
        // The main thread loads on a chip, and each core that runs workers on the host.
        let loaders = if config.chip.is_some() { 1 } else { available_cores().len().min(threads) };
        let defaults = EngineConfig::default();
        let engine_config = EngineConfig {
            workers_max: defaults.workers_max.max(workers + loaders),
            history: purpose != RunPurpose::Measure,
            partitions: W::declares(&workload_options).partitions.unwrap_or(1),
            options: engine_options.clone(),
            ..defaults
        };
        let engine_config = match log_options.mode {
            LogMode::Off => engine_config,
            _ => EngineConfig { epoch_ms: log_options.epoch_ms, ..engine_config },
        };
        let own = config.dir.as_deref().filter(|_| !matches!(purpose, RunPurpose::Verify | RunPurpose::Repeat));
        let mut log = RunLog::create(log_options, config.chip.is_none(), engine_config.workers_max, own)?;
        let engine = Engine::with_commit_sinks(protocol, engine_config, log.as_ref().map(RunLog::sinks));
        let workload = Arc::new(W::create(&workload_options, plan.index, &engine));
        let types = declare_types(&engine, &*workload)?;
        let checked = types.filter(|_| purpose == RunPurpose::Verify).map(CheckedTypes::new);
        if let Some(RunLog::Files(files)) = &mut log {
            files.begin(&engine, log_options.epoch_ms)?;
        }
        let mut slots = WorkerSlot::all(&engine, &*workload, retry, (workers, config.seed), &log, checked);
        if matches!(purpose, RunPurpose::Measure | RunPurpose::Record) {
            for (number, slot) in slots.iter_mut().enumerate() {
                slot.round_trip_us = entry.threads.round_trip_us;
                let by_kind = W::think_times(&workload_options);
                slot.thinking = Thinking::new(entry.threads.think_us, by_kind, number, config.seed);
            }
        }
        let workload_options = values(&workload_options);
        let sets_aside = memory.set_aside && purpose == RunPurpose::Measure && config.chip.is_none();
        protocol_options.extend(values(&MemoryOptions { set_aside: sets_aside }));
        protocol_options.extend(values(&entry.threads));
        let climbs = entry.threads.interleave == Interleave::Auto;
        Ok(LoadedEngine {
            climbs,
            slots,
            workers,
            seed: config.seed,
            threads,
            engine,
            workload,
            purpose,
            sets_aside,
            protocol_options,
            workload_options,
            log,
        })
    }
}

impl<P: Protocol<M>, W: Workload, M: Machine> WorkerSlot<P, W, M> {
    /// Returns this number of workers of an engine, whose random choices follow from the seed.
    fn all(
        engine: &Arc<Engine<P, M>>,
        workload: &W,
        retry: &RetryOptions,
        (workers, seed): (usize, u64),
        log: &Option<RunLog<M>>,
        checked: Option<Arc<CheckedTypes>>,
    ) -> Vec<Self> {
        let backoff = Backoff::new(retry.clone(), workers);
        let slots = (0..workers).map(|number| WorkerSlot {
            worker: engine.worker().expect("fewer threads than workers"),
            client: workload.client(number, workers, seed),
            input: W::Input::default(),
            retry: backoff.retry(number, seed.wrapping_add(number as u64)),
            drawn: 0,
            logs: log.is_some(),
            waiting: Waiting::default(),
            checker: checker_of(checked.clone()),
            schedule: None,
            round_trip_us: 0,
            thinking: None,
        });
        slots.collect()
    }

    /// Runs transactions until `share` of them have committed. Calls `next` before each, which may
    /// wait for its start, and ends if there is none, or if `over` returns true where one has
    /// aborted. Returns an error if a transaction aborts for a reason that does not go away.
    #[inline(always)]
    pub(crate) fn work(
        &mut self,
        workload: &W,
        share: u64,
        tally: &RefCell<Tally>,
        mut next: impl FnMut(&mut Worker<P, M>, &mut Waiting) -> Next,
        over: impl Fn() -> bool,
        mut execute: impl FnMut(
            &W,
            &mut Transaction<'_, P, M>,
            &mut W::Client,
            &W::Input,
            &mut PieceChecker,
        ) -> Result<(), Abort>,
    ) -> Result<(), GivenUp> {
        let WorkerSlot { worker, client, input, retry, drawn, logs, waiting, checker, thinking, .. } = self;
        let end = worker.commits().saturating_add(share);
        while worker.commits() < end {
            let Next::Transaction { due } = start(worker, thinking, &over, |worker| next(worker, waiting)) else {
                break;
            };
            M::work(INSTRUCTIONS_AROUND);
            *drawn += 1;
            let stands_for = if due.is_some() { 1 } else { TIMED_EVERY };
            let timed = drawn.is_multiple_of(stands_for);
            let now = || if timed { M::now() } else { 0 };
            let before = now();
            workload.next(worker, client, input);
            let start = now();
            if timed {
                tally.borrow_mut().drawing += stands_for * start.wrapping_sub(before);
            }
            let kind = kind_of(workload, input, thinking);
            let retries_before = worker.piece_retries();
            let is_committed = loop {
                let declare = |declaration: &mut Declaration<M>| {
                    declaration.kind(kind);
                    workload.declare(input, declaration);
                };
                let Err(abort) = worker.run_declared(declare, |tx| execute(workload, tx, client, input, checker))
                else {
                    workload.committed(client, input);
                    let tally = &mut *tally.borrow_mut();
                    tally.kinds[kind].commits += 1;
                    M::take_times(&mut tally.useful);
                    break true;
                };
                note_abort(worker, abort.reason, kind, tally);
                // While a transaction is protected, all others wait for it.
                if abort.reason.is_conflict() && !over() && !worker.is_protected() {
                    retry.aborted();
                }
                M::take_times(&mut tally.borrow_mut().aborted);
                match abort.reason {
                    AbortReason::User => break false,
                    reason if !reason.is_conflict() => return Err(GivenUp::of(reason, worker, checker)),
                    _ if over() => return Ok(()),
                    _ => {}
                }
            };
            retry.done();
            if let (Some(before), Some(now)) = (retries_before, worker.piece_retries()) {
                tally.borrow_mut().kinds[kind].add_piece_retries(now - before);
            }
            if timed {
                note_latency(worker, (waiting, *logs && is_committed), (start, due), kind, tally);
            }
        }
        Ok(())
    }
}

/// Returns the type of a transaction that begins, and tells it to the client if it thinks.
#[inline(always)]
fn kind_of<W: Workload>(workload: &W, input: &W::Input, thinking: &mut Option<Thinking>) -> usize {
    let kind = workload.kind(input);
    if let Some(client) = thinking {
        client.begins(kind);
    }
    kind
}

/// Lets the client think, if one does, and waits for the next start.
#[inline(always)]
fn start<P: Protocol<M>, M: Machine>(
    worker: &mut Worker<P, M>,
    thinking: &mut Option<Thinking>,
    over: impl Fn() -> bool,
    next: impl FnOnce(&mut Worker<P, M>) -> Next,
) -> Next {
    if let Some(client) = thinking {
        client.pass(worker, over);
    }
    let next = next(worker);
    if thinking.is_some() || matches!(next, Next::Transaction { due: Some(_) }) {
        // The wait is no work: it is in no breakdown.
        M::take_times(&mut [0; Phase::COUNT]);
    }
    next
}

/// Counts an abort of a transaction of this type, a conflict with its place. Cores of a chip share
/// the tally, and another core may go on while this one asks for the place. So the tally is
/// borrowed for the count only, and a window that ends meanwhile has both counts or none.
fn note_abort<P: Protocol<M>, M: Machine>(
    worker: &mut Worker<P, M>,
    reason: AbortReason,
    kind: usize,
    tally: &RefCell<Tally>,
) {
    let place = reason.is_conflict().then(|| worker.conflict_place());
    let mut tally = tally.borrow_mut();
    tally.kinds[kind].aborts.add(reason);
    if let Some(place) = place {
        tally.conflicts.add(kind, reason, place);
    }
}

/// Notes the latency of a timed transaction of this type, which began at `start` and has ended. In
/// an open loop, also notes the time since its start was due: now, or once its commit is durable if
/// it waits for a log. The tally is borrowed for each note only, as in [`Waiting::ask`].
fn note_latency<P: Protocol<M>, M: Machine>(
    worker: &mut Worker<P, M>,
    (waiting, waits): (&mut Waiting, bool),
    (start, due): (u64, Option<u64>),
    kind: usize,
    tally: &RefCell<Tally>,
) {
    let now = M::now();
    {
        let of_kind = &mut tally.borrow_mut().kinds[kind];
        of_kind.latencies.saturating_record(nanoseconds::<M>(start, now));
        due.filter(|_| !waits).into_iter().for_each(|due| of_kind.add_response(nanoseconds::<M>(due, now)));
    }
    if waits {
        waiting.push(Commit { ticket: worker.ticket(), start, due, kind });
    }
    waiting.ask(worker, tally);
}

impl<P: Protocol<D::Machine>, W: Workload, D: Driver<P, W>> TypedSession<P, W, D> {
    /// Waits until the commits of an interval of an open loop are durable, and notes their response
    /// times. Those of the last epoch would be missing otherwise, and they are no shorter than the
    /// others. Nothing hurries the log: that would make them shorter. On a chip the workers are not
    /// here, and go on in the next interval. An emulated log ends no epoch while all workers stand.
    fn await_durable(&mut self, count: &mut IntervalResult, stop: &Stop) -> Result<(), RunError> {
        let Some(log) = &self.loaded.log else { return Ok(()) };
        let tally = RefCell::new(std::mem::take(&mut count.tally));
        loop {
            let slots = self.loaded.slots.iter_mut();
            let waiting = slots.filter_map(|WorkerSlot { worker, waiting, .. }| {
                waiting.ask(worker, &tally);
                (!waiting.is_empty()).then_some(())
            });
            if waiting.count() == 0 || stop.is_requested() || !log.goes_on()? {
                break;
            }
            std::thread::sleep(Duration::from_secs_f64(ASK_EVERY));
        }
        count.tally = tally.into_inner();
        Ok(())
    }
}

impl<P: Protocol<D::Machine>, W: Workload, D: Driver<P, W>> Session for TypedSession<P, W, D> {
    fn info(&self) -> ProtocolInfo {
        self.loaded.engine.protocol().info()
    }

    fn protocol_options(&self) -> BTreeMap<String, String> {
        self.loaded.protocol_options.clone()
    }

    fn workload_options(&self) -> BTreeMap<String, String> {
        self.loaded.workload_options.clone()
    }

    fn kinds(&self) -> &'static [&'static str] {
        self.loaded.workload.kinds()
    }

    fn load_units(&self) -> u64 {
        self.loaded.workload.load_units()
    }

    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), RunError> {
        self.driver.load(&self.loaded, stop, advance)?;
        if !stop.is_requested() {
            self.loaded.workload.check_loaded(&self.loaded.engine).map_err(RunError::BadInput)?;
        }
        let Some(log) = &self.loaded.log else { return Ok(()) };
        // The loaded rows are durable before the run begins. Otherwise a disk without room for them
        // would fail in the middle of the run and leave nothing, and the loaders' buffers would be
        // written in the first window.
        log.bytes_up_to(self.loaded.engine.epochs().current()).map_err(|error| {
            let protocol = self.loaded.engine.protocol().info().name.into();
            match error {
                RunError::LogFailed(error) => RunError::LoadNotDurable { protocol, error },
                other => other,
            }
        })?;
        Ok(())
    }

    fn run(&mut self, interval: Interval, stop: &Stop, tick: &dyn Fn(f64)) -> Result<IntervalResult, RunError> {
        // A commit that was waiting at the end of the last window has also waited in between, so
        // its time does not count.
        self.loaded.slots.iter_mut().for_each(|slot| slot.waiting.clear());
        let before = self.loaded.log.as_ref().map(RunLog::bytes);
        let mut count = self.driver.run(&mut self.loaded, interval, stop, tick)?;
        if count.arrivals.is_some() {
            self.await_durable(&mut count, stop)?;
        }
        if let (Some(log), Some(before)) = (&self.loaded.log, before) {
            let last = self.loaded.slots.iter().map(|slot| slot.worker.committed_in()).max();
            count.log_bytes = Some(log.bytes_up_to(last.unwrap_or(0))? - before);
        }
        Ok(count)
    }

    fn pace(&mut self, arrivals: Option<&Arrivals>, warmup_seconds: f64) {
        let (workers, hertz) = (self.loaded.workers, D::Machine::cycles_per_second());
        let schedule = |worker| {
            let seed = self.loaded.seed;
            arrivals.map(|arrivals| Schedule::new(arrivals, warmup_seconds, worker, workers, seed, hertz))
        };
        let schedules = (0..workers).map(schedule).collect();
        self.driver.pace(&mut self.loaded, schedules);
    }

    fn settle(&mut self) -> Result<(), RunError> {
        self.driver.settle(&mut self.loaded)
    }

    fn bytes(&self) -> u64 {
        self.loaded.engine.bytes()
    }

    fn rows(&self) -> Vec<(String, u64)> {
        self.loaded.engine.rows()
    }

    fn versions(&self) -> VersionCounts {
        let mut sum = VersionCounts::default();
        self.loaded.slots.iter().for_each(|slot| sum.merge(slot.worker.versions()));
        sum
    }

    fn tombstones(&self) -> u64 {
        self.loaded.slots.iter().map(|slot| slot.worker.tombstones() as u64).sum()
    }

    fn version_chains(&self) -> Vec<u64> {
        self.loaded.engine.version_chains()
    }

    fn state_hash(&self) -> u64 {
        self.loaded.engine.state_hash()
    }

    fn check(&self) -> Result<Checked, Violation> {
        let clients: Vec<&W::Client> = self.loaded.slots.iter().map(|slot| &slot.client).collect();
        self.loaded.workload.check(&self.loaded.engine, &clients)
    }

    fn name_conflicts(&self, map: &ConflictMap) -> NamedConflicts {
        let mut named = self.loaded.engine.name_conflicts(map);
        for table in &mut named.keys {
            for key in &mut table.keys {
                let parts = self.loaded.workload.key_parts(&table.table, &key.words);
                if !parts.is_empty() {
                    let words: Vec<String> = parts.iter().map(|(name, value)| format!("{name} {value}")).collect();
                    key.key = words.join(", ");
                }
            }
        }
        named
    }

    fn take_history(&mut self) -> Recorded {
        let committed = self.loaded.slots.iter_mut().flat_map(|slot| slot.worker.take_history()).collect();
        recorded(&self.loaded.engine, committed)
    }
}

/// Returns the current epoch of a session, and its oldest epoch that is not settled (see
/// [`super::epoch_lag`]).
pub(super) fn epochs_now<P: Protocol<M>, M: Machine>(engine: &Engine<P, M>, log: &Option<RunLog<M>>) -> (u64, u64) {
    let epochs = engine.epochs();
    let durable = log.as_ref().and_then(RunLog::durable_epoch);
    (epochs.current(), durable.map_or_else(|| epochs.oldest_to_commit(), |durable| durable + 1))
}

/// Returns the error for an abort that does not go away.
pub(super) fn stuck(protocol: ProtocolInfo, given_up: GivenUp) -> RunError {
    let GivenUp { reason, violation } = given_up;
    violation.map_or_else(|| RunError::Stuck { protocol: protocol.name.into(), reason }, RunError::Undeclared)
}

/// Returns the error for tables that did not fit into memory.
pub(super) fn not_loaded(protocol: ProtocolInfo, error: &contend_engine::OutOfMemory) -> RunError {
    RunError::OutOfMemory(format!(
        "loading the tables of {}: {error}; fewer or shorter records need less",
        protocol.name
    ))
}
