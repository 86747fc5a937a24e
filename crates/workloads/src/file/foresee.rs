//! What is known of a transaction before it begins: its draws, the keys that it will touch, and in
//! simple cases all that it does.

use contend_model::random::SplitMix64;
use contend_model::{Abort, Declare, Groups, Key, Projection, ReadOrWritten, Table, Txn};

use super::interpret::{Draws, Handle, Input, Memory, PackedKey, Tables, Wide, put};
use super::partitions::Partitions;
use super::program::{Access, Batch, Code, Register, Step};

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
    /// Adds the key of an access. Returns `false` if there is none: no row has such a key.
    #[inline(always)]
    pub(super) fn push(&mut self, key: Option<K>, writes: bool) -> bool {
        let Some(key) = key else { return false };
        self.keys.push(key);
        self.writes.push(writes);
        true
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

impl Memory {
    /// Makes the draws of a transaction before it begins, and finds the keys that it will touch. If
    /// no step depends on a row, it puts down what the transaction does: for each access the number
    /// of the step, then the values of its varying registers. Where the accesses are a [`Batch`],
    /// it does so for its writes alone, with the number of the access and the stored registers.
    pub(super) fn foresee(&mut self, code: &Code, partitions: Option<&Partitions>, input: &mut Input) {
        self.fresh = None;
        self.begin(code, input.first_unique);
        let random = SplitMix64::new(input.seed);
        // What is put down needs no draws again, but in pieces; and then they are made again.
        self.draws = if code.replayable { Draws::Made(random) } else { Draws::Noted(random) };
        let Input { keys, partitions: touched, .. } = input;
        self.noted.clear();
        self.trace.clear();
        self.unfit = 0;
        keys.iter_mut().for_each(KnownKeys::clear);
        touched.clear();
        if let Some(batch) = &code.batch {
            return match &mut keys[batch.table as usize] {
                KnownKeys::Narrow(known) => {
                    // Two moves are inlined. A swap of this size is a call.
                    self.batched = std::mem::take(known);
                    self.advance_by(code, &batch.ops, 0);
                    *known = std::mem::take(&mut self.batched);
                }
                KnownKeys::Wide(known) => self.foresee_wide(code, known),
            };
        }
        let mut at = 0;
        loop {
            at = self.advance(code, at, code.steps.len());
            let Some(step) = code.steps.get(at) else { break };
            at += 1;
            // A distributed loop, whose rounds pass here one by one.
            if let Step::Repeat { count, left, end } = *step
                && self.rounds_of(count, left) == 0
            {
                at = end as usize;
            }
            if let Some(access) = step.access() {
                let access = &code.accesses[access as usize];
                self.note(access, partitions, keys, touched);
                if code.replayable {
                    self.put_down(at as i64 - 1, &access.varying);
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

    /// Finds the keys of a batch, of several words each, and puts down what it writes.
    fn foresee_wide(&mut self, code: &Code, known: &mut KeysOf<Wide>) {
        let mut at = 0;
        loop {
            at = self.advance(code, at, code.steps.len());
            let Some(number) = code.steps.get(at).and_then(Step::access) else { return };
            at += 1;
            let access = &code.accesses[number as usize];
            if !known.push(Wide::packed(access, &self.frame), !access.reads) {
                self.unfit += 1;
            } else if !access.reads {
                self.put_down(i64::from(number), &access.stored);
            }
        }
    }

    #[inline(always)]
    pub(super) fn put_down(&mut self, number: i64, registers: &[Register]) {
        self.trace.push(number);
        for &register in registers {
            self.trace.push(self.frame[register]);
        }
    }

    /// Notes the row and the partition of an access, as far as they are known.
    fn note(&self, access: &Access, partitions: Option<&Partitions>, keys: &mut [KnownKeys], touched: &mut Vec<usize>) {
        let table = access.table as usize;
        if access.names_row {
            match &mut keys[table] {
                KnownKeys::Narrow(known) => known.push(PackedKey::packed(access, &self.frame), !access.reads),
                KnownKeys::Wide(known) => known.push(PackedKey::packed(access, &self.frame), !access.reads),
            };
        }
        if let Some(partitions) = partitions
            && partitions.of[table]
            && let Some(first) = access.first
        {
            touched.push(self.frame[first].rem_euclid(partitions.count as i64) as usize);
        }
    }

    /// Does what was put down before the transaction began. The constants are still in the frame.
    pub(super) fn replay<T: Txn>(
        &mut self,
        tx: &mut T,
        code: &Code,
        tables: &Tables<'_>,
        keys: &[KnownKeys],
    ) -> Result<(), Abort> {
        (self.named, self.missed) = (0, 0);
        if let Some(batch) = &code.batch {
            let table = batch.table as usize;
            return match (&tables.handles[table], &keys[table]) {
                (Handle::Narrow(table), KnownKeys::Narrow(known)) => self.replay_batch(tx, code, batch, table, known),
                (Handle::Wide(table), KnownKeys::Wide(known)) => self.replay_batch(tx, code, batch, table, known),
                _ => unreachable!("the keys of a table are of its type"),
            };
        }
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

    /// Reads and replaces the rows of a batch. No step needs what was read.
    fn replay_batch<T: Txn, K: Key>(
        &mut self,
        tx: &mut T,
        code: &Code,
        batch: &Batch,
        table: &Table<K>,
        known: &KeysOf<K>,
    ) -> Result<(), Abort> {
        let Memory { frame, trace, missed, .. } = self;
        let columns = match batch.read {
            Some(read) => code.accesses[read as usize].columns(),
            None => Projection::of_groups(batch.groups),
        };
        let mut trace = trace.iter();
        let keys = (&known.keys[..], &known.writes[..]);
        tx.read_or_write_rows(table, keys, columns, batch.groups, |_, row| match row {
            ReadOrWritten::Read(row) => *missed += u64::from(row.is_none()),
            ReadOrWritten::Written(row) => {
                let Some(&access) = trace.next() else { return };
                let access = &code.accesses[access as usize];
                for (&register, &value) in access.stored.iter().zip(&mut trace) {
                    frame[register] = value;
                }
                match row {
                    Some(row) => access.stores.iter().for_each(|store| put(store, row, frame)),
                    None => *missed += 1,
                }
            }
        })?;
        self.named = known.keys.len() as u64 + self.unfit;
        self.missed += self.unfit;
        Ok(())
    }
}

/// Announces the known keys of a transaction, so that their cache misses overlap.
#[inline]
pub(super) fn announce<T: Txn>(tx: &mut T, handles: &[Handle], keys: &[KnownKeys], touched: &[(Groups, bool)]) {
    for ((handle, keys), &(groups, writes)) in handles.iter().zip(keys).zip(touched) {
        let columns = Projection::of_groups(groups);
        match (handle, keys) {
            (Handle::Narrow(table), KnownKeys::Narrow(known)) if known.keys.len() > 1 => {
                tx.announce(table, &known.keys, columns, writes)
            }
            (Handle::Wide(table), KnownKeys::Wide(known)) if known.keys.len() > 1 => {
                tx.announce(table, &known.keys, columns, writes)
            }
            _ => {}
        }
    }
}

/// Declares the known keys of a table.
pub(super) fn declare_rows<K: Key>(declaration: &mut impl Declare, table: &Table<K>, known: &KeysOf<K>) {
    known.keys.iter().zip(&known.writes).for_each(|(&key, &writes)| declaration.row(table, key, writes));
}
