//! Delivery: delivers the oldest new order of each district (clause 2.7).

use std::ops::ControlFlow;

use contend_model::{Abort, Direction, Txn, Whole};

use super::schema::{
    Customer, DISTRICTS, Nothing, Order, OrderLine, customer_key, district_key, line_key, order_key, order_number,
};
use super::{Client, Faults, Tpcc};

/// A Delivery's parameters.
#[derive(Debug)]
pub struct Input {
    pub(super) warehouse: u64,
    carrier: u64,
    date: u64,
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_delivery(&self, client: &mut Client) -> Input {
        Input { warehouse: self.home(client), carrier: client.random.uniform(1, 10), date: client.clock }
    }

    pub(super) fn delivery<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        client.books.delivering.clear();
        for district in 1..=DISTRICTS {
            self.deliver(tx, client, input, district_key(input.warehouse, district))?;
        }
        Ok(())
    }

    /// Delivers the oldest new order of a district, if there is one.
    fn deliver<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input, district: u64) -> Result<(), Abort> {
        let tables = &self.tables;
        // Orders are delivered by ascending number, so none is left below those that this client
        // has delivered. Starting there, the scan skips the tombstones of earlier orders.
        let first = client.oldest_new_orders[Self::district_position(district)];
        let range = order_key(district, first)..=order_key(district, u64::from(u32::MAX));
        let limit = if F::SKIP_OLDEST_ORDER { 2 } else { 1 };
        let mut oldest = None;
        tx.scan(&tables.new_order, range, limit, Direction::Forward, Whole, |key, Nothing {}| {
            oldest = Some(order_number(key));
            ControlFlow::Continue(())
        })?;
        let Some(number) = oldest else { return Ok(()) };
        let order = order_key(district, number);
        if !tx.delete(&tables.new_order, order)? {
            return Err(tx.cancel());
        }
        let Some((customer, count)) = tx.read(&tables.order, order, (Order::CUSTOMER, Order::OL_CNT))? else {
            return Err(tx.cancel());
        };
        tx.update(&tables.order, order, Order::CARRIER.set(input.carrier))?;
        let keys = &mut client.scratch.keys;
        keys.clear();
        keys.extend((1..=u64::from(count.min(15))).map(|line| line_key(order, line)));
        let (mut total, mut lines) = (0i64, 0);
        tx.modify_many(&tables.order_line, keys, (OrderLine::AMOUNT, OrderLine::DELIVERY_D), |_, line| {
            if let Some((amount, delivered)) = line {
                *delivered = input.date;
                lines += 1;
                total = total.wrapping_add(*amount);
            }
        })?;
        self.suspect_lines(client, order, lines, count);
        let updates = (Customer::BALANCE.add(total), Customer::DELIVERY_CNT.add(1));
        if !tx.update(&tables.customer, customer_key(district, u64::from(customer)), updates)? {
            client.suspicion = Some(format!("Delivery found no customer {customer} of order {order}"));
        }
        client.books.delivering.push((district, number));
        Ok(())
    }
}
