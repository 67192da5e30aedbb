//! The metrics of Kong's plugin prometheus that describe the node. They are shown also without the plugin.
//! Source: kong/plugins/prometheus/exporter.lua.

use super::{Gateway, health};
use admin::control::{Control, UpstreamHealth};
use services::dict::ZONES;
use services::metrics::{Kind, Page};

impl Gateway {
    pub(super) fn write_kong_metrics(&self, page: &mut Page) {
        let id = self.node.id.to_string();
        let subsystems: &[&str] = if self.has_streams {
            &["http", "stream"]
        } else {
            &["http"]
        };
        page.family(
            "kong_datastore_reachable",
            "Datastore reachable from Kong, 0 is unreachable",
            Kind::Gauge,
        );
        page.count(&[], u64::from(self.store.view().is_ok()));
        self.write_memory(page, &id);
        self.write_connections(page, &id, subsystems);
        self.write_timers(page);
        page.family(
            "kong_node_info",
            "Kong Node metadata information",
            Kind::Gauge,
        );
        page.count(&[("node_id", &id), ("version", &self.node.kong_version)], 1);
        if plugins::shows_upstream_health(&self.plane.node) {
            self.write_upstream_health(page);
        }
    }

    /// Writes the numbers of connections. As in nginx, they are those of all subsystems together.
    fn write_connections(&self, page: &mut Page, id: &str, subsystems: &[&str]) {
        let connections = self.connections();
        page.family(
            "kong_nginx_connections_total",
            "Number of connections by subsystem",
            Kind::Gauge,
        );
        for subsystem in subsystems {
            for (state, number) in [
                ("accepted", connections.accepted),
                ("active", connections.active),
                ("handled", connections.handled),
                ("reading", connections.reading),
                ("total", connections.total_requests),
                ("waiting", connections.waiting),
                ("writing", connections.writing),
            ] {
                let labels = [("node_id", id), ("subsystem", *subsystem), ("state", state)];
                page.count(&labels, number);
            }
        }
        page.family(
            "kong_nginx_requests_total",
            "Number of requests total",
            Kind::Gauge,
        );
        for subsystem in subsystems {
            let labels = [("node_id", id), ("subsystem", *subsystem)];
            page.count(&labels, connections.total_requests);
        }
    }

    /// Writes the number of tasks that run in the background and of timers that wait: the nearest to nginx's timers.
    fn write_timers(&self, page: &mut Page) {
        let node = &self.plane.node;
        page.family("kong_nginx_timers", "Number of nginx timers", Kind::Gauge);
        page.count(&[("state", "pending")], node.workers.timers() as u64);
        page.count(&[("state", "running")], node.background.running() as u64);
    }

    /// Writes the memory of the Lua VMs, which belong to one process, and of Lua's shared dictionaries.
    fn write_memory(&self, page: &mut Page, id: &str) {
        let node = &self.plane.node;
        let zones = || {
            let dicts = ZONES.iter().enumerate();
            dicts.filter_map(|(number, (name, _))| Some((*name, node.dicts.numbered(number)?)))
        };
        let labels = |name| {
            [
                ("node_id", id),
                ("shared_dict", name),
                ("kong_subsystem", "http"),
            ]
        };
        page.family(
            "kong_memory_lua_shared_dict_bytes",
            "Allocated slabs in a shared_dict",
            Kind::Gauge,
        );
        for (name, dict) in zones() {
            let used = dict.capacity().saturating_sub(dict.free_space());
            page.count(&labels(name), used as u64);
        }
        page.family(
            "kong_memory_lua_shared_dict_total_bytes",
            "Total capacity in bytes of a shared_dict",
            Kind::Gauge,
        );
        for (name, dict) in zones() {
            page.count(&labels(name), dict.capacity() as u64);
        }
        page.family(
            "kong_memory_workers_lua_vms_bytes",
            "Allocated bytes in worker Lua VM",
            Kind::Gauge,
        );
        let memory = node.metrics.level(
            "silverback_lua_memory_bytes",
            "Memory of the Lua VM of a worker",
            &["worker"],
        );
        let bytes = memory.map_or(0, |memory| memory.total());
        let pid = std::process::id().to_string();
        let labels = [("node_id", id), ("pid", &*pid), ("kong_subsystem", "http")];
        page.count(&labels, u64::try_from(bytes).unwrap_or(0));
    }

    fn write_upstream_health(&self, page: &mut Page) {
        page.family(
            "kong_upstream_target_health",
            "Health status of targets of upstream. States = healthchecks_off|healthy|unhealthy|dns_error, value is 1 when \
             state is populated.",
            Kind::Gauge,
        );
        let snapshot = self.plane.snapshot.load();
        for upstream in snapshot.upstreams() {
            let health = health::shown(upstream.status());
            write_targets(page, upstream.name(), &health);
        }
    }
}

fn write_targets(page: &mut Page, upstream: &str, health: &UpstreamHealth) {
    for target in &health.targets {
        let name = format!("{}:{}", target.host, target.port);
        let mut write = |address: &str, populated: &str| {
            for state in ["dns_error", "healthchecks_off", "healthy", "unhealthy"] {
                let labels = [
                    ("upstream", upstream),
                    ("target", &name),
                    ("address", address),
                    ("state", state),
                    ("subsystem", "http"),
                ];
                page.count(&labels, u64::from(state == populated));
            }
        };
        if target.addresses.is_empty() {
            write("", "dns_error");
        }
        for address in &target.addresses {
            let state = match (health.checked, address.available) {
                (false, _) => "healthchecks_off",
                (true, true) => "healthy",
                (true, false) => "unhealthy",
            };
            write(&format!("{}:{}", address.ip, address.port), state);
        }
    }
}
