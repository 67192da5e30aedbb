//! Compares what Prometheus has stored with the page that it has scraped, when there are no requests any more.

use super::page::{self, NAME, Page, Series};
use super::prometheus::{JOB, Prometheus};
use super::{Format, Way, native};
use crate::compat::Outcome;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};
use testkit::Gateway;

/// Time limit for two scrapes.
const LIMIT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum number of scrapes that have succeeded.
const LEAST_SCRAPES: usize = 5;

/// Counts the connection of the reader too, so that two readers see different values.
const OF_THE_READER: &str = "process_open_fds";

/// Maximum number of series that a failure names.
const MAX_NAMED: usize = 10;

/// The last values of all series of the gateway.
#[derive(Default)]
pub(super) struct Stored {
    pub(super) numbers: BTreeMap<Series, f64>,
    /// Native histograms as the HTTP API shows them.
    pub(super) histograms: BTreeMap<Series, Value>,
}

pub(super) fn check(
    server: &Prometheus,
    gateway: &Gateway,
    way: &Way,
    outcome: &mut Outcome,
) -> Result<(), String> {
    let before = read_page(gateway, way)?;
    wait_for_scrapes(server)?;
    let stored = Stored::read(server)?;
    let after = read_page(gateway, way)?;
    let steady = steady(&before, &after);
    outcome.count("the page is stored, and nothing else", {
        let missing = before.samples.keys().filter(|series| {
            after.samples.contains_key(*series) && !stored.has(series, way.format)
        });
        let known = |series: &Series| {
            before.samples.contains_key(series) || after.samples.contains_key(series)
        };
        let more = stored.numbers.keys().filter(|series| !known(series));
        let missing = missing.map(|series| format!("missing: {}", shown(series)));
        failure(missing.chain(more.map(|series| format!("not on the page: {}", shown(series)))))
    });
    outcome.count("the values are those of the page", {
        let differs = |(series, value): &(&Series, f64)| {
            let stored = stored.numbers.get(*series);
            stored.is_some_and(|stored| stored.to_bits() != value.to_bits())
        };
        let different = steady.iter().map(|(series, value)| (*series, *value));
        failure(different.filter(differs).map(|(series, value)| {
            let stored = stored.numbers.get(series).copied().unwrap_or(f64::NAN);
            format!("{}: {value} on the page, {stored} stored", shown(series))
        }))
        // A page that changes all the time would prove nothing.
        .or_else(|| {
            let few = steady.len() * 2 < before.samples.len();
            few.then(|| format!("only {} series kept their value", steady.len()))
        })
    });
    outcome.count(
        "the types are those of the page",
        types(server, &after.types),
    );
    outcome.notes.push(format!(
        "{} series of the page are stored; the {} that kept their value were compared; {} metrics have the right type",
        before.samples.len(),
        steady.len(),
        after.types.len()
    ));
    scrapes(server, outcome)?;
    match way.format {
        Format::Text => {}
        Format::OpenMetrics => native::check_exemplars(server, &[], outcome),
        Format::Protobuf { has_kong, .. } => {
            native::check(server, &stored, &after, &steady, has_kong, outcome);
            let histograms: Vec<&Series> = stored.histograms.keys().collect();
            native::check_exemplars(server, &histograms, outcome);
        }
    }
    Ok(())
}

impl Stored {
    fn read(server: &Prometheus) -> Result<Self, String> {
        let mut stored = Self::default();
        for one in server.query(&format!("{{job=\"{JOB}\"}}"))? {
            let Some(series) = labels(&one["metric"]) else {
                continue;
            };
            if let Some(number) = one["value"][1].as_str() {
                let number = number
                    .parse()
                    .map_err(|error| format!("{number}: {error}"))?;
                stored.numbers.insert(series, number);
            } else {
                stored
                    .histograms
                    .insert(series, one["histogram"][1].clone());
            }
        }
        Ok(stored)
    }

    /// Whether a series of the page is stored: itself, or as part of a native histogram.
    fn has(&self, series: &Series, format: Format) -> bool {
        let is_within = matches!(
            format,
            Format::Protobuf {
                has_classic: false,
                ..
            }
        );
        self.numbers.contains_key(series)
            || is_within
                && native::of_part(series).is_some_and(|whole| self.histograms.contains_key(&whole))
    }
}

/// Reads the labels that the gateway has given to a series. `None` for series that Prometheus makes itself.
fn labels(metric: &Value) -> Option<Series> {
    let mut series = Series::new();
    for (name, value) in metric.as_object()? {
        if !["job", "instance"].contains(&name.as_str()) {
            page::set(&mut series, name, value.as_str()?);
        }
    }
    let name = series.get(NAME)?;
    let is_own = name == "up"
        || name.starts_with("scrape_")
        || name.starts_with("ALERTS")
        || name.contains(':');
    (!is_own).then_some(series)
}

fn read_page(gateway: &Gateway, way: &Way) -> Result<Page, String> {
    let accept = match way.format {
        Format::OpenMetrics => "application/openmetrics-text",
        // Names and numbers of the protobuf format are those of the text format.
        Format::Text | Format::Protobuf { .. } => "text/plain",
    };
    Page::read(&testkit::get(gateway.status, "/metrics", &[("accept", accept)]).text())
}

/// Waits until a scrape has begun and succeeded.
fn wait_for_scrapes(server: &Prometheus) -> Result<(), String> {
    let deadline = Instant::now() + LIMIT;
    let mut ends = BTreeSet::new();
    // The first one is the end of an earlier scrape, and the next scrape may have begun before this call.
    while ends.len() < 3 {
        let target = &server.targets()[0];
        if target["health"] == "up" {
            ends.insert(target["lastScrape"].to_string());
        }
        if Instant::now() > deadline {
            return Err(format!("Prometheus does not scrape any more: {target}"));
        }
        thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}

/// Returns the series that had the same value before and after the scrape.
fn steady<'p>(before: &'p Page, after: &Page) -> BTreeMap<&'p Series, f64> {
    let samples = before.samples.iter();
    samples
        .filter(|(series, value)| after.samples.get(*series) == Some(value))
        .filter(|(series, _)| series.get(NAME).is_some_and(|name| name != OF_THE_READER))
        .map(|(series, value)| (series, *value))
        .collect()
}

/// Compares the types that Prometheus knows with those of the page.
fn types(server: &Prometheus, expected: &BTreeMap<String, String>) -> Option<String> {
    let answer = server.ask("/api/v1/targets/metadata");
    let told = answer["data"].as_array().into_iter().flatten();
    let told: BTreeMap<&str, &str> = told
        .filter_map(|one| Some((one["metric"].as_str()?, one["type"].as_str()?)))
        .collect();
    failure(expected.iter().filter_map(|(name, kind)| {
        let told = told.get(name.as_str()).copied().unwrap_or("unknown");
        (told != kind).then(|| format!("{name} is a {kind}, for Prometheus {told}"))
    }))
}

/// Checks that all scrapes have succeeded and lost nothing.
fn scrapes(server: &Prometheus, outcome: &mut Outcome) -> Result<(), String> {
    let target = &server.targets()[0];
    let is_up = target["health"] == "up" && target["lastError"] == "";
    outcome.count("the target is up", (!is_up).then(|| target.to_string()));
    let up = server.query(&format!("up{{job=\"{JOB}\"}}[10m]"))?;
    let up = up.first().and_then(|one| one["values"].as_array());
    let up = up.ok_or("there are no scrapes")?;
    let failed = up.iter().filter(|scrape| scrape[1] != "1").count();
    let note = format!("{} scrapes, {failed} failed", up.len());
    // On a busy machine scrapes may exceed their time limit of a second.
    let few = up.len() - failed < LEAST_SCRAPES;
    outcome.count("scrapes have succeeded", few.then(|| note.clone()));
    outcome.notes.push(note);
    let page = Page::read(&testkit::get(server.address, "/metrics", &[]).text())?;
    let lost = |series: &&Series| {
        series.get(NAME).is_some_and(|name| {
            let counts = name.starts_with("prometheus_target_scrapes_")
                || name.starts_with("prometheus_tsdb_") && name.contains("out_of_order_")
                || name == "prometheus_target_metadata_cache_entries_dropped_total"
                || name == "prometheus_rule_evaluation_failures_total";
            counts && name.ends_with("_total")
        })
    };
    let counters: Vec<&Series> = page.samples.keys().filter(lost).collect();
    let bad = counters
        .iter()
        .filter(|series| page.samples[**series] > 0.0);
    let bad = bad.map(|series| format!("{} is {}", shown(series), page.samples[*series]));
    outcome.count(
        "no sample was refused",
        failure(bad).or_else(|| counters.is_empty().then(|| "no counters".to_owned())),
    );
    let log = server.log();
    outcome.count(
        "Prometheus logs no warning",
        (!log.is_empty()).then_some(log),
    );
    Ok(())
}

/// Joins problems. `None` if there are none.
pub(super) fn failure(problems: impl Iterator<Item = String>) -> Option<String> {
    let problems: Vec<String> = problems.collect();
    let named = problems.len().min(MAX_NAMED);
    match problems.len() - named {
        _ if problems.is_empty() => None,
        0 => Some(problems.join("\n")),
        more => Some(format!("{}\nand {more} more", problems[..named].join("\n"))),
    }
}

/// Formats a series as in an expression.
pub(super) fn shown(series: &Series) -> String {
    let labels = series.iter().filter(|(name, _)| *name != NAME);
    let labels: Vec<String> = labels
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    let name = series.get(NAME).map_or("", String::as_str);
    format!("{name}{{{}}}", labels.join(","))
}
