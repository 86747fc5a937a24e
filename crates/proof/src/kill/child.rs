//! The process that is to be killed: threads that run transactions on a directory, and say on the
//! standard output what is durable.

use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::{AbortReason, Engine, EngineConfig, Erased, Worker};
use contend_log::{Directory, Log, LogConfig, LogSinks};
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
    /// Options, the log's among them.
    pub settings: BTreeMap<String, String>,
    /// What it changes.
    pub scale: Scale,
    /// What differs from life to life is drawn from this.
    pub seed: u64,
}

/// Transactions of a thread that may have committed without being durable.
pub(super) const IN_FLIGHT: u64 = 64;
/// How long a thread waits for what it has in flight.
const NAP: Duration = Duration::from_micros(50);

/// The workload of the plan that a life's options are parsed by: one that every protocol can run.
/// The tables are the test's own.
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
/// It can't go on: whatever it is, a process that is to be killed must not end by itself.
pub fn live(life: &Life) -> Result<(), RunError> {
    let Life { directory, scale, seed, .. } = life;
    let planned = life.resolve()?;
    let ProtocolPlan { engine: engine_options, log: log_options, .. } = &planned;
    let mut random = SplitMix64::new(*seed);
    let commit = log_options.commit().ok_or_else(|| RunError::BadInput("log=off loses everything".into()))?;
    let workers = scale.threads as usize + 1;
    let disk = Directory::open(directory)?.direct(log_options.direct).uring(log_options.uring);
    // Short files, buffers that overflow, and checkpoints in the middle of it all.
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
    let engine = Engine::with_commit_sinks(planned.erased(), engine_config, Some(sinks));
    engine.epochs().begin_at(log.first_epoch());
    let tables = Tables::create(scale, &engine);
    for (number, shape) in (0..).zip(engine.shapes()) {
        log.bind(number, &schema_of(shape))?;
    }
    let out_of_memory = |error: contend_engine::OutOfMemory| RunError::OutOfMemory(format!("loading: {error}"));
    let no_room = || RunError::OutOfMemory("there are too many workers".into());
    let mut loader = engine.reloader().ok_or_else(no_room)?;
    for table in &recovered.tables {
        for (key, row) in table.rows() {
            // The numbers are the same: the tables are bound in their order.
            loader.insert_words(table.number, &key, row).map_err(out_of_memory)?;
        }
    }
    drop(loader);
    let last = State::of(&recovered).last(scale);
    drop(recovered);
    let mut loader = engine.loader().ok_or_else(no_room)?;
    tables.load(scale, &mut loader).map_err(out_of_memory)?;
    drop(loader);
    let backoff =
        Backoff::new(RetryOptions { backoff: BackoffPolicy::Exponential, ..RetryOptions::default() }, workers);
    let (rests, checkpoint_ms) = (random.one_in(2), 1 + random.below(40));
    std::thread::scope(|scope| {
        scope.spawn(|| log.serve(Duration::from_millis(epoch_ms), || log.settle(engine.epochs())));
        scope.spawn(|| {
            // If the disk fails the threads that commit say so.
            while log.check().is_ok() {
                std::thread::sleep(Duration::from_millis(checkpoint_ms));
                let _ = log.checkpoint();
            }
        });
        let threads: Vec<_> = last
            .iter()
            .zip(0..)
            .map(|(&last, thread)| {
                let worker = engine.worker().ok_or_else(no_room)?;
                let retry = backoff.retry(worker.number(), random.draw());
                let thread = Thread { thread, last, scale, tables: &tables, log: &log, worker, retry, rests };
                Ok(scope.spawn(move || thread.run()))
            })
            .collect::<Result<_, RunError>>()?;
        // They end if one of them can't go on.
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        log.close();
        outcomes.into_iter().try_for_each(|outcome| {
            outcome.unwrap_or_else(|_| Err(RunError::CheckFailed("a thread has panicked".into())))
        })
    })
}

/// A thread that runs transactions.
struct Thread<'a> {
    thread: u64,
    /// The last transaction of it that is there.
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
            // The others would run on, and nobody would be told.
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

    /// Runs a transaction once; whether it has ended as it should.
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

    /// Says which of its transactions are durable now: all up to a number, as each was committed
    /// after the one before.
    fn acknowledge(&mut self, waiting: &mut VecDeque<(u64, u64, u64)>) -> Result<(), RunError> {
        let mut durable = None;
        while let Some(&(number, ticket, epoch)) = waiting.front()
            && (self.worker.is_durable(ticket) || self.log.durable() >= epoch)
        {
            durable = Some(number);
            waiting.pop_front();
        }
        if let Some(number) = durable {
            // One write of a short line, which a pipe takes as one.
            let line = format!("{} {number}\n", self.thread);
            let written = std::io::stdout().lock().write_all(line.as_bytes());
            written.map_err(|error| RunError::IoFailed(format!("nobody listens: {error}")))?;
        }
        self.log.check()?;
        Ok(())
    }
}
