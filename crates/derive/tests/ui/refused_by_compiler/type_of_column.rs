use contend_derive::Row;

use contend_model::Column;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    balance: i64,
}

const _: Column<Account, u64> = Account::BALANCE;

fn main() {}
