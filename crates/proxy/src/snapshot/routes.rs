//! The HTTP routes of a snapshot: their indexes in the router, their plugin chains, and the other properties that
//! requests need.

use super::build::{BuildSettings, warn_of};
use super::delta::Delta;
use super::plugins::PluginTables;
use super::services::Services;
use super::{RouteInfo, ServiceIndex};
use crate::plugins::{Plan, Planner, RouteScope};
use model::entities::{Route, RouteId, ServiceId};
use plugin::RouteSlot;
use router::{RouteIndex, Router};
use std::collections::BTreeSet;
use std::sync::Arc;
use tables::{Slots, Sorted};

/// The routes that requests can reach.
#[derive(Clone, Default)]
pub(super) struct Routes {
    infos: Slots<RouteInfo>,
    by_id: Sorted<RouteId, RouteIndex>,
}

/// The effects of a change on the routes.
#[derive(Default)]
pub(super) struct Applied {
    /// Number of plugin chains that were built.
    pub(super) plans: usize,
    /// Routes that were removed or replaced.
    removed: BTreeSet<RouteIndex>,
}

impl Routes {
    #[inline]
    pub(super) fn get(&self, index: RouteIndex) -> &RouteInfo {
        self.infos.get(index.0)
    }

    /// Returns the route of an index, which may be that of another snapshot.
    pub(super) fn find(&self, index: u32) -> Option<&RouteInfo> {
        self.infos.find(index)
    }

    pub(super) fn by_id(&self, id: RouteId) -> Option<&RouteInfo> {
        let index = self.by_id.get(&id)?;
        Some(self.get(*index))
    }

    /// Returns all routes, ordered by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &RouteInfo> {
        self.by_id.iter().map(|(_, index)| self.get(*index))
    }

    pub(super) fn indexed(&self) -> impl Iterator<Item = (RouteIndex, &RouteInfo)> {
        let indexes = self.by_id.iter();
        indexes.map(|(_, index)| (*index, self.get(*index)))
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Adds, replaces and removes routes, and rebuilds the plugin chains that changed.
    pub(super) fn apply(
        &mut self,
        delta: &Delta,
        services: &Services,
        plugins: &mut PluginTables,
        globals: &mut Arc<Plan>,
        changed: &[RouteScope],
    ) -> Applied {
        let replanned = self.replanned(delta, changed);
        let plans_globals = changed.contains(&ANYWHERE);
        // All old plans are released before a new one is built. `Plans::release` explains why.
        if plans_globals {
            plugins.plans.release(globals);
        }
        let known = delta.routes.iter().map(|(id, _)| self.by_id.get(id));
        for index in known.flatten().chain(&replanned) {
            plugins.plans.release(&self.get(*index).plan);
        }
        let mut planner = plugins.planner();
        let mut applied = Applied {
            plans: replanned.len(),
            ..Applied::default()
        };
        if plans_globals {
            *globals = planner.globals();
            applied.plans += 1;
        }
        for index in replanned {
            let info = self.get(index);
            let service = info.service.map(|service| services.get(service).id);
            let plan = planner.plan(Some(info.id), service);
            self.infos.get_mut(index.0).plan = plan;
        }
        for id in &delta.relabelled {
            if let Some(index) = self.by_id.get(id) {
                self.infos.get_mut(index.0).slot = RouteSlot::default();
            }
        }
        self.infos.reserve(delta.routes.len());
        for (id, route) in &delta.routes {
            let served = route.as_ref().filter(|route| services.serves(route));
            let known = self.by_id.get(id).copied();
            applied.removed.extend(known);
            match (served, known) {
                (Some(route), _) => {
                    applied.plans += 1;
                    self.enter(route, known, services, &mut planner);
                }
                (None, Some(index)) => {
                    self.by_id.remove(id);
                    self.infos.free(index.0);
                }
                (None, None) => {}
            }
        }
        applied
    }

    fn enter(
        &mut self,
        route: &Route,
        known: Option<RouteIndex>,
        services: &Services,
        planner: &mut Planner<'_>,
    ) {
        let service = route.service.and_then(|id| services.index(id));
        let info = route_info(route, service, planner);
        match known {
            Some(index) => self.infos.fill(index.0, info),
            None => {
                let index = RouteIndex(self.infos.insert(info));
                self.by_id.insert(route.id, index);
            }
        }
    }

    /// Returns the routes that did not change themselves but need a new plugin chain.
    fn replanned(&self, delta: &Delta, changed: &[RouteScope]) -> Vec<RouteIndex> {
        let put = |id: &RouteId| {
            let found = delta.routes.binary_search_by_key(id, |(id, _)| *id);
            found.is_ok()
        };
        if changed.contains(&ANYWHERE) {
            let all = self.by_id.iter().filter(|(id, _)| !put(id));
            return all.map(|(_, index)| *index).collect();
        }
        let ids: BTreeSet<RouteId> = changed
            .iter()
            .flat_map(|place| match (place.route, place.service) {
                (Some(route), _) => vec![route],
                (None, Some(service)) => self.of_service(delta, service),
                (None, None) => Vec::new(),
            })
            .filter(|id| !put(id))
            .collect();
        let known = ids.iter().filter_map(|id| self.by_id.get(id));
        known.copied().collect()
    }

    fn of_service(&self, delta: &Delta, service: ServiceId) -> Vec<RouteId> {
        delta.routes_of.get(&service).cloned().unwrap_or_default()
    }

    /// Returns the router after a change, and the larger of the numbers of added and removed routes. A replaced route
    /// counts as both. Returns `None` if `base` is still correct.
    pub(super) fn router(
        &self,
        delta: &Delta,
        applied: &Applied,
        base: &Router,
        settings: &BuildSettings,
    ) -> Option<(Router, usize)> {
        let put = delta.routes.iter().filter_map(|(id, route)| {
            let index = self.by_id.get(id)?;
            Some((*index, route.as_ref()?))
        });
        let put: Vec<(RouteIndex, &Route)> = put.collect();
        let removed: Vec<RouteIndex> = applied.removed.iter().copied().collect();
        let count = put.len().max(removed.len());
        if count == 0 {
            return None;
        }
        let (router, problems) = if put.len() == self.len() {
            Router::build(put, settings.router, Some(base))
        } else {
            base.replace(&removed, put)
        };
        warn_of(&problems);
        Some((router, count))
    }
}

/// The scope of global plugins, which apply to every route.
const ANYWHERE: RouteScope = RouteScope {
    route: None,
    service: None,
};

fn route_info(
    route: &Route,
    service: Option<ServiceIndex>,
    planner: &mut Planner<'_>,
) -> RouteInfo {
    RouteInfo {
        id: route.id,
        name: route.name.as_deref().map(Arc::from),
        plan: planner.plan(Some(route.id), route.service),
        path: route.paths.first().map_or("", |path| path).into(),
        slot: RouteSlot::default(),
        service,
        https_redirect_status_code: route.https_redirect_status_code,
        protocols: route.protocols.iter().copied().collect(),
        preserve_host: route.preserve_host,
        request_buffering: route.request_buffering,
        response_buffering: route.response_buffering,
    }
}
