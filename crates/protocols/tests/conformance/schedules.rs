//! Anomalies as programs of two or three transactions, run in every order of their steps. Options
//! besides the default ones run in one order of three, and so do programs with more than a thousand
//! orders; `CONTEND_ROUNDS=2` runs all.
//!
//! Each transaction is a coroutine, and a conductor tells it which step to take next. A transaction
//! that waits for another goes on as soon as the other lets it. Steps may abort their transaction.
//! The judged result is the history of the committed transactions, by the protocol's promise, and
//! the state that they leave.
//!
//! The anomalies are those of the Hermitage suite and of Adya, Liskov and O'Neil (ICDE 2000). Each
//! runs on rows that exist and on rows that don't, at the ends of the keys' range, and with rows
//! deleted and inserted again. Published bugs that this table would have found come after them.

use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

use contend_engine::{
    AbortReason, Direction, Engine, EngineConfig, EngineOptions, Erased, Groups, IndexKind, Isolation, Projection,
    Protocol, RawTxn, RowUpdate, Table, Transaction, Txn, Worker,
};
use contend_judge::{recorded, verify_history};

use crate::conducted::{Conducted, Program, Turn, step};
use crate::support::{
    ENGINE_OPTIONS, LEFT, Pair, ProtocolTest, RIGHT, Triple, config_with, for_each_protocol, is_thorough, pairs, rounds,
};

/// A step of a transaction. Keys belong to the first table unless a step says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Read(u64),
    ReadOther(u64),
    Write(u64),
    WriteOther(u64),
    Modify(u64),
    Insert(u64),
    Delete(u64),
    Scan(u64, u64),
    ScanBack(u64, u64),
    /// The first rows of a range.
    First(u64, u64, usize),
    Batch(&'static [u64]),
    /// Reads one group of rows with two groups.
    ReadLeft(u64),
    ReadRight(u64),
    ModifyLeft(u64),
    ModifyRight(u64),
    /// Adds to a column of the second group, without reading it.
    Update(u64),
    /// Changes both groups, without reading them.
    UpdateAll(u64),
    ScanRight(u64, u64),
    Abort,
}

use Step::{
    Abort, Batch, Delete, First, Insert, Modify, ModifyLeft, ModifyRight, Read, ReadLeft, ReadOther, ReadRight, Scan,
    ScanBack, ScanRight, Update, UpdateAll, Write, WriteOther,
};

/// Whether some order of whole steps is wrong without concurrency control.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Needed,
    NotNeeded,
}

use Control::{Needed, NotNeeded};

/// An anomaly that may happen when these transactions interleave.
#[derive(Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// Keys loaded into both tables.
    pub(crate) loaded: &'static [u64],
    /// The steps of each transaction, which ends with a commit.
    pub(crate) programs: &'static [&'static [Step]],
    pub(crate) control: Control,
}

const MAX: u64 = u64::MAX;

const fn scenario(
    name: &'static str,
    loaded: &'static [u64],
    programs: &'static [&'static [Step]],
    control: Control,
) -> Scenario {
    Scenario { name, loaded, programs, control }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    scenario("G0: dirty writes", &[1, 2], &[&[Write(1), Write(2)], &[Write(1), Write(2)]], NotNeeded),
    scenario("G1a: aborted read", &[1, 2], &[&[Write(1), Abort], &[Read(1), Write(2)]], NotNeeded),
    scenario("G1a: aborted insert", &[2], &[&[Insert(1), Abort], &[Read(1), Write(2)]], NotNeeded),
    scenario("G1a: aborted insert, scanned", &[2], &[&[Insert(1), Abort], &[Scan(0, 9), Insert(1)]], NotNeeded),
    // Peloton showed a delete that was rolled back, and fell over it (pull requests 132, 757).
    scenario("G1a: aborted delete", &[1, 2], &[&[Delete(1), Abort], &[Read(1), Write(2)]], NotNeeded),
    scenario("G1b: intermediate read", &[1, 2], &[&[Write(1), Write(1)], &[Read(1), Write(2)]], NotNeeded),
    scenario("G1c: circular information", &[1, 2], &[&[Write(1), Read(2)], &[Write(2), Read(1)]], Needed),
    scenario(
        "OTV: a vanishing transaction",
        &[1, 2],
        &[&[Write(1), Write(2)], &[Modify(1), Modify(2)], &[Read(1), Read(2)]],
        Needed,
    ),
    scenario("P4: lost update", &[1], &[&[Read(1), Write(1)], &[Read(1), Write(1)]], Needed),
    scenario("P4: lost read-modify-write", &[1], &[&[Modify(1)], &[Modify(1)]], Needed),
    scenario("P4: upgrade of shared reads", &[1], &[&[Read(1), Modify(1)], &[Read(1), Modify(1)]], Needed),
    scenario("P4: lost update of three", &[1], &[&[Modify(1)], &[Modify(1)], &[Read(1), Write(1)]], Needed),
    scenario("G-single: read skew", &[1, 2], &[&[Read(1), Read(2)], &[Write(1), Write(2)]], Needed),
    scenario("G-single: read skew in a batch", &[1, 2], &[&[Read(1), Batch(&[1, 2])], &[Write(1), Write(2)]], Needed),
    scenario("G-single: a read that is not repeatable", &[1], &[&[Read(1), Read(1)], &[Write(1)]], Needed),
    scenario("G-single: a row that goes", &[1, 2], &[&[Read(1), Read(2)], &[Delete(1), Delete(2)]], Needed),
    scenario("G-single: a row that comes", &[], &[&[Read(1), Read(2)], &[Insert(1), Insert(2)]], Needed),
    scenario("G2-item: write skew", &[1, 2], &[&[Read(1), Write(2)], &[Read(2), Write(1)]], Needed),
    // A database looked for a pivot before its commit was published, and let a second write in
    // between (libdb, issue 136).
    scenario(
        "G2-item: write skew after both reads",
        &[1, 2],
        &[&[Read(1), Read(2), Write(1)], &[Read(1), Read(2), Write(2)]],
        Needed,
    ),
    scenario("G2-item: write skew by deletes", &[1, 2], &[&[Read(1), Delete(2)], &[Read(2), Delete(1)]], Needed),
    scenario(
        "Fekete's read-only anomaly",
        &[1, 2],
        &[&[Modify(2)], &[Read(1), Read(2), Write(1)], &[Read(1), Read(2)]],
        Needed,
    ),
    scenario("G2: misses and inserts", &[], &[&[Read(1), Insert(2)], &[Read(2), Insert(1)]], Needed),
    // The first transaction makes a gap in the time for which row 5 is valid. With TicToc, a row
    // that came and went must not be inserted in it.
    scenario(
        "G2: a row that comes and goes",
        &[1, 5],
        &[&[Modify(1), Read(5)], &[Insert(4), Delete(4), Write(5)], &[Read(5), Insert(4)]],
        Needed,
    ),
    scenario("G2: misses in batches", &[], &[&[Batch(&[1, 3]), Insert(2)], &[Batch(&[2, 4]), Insert(1)]], Needed),
    scenario("G2: misses at the ends", &[], &[&[Read(0), Insert(MAX)], &[Read(MAX), Insert(0)]], Needed),
    scenario("G2: misses of modifications", &[], &[&[Modify(1), Insert(2)], &[Modify(2), Insert(1)]], Needed),
    scenario("G2: misses of blind writes", &[], &[&[Write(1), Insert(2)], &[Write(2), Insert(1)]], Needed),
    scenario("G2: misses of deletes", &[], &[&[Delete(1), Insert(2)], &[Delete(2), Insert(1)]], Needed),
    scenario("G2: empty ranges", &[], &[&[Scan(0, 9), Insert(1)], &[Scan(0, 9), Insert(2)]], Needed),
    // Two transactions that sum a range up and insert the sum into it both committed (tsurugidb,
    // issue 5).
    scenario("G2: ranges with rows", &[3, 5], &[&[Scan(0, 9), Insert(4)], &[Scan(0, 9), Insert(6)]], Needed),
    scenario("G2: ranges backwards", &[3, 5], &[&[ScanBack(0, 9), Insert(4)], &[ScanBack(0, 9), Insert(6)]], Needed),
    scenario("G2: all keys, at the ends", &[], &[&[Scan(0, MAX), Insert(0)], &[ScanBack(0, MAX), Insert(MAX)]], Needed),
    scenario("G2: ranges and deletes", &[3, 5], &[&[Scan(0, 9), Delete(3)], &[Scan(0, 9), Delete(5)]], Needed),
    scenario(
        "G2: ranges that limits end",
        &[3, 5],
        &[&[First(0, 9, 1), Insert(2)], &[First(0, 9, 1), Insert(1)]],
        Needed,
    ),
    scenario(
        "G2: a sum and an insert, of two and a reader",
        &[3, 5],
        &[&[Scan(0, 9), Insert(4)], &[Scan(0, 9), Insert(6)], &[Scan(0, 9)]],
        Needed,
    ),
    scenario("PMP: a range read twice", &[3], &[&[Scan(0, 9), Scan(0, 9)], &[Insert(1)]], Needed),
    scenario("PMP: a range read twice, and a delete", &[3], &[&[Scan(0, 9), Scan(0, 9)], &[Delete(3)]], Needed),
    scenario("two inserts of one key", &[], &[&[Insert(1), Read(2)], &[Insert(1), Insert(2)]], Needed),
    scenario("delete and insert again", &[1, 2], &[&[Delete(1), Insert(1)], &[Read(1), Write(2)]], NotNeeded),
    scenario(
        "delete and insert again, by two",
        &[1, 2],
        &[&[Delete(1), Read(2)], &[Insert(1), Write(2)], &[Read(1)]],
        Needed,
    ),
    scenario("insert and delete again", &[], &[&[Insert(1), Delete(1)], &[Read(1), Insert(1)]], NotNeeded),
    scenario(
        "insert and delete again, scanned",
        &[2],
        &[&[Insert(1), Delete(1), Read(2)], &[Scan(0, 9), Modify(2)]],
        NotNeeded,
    ),
    scenario("own inserts in a range", &[2], &[&[Insert(1), Scan(0, 9), Delete(2)], &[Scan(0, 9), Insert(3)]], Needed),
    scenario("a delete and an update", &[1, 2], &[&[Delete(1), Read(2)], &[Modify(1), Write(2)]], Needed),
    scenario("two deletes of one key", &[1, 2], &[&[Delete(1), Modify(2)], &[Delete(1), Modify(2)]], Needed),
    // Silo's first release found the interference with an absence, and went on (commit f7b1332).
    scenario("absence and an update elsewhere", &[1], &[&[Read(9), Write(1)], &[Read(1), Insert(9)]], Needed),
    // CCBench's sets were keyed by key instead of by table and key (commit 85a63c9).
    scenario("one key of two tables", &[1], &[&[Write(1), ReadOther(1)], &[WriteOther(1), Read(1)]], Needed),
    // Silo's first release let a transaction insert one key twice (commit caf7da3).
    scenario("one key inserted twice", &[2], &[&[Insert(1), Insert(1), Read(2)], &[Read(1), Write(2)]], Needed),
    // STO's versions: deletes and inserts that take turns under a scan, and inserts that abort
    // (commits 90164e79, e8d80987, 536fd09d).
    scenario(
        "insert after delete, scanned",
        &[1],
        &[&[Delete(1), Insert(1), Read(2)], &[Scan(0, 9), Insert(2)]],
        Needed,
    ),
    scenario("an insert that aborts, scanned twice", &[], &[&[Insert(1), Abort], &[Scan(0, 9), Scan(0, 9)]], NotNeeded),
    scenario("groups: write skew", &[1], &[&[ReadLeft(1), ModifyRight(1)], &[ReadRight(1), ModifyLeft(1)]], Needed),
    scenario("groups: read skew", &[1], &[&[ReadLeft(1), ReadRight(1)], &[ModifyLeft(1), ModifyRight(1)]], Needed),
    scenario("groups: lost update", &[1], &[&[ReadRight(1), ModifyRight(1)], &[ReadRight(1), ModifyRight(1)]], Needed),
    scenario(
        "groups: lost update of one",
        &[1],
        &[&[ReadRight(1), ModifyRight(1)], &[ModifyLeft(1), ModifyRight(1)]],
        Needed,
    ),
    scenario("groups: a whole row", &[1, 2], &[&[Read(1), Write(2)], &[ReadRight(2), ModifyLeft(1)]], Needed),
    scenario("groups: a row that goes", &[1, 2], &[&[ReadRight(1), ReadLeft(2)], &[Delete(1), Delete(2)]], Needed),
    scenario("groups: a row that comes", &[], &[&[ReadRight(1), Insert(2)], &[ReadLeft(2), Insert(1)]], Needed),
    scenario("groups: ranges", &[1], &[&[ScanRight(0, 9), ModifyLeft(1)], &[ReadLeft(1), Insert(2)]], Needed),
    scenario(
        "groups: deletes and updates",
        &[1, 2],
        &[&[ModifyRight(1), Read(2)], &[Delete(1), ModifyLeft(2)]],
        Needed,
    ),
    // A counter that other transactions add to while it is read (STO's commits 78323084, 975524a8).
    scenario("updates: a counter", &[1], &[&[Update(1), Update(1)], &[Update(1)], &[ReadRight(1)]], Needed),
    scenario("updates: late under a sum", &[1, 2], &[&[Read(1), Read(2)], &[Update(1), Update(2)]], Needed),
    scenario("updates: with sums", &[1, 2], &[&[Update(1), ReadRight(2)], &[Update(2), ReadRight(1)]], Needed),
    scenario(
        "updates: that do not commute",
        &[1, 2],
        &[&[Update(1), Update(2)], &[UpdateAll(1), UpdateAll(2)]],
        Needed,
    ),
    scenario("updates: and writes", &[1, 2], &[&[Update(1), Update(2)], &[ModifyRight(1), Write(2)]], Needed),
    scenario("updates: then read", &[1], &[&[Update(1), ReadRight(1), ModifyLeft(1)], &[Update(1), Read(1)]], Needed),
    scenario("updates: then modified", &[1], &[&[Update(1), Modify(1)], &[UpdateAll(1), ModifyRight(1)]], Needed),
    scenario("updates: of a missing row", &[], &[&[Update(1), Insert(2)], &[Update(2), Insert(1)]], Needed),
    scenario("updates: of an own insert", &[2], &[&[Insert(1), Update(1), Read(2)], &[Update(1), Update(2)]], Needed),
    scenario("updates: of a row that goes", &[1, 2], &[&[Update(1), ReadRight(2)], &[Delete(1), Update(2)]], Needed),
    scenario(
        "updates: of a row that goes and comes",
        &[1, 2],
        &[&[Update(1), ReadRight(2)], &[Delete(1), Insert(1), Update(2)]],
        Needed,
    ),
    scenario("updates: then deleted", &[1, 2], &[&[Update(1), Delete(1), Read(2)], &[Update(1), Update(2)]], Needed),
    scenario("updates: that abort", &[1], &[&[Update(1), Abort], &[Read(1), Update(1)]], NotNeeded),
    scenario("updates: scanned", &[1, 2], &[&[Update(1), Update(2)], &[ScanRight(0, 9), Insert(3)]], NotNeeded),
];

/// Returns every order in which programs of these lengths can interleave, as lists of turns.
fn interleavings(lengths: &[usize]) -> Vec<Vec<usize>> {
    fn extend(left: &mut [usize], order: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
        if left.iter().all(|left| *left == 0) {
            all.push(order.clone());
            return;
        }
        for txn in 0..left.len() {
            if left[txn] > 0 {
                left[txn] -= 1;
                order.push(txn);
                extend(left, order, all);
                order.pop();
                left[txn] += 1;
            }
        }
    }
    let mut all = Vec::new();
    extend(&mut lengths.to_vec(), &mut Vec::new(), &mut all);
    all
}

type Conductor = Erased<Conducted>;

struct Tables {
    first: Table<u64>,
    other: Table<u64>,
}

fn fill(row: Option<&mut [u64]>, value: u64) {
    if let Some(row) = row {
        row.fill(value);
    }
}

/// Takes one step. `value` makes each written row different.
fn take(
    tx: &mut Transaction<'_, Conductor, Conducted>,
    tables: &Tables,
    step: Step,
    value: u64,
) -> Result<(), contend_engine::Abort> {
    let first = &tables.first;
    let range = |tx: &mut Transaction<'_, Conductor, Conducted>, low, high, limit, direction| {
        tx.scan_rows(first, low..=high, limit, direction, Projection::WHOLE, |_, _| ControlFlow::Continue(())).map(drop)
    };
    match step {
        Read(key) => {
            tx.read_row(first, key, Projection::WHOLE)?;
        }
        ReadOther(key) => {
            tx.read_row(&tables.other, key, Projection::WHOLE)?;
        }
        Write(key) => fill(tx.write_row(first, key, Groups::ALL)?, value),
        WriteOther(key) => fill(tx.write_row(&tables.other, key, Groups::ALL)?, value),
        Modify(key) => fill(tx.modify_row(first, key, Groups::ALL)?, value),
        Insert(key) => fill(tx.insert_row(first, key)?, value),
        Delete(key) => {
            tx.delete(first, key)?;
        }
        Scan(low, high) => range(tx, low, high, usize::MAX, Direction::Forward)?,
        ScanBack(low, high) => range(tx, low, high, usize::MAX, Direction::Backward)?,
        First(low, high, limit) => range(tx, low, high, limit, Direction::Forward)?,
        Batch(keys) => tx.read_rows(first, keys, Projection::WHOLE, |_, _| {})?,
        ReadLeft(key) => drop(tx.read_row(first, key, LEFT)?),
        ReadRight(key) => drop(tx.read_row(first, key, RIGHT)?),
        ModifyLeft(key) => drop(tx.modify_row(first, key, LEFT.groups())?.map(|row| row[0] = value)),
        ModifyRight(key) => drop(tx.modify_row(first, key, RIGHT.groups())?.map(|row| row[1] = value)),
        Update(key) => drop(tx.update_row(first, key, RowUpdate::new(&Pair::RIGHT.add(value)))?),
        UpdateAll(key) => drop(tx.update_row(first, key, RowUpdate::new(&Triple))?),
        ScanRight(low, high) => {
            let ignore = |_, _: &[u64]| ControlFlow::Continue(());
            tx.scan_rows(first, low..=high, usize::MAX, Direction::Forward, RIGHT, ignore)?;
        }
        Abort => return Err(tx.cancel()),
    }
    Ok(())
}

/// Runs one transaction: takes one step in each turn, then commits.
fn perform(
    mut worker: Worker<Conductor, Conducted>,
    tables: &Tables,
    program: &[Step],
    number: u64,
) -> Worker<Conductor, Conducted> {
    let mut transaction = Some(worker.begin());
    for (position, next) in program.iter().enumerate() {
        if let Some(mut running) = transaction.take() {
            // An abort ends the transaction; its further turns do nothing.
            match take(&mut running, tables, *next, number * 100 + position as u64) {
                Ok(()) => transaction = Some(running),
                Err(abort) => running.abort(abort.reason),
            }
        }
        step();
    }
    if let Some(running) = transaction.take() {
        let _ = running.commit();
    }
    drop(transaction);
    worker
}

/// A program in a performance.
struct Player {
    /// The program; `None` after its end.
    program: Option<Program<Worker<Conductor, Conducted>>>,
    /// The turns that it was given and has not taken yet, because it waits.
    owed: usize,
}

impl Player {
    /// Goes on as far as its turns last, or until it waits. Returns the worker if the program has
    /// ended.
    fn play(&mut self) -> Option<Worker<Conductor, Conducted>> {
        while self.owed > 0 {
            match self.program.as_mut()?.go_on() {
                Ok(Turn::Step) => self.owed -= 1,
                Ok(Turn::Waits) => return None,
                Err(worker) => {
                    self.owed = 0;
                    self.program.take().into_iter().for_each(Program::end);
                    return Some(worker);
                }
            }
        }
        None
    }
}

/// The number of rounds at the end in which waiting programs are asked to go on: more than the
/// longest wait of a protocol.
const ROUNDS_MAX: usize = 100_000;

/// The most orders of a scenario that all run.
const ORDERS_MAX: usize = 1000;

/// The protocols that let transactions wait for each other until a timeout: that is how they end a
/// cycle of dependences.
const WAITS_IN_CYCLES: [&str; 1] = ["datm"];

/// Runs one order of a scenario, and returns what was wrong.
fn run_order(
    protocol: Conductor,
    index: IndexKind,
    options: &EngineOptions,
    scenario: &Scenario,
    order: &[usize],
    judged_by: Isolation,
) -> Result<(), String> {
    // Thousands of engines are opened: each with no more than a loader and its players.
    let config = EngineConfig { workers_max: 1 + scenario.programs.len(), ..config_with(true, options.clone()) };
    let engine: Arc<Engine<Conductor, Conducted>> = Engine::new(protocol, config);
    let tables = Rc::new(Tables { first: pairs(&engine, "t", index), other: pairs(&engine, "u", index) });
    let mut loader = engine.loader().expect("a free slot");
    for key in scenario.loaded {
        loader.insert(&tables.first, *key, |row| row.fill(7)).expect("memory");
        loader.insert(&tables.other, *key, |row| row.fill(7)).expect("memory");
    }
    let mut players: Vec<_> = (1u64..)
        .zip(scenario.programs)
        .map(|(number, steps)| {
            let (worker, tables) = (engine.worker().expect("a free slot"), Rc::clone(&tables));
            Player { program: Some(Program::new(move || perform(worker, &tables, steps, number))), owed: 0 }
        })
        .collect();
    let mut ended = Vec::new();
    for &player in order {
        players[player].owed += 1;
        // A waiting program goes on first, because it may have what it waits for.
        ended.extend(players.iter_mut().filter(|other| other.owed > 1).filter_map(Player::play));
        ended.extend(players[player].play());
    }
    for _ in 0..ROUNDS_MAX {
        ended.extend(players.iter_mut().filter_map(Player::play));
        if ended.len() == players.len() {
            break;
        }
    }
    if ended.len() < players.len() {
        // Their coroutines can't be unwound while other programs wait for their locks.
        players.into_iter().for_each(std::mem::forget);
        return Err("some wait for ever".into());
    }
    // Such a wait ends, but only because each wait is bounded.
    let may_wait_in_cycles = WAITS_IN_CYCLES.contains(&engine.protocol().info().name);
    if !may_wait_in_cycles && ended.iter().any(|worker| worker.aborts().get(AbortReason::LockTimeout) > 0) {
        return Err("some wait for each other".into());
    }
    let committed = ended.iter_mut().flat_map(Worker::take_history).collect();
    let recorded = recorded(&engine, committed);
    let verification = verify_history(&recorded, judged_by);
    if verification.passed { Ok(()) } else { Err(format!("{}\n{:?}", verification.verdict, verification.explanation)) }
}

fn has_scans(scenario: &Scenario) -> bool {
    scenario
        .programs
        .iter()
        .any(|program| program.iter().any(|step| matches!(step, Scan(..) | ScanBack(..) | First(..) | ScanRight(..))))
}

/// Returns the engine options for a scenario: if it has neither groups nor updates, only all off
/// and all on.
fn engine_options(scenario: &Scenario) -> &'static [EngineOptions] {
    let of_parts = |step: &Step| {
        matches!(step, ReadLeft(_) | ReadRight(_) | ModifyLeft(_) | ModifyRight(_))
            || matches!(step, Update(_) | UpdateAll(_) | ScanRight(..))
    };
    let parts = scenario.programs.iter().any(|program| program.iter().any(of_parts));
    if parts { &ENGINE_OPTIONS } else { &ENGINE_OPTIONS[..2] }
}

/// Returns the number of turns of each program. The last one commits.
fn lengths(scenario: &Scenario) -> Vec<usize> {
    scenario.programs.iter().map(|program| program.len() + 1).collect()
}

/// Runs all orders of a scenario on an index, or one in `every`. Returns the first wrong order, and
/// what is wrong with it.
pub(crate) fn first_wrong_order(
    make: &dyn Fn() -> Conductor,
    index: IndexKind,
    scenario: &Scenario,
    every: usize,
    judged_by: Isolation,
) -> Option<String> {
    if has_scans(scenario) && index == IndexKind::Hash {
        return None;
    }
    // Other options have other orders: none is left out under all of them.
    engine_options(scenario).iter().enumerate().find_map(|(number, options)| {
        let first = (number + usize::from(index == IndexKind::Hash)) % every;
        interleavings(&lengths(scenario)).into_iter().skip(first).step_by(every).find_map(|order| {
            let wrong = run_order(make(), index, options, scenario, &order, judged_by).err()?;
            Some(format!("{} ({index:?}, {options:?}, order {order:?}): {wrong}", scenario.name))
        })
    })
}

struct KeepsItsPromise(IndexKind);

impl ProtocolTest<Conducted> for KeepsItsPromise {
    fn run(&self, name: &str, make: &dyn Fn() -> Conductor) {
        let promise = make().info().isolation;
        for scenario in SCENARIOS {
            let runs_all = interleavings(&lengths(scenario)).len() <= ORDERS_MAX || rounds() > 1;
            let every = if is_thorough(name) && runs_all { 1 } else { 3 };
            if let Some(wrong) = first_wrong_order(make, self.0, scenario, every, promise) {
                panic!("{name}: {wrong}");
            }
        }
    }
}

#[test]
fn no_order_of_steps_breaks_the_promise() {
    for_each_protocol(&KeepsItsPromise(IndexKind::Ordered));
}

#[test]
fn no_order_of_steps_breaks_the_promise_without_an_order_of_keys() {
    for_each_protocol(&KeepsItsPromise(IndexKind::Hash));
}

#[test]
fn all_orders_are_tried() {
    assert_eq!(interleavings(&[2, 1]), [[0, 0, 1], [0, 1, 0], [1, 0, 0]]);
    assert_eq!(interleavings(&[3, 3]).len(), 20);
    assert_eq!(interleavings(&[3, 3, 3]).len(), 1680);
}
