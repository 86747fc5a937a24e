//! `#[derive(Row)]`: makes a struct of plain data a row of a table, and a constant of each of its
//! fields.
//!
//! This crate must not know how rows are stored. The code that it generates names `Row`, `Column`
//! and `ColumnInfo` through the crate that the user depends on: `contend`, `contend-engine` or
//! `contend-model`.

mod row;

use proc_macro::TokenStream;

/// Makes a `#[repr(C)]` struct with named fields a row.
///
/// The struct also derives `Clone` and `Copy`. Its fields are plain data: integers, floats, arrays
/// of these, and types that implement zerocopy's `FromBytes`, `IntoBytes` and `Immutable`. There
/// must be no padding between the fields or behind them, and no alignment above 8. All of it is
/// checked at compile time, so no `unsafe` is left to the user.
///
/// Each field becomes a column: an associated constant with the field's name in capitals. `#[group
/// = 1]` puts a column into another group than 0, up to 15. The columns of a group are read for a
/// change, written and validated together. They share a version where versions are kept by group
/// (timestamp splitting). So put columns that are written together into one group, and separate
/// columns that are often written from those that are often read. A group's columns stand together,
/// and groups begin at multiples of 8 bytes.
///
/// ```
/// # use contend_model::Row as _;
/// use contend_derive::Row;
///
/// #[derive(Clone, Copy, Row)]
/// #[repr(C)]
/// struct Warehouse {
///     tax: i64,
///     #[group = 1]
///     year_to_date: i64,
/// }
///
/// assert_eq!(Warehouse::COLUMNS[1].name, "year_to_date");
/// assert_eq!(Warehouse::YEAR_TO_DATE.offset(), 8);
/// assert_eq!(Warehouse::YEAR_TO_DATE.group(), 1);
/// ```
///
/// # What is refused
///
/// Groups that share a word, or that do not stand together.
///
/// ```compile_fail
/// # use contend_derive::Row;
/// #[derive(Clone, Copy, Row)]
/// #[repr(C)]
/// struct Stock {
///     item: u32,
///     #[group = 1]
///     quantity: u32,
/// }
/// ```
///
/// Padding: bytes without a value can't be copied word by word.
///
/// ```compile_fail
/// #[derive(Clone, Copy, contend_derive::Row)]
/// #[repr(C)]
/// struct Account {
///     open: u8, // seven bytes of padding follow; put `open` last, and `_fill: [u8; 7]` behind it
///     balance: i64,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(Clone, Copy, contend_derive::Row)]
/// #[repr(C)]
/// struct Account {
///     balance: i64,
///     open: u8, // here they are behind the last column
/// }
/// ```
///
/// Types for which some bit pattern is not a value:
///
/// ```compile_fail
/// #[derive(Clone, Copy)]
/// #[repr(u8)]
/// enum State {
///     Open,
///     Closed,
/// }
///
/// #[derive(Clone, Copy, contend_derive::Row)]
/// #[repr(C)]
/// struct Account {
///     state: State,
/// }
/// ```
///
/// An alignment above 8, because rows lie at multiples of 8 bytes:
///
/// ```compile_fail
/// #[derive(Clone, Copy, contend_derive::Row)]
/// #[repr(C)]
/// struct Account {
///     balance: u128,
/// }
/// ```
///
/// Structs without `#[repr(C)]`, with parameters, or with fields that have no names; enums; unions;
/// two columns whose names are the same in capitals.
#[proc_macro_derive(Row, attributes(group))]
pub fn derive_row(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    row::expand(&input).unwrap_or_else(|error| error.into_compile_error()).into()
}
