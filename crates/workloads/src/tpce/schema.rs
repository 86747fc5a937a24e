//! TPC-E's tables, rows, keys, and the updates that change rows without reading them.
//!
//! Money is in cents, rates are in ten-thousandths. Customers, brokers and trades count from 1, all
//! other numbers count from 0.
//!
//! Columns that are often written form groups by the transactions that write them. Trade-Result and
//! Market-Feed write the state of a trade, Trade-Update writes its executor. Trade-Result writes
//! the balance of an account and the sums of a broker.

use std::ops::RangeInclusive;

use contend_derive::Row;
use contend_model::{Groups, IndexKind, Key, TableSpec, Tables, TypedTable, Update};

use super::generate::{EXCHANGES, STATUSES, TAX_RATES, TIERS, TRADE_TYPES, brokers_of, companies_of};
use super::{COUNT_BITS, TpceOptions};

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Customer {
    pub(super) tier: u64,
    pub(super) tax_id: u64,
    pub(super) last_name: [u8; 16],
    pub(super) first_name: [u8; 16],
    pub(super) e_mail: [u8; 32],
    pub(super) born: u64,
}

/// The permission of a person to trade for an account.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct AccountPermission {
    pub(super) acl: [u8; 8],
    pub(super) last_name: [u8; 16],
    pub(super) first_name: [u8; 16],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct CustomerAccount {
    pub(super) broker: u64,
    pub(super) customer: u64,
    /// 0: no taxes; 1: they are withheld from each sale; 2: they are paid later.
    pub(super) tax_status: u64,
    pub(super) name: [u8; 32],
    #[group = 1]
    pub(super) balance: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Broker {
    pub(super) name: [u8; 32],
    #[group = 1]
    pub(super) num_trades: u64,
    #[group = 1]
    pub(super) commission: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Security {
    pub(super) symbol: [u8; 8],
    pub(super) name: [u8; 32],
    pub(super) exchange: u64,
    pub(super) company: u64,
    pub(super) issue: u64,
    /// Shares of the company.
    pub(super) num_out: u64,
}

/// A row of an index, which leads to another row.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Number {
    pub(super) number: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Company {
    pub(super) name: [u8; 24],
    pub(super) description: [u8; 104],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct LastTrade {
    /// The price at the beginning of the day.
    pub(super) open: i64,
    #[group = 1]
    pub(super) price: i64,
    #[group = 1]
    pub(super) volume: u64,
    #[group = 1]
    pub(super) date: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Trade {
    pub(super) symbol: u64,
    pub(super) account: u64,
    /// One of [`TRADE_TYPES`].
    pub(super) kind: u64,
    pub(super) quantity: u64,
    pub(super) bid: i64,
    pub(super) charge: i64,
    /// When the order was placed.
    pub(super) ordered: u64,
    pub(super) is_cash: u32,
    /// Whether the newest holdings are sold first.
    pub(super) is_lifo: u32,
    /// One of [`STATUSES`].
    #[group = 1]
    pub(super) status: u64,
    /// When the trade has got its status.
    #[group = 1]
    pub(super) date: u64,
    /// The price of a completed trade.
    #[group = 1]
    pub(super) price: i64,
    #[group = 1]
    pub(super) commission: i64,
    #[group = 1]
    pub(super) tax: i64,
    #[group = 2]
    pub(super) executor: [u8; 32],
}

/// A row of which only the key matters.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Nothing {}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct TradeHistory {
    pub(super) date: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct TradeRequest {
    pub(super) kind: u64,
    pub(super) quantity: u64,
    pub(super) bid: i64,
    pub(super) broker: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Holding {
    pub(super) price: i64,
    /// Below 0 if the account owes the shares.
    pub(super) quantity: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct HoldingSummary {
    pub(super) quantity: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct HoldingHistory {
    pub(super) before: i64,
    pub(super) after: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Settlement {
    pub(super) kind: [u8; 16],
    pub(super) due: u64,
    pub(super) amount: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct CashTransaction {
    pub(super) amount: i64,
    pub(super) date: u64,
    pub(super) name: [u8; 64],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct TradeType {
    pub(super) name: [u8; 16],
    pub(super) is_sell: u32,
    pub(super) is_market: u32,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Name {
    pub(super) name: [u8; 16],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Charge {
    pub(super) charge: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct CommissionRate {
    /// The largest quantity for which the rate is.
    pub(super) up_to: u64,
    pub(super) rate: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct TaxRate {
    pub(super) name: [u8; 24],
    pub(super) rate: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(super) struct Exchange {
    pub(super) name: [u8; 16],
    pub(super) opens: u64,
    pub(super) closes: u64,
}

/// A key of two numbers.
pub(super) type Two = [u8; 16];
/// A key of three numbers.
pub(super) type Three = [u8; 24];
/// A key of four numbers.
pub(super) type Four = [u8; 32];
/// The name of a company.
pub(super) type CompanyName = [u8; 24];

pub(super) fn two(first: u64, second: u64) -> Two {
    Key::from_words([first, second, 0, 0])
}

pub(super) fn three(first: u64, second: u64, third: u64) -> Three {
    Key::from_words([first, second, third, 0])
}

pub(super) fn four(first: u64, second: u64, third: u64, fourth: u64) -> Four {
    Key::from_words([first, second, third, fourth])
}

/// Returns the keys of two numbers that begin with this one.
pub(super) fn twos_of(first: u64) -> RangeInclusive<Two> {
    two(first, 0)..=two(first, u64::MAX)
}

/// Returns the keys of three numbers that begin with this one, from a second one on.
pub(super) fn threes_of(first: u64, from: u64) -> RangeInclusive<Three> {
    three(first, from, 0)..=three(first, u64::MAX, u64::MAX)
}

/// Returns the keys of an account's holdings of a security.
pub(super) fn holdings_of(account: u64, symbol: u64) -> RangeInclusive<Four> {
    four(account, symbol, 0, 0)..=four(account, symbol, u64::MAX, u64::MAX)
}

/// Returns the second number of a key.
pub(super) fn second_of(key: Two) -> u64 {
    key.to_words()[1]
}

/// Returns the third number of a key.
pub(super) fn third_of(key: Three) -> u64 {
    key.to_words()[2]
}

/// Returns the trade that has bought or sold the shares of a holding first.
pub(super) fn trade_of(key: Four) -> u64 {
    key.to_words()[3]
}

pub(super) fn charge_key(kind: u64, tier: u64) -> u64 {
    kind << 8 | tier
}

/// Returns the key of the rate for quantities from this one on.
pub(super) fn commission_key(tier: u64, kind: u64, exchange: u64, quantity: u64) -> u64 {
    (tier << 16 | kind << 8 | exchange) << 32 | quantity.min(u64::from(u32::MAX))
}

/// Defines the tables: name, row, key, index, the expected number of rows, and the low bits in
/// which the first words of the keys of one leaf may differ.
macro_rules! tables {
    (($options:ident, $index:ident) $($name:ident: $row:ty, $key:ty, $with:expr, $rows:expr, $apart:expr;)*) => {
        /// The tables.
        #[derive(Debug)]
        pub(super) struct Schema {
            $(pub(super) $name: TypedTable<$row, $key>,)*
        }

        /// Returns the specifications. Tables that grow have an ordered index, because the
        /// check lists them. The user chooses that of most others.
        pub(super) fn specs($options: &TpceOptions, $index: IndexKind) -> Vec<TableSpec> {
            vec![$({
                let spec = TableSpec::of::<$row>(stringify!($name), $with, $rows as usize).keyed::<$key>();
                TableSpec { apart: $apart, ..spec }
            }),*]
        }

        impl Schema {
            pub(super) fn create<S: Tables>($options: &TpceOptions, $index: IndexKind, store: &S) -> Self {
                let mut specs = specs($options, $index).into_iter();
                let mut next = || specs.next().expect("a specification of each table");
                Schema { $($name: store.create_typed(&next()),)* }
            }
        }
    };
}

/// Any keys may stand in one leaf.
const TOGETHER: u32 = u64::BITS;
/// Each client appends rows in a range of its own, so that no client waits for another's leaf.
const BY_CLIENT: u32 = COUNT_BITS;
const ORDERED: IndexKind = IndexKind::Ordered;

tables! {
    (options, index)
    customer: Customer, u64, index, options.customers, TOGETHER;
    account_permission: AccountPermission, Two, index, accounts(options) * 3 / 2, TOGETHER;
    customer_account: CustomerAccount, u64, index, accounts(options), TOGETHER;
    broker: Broker, u64, index, brokers_of(options.customers), TOGETHER;
    security: Security, u64, index, options.securities, TOGETHER;
    security_by_company: Number, Two, index, options.securities, TOGETHER;
    company: Company, u64, index, companies_of(options.securities), TOGETHER;
    company_by_name: Number, CompanyName, index, companies_of(options.securities), TOGETHER;
    last_trade: LastTrade, u64, index, options.securities, TOGETHER;
    trade: Trade, u64, ORDERED, trades(options), BY_CLIENT;
    trade_by_account: Nothing, Three, ORDERED, trades(options), TOGETHER;
    trade_by_symbol: Nothing, Three, ORDERED, trades(options), TOGETHER;
    trade_history: TradeHistory, Two, ORDERED, trades(options) * 3, BY_CLIENT;
    trade_request: TradeRequest, Two, ORDERED, 1_024, TOGETHER;
    holding: Holding, Four, ORDERED, trades(options), TOGETHER;
    holding_summary: HoldingSummary, Two, ORDERED, accounts(options) * 10, TOGETHER;
    holding_history: HoldingHistory, Two, ORDERED, trades(options) * 2, BY_CLIENT;
    settlement: Settlement, u64, ORDERED, trades(options), BY_CLIENT;
    cash_transaction: CashTransaction, u64, ORDERED, trades(options), BY_CLIENT;
    trade_type: TradeType, u64, index, TRADE_TYPES, TOGETHER;
    status_type: Name, u64, index, STATUSES, TOGETHER;
    charge: Charge, u64, index, TRADE_TYPES * TIERS, TOGETHER;
    commission_rate: CommissionRate, u64, ORDERED, 240, TOGETHER;
    tax_rate: TaxRate, u64, index, TAX_RATES, TOGETHER;
    customer_taxrate: Number, Two, index, options.customers * 2, TOGETHER;
    exchange: Exchange, u64, index, EXCHANGES, TOGETHER;
}

/// The expected number of accounts.
fn accounts(options: &TpceOptions) -> u64 {
    options.customers * 5
}

/// The expected number of trades at the beginning.
fn trades(options: &TpceOptions) -> u64 {
    accounts(options) * options.trades
}

/// A security was traded. The last price counts, so this does not commute.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fed {
    pub(super) price: i64,
    pub(super) quantity: u64,
    pub(super) date: u64,
}

impl Update<LastTrade> for Fed {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(LastTrade::PRICE.group())
    }

    #[inline]
    fn apply(&self, last: &mut LastTrade) {
        (last.price, last.date) = (self.price, self.date);
        last.volume = last.volume.wrapping_add(self.quantity);
    }
}

/// A limit order goes to the market.
#[derive(Clone, Copy, Debug)]
pub(super) struct Submitted {
    pub(super) status: u64,
    pub(super) date: u64,
}

impl Update<Trade> for Submitted {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Trade::STATUS.group())
    }

    #[inline]
    fn apply(&self, trade: &mut Trade) {
        (trade.status, trade.date) = (self.status, self.date);
    }
}

/// A trade is completed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Completed {
    pub(super) status: u64,
    pub(super) date: u64,
    pub(super) price: i64,
    pub(super) commission: i64,
    pub(super) tax: i64,
}

impl Update<Trade> for Completed {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Trade::STATUS.group())
    }

    #[inline]
    fn apply(&self, trade: &mut Trade) {
        (trade.status, trade.date, trade.price) = (self.status, self.date, self.price);
        (trade.commission, trade.tax) = (self.commission, self.tax);
    }
}
