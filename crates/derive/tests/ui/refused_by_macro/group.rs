use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Account {
    #[group = "one"]
    a: i64,
    #[group(1)]
    b: i64,
    #[group = 1]
    #[group = 2]
    c: i64,
    #[group = 16]
    d: i64,
}

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Scattered {
    a: i64,
    #[group = 1]
    b: i64,
    c: i64,
}

fn main() {}
