//! Writes that commute: updates that were applied without a look at what they changed, as additions
//! are.
//!
//! Writes of one item that commute, with no read between them, leave the same row in each order. So
//! they have no order among themselves. A *group* is a longest run of such writes. A transaction
//! that reads or overwrites what the last of them left has seen all of them; a read of a version in
//! the midst ends the group there. The version order (`over`) says which writes belong together,
//! and no more.

use std::collections::{HashMap, HashSet};

use contend_model::Applied;

use crate::model::{History, ItemId, Op, State};

/// An item and the transaction that wrote it.
type Written = (ItemId, u64);

/// Writes that commute with one another.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    /// The transaction that was the first to apply its own, and what that was applied to.
    pub(crate) first: u64,
    pub(crate) base: State,
    /// The transaction that was the last.
    pub(crate) last: u64,
    pub(crate) size: usize,
}

/// The groups of a history.
#[derive(Debug, Default)]
pub(crate) struct Commuting {
    groups: Vec<Group>,
    group_of: HashMap<Written, usize>,
}

impl Commuting {
    pub(crate) fn new(history: &History) -> Self {
        let over = commuting_writes(history);
        if over.is_empty() {
            return Self::default();
        }
        let ended = ended(history, &over);
        // Whose write it was applied to, where both are of one group.
        let before = |&(item, txn): &Written| match over[&(item, txn)] {
            State::Version(before) if over.contains_key(&(item, before)) && !ended.contains(&(item, before)) => {
                Some((item, before))
            }
            _ => None,
        };
        let mut found = Self::default();
        for &write in over.keys() {
            let (mut path, mut on_path) = (vec![], HashSet::new());
            let mut next = Some(write);
            while let Some(write) = next.filter(|write| !found.group_of.contains_key(write)) {
                if !on_path.insert(write) {
                    // Links that run in a circle make no group.
                    path.iter().for_each(|&member| _ = found.begin(member, over[&member]));
                    break;
                }
                path.push(write);
                next = before(&write);
            }
            let known = next.and_then(|write| found.group_of.get(&write).copied());
            let group = match (known, path.last()) {
                (Some(group), _) => group,
                (None, Some(&first)) => found.begin(first, over[&first]),
                (None, None) => continue,
            };
            let members = path.into_iter().filter(|member| !found.group_of.contains_key(member)).collect::<Vec<_>>();
            found.groups[group].size += members.len();
            found.group_of.extend(members.into_iter().map(|member| (member, group)));
        }
        let followed: HashSet<Written> = over.keys().filter_map(before).collect();
        for write in over.keys().filter(|write| !followed.contains(write)) {
            found.groups[found.group_of[write]].last = write.1;
        }
        found
    }

    /// A group of this write, which is the first.
    fn begin(&mut self, (item, txn): Written, base: State) -> usize {
        self.group_of.insert((item, txn), self.groups.len());
        self.groups.push(Group { first: txn, base, last: txn, size: 1 });
        self.groups.len() - 1
    }

    /// The group that the transaction's write of the item belongs to, and its number.
    pub(crate) fn group(&self, item: ItemId, txn: u64) -> Option<(usize, &Group)> {
        let number = *self.group_of.get(&(item, txn))?;
        Some((number, &self.groups[number]))
    }

    /// Whether the transaction's write of the item is one of a group that has begun before.
    pub(crate) fn joins(&self, item: ItemId, txn: u64) -> bool {
        self.group(item, txn).is_some_and(|(_, group)| group.first != txn)
    }
}

/// Returns the commuting writes with the states that they were applied to. An item that the
/// transaction also accessed in another way is left out.
fn commuting_writes(history: &History) -> HashMap<Written, State> {
    let mut writes = HashMap::new();
    let mut others = HashSet::new();
    for transaction in history.transactions() {
        for op in &transaction.ops {
            match *op {
                Op::Write { item, over, applied: Applied::Commuting, .. } => {
                    writes.entry((item, transaction.txn)).or_insert(over);
                }
                Op::Write { item, .. } => _ = others.insert((item, transaction.txn)),
                _ => {}
            }
        }
    }
    writes.retain(|write, _| !others.contains(write));
    writes
}

/// Those of the writes that end a group: somebody has read what they left, or two were applied to
/// it.
fn ended(history: &History, over: &HashMap<Written, State>) -> HashSet<Written> {
    let mut ended = HashSet::new();
    for transaction in history.transactions() {
        let mut saw = |item: ItemId, by: u64| {
            if by != transaction.txn && over.contains_key(&(item, by)) {
                ended.insert((item, by));
            }
        };
        for op in &transaction.ops {
            match op {
                Op::Read { item, seen: State::Version(by), .. } => saw(*item, *by),
                Op::Scan(scan) => scan.seen.iter().for_each(|&(item, by)| saw(item, by)),
                _ => {}
            }
        }
    }
    let mut followed = HashSet::new();
    for (&(item, _), &state) in over {
        if let State::Version(before) = state
            && !followed.insert((item, before))
        {
            ended.insert((item, before));
        }
    }
    ended
}
