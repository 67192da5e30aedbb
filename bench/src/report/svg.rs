//! Drawings by plotters: lines over two axes, and bars. This module does not depend on reports.
//!
//! Drawings have twice the size at which they are shown. plotters rounds coordinates to whole units, so curves would
//! otherwise have visible steps.

use super::format::tick;
use super::style::{GRID, INK, Marker, Style};
use anyhow::{Result, anyhow};
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::ops::Range;

const LINES_SIZE: (u32, u32) = (1040, 580);
const BARS_WIDTH: u32 = 690;
const BAR_HEIGHT: u32 = 44;
const FONT: u32 = 23;
/// Approximate width of a letter.
const LETTER: f64 = 12.0;

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// An axis. [`Scale::place`] maps each value to its position.
pub struct Axis {
    title: String,
    scale: Scale,
    /// Position at which the axis begins. `high` is the position at which it ends.
    low: f64,
    high: f64,
    /// Positions and labels.
    ticks: Vec<(f64, String)>,
}

#[derive(Clone, Copy, PartialEq)]
pub enum Scale {
    Linear,
    /// A logarithmic scale, for values over several orders of magnitude. Zero and negative values have no position.
    Log,
    /// A scale for percentiles, on which each further nine takes the same space.
    Nines,
}

impl Axis {
    pub fn linear(title: &str, low: f64, high: f64) -> Self {
        // A range of length zero cannot be drawn, so it is widened.
        let (low, high) = if high > low {
            (low, high)
        } else {
            (
                low - low.abs().max(1.0) / 2.0,
                low + low.abs().max(1.0) / 2.0,
            )
        };
        let ticks = linear_ticks(low, high)
            .into_iter()
            .map(|value| (value, tick(value)))
            .collect();
        Self {
            title: title.to_owned(),
            scale: Scale::Linear,
            low,
            high,
            ticks,
        }
    }

    pub fn log(title: &str, low: f64, high: f64) -> Self {
        let (low, high) = (low.log10(), high.log10());
        let room = ((high - low) * 0.04).max(0.05);
        let (low, high) = (low - room, high + room);
        let ticks = log_ticks(low, high)
            .into_iter()
            .map(|value| (value.log10(), tick(value)))
            .collect();
        Self {
            title: title.to_owned(),
            scale: Scale::Log,
            low,
            high,
            ticks,
        }
    }

    /// Creates an axis of percentiles from 0 to 99.99.
    pub fn nines(title: &str) -> Self {
        let percentiles = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999];
        let ticks = percentiles
            .into_iter()
            .map(|at| (Scale::Nines.place(at), format!("{} %", tick(at * 100.0))))
            .collect();
        Self {
            title: title.to_owned(),
            scale: Scale::Nines,
            low: 0.0,
            high: Scale::Nines.place(0.9999),
            ticks,
        }
    }

    /// Creates a logarithmic axis if `high / low` exceeds `span`, and otherwise a linear one. The linear axis starts at
    /// zero if `zero` is set and no value is negative.
    pub fn fitting(title: &str, (low, high): (f64, f64), span: f64, zero: bool) -> Self {
        if low > 0.0 && high / low > span {
            return Self::log(title, low, high);
        }
        let room = (high - low) * 0.04;
        if zero && low >= 0.0 {
            Self::linear(title, 0.0, high * 1.05)
        } else {
            Self::linear(title, low - room, high + room)
        }
    }

    /// Replaces the ticks by ticks at these values.
    pub fn with_ticks(mut self, values: &[f64]) -> Self {
        self.ticks = values
            .iter()
            .map(|value| (self.scale.place(*value), tick(*value)))
            .collect();
        self
    }

    pub fn scale(&self) -> Scale {
        self.scale
    }

    fn holds(&self, place: f64) -> bool {
        (self.low..=self.high).contains(&place)
    }

    fn keep_within(&self, place: f64) -> f64 {
        place.clamp(self.low, self.high)
    }

    fn range(&self) -> Places {
        Places {
            range: self.low..self.high,
            ticks: self.ticks.iter().map(|(place, _)| *place).collect(),
        }
    }

    fn label(&self, place: f64) -> String {
        let near = (self.high - self.low) / 1e6;
        let tick = self.ticks.iter().find(|(at, _)| (at - place).abs() < near);
        tick.map(|(_, label)| label.clone()).unwrap_or_default()
    }

    /// Returns the width of the longest label.
    fn label_width(&self) -> f64 {
        let longest = self
            .ticks
            .iter()
            .map(|(_, label)| label.chars().count())
            .max();
        longest.unwrap_or(0) as f64 * LETTER
    }
}

/// An axis for plotters with our ticks, because plotters would choose its own.
struct Places {
    range: Range<f64>,
    ticks: Vec<f64>,
}

impl Ranged for Places {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, limit: (i32, i32)) -> i32 {
        RangedCoordf64::from(self.range.clone()).map(place, limit)
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // plotters calls this a second time, for light grid lines between the ticks. There are none.
        if hint.weight().allow_light_points() {
            Vec::new()
        } else {
            self.ticks.clone()
        }
    }

    fn range(&self) -> Range<f64> {
        self.range.clone()
    }
}

impl Scale {
    pub fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Log => value.log10(),
            Self::Nines => -(1.0 - value).log10(),
        }
    }
}

pub struct Line {
    pub style: &'static Style,
    pub points: Vec<(f64, f64)>,
    /// The range of each point for its error bar, in the order of the points. If this is empty, the line has no error
    /// bars and at most three markers.
    pub spread: Vec<(f64, f64)>,
}

/// Draws lines over two axes. Points outside the x axis are not drawn; points outside the y axis are drawn at its end.
pub fn lines(x: &Axis, y: &Axis, lines: &[Line]) -> Result<String> {
    draw(LINES_SIZE, |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_top(14)
            .margin_right(50)
            .x_label_area_size(72)
            .y_label_area_size((y.label_width() + 62.0) as u32)
            .build_cartesian_2d(x.range(), y.range())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(INK.stroke_width(2))
            .label_style(("sans-serif", FONT).into_font().color(&INK))
            .x_desc(&x.title)
            .y_desc(&y.title)
            .x_label_formatter(&|place| x.label(*place))
            .y_label_formatter(&|place| y.label(*place))
            .draw()?;
        for line in lines {
            let places = line_places(x, y, line);
            let stroke = line.style.color.stroke_width(4);
            chart.draw_series([PathElement::new(
                places.iter().map(|at| (at.0, at.1)).collect::<Vec<_>>(),
                stroke,
            )])?;
            for (index, (across, up, spread)) in places.iter().enumerate() {
                if let Some((low, high)) = spread {
                    let style = line.style.color.stroke_width(3);
                    chart.draw_series([ErrorBar::new_vertical(
                        *across, *low, *up, *high, style, 12,
                    )])?;
                } else if !marked(index, places.len()) {
                    continue;
                }
                mark(root, line.style, chart.backend_coord(&(*across, *up)))?;
            }
        }
        Ok(())
    })
}

/// Whether a point of a curve has a marker. Three markers are enough to distinguish curves. A curve with eight points
/// or fewer has none.
fn marked(index: usize, count: usize) -> bool {
    count > 8 && [1, 2, 3].iter().any(|quarter| index == count * quarter / 4)
}

type Place = (f64, f64, Option<(f64, f64)>);

fn line_places(x: &Axis, y: &Axis, line: &Line) -> Vec<Place> {
    let up = |value: f64| y.keep_within(y.scale.place(value));
    (line.points.iter().enumerate())
        .map(|(index, (across, value))| {
            let spread = line.spread.get(index);
            let spread = spread.map(|(low, high)| (up(*low), up(*high)));
            (x.scale.place(*across), up(*value), spread)
        })
        .filter(|(across, up, _)| x.holds(*across) && up.is_finite())
        .collect()
}

fn mark(root: &Area<'_>, style: &Style, (x, y): (i32, i32)) -> Result<(), Problem> {
    let corners: &[(i32, i32)] = match style.marker {
        Marker::Circle => return Ok(root.draw(&Circle::new((x, y), 8, style.color.filled()))?),
        Marker::Square => &[(-7, -7), (7, -7), (7, 7), (-7, 7)],
        Marker::Triangle => &[(0, -10), (9, 7), (-9, 7)],
        Marker::Diamond => &[(0, -11), (9, 0), (0, 11), (-9, 0)],
    };
    let corners: Vec<(i32, i32)> = corners
        .iter()
        .map(|corner| (x + corner.0, y + corner.1))
        .collect();
    Ok(root.draw(&Polygon::new(corners, style.color.filled()))?)
}

pub struct Bar {
    pub label: String,
    pub style: &'static Style,
    pub value: f64,
    pub low: f64,
    pub high: f64,
    /// The value as written next to the bar.
    pub text: String,
}

/// Draws horizontal bars that start at zero. Each has an error bar, its label on the left and its value on the right.
pub fn bars(title: &str, bars: &[Bar]) -> Result<String> {
    let ends = bars.iter().flat_map(|bar| [bar.low, bar.high, bar.value]);
    let (low, high) = range(ends.chain([0.0]));
    let room = (high - low) * 0.03;
    let axis = Axis::linear(title, if low < 0.0 { low - room } else { 0.0 }, high + room);
    let width = |text: &dyn Fn(&Bar) -> &str| {
        let longest = bars.iter().map(|bar| text(bar).chars().count()).max();
        (longest.unwrap_or(0) as f64 * LETTER) as u32 + 24
    };
    let (left, right) = (width(&|bar| &bar.label), width(&|bar| &bar.text));
    draw((BARS_WIDTH, bars.len() as u32 * BAR_HEIGHT + 80), |root| {
        let mut chart = ChartBuilder::on(root)
            .margin_top(8)
            .margin_left(left)
            .margin_right(right)
            .x_label_area_size(72)
            .build_cartesian_2d(axis.range(), 0.0..bars.len() as f64)?;
        chart
            .configure_mesh()
            .disable_y_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID.stroke_width(2))
            .axis_style(INK.stroke_width(2))
            .label_style(("sans-serif", FONT).into_font().color(&INK))
            .x_desc(title)
            .x_label_formatter(&|place| axis.label(*place))
            .draw()?;
        let end = (BARS_WIDTH - right + 14) as i32;
        for (index, bar) in bars.iter().rev().enumerate() {
            let bottom = index as f64;
            let shape = [(0.0, bottom + 0.16), (bar.value, bottom + 0.84)];
            chart.draw_series([Rectangle::new(shape, bar.style.color.filled())])?;
            if bar.high > bar.low {
                let place = |end| chart.backend_coord(&(end, bottom + 0.5));
                whisker(root, place(bar.low), place(bar.high))?;
            }
            let height = chart.backend_coord(&(0.0, bottom + 0.5)).1;
            text(root, &bar.label, (left as i32 - 12, height), HPos::Right)?;
            text(root, &bar.text, (end, height), HPos::Left)?;
        }
        Ok(())
    })
}

fn text(root: &Area<'_>, text: &str, at: (i32, i32), anchor: HPos) -> Result<(), Problem> {
    let font = ("sans-serif", FONT).into_font().color(&INK);
    let style = font.pos(Pos::new(anchor, VPos::Center));
    Ok(root.draw(&Text::new(text.to_owned(), at, style))?)
}

/// Draws an error bar without a dot in its middle. plotters' own error bar has a dot, which hides narrow ranges.
fn whisker(root: &Area<'_>, low: (i32, i32), high: (i32, i32)) -> Result<(), Problem> {
    let cap = |(x, y): (i32, i32)| vec![(x, y - 7), (x, y + 7)];
    for path in [vec![low, high], cap(low), cap(high)] {
        root.draw(&PathElement::new(path, INK.stroke_width(3)))?;
    }
    Ok(())
}

type Problem = Box<dyn std::error::Error + 'static>;

/// Creates a drawing of this size, which the page shows at half the size. Removes attributes and line breaks of
/// plotters that have no effect, to keep the page small.
fn draw(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Result<(), Problem>) -> Result<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        draw(&root)
            .and_then(|()| Ok(root.present()?))
            .map_err(|error| anyhow!("cannot draw: {error}"))?;
    }
    let old = format!("<svg width=\"{}\" height=\"{}\"", size.0, size.1);
    let new = format!(
        "<svg role=\"img\" width=\"{}\" height=\"{}\"",
        size.0 / 2,
        size.1 / 2
    );
    Ok(svg
        .replacen(&old, &new, 1)
        .replace(" opacity=\"1\"", "")
        .replace(" font-family=\"sans-serif\"", "")
        .replace(&format!(" font-size=\"{}\"", f64::from(FONT) / 1.24), "")
        .replace(" \"/>", "\"/>")
        .replace(">\n", ">")
        .replace("\n<", "<"))
}

/// Returns the lowest and the highest of the finite values, or 0 and 1 if there are none.
pub fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let finite = values.filter(|value| value.is_finite());
    let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
        (low.min(value), high.max(value))
    });
    if low > high { (0.0, 1.0) } else { (low, high) }
}

/// Returns about five round values.
fn linear_ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 5.0;
    let decade = 10_f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
    let step = steps
        .into_iter()
        .find(|step| *step >= rough)
        .unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

/// Returns powers of ten, with values between them if there are only a few.
fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let digits: &[f64] = match high - low {
        span if span > 3.0 => &[1.0],
        span if span > 1.0 => &[1.0, 2.0, 5.0],
        _ => &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0],
    };
    let decades = (low.floor() as i32)..=(high.ceil() as i32);
    decades
        .flat_map(|decade| digits.iter().map(move |digit| digit * 10_f64.powi(decade)))
        .filter(|value| (low..=high).contains(&value.log10()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(linear_ticks(0.0, 10.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]);
        assert_eq!(
            linear_ticks(3.1, 3.9),
            [3.2, 3.4000000000000004, 3.6, 3.8000000000000003]
        );
        assert_eq!(log_ticks(0.0, 4.0), [1.0, 10.0, 100.0, 1000.0, 10000.0]);
    }

    #[test]
    fn each_nine_takes_the_same_room() {
        let place = |at| Scale::Nines.place(at);
        assert!((place(0.99) - 2.0 * place(0.9)).abs() < 1e-9);
        assert!((place(0.9999) - 4.0 * place(0.9)).abs() < 1e-9);
    }

    #[test]
    fn axes_of_nothing_and_of_one_value_can_be_drawn() {
        for (low, high) in [range([].into_iter()), (5.0, 5.0), (0.0, 0.0), (-3.0, -3.0)] {
            let axis = Axis::fitting("nothing", (low, high), 10.0, true);
            lines(&axis, &axis, &[]).unwrap();
        }
        bars("nothing", &[]).unwrap();
    }
}
