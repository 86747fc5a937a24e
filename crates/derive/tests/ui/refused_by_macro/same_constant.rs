use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
#[allow(non_snake_case)]
struct Account {
    balance: i64,
    Balance: i64,
}

fn main() {}
