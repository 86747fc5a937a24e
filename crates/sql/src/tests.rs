//! The whole way on SQLite, which needs no server.

use std::sync::Mutex;

use contend_history::{History, Isolation};
use contend_model::Options;
use contend_workloads::WorkloadFile;
use contend_workloads::file::Input;
use contend_workloads::file::view::{Value, View};

use crate::connection::{Failure, Rows, Session};
use crate::execute::{Tried, attempt};
use crate::litmus;
use crate::record::{Fault, Recorded, Recorder, RecordingTexts, history};
use crate::result::Counts;
use crate::run::{Made, SqlConfig, SqlError, Watcher, levels, prepare, run};
use crate::system::{Level, Product};
use crate::target::Target;
use crate::text::Purpose;

/// Keeps histories. When a piece of work begins, it may do something or ask for a stop.
#[derive(Default)]
struct Kept<'a> {
    histories: Mutex<Vec<(String, usize)>>,
    is_stopped: Mutex<bool>,
    stops_at: &'static str,
    does: Option<&'a (dyn Fn(&str) + Sync)>,
}

impl Watcher for Kept<'_> {
    fn is_stopped(&self) -> bool {
        *self.is_stopped.lock().expect("no panic")
    }

    fn begin(&self, what: &str) {
        *self.is_stopped.lock().expect("no panic") |= what == self.stops_at;
        self.does.iter().for_each(|does| does(what));
    }

    fn history(&self, level: &str, history: &History) {
        self.histories.lock().expect("no panic").push((level.into(), history.transactions().len()));
    }
}

fn view(text: &str, settings: &[(&str, &str)]) -> View {
    let file = WorkloadFile::read("test.toml", text).expect("valid");
    let mut options = file.options().expect("valid");
    settings.iter().for_each(|(name, value)| options.set(name, value).expect("valid"));
    View::new(&options).expect("valid")
}

fn config(path: &std::path::Path) -> SqlConfig {
    SqlConfig {
        target: Target::read(&format!("sqlite:{}", path.display())).expect("valid"),
        levels: vec!["all".into()],
        clients: 3,
        seconds: 0.05,
        verify_transactions: 300,
        rate: None,
        reconnect: std::time::Duration::ZERO,
        seed: 7,
    }
}

fn files(folder: &std::path::Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.expect("read").file_name().to_string_lossy().into();
    std::fs::read_dir(folder).expect("a folder").map(name).collect()
}

#[test]
fn files_run_on_sqlite_and_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("mine.db");
    std::fs::write(&path, "not touched").expect("written");
    let shop = include_str!("../../../workloads/shop.toml");
    let bank = include_str!("../../../workloads/bank.toml");
    let tpcb = include_str!("../../../workloads/tpcb.toml");
    let tpcc = include_str!("../../../workloads/tpcc.toml");
    for (text, settings) in [
        (shop, &[("shop.items", "50"), ("shop.customers", "20")][..]),
        (bank, &[("bank.accounts", "20")]),
        (tpcb, &[]),
        (tpcc, &[("tpcc.warehouses", "1"), ("tpcc.items", "100"), ("tpcc.customers", "30")]),
    ] {
        let view = view(text, settings);
        let kept = Kept::default();
        let result = run(&config(&path), "test.toml", &view, &view, &kept).expect("it runs");
        let [level] = &result.levels[..] else { panic!("one level: {result:?}") };
        let verified = level.verified.as_ref().expect("it was judged");
        assert!(!level.failed() && verified.worst.is_none() && !result.partial && result.error.is_none(), "{level:?}");
        assert!(level.failed_invariants().next().is_none(), "{level:?}");
        assert!(level.measured.counts.commits > 0 && level.measured.throughput_tps > 0.0);
        let counts = &verified.counts;
        assert_eq!(counts.commits + counts.cancelled, 300);
        assert_eq!(*kept.histories.lock().expect("no panic"), [("serializable".to_owned(), counts.commits as usize)]);
        assert!(verified.operations as u64 >= counts.commits);
    }
    assert_eq!(files(folder.path()), ["mine.db"], "what was there stays, and nothing else");
    assert_eq!(std::fs::read_to_string(&path).expect("read"), "not touched");
}

fn litmus_of_sqlite(fault: Fault) -> litmus::LitmusResult {
    let folder = tempfile::tempdir().expect("a folder");
    let target = config(&folder.path().join("x")).target;
    let made = Made::new(&target).expect("a file");
    litmus::table(&target, Product::Sqlite.levels(), &Kept::default(), &made, fault).expect("it runs")
}

#[test]
fn sqlite_prevents_each_anomaly() {
    let result = litmus_of_sqlite(Fault::None);
    assert!(result.broken().is_empty());
    for row in &result.rows {
        let words = row.outcomes[0].words();
        assert!(words.starts_with("prevented"), "{}: {words}", row.name);
    }
    // The database refuses the second writer, and has no need to refuse a reader of the past.
    let words = |name: &str| result.rows.iter().find(|row| row.name == name).expect("a test").outcomes[0].words();
    assert_eq!(words("G0 dirty write"), "prevented, BUSY");
    assert_eq!(words("P4 lost update"), "prevented, BUSY");
    assert_eq!(words("G-single read skew"), "prevented");
    assert_eq!(words("G-single write after a read of the past"), "prevented, BUSY_SNAPSHOT");
}

#[test]
fn wrong_recorders_are_found() {
    for fault in [Fault::SwapsColumns, Fault::ReadsLate, Fault::ForgetsCommits] {
        let result = litmus_of_sqlite(fault);
        assert!(!result.broken().is_empty(), "{fault:?} is not found");
    }
}

/// A session that takes back what it is to commit.
struct Forgetful(Box<dyn Session>);

impl Session for Forgetful {
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<(Rows, u64), Failure> {
        self.0.execute(sql, values)
    }

    fn batch(&mut self, sql: &str) -> Result<(), Failure> {
        self.0.batch(if sql == "commit" { "rollback" } else { sql })
    }

    fn waits(&mut self, other: u64) -> Result<Option<bool>, Failure> {
        self.0.waits(other)
    }

    fn number(&mut self) -> Result<u64, Failure> {
        self.0.number()
    }
}

#[test]
fn a_commit_that_is_dropped_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = Made::new(&config(&folder.path().join("x")).target).expect("a file");
    let view = view(include_str!("../../../workloads/litmus.toml"), &[]);
    let kind = view.kinds().iter().position(|kind| *kind == "add-one").expect("a transaction");
    let texts = RecordingTexts::new(Product::Sqlite, &view);
    for forgets in [false, true] {
        prepare(&made.place, &made.server, &view, Purpose::Record, &Kept::default()).expect("tables");
        let mut session = made.place.open(0, true).expect("a session");
        if forgets {
            session = Box::new(Forgetful(session));
        }
        let (mut client, mut input, mut committed) = (view.client(0, 1, 1), Input::default(), Vec::new());
        for writer in 1..=3 {
            assert!(view.next_of(&mut client, &mut input, kind));
            let mut recorder = Recorder {
                session: &mut *session,
                texts: &texts,
                relations: view.relations(),
                writer,
                operations: Vec::new(),
                mark: 0,
                fault: Fault::None,
            };
            let tried = attempt(&view, &mut client, &input, &mut recorder, |recorder| &mut *recorder.session);
            assert_eq!(tried, Ok(Tried::Committed));
            committed.push(Recorded { number: writer, worker: 0, operations: recorder.operations });
        }
        let history = history(view.relations(), &committed).expect("numbers of their own");
        let judged = crate::run::judge(&history, Isolation::Serializable, Counts::default()).expect("judged");
        assert_eq!(judged.kept, !forgets, "{judged:?}");
    }
}

#[test]
fn a_level_is_judged_by_its_own_promise() {
    let lost_update = r#"{"txn":1,"worker":0,"ops":[{"op":"read","table":"t","key":"x","version":0},{"op":"write","table":"t","key":"x","version":1,"over":2}]}
{"txn":2,"worker":1,"ops":[{"op":"read","table":"t","key":"x","version":0},{"op":"write","table":"t","key":"x","version":2,"over":0}]}
"#;
    let history = History::read_json_lines(lost_update.as_bytes()).expect("valid");
    for (promise, kept) in [(Isolation::ReadCommitted, true), (Isolation::Snapshot, false)] {
        let verified = crate::run::judge(&history, promise, crate::result::Counts::default()).expect("judged");
        assert_eq!(verified.kept, kept);
        assert!(verified.worst.is_some(), "what the promise allows is shown as well");
    }
}

#[test]
fn bad_input_is_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let bank = view(include_str!("../../../workloads/bank.toml"), &[("bank.accounts", "5")]);
    let mut unknown = config(&folder.path().join("x"));
    unknown.levels = vec!["strict".into()];
    let nowhere = config(&folder.path().join("no/such/folder/x"));
    for (config, part) in [(unknown, "'strict'; valid here: serializable, all"), (nowhere, "unable to open")] {
        let error = run(&config, "test.toml", &bank, &bank, &Kept::default()).expect_err("refused");
        assert!(
            matches!(&error, SqlError::Refused(words) if words.contains(part) && !words.contains('\n')),
            "{error:?}"
        );
    }
    assert!(files(folder.path()).is_empty());
    let stopped = Kept { is_stopped: Mutex::new(true), ..Kept::default() };
    let result = run(&config(&folder.path().join("x")), "test.toml", &bank, &bank, &stopped).expect("a result");
    assert!(result.partial && result.levels.is_empty());
    assert!(files(folder.path()).is_empty());
}

/// Arrivals that are due after the end of time, and more than can be counted one by one.
#[test]
fn rates_may_be_tiny_or_huge() {
    let folder = tempfile::tempdir().expect("a folder");
    let bank = view(include_str!("../../../workloads/bank.toml"), &[("bank.accounts", "20")]);
    for (rate, expected) in [(1e-300, 0.0), (1e-30, 0.0), (1e-310, 0.0), (1e8, 5e6)] {
        let config = SqlConfig { rate: Some(rate), verify_transactions: 3, ..config(&folder.path().join("x")) };
        let result = run(&config, "test.toml", &bank, &bank, &Kept::default()).expect("it runs");
        let open = result.levels[0].measured.open_loop.as_ref().expect("an open loop");
        assert!((open.offered as f64 - expected).abs() <= 0.01 * expected, "{rate}: {open:?}");
        assert_eq!((result.levels[0].measured.counts.commits == 0, open.saturated), (rate < 1.0, rate > 1.0), "{rate}");
    }
}

/// A number that SQLite makes a real one.
const TOO_LONG: &str = r"
name = 'long'
schema = 'create table t (id bigint primary key, a bigint)'
[rows]
t = 1
[fill]
't.a' = '4000000000'
[[transaction]]
name = 'multiply'
script = '''
update t set a = a * 4000000000 where id = 0;
select a from t where id = 0 \gset
'''
";

/// A path of SQLite is never one of its URIs, and a number is never cut off.
#[test]
fn a_path_is_a_path_and_a_number_is_whole() {
    let folder = tempfile::tempdir().expect("a folder");
    let bank = view(include_str!("../../../workloads/bank.toml"), &[("bank.accounts", "20")]);
    let place = std::path::absolute(folder.path()).expect("a path");
    for name in ["a?b#c%20", "x?mode=memory", "é \" '; --"] {
        run(&config(&place.join(name)), "test.toml", &bank, &bank, &Kept::default()).expect(name);
        assert_eq!(files(folder.path()), Vec::<String>::new(), "{name}");
    }
    // Its folder would have to be called `file:`.
    let uri = SqlConfig {
        target: Target::read(&format!("sqlite:file:{}/x", place.display())).expect("valid"),
        ..config(&place)
    };
    let error = run(&uri, "test.toml", &bank, &bank, &Kept::default()).expect_err("no such folder");
    assert!(error.to_string().contains("unable to open database file"), "{error}");
    assert_eq!(files(folder.path()), Vec::<String>::new());
    let view = view(TOO_LONG, &[]);
    let error =
        run(&config(&place.join("x")), "test.toml", &view, &view, &Kept::default()).expect_err("it is too long");
    let error = error.to_string();
    assert!(error.contains("a number has more than 64 bits"), "{error}");
}

/// Two levels, although SQLite has one: for it they differ by their names.
fn two_levels() -> [Level; 2] {
    let [first] = Product::Sqlite.levels()[..] else { panic!("SQLite has one level") };
    [first, Level { name: "second", ..first }]
}

/// Puts a folder where the file of SQLite was, which can neither be opened nor removed as a file.
fn replace_by_folder(file: &str) {
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{file}{end}"));
    }
    std::fs::create_dir(file).expect("a folder");
}

#[test]
fn a_failure_or_a_stop_takes_away_nothing_that_was_found_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let bank = view(include_str!("../../../workloads/bank.toml"), &[("bank.accounts", "20")]);
    // Where it ends; the levels that are measured by then, and those that are judged.
    let cases = [
        ("serializable: load", 0, 0),
        ("serializable: measure", 0, 0),
        ("serializable: verify", 1, 0),
        ("second: load", 1, 1),
        ("second: measure", 1, 1),
        ("second: verify", 2, 1),
    ];
    for (number, (end, measured, judged)) in cases.into_iter().enumerate() {
        for fails in [true, false] {
            let config = config(&folder.path().join(format!("{number}{fails}")));
            let made = Made::new(&config.target).expect("a file");
            let file = made.place.file();
            let breaks = |what: &str| {
                if what == end {
                    replace_by_folder(&file);
                }
            };
            let kept = match fails {
                true => Kept { does: Some(&breaks), ..Kept::default() },
                false => Kept { stops_at: end, ..Kept::default() },
            };
            let outcome = levels(&config, "test.toml", [&bank, &bank], &kept, &made, &two_levels());
            let outcome = made.remove(outcome, |result| &mut result.error);
            let level = end.split(':').next().expect("a level");
            let is_told = |error: &str| {
                error.starts_with(&format!("{level}: "))
                    && error.contains("unable to open database file")
                    && error.contains("could not be removed: can't remove")
            };
            match outcome {
                Err(SqlError::Failed(error)) => assert!(fails && measured == 0 && is_told(&error), "{end}: {error}"),
                Err(other) => panic!("{end}: {other:?}"),
                Ok(result) => {
                    assert_eq!(result.error.as_deref().is_some_and(is_told), fails, "{end}: {:?}", result.error);
                    assert!(result.partial && !result.failed(), "{end}");
                    assert_eq!(result.levels.len(), measured, "{end}");
                    assert!(result.levels.iter().all(|of| of.measured.counts.commits > 0), "{end}");
                    let count = result.levels.iter().filter(|of| of.verified.is_some()).count();
                    assert_eq!((count, kept.histories.lock().expect("no panic").len()), (judged, judged), "{end}");
                }
            }
        }
    }
}

#[test]
fn a_failure_takes_away_no_level_of_the_table_of_anomalies() {
    let folder = tempfile::tempdir().expect("a folder");
    for (end, whole) in [("serializable", 0), ("second", 1)] {
        let target = config(&folder.path().join(end)).target;
        let made = Made::new(&target).expect("a file");
        let file = made.place.file();
        let breaks = |what: &str| {
            if what == end {
                replace_by_folder(&file);
            }
        };
        let kept = Kept { does: Some(&breaks), ..Kept::default() };
        let outcome = litmus::table(&target, two_levels().to_vec(), &kept, &made, Fault::None);
        let begin = format!("{end}, G0 dirty write: ");
        match outcome {
            Err(error) => assert!(whole == 0 && error.to_string().starts_with(&begin), "{error}"),
            Ok(result) => {
                assert!(result.partial && result.error.is_some_and(|error| error.starts_with(&begin)));
                assert_eq!((result.levels.len(), whole), (1, 1));
                assert!(result.rows.iter().all(|row| row.outcomes.len() == 1));
            }
        }
    }
}

/// Each operator on columns, and texts: the formulas of SQL have the values of the engine.
const OPERATORS: &str = r"
name = 'operators'
schema = 'create table t (id bigint primary key, a bigint, b bigint, r bigint, s varchar(9), u varchar(9))'
[rows]
t = 3
[fill]
't.a' = '17 - :row * 12'
't.b' = ':row'
[[transaction]]
name = 'all'
script = '''
\set v 5
update t set r = EXPRESSION where id = 0;
update t set r = EXPRESSION where id = 1;
update t set r = EXPRESSION where id = 2;
update t set s = u, r = r + 1 where id = 1;
'''
[[invariant]]
name = 'as computed'
equal = ['select sum(r) from t', 'EXPECTED']
";

#[test]
fn formulas_have_the_values_of_the_engine() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows = [(17i64, 0i64), (5, 1), (-7, 2)];
    let of = |formula: fn(i64, i64) -> i64| rows.iter().map(|(a, b)| formula(*a, *b)).sum::<i64>() + 1;
    for (expression, sum) in [
        ("a + b * 3", of(|a, b| a + b * 3)),
        ("a / b", of(|a, b| if b == 0 { 0 } else { a / b })),
        ("a % b", of(|a, b| if b == 0 { 0 } else { a % b })),
        ("a # b", of(|a, b| a ^ b)),
        ("(a << b) + (a >> b)", of(|a, b| (a << b) + (a >> b))),
        ("abs(a) - b", of(|a, b| a.abs() - b)),
        ("least(a, b) * 10 + greatest(a, b)", of(|a, b| a.min(b) * 10 + a.max(b))),
        (
            "case when a < b and not b = 1 or a = 5 then a else 100 end",
            of(|a, b| if a < b && b != 1 || a == 5 { a } else { 100 }),
        ),
        (
            "case when a between b and 9 then 1 else a <> b end",
            of(|a, b| if (b..=9).contains(&a) { 1 } else { i64::from(a != b) }),
        ),
        (
            "case when a < 0 then a * b when b = 1 then case when a > 4 then b * 7 + a else 3 end else a + b * 2 end",
            of(|a, b| match (a, b) {
                (..0, _) => a * b,
                (_, 1) => {
                    if a > 4 {
                        b * 7 + a
                    } else {
                        3
                    }
                }
                _ => a + b * 2,
            }),
        ),
        ("case when :v = 5 then a + :v * b else b end", of(|a, b| a + 5 * b)),
        ("case when :v = 6 then 1 else :v * 2 end", of(|_, _| 10)),
        ("case when b = 1 then :v * 2 + 1 else :v - 7 end", of(|_, b| if b == 1 { 11 } else { -2 })),
        ("b + case when a > 0 then case when :v > 4 then :v * 3 end end", of(|a, b| b + if a > 0 { 15 } else { 0 })),
    ] {
        let text = OPERATORS.replace("EXPRESSION", expression).replace("EXPECTED", &sum.to_string());
        let view = view(&text, &[]);
        let once = SqlConfig { clients: 1, verify_transactions: 1, ..config(&folder.path().join("x")) };
        let result = run(&once, "test.toml", &view, &view, &Kept::default()).expect("it runs");
        let failed: Vec<_> = result.levels[0].failed_invariants().collect();
        assert!(failed.is_empty(), "{expression}: {failed:?}");
    }
}

/// Bytes that are no text, and conditions of groups.
const GROUPS_AND_BYTES: &str = r"
name = 'groups'
schema = 'create table t (id bigint primary key, of bigint, a bigint, b bytea(9), c bytea(9))'
[rows]
t = 9
[fill]
't.of' = ':row % 3'
't.a' = ':row'
[[transaction]]
name = 'copy'
script = '''
select b from t where id = 0 \gset
update t set c = :b, a = a + FIRST where id = 1;
select c from t where id = 1 \gset
\if :b <> :c
  update t set a = 1000 where id = 8;
\endif
insert into t values (unique(), 5, 7, :c, random_bytes());
'''
[[invariant]]
name = 'each group'
equal = ['select of, sum(a * 2 + of) from t group by of', 'select of, sum(a) + sum(a + of) from t group by of']
[[invariant]]
name = 'a column of each group'
equal = ['select of, max(a) - LEAST from t group by of', 'select of, count(*) * 0 + max(a * (of - of)) from t group by of']
";

#[test]
fn groups_are_checked_and_bytes_are_kept() {
    let folder = tempfile::tempdir().expect("a folder");
    let once = SqlConfig { clients: 1, verify_transactions: 4, ..config(&folder.path().join("x")) };
    for (first, least, failed) in
        [("0", "max(a)", None), ("0", "7", Some("group (0): -1")), ("1", "7", Some("group (0)"))]
    {
        let text = GROUPS_AND_BYTES.replace("FIRST", first).replace("LEAST", least);
        let view = view(&text, &[]);
        let result = run(&once, "test.toml", &view, &view, &Kept::default()).expect("it runs");
        let found = &result.levels[0].verified.as_ref().expect("it was judged").failed_invariants;
        assert_eq!(found.len(), usize::from(failed.is_some()), "{found:?}");
        assert!(found.iter().all(|found| failed.is_some_and(|failed| found.contains(failed))), "{found:?}");
    }
}
