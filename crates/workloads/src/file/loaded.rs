//! The keys of the rows that a file loads.

use std::collections::HashSet;

use contend_model::KeyWords;

use super::interpret::{Memory, key_of};
use super::program::ROW;
use super::{CHECKED_ROWS, Fill, Program};

/// The most rows of a table whose keys are counted.
const COUNTED_ROWS: u64 = 10_000_000;

/// Returns the values of the key of a loaded row.
pub(super) fn key_parts_of(program: &Program, table: usize, row: u64, memory: &mut Memory) -> Vec<i64> {
    let mut parts = vec![0; program.tables[table].key.len()];
    for (column, fill) in program.fills[table].iter().enumerate() {
        if let Some(part) = fill.part {
            fill.evaluate((table, column), row, memory);
            parts[part] = memory.frame[fill.from];
        }
    }
    parts
}

/// Visits the keys of the loaded rows of a table, each once.
pub(super) fn each_loaded_key(program: &Program, table: usize, visit: &mut dyn FnMut(KeyWords)) {
    let (rows, shape) = (program.rows[table], &program.tables[table].shape);
    // Of a few rows and of numbered ones no two have the same key.
    let may_repeat = rows > CHECKED_ROWS && !has_numbered_key(program, table);
    let (mut seen, mut memory) = (HashSet::new(), Memory::new(0, 1));
    for row in 0..rows {
        let parts = key_parts_of(program, table, row, &mut memory);
        let Some(key) = key_of(shape, parts.len(), |part| parts[part]) else { continue };
        if !may_repeat || seen.insert(key) {
            visit(key);
        }
    }
}

/// Returns the number of the rows of a table that loading keeps, or `None` if they are too many to
/// count.
pub(super) fn loaded_rows(program: &Program, table: usize) -> Option<u64> {
    if has_numbered_key(program, table) {
        return Some(program.rows[table]);
    }
    (program.rows[table] <= COUNTED_ROWS).then(|| {
        let mut rows = 0;
        each_loaded_key(program, table, &mut |_| rows += 1);
        rows
    })
}

/// Whether a column of the key is the number of the row, so that no two rows have one key.
fn has_numbered_key(program: &Program, table: usize) -> bool {
    let is_numbered = |fill: &Fill| fill.part.is_some() && fill.code.steps.is_empty() && fill.from == ROW;
    program.fills[table].iter().any(is_numbered)
}

/// Checks the keys of the first rows of each table.
///
/// # Errors
/// A key does not fit its columns, or two rows have one key.
pub(super) fn check_keys(program: &Program) -> Result<(), String> {
    let mut memory = Memory::new(0, 1);
    for (number, table) in program.tables.iter().enumerate().filter(|(_, table)| table.index_of.is_none()) {
        let mut seen = HashSet::new();
        for row in 0..program.rows[number].min(CHECKED_ROWS) {
            let parts = key_parts_of(program, number, row, &mut memory);
            let shown = || parts.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
            let Some(key) = key_of(&table.shape, parts.len(), |part| parts[part]) else {
                return Err(format!(
                    "[fill]: row {row} of {} has the key ({}), which its columns can't hold",
                    table.name,
                    shown()
                ));
            };
            if !seen.insert(key) {
                return Err(format!(
                    "[fill]: row {row} of {} has the key ({}), as a row before it",
                    table.name,
                    shown()
                ));
            }
        }
    }
    Ok(())
}
