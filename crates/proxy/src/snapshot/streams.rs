//! Stream routes (`tcp`, `tls`, `tls_passthrough`, `udp`), which have a router and plugin chains of their own. There are
//! usually only a few stream routes, so a change of one, or of a plugin that applies to streams, compiles all of them
//! again.

use super::build::{BuildSettings, warn_of};
use super::delta::Delta;
use super::plugins::PluginTables;
use super::services::Services;
use super::{Protocols, ServiceIndex, ServiceRef, Snapshot};
use crate::plugins::{Plan, Planner, Plans};
use model::entities::{Route, RouteId};
use plugin::{EntityRef, RouteSlot};
use router::{RouteIndex, StreamRequest, StreamRouter};
use std::sync::Arc;
use tables::Sorted;

/// All stream routes.
#[derive(Clone, Default)]
pub(super) struct Streams {
    router: Arc<StreamRouter>,
    /// The routes by [`RouteIndex`].
    infos: Arc<[StreamRoute]>,
    /// All stream routes. The router has only those whose service is enabled, or that have no service.
    routes: Sorted<RouteId, Arc<Route>>,
    /// The plugin chain for sessions without a route, and for TLS handshakes.
    globals: Arc<Plan>,
}

/// The properties of a matched stream route.
#[derive(Debug)]
pub struct StreamRoute {
    /// Its position among the stream routes.
    pub index: RouteIndex,
    pub id: RouteId,
    pub name: Option<Arc<str>>,
    pub plan: Arc<Plan>,
    /// What a plugin has prepared for the route.
    pub slot: Arc<RouteSlot>,
    pub protocols: Protocols,
    pub preserve_host: bool,
    service: Option<ServiceIndex>,
}

impl StreamRoute {
    /// Returns the reference that plugins get.
    pub fn as_ref(&self) -> EntityRef<'_> {
        EntityRef {
            id: self.id.0,
            name: self.name.as_deref(),
        }
    }
}

impl Streams {
    /// Applies a change and returns the number of routes that were compiled. `plugins_changed` says whether the change
    /// affects the plugin chains of streams.
    pub(super) fn apply(
        &mut self,
        delta: &Delta,
        plugins_changed: bool,
        plugins: &PluginTables,
        services: &Services,
        settings: &BuildSettings,
    ) -> usize {
        let mut changed = plugins_changed;
        for (id, route) in &delta.routes {
            let stream = route.as_ref().filter(|route| is_stream(route));
            let before = match stream {
                Some(route) => self.routes.insert(*id, Arc::new(route.clone())),
                None => self.routes.remove(id),
            };
            changed |= stream.is_some() || before.is_some();
        }
        let is_stream = |id: &RouteId| self.routes.get(id).is_some();
        changed |= delta.relabelled.iter().any(is_stream);
        // All plans are built again, so the table that shares them is needed only here.
        let mut plans = Plans::default();
        let mut planner = Planner::new(&plugins.instances, &plugins.stream_places, &mut plans);
        if plugins_changed {
            self.globals = planner.globals();
        }
        if changed && (!self.routes.is_empty() || !self.infos.is_empty()) {
            self.compile(&mut planner, services, settings);
            return self.infos.len();
        }
        0
    }

    fn compile(
        &mut self,
        planner: &mut Planner<'_>,
        services: &Services,
        settings: &BuildSettings,
    ) {
        let is_served = |route: &&Route| {
            let service = route.service.map(|id| services.index(id));
            service.is_none_or(|known| known.is_some())
        };
        let routes = self.routes.iter().map(|(_, route)| &**route);
        let served: Vec<&Route> = routes.filter(is_served).collect();
        let indexed = || (0..).map(RouteIndex).zip(served.iter().copied());
        let (router, problems) = StreamRouter::build(indexed(), settings.router);
        warn_of(&problems);
        let info = |(index, route): (RouteIndex, &Route)| StreamRoute {
            index,
            id: route.id,
            name: route.name.as_deref().map(Arc::from),
            plan: planner.plan(Some(route.id), route.service),
            slot: Arc::default(),
            protocols: route.protocols.iter().copied().collect(),
            preserve_host: route.preserve_host,
            service: route.service.and_then(|id| services.index(id)),
        };
        self.infos = indexed().map(info).collect();
        self.router = Arc::new(router);
    }

    /// All served routes, in the order in which the router tries them.
    pub(super) fn order(&self) -> impl Iterator<Item = &StreamRoute> {
        let order = self.router.order();
        order.map(|index| &self.infos[index.0 as usize])
    }
}

fn is_stream(route: &Route) -> bool {
    route.protocols.iter().any(|protocol| !protocol.is_http())
}

impl Snapshot {
    /// Returns the route for a connection or a UDP session.
    pub fn stream_route(&self, request: &StreamRequest<'_>) -> Option<&StreamRoute> {
        let index = self.streams.router.matches(request)?;
        self.streams.infos.get(index.0 as usize)
    }

    /// The router itself, for reports about all stream routes.
    pub fn stream_router(&self) -> &StreamRouter {
        &self.streams.router
    }

    pub fn stream_service(&self, route: &StreamRoute) -> Option<ServiceRef<'_>> {
        route.service.map(|index| self.services.get(index))
    }

    /// The plugin chain for sessions without a route. It has the plugins that run in handshakes on stream listeners.
    pub fn stream_globals(&self) -> &Plan {
        &self.streams.globals
    }

    pub fn stream_routes(&self) -> &[StreamRoute] {
        &self.streams.infos
    }
}
