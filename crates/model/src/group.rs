//! [`Groups`]: sets of column groups.

/// The most groups a row may have.
pub const GROUPS_MAX: usize = 16;

/// A set of a row's column groups, by their numbers, `0..GROUPS_MAX`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Groups(u16);

impl Groups {
    /// No group.
    pub const NONE: Groups = Groups(0);
    /// Group 0, which every row has.
    pub const FIRST: Groups = Groups(1);
    /// All groups, however many a row has.
    pub const ALL: Groups = Groups(u16::MAX);

    /// Returns the set of this group alone.
    ///
    /// # Panics
    /// The number is not below [`GROUPS_MAX`].
    #[inline(always)]
    pub const fn of(group: u32) -> Groups {
        assert!(group < GROUPS_MAX as u32, "a row has groups 0 to 15");
        Groups(1 << group)
    }

    /// Returns the first `count` groups.
    #[inline(always)]
    pub const fn first(count: usize) -> Groups {
        Groups((u16::MAX as u32 >> (GROUPS_MAX - count)) as u16)
    }

    #[inline(always)]
    pub(crate) const fn bits(self) -> u16 {
        self.0
    }

    #[inline(always)]
    pub(crate) const fn of_bits(bits: u16) -> Groups {
        Groups(bits)
    }

    /// Returns the groups that are in either set.
    #[inline(always)]
    pub const fn union(self, other: Groups) -> Groups {
        Groups(self.0 | other.0)
    }

    /// Returns the groups that are in both sets.
    #[inline(always)]
    pub const fn common(self, other: Groups) -> Groups {
        Groups(self.0 & other.0)
    }

    /// Returns the groups of this set that are not in the other.
    #[inline(always)]
    pub const fn without(self, other: Groups) -> Groups {
        Groups(self.0 & !other.0)
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all groups of `other` are in this set.
    #[inline(always)]
    pub const fn contains(self, other: Groups) -> bool {
        other.without(self).is_empty()
    }

    /// Whether a group is in both sets.
    #[inline(always)]
    pub const fn meets(self, other: Groups) -> bool {
        !self.common(other).is_empty()
    }
}

impl std::fmt::Debug for Groups {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(*self).finish()
    }
}

/// Iterates over the numbers of a set's groups, in ascending order.
#[derive(Clone, Debug)]
pub struct GroupNumbers(u16);

impl Iterator for GroupNumbers {
    type Item = usize;

    #[inline(always)]
    fn next(&mut self) -> Option<usize> {
        if self.0 == 0 {
            return None;
        }
        let group = self.0.trailing_zeros() as usize;
        self.0 &= self.0 - 1;
        Some(group)
    }
}

impl GroupNumbers {
    /// Whether group 0 is the only one that is left.
    #[inline(always)]
    pub const fn is_first_only(&self) -> bool {
        self.0 == 1
    }
}

impl DoubleEndedIterator for GroupNumbers {
    #[inline(always)]
    fn next_back(&mut self) -> Option<usize> {
        let group = self.0.checked_ilog2()?;
        self.0 ^= 1 << group;
        Some(group as usize)
    }
}

impl FromIterator<usize> for Groups {
    /// # Panics
    /// A number is not below [`GROUPS_MAX`].
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Groups {
        numbers.into_iter().fold(Groups::NONE, |all, number| all.union(Groups::of(number as u32)))
    }
}

impl serde::Serialize for Groups {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(*self)
    }
}

impl IntoIterator for Groups {
    type Item = usize;
    type IntoIter = GroupNumbers;

    #[inline(always)]
    fn into_iter(self) -> GroupNumbers {
        GroupNumbers(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_of_groups() {
        let odd = Groups::of(1).union(Groups::of(15));
        assert_eq!(odd.into_iter().collect::<Vec<_>>(), [1, 15]);
        assert_eq!(odd.into_iter().rev().collect::<Vec<_>>(), [15, 1]);
        assert_eq!(Groups::NONE.into_iter().count(), 0);
        assert_eq!(Groups::ALL.into_iter().count(), GROUPS_MAX);
        assert_eq!(Groups::first(16), Groups::ALL);
        assert_eq!(Groups::first(1), Groups::FIRST);
        assert_eq!(Groups::first(3).common(odd), Groups::of(1));
        assert!(Groups::ALL.contains(odd) && !odd.contains(Groups::FIRST) && odd.meets(Groups::first(2)));
        assert_eq!(Groups::ALL.without(odd).into_iter().count(), GROUPS_MAX - 2);
        assert!(Groups::NONE.is_empty() && odd.contains(Groups::NONE));
    }
}
