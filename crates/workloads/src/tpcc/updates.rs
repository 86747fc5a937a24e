//! The updates that change rows without reading them. All of them commute except those of C_DATA,
//! which apply in commit order.

use contend_model::{Groups, Update};

use super::schema::{Customer, Stock};

/// New-Order takes a quantity from a stock (clause 2.4.2.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ordered {
    pub(crate) quantity: u32,
    pub(crate) remote: bool,
}

impl Update<Stock> for Ordered {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Stock::QUANTITY.group())
    }

    #[inline]
    fn apply(&self, stock: &mut Stock) {
        let left = stock.quantity.wrapping_sub(self.quantity as i32);
        stock.quantity = if left >= 10 { left } else { left.wrapping_add(91) };
        stock.ytd = stock.ytd.wrapping_add(self.quantity);
        stock.order_cnt = stock.order_cnt.wrapping_add(1);
        stock.remote_cnt = stock.remote_cnt.wrapping_add(u32::from(self.remote));
    }
}

/// A customer's payment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paid {
    pub(crate) amount: i64,
}

impl Update<Customer> for Paid {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Customer::BALANCE.group())
    }

    #[inline]
    fn apply(&self, customer: &mut Customer) {
        customer.balance = customer.balance.wrapping_sub(self.amount);
        customer.ytd_payment = customer.ytd_payment.wrapping_add(self.amount);
        customer.payment_cnt = customer.payment_cnt.wrapping_add(1);
    }
}

/// A payment by a customer of bad credit. The customer, the place and the amount are written to the
/// front of C_DATA, and its end is cut off (clause 2.5.2.2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct PaidOnBadCredit {
    pub(crate) customer: u64,
    /// The district in which the customer pays.
    pub(crate) district: u64,
    pub(crate) amount: i64,
}

impl Update<Customer> for PaidOnBadCredit {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Customer::BALANCE.group()).union(Groups::of(Customer::DATA.group()))
    }

    fn apply(&self, customer: &mut Customer) {
        Paid { amount: self.amount }.apply(customer);
        const ENTRY: usize = 24;
        customer.data.copy_within(..500 - ENTRY, ENTRY);
        customer.data[..8].copy_from_slice(&self.customer.to_be_bytes());
        customer.data[8..16].copy_from_slice(&self.district.to_be_bytes());
        customer.data[16..ENTRY].copy_from_slice(&self.amount.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_engine::Row;

    #[test]
    fn a_stock_that_runs_low_is_filled_up() {
        let mut words = vec![0; Stock::WORDS];
        let stock = Stock::from_words_mut(&mut words);
        stock.quantity = 20;
        Ordered { quantity: 10, remote: false }.apply(stock);
        assert_eq!((stock.quantity, stock.ytd, stock.order_cnt, stock.remote_cnt), (10, 10, 1, 0));
        Ordered { quantity: 1, remote: true }.apply(stock);
        assert_eq!((stock.quantity, stock.ytd, stock.order_cnt, stock.remote_cnt), (100, 11, 2, 1));
    }

    #[test]
    fn bad_credit_is_written_down_in_front() {
        let mut words = vec![0; Customer::WORDS];
        let customer = Customer::from_words_mut(&mut words);
        for amount in 1..=30 {
            PaidOnBadCredit { customer: 7, district: 9, amount }.apply(customer);
        }
        assert_eq!((customer.balance, customer.payment_cnt), (-465, 30));
        assert_eq!(customer.data[16..24], 30i64.to_be_bytes());
        assert_eq!(customer.data[40..48], 29i64.to_be_bytes());
        assert_eq!(customer.data[496..500], [0, 0, 0, 0], "the oldest is cut off");
    }
}
