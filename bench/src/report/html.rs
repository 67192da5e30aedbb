//! The report as one self-contained page with tables and plots, for light and dark screens.

mod tables;

use super::cases::Case;
use super::style::{Styles, sheet};
use super::{Report, Scenario, plots};
use anyhow::Result;
use std::fmt::Write;

const SHEET: &str = include_str!("html/page.css");

/// Explanation for the reader of the page.
const READING: &str = "Bars and points are medians; error bars span the 5th to the 95th percentile of the samples. Tables have \
medians ± the standard deviation. “× relay” and “× nginx” are medians of the ratios within a round, which cancels out \
drift of the machine. Densities are sums of Gaussian kernels (Silverman's bandwidth). Distributions omit samples farther from the \
quartiles than six times their distance; the tables of all statistics include them.";

pub fn page(report: &Report) -> Result<String> {
    let styles = Styles::of(report);
    let mut body = head(report);
    for scenario in &report.scenarios {
        body += &section(scenario, &styles)?;
    }
    let title = format!("Benchmark of {}", date(&report.started));
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <meta name=\"color-scheme\" content=\"light dark\"/>\
         <title>{0}</title>\n<style>\n{SHEET}{1}</style></head>\n<body><main>\n<h1>{0}</h1>\n{body}</main></body></html>\n",
        escape(&title),
        sheet()
    ))
}

/// Escapes a text for HTML, also for attributes in double or single quotes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn date(started: &str) -> &str {
    started.split('T').next().unwrap_or(started)
}

/// Returns the information that a reader needs before the figures.
fn head(report: &Report) -> String {
    let mut head = String::new();
    let links = report.scenarios.iter().map(|scenario| {
        let name = escape(&scenario.name);
        let skipped = scenario.skipped.as_ref().map_or("", |_| " (skipped)");
        format!(
            "<a href=\"#{}\">{name}</a>{skipped}",
            anchor(&scenario.name)
        )
    });
    let _ = write!(
        head,
        "<nav>{}</nav>\n{}",
        links.collect::<Vec<_>>().join(" · "),
        list(&report.notes)
    );
    head += "<div class=\"columns\">";
    head += &tables::pairs("Machine", &tables::machine(report));
    head += &tables::pairs("Settings", &tables::strings(&report.settings));
    head += &tables::pairs("Versions", &tables::strings(&report.versions));
    head += "</div>\n";
    let commands: Vec<String> = report
        .commands
        .iter()
        .map(|command| escape(command))
        .collect();
    if !commands.is_empty() {
        let _ = writeln!(
            head,
            "<details><summary>Commands</summary><pre>{}</pre></details>",
            commands.join("\n")
        );
    }
    let _ = writeln!(head, "<p class=\"reading\">{READING}</p>");
    head
}

fn section(scenario: &Scenario, styles: &Styles) -> Result<String> {
    let mut section = format!(
        "<section id=\"{}\"><h2>{}</h2>\n<p>{}</p>\n{}",
        anchor(&scenario.name),
        escape(&scenario.name),
        escape(&scenario.about),
        list(&scenario.notes)
    );
    if let Some(reason) = &scenario.skipped {
        let _ = writeln!(
            section,
            "<p class=\"skipped\">Skipped: {}</p>",
            escape(reason)
        );
    }
    section += &tables::overview(scenario);
    section += &grid(&plots::sizes(scenario, styles)?);
    for case in scenario.cases() {
        section += &case_part(&case, styles)?;
    }
    Ok(section + "</section>\n")
}

fn case_part(case: &Case<'_>, styles: &Styles) -> Result<String> {
    let mut bars = String::new();
    let mut distributions = String::new();
    for quantity in case.quantities() {
        bars += &plots::bars(case, quantity, styles)?;
        distributions += &plots::distributions(case, quantity, styles)?;
    }
    let curves = plots::latency(case, styles)? + &plots::series(case, styles)?;
    let mut part = format!(
        "<h3>{}</h3>\n{}{}{}",
        escape(case.name),
        tables::case(case),
        grid(&curves),
        grid(&bars)
    );
    if !case.figures.is_empty() {
        let _ = writeln!(
            part,
            "<details><summary>Distributions and all statistics</summary>{}{}</details>",
            tables::statistics(case),
            grid(&distributions)
        );
    }
    Ok(part)
}

fn grid(figures: &str) -> String {
    match figures {
        "" => String::new(),
        figures => format!("<div class=\"grid\">{figures}</div>\n"),
    }
}

fn list(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let items: String = notes
        .iter()
        .map(|note| format!("<li>{}</li>", escape(note)))
        .collect();
    format!("<ul class=\"notes\">{items}</ul>\n")
}

/// Returns an anchor. Names of scenarios may contain characters that are not allowed in anchors.
fn anchor(name: &str) -> String {
    name.chars()
        .map(|character| {
            if character.is_alphanumeric() {
                character
            } else {
                '-'
            }
        })
        .collect()
}
