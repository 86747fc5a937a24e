//! A bank: several threads move money between accounts, while one thread adds all balances up,
//! again and again.
//!
//! `cargo run --release -p contend --example bank`

use std::ops::ControlFlow;
use std::thread;

use contend::{Abort, Database, Direction, Error, Row, Table, Transaction, Txn};

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    balance: i64,
    transfers: u64,
}

const ACCOUNTS: u64 = 100;
const START: i64 = 1_000;

/// Moves money, if the account has it. The function takes the transaction as a parameter, so that
/// it can be a part of a larger one.
fn transfer(tx: &mut Transaction, accounts: &Table<Account>, from: u64, to: u64, amount: i64) -> Result<bool, Abort> {
    if from == to || tx.read(accounts, from, Account::BALANCE)?.is_none_or(|balance| balance < amount) {
        return Ok(false);
    }
    for (account, change) in [(from, -amount), (to, amount)] {
        tx.modify(accounts, account, |account| {
            account.balance += change;
            account.transfers += 1;
        })?;
    }
    Ok(true)
}

/// Adds all balances up.
fn audit(tx: &mut Transaction, accounts: &Table<Account>) -> Result<i64, Abort> {
    let mut sum = 0;
    tx.scan(accounts, 0..=u64::MAX, usize::MAX, Direction::Forward, Account::BALANCE, |_, balance| {
        sum += balance;
        ControlFlow::Continue(())
    })?;
    Ok(sum)
}

fn main() -> Result<(), Error> {
    let db = Database::new();
    let accounts: Table<Account> = db.create_table("accounts")?;
    db.load(&accounts, (0..ACCOUNTS).map(|id| (id, Account { balance: START, transfers: 0 })))?;

    let moved = thread::scope(|scope| {
        let tellers: Vec<_> = (0..4u64)
            .map(|teller| {
                let (db, accounts) = (&db, &accounts);
                scope.spawn(move || -> Result<u64, Error> {
                    let mut moved = 0;
                    for step in 0..50_000 {
                        let (from, to) = ((step * 7 + teller) % ACCOUNTS, (step * 13 + teller * 31) % ACCOUNTS);
                        moved += u64::from(db.transact(|tx| transfer(tx, accounts, from, to, 10))?);
                    }
                    Ok(moved)
                })
            })
            .collect();
        // An audit never sees a half-done transfer of a teller.
        for _ in 0..100 {
            assert_eq!(db.transact(|tx| audit(tx, &accounts))?, ACCOUNTS as i64 * START);
        }
        tellers.into_iter().map(|teller| teller.join().expect("a teller does not panic")).sum::<Result<u64, Error>>()
    })?;

    let sum = db.transact(|tx| audit(tx, &accounts))?;
    println!("{moved} transfers, {} retries; the accounts hold {sum}", db.retries());
    Ok(())
}
