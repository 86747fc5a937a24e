//! Columns whose constants have the names of the trait's own.
use contend_derive::Row;
use contend_model::{Column, Row};

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Ward {
    name: [u8; 8],
    columns: u64,
    words: u64,
}

fn name_of<R: Row>() -> &'static str {
    R::NAME
}

fn main() {
    let name: Column<Ward, [u8; 8]> = Ward::NAME;
    assert_eq!(name.offset(), 0);
    assert_eq!((Ward::COLUMNS.offset(), Ward::WORDS.offset()), (8, 16));
    assert_eq!(name_of::<Ward>(), "Ward");
    assert_eq!(<Ward as Row>::WORDS, 3);
}
