//! The figure of an experiment, as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, Ranged, ValueFormatter};
use plotters::prelude::*;

use super::file::Metric;
use super::{Curves, Experiment, Measurement, X};
use crate::compare::show_rate;
use crate::config::LabError;

const SIZE: (u32, u32) = (860, 480);
const COLOURS: [RGBColor; 8] = [
    RGBColor(47, 93, 138),
    RGBColor(194, 112, 44),
    RGBColor(79, 138, 91),
    RGBColor(138, 79, 125),
    RGBColor(160, 138, 44),
    RGBColor(75, 139, 149),
    RGBColor(155, 74, 74),
    RGBColor(106, 111, 155),
];

fn value(metric: Metric, point: &Measurement) -> Option<f64> {
    match metric {
        Metric::Throughput => Some(point.throughput.median),
        Metric::AbortRate => Some(point.abort_rate),
        Metric::LastLevelMisses => point.last_level_misses,
        Metric::LatencyP50 => Some(point.latency_ns_p50 as f64),
    }
}

fn show(metric: Metric, value: f64) -> String {
    match metric {
        Metric::Throughput => show_rate(value),
        Metric::AbortRate | Metric::LastLevelMisses => format!("{:.0} %", value * 100.0),
        Metric::LatencyP50 => crate::report::show_ns(value as u64),
    }
}

fn label(metric: Metric) -> &'static str {
    match metric {
        Metric::Throughput => "a second",
        Metric::AbortRate => "aborted tries",
        Metric::LastLevelMisses => "last-level misses",
        Metric::LatencyP50 => "median latency",
    }
}

/// A curve: its name, its place among the curves of the experiment, its points, and the least and the greatest that seeds had at an x.
type Line<'a> = (&'a str, usize, Vec<(f64, f64)>, Vec<(f64, f64, f64)>);

/// The least and the greatest of what the seeds of a point had; none of a point of one seed.
fn range(metric: Metric, point: &Measurement) -> Option<(f64, f64)> {
    let values = || point.seeds.iter().filter_map(|seed| value(metric, seed)).filter(|value| value.is_finite());
    (point.seeds.len() > 1 && values().next().is_some()).then(|| bounds(values()))
}

/// The figure.
///
/// # Errors
/// There is nothing to draw.
pub fn svg(experiment: &Experiment, curves: &Curves) -> Result<String, LabError> {
    let metric = experiment.plot.y;
    // Names stand side by side, in the order of the file.
    let names: Vec<&X> = experiment.axis[0].values.iter().filter(|x| x.number().is_none()).collect();
    let place = |x: &X| x.number().or_else(|| names.iter().position(|name| *name == x).map(|place| place as f64));
    let lines = curves.iter().enumerate().map(|(number, (name, points))| {
        let ranges = points.iter().filter_map(|point| {
            let (low, high) = range(metric, point)?;
            Some((place(&point.x)?, low, high))
        });
        let ranges = ranges.collect();
        let points = points.iter().filter_map(|point| Some((place(&point.x)?, value(metric, point)?)));
        (name.as_str(), number, points.filter(|(_, y)| y.is_finite()).collect(), ranges)
    });
    figure(experiment, &experiment.title, &lines.collect::<Vec<_>>())
}

/// What the source has measured itself, in the same colours; `None` if the experiment does not say.
///
/// # Errors
/// There is nothing to draw.
pub fn published_svg(experiment: &Experiment, curves: &Curves) -> Option<Result<String, LabError>> {
    let published = experiment.published.as_ref()?;
    let mut further = curves.len();
    let lines = published.curves.iter().map(|(name, points)| {
        let number = curves.keys().position(|own| own == name).unwrap_or_else(|| {
            further += 1;
            further - 1
        });
        (name.as_str(), number, points.clone(), Vec::new())
    });
    Some(figure(experiment, "as published", &lines.collect::<Vec<_>>()))
}

fn figure(experiment: &Experiment, title: &str, lines: &[Line<'_>]) -> Result<String, LabError> {
    let all = || lines.iter().flat_map(|(_, _, points, _)| points.iter().copied());
    if all().next().is_none() {
        return Err(LabError::BadInput(format!("experiment {} has no points to draw", experiment.id)));
    }
    let (x_low, x_high) = bounds(all().map(|(x, _)| x));
    let of_seeds = lines.iter().flat_map(|(.., ranges)| ranges.iter().map(|(_, _, high)| *high));
    let (_, y_high) = bounds(all().map(|(_, y)| y).chain(of_seeds));
    let (x_log, y_log) = (experiment.plot.x_log && x_low > 0.0, experiment.plot.y_log && y_high > 0.0);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        let x = if x_log { x_low..x_high.max(x_low * 1.01) } else { x_low..x_high.max(x_low + 1e-9) };
        // Nothing is below the axis of a logarithm: zeros stand on it.
        let least = all().map(|(_, y)| y).filter(|y| *y > 0.0).fold(y_high, f64::min);
        let y = if y_log { (least / 2.0)..(y_high * 1.5) } else { 0.0..(y_high.max(1e-9) * 1.05) };
        let (floor, plain) = (least / 2.0, 0.0);
        let outcome = match (x_log, y_log) {
            (true, true) => draw(&area, (experiment, title), lines, x.log_scale(), y.log_scale(), floor),
            (true, false) => draw(&area, (experiment, title), lines, x.log_scale(), y, plain),
            (false, true) => draw(&area, (experiment, title), lines, x, y.log_scale(), floor),
            (false, false) => draw(&area, (experiment, title), lines, x, y, plain),
        };
        outcome.map_err(|error| LabError::BadInput(format!("experiment {}: can't draw: {error}", experiment.id)))?;
    }
    Ok(text)
}

fn bounds(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)))
}

fn draw<X, Y>(
    area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>,
    (experiment, title): (&Experiment, &str),
    lines: &[Line<'_>],
    x: X,
    y: Y,
    floor: f64,
) -> Result<(), Box<dyn std::error::Error>>
where
    X: AsRangedCoord<Value = f64>,
    Y: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let metric = experiment.plot.y;
    area.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(area)
        .margin(14)
        .caption(title, ("sans-serif", 18))
        .x_label_area_size(44)
        .y_label_area_size(84)
        .build_cartesian_2d(x, y)?;
    let names: Vec<String> =
        experiment.axis[0].values.iter().filter(|x| x.number().is_none()).map(ToString::to_string).collect();
    let show_x = |x: &f64| match names.get(x.round() as usize) {
        Some(name) if (x - x.round()).abs() < 1e-6 => name.clone(),
        _ if names.is_empty() => format!("{}", (x * 1e6).round() / 1e6),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(&experiment.plot.x)
        .y_desc(label(metric))
        .x_label_formatter(&show_x)
        .y_label_formatter(&|y| show(metric, *y))
        .draw()?;
    for (name, number, points, ranges) in lines.iter().filter(|(_, _, points, _)| !points.is_empty()) {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<(f64, f64)> = points.iter().map(|(x, y)| (*x, y.max(floor))).collect();
        chart
            .draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        let bar = |(x, low, high): &(f64, f64, f64)| vec![(*x, low.max(floor)), (*x, high.max(floor))];
        chart.draw_series(ranges.iter().map(|range| PathElement::new(bar(range), colour.stroke_width(1))))?;
    }
    chart.configure_series_labels().background_style(WHITE.mix(0.8)).border_style(BLACK.mix(0.3)).draw()?;
    area.present()?;
    Ok(())
}
