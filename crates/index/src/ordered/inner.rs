//! An inner node: its first line, the separators by columns, and the children.
//!
//! A node with `n` separators has `n + 1` children; child `i` covers the keys from separator
//! `i - 1` (inclusive) to separator `i` (exclusive).
//!
//! **Two searches.** One compares all separators at once, if the machine can. Its lines are asked
//! for together, so it takes the shortest time. The other one compares one line of separators. So
//! it reads three lines of a node, where keys have one word. It is the right one for a batch, whose
//! misses overlap. *Pivots* in the node's first line tell which line to compare. A pivot is the
//! first word of the first separator of a line, and the first line of separators needs none.

use std::marker::PhantomData;
use std::ops::Deref;

use contend_machine::{Atomic64, Machine, Ordering};

use super::node::{self, HEADER, Node, OWN};
use super::search::{count_le, count_le_at_once, count_le_pivots};
use crate::{Key, KeyWords, MAX_KEY_WORDS};

/// Words of a line.
const LINE: usize = 8;
const PIVOTS: usize = HEADER - OWN;

/// An inner node of an index that lives for `'a`, with room for `I` children.
#[derive(Clone, Copy)]
pub(super) struct InnerNode<'a, M: Machine, K: Key, const I: usize> {
    node: Node<'a, M>,
    key: PhantomData<K>,
}

impl<M: Machine, K: Key, const I: usize> PartialEq for InnerNode<'_, M, K, I> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.node == other.node
    }
}

impl<'a, M: Machine, K: Key, const I: usize> Deref for InnerNode<'a, M, K, I> {
    type Target = Node<'a, M>;

    #[inline(always)]
    fn deref(&self) -> &Node<'a, M> {
        &self.node
    }
}

impl<'a, M: Machine, K: Key, const I: usize> InnerNode<'a, M, K, I> {
    /// Words of a column: whole lines.
    const COLUMN: usize = I.next_multiple_of(LINE);
    const FITS: () = assert!(Self::COLUMN <= LINE * (PIVOTS + 1), "a line of separators has no pivot");
    const FIRST_CHILD: usize = HEADER + K::WORDS * Self::COLUMN;
    /// Words of a node.
    pub(super) const WORDS: usize = Self::FIRST_CHILD + Self::COLUMN;
    /// The words that a search reads, those of the children apart.
    pub(super) const SEARCHED: usize = Self::FIRST_CHILD;

    /// # Safety
    /// As for [`Node::new`]; and there are [`InnerNode::WORDS`] words.
    #[inline(always)]
    pub(super) unsafe fn new(words: *mut M::U64) -> Self {
        const { Self::FITS };
        // SAFETY: by the caller's promise.
        InnerNode { node: unsafe { Node::new(words) }, key: PhantomData }
    }

    /// Returns column `i` of the separators.
    #[inline(always)]
    fn column(self, i: usize) -> &'a [M::U64; I] {
        assert!(i < K::WORDS);
        // SAFETY: the column is inside the node.
        unsafe { self.span(HEADER + i * Self::COLUMN) }
    }

    /// Returns the words of the first column, those behind the last separator included.
    #[inline(always)]
    fn first_column(self) -> &'a [M::U64] {
        // SAFETY: the column's words are in the node, by the contract of `new`, and live for `'a`.
        unsafe { std::slice::from_raw_parts(self.words().add(HEADER), Self::COLUMN) }
    }

    /// Returns line `line` of the first column.
    #[inline(always)]
    fn line(self, line: usize) -> &'a [M::U64; LINE] {
        &self.first_column().as_chunks().0[line]
    }

    #[inline(always)]
    fn children(self) -> &'a [M::U64; I] {
        // SAFETY: the column is inside the node.
        unsafe { self.span(Self::FIRST_CHILD) }
    }

    /// Returns the number of separators, at most `I - 1` whatever the reader finds.
    #[inline(always)]
    pub(super) fn separators(self) -> usize {
        // Cut, so that the compiler sees that no index leaves the node.
        self.count().min(I - 1)
    }

    #[inline(always)]
    pub(super) fn key(self, i: usize) -> KeyWords {
        let mut key = [0; MAX_KEY_WORDS];
        for (column, word) in key.iter_mut().enumerate().take(K::WORDS) {
            // Relaxed: as in `Node::count`. Another key may be written between the loads of two
            // words, and then `is_at` fails.
            *word = self.column(column)[i].load(Ordering::Relaxed);
        }
        key
    }

    /// Returns the line of the first column in which the search for `word` goes on: by the first
    /// line of the node alone.
    #[inline(always)]
    pub(super) fn line_of(self, word: u64) -> usize {
        let last = if M::LOADS_ARE_COSTLY { self.separators().saturating_sub(1) } else { Self::COLUMN - 1 };
        count_le_pivots::<M>(self.header(), last / LINE, word)
    }

    /// Returns the number of the first words of the separators that are `<= word`, from the line
    /// that [`InnerNode::line_of`] returns.
    #[inline(always)]
    fn first_words_le_in(self, line: usize, word: u64) -> usize {
        let before = line * LINE;
        let words = if M::LOADS_ARE_COSTLY { self.separators().saturating_sub(before).min(LINE) } else { LINE };
        let rank = before + count_le::<M>(self.line(line), words, word);
        // Behind the last separator the words are the largest there are, and `word` may be that.
        rank.min(self.separators())
    }

    /// Returns the number of the first words of the separators that are `<= word`, from all lines
    /// at once if the machine can.
    #[inline(always)]
    fn first_words_le(self, word: u64) -> usize {
        if let Some(rank) = count_le_at_once::<M>(self.first_column(), word) {
            return rank.min(self.separators());
        }
        self.first_words_le_in(self.line_of(word), word)
    }

    /// Returns the number of separators that are `<= key`: the child that covers `key`.
    #[inline(always)]
    pub(super) fn rank(self, key: &KeyWords) -> usize {
        self.rank_among(key, self.first_words_le(key[0]))
    }

    /// As [`InnerNode::rank`], from the line that [`InnerNode::line_of`] returns for the key's
    /// first word.
    #[inline(always)]
    pub(super) fn rank_in(self, line: usize, key: &KeyWords) -> usize {
        self.rank_among(key, self.first_words_le_in(line, key[0]))
    }

    /// Returns the number of separators that are `<= key`, given that of those whose first word is
    /// not above the key's.
    #[inline(always)]
    fn rank_among(self, key: &KeyWords, not_above: usize) -> usize {
        if K::WORDS == 1 {
            return not_above;
        }
        // The separators that agree with `key` in the words so far are `low..high`. The bounds meet
        // if another thread interferes.
        let mut high = not_above;
        let mut low = if key[0] == 0 { 0 } else { self.first_words_le(key[0] - 1).min(high) };
        for (column, &word) in key.iter().enumerate().take(K::WORDS).skip(1) {
            if low == high {
                break;
            }
            let words = &self.column(column)[low..high];
            let not_above = count_le::<M>(words, words.len(), word);
            if column + 1 == K::WORDS {
                return low + not_above;
            }
            let below = if word == 0 { 0 } else { count_le::<M>(words, words.len(), word - 1) };
            (low, high) = (low + below, low + not_above.max(below));
        }
        low
    }

    /// Returns the address of the child in `slot`. It is arbitrary unless the node is validated
    /// afterwards: it may be of a change under way, or, in a slot beyond the count, of a child that
    /// has left the node long ago. After the validation it leads to a node of the right kind.
    #[inline(always)]
    pub(super) fn child(self, slot: usize) -> *mut M::U64 {
        // Relaxed: as in `Node::count`.
        std::ptr::with_exposed_provenance_mut(self.children()[slot].load(Ordering::Relaxed) as usize)
    }

    /// Prefetches the line of the child in `slot`.
    #[inline(always)]
    pub(super) fn prefetch_child(self, slot: usize) {
        M::prefetch(&self.children()[slot]);
    }

    /// Prefetches a line of the first column.
    #[inline(always)]
    pub(super) fn prefetch_line(self, line: usize) {
        M::prefetch(self.line(line));
    }

    // ---- Changes of a latched node. ----

    fn set_key(self, i: usize, key: &KeyWords) {
        for (column, word) in key.iter().enumerate().take(K::WORDS) {
            // Relaxed: as in `Node::set_count`.
            self.column(column)[i].store(*word, Ordering::Relaxed);
        }
    }

    pub(super) fn set_child(self, slot: usize, child: *mut M::U64) {
        // Relaxed: as in `Node::set_count`.
        self.children()[slot].store(child.expose_provenance() as u64, Ordering::Relaxed);
    }

    /// Ends a change of the separators: stores their number, and what searches go by.
    pub(super) fn set_separators(self, count: usize) {
        debug_assert!(count < I);
        self.set_count(count, 0);
        // The words behind the separators are above all keys, or equal to the largest. So a search
        // that compares whole lines need not know before how many there are.
        let behind = if M::LOADS_ARE_COSTLY { &[] } else { &self.first_column()[count..] };
        for word in behind {
            // Relaxed: as in `Node::set_count`.
            word.store(u64::MAX, Ordering::Relaxed);
        }
        for line in 1..Self::COLUMN / LINE {
            // Relaxed, both: as in `Node::set_count`.
            let pivot = self.line(line)[0].load(Ordering::Relaxed);
            self.header()[OWN + line - 1].store(pivot, Ordering::Relaxed);
        }
    }

    /// Inserts `child` right of child `slot`, for the keys from `separator` on.
    pub(super) fn insert_child(self, slot: usize, separator: &KeyWords, child: *mut M::U64) {
        let count = self.count();
        debug_assert!(count + 1 < I);
        for column in 0..K::WORDS {
            node::move_up::<M>(self.column(column), slot, count, 1);
        }
        node::move_up::<M>(self.children(), slot + 1, count + 1, 1);
        self.set_key(slot, separator);
        self.set_child(slot + 1, child);
        self.set_separators(count + 1);
    }

    /// In a node with more than one child: removes child `slot`. Its keys go to the child left of
    /// it, or to the next if it is the first.
    pub(super) fn remove_child(self, slot: usize) {
        let count = self.count();
        for column in 0..K::WORDS {
            node::move_down::<M>(self.column(column), slot.saturating_sub(1) + 1, count, 1);
        }
        node::move_down::<M>(self.children(), slot + 1, count + 1, 1);
        self.set_separators(count - 1);
    }

    /// Moves the separators behind `middle`, and their children, to the front of the empty node
    /// `right`. Returns the separator between the two nodes, which neither keeps.
    pub(super) fn split(self, right: Self, middle: usize) -> KeyWords {
        let count = self.count();
        for i in middle + 1..count {
            right.set_key(i - middle - 1, &self.key(i));
        }
        for i in middle + 1..=count {
            right.set_child(i - middle - 1, self.child(i));
        }
        right.set_separators(count - middle - 1);
        let separator = self.key(middle);
        self.set_separators(middle);
        separator
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    type Word = <Native as Machine>::U64;

    /// Inserts the separators, removes every third child, and compares both searches with the
    /// truth.
    fn searches_agree<K: Key, const I: usize>(separators: &[KeyWords], probes: &[KeyWords]) {
        // The words of a slot that had another life.
        let words: Vec<Word> = (0..InnerNode::<Native, K, I>::WORDS).map(|i| Word::new(i as u64 * 7)).collect();
        // SAFETY: as many words as a node has, which live as long as it.
        let node = unsafe { InnerNode::<Native, K, I>::new(words.as_ptr().cast_mut()) };
        let mut expected: Vec<KeyWords> = Vec::new();
        let check = |expected: &[KeyWords]| {
            for probe in probes.iter().chain(separators) {
                let rank = expected.iter().filter(|separator| *separator <= probe).count();
                assert_eq!(node.rank(probe), rank, "{probe:?} among {expected:?}");
                assert_eq!(node.rank_in(node.line_of(probe[0]), probe), rank, "{probe:?} among {expected:?}");
            }
        };
        node.set_separators(0);
        check(&expected);
        for separator in separators {
            let rank = node.rank(separator);
            node.insert_child(rank, separator, node.words());
            expected.insert(rank, *separator);
            check(&expected);
        }
        for slot in (0..=separators.len()).rev().step_by(3) {
            node.remove_child(slot);
            expected.remove(slot.saturating_sub(1));
            check(&expected);
        }
    }

    #[test]
    fn both_searches_find_the_child_of_a_key() {
        let number = |i: u64| [i * 5, 0, 0, 0];
        // In no order; the largest key is a separator, too.
        let mut separators: Vec<_> = (0..38).map(|i| number(i * 11 % 38)).collect();
        separators.push([u64::MAX, 0, 0, 0]);
        let probes: Vec<_> = (0..200).map(|i| [i, 0, 0, 0]).chain([[u64::MAX - 1, 0, 0, 0]]).collect();
        searches_agree::<u64, 40>(&separators, &probes);
        searches_agree::<u64, 20>(&separators[20..], &probes);
    }

    #[test]
    fn both_searches_compare_all_words_of_a_key() {
        // Many keys have the same first word, also over a line, and that may be the largest.
        for first in [[1, 1, 1], [0, 5, 9], [7, u64::MAX, u64::MAX]] {
            let keys = |odd: u64| {
                first.into_iter().flat_map(move |first| (0..13).map(move |i| [first, 2 * (i * 5 % 13) + odd, 0, 0]))
            };
            let mut separators: Vec<KeyWords> = Vec::new();
            for key in keys(0) {
                if !separators.contains(&key) {
                    separators.push(key);
                }
            }
            searches_agree::<[u8; 16], 40>(&separators, &keys(1).collect::<Vec<_>>());
        }
    }
}
