//! PostgreSQL, and what speaks its protocol.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use contend_workloads::file::view::Value;
use postgres::types::{ToSql, Type};
use postgres::{Client, Config, NoTls, Statement};

use super::{Failure, Rows, Session, one_line};
use crate::system::{Product, Server};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);

pub(crate) struct Postgres {
    client: Client,
    prepared: HashMap<String, Statement>,
}

impl Postgres {
    pub(crate) fn open(url: &str) -> Result<Postgres, Failure> {
        // The parser's own message may repeat a part of the URL, and so the password.
        let invalid = || {
            Failure::Fatal("the URL can't be read, or has an unknown parameter; valid: postgres://USER:PASSWORD@HOST:PORT/DATABASE".into())
        };
        let mut config: Config = url.parse().map_err(|_| invalid())?;
        config.connect_timeout(CONNECT).application_name("contend");
        let client = config.connect(NoTls).map_err(|error| failure(&error))?;
        Ok(Postgres { client, prepared: HashMap::new() })
    }

    /// Asks the server what it is.
    pub(crate) fn server(&mut self) -> Result<Server, Failure> {
        let (rows, _) = self.execute("select version()", &[])?;
        let Some(Value::Text(version)) = rows.into_iter().flatten().next() else {
            return Err(Failure::Fatal("the server has no version".into()));
        };
        let product = match version.as_str() {
            text if text.contains("Cockroach") => Product::Cockroach,
            text if text.contains("-YB-") => Product::Yugabyte,
            _ => Product::Postgres,
        };
        let words: Vec<&str> = version.split_whitespace().collect();
        // CockroachDB has the words "CCL v25.1.0" behind its name.
        let count = if product == Product::Cockroach { 3 } else { 2 };
        Ok(Server { product, version: words[..words.len().min(count)].join(" ") })
    }
}

impl Session for Postgres {
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<(Rows, u64), Failure> {
        let statement = match self.prepared.get(sql) {
            Some(statement) => statement.clone(),
            None => {
                let statement = self.client.prepare(sql).map_err(|error| failure(&error))?;
                self.prepared.insert(sql.to_owned(), statement.clone());
                statement
            }
        };
        let values: Vec<&(dyn ToSql + Sync)> = values
            .iter()
            .map(|value| match value {
                Value::Number(number) => number as &(dyn ToSql + Sync),
                Value::Text(text) => text as &(dyn ToSql + Sync),
                Value::Bytes(bytes) => bytes as &(dyn ToSql + Sync),
            })
            .collect();
        if statement.columns().is_empty() {
            let changed = self.client.execute(&statement, &values).map_err(|error| failure(&error))?;
            return Ok((Rows::new(), changed));
        }
        let rows = self.client.query(&statement, &values).map_err(|error| failure(&error))?;
        let mut found = Rows::new();
        for row in &rows {
            let value = |(place, column): (usize, &postgres::Column)| {
                Ok(match *column.type_() {
                    Type::INT8 => Value::Number(row.try_get(place)?),
                    Type::INT4 => Value::Number(i64::from(row.try_get::<_, i32>(place)?)),
                    Type::BOOL => Value::Number(i64::from(row.try_get::<_, bool>(place)?)),
                    Type::BYTEA => Value::Bytes(row.try_get(place)?),
                    _ => Value::Text(row.try_get(place)?),
                })
            };
            let values = row.columns().iter().enumerate().map(value).collect::<Result<_, postgres::Error>>();
            found.push(values.map_err(|error| failure(&error))?);
        }
        let count = found.len() as u64;
        Ok((found, count))
    }

    fn batch(&mut self, sql: &str) -> Result<(), Failure> {
        self.client.batch_execute(sql).map_err(|error| failure(&error))
    }

    fn waits(&mut self, other: u64) -> Result<Option<bool>, Failure> {
        let waits = "select cardinality(pg_blocking_pids($1::bigint::int)) > 0";
        match self.execute(waits, &[Value::Number(other as i64)]) {
            Ok((rows, _)) => Ok(Some(rows == [vec![Value::Number(1)]])),
            // Not each system that speaks the protocol has the function.
            Err(_) => Ok(None),
        }
    }

    fn number(&mut self) -> Result<u64, Failure> {
        match self.execute("select pg_backend_pid()", &[])?.0.into_iter().flatten().next() {
            Some(Value::Number(number)) => Ok(number as u64),
            _ => Ok(0),
        }
    }
}

fn failure(error: &postgres::Error) -> Failure {
    let Some(of) = error.as_db_error() else {
        // The cause says more than the error, such as "connection refused".
        let mut words = error.to_string();
        let mut cause = std::error::Error::source(error);
        while let Some(inner) = cause {
            words += &format!(": {inner}");
            cause = inner.source();
        }
        let is_lost =
            error.is_closed() || std::error::Error::source(error).is_some_and(|cause| cause.is::<io::Error>());
        return if is_lost { Failure::Lost(one_line(&words)) } else { Failure::Fatal(one_line(&words)) };
    };
    match of.code().code() {
        "40001" => Failure::Retry("serialization failure (40001)".into()),
        "40P01" => Failure::Retry("deadlock (40P01)".into()),
        "55P03" => Failure::Retry("lock not available (55P03)".into()),
        "23505" => Failure::Duplicate,
        // The server ends, has lost another process, or is not ready yet.
        code @ ("57P01" | "57P02" | "57P03") => Failure::Lost(one_line(&format!("{} (SQLSTATE {code})", of.message()))),
        code => Failure::Fatal(one_line(&format!("{} (SQLSTATE {code})", of.message()))),
    }
}
