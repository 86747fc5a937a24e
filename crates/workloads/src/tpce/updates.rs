//! Trade-Update: an employee corrects some trades. The three frames find them by their numbers, by
//! an account, or by a security.

use std::ops::ControlFlow;

use contend_model::pieces::{Piece, Types};
use contend_model::random::{GOLDEN_GAMMA, mix};
use contend_model::{Abort, Direction, Txn, Whole};

use super::generate::{COMPLETED, account_number, draw_account, draw_non_uniform, loaded_trade};
use super::results::{CASH_ACCOUNT, MARGIN, SHARES_OF};
use super::schema::{
    CashTransaction, Schema, Settlement, Trade, TradeHistory, TradeType, third_of, threes_of, twos_of,
};
use super::{Client, Tpce, TpceOptions};
use crate::random::Random;

const TRADE: Piece = Piece::new(0, "trade");
const HISTORY: Piece = Piece::new(1, "history");
const SETTLEMENT: Piece = Piece::new(2, "settlement");
const CASH: Piece = Piece::new(3, "cash");

/// Declares the pieces. Each has what any of the frames does.
pub(super) fn declare(name: &str, types: &mut Types, tables: &Schema) {
    types
        .add(name)
        .piece(TRADE, |piece| {
            piece
                .read(&tables.trade_by_account, Whole)
                .read(&tables.trade_by_symbol, Whole)
                .read(&tables.trade, (Trade::KIND, Trade::QUANTITY, Trade::IS_CASH, Trade::STATUS, Trade::PRICE))
                .modify(&tables.trade, Trade::EXECUTOR)
                .read(&tables.trade_type, TradeType::NAME)
        })
        .piece(HISTORY, |piece| piece.read(&tables.trade_history, TradeHistory::DATE))
        .piece(SETTLEMENT, |piece| piece.modify(&tables.settlement, Settlement::KIND))
        .piece(CASH, |piece| piece.modify(&tables.cash_transaction, CashTransaction::NAME));
}

/// The most trades that a transaction reads and corrects.
pub(super) const TRADES_MAX: usize = 20;

/// The way in which a transaction finds its trades.
#[derive(Clone, Copy, Debug)]
pub(super) enum Frame {
    /// By the first of these numbers: their count comes before them. It corrects the names of
    /// executors.
    Numbers(usize, [u64; TRADES_MAX]),
    /// By an account, from a date on. It corrects the kinds of settlements.
    Account(u64, u64),
    /// By a security, from a date on. It corrects the names of payments.
    Symbol(u64, u64),
}

/// A Trade-Update's parameters.
#[derive(Clone, Debug)]
pub struct Input {
    pub(super) frame: Frame,
}

/// The frames, which correct three kinds of rows.
pub(super) const FRAMES: usize = 3;

impl Frame {
    pub(super) fn number(&self) -> usize {
        match self {
            Frame::Numbers(..) => 0,
            Frame::Account(..) => 1,
            Frame::Symbol(..) => 2,
        }
    }

    /// Whether the frame corrects a row of this trade.
    fn corrects(&self, found: &Found) -> bool {
        match self {
            Frame::Numbers(..) => true,
            Frame::Account(..) => found.is_completed,
            Frame::Symbol(..) => found.is_completed && found.is_cash,
        }
    }

    /// Returns a sum over the trades that the frame corrects. A second correction of a trade takes
    /// the first one back, and so does its term of the sum.
    pub(super) fn corrections(&self, found: &[Found]) -> u64 {
        found.iter().filter(|found| self.corrects(found)).fold(0, |sum, found| sum ^ term(found.trade))
    }
}

/// Returns what a corrected trade is in a sum of corrections.
pub(super) fn term(trade: u64) -> u64 {
    mix(trade.wrapping_add(GOLDEN_GAMMA))
}

/// A trade that a transaction has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    trade: u64,
    is_completed: bool,
    is_cash: bool,
}

impl Tpce {
    pub(super) fn draw_update(&self, random: &mut Random) -> Input {
        let TpceOptions { customers, securities, trades, .. } = self.options;
        let horizon = self.options.loaded_dates();
        let frame = match random.uniform(0, 2) {
            0 => {
                let mut numbers = [0; TRADES_MAX];
                for number in &mut numbers {
                    // Of a customer whose number is drawn as unevenly as that of the trade.
                    let customer = draw_non_uniform(random, customers) + 1;
                    let place = random.uniform(0, super::generate::accounts_of(customer) - 1);
                    let account = account_number(customer, place);
                    *number = loaded_trade(account, draw_non_uniform(random, trades), trades);
                }
                numbers.sort_unstable();
                let mut count = 0;
                for position in 0..TRADES_MAX {
                    if position == 0 || numbers[position] != numbers[count - 1] {
                        numbers[count] = numbers[position];
                        count += 1;
                    }
                }
                Frame::Numbers(count, numbers)
            }
            1 => Frame::Account(draw_account(random, customers), 1 + draw_non_uniform(random, horizon)),
            _ => Frame::Symbol(draw_non_uniform(random, securities), 1 + draw_non_uniform(random, horizon)),
        };
        Input { frame }
    }

    /// Runs the body. Returns whether all was there that is never deleted.
    pub(super) fn trade_update<T: Txn>(&self, tx: &mut T, client: &mut Client, input: &Input) -> Result<bool, Abort> {
        let tables = &self.tables;
        let (found, numbers) = (&mut client.found, &mut client.numbers);
        let mut as_expected = tx.piece(TRADE, |tx| {
            self.find_trades(tx, numbers, &input.frame)?;
            found.clear();
            self.read_trades(tx, numbers, found, matches!(input.frame, Frame::Numbers(..)))
        })?;
        as_expected &= tx.piece(HISTORY, |tx| {
            found.iter().try_fold(true, |as_expected, found| {
                let mut steps = 0;
                let (range, table) = (twos_of(found.trade), &tables.trade_history);
                tx.scan(table, range, 3, Direction::Forward, TradeHistory::DATE, |_, date| {
                    std::hint::black_box(date);
                    steps += 1;
                    ControlFlow::Continue(())
                })?;
                Ok(as_expected & (steps > usize::from(found.is_completed)))
            })
        })?;
        as_expected &= tx.piece(SETTLEMENT, |tx| {
            found.iter().try_fold(true, |as_expected, found| {
                let is_there = match input.frame {
                    Frame::Account(..) => {
                        let correct = |kind: &mut [u8; 16]| *kind = other_kind(kind, found.is_cash);
                        tx.modify_columns(&tables.settlement, found.trade, Settlement::KIND, correct)?.is_some()
                    }
                    _ => std::hint::black_box(tx.read(&tables.settlement, found.trade, Whole)?).is_some(),
                };
                Ok(as_expected & (is_there == found.is_completed))
            })
        })?;
        as_expected &= tx.piece(CASH, |tx| {
            found.iter().filter(|found| found.is_cash).try_fold(true, |as_expected, found| {
                let is_there = match input.frame {
                    Frame::Symbol(..) => {
                        let (table, column) = (&tables.cash_transaction, CashTransaction::NAME);
                        tx.modify_columns(table, found.trade, column, correct_name)?.is_some()
                    }
                    _ => std::hint::black_box(tx.read(&tables.cash_transaction, found.trade, Whole)?).is_some(),
                };
                Ok(as_expected & (is_there == found.is_completed))
            })
        })?;
        Ok(as_expected)
    }

    /// Lists the trades that a frame names.
    #[inline]
    fn find_trades<T: Txn>(&self, tx: &mut T, numbers: &mut Vec<u64>, frame: &Frame) -> Result<(), Abort> {
        numbers.clear();
        let (table, range) = match *frame {
            Frame::Numbers(count, ref all) => {
                numbers.extend(&all[..count]);
                return Ok(());
            }
            Frame::Account(account, from) => (&self.tables.trade_by_account, threes_of(account, from)),
            Frame::Symbol(symbol, from) => (&self.tables.trade_by_symbol, threes_of(symbol, from)),
        };
        tx.scan(table, range, TRADES_MAX, Direction::Forward, Whole, |key, _| {
            numbers.push(third_of(key));
            ControlFlow::Continue(())
        })?;
        Ok(())
    }

    /// Reads the trades of these numbers, and corrects their executors if it should. Returns
    /// whether all trades are there.
    #[inline]
    fn read_trades<T: Txn>(
        &self,
        tx: &mut T,
        numbers: &[u64],
        found: &mut Vec<Found>,
        corrects: bool,
    ) -> Result<bool, Abort> {
        let table = &self.tables.trade;
        let columns = (Trade::KIND, Trade::QUANTITY, Trade::IS_CASH, Trade::STATUS, Trade::PRICE);
        for &trade in numbers {
            let executor = match corrects {
                true => tx.modify_columns(table, trade, Trade::EXECUTOR, |name| {
                    mark(name);
                    *name
                })?,
                false => tx.read(table, trade, Trade::EXECUTOR)?,
            };
            let Some((kind, quantity, is_cash, status, price)) = tx.read(table, trade, columns)? else {
                return Ok(false);
            };
            let Some(name) = tx.read(&self.tables.trade_type, kind, TradeType::NAME)? else { return Ok(false) };
            std::hint::black_box((executor, quantity, price, name));
            found.push(Found { trade, is_completed: status == COMPLETED, is_cash: is_cash != 0 });
        }
        Ok(true)
    }
}

/// Marks the name of an executor, or takes the mark away.
fn mark(name: &mut [u8; 32]) {
    name[31] = if is_marked(name) { 0 } else { b'X' };
}

pub(super) fn is_marked(name: &[u8; 32]) -> bool {
    name[31] == b'X'
}

/// Returns the other way to write the kind of a settlement.
pub(super) fn other_kind(kind: &[u8; 16], is_cash: bool) -> [u8; 16] {
    let kinds = match is_cash {
        true => [CASH_ACCOUNT, *b"Cash\0\0\0\0\0\0\0\0\0\0\0\0"],
        false => [MARGIN, *b"Margin Account\0\0"],
    };
    if *kind == kinds[0] { kinds[1] } else { kinds[0] }
}

/// Writes the name of a payment the other way: "shares" or "Shares".
pub(super) fn correct_name(name: &mut [u8; 64]) {
    if let Some(place) = initial_of_shares(name) {
        name[place] ^= b's' ^ b'S';
    }
}

pub(super) fn is_corrected(name: &[u8; 64]) -> bool {
    initial_of_shares(name).is_some_and(|place| name[place] == b'S')
}

/// Returns the place of the letter that corrections change.
fn initial_of_shares(name: &[u8; 64]) -> Option<usize> {
    let mut words = name.windows(SHARES_OF.len());
    words.position(|words| words.eq_ignore_ascii_case(SHARES_OF)).map(|place| place + 1)
}
