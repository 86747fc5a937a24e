//! Engines for tests: every protocol, with every choice of its options.

use std::sync::Arc;

use contend_derive::Row;
use contend_engine::{
    Alignment, Engine, EngineConfig, EngineOptions, Erased, Groups, IndexKind, Isolation, Key, NamedProtocol,
    OptionSpec, Options, Projection, Protocol, ProtocolInfo, Table, TableSpec, Update,
};
use contend_machine::Machine;
use contend_protocols::{ProtocolVisitor, all_protocols, with_protocol};

pub(crate) const INDEXES: [IndexKind; 2] = [IndexKind::Hash, IndexKind::Ordered];

/// A test of one protocol, made by `make`.
pub(crate) trait ProtocolTest<M: Machine> {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<M>);
}

/// A test that also runs on a protocol's own type. Measured code is compiled like this: each
/// protocol with the engine, without a call through a pointer.
pub(crate) trait GenericTest<M: Machine> {
    fn run<P: Protocol<M>>(&self, name: &str, make: &dyn Fn() -> P);
}

impl<M: Machine, T: GenericTest<M>> ProtocolTest<M> for T {
    fn run(&self, name: &str, make: &dyn Fn() -> Erased<M>) {
        GenericTest::run(self, name, make);
    }
}

/// Runs a test on a protocol's own type, for every choice of its options.
pub(crate) fn for_own_type<P: NamedProtocol<M>, M: Machine>(test: &impl GenericTest<M>) {
    for (label, options) in variants::<P::Options>() {
        test.run(&format!("{}{label}", P::INFO.name), &|| P::new(options.clone()));
    }
}

/// Runs a test for every registered protocol and every choice of its options, except for the
/// protocols that promise nothing.
pub(crate) fn for_each_protocol<M: Machine>(test: &impl ProtocolTest<M>) {
    // `CONTEND_PROTOCOL=silo CONTEND_ROUNDS=100` runs one protocol, to look for its bugs.
    for info in chosen(std::env::var("CONTEND_PROTOCOL").ok().as_deref(), all_protocols::<M>()) {
        for_protocol(info, test);
    }
}

/// Returns the protocols that promise something, or the one of them that is named. Panics if there
/// is none, because a test of none would be green.
fn chosen(name: Option<&str>, all: Vec<(ProtocolInfo, Vec<OptionSpec>)>) -> Vec<ProtocolInfo> {
    let promising: Vec<ProtocolInfo> =
        all.into_iter().map(|(info, _)| info).filter(|info| info.isolation != Isolation::None).collect();
    let names: Vec<&str> = promising.iter().map(|info| info.name).collect();
    let names = names.join(", ");
    let chosen: Vec<ProtocolInfo> =
        promising.into_iter().filter(|info| name.is_none_or(|name| name == info.name)).collect();
    assert!(!chosen.is_empty(), "CONTEND_PROTOCOL is {name:?}: nothing would be tested; valid: {names}");
    chosen
}

#[test]
fn a_protocol_that_is_not_there_is_no_test_that_passes() {
    let of = |name| std::panic::catch_unwind(move || chosen(name, all_protocols::<contend_machine::Native>()).len());
    assert_eq!(of(Some("silo")).expect("it is there"), 1);
    assert!(of(None).expect("all are") > 10);
    assert!(of(Some("sillo")).is_err() && of(Some("none")).is_err() && of(Some("")).is_err());
    assert_eq!([None, Some("1"), Some("20")].map(rounds_of), [Some(1), Some(1), Some(20)]);
    assert_eq!([Some("0"), Some(""), Some("many"), Some("-1")].map(rounds_of), [None; 4]);
}

/// Runs a test for the protocol that promises nothing, and that must nevertheless keep a single
/// transaction's promises.
pub(crate) fn for_no_control<M: Machine>(test: &impl ProtocolTest<M>) {
    for (info, _) in all_protocols::<M>() {
        if info.isolation == Isolation::None {
            for_protocol(info, test);
        }
    }
}

fn for_protocol<M: Machine>(info: ProtocolInfo, test: &impl ProtocolTest<M>) {
    for Variant { label, make } in with_protocol::<M, _>(info.name, Variants).expect("a registered name") {
        test.run(&format!("{}{label}", info.name), &make);
    }
}

/// A protocol with one choice of its options.
struct Variant<M: Machine> {
    label: String,
    // Erased: the tests and the engine below them are compiled once, and not once for each
    // protocol.
    make: Box<dyn Fn() -> Erased<M>>,
}

/// Returns a protocol's variants. It knows no test, so that it is compiled once for each protocol.
struct Variants;

impl<M: Machine> ProtocolVisitor<M> for Variants {
    type Output = Vec<Variant<M>>;

    fn visit<P: NamedProtocol<M>>(self) -> Self::Output {
        let mut variants = variants::<P::Options>();
        let reads_snapshots = |options: &P::Options| P::new(options.clone()).reads_snapshots();
        assert_eq!(reads_snapshots(&P::options_with_snapshots()), P::SNAPSHOTS.is_some());
        if P::SNAPSHOTS.is_some() && !variants.iter().any(|(_, options)| reads_snapshots(options)) {
            variants.push((" with snapshots".to_owned(), P::options_with_snapshots()));
        }
        let erased = |options: P::Options| Box::new(move || Erased::new(P::new(options.clone())));
        variants.into_iter().map(|(label, options)| Variant { label, make: erased(options) }).collect()
    }
}

/// Whether a test of this name is of a protocol's default options. Other choices are tested with
/// fewer cases, unless more rounds than usual are asked for.
pub(crate) fn is_thorough(name: &str) -> bool {
    !name.contains(' ') || rounds() > 1
}

/// Returns the default options, and each other choice of an option with named choices.
pub(crate) fn variants<O: Options>() -> Vec<(String, O)> {
    let mut variants = vec![(String::new(), O::default())];
    for spec in O::specs() {
        for choice in spec.range.split(", ").filter(|choice| *choice != spec.default) {
            let mut options = O::default();
            if options.set(spec.name, choice).is_ok() {
                variants.push((format!(" {}={choice}", spec.name), options));
            }
        }
    }
    variants
}

/// The choices of the engine's options with which tests run.
pub(crate) const ENGINE_OPTIONS: [EngineOptions; 4] = {
    const fn of(commit_time_updates: bool, timestamp_splitting: bool) -> EngineOptions {
        EngineOptions {
            commit_time_updates,
            timestamp_splitting,
            alignment: Alignment::Packed,
            protect_after: 0,
            lock_backoff: true,
        }
    }
    [of(false, false), of(true, true), of(true, false), of(false, true)]
};

/// A row of two groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Row)]
#[repr(C)]
pub(crate) struct Pair {
    pub(crate) left: u64,
    #[group = 1]
    pub(crate) right: u64,
}

/// An update of both groups that does not commute with an addition.
#[derive(Clone, Copy)]
pub(crate) struct Triple;

impl Update<Pair> for Triple {
    fn groups(&self) -> Groups {
        Groups::ALL
    }

    fn apply(&self, pair: &mut Pair) {
        pair.left = pair.left.wrapping_mul(3);
        pair.right = pair.right.wrapping_mul(3);
    }
}

pub(crate) const LEFT: Projection<'static> = Projection::of_groups(Groups::FIRST);
pub(crate) const RIGHT: Projection<'static> = Projection::of_groups(Groups::of(1));

pub(crate) fn engine<P: Protocol<M>, M: Machine>(protocol: P, history: bool) -> Arc<Engine<P, M>> {
    engine_with(protocol, history, EngineOptions::default())
}

pub(crate) fn engine_with<P: Protocol<M>, M: Machine>(
    protocol: P,
    history: bool,
    options: EngineOptions,
) -> Arc<Engine<P, M>> {
    Engine::new(protocol, config_with(history, options))
}

pub(crate) fn config_with(history: bool, options: EngineOptions) -> EngineConfig {
    EngineConfig { workers_max: 64, epoch_ms: 0, history, options, ..EngineConfig::default() }
}

pub(crate) fn table<P: Protocol<M>, M: Machine, K: Key>(
    engine: &Engine<P, M>,
    name: &str,
    index: IndexKind,
    row_bytes: usize,
) -> Table<K> {
    engine.create_table(&TableSpec::of_bytes(name, index, row_bytes, 64))
}

/// Creates a table of [`Pair`]s.
pub(crate) fn pairs<P: Protocol<M>, M: Machine>(engine: &Engine<P, M>, name: &str, index: IndexKind) -> Table<u64> {
    engine.create_table(&TableSpec::of::<Pair>(name, index, 64))
}

/// Returns the factor by which tests run more rounds than usual.
pub(crate) fn rounds() -> u64 {
    let text = std::env::var("CONTEND_ROUNDS").ok();
    rounds_of(text.as_deref()).unwrap_or_else(|| panic!("CONTEND_ROUNDS is {text:?}; valid: 1 or more"))
}

fn rounds_of(text: Option<&str>) -> Option<u64> {
    text.map_or(Some(1), |text| text.parse().ok().filter(|rounds| *rounds > 0))
}

#[test]
fn options_that_are_choices_are_varied() {
    let names: Vec<String> =
        variants::<contend_protocols::optimistic::silo::SiloOptions>().into_iter().map(|(label, _)| label).collect();
    let own = ["", " silo.wait=wait", " silo.wait=nowait", " silo.snapshots=on"];
    let of_read_phase = [" read_phase.extension=fixed", " read_phase.extension=adaptive"];
    assert_eq!(names, [&own[..], &of_read_phase[..]].concat());
}
