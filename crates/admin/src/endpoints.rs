//! The paths of the Admin API: those derived from each entity's schema, and a few others.
//!
//! Routing, `Allow` and `GET /endpoints` use one table, so that they cannot disagree.
//! Source: kong/api/endpoints.lua (generate_endpoints), kong/api/routes/*.lua.

use crate::control::{Database, Role};
use crate::respond::Failure;
use model::EntityKind;
use model::schema::registry;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// The handler of a path, executed by `dispatch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    Root,
    Status,
    DnsStatus,
    Ready,
    Endpoints,
    OpenApi,
    Timers,
    Reload,
    Metrics,
    CpuProfile,
    HeapProfile,
    Config,
    Import,
    Export,
    ImportTokens,
    ExportTokens,
    LogLevel,
    SetLogLevel,
    Cache,
    CacheKey,
    ControlPlaneOnly,
    Schema,
    PluginSchema,
    VaultSchema,
    FilterSchema,
    ValidateEntity,
    ValidatePlugin,
    ValidateVault,
    EnabledPlugins,
    PluginConfigSchema,
    Tags,
    Tag,
    /// `/services`
    Collection(EntityKind),
    /// `/services/{services}`
    Entity(EntityKind),
    /// `/services/{services}/routes`
    Children(Relation),
    /// `/services/{services}/routes/{routes}`
    Child(Relation),
    /// `/routes/{routes}/service`
    Referenced(Relation),
    AllTargets,
    UpstreamHealth,
    SetTargetHealth {
        healthy: bool,
    },
    Robots,
    Changes,
    Explain,
    Conflicts,
    Revisions,
    Revision,
    RevisionDiff,
    Rollback,
    /// `/services/{services}/revisions`
    EntityRevisions(EntityKind),
    WasmOnly,
    /// An endpoint of a plugin, by its position in [`Extensions::endpoints`].
    OfPlugin(usize),
    /// Kong has this path, but answers it with 404.
    Disabled,
}

impl Action {
    pub(crate) fn takes_yaml(self) -> bool {
        matches!(self, Self::Config | Self::Import)
    }

    /// Returns the failure for a body of a type that this endpoint does not accept.
    pub(crate) fn unsupported_type(self) -> Failure {
        match self {
            Self::Changes | Self::Explain | Self::Rollback => Failure::not_json(),
            _ => Failure::UnsupportedMediaType,
        }
    }
}

/// A reference from `child` to `parent`, stored in the field `field` of `child`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relation {
    pub(crate) child: EntityKind,
    pub(crate) field: &'static str,
    pub(crate) parent: EntityKind,
}

#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    /// Path with `{parameters}`, in the notation of both the router and `GET /endpoints`.
    pub(crate) path: String,
    /// The supported methods, without the implied ones: HEAD is supported wherever GET is, and OPTIONS everywhere.
    pub(crate) methods: Cow<'static, [&'static str]>,
    pub(crate) action: Action,
}

const COLLECTION: &[&str] = &["GET", "POST"];
const ENTITY: &[&str] = &["GET", "PUT", "PATCH", "DELETE"];
const READ: &[&str] = &["GET"];

/// What plugins add to the API.
#[derive(Clone)]
pub struct Extensions {
    /// The endpoints of the enabled plugins.
    pub endpoints: Vec<plugin::Endpoint>,
    /// The node that their handlers get.
    pub node: Arc<plugin::Node>,
}

/// Every endpoint, sorted segment by segment as `GET /endpoints` lists them.
pub(crate) fn all(role: Role, extensions: Option<&Extensions>) -> Vec<Endpoint> {
    let mut endpoints = BTreeMap::new();
    let entities = EntityKind::all()
        .filter(|kind| base(*kind).is_some())
        .flat_map(of_entity);
    // Later endpoints replace earlier ones with the same path, so hand-written ones override derived ones.
    for endpoint in entities.chain(standing_alone(role)) {
        endpoints.insert(endpoint.path.replace('/', "\0"), endpoint);
    }
    let mut endpoints: Vec<Endpoint> = endpoints.into_values().collect();
    if let Some(extensions) = extensions {
        endpoints.extend(of_plugins(&endpoints, extensions));
    }
    endpoints.sort_by_cached_key(|endpoint| endpoint.path.replace('/', "\0"));
    endpoints
}

/// The endpoints of plugins, without those that cannot be served: a path that is malformed, or that the API has already.
fn of_plugins(others: &[Endpoint], extensions: &Extensions) -> Vec<Endpoint> {
    let (own, robots) = (own(), robots());
    let others = others
        .iter()
        .chain(&own)
        .chain([&robots])
        .map(|one| shape(&one.path));
    let mut taken: HashSet<Vec<Option<&str>>> = others.flatten().collect();
    let mut endpoints = Vec::new();
    for (at, endpoint) in extensions.endpoints.iter().enumerate() {
        let is_new = shape(&endpoint.path).is_some_and(|shape| taken.insert(shape));
        if !is_new {
            tracing::error!(
                plugin = &*endpoint.plugin,
                path = &*endpoint.path,
                "an endpoint of a plugin is not served: its path is malformed or exists already"
            );
            continue;
        }
        let methods = endpoint.operations.iter().map(|operation| operation.method);
        endpoints.push(Endpoint {
            path: endpoint.path.clone().into_owned(),
            methods: methods.collect(),
            action: Action::OfPlugin(at),
        });
    }
    endpoints
}

/// The segments of a path, without the names of parameters. Two paths of one shape cannot both be served. `None` if the
/// path is malformed.
fn shape(path: &str) -> Option<Vec<Option<&str>>> {
    let is_plain = |text: &str| !text.is_empty() && !text.contains(['{', '}', '*', '?', '#', '%']);
    let segments = path.strip_prefix('/')?.split('/').map(|segment| {
        let inner = segment
            .strip_prefix('{')
            .and_then(|one| one.strip_suffix('}'));
        match inner {
            Some(name) if is_plain(name) => Some(None),
            None if is_plain(segment) => Some(Some(segment)),
            _ => None,
        }
    });
    segments.collect()
}

/// Value of the `Allow` header: the sorted methods with OPTIONS, and HEAD if there is GET.
pub(crate) fn allow(methods: &[&str]) -> String {
    let mut all: Vec<&str> = methods.to_vec();
    if all.contains(&"GET") {
        all.push("HEAD");
    }
    all.push("OPTIONS");
    all.sort_unstable();
    all.join(", ")
}

/// Whether the history of the configuration has entities of this kind. Tags are not entities, but text in entities.
pub(crate) fn has_history(kind: EntityKind) -> bool {
    kind != EntityKind::Tags && !registry().entity(kind).is_apart
}

/// Path of an entity's collection, `/services`; `None` if the Admin API does not have it.
pub(crate) fn base(kind: EntityKind) -> Option<&'static str> {
    match kind {
        // Targets are reachable only under upstreams; their own paths are disabled.
        EntityKind::Targets => Some("/targets"),
        // These have read-only endpoints, defined elsewhere.
        EntityKind::Tags | EntityKind::ClusteringDataPlanes => None,
        _ => registry().entity(kind).admin_api_path.as_deref(),
    }
}

/// Last path segment of a collection below its parent, `key-auth` for `keyauth_credentials`.
pub(crate) fn nested(kind: EntityKind) -> &'static str {
    let schema = registry().entity(kind);
    schema.admin_api_nested_name.as_deref().unwrap_or_else(|| {
        base(kind).map_or_else(|| kind.name(), |path| path.trim_start_matches('/'))
    })
}

/// Finds an entity type by one of its names. For example, `keyauth_credentials` (in schemas and errors), `key-auths`
/// (in top-level paths) and `key-auth` (in paths below a consumer) name the same type. The error lists the allowed
/// types.
pub(crate) fn kind_named(
    name: &str,
    is_allowed: fn(EntityKind) -> bool,
) -> Result<EntityKind, String> {
    let allowed = || (EntityKind::all()).filter(|kind| is_allowed(*kind));
    if let Some(kind) = allowed().find(|kind| names(*kind).contains(&name)) {
        return Ok(kind);
    }
    let suggestion = match model::nearest(name, allowed().flat_map(names)) {
        Some(known) => format!("; did you mean {known}?"),
        None => ".".to_owned(),
    };
    let mut known: Vec<&str> = allowed().map(|kind| names(kind)[0]).collect();
    known.sort_unstable();
    Err(format!(
        "there are no entities of the type {name}{suggestion} The types are: {}",
        known.join(", ")
    ))
}

/// Returns the name of a type that users of the Admin API see most.
pub(crate) fn kind_name(kind: EntityKind) -> &'static str {
    names(kind)[0]
}

/// Returns the names of a type. The first is the one that users of the Admin API see most.
fn names(kind: EntityKind) -> [&'static str; 3] {
    let of_path = base(kind).map_or(kind.name(), |path| path.trim_start_matches('/'));
    [of_path, nested(kind), kind.name()]
}

fn of_entity(kind: EntityKind) -> Vec<Endpoint> {
    let Some(path) = base(kind) else {
        return Vec::new();
    };
    let own = format!("{path}/{{{}}}", kind.name());
    let (collection, entity) = own_actions(kind);
    let mut endpoints = vec![
        endpoint(path, COLLECTION, collection),
        endpoint(&own, ENTITY, entity),
    ];
    for foreign in registry().entity(kind).foreign.iter() {
        let relation = Relation {
            child: kind,
            field: &foreign.name,
            parent: foreign.kind,
        };
        let referenced = match kind {
            EntityKind::Targets | EntityKind::Snis => Action::Disabled,
            EntityKind::FilterChains => Action::WasmOnly,
            _ => Action::Referenced(relation),
        };
        endpoints.push(endpoint(
            &format!("{own}/{}", relation.field),
            ENTITY,
            referenced,
        ));
        endpoints.extend(of_relation(relation));
    }
    endpoints
}

fn own_actions(kind: EntityKind) -> (Action, Action) {
    match kind {
        EntityKind::Targets => (Action::Disabled, Action::Disabled),
        EntityKind::FilterChains => (Action::WasmOnly, Action::WasmOnly),
        _ => (Action::Collection(kind), Action::Entity(kind)),
    }
}

fn of_relation(relation: Relation) -> Vec<Endpoint> {
    let Some(parent) = base(relation.parent) else {
        return Vec::new();
    };
    let (children, child) = match relation.child {
        EntityKind::FilterChains => (Action::WasmOnly, Action::WasmOnly),
        _ => (Action::Children(relation), Action::Child(relation)),
    };
    let path = format!(
        "{parent}/{{{}}}/{}",
        relation.parent.name(),
        nested(relation.child)
    );
    let own = format!("{path}/{{{}}}", relation.child.name());
    vec![
        endpoint(&path, COLLECTION, children),
        endpoint(&own, ENTITY, child),
    ]
}

fn endpoint(path: &str, methods: &'static [&'static str], action: Action) -> Endpoint {
    Endpoint {
        path: path.to_owned(),
        methods: Cow::Borrowed(methods),
        action,
    }
}

fn standing_alone(role: Role) -> impl Iterator<Item = Endpoint> {
    const POST: &[&str] = &["POST"];
    const PUT: &[&str] = &["PUT"];
    const TARGET: &str = "/upstreams/{upstreams}/targets/{targets}";
    let health = [
        ("/healthy", true),
        ("/unhealthy", false),
        ("/{address}/healthy", true),
        ("/{address}/unhealthy", false),
    ]
    .map(|(end, healthy)| {
        let action = Action::SetTargetHealth { healthy };
        (format!("{TARGET}{end}"), PUT, action)
    });
    let cluster_log_level = match role {
        Role::ControlPlane => "/debug/cluster/control-planes-nodes/log-level/{log_level}",
        Role::Traditional | Role::DataPlane => "/debug/cluster/log-level/{log_level}",
    };
    let filters = ["all", "enabled", "disabled"].map(|end| {
        (
            format!("/routes/{{routes}}/filters/{end}"),
            READ,
            Action::WasmOnly,
        )
    });
    [
        ("/", READ, Action::Root),
        ("/status", READ, Action::Status),
        ("/status/dns", READ, Action::DnsStatus),
        ("/endpoints", READ, Action::Endpoints),
        ("/timers", READ, Action::Timers),
        ("/metrics", READ, Action::Metrics),
        ("/config", COLLECTION, Action::Config),
        ("/debug/node/log-level", READ, Action::LogLevel),
        (
            "/debug/node/log-level/{log_level}",
            PUT,
            Action::SetLogLevel,
        ),
        (cluster_log_level, PUT, Action::SetLogLevel),
        ("/cache", &["DELETE"], Action::Cache),
        ("/cache/{key}", &["GET", "DELETE"], Action::CacheKey),
        ("/clustering/data-planes", READ, Action::ControlPlaneOnly),
        ("/clustering/status", READ, Action::ControlPlaneOnly),
        ("/schemas/{name}", READ, Action::Schema),
        ("/schemas/{name}/validate", POST, Action::ValidateEntity),
        ("/schemas/plugins/{name}", READ, Action::PluginSchema),
        ("/schemas/plugins/validate", POST, Action::ValidatePlugin),
        ("/schemas/vaults/{name}", READ, Action::VaultSchema),
        ("/schemas/vaults/validate", POST, Action::ValidateVault),
        ("/schemas/filters/{name}", READ, Action::FilterSchema),
        ("/plugins/enabled", READ, Action::EnabledPlugins),
        ("/plugins/schema/{name}", READ, Action::PluginConfigSchema),
        ("/tags", READ, Action::Tags),
        ("/tags/{tags}", READ, Action::Tag),
        (
            "/upstreams/{upstreams}/targets/all",
            READ,
            Action::AllTargets,
        ),
        (
            "/upstreams/{upstreams}/health",
            READ,
            Action::UpstreamHealth,
        ),
    ]
    .map(|(path, methods, action)| (path.to_owned(), methods, action))
    .into_iter()
    .chain(health)
    .chain(filters)
    .map(|(path, methods, action)| endpoint(&path, methods, action))
}

/// The paths of the Status API, sorted. As in Kong, upstreams are included only in DB-less mode.
pub(crate) fn of_status(database: Database) -> Vec<Endpoint> {
    const POLL: &[&str] = &["GET", "POST"];
    let mut endpoints = vec![
        endpoint("/metrics", READ, Action::Metrics),
        endpoint("/status", READ, Action::Status),
        endpoint("/status/dns", READ, Action::DnsStatus),
        endpoint("/status/ready", POLL, Action::Ready),
    ];
    if database == Database::Off {
        let targets = Relation {
            child: EntityKind::Targets,
            field: "upstream",
            parent: EntityKind::Upstreams,
        };
        let upstream = "/upstreams/{upstreams}";
        for (end, action) in [
            ("health", Action::UpstreamHealth),
            ("targets", Action::Children(targets)),
            ("targets/all", Action::AllTargets),
            ("targets/{targets}", Action::Child(targets)),
        ] {
            endpoints.push(endpoint(&format!("{upstream}/{end}"), READ, action));
        }
    }
    endpoints
}

/// Endpoints that Kong does not have. `GET /endpoints` omits them, because clients compare its response with Kong's.
pub(crate) fn own() -> Vec<Endpoint> {
    const POST: &[&str] = &["POST"];
    let histories = EntityKind::all().filter_map(|kind| {
        let (Action::Collection(_), _) = own_actions(kind) else {
            return None;
        };
        if registry().entity(kind).is_apart {
            return None;
        }
        let path = format!("{}/{{{}}}/revisions", base(kind)?, kind.name());
        Some(endpoint(&path, READ, Action::EntityRevisions(kind)))
    });
    [
        endpoint("/changes", POST, Action::Changes),
        endpoint("/debug/pprof/heap", READ, Action::HeapProfile),
        endpoint("/debug/pprof/profile", READ, Action::CpuProfile),
        endpoint("/export", READ, Action::Export),
        endpoint("/import", POST, Action::Import),
        endpoint("/oauth2_tokens/export", READ, Action::ExportTokens),
        endpoint("/oauth2_tokens/import", POST, Action::ImportTokens),
        endpoint("/openapi.json", READ, Action::OpenApi),
        endpoint("/reload", POST, Action::Reload),
        endpoint("/revisions", READ, Action::Revisions),
        endpoint("/revisions/{revision}", READ, Action::Revision),
        endpoint("/revisions/{from}/diff/{to}", READ, Action::RevisionDiff),
        endpoint("/revisions/{revision}/rollback", POST, Action::Rollback),
        endpoint("/router/conflicts", READ, Action::Conflicts),
        endpoint("/router/explain", POST, Action::Explain),
    ]
    .into_iter()
    .chain(histories)
    .collect()
}

/// In Kong, nginx answers this path, not the Admin API. So `GET /endpoints` omits it.
pub(crate) fn robots() -> Endpoint {
    endpoint("/robots.txt", READ, Action::Robots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths() -> Vec<String> {
        plugins::install();
        all(Role::Traditional, None)
            .into_iter()
            .map(|endpoint| endpoint.path)
            .collect()
    }

    #[test]
    fn nested_paths_are_derived_both_ways() {
        let paths = paths();
        for path in [
            "/services/{services}/routes/{routes}",
            "/routes/{routes}/service",
            "/consumers/{consumers}/key-auth/{keyauth_credentials}",
            "/key-auths/{keyauth_credentials}/consumer",
            "/certificates/{certificates}/snis",
            "/key-sets/{key_sets}/keys/{keys}",
            "/upstreams/{upstreams}/targets/all",
        ] {
            assert!(paths.iter().any(|one| one == path), "{path}");
        }
        for path in [
            "/workspaces",
            "/parameters",
            "/clustering_data_planes",
            "/oauth2_authorization_codes",
            "/ratelimiting_metrics",
            "/services/{services}/oauth2_authorization_codes",
        ] {
            assert!(!paths.iter().any(|one| one == path), "{path}");
        }
    }

    #[test]
    fn types_are_found_by_every_name() {
        plugins::install();
        let all = |_| true;
        for (name, kind) in [
            ("key-auths", plugins::kinds::KEYAUTH_CREDENTIALS),
            ("key-auth", plugins::kinds::KEYAUTH_CREDENTIALS),
            ("keyauth_credentials", plugins::kinds::KEYAUTH_CREDENTIALS),
            ("basic-auths", plugins::kinds::BASICAUTH_CREDENTIALS),
            ("hmac-auths", plugins::kinds::HMACAUTH_CREDENTIALS),
            ("jwts", plugins::kinds::JWT_SECRETS),
            ("acls", plugins::kinds::ACLS),
            ("oauth2", plugins::kinds::OAUTH2_CREDENTIALS),
            ("oauth2_tokens", plugins::kinds::OAUTH2_TOKENS),
            ("key-sets", EntityKind::KeySets),
            ("services", EntityKind::Services),
            ("parameters", EntityKind::Parameters),
        ] {
            assert_eq!(kind_named(name, all), Ok(kind), "{name}");
        }
        for kind in EntityKind::all() {
            for name in names(kind) {
                assert_eq!(kind_named(name, all), Ok(kind), "{name}");
            }
        }
    }

    #[test]
    fn an_unknown_type_gets_a_suggestion_and_the_list() {
        plugins::install();
        let credentials = |kind| {
            use plugins::kinds::{BASICAUTH_CREDENTIALS, KEYAUTH_CREDENTIALS};
            matches!(kind, BASICAUTH_CREDENTIALS | KEYAUTH_CREDENTIALS)
        };
        for (name, beginning) in [
            ("key-atuhs", "key-atuhs; did you mean key-auths?"),
            ("services", "services."),
        ] {
            let expected = format!(
                "there are no entities of the type {beginning} The types are: basic-auths, key-auths"
            );
            assert_eq!(kind_named(name, credentials), Err(expected));
        }
    }

    #[test]
    fn paths_are_sorted_segment_by_segment() {
        let paths = paths();
        let at = |wanted: &str| paths.iter().position(|path| path == wanted).unwrap();
        assert!(at("/oauth2/{oauth2_credentials}") < at("/oauth2_tokens"));
        assert_eq!(at("/"), 0);
    }

    #[test]
    fn allow_is_sorted_and_complete() {
        assert_eq!(allow(COLLECTION), "GET, HEAD, OPTIONS, POST");
        assert_eq!(allow(ENTITY), "DELETE, GET, HEAD, OPTIONS, PATCH, PUT");
        assert_eq!(allow(&["PUT"]), "OPTIONS, PUT");
    }
}
