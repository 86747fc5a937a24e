//! Last-Order-Status: reads the newest order of a district, with its lines.
//!
//! The standard has no such transaction. IC3's evaluation adds it to New-Order, to show a reader
//! that follows a writer from piece to piece. It only reads. But it is not declared as read-only,
//! so it runs under the protocol, and not on a snapshot.
//!
//! "Z. Wang, S. Mu, Y. Cui, H. Yi, H. Chen, J. Li: Scaling multicore databases via constrained
//! parallel execution", SIGMOD 2016.

use std::ops::ControlFlow;

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Declare, Direction, Txn, Whole};

use super::order_status::wrong_lines;
use super::schema::{DISTRICTS, District, Order, OrderLine, Schema, district_key, line_key, order_key};
use super::{Client, Faults, Tpcc};

const NEXT: Piece = Piece::new(0, "next");
const ORDER: Piece = Piece::new(1, "order");
const LINES: Piece = Piece::new(2, "lines");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add(name)
        .piece(NEXT, |piece| piece.read(&tables.district, District::NEXT_O_ID))
        .piece(ORDER, |piece| piece.read(&tables.order, (Order::ENTRY_D, Order::CARRIER, Order::OL_CNT)))
        .piece(LINES, |piece| piece.read(&tables.order_line, Whole));
}

/// A Last-Order-Status's parameters.
#[derive(Debug)]
pub struct Input {
    /// The key of the district.
    pub(super) district: u64,
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_last_order_status(&self, client: &mut Client) -> Input {
        let warehouse = self.home(client);
        Input { district: district_key(warehouse, client.random.uniform(1, DISTRICTS)) }
    }

    /// Declares the district. The other rows depend on it.
    pub(super) fn last_order_status_rows(&self, input: &Input, declaration: &mut impl Declare) {
        declaration.row(&self.tables.district, input.district, false);
    }

    pub(super) fn last_order_status<T: Txn>(
        &self,
        tx: &mut T,
        client: &mut Client,
        input: &Input,
    ) -> Result<(), Abort> {
        let suspicion = &mut client.suspicion;
        let district = input.district;
        let next = tx.piece(NEXT, |tx| tx.read(&self.tables.district, district, District::NEXT_O_ID))?;
        let Some(next) = next else {
            *suspicion = Some(format!("Last-Order-Status found no district {district}"));
            return Ok(());
        };
        let order = order_key(district, next.saturating_sub(1));
        let columns = (Order::ENTRY_D, Order::CARRIER, Order::OL_CNT);
        let Some((entry_d, carrier, count)) = tx.piece(ORDER, |tx| tx.read(&self.tables.order, order, columns))? else {
            *suspicion = Some(format!(
                "Last-Order-Status found no order {order}, and its district says that the next number is {next}"
            ));
            return Ok(());
        };
        let (lines, amount) = tx.piece(LINES, |tx| {
            let (range, mut amount) = (line_key(order, 0)..=line_key(order, 15), 0i64);
            let table = &self.tables.order_line;
            let lines = tx.scan(table, range, usize::MAX, Direction::Forward, Whole, |_, line: OrderLine| {
                amount = amount.wrapping_add(line.amount);
                ControlFlow::Continue(())
            })?;
            Ok((lines, amount))
        })?;
        *suspicion = wrong_lines(order, lines, count);
        std::hint::black_box((entry_d, carrier, amount));
        Ok(())
    }
}
