//! The updates that change rows without reading them.
//!
//! [`Paid`] consists of additions, and so commutes. The other two do not, and are applied in the
//! order of the commits.

use contend_model::{Groups, Update};

use super::schema::{Customer, Stock};

/// New-Order takes a quantity from a stock (clause 2.4.2.2).
///
/// The update does not commute: a quantity below 10 is filled up by 91, and a quantity that is
/// filled up earlier may end elsewhere. In the benchmark's own ranges the order does not matter
/// (stocks of 10 to 100, orders of 1 to 10: there the result is fixed by its remainder modulo 91).
/// But [`Update::commutes`] promises it for any row and any operand, such as an order of 200.
#[derive(Clone, Copy, Debug, Default)]
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
///
/// The update commutes: each of its three columns is changed by an addition that wraps around, and
/// so are they by all others of the group that commute (Delivery's).
#[derive(Clone, Copy, Debug, Default)]
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

    #[inline(always)]
    fn commutes(&self) -> bool {
        true
    }
}

/// The note of a payment by a customer of bad credit. The customer, the place and the amount are
/// written to the front of C_DATA, and its end is cut off (clause 2.5.2.2).
///
/// The note is an update of its own beside [`Paid`]. One update of both groups would not commute,
/// and then the balances would be no sums either.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NotedBadCredit {
    pub(crate) customer: u64,
    /// The district in which the customer pays.
    pub(crate) district: u64,
    pub(crate) amount: i64,
}

impl Update<Customer> for NotedBadCredit {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(Customer::DATA.group())
    }

    fn apply(&self, customer: &mut Customer) {
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
            NotedBadCredit { customer: 7, district: 9, amount }.apply(customer);
        }
        assert_eq!((customer.balance, customer.payment_cnt), (0, 0), "another update pays");
        assert_eq!(customer.data[16..24], 30i64.to_be_bytes());
        assert_eq!(customer.data[40..48], 29i64.to_be_bytes());
        assert_eq!(customer.data[496..500], [0, 0, 0, 0], "the oldest is cut off");
    }

    #[test]
    fn payments_and_deliveries_commute() {
        let delivered = (Customer::BALANCE.add(i64::MAX), Customer::DELIVERY_CNT.add(1));
        let payments = [Paid { amount: 7 }, Paid { amount: i64::MIN }];
        assert!(payments[0].commutes() && delivered.commutes());
        let mut both = [vec![u64::MAX; Customer::WORDS], vec![u64::MAX; Customer::WORDS]];
        let [first, second] = both.each_mut().map(|words| Customer::from_words_mut(words));
        payments.iter().for_each(|paid| paid.apply(first));
        delivered.apply(first);
        delivered.apply(second);
        payments.iter().rev().for_each(|paid| paid.apply(second));
        assert_eq!(both[0], both[1]);
    }

    #[test]
    fn orders_of_any_size_do_not_commute() {
        let orders = [Ordered { quantity: 200, remote: false }, Ordered { quantity: 1, remote: false }];
        assert!(!orders[0].commutes());
        let left = |order: [usize; 2]| {
            let mut words = vec![0; Stock::WORDS];
            let stock = Stock::from_words_mut(&mut words);
            stock.quantity = 100;
            order.into_iter().for_each(|number| orders[number].apply(stock));
            stock.quantity
        };
        assert_ne!(left([0, 1]), left([1, 0]));
    }
}
