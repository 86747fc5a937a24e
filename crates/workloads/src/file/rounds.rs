//! The execution of distributed loops: see [`super::distribute`].

use contend_model::{Abort, FewWords, KeyWords, Projection, ReadOrWritten, Table, Txn, WordOperation};

use super::distribute::{Distributed, Kept, Stage};
use super::interpret::{Frame, Handle, Memory, PackedKey, Tables, put, with_table};
use super::program::{Access, Change, Code, FOUND, Step};
use super::rows::{change, load};
use super::schema::KeyPart;

/// The most rounds that access rows together: what they keep stays in a core's cache.
const TOGETHER: usize = 128;

/// The rounds of a distributed loop.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    all: Vec<Round>,
    /// What each round keeps, one after the other.
    kept: Vec<i64>,
    /// The updates of a stage's access.
    updates: Vec<FewWords>,
    /// That each row of a call is written.
    writes: Vec<bool>,
    /// The rounds below this one have done with the access of the stage.
    settled: usize,
    /// Whether a round has cancelled the transaction.
    cancelled: bool,
}

/// Where a round is.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Its next step.
    at: u32,
    /// What the access of the stage is to the round.
    access: Awaits,
    /// Whether its last access has found a row; `None` before the first one.
    found: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaits {
    /// It goes past the access.
    Nothing,
    /// It waits for the answer.
    Row,
    /// It waits, and its key fits no row.
    NoRow,
}

/// A distributed loop that runs: its code, and what each round does with a row.
struct Loop<'a> {
    code: &'a Code,
    of: &'a Distributed,
    stage: &'a Stage,
    access: &'a Access,
    step: Step,
    parts: &'a [KeyPart],
}

impl Rounds {
    /// Begins some rounds.
    fn begin(&mut self, count: usize, of: &Distributed) {
        self.all.clear();
        self.all.resize(count, Round { at: of.start as u32 + 1, access: Awaits::Nothing, found: None });
        self.kept.clear();
        self.kept.resize(count * of.words, 0);
        self.cancelled = false;
    }
}

impl Memory {
    /// Runs a loop of `count` rounds. `rows` is the access whose rows they go over.
    pub(super) fn run_distributed<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        of: &Distributed,
        tables: &Tables<'_>,
        (count, rows): (usize, Option<&Access>),
    ) -> Result<(), Abort> {
        let mut rounds = std::mem::take(&mut self.rounds);
        let mut done = Ok(());
        let mut left = count;
        while left > 0 && done.is_ok() {
            let some = left.min(TOGETHER);
            left -= some;
            rounds.begin(some, of);
            done = self.run_rounds(tx, code, of, tables, rows, &mut rounds);
        }
        self.rounds = rounds;
        done
    }

    /// Runs some rounds of a loop, stage by stage.
    fn run_rounds<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        of: &Distributed,
        tables: &Tables<'_>,
        rows: Option<&Access>,
        rounds: &mut Rounds,
    ) -> Result<(), Abort> {
        for (number, stage) in of.stages.iter().enumerate() {
            let rows = rows.filter(|_| number == 0);
            let access = stage.access.and_then(|step| Some((step, &code.accesses[step.access()? as usize])));
            if let Some((step, access)) = access {
                let parts = &tables.shapes[access.table as usize].shape.parts[..];
                let running = Loop { code, of, stage, access, step, parts };
                with_table!(tables.handles[access.table as usize], table => {
                    self.make_access(tx, &running, &table, rows, rounds)
                })?;
            } else {
                self.run_stage::<u64>(code, of, stage, rows, rounds, &mut Vec::new(), |_, _| None);
            }
            if rounds.cancelled {
                return Err(tx.cancel());
            }
        }
        // What the last round has left is there for the steps behind it.
        let last = rounds.kept.len() - of.words;
        take(&of.kept, &rounds.kept[last..], &mut self.frame);
        if let Some(found) = rounds.all.iter().rev().find_map(|round| round.found) {
            self.frame[FOUND] = i64::from(found);
        }
        if !of.tail.is_empty() {
            self.advance_by(code, &code.ops[..of.tail.end], of.tail.start);
        }
        Ok(())
    }

    /// Runs all rounds up to the access of a stage. Collects the keys that `key_of` returns there.
    #[allow(clippy::too_many_arguments, reason = "a stage is where all of a loop meets")]
    fn run_stage<K>(
        &mut self,
        code: &Code,
        of: &Distributed,
        stage: &Stage,
        rows: Option<&Access>,
        rounds: &mut Rounds,
        keys: &mut Vec<K>,
        key_of: impl Fn(&Frame, &mut Vec<FewWords>) -> Option<K>,
    ) {
        let Rounds { all, kept, updates, settled, cancelled, .. } = rounds;
        updates.clear();
        *settled = 0;
        let is_first = std::ptr::eq(stage, &of.stages[0]);
        for (number, round) in all.iter_mut().enumerate() {
            let kept = &mut kept[number * of.words..][..of.words];
            take(&of.kept[..stage.before], kept, &mut self.frame);
            if let Some(found) = round.found {
                self.frame[FOUND] = i64::from(found);
            }
            if number > 0 && is_first && !of.tail.is_empty() {
                self.advance_by(code, &code.ops[..of.tail.end], of.tail.start);
            }
            if let Some(rows) = rows {
                self.next_row(rows);
            }
            let mut at = round.at as usize;
            if at < stage.end {
                at = self.advance_by(code, &code.ops[..stage.end], at);
                if at < stage.end {
                    // The only step that stops before an access.
                    *cancelled = true;
                    return;
                }
            }
            round.access = Awaits::Nothing;
            round.at = at as u32;
            if at == stage.end
                && let Some(step) = stage.access
            {
                round.at = match step {
                    Step::Modify { end, .. } | Step::SelectAndUpdate { end, .. } => end,
                    _ => at as u32 + 1,
                };
                round.access = match key_of(&self.frame, updates) {
                    Some(key) => {
                        keys.push(key);
                        Awaits::Row
                    }
                    None => Awaits::NoRow,
                };
            }
            keep(&of.kept[stage.before..stage.by_steps], kept, &self.frame);
        }
    }

    /// Runs all rounds of a stage up to its access, and makes the access for all of them.
    fn make_access<T: Txn, K: PackedKey>(
        &mut self,
        tx: &mut T,
        of: &Loop<'_>,
        table: &Table<K>,
        rows: Option<&Access>,
        rounds: &mut Rounds,
    ) -> Result<(), Abort> {
        let mut keys = std::mem::take(K::scratch(self));
        keys.clear();
        let (access, is_update) = (of.access, matches!(of.step, Step::Update { .. }));
        self.run_stage(of.code, of.of, of.stage, rows, rounds, &mut keys, |frame, updates| {
            let key = K::packed(access, frame)?;
            if is_update {
                updates.push(few_words(access, frame));
            }
            Some(key)
        });
        let mut made = Ok(());
        if !rounds.cancelled {
            made = self.call(tx, of, table, &keys, rounds);
            // The rounds behind the last one that has a key.
            let count = rounds.all.len();
            self.settle(of, rounds, count);
        }
        *K::scratch(self) = keys;
        made
    }

    /// Makes the access of all rounds in one call.
    fn call<T: Txn, K: PackedKey>(
        &mut self,
        tx: &mut T,
        of: &Loop<'_>,
        table: &Table<K>,
        keys: &[K],
        rounds: &mut Rounds,
    ) -> Result<(), Abort> {
        if keys.is_empty() {
            return Ok(());
        }
        let access = of.access;
        let words = |key: K| move || key.to_words();
        match of.step {
            Step::Read { .. } => tx.read_rows(table, keys, access.columns(), |position, row| {
                self.next_round(of, rounds, |memory| memory.taken(of, row, &words(keys[position])));
            }),
            Step::Update { .. } => {
                let updates = std::mem::take(&mut rounds.updates);
                let changed = tx.change_rows(table, keys, &updates, |_, found| {
                    self.next_round(of, rounds, |memory| memory.found(found));
                });
                rounds.updates = updates;
                changed
            }
            Step::Write { .. } => {
                // The call takes which of the rows are written: all of them.
                let mut writes = std::mem::take(&mut rounds.writes);
                writes.resize(keys.len(), true);
                let columns = Projection::of_groups(access.groups);
                let written = tx.read_or_write_rows(table, (keys, &writes), columns, access.groups, |_, row| {
                    let ReadOrWritten::Written(row) = row else { return };
                    self.next_round(of, rounds, |memory| memory.stored(of, row));
                });
                rounds.writes = writes;
                written
            }
            Step::Insert { or_nothing, .. } => tx.insert_rows(table, keys, |_, row| {
                let is_new = row.is_some();
                self.next_round(of, rounds, |memory| memory.inserted(of, row));
                rounds.cancelled |= !is_new && !or_nothing;
            }),
            Step::SelectAndUpdate { .. } if access.written.is_some() => {
                tx.update_rows(table, keys, access.columns(), |position, row| {
                    let is_row = row.is_some();
                    let goes_on = self.next_round(of, rounds, |memory| {
                        memory.taken(of, row, &words(keys[position]));
                        memory.decided(of, is_row)
                    });
                    rounds.cancelled |= !goes_on;
                    (goes_on && is_row).then(|| few_words(access, &self.frame))
                })
            }
            _ => tx.modify_rows(table, keys, access.groups, |position, row| {
                let goes_on = self.next_round(of, rounds, |memory| {
                    memory.taken(of, row.as_deref(), &words(keys[position]));
                    let goes_on = memory.decided(of, row.is_some());
                    if let (Some(row), true) = (row, goes_on) {
                        access.stores.iter().for_each(|store| put(store, row, &memory.frame));
                        change(access, row, &memory.frame);
                    }
                    goes_on
                });
                rounds.cancelled |= !goes_on;
            }),
        }
    }

    /// Lets the next round that waits for a row have its answer, and the rounds before it go on
    /// without one.
    #[inline(always)]
    fn next_round<A>(&mut self, of: &Loop<'_>, rounds: &mut Rounds, answer: impl FnOnce(&mut Memory) -> A) -> A {
        if rounds.all[rounds.settled].access != Awaits::Row {
            self.settle_to_row(of, rounds);
        }
        self.answer(of, rounds, answer)
    }

    /// Lets the rounds before the next one that waits for a row go on.
    #[inline(never)]
    fn settle_to_row(&mut self, of: &Loop<'_>, rounds: &mut Rounds) {
        let waiting = rounds.all[rounds.settled..].iter().position(|round| round.access == Awaits::Row);
        let until = rounds.settled + waiting.unwrap_or(0);
        self.settle(of, rounds, until);
    }

    /// Lets the next round have its answer.
    #[inline(always)]
    fn answer<A>(&mut self, of: &Loop<'_>, rounds: &mut Rounds, answer: impl FnOnce(&mut Memory) -> A) -> A {
        let number = rounds.settled;
        let words = of.of.words;
        take(&of.of.kept[..of.stage.by_steps], &rounds.kept[number * words..][..words], &mut self.frame);
        let answered = answer(self);
        rounds.all[number].found = Some(self.frame[FOUND] != 0);
        self.keep_answer(of, rounds);
        answered
    }

    /// Ends the access of the next round.
    #[inline(always)]
    fn keep_answer(&mut self, of: &Loop<'_>, rounds: &mut Rounds) {
        let (number, words) = (rounds.settled, of.of.words);
        let kept = &of.of.kept[of.stage.by_steps..of.stage.by_access];
        keep(kept, &mut rounds.kept[number * words..][..words], &self.frame);
        rounds.settled += 1;
    }

    /// Lets the rounds before `until` go on, none of which gets a row.
    fn settle(&mut self, of: &Loop<'_>, rounds: &mut Rounds, until: usize) {
        while rounds.settled < until {
            match rounds.all[rounds.settled].access {
                // The call has failed, and the transaction aborts.
                Awaits::Row => return,
                Awaits::Nothing => self.keep_answer(of, rounds),
                Awaits::NoRow => {
                    let goes_on = self.answer(of, rounds, |memory| match of.step {
                        Step::Insert { or_nothing, .. } => {
                            memory.inserted(of, None);
                            or_nothing
                        }
                        _ => {
                            memory.found(false);
                            memory.decided(of, false)
                        }
                    });
                    rounds.cancelled |= !goes_on;
                }
            }
        }
    }

    /// Takes what a row gives.
    #[inline(always)]
    fn taken(&mut self, of: &Loop<'_>, row: Option<&[u64]>, key: &dyn Fn() -> KeyWords) {
        if let Some(row) = row {
            load(&of.access.loads, row, key, of.parts, &mut self.frame);
        }
        self.found(row.is_some());
    }

    /// Fills a row that is replaced.
    #[inline(always)]
    fn stored(&mut self, of: &Loop<'_>, row: Option<&mut [u64]>) {
        self.found(row.is_some());
        if let Some(row) = row {
            of.access.stores.iter().for_each(|store| put(store, row, &self.frame));
        }
    }

    /// Fills a row that is inserted.
    #[inline(always)]
    fn inserted(&mut self, of: &Loop<'_>, row: Option<&mut [u64]>) {
        self.frame[FOUND] = i64::from(row.is_some());
        if let Some(row) = row {
            of.access.stores.iter().for_each(|store| put(store, row, &self.frame));
            if of.access.remembers {
                self.inserted.push((of.access.table, self.frame[of.access.key[0]]));
            }
        }
    }

    /// Runs the steps between the reading and the writing of a row. Returns `false` if they cancel
    /// the transaction.
    #[inline(always)]
    fn decided(&mut self, of: &Loop<'_>, found: bool) -> bool {
        let from = of.stage.end + 1;
        let mut run = |end: u32| {
            let end = end as usize;
            from == end || self.advance_by(of.code, &of.code.ops[..end], from) == end
        };
        match of.step {
            Step::Modify { end, .. } => !found || run(end),
            Step::SelectAndUpdate { end, .. } => {
                let goes_on = run(end);
                // That of the update.
                self.found(found);
                goes_on
            }
            _ => true,
        }
    }
}

/// Brings what a round has kept back to its registers.
#[inline(always)]
fn take(registers: &[Kept], kept: &[i64], frame: &mut Frame) {
    // One by one: they are few, and the copying of a slice is a call.
    for of in registers {
        for number in 0..of.count {
            frame[of.first + number] = kept[(of.at + u32::from(number)) as usize];
        }
    }
}

/// Keeps registers for the later stages of a round.
#[inline(always)]
fn keep(registers: &[Kept], kept: &mut [i64], frame: &Frame) {
    for of in registers {
        for number in 0..of.count {
            kept[(of.at + u32::from(number)) as usize] = frame[of.first + number];
        }
    }
}

/// Returns the words that an access adds to and sets, as one update.
#[inline(always)]
pub(super) fn few_words(access: &Access, frame: &Frame) -> FewWords {
    let mut words = FewWords::new(access.changed());
    for &(change, word, from) in &access.changes {
        let value = frame[from] as u64;
        let (operation, value) = match change {
            Change::Add => (WordOperation::Add, value),
            Change::Subtract => (WordOperation::Add, value.wrapping_neg()),
            Change::Set => (WordOperation::Set, value),
        };
        words.push(u32::from(word), operation, value);
    }
    words
}
