//! What a protocol of this family knows of the declared types.
//!
//! The analysis works on the units that the run has. So the plan is made once the tables exist:
//! with timestamp splitting a unit is a group of columns, and otherwise a row.

use contend_analysis::{AnalysisOptions, Class, Plan as Analysis};
use contend_engine::{EngineOptions, Groups};
use contend_model::pieces::{DeclaredPiece, Mode, TypeSet};

use crate::accessors::RANK_MAX;

/// Consecutive pieces of a type that take effect together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// The number of its first piece, and that of its last.
    pub(super) first: usize,
    pub(super) last: usize,
    /// Its place in the order of all steps, from 1; 0 if it accesses no contended unit.
    pub(super) rank: u64,
}

/// The units of a table as a piece accesses them, by their classes, as groups. Without timestamp
/// splitting a row is one unit, and a class has all groups or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableClasses {
    /// The groups whose accesses need an order.
    pub(super) contended: Groups,
    /// The groups that the piece reads of settled rows, and accesses in no other way. If the table
    /// has no further groups these are all groups of any table.
    pub(super) settled: Groups,
    /// Whether the piece accesses the table by settled reads only.
    pub(super) is_settled: bool,
    /// Whether rows are only inserted, and read once they are settled.
    pub(super) is_appended: bool,
}

impl TableClasses {
    /// All accesses need an order.
    pub(super) const CONTENDED: TableClasses =
        TableClasses { contended: Groups::ALL, settled: Groups::NONE, is_settled: false, is_appended: false };
    /// No access needs one.
    const FREE: TableClasses = TableClasses { contended: Groups::NONE, ..TableClasses::CONTENDED };

    /// Notes which groups of a table a piece reads of settled rows. Without timestamp splitting a
    /// row is one unit: reads of a row that others change are like all others.
    fn settle(&mut self, types: &TypeSet, piece: &DeclaredPiece, table: usize) {
        let groups = |is_settled: bool| {
            let of_table = piece.accesses.iter().filter(|access| access.table == table);
            let wanted = of_table.filter(|access| (access.mode == Mode::Settled) == is_settled);
            wanted.fold(Groups::NONE, |all, access| all.union(types.groups_of(access)))
        };
        let (settled, others) = (groups(true), groups(false));
        self.is_settled = !settled.is_empty() && others.is_empty();
        let is_whole = settled.without(others).contains(Groups::first(types.tables[table].groups));
        self.settled = if is_whole { Groups::ALL } else { settled.without(others) };
    }
}

/// Where the classes of a piece stand in a [`Plan`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Place(usize);

impl Place {
    /// The place of a transaction without a type: everything is contended.
    pub(super) const OF_NONE: Place = Place(usize::MAX >> 1);
}

/// The plan of a set of types.
#[derive(Debug)]
pub(super) struct Plan {
    /// The step of each piece, by types.
    steps: Vec<Vec<Step>>,
    /// The position of each type's first classes.
    places: Vec<usize>,
    /// The classes of each table, by types and pieces.
    classes: Vec<TableClasses>,
    table_count: usize,
    /// Whether each type runs on snapshots.
    on_snapshot: Vec<bool>,
    /// Whether any does, so that transactions keep what they replace.
    pub(super) keeps_snapshots: bool,
}

impl Plan {
    /// Makes the plan of these types. With `appends`, inserts into tables without readers need no
    /// order. With `snapshots`, types that only read need none. With `ties`, sums that a step shows
    /// are none.
    ///
    /// # Errors
    /// A declaration is not valid, or there are too many ranks.
    pub(super) fn new(
        types: &TypeSet,
        engine: &EngineOptions,
        appends: bool,
        snapshots: bool,
        ties: bool,
    ) -> Result<Plan, String> {
        let options = AnalysisOptions {
            split: engine.timestamp_splitting,
            updates: engine.commit_time_updates,
            snapshots,
            appends,
        };
        let mut tied = types.clone();
        let analysis = loop {
            let analysis = Analysis::new(&tied, options).map_err(|error| error.to_string())?;
            if !ties || !tie_steps(&mut tied, &analysis) {
                break analysis;
            }
        };
        let ranks = analysis.vertices.iter().filter_map(|vertex| vertex.rank).max().unwrap_or(0);
        if u64::from(ranks) > RANK_MAX {
            return Err(format!("the declared types need {ranks} ranks; valid: up to {RANK_MAX}"));
        }
        let mut steps = Vec::new();
        for of in &analysis.types {
            let step = |group: &contend_analysis::Group| {
                let step = Step { first: group.first, last: group.last, rank: group.rank.unwrap_or(0).into() };
                std::iter::repeat_n(step, group.last + 1 - group.first)
            };
            steps.push(of.groups.iter().flat_map(step).collect());
        }
        let mut tables = vec![TableClasses::FREE; types.tables.len()];
        for unit in &analysis.units {
            let groups = if options.split { Groups::of(unit.cell as u32) } else { Groups::ALL };
            let table = &mut tables[unit.table];
            match unit.class {
                Class::Contended => table.contended = table.contended.union(groups),
                Class::Append => table.is_appended = true,
                Class::Unused | Class::Constant | Class::Sum => {}
            }
        }
        let (mut places, mut classes) = (Vec::new(), Vec::new());
        let only_inserts = types.only_inserts();
        for of in &types.types {
            places.push(classes.len());
            for piece in &of.pieces {
                let first = classes.len();
                classes.extend_from_slice(&tables);
                for table in (0..tables.len()).filter(|table| options.split || only_inserts[*table]) {
                    classes[first + table].settle(types, piece, table);
                }
            }
        }
        let on_snapshot: Vec<bool> = analysis.types.iter().map(|of| of.on_snapshot).collect();
        let keeps_snapshots = on_snapshot.contains(&true);
        Ok(Plan { steps, places, classes, table_count: tables.len(), on_snapshot, keeps_snapshots })
    }

    /// Returns the classes of a table, for each piece, to change them.
    fn classes_of(&mut self, table: usize) -> impl Iterator<Item = &mut TableClasses> {
        self.classes.iter_mut().skip(table).step_by(self.table_count)
    }

    /// Gives each piece the rank of its position: a deliberate fault of protocols.
    pub(super) fn break_by_positions(&mut self) {
        for steps in &mut self.steps {
            for (position, step) in steps.iter_mut().enumerate() {
                *step = Step { first: position, last: position, rank: position as u64 + 1 };
            }
        }
    }

    /// Takes units that one type only accesses for such as need no order: a deliberate fault of
    /// protocols.
    pub(super) fn break_by_single_types(&mut self, types: &TypeSet) {
        for table in 0..self.table_count {
            let of_table = types.accesses().filter(|(_, access)| access.table == table);
            let mut types: Vec<usize> = of_table.map(|((of, _), _)| of).collect();
            types.dedup();
            if types.len() == 1 {
                self.classes_of(table).for_each(|classes| classes.contended = Groups::NONE);
            }
        }
    }

    /// Takes units that are added to, and read, for sums: a deliberate fault of protocols.
    pub(super) fn break_by_readers(&mut self, types: &TypeSet) {
        for table in 0..self.table_count {
            let groups = |mode: Mode| {
                let of_table = types.accesses().map(|(_, access)| access).filter(|access| access.table == table);
                let wanted = of_table.filter(|access| access.mode == mode);
                wanted.fold(Groups::NONE, |all, access| all.union(types.groups_of(access)))
            };
            let others = groups(Mode::Write).union(groups(Mode::Insert)).union(groups(Mode::Delete));
            let sums = groups(Mode::Update).without(others);
            self.classes_of(table).for_each(|classes| classes.contended = classes.contended.without(sums));
        }
    }

    /// Takes tables into which rows are inserted for such as are only appended to: a deliberate
    /// fault of protocols.
    pub(super) fn break_by_inserts(&mut self, types: &TypeSet) {
        for (_, access) in types.accesses().filter(|(_, access)| access.mode == Mode::Insert) {
            self.classes_of(access.table).for_each(|classes| {
                (classes.contended, classes.is_appended) = (Groups::NONE, true);
            });
        }
    }

    /// Returns the number of types.
    pub(super) fn type_count(&self) -> usize {
        self.steps.len()
    }

    /// Returns the step of a piece of a type.
    #[inline(always)]
    pub(super) fn step(&self, of: usize, piece: usize) -> Step {
        self.steps[of][piece]
    }

    /// Whether snapshots pay. `other` is the plan of the same types without them. A type that does
    /// not run on a snapshot may have more ordered steps here, beside which others run. Or it has
    /// fewer: only readers ordered the other steps.
    pub(super) fn gains_over(&self, other: &Plan) -> bool {
        let ordered = |steps: &[Step]| {
            let firsts = steps.iter().enumerate().filter(|(piece, step)| *piece == step.first);
            firsts.filter(|(_, step)| step.rank > 0).count()
        };
        let others = (0..self.type_count()).filter(|of| !self.on_snapshot[*of]);
        others.into_iter().any(|of| ordered(&self.steps[of]) != ordered(&other.steps[of]))
    }

    /// Whether a type runs on snapshots.
    pub(super) fn is_on_snapshot(&self, of: usize) -> bool {
        self.on_snapshot[of]
    }

    /// Whether a type has a step of this rank.
    pub(super) fn has_rank(&self, of: usize, rank: u64) -> bool {
        self.steps[of].iter().any(|step| step.rank == rank)
    }

    /// Returns where the classes of a piece are.
    #[inline(always)]
    pub(super) fn place(&self, of: usize, piece: usize) -> Place {
        Place(self.places[of] + piece * self.table_count)
    }

    /// Returns the classes of a table's units. A table that was created after the declaration is
    /// accessed by no declared type.
    #[inline(always)]
    pub(super) fn classes(&self, place: Place, table: u32) -> TableClasses {
        let table = table as usize;
        let classes = self.classes.get(place.0 + table).filter(|_| table < self.table_count);
        classes.copied().unwrap_or(TableClasses::CONTENDED)
    }
}

/// Makes writes of the sums that a step changes together with contended groups of the same table:
/// both may be of one row, which the step shows as a whole. (Within one piece the analysis does
/// so.) Returns whether there was such a sum.
fn tie_steps(types: &mut TypeSet, analysis: &Analysis) -> bool {
    let mut has_tied = false;
    let is_contended = |table: usize, groups: Groups| {
        let of_table = analysis.units.iter().filter(|unit| unit.table == table && unit.class == Class::Contended);
        let split = analysis.options.split;
        of_table.into_iter().any(|unit| !split || groups.meets(Groups::of(unit.cell as u32)))
    };
    for (of, planned) in analysis.types.iter().enumerate().filter(|(_, planned)| !planned.on_snapshot) {
        for group in planned.groups.iter().filter(|group| group.first < group.last) {
            let pieces = &types.types[of].pieces[group.first..=group.last];
            let changes = pieces.iter().flat_map(|piece| &piece.accesses).filter(|access| access.mode.changes());
            let contended: Vec<usize> = changes
                .filter(|access| is_contended(access.table, types.groups_of(access)))
                .map(|access| access.table)
                .collect();
            for piece in &mut types.types[of].pieces[group.first..=group.last] {
                let sums = piece.accesses.iter_mut().filter(|access| access.mode == Mode::Update);
                for access in sums.filter(|access| contended.contains(&access.table)) {
                    access.mode = Mode::Write;
                    has_tied = true;
                }
            }
        }
    }
    has_tied
}
