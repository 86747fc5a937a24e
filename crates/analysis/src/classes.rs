//! Classes of units: what a protocol has to do for the accesses to a cell.

use serde::Serialize;

use contend_model::pieces::{Mode, TypeSet};

/// The class of a unit, which is a cell of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// No type accesses it.
    Unused,
    /// It is only read, so its readers need no protection.
    Constant,
    /// It is only changed by updates that commute, so their order does not matter.
    Sum,
    /// Rows are only inserted, in all cells of the table, and read once they are settled.
    Append,
    /// Accesses to it conflict: they need one order.
    Contended,
}

/// A unit with its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct UnitClass {
    /// The table, by its position.
    pub table: usize,
    /// The cell.
    pub cell: usize,
    /// The class.
    pub class: Class,
}

/// A set of modes, one bit each.
#[derive(Clone, Copy, Default)]
struct Modes(u8);

impl Modes {
    fn add(&mut self, mode: Mode) {
        self.0 |= 1 << mode as u8;
    }

    /// Whether there is a mode, and no other than these.
    fn are_among(self, modes: &[Mode]) -> bool {
        let mut among = Modes::default();
        modes.iter().for_each(|mode| among.add(*mode));
        self.0 != 0 && self.0 & !among.0 == 0
    }
}

/// Returns the class of each unit, in the order of tables and cells. `counts` says whether the
/// accesses of a type count, given its position: those of a type that runs on a snapshot don't.
/// With `appends`, tables that are only appended to have a class of their own.
pub(crate) fn classes(types: &TypeSet, appends: bool, counts: impl Fn(usize) -> bool) -> Vec<UnitClass> {
    let mut modes: Vec<Vec<Modes>> = types.tables.iter().map(|table| vec![Modes::default(); table.groups]).collect();
    for ((of, _), access) in types.accesses().filter(|((of, _), _)| counts(*of)) {
        debug_assert!(of < types.types.len());
        types.groups_of(access).into_iter().for_each(|cell| modes[access.table][cell].add(access.mode));
    }
    let mut classes = Vec::new();
    for (table, cells) in modes.iter().enumerate() {
        // A row is inserted in all cells. So a reader of one cell conflicts with the insert, and
        // then the insert needs its place in the order of all.
        let appended = appends && cells.iter().all(|modes| modes.are_among(&[Mode::Insert, Mode::Settled]));
        for (cell, modes) in cells.iter().enumerate() {
            let class = match modes {
                Modes(0) => Class::Unused,
                _ if modes.are_among(&[Mode::Read, Mode::Settled]) => Class::Constant,
                _ if modes.are_among(&[Mode::Update]) => Class::Sum,
                _ if appended => Class::Append,
                _ => Class::Contended,
            };
            classes.push(UnitClass { table, cell, class });
        }
    }
    classes
}
