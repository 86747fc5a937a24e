//! Delivery: delivers the oldest new order of each district (clause 2.7).
//!
//! The transaction goes by tables, not by districts: it takes ten new orders, then changes ten
//! orders, then their lines, then their customers. So each table is one piece.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Direction, Txn, Whole};

use super::order_status::wrong_lines;
use super::schema::{
    Customer, DISTRICTS, Nothing, Order, OrderLine, Schema, customer_key, district_key, line_key, order_key,
    order_number,
};
use super::{Client, Faults, Scratch, Tpcc};

const OLDEST: Piece = Piece::new(0, "oldest");
const ORDERS: Piece = Piece::new(1, "orders");
const LINES: Piece = Piece::new(2, "lines");
const CUSTOMERS: Piece = Piece::new(3, "customers");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add(name)
        .piece(OLDEST, |piece| piece.read(&tables.new_order, Whole).delete(&tables.new_order))
        .piece(ORDERS, |piece| {
            piece.read(&tables.order, (Order::CUSTOMER, Order::OL_CNT)).update(&tables.order, Order::CARRIER.set(0))
        })
        .piece(LINES, |piece| piece.modify(&tables.order_line, (OrderLine::AMOUNT, OrderLine::DELIVERY_D)))
        .piece(CUSTOMERS, |piece| {
            piece.update(&tables.customer, (Customer::BALANCE.add(0), Customer::DELIVERY_CNT.add(0)))
        });
}

/// A Delivery's parameters.
#[derive(Debug)]
pub struct Input {
    pub(super) warehouse: u64,
    carrier: u64,
    date: u64,
}

/// An order that the running transaction delivers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delivered {
    /// The key of its district.
    pub(super) district: u64,
    pub(super) number: u64,
    customer: u32,
    lines: u16,
    /// The sum of its lines' amounts.
    total: i64,
}

impl Delivered {
    fn key(&self) -> u64 {
        order_key(self.district, self.number)
    }
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_delivery(&self, client: &mut Client) -> Input {
        Input { warehouse: self.home(client), carrier: client.random.uniform(1, 10), date: client.clock }
    }

    pub(super) fn delivery<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Client { scratch: Scratch { deliveries, .. }, suspicion, .. } = client;
        *suspicion = tx.piece(OLDEST, |tx| self.take_oldest(tx, deliveries, input.warehouse))?;
        if suspicion.is_none() {
            *suspicion = tx.piece(ORDERS, |tx| self.set_carriers(tx, deliveries, input.carrier))?;
        }
        if suspicion.is_some() {
            return Ok(());
        }
        // The orders tell which lines and customers come later.
        for delivered in deliveries.iter() {
            for line in 1..=u64::from(delivered.lines.min(15)) {
                tx.later_row(&self.tables.order_line, line_key(delivered.key(), line), true);
            }
            let customer = customer_key(delivered.district, u64::from(delivered.customer));
            tx.later_row(&self.tables.customer, customer, true);
        }
        tx.later(|tx| self.date_and_credit(tx, client, input))
    }

    /// The part of a Delivery that may come later: the lines of the orders, and the customers.
    #[inline]
    fn date_and_credit<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Client { scratch: Scratch { deliveries, keys, .. }, suspicion, .. } = client;
        *suspicion = tx.piece(LINES, |tx| self.date_lines(tx, deliveries, keys, input.date))?;
        if suspicion.is_none() {
            *suspicion = tx.piece(CUSTOMERS, |tx| self.credit_customers(tx, deliveries))?;
        }
        Ok(())
    }

    /// Takes the oldest new order of each district that has one. Like the other pieces it returns
    /// what should not be, if it meets such a thing.
    #[inline]
    fn take_oldest<T: Txn>(
        &self,
        tx: &mut T,
        deliveries: &mut Vec<Delivered>,
        warehouse: u64,
    ) -> Result<Option<String>, Abort> {
        let table = &self.tables.new_order;
        deliveries.clear();
        for district in (1..=DISTRICTS).map(|district| district_key(warehouse, district)) {
            // Orders are delivered by ascending number, so none is left below those that were
            // delivered. Starting there, the scan skips the tombstones of earlier orders. Relaxed:
            // a hint.
            let first = self.oldest_new_orders[Self::district_position(district)].load(Ordering::Relaxed);
            let range = order_key(district, first)..=order_key(district, u64::from(u32::MAX));
            let limit = if F::SKIP_OLDEST_ORDER { 2 } else { 1 };
            let mut oldest = None;
            tx.scan(table, range, limit, Direction::Forward, Whole, |key, Nothing {}| {
                oldest = Some(order_number(key));
                ControlFlow::Continue(())
            })?;
            let Some(number) = oldest else { continue };
            let delivered = Delivered { district, number, customer: 0, lines: 0, total: 0 };
            if !tx.delete(table, delivered.key())? {
                return Ok(Some(format!("Delivery found new order {} gone that it had just found", delivered.key())));
            }
            deliveries.push(delivered);
        }
        Ok(None)
    }

    /// Reads the orders, and sets their carrier.
    #[inline]
    fn set_carriers<T: Txn>(
        &self,
        tx: &mut T,
        deliveries: &mut [Delivered],
        carrier: u64,
    ) -> Result<Option<String>, Abort> {
        let table = &self.tables.order;
        for delivered in deliveries {
            let order = delivered.key();
            let Some((customer, count)) = tx.read(table, order, (Order::CUSTOMER, Order::OL_CNT))? else {
                return Ok(Some(format!("Delivery found no order {order}, and deleted its new order")));
            };
            (delivered.customer, delivered.lines) = (customer, count);
            tx.update(table, order, Order::CARRIER.set(carrier))?;
        }
        Ok(None)
    }

    /// Writes the date into all lines, and adds up their amounts.
    #[inline]
    fn date_lines<T: Txn>(
        &self,
        tx: &mut T,
        deliveries: &mut [Delivered],
        keys: &mut Vec<u64>,
        date: u64,
    ) -> Result<Option<String>, Abort> {
        for delivered in deliveries {
            let order = delivered.key();
            keys.clear();
            keys.extend((1..=u64::from(delivered.lines.min(15))).map(|line| line_key(order, line)));
            let (mut total, mut lines) = (0i64, 0);
            tx.modify_many(&self.tables.order_line, keys, (OrderLine::AMOUNT, OrderLine::DELIVERY_D), |_, line| {
                if let Some((amount, delivery_d)) = line {
                    *delivery_d = date;
                    lines += 1;
                    total = total.wrapping_add(*amount);
                }
            })?;
            if let Some(wrong) = wrong_lines(order, lines, delivered.lines) {
                return Ok(Some(wrong));
            }
            delivered.total = total;
        }
        Ok(None)
    }

    /// Adds the orders' amounts to the customers' balances.
    #[inline]
    fn credit_customers<T: Txn>(&self, tx: &mut T, deliveries: &[Delivered]) -> Result<Option<String>, Abort> {
        for delivered in deliveries {
            let customer = customer_key(delivered.district, u64::from(delivered.customer));
            let updates = (Customer::BALANCE.add(delivered.total), Customer::DELIVERY_CNT.add(1));
            if !tx.update(&self.tables.customer, customer, updates)? {
                return Ok(Some(format!("Delivery found no customer {customer} of order {}", delivered.key())));
            }
        }
        Ok(None)
    }
}
