//! [`Builder`]: a database with other options, or one that is durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contend_engine::{NamedProtocol, Protocol};
use contend_log::{CommitProtocol, Directory, Disk, Log, LogConfig, Release};
use contend_machine::Native;

use crate::Database;
use crate::config::Config;
use crate::error::Error;

/// The time at which an acknowledged transaction is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Never: the database is in memory only, and has no path.
    Off,
    /// At once. All transactions that commit in one epoch are made durable together (Silo's group
    /// commit; Zheng et al.: "Fast databases with fast durability and recovery through multicore
    /// parallelism", OSDI 2014). As long as some thread waits, the next epoch begins as soon as the
    /// disk has the one before.
    #[default]
    Epoch,
    /// At once. The thread that runs a transaction makes it durable, and other transactions see it
    /// before (P-WAL's early lock release). The thread doesn't wait for a common flush, unless
    /// another thread is still making earlier commits durable.
    Early,
    /// The same, but other transactions see it only when it is durable (conservative lock release).
    Conservative,
}

impl Durability {
    fn commit(self) -> CommitProtocol {
        match self {
            Durability::Off | Durability::Epoch => CommitProtocol::Epoch,
            Durability::Early => CommitProtocol::Workers { release: Release::Early, group: 1, lsn: true },
            Durability::Conservative => {
                CommitProtocol::Workers { release: Release::Conservative, group: 1, lsn: false }
            }
        }
    }
}

/// The way to open a database.
///
/// ```
/// use contend::{Database, Row, Table, Txn, Whole};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Row)]
/// #[repr(C)]
/// struct Account { balance: i64 }
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path();
/// let open = || -> Result<Database, contend::Error> { Database::builder().path(path).open() };
/// let db = open()?;
/// let accounts: Table<Account> = db.create_table("accounts")?;
/// db.transact(|tx| tx.insert(&accounts, 7, Account { balance: 10 }))?;
/// drop(db);
///
/// let db = open()?;
/// let accounts: Table<Account> = db.create_table("accounts")?;
/// let row = db.transact(|tx| tx.read(&accounts, 7, Whole))?;
/// assert_eq!(row, Some(Account { balance: 10 }));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Builder<P: Protocol<Native>> {
    protocol: P,
    /// Whether transactions see uncommitted writes of others.
    shows_uncommitted: bool,
    /// The reason why the protocol does not go with a log, if it does not.
    refuses_log: Option<&'static str>,
    config: Config,
    disk: Place,
    durability: Durability,
    log: LogConfig,
}

/// The place of a database.
#[derive(Debug)]
enum Place {
    Memory,
    Path(PathBuf),
    Disk(Arc<dyn Disk>),
}

impl<P: NamedProtocol<Native>> Default for Builder<P> {
    /// Returns a builder of a database in memory, with snapshots if the protocol can have any
    /// ([`Database::read`]).
    fn default() -> Self {
        Builder::of::<P>(P::new(P::options_with_snapshots()))
    }
}

impl<P: NamedProtocol<Native>> Builder<P> {
    /// Sets the protocol's options exactly as they are given. If snapshots are one of its options,
    /// its defaults have none.
    pub fn protocol(self, protocol: P::Options) -> Self {
        Builder { protocol: P::new(protocol), ..self }
    }
}

impl<P: Protocol<Native>> Builder<P> {
    /// Returns a builder for a protocol that may be behind a pointer: `N` is its type.
    pub(crate) fn of<N: NamedProtocol<Native>>(protocol: P) -> Self {
        Builder {
            protocol,
            shows_uncommitted: N::SHOWS_UNCOMMITTED,
            refuses_log: N::REFUSES_LOG,
            config: Config::default(),
            disk: Place::Memory,
            durability: Durability::default(),
            log: LogConfig::default(),
        }
    }

    /// Sets the configuration of the database, apart from its protocol.
    pub fn config(self, config: Config) -> Self {
        Builder { config, ..self }
    }

    /// Sets the directory of the database. It is created if it doesn't exist.
    pub fn path(self, path: impl AsRef<Path>) -> Self {
        Builder { disk: Place::Path(path.as_ref().to_owned()), ..self }
    }

    /// Sets a disk instead of a directory, for tests.
    pub fn disk(self, disk: Arc<dyn Disk>) -> Self {
        Builder { disk: Place::Disk(disk), ..self }
    }

    /// Sets the time at which a transaction is durable.
    pub fn durability(self, durability: Durability) -> Self {
        Builder { durability, ..self }
    }

    /// Sets the length of the log's files, and the amount that is kept in memory before it is
    /// written. The number of workers comes from [`Config::threads_max`] instead, and the kind of
    /// commit from [`Builder::durability`].
    pub fn log(self, log: LogConfig) -> Self {
        Builder { log, ..self }
    }

    /// Opens the database, with its contents if it existed before ([`Database::recovery`]).
    /// [`Database::create_table`] opens a table that existed before.
    ///
    /// # Errors
    /// The database can't be made for [`Config::threads_max`] threads; the durability does not go
    /// with the protocol; another process has the directory; the disk fails; or
    /// acknowledged commits are missing or damaged.
    pub fn open(self) -> Result<Database<P>, Error> {
        self.config.check()?;
        let is_durable = self.durability != Durability::Off && !matches!(self.disk, Place::Memory);
        if let Some(why) = self.refuses_log.filter(|_| is_durable) {
            return Err(Error::NeverDurable { protocol: self.protocol.info().name, why });
        }
        let disk: Arc<dyn Disk> = match (self.durability, self.disk) {
            (_, Place::Memory) => return Ok(Database::over(self.protocol, self.config, None)),
            // The contents of the path would be neither read nor changed, and all commits would be
            // lost. No application wants that.
            (Durability::Off, _) => return Err(Error::NotDurable),
            (Durability::Conservative, _) if self.shows_uncommitted => {
                return Err(Error::NotConservative { protocol: self.protocol.info().name });
            }
            (_, Place::Path(path)) => Arc::new(Directory::open(&path)?.direct(self.log.direct).uring(self.log.uring)),
            (_, Place::Disk(disk)) => disk,
        };
        let log = LogConfig { workers: self.config.threads_max, commit: self.durability.commit(), ..self.log };
        let opened = Log::open(disk, log)?;
        Ok(Database::over(self.protocol, self.config, Some(opened)))
    }
}
