//! Layouts that are rows.
#![deny(warnings, missing_docs)]
#![forbid(unsafe_code)]

use contend_derive::Row;
use contend_model::Row as _;

/// Every kind of field, ordered by alignment.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub struct Wide {
    /// In another group.
    #[group = 3]
    pub b: f64,
    /// Documented.
    pub a: u64,
    /// An array.
    pub c: [[u16; 2]; 3],
    /// Small ones.
    pub d: u16,
    /// Small ones.
    pub r#type: i8,
    /// Fill.
    pub _fill: [u8; 9],
}

/// No columns.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub struct Empty {}

/// Without gaps whatever the order.
#[derive(Clone, Copy, Row)]
#[repr(C, packed)]
pub struct Packed {
    /// One byte.
    pub a: u8,
    /// Eight, not aligned.
    pub b: u64,
}

/// Three bytes: not a whole word.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub struct Short {
    /// Three bytes.
    pub a: [u8; 3],
}

fn main() {
    assert_eq!(Wide::NAME, "Wide");
    assert_eq!(Wide::WORDS, 5);
    let columns: Vec<_> = Wide::COLUMNS.iter().map(|c| (c.name, c.offset, c.size, c.group)).collect();
    assert_eq!(
        columns,
        [("b", 0, 8, 3), ("a", 8, 8, 0), ("c", 16, 12, 0), ("d", 28, 2, 0), ("type", 30, 1, 0), ("_fill", 31, 9, 0)],
    );
    assert_eq!((Wide::TYPE.offset(), Wide::B.group(), Wide::_FILL.offset()), (30, 3, 31));
    assert_eq!((Empty::WORDS, Empty::COLUMNS.len()), (0, 0));
    assert_eq!((Packed::B.offset(), Packed::WORDS), (1, 2));
    assert_eq!(Short::WORDS, 1);
}
