//! Order-Status: reads the state of a customer's last order (clause 2.6).

use std::ops::ControlFlow;

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Declare, Direction, Txn, Whole, counted};

use super::schema::{
    Customer, DISTRICTS, Nothing, Order, OrderLine, Schema, customer_key, customer_order_key, district_key, line_key,
    order_key, order_number,
};
use super::{Client, Faults, NamedBy, Tpcc};

const IDENTIFY: Piece = Piece::new(0, "identify");
const CUSTOMER: Piece = Piece::new(1, "customer");
const LAST: Piece = Piece::new(2, "last");
const ORDER: Piece = Piece::new(3, "order");
const LINES: Piece = Piece::new(4, "lines");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    let customer = (Customer::FIRST, Customer::MIDDLE, Customer::LAST, Customer::BALANCE);
    types
        .add_read_only(name)
        .piece(IDENTIFY, |piece| piece.read(&tables.customer_by_name, Whole))
        .piece(CUSTOMER, |piece| piece.read(&tables.customer, customer))
        .piece(LAST, |piece| piece.read(&tables.order_by_customer, Whole))
        .piece(ORDER, |piece| piece.read(&tables.order, (Order::ENTRY_D, Order::CARRIER, Order::OL_CNT)))
        .piece(LINES, |piece| piece.read(&tables.order_line, Whole));
}

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

    /// Declares the customer, if the input gives the number.
    pub(super) fn order_status_rows(&self, input: &Input, declaration: &mut impl Declare) {
        if let NamedBy::Number(number) = input.named_by {
            declaration.row(&self.tables.customer, customer_key(input.district, number), false);
        }
    }

    pub(super) fn order_status<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Client { scratch, suspicion, .. } = client;
        let (district, named_by) = (input.district, input.named_by);
        let names = &mut scratch.names;
        let Some(number) = tx.piece(IDENTIFY, |tx| self.identify(tx, names, district, named_by))? else {
            *suspicion = Some(format!("Order-Status found no customer {named_by:?}"));
            return Ok(());
        };
        let key = customer_key(district, number);
        let columns = (Customer::FIRST, Customer::MIDDLE, Customer::LAST, Customer::BALANCE);
        let Some(customer) = tx.piece(CUSTOMER, |tx| tx.read(&self.tables.customer, key, columns))? else {
            *suspicion = Some(format!("Order-Status found no customer {key}"));
            return Ok(());
        };
        let Some(last) = tx.piece(LAST, |tx| self.last_order(tx, key))? else {
            *suspicion = Some(format!("Order-Status found no order of customer {key}"));
            return Ok(());
        };
        let order = order_key(district, last);
        let columns = (Order::ENTRY_D, Order::CARRIER, Order::OL_CNT);
        let found = tx.piece(ORDER, |tx| tx.read(&self.tables.order, order, columns))?;
        let Some((entry_d, carrier, count)) = found else {
            *suspicion = Some(format!("Order-Status found no order {order}, and found it by its customer"));
            return Ok(());
        };
        let Lines { count: lines, delivered, shown } = tx.piece(LINES, |tx| self.read_lines(tx, order))?;
        *suspicion = wrong_lines(order, lines, count);
        if delivered != if carrier == 0 { 0 } else { lines } {
            *suspicion =
                Some(format!("order {order} has carrier {carrier}, and {delivered} of {lines} lines delivered"));
        }
        std::hint::black_box((customer, entry_d, shown));
        Ok(())
    }

    /// Returns the number of a customer's last order.
    #[inline]
    fn last_order<T: Txn>(&self, tx: &mut T, customer: u64) -> Result<Option<u64>, Abort> {
        let orders = customer_order_key(customer, 0)..=customer_order_key(customer, u64::from(u32::MAX));
        let mut last = None;
        tx.scan(&self.tables.order_by_customer, orders, 1, Direction::Backward, Whole, |key, Nothing {}| {
            last = Some(order_number(key));
            ControlFlow::Break(())
        })?;
        Ok(last)
    }

    /// Reads the lines of an order.
    #[inline]
    fn read_lines<T: Txn>(&self, tx: &mut T, order: u64) -> Result<Lines, Abort> {
        let columns = (
            OrderLine::ITEM,
            OrderLine::SUPPLY_WAREHOUSE,
            OrderLine::QUANTITY,
            OrderLine::AMOUNT,
            OrderLine::DELIVERY_D,
        );
        let mut lines = Lines { count: 0, delivered: 0, shown: 0 };
        let range = line_key(order, 0)..=line_key(order, 15);
        let table = &self.tables.order_line;
        lines.count =
            tx.scan(table, range, usize::MAX, Direction::Forward, columns, |_, (_, _, _, amount, date)| {
                lines.shown = lines.shown.wrapping_add(amount);
                lines.delivered += usize::from(date != 0);
                ControlFlow::Continue(())
            })?;
        Ok(lines)
    }
}

/// What the terminal shows of an order's lines.
#[derive(Clone, Copy, Debug)]
struct Lines {
    count: usize,
    delivered: usize,
    /// The sum of the amounts.
    shown: i64,
}

/// Returns a suspicion if the order has not as many lines as it says, or not 5 to 15. STO's TPC-C
/// was seen to violate this (nathanielherman/sto#16).
pub(super) fn wrong_lines(order: u64, lines: usize, count: u16) -> Option<String> {
    (lines != usize::from(count) || !(5..=15).contains(&lines))
        .then(|| format!("order {order} has {}, and says {count}", counted(lines, "line")))
}
