//! Native histograms and exemplars, as Prometheus has stored them.

use super::page::{NAME, Page, Series};
use super::prometheus::{Prometheus, encoded};
use super::stored::{Stored, failure, shown};
use crate::compat::Outcome;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Width of a native bucket of the gateway, rounded up: there are four for each doubling.
const WIDTH: f64 = 1.19;

/// Up to this, in seconds, values are in the zero bucket, in which a quantile says little.
const ZERO: f64 = 3.82e-6;

/// Histograms without native buckets: the workers count them in few instructions.
const CLASSIC_ONLY: [&str; 6] = [
    "silverback_client_tls_handshake_seconds",
    "silverback_request_seconds",
    "silverback_upstream_connect_seconds",
    "silverback_upstream_first_byte_seconds",
    "silverback_upstream_tls_seconds",
    "silverback_worker_loop_delay_seconds",
];

/// Histograms whose exemplars are looked for.
const TRACED: [&str; 2] = ["kong_request_latency_ms", "kong_upstream_latency_ms"];

/// How far exemplars may lie in the past.
const PAST: Duration = Duration::from_secs(600);

/// Returns the series of the histogram of which this one is a bucket, the count or the sum.
pub(super) fn of_part(series: &Series) -> Option<Series> {
    let name = series.get(NAME)?;
    let parts = ["_bucket", "_count", "_sum"];
    let whole = parts.iter().find_map(|part| name.strip_suffix(part))?;
    let mut series = renamed(series, whole);
    series.remove("le");
    Some(series)
}

/// Compares the native histograms with the classic ones.
pub(super) fn check(
    server: &Prometheus,
    stored: &Stored,
    page: &Page,
    steady: &BTreeMap<&Series, f64>,
    has_kong: bool,
    outcome: &mut Outcome,
) {
    let histograms = page.types.iter().filter(|(_, kind)| *kind == "histogram");
    let names = histograms.map(|(name, _)| name.as_str());
    let names: Vec<&str> = names
        .filter(|name| !CLASSIC_ONLY.contains(name) && (has_kong || !name.starts_with("kong_")))
        .collect();
    let is_expected = |series: &Series| names.contains(&series[NAME].as_str());
    let classic = page.samples.keys().filter_map(of_part);
    let classic: BTreeSet<Series> = classic.filter(is_expected).collect();
    let missing = classic
        .iter()
        .filter(|series| !stored.histograms.contains_key(*series));
    let more = stored
        .histograms
        .keys()
        .filter(|series| !classic.contains(series));
    outcome.count(
        "the histograms are native",
        failure(missing.chain(more).map(shown)),
    );
    let mut compared = 0;
    let different = stored.histograms.iter().filter_map(|(series, histogram)| {
        let part = |part: &str| {
            let name = series.get(NAME)?;
            steady
                .get(&renamed(series, &format!("{name}{part}")))
                .copied()
        };
        let (count, sum) = (part("_count")?, part("_sum")?);
        compared += 1;
        let is = |field: &str, value: f64| number(&histogram[field]) == Some(value);
        let is_same = is("count", count) && is("sum", sum) && in_buckets(histogram) == count;
        (!is_same).then(|| format!("{}: {count} {sum} {histogram}", shown(series)))
    });
    outcome.count(
        "count, sum and buckets are those of the page",
        failure(different),
    );
    outcome.notes.push(format!(
        "{} series of {} histograms are native; {compared} that kept their value were compared",
        stored.histograms.len(),
        names.len()
    ));
    let wrong = names.iter().flat_map(|name| quantiles(server, name, page));
    outcome.count("quantiles lie in their classic bucket", failure(wrong));
}

/// Returns the quantiles of the native histograms that do not lie in the classic bucket of this quantile.
fn quantiles(server: &Prometheus, name: &str, page: &Page) -> Vec<String> {
    let mut wrong = Vec::new();
    for (series, buckets) in buckets(name, page) {
        for quantile in QUANTILES {
            let expression = format!("histogram_quantile({quantile}, {})", shown(&series));
            let answer = server.query(&expression).map(|values| {
                let value = values.first().map(|one| number(&one["value"][1]));
                value.flatten().unwrap_or(f64::NAN)
            });
            let (low, high) = bucket_of(quantile, &buckets);
            match answer {
                Ok(value) if low / WIDTH <= value && value <= high * WIDTH => {}
                Ok(value) if value <= ZERO && low <= ZERO => {}
                // Without values there is no quantile.
                Ok(value) if value.is_nan() && high.is_nan() => {}
                other => wrong.push(format!("{expression}: {other:?}, not {low} to {high}")),
            }
        }
    }
    wrong
}

/// Returns the classic buckets of each series of a histogram, as bounds and cumulative counts.
fn buckets(name: &str, page: &Page) -> BTreeMap<Series, Vec<(f64, f64)>> {
    let mut all = BTreeMap::<Series, Vec<(f64, f64)>>::new();
    let of_name = format!("{name}_bucket");
    for (series, count) in &page.samples {
        let bound = series.get("le").and_then(|bound| bound.parse().ok());
        if let (Some(bound), true) = (bound, series.get(NAME) == Some(&of_name)) {
            let mut series = renamed(series, name);
            series.remove("le");
            all.entry(series).or_default().push((bound, *count));
        }
    }
    for buckets in all.values_mut() {
        buckets.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    }
    all
}

/// Returns the bounds of the bucket of a quantile. They are NaN if there are no values.
fn bucket_of(quantile: f64, buckets: &[(f64, f64)]) -> (f64, f64) {
    let total = buckets.last().map_or(0.0, |(_, count)| *count);
    if total == 0.0 {
        return (f64::NAN, f64::NAN);
    }
    let rank = quantile * total;
    let index = buckets.partition_point(|(_, count)| *count < rank);
    let low = index.checked_sub(1).and_then(|below| buckets.get(below));
    let high = buckets
        .get(index)
        .map_or(f64::INFINITY, |(bound, _)| *bound);
    (low.map_or(0.0, |(bound, _)| *bound), high)
}

/// Returns the number of values in the buckets that the HTTP API shows.
fn in_buckets(histogram: &Value) -> f64 {
    let buckets = histogram["buckets"].as_array().into_iter().flatten();
    buckets.filter_map(|bucket| number(&bucket[3])).sum()
}

/// Checks that latencies of traced requests have exemplars, in the classic buckets and, if there are native histograms,
/// there too.
pub(super) fn check_exemplars(server: &Prometheus, native: &[&Series], outcome: &mut Outcome) {
    for name in TRACED {
        let is_native = native
            .iter()
            .any(|series| series.get(NAME).is_some_and(|native| native == name));
        let places = [
            Some(format!("{name}_bucket")),
            is_native.then(|| name.to_owned()),
        ];
        for place in places.into_iter().flatten() {
            let case = format!("{place} has exemplars");
            let (count, wrong) = exemplars(server, &place);
            outcome.count(
                &case,
                match count {
                    0 => Some("none".to_owned()),
                    _ => failure(wrong.into_iter()),
                },
            );
            outcome.notes.push(format!("{place} has {count} exemplars"));
        }
    }
}

/// Returns the number of exemplars, and those without a trace or outside their bucket.
fn exemplars(server: &Prometheus, name: &str) -> (usize, Vec<String>) {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since_1970.unwrap_or_default();
    let (start, end) = (now.saturating_sub(PAST).as_secs(), now.as_secs() + 1);
    let target = format!(
        "/api/v1/query_exemplars?query={}&start={start}&end={end}",
        encoded(name)
    );
    let answer = server.ask(&target);
    let all = answer["data"].as_array().into_iter().flatten();
    let (mut count, mut wrong) = (0, Vec::new());
    for one in all {
        let bound = number(&one["seriesLabels"]["le"]).unwrap_or(f64::INFINITY);
        for exemplar in one["exemplars"].as_array().into_iter().flatten() {
            count += 1;
            let trace = exemplar["labels"]["trace_id"].as_str().unwrap_or_default();
            let is_trace = trace.len() == 32 && trace.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_inside = number(&exemplar["value"]).is_some_and(|value| value <= bound);
            if !is_trace || !is_inside {
                wrong.push(format!("{}: {exemplar}", one["seriesLabels"]));
            }
        }
    }
    (count, wrong)
}

fn renamed(series: &Series, name: &str) -> Series {
    let mut series = series.clone();
    series.insert(NAME.to_owned(), name.to_owned());
    series
}

/// Reads a number that the HTTP API shows as text.
fn number(value: &Value) -> Option<f64> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_has_a_classic_bucket() {
        let buckets = [(1.0, 2.0), (5.0, 2.0), (10.0, 9.0), (f64::INFINITY, 10.0)];
        assert_eq!(bucket_of(0.1, &buckets), (0.0, 1.0));
        assert_eq!(bucket_of(0.5, &buckets), (5.0, 10.0));
        assert_eq!(bucket_of(0.99, &buckets), (10.0, f64::INFINITY));
        assert!(bucket_of(0.5, &[(f64::INFINITY, 0.0)]).1.is_nan());
    }
}
