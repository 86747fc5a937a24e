//! Records that clients keep books of: enough to see what gets lost, few enough to cost no cache.

/// Records in the books, at most.
const MAX: u64 = 1 << 16;

/// Of the records below a number every one in a power of two: those whose number ends in enough
/// zero bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    records: u64,
    shift: u32,
}

impl Sample {
    /// Of `records` records, which is at least 1.
    pub(crate) fn new(records: u64) -> Self {
        Sample { records, shift: records.div_ceil(MAX).next_power_of_two().trailing_zeros() }
    }

    /// How many records are in the sample.
    pub(crate) fn len(self) -> usize {
        ((self.records - 1) >> self.shift) as usize + 1
    }

    /// The record's position in the books, if it is in the sample.
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
