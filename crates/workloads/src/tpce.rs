//! TPC-E's transactions that write: a brokerage firm, its customers, and the market.
//!
//! "TPC Benchmark E, standard specification" (Transaction Processing Performance Council), in the
//! part that the IC3 study runs: Trade-Order, Trade-Result, Market-Feed and Trade-Update (Wang, Mu,
//! Cui, Yi, Chen, Li: "Scaling multicore databases via constrained parallel execution", SIGMOD
//! 2016). The study runs transactions that only read beside them. So there are Trade-Status,
//! Customer-Position and Market-Watch, whose weights are 0 by default.
//!
//! | file | what |
//! | --- | --- |
//! | `schema` | tables, rows, keys, and updates that read nothing |
//! | `generate` | the population, as functions of numbers |
//! | `load` | the rows at the beginning |
//! | `market` | the market, as each client plays it |
//! | `positions` | what orders and results share: holdings that are used up, rates, and costs |
//! | `orders`, `results`, `feed`, `updates` | one transaction each that writes |
//! | `reads` | the transactions that only read |
//! | `check` | what holds after any run |
//!
//! An order at the market's price waits in its client's queue until a Trade-Result completes it. If
//! the queue is longer than `tpce.pending`, a Trade-Result takes the place of an order that is
//! drawn. If the queue is empty, an order takes the place of a Trade-Result. A Market-Feed comes
//! when it is drawn, or 20 results after the last. It sends limit orders to the market, whichever
//! client has placed them. These then wait in the queue of the feed's client.
//!
//! `tpce.securities` sets the contention: with one security all trades meet at its last price, and
//! each account has one position.
//!
//! Money is in cents, and rates are in ten-thousandths. Dates are numbers that clients count up. No
//! two clients have the same date.
//!
//! # Departures from the standard
//! - The generator is our own, and not EGen. Tiers of customers, numbers of accounts, types of
//!   orders and quantities have the standard's proportions. Names, rates and charges are made up.
//! - Texts are cut: the name of an executor has 32 bytes and not 49, the description of a company
//!   104 and not 150. Addresses, news and financial data are left out.
//! - Each client plays a market of its own. In the standard the market is one system beside the
//!   clients. Prices are a function of the date, so all clients see the same ones.
//! - A trade's number has that of its client in it, so no two transactions compete for a counter.
//! - A canceled order cancels before it reads rows that others write. With `tpce.late_rollback` it
//!   cancels at its end, as in the standard.
//! - A margin order reads the balance of its account, and not the worth of all its holdings.
//! - A limit order asks for a price that is drawn from the range in which prices move.
//! - A feed adds up the ticks of one symbol. It handles all symbols in one transaction.
//! - The indexes of trades have the date of the order. In the standard they have that of the last
//!   change, and each change would move the trade in them.
//! - Trade-Update may reach trades that are not completed yet. It then reads and corrects what is
//!   there.
//! - A correction of an executor's name sets a mark or takes it away.
//! - The sums of brokers, and the volumes of last prices, begin at 0.
//! - Trade-Status, Customer-Position and Market-Watch name customers and accounts by their numbers.
//!   Market-Watch watches what an account holds, and never an industry.

mod check;
mod feed;
mod generate;
mod load;
mod market;
mod orders;
mod positions;
mod reads;
mod results;
mod schema;
#[cfg(test)]
mod tests;
mod updates;

use std::ops::ControlFlow;

use contend_model::options::Fraction;
use contend_model::{
    Abort, Core, Declare, IndexKind, Inspect, Load, OutOfMemory, TableSpec, Tables, Txn, Types, options,
};

use crate::random::Random;
use crate::workload::{Checked, Violation, Workload, WorkloadInfo};
use generate::{DATES_APART, is_market, price_at};
use market::{Due, Market};
use positions::Used;
use schema::Schema;

options! {
    /// TPC-E's options.
    pub struct TpceOptions {
        /// Customers.
        "tpce.customers" customers: u64 = 1_000, in 1..=1_000_000;
        /// Securities that are traded; 685 for a thousand customers in the standard.
        "tpce.securities" securities: u64 = 685, in 1..=100_000;
        /// Trades of each account at the beginning.
        "tpce.trades" trades: u64 = 20, in 1..=1_000;
        /// Orders that may wait in a client's queue before the market completes one.
        "tpce.pending" pending: u64 = 4, in 0..=1_000;
        /// Weight of Trade-Order among the transactions.
        "tpce.trade_order" trade_order: u64 = 101, in 0..=1_000;
        /// Weight of Trade-Result. With 0 the market never completes an order.
        "tpce.trade_result" trade_result: u64 = 100, in 0..=1_000;
        /// Weight of Market-Feed. With 0 there is none, and limit orders stay where they are.
        "tpce.market_feed" market_feed: u64 = 10, in 0..=1_000;
        /// Weight of Trade-Update.
        "tpce.trade_update" trade_update: u64 = 20, in 0..=1_000;
        /// Weight of Trade-Status, which only reads.
        "tpce.trade_status" trade_status: u64 = 0, in 0..=1_000;
        /// Weight of Customer-Position, which only reads.
        "tpce.customer_position" customer_position: u64 = 0, in 0..=1_000;
        /// Weight of Market-Watch, which only reads.
        "tpce.market_watch" market_watch: u64 = 0, in 0..=1_000;
        /// The fraction of Trade-Orders that cancel themselves.
        "tpce.rollback" rollback: Fraction = Fraction(0.01), in ();
        /// Whether they do so at their end, as in the standard, and not at their beginning.
        "tpce.late_rollback" late_rollback: bool = false, in ();
    }
}

impl TpceOptions {
    /// Returns a date before which all loaded trades were completed.
    fn loaded_dates(&self) -> u64 {
        self.trades * DATES_APART
    }
}

const SOURCE: &str = "TPC Benchmark E, standard specification; in the part that Wang, Mu, Cui, Yi, Chen, Li run: Scaling multicore \
                      databases via constrained parallel execution, SIGMOD 2016";

/// TPC-E in a list.
pub const INFOS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "tpce",
        summary: "a brokerage firm: orders, their results, prices that trigger orders, and corrections of trades",
        source: SOURCE,
        preset: &[],
    },
    WorkloadInfo {
        name: "tpce-hot",
        summary: "TPC-E with one security, which all orders trade",
        source: SOURCE,
        preset: &[("tpce.securities", "1")],
    },
];

/// In the number of a trade, the bits that count those of one client. The client's own number, from
/// 1, is above them. Loaded trades have smaller numbers.
const COUNT_BITS: u32 = 40;

/// The number of transaction types.
const KINDS: usize = 7;

/// Returns the weights of the transactions, in the order of their types.
fn weights(options: &TpceOptions) -> [u64; KINDS] {
    let TpceOptions { trade_order, trade_result, market_feed, trade_update, .. } = *options;
    let TpceOptions { trade_status, customer_position, market_watch, .. } = *options;
    [trade_order, trade_result, market_feed, trade_update, trade_status, customer_position, market_watch]
}

/// A transaction's parameters.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "one a client, drawn again and again: a box would be an allocation each time"
)]
pub enum Input {
    #[doc(hidden)]
    TradeOrder(orders::Input),
    #[doc(hidden)]
    TradeResult(results::Input),
    #[doc(hidden)]
    MarketFeed(feed::Input),
    #[doc(hidden)]
    TradeUpdate(updates::Input),
    #[doc(hidden)]
    TradeStatus(reads::AccountInput),
    #[doc(hidden)]
    CustomerPosition(reads::PositionInput),
    #[doc(hidden)]
    MarketWatch(reads::AccountInput),
}

impl Default for Input {
    fn default() -> Self {
        Input::MarketWatch(reads::AccountInput::default())
    }
}

/// A worker's generator of inputs, its market, and its books.
#[derive(Debug)]
pub struct Client {
    number: u64,
    /// The number of clients.
    of: u64,
    random: Random,
    /// Inputs that were drawn.
    drawn: u64,
    market: Market,
    /// Buffers of the running transaction, reused by the next: the holdings that it uses up, the
    /// trades that it lists and finds, and the positions that it reads.
    used: Vec<Used>,
    numbers: Vec<u64>,
    found: Vec<updates::Found>,
    positions: Vec<(u64, i64)>,
    /// Whether the running execution found something missing that is never deleted, or its own rows
    /// there.
    surprised: bool,
    /// The same of any committed transaction.
    was_surprised: bool,
    /// Committed transactions, by their types.
    commits: [u64; KINDS],
    /// The quantities of committed feeds, by symbol.
    fed: Vec<u64>,
    /// The sum of the committed corrections of each frame.
    corrected: [u64; updates::FRAMES],
}

/// The workload.
#[derive(Debug)]
pub struct Tpce {
    options: TpceOptions,
    tables: Schema,
    /// The cumulative weights, by type.
    weights: [u64; KINDS],
}

impl Tpce {
    /// Draws a transaction's type. What the market has to do takes the place of an order or a
    /// result, so the shares of the other types are those of their weights.
    fn draw_kind(&self, client: &mut Client) -> usize {
        let draw = client.random.uniform(0, self.weights[KINDS - 1] - 1);
        let kind = self.weights.partition_point(|&sum| sum <= draw);
        match client.market.due(&self.options) {
            Due::Result if kind < 2 => 1,
            Due::Feed if kind < 2 => 2,
            _ => kind,
        }
    }
}

/// The names of the transaction types.
const KIND_NAMES: &[&str] = &[
    "trade_order",
    "trade_result",
    "market_feed",
    "trade_update",
    "trade_status",
    "customer_position",
    "market_watch",
];

impl Workload for Tpce {
    type Options = TpceOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        KIND_NAMES
    }

    fn validate(options: &TpceOptions, _: IndexKind) -> Result<(), String> {
        let names = || KIND_NAMES.iter().map(|kind| format!("tpce.{kind}")).collect::<Vec<_>>().join(", ");
        if weights(options).iter().all(|weight| *weight == 0) {
            return Err(format!("the weights {} are all 0: at least one has to be more", names()));
        }
        if options.trade_result > 0 && options.trade_order == 0 {
            return Err(format!(
                "tpce.trade_result is {}, and tpce.trade_order is 0: without orders there are no results, so set \
                 tpce.trade_result to 0 or tpce.trade_order to more",
                options.trade_result
            ));
        }
        Ok(())
    }

    fn tables(options: &TpceOptions, index: IndexKind) -> Vec<TableSpec> {
        schema::specs(options, index)
    }

    fn create<S: Tables>(options: &TpceOptions, index: IndexKind, store: &S) -> Self {
        let mut weights = weights(options);
        for kind in 1..weights.len() {
            weights[kind] += weights[kind - 1];
        }
        Tpce { tables: Schema::create(options, index, store), weights, options: options.clone() }
    }

    fn load_units(&self) -> u64 {
        load::units(&self.options)
    }

    fn for_verification(options: &TpceOptions) -> TpceOptions {
        TpceOptions {
            customers: options.customers.min(3),
            securities: options.securities.min(2),
            trades: options.trades.min(2),
            pending: options.pending.min(1),
            // Rare transactions meet in a short run, too.
            market_feed: options.market_feed.saturating_mul(4).min(1_000),
            trade_update: options.trade_update.saturating_mul(2).min(1_000),
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
        load::load(self, loader, part, parts, done)
    }

    fn client(&self, worker: usize, workers: usize, seed: u64) -> Client {
        // A transaction that needs more makes the buffers grow once.
        const ROOM: usize = 1_024;
        Client {
            number: worker as u64 + 1,
            of: workers as u64,
            random: Random::new(seed, worker as u64 + 1),
            drawn: 0,
            market: Market::new(),
            used: Vec::with_capacity(ROOM),
            numbers: Vec::with_capacity(ROOM),
            found: Vec::with_capacity(updates::TRADES_MAX),
            positions: Vec::with_capacity(ROOM),
            surprised: false,
            was_surprised: false,
            commits: [0; KINDS],
            fed: vec![0; self.options.securities as usize],
            corrected: [0; updates::FRAMES],
        }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        client.drawn += 1;
        // No two clients have the same date, and no loaded trade has it.
        let date = self.options.loaded_dates() + client.drawn * client.of + client.number;
        let kind = self.draw_kind(client);
        let Client { random, market, .. } = client;
        let order = |random: &mut Random| {
            Input::TradeOrder(self.draw_order(random, client.number << COUNT_BITS | client.drawn, date))
        };
        *input = match kind {
            0 => order(random),
            1 => match market.take() {
                Some(ticket) => {
                    Input::TradeResult(results::Input { ticket, price: price_at(ticket.symbol, date), date })
                }
                None => order(random),
            },
            2 => Input::MarketFeed(feed::Input { ticks: market.feed(random, &self.options, date), date }),
            3 => Input::TradeUpdate(self.draw_update(random)),
            4 => Input::TradeStatus(self.draw_account_to_read(random)),
            5 => Input::CustomerPosition(self.draw_position(random)),
            _ => Input::MarketWatch(self.draw_account_to_read(random)),
        };
    }

    fn kind(&self, input: &Input) -> usize {
        match input {
            Input::TradeOrder(_) => 0,
            Input::TradeResult(_) => 1,
            Input::MarketFeed(_) => 2,
            Input::TradeUpdate(_) => 3,
            Input::TradeStatus(_) => 4,
            Input::CustomerPosition(_) => 5,
            Input::MarketWatch(_) => 6,
        }
    }

    /// A transaction finds the keys of most rows in other rows, so it declares at most that it only
    /// reads.
    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if matches!(input, Input::TradeStatus(_) | Input::CustomerPosition(_) | Input::MarketWatch(_)) {
            declaration.read_only();
        }
    }

    fn types(&self, types: &mut Types) {
        let (options, tables) = (&self.options, &self.tables);
        // A type of which no transaction runs takes part in no order.
        for ((kind, name), weight) in KIND_NAMES.iter().enumerate().zip(weights(options)) {
            match kind {
                _ if weight == 0 => types.leave_out(name),
                0 => orders::declare(name, types, tables, options),
                1 => results::declare(name, types, tables),
                2 => feed::declare(name, types, tables),
                3 => updates::declare(name, types, tables),
                4 => reads::declare_status(name, types, tables),
                5 => reads::declare_position(name, types, tables),
                _ => reads::declare_watch(name, types, tables),
            }
        }
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let as_expected = match input {
            Input::TradeOrder(input) => self.trade_order(tx, client, input)?,
            Input::TradeResult(input) => self.trade_result(tx, client, input)?,
            Input::MarketFeed(input) => self.market_feed(tx, client, input)?,
            Input::TradeUpdate(input) => self.trade_update(tx, client, input)?,
            Input::TradeStatus(input) => self.trade_status(tx, client, input)?,
            Input::CustomerPosition(input) => self.customer_position(tx, client, input)?,
            Input::MarketWatch(input) => self.market_watch(tx, client, input)?,
        };
        client.surprised = !as_expected;
        Ok(())
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        client.commits[self.kind(input)] += 1;
        client.was_surprised |= client.surprised;
        match input {
            Input::TradeOrder(input) if is_market(input.kind) => client.market.submit(&self.options, input.ticket()),
            Input::TradeResult(input) => client.market.complete(input.tick()),
            Input::MarketFeed(input) => {
                client.market.submit_triggered(&self.options);
                input.ticks.all().iter().for_each(|tick| client.fed[tick.symbol as usize] += tick.quantity);
            }
            Input::TradeUpdate(updates::Input { frame }) => {
                client.corrected[frame.number()] ^= frame.corrections(&client.found);
            }
            Input::TradeOrder(_) | Input::TradeStatus(_) | Input::CustomerPosition(_) | Input::MarketWatch(_) => {}
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        check::check(self, store, clients)
    }
}
