//! Tests of the generator and of what a draw allocates.

use super::*;
use contend_engine::Options;

fn engine() -> std::sync::Arc<contend_engine::Engine<contend_protocols::none::NoControl, contend_machine::Native>> {
    contend_engine::Engine::new(contend_protocols::none::NoControl, contend_engine::EngineConfig::default())
}

#[test]
fn only_the_first_draw_allocates() {
    // Reads that are nearly all, or nearly none, of a transaction's operations: the list of the
    // rare kind must not grow when it is at its longest.
    for read in [0.05, 0.95] {
        let options = YcsbOptions { batch: true, read: Fraction(read), ops: 100, ..YcsbOptions::default() };
        let ycsb = Ycsb::create(&options, IndexKind::Hash, &engine());
        let (mut client, mut input) = (ycsb.client(0, 1, 3), Input::default());
        ycsb.next(&mut (), &mut client, &mut input);
        let capacities = |input: &Input| [&input.reads, &input.writes].map(Vec::capacity);
        let before = (capacities(&input), input.operations.capacity());
        for _ in 0..20_000 {
            ycsb.next(&mut (), &mut client, &mut input);
        }
        assert_eq!((capacities(&input), input.operations.capacity()), before);
        assert!(before.0.into_iter().all(|capacity| capacity >= 100) && before.1 >= 100, "{before:?}");
    }
}

#[test]
fn operations_come_in_the_ratios_asked_for() {
    let mut options = YcsbOptions::default();
    let settings = [
        ("ycsb.batch", "off"),
        ("ycsb.scan", "0.2"),
        ("ycsb.insert", "0.1"),
        ("ycsb.read", "0.75"),
        ("ycsb.ops", "100"),
    ];
    for (name, value) in settings {
        options.set(name, value).expect("a valid option");
    }
    let ycsb = Ycsb::create(&options, IndexKind::Ordered, &engine());
    let mut client = ycsb.client(0, 1, 11);
    let mut input = Input::default();
    let (mut counts, mut lengths) = ([0.0f64; 4], 0.0f64);
    for _ in 0..1000 {
        ycsb.next(&mut (), &mut client, &mut input);
        for operation in &input.operations {
            counts[operation.kind as usize] += 1.0;
            lengths += f64::from(operation.length);
        }
    }
    // Five standard deviations of 100,000 draws are below 0.008.
    for (count, expected) in counts.iter().zip([0.7 * 0.75, 0.7 * 0.25, 0.2, 0.1]) {
        assert!((count / 100_000.0 - expected).abs() < 0.008, "{counts:?}");
    }
    assert!((lengths / counts[Kind::Scan as usize] - 50.5).abs() < 1.5, "scans of 1 to 100 rows");
}

#[test]
fn presets_are_valid() {
    for info in INFOS {
        let mut options = YcsbOptions::default();
        for (name, value) in info.preset {
            options.set(name, value).unwrap_or_else(|error| panic!("{}: {error}", info.name));
        }
        assert_eq!(Ycsb::validate(&options, IndexKind::Ordered), Ok(()));
        let on_hash = Ycsb::validate(&options, IndexKind::Hash);
        assert_eq!(on_hash.is_err(), info.name == "ycsb-e", "{}", info.name);
    }
    let options = YcsbOptions { scan: Fraction(0.6), insert: Fraction(0.5), ..YcsbOptions::default() };
    let error = Ycsb::validate(&options, IndexKind::Ordered).expect_err("a sum of 1.1");
    assert!(error.contains("ycsb.scan") && error.contains("ycsb.insert"), "{error}");
    let validate = |payload, rmw| {
        let options = YcsbOptions { payload, rmw, update: true, fields: 2, ..YcsbOptions::default() };
        Ycsb::validate(&options, IndexKind::Hash)
    };
    assert_eq!(validate(32, false), Ok(()));
    assert!(validate(24, false).expect_err("too short").contains("32 or more"));
    assert!(validate(32, true).expect_err("both").contains("ycsb.rmw"));
}
