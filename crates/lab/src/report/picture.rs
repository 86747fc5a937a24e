//! Charts as SVG: rows of bars and points, and lines over two axes.
//!
//! A chart on a page is as wide as the page, but its text is not scaled: places on the horizontal
//! axis are percentages, and heights are pixels. Colour alone never carries a meaning: lines differ
//! in their markers and dashes, bars in their textures, and each mark has its figures as a title.

use std::fmt::Write;

use super::page::escape;
use contend_runner::units::show_digits;

/// The colours of the light and of the dark scheme. They are those of Okabe and Ito (2008), which
/// colour-blind people can tell apart. They are darker here on white and lighter on black, so that
/// each has a contrast of at least 3 to its ground. A reader can ask the browser for more contrast.
/// On paper the light scheme is used.
pub(super) const COLOURS: &str = "
:root,svg.alone{--ink:#1c2430;--soft:#525d6b;--line:#d5dae1;--paper:#fbfbf9;--card:#fff;--good:#11693f;--bad:#a8201a;--focus:#0072b2;
--c0:#0072b2;--c1:#c25400;--c2:#00805c;--c3:#a8527f;--c4:#8a6d00;--c5:#2384b8;--c6:#1c2430}
@media(prefers-color-scheme:dark){:root,svg.alone{--ink:#e6e9ee;--soft:#a9b3c1;--line:#39434f;--paper:#14181e;--card:#1b2129;--good:#5cc08e;
--bad:#ff9288;--focus:#56b4e9;--c0:#4da3dd;--c1:#e8793a;--c2:#26b58c;--c3:#d98bb3;--c4:#e0b93c;--c5:#8fd0f5;--c6:#e6e9ee}}
@media(prefers-contrast:more){:root,svg.alone{--soft:var(--ink);--line:var(--ink)}}
@media print{:root,svg.alone{--ink:#000;--soft:#333;--line:#bbb;--paper:#fff;--card:#fff;--good:#11693f;--bad:#a8201a;
--c0:#0072b2;--c1:#c25400;--c2:#00805c;--c3:#a8527f;--c4:#8a6d00;--c5:#2384b8;--c6:#000}*{print-color-adjust:exact}}
.chart svg,svg.alone,.legend svg{forced-color-adjust:none}
.chart text,svg.alone text{fill:var(--ink);font:13px system-ui,sans-serif}.chart .b,svg.alone .b{font-weight:600}.chart .t,svg.alone .t{fill:var(--soft);font-size:12px}
.g{stroke:var(--line)}.r{stroke:var(--ink);stroke-width:1.5}.h{stroke:var(--card);stroke-width:5}.f{stroke:var(--soft)}
.k0{stroke:var(--c0);fill:var(--c0)}.k1{stroke:var(--c1);fill:var(--c1)}.k2{stroke:var(--c2);fill:var(--c2)}
.k3{stroke:var(--c3);fill:var(--c3)}.k4{stroke:var(--c4);fill:var(--c4)}.k5{stroke:var(--c5);fill:var(--c5)}
.k6{stroke:var(--c6);fill:var(--c6)}.l{stroke-width:2}.n{fill:none}.d1{stroke-dasharray:7 4}.d2{stroke-dasharray:2 3}.d3{stroke-dasharray:9 3 2 3}
";

const STYLES: usize = 7;
const MARKERS: usize = 6;
const TEXTURES: usize = 4;

/// Returns the markers of lines and the textures of bars, which a page defines once.
pub(super) fn definitions() -> String {
    format!("<svg width=\"0\" height=\"0\" style=\"position:absolute\" aria-hidden=\"true\">{DEFINITIONS}</svg>\n")
}

const DEFINITIONS: &str = "<defs>\
    <circle id=\"m0\" r=\"4\"/><rect id=\"m1\" x=\"-3.5\" y=\"-3.5\" width=\"7\" height=\"7\"/>\
    <path id=\"m2\" d=\"M0-5L4.6 3.5H-4.6Z\"/><path id=\"m3\" d=\"M0-5L5 0L0 5L-5 0Z\"/>\
    <path id=\"m4\" d=\"M-4-4L4 4M-4 4L4-4\" stroke-width=\"2\"/><path id=\"m5\" d=\"M0 5L4.6-3.5H-4.6Z\"/>\
    <pattern id=\"x1\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><path d=\"M-1 7L7-1\" stroke=\"var(--card)\" stroke-width=\"1.6\"/></pattern>\
    <pattern id=\"x2\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><circle cx=\"2.5\" cy=\"2.5\" r=\"1.2\" fill=\"var(--card)\"/></pattern>\
    <pattern id=\"x3\" width=\"5\" height=\"5\" patternUnits=\"userSpaceOnUse\"><path d=\"M2.5 0V5\" stroke=\"var(--card)\" stroke-width=\"1.6\"/></pattern>\
    </defs>";

/// The distribution of values over an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Scale {
    Linear(f64, f64),
    Logarithmic(f64, f64),
}

impl Scale {
    /// Returns a scale that holds the values: from 0, or between powers of ten if it is
    /// logarithmic. Returns `None` if no value can be shown.
    pub(crate) fn of(values: impl Iterator<Item = f64>, is_logarithmic: bool) -> Option<Scale> {
        // The powers and steps of smaller values would underflow to zero.
        let is_shown = |value: &f64| value.is_finite() && (!is_logarithmic || *value > LEAST);
        let (low, high) =
            values.filter(is_shown).fold((f64::INFINITY, 0f64), |(low, high), value| (low.min(value), high.max(value)));
        match is_logarithmic {
            true if low.is_finite() => {
                let least = 10f64.powf(low.log10().floor());
                Some(Scale::Logarithmic(least, 10f64.powf(high.log10().ceil()).max(least * 10.0)))
            }
            false if high > LEAST => Some(Scale::Linear(0.0, high)),
            _ => None,
        }
    }

    /// Returns the place of a value: 0 at the axis's beginning, 1 at its end. A value outside is
    /// placed at the nearer end.
    fn place(self, value: f64) -> f64 {
        let place = match self {
            Scale::Linear(low, high) => (value - low) / (high - low),
            Scale::Logarithmic(low, high) => (value.max(low) / low).ln() / (high / low).ln(),
        };
        if place.is_finite() { place.clamp(0.0, 1.0) } else { 0.5 }
    }

    /// Returns round values, four to eight of them on a linear axis.
    fn ticks(self) -> Vec<f64> {
        match self {
            Scale::Linear(_, high) if high <= 0.0 => vec![0.0],
            Scale::Linear(low, high) => {
                let power = 10f64.powf((high / 5.0).log10().floor());
                let step = [1.0, 2.0, 5.0, 10.0].into_iter().map(|factor| factor * power);
                let step = step.into_iter().find(|step| high / step <= 7.0).unwrap_or(10.0 * power);
                let ticks = (0..).map(|number| f64::from(number) * step);
                ticks.take_while(|tick| *tick <= high * 1.0001).filter(|tick| *tick >= low).collect()
            }
            Scale::Logarithmic(low, high) => {
                let (first, last) = (low.log10().round() as i32, high.log10().round() as i32);
                // Eight of them at most.
                let powers = (first..=last).step_by((last - first).max(0) as usize / 8 + 1);
                powers
                    .map(|power| 10f64.powi(power))
                    .filter(|tick| (low * 0.999..=high * 1.001).contains(tick))
                    .collect()
            }
        }
    }
}

/// Shortens "1.50 M" to "1.5 M", because the marks of an axis are round.
fn trimmed(figure: &str) -> String {
    let (number, unit) = figure.split_once(' ').map_or((figure, None), |(number, unit)| (number, Some(unit)));
    let number = if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number };
    unit.map_or(number.into(), |unit| format!("{number} {unit}"))
}

/// An axis with its title, which names the unit.
pub(crate) struct Axis<'a> {
    pub(crate) title: &'a str,
    pub(crate) scale: Scale,
    /// The places of its marks, with their names.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl<'a> Axis<'a> {
    /// Creates an axis with round marks.
    pub(crate) fn new(title: &'a str, scale: Scale, show: impl Fn(f64) -> String) -> Axis<'a> {
        let mut ticks: Vec<(f64, String)> =
            scale.ticks().into_iter().map(|tick| (tick, trimmed(&show(tick)))).collect();
        // Otherwise two marks would have the same name, so each gets more digits.
        if ticks.windows(2).any(|pair| pair[0].1 == pair[1].1) {
            ticks.iter_mut().for_each(|(tick, name)| *name = show_digits(*tick));
        }
        Axis { title, scale, ticks }
    }

    /// Returns where a mark's name begins and ends on an axis of this width, in pixels, and its
    /// anchor. A name at an end of the axis is anchored so that it does not stick out.
    fn extent(&self, (value, name): &(f64, String), width: f64) -> (f64, f64, &'static str) {
        let (place, length) = (self.scale.place(*value) * width, name.chars().count() as f64 * LETTER);
        match place {
            place if place < length / 2.0 - SIDE => (place, place + length, "start"),
            place if place + length / 2.0 > width + SIDE => (place - length, place, "end"),
            place => (place - length / 2.0, place + length / 2.0, "middle"),
        }
    }

    /// Returns which marks' names fit beside one another on an axis of this width.
    fn readable(&self, width: f64) -> Vec<bool> {
        let mut free = f64::NEG_INFINITY;
        let ticks = self.ticks.iter().map(|tick| {
            let (begin, end, _) = self.extent(tick, width);
            let has_room = begin >= free;
            if has_room {
                free = end + LETTER;
            }
            has_room
        });
        ticks.collect()
    }

    /// Returns the marks of a horizontal axis at this height, with lines up to `top`, and the
    /// axis's title. The axis is [`NARROW`] to `width` pixels wide.
    fn horizontal(&self, top: f64, bottom: f64, width: f64) -> String {
        let (wide, narrow) = (self.readable(width), self.readable(width.min(NARROW)));
        let mut text = String::new();
        for (number, (value, name)) in self.ticks.iter().enumerate() {
            let x = percent(self.scale.place(*value));
            let _ = write!(text, "<line class=\"g\" x1=\"{x}\" x2=\"{x}\" y1=\"{top}\" y2=\"{}\"/>", bottom + 4.0);
            let (_, _, anchor) = self.extent(&self.ticks[number], width.min(NARROW));
            if wide[number] {
                let class = if narrow[number] { "t" } else { "t wide" };
                let _ = write!(
                    text,
                    "<text class=\"{class}\" x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
                    bottom + 18.0,
                    escape(name)
                );
            }
        }
        let _ = write!(
            text,
            "<text class=\"t\" x=\"100%\" y=\"{}\" text-anchor=\"end\">{}</text>",
            bottom + 36.0,
            escape(self.title)
        );
        text
    }
}

/// The width of a letter of a chart, in pixels, about.
const LETTER: f64 = 7.6;
/// The width of a chart's axis on a small screen, and on a page.
const NARROW: f64 = 250.0;
const WIDE: f64 = 800.0;
/// The same widths of a panel, the narrowest chart.
const PANEL: f64 = 134.0;
/// Values up to this are drawn as nothing.
const LEAST: f64 = 1e-300;
/// The largest number of points of a line with markers. More markers would cover one another.
const MARKED: usize = 20;
/// The height below an axis, for the names of marks and the title.
const BELOW: f64 = 46.0;

fn percent(part: f64) -> String {
    format!("{:.2}%", part * 100.0)
}

/// Returns the class of style of the part or line with this number.
fn style(number: usize) -> String {
    format!("k{}", number % STYLES)
}

/// A mark in a row of a chart. Each has a title, which browsers show under the pointer.
pub(crate) enum Mark {
    /// A bar from one value to another, in the style of a part.
    Bar { from: f64, to: f64, part: usize, title: String },
    /// A range, drawn over the other marks.
    Range { low: f64, high: f64 },
    /// A line between two values.
    Line { from: f64, to: f64, part: usize },
    /// A marker of this shape.
    Dot { at: f64, shape: usize, part: usize, title: String },
}

/// A row of a chart.
pub(crate) struct Row {
    pub(crate) name: String,
    /// The note at the end of the row, and the same in short.
    pub(crate) note: String,
    pub(crate) short: String,
    pub(crate) marks: Vec<Mark>,
}

const ROW: f64 = 46.0;
/// The margin at both sides of a chart's axis.
const SIDE: f64 = 12.0;

/// Returns a chart of rows. Above the marks of each row are its name and its note.
pub(crate) fn rows(label: &str, axis: &Axis<'_>, rows: &[Row]) -> String {
    let bottom = 8.0 + ROW * rows.len() as f64;
    let mut body = axis.horizontal(8.0, bottom, WIDE);
    for (number, row) in rows.iter().enumerate() {
        let top = 8.0 + ROW * number as f64;
        body += &row_text(top + 14.0, row);
        for mark in &row.marks {
            body += &mark.svg(axis.scale, top + 28.0);
        }
    }
    chart(label, SIDE, bottom + BELOW, &body)
}

fn row_text(y: f64, row: &Row) -> String {
    let mut text = String::new();
    // The letters of a row on the narrowest screen of each kind.
    for (class, letters, note) in [("wide", 66, &row.note), ("narrow", 34, &row.short)] {
        let free = usize::saturating_sub(letters, note.chars().count());
        let _ = write!(
            text,
            "<g class=\"{class}\"><text x=\"0\" y=\"{y}\" class=\"b\"><title>{}</title>{}</text>\
             <text x=\"100%\" y=\"{y}\" text-anchor=\"end\">{}</text></g>",
            escape(&row.name),
            escape(&shortened(&row.name, free)),
            escape(note)
        );
    }
    text
}

/// Shortens a name to at most this many letters.
pub(crate) fn shortened(name: &str, letters: usize) -> String {
    match name.char_indices().nth(letters) {
        Some(_) => name.chars().take(letters.saturating_sub(1)).chain(['…']).collect(),
        None => name.into(),
    }
}

impl Mark {
    fn svg(&self, scale: Scale, y: f64) -> String {
        let place = |value: f64| percent(scale.place(value));
        match self {
            Mark::Bar { from, to, part, title } => {
                let (x, width) = (place(*from), percent(scale.place(*to) - scale.place(*from)));
                let bar = |attributes: &str| {
                    format!("<rect x=\"{x}\" y=\"{}\" width=\"{width}\" height=\"16\"{attributes}>", y - 8.0)
                };
                let mut text = format!(
                    "{}<title>{}</title></rect>",
                    bar(&format!(" class=\"{}\" stroke-width=\"0\"", style(*part))),
                    escape(title)
                );
                if part % TEXTURES > 0 {
                    let texture = format!(" fill=\"url(#x{})\" pointer-events=\"none\"", part % TEXTURES);
                    text += &(bar(&texture) + "</rect>");
                }
                text
            }
            Mark::Range { low, high } => {
                let (low, high) = (place(*low), place(*high));
                // The light line around the range makes it visible on a bar of any colour.
                let mut text = String::new();
                for class in ["h", "r"] {
                    let _ = write!(text, "<line class=\"{class}\" x1=\"{low}\" x2=\"{high}\" y1=\"{y}\" y2=\"{y}\"/>");
                }
                for x in [low, high] {
                    let _ =
                        write!(text, "<line class=\"r\" x1=\"{x}\" x2=\"{x}\" y1=\"{}\" y2=\"{}\"/>", y - 5.0, y + 5.0);
                }
                text
            }
            Mark::Line { from, to, part } => format!(
                "<line class=\"{} l\" x1=\"{}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>",
                style(*part),
                place(*from),
                place(*to)
            ),
            Mark::Dot { at, shape, part, title } => marker(&place(*at), y, *shape, *part, title),
        }
    }
}

fn marker(x: &str, y: f64, shape: usize, part: usize, title: &str) -> String {
    format!(
        "<use href=\"#m{}\" x=\"{x}\" y=\"{y:.1}\" class=\"{}\"><title>{}</title></use>",
        shape % MARKERS,
        style(part),
        escape(title)
    )
}

/// Returns a chart in its frame. The axis begins `left` pixels from the left, after the names of
/// marks.
fn chart(label: &str, left: f64, height: f64, body: &str) -> String {
    format!(
        "<div class=\"chart\" style=\"padding:0 {SIDE}px 0 {left}px\"><svg height=\"{height}\" role=\"img\" aria-label=\"{0}\">\
         <title>{0}</title>{body}</svg></div>",
        escape(label)
    )
}

/// Returns a legend of the textures of a chart's parts.
pub(crate) fn legend_of_parts<'a>(parts: impl IntoIterator<Item = (usize, &'a str)>) -> String {
    let mut text = String::from("<ul class=\"legend\">");
    for (part, name) in parts {
        let mark = Mark::Bar { from: 0.0, to: 1.0, part, title: String::new() };
        let _ = write!(
            text,
            "<li><svg width=\"16\" height=\"16\" aria-hidden=\"true\">{}</svg>{}</li>",
            mark.svg(Scale::Linear(0.0, 1.0), 8.0),
            escape(name)
        );
    }
    text + "</ul>"
}

/// A line over an axis.
pub(crate) struct Line<'a> {
    pub(crate) name: &'a str,
    /// Lines of one number look alike. `None` is a line for comparison, thin and grey.
    pub(crate) number: Option<usize>,
    pub(crate) points: Vec<(f64, f64)>,
    /// The smallest and the largest value at an x, where several were measured.
    pub(crate) ranges: Vec<(f64, f64, f64)>,
    /// Whether each point has a marker. Measured points have one; a curve through all values has
    /// none.
    pub(crate) has_markers: bool,
}

/// Lines over two axes.
pub(crate) struct Lines<'a> {
    pub(crate) label: &'a str,
    pub(crate) x: Axis<'a>,
    pub(crate) y: Axis<'a>,
    /// The height of the part with the lines, in pixels.
    pub(crate) height: f64,
    pub(crate) lines: Vec<Line<'a>>,
    /// Whether lines join the points. Nothing lies between two names, so points at names are not
    /// joined.
    pub(crate) is_joined: bool,
    /// Formats a value for a marker's title.
    pub(crate) show: &'a dyn Fn(f64, f64) -> String,
}

/// The margins for the names of marks beside a vertical axis, and for its title above.
const LEFT: f64 = 66.0;
const ABOVE: f64 = 30.0;

impl Lines<'_> {
    /// Returns the chart as wide as the page.
    pub(crate) fn svg(&self) -> String {
        chart(self.label, LEFT, ABOVE + self.height + BELOW, &self.body(WIDE))
    }

    /// Returns the chart as wide as a panel among others.
    pub(crate) fn panel(&self) -> String {
        chart(self.label, LEFT, ABOVE + self.height + BELOW, &self.body(PANEL))
    }

    /// Returns a file of its own, of this width, with a title, and with the legend below.
    pub(crate) fn alone(&self, width: f64) -> String {
        let inner = width - LEFT - SIDE;
        let (mut legend, mut x, mut y) = (String::new(), LEFT, 34.0 + ABOVE + self.height + BELOW + 14.0);
        for line in &self.lines {
            let Some(number) = line.number else { continue };
            let name = shortened(line.name, (inner / LETTER) as usize - 8);
            let needs = 48.0 + name.chars().count() as f64 * LETTER;
            if x + needs > width && x > LEFT {
                (x, y) = (LEFT, y + 22.0);
            }
            let _ = write!(
                legend,
                "<svg x=\"{x}\" y=\"{}\" width=\"28\" height=\"16\">{}</svg><text x=\"{}\" y=\"{y}\">{}</text>",
                y - 12.0,
                sample(number),
                x + 34.0,
                escape(&name)
            );
            x += needs + 12.0;
        }
        let height = y + 14.0;
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"alone\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\" aria-label=\"{0}\"><title>{0}</title><style>{COLOURS}</style>{DEFINITIONS}\
             <rect width=\"100%\" height=\"100%\" fill=\"var(--card)\"/><text x=\"{LEFT}\" y=\"26\" class=\"b\">{3}</text>\
             <svg x=\"{LEFT}\" y=\"34\" width=\"{inner}\" height=\"{2}\" overflow=\"visible\">{1}</svg>{legend}</svg>\n",
            escape(self.label),
            self.body(inner),
            ABOVE + self.height + BELOW,
            escape(&shortened(self.label, (inner / (LETTER + 0.6)) as usize))
        )
    }

    /// Returns the legend of the lines.
    pub(crate) fn legend(&self) -> String {
        let mut text = String::from("<ul class=\"legend\">");
        for line in &self.lines {
            let Some(number) = line.number else { continue };
            let _ = write!(
                text,
                "<li><svg width=\"28\" height=\"16\" aria-hidden=\"true\">{}</svg>{}</li>",
                sample(number),
                escape(line.name)
            );
        }
        text + "</ul>"
    }

    /// Returns the whole chart, for an axis of this width in pixels.
    fn body(&self, width: f64) -> String {
        format!(
            "<text class=\"t\" x=\"{}\" y=\"16\">{}</text><svg y=\"{ABOVE}\" overflow=\"visible\">{}</svg>",
            8.0 - LEFT,
            escape(self.y.title),
            self.plot(width)
        )
    }

    /// Returns the part with the lines, and the marks of both axes.
    fn plot(&self, width: f64) -> String {
        let y_of = |value: f64| (1.0 - self.y.scale.place(value)) * self.height;
        let mut body = self.x.horizontal(self.height, self.height, width);
        for (value, name) in &self.y.ticks {
            let y = y_of(*value);
            let _ = write!(
                body,
                "<line class=\"g\" x1=\"0\" x2=\"100%\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"t\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                y + 4.0,
                escape(name)
            );
        }
        for line in &self.lines {
            let class = match line.number {
                Some(number) => format!("{} l d{}", style(number), number / STYLES % 4),
                None => "f".into(),
            };
            if self.is_joined && line.points.len() > 1 {
                // Only here places are stretched with the chart; the line keeps its width.
                let place = |(x, y): &(f64, f64)| format!("{:.0},{:.1}", self.x.scale.place(*x) * 1e3, y_of(*y));
                let points: Vec<String> = line.points.iter().map(place).collect();
                let _ = write!(
                    body,
                    "<svg viewBox=\"0 0 1000 {0}\" preserveAspectRatio=\"none\" height=\"{0}\" overflow=\"visible\">\
                     <polyline class=\"{class} n\" vector-effect=\"non-scaling-stroke\" points=\"{1}\"/></svg>",
                    self.height,
                    points.join(" ")
                );
            }
            let Some(number) = line.number else { continue };
            for (x, low, high) in &line.ranges {
                let x = percent(self.x.scale.place(*x));
                let _ = write!(
                    body,
                    "<line class=\"{} range\" x1=\"{x}\" x2=\"{x}\" y1=\"{:.1}\" y2=\"{:.1}\"/>",
                    style(number),
                    y_of(*low),
                    y_of(*high)
                );
            }
            for (x, y) in line.points.iter().filter(|_| line.has_markers && line.points.len() <= MARKED) {
                let title = format!("{}: {}", line.name, (self.show)(*x, *y));
                body += &marker(&percent(self.x.scale.place(*x)), y_of(*y), number, number, &title);
            }
        }
        body
    }
}

/// Returns a short piece of a line, for a legend.
fn sample(number: usize) -> String {
    format!(
        "<line class=\"{} l d{}\" x1=\"0\" x2=\"100%\" y1=\"8\" y2=\"8\"/>{}",
        style(number),
        number / STYLES % 4,
        marker("50%", 8.0, number, number, "")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_a_few_round_marks() {
        for high in [0.003, 0.9, 1.0, 7.3, 12.0, 2_345_678.0] {
            let ticks = Scale::Linear(0.0, high).ticks();
            assert!((4..=8).contains(&ticks.len()), "{high}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= high * 1.001));
        }
        assert_eq!(
            Scale::of([30.0, 4000.0].into_iter(), true).expect("values").ticks(),
            [10.0, 100.0, 1000.0, 10000.0]
        );
        assert_eq!(Scale::of([10.0].into_iter(), true), Some(Scale::Logarithmic(10.0, 100.0)));
        assert!(Scale::of([1e-290, 1e300].into_iter(), true).expect("values").ticks().len() <= 9);
        for (values, is_logarithmic) in [
            (&[][..], true),
            (&[0.0, f64::NAN], true),
            (&[0.0], false),
            (&[], false),
            (&[1e-320], true),
            (&[1e-320], false),
        ] {
            assert_eq!(Scale::of(values.iter().copied(), is_logarithmic), None, "{values:?}");
        }
    }

    #[test]
    fn values_stand_within_the_axis() {
        for scale in [Scale::Linear(2.0, 2.0), Scale::Linear(0.0, 5.0), Scale::Logarithmic(1.0, 100.0)] {
            for value in [-1.0, 0.0, 2.0, 5.0, 1e9, f64::NAN] {
                assert!((0.0..=1.0).contains(&scale.place(value)), "{scale:?} {value}");
            }
        }
        assert_eq!(Scale::Logarithmic(1.0, 100.0).place(10.0), 0.5);
    }

    #[test]
    fn names_of_marks_do_not_lie_on_one_another() {
        let ticks = (0..11).map(|power| 1 << power).map(|cores: u32| (f64::from(cores), cores.to_string())).collect();
        let axis = Axis { title: "cores", scale: Scale::Linear(1.0, 1024.0), ticks };
        let shown = |width| axis.readable(width).iter().filter(|has_room| **has_room).count();
        assert!(shown(NARROW) < shown(WIDE) && shown(WIDE) < 11, "{} {}", shown(NARROW), shown(WIDE));
        assert_eq!(axis.horizontal(0.0, 9.0, WIDE).matches("<line").count(), 11, "a mark at each point");
    }

    #[test]
    fn marks_have_no_needless_digits() {
        for (figure, name) in
            [("1.50 M", "1.5 M"), ("500.0 k", "500 k"), ("0.0", "0"), ("100 ns", "100 ns"), ("2.00 s", "2 s")]
        {
            assert_eq!(trimmed(figure), name);
        }
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(shortened("2pl", 3), "2pl");
        assert_eq!(shortened("öööö", 3), "öö…");
        assert_eq!(shortened("ab", 0), "…");
    }
}
