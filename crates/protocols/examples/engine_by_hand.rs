//! An engine driven by hand: tables, a loader, and transactions that meet on one worker thread.
//!
//! The facade `contend` does all of this for an application. This example is for authors of
//! protocols, because it shows each call.
//!
//! `cargo run -p contend-protocols --example engine_by_hand`, and `cargo test` runs it as well.

use std::ops::ControlFlow;

use contend_engine::{
    Direction, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, TableSpec,
};
use contend_machine::Native;
use contend_protocols::optimistic::silo::Silo;

fn main() {
    // An engine runs one protocol on one machine. Both are types, so no call to them is dynamic.
    let protocol = <Silo as NamedProtocol<Native>>::new(Default::default());
    let engine = Engine::<Silo, Native>::new(protocol, EngineConfig::default());

    // A table of rows of 16 bytes, two words, with room for 1000 of them. An ordered index can be
    // scanned.
    let accounts = engine.create_table::<u64>(&TableSpec::of_bytes("accounts", IndexKind::Ordered, 16, 1_000));

    // A loader fills tables before any transaction runs.
    let mut loader = engine.loader().expect("a free slot");
    for key in 0..10 {
        assert!(loader.insert(&accounts, key, |row| row.copy_from_slice(&[100, 0])).expect("memory"));
    }
    drop(loader);

    // A worker belongs to a thread, and runs one transaction after the other. `run` begins, calls
    // the body, and commits; or it aborts, if the body or the commit fails. Whether to try again is
    // the caller's choice.
    let mut worker = engine.worker().expect("a free slot");
    let balance = worker.run(|txn| {
        let row = txn.modify_row(&accounts, 1, Groups::ALL)?.expect("it was loaded");
        row[0] += 5;
        Ok(row[0])
    });
    assert_eq!(balance, Ok(105));

    // The same by hand. A dropped transaction aborts.
    let mut txn = worker.begin();
    txn.insert_row(&accounts, 10).expect("no conflict").expect("the key was free").copy_from_slice(&[7, 0]);
    assert!(txn.delete_row(&accounts, 0).expect("no conflict"));
    txn.commit().expect("no conflict");

    // A transaction that is forgotten aborts when its worker begins the next one.
    let mut txn = worker.begin();
    txn.modify_row(&accounts, 4, Groups::ALL).expect("no conflict").expect("it was loaded")[0] = 0;
    std::mem::forget(txn);
    let kept =
        worker.run(|txn| txn.read_row(&accounts, 4, Projection::WHOLE).map(|row| row.expect("it was loaded")[0]));
    assert_eq!(kept, Ok(100));

    // Two transactions of two workers, in one thread. The second changes the row that the first has
    // read. The first writes, and so fails to validate.
    let mut other = engine.worker().expect("a free slot");
    let mut first = worker.begin();
    let seen = first.read_row(&accounts, 2, Projection::WHOLE).expect("no conflict").expect("it was loaded")[0];
    first.modify_row(&accounts, 3, Groups::ALL).expect("no conflict").expect("it was loaded")[0] = seen;
    let second =
        other.run(|txn| txn.modify_row(&accounts, 2, Groups::ALL).map(|row| row.expect("it was loaded")[0] = 0));
    assert_eq!(second, Ok(()));
    let abort = first.commit().expect_err("what it has read is not there any more");
    assert!(abort.reason.is_conflict());
    println!("the first transaction aborted: {abort}");

    // A scan sees the keys in their order. Row 0 was deleted, and row 10 was inserted.
    let mut sum = 0;
    let rows = worker.run(|txn| {
        sum = 0;
        txn.scan_rows(&accounts, 0..=u64::MAX, usize::MAX, Direction::Forward, Projection::WHOLE, |_, row| {
            sum += row[0];
            ControlFlow::Continue(())
        })
    });
    assert_eq!((rows, sum), (Ok(10), 100 + 5 + 7 + 700));
    println!("{} commits of the first worker, {} of the second; the sum is {sum}", worker.commits(), other.commits());
}

#[test]
fn it_runs() {
    main();
}
