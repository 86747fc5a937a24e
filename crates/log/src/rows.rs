//! What is known of the rows of a table while files are read, in no order, and at once.
//!
//! There may be many: so a row is a few words of one vector, and a hash table has nothing but their numbers; what is read next is somewhere else
//! each time. So writes are kept until there are some for the same part of a table: then the memory of all is asked for before the first is
//! looked at, and the wait is one.

use contend_engine::journal::Stamp;
use contend_engine::{Groups, KeyWords};
use contend_machine::{Machine, Native};
use parking_lot::Mutex;

use crate::format::Write;
use crate::schema::Schema;

/// A table is in so many parts, so that threads seldom meet.
pub(crate) const PARTS: usize = 64;
/// Writes of a part that are applied together.
const TOGETHER: usize = 32;

/// A hash of a key; its highest bits say the part.
fn hash_of(key: &[u64]) -> u64 {
    // As in rustc-hash; the highest bits depend on all.
    let mixed = key.iter().fold(0u64, |mixed, word| (mixed.rotate_left(26) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5));
    (mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn part_of(hash: u64) -> usize {
    (hash >> 58) as usize
}

const _: () = assert!(PARTS == 1 << (64 - 58));

/// The rows of a part of a table. Of each: the key; when it was deleted last; for each group the stamp of its last write, and one more (0: it was not
/// written); and the row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// At a key's hash, or behind it, its number, and one more; 0: there is none. At most half of them are used.
    slots: Vec<u32>,
    count: usize,
    words: Vec<u64>,
}

/// A row of these.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'r> {
    words: &'r [u64],
    groups: usize,
}

fn words_of_one(schema: &Schema) -> usize {
    schema.key_words + 1 + schema.groups.len() + schema.row_words
}

impl Rows {
    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// The number of the row of a key, and whether it is a new one.
    fn number(&mut self, hash: u64, key: &[u64], length: usize) -> (usize, bool) {
        let mut slot = self.slot(hash);
        loop {
            let Some(number) = (self.slots[slot] as usize).checked_sub(1) else {
                self.count += 1;
                self.slots[slot] = u32::try_from(self.count).expect("fewer than 2^32 rows of a part");
                return (self.count - 1, true);
            };
            if self.words[number * length..][..key.len()] == *key {
                return (number, false);
            }
            slot = (slot + 1) & (self.slots.len() - 1);
        }
    }

    /// Makes room for so many rows more.
    fn reserve(&mut self, more: usize, schema: &Schema) {
        let needed = 2 * (self.count + more);
        if needed <= self.slots.len() {
            return;
        }
        self.slots = vec![0; 2 * needed.next_power_of_two()];
        let length = words_of_one(schema);
        for (number, row) in (1..).zip(self.words.chunks_exact(length)) {
            let mut slot = self.slot(hash_of(&row[..schema.key_words]));
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = number;
        }
    }

    fn apply(&mut self, writes: &Pending, schema: &Schema) {
        self.reserve(writes.hashes.len(), schema);
        for &hash in &writes.hashes {
            Native::prefetch(&raw const self.slots[self.slot(hash)]);
        }
        let length = words_of_one(schema);
        for &hash in &writes.hashes {
            // Mostly the one: half of the slots are free.
            if let Some(number) = (self.slots[self.slot(hash)] as usize).checked_sub(1) {
                Native::prefetch_to_write(&raw const self.words[number * length]);
            }
        }
        for (&hash, write) in writes.hashes.iter().zip(writes.words.chunks_exact(length)) {
            let (key, written) = write.split_at(schema.key_words);
            let (number, is_new) = self.number(hash, key, length);
            if is_new {
                self.words.extend_from_slice(write);
                continue;
            }
            let known = &mut self.words[number * length + key.len()..][..written.len()];
            known[0] = known[0].max(written[0]);
            let rows = 1 + schema.groups.len();
            for (group, &(start, end)) in schema.groups.iter().enumerate() {
                if written[1 + group] > 0 && known[1 + group] <= written[1 + group] {
                    known[1 + group] = written[1 + group];
                    known[rows + start..rows + end].copy_from_slice(&written[rows + start..rows + end]);
                }
            }
        }
    }

    /// The rows that are known, those that were deleted among them.
    pub(crate) fn iter(&self, schema: &Schema) -> impl Iterator<Item = (KeyWords, Known<'_>)> {
        let (key_words, groups) = (schema.key_words, schema.groups.len());
        self.words.chunks_exact(words_of_one(schema)).map(move |words| {
            let mut key = KeyWords::default();
            key[..key_words].copy_from_slice(&words[..key_words]);
            (key, Known { words: &words[key_words..], groups })
        })
    }
}

impl<'r> Known<'r> {
    /// When it was deleted last; 0, if it was not.
    pub(crate) fn deleted(self) -> Stamp {
        Stamp(self.words[0])
    }

    /// The last write of a group, if there was one.
    pub(crate) fn written(self, group: usize) -> Option<Stamp> {
        self.words[1 + group].checked_sub(1).map(Stamp)
    }

    pub(crate) fn row(self) -> &'r [u64] {
        &self.words[1 + self.groups..]
    }

    pub(crate) fn is_there(self) -> bool {
        // An insert has all groups, and comes after the deletion, if there was one.
        let is_later = |stamp: Stamp| stamp > self.deleted() || self.deleted() == Stamp(0);
        (0..self.groups).all(|group| self.written(group).is_some_and(is_later))
    }
}

/// Writes of a part that are to be applied: their keys' hashes, and what would be known if nothing else were.
#[derive(Debug, Default)]
struct Pending {
    hashes: Vec<u64>,
    words: Vec<u64>,
}

/// What a thread has read, and not applied yet.
#[derive(Debug)]
pub(crate) struct Reader<'t> {
    schemas: &'t [Schema],
    tables: &'t [Vec<Mutex<Rows>>],
    /// By table, and part.
    pending: Vec<Vec<Pending>>,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(schemas: &'t [Schema], tables: &'t [Vec<Mutex<Rows>>]) -> Self {
        let parts = |_| (0..PARTS).map(|_| Pending::default()).collect();
        Reader { schemas, tables, pending: tables.iter().map(parts).collect() }
    }

    pub(crate) fn add(&mut self, write: &Write<'_>) {
        let table = write.table as usize;
        let schema = &self.schemas[table];
        let key = &write.key[..schema.key_words];
        let hash = hash_of(key);
        let pending = &mut self.pending[table][part_of(hash)];
        pending.hashes.push(hash);
        pending.words.extend_from_slice(key);
        let begin = pending.words.len();
        pending.words.push(if write.row.is_none() { write.stamp.0 } else { 0 });
        let groups = write.row.map_or(Groups::NONE, |(groups, _)| groups);
        let stamps = (0..schema.groups.len() as u32)
            .map(|group| if groups.contains(Groups::of(group)) { write.stamp.0 + 1 } else { 0 });
        pending.words.extend(stamps);
        match write.row {
            Some((_, row)) => pending.words.extend_from_slice(&row[..schema.row_words]),
            None => pending.words.resize(begin + 1 + schema.groups.len() + schema.row_words, 0),
        }
        if pending.hashes.len() == TOGETHER {
            self.tables[table][part_of(hash)].lock().apply(pending, schema);
            pending.hashes.clear();
            pending.words.clear();
        }
    }

    /// Applies the rest.
    pub(crate) fn finish(self) {
        for ((schema, parts), pending) in self.schemas.iter().zip(self.tables).zip(&self.pending) {
            for (part, pending) in parts.iter().zip(pending).filter(|(_, pending)| !pending.hashes.is_empty()) {
                part.lock().apply(pending, schema);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rand::rngs::SmallRng;
    use rand::seq::SliceRandom;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Writes in any order, of whole rows, parts, and deletions: the last of each part counts.
    #[test]
    fn the_last_write_of_each_group_counts() {
        let schema = Schema {
            name: "t".to_owned(),
            key_words: 2,
            row_words: 3,
            groups: vec![(0, 1), (1, 3)],
            ordered: true,
            columns: String::new(),
        };
        let random = &mut SmallRng::seed_from_u64(1);
        for rows in [1, 40, 3000] {
            let mut writes: Vec<(KeyWords, u64, Option<Groups>)> = (1..4 * rows)
                .map(|stamp| {
                    let groups = [Some(Groups::ALL), Some(Groups::of(0)), Some(Groups::of(1)), None];
                    ([7, random.random_range(0..rows), 0, 0], stamp, groups[random.random_range(0..4)])
                })
                .collect();
            // By key: when it was deleted last, and of each group the last stamp.
            let mut expected: BTreeMap<KeyWords, (u64, [u64; 2])> = BTreeMap::new();
            for &(key, stamp, groups) in &writes {
                let (deleted, written) = expected.entry(key).or_default();
                match groups {
                    None => *deleted = stamp,
                    Some(groups) => {
                        groups.common(Groups::first(2)).into_iter().for_each(|group| written[group] = stamp)
                    }
                }
            }
            writes.shuffle(random);
            let schemas = [schema.clone()];
            let tables = [(0..PARTS).map(|_| Mutex::default()).collect::<Vec<_>>()];
            let half = writes.len() / 2;
            for writes in [&writes[..half], &writes[half..]] {
                let mut reader = Reader::new(&schemas, &tables);
                for &(key, stamp, groups) in writes {
                    // As it is read: of groups that were not written there is nothing.
                    let [first, second] =
                        [0, 1].map(|group| u64::from(groups.is_some_and(|all| all.contains(Groups::of(group)))));
                    let row = [first * stamp, second * stamp, second * stamp];
                    let row = groups.map(|groups| (groups, &row[..]));
                    reader.add(&Write { table: 0, key, stamp: Stamp(stamp), row });
                }
                reader.finish();
            }
            let mut found = BTreeMap::new();
            for part in &tables[0] {
                for (key, known) in part.lock().iter(&schema) {
                    let written = [0, 1].map(|group| known.written(group).map_or(0, |stamp| stamp.0));
                    assert_eq!(known.row(), [written[0], written[1], written[1]]);
                    let is_there = written.iter().all(|stamp| *stamp > known.deleted().0);
                    assert_eq!(known.is_there(), is_there);
                    assert_eq!(found.insert(key, (known.deleted().0, written)), None);
                }
            }
            assert_eq!(found, expected);
        }
    }
}
