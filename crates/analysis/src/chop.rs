//! Transaction chopping: the finest division of each type into smaller transactions under which
//! every serializable execution of the smaller ones is one of the types.
//!
//! The criterion (Shasha et al., theorem 1): the graph has two instances of each type. The pieces
//! of an instance are joined by S-edges, and pieces of different instances that conflict by
//! C-edges. No cycle may have both. So two pieces of an instance must be one if a path of other
//! instances leads from one to the other.
//!
//! **Why one interval suffices.** Suppose that two pieces of an instance access contended units `u`
//! and `v`. The second instance of the type accesses both as well. Each unit has a type that
//! changes it. An instance of that type is left among the others. So a path leads from the first
//! piece by `u` to the second instance, by an S-edge to its piece that accesses `v`, and by `v` to
//! the other piece. Hence all pieces that access contended units are one, with those between them.
//! A piece that accesses none has no C-edge, and stays alone. A test compares this with a search
//! over the graph.

use serde::Serialize;

use contend_model::pieces::TypeSet;

use crate::check::{DeclarationError, check};
use crate::merge::{AnalysisOptions, Pieces, under};

/// The division of a type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chopped {
    /// Whether the type runs on a snapshot. Then it is not divided.
    pub on_snapshot: bool,
    /// The first and the last piece of each part, in the order of the program.
    pub parts: Vec<(usize, usize)>,
    /// The piece behind the first part in which the application may cancel the transaction, if
    /// there is one. By then a part has committed, so the type can't be chopped.
    pub late_cancel: Option<usize>,
}

/// The division of all types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chopping {
    /// The types, in the order of their declaration.
    pub types: Vec<Chopped>,
}

impl Chopping {
    /// Finds the finest division.
    ///
    /// # Errors
    /// A declaration is not valid.
    pub fn new(types: &TypeSet, options: AnalysisOptions) -> Result<Chopping, DeclarationError> {
        check(types)?;
        let types = under(types, options);
        let pieces = Pieces::new(&types, options);
        let mut interval: Vec<Option<(usize, usize)>> = vec![None; types.types.len()];
        for (&(of, own), _) in pieces.of.iter().zip(&pieces.contended).filter(|(_, units)| !units.is_empty()) {
            let (first, _) = interval[of].unwrap_or((own, own));
            interval[of] = Some((first, own));
        }
        let chopped = types.types.iter().zip(interval).map(|(of, interval)| {
            let on_snapshot = options.snapshots && of.read_only;
            let last = of.pieces.len().saturating_sub(1);
            let parts: Vec<_> = match interval {
                _ if on_snapshot => {
                    if of.pieces.is_empty() {
                        vec![]
                    } else {
                        vec![(0, last)]
                    }
                }
                None => (0..of.pieces.len()).map(|piece| (piece, piece)).collect(),
                Some((first, end)) => {
                    let before = (0..first).map(|piece| (piece, piece));
                    before.chain([(first, end)]).chain((end + 1..=last).map(|piece| (piece, piece))).collect()
                }
            };
            let first_part = parts.first().map_or(0, |(_, end)| end + 1);
            let late_cancel = (first_part..of.pieces.len()).find(|piece| of.pieces[*piece].cancels);
            Chopped { on_snapshot, parts, late_cancel }
        });
        Ok(Chopping { types: chopped.collect() })
    }
}
