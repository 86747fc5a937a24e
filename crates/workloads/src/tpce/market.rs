//! The market, as a client plays it.
//!
//! A committed market order waits in a queue until the market completes it, and so does a limit
//! order that a feed has sent to the market. Each completed trade is a tick. A feed takes the ticks
//! that have come up, and fills up with ticks of trades that this database does not hold.
//!
//! Nothing here grows without end: each order leaves the queue, and a feed takes at most
//! [`FEED_MAX`] ticks.

use std::collections::VecDeque;

use super::TpceOptions;
use super::generate::{draw_non_uniform, draw_quantity, price_at};
use crate::random::Random;

/// The symbols of a feed.
pub(super) const FEED_MAX: usize = 20;
/// Orders for which a queue has room at the beginning.
const ROOM: usize = 4_096;

/// An order that waits for its completion.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ticket {
    pub(super) trade: u64,
    pub(super) symbol: u64,
    pub(super) quantity: u64,
}

/// A trade of a security.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tick {
    pub(super) symbol: u64,
    pub(super) price: i64,
    pub(super) quantity: u64,
}

/// Ticks in the order of their symbols. No two are of one symbol.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticks {
    count: usize,
    ticks: [Tick; FEED_MAX],
}

impl Ticks {
    pub(super) fn all(&self) -> &[Tick] {
        &self.ticks[..self.count]
    }

    /// Returns these ticks.
    #[cfg(test)]
    pub(super) fn of(ticks: &[Tick]) -> Self {
        let mut all = Ticks::default();
        ticks.iter().for_each(|tick| all.add(*tick));
        all
    }

    /// Adds a tick. The quantities of one symbol are added up, and its last price counts.
    fn add(&mut self, tick: Tick) {
        match self.ticks[..self.count].iter_mut().find(|of| of.symbol == tick.symbol) {
            Some(of) => *of = Tick { quantity: of.quantity + tick.quantity, ..tick },
            None => {
                self.ticks[self.count] = tick;
                self.count += 1;
            }
        }
    }
}

/// What the market has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Result,
    Feed,
    Nothing,
}

/// A client's market.
#[derive(Debug)]
pub(super) struct Market {
    queue: VecDeque<Ticket>,
    /// The ticks since the last feed.
    ticks: Vec<Tick>,
    /// The orders that the running feed has sent to the market.
    pub(super) triggered: Vec<Ticket>,
}

impl Market {
    pub(super) fn new() -> Self {
        Market {
            queue: VecDeque::with_capacity(ROOM),
            ticks: Vec::with_capacity(FEED_MAX),
            triggered: Vec::with_capacity(ROOM),
        }
    }

    /// Returns what has to come before the next draw.
    pub(super) fn due(&self, options: &TpceOptions) -> Due {
        if options.market_feed > 0 && self.ticks.len() == FEED_MAX {
            Due::Feed
        } else if options.trade_result > 0 && self.queue.len() as u64 > options.pending {
            Due::Result
        } else {
            Due::Nothing
        }
    }

    /// Notes an order that has come to the market.
    pub(super) fn submit(&mut self, options: &TpceOptions, ticket: Ticket) {
        // Without results nobody takes orders out.
        if options.trade_result > 0 {
            self.queue.push_back(ticket);
        }
    }

    /// Notes the orders that a committed feed has sent to the market.
    pub(super) fn submit_triggered(&mut self, options: &TpceOptions) {
        if options.trade_result > 0 {
            self.queue.extend(&self.triggered);
        }
        self.triggered.clear();
    }

    /// Takes the oldest order.
    pub(super) fn take(&mut self) -> Option<Ticket> {
        self.queue.pop_front()
    }

    /// Returns the number of orders that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Notes a completed trade.
    pub(super) fn complete(&mut self, tick: Tick) {
        if self.ticks.len() < FEED_MAX {
            self.ticks.push(tick);
        }
    }

    /// Takes the ticks that have come up, and draws others, to [`FEED_MAX`].
    pub(super) fn feed(&mut self, random: &mut Random, options: &TpceOptions, date: u64) -> Ticks {
        let mut ticks = Ticks::default();
        self.ticks.drain(..).for_each(|tick| ticks.add(tick));
        let drawn = FEED_MAX - ticks.count;
        for _ in 0..drawn {
            let symbol = draw_non_uniform(random, options.securities);
            ticks.add(Tick { symbol, price: price_at(symbol, date), quantity: draw_quantity(random) });
        }
        let count = ticks.count;
        ticks.ticks[..count].sort_unstable_by_key(|tick| tick.symbol);
        ticks
    }
}
