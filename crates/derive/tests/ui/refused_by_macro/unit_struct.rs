use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Nothing;

fn main() {}
