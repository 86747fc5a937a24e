//! The chains of a cell's older versions: finding the one of a time, and taking out those that nobody needs.
//!
//! A cell has two chains, each from the younger versions to the older. What is replaced goes to the *recent* one; what a transaction needs that
//! runs for long goes to the *kept* one, at once or when it is known ([`keep`]). So the recent versions, which are many, and needed for a moment, are
//! reused without a look at the chain that they are in: it is broken there, and who still needs what is older finds that in the kept chain, where what
//! nobody needs is taken out one by one.
//!
//! A link is the address of the next older copy's cell. The recent chain ends in 0, the kept one in an odd number: above the lowest bit the timestamp of
//! the first version, before which there was nothing.
//!
//! A copy says of which cell it is one, and until when it was the newest (its *end*). Of two copies that one
//! memory holds in turn, the ends differ, as they are of different transactions, also where an end has been moved to an earlier time ([`end_at`]). So a reader checks what a link leads to: it looks at the end before it has
//! read the copy and after, and where it finds another cell's copy, a later one, or none, the chain is broken.
//!
//! | who changes | what, and when |
//! | --- | --- |
//! | who has claimed the cell | the links of its chains, and ends, to earlier times |
//! | the worker that replaced a version | gives its memory back, once the copy is out of the kept chain, or nobody can need it; by an exchange of the end for 0 |
//! | who changes a copy's end, or its link | sets [`PINNED`] in its end meanwhile: it stays where it is |

use std::ptr::NonNull;

use contend_engine::{Abort, AbortReason, Cell};
use contend_machine::{Atomic64, Machine, Ordering};

use super::{NOBODY, UNSTAMPED, claim_of, stamp_of};

/// In the end of a copy: somebody works on the chain there.
const PINNED: u64 = 1 << 63;
/// How often a reader begins anew at the record when what it follows is taken out under its hands.
const TRIES: u32 = 8;

/// Where the next older copy of the cell is, of all that were replaced and not kept.
pub(super) fn older_than<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: cells have six words.
    unsafe { cell.meta(3) }
}

/// Where the next older copy of the cell is, of those that are kept.
pub(super) fn kept_before<'a, M: Machine>(cell: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { cell.meta(5) }
}

/// Of a copy: what the transaction that replaced the version has left.
fn left_of<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { copy.meta(2) }
}

/// Of a copy: of which cell, and whether it is kept. Of a record's cell this word is an epoch, which no address is the complement of.
fn owner_of<'a, M: Machine>(copy: Cell<M>) -> &'a M::U64 {
    // SAFETY: as above.
    unsafe { copy.meta(4) }
}

/// In the word that says of which cell a copy is one, which is the complement of an address: it has been in the kept chain.
const KEPT: u64 = 1 << 1;

fn owned_by<M: Machine>(cell: Cell<M>) -> u64 {
    !cell.value() & !KEPT
}

/// The end of a copy: the timestamp of the version that replaced it; 0 if it is in no chain.
#[inline(always)]
fn end_of<M: Machine>(copy: Cell<M>, order: Ordering) -> u64 {
    claim_of(copy).load(order) & !PINNED
}

/// What the kept chain of a cell leads to of which no version was replaced.
pub(super) const UNBORN: u64 = u64::MAX;

/// Which chain: the word of a cell in which its link is.
type Chain<M> = fn(Cell<M>) -> &'static <M as Machine>::U64;

/// What a link leads to.
enum Link<M: Machine> {
    /// This chain says nothing of what is older.
    End,
    /// The first version has this timestamp.
    Birth(u64),
    Copy(Cell<M>),
}

impl<M: Machine> Link<M> {
    fn of(value: u64) -> Self {
        if value & 1 == 1 {
            return Link::Birth(value >> 1);
        }
        // SAFETY: a link is to the cell of a copy in the slabs of this table, where there are cells for as long as the table is there, whatever
        // they are used for.
        let cell = |first| unsafe { Cell::at(first) };
        NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(value as usize))
            .map_or(Link::End, |at| Link::Copy(cell(at)))
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
        let is_of_cell = owner_of(copy).load(Ordering::Relaxed) & !KEPT == owned_by(of);
        let is_one = is_of_cell && stamp_of(word) < end && end <= before;
        is_one.then_some(Older { cell: copy, word, end, left })
    }

    /// Has it stay where it is, until it is released; `false` if it is not what it was any more, or another has it.
    fn pin(&self) -> bool {
        // Acquire: the words are read after it. Relaxed on failure: nothing is.
        claim_of(self.cell).compare_exchange(self.end, self.end | PINNED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Lets go of it; it ends at this time from now on.
    fn release(&self, end: u64) {
        // Release: what was done there; pairs with the exchange of `take`, with `is_linked`, and with the Acquire of `find`.
        claim_of(self.cell).store(end, Ordering::Release);
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
/// It is not there any more.
pub(crate) fn older_at<M: Machine>(cell: Cell<M>, stamp: u64, ignore_gaps: bool) -> Result<Option<Older<M>>, Abort> {
    find_in(older_than, cell, stamp, ignore_gaps)
        .or_else(|| find_in(kept_before, cell, stamp, ignore_gaps))
        .ok_or(Abort::new(AbortReason::VersionCollected))
}

/// The same, in one of the chains; `None` if what is there does not say.
fn find_in<M: Machine>(chain: Chain<M>, cell: Cell<M>, stamp: u64, ignore_gaps: bool) -> Option<Option<Older<M>>> {
    let mut broken_at = 0;
    'again: for _ in 0..TRIES {
        let (mut from, mut before) = (None::<Older<M>>, u64::MAX);
        loop {
            M::step("older version");
            // Acquire: pairs with the Release of `put`, `keep` and `take_out`.
            let link = chain(from.map_or(cell, |older| older.cell)).load(Ordering::Acquire);
            if from.is_some_and(|older| !older.is_there()) {
                continue 'again;
            }
            let copy = match Link::of(link) {
                Link::End => return None,
                Link::Birth(birth) => return (stamp < birth).then_some(None),
                Link::Copy(copy) => copy,
            };
            let Some(older) = Older::find(copy, cell, before) else {
                // It may have been taken out just now, and the link be another.
                if std::mem::replace(&mut broken_at, link) == link {
                    return None;
                }
                continue 'again;
            };
            if stamp_of(older.word) <= stamp {
                if !older.is_there() {
                    continue 'again;
                }
                return (stamp < older.end || ignore_gaps).then_some(Some(older));
            }
            (from, before) = (Some(older), stamp_of(older.word));
        }
    }
    None
}

/// The newest version of a cell that the caller has claimed is replaced: if it is the first, this is known from now on.
#[inline(always)]
pub(super) fn note_birth<M: Machine>(cell: Cell<M>) {
    // Relaxed, all: who has claimed the cell changes them.
    if kept_before(cell).load(Ordering::Relaxed) == UNBORN {
        let begin = stamp_of(cell.word().load(Ordering::Relaxed));
        // Release: as in `put`.
        kept_before(cell).store(begin << 1 | 1, Ordering::Release);
    }
}

/// Has the older versions of a cell that the caller has claimed end at this time: who reads at a later one, and at an earlier one than the newest
/// version's, finds nothing that is right.
pub(super) fn end_at<M: Machine>(cell: Cell<M>, stamp: u64) {
    for chain in [older_than, kept_before] as [Chain<M>; 2] {
        // Relaxed, all of it: who has claimed the cell changes the links.
        while let Link::Copy(copy) = Link::of(chain(cell).load(Ordering::Relaxed)) {
            let Some(older) = Older::find(copy, cell, u64::MAX) else { break };
            M::step("end versions");
            if stamp_of(older.word) <= stamp {
                shorten(&older, stamp);
                break;
            }
            if !older.pin() {
                // It is being reused: there is no way to what is beyond.
                break;
            }
            take_out(chain(cell), chain(copy).load(Ordering::Relaxed), &older);
        }
    }
}

/// The version of a cell that the caller has claimed that was there at this time, which is before that of the newest one, also if it ends earlier;
/// `None` if it is not there any more, or there was none. All versions are there but for the oldest.
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
    if older.end > stamp && older.pin() {
        older.release(stamp);
    }
}

/// Takes a copy, which is pinned, out of the recent or the kept chain of a cell that the caller has claimed: `link` leads to it.
fn take_out<M: Machine>(link: &M::U64, beyond: u64, older: &Older<M>) {
    // Release: pairs with the Acquire of `find_in`: what is beyond.
    link.store(beyond, Ordering::Release);
    older.release(NOBODY);
}

/// How many versions of a cell, older than the newest, the chains have that were replaced later than this. Not while transactions run.
pub(super) fn length<M: Machine>(cell: Cell<M>, oldest: u64) -> u64 {
    let in_chain = |link: Chain<M>, is_counted: fn(Cell<M>) -> bool| {
        let (mut from, mut before, mut length) = (cell, u64::MAX, 0);
        // Relaxed: nobody changes it.
        while let Link::Copy(copy) = Link::of(link(from).load(Ordering::Relaxed)) {
            match Older::find(copy, cell, before) {
                Some(older) if older.end > oldest => (from, before) = (copy, stamp_of(older.word)),
                _ => break,
            }
            length += u64::from(is_counted(copy));
        }
        length
    };
    // What is kept may be in both.
    in_chain(older_than, |copy| !is_kept(copy)) + in_chain(kept_before, |_| true)
}

/// Puts a copy at the head of the recent chain, or of the kept one, of a cell that the caller has claimed. It is nobody else's yet, and its word says
/// which version it is.
#[inline(always)]
pub(super) fn put<M: Machine>(copy: Cell<M>, cell: Cell<M>, end: u64, left: u64, is_kept: bool) {
    let (chain, other) =
        if is_kept { (kept_before as Chain<M>, older_than as Chain<M>) } else { (older_than as _, kept_before as _) };
    // Relaxed, these: the end publishes them.
    chain(copy).store(chain(cell).load(Ordering::Relaxed), Ordering::Relaxed);
    // A link may lead here from when the memory was a copy in that chain.
    other(copy).store(0, Ordering::Relaxed);
    owner_of(copy).store(owned_by(cell) | if is_kept { KEPT } else { 0 }, Ordering::Relaxed);
    left_of(copy).store(left, Ordering::Relaxed);
    // Release: pairs with the Acquire of `Older::find`.
    claim_of(copy).store(end, Ordering::Release);
    // Release: the copy; pairs with the Acquire of `find_in`.
    chain(cell).store(copy.value(), Ordering::Release);
}

/// Whether the copy, which the caller has put there, is in the kept chain, or has been.
pub(super) fn is_kept<M: Machine>(copy: Cell<M>) -> bool {
    // Relaxed: only who has put it there changes it, and asks.
    owner_of(copy).load(Ordering::Relaxed) & KEPT != 0
}

/// Whether nobody has taken the copy, which the caller has put there, out of its chain.
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
    // Acquire: pairs with the Release of `Older::release`. Relaxed in success: `give_back` has the fence.
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

/// Does something with the cell of which this copy, which the caller has put there, is one, unless another has claimed it; `None` then. Of records
/// that may have left their table nobody may ask.
fn with_cell<M: Machine, R>(own: Cell<M>, act: impl FnOnce(Cell<M>) -> R) -> Option<R> {
    // Relaxed: it is the caller's copy, which it has put there.
    let owner = !(owner_of(own).load(Ordering::Relaxed) | KEPT);
    let first = NonNull::new(std::ptr::with_exposed_provenance_mut::<M::U64>(owner as usize))?;
    // SAFETY: the cell is in a record of the table, by the caller's promise.
    let cell = unsafe { Cell::<M>::at(first) };
    // Acquire: pairs with the Release of who let it go: the chain is as that one left it.
    claim_of(cell).compare_exchange(NOBODY, UNSTAMPED, Ordering::Acquire, Ordering::Relaxed).ok()?;
    let done = act(cell);
    // Release: as in `Claims::release`.
    claim_of(cell).store(NOBODY, Ordering::Release);
    Some(done)
}

/// Whether the recent chain of a cell that the caller has claimed leads to this copy.
fn leads_to<M: Machine>(cell: Cell<M>, copy: Cell<M>) -> bool {
    let (mut from, mut before) = (None::<Older<M>>, u64::MAX);
    loop {
        // Relaxed: who has claimed the cell changes the links, if the copy is what it was.
        let link = older_than(from.map_or(cell, |older| older.cell)).load(Ordering::Relaxed);
        if from.is_some_and(|older| !older.is_there()) {
            return false;
        }
        let Link::Copy(next) = Link::of(link) else { return false };
        let Some(older) = Older::find(next, cell, before) else { return false };
        if next.address() == copy.address() {
            return true;
        }
        (from, before) = (Some(older), stamp_of(older.word));
    }
}

/// Has a copy, which the caller has put into the recent chain, be in the kept one as well; or takes it out of use, if nobody can find it any more.
/// `false` if another works there.
pub(super) fn keep<M: Machine>(own: Cell<M>) -> bool {
    M::step("keep version");
    let put_between = |cell: Cell<M>| {
        // If nothing is younger but the newest version, no copy has to be looked at: they are far away.
        // Relaxed, all: the cell is claimed, and has not had it taken out.
        let is_last = older_than(cell).load(Ordering::Relaxed) == own.value()
            && end_of(own, Ordering::Relaxed) == stamp_of(cell.word().load(Ordering::Relaxed));
        if !is_last && !leads_to(cell, own) {
            // Nor may anybody find it again: it may end too late ([`end_at`]).
            // Release: as in `Older::release`.
            claim_of(own).store(NOBODY, Ordering::Release);
            return true;
        }
        let (mut from, mut before, begin) = (None::<Older<M>>, u64::MAX, begin_of(own));
        let (link, beyond) = loop {
            let link = kept_before(from.map_or(cell, |older| older.cell));
            // Relaxed: who has claimed the cell changes the links, if the copy is what it was.
            let beyond = link.load(Ordering::Relaxed);
            match Link::of(beyond) {
                Link::Copy(copy) if !is_last => match Older::find(copy, cell, before) {
                    Some(older) if stamp_of(older.word) > begin => (from, before) = (Some(older), stamp_of(older.word)),
                    _ => break (link, beyond),
                },
                _ => break (link, beyond),
            }
        };
        if from.as_ref().is_some_and(|from| !from.pin()) {
            return false;
        }
        // Relaxed, both: published below.
        kept_before(own).store(beyond, Ordering::Relaxed);
        owner_of(own).store(owned_by(cell) | KEPT, Ordering::Relaxed);
        // Release: pairs with the Acquire of `find_in`.
        link.store(own.value(), Ordering::Release);
        if let Some(from) = &from {
            from.release(from.end);
        }
        true
    };
    is_kept(own) || with_cell(own, put_between) == Some(true)
}

/// Takes those copies out of the kept chain in which this copy is that `keep` does not want (see [`prune_cell`]), if nobody has claimed the cell.
pub(super) fn prune<M: Machine>(own: Cell<M>, keep: impl FnMut(u64, u64) -> bool) {
    with_cell(own, |cell| prune_cell(cell, Some(own), keep));
}

/// Takes those copies out of the kept chain of a cell that the caller has claimed that `keep` does not want, which gets the times between which they
/// were the newest, from the younger to the older; as far as this copy, and further only if it stays.
pub(super) fn prune_cell<M: Machine>(cell: Cell<M>, own: Option<Cell<M>>, mut keep: impl FnMut(u64, u64) -> bool) {
    M::step("prune");
    let (mut from, mut before) = (None::<Older<M>>, u64::MAX);
    loop {
        let link = kept_before(from.map_or(cell, |older| older.cell));
        // Relaxed: who has claimed the cell changes the links, if the copy is what it was.
        let next = link.load(Ordering::Relaxed);
        if from.is_some_and(|older| !older.is_there()) {
            break;
        }
        let Link::Copy(copy) = Link::of(next) else { break };
        let Some(older) = Older::find(copy, cell, before) else { break };
        before = stamp_of(older.word);
        if keep(before, older.end) {
            from = Some(older);
            continue;
        }
        // Pinned, both are what they were, and stay so.
        if !older.pin() {
            break;
        }
        if from.as_ref().is_some_and(|from| !from.pin()) {
            older.release(older.end);
            break;
        }
        M::step("take out");
        // Relaxed: as above.
        take_out(link, kept_before(older.cell).load(Ordering::Relaxed), &older);
        if let Some(from) = &from {
            from.release(from.end);
        }
        if own.is_some_and(|own| older.cell.address() == own.address()) {
            // What is beyond is as it was: its lines may be far away.
            break;
        }
    }
}
