//! Engine, workload and workers.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use contend_engine::{
    Abort, AbortReason, Control, Engine, EngineConfig, EngineOptions, Info, Transaction, VersionCounts, Worker,
};
use contend_machine::Machine;
use contend_protocols::method::{Backoff, Retry, RetryOptions};
use contend_workloads::{Checked, Violation, Workload};

use super::{Bed, Count, Driver, Purpose, Span, Tally};
use crate::config::{LabError, RunConfig, options, values};
use crate::durable::{LogMode, LogOptions, RunLog};
use crate::recording::{Recorded, recorded};
use crate::watch::Stop;

/// On the host one transaction in so many is timed: reading the clock twice costs about 20 ns, which would be felt.
const TIMED_EVERY: u64 = 16;
/// Instructions of beginning and ending a transaction: what a simulated core is charged for them.
const INSTRUCTIONS_AROUND: u32 = 100;

/// An engine with a workload, and what runs on it.
pub(crate) struct World<P: Control<M>, W: Workload<M>, M: Machine> {
    pub(crate) engine: Arc<Engine<P, M>>,
    pub(crate) workload: Arc<W>,
    pub(crate) slots: Vec<Slot<P, W, M>>,
    pub(crate) purpose: Purpose,
    protocol_options: BTreeMap<String, String>,
    workload_options: BTreeMap<String, String>,
    /// After the workers, whose last commits are flushed when it goes.
    log: Option<RunLog<M>>,
}

/// What one worker runs with, from window to window.
pub(crate) struct Slot<P: Control<M>, W: Workload<M>, M: Machine> {
    pub(crate) worker: Worker<P, M>,
    pub(crate) client: W::Client,
    input: W::Input,
    retry: Retry<M>,
    drawn: u64,
    /// Whether commits are made durable.
    logs: bool,
    /// Of transactions that were timed and are not durable yet: their tickets, and when they began.
    waiting: VecDeque<(u64, u64)>,
}

/// A bed, by its types.
pub(crate) struct TypedBed<P: Control<D::Machine>, W: Workload<D::Machine>, D: Driver<P, W>> {
    // The driver first: what runs is ended before the engine goes.
    driver: D,
    world: World<P, W, D::Machine>,
}

impl<P: Control<D::Machine>, W: Workload<D::Machine>, D: Driver<P, W>> TypedBed<P, W, D> {
    pub(crate) fn new(
        config: &RunConfig,
        protocol: (P, BTreeMap<String, String>),
        settings: &BTreeMap<String, String>,
        workload_options: W::Options,
        purpose: Purpose,
    ) -> Result<Self, LabError> {
        let driver = D::new(config, purpose);
        Ok(TypedBed { driver, world: World::new(config, protocol, settings, workload_options, purpose)? })
    }
}

impl<P: Control<M>, W: Workload<M>, M: Machine> World<P, W, M> {
    fn new(
        config: &RunConfig,
        (protocol, mut all_options): (P, BTreeMap<String, String>),
        settings: &BTreeMap<String, String>,
        workload_options: W::Options,
        purpose: Purpose,
    ) -> Result<Self, LabError> {
        let retry_options = options::<RetryOptions>(&[], settings)?;
        let engine_options = options::<EngineOptions>(&[], settings)?;
        all_options.extend(values(&retry_options));
        all_options.extend(values(&engine_options));
        let log_options = options::<LogOptions>(&[], settings)?;
        all_options.extend(values(&log_options));
        // Threads that share a core, so that transactions overlap there too; a chip has cores enough.
        let overlapping = purpose == Purpose::Verify && config.chip.is_none();
        let threads = if overlapping { config.threads.max(4) } else { config.threads };
        let defaults = EngineConfig::default();
        let engine_config = EngineConfig {
            // One for the loader.
            workers_max: defaults.workers_max.max(threads + 1),
            history: purpose != Purpose::Measure,
            partitions: W::declares(&workload_options).partitions.unwrap_or(1),
            options: engine_options,
            ..defaults
        };
        let engine_config = match log_options.mode {
            LogMode::Off => engine_config,
            _ => EngineConfig { epoch_ms: log_options.epoch_ms, ..engine_config },
        };
        let own = config.dir.as_deref().filter(|_| purpose != Purpose::Verify);
        let mut log = RunLog::create(&log_options, config.chip.is_none(), engine_config.workers_max, own)?;
        let engine = Engine::with_journals(protocol, engine_config, log.as_ref().map(RunLog::journals));
        let workload = Arc::new(W::create(&workload_options, config.index_kind(), &engine));
        if let Some(RunLog::Files(files)) = &mut log {
            files.begin(&engine, log_options.epoch_ms)?;
        }
        let backoff = Backoff::new(retry_options, threads);
        let slots = (0..threads).map(|number| Slot {
            worker: engine.worker().expect("fewer threads than workers"),
            client: workload.client(number, threads, config.seed),
            input: W::Input::default(),
            retry: backoff.retry(number, config.seed.wrapping_add(number as u64)),
            drawn: 0,
            logs: log.is_some(),
            waiting: VecDeque::new(),
        });
        let slots = slots.collect();
        let workload_options = values(&workload_options);
        Ok(World { slots, engine, workload, purpose, protocol_options: all_options, workload_options, log })
    }
}

impl<P: Control<M>, W: Workload<M>, M: Machine> Slot<P, W, M> {
    /// Runs transactions until it is over, or until as many as `share` have committed; or the reason of an abort that will not go away.
    #[inline(always)]
    pub(crate) fn work(
        &mut self,
        workload: &W,
        share: u64,
        tally: &RefCell<Tally>,
        over: impl Fn() -> bool,
        mut execute: impl FnMut(&W, &mut Transaction<'_, P, M>, &mut W::Client, &W::Input) -> Result<(), Abort>,
    ) -> Result<(), AbortReason> {
        let Slot { worker, client, input, retry, drawn, logs, waiting } = self;
        let nanoseconds = 1e9 / M::cycles_per_second();
        let end = worker.commits().saturating_add(share);
        while !over() && worker.commits() < end {
            M::work(INSTRUCTIONS_AROUND);
            workload.next(client, input);
            *drawn += 1;
            let timed = drawn.is_multiple_of(TIMED_EVERY);
            let start = if timed { M::now() } else { 0 };
            let kind = workload.kind(input);
            loop {
                let declare = |declaration: &mut _| workload.declare(input, declaration);
                let Err(abort) = worker.run_declared(declare, |tx| execute(workload, tx, client, input)) else {
                    workload.committed(client, input);
                    let tally = &mut *tally.borrow_mut();
                    tally.kinds[kind].commits += 1;
                    M::take_times(&mut tally.useful);
                    break;
                };
                tally.borrow_mut().kinds[kind].aborts.add(abort.reason);
                // All others wait for a transaction that is protected.
                if abort.reason.is_conflict() && !over() && !worker.is_protected() {
                    retry.aborted();
                }
                M::take_times(&mut tally.borrow_mut().aborted);
                match abort.reason {
                    AbortReason::User => break,
                    reason if !reason.is_conflict() => return Err(reason),
                    _ if over() => return Ok(()),
                    _ => {}
                }
            }
            retry.done();
            if timed {
                let taken = (M::now().wrapping_sub(start) as f64 * nanoseconds) as u64;
                tally.borrow_mut().kinds[kind].latencies.saturating_record(taken.max(1));
                if *logs {
                    waiting.push_back((worker.ticket(), start));
                    let now = M::now();
                    while let Some(&(_, start)) = waiting.front().filter(|(ticket, _)| worker.is_durable(*ticket)) {
                        waiting.pop_front();
                        let taken = (now.wrapping_sub(start) as f64 * nanoseconds) as u64;
                        tally.borrow_mut().durable.saturating_record(taken.max(1));
                    }
                }
            }
        }
        Ok(())
    }
}

impl<P: Control<D::Machine>, W: Workload<D::Machine>, D: Driver<P, W>> Bed for TypedBed<P, W, D> {
    fn info(&self) -> Info {
        self.world.engine.protocol().info()
    }

    fn protocol_options(&self) -> BTreeMap<String, String> {
        self.world.protocol_options.clone()
    }

    fn workload_options(&self) -> BTreeMap<String, String> {
        self.world.workload_options.clone()
    }

    fn kinds(&self) -> &'static [&'static str] {
        W::KINDS
    }

    fn load_units(&self) -> u64 {
        self.world.workload.load_units()
    }

    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), LabError> {
        self.driver.load(&self.world, stop, advance)?;
        let Some(log) = &self.world.log else { return Ok(()) };
        // What a run rests on is durable before it begins: else a disk that has no room even for that is met in the midst of it, and nothing is left,
        // and what the loaders have in their buffers is written in the first window.
        log.bytes_up_to(self.world.engine.epochs().current()).map_err(|error| {
            let protocol = self.world.engine.protocol().info().name;
            LabError::BadInput(format!("the rows that {protocol} begins with can't be made durable: {error}"))
        })?;
        Ok(())
    }

    fn run(&mut self, span: Span, stop: &Stop, tick: &dyn Fn(f64)) -> Result<Count, LabError> {
        // What waited at the end of the last window has waited for the time between, too.
        self.world.slots.iter_mut().for_each(|slot| slot.waiting.clear());
        let before = self.world.log.as_ref().map(RunLog::bytes);
        let mut count = self.driver.run(&mut self.world, span, stop, tick)?;
        if let (Some(log), Some(before)) = (&self.world.log, before) {
            let last = self.world.slots.iter().map(|slot| slot.worker.committed_in()).max();
            count.log_bytes = Some(log.bytes_up_to(last.unwrap_or(0))? - before);
        }
        Ok(count)
    }

    fn settle(&mut self) -> Result<(), LabError> {
        self.driver.settle(&mut self.world)
    }

    fn bytes(&self) -> u64 {
        self.world.engine.bytes()
    }

    fn versions(&self) -> VersionCounts {
        let mut sum = VersionCounts::default();
        self.world.slots.iter().for_each(|slot| sum.merge(slot.worker.versions()));
        sum
    }

    fn tombstones(&self) -> u64 {
        self.world.slots.iter().map(|slot| slot.worker.tombstones() as u64).sum()
    }

    fn version_chains(&self) -> Vec<u64> {
        self.world.engine.version_chains()
    }

    fn check(&self) -> Result<Checked, Violation> {
        let clients: Vec<&W::Client> = self.world.slots.iter().map(|slot| &slot.client).collect();
        self.world.workload.check(&self.world.engine, &clients)
    }

    fn take_history(&mut self) -> Recorded {
        let committed = self.world.slots.iter_mut().flat_map(|slot| slot.worker.take_history()).collect();
        recorded(&self.world.engine, committed)
    }
}

/// What becomes of an abort that will not go away.
pub(super) fn stuck(protocol: Info, reason: AbortReason) -> LabError {
    LabError::BadInput(format!("{} could not go on: transactions abort by {reason}", protocol.name))
}

/// What becomes of tables that did not fit.
pub(super) fn not_loaded(protocol: Info, error: &contend_engine::OutOfMemory) -> LabError {
    LabError::BadInput(format!("loading the tables of {}: {error}; fewer or shorter records need less", protocol.name))
}
