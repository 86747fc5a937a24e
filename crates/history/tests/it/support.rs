//! Histories written down shortly: one table `t`, operations by function.

use contend_history::{Applied, Class, History, Op, Report, Scan, State, Transaction, Value, check};

/// An operation before its names are interned.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Read { key: String, seen: State, value: Option<u64> },
    Write { key: String, over: State, delete: bool, applied: Applied, value: Option<u64> },
    Scan { low: Option<String>, high: Option<String>, seen: Vec<(String, u64)>, gone: Vec<(String, u64)> },
}

pub(crate) fn read(key: &str, version: u64) -> Act {
    Act::Read { key: key.into(), seen: State::Version(version), value: None }
}

pub(crate) fn read_value(key: &str, version: u64, value: u64) -> Act {
    Act::Read { key: key.into(), seen: State::Version(version), value: Some(value) }
}

pub(crate) fn miss(key: &str) -> Act {
    Act::Read { key: key.into(), seen: State::Absent, value: None }
}

pub(crate) fn miss_after(key: &str, deleter: u64) -> Act {
    Act::Read { key: key.into(), seen: State::deleted_by(deleter), value: None }
}

pub(crate) fn write(key: &str, over: u64) -> Act {
    Act::Write { key: key.into(), over: State::Version(over), delete: false, applied: Applied::InOrder, value: None }
}

/// An update that commutes with others.
pub(crate) fn add(key: &str, over: u64) -> Act {
    Act::Write { key: key.into(), over: State::Version(over), delete: false, applied: Applied::Commuting, value: None }
}

/// A write that was omitted.
pub(crate) fn omitted(key: &str, over: u64) -> Act {
    Act::Write { key: key.into(), over: State::Version(over), delete: false, applied: Applied::Omitted, value: None }
}

pub(crate) fn write_value(key: &str, over: u64, value: u64) -> Act {
    Act::Write {
        key: key.into(),
        over: State::Version(over),
        delete: false,
        applied: Applied::InOrder,
        value: Some(value),
    }
}

pub(crate) fn insert(key: &str) -> Act {
    Act::Write { key: key.into(), over: State::Absent, delete: false, applied: Applied::InOrder, value: None }
}

pub(crate) fn insert_after(key: &str, deleter: u64) -> Act {
    Act::Write {
        key: key.into(),
        over: State::deleted_by(deleter),
        delete: false,
        applied: Applied::InOrder,
        value: None,
    }
}

pub(crate) fn delete(key: &str, over: u64) -> Act {
    Act::Write { key: key.into(), over: State::Version(over), delete: true, applied: Applied::InOrder, value: None }
}

pub(crate) fn scan(low: &str, high: &str, seen: &[(&str, u64)]) -> Act {
    scan_gone(low, high, seen, &[])
}

pub(crate) fn scan_gone(low: &str, high: &str, seen: &[(&str, u64)], gone: &[(&str, u64)]) -> Act {
    let own = |list: &[(&str, u64)]| list.iter().map(|&(key, version)| (key.to_owned(), version)).collect();
    Act::Scan { low: Some(low.into()), high: Some(high.into()), seen: own(seen), gone: own(gone) }
}

pub(crate) fn history(transactions: &[(u64, Vec<Act>)]) -> History {
    let mut history = History::new();
    let table = history.table("t");
    for (txn, acts) in transactions {
        let ops = acts.iter().map(|act| {
            let number = |value: &Option<u64>| value.map(Value::Unsigned);
            match act {
                Act::Read { key, seen, value } => {
                    Op::Read { item: history.item(table, key), seen: *seen, value: number(value) }
                }
                Act::Write { key, over, delete, applied, value } => {
                    let item = history.item(table, key);
                    Op::Write { item, over: *over, delete: *delete, applied: *applied, value: number(value) }
                }
                Act::Scan { low, high, seen, gone } => {
                    let mut item = |key: &String| history.item(table, key);
                    let (low, high) = (low.as_ref().map(&mut item), high.as_ref().map(&mut item));
                    let seen = seen.iter().map(|(key, version)| (item(key), *version)).collect();
                    let gone = gone.iter().map(|(key, deleter)| (item(key), *deleter)).collect();
                    Op::Scan(Box::new(Scan { table, low, high, seen, gone }))
                }
            }
        });
        let ops = ops.collect();
        history.push(Transaction { txn: *txn, worker: 0, ops }).expect("tests number transactions well");
    }
    history
}

/// Numbers the transactions from 1 in the order given.
pub(crate) fn numbered<const N: usize>(transactions: [Vec<Act>; N]) -> History {
    history(&(1..).zip(transactions).collect::<Vec<_>>())
}

/// The class and the name of the worst anomaly.
pub(crate) fn worst(report: &Report) -> Option<(Class, &'static str)> {
    report.anomalies.first().map(|anomaly| (anomaly.class, anomaly.name))
}

#[track_caller]
pub(crate) fn assert_worst(history: &History, class: Class, name: &str) -> Report {
    let report = check(history);
    assert_eq!(worst(&report), Some((class, name)), "{report}");
    report
}
