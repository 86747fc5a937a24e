//! Stock-Level: counts the items of a district's last 20 orders whose stock runs low (clause 2.8).

use std::ops::ControlFlow;

use contend_model::{Abort, Direction, Txn};

use super::schema::{District, OrderLine, Stock, district_key, line_key, order_key, stock_key};
use super::{Client, Faults, Tpcc};

/// The number of last orders that count.
const ORDERS: u64 = 20;

/// A Stock-Level's parameters.
#[derive(Debug, Default)]
pub struct Input {
    pub(super) warehouse: u64,
    pub(super) district: u64,
    threshold: i32,
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_stock_level(&self, client: &mut Client) -> Input {
        Input {
            warehouse: self.home(client),
            district: client.stock_level_district,
            threshold: client.random.uniform(10, 20) as i32,
        }
    }

    pub(super) fn stock_level<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let tables = &self.tables;
        let district = district_key(input.warehouse, input.district);
        let Some(next) = tx.read(&tables.district, district, District::NEXT_O_ID)? else { return Err(tx.cancel()) };
        let first = line_key(order_key(district, next.saturating_sub(ORDERS)), 0);
        let last = line_key(order_key(district, next), 0);
        let items = &mut client.scratch.items;
        items.clear();
        tx.scan(&tables.order_line, first..=last, usize::MAX, Direction::Forward, OrderLine::ITEM, |_, item| {
            items.push(item);
            ControlFlow::Continue(())
        })?;
        items.sort_unstable();
        items.dedup();
        let keys = &mut client.scratch.keys;
        keys.clear();
        keys.extend(items.iter().map(|&item| stock_key(input.warehouse, u64::from(item))));
        let mut low = 0;
        tx.read_many(&tables.stock, keys, Stock::QUANTITY, |_, quantity| {
            low += usize::from(quantity.is_some_and(|quantity| quantity < input.threshold));
        })?;
        std::hint::black_box(low);
        Ok(())
    }
}
