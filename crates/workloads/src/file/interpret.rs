//! The execution of compiled scripts.

use std::ops::Range;

use contend_model::{Abort, Groups, Key, KeyWords, MAX_KEY_WORDS, Txn, WordChanges};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use rustc_hash::FxHashSet;

use super::draws::draw_text;
use super::program::{Access, CLIENT, Code, ROUNDS_MAX, Register, Step, Store};
use super::schema::{KeyShape, Table as TableShape};

/// Keys of tables whose keys have several words.
pub(super) type Wide = [u8; 32];

/// A table of a store.
#[derive(Clone, Copy, Debug)]
pub(super) enum Handle {
    Narrow(contend_model::Table<u64>),
    Wide(contend_model::Table<Wide>),
}

/// Calls a function that is generic over the keys of a table.
macro_rules! with_table {
    ($handle:expr, $table:ident => $body:expr) => {
        match $handle {
            Handle::Narrow($table) => $body,
            Handle::Wide($table) => $body,
        }
    };
}
pub(super) use with_table;

/// The tables of a store: their shapes, and the handles by which transactions name them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tables<'a> {
    pub(super) shapes: &'a [TableShape],
    pub(super) handles: &'a [Handle],
}

/// The draws of a transaction.
#[derive(Debug)]
enum Draws {
    /// They are made, and put down.
    Noted(SmallRng),
    /// They are those that were put down.
    Repeated(usize),
    /// They are made, the same at each try.
    Made(SmallRng),
}

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    /// The number of the type of transactions.
    pub(super) kind: usize,
    pub(super) seed: u64,
    /// The first of the numbers that `unique()` returns.
    pub(super) first_unique: i64,
    /// The known keys of each table.
    pub(super) keys: Vec<KnownKeys>,
    /// The partitions that the transaction touches.
    pub(super) partitions: Vec<usize>,
}

/// Keys of a table that are known before the transaction begins.
#[derive(Debug)]
pub(super) enum KnownKeys {
    Narrow(Vec<(u64, bool)>, Vec<u64>),
    Wide(Vec<(Wide, bool)>, Vec<Wide>),
}

impl KnownKeys {
    fn clear(&mut self) {
        match self {
            KnownKeys::Narrow(keys, all) => {
                keys.clear();
                all.clear();
            }
            KnownKeys::Wide(keys, all) => {
                keys.clear();
                all.clear();
            }
        }
    }

    fn push(&mut self, words: KeyWords, writes: bool) {
        match self {
            KnownKeys::Narrow(keys, all) => {
                keys.push((words[0], writes));
                all.push(words[0]);
            }
            KnownKeys::Wide(keys, all) => {
                let key = Wide::from_words(words);
                keys.push((key, writes));
                all.push(key);
            }
        }
    }
}

/// The memory of a worker's scripts.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) frame: Vec<i64>,
    /// The rows that loops go over.
    pub(super) rows: Vec<i64>,
    /// The loops over rows that are open: where the next row is, and where the last one ends.
    pub(super) loops: Vec<Range<usize>>,
    passed: FxHashSet<i64>,
    /// Keys that a scan of an index has found.
    pub(super) found: Vec<KeyWords>,
    pub(super) changes: WordChanges,
    draws: Draws,
    /// The draws of the transaction, if they could be made before it began.
    noted: Vec<i64>,
    pub(super) uniques: i64,
    pub(super) workers: i64,
    pub(super) worker: i64,
    /// Statements that named a row by its key in this try, and those that found none.
    pub(super) named: u64,
    pub(super) missed: u64,
}

impl Memory {
    pub(super) fn new(worker: usize, workers: usize) -> Self {
        Memory {
            frame: Vec::new(),
            rows: Vec::new(),
            loops: Vec::new(),
            passed: FxHashSet::default(),
            found: Vec::new(),
            changes: WordChanges::default(),
            draws: Draws::Repeated(0),
            noted: Vec::new(),
            uniques: 0,
            workers: workers as i64,
            worker: worker as i64,
            named: 0,
            missed: 0,
        }
    }

    fn begin(&mut self, code: &Code) {
        self.frame.clear();
        self.frame.extend_from_slice(&code.image);
        self.frame[CLIENT as usize] = self.worker;
        self.rows.clear();
        self.loops.clear();
        self.passed.clear();
        self.uniques = 0;
        self.named = 0;
        self.missed = 0;
    }

    /// Runs a step that touches no row. Returns the next step, or `None` if the step touches rows.
    #[inline(always)]
    pub(super) fn step(&mut self, code: &Code, at: usize, first_unique: i64) -> Option<usize> {
        let frame = &mut self.frame;
        match code.steps[at] {
            Step::Compute { operator, to, a, b } => {
                frame[to as usize] = operator.apply(frame[a as usize], frame[b as usize]);
            }
            Step::Copy { to, from, words } => {
                let from = from as usize;
                frame.copy_within(from..from + words as usize, to as usize);
            }
            Step::Choose { to, condition, a, b } => {
                let chosen = if frame[condition as usize] != 0 { a } else { b };
                frame[to as usize] = frame[chosen as usize];
            }
            Step::Draw { .. } | Step::DrawText { .. } => self.draw(code, code.steps[at]),
            Step::SameText { to, a, b } => {
                let (first, second) = (frame[a as usize], frame[b as usize]);
                let words = (first.max(0) as usize).div_ceil(8);
                let same = first == second && frame[a as usize + 1..][..words] == frame[b as usize + 1..][..words];
                frame[to as usize] = i64::from(same);
            }
            Step::Unique { to } => {
                frame[to as usize] = (first_unique + self.uniques) * self.workers + self.worker;
                self.uniques += 1;
            }
            Step::Distinct { to, a } => {
                let number = frame[a as usize];
                frame[to as usize] = i64::from(self.passed.insert(number));
            }
            Step::Unless { condition, to, .. } => {
                if frame[condition as usize] == 0 {
                    return Some(to as usize);
                }
            }
            Step::Jump { to, .. } => return Some(to as usize),
            Step::Repeat { count, left, end } => {
                let count = frame[count as usize].clamp(0, ROUNDS_MAX as i64);
                frame[left as usize] = count;
                if count == 0 {
                    return Some(end as usize);
                }
            }
            Step::Again { left, start } => {
                frame[left as usize] -= 1;
                if frame[left as usize] > 0 {
                    return Some(start as usize);
                }
            }
            _ => return None,
        }
        Some(at + 1)
    }

    /// Draws a number or a text.
    #[inline]
    fn draw(&mut self, code: &Code, step: Step) {
        let Memory { frame, noted, draws, .. } = self;
        match step {
            Step::Draw { to, draw, a, b } => {
                let (a, b) = (frame[a as usize], frame[b as usize]);
                frame[to as usize] = match draws {
                    Draws::Repeated(next) => {
                        *next += 1;
                        noted[*next - 1]
                    }
                    Draws::Made(random) => code.draws[draw as usize].draw(random, a, b),
                    Draws::Noted(random) => {
                        let drawn = code.draws[draw as usize].draw(random, a, b);
                        noted.push(drawn);
                        drawn
                    }
                };
            }
            Step::DrawText { to, length, bytes } => {
                let length = frame[length as usize];
                let text = &mut frame[to as usize..][..1 + bytes.div_ceil(8) as usize];
                match draws {
                    // The text comes from a seed that is put down.
                    Draws::Repeated(next) => {
                        *next += 1;
                        draw_text(&mut SmallRng::seed_from_u64(noted[*next - 1] as u64), text, length, bytes);
                    }
                    Draws::Made(random) => draw_text(random, text, length, bytes),
                    Draws::Noted(random) => noted.push(rand::RngCore::next_u64(random) as i64),
                }
            }
            _ => {}
        }
    }

    /// Runs the steps from `at` to `end`, which touch no row.
    #[inline]
    pub(super) fn compute(&mut self, code: &Code, mut at: usize, end: usize, first_unique: i64) {
        while at < end {
            at = self.step(code, at, first_unique).unwrap_or(at + 1);
        }
    }

    /// Evaluates code that touches no row: for loading, and for checks.
    pub(super) fn evaluate(&mut self, code: &Code, seed: u64, set: impl FnOnce(&mut [i64])) {
        self.begin(code);
        set(&mut self.frame);
        self.draws = Draws::Made(SmallRng::seed_from_u64(seed));
        self.compute(code, 0, code.steps.len(), 0);
    }

    /// Makes the draws of a transaction before it begins, and finds the keys that it will touch.
    pub(super) fn foresee(
        &mut self,
        code: &Code,
        tables: &[TableShape],
        partitions: Option<&Partitions>,
        input: &mut Input,
    ) {
        self.begin(code);
        self.draws = Draws::Noted(SmallRng::seed_from_u64(input.seed));
        let Input { keys, partitions: touched, first_unique, .. } = input;
        self.noted.clear();
        keys.iter_mut().for_each(KnownKeys::clear);
        touched.clear();
        let mut at = 0;
        while at < code.steps.len() {
            at = match code.steps[at] {
                // Both branches may run.
                Step::Unless { by_rows: true, .. } | Step::Jump { by_rows: true, .. } => at + 1,
                Step::Modify { access, end } => {
                    self.note(&code.accesses[access as usize], tables, partitions, keys, touched);
                    end as usize
                }
                Step::Read { access }
                | Step::Update { access }
                | Step::Write { access }
                | Step::Insert { access, .. }
                | Step::Delete { access }
                | Step::Scan { access }
                | Step::Each { access, .. } => {
                    self.note(&code.accesses[access as usize], tables, partitions, keys, touched);
                    at + 1
                }
                _ => self.step(code, at, *first_unique).unwrap_or(at + 1),
            };
        }
        touched.sort_unstable();
        touched.dedup();
    }

    /// Notes the row and the partition of an access, as far as they are known.
    fn note(
        &self,
        access: &Access,
        tables: &[TableShape],
        partitions: Option<&Partitions>,
        keys: &mut [KnownKeys],
        touched: &mut Vec<usize>,
    ) {
        let table = access.table as usize;
        let shape = &tables[table].shape;
        if access.known
            && access.by_index.is_none()
            && access.key.len() == shape.parts.len()
            && let Some(words) = key_of(shape, &access.key, &self.frame)
        {
            keys[table].push(words, !access.reads);
        }
        if let Some(partitions) = partitions
            && partitions.of[table]
            && let Some(&first) = access.key.first()
        {
            touched.push(self.frame[first as usize].rem_euclid(partitions.count as i64) as usize);
        }
    }

    /// Begins a try of a transaction.
    #[inline]
    pub(super) fn start(&mut self, code: &Code, input: &Input) {
        self.begin(code);
        self.draws =
            if code.foreseeable { Draws::Repeated(0) } else { Draws::Made(SmallRng::seed_from_u64(input.seed)) };
    }

    /// Runs a script in a transaction.
    #[inline]
    pub(super) fn run<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        tables: &Tables<'_>,
        input: &Input,
    ) -> Result<(), Abort> {
        self.start(code, input);
        let first = input.first_unique;
        let mut at = 0;
        while at < code.steps.len() {
            if let Some(next) = self.step(code, at, first) {
                at = next;
                continue;
            }
            let step = code.steps[at];
            at += 1;
            match step {
                Step::Read { access } => self.read(tx, &code.accesses[access as usize], tables)?,
                Step::Modify { access, end } => {
                    let access = &code.accesses[access as usize];
                    let from = at;
                    at = end as usize;
                    self.modify(tx, code, access, from..at, tables, first)?;
                }
                Step::Update { access } => self.update(tx, &code.accesses[access as usize], tables)?,
                Step::Write { access } => self.write(tx, &code.accesses[access as usize], tables)?,
                Step::Insert { access, or_nothing } => {
                    self.insert(tx, &code.accesses[access as usize], or_nothing, tables)?;
                }
                Step::Delete { access } => {
                    let access = &code.accesses[access as usize];
                    let found = self.delete(tx, access, tables)?;
                    self.found(found);
                }
                Step::Scan { access } => {
                    let access = &code.accesses[access as usize];
                    self.scan(tx, access, tables)?;
                }
                Step::Each { access, end } => {
                    let access = &code.accesses[access as usize];
                    let first = self.rows.len();
                    self.collect(tx, access, tables)?;
                    self.loops.push(first..self.rows.len());
                    if !self.next_row(access) {
                        at = end as usize;
                    }
                }
                Step::Next { access, start } => {
                    if self.next_row(&code.accesses[access as usize]) {
                        at = start as usize;
                    }
                }
                Step::Cancel => return Err(tx.cancel()),
                Step::Sleep { amount, unit } => {
                    let amount = u64::try_from(self.frame[amount as usize]).unwrap_or(0);
                    tx.idle(amount.saturating_mul(u64::from(unit)).min(SLEEP_MAX_US));
                }
                _ => unreachable!("a step that touches no row"),
            }
        }
        Ok(())
    }
}

/// The longest sleep, in microseconds.
pub(super) const SLEEP_MAX_US: u64 = 10_000_000;

/// The tables that are partitioned, and the number of partitions.
#[derive(Clone, Debug)]
pub(super) struct Partitions {
    pub(super) count: usize,
    pub(super) of: Vec<bool>,
}

/// Returns the key that these registers hold, or `None` if a value does not fit its part.
#[inline(always)]
pub(super) fn key_of(shape: &KeyShape, registers: &[Register], frame: &[i64]) -> Option<KeyWords> {
    let mut words = [0; MAX_KEY_WORDS];
    let mut fits = true;
    for (part, register) in shape.parts.iter().zip(registers) {
        let value = frame[*register as usize];
        fits &= value >= 0 && value as u64 <= part.max();
        words[part.word as usize] |= (value as u64) << part.shift;
    }
    fits.then_some(words)
}

/// Copies registers to a column of a row.
#[inline(always)]
pub(super) fn put(store: &Store, row: &mut [u64], frame: &[i64]) {
    let (word, from) = (store.word as usize, store.from as usize);
    let Some(bytes) = store.text else {
        row[word] = frame[from] as u64;
        return;
    };
    let room = 1 + (bytes as usize).div_ceil(8);
    let copied = room.min(store.words as usize);
    row[word] = frame[from].clamp(0, i64::from(bytes)) as u64;
    for number in 1..copied {
        row[word + number] = frame[from + number] as u64;
    }
    row[word + copied..word + room].fill(0);
    // Equal texts are equal words: nothing is left behind the end of a text that was cut.
    let length = row[word] as usize;
    if !length.is_multiple_of(8) {
        row[word + 1 + length / 8] &= u64::MAX >> (64 - 8 * (length % 8));
    }
}

/// Announces the known keys of a transaction, so that their cache misses overlap.
#[inline]
pub(super) fn announce<T: Txn>(tx: &mut T, handles: &[Handle], keys: &[KnownKeys], groups: &[Groups]) {
    for ((handle, keys), groups) in handles.iter().zip(keys).zip(groups) {
        match (handle, keys) {
            (Handle::Narrow(table), KnownKeys::Narrow(_, all)) if all.len() > 1 => {
                tx.announce_writes(table, all, *groups)
            }
            (Handle::Wide(table), KnownKeys::Wide(_, all)) if all.len() > 1 => tx.announce_writes(table, all, *groups),
            _ => {}
        }
    }
}
