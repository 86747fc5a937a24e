use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
union Either {
    number: u64,
    bytes: [u8; 8],
}

fn main() {}
