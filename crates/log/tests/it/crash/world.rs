//! A database of two tables on a disk that fails, random transactions on it, and the states that a
//! recovery may find.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use contend_engine::fault::Fault as EngineFault;
use contend_engine::{
    Abort, AbortReason, AddToWord, Engine, EngineConfig, EngineOptions, Erased, Groups, IndexKind, Key, NamedProtocol,
    Projection, RawTxn, RowUpdate, Span, Table, TableSpec, Transaction, Txn, Worker,
};
use contend_log::fault::Fault;
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{CommitProtocol, Log, LogConfig, LogError, LogSinks, Recovered, Release, Schema, Settled};
use contend_machine::Native;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// The most keys of each table. With fewer keys, rows are deleted and inserted again more often.
pub(super) const KEYS: u64 = 8;
/// Words of a row, in two groups.
pub(super) const WORDS: usize = 4;
pub(super) const GROUPS: [(usize, usize); 2] = [(0, 1), (1, 4)];

/// A deliberate bug.
#[derive(Clone, Copy, Debug)]
pub(super) enum AnyFault {
    Log(Fault),
    Engine(EngineFault),
}

pub(super) type WideKey = [u8; 16];
pub(super) type State = BTreeMap<(u32, u64), [u64; WORDS]>;

pub(super) fn wide(key: u64) -> WideKey {
    let mut wide = [7; 16];
    wide[8..].copy_from_slice(&key.to_be_bytes());
    wide
}

pub(super) fn schema(name: &str, key_words: usize, ordered: bool) -> Schema {
    let groups = GROUPS.to_vec();
    Schema { name: name.to_owned(), key_words, row_words: WORDS, groups, ordered, columns: String::new() }
}

/// A database of two tables.
pub(super) struct World {
    pub(super) engine: Arc<Engine<Erased<Native>, Native>>,
    pub(super) log: Arc<Log>,
    pub(super) narrow: Table<u64>,
    pub(super) wide: Table<WideKey>,
    pub(super) workers: Vec<Worker<Erased<Native>, Native>>,
    /// The durable epoch, and the rows, when the database was opened.
    pub(super) found: (u64, State),
    pub(super) state: State,
    pub(super) commits: Vec<Commit>,
    /// Keys of each table.
    pub(super) keys: u64,
    /// Whether a transaction was cancelled.
    has_cancelled: bool,
}

/// The range of words that was written, and the row.
pub(super) type Written = (Range<usize>, [u64; WORDS]);

/// A transaction that has committed.
#[derive(Debug)]
pub(super) struct Commit {
    pub(super) epoch: u64,
    pub(super) worker: usize,
    pub(super) ticket: u64,
    /// Its writes by key; `None` for a delete.
    pub(super) writes: Vec<((u32, u64), Option<Written>)>,
    /// Whether the log has said that it is durable.
    pub(super) acknowledged: bool,
}

impl Commit {
    pub(super) fn apply(&self, state: &mut State) {
        for (key, write) in &self.writes {
            match write {
                None => _ = state.remove(key),
                Some((words, row)) => {
                    state.entry(*key).or_default()[words.clone()].copy_from_slice(&row[words.clone()]);
                }
            }
        }
    }
}

/// Whether a recovery may find this state: that after `first` and some of these commits in their
/// order, with all that were acknowledged.
pub(super) fn is_possible(protocol: CommitProtocol, first: &State, commits: &[Commit], found: &State) -> bool {
    let after = |is_there: &dyn Fn(usize, &Commit) -> bool| {
        let mut state = first.clone();
        let there = commits.iter().enumerate().filter(|(place, commit)| is_there(*place, commit));
        there.for_each(|(_, commit)| commit.apply(&mut state));
        state == *found
    };
    let end = |counts: &dyn Fn(&Commit) -> bool| commits.iter().rposition(counts).map_or(0, |last| last + 1);
    if let CommitProtocol::Workers { release: Release::Conservative, .. } = protocol {
        // The commits of one worker are flushed in their order, those of two workers in any order.
        let ends = (0..3).map(|worker| {
            let acknowledged = end(&|commit| commit.worker == worker && commit.acknowledged);
            let own = commits.iter().enumerate().filter(move |(_, commit)| commit.worker == worker);
            let later = own.map(|(place, _)| place + 1).filter(move |end| *end > acknowledged);
            [acknowledged].into_iter().chain(later).collect::<Vec<_>>()
        });
        let ends: Vec<_> = ends.collect();
        let combinations = ends[0].iter().flat_map(|a| ends[1].iter().map(move |b| (*a, *b)));
        let mut combinations = combinations.flat_map(|(a, b)| ends[2].iter().map(move |c| [a, b, *c]));
        return combinations.any(|ends| after(&|place, commit| place < ends[commit.worker]));
    }
    // All commits up to some place are there. If epochs are flushed as a whole, it is the end of an
    // epoch.
    let ends_here = |place: usize| {
        protocol != CommitProtocol::Epoch
            || place == 0
            || commits.get(place).is_none_or(|next| next.epoch > commits[place - 1].epoch)
    };
    let places = end(&|commit| commit.acknowledged)..=commits.len();
    places.filter(|&place| ends_here(place)).any(|end| after(&|place, _| place < end))
}

pub(super) fn state_of(recovered: &Recovered) -> State {
    let mut state = State::new();
    for table in &recovered.tables {
        let number = u32::from(table.schema.name == "wide");
        for (key, row) in table.rows() {
            let key = if number == 0 { key[0] } else { key[1] };
            let row = row.try_into().expect("as many words as there are");
            assert_eq!(state.insert((number, key), row), None, "a key twice");
        }
    }
    state
}

pub(super) fn config(commit: CommitProtocol, fault: Option<Fault>) -> LogConfig {
    // The files are short, and the buffers small enough to overflow. With one thread, a seed always
    // does the same.
    LogConfig {
        workers: 4,
        segment_bytes: 700,
        buffer_bytes: 300,
        checkpoint_bytes: 0,
        small_files: 3,
        threads: 1,
        commit,
        checks_order: true,
        fault,
        ..LogConfig::default()
    }
}

pub(super) const EPOCH: CommitProtocol = CommitProtocol::Epoch;

pub(super) fn workers(release: Release, group: u32) -> CommitProtocol {
    CommitProtocol::Workers { release, group, lsn: release == Release::Early }
}

impl World {
    pub(super) fn open(
        disk: &FaultyDisk,
        protocol: Erased<Native>,
        options: EngineOptions,
        (commit, fault): (CommitProtocol, Option<AnyFault>),
    ) -> Result<Self, LogError> {
        let (of_log, of_engine) = match fault {
            Some(AnyFault::Log(fault)) => (Some(fault), None),
            Some(AnyFault::Engine(fault)) => (None, Some(fault)),
            None => (None, None),
        };
        let (log, recovered) = Log::open(Arc::new(disk.clone()), config(commit, of_log))?;
        let config =
            EngineConfig { workers_max: 4, epoch_ms: u64::MAX, options, fault: of_engine, ..EngineConfig::default() };
        let engine = Engine::with_commit_sinks(protocol, config, Some(LogSinks::new(&log)));
        engine.epochs().begin_at(log.first_epoch());
        let groups = GROUPS.map(|(start, end)| Span { first: start as u32, count: (end - start) as u32 });
        let spec = |name: &str, index| {
            let spec = TableSpec::of_bytes(name, index, WORDS * 8, 16);
            TableSpec { groups: groups.to_vec(), ..spec }
        };
        let narrow: Table<u64> = engine.create_table(&spec("narrow", IndexKind::Ordered));
        let wide_table: Table<WideKey> = engine.create_table(&spec("wide", IndexKind::Hash));
        log.bind(narrow.number(), &schema("narrow", 1, true))?;
        log.bind(wide_table.number(), &schema("wide", 2, false))?;
        let state = state_of(&recovered);
        let mut loader = engine.reloader().expect("a slot");
        for (&(table, key), row) in &state {
            let fill = |words: &mut [u64]| words.copy_from_slice(row);
            let is_new = match table {
                0 => loader.insert(&narrow, key, fill),
                _ => loader.insert(&wide_table, wide(key), fill),
            };
            assert!(is_new.expect("memory"));
        }
        drop(loader);
        let workers = (0..3).map(|_| engine.worker().expect("a slot")).collect();
        Ok(World {
            engine,
            narrow,
            wide: wide_table,
            workers,
            found: (log.durable(), state.clone()),
            state,
            commits: Vec::new(),
            keys: KEYS,
            log,
            has_cancelled: false,
        })
    }

    /// Runs a transaction of some operations, and notes it if it commits.
    pub(super) fn transact(&mut self, random: &mut SmallRng) {
        self.transact_on(random, 0..3);
    }

    /// Does the same on one of these workers.
    pub(super) fn transact_on(&mut self, random: &mut SmallRng, workers: Range<usize>) {
        let number = random.random_range(workers);
        let (narrow, wide_table, keys) = (&self.narrow, &self.wide, self.keys);
        let draw = |random: &mut SmallRng| {
            let (number, key) = (random.random_range(0..2), random.random_range(0..keys));
            // With few keys, more than half of the operations are inserts and deletes.
            let operation = if keys < KEYS && random.random() { 0 } else { random.random_range(0..6) };
            (number, key, operation, random.random())
        };
        let operations: Vec<_> = (0..random.random_range(1..5)).map(|_| draw(random)).collect();
        let commits = random.random_bool(0.9);
        for tries in 0.. {
            let (mut state, mut writes) = (self.state.clone(), Vec::new());
            let worker = &mut self.workers[number];
            let outcome = worker.run(|tx| {
                for &(number, key, operation, value) in &operations {
                    let old = state.get(&(number, key)).copied();
                    let (words, new) = match number {
                        0 => operate(tx, narrow, key, operation, value, old)?,
                        _ => operate(tx, wide_table, wide(key), operation, value, old)?,
                    };
                    if words.is_empty() {
                        continue;
                    }
                    writes.push(((number, key), new.map(|row| (words, row))));
                    match new {
                        Some(row) => _ = state.insert((number, key), row),
                        None => _ = state.remove(&(number, key)),
                    }
                }
                if commits { Ok(()) } else { Err(tx.cancel()) }
            });
            match outcome {
                // Another worker holds the row until it flushes, and its going offline flushes it.
                // (Then Cicada's clock is advanced, and other transactions come too late.)
                Err(abort) if abort.reason.is_conflict() && tries < 100 && self.log.config().commit.holds_rows() => {
                    self.workers.iter_mut().for_each(Worker::go_offline);
                    continue;
                }
                // A transaction that was cancelled has its place in its batch, and its
                // reservations, until the batch is over.
                Err(abort) if abort.reason.is_conflict() && tries < 2 && self.has_cancelled => continue,
                _ => assert_eq!(outcome.is_ok(), commits, "no other transaction is in the way: {outcome:?}"),
            }
            self.has_cancelled |= !commits;
            if commits {
                let (epoch, ticket) = (worker.committed_in(), worker.ticket());
                self.state = state;
                self.commits.push(Commit { epoch, worker: number, ticket, writes, acknowledged: false });
            }
            return;
        }
    }

    /// Asks the log which commits are durable by now, and notes them as acknowledged.
    pub(super) fn acknowledge(&mut self) {
        for commit in &mut self.commits {
            commit.acknowledged = commit.acknowledged || self.workers[commit.worker].is_durable(commit.ticket);
        }
    }

    /// Advances the epoch.
    pub(super) fn advance(&mut self) {
        self.workers.iter_mut().for_each(Worker::go_offline);
        assert!(self.engine.epochs().try_advance());
    }

    /// Lets a random worker collect the tombstones that are old enough.
    pub(super) fn collect(&mut self, random: &mut SmallRng) {
        let number = random.random_range(0..self.workers.len());
        self.workers[number].collect();
    }

    /// Takes a checkpoint, with transactions in between.
    pub(super) fn checkpoint(&mut self, random: &mut SmallRng) -> Result<(), LogError> {
        self.log.begin_files();
        for _ in 0..random.random_range(0..3) {
            self.transact(random);
        }
        if random.random_bool(0.7) {
            self.advance();
            self.flush()?;
        }
        self.transact(random);
        self.log.checkpoint_by_hand().map(|_| ())
    }

    /// Closes the log as a process does at its end.
    pub(super) fn close(&mut self) {
        self.advance();
        let epochs = self.engine.epochs();
        self.log.close();
        let settled = || Settled { epoch: epochs.oldest() - 1, current: epochs.current() };
        self.log.serve(std::time::Duration::ZERO, settled);
    }

    /// Runs a random number of transactions, with flushes, checkpoints and merges in between. Ends
    /// early if the disk fails.
    pub(super) fn run(&mut self, random: &mut SmallRng) {
        for _ in 0..random.random_range(5..60) {
            self.transact(random);
            if random.random_bool(0.2) {
                self.advance();
            }
            if random.random_bool(0.3) {
                self.collect(random);
            }
            if random.random_bool(0.2) && self.flush().is_err() {
                break;
            }
            if random.random_bool(0.05) && self.checkpoint(random).is_err() {
                break;
            }
            if random.random_bool(0.1) && self.log.merge().is_err() {
                break;
            }
        }
    }

    pub(super) fn flush(&self) -> Result<(), LogError> {
        self.log.flush(self.engine.epochs().oldest() - 1)
    }
}

/// Returns a conflict if the row was found in another state than it should be. A transaction that
/// comes too late, because a clock was advanced, sees an old state.
pub(super) fn unless_late<T>(found: Option<T>) -> Result<T, Abort> {
    found.ok_or(Abort::new(AbortReason::ReadValidation))
}

/// Runs an operation on a row. Returns the words that it writes, and the row after it.
pub(super) fn operate<K: Key>(
    tx: &mut Transaction<'_, Erased<Native>, Native>,
    table: &Table<K>,
    key: K,
    operation: u32,
    value: u64,
    old: Option<[u64; WORDS]>,
) -> Result<(Range<usize>, Option<[u64; WORDS]>), Abort> {
    let right = Groups::of(1);
    let words = match (operation, old) {
        (0 | 1, _) => 0..WORDS,
        (2 | 4, Some(_)) => GROUPS[1].0..GROUPS[1].1,
        (3, Some(_)) => GROUPS[0].0..GROUPS[0].1,
        _ => 0..0,
    };
    let row = match (operation, old) {
        (0 | 1, None) => {
            let row = [value; WORDS];
            unless_late(tx.insert_row(table, key)?)?.copy_from_slice(&row);
            Some(row)
        }
        (0, Some(_)) => {
            unless_late(tx.delete(table, key)?.then_some(()))?;
            None
        }
        (1, Some(_)) => {
            unless_late(tx.write_row(table, key, Groups::ALL)?)?.fill(value);
            Some([value; WORDS])
        }
        (2, Some(mut row)) => {
            unless_late(tx.write_row(table, key, right)?)?[1..].fill(value);
            row[1..].fill(value);
            Some(row)
        }
        (3, Some(mut row)) => {
            unless_late(tx.modify_row(table, key, Groups::FIRST)?)?[0] = value;
            row[0] = value;
            Some(row)
        }
        (4, Some(mut row)) => {
            let update = AddToWord { groups: right, word: 2, value };
            unless_late(tx.update_row(table, key, RowUpdate::add_to_word(&update))?.then_some(()))?;
            row[2] = row[2].wrapping_add(value);
            Some(row)
        }
        (_, old) => {
            let found = tx.read_row(table, key, Projection::WHOLE)?;
            unless_late((found == old.as_ref().map(<[u64; WORDS]>::as_slice)).then_some(()))?;
            old
        }
    };
    Ok((words, row))
}

pub(super) fn plan(random: &mut SmallRng) -> Plan {
    Plan::random(random.random())
}

/// Runs transactions, crashes and recovers four times, each time under one of these commit
/// protocols. Returns the number of acknowledged commits.
///
/// # Panics
/// A recovery finds a state that is not possible.
pub(super) fn crash_and_recover(
    make: &dyn Fn() -> Erased<Native>,
    seed: u64,
    (protocols, fault): (&[CommitProtocol], Option<AnyFault>),
) -> u64 {
    let random = &mut SmallRng::seed_from_u64(seed);
    let keys = [1, 2, KEYS][random.random_range(0..3)];
    let options = EngineOptions {
        commit_time_updates: random.random(),
        timestamp_splitting: random.random(),
        ..EngineOptions::default()
    };
    let mut disk = FaultyDisk::new(plan(random));
    let mut before = None::<(CommitProtocol, State, Vec<Commit>)>;
    let mut acknowledged = 0;
    for _ in 0..4 {
        let protocol = match protocols {
            [only] => *only,
            several => several[random.random_range(0..several.len())],
        };
        // Recoveries crash as well, so it is opened until that succeeds.
        let mut world = loop {
            match World::open(&disk, make(), options.clone(), (protocol, fault)) {
                Ok(world) => break World { keys, ..world },
                Err(LogError::Io { .. } | LogError::Stopped { .. }) => {
                    let next = if random.random_bool(0.5) { Plan::default() } else { plan(random) };
                    disk = disk.after_crash(next);
                }
                Err(error) => panic!("{error}"),
            }
        };
        if let Some((protocol, first, commits)) = &before {
            assert!(
                is_possible(*protocol, first, commits, &world.found.1),
                "{:?}, of {first:?}, {commits:?}",
                world.found
            );
            acknowledged += commits.iter().filter(|commit| commit.acknowledged).count() as u64;
        }
        world.run(random);
        match random.random_range(0..10) {
            0..3 => {
                world.advance();
                let _ = world.flush();
            }
            3..5 => world.close(),
            _ => {}
        }
        world.acknowledge();
        before = Some((protocol, std::mem::take(&mut world.found.1), std::mem::take(&mut world.commits)));
        drop(world);
        let next = if random.random_bool(0.3) { Plan::default() } else { plan(random) };
        if random.random_bool(0.3) {
            // Only the process has crashed, so the next one finds all that it wrote. The machine
            // may crash later.
            disk.fail(next);
        } else {
            disk = disk.after_crash(next);
        }
    }
    acknowledged
}

pub(super) fn silo() -> Erased<Native> {
    Erased::new(<contend_protocols::optimistic::silo::Silo as NamedProtocol<Native>>::new(Default::default()))
}
