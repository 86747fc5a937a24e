//! Declared types of transactions: they run, a wrong declaration is a clear error, and what is not
//! declared runs alone.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::Duration;

use contend::pieces::{Kind, Piece, Types};
use contend::protocols::Ic3;
use contend::{
    Abort, AnyProtocol, Config, Database, Direction, Durability, Error, Native, Protocol, Row, Silo, Table,
    Transaction, Txn, Whole,
};
use contend_protocols::all_protocols;

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Item {
    price: i64,
    #[group = 1]
    stock: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Total {
    sold: i64,
}

const BUY: Kind = Kind::new(0, "buy");
const TAKE: Piece = Piece::new(0, "take");
const SELL: Piece = Piece::new(1, "sell");
const REPORT: Kind = Kind::new(1, "report");
const ALL: Piece = Piece::new(0, "all");

const ITEMS: u64 = 4;
const STOCK: i64 = 1_000_000;

struct Shop<P: Protocol<Native>> {
    db: Database<P>,
    items: Table<Item>,
    totals: Table<Total>,
}

fn declare(types: &mut Types, items: &Table<Item>, totals: &Table<Total>) {
    types
        .add(BUY)
        .piece(TAKE, |piece| piece.read(items, Item::PRICE).modify(items, Item::STOCK).cancels())
        .piece(SELL, |piece| piece.modify(totals, Whole));
    types.add_read_only(REPORT).piece(ALL, |piece| piece.read(items, Whole).read(totals, Whole));
}

impl<P: Protocol<Native>> Shop<P> {
    /// Opens or creates the tables, and loads the rows that are missing.
    fn undeclared(db: Database<P>) -> Shop<P> {
        let (items, totals) = (db.create_table("items").expect("new"), db.create_table("totals").expect("new"));
        db.load(&items, (0..ITEMS).map(|id| (id, Item { price: 5, stock: STOCK }))).expect("memory");
        db.load(&totals, [(0, Total { sold: 0 })]).expect("memory");
        Shop { db, items, totals }
    }

    fn new(db: Database<P>) -> Shop<P> {
        let shop = Shop::undeclared(db);
        shop.db.declare(|types| declare(types, &shop.items, &shop.totals)).expect("valid types");
        shop
    }

    fn buy(&self, item: u64) -> Result<(), Error> {
        self.db.transact_as(BUY, |tx| {
            tx.piece(TAKE, |tx| tx.modify_columns(&self.items, item, Item::STOCK, |stock| *stock -= 1))?;
            tx.piece(SELL, |tx| tx.modify(&self.totals, 0, |total| total.sold += 1)).map(drop)
        })
    }

    /// Returns the number of items in stock, and the number sold.
    fn count(&self, tx: &mut Transaction<'_, P>) -> Result<(i64, i64), Abort> {
        let mut stock = 0;
        tx.scan(&self.items, 0..=u64::MAX, usize::MAX, Direction::Forward, Item::STOCK, |_, of_item| {
            stock += of_item;
            ControlFlow::Continue(())
        })?;
        Ok((stock, tx.read(&self.totals, 0, Total::SOLD)?.unwrap_or(0)))
    }

    /// Counts in a transaction of the type REPORT.
    fn report(&self) -> Result<(i64, i64), Error> {
        self.db.transact_as(REPORT, |tx| tx.piece(ALL, |tx| self.count(tx)))
    }
}

fn under_ic3() -> Shop<Ic3<Native>> {
    Shop::new(Database::default())
}

#[test]
fn declared_types_run_under_every_protocol() {
    for (info, _) in all_protocols::<Native>() {
        let db: Database<AnyProtocol> = Database::named(info.name, &[]).and_then(|builder| builder.open()).expect("it");
        let shop = Shop::new(db);
        for sold in 1..=5 {
            shop.buy(sold % ITEMS).unwrap_or_else(|error| panic!("{}: {error}", info.name));
            // A thread finds its own commits, on a snapshot too.
            let expected = Ok((ITEMS as i64 * STOCK - sold as i64, sold as i64));
            assert_eq!(shop.report(), expected, "{}", info.name);
            assert_eq!(shop.db.transact(|tx| shop.count(tx)), expected, "{}: without a type", info.name);
        }
        let added = shop.db.load(&shop.items, [(ITEMS, Item { price: 1, stock: 7 })]);
        assert_eq!(added, Ok(1), "{}: rows are loaded after the declaration", info.name);
        assert_eq!(shop.report(), Ok((ITEMS as i64 * STOCK + 2, 5)), "{}", info.name);
    }
}

/// Threads buy, report, and count without a type, all at once.
fn runs_side_by_side<P: Protocol<Native>>(shop: &Shop<P>) {
    let is_over = AtomicBool::new(false);
    let (buyers, purchases) = (3, 400);
    thread::scope(|scope| {
        let buy = |buyer: u64| {
            move || {
                for number in 0..purchases {
                    shop.buy((number + buyer) % ITEMS).expect("it is tried until it commits");
                }
            }
        };
        let buying: Vec<_> = (0..buyers).map(|buyer| scope.spawn(buy(buyer))).collect();
        let looking = scope.spawn(|| {
            let mut looked = 0;
            // Relaxed: a hint to stop.
            while !is_over.load(Ordering::Relaxed) || looked < 10 {
                let (stock, sold) = shop.db.transact(|tx| shop.count(tx)).expect("it is tried until it commits");
                assert_eq!(stock + sold, ITEMS as i64 * STOCK, "a sale is seen as a whole");
                let (stock, sold) = shop.report().expect("it is tried until it commits");
                // Another thread has loaded the rows, and the snapshot may be older.
                assert!([0, ITEMS as i64 * STOCK].contains(&(stock + sold)), "a sale is seen as a whole");
                looked += 1;
            }
        });
        buying.into_iter().for_each(|thread| thread.join().expect("no panic"));
        // Relaxed: as above.
        is_over.store(true, Ordering::Relaxed);
        looking.join().expect("no panic");
    });
    let sold = (buyers * purchases) as i64;
    // A snapshot may lack the last commits of other threads.
    assert_eq!(shop.db.transact(|tx| shop.count(tx)), Ok((ITEMS as i64 * STOCK - sold, sold)));
}

#[test]
fn threads_see_sales_as_a_whole() {
    runs_side_by_side(&under_ic3());
    runs_side_by_side(&Shop::new(Database::<Silo>::default()));
    let options = [("ic3.snapshots", "off"), ("ic3.constraint", "early")];
    let db = Database::named("ic3", &options).and_then(|builder| builder.open()).expect("valid options");
    runs_side_by_side(&Shop::new(db));
}

#[test]
fn a_transaction_without_a_type_runs_alone() {
    let shop = under_ic3();
    let is_alone = AtomicBool::new(false);
    // SeqCst: the flag is read and written around transactions of different threads, in one order.
    let look = || assert!(!is_alone.load(Ordering::SeqCst), "nothing runs beside it");
    thread::scope(|scope| {
        for item in 0..3 {
            let (shop, look) = (&shop, &look);
            scope.spawn(move || {
                for _ in 0..300 {
                    let body = |tx: &mut Transaction<'_, Ic3<Native>>| {
                        look();
                        tx.piece(TAKE, |tx| tx.modify_columns(&shop.items, item, Item::STOCK, |stock| *stock -= 1))?;
                        look();
                        tx.piece(SELL, |tx| tx.modify(&shop.totals, 0, |total| total.sold += 1))
                    };
                    shop.db.transact_as(BUY, body).expect("it is tried until it commits");
                }
            });
        }
        for _ in 0..300 {
            let body = |tx: &mut Transaction<'_, Ic3<Native>>| {
                is_alone.store(true, Ordering::SeqCst);
                let counted = shop.count(tx);
                thread::yield_now();
                is_alone.store(false, Ordering::SeqCst);
                counted
            };
            let (stock, sold) = shop.db.transact(body).expect("it is tried until it commits");
            assert_eq!(stock + sold, ITEMS as i64 * STOCK);
        }
    });
}

/// Runs a body that its type does not allow. Returns what is said of it.
fn violation(
    kind: Kind,
    body: impl Fn(&Shop<Ic3<Native>>, &mut Transaction<'_, Ic3<Native>>) -> Result<(), Abort>,
) -> String {
    let shop = under_ic3();
    let outcome = shop.db.transact_as(kind, |tx| body(&shop, tx));
    let Err(Error::Undeclared(sentence)) = outcome else { panic!("{outcome:?}") };
    assert_eq!(shop.report(), Ok((ITEMS as i64 * STOCK, 0)), "it has left no trace");
    assert_eq!(shop.buy(1), Ok(()), "and others go on");
    sentence
}

#[test]
fn undeclared_accesses_are_named() {
    let sentence = violation(BUY, |shop, tx| {
        tx.piece(TAKE, |tx| tx.modify_columns(&shop.items, 0, Item::PRICE, |price| *price = 0)).map(drop)
    });
    assert_eq!(
        sentence,
        "buy, piece take: writes items (price), which is not declared; declare it by .modify(..) in the piece, or move the access into a piece that has it"
    );
    let sentence = violation(BUY, |shop, tx| {
        tx.piece(TAKE, |tx| tx.read(&shop.items, 0, Item::PRICE))?;
        tx.piece(SELL, |tx| tx.insert(&shop.totals, 9, Total { sold: 0 })).map(drop)
    });
    assert!(sentence.starts_with("buy, piece sell: inserts into totals, which is not declared;"), "{sentence}");
    let sentence = violation(BUY, |shop, tx| tx.read(&shop.totals, 0, Whole).map(drop));
    assert_eq!(sentence, "buy: accesses totals outside of any piece; valid pieces: take, sell");
    let sentence =
        violation(REPORT, |shop, tx| tx.piece(ALL, |tx| tx.modify(&shop.totals, 0, |total| total.sold = 0)).map(drop));
    assert!(sentence.starts_with("report, piece all: writes totals, which is not declared;"), "{sentence}");
    // A body that goes on after the refusal does not commit.
    let sentence = violation(BUY, |shop, tx| {
        let _ = tx.read(&shop.totals, 0, Whole);
        Ok(())
    });
    assert!(sentence.starts_with("buy: accesses totals outside of any piece"), "{sentence}");
}

#[test]
fn pieces_in_a_wrong_order_are_named() {
    let sentence = violation(BUY, |shop, tx| {
        tx.piece(TAKE, |tx| tx.read(&shop.items, 0, Item::PRICE))?;
        tx.piece(TAKE, |tx| tx.read(&shop.items, 0, Item::PRICE)).map(drop)
    });
    assert_eq!(
        sentence,
        "buy, piece take: begins piece take, which is not behind it; valid: take, sell, in this order, each once"
    );
    let sentence = violation(REPORT, |_, tx| tx.piece(SELL, |_| Ok(())));
    assert_eq!(sentence, "report: begins piece number 1, which it has not; valid: all");
}

#[test]
fn cancels_that_are_not_declared_are_named() {
    let late = violation(BUY, |_, tx| {
        tx.piece(SELL, |_| Ok(()))?;
        Err(tx.cancel())
    });
    assert_eq!(late, "buy, piece sell: cancels, which is not declared; declare it by .cancels() in the piece");
    let shop = under_ic3();
    assert_eq!(shop.db.transact_as(BUY, |tx| tx.piece(TAKE, |tx| Err::<(), _>(tx.cancel()))), Err(Error::Cancelled));
    // An error of the application's own is a cancel.
    #[derive(Debug, PartialEq)]
    enum Refused {
        Sold,
        Database(Error),
    }
    impl From<Error> for Refused {
        fn from(error: Error) -> Self {
            Refused::Database(error)
        }
    }
    impl From<Abort> for Refused {
        fn from(abort: Abort) -> Self {
            Refused::Database(abort.into())
        }
    }
    let refuse = |piece: Piece| {
        shop.db.try_transact_as(BUY, |tx| {
            tx.piece(piece, |_| Ok(()))?;
            Err::<(), _>(Refused::Sold)
        })
    };
    assert_eq!(refuse(TAKE), Err(Refused::Sold));
    assert_eq!(refuse(SELL), Err(Refused::Database(Error::Undeclared(late))));
}

#[test]
fn types_that_are_not_declared_are_refused() {
    let undeclared = |sentence: &str| Err(Error::Undeclared(sentence.into()));
    let shop = Shop::undeclared(Database::<Silo>::default());
    assert_eq!(shop.buy(0), undeclared("type buy is not declared; declare all types by Database::declare first"));
    assert_eq!(shop.db.analysis(), None);
    let shop = under_ic3();
    let other = Kind::new(2, "refund");
    let refused = undeclared("type refund of number 2 is not declared; valid: buy, report");
    assert_eq!(shop.db.transact_as(other, |_| Ok(())), refused);
    let renamed = Kind::new(0, "purchase");
    let refused = undeclared("type purchase of number 0 is not declared; valid: buy, report");
    assert_eq!(shop.db.transact_as(renamed, |_| Ok(())), refused);
}

#[test]
fn wrong_declarations_are_refused() {
    let refused = |declare: &dyn Fn(&mut Types, &Shop<Silo>)| {
        let shop = Shop::undeclared(Database::<Silo>::default());
        let outcome = shop.db.declare(|types| declare(types, &shop));
        let Err(Error::Declaration(sentence)) = outcome else { panic!("{outcome:?}") };
        assert_eq!(shop.db.analysis(), None, "nothing is declared");
        sentence
    };
    assert_eq!(
        refused(&|types, _| {
            types.add(REPORT);
        }),
        "type report is declared at position 0, and its number is 1; valid: numbers from 0 in the order of the declaration, each once"
    );
    let twice = |types: &mut Types, shop: &Shop<Silo>| {
        let read = |piece: contend::pieces::PieceBuilder| piece.read(&shop.items, Whole);
        types.add(BUY).piece(TAKE, read).piece(TAKE, read);
    };
    assert_eq!(
        refused(&twice),
        "buy declares piece take at position 1, and its number is 0; valid: numbers from 0 in the order of the program, each once"
    );
    let namesakes = |types: &mut Types, _: &Shop<Silo>| {
        types.add(BUY).piece(TAKE, |piece| piece).piece(Piece::new(1, "take"), |piece| piece);
    };
    assert_eq!(refused(&namesakes), "piece 'take' is declared twice");
    let changes = |types: &mut Types, shop: &Shop<Silo>| {
        types.add_read_only(BUY).piece(TAKE, |piece| piece.modify(&shop.items, Whole));
    };
    assert_eq!(refused(&changes), "buy, piece take: writes 'items', and its type is declared read-only");
    let other = Shop::undeclared(Database::<Silo>::default());
    let foreign = |types: &mut Types, _: &Shop<Silo>| {
        types.add(BUY).piece(TAKE, |piece| piece.read(&other.items, Whole));
    };
    assert_eq!(refused(&foreign), "buy, piece take: declares an access to a table of another store");
    let shop = under_ic3();
    let broken = shop.db.declare(|types| {
        types.add(BUY).piece(TAKE, |piece| piece).piece(TAKE, |piece| piece);
    });
    assert!(matches!(broken, Err(Error::Declaration(_))), "{broken:?}");
    assert_eq!(shop.buy(0), Ok(()), "the types before stay in force");
    let nested = shop.db.transact(|_| Ok(shop.db.declare(|_| ())));
    assert_eq!(nested, Ok(Err(Error::Nested)));
}

/// A type that reads the totals before the items, as no other does. It has the number of REPORT.
const AUDIT: Kind = Kind::new(1, "audit");
const TOTALS: Piece = Piece::new(0, "totals");
const STOCKS: Piece = Piece::new(1, "stocks");

impl<P: Protocol<Native>> Shop<P> {
    /// Declares sales that add to the totals, and a type of number 1. While that is REPORT the
    /// totals are sums, which need no order. With AUDIT they are ordered, in one step with the
    /// items.
    fn declare_sales(&self, second: Kind) {
        let declared = self.db.declare(|types| {
            types
                .add(BUY)
                .piece(TAKE, |piece| piece.modify(&self.items, Item::STOCK))
                .piece(SELL, |piece| piece.update(&self.totals, Total::SOLD.add(0)));
            if second == REPORT {
                types
                    .add_read_only(REPORT)
                    .piece(ALL, |piece| piece.read(&self.items, Whole).read(&self.totals, Whole));
            } else {
                types
                    .add(AUDIT)
                    .piece(TOTALS, |piece| piece.read(&self.totals, Whole))
                    .piece(STOCKS, |piece| piece.read(&self.items, Whole));
            }
        });
        assert_eq!(declared, Ok(()));
    }

    /// Buys, and lets other threads run between the pieces.
    fn buy_slowly(&self, item: u64) -> Result<(), Error> {
        self.db.transact_as(BUY, |tx| {
            tx.piece(TAKE, |tx| tx.modify_columns(&self.items, item, Item::STOCK, |stock| *stock -= 1))?;
            thread::yield_now();
            tx.piece(SELL, |tx| tx.update(&self.totals, 0, Total::SOLD.add(1))).map(drop)
        })
    }

    /// Counts in a transaction of the type AUDIT.
    fn audit(&self) -> Result<(i64, i64), Error> {
        self.db.transact_as(AUDIT, |tx| {
            let sold = tx.piece(TOTALS, |tx| tx.read(&self.totals, 0, Total::SOLD))?.unwrap_or(0);
            let mut stock = 0;
            tx.piece(STOCKS, |tx| {
                stock = 0;
                for item in 0..ITEMS {
                    stock += tx.read(&self.items, item, Item::STOCK)?.unwrap_or(0);
                }
                Ok(())
            })?;
            Ok((stock, sold))
        })
    }
}

/// Threads run what is declared while two threads declare other types in turns.
fn types_change<P: Protocol<Native>>(db: Database<P>, changes: u64) {
    let shop = Shop::undeclared(db);
    shop.declare_sales(REPORT);
    let is_over = AtomicBool::new(false);
    let [sold, audits, reports] = [(); 3].map(|()| AtomicI64::new(0));
    // Relaxed, all: a hint to stop, and counts that are read after the threads.
    let load = |count: &AtomicI64| count.load(Ordering::Relaxed);
    let count = |counted: Result<(i64, i64), Error>, valid: [i64; 2], counts: &AtomicI64| match counted {
        Ok((stock, sold)) => {
            assert!(valid.contains(&(stock + sold)), "{stock} in stock and {sold} sold: a sale is seen as a whole");
            counts.fetch_add(1, Ordering::Relaxed);
        }
        Err(Error::Undeclared(sentence)) => assert!(sentence.contains("of number 1 is not declared"), "{sentence}"),
        Err(error) => panic!("{error}"),
    };
    let change = || {
        for kind in [AUDIT, REPORT] {
            shop.declare_sales(kind);
            thread::sleep(Duration::from_micros(50));
        }
    };
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    let number = sold.fetch_add(1, Ordering::Relaxed) as u64;
                    shop.buy_slowly(number % ITEMS).expect("it is always declared");
                }
            });
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                count(shop.audit(), [ITEMS as i64 * STOCK; 2], &audits);
                // Another thread has loaded the rows, and the snapshot may be older.
                count(shop.report(), [0, ITEMS as i64 * STOCK], &reports);
            }
        });
        let changing = [(); 2].map(|()| scope.spawn(|| (0..changes / 2).for_each(|_| change())));
        changing.into_iter().for_each(|thread| thread.join().expect("no panic"));
        while load(&audits).min(load(&reports)).min(load(&sold)) < 3 {
            change();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let sold = load(&sold);
    assert_eq!(shop.db.transact(|tx| shop.count(tx)), Ok((ITEMS as i64 * STOCK - sold, sold)));
}

#[test]
fn types_change_while_transactions_run() {
    let named = |name, options: &[(&str, &str)]| Database::<AnyProtocol>::named(name, options).and_then(|it| it.open());
    types_change(named("ic3", &[]).expect("it"), 200);
    types_change(named("ic3", &[("ic3.whole", "off")]).expect("it"), 200);
    // Snapshots are kept for reports, and not for audits.
    types_change(named("ic3", &[("ic3.snapshots", "needed")]).expect("it"), 200);
    types_change(named("ic3", &[("ic3.snapshots", "needed"), ("ic3.whole", "off")]).expect("it"), 200);
    for name in ["chopping", "silo", "datm"] {
        types_change(named(name, &[]).expect("it"), 50);
    }
}

/// A transaction may ask for the analysis while another thread waits for its end to declare types.
#[test]
fn the_analysis_is_told_within_a_transaction() {
    let shop = under_ic3();
    let is_declared = AtomicBool::new(false);
    thread::scope(|scope| {
        let told = shop.db.transact_as(BUY, |tx| {
            tx.piece(TAKE, |tx| tx.modify_columns(&shop.items, 0, Item::STOCK, |stock| *stock -= 1))?;
            scope.spawn(|| {
                shop.declare_sales(AUDIT);
                // Relaxed: a flag that is read after the thread, or says that it came too early.
                is_declared.store(true, Ordering::Relaxed);
            });
            thread::sleep(Duration::from_millis(20));
            assert!(!is_declared.load(Ordering::Relaxed), "the declaration waits");
            Ok(shop.db.analysis().is_some_and(|text| text.contains("report")))
        });
        assert_eq!(told, Ok(true));
    });
    assert!(is_declared.into_inner() && shop.db.analysis().is_some_and(|text| text.contains("audit")));
}

#[test]
fn types_change_under_transactions_that_starve() {
    let mut config = Config::default();
    config.engine.protect_after = 1;
    types_change(Database::<Ic3<Native>>::with(Default::default(), config).expect("valid options"), 200);
}

#[test]
fn a_panic_behind_a_shown_piece_undoes_the_piece() {
    let shop = under_ic3();
    let panics = AtomicI64::new(0);
    let buy = |number: u64| {
        shop.db.transact_as(BUY, |tx| {
            tx.piece(TAKE, |tx| tx.modify_columns(&shop.items, 0, Item::STOCK, |stock| *stock -= 1))?;
            // Not by `panic!`, which would print.
            if number.is_multiple_of(7) {
                std::panic::resume_unwind(Box::new(()));
            }
            tx.piece(SELL, |tx| tx.modify(&shop.totals, 0, |total| total.sold += 1)).map(drop)
        })
    };
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for number in 1..=300 {
                    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buy(number))) {
                        Ok(bought) => assert_eq!(bought, Ok(())),
                        // Relaxed: a count that is read after the threads.
                        Err(_) => drop(panics.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
    });
    assert_eq!(panics.into_inner(), 3 * (300 / 7));
    let sold = 3 * (300 - 300 / 7);
    assert_eq!(shop.db.transact(|tx| shop.count(tx)), Ok((ITEMS as i64 * STOCK - sold, sold)));
}

#[test]
fn the_analysis_is_shown() {
    let text = under_ic3().db.analysis().expect("types are declared");
    let expected = "2 types, 3 pieces, 2 tables, 3 units (ts=on, cu=on, read-only types on snapshots)\n";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("buy     [1 take] [2 sell]\nreport  on a snapshot: all\n"), "{text}");
}

#[test]
fn a_table_that_is_younger_than_the_declaration_is_for_transactions_without_a_type() {
    let shop = under_ic3();
    let late: Table<Total> = shop.db.create_table("late").expect("new");
    assert_eq!(shop.db.load(&late, [(1, Total { sold: 3 })]), Ok(1));
    assert_eq!(shop.db.transact(|tx| tx.read(&late, 1, Total::SOLD)), Ok(Some(3)));
    let refused = shop.db.transact_as(BUY, |tx| tx.piece(TAKE, |tx| tx.read(&late, 1, Total::SOLD)));
    let sentence = "buy, piece take: accesses table 2, which was created after the declaration";
    assert_eq!(refused, Err(Error::Undeclared(sentence.into())));
}

#[test]
fn a_durable_database_is_declared_again_when_it_is_opened_again() {
    let folder = tempfile::tempdir().expect("a folder");
    for durability in [Durability::Epoch, Durability::Early] {
        let path = folder.path().join(format!("{durability:?}"));
        let open = || {
            let builder = Database::<Ic3<Native>>::builder().path(&path).durability(durability);
            Shop::new(builder.config(Config { epoch_ms: 1, ..Config::default() }).open().expect("a database"))
        };
        for opened in 0..3 {
            let shop = open();
            assert_eq!(shop.report(), Ok((ITEMS as i64 * STOCK - opened * 20, opened * 20)), "{durability:?}");
            thread::scope(|scope| {
                for buyer in 0..2 {
                    let shop = &shop;
                    scope
                        .spawn(move || (0..10).for_each(|number| shop.buy((number + buyer) % ITEMS).expect("durable")));
                }
            });
            let refused = shop.db.transact_as(BUY, |tx| tx.read(&shop.items, 0, Whole));
            assert!(matches!(refused, Err(Error::Undeclared(_))), "{refused:?}");
        }
    }
    let refused = Database::<Ic3<Native>>::builder().path(folder.path()).durability(Durability::Conservative).open();
    assert!(matches!(refused, Err(Error::NotConservative { protocol: "ic3" })));
}

const PUT: Kind = Kind::new(0, "put");
const DROP: Kind = Kind::new(1, "drop");
const ROW: Piece = Piece::new(0, "row");
const COUNT: Piece = Piece::new(1, "count");

/// Keys come and go across epochs and openings, bodies panic, and the types are declared again all
/// the while: what was acknowledged is there.
#[test]
fn what_was_acknowledged_outlives_declarations_panics_and_openings() {
    const ROUNDS: i64 = 60;
    for (whole, durability) in [("on", Durability::Epoch), ("off", Durability::Epoch), ("off", Durability::Early)] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut expected = [None::<i64>; 4];
        for opened in 0..4 {
            let builder = Database::named("ic3", &[("ic3.whole", whole)]).expect("it is registered");
            let builder = builder.config(Config { epoch_ms: 1, ..Config::default() });
            let db = builder.path(folder.path()).durability(durability).open().expect("a database");
            let (rows, totals): (Table<Item>, Table<Total>) = (
                db.create_table("rows").expect("one of this name"),
                db.create_table("totals").expect("one of this name"),
            );
            db.load(&totals, [(0, Total { sold: 0 })]).expect("memory");
            let found = [0, 1, 2, 3].map(|key| db.transact(|tx| tx.read(&rows, key, Item::PRICE)).expect("it commits"));
            assert_eq!(found, expected, "whole={whole}, {durability:?}, opened {opened} times before");
            let there = expected.iter().flatten().count() as i64;
            assert_eq!(db.transact(|tx| tx.read(&totals, 0, Total::SOLD)), Ok(Some(there)));
            let declare = |ordered: bool| {
                let declared = db.declare(|types| {
                    for kind in [PUT, DROP] {
                        let row =
                            types.add(kind).piece(ROW, |piece| piece.insert(&rows).delete(&rows).modify(&rows, Whole));
                        row.piece(COUNT, |piece| match ordered {
                            true => piece.modify(&totals, Whole),
                            false => piece.update(&totals, Total::SOLD.add(0)),
                        });
                    }
                });
                assert_eq!(declared, Ok(()));
            };
            declare(false);
            let run = |key: u64, number: i64| {
                let kind = if number % 2 == 0 { PUT } else { DROP };
                let body = || {
                    db.transact_as(kind, |tx| {
                        let changed = tx.piece(ROW, |tx| match number % 2 {
                            0 => tx.insert(&rows, key, Item { price: number, stock: 0 }),
                            _ => tx.delete(&rows, key),
                        })?;
                        if number % 17 == 16 {
                            std::panic::resume_unwind(Box::new(()));
                        }
                        let by = i64::from(changed) * if number % 2 == 0 { 1 } else { -1 };
                        tx.piece(COUNT, |tx| tx.update(&totals, 0, Total::SOLD.add(by)))?;
                        Ok(changed)
                    })
                };
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).ok().map(|done| done.expect("durable"))
            };
            let (run, is_over) = (&run, &AtomicBool::new(false));
            thread::scope(|scope| {
                let of_keys = expected.chunks_mut(2).enumerate().map(|(owner, own)| {
                    scope.spawn(move || {
                        for number in (0..ROUNDS).map(|number| number + opened) {
                            for (key, row) in own.iter_mut().enumerate() {
                                let changed = run((owner * 2 + key) as u64, number);
                                let next = if number % 2 == 0 { Some(number) } else { None };
                                match changed {
                                    // An insert finds the row where a delete has panicked.
                                    Some(changed) => *row = if changed { next } else { *row },
                                    None => assert_eq!(number % 17, 16),
                                }
                            }
                        }
                    })
                });
                let of_keys: Vec<_> = of_keys.collect();
                scope.spawn(|| {
                    // Relaxed: a hint to stop.
                    while !is_over.load(Ordering::Relaxed) {
                        [true, false].into_iter().for_each(declare);
                        thread::sleep(Duration::from_millis(1));
                    }
                });
                of_keys.into_iter().for_each(|thread| thread.join().expect("no panic"));
                is_over.store(true, Ordering::Relaxed);
            });
        }
    }
}
