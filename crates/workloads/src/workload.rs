//! The trait [`Workload`], and what it speaks of.

use std::ops::ControlFlow;

use contend_model::pieces::{DeclaredTable, TypeSet, Types};
use contend_model::random::SplitMix64;
use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, IndexKind, Inspect, KeyWords, Load, Options, OutOfMemory, TableSpec,
    Tables, Txn,
};

/// The name of a workload or of one of its presets, with its description.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadInfo {
    /// The name by which a user chooses it.
    pub name: &'static str,
    /// A description of one line.
    pub summary: &'static str,
    /// The publication that defines the workload, or a sentence that says whose idea it is.
    pub source: &'static str,
    /// Options of the preset that differ from the defaults. `--set` overrides them.
    pub preset: &'static [(&'static str, &'static str)],
}

/// The result of a consistency check that found nothing wrong: a phrase that says what was checked
/// ("1000000 rows hold their last writers' values").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked(pub String);

impl Checked {
    /// What stands before a warning at the end of the phrase.
    pub const WARNING: &str = "; warning: ";
}

/// The description of what a consistency check found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation(pub String);

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Violation {}

/// The time that passes between two transactions of a client, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ThinkTime {
    /// Always the same time.
    Constant(f64),
    /// A time with an exponential distribution, and this mean.
    Exponential(f64),
}

impl ThinkTime {
    /// Draws a time, in microseconds.
    pub fn draw(self, random: &mut SplitMix64) -> f64 {
        match self {
            ThinkTime::Constant(microseconds) => microseconds,
            // 1 minus a fraction is above 0, so the logarithm is finite.
            ThinkTime::Exponential(mean) => -(1.0 - random.fraction()).ln() * mean,
        }
    }
}

/// The rows that a workload's transactions can declare before they begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeclaredRows {
    /// None.
    #[default]
    None,
    /// Those that they know beforehand. They learn of others as they run.
    Known,
    /// All that they access.
    All,
}

/// What a workload's transactions can declare before they begin, by [`Workload::declare`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Declares {
    /// The rows that they declare.
    pub rows: DeclaredRows,
    /// The number of partitions of the data, if they declare the partitions that they access.
    pub partitions: Option<usize>,
}

impl Declares {
    /// Returns whether these declarations suffice for a protocol with `needs`.
    pub fn meets(self, needs: DeclarationNeeds) -> bool {
        match needs {
            DeclarationNeeds::Nothing => true,
            DeclarationNeeds::Rows => self.rows != DeclaredRows::None,
            DeclarationNeeds::Partitions => self.partitions.is_some(),
            DeclarationNeeds::RowsOrPartitions => self.rows == DeclaredRows::All || self.partitions.is_some(),
        }
    }
}

/// A workload.
///
/// A run creates the tables, loads them with several loaders at once, and gives each worker a
/// client. A worker then repeats three steps: it draws an input, executes the transaction until it
/// commits or cancels itself, and reports a commit to the client. After an abort the same input is
/// executed again. So `execute` must not change the client in a way that a second execution would
/// notice.
pub trait Workload: Sized + Send + Sync + 'static {
    /// The options of the workload.
    type Options: Options;
    /// A worker's generator of inputs, together with its memory of what it committed.
    type Client: Send;
    /// The parameters of one transaction. A worker reuses the same value for all its transactions,
    /// so that drawing allocates nothing.
    type Input: Default + Send;

    /// Returns the names of the transaction types.
    fn kinds(&self) -> &'static [&'static str];

    /// Checks whether the workload can run with these options on this index.
    ///
    /// # Errors
    /// One sentence that names the option and the way out.
    fn validate(options: &Self::Options, index: IndexKind) -> Result<(), String>;

    /// Returns the tables, for an estimate of the memory that they take. `index` is the user's
    /// choice. A table that the body scans, or that the check lists by [`Inspect::peek_all`], needs
    /// an order: it may have an ordered index whatever the choice.
    fn tables(options: &Self::Options, index: IndexKind) -> Vec<TableSpec>;

    /// Creates the tables in `store`, which has no tables yet.
    fn create<S: Tables>(options: &Self::Options, index: IndexKind, store: &S) -> Self;

    /// Returns the number of units that loading consists of, for progress reports. It is also the
    /// number of records by which a comparison divides the memory (`B/record`).
    fn load_units(&self) -> u64;

    /// Returns the same options with fewer and smaller rows, which must be valid as well. Verified
    /// runs, explorations and crash tests use them, so that a short run has many conflicts.
    fn for_verification(options: &Self::Options) -> Self::Options;

    /// Loads part `part` of `parts`. Every few thousand units it calls `done` with the number of
    /// units loaded since the last call; it stops early if `done` breaks.
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

    /// Creates the client of worker `worker` of `workers`. The same seed gives the same inputs.
    fn client(&self, worker: usize, workers: usize, seed: u64) -> Self::Client;

    /// Draws the parameters of the next transaction. A simulated `core` is charged with the cost of
    /// the draw.
    fn next<C: Core>(&self, core: &mut C, client: &mut Self::Client, input: &mut Self::Input);

    /// Returns the transaction's type, as a position in [`Workload::kinds`].
    fn kind(&self, input: &Self::Input) -> usize;

    /// Returns what transactions can declare with these options.
    fn declares(options: &Self::Options) -> Declares {
        let _ = options;
        Declares::default()
    }

    /// Returns how long a client thinks after a transaction of each type, in the order of
    /// [`Workload::kinds`]. Empty if no client thinks.
    fn think_times(options: &Self::Options) -> Vec<Option<ThinkTime>> {
        let _ = options;
        Vec::new()
    }

    /// Declares the types of transactions, in the order of [`Workload::kinds`], with the pieces of
    /// each and what these access ([`contend_model::pieces`]). A workload declares all types or
    /// none.
    fn types(&self, types: &mut Types) {
        let _ = types;
    }

    /// Declares the rows and partitions that the transaction will access.
    fn declare(&self, input: &Self::Input, declaration: &mut impl Declare) {
        let _ = (input, declaration);
    }

    /// Runs the transaction's body.
    ///
    /// # Errors
    /// The transaction must abort.
    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Self::Client, input: &Self::Input) -> Result<(), Abort>;

    /// Tells the client that the transaction has committed.
    fn committed(&self, client: &mut Self::Client, input: &Self::Input);

    /// Returns the parts of a key of this table, each with its name, for people. Empty if the key
    /// is no composite one.
    fn key_parts(&self, table: &str, key: &KeyWords) -> Vec<(String, u64)> {
        let _ = (table, key);
        Vec::new()
    }

    /// Checks the loaded rows before any transaction, if a user may have loaded wrong ones.
    ///
    /// # Errors
    /// One sentence that names what the rows break.
    fn check_loaded<S: Inspect>(&self, store: &S) -> Result<(), String> {
        let _ = store;
        Ok(())
    }

    /// Checks the tables against what the clients remember. No transaction may be running. With no
    /// clients, as after a crash, it checks only what holds whichever transactions have committed.
    ///
    /// # Errors
    /// The tables differ from what any serializable execution of the committed transactions leaves.
    fn check<S: Inspect>(&self, store: &S, clients: &[&Self::Client]) -> Result<Checked, Violation>;
}

/// Returns the declarations of a workload whose tables are these, in the order of their creation.
/// `None` if it declares nothing.
///
/// # Errors
/// The declarations are not those of its types. One sentence says why.
pub fn declared_types<W: Workload>(workload: &W, tables: Vec<DeclaredTable>) -> Result<Option<TypeSet>, String> {
    let mut types = Types::new(tables);
    workload.types(&mut types);
    let set = types.finish()?;
    let declared: Vec<&str> = set.types.iter().map(|of| of.name.as_str()).collect();
    match declared[..] {
        [] => Ok(None),
        _ if declared == workload.kinds() => Ok(Some(set)),
        _ => Err(format!(
            "the workload declares the types {}; valid: {}, in this order",
            declared.join(", "),
            workload.kinds().join(", ")
        )),
    }
}
