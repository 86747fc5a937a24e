//! Tests of the generator's statistics, of the population's checksum, of the conditions on broken
//! databases, and of whole runs.

use contend_engine::{
    Alignment, Engine, EngineConfig, EngineOptions, Key, NamedProtocol, Options, Protocol, Row, Txn, TypedTable,
};
use contend_machine::Native;
use contend_protocols::locking::no_wait::NoWait;
use contend_protocols::none::NoControl;
use contend_protocols::optimistic::silo::Silo;

use super::schema::{
    Customer, District, History, Nothing, Order, OrderLine, Stock, Warehouse, customer_key, district_key, line_key,
    order_key, stock_key,
};
use super::*;
use crate::run_for_tests::{Tx, check, clients, world_with};

fn options(settings: &[(&str, &str)]) -> TpccOptions {
    let mut options = TpccOptions { items: 200, customers: 30, ..TpccOptions::default() };
    for (name, value) in settings {
        options.set(name, value).expect("a valid setting");
    }
    options
}

type World<F> = crate::run_for_tests::World<Tpcc<F>>;

fn world<P: NamedProtocol<Native>, F: Faults>(
    options: &TpccOptions,
    engine_options: EngineOptions,
    parts: usize,
) -> World<F> {
    world_with::<P, _>(options, engine_options, parts)
}

const SPLIT: EngineOptions = EngineOptions {
    commit_time_updates: true,
    timestamp_splitting: true,
    alignment: Alignment::Packed,
    protect_after: 0,
    lock_backoff: true,
};

#[test]
fn conditions_hold_after_runs_of_four_threads() {
    fn both<P: NamedProtocol<Native>>() {
        for engine_options in [EngineOptions::default(), SPLIT] {
            for warehouses in ["1", "3"] {
                let world = world::<P, Sound>(&options(&[("tpcc.warehouses", warehouses)]), engine_options.clone(), 2);
                let done = clients(&world, 4, 1500);
                check(&world, &done).unwrap_or_else(|wrong| panic!("{} {engine_options:?}: {wrong}", P::INFO.name));
            }
        }
    }
    both::<Silo>();
    both::<NoWait>();
}

#[test]
fn without_control_conditions_break() {
    let world = world::<NoControl, Sound>(&options(&[]), EngineOptions::default(), 1);
    let done = clients(&world, 4, 4000);
    check(&world, &done).expect_err("no control, and no violation");
}

/// Every order that a district counts is there with its lines, at any time.
#[test]
fn a_reader_of_newest_orders_finds_their_lines() {
    let mix = options(&[("tpcc.payment", "0"), ("tpcc.delivery", "0"), ("tpcc.last_order_status", "45")]);
    let done = clients(&world::<Silo, Sound>(&mix, SPLIT, 1), 4, 1500);
    assert!(done.iter().all(|client| client.books.wrong.is_none()), "{:?}", done[0].books.wrong);
    // An order without its lines is found.
    let world = world::<Silo, Sound>(&mix, SPLIT, 1);
    let (district, order) = (district_key(1, 1), order_key(district_key(1, 1), 31));
    let mut worker = world.0.worker().expect("a slot");
    let next = |next: &mut District| next.next_o_id += 1;
    worker.run(|tx| tx.modify(&world.1.tables.district, district, next)).expect("no conflict");
    let mut client = world.1.client(0, 1, 1);
    let input = Input::LastOrderStatus(last_order_status::Input { district });
    worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
    assert!(client.suspicion.take().is_some_and(|wrong| wrong.contains("found no order")));
    let row = Order { entry_d: 1, customer: 1, ol_cnt: 5, all_local: 1, carrier: 0 };
    worker.run(|tx| tx.insert(&world.1.tables.order, order, row)).expect("no conflict");
    worker.run(|tx| world.1.execute(tx, &mut client, &input)).expect("no conflict");
    assert!(client.suspicion.take().is_some_and(|wrong| wrong.contains("has 0 lines, and says 5")));
}

#[test]
fn a_delivery_that_skips_the_oldest_order_is_caught() {
    struct Broken;
    impl Faults for Broken {
        const SKIP_OLDEST_ORDER: bool = true;
    }
    let world = world::<Silo, Broken>(&options(&[]), EngineOptions::default(), 1);
    let done = clients(&world, 1, 500);
    let wrong = check(&world, &done).expect_err("orders are left behind");
    assert!(["condition 2 ", "condition 3 "].iter().any(|condition| wrong.0.starts_with(condition)), "{wrong}");
}

/// Changes a row without the workload's knowledge.
fn put<R: Row, K: Key, F: Faults>(world: &World<F>, table: &TypedTable<R, K>, key: K, change: fn(&mut R)) {
    let mut worker = world.0.worker().expect("a slot");
    let changed = worker.run(|tx| tx.modify(table, key, change)).expect("no conflict");
    assert!(changed.is_some(), "there is such a row");
}

#[test]
fn each_condition_is_broken_by_what_it_is_for() {
    type Break = fn(&World<Sound>);
    fn with(world: &World<Sound>, body: impl Fn(&mut Tx<'_>)) {
        let mut worker = world.0.worker().expect("a slot");
        worker
            .run(|tx| {
                body(tx);
                Ok(())
            })
            .expect("no conflict");
    }
    const HOME: u64 = 1 << 4 | 1;
    let oldest = |world: &World<Sound>| order_key(HOME, load::delivered(&world.1.options) + 1);
    let breaks: [(&str, Break); 15] = [
        ("condition 1 ", |w| put(w, &w.1.tables.warehouse, 1, |row: &mut Warehouse| row.ytd += 1)),
        ("condition 2 ", |w| put(w, &w.1.tables.district, district_key(1, 3), |row: &mut District| row.next_o_id += 1)),
        ("condition 3 ", |w| {
            let key = order_key(HOME, load::delivered(&w.1.options) + 2);
            with(w, |tx| assert!(tx.delete(&w.1.tables.new_order, key).expect("no conflict")));
        }),
        ("condition 4 ", |w| {
            put(w, &w.1.tables.order, order_key(HOME, 1), |row: &mut Order| row.ol_cnt += 1);
        }),
        ("condition 5 ", |w| put(w, &w.1.tables.order, order_key(HOME, 30), |row: &mut Order| row.carrier = 3)),
        ("condition 6 ", |w| {
            // One order claims a line more than it has, another a line less.
            put(w, &w.1.tables.order, order_key(HOME, 1), |row: &mut Order| row.ol_cnt += 1);
            put(w, &w.1.tables.order, order_key(HOME, 2), |row: &mut Order| row.ol_cnt -= 1);
        }),
        ("condition 7 ", |w| {
            let line = line_key(order_key(HOME, 30), 1);
            put(w, &w.1.tables.order_line, line, |row: &mut OrderLine| row.delivery_d = 9);
        }),
        ("condition 8 ", |w| {
            put(w, &w.1.tables.warehouse, 1, |row: &mut Warehouse| row.ytd += 5);
            put(w, &w.1.tables.district, HOME, |row: &mut District| row.ytd += 5);
        }),
        ("condition 9 ", |w| {
            put(w, &w.1.tables.district, HOME, |row: &mut District| row.ytd += 5);
            put(w, &w.1.tables.district, district_key(1, 2), |row: &mut District| row.ytd -= 5);
        }),
        ("condition 10 ", |w| {
            put(w, &w.1.tables.customer, customer_key(HOME, 5), |row: &mut Customer| {
                row.balance += 1;
                row.ytd_payment -= 1;
            });
        }),
        ("condition 11 ", |w| {
            // A delivery that no client remembers.
            let key = order_key(HOME, load::delivered(&w.1.options) + 1);
            with(w, |tx| assert!(tx.delete(&w.1.tables.new_order, key).expect("no conflict")));
            put(w, &w.1.tables.order, key, |row: &mut Order| row.carrier = 1);
            for line in 1..=15 {
                with(w, |tx| {
                    let changed = tx.modify(&w.1.tables.order_line, line_key(key, line), |row| {
                        row.delivery_d = 1;
                        row.amount = 0;
                    });
                    changed.map(drop).expect("no conflict");
                });
            }
        }),
        ("condition 12 ", |w| {
            put(w, &w.1.tables.customer, customer_key(HOME, 5), |row: &mut Customer| row.ytd_payment += 1);
        }),
        ("a secondary index is wrong", |w| {
            let key = schema::customer_order_key(customer_key(HOME, 5), 999);
            with(w, |tx| assert!(tx.insert(&w.1.tables.order_by_customer, key, Nothing {}).expect("no conflict")));
        }),
        ("the stocks of warehouse 1", |w| put(w, &w.1.tables.stock, stock_key(1, 7), |row: &mut Stock| row.ytd += 1)),
        ("history has", |w| {
            let row = History { customer: customer_key(HOME, 5), district: HOME, date: 0, amount: 0, data: [0; 24] };
            with(w, |tx| assert!(tx.insert(&w.1.tables.history, 77, row).expect("no conflict")));
        }),
    ];
    for (expected, damage) in breaks {
        let world = world::<Silo, Sound>(&options(&[]), EngineOptions::default(), 1);
        let has_done_nothing = [world.1.client(0, 1, 1)];
        check(&world, &has_done_nothing).expect("the population is right");
        assert!(oldest(&world) > order_key(HOME, 1));
        damage(&world);
        let wrong = check(&world, &has_done_nothing).expect_err("broken");
        assert!(wrong.0.starts_with(expected), "{expected}: {wrong}");
        // Without clients the ordered quantities are unknown, and the stocks can't be compared.
        let is_remembered = expected == "the stocks of warehouse 1";
        assert_eq!(check(&world, &[]).is_ok(), is_remembered, "{expected}");
    }
}

/// Returns a checksum of all tables.
fn checksum<F: Faults>((engine, tpcc): &World<F>) -> u64 {
    fn mix(sum: u64, word: u64) -> u64 {
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29)
    }
    fn point<K: Key, R: Row, P: Protocol<Native>>(
        engine: &Engine<P, Native>,
        table: &TypedTable<R, K>,
        key: K,
        sum: &mut u64,
    ) {
        let mut words = Vec::new();
        engine.peek(table, key, &mut words).expect("the row is there");
        *sum = words.iter().fold(*sum, |sum, &word| mix(sum, word));
    }
    fn all<K: Key, R: Row, P: Protocol<Native>>(engine: &Engine<P, Native>, table: &TypedTable<R, K>, sum: &mut u64) {
        let ordered = engine.peek_all(table, |key, words| {
            *sum = key.to_words().iter().chain(words).fold(*sum, |sum, &word| mix(sum, word));
        });
        assert!(ordered);
    }
    let (mut sum, tables, options) = (0xcbf2_9ce4_8422_2325, &tpcc.tables, &tpcc.options);
    for item in 1..=options.items {
        point(engine, &tables.item, item, &mut sum);
    }
    for warehouse in 1..=options.warehouses {
        point(engine, &tables.warehouse, warehouse, &mut sum);
        for item in 1..=options.items {
            point(engine, &tables.stock, stock_key(warehouse, item), &mut sum);
        }
        for district in 1..=DISTRICTS {
            let district = district_key(warehouse, district);
            point(engine, &tables.district, district, &mut sum);
            for customer in 1..=options.customers {
                point(engine, &tables.customer, customer_key(district, customer), &mut sum);
            }
        }
    }
    all(engine, &tables.customer_by_name, &mut sum);
    all(engine, &tables.history, &mut sum);
    all(engine, &tables.new_order, &mut sum);
    all(engine, &tables.order, &mut sum);
    all(engine, &tables.order_by_customer, &mut sum);
    all(engine, &tables.order_line, &mut sum);
    sum
}

#[test]
fn a_seed_gives_one_database_whoever_loads_it() {
    let options = options(&[("tpcc.warehouses", "2")]);
    let known = 0x95db_b9ac_6e49_e27d;
    for parts in [1, 3] {
        let world = world::<Silo, Sound>(&options, EngineOptions::default(), parts);
        assert_eq!(format!("{:#018x}", checksum(&world)), format!("{known:#018x}"), "{parts} loaders");
    }
    let other = TpccOptions { population_seed: 43, ..options };
    assert_ne!(checksum(&world::<Silo, Sound>(&other, EngineOptions::default(), 1)), known);
}

#[test]
fn runs_of_one_thread_are_identical() {
    let run_once = |engine_options: EngineOptions| {
        let world = world::<Silo, Sound>(&options(&[]), engine_options, 1);
        clients(&world, 1, 1000);
        checksum(&world)
    };
    let first = run_once(EngineOptions::default());
    assert_eq!(run_once(EngineOptions::default()), first);
    assert_eq!(run_once(SPLIT), first, "what is done does not depend on how it is controlled");
}

/// Checks that `count` of `of` trials agrees with a probability, to within five standard
/// deviations.
#[track_caller]
fn expect_share(what: &str, count: u64, of: u64, probability: f64) {
    let (mean, deviation) = (of as f64 * probability, (of as f64 * probability * (1.0 - probability)).sqrt());
    assert!((count as f64 - mean).abs() <= 5.0 * deviation + 1.0, "{what}: {count} of {of}, expected {mean:.0}");
}

#[test]
fn the_generator_keeps_the_standards_rates() {
    let options = TpccOptions { warehouses: 4, ..TpccOptions::default() };
    let engine = Engine::<Silo, Native>::new(NamedProtocol::<Native>::new(Default::default()), EngineConfig::default());
    let tpcc: Tpcc = Workload::create(&options, IndexKind::Hash, &engine);
    let mut client = tpcc.client(1, 4, 11);
    let mut input = Input::default();
    const DRAWN: u64 = 200_000;
    let mut kinds = [0; KINDS];
    let (mut orders, mut lines, mut remote_lines, mut rollbacks, mut remote_orders) = (0, 0, 0, 0, 0);
    let (mut payments, mut remote_payments, mut by_name) = (0, 0, 0);
    let (mut items, mut quantities) = (vec![0u32; 100_002], 0);
    for _ in 0..DRAWN {
        tpcc.next(&mut (), &mut client, &mut input);
        kinds[tpcc.kind(&input)] += 1;
        match &input {
            Input::NewOrder(input) => {
                orders += 1;
                let all = input.lines();
                assert!((5..=15).contains(&all.len()));
                lines += all.len() as u64;
                let remote = all.iter().filter(|line| line.warehouse != client.home).count() as u64;
                remote_lines += remote;
                remote_orders += u64::from(remote > 0);
                rollbacks += u64::from(all.iter().any(|line| line.item > 100_000));
                all.iter().for_each(|line| items[line.item as usize] += 1);
                quantities += all.iter().map(|line| line.quantity).sum::<u64>();
                assert!(all.iter().all(|line| (1..=4).contains(&line.warehouse) && (1..=10).contains(&line.quantity)));
            }
            Input::Payment(input) => {
                payments += 1;
                let (remote, named) = input.is_remote_and_by_name(client.home);
                remote_payments += u64::from(remote);
                by_name += u64::from(named);
            }
            _ => {}
        }
    }
    for (kind, share) in [0.45, 0.43, 0.04, 0.04, 0.04, 0.0].into_iter().enumerate() {
        expect_share(KIND_NAMES[kind], kinds[kind], DRAWN, share);
    }
    expect_share("remote lines", remote_lines, lines, 0.01);
    expect_share("rollbacks", rollbacks, orders, 0.01);
    expect_share("remote payments", remote_payments, payments, 0.15);
    expect_share("payments by name", by_name, payments, 0.6);
    // About one order in ten has a line of another warehouse: 1 - 0.99^n, n from 5 to 15.
    let expected: f64 = (5..=15).map(|n| 1.0 - 0.99f64.powi(n)).sum::<f64>() / 11.0;
    expect_share("remote orders", remote_orders, orders, expected);
    assert!((lines as f64 / orders as f64 - 10.0).abs() < 0.1, "ten lines an order");
    assert!((quantities as f64 / lines as f64 - 5.5).abs() < 0.1, "quantities from 1 to 10");
    // NURand(8191, 1, 100000) draws most often the numbers whose low 13 bits, without the constant,
    // are mostly ones. The OR of two uniform bits is one in 3 cases of 4.
    let bit = |bit: u32| -> u64 {
        let is_set = |item: &usize| (((item - 1) + 100_000 - 7911) % 100_000) >> bit & 1 == 1;
        (1..=100_000usize).filter(is_set).map(|item| u64::from(items[item])).sum()
    };
    let all: u64 = items[1..=100_000].iter().map(|&count| u64::from(count)).sum();
    for low_bit in [0, 3, 7] {
        let share = bit(low_bit) as f64 / all as f64;
        assert!((share - 0.75).abs() < 0.02, "bit {low_bit} of an item is set in {share:.3} of the draws");
    }
}
