//! The execution of compiled scripts.

use std::ops::{Index, IndexMut, Range};

use contend_model::random::SplitMix64;
use contend_model::{Abort, Declare, Groups, Key, KeyWords, MAX_KEY_WORDS, Table, Txn, WordChanges};
use rustc_hash::FxHashSet;

use super::draws::{Distribution, draw_text};
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

impl Draws {
    #[inline(always)]
    fn number(&mut self, noted: &mut Vec<i64>, of: &Distribution, a: i64, b: i64) -> i64 {
        match self {
            Draws::Made(random) => of.draw(random, a, b),
            Draws::Repeated(next) => {
                *next += 1;
                noted[*next - 1]
            }
            Draws::Noted(random) => {
                let drawn = of.draw(random, a, b);
                noted.push(drawn);
                drawn
            }
        }
    }

    /// Draws a text to a register, of a length that a register holds.
    fn text(
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
    Narrow(KeysOf<u64>),
    Wide(KeysOf<Wide>),
}

/// Keys of one type, and beside each whether its row is written.
#[derive(Debug, Default)]
pub(super) struct KeysOf<K> {
    pub(super) keys: Vec<K>,
    pub(super) writes: Vec<bool>,
}

impl<K> KeysOf<K> {
    #[inline(always)]
    fn push(&mut self, key: Option<K>, access: &Access) {
        if let Some(key) = key {
            self.keys.push(key);
            self.writes.push(!access.reads);
        }
    }

    fn clear(&mut self) {
        self.keys.clear();
        self.writes.clear();
    }
}

impl KnownKeys {
    fn clear(&mut self) {
        match self {
            KnownKeys::Narrow(known) => known.clear(),
            KnownKeys::Wide(known) => known.clear(),
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
    /// What the transaction does, if that could be put down before it began: for each access the
    /// number of the step, then the values of its varying registers.
    trace: Vec<i64>,
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
            trace: Vec::new(),
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
        // It allocates, so it is rarely used, and a call to find it empty takes time.
        if !self.passed.is_empty() {
            self.passed.clear();
        }
        self.inserted.clear();
        self.uniques = 0;
        self.named = 0;
        self.missed = 0;
    }

    /// Runs the steps from `at` on that touch no row, up to `end`. Returns the step before which it
    /// stops: one that touches a row, waits or cancels, or `end`.
    ///
    /// It is a function of its own so that what each step needs stays in registers.
    #[inline(never)]
    pub(super) fn advance(&mut self, code: &Code, mut at: usize, end: usize, first_unique: i64) -> usize {
        let Memory { frame, draws, noted, passed, recent, uniques, .. } = self;
        let steps = &code.steps[..end];
        while let Some(step) = steps.get(at) {
            at += 1;
            match *step {
                Step::Compute { operator, to, a, b } => {
                    frame[to] = operator.apply(frame[a], frame[b]);
                }
                Step::Copy { to, from, words: 1 } => frame[to] = frame[from],
                Step::Copy { to, from, words } => {
                    let from = from as usize;
                    frame.0.copy_within(from..from + words as usize, to as usize);
                }
                Step::Draw { to, draw, a, b } => {
                    frame[to] = draws.number(noted, &code.draws[draw as usize], frame[a], frame[b]);
                }
                Step::DrawText { to, length, bytes, any } => draws.text(noted, frame, (to, length), (bytes, any)),
                Step::SameText { to, a, b } => {
                    let (first, second) = (frame[a], frame[b]);
                    let words = (first.max(0) as usize).div_ceil(8);
                    let same = first == second && frame.words(a + 1, words) == frame.words(b + 1, words);
                    frame[to] = i64::from(same);
                }
                Step::Unique { to } => {
                    frame[to] = (first_unique + *uniques) * self.workers + self.worker;
                    *uniques += 1;
                }
                Step::Distinct { to, a } => frame[to] = i64::from(passed.insert(frame[a])),
                Step::Latest { to, rank, table } => frame[to] = recent[table as usize].key(frame[rank] as u64),
                // Where rows decide, and are not known yet, both branches run.
                Step::Unless { by_rows: true, .. }
                | Step::UnlessIs { by_rows: true, .. }
                | Step::Jump { by_rows: true, .. }
                    if matches!(draws, Draws::Noted(_)) => {}
                Step::Unless { condition, to, .. } => {
                    if frame[condition] == 0 {
                        at = to as usize;
                    }
                }
                Step::UnlessIs { operator, a, b, to, .. } => {
                    if operator.apply(frame[a], frame[b]) == 0 {
                        at = to as usize;
                    }
                }
                Step::Jump { to, .. } => at = to as usize,
                Step::Repeat { count, left, end } => {
                    let count = frame[count].clamp(0, ROUNDS_MAX as i64);
                    frame[left] = count;
                    if count == 0 {
                        at = end as usize;
                    }
                }
                Step::Again { left, start } => {
                    frame[left] -= 1;
                    if frame[left] > 0 {
                        at = start as usize;
                    }
                }
                _ => return at - 1,
            }
        }
        end
    }

    /// Evaluates code that touches no row: for loading, and for checks.
    pub(super) fn evaluate(&mut self, code: &Code, seed: u64, set: impl FnOnce(&mut Frame)) {
        self.begin(code);
        set(&mut self.frame);
        self.draws = Draws::Made(SplitMix64::new(seed));
        self.advance(code, 0, code.steps.len(), 0);
    }

    /// Runs the first steps of a transaction, which touch no row. The first try goes on behind
    /// them, and each further try begins anew.
    pub(super) fn draw_first(&mut self, code: &Code, input: &Input) {
        self.begin(code);
        self.draws = Draws::Made(SplitMix64::new(input.seed));
        self.advance(code, 0, code.drawn_first, input.first_unique);
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
        self.trace.clear();
        keys.iter_mut().for_each(KnownKeys::clear);
        touched.clear();
        let mut at = 0;
        loop {
            at = self.advance(code, at, code.steps.len(), *first_unique);
            let Some(step) = code.steps.get(at) else { break };
            at += 1;
            if let Some(access) = step.access() {
                let access = &code.accesses[access as usize];
                self.note(access, tables, partitions, keys, touched);
                if code.replayable {
                    self.trace.push(at as i64 - 1);
                    for &register in &access.varying {
                        self.trace.push(self.frame[register]);
                    }
                }
            }
            // The steps of a joined update run in any case, and what they compute may be a key.
            if let Step::Modify { end, .. } = *step {
                at = end as usize;
            }
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
        if access.known && access.by_index.is_none() && access.key.len() == shape.parts.len() {
            let value = |part: usize| self.frame[access.key[part]];
            match &mut keys[table] {
                KnownKeys::Narrow(known) => known.push(PackedKey::packed(shape, access.key.len(), value), access),
                KnownKeys::Wide(known) => known.push(PackedKey::packed(shape, access.key.len(), value), access),
            }
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
        if input.is_foreseen && code.replayable && !tx.uses_pieces() {
            return self.replay(tx, code, tables);
        }
        let mut at = self.start(code, input);
        if !tx.uses_pieces() {
            return self.run_steps(tx, code, tables, at..code.steps.len(), first);
        }
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

    /// Does what was put down before the transaction began. The constants are still in the frame.
    fn replay<T: Txn>(&mut self, tx: &mut T, code: &Code, tables: &Tables<'_>) -> Result<(), Abort> {
        (self.named, self.missed) = (0, 0);
        let mut at = 0;
        while let Some(&step) = self.trace.get(at) {
            let step = code.steps[step as usize];
            let (Step::Read { access } | Step::Update { access } | Step::Write { access }) = step else {
                unreachable!("another step is not replayable")
            };
            let access = &code.accesses[access as usize];
            at += 1;
            for &register in &access.varying {
                self.frame[register] = self.trace[at];
                at += 1;
            }
            match step {
                Step::Read { .. } => self.read(tx, access, tables)?,
                Step::Update { .. } => self.update(tx, access, tables)?,
                _ => self.write(tx, access, tables)?,
            }
        }
        Ok(())
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
        loop {
            at = self.advance(code, at, until, first);
            if at == until {
                return Ok(());
            }
            let step = code.steps[at];
            at += 1;
            match step {
                Step::Read { access } => self.read(tx, &code.accesses[access as usize], tables)?,
                Step::Modify { access, end } => {
                    self.modify(tx, code, &code.accesses[access as usize], at..end as usize, tables, first)?;
                    at = end as usize;
                }
                Step::SelectAndUpdate { access, end } => {
                    self.select_and_update(tx, code, &code.accesses[access as usize], at..end as usize, tables, first)?;
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
        if let ([part], 1) = (&shape.parts[..], count) {
            let value = value(0);
            return (value >= 0 && value as u64 <= part.max()).then_some((value as u64) << part.shift);
        }
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
            (Handle::Narrow(table), KnownKeys::Narrow(known)) if known.keys.len() > 1 => {
                tx.announce_writes(table, &known.keys, *groups)
            }
            (Handle::Wide(table), KnownKeys::Wide(known)) if known.keys.len() > 1 => {
                tx.announce_writes(table, &known.keys, *groups)
            }
            _ => {}
        }
    }
}

/// Declares the known keys of a table.
pub(super) fn declare_rows<K: Key>(declaration: &mut impl Declare, table: &Table<K>, known: &KeysOf<K>) {
    known.keys.iter().zip(&known.writes).for_each(|(&key, &writes)| declaration.row(table, key, writes));
}
