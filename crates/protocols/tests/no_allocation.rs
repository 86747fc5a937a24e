//! The path of a transaction allocates nothing after a warm-up, as a counting allocator shows.
//!
//! A binary of its own: a process has one allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ops::ControlFlow;

use contend_engine::{
    Direction, Engine, EngineConfig, Erased, Groups, IndexKind, NamedProtocol, Projection, RawTxn, Table, TableSpec,
    Txn, Worker,
};
use contend_machine::Native;
use contend_model::pieces::{Mode, Piece, Types};
use contend_protocols::pieces::ic3::{Ic3, Ic3Options};
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};

struct Counting;

thread_local! {
    /// The allocations of this thread. While the number is negative, none is counted.
    static ALLOCATIONS: Cell<i64> = const { Cell::new(i64::MIN) };
}

fn count() {
    // A thread that ends has no counter any more, and nothing to count.
    let _ = ALLOCATIONS.try_with(|allocations| {
        if allocations.get() >= 0 {
            allocations.set(allocations.get() + 1);
        }
    });
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(block, layout) };
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: as the caller promises.
        unsafe { System.realloc(block, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The allocations of this thread while `action` runs.
fn allocations(action: impl FnOnce()) -> i64 {
    ALLOCATIONS.set(0);
    action();
    ALLOCATIONS.replace(i64::MIN)
}

const ROWS: u64 = 2000;

/// Makes every kind of access, with enough keys for sets to switch from lists to hashing. Keys are
/// inserted and deleted.
fn transaction(worker: &mut Worker<Erased<Native>, Native>, (rows, index): (&Table<u64>, IndexKind), number: u64) {
    let key = |i: u64| (number * 31 + i * 7) % ROWS;
    let keys: [u64; 40] = std::array::from_fn(|i| key(i as u64));
    let come_and_go = ROWS + number % 64;
    worker
        .run(|tx| {
            tx.read_rows(rows, &keys, Projection::WHOLE, |_, row| assert!(row.is_some()))?;
            tx.announce(rows, &keys[..20], Projection::WHOLE, true);
            for i in 0..20 {
                tx.write_row(rows, key(i), Groups::ALL)?.expect("it is there").fill(number);
                tx.modify_row(rows, key(i + 20), Groups::ALL)?.expect("it is there")[0] += 1;
            }
            assert!(tx.read_row(rows, u64::MAX, Projection::WHOLE)?.is_none());
            if index == IndexKind::Ordered {
                let visit = |_, _: &[u64]| ControlFlow::Continue(());
                tx.scan_rows(rows, key(1)..=u64::MAX, 20, Direction::Forward, Projection::WHOLE, visit)?;
            }
            if let Some(row) = tx.insert_row(rows, come_and_go)? {
                row.fill(1);
            } else {
                tx.delete(rows, come_and_go)?;
            }
            Ok(())
        })
        .expect("alone on the tables");
}

struct Allocates(IndexKind);

impl ProtocolVisitor<Native> for Allocates {
    type Output = ();

    fn visit<P: NamedProtocol<Native>>(self) {
        // The protocol is erased: the rest is compiled once, not once for each protocol.
        allocates_nothing(P::INFO.name, Erased::new(P::new(Default::default())), self.0);
    }
}

fn allocates_nothing(name: &str, protocol: Erased<Native>, index: IndexKind) {
    let engine = Engine::new(protocol, EngineConfig { epoch_ms: 0, ..Default::default() });
    let spec = TableSpec::of_bytes("t", index, 16, ROWS as usize + 100);
    let rows: Table<u64> = engine.create_table(&spec);
    let mut loader = engine.loader().expect("a free slot");
    for key in 0..ROWS {
        loader.insert(&rows, key, |row| row.fill(0)).expect("memory");
    }
    let mut worker = engine.worker().expect("a free slot");
    let mut run = |numbers: std::ops::Range<u64>| {
        numbers.for_each(|number| transaction(&mut worker, (&rows, index), number));
    };
    // The number of versions that wait for reuse depends on timing: a worker that loses its core
    // may once have more of them than ever before.
    let counted: Vec<_> = (0..5).map(|round| allocations(|| run(4000 * round..4000 * (round + 1)))).collect();
    assert!(counted[1..].contains(&0), "{name} with {index:?}: {counted:?} allocations, of 4000 transactions each");
}

#[test]
fn transactions_allocate_nothing_after_a_warm_up() {
    for (info, _) in all_protocols::<Native>() {
        for index in [IndexKind::Hash, IndexKind::Ordered] {
            with_protocol::<Native, _>(info.name, Allocates(index)).expect("a registered name");
        }
    }
}

const FIRST: Piece = Piece::new(0, "first");
const SECOND: Piece = Piece::new(1, "second");

/// Two transactions of two pieces, which meet in the first table. The first of them commits, or
/// rolls back and takes the second with it.
fn in_pieces([one, other]: &mut [Worker<Erased<Native>, Native>; 2], [first, second]: &[Table<u64>; 2], number: u64) {
    let (key, cascades) = (number % 32, number.is_multiple_of(3));
    let visit = |_, _: &[u64]| ControlFlow::Continue(());
    let mut early = one.begin_declared(|declaration| declaration.kind(0));
    early
        .piece(FIRST, |tx| {
            tx.modify_row(first, key, Groups::ALL)?.expect("loaded")[0] += 1;
            tx.scan_rows(first, key..=u64::MAX, 10, Direction::Forward, Projection::WHOLE, visit)?;
            if let Some(row) = tx.insert_row(first, ROWS + key)? {
                row.fill(1);
                return Ok(());
            }
            tx.delete(first, ROWS + key).map(drop)
        })
        .expect("nobody else is there");
    let mut late = other.begin_declared(|declaration| declaration.kind(0));
    let met = late.piece(FIRST, |tx| {
        tx.modify_row(first, key, Groups::ALL)?.expect("loaded")[0] += 1;
        tx.write_row(first, key + 1, Groups::ALL)?.expect("loaded").fill(number);
        Ok(())
    });
    met.expect("the first has shown its piece");
    if cascades {
        drop(early);
    } else {
        early
            .piece(SECOND, |tx| tx.modify_row(second, key, Groups::ALL).map(|row| row.expect("loaded")[0] += 1))
            .and_then(|()| early.commit())
            .expect("nobody comes before it");
    }
    let ended = late
        .piece(SECOND, |tx| tx.modify_row(second, key, Groups::ALL).map(|row| row.expect("loaded")[0] += 1))
        .and_then(|()| late.commit());
    assert_eq!(ended.is_err(), cascades, "{ended:?}");
}

#[test]
fn pieces_and_cascades_allocate_nothing_after_a_warm_up() {
    // Each piece takes effect when it ends, so that another transaction can see it.
    let options = Ic3Options { whole: false, ..Ic3Options::default() };
    let protocol = Erased::new(<Ic3<Native> as NamedProtocol<Native>>::new(options));
    // Epochs pass between transactions, and in no other place.
    let engine = Engine::new(protocol, EngineConfig { epoch_ms: u64::MAX, ..Default::default() });
    let tables: [Table<u64>; 2] =
        ["a", "b"].map(|name| engine.create_table(&TableSpec::of_bytes(name, IndexKind::Ordered, 16, ROWS as usize)));
    let mut loader = engine.loader().expect("a free slot");
    for table in &tables {
        for key in 0..ROWS {
            loader.insert(table, key, |row| row.fill(0)).expect("memory");
        }
    }
    drop(loader);
    let mut types = Types::new(engine.declared_tables());
    let chain = types.add("chain").piece(FIRST, |piece| {
        let piece = piece.access(Mode::Write, &tables[0], Groups::ALL);
        piece.access(Mode::Insert, &tables[0], Groups::ALL).access(Mode::Delete, &tables[0], Groups::ALL)
    });
    chain.piece(SECOND, |piece| piece.access(Mode::Write, &tables[1], Groups::ALL));
    engine.declare(types.finish().expect("valid declarations")).expect("valid declarations");
    let mut workers = [(); 2].map(|()| engine.worker().expect("a free slot"));
    let mut run = |numbers: std::ops::Range<u64>| {
        for number in numbers {
            in_pieces(&mut workers, &tables, number);
            if number.is_multiple_of(8) {
                for worker in &mut workers {
                    worker.go_offline();
                    worker.collect();
                }
                engine.epochs().try_advance();
            }
        }
    };
    let counted: Vec<_> = (0..3).map(|round| allocations(|| run(3000 * round..3000 * (round + 1)))).collect();
    assert_eq!(counted[1..], [0, 0], "{counted:?} allocations, of 3000 pairs of transactions each");
}

#[test]
fn an_allocation_is_counted() {
    assert_eq!(allocations(|| drop(std::hint::black_box(Box::new(5)))), 1);
    assert_eq!(allocations(|| {}), 0);
}
