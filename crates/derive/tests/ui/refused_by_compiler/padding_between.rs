use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    open: u8,
    balance: i64,
}

fn main() {}
