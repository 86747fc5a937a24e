//! Column types of the user's own.
use contend_derive::Row;
use contend_model::{Columns, Whole};

#[derive(Clone, Copy, Debug, PartialEq, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(transparent)]
struct Cents(i64);

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    owner: u64,
    balance: Cents,
}

fn main() {
    let words = [7, (-5i64) as u64];
    assert_eq!(Account::BALANCE.extract(&words), Cents(-5));
    assert_eq!((Account::OWNER, Account::BALANCE).extract(&words), (7, Cents(-5)));
    assert_eq!(Columns::<Account>::extract(&Whole, &words).owner, 7);
}
