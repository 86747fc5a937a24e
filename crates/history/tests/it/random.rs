//! Random histories: serial ones, which must be clean, and damaged ones, for which the checker must
//! agree with a search of every serial order.
//!
//! Each failure names its seed; `HISTORY_SEED=n cargo test -p contend-history --test it random`
//! runs that one alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::support::*;
use contend_history::{Applied, Class, History, Isolation, Op, Quick, State, Value, check, replay, replay_to};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};

fn seeds(count: u64) -> Range<u64> {
    match std::env::var("HISTORY_SEED") {
        Ok(seed) => {
            let seed = seed.parse().expect("HISTORY_SEED is a number");
            seed..seed + 1
        }
        Err(_) => 0..count,
    }
}

/// What a serial database holds of a key.
#[derive(Clone, Copy)]
struct Row {
    state: State,
    value: u64,
    is_insert: bool,
}

/// A serial execution of random transactions.
struct Serial {
    random: SmallRng,
    keys: u64,
    rows: BTreeMap<u64, Row>,
    /// By key that has a row: the state before it was inserted.
    before_insert: BTreeMap<u64, State>,
    /// Whether misses, inserts and scans say which delete they follow; if not, they say so by
    /// chance.
    is_exact: bool,
    transactions: Vec<(u64, Vec<Act>)>,
    values: u64,
}

impl Serial {
    fn run(seed: u64, transactions: usize, keys: u64, is_exact: bool) -> Self {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut rows = BTreeMap::new();
        for key in 0..keys {
            let state = if random.random_bool(0.6) { State::Version(0) } else { State::NeverExisted };
            rows.insert(key, Row { state, value: 1_000_000 + key, is_insert: false });
        }
        let mut numbers: Vec<u64> = (1..=3 * transactions as u64).collect();
        numbers.shuffle(&mut random);
        let before_insert = BTreeMap::new();
        let mut serial = Self { random, keys, rows, before_insert, is_exact, transactions: vec![], values: 0 };
        for &txn in &numbers[..transactions] {
            let length = serial.random.random_range(1..6);
            let acts = (0..length).map(|_| serial.act(txn)).collect();
            serial.transactions.push((txn, acts));
        }
        serial.omit();
        serial
    }

    /// Has some of the writes omitted that the next transaction to touch the key has overwritten
    /// without a look.
    fn omit(&mut self) {
        for key in (0..self.keys).map(name) {
            for place in 0..self.transactions.len() - 1 {
                let (before, after) = self.transactions.split_at_mut(place + 1);
                let (txn, acts) = before.last_mut().expect("as long as the place");
                let Some(over) = acts.iter().find_map(|act| match act {
                    Act::Write { key: other, over: State::Version(over), .. } if *other == key => Some(*over),
                    _ => None,
                }) else {
                    continue;
                };
                let is_update = |act: &Act| match act {
                    Act::Write { key: other, over, delete, .. } => *other != key || !delete && !over.is_absent(),
                    _ => true,
                };
                let replaces = after.iter_mut().flat_map(|(_, acts)| acts).find_map(|act| match act {
                    Act::Write { key: other, over, applied, .. } if *other == key => {
                        Some((*over == State::Version(*txn) && *applied == Applied::InOrder).then_some(over))
                    }
                    Act::Read { key: other, .. } if *other == key => Some(None),
                    Act::Scan { low, high, .. } => {
                        let number = |key: &String| key.parse::<u64>().expect("keys are numbers");
                        let covers = low.as_ref().is_none_or(|low| number(low) <= number(&key))
                            && high.as_ref().is_none_or(|high| number(&key) <= number(high));
                        covers.then_some(None)
                    }
                    _ => None,
                });
                if let Some(Some(replaces)) = replaces
                    && acts.iter().all(is_update)
                    && self.random.random_bool(0.5)
                {
                    *replaces = State::Version(over);
                    acts.iter_mut().for_each(|act| match act {
                        Act::Write { key: other, applied, .. } if *other == key => *applied = Applied::Omitted,
                        _ => {}
                    });
                }
            }
        }
    }

    fn act(&mut self, txn: u64) -> Act {
        let key = self.random.random_range(0..self.keys);
        let row = self.rows[&key];
        match self.random.random_range(0..10) {
            0..4 => {
                let value = (!row.state.is_absent() && self.random.random_bool(0.5)).then_some(row.value);
                Act::Read { key: name(key), seen: self.told(row.state), value }
            }
            4..6 => self.scan(),
            6..8 if !row.state.is_absent() => self.delete(txn, key),
            _ => self.put(txn, key),
        }
    }

    /// An insert or an update.
    fn put(&mut self, txn: u64, key: u64) -> Act {
        let row = self.rows[&key];
        self.values += 1;
        let is_own = row.state == State::Version(txn);
        if row.state.is_absent() {
            self.before_insert.insert(key, row.state);
        }
        let is_insert = if is_own { row.is_insert } else { row.state.is_absent() };
        let value = Some(self.values);
        self.rows.insert(key, Row { state: State::Version(txn), value: self.values, is_insert });
        let commutes = !row.state.is_absent() && self.random.random_bool(0.5);
        let applied = if commutes { Applied::Commuting } else { Applied::InOrder };
        Act::Write { key: name(key), over: self.told(row.state), delete: false, applied, value }
    }

    fn delete(&mut self, txn: u64, key: u64) -> Act {
        let row = self.rows[&key];
        let mut left = State::DeletedBy(txn);
        // A row inserted and deleted by one transaction may leave a trace or not.
        if row.state == State::Version(txn) && row.is_insert && self.random.random_bool(0.5) {
            left = self.before_insert[&key];
        }
        self.rows.insert(key, Row { state: left, value: 0, is_insert: false });
        Act::Write { key: name(key), over: row.state, delete: true, applied: Applied::InOrder, value: None }
    }

    fn scan(&mut self) -> Act {
        let (a, b) = (self.random.random_range(0..self.keys), self.random.random_range(0..self.keys));
        let (mut low, mut high) = (a.min(b), a.max(b));
        let rows = |low, high| self.rows.range(low..=high).filter(|(_, row)| !row.state.is_absent());
        let found: Vec<u64> = rows(low, high).map(|(&key, _)| key).collect();
        // A limit of two, upwards or downwards.
        let (mut open_low, mut open_high) = (false, false);
        match self.random.random_range(0..4) {
            0 if found.len() >= 2 => high = found[1],
            1 if found.len() >= 2 => low = found[found.len() - 2],
            2 => (low, open_low) = (0, true),
            3 => (high, open_high) = (self.keys, true),
            _ => {}
        }
        let (mut seen, mut gone) = (vec![], vec![]);
        for (&key, row) in self.rows.range(low..=high) {
            match row.state {
                State::Version(version) => seen.push((name(key), version)),
                State::DeletedBy(_) | State::NeverExisted if !self.is_exact && self.random.random_bool(0.5) => {}
                State::DeletedBy(deleter) => gone.push((name(key), deleter)),
                _ => gone.push((name(key), 0)),
            }
        }
        seen.shuffle(&mut self.random);
        Act::Scan { low: (!open_low).then(|| name(low)), high: (!open_high).then(|| name(high)), seen, gone }
    }

    fn told(&mut self, state: State) -> State {
        if state.is_absent() && !self.is_exact && self.random.random_bool(0.5) { State::Absent } else { state }
    }

    fn final_state(&self) -> Vec<(String, String, u64)> {
        let version = |state| if let State::Version(version) = state { Some(version) } else { None };
        self.rows.iter().filter_map(|(&key, row)| Some(("t".to_owned(), name(key), version(row.state)?))).collect()
    }

    fn shuffled(&mut self) -> History {
        let mut transactions = self.transactions.clone();
        transactions.shuffle(&mut self.random);
        history(&transactions)
    }
}

/// Keys of different lengths, so that order as numbers matters.
fn name(key: u64) -> String {
    (key + 8).to_string()
}

#[test]
fn serial_histories_are_clean_and_replay() {
    for seed in seeds(1000) {
        let mut serial = Serial::run(seed, 1 + seed as usize % 60, 1 + seed % 7, true);
        let history = serial.shuffled();
        let report = check(&history);
        assert!(report.anomalies.is_empty() && report.is_exact(), "seed {seed}: {report}");
        let order = report.serial_order().unwrap();
        replay_to(&history, order, serial.final_state()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn what_is_not_known_raises_no_alarm() {
    let mut ambiguous = 0;
    for seed in seeds(1000) {
        let mut serial = Serial::run(seed, 1 + seed as usize % 60, 1 + seed % 7, false);
        let report = check(&serial.shuffled());
        assert!(report.anomalies.is_empty(), "seed {seed}: {report}");
        ambiguous += usize::from(!report.is_exact());
        // In the order of its execution the history is its own serial order, however little it
        // says.
        let history = history(&serial.transactions);
        let order: Vec<usize> = (0..history.transactions().len()).collect();
        assert_eq!(check(&history).serial_order(), Some(&order[..]), "seed {seed}");
        replay_to(&history, &order, serial.final_state()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
    assert!(ambiguous > 100 || std::env::var("HISTORY_SEED").is_ok(), "only {ambiguous} histories were ambiguous");
}

/// Changes one operation; false if there was none to change in the way chosen.
fn damage(serial: &mut Serial) -> bool {
    let random = &mut serial.random;
    let txn = random.random_range(0..serial.transactions.len());
    let op = random.random_range(0..serial.transactions[txn].1.len());
    // Another version, mostly one of the same key.
    let key = match &serial.transactions[txn].1[op] {
        Act::Read { key, .. } | Act::Write { key, .. } => Some(key.clone()),
        Act::Scan { .. } => None,
    };
    let wrote = |act: &Act| matches!(act, Act::Write { key: other, .. } if key.as_ref().is_none_or(|key| key == other));
    let writers = serial.transactions.iter().filter(|(_, acts)| acts.iter().any(wrote)).map(|(txn, _)| *txn);
    let mut numbers: Vec<u64> = writers.chain([0]).collect();
    numbers.push(serial.transactions[random.random_range(0..serial.transactions.len())].0);
    let any = |random: &mut SmallRng| numbers[random.random_range(0..numbers.len())];
    let acts = &mut serial.transactions[txn].1;
    let (choice, length) = (random.random_range(0..4), acts.len());
    match &mut acts[op] {
        Act::Read { seen, value, .. } => {
            *value = None;
            *seen = if choice == 0 { State::deleted_by(any(random)) } else { State::Version(any(random)) };
        }
        Act::Write { .. } if choice == 0 && length > 1 => drop(acts.remove(op)),
        Act::Write { delete, applied, .. } if choice == 1 => (*delete, *applied) = (!*delete, Applied::InOrder),
        Act::Write { over, applied, .. } if choice == 2 => {
            (*over, *applied) = (State::deleted_by(any(random)), Applied::InOrder);
        }
        Act::Write { over: State::Version(_), delete: false, applied, .. } if random.random_bool(0.3) => {
            *applied = if *applied == Applied::Omitted { Applied::InOrder } else { Applied::Omitted };
        }
        Act::Write { over, .. } => *over = State::Version(any(random)),
        Act::Scan { seen, .. } if choice == 0 && !seen.is_empty() => {
            let place = random.random_range(0..seen.len());
            seen[place].1 = any(random);
        }
        Act::Scan { gone, .. } if choice == 1 && !gone.is_empty() => {
            let place = random.random_range(0..gone.len());
            gone[place].1 = any(random);
        }
        Act::Scan { gone, seen, .. } if choice == 2 && !gone.is_empty() => {
            let (key, _) = gone.swap_remove(0);
            seen.push((key, any(random)));
        }
        Act::Scan { seen, .. } if !seen.is_empty() => drop(seen.swap_remove(random.random_range(0..seen.len()))),
        Act::Scan { .. } => return false,
    }
    true
}

/// Calls `try_order` with every order of `rest`, until it returns true.
fn any_order(order: &mut Vec<usize>, rest: &mut Vec<usize>, try_order: &mut impl FnMut(&[usize]) -> bool) -> bool {
    if rest.is_empty() {
        return try_order(order);
    }
    (0..rest.len()).any(|place| {
        order.push(rest.swap_remove(place));
        let found = any_order(order, rest, try_order);
        rest.push(order.pop().expect("pushed above"));
        let last = rest.len() - 1;
        rest.swap(place, last);
        found
    })
}

fn dump_acts(transactions: &[(u64, Vec<Act>)]) -> String {
    let lines = transactions.iter().flat_map(|(txn, acts)| acts.iter().map(move |act| format!("T{txn} {act:?}\n")));
    lines.collect()
}

/// The definition itself: some serial order explains everything.
fn is_serializable(history: &History) -> bool {
    let mut places = (0..history.transactions().len()).collect();
    any_order(&mut vec![], &mut places, &mut |order| replay(history, order).is_ok())
}

#[test]
fn the_checker_agrees_with_a_search_of_every_order() {
    let (mut clean, mut broken, mut exact) = (0, 0, 0);
    for seed in seeds(6000) {
        let mut serial = Serial::run(seed, 2 + seed as usize % 4, 1 + seed % 3, true);
        let damages = serial.random.random_range(1..3);
        if (0..damages).filter(|_| damage(&mut serial)).count() == 0 {
            continue;
        }
        let history = serial.shuffled();
        let report = check(&history);
        let is_clean = report.anomalies.is_empty();
        let dump = || format!("seed {seed}: {report}\n{}", dump_acts(&serial.transactions));
        let is_serializable = is_serializable(&history);
        assert!(is_clean || !is_serializable, "{}", dump());
        if report.is_exact() {
            assert!(!is_clean || is_serializable, "{}", dump());
            exact += 1;
        }
        if is_clean && report.is_exact() {
            replay(&history, report.serial_order().unwrap()).unwrap_or_else(|wrong| panic!("{}\n{wrong}", dump()));
        }
        if is_clean { clean += 1 } else { broken += 1 }
    }
    println!("{clean} clean, {broken} broken, {exact} of them exact");
    assert!(clean.min(broken) > 500 || std::env::var("HISTORY_SEED").is_ok(), "{clean} clean, {broken} broken");
}

#[test]
fn a_history_that_some_order_explains_is_never_reported() {
    for seed in seeds(3000) {
        let mut serial = Serial::run(seed, 2 + seed as usize % 4, 1 + seed % 3, false);
        damage(&mut serial);
        let history = serial.shuffled();
        let report = check(&history);
        if !report.anomalies.is_empty() {
            assert!(!is_serializable(&history), "seed {seed}: {report}\n{}", dump_acts(&serial.transactions));
        }
    }
}

/// Whether the quick proof succeeds; the final state as it should be.
fn is_proved(quick: &mut Quick, history: &History, final_state: &[(String, String, u64)]) -> bool {
    let number = |item| history.item_key(item).parse::<u64>().expect("keys are numbers");
    let value = |value: &Option<Value>| match value {
        Some(Value::Unsigned(value)) => Some(*value),
        _ => None,
    };
    let all_ops = || history.transactions().iter().flat_map(|transaction| &transaction.ops);
    let met: Vec<_> = all_ops()
        .flat_map(|op| match op {
            Op::Read { item, .. } | Op::Write { item, .. } => vec![*item],
            Op::Scan(scan) => scan.seen.iter().chain(&scan.gone).map(|(item, _)| *item).collect(),
        })
        .collect();
    let bounds = all_ops().flat_map(|op| match op {
        Op::Scan(scan) => scan.low.into_iter().chain(scan.high).collect(),
        _ => vec![],
    });
    let items: BTreeSet<_> = bounds.chain(met.iter().copied()).collect();
    let mut names = BTreeMap::new();
    quick.clear();
    for transaction in history.transactions() {
        quick.transaction(transaction.txn);
        let mut own = vec![];
        for op in &transaction.ops {
            match op {
                Op::Read { item, seen, value: read } => {
                    names.insert(item.index(), number(*item));
                    quick.read(item.index(), *seen, value(read));
                }
                Op::Write { applied: Applied::Omitted, .. } => quick.give_up(),
                Op::Write { item, over, delete, value: written, .. } => {
                    names.insert(item.index(), number(*item));
                    own.push(*item);
                    quick.write(item.index(), *over, *delete, value(written));
                }
                Op::Scan(scan) => {
                    let seen = scan.seen.iter().map(|&(item, by)| (item, State::Version(by)));
                    let all: Vec<_> =
                        seen.chain(scan.gone.iter().map(|&(item, by)| (item, State::deleted_by(by)))).collect();
                    for &(item, state) in &all {
                        let covers = scan.low.is_none_or(|low| number(low) <= number(item))
                            && scan.high.is_none_or(|high| number(item) <= number(high));
                        let twice = all.iter().filter(|(other, _)| *other == item).count() > 1;
                        if !covers || twice {
                            quick.give_up();
                        }
                        names.insert(item.index(), number(item));
                        quick.read(item.index(), state, None);
                    }
                    // What a scan does not name it has not found: never, where nobody else has.
                    for item in items.iter().copied().filter(|item| all.iter().all(|(other, _)| other != item)) {
                        let covers = scan.low.is_none_or(|low| number(low) <= number(item))
                            && scan.high.is_none_or(|high| number(item) <= number(high));
                        if covers {
                            names.insert(item.index(), number(item));
                            let state = match own.contains(&item) {
                                true => State::DeletedBy(transaction.txn),
                                false if met.contains(&item) => State::Absent,
                                false => State::NeverExisted,
                            };
                            quick.read(item.index(), state, None);
                        }
                    }
                }
            }
        }
    }
    quick.is_proved(|item| {
        let key = names[&item].to_string();
        final_state.iter().find(|(_, other, _)| *other == key).map(|(_, _, version)| *version)
    })
}

/// What the quick proof proves, the checker and the replay find right; and of what is right it
/// proves nearly everything.
#[test]
fn the_quick_proof_never_contradicts_the_checker() {
    let (mut quick, mut proved, mut clean, mut broken) = (Quick::default(), 0, 0, 0);
    for seed in seeds(20_000) {
        let mut serial = Serial::run(seed, 2 + seed as usize % 8, 1 + seed % 6, true);
        let mut final_state = serial.final_state();
        for _ in 0..seed % 3 {
            damage(&mut serial);
        }
        let met = |key: &String| {
            let is_of =
                |act: &Act| matches!(act, Act::Read { key: other, .. } | Act::Write { key: other, .. } if other == key);
            serial.transactions.iter().any(|(_, acts)| acts.iter().any(is_of))
        };
        if let Some(place) = final_state.iter().position(|(_, key, _)| met(key)).filter(|_| seed % 7 == 6) {
            // A row that is lost, or another's.
            match seed % 2 {
                0 => _ = final_state.remove(place),
                _ => final_state[place].2 += 1,
            }
        }
        let history = serial.shuffled();
        // As a recorder says it: of the keys that the history names.
        final_state.retain(|(table, key, _)| history.find_item(table, key).is_some());
        let report = check(&history);
        let is_right = report.anomalies.is_empty()
            && report.serial_order().is_some_and(|order| replay_to(&history, order, final_state.clone()).is_ok());
        let is_proved = is_proved(&mut quick, &history, &final_state);
        assert!(is_right || !is_proved, "seed {seed}: {report}\n{}", dump_acts(&serial.transactions));
        (proved, clean) = (proved + usize::from(is_proved), clean + usize::from(is_right));
        broken += usize::from(!is_right);
    }
    println!("{proved} proved of {clean} that are right; {broken} are not");
    let enough = broken > 2000 && proved * 3 > clean;
    assert!(enough || std::env::var("HISTORY_SEED").is_ok(), "{proved} of {clean} right, {broken} not");
}

/// What is certain to be noticed: the final state lacks a lost write, and in the order of execution
/// the replay notices any change of a read, of a value, or of what a scan returned.
#[test]
fn damage_is_noticed_where_it_must_be() {
    for seed in seeds(1000) {
        let serial = Serial::run(seed, 20, 5, true);
        let mut random = SmallRng::seed_from_u64(seed);
        let order: Vec<usize> = (0..20).collect();
        let final_state = serial.final_state();
        for (txn, (id, acts)) in serial.transactions.iter().enumerate() {
            let op = random.random_range(0..acts.len());
            let mut damaged = serial.transactions.clone();
            let writes = acts.iter().any(|act| matches!(act, Act::Write { .. }));
            match &mut damaged[txn].1[op] {
                Act::Read { seen: State::Version(version), .. } => *version = if *version == *id { 0 } else { *id },
                Act::Read { seen, .. } => *seen = State::Version(0),
                Act::Scan { seen, .. } if !seen.is_empty() => drop(seen.pop()),
                Act::Scan { gone, .. } if !gone.is_empty() && !writes => gone[0].1 += 1000,
                Act::Scan { .. } => continue,
                Act::Write { key, over, .. } => {
                    // Lost: the last live write of a key, so that the final state should have it.
                    let lost = ("t".to_owned(), key.clone(), *id);
                    let is_last =
                        !acts[op + 1..].iter().any(|act| matches!(act, Act::Write { key: other, .. } if other == key));
                    if !final_state.contains(&lost) || !is_last || *over == State::Version(*id) {
                        continue;
                    }
                    damaged[txn].1.remove(op);
                }
            }
            let damaged = history(&damaged);
            let noticed = replay_to(&damaged, &order, final_state.clone());
            assert!(noticed.is_err(), "seed {seed}: operation {op} of T{id}");
        }
    }
}

/// Random snapshot isolation: transactions overlap, read what was committed at their begin, and
/// fail if another has since written what they write. It must never break its promise, and be
/// caught at not keeping a stronger one.
#[test]
fn snapshot_isolation_keeps_its_promise_and_no_more() {
    let mut classes = BTreeMap::new();
    for seed in seeds(500) {
        let history = run_snapshot_isolation(seed, 40);
        let report = check(&history);
        assert_eq!(report.violates(Isolation::Snapshot), None, "seed {seed}");
        for anomaly in &report.anomalies {
            *classes.entry(anomaly.class).or_insert(0) += 1;
        }
    }
    if std::env::var("HISTORY_SEED").is_err() {
        assert_eq!(classes.keys().copied().collect::<Vec<_>>(), [Class::G2Item, Class::G2], "{classes:?}");
    }
}

#[test]
fn of_snapshot_isolation_too_the_checker_says_what_a_search_says() {
    let mut serializable = 0;
    for seed in seeds(3000) {
        let history = run_snapshot_isolation(seed, 3 + seed % 4);
        let report = check(&history);
        assert_eq!(report.anomalies.is_empty(), is_serializable(&history), "seed {seed}: {report}");
        serializable += usize::from(report.anomalies.is_empty());
    }
    let all_kinds = (500..2500).contains(&serializable);
    assert!(all_kinds || std::env::var("HISTORY_SEED").is_ok(), "{serializable} of 3000 serializable");
}

/// Transactions that do everything at once, and see everything at once: with updates that commute
/// some orders are right that otherwise would not be.
#[test]
fn of_no_isolation_too_the_checker_says_what_a_search_says() {
    let (mut serializable, mut thanks_to_commuting) = (0, 0);
    for seed in seeds(3000) {
        let history = run_without_isolation(seed, 3 + seed % 3, true);
        let report = check(&history);
        assert_eq!(report.anomalies.is_empty(), is_serializable(&history), "seed {seed}: {report}");
        if report.anomalies.is_empty() {
            replay(&history, report.serial_order().unwrap()).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
            serializable += 1;
            let ordered = run_without_isolation(seed, 3 + seed % 3, false);
            thanks_to_commuting += usize::from(!check(&ordered).anomalies.is_empty());
        }
    }
    let all_kinds = (500..2500).contains(&serializable) && thanks_to_commuting > 100;
    let counts = format!("{serializable} of 3000 serializable, {thanks_to_commuting} of them because updates commute");
    assert!(all_kinds || std::env::var("HISTORY_SEED").is_ok(), "{counts}");
}

fn run_without_isolation(seed: u64, count: u64, commuting: bool) -> History {
    let mut random = SmallRng::seed_from_u64(seed);
    let keys = random.random_range(1..4_u64);
    let mut versions = vec![0; keys as usize];
    let mut transactions: Vec<_> = (1..=count).map(|txn| (txn, vec![])).collect();
    for _ in 0..random.random_range(count..4 * count) {
        let (txn, acts) = &mut transactions[random.random_range(0..count as usize)];
        let key = random.random_range(0..keys);
        let over = versions[key as usize];
        let kind = random.random_range(0..5);
        if kind == 0 {
            acts.push(read(&name(key), over));
            continue;
        }
        acts.push(if kind == 1 || !commuting { write(&name(key), over) } else { add(&name(key), over) });
        versions[key as usize] = *txn;
    }
    transactions.shuffle(&mut random);
    history(&transactions)
}

type States = BTreeMap<u64, State>;

fn run_snapshot_isolation(seed: u64, count: u64) -> History {
    let mut random = SmallRng::seed_from_u64(seed);
    let keys = random.random_range(2..5_u64);
    let absent = |random: &mut SmallRng| random.random_bool(0.3);
    let loaded = |random: &mut SmallRng| if absent(random) { State::NeverExisted } else { State::Version(0) };
    let mut committed: BTreeMap<u64, State> = (0..keys).map(|key| (key, loaded(&mut random))).collect();
    // Each with its number, its snapshot, what it sees with its own writes, and its operations.
    let mut running: Vec<(u64, States, States, Vec<Act>)> = vec![];
    let mut transactions = vec![];
    for txn in 1..=count {
        running.push((txn, committed.clone(), committed.clone(), vec![]));
        let last = txn == count;
        while running.len() > if last { 0 } else { random.random_range(0..4) } {
            let place = random.random_range(0..running.len());
            let (txn, begin, own, acts) = &mut running[place];
            let key = random.random_range(0..keys);
            let old = own[&key];
            match random.random_range(0..5) {
                0 | 1 => acts.push(Act::Read { key: name(key), seen: old, value: None }),
                2 => {
                    let (mut seen, mut gone) = (vec![], vec![]);
                    for (&key, &state) in own.range(..=key) {
                        match state {
                            State::Version(version) => seen.push((name(key), version)),
                            State::DeletedBy(deleter) => gone.push((name(key), deleter)),
                            _ => gone.push((name(key), 0)),
                        }
                    }
                    acts.push(Act::Scan { low: None, high: Some(name(key)), seen, gone });
                }
                3 if acts.len() < 6 => {
                    let delete = !old.is_absent() && random.random_bool(0.3);
                    let new = if delete { State::DeletedBy(*txn) } else { State::Version(*txn) };
                    own.insert(key, new);
                    acts.push(Act::Write { key: name(key), over: old, delete, applied: Applied::InOrder, value: None });
                }
                _ => {
                    let written: Vec<u64> = (0..keys).filter(|key| own[key] != begin[key]).collect();
                    if written.iter().all(|key| committed[key] == begin[key]) {
                        committed.extend(written.iter().map(|key| (*key, own[key])));
                        transactions.push((*txn, std::mem::take(acts)));
                    }
                    running.swap_remove(place);
                }
            }
        }
    }
    transactions.shuffle(&mut random);
    history(&transactions)
}
