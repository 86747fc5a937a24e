//! Random transactions on real threads and few keys; each history is checked, replayed, and
//! compared with the tables.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use contend_derive::Row;
use contend_engine::{
    Abort, AbortReason, Declaration, Direction, Engine, Erased, Groups, IndexKind, Isolation, NamedProtocol, Options,
    Projection, Protocol, RawTxn, ReadOrWritten, RowUpdate, Table, TableSpec, Transaction, Txn, Update, UpdateOf,
    Worker,
};
use contend_judge::{recorded, verify_history};
use contend_machine::{Interleaved, Machine, Native, Stack, run_together};
use contend_protocols::fault::Chosen;
use contend_protocols::multiversion::cicada::Cicada;
use contend_protocols::multiversion::msto::Msto;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::jitter::{self, Jitter};
use crate::support::{
    ENGINE_OPTIONS, GenericTest, INDEXES, ProtocolTest, engine, engine_with, for_each_protocol, rounds, table,
};

/// The configuration of a storm: many threads that run random transactions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Storm {
    pub(crate) index: IndexKind,
    pub(crate) threads: usize,
    /// The number of transactions that each thread commits. The first thread commits a tenth and
    /// leaves.
    pub(crate) commits: usize,
    pub(crate) keys: u64,
    pub(crate) seed: u64,
    /// Whether keys are inserted and deleted.
    pub(crate) inserts: bool,
    /// The position in [`ENGINE_OPTIONS`].
    pub(crate) engine: usize,
}

/// A row of two groups of two words each.
#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Wide {
    a: u64,
    b: u64,
    #[group = 1]
    c: u64,
    #[group = 1]
    d: u64,
}

/// One group, the other, or both.
fn some_groups(random: &mut SmallRng) -> Groups {
    [Groups::of(0), Groups::of(1), Groups::ALL][random.random_range(0..3)]
}

/// Changes one group depending on its contents, in a way that does not commute.
#[derive(Clone, Copy)]
struct Mix(u64);

impl Update<Wide> for Mix {
    fn groups(&self) -> Groups {
        Groups::of(1)
    }

    fn apply(&self, row: &mut Wide) {
        row.c = row.c.wrapping_mul(3) ^ self.0;
        row.d = row.c;
    }
}

/// One random operation that only reads.
fn reading<P: Protocol<M>, M: Machine>(
    tx: &mut Transaction<'_, P, M>,
    rows: &Table<u64>,
    storm: Storm,
    random: &mut SmallRng,
) -> Result<(), Abort> {
    let key = random.random_range(0..storm.keys);
    let columns = Projection::of_groups(some_groups(random));
    match random.random_range(0..3) {
        0 => drop(tx.read_row(rows, key, columns)?),
        1 if storm.index == IndexKind::Ordered => {
            let high = (key + random.random_range(0..8)).min(storm.keys);
            tx.scan_rows(rows, key..=high, 9, Direction::Forward, columns, |_, _| ControlFlow::Continue(()))?;
        }
        _ => tx.read_rows(rows, &[key, random.random_range(0..storm.keys)], Projection::WHOLE, |_, _| {})?,
    }
    Ok(())
}

/// One random operation.
fn operation<P: Protocol<M>, M: Machine>(
    tx: &mut Transaction<'_, P, M>,
    rows: &Table<u64>,
    storm: Storm,
    random: &mut SmallRng,
) -> Result<(), Abort> {
    // Where a core has several transactions in flight, the tables are too small to be far away.
    // Only waits would switch.
    if M::overlaps() && random.random_range(0..3) == 0 {
        M::await_prefetched();
    }
    let key = random.random_range(0..storm.keys);
    let value = random.random();
    let kinds = if !storm.inserts {
        7
    } else if storm.index == IndexKind::Ordered {
        11
    } else {
        9
    };
    match random.random_range(0..kinds) {
        0 => {
            tx.read_row(rows, key, Projection::of_groups(some_groups(random)))?;
        }
        1 => {
            let other = random.random_range(0..storm.keys);
            tx.read_rows(rows, &[key, other], Projection::WHOLE, |_, _| {})?;
        }
        2 if value % 4 == 0 => {
            let keys = (&[key, random.random_range(0..storm.keys)][..], &[value % 8 == 0, true][..]);
            tx.read_or_write_rows(rows, keys, Projection::WHOLE, Groups::ALL, |_, row| {
                if let ReadOrWritten::Written(Some(row)) = row {
                    row.fill(value);
                }
            })?;
        }
        2 => {
            if let Some(row) = tx.write_row(rows, key, Groups::ALL)? {
                row.fill(value);
            }
        }
        3 if value % 4 == 0 => {
            let keys = [key, random.random_range(0..storm.keys)];
            tx.modify_rows(rows, &keys, Groups::of(0), |_, row| {
                if let Some(row) = row {
                    row[..2].fill(value);
                }
            })?;
        }
        3 => {
            let groups = some_groups(random);
            if let Some(row) = tx.modify_row(rows, key, groups)? {
                let words = if groups == Groups::of(0) { 0..2 } else { 2..4 };
                let read = row[words.start];
                row[words].fill(value ^ read);
            }
        }
        4 => {
            tx.update_row(rows, key, RowUpdate::new(&Wide::A.add(value)))?;
        }
        5 => {
            tx.update_row(rows, key, RowUpdate::new(&Mix(value)))?;
        }
        6 if value % 2 == 0 => {
            let keys = [key, random.random_range(0..storm.keys)];
            let mix = UpdateOf::<Wide, _>::new(Mix(value));
            tx.update_rows(rows, &keys, Projection::of_groups(some_groups(random)), |_, row| row.map(|_| mix))?;
            tx.change_rows(rows, &keys, &[mix; 2], |_, _| ())?;
        }
        6 => {
            tx.update_row(rows, key, RowUpdate::new(&(Wide::B.max(value), Wide::D.set(value))))?;
        }
        7 if value % 2 == 0 => {
            let keys = [key, key + 1, key + 2];
            tx.insert_rows(rows, &keys, |_, row| {
                if let Some(row) = row {
                    row.fill(value);
                }
            })?;
        }
        7 => {
            if let Some(row) = tx.insert_row(rows, key)? {
                row.fill(value);
            }
        }
        8 => {
            tx.delete(rows, key)?;
        }
        kind => {
            let direction = if kind == 9 { Direction::Forward } else { Direction::Backward };
            let high = (key + random.random_range(0..8)).min(storm.keys);
            let limit = random.random_range(1..6);
            let columns = Projection::of_groups(some_groups(random));
            tx.scan_rows(rows, key..=high, limit, direction, columns, |_, _| ControlFlow::Continue(()))?;
        }
    }
    Ok(())
}

fn work<P: Protocol<M>, M: Machine>(worker: &mut Worker<P, M>, rows: &Table<u64>, storm: Storm, thread: usize) {
    let seed = storm.seed * 1000 + thread as u64;
    jitter::seed(seed);
    let mut random = SmallRng::seed_from_u64(seed);
    let mut steps = SmallRng::seed_from_u64(!seed);
    let commits = if thread == 0 { storm.commits / 10 } else { storm.commits };
    for _ in 0..commits {
        let transaction = SmallRng::seed_from_u64(random.random());
        let operations = random.random_range(1..7);
        let only_reads = random.random_range(0..4) == 0;
        // If the protocol has snapshots, some of the transactions that only read see one, and the
        // others the newest state.
        if only_reads
            && operations % 2 == 0
            && let Some(mut snapshot) = worker.begin_snapshot()
        {
            let mut random = transaction.clone();
            let seen = (0..operations).try_for_each(|_| reading(&mut snapshot, rows, storm, &mut random));
            seen.and_then(|()| snapshot.commit()).expect("a snapshot never aborts");
            continue;
        }
        loop {
            // The same transaction is tried again until it commits.
            let mut random = transaction.clone();
            let declare = |declaration: &mut Declaration<M>| {
                if only_reads {
                    declaration.read_only();
                }
            };
            let body = |tx: &mut Transaction<'_, P, M>| {
                (0..operations).try_for_each(|_| match only_reads {
                    true => reading(tx, rows, storm, &mut random),
                    false => operation(tx, rows, storm, &mut random),
                })
            };
            let outcome = worker.run_declared(declare, body);
            match outcome {
                Ok(()) => break,
                Err(abort) => {
                    assert!(abort.reason.is_conflict() && abort.reason != AbortReason::EpochExhausted, "{abort}");
                    // Not in step with the others on this core: two that disturb each other would
                    // do so for ever, since no transaction is protected here.
                    (0..steps.random_range(1..4)).for_each(|_| M::yield_now());
                }
            }
        }
    }
    worker.go_offline();
}

/// A machine on which a storm can run.
pub(crate) trait Threads: Machine {
    /// The transactions that each thread of a storm commits.
    const COMMITS: usize = 150;

    /// Runs a body with each number below `count`, all at once, and returns their results. The
    /// threads have the fault that this one has chosen.
    fn all<T: Send>(count: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let fault = Chosen::id();
        let body = |number| Chosen::during(fault, || body(number));
        std::thread::scope(|scope| {
            let body = &body;
            let threads: Vec<_> = (0..count).map(|number| scope.spawn(move || body(number))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        })
    }
}

impl Threads for Native {}

impl Threads for Jitter {
    // Each takes several times as long as on the host.
    const COMMITS: usize = 100;
}

impl Threads for Interleaved {
    /// Two coroutines on each thread.
    fn all<T: Send>(count: usize, body: impl Fn(usize) -> T + Sync) -> Vec<T> {
        let body = &body;
        let pair = |first: usize| {
            let results = RefCell::new(Vec::new());
            let one = |number| {
                let results = &results;
                Box::new(move || {
                    let result = body(number);
                    results.borrow_mut().push(result);
                }) as Box<dyn FnOnce() + '_>
            };
            let mut stacks = Stack::many(2).expect("addresses");
            run_together((first..count.min(first + 2)).map(one).collect(), &mut stacks);
            results.into_inner()
        };
        let pairs = Native::all(count.div_ceil(2), |half| pair(2 * half));
        pairs.into_iter().flatten().collect()
    }
}

/// Runs a storm, and returns the violations in its history.
pub(crate) fn run_storm<P: Protocol<M>, M: Threads>(
    protocol: P,
    storm: Storm,
    judged_by: Isolation,
) -> Result<(), String> {
    let engine: Arc<Engine<P, M>> = engine_with(protocol, true, ENGINE_OPTIONS[storm.engine].clone());
    let rows: Table<u64> = engine.create_table(&TableSpec::of::<Wide>("t", storm.index, 64));
    let mut loader = engine.loader().expect("a free slot");
    for key in (0..storm.keys).filter(|key| !storm.inserts || key % 2 == 0) {
        loader.insert(&rows, key, |row| row.fill(0)).expect("memory");
    }
    drop(loader);
    let histories = M::all(storm.threads, |thread| {
        let mut worker = engine.worker().expect("a free slot");
        work(&mut worker, &rows, storm, thread);
        // The worker ends here, before the other workers are done.
        worker.take_history()
    });
    let recorded = recorded(&engine, histories.into_iter().flatten().collect());
    let verification = verify_history(&recorded, judged_by);
    let expected = (storm.commits / 10 + (storm.threads - 1) * storm.commits) as u64;
    assert_eq!(verification.transactions, expected, "every commit is in the history");
    if verification.passed { Ok(()) } else { Err(format!("{}\n{:?}", verification.verdict, verification.explanation)) }
}

/// Storms of all kinds.
pub(crate) fn storms(commits: usize, seeds: std::ops::Range<u64>) -> impl Iterator<Item = Storm> {
    seeds.flat_map(move |seed| {
        INDEXES.into_iter().flat_map(move |index| {
            [(8, false), (8, true), (64, true)].into_iter().map(move |(keys, inserts)| Storm {
                index,
                threads: 3 + (seed % 2) as usize,
                commits,
                keys,
                seed,
                inserts,
                engine: (seed % 4) as usize,
            })
        })
    })
}

pub(crate) struct KeepsItsPromise;

impl<M: Threads> GenericTest<M> for KeepsItsPromise {
    fn run<P: Protocol<M>>(&self, name: &str, make: &dyn Fn() -> P) {
        let promise = make().info().isolation;
        for storm in storms(M::COMMITS, 0..4 * rounds()) {
            if let Err(wrong) = run_storm(make(), storm, promise) {
                panic!("{name} on {}: {storm:?}: {wrong}", M::NAME);
            }
        }
    }
}

#[test]
fn concurrent_histories_keep_the_promise() {
    for_each_protocol::<Native>(&KeepsItsPromise);
}

#[test]
fn concurrent_histories_keep_the_promise_with_races_opened() {
    for_each_protocol::<Jitter>(&KeepsItsPromise);
}

#[test]
fn concurrent_histories_keep_the_promise_with_several_transactions_in_flight_on_a_core() {
    for_each_protocol::<Interleaved>(&KeepsItsPromise);
}

/// Deletes, inserts, replaces and updates rows, beside writes that are left out where no
/// transaction will see them.
fn storms_over_omitted_writes<P: NamedProtocol<Jitter>>() {
    for (seed, engine) in
        (0..25 * rounds()).flat_map(|seed| (0..ENGINE_OPTIONS.len()).map(move |engine| (seed, engine)))
    {
        let mut options = P::Options::default();
        options.set("versions.nwr", "on").expect("an option");
        options.set("versions.overwrite", ["on", "off"][seed as usize % 2]).expect("an option");
        let storm = Storm { index: IndexKind::Hash, threads: 3, commits: 150, keys: 8, seed, inserts: true, engine };
        if let Err(wrong) = run_storm(Erased::new(P::new(options)), storm, P::INFO.isolation) {
            panic!("{}: {storm:?}: {wrong}", P::INFO.name);
        }
    }
}

#[test]
fn omitted_writes_break_nothing() {
    storms_over_omitted_writes::<Cicada<Jitter>>();
    storms_over_omitted_writes::<Msto<Jitter>>();
}

pub(crate) struct Oversubscribed;

impl GenericTest<Native> for Oversubscribed {
    fn run<P: Protocol<Native>>(&self, name: &str, make: &dyn Fn() -> P) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (8 * cores).min(60);
        let storm =
            Storm { index: IndexKind::Ordered, threads, commits: 100, keys: 16, seed: 3, inserts: true, engine: 1 };
        let promise = make().info().isolation;
        if let Err(wrong) = run_storm(make(), storm, promise) {
            panic!("{name}: {wrong}");
        }
    }
}

#[test]
fn eight_threads_a_core_make_progress() {
    for_each_protocol(&Oversubscribed);
}

struct IdleWorkers;

impl ProtocolTest<Native> for IdleWorkers {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        let engine = engine::<_, Native>(make(), false);
        let rows: Table<u64> = table(&engine, "t", IndexKind::Ordered, 8);
        let (mut idle, mut busy) = (engine.worker().expect("a slot"), engine.worker().expect("a slot"));
        // One worker has run and pauses without going offline, another leaves, and a third is only
        // registered.
        idle.run(|tx| Ok(tx.insert_row(&rows, 0)?.is_some())).expect("no conflict");
        let mut leaves = engine.worker().expect("a slot");
        leaves.run(|tx| Ok(tx.insert_row(&rows, 1)?.is_some())).expect("no conflict");
        leaves.run(|tx| tx.delete(&rows, 1)).expect("no conflict");
        drop(leaves);
        let _never_ran = engine.worker().expect("a slot");
        for pass in 0..5000u64 {
            let done = busy.run(|tx| {
                tx.insert_row(&rows, 2)?.expect("it was deleted").fill(pass);
                tx.modify_row(&rows, 0, Groups::ALL)?.expect("it was inserted")[0] += 1;
                tx.delete(&rows, 2)
            });
            assert_eq!(done, Ok(true), "{name}: pass {pass}");
        }
        let seen = idle.run(|tx| Ok(tx.read_row(&rows, 0, Projection::WHOLE)?.map(|row| row[0])));
        assert_eq!(seen, Ok(Some(5000)), "{name}");
    }
}

#[test]
fn workers_that_idle_or_leave_block_nobody() {
    for_each_protocol(&IdleWorkers);
}
