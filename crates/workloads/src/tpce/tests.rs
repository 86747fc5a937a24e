//! TPC-E runs right, its check names what is wrong, and its generator draws as the standard says.

use contend_engine::EngineOptions;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;

use super::generate::*;
use super::positions::{closes, used_up};
use super::schema::*;
use super::updates::Frame;
use super::*;
use crate::run_for_tests::{Tx, check, clients, run, world, world_with};
use contend_model::options::Fraction;
use contend_model::{Direction, Key, Row, Whole};

/// A small database, on which all types of transactions run.
fn small(securities: u64) -> TpceOptions {
    TpceOptions {
        customers: 4,
        securities,
        trades: 5,
        market_feed: 30,
        trade_update: 30,
        trade_status: 10,
        customer_position: 10,
        market_watch: 10,
        rollback: Fraction(0.05),
        ..TpceOptions::default()
    }
}

#[test]
fn trades_agree_after_runs() {
    for securities in [1, 20] {
        for late_rollback in [false, true] {
            let options = TpceOptions { late_rollback, ..small(securities) };
            run::<Silo, Tpce>(&options, 4, 3000).expect("nothing wrong");
            run::<NoWait, Tpce>(&options, 4, 3000).expect("nothing wrong");
            run::<NoControl, Tpce>(&options, 1, 3000).expect("nothing wrong with one thread");
        }
    }
}

#[test]
fn the_smallest_and_the_quietest_databases_work() {
    let one = TpceOptions { customers: 1, securities: 1, trades: 1, pending: 0, ..small(1) };
    run::<Silo, Tpce>(&one, 3, 1000).expect("nothing wrong");
    // Without results or feeds, orders stay where they are.
    for (trade_result, market_feed) in [(0, 0), (0, 10), (100, 0)] {
        let options = TpceOptions { trade_result, market_feed, ..small(3) };
        let world = world::<Silo, Tpce>(&options);
        let clients = clients(&world, 2, 2000);
        check(&world, &clients).expect("nothing wrong");
        let commits = |kind: usize| clients.iter().map(|client| client.commits[kind]).sum::<u64>();
        assert_eq!((commits(1) > 0, commits(2) > 0), (trade_result > 0, market_feed > 0));
    }
}

/// Without concurrency control updates get lost, and the check finds it.
#[test]
fn lost_updates_are_found() {
    let is_found = (0..20).any(|_| {
        let world = world_with::<NoControl, Tpce>(&small(1), EngineOptions::default(), 1);
        let clients = clients(&world, 4, 3000);
        check(&world, &clients).is_err()
    });
    assert!(is_found);
}

/// The rows are the same however many loaders there are.
#[test]
fn parts_do_not_matter() {
    let options = small(20);
    let rows = |parts| {
        let (engine, tpce) = world_with::<Silo, Tpce>(&options, EngineOptions::default(), parts);
        let mut rows = Vec::new();
        let tables = &tpce.tables;
        let mut note = |key: contend_model::KeyWords, words: &[u64]| rows.push((key, words.to_vec()));
        engine.peek_all(&tables.holding, |key, words| note(key.to_words(), words));
        engine.peek_all(&tables.trade_history, |key, words| note(key.to_words(), words));
        engine.peek_all(&tables.holding_history, |key, words| note(key.to_words(), words));
        engine.peek_all(&tables.trade_by_symbol, |key, words| note(key.to_words(), words));
        let mut keys = Vec::new();
        engine.peek_all(&tables.trade_by_account, |key, _| keys.push(third_of(key)));
        let mut row = Vec::new();
        for key in keys {
            engine.peek(&tables.trade, key, &mut row).expect("it is there");
            note([key, 0, 0, 0], &row[..Trade::WORDS]);
        }
        check(&(engine.clone(), tpce), &[]).expect("nothing wrong");
        rows
    };
    let one = rows(1);
    assert!(one.len() > 100);
    assert_eq!(one, rows(3));
}

type Damage<'d> = &'d dyn Fn(&mut Tx<'_>, &Schema) -> Result<(), Abort>;

/// Account 10 of customer 1, in which all trades of the damaged database are.
const ACCOUNT: u64 = 10;
const SECURITY: u64 = 0;
const BOUGHT: u64 = 1 << COUNT_BITS | 1;
const SOLD: u64 = 1 << COUNT_BITS | 2;
const SUBMITS: u64 = 1 << COUNT_BITS | 3;
const WAITS: u64 = 1 << COUNT_BITS | 4;
const FEED: u64 = 1_234;

/// Has a purchase and a sale completed, a market order that waits for the market, and a limit order
/// that waits for its price. Then damages the tables, and returns what the check says with and
/// without the books.
fn damaged(damage: Damage<'_>) -> [Option<String>; 2] {
    let world = world::<Silo, Tpce>(&small(1));
    let (engine, tpce) = &world;
    let mut client = tpce.client(0, 1, 1);
    let mut worker = engine.worker().expect("a slot");
    let order = |trade: u64, kind: u64, date: u64| {
        let account = ACCOUNT;
        Input::TradeOrder(orders::Input {
            trade,
            account,
            kind,
            quantity: 400,
            executor: 1,
            date,
            ..Default::default()
        })
    };
    let dates = tpce.options.loaded_dates();
    let mut inputs = vec![
        order(BOUGHT, MARKET_BUY, dates + 1),
        order(SOLD, MARKET_SELL, dates + 2),
        order(SUBMITS, MARKET_BUY, dates + 3),
        order(WAITS, LIMIT_BUY, dates + 4),
    ];
    let result = |trade: u64, date: u64| {
        let ticket = market::Ticket { trade, symbol: SECURITY, quantity: 400 };
        Input::TradeResult(results::Input { ticket, price: 2_500, date })
    };
    inputs.extend([result(BOUGHT, dates + 5), result(SOLD, dates + 6)]);
    let tick = market::Tick { symbol: SECURITY, price: HIGHEST, quantity: FEED };
    inputs.push(Input::MarketFeed(feed::Input { ticks: market::Ticks::of(&[tick]), date: dates + 7 }));
    for input in &inputs {
        worker.run(|tx| tpce.execute(tx, &mut client, input)).expect("no conflict");
        tpce.committed(&mut client, input);
    }
    check(&world, std::slice::from_ref(&client)).expect("nothing wrong");
    check(&world, &[]).expect("nothing wrong");
    worker.run(|tx| damage(tx, &tpce.tables)).expect("no conflict");
    let without = check(&world, &[]).err().map(|wrong| wrong.0);
    [check(&world, &[client]).err().map(|wrong| wrong.0), without]
}

#[test]
fn what_is_wrong_is_named() {
    let cases: [(Damage<'_>, &str); 34] = [
        (&|tx, t| tx.delete(&t.trade, SOLD).map(drop), "and there is no such trade"),
        (&|tx, t| tx.modify(&t.trade, SOLD, |row| row.account = 11).map(drop), "and it is of account 11"),
        (&|tx, t| tx.modify(&t.trade, SOLD, |row| row.ordered += 1).map(drop), "and it is of account 10 and date"),
        (
            &|tx, t| tx.delete(&t.trade_by_symbol, three(SECURITY, 5_002, SOLD)).map(drop),
            "the index by symbols lacks trade",
        ),
        (
            &|tx, t| tx.insert(&t.trade_by_symbol, three(SECURITY, 9, 9), Nothing {}).map(drop),
            "the index by symbols has",
        ),
        (
            &|tx, t| tx.delete(&t.trade_by_account, three(ACCOUNT, 5_003, SUBMITS)).map(drop),
            "trades, and the index by accounts has",
        ),
        (
            &|tx, t| {
                let row = Settlement { kind: [0; 16], due: 0, amount: 0 };
                tx.insert(&t.settlement, 9 << COUNT_BITS, row).map(drop)
            },
            "settlements, and",
        ),
        (
            &|tx, t| {
                let row = CashTransaction { amount: 0, date: 0, name: [0; 64] };
                tx.insert(&t.cash_transaction, 9 << COUNT_BITS, row).map(drop)
            },
            "payments, and",
        ),
        (&|tx, t| tx.modify(&t.trade, SUBMITS, |row| row.status = 0).map(drop), "has status 0"),
        (
            &|tx, t| tx.modify(&t.trade, SUBMITS, |row| row.status = COMPLETED).map(drop),
            "has status 3, and its history has step 3: false",
        ),
        (
            &|tx, t| tx.modify(&t.trade, WAITS, |row| row.status = SUBMITTED).map(drop),
            "has status 2, and its history has step 2: false",
        ),
        (
            &|tx, t| tx.delete(&t.trade_history, two(WAITS, PENDING)).map(drop),
            "has status 1, and its history has step 1: false",
        ),
        (
            &|tx, t| tx.insert(&t.trade_history, two(SUBMITS, COMPLETED), TradeHistory { date: 1 }).map(drop),
            "has status 2, and its history has step 3: true",
        ),
        (
            &|tx, t| tx.insert(&t.trade_history, two(SUBMITS, 4), TradeHistory { date: 1 }).map(drop),
            "steps of trades, and the trades have",
        ),
        (
            &|tx, t| tx.delete(&t.trade_request, two(SECURITY, WAITS)).map(drop),
            "has status 1, and there is a request of it: false",
        ),
        (
            &|tx, t| {
                let row = TradeRequest { kind: LIMIT_BUY, quantity: 1, bid: 1, broker: 1 };
                tx.insert(&t.trade_request, two(SECURITY, SUBMITS), row).map(drop)
            },
            "has status 2, and there is a request of it: true",
        ),
        (
            &|tx, t| {
                let row = TradeRequest { kind: LIMIT_BUY, quantity: 1, bid: 1, broker: 1 };
                tx.insert(&t.trade_request, two(SECURITY, 9 << COUNT_BITS), row).map(drop)
            },
            "there are 2 requests, and 1 trades wait",
        ),
        (&|tx, t| tx.delete(&t.settlement, BOUGHT).map(drop), "has status 3, and it is settled: false"),
        (
            &|tx, t| {
                let row = Settlement { kind: [0; 16], due: 0, amount: 0 };
                tx.insert(&t.settlement, SUBMITS, row).map(drop)
            },
            "has status 2, and it is settled: true",
        ),
        (
            &|tx, t| tx.delete(&t.cash_transaction, BOUGHT).map(drop),
            "has status 3, is in cash: true, and is paid: false",
        ),
        (
            &|tx, t| tx.modify(&t.trade, BOUGHT, |row| row.is_cash = 0).map(drop),
            "has status 3, is in cash: false, and is paid: true",
        ),
        (&|tx, t| tx.modify(&t.cash_transaction, BOUGHT, |row| row.amount += 1).map(drop), "was paid"),
        (&|tx, t| tx.modify(&t.trade, BOUGHT, |row| row.price += 1).map(drop), "and its price leaves"),
        (&|tx, t| tx.modify(&t.trade, BOUGHT, |row| row.commission += 1).map(drop), "and its price leaves"),
        (&|tx, t| tx.modify(&t.customer_account, ACCOUNT, |row| row.balance += 1).map(drop), "account 10 has"),
        (&|tx, t| tx.delete(&t.customer_account, account_number(2, 0)).map(drop), "account 20, which is gone"),
        (&|tx, t| tx.modify(&t.customer_account, ACCOUNT, |row| row.broker = 7).map(drop), "has broker 7"),
        (&|tx, t| tx.modify(&t.broker, 1, |row| row.num_trades += 1).map(drop), "counts 3 trades, and 2 were"),
        (&|tx, t| tx.modify(&t.broker, 1, |row| row.commission += 1).map(drop), "and the commissions are"),
        (&|tx, t| tx.delete(&t.broker, 1).map(drop), "broker 1 is gone"),
        (
            &|tx, t| tx.insert(&t.holding_summary, two(ACCOUNT, 9), HoldingSummary { quantity: 0 }).map(drop),
            "summaries, and holdings of",
        ),
        (
            &|tx, t| tx.insert(&t.holding, four(ACCOUNT, 9, 1, 1), Holding { price: 1, quantity: 7 }).map(drop),
            "holds 7 of security 9, and the summary says None",
        ),
        (
            &|tx, t| {
                tx.insert(&t.holding, four(ACCOUNT, 9, 1, 1), Holding { price: 1, quantity: 7 })?;
                tx.insert(&t.holding, four(ACCOUNT, 9, 1, 2), Holding { price: 1, quantity: -7 }).map(drop)
            },
            "and owes some",
        ),
        (
            &|tx, t| tx.insert(&t.holding_history, two(SUBMITS, 1), HoldingHistory { before: 0, after: 0 }).map(drop),
            "has changed a holding, and is not completed",
        ),
    ];
    for (damage, expected) in cases {
        for wrong in damaged(damage) {
            let wrong = wrong.unwrap_or_else(|| panic!("nothing is said of: {expected}"));
            assert!(wrong.contains(expected), "{wrong}, not: {expected}");
        }
    }
}

#[test]
fn what_is_wrong_with_holdings_is_named() {
    // A holding that the purchase or the sale has left, or one that was loaded: the last of all.
    let change = |by: i64, history: Option<u64>| {
        damaged(&move |tx, t| {
            let mut last = None;
            tx.scan(&t.holding, holdings_of(ACCOUNT, SECURITY), 1, Direction::Forward, Whole, |key, _| {
                last = Some(key);
                ControlFlow::Break(())
            })?;
            let last = last.expect("the account has a position");
            tx.modify(&t.holding, last, |row| row.quantity += by)?;
            tx.modify(&t.holding_summary, two(ACCOUNT, SECURITY), |row| row.quantity += by)?;
            if let Some(trade) = history {
                let key = two(trade, trade_of(last));
                tx.insert(&t.holding_history, key, HoldingHistory { before: 0, after: by })?;
            }
            Ok(())
        })
    };
    for wrong in change(1, None) {
        let wrong = wrong.expect("something is wrong");
        assert!(wrong.contains("is not what its changes left") || wrong.contains("and owes some"), "{wrong}");
    }
    let summary =
        damaged(&|tx, t| tx.modify(&t.holding_summary, two(ACCOUNT, SECURITY), |row| row.quantity += 1).map(drop));
    for wrong in summary {
        assert!(wrong.expect("wrong").contains("and the summary says"));
    }
    let history = damaged(&|tx, t| {
        tx.insert(&t.holding_history, two(SOLD, 77), HoldingHistory { before: 0, after: 3 }).map(drop)
    });
    for wrong in history {
        assert!(wrong.expect("wrong").contains("has not changed as many as it says"));
    }
}

/// Conditions that only books can find.
#[test]
fn what_is_wrong_with_the_books_is_named() {
    let volume = damaged(&|tx, t| tx.modify(&t.last_trade, SECURITY, |row| row.volume += 1).map(drop));
    let [with, without] = volume;
    assert!(with.expect("wrong").contains("has a volume of Some(1235), but the committed feeds leave 1234"));
    assert_eq!(without, None);
    // A whole order that no client has placed.
    let order = damaged(&|tx, t| {
        let (number, date) = (9 << COUNT_BITS, 5_009);
        let mut row = tx.read(&t.trade, SUBMITS, Whole)?.expect("it is there");
        row.ordered = date;
        tx.insert(&t.trade, number, row)?;
        tx.insert(&t.trade_by_account, three(ACCOUNT, date, number), Nothing {})?;
        tx.insert(&t.trade_by_symbol, three(SECURITY, date, number), Nothing {})?;
        tx.insert(&t.trade_history, two(number, SUBMITTED), TradeHistory { date }).map(drop)
    });
    let [with, without] = order;
    assert!(with.expect("wrong").contains("trades, but the committed orders leave"));
    assert_eq!(without, None);
    let corrections: [(Damage<'_>, &str); 3] = [
        (&|tx, t| tx.modify(&t.trade, BOUGHT, |row| row.executor[31] = b'X').map(drop), "the executors are"),
        (
            &|tx, t| {
                let other = |row: &mut Settlement| row.kind = updates::other_kind(&row.kind, true);
                tx.modify(&t.settlement, BOUGHT, other).map(drop)
            },
            "the kinds of settlements are",
        ),
        (
            &|tx, t| {
                let other = |row: &mut CashTransaction| updates::correct_name(&mut row.name);
                tx.modify(&t.cash_transaction, BOUGHT, other).map(drop)
            },
            "the names of payments are",
        ),
    ];
    for (damage, expected) in corrections {
        let [with, without] = damaged(damage);
        assert!(with.expect("wrong").contains(expected));
        assert_eq!(without, None);
    }
    // One more result is booked than there is.
    let world = world::<Silo, Tpce>(&small(1));
    let mut clients = clients(&world, 1, 500);
    clients[0].commits[1] += 1;
    let wrong = check(&world, &clients).expect_err("wrong").0;
    assert!(wrong.contains("trades are completed, but the committed results leave"), "{wrong}");
}

/// What is never deleted was deleted, or a row of the transaction's own is there.
#[test]
fn a_transaction_that_is_surprised_is_found() {
    let order = || {
        Input::TradeOrder(orders::Input {
            trade: SUBMITS,
            account: ACCOUNT,
            kind: LIMIT_BUY,
            quantity: 100,
            executor: 1,
            is_margin: true,
            ..Default::default()
        })
    };
    let named = |executor: u64, named_by: orders::NamedBy| {
        let order = orders::Input { trade: SUBMITS, account: ACCOUNT, quantity: 100, ..Default::default() };
        Input::TradeOrder(orders::Input { executor, named_by, ..order })
    };
    let by_name = || named(1, orders::NamedBy::Company(company_name(0), 0));
    let by_other = || named(4, orders::NamedBy::Symbol);
    let loaded = loaded_trade(ACCOUNT, 0, 5);
    let result = || {
        Input::TradeResult(results::Input {
            ticket: market::Ticket { trade: loaded, symbol: SECURITY, quantity: 100 },
            price: 2_500,
            date: 9_999,
        })
    };
    let feed = || {
        let tick = market::Tick { symbol: SECURITY, price: 2_500, quantity: 100 };
        Input::MarketFeed(feed::Input { ticks: market::Ticks::of(&[tick]), date: 9_999 })
    };
    let by_number = || {
        let mut numbers = [0; 20];
        numbers[0] = loaded;
        Input::TradeUpdate(updates::Input { frame: Frame::Numbers(1, numbers) })
    };
    let by_account = || Input::TradeUpdate(updates::Input { frame: Frame::Account(ACCOUNT, 0) });
    let by_symbol = || Input::TradeUpdate(updates::Input { frame: Frame::Symbol(SECURITY, 0) });
    let account = reads::AccountInput { account: ACCOUNT };
    let status = || Input::TradeStatus(account);
    let position = || Input::CustomerPosition(reads::PositionInput { customer: 1, lists: Some(ACCOUNT) });
    let watch = || Input::MarketWatch(account);
    type Case<'d> = (&'d dyn Fn() -> Input, Damage<'d>);
    let first_holding_trade = loaded_trade(ACCOUNT, 0, 5);
    let cases: [Case<'_>; 30] = [
        (&order, &|tx, t| tx.delete(&t.customer_account, ACCOUNT).map(drop)),
        (&order, &|tx, t| tx.delete(&t.customer, 1).map(drop)),
        (&order, &|tx, t| tx.delete(&t.broker, 1).map(drop)),
        (&order, &|tx, t| tx.delete(&t.company, 0).map(drop)),
        (&by_name, &|tx, t| tx.delete(&t.company_by_name, company_name(0)).map(drop)),
        (&by_name, &|tx, t| tx.delete(&t.security_by_company, two(0, 0)).map(drop)),
        // The person has no permission.
        (&by_other, &|_, _| Ok(())),
        (&order, &|tx, t| tx.delete(&t.security, SECURITY).map(drop)),
        (&order, &|tx, t| tx.delete(&t.trade_type, LIMIT_BUY).map(drop)),
        (&order, &|tx, t| tx.delete(&t.last_trade, SECURITY).map(drop)),
        (&order, &|tx, t| tx.delete(&t.charge, charge_key(LIMIT_BUY, tier_of(1))).map(drop)),
        (&order, &|tx, t| tx.delete(&t.customer_taxrate, two(1, 1)).map(drop)),
        (&order, &|tx, t| tx.delete(&t.tax_rate, tax_of(1, 0)).map(drop)),
        (&order, &|tx, t| {
            let key = commission_key(tier_of(1), LIMIT_BUY, exchange_of(SECURITY), 1);
            tx.delete(&t.commission_rate, key).map(drop)
        }),
        (&order, &|tx, t| {
            let row = TradeRequest { kind: LIMIT_BUY, quantity: 1, bid: 1, broker: 1 };
            tx.insert(&t.trade_request, two(SECURITY, SUBMITS), row).map(drop)
        }),
        (&order, &|tx, t| tx.insert(&t.trade_history, two(SUBMITS, PENDING), TradeHistory { date: 1 }).map(drop)),
        // Completed twice.
        (&result, &|_, _| Ok(())),
        (&result, &|tx, t| tx.delete(&t.trade, first_holding_trade).map(drop)),
        (&result, &|tx, t| tx.delete(&t.security, SECURITY).map(drop)),
        (&feed, &|tx, t| tx.delete(&t.last_trade, SECURITY).map(drop)),
        (&feed, &|tx, t| {
            let row = TradeRequest { kind: LIMIT_BUY, quantity: 1, bid: HIGHEST, broker: 1 };
            tx.insert(&t.trade_request, two(SECURITY, SUBMITS), row).map(drop)
        }),
        (&by_number, &|tx, t| tx.delete(&t.trade, first_holding_trade).map(drop)),
        (&by_number, &|tx, t| tx.delete(&t.settlement, first_holding_trade).map(drop)),
        (&by_number, &|tx, t| {
            tx.delete(&t.trade_history, two(first_holding_trade, COMPLETED))?;
            tx.delete(&t.trade_history, two(first_holding_trade, SUBMITTED)).map(drop)
        }),
        (&by_account, &|tx, t| tx.delete(&t.settlement, first_holding_trade).map(drop)),
        (&by_symbol, &|tx, t| tx.delete(&t.trade, first_holding_trade).map(drop)),
        (&status, &|tx, t| tx.delete(&t.exchange, exchange_of(SECURITY)).map(drop)),
        (&position, &|tx, t| tx.delete(&t.customer, 1).map(drop)),
        (&position, &|tx, t| tx.delete(&t.last_trade, SECURITY).map(drop)),
        (&watch, &|tx, t| tx.delete(&t.security, SECURITY).map(drop)),
    ];
    for (number, (input, damage)) in cases.into_iter().enumerate() {
        let world = world::<Silo, Tpce>(&small(1));
        let mut client = world.1.client(0, 1, 1);
        let mut worker = world.0.worker().expect("a slot");
        worker.run(|tx| damage(tx, &world.1.tables)).expect("no conflict");
        let input = input();
        worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
        world.1.committed(&mut client, &input);
        let wrong = check(&world, &[client]).expect_err("broken").0;
        assert!(wrong.contains("a committed transaction missed a row"), "{number}: {wrong}");
    }
}

#[test]
fn holdings_are_used_up_as_the_standard_says() {
    assert_eq!((used_up(100, -40), used_up(100, -100), used_up(100, -140)), ((60, 0), (0, 0), (0, -40)));
    assert_eq!((used_up(-100, 40), used_up(-100, 100), used_up(-100, 140)), ((-60, 0), (0, 0), (0, 40)));
    assert!(closes(5, -1) && closes(-5, 1) && !closes(5, 1) && !closes(-5, -1) && !closes(0, 1));
}

/// Half a tax is withheld, and fees are always paid.
#[test]
fn costs_are_those_of_the_description() {
    let rates = positions::Rates { commission: 50, tax: 2_000 };
    let terms = |kind, tax_status| positions::Terms { kind, quantity: 100, charge: 300, tax_status, rates };
    // 100 shares at 25.00 are 2,500.00; the commission is 12.50, and the charge 3.00.
    let bought = terms(MARKET_BUY, 1).costs(2_500, 0);
    assert_eq!(bought, positions::Costs { commission: 1_250, tax: 0, amount: -251_550 });
    let withheld = terms(LIMIT_SELL, 1).costs(2_500, 10_000);
    assert_eq!(withheld, positions::Costs { commission: 1_250, tax: 2_000, amount: 246_450 });
    let later = terms(LIMIT_SELL, 2).costs(2_500, 10_000);
    assert_eq!(later, positions::Costs { commission: 1_250, tax: 2_000, amount: 248_450 });
    let (free, lost) = (terms(LIMIT_SELL, 0).costs(2_500, 10_000), terms(LIMIT_SELL, 1).costs(2_500, -1));
    assert_eq!((free.tax, lost.tax), (0, 0));
}

#[test]
fn limit_orders_wait_for_their_price() {
    assert!(is_triggered(LIMIT_BUY, 2_500, 2_500) && !is_triggered(LIMIT_BUY, 2_500, 2_501));
    assert!(is_triggered(LIMIT_SELL, 2_500, 2_500) && !is_triggered(LIMIT_SELL, 2_500, 2_499));
    assert!(is_triggered(STOP_LOSS, 2_500, 2_500) && !is_triggered(STOP_LOSS, 2_500, 2_501));
    assert!(!is_triggered(MARKET_BUY, 2_500, 2_500));
    let prices: Vec<i64> = (0..2_000).map(|date| price_at(5, date)).collect();
    assert_eq!((prices.iter().min(), prices.iter().max()), (Some(&LOWEST), Some(&HIGHEST)));
    assert!(prices.windows(2).all(|pair| pair[0].abs_diff(pair[1]) == 1));
}

/// Whether a count is as a binomial distribution leaves it.
fn near(count: u64, expected: f64) -> bool {
    (count as f64 - expected).abs() <= 5.0 * expected.sqrt() + 1.0
}

/// The tiers of customers, the accounts of each, their taxes and permissions, and what they trade.
#[test]
fn the_population_is_as_described() {
    const CUSTOMERS: u64 = 20_000;
    let (mut tiers, mut accounts, mut of_tier) = ([0; 4], 0, [(u64::MAX, 0); 4]);
    let (mut taxes, mut permissions, mut held, mut brokers) = ([0; 3], 0, 0, vec![0; 201]);
    for customer in 1..=CUSTOMERS {
        let (tier, count) = (tier_of(customer) as usize, accounts_of(customer));
        tiers[tier] += 1;
        of_tier[tier] = (of_tier[tier].0.min(count), of_tier[tier].1.max(count));
        accounts += count;
        for account in (0..count).map(|place| account_number(customer, place)) {
            assert_eq!(customer_of(account), customer);
            taxes[tax_status_of(account) as usize] += 1;
            permissions += 1 + others_permitted(account);
            held += securities_of(account);
            brokers[broker_of(account, CUSTOMERS) as usize] += 1;
        }
    }
    let all = CUSTOMERS as f64;
    assert!(near(tiers[1], all * 0.2) && near(tiers[2], all * 0.6) && near(tiers[3], all * 0.2), "{tiers:?}");
    assert_eq!(of_tier[1..], [(1, 4), (2, 8), (5, 10)]);
    let mean = accounts as f64 / all;
    assert!((mean - 5.0).abs() < 0.05, "{mean} accounts a customer");
    let share = |part: u64| part as f64 / accounts as f64;
    assert!((share(permissions) - 1.42).abs() < 0.02, "{} permissions an account", share(permissions));
    assert!((share(held) - 9.5).abs() < 0.1, "{} securities an account", share(held));
    for (tax, expected) in taxes.into_iter().zip([0.2, 0.5, 0.3]) {
        assert!(near(tax, accounts as f64 * expected), "{taxes:?}");
    }
    assert!(brokers[0] == 0 && brokers[1..].iter().all(|count| near(*count, accounts as f64 / 200.0)), "{brokers:?}");
    assert_eq!((companies_of(685), companies_of(1), brokers_of(1_000), brokers_of(1)), (500, 1, 10, 1));
    // Each security is found by its company.
    let mut found = std::collections::HashSet::new();
    assert!((0..685).all(|symbol| company_of(symbol) < 500 && found.insert((company_of(symbol), issue_of(symbol)))));
}

/// The types of orders, and all else that an order draws.
#[test]
fn orders_are_as_described() {
    const DRAWS: u64 = 100_000;
    let world = world::<Silo, Tpce>(&TpceOptions { rollback: Fraction(0.01), customers: 20, ..small(20) });
    let random = &mut Random::new(3, 3);
    let (mut kinds, mut quantities, mut tiers) = ([0; 5], [0; 4], [0; 4]);
    let [mut cancels, mut margins, mut lifos, mut owners, mut named] = [0; 5];
    let mut expected_owners = 0.0;
    for trade in 0..DRAWS {
        let order = world.1.draw_order(random, trade, trade);
        kinds[order.kind as usize] += 1;
        quantities[QUANTITIES.iter().position(|of| *of == order.quantity).expect("one of four")] += 1;
        tiers[tier_of(customer_of(order.account)) as usize] += 1;
        cancels += u64::from(order.cancels);
        margins += u64::from(order.is_margin);
        lifos += u64::from(order.is_lifo);
        named += u64::from(order.is_by_name());
        owners += u64::from(order.executor == customer_of(order.account));
        expected_owners += if others_permitted(order.account) == 0 { 1.0 } else { 0.6 };
        assert!(order.symbol < 20 && (LOWEST..=HIGHEST).contains(&order.bid));
    }
    let all = DRAWS as f64;
    for (kind, expected) in kinds.into_iter().zip([0.3, 0.3, 0.1, 0.1, 0.2]) {
        assert!(near(kind, all * expected), "{kinds:?}");
    }
    assert!(quantities.into_iter().all(|count| near(count, all / 4.0)), "{quantities:?}");
    assert!(near(cancels, all * 0.01) && near(margins, all * 0.08), "{cancels} {margins}");
    assert!(near(lifos, all * 0.35) && near(named, all * 0.4), "{lifos} {named}");
    assert!(near(owners, expected_owners), "{owners} of {expected_owners}");
    // A customer is drawn in proportion to its tier.
    let weight = |tier: u64| tier * (1..=20).filter(|customer| tier_of(*customer) == tier).count() as u64;
    let sum: u64 = (1..=TIERS).map(weight).sum();
    for tier in 1..=TIERS {
        assert!(near(tiers[tier as usize], all * weight(tier) as f64 / sum as f64), "{tiers:?}");
    }
}

/// Trades and dates are drawn unevenly: the bits of one of two draws are set.
#[test]
fn uneven_draws_are_uneven() {
    const DRAWS: u64 = 100_000;
    let random = &mut Random::new(4, 4);
    let mut counts = vec![0u64; 64];
    (0..DRAWS).for_each(|_| counts[draw_non_uniform(random, 64) as usize] += 1);
    // Each of the low three bits is set with a probability of three quarters.
    for (number, &count) in counts.iter().enumerate() {
        let set = (number % 8).count_ones() as i32;
        let expected = DRAWS as f64 / 8.0 * 0.75f64.powi(set) * 0.25f64.powi(3 - set);
        assert!(near(count, expected), "{number}: {count}, not {expected}");
    }
}

/// Runs one client alone. Calls `see` with each input that it draws.
fn run_alone(options: &TpceOptions, draws: u64, mut see: impl FnMut(usize, &Input)) -> Client {
    let world = world::<Silo, Tpce>(options);
    let mut client = world.1.client(1, 4, 5);
    let mut worker = world.0.worker().expect("a slot");
    let mut input = Input::default();
    for _ in 0..draws {
        world.1.next(&mut (), &mut client, &mut input);
        see(world.1.kind(&input), &input);
        match worker.run(|tx| world.1.execute(tx, &mut client, &input)) {
            Ok(()) => world.1.committed(&mut client, &input),
            Err(abort) => assert_eq!(abort.reason, contend_engine::AbortReason::User),
        }
    }
    check(&world, std::slice::from_ref(&client)).expect("nothing wrong");
    client
}

#[test]
fn a_seed_gives_the_same_inputs_again() {
    let draws = || {
        let mut draws = Vec::new();
        run_alone(&small(20), 2_000, |_, input| draws.push(format!("{input:?}")));
        draws
    };
    assert_eq!(draws(), draws());
}

/// The mix of a client, with what the market does by itself.
#[test]
fn the_mix_is_as_described() {
    const DRAWS: u64 = 50_000;
    let options = TpceOptions { customers: 20, trades: 2, ..TpceOptions::default() };
    let (mut kinds, mut frames) = ([0u64; KINDS], [0u64; 3]);
    let client = run_alone(&options, DRAWS, |kind, input| {
        kinds[kind] += 1;
        match input {
            Input::MarketFeed(feed) => {
                let symbols: Vec<u64> = feed.ticks.all().iter().map(|tick| tick.symbol).collect();
                assert!(symbols.is_sorted_by(|one, next| one < next) && !symbols.is_empty());
            }
            Input::TradeUpdate(update) => match &update.frame {
                Frame::Numbers(count, numbers) => {
                    frames[0] += 1;
                    let numbers = &numbers[..*count];
                    assert!(*count > 0 && numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
                }
                Frame::Account(..) => frames[1] += 1,
                Frame::Symbol(..) => frames[2] += 1,
            },
            _ => {}
        }
    });
    let all = DRAWS as f64;
    let canceled = kinds[0] - client.commits[0];
    assert!(near(canceled, kinds[0] as f64 * 0.01), "{canceled} of {}", kinds[0]);
    assert!(near(kinds[3], all * 20.0 / 231.0), "{kinds:?}");
    // A feed is drawn, or comes after 20 results.
    assert!((0.043..0.055).contains(&(kinds[2] as f64 / all)), "{kinds:?}");
    // Nearly each order has its result. Some wait for their prices.
    assert!((0.94..1.0).contains(&(kinds[1] as f64 / client.commits[0] as f64)), "{kinds:?}");
    assert!(client.market.waiting() <= 30, "{} orders wait", client.market.waiting());
    for frame in frames {
        assert!(near(frame, kinds[3] as f64 / 3.0), "{frames:?}");
    }
}

#[test]
fn options_that_can_not_be_are_refused() {
    let validate = |options: TpceOptions| Tpce::validate(&options, IndexKind::Hash);
    let none = TpceOptions { trade_order: 0, trade_result: 0, market_feed: 0, trade_update: 0, ..Default::default() };
    assert!(validate(none.clone()).is_err_and(|why| why.contains("are all 0")));
    let results = TpceOptions { trade_result: 3, ..none.clone() };
    assert!(validate(results).is_err_and(|why| why.contains("tpce.trade_result is 3, and tpce.trade_order is 0")));
    assert_eq!(validate(TpceOptions { market_watch: 1, ..none }), Ok(()));
    assert_eq!(validate(TpceOptions::default()), Ok(()));
}

#[test]
fn corrections_go_back_and_forth() {
    let name = results::cash_name(b"Market-Buy\0\0\0\0\0\0", 200, &security_name(3));
    assert!(name.starts_with(b"Market-Buy 000200 shares of Common of Company 000002"), "{name:?}");
    let mut corrected = name;
    updates::correct_name(&mut corrected);
    assert!(corrected.starts_with(b"Market-Buy 000200 Shares of Common"));
    updates::correct_name(&mut corrected);
    assert_eq!(corrected, name);
    for is_cash in [false, true] {
        let kind = results::settlement_kind(is_cash);
        let other = updates::other_kind(&kind, is_cash);
        assert!(other != kind && updates::other_kind(&other, is_cash) == kind);
    }
}
