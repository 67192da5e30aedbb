//! The appearance of a subject, which is the same on the whole page. A style has a colour. It also has dashes and a
//! marker, for readers who cannot distinguish the colours.
//!
//! plotters supports neither dark mode nor dashes. The page's style sheet therefore applies both to everything that is
//! drawn in the colour of a style.

use super::Report;
use super::cases::distinct;
use plotters::style::RGBColor;
use std::fmt::Write;

pub const INK: RGBColor = RGBColor(0x33, 0x34, 0x35);
pub const GRID: RGBColor = RGBColor(0xDD, 0xDE, 0xDF);
const INK_DARK: &str = "#d5d7da";
const GRID_DARK: &str = "#3a3d42";

pub struct Style {
    pub color: RGBColor,
    dark: &'static str,
    dash: &'static str,
    pub marker: Marker,
}

#[derive(Clone, Copy)]
pub enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
}

/// Subjects with a fixed style in every report. Other subjects get the remaining styles.
const KNOWN: [&str; 10] = [
    "silverback",
    "relay",
    "nginx",
    "haproxy",
    "envoy",
    "caddy",
    "traefik",
    "krakend",
    "kong",
    "direct",
];

/// The styles. Lengths of strokes and gaps are in units of the drawing, which are half a pixel.
const STYLES: [Style; 13] = [
    style(0x0A6EBD, "#4aa8f0", "none", Marker::Circle),
    style(0x7A7D82, "#a3a7ad", "4 6", Marker::Square),
    style(0x0B8A5F, "#35c796", "16 6", Marker::Triangle),
    style(0xCB4B16, "#f0854f", "16 5 4 5", Marker::Diamond),
    style(0xB0478F, "#e07fc0", "8 6", Marker::Square),
    style(0x1B9BB5, "#56c9de", "24 6", Marker::Diamond),
    style(0xB07D00, "#dfb03a", "20 5 4 5 4 5", Marker::Triangle),
    style(0x7B4F2E, "#c08a60", "10 4", Marker::Circle),
    style(0x5B4FC4, "#9a90f2", "28 8 8 8", Marker::Square),
    style(0x444A52, "#c3c9d1", "2 4", Marker::Circle),
    style(0x2F4F8F, "#83a5e8", "18 10", Marker::Circle),
    style(0x5C7D1A, "#a3c653", "6 3", Marker::Triangle),
    style(0x9C2F3F, "#e8707f", "12 4 2 4 2 4 2 4", Marker::Diamond),
];

const fn style(color: u32, dark: &'static str, dash: &'static str, marker: Marker) -> Style {
    let color = RGBColor((color >> 16) as u8, (color >> 8) as u8, color as u8);
    Style {
        color,
        dark,
        dash,
        marker,
    }
}

impl Style {
    /// Returns the colour code in plotters' format.
    pub fn code(&self) -> String {
        code(self.color)
    }
}

fn code(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

/// The styles by name, as indexes into `STYLES`.
pub struct Styles(Vec<(String, usize)>);

impl Styles {
    pub fn of(report: &Report) -> Self {
        let subjects = report.scenarios.iter().flat_map(|scenario| {
            let figures = scenario.figures.iter().map(|figure| &figure.subject);
            let latencies = scenario.latencies.iter().map(|latency| &latency.subject);
            let series = scenario.series.iter().map(|series| &series.subject);
            figures.chain(latencies).chain(series)
        });
        Self::named(subjects.map(String::as_str))
    }

    /// Assigns a style to each name: the fixed style of a subject in `KNOWN`, or else the next free style.
    pub fn named<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let names = distinct(names);
        let known = |name: &str| KNOWN.iter().position(|known| *known == name);
        let taken: Vec<usize> = names.iter().filter_map(|name| known(name)).collect();
        // Free styles are assigned from the end of the list. The styles that belong to no subject are there. The styles
        // of known subjects that are absent from this report follow.
        let mut free = (0..STYLES.len())
            .rev()
            .filter(|index| !taken.contains(index))
            .cycle();
        let mut choose = |name: &str| known(name).or_else(|| free.next()).unwrap_or_default();
        Self(
            names
                .iter()
                .map(|name| (name.to_string(), choose(name)))
                .collect(),
        )
    }

    pub fn style(&self, name: &str) -> &'static Style {
        let found = self.0.iter().find(|(known, _)| known == name);
        &STYLES[found.map_or(0, |(_, index)| *index)]
    }
}

/// Returns the part of the style sheet with the dashes and the dark-mode colours of drawings.
pub fn sheet() -> String {
    let mut sheet = String::new();
    for style in &STYLES {
        if style.dash != "none" {
            let _ = writeln!(
                sheet,
                "svg polyline[stroke=\"{}\"]{{stroke-dasharray:{}}}",
                style.code(),
                style.dash
            );
        }
    }
    sheet.push_str("@media(prefers-color-scheme:dark){\n");
    let colors = STYLES.iter().map(|style| (style.color, style.dark));
    for (light, dark) in colors.chain([(INK, INK_DARK), (GRID, GRID_DARK)]) {
        let light = code(light);
        let _ = writeln!(
            sheet,
            "svg [stroke=\"{light}\"]{{stroke:{dark}}}svg [fill=\"{light}\"]{{fill:{dark}}}"
        );
    }
    sheet.push_str("}\n");
    sheet
}
