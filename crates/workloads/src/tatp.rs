//! TATP: a mobile network's home location register; seven short transactions, most of them reads.
//!
//! A subscriber is found by its number, or through a secondary index by its telephone number. It
//! has access infos, special facilities, and call forwardings. A transaction that finds none of
//! these fails, as in the specification: it cancels itself. About a quarter of all transactions do
//! so. Subscribers and their numbers are never deleted. So a transaction that misses one goes on to
//! its commit, and fails the check.
//!
//! UpdateSubscriberData changes the facility first, and then the subscriber. The facility may be
//! missing; in this order nothing has been changed then.
//!
//! Call forwardings of a facility begin at 0, 8 or 16 o'clock, so a facility has at most three. A
//! lookup of these three keys replaces the specification's range scan, and any index will do.

use std::ops::ControlFlow;

use contend_derive::Row;
use contend_model::pieces::Piece;
use contend_model::{
    Abort, Core, DeclarationNeeds, Declare, IndexKind, Inspect, Key, Load, OutOfMemory, Row, TableSpec, Tables, Txn,
    TypedTable, Types, Whole, counted, is_or_are, options,
};

use crate::loading::{load_in_steps, put};
use crate::random::Random;
use crate::workload::{Checked, DeclaredRows, Declares, Violation, Workload, WorkloadInfo};

options! {
    /// TATP's options.
    pub struct TatpOptions {
        /// Subscribers.
        "tatp.subscribers" subscribers: u64 = 100_000, in 1..=100_000_000;
        /// Whether all subscribers are equally active; otherwise some are drawn more often, as in
        /// the specification.
        "tatp.uniform" uniform: bool = false, in ();
        /// Partitions of the subscribers, by the remainders of their numbers.
        "tatp.partitions" partitions: u64 = 1, in 1..=65_536;
    }
}

/// TATP in a list.
pub const INFOS: &[WorkloadInfo] = &[WorkloadInfo {
    name: "tatp",
    summary: "a mobile network's register of subscribers: seven short transactions, 80 % of them reads",
    source: "Telecommunication Application Transaction Processing benchmark, description version 1.0, IBM, 2009",
    preset: &[],
}];

// The pieces, each with its place in its transaction.
const SUBSCRIBER: Piece = Piece::new(0, "subscriber");
const ACCESS_INFO: Piece = Piece::new(0, "access_info");
const FACILITY: Piece = Piece::new(0, "facility");
/// The second piece of GetNewDestination.
const FORWARDINGS: Piece = Piece::new(1, "forwardings");
/// The second piece of UpdateSubscriberData.
const BIT: Piece = Piece::new(1, "bit");
/// The first piece of the transactions that are given a telephone number.
const BY_NUMBER: Piece = Piece::new(0, "by_number");
const LOCATION: Piece = Piece::new(1, "location");
const FACILITIES: Piece = Piece::new(1, "facilities");
const INSERTED: Piece = Piece::new(2, "forwarding");
const DELETED: Piece = Piece::new(1, "forwarding");

const LOAD_STEP: u64 = 1024;
/// The number of types of access infos, and of special facilities.
const TYPES: u64 = 4;
/// The call forwardings of a facility: from 0, 8 and 16 o'clock.
const STARTS: u64 = 3;

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct Subscriber {
    /// The telephone number: 15 digits.
    number: u64,
    msc_location: u32,
    hex: [u8; 10],
    byte2: [u8; 10],
    #[group = 1]
    bit: [u8; 10],
    #[group = 1]
    fill: [u8; 6],
    /// The last location; see [`location`].
    #[group = 2]
    vlr_location: u64,
}

/// A row of the secondary index by telephone number.
#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct ByNumber {
    subscriber: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct AccessInfo {
    data: [u8; 10],
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct SpecialFacility {
    is_active: u8,
    error_cntrl: u8,
    data_b: [u8; 5],
    fill: u8,
    #[group = 1]
    data_a: u64,
}

#[derive(Clone, Copy, Debug, Row)]
#[repr(C)]
struct CallForwarding {
    end_time: u8,
    number: [u8; 15],
}

/// Returns the key of an access info or a special facility of type `kind`, 1 to 4.
fn typed_key(subscriber: u64, kind: u64) -> u64 {
    subscriber << 2 | (kind - 1)
}

/// Returns the key of a facility's call forwarding that begins at `start` times 8 o'clock.
fn forwarding_key(facility: u64, start: u64) -> u64 {
    facility << 2 | start
}

/// Returns a subscriber's telephone number: 15 digits, different for each subscriber.
fn number_of(subscriber: u64) -> u64 {
    100_000_000_000_000 + subscriber
}

/// Returns a location: the place that the transaction sets, below a mark of the subscriber. The
/// mark reveals a location that was written to another subscriber.
fn location(subscriber: u64, place: u32) -> u64 {
    Key::hash(subscriber) << 32 | u64::from(place)
}

/// The standard's transactions, with their weights in percent.
const KINDS: [(Kind, u64); 7] = [
    (Kind::GetSubscriberData, 35),
    (Kind::GetNewDestination, 10),
    (Kind::GetAccessData, 35),
    (Kind::UpdateSubscriberData, 2),
    (Kind::UpdateLocation, 14),
    (Kind::InsertCallForwarding, 2),
    (Kind::DeleteCallForwarding, 2),
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    GetSubscriberData,
    GetNewDestination,
    GetAccessData,
    UpdateSubscriberData,
    UpdateLocation,
    InsertCallForwarding,
    DeleteCallForwarding,
}

/// A transaction's parameters.
#[derive(Debug, Default)]
pub struct Input {
    kind: Kind,
    subscriber: u64,
    /// The type of an access info or a special facility.
    type_number: u64,
    /// The beginning of a call forwarding, in units of 8 hours.
    start: u64,
    end_time: u8,
    value: u32,
}

/// A worker's generator of inputs, and its books.
#[derive(Debug)]
pub struct Client {
    random: Random,
    /// Call forwardings inserted, less those deleted.
    forwardings: i64,
    /// Whether the running execution missed a subscriber or its number.
    misses: bool,
    /// Whether a committed transaction missed one.
    missed: bool,
    commits: u64,
}

/// The workload.
#[derive(Debug)]
pub struct Tatp {
    options: TatpOptions,
    subscriber: TypedTable<Subscriber>,
    by_number: TypedTable<ByNumber>,
    access_info: TypedTable<AccessInfo>,
    facility: TypedTable<SpecialFacility>,
    forwarding: TypedTable<CallForwarding>,
}

impl Tatp {
    /// Draws a subscriber, from 1 on. Some are drawn more often (section 1.5 of the description).
    fn draw_subscriber(&self, random: &mut Random) -> u64 {
        let count = self.options.subscribers;
        if self.options.uniform {
            return random.uniform(1, count);
        }
        let a = match count {
            0..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        random.nurand(a, 0, 1, count)
    }

    fn find<T: Txn>(&self, tx: &mut T, number: u64) -> Result<Option<u64>, Abort> {
        tx.piece(BY_NUMBER, |tx| tx.read(&self.by_number, number, ByNumber::SUBSCRIBER))
    }

    /// Declares the rows whose keys the input gives. Where it gives a telephone number, the
    /// subscriber is found by it.
    fn declare_rows(&self, input: &Input, declaration: &mut impl Declare) {
        let of_type = typed_key(input.subscriber, input.type_number);
        match input.kind {
            Kind::GetSubscriberData => declaration.row(&self.subscriber, input.subscriber, false),
            Kind::GetNewDestination => {
                declaration.row(&self.facility, of_type, false);
                let starts = (0..=input.start).map(|start| forwarding_key(of_type, start));
                starts.for_each(|key| declaration.row(&self.forwarding, key, false));
            }
            Kind::GetAccessData => declaration.row(&self.access_info, of_type, false),
            Kind::UpdateSubscriberData => {
                declaration.row(&self.facility, of_type, true);
                declaration.row(&self.subscriber, input.subscriber, true);
            }
            Kind::UpdateLocation | Kind::InsertCallForwarding | Kind::DeleteCallForwarding => {
                declaration.row(&self.by_number, number_of(input.subscriber), false);
            }
        }
    }

    /// Returns the number to which a call at the given hour is forwarded.
    fn new_destination<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<[u8; 15], Abort> {
        let facility = typed_key(input.subscriber, input.type_number);
        tx.piece(FACILITY, |tx| {
            let is_active = tx.read(&self.facility, facility, SpecialFacility::IS_ACTIVE)?;
            must(is_active == Some(1), tx)
        })?;
        let starts: [u64; STARTS as usize] = std::array::from_fn(|start| forwarding_key(facility, start as u64));
        tx.piece(FORWARDINGS, |tx| {
            let mut destination = None;
            tx.read_many(&self.forwarding, &starts[..=input.start as usize], Whole, |_, row| {
                destination = row
                    .filter(|row: &CallForwarding| input.end_time < row.end_time)
                    .map(|row| row.number)
                    .or(destination);
            })?;
            destination.ok_or_else(|| tx.cancel())
        })
    }

    /// Like the others that change rows it returns whether the subscriber was there.
    fn update_subscriber<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<bool, Abort> {
        let facility = typed_key(input.subscriber, input.type_number);
        let data_a = SpecialFacility::DATA_A.set(u64::from(input.value >> 1 & 0xff));
        tx.piece(FACILITY, |tx| must(tx.update(&self.facility, facility, data_a)?, tx))?;
        let bit = Subscriber::BIT.element(0).set((input.value & 1) as u8);
        tx.piece(BIT, |tx| tx.update(&self.subscriber, input.subscriber, bit))
    }

    fn update_location<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<bool, Abort> {
        let Some(subscriber) = self.find(tx, number_of(input.subscriber))? else { return Ok(false) };
        let place = Subscriber::VLR_LOCATION.set(location(subscriber, input.value));
        tx.piece(LOCATION, |tx| tx.update(&self.subscriber, subscriber, place))
    }

    fn insert_forwarding<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<bool, Abort> {
        let Some(subscriber) = self.find(tx, number_of(input.subscriber))? else { return Ok(false) };
        let kinds: [u64; TYPES as usize] = std::array::from_fn(|kind| typed_key(subscriber, kind as u64 + 1));
        tx.piece(FACILITIES, |tx| {
            let mut there = [false; TYPES as usize];
            tx.read_many(&self.facility, &kinds, SpecialFacility::IS_ACTIVE, |kind, row| there[kind] = row.is_some())?;
            must(there[input.type_number as usize - 1], tx)
        })?;
        let key = forwarding_key(typed_key(subscriber, input.type_number), input.start);
        let mut number = [b'0'; 15];
        number[5..].copy_from_slice(format_digits(input.value).as_slice());
        let row = CallForwarding { end_time: input.end_time, number };
        tx.piece(INSERTED, |tx| must(tx.insert(&self.forwarding, key, row)?, tx))?;
        Ok(true)
    }

    fn delete_forwarding<T: Txn>(&self, tx: &mut T, input: &Input) -> Result<bool, Abort> {
        let Some(subscriber) = self.find(tx, number_of(input.subscriber))? else { return Ok(false) };
        let key = forwarding_key(typed_key(subscriber, input.type_number), input.start);
        tx.piece(DELETED, |tx| must(tx.delete(&self.forwarding, key)?, tx))?;
        Ok(true)
    }

    /// Loads a subscriber with its other rows.
    fn load_subscriber<L: Load>(&self, loader: &mut L, subscriber: u64) -> Result<(), OutOfMemory> {
        let random = &mut Random::new(0x7a79, subscriber);
        let bytes = |random: &mut Random, max: u64| std::array::from_fn(|_| random.uniform(0, max) as u8);
        let row = Subscriber {
            number: number_of(subscriber),
            msc_location: random.next() as u32,
            hex: bytes(random, 15),
            byte2: bytes(random, 255),
            bit: bytes(random, 1),
            fill: [0; 6],
            vlr_location: location(subscriber, random.next() as u32),
        };
        put(loader, &self.subscriber, subscriber, row)?;
        put(loader, &self.by_number, number_of(subscriber), ByNumber { subscriber })?;
        for kind in some_types(random) {
            put(loader, &self.access_info, typed_key(subscriber, kind), AccessInfo { data: bytes(random, 255) })?;
        }
        for kind in some_types(random) {
            let facility = typed_key(subscriber, kind);
            let row = SpecialFacility {
                is_active: u8::from(random.happens(0.85)),
                error_cntrl: random.uniform(0, 255) as u8,
                data_b: [b'B'; 5],
                fill: 0,
                data_a: random.uniform(0, 255),
            };
            put(loader, &self.facility, facility, row)?;
            for start in self.loaded_forwardings(facility) {
                let end_time = (start * 8 + random.uniform(1, 8)) as u8;
                let row = CallForwarding { end_time, number: [b'1'; 15] };
                put(loader, &self.forwarding, forwarding_key(facility, start), row)?;
            }
        }
        Ok(())
    }

    /// Returns the starts of a facility's call forwardings after loading: none to all of the three.
    fn loaded_forwardings(&self, facility: u64) -> impl Iterator<Item = u64> + use<> {
        let draw = Key::hash(facility);
        let count = draw % (STARTS + 1);
        (0..count).map(move |i| (draw / 8 + i) % STARTS)
    }
}

/// Cancels the transaction unless this holds.
fn must<T: Txn>(holds: bool, tx: &mut T) -> Result<(), Abort> {
    if holds { Ok(()) } else { Err(tx.cancel()) }
}

/// Draws one to four of the four types.
fn some_types(random: &mut Random) -> impl Iterator<Item = u64> + use<> {
    let (first, count) = (random.uniform(0, TYPES - 1), random.uniform(1, TYPES));
    (0..count).map(move |i| (first + i) % TYPES + 1)
}

/// Returns the last ten decimal digits.
fn format_digits(mut value: u32) -> [u8; 10] {
    let mut digits = [b'0'; 10];
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
    digits
}

impl Workload for Tatp {
    type Options = TatpOptions;
    type Client = Client;
    type Input = Input;

    fn kinds(&self) -> &'static [&'static str] {
        &[
            "get_subscriber_data",
            "get_new_destination",
            "get_access_data",
            "update_subscriber_data",
            "update_location",
            "insert_call_forwarding",
            "delete_call_forwarding",
        ]
    }

    fn validate(_: &TatpOptions, _: IndexKind) -> Result<(), String> {
        Ok(())
    }

    fn tables(options: &TatpOptions, index: IndexKind) -> Vec<TableSpec> {
        let subscribers = options.subscribers as usize;
        vec![
            TableSpec::of::<Subscriber>("subscriber", index, subscribers),
            TableSpec::of::<ByNumber>("subscriber_by_number", index, subscribers),
            TableSpec::of::<AccessInfo>("access_info", index, subscribers * 5 / 2),
            TableSpec::of::<SpecialFacility>("special_facility", index, subscribers * 5 / 2),
            TableSpec::of::<CallForwarding>("call_forwarding", index, subscribers * 15 / 4),
        ]
    }

    fn create<S: Tables>(options: &TatpOptions, index: IndexKind, store: &S) -> Self {
        let specs = Self::tables(options, index);
        Tatp {
            options: options.clone(),
            subscriber: store.create_typed(&specs[0]),
            by_number: store.create_typed(&specs[1]),
            access_info: store.create_typed(&specs[2]),
            facility: store.create_typed(&specs[3]),
            forwarding: store.create_typed(&specs[4]),
        }
    }

    fn load_units(&self) -> u64 {
        self.options.subscribers
    }

    fn for_verification(options: &TatpOptions) -> TatpOptions {
        TatpOptions { subscribers: options.subscribers.min(20), ..options.clone() }
    }

    fn load<L: Load>(
        &self,
        loader: &mut L,
        part: usize,
        parts: usize,
        done: &mut dyn FnMut(u64) -> ControlFlow<()>,
    ) -> Result<(), OutOfMemory> {
        load_in_steps(self.options.subscribers, part, parts, LOAD_STEP, done, |mut numbers| {
            // Subscribers count from 1.
            numbers.try_for_each(|number| self.load_subscriber(loader, number + 1))
        })
    }

    fn client(&self, worker: usize, _: usize, seed: u64) -> Client {
        Client {
            random: Random::new(seed, worker as u64 + 1),
            forwardings: 0,
            misses: false,
            missed: false,
            commits: 0,
        }
    }

    fn next<C: Core>(&self, _: &mut C, client: &mut Client, input: &mut Input) {
        let random = &mut client.random;
        let mut draw = random.uniform(0, 99);
        let mut kind = Kind::default();
        for (candidate, weight) in KINDS {
            kind = candidate;
            match draw.checked_sub(weight) {
                Some(rest) => draw = rest,
                None => break,
            }
        }
        let start = random.uniform(0, STARTS - 1);
        *input = Input {
            kind,
            subscriber: self.draw_subscriber(random),
            type_number: random.uniform(1, TYPES),
            start,
            end_time: (start * 8 + random.uniform(1, 8)) as u8,
            value: random.next() as u32,
        };
    }

    fn kind(&self, input: &Input) -> usize {
        input.kind as usize
    }

    fn declares(options: &TatpOptions) -> Declares {
        // A transaction finds the keys of some of its rows in other rows.
        Declares { rows: DeclaredRows::Known, partitions: Some(options.partitions as usize) }
    }

    fn declare(&self, input: &Input, declaration: &mut impl Declare) {
        if matches!(input.kind, Kind::GetSubscriberData | Kind::GetNewDestination | Kind::GetAccessData) {
            declaration.read_only();
        }
        if declaration.needs() == DeclarationNeeds::Rows {
            return self.declare_rows(input, declaration);
        }
        declaration.partition((input.subscriber % self.options.partitions) as usize);
    }

    fn types(&self, types: &mut Types) {
        let Tatp { subscriber, by_number, access_info, facility, forwarding, .. } = self;
        let is_active = SpecialFacility::IS_ACTIVE;
        types.add_read_only("get_subscriber_data").piece(SUBSCRIBER, |piece| piece.read(subscriber, Whole));
        types
            .add_read_only("get_new_destination")
            .piece(FACILITY, |piece| piece.read(facility, is_active).cancels())
            .piece(FORWARDINGS, |piece| piece.read(forwarding, Whole).cancels());
        types.add_read_only("get_access_data").piece(ACCESS_INFO, |piece| piece.read(access_info, Whole).cancels());
        types
            .add("update_subscriber_data")
            .piece(FACILITY, |piece| piece.update(facility, SpecialFacility::DATA_A.set(0)).cancels())
            .piece(BIT, |piece| piece.update(subscriber, Subscriber::BIT.element(0).set(0)));
        types
            .add("update_location")
            .piece(BY_NUMBER, |piece| piece.read(by_number, ByNumber::SUBSCRIBER))
            .piece(LOCATION, |piece| piece.update(subscriber, Subscriber::VLR_LOCATION.set(0)));
        types
            .add("insert_call_forwarding")
            .piece(BY_NUMBER, |piece| piece.read(by_number, ByNumber::SUBSCRIBER))
            .piece(FACILITIES, |piece| piece.read(facility, is_active).cancels())
            .piece(INSERTED, |piece| piece.insert(forwarding).cancels());
        types
            .add("delete_call_forwarding")
            .piece(BY_NUMBER, |piece| piece.read(by_number, ByNumber::SUBSCRIBER))
            .piece(DELETED, |piece| piece.delete(forwarding).cancels());
    }

    fn execute<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<(), Abort> {
        let found = match input.kind {
            Kind::GetSubscriberData => {
                let row = tx.piece(SUBSCRIBER, |tx| tx.read(&self.subscriber, input.subscriber, Whole))?;
                std::hint::black_box(row).is_some()
            }
            Kind::GetNewDestination => {
                std::hint::black_box(self.new_destination(tx, input)?);
                true
            }
            Kind::GetAccessData => {
                let key = typed_key(input.subscriber, input.type_number);
                let row = tx.piece(ACCESS_INFO, |tx| {
                    let row = tx.read(&self.access_info, key, Whole)?;
                    row.ok_or_else(|| tx.cancel())
                })?;
                std::hint::black_box(row);
                true
            }
            Kind::UpdateSubscriberData => self.update_subscriber(tx, input)?,
            Kind::UpdateLocation => self.update_location(tx, input)?,
            Kind::InsertCallForwarding => self.insert_forwarding(tx, input)?,
            Kind::DeleteCallForwarding => self.delete_forwarding(tx, input)?,
        };
        client.misses = !found;
        Ok(())
    }

    fn committed(&self, client: &mut Client, input: &Input) {
        client.commits += 1;
        client.missed |= client.misses;
        client.forwardings += match input.kind {
            Kind::InsertCallForwarding => 1,
            Kind::DeleteCallForwarding => -1,
            _ => 0,
        };
    }

    fn check<S: Inspect>(&self, store: &S, clients: &[&Client]) -> Result<Checked, Violation> {
        if clients.iter().any(|client| client.missed) {
            return Err(Violation("a committed transaction missed a subscriber, and none is ever deleted".into()));
        }
        let (mut row, mut forwardings, mut loaded) = (Vec::new(), 0i64, 0i64);
        for subscriber in 1..=self.options.subscribers {
            let number = number_of(subscriber);
            if store.peek(&self.subscriber, subscriber, &mut row).is_none() {
                return Err(Violation(format!("subscriber {subscriber} is gone")));
            }
            let found = *Subscriber::from_words(&row);
            let entry = store.peek(&self.by_number, number, &mut row).map(|()| *ByNumber::from_words(&row));
            if found.number != number || entry.is_none_or(|entry| entry.subscriber != subscriber) {
                return Err(Violation(format!("the secondary index by number is wrong for subscriber {subscriber}")));
            }
            if found.vlr_location >> 32 != location(subscriber, 0) >> 32 {
                return Err(Violation(format!("subscriber {subscriber} has a location that was meant for another")));
            }
            for facility in (1..=TYPES).map(|kind| typed_key(subscriber, kind)) {
                let there = store.peek(&self.facility, facility, &mut row).is_some();
                loaded += if there { self.loaded_forwardings(facility).count() as i64 } else { 0 };
                for start in 0..STARTS {
                    if store.peek(&self.forwarding, forwarding_key(facility, start), &mut row).is_none() {
                        continue;
                    }
                    forwardings += 1;
                    let end = u64::from(CallForwarding::from_words(&row).end_time);
                    if !there {
                        return Err(Violation(format!(
                            "subscriber {subscriber} forwards calls of a facility that it does not have"
                        )));
                    }
                    if !(start * 8 + 1..=start * 8 + 8).contains(&end) {
                        return Err(Violation(format!(
                            "subscriber {subscriber} forwards calls from {} to {end} o'clock",
                            start * 8
                        )));
                    }
                }
            }
        }
        let expected = loaded + clients.iter().map(|client| client.forwardings).sum::<i64>();
        if forwardings != expected && !clients.is_empty() {
            return Err(Violation(format!(
                "{forwardings} call forwardings are there, but the committed transactions leave {expected}"
            )));
        }
        let commits: u64 = clients.iter().map(|client| client.commits).sum();
        Ok(Checked(format!(
            "the index by number agrees, locations are their subscribers', and {} {} there after {}",
            counted(forwardings, "call forwarding"),
            is_or_are(forwardings),
            counted(commits, "transaction")
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_for_tests::{Tx, check, run, world};
    use contend_protocols::locking::no_wait::NoWait;
    use contend_protocols::none::NoControl;
    use contend_protocols::optimistic::silo::Silo;

    fn small() -> TatpOptions {
        TatpOptions { subscribers: 5, ..TatpOptions::default() }
    }

    #[test]
    fn registers_agree_after_runs() {
        run::<Silo, Tatp>(&small(), 4, 5000).expect("nothing wrong");
        run::<NoWait, Tatp>(&small(), 4, 5000).expect("nothing wrong");
        run::<NoControl, Tatp>(&small(), 1, 5000).expect("nothing wrong with one thread");
    }

    #[test]
    fn what_is_wrong_is_named() {
        type World = crate::run_for_tests::World<Tatp>;
        fn damaged(damage: impl Fn(&World)) -> String {
            let world = world::<Silo, Tatp>(&small());
            let has_done_nothing = [world.1.client(0, 1, 1)];
            check(&world, &has_done_nothing).expect("the population is right");
            damage(&world);
            check(&world, &has_done_nothing).expect_err("broken").0
        }
        fn with<T>(world: &World, body: impl FnOnce(&mut Tx<'_>) -> Result<T, Abort>) {
            world.0.worker().expect("a slot").run(body).map(|_| ()).expect("no conflict");
        }
        let gone = damaged(|w| with(w, |tx| tx.delete(&w.1.subscriber, 3)));
        assert!(gone.contains("subscriber 3 is gone"), "{gone}");
        let index = damaged(|w| with(w, |tx| tx.modify(&w.1.by_number, number_of(2), |row| row.subscriber = 4)));
        assert!(index.contains("secondary index"), "{index}");
        let place = damaged(|w| with(w, |tx| tx.modify(&w.1.subscriber, 2, |row| row.vlr_location = location(3, 7))));
        assert!(place.contains("meant for another"), "{place}");
        // Returns the key of the first call forwarding.
        let first = |w: &World| {
            let keys = (0..1000).filter(|key| w.0.peek(&w.1.forwarding, *key, &mut Vec::new()).is_some());
            keys.min().expect("there is one")
        };
        let lost = damaged(|w| with(w, |tx| tx.delete(&w.1.forwarding, first(w))));
        assert!(lost.contains("call forwardings are there"), "{lost}");
        let hours = damaged(|w| with(w, |tx| tx.modify(&w.1.forwarding, first(w), |row| row.end_time = 99)));
        assert!(hours.contains("99 o'clock"), "{hours}");
        let stray = damaged(|w| with(w, |tx| tx.delete(&w.1.facility, first(w) >> 2)));
        assert!(stray.contains("does not have"), "{stray}");
    }

    #[test]
    fn a_transaction_that_misses_its_subscriber_is_found() {
        for kind in [Kind::GetSubscriberData, Kind::UpdateSubscriberData, Kind::UpdateLocation] {
            let world = world::<Silo, Tatp>(&small());
            let (engine, tatp) = &world;
            let mut worker = engine.worker().expect("a slot");
            worker.run(|tx| tx.delete(&tatp.subscriber, 3)).expect("no conflict");
            let mut client = tatp.client(0, 1, 1);
            let commits = (1..=TYPES).filter(|type_number| {
                let input = Input { kind, subscriber: 3, type_number: *type_number, ..Input::default() };
                let outcome = worker.run(|tx| tatp.execute(tx, &mut client, &input));
                outcome.inspect(|()| tatp.committed(&mut client, &input)).is_ok()
            });
            assert!(commits.count() > 0, "the subscriber has a facility");
            let wrong = check(&world, &[client]).expect_err("a subscriber is missing").0;
            assert!(wrong.contains("missed a subscriber"), "{wrong}");
        }
    }

    #[test]
    fn the_mix_is_the_standards_and_a_seed_gives_one_stream() {
        let world = world::<Silo, Tatp>(&TatpOptions { subscribers: 1000, ..small() });
        let (mut first, mut second) = (world.1.client(0, 1, 5), world.1.client(0, 1, 5));
        let (mut input, mut again) = (Input::default(), Input::default());
        let mut kinds = [0u32; 7];
        for _ in 0..100_000 {
            world.1.next(&mut (), &mut first, &mut input);
            world.1.next(&mut (), &mut second, &mut again);
            assert_eq!(format!("{input:?}"), format!("{again:?}"));
            assert!((1..=1000).contains(&input.subscriber));
            kinds[world.1.kind(&input)] += 1;
        }
        for ((_, weight), kind) in KINDS.into_iter().zip(kinds) {
            assert!(kind.abs_diff(weight as u32 * 1000) < 700, "{kinds:?}");
        }
    }
}
