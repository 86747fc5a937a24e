//! Choices of columns: which words of a row an access needs.

use std::marker::PhantomData;

use crate::group::Groups;
use crate::row::{Column, Row};

/// A run of words of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first word.
    pub first: u32,
    /// The number of words.
    pub count: u32,
}

impl Span {
    /// Returns the span of the words that hold the bytes from `start` to `end` (exclusive).
    #[inline(always)]
    pub const fn of_bytes(start: usize, end: usize) -> Span {
        let first = start / 8;
        Span { first: first as u32, count: (end.div_ceil(8) - first) as u32 }
    }

    /// Returns the positions of the words in the row.
    #[inline(always)]
    pub fn words(self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

/// The words of a row that an access needs, and their groups. Other words are not copied, and other
/// groups are not validated.
///
/// It has two words, and so travels in registers through all layers. A compiler that has to put it
/// into memory does not see there that it is a constant.
#[derive(Clone, Copy)]
pub struct Projection<'a> {
    /// The first of the spans; null stands for all words of the groups.
    spans: *const Span,
    /// The number of spans in the low half, and the groups in the high half.
    count_and_groups: u64,
    borrowed: PhantomData<&'a [Span]>,
}

// SAFETY: it is a shared borrow of a slice, and spans are plain data.
unsafe impl Send for Projection<'_> {}
// SAFETY: as above.
unsafe impl Sync for Projection<'_> {}

impl<'a> Projection<'a> {
    /// The whole row.
    pub const WHOLE: Projection<'static> = Projection::of_groups(Groups::ALL);

    /// No word: the access only asks whether there is a row.
    pub const EXISTENCE: Projection<'static> = Projection::columns(&[], Groups::FIRST);

    /// Returns a projection of these words, in a row whose columns are all of one group. Each span
    /// lies inside the row.
    #[inline(always)]
    pub const fn spans(spans: &'a [Span]) -> Self {
        Projection::columns(spans, Groups::ALL)
    }

    /// Returns a projection of these words, which belong to these groups. Each span lies inside the
    /// row.
    #[inline(always)]
    pub const fn columns(spans: &'a [Span], groups: Groups) -> Self {
        debug_assert!(spans.len() <= u32::MAX as usize, "a row has fewer words");
        let count_and_groups = spans.len() as u64 & u32::MAX as u64 | (groups.bits() as u64) << 32;
        Projection { spans: spans.as_ptr(), count_and_groups, borrowed: PhantomData }
    }

    /// Returns a projection of all words of these groups.
    #[inline(always)]
    pub const fn of_groups(groups: Groups) -> Projection<'static> {
        let count_and_groups = (groups.bits() as u64) << 32;
        Projection { spans: std::ptr::null(), count_and_groups, borrowed: PhantomData }
    }

    /// Returns the groups that the access needs.
    #[inline(always)]
    pub fn groups(self) -> Groups {
        Groups::of_bits((self.count_and_groups >> 32) as u16)
    }

    /// Returns the words that the access needs, or `None` if it needs all words of the groups.
    #[inline(always)]
    pub fn words(self) -> Option<&'a [Span]> {
        // SAFETY: `columns` has taken the pointer and the length from a slice that is borrowed for
        // `'a`, and whose length fits the low half.
        (!self.spans.is_null())
            .then(|| unsafe { std::slice::from_raw_parts(self.spans, self.count_and_groups as u32 as usize) })
    }
}

impl std::fmt::Debug for Projection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Projection").field("words", &self.words()).field("groups", &self.groups()).finish()
    }
}

/// One or several columns of `R`: a [`Column`], a tuple of columns, or [`Whole`].
pub trait Columns<R> {
    /// The values: the column's type, a tuple, or the row.
    type Output;
    /// Returns the groups that the columns belong to.
    fn groups(&self) -> Groups;
    /// Calls `with` with the projection of these columns.
    fn project<T>(&self, with: impl FnOnce(Projection<'_>) -> T) -> T;
    /// Returns the values of the columns in a row into which the projection was copied.
    fn extract(&self, row: &[u64]) -> Self::Output;
    /// Calls `change` with the values of the columns, and puts the changed values into the row.
    fn change<T>(&self, row: &mut [u64], change: impl FnOnce(&mut Self::Output) -> T) -> T;
}

/// All columns: the row itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole;

impl<R: Row> Columns<R> for Whole {
    type Output = R;

    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::ALL
    }

    #[inline(always)]
    fn project<T>(&self, with: impl FnOnce(Projection<'_>) -> T) -> T {
        with(Projection::WHOLE)
    }

    #[inline(always)]
    fn extract(&self, row: &[u64]) -> R {
        *R::from_words(row)
    }

    #[inline(always)]
    fn change<T>(&self, row: &mut [u64], change: impl FnOnce(&mut R) -> T) -> T {
        change(R::from_words_mut(row))
    }
}

impl<R: Row, T: Copy> Columns<R> for Column<R, T> {
    type Output = T;

    #[inline(always)]
    fn groups(&self) -> Groups {
        Column::groups(*self)
    }

    #[inline(always)]
    fn project<U>(&self, with: impl FnOnce(Projection<'_>) -> U) -> U {
        with(Projection::columns(&[self.span()], Column::groups(*self)))
    }

    #[inline(always)]
    fn extract(&self, row: &[u64]) -> T {
        self.get(R::from_words(row))
    }

    #[inline(always)]
    fn change<U>(&self, row: &mut [u64], change: impl FnOnce(&mut T) -> U) -> U {
        let row = R::from_words_mut(row);
        let mut value = self.get(row);
        let result = change(&mut value);
        self.put(row, value);
        result
    }
}

macro_rules! tuple_of_columns {
    ($(($($column:ident $position:tt)+))*) => {$(
        #[expect(non_snake_case, reason = "the type's name serves as the variable's")]
        impl<R: Row, $($column: Copy),+> Columns<R> for ($(Column<R, $column>,)+) {
            type Output = ($($column,)+);

            #[inline(always)]
            fn groups(&self) -> Groups {
                let ($($column,)+) = self;
                Groups::NONE$(.union(Column::groups(*$column)))+
            }

            #[inline(always)]
            fn project<U>(&self, with: impl FnOnce(Projection<'_>) -> U) -> U {
                let ($($column,)+) = self;
                with(Projection::columns(&[$($column.span()),+], self.groups()))
            }

            #[inline(always)]
            fn extract(&self, row: &[u64]) -> Self::Output {
                let ($($column,)+) = self;
                let row = R::from_words(row);
                ($($column.get(row),)+)
            }

            #[inline(always)]
            fn change<U>(&self, row: &mut [u64], change: impl FnOnce(&mut Self::Output) -> U) -> U {
                let mut values = self.extract(row);
                let result = change(&mut values);
                let ($($column,)+) = self;
                let row = R::from_words_mut(row);
                $($column.put(row, values.$position);)+
                result
            }
        }
    )*};
}

tuple_of_columns! {
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
}
