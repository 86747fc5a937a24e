//! The sketch *Space-Saving* (Metwally, Agrawal, El Abbadi: Efficient computation of frequent and
//! top-k elements in data streams, ICDT 2005): the most frequent items of a stream, in memory of a
//! fixed size.
//!
//! A full sketch gives the counter of its least counted item to a new one. The new item takes over
//! the count, which is then too large by at most that much: its *error*. Let `n` be the number of
//! items counted in a sketch of `c` counters. Then the following holds.
//!
//! - The true count of a counted item lies between `count - error` and `count`.
//! - An item without a counter was counted at most as often as the least count, which is at most
//!   `n / c`. So every item that is more frequent has a counter.
//!
//! Both also hold after a merge (Agarwal and others: Mergeable summaries, PODS 2012): an item that
//! one of two full sketches lacks may have been counted there as often as its least count.

/// The counters of a sketch.
pub(super) const COUNTERS: usize = 64;

/// A counted item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter<T> {
    /// The item.
    pub item: T,
    /// The count: at least the true one.
    pub count: u64,
    /// The most by which the count is too large.
    pub error: u64,
}

/// A sketch of the most frequent items of a stream.
#[derive(Clone, Debug)]
pub struct SpaceSaving<T> {
    counters: Vec<Counter<T>>,
    /// The most that an item without a counter may have been counted, as long as there are free
    /// counters. No count is smaller.
    floor: u64,
}

impl<T> Default for SpaceSaving<T> {
    fn default() -> Self {
        SpaceSaving { counters: Vec::new(), floor: 0 }
    }
}

impl<T: Copy + PartialEq> SpaceSaving<T> {
    /// Counts an item.
    pub fn add(&mut self, item: T) {
        if let Some(known) = self.counters.iter().position(|counter| counter.item == item) {
            self.counters[known].count += 1;
            // Frequent items move to the front, where they are found soon.
            if known > 0 && self.counters[known].count > self.counters[known - 1].count {
                self.counters.swap(known, known - 1);
            }
            return;
        }
        if self.counters.len() < COUNTERS {
            self.counters.reserve_exact(COUNTERS - self.counters.len());
            return self.counters.push(Counter { item, count: self.floor + 1, error: self.floor });
        }
        let least = self.counters.iter_mut().min_by_key(|counter| counter.count).expect("a full sketch");
        *least = Counter { item, count: least.count + 1, error: least.count };
    }

    /// Adds another sketch. The bounds of the sum hold for the items of both streams together.
    pub fn merge(&mut self, other: &SpaceSaving<T>) {
        let (mine, theirs) = (self.most_uncounted(), other.most_uncounted());
        let of_mine = self.counters.len();
        self.counters.reserve(other.counters.len());
        let mut in_both = [false; COUNTERS];
        for counter in &other.counters {
            match self.counters[..of_mine].iter().position(|known| known.item == counter.item) {
                Some(known) => {
                    in_both[known] = true;
                    self.counters[known].count += counter.count;
                    self.counters[known].error += counter.error;
                }
                None => self.counters.push(Counter {
                    item: counter.item,
                    count: counter.count + mine,
                    error: counter.error + mine,
                }),
            }
        }
        for (counter, _) in self.counters[..of_mine].iter_mut().zip(in_both).filter(|(_, in_both)| !in_both) {
            counter.count += theirs;
            counter.error += theirs;
        }
        // A stable sort: the order of equal counts follows from that of the streams alone.
        self.counters.sort_by_key(|counter| std::cmp::Reverse(counter.count));
        self.counters.truncate(COUNTERS);
        self.floor = mine + theirs;
    }

    /// Returns the most that an item without a counter may have been counted.
    fn most_uncounted(&self) -> u64 {
        if self.counters.len() < COUNTERS {
            return self.floor;
        }
        self.counters.iter().map(|counter| counter.count).min().unwrap_or(self.floor)
    }

    /// Returns the counters, in no order.
    pub fn counters(&self) -> &[Counter<T>] {
        &self.counters
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// Returns the sketch of other names of its items. Those that have none are left out. No two
    /// items have the same name.
    pub(crate) fn renamed<U>(&self, name: impl Fn(T) -> Option<U>) -> SpaceSaving<U> {
        let renamed = |&Counter { item, count, error }: &Counter<T>| Some(Counter { item: name(item)?, count, error });
        SpaceSaving { counters: self.counters.iter().filter_map(renamed).collect(), floor: self.most_uncounted() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sketch_of(items: &[u16]) -> SpaceSaving<u16> {
        let mut sketch = SpaceSaving::default();
        items.iter().for_each(|item| sketch.add(*item));
        sketch
    }

    /// Checks the bounds of a sketch of these items.
    fn check(sketch: &SpaceSaving<u16>, items: &[u16]) {
        let true_count = |item: u16| items.iter().filter(|other| **other == item).count() as u64;
        assert!(sketch.counters().len() <= COUNTERS);
        for Counter { item, count, error } in sketch.counters() {
            assert!((count - error..=*count).contains(&true_count(*item)), "{item}: {count} - {error}");
        }
        let is_counted = |item: u16| sketch.counters().iter().any(|counter| counter.item == item);
        for item in items.iter().filter(|item| !is_counted(**item)) {
            assert!(true_count(*item) <= sketch.most_uncounted(), "{item} is missing");
        }
        assert!(sketch.most_uncounted() <= (items.len() / COUNTERS) as u64, "the least count is an average at most");
    }

    #[test]
    fn few_items_are_counted_exactly() {
        let sketch = sketch_of(&[3, 1, 3, 3, 1, 2]);
        let mut counters: Vec<_> = sketch.counters().iter().map(|it| (it.item, it.count, it.error)).collect();
        counters.sort_unstable();
        assert_eq!(counters, [(1, 2, 0), (2, 1, 0), (3, 3, 0)]);
    }

    #[test]
    fn a_frequent_item_is_found_among_many_rare_ones() {
        let items: Vec<u16> = (0..20_000).map(|place| if place % 10 == 0 { 7 } else { place as u16 }).collect();
        let sketch = sketch_of(&items);
        let hottest = sketch.counters().iter().max_by_key(|counter| counter.count).expect("counters");
        assert_eq!(hottest.item, 7);
        assert!(hottest.count - hottest.error > 1000, "{hottest:?}");
        check(&sketch, &items);
    }

    proptest! {
        #[test]
        fn true_counts_lie_within_the_bounds(items in prop::collection::vec(0u16..200, 0..2000)) {
            check(&sketch_of(&items), &items);
        }

        #[test]
        fn sums_of_sketches_have_the_bounds_of_both(
            parts in prop::collection::vec(prop::collection::vec(0u16..150, 0..600), 1..6),
        ) {
            let mut sum = SpaceSaving::default();
            parts.iter().for_each(|part| sum.merge(&sketch_of(part)));
            check(&sum, &parts.concat());
        }

        #[test]
        fn other_names_leave_the_bounds_as_they_are(items in prop::collection::vec(0u16..200, 0..2000)) {
            let renamed = sketch_of(&items).renamed(|item| (item % 3 > 0).then_some(item + 1000));
            let mut expected: Vec<u16> = items.iter().filter(|item| **item % 3 > 0).map(|item| item + 1000).collect();
            let mut sum = SpaceSaving::default();
            sum.merge(&renamed);
            sum.add(1001);
            expected.push(1001);
            for Counter { item, count, error } in sum.counters() {
                let true_count = expected.iter().filter(|other| *other == item).count() as u64;
                prop_assert!((count - error..=*count).contains(&true_count), "{item}: {count} - {error}");
            }
        }
    }
}
