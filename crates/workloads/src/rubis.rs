//! RUBiS: an auction site. Bids, purchases at a fixed price, and views of items.
//!
//! This is the part of RUBiS that the STOv2 study runs. An item has texts that hardly change, what
//! bids change (their number, and the highest), and what purchases change (how many units are
//! left, and when the last was sold). Each bid and each purchase also inserts a row of its own.
//!
//! With commit-time updates a bid reads nothing: it counts itself, and raises the highest bid if it
//! is higher. Bids commute. A purchase does not commute with another, because the one that takes
//! the last unit sets the date. With `rubis.split=2`, as in STOv2, what bids and what purchases
//! change is one group of columns; with 3 each has a group of its own.
//!
//! STOv2 differs in three points. Its quantity is unsigned, so the eleventh purchase of an item
//! wraps around; here the quantity goes on below 0. It draws the items of loaded purchases from the
//! users. And its numbers of bids come from a counter that all threads share; here each client
//! counts for itself.

use std::ops::ControlFlow;

use contend_derive::Row;
use contend_model::pieces::Piece;
use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, Groups, IndexKind, Inspect, Load, OutOfMemory, Row, TableSpec, Tables, Txn,
    TypedTable, Types, Update, counted, options,
};

use crate::loading::{load_in_steps, put};
use crate::random::Random;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};
use crate::zipf::Zipf;

options! {
    /// RUBiS's options.
    pub struct RubisOptions {
        /// Items that are sold.
        "rubis.items" items: u64 = 100_000, in 1..=100_000_000;
        /// Users. They bid and buy.
        "rubis.users" users: u64 = 100_000, in 1..=100_000_000;
        /// Units of each item at the beginning.
        "rubis.quantity" quantity: u64 = 10, in 1..=1_000_000;
        /// Skew of the items: the item of rank i is drawn with a probability proportional to
        /// i^-theta.
        "rubis.item_theta" item_theta: f64 = 0.8, in 0.0..1.5;
        /// Skew of the users.
        "rubis.user_theta" user_theta: f64 = 0.2, in 0.0..1.5;
        /// Groups of an item's columns: 3, or 2 as in STOv2, where bids and purchases change the
        /// same group.
        "rubis.split" split: u64 = 3, in 2..=3;
        /// Weight of PlaceBid among the transactions.
        "rubis.place_bid" place_bid: u64 = 30, in 0..=1_000;
        /// Weight of BuyNow.
        "rubis.buy_now" buy_now: u64 = 20, in 0..=1_000;
        /// Weight of ViewItem.
        "rubis.view_item" view_item: u64 = 50, in 0..=1_000;
        /// Partitions of the items, by the remainders of their numbers.
        "rubis.partitions" partitions: u64 = 1, in 1..=65_536;
    }
}

const SOURCE: &str = "Amza et al.: Specification and implementation of dynamic web site benchmarks, WWC 2002; tables and mix of \
                      Huang et al.: Opportunities for optimism in contended main-memory multicore transactions, VLDB 2020";

/// RUBiS in a list.
pub const INFOS: &[WorkloadInfo] = &[
    WorkloadInfo {
        name: "rubis",
        summary: "an auction site: bids that commute, purchases that do not, and views of items",
        source: SOURCE,
        preset: &[],
    },
    WorkloadInfo {
        name: "rubis-stov2",
        summary: "RUBiS with the size, the skew and the groups of columns of the STOv2 study",
        source: SOURCE,
        preset: &[("rubis.items", "500000"), ("rubis.item_theta", "1"), ("rubis.split", "2")],
    },
];

/// The bids on an item at the beginning.
const BIDS: u64 = 10;
/// The highest bid on an item at the beginning.
const MAX_BID: u32 = 40;
/// All prices of an item.
const PRICE: u32 = 50;
const LOAD_STEP: u64 = 256;
/// In the number of a bid or a purchase, the bits that count those of one client. The client's own
/// number, from 1, is above them. Loaded rows are of client 0.
const COUNT_BITS: u32 = 40;

/// Defines a row of an item, in which bids change group 1 and purchases this one.
macro_rules! item {
    ($name:ident, $purchases:literal) => {
        #[derive(Clone, Copy, Debug, Row)]
        #[repr(C)]
        struct $name {
            name: [u8; 100],
            description: [u8; 255],
            fill: [u8; 5],
            initial_price: u32,
            reserve_price: u32,
            buy_now_price: u32,
            category: u32,
            start_date: u64,
            seller: u64,
            #[group = 1]
            nb_of_bids: u32,
            #[group = 1]
            max_bid: u32,
            /// Units that are left; below 0 if more were sold than there were.
            #[group = $purchases]
            quantity: i64,
            /// When the last unit was sold; 0 before.
            #[group = $purchases]
            end_date: u64,
        }
    };
}

item!(Item, 2);
// The same bytes in two groups.
item!(ItemOfTwo, 1);

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct Bid {
    quantity: u32,
    bid: u32,
    /// The most that the user would pay.
    max_bid: u32,
    fill: u32,
    date: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct BuyNow {
    quantity: u64,
    date: u64,
}

/// The key of a bid or a purchase: item, user and number, from the highest bytes down.
type ByItem = [u8; 16];

fn by_item(item: u64, user: u64, number: u64) -> ByItem {
    ((u128::from(item) << 32 | u128::from(user)) << 64 | u128::from(number)).to_be_bytes()
}

/// Returns the item and the number of a key.
fn item_and_number(key: ByItem) -> (u64, u64) {
    let parts = u128::from_be_bytes(key);
    ((parts >> 96) as u64, parts as u64)
}

/// A bid takes effect on its item. Such updates commute: one is an addition, and the other a
/// maximum.
#[derive(Clone, Copy, Debug)]
struct Outbid {
    bid: u32,
}

/// A purchase takes a unit of its item. It does not commute: the last unit is sold at the date of
/// whichever purchase takes it.
#[derive(Clone, Copy, Debug)]
struct Sell {
    date: u64,
}

macro_rules! updates {
    ($($item:ty)*) => {$(
        impl Update<$item> for Outbid {
            #[inline(always)]
            fn groups(&self) -> Groups {
                Groups::of(<$item>::MAX_BID.group())
            }

            #[inline]
            fn apply(&self, item: &mut $item) {
                item.nb_of_bids = item.nb_of_bids.wrapping_add(1);
                item.max_bid = item.max_bid.max(self.bid);
            }

            #[inline(always)]
            fn commutes(&self) -> bool {
                true
            }
        }

        impl Update<$item> for Sell {
            #[inline(always)]
            fn groups(&self) -> Groups {
                Groups::of(<$item>::QUANTITY.group())
            }

            #[inline]
            fn apply(&self, item: &mut $item) {
                item.quantity = item.quantity.wrapping_sub(1);
                if item.quantity == 0 {
                    item.end_date = self.date;
                }
            }
        }
    )*};
}

updates! { Item ItemOfTwo }

/// The columns that ViewItem reads.
macro_rules! viewed {
    ($item:ty) => {
        (<$item>::QUANTITY, <$item>::NB_OF_BIDS, <$item>::MAX_BID, <$item>::END_DATE)
    };
}

const ITEM: Piece = Piece::new(0, "item");
const BID: Piece = Piece::new(1, "bid");
const PURCHASE: Piece = Piece::new(1, "purchase");

/// The transaction types, in the order of [`Workload::KINDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    PlaceBid,
    BuyNow,
    #[default]
    ViewItem,
}

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    kind: Kind,
    item: u64,
    user: u64,
    /// The number of the bid or the purchase.
    number: u64,
    bid: u32,
    date: u64,
}

/// A worker's generator of inputs, and its books.
#[derive(Debug)]
pub struct Client {
    number: u64,
    /// The number of clients.
    of: u64,
    random: Random,
    /// Inputs that were drawn.
    drawn: u64,
    /// Whether the running execution found its item missing, or its own bid or purchase there.
    surprised: bool,
    /// The same of any committed transaction.
    was_surprised: bool,
    /// Committed transactions, by their types.
    commits: [u64; 3],
}

/// The workload.
#[derive(Debug)]
pub struct Rubis {
    options: RubisOptions,
    item: TypedTable<Item>,
    /// The same table, if its rows have two groups.
    item_of_two: Option<TypedTable<ItemOfTwo>>,
    bid: TypedTable<Bid, ByItem>,
    purchase: TypedTable<BuyNow, ByItem>,
    items: Zipf,
    users: Zipf,
}

/// The bids on an item and its purchases, as their rows say.
#[derive(Clone, Copy, Default)]
struct Found {
    bids: u64,
    max_bid: u32,
    /// Purchases since the item was loaded.
    purchases: i64,
    /// Whether one of them has the item's last date.
    has_last: bool,
}

impl Rubis {
    fn load_item<L: Load>(&self, loader: &mut L, number: u64) -> Result<(), OutOfMemory> {
        let random = &mut Random::new(0x5275_4269, number);
        let letter = b'a' + (number % 26) as u8;
        let row = Item {
            name: [letter; 100],
            description: [letter; 255],
            fill: [0; 5],
            initial_price: PRICE,
            reserve_price: PRICE,
            buy_now_price: PRICE,
            category: random.uniform(0, 19) as u32,
            start_date: 0,
            seller: random.uniform(0, self.options.users - 1),
            nb_of_bids: BIDS as u32,
            max_bid: MAX_BID,
            quantity: self.options.quantity as i64,
            end_date: 0,
        };
        put(loader, &self.item, number, row)?;
        for bid in 0..BIDS {
            let key = by_item(number, random.uniform(0, self.options.users - 1), bid);
            let amount = MAX_BID - (BIDS - 1 - bid) as u32;
            let row = Bid { quantity: 1, bid: amount, max_bid: MAX_BID, fill: 0, date: 0 };
            put(loader, &self.bid, key, row)?;
        }
        let key = by_item(number, random.uniform(0, self.options.users - 1), 0);
        let row = BuyNow { quantity: 1, date: 0 };
        put(loader, &self.purchase, key, row)
    }

    /// Counts the bids and the purchases of each item. `last_dates` are those of the items. Returns
    /// as well how many rows there are of both.
    fn count<S: Inspect>(&self, store: &S, last_dates: &[u64]) -> Result<(Vec<Found>, [u64; 2]), Violation> {
        let (mut found, mut rows, mut stray) = (vec![Found::default(); last_dates.len()], [0; 2], None);
        store.peek_all(&self.bid, |key, words| {
            let (item, bid) = (item_and_number(key).0, Bid::from_words(words));
            rows[0] += 1;
            match found.get_mut(item as usize) {
                Some(found) => (found.bids, found.max_bid) = (found.bids + 1, found.max_bid.max(bid.bid)),
                None => stray = Some(item),
            }
        });
        store.peek_all(&self.purchase, |key, words| {
            let ((item, number), date) = (item_and_number(key), BuyNow::from_words(words).date);
            rows[1] += 1;
            match found.get_mut(item as usize) {
                Some(found) if number >> COUNT_BITS > 0 => {
                    found.purchases += 1;
                    found.has_last |= date == last_dates[item as usize];
                }
                Some(_) => {}
                None => stray = Some(item),
            }
        });
        match stray {
            Some(item) => {
                Err(Violation(format!("there is a bid on item {item}, or a purchase of it, and no such item")))
            }
            None => Ok((found, rows)),
        }
    }
}

impl Workload for Rubis {
    type Options = RubisOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &["place_bid", "buy_now", "view_item"]
    }

    fn validate(options: &RubisOptions, _: IndexKind) -> Result<(), String> {
        if options.place_bid + options.buy_now + options.view_item == 0 {
            return Err("the weights of RUBiS's transactions (rubis.place_bid, rubis.buy_now, rubis.view_item) are \
                        all 0: at least one must be more"
                .into());
        }
        Ok(())
    }

    fn tables(options: &RubisOptions, index: IndexKind) -> Vec<TableSpec> {
        let items = options.items as usize;
        // The check lists bids and purchases.
        let ordered = IndexKind::Ordered;
        vec![
            match options.split {
                2 => TableSpec::of::<ItemOfTwo>("item", index, items),
                _ => TableSpec::of::<Item>("item", index, items),
            },
            TableSpec::of::<Bid>("bid", ordered, items * BIDS as usize).keyed::<ByItem>(),
            TableSpec::of::<BuyNow>("buy_now", ordered, items).keyed::<ByItem>(),
        ]
    }

    fn create<S: Tables>(options: &RubisOptions, index: IndexKind, store: &S) -> Self {
        let specs = Self::tables(options, index);
        let item = store.create_table(&specs[0]);
        Rubis {
            item: TypedTable::new(item),
            item_of_two: (options.split == 2).then(|| TypedTable::new(item)),
            bid: store.create_typed(&specs[1]),
            purchase: store.create_typed(&specs[2]),
            items: Zipf::new(options.items, options.item_theta),
            users: Zipf::new(options.users, options.user_theta),
            options: options.clone(),
        }
    }

    fn load_units(&self) -> u64 {
        self.options.items
    }

    fn for_verification(options: &RubisOptions) -> RubisOptions {
        RubisOptions {
            items: options.items.min(5),
            users: options.users.min(20),
            quantity: options.quantity.min(2),
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
        load_in_steps(self.options.items, part, parts, LOAD_STEP, done, |mut items| {
            items.try_for_each(|item| self.load_item(loader, item))
        })
    }

    fn client(&self, worker: usize, workers: usize, seed: u64) -> Client {
        Client {
            number: worker as u64 + 1,
            of: workers as u64,
            random: Random::new(seed, worker as u64 + 1),
            drawn: 0,
            surprised: false,
            was_surprised: false,
            commits: [0; 3],
        }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        let RubisOptions { place_bid, buy_now, view_item, .. } = self.options;
        let random = &mut client.random;
        let draw = random.uniform(0, place_bid + buy_now + view_item - 1);
        let kind = match draw {
            draw if draw < place_bid => Kind::PlaceBid,
            draw if draw < place_bid + buy_now => Kind::BuyNow,
            _ => Kind::ViewItem,
        };
        client.drawn += 1;
        *input = Input {
            kind,
            item: self.items.draw(random.next()),
            user: self.users.draw(random.next()),
            number: client.number << COUNT_BITS | client.drawn,
            bid: MAX_BID - 5 + random.uniform(1, 10) as u32,
            // No two clients have the same date.
            date: client.drawn * client.of + client.number,
        };
    }

    fn kind(&self, input: &Input) -> usize {
        input.kind as usize
    }

    fn declares(options: &RubisOptions) -> Declares {
        Declares { rows: DeclaredRows::Known, partitions: Some(options.partitions as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if input.kind == Kind::ViewItem {
            declaration.read_only();
        }
        // A transaction also touches rows whose keys it can't know.
        if declaration.needs() == DeclarationNeeds::Rows {
            declaration.row(&self.item, input.item, input.kind != Kind::ViewItem);
        }
        declaration.partition((input.item % self.options.partitions) as usize);
    }

    fn types(&self, types: &mut Types) {
        let Rubis { item, item_of_two: of_two, bid, purchase, .. } = self;
        let (outbid, sell) = (Outbid { bid: 0 }, Sell { date: 0 });
        let RubisOptions { place_bid, buy_now, view_item, .. } = self.options;
        // A type of which no transaction runs takes part in no order.
        match place_bid {
            0 => types.leave_out("place_bid"),
            _ => {
                let bids = types.add("place_bid").piece(ITEM, |piece| match of_two {
                    Some(item) => piece.update(item, outbid),
                    None => piece.update(item, outbid),
                });
                bids.piece(BID, |piece| piece.insert(bid));
            }
        }
        match buy_now {
            0 => types.leave_out("buy_now"),
            _ => {
                let buys = types.add("buy_now").piece(ITEM, |piece| match of_two {
                    Some(item) => piece.update(item, sell),
                    None => piece.update(item, sell),
                });
                buys.piece(PURCHASE, |piece| piece.insert(purchase));
            }
        }
        match view_item {
            0 => types.leave_out("view_item"),
            _ => {
                types.add_read_only("view_item").piece(ITEM, |piece| match of_two {
                    Some(item) => piece.read(item, viewed!(ItemOfTwo)),
                    None => piece.read(item, viewed!(Item)),
                });
            }
        }
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Input { item, user, number, bid, date, .. } = *input;
        let as_expected = match input.kind {
            Kind::PlaceBid => {
                let row = Bid { quantity: 1, bid, max_bid: MAX_BID, fill: 0, date };
                let found = tx.piece(ITEM, |tx| match &self.item_of_two {
                    Some(items) => tx.update(items, item, Outbid { bid }),
                    None => tx.update(&self.item, item, Outbid { bid }),
                })?;
                found & tx.piece(BID, |tx| tx.insert(&self.bid, by_item(item, user, number), row))?
            }
            Kind::BuyNow => {
                let found = tx.piece(ITEM, |tx| match &self.item_of_two {
                    Some(items) => tx.update(items, item, Sell { date }),
                    None => tx.update(&self.item, item, Sell { date }),
                })?;
                let row = BuyNow { quantity: 1, date };
                found & tx.piece(PURCHASE, |tx| tx.insert(&self.purchase, by_item(item, user, number), row))?
            }
            Kind::ViewItem => {
                let row = tx.piece(ITEM, |tx| match &self.item_of_two {
                    Some(items) => tx.read(items, item, viewed!(ItemOfTwo)),
                    None => tx.read(&self.item, item, viewed!(Item)),
                })?;
                std::hint::black_box(row).is_some()
            }
        };
        client.surprised = !as_expected;
        Ok(())
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        client.commits[input.kind as usize] += 1;
        client.was_surprised |= client.surprised;
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        if clients.iter().any(|client| client.was_surprised) {
            let what = "a committed transaction found its item missing, or its own bid or purchase there before it";
            return Err(Violation(what.into()));
        }
        let (mut words, mut items) = (Vec::new(), Vec::new());
        for item in 0..self.options.items {
            if store.peek(&self.item, item, &mut words).is_none() {
                return Err(Violation(format!("item {item} is gone")));
            }
            let Item { nb_of_bids, max_bid, quantity, end_date, .. } = *Item::from_words(&words);
            items.push((nb_of_bids, max_bid, quantity, end_date));
        }
        let mut there = 0;
        if store.peek_all(&self.item, |_, _| there += 1) && there != self.options.items {
            return Err(Violation(format!("there are {there} items, and {} were loaded", self.options.items)));
        }
        let all = self.options.quantity as i64;
        let last_dates: Vec<u64> = items.iter().map(|&(.., end_date)| end_date).collect();
        let (found, rows) = self.count(store, &last_dates)?;
        for (number, (&(nb_of_bids, max_bid, quantity, end_date), found)) in items.iter().zip(&found).enumerate() {
            let wrong = if u64::from(nb_of_bids) != found.bids {
                format!("counts {nb_of_bids} bids, and there are {}", found.bids)
            } else if max_bid != found.max_bid {
                format!("has {max_bid} as its highest bid, and the highest is {}", found.max_bid)
            } else if quantity != all - found.purchases {
                format!("has {quantity} units left of {all}, and {} were bought", found.purchases)
            } else if (end_date > 0) != (quantity <= 0) {
                format!("has {quantity} units left, and its last unit was sold at date {end_date} (0: never)")
            } else if end_date > 0 && !found.has_last {
                format!("sold its last unit at date {end_date}, and nobody bought one then")
            } else {
                continue;
            };
            return Err(Violation(format!("item {number} {wrong}")));
        }
        let loaded = [self.options.items * BIDS, self.options.items];
        for (kind, what) in [(Kind::PlaceBid, "bids"), (Kind::BuyNow, "purchases")] {
            let kind = kind as usize;
            let booked = clients.iter().map(|client| client.commits[kind]).sum::<u64>() + loaded[kind];
            if !clients.is_empty() && rows[kind] != booked {
                let there = rows[kind];
                return Err(Violation(format!(
                    "there are {there} {what}, but the committed transactions leave {booked}"
                )));
            }
        }
        let commits: u64 = clients.iter().flat_map(|client| client.commits).sum();
        let [bids, purchases] = rows;
        Ok(Checked(format!(
            "all items agree with {} and {} that {} left",
            counted(bids, "bid"),
            counted(purchases, "purchase"),
            counted(commits, "transaction")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_for_tests::{Tx, check, run, run_two_at_once, world, world_with};
    use contend_engine::{EngineOptions, NamedProtocol};
    use contend_machine::Native;
    use contend_protocols::locking::no_wait::NoWait;
    use contend_protocols::none::NoControl;
    use contend_protocols::optimistic::silo::Silo;

    fn small(split: u64) -> RubisOptions {
        RubisOptions { items: 5, users: 20, split, ..RubisOptions::default() }
    }

    #[test]
    fn items_agree_after_runs() {
        for split in [2, 3] {
            run::<Silo, Rubis>(&small(split), 4, 3000).expect("nothing wrong");
            run::<NoWait, Rubis>(&small(split), 4, 3000).expect("nothing wrong");
            run::<NoControl, Rubis>(&small(split), 1, 3000).expect("nothing wrong with one thread");
        }
    }

    /// Two purchases of one item read it before either commits. Without concurrency control one
    /// of the two updates gets lost, and the check finds it.
    #[test]
    fn lost_updates_are_found() {
        fn two_at_once<P: NamedProtocol<Native>>(split: u64) -> Result<Checked, Violation> {
            // An update at commit time would read the item as the other purchase left it.
            let world = world_with::<P, Rubis>(&small(split), EngineOptions::default(), 1);
            let mut clients = [world.1.client(0, 2, 1), world.1.client(1, 2, 1)];
            let inputs = [1, 2].map(|client| Input {
                kind: Kind::BuyNow,
                item: 3,
                number: client << COUNT_BITS,
                date: client,
                ..Input::default()
            });
            run_two_at_once(&world, &mut clients, &inputs);
            check(&world, &clients)
        }
        for split in [2, 3] {
            let wrong = two_at_once::<NoControl>(split).expect_err("a lost update");
            assert!(wrong.0.contains("units left of 10, and 2 were bought"), "{wrong}");
            two_at_once::<Silo>(split).expect("one of them aborts");
            two_at_once::<NoWait>(split).expect("one of them aborts");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        // Items 0 to 2 are sold out by then, and 4 is not.
        let damaged = |damage: &dyn Fn(&mut Tx<'_>, &Rubis) -> Result<(), Abort>| {
            let world = world::<Silo, Rubis>(&small(3));
            let (engine, rubis) = &world;
            let mut client = rubis.client(0, 1, 1);
            let mut worker = engine.worker().expect("a slot");
            for number in 0..3 * 10 {
                let key = 1 << COUNT_BITS | number;
                let input =
                    Input { kind: Kind::BuyNow, item: number % 3, number: key, date: number + 1, ..Input::default() };
                worker.run(|tx| rubis.execute(tx, &mut client, &input)).expect("no conflict");
                rubis.committed(&mut client, &input);
            }
            check(&world, std::slice::from_ref(&client)).expect("nothing wrong");
            check(&world, &[]).expect("nothing wrong");
            worker.run(|tx| damage(tx, rubis)).expect("no conflict");
            check(&world, &[client]).expect_err("broken").0
        };
        type Damage<'d> = &'d dyn Fn(&mut Tx<'_>, &Rubis) -> Result<(), Abort>;
        let first_purchase = |item: u64| by_item(item, 0, 1 << COUNT_BITS | item);
        let cases: [(Damage<'_>, &str); 9] = [
            (&|tx, w| tx.delete(&w.item, 3).map(drop), "item 3 is gone"),
            (
                &|tx, w| tx.modify(&w.item, 3, |row| row.nb_of_bids += 1).map(drop),
                "item 3 counts 11 bids, and there are 10",
            ),
            (&|tx, w| tx.modify(&w.item, 4, |row| row.max_bid = 99).map(drop), "item 4 has 99 as its highest bid"),
            (
                &|tx, w| tx.modify(&w.item, 4, |row| row.quantity = 9).map(drop),
                "item 4 has 9 units left of 10, and 0 were",
            ),
            (
                &|tx, w| tx.modify(&w.item, 4, |row| row.end_date = 7).map(drop),
                "item 4 has 10 units left, and its last",
            ),
            (&|tx, w| tx.modify(&w.item, 1, |row| row.end_date = 0).map(drop), "item 1 has 0 units left, and its last"),
            (&|tx, w| tx.modify(&w.item, 1, |row| row.end_date = 3).map(drop), "nobody bought one then"),
            (
                &|tx, w| {
                    tx.delete(&w.purchase, first_purchase(2))?;
                    tx.modify(&w.item, 2, |row| (row.quantity, row.end_date) = (1, 0)).map(drop)
                },
                "there are 34 purchases, but the committed transactions leave 35",
            ),
            (
                &|tx, w| {
                    let row = Bid { quantity: 1, bid: 1, max_bid: 1, fill: 0, date: 1 };
                    tx.insert(&w.bid, by_item(5, 1, 1), row).map(drop)
                },
                "a bid on item 5, or a purchase of it, and no such item",
            ),
        ];
        for (damage, expected) in cases {
            let wrong = damaged(damage);
            assert!(wrong.contains(expected), "{wrong}, not: {expected}");
        }
    }

    #[test]
    fn a_transaction_that_misses_its_item_or_meets_its_own_row_is_found() {
        for (kind, item, misses) in [Kind::PlaceBid, Kind::BuyNow, Kind::ViewItem]
            .into_iter()
            .flat_map(|kind| [(kind, 9, true), (kind, 1, false)])
        {
            let world = world::<Silo, Rubis>(&small(3));
            let mut client = world.1.client(0, 1, 1);
            let mut worker = world.0.worker().expect("a slot");
            let input = Input { kind, item, number: 1 << COUNT_BITS, date: 1, ..Input::default() };
            // Twice with one number, unless the item is missing.
            for _ in 0..if misses { 1 } else { 2 } {
                worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
                world.1.committed(&mut client, &input);
            }
            match check(&world, &[client]) {
                Ok(_) => assert!(kind == Kind::ViewItem && !misses),
                Err(wrong) => assert!(wrong.0.contains("found its item missing"), "{wrong}"),
            }
        }
    }

    /// The mix, the skew of items and users, and the amounts of bids are those of the description.
    #[test]
    fn draws_are_as_described() {
        const DRAWS: u32 = 100_000;
        let options = RubisOptions { items: 1000, users: 1000, ..small(3) };
        let world = world::<Silo, Rubis>(&options);
        let (mut client, mut again) = (world.1.client(1, 4, 5), world.1.client(1, 4, 5));
        let (mut input, mut same) = (Input::default(), Input::default());
        let (mut kinds, mut items, mut users, mut bids) = ([0u32; 3], vec![0u32; 1000], vec![0u32; 1000], [0u32; 11]);
        for _ in 0..DRAWS {
            world.1.next(&mut (), &mut client, &mut input);
            world.1.next(&mut (), &mut again, &mut same);
            assert_eq!(format!("{input:?}"), format!("{same:?}"));
            kinds[world.1.kind(&input)] += 1;
            items[input.item as usize] += 1;
            users[input.user as usize] += 1;
            bids[(input.bid - 35) as usize] += 1;
        }
        for (kind, expected) in kinds.into_iter().zip([30_000, 20_000, 50_000]) {
            assert!(kind.abs_diff(expected) < 700, "{kinds:?}");
        }
        // Ranks 0 and 1 have their exact probabilities.
        for (counts, theta) in [(items, options.item_theta), (users, options.user_theta)] {
            let sum: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-theta)).sum();
            for (rank, &count) in counts.iter().take(2).enumerate() {
                let expected = f64::from(DRAWS) * (rank as f64 + 1.0).powf(-theta) / sum;
                assert!((f64::from(count) - expected).abs() < 4.0 * expected.sqrt(), "{count}, not {expected}");
            }
        }
        assert!(bids[0] == 0 && bids[1..].iter().all(|count| count.abs_diff(10_000) < 500), "{bids:?}");
    }
}
