//! Updates as data: operations on rows that a transaction hands over instead of reading the row
//! itself.
//!
//! An [`Update`] is plain data with a function. A transaction that only adds to a balance need not
//! know the balance. With commit-time updates (Y. Huang, W. Qian, E. Kohler, B. Liskov, L. Shrira:
//! "Opportunities for optimism in contended main-memory multicore transactions", VLDB 2020, section
//! 5) it reads nothing, and nothing is validated. The operation is applied at commit, while the
//! row's cell is locked, to the row as it is then. Without them, an update is a read and a write.
//!
//! A log keeps the value that an update left, or the difference that it made to each word if the
//! update commutes. It never keeps the operation itself.

use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::group::Groups;
use crate::row::{Column, Row};

/// An operation on rows `R`: plain data.
///
/// `apply` is deterministic and total: it must handle any row, because nothing guarantees that the
/// row is as the transaction expects. It reads and changes columns of its own
/// [`groups`](Update::groups) only. The contents of other columns are undefined.
///
/// ```
/// use contend_model::{Groups, Row, Update};
/// # use contend_derive::Row;
/// #[derive(Clone, Copy, Row)]
/// #[repr(C)]
/// struct Auction {
///     seller: u64,
///     #[group = 1]
///     best: u64,
///     #[group = 1]
///     bidder: u64,
/// }
///
/// /// A bid: stands if it is the highest.
/// #[derive(Clone, Copy)]
/// struct Bid {
///     amount: u64,
///     bidder: u64,
/// }
///
/// impl Update<Auction> for Bid {
///     fn groups(&self) -> Groups {
///         Groups::of(Auction::BEST.group())
///     }
///
///     fn apply(&self, auction: &mut Auction) {
///         if self.amount > auction.best {
///             auction.best = self.amount;
///             auction.bidder = self.bidder;
///         }
///     }
/// }
/// ```
pub trait Update<R: Row>: Copy + Send + Sync + 'static {
    /// Returns the groups of the columns that `apply` reads or changes.
    fn groups(&self) -> Groups;
    /// Changes a row.
    fn apply(&self, row: &mut R);

    /// Whether the update commutes with every update of the same groups that commutes as well: the
    /// row is the same in whatever order they are applied. Additions commute.
    fn commutes(&self) -> bool {
        false
    }
}

/// Whole numbers, for [`Column::add`] and its kin. Arithmetic wraps around.
pub trait Number: Copy + Ord + Send + Sync + 'static {
    /// Returns the sum, modulo two to the number of bits.
    fn plus(self, other: Self) -> Self;
    /// Returns the difference, modulo two to the number of bits.
    fn minus(self, other: Self) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Number for $number {
            #[inline(always)]
            fn plus(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn minus(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 i8 i16 i32 i64 }

/// An update that replaces a column's value: the result of [`Column::set`].
pub struct Set<R, T> {
    column: Column<R, T>,
    value: T,
}

impl<R, T: Copy> Clone for Set<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T: Copy> Copy for Set<R, T> {}

impl<R: Row, T: Copy + Send + Sync + 'static> Update<R> for Set<R, T> {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(self.column.group())
    }

    #[inline(always)]
    fn apply(&self, row: &mut R) {
        self.column.put(row, self.value);
    }
}

/// The operator of an [`Arithmetic`]: it takes the column's value and the update's own.
#[derive(Clone, Copy, Debug)]
enum Operator {
    Add,
    Subtract,
    Max,
    Min,
}

/// An update that computes a column's new value from the old one: the result of [`Column::add`],
/// [`Column::subtract`], [`Column::max`] and [`Column::min`]. Updates of one kind commute.
pub struct Arithmetic<R, T> {
    column: Column<R, T>,
    operator: Operator,
    value: T,
}

impl<R, T: Copy> Clone for Arithmetic<R, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, T: Copy> Copy for Arithmetic<R, T> {}

impl<R: Row, T: Number> Update<R> for Arithmetic<R, T> {
    #[inline(always)]
    fn groups(&self) -> Groups {
        Groups::of(self.column.group())
    }

    #[inline(always)]
    fn apply(&self, row: &mut R) {
        let old = self.column.get(row);
        self.column.put(
            row,
            match self.operator {
                Operator::Add => old.plus(self.value),
                Operator::Subtract => old.minus(self.value),
                Operator::Max => old.max(self.value),
                Operator::Min => old.min(self.value),
            },
        );
    }

    /// Sums commute with each other. Maxima commute among themselves, but not with sums.
    #[inline(always)]
    fn commutes(&self) -> bool {
        matches!(self.operator, Operator::Add | Operator::Subtract)
    }
}

impl<R: Row, T: Number> Column<R, T> {
    const fn arithmetic(self, operator: Operator, value: T) -> Arithmetic<R, T> {
        Arithmetic { column: self, operator, value }
    }

    /// Returns an update that adds to the column, and wraps around.
    pub const fn add(self, value: T) -> Arithmetic<R, T> {
        self.arithmetic(Operator::Add, value)
    }

    /// Returns an update that subtracts from the column, and wraps around.
    pub const fn subtract(self, value: T) -> Arithmetic<R, T> {
        self.arithmetic(Operator::Subtract, value)
    }

    /// Returns an update that raises the column to `value`, unless it is larger.
    pub const fn max(self, value: T) -> Arithmetic<R, T> {
        self.arithmetic(Operator::Max, value)
    }

    /// Returns an update that lowers the column to `value`, unless it is smaller.
    pub const fn min(self, value: T) -> Arithmetic<R, T> {
        self.arithmetic(Operator::Min, value)
    }
}

impl<R: Row, T: Copy> Column<R, T> {
    /// Returns an update that overwrites the column: the last transaction to commit wins.
    pub const fn set(self, value: T) -> Set<R, T> {
        Set { column: self, value }
    }
}

/// An update that appends bytes to a column: the result of [`Column::append`].
pub struct Append<R, const N: usize, const ADDED: usize> {
    column: Column<R, [u8; N]>,
    added: [u8; ADDED],
}

impl<R, const N: usize, const ADDED: usize> Clone for Append<R, N, ADDED> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, const N: usize, const ADDED: usize> Copy for Append<R, N, ADDED> {}

impl<R: Row, const N: usize> Column<R, [u8; N]> {
    /// Returns an update that appends bytes behind the last byte that is not 0. It appends as many
    /// as there is room for, and drops the rest.
    pub const fn append<const ADDED: usize>(self, added: [u8; ADDED]) -> Append<R, N, ADDED> {
        Append { column: self, added }
    }
}

impl<R: Row, const N: usize, const ADDED: usize> Update<R> for Append<R, N, ADDED> {
    #[inline]
    fn groups(&self) -> Groups {
        Groups::of(self.column.group())
    }

    fn apply(&self, row: &mut R) {
        let mut bytes = self.column.get(row);
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        let room = (N - end).min(ADDED);
        bytes[end..end + room].copy_from_slice(&self.added[..room]);
        self.column.put(row, bytes);
    }
}

macro_rules! tuple_of_updates {
    ($(($($update:ident)+))*) => {$(
        #[expect(non_snake_case, reason = "the type's name serves as the variable's")]
        impl<R: Row, $($update: Update<R>),+> Update<R> for ($($update,)+) {
            #[inline(always)]
            fn groups(&self) -> Groups {
                let ($($update,)+) = self;
                Groups::NONE$(.union($update.groups()))+
            }

            #[inline(always)]
            fn apply(&self, row: &mut R) {
                let ($($update,)+) = self;
                $($update.apply(row);)+
            }

            #[inline(always)]
            fn commutes(&self) -> bool {
                let ($($update,)+) = self;
                $($update.commutes())&&+
            }
        }
    )*};
}

tuple_of_updates! { (A) (A B) (A B C) (A B C D) (A B C D E) (A B C D E F) }

/// An update that adds to a word of a row without a type, and wraps around.
#[derive(Clone, Copy, Debug)]
pub struct AddToWord {
    /// The group of the word.
    pub groups: Groups,
    /// The number of the word in the row.
    pub word: usize,
    /// The number to add.
    pub value: u64,
}

/// An operation of [`WordChanges`] on a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordOperation {
    /// Adds, and wraps around.
    Add,
    /// Replaces.
    Set,
}

/// Changes of the words of a row without a type, as one update. The same value is used again and
/// again, so that nothing is allocated.
#[derive(Clone, Debug, Default)]
pub struct WordChanges {
    /// The number of changes. Then, for each, its word (with [`SET`](WordChanges::SET) if it
    /// replaces) and its value.
    words: Vec<u64>,
    replaces: bool,
}

impl WordChanges {
    /// The bit of a replacement beside the number of its word.
    const SET: u64 = 1 << 63;

    /// Forgets all changes.
    pub fn clear(&mut self) {
        self.words.clear();
        self.words.push(0);
        self.replaces = false;
    }

    /// Adds a change of the word of this number.
    pub fn push(&mut self, word: u32, operation: WordOperation, value: u64) {
        if self.words.is_empty() {
            self.clear();
        }
        let is_set = operation == WordOperation::Set;
        self.replaces |= is_set;
        self.words[0] += 1;
        self.words.push(u64::from(word) | if is_set { Self::SET } else { 0 });
        self.words.push(value);
    }

    /// Returns the changes as an update of these groups. All changed words belong to them.
    pub fn update(&self, groups: Groups) -> RowUpdate<'_> {
        static NONE: [u64; 1] = [0];
        let words = if self.words.is_empty() { &NONE[..] } else { &self.words };
        RowUpdate::of_words(groups, !self.replaces, words)
    }
}

/// An update of a row whose type is not known any more.
#[derive(Clone, Copy, Debug)]
pub struct RowUpdate<'a> {
    groups: Groups,
    commutes: bool,
    operand: *const u8,
    operand_bytes: usize,
    apply: unsafe fn(*const u8, &mut [u64]),
    of: PhantomData<&'a ()>,
}

/// What a [`RowUpdate`] is made from: plain data that can be copied and kept.
pub trait IntoRowUpdate: Copy {
    /// Returns the update, which borrows this value.
    fn as_row_update(&self) -> RowUpdate<'_>;
}

/// An [`Update`] of rows `R`, as a value by itself.
pub struct UpdateOf<R, U> {
    update: U,
    of: PhantomData<fn(&mut R)>,
}

impl<R, U> UpdateOf<R, U> {
    /// Wraps an update.
    #[inline(always)]
    pub fn new(update: U) -> Self {
        UpdateOf { update, of: PhantomData }
    }
}

impl<R, U: Copy> Clone for UpdateOf<R, U> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<R, U: Copy> Copy for UpdateOf<R, U> {}

impl<R: Row, U: Update<R>> IntoRowUpdate for UpdateOf<R, U> {
    #[inline(always)]
    fn as_row_update(&self) -> RowUpdate<'_> {
        RowUpdate::new(&self.update)
    }
}

/// Replacements of up to [`FewWords::MOST`] words of a row without a type, as one update.
#[derive(Clone, Copy, Debug)]
pub struct FewWords {
    groups: Groups,
    /// As in [`WordChanges`].
    words: [u64; 1 + 2 * FewWords::MOST],
}

impl FewWords {
    /// The most words that are replaced.
    pub const MOST: usize = 8;

    /// Returns an update of these groups that replaces no word.
    #[inline(always)]
    pub fn new(groups: Groups) -> Self {
        FewWords { groups, words: [0; 1 + 2 * Self::MOST] }
    }

    /// Adds a change of the word of this number, which belongs to the groups.
    ///
    /// # Panics
    /// There is no room.
    #[inline(always)]
    pub fn push(&mut self, word: u32, operation: WordOperation, value: u64) {
        let at = 1 + 2 * self.words[0] as usize;
        self.words[at] = u64::from(word) | if operation == WordOperation::Set { WordChanges::SET } else { 0 };
        self.words[at + 1] = value;
        self.words[0] += 1;
    }
}

impl IntoRowUpdate for FewWords {
    #[inline(always)]
    fn as_row_update(&self) -> RowUpdate<'_> {
        let used = 1 + 2 * self.words[0] as usize;
        let commutes = self.words[1..used].as_chunks::<2>().0.iter().all(|change| change[0] & WordChanges::SET == 0);
        RowUpdate::of_words(self.groups, commutes, &self.words[..used])
    }
}

impl<'a> RowUpdate<'a> {
    /// Returns changes of words: their number, and then two words for each; see [`WordChanges`].
    fn of_words(groups: Groups, commutes: bool, words: &'a [u64]) -> Self {
        unsafe fn apply(operand: *const u8, row: &mut [u64]) {
            let words = operand.cast::<u64>();
            // SAFETY: the operand is the number of changes, and two words for each.
            let changes = unsafe { std::slice::from_raw_parts(words.add(1), 2 * *words as usize) };
            for change in changes.as_chunks::<2>().0 {
                let word = &mut row[(change[0] & !WordChanges::SET) as usize];
                *word = if change[0] & WordChanges::SET != 0 { change[1] } else { word.wrapping_add(change[1]) };
            }
        }
        RowUpdate {
            groups,
            commutes,
            operand: words.as_ptr().cast(),
            operand_bytes: 8 * words.len(),
            apply,
            of: PhantomData,
        }
    }

    /// Wraps an update, whose type is then forgotten.
    #[inline(always)]
    pub fn new<R: Row, U: Update<R>>(update: &'a U) -> Self {
        const { assert!(align_of::<U>() <= 8, "an update is aligned to 8 bytes at most") };
        RowUpdate {
            groups: update.groups(),
            commutes: update.commutes(),
            operand: std::ptr::from_ref(update).cast(),
            operand_bytes: size_of::<U>(),
            apply: apply::<R, U>,
            of: PhantomData,
        }
    }

    /// Wraps an update of rows without a type.
    #[inline(always)]
    pub fn add_to_word(update: &'a AddToWord) -> Self {
        unsafe fn apply(operand: *const u8, row: &mut [u64]) {
            // SAFETY: the operand is this update's.
            let update = unsafe { &*operand.cast::<AddToWord>() };
            row[update.word] = row[update.word].wrapping_add(update.value);
        }
        RowUpdate {
            groups: update.groups,
            commutes: true,
            operand: std::ptr::from_ref(update).cast(),
            operand_bytes: size_of::<AddToWord>(),
            apply,
            of: PhantomData,
        }
    }

    /// Returns the groups that the update reads and changes.
    #[inline(always)]
    pub fn groups(self) -> Groups {
        self.groups
    }

    /// Whether the update commutes with others that do ([`Update::commutes`]).
    #[inline(always)]
    pub fn commutes(self) -> bool {
        self.commutes
    }
}

/// # Safety
/// `operand` leads to a `U`.
unsafe fn apply<R: Row, U: Update<R>>(operand: *const u8, row: &mut [u64]) {
    // SAFETY: by the caller's promise.
    unsafe { &*operand.cast::<U>() }.apply(R::from_words_mut(row));
}

/// Updates that wait for the commit, in one list for each write.
#[derive(Debug, Default)]
pub struct PendingUpdates {
    updates: Vec<PendingUpdate>,
    /// The operands, one after the other.
    operands: Vec<MaybeUninit<u64>>,
}

#[derive(Debug)]
struct PendingUpdate {
    apply: unsafe fn(*const u8, &mut [u64]),
    operand: usize,
    next: Option<u32>,
}

/// A list in [`PendingUpdates`]: the positions of its first and its last update.
pub type PendingList = Option<(u32, u32)>;

impl PendingUpdates {
    /// Appends an update to a list.
    #[inline(always)]
    pub fn push(&mut self, list: &mut PendingList, update: RowUpdate<'_>) {
        let operand = self.operands.len();
        let words = update.operand_bytes.div_ceil(8);
        self.operands.resize(operand + words, MaybeUninit::new(0));
        // SAFETY: the source is a live value of `operand_bytes` bytes (as each constructor of a
        // `RowUpdate` sees to), and the target are the words just added. A `Copy` type may be
        // copied bytewise.
        unsafe {
            let target = self.operands.as_mut_ptr().add(operand).cast::<u8>();
            std::ptr::copy_nonoverlapping(update.operand, target, update.operand_bytes);
        }
        let position = self.updates.len() as u32;
        self.updates.push(PendingUpdate { apply: update.apply, operand, next: None });
        *list = Some(match *list {
            None => (position, position),
            Some((first, last)) => {
                self.updates[last as usize].next = Some(position);
                (first, position)
            }
        });
    }

    /// Appends the updates of `other` to a list.
    pub fn append(&mut self, list: &mut PendingList, other: PendingList) {
        *list = match (*list, other) {
            (list, None) => list,
            (None, other) => other,
            (Some((first, last)), Some((next, end))) => {
                self.updates[last as usize].next = Some(next);
                Some((first, end))
            }
        };
    }

    /// Applies a list's updates, in the order in which they were appended.
    #[inline(always)]
    pub fn apply(&self, list: PendingList, row: &mut [u64]) {
        let mut next = list.map(|(first, _)| first);
        while let Some(position) = next {
            let update = &self.updates[position as usize];
            // SAFETY: `push` has copied a value of the type that `apply` expects to this place, and
            // the words are aligned as that type needs (at most 8 bytes).
            unsafe { (update.apply)(self.operands.as_ptr().add(update.operand).cast(), row) };
            next = update.next;
        }
    }

    /// Whether no update was appended since the last [`PendingUpdates::clear`].
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.updates.is_empty()
    }

    /// Forgets all updates. The lists made before must not be used again.
    #[inline(always)]
    pub fn clear(&mut self) {
        self.updates.clear();
        self.operands.clear();
    }
}

impl RowUpdate<'_> {
    /// Applies the update to a row.
    #[inline(always)]
    pub fn apply_to(self, row: &mut [u64]) {
        // SAFETY: the operand is the live value that the constructor was given, of the type that
        // `apply` expects.
        unsafe { (self.apply)(self.operand, row) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contend_derive::Row;

    #[derive(Clone, Copy, Debug, PartialEq, Eq, Row)]
    #[repr(C)]
    struct Wide {
        count: u64,
        small: i8,
        text: [u8; 7],
        #[group = 1]
        sum: i64,
    }

    fn wide() -> Wide {
        Wide { count: 5, small: 120, text: *b"ab\0\0\0\0\0", sum: -3 }
    }

    fn after(update: impl Update<Wide>) -> Wide {
        let mut row = wide();
        update.apply(&mut row);
        row
    }

    #[test]
    fn operations_do_what_they_are_called() {
        assert_eq!(after(Wide::COUNT.add(7)), Wide { count: 12, ..wide() });
        assert_eq!(after(Wide::COUNT.subtract(6)), Wide { count: u64::MAX, ..wide() }, "wraps around");
        assert_eq!(after(Wide::SMALL.add(10)), Wide { small: -126, ..wide() }, "wraps around");
        assert_eq!((after(Wide::SUM.max(2)).sum, after(Wide::SUM.max(-9)).sum), (2, -3));
        assert_eq!((after(Wide::SUM.min(2)).sum, after(Wide::SUM.min(-9)).sum), (-3, -9));
        assert_eq!(after(Wide::TEXT.set(*b"1234567")), Wide { text: *b"1234567", ..wide() });
        assert_eq!(after(Wide::TEXT.append(*b"cd")).text, *b"abcd\0\0\0");
        assert_eq!(after(Wide::TEXT.append(*b"cdefghij")).text, *b"abcdefg", "what does not fit is dropped");
        assert_eq!(
            after((Wide::COUNT.add(1), Wide::SUM.add(1), Wide::SUM.set(9))),
            Wide { count: 6, sum: 9, ..wide() }
        );
    }

    #[test]
    fn operations_name_their_groups() {
        assert_eq!(Wide::COUNT.add(1).groups(), Groups::of(0));
        assert_eq!((Wide::COUNT.add(1), Wide::SUM.max(1)).groups(), Groups::of(0).union(Groups::of(1)));
        assert_eq!(RowUpdate::new(&Wide::SUM.set(1)).groups(), Groups::of(1));
    }

    #[test]
    fn lists_of_updates_keep_apart_and_in_order() {
        let (mut pending, mut first, mut second) = (PendingUpdates::default(), None, None);
        for _ in 0..3 {
            pending.push(&mut first, RowUpdate::new(&Wide::COUNT.add(1)));
            pending.push(&mut second, RowUpdate::new(&(Wide::COUNT.set(100), Wide::SMALL.set(1))));
            pending.push(&mut first, RowUpdate::new(&Wide::TEXT.append(*b"x")));
        }
        pending.push(&mut second, RowUpdate::new(&Wide::COUNT.add(11)));
        let apply = |list| {
            let mut words = vec![0; Wide::WORDS];
            *Wide::from_words_mut(&mut words) = wide();
            pending.apply(list, &mut words);
            *Wide::from_words(&words)
        };
        assert_eq!(apply(first), Wide { count: 8, text: *b"abxxx\0\0", ..wide() });
        assert_eq!(apply(second), Wide { count: 111, small: 1, ..wide() });
        assert_eq!(apply(None), wide());
    }

    #[test]
    fn changes_of_words_are_one_update() {
        let mut changes = WordChanges::default();
        let mut row = [1, 2, 3];
        changes.update(Groups::FIRST).apply_to(&mut row);
        assert_eq!(row, [1, 2, 3], "nothing changes nothing");
        changes.push(0, WordOperation::Add, u64::MAX);
        assert!(changes.update(Groups::FIRST).commutes());
        changes.push(2, WordOperation::Set, 9);
        let mut pending = PendingUpdates::default();
        let mut list = None;
        pending.push(&mut list, changes.update(Groups::FIRST));
        assert!(!changes.update(Groups::FIRST).commutes());
        changes.clear();
        pending.apply(list, &mut row);
        assert_eq!(row, [0, 2, 9], "the changes were copied");
    }
}
