//! The pieces that the workloads declare: no declaration lacks an access, an access that it lacks
//! is named, and the analysis gives the ranks for which the bodies were written. And the rows that
//! they declare are those that they touch.

use std::ops::ControlFlow;
use std::sync::Arc;

use contend_analysis::{AnalysisOptions, Plan};
use contend_engine::{Abort, AbortReason, Engine, EngineConfig, IndexKind, NamedProtocol, Options, Transaction, Txn};
use contend_machine::Native;
use contend_model::pieces::{Access, Checked, CheckedTypes, Mode, Piece, PieceChecker, TypeSet, Types};
use contend_model::{Groups, Projection, Table, TableSpec};
use contend_protocols::optimistic::silo::Silo;
use contend_workloads::bank::Bank;
use contend_workloads::litmus::Litmus;
use contend_workloads::rubis::Rubis;
use contend_workloads::smallbank::{SmallBank, SmallBankOptions};
use contend_workloads::tatp::Tatp;
use contend_workloads::tpcc::Tpcc;
use contend_workloads::tpce::Tpce;
use contend_workloads::wikipedia::Wikipedia;
use contend_workloads::ycsb::Ycsb;
use contend_workloads::{
    DeclaredRows, Workload, WorkloadInfo, WorkloadVisitor, all_workloads, declared_types, with_workload,
};

use super::rows::{Rows, Written};

/// A list of options, each with its value.
type Settings = &'static [(&'static str, &'static str)];

/// A loaded workload, and its declarations.
struct World<W> {
    engine: Arc<Engine<Silo, Native>>,
    workload: W,
    types: Option<TypeSet>,
    rows: DeclaredRows,
}

impl<W: Workload> World<W> {
    /// Loads a small workload with these options.
    fn new(preset: &[(&str, &str)], settings: Settings) -> World<W> {
        let mut options = W::Options::default();
        for (name, value) in preset.iter().chain(settings) {
            options.set(name, value).unwrap_or_else(|error| panic!("{error}"));
        }
        let options = W::for_verification(&options);
        W::validate(&options, IndexKind::Ordered).unwrap_or_else(|error| panic!("{error}"));
        let config = EngineConfig { history: true, ..EngineConfig::default() };
        let engine = Engine::<Silo, Native>::new(NamedProtocol::<Native>::new(Default::default()), config);
        let workload = W::create(&options, IndexKind::Ordered, &engine);
        let mut loader = engine.loader().expect("a free slot");
        workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
        let types = declared_types(&workload, engine.declared_tables()).expect("valid declarations");
        drop(loader);
        World { engine, workload, types, rows: W::declares(&options).rows }
    }

    fn types(&self) -> TypeSet {
        self.types.clone().expect("the workload declares its types")
    }

    /// Runs transactions on one thread, checked against these declarations. Returns the number of
    /// transactions of each kind, or the first violation in words.
    fn run(&self, types: TypeSet, transactions: usize) -> Result<Vec<usize>, String> {
        let mut checker = PieceChecker::default();
        checker.declare(Some(CheckedTypes::new(types)));
        let mut worker = self.engine.worker().expect("a free slot");
        let (mut client, mut input) = (self.workload.client(0, 1, 3), W::Input::default());
        let mut kinds = vec![0; self.workload.kinds().len()];
        let (mut rows, mut written) = (0, Written::new());
        for _ in 0..transactions {
            self.workload.next(&mut (), &mut client, &mut input);
            let mut declared = Rows::default();
            self.workload.declare(&input, &mut declared);
            rows += declared.count();
            let kind = self.workload.kind(&input);
            let outcome = worker.run(|tx| {
                let mut tx = Checked::new(tx, &mut checker, kind);
                self.workload.execute(&mut tx, &mut client, &input)
            });
            if let Some(violation) = checker.take_violation() {
                assert_eq!(outcome.expect_err("a violation aborts").reason, AbortReason::Undeclared);
                return Err(violation);
            }
            for done in worker.take_history() {
                assert_eq!(declared.fault(&done.operations), None, "a {}", self.workload.kinds()[kind]);
                declared.note_written(&done.operations, kind, &mut written);
            }
            match outcome {
                Ok(()) => self.workload.committed(&mut client, &input),
                Err(abort) => assert_eq!(abort.reason, AbortReason::User, "one thread has no conflicts"),
            }
            kinds[kind] += 1;
        }
        assert!(rows > 0 || self.rows == DeclaredRows::None, "no row is declared by {kinds:?}");
        let in_vain = written.iter().find(|(_, is_written)| !**is_written);
        assert_eq!(in_vain, None, "a type, and a table whose rows it declares as written and only reads");
        Ok(kinds)
    }
}

/// Runs a workload with several choices of options.
struct DeclaresAll(&'static [Settings]);

impl WorkloadVisitor for DeclaresAll {
    type Output = ();

    fn visit<W: Workload>(self, info: WorkloadInfo, _: W::Options) {
        let mut kinds: Vec<(&str, usize)> = Vec::new();
        for settings in self.0 {
            let world = World::<W>::new(info.preset, settings);
            let counts = world.run(world.types(), 1500);
            let counts = counts.unwrap_or_else(|violation| panic!("{} {settings:?}: {violation}", info.name));
            kinds.resize(counts.len(), ("", 0));
            let names = world.workload.kinds().iter().zip(counts);
            kinds.iter_mut().zip(names).for_each(|(sum, (name, count))| *sum = (name, sum.1 + count));
        }
        for (kind, count) in kinds {
            // Another test runs long transactions: with them, one thread runs nothing else.
            assert!(count > 0 || kind == "long", "{}: no transaction was a {kind}", info.name);
        }
    }
}

/// Options under which the bodies differ, by the first word of a workload's name.
const CHOICES: [(&str, &[Settings]); 9] = [
    (
        "ycsb",
        &[
            &[],
            &[("ycsb.rmw", "on")],
            &[("ycsb.rmw", "off"), ("ycsb.update", "on"), ("ycsb.payload", "160"), ("ycsb.fields", "10")],
            &[("ycsb.rmw", "on"), ("ycsb.payload", "48"), ("ycsb.fields", "3"), ("ycsb.batch", "on")],
            &[("ycsb.scan", "0.3"), ("ycsb.insert", "0.2"), ("ycsb.read", "0")],
            &[("ycsb.scan", "0"), ("ycsb.insert", "1")],
            &[("ycsb.scan", "1"), ("ycsb.insert", "0")],
            &[("ycsb.scan", "0"), ("ycsb.insert", "0"), ("ycsb.read", "0")],
            &[("ycsb.scan", "0"), ("ycsb.insert", "0"), ("ycsb.read", "1")],
        ],
    ),
    ("bank", &[&[], &[("bank.audit", "0.5"), ("bank.amount", "1000")]]),
    (
        "tpcc",
        &[
            &[],
            &[("tpcc.warehouses", "2"), ("tpcc.remote_lines", "0.3"), ("tpcc.by_name", "1")],
            &[("tpcc.rollback", "0.5"), ("tpcc.by_name", "0"), ("tpcc.apart", "off"), ("tpcc.home", "off")],
            &[("tpcc.order_status", "100"), ("tpcc.delivery", "100"), ("tpcc.stock_level", "100")],
            &[("tpcc.payment", "50"), ("tpcc.last_order_status", "50")],
        ],
    ),
    ("smallbank", &[&[], &[("smallbank.hot", "1"), ("smallbank.hot_customers", "2")]]),
    ("tatp", &[&[], &[("tatp.uniform", "on")]]),
    ("rubis", &[&[("rubis.split", "2")], &[("rubis.split", "3")]]),
    ("wikipedia", &[&[("wikipedia.update", "one")], &[("wikipedia.update", "several")]]),
    (
        "tpce",
        &[
            &[],
            &[("tpce.late_rollback", "on"), ("tpce.rollback", "0.2"), ("tpce.securities", "1")],
            &[("tpce.trade_status", "50"), ("tpce.customer_position", "50"), ("tpce.market_watch", "50")],
        ],
    ),
    ("pieces", &[&[], &[("pieces.cancel", "0.5")], &[("pieces.pieces", "1"), ("pieces.updates", "1")]]),
];

#[test]
fn every_access_of_every_workload_is_declared() {
    for (info, _) in all_workloads() {
        let family = info.name.split('-').next().unwrap_or_default();
        match CHOICES.iter().find(|(name, _)| *name == family) {
            Some((_, choices)) => with_workload(info.name, DeclaresAll(choices)).expect("a registered name"),
            None => assert_eq!(family, "litmus", "say with which options {} runs", info.name),
        }
    }
}

/// Verified runs refuse overdrafts, so these runs are with them and without, of every kind.
#[test]
fn kinds_that_need_other_options_are_declared_too() {
    let long = World::<Ycsb>::new(&[], &[("ycsb.long_us", "1")]);
    assert_eq!(long.run(long.types(), 50), Ok(vec![0, 0, 50]));
    let litmus = World::<Litmus>::new(&[], &[]);
    assert_eq!(litmus.types, None, "litmus tests stay undeclared");
    for overdraft in [false, true] {
        let options = SmallBankOptions { customers: 10, hot_customers: 5, overdraft, ..SmallBankOptions::default() };
        let config = EngineConfig { history: true, ..EngineConfig::default() };
        let engine = Engine::<Silo, Native>::new(NamedProtocol::<Native>::new(Default::default()), config);
        let workload = SmallBank::create(&options, IndexKind::Hash, &engine);
        let mut loader = engine.loader().expect("a free slot");
        workload.load(&mut loader, 0, 1, &mut |_| ControlFlow::Continue(())).expect("memory");
        let types = declared_types(&workload, engine.declared_tables()).expect("valid declarations");
        let world = World { engine: engine.clone(), workload, types, rows: DeclaredRows::All };
        let kinds = world.run(world.types(), 3000).unwrap_or_else(|violation| panic!("{violation}"));
        assert!(kinds.iter().all(|count| *count > 0), "{kinds:?}");
        let cancels = |of: usize| world.types().types[of].pieces[0].cancels;
        assert_eq!([cancels(4), cancels(5)], [!overdraft; 2], "an overdraft is refused, or costs a penalty");
    }
}

/// Returns the declarations without those accesses of a piece that `is_left_out` names.
fn without(types: &TypeSet, of: &str, piece: &str, is_left_out: impl Fn(&Access) -> bool) -> TypeSet {
    let mut types = types.clone();
    let declared = types.types.iter_mut().find(|declared| declared.name == of).expect("such a type");
    let piece = declared.pieces.iter_mut().find(|declared| declared.name == piece).expect("such a piece");
    let before = piece.accesses.len();
    piece.accesses.retain(|access| !is_left_out(access));
    assert_eq!(piece.accesses.len() + 1, before, "one access is left out");
    types
}

/// Returns what is said of TPC-C if one access of a piece is not declared.
fn tpcc_without(of: &str, piece: &str, mode: Mode, table: &str) -> String {
    let world = World::<Tpcc>::new(&[], &[]);
    let types = world.types();
    let number = types.tables.iter().position(|declared| declared.name == table).expect("such a table");
    let types = without(&types, of, piece, |access| (access.mode, access.table) == (mode, number));
    world.run(types, 2000).expect_err("an access that is not declared")
}

/// Checks that a violation begins with these words, and says how to declare the access.
#[track_caller]
fn expect_words(violation: &str, begins: &str, declare: &str) {
    assert!(violation.starts_with(begins), "{violation}");
    assert!(violation.contains(declare), "{violation}");
}

#[test]
fn an_undeclared_read_is_named() {
    let violation = tpcc_without("new_order", "taxes", Mode::Read, "district");
    expect_words(
        &violation,
        "new_order, piece taxes: reads district (tax, name, address, fill), which is not declared",
        "declare it by .read(..)",
    );
}

#[test]
fn an_undeclared_scan_is_named() {
    let violation = tpcc_without("stock_level", "lines", Mode::Read, "order_line");
    expect_words(&violation, "stock_level, piece lines: reads order_line, which is not declared", ".read(..)");
}

#[test]
fn an_undeclared_modification_is_named() {
    let violation = tpcc_without("new_order", "number", Mode::Write, "district");
    expect_words(
        &violation,
        "new_order, piece number: writes district (next_o_id), which is not declared",
        "declare it by .modify(..)",
    );
}

#[test]
fn an_undeclared_update_is_named() {
    let violation = tpcc_without("payment", "sums", Mode::Update, "district");
    expect_words(
        &violation,
        "payment, piece sums: updates district (ytd), which is not declared",
        "declare it by .update(..)",
    );
    // An update that does not commute is a write.
    let violation = tpcc_without("new_order", "stocks", Mode::Write, "stock");
    expect_words(
        &violation,
        "new_order, piece stocks: writes stock (quantity, ytd, order_cnt, remote_cnt), which is not declared",
        "declare it by .modify(..)",
    );
}

#[test]
fn an_undeclared_insert_is_named() {
    let violation = tpcc_without("payment", "history", Mode::Insert, "history");
    expect_words(
        &violation,
        "payment, piece history: inserts into history, which is not declared",
        "declare it by .insert(..)",
    );
}

#[test]
fn an_undeclared_delete_is_named() {
    let violation = tpcc_without("delivery", "oldest", Mode::Delete, "new_order");
    expect_words(
        &violation,
        "delivery, piece oldest: deletes from new_order, which is not declared",
        "declare it by .delete(..)",
    );
}

#[test]
fn an_undeclared_cancel_is_named() {
    let world = World::<Tpcc>::new(&[], &[("tpcc.rollback", "0.1")]);
    let mut types = world.types();
    types.types[0].pieces[0].cancels = false;
    let violation = world.run(types, 1000).expect_err("a New-Order asks for an unknown item");
    expect_words(&violation, "new_order, piece items: cancels, which is not declared", ".cancels()");
}

const FIRST: Piece = Piece::new(0, "first");
const SECOND: Piece = Piece::new(1, "second");

/// Runs a body of a type with two pieces, FIRST and SECOND, each of which reads one table. Returns
/// what is said of it.
fn violation_of(
    body: impl FnOnce(&mut Checked<'_, Transaction<'_, Silo, Native>>, &Table) -> Result<(), Abort>,
) -> Option<String> {
    let engine = Engine::<Silo, Native>::new(NamedProtocol::<Native>::new(Default::default()), EngineConfig::default());
    let table: Table = engine.create_table(&TableSpec::of_bytes("things", IndexKind::Hash, 8, 1));
    let mut types = Types::new(engine.declared_tables());
    types
        .add("look")
        .piece(FIRST, |piece| piece.access(Mode::Read, &table, Groups::ALL))
        .piece(SECOND, |piece| piece.access(Mode::Read, &table, Groups::ALL));
    let mut checker = PieceChecker::default();
    checker.declare(Some(CheckedTypes::new(types.finish().expect("valid declarations"))));
    let outcome = engine.worker().expect("a free slot").run(|tx| body(&mut Checked::new(tx, &mut checker, 0), &table));
    let violation = checker.take_violation();
    assert_eq!(violation.is_some(), outcome.is_err_and(|abort| abort.reason == AbortReason::Undeclared));
    violation
}

/// Reads the table.
fn look<T: Txn>(tx: &mut T, table: &Table) -> Result<(), Abort> {
    tx.read_row(table, 1, Projection::WHOLE).map(drop)
}

#[test]
fn an_access_outside_of_any_piece_is_named() {
    let violation = violation_of(|tx, table| look(tx, table)).expect("no piece has begun");
    expect_words(&violation, "look: accesses things outside of any piece", "valid pieces: first, second");
    let violation = violation_of(|tx, table| {
        tx.piece(FIRST, |tx| look(tx, table))?;
        look(tx, table)
    });
    expect_words(
        &violation.expect("the piece has ended"),
        "look, piece first: accesses things outside of any piece",
        "valid pieces: first, second",
    );
}

#[test]
fn pieces_out_of_order_are_named() {
    let in_order = violation_of(|tx, table| {
        tx.piece(FIRST, |tx| look(tx, table))?;
        tx.piece(SECOND, |tx| look(tx, table))
    });
    assert_eq!(in_order, None);
    assert_eq!(violation_of(|tx, table| tx.piece(SECOND, |tx| look(tx, table))), None, "a piece may be left out");
    for (earlier, later) in [(SECOND, FIRST), (FIRST, FIRST)] {
        let violation = violation_of(|tx, table| {
            tx.piece(earlier, |tx| look(tx, table))?;
            tx.piece(later, |tx| look(tx, table))
        });
        let begins = format!("look, piece {}: begins piece {}, which is not behind it", earlier.name(), later.name());
        expect_words(&violation.expect("pieces out of order"), &begins, "valid: first, second, in this order");
    }
    let violation = violation_of(|tx, table| tx.piece(FIRST, |tx| tx.piece(SECOND, |tx| look(tx, table))));
    let nested = violation.expect("a piece inside another");
    expect_words(&nested, "look, piece first: begins piece second inside another one", "one piece after the other");
}

/// Whether another access of the piece allows what this one does.
fn is_implied(accesses: &[Access], access: &Access) -> bool {
    accesses.iter().any(|other| {
        let covers = other.table == access.table && other.groups.contains(access.groups);
        covers
            && matches!(
                (other.mode, access.mode),
                (Mode::Write, Mode::Read | Mode::Update) | (Mode::Delete, Mode::Read)
            )
    })
}

/// Leaves each declared access and each cancel out in turn, and runs until that is noticed. So each
/// is needed, and none makes ranks for nothing.
fn expect_nothing_needless<W: Workload>(settings: Settings) {
    let world = World::<W>::new(&[], settings);
    let types = world.types();
    let noticed = |fewer: TypeSet, place: &str, what: &str| {
        let violation = world.run(fewer, 5000).expect_err(place);
        assert!(violation.starts_with(place) && violation.contains(what), "{violation}");
    };
    for (of, declared) in types.types.iter().enumerate() {
        for (number, piece) in declared.pieces.iter().enumerate() {
            let place = types.name_of(of, number);
            let needed = piece.accesses.iter().enumerate().filter(|(_, access)| !is_implied(&piece.accesses, access));
            for (position, access) in needed {
                let mut fewer = types.clone();
                fewer.types[of].pieces[number].accesses.remove(position);
                noticed(fewer, &place, &types.tables[access.table].name);
            }
            if piece.cancels {
                let mut fewer = types.clone();
                fewer.types[of].pieces[number].cancels = false;
                noticed(fewer, &place, "cancels");
            }
        }
    }
}

#[test]
fn nothing_that_is_declared_is_needless() {
    expect_nothing_needless::<Tpcc>(&[]);
    let los = contend_workloads::tpcc::INFOS.iter().find(|info| info.name == "tpcc-los").expect("a preset");
    expect_nothing_needless::<Tpcc>(los.preset);
    expect_nothing_needless::<SmallBank>(&[]);
    expect_nothing_needless::<Tatp>(&[]);
    expect_nothing_needless::<Tpce>(&[
        ("tpce.trade_status", "50"),
        ("tpce.customer_position", "50"),
        ("tpce.market_watch", "50"),
    ]);
    expect_nothing_needless::<Tpce>(&[("tpce.late_rollback", "on")]);
    expect_nothing_needless::<Bank>(&[]);
    expect_nothing_needless::<Rubis>(&[("rubis.items", "30"), ("rubis.users", "20")]);
    const CHANGES: [(&str, &str); 5] = [
        ("wikipedia.pages", "20"),
        ("wikipedia.users", "20"),
        ("wikipedia.update_page", "500000"),
        ("wikipedia.add_watch", "200000"),
        ("wikipedia.remove_watch", "200000"),
    ];
    expect_nothing_needless::<Wikipedia>(&CHANGES);
}

/// Returns each type with its groups of pieces, and their ranks: `-` for a group without one.
fn ranks(types: &TypeSet, options: AnalysisOptions) -> Vec<String> {
    let plan = Plan::new(types, options).expect("valid declarations");
    let line = |(of, planned): (usize, &contend_analysis::TypePlan)| {
        let declared = &types.types[of];
        if planned.on_snapshot {
            return format!("{}: on a snapshot", declared.name);
        }
        let groups = planned.groups.iter().map(|group| {
            let pieces = &declared.pieces[group.first..=group.last];
            let names: Vec<&str> = pieces.iter().map(|piece| piece.name.as_str()).collect();
            let rank = group.rank.map_or("-".into(), |rank| format!("{rank}:"));
            format!(" {rank}{}", names.join("+"))
        });
        format!("{}:{}", declared.name, groups.collect::<String>())
    };
    let runs = |(of, _): &(usize, _)| !types.types[*of].pieces.is_empty();
    plan.types.iter().enumerate().filter(runs).map(line).collect()
}

const ALL_ON: AnalysisOptions = AnalysisOptions { split: true, updates: true, snapshots: true, appends: true };

/// Watchers come before watches, in all types that touch both, and the user comes last.
#[test]
fn wikipedias_ranks_are_those_of_the_description() {
    let types = World::<Wikipedia>::new(&[], &[]).types();
    let expected = [
        "add_watch: 3:by_title 4:watched 5:touched",
        "remove_watch: 3:by_title 4:watched 5:touched",
        "update_page: 1:page 2:text 3:watchers 4:notify 5:author",
        "list_pages: on a snapshot",
        "get_page_anonymous: on a snapshot",
        "get_page_authenticated: on a snapshot",
    ];
    assert_eq!(ranks(&types, ALL_ON), expected);
}

#[test]
fn tpces_ranks_are_those_of_the_description() {
    let reads = &[("tpce.trade_status", "5"), ("tpce.customer_position", "5"), ("tpce.market_watch", "5")];
    let types = World::<Tpce>::new(&[], reads).types();
    let writes = [
        "trade_order: -facts 1:summary 2:holdings 3:last 4:request 5:trade 6:history 8:balance",
        "trade_result: -ordered -facts 1:summary 2:holdings 5:trade 6:history -broker 7:settlement 8:balance 9:cash",
        "market_feed: 3:last 4:request 5:trade 6:history",
        "trade_update: 5:trade 6:history 7:settlement 9:cash",
    ];
    let on_snapshots =
        ["trade_status: on a snapshot", "customer_position: on a snapshot", "market_watch: on a snapshot"];
    assert_eq!(ranks(&types, ALL_ON), [&writes[..], &on_snapshots[..]].concat());
    // Without snapshots the readers take part in the same order.
    let watch = ["market_watch: 1:held 3:watched"];
    let all = ranks(&types, AnalysisOptions { snapshots: false, ..ALL_ON });
    assert_eq!((&all[..4], &all[6..]), (&writes.map(String::from)[..], &watch.map(String::from)[..]));
    assert_eq!(all[4], "trade_status: -facts 5:trades");
    assert_eq!(all[5], "customer_position: -customer 1:summary 3:last 5:trade 6:history 8:balance");
}

#[test]
fn tpccs_ranks_are_those_of_the_papers_rules() {
    let types = World::<Tpcc>::new(&[], &[]).types();
    let new_order = "new_order: -items -taxes 1:stocks 2:number 3:queue 4:order -by_customer 5:lines";
    let on_snapshots = ["order_status: on a snapshot", "stock_level: on a snapshot"];
    let expected = |payment: &str, delivery: &str| {
        [new_order, payment, on_snapshots[0], delivery, on_snapshots[1]].map(String::from)
    };
    // A balance is only added to, so Delivery's last piece needs no rank, and Payment's has one for
    // the note of bad credit alone.
    assert_eq!(
        ranks(&types, ALL_ON),
        expected("payment: -identify -facts -history 6:note -sums", "delivery: 3:oldest 4:orders 5:lines -customers")
    );
    assert_eq!(
        ranks(&types, AnalysisOptions { updates: false, ..ALL_ON }),
        expected("payment: -identify -facts -history 6:note 7:sums", "delivery: 3:oldest 4:orders 5:lines 7:customers")
    );
}

/// Returns the ranks of a preset of TPC-C.
fn preset_ranks(name: &str) -> Vec<String> {
    let info = contend_workloads::tpcc::INFOS.iter().find(|info| info.name == name).expect("a preset");
    ranks(&World::<Tpcc>::new(info.preset, &[]).types(), ALL_ON)
}

#[test]
fn presets_of_tpcc_have_ranks_for_what_runs_only() {
    // Nobody reads the rows that New-Order inserts, so they need no order.
    let new_order = "new_order: -items -taxes 1:stocks 2:number -queue -order -by_customer -lines";
    assert_eq!(preset_ranks("tpcc-ic3-no"), [new_order]);
    let payment = "payment: -identify -facts -history 3:note -sums";
    assert_eq!(preset_ranks("tpcc-np"), [new_order, payment]);
    assert_eq!(
        preset_ranks("tpcc-los"),
        [
            "new_order: -items -taxes 1:stocks 2:number -queue 3:order -by_customer 4:lines",
            "last_order_status: 2:next 3:order 4:lines",
        ]
    );
}

#[test]
fn a_transaction_of_a_type_that_never_runs_is_refused() {
    let types = World::<Tpcc>::new(&[], &[("tpcc.payment", "0")]).types();
    // The declarations of one choice of weights, and the transactions of another.
    let violation = World::<Tpcc>::new(&[], &[]).run(types, 1000).expect_err("a payment runs");
    assert_eq!(violation, "payment: runs, and is declared without pieces, as a type that never runs");
}

/// What the papers' protocols need: snapshots for the readers, and a cell for each group.
#[test]
fn tpcc_is_one_step_without_snapshots_or_without_groups() {
    let types = World::<Tpcc>::new(&[], &[]).types();
    assert_eq!(
        ranks(&types, AnalysisOptions { snapshots: false, ..ALL_ON }),
        [
            "new_order: -items -taxes 2:stocks+number+queue+order+by_customer+lines",
            "payment: -identify -facts -history 1:note 2:sums",
            "order_status: -identify 2:customer+last+order+lines",
            "delivery: 2:oldest+orders+lines+customers",
            "stock_level: 2:number+lines+stocks",
        ]
    );
    assert_eq!(
        ranks(&types, AnalysisOptions { split: false, ..ALL_ON }),
        [
            "new_order: -items 1:taxes+stocks+number+queue+order+by_customer+lines",
            "payment: -identify 1:facts+history+note+sums",
            "order_status: on a snapshot",
            "delivery: 1:oldest+orders+lines+customers",
            "stock_level: on a snapshot",
        ]
    );
}

#[test]
fn smallbanks_two_tables_cant_be_ordered() {
    let types = World::<SmallBank>::new(&[], &[]).types();
    for updates in [true, false] {
        assert_eq!(
            ranks(&types, AnalysisOptions { updates, ..ALL_ON }),
            [
                "amalgamate: 1:savings+checking",
                "balance: on a snapshot",
                "deposit_checking: 1:deposit",
                "send_payment: 1:savings+checking",
                "transact_savings: 1:take",
                "write_check: 1:take",
            ]
        );
    }
}

#[test]
fn tatps_pieces_are_all_ordered() {
    let types = World::<Tatp>::new(&[], &[]).types();
    assert_eq!(
        ranks(&types, ALL_ON),
        [
            "get_subscriber_data: on a snapshot",
            "get_new_destination: on a snapshot",
            "get_access_data: on a snapshot",
            "update_subscriber_data: 1:facility 2:bit",
            "update_location: -by_number 3:location",
            "insert_call_forwarding: -by_number -facilities 4:forwarding",
            "delete_call_forwarding: -by_number 4:forwarding",
        ]
    );
}

#[test]
fn one_table_is_one_step_or_needs_none() {
    let bank = World::<Bank>::new(&[], &[]).types();
    assert_eq!(ranks(&bank, ALL_ON), ["transfer: 1:accounts", "audit: on a snapshot"]);
    let read_write = |settings: Settings| ranks(&World::<Ycsb>::new(&[], settings).types(), ALL_ON).swap_remove(1);
    assert_eq!(read_write(&[]), "read_write: 1:operations");
    // Additions alone are a sum, and inserts alone append.
    let additions = &[("ycsb.update", "on"), ("ycsb.payload", "16"), ("ycsb.read", "0")];
    assert_eq!(read_write(additions), "read_write: -operations");
    assert_eq!(read_write(&[("ycsb.insert", "1")]), "read_write: -operations");
    assert_eq!(read_write(&[("ycsb.insert", "0.5")]), "read_write: 1:operations");
}
