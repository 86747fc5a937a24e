//! The tables by the addresses of their memory: how the address of a cell or of a leaf leads to its
//! table.

use contend_machine::Machine;

use super::{ConflictPlace, ConflictRow};
use crate::catalog::Catalog;

/// A piece of the memory of a table.
#[derive(Clone, Copy, Debug)]
struct Piece {
    start: u64,
    end: u64,
    table: u32,
    /// The shape of the records that fill the piece from its start on. `None` if it holds leaves of
    /// the table's index.
    records: Option<RecordShape>,
}

/// Where the cells of a record are, in bytes.
#[derive(Clone, Copy, Debug)]
struct RecordShape {
    slot: u64,
    cell: u64,
    cells: u64,
}

/// The memory of all tables, as far as a worker has seen it. It is looked up again when an address
/// is in none of its pieces: tables grow, and their memory never leaves them. The copy spares a
/// worker that aborts a look at the list of tables, whose lock all workers share.
#[derive(Debug, Default)]
pub(crate) struct MemoryMap {
    /// By address. No two of them overlap.
    pieces: Vec<Piece>,
}

impl MemoryMap {
    /// Returns the place of a conflict at the cell or the leaf at this address.
    pub(crate) fn place_of<M: Machine>(&mut self, address: u64, catalog: &Catalog<M>) -> Option<ConflictPlace> {
        let Piece { start, table, records, .. } = match self.find(address) {
            Some(piece) => piece,
            None => {
                self.look_up(catalog);
                self.find(address)?
            }
        };
        let Some(RecordShape { slot, cell, cells }) = records else {
            return Some(ConflictPlace { table, group: None, row: ConflictRow::Gap });
        };
        let within = (address - start) % slot;
        let number = within / cell;
        let group = (cells > 1).then_some(number as u32);
        (number < cells).then_some(ConflictPlace { table, group, row: ConflictRow::Record(address - within) })
    }

    fn find(&self, address: u64) -> Option<Piece> {
        let behind = self.pieces.partition_point(|piece| piece.start <= address);
        self.pieces[..behind].last().copied().filter(|piece| address < piece.end)
    }

    #[cold]
    fn look_up<M: Machine>(&mut self, catalog: &Catalog<M>) {
        self.pieces.clear();
        for table in catalog.read().iter() {
            let core = table.core();
            let (slot, cell, cells) = (core.slabs().slot_bytes() as u64, core.cell_bytes(), core.cell_count() as u64);
            let mut add = |memory: std::ops::Range<usize>, records| {
                let (start, end) = (memory.start as u64, memory.end as u64);
                self.pieces.push(Piece { start, end, table: core.id(), records });
            };
            let shape = Some(RecordShape { slot, cell, cells });
            core.slabs().memory().into_iter().for_each(|memory| add(memory, shape));
            table.leaf_memory().into_iter().for_each(|memory| add(memory, None));
        }
        self.pieces.sort_unstable_by_key(|piece| piece.start);
    }
}
