//! A session with a server, whatever the system.

mod mysql;
mod postgres;
mod sqlite;

use contend_workloads::file::view::Value;

use crate::system::{Level, Product, Server};
use crate::target::{Family, Target};

/// Why a statement was not executed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The database has aborted the transaction, which may be tried again. The text is the reason.
    Retry(String),
    /// The key is there already.
    Duplicate,
    /// The connection is gone, or the server is about to end. The transaction is gone with it,
    /// unless it was about to be committed: then nobody knows.
    Lost(String),
    /// Anything else, in the database's own words.
    Fatal(String),
}

/// Rows that were read.
pub(crate) type Rows = Vec<Vec<Value>>;

/// A session.
pub(crate) trait Session: Send {
    /// Executes a statement with its values, prepared once. Returns what was read, and how many
    /// rows were changed, if the system says so.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<(Rows, u64), Failure>;

    /// Executes statements without values, which are not prepared.
    fn batch(&mut self, sql: &str) -> Result<(), Failure>;

    /// Whether another session waits for a lock, as far as the server tells; `None` if it does not.
    fn waits(&mut self, other: u64) -> Result<Option<bool>, Failure>;

    /// Returns the session's number at the server.
    fn number(&mut self) -> Result<u64, Failure>;
}

impl Failure {
    /// Returns the failure as the end of a run, in words.
    pub(crate) fn words(self) -> String {
        match self {
            Failure::Retry(reason) => reason,
            Failure::Duplicate => "a key is there already".into(),
            Failure::Lost(words) | Failure::Fatal(words) => words,
        }
    }
}

/// Returns a text on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Where the tables of a run are: a schema, a database, or the file of SQLite.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) target: Target,
    pub(crate) name: String,
}

impl Place {
    /// Returns the file of SQLite.
    pub(crate) fn file(&self) -> String {
        format!("{}.{}", self.target.path(), self.name)
    }

    /// Opens a session that names the tables of the run without a prefix. `waits` is false if it
    /// fails at once where it would have to wait, as far as the system has no waits of its own.
    pub(crate) fn open(&self, client: usize, waits: bool) -> Result<Box<dyn Session>, String> {
        let words = |failure: Failure| format!("{}: {}", self.target, failure.words());
        Ok(match self.target.family() {
            Family::Sqlite => Box::new(sqlite::Sqlite::open(&self.file(), waits).map_err(words)?),
            Family::Postgres => {
                let mut session = postgres::Postgres::open(&self.target.url(client)).map_err(words)?;
                session.batch(&format!("set search_path to {}", self.name)).map_err(words)?;
                Box::new(session)
            }
            Family::MySql => {
                let mut session = mysql::MySql::open(&self.target.url(client)).map_err(words)?;
                session.batch(&format!("use {}", self.name)).map_err(words)?;
                Box::new(session)
            }
        })
    }

    /// Opens a session on any host that answers, which sees all that was committed before.
    pub(crate) fn open_any(&self, product: Product) -> Result<Box<dyn Session>, String> {
        let mut session = self.any_host(|host| self.open(host, true))?;
        self.wait_for_others(&mut *session, product, true)?;
        Ok(session)
    }

    /// Makes a session wait until its node has applied what was committed on others, now and, if
    /// `always`, before each select. Without it a node of Galera may still answer from tables that
    /// others have replaced.
    pub(crate) fn wait_for_others(
        &self,
        session: &mut dyn Session,
        product: Product,
        always: bool,
    ) -> Result<(), String> {
        if !matches!(product, Product::Galera { .. }) {
            return Ok(());
        }
        let words = |failure: Failure| format!("{}: {}", self.target, failure.words());
        session.batch("set session wsrep_sync_wait = 1").map_err(words)?;
        session.execute("select 1", &[]).map_err(words)?;
        if always { Ok(()) } else { session.batch("set session wsrep_sync_wait = default").map_err(words) }
    }

    /// Tries something on each host until one succeeds. Returns the error of the first.
    fn any_host<T>(&self, tried: impl Fn(usize) -> Result<T, String>) -> Result<T, String> {
        tried(0).or_else(|error| (1..self.target.host_count()).find_map(|host| tried(host).ok()).ok_or(error))
    }

    /// Opens a session at a level.
    pub(crate) fn open_at(
        &self,
        client: usize,
        waits: bool,
        product: Product,
        level: Level,
    ) -> Result<Box<dyn Session>, String> {
        let mut session = self.open(client, waits)?;
        for statement in level.statements(product) {
            session.batch(&statement).map_err(|failure| format!("{}: {}", self.target, failure.words()))?;
        }
        self.wait_for_others(&mut *session, product, false)?;
        Ok(session)
    }

    /// Makes the place: a new schema, database or file.
    ///
    /// # Errors
    /// The server can't be reached, or it refuses.
    pub(crate) fn make(&self) -> Result<Server, String> {
        let words = |failure: Failure| format!("{}: {}", self.target, failure.words());
        match self.target.family() {
            Family::Sqlite => {
                // A file beside a folder would do no harm, but nobody means one.
                if std::path::Path::new(self.target.path()).is_dir() {
                    return Err(format!("{}: the path is a folder; valid: sqlite:PATH of a file", self.target));
                }
                if std::path::Path::new(&self.file()).exists() {
                    return Err(format!("{} is there already", self.file()));
                }
                sqlite::Sqlite::open(&self.file(), true)
                    .and_then(|mut session| session.make())
                    .inspect_err(|_| drop(self.remove()))
                    .map_err(words)
            }
            Family::Postgres => {
                let mut session = postgres::Postgres::open(&self.target.url(0)).map_err(words)?;
                session.batch(&format!("create schema {}", self.name)).map_err(words)?;
                session.server().inspect_err(|_| drop(self.remove())).map_err(words)
            }
            Family::MySql => {
                let mut session = mysql::MySql::open(&self.target.url(0)).map_err(words)?;
                session.batch(&format!("create database {}", self.name)).map_err(words)?;
                session.server(self.target.host_count()).inspect_err(|_| drop(self.remove())).map_err(words)
            }
        }
    }

    /// Removes the place with all that is in it.
    ///
    /// # Errors
    /// The server can't be reached, or it refuses.
    pub(crate) fn remove(&self) -> Result<(), String> {
        let words = |failure: Failure| format!("{}: {}", self.target, failure.words());
        match self.target.family() {
            Family::Sqlite => {
                for end in ["", "-wal", "-shm", "-journal"] {
                    let file = format!("{}{end}", self.file());
                    match std::fs::remove_file(&file) {
                        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(format!("can't remove {file}: {error}"));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            Family::Postgres => self.any_host(|host| {
                let mut session = postgres::Postgres::open(&self.target.url(host)).map_err(words)?;
                session.batch(&format!("drop schema if exists {} cascade", self.name)).map_err(words)
            }),
            Family::MySql => self.any_host(|host| {
                let mut session = mysql::MySql::open(&self.target.url(host)).map_err(words)?;
                session.batch(&format!("drop database if exists {}", self.name)).map_err(words)
            }),
        }
    }
}
