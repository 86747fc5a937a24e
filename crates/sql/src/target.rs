//! Where a database is: its URL, without its password wherever it is shown.

use std::fmt;

/// A family of systems that speak one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// PostgreSQL, and what speaks its protocol.
    Postgres,
    /// MySQL, MariaDB, and what speaks their protocol.
    MySql,
    /// SQLite, in this process.
    Sqlite,
}

/// A database that is named by a URL. Its text has no password.
#[derive(Clone)]
pub struct Target {
    pub(crate) family: Family,
    /// All before the hosts, with user and password.
    before: String,
    /// The hosts, with their ports; the path of SQLite.
    hosts: Vec<String>,
    /// All behind the hosts.
    behind: String,
    shown: String,
}

/// The valid URLs, for messages.
const VALID: &str = "valid: postgres://USER@HOST/DATABASE, mysql://USER@HOST/DATABASE, sqlite:PATH";

impl Target {
    /// Reads a URL.
    ///
    /// # Errors
    /// A sentence about what is wrong, and the valid forms. It repeats nothing of the URL but its
    /// scheme, because a password may stand anywhere.
    pub fn read(url: &str) -> Result<Target, String> {
        let Some((scheme, rest)) = url.split_once(':') else { return Err(format!("the URL has no scheme; {VALID}")) };
        let family = match scheme {
            "postgres" | "postgresql" => Family::Postgres,
            "mysql" | "mariadb" => Family::MySql,
            "sqlite" => Family::Sqlite,
            // A long word may be a password.
            other if other.len() <= 12 => return Err(format!("the URL has the scheme '{other}'; {VALID}")),
            _ => return Err(format!("the URL has an unknown scheme; {VALID}")),
        };
        if family == Family::Sqlite {
            let path = rest.strip_prefix("//").unwrap_or(rest);
            if path.is_empty() {
                return Err(format!("the URL has no path; {VALID}"));
            }
            let (hosts, shown) = (vec![path.to_owned()], url.to_owned());
            return Ok(Target { family, before: String::new(), hosts, behind: String::new(), shown });
        }
        let Some(rest) = rest.strip_prefix("//") else { return Err(format!("the URL has no '//'; {VALID}")) };
        let (place, parameters) = rest.split_once('?').map_or((rest, ""), |(place, rest)| (place, rest));
        // A password may have an '@' of its own.
        let (user, place) = place.rsplit_once('@').map_or((None, place), |(user, place)| (Some(user), place));
        let (hosts, database) = place.split_once('/').map_or((place, ""), |(hosts, database)| (hosts, database));
        let scheme = if family == Family::MySql { "mysql" } else { "postgres" };
        let name = user.map(|user| user.split(':').next().unwrap_or_default());
        let shown_user = name.map_or(String::new(), |name| format!("{name}@"));
        let behind = if parameters.is_empty() { format!("/{database}") } else { format!("/{database}?{parameters}") };
        Ok(Target {
            family,
            before: format!("{scheme}://{}", user.map_or(String::new(), |user| format!("{user}@"))),
            hosts: hosts.split(',').map(str::to_owned).collect(),
            behind,
            shown: format!("{scheme}://{shown_user}{hosts}/{database}"),
        })
    }

    /// Returns the family of the system.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Returns the number of hosts.
    pub(crate) fn host_count(&self) -> usize {
        self.hosts.len()
    }

    /// Returns the URL for a client: clients are spread over the hosts.
    pub(crate) fn url(&self, client: usize) -> String {
        format!("{}{}{}", self.before, self.hosts[client % self.hosts.len()], self.behind)
    }

    /// Returns the path of SQLite.
    pub(crate) fn path(&self) -> &str {
        &self.hosts[0]
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({})", self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_shown() {
        for url in [
            "postgres://me:secret@a:1,b:2/db",
            "postgres://me:se@secret@a:1,b:2/db?password=secret",
            "postgresql://me:x/secret@a:1,b:2/db",
            "mysql://me:secret@a:1,b:2/db?x=secret",
        ] {
            let target = Target::read(url).expect("valid");
            let (shown, debug) = (target.to_string(), format!("{target:?}"));
            assert!(!shown.contains("secret") && !debug.contains("secret"), "{shown}");
            assert!(shown.ends_with("://me@a:1,b:2/db"), "{shown}");
        }
        for url in ["secret", "secretsecretsecret:x", "postgres:secret", "oracle://me:secret@h/d", "sqlite:"] {
            let error = Target::read(url).expect_err(url);
            assert!(!error.contains("secret") && error.contains("valid: postgres://"), "{error}");
        }
    }

    #[test]
    fn clients_are_spread_over_hosts() {
        let target = Target::read("mysql://u:p@a:1,b:2/db?k=v").expect("valid");
        assert_eq!(target.url(0), "mysql://u:p@a:1/db?k=v");
        assert_eq!(target.url(3), "mysql://u:p@b:2/db?k=v");
        assert_eq!(Target::read("sqlite:/a/b.db").expect("valid").path(), "/a/b.db");
    }
}
