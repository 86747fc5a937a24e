mod bank {
    use contend_derive::Row;

    #[derive(Clone, Copy, Row)]
    #[repr(C)]
    pub struct Account {
        balance: i64,
    }
}

const _: usize = bank::Account::BALANCE.offset();

fn main() {}
