use contend_derive::Row;

#[derive(Clone, Copy)]
#[repr(u8)]
enum State {
    Open,
    Closed,
}

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    state: State,
}

fn main() {}
