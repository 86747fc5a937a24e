//! The chains of a cell's old versions: how the version of a time is found, and how unneeded
//! versions are taken out.
//!
//! **Two chains.** A cell has two chains, each from younger versions to older ones.
//!
//! - The *recent* chain holds versions that live for a moment. The worker that replaced a version
//!   reuses its memory without a look at the chain, whose lines may be in another core's cache. The
//!   chain is broken there.
//! - The *retained* chain holds the few versions that a long transaction needs. A version goes
//!   there when it is replaced, or later, when the transaction turns out to be a long one
//!   ([`retain`]). Unneeded versions are taken out of it one by one.
//!
//! A reader that meets a break in the recent chain goes on in the retained one. If that does not
//! have its version either, the reader aborts (`version_collected`).
//!
//! **Links.** A link is the address of the next older copy's cell. The recent chain ends in 0. The
//! retained chain ends in an odd number, which has the `wts` of the cell's first version above the
//! lowest bit: before that time there was no row.
//!
//! **A reader holds on to nothing.** The memory of a copy may become a copy of another cell, or of
//! another time, while a reader follows a link to it. So a copy says which cell it is of, and at
//! which time it was replaced (its *end*). Two copies that one piece of memory holds in turn have
//! different ends, because they were replaced by different transactions; that holds also if an end
//! was moved to an earlier time ([`end_versions_at`]). A reader loads the end before and after it
//! reads the copy (`ChainedVersion::find` and [`ChainedVersion::is_there`]). If it finds the copy
//! of another cell, a later one or none, the chain is broken there. So a version that was reused is
//! missed, but never misread.
//!
//! **Writers of a chain.**
//!
//! | thread | changes |
//! | --- | --- |
//! | the holder of the cell's write intent | the links of both chains; and ends, to earlier times |
//! | the worker that replaced a version | exchanges the copy's end for 0, and reuses the memory, once the copy is out of the retained chain or nobody needs it |
//! | any thread that changes a copy's end or link | sets [`PINNED`] in the end meanwhile, which keeps the copy where it is |

use std::ptr::NonNull;

use contend_engine::{Abort, AbortReason, Cell};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{INTENT_WITHOUT_TIMESTAMP, NO_INTENT, intent_of, wts_of};

/// Flag in the end of a copy: a thread works on the chain there.
const PINNED: u64 = 1 << 63;
/// The end of a copy that is in no chain.
const NO_END: u64 = 0;
/// The number of times that a reader starts again at the record when a copy that it follows is
/// taken out.
const TRIES: u32 = 8;

/// Returns the word with the link of the recent chain.
pub(super) fn recent_link<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { cell.meta(3) }
}

/// Returns the word with the link of the retained chain.
pub(super) fn retained_link<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { cell.meta(5) }
}

/// Returns the word of a copy with its end: the `wts` of the version that replaced it. A record's
/// cell has its write intent there.
fn end_word<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    intent_of(copy)
}

/// Returns the word of a copy with the `sstamp` of the transaction that replaced the version.
fn sstamp_of<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { copy.meta(2) }
}

/// Returns the word of a copy that says which cell it is of, and whether it has been in the
/// retained chain. A record's cell has an epoch or a time there, which is no complement of an
/// address.
fn owner_of<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    // SAFETY: the cells of this family have six words.
    unsafe { copy.meta(4) }
}

/// Flag in a copy's owner word, which is the complement of an address: the copy is in the retained
/// chain, or has been.
const RETAINED: u64 = 1 << 1;

fn owned_by<M: Machine>(cell: Cell<M>) -> u64 {
    !cell.value() & !RETAINED
}

/// Returns the end of a copy without the flag.
#[inline(always)]
fn end_of<M: Machine>(copy: Cell<M>, order: Ordering) -> u64 {
    end_word(copy).load(order) & !PINNED
}

/// The retained link of a cell whose versions were never replaced.
pub(super) const NO_OLD_VERSION: u64 = u64::MAX;

/// A chain: the function that returns the word of its link.
type Chain<M> = fn(Cell<M>) -> &'static <M as Machine>::U64;

/// What a link leads to.
enum Link<M: Machine> {
    /// Nothing: this chain does not tell what is older.
    End,
    /// The beginning: the cell's first version has this `wts`.
    FirstVersion(u64),
    /// The next older copy.
    Copy(Cell<M>),
}

impl<M: Machine> Link<M> {
    fn of(value: u64) -> Self {
        if value & 1 == 1 {
            return Link::FirstVersion(value >> 1);
        }
        // SAFETY: a link is the address of a copy's cell in the slabs of this table. There are
        // cells for as long as the table exists, whatever they are used for.
        let cell = |first| unsafe { Cell::at(first) };
        NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(value as usize))
            .map_or(Link::End, |at| Link::Copy(cell(at)))
    }
}

/// A copy as it was found in a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChainedVersion<M: Machine> {
    pub(crate) cell: Cell<M>,
    /// Its word: `wts` and flags.
    pub(crate) word: u64,
    /// The `wts` of the version that replaced it.
    pub(crate) end: u64,
    /// The `sstamp` of the transaction that replaced it.
    pub(crate) sstamp: u64,
}

impl<M: Machine> ChainedVersion<M> {
    /// Returns the copy, if it is one of the cell `of` that was replaced at `before` or earlier.
    #[inline(always)]
    fn find(copy: Cell<M>, of: Cell<M>, before: u64) -> Option<Self> {
        // Acquire: pairs with the Release of `push_copy`, so that the other words are at least as
        // new as the end.
        let end = end_of(copy, Ordering::Acquire);
        // Relaxed, all: `is_there` looks at the end again, after its fence.
        let word = copy.word().load(Ordering::Relaxed);
        let sstamp = sstamp_of(copy).load(Ordering::Relaxed);
        let is_of_cell = owner_of(copy).load(Ordering::Relaxed) & !RETAINED == owned_by(of);
        let is_one = is_of_cell && wts_of(word) < end && end <= before;
        is_one.then_some(ChainedVersion { cell: copy, word, end, sstamp })
    }

    /// Keeps the copy where it is until [`ChainedVersion::release`]. Returns `false` if it has
    /// changed, or another thread has pinned it.
    fn pin(&self) -> bool {
        // Acquire: pairs with the Release of `release` and of `push_copy`; the links are read after
        // it. Relaxed on failure: nothing is read then.
        end_word(self.cell).compare_exchange(self.end, self.end | PINNED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends the pinning, and sets the copy's end.
    fn release(&self, end: u64) {
        // Release: the changes of links come before; pairs with the exchanges of `pin` and
        // `retire`, and with the Acquire of `is_linked` and `find`.
        end_word(self.cell).store(end, Ordering::Release);
    }

    /// Returns whether the copy is still there. If so, every word that was read of it before
    /// belongs to this version.
    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        // Acquire: the reads of the copy come before the second load of the end; pairs with the
        // Release fence of `fence_before_reuse`. Excluded is that a reader has read a word of the
        // memory's next use, and still finds the old end.
        M::fence(Ordering::Acquire);
        end_of(self.cell, Ordering::Relaxed) == self.end
    }
}

/// Returns the old version of a cell that is visible at `ts`, which is before the `wts` of the
/// newest version; `None` if there was no row.
///
/// # Errors
/// The version is not in the chains any more.
pub(crate) fn version_at<M: Machine>(
    cell: Cell<M>,
    ts: u64,
    ignore_gaps: bool,
) -> Result<Option<ChainedVersion<M>>, Abort> {
    search(recent_link, cell, ts, ignore_gaps)
        .or_else(|| search(retained_link, cell, ts, ignore_gaps))
        .ok_or(Abort::new(AbortReason::VersionCollected))
}

/// Searches one chain for the version at `ts`. Returns `None` if the chain does not say, and
/// `Some(None)` if there was no row.
fn search<M: Machine>(chain: Chain<M>, cell: Cell<M>, ts: u64, ignore_gaps: bool) -> Option<Option<ChainedVersion<M>>> {
    let mut broken_at = 0;
    'again: for _ in 0..TRIES {
        let (mut from, mut before) = (None::<ChainedVersion<M>>, u64::MAX);
        loop {
            M::step("older version");
            // Acquire: pairs with the Release of `push_copy`, `retain` and `take_out`.
            let link = chain(from.map_or(cell, |old| old.cell)).load(Ordering::Acquire);
            if from.is_some_and(|old| !old.is_there()) {
                continue 'again;
            }
            let copy = match Link::of(link) {
                Link::End => return None,
                Link::FirstVersion(wts) => return (ts < wts).then_some(None),
                Link::Copy(copy) => copy,
            };
            M::await_line(copy.word());
            let Some(old) = ChainedVersion::find(copy, cell, before) else {
                // The copy may have been taken out just now. If the link is another one at the next
                // try, the chain is not broken.
                if std::mem::replace(&mut broken_at, link) == link {
                    return None;
                }
                continue 'again;
            };
            if wts_of(old.word) <= ts {
                if !old.is_there() {
                    continue 'again;
                }
                // A version that ended at or before `ts` is not the one: its successor is missing.
                return (ts < old.end || ignore_gaps).then_some(Some(old));
            }
            (from, before) = (Some(old), wts_of(old.word));
        }
    }
    None
}

/// Notes the `wts` of a cell's first version when that version is replaced. The caller holds the
/// cell's intent.
#[inline(always)]
pub(super) fn record_first_version<M: Machine>(cell: Cell<M>) {
    // Relaxed, all: only the holder of the intent stores these words.
    if retained_link(cell).load(Ordering::Relaxed) == NO_OLD_VERSION {
        let wts = wts_of(cell.word().load(Ordering::Relaxed));
        // Release: pairs with the Acquire of `search`, as in `push_copy`.
        retained_link(cell).store(wts << 1 | 1, Ordering::Release);
    }
}

/// Ends the old versions of a cell at `ts`, and takes out the versions that are younger. The caller
/// holds the cell's intent. A reader of a time between `ts` and the `wts` of the newest version
/// then finds no version, and aborts.
pub(super) fn end_versions_at<M: Machine>(cell: Cell<M>, ts: u64) {
    for chain in [recent_link, retained_link] as [Chain<M>; 2] {
        // Relaxed, all: only the holder of the intent stores links.
        while let Link::Copy(copy) = Link::of(chain(cell).load(Ordering::Relaxed)) {
            let Some(old) = ChainedVersion::find(copy, cell, u64::MAX) else { break };
            M::step("end versions");
            if wts_of(old.word) <= ts {
                end_early(&old, ts);
                break;
            }
            if !old.pin() {
                // Its worker is reusing it. So no link leads to the copies beyond.
                break;
            }
            // Relaxed: the copy is pinned.
            take_out(chain(cell), chain(copy).load(Ordering::Relaxed), &old);
        }
    }
}

/// Returns the youngest old version of a cell with a `wts` of `ts` or earlier, also if it ended
/// before `ts`; `None` if it is gone, or there was none. The caller holds the cell's intent, and
/// knows that the recent chain has all versions but for the oldest.
pub(super) fn version_begun_by<M: Machine>(cell: Cell<M>, ts: u64) -> Option<ChainedVersion<M>> {
    let (mut from, mut before) = (cell, u64::MAX);
    loop {
        M::step("older version");
        // Relaxed: only the holder of the intent stores links.
        let Link::Copy(copy) = Link::of(recent_link(from).load(Ordering::Relaxed)) else { return None };
        let old = ChainedVersion::find(copy, cell, before)?;
        if wts_of(old.word) <= ts {
            return Some(old);
        }
        (from, before) = (copy, wts_of(old.word));
    }
}

/// Ends an old version at `ts`, if it ends later. The caller holds the cell's intent.
pub(super) fn end_early<M: Machine>(old: &ChainedVersion<M>, ts: u64) {
    if old.end > ts && old.pin() {
        old.release(ts);
    }
}

/// Takes a pinned copy out of a chain: `link`, which leads to it, leads to `beyond` from now on.
/// The caller holds the cell's intent.
fn take_out<M: Machine>(link: &M::U64, beyond: u64, old: &ChainedVersion<M>) {
    // Release: pairs with the Acquire of `search`, which reads the copy beyond.
    link.store(beyond, Ordering::Release);
    old.release(NO_END);
}

/// Returns the number of a cell's old versions that were replaced later than `watermark`. Call it
/// only while no transaction runs.
pub(super) fn length<M: Machine>(cell: Cell<M>, watermark: u64) -> u64 {
    let in_chain = |link: Chain<M>, is_counted: fn(Cell<M>) -> bool| {
        let (mut from, mut before, mut length) = (cell, u64::MAX, 0);
        // Relaxed: no thread changes the chain.
        while let Link::Copy(copy) = Link::of(link(from).load(Ordering::Relaxed)) {
            match ChainedVersion::find(copy, cell, before) {
                Some(old) if old.end > watermark => (from, before) = (copy, wts_of(old.word)),
                _ => break,
            }
            length += u64::from(is_counted(copy));
        }
        length
    };
    // A retained copy may be in both.
    in_chain(recent_link, |copy| !is_retained(copy)) + in_chain(retained_link, |_| true)
}

/// Links a copy at the head of a cell's recent chain, or of the retained one. The caller holds the
/// cell's intent, and the copy's word is set; no other thread knows the copy.
#[inline(always)]
pub(super) fn push_copy<M: Machine>(copy: Cell<M>, cell: Cell<M>, end: u64, sstamp: u64, retained: bool) {
    let (chain, other) = if retained {
        (retained_link as Chain<M>, recent_link as Chain<M>)
    } else {
        (recent_link as _, retained_link as _)
    };
    // Relaxed, these: the store of the end publishes them.
    chain(copy).store(chain(cell).load(Ordering::Relaxed), Ordering::Relaxed);
    // A link may still lead here from a time when the memory was a copy in that chain.
    other(copy).store(0, Ordering::Relaxed);
    owner_of(copy).store(owned_by(cell) | if retained { RETAINED } else { 0 }, Ordering::Relaxed);
    // Relaxed: as above.
    sstamp_of(copy).store(sstamp, Ordering::Relaxed);
    // Release: pairs with the Acquire of `ChainedVersion::find`, which reads the other words after
    // the end.
    end_word(copy).store(end, Ordering::Release);
    // Release: the whole copy; pairs with the Acquire of `search`.
    chain(cell).store(copy.value(), Ordering::Release);
}

/// Returns whether the copy, which the caller's worker made, is or has been in the retained chain.
pub(super) fn is_retained<M: Machine>(copy: Cell<M>) -> bool {
    // Relaxed: the worker that made the copy is the one that sets the flag.
    owner_of(copy).load(Ordering::Relaxed) & RETAINED != 0
}

/// Returns whether the copy, which the caller's worker made, is still in its chain.
pub(super) fn is_linked<M: Machine>(copy: Cell<M>) -> bool {
    // Acquire: pairs with the Release of `take_out`: that thread no longer touches the copy.
    end_of(copy, Ordering::Acquire) != NO_END
}

/// Returns the `wts` of a copy that the caller's worker made and has not given back.
pub(super) fn begin_of<M: Machine>(copy: Cell<M>) -> u64 {
    // Relaxed: the caller's worker stored it.
    wts_of(copy.word().load(Ordering::Relaxed))
}

/// Takes an unneeded copy, which the caller's worker made, out of use wherever it is linked.
/// Returns `false` if another thread has pinned it.
pub(super) fn retire<M: Machine>(copy: Cell<M>) -> bool {
    // Relaxed: the exchange looks again.
    let end = end_of(copy, Ordering::Relaxed);
    // Relaxed on success: `fence_before_reuse` orders the end before the next use. Acquire on
    // failure: pairs with the Release of `ChainedVersion::release`, after which the other thread no
    // longer touches the copy.
    match end_word(copy).compare_exchange(end, NO_END, Ordering::Relaxed, Ordering::Acquire) {
        Ok(_) | Err(NO_END) => true,
        Err(_) => false,
    }
}

/// Orders the ends that were set to 0 before the next use of the copies' memory; the caller gives
/// the memory back afterwards.
pub(super) fn fence_before_reuse<M: Machine>() {
    // Release: pairs with the Acquire fence of `ChainedVersion::is_there`.
    M::fence(Ordering::Release);
}

/// Calls `act` with the cell that a copy is of, under the cell's intent; returns `None` if another
/// transaction has an intent there. The caller's worker made the copy, and the record can't have
/// left its table since.
fn with_intent_on_owner<M: Machine, R>(own: Cell<M>, act: impl FnOnce(Cell<M>) -> R) -> Option<R> {
    // Relaxed: the caller's worker stored it.
    let owner = !(owner_of(own).load(Ordering::Relaxed) | RETAINED);
    let first = NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(owner as usize))?;
    // SAFETY: the cell is in a record of the table, as the caller promises.
    let cell = unsafe { Cell::<M>::at(first) };
    // Acquire: pairs with the Release of the last holder (`WriteIntents::truncate`), so that the
    // chain is as that one left it.
    intent_of(cell).compare_exchange(NO_INTENT, INTENT_WITHOUT_TIMESTAMP, Ordering::Acquire, Ordering::Relaxed).ok()?;
    let done = act(cell);
    // Release: pairs with the exchange of the next intent; the changes of the chain come before.
    intent_of(cell).store(NO_INTENT, Ordering::Release);
    Some(done)
}

/// Returns whether the recent chain of a cell, whose intent the caller holds, leads to this copy.
fn leads_to<M: Machine>(cell: Cell<M>, copy: Cell<M>) -> bool {
    let (mut from, mut before) = (None::<ChainedVersion<M>>, u64::MAX);
    loop {
        // Relaxed: only the holder of the intent stores links of a copy that is still there.
        let link = recent_link(from.map_or(cell, |old| old.cell)).load(Ordering::Relaxed);
        if from.is_some_and(|old| !old.is_there()) {
            return false;
        }
        let Link::Copy(next) = Link::of(link) else { return false };
        let Some(old) = ChainedVersion::find(next, cell, before) else { return false };
        if next.address() == copy.address() {
            return true;
        }
        (from, before) = (Some(old), wts_of(old.word));
    }
}

/// Links a copy, which the caller's worker put into the recent chain, into the retained one as
/// well. If no reader can find the copy any more, takes it out of use instead. Returns `false` if
/// another thread works there.
pub(super) fn retain<M: Machine>(own: Cell<M>) -> bool {
    M::step("keep version");
    let link_between = |cell: Cell<M>| {
        // If only the newest version is younger, no other copy is touched: their lines may be far
        // away.
        // Relaxed, all: the caller holds the intent, and nobody has taken the copy out.
        let is_youngest_copy = recent_link(cell).load(Ordering::Relaxed) == own.value()
            && end_of(own, Ordering::Relaxed) == wts_of(cell.word().load(Ordering::Relaxed));
        if !is_youngest_copy && !leads_to(cell, own) {
            // No reader may find it again, because its end may be too late: `end_versions_at` did
            // not reach it.
            // Release: as in `ChainedVersion::release`.
            end_word(own).store(NO_END, Ordering::Release);
            return true;
        }
        let (mut from, mut before, begin) = (None::<ChainedVersion<M>>, u64::MAX, begin_of(own));
        let (link, beyond) = loop {
            let link = retained_link(from.map_or(cell, |old| old.cell));
            // Relaxed: only the holder of the intent stores links of a copy that is still there.
            let beyond = link.load(Ordering::Relaxed);
            match Link::of(beyond) {
                Link::Copy(copy) if !is_youngest_copy => match ChainedVersion::find(copy, cell, before) {
                    Some(old) if wts_of(old.word) > begin => (from, before) = (Some(old), wts_of(old.word)),
                    _ => break (link, beyond),
                },
                _ => break (link, beyond),
            }
        };
        if from.as_ref().is_some_and(|from| !from.pin()) {
            return false;
        }
        // Relaxed, both: the store to `link` publishes them.
        retained_link(own).store(beyond, Ordering::Relaxed);
        owner_of(own).store(owned_by(cell) | RETAINED, Ordering::Relaxed);
        // Release: pairs with the Acquire of `search`.
        link.store(own.value(), Ordering::Release);
        if let Some(from) = &from {
            from.release(from.end);
        }
        true
    };
    is_retained(own) || with_intent_on_owner(own, link_between) == Some(true)
}

/// Prunes the retained chain that this copy is in ([`prune_cell`]), unless another transaction has
/// an intent on the cell.
pub(super) fn prune<M: Machine>(own: Cell<M>, keep: impl FnMut(u64, u64) -> bool) {
    with_intent_on_owner(own, |cell| prune_cell(cell, Some(own), keep));
}

/// Takes the copies that `keep` does not want out of a cell's retained chain. The caller holds the
/// cell's intent.
///
/// `keep` gets the begin and the end of each version, from younger to older. The walk ends at the
/// copy `own` if that one is taken out.
pub(super) fn prune_cell<M: Machine>(cell: Cell<M>, own: Option<Cell<M>>, mut keep: impl FnMut(u64, u64) -> bool) {
    M::step("prune");
    let (mut from, mut before) = (None::<ChainedVersion<M>>, u64::MAX);
    loop {
        let link = retained_link(from.map_or(cell, |old| old.cell));
        // Relaxed: only the holder of the intent stores links of a copy that is still there.
        let next = link.load(Ordering::Relaxed);
        if from.is_some_and(|old| !old.is_there()) {
            break;
        }
        let Link::Copy(copy) = Link::of(next) else { break };
        let Some(old) = ChainedVersion::find(copy, cell, before) else { break };
        before = wts_of(old.word);
        if keep(before, old.end) {
            from = Some(old);
            continue;
        }
        // Both copies are pinned, so neither changes after it was found.
        if !old.pin() {
            break;
        }
        if from.as_ref().is_some_and(|from| !from.pin()) {
            old.release(old.end);
            break;
        }
        M::step("take out");
        // Relaxed: only the holder of the intent stores the link.
        take_out(link, retained_link(old.cell).load(Ordering::Relaxed), &old);
        if let Some(from) = &from {
            from.release(from.end);
        }
        if own.is_some_and(|own| old.cell.address() == own.address()) {
            // The copies beyond are as they were at the last visit, and their lines may be far
            // away.
            break;
        }
    }
}
