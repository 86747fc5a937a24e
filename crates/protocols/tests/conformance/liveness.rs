//! Progress: many more threads than cores work on a few hot records. Each transaction reads and
//! writes them in an order of its own, and one worker leaves in the middle. (In a published system
//! all others then aborted for ever.)
//!
//! Nothing is timed. A transaction that is tried absurdly often fails the test, and one that waits
//! for ever hangs it.

use contend_engine::{Engine, EngineConfig, Erased, Groups, IndexKind, RawTxn, Table};
use contend_machine::Native;
use contend_protocols::method::{Backoff, BackoffPolicy, RetryOptions};

use crate::support::{ProtocolTest, for_each_protocol, rounds, table};

const THREADS: usize = 16;
const RECORDS: u64 = 10;
const TRIES_MAX: u64 = 10_000_000;

struct Progress;

impl ProtocolTest<Native> for Progress {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<Native>) {
        for backoff in [BackoffPolicy::None, BackoffPolicy::Exponential] {
            let engine = Engine::<_, Native>::new(make(), EngineConfig::default());
            let rows: Table<u64> = table(&engine, "hot", IndexKind::Hash, 8);
            let mut loader = engine.loader().expect("a free slot");
            for key in 0..RECORDS {
                assert!(loader.insert(&rows, key, |row| row[0] = 0).expect("memory"));
            }
            drop(loader);
            let shared = Backoff::<Native>::new(RetryOptions { backoff, ..RetryOptions::default() }, THREADS);
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    let (engine, rows, mut retry) = (&engine, &rows, shared.retry(thread, thread as u64 + 1));
                    scope.spawn(move || {
                        let mut worker = engine.worker().expect("a free slot");
                        // The first worker leaves early, while others hold locks and wait.
                        let transactions = if thread == 0 { 3 } else { 20 * rounds() };
                        for transaction in 0..transactions {
                            let first = (thread as u64 * 7 + transaction * 3) % RECORDS;
                            // 1, 3, 7 and 9 have no divisor in common with 10, so each transaction
                            // touches each record once, in an order of its own.
                            let step = [1, 3, 7, 9][(thread + transaction as usize) % 4];
                            let mut tries = 0;
                            while let Err(abort) = worker.run(|tx| {
                                for position in 0..RECORDS {
                                    let key = (first + position * step) % RECORDS;
                                    tx.modify_row(rows, key, Groups::ALL)?.expect("it is there")[0] += 1;
                                }
                                Ok(())
                            }) {
                                assert!(abort.reason.is_conflict(), "{name}: {abort}");
                                tries += 1;
                                assert!(tries < TRIES_MAX, "{name}: no progress");
                                retry.aborted();
                            }
                            retry.done();
                        }
                    });
                }
            });
            let expected = 3 + (THREADS as u64 - 1) * 20 * rounds();
            let mut row = Vec::new();
            for key in 0..RECORDS {
                engine.peek(&rows, key, &mut row).expect("it is there");
                assert_eq!(row[0], expected, "{name}: updates of {key} got lost");
            }
        }
    }
}

#[test]
fn all_make_progress_on_hot_records() {
    for_each_protocol(&Progress);
}
