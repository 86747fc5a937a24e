//! What of a write set a log is told, in the sense of [`crate::journal`].

use std::ptr::NonNull;

use contend_machine::{Atomic64, Machine, Ordering};

use super::{WriteKind, WriteSet};
use crate::epoch::Epochs;
use crate::group::Groups;
use crate::journal::{Addition, Hold, Journal, Logged, STAMP_SHIFT, Stamp};
use crate::record::Record;
use crate::table::TableCore;

/// In a row's stamp: who has written it was not sure to commit. It may have taken back what it wrote, but not the stamp, which nothing is added to then.
pub(crate) const UNSURE: u64 = 1 << 63;

/// What a worker has besides if its engine logs.
#[derive(Debug)]
pub(crate) struct Logging<M: Machine> {
    pub(crate) journal: Box<dyn Journal<M>>,
    /// What it takes at once ([`Journal::words_max`]).
    pub(crate) words_max: usize,
    /// Whether updates that commute are logged by what they add.
    pub(crate) adds: bool,
    /// The engine's.
    pub(crate) epochs: NonNull<Epochs<M>>,
}

// SAFETY: the epochs belong to the engine, which a worker keeps alive, and are `Sync`; the journal is `Send`.
unsafe impl<M: Machine> Send for Logging<M> {}

impl<M: Machine> Logging<M> {
    /// The global epoch.
    fn epoch(&self) -> u64 {
        // SAFETY: the worker that owns this keeps the engine, and so the epochs.
        unsafe { self.epochs.as_ref() }.current()
    }
}

/// A transaction's writes as a log sees them.
#[derive(Debug, Default)]
pub(super) struct LoggedWrites {
    /// Whether it is sure that the transaction commits; and since then the epoch, and what is left on cells.
    is_sure: bool,
    epoch: u64,
    hold: Hold,
    /// The stamp, if the protocol has one.
    own_stamp: Option<Stamp>,
    /// What was installed, and one more than the largest position among it.
    writes: Vec<Logged>,
    end: usize,
    additions: Vec<Addition>,
}

impl LoggedWrites {
    /// Forgets all; keeps the memory.
    #[inline(always)]
    pub(super) fn clear(&mut self) {
        self.writes.clear();
        self.additions.clear();
        self.end = 0;
        self.is_sure = false;
        self.own_stamp = None;
    }
}

impl<M: Machine> WriteSet<M> {
    /// The transaction will commit: all that it depends on has come to this before. The first [`WriteSet::install`] says so as well.
    #[inline(always)]
    pub fn will_commit(&mut self) {
        let logged = &mut self.logged;
        if !logged.is_sure
            && let Some(log) = &mut self.log
        {
            logged.is_sure = true;
            logged.hold = log.journal.committing();
            logged.epoch = logged.own_stamp.map_or_else(|| log.epoch(), Stamp::epoch);
        }
    }

    /// Of a protocol that stamps its commits itself, before the first install: this stamp is larger than those of all writes so far of the cells that are
    /// written, and has its epoch above it ([`STAMP_SHIFT`]), in which all commit, or later, who see what is installed.
    #[inline(always)]
    pub fn set_stamp(&mut self, stamp: Stamp) {
        self.logged.own_stamp = Some(stamp);
    }

    /// Whether the worker's log, if it has one, takes as much at once.
    #[inline(always)]
    pub(crate) fn fits_log(&self) -> bool {
        self.log.as_ref().is_none_or(|log| self.used <= log.words_max)
    }

    /// Counts a write of a row, and holds it, if rows are held.
    #[inline]
    pub(super) fn stamp(&mut self, position: usize) {
        let Some(log) = &mut self.log else { return };
        let known = &mut self.logged;
        let entry = &self.entries[position];
        let table = entry.table();
        let groups = if entry.kind == WriteKind::Update { entry.groups() } else { Groups::ALL };
        let payload = table.payload(entry.record);
        let mut additions = None;
        let stamp = if table.counts_writes() {
            let epoch = if known.is_sure { known.epoch } else { log.epoch() };
            let is_new = entry.fresh && entry.kind == WriteKind::Insert;
            let own = table.own_groups(groups);
            let (mut last, mut least, mut unsure) = (0, u64::MAX, false);
            for group in own {
                // Relaxed, here and below: the cells are held exclusively.
                let stamp = payload[table.stamp(group)].load(Ordering::Relaxed);
                (last, least, unsure) = (last.max(stamp & !UNSURE), least.min(stamp), unsure | (stamp & UNSURE != 0));
            }
            // What was there when the log was opened has no stamp: it is not known which one it had.
            let is_logged = !is_new && !unsure && last > 0 && least == last;
            if is_new {
                last = 0;
            }
            if log.adds && known.is_sure && entry.is_sum && is_logged {
                let first = known.additions.len();
                let start = entry.start + entry.key_words as usize;
                let image = &self.arena[start..start + table.row_words()];
                for word in table.spans(groups).flat_map(|span| span.words()) {
                    let by = image[word].wrapping_sub(payload[word].load(Ordering::Relaxed));
                    if by != 0 {
                        known.additions.push(Addition { word: word as u32, by });
                    }
                }
                additions = Some((first, known.additions.len()));
                Stamp(last)
            } else {
                let stamp = (last + 1).max(epoch << STAMP_SHIFT);
                if last == 0 {
                    table.check_first_stamp(Stamp(stamp));
                }
                let unsure = if known.is_sure { 0 } else { UNSURE };
                for group in own {
                    payload[table.stamp(group)].store(stamp | unsure, Ordering::Relaxed);
                }
                Stamp(stamp)
            }
        } else {
            known.own_stamp.expect("the protocol has said which")
        };
        if table.holds_rows() {
            for cell in table.cell_numbers(groups) {
                let word = &payload[table.hold(cell)];
                // Who locks a row before it asks has been told; but an optimistic one may have written blindly.
                log.journal.wait_for(Hold(word.load(Ordering::Relaxed)));
                word.store(known.hold.0, Ordering::Relaxed);
            }
        }
        // Most protocols install in order, and each entry once. One that shows rows before it commits may take a row back, and install it once more.
        let is_next = position >= known.end;
        known.end = known.end.max(position + 1);
        let again = if is_next { None } else { known.writes.iter_mut().find(|logged| logged.position == position) };
        match again {
            Some(logged) => (logged.stamp, logged.additions) = (stamp, additions),
            None => known.writes.push(Logged { position, stamp, additions }),
        }
    }

    /// Whether the worker's log lets it go on where these groups of a record were written last. The protocol has said that it may.
    #[inline(always)]
    pub(crate) fn may_pass(&mut self, table: &TableCore<M>, record: Record<M>, groups: Groups) -> bool {
        let Some(Logging { journal, .. }) = &mut self.log else { return true };
        let payload = table.payload(record);
        // Relaxed: stored before what the protocol let see.
        table.cell_numbers(groups).into_iter().all(|cell| {
            let hold = Hold(payload[table.hold(cell)].load(Ordering::Relaxed));
            hold == Hold::NONE || journal.may_pass(hold)
        })
    }

    /// Waits until the worker's log lets it go on there.
    pub(crate) fn wait_for_holds(&mut self, table: &TableCore<M>, record: Record<M>, groups: Groups) {
        let Some(Logging { journal, .. }) = &mut self.log else { return };
        let payload = table.payload(record);
        for cell in table.cell_numbers(groups) {
            // Relaxed: as in `may_pass`.
            journal.wait_for(Hold(payload[table.hold(cell)].load(Ordering::Relaxed)));
        }
    }

    /// What a write has added to the row, if that is how it is logged.
    #[inline(always)]
    pub fn additions(&self, logged: &Logged) -> Option<&[Addition]> {
        logged.additions.map(|(first, end)| &self.logged.additions[first..end])
    }

    /// What was installed, if the engine logs.
    #[inline(always)]
    pub fn logged(&self) -> &[Logged] {
        &self.logged.writes
    }

    /// The epoch in which the transaction commits, if it has installed anything.
    pub(crate) fn installed_in(&self) -> Option<u64> {
        (!self.logged.writes.is_empty()).then_some(self.logged.epoch)
    }
}
