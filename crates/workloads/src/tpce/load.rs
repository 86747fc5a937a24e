//! The rows at the beginning.
//!
//! All that a trade writes concerns one account, apart from the sums of brokers and the last
//! prices, which begin with nothing traded. So each customer is loaded by itself, and its trades
//! are replayed in the order of their dates. Their state is as if Trade-Order and Trade-Result had
//! run.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;

use contend_model::{Load, OutOfMemory};

use super::generate::{
    COMMISSIONS_FROM, COMPLETED, DATES_APART, EXCHANGE_NAMES, EXCHANGES, PENDING, STATUS_NAMES, SUBMITTED, TAX_RATES,
    TIERS, TRADE_TYPE_NAMES, account_number, accounts_of, broker_of, brokers_of, charge_of, commission_of,
    company_name, company_of, customer_of, digits, draw_bid, draw_kind, draw_quantity, exchange_of, first_name,
    is_market, is_sell, issue_of, last_name, loaded_trade, opening_balance, others_permitted, permission_key,
    permitted, price_at, securities_of, security_name, security_of, shares_of, tax_id_of, tax_of, tax_rate,
    tax_status_of, text, tier_of,
};
use super::positions::{Rates, Terms, Used, gain, signed, used_up};
use super::results::{cash_name, settlement_kind};
use super::schema::{
    AccountPermission, Broker, CashTransaction, Charge, CommissionRate, Company, Customer, CustomerAccount, Exchange,
    Holding, HoldingHistory, HoldingSummary, LastTrade, Name, Nothing, Number, Schema, Security, Settlement, TaxRate,
    Trade, TradeHistory, TradeType, charge_key, commission_key, four, three, two,
};
use super::{Tpce, TpceOptions};
use crate::loading::{load_in_steps, put};
use crate::random::Random;

const LOAD_STEP: u64 = 16;

/// Returns the number of units: customers, securities, and one for all small tables.
pub(super) fn units(options: &TpceOptions) -> u64 {
    options.customers + options.securities + 1
}

pub(super) fn load<L: Load>(
    tpce: &Tpce,
    loader: &mut L,
    part: usize,
    parts: usize,
    done: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), OutOfMemory> {
    let (options, tables) = (&tpce.options, &tpce.tables);
    load_in_steps(units(options), part, parts, LOAD_STEP, done, |mut units| {
        units.try_for_each(|unit| match unit.checked_sub(options.customers) {
            None => load_customer(options, tables, loader, unit + 1),
            Some(symbol) if symbol < options.securities => load_security(tables, loader, symbol),
            Some(_) => load_small_tables(options, tables, loader),
        })
    })
}

fn load_small_tables<L: Load>(options: &TpceOptions, tables: &Schema, loader: &mut L) -> Result<(), OutOfMemory> {
    for broker in 1..=brokers_of(options.customers) {
        let name = text(&[b"Broker ", &digits(broker)]);
        put(loader, &tables.broker, broker, Broker { name, num_trades: 0, commission: 0 })?;
    }
    for (status, name) in (0..).zip(STATUS_NAMES) {
        put(loader, &tables.status_type, status, Name { name: text(&[name.as_bytes()]) })?;
    }
    for (exchange, name) in (0..).zip(EXCHANGE_NAMES) {
        let row = Exchange { name: text(&[name.as_bytes()]), opens: 930, closes: 1600 };
        put(loader, &tables.exchange, exchange, row)?;
    }
    for tax in 0..TAX_RATES {
        let name = text(&[b"Tax ", &digits(tax)]);
        put(loader, &tables.tax_rate, tax, TaxRate { name, rate: tax_rate(tax) })?;
    }
    for (kind, name) in (0..).zip(TRADE_TYPE_NAMES) {
        let (is_sell, is_market) = (u32::from(is_sell(kind)), u32::from(is_market(kind)));
        let row = TradeType { name: text(&[name.as_bytes()]), is_sell, is_market };
        put(loader, &tables.trade_type, kind, row)?;
        for tier in 1..=TIERS {
            put(loader, &tables.charge, charge_key(kind, tier), Charge { charge: charge_of(kind, tier) })?;
            for exchange in 0..EXCHANGES {
                for (range, from) in COMMISSIONS_FROM.into_iter().enumerate() {
                    let up_to = COMMISSIONS_FROM.get(range + 1).map_or(u64::MAX, |next| next - 1);
                    let row = CommissionRate { up_to, rate: commission_of(tier, kind, exchange, range as u64) };
                    put(loader, &tables.commission_rate, commission_key(tier, kind, exchange, from), row)?;
                }
            }
        }
    }
    Ok(())
}

/// Loads a security, and its company if it is the first of the company's.
fn load_security<L: Load>(tables: &Schema, loader: &mut L, symbol: u64) -> Result<(), OutOfMemory> {
    let (company, issue) = (company_of(symbol), issue_of(symbol));
    let row = Security {
        symbol: text(&[b"S", &digits(symbol)]),
        name: security_name(symbol),
        exchange: exchange_of(symbol),
        company,
        issue,
        num_out: shares_of(symbol),
    };
    put(loader, &tables.security, symbol, row)?;
    put(loader, &tables.security_by_company, two(company, issue), Number { number: symbol })?;
    if issue == 0 {
        let name = company_name(company);
        put(loader, &tables.company, company, Company { name, description: [b'd'; 104] })?;
        put(loader, &tables.company_by_name, name, Number { number: company })?;
    }
    let price = price_at(symbol, 0);
    put(loader, &tables.last_trade, symbol, LastTrade { open: price, price, volume: 0, date: 0 })
}

fn load_customer<L: Load>(
    options: &TpceOptions,
    tables: &Schema,
    loader: &mut L,
    customer: u64,
) -> Result<(), OutOfMemory> {
    let tier = tier_of(customer);
    let (last_name, first_name) = (last_name(customer), first_name(customer));
    let e_mail = text(&[&first_name, b"@mail.com"]);
    let row = Customer { tier, tax_id: tax_id_of(customer), last_name, first_name, e_mail, born: customer % 80 + 1920 };
    put(loader, &tables.customer, customer, row)?;
    for which in 0..2 {
        put(loader, &tables.customer_taxrate, two(customer, which), Number { number: tax_of(customer, which) })?;
    }
    for place in 0..accounts_of(customer) {
        load_account(options, tables, loader, account_number(customer, place))?;
    }
    Ok(())
}

fn load_account<L: Load>(
    options: &TpceOptions,
    tables: &Schema,
    loader: &mut L,
    account: u64,
) -> Result<(), OutOfMemory> {
    let TpceOptions { customers, .. } = *options;
    let row = CustomerAccount {
        broker: broker_of(account, customers),
        customer: customer_of(account),
        tax_status: tax_status_of(account),
        name: text(&[b"Account ", &digits(account)]),
        balance: opening_balance(account),
    };
    put(loader, &tables.customer_account, account, row)?;
    for number in 0..=others_permitted(account) {
        let person = permitted(account, number, customers);
        let row =
            AccountPermission { acl: *b"0011\0\0\0\0", last_name: last_name(person), first_name: first_name(person) };
        // Of few customers a person may come twice.
        put(loader, &tables.account_permission, permission_key(account, person), row)?;
    }
    load_trades(options, tables, loader, account)
}

/// A holding while the trades are replayed: its first trade with its date, price and quantity.
type Held = (u64, u64, i64, i64);

/// Replays the trades of an account, all of which are completed.
fn load_trades<L: Load>(
    options: &TpceOptions,
    tables: &Schema,
    loader: &mut L,
    account: u64,
) -> Result<(), OutOfMemory> {
    let random = &mut Random::new(0x5450_4345, account);
    let mut held: BTreeMap<u64, VecDeque<Held>> = BTreeMap::new();
    for nth in 0..options.trades {
        let date = nth * DATES_APART + random.uniform(1, DATES_APART - 2);
        let symbol = security_of(account, random.uniform(0, securities_of(account) - 1), options.securities);
        let (kind, quantity) = (draw_kind(random), draw_quantity(random));
        let order = Trade {
            symbol,
            account,
            kind,
            quantity,
            bid: draw_bid(random),
            charge: charge_of(kind, tier_of(customer_of(account))),
            ordered: date,
            is_cash: u32::from(!random.happens(0.08)),
            is_lifo: u32::from(random.happens(0.35)),
            status: COMPLETED,
            date: date + 1,
            price: price_at(symbol, date),
            commission: 0,
            tax: 0,
            executor: text(&[&first_name(customer_of(account)), b" ", &last_name(customer_of(account))]),
        };
        let number = loaded_trade(account, nth, options.trades);
        load_trade(tables, loader, number, order, held.entry(symbol).or_default())?;
    }
    for (symbol, held) in held {
        let quantity: i64 = held.iter().map(|&(.., quantity)| quantity).sum();
        if quantity != 0 {
            put(loader, &tables.holding_summary, two(account, symbol), HoldingSummary { quantity })?;
        }
        for (trade, date, price, quantity) in held {
            put(loader, &tables.holding, four(account, symbol, date, trade), Holding { price, quantity })?;
        }
    }
    Ok(())
}

/// Loads a completed trade with all that belongs to it. Changes what the account holds of its
/// security.
fn load_trade<L: Load>(
    tables: &Schema,
    loader: &mut L,
    number: u64,
    order: Trade,
    held: &mut VecDeque<Held>,
) -> Result<(), OutOfMemory> {
    let Trade { symbol, account, kind, quantity, price, ordered, .. } = order;
    let history = |trade, before, after| (two(number, trade), HoldingHistory { before, after });
    let (mut rest, mut used) = (signed(kind, quantity), Vec::new());
    while rest != 0 {
        let last = if order.is_lifo != 0 { held.back_mut() } else { held.front_mut() };
        let Some((trade, date, price, before)) = last.filter(|held| held.3.signum() == -rest.signum()) else { break };
        let (after, left) = used_up(*before, rest);
        let (key, row) = history(*trade, *before, after);
        put(loader, &tables.holding_history, key, row)?;
        used.push(Used { key: four(account, symbol, *date, *trade), price: *price, before: *before, after });
        (*before, rest) = (after, left);
        if after == 0 {
            _ = if order.is_lifo != 0 { held.pop_back() } else { held.pop_front() };
        }
    }
    if rest != 0 {
        held.push_back((number, ordered + 1, price, rest));
        let (key, row) = history(number, 0, rest);
        put(loader, &tables.holding_history, key, row)?;
    }
    let (customer, exchange) = (customer_of(account), exchange_of(symbol));
    let range = COMMISSIONS_FROM.iter().filter(|from| **from <= quantity).count() as u64 - 1;
    let rates = Rates {
        commission: commission_of(tier_of(customer), kind, exchange, range),
        tax: (0..2).map(|which| tax_rate(tax_of(customer, which))).sum(),
    };
    let terms = Terms { kind, quantity, charge: order.charge, tax_status: tax_status_of(account), rates };
    let costs = terms.costs(price, gain(&used, price));
    let row = Trade { commission: costs.commission, tax: costs.tax, ..order };
    put(loader, &tables.trade, number, row)?;
    put(loader, &tables.trade_by_account, three(account, ordered, number), Nothing {})?;
    put(loader, &tables.trade_by_symbol, three(symbol, ordered, number), Nothing {})?;
    let is_limit = !is_market(kind);
    for status in [is_limit.then_some(PENDING), Some(SUBMITTED), Some(COMPLETED)].into_iter().flatten() {
        let date = ordered + u64::from(status == COMPLETED);
        put(loader, &tables.trade_history, two(number, status), TradeHistory { date })?;
    }
    let (is_cash, amount, date) = (order.is_cash != 0, costs.amount, ordered + 1);
    put(loader, &tables.settlement, number, Settlement { kind: settlement_kind(is_cash), due: date + 2, amount })?;
    if is_cash {
        let kind = text(&[TRADE_TYPE_NAMES[kind as usize].as_bytes()]);
        let row = CashTransaction { amount, date, name: cash_name(&kind, quantity, &security_name(symbol)) };
        put(loader, &tables.cash_transaction, number, row)?;
    }
    Ok(())
}
