//! Tests of updates and writes that come late: those that are put before versions that are there
//! already, and those that are skipped.

use super::*;

/// The rows of a [`World`].
#[derive(Clone, Copy, Debug, contend_derive::Row)]
#[repr(C)]
struct Sum {
    key: u64,
    sum: u64,
}

fn update(tx: &mut Transaction<'_, Msto<Native>, Native>, rows: &Rows, key: u64, update: impl Update<Sum>) {
    assert_eq!(tx.update_row(rows, key, RowUpdate::new(&update)), Ok(true));
}

fn updated(worker: &mut Worker<Msto<Native>, Native>, rows: &Rows, by: impl Update<Sum>) {
    let outcome = worker.run(|tx| {
        update(tx, rows, 1, by);
        Ok(())
    });
    outcome.expect("nobody is in the way");
}

fn seen(worker: &mut Worker<Msto<Native>, Native>, rows: &Rows) -> Option<u64> {
    worker.run(|tx| Ok(see(tx, rows, 1))).expect("nobody is in the way")
}

fn updating_world(settings: &[(&str, &str)]) -> World<Msto<Native>> {
    let options = EngineOptions { commit_time_updates: true, ..EngineOptions::default() };
    World::with(settings, EngineConfig { epoch_ms: u64::MAX, options, ..EngineConfig::default() })
}

#[test]
fn updates_that_commute_may_come_late() {
    for settings in [&[] as &[_], &[("versions.collect", "epoch")], &AGGRESSIVE] {
        let World { ref rows, workers: [ref mut one, ref mut other, ref mut third], .. } = updating_world(settings);
        let mut before = third.begin();
        assert_eq!(see(&mut before, rows, 2), Some(0));
        let mut late = one.begin();
        update(&mut late, rows, 1, Sum::SUM.add(1));
        assert_eq!(see(&mut late, rows, 2), Some(0));
        // This update comes later, and overwrites a row that the other has read.
        for _ in 0..5 {
            updated(other, rows, Sum::SUM.add(10));
        }
        write(other, rows, 2, 7);
        late.commit().expect("a sum is a sum");
        // A transaction that began before sees neither; one that begins now sees all.
        assert_eq!([1, 2].map(|key| see(&mut before, rows, key)), [Some(0), Some(0)]);
        before.commit().expect("nothing has changed at its time");
        assert_eq!(seen(other, rows), Some(51));
    }
}

#[test]
fn an_update_is_too_late_if_a_younger_transaction_has_read_or_rewritten_its_row() {
    type Step = fn(&mut Worker<Msto<Native>, Native>, &Rows);
    let reads: Step = |worker, rows| _ = seen(worker, rows);
    let writes: Step = |worker, rows| write(worker, rows, 1, 7);
    let raises: Step = |worker, rows| updated(worker, rows, Sum::SUM.max(7));
    let adds: Step = |worker, rows| updated(worker, rows, Sum::SUM.add(7));
    type Case = (&'static [(&'static str, &'static str)], Vec<Step>, bool);
    let cases: [Case; 7] = [
        (&[], vec![adds], true),
        (&[], vec![reads], false),
        (&[], vec![adds, reads], false),
        (&[], vec![writes], false),
        (&[], vec![raises], false),
        (&[], vec![adds, raises, adds], false),
        (&[("msto.late", "off")], vec![adds], false),
    ];
    for (number, (settings, runs, commits)) in cases.into_iter().enumerate() {
        let World { ref rows, workers: [ref mut one, ref mut other, _], .. } = updating_world(settings);
        let mut late = one.begin();
        update(&mut late, rows, 1, Sum::SUM.add(1));
        runs.iter().for_each(|run| run(other, rows));
        let outcome = late.commit().map(|_| ()).map_err(|abort| abort.reason);
        assert_eq!(outcome, if commits { Ok(()) } else { Err(AbortReason::WriteLocked) }, "case {number}");
    }
}

#[test]
fn a_reader_that_needs_a_version_that_ended_early_aborts() {
    let World { ref rows, workers: [ref mut one, ref mut other, ref mut third], .. } = updating_world(&[]);
    let mut late = one.begin();
    update(&mut late, rows, 1, Sum::SUM.add(1));
    // Two younger transactions: one has read the updated row, the other has not yet.
    let mut between = third.begin();
    updated(other, rows, Sum::SUM.add(10));
    let mut has_read = other.begin();
    assert_eq!(see(&mut has_read, rows, 1), Some(10));
    late.commit().expect("no transaction that has read has committed");
    let outcome = has_read.commit().map(|_| ()).map_err(|abort| abort.reason);
    assert_eq!(outcome, Err(AbortReason::ReadValidation));
    let outcome = between.read_row(rows, 1, Projection::WHOLE).map(|_| ()).map_err(|abort| abort.reason);
    assert_eq!(outcome, Err(AbortReason::VersionCollected));
}

#[test]
fn a_version_takes_a_limited_number_of_late_updates() {
    let options = EngineOptions { commit_time_updates: true, ..EngineOptions::default() };
    let config = EngineConfig { workers_max: 300, options, ..EngineConfig::default() };
    let World { ref engine, ref rows, workers: [ref mut last, ..] } = World::<Msto<Native>>::with(&[], config);
    let mut workers: Vec<_> =
        (0..crate::multiversion::msto::TIMESTAMP_STRIDE + 10).map(|_| engine.worker().expect("a slot")).collect();
    let mut late: Vec<_> = workers.iter_mut().map(Worker::begin).collect();
    late.iter_mut().for_each(|tx| update(tx, rows, 1, Sum::SUM.add(1)));
    updated(last, rows, Sum::SUM.add(1000));
    let committed = late.into_iter().map(Transaction::commit).filter(Result::is_ok).count() as u64;
    assert_eq!(committed, crate::multiversion::msto::TIMESTAMP_STRIDE - 1);
    assert_eq!(seen(last, rows), Some(1000 + committed));
}

/// What another transaction does between the begin and the commit of one that writes row 1, and
/// whether that one commits.
type Between<P> = (&'static str, fn(&mut Worker<P, Native>, &Rows), bool);

fn late_writes_are_skipped<P: NamedProtocol<Native>>() {
    let reads: fn(&mut Worker<P, Native>, &Rows) = |worker, rows| {
        let _ = worker.run(|tx| Ok(see(tx, rows, 1)));
    };
    let cases: [Between<P>; 7] = [
        ("nothing", |_, _| (), true),
        ("it is replaced", |worker, rows| write(worker, rows, 1, 7), true),
        ("it is replaced twice", |worker, rows| [7, 8].iter().for_each(|&value| write(worker, rows, 1, value)), true),
        ("it is read", reads, false),
        (
            "it is replaced, and read before that",
            |worker, rows| {
                let _ = worker.run(|tx| Ok(see(tx, rows, 1)));
                write(worker, rows, 1, 7);
            },
            false,
        ),
        (
            "it is changed by a read-modify-write",
            |worker, rows| {
                let outcome = worker.run(|tx| {
                    let row = tx.modify_row(rows, 1, Groups::ALL)?.expect("it is there");
                    row[1] += 7;
                    Ok(())
                });
                outcome.expect("nobody is in the way");
            },
            false,
        ),
        (
            "it is deleted and inserted",
            |worker, rows| {
                assert!(worker.run(|tx| tx.delete(rows, 1)).expect("nobody is in the way"));
                let outcome =
                    worker.run(|tx| Ok(tx.insert_row(rows, 1)?.map(|row| row.copy_from_slice(&[1, 7])).is_some()));
                assert!(outcome.expect("nobody is in the way"));
            },
            false,
        ),
    ];
    for collect in ["epoch", "rapid", "aggressive"] {
        for (what, between, commits) in &cases {
            let settings = [("versions.nwr", "on"), ("versions.collect", collect)];
            let World { ref rows, workers: [ref mut early, ref mut one, ref mut other], .. } =
                World::<P>::new(&settings);
            let mut before = early.begin();
            assert_eq!(see(&mut before, rows, 2), Some(0));
            let mut late = one.begin();
            late.write_row(rows, 1, Groups::ALL).expect("there is time").expect("it is there").copy_from_slice(&[1, 5]);
            between(other, rows);
            let then = other.run(|tx| Ok(see(tx, rows, 9))).expect("nobody is in the way");
            assert_eq!(then, Some(0));
            let outcome = late.commit().map(|_| ()).map_err(|abort| abort.reason);
            assert_eq!(outcome, if *commits { Ok(()) } else { Err(AbortReason::WriteLocked) }, "{what}");
            assert_eq!(see(&mut before, rows, 1), Some(0), "{what}: at its time nothing had happened");
            before.commit().expect("a reader always commits");
            // The row has the write that is last in the order of timestamps.
            let value = other.run(|tx| Ok(see(tx, rows, 1))).expect("nobody is in the way");
            let expected = match *what {
                "nothing" => 5,
                "it is read" => 0,
                "it is replaced twice" => 8,
                _ => 7,
            };
            assert_eq!(value, Some(expected), "{what}");
        }
    }
}

#[test]
fn invisible_writes_are_skipped() {
    late_writes_are_skipped::<Cicada<Native>>();
    late_writes_are_skipped::<Msto<Native>>();
}

/// A transaction that began between a skipped write and the write that has replaced it finds
/// neither.
fn a_reader_that_needs_a_skipped_write_aborts<P: NamedProtocol<Native>>() {
    let World { ref rows, workers: [ref mut one, ref mut third, ref mut other], .. } =
        World::<P>::new(&[("versions.nwr", "on")]);
    let mut late = one.begin();
    late.write_row(rows, 1, Groups::ALL).expect("there is time").expect("it is there").copy_from_slice(&[1, 5]);
    let mut has_read = third.begin();
    write(other, rows, 1, 7);
    let mut between = other.begin();
    assert_eq!(see(&mut has_read, rows, 1), Some(0));
    late.commit().expect("no transaction that has read has committed");
    let outcome = has_read.commit().map(|_| ()).map_err(|abort| abort.reason);
    assert!(outcome.is_err(), "it has missed a write");
    assert_eq!(see(&mut between, rows, 1), Some(7));
    between.commit().expect("it sees the newest");
}

#[test]
fn a_reader_that_missed_a_skipped_write_aborts() {
    a_reader_that_needs_a_skipped_write_aborts::<Cicada<Native>>();
    a_reader_that_needs_a_skipped_write_aborts::<Msto<Native>>();
}

/// A row whose columns are of two groups.
#[derive(Clone, Copy, Debug, contend_derive::Row)]
#[repr(C)]
struct Halves {
    left: u64,
    #[group = 1]
    right: u64,
}

/// A write of a part of the row leaves the rest visible, so an earlier write of the whole row is
/// not invisible.
fn a_write_under_a_part_of_the_row_is_not_skipped<P: NamedProtocol<Native>>(splits: bool) {
    use contend_engine::Options;
    let mut options = P::Options::default();
    options.set("versions.nwr", "on").expect("an option");
    let split = EngineOptions { timestamp_splitting: splits, ..EngineOptions::default() };
    let config = EngineConfig { epoch_ms: u64::MAX, options: split, ..EngineConfig::default() };
    let engine = Engine::<P, Native>::new(P::new(options), config);
    let rows: Rows = engine.create_table(&TableSpec::of::<Halves>("t", IndexKind::Ordered, 16));
    assert!(engine.loader().expect("a slot").insert(&rows, 1, |row| row.fill(0)).expect("memory"));
    let [mut one, mut other] = [(); 2].map(|()| engine.worker().expect("a slot"));
    let mut late = one.begin();
    late.write_row(&rows, 1, Groups::ALL).expect("there is time").expect("it is there").fill(5);
    let left = other.run(|tx| {
        tx.write_row(&rows, 1, Groups::FIRST)?.expect("it is there")[0] = 7;
        Ok(())
    });
    left.expect("nobody is in the way");
    // If the parts are cells of their own, the write of one is skipped and that of the other
    // installed.
    assert_eq!(late.commit().is_ok(), splits);
    let row = other.run(|tx| Ok(tx.read_row(&rows, 1, Projection::WHOLE)?.expect("it is there").to_vec()));
    assert_eq!(row.expect("nobody is in the way"), [7, if splits { 5 } else { 0 }]);
}

#[test]
fn only_writes_of_cells_that_were_replaced_whole_are_skipped() {
    for splits in [false, true] {
        a_write_under_a_part_of_the_row_is_not_skipped::<Cicada<Native>>(splits);
        a_write_under_a_part_of_the_row_is_not_skipped::<Msto<Native>>(splits);
    }
}
