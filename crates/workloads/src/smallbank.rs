//! SmallBank: customers with a savings and a checking account, and six short transactions.
//!
//! This is the benchmark of write skew. Both accounts together cover a check, but the amount is
//! taken from one of them. Under snapshot isolation two transactions may each find enough money and
//! take it, from different accounts.
//!
//! With `smallbank.overdraft=on`, as published, a check that is not covered costs a penalty of a
//! dollar. With `off` the check is refused, and so is a withdrawal from the savings. Then no
//! customer's accounts are ever below zero together after a serializable execution. The check after
//! a run tests this, and write skew breaks it. Verified runs use `off`.
//!
//! Each transaction goes from the savings to the checking accounts. Only TransactSavings needs the
//! two the other way round: what it takes from the savings depends on both. So an analysis of the
//! pieces can't order the two tables, whatever the bodies do.
//!
//! Clients book what their transactions brought to each *tracked* customer (see `bank`), which
//! shows lost updates.

use std::ops::ControlFlow;

use contend_derive::Row;
use contend_model::options::Fraction;
use contend_model::pieces::{Piece, PieceBuilder};
use contend_model::{
    Abort, Core, Declare, IndexKind, Inspect, Load, OutOfMemory, Row, TableSpec, Tables, Txn, TypedTable, Types,
    counted, options,
};

use crate::loading::load_in_steps;
use crate::random::Random;
use crate::sample::Sample;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};

options! {
    /// SmallBank's options.
    pub struct SmallBankOptions {
        /// Customers.
        "smallbank.customers" customers: u64 = 100_000, in 2..=100_000_000;
        /// The number of customers that are hot.
        "smallbank.hot_customers" hot_customers: u64 = 100, in 1..=100_000_000;
        /// The fraction of accesses that go to hot customers.
        "smallbank.hot" hot: Fraction = Fraction(0.25), in ();
        /// Weight of Amalgamate among the transactions.
        "smallbank.amalgamate" amalgamate: u64 = 15, in 0..=1_000;
        /// Weight of Balance.
        "smallbank.balance" balance: u64 = 15, in 0..=1_000;
        /// Weight of DepositChecking.
        "smallbank.deposit_checking" deposit_checking: u64 = 15, in 0..=1_000;
        /// Weight of SendPayment.
        "smallbank.send_payment" send_payment: u64 = 25, in 0..=1_000;
        /// Weight of TransactSavings.
        "smallbank.transact_savings" transact_savings: u64 = 15, in 0..=1_000;
        /// Weight of WriteCheck.
        "smallbank.write_check" write_check: u64 = 15, in 0..=1_000;
        /// Whether a customer's accounts may be overdrawn together, for a penalty, as published.
        /// Otherwise such a transaction is refused.
        "smallbank.overdraft" overdraft: bool = true, in ();
        /// Partitions of the customers, by the remainders of their numbers.
        "smallbank.partitions" partitions: u64 = 1, in 1..=65_536;
    }
}

/// SmallBank in a list.
pub const INFOS: &[WorkloadInfo] = &[WorkloadInfo {
    name: "smallbank",
    summary: "savings and checking accounts, checks covered by both: the benchmark of write skew",
    source: "Alomari, Cahill, Fekete, Röhm: The cost of serializability on platforms that use snapshot isolation, ICDE 2008; \
             mix of H-Store",
    preset: &[],
}];

/// The opening balance of each account, in cents.
const OPENING: i64 = 10_000;
/// The penalty for a check that is not covered, in cents.
const PENALTY: i64 = 100;
const LOAD_STEP: u64 = 4096;

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct Account {
    balance: i64,
}

/// The pieces of Amalgamate, Balance and SendPayment.
const SAVINGS: Piece = Piece::new(0, "savings");
const CHECKING: Piece = Piece::new(1, "checking");
/// The piece of DepositChecking.
const DEPOSIT: Piece = Piece::new(0, "deposit");
/// The piece of TransactSavings and WriteCheck.
const TAKE: Piece = Piece::new(0, "take");

/// The transaction types, in the order of [`Workload::KINDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    Amalgamate,
    #[default]
    Balance,
    DepositChecking,
    SendPayment,
    TransactSavings,
    WriteCheck,
}

const KINDS: [Kind; 6] = [
    Kind::Amalgamate,
    Kind::Balance,
    Kind::DepositChecking,
    Kind::SendPayment,
    Kind::TransactSavings,
    Kind::WriteCheck,
];

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    kind: Kind,
    customer: u64,
    /// The second customer of a transaction between two; otherwise the same one.
    other: u64,
    amount: i64,
}

/// A worker's generator of inputs, and its books.
#[derive(Debug)]
pub struct Client {
    random: Random,
    /// The amounts that the running execution brings `customer` and `other`.
    bringing: (i64, i64),
    /// Whether the running execution found an account missing. None is ever deleted.
    misses: bool,
    /// Whether a committed transaction found an account missing.
    missed: bool,
    /// For each tracked customer: the amounts that committed transactions brought, less those that
    /// they took.
    flows: Vec<i64>,
    /// The sum of the flows of all customers, tracked or not.
    total: i64,
    commits: u64,
}

/// The workload.
#[derive(Debug)]
pub struct SmallBank {
    options: SmallBankOptions,
    savings: TypedTable<Account>,
    checking: TypedTable<Account>,
    /// The cumulative weights, by type.
    weights: [u64; 6],
    tracked: Sample,
}

impl SmallBank {
    fn draw_customer(&self, random: &mut Random) -> u64 {
        let hot = self.options.hot_customers;
        if hot == self.options.customers || random.happens(self.options.hot.0) {
            random.uniform(0, hot - 1)
        } else {
            random.uniform(hot, self.options.customers - 1)
        }
    }

    /// Draws another customer by the same distribution, or uniformly if that yields no other.
    fn draw_other(&self, random: &mut Random, customer: u64) -> u64 {
        const TRIES: usize = 64;
        let drawn = (0..TRIES).map(|_| self.draw_customer(random)).find(|other| *other != customer);
        let customers = self.options.customers;
        drawn.unwrap_or_else(|| (customer + random.uniform(1, customers - 1)) % customers)
    }

    /// Takes `amount`, which may be negative, from the account in `from` if both accounts together
    /// cover it. Returns what was taken, with the penalty; `None` if an account is missing.
    fn take<T: Txn>(
        &self,
        tx: &mut T,
        customer: u64,
        amount: i64,
        from: &TypedTable<Account>,
        and: &TypedTable<Account>,
    ) -> Result<Option<i64>, Abort> {
        let Some(besides) = tx.read(and, customer, Account::BALANCE)? else { return Ok(None) };
        let overdraft = self.options.overdraft;
        let taken = tx.modify_columns(from, customer, Account::BALANCE, |balance| {
            let covered = amount <= 0 || besides.wrapping_add(*balance) >= amount;
            let taken = if covered { amount } else { amount + PENALTY };
            if covered || overdraft {
                *balance = balance.wrapping_sub(taken);
            }
            (covered || overdraft).then_some(taken)
        })?;
        match taken {
            Some(None) => Err(tx.cancel()),
            taken => Ok(taken.flatten()),
        }
    }

    /// Returns what was moved; `None` if an account is missing.
    fn amalgamate<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<Option<i64>, Abort> {
        let empty = |balance: &mut i64| std::mem::take(balance);
        let savings =
            tx.piece(SAVINGS, |tx| tx.modify_columns(&self.savings, input.customer, Account::BALANCE, empty))?;
        let Some(savings) = savings else { return Ok(None) };
        tx.piece(CHECKING, |tx| {
            let checking = tx.modify_columns(&self.checking, input.customer, Account::BALANCE, empty)?;
            let Some(checking) = checking else { return Ok(None) };
            let all = savings.wrapping_add(checking);
            Ok(tx.update(&self.checking, input.other, Account::BALANCE.add(all))?.then_some(all))
        })
    }

    /// Returns what was paid; `None` if an account is missing.
    fn send_payment<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<Option<i64>, Abort> {
        let Input { customer, amount, .. } = *input;
        // Where overdrafts are refused, the checking account must also cover a debt of the savings.
        let owed = tx.piece(SAVINGS, |tx| match self.options.overdraft {
            true => Ok(Some(0)),
            false => Ok(tx.read(&self.savings, customer, Account::BALANCE)?.map(|savings| savings.min(0))),
        })?;
        let Some(owed) = owed else { return Ok(None) };
        tx.piece(CHECKING, |tx| {
            let paid = tx.modify_columns(&self.checking, customer, Account::BALANCE, |balance| {
                let enough = balance.wrapping_add(owed) >= amount;
                if enough {
                    *balance -= amount;
                }
                enough
            })?;
            match paid {
                None => Ok(None),
                Some(false) => Err(tx.cancel()),
                Some(true) => {
                    let found = tx.update(&self.checking, input.other, Account::BALANCE.add(amount))?;
                    Ok(found.then_some(amount))
                }
            }
        })
    }
}

impl Workload for SmallBank {
    type Options = SmallBankOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &["amalgamate", "balance", "deposit_checking", "send_payment", "transact_savings", "write_check"]
    }

    fn validate(options: &SmallBankOptions, _: IndexKind) -> Result<(), String> {
        if options.hot_customers > options.customers {
            let SmallBankOptions { hot_customers, customers, .. } = options;
            return Err(format!(
                "smallbank.hot_customers is {hot_customers}, above smallbank.customers, which is {customers}"
            ));
        }
        let all = [options.amalgamate, options.balance, options.deposit_checking];
        let more = [options.send_payment, options.transact_savings, options.write_check];
        if all.iter().chain(&more).sum::<u64>() == 0 {
            return Err("the weights of SmallBank's transactions (smallbank.balance and so on) are all 0: at \
                        least one must be more"
                .into());
        }
        Ok(())
    }

    fn tables(options: &SmallBankOptions, index: IndexKind) -> Vec<TableSpec> {
        let customers = options.customers as usize;
        vec![
            TableSpec::of::<Account>("savings", index, customers),
            TableSpec::of::<Account>("checking", index, customers),
        ]
    }

    fn create<S: Tables>(options: &SmallBankOptions, index: IndexKind, store: &S) -> Self {
        let mut weights = [
            options.amalgamate,
            options.balance,
            options.deposit_checking,
            options.send_payment,
            options.transact_savings,
            options.write_check,
        ];
        for kind in 1..weights.len() {
            weights[kind] += weights[kind - 1];
        }
        let specs = Self::tables(options, index);
        SmallBank {
            savings: store.create_typed(&specs[0]),
            checking: store.create_typed(&specs[1]),
            weights,
            tracked: Sample::new(options.customers),
            options: options.clone(),
        }
    }

    fn load_units(&self) -> u64 {
        self.options.customers
    }

    fn for_verification(options: &SmallBankOptions) -> SmallBankOptions {
        let customers = options.customers.min(50);
        let hot_customers = options.hot_customers.min(customers / 2);
        SmallBankOptions { customers, hot_customers, overdraft: false, ..options.clone() }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load_in_steps(self.options.customers, part, parts, LOAD_STEP, done, |customers| {
            for customer in customers {
                for table in [&self.savings, &self.checking] {
                    loader.insert(table, customer, |words| Account::from_words_mut(words).balance = OPENING)?;
                }
            }
            Ok(())
        })
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        let random = Random::new(seed, worker as u64 + 1);
        let flows = vec![0; self.tracked.len()];
        Client { random, bringing: (0, 0), misses: false, missed: false, flows, total: 0, commits: 0 }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        let random = &mut client.random;
        let draw = random.uniform(0, self.weights[5] - 1);
        let kind = KINDS[self.weights.partition_point(|&sum| sum <= draw)];
        let customer = self.draw_customer(random);
        let between_two = matches!(kind, Kind::Amalgamate | Kind::SendPayment);
        let other = if between_two { self.draw_other(random, customer) } else { customer };
        // Amounts in cents. As in H-Store a payment and a check are 5 dollars each, a deposit 1.3.
        // Savings go up by 27.4 or down by 20. So the bank neither runs dry nor overflows: 15 x 1.3
        // + 15 x (27.4 - 20) / 2 = 15 x 5.
        let amount = match kind {
            Kind::TransactSavings if random.happens(0.5) => -2740,
            Kind::TransactSavings => 2000,
            Kind::DepositChecking => 130,
            _ => 500,
        };
        *input = Input { kind, customer, other, amount };
    }

    fn kind(&self, input: &Input) -> usize {
        input.kind as usize
    }

    fn declares(options: &SmallBankOptions) -> Declares {
        Declares { rows: DeclaredRows::All, partitions: Some(options.partitions as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if input.kind == Kind::Balance {
            declaration.read_only();
        }
        // Whether the transaction writes the customer's savings, if it touches them; whether it
        // writes the customer's checking account; and whether it writes that of the other.
        let (savings, checking, other) = match input.kind {
            Kind::Balance => (Some(false), false, false),
            Kind::DepositChecking => (None, true, false),
            Kind::WriteCheck => (Some(false), true, false),
            Kind::TransactSavings => (Some(true), false, false),
            Kind::Amalgamate => (Some(true), true, true),
            Kind::SendPayment => ((!self.options.overdraft).then_some(false), true, true),
        };
        if let Some(writes) = savings {
            declaration.row(&self.savings, input.customer, writes);
        }
        declaration.row(&self.checking, input.customer, checking);
        if other {
            declaration.row(&self.checking, input.other, true);
        }
        for customer in [input.customer, input.other] {
            declaration.partition((customer % self.options.partitions) as usize);
        }
    }

    fn types(&self, types: &mut Types) {
        let (savings, checking, balance) = (&self.savings, &self.checking, Account::BALANCE);
        let overdraft = self.options.overdraft;
        let take = |piece: PieceBuilder| if overdraft { piece } else { piece.cancels() };
        types
            .add("amalgamate")
            .piece(SAVINGS, |piece| piece.modify(savings, balance))
            .piece(CHECKING, |piece| piece.modify(checking, balance).update(checking, balance.add(0)));
        types
            .add_read_only("balance")
            .piece(SAVINGS, |piece| piece.read(savings, balance))
            .piece(CHECKING, |piece| piece.read(checking, balance));
        types.add("deposit_checking").piece(DEPOSIT, |piece| piece.update(checking, balance.add(0)));
        types
            .add("send_payment")
            .piece(SAVINGS, |piece| if overdraft { piece } else { piece.read(savings, balance) })
            .piece(CHECKING, |piece| piece.modify(checking, balance).update(checking, balance.add(0)).cancels());
        types.add("transact_savings").piece(TAKE, |piece| take(piece.read(checking, balance).modify(savings, balance)));
        types.add("write_check").piece(TAKE, |piece| take(piece.read(savings, balance).modify(checking, balance)));
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let Input { customer, amount, .. } = *input;
        // What the transaction brings its customers; `None` if an account is missing.
        let bringing = match input.kind {
            Kind::Balance => {
                let savings = tx.piece(SAVINGS, |tx| tx.read(&self.savings, customer, Account::BALANCE))?;
                let checking = tx.piece(CHECKING, |tx| tx.read(&self.checking, customer, Account::BALANCE))?;
                std::hint::black_box((savings, checking));
                Some((0, 0))
            }
            Kind::DepositChecking => {
                let deposit = Account::BALANCE.add(amount);
                tx.piece(DEPOSIT, |tx| tx.update(&self.checking, customer, deposit))?.then_some((amount, 0))
            }
            Kind::TransactSavings => {
                let taken = tx.piece(TAKE, |tx| self.take(tx, customer, amount, &self.savings, &self.checking))?;
                taken.map(|taken| (-taken, 0))
            }
            Kind::WriteCheck => {
                let taken = tx.piece(TAKE, |tx| self.take(tx, customer, amount, &self.checking, &self.savings))?;
                taken.map(|taken| (-taken, 0))
            }
            Kind::Amalgamate => self.amalgamate(tx, input)?.map(|all| (-all, all)),
            Kind::SendPayment => self.send_payment(tx, input)?.map(|paid| (-paid, paid)),
        };
        client.misses = bringing.is_none();
        client.bringing = bringing.unwrap_or_default();
        Ok(())
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        client.commits += 1;
        client.missed |= client.misses;
        client.total += client.bringing.0 + client.bringing.1;
        for (customer, flow) in [(input.customer, client.bringing.0), (input.other, client.bringing.1)] {
            if let Some(position) = self.tracked.position(customer) {
                client.flows[position] += flow;
            }
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        if clients.iter().any(|client| client.missed) {
            return Err(Violation("a committed transaction found an account missing, and none is ever deleted".into()));
        }
        let (mut row, mut total) = (Vec::new(), 0i64);
        for customer in 0..self.options.customers {
            let mut together = 0i64;
            for table in [&self.savings, &self.checking] {
                if store.peek(table, customer, &mut row).is_none() {
                    return Err(Violation(format!(
                        "the {} account of customer {customer} is gone",
                        store.table_name(table)
                    )));
                }
                together = together.wrapping_add(Account::from_words(&row).balance);
            }
            if !self.options.overdraft && together < 0 {
                return Err(Violation(format!(
                    "customer {customer} has {together} cents together, though every payment was covered: write skew"
                )));
            }
            if let (Some(position), false) = (self.tracked.position(customer), clients.is_empty()) {
                let flow: i64 = clients.iter().map(|client| client.flows[position]).sum();
                if together != 2 * OPENING + flow {
                    return Err(Violation(format!(
                        "customer {customer} has {together} cents, but the committed transactions leave {}: updates got lost",
                        2 * OPENING + flow
                    )));
                }
            }
            total = total.wrapping_add(together);
        }
        let expected =
            2 * OPENING * self.options.customers as i64 + clients.iter().map(|client| client.total).sum::<i64>();
        if !clients.is_empty() && total != expected {
            return Err(Violation(format!(
                "all accounts hold {total} cents, but the committed transactions leave {expected}"
            )));
        }
        let commits: u64 = clients.iter().map(|client| client.commits).sum();
        let covered = if self.options.overdraft { "" } else { "; no customer is overdrawn" };
        Ok(Checked(format!(
            "the accounts hold {total} cents, as {} left them{covered}",
            counted(commits, "transaction")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_for_tests::{check as check_of, run, run_two_at_once, world};
    use contend_engine::NamedProtocol;
    use contend_machine::Native;
    use contend_protocols::fault::{Only, id};
    use contend_protocols::locking::no_wait::NoWait;
    use contend_protocols::optimistic::silo::Silo;

    fn small() -> SmallBankOptions {
        SmallBankOptions { customers: 4, hot_customers: 2, overdraft: false, ..SmallBankOptions::default() }
    }

    #[test]
    fn accounts_agree_after_runs() {
        for overdraft in [false, true] {
            let options = SmallBankOptions { overdraft, ..small() };
            run::<Silo, SmallBank>(&options, 4, 3000).expect("nothing wrong");
            run::<NoWait, SmallBank>(&options, 4, 3000).expect("nothing wrong");
        }
    }

    #[test]
    fn there_is_another_customer_also_where_all_draws_are_the_same() {
        for hot in [0.0, 1.0] {
            let options = SmallBankOptions { customers: 2, hot_customers: 1, hot: Fraction(hot), ..small() };
            run::<Silo, SmallBank>(&options, 2, 1000).expect("nothing wrong");
        }
    }

    #[test]
    fn write_skew_is_found() {
        /// Validates the reads of rows that are also written, and no others. Like snapshot
        /// isolation this allows write skew.
        type Skewed = Only<{ id("forget_read_only") }>;
        fn two_at_once<P: NamedProtocol<Native>>() -> Result<Checked, Violation> {
            let world = world::<P, SmallBank>(&small());
            let (engine, bank) = &world;
            let mut clients = [bank.client(0, 2, 1), bank.client(1, 2, 1)];
            // Withdrawals of 20 dollars from the savings: the accounts hold 200 together.
            let withdrawal = Input { kind: Kind::TransactSavings, customer: 1, other: 1, amount: 2000 };
            let check = Input { kind: Kind::WriteCheck, amount: 2000, ..withdrawal };
            let mut worker = engine.worker().expect("a slot");
            for _ in 0..9 {
                worker.run(|tx| bank.execute(tx, &mut clients[0], &withdrawal)).expect("it is covered");
                bank.committed(&mut clients[0], &withdrawal);
            }
            // One more is covered. Two transactions try it at once, each from another account.
            drop(worker);
            run_two_at_once(&world, &mut clients, &[withdrawal, check]);
            check_of(&world, &clients)
        }
        let wrong = two_at_once::<Silo<Skewed>>().expect_err("write skew");
        assert!(wrong.0.contains("write skew"), "{wrong}");
        two_at_once::<Silo>().expect("one of them aborts");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let damaged = |savings: i64, checking: i64| {
            let world = world::<Silo, SmallBank>(&small());
            let mut worker = world.0.worker().expect("a slot");
            worker
                .run(|tx| {
                    tx.modify(&world.1.savings, 1, |row| row.balance += savings)?;
                    tx.modify(&world.1.checking, 1, |row| row.balance += checking)
                })
                .expect("no conflict");
            let client = world.1.client(0, 1, 1);
            world.1.check(&world.0, &[&client]).expect_err("broken").0
        };
        assert!(damaged(0, -30_000).contains("write skew"));
        assert!(damaged(1, 0).contains("updates got lost"));
        let world = world::<Silo, SmallBank>(&small());
        world.0.worker().expect("a slot").run(|tx| tx.delete(&world.1.checking, 1)).expect("no conflict");
        let client = world.1.client(0, 1, 1);
        assert!(world.1.check(&world.0, &[&client]).expect_err("broken").0.contains("is gone"));
        for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Balance) {
            let mut client = world.1.client(0, 1, 1);
            let input = Input { kind, customer: 1, other: 2, amount: 100 };
            let mut worker = world.0.worker().expect("a slot");
            worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
            world.1.committed(&mut client, &input);
            let wrong = world.1.check(&world.0, &[&client]).expect_err("broken").0;
            assert!(wrong.contains("found an account missing"), "{kind:?}: {wrong}");
        }
    }

    #[test]
    fn the_mix_and_the_hot_customers_are_as_asked_for() {
        let options = SmallBankOptions::default();
        let world = world::<Silo, SmallBank>(&SmallBankOptions { customers: 1000, ..options });
        let (mut client, mut input) = (world.1.client(0, 1, 5), Input::default());
        let (mut kinds, mut hot) = ([0u32; 6], 0u32);
        for _ in 0..100_000 {
            world.1.next(&mut (), &mut client, &mut input);
            kinds[world.1.kind(&input)] += 1;
            hot += u32::from(input.customer < 100);
        }
        for (kind, expected) in kinds.into_iter().zip([15_000, 15_000, 15_000, 25_000, 15_000, 15_000]) {
            assert!(kind.abs_diff(expected) < 700, "{kinds:?}");
        }
        assert!(hot.abs_diff(25_000) < 700, "{hot}");
    }
}
