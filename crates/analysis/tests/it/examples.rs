//! The examples of the paper, and the plans of TPC-C and of the read-write part of TPC-E.

use contend_analysis::{AnalysisOptions, Chopping, Class, DeclarationError, Plan};
use contend_model::Groups;
use contend_model::pieces::{DeclaredPiece, Mode, TypeSet};

use crate::support::shown;

use Mode::{Delete, Insert, Read, Settled, Update, Write};

const ALL: AnalysisOptions = AnalysisOptions { split: true, updates: true, snapshots: true, appends: true };

/// Returns types whose pieces each write the tables that they are named by, a letter each.
fn letters(types: &[(&str, &[&str])]) -> TypeSet {
    let mut set = TypeSet::default();
    ('A'..='E').for_each(|name| _ = set.table(&name.to_string(), 1));
    for (name, pieces) in types {
        let piece = |name: &&str| {
            let tables = name.chars().filter(char::is_ascii_uppercase).map(|letter| letter as usize - 'A' as usize);
            tables.fold(DeclaredPiece::new(name), |piece, table| piece.access(Write, table, Groups::first(1)))
        };
        set.add(name, pieces.iter().map(piece));
    }
    set
}

#[test]
fn the_figures_of_the_paper() {
    let figure_3 = letters(&[("T1", &["A", "B", "C"]), ("T2", &["B", "A", "C"])]);
    assert_eq!(shown(&figure_3, ALL), ["T1 1:A+B 2:C", "T2 1:B+A 2:C"]);
    let figure_1a = letters(&[("T1", &["A", "B"]), ("T2", &["A", "B"])]);
    assert_eq!(shown(&figure_1a, ALL), ["T1 1:A 2:B", "T2 1:A 2:B"]);
    let figure_1b = letters(&[("T1", &["B", "C"]), ("T2", &["A", "B"]), ("T3", &["A", "C"])]);
    assert_eq!(shown(&figure_1b, ALL), ["T1 2:B 3:C", "T2 1:A 2:B", "T3 1:A 3:C"]);
    let microbenchmark = letters(&[("T", &["A", "B", "C", "D", "E"])]);
    assert_eq!(shown(&microbenchmark, ALL), ["T 1:A 2:B 3:C 4:D 5:E"]);
    let chopped = Chopping::new(&microbenchmark, ALL).expect("valid");
    assert_eq!(chopped.types[0].parts, [(0, 4)]);
}

/// A piece of one type that comes back to a unit closes a cycle, and what stands between is merged,
/// also if it accesses nothing that is contended.
#[test]
fn what_stands_between_is_merged() {
    let there_and_back = letters(&[("T", &["A", "b", "A2", "C"])]);
    assert_eq!(shown(&there_and_back, ALL), ["T 1:A+b+A2 2:C"]);
}

/// The tables of TPC-C, with the cells that matter here.
struct TpcC {
    types: TypeSet,
    tables: [usize; 11],
}

const TAX: Groups = Groups::of(0);
const YTD: Groups = Groups::of(1);
const NEXT: Groups = Groups::of(2);
const FACTS: Groups = Groups::of(0);
const BALANCE: Groups = Groups::of(1);
const ROW: Groups = Groups::of(0);

impl TpcC {
    fn new() -> TpcC {
        let mut types = TypeSet::default();
        let tables = [
            ("item", 1),
            ("warehouse", 2),
            ("district", 3),
            ("customer", 2),
            ("customer_by_name", 1),
            ("stock", 2),
            ("order", 2),
            ("order_by_customer", 1),
            ("new_order", 1),
            ("order_line", 1),
            ("history", 1),
        ]
        .map(|(name, cells)| types.table(name, cells));
        TpcC { types, tables }
    }

    fn new_order(&mut self, queue_first: bool) {
        let [item, warehouse, district, customer, _, stock, order, by_customer, new_order, line, _] = self.tables;
        let mut pieces = vec![
            DeclaredPiece::new("items").cancels().access(Read, item, ROW),
            DeclaredPiece::new("taxes")
                .access(Read, warehouse, TAX)
                .access(Read, customer, FACTS)
                .access(Read, district, TAX),
            DeclaredPiece::new("stocks").access(Read, stock, FACTS).access(Write, stock, Groups::of(1)),
            DeclaredPiece::new("number").access(Write, district, NEXT),
            DeclaredPiece::new("order").access(Insert, order, ROW),
            DeclaredPiece::new("by_customer").access(Insert, by_customer, ROW),
            DeclaredPiece::new("new_order").access(Insert, new_order, ROW),
            DeclaredPiece::new("lines").access(Insert, line, ROW),
        ];
        if queue_first {
            let queue = pieces.remove(6);
            pieces.insert(4, queue);
        }
        self.types.add("NO", pieces);
    }

    fn payment(&mut self) {
        let [_, warehouse, district, customer, by_name, .., history] = self.tables;
        self.types.add(
            "PAY",
            [
                DeclaredPiece::new("name").access(Read, by_name, ROW),
                DeclaredPiece::new("facts")
                    .access(Read, customer, FACTS)
                    .access(Read, warehouse, TAX)
                    .access(Read, district, TAX),
                DeclaredPiece::new("history").access(Insert, history, ROW),
                DeclaredPiece::new("pay").access(Update, customer, BALANCE).access(Write, customer, BALANCE),
                DeclaredPiece::new("sums").access(Update, district, YTD).access(Update, warehouse, YTD),
            ],
        );
    }

    fn delivery(&mut self, by_tables: bool) {
        let [.., customer, _, _, order, _, new_order, line, _] = self.tables;
        let pieces = [
            DeclaredPiece::new("oldest").access(Read, new_order, ROW).access(Delete, new_order, ROW),
            DeclaredPiece::new("orders").access(Read, order, FACTS).access(Write, order, Groups::of(1)),
            DeclaredPiece::new("lines").access(Write, line, ROW),
            DeclaredPiece::new("customers").access(Update, customer, BALANCE),
        ];
        let all = |all: DeclaredPiece, piece: &DeclaredPiece| DeclaredPiece {
            accesses: [all.accesses, piece.accesses.clone()].concat(),
            ..all
        };
        match by_tables {
            true => self.types.add("DEL", pieces),
            false => self.types.add("DEL", [pieces.iter().fold(DeclaredPiece::new("all"), all)]),
        };
    }

    fn read_only(&mut self) {
        let [_, _, district, customer, by_name, stock, order, by_customer, _, line, _] = self.tables;
        self.types.add(
            "OS",
            [
                DeclaredPiece::new("name").access(Read, by_name, ROW),
                DeclaredPiece::new("customer").access(Read, customer, Groups::first(2)),
                DeclaredPiece::new("last").access(Read, by_customer, ROW),
                DeclaredPiece::new("order").access(Read, order, Groups::first(2)),
                DeclaredPiece::new("lines").access(Read, line, ROW),
            ],
        );
        self.types.add(
            "SL",
            [
                DeclaredPiece::new("number").access(Read, district, NEXT),
                DeclaredPiece::new("lines").access(Read, line, ROW),
                DeclaredPiece::new("stocks").access(Read, stock, Groups::of(1)),
            ],
        );
        self.types.types[3..].iter_mut().for_each(|of| of.read_only = true);
    }

    /// New-Order, Payment and Delivery.
    fn read_write(queue_first: bool, by_tables: bool) -> TpcC {
        let mut tpcc = TpcC::new();
        tpcc.new_order(queue_first);
        tpcc.payment();
        tpcc.delivery(by_tables);
        tpcc
    }
}

#[test]
fn tpcc_as_it_was_written_and_in_a_better_order() {
    assert_eq!(
        shown(&TpcC::read_write(false, true).types, ALL),
        [
            "NO -items -taxes 1:stocks 2:number 3:order+by_customer+new_order 4:lines",
            "PAY -name -facts -history 5:pay -sums",
            "DEL 3:oldest+orders 4:lines 5:customers",
        ]
    );
    let better = TpcC::read_write(true, true).types;
    assert_eq!(
        shown(&better, ALL),
        [
            "NO -items -taxes 1:stocks 2:number 3:new_order 4:order -by_customer 5:lines",
            "PAY -name -facts -history 6:pay -sums",
            "DEL 3:oldest 4:orders 5:lines 6:customers",
        ]
    );
    let as_writes = shown(&better, AnalysisOptions { updates: false, ..ALL });
    assert_eq!(as_writes[1], "PAY -name -facts -history 6:pay 7:sums");
    assert_eq!(
        shown(&TpcC::read_write(true, false).types, ALL),
        [
            "NO -items -taxes 1:stocks 2:number 3:new_order+order+by_customer+lines",
            "PAY -name -facts -history 3:pay -sums",
            "DEL 3:all",
        ]
    );
}

#[test]
fn tpcc_with_its_read_only_types() {
    let mut tpcc = TpcC::read_write(true, true);
    tpcc.read_only();
    assert_eq!(shown(&tpcc.types, ALL), shown(&TpcC::read_write(true, true).types, ALL), "they are on snapshots");
    // Without snapshots nearly all is one vertex, and nothing is gained.
    assert_eq!(
        shown(&tpcc.types, AnalysisOptions { snapshots: false, ..ALL }),
        [
            "NO -items -taxes 1:stocks+number+new_order+order+by_customer+lines",
            "PAY -name -facts -history 1:pay -sums",
            "DEL 1:oldest+orders+lines+customers",
            "OS -name 1:customer+last+order+lines",
            "SL 1:number+lines+stocks",
        ]
    );
    let mut alone = TpcC::new();
    alone.new_order(true);
    let alone = shown(&alone.types, ALL);
    assert_eq!(alone, ["NO -items -taxes 1:stocks 2:number -new_order -order -by_customer -lines"]);
}

#[test]
fn tpcc_with_a_status_of_the_last_order() {
    let mut tpcc = TpcC::new();
    tpcc.new_order(true);
    let [_, _, district, _, _, _, order, _, _, line, _] = tpcc.tables;
    tpcc.types.add(
        "LOS",
        [
            DeclaredPiece::new("next").access(Read, district, NEXT),
            DeclaredPiece::new("order").access(Read, order, Groups::first(2)),
            DeclaredPiece::new("lines").access(Read, line, ROW),
        ],
    );
    assert_eq!(
        shown(&tpcc.types, ALL),
        ["NO -items -taxes 1:stocks 2:number -new_order 3:order -by_customer 4:lines", "LOS 2:next 3:order 4:lines"]
    );
}

#[test]
fn tpcc_chopped() {
    let tpcc = TpcC::read_write(true, true).types;
    let parts = |options| {
        let chopping = Chopping::new(&tpcc, options).expect("valid");
        assert!(chopping.types.iter().all(|of| of.late_cancel.is_none()), "items is the first part");
        chopping.types.into_iter().map(|of| of.parts).collect::<Vec<_>>()
    };
    let single = |pieces: std::ops::Range<usize>| pieces.map(|piece| (piece, piece)).collect::<Vec<_>>();
    assert_eq!(parts(ALL), [[single(0..2), vec![(2, 7)]].concat(), single(0..5), vec![(0, 3)]]);
    let as_writes = parts(AnalysisOptions { updates: false, ..ALL });
    assert_eq!(as_writes[1], [single(0..3), vec![(3, 4)]].concat(), "sums conflict now");
}

/// A row as one cell makes pieces conflict that touch different columns of it.
#[test]
fn rows_as_single_cells_collapse_tpcc() {
    let coarse = AnalysisOptions { split: false, ..ALL };
    let plan = Plan::new(&TpcC::read_write(true, true).types, coarse).expect("valid");
    let tracked = |of: usize| plan.types[of].groups.iter().filter(|group| group.rank.is_some()).count();
    assert_eq!([tracked(0), tracked(1), tracked(2)], [1, 1, 1]);
}

#[test]
fn the_read_write_types_of_tpce() {
    let tpce = |request_first: bool| {
        let mut types = TypeSet::default();
        let names =
            ["summary", "holding", "last", "request", "trade", "history", "settlement", "account", "cash", "broker"];
        let [summary, holding, last, request, trade, history, settlement, account, cash, broker] =
            names.map(|name| types.table(name, if name == "trade" { 3 } else { 1 }));
        let mut order = vec![
            DeclaredPiece::new("summary").access(Read, summary, ROW),
            DeclaredPiece::new("holding").access(Read, holding, ROW),
            DeclaredPiece::new("last").access(Read, last, ROW),
            DeclaredPiece::new("request").access(Insert, request, ROW),
            DeclaredPiece::new("trade").access(Insert, trade, ROW),
            DeclaredPiece::new("history").access(Insert, history, ROW),
            DeclaredPiece::new("balance").access(Read, account, ROW),
        ];
        if !request_first {
            order.swap(3, 4);
        }
        types.add("TO", order);
        types.add(
            "TR",
            [
                DeclaredPiece::new("first").access(Settled, trade, Groups::of(0)),
                DeclaredPiece::new("summary").access(Write, summary, ROW).access(Insert, summary, ROW),
                DeclaredPiece::new("holding").access(Write, holding, ROW).access(Insert, holding, ROW),
                DeclaredPiece::new("trade").access(Write, trade, Groups::of(1)),
                DeclaredPiece::new("history").access(Insert, history, ROW),
                DeclaredPiece::new("broker").access(Update, broker, ROW),
                DeclaredPiece::new("settlement").access(Insert, settlement, ROW),
                DeclaredPiece::new("balance").access(Write, account, ROW),
                DeclaredPiece::new("cash").access(Insert, cash, ROW),
            ],
        );
        types.add(
            "MF",
            [
                DeclaredPiece::new("last").access(Write, last, ROW),
                DeclaredPiece::new("request").access(Read, request, ROW).access(Delete, request, ROW),
                DeclaredPiece::new("trade").access(Write, trade, Groups::of(1)),
                DeclaredPiece::new("history").access(Insert, history, ROW),
            ],
        );
        types.add(
            "TU",
            [
                DeclaredPiece::new("trade").access(Read, trade, Groups::of(1)).access(Write, trade, Groups::of(2)),
                DeclaredPiece::new("history").access(Read, history, ROW),
                DeclaredPiece::new("settlement").access(Write, settlement, ROW),
                DeclaredPiece::new("cash").access(Write, cash, ROW),
            ],
        );
        shown(&types, ALL)
    };
    assert_eq!(
        tpce(true),
        [
            "TO 1:summary 2:holding 3:last 4:request 5:trade 6:history 8:balance",
            "TR -first 1:summary 2:holding 5:trade 6:history -broker 7:settlement 8:balance 9:cash",
            "MF 3:last 4:request 5:trade 6:history",
            "TU 5:trade 6:history 7:settlement 9:cash",
        ]
    );
    let other = tpce(false);
    assert_eq!(other[0], "TO 1:summary 2:holding 3:last 4:trade+request 5:history 7:balance");
    assert_eq!(other[2], "MF 3:last 4:request+trade 5:history");
}

#[test]
fn units_have_classes() {
    let mut tpcc = TpcC::read_write(true, true);
    tpcc.read_only();
    let plan = Plan::new(&tpcc.types, ALL).expect("valid");
    let class = |table: usize, cell: usize| {
        plan.units.iter().find(|unit| (unit.table, unit.cell) == (tpcc.tables[table], cell)).map(|unit| unit.class)
    };
    assert_eq!(class(0, 0), Some(Class::Constant), "items are read only");
    assert_eq!((class(1, 1), class(2, 1)), (Some(Class::Sum), Some(Class::Sum)), "the sums of a year");
    assert_eq!((class(10, 0), class(7, 0)), (Some(Class::Append), Some(Class::Append)), "nobody reads them");
    assert_eq!((class(2, 2), class(3, 1)), (Some(Class::Contended), Some(Class::Contended)));
    let ordered = Plan::new(&tpcc.types, AnalysisOptions { appends: false, ..ALL }).expect("valid");
    let history = ordered.units.iter().find(|unit| unit.table == tpcc.tables[10]).expect("it is there");
    assert_eq!(history.class, Class::Contended, "inserts need an order like all else");
}

/// A sum that a piece changes together with contended columns of the table is contended: both may
/// be of one row, which is shown as a whole.
#[test]
fn a_sum_beside_a_contended_change_is_contended() {
    let class_of_sum = |pieces: Vec<DeclaredPiece>| {
        let mut types = TypeSet::default();
        types.table("account", 2);
        types.add("T", pieces);
        Plan::new(&types, ALL).expect("valid").units[1].class
    };
    let note = DeclaredPiece::new("note").access(Write, 0, Groups::of(0));
    let sum = DeclaredPiece::new("sum").access(Update, 0, Groups::of(1));
    let both = DeclaredPiece::new("both").access(Write, 0, Groups::of(0)).access(Update, 0, Groups::of(1));
    assert_eq!(class_of_sum(vec![note.clone(), sum.clone()]), Class::Sum);
    assert_eq!(class_of_sum(vec![both]), Class::Contended);
    // One update of both groups can't be divided.
    let of_both = DeclaredPiece::new("of_both").access(Update, 0, Groups::first(2));
    assert_eq!(class_of_sum(vec![note, of_both]), Class::Contended);
}

#[test]
fn mistakes_are_named() {
    let mut types = letters(&[("T", &["A", "A"])]);
    let error = |types: &TypeSet| Plan::new(types, ALL).expect_err("a mistake").to_string();
    assert_eq!(error(&types), "piece 'A' is declared twice");
    types.types[0].pieces[1].name = "B".into();
    types.types[0].read_only = true;
    assert_eq!(error(&types), "T, piece A: writes 'A', and its type is declared read-only");
    types.types[0].read_only = false;
    types.types[0].pieces[1].accesses[0].groups = Groups::first(3).without(Groups::FIRST);
    assert_eq!(error(&types), "T, piece B: writes group 1 of 'A', which has none of this number");
    types.types[0].pieces[1].accesses[0].groups = Groups::of(0);
    types.add("reader", [DeclaredPiece::new("first").access(Settled, 0, Groups::of(0))]);
    assert_eq!(
        error(&types),
        "reader, piece first: reads settled rows of 'A', group 0, and T, piece A: writes it; valid: groups that only inserts write"
    );
    types.types.truncate(1);
    types.tables[4].groups = 17;
    assert_eq!(Plan::new(&types, ALL), Err(DeclarationError::GroupCount { table: "E".into(), groups: 17 }));
    types.tables[4] = types.tables[3].clone();
    assert_eq!(error(&types), "table 'D' is declared twice");
}

#[test]
fn a_plan_is_told_in_words() {
    let mut tpcc = TpcC::read_write(false, true);
    tpcc.read_only();
    let plan = Plan::new(&tpcc.types, ALL).expect("valid");
    let text = plan.describe(&tpcc.types, &Chopping::new(&tpcc.types, ALL).expect("valid"));
    for part in [
        "5 types, 25 pieces, 11 tables, 17 units (ts=on, cu=on, read-only types on snapshots)",
        "sum        2: warehouse/1, district/1",
        "NO   items taxes [1 stocks] [2 number] [3 order+by_customer+new_order] [4 lines]",
        "SL   on a snapshot: number lines stocks",
        "merged     NO: order+by_customer+new_order; DEL: oldest+orders",
        "chopping   NO -> items | taxes | stocks+number+order+by_customer+new_order+lines; PAY -> name | facts",
    ] {
        assert!(text.contains(part), "'{part}' is not in:\n{text}");
    }
}
