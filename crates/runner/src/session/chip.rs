//! Workers are cores of a simulated chip.
//!
//! One simulation goes through all intervals. At the end of an interval the cores stop where they
//! are, in the middle of their transactions, and continue in the next one. So the end of an
//! interval changes nothing on the chip.

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contend_engine::{EngineConfig, Protocol};
use contend_machine::Machine;
use contend_model::pieces::Checked;
use contend_sim::{Chip, ChipOptions, Simulated};
use contend_workloads::Workload;

use super::epoch_lag::EpochLag;
use super::loaded_engine::{GivenUp, LoadedEngine, WorkerSlot, epochs_now, not_loaded, stuck};
use super::schedule::{Schedule, await_start};
use super::yielding::{Between, with_between};
use super::{ArrivalCount, Driver, Interval, IntervalResult, RunPurpose, Simulation, Tally};
use crate::error::RunError;
use crate::machine::ChipConfig;
use crate::memory::is_short;
use crate::plan::RunPlan;
use crate::progress::Stop;

/// Simulated cycles between two checks whether to stop.
const SLICE_CYCLES: u64 = 10_000;
/// The time between two checks of the free memory, by the host's clock: tables may grow.
const MEMORY_EVERY: Duration = Duration::from_millis(100);
/// The longest time of a verification, by the host's clock. A longer one ends with what it has.
const VERIFY_MAX: Duration = Duration::from_secs(10);

/// The driver; see the module.
pub(crate) struct OnChip<P: Protocol<Simulated>, W: Workload> {
    // The chip comes first: its cores must be dropped before the data that they borrow.
    chip: Option<Box<Chip>>,
    config: ChipConfig,
    shared: Rc<Shared<P, W>>,
    /// The end of the last interval, in cycles.
    time: u64,
    lag: EpochLag,
}

/// A worker that has ended, with its number.
type Ended<P, W> = (usize, WorkerSlot<P, W, Simulated>);

/// The data that the cores share with the driver.
struct Shared<P: Protocol<Simulated>, W: Workload> {
    over: Cell<bool>,
    tally: RefCell<Tally>,
    /// Workers that have ended, by number.
    ended: RefCell<Vec<Ended<P, W>>>,
    stuck: RefCell<Option<GivenUp>>,
    /// The workers' schedules, by number. Here the driver can count their starts.
    schedules: Vec<RefCell<Option<Schedule>>>,
}

impl<P: Protocol<Simulated>, W: Workload> Shared<P, W> {
    /// Returns the starts since the last call, at this time of the chip. `None` in a closed loop.
    fn count_arrivals(&self, time: u64) -> Option<ArrivalCount> {
        let count = |schedule: &RefCell<Option<Schedule>>| Some(schedule.borrow_mut().as_mut()?.count(time));
        ArrivalCount::sum(self.schedules.iter().filter_map(count))
    }
}

impl<P: Protocol<Simulated>, W: Workload> OnChip<P, W> {
    /// Builds the chip, and places the workers on it.
    fn start(&mut self, loaded: &mut LoadedEngine<P, W, Simulated>, share: u64) -> Result<Box<Chip>, RunError> {
        let no_room = |error: contend_sim::ChipError| RunError::OutOfMemory(error.to_string());
        let options = ChipOptions { contexts: loaded.slots.len() / loaded.threads, ..self.config.options };
        let mut chip = Chip::new(&self.config.preset, loaded.threads, options).map_err(no_room)?;
        for (number, mut slot) in loaded.slots.drain(..).enumerate() {
            let (workload, shared) = (Arc::clone(&loaded.workload), Rc::clone(&self.shared));
            let mut between = match loaded.purpose {
                RunPurpose::Verify | RunPurpose::Repeat => Between::Nothing,
                RunPurpose::Measure | RunPurpose::Record => Between::round_trips::<Simulated>(slot.round_trip_us),
            };
            chip.spawn(move || {
                let over = || shared.over.get();
                // The checker allows everything, unless the session verifies.
                let outcome = slot.work(
                    &workload,
                    share,
                    &shared.tally,
                    |worker, waiting| {
                        // Transactions that never await anything must not keep the core to
                        // themselves.
                        Simulated::await_prefetched();
                        await_start(&shared.schedules[number], (worker, waiting), &shared.tally, SLICE_CYCLES, over)
                    },
                    over,
                    |workload, tx, client, input, checker| {
                        let mut before = with_between::<_, Simulated>(tx, &mut between);
                        workload.execute(&mut Checked::new(&mut before, checker, workload.kind(input)), client, input)
                    },
                );
                if let Err(given_up) = outcome {
                    shared.stuck.replace(Some(given_up));
                }
                slot.worker.go_offline();
                shared.ended.borrow_mut().push((number, slot));
            });
        }
        Ok(chip)
    }

    fn check_stuck(&self, loaded: &LoadedEngine<P, W, Simulated>) -> Result<(), RunError> {
        let given_up = self.shared.stuck.borrow().clone();
        given_up.map_or(Ok(()), |given_up| Err(stuck(loaded.engine.protocol().info(), given_up)))
    }
}

impl<P: Protocol<Simulated>, W: Workload> Driver<P, W> for OnChip<P, W> {
    type Machine = Simulated;

    fn new(plan: &RunPlan, _: RunPurpose) -> Self {
        let shared = Shared {
            over: Cell::new(false),
            tally: RefCell::new(Tally::new(0)),
            ended: RefCell::new(Vec::new()),
            stuck: RefCell::new(None),
            schedules: (0..EngineConfig::WORKERS_MAX).map(|_| RefCell::new(None)).collect(),
        };
        let config = plan.chip.clone().expect("a session on a chip is made of a plan with a chip");
        // The engine converts times to cycles by the clock of this chip.
        config.preset.set_clock();
        OnChip { chip: None, config, shared: Rc::new(shared), time: 0, lag: EpochLag::default() }
    }

    fn load(
        &mut self,
        loaded: &LoadedEngine<P, W, Simulated>,
        stop: &Stop,
        advance: &(dyn Fn(u64) + Sync),
    ) -> Result<(), RunError> {
        let mut loader = loaded.engine.loader().expect("more workers than threads");
        let mut done = |units| {
            advance(units);
            if stop.is_requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        let outcome = loaded.workload.load(&mut loader, 0, 1, &mut done);
        outcome.map_err(|error| not_loaded(loaded.engine.protocol().info(), &error))
    }

    fn run(
        &mut self,
        loaded: &mut LoadedEngine<P, W, Simulated>,
        interval: Interval,
        stop: &Stop,
        tick: &dyn Fn(f64),
    ) -> Result<IntervalResult, RunError> {
        let kinds = loaded.workload.kinds().len();
        if self.chip.is_none() {
            self.shared.tally.replace(Tally::new(kinds));
            let share = interval.transactions_max.map_or(u64::MAX, |max| max.div_ceil(loaded.slots.len() as u64));
            self.chip = Some(self.start(loaded, share)?);
        }
        let chip = self.chip.as_mut().expect("just started");
        let started = Instant::now();
        let hertz = self.config.preset.core.hertz;
        let (begin, length) = (self.time, (interval.length.as_secs_f64() * hertz) as u64);
        let mut looked = started;
        while self.time < begin + length {
            let end = (self.time + SLICE_CYCLES).min(begin + length);
            let alive = chip.run_until(end);
            tick((end - self.time) as f64 / length as f64);
            self.time = end;
            let (current, unsettled) = epochs_now(&loaded.engine, &loaded.log);
            self.lag.look(current, unsettled, end as f64 / hertz);
            if looked.elapsed() >= MEMORY_EVERY {
                looked = Instant::now();
                if is_short() {
                    stop.request_for_memory();
                }
            }
            // A verification that takes too long ends with the transactions it has.
            let enough = loaded.purpose == RunPurpose::Verify && started.elapsed() >= VERIFY_MAX;
            if stop.is_requested() || !alive || enough {
                break;
            }
        }
        let mut tally = self.shared.tally.replace(Tally::new(kinds));
        // The time of unfinished transactions belongs to this window as far as they have come.
        chip.take_all_times(self.time, &mut tally.useful);
        let simulation = Simulation {
            statistics: chip.take_statistics(),
            trace_hash: chip.trace_hash(),
            host_seconds: started.elapsed().as_secs_f64(),
        };
        self.check_stuck(loaded)?;
        Ok(IntervalResult {
            seconds: (self.time - begin) as f64 / hertz,
            tally,
            simulation: Some(simulation),
            log_bytes: None,
            arrivals: self.shared.count_arrivals(self.time),
            epoch_lag_seconds: self.lag.take(),
        })
    }

    fn pace(&mut self, _: &mut LoadedEngine<P, W, Simulated>, schedules: Vec<Option<Schedule>>) {
        for (place, mut schedule) in self.shared.schedules.iter().zip(schedules) {
            if let Some(schedule) = &mut schedule {
                schedule.resume(self.time);
            }
            place.replace(schedule);
        }
    }

    fn settle(&mut self, loaded: &mut LoadedEngine<P, W, Simulated>) -> Result<(), RunError> {
        let Some(mut chip) = self.chip.take() else { return Ok(()) };
        self.shared.over.set(true);
        while chip.run_until(u64::MAX / 4) {}
        let mut ended = self.shared.ended.take();
        ended.sort_by_key(|(number, _)| *number);
        loaded.slots = ended.into_iter().map(|(_, slot)| slot).collect();
        self.check_stuck(loaded)
    }
}
