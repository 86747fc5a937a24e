//! Compiled scripts: flat lists of steps on registers.
//!
//! A transaction's registers are one array of words, the *frame*. It holds the constants, the
//! variables of the script, and intermediate values. Nothing is named, hashed or allocated while a
//! transaction runs.

use std::ops::Range;

use contend_model::pieces::Piece;
use contend_model::{Direction, Groups, Projection, Span};

use super::distribute::Distributed;
use super::draws::Distribution;
use super::ops::Op;
use super::schema::{KeyPart, Table};

/// The position of a word in the frame.
pub(super) type Register = u16;
/// The most words of a frame.
pub(super) const FRAME_MAX: usize = 8192;
/// The most variables of a script.
pub(super) const VARIABLES_MAX: usize = 64;
/// The most rounds of a loop, and rows of a scan.
pub(super) const ROUNDS_MAX: usize = 1000;

/// The register of `:found`: the number of rows that the last statement found.
pub(super) const FOUND: Register = 0;
/// The register of `:client_id`.
pub(super) const CLIENT: Register = 1;
/// The register of `:row`: the number of the row that is being loaded.
pub(super) const ROW: Register = 2;

/// An operation on two words. Arithmetic wraps around. What is divided by 0 gives 0: a transaction
/// that is going to abort may divide by anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The sum.
    Add,
    /// The difference.
    Subtract,
    /// The product.
    Multiply,
    /// The quotient, towards 0.
    Divide,
    /// The remainder, with the sign of the first.
    Modulo,
    /// Whether they are equal.
    Equal,
    /// Whether they differ.
    Unequal,
    /// Whether the first is less.
    Less,
    /// Whether the first is not more.
    AtMost,
    /// Whether both are not 0.
    And,
    /// Whether one is not 0.
    Or,
    /// The exclusive or of their bits.
    Xor,
    /// The smaller one.
    Least,
    /// The larger one.
    Greatest,
    /// The first, its bits shifted up by the second.
    ShiftLeft,
    /// The first, its bits shifted down by the second.
    ShiftRight,
    /// The absolute value of the first; the second is ignored.
    Absolute,
    /// A permutation of the numbers below the second, applied to the first.
    Permute,
}

impl Operator {
    #[inline(always)]
    pub(super) fn apply(self, a: i64, b: i64) -> i64 {
        match self {
            Operator::Add => a.wrapping_add(b),
            Operator::Subtract => a.wrapping_sub(b),
            Operator::Multiply => a.wrapping_mul(b),
            Operator::Divide => {
                if b == 0 {
                    0
                } else {
                    a.wrapping_div(b)
                }
            }
            Operator::Modulo => {
                if b == 0 {
                    0
                } else {
                    a.wrapping_rem(b)
                }
            }
            Operator::Equal => i64::from(a == b),
            Operator::Unequal => i64::from(a != b),
            Operator::Less => i64::from(a < b),
            Operator::AtMost => i64::from(a <= b),
            Operator::And => i64::from(a != 0 && b != 0),
            Operator::Or => i64::from(a != 0 || b != 0),
            Operator::Xor => a ^ b,
            Operator::Least => a.min(b),
            Operator::Greatest => a.max(b),
            Operator::ShiftLeft => a.wrapping_shl(b as u32),
            Operator::ShiftRight => a.wrapping_shr(b as u32),
            Operator::Absolute => a.wrapping_abs(),
            Operator::Permute => super::draws::permuted(a, b),
        }
    }
}

/// A step of a script.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Copies words within the frame.
    Copy { to: Register, from: Register, words: u16 },
    /// Computes a word.
    Compute { operator: Operator, to: Register, a: Register, b: Register },
    /// Draws a number.
    Draw { to: Register, draw: u16, a: Register, b: Register },
    /// Draws a text of `length` bytes, and of at most `bytes`: letters and digits, or any bytes.
    DrawText { to: Register, length: Register, bytes: u16, any: bool },
    /// Compares two texts.
    SameText { to: Register, a: Register, b: Register },
    /// Returns a number that was never returned before.
    Unique { to: Register },
    /// Returns 1 if the transaction has not passed this number yet.
    Distinct { to: Register, a: Register },
    /// Returns the key of a row of `table` by its age: rank 0 is the newest.
    Latest { to: Register, rank: Register, table: u16 },
    /// Goes to `to` if the condition is 0.
    Unless { condition: Register, to: u32, by_rows: bool },
    /// Goes to `to` if the operation on `a` and `b` gives 0: a comparison and [`Step::Unless`],
    /// which `fuse` has joined.
    UnlessIs { operator: Operator, a: Register, b: Register, to: u32, by_rows: bool },
    /// Goes to `to`.
    Jump { to: u32, by_rows: bool },
    /// Begins a loop of `count` rounds; goes to `end` if there are none.
    Repeat { count: Register, left: Register, end: u32 },
    /// Ends a round of a loop that begins at `start`.
    Again { left: Register, start: u32 },
    /// Reads a row.
    Read { access: u16 },
    /// Reads a row, runs the steps up to `end` on its columns, and writes it.
    Modify { access: u16, end: u32 },
    /// Reads a row, runs the steps up to `end`, whether there is a row or not, and changes the row:
    /// a select and a later update, which `fuse` has joined.
    SelectAndUpdate { access: u16, end: u32 },
    /// Changes a row without reading it.
    Update { access: u16 },
    /// Replaces groups of a row without reading them.
    Write { access: u16 },
    /// Inserts a row. If there is one already, the transaction cancels itself, unless `or_nothing`.
    Insert { access: u16, or_nothing: bool },
    /// Deletes a row.
    Delete { access: u16 },
    /// Reads the rows of a range.
    Scan { access: u16 },
    /// Reads the rows of a range, and begins a loop over them; goes to `end` if there are none.
    Each { access: u16, end: u32 },
    /// Ends a round of a loop over rows, which begins at `start`.
    Next { access: u16, start: u32 },
    /// Cancels the transaction.
    Cancel,
    /// Leaves the transaction open for `amount` times `unit` microseconds.
    Sleep { amount: Register, unit: u32 },
}

impl Step {
    /// Returns the step to which this one may go, or the end of the steps that belong to it.
    pub(super) fn target(mut self) -> Option<u32> {
        self.target_mut().copied()
    }

    /// Returns the same, to be changed.
    pub(super) fn target_mut(&mut self) -> Option<&mut u32> {
        match self {
            Step::Unless { to, .. } | Step::UnlessIs { to, .. } | Step::Jump { to, .. } => Some(to),
            Step::Repeat { end, .. }
            | Step::Each { end, .. }
            | Step::Modify { end, .. }
            | Step::SelectAndUpdate { end, .. } => Some(end),
            Step::Again { start, .. } | Step::Next { start, .. } => Some(start),
            _ => None,
        }
    }

    /// Returns the register of a step that computes one word, to be changed.
    pub(super) fn result_mut(&mut self) -> Option<&mut Register> {
        match self {
            Step::Copy { to, words: 1, .. }
            | Step::Compute { to, .. }
            | Step::Draw { to, .. }
            | Step::SameText { to, .. }
            | Step::Unique { to }
            | Step::Distinct { to, .. }
            | Step::Latest { to, .. } => Some(to),
            _ => None,
        }
    }

    /// Returns the access of a step that touches rows.
    pub(super) fn access(&self) -> Option<u16> {
        match *self {
            Step::Read { access }
            | Step::Modify { access, .. }
            | Step::SelectAndUpdate { access, .. }
            | Step::Update { access }
            | Step::Write { access }
            | Step::Insert { access, .. }
            | Step::Delete { access }
            | Step::Scan { access }
            | Step::Each { access, .. } => Some(access),
            _ => None,
        }
    }
}

/// The copying of a column to registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load {
    pub(super) from: Source,
    pub(super) words: u16,
    pub(super) to: Register,
}

/// The place of a column in a row that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// It begins at this word of the row.
    Row(u16),
    /// It is this part of the row's key.
    Key(u8),
    /// There is no column: the number 1, which a count adds up.
    One,
}

/// The copying of registers to a column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Store {
    pub(super) word: u16,
    pub(super) from: Register,
    /// The largest length of a text in bytes; `None` for a number.
    pub(super) text: Option<u16>,
    /// The words that the value takes in the frame.
    pub(super) words: u16,
}

impl Store {
    fn registers(&self) -> Range<Register> {
        self.from..self.from + self.words
    }
}

/// A change of a word without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Subtract,
    Set,
}

/// How the rows of a scan become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// A sum; a count adds up ones.
    Sum,
    /// The smallest value.
    Least,
    /// The largest value.
    Greatest,
}

impl Aggregate {
    /// Returns the number with which the first row's value begins.
    pub(super) fn of_nothing(self) -> i64 {
        match self {
            Aggregate::Sum => 0,
            Aggregate::Least => i64::MAX,
            Aggregate::Greatest => i64::MIN,
        }
    }

    /// Returns the number of the rows up to one with this value.
    #[inline(always)]
    pub(super) fn with(self, before: i64, value: i64) -> i64 {
        match self {
            Aggregate::Sum => before.wrapping_add(value),
            Aggregate::Least => before.min(value),
            Aggregate::Greatest => before.max(value),
        }
    }
}

/// The change of an index's entries when a row changes: keys of the index, as registers.
#[derive(Clone, Debug)]
pub(super) struct IndexChange {
    pub(super) table: u16,
    pub(super) old: Option<Vec<Register>>,
    pub(super) new: Option<Vec<Register>>,
}

/// A part of a key that a statement names.
#[derive(Clone, Copy, Debug)]
pub(super) struct NamedPart {
    pub(super) register: Register,
    pub(super) word: u8,
    pub(super) shift: u8,
    /// The largest value; the smallest is 0.
    pub(super) most: u64,
}

impl NamedPart {
    fn new(register: Register, part: KeyPart) -> NamedPart {
        NamedPart { register, word: part.word, shift: part.shift, most: part.max().min(i64::MAX as u64) }
    }
}

/// An access of a statement to a table.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) table: u16,
    /// The values of the key, or of the first parts of it.
    pub(super) key: Vec<Register>,
    /// How they lie in a key of the table, if no index finds the rows.
    pub(super) parts: Vec<NamedPart>,
    /// The index by which the rows are found. `key` is then a key of the index.
    pub(super) by_index: Option<u16>,
    pub(super) groups: Groups,
    /// The groups that are changed, if they are not those that are read.
    pub(super) written: Option<Groups>,
    pub(super) spans: Vec<Span>,
    /// Whether the spans are the whole row.
    pub(super) is_whole: bool,
    pub(super) loads: Vec<Load>,
    pub(super) stores: Vec<Store>,
    pub(super) changes: Vec<(Change, u16, Register)>,
    pub(super) indexes: Vec<IndexChange>,
    /// The bounds of the next part of the key, both inclusive.
    pub(super) low: Option<Register>,
    pub(super) high: Option<Register>,
    pub(super) limit: Option<Register>,
    pub(super) offset: Option<Register>,
    pub(super) direction: Direction,
    /// How the loaded columns of all rows become one; empty if they don't.
    pub(super) aggregates: Vec<Aggregate>,
    /// The value of the first column of the primary key, if it is given.
    pub(super) first: Option<Register>,
    /// Whether all of `key` follows from draws, and whether `first` does.
    pub(super) known: bool,
    pub(super) known_first: bool,
    /// The registers of [`Access::registers`] that a step changes.
    pub(super) varying: Vec<Register>,
    /// Those of them that are stored.
    pub(super) stored: Vec<Register>,
    /// Whether it is to one row, whose key is known.
    pub(super) names_row: bool,
    /// Whether it is a read only.
    pub(super) reads: bool,
    /// Whether the scan visits all rows of its range, also more than [`ROUNDS_MAX`]: the scan of a
    /// statement that changes them.
    pub(super) is_endless: bool,
    /// Whether the worker remembers the rows that it inserts here, for `latest`.
    pub(super) remembers: bool,
    /// The number of the statement's line in the script, for messages.
    pub(super) line: u64,
}

impl Access {
    /// Notes what makes accesses to this table simple.
    pub(super) fn prepare(&mut self, table: &Table) {
        let shape = if self.by_index.is_none() { &table.shape.parts[..] } else { &[] };
        let named = self.key.iter().zip(shape);
        self.parts = named.map(|(&register, part)| NamedPart::new(register, *part)).collect();
        self.names_row = self.known && self.by_index.is_none() && self.key.len() == table.shape.parts.len();
        let stores = |register: &Register| self.stores.iter().any(|store| store.registers().contains(register));
        self.stored = self.varying.iter().copied().filter(stores).collect();
        self.is_whole = matches!(self.spans[..], [Span { first: 0, count }] if count as usize == table.words);
    }

    /// Returns the groups that an access changes which changes columns.
    #[inline(always)]
    pub(super) fn changed(&self) -> Groups {
        self.written.unwrap_or(self.groups)
    }

    /// Returns the columns that are read.
    #[inline(always)]
    pub(super) fn columns(&self) -> Projection<'_> {
        if self.is_whole { Projection::of_groups(self.groups) } else { Projection::columns(&self.spans, self.groups) }
    }

    /// Returns the registers whose values the access needs.
    pub(super) fn registers(&self) -> Vec<Register> {
        let stored = self.stores.iter().flat_map(Store::registers);
        let keys = self.indexes.iter().flat_map(|change| change.old.iter().chain(&change.new)).flatten();
        let others = [self.low, self.high, self.limit, self.offset, self.first].into_iter().flatten();
        let changed = self.changes.iter().map(|(.., from)| *from);
        self.key.iter().chain(keys).copied().chain(stored).chain(changed).chain(others).collect()
    }
}

/// A piece of a script: steps that a protocol may let take effect by themselves, and may run again.
#[derive(Clone, Debug)]
pub(super) struct ScriptPiece {
    pub(super) piece: Piece,
    pub(super) steps: Range<usize>,
    /// Whether the transaction may cancel itself here.
    pub(super) cancels: bool,
    pub(super) has_distinct: bool,
    /// The registers that the steps change, with their numbers of words. A piece that runs again
    /// begins with what they held before.
    pub(super) changed: Vec<(Register, u16)>,
}

/// A compiled script.
#[derive(Clone, Debug, Default)]
pub(super) struct Code {
    pub(super) steps: Vec<Step>,
    /// The same, prepared to run; see [`Code::prepare`].
    pub(super) ops: Vec<Op>,
    /// The pieces, in the order of the script. Steps between them touch no row.
    pub(super) pieces: Vec<ScriptPiece>,
    /// The number of first steps that touch no row and take no time.
    pub(super) drawn_first: usize,
    pub(super) accesses: Vec<Access>,
    pub(super) draws: Vec<Distribution>,
    /// The frame at the beginning.
    pub(super) image: Vec<i64>,
    /// Whether all draws can be made before the transaction begins, since none depends on a row.
    pub(super) foreseeable: bool,
    /// Whether no step depends on a row, and all accesses read, update or replace a row. Then what
    /// the transaction does can be put down before it begins.
    pub(super) replayable: bool,
    /// The loops whose rounds access rows together.
    pub(super) distributed: Vec<Distributed>,
    /// All accesses, if they are one.
    pub(super) batch: Option<Batch>,
    /// The tables of which `latest` draws rows.
    pub(super) latest: Vec<u16>,
}

/// Accesses that are known before the transaction begins, and differ in nothing but their keys and
/// what they store: each reads the same columns of a row of one table, or replaces the same groups.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) table: u16,
    /// An access that reads.
    pub(super) read: Option<u16>,
    /// The groups that are replaced.
    pub(super) groups: Groups,
    /// The steps, if keys are of one word: prepared to run before the transaction begins.
    pub(super) ops: Vec<Op>,
}

impl Code {
    /// Prepares the steps to run, when they are all there.
    pub(super) fn prepare(mut self) -> Self {
        self.ops = Op::of_steps(&self.steps, &self.draws);
        for of in &self.distributed {
            // The loop over steps stops here, and runs the rounds together.
            self.ops[of.start] = Op::stop();
        }
        self
    }

    /// Returns the distributed loop that begins with a step, if one does.
    #[inline(always)]
    pub(super) fn distributed_at(&self, start: usize) -> Option<&Distributed> {
        self.distributed.iter().find(|of| of.start == start)
    }

    /// Returns the batch that all accesses are, if they are one. To be called after
    /// [`Access::prepare`].
    pub(super) fn as_batch(&self) -> Option<Batch> {
        let numbers = || self.steps.iter().filter_map(Step::access);
        let of = |number: u16| &self.accesses[number as usize];
        let (reads, writes): (Vec<u16>, Vec<u16>) = numbers().partition(|number| of(*number).reads);
        let table = of(numbers().next()?).table;
        let (read, groups) = (reads.first().copied(), writes.first().map_or(Groups::NONE, |write| of(*write).groups));
        let is_simple = |step: &Step| match *step {
            Step::Read { access } | Step::Write { access } => of(access).names_row && of(access).table == table,
            _ => step.access().is_none(),
        };
        let reads_same = |first: &Access, other: &Access| first.spans == other.spans && first.groups == other.groups;
        let is_batch = self.replayable
            && self.steps.iter().all(is_simple)
            && reads.iter().all(|number| read.is_some_and(|first| reads_same(of(first), of(*number))))
            && writes.iter().all(|number| of(*number).groups == groups);
        let ops = || match numbers().flat_map(|number| &of(number).parts).all(|part| part.word == 0) {
            true => Op::of_batch(&self.steps, &self.draws, &self.accesses),
            false => Vec::new(),
        };
        is_batch.then(|| Batch { table, read, groups, ops: ops() })
    }

    /// Returns about how many rows the transaction looks up by a key that is known beforehand. A
    /// loop counts as many lookups.
    pub(super) fn known_lookups(&self, is_known: impl Fn(&Access) -> bool) -> usize {
        let mut open_loops: Vec<usize> = Vec::new();
        let distributed = |start: usize| self.distributed_at(start).is_some();
        let mut lookups = 0;
        for (number, step) in self.steps.iter().enumerate() {
            open_loops.retain(|end| *end > number);
            let access = match *step {
                // Rounds that access rows together need no more.
                Step::Repeat { .. } if distributed(number) => continue,
                Step::Repeat { end, .. } => {
                    open_loops.push(end as usize);
                    continue;
                }
                Step::Read { access }
                | Step::Modify { access, .. }
                | Step::SelectAndUpdate { access, .. }
                | Step::Update { access }
                | Step::Write { access }
                | Step::Delete { access } => access,
                _ => continue,
            };
            if is_known(&self.accesses[access as usize]) {
                lookups += if open_loops.is_empty() { 1 } else { ROUNDS_MAX };
            }
        }
        lookups
    }
}
