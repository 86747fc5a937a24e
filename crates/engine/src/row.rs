//! Rows as typed plain data: columns, and projections of columns.
//!
//! Below this module a row is a sequence of 64-bit words, in the machine's byte order, padded with zeros to a whole word.
//!
//! Columns are partitioned into *groups*: columns that are written together, standing together in words of their own. A group is
//! what a protocol validates, what a write replaces, and, with timestamp splitting, what has a version word of its own
//! ([`crate::record::Cell`]).

use std::marker::PhantomData;

use crate::group::Groups;

/// What a table knows of a column at run time.
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
    /// The name of the column's type, as of [`type_name_of`].
    pub fn type_name(&self) -> String {
        without_modules((self.type_path)())
    }
}

/// The name of a type by which a database knows it again: `i64`, `[u8; 16]`, `Money`. It is the same on all platforms, and through aliases. The modules that
/// the type is in are left out, so that it may move between them; two types of one name are then not told apart, nor is what a type of one's own is made of.
pub fn type_name_of<T>() -> String {
    without_modules(std::any::type_name::<T>())
}

/// What is left of `a::b::Name<c::Other>` is `Name<Other>`.
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

/// A row: plain data with named columns. Derive it.
///
/// # Safety
/// The type is `#[repr(C)]`, without padding, at most 8-byte aligned, and any bit pattern is a valid value of it.
/// `#[derive(Row)]` checks all of it at compile time.
pub unsafe trait Row: Copy + Send + Sync + 'static {
    /// The row's type name.
    const NAME: &'static str;
    /// The columns, in the order of their offsets. Those of one group stand together, and share no word with another group's.
    const COLUMNS: &'static [ColumnInfo];

    /// Words that the row takes, rounded up.
    const WORDS: usize = size_of::<Self>().div_ceil(8);

    /// The row in these words.
    fn from_words(words: &[u64]) -> &Self
    where
        Self: Sized,
    {
        assert!(words.len() >= Self::WORDS, "a row of {} words in {}", Self::WORDS, words.len());
        // SAFETY: enough words by the assertion, aligned to 8, and any bit pattern is a row by the trait's contract.
        unsafe { &*words.as_ptr().cast::<Self>() }
    }

    /// The row in these words, to be changed.
    fn from_words_mut(words: &mut [u64]) -> &mut Self
    where
        Self: Sized,
    {
        assert!(words.len() >= Self::WORDS, "a row of {} words in {}", Self::WORDS, words.len());
        // SAFETY: as in `from_words`; and words hold any bit pattern, a row has no padding that could leave them uninitialised.
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
    /// The column at byte `offset` of the row.
    ///
    /// # Safety
    /// `R` has a field of type `T` there, and any bit pattern is a valid `T`. `#[derive(Row)]` calls this.
    pub const unsafe fn new(offset: usize, group: u32) -> Self {
        assert!(offset + size_of::<T>() <= size_of::<R>());
        Column { offset, group, of: PhantomData }
    }

    /// The column's first byte in the row.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// The group whose version covers the column.
    pub const fn group(self) -> u32 {
        self.group
    }

    #[inline(always)]
    fn span(self) -> Span {
        Span::of_bytes(self.offset, self.offset + size_of::<T>())
    }

    #[inline(always)]
    fn groups(self) -> Groups {
        Groups::of(self.group)
    }
}

impl<R: Row, T, const N: usize> Column<R, [T; N]> {
    /// One element of the array.
    ///
    /// # Panics
    /// There is none of this number.
    #[inline(always)]
    pub const fn element(self, number: usize) -> Column<R, T> {
        assert!(number < N, "an array has no such element");
        Column { offset: self.offset + number * size_of::<T>(), group: self.group, of: PhantomData }
    }
}

impl<R: Row, T: Copy> Column<R, T> {
    /// The column's value in a row.
    #[inline(always)]
    pub fn get(self, row: &R) -> T {
        // SAFETY: the column lies inside the row (`new`), any bit pattern is a `T`.
        unsafe { std::ptr::from_ref(row).cast::<u8>().add(self.offset).cast::<T>().read_unaligned() }
    }

    /// Gives the column of a row this value.
    #[inline(always)]
    pub fn put(self, row: &mut R, value: T) {
        // SAFETY: the column lies inside the row (`new`), and holds a `T`.
        unsafe { std::ptr::from_mut(row).cast::<u8>().add(self.offset).cast::<T>().write_unaligned(value) }
    }
}

/// A run of words of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first word.
    pub first: u32,
    /// How many words.
    pub count: u32,
}

impl Span {
    /// The words that hold the bytes from `start` to `end` (exclusive).
    #[inline(always)]
    pub(crate) fn of_bytes(start: usize, end: usize) -> Span {
        let first = start / 8;
        Span { first: first as u32, count: (end.div_ceil(8) - first) as u32 }
    }

    /// The words' positions in the row.
    #[inline(always)]
    pub fn words(self) -> std::ops::Range<usize> {
        self.first as usize..(self.first + self.count) as usize
    }
}

/// Which words of a row an access needs, and of which groups they are. Other words are not copied, other groups not validated.
#[derive(Clone, Copy, Debug)]
pub struct Projection<'a> {
    /// The words; none: all words of the groups.
    spans: Option<&'a [Span]>,
    groups: Groups,
}

impl<'a> Projection<'a> {
    /// The whole row.
    pub const WHOLE: Projection<'static> = Projection::of_groups(Groups::ALL);

    /// No word: only whether there is a row.
    pub const EXISTENCE: Projection<'static> = Projection { spans: Some(&[]), groups: Groups::FIRST };

    /// These words of a row whose columns are all of one group. Each span lies inside the row.
    #[inline(always)]
    pub const fn spans(spans: &'a [Span]) -> Self {
        Projection { spans: Some(spans), groups: Groups::ALL }
    }

    /// These words, which are of these groups. Each span lies inside the row.
    #[inline(always)]
    pub const fn columns(spans: &'a [Span], groups: Groups) -> Self {
        Projection { spans: Some(spans), groups }
    }

    /// All words of these groups.
    #[inline(always)]
    pub const fn of_groups(groups: Groups) -> Projection<'static> {
        Projection { spans: None, groups }
    }

    /// The groups that are needed.
    #[inline(always)]
    pub fn groups(self) -> Groups {
        self.groups
    }

    /// The words that are needed, if not all of the groups are.
    #[inline(always)]
    pub(crate) fn words(self) -> Option<&'a [Span]> {
        self.spans
    }
}

/// One or several columns of `R`: a [`Column`], a tuple of them, or [`Whole`].
pub trait Columns<R> {
    /// The values: the column's type, a tuple, or the row.
    type Output;
    /// The groups that the columns are of.
    fn groups(&self) -> Groups;
    /// Calls `with` with the projection of these columns.
    fn project<T>(&self, with: impl FnOnce(Projection<'_>) -> T) -> T;
    /// The values out of a row of which the projection was copied.
    fn extract(&self, row: &[u64]) -> Self::Output;
    /// Calls `change` with the values, and puts what it made of them into the row.
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
