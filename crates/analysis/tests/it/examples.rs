//! The examples of the paper, and the plans of TPC-C and of the read-write part of TPC-E.

use contend_analysis::{AnalysisOptions, Cells, Chopping, Class, DeclarationError, Mode, Piece, Plan, TypeSet};

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
            tables.fold(Piece::new(name), |piece, table| piece.access(Write, table, Cells::first(1)))
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

const TAX: Cells = Cells(1);
const YTD: Cells = Cells(2);
const NEXT: Cells = Cells(4);
const FACTS: Cells = Cells(1);
const BALANCE: Cells = Cells(2);
const ROW: Cells = Cells(1);

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
            Piece::new("items").cancels().access(Read, item, ROW),
            Piece::new("taxes").access(Read, warehouse, TAX).access(Read, customer, FACTS).access(Read, district, TAX),
            Piece::new("stocks").access(Read, stock, FACTS).access(Write, stock, Cells(2)),
            Piece::new("number").access(Write, district, NEXT),
            Piece::new("order").access(Insert, order, ROW),
            Piece::new("by_customer").access(Insert, by_customer, ROW),
            Piece::new("new_order").access(Insert, new_order, ROW),
            Piece::new("lines").access(Insert, line, ROW),
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
                Piece::new("name").access(Read, by_name, ROW),
                Piece::new("facts")
                    .access(Read, customer, FACTS)
                    .access(Read, warehouse, TAX)
                    .access(Read, district, TAX),
                Piece::new("history").access(Insert, history, ROW),
                Piece::new("pay").access(Update, customer, BALANCE).access(Write, customer, BALANCE),
                Piece::new("sums").access(Update, district, YTD).access(Update, warehouse, YTD),
            ],
        );
    }

    fn delivery(&mut self, by_tables: bool) {
        let [.., customer, _, _, order, _, new_order, line, _] = self.tables;
        let pieces = [
            Piece::new("oldest").access(Read, new_order, ROW).access(Delete, new_order, ROW),
            Piece::new("orders").access(Read, order, FACTS).access(Write, order, Cells(2)),
            Piece::new("lines").access(Write, line, ROW),
            Piece::new("customers").access(Update, customer, BALANCE),
        ];
        let all =
            |all: Piece, piece: &Piece| Piece { accesses: [all.accesses, piece.accesses.clone()].concat(), ..all };
        match by_tables {
            true => self.types.add("DEL", pieces),
            false => self.types.add("DEL", [pieces.iter().fold(Piece::new("all"), all)]),
        };
    }

    fn read_only(&mut self) {
        let [_, _, district, customer, by_name, stock, order, by_customer, _, line, _] = self.tables;
        self.types.add(
            "OS",
            [
                Piece::new("name").access(Read, by_name, ROW),
                Piece::new("customer").access(Read, customer, Cells(3)),
                Piece::new("last").access(Read, by_customer, ROW),
                Piece::new("order").access(Read, order, Cells(3)),
                Piece::new("lines").access(Read, line, ROW),
            ],
        );
        self.types.add(
            "SL",
            [
                Piece::new("number").access(Read, district, NEXT),
                Piece::new("lines").access(Read, line, ROW),
                Piece::new("stocks").access(Read, stock, Cells(2)),
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
            Piece::new("next").access(Read, district, NEXT),
            Piece::new("order").access(Read, order, Cells(3)),
            Piece::new("lines").access(Read, line, ROW),
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
            Piece::new("summary").access(Read, summary, ROW),
            Piece::new("holding").access(Read, holding, ROW),
            Piece::new("last").access(Read, last, ROW),
            Piece::new("request").access(Insert, request, ROW),
            Piece::new("trade").access(Insert, trade, ROW),
            Piece::new("history").access(Insert, history, ROW),
            Piece::new("balance").access(Read, account, ROW),
        ];
        if !request_first {
            order.swap(3, 4);
        }
        types.add("TO", order);
        types.add(
            "TR",
            [
                Piece::new("first").access(Settled, trade, Cells(1)),
                Piece::new("summary").access(Write, summary, ROW).access(Insert, summary, ROW),
                Piece::new("holding").access(Write, holding, ROW).access(Insert, holding, ROW),
                Piece::new("trade").access(Write, trade, Cells(2)),
                Piece::new("history").access(Insert, history, ROW),
                Piece::new("broker").access(Update, broker, ROW),
                Piece::new("settlement").access(Insert, settlement, ROW),
                Piece::new("balance").access(Write, account, ROW),
                Piece::new("cash").access(Insert, cash, ROW),
            ],
        );
        types.add(
            "MF",
            [
                Piece::new("last").access(Write, last, ROW),
                Piece::new("request").access(Read, request, ROW).access(Delete, request, ROW),
                Piece::new("trade").access(Write, trade, Cells(2)),
                Piece::new("history").access(Insert, history, ROW),
            ],
        );
        types.add(
            "TU",
            [
                Piece::new("trade").access(Read, trade, Cells(2)).access(Write, trade, Cells(4)),
                Piece::new("history").access(Read, history, ROW),
                Piece::new("settlement").access(Write, settlement, ROW),
                Piece::new("cash").access(Write, cash, ROW),
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

#[test]
fn mistakes_are_named() {
    let mut types = letters(&[("T", &["A", "A"])]);
    let error = |types: &TypeSet| Plan::new(types, ALL).expect_err("a mistake").to_string();
    assert_eq!(error(&types), "piece 'A' is declared twice");
    types.types[0].pieces[1].name = "B".into();
    types.types[0].read_only = true;
    assert_eq!(error(&types), "T, piece A: writes 'A', and its type is declared read-only");
    types.types[0].read_only = false;
    types.types[0].pieces[1].accesses[0].cells = Cells(6);
    assert_eq!(error(&types), "T, piece B: writes cell 1 of a table that has none of this number");
    types.types[0].pieces[1].accesses[0].cells = Cells(1);
    types.add("reader", [Piece::new("first").access(Settled, 0, Cells(1))]);
    assert_eq!(
        error(&types),
        "reader, piece first: reads settled rows of 'A', cell 0, and T, piece A: writes it; valid: cells that only inserts write"
    );
    types.types.truncate(1);
    types.tables[4].cells = 65;
    assert_eq!(Plan::new(&types, ALL), Err(DeclarationError::CellCount { table: "E".into(), cells: 65 }));
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
