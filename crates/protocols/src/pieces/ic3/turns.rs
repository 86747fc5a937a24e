//! Turns: pieces that have failed run one after another.
//!
//! Of many workers that run the same hot piece at once, one takes effect, and the others have run
//! in vain. Worse, while they look at its cells and lock them they hold up the one that could go
//! on. So a piece that has failed waits for its turn before it runs again, away from these cells.
//! A worker remembers which of its pieces took turns. Such a piece takes a turn at once the next
//! time, until it finds that no other worker has it.
//!
//! A turn is no lock: it protects nothing. A wait for it has a limit, and the piece then runs
//! without. A piece has waited for the steps of its predecessors before it takes a turn. So it
//! waits for no other transaction's piece while it has the turn.

use contend_engine::Abort;
use contend_machine::{Atomic64, Machine, Ordering, Spin};
use crossbeam_utils::CachePadded;

use super::{Ic3, Ic3Faults, Ic3Worker};
use crate::method::wait::WAITS_MAX;

/// The number of pieces of a type, and of types, that have a turn of their own. Further ones share
/// these.
const PIECES: usize = 8;
const TYPES: usize = 8;
const FREE: u64 = 0;
const TAKEN: u64 = 1;

/// The turns of all pieces.
#[derive(Debug)]
pub(super) struct Turns<M: Machine> {
    words: Box<[CachePadded<M::U64>]>,
}

impl<M: Machine> Turns<M> {
    pub(super) fn new() -> Self {
        Turns { words: (0..TYPES * PIECES).map(|_| CachePadded::new(M::U64::new(FREE))).collect() }
    }
}

/// What a worker knows about turns.
#[derive(Debug, Default)]
pub(super) struct OwnTurns {
    /// The turn that it has.
    taken: Option<usize>,
    /// A bit for each turn that its pieces are to take.
    wanted: u64,
}

impl<M: Machine> Ic3Worker<M> {
    /// Returns the number of the running piece's turn.
    fn turn(&self) -> usize {
        self.of.unwrap_or(0) % TYPES * PIECES + self.piece % PIECES
    }

    /// Notes that the running piece, which has failed, is to take its turn when it runs again.
    pub(super) fn want_turn(&mut self) {
        self.turns.wanted |= 1 << self.turn();
    }
}

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Takes the running piece's turn, if it is to take one; `rank` is that of its step.
    ///
    /// # Errors
    /// The transaction is doomed.
    #[inline(always)]
    pub(super) fn take_turn(&self, local: &mut Ic3Worker<M>, rank: u64) -> Result<(), Abort> {
        let turn = local.turn();
        if local.turns.wanted & 1 << turn == 0 { Ok(()) } else { self.wait_for_turn(local, turn, rank) }
    }

    #[cold]
    fn wait_for_turn(&self, local: &mut Ic3Worker<M>, turn: usize, rank: u64) -> Result<(), Abort> {
        self.wait_for_steps(local, rank)?;
        M::step("wait for turn");
        let word = &self.turns.words[turn];
        let mut spin = Spin::<M>::new();
        // Relaxed, all: a turn orders nothing.
        while word.load(Ordering::Relaxed) == TAKEN
            || word.compare_exchange(FREE, TAKEN, Ordering::Relaxed, Ordering::Relaxed).is_err()
        {
            if spin.count() > WAITS_MAX {
                return Ok(());
            }
            local.member.wait(&self.progress, &mut spin, None)?;
        }
        local.turns.taken = Some(turn);
        if spin.count() == 0 && local.retries == 0 {
            local.turns.wanted &= !(1 << turn);
        }
        Ok(())
    }

    /// Gives back the turn, if the worker has one.
    #[inline(always)]
    pub(super) fn give_turn(&self, local: &mut Ic3Worker<M>) {
        if let Some(turn) = local.turns.taken.take() {
            // Relaxed: a turn orders nothing.
            self.turns.words[turn].store(FREE, Ordering::Relaxed);
        }
    }
}
