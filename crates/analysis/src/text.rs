//! A plan in words.

use std::fmt::Write;

use crate::chop::Chopping;
use crate::classes::Class;
use crate::merge::{Group, Plan};
use contend_model::pieces::TypeSet;

impl Plan {
    /// Returns the plan in words, for people: the classes of units, the ranks, each type with its
    /// steps, the pieces that were merged, and the chopping. `types` is what the plan was made of.
    pub fn describe(&self, types: &TypeSet, chopping: &Chopping) -> String {
        let mut text = self.head(types);
        text += &self.classes(types);
        text += &self.steps(types);
        text += &self.merged(types);
        text += &self.chopped(types, chopping);
        text
    }

    /// Returns the plan as a graph in DOT: a column for each type, black edges in the order of the
    /// program, red ones between steps that conflict, with what they conflict about.
    pub fn to_dot(&self, types: &TypeSet) -> String {
        let mut text = String::from("digraph plan {\n  node [shape=box];\n");
        let node = |of: usize, group: usize| format!("t{of}g{group}");
        for (of, planned) in self.types.iter().enumerate() {
            let _ = writeln!(text, "  subgraph cluster_{of} {{\n    label={};", quoted(&types.types[of].name));
            for (number, group) in planned.groups.iter().enumerate() {
                let rank = group.rank.map_or(String::new(), |rank| format!("{rank} "));
                let label = quoted(&format!("{rank}{}", names(types, of, group)));
                let style = if group.rank.is_some() { "" } else { ", style=dashed" };
                let _ = writeln!(text, "    {} [label={label}{style}];", node(of, number));
            }
            for number in 1..planned.groups.len() {
                let _ = writeln!(text, "    {} -> {};", node(of, number - 1), node(of, number));
            }
            text += "  }\n";
        }
        for vertex in self.vertices.iter().filter(|vertex| vertex.rank.is_some()) {
            for (at, &first) in vertex.groups.iter().enumerate() {
                for &second in &vertex.groups[at..] {
                    let common = self.common(types, first, second);
                    if !common.is_empty() {
                        let (from, to) = (node(first.0, first.1), node(second.0, second.1));
                        let label = quoted(&common.join(", "));
                        let _ =
                            writeln!(text, "  {from} -> {to} [dir=none, color=red, constraint=false, label={label}];");
                    }
                }
            }
        }
        text + "}\n"
    }

    /// Returns the tables about which two groups conflict.
    fn common<'t>(&self, types: &'t TypeSet, first: (usize, usize), second: (usize, usize)) -> Vec<&'t str> {
        let accesses = |(of, group): (usize, usize)| {
            let group = &self.types[of].groups[group];
            let pieces = &types.types[of].pieces[group.first..=group.last];
            pieces.iter().flat_map(|piece| &piece.accesses).collect::<Vec<_>>()
        };
        let is_contended =
            |table: usize| self.units.iter().any(|unit| unit.table == table && unit.class == Class::Contended);
        let (ours, theirs) = (accesses(first), accesses(second));
        let conflict = |table: &usize| {
            is_contended(*table)
                && ours.iter().any(|a| {
                    theirs.iter().any(|b| {
                        let meet = types.groups_of(a).meets(types.groups_of(b)) || !self.options.split;
                        (a.table, b.table) == (*table, *table) && meet && (a.mode.changes() || b.mode.changes())
                    })
                })
        };
        (0..types.tables.len()).filter(conflict).map(|table| types.tables[table].name.as_str()).collect()
    }

    fn head(&self, types: &TypeSet) -> String {
        let on = |is_on| if is_on { "on" } else { "off" };
        let pieces: usize = types.types.iter().map(|of| of.pieces.len()).sum();
        let snapshots = if self.options.snapshots { ", read-only types on snapshots" } else { "" };
        format!(
            "{} types, {pieces} pieces, {} tables, {} units (ts={}, cu={}{snapshots})\n",
            types.types.len(),
            types.tables.len(),
            self.units.len(),
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
            let units: Vec<String> = of_class
                .map(|unit| {
                    let table = &types.tables[unit.table];
                    let is_whole = !self.options.split || table.groups == 1;
                    if is_whole { table.name.clone() } else { format!("{}/{}", table.name, unit.cell) }
                })
                .collect();
            if !units.is_empty() {
                let _ = writeln!(text, "{name:<10} {}: {}", units.len(), units.join(", "));
            }
        }
        text
    }

    /// Returns each type as a line: groups with a rank in brackets, the others as they are.
    fn steps(&self, types: &TypeSet) -> String {
        let width = types.types.iter().map(|of| of.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for (of, (declared, planned)) in types.types.iter().zip(&self.types).enumerate() {
            let steps = planned.groups.iter().map(|group| {
                let names = names(types, of, group);
                group.rank.map_or(names.clone(), |rank| format!("[{rank} {names}]"))
            });
            let steps: Vec<String> = steps.collect();
            let snapshot = if planned.on_snapshot { "on a snapshot: " } else { "" };
            let _ = writeln!(text, "{:<width$}  {snapshot}{}", declared.name, steps.join(" "));
        }
        text
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
        let divided = types.types.iter().zip(&chopping.types).enumerate().filter(|(_, (_, to))| !to.on_snapshot);
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

/// Returns a text as a string of DOT.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the names of a group's pieces.
fn names(types: &TypeSet, of: usize, group: &Group) -> String {
    let pieces = &types.types[of].pieces[group.first..=group.last];
    pieces.iter().map(|piece| piece.name.as_str()).collect::<Vec<_>>().join("+")
}
