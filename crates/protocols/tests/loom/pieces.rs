//! IC3: pieces that take effect one by one, the end of a transaction, and readers of gaps.
//!
//! | words | scenario | what must not be |
//! | --- | --- | --- |
//! | a rank is announced; another transaction asks whether it is past the rank | `two_pieces` | two orders in two tables |
//! | a transaction is doomed; it passes its commit point | `a_cancel` | a committed dirty read |
//! | a commit as a whole locks what it writes, and looks at what it has read | `a_skew` | two that each miss the other's write |
//! | the bit of a leaf is set, and its version is loaded; the version is changed, and the bits are loaded | `a_gap` | an insert that a reader of its gap both precedes and follows |

use std::sync::Arc;

use contend_engine::{
    Abort, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Options, RawTxn, Table, TableSpec, Txn, Worker,
};
use contend_machine::Loom;
use contend_model::pieces::{Mode, Piece, Types};
use contend_protocols::fault::{Faulty, Only, id};
use contend_protocols::pieces::ic3::{Ic3, Ic3Options};

use crate::world::{Tx, explore, insert, read, spawn, write};

const FIRST: Piece = Piece::new(0, "first");
const SECOND: Piece = Piece::new(1, "second");
/// The first leaf is full, and the second has room.
const KEYS: &[u64] = &[10, 20, 30];
/// A key whose insert splits the first leaf.
const SPLITS: u64 = 15;

type Tables = [Table<u64>; 2];

/// An engine with two tables, each of which is a step of all types.
struct World<P: NamedProtocol<Loom>> {
    engine: Arc<Engine<P, Loom>>,
    tables: Tables,
}

impl<P: NamedProtocol<Loom, Options = Ic3Options>> World<P> {
    /// Returns a world whose transactions take effect by steps.
    fn new(index: IndexKind) -> Self {
        Self::with_whole(index, "off")
    }

    /// Returns a world in which `ic3.whole` has this value.
    fn with_whole(index: IndexKind, whole: &str) -> Self {
        let mut options = Ic3Options::default();
        options.set("ic3.snapshots", "off").expect("an option");
        options.set("ic3.whole", whole).expect("an option");
        let config = EngineConfig { workers_max: 2, epoch_ms: 40, ..EngineConfig::default() };
        let engine = Engine::new(P::new(options), config);
        let tables = ["a", "b"].map(|name| engine.create_table(&TableSpec::of_bytes(name, index, 8, 1)));
        let mut loader = engine.loader().expect("a slot");
        for (table, keys) in tables.iter().zip([KEYS, &[10]]) {
            for &key in keys {
                assert!(loader.insert(table, key, |row| row.fill(0)).expect("memory"));
            }
        }
        drop(loader);
        let mut types = Types::new(engine.declared_tables());
        let both = types.add("both");
        let all = |piece: contend_model::pieces::PieceBuilder, table: &Table<u64>| {
            piece.access(Mode::Write, table, Groups::ALL).access(Mode::Insert, table, Groups::ALL).cancels()
        };
        both.piece(FIRST, |piece| all(piece, &tables[0])).piece(SECOND, |piece| all(piece, &tables[1]));
        engine.declare(types.finish().expect("valid")).expect("valid");
        World { engine, tables }
    }

    /// Runs both bodies at once, each in a transaction of the type.
    fn both<R: Send + 'static>(
        &self,
        mine: impl FnOnce(&mut Tx<'_, P>, &Tables) -> Result<R, Abort>,
        theirs: impl FnOnce(&mut Tx<'_, P>, &Tables) -> Result<R, Abort> + Send + 'static,
    ) -> [Result<R, Abort>; 2] {
        let [mut first, mut second] = [(); 2].map(|()| self.engine.worker().expect("a slot"));
        let tables = self.tables;
        let other = spawn(move || {
            let outcome = second.run_declared(|declaration| declaration.kind(0), |tx| theirs(tx, &tables));
            (second, outcome)
        });
        let mine = first.run_declared(|declaration| declaration.kind(0), |tx| mine(tx, &self.tables));
        let (second, theirs) = other.join().expect("no panic");
        drop::<[Worker<P, Loom>; 2]>([first, second]);
        [mine, theirs]
    }

    /// Returns the first rows of both tables, when the workers are gone.
    fn rows(&self) -> [Option<u64>; 2] {
        let mut worker = self.engine.worker().expect("a slot");
        let tables = self.tables;
        let read_both = |tx: &mut Tx<'_, P>| {
            let first = tx.piece(FIRST, |tx| read(tx, &tables[0], 10))?;
            let second = tx.piece(SECOND, |tx| read(tx, &tables[1], 10))?;
            Ok([first, second])
        };
        worker.run_declared(|declaration| declaration.kind(0), read_both).expect("nobody else is there")
    }
}

/// Appends a digit to a row.
fn append<P: NamedProtocol<Loom>>(tx: &mut Tx<'_, P>, table: &Table<u64>, digit: u64) -> Result<(), Abort> {
    let row = tx.modify_row(table, 10, Groups::ALL)?.expect("loaded");
    row[0] = row[0] * 10 + digit;
    Ok(())
}

/// Both transactions change the first table, and then the second: in one order.
fn two_pieces<P: NamedProtocol<Loom, Options = Ic3Options>>() {
    let world = World::<P>::new(IndexKind::Hash);
    let body = |digit: u64| {
        move |tx: &mut Tx<'_, P>, tables: &Tables| {
            tx.piece(FIRST, |tx| append(tx, &tables[0], digit))?;
            tx.piece(SECOND, |tx| append(tx, &tables[1], digit))
        }
    };
    let outcomes = world.both(body(1), body(2));
    let rows = world.rows();
    assert!(outcomes.iter().any(Result::is_ok), "nobody has come through: {outcomes:?}");
    assert_eq!(rows[0], rows[1], "two orders");
}

/// Each transaction reads the row that the other writes. Both commit as a whole.
fn a_skew<P: NamedProtocol<Loom, Options = Ic3Options>>() {
    let world = World::<P>::with_whole(IndexKind::Hash, "on");
    let outcomes = world.both(
        |tx, tables| {
            let seen = tx.piece(FIRST, |tx| read(tx, &tables[0], 10))?;
            tx.piece(SECOND, |tx| write(tx, &tables[1], 10, 1)).map(|()| seen)
        },
        |tx, tables| {
            tx.piece(FIRST, |tx| write(tx, &tables[0], 10, 1))?;
            tx.piece(SECOND, |tx| read(tx, &tables[1], 10))
        },
    );
    assert!(outcomes != [Ok(Some(0)), Ok(Some(0))], "write skew: each must come before the other");
}

/// One transaction rolls back behind a piece that the other may have seen.
fn a_cancel<P: NamedProtocol<Loom, Options = Ic3Options>>() {
    let world = World::<P>::new(IndexKind::Hash);
    let [mut first, mut second] = [(); 2].map(|()| world.engine.worker().expect("a slot"));
    let tables = world.tables;
    let mut tx = first.begin_declared(|declaration| declaration.kind(0));
    tx.piece(FIRST, |tx| write(tx, &tables[0], 10, 5)).expect("nobody else is there");
    let other = spawn(move || {
        let body = |tx: &mut Tx<'_, P>| tx.piece(FIRST, |tx| read(tx, &tables[0], 10));
        let seen = second.run_declared(|declaration| declaration.kind(0), body);
        (second, seen)
    });
    drop(tx);
    let (second, seen) = other.join().expect("no panic");
    drop::<[Worker<P, Loom>; 2]>([first, second]);
    assert!(seen.is_err() || seen == Ok(Some(0)), "a dirty read: {seen:?}");
    assert_eq!(world.rows(), [Some(0); 2], "what was taken back is there");
}

/// One transaction misses a key, and then writes the second table. The other inserts the key, and
/// then reads the second table.
fn a_gap_in<P: NamedProtocol<Loom, Options = Ic3Options>>(index: IndexKind) {
    let world = World::<P>::new(index);
    let outcomes = world.both(
        |tx, tables| {
            let missed = tx.piece(FIRST, |tx| Ok(read(tx, &tables[0], SPLITS)?.is_none()))?;
            tx.piece(SECOND, |tx| write(tx, &tables[1], 10, 1)).map(|()| missed)
        },
        |tx, tables| {
            tx.piece(FIRST, |tx| insert(tx, &tables[0], SPLITS, 1))?;
            tx.piece(SECOND, |tx| Ok(read(tx, &tables[1], 10)? == Some(0)))
        },
    );
    // The first has missed the insert, so it came first. The second has not seen the write, so it
    // came first.
    assert!(outcomes != [Ok(true), Ok(true)], "stale absence: each must come before the other");
}

fn a_gap<P: NamedProtocol<Loom, Options = Ic3Options>>() {
    a_gap_in::<P>(IndexKind::Ordered);
}

fn a_gap_hashed<P: NamedProtocol<Loom, Options = Ic3Options>>() {
    a_gap_in::<P>(IndexKind::Hash);
}

macro_rules! holds {
    ($name:ident, $preemptions:literal, $scenario:ident) => {
        #[test]
        fn $name() {
            explore($preemptions, $scenario::<Ic3<Loom>>);
        }
    };
}

macro_rules! caught {
    ($name:ident, $message:literal, $preemptions:literal, $scenario:ident, $fault:ident) => {
        #[test]
        #[should_panic(expected = $message)]
        fn $name() {
            type Broken = Only<{ id(stringify!($fault)) }>;
            explore($preemptions, $scenario::<Faulty<Ic3<Loom, Broken>, Broken>>);
        }
    };
}

holds!(ic3_has_one_order_of_pieces, 1, two_pieces);
holds!(ic3_as_a_whole_has_no_write_skew, 2, a_skew);
holds!(ic3_has_no_dirty_read, 2, a_cancel);
holds!(ic3_has_no_stale_gap, 1, a_gap_hashed);
caught!(ic3_that_waits_for_nobody, "dirty read", 1, a_cancel, forget_predecessors);
caught!(ic3_as_a_whole_without_fence, "write skew", 2, a_skew, forget_fences);
caught!(ic3_that_dooms_after_its_end, "dirty read", 2, a_cancel, doom_after_end);
caught!(ic3_that_forgets_readers_of_gaps, "stale absence", 1, a_gap, forget_gap_readers);
caught!(ic3_that_overlooks_validations, "stale absence", 1, a_gap, ignore_validating);
