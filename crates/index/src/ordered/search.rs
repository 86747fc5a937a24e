//! The search inside a node: how many of its sorted keys are `<= key`.
//!
//! There are several ways; the machine says which is fastest. While no writer changes the node all
//! return the same. While one does, each returns some number in `0..=len`, and the caller validates
//! the node's version.

use contend_machine::{Atomic64, Machine, Ordering};

use super::node::{HEADER, OWN};

/// Counts the first `len` words of the sorted `keys` that are `<= key`.
///
/// Under concurrent change the result is some number in `0..=len`.
#[inline(always)]
pub(super) fn count_le<M: Machine>(keys: &[M::U64], len: usize, key: u64) -> usize {
    if M::LOADS_ARE_COSTLY {
        return by_halves::<M>(keys, len, key);
    }
    let (lines, rest) = keys.as_chunks::<8>();
    let Some(mask) = M::le_mask(lines, key) else { return one_by_one::<M>(keys, len, key) };
    // All lines are compared whatever `len` is, and the bits beyond it are masked away: the number
    // of keys in a node cannot be predicted, so a loop that ends with `len` costs a mispredicted
    // branch.
    let in_lines = len.min(8 * lines.len());
    let wanted = if in_lines < 64 { (1 << in_lines) - 1 } else { u64::MAX };
    // The keys are sorted, so the ones come first; to find the first 0 takes fewer instructions
    // than to count.
    let count = (!(mask & wanted)).trailing_zeros() as usize;
    if rest.is_empty() { count } else { count + one_by_one::<M>(rest, len - in_lines, key) }
}

/// Counts the words of the sorted `lines`, at most seven lines, that are `<= key`, if the machine
/// compares whole lines.
#[inline(always)]
pub(super) fn count_le_at_once<M: Machine>(lines: &[M::U64], key: u64) -> Option<usize> {
    let (lines, rest) = lines.as_chunks::<8>();
    debug_assert!(rest.is_empty() && lines.len() < 8);
    M::le_mask(lines, key).map(|mask| (!mask).trailing_zeros() as usize)
}

/// Counts the first `len` pivots that are `<= key`: sorted words in the second half of a line, from
/// [`OWN`] on.
///
/// Under concurrent change the result is some number in `0..=len`.
#[inline(always)]
pub(super) fn count_le_pivots<M: Machine>(line: &[M::U64; HEADER], len: usize, key: u64) -> usize {
    if !M::LOADS_ARE_COSTLY
        && let Some(mask) = M::le_mask(std::slice::from_ref(line), key)
    {
        return (!(mask >> OWN) | 1 << len).trailing_zeros() as usize;
    }
    count_le::<M>(&line[OWN..], len, key)
}

/// Without branches on the keys: a mispredicted branch costs more than the whole scan of a node.
#[inline(always)]
fn one_by_one<M: Machine>(keys: &[M::U64], len: usize, key: u64) -> usize {
    // Relaxed: the caller validates the node's version after the search (`Node::is_at`).
    keys[..len].iter().map(|word| usize::from(word.load(Ordering::Relaxed) <= key)).sum()
}

/// Searches by halving, for machines on which the number of loads decides the cost.
fn by_halves<M: Machine>(keys: &[M::U64], len: usize, key: u64) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        // Relaxed: as in `one_by_one`.
        if keys[middle].load(Ordering::Relaxed) <= key { low = middle + 1 } else { high = middle }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_machine::Native;

    type Word = <Native as Machine>::U64;

    #[test]
    fn all_ways_agree_on_every_length_and_boundary() {
        for size in [5, 37, 64, 70, 72] {
            let keys: Vec<Word> = (0..size).map(|i| Word::new(i * 3)).collect();
            for len in 0..=keys.len() {
                for key in (0..220).chain([u64::MAX, 1 << 63]) {
                    let expected = (0..len as u64).filter(|i| i * 3 <= key).count();
                    for count in [count_le::<Native>, one_by_one::<Native>, by_halves::<Native>] {
                        assert_eq!(count(&keys, len, key), expected, "len {len} key {key}");
                    }
                }
            }
        }
    }

    #[test]
    fn pivots_and_whole_lines_are_counted() {
        for lines in 1..=5u64 {
            let keys: Vec<Word> = (0..8 * lines).map(|i| Word::new(i * 3)).collect();
            for key in (0..130).chain([u64::MAX]) {
                let expected = (0..8 * lines).filter(|i| i * 3 <= key).count();
                assert!(count_le_at_once::<Native>(&keys, key).is_none_or(|count| count == expected), "{lines} {key}");
            }
        }
        let line: [Word; HEADER] = [9, 9, 9, 9, 10, 20, 30, u64::MAX].map(Word::new);
        for (key, expected) in [(0, 0), (10, 1), (19, 1), (20, 2), (u64::MAX, 4)] {
            for len in 0..=4 {
                assert_eq!(count_le_pivots::<Native>(&line, len, key), expected.min(len), "{len} {key}");
            }
        }
    }

    #[test]
    fn comparison_is_unsigned() {
        let keys: Vec<Word> = [0, 1, i64::MAX as u64, 1 << 63, u64::MAX, 0, 0, 0].map(Word::new).into();
        for count in [count_le::<Native>, one_by_one::<Native>, by_halves::<Native>] {
            assert_eq!(count(&keys, 5, i64::MAX as u64), 3);
            assert_eq!(count(&keys, 5, u64::MAX), 5);
        }
    }
}
