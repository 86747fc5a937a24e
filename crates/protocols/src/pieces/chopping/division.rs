//! The division of the declared types into parts that commit by themselves.

use contend_analysis::{AnalysisOptions, Chopping, check};
use contend_engine::EngineOptions;
use contend_model::pieces::{Access, DeclaredPiece, Mode, TransactionType, TypeSet};

/// For each piece of each type, the last piece of its part.
#[derive(Debug)]
pub(super) struct Division(Vec<Vec<usize>>);

impl Division {
    /// Divides the types.
    ///
    /// # Errors
    /// A declaration is not valid.
    pub(super) fn new(types: &TypeSet, engine: &EngineOptions) -> Result<Division, String> {
        check(types).map_err(|error| error.to_string())?;
        let options = AnalysisOptions {
            split: engine.timestamp_splitting,
            updates: engine.commit_time_updates,
            snapshots: false,
            appends: false,
        };
        let mut types = types.clone();
        let accesses = types.types.iter_mut().flat_map(|of| &mut of.pieces).flat_map(|piece| &mut piece.accesses);
        // A part that has committed shows the rows of a transaction that goes on. So an inserted
        // row is not settled, and its readers conflict with the insert.
        accesses.filter(|access| access.mode == Mode::Settled).for_each(|access| access.mode = Mode::Read);
        let chopping = Chopping::new(&types, options).map_err(|error| error.to_string())?;
        let lasts = types.types.iter().zip(&chopping.types).map(|(of, chopped)| {
            let mut joined = Joined(vec![false; of.pieces.len()]);
            chopped.parts.iter().for_each(|(first, last)| joined.join(*first, *last));
            joined.join_own_conflicts(&types, of, options.split);
            joined.join_what_may_fail(of);
            joined.lasts()
        });
        Ok(Division(lasts.collect()))
    }

    /// Makes each piece a part: a deliberate fault.
    pub(super) fn break_up(&mut self) {
        for lasts in &mut self.0 {
            lasts.iter_mut().enumerate().for_each(|(piece, last)| *last = piece);
        }
    }

    /// Returns the number of types.
    pub(super) fn type_count(&self) -> usize {
        self.0.len()
    }

    /// Returns the last piece of the part of this piece.
    pub(super) fn last_of(&self, of: usize, piece: usize) -> usize {
        self.0[of][piece]
    }
}

/// For each piece, whether it is in one part with the piece before.
struct Joined(Vec<bool>);

impl Joined {
    /// Makes these pieces, and those between them, one part.
    fn join(&mut self, first: usize, last: usize) {
        self.0[first + 1..=last].fill(true);
    }

    /// Joins pieces that access the same unit, if one of them changes it. A transaction would
    /// install two versions of one cell, and other transactions could come in between. The analysis
    /// leaves only sums to this.
    fn join_own_conflicts(&mut self, types: &TypeSet, of: &TransactionType, split: bool) {
        let meet = |one: &Access, other: &Access| {
            let overlap = !split || types.groups_of(one).meets(types.groups_of(other));
            one.table == other.table && overlap && (one.mode.changes() || other.mode.changes())
        };
        for (first, one) in of.pieces.iter().enumerate() {
            for (last, other) in of.pieces.iter().enumerate().skip(first + 1) {
                if one.accesses.iter().any(|access| other.accesses.iter().any(|later| meet(access, later))) {
                    self.join(first, last);
                }
            }
        }
    }

    /// Joins what must not fail once a part has changed a row. Up to the end of the first part that
    /// changes a row the transaction may still abort as a whole. Each part behind it must commit:
    /// it can't be cancelled, and after a conflict it runs again. Only a part of one piece can run
    /// again.
    fn join_what_may_fail(&mut self, of: &TransactionType) {
        let changes = |piece: &DeclaredPiece| piece.accesses.iter().any(|access| access.mode.changes());
        let Some(first) = of.pieces.iter().position(changes) else { return };
        let end = self.lasts()[first];
        let may_fail = |piece: &usize| self.0[*piece] || of.pieces[*piece].cancels;
        if let Some(last) = (end + 1..of.pieces.len()).rfind(may_fail) {
            self.join(first, last);
        }
    }

    /// Returns the last piece of the part of each piece.
    fn lasts(&self) -> Vec<usize> {
        let end = |piece: usize| (piece + 1..self.0.len()).find(|next| !self.0[*next]).unwrap_or(self.0.len()) - 1;
        (0..self.0.len()).map(end).collect()
    }
}

#[cfg(test)]
mod tests {
    use contend_engine::{EngineOptions, Groups};
    use contend_model::pieces::{DeclaredPiece, Mode, TypeSet};

    use super::Division;

    const SPLIT: EngineOptions = EngineOptions {
        commit_time_updates: true,
        timestamp_splitting: true,
        alignment: contend_engine::Alignment::Packed,
        protect_after: 0,
        lock_backoff: true,
    };

    /// Pieces whose only accesses are of the first groups of these tables.
    fn pieces(of: &[&[(Mode, usize)]]) -> Vec<DeclaredPiece> {
        const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
        let piece = |(accesses, name): (&&[(Mode, usize)], &str)| {
            accesses
                .iter()
                .fold(DeclaredPiece::new(name), |piece, (mode, table)| piece.access(*mode, *table, Groups::FIRST))
        };
        of.iter().zip(NAMES).map(piece).collect()
    }

    /// Returns the last pieces of the first type's parts, beside a second type.
    fn lasts(first: Vec<DeclaredPiece>, second: &[&[(Mode, usize)]], engine: &EngineOptions) -> Vec<usize> {
        let mut types = TypeSet::default();
        (0..6).for_each(|table| _ = types.table(&format!("t{table}"), 2));
        types.add("first", first);
        types.add("second", pieces(second));
        Division::new(&types, engine).expect("valid").0.swap_remove(0)
    }

    use Mode::{Insert, Read, Settled, Update, Write};

    #[test]
    fn only_contended_pieces_are_one_part() {
        let payment = [&[(Read, 0)][..], &[(Read, 1)], &[(Write, 2)], &[(Write, 3)], &[(Update, 4)]];
        assert_eq!(lasts(pieces(&payment), &[], &SPLIT), [0, 1, 3, 3, 4]);
        // Updates that are applied at once are writes.
        let plain = EngineOptions { commit_time_updates: false, ..SPLIT };
        assert_eq!(lasts(pieces(&payment), &[], &plain), [0, 1, 4, 4, 4]);
    }

    #[test]
    fn inserts_and_settled_reads_conflict() {
        let inserts = [&[(Insert, 0)][..], &[(Write, 1)]];
        assert_eq!(lasts(pieces(&inserts), &[], &SPLIT), [1, 1]);
        let reads = [&[(Settled, 0)][..], &[(Write, 1)]];
        assert_eq!(lasts(pieces(&reads), &[&[(Insert, 0)]], &SPLIT), [1, 1]);
    }

    #[test]
    fn a_row_is_changed_by_one_part() {
        let sums = [&[(Update, 0)][..], &[(Update, 1)], &[(Update, 0)], &[(Update, 2)]];
        assert_eq!(lasts(pieces(&sums), &[], &SPLIT), [2, 2, 2, 3]);
    }

    #[test]
    fn behind_a_change_no_part_may_fail() {
        let sums = [&[(Read, 0)][..], &[(Update, 1)], &[(Update, 2)], &[(Update, 3)]];
        assert_eq!(lasts(pieces(&sums), &[], &SPLIT), [0, 1, 2, 3]);
        let cancels = |at: usize| {
            let mut pieces = pieces(&sums);
            pieces[at] = pieces[at].clone().cancels();
            pieces
        };
        // Up to the first change a rollback has nothing to take back.
        assert_eq!(lasts(cancels(0), &[], &SPLIT), [0, 1, 2, 3]);
        assert_eq!(lasts(cancels(1), &[], &SPLIT), [0, 1, 2, 3]);
        assert_eq!(lasts(cancels(2), &[], &SPLIT), [0, 2, 2, 3]);
        assert_eq!(lasts(cancels(3), &[], &SPLIT), [0, 3, 3, 3]);
        // A part of two pieces can't run again.
        let late = [&[(Update, 1)][..], &[(Update, 2)], &[(Write, 3)], &[(Write, 4)], &[(Update, 5)]];
        assert_eq!(lasts(pieces(&late), &[], &SPLIT), [3, 3, 3, 3, 4]);
    }
}
