//! A page of metrics in the text format of Prometheus, and the differences between two pages.

use std::collections::{BTreeMap, HashMap};

/// The metrics that are kept, by the beginnings of their names. A page may have many others.
const KEPT: [&str; 22] = [
    "kong_http_requests_total",
    "kong_request_latency_ms_bucket",
    "kong_nginx_connections_total",
    "kong_nginx_requests_total",
    "process_",
    "silverback_access_log_dropped_lines_total",
    "silverback_answers_total",
    "silverback_cgroup_cpu_",
    "silverback_connections_refused_total",
    "silverback_error_log_dropped_lines_total",
    "silverback_panics_total",
    "silverback_plugin_answers_total",
    "silverback_plugin_queue_dropped_total",
    "silverback_plugin_seconds_sum",
    "silverback_request_seconds_bucket",
    "silverback_requests_total",
    "silverback_revision",
    "silverback_store_bytes",
    "silverback_upstream_connections",
    "silverback_upstream_first_byte_seconds_bucket",
    "silverback_upstream_retries_total",
    "silverback_worker_",
];

/// The samples of a page.
#[derive(Debug, Default)]
pub(super) struct Page {
    metrics: HashMap<String, Vec<Sample>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Sample {
    labels: Vec<(String, String)>,
    value: f64,
}

impl Sample {
    fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value)
    }

    fn has(&self, wanted: &[(&str, &str)]) -> bool {
        wanted
            .iter()
            .all(|(name, value)| self.label(name) == *value)
    }
}

impl Page {
    /// Parses a page. Lines that are not samples are left out.
    pub(super) fn parse(text: &str) -> Self {
        let mut page = Self::default();
        for line in text.lines() {
            if !KEPT.iter().any(|kept| line.starts_with(kept)) {
                continue;
            }
            if let Some((name, sample)) = sample(line) {
                match page.metrics.get_mut(name) {
                    Some(samples) => samples.push(sample),
                    None => drop(page.metrics.insert(name.to_owned(), vec![sample])),
                }
            }
        }
        page
    }

    fn samples(&self, name: &str) -> &[Sample] {
        self.metrics.get(name).map_or(&[], Vec::as_slice)
    }

    /// The sum of all series with these labels; `None` if there is none.
    pub(super) fn value(&self, name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
        let found = self
            .samples(name)
            .iter()
            .filter(|sample| sample.has(wanted));
        found.map(|sample| sample.value).reduce(|a, b| a + b)
    }
}

fn sample(line: &str) -> Option<(&str, Sample)> {
    let end = line.find(['{', ' '])?;
    let (name, rest) = line.split_at(end);
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some((name, Sample { labels, value }))
}

/// Parses labels up to the closing brace. Returns them and the text behind it.
fn labels(mut text: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        text = text.trim_start_matches([',', ' ']);
        if let Some(rest) = text.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, rest) = text.split_once("=\"")?;
        let (value, rest) = quoted(rest)?;
        labels.push((name.to_owned(), value));
        text = rest;
    }
}

/// Reads a value up to its closing quote.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value, text.get(at + 1..)?)),
            '\\' => match characters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

/// Two pages of one gateway, and the time between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Between<'p> {
    pub(super) before: &'p Page,
    pub(super) after: &'p Page,
    pub(super) seconds: f64,
}

impl Between<'_> {
    /// The growth per second of the counters with these labels; `None` if there is none.
    pub(super) fn rate(&self, name: &str, wanted: &[(&str, &str)]) -> Option<f64> {
        self.rates(name, wanted, |_| ()).remove(&())
    }

    /// The growth per second of counters, by the values of a label.
    pub(super) fn rates_by(&self, name: &str, label: &str) -> BTreeMap<String, f64> {
        self.rates(name, &[], |sample| sample.label(label).to_owned())
    }

    /// The growth per second of counters, by the values of two labels.
    pub(super) fn rates_by_two(
        &self,
        name: &str,
        (first, second): (&str, &str),
    ) -> BTreeMap<(String, String), f64> {
        self.rates(name, &[], |sample| {
            (
                sample.label(first).to_owned(),
                sample.label(second).to_owned(),
            )
        })
    }

    fn rates<K: Ord>(
        &self,
        name: &str,
        wanted: &[(&str, &str)],
        key: impl Fn(&Sample) -> K,
    ) -> BTreeMap<K, f64> {
        let before: HashMap<&[(String, String)], f64> = (self.before.samples(name).iter())
            .map(|sample| (&*sample.labels, sample.value))
            .collect();
        let mut rates = BTreeMap::new();
        for sample in self
            .after
            .samples(name)
            .iter()
            .filter(|one| one.has(wanted))
        {
            let former = before.get(&*sample.labels).copied().unwrap_or(0.0);
            // A counter that is smaller than before has begun anew, with another process.
            let grown = if sample.value >= former {
                sample.value - former
            } else {
                sample.value
            };
            *rates.entry(key(sample)).or_insert(0.0) += grown / self.seconds;
        }
        rates
    }

    /// Quantiles of a histogram, by the values of a label; without label, for all series together. Those without
    /// observations between the pages are left out.
    pub(super) fn quantiles_by<const N: usize>(
        &self,
        histogram: &str,
        label: Option<&str>,
        wanted: [f64; N],
    ) -> BTreeMap<String, [f64; N]> {
        let name = format!("{histogram}_bucket");
        let buckets = self.rates(&name, &[], |sample| {
            let of = label.map_or("", |label| sample.label(label));
            let bound = sample.label("le").parse().unwrap_or(f64::INFINITY);
            (of.to_owned(), Bound(bound))
        });
        let mut by: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for ((of, bound), rate) in buckets {
            by.entry(of).or_default().push((bound.0, rate));
        }
        by.into_iter()
            .filter_map(|(of, buckets)| {
                let total = buckets.last()?.1;
                (total > 0.0).then(|| {
                    (
                        of,
                        wanted.map(|quantile| interpolate(&buckets, quantile * total)),
                    )
                })
            })
            .collect()
    }
}

/// The upper bound of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Bound(f64);

impl Eq for Bound {}

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// The value below which `rank` observations are, as Prometheus computes it: within a bucket they are spread evenly.
fn interpolate(buckets: &[(f64, f64)], rank: f64) -> f64 {
    let (mut lower, mut below) = (0.0, 0.0);
    for (bound, count) in buckets {
        if *count >= rank {
            if bound.is_infinite() {
                return lower;
            }
            let inside = count - below;
            let share = if inside > 0.0 {
                (rank - below) / inside
            } else {
                1.0
            };
            return lower + (bound - lower) * share;
        }
        (lower, below) = (*bound, *count);
    }
    lower
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_parsed_whatever_their_labels() {
        let page = Page::parse(
            "# HELP silverback_revision x\nsilverback_revision 5\nother_total 7\n\
             kong_http_requests_total{service=\"a\\\"}\\\\\",route=\"r,=\",code=\"200\"} 1.5e3\n\
             process_open_fds nonsense\nprocess_max_fds{a=\"b\n",
        );
        assert_eq!(page.value("silverback_revision", &[]), Some(5.0));
        let wanted = [("service", "a\"}\\"), ("route", "r,=")];
        assert_eq!(
            page.value("kong_http_requests_total", &wanted),
            Some(1500.0)
        );
        for name in ["other_total", "process_open_fds", "process_max_fds"] {
            assert_eq!(page.value(name, &[]), None, "{name}");
        }
    }

    fn between<'p>(before: &'p Page, after: &'p Page) -> Between<'p> {
        Between {
            before,
            after,
            seconds: 2.0,
        }
    }

    #[test]
    fn counters_that_begin_anew_or_appear_count_from_zero() {
        let before = Page::parse(
            "silverback_requests_total{status_class=\"2xx\"} 100\nprocess_cpu_seconds_total 50\n",
        );
        let after = Page::parse(
            "silverback_requests_total{status_class=\"2xx\"} 140\n\
             silverback_requests_total{status_class=\"5xx\"} 4\nprocess_cpu_seconds_total 1\n",
        );
        let between = between(&before, &after);
        assert_eq!(between.rate("silverback_requests_total", &[]), Some(22.0));
        let of = between.rate("silverback_requests_total", &[("status_class", "5xx")]);
        assert_eq!(of, Some(2.0));
        assert_eq!(between.rate("process_cpu_seconds_total", &[]), Some(0.5));
        assert_eq!(between.rate("silverback_panics_total", &[]), None);
    }

    #[test]
    fn quantiles_are_between_the_bounds_of_their_bucket() {
        let before = Page::default();
        let after = Page::parse(
            "silverback_request_seconds_bucket{le=\"0.001\"} 50\nsilverback_request_seconds_bucket{le=\"0.002\"} 90\n\
             silverback_request_seconds_bucket{le=\"+Inf\"} 100\n",
        );
        let between = between(&before, &after);
        let found = between.quantiles_by("silverback_request_seconds", None, [0.25, 0.7, 0.99]);
        let rounded = found[""].map(|seconds| (seconds * 1e6).round());
        assert_eq!(rounded, [500.0, 1500.0, 2000.0]);
    }
}
