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

/// Makes sums of units contended that a piece changes together with contended units of the same
/// table: both may be of one row, and then they are shown together.
fn tie(types: &TypeSet, counts: impl Fn(usize) -> bool, classes: &mut [Vec<Class>]) {
    loop {
        let mut is_done = true;
        for (_, of) in types.types.iter().enumerate().filter(|(of, _)| counts(*of)) {
            for piece in &of.pieces {
                let changes = || piece.accesses.iter().filter(|access| access.mode.changes());
                for access in changes() {
                    let of_table = changes().filter(|other| other.table == access.table);
                    let mut cells = of_table.flat_map(|other| types.groups_of(other));
                    if !cells.any(|cell| classes[access.table][cell] == Class::Contended) {
                        continue;
                    }
                    for cell in types.groups_of(access) {
                        let class = &mut classes[access.table][cell];
                        is_done &= *class != Class::Sum;
                        *class = Class::Contended;
                    }
                }
            }
        }
        if is_done {
            return;
        }
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
    let class_of = |cells: &Vec<Modes>| {
        // A row is inserted in all cells. So a reader of one cell conflicts with the insert, and
        // then the insert needs its place in the order of all.
        let appended = appends && cells.iter().all(|modes| modes.are_among(&[Mode::Insert, Mode::Settled]));
        let class = |modes: &Modes| match modes {
            Modes(0) => Class::Unused,
            _ if modes.are_among(&[Mode::Read, Mode::Settled]) => Class::Constant,
            _ if modes.are_among(&[Mode::Update]) => Class::Sum,
            _ if appended => Class::Append,
            _ => Class::Contended,
        };
        cells.iter().map(class).collect()
    };
    let mut classes: Vec<Vec<Class>> = modes.iter().map(class_of).collect();
    tie(types, counts, &mut classes);
    let of_table = |(table, classes): (usize, Vec<Class>)| {
        classes.into_iter().enumerate().map(move |(cell, class)| UnitClass { table, cell, class })
    };
    classes.into_iter().enumerate().flat_map(of_table).collect()
}
