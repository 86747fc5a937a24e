//! One transaction, as an application sees it: operations, errors, rollback, misuse.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};

use contend::protocols::NoControl;
use contend::{
    Abort, AbortReason, Config, Database, Direction, Error, Groups, IndexKind, NamedProtocol, Native, NoWait, Row,
    Silo, Table, TableOptions, Txn, Update, Whole,
};

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Account {
    balance: i64,
    owner: [u8; 8],
}

fn account(balance: i64) -> Account {
    Account { balance, owner: *b"somebody" }
}

fn bank<P: NamedProtocol<Native>>() -> (Database<P>, Table<Account>) {
    let db = Database::<P>::default();
    let accounts = db.create_table("accounts").expect("a new name");
    assert_eq!(db.load(&accounts, (0..10).map(|id| (id, account(100)))), Ok(10));
    (db, accounts)
}

fn balances<P: NamedProtocol<Native>>(
    db: &Database<P>,
    accounts: &Table<Account>,
    direction: Direction,
) -> Vec<(u64, i64)> {
    let scanned = db.transact(|tx| {
        let mut seen = Vec::new();
        let visited = tx.scan(accounts, 0..=u64::MAX, usize::MAX, direction, Account::BALANCE, |id, balance| {
            seen.push((id, balance));
            ControlFlow::Continue(())
        })?;
        assert_eq!(visited, seen.len());
        Ok(seen)
    });
    scanned.expect("a scan commits")
}

/// Runs the same test under each protocol. It has one thread, so it also holds under the protocol
/// that promises nothing.
macro_rules! under_each_protocol {
    ($($test:ident)*) => {
        mod silo {
            $(#[test] fn $test() { super::$test::<super::Silo>() })*
        }
        mod no_wait {
            $(#[test] fn $test() { super::$test::<super::NoWait>() })*
        }
        mod no_control {
            $(#[test] fn $test() { super::$test::<super::NoControl>() })*
        }
    };
}

under_each_protocol! {
    operations own_writes errors_roll_back conflicts_by_hand panics scans byte_keys
    nested foreign_tables hash_tables_have_no_ranges loading loads_of_odd_iterators
}

fn operations<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let outcome = db.transact(|tx| {
        assert_eq!(tx.read(&accounts, 3, Account::BALANCE)?, Some(100));
        assert_eq!(tx.read(&accounts, 3, (Account::OWNER, Account::BALANCE))?, Some((*b"somebody", 100)));
        assert_eq!(tx.read(&accounts, 99, Whole)?, None);
        assert!(tx.insert(&accounts, 10, account(1))?);
        assert!(!tx.insert(&accounts, 3, account(1))?);
        assert!(tx.write(&accounts, 4, account(4))?);
        assert_eq!(tx.modify(&accounts, 5, |row| std::mem::replace(&mut row.balance, 5))?, Some(100));
        assert!(tx.delete(&accounts, 6)?);
        assert!(!tx.delete(&accounts, 98)?);
        Ok("done")
    });
    assert_eq!(outcome, Ok("done"));
    let after = balances(&db, &accounts, Direction::Forward);
    let expected = [(0, 100), (1, 100), (2, 100), (3, 100), (4, 4), (5, 5), (7, 100), (8, 100), (9, 100), (10, 1)];
    assert_eq!(after, expected);
    let many = db.transact(|tx| {
        let mut seen = Vec::new();
        tx.read_many(&accounts, &[4, 6, 10], Account::BALANCE, |position, balance| seen.push((position, balance)))?;
        Ok(seen)
    });
    assert_eq!(many, Ok(vec![(0, Some(4)), (1, None), (2, Some(1))]));
}

fn own_writes<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let outcome = db.transact(|tx| {
        tx.modify(&accounts, 1, |row| row.balance = 7)?;
        assert_eq!(tx.read(&accounts, 1, Account::BALANCE)?, Some(7));
        assert!(tx.insert(&accounts, 50, account(50))?);
        assert_eq!(tx.read(&accounts, 50, Whole)?, Some(account(50)));
        assert!(tx.delete(&accounts, 50)? && tx.read(&accounts, 50, Whole)?.is_none());
        assert!(tx.insert(&accounts, 50, account(51))?);
        tx.delete(&accounts, 0)
    });
    assert_eq!(outcome, Ok(true));
    let after = balances(&db, &accounts, Direction::Forward);
    assert_eq!((after[0], after[9]), ((1, 7), (50, 51)));
}

#[derive(Debug, PartialEq)]
enum Refused {
    TooPoor,
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

fn errors_roll_back<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let before = balances(&db, &accounts, Direction::Forward);
    let mut calls = 0;
    let refused = db.try_transact(|tx| -> Result<(), Refused> {
        calls += 1;
        tx.modify(&accounts, 1, |row| row.balance = -1)?;
        tx.insert(&accounts, 50, account(50))?;
        tx.delete(&accounts, 2)?;
        Err(Refused::TooPoor)
    });
    assert_eq!((refused, calls), (Err(Refused::TooPoor), 1));
    let cancelled = db.transact(|tx| -> Result<(), Abort> {
        calls += 1;
        tx.write(&accounts, 1, account(-1))?;
        Err(tx.cancel())
    });
    assert_eq!((cancelled, calls), (Err(Error::Cancelled), 2));
    let cancelled = db.try_transact(|tx| -> Result<(), Refused> { Err(tx.cancel().into()) });
    assert_eq!(cancelled, Err(Refused::Database(Error::Cancelled)));
    assert_eq!(balances(&db, &accounts, Direction::Forward), before);
    assert_eq!(db.retries(), 0);
}

/// A body may return an abort of its own that asks for another try.
fn conflicts_by_hand<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let mut calls = 0;
    let outcome = db.transact(|tx| {
        calls += 1;
        tx.modify(&accounts, 1, |row| row.balance += 1)?;
        if calls < 4 { Err(Abort::new(AbortReason::ReadValidation)) } else { Ok(()) }
    });
    assert_eq!((outcome, calls, db.retries()), (Ok(()), 4, 3));
    assert_eq!(balances(&db, &accounts, Direction::Forward)[1], (1, 101));
}

fn panics<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let before = balances(&db, &accounts, Direction::Forward);
    for _ in 0..3 {
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            db.transact(|tx| -> Result<(), Abort> {
                tx.modify(&accounts, 1, |row| row.balance = -1)?;
                tx.insert(&accounts, 50, account(50))?;
                std::panic::resume_unwind(Box::new("on purpose"));
            })
        }));
        assert!(panicked.is_err());
    }
    assert_eq!(balances(&db, &accounts, Direction::Forward), before);
    // No lock is left that would stop another thread.
    std::thread::scope(|scope| {
        scope.spawn(|| db.transact(|tx| tx.modify(&accounts, 1, |row| row.balance = 1)).expect("a free row"));
    });
    assert_eq!(db.transact(|tx| tx.read(&accounts, 1, Account::BALANCE)), Ok(Some(1)));
}

fn scans<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let forward = balances(&db, &accounts, Direction::Forward);
    let mut backward = balances(&db, &accounts, Direction::Backward);
    assert_eq!((forward.len(), backward[0]), (10, (9, 100)));
    backward.reverse();
    assert_eq!(forward, backward);
    let some = |range: std::ops::RangeInclusive<u64>, limit, direction| {
        let scanned = db.transact(|tx| {
            let mut keys = Vec::new();
            tx.scan(&accounts, range.clone(), limit, direction, Whole, |key, _| {
                keys.push(key);
                if key == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            })?;
            Ok(keys)
        });
        scanned.expect("a scan commits")
    };
    assert_eq!(some(2..=4, usize::MAX, Direction::Forward), [2, 3, 4]);
    assert_eq!(some(2..=4, 2, Direction::Backward), [4, 3]);
    assert_eq!(some(4..=9, usize::MAX, Direction::Forward), [4, 5]);
    assert_eq!(some(20..=30, usize::MAX, Direction::Forward), [0u64; 0]);
}

fn byte_keys<P: NamedProtocol<Native>>() {
    let db = Database::<P>::default();
    let names: Table<Account, [u8; 16]> = db.create_table("names").expect("a new name");
    let key = |name: &str| {
        let mut key = [0; 16];
        key[..name.len()].copy_from_slice(name.as_bytes());
        key
    };
    let order = ["ada", "alan", "barbara", "edsger", "grace"];
    let outcome = db.transact(|tx| {
        for name in ["grace", "alan", "edsger", "ada", "barbara"] {
            assert!(tx.insert(&names, key(name), account(name.len() as i64))?);
        }
        tx.read(&names, key("alan"), Account::BALANCE)
    });
    assert_eq!(outcome, Ok(Some(4)));
    let scanned = db.transact(|tx| {
        let mut seen = Vec::new();
        tx.scan(&names, key("a")..=key("f"), usize::MAX, Direction::Forward, Whole, |key, _| {
            seen.push(key);
            ControlFlow::Continue(())
        })?;
        Ok(seen)
    });
    assert_eq!(scanned.expect("a scan commits"), order[..4].iter().map(|name| key(name)).collect::<Vec<_>>());
}

fn nested<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let (other, others) = bank::<P>();
    let outcome = db.transact(|tx| {
        tx.modify(&accounts, 1, |row| row.balance = 5)?;
        assert_eq!(db.transact(|_| Ok(())), Err(Error::Nested));
        assert_eq!(db.clone().try_transact(|_| Ok::<_, Refused>(())), Err(Refused::Database(Error::Nested)));
        // Two databases are independent of each other.
        assert_eq!(other.transact(|tx| tx.read(&others, 1, Account::BALANCE)), Ok(Some(100)));
        tx.read(&accounts, 1, Account::BALANCE)
    });
    assert_eq!(outcome, Ok(Some(5)));
    assert_eq!(db.transact(|tx| tx.read(&accounts, 1, Account::BALANCE)), Ok(Some(5)));
}

fn foreign_tables<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    let (other, others) = bank::<P>();
    let mut calls = 0;
    let outcome = db.transact(|tx| {
        calls += 1;
        tx.modify(&accounts, 1, |row| row.balance = 0)?;
        tx.read(&others, 1, Account::BALANCE)
    });
    assert_eq!((outcome, calls), (Err(Error::Unsupported), 1));
    assert_eq!(db.transact(|tx| tx.insert(&others, 77, account(1))), Err(Error::Unsupported));
    assert_eq!(db.load(&others, [(77, account(1))]), Err(Error::ForeignTable { name: "accounts".into() }));
    assert_eq!(balances(&other, &others, Direction::Forward).len(), 10);
    assert_eq!(db.transact(|tx| tx.read(&accounts, 1, Account::BALANCE)), Ok(Some(100)));
}

fn hash_tables_have_no_ranges<P: NamedProtocol<Native>>() {
    let db = Database::<P>::default();
    let options = TableOptions { index: IndexKind::Hash, expected_rows: 100 };
    let table: Table<Account> = db.create_table_with("hashed", options).expect("a new name");
    assert_eq!(db.load(&table, (0..100).map(|id| (id, account(1)))), Ok(100));
    assert_eq!(db.transact(|tx| tx.read(&table, 42, Account::BALANCE)), Ok(Some(1)));
    let scanned =
        db.transact(|tx| tx.scan(&table, 0..=9, 10, Direction::Forward, Whole, |_, _| ControlFlow::Continue(())));
    assert_eq!(scanned, Err(Error::Unsupported));
}

fn loading<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    assert_eq!(db.load(&accounts, [(3, account(0)), (10, account(0)), (10, account(1))]), Ok(1));
    assert_eq!(db.transact(|tx| tx.read(&accounts, 3, Account::BALANCE)), Ok(Some(100)));
    assert_eq!(db.transact(|tx| tx.read(&accounts, 10, Account::BALANCE)), Ok(Some(0)));
    assert!(db.bytes() > 0);
    let again: Result<Table<Account>, Error> = db.create_table("accounts");
    assert_eq!(again.expect_err("the name is taken"), Error::TableExists { name: "accounts".into() });
}

fn loads_of_odd_iterators<P: NamedProtocol<Native>>() {
    let (db, accounts) = bank::<P>();
    // The rows that it returned before the panic are added, up to the last full transaction.
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let rows = (100..)
            .map(|key| if key < 3000 { (key, account(1)) } else { std::panic::resume_unwind(Box::new("on purpose")) });
        db.load(&accounts, rows)
    }));
    assert!(panicked.is_err());
    let after = balances(&db, &accounts, Direction::Forward);
    assert!(after.len() > 1000 && after.len() < 2910, "{} rows", after.len());
    assert_eq!(
        after,
        (0..10).chain(100..).map(|key| (key, if key < 10 { 100 } else { 1 })).take(after.len()).collect::<Vec<_>>()
    );
    // An endless iterator, until there is an error.
    let other = bank::<P>().1;
    assert_eq!(
        db.load(&other, (0..).map(|key| (key, account(1)))),
        Err(Error::ForeignTable { name: "accounts".into() })
    );
    assert_eq!(db.load(&accounts, []), Ok(0));
    // A row that was deleted a moment ago is absent.
    assert_eq!(db.transact(|tx| tx.delete(&accounts, 3)), Ok(true));
    assert_eq!(db.load(&accounts, [(3, account(33))]), Ok(1));
    assert_eq!(db.transact(|tx| tx.read(&accounts, 3, Account::BALANCE)), Ok(Some(33)));
    // The thread loads, and may start nothing else meanwhile.
    let nested = db.load(
        &accounts,
        (20..23).map(|key| {
            assert_eq!(db.load(&accounts, [(30, account(0))]), Err(Error::Nested));
            assert_eq!(db.transact(|_| Ok(())), Err(Error::Nested));
            (key, account(2))
        }),
    );
    assert_eq!(nested, Ok(3));
    let within = db.transact(|tx| {
        assert_eq!(db.load(&accounts, [(31, account(0))]), Err(Error::Nested));
        assert_eq!(db.checkpoint().map(|_| ()), Err(Error::Nested));
        tx.read(&accounts, 20, Account::BALANCE)
    });
    assert_eq!(within, Ok(Some(2)));
}

#[test]
fn errors_say_what_to_do() {
    let db = Database::<Silo>::with(Default::default(), Config { threads_max: 1, ..Config::default() })
        .expect("threads for it");
    assert_eq!(db.transact(|_| Ok(())), Ok(()));
    let second = std::thread::scope(|scope| scope.spawn(|| db.transact(|_| Ok(()))).join().expect("no panic"));
    assert_eq!(second, Err(Error::TooManyThreads { limit: 1 }));
    assert!(second.unwrap_err().to_string().contains("Config::threads_max"));
    assert!(Error::Nested.to_string().contains("pass `tx` on"));
}

/// Column types of the application's own, without a dependency on zerocopy.
#[test]
fn own_column_types() {
    use contend::zerocopy::{FromBytes, Immutable, IntoBytes};

    #[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable)]
    #[zerocopy(crate = "contend::zerocopy")]
    #[repr(transparent)]
    struct Cents(i64);

    #[derive(Clone, Copy, Row)]
    #[repr(C)]
    struct Price {
        cents: Cents,
    }

    let db = Database::new();
    let prices: Table<Price> = db.create_table("prices").expect("a new name");
    let outcome = db.transact(|tx| {
        tx.insert(&prices, 1, Price { cents: Cents(99) })?;
        tx.read(&prices, 1, Price::CENTS)
    });
    assert_eq!(outcome, Ok(Some(Cents(99))));
}

/// A row of two groups, and an operation of the application's own.
#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Auction {
    seller: u64,
    #[group = 1]
    best: u64,
    #[group = 1]
    bidder: u64,
}

#[derive(Clone, Copy)]
struct Bid {
    amount: u64,
    bidder: u64,
}

impl Update<Auction> for Bid {
    fn groups(&self) -> Groups {
        Groups::of(Auction::BEST.group())
    }

    fn apply(&self, auction: &mut Auction) {
        if self.amount > auction.best {
            (auction.best, auction.bidder) = (self.amount, self.bidder);
        }
    }
}

#[test]
fn operations_of_the_applications_own_are_applied_at_commit() {
    fn bids<P: NamedProtocol<Native>>() {
        let db = Database::<P>::default();
        let auctions: Table<Auction> = db.create_table("auctions").expect("a new name");
        db.load(&auctions, [(1, Auction { seller: 9, best: 0, bidder: 0 })]).expect("memory");
        std::thread::scope(|scope| {
            for bidder in 1..=4 {
                let (db, auctions) = (db.clone(), auctions.clone());
                scope.spawn(move || {
                    for round in 0..500 {
                        let bid = Bid { amount: round * 10 + bidder, bidder };
                        let found = db.transact(|tx| {
                            // The transaction reads one group and changes the other, so bids don't
                            // conflict with it.
                            let seller = tx.read(&auctions, 1, Auction::SELLER)?;
                            Ok(seller == Some(9) && tx.update(&auctions, 1, bid)?)
                        });
                        assert_eq!(found, Ok(true));
                    }
                });
            }
        });
        let end = db.transact(|tx| tx.read(&auctions, 1, Whole)).expect("a commit").expect("it is there");
        assert_eq!(end, Auction { seller: 9, best: 4994, bidder: 4 });
        let missing = db.transact(|tx| tx.update(&auctions, 2, Auction::BEST.max(7)));
        assert_eq!(missing, Ok(false), "an update of a missing row changes nothing");
        let both = db.transact(|tx| {
            tx.update(&auctions, 1, (Auction::BEST.add(6), Auction::BIDDER.set(8)))?;
            tx.modify_columns(&auctions, 1, Auction::SELLER, |seller| *seller += 1)?;
            tx.read(&auctions, 1, Whole)
        });
        assert_eq!(both, Ok(Some(Auction { seller: 10, best: 5000, bidder: 8 })), "own updates are seen");
    }
    bids::<Silo>();
    bids::<NoWait>();
}
