//! The series of Kong's metrics. Those of a route are found once, and kept in the route's slot of the snapshot.

use super::counted::{Amounts, Counted, SHOWS_LATENCIES, SHOWS_UPSTREAM_LATENCY, Statuses, source};
use super::families::{Families, OF_CONSUMER, OF_ROUTE};
use foldhash::fast::RandomState;
use model::EntityKind;
use model::entities::{Consumer, ConsumerId};
use papaya::Guard;
use plugin::{EntityRef, Latencies, Node};
use services::metrics::{Counter, Family, Metrics, Milliseconds, Noted, OTHER, TraceId};
use services::workers::ThisWorker;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// The name of the only workspace.
pub(super) const WORKSPACE: &str = "default";

/// The state of the plugin on a node. It outlives configurations, so that counters go on when the plugin is configured
/// anew.
pub(super) struct Kong {
    pub(super) families: Families,
    /// The series by route. A route whose name or service was changed has several until the former ones expire.
    routes: Mutex<HashMap<Uuid, Vec<Arc<RouteSeries>>>>,
    /// The number of the next [`RouteSeries`].
    pub(super) next: AtomicU64,
    /// The series by route and consumer. One map for all routes: a map has memory of its own for each thread that reads it,
    /// and that of one of many would not be in the processor's cache.
    pub(super) consumers: papaya::HashMap<(u64, ConsumerId), Arc<OfConsumer>, RandomState>,
    errors: Counter,
    shows_upstream_health: AtomicBool,
    /// Number of plugins that are started.
    instances: AtomicUsize,
}

/// The series of a route.
pub(super) struct RouteSeries {
    /// Its part of the keys of [`Kong::consumers`].
    pub(super) number: u64,
    /// Requests of all consumers, and the latencies.
    all: Counted<OF_ROUTE>,
    /// The exemplars of the latencies: of the gateway, of the request, and of the upstream.
    noted: [Noted; 3],
    pub(super) route: Uuid,
    pub(super) service: Option<Uuid>,
    pub(super) route_label: Box<str>,
    pub(super) service_label: Box<str>,
    /// The series of consumers under former names.
    pub(super) former: Mutex<Vec<Arc<OfConsumer>>>,
    /// The consumers that have no series of their own.
    other: OnceLock<Counted<OF_CONSUMER>>,
    /// The series of a route of streams.
    sessions: OnceLock<Box<Sessions>>,
    pub(super) gone: Gone,
}

/// The series of a consumer on a route.
pub(super) struct OfConsumer {
    pub(super) counted: Counted<OF_CONSUMER>,
    pub(super) gone: Gone,
}

#[derive(Default)]
struct Sessions {
    statuses: Statuses,
    /// The gateway's part of a session, and the whole session.
    durations: OnceLock<[Milliseconds; 2]>,
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
            next: AtomicU64::new(0),
            consumers: papaya::HashMap::with_hasher(RandomState::default()),
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
            number: self.next.fetch_add(1, Ordering::Relaxed),
            route: route.id,
            service,
            route_label: route_label.into(),
            service_label: service_label.into(),
            all: Counted::new("", self.families.group_of_route()),
            noted: Default::default(),
            former: Mutex::default(),
            other: OnceLock::new(),
            sessions: OnceLock::new(),
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

    /// Counts a request of a consumer, or of any if `consumer` is `None`.
    #[inline]
    pub(super) fn count(
        &self,
        kong: &Kong,
        here: ThisWorker,
        consumer: Option<&Consumer>,
        amounts: Amounts,
    ) {
        let Some(consumer) = consumer else {
            return self.all.add(here, amounts, kong, self.owner());
        };
        let label = consumer_label(consumer);
        let guard = kong.consumers.guard();
        let known = kong.consumers.get(&(self.number, consumer.id), &guard);
        let counted = match known.filter(|known| *known.counted.consumer == *label) {
            Some(known) => &known.counted,
            None => self.add_consumer(kong, here, (consumer.id, &label), &guard),
        };
        counted.add(here, amounts, kong, self.owner());
    }

    /// Makes the series of a consumer, or returns those for all that have none of their own.
    #[cold]
    fn add_consumer<'s>(
        &'s self,
        kong: &'s Kong,
        here: ThisWorker,
        (id, label): (ConsumerId, &str),
        guard: &'s impl Guard,
    ) -> &'s Counted<OF_CONSUMER> {
        let Families {
            requests,
            bandwidth,
            ..
        } = &kong.families;
        if requests.is_nearly_full() || bandwidth.is_nearly_full() {
            kong.errors.add(here.number(), 1);
            let make = || Counted::new(OTHER, kong.families.group_of_consumer());
            return self.other.get_or_init(make);
        }
        let made = Arc::new(OfConsumer {
            counted: Counted::new(label, kong.families.group_of_consumer()),
            gone: Gone::default(),
        });
        // Another worker may have made the series in the meantime. A former name of the consumer is replaced.
        let kept = kong.consumers.update_or_insert(
            (self.number, id),
            |known| match *known.counted.consumer == *label {
                true => known.clone(),
                false => {
                    self.former().push(known.clone());
                    made.clone()
                }
            },
            made.clone(),
            guard,
        );
        guard.flush();
        &kept.counted
    }

    pub(super) fn former(&self) -> MutexGuard<'_, Vec<Arc<OfConsumer>>> {
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the latencies of a request. `trace` is the id of its trace for exemplars, with the time since 1970.
    #[inline]
    pub(super) fn observe(
        &self,
        kong: &Kong,
        here: ThisWorker,
        latencies: &Latencies,
        trace: Option<(TraceId, Duration)>,
    ) {
        let (cells, placed) = (self.all.group.cells(here), &kong.families.latencies);
        let mut shown = SHOWS_LATENCIES;
        cells.observe(&placed.kong, milliseconds(latencies.gateway));
        cells.observe(&placed.request, milliseconds(latencies.request));
        if let Some(upstream) = latencies.upstream {
            cells.observe(&placed.upstream, milliseconds(upstream));
            shown |= SHOWS_UPSTREAM_LATENCY;
        }
        if !self.all.shows(shown) {
            self.show_latencies(kong, latencies.upstream.is_some());
        }
        if let Some((trace, now)) = trace {
            let [of_kong, of_request, of_upstream] = &self.noted;
            let note = |placement, noted, time| {
                let group = &self.all.group;
                group.note_trace(placement, noted, milliseconds(time), trace, now);
            };
            note(&placed.kong, of_kong, latencies.gateway);
            note(&placed.request, of_request, latencies.request);
            if let Some(upstream) = latencies.upstream {
                note(&placed.upstream, of_upstream, upstream);
            }
        }
    }

    #[cold]
    fn show_latencies(&self, kong: &Kong, with_upstream: bool) {
        let (families, group, labels) = (&kong.families, &self.all.group, self.labels());
        let attach =
            |family: &Family<Milliseconds>, placement| family.attach(&labels, group, placement);
        let placed = &families.latencies;
        if attach(&families.kong_latency, &placed.kong)
            && attach(&families.request_latency, &placed.request)
        {
            self.all.note_shown(SHOWS_LATENCIES);
        }
        if with_upstream && attach(&families.upstream_latency, &placed.upstream) {
            self.all.note_shown(SHOWS_UPSTREAM_LATENCY);
        }
    }

    /// Counts the durations of a session: of the gateway's part and of the whole session.
    pub(super) fn observe_session(&self, kong: &Kong, here: ThisWorker, latencies: &Latencies) {
        let durations = self.sessions().durations.get_or_init(|| {
            let (families, labels) = (&kong.families, self.labels());
            [&families.kong_latency, &families.session_duration].map(|family| family.with(&labels))
        });
        let [of_kong, whole] = durations;
        of_kong.observe(here.number(), milliseconds(latencies.gateway));
        whole.observe(here.number(), milliseconds(latencies.request));
    }

    pub(super) fn add_session(
        &self,
        kong: &Kong,
        here: ThisWorker,
        status: u16,
        by_upstream: bool,
    ) {
        let sessions = self.sessions().statuses.get(status, by_upstream, || {
            let (code, source) = (status.to_string(), source(by_upstream));
            let Owner { service, route } = self.owner();
            let sessions = &kong.families.sessions;
            sessions.with(&[service, route, &code, source, WORKSPACE])
        });
        if let Some(sessions) = sessions {
            sessions.add(here.number(), 1);
        }
    }

    fn sessions(&self) -> &Sessions {
        self.sessions.get_or_init(Box::default)
    }

    /// Returns the labels of histograms.
    fn labels(&self) -> [&str; 3] {
        [&self.service_label, &self.route_label, WORKSPACE]
    }
}

/// Kong counts whole milliseconds.
#[inline]
fn milliseconds(time: Duration) -> u64 {
    // Not `as_millis`, whose 128 bits take several times as long.
    time.as_secs().saturating_mul(1000) + u64::from(time.subsec_millis())
}
