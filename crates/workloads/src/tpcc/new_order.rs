//! New-Order: a customer orders five to fifteen items (clause 2.4).

use contend_model::{Abort, Txn};

use super::random::is_original;
use super::schema::{
    Customer, DISTRICTS, District, Item, Nothing, Order, OrderLine, Stock, Warehouse, customer_key, customer_order_key,
    district_key, line_key, order_key, stock_key,
};
use super::updates::Ordered;
use super::{Client, Faults, Tpcc};

/// The most lines of an order.
pub(crate) const LINES_MAX: usize = 15;

/// What is ordered in a line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Line {
    pub(crate) item: u64,
    /// The warehouse that supplies it.
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

/// What the order is told of an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    price: u32,
    original: bool,
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
            // An item that nobody has.
            input.lines[count - 1].item = self.options.items + 1;
        }
        input
    }

    pub(super) fn new_order<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let tables = &self.tables;
        let scratch = &mut client.scratch;
        // Items first: who asks for one that is not there has touched nothing that others write.
        scratch.keys.clear();
        scratch.keys.extend(input.lines().iter().map(|line| line.item));
        scratch.lines.clear();
        let mut unknown = false;
        tx.read_many(&tables.item, &scratch.keys, (Item::PRICE, Item::NAME, Item::DATA), |_, item| match item {
            Some((price, _, data)) => scratch.lines.push(Offer { price, original: is_original(&data) }),
            None => unknown = true,
        })?;
        if unknown {
            return Err(tx.cancel());
        }
        let Some(warehouse_tax) = tx.read(&tables.warehouse, input.warehouse, Warehouse::TAX)? else {
            return Err(tx.cancel());
        };
        let district = district_key(input.warehouse, input.district);
        let customer = customer_key(district, input.customer);
        let columns = (Customer::DISCOUNT, Customer::LAST, Customer::CREDIT);
        let Some((discount, ..)) = tx.read(&tables.customer, customer, columns)? else { return Err(tx.cancel()) };
        let Some(district_tax) = tx.read(&tables.district, district, District::TAX)? else { return Err(tx.cancel()) };
        // Stocks: what is read of them, and the updates.
        scratch.keys.clear();
        scratch.keys.extend(input.lines().iter().map(|line| stock_key(line.warehouse, line.item)));
        scratch.infos.clear();
        let info = Stock::DIST.element(input.district as usize - 1);
        tx.update_many(&tables.stock, &scratch.keys, (info, Stock::DATA), |position, stock| {
            let Some((info, data)) = stock else {
                unknown = true;
                return None;
            };
            // "B" or "G" on the terminal (clause 2.4.2.2): both data name the brand, or not.
            let offer = &mut scratch.lines[position];
            offer.original = offer.original && is_original(&data);
            scratch.infos.push(info);
            let line = &input.lines()[position];
            Some(Ordered { quantity: line.quantity as u32, remote: line.warehouse != input.warehouse })
        })?;
        // The order's number last of what is contended.
        let order = tx.modify_columns(&tables.district, district, District::NEXT_O_ID, |next| {
            *next += 1;
            *next - 1
        })?;
        let (Some(order), false) = (order, unknown) else { return Err(tx.cancel()) };
        let key = order_key(district, order);
        let all_local = input.lines().iter().all(|line| line.warehouse == input.warehouse);
        let row = Order {
            entry_d: input.date,
            customer: input.customer as u32,
            ol_cnt: input.count as u16,
            all_local: u16::from(all_local),
            carrier: 0,
        };
        let mut new = tx.insert(&tables.order, key, row)?;
        new &= tx.insert(&tables.order_by_customer, customer_order_key(customer, order), Nothing {})?;
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
        if !new {
            client.suspicion = Some(format!("New-Order found order {order} of district {district} there already"));
        }
        // What the customer is shown, in ten-thousandths of ten-thousandths of a cent.
        let due = i128::from(total)
            * i128::from(10_000 - discount.min(10_000))
            * i128::from(10_000 + warehouse_tax + district_tax);
        std::hint::black_box((due, &scratch.lines));
        Ok(())
    }
}
