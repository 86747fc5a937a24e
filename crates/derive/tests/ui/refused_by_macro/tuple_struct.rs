use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Pair(u64, u64);

fn main() {}
