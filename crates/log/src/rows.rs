//! The last known write of each row, while several threads read files in no order.
//!
//! There may be many rows. So a row is a few words of one vector, and a hash table has only the
//! numbers of rows; each look-up misses the cache. To overlap the misses, writes are kept until
//! there are some for the same part of a table. Then the memory of all of them is prefetched before
//! the first is looked up.
//!
//! A row's words are: the key; the write counter of its last deletion, or 0; for each group the
//! write counter of its last write plus one (0: not written), perhaps with [`SUM`]; and the words
//! of the row.
//!
//! **Any order of writes.** Of each group the write with the largest counter wins, and of deletions
//! the largest counter. Additions have the counter of the write that they were added to, and are
//! summed. So the result for a row depends on the set of its writes and not on their order, and
//! neither threads nor files need one:
//!
//! - An addition that comes before its write waits as a sum with the flag [`SUM`]. The write then
//!   adds its words and clears the flag.
//! - An addition to a write that is known to be replaced is dropped: the later write contains its
//!   effect, or has overwritten it.
//! - A write with a larger counter drops the sum of an older one, for the same reason.
//!
//! **Threads.** A reader gathers writes in memory of its own, and takes the lock of a part only to
//! apply them. It holds one such lock at a time and waits for nothing meanwhile, so no two readers
//! wait for each other. After the last reader has ended, the parts belong to the caller alone
//! (`TableRows::into_parts`), without locks.

use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

use contend_engine::Groups;
use contend_engine::commit_sink::WriteCounter;
use contend_machine::{Machine, Native};
use parking_lot::Mutex;

use crate::format::{Change, Write};
use crate::schema::Schema;

/// A table has this many parts, each with a lock, so that threads seldom wait for one another.
pub(crate) const PARTS: usize = 64;
/// This many writes of a part are applied together.
const TOGETHER: usize = 32;

/// Returns the part of a table that has this key. It is the same in every process, so that a
/// checkpoint of the same rows is the same.
fn part_of(key: &[u64]) -> usize {
    // As in rustc-hash; the highest bits depend on all.
    let mixed = key.iter().fold(0u64, |mixed, word| (mixed.rotate_left(26) ^ word).wrapping_mul(0xf135_7aea_2e62_a9c5));
    ((mixed ^ mixed >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize
}

const _: () = assert!(PARTS == 1 << (64 - 58));

/// Hashes keys for the slots of a part. The seeds are drawn anew for each recovery. So the writer
/// of a hostile log can't choose keys that all have one slot, which would take time that is
/// quadratic in their number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHash {
    first: u64,
    factor: u64,
}

impl KeyHash {
    /// Draws seeds.
    pub(crate) fn new() -> Self {
        // From the keys that the system gives every process anew.
        let random = RandomState::new();
        KeyHash { first: random.hash_one(0), factor: random.hash_one(1) | 1 }
    }

    #[inline(always)]
    fn of(self, key: &[u64]) -> u64 {
        // The folded multiplication of wyhash: both halves of the product of two words that depend
        // on the seeds.
        key.iter().fold(self.first, |mixed, word| {
            let product = u128::from(mixed ^ word) * u128::from(self.factor);
            (product as u64 ^ (product >> 64) as u64).rotate_left(23)
        })
    }
}

/// Flag in the write counter of a group: its words are the sum of additions, and the write that
/// they were added to is not known.
const SUM: u64 = 1 << 63;

/// The rows of a part of a table.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// An open-addressing hash table of row numbers, each plus one; 0 is an empty slot. At most
    /// half of the slots are used.
    slots: Vec<u32>,
    count: usize,
    hash: KeyHash,
    words: Vec<u64>,
    /// All writes, if their order will be checked.
    traced: Vec<Traced>,
}

/// A write, as far as it matters for the order of a row's writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Traced {
    /// The row's number.
    number: u32,
    counter: u64,
    step: Step,
}

/// What a write needs and leaves. Of writes with one write counter, additions come last in the
/// order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// Needs no row, leaves a row.
    Insert,
    /// Needs a row, leaves a row.
    Update,
    /// Needs a row, leaves none.
    Delete,
    /// A row of a checkpoint, or a part of one. What came before it is not known any more.
    Kept,
    /// A deletion of a checkpoint. What came before it is not known any more.
    Gone,
    /// Needs a row, leaves a row.
    Add,
}

impl Step {
    /// `epoch` is that of the write's block, which is 0 in a checkpoint.
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

/// What is known of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'r> {
    words: &'r [u64],
    groups: usize,
}

/// Returns the number of words of a row.
fn words_of_one(schema: &Schema) -> usize {
    schema.key_words + 1 + schema.groups.len() + schema.row_words
}

impl Rows {
    fn new(hash: KeyHash) -> Self {
        Rows { hash, ..Rows::default() }
    }

    fn slot(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    /// Returns the largest number of slots one behind the other that are taken: no key is looked
    /// for further.
    #[cfg(test)]
    pub(crate) fn longest_run(&self) -> usize {
        let runs = self.slots.split(|&slot| slot == 0);
        runs.map(<[u32]>::len).max().unwrap_or(0)
    }

    /// Returns the number of the row with this key, and whether the row is new. There is a free
    /// slot.
    fn number(&mut self, hash: u64, key: &[u64], length: usize) -> (usize, bool) {
        // It ends: at most half of the slots are taken, so a free one comes.
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

    /// Makes room for `more` rows.
    fn reserve(&mut self, more: usize, schema: &Schema) {
        let needed = 2 * (self.count + more);
        if needed <= self.slots.len() {
            return;
        }
        self.slots = vec![0; 2 * needed.next_power_of_two()];
        let length = words_of_one(schema);
        for (number, row) in (1..).zip(self.words.chunks_exact(length)) {
            let mut slot = self.slot(self.hash.of(&row[..schema.key_words]));
            while self.slots[slot] != 0 {
                slot = (slot + 1) & (self.slots.len() - 1);
            }
            self.slots[slot] = number;
        }
    }

    fn apply(&mut self, writes: &Pending, schema: &Schema) {
        // First, because it moves the slots. After it the addresses of slots stay as they are for
        // the whole batch, and so do those of rows that are known already, until a new row makes
        // the vector grow.
        self.reserve(writes.hashes.len(), schema);
        for &hash in &writes.hashes {
            Native::prefetch(&raw const self.slots[self.slot(hash)]);
        }
        let length = words_of_one(schema);
        for &hash in &writes.hashes {
            // Usually the right row: half of the slots are free.
            if let Some(number) = (self.slots[self.slot(hash)] as usize).checked_sub(1) {
                Native::prefetch_to_write(&raw const self.words[number * length]);
            }
        }
        let mut steps = writes.steps.iter();
        for (&hash, write) in writes.hashes.iter().zip(writes.words.chunks_exact(length)) {
            let (key, written) = write.split_at(schema.key_words);
            let (number, is_new) = self.number(hash, key, length);
            if let Some(&(counter, step)) = steps.next() {
                self.traced.push(Traced { number: number as u32, counter: counter.0, step });
            }
            if is_new {
                self.words.extend_from_slice(write);
                continue;
            }
            let known = &mut self.words[number * length + key.len()..][..written.len()];
            // The maximum, as of groups below: the deletion that is found last may be an older one.
            known[0] = known[0].max(written[0]);
            let rows = 1 + schema.groups.len();
            for (group, &(start, end)) in schema.groups.iter().enumerate() {
                let (old, new) = (known[1 + group], written[1 + group]);
                let (known_words, words) = (&mut known[rows + start..rows + end], &written[rows + start..rows + end]);
                if new & !SUM > old & !SUM || new == old && new & SUM == 0 {
                    // A later write, or the sum that was added to a later write. What is known of
                    // older ones has no part in the row any more.
                    known[1 + group] = new;
                    known[rows + start..rows + end].copy_from_slice(words);
                } else if new & !SUM == old & !SUM {
                    // One of them is a sum, or both: additions and what they were added to have one
                    // write counter.
                    known_words.iter_mut().zip(words).for_each(|(known, by)| *known = known.wrapping_add(*by));
                    // The flag stays only if both are sums: one write is enough to know the whole.
                    known[1 + group] = old & new;
                }
            }
        }
    }

    /// Checks that the writes of each row can have happened in the order of their write counters:
    /// an insert finds no row, and any other write finds one. If not, returns the words of the key,
    /// and what is wrong. `begins_empty`: the log has all writes since there were no rows. The
    /// writes must have been traced.
    ///
    /// Updates are checked against inserts and deletions only: the write counters of two groups of
    /// columns are in no order.
    pub(crate) fn find_disorder(&mut self, schema: &Schema, begins_empty: bool) -> Option<(&[u64], String)> {
        let mut traced = std::mem::take(&mut self.traced);
        traced.sort_unstable();
        let mut rows = traced.chunk_by(|one, other| one.number == other.number);
        let (number, why) = rows.find_map(|row| Some((row[0].number, disorder(row, begins_empty)?)))?;
        Some((&self.words[number as usize * words_of_one(schema)..][..schema.key_words], why))
    }

    /// Returns the known rows with their keys, deleted ones included.
    pub(crate) fn iter(&self, schema: &Schema) -> impl Iterator<Item = (&[u64], Known<'_>)> {
        let (key_words, groups) = (schema.key_words, schema.groups.len());
        self.words.chunks_exact(words_of_one(schema)).map(move |words| {
            let (key, words) = words.split_at(key_words);
            (key, Known { words, groups })
        })
    }
}

/// Returns what is wrong with the order of a row's writes. None if it can have happened.
fn disorder(writes: &[Traced], begins_empty: bool) -> Option<String> {
    // Writes that came before a checkpoint's are not all known any more.
    let is_of_checkpoint = |write: &Traced| matches!(write.step, Step::Kept | Step::Gone);
    let (mut is_there, first) = match writes.iter().rposition(is_of_checkpoint) {
        Some(last) => (Some(writes[last].step == Step::Kept), last + 1),
        None if begins_empty => (Some(false), 0),
        None => (None, 0),
    };
    for &Traced { counter, step, .. } in &writes[first..] {
        let (needs, leaves) = match step {
            Step::Insert => (false, true),
            Step::Update | Step::Add => (true, true),
            Step::Delete => (true, false),
            Step::Kept | Step::Gone => unreachable!("the last of these came before"),
        };
        if is_there.is_some_and(|is_there| is_there != needs) {
            let was = if is_there == Some(true) { "a row" } else { "no row" };
            return Some(format!(
                "by their counters, one that is of the kind '{step:?}' (counter {counter}) finds {was}"
            ));
        }
        is_there = Some(leaves);
    }
    None
}

impl<'r> Known<'r> {
    /// Returns the write counter of its last deletion; 0 if there is none.
    pub(crate) fn deleted(self) -> WriteCounter {
        WriteCounter(self.words[0])
    }

    /// Returns the write counter of the last write of a group, if there is one.
    pub(crate) fn written(self, group: usize) -> Option<WriteCounter> {
        (self.words[1 + group] & !SUM).checked_sub(1).map(WriteCounter)
    }

    /// Whether the words of a group are only the sum of what was added to that write.
    pub(crate) fn is_sum(self, group: usize) -> bool {
        self.words[1 + group] & SUM != 0
    }

    /// Whether there is a sum without the write that was added to, and without a later deletion.
    pub(crate) fn lacks_base(self) -> bool {
        (0..self.groups).any(|group| self.is_sum(group) && self.written(group) > Some(self.deleted()))
    }

    /// Whether the last known write of any group is later than the last known deletion. Only a row
    /// that exists is written, so the row existed then, even if its insert is in a file that was
    /// not read.
    pub(crate) fn existed_last(self) -> bool {
        (0..self.groups).any(|group| self.written(group).is_some_and(|counter| self.is_after_deletion(counter)))
    }

    fn is_after_deletion(self, counter: WriteCounter) -> bool {
        counter > self.deleted() || self.deleted() == WriteCounter(0)
    }

    pub(crate) fn row(self) -> &'r [u64] {
        &self.words[1 + self.groups..]
    }

    /// Whether the row exists, and all of its groups are known.
    pub(crate) fn is_there(self) -> bool {
        // An insert has all groups, and comes after the deletion, if there was one.
        let is_later = |counter| self.is_after_deletion(counter);
        (0..self.groups).all(|group| !self.is_sum(group) && self.written(group).is_some_and(is_later))
    }
}

/// Writes of a part that were not applied yet: the hashes of their keys, and the words of each as
/// if it were all that is known of its row.
#[derive(Debug, Default)]
struct Pending {
    hashes: Vec<u64>,
    words: Vec<u64>,
    /// The place of each write in the order, if that will be checked.
    steps: Vec<(WriteCounter, Step)>,
}

/// The rows of all tables, while threads read files.
pub(crate) struct TableRows<'s> {
    schemas: &'s [Schema],
    /// By table, and part. A table without a write has no parts: a manifest of some megabytes may
    /// name many tables.
    parts: Vec<OnceLock<Vec<Mutex<Rows>>>>,
    hash: KeyHash,
    /// How many more words of rows may be read.
    /// All readers store to it, but each only once in [`COUNTED_TOGETHER`] words, so its line
    /// seldom moves.
    words_left: AtomicI64,
}

impl<'s> TableRows<'s> {
    /// TableRows of these schemas, without rows. Readers refuse to read writes of more than
    /// `words_max` words together.
    pub(crate) fn new(schemas: &'s [Schema], words_max: u64) -> Self {
        let parts = schemas.iter().map(|_| OnceLock::new()).collect();
        let words_left = AtomicI64::new(i64::try_from(words_max).unwrap_or(i64::MAX));
        TableRows { schemas, parts, hash: KeyHash::new(), words_left }
    }

    // The first reader of a table makes its parts; another that comes meanwhile waits for it
    // (`OnceLock`). The initialisation happens before each use, so the parts need no other order.
    fn part(&self, table: usize, part: usize) -> &Mutex<Rows> {
        let parts = || (0..PARTS).map(|_| Mutex::new(Rows::new(self.hash))).collect();
        &self.parts[table].get_or_init(parts)[part]
    }

    /// Returns the parts of each table, once all readers have finished.
    pub(crate) fn into_parts(self) -> Vec<Vec<Rows>> {
        let parts = |parts: OnceLock<Vec<_>>| parts.into_inner().unwrap_or_default();
        self.parts.into_iter().map(parts).map(|parts| parts.into_iter().map(Mutex::into_inner).collect()).collect()
    }
}

/// Words of rows that a reader reads before it counts them.
const COUNTED_TOGETHER: usize = 1 << 16;

/// Takes the writes that a thread reads.
pub(crate) struct Reader<'t> {
    tables: &'t TableRows<'t>,
    /// By table, and part; a table of which the thread has read nothing has none.
    pending: Vec<Vec<Pending>>,
    /// Words that were read, and are not counted in [`TableRows::words_left`] yet.
    words: usize,
    /// Whether all writes are kept, for [`Rows::find_disorder`].
    traces: bool,
}

impl<'t> Reader<'t> {
    pub(crate) fn new(tables: &'t TableRows<'t>, traces: bool) -> Self {
        let pending = tables.schemas.iter().map(|_| Vec::new()).collect();
        Reader { tables, pending, words: 0, traces }
    }

    /// Counts the words of a row.
    #[inline]
    fn count(&mut self, words: usize) -> Result<(), &'static str> {
        self.words += words;
        if self.words > COUNTED_TOGETHER {
            let words = std::mem::take(&mut self.words) as i64;
            // Each thread that goes below zero stops, so the count falls below it by some words of
            // each thread at most. It is signed for that. Relaxed: a count that no other memory
            // depends on; the subtraction alone makes it exact.
            if self.tables.words_left.fetch_sub(words, Ordering::Relaxed) < words {
                return Err("rows would take far more memory than the log has bytes");
            }
        }
        Ok(())
    }

    /// Takes a write of a block of this epoch, which is 0 in a checkpoint.
    ///
    /// # Errors
    /// The readers have read more words of rows than [`TableRows::new`] allows.
    pub(crate) fn add(&mut self, epoch: u64, write: &Write<'_>) -> Result<(), &'static str> {
        let table = write.table as usize;
        let schema = &self.tables.schemas[table];
        self.count(words_of_one(schema))?;
        let key = write.key;
        let (hash, part) = (self.tables.hash.of(key), part_of(key));
        let parts = &mut self.pending[table];
        if parts.is_empty() {
            parts.resize_with(PARTS, Pending::default);
        }
        let pending = &mut parts[part];
        pending.hashes.push(hash);
        pending.words.extend_from_slice(key);
        if self.traces {
            pending.steps.push((write.counter, Step::of(&write.change, epoch)));
        }
        let (deleted, groups, sum) = match write.change {
            Change::Delete => (write.counter.0, Groups::NONE, 0),
            Change::Insert(_) => (0, Groups::ALL, 0),
            Change::Put(groups, _) => (0, groups, 0),
            Change::Add(additions) => (0, schema.groups_of(additions.iter().map(|added| added.word as usize)), SUM),
        };
        pending.words.push(deleted);
        let counters = (0..schema.groups.len() as u32)
            .map(|group| if groups.contains(Groups::of(group)) { (write.counter.0 + 1) | sum } else { 0 });
        pending.words.extend(counters);
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
            // The lock is taken once for some writes, whose cache misses overlap under it
            // (`Rows::apply`).
            self.tables.part(table, part).lock().apply(pending, schema);
            pending.hashes.clear();
            pending.words.clear();
            pending.steps.clear();
        }
        Ok(())
    }

    /// Applies the writes that were not applied yet.
    pub(crate) fn finish(self) {
        for (table, (schema, pending)) in self.tables.schemas.iter().zip(&self.pending).enumerate() {
            for (part, pending) in pending.iter().enumerate().filter(|(_, pending)| !pending.hashes.is_empty()) {
                self.tables.part(table, part).lock().apply(pending, schema);
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

    use contend_engine::commit_sink::Addition;

    use super::*;
    use crate::schema::Form;

    #[derive(Clone, Copy)]
    enum Kind {
        Put(Groups),
        Add(Addition),
        Delete,
    }

    /// For each key: the write counter of its last deletion, that of the last write of each group,
    /// and what was added to each word since.
    type Expected = BTreeMap<[u64; 2], (u64, [u64; 2], [u64; 3])>;

    /// Draws writes of whole rows, of single groups, deletions, and additions.
    fn draw(rows: u64, schema: &Schema, random: &mut SmallRng) -> (Expected, Vec<([u64; 2], u64, Kind)>) {
        let mut expected = Expected::new();
        let mut writes = Vec::new();
        for counter in 1..8 * rows {
            let key = [7, random.random_range(0..rows)];
            let (deleted, written, added) = expected.entry(key).or_default();
            let mut put = |groups: Groups| {
                for group in groups.common(Groups::first(2)) {
                    written[group] = counter;
                    added[schema.groups[group].0..schema.groups[group].1].fill(0);
                }
                Kind::Put(groups)
            };
            let kind = match random.random_range(0..8) {
                0 => put(Groups::ALL),
                1 => put(Groups::of(0)),
                2 => put(Groups::of(1)),
                3 => {
                    *deleted = counter;
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
            writes.push((key, counter, kind));
        }
        (expected, writes)
    }

    /// Writes are read in any order. The last write of each group counts, with the additions to it.
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
            let (expected, mut writes) = draw(rows, &schema, random);
            writes.shuffle(random);
            let schemas = [schema.clone()];
            let tables = TableRows::new(&schemas, u64::MAX);
            let half = writes.len() / 2;
            for writes in [&writes[..half], &writes[half..]] {
                let mut reader = Reader::new(&tables, false);
                for &(key, counter, kind) in writes {
                    // As it is read: of groups that were not written there is nothing.
                    let mut row = [0; 3];
                    let additions;
                    let change = match kind {
                        Kind::Put(groups) => {
                            schema.words(groups).flatten().for_each(|word| row[word] = counter);
                            Change::Put(groups, &row)
                        }
                        Kind::Delete => Change::Delete,
                        Kind::Add(addition) => {
                            additions = [addition];
                            Change::Add(&additions)
                        }
                    };
                    reader
                        .add(1, &Write { table: 0, key: &key, counter: WriteCounter(counter), change })
                        .expect("there is room");
                }
                reader.finish();
            }
            let mut found = 0;
            for part in &tables.into_parts()[0] {
                for (key, known) in part.iter(&schema) {
                    let (deleted, expected, added) = expected[key];
                    let written = [0, 1].map(|group| known.written(group).map_or(0, |counter| counter.0));
                    assert_eq!((known.deleted().0, written), (deleted, expected));
                    let row = [0, 1, 2].map(|word: usize| written[word.min(1)].wrapping_add(added[word]));
                    assert_eq!(known.row(), row);
                    assert!(!known.lacks_base());
                    assert_eq!(known.is_there(), written.iter().all(|counter| *counter > deleted));
                    found += 1;
                }
            }
            let there = |(deleted, written, _): &&(u64, [u64; 2], [u64; 3])| *deleted > 0 || *written != [0, 0];
            assert_eq!(found, expected.values().filter(there).count());
        }
    }

    /// Of every row the writes are an insert, updates, a deletion, and so on. An order in which one
    /// of these is not possible is noticed, and no other.
    #[test]
    fn an_order_that_can_not_be_is_noticed() {
        use Step::{Add, Delete, Gone, Insert, Kept, Update};
        let order = |steps: &[Step], begins_empty| {
            let traced = |(counter, &step)| Traced { number: 0, counter, step };
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
            let schemas = [schema.clone()];
            let tables = TableRows::new(&schemas, u64::MAX);
            let mut reader = Reader::new(&tables, false);
            for &(counter, change) in writes {
                reader
                    .add(1, &Write { table: 0, key: &[0], counter: WriteCounter(counter), change })
                    .expect("there is room");
            }
            reader.finish();
            let parts = tables.into_parts().remove(0);
            let mut rows = parts.iter().flat_map(|part| part.iter(&schema));
            rows.next().map(|(_, row)| (row.is_there(), row.lacks_base())).expect("there is a row")
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
