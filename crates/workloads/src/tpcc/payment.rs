//! Payment: a customer pays (clause 2.5).

use contend_model::pieces::{Piece, Types};
use contend_model::{Abort, Declare, Txn, Whole};

use super::schema::{Customer, DISTRICTS, District, History, Schema, Warehouse, customer_key, district_key};
use super::updates::{NotedBadCredit, Paid};
use super::{Client, Faults, HISTORY_BITS, NamedBy, Tpcc};

const IDENTIFY: Piece = Piece::new(0, "identify");
const FACTS: Piece = Piece::new(1, "facts");
const HISTORY: Piece = Piece::new(2, "history");
const NOTE: Piece = Piece::new(3, "note");
const SUMS: Piece = Piece::new(4, "sums");

/// Declares the pieces.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    let customer = (
        Customer::FIRST,
        Customer::MIDDLE,
        Customer::LAST,
        Customer::ADDRESS,
        Customer::PHONE,
        Customer::CREDIT,
        Customer::CREDIT_LIM,
        Customer::DISCOUNT,
    );
    types
        .add(name)
        .piece(IDENTIFY, |piece| piece.read(&tables.customer_by_name, Whole))
        .piece(FACTS, |piece| {
            piece
                .read(&tables.customer, customer)
                .read(&tables.warehouse, (Warehouse::NAME, Warehouse::ADDRESS))
                .read(&tables.district, (District::NAME, District::ADDRESS))
        })
        .piece(HISTORY, |piece| piece.insert(&tables.history))
        .piece(NOTE, |piece| piece.update(&tables.customer, NotedBadCredit::default()))
        .piece(SUMS, |piece| {
            piece
                .update(&tables.customer, Paid::default())
                .update(&tables.district, District::YTD.add(0))
                .update(&tables.warehouse, Warehouse::YTD.add(0))
        });
}

/// A Payment's parameters.
#[derive(Debug)]
pub struct Input {
    /// The warehouse that receives the payment.
    pub(super) warehouse: u64,
    pub(super) district: u64,
    /// The key of the customer's district.
    pub(super) customer_district: u64,
    named_by: NamedBy,
    amount: i64,
    date: u64,
}

/// What the payment needs to know of the customer, the warehouse and the district.
#[derive(Clone, Copy, Debug)]
struct Facts {
    bad_credit: bool,
    /// The names of the warehouse and the district, for the row of HISTORY.
    data: [u8; 24],
}

/// Returns the names of the warehouse and the district, for the row of HISTORY.
#[inline(always)]
fn names_of(place: [u8; 10], office: [u8; 10]) -> [u8; 24] {
    let mut data = [b' '; 24];
    data[..10].copy_from_slice(&place);
    data[14..].copy_from_slice(&office);
    data
}

#[cfg(test)]
impl Input {
    pub(super) fn is_remote_and_by_name(&self, home: u64) -> (bool, bool) {
        (self.customer_district >> 4 != home, matches!(self.named_by, NamedBy::Name(_)))
    }
}

impl<F: Faults> Tpcc<F> {
    pub(super) fn draw_payment(&self, client: &mut Client) -> Input {
        let warehouse = self.home(client);
        let random = &mut client.random;
        let district = random.uniform(1, DISTRICTS);
        let customer_district = if self.options.warehouses > 1 && random.happens(self.options.remote_payments.0) {
            district_key(self.other_warehouse(random, warehouse), random.uniform(1, DISTRICTS))
        } else {
            district_key(warehouse, district)
        };
        Input {
            warehouse,
            district,
            customer_district,
            named_by: self.draw_customer(random),
            amount: random.uniform(100, 500_000) as i64,
            date: client.clock,
        }
    }

    /// Declares the rows whose keys the input gives: the customer's only if it has the number.
    pub(super) fn payment_rows(&self, input: &Input, declaration: &mut impl Declare) {
        let tables = &self.tables;
        if let NamedBy::Number(number) = input.named_by {
            declaration.row(&tables.customer, customer_key(input.customer_district, number), true);
        }
        declaration.row(&tables.district, district_key(input.warehouse, input.district), true);
        declaration.row(&tables.warehouse, input.warehouse, true);
    }

    pub(super) fn payment<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let tables = &self.tables;
        let (customer_district, named_by) = (input.customer_district, input.named_by);
        let names = &mut client.scratch.names;
        let Some(number) = tx.piece(IDENTIFY, |tx| self.identify(tx, names, customer_district, named_by))? else {
            client.suspicion = Some(format!("Payment found no customer {named_by:?}"));
            return Ok(());
        };
        let key = customer_key(customer_district, number);
        let district = district_key(input.warehouse, input.district);
        if tx.defers() {
            return self.pay_in_two(tx, client, input, key, district);
        }
        let facts = tx.piece(FACTS, |tx| self.read_facts(tx, key, input.warehouse, district))?;
        let Some(Facts { bad_credit, data }) = facts else {
            client.suspicion = Some(format!("Payment by customer {key} found rows missing that are never deleted"));
            return Ok(());
        };
        let mut as_expected = self.note_payment(tx, client.number, input, key, Facts { bad_credit, data })?;
        as_expected &= tx.piece(SUMS, |tx| {
            let mut found = tx.update(&tables.customer, key, Paid { amount: input.amount })?;
            found &= tx.update(&tables.district, district, District::YTD.add(input.amount))?;
            Ok(found & tx.update(&tables.warehouse, input.warehouse, Warehouse::YTD.add(input.amount))?)
        })?;
        if !as_expected {
            client.suspicion = Some(format!("Payment by customer {key} found rows missing, or its own row there"));
        }
        Ok(())
    }

    /// Inserts the row of HISTORY, and notes the payment of a customer with bad credit. Returns
    /// whether all rows were as expected.
    #[inline(always)]
    fn note_payment<T: Txn>(
        &self,
        tx: &mut T,
        number: u64,
        input: &Input,
        customer: u64,
        facts: Facts,
    ) -> Result<bool, Abort> {
        let (tables, Facts { bad_credit, data }) = (&self.tables, facts);
        let district = district_key(input.warehouse, input.district);
        let row = History { customer, district, date: input.date, amount: input.amount, data };
        let history = number << HISTORY_BITS | input.date;
        let mut as_expected = tx.piece(HISTORY, |tx| tx.insert(&tables.history, history, row))?;
        if bad_credit {
            let note = NotedBadCredit { customer, district, amount: input.amount };
            as_expected &= tx.piece(NOTE, |tx| tx.update(&tables.customer, customer, note))?;
        }
        Ok(as_expected)
    }

    /// The rest of a payment, for a protocol that lets a part come later. The sums of warehouse and
    /// district come now, because all payments want these rows. The customer's row and HISTORY come
    /// later.
    fn pay_in_two<T: Txn>(
        &self,
        tx: &mut T,
        client: &mut Client,
        input: &Input,
        customer: u64,
        district: u64,
    ) -> Result<(), Abort> {
        let tables = &self.tables;
        // Before the first access, if the customer was not found by name.
        tx.later_row(&tables.customer, customer, true);
        let place = tx.read(&tables.warehouse, input.warehouse, (Warehouse::NAME, Warehouse::ADDRESS))?;
        let office = tx.read(&tables.district, district, (District::NAME, District::ADDRESS))?;
        let mut found = tx.update(&tables.district, district, District::YTD.add(input.amount))?;
        found &= tx.update(&tables.warehouse, input.warehouse, Warehouse::YTD.add(input.amount))?;
        let (Some(place), Some(office), true) = (place, office, found) else {
            client.suspicion =
                Some(format!("Payment by customer {customer} found rows missing that are never deleted"));
            return Ok(());
        };
        let history = client.number << HISTORY_BITS | input.date;
        tx.later_inserts(&tables.history, history..=history);
        tx.later(|tx| {
            let bad_credit = self.read_customer(tx, customer)?;
            let mut as_expected = bad_credit.is_some();
            if let Some(bad_credit) = bad_credit {
                let facts = Facts { bad_credit, data: names_of(place.0, office.0) };
                as_expected &= self.note_payment(tx, client.number, input, customer, facts)?;
                as_expected &= tx.update(&tables.customer, customer, Paid { amount: input.amount })?;
            }
            std::hint::black_box((place, office));
            if !as_expected {
                client.suspicion =
                    Some(format!("Payment by customer {customer} found rows missing, or its own row there"));
            }
            Ok(())
        })
    }

    /// Reads what the terminal shows of the customer, the warehouse and the district. Returns what
    /// the payment needs of it, or `None` if a row is missing.
    #[inline]
    fn read_facts<T: Txn>(
        &self,
        tx: &mut T,
        customer: u64,
        warehouse: u64,
        district: u64,
    ) -> Result<Option<Facts>, Abort> {
        let tables = &self.tables;
        let bad_credit = self.read_customer(tx, customer)?;
        let place = tx.read(&tables.warehouse, warehouse, (Warehouse::NAME, Warehouse::ADDRESS))?;
        let office = tx.read(&tables.district, district, (District::NAME, District::ADDRESS))?;
        let (Some(bad_credit), Some(place), Some(office)) = (bad_credit, place, office) else { return Ok(None) };
        let facts = Facts { bad_credit, data: names_of(place.0, office.0) };
        std::hint::black_box((place, office));
        Ok(Some(facts))
    }

    /// Reads what the terminal shows of the customer. Returns whether the customer has bad credit,
    /// or `None` if the row is missing.
    #[inline(always)]
    fn read_customer<T: Txn>(&self, tx: &mut T, customer: u64) -> Result<Option<bool>, Abort> {
        let columns = (
            Customer::FIRST,
            Customer::MIDDLE,
            Customer::LAST,
            Customer::ADDRESS,
            Customer::PHONE,
            Customer::CREDIT,
            Customer::CREDIT_LIM,
            Customer::DISCOUNT,
        );
        let Some(customer) = tx.read(&self.tables.customer, customer, columns)? else { return Ok(None) };
        std::hint::black_box(customer);
        Ok(Some(customer.5 == *b"BC"))
    }
}
