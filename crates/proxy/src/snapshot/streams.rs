//! Routes of streams (`tcp`, `tls`, `tls_passthrough`, `udp`), compiled apart from those of HTTP: neither sees the other's.

use super::build::{Services, warn_of};
use super::{BuildSettings, Protocols, ServiceIndex, ServiceInfo, Snapshot};
use model::entities::{Plugin, Route, RouteId, ServiceId};
use plugin::{Implementation, Lack, Phases, PluginDef};
use router::{RouteIndex, StreamRequest, StreamRouter};
use std::collections::HashSet;
use std::sync::Arc;

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Streams {
    router: StreamRouter,
    /// By [`RouteIndex`].
    infos: Box<[StreamRoute]>,
    /// What they were compiled from, for when some of them are put: seldom more than a few.
    routes: Vec<Arc<Route>>,
    guards: Arc<[Guard]>,
}

/// What is needed of a route beyond finding it.
#[derive(Debug)]
pub struct StreamRoute {
    pub id: RouteId,
    pub name: Option<Box<str>>,
    pub protocols: Protocols,
    pub preserve_host: bool,
    service: Option<ServiceIndex>,
    /// A plugin that would have to let the stream in, and cannot: none has phases of streams yet.
    pub guard: Option<&'static str>,
}

/// A plugin that keeps out what it does not let in, where it applies to streams.
#[derive(Debug, Clone, Copy)]
struct Guard {
    name: &'static str,
    route: Option<RouteId>,
    service: Option<ServiceId>,
}

impl Guard {
    /// Without a phase of streams it cannot look at them, so that nothing that it applies to may pass.
    fn of(plugin: &Plugin, table: &[&'static PluginDef]) -> Option<Self> {
        let is_for_streams = plugin.protocols.iter().any(|protocol| !protocol.is_http());
        if !plugin.enabled || !is_for_streams || plugin.consumer.is_some() {
            return None;
        }
        let def = table.iter().find(|def| def.name == &*plugin.name)?;
        let keeps_out = match def.implementation {
            Implementation::Ready(_) => def.phases.intersects(Phases::ACCESS),
            Implementation::Later(lack) => lack == Lack::Protection,
        };
        keeps_out.then_some(Self {
            name: def.name,
            route: plugin.route,
            service: plugin.service,
        })
    }

    fn applies_to(&self, route: &Route) -> bool {
        self.route.is_none_or(|id| id == route.id)
            && self.service.is_none_or(|id| Some(id) == route.service)
    }
}

impl Streams {
    /// `plugins` are those configured, or none when the guards of the snapshot before stay.
    pub(super) fn build<'r>(
        routes: impl IntoIterator<Item = &'r Route>,
        plugins: Option<&[Plugin]>,
        previous: Option<&Snapshot>,
        services: &Services,
        settings: &BuildSettings,
    ) -> Self {
        let guards = match (plugins, previous) {
            (None, Some(previous)) => previous.streams.guards.clone(),
            (plugins, _) => {
                let plugins = plugins.into_iter().flatten();
                plugins
                    .filter_map(|plugin| Guard::of(plugin, settings.plugins))
                    .collect()
            }
        };
        let routes = routes.into_iter().filter(|route| is_stream(route));
        let routes = routes.map(|route| Arc::new(route.clone()));
        Self::compile(routes.collect(), guards, services, settings)
    }

    fn compile(
        mut routes: Vec<Arc<Route>>,
        guards: Arc<[Guard]>,
        services: &Services,
        settings: &BuildSettings,
    ) -> Self {
        routes.sort_by_key(|route| route.id);
        let is_served = |route: &&Route| {
            let service = route.service.map(|id| services.index(id));
            service.is_none_or(|known| known.is_some())
        };
        let served: Vec<&Route> = routes
            .iter()
            .map(|route| &**route)
            .filter(is_served)
            .collect();
        let indexed = (0..).map(RouteIndex).zip(served.iter().copied());
        let (router, problems) = StreamRouter::build(indexed, settings.router);
        warn_of(&problems);
        let info = |route: &&Route| StreamRoute {
            id: route.id,
            name: route.name.as_deref().map(Box::from),
            protocols: route.protocols.iter().copied().collect(),
            preserve_host: route.preserve_host,
            service: route.service.and_then(|id| services.index(id)),
            guard: guards
                .iter()
                .find(|guard| guard.applies_to(route))
                .map(|guard| guard.name),
        };
        Self {
            infos: served.iter().map(info).collect(),
            router,
            routes,
            guards,
        }
    }

    /// With some routes created or replaced, which need not be of streams.
    pub(super) fn put(
        self: &Arc<Self>,
        put: &[Route],
        services: &Services,
        settings: &BuildSettings,
    ) -> Arc<Self> {
        let ids: HashSet<RouteId> = put.iter().map(|route| route.id).collect();
        let is_put = |route: &Arc<Route>| ids.contains(&route.id);
        if !put.iter().any(is_stream) && !self.routes.iter().any(is_put) {
            return self.clone();
        }
        let kept = self.routes.iter().filter(|route| !is_put(route)).cloned();
        let fresh = put.iter().filter(|route| is_stream(route));
        let fresh = fresh.map(|route| Arc::new(route.clone()));
        let routes = kept.chain(fresh).collect();
        let streams = Self::compile(routes, self.guards.clone(), services, settings);
        Arc::new(streams)
    }
}

fn is_stream(route: &Route) -> bool {
    route.protocols.iter().any(|protocol| !protocol.is_http())
}

impl Snapshot {
    /// The route of a connection or of a session of datagrams.
    pub fn stream_route(&self, request: &StreamRequest<'_>) -> Option<&StreamRoute> {
        let index = self.streams.router.matches(request)?;
        self.streams.infos.get(index.0 as usize)
    }

    pub fn stream_service(&self, route: &StreamRoute) -> Option<&ServiceInfo> {
        route.service.map(|index| self.services.get(index))
    }

    pub fn stream_routes(&self) -> &[StreamRoute] {
        &self.streams.infos
    }
}
