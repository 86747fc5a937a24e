//! The order of a table's keys, which says what lies in a scan's range.
//!
//! The keys of a table compare as unsigned integers if every key that the history names in that
//! table, the bounds of scans included, is a run of digits that fits 64 bits; else bytewise. Two
//! spellings of one number (`7`, `07`) are two keys at one place.

use std::cmp::Ordering;

use crate::model::{History, ItemId, Scan};

/// The items of every table in key order.
pub(crate) struct KeyOrder {
    /// By table: its items in key order.
    sorted: Vec<Vec<ItemId>>,
    /// By item: its place in its table's order; equal for keys that compare equal.
    rank: Vec<u32>,
}

impl KeyOrder {
    pub(crate) fn new(history: &History) -> Self {
        let mut sorted = vec![Vec::new(); history.table_count()];
        for index in history.item_indices() {
            let item = ItemId::from_index(index);
            sorted[history.item_table(item).index()].push(item);
        }
        let mut rank = vec![0; history.item_count()];
        for items in &mut sorted {
            sort_keys(history, items, &mut rank);
        }
        Self { sorted, rank }
    }

    /// The item's place in its table's order.
    pub(crate) fn rank(&self, item: ItemId) -> u32 {
        self.rank[item.index()]
    }

    /// Whether the item, of the scan's table, lies in the scan's range.
    pub(crate) fn contains(&self, scan: &Scan, item: ItemId) -> bool {
        let rank = self.rank(item);
        scan.low.is_none_or(|low| self.rank(low) <= rank) && scan.high.is_none_or(|high| rank <= self.rank(high))
    }

    /// The items that the history names in the scan's range, in key order.
    pub(crate) fn range(&self, scan: &Scan) -> &[ItemId] {
        let items = &self.sorted[scan.table.index()];
        let from = scan.low.map_or(0, |low| items.partition_point(|&item| self.rank(item) < self.rank(low)));
        let to =
            scan.high.map_or(items.len(), |high| items.partition_point(|&item| self.rank(item) <= self.rank(high)));
        // A range whose low end lies above its high end is empty.
        &items[from..to.max(from)]
    }
}

/// Sorts the items of one table and notes each one's rank.
fn sort_keys(history: &History, items: &mut Vec<ItemId>, rank: &mut [u32]) {
    let numbers: Option<Vec<(u64, ItemId)>> =
        items.iter().map(|&item| Some((number(history.item_key(item))?, item))).collect();
    let bytewise = |a: ItemId, b: ItemId| history.item_key(a).as_bytes().cmp(history.item_key(b).as_bytes());
    if let Some(mut numbers) = numbers {
        numbers.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| bytewise(a.1, b.1)));
        *items = numbers.iter().map(|&(_, item)| item).collect();
        set_ranks(items, rank, |place| numbers[place - 1].0.cmp(&numbers[place].0));
    } else {
        items.sort_unstable_by(|&a, &b| bytewise(a, b));
        set_ranks(items, rank, |_| Ordering::Less);
    }
}

fn set_ranks(items: &[ItemId], rank: &mut [u32], compare_with_previous: impl Fn(usize) -> Ordering) {
    let mut next = 0;
    for (place, item) in items.iter().enumerate() {
        if place > 0 && compare_with_previous(place) == Ordering::Less {
            next += 1;
        }
        rank[item.index()] = next;
    }
}

fn number(key: &str) -> Option<u64> {
    // The standard library's parser takes a leading `+`.
    if key.bytes().all(|byte| byte.is_ascii_digit()) { key.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(keys: &[&str]) -> Vec<String> {
        let mut history = History::new();
        let table = history.table("t");
        for key in keys {
            history.item(table, key);
        }
        let order = KeyOrder::new(&history);
        order.sorted[0].iter().map(|&item| history.item_key(item).to_owned()).collect()
    }

    #[test]
    fn numbers_compare_as_numbers() {
        assert_eq!(order(&["10", "9", "18446744073709551615", "0"]), ["0", "9", "10", "18446744073709551615"]);
    }

    #[test]
    fn one_word_makes_the_table_bytewise() {
        for word in ["x", "+1", "-1", "", "18446744073709551616", "1.0"] {
            let mut keys = vec!["10", "9", word];
            keys.sort_unstable();
            assert_eq!(order(&["9", word, "10"]), keys, "with the key {word:?}");
        }
    }

    #[test]
    fn two_spellings_of_a_number_share_a_place() {
        let mut history = History::new();
        let table = history.table("t");
        let items: Vec<_> = ["6", "7", "07", "8"].iter().map(|key| history.item(table, key)).collect();
        let order = KeyOrder::new(&history);
        let scan = Scan { table, low: Some(items[1]), high: Some(items[1]), seen: vec![], gone: vec![] };
        assert_eq!(order.range(&scan), [items[2], items[1]]);
        assert!(order.contains(&scan, items[2]) && !order.contains(&scan, items[0]));
    }
}
