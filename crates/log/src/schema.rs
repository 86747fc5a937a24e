//! What tables are made of.

use std::ops::Range;

use contend_engine::{Groups, IndexKind};
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

    pub(crate) fn is_whole(&self, groups: Groups) -> bool {
        groups.contains(self.all_groups())
    }

    /// The groups that have these words.
    pub(crate) fn groups_of(&self, words: impl Iterator<Item = usize>) -> Groups {
        words.fold(Groups::NONE, |all, word| {
            let group = self.groups.iter().position(|&(start, end)| (start..end).contains(&word));
            group.map_or(all, |group| all.union(Groups::of(group as u32)))
        })
    }

    /// The words of these groups.
    pub(crate) fn words(&self, groups: Groups) -> impl Iterator<Item = Range<usize>> {
        let groups = groups.common(self.all_groups());
        groups.into_iter().map(|group| self.groups[group].0..self.groups[group].1)
    }
}
