//! Reservations of keys that have no row.
//!
//! A gap is a range of the keys of a table. There are two kinds: the keys that agree in all but
//! their last [`LOW_BITS`] bits, and all keys of a table. A scan, or a miss, reads the smallest gap
//! that contains its range. An insert fills both gaps around its key. So a scan and an insert into
//! its range always meet, and what they meet in depends on the keys only.
//!
//! The gaps' reservations stand in a table by hash, where two gaps may share an entry. That costs
//! a needless conflict now and then. It is the same one wherever the input runs.

use std::array;

use contend_machine::{Atomic64, Block, Machine};
use contend_model::random::mix;

/// The bits of a key's last word in which the keys of a gap may differ.
const LOW_BITS: u32 = 16;
/// The number of entries of the table.
const ENTRIES: usize = 4096;

/// A gap, by its entry in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gap(usize);

/// The reservations of all gaps.
#[derive(Debug)]
pub(super) struct Gaps<M: Machine>(Block<M, [M::U64; 2]>);

impl<M: Machine> Default for Gaps<M> {
    fn default() -> Self {
        Gaps(Block::new(ENTRIES, |_| array::from_fn(|_| M::U64::new(0))))
    }
}

/// Returns the gap of all keys of a table.
fn of_table(table: u32) -> Gap {
    entry(u64::from(table) << 1 | 1)
}

/// Returns the gap of the keys that agree with this one in all but the low bits.
fn of_prefix(table: u32, key: &[u64]) -> Gap {
    let (last, others) = key.split_last().expect("a key has a word");
    let hash = others.iter().fold(u64::from(table) << 1, |hash, word| mix(hash ^ *word));
    entry(mix(hash) ^ last >> LOW_BITS)
}

fn entry(hash: u64) -> Gap {
    Gap(mix(hash) as usize % ENTRIES)
}

impl<M: Machine> Gaps<M> {
    /// Returns the smallest gap that contains all keys from `low` to `high`.
    pub(super) fn of_range(&self, table: u32, low: &[u64], high: &[u64]) -> Gap {
        let last = low.len() - 1;
        let is_one = low[..last] == high[..last] && low[last] >> LOW_BITS == high[last] >> LOW_BITS;
        if is_one { of_prefix(table, low) } else { of_table(table) }
    }

    /// Returns the gaps that contain a key.
    pub(super) fn around(&self, table: u32, key: &[u64]) -> [Gap; 2] {
        [of_prefix(table, key), of_table(table)]
    }

    /// Returns the word of the gap's write reservation.
    pub(super) fn writer(&self, gap: Gap) -> &M::U64 {
        &self.0[gap.0][0]
    }

    /// Returns the word of the gap's read reservation.
    pub(super) fn reader(&self, gap: Gap) -> &M::U64 {
        &self.0[gap.0][1]
    }
}

#[cfg(test)]
mod tests {
    use contend_machine::Native;

    use super::*;

    #[test]
    fn a_range_and_a_key_in_it_share_a_gap() {
        let gaps = Gaps::<Native>::default();
        for (low, key, high) in
            [(0, 0, 0), (5, 6, 7), (0, 70_000, 70_001), (1 << 16, 1 << 16, u64::MAX), (0, 9, u64::MAX)]
        {
            let range = gaps.of_range(3, &[low], &[high]);
            assert!(gaps.around(3, &[key]).contains(&range), "{low} {key} {high}");
        }
        let range = gaps.of_range(1, &[7, 0], &[7, 9]);
        assert!(gaps.around(1, &[7, 5]).contains(&range) && !gaps.around(1, &[8, 5]).contains(&range));
        assert!(gaps.around(1, &[8, 5]).contains(&gaps.of_range(1, &[7, 0], &[9, 0])));
        assert!(!gaps.around(2, &[7, 5]).contains(&range), "of another table");
    }
}
