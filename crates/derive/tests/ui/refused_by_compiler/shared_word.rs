use contend_derive::Row;

#[derive(Clone, Copy, Row)]
#[repr(C)]
struct Stock {
    item: u32,
    #[group = 1]
    quantity: u32,
}

fn main() {}
