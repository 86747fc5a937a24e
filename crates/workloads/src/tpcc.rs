//! TPC-C in full: nine tables, five transactions, and all of the standard's consistency conditions.
//!
//! "TPC Benchmark C, standard specification, revision 5.11" (Transaction Processing Performance
//! Council, 2010), without terminals. There are no keying and think times, so a few warehouses keep
//! all threads busy. The only output is what the transactions return.
//!
//! | module | contents |
//! | --- | --- |
//! | `schema` | rows, keys, groups of columns |
//! | `random` | the standard's random numbers and strings |
//! | `load` | the population |
//! | `new_order`, `payment`, `order_status`, `delivery`, `stock_level` | one transaction each: its pieces, its input and its body |
//! | `last_order_status` | one more transaction, which the standard does not have |
//! | `updates` | the updates that change rows without reading them |
//! | `consistency` | the conditions, checked after a run |
//!
//! A transaction cancels itself only where the standard says so: a New-Order that asks for an
//! unknown item. Whatever else should not be is a suspicion, which counts if the transaction
//! commits.
//!
//! A transaction whose weight is 0 never runs. It declares no pieces, because pieces that never run
//! would need an order as well.
//!
//! # Departures from the standard
//! - Delivery runs at once, not deferred; it skips a district that has no new order.
//! - Stocks and balances are changed by updates, whose results the transactions do not see. So the
//!   standard's terminal could not show S_QUANTITY and C_BALANCE.
//! - Dates are numbers that a client counts up, so that a run of one thread is always the same.
//! - The population may be smaller than the standard's (`tpcc.items`, `tpcc.customers`).

mod consistency;
mod delivery;
mod last_order_status;
mod load;
mod new_order;
mod order_status;
mod payment;
mod random;
mod schema;
mod stock_level;
#[cfg(test)]
mod tests;
mod updates;

use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};

use contend_model::options::Fraction;
use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, Direction, IndexKind, Inspect, KeyWords, Load, OutOfMemory, TableSpec,
    Tables, Txn, Types, options,
};

use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};
use random::Random;
use schema::{CustomerName, DISTRICTS, NameKey, Schema};

options! {
    /// TPC-C's options.
    pub struct TpccOptions {
        /// Warehouses.
        "tpcc.warehouses" warehouses: u64 = 1, in 1..=10_000;
        /// Items, and stocks of each warehouse; the standard's number is 100,000.
        "tpcc.items" items: u64 = 100_000, in 100..=100_000;
        /// Customers of each district, and the number of its orders at the start; the standard's
        /// number is 3,000.
        "tpcc.customers" customers: u64 = 3_000, in 10..=3_000;
        /// Weight of New-Order among the transactions.
        "tpcc.new_order" new_order: u64 = 45, in 0..=1_000;
        /// Weight of Payment.
        "tpcc.payment" payment: u64 = 43, in 0..=1_000;
        /// Weight of Order-Status.
        "tpcc.order_status" order_status: u64 = 4, in 0..=1_000;
        /// Weight of Delivery.
        "tpcc.delivery" delivery: u64 = 4, in 0..=1_000;
        /// Weight of Stock-Level.
        "tpcc.stock_level" stock_level: u64 = 4, in 0..=1_000;
        /// Weight of Last-Order-Status, which is not in the standard: it reads the newest order of
        /// a district.
        "tpcc.last_order_status" last_order_status: u64 = 0, in 0..=1_000;
        /// Whether all transactions of a thread use one warehouse, assigned to the threads in turn;
        /// otherwise each transaction draws one.
        "tpcc.home" home: bool = true, in ();
        /// The fraction of order lines that another warehouse supplies.
        "tpcc.remote_lines" remote_lines: Fraction = Fraction(0.01), in ();
        /// The fraction of payments by customers of another warehouse.
        "tpcc.remote_payments" remote_payments: Fraction = Fraction(0.15), in ();
        /// The fraction of customers, in Payment and Order-Status, that are found by last name.
        "tpcc.by_name" by_name: Fraction = Fraction(0.6), in ();
        /// The fraction of New-Orders that ask for an item that does not exist, and roll back.
        "tpcc.rollback" rollback: Fraction = Fraction(0.01), in ();
        /// Whether keys of different districts never share a leaf of an ordered index
        /// (contention-aware indexes).
        "tpcc.apart" apart: bool = true, in ();
        /// Seed of the population.
        "tpcc.population_seed" population_seed: u64 = 42, in 0..=u64::MAX;
    }
}

const SOURCE: &str = "TPC Benchmark C, standard specification, revision 5.11, 2010";
const IC3: &str =
    "Wang, Mu, Cui, Yi, Chen, Li: Scaling multicore databases via constrained parallel execution, SIGMOD 2016";

/// TPC-C and its variants in a list.
pub const INFOS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "tpcc",
        summary: "orders, payments and deliveries of a wholesaler: the standard mix 45/43/4/4/4",
        source: SOURCE,
        preset: &[],
    },
    WorkloadInfo {
        name: "tpcc-np",
        summary: "New-Order and Payment only, 50/50, as DBx1000 and CCBench measure it",
        source: "Yu, Bezerra, Pavlo, Devadas, Stonebraker: Staring into the abyss, VLDB 2014",
        preset: &[
            ("tpcc.new_order", "50"),
            ("tpcc.payment", "50"),
            ("tpcc.order_status", "0"),
            ("tpcc.delivery", "0"),
            ("tpcc.stock_level", "0"),
        ],
    },
    WorkloadInfo {
        name: "tpcc-ic3-no",
        summary: "New-Order only, as IC3's paper measures it",
        source: IC3,
        preset: &[
            ("tpcc.new_order", "1"),
            ("tpcc.payment", "0"),
            ("tpcc.order_status", "0"),
            ("tpcc.delivery", "0"),
            ("tpcc.stock_level", "0"),
        ],
    },
    WorkloadInfo {
        name: "tpcc-los",
        summary: "New-Order, and a reader of each district's newest order, 50/50, as IC3's paper measures it",
        source: IC3,
        preset: &[
            ("tpcc.new_order", "50"),
            ("tpcc.payment", "0"),
            ("tpcc.order_status", "0"),
            ("tpcc.delivery", "0"),
            ("tpcc.stock_level", "0"),
            ("tpcc.last_order_status", "50"),
        ],
    },
    WorkloadInfo {
        name: "tpcc-small",
        summary: "the standard mix on a small population: 1,000 items, 300 customers a district",
        source: SOURCE,
        preset: &[("tpcc.items", "1000"), ("tpcc.customers", "300")],
    },
];

/// Returns the weights of the transactions, in the order of their types.
fn weights(options: &TpccOptions) -> [u64; KINDS] {
    let TpccOptions { new_order, payment, order_status, delivery, stock_level, last_order_status, .. } = *options;
    [new_order, payment, order_status, delivery, stock_level, last_order_status]
}

/// Bits of the number that a client gives its own history rows, in keys; the client's number is
/// above.
pub(crate) const HISTORY_BITS: u32 = 40;

/// Deliberate bugs, all off by default. A test turns one on to show that the check finds it; see
/// [`Sound`].
pub trait Faults: Send + Sync + 'static {
    /// Delivery skips the oldest new order, and delivers the next.
    const SKIP_OLDEST_ORDER: bool = false;
}

/// No fault: the transactions are as in the standard.
#[derive(Debug)]
pub struct Sound;

impl Faults for Sound {}

/// The way in which a transaction names a customer.
#[derive(Clone, Copy, Debug)]
enum NamedBy {
    /// By its number.
    Number(u64),
    /// By its last name.
    Name([u8; 16]),
}

/// A transaction's parameters.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a client, drawn again and again: a box would be an allocation each time"
)]
pub enum Input {
    #[doc(hidden)]
    NewOrder(new_order::Input),
    #[doc(hidden)]
    Payment(payment::Input),
    #[doc(hidden)]
    OrderStatus(order_status::Input),
    #[doc(hidden)]
    Delivery(delivery::Input),
    #[doc(hidden)]
    StockLevel(stock_level::Input),
    #[doc(hidden)]
    LastOrderStatus(last_order_status::Input),
}

impl Default for Input {
    fn default() -> Self {
        Input::StockLevel(stock_level::Input::default())
    }
}

/// A worker's generator of inputs, and its memory of what it committed.
#[derive(Debug)]
pub struct Client {
    number: u64,
    random: Random,
    home: u64,
    /// Counts the inputs drawn, and serves as the date.
    clock: u64,
    /// The home warehouse's district whose stock level this client asks for (clause 2.8.1.1).
    stock_level_district: u64,
    /// An inconsistency that the running execution found; it counts if the transaction commits.
    suspicion: Option<String>,
    books: Books,
    /// Buffers of the running transaction, reused by the next.
    scratch: Scratch,
}

/// A client's memory of its committed transactions.
#[derive(Clone, Debug, Default)]
struct Books {
    /// The first inconsistency that a committed transaction saw.
    wrong: Option<String>,
    /// The number of delivered orders, by a district's position.
    delivered: Vec<u64>,
    /// The quantities ordered, by the warehouse that supplies them.
    ordered: Vec<u64>,
    /// The number of payments.
    payments: u64,
}

#[derive(Clone, Debug, Default)]
struct Scratch {
    keys: Vec<u64>,
    items: Vec<u32>,
    offers: Vec<new_order::Offer>,
    infos: Vec<[u8; 24]>,
    brands: Vec<bool>,
    /// The orders that the running transaction delivers.
    deliveries: Vec<delivery::Delivered>,
    names: Vec<([u8; 16], u64)>,
}

/// The number of transaction types.
const KINDS: usize = 6;

/// The workload.
#[derive(Debug)]
pub struct Tpcc<F = Sound> {
    options: TpccOptions,
    tables: Schema,
    /// The cumulative weights, by type.
    weights: [u64; KINDS],
    /// For each district: a number below which committed deliveries have left no new order. A
    /// delivery takes the oldest, so the deliveries of lower ones have committed before it.
    oldest_new_orders: Box<[AtomicU64]>,
    faults: PhantomData<fn() -> F>,
}

impl<F: Faults> Tpcc<F> {
    /// Returns the position of the district with this key among the districts of all warehouses.
    fn district_position(district: u64) -> usize {
        ((district >> 4) - 1) as usize * DISTRICTS as usize + (district & 15) as usize - 1
    }

    fn home(&self, client: &mut Client) -> u64 {
        if self.options.home { client.home } else { client.random.uniform(1, self.options.warehouses) }
    }

    /// Draws another warehouse, or returns `warehouse` if there is no other.
    fn other_warehouse(&self, random: &mut Random, warehouse: u64) -> u64 {
        if self.options.warehouses == 1 {
            return warehouse;
        }
        let other = random.uniform(1, self.options.warehouses - 1);
        if other < warehouse { other } else { other + 1 }
    }

    /// Draws a customer of a district, in some cases by name (clauses 2.5.1.2 and 2.6.1.2).
    fn draw_customer(&self, random: &mut Random) -> NamedBy {
        if random.happens(self.options.by_name.0) {
            NamedBy::Name(random::last_name(random.name_to_ask_for(self.options.customers)))
        } else {
            NamedBy::Number(random.customer(self.options.customers))
        }
    }

    /// Returns the number of a customer. Of several customers with the name, sorted by first name,
    /// it takes the one in the middle, rounded up (clause 2.5.2.2).
    fn identify<T: Txn>(
        &self,
        tx: &mut T,
        names: &mut Vec<([u8; 16], u64)>,
        district: u64,
        named_by: NamedBy,
    ) -> Result<Option<u64>, Abort> {
        let last = match named_by {
            NamedBy::Number(number) => return Ok(Some(number)),
            NamedBy::Name(last) => last,
        };
        names.clear();
        let key = |customer| NameKey { district, last, customer };
        let range = key(0)..=key(u64::MAX);
        let table = &self.tables.customer_by_name;
        tx.scan(table, range, usize::MAX, Direction::Forward, CustomerName::FIRST, |key, first| {
            names.push((first, key.customer));
            ControlFlow::Continue(())
        })?;
        names.sort_unstable();
        Ok(names.get(names.len().div_ceil(2).wrapping_sub(1)).map(|(_, customer)| *customer))
    }
}

/// The names of the transaction types.
pub const KIND_NAMES: &[&str] =
    &["new_order", "payment", "order_status", "delivery", "stock_level", "last_order_status"];

impl<F: Faults> Workload for Tpcc<F> {
    type Options = TpccOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        KIND_NAMES
    }

    fn validate(options: &TpccOptions, _: IndexKind) -> Result<(), String> {
        if weights(options).iter().all(|weight| *weight == 0) {
            let names: Vec<String> = KIND_NAMES.iter().map(|kind| format!("tpcc.{kind}")).collect();
            return Err(format!("the weights {} are all 0: at least one has to be more", names.join(", ")));
        }
        Ok(())
    }

    fn tables(options: &TpccOptions, index: IndexKind) -> Vec<TableSpec> {
        schema::table_specs(options, index)
    }

    fn create<S: Tables>(options: &TpccOptions, index: IndexKind, store: &S) -> Self {
        let mut weights = weights(options);
        for kind in 1..weights.len() {
            weights[kind] += weights[kind - 1];
        }
        let tables = Schema::create(options, index, store);
        let districts = (options.warehouses * DISTRICTS) as usize;
        let oldest_new_orders = (0..districts).map(|_| AtomicU64::new(0)).collect();
        Tpcc { options: options.clone(), tables, weights, oldest_new_orders, faults: PhantomData }
    }

    fn load_units(&self) -> u64 {
        load::rows(&self.options)
    }

    fn for_verification(options: &TpccOptions) -> TpccOptions {
        TpccOptions {
            warehouses: options.warehouses.min(2),
            items: options.items.min(200),
            customers: options.customers.min(30),
            ..options.clone()
        }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load::load(&self.options, &self.tables, loader, part, parts, done)
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        let mut random = Random::new(seed, worker as u64 + 1);
        let districts = (self.options.warehouses * DISTRICTS) as usize;
        Client {
            number: worker as u64,
            home: worker as u64 % self.options.warehouses + 1,
            clock: 0,
            stock_level_district: random.uniform(1, DISTRICTS),
            random,
            suspicion: None,
            books: Books {
                delivered: vec![0; districts],
                ordered: vec![0; self.options.warehouses as usize],
                ..Books::default()
            },
            scratch: Scratch { deliveries: Vec::with_capacity(DISTRICTS as usize), ..Scratch::default() },
        }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        client.clock += 1;
        let draw = client.random.uniform(0, self.weights[KINDS - 1] - 1);
        *input = match self.weights.partition_point(|&sum| sum <= draw) {
            0 => Input::NewOrder(self.draw_new_order(client)),
            1 => Input::Payment(self.draw_payment(client)),
            2 => Input::OrderStatus(self.draw_order_status(client)),
            3 => Input::Delivery(self.draw_delivery(client)),
            4 => Input::StockLevel(self.draw_stock_level(client)),
            _ => Input::LastOrderStatus(self.draw_last_order_status(client)),
        };
    }

    fn kind(&self, input: &Input) -> usize {
        match input {
            Input::NewOrder(_) => 0,
            Input::Payment(_) => 1,
            Input::OrderStatus(_) => 2,
            Input::Delivery(_) => 3,
            Input::StockLevel(_) => 4,
            Input::LastOrderStatus(_) => 5,
        }
    }

    fn declares(options: &TpccOptions) -> Declares {
        // A transaction may learn only as it runs which customer, order and lines it accesses.
        Declares { rows: DeclaredRows::Known, partitions: Some(options.warehouses as usize) }
    }

    fn types(&self, types: &mut Types) {
        let declarations = [
            new_order::declare,
            payment::declare,
            order_status::declare,
            delivery::declare,
            stock_level::declare,
            last_order_status::declare,
        ];
        for ((name, declare), weight) in KIND_NAMES.iter().zip(declarations).zip(weights(&self.options)) {
            if weight > 0 { declare(name, types, &self.tables) } else { types.leave_out(name) }
        }
    }

    /// The rows whose keys the input gives. Else the warehouses: each is a partition. Items belong
    /// to no partition, and never change.
    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if matches!(input, Input::OrderStatus(_) | Input::StockLevel(_)) {
            declaration.read_only();
        }
        if declaration.needs() == DeclarationNeeds::Rows {
            return match input {
                Input::NewOrder(input) => self.new_order_rows(input, declaration),
                Input::Payment(input) => self.payment_rows(input, declaration),
                Input::OrderStatus(input) => self.order_status_rows(input, declaration),
                // It looks for its rows.
                Input::Delivery(_) => {}
                Input::StockLevel(input) => self.stock_level_rows(input, declaration),
                Input::LastOrderStatus(input) => self.last_order_status_rows(input, declaration),
            };
        }
        let mut warehouse = |number: u64| declaration.partition(number as usize - 1);
        match input {
            Input::NewOrder(input) => {
                warehouse(input.warehouse);
                input.lines().iter().for_each(|line| warehouse(line.warehouse));
            }
            Input::Payment(input) => {
                warehouse(input.warehouse);
                warehouse(input.customer_district >> 4);
            }
            Input::OrderStatus(input) => warehouse(input.district >> 4),
            Input::Delivery(input) => warehouse(input.warehouse),
            Input::StockLevel(input) => warehouse(input.warehouse),
            Input::LastOrderStatus(input) => warehouse(input.district >> 4),
        }
    }

    #[inline]
    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        client.suspicion = None;
        match input {
            Input::NewOrder(input) => self.new_order(tx, client, input),
            Input::Payment(input) => self.payment(tx, client, input),
            Input::OrderStatus(input) => self.order_status(tx, client, input),
            Input::Delivery(input) => self.delivery(tx, client, input),
            Input::StockLevel(input) => self.stock_level(tx, client, input),
            Input::LastOrderStatus(input) => self.last_order_status(tx, client, input),
        }
    }

    fn key_parts(&self, table: &str, key: &KeyWords) -> Vec<(String, u64)> {
        schema::key_parts(table, key[0])
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        if let Some(suspicion) = client.suspicion.take() {
            client.books.wrong.get_or_insert(suspicion);
        }
        match input {
            Input::NewOrder(input) => {
                for line in input.lines() {
                    client.books.ordered[line.warehouse as usize - 1] += line.quantity;
                }
            }
            Input::Payment(_) => client.books.payments += 1,
            Input::Delivery(_) => {
                for delivered in &client.scratch.deliveries {
                    let position = Self::district_position(delivered.district);
                    client.books.delivered[position] += 1;
                    // Relaxed: a hint, and no data comes with it. Pairs with the load in
                    // `take_oldest`.
                    self.oldest_new_orders[position].fetch_max(delivered.number + 1, Ordering::Relaxed);
                }
            }
            Input::OrderStatus(_) | Input::StockLevel(_) | Input::LastOrderStatus(_) => {}
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        consistency::check(&self.options, &self.tables, store, clients)
    }
}
