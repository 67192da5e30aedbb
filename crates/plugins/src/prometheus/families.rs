//! Kong's metrics, and how their series lie in memory.

use services::metrics::{
    Counter, Family, Group, Groups, MetricError, Metrics, Milliseconds, Placement,
};
use std::sync::Arc;

/// Kong's buckets, in milliseconds.
const KONG_LATENCY: [f64; 17] = [
    1.0, 2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 100.0, 200.0, 500.0, 750.0, 1000.0,
    3000.0, 6000.0,
];
const UPSTREAM_LATENCY: [f64; 13] = [
    25.0, 50.0, 80.0, 100.0, 250.0, 400.0, 700.0, 1000.0, 2000.0, 5000.0, 10000.0, 30000.0, 60000.0,
];

/// Cells of a group for the bytes from the client and to it.
pub(super) const BYTES: [usize; 2] = [1, 2];
/// Cells of a group for the statuses that a route or a consumer sees first. The most frequent one is next to the bytes.
const STATUSES: [usize; 4] = [0, 3, 4, 5];

/// Number of statuses with a cell in the group of a route, and in that of a consumer on a route.
pub(super) const OF_ROUTE: usize = 4;
pub(super) const OF_CONSUMER: usize = 2;

/// Kong's metrics.
pub(super) struct Families {
    pub(super) requests: Family<Counter>,
    pub(super) bandwidth: Family<Counter>,
    pub(super) kong_latency: Family<Milliseconds>,
    pub(super) upstream_latency: Family<Milliseconds>,
    pub(super) request_latency: Family<Milliseconds>,
    pub(super) sessions: Family<Counter>,
    pub(super) session_duration: Family<Milliseconds>,
    /// Requests that are not counted under their consumer because there are too many series.
    pub(super) errors: Family<Counter>,
    of_routes: Groups,
    of_consumers: Groups,
    pub(super) latencies: Latencies,
}

/// Where the histograms of a route are in its group.
pub(super) struct Latencies {
    pub(super) kong: Arc<Placement>,
    pub(super) upstream: Arc<Placement>,
    pub(super) request: Arc<Placement>,
}

/// Returns the cells for the first `N` statuses.
#[inline]
pub(super) fn status_cells<const N: usize>() -> impl Iterator<Item = usize> {
    STATUSES.into_iter().take(N)
}

impl Families {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricError> {
        let of_consumer = [
            "service",
            "route",
            "code",
            "source",
            "workspace",
            "consumer",
        ];
        let of_stream = ["service", "route", "code", "source", "workspace"];
        let of_bytes = ["service", "route", "direction", "workspace", "consumer"];
        let latency = |name, help, bounds: &[f64]| {
            let labels = ["service", "route", "workspace"];
            metrics.millisecond_histogram(name, help, &labels, bounds)
        };
        let kong_latency = latency(
            "kong_kong_latency_ms",
            "Latency added by Kong and enabled plugins for each service/route in Kong",
            &KONG_LATENCY,
        )?;
        let upstream_latency = latency(
            "kong_upstream_latency_ms",
            "Latency added by upstream response for each service/route in Kong",
            &UPSTREAM_LATENCY,
        )?;
        let request_latency = latency(
            "kong_request_latency_ms",
            "Total latency incurred during requests for each service/route in Kong",
            &UPSTREAM_LATENCY,
        )?;
        let counters = |statuses| BYTES.len() + statuses;
        let histograms = [&kong_latency, &upstream_latency, &request_latency];
        let (of_routes, [kong, upstream, request]) = metrics.groups(counters(OF_ROUTE), histograms);
        let (of_consumers, []) = metrics.groups(counters(OF_CONSUMER), []);
        Ok(Self {
            requests: metrics.counter(
                "kong_http_requests_total",
                "HTTP status codes per consumer/service/route in Kong",
                &of_consumer,
            )?,
            bandwidth: metrics.counter(
                "kong_bandwidth_bytes",
                "Total bandwidth (ingress/egress) throughput in bytes",
                &of_bytes,
            )?,
            kong_latency,
            upstream_latency,
            request_latency,
            sessions: metrics.counter(
                "kong_stream_sessions_total",
                "Stream status codes per service/route in Kong",
                &of_stream,
            )?,
            session_duration: latency(
                "kong_session_duration_ms",
                "latency incurred in stream session for each service/route in Kong",
                &UPSTREAM_LATENCY,
            )?,
            errors: metrics.counter(
                "kong_nginx_metric_errors_total",
                "Number of nginx-lua-prometheus errors",
                &[],
            )?,
            of_routes,
            of_consumers,
            latencies: Latencies {
                kong,
                upstream,
                request,
            },
        })
    }

    pub(super) fn group_of_route(&self) -> Group {
        self.of_routes.make()
    }

    pub(super) fn group_of_consumer(&self) -> Group {
        self.of_consumers.make()
    }

    /// Shows the metrics, or leaves them out of the page.
    pub(super) fn show(&self, shows: bool) {
        for counters in self.counters() {
            counters.show(shows);
        }
        for histograms in self.histograms() {
            histograms.show(shows);
        }
        self.errors.show(shows);
    }

    /// Removes the series of routes and consumers that are no longer counted.
    pub(super) fn remove_unheld(&self) {
        for counters in self.counters() {
            counters.remove_unheld();
        }
        for histograms in self.histograms() {
            histograms.remove_unheld();
        }
    }

    /// The counters of routes.
    fn counters(&self) -> [&Family<Counter>; 3] {
        [&self.requests, &self.bandwidth, &self.sessions]
    }

    fn histograms(&self) -> [&Family<Milliseconds>; 4] {
        [
            &self.kong_latency,
            &self.upstream_latency,
            &self.request_latency,
            &self.session_duration,
        ]
    }
}
