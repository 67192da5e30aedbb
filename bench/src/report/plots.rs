//! The plots of a report. Each is an HTML `figure` with a caption, a drawing and a legend.

use super::cases::{Case, distinct, titled};
use super::format::number;
use super::html::escape;
use super::style::{Marker, Style, Styles};
use super::svg::{self, Axis, Bar, Line, Scale, range};
use super::{Better, Figure, Latency, Scenario, Series};
use anyhow::Result;

const DENSITY_PLACES: usize = 72;
const CUMULATIVE_PLACES: usize = 128;
/// Maximum number of intervals into which a series is divided. The plot shows the lowest and the highest point of each.
const SERIES_PLACES: usize = 150;
/// Number of intervals of a percentile curve.
const PERCENTILE_PLACES: usize = 100;
/// Ratio of the largest to the smallest value above which an axis is logarithmic. A linear axis would not separate the
/// smaller values.
const WIDE: f64 = 12.0;
/// This ratio for the plots of distributions. It is smaller, because a distribution is narrow: on a linear axis
/// that shows all subjects, each distribution would look like a vertical line.
const WIDE_DISTRIBUTION: f64 = 3.0;

/// Draws the median of each subject as a bar. The error bar spans the middle 90 % of the samples.
pub fn bars(case: &Case<'_>, quantity: &str, styles: &Styles) -> Result<String> {
    let figures = case.of_quantity(quantity);
    let bar = |figure: &&Figure| Bar {
        label: figure.subject.clone(),
        style: styles.style(&figure.subject),
        value: figure.samples.median(),
        low: figure.samples.quantile(0.05),
        high: figure.samples.quantile(0.95),
        text: number(figure.samples.median()),
    };
    let measured = figures.iter().filter(|figure| figure.samples.count() > 0);
    let bars: Vec<Bar> = measured.map(bar).collect();
    // A single bar compares nothing, and the table has its value.
    let Some(first) = figures.first().filter(|_| bars.len() > 1) else {
        return Ok(String::new());
    };
    let direction = match first.better {
        Better::Lower => "; lower is better",
        Better::Higher => "; higher is better",
        Better::Neither => "",
    };
    let drawing = svg::bars(&first.title(), &bars)?;
    Ok(wrap(
        &format!("{}{direction}", first.quantity),
        &drawing,
        "",
    ))
}

/// Draws the density and the cumulative distribution of every subject's samples.
pub fn distributions(case: &Case<'_>, quantity: &str, styles: &Styles) -> Result<String> {
    let figures: Vec<&Figure> = (case.of_quantity(quantity).into_iter())
        .filter(|figure| figure.samples.count() > 1)
        .collect();
    let Some(first) = figures.first() else {
        return Ok(String::new());
    };
    let ends = figures
        .iter()
        .flat_map(|figure| <[f64; 2]>::from(figure.samples.bulk()));
    let axis = Axis::fitting(&first.title(), range(ends), WIDE_DISTRIBUTION, false);
    let line = |figure: &&Figure, points| Line {
        style: styles.style(&figure.subject),
        points,
        spread: Vec::new(),
    };
    let densities: Vec<Line> = (figures.iter())
        .map(|figure| line(figure, density(figure, axis.scale())))
        .collect();
    let shares: Vec<Line> = (figures.iter())
        .map(|figure| line(figure, figure.samples.cumulative(CUMULATIVE_PLACES)))
        .collect();
    let legend = legend(figures.iter().map(|figure| figure.subject.as_str()), styles);
    let density_title = match axis.scale() {
        Scale::Log => "density, of its peak".to_owned(),
        _ if first.unit.is_empty() => "density".to_owned(),
        _ => format!("density per {}", first.unit),
    };
    let highest = range(
        densities
            .iter()
            .flat_map(|line| line.points.iter().map(|at| at.1)),
    )
    .1;
    let density_axis = Axis::linear(&density_title, 0.0, highest * 1.05);
    let share_axis = Axis::linear("share of samples", 0.0, 1.0);
    Ok([
        wrap(
            &format!("{}: density", first.quantity),
            &svg::lines(&axis, &density_axis, &densities)?,
            &legend,
        ),
        wrap(
            &format!("{}: cumulative distribution", first.quantity),
            &svg::lines(&axis, &share_axis, &shares)?,
            &legend,
        ),
    ]
    .concat())
}

/// Returns the density of a figure. On a logarithmic axis it is the density of the logarithms, scaled so that all
/// curves have the same height. Without scaling, a wide distribution would look flat next to a narrow one.
fn density(figure: &Figure, scale: Scale) -> Vec<(f64, f64)> {
    if scale != Scale::Log {
        return figure.samples.density(DENSITY_PLACES);
    }
    let logarithms: crate::statistics::Samples = figure
        .samples
        .values()
        .iter()
        .map(|value| value.log10())
        .collect();
    let density = logarithms.density(DENSITY_PLACES);
    let peak = range(density.iter().map(|at| at.1)).1;
    density
        .into_iter()
        .map(|(at, density)| (10_f64.powf(at), density / peak))
        .collect()
}

/// Draws latency by percentile, up to p99.99. The title shows the rate of requests. If the subjects have different
/// rates, the legend shows them instead.
pub fn latency(case: &Case<'_>, styles: &Styles) -> Result<String> {
    let answered: Vec<&Latency> = (case.latencies.iter())
        .filter(|latency| latency.requests() > 0)
        .copied()
        .collect();
    let Some(first) = answered.first() else {
        return Ok(String::new());
    };
    let lines: Vec<Line> = (answered.iter())
        .map(|latency| Line {
            style: styles.style(&latency.subject),
            points: percentiles(latency),
            spread: Vec::new(),
        })
        .collect();
    let values = lines
        .iter()
        .flat_map(|line| line.points.iter().map(|at| at.1));
    let (low, high) = range(values.filter(|value| *value > 0.0));
    let (x, y) = (
        Axis::nines("share of requests"),
        Axis::log("latency, µs", low, high),
    );
    let drawing = svg::lines(&x, &y, &lines)?;
    if answered.iter().all(|latency| latency.rate == first.rate) {
        let title = format!("Latency at {} requests/s", number(first.rate));
        let names = answered.iter().map(|latency| latency.subject.as_str());
        return Ok(wrap(&title, &drawing, &legend(names, styles)));
    }
    let entries = answered.iter().map(|latency| {
        let text = format!("{}, {}/s", latency.subject, number(latency.rate));
        (styles.style(&latency.subject), text)
    });
    Ok(wrap(
        "Latency at a fixed rate",
        &drawing,
        &legend_of(entries),
    ))
}

fn percentiles(latency: &Latency) -> Vec<(f64, f64)> {
    // Every percentile above this one is the slowest request, so further points would have no new information.
    let last = 1.0 - 1.0 / latency.requests() as f64;
    (0..=PERCENTILE_PLACES)
        .map(|place| 1.0 - 10_f64.powf(-4.0 * place as f64 / PERCENTILE_PLACES as f64))
        .filter(|at| *at <= last)
        .map(|at| (at, latency.quantile(at)))
        .collect()
}

/// Draws a plot for each quantity that was recorded over time.
pub fn series(case: &Case<'_>, styles: &Styles) -> Result<String> {
    let quantities = distinct(case.series.iter().map(|series| series.quantity.as_str()));
    let mut plots = String::new();
    for quantity in quantities {
        let all: Vec<&Series> = (case.series.iter())
            .filter(|series| series.quantity == quantity && !series.points.is_empty())
            .copied()
            .collect();
        let Some(first) = all.first() else { continue };
        let points = || all.iter().flat_map(|series| &series.points);
        let (begin, end) = range(points().map(|at| at.0));
        let x = match end {
            end if end > 10_000.0 => Axis::linear("hours", begin / 3600.0, end / 3600.0),
            _ => Axis::linear("seconds", begin, end),
        };
        let unit = if end > 10_000.0 { 3600.0 } else { 1.0 };
        let title = titled(quantity, &first.unit);
        let y = Axis::fitting(&title, range(points().map(|at| at.1)), WIDE, true);
        let lines: Vec<Line> = (all.iter())
            .map(|series| Line {
                style: styles.style(&series.subject),
                points: thinned(&series.points, unit),
                spread: Vec::new(),
            })
            .collect();
        let legend = legend(all.iter().map(|series| series.subject.as_str()), styles);
        plots += &wrap(
            &format!("{quantity} over time"),
            &svg::lines(&x, &y, &lines)?,
            &legend,
        );
    }
    Ok(plots)
}

/// Returns the lowest and the highest point of each interval, with the times divided by `unit` (in seconds). Outliers
/// stay visible, even if they were short.
fn thinned(points: &[(f64, f64)], unit: f64) -> Vec<(f64, f64)> {
    let stretch = points.len().div_ceil(SERIES_PLACES).max(1);
    let mut thinned = Vec::new();
    for points in points.chunks(stretch) {
        let by_value = |one: &&(f64, f64), other: &&(f64, f64)| one.1.total_cmp(&other.1);
        let ends = [
            points.iter().min_by(by_value),
            points.iter().max_by(by_value),
        ];
        let mut ends: Vec<(f64, f64)> = ends.into_iter().flatten().copied().collect();
        ends.sort_by(|one, other| one.0.total_cmp(&other.0));
        ends.dedup();
        thinned.extend(ends);
    }
    thinned
        .iter()
        .map(|(at, value)| (at / unit, *value))
        .collect()
}

/// Draws cost against size. Each axis, quantity and line has a plot that shows all subjects. If there is only one
/// subject, all its lines share a plot.
pub fn sizes(scenario: &Scenario, styles: &Styles) -> Result<String> {
    let points: Vec<Point<'_>> = scenario.figures.iter().filter_map(Point::of).collect();
    let mut plots = String::new();
    for (axis, quantity) in distinct(
        points
            .iter()
            .map(|point| (point.axis, &point.figure.quantity)),
    ) {
        let group: Vec<&Point<'_>> = (points.iter())
            .filter(|point| (point.axis, &point.figure.quantity) == (axis, quantity))
            .collect();
        if distinct(group.iter().map(|point| point.value)).len() > 1 {
            plots += &sizes_of(&group, styles)?;
        }
    }
    Ok(plots)
}

/// A figure as a point in a plot of cost against size.
struct Point<'a> {
    axis: &'a str,
    line: &'a str,
    value: f64,
    figure: &'a Figure,
}

impl<'a> Point<'a> {
    fn of(figure: &'a Figure) -> Option<Self> {
        let size = figure
            .size
            .as_ref()
            .filter(|_| figure.samples.count() > 0)?;
        Some(Self {
            axis: &size.axis,
            line: &size.line,
            value: size.value,
            figure,
        })
    }
}

/// Draws the plots of one axis and quantity. All plots have the same range of values, so that they can be compared.
fn sizes_of(group: &[&Point<'_>], styles: &Styles) -> Result<String> {
    let Some(first) = group.first() else {
        return Ok(String::new());
    };
    let ends = group
        .iter()
        .flat_map(|point| [0.05, 0.95].map(|at| point.figure.samples.quantile(at)));
    let y = Axis::fitting(&first.figure.title(), range(ends), WIDE, true);
    let mut values = distinct(group.iter().map(|point| point.value));
    values.sort_by(f64::total_cmp);
    let ends = range(values.iter().copied());
    let x = if ends.0 > 0.0 {
        Axis::log(first.axis, ends.0, ends.1).with_ticks(&apart(&values))
    } else {
        Axis::fitting(first.axis, ends, f64::INFINITY, true)
    };
    let lines = distinct(group.iter().map(|point| point.line));
    let subjects = distinct(group.iter().map(|point| point.figure.subject.as_str()));
    let title = format!("{} against {}", first.figure.quantity, first.axis);
    if subjects.len() == 1 {
        let styles = Styles::named(lines.iter().copied());
        return size_plot(
            &format!("{title}: {}", subjects[0]),
            (&x, &y),
            group,
            &lines,
            &styles,
            |point| point.line,
        );
    }
    let mut plots = String::new();
    for line in lines {
        let of_line: Vec<&Point<'_>> = group
            .iter()
            .filter(|point| point.line == line)
            .copied()
            .collect();
        let subjects = distinct(of_line.iter().map(|point| point.figure.subject.as_str()));
        plots += &size_plot(
            &format!("{title}: {line}"),
            (&x, &y),
            &of_line,
            &subjects,
            styles,
            |point| &point.figure.subject,
        )?;
    }
    Ok(plots)
}

/// Selects sizes so that their labels do not overlap.
fn apart(values: &[f64]) -> Vec<f64> {
    let (low, high) = range(values.iter().copied());
    let least = (high / low).log10() / 6.0;
    let mut apart: Vec<f64> = Vec::new();
    for value in values {
        if apart
            .last()
            .is_none_or(|last| (value / last).log10() >= least)
        {
            apart.push(*value);
        }
    }
    apart
}

fn size_plot(
    title: &str,
    (x, y): (&Axis, &Axis),
    points: &[&Point<'_>],
    names: &[&str],
    styles: &Styles,
    name_of: impl for<'p> Fn(&'p Point<'_>) -> &'p str,
) -> Result<String> {
    let line = |name: &&str| {
        let mut own: Vec<&&Point<'_>> = points
            .iter()
            .filter(|point| name_of(point) == *name)
            .collect();
        own.sort_by(|one, other| one.value.total_cmp(&other.value));
        let samples = || own.iter().map(|point| &point.figure.samples);
        Line {
            style: styles.style(name),
            points: own
                .iter()
                .zip(samples())
                .map(|(point, samples)| (point.value, samples.median()))
                .collect(),
            spread: samples()
                .map(|samples| (samples.quantile(0.05), samples.quantile(0.95)))
                .collect(),
        }
    };
    let lines: Vec<Line> = names.iter().map(line).collect();
    let legend = legend(names.iter().copied(), styles);
    Ok(wrap(title, &svg::lines(x, y, &lines)?, &legend))
}

fn wrap(title: &str, drawing: &str, legend: &str) -> String {
    format!(
        "<figure><figcaption>{}</figcaption>{drawing}{legend}</figure>\n",
        escape(title)
    )
}

fn legend<'a>(names: impl Iterator<Item = &'a str>, styles: &Styles) -> String {
    legend_of(names.map(|name| (styles.style(name), name.to_owned())))
}

/// Returns a legend as HTML outside the drawing, where it cannot cover a curve.
fn legend_of(entries: impl Iterator<Item = (&'static Style, String)>) -> String {
    let entries: String = entries
        .map(|(style, name)| {
            let (color, shape) = (style.code(), swatch_marker(style));
            let name = escape(&name);
            format!("<li><svg width=\"34\" height=\"10\" viewBox=\"0 0 68 20\"><polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"5\" points=\"0,10 68,10\"/>{shape}</svg>{name}</li>")
        })
        .collect();
    format!("<ul class=\"legend\">{entries}</ul>")
}

fn swatch_marker(style: &Style) -> String {
    let color = style.code();
    let corners = match style.marker {
        Marker::Circle => return format!("<circle cx=\"34\" cy=\"10\" r=\"8\" fill=\"{color}\"/>"),
        Marker::Square => "27,3 41,3 41,17 27,17",
        Marker::Triangle => "34,0 43,17 25,17",
        Marker::Diamond => "34,0 43,10 34,20 25,10",
    };
    format!("<polygon fill=\"{color}\" points=\"{corners}\"/>")
}
