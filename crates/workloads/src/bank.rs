//! Bank: transfers between two accounts, and audits that add up all accounts. The sum never
//! changes.
//!
//! A transfer reads and writes two accounts; it cancels itself if the first account holds too
//! little. An audit reads every account, in batches.
//!
//! Transfers commute, so an account's balance follows from the committed transfers in any order.
//! Clients sum up what they moved to and from the *tracked* accounts: all of them, up to 65,536;
//! otherwise one in a power of two. This shows lost updates that come in pairs and leave the sum
//! unchanged.

use std::ops::ControlFlow;

use contend_model::options::Fraction;
use contend_model::pieces::{Mode, Piece};
use contend_model::random::{GOLDEN_GAMMA, below};
use contend_model::{
    Abort, Core, Declare, Groups, IndexKind, Inspect, Load, OutOfMemory, Projection, Table, TableSpec, Tables, Txn,
    Types, counted, options,
};
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

use crate::loading::load_in_steps;
use crate::sample::Sample;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};
use crate::zipf::Zipf;

options! {
    /// The bank's options.
    pub struct BankOptions {
        /// Accounts.
        "bank.accounts" accounts: u64 = 10_000, in 2..=1_000_000_000;
        /// The opening balance of each account.
        "bank.balance" balance: u64 = 1_000, in 0..=1_000_000_000;
        /// The fraction of transactions that audit; the others transfer.
        "bank.audit" audit: Fraction = Fraction(0.01), in ();
        /// The largest amount of a transfer; each transfer draws its own, from 1 on.
        "bank.amount" amount: u64 = 100, in 1..=1_000_000_000;
        /// Skew of the zipfian choice of accounts; 0 is uniform.
        "bank.theta" theta: f64 = 0.0, in 0.0..1.0;
        /// Partitions of the accounts, by the remainders of their numbers.
        "bank.partitions" partitions: u64 = 1, in 1..=65_536;
    }
}

/// The bank in a list.
pub const INFOS: &[WorkloadInfo] = &[WorkloadInfo {
    name: "bank",
    summary: "transfers between two accounts, and audits of all accounts; the sum is the invariant",
    source: "the classic example of a transaction (Gray, Reuter: Transaction Processing, 1993)",
    preset: &[],
}];

/// The piece of a transfer, and that of an audit. There is one table, so all accesses to it are
/// one step.
const ACCOUNTS: Piece = Piece::new(0, "accounts");

const LOAD_STEP: u64 = 4096;
/// Accounts that an audit reads in one batch.
const AUDIT_STEP: usize = 256;

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    /// Whether this is an audit; otherwise it is a transfer.
    audit: bool,
    from: u64,
    to: u64,
    amount: u64,
}

/// A worker's generator, and what its committed audits saw.
#[derive(Debug)]
pub struct Client {
    rng: SmallRng,
    /// The sum that the running execution of an audit has read.
    sum: u64,
    transfers: u64,
    audits: u64,
    /// The first wrong sum of a committed audit.
    wrong_sum: Option<u64>,
    /// For each tracked account: the amounts that committed transfers brought, less those that they
    /// took.
    flows: Vec<i64>,
    keys: Vec<u64>,
}

/// The workload.
#[derive(Debug)]
pub struct Bank {
    options: BankOptions,
    table: Table,
    zipf: Zipf,
    tracked: Sample,
}

impl Bank {
    fn total(&self) -> u64 {
        self.options.accounts * self.options.balance
    }

    /// Returns the sum of all accounts.
    #[inline]
    fn audit<T: Txn>(&self, tx: &mut T, keys: &mut Vec<u64>) -> Result<u64, Abort> {
        let mut sum = 0u64;
        let mut next = 0;
        while next < self.options.accounts {
            keys.clear();
            keys.extend((next..self.options.accounts).take(AUDIT_STEP));
            next += keys.len() as u64;
            tx.read_rows(&self.table, keys, Projection::WHOLE, |_, row| {
                // A missing account, or an impossible balance, must not stop the sum: the sum is
                // judged only if the audit commits.
                sum = sum.wrapping_add(row.map_or(u64::MAX / 2, |row| row[0]));
            })?;
        }
        Ok(sum)
    }

    #[inline]
    fn transfer<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<(), Abort> {
        tx.later_row(&self.table, input.to, true);
        let Some(from) = tx.modify_row(&self.table, input.from, Groups::ALL)? else { return Err(tx.cancel()) };
        if from[0] < input.amount {
            return Err(tx.cancel());
        }
        from[0] -= input.amount;
        // No account is ever deleted, so what cancels is behind. The check finds an account that is
        // gone.
        tx.later(|tx| {
            if let Some(to) = tx.modify_row(&self.table, input.to, Groups::ALL)? {
                to[0] = to[0].wrapping_add(input.amount);
            }
            Ok(())
        })
    }
}

impl Workload for Bank {
    type Options = BankOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &["transfer", "audit"]
    }

    fn validate(_: &BankOptions, _: IndexKind) -> Result<(), String> {
        Ok(())
    }

    fn tables(options: &BankOptions, index: IndexKind) -> Vec<TableSpec> {
        vec![TableSpec::of_bytes("account", index, 8, options.accounts as usize)]
    }

    fn create<S: Tables>(options: &BankOptions, index: IndexKind, store: &S) -> Self {
        Bank {
            table: store.create_table(&Self::tables(options, index)[0]),
            zipf: Zipf::new(options.accounts, options.theta),
            tracked: Sample::new(options.accounts),
            options: options.clone(),
        }
    }

    fn load_units(&self) -> u64 {
        self.options.accounts
    }

    fn for_verification(options: &BankOptions) -> BankOptions {
        BankOptions { accounts: options.accounts.min(50), ..options.clone() }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load_in_steps(self.options.accounts, part, parts, LOAD_STEP, done, |mut accounts| {
            accounts.try_for_each(|account| {
                loader.insert(&self.table, account, |row| row[0] = self.options.balance).map(drop)
            })
        })
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        Client {
            rng: SmallRng::seed_from_u64(seed.wrapping_mul(GOLDEN_GAMMA) ^ worker as u64),
            sum: 0,
            transfers: 0,
            audits: 0,
            wrong_sum: None,
            flows: vec![0; self.tracked.len()],
            keys: Vec::with_capacity(AUDIT_STEP),
        }
    }

    #[inline]
    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        let random = client.rng.next_u64();
        let unit = (random >> 11) as f64 / (1u64 << 53) as f64;
        input.audit = unit < self.options.audit.0;
        if input.audit {
            return;
        }
        input.from = self.zipf.draw(client.rng.next_u64());
        // The second account has the same distribution, without the first account.
        input.to = loop {
            let to = self.zipf.draw(client.rng.next_u64());
            if to != input.from {
                break to;
            }
        };
        input.amount = below(client.rng.next_u64(), self.options.amount) + 1;
    }

    fn kind(&self, input: &Input) -> usize {
        usize::from(input.audit)
    }

    fn declares(options: &BankOptions) -> Declares {
        Declares { rows: DeclaredRows::All, partitions: Some(options.partitions as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if input.audit {
            declaration.read_only();
        }
        let mut touches = |account, writes| {
            declaration.row(&self.table, account, writes);
            declaration.partition((account % self.options.partitions) as usize);
        };
        if input.audit {
            (0..self.options.accounts).for_each(|account| touches(account, false));
        } else {
            [input.from, input.to].into_iter().for_each(|account| touches(account, true));
        }
    }

    fn types(&self, types: &mut Types) {
        let (table, all) = (&self.table, Groups::ALL);
        types.add("transfer").piece(ACCOUNTS, |piece| piece.access(Mode::Write, table, all).cancels());
        types.add_read_only("audit").piece(ACCOUNTS, |piece| piece.access(Mode::Read, table, all));
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        if input.audit {
            client.sum = tx.piece(ACCOUNTS, |tx| self.audit(tx, &mut client.keys))?;
            Ok(())
        } else {
            tx.piece(ACCOUNTS, |tx| self.transfer(tx, input))
        }
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        if !input.audit {
            client.transfers += 1;
            for (account, flow) in [(input.from, -(input.amount as i64)), (input.to, input.amount as i64)] {
                if let Some(position) = self.tracked.position(account) {
                    client.flows[position] += flow;
                }
            }
            return;
        }
        client.audits += 1;
        if client.sum != self.total() {
            client.wrong_sum.get_or_insert(client.sum);
        }
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        let total = self.total();
        if let Some(wrong) = clients.iter().find_map(|client| client.wrong_sum) {
            return Err(Violation(format!("a committed audit read a sum of {wrong}, but the accounts hold {total}")));
        }
        let mut row = Vec::new();
        let mut sum = 0u64;
        for account in 0..self.options.accounts {
            if store.peek(&self.table, account, &mut row).is_none() {
                return Err(Violation(format!("account {account} is gone")));
            }
            if row[0] > total {
                return Err(Violation(format!(
                    "account {account} holds {}, more than the {total} of all accounts",
                    row[0]
                )));
            }
            sum = sum.wrapping_add(row[0]);
            if let (Some(position), false) = (self.tracked.position(account), clients.is_empty()) {
                let flow: i64 = clients.iter().map(|client| client.flows[position]).sum();
                let expected = self.options.balance as i64 + flow;
                if row[0] as i64 != expected {
                    return Err(Violation(format!(
                        "account {account} holds {}, but the committed transfers leave {expected} in it: updates got lost",
                        row[0]
                    )));
                }
            }
        }
        if sum != total {
            return Err(Violation(format!("the accounts hold {sum} together, but held {total} at the start")));
        }
        let transfers: u64 = clients.iter().map(|client| client.transfers).sum();
        let audits: u64 = clients.iter().map(|client| client.audits).sum();
        Ok(Checked(format!(
            "the sum is {total} after {}, and was so in {}; what the transfers left is in {}",
            counted(transfers, "transfer"),
            counted(audits, "audit"),
            counted(self.tracked.len(), "tracked account")
        )))
    }
}
