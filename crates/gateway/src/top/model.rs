//! What `silverback top` shows, computed from two pages of metrics.

use super::page::{Between, Page};
use std::collections::BTreeMap;

/// Rows of the table of errors.
const ERRORS: usize = 8;

/// The quantiles of latencies.
const QUANTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// A view of the gateway. `None` is a value that the gateway does not have.
#[derive(Debug, Default, PartialEq)]
pub(super) struct View {
    pub(super) requests: Option<f64>,
    /// Requests per second by class of status: 1xx, 2xx and so on.
    pub(super) classes: [f64; 5],
    /// Quantiles of the latency of requests, in seconds.
    pub(super) latency: Option<[f64; 3]>,
    /// Quantiles of the time to the first byte of upstreams, in seconds.
    pub(super) upstream: Option<[f64; 3]>,
    pub(super) retries: Option<f64>,
    pub(super) connections: Option<f64>,
    pub(super) upstream_connections: Option<f64>,
    pub(super) process: Process,
    pub(super) workers: Vec<Worker>,
    pub(super) routes: Vec<Row>,
    pub(super) services: Vec<Row>,
    /// What went wrong, with its rate, the most frequent first.
    pub(super) errors: Vec<(String, f64)>,
}

#[derive(Debug, Default, PartialEq)]
pub(super) struct Process {
    /// Cores that the process uses.
    pub(super) cores: Option<f64>,
    pub(super) memory: Option<f64>,
    pub(super) open_files: Option<f64>,
    pub(super) max_files: Option<f64>,
    pub(super) revision: Option<f64>,
    /// Share of the time in which the quota of the control group stopped the process.
    pub(super) throttled: Option<f64>,
}

#[derive(Debug, PartialEq)]
pub(super) struct Worker {
    pub(super) name: String,
    /// Share of the time in which it worked.
    pub(super) busy: f64,
    /// 99 of 100 events waited for less, in seconds.
    pub(super) delay: Option<f64>,
    pub(super) stalls: f64,
}

/// A route or a service.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) rate: f64,
    pub(super) classes: [f64; 5],
    /// In seconds.
    pub(super) p99: Option<f64>,
}

/// Order of routes and services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Order {
    #[default]
    Rate,
    Latency,
    Errors,
}

impl Row {
    pub(super) fn errors(&self) -> f64 {
        self.classes[4]
    }
}

impl View {
    pub(super) fn between(before: &Page, after: &Page, seconds: f64) -> Self {
        let between = Between {
            before,
            after,
            seconds,
        };
        let mut classes = [0.0; 5];
        for (class, rate) in between.rates_by("silverback_requests_total", "status_class") {
            add(&mut classes, &class, rate);
        }
        let all = |histogram| between.quantiles_by(histogram, None, QUANTILES).remove("");
        Self {
            requests: between
                .rate("silverback_requests_total", &[])
                .or_else(|| between.rate("kong_nginx_requests_total", &[])),
            classes,
            latency: all("silverback_request_seconds"),
            upstream: all("silverback_upstream_first_byte_seconds"),
            retries: between.rate("silverback_upstream_retries_total", &[]),
            connections: after.value("kong_nginx_connections_total", &[("state", "active")]),
            upstream_connections: after.value("silverback_upstream_connections", &[]),
            process: process(&between),
            workers: workers(&between),
            routes: rows(&between, "route"),
            services: rows(&between, "service"),
            errors: errors(&between),
        }
    }

    pub(super) fn sort(&mut self, order: Order) {
        let key = |row: &Row| match order {
            Order::Rate => row.rate,
            Order::Latency => row.p99.unwrap_or(0.0),
            Order::Errors => row.errors(),
        };
        for rows in [&mut self.routes, &mut self.services] {
            rows.sort_by(|a, b| {
                let by_key = key(b).total_cmp(&key(a));
                by_key
                    .then_with(|| b.rate.total_cmp(&a.rate))
                    .then_with(|| a.name.cmp(&b.name))
            });
        }
    }
}

/// Adds a rate to the class of a status such as `404` or `4xx`.
fn add(classes: &mut [f64; 5], status: &str, rate: f64) {
    let class = status.chars().next().and_then(|first| first.to_digit(10));
    if let Some(class @ 1..=5) = class {
        classes[class as usize - 1] += rate;
    }
}

fn process(between: &Between<'_>) -> Process {
    let after = |name| between.after.value(name, &[]);
    Process {
        cores: between.rate("process_cpu_seconds_total", &[]),
        memory: after("process_resident_memory_bytes"),
        open_files: after("process_open_fds"),
        max_files: after("process_max_fds"),
        revision: after("silverback_revision"),
        throttled: between.rate("silverback_cgroup_cpu_throttled_seconds_total", &[]),
    }
}

fn workers(between: &Between<'_>) -> Vec<Worker> {
    let delays = between.quantiles_by(
        "silverback_worker_loop_delay_seconds",
        Some("worker"),
        [0.99],
    );
    let stalls = between.rates_by("silverback_worker_stalls_total", "worker");
    let busy = between.rates_by("silverback_worker_busy_seconds_total", "worker");
    let mut workers: Vec<Worker> = busy
        .into_iter()
        .map(|(name, busy)| Worker {
            busy,
            delay: delays.get(&name).map(|[p99]| *p99),
            stalls: stalls.get(&name).copied().unwrap_or(0.0),
            name,
        })
        .collect();
    workers.sort_by_key(|worker| {
        (
            worker.name.parse::<u32>().unwrap_or(u32::MAX),
            worker.name.clone(),
        )
    });
    workers
}

fn rows(between: &Between<'_>, label: &str) -> Vec<Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for ((name, code), rate) in between.rates_by_two("kong_http_requests_total", (label, "code")) {
        let row = rows.entry(name).or_default();
        row.rate += rate;
        add(&mut row.classes, &code, rate);
    }
    let latencies = between.quantiles_by("kong_request_latency_ms", Some(label), [0.99]);
    rows.into_iter()
        .map(|(name, row)| Row {
            p99: latencies.get(&name).map(|[ms]| ms / 1000.0),
            name,
            ..row
        })
        .collect()
}

/// Everything that counts failures, with a name for each.
fn errors(between: &Between<'_>) -> Vec<(String, f64)> {
    let mut errors: Vec<(String, f64)> = Vec::new();
    for (reason, rate) in between.rates_by("silverback_answers_total", "reason") {
        // What plugins answer is below, by plugin, and need not be an error.
        if reason != "plugin" {
            errors.push((format!("answered by the gateway: {reason}"), rate));
        }
    }
    let by_plugin = between.rates_by_two("silverback_plugin_answers_total", ("plugin", "status"));
    for ((plugin, status), rate) in by_plugin {
        if status.starts_with(['4', '5']) {
            errors.push((format!("answered by {plugin}: {status}"), rate));
        }
    }
    for (plugin, rate) in between.rates_by("silverback_plugin_queue_dropped_total", "plugin") {
        errors.push((format!("entries dropped by {plugin}"), rate));
    }
    for (name, text) in [
        (
            "silverback_connections_refused_total",
            "connections refused",
        ),
        (
            "silverback_access_log_dropped_lines_total",
            "access log lines dropped",
        ),
        (
            "silverback_error_log_dropped_lines_total",
            "error log lines dropped",
        ),
        ("silverback_panics_total", "panics"),
    ] {
        errors.extend(between.rate(name, &[]).map(|rate| (text.to_owned(), rate)));
    }
    errors.retain(|(_, rate)| *rate > 0.0);
    errors.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    errors.truncate(ERRORS);
    errors
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    const BEFORE: &str = "\
kong_http_requests_total{service=\"shop\",route=\"orders\",code=\"200\",source=\"service\",workspace=\"default\",consumer=\"\"} 10
kong_nginx_connections_total{node_id=\"n\",subsystem=\"http\",state=\"active\"} 3
process_cpu_seconds_total 1
silverback_requests_total{status_class=\"2xx\"} 10
silverback_worker_busy_seconds_total{worker=\"0\"} 1
";
    const AFTER: &str = "\
kong_http_requests_total{service=\"shop\",route=\"orders\",code=\"200\",source=\"service\",workspace=\"default\",consumer=\"\"} 110
kong_http_requests_total{service=\"shop\",route=\"basket\",code=\"502\",source=\"kong\",workspace=\"default\",consumer=\"\"} 20
kong_request_latency_ms_bucket{service=\"shop\",route=\"orders\",workspace=\"default\",le=\"25\"} 100
kong_request_latency_ms_bucket{service=\"shop\",route=\"orders\",workspace=\"default\",le=\"+Inf\"} 100
kong_nginx_connections_total{node_id=\"n\",subsystem=\"http\",state=\"active\"} 5
process_cpu_seconds_total 2
process_open_fds 100
process_max_fds 1024
process_resident_memory_bytes 104857600
silverback_revision 7
silverback_requests_total{status_class=\"2xx\"} 110
silverback_requests_total{status_class=\"5xx\"} 20
silverback_request_seconds_bucket{le=\"0.001\"} 120
silverback_request_seconds_bucket{le=\"+Inf\"} 120
silverback_answers_total{reason=\"connect_failed\"} 20
silverback_answers_total{reason=\"plugin\"} 9
silverback_plugin_answers_total{plugin=\"request-termination\",status=\"200\"} 5
silverback_plugin_answers_total{plugin=\"key-auth\",status=\"401\"} 4
silverback_worker_busy_seconds_total{worker=\"0\"} 2
silverback_worker_busy_seconds_total{worker=\"10\"} 1
silverback_worker_busy_seconds_total{worker=\"2\"} 1
silverback_worker_stalls_total{worker=\"0\"} 2
";

    pub(in crate::top) fn example() -> View {
        View::between(&Page::parse(BEFORE), &Page::parse(AFTER), 2.0)
    }

    #[test]
    fn rates_latencies_workers_and_errors_are_those_of_the_interval() {
        let view = example();
        assert_eq!(view.requests, Some(60.0));
        assert_eq!(view.classes, [0.0, 50.0, 0.0, 0.0, 10.0]);
        assert_eq!(view.latency.map(|all| (all[0] * 1e6).round()), Some(500.0));
        assert_eq!(view.connections, Some(5.0));
        assert_eq!(view.process.cores, Some(0.5));
        assert_eq!(view.upstream, None);
        let names: Vec<&str> = view.workers.iter().map(|worker| &*worker.name).collect();
        assert_eq!(names, ["0", "2", "10"]);
        assert_eq!((view.workers[0].busy, view.workers[0].stalls), (0.5, 1.0));
        let errors = [
            ("answered by the gateway: connect_failed".to_owned(), 10.0),
            ("answered by key-auth: 401".to_owned(), 2.0),
        ];
        assert_eq!(view.errors, errors);
    }

    #[test]
    fn routes_are_sorted_as_wanted() {
        let mut view = example();
        let mut first = |order| {
            view.sort(order);
            view.routes[0].name.clone()
        };
        assert_eq!(first(Order::Rate), "orders");
        assert_eq!(first(Order::Errors), "basket");
        assert_eq!(first(Order::Latency), "orders");
        assert_eq!(view.services[0].rate, 60.0);
        assert_eq!(view.services[0].errors(), 10.0);
    }
}
