//! Stock-Level: counts the items of a district's last 20 orders whose stock runs low (clause 2.8).

use std::ops::ControlFlow;

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Declare, Direction, Txn};

use super::schema::{District, OrderLine, Schema, Stock, district_key, line_key, order_key, stock_key};
use super::{Client, Faults, Scratch, Tpcc};

const NUMBER: Piece = Piece::new(0, "number");
const LINES: Piece = Piece::new(1, "lines");
const STOCKS: Piece = Piece::new(2, "stocks");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add_read_only(name)
        .piece(NUMBER, |piece| piece.read(&tables.district, District::NEXT_O_ID))
        .piece(LINES, |piece| piece.read(&tables.order_line, OrderLine::ITEM))
        .piece(STOCKS, |piece| piece.read(&tables.stock, Stock::QUANTITY));
}

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

    /// Declares the district. The other rows depend on it.
    pub(super) fn stock_level_rows(&self, input: &Input, declaration: &mut impl Declare) {
        declaration.row(&self.tables.district, district_key(input.warehouse, input.district), false);
    }

    pub(super) fn stock_level<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Client { scratch, suspicion, .. } = client;
        let district = district_key(input.warehouse, input.district);
        let next = tx.piece(NUMBER, |tx| tx.read(&self.tables.district, district, District::NEXT_O_ID))?;
        let Some(next) = next else {
            *suspicion = Some(format!("Stock-Level found no district {district}"));
            return Ok(());
        };
        tx.piece(LINES, |tx| self.last_items(tx, &mut scratch.items, district, next))?;
        let low = tx.piece(STOCKS, |tx| self.count_low(tx, scratch, input))?;
        std::hint::black_box(low);
        Ok(())
    }

    /// Reads the items of the district's last orders, each once.
    #[inline]
    fn last_items<T: Txn>(&self, tx: &mut T, items: &mut Vec<u32>, district: u64, next: u64) -> Result<(), Abort> {
        let first = line_key(order_key(district, next.saturating_sub(ORDERS)), 0);
        let last = line_key(order_key(district, next), 0);
        items.clear();
        let table = &self.tables.order_line;
        tx.scan(table, first..=last, usize::MAX, Direction::Forward, OrderLine::ITEM, |_, item| {
            items.push(item);
            ControlFlow::Continue(())
        })?;
        items.sort_unstable();
        items.dedup();
        Ok(())
    }

    /// Returns the number of the items in `scratch.items` whose stock is below the threshold.
    #[inline]
    fn count_low<T: Txn>(&self, tx: &mut T, scratch: &mut Scratch, input: &Input) -> Result<usize, Abort> {
        let Scratch { items, keys, .. } = scratch;
        keys.clear();
        keys.extend(items.iter().map(|&item| stock_key(input.warehouse, u64::from(item))));
        let mut low = 0;
        tx.read_many(&self.tables.stock, keys, Stock::QUANTITY, |_, quantity| {
            low += usize::from(quantity.is_some_and(|quantity| quantity < input.threshold));
        })?;
        Ok(low)
    }
}
