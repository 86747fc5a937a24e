//! The process that is killed: threads that run transactions on a directory, and print on the
//! standard output which of them are durable.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::{AbortReason, Engine, EngineConfig, Erased, OutOfMemory, Worker};
use contend_log::{Directory, Log, LogConfig, LogSinks, Recovered};
use contend_machine::Native;
use contend_protocols::method::{Backoff, BackoffPolicy, RetryOptions};
use serde::{Deserialize, Serialize};

use super::store::{Scale, State, Tables, TransactionPlan};
use contend_model::random::SplitMix64;
use contend_runner::durable::schema_of;
use contend_runner::{ProtocolPlan, RunConfig, RunError};

/// One life of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    /// The directory, which may have a log already.
    pub directory: PathBuf,
    /// The protocol's name.
    pub protocol: String,
    /// Options of the protocol, the engine and the log.
    pub settings: BTreeMap<String, String>,
    /// The size of the tables, and the seed of the transactions.
    pub scale: Scale,
    /// The seed of what differs from life to life.
    pub seed: u64,
}

/// The most transactions of a thread that have committed and are not durable.
pub(super) const IN_FLIGHT: u64 = 64;
/// How long a thread sleeps before it looks again which transactions are durable.
const NAP: Duration = Duration::from_micros(50);

/// The workload of the plan by which a life's options are parsed. Every protocol can run it. The
/// test does not use its tables.
const WORKLOAD: &str = "litmus-births";

impl Life {
    /// Parses the protocol and its options.
    fn resolve(&self) -> Result<ProtocolPlan, RunError> {
        let config = RunConfig {
            workload: WORKLOAD.into(),
            protocols: vec![self.protocol.clone()],
            settings: self.settings.clone(),
            ..RunConfig::default()
        };
        Ok(config.resolve()?.protocols.remove(0))
    }
}

/// Runs transactions until the process is killed.
///
/// # Errors
/// The database can't be opened, or a thread can't go on. Either is a failure of the test: the
/// process must not end by itself.
pub fn live(life: &Life) -> Result<(), RunError> {
    let mut random = SplitMix64::new(life.seed);
    let (database, last) = Database::open(life, &mut random)?;
    let retries = RetryOptions { backoff: BackoffPolicy::Exponential, ..RetryOptions::default() };
    let backoff = Backoff::new(retries, database.workers);
    let (rests, checkpoint_ms) = (random.one_in(2), 1 + random.below(40));
    let Database { log, engine, tables, epoch_ms, .. } = &database;
    std::thread::scope(|scope| {
        scope.spawn(|| log.serve(Duration::from_millis(*epoch_ms), || log.settle(engine.epochs())));
        scope.spawn(|| {
            // If the disk fails, the threads that commit return the error.
            while log.check().is_ok() {
                std::thread::sleep(Duration::from_millis(checkpoint_ms));
                let _ = log.checkpoint();
            }
        });
        let threads: Vec<_> = last
            .iter()
            .zip(0..)
            .map(|(&last, thread)| {
                let worker = engine.worker().ok_or_else(no_worker)?;
                let retry = backoff.retry(worker.number(), random.draw());
                let thread = Thread { thread, last, scale: &life.scale, tables, log, worker, retry, rests };
                Ok(scope.spawn(move || thread.run()))
            })
            .collect::<Result<_, RunError>>()?;
        // The threads end only if one of them can't go on.
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        log.close();
        outcomes.into_iter().try_for_each(|outcome| {
            outcome.unwrap_or_else(|_| Err(RunError::CheckFailed("a thread has panicked".into())))
        })
    })
}

/// The database of a life.
struct Database {
    log: Arc<Log>,
    engine: Arc<Engine<Erased<Native>, Native>>,
    tables: Tables,
    workers: usize,
    epoch_ms: u64,
}

impl Database {
    /// Opens the directory of a life, and loads the rows that are missing. Also returns each
    /// thread's last transaction that is there.
    fn open(life: &Life, random: &mut SplitMix64) -> Result<(Self, Vec<u64>), RunError> {
        let Life { directory, scale, .. } = life;
        let planned = life.resolve()?;
        let ProtocolPlan { engine: engine_options, log: log_options, .. } = &planned;
        let commit =
            log_options.commit().ok_or_else(|| RunError::BadInput("log=off loses every transaction".into()))?;
        let workers = scale.threads as usize + 1;
        let disk = Directory::open(directory)?.direct(log_options.direct).uring(log_options.uring);
        // The files are short, and the buffers small enough to overflow.
        let config = LogConfig {
            workers,
            segment_bytes: 16 << 10 << random.below(4),
            buffer_bytes: 1 << 10 << random.below(6),
            threads: 1,
            commit,
            ..LogConfig::default()
        };
        let (log, recovered) = Log::open(Arc::new(disk), config)?;
        let epoch_ms = 1 + random.below(5);
        let engine_config =
            EngineConfig { workers_max: workers, epoch_ms, options: engine_options.clone(), ..EngineConfig::default() };
        let sinks = LogSinks::new(&log) as Arc<dyn CommitSinks<Native>>;
        let engine = Engine::with_commit_sinks(planned.erased_on_host(), engine_config, Some(sinks));
        engine.epochs().begin_at(log.first_epoch());
        let tables = Tables::create(scale, &engine);
        for (number, shape) in (0..).zip(engine.shapes()) {
            log.bind(number, &schema_of(shape))?;
        }
        let database = Database { log, engine, tables, workers, epoch_ms };
        database.load(scale, &recovered)?;
        let last = State::of(&recovered).last(scale);
        Ok((database, last))
    }

    /// Adds the recovered rows, and those that every database begins with.
    fn load(&self, scale: &Scale, recovered: &Recovered) -> Result<(), RunError> {
        let out_of_memory = |error: OutOfMemory| RunError::OutOfMemory(format!("loading: {error}"));
        let mut loader = self.engine.reloader().ok_or_else(no_worker)?;
        for table in &recovered.tables {
            for (key, row) in table.rows() {
                // The tables are bound in the order of their numbers, so the numbers are the same.
                loader.insert_words(table.number, &key, row).map_err(out_of_memory)?;
            }
        }
        drop(loader);
        let mut loader = self.engine.loader().ok_or_else(no_worker)?;
        self.tables.load(scale, &mut loader).map_err(out_of_memory)
    }
}

fn no_worker() -> RunError {
    RunError::OutOfMemory("there are too many workers".into())
}

/// A thread that runs transactions.
struct Thread<'a> {
    thread: u64,
    /// The number of its last transaction that is there.
    last: u64,
    scale: &'a Scale,
    tables: &'a Tables,
    log: &'a Log,
    worker: Worker<Erased<Native>, Native>,
    retry: contend_protocols::method::Retry<Native>,
    /// Whether it goes offline after each transaction, as an application's threads do.
    rests: bool,
}

impl Thread<'_> {
    fn run(mut self) -> Result<(), RunError> {
        let outcome = self.transact();
        if let Err(error) = &outcome {
            // The other threads would run on, and the parent would not be told.
            eprintln!("thread {}: {error}", self.thread);
            std::process::exit(3);
        }
        outcome
    }

    fn transact(&mut self) -> Result<(), RunError> {
        let mut waiting = VecDeque::new();
        for number in self.last + 1.. {
            let plan = TransactionPlan::new(self.scale, self.thread, number);
            if plan.is_cancelled_first {
                self.run_once(&plan, true)?;
            }
            while !self.run_once(&plan, false)? {}
            waiting.push_back((number, self.worker.ticket(), self.worker.committed_in()));
            if self.rests {
                self.worker.go_offline();
            }
            self.acknowledge(&mut waiting)?;
            while waiting.len() as u64 >= IN_FLIGHT {
                self.worker.go_offline();
                std::thread::sleep(NAP);
                self.acknowledge(&mut waiting)?;
            }
        }
        Ok(())
    }

    /// Runs a transaction once. Returns whether it has ended, and need not be tried again.
    fn run_once(&mut self, plan: &TransactionPlan, cancels: bool) -> Result<bool, RunError> {
        let tables = self.tables;
        let outcome = self.worker.run_declared(
            |declaration| plan.declare(tables, declaration),
            |tx| {
                plan.execute(tx, tables)?;
                if cancels { Err(contend_engine::Txn::cancel(tx)) } else { Ok(()) }
            },
        );
        match outcome {
            Ok(()) => self.retry.done(),
            Err(abort) if abort.reason == AbortReason::User => self.retry.done(),
            Err(abort) if abort.reason.is_conflict() => {
                self.retry.aborted();
                return Ok(false);
            }
            Err(abort) => return Err(RunError::Stuck { protocol: "a thread".into(), reason: abort.reason }),
        }
        Ok(true)
    }

    /// Prints the last of its transactions that is durable now. All transactions before it are
    /// durable too, since each committed after the one before.
    fn acknowledge(&mut self, waiting: &mut VecDeque<(u64, u64, u64)>) -> Result<(), RunError> {
        let mut durable = None;
        while let Some(&(number, ticket, epoch)) = waiting.front()
            && (self.worker.is_durable(ticket) || self.log.durable() >= epoch)
        {
            durable = Some(number);
            waiting.pop_front();
        }
        if let Some(number) = durable {
            // A short line in one write: a pipe takes it as a whole.
            let line = format!("{} {number}\n", self.thread);
            let written = std::io::stdout().lock().write_all(line.as_bytes());
            written.map_err(|error| RunError::IoFailed(format!("can't write to stdout: {error}")))?;
        }
        self.log.check()?;
        Ok(())
    }
}
