use contend_derive::Row;

#[derive(Row)]
#[repr(C)]
struct Account {
    open: bool,
    initial: char,
    owner: &'static str,
    notes: Vec<u8>,
    limit: Option<u64>,
}

fn main() {}
