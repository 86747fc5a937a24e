//! Rows as typed plain data, and their columns.
//!
//! In memory a row is a sequence of 64-bit words in the machine's byte order, padded with zeros to
//! a whole word.
//!
//! Columns are partitioned into *groups*. The columns of a group are written together, and stand
//! together in words of their own. A group is the unit that a protocol validates and that a write
//! replaces. With timestamp splitting it also has a version word of its own (a cell, in the
//! engine).

use std::marker::PhantomData;

use crate::group::Groups;
use crate::projection::Span;

/// The facts about a column that are known at run time.
#[derive(Clone, Copy, Debug)]
pub struct ColumnInfo {
    /// The column's name.
    pub name: &'static str,
    /// Its first byte in the row.
    pub offset: usize,
    /// Its length in bytes.
    pub size: usize,
    /// The group whose version covers it when versions are kept by group.
    pub group: u32,
    /// [`std::any::type_name`] of the column's type.
    pub type_path: fn() -> &'static str,
}

impl ColumnInfo {
    /// Returns the name of the column's type, as [`type_name_of`] does.
    pub fn type_name(&self) -> String {
        without_modules((self.type_path)())
    }
}

/// Returns the name by which a database recognises a type: `i64`, `[u8; 16]`, `Money`. The name is
/// the same on all platforms, and through aliases. It leaves out the type's modules, so that the
/// type may move between them. So two types with the same name are not told apart, and the name
/// doesn't tell how a user-defined type is built.
pub fn type_name_of<T>() -> String {
    without_modules(std::any::type_name::<T>())
}

/// Returns a type's path without its modules: `Name<Other>` for `a::b::Name<c::Other>`.
fn without_modules(path: &str) -> String {
    let is_of_path = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == ':';
    let mut short = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|letter| is_of_path(letter) != is_of_path(first)).unwrap_or(rest.len());
        let (run, behind) = rest.split_at(end);
        short.push_str(if is_of_path(first) { run.rsplit("::").next().unwrap_or(run) } else { run });
        rest = behind;
    }
    short
}

/// A row: plain data with named columns. `#[derive(Row)]` implements it.
///
/// # Safety
/// The type is `#[repr(C)]`, without padding, at most 8-byte aligned, and any bit pattern is a
/// valid value of it. `#[derive(Row)]` checks all of it at compile time.
pub unsafe trait Row: Copy + Send + Sync + 'static {
    /// The row's type name.
    const NAME: &'static str;
    /// The columns, in the order of their offsets. Those of one group stand together, and share no
    /// word with another group's.
    const COLUMNS: &'static [ColumnInfo];

    /// The number of words that the row takes, rounded up.
    const WORDS: usize = size_of::<Self>().div_ceil(8);

    /// Returns the row in these words.
    fn from_words(words: &[u64]) -> &Self
    where
        Self: Sized,
    {
        assert!(words.len() >= Self::WORDS, "a row of {} words in {}", Self::WORDS, words.len());
        // SAFETY: enough words by the assertion, aligned to 8, and any bit pattern is a row by the
        // trait's contract.
        unsafe { &*words.as_ptr().cast::<Self>() }
    }

    /// Returns the row in these words, for changes.
    fn from_words_mut(words: &mut [u64]) -> &mut Self
    where
        Self: Sized,
    {
        assert!(words.len() >= Self::WORDS, "a row of {} words in {}", Self::WORDS, words.len());
        // SAFETY: as in `from_words`. In the other direction, words may hold any bit pattern, and a
        // row has no padding that could leave bytes of them uninitialised.
        unsafe { &mut *words.as_mut_ptr().cast::<Self>() }
    }
}

/// A column of type `T` in the rows `R`: a constant that `#[derive(Row)]` makes.
pub struct Column<R, T> {
    offset: usize,
    group: u32,
    of: PhantomData<fn() -> (R, T)>,
}

impl<R, T> Clone for Column<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T> Copy for Column<R, T> {}

impl<R, T> std::fmt::Debug for Column<R, T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Column").field("offset", &self.offset).field("group", &self.group).finish()
    }
}

impl<R: Row, T> Column<R, T> {
    /// Returns the column at byte `offset` of the row.
    ///
    /// # Safety
    /// `R` has a field of type `T` there, and any bit pattern is a valid `T`. `#[derive(Row)]`
    /// calls this.
    pub const unsafe fn new(offset: usize, group: u32) -> Self {
        assert!(offset + size_of::<T>() <= size_of::<R>());
        Column { offset, group, of: PhantomData }
    }

    /// Returns the column's first byte in the row.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Returns the group whose version covers the column.
    pub const fn group(self) -> u32 {
        self.group
    }

    #[inline(always)]
    pub(crate) fn span(self) -> Span {
        Span::of_bytes(self.offset, self.offset + size_of::<T>())
    }

    #[inline(always)]
    pub(crate) fn groups(self) -> Groups {
        Groups::of(self.group)
    }
}

impl<R: Row, T, const N: usize> Column<R, [T; N]> {
    /// Returns one element of the array as a column.
    ///
    /// # Panics
    /// The array has no element of this number.
    #[inline(always)]
    pub const fn element(self, number: usize) -> Column<R, T> {
        assert!(number < N, "an array has no such element");
        Column { offset: self.offset + number * size_of::<T>(), group: self.group, of: PhantomData }
    }
}

impl<R: Row, T: Copy> Column<R, T> {
    /// Returns the column's value in a row.
    #[inline(always)]
    pub fn get(self, row: &R) -> T {
        // SAFETY: the column lies inside the row (`new`), any bit pattern is a `T`.
        unsafe { std::ptr::from_ref(row).cast::<u8>().add(self.offset).cast::<T>().read_unaligned() }
    }

    /// Sets the column's value in a row.
    #[inline(always)]
    pub fn put(self, row: &mut R, value: T) {
        // SAFETY: the column lies inside the row (`new`), and holds a `T`.
        unsafe { std::ptr::from_mut(row).cast::<u8>().add(self.offset).cast::<T>().write_unaligned(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_without_its_modules() {
        struct Money<T>(std::marker::PhantomData<T>);
        type Alias = u64;
        assert_eq!(type_name_of::<i64>(), "i64");
        assert_eq!(type_name_of::<Alias>(), "u64");
        assert_eq!(type_name_of::<[[u8; 16]; 2]>(), "[[u8; 16]; 2]");
        assert_eq!(type_name_of::<Money<std::num::Wrapping<i32>>>(), "Money<Wrapping<i32>>");
        assert_eq!(type_name_of::<(u64, [Money<u8>; 3])>(), "(u64, [Money<u8>; 3])");
    }
}
