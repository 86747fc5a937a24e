use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
enum State {
    Open,
    Closed,
}

fn main() {}
