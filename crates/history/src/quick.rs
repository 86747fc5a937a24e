//! A quick proof that a short history is serializable, for callers that have millions of them.
//!
//! [`Quick`] gets the history in words, not in names, and looks for a serial order by running the
//! transactions. A transaction may be next if it finds what it found in the run, and changes
//! nothing that a transaction still to come found as it is. If all have had their turn, the order
//! explains everything. If not, nothing is known: [`check`](crate::check) decides, and says why.

use crate::model::State;

/// The most items, and the most transactions.
const MAX: usize = 64;
/// Items whose number is of no use.
const ITEMS: std::ops::Range<usize> = 0..MAX;

/// A state of an item as a word: the transaction that has left it, and, in the lowest bit, whether
/// there is a row.
type Word = u64;

fn word_of(state: State) -> Option<Word> {
    let by = |id: u64, row: u64| (id < 1 << 63).then_some(id << 1 | row);
    match state {
        State::Version(id) => by(id, 1),
        State::DeletedBy(id) => by(id, 0),
        State::NeverExisted => Some(0),
        State::Absent => None,
    }
}

fn has_row(word: Word) -> bool {
    word & 1 == 1
}

/// What a transaction found, or left, of an item, and the row's value, if it is known.
#[derive(Clone, Copy, Debug)]
struct Fact {
    item: usize,
    word: Word,
    value: Option<u64>,
}

/// A short history to be proved serializable. Its memory serves for the next one.
#[derive(Debug)]
pub struct Quick {
    /// Whether something was told that it has no words for.
    is_lost: bool,
    /// By transaction: the ends of its facts in `found` and in `left`.
    ends: Vec<(usize, usize)>,
    found: Vec<Fact>,
    left: Vec<Fact>,
    /// The transaction whose operations are being added: its number, and the items that it has
    /// found and has left, a bit for each.
    txn: u64,
    has_found: u64,
    has_left: u64,
    /// By item: what that is.
    first: [Word; MAX],
    own: [(Word, Option<u64>); MAX],
    /// By bits: items that had a row at first, and that were named.
    loaded: u64,
    named: u64,
    /// By item: the transactions that have found something of it, by bits.
    finders: [u64; MAX],
}

impl Default for Quick {
    fn default() -> Self {
        Quick {
            is_lost: false,
            ends: Vec::new(),
            found: Vec::new(),
            left: Vec::new(),
            txn: 0,
            has_found: 0,
            has_left: 0,
            first: [0; MAX],
            own: [(0, None); MAX],
            loaded: 0,
            named: 0,
            finders: [0; MAX],
        }
    }
}

/// The positions of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize);
        word &= word.wrapping_sub(1);
        bit
    })
}

impl Quick {
    /// Forgets everything: another history is to come.
    pub fn clear(&mut self) {
        self.ends.clear();
        self.found.clear();
        self.left.clear();
        (self.is_lost, self.loaded, self.named, self.has_left) = (false, 0, 0, 0);
        self.finders = [0; MAX];
    }

    /// What follows is done by the next transaction, of this number: positive, and no other's.
    pub fn transaction(&mut self, txn: u64) {
        self.end();
        self.is_lost |= self.ends.len() >= MAX || txn == 0;
        self.ends.push((self.found.len(), self.left.len()));
        (self.txn, self.has_found, self.has_left) = (txn, 0, 0);
    }

    /// The transaction that was told of has ended.
    fn end(&mut self) {
        for item in bits(self.has_left) {
            let (word, value) = self.own[item];
            self.left.push(Fact { item, word, value });
        }
        self.has_left = 0;
        if let Some(ends) = self.ends.last_mut() {
            *ends = (self.found.len(), self.left.len());
        }
    }

    /// Notes an operation that this proof has no form for: it does not judge the history.
    pub fn give_up(&mut self) {
        self.is_lost = true;
    }

    /// Notes that the transaction read the item of this number, in a scan or by itself. A read of
    /// an item that the transaction had written before may be left out.
    pub fn read(&mut self, item: usize, seen: State, value: Option<u64>) {
        let Some(word) = word_of(seen).filter(|_| ITEMS.contains(&item)) else { return self.give_up() };
        if self.has_left & 1 << item == 0 {
            return self.find(item, word, value);
        }
        let (own, own_value) = self.own[item];
        // Of a key that it has deleted itself, whatever is said of older deletes is as good.
        let agrees = if has_row(own) { word == own } else { !has_row(word) };
        self.is_lost |= !agrees || value.is_some() && own_value.is_some() && value != own_value;
    }

    /// Something that others have left.
    fn find(&mut self, item: usize, word: Word, value: Option<u64>) {
        let bit = 1 << item;
        if self.has_found & bit != 0 && self.first[item] != word {
            return self.give_up();
        }
        self.has_found |= bit;
        self.named |= bit;
        self.first[item] = word;
        self.loaded |= if word == 1 { bit } else { 0 };
        self.finders[item] |= 1_u64.checked_shl(self.ends.len() as u32 - 1).unwrap_or(0);
        self.found.push(Fact { item, word, value });
    }

    /// The transaction wrote the item of this number, or deleted it. `over` is looked at for its
    /// first write of the item.
    pub fn write(&mut self, item: usize, over: State, delete: bool, value: Option<u64>) {
        if !ITEMS.contains(&item) {
            return self.give_up();
        }
        if self.has_left & 1 << item == 0 {
            let Some(word) = word_of(over) else { return self.give_up() };
            self.find(item, word, None);
        }
        // A transaction that leaves the absence that it found has left nothing: that is beyond this
        // proof.
        self.is_lost |= delete && !has_row(self.first[item]);
        self.has_left |= 1 << item;
        self.own[item] = (self.txn << 1 | u64::from(!delete), value);
    }

    /// Whether some serial order explains everything, the final state included: `last` says by whom
    /// the row of an item is in the end, `None` if there is none. If not, there may be such an
    /// order all the same.
    pub fn is_proved(&mut self, mut last: impl FnMut(usize) -> Option<u64>) -> bool {
        self.end();
        if self.is_lost {
            return false;
        }
        let mut now = [(0, None); MAX];
        bits(self.loaded).for_each(|item| now[item].0 = 1);
        let count = self.ends.len();
        let mut rest = if count == MAX { u64::MAX } else { (1 << count) - 1 };
        while rest != 0 {
            let Some(next) = bits(rest).find(|&txn| self.may_be_next(txn, rest, &now)) else { return false };
            let (found, left) = self.facts(next);
            for fact in found {
                match (&mut now[fact.item].1, fact.value) {
                    (Some(now), Some(value)) if *now != value => return false,
                    // The first read of a row of unknown value says what it is.
                    (now @ None, value) => *now = value,
                    _ => {}
                }
            }
            left.iter().for_each(|fact| now[fact.item] = (fact.word, fact.value));
            rest &= !(1 << next);
        }
        bits(self.named).all(|item| last(item) == has_row(now[item].0).then_some(now[item].0 >> 1))
    }

    /// What the transaction has found, and what it has left.
    fn facts(&self, txn: usize) -> (&[Fact], &[Fact]) {
        let from = if txn == 0 { (0, 0) } else { self.ends[txn - 1] };
        (&self.found[from.0..self.ends[txn].0], &self.left[from.1..self.ends[txn].1])
    }

    fn may_be_next(&self, txn: usize, rest: u64, now: &[(Word, Option<u64>); MAX]) -> bool {
        let (found, left) = self.facts(txn);
        let others = rest & !(1 << txn);
        let wants = |other: usize, item: usize| {
            self.facts(other).0.iter().any(|fact| fact.item == item && fact.word == now[item].0)
        };
        found.iter().all(|fact| fact.word == now[fact.item].0)
            && !left.iter().any(|fact| bits(self.finders[fact.item] & others).any(|other| wants(other, fact.item)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// T1 reads x and writes y; T2 reads y and writes x, after or before it.
    fn skew(second_sees: u64) -> bool {
        let mut quick = Quick::default();
        for _ in 0..2 {
            quick.clear();
            quick.transaction(1);
            quick.read(0, State::Version(0), Some(7));
            quick.write(1, State::Version(0), false, Some(8));
            quick.transaction(2);
            quick.read(1, State::Version(second_sees), None);
            quick.write(0, State::Version(0), false, None);
        }
        quick.is_proved(|item| Some([2, 1][item]))
    }

    #[test]
    fn what_has_an_order_is_proved_and_write_skew_is_not() {
        assert!(skew(1));
        assert!(!skew(0));
    }

    #[test]
    fn values_and_final_states_count() {
        let run = |value, last| {
            let mut quick = Quick::default();
            quick.transaction(5);
            quick.write(3, State::NeverExisted, false, Some(1));
            quick.transaction(2);
            quick.read(3, State::Version(5), Some(value));
            quick.is_proved(|_| last)
        };
        assert!(run(1, Some(5)));
        assert!(!run(2, Some(5)), "a value that was never written");
        assert!(!run(1, None) && !run(1, Some(2)), "a row that is lost, or another's");
    }

    #[test]
    fn too_much_is_not_proved() {
        let mut quick = Quick::default();
        (1..=64).for_each(|txn| quick.transaction(txn));
        assert!(quick.is_proved(|_| None));
        quick.transaction(65);
        assert!(!quick.is_proved(|_| None));
        quick.clear();
        quick.transaction(1);
        quick.read(64, State::NeverExisted, None);
        assert!(!quick.is_proved(|_| None));
    }
}
