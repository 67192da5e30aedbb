//! The report as Markdown tables for a README, with cases in rows and subjects in columns.

use super::cases::{Case, distinct};
use super::format::number;
use super::{Report, Scenario};

/// Returns a table for each scenario that has this quantity. A cell has the median, and the median of the ratios to the
/// relay within a round.
pub fn markdown(report: &Report, quantity: &str) -> String {
    let tables: Vec<String> = (report.scenarios.iter())
        .filter_map(|scenario| scenario_table(scenario, quantity))
        .collect();
    tables.join("\n")
}

fn scenario_table(scenario: &Scenario, quantity: &str) -> Option<String> {
    let mut cases = scenario.cases();
    cases.retain(|case| !case.of_quantity(quantity).is_empty());
    let first = cases.first()?.of_quantity(quantity)[0];
    let subjects = distinct(cases.iter().flat_map(|case| {
        let figures = case.of_quantity(quantity);
        figures.into_iter().map(|figure| figure.subject.as_str())
    }));
    let mut heading = vec![format!("{}: {}", scenario.name, first.title())];
    heading.extend(subjects.iter().map(|subject| subject.to_string()));
    let mut table = row(&heading);
    table += &format!("|---|{}\n", "--:|".repeat(subjects.len()));
    for case in &cases {
        let mut cells = vec![case.name.to_owned()];
        cells.extend(subjects.iter().map(|subject| cell(case, subject, quantity)));
        table += &row(&cells);
    }
    Some(table)
}

fn cell(case: &Case<'_>, subject: &str, quantity: &str) -> String {
    let Some(figure) = case.figure(subject, quantity) else {
        return String::new();
    };
    let median = number(figure.samples.median());
    let relay = case
        .figure("relay", quantity)
        .filter(|_| subject != "relay");
    relay.map_or(median.clone(), |relay| {
        let multiple = figure.samples.ratio(&relay.samples).median();
        format!("{median} ({} ×)", number(multiple))
    })
}

fn row(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
    format!("| {} |\n", cells.join(" | "))
}
