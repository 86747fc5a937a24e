//! Learning from samples: what is proposed, and what is said of declarations.

use std::ops::{ControlFlow, RangeInclusive};

use contend_analysis::{Learned, Noted, Trace, TypeSet};
use contend_model::pieces::{DeclaredPiece, DeclaredTable, Mode, Piece};
use contend_model::{
    Abort, AbortReason, AddToWord, Direction, Groups, IndexKind, Key, Projection, RawTxn, RowUpdate, Table, TableSpec,
    Tables, TablesOnly, Txn,
};

/// A store in which every access succeeds and finds nothing.
struct Empty([u64; 1]);

impl RawTxn for Empty {
    fn read_row<K: Key>(&mut self, _: &Table<K>, _: K, _: Projection<'_>) -> Result<Option<&[u64]>, Abort> {
        Ok(None)
    }

    fn modify_row<K: Key>(&mut self, _: &Table<K>, _: K, _: Groups) -> Result<Option<&mut [u64]>, Abort> {
        Ok(None)
    }

    fn write_row<K: Key>(&mut self, _: &Table<K>, _: K, _: Groups) -> Result<Option<&mut [u64]>, Abort> {
        Ok(None)
    }

    fn update_row<K: Key>(&mut self, _: &Table<K>, _: K, _: RowUpdate<'_>) -> Result<bool, Abort> {
        Ok(false)
    }

    fn insert_row<K: Key>(&mut self, _: &Table<K>, _: K) -> Result<Option<&mut [u64]>, Abort> {
        Ok(Some(&mut self.0))
    }

    fn delete_row<K: Key>(&mut self, _: &Table<K>, _: K) -> Result<bool, Abort> {
        Ok(false)
    }

    fn scan_rows<K: Key>(
        &mut self,
        _: &Table<K>,
        _: RangeInclusive<K>,
        _: usize,
        _: Direction,
        _: Projection<'_>,
        _: impl FnMut(K, &[u64]) -> ControlFlow<()>,
    ) -> Result<usize, Abort> {
        Ok(0)
    }
}

/// The tables: `users` has two groups of named columns, `log` has words only.
fn tables() -> (Vec<DeclaredTable>, [Table; 3]) {
    let mut users = DeclaredTable::new("users", 2);
    users.row = "User".into();
    users.columns = vec![vec!["name".into(), "address".into()], vec!["spent".into()]];
    let mut orders = DeclaredTable::new("orders", 1);
    orders.row = "Order".into();
    orders.columns = vec![vec!["total".into()]];
    let store = TablesOnly::new();
    let create = |name| store.create_table(&TableSpec::of_bytes(name, IndexKind::Hash, 8, 0));
    let handles = ["users", "orders", "log"].map(create);
    (vec![users, orders, DeclaredTable::new("log", 1)], handles)
}

const LOOK: Piece = Piece::new(0, "look");
const PAY: Piece = Piece::new(1, "pay");

type Body<'a> = &'a dyn Fn(&mut Noted<'_, Empty>, &[Table; 3]) -> Result<(), Abort>;

/// Learns from these bodies of one type, "buy".
fn learned(bodies: &[Body<'_>]) -> Learned {
    let (tables, handles) = tables();
    let mut learned = Learned::new(tables, ["buy".to_owned(), "rest".to_owned()]);
    let mut trace = Trace::default();
    for body in bodies {
        let outcome = body(&mut Noted::new(&mut Empty([0]), &mut trace), &handles);
        assert!(outcome.is_ok_and(|()| true) || outcome == Err(Abort::new(AbortReason::User)));
        learned.add(0, &trace);
    }
    learned
}

fn read(tx: &mut impl Txn, table: &Table, groups: Groups) -> Result<(), Abort> {
    tx.read_row(table, 1, Projection::of_groups(groups)).map(drop)
}

fn add(tx: &mut impl Txn, table: &Table, group: u32) -> Result<(), Abort> {
    let update = AddToWord { groups: Groups::of(group), word: 0, value: 1 };
    tx.update_row(table, 1, RowUpdate::add_to_word(&update)).map(drop)
}

fn pieces(tx: &mut Noted<'_, Empty>, [users, orders, log]: &[Table; 3]) -> Result<(), Abort> {
    tx.piece(LOOK, |tx| read(tx, users, Groups::of(0)))?;
    tx.piece(PAY, |tx| {
        add(tx, users, 1)?;
        tx.insert_row(orders, 1)?;
        tx.modify_row(log, 1, Groups::ALL).map(drop)
    })
}

fn cancels(tx: &mut Noted<'_, Empty>, [users, ..]: &[Table; 3]) -> Result<(), Abort> {
    tx.piece(LOOK, |tx| read(tx, users, Groups::ALL))?;
    Err(tx.cancel())
}

#[test]
fn pieces_are_proposed_as_they_ran() {
    let text = learned(&[&pieces, &pieces, &cancels]).to_rust();
    assert_eq!(
        text,
        "/// The pieces of buy, from 3 transactions.
mod buy {
    use contend_model::pieces::Piece;

    pub const LOOK: Piece = Piece::new(0, \"look\");
    pub const PAY: Piece = Piece::new(1, \"pay\");
}

// rest: no access in 0 transactions.
fn types(types: &mut Types, tables: &Tables) {
    types
        .add(\"buy\")
        .piece(buy::LOOK, |piece| piece.read(&tables.users, Whole).cancels())
        .piece(buy::PAY, |piece| {
            piece
                .update(&tables.users, User::SPENT.add(0))
                .insert(&tables.orders)
                .access(Mode::Write, &tables.log, Groups::ALL)
        });
    types.leave_out(\"rest\");
}
"
    );
}

#[test]
fn pieces_are_guessed_where_there_are_none() {
    // Orders and users in turns, as in a loop; then the log.
    let body = |tx: &mut Noted<'_, Empty>, [users, orders, log]: &[Table; 3]| {
        for _ in 0..2 {
            tx.modify_row(orders, 1, Groups::ALL)?;
            read(tx, users, Groups::of(1))?;
        }
        tx.delete_row(log, 1).map(drop)
    };
    // Another sample begins with users, and cancels at the log.
    let other = |tx: &mut Noted<'_, Empty>, [users, _, log]: &[Table; 3]| {
        read(tx, users, Groups::of(0))?;
        read(tx, log, Groups::ALL)?;
        Err(tx.cancel())
    };
    let proposed = learned(&[&body, &other]).proposed();
    let expected = [
        DeclaredPiece::new("orders_users").access(Mode::Write, 1, Groups::first(1)).access(
            Mode::Read,
            0,
            Groups::first(2),
        ),
        DeclaredPiece::new("log").access(Mode::Delete, 2, Groups::ALL).cancels(),
    ];
    assert_eq!(proposed.types[0].pieces, expected);
    assert!(!proposed.types[0].read_only && proposed.types[1].pieces.is_empty());
}

#[test]
fn a_type_that_only_reads_is_proposed_as_such() {
    let body = |tx: &mut Noted<'_, Empty>, [users, ..]: &[Table; 3]| read(tx, users, Groups::of(1));
    let text = learned(&[&body]).to_rust();
    let expected =
        ".add_read_only(\"buy\")\n        .piece(buy::USERS, |piece| piece.read(&tables.users, User::SPENT));";
    assert!(text.contains(expected), "{text}");
}

/// Returns what is said of a declaration of the two pieces.
fn said(look: DeclaredPiece, pay: DeclaredPiece, bodies: &[Body<'_>]) -> Vec<String> {
    let mut declared = TypeSet { tables: tables().0, types: Vec::new() };
    declared.add("buy", [look, pay]);
    declared.add("rest", []);
    learned(bodies).compare(&declared)
}

fn look() -> DeclaredPiece {
    DeclaredPiece::new("look").access(Mode::Read, 0, Groups::of(0))
}

fn pay() -> DeclaredPiece {
    let pay = DeclaredPiece::new("pay").access(Mode::Update, 0, Groups::of(1));
    pay.access(Mode::Insert, 1, Groups::ALL).access(Mode::Write, 2, Groups::ALL)
}

#[test]
fn declarations_that_fit_are_left_alone() {
    assert_eq!(said(look(), pay(), &[&pieces]), [""; 0]);
    // A write allows updates, and reads.
    let wide = DeclaredPiece::new("pay").access(Mode::Write, 0, Groups::of(1)).access(Mode::Read, 0, Groups::of(1));
    let wide = wide.access(Mode::Insert, 1, Groups::ALL).access(Mode::Write, 2, Groups::ALL);
    assert_eq!(said(look(), wide, &[&pieces]), [""; 0]);
}

#[test]
fn what_was_never_used_is_named() {
    let wide = look().access(Mode::Read, 0, Groups::ALL).access(Mode::Delete, 1, Groups::ALL).cancels();
    assert_eq!(
        said(wide, pay(), &[&pieces]),
        [
            "never used: buy, piece look: reads users (spent)",
            "never used: buy, piece look: deletes from orders",
            "never used: buy, piece look: cancels",
        ]
    );
    assert_eq!(
        said(look().access(Mode::Read, 0, Groups::of(1)).cancels(), pay(), &[&cancels]),
        ["never used: buy, piece pay: it never ran"]
    );
}

#[test]
fn what_is_not_declared_is_named() {
    let narrow = DeclaredPiece::new("pay").access(Mode::Update, 0, Groups::of(1));
    assert_eq!(
        said(look(), narrow, &[&pieces, &cancels]),
        [
            "not declared: buy, piece look: reads users (spent)",
            "not declared: buy, piece look: cancels",
            "not declared: buy, piece pay: inserts into orders",
            "not declared: buy, piece pay: writes log",
        ]
    );
    let outside = |tx: &mut Noted<'_, Empty>, [users, ..]: &[Table; 3]| read(tx, users, Groups::of(0));
    assert!(said(look(), pay(), &[&outside]).contains(&"not declared: buy accesses users outside of any piece".into()));
}
