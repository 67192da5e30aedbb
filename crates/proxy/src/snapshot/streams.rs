//! Stream routes (`tcp`, `tls`, `tls_passthrough`, `udp`), which have a router of their own. There are usually only a
//! few stream routes, so a change of one compiles all of them again.

use super::build::{BuildSettings, warn_of};
use super::delta::{Delta, Edit};
use super::services::Services;
use super::{Protocols, ServiceIndex, ServiceRef, Snapshot};
use model::entities::{Plugin, PluginId, Route, RouteId, ServiceId};
use plugin::{Implementation, Lack, Phases, PluginDef};
use router::{RouteIndex, StreamRequest, StreamRouter};
use std::borrow::Cow;
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
    guards: Sorted<PluginId, Guard>,
}

/// The properties of a matched stream route.
#[derive(Debug)]
pub struct StreamRoute {
    pub id: RouteId,
    pub name: Option<Box<str>>,
    pub protocols: Protocols,
    pub preserve_host: bool,
    service: Option<ServiceIndex>,
    /// Name of an access-control plugin that applies to the route. Plugins do not support streams yet, so connections
    /// are refused.
    pub guard: Option<Cow<'static, str>>,
}

/// A plugin configured for streams that must not be skipped, such as access control.
#[derive(Debug, Clone)]
struct Guard {
    name: Cow<'static, str>,
    route: Option<RouteId>,
    service: Option<ServiceId>,
}

impl Guard {
    /// Returns a guard if the plugin controls access to streams. Plugins cannot check streams yet, so every stream in
    /// the plugin's scope must be refused. A plugin of a consumer never applies, because streams have no consumer.
    fn of(plugin: &Plugin, table: &[Arc<PluginDef>]) -> Option<Self> {
        let is_for_streams = plugin.protocols.iter().any(|protocol| !protocol.is_http());
        if !plugin.enabled || !is_for_streams || plugin.consumer.is_some() {
            return None;
        }
        let def = table.iter().find(|def| *def.name == *plugin.name)?;
        if !def.allows_scope_of(plugin) {
            return None;
        }
        let keeps_out = match def.implementation {
            Implementation::Ready(_) => def.phases.intersects(Phases::ACCESS),
            Implementation::Later { lack, .. } => lack == Lack::Protection,
        };
        keeps_out.then_some(Self {
            name: def.name.clone(),
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
    /// Applies a change and returns the number of routes that were compiled.
    pub(super) fn apply(
        &mut self,
        delta: &Delta,
        services: &Services,
        settings: &BuildSettings,
    ) -> usize {
        let mut changed = false;
        for Edit { old, new } in &delta.plugins {
            let guard = |plugin: &Plugin| Some((plugin.id, Guard::of(plugin, &settings.plugins)?));
            if let Some((id, _)) = old.as_ref().and_then(guard) {
                self.guards.remove(&id);
                changed = true;
            }
            if let Some((id, guard)) = new.as_ref().and_then(guard) {
                self.guards.insert(id, guard);
                changed = true;
            }
        }
        for (id, route) in &delta.routes {
            let stream = route.as_ref().filter(|route| is_stream(route));
            let before = match stream {
                Some(route) => self.routes.insert(*id, Arc::new(route.clone())),
                None => self.routes.remove(id),
            };
            changed |= stream.is_some() || before.is_some();
        }
        if changed && (!self.routes.is_empty() || !self.infos.is_empty()) {
            self.compile(services, settings);
            return self.infos.len();
        }
        0
    }

    fn compile(&mut self, services: &Services, settings: &BuildSettings) {
        let is_served = |route: &&Route| {
            let service = route.service.map(|id| services.index(id));
            service.is_none_or(|known| known.is_some())
        };
        let routes = self.routes.iter().map(|(_, route)| &**route);
        let served: Vec<&Route> = routes.filter(is_served).collect();
        let indexed = (0..).map(RouteIndex).zip(served.iter().copied());
        let (router, problems) = StreamRouter::build(indexed, settings.router);
        warn_of(&problems);
        let info = |route: &&Route| {
            let guards = self.guards.iter().map(|(_, guard)| guard);
            let guard = guards.into_iter().find(|guard| guard.applies_to(route));
            StreamRoute {
                id: route.id,
                name: route.name.as_deref().map(Box::from),
                protocols: route.protocols.iter().copied().collect(),
                preserve_host: route.preserve_host,
                service: route.service.and_then(|id| services.index(id)),
                guard: guard.map(|guard| guard.name.clone()),
            }
        };
        self.infos = served.iter().map(info).collect();
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

    pub fn stream_routes(&self) -> &[StreamRoute] {
        &self.streams.infos
    }
}
