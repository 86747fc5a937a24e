//! New-Order: a customer orders five to fifteen items (clause 2.4).

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Declare, Txn};

use super::random::is_original;
use super::schema::{
    Customer, DISTRICTS, District, Item, Nothing, Order, OrderLine, Schema, Stock, Warehouse, customer_key,
    customer_order_key, district_key, line_key, order_key, stock_key,
};
use super::updates::Ordered;
use super::{Client, Faults, Scratch, Tpcc};

const ITEMS: Piece = Piece::new(0, "items");
const TAXES: Piece = Piece::new(1, "taxes");
const STOCKS: Piece = Piece::new(2, "stocks");
const NUMBER: Piece = Piece::new(3, "number");
const QUEUE: Piece = Piece::new(4, "queue");
const ORDER: Piece = Piece::new(5, "order");
const BY_CUSTOMER: Piece = Piece::new(6, "by_customer");
const LINES: Piece = Piece::new(7, "lines");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add(name)
        .piece(ITEMS, |piece| piece.read(&tables.item, (Item::PRICE, Item::NAME, Item::DATA)).cancels())
        .piece(TAXES, |piece| {
            piece
                .read(&tables.warehouse, Warehouse::TAX)
                .read(&tables.customer, (Customer::DISCOUNT, Customer::LAST, Customer::CREDIT))
                .read(&tables.district, District::TAX)
        })
        .piece(STOCKS, |piece| {
            piece.read(&tables.stock, (Stock::DIST, Stock::DATA)).update(&tables.stock, Ordered::default())
        })
        .piece(NUMBER, |piece| piece.modify(&tables.district, District::NEXT_O_ID))
        .piece(QUEUE, |piece| piece.insert(&tables.new_order))
        .piece(ORDER, |piece| piece.insert(&tables.order))
        .piece(BY_CUSTOMER, |piece| piece.insert(&tables.order_by_customer))
        .piece(LINES, |piece| piece.insert(&tables.order_line));
}

/// The most lines of an order.
pub(crate) const LINES_MAX: usize = 15;

/// A line of an order.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) item: u64,
    /// The warehouse that supplies the item.
    pub(crate) warehouse: u64,
    pub(crate) quantity: u64,
}

/// A New-Order's parameters.
#[derive(Debug)]
pub struct Input {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    customer: u64,
    date: u64,
    count: usize,
    lines: [Line; LINES_MAX],
}

impl Input {
    pub(crate) fn lines(&self) -> &[Line] {
        &self.lines[..self.count]
    }
}

/// What the order needs to know of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    price: u32,
    original: bool,
}

/// Taxes and a discount, in ten-thousandths.
#[derive(Clone, Copy, Debug)]
struct Rates {
    warehouse_tax: u32,
    district_tax: u32,
    discount: u32,
}

/// Shows the customer the amount, in ten-thousandths of ten-thousandths of a cent.
#[inline(always)]
fn show(rates: Rates, total: i64, scratch: &Scratch) {
    let due = i128::from(total)
        * i128::from(10_000 - rates.discount.min(10_000))
        * i128::from(10_000 + rates.warehouse_tax + rates.district_tax);
    std::hint::black_box((due, &scratch.brands));
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_new_order(&self, client: &mut Client) -> Input {
        let warehouse = self.home(client);
        let random = &mut client.random;
        let mut input = Input {
            warehouse,
            district: random.uniform(1, DISTRICTS),
            customer: random.customer(self.options.customers),
            date: client.clock,
            count: random.uniform(5, LINES_MAX as u64) as usize,
            lines: [Line::default(); LINES_MAX],
        };
        let count = input.count;
        for line in &mut input.lines[..count] {
            let remote = random.happens(self.options.remote_lines.0);
            *line = Line {
                item: random.item(self.options.items),
                warehouse: if remote { self.other_warehouse(random, warehouse) } else { warehouse },
                quantity: random.uniform(1, 10),
            };
        }
        if random.happens(self.options.rollback.0) {
            // An item that does not exist.
            input.lines[count - 1].item = self.options.items + 1;
        }
        input
    }

    /// Declares the rows whose keys the input gives: all but those that it inserts.
    pub(super) fn new_order_rows(&self, input: &Input, declaration: &mut impl Declare) {
        let tables = &self.tables;
        let district = district_key(input.warehouse, input.district);
        for line in input.lines() {
            declaration.row(&tables.item, line.item, false);
            declaration.row(&tables.stock, stock_key(line.warehouse, line.item), true);
        }
        declaration.row(&tables.warehouse, input.warehouse, false);
        declaration.row(&tables.customer, customer_key(district, input.customer), false);
        declaration.row(&tables.district, district, true);
    }

    pub(super) fn new_order<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        if tx.defers() {
            return self.new_order_in_two(tx, client, input);
        }
        let Client { scratch, suspicion, .. } = client;
        let district = district_key(input.warehouse, input.district);
        // The items come first: a transaction that asks for an unknown one has not yet touched a
        // row that other transactions write.
        tx.piece(ITEMS, |tx| self.read_items(tx, scratch, input))?;
        let rates = tx.piece(TAXES, |tx| self.read_rates(tx, district, input))?;
        let known = tx.piece(STOCKS, |tx| self.take_from_stocks(tx, scratch, input))?;
        // Of the contended rows the district's next order number comes last.
        let order = tx.piece(NUMBER, |tx| self.take_number(tx, district))?;
        let (Some(rates), true, Some(order)) = (rates, known, order) else {
            *suspicion = Some(format!("New-Order in district {district} found rows missing that are never deleted"));
            return Ok(());
        };
        let (new, total) = self.insert_order(tx, scratch, input, district, order)?;
        if !new {
            *suspicion = Some(format!("New-Order found order {order} of district {district} there already"));
        }
        show(rates, total, scratch);
        Ok(())
    }

    /// The same for a protocol that lets the rest come later. The number and the taxes come now,
    /// because all orders of the district want their rows, and so does the entry in NEW-ORDER,
    /// which others scan for. The stocks, the customer and the other inserts come later.
    fn new_order_in_two<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Client { scratch, suspicion, .. } = client;
        let tables = &self.tables;
        let district = district_key(input.warehouse, input.district);
        // Before the first access, so that these rows are looked up while others have the turn.
        let customer = customer_key(district, input.customer);
        tx.later_row(&tables.customer, customer, false);
        input.lines().iter().for_each(|line| tx.later_row(&tables.stock, stock_key(line.warehouse, line.item), true));
        self.read_items(tx, scratch, input)?;
        let warehouse_tax = tx.read(&tables.warehouse, input.warehouse, Warehouse::TAX)?;
        let district_tax = tx.read(&tables.district, district, District::TAX)?;
        let order = self.take_number(tx, district)?;
        let (Some(warehouse_tax), Some(district_tax), Some(order)) = (warehouse_tax, district_tax, order) else {
            *suspicion = Some(format!("New-Order in district {district} found rows missing that are never deleted"));
            return Ok(());
        };
        let key = order_key(district, order);
        let queued = tx.insert(&tables.new_order, key, Nothing {})?;
        let by_customer = customer_order_key(customer, order);
        tx.later_inserts(&tables.order, key..=key);
        tx.later_inserts(&tables.order_by_customer, by_customer..=by_customer);
        tx.later_inserts(&tables.order_line, line_key(key, 1)..=line_key(key, LINES_MAX as u64));
        tx.later(|tx| {
            let columns = (Customer::DISCOUNT, Customer::LAST, Customer::CREDIT);
            let discount = tx.read(&tables.customer, customer, columns)?;
            let known = self.take_from_stocks(tx, scratch, input)?;
            let (Some((discount, ..)), true) = (discount, known) else {
                *suspicion = Some(format!("New-Order {key} found rows missing that are never deleted"));
                return Ok(());
            };
            let (new, total) = self.insert_rest(tx, scratch, input, district, order)?;
            if !(queued && new) {
                *suspicion = Some(format!("New-Order found order {order} of district {district} there already"));
            }
            show(Rates { warehouse_tax, district_tax, discount }, total, scratch);
            Ok(())
        })
    }

    /// Takes the number of the district's next order; `None` if the district is missing.
    #[inline(always)]
    fn take_number<T: Txn>(&self, tx: &mut T, district: u64) -> Result<Option<u64>, Abort> {
        tx.modify_columns(&self.tables.district, district, District::NEXT_O_ID, |next| {
            *next += 1;
            *next - 1
        })
    }

    /// Reads the items into `scratch.offers`. Cancels the transaction if one of them does not
    /// exist.
    #[inline]
    fn read_items<T: Txn>(&self, tx: &mut T, scratch: &mut Scratch, input: &Input) -> Result<(), Abort> {
        scratch.keys.clear();
        scratch.keys.extend(input.lines().iter().map(|line| line.item));
        scratch.offers.clear();
        let mut unknown = false;
        let columns = (Item::PRICE, Item::NAME, Item::DATA);
        tx.read_many(&self.tables.item, &scratch.keys, columns, |_, item| match item {
            Some((price, _, data)) => scratch.offers.push(Offer { price, original: is_original(&data) }),
            None => unknown = true,
        })?;
        if unknown { Err(tx.cancel()) } else { Ok(()) }
    }

    /// Reads the taxes and the customer's discount, with the other columns that the terminal shows.
    /// Returns `None` if a row is missing.
    #[inline]
    fn read_rates<T: Txn>(&self, tx: &mut T, district: u64, input: &Input) -> Result<Option<Rates>, Abort> {
        let tables = &self.tables;
        let warehouse_tax = tx.read(&tables.warehouse, input.warehouse, Warehouse::TAX)?;
        let customer = customer_key(district, input.customer);
        let columns = (Customer::DISCOUNT, Customer::LAST, Customer::CREDIT);
        let discount = tx.read(&tables.customer, customer, columns)?;
        let district_tax = tx.read(&tables.district, district, District::TAX)?;
        Ok(match (warehouse_tax, discount, district_tax) {
            (Some(warehouse_tax), Some((discount, ..)), Some(district_tax)) => {
                Some(Rates { warehouse_tax, district_tax, discount })
            }
            _ => None,
        })
    }

    /// Takes the ordered quantities from the stocks, and reads their district information into
    /// `scratch.infos`. Returns whether all stocks exist.
    #[inline]
    fn take_from_stocks<T: Txn>(&self, tx: &mut T, scratch: &mut Scratch, input: &Input) -> Result<bool, Abort> {
        scratch.keys.clear();
        scratch.keys.extend(input.lines().iter().map(|line| stock_key(line.warehouse, line.item)));
        scratch.infos.clear();
        scratch.brands.clear();
        let mut known = true;
        let info = Stock::DIST.element(input.district as usize - 1);
        tx.update_many(&self.tables.stock, &scratch.keys, (info, Stock::DATA), |position, stock| {
            let Some((info, data)) = stock else {
                known = false;
                return None;
            };
            scratch.infos.push(info);
            // "B" or "G" on the terminal (clause 2.4.2.2): whether item and stock both name the
            // brand.
            scratch.brands.push(scratch.offers[position].original && is_original(&data));
            let line = &input.lines()[position];
            Some(Ordered { quantity: line.quantity as u32, remote: line.warehouse != input.warehouse })
        })?;
        Ok(known)
    }

    /// Inserts the order's entry in NEW-ORDER, the order, its entry in the index by customer, and
    /// its lines. Returns whether all of them are new, and the sum of the lines' amounts.
    ///
    /// NEW-ORDER comes before ORDER, as in Delivery: so an analysis of the pieces can order the two
    /// transactions step by step.
    #[inline]
    fn insert_order<T: Txn>(
        &self,
        tx: &mut T,
        scratch: &mut Scratch,
        input: &Input,
        district: u64,
        order: u64,
    ) -> Result<(bool, i64), Abort> {
        let key = order_key(district, order);
        let queued = tx.piece(QUEUE, |tx| tx.insert(&self.tables.new_order, key, Nothing {}))?;
        let (new, total) = self.insert_rest(tx, scratch, input, district, order)?;
        Ok((queued && new, total))
    }

    /// Inserts the order, its entry in the index by customer, and its lines. Returns what
    /// `insert_order` does.
    #[inline]
    fn insert_rest<T: Txn>(
        &self,
        tx: &mut T,
        scratch: &mut Scratch,
        input: &Input,
        district: u64,
        order: u64,
    ) -> Result<(bool, i64), Abort> {
        let tables = &self.tables;
        let key = order_key(district, order);
        let by_customer = customer_order_key(customer_key(district, input.customer), order);
        let all_local = input.lines().iter().all(|line| line.warehouse == input.warehouse);
        let row = Order {
            entry_d: input.date,
            customer: input.customer as u32,
            ol_cnt: input.count as u16,
            all_local: u16::from(all_local),
            carrier: 0,
        };
        let mut new = tx.piece(ORDER, |tx| tx.insert(&tables.order, key, row))?;
        new &= tx.piece(BY_CUSTOMER, |tx| tx.insert(&tables.order_by_customer, by_customer, Nothing {}))?;
        let (new_lines, total) = tx.piece(LINES, |tx| self.insert_lines(tx, scratch, input, key))?;
        Ok((new && new_lines, total))
    }

    /// Inserts the lines of the order with this key. Returns whether all of them are new, and the
    /// sum of their amounts.
    #[inline]
    fn insert_lines<T: Txn>(
        &self,
        tx: &mut T,
        scratch: &mut Scratch,
        input: &Input,
        order: u64,
    ) -> Result<(bool, i64), Abort> {
        scratch.keys.clear();
        scratch.keys.extend((1..=input.count as u64).map(|line| line_key(order, line)));
        let mut total = 0;
        let new = tx.insert_many(&self.tables.order_line, &scratch.keys, |number| {
            let line = &input.lines()[number];
            let amount = line.quantity as i64 * i64::from(scratch.offers[number].price);
            total += amount;
            OrderLine {
                item: line.item as u32,
                supply_warehouse: line.warehouse as u16,
                quantity: line.quantity as u16,
                amount,
                dist_info: scratch.infos[number],
                delivery_d: 0,
            }
        })?;
        Ok((new, total))
    }
}
