//! Crashes at any point, on disks that fail, under every protocol: what was acknowledged is there
//! afterwards, and what is there was the state at some point in time.
//!
//! Each failure names its protocol and its seed; `CRASH_SEED=n cargo test -p contend-log --test it
//! crash` runs that one alone.

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
use contend_log::{CommitProtocol, Disk, Log, LogConfig, LogError, LogSinks, Recovered, Release, Schema, Settled};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Keys of each table, at the most. Where there are fewer, rows die and come again more often.
const KEYS: u64 = 8;
/// Words of a row, in two groups.
const WORDS: usize = 4;
const GROUPS: [(usize, usize); 2] = [(0, 1), (1, 4)];

/// A deliberate bug.
#[derive(Clone, Copy, Debug)]
enum AnyFault {
    Log(Fault),
    Engine(EngineFault),
}

type WideKey = [u8; 16];
type State = BTreeMap<(u32, u64), [u64; WORDS]>;

fn wide(key: u64) -> WideKey {
    let mut wide = [7; 16];
    wide[8..].copy_from_slice(&key.to_be_bytes());
    wide
}

fn schema(name: &str, key_words: usize, ordered: bool) -> Schema {
    let groups = GROUPS.to_vec();
    Schema { name: name.to_owned(), key_words, row_words: WORDS, groups, ordered, columns: String::new() }
}

/// A database of two tables.
struct World {
    engine: Arc<Engine<Erased<Native>, Native>>,
    log: Arc<Log>,
    narrow: Table<u64>,
    wide: Table<WideKey>,
    workers: Vec<Worker<Erased<Native>, Native>>,
    /// The state at first, and the epoch that was durable.
    found: (u64, State),
    state: State,
    commits: Vec<Commit>,
    /// How many keys each table has.
    keys: u64,
}

/// Words of a row, and the row.
type Written = (Range<usize>, [u64; WORDS]);

/// A transaction that has committed.
#[derive(Debug)]
struct Commit {
    epoch: u64,
    worker: usize,
    ticket: u64,
    /// Groups of rows that it wrote, as they were then; or a row that it deleted.
    writes: Vec<((u32, u64), Option<Written>)>,
    /// Whether it is known to be durable.
    acknowledged: bool,
}

impl Commit {
    fn apply(&self, state: &mut State) {
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

/// Whether a state is that after some of these commits, which came to it one after the other, and
/// of which all have to be there that were acknowledged.
fn is_possible(protocol: CommitProtocol, first: &State, commits: &[Commit], found: &State) -> bool {
    let after = |is_there: &dyn Fn(usize, &Commit) -> bool| {
        let mut state = first.clone();
        let there = commits.iter().enumerate().filter(|(place, commit)| is_there(*place, commit));
        there.for_each(|(_, commit)| commit.apply(&mut state));
        state == *found
    };
    let end = |counts: &dyn Fn(&Commit) -> bool| commits.iter().rposition(counts).map_or(0, |last| last + 1);
    if let CommitProtocol::Workers { release: Release::Conservative, .. } = protocol {
        // What a worker has committed is flushed in this order, and what two workers have is in
        // any.
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
    // All up to some place, which is the end of an epoch where these are flushed as a whole.
    let ends_here = |place: usize| {
        protocol != CommitProtocol::Epoch
            || place == 0
            || commits.get(place).is_none_or(|next| next.epoch > commits[place - 1].epoch)
    };
    let places = end(&|commit| commit.acknowledged)..=commits.len();
    places.filter(|&place| ends_here(place)).any(|end| after(&|place, _| place < end))
}

fn state_of(recovered: &Recovered) -> State {
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

fn config(commit: CommitProtocol, fault: Option<Fault>) -> LogConfig {
    // Short files, and buffers that overflow; one thread, so that a seed always does the same.
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

const EPOCH: CommitProtocol = CommitProtocol::Epoch;

fn workers(release: Release, group: u32) -> CommitProtocol {
    CommitProtocol::Workers { release, group, lsn: release == Release::Early }
}

impl World {
    fn open(
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
        })
    }

    /// A transaction of some operations.
    fn transact(&mut self, random: &mut SmallRng) {
        let number = random.random_range(0..3);
        let (narrow, wide_table, keys) = (&self.narrow, &self.wide, self.keys);
        let draw = |random: &mut SmallRng| {
            let (number, key) = (random.random_range(0..2), random.random_range(0..keys));
            // The first inserts and deletes.
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
                // The worker that holds the row would flush later. (Then Cicada's clock is
                // advanced, and other transactions come too late.)
                Err(abort) if abort.reason.is_conflict() && tries < 100 && self.log.config().commit.holds_rows() => {
                    self.workers.iter_mut().for_each(Worker::go_offline);
                    continue;
                }
                _ => assert_eq!(outcome.is_ok(), commits, "nobody is in the way: {outcome:?}"),
            }
            if commits {
                let (epoch, ticket) = (worker.committed_in(), worker.ticket());
                self.state = state;
                self.commits.push(Commit { epoch, worker: number, ticket, writes, acknowledged: false });
            }
            return;
        }
    }

    /// What has been acknowledged so far.
    fn acknowledge(&mut self) {
        for commit in &mut self.commits {
            commit.acknowledged = commit.acknowledged || self.workers[commit.worker].is_durable(commit.ticket);
        }
    }

    /// Moves the epoch on.
    fn advance(&mut self) {
        self.workers.iter_mut().for_each(Worker::go_offline);
        assert!(self.engine.epochs().try_advance());
    }

    /// Takes what a worker has deleted out of the indexes, and reuses its memory, where that is old
    /// enough.
    fn collect(&mut self, random: &mut SmallRng) {
        let number = random.random_range(0..self.workers.len());
        self.workers[number].collect();
    }

    /// A checkpoint, with transactions in between.
    fn checkpoint(&mut self, random: &mut SmallRng) -> Result<(), LogError> {
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

    /// Ends as a process does that closes its database.
    fn close(&mut self) {
        self.advance();
        let epochs = self.engine.epochs();
        self.log.close();
        let settled = || Settled { epoch: epochs.oldest() - 1, current: epochs.current() };
        self.log.serve(std::time::Duration::ZERO, settled);
    }

    /// Runs transactions, with flushes, checkpoints and merges in between, until the disk fails or
    /// there were enough.
    fn run(&mut self, random: &mut SmallRng) {
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

    fn flush(&self) -> Result<(), LogError> {
        self.log.flush(self.engine.epochs().oldest() - 1)
    }
}

/// What was there is not, or the other way round: for a transaction that came too late because a
/// clock was put forward that is as good as a transaction in the way.
fn unless_late<T>(found: Option<T>) -> Result<T, Abort> {
    found.ok_or(Abort::new(AbortReason::ReadValidation))
}

/// Does something to a row: which words it writes, and what the row is then.
fn operate<K: Key>(
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

fn seeds(count: u64) -> Range<u64> {
    match std::env::var("CRASH_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("CRASH_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    }
}

fn plan(random: &mut SmallRng) -> Plan {
    Plan::random(random.random())
}

/// Runs, crashes, recovers, and goes on, some times; how many commits there were that had been
/// acknowledged.
fn crash_and_recover(
    make: &dyn Fn() -> Erased<Native>,
    seed: u64,
    (protocol, fault): (CommitProtocol, Option<AnyFault>),
) -> u64 {
    let random = &mut SmallRng::seed_from_u64(seed);
    let keys = [1, 2, KEYS][random.random_range(0..3)];
    let options = EngineOptions {
        commit_time_updates: random.random(),
        timestamp_splitting: random.random(),
        ..EngineOptions::default()
    };
    let mut disk = FaultyDisk::new(plan(random));
    let mut before = None::<(State, Vec<Commit>)>;
    let mut acknowledged = 0;
    for _ in 0..4 {
        // Until it can be opened: recoveries crash as well.
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
        if let Some((first, commits)) = &before {
            assert!(
                is_possible(protocol, first, commits, &world.found.1),
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
        before = Some((std::mem::take(&mut world.found.1), std::mem::take(&mut world.commits)));
        drop(world);
        let next = if random.random_bool(0.3) { Plan::default() } else { plan(random) };
        if random.random_bool(0.3) {
            // Only the process has crashed, and the next finds what it has written; the machine may
            // crash later.
            disk.fail(next);
        } else {
            disk = disk.after_crash(next);
        }
    }
    acknowledged
}

struct Crashes(CommitProtocol, u64);

impl ProtocolVisitor<Native> for Crashes {
    type Output = ();

    fn visit<P: NamedProtocol<Native>>(self) {
        let (name, mut acknowledged) = (P::INFO.name, 0);
        let Crashes(protocol, count) = self;
        // A protocol that exposes a row before the commit can't make its readers wait until the
        // commit is durable.
        if protocol.holds_rows() && P::SHOWS_UNCOMMITTED {
            return;
        }
        for seed in seeds(count) {
            let crash = || crash_and_recover(&|| Erased::new(P::new(Default::default())), seed, (protocol, None));
            acknowledged +=
                std::panic::catch_unwind(crash).unwrap_or_else(|_| panic!("{name}, {protocol:?}, seed {seed}"));
        }
        assert!(acknowledged > 8 * count || std::env::var("CRASH_SEED").is_ok(), "{name}: {acknowledged} acknowledged");
    }
}

#[test]
fn what_was_acknowledged_survives_under_every_protocol() {
    for (info, _) in all_protocols::<Native>() {
        with_protocol::<Native, _>(info.name, Crashes(EPOCH, 60)).expect("a registered name");
    }
}

/// With early release all up to some commit is there, with conservative release of each worker's
/// all up to some.
#[test]
fn what_workers_flush_by_themselves_survives_too() {
    for release in [Release::Early, Release::Conservative] {
        for group in [1, 4] {
            for (info, _) in all_protocols::<Native>() {
                with_protocol::<Native, _>(info.name, Crashes(workers(release, group), 20)).expect("a registered name");
            }
        }
    }
}

struct Orders;

impl ProtocolVisitor<Native> for Orders {
    type Output = u32;

    /// One transaction begins, writes, and sees what another has committed in a later epoch; how
    /// often both could commit.
    fn visit<P: NamedProtocol<Native>>(self) -> u32 {
        let name = P::INFO.name;
        let mut both = 0;
        for protocol in [EPOCH, workers(Release::Early, 1)] {
            let disk = FaultyDisk::new(Plan::default());
            let silo = Erased::new(P::new(Default::default()));
            let mut world = World::open(&disk, silo, EngineOptions::default(), (protocol, None)).expect("a disk");
            let World { engine, narrow, workers, .. } = &mut world;
            let [first, second, _] = &mut workers[..] else { unreachable!("there are three") };
            let insert = |tx: &mut Transaction<'_, _, _>, key| {
                tx.insert_row(narrow, key)?.expect("it is not there").fill(1);
                Ok(())
            };
            first.run(|tx| (0..3).try_for_each(|key| insert(tx, key))).expect("nobody else");
            let mut early = first.begin();
            let began = early.write_row(narrow, 0, Groups::ALL).map(|row| row.expect("it is there").fill(2));
            let shown = began.and_then(|()| early.read_row(narrow, 2, Projection::WHOLE).map(|_| ()));
            assert!(engine.epochs().try_advance(), "one epoch may be begun");
            let late = second.run(|tx| {
                tx.write_row(narrow, 1, Groups::ALL)?.expect("it is there").fill(3);
                Ok(())
            });
            let seen =
                shown.and_then(|()| early.read_row(narrow, 1, Projection::WHOLE).map(|row| row.map(|row| row[0])));
            if early.commit().is_ok() && late.is_ok() && seen == Ok(Some(3)) {
                both += 1;
                assert!(first.committed_in() >= second.committed_in(), "{name}: the epoch of what it has seen");
                assert!(protocol == EPOCH || first.ticket() > second.ticket(), "{name}: the LSN of what it has seen");
            }
        }
        both
    }
}

/// A transaction that reads from another commits later, even if the protocol exposes rows before
/// they commit.
#[test]
fn what_is_seen_comes_before() {
    let protocols = all_protocols::<Native>();
    let both = protocols.iter().map(|(info, _)| with_protocol::<Native, _>(info.name, Orders));
    let seen: Vec<u32> = both.map(|both| both.expect("a registered name")).collect();
    assert!(seen.iter().filter(|&&both| both == 2).count() >= 8, "{seen:?}");
}

fn silo() -> Erased<Native> {
    Erased::new(<contend_protocols::optimistic::silo::Silo as NamedProtocol<Native>>::new(Default::default()))
}

/// Mutants are found by panics. Their messages are of no interest.
fn hide_panics_of_mutants() {
    std::panic::set_hook(Box::new(|info| {
        if std::thread::current().name() != Some("mutant") {
            eprintln!("{info}");
        }
    }));
}

#[test]
fn every_mutant_is_found() {
    hide_panics_of_mutants();
    // Of these one does no harm, and the others need transactions that are interleaved:
    // `crates/proof/tests/it/mutants.rs` has them.
    let elsewhere = [Fault::SettleRunning, Fault::SlotsBeforeCounter, Fault::ForgetLastTombstones];
    for &fault in Fault::ALL.iter().filter(|fault| !elsewhere.contains(fault)) {
        let protocol = match fault {
            Fault::AcknowledgeOwn | Fault::IgnoreGaps | Fault::ForgetGap => workers(Release::Early, 4),
            Fault::IgnoreHolds => workers(Release::Conservative, 4),
            Fault::SkipTails => workers(Release::Conservative, 1),
            _ => EPOCH,
        };
        let search = move || {
            let with = (protocol, Some(AnyFault::Log(fault)));
            let is_found = |seed: &u64| std::panic::catch_unwind(|| crash_and_recover(&silo, *seed, with)).is_err();
            (0..3000).find(is_found)
        };
        let thread = std::thread::Builder::new().name("mutant".to_owned()).spawn(search).expect("a thread");
        let seed = thread.join().expect("what panics is caught");
        println!("{fault:?}: found by seed {seed:?}");
        assert!(seed.is_some(), "{fault:?} is not found");
    }
}

/// A key is deleted, inserted again on its tombstone, and deleted again two epochs later. That
/// deletion is not queued a second time, so the first one's place in the queue says that the
/// tombstone is old. Then the key is inserted once more, in the same epoch.
struct Reborn(Option<EngineFault>);

impl ProtocolVisitor<Native> for Reborn {
    type Output = (&'static str, Result<bool, LogError>);

    /// Whether the row is there after that.
    fn visit<P: NamedProtocol<Native>>(self) -> Self::Output {
        let disk = FaultyDisk::new(Plan::default());
        let protocol = Erased::new(P::new(Default::default()));
        let fault = (EPOCH, self.0.map(AnyFault::Engine));
        let mut world = World::open(&disk, protocol, EngineOptions::default(), fault).expect("a disk that works");
        let narrow = world.narrow;
        let insert = |world: &mut World| {
            let inserted = world.workers[0].run(|tx| {
                tx.insert_row(&narrow, 7)?.expect("it is not there").fill(1);
                Ok(())
            });
            inserted.expect("nobody else");
        };
        let delete = |world: &mut World| {
            assert_eq!(world.workers[0].run(|tx| tx.delete(&narrow, 7)), Ok(true));
        };
        insert(&mut world);
        delete(&mut world);
        world.advance();
        insert(&mut world);
        world.advance();
        delete(&mut world);
        world.workers[0].collect();
        insert(&mut world);
        world.advance();
        world.flush().expect("a disk that works");
        let found = contend_log::inspect::recover(&disk, 1, &|_| ());
        (P::INFO.name, found.map(|found| state_of(&found).contains_key(&(0, 7))))
    }
}

#[test]
fn a_key_that_is_deleted_twice_and_inserted_in_one_epoch_is_there() {
    for (info, _) in all_protocols::<Native>() {
        let (name, found) = with_protocol::<Native, _>(info.name, Reborn(None)).expect("a registered name");
        assert_eq!(found, Ok(true), "{name}");
    }
    hide_panics_of_mutants();
    let broken = || with_protocol::<Native, _>("tictoc", Reborn(Some(EngineFault::UnlinkYoung)));
    let mutant = std::thread::Builder::new().name("mutant".to_owned()).spawn(broken).expect("a thread");
    let found = mutant.join();
    if cfg!(debug_assertions) {
        // The assertion about write counters comes first.
        assert!(found.is_err(), "{found:?}");
    } else {
        assert!(matches!(found, Ok(Some((_, Err(LogError::Disorder { .. }))))), "{found:?}");
    }
}

/// A tombstone that leaves the index in the epoch of its write counter is found under every
/// protocol that does not keep it for longer.
struct FindsYoung;

impl ProtocolVisitor<Native> for FindsYoung {
    type Output = Option<u64>;

    fn visit<P: NamedProtocol<Native>>(self) -> Option<u64> {
        let search = || {
            let make = || Erased::new(P::new(Default::default()));
            let with = (EPOCH, Some(AnyFault::Engine(EngineFault::UnlinkYoung)));
            (0..300).find(|seed| std::panic::catch_unwind(|| crash_and_recover(&make, *seed, with)).is_err())
        };
        let thread = std::thread::Builder::new().name("mutant".to_owned()).spawn(search).expect("a thread");
        thread.join().expect("what panics is caught")
    }
}

#[test]
fn unlinking_in_the_epoch_of_the_stamp_is_found() {
    hide_panics_of_mutants();
    let mut found = Vec::new();
    for (info, _) in all_protocols::<Native>() {
        let seed = with_protocol::<Native, _>(info.name, FindsYoung).expect("a registered name");
        println!("{}: found by seed {seed:?}", info.name);
        found.extend(seed.map(|_| info.name));
    }
    // Timestamp ordering and versions keep a tombstone until all have ended that began in its
    // epoch.
    let keep = ["timestamp-ordering", "mvto", "cicada", "msto", "si", "ermia", "hekaton"];
    let others = all_protocols::<Native>().into_iter().map(|(info, _)| info.name);
    assert_eq!(found, others.filter(|name| !keep.contains(name)).collect::<Vec<_>>());
}

/// Worker 1 inserts a row. Worker 0 then changes it until its buffer overflows into a file, which
/// ends there; the insert is still in the buffer of worker 1, whose next file gets it. A checkpoint
/// of the first file alone has changes of the row and no insert. It counts the row.
#[test]
fn a_checkpoint_counts_rows_whose_insert_is_in_a_file_that_stays() {
    for (what, operation) in [("additions", 4), ("a group that is overwritten", 2)] {
        let disk = FaultyDisk::new(Plan::default());
        let options = EngineOptions { commit_time_updates: true, ..EngineOptions::default() };
        let mut world = World::open(&disk, silo(), options, (EPOCH, None)).expect("a disk that works");
        let narrow = world.narrow;
        let inserted = world.workers[1].run(|tx| operate(tx, &narrow, 7, 0, 1, None));
        let (_, mut row) = inserted.expect("no other transaction runs");
        let before = world.log.bytes();
        while world.log.bytes() == before {
            let changed = world.workers[0].run(|tx| operate(tx, &narrow, 7, operation, 3, row));
            (_, row) = changed.expect("no other transaction runs");
        }
        world.log.begin_files();
        world.advance();
        world.flush().expect("a disk that works");
        let checkpoint = world.log.checkpoint_by_hand().expect("a disk that works");
        assert_eq!((checkpoint.rows, checkpoint.replaced.0), (1, 1), "{what}");
        // The insert is in a file that stays: the row is as it was left.
        let (_, recovered) = Log::open(Arc::new(disk), config(EPOCH, None)).expect("it is whole");
        assert_eq!(state_of(&recovered).get(&(0, 7)), row.as_ref(), "{what}");
        // The next checkpoint has the insert as well, and counts the row once.
        world.log.begin_files();
        world.flush().expect("a disk that works");
        let checkpoint = world.log.checkpoint_by_hand().expect("a disk that works");
        assert_eq!((checkpoint.rows, checkpoint.replaced.0), (1, 2), "{what}");
    }
}

/// A log of some epochs and files, and the state in the end, all of which is durable.
fn log_of_some_epochs(disk: &FaultyDisk, commit: CommitProtocol) -> State {
    let random = &mut SmallRng::seed_from_u64(1);
    let mut world = World::open(disk, silo(), EngineOptions::default(), (commit, None)).expect("a disk that works");
    for _ in 0..60 {
        world.transact(random);
        world.advance();
        if commit == EPOCH {
            world.flush().expect("a disk that works");
        }
    }
    world.workers.iter_mut().for_each(Worker::go_offline);
    std::mem::take(&mut world.state)
}

/// A file that is cut off at any byte of its last two blocks.
#[test]
fn a_file_that_is_cut_off_is_missed() {
    for commit in [EPOCH, workers(Release::Early, 2), workers(Release::Conservative, 2)] {
        let disk = FaultyDisk::new(Plan::default());
        let last = log_of_some_epochs(&disk, commit);
        assert_eq!(
            Log::open(Arc::new(disk.after_crash(Plan::default())), config(commit, None))
                .map(|(_, found)| state_of(&found)),
            Ok(last)
        );
        let mut cuts = 0;
        for name in disk.names().expect("a disk that works").iter().filter(|name| name.starts_with("log-")) {
            let bytes = disk.contents(name).expect("it is there");
            let blocks: Vec<usize> = (0..bytes.len()).filter(|&place| bytes[place..].starts_with(b"blk\x01")).collect();
            let end = bytes.iter().rposition(|&byte| byte != 0).expect("it has a header") + 1;
            let start = blocks[blocks.len().saturating_sub(2)];
            for place in start..end {
                let damaged = disk.after_crash(Plan::default());
                damaged.damage(name, bytes[..place].to_vec());
                match Log::open(Arc::new(damaged), config(commit, None)) {
                    Err(LogError::Damaged { place: file, offset, .. }) => {
                        assert_eq!((file, offset), (name.clone(), place as u64))
                    }
                    other => panic!("{commit:?}, {name} cut off at byte {place}: {other:?}"),
                }
                cuts += 1;
            }
        }
        assert!(cuts > 1000, "{cuts}");
    }
}

/// A file that is cut off, or in which a bit is wrong, is noticed, or it does not matter: nothing
/// that was acknowledged is ever not there.
#[test]
fn damage_is_noticed_or_does_no_harm() {
    let disk = FaultyDisk::new(Plan::default());
    let last = &log_of_some_epochs(&disk, EPOCH);
    let (mut harmless, mut noticed) = (0, 0);
    let mut try_with = |name: &str, bytes: Vec<u8>, what: String| {
        let damaged = disk.after_crash(Plan::default());
        damaged.damage(name, bytes);
        match Log::open(Arc::new(damaged), config(EPOCH, None)) {
            Ok((_, recovered)) => {
                assert_eq!(&state_of(&recovered), last, "{name}, {what}");
                harmless += 1;
            }
            Err(error @ (LogError::Damaged { .. } | LogError::Version { .. })) => {
                assert!(error.to_string().contains(name), "{error}");
                noticed += 1;
            }
            Err(error) => panic!("{name}, {what}: {error}"),
        }
    };
    let mut random = SmallRng::seed_from_u64(2);
    for name in disk.names().expect("a disk that works") {
        let bytes = disk.contents(&name).expect("it is there");
        // Most of the manifest is zeros: its other bytes, and some of the zeros.
        let mut places: Vec<usize> = (0..bytes.len()).filter(|&place| bytes[place] != 0).collect();
        places.extend((0..100).map(|_| random.random_range(0..bytes.len())));
        let every = places.len().div_ceil(600);
        for &place in places.iter().step_by(every) {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1 << random.random_range(0..8);
            try_with(&name, flipped, format!("byte {place} flipped"));
        }
        for &place in places.iter().step_by(2 * every) {
            try_with(&name, bytes[..place].to_vec(), format!("cut off at byte {place}"));
        }
    }
    assert!(noticed > 500 && harmless > 50, "{noticed} noticed, {harmless} harmless");
}

#[test]
fn a_file_that_is_not_there_is_missed() {
    let disk = FaultyDisk::new(Plan::default());
    log_of_some_epochs(&disk, EPOCH);
    for name in disk.names().expect("a disk that works") {
        let other = disk.after_crash(Plan::default());
        other.remove(&name).expect("it is there");
        let outcome = Log::open(Arc::new(other), config(EPOCH, None)).map(|_| ());
        assert_eq!(outcome, Err(LogError::Missing { place: name }));
    }
}
