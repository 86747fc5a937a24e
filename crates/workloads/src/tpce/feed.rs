//! Market-Feed: prices have changed, and limit orders may go to the market.

use std::ops::ControlFlow;

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Direction, Txn};

use super::generate::{SUBMITTED, is_triggered};
use super::market::{Ticket, Ticks};
use super::schema::{Fed, Schema, Submitted, TradeHistory, TradeRequest, second_of, two, twos_of};
use super::{Client, Tpce};

const LAST: Piece = Piece::new(0, "last");
const REQUEST: Piece = Piece::new(1, "request");
const TRADE: Piece = Piece::new(2, "trade");
const HISTORY: Piece = Piece::new(3, "history");

/// Declares the pieces. Each is a loop over all symbols or over all orders.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add(name)
        .piece(LAST, |piece| piece.update(&tables.last_trade, Fed { price: 0, quantity: 0, date: 0 }))
        .piece(REQUEST, |piece| {
            let columns = (TradeRequest::KIND, TradeRequest::QUANTITY, TradeRequest::BID);
            piece.read(&tables.trade_request, columns).delete(&tables.trade_request)
        })
        .piece(TRADE, |piece| piece.update(&tables.trade, Submitted { status: SUBMITTED, date: 0 }))
        .piece(HISTORY, |piece| piece.insert(&tables.trade_history));
}

/// A Market-Feed's parameters.
#[derive(Clone, Debug, Default)]
pub struct Input {
    pub(super) ticks: Ticks,
    pub(super) date: u64,
}

impl Tpce {
    /// Runs the body. Returns whether all was there that is never deleted, and nothing of its own.
    pub(super) fn market_feed<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<bool, Abort> {
        let tables = &self.tables;
        let date = input.date;
        let triggered = &mut client.market.triggered;
        let mut as_expected = tx.piece(LAST, |tx| {
            input.ticks.all().iter().try_fold(true, |found, tick| {
                let fed = Fed { price: tick.price, quantity: tick.quantity, date };
                Ok(found & tx.update(&tables.last_trade, tick.symbol, fed)?)
            })
        })?;
        as_expected &= tx.piece(REQUEST, |tx| {
            triggered.clear();
            let columns = (TradeRequest::KIND, TradeRequest::QUANTITY, TradeRequest::BID);
            for tick in input.ticks.all() {
                let (symbol, range) = (tick.symbol, twos_of(tick.symbol));
                let table = &tables.trade_request;
                tx.scan(table, range, usize::MAX, Direction::Forward, columns, |key, (kind, quantity, bid)| {
                    if is_triggered(kind, bid, tick.price) {
                        triggered.push(Ticket { trade: second_of(key), symbol, quantity });
                    }
                    ControlFlow::Continue(())
                })?;
            }
            triggered.iter().try_fold(true, |found, ticket| {
                Ok(found & tx.delete(&tables.trade_request, two(ticket.symbol, ticket.trade))?)
            })
        })?;
        if triggered.is_empty() {
            return Ok(as_expected);
        }
        as_expected &= tx.piece(TRADE, |tx| {
            let submitted = Submitted { status: SUBMITTED, date };
            triggered
                .iter()
                .try_fold(true, |found, ticket| Ok(found & tx.update(&tables.trade, ticket.trade, submitted)?))
        })?;
        as_expected &= tx.piece(HISTORY, |tx| {
            triggered.iter().try_fold(true, |new, ticket| {
                let row = TradeHistory { date };
                Ok(new & tx.insert(&tables.trade_history, two(ticket.trade, SUBMITTED), row)?)
            })
        })?;
        Ok(as_expected)
    }
}
