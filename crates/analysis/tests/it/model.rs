//! The rank rule of IC3 on an abstract model: random transactions of pieces with ranks, which
//! commit in random order.
//!
//! A transaction commits a piece of rank `k` when each of its direct predecessors has ended, or has
//! committed a piece of rank `k` or higher. It commits when all its predecessors have ended. The
//! model checks that a transaction can always go on, that the committed ones have an order, and
//! that none of them has seen a write that was taken back. Each broken rule has to fail. So it says
//! which part of the rule excludes what.

use std::collections::BTreeSet;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

/// A deliberate fault of the rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    /// The last accessor alone is a predecessor, not all readers since the last writer.
    LastAccessorOnly,
    /// A transaction that has no piece of this rank or a lower one left counts as past it.
    NothingLeftIsPast,
    /// A piece does not wait.
    NoPieceWait,
    /// A commit does not wait.
    NoCommitWait,
    /// Readers leave no entry.
    ForgetReads,
    /// An abort dooms nobody.
    DoomNobody,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Serializable,
    StandsStill,
    Cycle,
    /// A committed transaction has seen a write that was taken back.
    DirtyRead,
}

const RANKS: usize = 4;
const RECORDS: usize = 2;

/// An access of a piece: the record of the piece's rank, and whether it is written.
type RecordAccess = (usize, bool);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Doomed,
    Committed,
    Aborted,
}

struct Transaction {
    /// Its pieces: the rank, and the accesses.
    pieces: Vec<(usize, Vec<RecordAccess>)>,
    /// Pieces that have committed.
    done: usize,
    /// The number of pieces after which the application cancels it.
    cancels_after: Option<usize>,
    state: State,
    /// Its direct predecessors, as the rule finds them.
    before: BTreeSet<usize>,
    /// The running writers whose values it has seen, whatever the rule finds.
    saw: BTreeSet<usize>,
}

/// An accessor of a record: the transaction, and whether it writes.
type Entry = (usize, bool);

struct Model {
    all: Vec<Transaction>,
    /// The entries that the rule looks at, by rank and record, the oldest first.
    lists: Vec<[Vec<Entry>; RECORDS]>,
    /// All accesses that were not taken back.
    truth: Vec<[Vec<Entry>; RECORDS]>,
    broken: Option<Broken>,
}

impl Transaction {
    fn draw(random: &mut SmallRng, cancels: bool) -> Self {
        let mut pieces = Vec::new();
        for rank in (1..=RANKS).filter(|_| random.random_bool(0.7)).collect::<Vec<_>>() {
            let records: Vec<usize> = (0..RECORDS).filter(|_| random.random_bool(0.6)).collect();
            pieces.push((rank, records.into_iter().map(|record| (record, random.random_bool(0.5))).collect()));
        }
        let cancels_after = (cancels && random.random_bool(0.3)).then(|| random.random_range(0..=pieces.len()));
        let (before, saw) = (BTreeSet::new(), BTreeSet::new());
        Transaction { pieces, done: 0, cancels_after, state: State::Running, before, saw }
    }

    /// Whether it has committed a piece of this rank or a higher one.
    fn has_reached(&self, rank: usize) -> bool {
        self.done > 0 && self.pieces[self.done - 1].0 >= rank
    }

    fn has_ended(&self) -> bool {
        matches!(self.state, State::Committed | State::Aborted)
    }
}

impl Model {
    fn draw(random: &mut SmallRng, broken: Option<Broken>, cancels: bool) -> Self {
        let count = random.random_range(2..=5);
        let all = (0..count).map(|_| Transaction::draw(random, cancels)).collect();
        let lists = || (0..=RANKS).map(|_| [const { Vec::new() }; RECORDS]).collect();
        Model { all, lists: lists(), truth: lists(), broken }
    }

    fn is_broken(&self, by: Broken) -> bool {
        self.broken == Some(by)
    }

    fn is_past(&self, txn: usize, rank: usize) -> bool {
        let other = &self.all[txn];
        let nothing_left = other.pieces[other.done..].iter().all(|(own, _)| *own > rank);
        other.has_ended() || other.has_reached(rank) || nothing_left && self.is_broken(Broken::NothingLeftIsPast)
    }

    /// Lets a transaction take its next step, if the rule allows one. Returns whether it took one.
    fn step(&mut self, txn: usize) -> bool {
        let own = &self.all[txn];
        let all_before = |holds: &dyn Fn(usize) -> bool| own.before.iter().all(|other| holds(*other));
        match own.pieces.get(own.done).map(|(rank, _)| *rank) {
            _ if own.has_ended() => return false,
            _ if own.state == State::Doomed || own.cancels_after == Some(own.done) => self.abort(txn),
            None if all_before(&|other| self.all[other].has_ended()) || self.is_broken(Broken::NoCommitWait) => {
                self.all[txn].state = State::Committed;
            }
            Some(rank) if all_before(&|other| self.is_past(other, rank)) || self.is_broken(Broken::NoPieceWait) => {
                self.commit_piece(txn);
            }
            _ => return false,
        }
        true
    }

    fn commit_piece(&mut self, txn: usize) {
        let (rank, accesses) = self.all[txn].pieces[self.all[txn].done].clone();
        for (record, writes) in accesses {
            let mut before = Vec::new();
            for &(other, other_writes) in self.lists[rank][record].iter().rev() {
                if writes || other_writes {
                    before.push(other);
                }
                if other_writes || self.is_broken(Broken::LastAccessorOnly) {
                    break;
                }
            }
            let newest = self.truth[rank][record].iter().rfind(|(_, writes)| *writes).map(|(other, _)| *other);
            let seen = newest.filter(|other| !self.all[*other].has_ended());
            self.all[txn].saw.extend(seen);
            self.all[txn].before.extend(before);
            self.truth[rank][record].push((txn, writes));
            if writes || !self.is_broken(Broken::ForgetReads) {
                self.lists[rank][record].push((txn, writes));
            }
        }
        self.all[txn].done += 1;
    }

    /// Takes a transaction back, and dooms all that stand behind one of its writes.
    fn abort(&mut self, txn: usize) {
        self.all[txn].state = State::Aborted;
        let mut doomed = BTreeSet::new();
        for list in self.lists.iter().flatten() {
            if let Some(own) = list.iter().position(|entry| *entry == (txn, true)) {
                doomed.extend(list[own + 1..].iter().map(|(other, _)| *other));
            }
        }
        for list in self.lists.iter_mut().chain(&mut self.truth).flatten() {
            list.retain(|(other, _)| *other != txn);
        }
        if self.is_broken(Broken::DoomNobody) {
            return;
        }
        for other in doomed {
            if self.all[other].state == State::Running {
                self.all[other].state = State::Doomed;
            }
        }
    }

    fn run(mut self, random: &mut SmallRng) -> Outcome {
        let mut order: Vec<usize> = (0..self.all.len()).collect();
        while self.all.iter().any(|own| !own.has_ended()) {
            order.shuffle(random);
            if !order.iter().any(|txn| self.step(*txn)) {
                return Outcome::StandsStill;
            }
        }
        self.judge()
    }

    /// Judges the committed transactions: those that aborted have left no access.
    fn judge(&self) -> Outcome {
        let is_aborted = |txn: &usize| self.all[*txn].state == State::Aborted;
        let committed = || self.all.iter().filter(|own| own.state == State::Committed);
        if committed().any(|own| own.saw.iter().any(is_aborted)) {
            return Outcome::DirtyRead;
        }
        let mut edges = BTreeSet::new();
        for list in self.truth.iter().flatten() {
            for (at, (after, writes)) in list.iter().enumerate() {
                let before = list[..at].iter().filter(|(_, other_writes)| *writes || *other_writes);
                edges.extend(before.map(|(before, _)| (*before, *after)));
            }
        }
        let mut left: BTreeSet<usize> = (0..self.all.len()).collect();
        while let Some(first) = left.iter().copied().find(|one| !left.iter().any(|from| edges.contains(&(*from, *one))))
        {
            left.remove(&first);
        }
        if left.is_empty() { Outcome::Serializable } else { Outcome::Cycle }
    }
}

/// Returns the outcomes of this many runs that were not serializable.
fn failures(runs: u64, broken: Option<Broken>, cancels: bool) -> Vec<Outcome> {
    let run = |seed| {
        let random = &mut SmallRng::seed_from_u64(seed);
        Model::draw(random, broken, cancels).run(random)
    };
    (0..runs).map(run).filter(|outcome| *outcome != Outcome::Serializable).collect()
}

#[test]
fn the_rank_rule_orders_all_and_never_stands_still() {
    assert_eq!(failures(40_000, None, false), []);
    assert_eq!(failures(40_000, None, true), []);
}

#[test]
fn every_part_of_the_rule_is_needed() {
    for (broken, cancels, shows) in [
        (Broken::LastAccessorOnly, false, Outcome::Cycle),
        (Broken::NothingLeftIsPast, false, Outcome::StandsStill),
        (Broken::NoPieceWait, false, Outcome::StandsStill),
        (Broken::NoCommitWait, false, Outcome::Cycle),
        (Broken::ForgetReads, false, Outcome::Cycle),
        (Broken::DoomNobody, true, Outcome::DirtyRead),
    ] {
        let found = failures(40_000, Some(broken), cancels);
        let count = found.iter().filter(|outcome| **outcome == shows).count();
        println!("{broken:?}: {count} of 40000 runs end by {shows:?}, {} fail in all", found.len());
        assert!(count > 0, "{broken:?} does not lead to {shows:?}");
    }
}
