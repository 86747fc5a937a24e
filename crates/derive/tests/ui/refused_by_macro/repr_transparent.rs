use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(transparent)]
struct Account {
    balance: i64,
}

fn main() {}
