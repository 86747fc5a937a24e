//! The newest rows of a table, for `latest`.

use super::draws::{scattered, step_of};

/// The most inserted rows that a worker remembers of a table.
const REMEMBERED_MAX: u64 = 1 << 16;

/// The keys of a table's rows by age, as one worker knows them: the rows that it has inserted, the
/// last one first, and then the loaded rows.
///
/// As YCSB has it, there are as many ranks as loaded rows. So each inserted row pushes the oldest
/// one out. Loaded rows have no age: one of them is as new as its number, scattered over the table.
#[derive(Debug, Default)]
pub(super) struct Recent {
    /// The inserted keys: a ring. It is empty if no script asks for the table's newest rows.
    keys: Vec<i64>,
    /// All that were inserted. The ring holds the last of them.
    inserted: u64,
    loaded: u64,
    step: u64,
}

impl Recent {
    /// Returns the rows of a table of which this number was loaded, 1 or more.
    pub(super) fn new(loaded: u64) -> Recent {
        let keys = vec![0; loaded.min(REMEMBERED_MAX) as usize];
        Recent { keys, inserted: 0, loaded, step: step_of(loaded) }
    }

    /// Notes the key of a row that was inserted.
    pub(super) fn push(&mut self, key: i64) {
        let ring = self.keys.len() as u64;
        self.keys[(self.inserted % ring) as usize] = key;
        self.inserted += 1;
    }

    /// Returns the key of the row of this rank, below the number of loaded rows.
    #[inline]
    pub(super) fn key(&self, rank: u64) -> i64 {
        let ring = self.keys.len() as u64;
        let held = self.inserted.min(ring);
        if rank < held {
            self.keys[((self.inserted - 1 - rank) % ring) as usize]
        } else {
            scattered(rank - held, self.loaded, self.step)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserted_rows_are_newer_than_loaded_ones() {
        let mut recent = Recent::new(10);
        let mut loaded: Vec<i64> = (0..10).map(|rank| recent.key(rank)).collect();
        let first = loaded[0];
        loaded.sort_unstable();
        assert_eq!(loaded, (0..10).collect::<Vec<_>>(), "each loaded row has an age");
        for key in 100..103 {
            recent.push(key);
        }
        assert_eq!([0, 1, 2, 3].map(|rank| recent.key(rank)), [102, 101, 100, first]);
        (103..200).for_each(|key| recent.push(key));
        let all: Vec<i64> = (0..10).map(|rank| recent.key(rank)).collect();
        assert_eq!(all, (190..200).rev().collect::<Vec<_>>(), "the oldest are pushed out");
    }

    #[test]
    fn a_table_of_one_row_has_a_newest() {
        let mut recent = Recent::new(1);
        assert_eq!(recent.key(0), 0);
        recent.push(7);
        assert_eq!(recent.key(0), 7);
    }
}
