//! A picture of an anomaly's cycle: transactions below one another, with an arrow from each to the
//! one that must come after it.

use std::fmt::Write;

use contend_judge::CycleEdge;

use super::{escape, shortened};

/// The longest cycle that is drawn. A longer picture is hard to follow, so a longer cycle is told
/// in words only.
const TRANSACTIONS_MAX: usize = 8;
/// Sizes in pixels: of a transaction's box, and of the gap to the next.
const BOX_X: f64 = 26.0;
const BOX_WIDTH: f64 = 84.0;
const BOX_HEIGHT: f64 = 32.0;
const GAP: f64 = 50.0;
/// Letters of a key that fit beside an arrow.
const LETTERS: usize = 31;
/// The width of a file, in pixels: the boxes, and the longest key beside them.
const FILE_WIDTH: u32 = 360;
/// The length of an arrow's head; its width is half of that.
const HEAD: f64 = 9.0;

/// Returns the picture, or nothing for a cycle that is too short or too long. The picture is as
/// narrow as a phone, so its text is never scaled.
pub(crate) fn svg(cycle: &[CycleEdge]) -> String {
    drawn(cycle, "").map_or_else(String::new, |svg| format!("<div class=\"chart\">{svg}</div>"))
}

/// Returns the picture as a file of its own, which is dark on light. `None` for a cycle that is too
/// short or too long.
pub fn svg_file(cycle: &[CycleEdge]) -> Option<String> {
    let style = "<style>text{font:13px system-ui,sans-serif;fill:#222}.b{font-weight:600}.r{stroke:#222;stroke-width:1.5}\
                 path:not(.r){fill:#222}</style><rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>";
    let svg = drawn(cycle, style)?;
    Some(svg.replacen("<svg", &format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{FILE_WIDTH}\""), 1))
}

/// Draws the cycle behind `style`.
fn drawn(cycle: &[CycleEdge], style: &str) -> Option<String> {
    if !(2..=TRANSACTIONS_MAX).contains(&cycle.len()) {
        return None;
    }
    let middle = BOX_X + BOX_WIDTH / 2.0;
    let top_of = |number: usize| 12.0 + number as f64 * (BOX_HEIGHT + GAP);
    let mut body = String::new();
    for (number, edge) in cycle.iter().enumerate() {
        let (top, bottom) = (top_of(number), top_of(number) + BOX_HEIGHT);
        let (way, x, y, angle) = match number + 1 == cycle.len() {
            false => (format!("M{middle} {bottom}V{}", bottom + GAP - HEAD), middle, bottom + GAP, 90),
            // The last arrow goes back to the first box, along the left side.
            true => {
                let first = top_of(0) + BOX_HEIGHT / 2.0;
                (format!("M{middle} {bottom}V{}H10V{first}H{}", bottom + GAP / 2.0, BOX_X - HEAD), BOX_X, first, 0)
            }
        };
        let (wing, label) = (HEAD / 2.0, middle + 12.0);
        let _ = write!(
            body,
            "<rect x=\"{BOX_X}\" y=\"{top}\" width=\"{BOX_WIDTH}\" height=\"{BOX_HEIGHT}\" rx=\"4\" fill=\"none\" class=\"r\"/>\
             <text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text><path d=\"{way}\" fill=\"none\" class=\"r\"/>\
             <path d=\"M0 0L-{HEAD} {wing}V-{wing}Z\" transform=\"translate({x} {y})rotate({angle})\" fill=\"var(--ink)\"/>\
             <text x=\"{label}\" y=\"{}\" class=\"b\">{}</text>\
             <text x=\"{label}\" y=\"{}\"><title>{}</title>{}</text>",
            top + 21.0,
            shortened(&format!("T{}", edge.from), 10),
            bottom + 20.0,
            escape(&shortened(&edge.dependency, LETTERS)),
            bottom + 37.0,
            escape(&edge.key),
            escape(&shortened(&edge.key, LETTERS))
        );
    }
    let words: Vec<String> = cycle.iter().map(|edge| edge.reason.clone()).collect();
    Some(format!(
        "<svg height=\"{1}\" role=\"img\" aria-label=\"{0}\"><title>{0}</title>{style}{body}</svg>",
        escape(&format!("A cycle of dependencies: {}", words.join("; "))),
        top_of(cycle.len()) - GAP / 2.0 + 16.0
    ))
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
    fn a_file_stands_alone() {
        let file = svg_file(&ring(3)).expect("it can be drawn");
        assert!(file.starts_with("<svg xmlns=") && file.contains("width=\"360\"") && file.ends_with("</svg>"));
        assert!(!file.contains("class=\"chart\"") && svg_file(&ring(1)).is_none());
    }

    #[test]
    fn each_transaction_and_each_dependency_is_drawn() {
        for count in [2, 3, TRANSACTIONS_MAX as u64] {
            let picture = svg(&ring(count));
            assert_eq!(picture.matches("<rect").count(), count as usize);
            assert_eq!(picture.matches("Z\" transform").count(), count as usize);
            for number in 0..count {
                let parts =
                    [format!(">T{}<", number + 1), format!(">&lt;t&gt;/{number}</text>"), format!("reason {number}")];
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
