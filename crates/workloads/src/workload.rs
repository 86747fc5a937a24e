//! The trait [`Workload`], and the list of all workloads.

use std::ops::ControlFlow;

use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, IndexKind, Inspect, Load, OptionSpec, Options, OutOfMemory, TableSpec,
    Tables, Txn,
};

/// A workload in a list.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// The name by which it is chosen.
    pub name: &'static str,
    /// One line of meaning.
    pub summary: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Options that differ from the defaults under this name: a preset. `--set` overrides them.
    pub preset: &'static [(&'static str, &'static str)],
}

/// A consistency check that found nothing wrong: what was checked, in a phrase ("1000000 rows hold
/// their last writers' values").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked(pub String);

/// What a consistency check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// What a workload's transactions can say before they begin: [`Workload::declare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declares {
    /// The rows that they touch.
    pub rows: bool,
    /// The partitions of the data that they touch, and how many there are.
    pub partitions: Option<usize>,
}

impl Declares {
    /// Whether that is enough for a protocol that needs this.
    pub fn meets(self, needs: DeclarationNeeds) -> bool {
        match needs {
            DeclarationNeeds::Nothing => true,
            DeclarationNeeds::Rows => self.rows,
            DeclarationNeeds::Partitions => self.partitions.is_some(),
        }
    }
}

/// A workload.
///
/// A run creates the tables, loads them by several loaders at once, gives each worker a client, and
/// then, again and again: draws an input, executes it until it commits or cancels itself, and tells
/// the client. The same input is executed again after an abort, so `execute` must not change the
/// client in a way that a second execution would notice.
pub trait Workload: Sized + Send + Sync + 'static {
    /// What can be set.
    type Options: Options;
    /// A worker's generator of transactions, and its memory of what it committed.
    type Client: Send;
    /// One transaction's parameters. Reused from one to the next, so that drawing allocates
    /// nothing.
    type Input: Default + Send;

    /// The names of the transaction types.
    const KINDS: &'static [&'static str];

    /// Why these options can't run with this index, if they can't.
    ///
    /// # Errors
    /// One sentence that names the option and the way out.
    fn validate(options: &Self::Options, index: IndexKind) -> Result<(), String>;

    /// The tables, for an estimate of the memory they will take.
    fn tables(options: &Self::Options, index: IndexKind) -> Vec<TableSpec>;

    /// Creates the tables in a store that has none.
    fn create<S: Tables>(options: &Self::Options, index: IndexKind, store: &S) -> Self;

    /// How many units the loading consists of, for progress.
    fn load_units(&self) -> u64;

    /// The same options, made so small that a short run has many conflicts: what is run to be
    /// proved right.
    fn for_verification(options: &Self::Options) -> Self::Options;

    /// Loads part `part` of `parts`. Calls `done` with the number of units done since the last
    /// call, every few thousand, and stops early if it breaks.
    ///
    /// # Errors
    /// The machine has no more memory.
    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory>;

    /// The client of worker `worker` of `workers`. The same seed gives the same inputs.
    fn client(&self, worker: usize, workers: usize, seed: u64) -> Self::Client;

    /// Draws the next transaction. `core` is charged with what that costs, if it is simulated.
    fn next<C: Core>(&self, core: &mut C, client: &mut Self::Client, input: &mut Self::Input);

    /// The transaction's type: a position in [`Workload::KINDS`].
    fn kind(&self, input: &Self::Input) -> usize;

    /// What transactions can say before they begin, with these options.
    fn declares(options: &Self::Options) -> Declares {
        let _ = options;
        Declares::default()
    }

    /// Says what the transaction will touch.
    fn declare(&self, input: &Self::Input, declaration: &mut impl Declare) {
        let _ = (input, declaration);
    }

    /// The transaction's body.
    ///
    /// # Errors
    /// The transaction has to abort.
    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Self::Client, input: &Self::Input) -> Result<(), Abort>;

    /// The transaction has committed.
    fn committed(&self, client: &mut Self::Client, input: &Self::Input);

    /// Checks the tables against what the clients remember, when no transaction runs. With no
    /// clients, only what holds whatever has committed: after a crash, when nobody remembers.
    ///
    /// # Errors
    /// Something is not as it must be after a serializable execution of what was committed.
    fn check<S: Inspect>(&self, store: &S, clients: &[&Self::Client]) -> Result<Checked, Violation>;
}

/// What is to be done with a workload that was chosen by name; see [`with_workload`].
pub trait WorkloadVisitor {
    /// What comes of it.
    type Output;
    /// Does it, for the workload of this name.
    fn visit<W: Workload>(self, info: WorkloadInfo) -> Self::Output;
}

macro_rules! workloads {
    ($($workload:ty: $infos:expr;)*) => {
        /// Every workload and preset, with the options that it takes.
        pub fn all_workloads() -> Vec<(WorkloadInfo, Vec<OptionSpec>)> {
            let mut all = Vec::new();
            $(for info in $infos {
                all.push((*info, <<$workload as Workload>::Options as Options>::specs()));
            })*
            all
        }

        /// Calls the visitor with the workload of this name; `None` if there is none.
        pub fn with_workload<V: WorkloadVisitor>(name: &str, visitor: V) -> Option<V::Output> {
            $(if let Some(info) = $infos.iter().find(|info| info.name == name) {
                return Some(visitor.visit::<$workload>(*info));
            })*
            None
        }
    };
}

workloads! {
    crate::ycsb::Ycsb: crate::ycsb::INFOS;
    crate::bank::Bank: crate::bank::INFOS;
    crate::tpcc::Tpcc: crate::tpcc::INFOS;
    crate::smallbank::SmallBank: crate::smallbank::INFOS;
    crate::tatp::Tatp: crate::tatp::INFOS;
    crate::litmus::Litmus: crate::litmus::INFOS;
}
