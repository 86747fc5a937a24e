//! Small whole runs.

use contend_judge::verify_history;
use contend_lab::result::SCHEMA_VERSION;
use contend_lab::{ResultFile, compare, record, report};
use contend_runner::{Arrivals, RunConfig, RunError, RunPlan, Silent, Stop};

fn config(workload: &str, settings: &[(&str, &str)]) -> RunConfig {
    RunConfig {
        workload: workload.into(),
        threads: 2,
        window_seconds: 0.02,
        windows: 2,
        warmup_seconds: 0.01,
        verify_transactions: 2000,
        settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..RunConfig::default()
    }
}

fn plan_of(config: &RunConfig) -> RunPlan {
    config.resolve().expect("valid input")
}

fn small(workload: &str) -> RunConfig {
    match workload {
        "bank" => config(workload, &[("bank.accounts", "500")]),
        "tpcc" => config(workload, &[("tpcc.items", "500"), ("tpcc.customers", "100")]),
        "smallbank" => config(workload, &[("smallbank.customers", "500")]),
        "tatp" => config(workload, &[("tatp.subscribers", "500")]),
        "rubis" => config(workload, &[("rubis.items", "100")]),
        "wikipedia" => config(workload, &[("wikipedia.pages", "20"), ("wikipedia.users", "50")]),
        "tpce" => config(workload, &[("tpce.customers", "20"), ("tpce.securities", "20")]),
        "pieces" => config(workload, &[("pieces.records", "500")]),
        _ => config(workload, &[("ycsb.records", "2000"), ("ycsb.scan_length", "10")]),
    }
}

/// Returns the configuration on a simulated chip.
fn simulated(workload: &str, machine: &str) -> RunConfig {
    // The run is short and has few cores, because tests are not optimised. Transactions wait after
    // aborts: without that, protocols that order by timestamps may go for milliseconds without a
    // commit.
    let mut config = small(workload);
    config.settings.insert("retry.backoff".into(), "exponential".into());
    RunConfig { windows: 2, window_seconds: 5e-5, warmup_seconds: 5e-5, ..config.on(machine).expect("a machine") }
}

/// Returns the figures that must be the same when a simulation runs again.
fn same(result: &ResultFile) -> Vec<(String, u64, String)> {
    let figures = |entry: &contend_lab::ProtocolResult| {
        let measured = entry.measured.as_ref().expect("figures");
        let simulation = measured.simulation.as_ref().expect("simulated");
        (entry.protocol.clone(), measured.commits, simulation.trace_hash.clone())
    };
    let mut all: Vec<_> = result.protocols.iter().map(figures).collect();
    all.sort();
    all
}

#[test]
fn every_protocol_runs_on_simulated_chips_and_is_proved_right_there() {
    let is_right = |(workload, machine)| {
        let config = RunConfig { verify_transactions: 1000, ..simulated(workload, machine) };
        let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
        assert!(!result.failed() && !result.partial, "{workload}: {result:?}");
        assert_eq!(result.environment.machine, machine);
        assert_eq!(result.protocols.len(), config.resolve().expect("valid").protocols.len());
        for entry in &result.protocols {
            let measured = entry.measured.as_ref().expect("figures");
            let breakdown = measured.breakdown.as_ref().expect("always known on a chip");
            let categories: f64 = breakdown.categories().iter().map(|(_, share)| share).sum();
            let operations: f64 = breakdown.operations.values().sum();
            assert!((categories - 1.0).abs() < 1e-9 && (operations - 1.0).abs() < 1e-9, "{breakdown:?}");
            assert!((breakdown.accounted - 1.0).abs() < 0.01, "{}: {breakdown:?}", entry.protocol);
            // In such short windows a slow protocol may commit nothing, but it was verified.
            assert!(entry.verification.as_ref().is_some_and(|pass| pass.transactions > 0), "{entry:?}");
        }
        let json = result.to_json();
        assert_eq!(ResultFile::from_json(&json).expect("reads what it writes").to_json(), json);
    };
    // A simulation runs on one thread.
    let cases = [
        ("ycsb-a", "abyss:16"),
        ("ycsb-e", "xeon-8176x4:8"),
        ("tpcc", "abyss:4"),
        ("tatp", "opteron-6474x8:8"),
        ("rubis", "abyss:4"),
        ("wikipedia", "abyss:4"),
        ("tpce", "abyss:4"),
    ];
    std::thread::scope(|scope| cases.into_iter().for_each(|case| _ = scope.spawn(move || is_right(case))));
}

#[test]
fn a_slower_system_commits_less_on_a_simulated_chip() {
    let commits = |work: &str, in_flight: &str| {
        let mut config = RunConfig { verify: false, ..simulated("ycsb-a", "abyss:4") };
        config.protocols = vec!["silo".into()];
        config.settings.insert("chip.work".into(), work.into());
        config.settings.insert("interleave".into(), in_flight.into());
        let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
        result.protocols[0].measured.as_ref().expect("figures").commits
    };
    for in_flight in ["1", "3"] {
        let (own, slow) = (commits("1", in_flight), commits("10", in_flight));
        assert!(0 < slow && 2 * slow < own, "{own} and {slow} with {in_flight} in flight");
    }
}

#[test]
fn every_protocol_is_proved_right_with_several_transactions_in_flight_on_a_core() {
    for (workload, machine, in_flight) in
        [("ycsb-a", None, "3"), ("ycsb-e", None, "8"), ("tpcc", None, "4"), ("ycsb-a", Some("abyss:4"), "3")]
    {
        let mut config = machine.map_or_else(|| small(workload), |machine| simulated(workload, machine));
        config.settings.insert("interleave".into(), in_flight.into());
        config.verify_transactions = 1000;
        let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
        assert!(!result.failed() && !result.partial, "{workload}: {result:?}");
        for entry in &result.protocols {
            assert_eq!(entry.options["threads.interleave"], in_flight, "{}", entry.protocol);
            assert!(entry.verification.as_ref().is_some_and(|pass| pass.transactions > 0), "{entry:?}");
            let commits = entry.measured.as_ref().expect("figures").commits;
            assert!(commits > 0 || machine.is_some(), "{} commits nothing", entry.protocol);
        }
    }
}

#[test]
fn entries_are_compared_with_what_the_memory_allows() {
    let mut config = RunConfig { memory_limit: true, verify: false, ..small("ycsb-c") };
    config.protocols = ["silo", "silo+interleave=2", "silo+log=epoch"].map(String::from).to_vec();
    config.settings.insert("ycsb.records".into(), "50000".into());
    config.settings.insert("ycsb.theta".into(), "0".into());
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    for entry in &result.protocols {
        let measured = entry.measured.as_ref().expect("figures");
        let limit = measured.memory_limit.expect("asked for");
        // Ten reads of a bucket and a record each. The cache holds some of these.
        assert!((15.0..23.0).contains(&limit.lines_per_transaction), "{limit:?}");
        let share = measured.throughput_tps.median * limit.lines_per_transaction / limit.line_reads_per_second;
        assert!((limit.share / share - 1.0).abs() < 1e-9 && limit.share > 0.0, "{limit:?}");
    }
    assert!(report::html(&result, "").contains("limit: a transaction touches"));
    assert_eq!(ResultFile::from_json(&result.to_json()).expect("reads what it writes").to_json(), result.to_json());
    let simulated = RunConfig { memory_limit: true, ..simulated("ycsb-c", "abyss:4") };
    assert!(simulated.resolve().expect_err("a chip").to_string().contains("native"));
    assert!(!config.on("abyss:4").expect("a machine").memory_limit, "the host's limit");
}

#[test]
fn a_limit_that_is_not_known_leaves_the_figures_as_they_are() {
    // A precision, and an option of one of the protocols, are not for the run that counts. Long
    // transactions of the only client do not end in it.
    let mut config = RunConfig { memory_limit: true, verify: false, precision: Some(0.5), ..small("ycsb-c") };
    config.protocols = ["silo", "mvto"].map(String::from).to_vec();
    config.settings.insert("versions.collect".into(), "aggressive".into());
    let known = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    assert!(known.protocols.iter().all(|entry| entry.measured.as_ref().expect("figures").memory_limit.is_some()));
    config.settings.insert("ycsb.long_us".into(), "1000000".into());
    config.protocols = vec!["mvto".into()];
    config.precision = None;
    let unknown = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    let measured = unknown.protocols[0].measured.as_ref().expect("figures");
    assert!(measured.memory_limit.is_none() && measured.commits > 0, "{measured:?}");
    let said = unknown.recommendation.iter().any(|line| line.contains("the memory's limit of mvto is not known: 0 tr"));
    assert!(said, "{:?}", unknown.recommendation);
}

#[test]
fn threads_find_the_number_of_transactions_in_flight_and_keep_their_log() {
    // 32 workers on each of 32 threads, and the loaders besides.
    let mut config = RunConfig { threads: 32, ..small("ycsb-a") };
    config.protocols = ["silo+interleave=auto", "mvto+interleave=auto", "silo"].map(String::from).to_vec();
    config.settings.insert("log".into(), "epoch".into());
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    assert!(!result.failed() && !result.partial, "{result:?}");
    for entry in &result.protocols {
        let measured = entry.measured.as_ref().expect("figures");
        let log = measured.log.as_ref().expect("a log");
        assert!(measured.commits > 0 && log.bytes_per_commit > 0.0, "{entry:?}");
    }
}

#[test]
fn a_simulation_does_the_same_again_whoever_runs_besides_and_another_seed_does_not() {
    let config = RunConfig { verify: false, ..simulated("ycsb-a", "abyss:16") };
    let first = same(&compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result"));
    assert_eq!(first, same(&compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result")));
    let alone = RunConfig { protocols: vec!["silo".into()], ..config.clone() };
    let alone = same(&compare(&plan_of(&alone), &Stop::default(), &Silent).expect("a result"));
    assert!(first.contains(&alone[0]), "{alone:?} is not among {first:?}");
    let other = RunConfig { seed: 7, ..config };
    let other = same(&compare(&plan_of(&other), &Stop::default(), &Silent).expect("a result"));
    assert!(first.iter().zip(&other).all(|(one, other)| one.2 != other.2), "{first:?} {other:?}");
}

#[test]
fn pieces_that_ran_again_are_counted_apart_from_aborts() {
    let mut config = RunConfig { verify: false, window_seconds: 5e-4, ..simulated("pieces", "abyss:16") };
    config.protocols = ["silo", "nested-occ", "ic3"].map(String::from).to_vec();
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    for entry in &result.protocols {
        let measured = entry.measured.as_ref().expect("figures");
        let of_kinds: Option<u64> = measured.kinds.iter().map(|kind| kind.piece_retries).sum();
        assert_eq!(measured.piece_retries, of_kinds, "{}", entry.protocol);
        let has_pieces = entry.protocol != "silo";
        assert_eq!(measured.piece_retries.is_some_and(|retries| retries > 0), has_pieces, "{entry:?}");
    }
}

#[test]
fn where_the_time_went_is_sampled_on_the_host() {
    let config = RunConfig { breakdown: true, verify: false, ..small("ycsb-a") };
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    // Among a few hundred samples an operation that is rare under one protocol may be missing. It
    // is frequent under another, so the shares are added up.
    let (mut index, mut read) = (0.0, 0.0);
    for entry in &result.protocols {
        let breakdown = entry.measured.as_ref().and_then(|measured| measured.breakdown.as_ref()).expect("asked for");
        let categories: f64 = breakdown.categories().iter().map(|(_, share)| share).sum();
        assert!((categories - 1.0).abs() < 1e-9 && breakdown.accounted > 0.0, "{breakdown:?}");
        (index, read) = (index + breakdown.index, read + breakdown.operations["read"]);
    }
    assert!(index > 0.0 && read > 0.0, "{result:?}");
}

#[test]
fn every_protocol_is_compared_verified_and_ranked() {
    for workload in ["ycsb-a", "ycsb-e", "bank", "tpcc", "smallbank", "tatp", "rubis", "wikipedia", "tpce", "pieces"] {
        // There are 260 pairs, and longer proofs of each protocol elsewhere.
        let plan = plan_of(&RunConfig { verify_transactions: 500, ..small(workload) });
        let result = compare(&plan, &Stop::default(), &Silent).expect("a result");
        assert!(!result.failed() && !result.partial, "{workload}: {result:?}");
        assert_eq!(result.protocols.len(), plan.protocols.len());
        let comparison = result.comparison.as_ref().expect("a comparison");
        assert_eq!((comparison.rounds, comparison.ended.as_str()), (2, "limit"));
        assert_eq!(comparison.pairs, result.protocols.len() * (result.protocols.len() - 1) / 2);
        assert!(result.finding.contains("2 rounds tell nothing"), "{}", result.finding);
        for entry in &result.protocols {
            let (measured, verification) = (entry.measured.as_ref().unwrap(), entry.verification.as_ref().unwrap());
            assert_eq!(measured.windows.len(), 2);
            // The number depends on the host: a slow pass ends early.
            assert!(verification.transactions > 0, "{}", entry.protocol);
            assert!(measured.throughput_tps.median > 0.0);
            assert_eq!(measured.to_none.is_some(), entry.protocol != "none");
            assert_eq!(measured.to_first.is_some(), Some(&entry.protocol) != comparison.first.as_ref());
            assert_eq!(measured.group, (entry.protocol != "none").then_some(1), "two rounds tell nobody apart");
            assert!(measured.memory_bytes > 0);
            // One in some dozens is timed. On a busy host fewer may commit.
            assert!(measured.latency_ns_p50 > 0 || measured.commits < 200, "{workload}: {}", entry.protocol);
            assert!(
                measured.latency_ns_p50 <= measured.latency_ns_p99
                    && measured.latency_ns_p99 <= measured.latency_ns_max
            );
            assert_eq!(measured.commits, measured.windows.iter().map(|window| window.commits).sum::<u64>());
        }
        let json = result.to_json();
        assert_eq!(ResultFile::from_json(&json).expect("reads what it writes").to_json(), json);
        let page = report::html(&result, "contend compare");
        for part in ["<!doctype html>", "<svg", "silo", workload, "</html>"] {
            assert!(page.contains(part), "{part} is not in the report");
        }
        assert!(!page.contains("<script") && !page.contains("http"), "the report needs nothing from elsewhere");
    }
}

/// A copy of what a write replaces costs up to a quarter of the throughput: none is made in vain.
#[test]
fn ic3_keeps_snapshots_where_its_types_have_other_steps_then() {
    let made = |workload: &str, protocol: &str| {
        let mut config = RunConfig { verify: false, ..small(workload) };
        config.protocols = vec![protocol.into()];
        let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
        let measured = result.protocols[0].measured.as_ref().expect("figures");
        assert!(measured.commits > 0, "{protocol} commits nothing");
        measured.versions.as_ref().map_or(0, |versions| versions.made)
    };
    // Without groups of columns each type of TPC-C is one step in any case.
    assert_eq!(made("tpcc", "ic3"), 0);
    assert!(made("tpcc", "ic3+cu+ts") > 0 && made("tpcc", "ic3+ic3.snapshots=on") > 0);
    assert_eq!(made("tpcc", "ic3+cu+ts+ic3.snapshots=off"), 0);
    // No types are declared.
    assert_eq!(made("ycsb-a", "ic3"), 0);
    assert!(made("ycsb-a", "ic3+ic3.snapshots=on") > 0);
}

/// A clear difference is told, and then no more rounds are measured than needed.
#[test]
fn rounds_end_when_all_is_told() {
    let mut config = small("ycsb-a");
    (config.verify, config.window_seconds, config.windows) = (false, 0.02, 400);
    config.protocols = ["silo", "silo+read_phase.extension=fixed+read_phase.ns=200000"].map(String::from).to_vec();
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    let comparison = result.comparison.as_ref().expect("a comparison");
    assert_eq!((comparison.ended.as_str(), comparison.first.as_deref()), ("told", Some("silo")), "{}", result.finding);
    assert!(comparison.rounds < 400, "{comparison:?}");
    let [first, second] = [0, 1].map(|place| result.protocols[place].measured.as_ref().expect("figures"));
    assert_eq!((first.group, second.group), (Some(1), Some(2)));
    assert_eq!(first.windows.len(), comparison.rounds);
    assert!(second.to_first.is_some_and(|ratio| ratio.is_slower() && ratio.ratio < 0.5), "{:?}", second.to_first);
    assert!(result.finding.starts_with("silo is the fastest: "), "{}", result.finding);
    assert!(result.recommendation[0].starts_with("Take silo on ycsb-a with 2 threads on this machine: "), "{result:?}");
    assert!(result.recommendation.iter().any(|line| line.starts_with("Not tested: ")), "{result:?}");
}

#[test]
fn variants_of_a_protocol_are_compared_like_protocols() {
    let mut config = small("tpcc");
    let names = ["silo", "silo+cu+ts", "2pl-nowait+ts=on+cu=on"];
    config.protocols = names.map(String::from).to_vec();
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    assert!(!result.failed(), "{result:?}");
    for name in names {
        let entry = result.protocols.iter().find(|entry| entry.protocol == name).expect("an entry of this name");
        let on = if name == "silo" { "off" } else { "on" };
        assert_eq!(
            (
                entry.options["engine.commit_time_updates"].as_str(),
                entry.options["engine.timestamp_splitting"].as_str()
            ),
            (on, on),
            "{name}"
        );
        assert!(entry.options.contains_key("retry.backoff") && !entry.options.contains_key("tpcc.items"), "{name}");
        let verification = entry.verification.as_ref().expect("verified");
        assert!(verification.verdict.starts_with("serializable"), "{name}: {}", verification.verdict);
        let measured = entry.measured.as_ref().expect("figures");
        assert_eq!(measured.kinds.len(), 5, "{name}: every type of transaction ran");
        assert_eq!(measured.kinds.iter().map(|kind| kind.commits).sum::<u64>(), measured.commits);
        assert_eq!(measured.kinds.iter().map(|kind| kind.aborts).sum::<u64>(), measured.aborts);
        let gave_up = measured.kinds[0].aborts_by_reason.get("user").copied().unwrap_or(0);
        assert!(
            gave_up > 0 && gave_up < measured.kinds[0].commits / 20,
            "{name}: one New-Order in a hundred rolls back"
        );
    }
    assert!(result.options.contains_key("tpcc.items") && !result.options.contains_key("engine.commit_time_updates"));
    assert!(report::html(&result, "contend compare").contains("stock_level"));
}

#[test]
fn a_run_that_is_recorded_gives_its_history() {
    let mut config = small("ycsb-e");
    config.protocols = vec!["silo".into()];
    config.verify = false;
    let outcome = record(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    let recorded = outcome.recorded.expect("a history");
    let measured = outcome.result.protocols[0].measured.as_ref().expect("figures");
    assert!(measured.recorded);
    assert!(recorded.history.transactions().len() as u64 >= measured.commits, "warm-ups are in the history, too");
    let verification = outcome.result.protocols[0].verification.as_ref().expect("judged by its own history");
    assert!(verification.passed, "{}: {:?}", verification.verdict, verification.explanation);
    let mut file = Vec::new();
    recorded.history.write_json_lines(&mut file).expect("memory");
    let again = contend_history::History::read_json_lines(&file[..]).expect("reads what it writes");
    assert!(contend_history::check(&again).anomalies.is_empty());
    assert!(verify_history(&recorded, contend_engine::Isolation::Serializable).passed);
    config.protocols.push("none".into());
    assert!(
        matches!(record(&plan_of(&config), &Stop::default(), &Silent), Err(RunError::BadInput(_))),
        "one at a time"
    );
}

#[test]
fn a_run_that_is_stopped_early_has_nothing_to_show() {
    let stop = Stop::default();
    stop.request();
    let outcome = compare(&plan_of(&small("ycsb-a")), &stop, &Silent);
    assert!(matches!(outcome, Err(RunError::Stopped)), "{outcome:?}");
}

/// An observer that stops the run after some windows.
struct StopIn<'a> {
    stop: &'a Stop,
    /// Calls since measuring began; 0 before.
    calls: std::sync::Mutex<Option<u32>>,
}

impl contend_runner::Observer for StopIn<'_> {
    fn begin(&self, what: &str, _: u64) {
        if what == "measuring" {
            *self.calls.lock().expect("no panic") = Some(0);
        }
    }
    fn advance(&self, _: u64) {
        if let Some(calls) = &mut *self.calls.lock().expect("no panic") {
            *calls += 1;
            if *calls == 20 {
                self.stop.request();
            }
        }
    }
    fn end(&self) {}
}

#[test]
fn a_run_that_is_stopped_later_shows_what_it_has() {
    let stop = Stop::default();
    let mut config = small("ycsb-a");
    config.verify = false;
    config.protocols = vec!["silo".into()];
    config.window_seconds = 0.02;
    config.warmup_seconds = 0.0;
    config.windows = 10_000;
    let observer = StopIn { stop: &stop, calls: std::sync::Mutex::new(None) };
    let result = compare(&plan_of(&config), &stop, &observer).expect("what there was");
    assert!(result.partial && !result.memory_ran_short);
    assert!(result.protocols[0].measured.as_ref().expect("figures").windows.len() < 10_000);
}

/// Tables grow under TPC-C. A run whose memory gets short ends with what it has, and says why.
#[test]
fn a_run_for_which_memory_gets_short_ends() {
    let mut config = small("tpcc");
    config.verify = false;
    config.protocols = vec!["silo".into()];
    config.windows = 10_000;
    let stop = Stop::default();
    let result = std::thread::scope(|scope| {
        let running = scope.spawn(|| compare(&plan_of(&config), &stop, &Silent));
        std::thread::sleep(std::time::Duration::from_millis(400));
        stop.request_for_memory();
        running.join().expect("no panic")
    });
    let result = result.expect("some windows were measured");
    assert!(result.partial && result.memory_ran_short && !result.failed());
}

#[test]
fn broken_result_files_are_named() {
    let cases = [
        ("", "EOF"),
        ("[1,2", "line 1"),
        ("{}", "no schema_version"),
        ("{\"schema_version\":\"5.0\"}", "missing field"),
        ("{\"schema_version\":3}", "3.0, of a former contend; valid: 4 to 5"),
        ("{\"schema_version\":\"6.0\"}", "6.0, of a newer contend; valid: 4 to 5"),
    ];
    for (text, part) in cases {
        let error = ResultFile::from_json(text).expect_err("broken").to_string();
        assert!(error.contains(part) && error.contains("not a result file"), "{error}");
    }
}

/// A former file has a number as its version, and a newer one has fields that this program does not
/// know.
#[test]
fn former_and_newer_results_are_read() {
    let config = RunConfig { verify: false, protocols: vec!["silo".into()], ..small("ycsb-c") };
    let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
    let json: serde_json::Value = serde_json::from_str(&result.to_json()).expect("JSON");
    let text_of = |result: &ResultFile| ResultFile { schema_version: SCHEMA_VERSION, ..result.clone() }.to_json();
    let of = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut json = json.clone();
        change(&mut json);
        ResultFile::with_note(&json.to_string())
    };
    let former = of(&|json| json["schema_version"] = 4.into()).expect("a former file");
    assert_eq!((text_of(&former.0), former.1), (text_of(&result), None));
    let newer = |json: &mut serde_json::Value| {
        json["schema_version"] = "5.7".into();
        json["config"]["colour"] = "red".into();
        json["protocols"][0]["weight"] = 1.into();
    };
    let (read, note) = of(&newer).expect("a newer file");
    assert_eq!(text_of(&read), text_of(&result));
    let note = note.expect("a note");
    for part in ["5.7 of a result is newer than 5.2", "config.colour", "protocols.0.weight"] {
        assert!(note.contains(part), "'{part}' is not in: {note}");
    }
    let misspelled = of(&|json| json["config"]["colour"] = "red".into()).expect_err("of this version").to_string();
    assert!(misspelled.contains("unknown field config.colour"), "{misspelled}");
}

/// Returns the validator of a schema in `docs`.
fn validator(name: &str) -> jsonschema::Validator {
    let documents = contend_lab::schema::documents();
    let (_, text) = documents.iter().find(|(file, _)| *file == format!("{name}.schema.json")).expect("a schema");
    let schema: serde_json::Value = serde_json::from_str(text).expect("JSON");
    jsonschema::validator_for(&schema).expect("a JSON schema")
}

/// Every field of a result is described, and every described field exists. The JSON schema is that
/// of the types, and every result keeps it.
#[test]
fn the_schema_is_documented() {
    let mut logged = small("ycsb-a");
    logged.verify = false;
    logged.protocols = vec!["silo".into()];
    logged.settings.insert("log".into(), "epoch".into());
    for (name, text) in contend_lab::schema::documents() {
        let file = format!("../../docs/{name}");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&file, &text).expect("written");
        }
        let written = std::fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(written, text, "UPDATE_DOCS=1 writes docs/{name} again");
    }
    let validator = validator("result");
    let mut fields = std::collections::BTreeSet::new();
    let precise = RunConfig {
        verify: false,
        protocols: vec!["silo".into(), "none".into()],
        precision: Some(0.5),
        ..small("ycsb-a")
    };
    let limited = RunConfig { memory_limit: true, verify: false, protocols: vec!["silo".into()], ..small("ycsb-c") };
    let late_seconds = Some(0.01);
    let arrivals = Some(Arrivals { late_seconds, ..Arrivals::at(10e3) });
    let open = RunConfig { arrivals, verify: false, protocols: vec!["silo".into()], ..small("ycsb-c") };
    for config in [simulated("ycsb-a", "abyss:2"), logged, precise, limited, open] {
        let result = compare(&plan_of(&config), &Stop::default(), &Silent).expect("a result");
        let json: serde_json::Value = serde_json::from_str(&result.to_json()).expect("JSON");
        let wrong: Vec<String> = validator.iter_errors(&json).map(|error| error.to_string()).collect();
        assert_eq!(wrong, Vec::<String>::new());
        let mut other = json.clone();
        other["protocols"][0]["protocol"] = 1.into();
        assert!(!validator.is_valid(&other), "a number is no name");
        collect(&json, &mut fields);
    }
    let documented: std::collections::BTreeSet<String> = include_str!("../../../../docs/result_schema.md")
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|(name, _)| name.to_string()))
        .collect();
    assert_eq!(fields, documented);
}

/// Returns the names of all fields. Of a map whose keys are data, only the map's own name counts.
fn collect(value: &serde_json::Value, fields: &mut std::collections::BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (name, value) in object {
                fields.insert(name.clone());
                if !["options", "settings", "aborts_by_reason", "chip", "operations", "cycle"].contains(&name.as_str())
                {
                    collect(value, fields);
                }
            }
        }
        serde_json::Value::Array(values) => values.iter().for_each(|value| collect(value, fields)),
        _ => {}
    }
}
