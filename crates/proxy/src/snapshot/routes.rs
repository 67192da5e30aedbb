//! The next snapshot when nothing but some routes was put: the most frequent change, and one that must not cost a pass over
//! all routes' settings. What is known of the others is taken over.

use super::build::{route_info, warn_of};
use super::{BuildSettings, Part, RouteInfo, Snapshot};
use crate::plan::Planner;
use model::entities::{Route, RouteId};
use model::hashing::FastMap;
use router::RouteIndex;
use std::sync::Arc;

impl Snapshot {
    /// The next snapshot under the same settings, when the routes given were created or replaced and nothing else has
    /// changed. The same as [`Snapshot::update`] with all routes.
    pub fn put_routes(&self, put: &[Route], revision: u64, settings: &BuildSettings) -> Self {
        let merged = settings.rebuilds.time(Part::Plans, || self.merge(put));
        let router = settings.rebuilds.time(Part::Router, || {
            let (router, problems) = self.router.replace(&merged.moved, merged.fresh);
            warn_of(&problems);
            Arc::new(router)
        });
        let streams = self.streams.put(put, &self.services, settings);
        Self {
            revision,
            router,
            routes: merged.infos.into(),
            streams,
            services: self.services.clone(),
            instances: self.instances.clone(),
            places: self.places.clone(),
            globals: self.globals.clone(),
            certificates: self.certificates.clone(),
            inert: self.inert.clone(),
        }
    }

    /// Puts routes among those that are there, which are sorted by id.
    fn merge<'r>(&self, put: &'r [Route]) -> Merged<'r> {
        let by_id: FastMap<RouteId, &Route> = put.iter().map(|route| (route.id, route)).collect();
        let served = by_id.values().filter(|route| self.services.serves(route));
        let mut served: Vec<&Route> = served.copied().collect();
        served.sort_by_key(|route| route.id);
        let mut served = served.into_iter().peekable();
        let mut planner = Planner::new(&self.instances, &self.places);
        planner.know(self.routes.iter().map(|info| &info.plan));
        let mut merged = Merged::with_capacity(self.routes.len() + put.len());
        for info in self.routes.iter() {
            while let Some(route) = served.next_if(|route| route.id <= info.id) {
                merged.add(route, route_info(route, &self.services, &mut planner));
            }
            merged.keep((!by_id.contains_key(&info.id)).then_some(info));
        }
        for route in served {
            merged.add(route, route_info(route, &self.services, &mut planner));
        }
        merged
    }
}

/// The routes of the new snapshot, and what the router must know of them.
struct Merged<'r> {
    infos: Vec<RouteInfo>,
    /// For each route of the old snapshot its new index, if it stays as it is.
    moved: Vec<Option<RouteIndex>>,
    fresh: Vec<(RouteIndex, &'r Route)>,
}

impl<'r> Merged<'r> {
    fn with_capacity(routes: usize) -> Self {
        Self {
            infos: Vec::with_capacity(routes),
            moved: Vec::with_capacity(routes),
            fresh: Vec::new(),
        }
    }

    fn next(&self) -> RouteIndex {
        let index = u32::try_from(self.infos.len()).expect("routes fit into memory");
        RouteIndex(index)
    }

    fn add(&mut self, route: &'r Route, info: RouteInfo) {
        self.fresh.push((self.next(), route));
        self.infos.push(info);
    }

    /// The next route of the old snapshot: as it is, or not at all.
    fn keep(&mut self, info: Option<&RouteInfo>) {
        self.moved.push(info.map(|_| self.next()));
        self.infos.extend(info.cloned());
    }
}
