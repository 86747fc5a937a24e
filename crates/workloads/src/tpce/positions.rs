//! What an order and its result both need: the holdings that a trade uses up, and what it costs.

use std::ops::ControlFlow;

use contend_model::{Abort, Direction, Txn, Whole};

use super::generate::{COMPLETED, is_sell};
use super::schema::{
    CommissionRate, Completed, Four, Holding, Number, Schema, TaxRate, commission_key, holdings_of, two,
};

/// A holding that a trade uses up, or a part of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Used {
    pub(super) key: Four,
    pub(super) price: i64,
    pub(super) before: i64,
    pub(super) after: i64,
}

/// Returns the change of a position: above 0 for a purchase, and below for a sale.
pub(super) fn signed(kind: u64, quantity: u64) -> i64 {
    if is_sell(kind) { -(quantity as i64) } else { quantity as i64 }
}

/// Whether a trade closes a position, or a part of it: it sells shares that the account holds, or
/// buys shares that it owes.
pub(super) fn closes(held: i64, quantity: i64) -> bool {
    held.signum() == -quantity.signum()
}

/// Returns what is left of a holding, and of the quantity of a trade that uses it up.
pub(super) fn used_up(held: i64, quantity: i64) -> (i64, i64) {
    let sum = held.wrapping_add(quantity);
    if sum.signum() == held.signum() { (sum, 0) } else { (0, sum) }
}

/// Scans an account's holdings of a security, until a trade of this quantity has used up enough.
/// Returns what is left of the quantity.
pub(super) fn use_up<T: Txn>(
    tx: &mut T,
    tables: &Schema,
    used: &mut Vec<Used>,
    (account, symbol): (u64, u64),
    is_lifo: bool,
    quantity: i64,
) -> Result<i64, Abort> {
    used.clear();
    let mut rest = quantity;
    let direction = if is_lifo { Direction::Backward } else { Direction::Forward };
    let (range, columns) = (holdings_of(account, symbol), (Holding::PRICE, Holding::QUANTITY));
    tx.scan(&tables.holding, range, usize::MAX, direction, columns, |key, (price, before)| {
        let after;
        (after, rest) = used_up(before, rest);
        used.push(Used { key, price, before, after });
        if rest == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(rest)
}

/// Returns what the account gains by closing these holdings at a price.
pub(super) fn gain(used: &[Used], price: i64) -> i64 {
    let each = |used: &Used| used.before.wrapping_sub(used.after).wrapping_mul(price.wrapping_sub(used.price));
    used.iter().map(each).fold(0, i64::wrapping_add)
}

/// What a trade depends on beside its price.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) kind: u64,
    pub(super) quantity: u64,
    pub(super) charge: i64,
    pub(super) tax_status: u64,
    pub(super) rates: Rates,
}

/// The rate of a commission, and the sum of the rates of both taxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    pub(super) commission: i64,
    pub(super) tax: i64,
}

/// What a completed trade has cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Costs {
    pub(super) commission: i64,
    pub(super) tax: i64,
    /// What the account gets; below 0 for a purchase.
    pub(super) amount: i64,
}

impl Terms {
    /// Returns the costs at a price, if the account gains so much.
    pub(super) fn costs(&self, price: i64, gain: i64) -> Costs {
        let value = price.wrapping_mul(self.quantity as i64);
        let commission = value.wrapping_mul(self.rates.commission) / 10_000;
        let is_taxed = self.tax_status > 0 && gain > 0;
        let tax = if is_taxed { gain.wrapping_mul(self.rates.tax) / 10_000 } else { 0 };
        let amount = amount(self.kind, value, self.charge + commission, if self.tax_status == 1 { tax } else { 0 });
        Costs { commission, tax, amount }
    }
}

/// Returns what an account gets for a trade: below 0 for a purchase.
pub(super) fn amount(kind: u64, value: i64, fees: i64, withheld: i64) -> i64 {
    if is_sell(kind) { value.wrapping_sub(fees).wrapping_sub(withheld) } else { -value.wrapping_add(fees) }
}

impl Costs {
    /// Returns the update of a trade that has them.
    pub(super) fn completed(&self, price: i64, date: u64) -> Completed {
        Completed { status: COMPLETED, date, price, commission: self.commission, tax: self.tax }
    }
}

/// Reads the rates of a trade. `None` if a row is missing.
pub(super) fn read_rates<T: Txn>(
    tx: &mut T,
    tables: &Schema,
    (tier, kind, exchange): (u64, u64, u64),
    quantity: u64,
    customer: u64,
) -> Result<Option<Rates>, Abort> {
    let range = commission_key(tier, kind, exchange, 0)..=commission_key(tier, kind, exchange, quantity);
    let mut commission = None;
    let columns = (CommissionRate::RATE, CommissionRate::UP_TO);
    tx.scan(&tables.commission_rate, range, 1, Direction::Backward, columns, |_, (rate, up_to)| {
        commission = (quantity <= up_to).then_some(rate);
        ControlFlow::Break(())
    })?;
    let mut sum = 0;
    for which in 0..2 {
        let Some(Number { number }) = tx.read(&tables.customer_taxrate, two(customer, which), Whole)? else {
            return Ok(None);
        };
        let Some(rate) = tx.read(&tables.tax_rate, number, TaxRate::RATE)? else { return Ok(None) };
        sum += rate;
    }
    Ok(commission.map(|commission| Rates { commission, tax: sum }))
}
