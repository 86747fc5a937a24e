//! The figure of an experiment: lines over the axis, with marks at its points.

use std::borrow::Cow;
use std::collections::BTreeSet;

use super::file::Metric;
use super::{Curves, Experiment, Measurement, X};
use crate::report::{Axis, Line, Lines, Scale};
use contend_runner::units::{show_ns, show_percent, show_rate};

/// The size in pixels of a figure that is a file of its own.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 340.0;

/// A figure, both as a file of its own and for a page.
pub struct Figure {
    /// A whole SVG file.
    pub file: String,
    /// The figure for a page of this crate: as wide as the page, with its legend.
    pub on_page: String,
}

fn value(metric: Metric, point: &Measurement) -> Option<f64> {
    match metric {
        Metric::Throughput => Some(point.throughput.median),
        Metric::AbortRate => Some(point.abort_rate),
        Metric::LastLevelMisses => point.last_level_misses,
        // Nothing was timed.
        Metric::LatencyP50 if point.latency_ns_p50 == 0 => None,
        Metric::LatencyP50 => Some(point.latency_ns_p50 as f64),
    }
}

pub(super) fn show(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Throughput => show_rate(value),
        Metric::AbortRate | Metric::LastLevelMisses => show_percent(value),
        Metric::LatencyP50 => show_ns(value as u64),
    }
}

pub(super) fn title(experiment: &Experiment) -> &'static str {
    match experiment.plot.y {
        Metric::Throughput if experiment.run.micro.is_some() => "operations a second",
        Metric::Throughput => "committed transactions a second",
        Metric::AbortRate => "aborted tries, as a share of all",
        Metric::LastLevelMisses => "last-level misses, as a share of what leaves the private caches",
        Metric::LatencyP50 => "median time from the first try to the commit",
    }
}

/// A curve: its name, its number among the curves of the experiment, its points, and the smallest
/// and the largest value at each x.
struct Curve<'a> {
    name: Cow<'a, str>,
    number: usize,
    points: Vec<(f64, f64)>,
    ranges: Vec<(f64, f64, f64)>,
}

/// Returns the smallest and the largest value at a point: of its seeds if there are several,
/// otherwise of its windows.
fn range(metric: Metric, point: &Measurement) -> Option<(f64, f64)> {
    let values = || point.seeds.iter().filter_map(|seed| value(metric, seed)).filter(|value| value.is_finite());
    match metric {
        _ if point.seeds.len() > 1 => values().next().is_some().then(|| bounds(values())),
        Metric::Throughput if point.throughput.min < point.throughput.max => {
            Some((point.throughput.min, point.throughput.max))
        }
        _ => None,
    }
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

/// Returns the name of a curve. It says so if its points were measured on several machines.
fn with_machines<'a>(name: &'a str, points: &[Measurement]) -> Cow<'a, str> {
    let all = points.iter().flat_map(|point| point.seeds.iter().chain([point]));
    match all.filter_map(|point| point.machine.as_ref()).collect::<BTreeSet<_>>().len() {
        0 | 1 => name.into(),
        machines => format!("{name} ({machines} machines)").into(),
    }
}

/// Returns the figure, or `None` if there is no point to draw.
pub fn drawn(experiment: &Experiment, curves: &Curves) -> Option<Figure> {
    let metric = experiment.plot.y;
    let axis = places(experiment);
    let place = |x: &X| axis.iter().find(|(value, _)| value == x).map(|(_, place)| *place);
    let all = curves;
    let curves = curves.iter().enumerate().map(|(number, (name, points))| {
        let ranges = points.iter().filter_map(|point| {
            let (low, high) = range(metric, point)?;
            Some((place(&point.x)?, low, high))
        });
        let ranges = ranges.collect();
        let points = points.iter().filter_map(|point| Some((place(&point.x)?, value(metric, point)?)));
        let points = points.filter(|(_, y)| y.is_finite()).collect();
        Curve { name: with_machines(name, &all[name]), number, points, ranges }
    });
    figure(experiment, &experiment.title, curves.collect())
}

/// Returns the figure of the source's own measurements, with the same markers. Returns `None` if
/// the experiment has none.
pub fn published(experiment: &Experiment, curves: &Curves) -> Option<Figure> {
    let published = experiment.published.as_ref()?;
    let mut further = curves.len();
    let lines = published.curves.iter().map(|(name, points)| {
        let number = curves.keys().position(|own| own == name).unwrap_or_else(|| {
            further += 1;
            further - 1
        });
        Curve { name: name.into(), number, points: points.clone(), ranges: Vec::new() }
    });
    figure(experiment, &format!("{}: as published", experiment.title), lines.collect())
}

/// Returns the places of the axis values. A number stands at its value; names stand side by side,
/// in the order of the file.
fn places(experiment: &Experiment) -> Vec<(X, f64)> {
    let names = experiment.axis[0].values.iter().filter(|x| x.number().is_none());
    let named = names.enumerate().map(|(place, x)| (x.clone(), place as f64));
    let numbers = experiment.axis[0].values.iter().filter_map(|x| Some((x.clone(), x.number()?)));
    named.chain(numbers).collect()
}

fn figure(experiment: &Experiment, label: &str, curves: Vec<Curve<'_>>) -> Option<Figure> {
    let metric = experiment.plot.y;
    let all = || curves.iter().flat_map(|curve| curve.points.iter().copied());
    all().next()?;
    let axis = places(experiment);
    // Each existing point has a mark, also where the source measured at other places than we do.
    let mut at: Vec<f64> = all().map(|(x, _)| x).collect();
    at.sort_by(f64::total_cmp);
    at.dedup();
    let name = |x: f64| match axis.iter().find(|(_, place)| *place == x) {
        Some((value, _)) => value.to_string(),
        None => x.to_string(),
    };
    let (low, high) = bounds(at.iter().copied());
    let x_scale = if experiment.plot.x_log && low > 0.0 {
        Scale::Logarithmic(low, high.max(low * 1.01))
    } else {
        Scale::Linear(low, high.max(low + 1e-9))
    };
    let ticks: Vec<(f64, String)> = at.iter().map(|x| (*x, name(*x))).collect();
    let values = || {
        let ranges = curves.iter().flat_map(|curve| curve.ranges.iter().flat_map(|(_, low, high)| [*low, *high]));
        all().map(|(_, y)| y).chain(ranges)
    };
    // Zero has no logarithm, so an axis of shares may have to be linear.
    let y_scale = Scale::of(values(), experiment.plot.y_log).or_else(|| Scale::of(values(), false));
    let lines = Lines {
        label,
        x: Axis { title: &experiment.plot.x, scale: x_scale, ticks },
        y: Axis::new(title(experiment), y_scale.unwrap_or(Scale::Linear(0.0, 1.0)), |value| show(metric, value)),
        height: HEIGHT,
        lines: curves
            .iter()
            .filter(|curve| !curve.points.is_empty())
            .map(|curve| Line {
                name: &curve.name,
                number: Some(curve.number),
                points: curve.points.clone(),
                ranges: curve.ranges.clone(),
                has_markers: true,
            })
            .collect(),
        is_joined: experiment.axis[0].values.iter().all(|x| x.number().is_some()),
        show: &|x, y| format!("{} at {}", show(metric, y), name(x)),
    };
    Some(Figure { file: lines.alone(WIDTH), on_page: format!("{}{}", lines.legend(), lines.svg()) })
}
