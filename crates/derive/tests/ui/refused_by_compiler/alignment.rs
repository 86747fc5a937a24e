use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    balance: u128,
}

fn main() {}
