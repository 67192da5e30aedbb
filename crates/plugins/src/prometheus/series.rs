//! The series of Kong's metrics. Those of a route are found once, and kept in the route's slot of the snapshot.

use super::counted::{Counted, Statuses, source};
use model::EntityKind;
use model::entities::{Consumer, ConsumerId};
use papaya::Guard;
use plugin::{EntityRef, Node};
use services::metrics::{Counter, Family, Histogram, MetricError, Metrics, OTHER};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use uuid::Uuid;

/// The name of the only workspace.
pub(super) const WORKSPACE: &str = "default";

/// Kong's buckets, in milliseconds.
const KONG_LATENCY: [f64; 17] = [
    1.0, 2.0, 5.0, 7.0, 10.0, 15.0, 20.0, 30.0, 50.0, 75.0, 100.0, 200.0, 500.0, 750.0, 1000.0,
    3000.0, 6000.0,
];
const UPSTREAM_LATENCY: [f64; 13] = [
    25.0, 50.0, 80.0, 100.0, 250.0, 400.0, 700.0, 1000.0, 2000.0, 5000.0, 10000.0, 30000.0, 60000.0,
];

/// Kong's metrics.
pub(super) struct Families {
    pub(super) requests: Family<Counter>,
    pub(super) bandwidth: Family<Counter>,
    kong_latency: Family<Histogram>,
    upstream_latency: Family<Histogram>,
    request_latency: Family<Histogram>,
    sessions: Family<Counter>,
    session_duration: Family<Histogram>,
    /// Requests that are not counted under their consumer because there are too many series.
    errors: Family<Counter>,
}

/// The state of the plugin on a node. It outlives configurations, so that counters go on when the plugin is configured
/// anew.
pub(super) struct Kong {
    pub(super) families: Families,
    /// The series by route. A route whose name or service was changed has several until the former ones expire.
    routes: Mutex<HashMap<Uuid, Vec<Arc<RouteSeries>>>>,
    errors: Counter,
    shows_upstream_health: AtomicBool,
    /// Number of plugins that are started.
    instances: AtomicUsize,
}

/// The series of a route.
pub(super) struct RouteSeries {
    pub(super) route: Uuid,
    pub(super) service: Option<Uuid>,
    pub(super) route_label: Box<str>,
    pub(super) service_label: Box<str>,
    all: Counted,
    pub(super) consumers: papaya::HashMap<ConsumerId, Arc<OfConsumer>>,
    /// The consumers that have no series of their own.
    other: OnceLock<Counted>,
    latencies: OnceLock<[Histogram; 2]>,
    upstream_latency: OnceLock<Histogram>,
    sessions: Statuses,
    session_duration: OnceLock<[Histogram; 2]>,
    pub(super) gone: Gone,
}

/// The series of a consumer on a route.
pub(super) struct OfConsumer {
    pub(super) counted: Counted,
    pub(super) gone: Gone,
}

/// When the owner of series was found to be deleted: seconds since the beginning of the node's clock, and one more. 0 if
/// it exists.
#[derive(Default)]
pub(super) struct Gone(pub(super) AtomicU64);

/// The labels `service` and `route`.
#[derive(Clone, Copy)]
pub(super) struct Owner<'s> {
    pub(super) service: &'s str,
    pub(super) route: &'s str,
}

/// Returns the state of the plugin, if it was ever started on the node.
pub(super) fn find(node: &Node) -> Option<Arc<Kong>> {
    let state = node
        .shared
        .get_or_try_insert("prometheus", "kong", || Err(()));
    state.ok()
}

/// Returns the state of the plugin. The first call makes it; from then on the node keeps it.
pub(super) fn get(node: &Arc<Node>) -> Arc<Kong> {
    let mut is_new = false;
    let kong = node.shared.get_or_insert("prometheus", "kong", || {
        is_new = true;
        Kong::new(&node.metrics)
    });
    if is_new {
        super::sweep::start(&kong, node);
    }
    kong
}

impl Families {
    fn new(metrics: &Metrics) -> Result<Self, MetricError> {
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
            kong_latency: latency(
                "kong_kong_latency_ms",
                "Latency added by Kong and enabled plugins for each service/route in Kong",
                &KONG_LATENCY,
            )?,
            upstream_latency: latency(
                "kong_upstream_latency_ms",
                "Latency added by upstream response for each service/route in Kong",
                &UPSTREAM_LATENCY,
            )?,
            request_latency: latency(
                "kong_request_latency_ms",
                "Total latency incurred during requests for each service/route in Kong",
                &UPSTREAM_LATENCY,
            )?,
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
        })
    }

    /// Shows the metrics, or leaves them out of the page.
    fn show(&self, shows: bool) {
        let Self {
            requests,
            bandwidth,
            kong_latency,
            upstream_latency,
            request_latency,
            sessions,
            session_duration,
            errors,
        } = self;
        for counters in [requests, bandwidth, sessions, errors] {
            counters.show(shows);
        }
        for histograms in [
            kong_latency,
            upstream_latency,
            request_latency,
            session_duration,
        ] {
            histograms.show(shows);
        }
    }

    pub(super) fn remove_unheld(&self) {
        for counters in [&self.requests, &self.bandwidth, &self.sessions] {
            counters.remove_unheld();
        }
        let Self {
            kong_latency,
            upstream_latency,
            request_latency,
            session_duration,
            ..
        } = self;
        for histograms in [
            kong_latency,
            upstream_latency,
            request_latency,
            session_duration,
        ] {
            histograms.remove_unheld();
        }
    }
}

impl Kong {
    fn new(metrics: &Metrics) -> Self {
        // Nothing else has metrics with these names, so they cannot be in conflict. If they were, those of a registry of
        // their own would be counted, but not shown.
        let families = Families::new(metrics)
            .or_else(|_| Families::new(&Metrics::new(1)))
            .expect("an empty registry has no conflicts");
        Self {
            errors: families.errors.with(&[]),
            families,
            routes: Mutex::default(),
            shows_upstream_health: AtomicBool::new(false),
            instances: AtomicUsize::new(0),
        }
    }

    /// Notes that a plugin has started. The metrics are shown while there is one.
    pub(super) fn add_instance(&self) {
        self.instances.fetch_add(1, Ordering::Relaxed);
        self.families.show(true);
    }

    pub(super) fn remove_instance(&self) {
        if self.instances.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.families.show(false);
            self.show_upstream_health(false);
        }
    }

    pub(super) fn shows_upstream_health(&self) -> bool {
        self.shows_upstream_health.load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn show_upstream_health(&self, shows: bool) {
        // All workers read this, so it is written only if it changes.
        if self.shows_upstream_health() != shows {
            self.shows_upstream_health.store(shows, Ordering::Relaxed);
        }
    }

    /// Returns the series of a route under its present name and that of its service.
    pub(super) fn of_route(
        &self,
        node: &Node,
        route: EntityRef<'_>,
        service: Option<EntityRef<'_>>,
    ) -> Arc<RouteSeries> {
        let route_label = route.to_string();
        let service_label = service.map(|service| service_label(node, service));
        let service_label = service_label.unwrap_or_default();
        let service = service.map(|service| service.id);
        let mut routes = self.routes();
        let known = routes.entry(route.id).or_default();
        let same = known.iter().find(|known| {
            let labels = (&*known.route_label, &*known.service_label);
            labels == (&*route_label, &*service_label) && known.service == service
        });
        if let Some(same) = same {
            // A former name may be used again.
            same.gone.0.store(0, Ordering::Relaxed);
            return same.clone();
        }
        let made = Arc::new(RouteSeries {
            route: route.id,
            service,
            route_label: route_label.into(),
            service_label: service_label.into(),
            all: Counted::default(),
            consumers: papaya::HashMap::new(),
            other: OnceLock::new(),
            latencies: OnceLock::new(),
            upstream_latency: OnceLock::new(),
            sessions: Statuses::default(),
            session_duration: OnceLock::new(),
            gone: Gone::default(),
        });
        known.push(made.clone());
        made
    }

    pub(super) fn routes(&self) -> MutexGuard<'_, HashMap<Uuid, Vec<Arc<RouteSeries>>>> {
        self.routes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The label of a service: its name, or its host if it has no name.
pub(super) fn service_label(node: &Node, service: EntityRef<'_>) -> String {
    if let Some(name) = service.name {
        return name.to_owned();
    }
    let found = node.entities.object(EntityKind::Services, service.id);
    let host = found.ok().flatten().and_then(|service| {
        let host = service.get("host")?;
        host.as_str().map(str::to_owned)
    });
    host.unwrap_or_else(|| service.id.to_string())
}

/// The label of a consumer. Kong shows only usernames.
pub(super) fn consumer_label(consumer: &Consumer) -> Cow<'_, str> {
    let name = consumer
        .username
        .as_deref()
        .or(consumer.custom_id.as_deref());
    name.map_or_else(|| consumer.id.to_string().into(), Cow::Borrowed)
}

impl RouteSeries {
    fn owner(&self) -> Owner<'_> {
        Owner {
            service: &self.service_label,
            route: &self.route_label,
        }
    }

    /// Calls `count` with the series of a consumer, or of all requests if `consumer` is `None`.
    #[inline]
    pub(super) fn count(
        &self,
        kong: &Kong,
        consumer: Option<&Consumer>,
        count: impl Fn(&Counted, Owner<'_>),
    ) {
        let Some(consumer) = consumer else {
            return count(&self.all, self.owner());
        };
        let label = consumer_label(consumer);
        let guard = self.consumers.guard();
        let known = self.consumers.get(&consumer.id, &guard);
        match known.filter(|known| *known.counted.consumer == *label) {
            Some(known) => count(&known.counted, self.owner()),
            None => count(
                self.add_consumer(kong, consumer.id, &label, &guard),
                self.owner(),
            ),
        }
    }

    /// Makes the series of a consumer, or returns those for all that have none of their own.
    #[cold]
    fn add_consumer<'s>(
        &'s self,
        kong: &Kong,
        id: ConsumerId,
        label: &str,
        guard: &'s impl Guard,
    ) -> &'s Counted {
        let Families {
            requests,
            bandwidth,
            ..
        } = &kong.families;
        if requests.is_nearly_full() || bandwidth.is_nearly_full() {
            kong.errors.add(services::workers::this_worker(), 1);
            return self.other.get_or_init(|| Counted::of(OTHER));
        }
        // A former name of the consumer is replaced. Another worker may have made the series in the meantime.
        let made = Arc::new(OfConsumer {
            counted: Counted::of(label),
            gone: Gone::default(),
        });
        let kept = self.consumers.update_or_insert(
            id,
            |known| match *known.counted.consumer == *label {
                true => known.clone(),
                false => made.clone(),
            },
            made.clone(),
            guard,
        );
        &kept.counted
    }

    /// Returns the histograms of the gateway's part and of the whole.
    #[inline]
    pub(super) fn latencies(&self, kong: &Kong) -> &[Histogram; 2] {
        self.latencies.get_or_init(|| {
            let Families {
                kong_latency,
                request_latency,
                ..
            } = &kong.families;
            [
                self.histogram(kong_latency),
                self.histogram(request_latency),
            ]
        })
    }

    #[inline]
    pub(super) fn upstream_latency(&self, kong: &Kong) -> &Histogram {
        let make = || self.histogram(&kong.families.upstream_latency);
        self.upstream_latency.get_or_init(make)
    }

    /// Returns the histograms of the gateway's part of a session and of the whole session.
    pub(super) fn session_latencies(&self, kong: &Kong) -> &[Histogram; 2] {
        self.session_duration.get_or_init(|| {
            let Families {
                kong_latency,
                session_duration,
                ..
            } = &kong.families;
            [
                self.histogram(kong_latency),
                self.histogram(session_duration),
            ]
        })
    }

    pub(super) fn add_session(&self, worker: usize, status: u16, by_upstream: bool, kong: &Kong) {
        let sessions = self.sessions.get(status, by_upstream, || {
            let (code, source) = (status.to_string(), source(by_upstream));
            let Owner { service, route } = self.owner();
            let sessions = &kong.families.sessions;
            sessions.with(&[service, route, &code, source, WORKSPACE])
        });
        if let Some(sessions) = sessions {
            sessions.add(worker, 1);
        }
    }

    fn histogram(&self, family: &Family<Histogram>) -> Histogram {
        family.with(&[&self.service_label, &self.route_label, WORKSPACE])
    }
}
