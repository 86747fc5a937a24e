//! A whole workload in some eighty lines: workers increment counters, and no increment may be lost.
//! `bank.rs` is the next larger one.
//!
//! It is not in the registry; `main` runs it under Silo, on two threads.
//!
//! `cargo run -p contend-workloads --example toy_workload`, and `cargo test` runs it as well.

use std::ops::ControlFlow;

use contend_engine::{Engine, EngineConfig, NamedProtocol};
use contend_machine::Native;
use contend_model::{
    Abort, Core, Groups, IndexKind, Inspect, Load, OutOfMemory, Table, TableSpec, Tables, Txn, options,
};
use contend_protocols::optimistic::silo::Silo;
use contend_workloads::{Checked, Violation, Workload};

options! {
    /// The options.
    pub struct CountersOptions {
        /// The number of counters.
        "counters.number" number: u64 = 4, in 1..=1_000_000;
    }
}

/// The workload: its table, and the number of rows.
struct Counters {
    table: Table,
    number: u64,
}

/// A worker's memory: the number that it draws next, and its committed increments.
#[derive(Default)]
struct Client {
    next: u64,
    committed: u64,
}

impl Workload for Counters {
    type Options = CountersOptions;
    type Client = Client;
    /// The counter that a transaction increments.
    type Input = u64;

    fn kinds(&self) -> &'static [&'static str] {
        &["increment"]
    }

    fn validate(_: &CountersOptions, _: IndexKind) -> Result<(), String> {
        Ok(())
    }

    fn tables(options: &CountersOptions, index: IndexKind) -> Vec<TableSpec> {
        vec![TableSpec::of_bytes("counters", index, 8, options.number as usize)]
    }

    fn create<S: Tables>(options: &CountersOptions, index: IndexKind, store: &S) -> Self {
        Counters { table: store.create_table(&Self::tables(options, index)[0]), number: options.number }
    }

    fn load_units(&self) -> u64 {
        self.number
    }

    fn for_verification(options: &CountersOptions) -> CountersOptions {
        options.clone()
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        for key in (part as u64..self.number).step_by(parts) {
            loader.insert(&self.table, key, |row| row[0] = 0)?;
            if done(1).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn client(&self, worker: usize, _: usize, _: u64) -> Client {
        Client { next: worker as u64, committed: 0 }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut u64) {
        *input = client.next % self.number;
        client.next += 1;
    }

    fn kind(&self, _: &u64) -> usize {
        0
    }

    fn execute<T: Txn>(&self, tx: &mut T, _: &mut Client, input: &u64) -> Result<(), Abort> {
        // If the row is missing, which no state allows, the increment is lost, and `check` says so.
        // To cancel here would hide it.
        if let Some(row) = tx.modify_row(&self.table, *input, Groups::ALL)? {
            row[0] += 1;
        }
        Ok(())
    }

    fn committed(&self, client: &mut Client, _: &u64) {
        client.committed += 1;
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        let (mut row, mut sum) = (Vec::new(), 0);
        for key in 0..self.number {
            store.peek(&self.table, key, &mut row).ok_or_else(|| Violation(format!("counter {key} is gone")))?;
            sum += row[0];
        }
        let expected: u64 = clients.iter().map(|client| client.committed).sum();
        if sum == expected {
            Ok(Checked(format!("{sum} increments")))
        } else {
            Err(Violation(format!("{expected} increments have committed, and the counters show {sum}")))
        }
    }
}

/// Two threads run a thousand transactions each; then the workload checks the rows.
fn main() {
    let engine =
        Engine::<Silo, Native>::new(<Silo as NamedProtocol<Native>>::new(Default::default()), EngineConfig::default());
    let counters = Counters::create(&CountersOptions::default(), IndexKind::Hash, &engine);
    let mut loader = engine.loader().expect("a free slot");
    counters.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
    drop(loader);
    let run = |number| {
        let (mut worker, mut client) = (engine.worker().expect("a free slot"), counters.client(number, 2, 42));
        let mut input = 0;
        for _ in 0..1_000 {
            counters.next(&mut (), &mut client, &mut input);
            // A conflict aborts a transaction; the next try has the same input.
            while let Err(abort) = worker.run(|tx| counters.execute(tx, &mut client, &input)) {
                assert!(abort.reason.is_conflict(), "{abort}");
            }
            counters.committed(&mut client, &input);
        }
        client
    };
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..2).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let checked = counters.check(&engine, &clients.iter().collect::<Vec<_>>());
    println!("{}", checked.expect("no increment is lost").0);
}

#[test]
fn no_increment_is_lost() {
    main();
}
