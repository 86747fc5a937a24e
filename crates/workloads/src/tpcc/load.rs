//! The population (clause 4.3.3.1), in chunks that several loaders share. Each chunk has a
//! generator of its own, so the database does not depend on which loader loads which chunk.

use std::ops::ControlFlow;

use contend_model::{Key, Load, OutOfMemory, Row, TypedTable};

use super::random::{NAMES, Random, last_name};
use super::schema::{
    Address, Customer, CustomerName, DISTRICTS, District, History, Item, NameKey, Nothing, Order, OrderLine, Schema,
    Stock, Warehouse, customer_key, customer_order_key, district_key, line_key, order_key, stock_key,
};
use super::{HISTORY_BITS, TpccOptions};

/// The number of items or stocks in a chunk.
const CHUNK: u64 = 5_000;
/// The payment of every customer before the run, in cents.
pub(crate) const FIRST_PAYMENT: i64 = 1_000;
/// The client number of the population's history rows.
const LOADER: u64 = (1 << (64 - HISTORY_BITS)) - 1;

/// A part of the population.
#[derive(Clone, Copy, Debug)]
enum Chunk {
    Items { first: u64 },
    Stocks { warehouse: u64, first: u64 },
    Warehouse { warehouse: u64 },
    District { warehouse: u64, district: u64 },
}

fn chunks(options: &TpccOptions) -> Vec<Chunk> {
    let firsts = || (1..=options.items).step_by(CHUNK as usize);
    let mut chunks: Vec<Chunk> = firsts().map(|first| Chunk::Items { first }).collect();
    for warehouse in 1..=options.warehouses {
        chunks.push(Chunk::Warehouse { warehouse });
        chunks.extend((1..=DISTRICTS).map(|district| Chunk::District { warehouse, district }));
        chunks.extend(firsts().map(|first| Chunk::Stocks { warehouse, first }));
    }
    chunks
}

/// Returns the number of rows of items, stocks and customers: the units of loading.
pub(crate) fn rows(options: &TpccOptions) -> u64 {
    options.items + options.warehouses * (options.items + DISTRICTS * options.customers)
}

/// Returns the number of each district's last order that is delivered at the start; the last 30 %
/// are new.
pub(crate) fn delivered(options: &TpccOptions) -> u64 {
    options.customers - options.customers * 3 / 10
}

pub(crate) fn load<L: Load>(
    options: &TpccOptions,
    tables: &Schema,
    loader: &mut L,
    part: usize,
    parts: usize,
    done: &mut dyn FnMut(u64) -> ControlFlow<()>,
) -> Result<(), OutOfMemory> {
    for (number, chunk) in chunks(options).into_iter().enumerate() {
        if number % parts != part {
            continue;
        }
        let random = Random::new(options.population_seed, u64::MAX - number as u64);
        let mut load = Population { options, tables, loader, random };
        let units = match chunk {
            Chunk::Items { first } => load.items(first)?,
            Chunk::Stocks { warehouse, first } => load.stocks(warehouse, first)?,
            Chunk::Warehouse { warehouse } => load.warehouse(warehouse)?,
            Chunk::District { warehouse, district } => load.district(warehouse, district)?,
        };
        if done(units).is_break() {
            break;
        }
    }
    Ok(())
}

struct Population<'a, L: Load> {
    options: &'a TpccOptions,
    tables: &'a Schema,
    loader: &'a mut L,
    random: Random,
}

impl<L: Load> Population<'_, L> {
    fn put<R: Row, K: Key>(&mut self, table: &TypedTable<R, K>, key: K, row: R) -> Result<(), OutOfMemory> {
        self.loader.insert_typed(table, key, row).map(drop)
    }

    fn address(&mut self) -> Address {
        let mut zip = [b'1'; 9];
        zip[..4].copy_from_slice(&self.random.digits::<4>(4));
        Address {
            street_1: self.random.letters(10, 20),
            street_2: self.random.letters(10, 20),
            city: self.random.letters(10, 20),
            state: self.random.letters(2, 2),
            zip,
        }
    }

    fn items(&mut self, first: u64) -> Result<u64, OutOfMemory> {
        let last = (first + CHUNK - 1).min(self.options.items);
        for item in first..=last {
            let row = Item {
                price: self.random.uniform(100, 10_000) as u32,
                image: self.random.uniform(1, 10_000) as u32,
                name: self.random.letters(14, 24),
                data: self.random.data(),
                fill: [0; 2],
            };
            self.put(&self.tables.item, item, row)?;
        }
        Ok(last - first + 1)
    }

    fn stocks(&mut self, warehouse: u64, first: u64) -> Result<u64, OutOfMemory> {
        let last = (first + CHUNK - 1).min(self.options.items);
        for item in first..=last {
            let row = Stock {
                quantity: self.random.uniform(10, 100) as i32,
                ytd: 0,
                order_cnt: 0,
                remote_cnt: 0,
                data: self.random.data(),
                dist: std::array::from_fn(|_| self.random.letters(24, 24)),
                fill: [0; 6],
            };
            self.put(&self.tables.stock, stock_key(warehouse, item), row)?;
        }
        Ok(last - first + 1)
    }

    fn warehouse(&mut self, warehouse: u64) -> Result<u64, OutOfMemory> {
        let row = Warehouse {
            tax: self.random.uniform(0, 2000) as u32,
            name: self.random.letters(6, 10),
            address: self.address(),
            fill: [0; 3],
            ytd: FIRST_PAYMENT * (DISTRICTS * self.options.customers) as i64,
        };
        self.put(&self.tables.warehouse, warehouse, row)?;
        Ok(0)
    }

    /// Loads a district, its customers, and an order of each customer.
    fn district(&mut self, warehouse: u64, district: u64) -> Result<u64, OutOfMemory> {
        let customers = self.options.customers;
        let key = district_key(warehouse, district);
        let row = District {
            tax: self.random.uniform(0, 2000) as u32,
            name: self.random.letters(6, 10),
            address: self.address(),
            fill: [0; 3],
            ytd: FIRST_PAYMENT * customers as i64,
            next_o_id: customers + 1,
        };
        self.put(&self.tables.district, key, row)?;
        for customer in 1..=customers {
            self.customer(key, customer)?;
        }
        for (customer, order) in self.random.permutation(customers).into_iter().zip(1..) {
            self.order(warehouse, key, order, customer)?;
        }
        Ok(customers)
    }

    fn customer(&mut self, district: u64, customer: u64) -> Result<(), OutOfMemory> {
        let name = if customer <= NAMES { customer - 1 } else { self.random.name_to_load() };
        let row = Customer {
            balance: -FIRST_PAYMENT,
            ytd_payment: FIRST_PAYMENT,
            payment_cnt: 1,
            delivery_cnt: 0,
            credit_lim: 5_000_000,
            since: 0,
            discount: self.random.uniform(0, 5000) as u32,
            credit: if self.random.happens(0.1) { *b"BC" } else { *b"GC" },
            middle: *b"OE",
            last: last_name(name),
            first: self.random.letters(8, 16),
            phone: self.random.digits(16),
            address: self.address(),
            fill: [0],
            data: self.random.letters(300, 500),
            data_fill: [0; 4],
        };
        let key = customer_key(district, customer);
        self.put(&self.tables.customer, key, row)?;
        let name = NameKey { district, last: row.last, customer };
        self.put(&self.tables.customer_by_name, name, CustomerName { first: row.first })?;
        let payment =
            History { customer: key, district, date: 0, amount: FIRST_PAYMENT, data: self.random.letters(12, 24) };
        self.put(&self.tables.history, LOADER << HISTORY_BITS | key, payment)
    }

    fn order(&mut self, warehouse: u64, district: u64, order: u64, customer: u64) -> Result<(), OutOfMemory> {
        let is_delivered = order <= delivered(self.options);
        let key = order_key(district, order);
        let lines = self.random.uniform(5, 15);
        let carrier = if is_delivered { self.random.uniform(1, 10) } else { 0 };
        let row = Order { entry_d: 1, customer: customer as u32, ol_cnt: lines as u16, all_local: 1, carrier };
        self.put(&self.tables.order, key, row)?;
        let by_customer = customer_order_key(customer_key(district, customer), order);
        self.put(&self.tables.order_by_customer, by_customer, Nothing {})?;
        if !is_delivered {
            self.put(&self.tables.new_order, key, Nothing {})?;
        }
        for line in 1..=lines {
            let row = OrderLine {
                item: self.random.uniform(1, self.options.items) as u32,
                supply_warehouse: warehouse as u16,
                quantity: 5,
                amount: if is_delivered { 0 } else { self.random.uniform(1, 999_999) as i64 },
                dist_info: self.random.letters(24, 24),
                delivery_d: u64::from(is_delivered),
            };
            self.put(&self.tables.order_line, line_key(key, line), row)?;
        }
        Ok(())
    }
}
