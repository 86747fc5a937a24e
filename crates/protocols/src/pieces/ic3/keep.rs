//! The option that says when transactions keep what snapshots show, and the plans that it chooses.

use contend_engine::{EngineOptions, option_choices};
use contend_machine::Machine;
use contend_model::pieces::TypeSet;

use super::{Ic3, Ic3Faults};
use crate::pieces::plan::Plan;

/// When transactions keep what they replace for readers of snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepSnapshots {
    /// Never: types that only read need an order like all others.
    Off,
    /// While snapshots change the number of ordered steps of a type that writes. It has more where
    /// readers merge steps, and fewer where only readers need the order.
    Needed,
    /// Always.
    On,
}

option_choices!(KeepSnapshots { Off => "off", Needed => "needed", On => "on" });

impl<M: Machine, F: Ic3Faults> Ic3<M, F> {
    /// Makes the plan of these types.
    pub(super) fn plan(&self, types: &TypeSet, options: &EngineOptions) -> Result<Plan, String> {
        let plan = |snapshots| Plan::new(types, options, self.options.append, snapshots, !F::show_sums());
        match self.options.snapshots {
            KeepSnapshots::Off => plan(false),
            KeepSnapshots::On => plan(true),
            KeepSnapshots::Needed => {
                let with = plan(true)?;
                // Where it needs too many ranks there is no other plan.
                match plan(false) {
                    Ok(without) if !with.gains_over(&without) => Ok(without),
                    _ => Ok(with),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use contend_engine::{EngineOptions, Groups, NamedProtocol};
    use contend_machine::Native;
    use contend_model::pieces::{DeclaredPiece, Mode, TypeSet};

    use super::super::{Ic3, Ic3Options};

    fn keeps(types: &TypeSet, commit_time_updates: bool) -> bool {
        let ic3 = <Ic3<Native> as NamedProtocol<Native>>::new(Ic3Options::default());
        let options = EngineOptions { commit_time_updates, ..EngineOptions::default() };
        ic3.plan(types, &options).expect("a plan").keeps_snapshots
    }

    /// A type of one piece that changes a counter, and one that reads it.
    fn counter(read_only: bool) -> TypeSet {
        let mut types = TypeSet::default();
        let counter = types.table("counter", 1);
        let piece = |mode| [DeclaredPiece::new("all").access(mode, counter, Groups::ALL)];
        types.add("count", piece(Mode::Update));
        let reader = types.add("report", piece(Mode::Read));
        types.types[reader].read_only = read_only;
        types
    }

    #[test]
    fn snapshots_are_kept_where_they_spare_an_order() {
        assert!(keeps(&counter(true), true), "the counter is a sum then");
        assert!(!keeps(&counter(true), false), "a write needs its order in any case");
        assert!(!keeps(&counter(false), true), "nobody reads a snapshot");
        let mut changing = counter(true);
        let other = changing.table("other", 1);
        changing.types[0].pieces.push(DeclaredPiece::new("other").access(Mode::Write, other, Groups::ALL));
        assert!(keeps(&changing, true), "one of two steps needs no order then");
        let mut without = counter(true);
        without.types.remove(0);
        assert!(!keeps(&without, true), "nobody writes");
        without.types[0].pieces.clear();
        assert!(!keeps(&without, true), "nobody runs");
    }

    /// A type that changes two tables has two steps. Without snapshots a reader that takes the
    /// tables in the other order merges them.
    #[test]
    fn snapshots_are_kept_where_readers_merge_steps() {
        let mut types = TypeSet::default();
        let tables = ["a", "b"].map(|name| types.table(name, 1));
        let piece = |table: usize, mode| DeclaredPiece::new(["a", "b"][table]).access(mode, tables[table], Groups::ALL);
        types.add("forwards", [piece(0, Mode::Write), piece(1, Mode::Write)]);
        let reader = types.add("report", [piece(1, Mode::Read), piece(0, Mode::Read)]);
        types.types[reader].read_only = true;
        assert!(keeps(&types, false), "the report reads b before a");
        types.types[reader].pieces.reverse();
        assert!(!keeps(&types, false), "it reads a before b");
    }
}
