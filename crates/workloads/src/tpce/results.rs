//! Trade-Result: the market has completed a trade.

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Txn, Whole};

use super::generate::{COMPLETED, customer_of, digits, text};
use super::market::{Tick, Ticket};
use super::positions::{Terms, closes, gain, read_rates, signed, use_up, used_up};
use super::schema::{
    Broker, CashTransaction, CommissionRate, Completed, Customer, CustomerAccount, Holding, HoldingHistory,
    HoldingSummary, Schema, Security, Settlement, TaxRate, Trade, TradeHistory, TradeType, four, two,
};
use super::{Client, Tpce};

const ORDERED: Piece = Piece::new(0, "ordered");
const FACTS: Piece = Piece::new(1, "facts");
const SUMMARY: Piece = Piece::new(2, "summary");
const HOLDINGS: Piece = Piece::new(3, "holdings");
const TRADE: Piece = Piece::new(4, "trade");
const HISTORY: Piece = Piece::new(5, "history");
const BROKER: Piece = Piece::new(6, "broker");
const SETTLEMENT: Piece = Piece::new(7, "settlement");
const BALANCE: Piece = Piece::new(8, "balance");
const CASH: Piece = Piece::new(9, "cash");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add(name)
        // The order has committed before the market saw it.
        .piece(ORDERED, |piece| piece.settled(&tables.trade, Trade::SYMBOL))
        .piece(FACTS, |piece| {
            piece
                .read(&tables.customer_account, (CustomerAccount::BROKER, CustomerAccount::TAX_STATUS))
                .read(&tables.customer, Customer::TIER)
                .read(&tables.security, (Security::NAME, Security::EXCHANGE))
                .read(&tables.trade_type, TradeType::NAME)
                .read(&tables.commission_rate, (CommissionRate::RATE, CommissionRate::UP_TO))
                .read(&tables.customer_taxrate, Whole)
                .read(&tables.tax_rate, TaxRate::RATE)
        })
        .piece(SUMMARY, |piece| {
            let piece = piece.modify(&tables.holding_summary, HoldingSummary::QUANTITY);
            piece.insert(&tables.holding_summary).delete(&tables.holding_summary)
        })
        .piece(HOLDINGS, |piece| {
            piece
                .read(&tables.holding, (Holding::PRICE, Holding::QUANTITY))
                .update(&tables.holding, Holding::QUANTITY.set(0))
                .insert(&tables.holding)
                .delete(&tables.holding)
                .insert(&tables.holding_history)
        })
        .piece(TRADE, |piece| piece.update(&tables.trade, COMPLETED_LIKE))
        .piece(HISTORY, |piece| piece.insert(&tables.trade_history))
        .piece(BROKER, |piece| piece.update(&tables.broker, (Broker::NUM_TRADES.add(1), Broker::COMMISSION.add(0))))
        .piece(SETTLEMENT, |piece| piece.insert(&tables.settlement))
        .piece(BALANCE, |piece| piece.update(&tables.customer_account, CustomerAccount::BALANCE.add(0)))
        .piece(CASH, |piece| piece.insert(&tables.cash_transaction));
}

/// An update like those of Trade-Result.
const COMPLETED_LIKE: Completed = Completed { status: COMPLETED, date: 0, price: 0, commission: 0, tax: 0 };

/// The kinds of settlements.
pub(super) const CASH_ACCOUNT: [u8; 16] = *b"Cash Account\0\0\0\0";
pub(super) const MARGIN: [u8; 16] = *b"Margin\0\0\0\0\0\0\0\0\0\0";
/// Dates until a settlement is due.
const DUE_AFTER: u64 = 2;

/// A Trade-Result's parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input {
    pub(super) ticket: Ticket,
    pub(super) price: i64,
    pub(super) date: u64,
}

impl Input {
    /// Returns the trade as a feed sees it.
    pub(super) fn tick(&self) -> Tick {
        Tick { symbol: self.ticket.symbol, price: self.price, quantity: self.ticket.quantity }
    }
}

/// The order that the market has completed, in the words of its row.
#[derive(Clone, Copy, Debug)]
struct Order {
    symbol: u64,
    account: u64,
    kind: u64,
    quantity: u64,
    charge: i64,
    is_cash: bool,
    is_lifo: bool,
}

/// What the result of a trade needs to know beside its order.
#[derive(Clone, Copy, Debug)]
struct Facts {
    terms: Terms,
    broker: u64,
    kind_name: [u8; 16],
    security_name: [u8; 32],
}

impl Tpce {
    /// Runs the body. Returns whether all was there that is never deleted, and nothing of its own.
    pub(super) fn trade_result<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<bool, Abort> {
        let tables = &self.tables;
        let Input { ticket: Ticket { trade, .. }, price, date } = *input;
        let Some(order) = tx.piece(ORDERED, |tx| self.read_order(tx, trade))? else { return Ok(false) };
        let Order { account, symbol, kind, quantity, .. } = order;
        let Some(facts) = tx.piece(FACTS, |tx| self.read_result_facts(tx, &order))? else { return Ok(false) };
        let change = signed(kind, quantity);
        let held = tx.piece(SUMMARY, |tx| self.change_summary(tx, account, symbol, change))?;
        let used = &mut client.used;
        let mut as_expected = tx.piece(HOLDINGS, |tx| {
            used.clear();
            let (place, is_lifo) = ((account, symbol), order.is_lifo);
            let rest = if closes(held, change) { use_up(tx, tables, used, place, is_lifo, change)? } else { change };
            let is_whole = !closes(held, change) || rest == used_up(held, change).1;
            let mut as_expected = is_whole;
            for of in &*used {
                as_expected &= match of.after {
                    0 => tx.delete(&tables.holding, of.key)?,
                    after => tx.update(&tables.holding, of.key, Holding::QUANTITY.set(after))?,
                };
                let row = HoldingHistory { before: of.before, after: of.after };
                as_expected &= tx.insert(&tables.holding_history, two(trade, super::schema::trade_of(of.key)), row)?;
            }
            if rest != 0 {
                let row = Holding { price, quantity: rest };
                as_expected &= tx.insert(&tables.holding, four(account, symbol, date, trade), row)?;
                let row = HoldingHistory { before: 0, after: rest };
                as_expected &= tx.insert(&tables.holding_history, two(trade, trade), row)?;
            }
            Ok(as_expected)
        })?;
        let costs = facts.terms.costs(price, gain(&client.used, price));
        as_expected &= tx.piece(TRADE, |tx| tx.update(&tables.trade, trade, costs.completed(price, date)))?;
        as_expected &=
            tx.piece(HISTORY, |tx| tx.insert(&tables.trade_history, two(trade, COMPLETED), TradeHistory { date }))?;
        let earned = (Broker::NUM_TRADES.add(1), Broker::COMMISSION.add(costs.commission));
        as_expected &= tx.piece(BROKER, |tx| tx.update(&tables.broker, facts.broker, earned))?;
        let amount = costs.amount;
        let row = Settlement { kind: settlement_kind(order.is_cash), due: date + DUE_AFTER, amount };
        as_expected &= tx.piece(SETTLEMENT, |tx| tx.insert(&tables.settlement, trade, row))?;
        if order.is_cash {
            let paid = CustomerAccount::BALANCE.add(amount);
            as_expected &= tx.piece(BALANCE, |tx| tx.update(&tables.customer_account, account, paid))?;
            let name = cash_name(&facts.kind_name, quantity, &facts.security_name);
            let row = CashTransaction { amount, date, name };
            as_expected &= tx.piece(CASH, |tx| tx.insert(&tables.cash_transaction, trade, row))?;
        }
        Ok(as_expected)
    }

    #[inline]
    fn read_order<T: Txn>(&self, tx: &mut T, trade: u64) -> Result<Option<Order>, Abort> {
        let columns = (
            Trade::SYMBOL,
            Trade::ACCOUNT,
            Trade::KIND,
            Trade::QUANTITY,
            Trade::CHARGE,
            Trade::IS_CASH,
            Trade::IS_LIFO,
        );
        let row = tx.read(&self.tables.trade, trade, columns)?;
        Ok(row.map(|(symbol, account, kind, quantity, charge, is_cash, is_lifo)| Order {
            symbol,
            account,
            kind,
            quantity,
            charge,
            is_cash: is_cash != 0,
            is_lifo: is_lifo != 0,
        }))
    }

    /// Reads the facts. `None` if a row is missing.
    #[inline]
    fn read_result_facts<T: Txn>(&self, tx: &mut T, order: &Order) -> Result<Option<Facts>, Abort> {
        let tables = &self.tables;
        let Order { symbol, account, kind, quantity, charge, .. } = *order;
        let columns = (CustomerAccount::BROKER, CustomerAccount::TAX_STATUS);
        let Some((broker, tax_status)) = tx.read(&tables.customer_account, account, columns)? else { return Ok(None) };
        let customer = customer_of(account);
        let Some(tier) = tx.read(&tables.customer, customer, Customer::TIER)? else { return Ok(None) };
        let columns = (Security::NAME, Security::EXCHANGE);
        let Some((security_name, exchange)) = tx.read(&tables.security, symbol, columns)? else { return Ok(None) };
        let Some(kind_name) = tx.read(&tables.trade_type, kind, TradeType::NAME)? else { return Ok(None) };
        let rates = read_rates(tx, tables, (tier, kind, exchange), quantity, customer)?;
        Ok(rates.map(|rates| {
            let terms = Terms { kind, quantity, charge, tax_status, rates };
            Facts { terms, broker, kind_name, security_name }
        }))
    }

    /// Changes what an account holds of a security. Returns what it held before.
    #[inline]
    fn change_summary<T: Txn>(&self, tx: &mut T, account: u64, symbol: u64, change: i64) -> Result<i64, Abort> {
        let (table, key) = (&self.tables.holding_summary, two(account, symbol));
        let held = tx.modify_columns(table, key, HoldingSummary::QUANTITY, |quantity| {
            let before = *quantity;
            *quantity = before.wrapping_add(change);
            before
        })?;
        match held {
            None => {
                tx.insert(table, key, HoldingSummary { quantity: change })?;
            }
            Some(held) if held.wrapping_add(change) == 0 => {
                tx.delete(table, key)?;
            }
            Some(_) => {}
        }
        Ok(held.unwrap_or(0))
    }
}

/// Returns the kind of the settlement of a trade.
pub(super) fn settlement_kind(is_cash: bool) -> [u8; 16] {
    if is_cash { CASH_ACCOUNT } else { MARGIN }
}

/// Returns the name of a payment, such as "Market-Buy 000200 shares of Common of Company 000012 0".
pub(super) fn cash_name(kind: &[u8; 16], quantity: u64, security: &[u8; 32]) -> [u8; 64] {
    text(&[kind, b" ", &digits(quantity), SHARES_OF, security])
}

/// The words that Trade-Update changes in the name of a payment.
pub(super) const SHARES_OF: &[u8; 11] = b" shares of ";
