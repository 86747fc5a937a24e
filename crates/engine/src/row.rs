//! Rows as typed plain data: columns, and projections of columns.
//!
//! Below this module a row is a sequence of 64-bit words, in the machine's byte order, padded with zeros to a whole word.

use std::marker::PhantomData;

use contend_machine::Machine;

/// What a table knows of a column at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnInfo {
    /// The column's name.
    pub name: &'static str,
    /// Its first byte in the row.
    pub offset: usize,
    /// Its length in bytes.
    pub size: usize,
    /// The group whose version covers it when versions are kept by group.
    pub group: u32,
}

/// A row: plain data with named columns. Derive it.
///
/// # Safety
/// The type is `#[repr(C)]`, without padding, at most 8-byte aligned, and any bit pattern is a valid value of it.
/// `#[derive(Row)]` checks all of it at compile time.
pub unsafe trait Row: Copy + Send + Sync + 'static {
    /// The row's type name.
    const NAME: &'static str;
    /// The columns, in the order of their offsets.
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
        let first = self.offset / 8;
        let end = (self.offset + size_of::<T>()).div_ceil(8);
        Span { first: first as u32, count: (end - first) as u32 }
    }
}

impl<R: Row, T: Copy> Column<R, T> {
    #[inline(always)]
    fn extract(self, row: &[u64]) -> T {
        assert!(row.len() >= R::WORDS);
        // SAFETY: the column lies inside the row (`new`), the row inside the words (the assertion), any bit pattern is a `T`.
        unsafe { row.as_ptr().cast::<u8>().add(self.offset).cast::<T>().read_unaligned() }
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

/// Which words of a row an access needs. The others are neither copied nor, where versions are kept by group, validated.
#[derive(Clone, Copy, Debug)]
pub struct Projection<'a>(Option<&'a [Span]>);

impl<'a> Projection<'a> {
    /// The whole row.
    pub const WHOLE: Projection<'static> = Projection(None);

    /// These words. Each span lies inside the row.
    #[inline(always)]
    pub fn spans(spans: &'a [Span]) -> Self {
        Projection(Some(spans))
    }

    /// Copies the projected words of a record's payload, each to its own place in `to`. What lies between them in `to` is
    /// not defined.
    #[inline(always)]
    pub fn copy_out<M: Machine>(self, payload: &[M::U64], to: &mut [u64]) {
        match self.0 {
            None => M::copy_out(payload, &mut to[..payload.len()]),
            Some(spans) => {
                for span in spans {
                    let words = span.first as usize..(span.first + span.count) as usize;
                    M::copy_out(&payload[words.clone()], &mut to[words]);
                }
            }
        }
    }
}

/// One or several columns of `R`: a [`Column`], a tuple of them, or [`Whole`].
pub trait Columns<R> {
    /// The values: the column's type, a tuple, or the row.
    type Output;
    /// Calls `with` with the projection of these columns.
    fn project<T>(&self, with: impl FnOnce(Projection<'_>) -> T) -> T;
    /// The values out of a row of which the projection was copied.
    fn extract(&self, row: &[u64]) -> Self::Output;
}

/// All columns: the row itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whole;

impl<R: Row> Columns<R> for Whole {
    type Output = R;

    #[inline(always)]
    fn project<T>(&self, with: impl FnOnce(Projection<'_>) -> T) -> T {
        with(Projection::WHOLE)
    }

    #[inline(always)]
    fn extract(&self, row: &[u64]) -> R {
        *R::from_words(row)
    }
}

impl<R: Row, T: Copy> Columns<R> for Column<R, T> {
    type Output = T;

    #[inline(always)]
    fn project<U>(&self, with: impl FnOnce(Projection<'_>) -> U) -> U {
        with(Projection::spans(&[self.span()]))
    }

    #[inline(always)]
    fn extract(&self, row: &[u64]) -> T {
        Column::extract(*self, row)
    }
}

macro_rules! tuple_of_columns {
    ($(($($column:ident)+))*) => {$(
        impl<R: Row, $($column: Copy),+> Columns<R> for ($(Column<R, $column>,)+) {
            type Output = ($($column,)+);

            #[inline(always)]
            fn project<U>(&self, with: impl FnOnce(Projection<'_>) -> U) -> U {
                #[expect(non_snake_case, reason = "the type's name serves as the variable's")]
                let ($($column,)+) = self;
                with(Projection::spans(&[$($column.span()),+]))
            }

            #[inline(always)]
            fn extract(&self, row: &[u64]) -> Self::Output {
                #[expect(non_snake_case, reason = "the type's name serves as the variable's")]
                let ($($column,)+) = self;
                ($($column.extract(row),)+)
            }
        }
    )*};
}

tuple_of_columns! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) (A B C D E F G) (A B C D E F G H) }
