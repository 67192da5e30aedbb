//! The report as tables for a terminal.

use super::cases::Case;
use super::format::{number, number_like};
use super::{Report, Scenario};
use std::fmt::Write;

const PERCENTILES: [(f64, &str); 3] = [(0.5, "p50 µs"), (0.99, "p99 µs"), (0.999, "p99.9 µs")];

pub fn print(report: &Report) -> String {
    let mut text = format!(
        "{}, {} cores; {}; {}\n",
        report.machine.cpu, report.machine.cores, report.machine.kernel, report.started
    );
    let settings: Vec<String> = (report.settings.iter())
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let _ = writeln!(text, "{}", settings.join(", "));
    for scenario in &report.scenarios {
        print_scenario(&mut text, scenario);
    }
    text += "\nMedians ± standard deviation; × relay and × nginx: medians of the ratios within a round.\n";
    for note in &report.notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn print_scenario(text: &mut String, scenario: &Scenario) {
    let _ = writeln!(
        text,
        "\n{}: {}",
        scenario.name.to_uppercase(),
        scenario.about
    );
    if let Some(reason) = &scenario.skipped {
        let _ = writeln!(text, "  skipped: {reason}");
    }
    for case in scenario.cases() {
        let _ = writeln!(text, "\n  {}", case.name);
        *text += &table(&columns(&case), "  ");
    }
    for note in &scenario.notes {
        let _ = writeln!(text, "  note: {note}");
    }
}

/// Returns the columns, each with its heading first.
fn columns(case: &Case<'_>) -> Vec<Vec<String>> {
    let subjects = case.subjects();
    let column = |heading: String, cell: &dyn Fn(&str) -> Option<String>| -> Vec<String> {
        let cells = subjects
            .iter()
            .map(|subject| cell(subject).unwrap_or_default());
        [heading].into_iter().chain(cells).collect()
    };
    let mut columns = vec![column(String::new(), &|subject| Some(subject.to_owned()))];
    for quantity in case.quantities() {
        let unit = case
            .of_quantity(quantity)
            .first()
            .map_or("", |figure| &figure.unit);
        let heading = format!("{quantity} {unit}");
        columns.push(column(heading.trim().to_owned(), &|subject| {
            median(case, subject, quantity)
        }));
        if Some(quantity) != case.main_quantity() {
            continue;
        }
        for reference in case.references() {
            let multiple =
                |subject: &str| Some(number(case.multiples(subject, reference)?.median()));
            columns.push(column(format!("× {reference}"), &multiple));
        }
    }
    if !case.latencies.is_empty() {
        for (at, heading) in PERCENTILES {
            let percentile = |subject: &str| Some(number(case.latency(subject)?.quantile(at)));
            columns.push(column(heading.to_owned(), &percentile));
        }
    }
    columns
}

fn median(case: &Case<'_>, subject: &str, quantity: &str) -> Option<String> {
    let samples = &case.figure(subject, quantity)?.samples;
    let (median, deviation) = (samples.median(), samples.deviation());
    Some(if deviation.is_nan() {
        number(median)
    } else {
        format!("{} ± {}", number(median), number_like(deviation, median))
    })
}

/// Formats a table with the first column aligned left and the others aligned right.
pub fn table(columns: &[Vec<String>], indent: &str) -> String {
    let widths: Vec<usize> = (columns.iter())
        .map(|column| {
            column
                .iter()
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        })
        .collect();
    let height = columns.first().map_or(0, Vec::len);
    let mut table = String::new();
    for row in 0..height {
        let mut line = indent.to_owned();
        for (index, (column, width)) in columns.iter().zip(&widths).enumerate() {
            let cell = &column[row];
            let _ = match index {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "   {cell:>width$}"),
            };
        }
        table += line.trim_end();
        table.push('\n');
    }
    table
}
