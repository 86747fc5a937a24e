//! The schemas of tables, as a log knows them.

use contend_model::counted;
use std::ops::Range;

use contend_engine::{GROUPS_MAX, Groups, IndexKind, MAX_KEY_WORDS, Span, TableCore, TableShape};
use contend_machine::Machine;
use serde::{Deserialize, Serialize};

/// The schema of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Its name.
    pub name: String,
    /// The number of words of a key.
    pub key_words: usize,
    /// The number of words of a row.
    pub row_words: usize,
    /// The words of each group of columns: the first one, and the one behind the last.
    pub groups: Vec<(usize, usize)>,
    /// Whether the index is ordered.
    pub ordered: bool,
    /// What else the application says of the columns: a table is opened only with the same text.
    pub columns: String,
}

impl std::fmt::Display for Schema {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Schema { key_words, row_words, groups, ordered, columns, .. } = self;
        let index = if *ordered { "an ordered" } else { "a hash" };
        let key = counted(*key_words, "word");
        write!(f, "keys of {key}, rows of {row_words} ({columns}) in groups {groups:?}, {index} index")
    }
}

/// The largest row in words: a transaction that writes a larger one has no room in a block.
const ROW_WORDS_MAX: usize = crate::log::TRANSACTION_BYTES_MAX / 8;

impl Schema {
    /// Checks that a table can have this schema. A schema may come from a stranger's manifest.
    ///
    /// # Errors
    /// A width is out of range, or the groups are not disjoint parts of the row; the text says
    /// which.
    pub fn check(&self) -> Result<(), &'static str> {
        if !(1..=MAX_KEY_WORDS).contains(&self.key_words) {
            return Err("its keys have no word, or more than a key can have");
        }
        if self.row_words > ROW_WORDS_MAX {
            return Err("its rows are larger than a transaction can be");
        }
        if !(1..=GROUPS_MAX).contains(&self.groups.len()) {
            return Err("it has no group of columns, or more than a row can have");
        }
        if self.groups.iter().any(|&(start, end)| end < start || end > self.row_words) {
            return Err("a group of its columns is not within the row");
        }
        // A group without columns has no words, wherever it is.
        let mut spans: Vec<_> = self.groups.iter().filter(|(start, end)| start < end).collect();
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].1 > pair[1].0) {
            return Err("two groups of its columns have a word in common");
        }
        Ok(())
    }

    /// Returns the schema of a table of this shape. `columns` is what else the application says of
    /// its columns: the log compares it, and shows it.
    pub fn of(shape: TableShape, columns: String) -> Self {
        let TableShape { name, key_words, row_words, groups, index } = shape;
        let mut groups: Vec<_> = groups.iter().map(|span| (span.words().start, span.words().end)).collect();
        if groups.is_empty() {
            groups.push((0, row_words));
        }
        Schema { name, key_words, row_words, groups, ordered: index == IndexKind::Ordered, columns }
    }

    /// The kind of the index.
    pub fn index(&self) -> IndexKind {
        if self.ordered { IndexKind::Ordered } else { IndexKind::Hash }
    }

    pub(crate) fn all_groups(&self) -> Groups {
        Groups::first(self.groups.len())
    }

    /// Returns the groups that have these words.
    pub(crate) fn groups_of(&self, words: impl Iterator<Item = usize>) -> Groups {
        words.fold(Groups::NONE, |all, word| {
            let group = self.groups.iter().position(|&(start, end)| (start..end).contains(&word));
            group.map_or(all, |group| all.union(Groups::of(group as u32)))
        })
    }
}

/// The groups of a row, for encoding. This is a [`Schema`], or the table itself, which is in the
/// cache of a worker that has just written to it.
pub(crate) trait Form {
    /// Whether these are all groups of a row.
    fn is_whole(&self, groups: Groups) -> bool;

    /// Returns the words of these groups.
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
