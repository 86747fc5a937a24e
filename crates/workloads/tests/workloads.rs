//! Every workload runs, under protocols that are right, and its check finds what is wrong.

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use contend_engine::{
    Abort, AbortReason, Direction, Engine, EngineConfig, IndexKind, Key, Options, Projection, Protocol, Table, Txn,
};
use contend_machine::{Machine, Native};
use contend_protocols::none::NoControl;
use contend_protocols::silo::Silo;
use contend_protocols::two_phase_locking::NoWait;
use contend_workloads::bank::Bank;
use contend_workloads::ycsb::Ycsb;
use contend_workloads::{Checked, Violation, Workload, WorkloadInfo, WorkloadVisitor, all_workloads, with_workload};

/// A transaction between the workload and the engine, which does something wrong or nothing.
struct Through<'t, T> {
    inner: &'t mut T,
    /// Every so many row writes one is dropped; 0 drops none.
    drop_every: usize,
    writes: &'t mut usize,
    waste: Vec<u64>,
}

impl<T> Through<'_, T> {
    fn drops(&mut self) -> bool {
        *self.writes += 1;
        self.drop_every != 0 && self.writes.is_multiple_of(self.drop_every)
    }

    fn wasted<M: Machine, K: Key>(&mut self, table: &Table<M, K>) -> Option<&mut [u64]> {
        self.waste.clear();
        self.waste.resize(table.row_words(), 0);
        Some(&mut self.waste)
    }
}

impl<T: Txn> Txn for Through<'_, T> {
    type Machine = T::Machine;

    fn read_row<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        key: K,
        columns: Projection<'_>,
    ) -> Result<Option<&[u64]>, Abort> {
        self.inner.read_row(table, key, columns)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.inner.read_rows(table, keys, columns, visit)
    }

    fn modify_row<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        if self.drops() {
            let row = self.inner.read_row(table, key, Projection::WHOLE)?.map(<[u64]>::to_vec);
            return Ok(row.map(|row| {
                self.waste = row;
                &mut self.waste[..]
            }));
        }
        self.inner.modify_row(table, key)
    }

    fn write_row<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        if self.drops() { Ok(self.wasted(table)) } else { self.inner.write_row(table, key) }
    }

    fn insert_row<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        if self.drops() { Ok(self.wasted(table)) } else { self.inner.insert_row(table, key) }
    }

    fn delete<K: Key>(&mut self, table: &Table<Self::Machine, K>, key: K) -> Result<bool, Abort> {
        self.inner.delete(table, key)
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<Self::Machine, K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.inner.scan_rows(table, range, limit, direction, columns, visit)
    }
}

fn check<W: Workload<Native>, P: Protocol<Native>>(
    workload: &W,
    engine: &Engine<P, Native>,
    clients: &[W::Client],
) -> Result<Checked, Violation> {
    workload.check(engine, &clients.iter().collect::<Vec<_>>())
}

/// What is to be run.
struct Run<'a> {
    settings: &'a [(&'a str, &'a str)],
    index: IndexKind,
    workers: usize,
    /// Transactions of each worker.
    transactions: usize,
    drop_every: usize,
}

impl Run<'_> {
    fn options<W: Workload<Native>>(&self, preset: &[(&str, &str)]) -> W::Options {
        let mut options = W::Options::default();
        for (name, value) in preset.iter().chain(self.settings) {
            options.set(name, value).unwrap_or_else(|error| panic!("{error}"));
        }
        options
    }

    /// Loads, runs and checks.
    fn go<W: Workload<Native>, P: Protocol<Native>>(&self, preset: &[(&str, &str)]) -> Result<Checked, Violation> {
        let (engine, workload, clients) = self.run::<W, P>(preset);
        check(&workload, &engine, &clients)
    }

    fn run<W: Workload<Native>, P: Protocol<Native>>(
        &self,
        preset: &[(&str, &str)],
    ) -> (Arc<Engine<P, Native>>, W, Vec<W::Client>) {
        let options = self.options::<W>(preset);
        W::validate(&options, self.index).unwrap_or_else(|error| panic!("{error}"));
        let engine = Engine::<P, Native>::new(P::new(Default::default()), EngineConfig::default());
        let workload = W::create(&options, self.index, &engine);
        let mut loaded = 0;
        for part in 0..3 {
            let mut loader = engine.loader().expect("a free slot");
            let mut count = |units| {
                loaded += units;
                ControlFlow::Continue(())
            };
            workload.load(&mut loader, part, 3, &mut count).expect("memory");
        }
        assert_eq!(loaded, workload.load_units());
        let clients = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..self.workers)
                .map(|number| {
                    let (engine, workload) = (&engine, &workload);
                    scope.spawn(move || self.work(engine, workload, number))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
        });
        (engine, workload, clients)
    }

    fn work<W: Workload<Native>, P: Protocol<Native>>(
        &self,
        engine: &Arc<Engine<P, Native>>,
        workload: &W,
        number: usize,
    ) -> W::Client {
        let mut worker = engine.worker().expect("a free slot");
        let mut client = workload.client(number, self.workers, 5);
        let mut input = W::Input::default();
        let mut writes = 0;
        for _ in 0..self.transactions {
            workload.next(&mut client, &mut input);
            assert!(workload.kind(&input) < W::KINDS.len());
            loop {
                let outcome = worker.run(|inner| {
                    let drop_every = self.drop_every;
                    let mut tx = Through { inner, drop_every, writes: &mut writes, waste: Vec::new() };
                    workload.execute(&mut tx, &mut client, &input)
                });
                match outcome {
                    Ok(()) => workload.committed(&mut client, &input),
                    Err(abort) if abort.reason == AbortReason::User => {}
                    Err(abort) => {
                        assert!(abort.reason.is_conflict(), "{abort}");
                        std::thread::yield_now();
                        continue;
                    }
                }
                break;
            }
        }
        client
    }
}

const SMALL: &[(&str, &str)] = &[("ycsb.records", "2000"), ("ycsb.payload", "20"), ("ycsb.scan_length", "20")];

struct RunsRight(IndexKind);

impl WorkloadVisitor<Native> for RunsRight {
    type Output = ();

    fn visit<W: Workload<Native>>(self, info: WorkloadInfo) {
        let bank: &[(&str, &str)] = &[("bank.accounts", "300"), ("bank.audit", "0.1")];
        let settings = if info.name.starts_with("ycsb") { SMALL } else { bank };
        let run = Run { settings, index: self.0, workers: 3, transactions: 1500, drop_every: 0 };
        if W::validate(&run.options::<W>(info.preset), self.0).is_err() {
            assert_eq!((info.name, self.0), ("ycsb-e", IndexKind::Hash), "only scans need an order");
            return;
        }
        run.go::<W, Silo>(info.preset).unwrap_or_else(|violation| panic!("{} under silo: {violation}", info.name));
        run.go::<W, NoWait>(info.preset).unwrap_or_else(|violation| panic!("{} under 2pl: {violation}", info.name));
    }
}

#[test]
fn every_workload_is_consistent_under_protocols_that_are_right() {
    for (info, _) in all_workloads::<Native>() {
        for index in [IndexKind::Hash, IndexKind::Ordered] {
            with_workload(info.name, RunsRight(index)).expect("a name from the list");
        }
    }
}

#[test]
fn batches_and_sequential_keys_are_consistent_too() {
    let settings = [SMALL, &[("ycsb.batch", "on"), ("ycsb.keys", "sequential"), ("ycsb.rmw", "on")]].concat();
    let run = Run { settings: &settings, index: IndexKind::Hash, workers: 2, transactions: 1000, drop_every: 0 };
    let checked = run.go::<Ycsb<Native>, Silo>(&[]).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(checked.0.contains("2000 tracked") && checked.0.contains("count every write"), "{}", checked.0);
}

/// One write in fifty is dropped: DBx1000's YCSB keeps one in 1400 and reports fine throughput.
#[test]
fn dropped_writes_are_found() {
    let cases: [&[(&str, &str)]; 3] = [&[], &[("ycsb.rmw", "on")], &[("ycsb.insert", "1")]];
    for extra in cases {
        let settings = [SMALL, extra].concat();
        let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 500, drop_every: 50 };
        run.go::<Ycsb<Native>, Silo>(&[]).expect_err("dropped writes");
    }
    let bank = Run { settings: &[], index: IndexKind::Hash, workers: 1, transactions: 500, drop_every: 51 };
    let violation = bank.go::<Bank<Native>, Silo>(&[]).expect_err("dropped halves of transfers");
    assert!(
        violation.0.contains("sum") || violation.0.contains("hold") || violation.0.contains("audit"),
        "{violation}"
    );
}

#[test]
fn a_corrupted_row_is_found() {
    let run = Run { settings: SMALL, index: IndexKind::Hash, workers: 1, transactions: 200, drop_every: 0 };
    let (engine, ycsb, clients) = run.run::<Ycsb<Native>, Silo>(&[("ycsb.keys", "sequential")]);
    check(&ycsb, &engine, &clients).expect("not corrupted yet");
    let other = Run { transactions: 0, ..run }.run::<Ycsb<Native>, Silo>(&[("ycsb.keys", "sequential")]);
    // The clients remember writes that the other engine's rows do not hold.
    check(&other.1, &other.0, &clients).expect_err("rows without the writes");
    // And the rows hold writes that clients who have committed nothing know nothing of.
    let violation = check(&ycsb, &engine, &other.2).expect_err("writes without a writer");
    assert!(violation.0.contains("never committed"), "{violation}");
}

/// Without concurrency control updates get lost, and the check says so.
#[test]
fn lost_updates_are_found() {
    let settings: &[(&str, &str)] =
        &[("ycsb.records", "4"), ("ycsb.payload", "16"), ("ycsb.rmw", "on"), ("ycsb.read", "0"), ("ycsb.ops", "50")];
    let run = Run { settings, index: IndexKind::Hash, workers: 4, transactions: 3000, drop_every: 0 };
    for _ in 0..20 {
        if let Err(violation) = run.go::<Ycsb<Native>, NoControl>(&[]) {
            let found = violation.0;
            assert!(
                found.contains("got lost") || found.contains("torn") || found.contains("last committed"),
                "{found}"
            );
            return;
        }
    }
    panic!("4 workers without concurrency control on 4 records lost nothing in 20 runs");
}
