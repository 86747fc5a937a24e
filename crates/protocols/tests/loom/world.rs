//! The engine and the table that the models begin with.

use std::sync::Arc;

use contend_engine::{
    Abort, Engine, EngineConfig, Groups, IndexKind, NamedProtocol, Projection, RawTxn, Table, TableSpec, Transaction,
    Worker,
};
use contend_machine::Loom;
use loom::thread;

/// The stack of a thread of the model, in words. Loom's own, 32 KiB, is too small for a protocol's
/// transaction.
const STACK_WORDS: usize = 0x4000;

/// Tries all executions that loom distinguishes, with at most `preemptions` preemptions.
pub(crate) fn explore(preemptions: usize, check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions);
    model.max_branches = 100_000;
    let check = Arc::new(check);
    // The model's first thread has loom's stack, so it only waits.
    model.check(move || {
        let check = Arc::clone(&check);
        spawn(move || check()).join().expect("no panic");
    });
}

/// Starts a thread of the model.
pub(crate) fn spawn<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> thread::JoinHandle<R> {
    // Loom takes the number for words, whatever its documentation says.
    thread::Builder::new().stack_size(STACK_WORDS).spawn(body).expect("loom always starts it")
}

pub(crate) type Rows = Table<u64>;
pub(crate) type Tx<'a, P> = Transaction<'a, P, Loom>;

/// An engine with two workers and a table.
pub(crate) struct World<P: NamedProtocol<Loom>> {
    pub(crate) engine: Arc<Engine<P, Loom>>,
    pub(crate) first: Worker<P, Loom>,
    /// `None` while another thread has it.
    pub(crate) second: Option<Worker<P, Loom>>,
    pub(crate) rows: Rows,
}

impl<P: NamedProtocol<Loom>> World<P> {
    /// Creates an engine with rows of `words` words, all 0, under these keys.
    pub(crate) fn new(index: IndexKind, words: usize, keys: &[u64]) -> Self {
        Self::of(P::Options::default(), index, words, keys)
    }

    /// Creates an engine with these options.
    pub(crate) fn of(options: P::Options, index: IndexKind, words: usize, keys: &[u64]) -> Self {
        let config = EngineConfig { workers_max: 2, epoch_ms: 40, ..EngineConfig::default() };
        Self::with(Engine::new(P::new(options), config), index, words, keys)
    }

    /// Creates the table and the workers of this engine, and loads the rows.
    pub(crate) fn with(engine: Arc<Engine<P, Loom>>, index: IndexKind, words: usize, keys: &[u64]) -> Self {
        let rows: Rows = engine.create_table(&TableSpec::of_bytes("t", index, words * 8, 1));
        let mut loader = engine.loader().expect("a slot");
        for &key in keys {
            assert!(loader.insert(&rows, key, |row| row.fill(0)).expect("memory"));
        }
        drop(loader);
        let [first, second] = [(); 2].map(|()| engine.worker().expect("a slot"));
        World { engine, first, second: Some(second), rows }
    }

    /// Runs a transaction of the first worker, and meanwhile one of the second. Returns both
    /// outcomes.
    pub(crate) fn both<R: Send + 'static>(
        &mut self,
        first: impl FnOnce(&mut Tx<'_, P>, &Rows) -> Result<R, Abort>,
        second: impl FnOnce(&mut Tx<'_, P>, &Rows) -> Result<R, Abort> + Send + 'static,
    ) -> (Result<R, Abort>, Result<R, Abort>) {
        let rows = self.rows;
        self.beside(|worker, rows| worker.run(|tx| first(tx, rows)), move |worker| worker.run(|tx| second(tx, &rows)))
    }

    /// Runs `first` with the first worker, and meanwhile `second` with the second.
    pub(crate) fn beside<R, S: Send + 'static>(
        &mut self,
        first: impl FnOnce(&mut Worker<P, Loom>, &Rows) -> R,
        second: impl FnOnce(&mut Worker<P, Loom>) -> S + Send + 'static,
    ) -> (R, S) {
        let mut theirs = self.second.take().expect("put back");
        let other = spawn(move || {
            let outcome = second(&mut theirs);
            (theirs, outcome)
        });
        let first = first(&mut self.first, &self.rows);
        let (theirs, second) = other.join().expect("no panic");
        self.second = Some(theirs);
        (first, second)
    }

    /// Returns the row under a key, when both workers are done.
    pub(crate) fn row(&mut self, key: u64) -> Option<u64> {
        let rows = self.rows;
        self.first.run(|tx| read(tx, &rows, key)).expect("nobody else is there")
    }
}

/// Returns the first word of a row; `None` if there is none.
pub(crate) fn read<P: NamedProtocol<Loom>>(tx: &mut Tx<'_, P>, rows: &Rows, key: u64) -> Result<Option<u64>, Abort> {
    Ok(tx.read_row(rows, key, Projection::WHOLE)?.map(|row| row[0]))
}

/// Fills an existing row.
pub(crate) fn write<P: NamedProtocol<Loom>>(
    tx: &mut Tx<'_, P>,
    rows: &Rows,
    key: u64,
    value: u64,
) -> Result<(), Abort> {
    tx.write_row(rows, key, Groups::ALL)?.expect("loaded").fill(value);
    Ok(())
}

/// Inserts a row, and returns whether there was none.
pub(crate) fn insert<P: NamedProtocol<Loom>>(
    tx: &mut Tx<'_, P>,
    rows: &Rows,
    key: u64,
    value: u64,
) -> Result<bool, Abort> {
    Ok(tx.insert_row(rows, key)?.map(|row| row.fill(value)).is_some())
}
