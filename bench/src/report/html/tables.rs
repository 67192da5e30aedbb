//! The tables of the page.

use super::super::cases::Case;
use super::super::format::{number, number_like};
use super::super::{Figure, Report, Scenario};
use super::escape;
use crate::statistics::Samples;
use std::collections::BTreeMap;

const PERCENTILES: [(f64, &str); 4] = [
    (0.5, "p50"),
    (0.99, "p99"),
    (0.999, "p99.9"),
    (0.9999, "p99.99"),
];
/// Minimum number of cases in an overview table. With a single case, it would repeat the table of the case.
const FEW: usize = 2;

pub fn machine(report: &Report) -> Vec<(String, String)> {
    let machine = &report.machine;
    let pinning: Vec<String> = (machine.pinning.iter())
        .map(|(component, core)| format!("{component}: core {core}"))
        .collect();
    [
        (
            "Processor",
            format!("{}, {} cores", machine.cpu, machine.cores),
        ),
        (
            "Memory",
            format!("{} MiB", number(machine.memory_mib as f64)),
        ),
        ("Kernel", machine.kernel.clone()),
        ("System", machine.system.clone()),
        ("Pinned to", pinning.join(", ")),
        ("Began", report.started.clone()),
        ("Took", duration(report.seconds)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

pub fn strings(map: &BTreeMap<String, String>) -> Vec<(String, String)> {
    map.iter()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

pub fn pairs(title: &str, pairs: &[(String, String)]) -> String {
    let rows = pairs
        .iter()
        .map(|(name, value)| vec![escape(name), escape(value)]);
    let table = table("text", &[], rows);
    format!("<div><h4>{}</h4>{table}</div>", escape(title))
}

/// Returns a table for each main quantity, with cases in rows and subjects in columns.
pub fn overview(scenario: &Scenario) -> String {
    let cases = scenario.cases();
    let mut groups: Vec<(String, Vec<&Case<'_>>)> = Vec::new();
    for case in &cases {
        let Some(figure) = case
            .main_quantity()
            .and_then(|main| case.of_quantity(main).first().copied())
        else {
            continue;
        };
        match groups
            .iter_mut()
            .find(|(title, _)| *title == figure.title())
        {
            Some((_, group)) => group.push(case),
            None => groups.push((figure.title(), vec![case])),
        }
    }
    groups.retain(|(_, group)| group.len() >= FEW);
    groups
        .iter()
        .map(|(title, group)| overview_of(title, group))
        .collect()
}

fn overview_of(title: &str, cases: &[&Case<'_>]) -> String {
    let subjects = super::super::cases::distinct(cases.iter().flat_map(|case| case.subjects()));
    let mut columns = vec![escape(title)];
    columns.extend(subjects.iter().map(|subject| escape(subject)));
    let rows = cases.iter().map(|case| {
        let cell = |subject: &&str| {
            let figure = case
                .main_quantity()
                .and_then(|main| case.figure(subject, main));
            figure.map_or_else(String::new, |figure| number(figure.samples.median()))
        };
        let mut row = vec![escape(case.name)];
        row.extend(subjects.iter().map(cell));
        row
    });
    table("", &columns, rows)
}

/// Returns a table with a row for each subject. The columns are the quantities, the ratios to the references and the
/// percentiles of latency.
pub fn case(case: &Case<'_>) -> String {
    let references = case.references();
    let mut columns = vec![String::new()];
    for quantity in case.quantities() {
        let figure = case.of_quantity(quantity)[0];
        columns.push(format!(
            "{} <span class=\"unit\">{}</span>",
            escape(quantity),
            escape(&figure.unit)
        ));
        if Some(quantity) == case.main_quantity() {
            columns.extend(references.iter().map(|reference| format!("× {reference}")));
        }
    }
    if !case.latencies.is_empty() {
        columns
            .extend(PERCENTILES.map(|(_, name)| format!("{name} <span class=\"unit\">µs</span>")));
    }
    let rows = case
        .subjects()
        .into_iter()
        .map(|subject| row(case, subject, &references));
    table("", &columns, rows)
}

fn row(case: &Case<'_>, subject: &str, references: &[&str]) -> Vec<String> {
    let mut row = vec![escape(subject)];
    for quantity in case.quantities() {
        row.push(
            case.figure(subject, quantity)
                .map_or_else(String::new, spread),
        );
        if Some(quantity) == case.main_quantity() {
            let multiple = |reference: &&str| {
                let multiples = case.multiples(subject, reference);
                multiples.map_or_else(String::new, |multiples| number(multiples.median()))
            };
            row.extend(references.iter().map(multiple));
        }
    }
    if !case.latencies.is_empty() {
        row.extend(PERCENTILES.map(|(at, _)| match case.latency(subject) {
            Some(latency) => number(latency.quantile(at)),
            None => String::new(),
        }));
    }
    row
}

fn spread(figure: &Figure) -> String {
    let (median, deviation) = (figure.samples.median(), figure.samples.deviation());
    if deviation.is_nan() {
        return number(median);
    }
    format!(
        "{} <span class=\"deviation\">± {}</span>",
        number(median),
        number_like(deviation, median)
    )
}

/// Returns a table with the statistics of every figure of the case.
pub fn statistics(case: &Case<'_>) -> String {
    let columns = [
        "",
        "quantity",
        "samples",
        "mean",
        "median",
        "95 % interval of the median",
        "standard deviation",
        "least",
        "p5",
        "p95",
        "largest",
    ]
    .map(str::to_owned);
    let rows = case.quantities().into_iter().flat_map(|quantity| {
        let figures = case.of_quantity(quantity);
        figures.into_iter().map(|figure| {
            let mut row = vec![escape(&figure.subject), escape(&figure.title())];
            row.extend(described(&figure.samples));
            row
        })
    });
    table("", &columns, rows)
}

fn described(samples: &Samples) -> Vec<String> {
    let like = samples.median();
    let text = |value: f64| number_like(value, like);
    let interval = samples.median_interval(0.95);
    vec![
        samples.count().to_string(),
        text(samples.mean()),
        text(like),
        format!("{} – {}", text(interval.low), text(interval.high)),
        text(samples.deviation()),
        text(samples.min()),
        text(samples.quantile(0.05)),
        text(samples.quantile(0.95)),
        text(samples.max()),
    ]
}

/// Returns a table from cells that are already HTML. A table that is too wide for the page gets its own scroll bar.
fn table(class: &str, columns: &[String], rows: impl Iterator<Item = Vec<String>>) -> String {
    let cells = |tag: &str, cells: &[String]| -> String {
        let cells = cells.iter().map(|cell| format!("<{tag}>{cell}</{tag}>"));
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = rows.map(|row| cells("td", &row)).collect();
    let head = match columns {
        [] => String::new(),
        columns => format!("<thead>{}</thead>", cells("th", columns)),
    };
    format!(
        "<div class=\"wide\"><table class=\"{class}\">{head}<tbody>{rows}</tbody></table></div>\n"
    )
}

fn duration(seconds: f64) -> String {
    let seconds = seconds.round() as u64;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, seconds) => format!("{seconds} s"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}
