//! Nine tables and two secondary indexes: rows, keys, groups of columns.
//!
//! Money is in cents, rates are in ten-thousandths. Warehouses count from 1, districts from 1 to
//! 10, everything else as in the standard.
//!
//! Columns that are often written form groups by the transaction that writes them. Payment writes
//! the year-to-date columns of a warehouse and of a district; New-Order writes a district's next
//! order number and a stock's quantity; Payment and Delivery write a customer's balance. Columns
//! that are only read are in other groups.

use contend_derive::Row;
use contend_model::{IndexKind, Key, KeyWords, TableSpec, Tables, TypedTable};

use super::TpccOptions;

/// Districts of a warehouse.
pub(crate) const DISTRICTS: u64 = 10;
/// Bits of a customer's number, in keys.
const CUSTOMER_BITS: u32 = 12;
/// Bits of an order's number, in keys.
const ORDER_BITS: u32 = 32;
/// Bits of a line's number, in keys.
const LINE_BITS: u32 = 4;
/// Bits of an item's number, in keys.
const ITEM_BITS: u32 = 20;

/// Returns the key of a district, which is part of most other keys.
pub(crate) fn district_key(warehouse: u64, district: u64) -> u64 {
    warehouse << 4 | district
}

pub(crate) fn customer_key(district: u64, customer: u64) -> u64 {
    district << CUSTOMER_BITS | customer
}

pub(crate) fn stock_key(warehouse: u64, item: u64) -> u64 {
    warehouse << ITEM_BITS | item
}

/// Returns the key of an order in the tables ORDER and NEW-ORDER.
pub(crate) fn order_key(district: u64, order: u64) -> u64 {
    district << ORDER_BITS | order
}

/// Returns the order's number in an [`order_key`].
pub(crate) fn order_number(key: u64) -> u64 {
    key & ((1 << ORDER_BITS) - 1)
}

/// Returns the key of line 1 to 15 of an order. Line 0 sorts before all of them.
pub(crate) fn line_key(order_key: u64, line: u64) -> u64 {
    order_key << LINE_BITS | line
}

/// Returns a key of the secondary index from customers to their orders.
pub(crate) fn customer_order_key(customer_key: u64, order: u64) -> u64 {
    customer_key << ORDER_BITS | order
}

/// Returns the parts of a key of a table, the first part first.
pub(crate) fn key_parts(table: &str, key: u64) -> Vec<(String, u64)> {
    // From the low end; the warehouse has the rest.
    let (customer, order) = (("customer", CUSTOMER_BITS), ("order", ORDER_BITS));
    let district = ("district", 4);
    let parts: &[(&str, u32)] = match table {
        "district" => &[district],
        "customer" => &[customer, district],
        "new_order" | "order" => &[order, district],
        "order_line" => &[("line", LINE_BITS), order, district],
        "stock" => &[("item", ITEM_BITS)],
        _ => return Vec::new(),
    };
    let mut rest = key;
    let mut named: Vec<(String, u64)> = Vec::new();
    for (name, bits) in parts {
        named.push((name.to_string(), rest & ((1 << bits) - 1)));
        rest >>= bits;
    }
    named.push(("warehouse".into(), rest));
    named.reverse();
    named
}

/// A key of the secondary index from last names to customers: district, name, and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NameKey {
    pub(crate) district: u64,
    pub(crate) last: [u8; 16],
    pub(crate) customer: u64,
}

impl Key for NameKey {
    const WORDS: usize = 4;
    const MIN: Self = NameKey { district: 0, last: [0; 16], customer: 0 };
    const MAX: Self = NameKey { district: u64::MAX, last: [u8::MAX; 16], customer: u64::MAX };

    #[inline(always)]
    fn to_words(self) -> KeyWords {
        let name = u128::from_be_bytes(self.last);
        [self.district, (name >> 64) as u64, name as u64, self.customer]
    }

    #[inline(always)]
    fn from_words([district, high, low, customer]: KeyWords) -> Self {
        let last = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        NameKey { district, last, customer }
    }

    fn name(self) -> String {
        // A letter sorts after the colon, so names sort as keys do.
        let name = String::from_utf8_lossy(&self.last);
        format!("{:08x}:{}:{:016x}", self.district, name.trim_end_matches('\0'), self.customer)
    }
}

/// A postal address.
#[derive(Clone, Copy, Debug, zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable)]
#[repr(C)]
pub(crate) struct Address {
    pub(crate) street_1: [u8; 20],
    pub(crate) street_2: [u8; 20],
    pub(crate) city: [u8; 20],
    pub(crate) state: [u8; 2],
    pub(crate) zip: [u8; 9],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct Warehouse {
    pub(crate) tax: u32,
    pub(crate) name: [u8; 10],
    pub(crate) address: Address,
    pub(crate) fill: [u8; 3],
    #[group = 1]
    pub(crate) ytd: i64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct District {
    pub(crate) tax: u32,
    pub(crate) name: [u8; 10],
    pub(crate) address: Address,
    pub(crate) fill: [u8; 3],
    #[group = 1]
    pub(crate) ytd: i64,
    #[group = 2]
    pub(crate) next_o_id: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct Customer {
    #[group = 1]
    pub(crate) balance: i64,
    #[group = 1]
    pub(crate) ytd_payment: i64,
    #[group = 1]
    pub(crate) payment_cnt: u32,
    #[group = 1]
    pub(crate) delivery_cnt: u32,
    pub(crate) credit_lim: i64,
    pub(crate) since: u64,
    pub(crate) discount: u32,
    pub(crate) credit: [u8; 2],
    pub(crate) middle: [u8; 2],
    pub(crate) last: [u8; 16],
    pub(crate) first: [u8; 16],
    pub(crate) phone: [u8; 16],
    pub(crate) address: Address,
    pub(crate) fill: [u8; 1],
    #[group = 2]
    pub(crate) data: [u8; 500],
    #[group = 2]
    pub(crate) data_fill: [u8; 4],
}

/// A row of the secondary index by name: the column by which customers of one name are sorted.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct CustomerName {
    pub(crate) first: [u8; 16],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct History {
    /// The customer, by [`customer_key`].
    pub(crate) customer: u64,
    /// The district in which the customer paid, by [`district_key`].
    pub(crate) district: u64,
    pub(crate) date: u64,
    pub(crate) amount: i64,
    pub(crate) data: [u8; 24],
}

/// A row of NEW-ORDER, or of the secondary index from customers to orders, whose key says
/// everything.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct Nothing {}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct Order {
    pub(crate) entry_d: u64,
    pub(crate) customer: u32,
    pub(crate) ol_cnt: u16,
    pub(crate) all_local: u16,
    /// 0 until the order is delivered.
    #[group = 1]
    pub(crate) carrier: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct OrderLine {
    pub(crate) item: u32,
    pub(crate) supply_warehouse: u16,
    pub(crate) quantity: u16,
    pub(crate) amount: i64,
    pub(crate) dist_info: [u8; 24],
    /// 0 until the order is delivered.
    pub(crate) delivery_d: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct Item {
    pub(crate) price: u32,
    pub(crate) image: u32,
    pub(crate) name: [u8; 24],
    pub(crate) data: [u8; 50],
    pub(crate) fill: [u8; 2],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
pub(crate) struct Stock {
    #[group = 1]
    pub(crate) quantity: i32,
    #[group = 1]
    pub(crate) ytd: u32,
    #[group = 1]
    pub(crate) order_cnt: u32,
    #[group = 1]
    pub(crate) remote_cnt: u32,
    pub(crate) data: [u8; 50],
    pub(crate) dist: [[u8; 24]; DISTRICTS as usize],
    pub(crate) fill: [u8; 6],
}

/// The tables.
#[derive(Debug)]
pub(crate) struct Schema {
    pub(crate) warehouse: TypedTable<Warehouse>,
    pub(crate) district: TypedTable<District>,
    pub(crate) customer: TypedTable<Customer>,
    pub(crate) customer_by_name: TypedTable<CustomerName, NameKey>,
    pub(crate) history: TypedTable<History>,
    pub(crate) new_order: TypedTable<Nothing>,
    pub(crate) order: TypedTable<Order>,
    pub(crate) order_by_customer: TypedTable<Nothing>,
    pub(crate) order_line: TypedTable<OrderLine>,
    pub(crate) item: TypedTable<Item>,
    pub(crate) stock: TypedTable<Stock>,
}

/// Returns the specifications. Tables that are scanned have an ordered index; `index` is that of
/// the others.
fn specs(options: &TpccOptions, index: IndexKind) -> [TableSpec; 11] {
    let districts = (options.warehouses * DISTRICTS) as usize;
    let customers = districts * options.customers as usize;
    let ordered = IndexKind::Ordered;
    // The keys of two districts differ above these bits.
    let apart = |bits: u32| if options.apart { bits } else { u64::BITS };
    let together = |spec: TableSpec, bits: u32| TableSpec { apart: apart(bits), ..spec };
    [
        TableSpec::of::<Warehouse>("warehouse", index, options.warehouses as usize),
        TableSpec::of::<District>("district", index, districts),
        TableSpec::of::<Customer>("customer", index, customers),
        together(TableSpec::of::<CustomerName>("customer_by_name", ordered, customers).keyed::<NameKey>(), 0),
        // Each client appends rows in a range of its own, so that no client waits for another's
        // leaf.
        together(TableSpec::of::<History>("history", ordered, customers), super::HISTORY_BITS),
        together(TableSpec::of::<Nothing>("new_order", ordered, customers * 3 / 10), ORDER_BITS),
        together(TableSpec::of::<Order>("order", ordered, customers), ORDER_BITS),
        together(TableSpec::of::<Nothing>("order_by_customer", ordered, customers), CUSTOMER_BITS + ORDER_BITS),
        together(TableSpec::of::<OrderLine>("order_line", ordered, customers * 10), ORDER_BITS + LINE_BITS),
        TableSpec::of::<Item>("item", index, options.items as usize),
        TableSpec::of::<Stock>("stock", index, (options.warehouses * options.items) as usize),
    ]
}

/// Returns the specifications, for an estimate of memory.
pub(crate) fn table_specs(options: &TpccOptions, index: IndexKind) -> Vec<TableSpec> {
    specs(options, index).into()
}

impl Schema {
    pub(crate) fn create<S: Tables>(options: &TpccOptions, index: IndexKind, store: &S) -> Self {
        let [warehouse, district, customer, by_name, history, new_order, order, by_customer, line, item, stock] =
            specs(options, index);
        Schema {
            warehouse: store.create_typed(&warehouse),
            district: store.create_typed(&district),
            customer: store.create_typed(&customer),
            customer_by_name: store.create_typed(&by_name),
            history: store.create_typed(&history),
            new_order: store.create_typed(&new_order),
            order: store.create_typed(&order),
            order_by_customer: store.create_typed(&by_customer),
            order_line: store.create_typed(&line),
            item: store.create_typed(&item),
            stock: store.create_typed(&stock),
        }
    }
}
