//! A test: the lives of a database, each ended by a crash, and the checks after each.

use contend_model::counted;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::history::Committed;
use contend_engine::{Engine, EngineConfig, Isolation, OutOfMemory};
use contend_judge::verify_history;
use contend_log::faulty::{self, FaultyDisk, Plan};
use contend_log::{Log, LogConfig, LogError, LogSinks, Recovered};
use contend_model::random::SplitMix64;
use contend_runner::RunError;
use contend_runner::durable::schema_of;
use contend_runner::session::declare_types;
use contend_sim::Simulated;
use contend_sim::explorer::{Explorer, Random, Strategy};
use contend_workloads::Workload;

use super::cores::{self, ErasedEngine, Finished, Moment, Shared, Transactions};
use super::explain::{Cells, Past, found_rows};
use super::habits::Habits;
use super::{CrashConfig, Crashed, Tests};
use crate::explore::Factory;

/// The transactions of each core in a life that is sure to reach the crash of [`Plan::random`]. In
/// a longer life the crash comes later in proportion.
const SHORT: u64 = 8;

/// The tests of a protocol with a commit protocol on a workload.
pub(super) struct Test<'a, W: Workload> {
    pub(super) tests: Tests<'a>,
    pub(super) factory: Factory,
    pub(super) explorer: Explorer,
    pub(super) workload_options: W::Options,
}

/// Why a test ends early.
enum End {
    /// Something is wrong, in words.
    Wrong(String),
    /// The test can't go on.
    Error(RunError),
}

impl<E: Into<RunError>> From<E> for End {
    fn from(error: E) -> Self {
        End::Error(error.into())
    }
}

/// What one life of a database starts from.
struct Life<'a> {
    disk: &'a FaultyDisk,
    /// Its number, from 0: the crashes before it.
    number: u64,
    seed: u64,
    habits: Habits,
}

/// A database that is open.
struct Database<W: Workload> {
    log: Arc<Log>,
    engine: Arc<ErasedEngine>,
    workload: Arc<W>,
}

/// The transactions of a life.
struct Lived {
    committed: Vec<Committed>,
    /// The transactions among them that the log has acknowledged.
    acknowledged: BTreeSet<u64>,
    moments: Vec<Moment>,
}

impl<W: Workload> Test<'_, W> {
    /// Runs the test of a seed, and adds it to `crashed`. Returns what is wrong, if anything is.
    ///
    /// # Errors
    /// The test can't go on.
    pub(super) fn crash(&mut self, seed: u64, crashed: &mut Crashed) -> Result<Result<(), String>, RunError> {
        let habits =
            Habits::draw::<W>(seed, self.tests.index, &self.tests.combination.protocol, &self.workload_options);
        let (mut disk, mut past) = (FaultyDisk::new(Plan::default()), Past::default());
        for number in 0..self.tests.config.crashes {
            // The seeds of the lives are far apart, so that no life repeats one of another test.
            let seed = seed.wrapping_add(number << 32);
            match self.live(&disk, number, seed, &habits, &mut past, crashed) {
                Ok(Some(after)) => disk = after,
                // The history of a life that was cut off is not complete, and can't be checked.
                Ok(None) => return Ok(Ok(())),
                Err(End::Wrong(wrong)) if number == 0 => return Ok(Err(wrong)),
                Err(End::Wrong(wrong)) => return Ok(Err(format!("after {}: {wrong}", counted(number, "crash")))),
                Err(End::Error(error)) => return Err(error),
            }
        }
        Ok(Ok(()))
    }

    /// Opens the database on a disk, runs transactions up to the next crash, and checks what a
    /// recovery finds. Returns the disk after the crash; `None` if the life was cut off.
    fn live(
        &mut self,
        disk: &FaultyDisk,
        number: u64,
        seed: u64,
        habits: &Habits,
        past: &mut Past,
        crashed: &mut Crashed,
    ) -> Result<Option<FaultyDisk>, End> {
        let mut random = SplitMix64::new(seed);
        let life = Life { disk, number, seed, habits: habits.of_life(&mut random) };
        let database = self.open_database(&life, past)?;
        self.let_disk_fail(&life, &mut random);
        let Some(lived) = self.run_cores(&life, &database, &mut random, crashed)? else {
            crashed.cut += 1;
            return Ok(None);
        };
        let Database { engine, .. } = &database;
        let Lived { committed, acknowledged, moments } = lived;
        crashed.commits += committed.len() as u64;
        crashed.acknowledged += acknowledged.len() as u64;
        for moment in moments {
            crashed.moments += 1;
            self.check_moment(&moment, engine, past, &committed)?;
        }
        let after = disk.after_crash(Plan::default());
        let found = self.recover(&after, engine, seed).map_err(End::Wrong)?;
        let there = past.explain(committed, &acknowledged, found).map_err(End::Wrong)?;
        crashed.others += (there - acknowledged.len()) as u64;
        if number + 1 == self.tests.config.crashes {
            self.check_history(engine, past, crashed)?;
        }
        Ok(Some(after))
    }

    fn open(&self, disk: &FaultyDisk) -> Result<(Arc<Log>, Recovered), LogError> {
        // The files are short, and the buffers small enough to overflow.
        let config = LogConfig {
            workers: self.tests.config.cores + 2,
            segment_bytes: 4 << 10,
            buffer_bytes: 1 << 10,
            threads: 1,
            commit: self.tests.combination.commit,
            checks_order: true,
            fault: self.tests.config.fault,
            ..LogConfig::default()
        };
        Log::open(Arc::new(disk.clone()), config)
    }

    /// Opens the log and an engine with its rows. In the first life the workload's rows are loaded.
    fn open_database(&self, life: &Life<'_>, past: &mut Past) -> Result<Database<W>, End> {
        let (log, recovered) =
            self.open(life.disk).map_err(|error| wrong("the log can't be opened to go on", &error))?;
        let engine_config = EngineConfig {
            workers_max: self.tests.config.cores + 2,
            epoch_ms: u64::MAX,
            history: true,
            partitions: W::declares(&self.workload_options).partitions.unwrap_or(1),
            options: life.habits.engine.clone(),
            fault: None,
        };
        let sinks = LogSinks::new(&log) as Arc<dyn CommitSinks<Simulated>>;
        let engine: Arc<ErasedEngine> = Engine::with_commit_sinks((self.factory)(), engine_config, Some(sinks));
        engine.epochs().begin_at(log.first_epoch());
        let workload = Arc::new(W::create(&self.workload_options, life.habits.index, &engine));
        declare_types(&engine, &*workload)?;
        for (number, shape) in (0..).zip(engine.shapes()) {
            log.bind(number, &schema_of(shape))?;
        }
        let database = Database { log, engine, workload };
        if life.number == 0 {
            self.load(&database, life.disk, past)?;
        } else {
            self.reload(&database, &recovered)?;
        }
        Ok(database)
    }

    /// Loads the workload's rows, makes them durable, and notes them as the past.
    fn load(&self, database: &Database<W>, disk: &FaultyDisk, past: &mut Past) -> Result<(), End> {
        let Database { log, engine, workload } = database;
        let mut loader = engine.loader().expect("room for it");
        workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).map_err(out_of_memory)?;
        drop(loader);
        workload.check_loaded(engine).map_err(RunError::BadInput)?;
        engine.epochs().try_advance();
        log.flush(engine.epochs().oldest() - 1)?;
        let opened = self.open(&disk.after_crash(Plan::default()));
        let (_, recovered) = opened.map_err(|error| wrong("the log can't be opened after loading", &error))?;
        past.rows = found_rows(engine, &recovered);
        Ok(())
    }

    /// Adds the recovered rows to the engine, and runs the workload's check on them.
    fn reload(&self, database: &Database<W>, recovered: &Recovered) -> Result<(), End> {
        let Database { engine, workload, .. } = database;
        let mut loader = engine.reloader().expect("room for it");
        for table in &recovered.tables {
            for (key, row) in table.rows() {
                // The tables are bound in the order of their numbers, so the numbers are the same.
                loader.insert_words(table.number, &key, row).map_err(out_of_memory)?;
            }
        }
        drop(loader);
        if self.isolation().keeps_invariants()
            && let Err(violation) = workload.check(engine, &[])
        {
            return Err(wrong("the workload's check failed", &violation));
        }
        Ok(())
    }

    /// Lets the disk fail from now on, by the plan of the life's seed.
    fn let_disk_fail(&self, life: &Life<'_>, random: &mut SplitMix64) {
        let mut plan = Plan::random(life.seed);
        let stretch = self.tests.config.transactions.div_ceil(SHORT).max(1);
        for at in [&mut plan.crash_at, &mut plan.write_fails_at, &mut plan.sync_fails_at].into_iter().flatten() {
            *at = *at * stretch + random.below(stretch);
        }
        // The files that are there already do not count, so each life has the same room.
        life.disk.fail(Plan { capacity: (plan.capacity - faulty::ROOM).saturating_add(life.disk.bytes()), ..plan });
    }

    /// Runs the cores of a life in an interleaving that its seed draws. Returns `None` if they were
    /// cut off.
    fn run_cores(
        &mut self,
        life: &Life<'_>,
        database: &Database<W>,
        random: &mut SplitMix64,
        crashed: &mut Crashed,
    ) -> Result<Option<Lived>, End> {
        let shared = Rc::new(Shared::default());
        let bodies = self.bodies(life, database, random, &shared);
        let mut strategy = Random::new(life.seed);
        strategy.begin(bodies.len());
        let execution = self.explorer.execute(bodies, &mut strategy, false);
        if let Some(reason) = shared.stuck.get() {
            let protocol = self.tests.combination.protocol.name.clone();
            return Err(RunError::Stuck { protocol, reason }.into());
        }
        if execution.cut {
            return Ok(None);
        }
        let Database { log, .. } = database;
        crashed.failures += u64::from(log.check().is_err());
        crashed.checkpoints += shared.checkpoints.get();
        let (mut committed, mut acknowledged): (Vec<Committed>, _) = (Vec::new(), shared.acknowledged.take());
        for Finished { mut worker, waiting } in shared.finished.take() {
            let durable = waiting.iter().filter(|ticket| ticket.is_durable(&mut worker, log));
            acknowledged.extend(durable.map(|ticket| ticket.txn));
            committed.extend(worker.take_history());
            // The crash comes before the worker ends: what its end writes is lost.
            life.disk.fail(Plan { crash_at: Some(0), ..Plan::default() });
        }
        Ok(Some(Lived { committed, acknowledged, moments: shared.moments.take() }))
    }

    /// Returns what the cores run: transactions on most of them, flushes and checkpoints on one,
    /// and epochs on another, if epochs also end without a flush.
    fn bodies(
        &self,
        life: &Life<'_>,
        database: &Database<W>,
        random: &mut SplitMix64,
        shared: &Rc<Shared>,
    ) -> Vec<Box<dyn FnOnce()>> {
        let CrashConfig { cores, crashes, transactions, .. } = *self.tests.config;
        let Database { log, engine, workload } = database;
        let Life { number, seed, .. } = *life;
        shared.running.set(cores);
        let mut bodies: Vec<Box<dyn FnOnce()>> = Vec::new();
        for core in 0..cores {
            let core = Transactions {
                count: transactions,
                habits: life.habits.clone(),
                random: SplitMix64::new(random.draw()),
                log: Arc::clone(log),
                worker: engine.worker().expect("room for it"),
                // Each life has clients of its own: the keys that are unique to a client of an
                // earlier life must not come again.
                client: workload.client(core + number as usize * cores, cores * crashes as usize, seed),
                workload: Arc::clone(workload),
            };
            let shared = Rc::clone(shared);
            bodies.push(Box::new(move || core.run(&shared)));
        }
        {
            let (log, engine, shared) = (Arc::clone(log), Arc::clone(engine), Rc::clone(shared));
            let (disk, habits, mut random) = (life.disk.clone(), life.habits.clone(), SplitMix64::new(random.draw()));
            bodies.push(Box::new(move || cores::flush(&engine, &log, &disk, &habits, &mut random, &shared)));
        }
        if let Some(pauses) = life.habits.epoch_pauses {
            let (engine, shared) = (Arc::clone(engine), Rc::clone(shared));
            bodies.push(Box::new(move || cores::advance(&engine, pauses, &shared)));
        }
        bodies
    }

    /// Checks what a crash between two flushes would have left.
    fn check_moment(
        &self,
        moment: &Moment,
        engine: &ErasedEngine,
        past: &Past,
        committed: &[Committed],
    ) -> Result<(), End> {
        let outcome = match self.open(&moment.disk) {
            Ok((_, recovered)) => past.explains(committed, &moment.acknowledged, &found_rows(engine, &recovered)),
            Err(error) => Err(format!("the log can't be opened: {error}")),
        };
        outcome.map_err(|error| wrong("after a crash between two flushes", &error))
    }

    /// Returns the rows on a disk after a crash. Three recoveries must find the same: one on a disk
    /// where another recovery has crashed, one, and one more after that.
    fn recover(&self, disk: &FaultyDisk, engine: &ErasedEngine, seed: u64) -> Result<Cells, String> {
        let open = |disk: &FaultyDisk, which: &str| match self.open(disk) {
            Ok((_, recovered)) => Ok(found_rows(engine, &recovered)),
            Err(error) => Err(format!("the log can't be opened {which}: {error}")),
        };
        let torn = disk.after_crash(Plan { capacity: u64::MAX, ..Plan::random(!seed) });
        // This recovery may succeed before the disk fails.
        let _ = self.open(&torn);
        let after_torn = open(&torn.after_crash(Plan::default()), "after a recovery that crashed")?;
        let found = open(disk, "after the crash")?;
        let again = open(&disk.after_crash(Plan::default()), "a second time")?;
        match () {
            () if again != found => Err("a second recovery finds other rows".into()),
            () if after_torn != found => Err("a recovery after one that crashed finds other rows".into()),
            () => Ok(found),
        }
    }

    /// Checks the history of all transactions that are there, if it is known exactly.
    fn check_history(&self, engine: &ErasedEngine, past: &mut Past, crashed: &mut Crashed) -> Result<(), End> {
        let Some(recorded) = past.recorded(engine) else { return Ok(()) };
        crashed.checked += 1;
        let verification = verify_history(&recorded, self.isolation());
        if verification.passed {
            return Ok(());
        }
        let explanation = verification.explanation.unwrap_or_default();
        Err(End::Wrong(format!("the recovered history is {}: {explanation}", verification.verdict)))
    }

    fn isolation(&self) -> Isolation {
        self.tests.combination.protocol.info.isolation
    }
}

fn wrong(what: &str, error: &dyn std::fmt::Display) -> End {
    End::Wrong(format!("{what}: {error}"))
}

fn out_of_memory(error: OutOfMemory) -> RunError {
    RunError::OutOfMemory(format!("loading: {error}"))
}
