//! A plan as a graph in DOT.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::conflicts::{Conflict, Step};
use crate::merge::{Plan, TypePlan};
use crate::text::names;
use contend_model::pieces::TypeSet;

/// The most units that the label of an edge names.
const LABELS_MAX: usize = 4;

impl Plan {
    /// Returns the plan as a graph in DOT: a column for each type, black edges in the order of the
    /// program, red ones between steps that conflict, with what they conflict about.
    pub fn to_dot(&self, types: &TypeSet) -> String {
        let mut text = String::from("digraph plan {\n  node [shape=box];\n");
        let node = |of: usize, group: usize| format!("t{of}g{group}");
        let drawn = |(_, planned): &(usize, &TypePlan)| !planned.groups.is_empty();
        for (of, planned) in self.types.iter().enumerate().filter(drawn) {
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
        for Edge { from, to, label } in self.drawn_conflicts(types) {
            let (from, to, label) = (node(from.0, from.1), node(to.0, to.1), quoted(&label));
            let _ = writeln!(text, "  {from} -> {to} [dir=none, color=red, constraint=false, label={label}];");
        }
        text + "}\n"
    }

    /// Returns the C-edges between steps, with the units of each in words. The first step of an
    /// edge comes first in the declaration; a step may conflict with itself in another instance.
    fn drawn_conflicts(&self, types: &TypeSet) -> Vec<Edge> {
        // The first units of each edge, and the number of all.
        let mut units = BTreeMap::<(Step, Step), (Vec<(usize, usize)>, usize)>::new();
        for Conflict { table, cell, changed_by, read_by, .. } in self.conflicts(types) {
            for (at, &step) in changed_by.iter().enumerate() {
                for &other in changed_by[at..].iter().chain(&read_by) {
                    let (first, count) = units.entry((step.min(other), step.max(other))).or_default();
                    *count += 1;
                    if first.len() < LABELS_MAX {
                        first.push((table, cell));
                    }
                }
            }
        }
        let edges = units.into_iter().map(|((from, to), (first, count))| {
            let names = first.iter().map(|&(table, cell)| self.unit(types, table, cell));
            let more = (count > first.len()).then(|| format!("{} more", count - first.len()));
            Edge { from, to, label: names.chain(more).collect::<Vec<_>>().join(", ") }
        });
        edges.collect()
    }
}

/// A C-edge as it is drawn.
struct Edge {
    from: Step,
    to: Step,
    label: String,
}

/// Returns a text as a string of DOT.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
