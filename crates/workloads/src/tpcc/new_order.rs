//! New-Order: a customer orders five to fifteen items (clause 2.4).

use contend_model::{Abort, Txn};

use super::random::is_original;
use super::schema::{
    Customer, DISTRICTS, District, Item, Nothing, Order, OrderLine, Stock, Warehouse, customer_key, customer_order_key,
    district_key, line_key, order_key, stock_key,
};
use super::updates::Ordered;
use super::{Client, Faults, Scratch, Tpcc};

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

    pub(super) fn new_order<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let scratch = &mut client.scratch;
        // The items come first: a transaction that asks for an unknown one has not yet touched a
        // row that other transactions write.
        self.read_items(tx, scratch, input)?;
        let district = district_key(input.warehouse, input.district);
        let rates = self.read_rates(tx, district, input)?;
        let known = self.take_from_stocks(tx, scratch, input)?;
        // Of the contended rows the district's next order number comes last.
        let order = tx.modify_columns(&self.tables.district, district, District::NEXT_O_ID, |next| {
            *next += 1;
            *next - 1
        })?;
        let (Some(order), true) = (order, known) else { return Err(tx.cancel()) };
        let (new, total) = self.insert_order(tx, scratch, input, district, order)?;
        if !new {
            client.suspicion = Some(format!("New-Order found order {order} of district {district} there already"));
        }
        // The amount that the customer is shown, in ten-thousandths of ten-thousandths of a cent.
        let due = i128::from(total)
            * i128::from(10_000 - rates.discount.min(10_000))
            * i128::from(10_000 + rates.warehouse_tax + rates.district_tax);
        std::hint::black_box((due, &scratch.lines));
        Ok(())
    }

    /// Reads the items into `scratch.lines`. Cancels the transaction if one of them does not exist.
    #[inline]
    fn read_items<T: Txn>(&self, tx: &mut T, scratch: &mut Scratch, input: &Input) -> Result<(), Abort> {
        scratch.keys.clear();
        scratch.keys.extend(input.lines().iter().map(|line| line.item));
        scratch.lines.clear();
        let mut unknown = false;
        let columns = (Item::PRICE, Item::NAME, Item::DATA);
        tx.read_many(&self.tables.item, &scratch.keys, columns, |_, item| match item {
            Some((price, _, data)) => scratch.lines.push(Offer { price, original: is_original(&data) }),
            None => unknown = true,
        })?;
        if unknown { Err(tx.cancel()) } else { Ok(()) }
    }

    /// Reads the taxes and the customer's discount, with the other columns that the terminal shows.
    #[inline]
    fn read_rates<T: Txn>(&self, tx: &mut T, district: u64, input: &Input) -> Result<Rates, Abort> {
        let tables = &self.tables;
        let Some(warehouse_tax) = tx.read(&tables.warehouse, input.warehouse, Warehouse::TAX)? else {
            return Err(tx.cancel());
        };
        let customer = customer_key(district, input.customer);
        let columns = (Customer::DISCOUNT, Customer::LAST, Customer::CREDIT);
        let Some((discount, ..)) = tx.read(&tables.customer, customer, columns)? else { return Err(tx.cancel()) };
        let Some(district_tax) = tx.read(&tables.district, district, District::TAX)? else { return Err(tx.cancel()) };
        Ok(Rates { warehouse_tax, district_tax, discount })
    }

    /// Takes the ordered quantities from the stocks, and reads their district information into
    /// `scratch.infos`. Returns whether all stocks exist.
    #[inline]
    fn take_from_stocks<T: Txn>(&self, tx: &mut T, scratch: &mut Scratch, input: &Input) -> Result<bool, Abort> {
        scratch.keys.clear();
        scratch.keys.extend(input.lines().iter().map(|line| stock_key(line.warehouse, line.item)));
        scratch.infos.clear();
        let mut known = true;
        let info = Stock::DIST.element(input.district as usize - 1);
        tx.update_many(&self.tables.stock, &scratch.keys, (info, Stock::DATA), |position, stock| {
            let Some((info, data)) = stock else {
                known = false;
                return None;
            };
            // "B" or "G" on the terminal (clause 2.4.2.2): whether item and stock both name the
            // brand.
            let offer = &mut scratch.lines[position];
            offer.original = offer.original && is_original(&data);
            scratch.infos.push(info);
            let line = &input.lines()[position];
            Some(Ordered { quantity: line.quantity as u32, remote: line.warehouse != input.warehouse })
        })?;
        Ok(known)
    }

    /// Inserts the order, its entries in NEW-ORDER and in the index by customer, and its lines.
    /// Returns whether all of them are new, and the sum of the lines' amounts.
    #[inline]
    fn insert_order<T: Txn>(
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
        let mut new = tx.insert(&tables.order, key, row)?;
        new &= tx.insert(&tables.order_by_customer, by_customer, Nothing {})?;
        new &= tx.insert(&tables.new_order, key, Nothing {})?;
        let mut total = 0;
        scratch.keys.clear();
        scratch.keys.extend((1..=input.count as u64).map(|line| line_key(key, line)));
        new &= tx.insert_many(&tables.order_line, &scratch.keys, |number| {
            let line = &input.lines()[number];
            let amount = line.quantity as i64 * i64::from(scratch.lines[number].price);
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
