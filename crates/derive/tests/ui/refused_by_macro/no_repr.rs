use contend_derive::Row;

#[derive(Clone, Copy, Row)]
struct Account {
    balance: i64,
}

fn main() {}
