//! The shop: rows, what its transactions declare, and their bodies.

use std::iter::Sum;
use std::ops::ControlFlow;

use contend::pieces::{Kind, Piece, TypeBuilder};
use contend::{Abort, Direction, Row, Txn, Whole};
use contend_engine::TypedTable;

/// A user. The columns of group 1 are only added to.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct User {
    member_since: u64,
    #[group = 1]
    spent: i64,
    #[group = 1]
    orders: i64,
}

/// An item. The price never changes, and the stock does all the time. A stock below 0 is on order.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct Item {
    price: i64,
    #[group = 1]
    stock: i64,
    #[group = 1]
    restocked: i64,
}

/// An offer of the day, which can be sold out.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct Offer {
    left: i64,
    refilled: i64,
}

/// A coupon for a number of orders.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct Coupon {
    percent: i64,
    #[group = 1]
    used: i64,
}

/// A branch of the shop, which numbers its orders.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct Branch {
    next_order: u64,
}

/// An order.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct Order {
    user: u64,
    total: i64,
}

/// A line of an order.
#[derive(Clone, Copy, Row)]
#[repr(C)]
pub(crate) struct Line {
    item: u64,
    price: i64,
}

/// The tables.
pub(crate) struct Tables {
    pub(crate) users: TypedTable<User>,
    pub(crate) items: TypedTable<Item>,
    pub(crate) offers: TypedTable<Offer>,
    pub(crate) coupons: TypedTable<Coupon>,
    pub(crate) branches: TypedTable<Branch>,
    pub(crate) orders: TypedTable<Order>,
    pub(crate) lines: TypedTable<Line>,
}

pub(crate) const USERS: u64 = 10_000;
pub(crate) const ITEMS: u64 = 10_000;
pub(crate) const OFFERS: u64 = 10;
pub(crate) const COUPONS: u64 = 10;
pub(crate) const BRANCHES: u64 = 4;
/// The items of a checkout.
const BASKET: usize = 8;
const PRICE: i64 = 100;
/// The items in stock, and left of an offer, after they were filled up.
const FULL: i64 = 1_000;

/// The names of the types, in the order of their numbers.
pub(crate) const KINDS: [&str; 3] = ["checkout", "restock", "report"];
pub(crate) const CHECKOUT: Kind = Kind::new(0, KINDS[0]);
pub(crate) const RESTOCK: Kind = Kind::new(1, KINDS[1]);
pub(crate) const REPORT: Kind = Kind::new(2, KINDS[2]);

mod checkout_pieces {
    use contend::pieces::Piece;

    pub(super) const PRICES: Piece = Piece::new(0, "prices");
    pub(super) const OFFER: Piece = Piece::new(1, "offer");
    pub(super) const COUPON: Piece = Piece::new(2, "coupon");
    pub(super) const NUMBER: Piece = Piece::new(3, "number");
    pub(super) const STOCK: Piece = Piece::new(4, "stock");
    pub(super) const ORDER: Piece = Piece::new(5, "order");
    pub(super) const USER: Piece = Piece::new(6, "user");
}
const OFFERS_UP: Piece = Piece::new(0, "offers");
const STOCK_UP: Piece = Piece::new(1, "stock");
const SUMS: Piece = Piece::new(0, "sums");

pub(crate) fn declare_checkout(checkout: TypeBuilder<'_>, tables: &Tables) {
    use checkout_pieces::{COUPON, NUMBER, OFFER, ORDER, PRICES, STOCK, USER};
    checkout
        .piece(PRICES, |piece| piece.read(&tables.items, Item::PRICE))
        // It may cancel here: it has shown nothing yet.
        .piece(OFFER, |piece| piece.modify(&tables.offers, Whole).cancels())
        .piece(COUPON, |piece| piece.read(&tables.coupons, Coupon::PERCENT).modify(&tables.coupons, Coupon::USED))
        .piece(NUMBER, |piece| piece.modify(&tables.branches, Whole))
        .piece(STOCK, |piece| piece.modify(&tables.items, Item::STOCK))
        .piece(ORDER, |piece| piece.insert(&tables.orders).insert(&tables.lines))
        .piece(USER, |piece| piece.update(&tables.users, (User::SPENT.add(0), User::ORDERS.add(0))));
}

pub(crate) fn declare_restock(restock: TypeBuilder<'_>, tables: &Tables) {
    // In the order of a checkout: offers first.
    restock
        .piece(OFFERS_UP, |piece| piece.modify(&tables.offers, Whole))
        .piece(STOCK_UP, |piece| piece.modify(&tables.items, (Item::STOCK, Item::RESTOCKED)));
}

pub(crate) fn declare_report(report: TypeBuilder<'_>, tables: &Tables) {
    report.piece(SUMS, |piece| piece.read(&tables.offers, Whole).read(&tables.coupons, Coupon::USED));
}

/// Inserts all rows that the shop begins with.
pub(crate) fn fill<T: Txn>(tx: &mut T, tables: &Tables) -> Result<(), Abort> {
    for user in 0..USERS {
        tx.insert(&tables.users, user, new_user())?;
    }
    for item in 0..ITEMS {
        tx.insert(&tables.items, item, new_item())?;
    }
    for offer in 0..OFFERS {
        tx.insert(&tables.offers, offer, new_offer())?;
    }
    for coupon in 0..COUPONS {
        tx.insert(&tables.coupons, coupon, new_coupon(coupon))?;
    }
    for branch in 0..BRANCHES {
        tx.insert(&tables.branches, branch, new_branch())?;
    }
    Ok(())
}

pub(crate) fn new_user() -> User {
    User { member_since: 2026, spent: 0, orders: 0 }
}

pub(crate) fn new_item() -> Item {
    Item { price: PRICE, stock: FULL, restocked: 0 }
}

pub(crate) fn new_offer() -> Offer {
    Offer { left: FULL, refilled: 0 }
}

pub(crate) fn new_coupon(coupon: u64) -> Coupon {
    Coupon { percent: coupon as i64, used: 0 }
}

pub(crate) fn new_branch() -> Branch {
    Branch { next_order: 1 }
}

/// What a user buys.
pub(crate) struct Basket {
    user: u64,
    branch: u64,
    /// Different items, in the order of their keys.
    items: Vec<u64>,
    offer: u64,
    coupon: u64,
}

/// Sells a basket, and returns what the user pays. Cancels if the offer is sold out.
pub(crate) fn checkout<T: Txn>(tx: &mut T, tables: &Tables, basket: &Basket) -> Result<i64, Abort> {
    use checkout_pieces::{COUPON, NUMBER, OFFER, ORDER, PRICES, STOCK, USER};
    let Basket { user, branch, items, offer, coupon } = basket;
    let mut prices = [0; BASKET];
    tx.piece(PRICES, |tx| {
        tx.read_many(&tables.items, items, Item::PRICE, |position, price| prices[position] = price.unwrap_or(0))
    })?;
    tx.piece(OFFER, |tx| {
        let left = tx.modify_columns(&tables.offers, *offer, Offer::LEFT, |left| {
            *left -= 1;
            *left
        })?;
        if left.is_some_and(|left| left >= 0) { Ok(()) } else { Err(tx.cancel()) }
    })?;
    let percent = tx.piece(COUPON, |tx| {
        tx.modify_columns(&tables.coupons, *coupon, Coupon::USED, |used| *used += 1)?;
        tx.read(&tables.coupons, *coupon, Coupon::PERCENT)
    })?;
    let total = prices.iter().sum::<i64>() * (100 - percent.unwrap_or(0)) / 100;
    let number = tx.piece(NUMBER, |tx| {
        tx.modify(&tables.branches, *branch, |branch| {
            branch.next_order += 1;
            branch.next_order
        })
    })?;
    let order = branch << 32 | number.unwrap_or(0);
    tx.piece(STOCK, |tx| {
        tx.modify_many(&tables.items, items, Item::STOCK, |_, stock| {
            if let Some(stock) = stock {
                *stock -= 1;
            }
        })
    })?;
    tx.piece(ORDER, |tx| {
        tx.insert(&tables.orders, order, Order { user: *user, total })?;
        for (line, (item, price)) in (0..).zip(items.iter().zip(prices)) {
            tx.insert(&tables.lines, order << 4 | line, Line { item: *item, price })?;
        }
        Ok(())
    })?;
    tx.piece(USER, |tx| tx.update(&tables.users, *user, (User::SPENT.add(total), User::ORDERS.add(1))))?;
    Ok(total)
}

/// Fills an offer and some stocks up.
pub(crate) fn restock<T: Txn>(tx: &mut T, tables: &Tables, offer: u64, items: &[u64]) -> Result<(), Abort> {
    tx.piece(OFFERS_UP, |tx| {
        tx.modify(&tables.offers, offer, |offer| {
            offer.refilled += FULL - offer.left;
            offer.left = FULL;
        })
    })?;
    tx.piece(STOCK_UP, |tx| {
        tx.modify_many(&tables.items, items, (Item::STOCK, Item::RESTOCKED), |_, item| {
            if let Some((stock, restocked)) = item {
                *restocked += FULL - *stock;
                *stock = FULL;
            }
        })
    })
}

/// Returns how much is left of all offers, and how many coupons were used.
pub(crate) fn report<T: Txn>(tx: &mut T, tables: &Tables) -> Result<(i64, i64), Abort> {
    tx.piece(SUMS, |tx| {
        let (mut left, mut used) = (0, 0);
        let offers: Vec<u64> = (0..OFFERS).collect();
        tx.read_many(&tables.offers, &offers, Offer::LEFT, |_, of_offer| left += of_offer.unwrap_or(0))?;
        let coupons: Vec<u64> = (0..COUPONS).collect();
        tx.read_many(&tables.coupons, &coupons, Coupon::USED, |_, of_coupon| used += of_coupon.unwrap_or(0))?;
        Ok((left, used))
    })
}

/// What was sold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sold {
    pub(crate) orders: i64,
    spent: i64,
}

impl Sold {
    /// Adds orders for this sum.
    pub(crate) fn note(&mut self, orders: i64, spent: i64) {
        self.orders += orders;
        self.spent += spent;
    }
}

impl Sum for Sold {
    fn sum<I: Iterator<Item = Sold>>(all: I) -> Sold {
        let mut sum = Sold::default();
        all.for_each(|Sold { orders, spent }| sum.note(orders, spent));
        sum
    }
}

/// Returns what the tables say was sold, and checks that they agree.
pub(crate) fn books<T: Txn>(tx: &mut T, tables: &Tables) -> Result<Sold, Abort> {
    let (mut by_orders, mut by_users) = (Sold::default(), Sold::default());
    let (all, any_number) = (0..=u64::MAX, usize::MAX);
    tx.scan(&tables.orders, all.clone(), any_number, Direction::Forward, Order::TOTAL, |_, total| {
        by_orders.note(1, total);
        ControlFlow::Continue(())
    })?;
    tx.scan(&tables.users, all.clone(), any_number, Direction::Forward, Whole, |_, user: User| {
        by_users.note(user.orders, user.spent);
        ControlFlow::Continue(())
    })?;
    assert_eq!(by_orders, by_users, "orders and users agree");
    let mut used = 0;
    tx.scan(&tables.coupons, all.clone(), any_number, Direction::Forward, Coupon::USED, |_, of_coupon| {
        used += of_coupon;
        ControlFlow::Continue(())
    })?;
    assert_eq!(used, by_orders.orders, "each order has used a coupon");
    let mut numbers = 0;
    tx.scan(&tables.branches, all.clone(), any_number, Direction::Forward, Branch::NEXT_ORDER, |_, next| {
        numbers += next as i64 - 1;
        ControlFlow::Continue(())
    })?;
    assert_eq!(numbers, by_orders.orders, "each order has a number of its own");
    let (mut taken, mut of_offers) = (0, 0);
    tx.scan(&tables.items, all.clone(), any_number, Direction::Forward, Whole, |_, item: Item| {
        taken += FULL + item.restocked - item.stock;
        ControlFlow::Continue(())
    })?;
    assert_eq!(taken, by_orders.orders * BASKET as i64, "stocks and orders agree");
    tx.scan(&tables.offers, all, any_number, Direction::Forward, Whole, |_, offer: Offer| {
        of_offers += FULL + offer.refilled - offer.left;
        ControlFlow::Continue(())
    })?;
    assert_eq!(of_offers, by_orders.orders, "offers and orders agree");
    Ok(by_orders)
}

/// What a client does next.
pub(crate) enum Draw {
    /// Sells a basket.
    Checkout(Basket),
    /// Fills this offer and these items up.
    Restock(u64, Vec<u64>),
    /// Reads the report.
    Report,
}

impl Draw {
    /// Returns the position of the type.
    pub(crate) fn kind(&self) -> usize {
        match self {
            Draw::Checkout(_) => 0,
            Draw::Restock(..) => 1,
            Draw::Report => 2,
        }
    }
}

/// A source of transactions: of 20 draws, 18 are checkouts, 1 fills stocks up, and 1 is a report.
pub(crate) struct Client {
    state: u64,
}

impl Client {
    pub(crate) fn new(number: u64) -> Client {
        Client { state: (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((u128::from(self.state) * u128::from(end)) >> 64) as u64
    }

    /// Draws different items.
    fn items(&mut self) -> Vec<u64> {
        let mut items = Vec::with_capacity(BASKET);
        while items.len() < BASKET {
            let item = self.below(ITEMS);
            if !items.contains(&item) {
                items.push(item);
            }
        }
        items.sort_unstable();
        items
    }

    pub(crate) fn draw(&mut self) -> Draw {
        match self.below(20) {
            0 => Draw::Report,
            1 => Draw::Restock(self.below(OFFERS), self.items()),
            _ => Draw::Checkout(Basket {
                user: self.below(USERS),
                branch: self.below(BRANCHES),
                items: self.items(),
                offer: self.below(OFFERS),
                coupon: self.below(COUPONS),
            }),
        }
    }
}
