//! Order-Status: reads the state of a customer's last order (clause 2.6).

use std::ops::ControlFlow;

use contend_model::{Abort, Direction, Txn, Whole};

use super::schema::{
    Customer, DISTRICTS, Nothing, Order, OrderLine, customer_key, customer_order_key, district_key, line_key,
    order_key, order_number,
};
use super::{Client, Faults, NamedBy, Tpcc};

/// An Order-Status's parameters.
#[derive(Debug)]
pub struct Input {
    /// The key of the customer's district.
    pub(super) district: u64,
    named_by: NamedBy,
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_order_status(&self, client: &mut Client) -> Input {
        let warehouse = self.home(client);
        let district = district_key(warehouse, client.random.uniform(1, DISTRICTS));
        Input { district, named_by: self.draw_customer(&mut client.random) }
    }

    pub(super) fn order_status<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let tables = &self.tables;
        let number = self.identify(tx, &mut client.scratch.names, input.district, input.named_by)?;
        let Some(number) = number else {
            client.suspicion = Some(format!("Order-Status found no customer {:?}", input.named_by));
            return Ok(());
        };
        let key = customer_key(input.district, number);
        let columns = (Customer::FIRST, Customer::MIDDLE, Customer::LAST, Customer::BALANCE);
        let Some(customer) = tx.read(&tables.customer, key, columns)? else { return Err(tx.cancel()) };
        let mut last = None;
        let orders = customer_order_key(key, 0)..=customer_order_key(key, u64::from(u32::MAX));
        tx.scan(&tables.order_by_customer, orders, 1, Direction::Backward, Whole, |key, Nothing {}| {
            last = Some(order_number(key));
            ControlFlow::Break(())
        })?;
        let Some(last) = last else {
            client.suspicion = Some(format!("Order-Status found no order of customer {key}"));
            return Ok(());
        };
        let order = order_key(input.district, last);
        let columns = (Order::ENTRY_D, Order::CARRIER, Order::OL_CNT);
        let Some((entry_d, carrier, count)) = tx.read(&tables.order, order, columns)? else { return Err(tx.cancel()) };
        let columns = (
            OrderLine::ITEM,
            OrderLine::SUPPLY_WAREHOUSE,
            OrderLine::QUANTITY,
            OrderLine::AMOUNT,
            OrderLine::DELIVERY_D,
        );
        let (mut shown, mut delivered) = (0i64, 0);
        let range = line_key(order, 0)..=line_key(order, 15);
        let lines = tx.scan(
            &tables.order_line,
            range,
            usize::MAX,
            Direction::Forward,
            columns,
            |_, (_, _, _, amount, date)| {
                shown = shown.wrapping_add(amount);
                delivered += usize::from(date != 0);
                ControlFlow::Continue(())
            },
        )?;
        self.suspect_lines(client, order, lines, count);
        if delivered != if carrier == 0 { 0 } else { lines } {
            client.suspicion =
                Some(format!("order {order} has carrier {carrier}, and {delivered} of {lines} lines delivered"));
        }
        std::hint::black_box((customer, entry_d, shown));
        Ok(())
    }

    /// Notes a suspicion if the order has not as many lines as it says, or not 5 to 15. STO's TPC-C
    /// was seen to violate this (nathanielherman/sto#16).
    pub(super) fn suspect_lines(&self, client: &mut Client, order: u64, lines: usize, count: u16) {
        if lines != usize::from(count) || !(5..=15).contains(&lines) {
            client.suspicion = Some(format!("order {order} has {lines} lines, and says {count}"));
        }
    }
}
