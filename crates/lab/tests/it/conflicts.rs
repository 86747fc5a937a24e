//! The conflict map of whole runs. A simulated chip repeats its runs exactly.

use std::collections::BTreeMap;

use contend_engine::{AbortReason, DeclarationNeeds};
use contend_lab::result::{ConflictMapResult, Measured, ProtocolResult};
use contend_lab::{ResultFile, compare, report};
use contend_machine::Native;
use contend_protocols::all_protocols;
use contend_runner::{RunConfig, Silent, Stop};

type Setting = (&'static str, &'static str);

/// Returns the configuration of a short run on a simulated chip.
fn config(workload: &str, machine: &str, settings: &[Setting]) -> RunConfig {
    let config = RunConfig {
        workload: workload.into(),
        verify: false,
        settings: settings.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        ..RunConfig::default()
    };
    RunConfig { windows: 2, window_seconds: 5e-5, warmup_seconds: 2e-5, ..config.on(machine).expect("a machine") }
}

fn result_of(config: &RunConfig) -> ResultFile {
    let plan = config.resolve().expect("valid input");
    compare(&plan, &Stop::default(), &Silent).expect("a result")
}

fn measured(entry: &ProtocolResult) -> &Measured {
    entry.measured.as_ref().expect("figures")
}

/// Whether aborts for this reason happen at a record or a gap, whatever the protocol.
fn has_a_place(reason: &str) -> bool {
    use AbortReason::{ReadLocked, ReadValidation, RecordGone, VersionCollected, WriteLocked};
    [ReadLocked, WriteLocked, ReadValidation, RecordGone, VersionCollected].iter().any(|placed| placed.name() == reason)
}

/// Checks the sums of an entry's map. Returns the number of its conflicts, and of those that have
/// no place although their reasons are about records.
fn check_sums(entry: &ProtocolResult) -> (u64, u64) {
    let (name, measured) = (&entry.protocol, measured(entry));
    let Some(map) = &measured.conflict_map else {
        assert_eq!(measured.aborts, 0, "{name} has conflicts and no map");
        return (0, 0);
    };
    let mut by_reason: BTreeMap<String, u64> = BTreeMap::new();
    let mut by_kind: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut sum, mut share, mut missing) = (0, 0.0, 0);
    for place in &map.places {
        assert_eq!(place.aborts_by_reason.values().sum::<u64>(), place.aborts, "{name}: {place:?}");
        place
            .aborts_by_reason
            .iter()
            .for_each(|(reason, count)| *by_reason.entry(reason.clone()).or_default() += count);
        *by_kind.entry(&place.kind).or_default() += place.aborts;
        (sum, share) = (sum + place.aborts, share + place.share);
        if place.table.is_none() {
            missing +=
                place.aborts_by_reason.iter().filter(|it| has_a_place(it.0)).map(|(_, count)| count).sum::<u64>();
        }
    }
    assert_eq!(sum, measured.aborts, "{name}: {map:?}");
    assert!((share - 1.0).abs() < 1e-9, "{name}: {map:?}");
    let counted = measured.aborts_by_reason.iter().filter(|(reason, _)| *reason != "user");
    assert!(counted.eq(&by_reason), "{name}: {:?} {by_reason:?}", measured.aborts_by_reason);
    for kind in &measured.kinds {
        assert_eq!(by_kind.get(kind.kind.as_str()).copied().unwrap_or(0), kind.aborts, "{name}: {}", kind.kind);
    }
    for keys in &map.keys {
        let of_table = |place: &&contend_lab::result::PlaceResult| place.table.as_ref() == Some(&keys.table);
        let at_table: u64 = map.places.iter().filter(of_table).map(|place| place.aborts).sum();
        let least: u64 = keys.hottest.iter().map(|key| key.aborts - key.error).sum();
        assert!(least + keys.unknown.min(at_table) <= at_table + keys.unknown, "{name}: {keys:?}");
        assert!(least <= at_table && keys.hottest.len() <= 20, "{name}: {keys:?}");
        assert!(!keys.hottest.is_empty() || keys.unknown > 0, "{name}: {keys:?}");
        assert!(keys.hottest.is_sorted_by(|a, b| a.aborts >= b.aborts), "{name}: {keys:?}");
    }
    (measured.aborts, missing)
}

/// The aborts by place are all aborts, under every protocol of the registry, for points and ranges,
/// with and without groups, and with rows that come and go.
#[test]
fn the_aborts_by_place_are_all_aborts() {
    let mut all: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let hot = [("ycsb.records", "200"), ("ycsb.theta", "0.9")];
    let ranges = [("ycsb.records", "500"), ("ycsb.scan_length", "10"), ("ycsb.scan", "0.6"), ("ycsb.insert", "0.3")];
    let fields = [("ycsb.records", "100"), ("ycsb.fields", "4"), ("ycsb.payload", "64"), ("ts", "on"), ("cu", "on")];
    let tpcc = [("tpcc.items", "200"), ("tpcc.customers", "50")];
    let runs: [(&str, &str, &[Setting]); 4] = [
        ("ycsb-a", "abyss:16", &hot),
        ("ycsb-e", "abyss:8", &ranges),
        ("ycsb-a", "abyss:16", &fields),
        ("tpcc", "abyss:6", &tpcc),
    ];
    for (workload, machine, settings) in runs {
        let result = result_of(&config(workload, machine, settings));
        assert!(result.protocols.len() > 20, "all protocols of the registry");
        for entry in &result.protocols {
            let (conflicts, missing) = check_sums(entry);
            let sum = all.entry(entry.protocol.clone()).or_default();
            *sum = (sum.0 + conflicts, sum.1 + missing);
        }
    }
    // These lock partitions, and no records.
    let infos = all_protocols::<Native>().into_iter().map(|(info, _)| info);
    let by_partition: Vec<&str> =
        infos.filter(|info| info.needs == DeclarationNeeds::Partitions).map(|info| info.name).collect();
    let of_records = all.iter().filter(|(name, _)| !by_partition.contains(&name.as_str()));
    let placeless: Vec<_> = of_records.filter(|(_, (conflicts, missing))| missing * 10 > *conflicts).collect();
    assert!(placeless.is_empty(), "conflicts at records without a place: {placeless:?}, of {all:?}");
    assert!(all.values().filter(|(conflicts, _)| *conflicts > 0).count() > 12, "few protocols conflict: {all:?}");
}

/// Returns the map of an entry whose transactions conflict.
fn map_of(entry: &ProtocolResult) -> &ConflictMapResult {
    measured(entry).conflict_map.as_ref().expect("there are conflicts")
}

#[test]
fn one_hot_row_causes_all_conflicts() {
    let settings = [("ycsb.records", "1"), ("ycsb.ops", "2"), ("ycsb.keys", "sequential")];
    let mut config = config("ycsb-a", "abyss:8", &settings);
    config.protocols = ["silo", "2pl-nowait", "tictoc", "occ", "mvto"].map(String::from).to_vec();
    for entry in &result_of(&config).protocols {
        let map = map_of(entry);
        let (places, aborts) = (&map.places, measured(entry).aborts);
        assert!(places.iter().all(|place| place.table.as_deref() == Some("usertable")), "{entry:?}");
        assert_eq!(places.iter().map(|place| place.aborts).sum::<u64>(), aborts, "{entry:?}");
        assert_eq!(map.keys.len(), 1, "{entry:?}");
        let key = &map.keys[0].hottest[0];
        assert_eq!((key.key.as_str(), key.aborts, key.error, map.keys[0].unknown), ("0", aborts, 0, 0), "{entry:?}");
    }
}

/// The rank of a record is its key here, so key 0 is the most popular one.
#[test]
fn the_hottest_key_is_that_of_the_most_popular_record() {
    let settings = [("ycsb.records", "10000"), ("ycsb.theta", "0.99"), ("ycsb.keys", "sequential")];
    let mut config = config("ycsb-a", "abyss:16", &settings);
    config.protocols = ["silo", "2pl-nowait"].map(String::from).to_vec();
    let result = result_of(&config);
    for entry in &result.protocols {
        let map = map_of(entry);
        let hottest = &map.keys[0].hottest;
        assert!(hottest[0].key == "0" && hottest[0].error < hottest[0].aborts / 4, "{}: {map:?}", entry.protocol);
        assert!(hottest[0].share > 0.1, "{}: {map:?}", entry.protocol);
    }
    let page = report::html(&result, "");
    for part in ["<h2>Conflict map</h2>", "Hottest keys of silo", "class=\"heat4\"", "places by type of transaction"] {
        assert!(page.contains(part), "{part}");
    }
    let text = ResultFile::from_json(&result.to_json()).expect("reads what it writes").to_json();
    assert_eq!(text, result.to_json());
    // A result that is older than the map.
    let mut old: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for entry in old["protocols"].as_array_mut().expect("entries") {
        entry["measured"].as_object_mut().expect("figures").remove("conflict_map").expect("it was there");
    }
    let old = ResultFile::from_json(&old.to_string()).expect("an old file");
    assert!(!report::html(&old, "").contains("Conflict map"));
}

/// With groups of their own, conflicts are told apart by columns.
#[test]
fn conflicts_are_told_apart_by_groups() {
    let settings = [("ycsb.records", "20"), ("ycsb.fields", "3"), ("ycsb.payload", "24"), ("ts", "on")];
    let mut config = config("ycsb-a", "abyss:8", &settings);
    config.protocols = ["silo", "2pl-nowait"].map(String::from).to_vec();
    for entry in &result_of(&config).protocols {
        let map = map_of(entry);
        let columns: std::collections::BTreeSet<_> = map.places.iter().map(|place| &place.columns).collect();
        assert!(columns.len() == 3 && !columns.contains(&None), "{}: {map:?}", entry.protocol);
    }
}

/// The parts of a composite key have names.
#[test]
fn keys_can_be_read() {
    let shop = concat!(env!("CARGO_MANIFEST_DIR"), "/../../workloads/shop.toml");
    let tpcc = [("tpcc.items", "200"), ("tpcc.customers", "50")];
    let runs: [(&str, &[Setting], &str, &str); 2] =
        [("tpcc", &tpcc, "district", "warehouse 1, district "), (shop, &[], "item", "")];
    for (workload, settings, table, beginning) in runs {
        let mut config = config(workload, "abyss:8", settings);
        config.window_seconds = 2e-4;
        config.protocols = vec!["2pl-nowait".into()];
        let result = result_of(&config);
        let keys = map_of(&result.protocols[0]).keys.iter().find(|keys| keys.table == table);
        let key = &keys.expect("the table is hot").hottest[0].key;
        let number = key.strip_prefix(beginning).expect(key);
        assert!(number.parse::<u64>().is_ok(), "{key}");
    }
}
