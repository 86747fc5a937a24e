//! [`Database`]: tables, and transactions from any thread.

use std::sync::Arc;

use contend_engine::commit_sink::CommitSinks;
use contend_engine::in_force::InForce;
use contend_engine::{
    Abort, AbortReason, Engine, EngineConfig, Key, NamedProtocol, Protocol, ProtocolInfo, RawTxn, Row, TableSpec,
    Tables, Transaction, Txn, Worker,
};
use contend_log::{Checkpoint, Log, LogSinks, Recovered, RecoveredTable, Report};
use contend_machine::{Machine, Native, Ordering};
use contend_protocols::method::Backoff;
use contend_protocols::optimistic::silo::Silo;
use contend_protocols::protocols_with_snapshots;
use parking_lot::Mutex;

use crate::Table;
use crate::any_protocol::{self, AnyProtocol};
use crate::builder::Builder;
use crate::config::{Config, TableOptions};
use crate::durable::{Durable, Ticket, schema_of};
use crate::error::Error;
use crate::seats::{Seat, Seats, Taken};
use crate::snapshot::Snapshot;
use crate::types::{self, DeclaredTypes, Kind, Start, Types};

/// The number of rows that [`Database::load`] adds in one transaction.
const LOADED_AT_ONCE: usize = 1024;

/// Tables in memory, changed by transactions under the protocol `P`.
///
/// A handle: all clones are the same database, and any thread may use them. The memory is freed
/// with the last handle.
///
/// Threads need no set-up. The first transaction of a thread registers it, which costs a few
/// microseconds; the end of the thread unregisters it.
pub struct Database<P: Protocol<Native> = Silo> {
    shared: Arc<Shared<P>>,
}

struct Shared<P: Protocol<Native>> {
    engine: Arc<Engine<P, Native>>,
    seats: Arc<Seats<P>>,
    /// A lock that is held while a table is created, so that no two tables get one name.
    creation: Mutex<()>,
    types: InForce<DeclaredTypes>,
    /// The number of retries of transactions.
    retries: <Native as Machine>::U64,
    durable: Option<Durable>,
}

impl<P: Protocol<Native>> Clone for Database<P> {
    fn clone(&self) -> Self {
        Database { shared: Arc::clone(&self.shared) }
    }
}

impl<P: Protocol<Native>> std::fmt::Debug for Database<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database")
            .field("protocol", &self.shared.engine.protocol().info().name)
            .field("tables", &self.shared.engine.table_names())
            .finish_non_exhaustive()
    }
}

impl Database {
    /// Creates a database without tables, under [`Silo`].
    pub fn new() -> Self {
        Database::default()
    }
}

impl<P: NamedProtocol<Native>> Default for Database<P> {
    /// Creates a database without tables, under `P` with its default options, and with snapshots if
    /// it can have any ([`Database::read`]).
    fn default() -> Self {
        Database::over(P::new(P::options_with_snapshots()), Config::default(), None)
    }
}

impl<P: NamedProtocol<Native>> Database<P> {
    /// Creates a database without tables, under a protocol with exactly these options.
    /// [`Database::builder`] serves an application that sets a configuration, and no options of the
    /// protocol.
    ///
    /// ```
    /// use contend::protocols::{SiloOptions, Wait};
    /// use contend::{Config, Database, NoWait, Silo};
    ///
    /// // Its own options, and those of the read phase.
    /// let options = SiloOptions { wait: Wait::Wait, ..Default::default() };
    /// let patient = Database::<Silo>::with(options, Config::default())?;
    /// let locking = Database::<NoWait>::default();
    /// # Ok::<_, contend::Error>(())
    /// ```
    ///
    /// # Errors
    /// The database can't be made for [`Config::threads_max`] threads.
    pub fn with(protocol: P::Options, config: Config) -> Result<Self, Error> {
        config.check()?;
        Ok(Database::over(P::new(protocol), config, None))
    }

    /// Returns the builder of a database that is durable, or has other options; see [`Builder`].
    pub fn builder() -> Builder<P> {
        Builder::default()
    }
}

impl Database<AnyProtocol> {
    /// Returns the builder of a database under the registered protocol of this name. `options` sets
    /// the protocol's own options by their names. Snapshots are on if the protocol can have any
    /// ([`Database::read`]), unless an option says otherwise.
    ///
    /// Each operation makes a call through a pointer, which `Database::<Cicada>` does not.
    ///
    /// ```
    /// use contend::Database;
    ///
    /// let db = Database::named("cicada", &[("versions.collect", "aggressive")])?.open()?;
    /// assert_eq!(db.protocol().name, "cicada");
    /// # Ok::<_, contend::Error>(())
    /// ```
    ///
    /// # Errors
    /// No protocol has this name ([`Error::UnknownProtocol`] lists all names), or an option does
    /// not exist, or its value is not valid.
    pub fn named(name: &str, options: &[(&str, &str)]) -> Result<Builder<AnyProtocol>, Error> {
        any_protocol::builder(name, options)
    }
}

impl<P: Protocol<Native>> Database<P> {
    /// Returns the protocol's name, paper and promise.
    pub fn protocol(&self) -> ProtocolInfo {
        self.shared.engine.protocol().info()
    }

    /// Takes a checkpoint: the log begins anew with the present rows. The database also takes one
    /// from time to time ([`LogConfig::checkpoint_bytes`](crate::log::LogConfig)), and no
    /// transaction waits for it. `None` if the database is in memory only.
    ///
    /// # Errors
    /// The disk has failed; if it was full, nothing has changed. Or the thread is in a transaction,
    /// for which a checkpoint would wait ([`Error::Nested`]).
    pub fn checkpoint(&self) -> Result<Option<Checkpoint>, Error> {
        if self.shared.seats.is_taken() {
            return Err(Error::Nested);
        }
        let Some(durable) = &self.shared.durable else { return Ok(None) };
        Ok(Some(durable.log.checkpoint()?))
    }

    pub(crate) fn over(protocol: P, config: Config, opened: Option<(Arc<Log>, Recovered)>) -> Self {
        let engine_config = EngineConfig {
            workers_max: config.threads_max,
            epoch_ms: config.epoch_ms,
            options: config.engine,
            ..EngineConfig::default()
        };
        let sinks = opened.as_ref().map(|(log, _)| LogSinks::new(log) as Arc<dyn CommitSinks<Native>>);
        let engine = Engine::with_commit_sinks(protocol, engine_config, sinks);
        let backoff = Backoff::new(config.retry, config.threads_max);
        let seats = Seats::new(Arc::clone(&engine), backoff, opened.as_ref().map(|(log, _)| Arc::clone(log)));
        let retries = <Native as Machine>::U64::new(0);
        let durable = opened.map(|(log, recovered)| {
            engine.epochs().begin_at(log.first_epoch());
            Durable::new(log, recovered, &engine, config.epoch_ms)
        });
        let (creation, types) = (Mutex::new(()), InForce::default());
        Database { shared: Arc::new(Shared { engine, seats, creation, types, retries, durable }) }
    }

    /// Returns a summary of the recovery when the database was opened; `None` if it is in memory
    /// only.
    pub fn recovery(&self) -> Option<&Report> {
        self.shared.durable.as_ref().map(|durable| &durable.report)
    }

    /// Creates a table with an ordered index. The type of the result determines the rows and keys.
    /// In a database that existed before, opens the table of this name with its rows.
    ///
    /// # Errors
    /// The database has a table of this name. Or it had one before, with other rows or keys.
    pub fn create_table<R: Row, K: Key>(&self, name: &str) -> Result<Table<R, K>, Error> {
        self.create_table_with(name, TableOptions::default())
    }

    /// Creates a table.
    ///
    /// ```
    /// # use contend::{Database, Error, IndexKind, Row, Table, TableOptions};
    /// # #[derive(Clone, Copy, Row)]
    /// # #[repr(C)]
    /// # struct Session { user: u64 }
    /// # let db = Database::new();
    /// let hash = TableOptions { index: IndexKind::Hash, ..TableOptions::default() };
    /// let sessions: Table<Session, [u8; 16]> = db.create_table_with("sessions", hash)?;
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// The database has a table of this name.
    pub fn create_table_with<R: Row, K: Key>(&self, name: &str, options: TableOptions) -> Result<Table<R, K>, Error> {
        let _alone = self.shared.creation.lock();
        let name = name.to_string();
        if self.shared.engine.table_names().contains(&name) {
            return Err(Error::TableExists { name });
        }
        let Some(durable) = &self.shared.durable else {
            let spec = TableSpec::of::<R>(&name, options.index, options.expected_rows);
            return Ok(Table::new(self.shared.engine.create_typed(&spec), &name));
        };
        let schema = schema_of::<R, K>(&name, options.index);
        let before = durable.take::<R, K>(&name, options.index)?;
        // A table for which there is no room must leave nothing behind.
        durable.log.add_table(&schema)?;
        let rows = || before.iter().flat_map(RecoveredTable::rows);
        let spec = TableSpec::of::<R>(&name, options.index, options.expected_rows.max(rows().count()));
        let table = Table::new(self.shared.engine.create_typed(&spec), &name);
        durable.log.bind(table.number(), &schema)?;
        let limit = self.shared.engine.config().workers_max;
        let mut loader = self.shared.engine.reloader().ok_or(Error::TooManyThreads { limit })?;
        for (key, row) in rows() {
            loader.insert(&table, K::from_words(key), |words| words.copy_from_slice(row))?;
        }
        Ok(table)
    }

    /// Adds rows, in transactions of 1,024 rows each, and returns the number of rows added. An
    /// existing key keeps its row. If the database is durable, the call returns when all of the
    /// rows are.
    ///
    /// Other transactions may run at the same time, also on this table, and several threads may
    /// load at once. A load is a sequence of transactions, and others see each of them as a whole.
    /// No transaction runs while `rows` computes the next row, so a slow or waiting iterator delays
    /// no transaction. If it panics, the rows that it returned since the last transaction are not
    /// added, and the panic goes on.
    ///
    /// # Errors
    /// There is no more memory, the disk has failed, the table belongs to another database, or
    /// [`Config::threads_max`] is reached. The rows added until then stay. [`Error::Nested`] if the
    /// thread is in a transaction of this database. An operation of `rows` itself on this database
    /// is refused in the same way, and the load goes on.
    pub fn load<R: Row, K: Key>(
        &self,
        table: &Table<R, K>,
        rows: impl IntoIterator<Item = (K, R)>,
    ) -> Result<u64, Error> {
        if !self.shared.engine.owns(table) {
            return Err(Error::ForeignTable { name: table.name().to_string() });
        }
        let mut taken = self.shared.seats.take()?;
        let (mut rows, mut keys, mut values) = (rows.into_iter(), Vec::new(), Vec::new());
        let (mut added, mut last) = (0, None);
        loop {
            for (key, value) in rows.by_ref().take(LOADED_AT_ONCE) {
                keys.push(key);
                values.push(value);
            }
            if keys.is_empty() {
                break;
            }
            let insert = |tx: &mut Transaction<'_, P, Native>| {
                let mut new = 0;
                tx.insert_rows(table, &keys, |position, words| {
                    if let Some(words) = words {
                        *R::from_words_mut(words) = values[position];
                        new += 1;
                    }
                })?;
                Ok(new)
            };
            let ticket = self.run(&mut taken, None, insert, |abort: &Abort| abort.reason).map_err(Error::from)?;
            taken.seat.worker.go_offline();
            added += ticket.peek();
            last = Some(ticket);
            keys.clear();
            values.clear();
        }
        drop(taken);
        // Earlier commits are then durable, too.
        last.map_or(Ok(0), Ticket::wait)?;
        Ok(added)
    }

    /// Runs a transaction: calls `body`, and commits its writes if it returns `Ok`. If the database
    /// is durable, the call returns when the transaction is.
    ///
    /// After a conflict with another transaction `body` is called again, as many times as it takes,
    /// after a pause that grows ([`Config::retry`]). So it must not change anything outside of the
    /// transaction that a second call would notice.
    ///
    /// After ten conflicts in a row the transaction is *protected* ([`Config::engine`]): no other
    /// transaction begins until it has committed, or is given up. So a long transaction commits
    /// too, beside any number of short ones. `body` must not wait for a transaction of another
    /// thread, because that may wait for this one to end.
    ///
    /// Protocols that validate at the end, as [`Silo`] does, let a transaction that is going to
    /// abort see rows of different states. It never returns `Ok`. But it may run into a panic or an
    /// endless loop, or return an `Err` by a decision of its own. Where a refusal rests on several
    /// rows, return it as a value: the `Ok` of a transaction that has written nothing is validated
    /// like all others.
    ///
    /// If `body` panics the transaction leaves no trace, and the panic goes on.
    ///
    /// ```
    /// # use contend::{Database, Error, Row, Table, Txn};
    /// # #[derive(Clone, Copy, Row)]
    /// # #[repr(C)]
    /// # struct Account { balance: i64 }
    /// # let db = Database::new();
    /// # let accounts: Table<Account> = db.create_table("accounts")?;
    /// # db.load(&accounts, [(7, Account { balance: 10 })])?;
    /// let outcome = db.transact(|tx| {
    ///     tx.modify(&accounts, 7, |account| account.balance -= 100)?;
    ///     match tx.read(&accounts, 7, Account::BALANCE)? {
    ///         Some(balance) if balance >= 0 => Ok(balance),
    ///         _ => Err(tx.cancel()),
    ///     }
    /// });
    /// assert_eq!(outcome, Err(Error::Cancelled));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Cancelled`] if `body` returned the abort of [`Txn::cancel`](crate::Txn::cancel).
    /// Otherwise an error that another try would not remove.
    #[inline]
    pub fn transact<T>(
        &self,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, Abort>,
    ) -> Result<T, Error> {
        self.transact_async(body)?.wait()
    }

    /// Runs a transaction as [`Database::transact`] does, but doesn't wait until it is durable. The
    /// result can wait, or tell whether it is. If the process ends before, the transaction may be
    /// lost, with all that depend on it. (With [`Durability::Early`](crate::Durability) and
    /// `Conservative` the thread itself makes the transaction durable, before this returns.)
    ///
    /// # Errors
    /// The errors of [`Database::transact`], except those of making the transaction durable.
    #[inline]
    pub fn transact_async<T>(
        &self,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, Abort>,
    ) -> Result<Ticket<T>, Error> {
        let mut taken = self.shared.seats.take()?;
        self.run(&mut taken, None, body, |abort| abort.reason).map_err(Error::from)
    }

    /// Runs a transaction as [`Database::transact`] does, for a body with an error type of the
    /// application's own.
    ///
    /// An `Err` of `body` ends the transaction and is returned as it is. If a conflict had ended
    /// the transaction before, `body` is called again, whatever error it made of the conflict.
    ///
    /// ```
    /// # use contend::{Abort, Database, Row, Table, Txn};
    /// # #[derive(Clone, Copy, Row)]
    /// # #[repr(C)]
    /// # struct Account { balance: i64 }
    /// #[derive(Debug, PartialEq)]
    /// enum Refused {
    ///     NoSuchAccount,
    ///     Database(contend::Error),
    /// }
    ///
    /// impl From<contend::Error> for Refused {
    ///     fn from(error: contend::Error) -> Self {
    ///         Refused::Database(error)
    ///     }
    /// }
    ///
    /// // So that `?` works inside of the transaction.
    /// impl From<Abort> for Refused {
    ///     fn from(abort: Abort) -> Self {
    ///         Refused::Database(abort.into())
    ///     }
    /// }
    ///
    /// # fn main() -> Result<(), Refused> {
    /// # let db = Database::new();
    /// # let accounts: Table<Account> = db.create_table("accounts")?;
    /// let outcome = db.try_transact(|tx| {
    ///     let balance = tx.read(&accounts, 7, Account::BALANCE)?;
    ///     balance.ok_or(Refused::NoSuchAccount)
    /// });
    /// assert_eq!(outcome, Err(Refused::NoSuchAccount));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error that `body` returned. Or, converted to an `E`, an error that another try would not
    /// remove.
    #[inline]
    pub fn try_transact<T, E: From<Error>>(
        &self,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.try_run(None, body)
    }

    /// Declares the types of all transactions that run from now on, with their pieces and what
    /// these access. A piece of a body is [`Txn::piece`]. To be called after the tables are
    /// created, and after each opening again.
    ///
    /// It may be called again at any time, from any thread, with all types that run from then on:
    /// when a program learns a new type, or no longer runs one. Running transactions end first, and
    /// others begin when the new types are in force, which takes as long as one transaction. The
    /// new declaration may give a type another number, but its [`Kind`] must say so.
    ///
    /// Most protocols ignore declarations. Under [`Ic3`](crate::protocols::Ic3) each piece takes
    /// effect by itself, in an order that is computed here. So transactions that conflict need not
    /// run one after the other. A transaction that does what its type has not declared ends with
    /// [`Error::Undeclared`].
    ///
    /// A transaction without a type ([`Database::transact`], [`Database::load`]) has no place in
    /// that order. Under such a protocol it runs alone: it waits for all others, and all others
    /// wait for it. So load most rows before.
    ///
    /// ```
    /// use contend::pieces::{Kind, Piece};
    /// use contend::protocols::Ic3;
    /// use contend::{Database, Error, Row, Table, Txn, Whole};
    ///
    /// #[derive(Clone, Copy, Row)]
    /// #[repr(C)]
    /// struct Account {
    ///     balance: i64,
    /// }
    ///
    /// const TRANSFER: Kind = Kind::new(0, "transfer");
    /// const TAKE: Piece = Piece::new(0, "take");
    /// const GIVE: Piece = Piece::new(1, "give");
    ///
    /// let db: Database<Ic3<contend::Native>> = Database::default();
    /// let (from, to): (Table<Account>, Table<Account>) = (db.create_table("from")?, db.create_table("to")?);
    /// db.load(&from, [(1, Account { balance: 100 })])?;
    /// db.load(&to, [(1, Account { balance: 0 })])?;
    /// db.declare(|types| {
    ///     types
    ///         .add(TRANSFER)
    ///         .piece(TAKE, |piece| piece.modify(&from, Whole).cancels())
    ///         .piece(GIVE, |piece| piece.update(&to, Account::BALANCE.add(0)));
    /// })?;
    /// assert!(db.analysis().is_some_and(|text| text.contains("[1 take] give")));
    ///
    /// let transfer = |amount: i64| {
    ///     db.transact_as(TRANSFER, |tx| {
    ///         let left = tx.piece(TAKE, |tx| {
    ///             tx.modify(&from, 1, |account| {
    ///                 account.balance -= amount;
    ///                 account.balance
    ///             })
    ///         })?;
    ///         if left.is_none_or(|left| left < 0) {
    ///             return Err(tx.cancel());
    ///         }
    ///         tx.piece(GIVE, |tx| tx.update(&to, 1, Account::BALANCE.add(amount)))
    ///     })
    /// };
    /// assert_eq!(transfer(30), Ok(true));
    /// assert_eq!(transfer(80), Err(Error::Cancelled));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Declaration`] if the types are not valid; then those before stay in force.
    /// [`Error::Nested`] if the thread is in a transaction of this database.
    pub fn declare(&self, types: impl FnOnce(&mut Types)) -> Result<(), Error> {
        if self.shared.seats.is_taken() {
            return Err(Error::Nested);
        }
        let types = DeclaredTypes::new(&self.shared.engine, types)?;
        let set = types.set.clone();
        self.shared.types.replace_by(|| {
            self.shared.engine.declare(set).map_err(Error::Declaration)?;
            Ok(Arc::new(types))
        })
    }

    /// Returns what the analysis of the declared types says, for people: which pieces have to be
    /// one step, in which order the steps go, and what would make it finer. docs/pieces.md explains
    /// the lines. `None` if no types are declared.
    pub fn analysis(&self) -> Option<String> {
        self.shared.types.get().map(|types| types.describe())
    }

    /// Runs a transaction of a declared type. Otherwise it does what [`Database::transact`] does.
    /// If the type only reads, and the protocol has snapshots, the transaction sees one as in
    /// [`Database::read`].
    ///
    /// All accesses stand in pieces ([`Txn::piece`]), in the order of the declaration, each at most
    /// once. A piece's closure may run again by itself, as `body` may.
    ///
    /// # Errors
    /// Those of [`Database::transact`], and [`Error::Undeclared`] if the type is not declared, or
    /// `body` does what its declaration does not allow.
    #[inline]
    pub fn transact_as<T>(
        &self,
        kind: Kind,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, Abort>,
    ) -> Result<T, Error> {
        self.transact_as_async(kind, body)?.wait()
    }

    /// Runs a transaction as [`Database::transact_as`] does, but doesn't wait until it is durable;
    /// see [`Database::transact_async`].
    ///
    /// # Errors
    /// The errors of [`Database::transact_as`], except those of making the transaction durable.
    #[inline]
    pub fn transact_as_async<T>(
        &self,
        kind: Kind,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, Abort>,
    ) -> Result<Ticket<T>, Error> {
        let mut taken = self.shared.seats.take()?;
        self.run(&mut taken, Some(kind), body, |abort| abort.reason).map_err(Error::from)
    }

    /// Runs a transaction as [`Database::transact_as`] does, for a body with an error type of the
    /// application's own; see [`Database::try_transact`]. An `Err` of the body cancels the
    /// transaction, so the piece has to be declared as one that cancels.
    ///
    /// # Errors
    /// The error that `body` returned. Or, converted to an `E`, an error of
    /// [`Database::transact_as`].
    #[inline]
    pub fn try_transact_as<T, E: From<Error>>(
        &self,
        kind: Kind,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.try_run(Some(kind), body)
    }

    /// Reads a state of the database: calls `body` once, with a [`Snapshot`] of all tables as they
    /// were at one moment between transactions.
    ///
    /// Other transactions may write meanwhile, and `body` may take any time. It is never repeated,
    /// no transaction waits for it, and none aborts because of it. Until it ends, the memory of
    /// rows that are deleted or overwritten meanwhile is not reused. The call may wait for commits
    /// that are under way. Once `body` has begun, it waits for no running transaction.
    ///
    /// **The state.** The snapshot contains all that this thread has committed or loaded before.
    /// For that the thread waits at the beginning for the transactions that ran beside its last
    /// commit, usually for a moment. Of the commits of other threads it contains all that are older
    /// than two epochs ([`Config::epoch_ms`], 80 ms by default) and than all running transactions.
    /// It may contain younger ones. If one of two transactions has seen the other's writes, the
    /// snapshot never contains the first without the second. If the database is durable, the rows
    /// that were read are durable when `read` returns.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use contend::{Database, Direction, Error, Row, Table};
    /// # #[derive(Clone, Copy, Row)]
    /// # #[repr(C)]
    /// # struct Account { balance: i64 }
    /// # let db = Database::new();
    /// # let accounts: Table<Account> = db.create_table("accounts")?;
    /// # db.load(&accounts, (0..10).map(|id| (id, Account { balance: 10 })))?;
    /// let sum = db.read(|snapshot| {
    ///     let mut sum = 0;
    ///     snapshot.scan(&accounts, 0..=u64::MAX, usize::MAX, Direction::Forward, Account::BALANCE, |_, balance| {
    ///         sum += balance;
    ///         ControlFlow::Continue(())
    ///     })?;
    ///     Ok(sum)
    /// });
    /// assert_eq!(sum, Ok(100));
    /// # Ok::<_, Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::NoSnapshots`] if the protocol has none ([`Database::reads_snapshots`]).
    /// [`Error::Nested`] within a transaction, another read, or a load. [`Error::Cancelled`] if
    /// `body` returned the abort of [`Snapshot::cancel`]. [`Error::Unsupported`] for a table of
    /// another database, or a scan without an order.
    pub fn read<T>(&self, body: impl FnOnce(&mut Snapshot<'_, P>) -> Result<T, Abort>) -> Result<T, Error> {
        self.read_in(body).map_err(Error::from)
    }

    /// Reads a state of the database as [`Database::read`] does, for a body with an error type of
    /// the application's own.
    ///
    /// # Errors
    /// The error that `body` returned. Or, converted to an `E`, an error of [`Database::read`].
    pub fn try_read<T, E: From<Error>>(&self, body: impl FnOnce(&mut Snapshot<'_, P>) -> Result<T, E>) -> Result<T, E> {
        self.read_in(body).map_err(|failure| match failure {
            Failure::Body(error) => error,
            Failure::Database(error) => error.into(),
        })
    }

    /// Whether [`Database::read`] can read snapshots: under [`Silo`] and the multi-version
    /// protocols, unless their options say otherwise.
    pub fn reads_snapshots(&self) -> bool {
        self.shared.engine.protocol().reads_snapshots()
    }

    fn read_in<T, E>(&self, body: impl FnOnce(&mut Snapshot<'_, P>) -> Result<T, E>) -> Result<T, Failure<E>> {
        let log = self.shared.durable.as_ref().map(|durable| &durable.log);
        if let Some(log) = log {
            log.check().map_err(|error| Failure::Database(error.into()))?;
        }
        let mut taken = self.shared.seats.take().map_err(Failure::Database)?;
        let worker = &mut taken.seat.worker;
        let Some(transaction) = worker.begin_snapshot() else {
            return Err(Failure::Database(no_snapshots(self.protocol().name)));
        };
        let value = {
            let mut snapshot = Snapshot(transaction);
            let value = body(&mut snapshot).map_err(Failure::Body)?;
            snapshot.0.commit().map_err(|abort| Failure::Database(abort.into()))?;
            value
        };
        let waits = log.filter(|_| !worker.is_durable(worker.ticket()));
        let ticket = Ticket::new(value, waits, worker.committed_in());
        drop(taken);
        ticket.wait().map_err(Failure::Database)
    }

    #[inline]
    fn try_run<T, E: From<Error>>(
        &self,
        kind: Option<Kind>,
        body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut taken = self.shared.seats.take()?;
        let ticket = self.run(&mut taken, kind, body, |_| AbortReason::User).map_err(|failure| match failure {
            Failure::Body(error) => error,
            Failure::Database(error) => error.into(),
        })?;
        drop(taken);
        ticket.wait().map_err(E::from)
    }

    /// Returns how a transaction of this type begins, or one without a type, by the types that are
    /// in force.
    ///
    /// # Errors
    /// The type is not declared.
    #[inline]
    fn start(&self, seat: &mut Seat<P>, kind: Option<Kind>) -> Result<Start, Error> {
        let types = &self.shared.types;
        if !types.is_current(&seat.types) {
            // The thread that declares others may wait for this worker.
            seat.worker.go_offline();
            types.refresh(&mut seat.types);
        }
        types::start(seat.types.value.as_deref(), kind).inspect_err(|_| seat.retry.done())
    }

    /// Runs `body` until it commits or fails for good. `reason` returns the reason for which an
    /// error of the body's ends the transaction, if nothing has ended it before.
    #[inline]
    fn run<T, E>(
        &self,
        taken: &mut Taken<'_, P>,
        kind: Option<Kind>,
        mut body: impl FnMut(&mut Transaction<'_, P, Native>) -> Result<T, E>,
        reason: impl Fn(&E) -> AbortReason,
    ) -> Result<Ticket<T>, Failure<E>> {
        let log = self.shared.durable.as_ref().map(|durable| &durable.log);
        if let Some(log) = log {
            log.check().map_err(|error| Failure::Database(error.into()))?;
        }
        let (types, seat) = (&self.shared.types, &mut *taken.seat);
        loop {
            let start = self.start(seat, kind).map_err(Failure::Database)?;
            let mut transaction = begin(&mut seat.worker, start);
            // It may have begun as a type that is something else now. This is a conflict, as a
            // changed row is: a transaction that starves stays as near to its protection.
            let ended = types.is_current(&seat.types).then(|| body(&mut transaction));
            let failure = match ended {
                None => {
                    transaction.abort(AbortReason::ReadValidation);
                    None
                }
                Some(Ok(value)) => match transaction.commit() {
                    Ok(()) => {
                        seat.retry.done();
                        let worker = &mut seat.worker;
                        let waits = log.filter(|_| !worker.is_durable(worker.ticket()));
                        return Ok(Ticket::new(value, waits, worker.committed_in()));
                    }
                    Err(abort) if abort.reason.is_conflict() => None,
                    Err(abort) => Some(Failure::Database(error_of(&mut seat.worker, abort))),
                },
                Some(Err(error)) => {
                    let reason = match transaction.doomed().unwrap_or_else(|| reason(&error)) {
                        // A body may end with an error of its own and not call `cancel`.
                        AbortReason::User => transaction.cancel().reason,
                        reason => reason,
                    };
                    transaction.abort(reason);
                    match reason {
                        AbortReason::Undeclared => {
                            Some(Failure::Database(error_of(&mut seat.worker, Abort::new(reason))))
                        }
                        reason if reason.is_conflict() => None,
                        _ => Some(Failure::Body(error)),
                    }
                }
            };
            if let Some(failure) = failure {
                seat.retry.done();
                return Err(failure);
            }
            // All other threads wait for a protected transaction, so it is tried again at once.
            let is_protected = seat.worker.is_protected();
            // Relaxed: a count that orders nothing. All threads share it, but only between an abort
            // and a wait.
            self.shared.retries.fetch_add(1, Ordering::Relaxed);
            if !is_protected {
                seat.retry.aborted();
            }
        }
    }

    /// Returns the number of retries so far: transactions of all threads that ran again because of
    /// a conflict.
    pub fn retries(&self) -> u64 {
        // Relaxed: a count that orders nothing.
        self.shared.retries.load(Ordering::Relaxed)
    }

    /// Returns the bytes of all tables: rows and indexes, used or kept for later use.
    pub fn bytes(&self) -> u64 {
        self.shared.engine.bytes()
    }
}

/// Begins a transaction.
#[inline]
fn begin<P: Protocol<Native>>(worker: &mut Worker<P, Native>, start: Start) -> Transaction<'_, P, Native> {
    match start {
        Start::Plain => worker.begin(),
        Start::Alone => worker.begin_alone(),
        Start::Kind(kind) => worker.begin_declared(|declaration| declaration.kind(kind)),
        Start::Snapshot(kind) => worker.begin_snapshot_of(Some(kind)).expect("the protocol has snapshots"),
    }
}

/// Returns the error of an abort that is no conflict.
#[cold]
fn error_of<P: Protocol<Native>>(worker: &mut Worker<P, Native>, abort: Abort) -> Error {
    worker.take_undeclared().map_or_else(|| abort.into(), Error::Undeclared)
}

/// Returns the error of a protocol without snapshots. It names the options that add them, or the
/// protocols that have them.
fn no_snapshots(protocol: &'static str) -> Error {
    let protocols = protocols_with_snapshots::<Native>();
    let valid = match protocols.iter().find(|(name, _)| *name == protocol) {
        Some((_, options)) => (*options).to_owned(),
        None => protocols.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", "),
    };
    Error::NoSnapshots { protocol, valid }
}

/// The reason why [`Database::run`] has given up.
enum Failure<E> {
    /// The body returned this error.
    Body(E),
    /// The database failed with this error.
    Database(Error),
}

impl From<Failure<Abort>> for Error {
    fn from(failure: Failure<Abort>) -> Self {
        match failure {
            Failure::Body(abort) => abort.into(),
            Failure::Database(error) => error,
        }
    }
}
