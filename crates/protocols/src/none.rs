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
//! **Orderings.** Only an insert is published: its row is stored before the exchange that clears
//! *absent* (Release), and a reader loads the flags (Acquire) before it copies the row. So a reader
//! that finds a new row finds all of it. An update has no partner. A reader beside it may copy some
//! words before it and some after it, which is what this protocol is for: it pays for no order.
//!
//! **Memory.** A record is freed once, and never under a reader. The flag *queued* says that a
//! worker answers for a tombstone: it has the tombstone in its queue, or runs the transaction that
//! inserted the record. A delete queues the record only if it finds the flag clear. A reader may
//! still hold a record that is unlinked; its memory is not reused before that transaction has ended
//! (`contend_engine::epoch`).
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
        // has all that its insert stored. With a Relaxed load the copy could come first and see the
        // words of the memory's former use under a flag that says "row".
        cell.word().load(Ordering::Acquire)
    }

    /// Copies the row as it stands, of one state or torn, and returns whether there is one.
    #[inline(always)]
    fn look<M: Machine>(cx: &mut Context<M>, at: Located<'_, M>, columns: Projection<'_>) -> RecordState {
        M::step("read");
        // The flags first, then the row. In the other order an insert could come between the two,
        // and the reader would take the words from before it for a row.
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
            // With *absent*: a placeholder enters the index before its row is stored, and other
            // transactions meet it there.
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
            // Nothing is locked until the commit. Of two transactions that read the same row and
            // write it back, one update is lost.
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

    // No commit looks at a leaf again, so a scan may miss rows that were there before its
    // transaction ended.
    #[inline(always)]
    fn observe_leaf(&self, _: &mut Context<M>, _: &mut (), _: u32, _: Leaf<M>, _: u64) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn commit(&self, cx: &mut Context<M>, _: &mut ()) -> Result<(), Abort> {
        // The updates are applied to rows that no lock protects, so two of them may start from the
        // same row. The first of two installs is lost then.
        cx.writes.apply_updates();
        M::step("install");
        // One record after the other, and nothing hides the first from others until the last is
        // installed. So a transaction as a whole has no moment at which it takes effect.
        for position in 0..cx.writes.len() {
            let write = &cx.writes.entries()[position];
            let (word, kind, fresh) = (write.record.word(), write.kind, write.fresh);
            if kind == WriteKind::Nothing {
                continue;
            }
            cx.writes.install(position);
            match kind {
                // Read-modify-writes, here and below: no lock is held, so a store could undo what
                // another transaction, or a collector, has changed in between. Release: the row
                // comes before the flags; pairs with the Acquire of `look`.
                WriteKind::Insert => {
                    word.fetch_and(if fresh { !(ABSENT | QUEUED) } else { !ABSENT }, Ordering::Release);
                }
                WriteKind::Delete => {
                    // Release: as above.
                    let before = word.fetch_or(ABSENT | QUEUED, Ordering::Release);
                    cx.writes.entries_mut()[position].collect = before & QUEUED == 0;
                }
                // An update changes no flag, so it makes no store but those of the row.
                WriteKind::Update | WriteKind::Nothing => {}
            }
        }
        Ok(())
    }

    // Nothing was installed and nothing is locked. The engine has the placeholders of the
    // transaction collected.
    fn abort(&self, _: &mut Context<M>, _: &mut (), _: AbortReason) {}

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> UnlinkOutcome {
        let mut cells = tombstone.cells();
        // The first cell counts alone: `commit` and `look` use no other. So one exchange marks the
        // whole record.
        let Some(first) = cells.next() else { return UnlinkOutcome::Busy };
        // Relaxed: the exchange decides. The write counter that is judged below may be of another
        // deletion, because no transaction keeps others away. With a log, a key's next row may so
        // be lost in a recovery: this protocol promises nothing.
        let flags = first.word().load(Ordering::Relaxed);
        let (new, outcome) = if flags & ABSENT != 0 {
            if !tombstone.counter_epoch_is_over() {
                return UnlinkOutcome::Busy;
            }
            (flags | UNLINKED, UnlinkOutcome::Marked { time: 0 })
        } else {
            (flags & !QUEUED, UnlinkOutcome::Alive)
        };
        // The exchange fails if the flags differ from those that were judged, as when a transaction
        // has given the record a row. Then the collector asks again later.
        //
        // AcqRel: pairs with the Release of `commit` and the Acquire of `look`. The engine takes
        // the record out of the index afterwards, so a reader that finds the mark looks the key up
        // again.
        match first.word().compare_exchange(flags, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => outcome,
            Err(_) => UnlinkOutcome::Busy,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        Self::flags(record.first_cell()) & ABSENT != 0
    }
}
