//! Open loops: response times against queueing theory, and runs that are offered too much.

use std::collections::BTreeMap;

use contend_lab::result::{Measured, OpenLoop};
use contend_lab::saturate::{Goal, saturate};
use contend_lab::{ResultFile, compare, report};
use contend_runner::arrivals::ArrivalProcess;
use contend_runner::{Arrivals, RunConfig, Silent, Stop};

fn on(machine: &str, settings: &[(&str, &str)]) -> RunConfig {
    let settings: BTreeMap<String, String> =
        settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect();
    let config = RunConfig { workload: "ycsb-c".into(), verify: false, settings, ..RunConfig::default() };
    config.on(machine).expect("a machine")
}

fn run(config: &RunConfig) -> ResultFile {
    let plan = config.resolve().expect("valid input");
    compare(&plan, &Stop::default(), &Silent).expect("a result")
}

fn measured(result: &ResultFile) -> &Measured {
    result.protocols[0].measured.as_ref().expect("figures")
}

fn open(result: &ResultFile) -> &OpenLoop {
    measured(result).open_loop.as_ref().expect("an open loop")
}

/// A core of a chip that reads rows in its cache takes the same time for each transaction. So it is
/// a queue with random arrivals and a constant service time, M/D/1, whose mean response time is
/// known exactly (Pollaczek and Khinchine). This tests schedules, waits and clocks together.
#[test]
fn a_core_with_random_arrivals_has_the_response_times_of_queueing_theory() {
    let small = [("ycsb.records", "16"), ("ycsb.theta", "0")];
    let config = RunConfig { protocols: vec!["none".into()], windows: 4, ..on("abyss:1", &small) };
    // What a transaction takes of a core that never waits, with the draw that comes before it.
    let busy = run(&RunConfig { window_seconds: 0.002, arrivals: Some(Arrivals::at(10e6)), ..config.clone() });
    let service = 1e9 / open(&busy).ended_tps;
    for (load, transactions) in [(0.5, 100e3), (0.8, 200e3), (0.9, 300e3)] {
        let rate = load / service * 1e9;
        let arrivals = Some(Arrivals::at(rate));
        let result = run(&RunConfig { arrivals, window_seconds: transactions / 4.0 / rate, ..config.clone() });
        let open = open(&result);
        let theory = service * (1.0 + load / (2.0 * (1.0 - load)));
        let ratio = open.response.mean_ns / theory;
        assert!((ratio - 1.0).abs() < 0.05, "load {load}: {:.0} ns, by theory {theory:.0} ns", open.response.mean_ns);
        // What was offered was done. It was as much as asked for, within three standard deviations.
        assert!((open.offered as f64 - transactions).abs() < 3.0 * transactions.sqrt(), "{open:?}");
        assert!(!open.saturated && open.offered.abs_diff(open.ended) <= 200, "{open:?}");
    }
}

#[test]
fn a_machine_that_is_offered_too_much_is_saturated() {
    let config = RunConfig {
        protocols: ["silo", "mvto"].map(String::from).to_vec(),
        windows: 3,
        window_seconds: 1e-4,
        warmup_seconds: 1e-4,
        ..on("abyss:4", &[("ycsb.records", "1000")])
    };
    let too_much = run(&RunConfig { arrivals: Some(Arrivals::at(50e6)), ..config.clone() });
    for entry in &too_much.protocols {
        let open = entry.measured.as_ref().and_then(|it| it.open_loop.as_ref()).expect("an open loop");
        assert!(open.saturated && open.saturated_windows == 3 && open.ended < open.offered / 2, "{open:?}");
        assert_eq!(open.skipped, 0);
        // The backlog holds what was left in the windows, and in the warm-up before.
        let left = open.offered - open.ended;
        assert!((left..left * 2).contains(&open.backlog), "{open:?}");
    }
    assert!(too_much.finding.starts_with("Nothing keeps up with 50.00 M/s"), "{}", too_much.finding);
    assert!(too_much.comparison.is_none());
    // The best of those that are saturated comes first.
    let rates: Vec<f64> = too_much
        .protocols
        .iter()
        .map(|entry| entry.measured.as_ref().expect("figures").open_loop.as_ref().expect("open").ended_tps)
        .collect();
    assert!(rates[0] >= rates[1], "{rates:?}");
    // Those that would be too late are skipped, and the others are not late.
    let late = Arrivals { late_seconds: Some(5e-6), ..Arrivals::at(50e6) };
    let skipping = run(&RunConfig { arrivals: Some(late), ..config.clone() });
    let open = open(&skipping);
    assert!(open.saturated && open.skipped > open.ended && open.response.p50_ns < 20_000, "{open:?}");
    assert!(open.ended + open.skipped <= open.offered + open.backlog + 4, "{open:?}");
    let page = report::html(&too_much, "contend compare ycsb-c --rate 50M");
    assert!(page.contains("SATURATED") && page.contains("≥ "), "the page marks lower bounds");
    let again = ResultFile::from_json(&too_much.to_json()).expect("reads what it writes");
    assert_eq!(again.to_json(), too_much.to_json());
}

#[test]
fn on_the_host_what_is_offered_at_a_low_rate_is_done() {
    let arrivals = Some(Arrivals { process: ArrivalProcess::Constant, ..Arrivals::at(2000.0) });
    let config = RunConfig {
        workload: "ycsb-c".into(),
        verify: false,
        protocols: vec!["none".into()],
        threads: 2,
        windows: 4,
        window_seconds: 0.25,
        warmup_seconds: 0.05,
        arrivals,
        settings: [("ycsb.records".to_string(), "1000".to_string())].into(),
        ..RunConfig::default()
    };
    for interleave in ["1", "3"] {
        let settings = [("interleave".to_string(), interleave.to_string())].into_iter().chain(config.settings.clone());
        let result = run(&RunConfig { settings: settings.collect(), ..config.clone() });
        let measured = measured(&result);
        let open = open(&result);
        // Windows may be longer than asked for, on a machine that is busy.
        let seconds: f64 = measured.windows.iter().map(|window| window.seconds).sum();
        assert!((open.offered as f64 / (2000.0 * seconds) - 1.0).abs() < 0.05, "{open:?} in {seconds} s");
        // The last ones may wait where other programs have the cores.
        assert!(open.ended + open.offered / 5 >= open.offered, "{open:?}");
        // Each transaction is timed, and none ends before it is due and served.
        assert_eq!(measured.kinds.iter().map(|kind| kind.samples).sum::<u64>(), open.ended);
        assert!(open.response.mean_ns >= open.service_ns_mean && open.service_ns_mean > 0.0, "{open:?}");
        for window in &measured.windows {
            assert!(window.arrivals.is_some_and(|arrivals| arrivals.offered > 0), "{window:?}");
        }
    }
}

/// On a chip a flush takes a set time, so the end of each response is known.
#[test]
fn with_a_log_a_response_ends_when_its_commit_is_durable() {
    let log = |mode| [("ycsb.records", "1000"), ("log", mode), ("log.latency_ns", "300000")];
    let config = |mode| RunConfig {
        workload: "ycsb-a".into(),
        protocols: vec!["silo".into()],
        windows: 4,
        window_seconds: 0.1,
        arrivals: Some(Arrivals::at(400.0)),
        ..on("abyss:2", &log(mode))
    };
    let flush = 300_000;
    for mode in ["clr", "elr-group"] {
        let result = run(&config(mode));
        let open = open(&result);
        // What is not flushed at once is flushed before the worker waits for its next start. It
        // asks the log while it waits, or the median would be that of the gaps: milliseconds.
        assert!((flush..flush * 2).contains(&open.response.p50_ns), "{mode}: {open:?}");
        let responses: u64 = open.responses.iter().map(|bucket| bucket.count).sum();
        assert!(responses.abs_diff(open.ended) <= 2, "one under way on each core: {open:?}");
    }
    // In memory a group's commits take no flush.
    assert!(measured(&run(&config("elr-group"))).latency_ns_p50 < flush / 10);
    let without = run(&RunConfig { settings: Default::default(), ..config("clr") });
    assert!(open(&without).response.p99_ns < flush / 10, "{:?}", open(&without));
}

#[test]
fn on_the_host_each_commit_of_a_window_has_a_response_once_the_log_has_it() {
    let settings = [("ycsb.records", "1000"), ("log", "epoch"), ("log.epoch_ms", "20")];
    let result = run(&RunConfig {
        workload: "ycsb-a".into(),
        protocols: vec!["silo".into()],
        windows: 3,
        window_seconds: 0.1,
        warmup_seconds: 0.0,
        threads: 2,
        arrivals: Some(Arrivals::at(2000.0)),
        ..on("native", &settings)
    });
    let measured = measured(&result);
    let open = open(&result);
    assert!(open.ended > 0);
    assert_eq!(open.responses.iter().map(|bucket| bucket.count).sum::<u64>(), open.ended, "{open:?}");
    assert!(open.response.mean_ns > open.service_ns_mean, "a flush comes on top: {open:?}");
    let log = measured.log.as_ref().expect("a log");
    assert!(open.response.max_ns >= log.durable_ns_max, "{open:?} {log:?}");
}

/// A transaction in 1000 holds its core for 100 ms of simulated time, and with it the epoch.
const HOLDER: &str = r#"
name = "holder"
schema = "create table t (id bigint primary key, n bigint);"
rows.t = 1000
[[transaction]]
name = "touch"
script = """
\\set i random(0, 999)
\\set stall random(1, 2000)
update t set n = n + 1 where id = :i;
\\if :stall <= LONG
  \\sleep 100 ms
\\endif
"""
"#;

#[test]
fn a_transaction_that_takes_long_holds_back_the_epoch() {
    let lag = |long: &str| {
        let config = RunConfig {
            workload: "holder.toml".into(),
            workload_text: Some(HOLDER.replace("LONG", long)),
            protocols: vec!["silo".into()],
            windows: 4,
            window_seconds: 0.25,
            arrivals: Some(Arrivals::at(20e3)),
            ..on("abyss:4", &[])
        };
        let result = run(&config);
        let lags: Vec<f64> = measured(&result).windows.iter().map(|window| window.epoch_lag_ms).collect();
        (lags.iter().copied().fold(0.0, f64::max), measured(&result).epoch_lag())
    };
    // The epoch ends at most 40 ms after the transaction has begun, and some more until the next of
    // the others looks.
    let (long, shown) = lag("2");
    assert!((50.0..101.0).contains(&long), "{long} ms");
    assert!(shown.ends_with(" ms"), "{shown}");
    let (short, _) = lag("0");
    assert!(short < 1.0, "{short} ms");
}

#[test]
fn a_rate_that_rises_is_seen_in_the_windows() {
    let rates = vec![(0.0, 100e3), (0.002, 900e3)];
    let arrivals = Arrivals { rates, ..Arrivals::at(1.0) };
    let config = RunConfig {
        protocols: vec!["silo".into()],
        windows: 4,
        window_seconds: 5e-4,
        arrivals: Some(arrivals),
        ..on("abyss:4", &[("ycsb.records", "1000")])
    };
    let result = run(&config);
    let offered: Vec<u64> =
        measured(&result).windows.iter().map(|window| window.arrivals.expect("an open loop").offered).collect();
    // The areas below the line are 100, 200, 300 and 400.
    for (offered, area) in offered.iter().zip([100.0f64, 200.0, 300.0, 400.0]) {
        assert!((*offered as f64 - area).abs() < 4.0 * area.sqrt(), "{offered}: {area}");
    }
}

#[test]
fn the_search_for_the_highest_rate_is_exact_on_a_chip() {
    let config = RunConfig {
        protocols: ["silo", "none"].map(String::from).to_vec(),
        window_seconds: 1e-4,
        warmup_seconds: 1e-4,
        ..on("abyss:4", &[("ycsb.records", "1000")])
    };
    let plan = config.resolve().expect("valid input");
    let goal = |p99_ns| Goal {
        p99_ns: Some(p99_ns),
        p999_ns: None,
        precision: 0.05,
        transactions: 1000,
        process: ArrivalProcess::Poisson,
    };
    let search = |p99_ns| saturate(&plan, &goal(p99_ns), &Stop::default(), &Silent).expect("a result");
    let first = search(30_000);
    assert_eq!(first.protocols, search(30_000).protocols, "a simulation repeats to the digit");
    for found in &first.protocols {
        let (passes, fails) = (found.passes.expect("a rate"), found.fails.expect("a rate"));
        assert!(passes < fails && fails / passes <= 1.051, "{passes} {fails}");
        assert!(found.p99_there().is_some_and(|ns| ns <= 30_000), "{found:?}");
        assert!(passes < found.closed_tps * 1.1 && passes > found.closed_tps * 0.1, "{found:?}");
        // A rate passes by all of its windows, and fails by its last one.
        for probe in &found.probes {
            assert!(if probe.passed { probe.windows.len() == 3 } else { !probe.why.is_empty() }, "{probe:?}");
        }
    }
    // Without concurrency control more is possible. Its entry is not named as the best.
    assert_eq!(first.protocols[0].protocol, "none");
    assert!(first.finding.starts_with("silo keeps p99 of at most 30.0 µs at "), "{}", first.finding);
    // A tighter limit has a lower rate, and one below the service time has none.
    let tight = search(8_000);
    let rate = |file: &contend_lab::saturate::SaturationFile, name: &str| {
        file.protocols.iter().find(|found| found.protocol == name).and_then(|found| found.passes)
    };
    assert!(rate(&tight, "silo") < rate(&first, "silo"), "{:?}", tight.finding);
    let none = search(100);
    assert!(rate(&none, "silo").is_none() && none.finding.starts_with("Nothing keeps p99"), "{}", none.finding);
    let page = report::saturation_html(&first, "contend saturate ycsb-c");
    assert!(page.contains("Response times by rate") && page.contains("fails: p99 is"), "the page has its chart");
    let again: contend_lab::saturate::SaturationFile =
        serde_json::from_str(&serde_json::to_string(&first).expect("JSON")).expect("reads what it writes");
    assert_eq!(again, first);
}

#[test]
fn clients_think_and_are_far_away() {
    let config = RunConfig {
        protocols: vec!["silo".into()],
        windows: 2,
        window_seconds: 0.005,
        warmup_seconds: 0.001,
        ..on("abyss:2", &[("ycsb.records", "1000"), ("ycsb.ops", "4"), ("ycsb.batch", "off")])
    };
    let with = |name: &str, value: &str| {
        let own = (name.to_string(), value.to_string());
        let settings = config.settings.clone().into_iter().chain([own]).collect();
        RunConfig { settings, ..config.clone() }
    };
    let median = |config: &RunConfig| {
        let result = run(config);
        let it = measured(&result);
        (it.throughput_tps.median, it.latency_ns_p50)
    };
    let (tps, p50) = median(&config);
    // Four reads wait for 100 microseconds each.
    let (far_tps, far_p50) = median(&with("interactive.round_trip_us", "100"));
    assert!((400_000..410_000 + p50).contains(&far_p50), "{far_p50}");
    assert!((far_tps / (2.0 / 404e-6) - 1.0).abs() < 0.05, "{far_tps}");
    // Thinking is no part of a latency, and of the throughput it is.
    let (slow_tps, slow_p50) = median(&with("interactive.think_us", "200"));
    assert!(slow_p50 < p50 * 2 && tps > 20.0 * slow_tps, "{slow_p50} {p50}, {slow_tps} {tps}");
    assert!((slow_tps / (2.0 / 203e-6) - 1.0).abs() < 0.2, "{slow_tps}");
    // What a workload file says is the same, after a transaction of the type.
    let text = "name = \"slow\"\nschema = 'create table t (id int primary key, a int)'\nrows.t = 1000\n\
                [[transaction]]\nname = \"one\"\nthink = \"constant 200 us\"\nscript = 'select a from t where id = 1;'\n";
    let file = RunConfig { workload: "slow.toml".into(), workload_text: Some(text.into()), ..config.clone() };
    let file = RunConfig { settings: Default::default(), ..file };
    let (file_tps, file_p50) = median(&file);
    assert!(file_p50 < 5000 && (file_tps / (2.0 / 202e-6) - 1.0).abs() < 0.05, "{file_p50}, {file_tps}");
    let file = RunConfig { arrivals: Some(Arrivals::at(1e3)), ..file };
    assert!(file.resolve().expect_err("its clients think").to_string().contains("closed loop"));
    let both = RunConfig { arrivals: Some(Arrivals::at(1e3)), ..with("interactive.think_us", "200") };
    assert!(both.resolve().expect_err("no client thinks").to_string().contains("closed loop"));
}

#[test]
fn a_run_in_which_nothing_arrives_keeps_up_with_nothing() {
    let config = RunConfig { windows: 2, protocols: vec!["silo".into()], ..on("abyss:2", &[("ycsb.records", "100")]) };
    let result = run(&RunConfig { arrivals: Some(Arrivals::at(0.001)), ..config });
    assert_eq!((open(&result).offered, open(&result).verdict()), (0, "nothing arrived"));
    assert!(result.finding.contains("nothing arrived in these windows"), "{}", result.finding);
}
