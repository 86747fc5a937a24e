//! MySQL, MariaDB, and what speaks their protocol.

use std::time::{Duration, Instant};

use contend_workloads::file::view::Value;
use mysql::consts::CapabilityFlags;
use mysql::prelude::Queryable;
use mysql::{Conn, Opts, OptsBuilder, Params, Value as SqlValue};

use super::{Failure, Rows, Session, one_line};
use crate::system::{Product, Server};

/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// The statements that stay prepared.
const PREPARED: usize = 512;

/// The server answers from a copy of its lock table, and takes a new copy only if nobody has asked
/// for a tenth of a second.
const ASKED_EVERY: Duration = Duration::from_millis(150);

pub(crate) struct MySql {
    connection: Conn,
    /// When the server was asked for locks.
    asked: Instant,
}

impl MySql {
    pub(crate) fn open(url: &str) -> Result<MySql, Failure> {
        // The parser's own message may repeat a part of the URL, and so the password.
        let invalid = || {
            Failure::Fatal(
                "the URL can't be read, or has an unknown parameter; valid: mysql://USER:PASSWORD@HOST:PORT/DATABASE"
                    .into(),
            )
        };
        let opts = Opts::from_url(url).map_err(|_| invalid())?;
        let has_database = opts.get_db_name().is_some_and(|name| !name.is_empty());
        // An update that leaves a row as it was has found it.
        let mut builder = OptsBuilder::from_opts(opts)
            .tcp_connect_timeout(Some(CONNECT))
            .stmt_cache_size(PREPARED)
            .additional_capabilities(CapabilityFlags::CLIENT_FOUND_ROWS);
        if !has_database {
            builder = builder.db_name(None::<String>);
        }
        let connection = Conn::new(builder).map_err(|error| failure(&error))?;
        Ok(MySql { connection, asked: Instant::now() })
    }

    fn text(&mut self, sql: &str) -> Result<Option<String>, Failure> {
        let row: Option<mysql::Row> = self.connection.query_first(sql).map_err(|error| failure(&error))?;
        // The last column is the value, of `show` as of `select`.
        Ok(row.and_then(|row| mysql::from_value_opt(row.unwrap().pop()?).ok()))
    }

    /// Asks the server what it is. `hosts` is the number of nodes that clients use.
    pub(crate) fn server(&mut self, hosts: usize) -> Result<Server, Failure> {
        let version = self.text("select version()")?.unwrap_or_default();
        let comment = self.text("select @@version_comment")?.unwrap_or_default();
        let has_snapshot = self.text("show variables like 'innodb_snapshot_isolation'")?.is_some();
        let number = version.split('-').next().unwrap_or_default().to_owned();
        let nodes: u64 = match self.text("show status like 'wsrep_cluster_size'")? {
            Some(nodes) => nodes.parse().unwrap_or(0),
            None => 0,
        };
        let (product, name) = match () {
            () if comment.contains("TiDB") || version.contains("TiDB") => (Product::TiDb, version.clone()),
            () if nodes > 1 && hosts > 1 => {
                (Product::Galera { has_snapshot }, format!("MariaDB {number}, Galera, {nodes} nodes"))
            }
            () if version.contains("MariaDB") => (Product::MariaDb { has_snapshot }, format!("MariaDB {number}")),
            () => (Product::MySql, format!("MySQL {number}")),
        };
        Ok(Server { product, version: name })
    }
}

impl Session for MySql {
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<(Rows, u64), Failure> {
        let mut run = || {
            let statement = self.connection.prep(sql)?;
            let values: Vec<SqlValue> = values
                .iter()
                .map(|value| match value {
                    Value::Number(number) => SqlValue::Int(*number),
                    Value::Text(text) => SqlValue::Bytes(text.clone().into_bytes()),
                    Value::Bytes(bytes) => SqlValue::Bytes(bytes.clone()),
                })
                .collect();
            let values = if values.is_empty() { Params::Empty } else { Params::Positional(values) };
            let mut result = self.connection.exec_iter(&statement, values)?;
            // Behind the last row the result has no count any more.
            let changed = result.affected_rows();
            let mut found = Rows::new();
            for row in result.by_ref() {
                let value = |value: SqlValue| match value {
                    SqlValue::Int(number) => Value::Number(number),
                    SqlValue::UInt(number) => Value::Number(i64::try_from(number).unwrap_or(i64::MAX)),
                    // Texts and bytes come alike. What is no text is bytes.
                    SqlValue::Bytes(bytes) => {
                        String::from_utf8(bytes).map_or_else(|error| Value::Bytes(error.into_bytes()), Value::Text)
                    }
                    _ => Value::Number(0),
                };
                found.push(row?.unwrap().into_iter().map(value).collect());
            }
            Ok((found, changed))
        };
        run().map_err(|error: mysql::Error| failure(&error))
    }

    fn batch(&mut self, sql: &str) -> Result<(), Failure> {
        self.connection.query_drop(sql).map_err(|error| failure(&error))
    }

    fn waits(&mut self, other: u64) -> Result<Option<bool>, Failure> {
        if self.asked.elapsed() < ASKED_EVERY {
            return Ok(Some(false));
        }
        self.asked = Instant::now();
        let waits = "select 1 from information_schema.innodb_trx \
                     where trx_mysql_thread_id = ? and trx_state = 'LOCK WAIT'";
        match self.execute(waits, &[Value::Number(other as i64)]) {
            Ok((rows, _)) => Ok(Some(!rows.is_empty())),
            // The account may not ask, or the system has no such table.
            Err(_) => Ok(None),
        }
    }

    fn number(&mut self) -> Result<u64, Failure> {
        Ok(u64::from(self.connection.connection_id()))
    }
}

/// Returns an error in words, without the names of the client's types around them.
fn words(error: &mysql::Error) -> String {
    one_line(&match error {
        mysql::Error::DriverError(of) => of.to_string(),
        mysql::Error::IoError(of) => of.to_string(),
        _ => error.to_string(),
    })
}

fn failure(error: &mysql::Error) -> Failure {
    let of = match error {
        mysql::Error::MySqlError(of) => of,
        mysql::Error::IoError(_)
        | mysql::Error::CodecError(_)
        | mysql::Error::DriverError(mysql::DriverError::CouldNotConnect(_)) => {
            return Failure::Lost(words(error));
        }
        _ => return Failure::Fatal(words(error)),
    };
    match of.code {
        // A node of Galera without a cluster, a server that ends, a session that was ended.
        1047 | 1053 | 1927 => Failure::Lost(one_line(&format!("{} (error {})", of.message, of.code))),
        1213 => Failure::Retry("deadlock (1213)".into()),
        1205 => Failure::Retry("lock wait timeout (1205)".into()),
        1020 => Failure::Retry("record changed since last read (1020)".into()),
        // A node of Galera ends the statement of a transaction that has lost.
        1317 => Failure::Retry("interrupted (1317)".into()),
        1062 => Failure::Duplicate,
        code => Failure::Fatal(one_line(&format!("{} (error {code})", of.message))),
    }
}
