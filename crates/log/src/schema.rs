//! What tables are made of.

use std::ops::Range;

use contend_engine::{Groups, IndexKind, Span, TableCore};
use contend_machine::Machine;
use serde::{Deserialize, Serialize};

/// A table, as a log knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Its name.
    pub name: String,
    /// Words of a key.
    pub key_words: usize,
    /// Words of a row.
    pub row_words: usize,
    /// The words of each group of columns: the first, and the one behind the last.
    pub groups: Vec<(usize, usize)>,
    /// Whether the index is an ordered one.
    pub ordered: bool,
    /// What else the application says of the columns.
    pub columns: String,
}

impl std::fmt::Display for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Schema { key_words, row_words, groups, ordered, columns, .. } = self;
        let index = if *ordered { "an ordered" } else { "a hash" };
        write!(f, "keys of {key_words} words, rows of {row_words} ({columns}) in groups {groups:?}, {index} index")
    }
}

impl Schema {
    /// The kind of the index.
    pub fn index(&self) -> IndexKind {
        if self.ordered { IndexKind::Ordered } else { IndexKind::Hash }
    }

    pub(crate) fn all_groups(&self) -> Groups {
        Groups::first(self.groups.len())
    }

    /// The groups that have these words.
    pub(crate) fn groups_of(&self, words: impl Iterator<Item = usize>) -> Groups {
        words.fold(Groups::NONE, |all, word| {
            let group = self.groups.iter().position(|&(start, end)| (start..end).contains(&word));
            group.map_or(all, |group| all.union(Groups::of(group as u32)))
        })
    }
}

/// What rows are made of, for who writes some of their groups: a [`Schema`], or the table itself, which is in the caches of who has just written to it.
pub(crate) trait Form {
    /// Whether these are all groups that the rows have.
    fn is_whole(&self, groups: Groups) -> bool;

    /// The words of these groups.
    fn words(&self, groups: Groups) -> impl Iterator<Item = Range<usize>>;
}

impl<M: Machine> Form for TableCore<M> {
    #[inline(always)]
    fn is_whole(&self, groups: Groups) -> bool {
        TableCore::is_whole(self, groups)
    }

    #[inline(always)]
    fn words(&self, groups: Groups) -> impl Iterator<Item = Range<usize>> {
        self.spans(groups).map(Span::words)
    }
}

impl Form for Schema {
    #[inline(always)]
    fn is_whole(&self, groups: Groups) -> bool {
        groups.contains(self.all_groups())
    }

    #[inline(always)]
    fn words(&self, groups: Groups) -> impl Iterator<Item = Range<usize>> {
        let groups = groups.common(self.all_groups());
        groups.into_iter().map(|group| self.groups[group].0..self.groups[group].1)
    }
}
