//! Loading of numbered units (records, accounts, customers) by several loaders.

use std::ops::{ControlFlow, Range};

use contend_model::{Key, Load, OutOfMemory, Row, TypedTable};

/// Loads a row.
///
/// # Errors
/// The machine has no more memory.
pub(crate) fn put<R: Row, K: Key, L: Load>(
    loader: &mut L,
    table: &TypedTable<R, K>,
    key: K,
    row: R,
) -> Result<(), OutOfMemory> {
    loader.insert(table, key, |words| *R::from_words_mut(words) = row).map(drop)
}

/// Loads part `part` of `parts` of the units below `units`, in ranges of `step` units at most.
///
/// `load` loads a range. Then `done` is called with the length of the range, and loading stops
/// early if it breaks.
///
/// # Errors
/// Those of `load`.
pub(crate) fn load_in_steps(
    units: u64,
    part: usize,
    parts: usize,
    step: u64,
    done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    mut load: impl FnMut(Range<u64>) -> Result<(), OutOfMemory>,
) -> Result<(), OutOfMemory> {
    let bound = |part: usize| (u128::from(units) * part as u128 / parts as u128) as u64;
    let (mut next, end) = (bound(part), bound(part + 1));
    while next < end {
        let range = next..end.min(next + step);
        next = range.end;
        let loaded = range.end - range.start;
        load(range)?;
        if done(loaded).is_break() {
            break;
        }
    }
    Ok(())
}
