use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    balance: i64,
    open: u8,
}

fn main() {}
