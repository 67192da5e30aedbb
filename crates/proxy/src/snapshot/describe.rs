//! Describes a snapshot as text, for tests. Two snapshots that treat all requests alike have the same description. So a
//! test can compare a snapshot that was changed step by step with one that was built at once.

use super::{Destination, ServiceRef, Snapshot};
use crate::plugins::InstanceIndex;
use model::entities::RouteId;
use std::collections::HashMap;
use std::fmt::Write;

impl Snapshot {
    /// Returns one line for each route, service, upstream and so on. Only for tests, because it is long.
    pub fn describe(&self) -> Vec<String> {
        let identities = self.plugins.identities();
        let mut lines = Vec::new();
        for route in self.routes() {
            let mut line = format!(
                "route {:?} {:?} {} {} {} {}",
                route.as_ref(),
                route.protocols,
                route.https_redirect_status_code,
                route.preserve_host,
                route.request_buffering,
                route.response_buffering,
            );
            self.write_service(self.service(route), &mut line);
            self.write_plan(&route.plan, &identities, &mut line);
            lines.push(line);
        }
        let mut line = "globals".to_owned();
        self.write_plan(&self.globals, &identities, &mut line);
        lines.push(line);
        for service in self.services.iter() {
            lines.push(self.describe_service(service));
        }
        for upstream in self.upstreams() {
            let settings = &upstream.settings;
            let (entity, targets) = (&settings.entity, &settings.targets);
            lines.push(format!(
                "upstream {entity:?} {targets:?} {:?}",
                settings.probing
            ));
        }
        for (route, expression) in self.router.order() {
            let id: RouteId = self.route(route).id;
            lines.push(format!("try {id} {expression:?}"));
        }
        for route in self.stream_routes() {
            let mut line = format!("stream {:?}", (route.id, &route.name, route.protocols));
            let _ = write!(line, " {}", route.preserve_host);
            self.write_service(self.stream_service(route), &mut line);
            self.write_plan(&route.plan, &identities, &mut line);
            lines.push(line);
        }
        let mut line = "globals of streams".to_owned();
        self.write_plan(self.stream_globals(), &identities, &mut line);
        lines.push(line);
        for route in self.streams.order() {
            lines.push(format!("try stream {}", route.id));
        }
        for (name, certificate) in self.certificates.names() {
            let found = self.certificates(Some(name));
            lines.push(format!("name {name} {certificate} {found:?}"));
        }
        lines.push(format!(
            "{} instances, {} plans",
            self.instances().len(),
            self.plugins.plans.len()
        ));
        // The rustls configurations share a cache, and its debug output differs while another thread holds the lock.
        for line in &mut lines {
            *line = line.replace("\"<locked>\"", "[]");
        }
        lines
    }

    fn write_service(&self, service: Option<ServiceRef<'_>>, line: &mut String) {
        let _ = write!(line, " service {:?}", service.map(|service| service.id));
    }

    fn describe_service(&self, service: ServiceRef<'_>) -> String {
        let mut line = format!("service {:?} {:?}", service.as_ref(), service.protocol);
        let _ = write!(line, " {:?}", service.path);
        let _ = match &service.destination {
            Destination::Host(target) => write!(line, " {target:?}"),
            Destination::Upstream(index, way) => {
                let upstream = self.services.upstream(*index);
                let way = &upstream.settings.ways[*way as usize];
                write!(line, " {} {way:?}", upstream.name())
            }
        };
        line
    }

    fn write_plan(
        &self,
        plan: &crate::plugins::Plan,
        identities: &HashMap<InstanceIndex, [u64; 2]>,
        line: &mut String,
    ) {
        let name = |index: InstanceIndex| {
            let instance = self.instances().get(index);
            format!("{} {:x?}", instance.def.name, identities.get(&index))
        };
        let _ = write!(line, " plan {:?}", plan.describe(self.instances(), &name));
    }
}
