//! The execution of compiled scripts.

use std::ops::{Index, IndexMut, Range};

use contend_model::random::SplitMix64;
use contend_model::{Abort, Groups, Key, KeyWords, MAX_KEY_WORDS, Txn, WordChanges};
use rustc_hash::FxHashSet;

use super::draws::draw_text;
use super::program::{Access, CLIENT, Code, FRAME_MAX, ROUNDS_MAX, Register, ScriptPiece, Step, Store};
use super::recent::Recent;
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
#[derive(Clone, Debug)]
enum Draws {
    /// They are made, and put down.
    Noted(SplitMix64),
    /// They are those that were put down.
    Repeated(usize),
    /// They are made, the same at each try.
    Made(SplitMix64),
}

/// The registers of a transaction. There is room for every register that a script may have, so
/// that no access is checked.
#[derive(Debug)]
pub(super) struct Frame(Box<[i64; FRAME_MAX]>);

impl Frame {
    fn new() -> Self {
        let words = vec![0; FRAME_MAX].into_boxed_slice();
        Frame(words.try_into().unwrap_or_else(|_| unreachable!("its length is that of the array")))
    }

    /// Returns some words from a register on.
    #[inline(always)]
    pub(super) fn words(&self, from: Register, count: usize) -> &[i64] {
        &self.0[from as usize..][..count]
    }

    /// Returns some words from a register on, to be changed.
    #[inline(always)]
    pub(super) fn words_mut(&mut self, from: Register, count: usize) -> &mut [i64] {
        &mut self.0[from as usize..][..count]
    }
}

impl Index<Register> for Frame {
    type Output = i64;

    #[inline(always)]
    fn index(&self, register: Register) -> &i64 {
        // A register is always less: the compiler of scripts refuses more.
        &self.0[register as usize % FRAME_MAX]
    }
}

impl IndexMut<Register> for Frame {
    #[inline(always)]
    fn index_mut(&mut self, register: Register) -> &mut i64 {
        &mut self.0[register as usize % FRAME_MAX]
    }
}

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    /// The number of the type of transactions.
    pub(super) kind: usize,
    pub(super) seed: u64,
    /// The first of the numbers that `unique()` returns.
    pub(super) first_unique: i64,
    /// Whether its draws were put down, and its known keys found, before it began.
    pub(super) is_foreseen: bool,
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

/// What a worker's memory held before a piece.
#[derive(Debug)]
struct Saved {
    registers: Vec<i64>,
    passed: Vec<i64>,
    /// The number of inserts that are remembered.
    inserted: usize,
    draws: Draws,
    uniques: i64,
    named: u64,
    missed: u64,
}

impl Default for Saved {
    fn default() -> Self {
        let (registers, passed, draws) = (Vec::new(), Vec::new(), Draws::Repeated(0));
        Saved { registers, passed, inserted: 0, draws, uniques: 0, named: 0, missed: 0 }
    }
}

/// The memory of a worker's scripts.
#[derive(Debug)]
pub(super) struct Memory {
    pub(super) frame: Frame,
    /// The first step that has not run yet, if the transaction has been drawn and not begun.
    fresh: Option<usize>,
    /// The rows that loops go over.
    pub(super) rows: Vec<i64>,
    /// The loops over rows that are open: where the next row is, and where the last one ends.
    pub(super) loops: Vec<Range<usize>>,
    passed: FxHashSet<i64>,
    /// The newest rows of each table; empty if no script calls `latest`.
    pub(super) recent: Vec<Recent>,
    /// The rows that this try has inserted, where [`Memory::recent`] takes them.
    pub(super) inserted: Vec<(u16, i64)>,
    /// Keys that a scan of an index has found.
    pub(super) found: Vec<KeyWords>,
    pub(super) changes: WordChanges,
    draws: Draws,
    /// The draws of the transaction, if they could be made before it began.
    noted: Vec<i64>,
    saved: Saved,
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
            frame: Frame::new(),
            fresh: None,
            rows: Vec::new(),
            loops: Vec::new(),
            passed: FxHashSet::default(),
            recent: Vec::new(),
            inserted: Vec::new(),
            found: Vec::new(),
            changes: WordChanges::default(),
            draws: Draws::Repeated(0),
            noted: Vec::new(),
            saved: Saved::default(),
            uniques: 0,
            workers: workers as i64,
            worker: worker as i64,
            named: 0,
            missed: 0,
        }
    }

    fn begin(&mut self, code: &Code) {
        self.frame.words_mut(0, code.image.len()).copy_from_slice(&code.image);
        self.frame[CLIENT] = self.worker;
        self.rows.clear();
        self.loops.clear();
        self.passed.clear();
        self.inserted.clear();
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
                frame[to] = operator.apply(frame[a], frame[b]);
            }
            Step::Copy { to, from, words } => {
                if words == 1 {
                    frame[to] = frame[from];
                } else {
                    let from = from as usize;
                    frame.0.copy_within(from..from + words as usize, to as usize);
                }
            }
            Step::Draw { to, draw, a, b } => {
                let of = &code.draws[draw as usize];
                frame[to] = match &mut self.draws {
                    Draws::Made(random) => of.draw(random, frame[a], frame[b]),
                    Draws::Repeated(next) => {
                        *next += 1;
                        self.noted[*next - 1]
                    }
                    Draws::Noted(random) => {
                        let drawn = of.draw(random, frame[a], frame[b]);
                        self.noted.push(drawn);
                        drawn
                    }
                };
            }
            Step::DrawText { to, length, bytes, any } => self.draw_text(to, length, (bytes, any)),
            Step::SameText { to, a, b } => {
                let (first, second) = (frame[a], frame[b]);
                let words = (first.max(0) as usize).div_ceil(8);
                let same = first == second && frame.words(a + 1, words) == frame.words(b + 1, words);
                frame[to] = i64::from(same);
            }
            Step::Unique { to } => {
                frame[to] = (first_unique + self.uniques) * self.workers + self.worker;
                self.uniques += 1;
            }
            Step::Distinct { to, a } => {
                let number = frame[a];
                frame[to] = i64::from(self.passed.insert(number));
            }
            Step::Latest { to, rank, table } => {
                frame[to] = self.recent[table as usize].key(frame[rank] as u64);
            }
            Step::Unless { condition, to, .. } => {
                if frame[condition] == 0 {
                    return Some(to as usize);
                }
            }
            Step::Jump { to, .. } => return Some(to as usize),
            Step::Repeat { count, left, end } => {
                let count = frame[count].clamp(0, ROUNDS_MAX as i64);
                frame[left] = count;
                if count == 0 {
                    return Some(end as usize);
                }
            }
            Step::Again { left, start } => {
                frame[left] -= 1;
                if frame[left] > 0 {
                    return Some(start as usize);
                }
            }
            _ => return None,
        }
        Some(at + 1)
    }

    /// Draws a text.
    fn draw_text(&mut self, to: Register, length: Register, (bytes, any): (u16, bool)) {
        let Memory { frame, noted, draws, .. } = self;
        let length = frame[length];
        let text = frame.words_mut(to, 1 + bytes.div_ceil(8) as usize);
        match draws {
            // The text comes from a seed that is put down.
            Draws::Repeated(next) => {
                *next += 1;
                draw_text(&mut SplitMix64::new(noted[*next - 1] as u64), text, length, (bytes, any));
            }
            Draws::Made(random) => draw_text(random, text, length, (bytes, any)),
            Draws::Noted(random) => noted.push(random.draw() as i64),
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
    pub(super) fn evaluate(&mut self, code: &Code, seed: u64, set: impl FnOnce(&mut Frame)) {
        self.begin(code);
        set(&mut self.frame);
        self.draws = Draws::Made(SplitMix64::new(seed));
        self.compute(code, 0, code.steps.len(), 0);
    }

    /// Runs the first steps of a transaction, which touch no row. The first try goes on behind
    /// them, and each further try begins anew.
    pub(super) fn draw_first(&mut self, code: &Code, input: &Input) {
        self.begin(code);
        self.draws = Draws::Made(SplitMix64::new(input.seed));
        self.compute(code, 0, code.drawn_first, input.first_unique);
        self.fresh = Some(code.drawn_first);
    }

    /// Makes the draws of a transaction before it begins, and finds the keys that it will touch.
    pub(super) fn foresee(
        &mut self,
        code: &Code,
        tables: &[TableShape],
        partitions: Option<&Partitions>,
        input: &mut Input,
    ) {
        self.fresh = None;
        self.begin(code);
        self.draws = Draws::Noted(SplitMix64::new(input.seed));
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
            && let Some(words) = key_of(shape, access.key.len(), |part| self.frame[access.key[part]])
        {
            keys[table].push(words, !access.reads);
        }
        if let Some(partitions) = partitions
            && partitions.of[table]
            && let Some(first) = access.first
        {
            touched.push(self.frame[first].rem_euclid(partitions.count as i64) as usize);
        }
    }

    /// Begins a try of a transaction. Returns the step with which it goes on.
    #[inline]
    pub(super) fn start(&mut self, code: &Code, input: &Input) -> usize {
        self.fresh.take().unwrap_or_else(|| {
            self.begin(code);
            self.draws = if input.is_foreseen { Draws::Repeated(0) } else { Draws::Made(SplitMix64::new(input.seed)) };
            0
        })
    }

    /// Runs a script in a transaction, piece by piece. `repeats` says whether a piece may run
    /// again.
    #[inline]
    pub(super) fn run<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        tables: &Tables<'_>,
        input: &Input,
        repeats: bool,
    ) -> Result<(), Abort> {
        let first = input.first_unique;
        let mut at = self.start(code, input);
        for piece in &code.pieces {
            self.run_steps(tx, code, tables, at..piece.steps.start, first)?;
            at = piece.steps.end;
            let mut is_saved = false;
            tx.piece(piece.piece, |tx| {
                if repeats {
                    if is_saved {
                        self.restore(piece)
                    } else {
                        self.save(piece)
                    }
                    is_saved = true;
                }
                self.run_steps(tx, code, tables, piece.steps.clone(), first)
            })?;
        }
        self.run_steps(tx, code, tables, at..code.steps.len(), first)
    }

    /// Keeps what a piece is going to change besides rows.
    fn save(&mut self, piece: &ScriptPiece) {
        let Memory { frame, passed, inserted, saved, draws, uniques, named, missed, .. } = self;
        saved.registers.clear();
        for &(register, words) in &piece.changed {
            saved.registers.extend_from_slice(frame.words(register, words as usize));
        }
        saved.passed.clear();
        if piece.has_distinct {
            saved.passed.extend(passed.iter());
        }
        saved.draws = draws.clone();
        saved.inserted = inserted.len();
        (saved.uniques, saved.named, saved.missed) = (*uniques, *named, *missed);
    }

    /// Brings back what [`Memory::save`] has kept.
    fn restore(&mut self, piece: &ScriptPiece) {
        let Memory { frame, passed, inserted, saved, draws, uniques, named, missed, .. } = self;
        let mut from = 0;
        for &(register, words) in &piece.changed {
            let words = words as usize;
            frame.words_mut(register, words).copy_from_slice(&saved.registers[from..from + words]);
            from += words;
        }
        if piece.has_distinct {
            passed.clear();
            passed.extend(saved.passed.iter());
        }
        *draws = saved.draws.clone();
        inserted.truncate(saved.inserted);
        (*uniques, *named, *missed) = (saved.uniques, saved.named, saved.missed);
        // A piece is an outermost loop or less.
        self.rows.clear();
        self.loops.clear();
    }

    /// Runs some steps.
    fn run_steps<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        tables: &Tables<'_>,
        steps: Range<usize>,
        first: i64,
    ) -> Result<(), Abort> {
        let Range { start: mut at, end: until } = steps;
        while at < until {
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
                    let amount = u64::try_from(self.frame[amount]).unwrap_or(0);
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

/// A key of a table whose rows scripts name.
pub(super) trait PackedKey: Key {
    /// Returns the key of which `value` gives the first `count` parts, or `None` if a value does
    /// not fit its part. The other parts are 0.
    fn packed(shape: &KeyShape, count: usize, value: impl Fn(usize) -> i64) -> Option<Self>;
}

impl PackedKey for u64 {
    #[inline(always)]
    fn packed(shape: &KeyShape, count: usize, value: impl Fn(usize) -> i64) -> Option<u64> {
        let (mut key, mut fits) = (0, true);
        for (number, part) in shape.parts.iter().enumerate().take(count) {
            let value = value(number);
            fits &= value >= 0 && value as u64 <= part.max();
            key |= (value as u64) << part.shift;
        }
        fits.then_some(key)
    }
}

impl PackedKey for Wide {
    #[inline(always)]
    fn packed(shape: &KeyShape, count: usize, value: impl Fn(usize) -> i64) -> Option<Wide> {
        key_of(shape, count, value).map(Wide::from_words)
    }
}

/// Returns a key's words; see [`PackedKey::packed`].
pub(super) fn key_of(shape: &KeyShape, count: usize, value: impl Fn(usize) -> i64) -> Option<KeyWords> {
    let mut words = [0; MAX_KEY_WORDS];
    let mut fits = true;
    for (number, part) in shape.parts.iter().take(count).enumerate() {
        let value = value(number);
        fits &= value >= 0 && value as u64 <= part.max();
        words[part.word as usize] |= (value as u64) << part.shift;
    }
    fits.then_some(words)
}

/// Copies registers to a column of a row.
#[inline(always)]
pub(super) fn put(store: &Store, row: &mut [u64], frame: &Frame) {
    match store.text {
        None => row[store.word as usize] = frame[store.from] as u64,
        Some(bytes) => put_text(store, bytes as usize, row, frame),
    }
}

/// Copies a text of at most `bytes` to a column of a row.
fn put_text(store: &Store, bytes: usize, row: &mut [u64], frame: &Frame) {
    let word = store.word as usize;
    let room = 1 + bytes.div_ceil(8);
    let copied = room.min(store.words as usize);
    let from = frame.words(store.from, copied);
    row[word] = from[0].clamp(0, bytes as i64) as u64;
    for number in 1..copied {
        row[word + number] = from[number] as u64;
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
