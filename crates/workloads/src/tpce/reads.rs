//! Three transactions that only read. The IC3 study runs such ones beside those that write.
//!
//! Trade-Status lists the last fifty trades of an account. Customer-Position adds up what the
//! accounts of a customer are worth, and in half of the cases lists the last ten trades of one.
//! Market-Watch compares the prices of what an account holds with those at the beginning.

use std::ops::ControlFlow;

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Direction, Txn, Whole};

use super::generate::{ACCOUNTS_MAX, account_number, accounts_of, customer_of, draw_account, draw_customer};
use super::schema::{
    Broker, Customer, CustomerAccount, Exchange, HoldingSummary, LastTrade, Name, Schema, Security, Trade,
    TradeHistory, TradeType, second_of, third_of, threes_of, twos_of,
};
use super::{Client, Tpce};
use crate::random::Random;

// Trade-Status.
const FACTS: Piece = Piece::new(0, "facts");
const TRADES: Piece = Piece::new(1, "trades");
// Customer-Position.
const CUSTOMER: Piece = Piece::new(0, "customer");
const SUMMARY: Piece = Piece::new(1, "summary");
const LAST: Piece = Piece::new(2, "last");
const TRADE: Piece = Piece::new(3, "trade");
const HISTORY: Piece = Piece::new(4, "history");
const BALANCE: Piece = Piece::new(5, "balance");
// Market-Watch.
const HELD: Piece = Piece::new(0, "held");
const WATCHED: Piece = Piece::new(1, "watched");

/// Declares the pieces of Trade-Status.
pub(super) fn declare_status(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add_read_only(name)
        .piece(FACTS, |piece| {
            piece
                .read(&tables.customer_account, CustomerAccount::BROKER)
                .read(&tables.customer, (Customer::LAST_NAME, Customer::FIRST_NAME))
                .read(&tables.broker, Broker::NAME)
        })
        .piece(TRADES, |piece| {
            piece
                .read(&tables.trade_by_account, Whole)
                .read(&tables.trade, Whole)
                .read(&tables.status_type, Name::NAME)
                .read(&tables.trade_type, TradeType::NAME)
                .read(&tables.security, (Security::NAME, Security::EXCHANGE))
                .read(&tables.exchange, Exchange::NAME)
        });
}

/// Declares the pieces of Customer-Position.
pub(super) fn declare_position(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add_read_only(name)
        .piece(CUSTOMER, |piece| {
            piece.read(&tables.customer, Whole).read(&tables.customer_account, CustomerAccount::NAME)
        })
        .piece(SUMMARY, |piece| piece.read(&tables.holding_summary, HoldingSummary::QUANTITY))
        .piece(LAST, |piece| piece.read(&tables.last_trade, LastTrade::PRICE))
        .piece(TRADE, |piece| {
            piece
                .read(&tables.trade_by_account, Whole)
                .read(&tables.trade, (Trade::SYMBOL, Trade::QUANTITY, Trade::STATUS))
        })
        .piece(HISTORY, |piece| piece.read(&tables.trade_history, TradeHistory::DATE))
        .piece(BALANCE, |piece| piece.read(&tables.customer_account, CustomerAccount::BALANCE));
}

/// Declares the pieces of Market-Watch.
pub(super) fn declare_watch(name: &str, types: &mut Types, tables: &Schema) {
    types.add_read_only(name).piece(HELD, |piece| piece.read(&tables.holding_summary, HoldingSummary::QUANTITY)).piece(
        WATCHED,
        |piece| {
            piece
                .read(&tables.security, Security::NUM_OUT)
                .read(&tables.last_trade, (LastTrade::OPEN, LastTrade::PRICE))
        },
    );
}

/// The trades that Trade-Status lists.
const STATUS_MAX: usize = 50;
/// The trades that Customer-Position lists.
const POSITION_MAX: usize = 10;

/// The parameters of Trade-Status or of Market-Watch: an account.
#[derive(Clone, Copy, Debug, Default)]
pub struct AccountInput {
    pub(super) account: u64,
}

/// A Customer-Position's parameters.
#[derive(Clone, Copy, Debug)]
pub struct PositionInput {
    pub(super) customer: u64,
    /// The account whose last trades are listed.
    pub(super) lists: Option<u64>,
}

impl Tpce {
    pub(super) fn draw_account_to_read(&self, random: &mut Random) -> AccountInput {
        AccountInput { account: draw_account(random, self.options.customers) }
    }

    pub(super) fn draw_position(&self, random: &mut Random) -> PositionInput {
        let customer = draw_customer(random, self.options.customers);
        let place = random.uniform(0, accounts_of(customer) - 1);
        PositionInput { customer, lists: random.happens(0.5).then(|| account_number(customer, place)) }
    }

    /// Runs Trade-Status. Returns whether all was there that is never deleted.
    pub(super) fn trade_status<T: Txn>(
        &self,
        tx: &mut T,
        client: &mut Client,
        &AccountInput { account }: &AccountInput,
    ) -> Result<bool, Abort> {
        let tables = &self.tables;
        let is_known = tx.piece(FACTS, |tx| {
            let broker = tx.read(&tables.customer_account, account, CustomerAccount::BROKER)?;
            let names = (Customer::LAST_NAME, Customer::FIRST_NAME);
            let customer = tx.read(&tables.customer, customer_of(account), names)?;
            let Some(broker) = broker else { return Ok(false) };
            let broker = tx.read(&tables.broker, broker, Broker::NAME)?;
            Ok(std::hint::black_box(customer).is_some() & std::hint::black_box(broker).is_some())
        })?;
        let numbers = &mut client.numbers;
        let is_whole = tx.piece(TRADES, |tx| {
            self.last_trades(tx, numbers, account, STATUS_MAX)?;
            let of_trade = (
                Trade::STATUS,
                Trade::DATE,
                Trade::KIND,
                Trade::SYMBOL,
                Trade::QUANTITY,
                Trade::EXECUTOR,
                Trade::CHARGE,
            );
            for &trade in &*numbers {
                let Some(row) = tx.read(&tables.trade, trade, of_trade)? else { return Ok(false) };
                let (status, _, kind, symbol, ..) = std::hint::black_box(row);
                let status = tx.read(&tables.status_type, status, Name::NAME)?;
                let kind = tx.read(&tables.trade_type, kind, TradeType::NAME)?;
                let columns = (Security::NAME, Security::EXCHANGE);
                let Some((name, exchange)) = tx.read(&tables.security, symbol, columns)? else { return Ok(false) };
                let exchange = tx.read(&tables.exchange, exchange, Exchange::NAME)?;
                let (Some(_), Some(_), Some(_), _) = std::hint::black_box((status, kind, exchange, name)) else {
                    return Ok(false);
                };
            }
            Ok(true)
        })?;
        Ok(is_known & is_whole)
    }

    /// Runs Customer-Position. Returns whether all was there that is never deleted.
    pub(super) fn customer_position<T: Txn>(
        &self,
        tx: &mut T,
        client: &mut Client,
        &PositionInput { customer, lists }: &PositionInput,
    ) -> Result<bool, Abort> {
        let tables = &self.tables;
        let Client { numbers, positions, .. } = client;
        let accounts = tx.piece(CUSTOMER, |tx| {
            let row = std::hint::black_box(tx.read(&tables.customer, customer, Whole)?);
            let mut accounts = 0;
            while accounts < ACCOUNTS_MAX && row.is_some() {
                let account = account_number(customer, accounts);
                let name = tx.read(&tables.customer_account, account, CustomerAccount::NAME)?;
                if std::hint::black_box(name).is_none() {
                    break;
                }
                accounts += 1;
            }
            Ok(accounts)
        })?;
        tx.piece(SUMMARY, |tx| {
            positions.clear();
            (0..accounts).try_for_each(|place| self.read_positions(tx, positions, account_number(customer, place)))
        })?;
        let mut as_expected = tx.piece(LAST, |tx| {
            let mut value = 0i64;
            for &(symbol, quantity) in &*positions {
                let Some(price) = tx.read(&tables.last_trade, symbol, LastTrade::PRICE)? else { return Ok(false) };
                value = value.wrapping_add(price.wrapping_mul(quantity));
            }
            std::hint::black_box(value);
            Ok(accounts > 0)
        })?;
        if let Some(account) = lists {
            as_expected &= tx.piece(TRADE, |tx| {
                self.last_trades(tx, numbers, account, POSITION_MAX)?;
                let columns = (Trade::SYMBOL, Trade::QUANTITY, Trade::STATUS);
                numbers.iter().try_fold(true, |found, &trade| {
                    Ok(found & std::hint::black_box(tx.read(&tables.trade, trade, columns)?).is_some())
                })
            })?;
            as_expected &= tx.piece(HISTORY, |tx| {
                numbers.iter().try_fold(true, |as_expected, &trade| {
                    let (table, range) = (&tables.trade_history, twos_of(trade));
                    let steps = tx.scan(table, range, 3, Direction::Forward, TradeHistory::DATE, |_, date| {
                        std::hint::black_box(date);
                        ControlFlow::Continue(())
                    })?;
                    Ok(as_expected & (steps > 0))
                })
            })?;
        }
        as_expected &= tx.piece(BALANCE, |tx| {
            (0..accounts).try_fold(true, |found, place| {
                let account = account_number(customer, place);
                let balance = tx.read(&tables.customer_account, account, CustomerAccount::BALANCE)?;
                Ok(found & std::hint::black_box(balance).is_some())
            })
        })?;
        Ok(as_expected)
    }

    /// Runs Market-Watch. Returns whether all was there that is never deleted.
    pub(super) fn market_watch<T: Txn>(
        &self,
        tx: &mut T,
        client: &mut Client,
        &AccountInput { account }: &AccountInput,
    ) -> Result<bool, Abort> {
        let (tables, positions) = (&self.tables, &mut client.positions);
        tx.piece(HELD, |tx| {
            positions.clear();
            self.read_positions(tx, positions, account)
        })?;
        tx.piece(WATCHED, |tx| {
            let (mut before, mut now) = (0u64, 0u64);
            for &(symbol, _) in &*positions {
                let shares = tx.read(&tables.security, symbol, Security::NUM_OUT)?;
                let prices = tx.read(&tables.last_trade, symbol, (LastTrade::OPEN, LastTrade::PRICE))?;
                let (Some(shares), Some((open, price))) = (shares, prices) else { return Ok(false) };
                before = before.wrapping_add(shares.wrapping_mul(open as u64));
                now = now.wrapping_add(shares.wrapping_mul(price as u64));
            }
            std::hint::black_box((before, now));
            Ok(true)
        })
    }

    /// Lists the last trades of an account.
    #[inline]
    fn last_trades<T: Txn>(&self, tx: &mut T, numbers: &mut Vec<u64>, account: u64, most: usize) -> Result<(), Abort> {
        numbers.clear();
        let (table, range) = (&self.tables.trade_by_account, threes_of(account, 0));
        tx.scan(table, range, most, Direction::Backward, Whole, |key, _| {
            numbers.push(third_of(key));
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Adds what an account holds: symbols, and quantities.
    #[inline]
    fn read_positions<T: Txn>(&self, tx: &mut T, positions: &mut Vec<(u64, i64)>, account: u64) -> Result<(), Abort> {
        let (table, range) = (&self.tables.holding_summary, twos_of(account));
        tx.scan(table, range, usize::MAX, Direction::Forward, HoldingSummary::QUANTITY, |key, quantity| {
            positions.push((second_of(key), quantity));
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}
