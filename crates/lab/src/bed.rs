//! A test bed: one protocol's engine with one workload's tables, and the threads that run on it.
//!
//! What depends on protocol and workload is generic and lives here; all else sees a [`Bed`].

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contend_engine::abort::AbortCounts;
use contend_engine::{AbortReason, Engine, EngineConfig, EngineOptions, Info, Protocol, Transaction, Worker};
use contend_machine::{Machine, Native, Ordering, available_cores, pin_to_core};
use contend_protocols::method::{Backoff, Retry, RetryOptions};
use contend_protocols::{ProtocolVisitor, with_protocol};
use contend_workloads::{Checked, Violation, Workload, WorkloadInfo, WorkloadVisitor, with_workload};
use hdrhistogram::Histogram;

use crate::config::{Entrant, LabError, RunConfig, options, values};
use crate::memory::is_short;
use crate::recording::{Recorded, recorded};
use crate::start::Start;
use crate::verify::{Interleaved, interleaving_seed};
use crate::watch::Stop;

/// One transaction in so many is timed: reading the clock twice costs about 20 ns, which would be felt.
const TIMED_EVERY: u64 = 16;
/// Latencies up to a minute are told apart, to three digits.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// How often a waiting main thread looks whether it was asked to stop.
const SLICE: Duration = Duration::from_millis(10);
/// In how many of these slices it looks once whether memory is left: tables may grow.
const MEMORY_EVERY: u32 = 10;

type Word = <Native as Machine>::U64;

/// For what a bed is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To measure.
    Measure,
    /// To measure, with a history.
    Record,
    /// To prove right: small, with a history, and with pauses inside of transactions.
    Verify,
}

/// How long a bed runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) length: Duration,
    /// The most transactions that may commit, if there is a limit.
    pub(crate) transactions_max: Option<u64>,
}

/// What happened in a span.
#[derive(Clone, Debug, Default)]
pub(crate) struct Count {
    pub(crate) seconds: f64,
    pub(crate) commits: u64,
    pub(crate) aborts: AbortCounts,
    /// The same by type of transaction, in the workload's order.
    pub(crate) kinds: Vec<KindCount>,
}

/// What happened to transactions of one type.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct KindCount {
    pub(crate) commits: u64,
    pub(crate) aborts: AbortCounts,
}

impl Count {
    /// Adds what happened to transactions of each type.
    pub(crate) fn add(&mut self, kinds: &[KindCount]) {
        self.kinds.resize_with(kinds.len().max(self.kinds.len()), KindCount::default);
        for (sum, kind) in self.kinds.iter_mut().zip(kinds) {
            sum.commits += kind.commits;
            sum.aborts.merge(&kind.aborts);
            self.commits += kind.commits;
            self.aborts.merge(&kind.aborts);
        }
    }
}

/// A loaded or loadable test bed.
pub(crate) trait Bed {
    /// The protocol.
    fn info(&self) -> Info;
    /// The values of the protocol's options, the engine's, and those of trying again.
    fn protocol_options(&self) -> BTreeMap<String, String>;
    /// The values of the workload's options.
    fn workload_options(&self) -> BTreeMap<String, String>;
    /// How many units loading has.
    fn load_units(&self) -> u64;
    /// Loads by as many threads as will run. Stops early if asked to.
    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), LabError>;
    /// Runs for a span. `tick` is called now and then with the milliseconds since the last call.
    fn run(&mut self, span: Span, stop: &Stop, tick: &dyn Fn(u64)) -> Result<Count, LabError>;
    /// Forgets the latencies so far.
    fn reset_latencies(&mut self);
    /// Latencies in nanoseconds by type of transaction, all threads together.
    fn latencies(&self) -> Vec<(&'static str, Histogram<u64>)>;
    /// Bytes of tables and indexes.
    fn bytes(&self) -> u64;
    /// The workload's own check.
    fn check(&self) -> Result<Checked, Violation>;
    /// What was recorded since the last call.
    fn take_history(&mut self) -> Recorded;
}

/// A bed for this entrant of this validated configuration.
pub(crate) fn bed(config: &RunConfig, entrant: &Entrant, purpose: Purpose) -> Result<Box<dyn Bed>, LabError> {
    let make = OfWorkload { config, entrant, purpose };
    with_workload::<Native, _>(&config.workload, make).expect("the configuration is validated")
}

struct OfWorkload<'a> {
    config: &'a RunConfig,
    entrant: &'a Entrant,
    purpose: Purpose,
}

impl WorkloadVisitor<Native> for OfWorkload<'_> {
    type Output = Result<Box<dyn Bed>, LabError>;

    fn visit<W: Workload<Native>>(self, info: WorkloadInfo) -> Self::Output {
        let mut workload_options = options::<W::Options>(info.preset, &self.entrant.settings)?;
        if self.purpose == Purpose::Verify {
            workload_options = W::for_verification(&workload_options);
        }
        let make = OfProtocol::<W> {
            config: self.config,
            settings: &self.entrant.settings,
            workload_options,
            purpose: self.purpose,
        };
        with_protocol::<Native, _>(&self.entrant.protocol, make).expect("the configuration is validated")
    }
}

struct OfProtocol<'a, W: Workload<Native>> {
    config: &'a RunConfig,
    settings: &'a BTreeMap<String, String>,
    workload_options: W::Options,
    purpose: Purpose,
}

impl<W: Workload<Native>> ProtocolVisitor<Native> for OfProtocol<'_, W> {
    type Output = Result<Box<dyn Bed>, LabError>;

    fn visit<P: Protocol<Native>>(self) -> Self::Output {
        Ok(Box::new(TypedBed::<P, W>::new(self.config, self.settings, self.workload_options, self.purpose)?))
    }
}

/// A bed, by its types.
pub(crate) struct TypedBed<P: Protocol<Native>, W: Workload<Native>> {
    engine: Arc<Engine<P, Native>>,
    workload: W,
    slots: Vec<Slot<P, W>>,
    purpose: Purpose,
    protocol_options: BTreeMap<String, String>,
    workload_options: BTreeMap<String, String>,
}

/// What one thread runs with, from window to window.
struct Slot<P: Protocol<Native>, W: Workload<Native>> {
    worker: Worker<P, Native>,
    client: W::Client,
    input: W::Input,
    retry: Retry<Native>,
    latencies: Vec<Histogram<u64>>,
    /// What happened since the span began, by type of transaction.
    kinds: Vec<KindCount>,
    drawn: u64,
}

impl<P: Protocol<Native>, W: Workload<Native>> TypedBed<P, W> {
    pub(crate) fn new(
        config: &RunConfig,
        settings: &BTreeMap<String, String>,
        workload_options: W::Options,
        purpose: Purpose,
    ) -> Result<Self, LabError> {
        let protocol_options = options::<P::Options>(&[], settings)?;
        let retry_options = options::<RetryOptions>(&[], settings)?;
        let engine_options = options::<EngineOptions>(&[], settings)?;
        let mut all_options = values(&protocol_options);
        all_options.extend(values(&retry_options));
        all_options.extend(values(&engine_options));
        // Threads that share a core, so that transactions overlap there too.
        let threads = if purpose == Purpose::Verify { config.threads.max(4) } else { config.threads };
        let engine_config =
            EngineConfig { history: purpose != Purpose::Measure, options: engine_options, ..EngineConfig::default() };
        let engine = Engine::new(P::new(protocol_options), engine_config);
        let workload = W::create(&workload_options, config.index_kind(), &engine);
        let backoff = Backoff::new(retry_options, threads);
        let slots = (0..threads).map(|number| Slot {
            worker: engine.worker().expect("fewer threads than workers"),
            client: workload.client(number, threads, config.seed),
            input: W::Input::default(),
            retry: backoff.retry(number, config.seed.wrapping_add(number as u64)),
            latencies: W::KINDS.iter().map(|_| new_histogram()).collect(),
            kinds: vec![KindCount::default(); W::KINDS.len()],
            drawn: 0,
        });
        let slots = slots.collect();
        let workload_options = values(&workload_options);
        Ok(TypedBed { slots, engine, workload, purpose, protocol_options: all_options, workload_options })
    }
}

fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("valid bounds")
}

impl<P: Protocol<Native>, W: Workload<Native>> Bed for TypedBed<P, W> {
    fn info(&self) -> Info {
        P::INFO
    }

    fn protocol_options(&self) -> BTreeMap<String, String> {
        self.protocol_options.clone()
    }

    fn workload_options(&self) -> BTreeMap<String, String> {
        self.workload_options.clone()
    }

    fn load_units(&self) -> u64 {
        self.workload.load_units()
    }

    fn load(&mut self, stop: &Stop, advance: &(dyn Fn(u64) + Sync)) -> Result<(), LabError> {
        let parts = available_cores().len().min(self.slots.len());
        let results: Vec<Result<(), contend_engine::OutOfMemory>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..parts)
                .map(|part| {
                    let (engine, workload) = (&self.engine, &self.workload);
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
        results.into_iter().collect::<Result<(), _>>().map_err(|error| {
            LabError::BadInput(format!(
                "loading the tables of {}: {error}; fewer or shorter records need less",
                P::INFO.name
            ))
        })
    }

    fn run(&mut self, span: Span, stop: &Stop, tick: &dyn Fn(u64)) -> Result<Count, LabError> {
        let cores = available_cores();
        let (over, running) = (Word::new(0), Word::new(self.slots.len() as u64));
        let (start_line, threads_count) = (Start::new(), self.slots.len());
        let shares = span.transactions_max.map(|max| max.div_ceil(self.slots.len() as u64));
        let (workload, purpose) = (&self.workload, self.purpose);
        let (over, running, start_line) = (&over, &running, &start_line);
        let (seconds, outcomes) = std::thread::scope(|scope| {
            let threads: Vec<_> = self
                .slots
                .iter_mut()
                .zip(cores.iter().cycle())
                .map(|(slot, &core)| {
                    scope.spawn(move || {
                        // A core that can't be had is no reason not to measure.
                        let _ = pin_to_core(core);
                        start_line.wait();
                        let outcome = slot.work(workload, over, shares, purpose);
                        slot.worker.go_offline();
                        // Relaxed: the threads are joined before anything else is read.
                        running.fetch_sub(1, Ordering::Relaxed);
                        outcome
                    })
                })
                .collect();
            start_line.release(threads_count);
            let start = Instant::now();
            let (mut last_tick, mut slices) = (Duration::ZERO, 0u32);
            // Relaxed, here and below: hints to end.
            while start.elapsed() < span.length && !stop.is_requested() && running.load(Ordering::Relaxed) > 0 {
                std::thread::sleep(SLICE.min(span.length.saturating_sub(start.elapsed())));
                slices += 1;
                if slices % MEMORY_EVERY == 0 && is_short() {
                    stop.request_for_memory();
                }
                let elapsed = start.elapsed();
                tick((elapsed - last_tick).as_millis() as u64);
                last_tick = elapsed;
            }
            over.store(1, Ordering::Relaxed);
            let seconds = start.elapsed().as_secs_f64();
            let outcomes: Vec<_> =
                threads.into_iter().map(|thread| thread.join().expect("a transaction does not panic")).collect();
            (seconds, outcomes)
        });
        let mut count = Count { seconds, ..Count::default() };
        for outcome in outcomes {
            outcome.map_err(|reason| {
                LabError::BadInput(format!("{} could not go on: transactions abort by {reason}", P::INFO.name))
            })?;
        }
        for slot in &self.slots {
            count.add(&slot.kinds);
        }
        Ok(count)
    }

    fn reset_latencies(&mut self) {
        self.slots.iter_mut().flat_map(|slot| &mut slot.latencies).for_each(Histogram::reset);
    }

    fn latencies(&self) -> Vec<(&'static str, Histogram<u64>)> {
        let merged = |kind: usize| {
            let mut all = new_histogram();
            for slot in &self.slots {
                all.add(&slot.latencies[kind]).expect("histograms of equal bounds");
            }
            all
        };
        W::KINDS.iter().enumerate().map(|(kind, &name)| (name, merged(kind))).collect()
    }

    fn bytes(&self) -> u64 {
        self.engine.bytes()
    }

    fn check(&self) -> Result<Checked, Violation> {
        let clients: Vec<&W::Client> = self.slots.iter().map(|slot| &slot.client).collect();
        self.workload.check(&self.engine, &clients)
    }

    fn take_history(&mut self) -> Recorded {
        let committed = self.slots.iter_mut().flat_map(|slot| slot.worker.take_history()).collect();
        recorded(&self.engine, committed)
    }
}

impl<P: Protocol<Native>, W: Workload<Native>> Slot<P, W> {
    /// Runs transactions until told that it is over, or until its share has committed, and counts them anew; or the reason of an abort
    /// that will not go away.
    fn work(&mut self, workload: &W, over: &Word, share: Option<u64>, purpose: Purpose) -> Result<(), AbortReason> {
        self.kinds.fill(KindCount::default());
        let share = share.unwrap_or(u64::MAX);
        match purpose {
            Purpose::Verify => {
                let mut pauses = interleaving_seed(self.worker.number());
                self.work_with(workload, over, share, |workload, tx, client, input| {
                    workload.execute(&mut Interleaved::new(tx, &mut pauses), client, input)
                })
            }
            Purpose::Measure | Purpose::Record => {
                self.work_with(workload, over, share, |workload, tx, client, input| workload.execute(tx, client, input))
            }
        }
    }

    #[inline(always)]
    fn work_with(
        &mut self,
        workload: &W,
        over: &Word,
        share: u64,
        mut execute: impl FnMut(
            &W,
            &mut Transaction<'_, P, Native>,
            &mut W::Client,
            &W::Input,
        ) -> Result<(), contend_engine::Abort>,
    ) -> Result<(), AbortReason> {
        let Slot { worker, client, input, retry, latencies, kinds, drawn } = self;
        let nanoseconds = 1e9 / Native::cycles_per_second();
        let end = worker.commits().saturating_add(share);
        // Relaxed: a hint to end.
        while over.load(Ordering::Relaxed) == 0 && worker.commits() < end {
            workload.next(client, input);
            *drawn += 1;
            let timed = drawn.is_multiple_of(TIMED_EVERY);
            let start = if timed { Native::now() } else { 0 };
            let kind = workload.kind(input);
            loop {
                let Err(abort) = worker.run(|tx| execute(workload, tx, client, input)) else {
                    workload.committed(client, input);
                    kinds[kind].commits += 1;
                    break;
                };
                kinds[kind].aborts.add(abort.reason);
                match abort.reason {
                    AbortReason::User => break,
                    reason if !reason.is_conflict() => return Err(reason),
                    _ if over.load(Ordering::Relaxed) != 0 => return Ok(()),
                    _ => retry.aborted(),
                }
            }
            retry.done();
            if timed {
                let taken = (Native::now().wrapping_sub(start) as f64 * nanoseconds) as u64;
                latencies[kind].saturating_record(taken.max(1));
            }
        }
        Ok(())
    }
}
