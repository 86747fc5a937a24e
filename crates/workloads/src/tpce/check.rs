//! The conditions that hold in TPC-E after any run.
//!
//! The books of clients are asked last, and only if there are clients: after a recovery there are
//! none.

use std::collections::HashMap;

use contend_model::{Inspect, Key, Row, counted};

use super::generate::{
    ACCOUNTS_MAX, COMPLETED, PENDING, SUBMITTED, account_number, accounts_of, brokers_of, is_market, opening_balance,
};
use super::positions::{amount, signed};
use super::results::settlement_kind;
use super::schema::{
    Broker, CashTransaction, CustomerAccount, Holding, HoldingHistory, HoldingSummary, LastTrade, Settlement, Trade,
    three, two,
};
use super::updates::{FRAMES, is_corrected, is_marked, term};
use super::{COUNT_BITS, Client, Tpce};
use crate::workload::{Checked, Violation};

/// Returns the error unless this holds.
fn must(holds: bool, wrong: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation(wrong())) }
}

/// What the trades leave elsewhere, as their rows say.
#[derive(Default)]
struct Left {
    /// Trades, completed ones, and those whose limit orders wait.
    trades: u64,
    completed: u64,
    pending: u64,
    /// Rows of the history of trades, and payments.
    steps: u64,
    payments: u64,
    /// The amounts paid since the beginning, by account.
    paid: HashMap<u64, i64>,
    /// The trades completed since the beginning and their commissions, by account.
    earned: HashMap<u64, (u64, i64)>,
    /// The sums of what is corrected, by the frames that do so.
    corrected: [u64; FRAMES],
    /// The change of the position by each completed trade.
    changes: HashMap<u64, i64>,
}

pub(super) fn check<S: Inspect>(tpce: &Tpce, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
    must(clients.iter().all(|client| !client.was_surprised), || {
        "a committed transaction missed a row that is never deleted, found its own row there, or found a trade, its \
         holdings or its payment in states that no order of transactions leaves"
            .into()
    })?;
    let mut left = Left::default();
    check_trades(tpce, store, &mut left)?;
    check_listed(tpce, store, &left)?;
    let positions = check_positions(tpce, store)?;
    check_holding_histories(tpce, store, &left)?;
    check_accounts(tpce, store, &left)?;
    if !clients.is_empty() {
        check_books(tpce, store, clients, &left)?;
    }
    let Left { trades, completed, pending, .. } = left;
    Ok(Checked(format!(
        "{} ({completed} completed, {pending} pending) and {} agree, also with all balances and sums",
        counted(trades, "trade"),
        counted(positions, "position")
    )))
}

/// Checks each trade that the index by accounts lists with the rows that belong to it.
fn check_trades<S: Inspect>(tpce: &Tpce, store: &S, left: &mut Left) -> Result<(), Violation> {
    let mut keys = Vec::new();
    store.peek_all(&tpce.tables.trade_by_account, |key, _| keys.push(key.to_words()));
    left.trades = keys.len() as u64;
    let mut row = Vec::new();
    for [account, ordered, number, _] in keys {
        must(store.peek(&tpce.tables.trade, number, &mut row).is_some(), || {
            format!("the index by accounts has trade {number} of account {account}, and there is no such trade")
        })?;
        let trade = *Trade::from_words(&row);
        must((trade.account, trade.ordered) == (account, ordered), || {
            format!(
                "the index by accounts has trade {number} under account {account} and date {ordered}, and it is of \
                 account {} and date {}",
                trade.account, trade.ordered
            )
        })?;
        must(
            store.peek(&tpce.tables.trade_by_symbol, three(trade.symbol, ordered, number), &mut row).is_some(),
            || format!("the index by symbols lacks trade {number}"),
        )?;
        check_trade(tpce, store, number, &trade, left)?;
    }
    Ok(())
}

/// Checks a trade with its history, its request, its settlement and its payment.
fn check_trade<S: Inspect>(
    tpce: &Tpce,
    store: &S,
    number: u64,
    trade: &Trade,
    left: &mut Left,
) -> Result<(), Violation> {
    let tables = &tpce.tables;
    let (mut row, status) = (Vec::new(), trade.status);
    must(matches!(status, PENDING | SUBMITTED | COMPLETED), || format!("trade {number} has status {status}"))?;
    let (is_pending, is_completed) = (status == PENDING, status == COMPLETED);
    for (step, belongs) in [(PENDING, !is_market(trade.kind)), (SUBMITTED, !is_pending), (COMPLETED, is_completed)] {
        let is_there = store.peek(&tables.trade_history, two(number, step), &mut row).is_some();
        must(is_there == belongs, || {
            format!("trade {number} has status {status}, and its history has step {step}: {is_there}")
        })?;
        left.steps += u64::from(belongs);
    }
    let is_requested = store.peek(&tables.trade_request, two(trade.symbol, number), &mut row).is_some();
    must(is_requested == is_pending, || {
        format!("trade {number} has status {status}, and there is a request of it: {is_requested}")
    })?;
    left.pending += u64::from(is_pending);
    let settlement = store.peek(&tables.settlement, number, &mut row).map(|()| *Settlement::from_words(&row));
    let settled = settlement.map(|settlement| settlement.amount);
    must(settled.is_some() == is_completed, || {
        format!("trade {number} has status {status}, and it is settled: {}", settled.is_some())
    })?;
    let is_paid = is_completed && trade.is_cash != 0;
    let payment = store.peek(&tables.cash_transaction, number, &mut row).map(|()| *CashTransaction::from_words(&row));
    let paid = payment.map(|payment| payment.amount);
    must(paid.is_some() == is_paid, || {
        let is_cash = trade.is_cash != 0;
        format!("trade {number} has status {status}, is in cash: {is_cash}, and is paid: {}", paid.is_some())
    })?;
    let is_other = settlement.map(|of| of.kind != settlement_kind(trade.is_cash != 0));
    let is_renamed = payment.map(|of| is_corrected(&of.name));
    let corrected = [is_marked(&trade.executor), is_other == Some(true), is_renamed == Some(true)];
    for (sum, _) in left.corrected.iter_mut().zip(corrected).filter(|(_, corrected)| *corrected) {
        *sum ^= term(number);
    }
    let Some(settled) = settled else { return Ok(()) };
    left.completed += 1;
    left.payments += u64::from(is_paid);
    must(paid.is_none_or(|paid| paid == settled), || {
        format!("trade {number} is settled with {settled}, and {paid:?} was paid")
    })?;
    let Some(()) = store.peek(&tables.customer_account, trade.account, &mut row) else {
        return Err(Violation(format!("trade {number} is of account {}, which is gone", trade.account)));
    };
    let withheld = if CustomerAccount::from_words(&row).tax_status == 1 { trade.tax } else { 0 };
    let value = trade.price * trade.quantity as i64;
    let due = amount(trade.kind, value, trade.charge + trade.commission, withheld);
    must(settled == due, || format!("trade {number} is settled with {settled}, and its price leaves {due}"))?;
    left.changes.insert(number, signed(trade.kind, trade.quantity));
    if number >> COUNT_BITS > 0 {
        *left.paid.entry(trade.account).or_default() += paid.unwrap_or(0);
        let (trades, commission) = left.earned.entry(trade.account).or_default();
        (*trades, *commission) = (*trades + 1, *commission + trade.commission);
    }
    Ok(())
}

/// Checks that nothing is listed that no trade has.
fn check_listed<S: Inspect>(tpce: &Tpce, store: &S, left: &Left) -> Result<(), Violation> {
    let tables = &tpce.tables;
    let [mut trades, mut by_symbol, mut steps, mut requests, mut settlements, mut payments] = [0; 6];
    store.peek_all(&tables.trade, |_, _| trades += 1);
    store.peek_all(&tables.settlement, |_, _| settlements += 1);
    store.peek_all(&tables.cash_transaction, |_, _| payments += 1);
    store.peek_all(&tables.trade_by_symbol, |_, _| by_symbol += 1);
    store.peek_all(&tables.trade_history, |_, _| steps += 1);
    store.peek_all(&tables.trade_request, |_, _| requests += 1);
    must(trades == left.trades, || {
        format!("there are {trades} trades, and the index by accounts has {}", left.trades)
    })?;
    must(by_symbol == left.trades, || {
        format!("the index by symbols has {by_symbol} trades, and that by accounts has {}", left.trades)
    })?;
    must(steps == left.steps, || format!("there are {steps} steps of trades, and the trades have {}", left.steps))?;
    must(requests == left.pending, || format!("there are {requests} requests, and {} trades wait", left.pending))?;
    must(settlements == left.completed, || {
        format!("there are {settlements} settlements, and {} trades are completed", left.completed)
    })?;
    must(payments == left.payments, || {
        format!("there are {payments} payments, and {} completed trades are in cash", left.payments)
    })
}

/// Checks the summary of each position with its holdings. Returns the number of positions.
fn check_positions<S: Inspect>(tpce: &Tpce, store: &S) -> Result<u64, Violation> {
    // The sum, and whether all holdings are of its sign.
    let mut sums: Vec<([u64; 2], i64, bool)> = Vec::new();
    store.peek_all(&tpce.tables.holding, |key, words| {
        let ([account, symbol, ..], quantity) = (key.to_words(), Holding::from_words(words).quantity);
        match sums.last_mut() {
            Some((place, sum, agree)) if *place == [account, symbol] => {
                *agree &= quantity.signum() == sum.signum();
                *sum += quantity;
            }
            _ => sums.push(([account, symbol], quantity, quantity != 0)),
        }
    });
    let mut summaries = Vec::new();
    store.peek_all(&tpce.tables.holding_summary, |key, words| {
        let [account, symbol, ..] = key.to_words();
        summaries.push(([account, symbol], HoldingSummary::from_words(words).quantity));
    });
    for &([account, symbol], sum, agree) in &sums {
        must(agree, || {
            format!("account {account} holds shares of security {symbol} and owes some, or holds 0 of them")
        })?;
        let place = summaries.binary_search_by_key(&[account, symbol], |(place, _)| *place);
        let summary = place.ok().map(|place| summaries[place].1);
        must(summary == Some(sum), || {
            format!("account {account} holds {sum} of security {symbol}, and the summary says {summary:?}")
        })?;
    }
    must(sums.len() == summaries.len(), || {
        format!("there are {} summaries, and holdings of {} positions", summaries.len(), sums.len())
    })?;
    Ok(sums.len() as u64)
}

/// Checks that each completed trade has changed as many shares as it says, and that each holding
/// has what its changes left.
fn check_holding_histories<S: Inspect>(tpce: &Tpce, store: &S, left: &Left) -> Result<(), Violation> {
    let (mut changes, mut holdings) = (left.changes.clone(), HashMap::<u64, i64>::new());
    let mut stray = None;
    store.peek_all(&tpce.tables.holding_history, |key, words| {
        let ([trade, first, ..], row) = (key.to_words(), HoldingHistory::from_words(words));
        let change = row.after.wrapping_sub(row.before);
        match changes.get_mut(&trade) {
            Some(rest) => *rest = rest.wrapping_sub(change),
            None => stray = Some(trade),
        }
        let holding = holdings.entry(first).or_default();
        *holding = holding.wrapping_add(change);
    });
    must(stray.is_none(), || format!("trade {stray:?} has changed a holding, and is not completed"))?;
    let wrong = changes.iter().filter(|(_, rest)| **rest != 0).min();
    must(wrong.is_none(), || format!("trade {wrong:?} (the rest of its shares) has not changed as many as it says"))?;
    store.peek_all(&tpce.tables.holding, |key, words| {
        let holding = holdings.entry(key.to_words()[3]).or_default();
        *holding = holding.wrapping_sub(Holding::from_words(words).quantity);
    });
    let wrong = holdings.iter().filter(|(_, rest)| **rest != 0).min();
    must(wrong.is_none(), || format!("the holding of trade {wrong:?} (the rest) is not what its changes left"))
}

/// Checks the balance of each account, and the sums of each broker.
fn check_accounts<S: Inspect>(tpce: &Tpce, store: &S, left: &Left) -> Result<(), Violation> {
    let (customers, tables) = (tpce.options.customers, &tpce.tables);
    let (mut row, mut earned) = (Vec::new(), vec![(0, 0); brokers_of(customers) as usize + 1]);
    for customer in 1..=customers {
        for account in (0..accounts_of(customer)).map(|place| account_number(customer, place)) {
            must(store.peek(&tables.customer_account, account, &mut row).is_some(), || {
                format!("account {account} is gone")
            })?;
            let CustomerAccount { broker, balance, .. } = *CustomerAccount::from_words(&row);
            let expected = opening_balance(account) + left.paid.get(&account).copied().unwrap_or(0);
            must(balance == expected, || {
                format!("account {account} has {balance}, and its payments leave {expected}")
            })?;
            let (trades, commission) = left.earned.get(&account).copied().unwrap_or((0, 0));
            match earned.get_mut(broker as usize) {
                Some((all, sum)) => (*all, *sum) = (*all + trades, *sum + commission),
                None => {
                    return Err(Violation(format!(
                        "account {account} has broker {broker}, and there is no such broker"
                    )));
                }
            }
        }
    }
    let is_known = |account: &u64| account % ACCOUNTS_MAX < accounts_of(account / ACCOUNTS_MAX);
    debug_assert!(left.paid.keys().all(is_known), "the account of each trade was found");
    for (broker, &(trades, commission)) in earned.iter().enumerate().skip(1) {
        must(store.peek(&tables.broker, broker as u64, &mut row).is_some(), || format!("broker {broker} is gone"))?;
        let found = *Broker::from_words(&row);
        must(found.num_trades == trades, || {
            format!("broker {broker} counts {} trades, and {trades} were completed", found.num_trades)
        })?;
        must(found.commission == commission, || {
            format!("broker {broker} has earned {}, and the commissions are {commission}", found.commission)
        })?;
    }
    Ok(())
}

/// Checks what the clients remember.
fn check_books<S: Inspect>(tpce: &Tpce, store: &S, clients: &[&Client], left: &Left) -> Result<(), Violation> {
    let (options, mut row) = (&tpce.options, Vec::new());
    let loaded: u64 = (1..=options.customers).map(|customer| accounts_of(customer) * options.trades).sum();
    let booked = |kind: usize| loaded + clients.iter().map(|client| client.commits[kind]).sum::<u64>();
    let (trades, completed) = (booked(0), booked(1));
    must(left.trades == trades, || {
        format!("there are {} trades, but the committed orders leave {trades}", left.trades)
    })?;
    must(left.completed == completed, || {
        format!("{} trades are completed, but the committed results leave {completed}", left.completed)
    })?;
    for (frame, what) in ["executors", "kinds of settlements", "names of payments"].into_iter().enumerate() {
        let booked = clients.iter().fold(0, |sum, client| sum ^ client.corrected[frame]);
        must(left.corrected[frame] == booked, || {
            format!("the {what} are not those that the committed corrections leave")
        })?;
    }
    for symbol in 0..options.securities {
        let fed: u64 = clients.iter().map(|client| client.fed[symbol as usize]).sum();
        let found = store.peek(&tpce.tables.last_trade, symbol, &mut row);
        let volume = found.map(|()| LastTrade::from_words(&row).volume);
        must(volume == Some(fed), || {
            format!("security {symbol} has a volume of {volume:?}, but the committed feeds leave {fed}")
        })?;
    }
    Ok(())
}
