//! A shop that declares its transactions: checkouts, restocking, and a report that only reads.
//!
//! The same bodies run three ways. First under a database of this crate, on the threads of this
//! machine. Then on a simulated chip of 64 cores, under Silo and under IC3. IC3 uses the
//! declarations: checkouts that want the same item run side by side, one behind the other.
//!
//! | file | contents |
//! | --- | --- |
//! | `shop.rs` | rows, declarations, and the bodies of the transactions |
//! | `chip.rs` | the run on a simulated chip |
//!
//! `cargo run --release -p contend --example shop`

mod chip;
mod shop;

use std::thread;
use std::time::Instant;

use contend::protocols::Ic3;
use contend::{Abort, Database, Error, NamedProtocol, Native, Silo, Txn};
use contend_engine::AbortReason;

use shop::{CHECKOUT, Client, Draw, KINDS, REPORT, RESTOCK, Sold, Tables};

/// Threads, and transactions of each.
const THREADS: u64 = 2;
const TRANSACTIONS: u64 = 20_000;

fn main() -> Result<(), Error> {
    embedded::<Silo>("silo")?;
    let db = embedded::<Ic3<Native>>("ic3")?;
    println!("\n{}", db.analysis().unwrap_or_default());

    println!("{} simulated cores (opteron-6474x8):", chip::CORES);
    for (name, rate) in [("silo", chip::run::<chip::SimulatedSilo>()), ("ic3", chip::run::<chip::SimulatedIc3>())] {
        println!("  {name}: {:.0} k transactions a second", rate / 1e3);
    }
    Ok(())
}

/// Runs the shop on threads of this machine, and checks its books.
fn embedded<P: NamedProtocol<Native>>(name: &str) -> Result<Database<P>, Error> {
    let db = Database::<P>::default();
    let tables = Tables {
        users: *db.create_table("users")?,
        items: *db.create_table("items")?,
        offers: *db.create_table("offers")?,
        coupons: *db.create_table("coupons")?,
        branches: *db.create_table("branches")?,
        orders: *db.create_table("orders")?,
        lines: *db.create_table("lines")?,
    };
    // Rows are loaded before the types are declared: what has no type runs alone afterwards.
    db.transact(|tx| shop::fill(tx, &tables))?;
    db.declare(|types| {
        shop::declare_checkout(types.add(CHECKOUT), &tables);
        shop::declare_restock(types.add(RESTOCK), &tables);
        shop::declare_report(types.add_read_only(REPORT), &tables);
    })?;
    let began = Instant::now();
    let sold = thread::scope(|scope| {
        let sellers: Vec<_> = (0..THREADS)
            .map(|number| {
                let (db, tables) = (&db, &tables);
                scope.spawn(move || sell(db, tables, Client::new(number)))
            })
            .collect();
        sellers.into_iter().map(|seller| seller.join().expect("a seller does not panic")).sum::<Result<Sold, Error>>()
    })?;
    let rate = (THREADS * TRANSACTIONS) as f64 / began.elapsed().as_secs_f64();
    let books = db.transact(|tx| shop::books(tx, &tables))?;
    assert_eq!(books, sold, "the tables say what was sold");
    println!("{THREADS} threads, {name}: {:.0} k transactions a second, {} orders", rate / 1e3, sold.orders);
    Ok(db)
}

/// Runs transactions, and returns what they have sold.
fn sell<P: NamedProtocol<Native>>(db: &Database<P>, tables: &Tables, mut client: Client) -> Result<Sold, Error> {
    let mut sold = Sold::default();
    for _ in 0..TRANSACTIONS {
        let draw = client.draw();
        let outcome = match &draw {
            Draw::Checkout(basket) => {
                db.transact_as(CHECKOUT, |tx| shop::checkout(tx, tables, basket)).map(|total| sold.note(1, total))
            }
            Draw::Restock(offer, items) => db.transact_as(RESTOCK, |tx| shop::restock(tx, tables, *offer, items)),
            Draw::Report => db.transact_as(REPORT, |tx| shop::report(tx, tables)).map(drop),
        };
        match outcome {
            // An offer was sold out.
            Ok(()) | Err(Error::Cancelled) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sold)
}

/// Runs a transaction of any store, and notes what it sells.
fn execute<T: Txn>(tx: &mut T, tables: &Tables, draw: &Draw) -> Result<(), Abort> {
    match draw {
        Draw::Checkout(basket) => shop::checkout(tx, tables, basket).map(drop),
        Draw::Restock(offer, items) => shop::restock(tx, tables, *offer, items),
        Draw::Report => shop::report(tx, tables).map(drop),
    }
}

/// Whether a transaction that ended so is tried again.
fn is_tried_again(abort: Abort) -> bool {
    assert!(abort.reason.is_conflict() || abort.reason == AbortReason::User, "{abort}");
    abort.reason.is_conflict()
}

const _: () = assert!(KINDS.len() == 3, "`main` declares all of them");

/// The chip gives the same figures each time.
#[test]
fn ic3_sells_more_than_silo_on_64_cores() {
    let (silo, ic3) = (chip::run::<chip::SimulatedSilo>(), chip::run::<chip::SimulatedIc3>());
    assert!(ic3 > 1.1 * silo, "silo {silo}, ic3 {ic3}");
}

#[test]
fn the_books_agree_under_both_protocols() {
    embedded::<Silo>("silo").expect("no error");
    embedded::<Ic3<Native>>("ic3").expect("no error");
}
