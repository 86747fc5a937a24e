//! The steps of scripts that touch rows.

use std::ops::{ControlFlow, Range};

use contend_model::{Abort, AddToWord, Key, KeyWords, MAX_KEY_WORDS, Projection, RowUpdate, Table, Txn, WordOperation};

use super::interpret::{Frame, Handle, Memory, PackedKey, Tables, key_of, put, with_table};
use super::program::{Access, Change, Code, FOUND, Load, ROUNDS_MAX, Register, Source};
use super::rounds::few_words;
use super::schema::{KeyPart, KeyShape};

/// The most aggregates of a select.
pub(super) const AGGREGATES_MAX: usize = 16;

impl Memory {
    /// Reads a row.
    #[inline]
    pub(super) fn read<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<(), Abort> {
        let shape = &tables.shapes[access.table as usize].shape;
        let found = with_table!(tables.handles[access.table as usize], table => match self.key(&table, access) {
            Some(key) => {
                let columns = access.columns();
                let row = tx.read_row(&table, key, columns)?;
                if let Some(row) = row {
                    load(&access.loads, row, &|| key.to_words(), &shape.parts, &mut self.frame);
                }
                row.is_some()
            }
            None => false,
        });
        self.found(found);
        Ok(())
    }

    /// Changes a row without reading it.
    #[inline]
    pub(super) fn update<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<(), Abort> {
        let found = with_table!(tables.handles[access.table as usize], table => match self.key(&table, access) {
            Some(key) => {
                let Memory { frame, changes, .. } = self;
                let groups = access.groups;
                match access.changes[..] {
                    [(change @ (Change::Add | Change::Subtract), word, from)] => {
                        let value = frame[from] as u64;
                        let value = if change == Change::Add { value } else { value.wrapping_neg() };
                        let addition = AddToWord { groups, word: word as usize, value };
                        tx.update_row(&table, key, RowUpdate::add_to_word(&addition))?
                    }
                    ref several => {
                        changes.clear();
                        for &(change, word, from) in several {
                            let value = frame[from] as u64;
                            let (operation, value) = match change {
                                Change::Add => (WordOperation::Add, value),
                                Change::Subtract => (WordOperation::Add, value.wrapping_neg()),
                                Change::Set => (WordOperation::Set, value),
                            };
                            changes.push(u32::from(word), operation, value);
                        }
                        tx.update_row(&table, key, changes.update(groups))?
                    }
                }
            }
            None => false,
        });
        self.found(found);
        Ok(())
    }

    /// Replaces groups of a row.
    #[inline]
    pub(super) fn write<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<(), Abort> {
        let found = with_table!(tables.handles[access.table as usize], table => match self.key(&table, access) {
            Some(key) => match tx.write_row(&table, key, access.groups)? {
                Some(row) => self.put(access, row),
                None => false,
            },
            None => false,
        });
        self.found(found);
        Ok(())
    }

    /// Inserts a row.
    #[inline]
    pub(super) fn insert<T: Txn>(
        &mut self,
        tx: &mut T,
        access: &Access,
        or_nothing: bool,
        tables: &Tables<'_>,
    ) -> Result<(), Abort> {
        let inserted = with_table!(tables.handles[access.table as usize], table => {
            match self.key(&table, access) {
                Some(key) => match tx.insert_row(&table, key)? {
                    Some(row) => self.put(access, row),
                    None => false,
                },
                None => false,
            }
        });
        if !inserted && !or_nothing {
            return Err(tx.cancel());
        }
        self.frame[FOUND] = i64::from(inserted);
        if inserted {
            if access.remembers {
                self.inserted.push((access.table, self.frame[access.key[0]]));
            }
            self.change_indexes(tx, access, tables)?;
        }
        Ok(())
    }

    /// Copies registers to the columns of a row. Returns `true`, that there is a row.
    #[inline(always)]
    fn put(&self, access: &Access, row: &mut [u64]) -> bool {
        for store in &access.stores {
            put(store, row, &self.frame);
        }
        true
    }

    /// Returns the key of an access to this table.
    #[inline(always)]
    fn key<K: PackedKey>(&self, _: &Table<K>, access: &Access) -> Option<K> {
        K::packed(access, &self.frame)
    }

    #[inline(always)]
    pub(super) fn found(&mut self, found: bool) {
        self.named += 1;
        self.missed += u64::from(!found);
        self.frame[FOUND] = i64::from(found);
    }

    pub(super) fn modify<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        access: &Access,
        steps: Range<usize>,
        tables: &Tables<'_>,
    ) -> Result<(), Abort> {
        let shape = &tables.shapes[access.table as usize].shape;
        let found = with_table!(tables.handles[access.table as usize], table => match self.key(&table, access) {
            Some(key) => match tx.modify_row(&table, key, access.groups)? {
                Some(row) => {
                    load(&access.loads, row, &|| key.to_words(), &shape.parts, &mut self.frame);
                    self.advance(code, steps.start, steps.end);
                    self.put(access, row)
                }
                None => false,
            },
            None => false,
        });
        self.found(found);
        if found && !access.indexes.is_empty() { self.change_indexes(tx, access, tables) } else { Ok(()) }
    }

    /// Reads a row, decides, and changes it.
    pub(super) fn select_and_update<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        access: &Access,
        steps: Range<usize>,
        tables: &Tables<'_>,
    ) -> Result<(), Abort> {
        let shape = &tables.shapes[access.table as usize].shape;
        let goes_on = with_table!(tables.handles[access.table as usize], table => {
            if let (Some(_), Some(key)) = (access.written, self.key(&table, access)) {
                let mut goes_on = true;
                tx.update_rows(&table, &[key], access.columns(), |_, row| {
                    if let Some(row) = row {
                        load(&access.loads, row, &|| key.to_words(), &shape.parts, &mut self.frame);
                    }
                    self.found(row.is_some());
                    goes_on = self.advance(code, steps.start, steps.end) == steps.end;
                    self.found(row.is_some());
                    (goes_on && row.is_some()).then(|| few_words(access, &self.frame))
                })?;
                return if goes_on { Ok(()) } else { Err(tx.cancel()) };
            }
            let row = match self.key(&table, access) {
                Some(key) => tx.modify_row(&table, key, access.groups)?.map(|row| (key, row)),
                None => None,
            };
            self.found(row.is_some());
            if let Some((key, row)) = &row {
                load(&access.loads, row, &|| key.to_words(), &shape.parts, &mut self.frame);
            }
            // A call of nothing takes as long as two steps.
            let goes_on = steps.is_empty() || self.advance(code, steps.start, steps.end) == steps.end;
            self.found(row.is_some());
            if let (Some((_, row)), true) = (row, goes_on) {
                self.put(access, row);
                change(access, row, &self.frame);
            }
            goes_on
        });
        if goes_on { Ok(()) } else { Err(tx.cancel()) }
    }

    pub(super) fn delete<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<bool, Abort> {
        let shape = &tables.shapes[access.table as usize].shape;
        with_table!(tables.handles[access.table as usize], table => {
            let Some(key) = self.key(&table, access) else { return Ok(false) };
            if !access.loads.is_empty() {
                let Some(row) = tx.read_row(&table, key, Projection::WHOLE)? else { return Ok(false) };
                load(&access.loads, row, &|| key.to_words(), &shape.parts, &mut self.frame);
            }
            if !tx.delete_row(&table, key)? {
                return Ok(false);
            }
        });
        self.change_indexes(tx, access, tables)?;
        Ok(true)
    }

    /// Brings the indexes in line with a row that has changed.
    fn change_indexes<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<(), Abort> {
        for change in &access.indexes {
            let shape = &tables.shapes[change.table as usize].shape;
            let key = |registers: &Option<Vec<Register>>| {
                registers
                    .as_ref()
                    .and_then(|registers| key_of(shape, registers.len(), |part| self.frame[registers[part]]))
            };
            let (old, new) = (key(&change.old), key(&change.new));
            if old == new {
                continue;
            }
            with_table!(tables.handles[change.table as usize], table => {
                if let Some(old) = old {
                    tx.delete_row(&table, Key::from_words(old))?;
                }
                if let Some(new) = new {
                    tx.insert_row(&table, Key::from_words(new))?;
                }
            });
        }
        Ok(())
    }

    /// Reads the rows of a range; the last one's columns, or the aggregates, are the result.
    pub(super) fn scan<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<(), Abort> {
        if access.aggregates.is_empty() {
            let found = self.visit(tx, access, tables, |memory, access, row, key, parts| {
                load(&access.loads, row, key, parts, &mut memory.frame);
            })?;
            self.frame[FOUND] = found;
            return Ok(());
        }
        let mut sums = [0i64; AGGREGATES_MAX];
        for (sum, aggregate) in sums.iter_mut().zip(&access.aggregates) {
            *sum = aggregate.of_nothing();
        }
        let found = self.visit(tx, access, tables, |_, access, row, key, parts| {
            // Not a zip of iterators, which would be a call for each row.
            let (loads, aggregates) = (&access.loads[..], &access.aggregates[..]);
            for number in 0..loads.len().min(aggregates.len()) {
                let sum = &mut sums[number % AGGREGATES_MAX];
                *sum = aggregates[number].with(*sum, value_of(loads[number].from, row, key, parts));
            }
        })?;
        for (load, sum) in access.loads.iter().zip(sums) {
            self.frame[load.to] = if found > 0 { sum } else { 0 };
        }
        self.frame[FOUND] = found;
        Ok(())
    }

    /// Reads the rows of a range to the memory of a loop.
    pub(super) fn collect<T: Txn>(&mut self, tx: &mut T, access: &Access, tables: &Tables<'_>) -> Result<(), Abort> {
        let found = self.visit(tx, access, tables, |memory, access, row, key, parts| {
            for load in &access.loads {
                match load.from {
                    Source::Row(word) => {
                        memory.rows.extend(row[word as usize..][..load.words as usize].iter().map(|word| *word as i64));
                    }
                    from => memory.rows.push(value_of(from, row, key, parts)),
                }
            }
            // A row without columns is a round all the same.
            if access.loads.is_empty() {
                memory.rows.push(0);
            }
        })?;
        self.frame[FOUND] = found;
        Ok(())
    }

    /// Brings the next row of the innermost loop to its registers. Ends the loop, and returns
    /// `false`, if there is none.
    pub(super) fn next_row(&mut self, access: &Access) -> bool {
        let Some(rows) = self.loops.last_mut() else { return false };
        if rows.start >= rows.end {
            self.loops.pop();
            // The rows of the loops around this one stay.
            let end = self.loops.last().map_or(0, |outer| outer.end);
            self.rows.truncate(end);
            return false;
        }
        for load in &access.loads {
            let words = load.words as usize;
            self.frame.words_mut(load.to, words).copy_from_slice(&self.rows[rows.start..][..words]);
            rows.start += words;
        }
        if access.loads.is_empty() {
            rows.start += 1;
        }
        true
    }

    /// Visits the rows of a range: all of them without a limit for aggregates and for changes of
    /// ranges, otherwise at most [`ROUNDS_MAX`]. Returns how many there were.
    fn visit<T: Txn>(
        &mut self,
        tx: &mut T,
        access: &Access,
        tables: &Tables<'_>,
        mut visit: impl FnMut(&mut Memory, &Access, &[u64], &dyn Fn() -> KeyWords, &[KeyPart]),
    ) -> Result<i64, Abort> {
        let limit = match access.limit {
            Some(limit) => self.frame[limit].clamp(0, ROUNDS_MAX as i64) as usize,
            None if access.aggregates.is_empty() && !access.is_endless => ROUNDS_MAX,
            None => usize::MAX - ROUNDS_MAX,
        };
        let skipped = access.offset.map_or(0, |offset| self.frame[offset]).clamp(0, ROUNDS_MAX as i64) as usize;
        let by = access.by_index.unwrap_or(access.table) as usize;
        let scanned = &tables.shapes[by].shape;
        let Some((low, high)) = self.range(scanned, access).filter(|_| limit > 0) else { return Ok(0) };
        let mut visited = 0usize;
        let all = limit + skipped;
        if access.by_index.is_none() {
            let parts = &scanned.parts;
            with_table!(tables.handles[by], table => {
                let columns = access.columns();
                let range = Key::from_words(low)..=Key::from_words(high);
                tx.scan_rows(&table, range, all, access.direction, columns, |key, row| {
                    if visited >= skipped {
                        visit(self, access, row, &|| key.to_words(), parts);
                    }
                    visited += 1;
                    ControlFlow::Continue(())
                })?;
            });
            return Ok(visited.saturating_sub(skipped) as i64);
        }
        // The index gives the keys of the rows, which are then read together.
        self.found.clear();
        let own = &tables.shapes[access.table as usize];
        let indexed = scanned.parts.len() - own.shape.parts.len();
        with_table!(tables.handles[by], table => {
            let range = Key::from_words(low)..=Key::from_words(high);
            tx.scan_rows(&table, range, all, access.direction, Projection::EXISTENCE, |key, _| {
                if visited >= skipped {
                    let words = key.to_words();
                    let mut of_row = [0; MAX_KEY_WORDS];
                    for (from, to) in scanned.parts[indexed..].iter().zip(&own.shape.parts) {
                        of_row[to.word as usize] |= (from.of(&words) as u64) << to.shift;
                    }
                    self.found.push(of_row);
                }
                visited += 1;
                ControlFlow::Continue(())
            })?;
        });
        if is_in_index(access) {
            for number in 0..self.found.len() {
                let key = self.found[number];
                visit(self, access, &[], &|| key, &own.shape.parts);
            }
            return Ok(self.found.len() as i64);
        }
        with_table!(tables.handles[access.table as usize], table => {
            self.visit_found(tx, access, &table, |memory, row, key| visit(memory, access, row, key, &own.shape.parts))
        })
    }

    /// Visits the rows whose keys an index has given. They are looked up together. Returns how many
    /// there were.
    fn visit_found<T: Txn, K: PackedKey>(
        &mut self,
        tx: &mut T,
        access: &Access,
        table: &Table<K>,
        mut visit: impl FnMut(&mut Memory, &[u64], &dyn Fn() -> KeyWords),
    ) -> Result<i64, Abort> {
        let mut keys = std::mem::take(K::scratch(self));
        keys.clear();
        keys.extend(self.found.iter().map(|&key| K::from_words(key)));
        let mut found = 0;
        let read = tx.read_rows(table, &keys, access.columns(), |position, row| {
            if let Some(row) = row {
                visit(self, row, &|| keys[position].to_words());
                found += 1;
            }
        });
        *K::scratch(self) = keys;
        read.map(|()| found)
    }

    /// Returns the smallest and the largest key of a range, or `None` if it is empty.
    fn range(&self, shape: &KeyShape, access: &Access) -> Option<(KeyWords, KeyWords)> {
        let mut low = [0; MAX_KEY_WORDS];
        let mut high = [0; MAX_KEY_WORDS];
        for (number, part) in shape.parts.iter().enumerate() {
            let at = |register: Register| self.frame[register];
            let most = part.max().min(i64::MAX as u64);
            let (from, to) = match access.key.get(number) {
                Some(&register) => {
                    let value = u64::try_from(at(register)).ok().filter(|value| *value <= part.max())?;
                    (value, value)
                }
                None if number == access.key.len() => {
                    let from = access.low.map_or(0, |low| at(low).max(0) as u64);
                    let to = access.high.map_or(Some(part.max()), |high| u64::try_from(at(high)).ok())?;
                    if from > most || from > to {
                        return None;
                    }
                    (from, to.min(part.max()))
                }
                None => (0, part.max()),
            };
            low[part.word as usize] |= from << part.shift;
            high[part.word as usize] |= to << part.shift;
        }
        Some((low, high))
    }
}

/// Adds to words of a row, and sets them.
#[inline(always)]
pub(super) fn change(access: &Access, row: &mut [u64], frame: &Frame) {
    for &(change, word, from) in &access.changes {
        let (word, value) = (&mut row[word as usize], frame[from] as u64);
        *word = match change {
            Change::Add => word.wrapping_add(value),
            Change::Subtract => word.wrapping_sub(value),
            Change::Set => value,
        };
    }
}

/// Whether the entry of an index says all that is asked of its row: parts of the key. Each change
/// of the row keeps the entry right.
#[inline(always)]
fn is_in_index(access: &Access) -> bool {
    access.spans.is_empty()
}

/// Returns the word of a row, or the part of its key, that is loaded.
#[inline(always)]
pub(super) fn value_of(from: Source, row: &[u64], key: &dyn Fn() -> KeyWords, parts: &[KeyPart]) -> i64 {
    match from {
        Source::Row(word) => row[word as usize] as i64,
        _ => value_beside(from, key, parts),
    }
}

/// Returns what is loaded and is no word of the row. A call, since most values are words of it.
#[inline(never)]
fn value_beside(from: Source, key: &dyn Fn() -> KeyWords, parts: &[KeyPart]) -> i64 {
    match from {
        Source::Key(part) => parts[part as usize].of(&key()),
        Source::Row(_) | Source::One => 1,
    }
}

/// Copies columns of a row to registers.
#[inline(always)]
pub(super) fn load(loads: &[Load], row: &[u64], key: &dyn Fn() -> KeyWords, parts: &[KeyPart], frame: &mut Frame) {
    for load in loads {
        match load.from {
            Source::Row(word) if load.words > 1 => load_text(load, &row[word as usize..], frame),
            from => frame[load.to] = value_of(from, row, key, parts),
        }
    }
}

/// Copies a text. A call, since most columns are numbers.
#[inline(never)]
fn load_text(load: &Load, row: &[u64], frame: &mut Frame) {
    let words = &row[..load.words as usize];
    let to = frame.words_mut(load.to, words.len());
    for word in 0..words.len() {
        to[word] = words[word] as i64;
    }
}
