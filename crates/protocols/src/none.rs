//! No concurrency control: the upper bound of what a protocol can reach on this engine.
//!
//! **Idea.** A transaction buffers its writes and installs them at commit, like the others; but it locks nothing and checks nothing. What
//! is left is the price of the index, of the copies and of the frame, which every protocol pays.
//!
//! **Paper.** The baseline "NO-CC" of T. Tanabe, T. Hoshino, H. Kawashima, O. Tatebe: "An analysis of concurrency control protocols for
//! in-memory databases with CCBench", VLDB 2020.
//!
//! **Promises** nothing: updates get lost, reads are torn, scans see phantoms. Memory stays safe, and an insert or delete alone is
//! atomic.
//!
//! **Metadata.** One word a record, of three flags; an update does not touch it. Of a record of several cells only the first counts:
//!
//! | bit | meaning |
//! | --- | --- |
//! | 2 | queued: somebody will have the tombstone collected |
//! | 1 | unlinked: out of the index; look the key up again |
//! | 0 | absent: a placeholder, or a tombstone |
//!
//! **Commit point.** None. **Waits** for nothing. **Options.** None.

use contend_engine::sets::WriteKind;
use contend_engine::{
    Abort, AbortReason, At, Cell, Cells, Change, Context, Control, Found, Groups, Info, Initial, Isolation, Leaf, Mode,
    Needs, Projection, Protocol, Record, Tombstone, Unlink, options,
};
use contend_machine::{Atomic64, Machine, Ordering};

options! {
    /// There is nothing to choose.
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
        // Acquire: pairs with the Release of `commit`'s inserts, so that a row that is there is seen whole at least once.
        cell.word().load(Ordering::Acquire)
    }

    /// Copies what is there, one state or not.
    #[inline(always)]
    fn look<M: Machine>(cx: &mut Context<M>, at: At<'_, M>, columns: Projection<'_>) -> Found {
        M::step("read");
        let flags = Self::flags(at.record.first_cell());
        cx.copy_row(at, columns);
        match flags {
            flags if flags & UNLINKED != 0 => Found::Unlinked,
            flags if flags & ABSENT != 0 => Found::Absent,
            _ => Found::Row,
        }
    }
}

impl<M: Machine> Protocol<M> for NoControl {
    const SHOWS_UNCOMMITTED: bool = true;
    const INFO: Info = Info {
        name: "none",
        summary: "no concurrency control: the upper bound, promises nothing",
        paper: "Tanabe, Hoshino, Kawashima, Tatebe: An analysis of concurrency control protocols for in-memory databases \
                with CCBench, VLDB 2020",
        isolation: Isolation::None,
        needs: Needs::Nothing,
    };
    type Options = NoControlOptions;

    fn new(_: NoControlOptions) -> Self {
        NoControl
    }
}

impl<M: Machine> Control<M> for NoControl {
    type Local = ();

    fn info(&self) -> Info {
        <Self as Protocol<M>>::INFO
    }

    fn local(&self, _: usize) {}

    fn init(&self, cells: Cells<M>, initial: Initial) {
        let word = if initial == Initial::Loaded { 0 } else { ABSENT | QUEUED };
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
    fn read(&self, cx: &mut Context<M>, _: &mut (), at: At<'_, M>, columns: Projection<'_>) -> Result<Found, Abort> {
        Ok(Self::look(cx, at, columns))
    }

    #[inline(always)]
    fn write(
        &self,
        cx: &mut Context<M>,
        _: &mut (),
        at: At<'_, M>,
        groups: Groups,
        mode: Mode,
    ) -> Result<Found, Abort> {
        Ok(match mode {
            Mode::Modify | Mode::Delete => Self::look(cx, at, Projection::of_groups(groups)),
            Mode::Blind | Mode::Merge | Mode::Insert => Self::look(cx, at, Projection::EXISTENCE),
        })
    }

    fn inserted(&self, _: &mut Context<M>, _: &mut (), _: At<'_, M>, _: &Change<M>) -> Result<(), Abort> {
        Ok(())
    }

    #[inline(always)]
    fn gap(&self, _: &mut Context<M>, _: &mut (), _: Leaf<M>, _: u64) -> Result<(), Abort> {
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
                // Release, here and below: the row comes before the flags; pairs with the Acquire of `look`.
                WriteKind::Insert => {
                    word.fetch_and(if fresh { !(ABSENT | QUEUED) } else { !ABSENT }, Ordering::Release);
                }
                WriteKind::Delete => {
                    let before = word.fetch_or(ABSENT | QUEUED, Ordering::Release);
                    cx.writes.entries_mut()[position].collect = before & QUEUED == 0;
                }
                WriteKind::Update | WriteKind::Nothing => {}
            }
        }
        Ok(())
    }

    fn abort(&self, _: &mut Context<M>, _: &mut (), _: AbortReason) {}

    fn unlink(&self, tombstone: Tombstone<'_, M>) -> Unlink {
        let mut cells = tombstone.cells();
        let Some(first) = cells.next() else { return Unlink::Busy };
        // Relaxed: the exchange decides.
        let flags = first.word().load(Ordering::Relaxed);
        let (new, outcome) = if flags & ABSENT != 0 {
            if !tombstone.stamp_is_over() {
                return Unlink::Busy;
            }
            (flags | UNLINKED, Unlink::Marked { time: 0 })
        } else {
            (flags & !QUEUED, Unlink::Alive)
        };
        // AcqRel: pairs with the Release of `commit` and the Acquire of `look`.
        match first.word().compare_exchange(flags, new, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => outcome,
            Err(_) => Unlink::Busy,
        }
    }

    fn is_absent(&self, record: Record<M>) -> bool {
        Self::flags(record.first_cell()) & ABSENT != 0
    }
}
