//! Which core is furthest behind: a timing wheel of a cycle a slot (G. Varghese, A. Lauck, SOSP
//! 1987).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const SLOTS: usize = 4096;
pub(crate) const NOBODY: u16 = u16::MAX;

/// Cores, each waiting for a time. Of those that wait for one time the first to wait is the first
/// to go.
pub(crate) struct Wheel {
    /// No core waits for an earlier time.
    base: u64,
    heads: Box<[u16; SLOTS]>,
    tails: Box<[u16; SLOTS]>,
    /// By core: the next in its slot.
    next: Vec<u16>,
    /// A bit for each slot that is not empty, and one for each word of those.
    slots: [u64; SLOTS / 64],
    words: u64,
    /// Those whose time is beyond the wheel, with a number that keeps their order.
    later: BinaryHeap<Reverse<(u64, u64, u16)>>,
    /// The earliest time of those.
    first_later: u64,
    pushed: u64,
}

impl Wheel {
    /// For cores numbered below `cores`.
    pub(crate) fn new(cores: usize) -> Self {
        Wheel {
            base: 0,
            heads: Box::new([NOBODY; SLOTS]),
            tails: Box::new([NOBODY; SLOTS]),
            next: vec![NOBODY; cores],
            slots: [0; SLOTS / 64],
            words: 0,
            later: BinaryHeap::new(),
            first_later: u64::MAX,
            pushed: 0,
        }
    }

    /// The core waits for this time, which is not before the last that came out.
    #[inline]
    pub(crate) fn push(&mut self, core: u16, time: u64) {
        debug_assert!(time >= self.base, "time goes on");
        if time - self.base < SLOTS as u64 { self.place(core, time) } else { self.push_later(core, time) }
    }

    #[cold]
    fn push_later(&mut self, core: u16, time: u64) {
        self.pushed += 1;
        self.later.push(Reverse((time, self.pushed, core)));
        self.first_later = self.first_later.min(time);
    }

    #[inline]
    fn place(&mut self, core: u16, time: u64) {
        let slot = time as usize % SLOTS;
        self.next[usize::from(core)] = NOBODY;
        if self.heads[slot] == NOBODY {
            self.heads[slot] = core;
            self.slots[slot / 64] |= 1 << (slot % 64);
            self.words |= 1 << (slot / 64);
        } else {
            self.next[usize::from(self.tails[slot])] = core;
        }
        self.tails[slot] = core;
    }

    /// The earliest time that a core waits for.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<u64> {
        if self.words == 0 {
            return (self.first_later < u64::MAX).then_some(self.first_later);
        }
        let start = self.base as usize % SLOTS;
        let (word, bit) = (start / 64, start % 64);
        let here = self.slots[word] & (u64::MAX << bit);
        let slot = if here != 0 {
            word * 64 + here.trailing_zeros() as usize
        } else {
            // The words after this one, then those before, then this one's lower bits.
            let rotated = self.words.rotate_right(word as u32 + 1);
            let word = (word + 1 + rotated.trailing_zeros() as usize) % (SLOTS / 64);
            word * 64 + self.slots[word].trailing_zeros() as usize
        };
        // Those beyond the wheel are later than all on it.
        Some(self.base + (slot.wrapping_sub(start) % SLOTS) as u64)
    }

    /// Takes out the core that waits for this time, which is the earliest.
    #[inline]
    pub(crate) fn take(&mut self, time: u64) -> u16 {
        debug_assert_eq!(self.earliest(), Some(time));
        self.base = time;
        if self.first_later < time + SLOTS as u64 {
            self.bring_in();
        }
        let slot = time as usize % SLOTS;
        let core = self.heads[slot];
        self.heads[slot] = self.next[usize::from(core)];
        if self.heads[slot] == NOBODY {
            self.slots[slot / 64] &= !(1 << (slot % 64));
            if self.slots[slot / 64] == 0 {
                self.words &= !(1 << (slot / 64));
            }
        }
        core
    }

    /// The core that will be taken out after the one for this time, which is the earliest, as far
    /// as is known and on the wheel.
    #[inline]
    pub(crate) fn after_next(&self, time: u64) -> u16 {
        let slot = time as usize % SLOTS;
        let first = self.heads[slot];
        if first == NOBODY {
            return NOBODY;
        }
        let second = self.next[usize::from(first)];
        if second != NOBODY {
            return second;
        }
        // In this word of slots, which is where it mostly is.
        let later = self.slots[slot / 64] & (u64::MAX << (slot % 64)) << 1;
        if later == 0 { NOBODY } else { self.heads[slot / 64 * 64 + later.trailing_zeros() as usize] }
    }

    #[cold]
    fn bring_in(&mut self) {
        while let Some(&Reverse((time, _, core))) = self.later.peek() {
            if time - self.base >= SLOTS as u64 {
                self.first_later = time;
                return;
            }
            self.later.pop();
            self.place(core, time);
        }
        self.first_later = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_come_out_in_the_order_of_their_times() {
        let mut wheel = Wheel::new(1000);
        let mut random = 7u64;
        let mut expected = BinaryHeap::new();
        let mut sequence = 0;
        let mut push = |wheel: &mut Wheel, expected: &mut BinaryHeap<_>, core: u16, now: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let range = [1, 10, 5_000, 100_000][(random >> 60) as usize % 4];
            let time = now + (random >> 33) % range;
            sequence += 1;
            wheel.push(core, time);
            expected.push(Reverse((time, sequence, core)));
        };
        for core in 0..1000 {
            push(&mut wheel, &mut expected, core, 0);
        }
        for _ in 0..100_000 {
            let time = wheel.earliest().expect("a thousand cores");
            let core = wheel.take(time);
            let Reverse((expected_time, ..)) = expected.pop().expect("as many");
            assert_eq!(time, expected_time);
            // Which of those with one time is first may differ by how they got onto the wheel: the
            // set is what counts.
            let mut same: Vec<_> = std::iter::from_fn(|| {
                expected.peek().is_some_and(|Reverse((next, ..))| *next == time).then(|| expected.pop()).flatten()
            })
            .collect();
            same.push(Reverse((expected_time, 0, core)));
            for Reverse((time, _, other)) in same.drain(..same.len() - 1).collect::<Vec<_>>() {
                expected.push(Reverse((time, 0, other)));
            }
            push(&mut wheel, &mut expected, core, time);
        }
    }

    #[test]
    fn who_waited_first_goes_first() {
        let mut wheel = Wheel::new(3);
        for core in [2, 0, 1] {
            wheel.push(core, 5);
        }
        let out: Vec<u16> = (0..3).map(|_| wheel.take(5)).collect();
        assert_eq!(out, [2, 0, 1]);
        assert_eq!(wheel.earliest(), None);
    }
}
