//! What a server is, and what each of its isolation levels promises.

use contend_history::Isolation;
use serde::Serialize;

use crate::target::Family;

/// A system, as its server names itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// PostgreSQL.
    Postgres,
    /// CockroachDB.
    Cockroach,
    /// YugabyteDB.
    Yugabyte,
    /// MySQL.
    MySql,
    /// MariaDB; `true` if it knows `innodb_snapshot_isolation`.
    MariaDb {
        /// Whether there is the level `snapshot`.
        has_snapshot: bool,
    },
    /// MariaDB with Galera, of several nodes.
    Galera {
        /// Whether there is the level `snapshot`.
        has_snapshot: bool,
    },
    /// TiDB.
    TiDb,
    /// SQLite.
    Sqlite,
}

/// A server: its system and its version.
#[derive(Clone, Debug)]
pub struct Server {
    /// The system.
    pub product: Product,
    /// Name and version, for people.
    pub version: String,
}

/// An isolation level of a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Level {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it promises, as a level of Adya's. docs/sql.md names the source.
    #[serde(serialize_with = "by_name")]
    pub promise: Isolation,
}

fn by_name<S: serde::Serializer>(level: &Isolation, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(level.name())
}

/// The word for all levels of a system.
pub const ALL: &str = "all";

impl Product {
    /// Returns the system's family.
    pub fn family(self) -> Family {
        match self {
            Product::Postgres | Product::Cockroach | Product::Yugabyte => Family::Postgres,
            Product::MySql | Product::MariaDb { .. } | Product::Galera { .. } | Product::TiDb => Family::MySql,
            Product::Sqlite => Family::Sqlite,
        }
    }

    /// Whether `delete` may return the row: MariaDB can, MySQL and TiDB can't.
    pub(crate) fn deletes_return(self) -> bool {
        !matches!(self, Product::MySql | Product::TiDb)
    }

    /// Returns the levels, the weakest first.
    pub fn levels(self) -> Vec<Level> {
        use Isolation::{ReadCommitted, ReadUncommitted, Serializable, Snapshot};
        let level = |name, promise| Level { name, promise };
        let read_uncommitted = level("read-uncommitted", ReadUncommitted);
        let read_committed = level("read-committed", ReadCommitted);
        let repeatable_read = |promise| level("repeatable-read", promise);
        let serializable = level("serializable", Serializable);
        match self {
            Product::Postgres | Product::Yugabyte => vec![read_committed, repeatable_read(Snapshot), serializable],
            Product::Cockroach => vec![read_committed, serializable],
            Product::MySql => vec![read_uncommitted, read_committed, repeatable_read(ReadCommitted), serializable],
            Product::MariaDb { has_snapshot } => {
                let mut levels = vec![read_uncommitted, read_committed, repeatable_read(ReadCommitted)];
                levels.extend(has_snapshot.then(|| level("snapshot", Snapshot)));
                levels.push(serializable);
                levels
            }
            // A transaction's locks are those of its own node.
            Product::Galera { has_snapshot } => {
                let mut levels = vec![read_committed, repeatable_read(ReadCommitted)];
                levels.extend(has_snapshot.then(|| level("snapshot", Snapshot)));
                levels.push(level("serializable", ReadCommitted));
                levels
            }
            Product::TiDb => vec![read_committed, repeatable_read(ReadCommitted)],
            Product::Sqlite => vec![serializable],
        }
    }

    /// Returns the levels of these names; `all` stands for each.
    ///
    /// # Errors
    /// The system has no level of a name, or a name is there twice.
    pub fn chosen(self, names: &[String]) -> Result<Vec<Level>, String> {
        let levels = self.levels();
        let mut chosen: Vec<Level> = Vec::new();
        for name in names {
            if name == ALL {
                chosen.extend(levels.iter().filter(|level| !chosen.contains(level)).copied().collect::<Vec<_>>());
                continue;
            }
            let Some(level) = levels.iter().find(|level| level.name == name) else {
                let valid: Vec<&str> = levels.iter().map(|level| level.name).collect();
                return Err(format!("unknown isolation level '{name}'; valid here: {}, all", valid.join(", ")));
            };
            if chosen.contains(level) {
                return Err(format!("isolation level '{name}' is given twice; valid: once"));
            }
            chosen.push(*level);
        }
        if chosen.is_empty() { Err("no isolation level is given; valid: a level, or all".into()) } else { Ok(chosen) }
    }
}

impl Level {
    /// Returns the statements that bring a session to the level.
    pub(crate) fn statements(self, product: Product) -> Vec<String> {
        let spaced = self.name.replace('-', " ");
        match product.family() {
            Family::Sqlite => Vec::new(),
            Family::Postgres => vec![format!("set default_transaction_isolation = '{spaced}'")],
            Family::MySql => {
                let is_snapshot = self.name == "snapshot";
                let of = if is_snapshot { "repeatable read" } else { &spaced };
                let mut all = vec![format!("set session transaction isolation level {of}")];
                if let Product::MariaDb { has_snapshot: true } | Product::Galera { has_snapshot: true } = product {
                    all.push(format!("set session innodb_snapshot_isolation = {}", u8::from(is_snapshot)));
                }
                all
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_chosen_by_name() {
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let postgres = Product::Postgres;
        assert_eq!(postgres.chosen(&names(&["all"])).expect("valid").len(), 3);
        assert_eq!(postgres.chosen(&names(&["serializable", "all"])).expect("valid")[0].name, "serializable");
        for (given, part) in [
            (names(&["strong"]), "'strong'; valid here: read-committed, repeatable-read, serializable, all"),
            (names(&["serializable", "serializable"]), "twice"),
            (names(&[]), "no isolation level"),
        ] {
            assert!(postgres.chosen(&given).expect_err("invalid").contains(part));
        }
    }

    #[test]
    fn snapshot_isolation_of_mariadb_is_a_variable_of_the_session() {
        let maria = Product::MariaDb { has_snapshot: true };
        let level = |name: &str| *maria.levels().iter().find(|level| level.name == name).expect("known");
        assert!(level("snapshot").statements(maria)[1].ends_with("= 1"));
        assert!(level("repeatable-read").statements(maria)[1].ends_with("= 0"));
    }
}
