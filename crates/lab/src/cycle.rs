//! The cycle of an anomaly, as a picture: transactions on a circle, and an arrow from each to the one that has to come after it.

use std::f64::consts::TAU;
use std::fmt::Write;

use contend_history::Anomaly;

use crate::report::escape;
use crate::result::CycleEdge;

/// Longer cycles are told in words only: their labels would lie on one another.
const TRANSACTIONS_MAX: usize = 8;
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 320.0;
const CIRCLE: f64 = 95.0;
const NODE: f64 = 30.0;
/// How long an arrow's head is, and half as wide.
const HEAD: f64 = 9.0;

/// The edges of an anomaly that is a cycle; none of another.
pub(crate) fn edges(anomaly: &Anomaly) -> Vec<CycleEdge> {
    let edge = |(number, step): (usize, &contend_history::Step)| {
        let next = &anomaly.steps[(number + 1) % anomaly.steps.len()];
        Some(CycleEdge {
            from: step.txn,
            to: next.txn,
            dependency: step.dependency?.to_string(),
            key: format!("{}/{}", step.table, step.key),
            reason: step.reason.clone(),
        })
    };
    anomaly.steps.iter().enumerate().map(edge).collect::<Option<_>>().unwrap_or_default()
}

/// A drawing for the report; empty if there is nothing to draw.
pub(crate) fn svg(cycle: &[CycleEdge]) -> String {
    if !(2..=TRANSACTIONS_MAX).contains(&cycle.len()) {
        return String::new();
    }
    let (middle_x, middle_y) = (WIDTH / 2.0, HEIGHT / 2.0);
    let direction = |turn: f64| ((turn * TAU).sin(), -(turn * TAU).cos());
    let count = cycle.len() as f64;
    // Two stand beside one another, and not one above the other, where their labels would be wide.
    let start = if cycle.len() == 2 { -0.25 } else { 0.0 };
    let (mut arrows, mut nodes) = (String::new(), String::new());
    for (number, edge) in cycle.iter().enumerate() {
        let turn = start + number as f64 / count;
        let at = |turn: f64| {
            let (x, y) = direction(turn);
            (middle_x + x * CIRCLE * if cycle.len() == 2 { 1.6 } else { 1.0 }, middle_y + y * CIRCLE)
        };
        let ((from_x, from_y), (to_x, to_y)) = (at(turn), at(turn + 1.0 / count));
        // Outwards of the middle of the edge, so that there and back are two lines.
        let (out_x, out_y) = direction(turn + 0.5 / count);
        let bend = if cycle.len() == 2 { 110.0 } else { 34.0 };
        let (bend_x, bend_y) = ((from_x + to_x) / 2.0 + out_x * bend, (from_y + to_y) / 2.0 + out_y * bend);
        // A line ends at the edge of a node, seen from where it bends.
        let off = |x: f64, y: f64, by: f64| {
            let length = (bend_x - x).hypot(bend_y - y);
            (x + (bend_x - x) / length * by, y + (bend_y - y) / length * by)
        };
        let ((x1, y1), (x2, y2)) = (off(from_x, from_y, NODE), off(to_x, to_y, NODE + HEAD));
        let (tip_x, tip_y) = off(to_x, to_y, NODE);
        let (wing_x, wing_y) = ((tip_y - y2) / 2.0, (x2 - tip_x) / 2.0);
        let _ = write!(
            arrows,
            "<path d=\"M{x1:.1} {y1:.1}Q{bend_x:.1} {bend_y:.1} {x2:.1} {y2:.1}\" fill=\"none\" stroke=\"currentColor\"/>\
             <path d=\"M{tip_x:.1} {tip_y:.1}L{:.1} {:.1}L{:.1} {:.1}Z\" fill=\"currentColor\"/>",
            x2 + wing_x,
            y2 + wing_y,
            x2 - wing_x,
            y2 - wing_y
        );
        let (label_x, label_y) = (
            (from_x + to_x) / 4.0 + bend_x / 2.0 + out_x * 12.0,
            (from_y + to_y) / 4.0 + bend_y / 2.0 + out_y * 16.0 + 4.0,
        );
        let anchor = match out_x {
            x if x > 0.3 => "start",
            x if x < -0.3 => "end",
            _ => "middle",
        };
        let _ = write!(
            arrows,
            "<text x=\"{label_x:.1}\" y=\"{label_y:.1}\" text-anchor=\"{anchor}\" font-size=\"13\" fill=\"currentColor\">{} {}</text>",
            escape(&edge.dependency),
            escape(&edge.key)
        );
        let _ = write!(
            nodes,
            "<circle cx=\"{from_x:.1}\" cy=\"{from_y:.1}\" r=\"{NODE}\" fill=\"none\" stroke=\"currentColor\"/>\
             <text x=\"{from_x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" fill=\"currentColor\">T{}</text>",
            from_y + 4.5,
            edge.from
        );
    }
    let words: Vec<String> = cycle.iter().map(|edge| edge.reason.clone()).collect();
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{0}\" style=\"max-width:{WIDTH}px\"><title>{0}</title>{arrows}{nodes}</svg>",
        escape(&format!("A cycle of dependencies: {}", words.join("; ")))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(count: u64) -> Vec<CycleEdge> {
        let edge = |number: u64| CycleEdge {
            from: number + 1,
            to: (number + 1) % count + 1,
            dependency: "rw".into(),
            key: format!("<t>/{number}"),
            reason: format!("reason {number}"),
        };
        (0..count).map(edge).collect()
    }

    #[test]
    fn each_transaction_and_each_dependency_is_drawn() {
        for count in [2, 3, TRANSACTIONS_MAX as u64] {
            let picture = svg(&ring(count));
            assert_eq!(picture.matches("<circle").count(), count as usize);
            assert_eq!(picture.matches("Z\"").count(), count as usize);
            for number in 0..count {
                let parts =
                    [format!(">T{}<", number + 1), format!("rw &lt;t&gt;/{number}<"), format!("reason {number}")];
                assert!(parts.iter().all(|part| picture.contains(part)), "{picture}");
            }
            assert!(!picture.contains("NaN") && !picture.contains("<t>"), "{picture}");
        }
    }

    #[test]
    fn what_is_no_cycle_or_a_very_long_one_is_not_drawn() {
        assert_eq!(svg(&[]), "");
        assert_eq!(svg(&ring(TRANSACTIONS_MAX as u64 + 1)), "");
    }
}
