//! Every workload runs correctly under correct protocols, and its check finds injected faults.

mod agree;
mod pieces;
mod rows;

use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;

use contend_engine::{
    Abort, AbortReason, Direction, Engine, EngineConfig, Erased, Groups, IndexKind, Key, KeyWords, NamedProtocol,
    Options, Projection, RawTxn, RowUpdate, Table, Txn,
};
use contend_machine::Native;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;
use contend_workloads::bank::Bank;
use contend_workloads::rubis::Rubis;
use contend_workloads::tpce::Tpce;
use contend_workloads::wikipedia::Wikipedia;
use contend_workloads::ycsb::Ycsb;
use contend_workloads::{Checked, Violation, Workload, WorkloadInfo, WorkloadVisitor, all_workloads, with_workload};

/// An engine whose protocol is behind a pointer, so that workloads are compiled once.
type AnyEngine = Engine<Erased<Native>, Native>;

/// A change of a row's words.
type Change = fn(&mut [u64]);

/// A fault that is injected at each row write, or transaction, whose number is a multiple of the
/// given one.
#[derive(Clone, Copy)]
enum Fault {
    None,
    /// A write is dropped.
    Drop(usize),
    /// The row that the transaction wrote before is changed without the workload's knowledge.
    Garble(usize, Change),
    /// That row is deleted.
    Delete(usize),
    /// A row appears under a key that the workload never inserted.
    Stray(usize),
    /// A transaction is rolled back, and the client is told that it committed.
    Rollback(usize),
}

/// A transaction between the workload and the engine that injects a fault.
struct Through<'t, T> {
    inner: &'t mut T,
    fault: Fault,
    writes: &'t mut usize,
    /// The key that this transaction wrote before.
    previous: Option<KeyWords>,
    waste: Vec<u64>,
}

impl<T: Txn> Through<'_, T> {
    /// Counts a write and injects the fault that is due. Returns whether the write must be dropped.
    fn strikes<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        *self.writes += 1;
        let due = |every: usize| self.writes.is_multiple_of(every);
        let previous = self.previous.replace(key.to_words());
        match (self.fault, previous) {
            (Fault::Drop(every), _) => return Ok(due(every)),
            (Fault::Garble(every, change), Some(previous)) if due(every) => {
                if let Some(row) = self.inner.modify_row(table, K::from_words(previous), Groups::ALL)? {
                    change(row);
                }
            }
            (Fault::Delete(every), Some(previous)) if due(every) => {
                self.inner.delete(table, K::from_words(previous))?;
            }
            (Fault::Stray(every), _) if due(every) => {
                if let Some(row) = self.inner.insert_row(table, K::from_words(key.to_words().map(|word| !word)))? {
                    row.fill(0);
                }
            }
            _ => {}
        }
        Ok(false)
    }

    fn wasted<K: Key>(&mut self, table: &Table<K>) -> Option<&mut [u64]> {
        self.waste.clear();
        self.waste.resize(table.row_words(), 0);
        Some(&mut self.waste)
    }
}

impl<T: Txn> RawTxn for Through<'_, T> {
    fn read_row<K: Key>(&mut self, table: &Table<K>, key: K, columns: Projection<'_>) -> Result<Option<&[u64]>, Abort> {
        self.inner.read_row(table, key, columns)
    }

    fn read_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        keys: &[K],
        columns: Projection<'_>,
        visit: impl FnMut(usize, Option<&[u64]>),
    ) -> Result<(), Abort> {
        self.inner.read_rows(table, keys, columns, visit)
    }

    fn modify_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        if self.strikes(table, key)? {
            let row = self.inner.read_row(table, key, Projection::WHOLE)?.map(<[u64]>::to_vec);
            return Ok(row.map(|row| {
                self.waste = row;
                &mut self.waste[..]
            }));
        }
        self.inner.modify_row(table, key, groups)
    }

    fn update_row<K: Key>(&mut self, table: &Table<K>, key: K, update: RowUpdate<'_>) -> Result<bool, Abort> {
        if self.strikes(table, key)? {
            return Ok(self.inner.read_row(table, key, Projection::WHOLE)?.is_some());
        }
        self.inner.update_row(table, key, update)
    }

    fn write_row<K: Key>(&mut self, table: &Table<K>, key: K, groups: Groups) -> Result<Option<&mut [u64]>, Abort> {
        if self.strikes(table, key)? { Ok(self.wasted(table)) } else { self.inner.write_row(table, key, groups) }
    }

    fn insert_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<Option<&mut [u64]>, Abort> {
        if self.strikes(table, key)? { Ok(self.wasted(table)) } else { self.inner.insert_row(table, key) }
    }

    fn delete_row<K: Key>(&mut self, table: &Table<K>, key: K) -> Result<bool, Abort> {
        self.inner.delete_row(table, key)
    }

    fn scan_rows<K: Key>(
        &mut self,
        table: &Table<K>,
        range: RangeInclusive<K>,
        limit: usize,
        direction: Direction,
        columns: Projection<'_>,
        visit: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        self.inner.scan_rows(table, range, limit, direction, columns, visit)
    }
}

fn check<W: Workload>(workload: &W, engine: &AnyEngine, clients: &[W::Client]) -> Result<Checked, Violation> {
    workload.check(engine, &clients.iter().collect::<Vec<_>>())
}

/// The parameters of a run.
struct Run<'a> {
    settings: &'a [(&'a str, &'a str)],
    index: IndexKind,
    workers: usize,
    /// Transactions of each worker.
    transactions: usize,
    fault: Fault,
}

impl Run<'_> {
    fn options<W: Workload>(&self, preset: &[(&str, &str)]) -> W::Options {
        let mut options = W::Options::default();
        for (name, value) in preset.iter().chain(self.settings) {
            options.set(name, value).unwrap_or_else(|error| panic!("{error}"));
        }
        options
    }

    /// Loads the workload, runs it, and checks the tables.
    fn go<W: Workload, P: NamedProtocol<Native>>(&self, preset: &[(&str, &str)]) -> Result<Checked, Violation> {
        let (engine, workload, clients) = self.run::<W, P>(preset);
        check(&workload, &engine, &clients)
    }

    fn run<W: Workload, P: NamedProtocol<Native>>(
        &self,
        preset: &[(&str, &str)],
    ) -> (Arc<AnyEngine>, W, Vec<W::Client>) {
        let options = self.options::<W>(preset);
        W::validate(&options, self.index).unwrap_or_else(|error| panic!("{error}"));
        let engine = Engine::new(Erased::new(P::new(Default::default())), EngineConfig::default());
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

    fn work<W: Workload>(&self, engine: &Arc<AnyEngine>, workload: &W, number: usize) -> W::Client {
        let mut worker = engine.worker().expect("a free slot");
        let mut client = workload.client(number, self.workers, 5);
        let mut input = W::Input::default();
        let mut writes = 0;
        for transaction in 1..=self.transactions {
            let rolled_back = matches!(self.fault, Fault::Rollback(every) if transaction.is_multiple_of(every));
            workload.next(&mut (), &mut client, &mut input);
            assert!(workload.kind(&input) < workload.kinds().len());
            loop {
                let outcome = worker.run(|inner| {
                    let (fault, writes) = (self.fault, &mut writes);
                    let mut tx = Through { inner, fault, writes, previous: None, waste: Vec::new() };
                    workload.execute(&mut tx, &mut client, &input)?;
                    if rolled_back { Err(tx.cancel()) } else { Ok(()) }
                });
                match outcome {
                    Ok(()) => workload.committed(&mut client, &input),
                    Err(abort) if abort.reason == AbortReason::User && rolled_back => {
                        workload.committed(&mut client, &input);
                    }
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

impl WorkloadVisitor for RunsRight {
    type Output = ();

    fn visit<W: Workload>(self, info: WorkloadInfo, _: W::Options) {
        let settings: &[(&str, &str)] = match info.name.split('-').next() {
            Some("ycsb") => SMALL,
            Some("bank") => &[("bank.accounts", "300"), ("bank.audit", "0.1")],
            Some("tpcc") => &[("tpcc.items", "200"), ("tpcc.customers", "30"), ("tpcc.warehouses", "2")],
            Some("smallbank") => &[("smallbank.customers", "50"), ("smallbank.hot_customers", "5")],
            Some("tatp") => &[("tatp.subscribers", "20")],
            Some("rubis") => &[("rubis.items", "30"), ("rubis.users", "20")],
            Some("wikipedia") => {
                &[("wikipedia.pages", "20"), ("wikipedia.users", "20"), ("wikipedia.update_page", "500000")]
            }
            Some("tpce") => &[
                ("tpce.customers", "10"),
                ("tpce.trades", "5"),
                ("tpce.trade_status", "10"),
                ("tpce.customer_position", "10"),
                ("tpce.market_watch", "10"),
            ],
            Some("litmus") => &[],
            Some("pieces") => &[("pieces.records", "100"), ("pieces.cancel", "0.1")],
            _ => panic!("say how {} is made small", info.name),
        };
        let run = Run { settings, index: self.0, workers: 3, transactions: 1500, fault: Fault::None };
        if let Err(why) = W::validate(&run.options::<W>(info.preset), self.0) {
            let scans = ["ycsb-e", "litmus-scans", "litmus-reinsert", "litmus-index", "litmus-snapshot-rows"];
            let more = [
                "litmus-pieces-phantom",
                "litmus-pieces-passed",
                "litmus-split",
                "litmus-merge",
                "litmus-rebirth-index",
                "litmus-later-inserts",
            ];
            let scans = scans.contains(&info.name) || more.contains(&info.name);
            assert!(scans && self.0 == IndexKind::Hash, "{}: {why} (only scans may refuse an index)", info.name);
            return;
        }
        // Of any options that are valid.
        let smaller = W::for_verification(&run.options::<W>(info.preset));
        assert_eq!(W::validate(&smaller, self.0), Ok(()), "{}: the options of a verified run", info.name);
        run.go::<W, Silo>(info.preset).unwrap_or_else(|violation| panic!("{} under silo: {violation}", info.name));
        run.go::<W, NoWait>(info.preset).unwrap_or_else(|violation| panic!("{} under 2pl: {violation}", info.name));
    }
}

#[test]
fn every_workload_is_consistent_under_protocols_that_are_right() {
    for (info, _) in all_workloads() {
        for index in [IndexKind::Hash, IndexKind::Ordered] {
            with_workload(info.name, RunsRight(index)).expect("a name from the list");
        }
    }
}

#[test]
fn batches_and_sequential_keys_are_consistent_too() {
    let settings = [SMALL, &[("ycsb.batch", "on"), ("ycsb.keys", "sequential"), ("ycsb.rmw", "on")]].concat();
    let run = Run { settings: &settings, index: IndexKind::Hash, workers: 2, transactions: 1000, fault: Fault::None };
    let checked = run.go::<Ycsb, Silo>(&[]).unwrap_or_else(|violation| panic!("{violation}"));
    assert!(checked.0.contains("2000 tracked") && checked.0.contains("count every write"), "{}", checked.0);
}

/// One write in fifty is dropped: DBx1000's YCSB keeps one in 1400 and reports fine throughput.
#[test]
fn dropped_writes_are_found() {
    let cases: [&[(&str, &str)]; 4] =
        [&[], &[("ycsb.rmw", "on")], &[("ycsb.insert", "1")], &[("ycsb.fields", "2"), ("ycsb.rmw", "on")]];
    for extra in cases {
        let settings = [SMALL, extra].concat();
        let run = Run {
            settings: &settings,
            index: IndexKind::Ordered,
            workers: 1,
            transactions: 500,
            fault: Fault::Drop(50),
        };
        run.go::<Ycsb, Silo>(&[]).expect_err("dropped writes");
    }
    let bank = Run { settings: &[], index: IndexKind::Hash, workers: 1, transactions: 500, fault: Fault::Drop(51) };
    let violation = bank.go::<Bank, Silo>(&[]).expect_err("dropped halves of transfers");
    assert!(
        violation.0.contains("sum") || violation.0.contains("hold") || violation.0.contains("audit"),
        "{violation}"
    );
}

#[test]
fn dropped_writes_of_tpce_are_found() {
    let settings = [("tpce.customers", "5"), ("tpce.trades", "3"), ("tpce.securities", "5")];
    // Different writes are dropped with different numbers.
    for every in [101, 211, 307, 401, 503, 601, 701, 809] {
        let fault = Fault::Drop(every);
        let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 500, fault };
        run.go::<Tpce, Silo>(&[]).expect_err("dropped writes");
    }
    let fault = Fault::Rollback(100);
    let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 500, fault };
    run.go::<Tpce, Silo>(&[]).expect_err("a transaction that was rolled back");
}

#[test]
fn faults_of_rubis_are_found() {
    let settings = [("rubis.items", "20"), ("rubis.users", "10"), ("rubis.view_item", "0")];
    for every in [11, 13, 17, 19, 23, 29, 31, 37] {
        let fault = Fault::Drop(every);
        let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 300, fault };
        run.go::<Rubis, Silo>(&[]).expect_err("dropped writes");
    }
    // A transaction writes one row of a table only, so none is deleted behind its back.
    for fault in [Fault::Rollback(20), Fault::Stray(50)] {
        let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 300, fault };
        run.go::<Rubis, Silo>(&[]).expect_err("what was done behind its back");
    }
}

#[test]
fn faults_of_wikipedia_are_found() {
    for mode in ["one", "several"] {
        let settings = [
            ("wikipedia.pages", "20"),
            ("wikipedia.users", "20"),
            ("wikipedia.update", mode),
            ("wikipedia.update_page", "1000000"),
            ("wikipedia.add_watch", "300000"),
            ("wikipedia.remove_watch", "300000"),
        ];
        for every in [11, 13, 17, 19, 23, 29, 31, 37] {
            let fault = Fault::Drop(every);
            let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 300, fault };
            run.go::<Wikipedia, Silo>(&[]).expect_err("dropped writes");
        }
        for fault in [Fault::Rollback(20), Fault::Delete(50), Fault::Stray(50)] {
            let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 300, fault };
            run.go::<Wikipedia, Silo>(&[]).expect_err("what was done behind its back");
        }
    }
}

/// Writes that are dropped in pairs leave the sum unchanged.
#[test]
fn transfers_that_leave_no_trace_are_found() {
    for fault in [Fault::Drop(1), Fault::Rollback(50)] {
        let settings = [("bank.audit", "0")];
        let run = Run { settings: &settings, index: IndexKind::Hash, workers: 1, transactions: 500, fault };
        let violation = run.go::<Bank, Silo>(&[]).expect_err("transfers that never happened");
        assert!(violation.0.contains("updates got lost"), "{violation}");
    }
}

#[test]
fn transactions_rolled_back_and_called_committed_are_found() {
    let cases: [&[(&str, &str)]; 3] = [&[], &[("ycsb.rmw", "on")], &[("ycsb.insert", "1")]];
    for extra in cases {
        let settings = [SMALL, extra].concat();
        let run = Run {
            settings: &settings,
            index: IndexKind::Hash,
            workers: 1,
            transactions: 500,
            fault: Fault::Rollback(50),
        };
        run.go::<Ycsb, Silo>(&[]).expect_err("writes that were rolled back");
    }
}

#[test]
fn a_corrupted_row_is_found() {
    let cases: [(&str, Change, &str); 5] = [
        // One bit of the last word. In a row of one word it changes the tag into that of another
        // transaction of the worker.
        ("20", |row| *row.last_mut().expect("words") ^= 1, "torn"),
        ("8", |row| row[0] ^= 1, "last committed"),
        // Tags that no transaction has: of no worker, of an unknown worker, and without a sequence
        // number.
        ("8", |row| row[0] = 5, "never committed"),
        ("8", |row| row[0] = 9 << 48 | 1, "never committed"),
        ("8", |row| row[0] = 1 << 48, "never committed"),
    ];
    for (payload, change, found) in cases {
        let settings = [("ycsb.records", "2000"), ("ycsb.payload", payload)];
        let fault = Fault::Garble(50, change);
        let run = Run { settings: &settings, index: IndexKind::Hash, workers: 1, transactions: 200, fault };
        let violation = run.go::<Ycsb, Silo>(&[]).expect_err("garbled rows");
        assert!(violation.0.contains(found), "{payload} bytes, {found}: {violation}");
    }
    let fault = Fault::Garble(40, |row| row[0] += 1);
    let bank = Run { settings: &[], index: IndexKind::Hash, workers: 1, transactions: 500, fault };
    bank.go::<Bank, Silo>(&[("bank.audit", "0")]).expect_err("money out of nothing");
}

#[test]
fn rows_that_vanish_are_found() {
    let insert: &[(&str, &str)] = &[("ycsb.insert", "1")];
    for (extra, found) in [(&[][..], "missed"), (insert, "gone")] {
        let settings = [SMALL, extra].concat();
        let fault = Fault::Delete(500);
        let run = Run { settings: &settings, index: IndexKind::Ordered, workers: 1, transactions: 1500, fault };
        let violation = run.go::<Ycsb, Silo>(&[]).expect_err("rows that vanished");
        assert!(violation.0.contains(found), "{found}: {violation}");
    }
    let fault = Fault::Delete(500);
    let bank = Run { settings: &[], index: IndexKind::Hash, workers: 1, transactions: 500, fault };
    bank.go::<Bank, Silo>(&[("bank.audit", "0")]).expect_err("accounts that vanished");
}

#[test]
fn rows_that_nobody_inserted_are_found() {
    let fault = Fault::Stray(100);
    let run = Run { settings: SMALL, index: IndexKind::Ordered, workers: 1, transactions: 100, fault };
    let violation = run.go::<Ycsb, Silo>(&[]).expect_err("stray rows");
    assert!(violation.0.contains("the index lists"), "{violation}");
}

#[test]
fn writes_and_inserts_without_a_committed_writer_are_found() {
    let none = Run { settings: SMALL, index: IndexKind::Hash, workers: 1, transactions: 0, fault: Fault::None };
    let some = Run { transactions: 200, ..none };
    let (engine, ycsb, clients) = some.run::<Ycsb, Silo>(&[]);
    check(&ycsb, &engine, &clients).expect("nothing is wrong yet");
    let (fresh_engine, fresh_ycsb, fresh_clients) = none.run::<Ycsb, Silo>(&[]);
    // The clients remember writes that the other engine's rows do not hold.
    check(&fresh_ycsb, &fresh_engine, &clients).expect_err("rows without the writes");
    // And the rows hold writes of clients that have committed nothing.
    let violation = check(&ycsb, &engine, &fresh_clients).expect_err("writes without a writer");
    assert!(violation.0.contains("never committed"), "{violation}");

    // The client takes a transaction of ten inserts for aborted. The check finds the inserts also
    // if the first of them has left no row.
    let inserts = [("ycsb.insert", "1")];
    let before = some.run::<Ycsb, Silo>(&inserts).2;
    for fault in [Fault::None, Fault::Drop(2001)] {
        let (engine, ycsb, _) = Run { transactions: 201, fault, ..some }.run::<Ycsb, Silo>(&inserts);
        let violation = check(&ycsb, &engine, &before).expect_err("inserts without a commit");
        assert!(violation.0.contains("its insert has never committed"), "{violation}");
    }
}

/// Ten operations on one, two or three records: a transaction reads and writes rows that it has
/// written before.
#[test]
fn transactions_that_hit_a_record_again_are_consistent() {
    for (records, batch) in [("1", "off"), ("2", "on"), ("3", "off"), ("3", "on")] {
        for (fields, rmw, insert) in [("1", "on", "0"), ("2", "on", "0"), ("3", "off", "0.1")] {
            let settings = [
                ("ycsb.records", records),
                ("ycsb.batch", batch),
                ("ycsb.payload", "37"),
                ("ycsb.rmw", rmw),
                ("ycsb.fields", fields),
                ("ycsb.insert", insert),
            ];
            let run = Run {
                settings: &settings,
                index: IndexKind::Ordered,
                workers: 2,
                transactions: 500,
                fault: Fault::None,
            };
            run.go::<Ycsb, Silo>(&[]).unwrap_or_else(|violation| panic!("{records} records: {violation}"));
            run.go::<Ycsb, NoWait>(&[]).unwrap_or_else(|violation| panic!("{records} records: {violation}"));
        }
    }
}

/// Returns the first inputs of a worker, as text.
fn inputs<W: Workload<Input: std::fmt::Debug>>(preset: &[(&str, &str)], worker: usize, seed: u64) -> String {
    let run = Run { settings: &[], index: IndexKind::Ordered, workers: 0, transactions: 0, fault: Fault::None };
    let engine = Engine::<NoControl, Native>::new(NoControl, EngineConfig::default());
    let workload = W::create(&run.options::<W>(preset), IndexKind::Ordered, &engine);
    let (mut client, mut input) = (workload.client(worker, 2, seed), W::Input::default());
    let mut words = String::new();
    for _ in 0..20 {
        workload.next(&mut (), &mut client, &mut input);
        words += &format!("{input:?}\n");
    }
    words
}

#[test]
fn seed_and_worker_determine_what_is_drawn() {
    fn judge<W: Workload<Input: std::fmt::Debug>>(preset: &[(&str, &str)]) {
        let first = inputs::<W>(preset, 0, 1);
        assert_eq!(first, inputs::<W>(preset, 0, 1));
        assert_ne!(first, inputs::<W>(preset, 0, 2), "another seed");
        assert_ne!(first, inputs::<W>(preset, 1, 1), "another worker");
    }
    for info in contend_workloads::ycsb::INFOS {
        judge::<Ycsb>(info.preset);
    }
    judge::<Bank>(&[]);
}

/// Two transactions read the same records before either commits. Without concurrency control
/// updates get lost, and the check reports it.
#[test]
fn lost_updates_are_found() {
    let settings: &[(&str, &str)] =
        &[("ycsb.records", "4"), ("ycsb.payload", "16"), ("ycsb.rmw", "on"), ("ycsb.read", "0"), ("ycsb.ops", "50")];
    let run = Run { settings, index: IndexKind::Hash, workers: 2, transactions: 0, fault: Fault::None };
    let (engine, workload, mut clients) = run.run::<Ycsb, NoControl>(&[]);
    check(&workload, &engine, &clients).expect("nothing ran");
    let mut workers = [engine.worker().expect("a slot"), engine.worker().expect("a slot")];
    let mut running = workers.each_mut().map(|worker| worker.begin());
    let inputs = [0, 1].map(|number| {
        let mut input = <Ycsb as Workload>::Input::default();
        workload.next(&mut (), &mut clients[number], &mut input);
        workload.execute(&mut running[number], &mut clients[number], &input).expect("no control");
        input
    });
    for (tx, (client, input)) in running.into_iter().zip(clients.iter_mut().zip(&inputs)) {
        tx.commit().expect("no control");
        workload.committed(client, input);
    }
    let found = check(&workload, &engine, &clients).expect_err("a lost update").0;
    assert!(found.contains("got lost") || found.contains("last committed"), "{found}");
}
