use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Cell<T> {
    value: T,
}

fn main() {}
