//! What is known of the rows of a table while files are read, in no order, and at once.
//!
//! There may be many: so a row is a few words of one vector, and a hash table has nothing but their numbers; what is read next is somewhere else
//! each time. So writes are kept until there are some for the same part of a table: then the memory of all is asked for before the first is
//! looked at, and the wait is one.

use contend_engine::Groups;
use contend_engine::journal::Stamp;
use contend_machine::{Machine, Native};
use parking_lot::Mutex;

use crate::format::{Change, Write};
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

/// Set in the stamp of a group of which is known what was added to it, and not to what.
const SUM: u64 = 1 << 63;

/// The rows of a part of a table. Of each: the key; when it was deleted last; for each group the stamp of its last write, and one more (0: it was not
/// written), and perhaps [`SUM`]; and the row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// At a key's hash, or behind it, its number, and one more; 0: there is none. At most half of them are used.
    slots: Vec<u32>,
    count: usize,
    words: Vec<u64>,
    /// All writes, if their order is to be checked.
    traced: Vec<Traced>,
}

/// A write, as far as the order of a row's writes is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Traced {
    /// The row's number.
    number: u32,
    stamp: u64,
    step: Step,
}

/// What a write means for the order. Of writes with one stamp those that add to the row come last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// There was no row, and now there is one.
    Insert,
    /// There was a row, and there is one still.
    Update,
    /// There was a row, and now there is none.
    Delete,
    /// A checkpoint's row, or part of a row: what was there before it is not known any more.
    Kept,
    /// A checkpoint's deletion: likewise.
    Gone,
    /// There was a row, and there is one still.
    Add,
}

impl Step {
    /// `epoch` is that of the write's block; 0: of a checkpoint.
    fn of(change: &Change<'_>, epoch: u64) -> Self {
        match change {
            Change::Delete if epoch == 0 => Step::Gone,
            Change::Put(..) | Change::Add(_) if epoch == 0 => Step::Kept,
            Change::Insert(_) => Step::Insert,
            Change::Put(..) => Step::Update,
            Change::Delete => Step::Delete,
            Change::Add(_) => Step::Add,
        }
    }
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
        let mut steps = writes.steps.iter();
        for (&hash, write) in writes.hashes.iter().zip(writes.words.chunks_exact(length)) {
            let (key, written) = write.split_at(schema.key_words);
            let (number, is_new) = self.number(hash, key, length);
            if let Some(&(stamp, step)) = steps.next() {
                self.traced.push(Traced { number: number as u32, stamp: stamp.0, step });
            }
            if is_new {
                self.words.extend_from_slice(write);
                continue;
            }
            let known = &mut self.words[number * length + key.len()..][..written.len()];
            known[0] = known[0].max(written[0]);
            let rows = 1 + schema.groups.len();
            for (group, &(start, end)) in schema.groups.iter().enumerate() {
                let (old, new) = (known[1 + group], written[1 + group]);
                let (known_words, words) = (&mut known[rows + start..rows + end], &written[rows + start..rows + end]);
                if new & !SUM > old & !SUM || new == old && new & SUM == 0 {
                    known[1 + group] = new;
                    known[rows + start..rows + end].copy_from_slice(words);
                } else if new & !SUM == old & !SUM {
                    // One of them is a sum, or both.
                    known_words.iter_mut().zip(words).for_each(|(known, by)| *known = known.wrapping_add(*by));
                    known[1 + group] = old & new;
                }
            }
        }
    }

    /// Whether the writes of each row, by their stamps, can have happened: an insert where there is no row, all else where there is one. If not, the
    /// key's words, and what is wrong. `begins_empty` says that the log has all writes since there were no rows. The writes must have been traced.
    ///
    /// Only the order that inserts and deletions are in with all other writes of a row is looked at: the stamps of two groups of columns are
    /// in no order.
    pub(crate) fn find_disorder(&mut self, schema: &Schema, begins_empty: bool) -> Option<(&[u64], String)> {
        let mut traced = std::mem::take(&mut self.traced);
        traced.sort_unstable();
        let mut rows = traced.chunk_by(|one, other| one.number == other.number);
        let (number, why) = rows.find_map(|row| Some((row[0].number, disorder(row, begins_empty)?)))?;
        Some((&self.words[number as usize * words_of_one(schema)..][..schema.key_words], why))
    }

    /// The rows that are known, with their keys, those that were deleted among them.
    pub(crate) fn iter(&self, schema: &Schema) -> impl Iterator<Item = (&[u64], Known<'_>)> {
        let (key_words, groups) = (schema.key_words, schema.groups.len());
        self.words.chunks_exact(words_of_one(schema)).map(move |words| {
            let (key, words) = words.split_at(key_words);
            (key, Known { words, groups })
        })
    }
}

/// What is wrong with the order of a row's writes.
fn disorder(writes: &[Traced], begins_empty: bool) -> Option<String> {
    // Of the writes before a checkpoint's some are not known any more.
    let is_of_checkpoint = |write: &Traced| matches!(write.step, Step::Kept | Step::Gone);
    let (mut is_there, first) = match writes.iter().rposition(is_of_checkpoint) {
        Some(last) => (Some(writes[last].step == Step::Kept), last + 1),
        None if begins_empty => (Some(false), 0),
        None => (None, 0),
    };
    for &Traced { stamp, step, .. } in &writes[first..] {
        let (needs, leaves) = match step {
            Step::Insert => (false, true),
            Step::Update | Step::Add => (true, true),
            Step::Delete => (true, false),
            Step::Kept | Step::Gone => unreachable!("the last of these came before"),
        };
        if is_there.is_some_and(|is_there| is_there != needs) {
            let was = if is_there == Some(true) { "a row" } else { "no row" };
            return Some(format!("by their stamps, one that is of the kind '{step:?}' (stamp {stamp}) finds {was}"));
        }
        is_there = Some(leaves);
    }
    None
}

impl<'r> Known<'r> {
    /// When it was deleted last; 0, if it was not.
    pub(crate) fn deleted(self) -> Stamp {
        Stamp(self.words[0])
    }

    /// The last write of a group, if there was one.
    pub(crate) fn written(self, group: usize) -> Option<Stamp> {
        (self.words[1 + group] & !SUM).checked_sub(1).map(Stamp)
    }

    /// Whether it is known of a group only what was added since that write.
    pub(crate) fn is_sum(self, group: usize) -> bool {
        self.words[1 + group] & SUM != 0
    }

    /// Whether there is a sum, and what was added to is not there, nor deleted.
    pub(crate) fn lacks_base(self) -> bool {
        (0..self.groups).any(|group| self.is_sum(group) && self.written(group) > Some(self.deleted()))
    }

    pub(crate) fn row(self) -> &'r [u64] {
        &self.words[1 + self.groups..]
    }

    pub(crate) fn is_there(self) -> bool {
        // An insert has all groups, and comes after the deletion, if there was one.
        let is_later = |stamp: Stamp| stamp > self.deleted() || self.deleted() == Stamp(0);
        (0..self.groups).all(|group| !self.is_sum(group) && self.written(group).is_some_and(is_later))
    }
}

/// Writes of a part that are to be applied: their keys' hashes, and what would be known if nothing else were.
#[derive(Debug, Default)]
struct Pending {
    hashes: Vec<u64>,
    words: Vec<u64>,
    /// If the order of writes is to be checked.
    steps: Vec<(Stamp, Step)>,
}

/// What a thread has read, and not applied yet.
#[derive(Debug)]
pub(crate) struct Reader<'t> {
    schemas: &'t [Schema],
    tables: &'t [Vec<Mutex<Rows>>],
    /// By table, and part.
    pending: Vec<Vec<Pending>>,
    /// Whether all writes are kept, for [`Rows::find_disorder`].
    traces: bool,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(schemas: &'t [Schema], tables: &'t [Vec<Mutex<Rows>>], traces: bool) -> Self {
        let parts = |_| (0..PARTS).map(|_| Pending::default()).collect();
        Reader { schemas, tables, pending: tables.iter().map(parts).collect(), traces }
    }

    /// Takes a write of a block of this epoch; 0: of a checkpoint.
    pub(crate) fn add(&mut self, epoch: u64, write: &Write<'_>) {
        let table = write.table as usize;
        let schema = &self.schemas[table];
        let key = write.key;
        let hash = hash_of(key);
        let pending = &mut self.pending[table][part_of(hash)];
        pending.hashes.push(hash);
        pending.words.extend_from_slice(key);
        if self.traces {
            pending.steps.push((write.stamp, Step::of(&write.change, epoch)));
        }
        let (deleted, groups, sum) = match write.change {
            Change::Delete => (write.stamp.0, Groups::NONE, 0),
            Change::Insert(_) => (0, Groups::ALL, 0),
            Change::Put(groups, _) => (0, groups, 0),
            Change::Add(additions) => (0, schema.groups_of(additions.iter().map(|added| added.word as usize)), SUM),
        };
        pending.words.push(deleted);
        let stamps = (0..schema.groups.len() as u32)
            .map(|group| if groups.contains(Groups::of(group)) { (write.stamp.0 + 1) | sum } else { 0 });
        pending.words.extend(stamps);
        let row = pending.words.len();
        match write.change {
            Change::Insert(words) | Change::Put(_, words) => {
                pending.words.extend_from_slice(&words[..schema.row_words])
            }
            _ => pending.words.resize(row + schema.row_words, 0),
        }
        if let Change::Add(additions) = write.change {
            for added in additions {
                let word = &mut pending.words[row + added.word as usize];
                *word = word.wrapping_add(added.by);
            }
        }
        if pending.hashes.len() == TOGETHER {
            self.tables[table][part_of(hash)].lock().apply(pending, schema);
            pending.hashes.clear();
            pending.words.clear();
            pending.steps.clear();
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

    use contend_engine::journal::Addition;

    use super::*;
    use crate::schema::Form;

    #[derive(Clone, Copy)]
    enum Kind {
        Put(Groups),
        Add(Addition),
        Delete,
    }

    /// Writes in any order, of whole rows, parts, and deletions: the last of each part counts, and what was added to it.
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
            // By key: when it was deleted last, of each group the last stamp, and what was added to each word since.
            let mut expected: BTreeMap<[u64; 2], (u64, [u64; 2], [u64; 3])> = BTreeMap::new();
            let mut writes = Vec::new();
            for stamp in 1..8 * rows {
                let key = [7, random.random_range(0..rows)];
                let (deleted, written, added) = expected.entry(key).or_default();
                let mut put = |groups: Groups| {
                    for group in groups.common(Groups::first(2)) {
                        written[group] = stamp;
                        added[schema.groups[group].0..schema.groups[group].1].fill(0);
                    }
                    Kind::Put(groups)
                };
                let kind = match random.random_range(0..8) {
                    0 => put(Groups::ALL),
                    1 => put(Groups::of(0)),
                    2 => put(Groups::of(1)),
                    3 => {
                        *deleted = stamp;
                        Kind::Delete
                    }
                    _ => {
                        let word = random.random_range(0..3);
                        let of = written[word.min(1)];
                        if of > 0 {
                            let by = random.random();
                            added[word] = added[word].wrapping_add(by);
                            writes.push((key, of, Kind::Add(Addition { word: word as u32, by })));
                        }
                        continue;
                    }
                };
                writes.push((key, stamp, kind));
            }
            writes.shuffle(random);
            let schemas = [schema.clone()];
            let tables = [(0..PARTS).map(|_| Mutex::default()).collect::<Vec<_>>()];
            let half = writes.len() / 2;
            for writes in [&writes[..half], &writes[half..]] {
                let mut reader = Reader::new(&schemas, &tables, false);
                for &(key, stamp, kind) in writes {
                    // As it is read: of groups that were not written there is nothing.
                    let mut row = [0; 3];
                    let additions;
                    let change = match kind {
                        Kind::Put(groups) => {
                            schema.words(groups).flatten().for_each(|word| row[word] = stamp);
                            Change::Put(groups, &row)
                        }
                        Kind::Delete => Change::Delete,
                        Kind::Add(addition) => {
                            additions = [addition];
                            Change::Add(&additions)
                        }
                    };
                    reader.add(1, &Write { table: 0, key: &key, stamp: Stamp(stamp), change });
                }
                reader.finish();
            }
            let mut found = 0;
            for part in &tables[0] {
                for (key, known) in part.lock().iter(&schema) {
                    let (deleted, expected, added) = expected[key];
                    let written = [0, 1].map(|group| known.written(group).map_or(0, |stamp| stamp.0));
                    assert_eq!((known.deleted().0, written), (deleted, expected));
                    let row = [0, 1, 2].map(|word: usize| written[word.min(1)].wrapping_add(added[word]));
                    assert_eq!(known.row(), row);
                    assert!(!known.lacks_base());
                    assert_eq!(known.is_there(), written.iter().all(|stamp| *stamp > deleted));
                    found += 1;
                }
            }
            let there = |(deleted, written, _): &&(u64, [u64; 2], [u64; 3])| *deleted > 0 || *written != [0, 0];
            assert_eq!(found, expected.values().filter(there).count());
        }
    }

    /// Of every row the writes are an insert, updates, a deletion, and so on. An order in which one of these is not possible is noticed, and no other.
    #[test]
    fn an_order_that_can_not_be_is_noticed() {
        use Step::{Add, Delete, Gone, Insert, Kept, Update};
        let order = |steps: &[Step], begins_empty| {
            let traced = |(stamp, &step)| Traced { number: 0, stamp, step };
            disorder(&(1..).zip(steps).map(traced).collect::<Vec<_>>(), begins_empty).is_none()
        };
        for right in [
            &[][..],
            &[Insert],
            &[Insert, Update, Add, Delete, Insert, Delete],
            &[Delete, Insert, Kept],
            &[Insert, Insert, Gone, Insert, Add],
            &[Update, Delete, Delete, Kept, Delete],
        ] {
            assert!(order(right, true), "{right:?}");
        }
        for wrong in [&[Insert, Insert][..], &[Insert, Delete, Delete], &[Insert, Delete, Update], &[Kept, Insert]] {
            assert!(!order(wrong, true) && !order(wrong, false), "{wrong:?}");
        }
        // What a log begins with that does not have all writes is not known.
        for later in [&[Update, Delete, Insert][..], &[Delete], &[Add]] {
            assert!(order(later, false) && !order(later, true), "{later:?}");
        }
    }

    /// What was added to something that is not there is noticed, unless the row was deleted later.
    #[test]
    fn what_was_added_to_is_missed() {
        let schema = Schema {
            name: "t".to_owned(),
            key_words: 1,
            row_words: 2,
            groups: vec![(0, 2)],
            ordered: true,
            columns: String::new(),
        };
        let additions = [Addition { word: 1, by: 5 }];
        let known = |writes: &[(u64, Change<'_>)]| {
            let (schemas, tables) = ([schema.clone()], [(0..PARTS).map(|_| Mutex::default()).collect::<Vec<_>>()]);
            let mut reader = Reader::new(&schemas, &tables, false);
            for &(stamp, change) in writes {
                reader.add(1, &Write { table: 0, key: &[0], stamp: Stamp(stamp), change });
            }
            reader.finish();
            let mut rows = tables[0].iter().flat_map(|part| {
                let part = part.lock();
                part.iter(&schema).map(|(_, row)| (row.is_there(), row.lacks_base())).collect::<Vec<_>>()
            });
            rows.next().expect("there is a row")
        };
        let (add, put) = (Change::Add(&additions), Change::Put(Groups::ALL, &[1, 2]));
        assert_eq!(known(&[(3, add)]), (false, true));
        assert_eq!(known(&[(3, add), (2, put)]), (false, true));
        assert_eq!(known(&[(3, add), (3, put)]), (true, false));
        assert_eq!(known(&[(3, add), (4, put)]), (true, false));
        assert_eq!(known(&[(3, add), (4, Change::Delete)]), (false, false));
        assert_eq!(known(&[(3, add), (2, Change::Delete)]), (false, true));
    }
}
