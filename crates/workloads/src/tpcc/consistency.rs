//! The twelve consistency conditions of clause 3.3.2. Three further checks are ours: of the
//! secondary indexes, of the stocks, and of the payments, partly against what the clients remember.

use std::collections::HashMap;

use contend_model::{Inspect, Key, Row, TypedTable, counted};

use super::schema::{
    Customer, CustomerName, DISTRICTS, District, History, Nothing, Order, OrderLine, Schema, Stock, Warehouse,
    customer_key, customer_order_key, district_key, order_key, order_number, stock_key,
};
use super::{Client, TpccOptions, load};
use crate::workload::{Checked, Violation};

/// Checks all conditions.
pub(super) fn check<S: Inspect>(
    options: &TpccOptions,
    tables: &Schema,
    store: &S,
    clients: &[&Client],
) -> Result<Checked, Violation> {
    if let Some(wrong) = clients.iter().find_map(|client| client.books.wrong.as_ref()) {
        return Err(Violation(format!("a committed transaction saw something wrong: {wrong}")));
    }
    let state = State::gather(options, tables, store)?;
    let books = Totals::of(options, clients);
    for condition in CONDITIONS {
        // Without clients, as after a crash, there are no totals to compare with.
        condition(&state, (!clients.is_empty()).then_some(&books))?;
    }
    Ok(Checked(format!(
        "the conditions of clause 3.3.2 hold, 1 to 12; {} ({} delivered by the run), {}; secondary indexes and stocks agree",
        counted(state.orders.len(), "order"),
        books.delivered.iter().sum::<u64>(),
        counted(books.payments, "payment")
    )))
}

type Condition = fn(&State, Option<&Totals>) -> Result<(), Violation>;

/// The standard's conditions by number, then our own.
const CONDITIONS: [Condition; 15] = [
    |state, _| state.condition_1(),
    |state, _| state.condition_2(),
    |state, _| state.condition_3(),
    |state, _| state.condition_4(),
    |state, _| state.condition_5(),
    |state, _| state.condition_6(),
    |state, _| state.condition_7(),
    |state, _| state.condition_8(),
    |state, _| state.condition_9(),
    |state, _| state.condition_10(),
    State::condition_11,
    |state, _| state.condition_12(),
    |state, _| state.indexes_agree(),
    State::stocks_agree,
    State::payments_agree,
];

/// The sums of what all clients remember.
struct Totals {
    /// Orders that the run delivered, by district.
    delivered: Vec<u64>,
    /// Quantities that the run ordered, by the supplying warehouse.
    ordered: Vec<u64>,
    payments: u64,
}

impl Totals {
    fn of(options: &TpccOptions, clients: &[&Client]) -> Self {
        let sum = |count: usize, of: fn(&Client) -> &[u64]| -> Vec<u64> {
            (0..count).map(|at| clients.iter().map(|client| of(client)[at]).sum()).collect()
        };
        Totals {
            delivered: sum((options.warehouses * DISTRICTS) as usize, |client| &client.books.delivered),
            ordered: sum(options.warehouses as usize, |client| &client.books.ordered),
            payments: clients.iter().map(|client| client.books.payments).sum(),
        }
    }
}

/// An order, with the sums over its lines.
#[derive(Clone, Copy, Debug)]
struct OrderState {
    key: u64,
    customer: u64,
    says_lines: u64,
    carrier: u64,
    lines: u64,
    delivered_lines: u64,
    /// The sum of the amounts of the delivered lines.
    amount: i64,
}

/// The sums in a warehouse's or a district's row.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    ytd: i64,
    next_o_id: u64,
    /// The sum of the payments in HISTORY.
    paid: i64,
}

#[derive(Clone, Copy, Debug, Default)]
struct CustomerState {
    balance: i64,
    ytd_payment: i64,
    payment_cnt: u32,
    delivery_cnt: u32,
    last: [u8; 16],
    first: [u8; 16],
    /// The sum of the payments in HISTORY.
    paid: i64,
    payments: u32,
    /// The sum of the amounts of the delivered lines of its orders.
    delivered: i64,
    deliveries: u32,
}

/// The part of the database that the conditions are about.
struct State {
    options: TpccOptions,
    /// By number, from 1.
    warehouses: Vec<Place>,
    /// By key.
    districts: Vec<(u64, Place)>,
    customers: HashMap<u64, CustomerState>,
    /// By ascending key, as are the next three.
    orders: Vec<OrderState>,
    new_orders: Vec<u64>,
    orders_by_customer: Vec<u64>,
    names: Vec<(u64, [u8; 16], [u8; 16])>,
    /// By warehouse: the quantities taken and the orders counted by its stocks.
    stocks: Vec<(u64, u64)>,
    history_rows: u64,
}

impl State {
    fn gather<S: Inspect>(options: &TpccOptions, tables: &Schema, store: &S) -> Result<State, Violation> {
        let mut state = State {
            options: options.clone(),
            warehouses: Vec::new(),
            districts: Vec::new(),
            customers: HashMap::new(),
            orders: Vec::new(),
            new_orders: Vec::new(),
            orders_by_customer: Vec::new(),
            names: Vec::new(),
            stocks: Vec::new(),
            history_rows: 0,
        };
        for warehouse in 1..=options.warehouses {
            let row: Warehouse = get(store, &tables.warehouse, warehouse)?;
            state.warehouses.push(Place { ytd: row.ytd, ..Place::default() });
            for district in (1..=DISTRICTS).map(|district| district_key(warehouse, district)) {
                let row: District = get(store, &tables.district, district)?;
                state.districts.push((district, Place { ytd: row.ytd, next_o_id: row.next_o_id, paid: 0 }));
                for key in (1..=options.customers).map(|customer| customer_key(district, customer)) {
                    let Customer { balance, ytd_payment, payment_cnt, delivery_cnt, last, first, .. } =
                        get(store, &tables.customer, key)?;
                    let customer = CustomerState {
                        balance,
                        ytd_payment,
                        payment_cnt,
                        delivery_cnt,
                        last,
                        first,
                        ..CustomerState::default()
                    };
                    state.customers.insert(key, customer);
                }
            }
            let mut stocks = (0, 0);
            for item in 1..=options.items {
                let row: Stock = get(store, &tables.stock, stock_key(warehouse, item))?;
                stocks.0 += u64::from(row.ytd);
                stocks.1 += u64::from(row.order_cnt);
                if !(10..=100).contains(&row.quantity) {
                    return Err(Violation(format!("stock {item} of warehouse {warehouse} holds {}", row.quantity)));
                }
            }
            state.stocks.push(stocks);
        }
        state.gather_orders(tables, store);
        state.gather_payments(tables, store)?;
        Ok(state)
    }

    fn gather_orders<S: Inspect>(&mut self, tables: &Schema, store: &S) {
        each(store, &tables.order, |key, row: &Order| {
            self.orders.push(OrderState {
                key,
                customer: u64::from(row.customer),
                says_lines: u64::from(row.ol_cnt),
                carrier: row.carrier,
                lines: 0,
                delivered_lines: 0,
                amount: 0,
            });
        });
        each(store, &tables.new_order, |key, _: &Nothing| self.new_orders.push(key));
        each(store, &tables.order_by_customer, |key, _: &Nothing| self.orders_by_customer.push(key));
        each(store, &tables.customer_by_name, |key, row: &CustomerName| {
            self.names.push((customer_key(key.district, key.customer), key.last, row.first));
        });
        let mut orders = self.orders.iter_mut().peekable();
        let mut strays = Vec::new();
        each(store, &tables.order_line, |key, row: &OrderLine| {
            let of = key >> 4;
            while orders.next_if(|order| order.key < of).is_some() {}
            match orders.peek_mut() {
                Some(order) if order.key == of => {
                    order.lines += 1;
                    order.delivered_lines += u64::from(row.delivery_d != 0);
                    order.amount += if row.delivery_d == 0 { 0 } else { row.amount };
                }
                // A line without an order counts as an order that claims to have no lines.
                _ => strays.push(OrderState {
                    key: of,
                    customer: 0,
                    says_lines: 0,
                    carrier: 0,
                    lines: 1,
                    delivered_lines: u64::from(row.delivery_d != 0),
                    amount: 0,
                }),
            }
        });
        self.orders.extend(strays);
    }

    fn gather_payments<S: Inspect>(&mut self, tables: &Schema, store: &S) -> Result<(), Violation> {
        let mut strange = None;
        each(store, &tables.history, |key, row: &History| {
            self.history_rows += 1;
            let district = self.districts.iter_mut().find(|(district, _)| *district == row.district);
            let customer = self.customers.get_mut(&row.customer);
            let (Some((district, place)), Some(customer)) = (district, customer) else {
                strange.get_or_insert(key);
                return;
            };
            place.paid += row.amount;
            self.warehouses[(*district >> 4) as usize - 1].paid += row.amount;
            customer.paid += row.amount;
            customer.payments += 1;
        });
        if let Some(key) = strange {
            return Err(Violation(format!("history row {key} is of a customer or a district that is not there")));
        }
        let first_deliveries = load::delivered(&self.options);
        for order in self.orders.iter().filter(|order| order.customer != 0) {
            let (district, number) = (order.key >> 32, order_number(order.key));
            let Some(customer) = self.customers.get_mut(&customer_key(district, order.customer)) else { continue };
            customer.delivered += order.amount;
            customer.deliveries += u32::from(order.carrier != 0 && number > first_deliveries);
        }
        Ok(())
    }

    /// Returns the orders of a district.
    fn orders_of(&self, district: u64) -> impl Iterator<Item = &OrderState> {
        let from = self.orders.partition_point(|order| order.key < order_key(district, 0));
        self.orders[from..].iter().take_while(move |order| order.key >> 32 == district)
    }

    /// Returns the keys of a district's new orders.
    fn new_orders_of(&self, district: u64) -> &[u64] {
        let at = |key| self.new_orders.partition_point(|&order| order < key);
        &self.new_orders[at(order_key(district, 0))..at(order_key(district + 1, 0))]
    }

    /// W_YTD = sum(D_YTD).
    fn condition_1(&self) -> Result<(), Violation> {
        for (warehouse, place) in (1..).zip(&self.warehouses) {
            let districts = self.districts.iter().filter(|(district, _)| district >> 4 == warehouse);
            let sum: i64 = districts.map(|(_, district)| district.ytd).sum();
            require(place.ytd == sum, 1, || {
                format!("warehouse {warehouse} has W_YTD {}, and its districts have {sum}", place.ytd)
            })?;
        }
        Ok(())
    }

    /// D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID).
    fn condition_2(&self) -> Result<(), Violation> {
        for (district, place) in &self.districts {
            let last = self.orders_of(*district).last().map_or(0, |order| order_number(order.key));
            let last_new = self.new_orders_of(*district).last().map_or(last, |&key| order_number(key));
            require(place.next_o_id == last + 1 && last_new == last, 2, || {
                format!(
                    "district {district} has D_NEXT_O_ID {}, its last order is {last}, its last new order {last_new}",
                    place.next_o_id
                )
            })?;
        }
        Ok(())
    }

    /// max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER.
    fn condition_3(&self) -> Result<(), Violation> {
        for (district, _) in &self.districts {
            let new = self.new_orders_of(*district);
            let (Some(first), Some(last)) = (new.first(), new.last()) else { continue };
            require(last - first + 1 == new.len() as u64, 3, || {
                let (first, last) = (order_number(*first), order_number(*last));
                format!("district {district} has {} from {first} to {last}", counted(new.len(), "new order"))
            })?;
        }
        Ok(())
    }

    /// sum(O_OL_CNT) = rows of ORDER-LINE, by district.
    fn condition_4(&self) -> Result<(), Violation> {
        for (district, _) in &self.districts {
            let (said, there) =
                self.orders_of(*district).fold((0, 0), |(said, there), o| (said + o.says_lines, there + o.lines));
            let strays = self.orders.iter().filter(|order| order.customer == 0 && order.key >> 32 == *district).count();
            require(said == there && strays == 0, 4, || {
                format!(
                    "district {district}'s orders say {}, and there are {there}, {strays} of no order",
                    counted(said, "line")
                )
            })?;
        }
        Ok(())
    }

    /// O_CARRIER_ID is null if and only if NEW-ORDER has the order.
    fn condition_5(&self) -> Result<(), Violation> {
        for order in &self.orders {
            let is_new = self.new_orders.binary_search(&order.key).is_ok();
            require((order.carrier == 0) == is_new, 5, || {
                let is = if is_new { "is" } else { "is not" };
                format!("{} has carrier {}, and {is} in NEW-ORDER", show(order.key), order.carrier)
            })?;
        }
        let without_order =
            self.new_orders.iter().find(|key| self.orders.binary_search_by_key(*key, |order| order.key).is_err());
        match without_order {
            None => Ok(()),
            Some(&key) => Err(violation(5, format!("NEW-ORDER has {}, and ORDER does not", show(key)))),
        }
    }

    /// O_OL_CNT = rows of ORDER-LINE, by order.
    fn condition_6(&self) -> Result<(), Violation> {
        self.orders.iter().try_for_each(|order| {
            require(order.says_lines == order.lines, 6, || {
                format!("{} says {}, and there are {}", show(order.key), counted(order.says_lines, "line"), order.lines)
            })
        })
    }

    /// OL_DELIVERY_D is null if and only if O_CARRIER_ID is.
    fn condition_7(&self) -> Result<(), Violation> {
        self.orders.iter().try_for_each(|order| {
            let expected = if order.carrier == 0 { 0 } else { order.lines };
            require(order.delivered_lines == expected, 7, || {
                format!(
                    "{} has carrier {}, and {} of its {} lines are delivered",
                    show(order.key),
                    order.carrier,
                    order.delivered_lines,
                    order.lines
                )
            })
        })
    }

    /// W_YTD = sum(H_AMOUNT).
    fn condition_8(&self) -> Result<(), Violation> {
        (1..).zip(&self.warehouses).try_for_each(|(warehouse, place): (u64, &Place)| {
            require(place.ytd == place.paid, 8, || {
                format!("warehouse {warehouse} has W_YTD {}, and history has {}", place.ytd, place.paid)
            })
        })
    }

    /// D_YTD = sum(H_AMOUNT).
    fn condition_9(&self) -> Result<(), Violation> {
        self.districts.iter().try_for_each(|(district, place)| {
            require(place.ytd == place.paid, 9, || {
                format!("district {district} has D_YTD {}, and history has {}", place.ytd, place.paid)
            })
        })
    }

    /// C_BALANCE = sum(OL_AMOUNT of delivered lines) - sum(H_AMOUNT).
    fn condition_10(&self) -> Result<(), Violation> {
        self.customers.iter().try_for_each(|(key, customer)| {
            require(customer.balance == customer.delivered - customer.paid, 10, || {
                let CustomerState { balance, delivered, paid, .. } = customer;
                format!("customer {key} has C_BALANCE {balance}; {delivered} was delivered, {paid} paid")
            })
        })
    }

    /// Rows of ORDER - rows of NEW-ORDER = 2100, by district. In a smaller population the number is
    /// that of the delivered orders. After a run the orders that the run delivered are added.
    fn condition_11(&self, books: Option<&Totals>) -> Result<(), Violation> {
        let Some(books) = books else { return Ok(()) };
        for ((district, _), delivered) in self.districts.iter().zip(&books.delivered) {
            let (orders, new) = (self.orders_of(*district).count() as u64, self.new_orders_of(*district).len() as u64);
            let expected = load::delivered(&self.options) + delivered;
            require(orders.checked_sub(new) == Some(expected), 11, || {
                format!(
                    "district {district} has {}, {new} of them new, and delivered were {expected}",
                    counted(orders, "order")
                )
            })?;
        }
        Ok(())
    }

    /// C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT of delivered lines).
    fn condition_12(&self) -> Result<(), Violation> {
        self.customers.iter().try_for_each(|(key, customer)| {
            require(customer.balance + customer.ytd_payment == customer.delivered, 12, || {
                let CustomerState { balance, ytd_payment, delivered, .. } = customer;
                format!(
                    "customer {key} has C_BALANCE {balance}, C_YTD_PAYMENT {ytd_payment}; {delivered} was delivered"
                )
            })
        })
    }

    /// The secondary indexes have an entry for each customer and each order, and no other.
    fn indexes_agree(&self) -> Result<(), Violation> {
        let wrong = |what: String| Err(Violation(format!("a secondary index is wrong: {what}")));
        if self.names.len() != self.customers.len() {
            return wrong(format!("{} names of {} customers", self.names.len(), self.customers.len()));
        }
        for (key, last, first) in &self.names {
            if self.customers.get(key).is_none_or(|customer| (customer.last, customer.first) != (*last, *first)) {
                return wrong(format!("customer {key} has another name, or is not there"));
            }
        }
        if self.orders_by_customer.len() != self.orders.len() {
            return wrong(format!("entries: {}, orders: {}", self.orders_by_customer.len(), self.orders.len()));
        }
        for order in &self.orders {
            let customer = customer_key(order.key >> 32, order.customer);
            let key = customer_order_key(customer, order_number(order.key));
            if self.orders_by_customer.binary_search(&key).is_err() {
                return wrong(format!("{} is not among those of customer {customer}", show(order.key)));
            }
        }
        Ok(())
    }

    /// The stocks' counters agree with the committed orders.
    fn stocks_agree(&self, books: Option<&Totals>) -> Result<(), Violation> {
        let ordered = books.map_or(&[][..], |books| &books.ordered);
        for (warehouse, ((taken, _), ordered)) in (1..).zip(self.stocks.iter().zip(ordered)) {
            let warehouse: u64 = warehouse;
            if taken != ordered {
                return Err(Violation(format!(
                    "the stocks of warehouse {warehouse} say that {taken} were taken, and {ordered} were ordered"
                )));
            }
        }
        let lines: u64 =
            self.orders.iter().filter(|order| order_number(order.key) > self.options.customers).map(|o| o.lines).sum();
        let counted: u64 = self.stocks.iter().map(|(_, orders)| orders).sum();
        if lines != counted {
            return Err(Violation(format!("the stocks count orders: {counted}, and the order lines are {lines}")));
        }
        Ok(())
    }

    /// The customers' counters agree with their payments and deliveries.
    fn payments_agree(&self, books: Option<&Totals>) -> Result<(), Violation> {
        let expected = books.map(|books| self.customers.len() as u64 + books.payments);
        if let Some(expected) = expected.filter(|expected| self.history_rows != *expected) {
            return Err(Violation(format!(
                "history has {}, and paid were {expected}",
                counted(self.history_rows, "row")
            )));
        }
        for (key, customer) in &self.customers {
            let CustomerState { payment_cnt, payments, delivery_cnt, deliveries, .. } = customer;
            if (payment_cnt, delivery_cnt) != (payments, deliveries) {
                return Err(Violation(format!(
                    "customer {key} counts {} and {}; there are {payments} and {deliveries}",
                    counted(*payment_cnt, "payment"),
                    counted(*delivery_cnt, "delivery")
                )));
            }
        }
        Ok(())
    }
}

fn show(order: u64) -> String {
    format!("order {} of district {}", order_number(order), order >> 32)
}

fn violation(condition: u32, what: String) -> Violation {
    Violation(format!("condition {condition} (clause 3.3.2.{condition}): {what}"))
}

fn require(holds: bool, condition: u32, what: impl FnOnce() -> String) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(violation(condition, what())) }
}

/// Returns a row, which must exist.
fn get<R: Row, K: Key, S: Inspect>(store: &S, table: &TypedTable<R, K>, key: K) -> Result<R, Violation> {
    let mut words = Vec::new();
    match store.peek(table, key, &mut words) {
        Some(()) => Ok(*R::from_words(&words)),
        None => Err(Violation(format!("{} {} is gone", store.table_name(table), key.name()))),
    }
}

/// Visits the rows of a table with an ordered index, by ascending keys.
fn each<R: Row, K: Key, S: Inspect>(store: &S, table: &TypedTable<R, K>, mut visit: impl FnMut(K, &R)) {
    let ordered = store.peek_all(table, |key, words| visit(key, R::from_words(words)));
    assert!(ordered, "the table {} has an ordered index", store.table_name(table));
}
