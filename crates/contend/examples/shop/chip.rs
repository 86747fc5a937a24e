//! The shop on a simulated chip: each core runs transactions, and all times are the chip's.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use contend::{BackoffPolicy, EngineOptions, NamedProtocol, RetryOptions, TableOptions};
use contend_engine::{Engine, EngineConfig, Load as _, TableSpec, Tables as _};
use contend_protocols::method::Backoff;
use contend_protocols::optimistic::silo::Silo;
use contend_protocols::pieces::ic3::Ic3;
use contend_sim::{Chip, ChipOptions, Preset, Simulated};

use crate::shop::{
    BRANCHES, Branch, COUPONS, Client, Coupon, ITEMS, Item, KINDS, Line, OFFERS, Offer, Order, Tables, USERS, User,
    declare_checkout, declare_report, declare_restock, new_branch, new_coupon, new_item, new_offer, new_user,
};
use crate::{execute, is_tried_again};

pub(crate) const CORES: usize = 64;
/// The simulated time, in seconds: first without counting, then counted.
const WARM_UP: f64 = 0.0005;
const SECONDS: f64 = 0.002;

pub(crate) type SimulatedSilo = Silo;
pub(crate) type SimulatedIc3 = Ic3<Simulated>;

/// Runs the shop under a protocol, and returns the transactions a second of simulated time.
pub(crate) fn run<P: NamedProtocol<Simulated>>() -> f64 {
    let preset = Preset::named("opteron-6474x8").expect("a chip of this name");
    preset.set_clock();
    let options = EngineOptions { commit_time_updates: true, timestamp_splitting: true, ..EngineOptions::default() };
    // One worker more loads the rows.
    let config = EngineConfig { workers_max: CORES + 1, options, ..EngineConfig::default() };
    let engine = Engine::<P, Simulated>::new(P::new(P::options_with_snapshots()), config);
    let tables = Rc::new(loaded(&engine));
    let mut types = engine.types();
    declare_checkout(types.add(KINDS[0]), &tables);
    declare_restock(types.add(KINDS[1]), &tables);
    declare_report(types.add_read_only(KINDS[2]), &tables);
    types.finish().and_then(|types| engine.declare(types)).expect("valid types");

    let retry = RetryOptions { backoff: BackoffPolicy::Exponential, ..RetryOptions::default() };
    let backoff = Backoff::<Simulated>::new(retry, CORES);
    let (commits, is_over) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let mut chip = Chip::new(&preset, CORES, ChipOptions::default()).expect("a chip of this size");
    for core in 0..CORES {
        let (tables, commits, is_over) = (Rc::clone(&tables), Rc::clone(&commits), Rc::clone(&is_over));
        let (mut worker, mut retry) = (engine.worker().expect("a free slot"), backoff.retry(core, core as u64));
        chip.spawn(move || {
            let mut client = Client::new(core as u64);
            while !is_over.get() {
                let draw = client.draw();
                while let Err(abort) = worker.run_declared(
                    |declaration| {
                        declaration.kind(draw.kind());
                        if draw.kind() == 2 {
                            declaration.read_only();
                        }
                    },
                    |tx| execute(tx, &tables, &draw),
                ) {
                    if !is_tried_again(abort) || is_over.get() {
                        break;
                    }
                    retry.aborted();
                }
                retry.done();
                commits.set(commits.get() + 1);
            }
        });
    }
    let cycles = |seconds: f64| (seconds * preset.core.hertz) as u64;
    chip.run_until(cycles(WARM_UP));
    let before = commits.get();
    chip.run_until(cycles(WARM_UP + SECONDS));
    let rate = f64::from(commits.get() - before) / SECONDS;
    // The cores end their transactions before their engine is dropped.
    is_over.set(true);
    while chip.run_until(u64::MAX / 2) {}
    rate
}

/// Creates and fills the tables.
fn loaded<P: NamedProtocol<Simulated>>(engine: &Arc<Engine<P, Simulated>>) -> Tables {
    let index = TableOptions::default().index;
    let tables = Tables {
        users: engine.create_typed(&TableSpec::of::<User>("users", index, 0)),
        items: engine.create_typed(&TableSpec::of::<Item>("items", index, 0)),
        offers: engine.create_typed(&TableSpec::of::<Offer>("offers", index, 0)),
        coupons: engine.create_typed(&TableSpec::of::<Coupon>("coupons", index, 0)),
        branches: engine.create_typed(&TableSpec::of::<Branch>("branches", index, 0)),
        orders: engine.create_typed(&TableSpec::of::<Order>("orders", index, 0)),
        lines: engine.create_typed(&TableSpec::of::<Line>("lines", index, 0)),
    };
    let mut loader = engine.loader().expect("a free slot");
    for user in 0..USERS {
        loader.insert_typed(&tables.users, user, new_user()).expect("memory");
    }
    for item in 0..ITEMS {
        loader.insert_typed(&tables.items, item, new_item()).expect("memory");
    }
    for offer in 0..OFFERS {
        loader.insert_typed(&tables.offers, offer, new_offer()).expect("memory");
    }
    for coupon in 0..COUPONS {
        loader.insert_typed(&tables.coupons, coupon, new_coupon(coupon)).expect("memory");
    }
    for branch in 0..BRANCHES {
        loader.insert_typed(&tables.branches, branch, new_branch()).expect("memory");
    }
    tables
}
