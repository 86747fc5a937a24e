//! The layout of rows. Each word of a field depends on the field's writer and key, so that the
//! check finds torn fields and fields of another key.

use contend_model::Span;

use super::YcsbOptions;

/// The layout of a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) words: usize,
    pub(super) fields: usize,
    /// A mask of the bytes of the last word that belong to the row.
    last_mask: u64,
    /// Whether the second word of each field counts its writes.
    pub(super) counted: bool,
}

impl Shape {
    pub(super) fn new(options: &YcsbOptions) -> Self {
        let spare = options.payload.next_multiple_of(8) - options.payload;
        Shape {
            words: options.payload.div_ceil(8),
            fields: options.fields,
            last_mask: u64::MAX >> (8 * spare),
            counted: (options.rmw || options.update) && options.payload / 8 / options.fields >= 2,
        }
    }

    /// Returns the words of a field.
    #[inline(always)]
    pub(super) fn span(self, field: usize) -> Span {
        let first = |field: usize| (self.words * field / self.fields) as u32;
        Span { first: first(field), count: first(field + 1) - first(field) }
    }

    /// Writes a field of a row. If writes are counted, `writes` is their number including this one.
    #[inline(always)]
    pub(super) fn fill(self, row: &mut [u64], field: usize, key: u64, tag: u64, writes: u64) {
        let words = if self.fields == 1 { row } else { &mut row[self.span(field).words()] };
        words[0] = tag;
        if words.len() > 1 {
            self.fill_rest(words, field, key, tag, writes);
        }
    }

    #[inline]
    fn fill_rest(self, words: &mut [u64], field: usize, key: u64, tag: u64, writes: u64) {
        let seed = tag ^ key.wrapping_add(field as u64);
        for (word, i) in words[1..].iter_mut().zip(1u64..) {
            *word = seed.wrapping_mul(2 * i + 1).rotate_left(17) ^ i;
        }
        if self.counted {
            words[1] = writes;
        }
        if field + 1 == self.fields {
            *words.last_mut().expect("two words or more") &= self.last_mask;
        }
    }

    /// Writes all fields, as those of a new row.
    pub(super) fn fill_all(self, row: &mut [u64], key: u64, tag: u64) {
        (0..self.fields).for_each(|field| self.fill(row, field, key, tag, 0));
    }

    /// Returns the number of writes that a field has seen, or 0 if writes are not counted.
    #[inline(always)]
    pub(super) fn writes(self, row: &[u64], field: usize) -> u64 {
        if self.counted { row[self.span(field).words().start + 1] } else { 0 }
    }

    /// Returns whether a field is as `fill` wrote it, for some tag and count.
    pub(super) fn is_whole(self, row: &[u64], field: usize, key: u64, expected: &mut Vec<u64>) -> bool {
        expected.clear();
        expected.resize(self.words, 0);
        let words = self.span(field).words();
        self.fill(expected, field, key, row[words.start], self.writes(row, field));
        row[words.clone()] == expected[words]
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LOADED, WORKER_SHIFT};
    use super::*;

    #[test]
    fn rows_of_any_length_are_recognised_and_torn_ones_are_not() {
        let shapes = [8, 9, 15, 16, 17, 100, 1000].map(|payload| (payload, 1));
        for (payload, fields) in shapes.into_iter().chain([(24, 3), (1000, 10), (1001, 7), (250, 16)]) {
            for rmw in [false, true] {
                let shape = Shape::new(&YcsbOptions { payload, fields, rmw, ..YcsbOptions::default() });
                let (mut row, mut other, mut expected) = (vec![0; shape.words], vec![0; shape.words], Vec::new());
                shape.fill_all(&mut row, 42, LOADED);
                shape.fill_all(&mut other, 42, LOADED);
                for field in 0..fields {
                    shape.fill(&mut row, field, 42, 1 << WORKER_SHIFT | 7, 3);
                    shape.fill(&mut other, field, 42, 2 << WORKER_SHIFT | 9, 4);
                    assert!(shape.is_whole(&row, field, 42, &mut expected), "{payload} bytes");
                    assert_eq!(shape.writes(&row, field), if shape.counted { 3 } else { 0 }, "{payload} bytes");
                }
                let bytes_used = payload - 8 * (shape.words - 1);
                assert_eq!(row[shape.words - 1].checked_shr(8 * bytes_used as u32).unwrap_or(0), 0, "padding is zero");
                let spans: Vec<usize> = (0..fields).flat_map(|field| shape.span(field).words()).collect();
                assert_eq!(spans, (0..shape.words).collect::<Vec<_>>(), "the fields are the row");
                // A byte or two can agree by chance.
                if payload / fields >= 100 {
                    let last = fields - 1;
                    let first = shape.span(last).words().start;
                    row[first] = other[first];
                    assert!(!shape.is_whole(&row, last, 42, &mut expected), "{payload} bytes, torn");
                    assert!(!shape.is_whole(&other, last, 43, &mut expected), "{payload} bytes, of another key");
                }
            }
        }
    }
}
