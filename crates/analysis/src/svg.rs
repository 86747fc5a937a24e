//! A plan as a picture in SVG.
//!
//! Types are columns, and time goes downwards. All steps of one rank are in one row, on a band
//! across the columns. Steps without a rank are in rows between the bands. So an edge in the order
//! of the program (S-edge) goes down, and a conflict (C-edge) stays on its band. No layout engine
//! is needed.
//!
//! The C-edges about one unit are one horizontal line below the steps, with a dot under each step
//! that accesses the unit. A filled dot is a change, and an empty one a read. Lines between all
//! pairs would be too many to be read.

use std::fmt::Write;

use crate::conflicts::{Conflict, Step};
use crate::merge::{Group, Plan, TypePlan};
use crate::text::short_names;
use contend_model::counted;
use contend_model::pieces::TypeSet;

/// Sizes in pixels.
const BOX: usize = 28;
const SPACE: usize = 40;
const HEAD: usize = 48;
const MARGIN: usize = 36;
const GAP: usize = 56;
const PER_CHARACTER: usize = 8;
/// The room above and below the boxes of a band.
const PAD: usize = 10;
/// The distance between the lines of units.
const LANE: usize = 18;
/// The distance between the dots' columns of one box.
const DOT: usize = 10;

/// The most lines of units below each other on one band. A number says how many units are left out.
const LANES_MAX: usize = 30;
/// The most characters of a label. The title of a box has all.
const LABEL_MAX: usize = 40;

/// The colours, on light paper and on dark.
const STYLE: &str = "\
.paper { fill: #ffffff } text { fill: #1c1c1c; font: 12px ui-monospace, monospace; text-anchor: middle } \
.head { font-weight: bold } .band { fill: #808080; fill-opacity: 0.14 } .box { fill: #ffffff; stroke: #1c1c1c } \
.untracked .box { stroke-dasharray: 4 3 } .merged .box { fill: #f3c969 } .s { stroke: #1c1c1c } .tip { fill: #1c1c1c } \
.c { stroke: #c62828; fill: none } .write { fill: #c62828; stroke: #c62828 } .read { fill: #ffffff; stroke: #c62828 } \
.unit { fill: #c62828; font-size: 11px; text-anchor: start; stroke: #ffffff; stroke-width: 3px; paint-order: stroke } \
@media (prefers-color-scheme: dark) { .paper { fill: #161616 } text { fill: #eeeeee } \
.box { fill: #262626; stroke: #eeeeee } .merged .box { fill: #775700 } .s { stroke: #eeeeee } .tip { fill: #eeeeee } \
.c { stroke: #ff7b72 } .write { fill: #ff7b72; stroke: #ff7b72 } .read { fill: #161616; stroke: #ff7b72 } \
.unit { fill: #ff7b72; stroke: #161616 } }";

impl Plan {
    /// Returns the plan as a picture in SVG: types as columns, a band for each rank, black edges
    /// downwards in the order of the program, and a red line for each unit that steps conflict
    /// about. Steps of several pieces are filled, and those without a rank have a dashed edge.
    pub fn to_svg(&self, types: &TypeSet) -> String {
        let layout = Layout::new(self, types);
        let (width, height) = (layout.width, layout.height);
        let mut text = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\">\n<style>{STYLE}</style>\n<defs><marker id=\"arrow\" markerWidth=\"8\" \
             markerHeight=\"8\" refX=\"7\" refY=\"4\" orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8Z\"/></marker>\
             </defs>\n<rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n"
        );
        for Band { rank, row, lanes, .. } in &layout.bands {
            let (y, x, middle) = (layout.tops[*row] - PAD, MARGIN / 2, layout.tops[*row] + BOX / 2 + 4);
            let height = BOX + 2 * PAD + lanes * LANE;
            let _ = writeln!(
                text,
                "<rect class=\"band\" y=\"{y}\" width=\"{width}\" height=\"{height}\"/>\
                 <text x=\"{x}\" y=\"{middle}\">{rank}</text>"
            );
        }
        layout.draw_edges(&mut text);
        let drawn = |(_, planned): &(usize, &TypePlan)| !planned.groups.is_empty();
        for (of, planned) in self.types.iter().enumerate().filter(drawn) {
            let name = escaped(&shortened(&types.types[of].name));
            let _ = writeln!(text, "<text class=\"head\" x=\"{}\" y=\"22\">{name}</text>", layout.middle(of));
            for (number, group) in planned.groups.iter().enumerate() {
                self.draw_step(types, &layout, (of, number), group, &mut text);
            }
        }
        text + "</svg>\n"
    }

    fn draw_step(&self, types: &TypeSet, layout: &Layout, (of, number): Step, group: &Group, text: &mut String) {
        let ((x, width), y) = (layout.columns[of], layout.tops[layout.rows[of][number]]);
        let class = match (group.rank, group.first < group.last) {
            (None, _) => "step untracked",
            (Some(_), true) => "step merged",
            (Some(_), false) => "step",
        };
        let names = short_names(types, of, group);
        let rank = group.rank.map_or("without a rank".into(), |rank| format!("of rank {rank}"));
        let title = escaped(&format!("{}: {names}, {rank}", types.types[of].name));
        let label = escaped(&shortened(&names));
        let _ = writeln!(
            text,
            "<g id=\"t{of}g{number}\" class=\"{class}\"><title>{title}</title><rect class=\"box\" x=\"{x}\" y=\"{y}\" \
             width=\"{width}\" height=\"{BOX}\" rx=\"4\"/><text x=\"{}\" y=\"{}\">{label}</text></g>",
            x + width / 2,
            y + BOX / 2 + 4
        );
    }
}

/// A rank in the picture.
struct Band {
    rank: u32,
    row: usize,
    lines: Vec<Line>,
    /// The number of lanes, with one for the number of units that are left out.
    lanes: usize,
    /// Units that are left out.
    more: usize,
}

/// The line of a unit.
struct Line {
    /// Its place among the lines below each other.
    lane: usize,
    /// The unit in words.
    label: String,
    /// The types that access the unit, each with whether it changes the unit.
    types: Vec<(usize, bool)>,
}

/// Where everything stands.
struct Layout {
    /// The left edge and the width of each type's boxes.
    columns: Vec<(usize, usize)>,
    /// The row of each step of each type.
    rows: Vec<Vec<usize>>,
    /// The top of the boxes of each row.
    tops: Vec<usize>,
    bands: Vec<Band>,
    width: usize,
    height: usize,
}

impl Layout {
    fn new(plan: &Plan, types: &TypeSet) -> Layout {
        let mut columns = Vec::new();
        let mut x = MARGIN;
        for (of, planned) in plan.types.iter().enumerate() {
            if planned.groups.is_empty() {
                // A type that never runs has no column.
                columns.push((x, 0));
                continue;
            }
            let labels = planned.groups.iter().map(|group| width_of(&shortened(&short_names(types, of, group))));
            let width = labels.chain([width_of(&shortened(&types.types[of].name))]).max().unwrap_or(0) + 16;
            columns.push((x, width));
            x += width + GAP;
        }
        let ranks = plan.vertices.iter().filter_map(|vertex| vertex.rank).max().unwrap_or(0) as usize;
        // The rows that follow each rank, and at 0 those before the first.
        let mut between = vec![0; ranks + 1];
        for (rank, behind) in plan.types.iter().flat_map(places) {
            between[rank] = between[rank].max(behind);
        }
        // Rank 0 does not exist: the rows before rank 1 begin at row 0.
        let mut row_of_rank = vec![0; ranks + 1];
        for rank in 1..=ranks {
            row_of_rank[rank] = row_of_rank[rank - 1] + between[rank - 1] + 1;
        }
        let row = |(rank, behind): (usize, usize)| row_of_rank[rank] + behind - 1;
        let rows = plan.types.iter().map(|of| places(of).map(row).collect()).collect();
        let mut bands: Vec<Band> = (1..=ranks)
            .map(|rank| Band { rank: rank as u32, row: row((rank, 0)), lines: Vec::new(), lanes: 0, more: 0 })
            .collect();
        let mut right = x + MARGIN - GAP.min(x);
        let mut ends: Vec<Vec<usize>> = vec![Vec::new(); ranks];
        for conflict in plan.conflicts(types) {
            let rank = conflict.rank as usize - 1;
            let label = shortened(&plan.unit(types, conflict.table, conflict.cell));
            right = right.max(bands[rank].add(&columns, label, &conflict, &mut ends[rank]));
        }
        let mut tops = Vec::new();
        let mut y = HEAD;
        for row in 0..row_of_rank[ranks] + between[ranks] {
            let band = bands.binary_search_by_key(&row, |band| band.row).ok();
            tops.push(y);
            y += BOX + SPACE + band.map_or(0, |band| bands[band].lanes * LANE);
        }
        Layout { columns, rows, tops, bands, width: right, height: y }
    }

    fn middle(&self, of: usize) -> usize {
        self.columns[of].0 + self.columns[of].1 / 2
    }

    /// Returns where the line in this lane meets the box of a type. Neighbouring lanes meet it at
    /// different places, if the box is wide enough.
    fn dot(&self, of: usize, lane: usize) -> usize {
        let (x, width) = self.columns[of];
        x + 6 + lane * DOT % (width - 12)
    }

    fn draw_edges(&self, text: &mut String) {
        for (of, rows) in self.rows.iter().enumerate() {
            for pair in rows.windows(2) {
                let (x, from, to) = (self.middle(of), self.tops[pair[0]] + BOX, self.tops[pair[1]]);
                let _ = writeln!(
                    text,
                    "<line class=\"s\" x1=\"{x}\" y1=\"{from}\" x2=\"{x}\" y2=\"{to}\" marker-end=\"url(#arrow)\"/>"
                );
            }
        }
        for Band { row, lines, lanes, more, .. } in &self.bands {
            let bottom = self.tops[*row] + BOX;
            for Line { lane, label, types } in lines {
                let y = bottom + (lane + 1) * LANE;
                let dots = || types.iter().map(|&(of, changes)| (self.dot(of, *lane), changes));
                let (Some(first), Some(last)) = (dots().map(|dot| dot.0).min(), dots().map(|dot| dot.0).max()) else {
                    continue;
                };
                let _ = write!(text, "<path class=\"c\" d=\"M{first} {y}H{last}");
                dots().for_each(|(x, _)| _ = write!(text, "M{x} {bottom}V{y}"));
                *text += "\"/>";
                for (x, changes) in dots() {
                    let class = if changes { "write" } else { "read" };
                    let _ = write!(text, "<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"3\"/>");
                }
                let (x, y, label) = (first + 6, y - 3, escaped(label));
                let _ = writeln!(text, "<text class=\"unit\" x=\"{x}\" y=\"{y}\">{label}</text>");
            }
            if *more > 0 {
                let (y, units) = (bottom + lanes * LANE, counted(*more, "more unit"));
                let _ = writeln!(text, "<text class=\"unit\" x=\"{MARGIN}\" y=\"{y}\">and {units}</text>");
            }
        }
    }
}

impl Band {
    /// Adds the line of a unit, in the first lane that is free from the first box to the last. A
    /// lane's end is where its last line ends. Returns the right end of what was added.
    fn add(&mut self, columns: &[(usize, usize)], label: String, conflict: &Conflict, ends: &mut Vec<usize>) -> usize {
        let changers = conflict.changed_by.iter().map(|(of, _)| (*of, true));
        let mut types: Vec<(usize, bool)> =
            changers.chain(conflict.read_by.iter().map(|(of, _)| (*of, false))).collect();
        types.sort_unstable();
        let (Some((first, _)), Some((last, _))) = (types.first(), types.last()) else { return 0 };
        let (begin, end) = (columns[*first].0, columns[*last].0 + columns[*last].1);
        // The label begins at the dot, which is somewhere in the first box.
        let end = end.max(begin + columns[*first].1 + width_of(&label) + PAD);
        let lane = ends.iter().position(|taken| *taken < begin).unwrap_or(ends.len());
        if lane == LANES_MAX {
            self.more += 1;
            self.lanes = LANES_MAX + 1;
            return 0;
        }
        match ends.get_mut(lane) {
            Some(taken) => *taken = end,
            None => ends.push(end),
        }
        self.lanes = self.lanes.max(lane + 1);
        self.lines.push(Line { lane, label, types });
        end
    }
}

/// Returns the place of each step: the last rank up to it, and the number of steps behind that.
fn places(of: &TypePlan) -> impl Iterator<Item = (usize, usize)> {
    of.groups.iter().scan((0, 0), |place, group| {
        *place = group.rank.map_or((place.0, place.1 + 1), |rank| (rank as usize, 0));
        Some(*place)
    })
}

/// Returns the width of a text in pixels, about. Letters of some scripts are twice as wide.
fn width_of(text: &str) -> usize {
    text.chars().map(|letter| if letter.is_ascii() { PER_CHARACTER } else { 2 * PER_CHARACTER }).sum()
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= LABEL_MAX {
        return text.into();
    }
    text.chars().take(LABEL_MAX - 1).chain(['…']).collect()
}

/// Returns a text as text or attribute of XML. Characters that XML can't have are replaced.
fn escaped(text: &str) -> String {
    let mut to = String::new();
    for letter in text.chars() {
        match letter {
            '<' => to += "&lt;",
            '>' => to += "&gt;",
            '&' => to += "&amp;",
            '"' => to += "&quot;",
            '\'' => to += "&apos;",
            '\u{fffe}' | '\u{ffff}' => to.push('\u{fffd}'),
            _ if letter.is_control() => to.push('\u{fffd}'),
            _ => to.push(letter),
        }
    }
    to
}
