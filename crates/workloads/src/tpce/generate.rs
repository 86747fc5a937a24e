//! The population as functions of numbers: which accounts a customer has, what they trade, and at
//! which rates.
//!
//! These are functions, and not rows, because the loader and the clients need the same answers. All
//! proportions are the standard's, as it states them in prose. The values of names, rates and
//! charges are made up.

use contend_model::Key;
use contend_model::random::below;

use super::schema::{Two, two};
use crate::random::Random;

/// The types of trades. In this order: market buy, market sell, stop loss, limit sell, limit buy.
pub(super) const TRADE_TYPES: u64 = 5;
pub(super) const MARKET_BUY: u64 = 0;
pub(super) const MARKET_SELL: u64 = 1;
pub(super) const STOP_LOSS: u64 = 2;
pub(super) const LIMIT_SELL: u64 = 3;
pub(super) const LIMIT_BUY: u64 = 4;
pub(super) const TRADE_TYPE_NAMES: [&str; 5] = ["Market-Buy", "Market-Sell", "Stop-Loss", "Limit-Sell", "Limit-Buy"];

/// The states of trades. No transaction here activates or cancels one.
pub(super) const STATUSES: u64 = 5;
pub(super) const PENDING: u64 = 1;
pub(super) const SUBMITTED: u64 = 2;
pub(super) const COMPLETED: u64 = 3;
pub(super) const STATUS_NAMES: [&str; 5] = ["Active", "Pending", "Submitted", "Completed", "Canceled"];

pub(super) const TIERS: u64 = 3;
pub(super) const EXCHANGES: u64 = 4;
pub(super) const EXCHANGE_NAMES: [&str; 4] = ["NYSE", "NASDAQ", "AMEX", "PCX"];
/// Rates of taxes. The first half are those of countries, and the others those of their divisions.
pub(super) const TAX_RATES: u64 = 320;
/// The smallest quantity of each range that has a commission rate of its own.
pub(super) const COMMISSIONS_FROM: [u64; 4] = [1, 201, 401, 601];
/// The quantities that are traded.
pub(super) const QUANTITIES: [u64; 4] = [100, 200, 400, 800];

/// The most accounts of a customer. The number of an account is ten times that of its customer, and
/// its own place.
pub(super) const ACCOUNTS_MAX: u64 = 10;
/// The most securities in which an account trades, and the fewest.
const HELD: std::ops::RangeInclusive<u64> = 1..=18;

/// Prices move between these two.
pub(super) const LOWEST: i64 = 2_000;
pub(super) const HIGHEST: i64 = 3_000;

/// Dates between two loaded trades of one account.
pub(super) const DATES_APART: u64 = 1_000;

pub(super) fn is_sell(kind: u64) -> bool {
    matches!(kind, MARKET_SELL | STOP_LOSS | LIMIT_SELL)
}

pub(super) fn is_market(kind: u64) -> bool {
    matches!(kind, MARKET_BUY | MARKET_SELL)
}

/// Returns a number below `bound` that depends on two others. `salt` tells what it is for.
fn pick(salt: u64, first: u64, second: u64, bound: u64) -> u64 {
    let mixed = |word: u64| contend_model::random::mix(word.wrapping_add(contend_model::random::GOLDEN_GAMMA));
    below(mixed(Key::hash(two(first ^ salt << 56, second))), bound)
}

/// Returns a customer's tier: 1 of a fifth of the customers, 2 of three fifths, 3 of a fifth.
pub(super) fn tier_of(customer: u64) -> u64 {
    match pick(1, customer, 0, 10) {
        0 | 1 => 1,
        2..=7 => 2,
        _ => 3,
    }
}

/// Returns the number of a customer's accounts: five on average, and more of a higher tier.
pub(super) fn accounts_of(customer: u64) -> u64 {
    let (fewest, most) = [(1, 4), (2, 8), (5, ACCOUNTS_MAX)][tier_of(customer) as usize - 1];
    fewest + pick(2, customer, 0, most - fewest + 1)
}

pub(super) fn account_number(customer: u64, place: u64) -> u64 {
    customer * ACCOUNTS_MAX + place
}

/// Returns the customer of an account.
pub(super) fn customer_of(account: u64) -> u64 {
    account / ACCOUNTS_MAX
}

pub(super) fn tax_id_of(customer: u64) -> u64 {
    1_000_000_000 + customer
}

/// Returns whether the taxes of an account are none (0; one account in five), withheld (1; half of
/// them), or paid later (2).
pub(super) fn tax_status_of(account: u64) -> u64 {
    match pick(3, account, 0, 10) {
        0 | 1 => 0,
        2..=6 => 1,
        _ => 2,
    }
}

/// Returns the number of brokers: one for a hundred customers.
pub(super) fn brokers_of(customers: u64) -> u64 {
    (customers / 100).max(1)
}

pub(super) fn broker_of(account: u64, customers: u64) -> u64 {
    1 + pick(4, account, 0, brokers_of(customers))
}

/// Returns the number of persons, beside the owner, with the permission to trade for an account:
/// none in three cases of five, two in one of fifty.
pub(super) fn others_permitted(account: u64) -> u64 {
    match pick(5, account, 0, 100) {
        0..=59 => 0,
        60..=97 => 1,
        _ => 2,
    }
}

/// Returns a person with the permission to trade for an account, as a customer. Number 0 is the
/// owner.
pub(super) fn permitted(account: u64, number: u64, customers: u64) -> u64 {
    (customer_of(account) - 1 + number) % customers + 1
}

/// Returns the balance of an account at the beginning.
pub(super) fn opening_balance(account: u64) -> i64 {
    100_000_000 + pick(6, account, 0, 1_000_000) as i64
}

/// Returns the number of securities in which an account trades.
pub(super) fn securities_of(account: u64) -> u64 {
    HELD.start() + pick(7, account, 0, HELD.end() - HELD.start() + 1)
}

/// Returns the security at a place among those in which an account trades. Two places may have the
/// same.
pub(super) fn security_of(account: u64, place: u64, securities: u64) -> u64 {
    pick(8, account, place, securities)
}

/// Returns the number of companies: 500 for 685 securities.
pub(super) fn companies_of(securities: u64) -> u64 {
    company_of(securities - 1) + 1
}

pub(super) fn company_of(symbol: u64) -> u64 {
    symbol * 500 / 685
}

/// Returns the place of a security among those of its company.
pub(super) fn issue_of(symbol: u64) -> u64 {
    (0..symbol).rev().take_while(|earlier| company_of(*earlier) == company_of(symbol)).count() as u64
}

pub(super) fn exchange_of(symbol: u64) -> u64 {
    pick(9, symbol, 0, EXCHANGES)
}

pub(super) fn shares_of(symbol: u64) -> u64 {
    4_000_000 + pick(10, symbol, 0, 9_500_000_000)
}

/// Returns the tax of a customer's country (0) or of its division (1).
pub(super) fn tax_of(customer: u64, which: u64) -> u64 {
    which * TAX_RATES / 2 + pick(11, customer, which, TAX_RATES / 2)
}

pub(super) fn tax_rate(tax: u64) -> i64 {
    500 + tax as i64 % (TAX_RATES as i64 / 2) * 10
}

/// Returns the charge for a trade: less for a higher tier, and more for a limit order.
pub(super) fn charge_of(kind: u64, tier: u64) -> i64 {
    let base = if is_market(kind) { 300 } else { 500 };
    base + 200 * (TIERS - tier) as i64
}

/// Returns the rate of the commission for one of the ranges of quantities: less for a higher tier,
/// and for more shares.
pub(super) fn commission_of(tier: u64, kind: u64, exchange: u64, range: u64) -> i64 {
    let limit = if is_market(kind) { 0 } else { 10 };
    10 + 15 * (TIERS - tier) as i64 + 4 * exchange as i64 + limit - 2 * range as i64
}

/// Returns the price of a security at a date: a wave between [`LOWEST`] and [`HIGHEST`] that goes
/// up as far as down. All clients see the same market.
pub(super) fn price_at(symbol: u64, date: u64) -> i64 {
    let height = (HIGHEST - LOWEST) as u64;
    let phase = date.wrapping_add(symbol * 997) % (2 * height);
    LOWEST + phase.min(2 * height - phase) as i64
}

/// Draws a customer. One of a higher tier trades more often, in proportion to its tier.
pub(super) fn draw_customer(random: &mut Random, customers: u64) -> u64 {
    loop {
        let customer = random.uniform(1, customers);
        if random.uniform(1, TIERS) <= tier_of(customer) {
            return customer;
        }
    }
}

/// Draws an account of a customer that is drawn.
pub(super) fn draw_account(random: &mut Random, customers: u64) -> u64 {
    let customer = draw_customer(random, customers);
    account_number(customer, random.uniform(0, accounts_of(customer) - 1))
}

/// Draws a number below `bound`, some more often than others, as the standard does: by the bits
/// that one of two uniform draws has.
pub(super) fn draw_non_uniform(random: &mut Random, bound: u64) -> u64 {
    let mask = (bound / 8).next_power_of_two() - 1;
    random.nurand(mask, 0, 0, bound - 1)
}

/// Draws the type of a trade. Three in five are at the market's price, and half of all buy. Half of
/// the limited sales limit a loss.
pub(super) fn draw_kind(random: &mut Random) -> u64 {
    let (is_market, is_buy) = (random.happens(0.6), random.happens(0.5));
    match (is_market, is_buy) {
        (true, true) => MARKET_BUY,
        (true, false) => MARKET_SELL,
        (false, true) => LIMIT_BUY,
        (false, false) if random.happens(0.5) => STOP_LOSS,
        (false, false) => LIMIT_SELL,
    }
}

pub(super) fn draw_quantity(random: &mut Random) -> u64 {
    QUANTITIES[random.uniform(0, 3) as usize]
}

/// Draws the price of a limit order. Each is met by the market again and again.
pub(super) fn draw_bid(random: &mut Random) -> i64 {
    random.uniform(LOWEST as u64 + 1, HIGHEST as u64 - 1) as i64
}

/// Whether a limit order of this type goes to the market at a price.
pub(super) fn is_triggered(kind: u64, bid: i64, price: i64) -> bool {
    match kind {
        LIMIT_SELL => price >= bid,
        STOP_LOSS | LIMIT_BUY => price <= bid,
        _ => false,
    }
}

/// The key of a loaded trade: which account's, and the how manieth.
pub(super) fn loaded_trade(account: u64, nth: u64, trades: u64) -> u64 {
    account * trades + nth
}

/// Returns the parts one after the other, and zeros behind them. What does not fit is cut off.
pub(super) fn text<const LENGTH: usize>(parts: &[&[u8]]) -> [u8; LENGTH] {
    let (mut text, mut used) = ([0; LENGTH], 0);
    for part in parts {
        let part = &part[..part.iter().position(|byte| *byte == 0).unwrap_or(part.len())];
        let room = part.len().min(LENGTH - used);
        text[used..used + room].copy_from_slice(&part[..room]);
        used += room;
    }
    text
}

/// Returns a number in six digits.
pub(super) fn digits(number: u64) -> [u8; 6] {
    let mut digits = [b'0'; 6];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    digits
}

pub(super) fn last_name(customer: u64) -> [u8; 16] {
    text(&[b"Last", &digits(customer)])
}

pub(super) fn first_name(customer: u64) -> [u8; 16] {
    text(&[b"First", &digits(customer)])
}

pub(super) fn company_name(company: u64) -> [u8; 24] {
    text(&[b"Company ", &digits(company)])
}

pub(super) fn security_name(symbol: u64) -> [u8; 32] {
    text(&[b"Common of ", &company_name(company_of(symbol)), b" ", &digits(issue_of(symbol))[5..]])
}

/// The key of a person's permission to trade for an account.
pub(super) fn permission_key(account: u64, person: u64) -> Two {
    two(account, tax_id_of(person))
}
