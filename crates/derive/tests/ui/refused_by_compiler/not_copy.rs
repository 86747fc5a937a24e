use contend_derive::Row;

#[derive(Row)]
#[repr(C)]
struct Account {
    balance: i64,
}

fn main() {}
