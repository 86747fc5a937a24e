//! Crashes at any point, on disks that fail, under every protocol: what was acknowledged is there afterwards, and what is there was the state at some
//! time.
//!
//! Each failure names its protocol and its seed; `CRASH_SEED=n cargo test -p contend-log --test crash` runs that one alone.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use contend_engine::{
    Abort, AddToWord, Engine, EngineConfig, EngineOptions, Erased, Groups, IndexKind, Key, Projection, Protocol,
    RowUpdate, Span, Table, TableSpec, Transaction, Txn, Worker,
};
use contend_log::fault::Fault;
use contend_log::faulty::{FaultyDisk, Plan};
use contend_log::{Disk, Log, LogConfig, LogError, LogJournals, Recovered, Schema};
use contend_machine::Native;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Keys of each table.
const KEYS: u64 = 8;
/// Words of a row, in two groups.
const WORDS: usize = 4;
const GROUPS: [(usize, usize); 2] = [(0, 1), (1, 4)];

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
    narrow: Arc<Table<Native, u64>>,
    wide: Arc<Table<Native, WideKey>>,
    workers: Vec<Worker<Erased<Native>, Native>>,
    /// The state after each commit, and the epoch that it was in.
    states: Vec<(u64, State)>,
}

fn state_of(recovered: &Recovered) -> State {
    let mut state = State::new();
    for table in &recovered.tables {
        let number = u32::from(table.schema.name == "wide");
        for (key, row) in &table.rows {
            let key = if number == 0 { key[0] } else { key[1] };
            let row = (**row).try_into().expect("as many words as there are");
            assert_eq!(state.insert((number, key), row), None, "a key twice");
        }
    }
    state
}

fn config(fault: Option<Fault>) -> LogConfig {
    // Short files, and buffers that overflow.
    LogConfig { workers: 4, segment_bytes: 700, buffer_bytes: 300, checkpoint_bytes: 0, threads: 2, fault }
}

impl World {
    fn open(
        disk: &FaultyDisk,
        protocol: Erased<Native>,
        options: EngineOptions,
        fault: Option<Fault>,
    ) -> Result<Self, LogError> {
        let (log, recovered) = Log::open(Arc::new(disk.clone()), config(fault))?;
        let config = EngineConfig { workers_max: 4, epoch_ms: u64::MAX, options, ..EngineConfig::default() };
        let engine = Engine::with_journals(protocol, config, Some(Arc::new(LogJournals(Arc::clone(&log)))));
        engine.epochs().begin_at(log.first_epoch());
        let groups = GROUPS.map(|(start, end)| Span { first: start as u32, count: (end - start) as u32 });
        let spec = |name: &str, index| {
            let spec = TableSpec::of_bytes(name, index, WORDS * 8, 16);
            TableSpec { groups: groups.to_vec(), ..spec }
        };
        let narrow: Arc<Table<Native, u64>> = engine.create_table(&spec("narrow", IndexKind::Ordered));
        let wide_table: Arc<Table<Native, WideKey>> = engine.create_table(&spec("wide", IndexKind::Hash));
        log.bind(narrow.id(), &schema("narrow", 1, true))?;
        log.bind(wide_table.id(), &schema("wide", 2, false))?;
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
        Ok(World { engine, narrow, wide: wide_table, workers, states: vec![(log.durable(), state)], log })
    }

    /// A transaction of some operations.
    fn transact(&mut self, random: &mut SmallRng) {
        let mut state = self.states.last().expect("the first").1.clone();
        let worker = &mut self.workers[random.random_range(0..3)];
        let (narrow, wide_table) = (&self.narrow, &self.wide);
        let draw = |random: &mut SmallRng| {
            let (number, key) = (random.random_range(0..2), random.random_range(0..KEYS));
            (number, key, random.random_range(0..6), random.random())
        };
        let operations: Vec<_> = (0..random.random_range(1..5)).map(|_| draw(random)).collect();
        let commits = random.random_bool(0.9);
        let outcome = worker.run(|tx| {
            for &(number, key, operation, value) in &operations {
                let old = state.get(&(number, key)).copied();
                let new = match number {
                    0 => operate(tx, narrow, key, operation, value, old)?,
                    _ => operate(tx, wide_table, wide(key), operation, value, old)?,
                };
                match new {
                    Some(row) => _ = state.insert((number, key), row),
                    None => _ = state.remove(&(number, key)),
                }
            }
            if commits { Ok(()) } else { Err(tx.cancel()) }
        });
        assert_eq!(outcome.is_ok(), commits, "nobody is in the way");
        if commits {
            self.states.push((worker.committed_in(), state));
        }
    }

    /// Moves the epoch on.
    fn advance(&mut self) {
        self.workers.iter_mut().for_each(Worker::go_offline);
        assert!(self.engine.epochs().try_advance());
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

    fn flush(&self) -> Result<(), LogError> {
        self.log.flush(self.engine.epochs().oldest() - 1)
    }
}

/// Does something to a row; what it is then.
fn operate<K: Key>(
    tx: &mut Transaction<'_, Erased<Native>, Native>,
    table: &Table<Native, K>,
    key: K,
    operation: u32,
    value: u64,
    old: Option<[u64; WORDS]>,
) -> Result<Option<[u64; WORDS]>, Abort> {
    let right = Groups::of(1);
    Ok(match (operation, old) {
        (0 | 1, None) => {
            let row = [value; WORDS];
            tx.insert_row(table, key)?.expect("it is not there").copy_from_slice(&row);
            Some(row)
        }
        (0, Some(_)) => {
            assert!(tx.delete(table, key)?);
            None
        }
        (1, Some(_)) => {
            tx.write_row(table, key, Groups::ALL)?.expect("it is there").fill(value);
            Some([value; WORDS])
        }
        (2, Some(mut row)) => {
            tx.write_row(table, key, right)?.expect("it is there")[1..].fill(value);
            row[1..].fill(value);
            Some(row)
        }
        (3, Some(mut row)) => {
            tx.modify_row(table, key, Groups::FIRST)?.expect("it is there")[0] = value;
            row[0] = value;
            Some(row)
        }
        (4, Some(mut row)) => {
            let update = AddToWord { groups: right, word: 2, value };
            assert!(tx.update_row(table, key, RowUpdate::add_to_word(&update))?);
            row[2] = row[2].wrapping_add(value);
            Some(row)
        }
        (_, old) => {
            assert_eq!(tx.read_row(table, key, Projection::WHOLE)?, old.as_ref().map(<[u64; WORDS]>::as_slice));
            old
        }
    })
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

/// A plan in which something goes wrong, mostly.
fn plan(random: &mut SmallRng) -> Plan {
    let mut plan = Plan { seed: random.random(), ..Plan::default() };
    plan.sector = if random.random_bool(0.5) { 512 } else { 4096 };
    let at = Some(random.random_range(0..80));
    match random.random_range(0..6) {
        0..3 => plan.crash_at = at,
        3 => plan.write_fails_at = at,
        4 => plan.sync_fails_at = at,
        _ => plan.capacity = (1 << 20) + random.random_range(0..6000),
    }
    plan
}

/// Runs, crashes, recovers, and goes on, some times; how many commits there were that had been acknowledged.
fn crash_and_recover(make: &dyn Fn() -> Erased<Native>, seed: u64, fault: Option<Fault>) -> u64 {
    let random = &mut SmallRng::seed_from_u64(seed);
    let options = EngineOptions {
        commit_time_updates: random.random(),
        timestamp_splitting: random.random(),
        ..EngineOptions::default()
    };
    let mut disk = FaultyDisk::new(plan(random));
    let mut before = None::<(u64, Vec<(u64, State)>)>;
    let mut acknowledged = 0;
    for _ in 0..4 {
        // Until it can be opened: recoveries crash as well.
        let mut world = loop {
            match World::open(&disk, make(), options.clone(), fault) {
                Ok(world) => break world,
                Err(LogError::Io { .. } | LogError::Stopped { .. }) => {
                    let next = if random.random_bool(0.5) { Plan::default() } else { plan(random) };
                    disk = disk.after_crash(next);
                }
                Err(error) => panic!("{error}"),
            }
        };
        if let Some((durable, states)) = &before {
            // The state at the end of some epoch, no earlier than the last that was acknowledged.
            let found = &world.states[0].1;
            let first = states.iter().rposition(|(epoch, _)| epoch <= durable).expect("the first");
            let ends = |place: usize| states.get(place + 1).is_none_or(|(next, _)| *next > states[place].0);
            let is_one = |place: usize| &states[place].1 == found && ends(place);
            assert!((first..states.len()).any(is_one), "durable up to {durable}: {found:?}, of {states:?}");
            acknowledged += first as u64;
        }
        for _ in 0..random.random_range(5..60) {
            world.transact(random);
            if random.random_bool(0.2) {
                world.advance();
            }
            if random.random_bool(0.2) && world.flush().is_err() {
                break;
            }
            if random.random_bool(0.05) && world.checkpoint(random).is_err() {
                break;
            }
        }
        if random.random_bool(0.3) {
            world.advance();
            let _ = world.flush();
        }
        before = Some((world.log.durable(), std::mem::take(&mut world.states)));
        drop(world);
        let next = if random.random_bool(0.3) { Plan::default() } else { plan(random) };
        disk = disk.after_crash(next);
    }
    acknowledged
}

struct Crashes;

impl ProtocolVisitor<Native> for Crashes {
    type Output = ();

    fn visit<P: Protocol<Native>>(self) {
        let (name, mut acknowledged) = (P::INFO.name, 0);
        for seed in seeds(60) {
            let crash = || crash_and_recover(&|| Erased::new(P::new(Default::default())), seed, None);
            acknowledged += std::panic::catch_unwind(crash).unwrap_or_else(|_| panic!("{name}, seed {seed}"));
        }
        assert!(acknowledged > 500 || std::env::var("CRASH_SEED").is_ok(), "{name}: {acknowledged} acknowledged");
    }
}

#[test]
fn what_was_acknowledged_survives_under_every_protocol() {
    for (info, _) in all_protocols::<Native>() {
        with_protocol::<Native, _>(info.name, Crashes).expect("a registered name");
    }
}

fn silo() -> Erased<Native> {
    Erased::new(<contend_protocols::silo::Silo as Protocol<Native>>::new(Default::default()))
}

#[test]
fn every_mutant_is_found() {
    std::panic::set_hook(Box::new(|info| {
        // Mutants are found by panics, which nobody needs to read.
        if std::thread::current().name() != Some("mutant") {
            eprintln!("{info}");
        }
    }));
    for &fault in Fault::ALL {
        let search = move || {
            let is_found =
                |seed: &u64| std::panic::catch_unwind(|| crash_and_recover(&silo, *seed, Some(fault))).is_err();
            (0..3000).find(is_found)
        };
        let thread = std::thread::Builder::new().name("mutant".to_owned()).spawn(search).expect("a thread");
        let seed = thread.join().expect("what panics is caught");
        println!("{fault:?}: found by seed {seed:?}");
        assert!(seed.is_some(), "{fault:?} is not found");
    }
}

/// A log of some epochs and files, and the states there were.
fn log_of_some_epochs(disk: &FaultyDisk) -> Vec<(u64, State)> {
    let random = &mut SmallRng::seed_from_u64(1);
    let mut world = World::open(disk, silo(), EngineOptions::default(), None).expect("a disk that works");
    for _ in 0..30 {
        world.transact(random);
        world.advance();
        world.flush().expect("a disk that works");
    }
    std::mem::take(&mut world.states)
}

/// A file that is cut off, or in which a bit is wrong, is noticed, or it does not matter: nothing that was acknowledged is ever not there.
#[test]
fn damage_is_noticed_or_does_no_harm() {
    let disk = FaultyDisk::new(Plan::default());
    let states = log_of_some_epochs(&disk);
    let last = &states.last().expect("the first").1;
    let (mut harmless, mut noticed) = (0, 0);
    let mut try_with = |name: &str, bytes: Vec<u8>, what: String| {
        let damaged = disk.after_crash(Plan::default());
        damaged.damage(name, bytes);
        match Log::open(Arc::new(damaged), config(None)) {
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
        // Of the manifest, of which most is zeros, the bytes that are not, and some others.
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
    log_of_some_epochs(&disk);
    for name in disk.names().expect("a disk that works") {
        let other = disk.after_crash(Plan::default());
        other.remove(&name).expect("it is there");
        let outcome = Log::open(Arc::new(other), config(None)).map(|_| ());
        assert_eq!(outcome, Err(LogError::Missing { place: name }));
    }
}
