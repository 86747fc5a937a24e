//! A plan in words.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::chop::{Chopped, Chopping};
use crate::classes::Class;
use crate::conflicts::{Conflict, Step};
use crate::hints::Hints;
use crate::merge::{Group, Plan};
use crate::waits::{Until, Wait, Waits};
use contend_model::counted;
use contend_model::pieces::{TransactionType, TypeSet};

/// The most lines about one topic. A number says how many more there are.
const LINES_MAX: usize = 20;
/// The most names of steps in a list.
const NAMES_MAX: usize = 8;
/// The most names of pieces of one step, in a list of steps.
const PIECES_MAX: usize = 3;

impl Plan {
    /// Returns the plan in words, for people: the classes of units, each type with its steps, the
    /// ranks, conflicts, cycles, merged pieces, waits and cancels, the chopping, and hints. `types`
    /// is what the plan was made of.
    ///
    /// Long lists are shortened. [`Plan::conflicts`], [`Plan::waits`] and the like return all.
    pub fn describe(&self, types: &TypeSet, chopping: &Chopping) -> String {
        let conflicts = self.conflicts(types);
        let mut text = self.head(types);
        text += &self.classes(types);
        text += &self.steps(types);
        text += &section("ranks", "none", self.ranks(types));
        text += &section("C-edges", "none", conflicts.iter().map(|conflict| self.c_edges(types, conflict)));
        text += &section("SC-cycles", "none", self.cycle_lines(types));
        text += &self.merged(types);
        text += &section("waits", "none", self.wait_lines(types, self.waits(types, &conflicts)));
        text += &section("cancels", "none", self.cancel_lines(types, chopping));
        text += &self.chopped(types, chopping);
        let Hints { hints, incomplete } = Hints::new(types, self);
        text += &section("hints", "none", hints.into_iter().map(|hint| hint.text).chain(incomplete));
        text
    }

    fn head(&self, types: &TypeSet) -> String {
        let on = |is_on| if is_on { "on" } else { "off" };
        let pieces: usize = types.types.iter().map(|of| of.pieces.len()).sum();
        let snapshots = if self.options.snapshots { ", read-only types on snapshots" } else { "" };
        format!(
            "{}, {}, {}, {} (ts={}, cu={}{snapshots})\n",
            counted(types.in_use().count(), "type"),
            counted(pieces, "piece"),
            counted(types.tables.len(), "table"),
            counted(self.units.len(), "unit"),
            on(self.options.split),
            on(self.options.updates),
        )
    }

    fn classes(&self, types: &TypeSet) -> String {
        let mut text = String::new();
        for (class, name) in [
            (Class::Contended, "contended"),
            (Class::Constant, "constant"),
            (Class::Sum, "sum"),
            (Class::Append, "append"),
            (Class::Unused, "unused"),
        ] {
            let of_class = self.units.iter().filter(|unit| unit.class == class);
            let units: Vec<String> = of_class.map(|unit| self.unit(types, unit.table, unit.cell)).collect();
            if !units.is_empty() {
                let _ = writeln!(text, "{name:<10} {}: {}", units.len(), units.join(", "));
            }
        }
        text
    }

    /// Returns each type as a line: groups with a rank in brackets, the others as they are.
    fn steps(&self, types: &TypeSet) -> String {
        let width = types.in_use().map(|of| of.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        let with_steps = |(_, (declared, _)): &(usize, (&TransactionType, _))| !declared.pieces.is_empty();
        for (of, (declared, planned)) in types.types.iter().zip(&self.types).enumerate().filter(with_steps) {
            let steps = planned.groups.iter().map(|group| {
                let names = names(types, of, group);
                group.rank.map_or(names.clone(), |rank| format!("[{rank} {names}]"))
            });
            let steps: Vec<String> = steps.collect();
            let snapshot = if planned.on_snapshot { "on a snapshot: " } else { "" };
            let _ = writeln!(text, "{:<width$}  {snapshot}{}", declared.name, steps.join(" "));
        }
        let left_out = types.types.iter().filter(|of| of.pieces.is_empty()).map(|of| of.name.as_str());
        let left_out: Vec<&str> = left_out.collect();
        if !left_out.is_empty() {
            let _ = writeln!(text, "never run  {}", left_out.join(", "));
        }
        text
    }

    /// Returns a unit in words: the table, with the cell if there are several.
    pub(crate) fn unit(&self, types: &TypeSet, table: usize, cell: usize) -> String {
        let table = &types.tables[table];
        let is_whole = !self.options.split || table.groups == 1;
        if is_whole { table.name.clone() } else { format!("{}/{cell}", table.name) }
    }

    /// Returns a step in words: its type and its pieces.
    fn step(&self, types: &TypeSet, (of, group): Step) -> String {
        format!("{}.{}", types.types[of].name, short_names(types, of, &self.types[of].groups[group]))
    }

    fn step_list(&self, types: &TypeSet, steps: &[Step]) -> String {
        list(steps.iter().map(|step| self.step(types, *step)))
    }

    /// Returns each rank as a line, with the steps at it.
    fn ranks<'a>(&'a self, types: &'a TypeSet) -> impl Iterator<Item = String> + 'a {
        let ranked = self.vertices.iter().filter_map(|vertex| vertex.rank.map(|rank| (rank, &vertex.groups)));
        ranked.map(|(rank, groups)| format!("{rank} {}", self.step_list(types, groups)))
    }

    fn c_edges(&self, types: &TypeSet, conflict: &Conflict) -> String {
        let unit = self.unit(types, conflict.table, conflict.cell);
        let changers = self.step_list(types, &conflict.changed_by);
        if conflict.read_by.is_empty() {
            return format!("{unit}: changed by {changers}");
        }
        format!("{unit}: changed by {changers}; read by {}", self.step_list(types, &conflict.read_by))
    }

    fn cycle_lines<'a>(&'a self, types: &'a TypeSet) -> impl Iterator<Item = String> + 'a {
        self.cycles(types).into_iter().map(|cycle| {
            let (declared, groups_of_type) = (&types.types[cycle.of], &self.types[cycle.of].groups);
            let (first, last) = cycle.pieces;
            let place = format!("{}: {}..{}", declared.name, declared.pieces[first].name, declared.pieces[last].name);
            let named = |groups: &[usize]| {
                let names = groups.iter().map(|group| short_names(types, cycle.of, &groups_of_type[*group]));
                names.collect::<Vec<_>>().join(", ")
            };
            let mut line = format!("{place}, {}", if cycle.ordered > 1 { "ordered by ranks" } else { "one step" });
            if !cycle.merged.is_empty() {
                line += &format!("; {} had to be merged", named(&cycle.merged));
            }
            if !cycle.joined.is_empty() {
                line += &format!("; {} joined by common conflicts", named(&cycle.joined));
            }
            line
        })
    }

    fn wait_lines(&self, types: &TypeSet, waits: Option<Waits>) -> Vec<String> {
        let Some(Waits { beyond_partners, until_partners }) = waits else {
            return vec!["there are too many pairs of types and steps to tell".into()];
        };
        // Waits of a step that end with others are one line.
        let mut kinds: BTreeMap<(Step, Option<Step>), Vec<usize>> = BTreeMap::new();
        for Wait { step, after, until } in beyond_partners {
            let later = match until {
                Until::Shown(group) => Some((after, group)),
                Until::End => None,
            };
            kinds.entry((step, later)).or_default().push(after);
        }
        let line = |(&(step, later), after): (&(Step, Option<Step>), &Vec<usize>)| {
            let rank = self.types[step.0].groups[step.1].rank.unwrap_or_default();
            let names = list(after.iter().map(|after| types.types[*after].name.clone()));
            let step = self.step(types, step);
            match later {
                Some(later) => {
                    let later = self.step(types, later);
                    format!("{step} after {names}: until {later} is shown (it has nothing of rank {rank})")
                }
                None if after.len() == 1 => {
                    format!("{step} after {names}: until its end (it has nothing of rank {rank} or later)")
                }
                None => format!("{step} after {names}: until their ends (they have nothing of rank {rank} or later)"),
            }
        };
        // The last line says what holds for all others, so it must not be cut off.
        let mut lines: Vec<String> = kinds.iter().take(LINES_MAX - 2).map(line).collect();
        if kinds.len() > lines.len() {
            lines.push(format!("and {} more that end later than at a partner", kinds.len() - lines.len()));
        }
        if until_partners > 0 {
            let others = if lines.is_empty() { "all" } else { "all others" };
            lines.push(format!("{others}: until the partner is shown"));
        }
        lines
    }

    fn cancel_lines<'a>(&'a self, types: &'a TypeSet, chopping: &Chopping) -> impl Iterator<Item = String> + 'a {
        self.cancels(types, chopping).into_iter().map(|cancel| {
            let place =
                format!("{} in {}", types.types[cancel.of].name, types.types[cancel.of].pieces[cancel.piece].name);
            match cancel.shown {
                None => format!("{place}: before anything is shown"),
                Some(group) => {
                    let shown = short_names(types, cancel.of, &self.types[cancel.of].groups[group]);
                    format!("{place}: after {shown} was shown to others; those that saw it abort too")
                }
            }
        })
    }

    fn merged(&self, types: &TypeSet) -> String {
        let groups = self.vertices.iter().filter(|vertex| vertex.is_merged).flat_map(|vertex| &vertex.groups);
        let several = groups.filter_map(|&(of, group)| {
            let group = &self.types[of].groups[group];
            (group.first < group.last).then(|| format!("{}: {}", types.types[of].name, names(types, of, group)))
        });
        let several: Vec<String> = several.collect();
        let list = if several.is_empty() { "none".into() } else { several.join("; ") };
        format!("merged     {list}\n")
    }

    fn chopped(&self, types: &TypeSet, chopping: &Chopping) -> String {
        let runs = |to: &Chopped| !to.on_snapshot && !to.parts.is_empty();
        let divided = types.types.iter().zip(&chopping.types).enumerate().filter(|(_, (_, to))| runs(to));
        let divided = divided.map(|(of, (declared, chopped))| match chopped.late_cancel {
            Some(piece) => {
                format!("{} can't be chopped: it may cancel in {}", declared.name, declared.pieces[piece].name)
            }
            None => {
                let part = |&(first, last): &(usize, usize)| {
                    names(types, of, &Group { first, last, vertex: None, rank: None })
                };
                let parts: Vec<String> = chopped.parts.iter().map(part).collect();
                format!("{} -> {}", declared.name, parts.join(" | "))
            }
        });
        let divided: Vec<String> = divided.collect();
        format!("chopping   {}\n", divided.join("; "))
    }
}

/// Returns the names of a group's pieces.
pub(crate) fn names(types: &TypeSet, of: usize, group: &Group) -> String {
    let pieces = &types.types[of].pieces[group.first..=group.last];
    pieces.iter().map(|piece| piece.name.as_str()).collect::<Vec<_>>().join("+")
}

/// Returns the names of a group's pieces, or the first, the last and the number of many.
pub(crate) fn short_names(types: &TypeSet, of: usize, group: &Group) -> String {
    let count = group.last - group.first + 1;
    if count <= PIECES_MAX {
        return names(types, of, group);
    }
    let pieces = &types.types[of].pieces;
    format!("{}+..+{} ({count} pieces)", pieces[group.first].name, pieces[group.last].name)
}

/// Returns the first names of a list.
fn list(names: impl ExactSizeIterator<Item = String>) -> String {
    let more = names.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    format!("{}{more}", names.take(NAMES_MAX).collect::<Vec<_>>().join(", "))
}

/// Returns a title with the first lines of many, each behind the same margin.
fn section(title: &str, none: &str, lines: impl IntoIterator<Item = String>) -> String {
    let mut lines = lines.into_iter();
    let mut shown: Vec<String> = lines.by_ref().take(LINES_MAX).collect();
    let more = lines.count();
    if more > 0 {
        shown.push(format!("and {more} more"));
    }
    if shown.is_empty() {
        shown.push(none.into());
    }
    let titles = std::iter::once(title).chain(std::iter::repeat(""));
    titles.zip(shown).map(|(title, line)| format!("{title:<10} {line}\n")).collect()
}
