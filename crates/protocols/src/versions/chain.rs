//! The chain of a cell's older versions: finding the one of a time, and taking out those that nobody needs.
//!
//! A link is the address of the next older copy's cell, or 0 where there was nothing before, or odd where what is older was taken out, or never kept: above
//! the lowest bit then the timestamp before which there was nothing.
//!
//! A copy says of which cell it is one, and until when it was the newest (its *end*). Of two copies that one
//! memory holds in turn, the ends differ, as they are of different transactions, also where an end has been moved to an earlier time ([`end_at`]). So a reader checks what a link leads to: it looks at the end before it has
//! read the copy and after, and where it finds another cell's copy, a later one, or none, the version that it wants has been taken out.
//!
//! | who changes | what, and when |
//! | --- | --- |
//! | who has claimed the cell | the links of its chain, and ends, to earlier times |
//! | the worker that replaced a version | gives its memory back, once the copy is out of the chain, or nobody can need it; by an exchange of the end for 0 |
//! | who takes a copy out, or changes its link | sets [`PINNED`] in its end meanwhile: it stays where it is |

use std::ptr::NonNull;

use contend_engine::{Abort, AbortReason, Cell};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{NOBODY, UNSTAMPED, claim_of, stamp_of};

/// In the end of a copy: somebody works on the chain there.
const PINNED: u64 = 1 << 63;
/// How often a reader begins anew at the record when what it follows is taken out under its hands.
const TRIES: u32 = 8;

/// Where the next older copy of the cell is.
pub(super) fn older_than<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: cells have five words.
    unsafe { cell.meta(3) }
}

/// Of a copy: what the transaction that replaced the version has left.
fn left_of<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { copy.meta(2) }
}

/// Of a copy: of which cell. Of a record's cell this word is an epoch, which no address is the complement of.
fn owner_of<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { copy.meta(4) }
}

fn owned_by<M: Machine>(cell: Cell<M>) -> u64 {
    !cell.value()
}

/// The end of a copy: the timestamp of the version that replaced it; 0 if it is in no chain.
#[inline(always)]
fn end_of<M: Machine>(copy: Cell<M>, order: Ordering) -> u64 {
    claim_of(copy).load(order) & !PINNED
}

/// What a link leads to.
enum Link<M: Machine> {
    /// There was nothing before.
    Nothing,
    /// Taken out: versions from this timestamp on.
    Gone(u64),
    Copy(Cell<M>),
}

impl<M: Machine> Link<M> {
    fn of(value: u64) -> Self {
        if value & 1 == 1 {
            return Link::Gone(value >> 1);
        }
        // SAFETY: a link is to the cell of a copy in the slabs of this table, where there are cells for as long as the table is there, whatever
        // they are used for.
        let cell = |first| unsafe { Cell::at(first) };
        NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(value as usize))
            .map_or(Link::Nothing, |at| Link::Copy(cell(at)))
    }
}

/// A copy as it was found in a chain.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Older<M: Machine> {
    pub(crate) cell: Cell<M>,
    /// Its word: timestamp and flags.
    pub(crate) word: u64,
    /// The timestamp of the version that replaced it.
    pub(crate) end: u64,
    /// What the transaction that did has left.
    pub(crate) left: u64,
}

impl<M: Machine> Older<M> {
    /// The copy there, if it is one of this cell, replaced at `before` or earlier.
    #[inline(always)]
    fn find(copy: Cell<M>, of: Cell<M>, before: u64) -> Option<Self> {
        // Acquire: pairs with the Release of `put`: the other words are at least as new.
        let end = end_of(copy, Ordering::Acquire);
        // Relaxed, all of them: looked at again by `is_there`.
        let word = copy.word().load(Ordering::Relaxed);
        let left = left_of(copy).load(Ordering::Relaxed);
        let is_one = owner_of(copy).load(Ordering::Relaxed) == owned_by(of) && stamp_of(word) < end && end <= before;
        is_one.then_some(Older { cell: copy, word, end, left })
    }

    /// Whether it is still there, and all that was read of it before is of this version.
    #[inline(always)]
    pub(crate) fn is_there(&self) -> bool {
        // Acquire: what was read of the copy comes before; pairs with the Release fence of `give_back`.
        M::fence(Ordering::Acquire);
        end_of(self.cell, Ordering::Relaxed) == self.end
    }
}

/// The version of a cell that was there at this time, which is before that of the newest one; `None` if there was none.
///
/// # Errors
/// It has been taken out.
pub(crate) fn older_at<M: Machine>(cell: Cell<M>, stamp: u64, ignore_gaps: bool) -> Result<Option<Older<M>>, Abort> {
    'again: for _ in 0..TRIES {
        let (mut from, mut before) = (None::<Older<M>>, u64::MAX);
        loop {
            M::step("older version");
            // Acquire: pairs with the Release of `put` and `prune`.
            let link = older_than(from.map_or(cell, |older| older.cell)).load(Ordering::Acquire);
            if from.is_some_and(|older| !older.is_there()) {
                continue 'again;
            }
            let copy = match Link::of(link) {
                Link::Nothing => return Ok(None),
                Link::Gone(birth) if stamp < birth => return Ok(None),
                Link::Gone(_) => break 'again,
                Link::Copy(copy) => copy,
            };
            let Some(older) = Older::find(copy, cell, before) else { continue 'again };
            if stamp_of(older.word) <= stamp {
                if !older.is_there() {
                    continue 'again;
                }
                if stamp >= older.end && !ignore_gaps {
                    break 'again;
                }
                return Ok(Some(older));
            }
            (from, before) = (Some(older), stamp_of(older.word));
        }
    }
    Err(Abort::new(AbortReason::VersionCollected))
}

/// The newest version of a cell that the caller has claimed is replaced, and no copy kept of it.
#[inline(always)]
pub(super) fn leave_gap<M: Machine>(cell: Cell<M>) {
    // Relaxed, all: who has claimed the cell changes them.
    if older_than(cell).load(Ordering::Relaxed) == 0 {
        let begin = stamp_of(cell.word().load(Ordering::Relaxed));
        // Release: as in `put`.
        older_than(cell).store(begin << 1 | 1, Ordering::Release);
    }
}

/// Has the older versions of a cell that the caller has claimed end at this time: who reads at a later one, and at an earlier one than the newest
/// version's, finds nothing that is right.
pub(super) fn end_at<M: Machine>(cell: Cell<M>, stamp: u64) {
    loop {
        // Relaxed, all of them: who has claimed the cell changes the links, and nobody gives a copy back that ends after the time of a
        // transaction that runs.
        let Link::Copy(copy) = Link::of(older_than(cell).load(Ordering::Relaxed)) else { return };
        let Some(older) = Older::find(copy, cell, u64::MAX) else { return };
        M::step("end versions");
        if stamp_of(older.word) <= stamp {
            return shorten(&older, stamp);
        }
        take_out(cell, &older);
    }
}

/// The version of a cell that the caller has claimed that was there at this time, which is before that of the newest one, also if it ends earlier;
/// `None` if it has been taken out, or there was none.
pub(super) fn begun_at<M: Machine>(cell: Cell<M>, stamp: u64) -> Option<Older<M>> {
    let (mut from, mut before) = (cell, u64::MAX);
    loop {
        M::step("older version");
        // Relaxed: as in `end_at`.
        let Link::Copy(copy) = Link::of(older_than(from).load(Ordering::Relaxed)) else { return None };
        let older = Older::find(copy, cell, before)?;
        if stamp_of(older.word) <= stamp {
            return Some(older);
        }
        (from, before) = (copy, stamp_of(older.word));
    }
}

/// Has an older version of a cell that the caller has claimed end at this time, if it ends later.
pub(super) fn shorten<M: Machine>(older: &Older<M>, stamp: u64) {
    if older.end > stamp {
        // Release: as in `put`.
        claim_of(older.cell).store(stamp, Ordering::Release);
    }
}

/// Takes a copy out of the chain behind a record's cell or a copy. The caller has claimed the cell, and nobody gives back either.
fn take_out<M: Machine>(from: Cell<M>, older: &Older<M>) {
    // Relaxed: as above.
    let beyond = match older_than(older.cell).load(Ordering::Relaxed) {
        0 => stamp_of(older.word) << 1 | 1,
        beyond => beyond,
    };
    // Release: pairs with the Acquire of `older_at`: what is beyond.
    older_than(from).store(beyond, Ordering::Release);
    // Release: what was done there; pairs with the exchange of `take`, and with `is_linked`.
    claim_of(older.cell).store(NOBODY, Ordering::Release);
}

/// How many versions of a cell, older than the newest, the chain has that were replaced later than this. Not while transactions run.
pub(super) fn length<M: Machine>(cell: Cell<M>, oldest: u64) -> u64 {
    let (mut from, mut before, mut length) = (cell, u64::MAX, 0);
    // Relaxed: nobody changes it.
    while let Link::Copy(copy) = Link::of(older_than(from).load(Ordering::Relaxed)) {
        match Older::find(copy, cell, before) {
            Some(older) if older.end > oldest => (from, before, length) = (copy, stamp_of(older.word), length + 1),
            _ => break,
        }
    }
    length
}

/// Puts a copy at the head of the chain of a cell that the caller has claimed. It is nobody else's yet, and its word says which version it is.
#[inline(always)]
pub(super) fn put<M: Machine>(copy: Cell<M>, cell: Cell<M>, end: u64, left: u64) {
    // Relaxed, these: the end publishes them.
    older_than(copy).store(older_than(cell).load(Ordering::Relaxed), Ordering::Relaxed);
    owner_of(copy).store(owned_by(cell), Ordering::Relaxed);
    left_of(copy).store(left, Ordering::Relaxed);
    // Release: pairs with the Acquire of `Older::find`.
    claim_of(copy).store(end, Ordering::Release);
    // Release: the copy; pairs with the Acquire of `older_at`.
    older_than(cell).store(copy.value(), Ordering::Release);
}

/// Whether the copy, which the caller has put there, is in its chain still.
pub(super) fn is_linked<M: Machine>(copy: Cell<M>) -> bool {
    // Acquire: pairs with the Release of `take_out`, which has done with it.
    end_of(copy, Ordering::Acquire) != NOBODY
}

/// The time in which the copy was the newest version begins here. It is the caller's.
pub(super) fn begin_of<M: Machine>(copy: Cell<M>) -> u64 {
    // Relaxed: who asks has set it, and has not given the copy back.
    stamp_of(copy.word().load(Ordering::Relaxed))
}

/// Takes a copy, which the caller has put there, out of use, wherever it is linked: nobody needs it. `false` if another works on the chain there.
pub(super) fn take<M: Machine>(copy: Cell<M>) -> bool {
    // Relaxed: looked at again.
    let end = end_of(copy, Ordering::Relaxed);
    // Acquire: pairs with the Release of `prune` and `take_out`. Relaxed in success: `give_back` has the fence.
    match claim_of(copy).compare_exchange(end, NOBODY, Ordering::Relaxed, Ordering::Acquire) {
        Ok(_) | Err(NOBODY) => true,
        Err(_) => false,
    }
}

/// To be called when copies' ends have been set to 0, before their memory is used again.
pub(super) fn give_back<M: Machine>() {
    // Release: the ends come before all that is stored there next; pairs with the Acquire fence of `Older::is_there`.
    M::fence(Ordering::Release);
}

/// Takes those copies out of the chain that this copy is or was in that `keep` does not want, which gets the times between which they were the
/// newest, from the younger to the older; as far as this copy, and further only if it stays, as one more. Not if another has claimed the cell. Of
/// records that may have left their table nobody may ask.
pub(super) fn prune<M: Machine>(own: Cell<M>, mut keep: impl FnMut(u64, u64) -> bool) {
    // Relaxed: it is the caller's copy, which it has put there.
    let owner = !owner_of(own).load(Ordering::Relaxed);
    let Some(first) = NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(owner as usize)) else { return };
    // SAFETY: the cell is in a record of the table, by the caller's promise.
    let cell = unsafe { Cell::<M>::at(first) };
    M::step("prune");
    // Acquire: pairs with the Release of who let it go: the chain is as that one left it.
    if claim_of(cell).compare_exchange(NOBODY, UNSTAMPED, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return;
    }
    let (mut from, mut before) = (None::<Older<M>>, u64::MAX);
    loop {
        // Relaxed: who has claimed the cell changes the links, if the copy is what it was.
        let link = older_than(from.map_or(cell, |older| older.cell)).load(Ordering::Relaxed);
        if from.is_some_and(|older| !older.is_there()) {
            break;
        }
        let Link::Copy(copy) = Link::of(link) else { break };
        let Some(older) = Older::find(copy, cell, before) else { break };
        before = stamp_of(older.word);
        if keep(before, older.end) {
            from = Some(older);
            continue;
        }
        // Pinned, both are what they were, and stay so.
        let pin = |older: &Older<M>| {
            // Acquire: the words are read after it.
            claim_of(older.cell)
                .compare_exchange(older.end, older.end | PINNED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        let release = |older: &Older<M>, end: u64| {
            // Release: what was done there; pairs with the exchange of `take`, and with `is_linked`.
            claim_of(older.cell).store(end, Ordering::Release);
        };
        if !pin(&older) {
            break;
        }
        if from.as_ref().is_some_and(|from| !pin(from)) {
            release(&older, older.end);
            break;
        }
        M::step("take out");
        take_out(from.map_or(cell, |from| from.cell), &older);
        if let Some(from) = &from {
            release(from, from.end);
        }
        if older.cell.address() == own.address() {
            // What is beyond is as it was: its lines may be far away.
            break;
        }
    }
    // Release: as in `Claims::release`.
    claim_of(cell).store(NOBODY, Ordering::Release);
}
