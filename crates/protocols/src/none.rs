//! No concurrency control: the upper bound of what a protocol can reach on this engine.
//!
//! **Idea.** A transaction buffers its writes and installs them at commit, as in the other
//! protocols, but it locks nothing and validates nothing. The remaining cost is that of the index,
//! of the copies and of the frame, which every protocol pays.
//!
//! **Paper.** The baseline "NO-CC" of T. Tanabe, T. Hoshino, H. Kawashima, O. Tatebe: "An analysis
//! of concurrency control protocols for in-memory databases with CCBench", VLDB 2020.
//!
//! **Promises** nothing: updates get lost, reads are torn, scans see phantoms. Memory stays safe,
//! and an insert or delete alone is atomic.
//!
//! **Metadata.** One word for each record, of three flags; an update does not touch it. If a record
//! has several cells, the first one counts:
//!
//! | bit | meaning |
//! | --- | --- |
//! | 2 | queued: a worker will have the tombstone collected |
//! | 1 | unlinked: out of the index; look the key up again |
//! | 0 | absent: a placeholder, or a tombstone |
//!
//! **Commit point.** None. **Waits** for nothing. **Phantoms** are not excluded.
//!
//! **Departures from the paper.** None. **Options.** None.

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, Cell, Cells, Change, Context, DeclarationNeeds, Groups, Isolation, Leaf, Located,
    NamedProtocol, Projection, Protocol, ProtocolInfo, Record, RecordOrigin, RecordState, Tombstone, UnlinkOutcome,
    WriteMode, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

options! {
    /// No options.
    pub struct NoControlOptions {}
}

/// The protocol.
#[derive(Debug)]
pub struct NoControl;

const ABSENT: u64 = 1;
const UNLINKED: u64 = 1 << 1;
const QUEUED: u64 = 1 << 2;

impl NoControl {
    fn flags<M: Machine>(cell: Cell<M>) -> u64 {
        // Acquire: pairs with the Release of `commit`'s inserts, so that a reader that finds a row
        // has all that its insert stored.
        cell.word().load(Ordering::Acquire)
    }

    /// Copies the row as it stands, of one state or torn, and returns whether there is one.
    #[inline(always)]
    fn look<M: Machine>(cx: &mut Context<M>, at: Located<'_, M>, columns: Projection<'_>) -> RecordState {
        M::step("read");
        let flags = Self::flags(at.record.first_cell());
        cx.copy_row(at, columns);
        match flags {
            flags if flags & UNLINKED != 0 => RecordState::Unlinked,
            flags if flags & ABSENT != 0 => RecordState::Absent,
            _ => RecordState::Row,
        }
    }
}

impl<M: Machine> NamedProtocol<M> for NoControl {
    const SHOWS_UNCOMMITTED: bool = true;
    const INFO: ProtocolInfo = ProtocolInfo {
        name: "none",
        summary: "no concurrency control: the upper bound, promises nothing",
        paper: "Tanabe, Hoshino, Kawashima, Tatebe: An analysis of concurrency control protocols for in-memory databases \
                with CCBench, VLDB 2020",
        isolation: Isolation::None,
        needs: DeclarationNeeds::Nothing,
    };
    type Options = NoControlOptions;

    fn new(_: NoControlOptions) -> Self {
        NoControl
    }
}

impl<M: Machine> Protocol<M> for NoControl {
    type WorkerState = ();

    fn info(&self) -> ProtocolInfo {
        <Self as NamedProtocol<M>>::INFO
    }

    fn new_worker_state(&self, _: usize) {}

    fn init(&self, cells: Cells<M>, initial: RecordOrigin) {
        let word = if initial == RecordOrigin::Loaded { 0 } else { ABSENT | QUEUED };
        for cell in cells {
            // Relaxed: the index publishes the record.
            cell.word().store(word, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn begin(&self, _: &mut Context<M>, _: &mut ()) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn read(
        &self,
        cx: &mut Context<M>,
        _: &mut (),
        at: Located<'_, M>,
        columns: Projection<'_>,
    ) -> Result<RecordState, Abort> {
        Ok(Self::look(cx, at, columns))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        _: &mut (),
        at: Located<'_, M>,
        groups: Groups,
        mode: WriteMode,
    ) -> Result<RecordState, Abort> {
        Ok(match mode {
            WriteMode::ReadModifyWrite | WriteMode::Delete => Self::look(cx, at, Projection::of_groups(groups)),
            WriteMode::Blind | WriteMode::CommitTimeUpdate | WriteMode::Insert => {
                Self::look(cx, at, Projection::EXISTENCE)
            }
        })
    }

    fn placeholder_inserted(
        &self,
        _: &mut Context<M>,
        _: &mut (),
        _: Located<'_, M>,
        _: &Change<M>,
    ) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn observe_leaf(&self, _: &mut Context<M>, _: &mut (), _: Leaf<M>, _: u64) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, _: &mut ()) -> Result<(), Abort> {
        cx.writes.apply_updates();
        M::step("install");
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            let (word, kind, fresh) = (write.record.word(), write.kind, write.fresh);
            if kind == WriteKind::Nothing {
                continue;
            }
            cx.writes.install(position);
            match kind {
                // Release, here and below: the row comes before the flags; pairs with the Acquire
                // of `look`.
                WriteKind::Insert => {
                    word.fetch_and(if fresh { !(ABSENT | QUEUED) } else { !ABSENT }, Ordering::Release);
                }
                WriteKind::Delete => {
                    // Release: as above.
                    let before = word.fetch_or(ABSENT | QUEUED, Ordering::Release);
                    cx.writes.entries_mut()[position].collect = before & QUEUED == 0;
                }
                WriteKind::Update | WriteKind::Nothing => {}
            }
        }
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, _: &mut (), _: AbortReason) {}

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        let mut cells = tombstone.cells();
        let Some(first) = cells.next() else { return UnlinkOutcome::Busy };
        // Relaxed: the exchange decides.
        let flags = first.word().load(Ordering::Relaxed);
        let (new, outcome) = if flags & ABSENT != 0 {
            if !tombstone.counter_epoch_is_over() {
                return UnlinkOutcome::Busy;
            }
            (flags | UNLINKED, UnlinkOutcome::Marked { time: 0 })
        } else {
            (flags & !QUEUED, UnlinkOutcome::Alive)
        };
        // AcqRel: pairs with the Release of `commit` and the Acquire of `look`.
        match first.word().compare_exchange(flags, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => outcome,
            Err(_) => UnlinkOutcome::Busy,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        Self::flags(record.first_cell()) & ABSENT != 0
    }
}
