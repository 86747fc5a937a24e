//! Payment: a customer pays (clause 2.5).

use contend_model::{Abort, Txn};

use super::schema::{Customer, DISTRICTS, District, History, Warehouse, customer_key, district_key};
use super::updates::{Paid, PaidOnBadCredit};
use super::{Client, Faults, HISTORY_BITS, NamedBy, Tpcc};

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

    pub(super) fn payment<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let tables = &self.tables;
        let number = self.identify(tx, &mut client.scratch.names, input.customer_district, input.named_by)?;
        let Some(number) = number else {
            client.suspicion = Some(format!("Payment found no customer {:?}", input.named_by));
            return Ok(());
        };
        let key = customer_key(input.customer_district, number);
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
        let Some(customer) = tx.read(&tables.customer, key, columns)? else { return Err(tx.cancel()) };
        let district = district_key(input.warehouse, input.district);
        let Some(place) = tx.read(&tables.warehouse, input.warehouse, (Warehouse::NAME, Warehouse::ADDRESS))? else {
            return Err(tx.cancel());
        };
        let Some(office) = tx.read(&tables.district, district, (District::NAME, District::ADDRESS))? else {
            return Err(tx.cancel());
        };
        let mut data = [b' '; 24];
        data[..10].copy_from_slice(&place.0);
        data[14..].copy_from_slice(&office.0);
        let row = History { customer: key, district, date: input.date, amount: input.amount, data };
        let new = tx.insert(&tables.history, client.number << HISTORY_BITS | input.date, row)?;
        let bad_credit = customer.5 == *b"BC";
        let mut found = if bad_credit {
            tx.update(&tables.customer, key, PaidOnBadCredit { customer: key, district, amount: input.amount })?
        } else {
            tx.update(&tables.customer, key, Paid { amount: input.amount })?
        };
        found &= tx.update(&tables.district, district, District::YTD.add(input.amount))?;
        found &= tx.update(&tables.warehouse, input.warehouse, Warehouse::YTD.add(input.amount))?;
        if !found || !new {
            client.suspicion = Some(format!("Payment by customer {key} found rows missing, or its own row there"));
        }
        std::hint::black_box((customer, place, office));
        Ok(())
    }
}
