//! The schemas of the entities that the gateway itself knows.

use super::source::EntitySource;
use crate::EntityKind;

macro_rules! entities {
    ($($kind:ident: $name:literal),* $(,)?) => {
        &[$(EntitySource {
            kind: EntityKind::$kind,
            name: $name,
            schema: include_str!(concat!("../../data/entities/", $name, ".json")),
        }),*]
    };
}

pub(super) const ENTITIES: &[EntitySource] = entities![
    Workspaces: "workspaces",
    Consumers: "consumers",
    Certificates: "certificates",
    CaCertificates: "ca_certificates",
    Services: "services",
    Routes: "routes",
    Snis: "snis",
    Upstreams: "upstreams",
    Targets: "targets",
    Plugins: "plugins",
    Tags: "tags",
    Vaults: "vaults",
    KeySets: "key_sets",
    Keys: "keys",
    FilterChains: "filter_chains",
    Parameters: "parameters",
    ClusteringDataPlanes: "clustering_data_planes",
];
