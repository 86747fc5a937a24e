//! IC3's table 1: on how many running transactions a New-Order depends.
//!
//! New-Orders of one warehouse on a simulated chip. The program takes each transaction's interval
//! and its history, and compares the transactions whose intervals overlap. A transaction depends
//! *directly* on each earlier one with a conflicting access to the same unit. It depends
//! *transitively* on those that these depend on. It *tracks* the newest of them in each unit: the
//! last writer and, for a write, the readers since.
//!
//! `cargo run --release -p contend-lab --example dependencies`

#[path = "shared/terminals.rs"]
mod terminals;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;

use contend_engine::history::{Committed, Operation, Part, Version};
use contend_engine::{EngineConfig, EngineOptions};
use contend_model::KeyWords;
use contend_protocols::pieces::ic3::Ic3Options;
use contend_sim::{Chip, ChipOptions, Preset, Simulated};
use contend_workloads::tpcc::TpccOptions;
use terminals::{Terminal, World};

const CORES: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
/// The simulated time that is counted, in seconds, and the time before it.
const COUNTED: f64 = 0.004;
const WARM_UP: f64 = 0.001;

/// A committed transaction and the interval in which it ran, in cycles.
struct Interval {
    began: u64,
    ended: u64,
    committed: Committed,
}

/// An access to a unit. The place grows from each version to the next; its readers are between.
#[derive(Clone, Copy)]
struct Access {
    place: usize,
    writes: bool,
    transaction: usize,
}

/// Runs New-Orders on this many cores. Returns the transactions, and the cycle from which on they
/// are counted.
fn run(cores: usize) -> (Vec<Interval>, u64) {
    let preset = Preset::named("opteron-6474x8").expect("a chip of this name");
    preset.set_clock();
    let options = EngineOptions { timestamp_splitting: true, ..EngineOptions::default() };
    let config = EngineConfig { options, history: true, ..EngineConfig::default() };
    let weights = TpccOptions { payment: 0, order_status: 0, delivery: 0, stock_level: 0, ..TpccOptions::default() };
    let tpcc = TpccOptions { new_order: 1, customers: 300, ..weights };
    let world = World::<Simulated>::new(cores, Ic3Options { whole: false, ..Ic3Options::default() }, config, &tpcc);
    world.declare(|kind| kind == 0);
    let is_over = Rc::new(Cell::new(false));
    let intervals = Rc::new(RefCell::new(Vec::new()));
    let mut chip = Chip::new(&preset, cores, ChipOptions::default()).expect("a chip of this size");
    for core in 0..cores {
        let mut terminal = Terminal::new(&world, core, cores);
        let (is_over, intervals) = (Rc::clone(&is_over), Rc::clone(&intervals));
        chip.spawn(move || {
            while !is_over.get() {
                let began = terminal.run(|_| true, || is_over.get());
                let ended = <Simulated as contend_machine::Machine>::now();
                let committed = terminal.worker.take_history().pop();
                if let Some((began, committed)) = began.zip(committed) {
                    intervals.borrow_mut().push(Interval { began, ended, committed });
                }
            }
        });
    }
    let at = |seconds: f64| (seconds * preset.core.hertz) as u64;
    chip.run_until(at(WARM_UP + COUNTED));
    // The cores end their transactions before their engine is dropped.
    is_over.set(true);
    while chip.run_until(u64::MAX / 2) {}
    (intervals.take(), at(WARM_UP))
}

/// Returns the accesses to each unit that is written, in order.
fn accesses(intervals: &[Interval]) -> Vec<Vec<Access>> {
    type Unit = (Part, KeyWords);
    let mut writers: BTreeMap<Unit, HashMap<Version, (Version, usize)>> = BTreeMap::new();
    let mut readers: BTreeMap<Unit, Vec<(Version, usize)>> = BTreeMap::new();
    for (transaction, interval) in intervals.iter().enumerate() {
        for operation in &interval.committed.operations {
            match operation {
                Operation::Write { part, key, over, .. } => {
                    let of_unit = writers.entry((*part, *key)).or_default();
                    of_unit.entry(*over).or_insert((interval.committed.txn, transaction));
                }
                Operation::Read { part, key, version, .. } => {
                    readers.entry((*part, *key)).or_default().push((*version, transaction));
                }
                Operation::Miss { part, key, deleted_by } => {
                    readers.entry((*part, *key)).or_default().push((*deleted_by, transaction));
                }
                Operation::Delete { .. } | Operation::Scan { .. } => unreachable!("a New-Order only writes by keys"),
            }
        }
    }
    let of_unit = |(unit, writers): (Unit, HashMap<Version, (Version, usize)>)| {
        // The chain begins at the version that no recorded transaction has written.
        let written: BTreeSet<Version> = writers.values().map(|(version, _)| *version).collect();
        let mut version = *writers.keys().find(|over| !written.contains(over)).expect("versions form no circle");
        let mut places = HashMap::from([(version, 0)]);
        let mut accesses = Vec::new();
        while let Some((next, transaction)) = writers.get(&version) {
            let place = 2 * places.len();
            accesses.push(Access { place, writes: true, transaction: *transaction });
            places.insert(*next, place);
            version = *next;
        }
        let read = readers.remove(&unit).unwrap_or_default().into_iter();
        let read =
            read.map(|(version, transaction)| Access { place: places[&version] + 1, writes: false, transaction });
        accesses.extend(read);
        accesses.sort_by_key(|access| (access.place, access.transaction));
        accesses
    };
    writers.into_iter().map(of_unit).collect()
}

/// What each transaction depends on.
#[derive(Default)]
struct Dependencies {
    direct: BTreeSet<usize>,
    tracked: BTreeSet<usize>,
}

fn dependencies(intervals: &[Interval]) -> Vec<Dependencies> {
    let mut all: Vec<Dependencies> = intervals.iter().map(|_| Dependencies::default()).collect();
    for accesses in accesses(intervals) {
        for (position, later) in accesses.iter().enumerate() {
            let overlaps = |earlier: &&Access| {
                let (earlier, later) = (&intervals[earlier.transaction], &intervals[later.transaction]);
                earlier.ended > later.began
            };
            let conflicts = |earlier: &&Access| {
                earlier.transaction != later.transaction
                    && (earlier.writes || later.writes)
                    && earlier.place < later.place
            };
            let before = accesses[..position].iter().rev().filter(conflicts);
            let of = &mut all[later.transaction];
            of.direct.extend(before.clone().filter(overlaps).map(|earlier| earlier.transaction));
            // Up to the last writer, which is included.
            for earlier in before {
                if overlaps(&earlier) {
                    of.tracked.insert(earlier.transaction);
                }
                if earlier.writes {
                    break;
                }
            }
        }
    }
    all
}

/// Returns how many others a transaction reaches, but not directly, among those that ran when it
/// ran.
fn transitive(of: usize, intervals: &[Interval], all: &[Dependencies]) -> usize {
    let mut reached: BTreeSet<usize> = all[of].direct.clone();
    let mut open: Vec<usize> = reached.iter().copied().collect();
    while let Some(next) = open.pop() {
        let further = all[next].direct.iter().filter(|other| intervals[**other].ended > intervals[of].began);
        for other in further {
            if *other != of && reached.insert(*other) {
                open.push(*other);
            }
        }
    }
    reached.len() - all[of].direct.len()
}

fn main() {
    println!("| cores | New-Orders | direct | transitive | tracked |");
    println!("| --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for cores in CORES {
        let (intervals, from) = run(cores);
        let all = dependencies(&intervals);
        let counted: Vec<usize> = (0..intervals.len()).filter(|of| intervals[*of].began >= from).collect();
        let mean = |count: &dyn Fn(usize) -> usize| {
            counted.iter().map(|of| count(*of)).sum::<usize>() as f64 / counted.len().max(1) as f64
        };
        let direct = mean(&|of| all[of].direct.len());
        let transitive = mean(&|of| transitive(of, &intervals, &all));
        let tracked = mean(&|of| all[of].tracked.len());
        println!("| {cores} | {} | {direct:.2} | {transitive:.3} | {tracked:.2} |", counted.len());
        rows.push([direct, transitive, tracked]);
    }
    let grows = |column: usize| rows.windows(2).all(|pair| pair[0][column] <= pair[1][column]);
    let [.., [direct_32, transitive_32, _], [direct_64, transitive_64, tracked_64]] = rows[..] else { unreachable!() };
    let holds = grows(0) && grows(1) && transitive_64 > direct_64 && transitive_32 < direct_32 && tracked_64 <= 1.5;
    println!(
        "\nic3-t1: mono(direct,'up',1.0) and mono(transitive,'up',1.0) and transitive(64) > direct(64) and \
         transitive(32) < direct(32) and tracked(64) <= 1.5: {}",
        if holds { "holds" } else { "FAILS" }
    );
}
