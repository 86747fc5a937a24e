//! SQLite, in this process.

use std::time::Duration;

use contend_workloads::file::view::Value;
use rusqlite::types::{Type, Value as SqlValue, ValueRef};
use rusqlite::{Connection, Error, params_from_iter};

use super::{Failure, Rows, Session, one_line};
use crate::system::{Product, Server};

/// How long a statement waits for a lock before it is aborted.
const WAITS: Duration = Duration::from_secs(5);
/// The statements that stay prepared.
const PREPARED: usize = 512;

pub(crate) struct Sqlite(Connection);

impl Sqlite {
    pub(crate) fn open(path: &str, waits: bool) -> Result<Sqlite, Failure> {
        // A path is a path: SQLite would take it for a URI, which names another file than the one
        // that is removed at the end.
        let path = if path.starts_with("file:") { format!("./{path}") } else { path.to_owned() };
        let connection = Connection::open(path).map_err(|error| failure(&error))?;
        connection.busy_timeout(if waits { WAITS } else { Duration::ZERO }).map_err(|error| failure(&error))?;
        connection.set_prepared_statement_cache_capacity(PREPARED);
        Ok(Sqlite(connection))
    }

    /// Makes the file a database with a write-ahead log.
    pub(crate) fn make(&mut self) -> Result<Server, Failure> {
        self.0.pragma_update(None, "journal_mode", "wal").map_err(|error| failure(&error))?;
        Ok(Server { product: Product::Sqlite, version: format!("SQLite {}", rusqlite::version()) })
    }
}

impl Session for Sqlite {
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<(Rows, u64), Failure> {
        let run = || {
            let mut statement = self.0.prepare_cached(sql)?;
            let values = values.iter().map(|value| match value {
                Value::Number(number) => SqlValue::Integer(*number),
                Value::Text(text) => SqlValue::Text(text.clone()),
                Value::Bytes(bytes) => SqlValue::Blob(bytes.clone()),
            });
            let columns = statement.column_count();
            let mut found = Rows::new();
            let mut rows = statement.query(params_from_iter(values))?;
            while let Some(row) = rows.next()? {
                let value = |column: usize| {
                    Ok(match row.get_ref(column)? {
                        ValueRef::Integer(number) => Value::Number(number),
                        ValueRef::Text(text) => Value::Text(String::from_utf8_lossy(text).into_owned()),
                        ValueRef::Blob(bytes) => Value::Bytes(bytes.to_vec()),
                        ValueRef::Null => Value::Number(0),
                        // An operator with a result of more than 64 bits makes it a real number.
                        ValueRef::Real(_) => {
                            let why = "a number has more than 64 bits".into();
                            return Err(Error::FromSqlConversionFailure(column, Type::Real, why));
                        }
                    })
                };
                found.push((0..columns).map(value).collect::<rusqlite::Result<_>>()?);
            }
            drop(rows);
            Ok((found, if statement.readonly() { 0 } else { self.0.changes() }))
        };
        run().map_err(|error: Error| failure(&error))
    }

    fn batch(&mut self, sql: &str) -> Result<(), Failure> {
        self.0.execute_batch(sql).map_err(|error| failure(&error))
    }

    fn waits(&mut self, _: u64) -> Result<Option<bool>, Failure> {
        // Without a time to wait, no statement waits.
        Ok(Some(false))
    }

    fn number(&mut self) -> Result<u64, Failure> {
        Ok(0)
    }
}

fn failure(error: &Error) -> Failure {
    use rusqlite::ffi;
    let code = match error {
        Error::SqliteFailure(code, _) => code.extended_code,
        _ => 0,
    };
    match code {
        ffi::SQLITE_BUSY_SNAPSHOT => Failure::Retry("BUSY_SNAPSHOT".into()),
        code if code & 0xff == ffi::SQLITE_BUSY => Failure::Retry("BUSY".into()),
        ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_UNIQUE => Failure::Duplicate,
        _ => match error {
            Error::FromSqlConversionFailure(_, _, why) => Failure::Fatal(why.to_string()),
            error => Failure::Fatal(one_line(&error.to_string())),
        },
    }
}
