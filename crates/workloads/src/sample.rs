//! The sample of records that clients keep books about. It is large enough to show lost updates,
//! and small enough to take little room in a cache.

/// The maximum number of records in the sample.
const MAX: u64 = 1 << 16;

/// A sample of the records below `records`. It takes one record in a power of two: those whose
/// numbers end in `shift` zero bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    records: u64,
    shift: u32,
}

impl Sample {
    /// Creates the sample of `records` records. `records` must be at least 1.
    pub(crate) fn new(records: u64) -> Self {
        Sample { records, shift: records.div_ceil(MAX).next_power_of_two().trailing_zeros() }
    }

    /// Returns the number of records in the sample.
    pub(crate) fn len(self) -> usize {
        ((self.records - 1) >> self.shift) as usize + 1
    }

    /// Returns the record's position in the books, or `None` if it is not in the sample.
    #[inline(always)]
    pub(crate) fn position(self, record: u64) -> Option<usize> {
        let position = record >> self.shift;
        (record < self.records && position << self.shift == record).then_some(position as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_dense() {
        for records in [1, 2, 1000, MAX - 1, MAX, MAX + 1, 2 * MAX, 3 * MAX + 5] {
            let sample = Sample::new(records);
            let positions: Vec<usize> = (0..records + 100).filter_map(|record| sample.position(record)).collect();
            assert_eq!(positions, (0..sample.len()).collect::<Vec<_>>(), "of {records} records");
            assert!(sample.len() as u64 <= MAX && (records > MAX || sample.len() as u64 == records));
        }
    }
}
