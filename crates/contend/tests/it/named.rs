//! Databases whose protocol is chosen by its name, and the documents that list protocols.

use std::ops::ControlFlow;

use contend::{
    AnyProtocol, Database, Direction, Durability, Error, IndexKind, Isolation, OptionError, Row, Table, TableOptions,
    Txn, Whole,
};
use contend_machine::Native;
use contend_protocols::all_protocols;

#[derive(Clone, Copy, Debug, PartialEq, Row)]
#[repr(C)]
struct Account {
    balance: i64,
}

/// The registered names, in the registry's order.
fn names() -> Vec<&'static str> {
    all_protocols::<Native>().iter().map(|(info, _)| info.name).collect()
}

fn transfer(db: &Database<AnyProtocol>, accounts: &Table<Account>) -> Result<i64, Error> {
    db.transact(|tx| {
        let Some(from) = tx.read(accounts, 1, Whole)? else { return Err(tx.cancel()) };
        tx.modify(accounts, 1, |account| account.balance -= 30)?;
        tx.modify(accounts, 2, |account| account.balance += 30)?;
        Ok(from.balance)
    })
}

/// Alone, no transaction meets a conflict: rows come and go, and scans leave their times and marks.
#[test]
fn a_single_thread_commits_at_its_first_try() {
    for name in names() {
        let db = Database::named(name, &[]).and_then(|builder| builder.open()).expect(name);
        let ordered = TableOptions { index: IndexKind::Ordered, ..TableOptions::default() };
        let accounts: Table<Account> = db.create_table_with("accounts", ordered).expect(name);
        for key in 0..200 {
            let seen = db.transact(|tx| {
                let mut seen = 0;
                tx.scan(&accounts, 0..=u64::MAX, usize::MAX, Direction::Forward, Whole, |_, _| {
                    seen += 1;
                    ControlFlow::Continue(())
                })?;
                // A miss beside the rows.
                tx.read(&accounts, key + 1, Whole).map(|_| seen)
            });
            assert_eq!(seen, Ok(key - key / 3), "{name}");
            let inserted = db.transact(|tx| tx.insert(&accounts, key, Account { balance: 1 }));
            assert_eq!(inserted, Ok(true), "{name}");
            if key % 3 == 2 {
                assert_eq!(db.transact(|tx| tx.delete(&accounts, key / 3)), Ok(true), "{name}");
            }
        }
        assert_eq!(db.retries(), 0, "{name}");
    }
}

#[test]
fn a_database_opens_under_every_registered_protocol_by_its_name() {
    let names = names();
    assert!(names.len() >= 19, "{names:?}");
    for name in names {
        let db = Database::named(name, &[]).and_then(|builder| builder.open()).expect(name);
        assert_eq!(db.protocol().name, name);
        for (table, index) in [("hash", IndexKind::Hash), ("ordered", IndexKind::Ordered)] {
            let options = TableOptions { index, ..TableOptions::default() };
            let accounts: Table<Account> = db.create_table_with(table, options).expect(name);
            assert_eq!(db.load(&accounts, (0..10).map(|id| (id, Account { balance: 100 }))), Ok(10), "{name}");
            assert_eq!(transfer(&db, &accounts), Ok(100), "{name}");
            let both = db.transact(|tx| Ok((tx.read(&accounts, 1, Whole)?, tx.read(&accounts, 2, Whole)?)));
            assert_eq!(both, Ok((Some(Account { balance: 70 }), Some(Account { balance: 130 }))), "{name}");
        }
    }
}

#[test]
fn a_name_that_is_not_registered_is_refused_with_those_that_are() {
    for wrong in ["sillo", "", "Silo", "silo "] {
        let error = Database::named(wrong, &[]).map(|_| ()).expect_err("no such protocol");
        assert_eq!(error, Error::UnknownProtocol { name: wrong.to_owned(), valid: names().join(", ") });
        let said = error.to_string();
        assert!(names().iter().all(|name| said.contains(name)), "{said}");
    }
}

#[test]
fn options_are_set_by_name_and_wrong_ones_are_refused() {
    let reads = |options: &[(&str, &str)]| {
        let db = Database::named("cicada", options).expect("valid options").open().expect("in memory");
        db.read(|_| Ok(())).map_err(|error| error.to_string())
    };
    // Snapshots are on unless an option turns them off, as for a protocol that is a type.
    assert_eq!(reads(&[]), Ok(()));
    assert_eq!(reads(&[("versions.collect", "epoch")]), Ok(()));
    assert!(reads(&[("versions.snapshots", "off")]).is_err_and(|said| said.contains("versions.snapshots=on")));
    let refused = |options: &[(&str, &str)]| Database::named("cicada", options).map(|_| ()).expect_err("not valid");
    assert!(matches!(
        refused(&[("silo.wait", "wait")]),
        Error::Option(OptionError::UnknownName { valid, .. }) if valid.contains(&"versions.collect")
    ));
    assert!(matches!(
        refused(&[("versions.collect", "now")]),
        Error::Option(OptionError::InvalidValue { name: "versions.collect", .. })
    ));
}

#[test]
fn what_a_type_refuses_is_refused_by_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = |name| {
        let builder = Database::named(name, &[]).expect("a registered name");
        builder.path(directory.path()).durability(Durability::Conservative).open().map(|_| ())
    };
    assert_eq!(open("bamboo"), Err(Error::NotConservative { protocol: "bamboo" }));
    let refused = open("chopping").expect_err("it has no log");
    assert!(matches!(refused, Error::NeverDurable { protocol: "chopping", .. }));
    assert!(refused.to_string().contains("a crash between two parts"), "{refused}");
    assert_eq!(open("tictoc"), Ok(()));
}

/// The names in the first column of the README's table of protocols.
fn names_in_readme() -> Vec<String> {
    let readme = include_str!("../../../../README.md");
    let rows = readme.lines().skip_while(|line| !line.starts_with("| protocols |")).skip(2);
    let cells = rows.take_while(|line| line.starts_with('|')).filter_map(|line| line.split('|').nth(1));
    cells.flat_map(|cell| cell.split(',').map(|name| name.trim().trim_matches('`').to_owned())).collect()
}

#[test]
fn the_readme_lists_the_registered_protocols() {
    let mut listed = names_in_readme();
    let mut registered = names();
    listed.sort_unstable();
    registered.sort_unstable();
    assert_eq!(listed, registered);
    let promising = all_protocols::<Native>().into_iter().filter(|(info, _)| info.isolation != Isolation::None);
    assert_eq!(promising.count() + 1, registered.len(), "one protocol promises nothing");
}
