//! The execution of compiled scripts.

use std::ops::{Index, IndexMut, Range};

use contend_model::random::SplitMix64;
use contend_model::{Abort, Key, KeyWords, MAX_KEY_WORDS, Txn, WordChanges};
use rustc_hash::FxHashSet;

use super::draws::{Distribution, draw_text};
use super::foresee::{KeysOf, KnownKeys};
use super::program::{
    Access, CLIENT, Code, FOUND, FRAME_MAX, NamedPart, ROUNDS_MAX, Register, ScriptPiece, Step, Store,
};
use super::recent::Recent;
use super::rounds::Rounds;
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
pub(super) enum Draws {
    /// They are made, and put down.
    Noted(SplitMix64),
    /// They are those that were put down.
    Repeated(usize),
    /// They are made, the same at each try.
    Made(SplitMix64),
}

impl Draws {
    #[inline(always)]
    pub(super) fn number(&mut self, noted: &mut Vec<i64>, of: &Distribution, range: (i64, i64)) -> i64 {
        match self {
            Draws::Made(random) => of.draw(random, range),
            Draws::Repeated(next) => {
                *next += 1;
                noted[*next - 1]
            }
            Draws::Noted(random) => {
                let drawn = of.draw(random, range);
                noted.push(drawn);
                drawn
            }
        }
    }

    /// Draws a text to a register, of a length that a register holds.
    pub(super) fn text(
        &mut self,
        noted: &mut Vec<i64>,
        frame: &mut Frame,
        (to, length): (Register, Register),
        (bytes, any): (u16, bool),
    ) {
        let length = frame[length];
        let text = frame.words_mut(to, 1 + bytes.div_ceil(8) as usize);
        match self {
            // The text comes from a seed that is put down.
            Draws::Repeated(next) => {
                *next += 1;
                draw_text(&mut SplitMix64::new(noted[*next - 1] as u64), text, length, (bytes, any));
            }
            Draws::Made(random) => draw_text(random, text, length, (bytes, any)),
            Draws::Noted(random) => noted.push(random.draw() as i64),
        }
    }
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

    /// Copies words within the frame.
    pub(super) fn copy(&mut self, from: Register, to: Register, words: u16) {
        let from = from as usize;
        self.0.copy_within(from..from + words as usize, to as usize);
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
    pub(super) fresh: Option<usize>,
    /// The rows that loops go over.
    pub(super) rows: Vec<i64>,
    /// The loops over rows that are open: where the next row is, and where the last one ends.
    pub(super) loops: Vec<Range<usize>>,
    pub(super) passed: FxHashSet<i64>,
    /// The newest rows of each table; empty if no script calls `latest`.
    pub(super) recent: Vec<Recent>,
    /// The rows that this try has inserted, where [`Memory::recent`] takes them.
    pub(super) inserted: Vec<(u16, i64)>,
    /// Keys that a scan of an index has found, and the same as keys of the table.
    pub(super) found: Vec<KeyWords>,
    narrow: Vec<u64>,
    wide: Vec<Wide>,
    pub(super) changes: WordChanges,
    pub(super) draws: Draws,
    /// The draws of the transaction, if they could be made before it began.
    pub(super) noted: Vec<i64>,
    /// What the transaction does, if that could be put down before it began; see
    /// [`Memory::foresee`].
    pub(super) trace: Vec<i64>,
    /// The keys of a batch while they are found.
    pub(super) batched: KeysOf<u64>,
    /// Its accesses to keys that do not fit their columns.
    pub(super) unfit: u64,
    saved: Saved,
    /// The rounds of a distributed loop.
    pub(super) rounds: Rounds,
    /// The first of the numbers that `unique()` returns, and how many it has returned.
    pub(super) first_unique: i64,
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
            narrow: Vec::new(),
            wide: Vec::new(),
            changes: WordChanges::default(),
            draws: Draws::Repeated(0),
            noted: Vec::new(),
            trace: Vec::new(),
            batched: KeysOf::default(),
            unfit: 0,
            saved: Saved::default(),
            rounds: Rounds::default(),
            first_unique: 0,
            uniques: 0,
            workers: workers as i64,
            worker: worker as i64,
            named: 0,
            missed: 0,
        }
    }

    /// Begins a try of a script, whose `unique()` returns numbers from this one on.
    pub(super) fn begin(&mut self, code: &Code, first_unique: i64) {
        self.frame.words_mut(0, code.image.len()).copy_from_slice(&code.image);
        self.frame[CLIENT] = self.worker;
        self.rows.clear();
        self.loops.clear();
        // It allocates, so it is rarely used, and a call to find it empty takes time.
        if !self.passed.is_empty() {
            self.passed.clear();
        }
        self.inserted.clear();
        (self.first_unique, self.uniques) = (first_unique, 0);
        (self.named, self.missed) = (0, 0);
    }

    /// Evaluates code that touches no row: for loading, and for checks.
    pub(super) fn evaluate(&mut self, code: &Code, seed: u64, set: impl FnOnce(&mut Frame)) {
        self.begin(code, 0);
        set(&mut self.frame);
        self.draws = Draws::Made(SplitMix64::new(seed));
        self.advance(code, 0, code.steps.len());
    }

    /// Runs the first steps of a transaction, which touch no row. The first try goes on behind
    /// them, and each further try begins anew.
    pub(super) fn draw_first(&mut self, code: &Code, input: &Input) {
        self.begin(code, input.first_unique);
        self.draws = Draws::Made(SplitMix64::new(input.seed));
        self.advance(code, 0, code.drawn_first);
        self.fresh = Some(code.drawn_first);
    }

    /// Begins a try of a transaction. Returns the step with which it goes on.
    #[inline]
    pub(super) fn start(&mut self, code: &Code, input: &Input) -> usize {
        self.fresh.take().unwrap_or_else(|| {
            self.begin(code, input.first_unique);
            let repeats = input.is_foreseen && !code.replayable;
            self.draws = if repeats { Draws::Repeated(0) } else { Draws::Made(SplitMix64::new(input.seed)) };
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
        if input.is_foreseen && code.replayable && !tx.uses_pieces() {
            return self.replay(tx, code, tables, &input.keys);
        }
        let mut at = self.start(code, input);
        if !tx.uses_pieces() {
            return self.run_steps(tx, code, tables, at..code.steps.len());
        }
        for piece in &code.pieces {
            self.run_steps(tx, code, tables, at..piece.steps.start)?;
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
                self.run_steps(tx, code, tables, piece.steps.clone())
            })?;
        }
        self.run_steps(tx, code, tables, at..code.steps.len())
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

    /// Begins a loop of as many rounds as a register says. Returns how many there are.
    #[inline(always)]
    pub(super) fn rounds_of(&mut self, count: Register, left: Register) -> usize {
        let rounds = self.frame[count].clamp(0, ROUNDS_MAX as i64);
        self.frame[left] = rounds;
        rounds as usize
    }

    /// Begins the loop of a step, or runs all of it if it is distributed. Returns the next step.
    fn begin_loop<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        tables: &Tables<'_>,
        start: usize,
    ) -> Result<usize, Abort> {
        let (rounds, end, rows) = match code.steps[start] {
            Step::Each { access, end } => {
                let access = &code.accesses[access as usize];
                let first = self.rows.len();
                self.collect(tx, access, tables)?;
                self.loops.push(first..self.rows.len());
                (self.frame[FOUND] as usize, end, Some(access))
            }
            Step::Repeat { count, left, end } => (self.rounds_of(count, left), end, None),
            _ => unreachable!("another step begins no loop"),
        };
        if let Some(of) = code.distributed_at(start)
            && rounds > 1
        {
            self.run_distributed(tx, code, of, tables, (rounds, rows))?;
            // There is no more row, which ends the loop.
            rows.map(|access| self.next_row(access));
            return Ok(of.end);
        }
        let begins = rows.map_or(rounds > 0, |access| self.next_row(access));
        Ok(if begins { start + 1 } else { end as usize })
    }

    /// Runs some steps.
    fn run_steps<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        tables: &Tables<'_>,
        steps: Range<usize>,
    ) -> Result<(), Abort> {
        let Range { start: mut at, end: until } = steps;
        let all = &code.steps[..until];
        while let Some(step) = all.get(at) {
            at += 1;
            match *step {
                Step::Read { access } => self.read(tx, &code.accesses[access as usize], tables)?,
                Step::Modify { access, end } => {
                    self.modify(tx, code, &code.accesses[access as usize], at..end as usize, tables)?;
                    at = end as usize;
                }
                Step::SelectAndUpdate { access, end } => {
                    self.select_and_update(tx, code, &code.accesses[access as usize], at..end as usize, tables)?;
                    at = end as usize;
                }
                Step::Update { access } => self.update(tx, &code.accesses[access as usize], tables)?,
                Step::Write { access } => self.write(tx, &code.accesses[access as usize], tables)?,
                Step::Insert { access, or_nothing } => {
                    self.insert(tx, &code.accesses[access as usize], or_nothing, tables)?;
                }
                Step::Delete { access } => {
                    let found = self.delete(tx, &code.accesses[access as usize], tables)?;
                    self.found(found);
                }
                Step::Scan { access } => self.scan(tx, &code.accesses[access as usize], tables)?,
                Step::Each { .. } | Step::Repeat { .. } => at = self.begin_loop(tx, code, tables, at - 1)?,
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
                // It touches no row.
                _ => at = self.advance(code, at - 1, until),
            }
        }
        Ok(())
    }
}

/// The longest sleep, in microseconds.
pub(super) const SLEEP_MAX_US: u64 = 10_000_000;

/// A key of a table whose rows scripts name.
pub(super) trait PackedKey: Key {
    /// Returns the key of an access, or `None` if a value does not fit its part. Parts that the
    /// access does not name are 0.
    fn packed(access: &Access, frame: &Frame) -> Option<Self>;

    /// Returns the worker's memory for many keys.
    fn scratch(memory: &mut Memory) -> &mut Vec<Self>;
}

impl PackedKey for u64 {
    #[inline(always)]
    fn packed(access: &Access, frame: &Frame) -> Option<u64> {
        match &access.parts[..] {
            [part] => part.value(frame).map(|value| value << part.shift),
            parts => packed_parts(parts, frame),
        }
    }

    fn scratch(memory: &mut Memory) -> &mut Vec<u64> {
        &mut memory.narrow
    }
}

/// Returns a key of several parts in one word. A call: it is the same for each kind of access.
#[inline(never)]
fn packed_parts(parts: &[NamedPart], frame: &Frame) -> Option<u64> {
    let mut key = 0;
    for part in parts {
        key |= part.value(frame)? << part.shift;
    }
    Some(key)
}

impl PackedKey for Wide {
    #[inline(always)]
    fn packed(access: &Access, frame: &Frame) -> Option<Wide> {
        let mut words = [0; MAX_KEY_WORDS];
        for part in &access.parts {
            words[part.word as usize] |= part.value(frame)? << part.shift;
        }
        Some(Wide::from_words(words))
    }

    fn scratch(memory: &mut Memory) -> &mut Vec<Wide> {
        &mut memory.wide
    }
}

impl NamedPart {
    /// Returns the part's value, or `None` if it does not fit.
    #[inline(always)]
    fn value(&self, frame: &Frame) -> Option<u64> {
        // A negative number is larger than all others.
        let value = frame[self.register] as u64;
        (value <= self.most).then_some(value)
    }
}

/// Returns the words of the key of which `value` gives the first `count` parts, or `None` if a
/// value does not fit its part. The other parts are 0.
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
#[inline(never)]
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
