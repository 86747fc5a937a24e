//! Trade-Order: a customer orders a trade, or a person with the customer's permission does.

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Txn, Whole};

use super::generate::{
    PENDING, SUBMITTED, company_name, company_of, customer_of, draw_account, draw_bid, draw_kind, draw_quantity,
    is_market, issue_of, others_permitted, permission_key, permitted, securities_of, security_of, text,
};
use super::market::Ticket;
use super::positions::{Terms, closes, gain, read_rates, signed, use_up, used_up};
use super::schema::{
    AccountPermission, Broker, Charge, CommissionRate, Company, CompanyName, Customer, CustomerAccount, Holding,
    HoldingSummary, LastTrade, Nothing, Number, Schema, Security, TaxRate, Trade, TradeHistory, TradeRequest,
    TradeType, charge_key, three, two,
};
use super::{Client, Tpce, TpceOptions};
use crate::random::Random;

const FACTS: Piece = Piece::new(0, "facts");
const SUMMARY: Piece = Piece::new(1, "summary");
const HOLDINGS: Piece = Piece::new(2, "holdings");
const LAST: Piece = Piece::new(3, "last");
const REQUEST: Piece = Piece::new(4, "request");
const TRADE: Piece = Piece::new(5, "trade");
const HISTORY: Piece = Piece::new(6, "history");
const BALANCE: Piece = Piece::new(7, "balance");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema, options: &TpceOptions) {
    let (cancels, is_late) = (options.rollback.0 > 0.0, options.late_rollback);
    types
        .add(name)
        .piece(FACTS, |piece| {
            let piece = piece
                .read(&tables.customer_account, (CustomerAccount::BROKER, CustomerAccount::TAX_STATUS))
                .read(&tables.customer, (Customer::TIER, Customer::LAST_NAME, Customer::FIRST_NAME))
                .read(&tables.broker, Broker::NAME)
                .read(&tables.account_permission, Whole)
                .read(&tables.company_by_name, Number::NUMBER)
                .read(&tables.security_by_company, Number::NUMBER)
                .read(&tables.company, Company::NAME)
                .read(&tables.security, (Security::NAME, Security::EXCHANGE, Security::COMPANY))
                .read(&tables.trade_type, (TradeType::IS_SELL, TradeType::IS_MARKET))
                .read(&tables.charge, Charge::CHARGE)
                .read(&tables.commission_rate, (CommissionRate::RATE, CommissionRate::UP_TO))
                .read(&tables.customer_taxrate, Whole)
                .read(&tables.tax_rate, TaxRate::RATE);
            if cancels && !is_late { piece.cancels() } else { piece }
        })
        .piece(SUMMARY, |piece| piece.read(&tables.holding_summary, HoldingSummary::QUANTITY))
        .piece(HOLDINGS, |piece| piece.read(&tables.holding, (Holding::PRICE, Holding::QUANTITY)))
        .piece(LAST, |piece| piece.read(&tables.last_trade, LastTrade::PRICE))
        .piece(REQUEST, |piece| piece.insert(&tables.trade_request))
        .piece(TRADE, |piece| {
            piece.insert(&tables.trade).insert(&tables.trade_by_account).insert(&tables.trade_by_symbol)
        })
        .piece(HISTORY, |piece| piece.insert(&tables.trade_history))
        .piece(BALANCE, |piece| {
            let piece = piece.read(&tables.customer_account, CustomerAccount::BALANCE);
            if cancels && is_late { piece.cancels() } else { piece }
        });
}

/// The way in which an order names a security.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum NamedBy {
    /// By its symbol.
    #[default]
    Symbol,
    /// By its company's name, and by its place among the company's securities.
    Company(CompanyName, u64),
}

/// A Trade-Order's parameters.
#[derive(Clone, Copy, Debug, Default)]
pub struct Input {
    pub(super) trade: u64,
    pub(super) account: u64,
    pub(super) kind: u64,
    pub(super) symbol: u64,
    pub(super) quantity: u64,
    /// The person that orders, as a customer.
    pub(super) executor: u64,
    pub(super) bid: i64,
    pub(super) is_margin: bool,
    pub(super) is_lifo: bool,
    /// Whether the transaction rolls back.
    pub(super) cancels: bool,
    pub(super) named_by: NamedBy,
    pub(super) date: u64,
}

impl Input {
    /// Returns the order as the market sees it.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket { trade: self.trade, symbol: self.symbol, quantity: self.quantity }
    }

    /// Returns the row of the trade.
    fn trade_row(&self, facts: &Facts, price: i64, status: u64) -> Trade {
        Trade {
            symbol: facts.symbol,
            account: self.account,
            kind: self.kind,
            quantity: self.quantity,
            bid: price,
            charge: facts.terms.charge,
            ordered: self.date,
            is_cash: u32::from(!self.is_margin),
            is_lifo: u32::from(self.is_lifo),
            status,
            date: self.date,
            price: 0,
            commission: 0,
            tax: 0,
            executor: facts.executor,
        }
    }

    /// Whether the name of the company stands for the symbol.
    #[cfg(test)]
    pub(super) fn is_by_name(&self) -> bool {
        matches!(self.named_by, NamedBy::Company(..))
    }
}

/// What an order needs to know before it reads what others write.
#[derive(Clone, Copy, Debug)]
struct Facts {
    broker: u64,
    /// The name of the person that orders.
    executor: [u8; 32],
    symbol: u64,
    terms: Terms,
}

impl Tpce {
    pub(super) fn draw_order(&self, random: &mut Random, trade: u64, date: u64) -> Input {
        let TpceOptions { customers, securities, .. } = self.options;
        let account = draw_account(random, customers);
        let symbol = security_of(account, random.uniform(0, securities_of(account) - 1), securities);
        let others = others_permitted(account);
        let is_owner = random.happens(0.6) || others == 0;
        let is_by_name = random.happens(0.4);
        Input {
            trade,
            account,
            kind: draw_kind(random),
            symbol,
            quantity: draw_quantity(random),
            executor: permitted(account, if is_owner { 0 } else { random.uniform(1, others) }, customers),
            bid: draw_bid(random),
            is_margin: random.happens(0.08),
            is_lifo: random.happens(0.35),
            cancels: random.happens(self.options.rollback.0),
            named_by: match is_by_name {
                true => NamedBy::Company(company_name(company_of(symbol)), issue_of(symbol)),
                false => NamedBy::Symbol,
            },
            date,
        }
    }

    /// Runs the body. Returns whether all was there that is never deleted, and nothing of its own.
    pub(super) fn trade_order<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<bool, Abort> {
        let tables = &self.tables;
        let Input { trade, account, kind, quantity, date, .. } = *input;
        // Nobody writes these rows, so an order that cancels here has met no other transaction.
        let facts = tx.piece(FACTS, |tx| {
            let facts = self.read_order_facts(tx, input)?;
            if input.cancels && !self.options.late_rollback { Err(tx.cancel()) } else { Ok(facts) }
        })?;
        let Some(facts) = facts else { return Ok(false) };
        let Facts { symbol, terms, .. } = facts;
        let position = two(account, symbol);
        let held = tx.piece(SUMMARY, |tx| tx.read(&tables.holding_summary, position, HoldingSummary::QUANTITY))?;
        let (held, change, used) = (held.unwrap_or(0), signed(kind, quantity), &mut client.used);
        let is_whole = if closes(held, change) {
            let place = (account, symbol);
            let rest = tx.piece(HOLDINGS, |tx| use_up(tx, tables, used, place, input.is_lifo, change))?;
            rest == used_up(held, change).1
        } else {
            used.clear();
            true
        };
        let last = tx.piece(LAST, |tx| tx.read(&tables.last_trade, symbol, LastTrade::PRICE))?;
        let Some(last) = last else { return Ok(false) };
        // The estimate that the customer is shown.
        let price = if is_market(kind) { last } else { input.bid };
        let costs = terms.costs(price, gain(&client.used, price));
        let mut as_expected = is_whole;
        if !is_market(kind) {
            let row = TradeRequest { kind, quantity, bid: price, broker: facts.broker };
            as_expected &= tx.piece(REQUEST, |tx| tx.insert(&tables.trade_request, two(symbol, trade), row))?;
        }
        let status = if is_market(kind) { SUBMITTED } else { PENDING };
        let row = input.trade_row(&facts, price, status);
        as_expected &= tx.piece(TRADE, |tx| {
            Ok(tx.insert(&tables.trade, trade, row)?
                & tx.insert(&tables.trade_by_account, three(account, date, trade), Nothing {})?
                & tx.insert(&tables.trade_by_symbol, three(symbol, date, trade), Nothing {})?)
        })?;
        as_expected &=
            tx.piece(HISTORY, |tx| tx.insert(&tables.trade_history, two(trade, status), TradeHistory { date }))?;
        let cancels = input.cancels && self.options.late_rollback;
        if input.is_margin || cancels {
            let balance = tx.piece(BALANCE, |tx| {
                let balance = tx.read(&tables.customer_account, account, CustomerAccount::BALANCE)?;
                if cancels { Err(tx.cancel()) } else { Ok(balance) }
            })?;
            as_expected &= balance.is_some();
            // What the account has left.
            std::hint::black_box(balance.map(|balance| balance.wrapping_add(costs.amount)));
        }
        std::hint::black_box(costs);
        Ok(as_expected)
    }

    /// Reads what concerns the order alone. `None` if a row is missing.
    #[inline]
    fn read_order_facts<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<Option<Facts>, Abort> {
        let tables = &self.tables;
        let Input { account, kind, quantity, executor, .. } = *input;
        let customer = customer_of(account);
        let columns = (CustomerAccount::BROKER, CustomerAccount::TAX_STATUS);
        let Some((broker, tax_status)) = tx.read(&tables.customer_account, account, columns)? else { return Ok(None) };
        let columns = (Customer::TIER, Customer::LAST_NAME, Customer::FIRST_NAME);
        let Some((tier, last, first)) = tx.read(&tables.customer, customer, columns)? else { return Ok(None) };
        let Some(broker_name) = tx.read(&tables.broker, broker, Broker::NAME)? else { return Ok(None) };
        let (last, first) = if executor == customer {
            (last, first)
        } else {
            let key = permission_key(account, executor);
            let permission = tx.read(&tables.account_permission, key, Whole)?;
            let Some(AccountPermission { last_name, first_name, .. }) = permission else { return Ok(None) };
            (last_name, first_name)
        };
        let Some((symbol, exchange)) = self.find_security(tx, input)? else { return Ok(None) };
        let columns = (TradeType::IS_SELL, TradeType::IS_MARKET);
        let Some(type_of_trade) = tx.read(&tables.trade_type, kind, columns)? else { return Ok(None) };
        std::hint::black_box((broker_name, type_of_trade));
        let Some(charge) = tx.read(&tables.charge, charge_key(kind, tier), Charge::CHARGE)? else {
            return Ok(None);
        };
        let rates = read_rates(tx, tables, (tier, kind, exchange), quantity, customer)?;
        Ok(rates.map(|rates| {
            let terms = Terms { kind, quantity, charge, tax_status, rates };
            Facts { broker, executor: text(&[&first, b" ", &last]), symbol, terms }
        }))
    }

    /// Finds the security that is ordered. Returns its symbol, and its exchange. `None` if a row is
    /// missing.
    #[inline]
    fn find_security<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<Option<(u64, u64)>, Abort> {
        let tables = &self.tables;
        let symbol = match input.named_by {
            NamedBy::Symbol => input.symbol,
            NamedBy::Company(name, issue) => {
                let Some(company) = tx.read(&tables.company_by_name, name, Number::NUMBER)? else { return Ok(None) };
                let symbol = tx.read(&tables.security_by_company, two(company, issue), Number::NUMBER)?;
                let Some(symbol) = symbol else { return Ok(None) };
                symbol
            }
        };
        let columns = (Security::NAME, Security::EXCHANGE, Security::COMPANY);
        let security = tx.read(&tables.security, symbol, columns)?;
        let Some((name, exchange, company)) = security else { return Ok(None) };
        if let NamedBy::Symbol = input.named_by {
            let Some(name) = tx.read(&tables.company, company, Company::NAME)? else { return Ok(None) };
            std::hint::black_box(name);
        }
        std::hint::black_box(name);
        Ok(Some((symbol, exchange)))
    }
}
