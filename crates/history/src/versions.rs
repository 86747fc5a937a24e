//! The version order: for each item, the states it went through.
//!
//! Each committed transaction that wrote an item left one state, its last write; the `over` and
//! `after` of its first write name the state before. These links make chains. A chain that begins
//! with an insert of which it is not known which delete it follows (a *segment*) has no fixed
//! place, except that the chain from the initial state comes first and a segment that ends with a
//! row comes last. If this leaves one order, it is the version order. If not, only what holds in
//! every order is used, so that no anomaly is reported that might not be one.
//!
//! A transaction that inserts a row and deletes it again, or deletes what is not there, leaves the
//! state that it found: it counts as a reader of that state.

use std::cell::Cell;
use std::collections::HashMap;

use crate::commute::Commuting;
use contend_model::Applied;

use crate::model::{History, ItemId, Op, State};

/// A state of an item: a version's number, or an initial state's.
pub(crate) type StateId = u32;

pub(crate) const NONE: u32 = u32::MAX;
/// An insert of which it is not known which delete it follows.
const UNKNOWN: u32 = u32::MAX - 1;
/// A write over a state that no committed transaction left.
const BROKEN: u32 = u32::MAX - 2;
/// Links that run in a circle.
const CIRCLE: u32 = u32::MAX - 3;

/// What one transaction left of one item.
#[derive(Clone, Copy)]
pub(crate) struct Version {
    /// The transaction's number in the history, and its place there.
    pub(crate) id: u64,
    pub(crate) txn: u32,
    pub(crate) item: u32,
    /// The transaction's first and last write of the item.
    pub(crate) first_op: u32,
    pub(crate) last_op: u32,
    /// Whether it left a row.
    pub(crate) live: bool,
    /// Whether the transaction's earlier writes left a row, or none.
    was_live: bool,
    was_dead: bool,
    /// Whether it left the absence that it found.
    leaves_absence: bool,
    /// Whether it commutes with the version before.
    pub(crate) joins: bool,
    /// Whether it is in its place between two versions, and in nobody's sight.
    omitted: bool,
}

/// Links that no version order can satisfy.
pub(crate) enum Conflict {
    /// The version was written over a state that no committed transaction left.
    Unfounded { version: u32 },
    /// The versions were all written over one state (none: over absence).
    Fork { state: Option<StateId>, versions: Vec<u32> },
    /// The version was omitted, and the state that it would have replaced was not replaced, or by a
    /// write that needs to know what was there.
    Lost { version: u32 },
    /// The version was inserted although a row, never deleted, was there.
    InsertOverRow { version: u32, row: StateId },
}

/// What a read of an item says of the version order.
pub(crate) enum Observed {
    /// It saw this state.
    State(StateId),
    /// It saw the absence that the transaction of this version found and left.
    Through(u32),
    /// It saw a state not before `first` and before version `next` (or [`NONE`]).
    Between { first: StateId, next: u32 },
    /// It saw a write of this version's transaction that was not the last.
    Intermediate(u32),
    /// It saw what no committed transaction left.
    Unfounded,
    /// The item's order is in conflict, so nothing follows.
    Nothing,
}

/// When an item had no row.
#[derive(Clone, Copy)]
struct Absence {
    /// The first state without a row.
    first: StateId,
    /// The version that ends the last such state, if any.
    next: u32,
    /// How many such states there are.
    count: u32,
    /// Whether the item's links are free of conflict.
    ordered: bool,
}

/// The states of every item and their order.
pub(crate) struct VersionOrder<'h> {
    history: &'h History,
    versions: Vec<Version>,
    /// By item: where its versions begin.
    offsets: Vec<u32>,
    /// By item: whether the loader put a row there.
    loaded: Vec<bool>,
    /// By version: the state before.
    predecessor: Vec<StateId>,
    /// By state: the version after; of states whose direct successor is not known, one that is
    /// certainly later.
    successor: Vec<u32>,
    /// Further versions over one state.
    forks: HashMap<StateId, Vec<u32>>,
    /// Versions that were omitted, by the state that they would have replaced. In `successor`, the
    /// version after that state is also after them.
    omitted: HashMap<StateId, Vec<u32>>,
    /// States and versions certainly later, beyond `successor`.
    later: Vec<(StateId, u32)>,
    absence: Vec<Absence>,
    pub(crate) conflicts: Vec<Conflict>,
    /// How many items have segments whose order is not known.
    pub(crate) ambiguous_items: usize,
    /// How many steps of work are left to the checker; see [`VersionOrder::spend`].
    work: Cell<u64>,
}

impl<'h> VersionOrder<'h> {
    /// Finds the order, and gives the checker `work` steps.
    pub(crate) fn new(history: &'h History, work: u64) -> Self {
        let (versions, loaded) = collect_versions(history);
        let items = history.item_count();
        let states = versions.len() + 2 * items;
        assert!(states < CIRCLE as usize, "a history has fewer than 2^32 versions");
        let mut offsets = vec![0_u32; items + 1];
        for version in &versions {
            offsets[version.item as usize + 1] += 1;
        }
        for item in 0..items {
            offsets[item + 1] += offsets[item];
        }
        let absence = vec![Absence { first: NONE, next: NONE, count: 0, ordered: true }; items];
        let (predecessor, successor) = (Vec::with_capacity(versions.len()), vec![NONE; states]);
        let (forks, omitted, later, conflicts) = (HashMap::new(), HashMap::new(), Vec::new(), Vec::new());
        #[rustfmt::skip]
        let mut order = Self {
            history, versions, offsets, loaded, predecessor, successor, forks, omitted, later, absence, conflicts,
            ambiguous_items: 0, work: Cell::new(work),
        };
        order.find_predecessors();
        order.skip_empty_writes();
        order.link();
        order.place_omitted();
        order.find_fellows();
        for item in 0..items {
            order.order_item(item);
        }
        order
    }

    /// Takes `steps` from the work that is left; `false` if there is not enough, and from then on.
    ///
    /// Each part of the check whose work is not proportional to the history's size asks here, and
    /// ends when told so. These are scans, which read every key of their range, versions that many
    /// transactions read, and searches for evidence.
    pub(crate) fn spend(&self, steps: usize) -> bool {
        let left = self.work.get().checked_sub(steps as u64);
        self.work.set(left.unwrap_or(0));
        left.is_some_and(|left| left > 0)
    }

    /// Whether the work that was given is used up.
    pub(crate) fn is_spent(&self) -> bool {
        self.work.get() == 0
    }

    /// Lifts the limit: what comes does no more than what was done within it.
    pub(crate) fn unlimit(&self) {
        self.work.set(u64::MAX);
    }

    pub(crate) fn version(&self, version: u32) -> &Version {
        &self.versions[version as usize]
    }

    /// The version that is this state, unless it is an initial state.
    pub(crate) fn written(&self, state: StateId) -> Option<&Version> {
        self.versions.get(state as usize)
    }

    /// What version `id` of the item is, if the transaction committed one.
    pub(crate) fn find(&self, item: usize, id: u64) -> Option<u32> {
        let from = self.offsets[item];
        let versions = &self.versions[from as usize..self.offsets[item + 1] as usize];
        let place = versions.binary_search_by_key(&id, |version| version.id).ok()?;
        Some(from + u32::try_from(place).expect("versions are numbered in 32 bits"))
    }

    /// The versions that come after the state with none between that is in sight (one, unless some
    /// were omitted, or the links are in conflict).
    pub(crate) fn successors(&self, state: StateId) -> impl Iterator<Item = u32> + '_ {
        let more = [&self.forks, &self.omitted].map(|more| if more.is_empty() { None } else { more.get(&state) });
        let first = Some(self.successor[state as usize]).filter(|&version| version != NONE);
        first.into_iter().chain(more.into_iter().flatten().flatten().copied())
    }

    /// The version that is this state, and those before it that it commutes with.
    pub(crate) fn fellows_before(&self, state: StateId) -> impl Iterator<Item = u32> + '_ {
        let last = self.written(state).is_some().then_some(state);
        std::iter::successors(last, |&version| self.version(version).joins.then(|| self.predecessor[version as usize]))
    }

    /// The version, and those after it that it commutes with.
    pub(crate) fn fellows_after(&self, version: u32) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(Some(version), |&version| {
            self.versions.get(self.successor[version as usize] as usize).filter(|next| next.joins)?;
            Some(self.successor[version as usize])
        })
    }

    /// Every pair of a state and a version known to be later, close enough together to imply all
    /// others.
    pub(crate) fn links(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let states = 0..u32::try_from(self.versions.len()).expect("versions are numbered in 32 bits");
        let direct = states.flat_map(|state| self.successors(state).map(move |version| (state, version)));
        direct.chain(self.later.iter().copied().filter(|&(state, _)| self.written(state).is_some()))
    }

    /// Returns the state that the version's writer found, if the version leaves the item as absent
    /// as it was: an insert and a delete in one transaction, for instance.
    pub(crate) fn found_and_left(&self, version: u32) -> Option<Observed> {
        let Version { leaves_absence, item, .. } = *self.version(version);
        leaves_absence.then(|| match self.predecessor[version as usize] {
            UNKNOWN => self.observe(item as usize, State::Absent),
            state => Observed::State(state),
        })
    }

    /// What it says of the version order to have seen `state`, a state other than the reader's own.
    pub(crate) fn observe(&self, item: usize, state: State) -> Observed {
        let seen = |id: u64, live: bool| match self.find(item, id) {
            Some(version) if self.version(version).omitted => Observed::Unfounded,
            Some(version) if self.version(version).leaves_absence && !live => Observed::Through(version),
            Some(version) if self.version(version).live == live => Observed::State(version),
            Some(version) if self.wrote_once(version, live) => Observed::Intermediate(version),
            _ => Observed::Unfounded,
        };
        match state {
            State::Version(0) => Observed::State(self.initial(item)),
            State::Version(id) => seen(id, true),
            State::NeverExisted | State::DeletedBy(0) if self.loaded[item] => Observed::Unfounded,
            State::NeverExisted | State::DeletedBy(0) => Observed::State(self.initial(item)),
            State::DeletedBy(id) => seen(id, false),
            State::Absent => match self.absence[item] {
                Absence { ordered: false, .. } => Observed::Nothing,
                Absence { count: 0, .. } => Observed::Unfounded,
                Absence { count: 1, first, .. } => Observed::State(first),
                Absence { first, next, .. } => Observed::Between { first, next },
            },
        }
    }

    /// Returns the first version whose transaction had deleted the row before it wrote it again, if
    /// there is one of another transaction than `reader`.
    pub(crate) fn deleted_meanwhile(&self, item: usize, reader: u32) -> Option<u32> {
        (self.offsets[item]..self.offsets[item + 1]).find(|&version| {
            let version = self.version(version);
            version.was_dead && version.live && version.txn != reader
        })
    }

    /// As [`VersionOrder::observe`] of absence, by a transaction that also saw (or wrote over)
    /// state `anchor` of the item.
    ///
    /// If the anchor has a row, then in no serial order can one transaction see both. It is taken
    /// to have seen the absence before the anchor. A cycle with one anti-dependency follows; from
    /// the absence after the anchor one would follow as well.
    pub(crate) fn observe_absence_near(&self, item: usize, anchor: StateId) -> Observed {
        let mut state = anchor;
        while self.is_live(state) {
            if !self.spend(1) {
                return Observed::Nothing;
            }
            match self.predecessor.get(state as usize) {
                None | Some(&BROKEN) => return self.observe(item, State::Absent),
                Some(&UNKNOWN) => return Observed::Between { first: self.absence[item].first, next: state },
                Some(&before) => state = before,
            }
        }
        Observed::State(state)
    }

    /// By version: its place among the item's versions; [`NONE`] where that is not certain.
    pub(crate) fn positions(&self) -> Vec<u32> {
        let mut positions = vec![NONE; self.versions.len()];
        for item in (0..self.loaded.len()).filter(|&item| self.absence[item].ordered) {
            let after = |&state: &StateId| Some(self.successor[state as usize]).filter(|&next| next != NONE);
            for (position, version) in (0..).zip(std::iter::successors(Some(self.initial(item)), after).skip(1)) {
                positions[version as usize] = position;
            }
        }
        positions
    }

    /// What a transaction wrote over, if it wrote the item and that is known.
    pub(crate) fn overwritten_by(&self, item: usize, id: u64) -> Option<StateId> {
        self.find(item, id).map(|version| self.predecessor[version as usize]).filter(|&state| state < BROKEN)
    }

    /// Whether the state has a row.
    pub(crate) fn is_live(&self, state: StateId) -> bool {
        match self.written(state) {
            Some(version) => version.live,
            // The loaded states come before the states of keys that never existed.
            None => (state as usize) < self.versions.len() + self.loaded.len(),
        }
    }

    /// The state of the item at first.
    fn initial(&self, item: usize) -> StateId {
        let offset = if self.loaded[item] { item } else { self.loaded.len() + item };
        u32::try_from(self.versions.len() + offset).expect("states are numbered in 32 bits")
    }

    /// Whether the version's transaction at some time left the item with (without) a row.
    fn wrote_once(&self, version: u32, live: bool) -> bool {
        let Version { was_live, was_dead, .. } = *self.version(version);
        if live { was_live } else { was_dead }
    }

    fn find_predecessors(&mut self) {
        for (index, version) in (0_u32..).zip(&self.versions) {
            let item = version.item as usize;
            let ops = &self.history.transactions()[version.txn as usize].ops;
            let Op::Write { over, .. } = ops[version.first_op as usize] else { unreachable!("a version is a write") };
            let of = |id, must_be_dead: bool| match self.find(item, id) {
                Some(other) if self.version(other).omitted || version.omitted && !self.version(other).live => BROKEN,
                Some(other) if other != index && !(must_be_dead && self.version(other).live) => other,
                _ => BROKEN,
            };
            let before = match over {
                State::Version(0) => self.initial(item),
                // Some systems call an insert over a deleted version a write over it.
                State::Version(id) => of(id, false),
                State::NeverExisted | State::DeletedBy(0) if self.loaded[item] => BROKEN,
                State::NeverExisted | State::DeletedBy(0) => self.initial(item),
                State::DeletedBy(id) => of(id, true),
                State::Absent => UNKNOWN,
            };
            if before == BROKEN {
                self.conflicts.push(Conflict::Unfounded { version: index });
                self.absence[item].ordered = false;
            }
            self.predecessor.push(before);
        }
    }

    /// Marks the versions that leave the absence they found, and links what names them to what they
    /// found instead.
    fn skip_empty_writes(&mut self) {
        for index in 0..self.versions.len() {
            let before = self.predecessor[index];
            let found_absence = before == UNKNOWN || (before < BROKEN && !self.is_live(before));
            self.versions[index].leaves_absence = !self.versions[index].live && found_absence;
        }
        // By version that leaves absence: what a walk back from it ends at, if one has passed it;
        // and the last walk that has.
        let mut ends = vec![NONE; self.versions.len()];
        let mut walked = vec![NONE; self.versions.len()];
        let mut path = Vec::new();
        for index in 0..self.versions.len() {
            let mut before = self.predecessor[index];
            if self.written(before).is_some_and(|version| version.leaves_absence) {
                let version = u32::try_from(index).expect("versions are numbered in 32 bits");
                self.later.push((before, version));
            }
            let own = u32::try_from(index).expect("versions are numbered in 32 bits");
            path.clear();
            let mut is_circular = false;
            while let Some(item) =
                self.written(before).filter(|version| version.leaves_absence).map(|v| v.item as usize)
            {
                let passed = before as usize;
                is_circular = before == own || walked[passed] == own || ends[passed] == CIRCLE;
                if is_circular {
                    self.conflicts.push(Conflict::Unfounded { version: own });
                    self.absence[item].ordered = false;
                    break;
                }
                walked[passed] = own;
                path.push(passed);
                before = if ends[passed] == NONE { self.predecessor[passed] } else { ends[passed] };
            }
            // A circle that this version is part of is broken here; another one is, when it is the
            // turn of one of its own.
            let end = match is_circular {
                true if before == own => BROKEN,
                true => CIRCLE,
                false => before,
            };
            before = if is_circular { BROKEN } else { before };
            path.iter().for_each(|&passed| ends[passed] = end);
            self.predecessor[index] = before;
        }
        for index in 0..self.versions.len() {
            if self.predecessor[index] == BROKEN {
                self.versions[index].leaves_absence = false;
            }
        }
    }

    fn link(&mut self) {
        for index in 0..self.versions.len() {
            let (before, version) = (self.predecessor[index], self.versions[index]);
            if version.leaves_absence || before >= BROKEN {
                continue;
            }
            let index = u32::try_from(index).expect("versions are numbered in 32 bits");
            if version.omitted {
                self.omitted.entry(before).or_default().push(index);
            } else if self.successor[before as usize] == NONE {
                self.successor[before as usize] = index;
            } else {
                self.absence[version.item as usize].ordered = false;
                self.forks.entry(before).or_default().push(index);
            }
        }
        let mut forks: Vec<_> = self.forks.iter().collect();
        forks.sort_unstable_by_key(|fork| fork.0);
        for (&state, others) in forks {
            let versions = [&[self.successor[state as usize]], others.as_slice()].concat();
            self.conflicts.push(Conflict::Fork { state: Some(state), versions });
        }
    }

    /// Finds what comes after the versions that were omitted.
    fn place_omitted(&mut self) {
        let mut omitted: Vec<_> =
            self.omitted.iter().flat_map(|(&state, all)| all.iter().map(move |&v| (v, state))).collect();
        omitted.sort_unstable();
        for (version, state) in omitted {
            let next = self.successor[state as usize];
            self.successor[version as usize] = next;
            let is_replaced = self.written(next).is_some_and(|next| {
                let op = &self.history.transactions()[next.txn as usize].ops[next.first_op as usize];
                !matches!(op, Op::Write { applied: Applied::Commuting, .. })
            });
            if !is_replaced {
                self.conflicts.push(Conflict::Lost { version });
            }
        }
    }

    /// Notes which versions commute with those before them.
    fn find_fellows(&mut self) {
        let commuting = Commuting::new(self.history);
        for version in &mut self.versions {
            version.joins = commuting.joins(ItemId::from_index(version.item as usize), version.id);
        }
    }

    /// Puts the item's segments in order, as far as they have one, and notes when it had no row.
    fn order_item(&mut self, item: usize) {
        if !self.absence[item].ordered {
            return;
        }
        let versions = self.offsets[item]..self.offsets[item + 1];
        let root = self.chain(self.initial(item));
        let mut segments = Vec::new();
        let mut total = 0;
        for version in versions {
            if self.version(version).leaves_absence || self.version(version).omitted {
                continue;
            }
            total += 1;
            if self.predecessor[version as usize] == UNKNOWN {
                segments.push(self.chain(version));
            }
        }
        let covered = root.versions + segments.iter().map(|segment| segment.versions).sum::<u32>();
        // What no chain reaches runs in a circle, which the checker finds as a cycle of
        // write-dependencies.
        let mut ordered = covered == total;
        if self.is_live(root.last) {
            for segment in &segments {
                self.conflicts.push(Conflict::InsertOverRow { version: segment.first, row: root.last });
            }
            ordered &= segments.is_empty();
        }
        let (with_row, without_row): (Vec<Chain>, Vec<Chain>) =
            segments.into_iter().partition(|segment| self.is_live(segment.last));
        if ordered && with_row.len() > 1 {
            let versions = with_row.iter().map(|segment| segment.first).collect();
            self.conflicts.push(Conflict::Fork { state: None, versions });
            ordered = false;
        }
        self.absence[item] = if !ordered {
            Absence { first: NONE, next: NONE, count: 0, ordered }
        } else if without_row.len() > 1 {
            self.order_loosely(root, &without_row, with_row.first())
        } else {
            self.join(root, without_row.iter().chain(&with_row))
        };
    }

    /// Only one order is left: the segments follow the root in this order.
    fn join<'s>(&mut self, root: Chain, segments: impl Iterator<Item = &'s Chain>) -> Absence {
        let mut all = root;
        for segment in segments {
            self.successor[all.last as usize] = segment.first;
            self.predecessor[segment.first as usize] = all.last;
            all.first_absent = if all.absent > 0 { all.first_absent } else { segment.first_absent };
            all.last_absent = if segment.absent > 0 { segment.last_absent } else { all.last_absent };
            all.absent += segment.absent;
            all.last = segment.last;
        }
        let next = if all.absent > 0 { self.successor[all.last_absent as usize] } else { NONE };
        Absence { first: all.first_absent, next, count: all.absent, ordered: true }
    }

    /// Several orders are left: of the segments `middle` nothing is known but that they lie between
    /// `root` and `last`.
    fn order_loosely(&mut self, root: Chain, middle: &[Chain], last: Option<&Chain>) -> Absence {
        self.ambiguous_items += 1;
        self.later.extend(middle.iter().map(|segment| (root.last, segment.first)));
        let mut next = NONE;
        if let Some(last) = last {
            for before in middle.iter().chain([&root]) {
                self.successor[before.last as usize] = last.first;
            }
            next = if last.absent > 0 { self.successor[last.last_absent as usize] } else { last.first };
        }
        // The root ends without a row, or there could be no other segment.
        let count = root.absent + middle.iter().chain(last).map(|segment| segment.absent).sum::<u32>();
        Absence { first: root.first_absent, next, count, ordered: true }
    }

    fn chain(&self, first: StateId) -> Chain {
        let mut chain = Chain { first, last: first, versions: 0, first_absent: NONE, last_absent: NONE, absent: 0 };
        let mut state = first;
        while state != NONE {
            chain.last = state;
            chain.versions += u32::from(self.written(state).is_some());
            if !self.is_live(state) {
                chain.first_absent = if chain.absent == 0 { state } else { chain.first_absent };
                chain.last_absent = state;
                chain.absent += 1;
            }
            state = self.successor[state as usize];
        }
        chain
    }
}

/// States that follow one another, and which of them have no row.
#[derive(Clone, Copy)]
struct Chain {
    first: StateId,
    last: StateId,
    versions: u32,
    first_absent: StateId,
    last_absent: StateId,
    absent: u32,
}

/// What each transaction left of each item, by item and transaction; and by item, whether version 0
/// was there.
fn collect_versions(history: &History) -> (Vec<Version>, Vec<bool>) {
    let items = history.item_count();
    let mut loaded = vec![false; items];
    let unseen = history.omitted();
    let mut versions: Vec<Version> = Vec::new();
    // By item: its latest version; it is the current transaction's if its `txn` is.
    let mut latest = vec![NONE; items];
    for (txn, transaction) in (0_u32..).zip(history.transactions()) {
        for (op, operation) in (0_u32..).zip(&transaction.ops) {
            match operation {
                Op::Read { item, seen, .. } => loaded[item.index()] |= *seen == State::Version(0),
                Op::Scan(scan) => scan.seen.iter().for_each(|&(item, by)| loaded[item.index()] |= by == 0),
                Op::Write { item, over, delete, .. } => {
                    let index = item.index();
                    if let Some(version) = versions.get_mut(latest[index] as usize).filter(|v| v.txn == txn) {
                        version.last_op = op;
                        version.was_live |= version.live;
                        version.was_dead |= !version.live;
                        version.live = !delete;
                        continue;
                    }
                    loaded[index] |= *over == State::Version(0);
                    latest[index] = u32::try_from(versions.len()).expect("a history has fewer than 2^32 versions");
                    let item = u32::try_from(index).expect("items are numbered in 32 bits");
                    let (id, live) = (transaction.txn, !delete);
                    let (first_op, last_op) = (op, op);
                    let omitted = unseen.contains(&(ItemId::from_index(index), id));
                    #[rustfmt::skip]
                    versions.push(Version {
                        id, txn, item, first_op, last_op, live, omitted,
                        was_live: false, was_dead: false, leaves_absence: false, joins: false,
                    });
                }
            }
        }
    }
    versions.sort_unstable_by_key(|version| (version.item, version.id));
    (versions, loaded)
}
