//! The storages of a node: one for each memory zone of Kong that a configuration may name.

use super::storage::Storage;
use plugin::Node;
use std::sync::Arc;

const MIB: usize = 1024 * 1024;

/// The zones of Kong, with their sizes. The size of the first two is the setting `mem_cache_size`. Source:
/// kong/templates/nginx_kong.lua.
const ZONES: [(&str, Size); 12] = [
    ("kong_db_cache", Size::Setting),
    ("kong_core_db_cache", Size::Setting),
    ("kong_db_cache_miss", Size::Mib(12)),
    ("kong_core_db_cache_miss", Size::Mib(12)),
    ("kong_rate_limiting_counters", Size::Mib(12)),
    ("kong_locks", Size::Mib(8)),
    ("kong", Size::Mib(5)),
    ("kong_healthchecks", Size::Mib(5)),
    ("kong_cluster_events", Size::Mib(5)),
    ("kong_secrets", Size::Mib(5)),
    ("kong_dns_cache", Size::Mib(5)),
    ("prometheus_metrics", Size::Mib(5)),
];

#[derive(Debug, Clone, Copy)]
enum Size {
    Setting,
    Mib(usize),
}

/// Whether Kong has a zone with this name.
pub(super) fn exists(zone: &str) -> bool {
    ZONES.iter().any(|(name, _)| *name == zone)
}

/// Returns the storage of a zone. It lives as long as a plugin uses it.
pub(super) fn storage(node: &Arc<Node>, zone: &str) -> Arc<Storage> {
    let known = ZONES.iter().find(|(name, _)| *name == zone);
    let bytes = match known {
        Some((_, Size::Mib(size))) => size * MIB,
        _ => node.cache_size,
    };
    node.shared
        .get_or_insert(super::NAME, zone, || Storage::new(bytes))
}

/// Returns the storages of all zones. A zone that no plugin uses has an empty one.
pub(super) fn storages(node: &Arc<Node>) -> Vec<Arc<Storage>> {
    let names = ZONES.iter().map(|(name, _)| *name);
    names.map(|name| storage(node, name)).collect()
}
