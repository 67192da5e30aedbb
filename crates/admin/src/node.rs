//! Endpoints about the node: `/`, `/status`, `/endpoints`, `/timers`, log levels and the cache. The OpenAPI document is
//! generated from the response structs.

use crate::control::{Connections, Control, Database, DnsStatistics, LogLevel, Memory, Pids};
use crate::endpoints;
use crate::request::Call;
use crate::respond::{ApiResult, Failure, empty, json, message};
use axum::http::StatusCode;
use model::EntityKind;
use model::schema::registry;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// Duration of a log level change if the request has no `timeout`.
const DEFAULT_LOG_LEVEL_TIMEOUT: Duration = Duration::from_secs(60);

/// Value of `lua_version`, which has no meaning here; clients of Kong require the key.
const LUA_VERSION: &str = "LuaJIT 2.1.20231117";

/// Information about the node.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Root {
    tagline: &'static str,
    /// The version of Kong that this node is compatible with.
    version: String,
    edition: &'static str,
    hostname: String,
    node_id: Uuid,
    lua_version: &'static str,
    pids: Pids,
    timers: TimerCounts,
    plugins: Plugins,
    /// All settings by name; secrets are masked.
    #[schemars(with = "serde_json::Map<String, Value>")]
    configuration: Value,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TimerCounts {
    running: u64,
    pending: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Plugins {
    available_on_server: BTreeMap<String, Available>,
    /// Plugins that have at least one instance.
    enabled_in_cluster: BTreeSet<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Available {
    version: String,
    priority: i32,
}

pub(crate) fn root(call: &Call<'_>) -> ApiResult {
    let control = call.control;
    let node = control.node();
    let root = Root {
        tagline: "Welcome to kong",
        version: node.kong_version.clone(),
        edition: "community",
        hostname: node.hostname.clone(),
        node_id: node.id,
        lua_version: LUA_VERSION,
        pids: control.pids(),
        timers: TimerCounts {
            running: 0,
            pending: 0,
        },
        plugins: Plugins {
            available_on_server: available_plugins(control),
            enabled_in_cluster: configured_plugins(control)?,
        },
        configuration: configuration(control),
    };
    Ok(json(StatusCode::OK, &root))
}

fn available_plugins(control: &dyn Control) -> BTreeMap<String, Available> {
    let version = &control.node().kong_version;
    let plugins = control.enabled_plugins().into_iter().filter_map(|name| {
        let about = Available {
            version: version.clone(),
            priority: registry().plugin(&name)?.priority,
        };
        Some((name, about))
    });
    plugins.collect()
}

/// Names of the plugins that have at least one instance.
fn configured_plugins(control: &dyn Control) -> Result<BTreeSet<String>, Failure> {
    let view = control.store().view()?;
    let mut names = BTreeSet::new();
    for entity in view.iter(EntityKind::Plugins)? {
        let (_, bytes) = entity?;
        let plugin: PluginName = model::codec::decode(bytes).map_err(Failure::internal)?;
        names.insert(plugin.name);
    }
    Ok(names)
}

#[derive(serde::Deserialize)]
struct PluginName {
    name: String,
}

/// The settings, with the current log level.
fn configuration(control: &dyn Control) -> Value {
    let mut settings = control.settings();
    if let Some(settings) = settings.as_object_mut() {
        settings.insert("log_level".into(), control.log_level().name().into());
    }
    settings
}

/// Counters of the node.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Status {
    server: Connections,
    memory: ShownMemory,
    /// Present only with a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<Reachable>,
    /// Present only without a database.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^[0-9a-f]{32}$"))]
    configuration_hash: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Reachable {
    reachable: bool,
}

/// Memory in Kong's format. Kong lists the Lua heap of each worker and the shared dictionaries. Here all workers share
/// one heap, and the store is shown as a dictionary.
#[derive(Debug, Serialize, JsonSchema)]
struct ShownMemory {
    workers_lua_vms: Vec<Heap>,
    lua_shared_dicts: BTreeMap<&'static str, Dictionary>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Heap {
    pid: u32,
    http_allocated_gc: Size,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Dictionary {
    allocated_slabs: Size,
    capacity: Size,
}

/// A number of bytes, or a text with a unit.
#[derive(Debug, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
enum Size {
    Bytes(u64),
    Scaled(String),
}

pub(crate) fn status(call: &Call<'_>) -> ApiResult {
    let unit = Unit::of(call.query("unit").unwrap_or("m"))?;
    let scale = match call.query("scale") {
        None => 2,
        Some(text) => text
            .parse::<usize>()
            .map_err(|_| Failure::bad_request(format!("invalid scale '{text}'")))?
            .min(15),
    };
    let control = call.control;
    let (database, configuration_hash) = match control.database() {
        Database::Off => (None, Some(hex(control.configuration_hash()))),
        Database::Lmdb => (Some(Reachable { reachable: true }), None),
    };
    let status = Status {
        server: control.connections(),
        memory: memory(control, unit, scale),
        database,
        configuration_hash,
    };
    Ok(json(StatusCode::OK, &status))
}

fn memory(control: &dyn Control, unit: Unit, scale: usize) -> ShownMemory {
    let Memory {
        resident,
        store_used,
        store_capacity,
    } = control.memory();
    let size = |bytes| unit.format(bytes, scale);
    let heap = Heap {
        pid: control.pids().master,
        http_allocated_gc: size(resident),
    };
    let store = Dictionary {
        allocated_slabs: size(store_used),
        capacity: size(store_capacity),
    };
    ShownMemory {
        workers_lua_vms: vec![heap],
        lua_shared_dicts: BTreeMap::from([("store", store)]),
    }
}

fn hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The `unit` argument of `/status`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Bytes,
    Scaled(&'static str, u64),
}

impl Unit {
    fn of(text: &str) -> Result<Self, Failure> {
        match text {
            "b" | "B" => Ok(Self::Bytes),
            "k" | "K" => Ok(Self::Scaled("KiB", 1 << 10)),
            "m" | "M" => Ok(Self::Scaled("MiB", 1 << 20)),
            "g" | "G" => Ok(Self::Scaled("GiB", 1 << 30)),
            _ => Err(Failure::bad_request(format!(
                "invalid unit '{text}' (expected 'k/K', 'm/M', or 'g/G')"
            ))),
        }
    }

    fn format(self, bytes: u64, scale: usize) -> Size {
        match self {
            Self::Bytes => Size::Bytes(bytes),
            Self::Scaled(name, factor) => {
                let number = bytes as f64 / factor as f64;
                Size::Scaled(format!("{number:.scale$} {name}"))
            }
        }
    }
}

/// The paths of Kong's Admin API.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Paths {
    data: Vec<String>,
}

pub(crate) fn endpoints(call: &Call<'_>) -> ApiResult {
    let role = call.control.node().role;
    let endpoints = endpoints::all(role, call.app.extensions()).into_iter();
    let paths = Paths {
        data: endpoints.map(|endpoint| endpoint.path).collect(),
    };
    Ok(json(StatusCode::OK, &paths))
}

/// Timers in Kong's format. Silverback has no Lua timers, so all numbers are zero.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Timers {
    worker: Worker,
    stats: TimerStatistics,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Worker {
    id: usize,
    count: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
struct TimerStatistics {
    sys: TimerTotals,
    /// Always empty.
    timers: BTreeMap<String, u64>,
    flamegraph: Flamegraph,
}

#[derive(Debug, Default, Serialize, JsonSchema)]
struct TimerTotals {
    total: u64,
    runs: u64,
    running: u64,
    pending: u64,
    waiting: u64,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Flamegraph {
    running: &'static str,
    pending: &'static str,
    elapsed_time: &'static str,
}

pub(crate) fn timers(call: &Call<'_>) -> ApiResult {
    const NOTHING: &str = "@@@@@@ 0\n";
    let timers = Timers {
        worker: Worker {
            id: 0,
            count: call.control.pids().workers.len(),
        },
        stats: TimerStatistics {
            sys: TimerTotals::default(),
            timers: BTreeMap::new(),
            flamegraph: Flamegraph {
                running: NOTHING,
                pending: NOTHING,
                elapsed_time: NOTHING,
            },
        },
    };
    Ok(json(StatusCode::OK, &timers))
}

/// Statistics of the resolver.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct DnsStatus {
    worker: Worker,
    /// Counters by `name:kind`.
    stats: net::dns::Counters,
}

pub(crate) fn dns_status(call: &Call<'_>) -> ApiResult {
    let Some(DnsStatistics { workers, counters }) = call.control.dns_statistics() else {
        return Ok(message(
            StatusCode::NOT_IMPLEMENTED,
            "not implemented with the legacy DNS client",
        ));
    };
    let status = DnsStatus {
        worker: Worker {
            id: 0,
            count: workers,
        },
        stats: counters,
    };
    Ok(json(StatusCode::OK, &status))
}

pub(crate) fn log_level(call: &Call<'_>) -> ApiResult {
    let text = format!("log level: {}", call.control.log_level());
    Ok(message(StatusCode::OK, &text))
}

pub(crate) fn set_log_level(call: &Call<'_>) -> ApiResult {
    if call.control.database() == Database::Off {
        return Err(Failure::Message(
            StatusCode::METHOD_NOT_ALLOWED,
            "cannot change log level when not using a database".into(),
        ));
    }
    let name = call.parameter("log_level");
    let level = LogLevel::from_name(name)
        .ok_or_else(|| Failure::bad_request(format!("unknown log level: {name}")))?;
    let timeout = log_level_timeout(call.query("timeout"))?;
    if call.control.log_level() == level {
        let text = format!("log level is already {level}");
        return Ok(message(StatusCode::OK, &text));
    }
    call.control.set_log_level(level, timeout);
    Ok(message(StatusCode::OK, "log level changed"))
}

fn log_level_timeout(given: Option<&str>) -> Result<Duration, Failure> {
    let Some(seconds) = given.and_then(|text| text.parse::<f64>().ok()) else {
        return Ok(DEFAULT_LOG_LEVEL_TIMEOUT);
    };
    Duration::try_from_secs_f64(seconds.ceil())
        .map_err(|_| Failure::bad_request("timeout must be greater than or equal to 0"))
}

/// The gateway has no cache of entities besides the store. So no key is ever found, and there is nothing to purge.
pub(crate) fn cache_key(call: &Call<'_>) -> ApiResult {
    match call.method {
        "GET" => Err(Failure::not_found()),
        _ => cache_purge(),
    }
}

pub(crate) fn cache_purge() -> ApiResult {
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Names of the enabled plugins.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EnabledPlugins {
    enabled_plugins: Vec<String>,
}

pub(crate) fn enabled_plugins(call: &Call<'_>) -> ApiResult {
    let enabled_plugins = call.control.enabled_plugins();
    Ok(json(StatusCode::OK, &EnabledPlugins { enabled_plugins }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_in_the_unit_asked_for() {
        let show = |unit: &str, bytes| Unit::of(unit).unwrap().format(bytes, 2);
        assert_eq!(show("m", 65_536), Size::Scaled("0.06 MiB".to_owned()));
        assert_eq!(show("K", 1536), Size::Scaled("1.50 KiB".to_owned()));
        assert_eq!(show("b", 7), Size::Bytes(7));
        assert!(Unit::of("z").is_err());
    }

    #[test]
    fn a_log_level_lasts_a_minute_by_default() {
        assert_eq!(log_level_timeout(None).unwrap(), Duration::from_secs(60));
        assert_eq!(
            log_level_timeout(Some("1.2")).unwrap(),
            Duration::from_secs(2)
        );
        for text in ["-1", "1e300", "NaN"] {
            assert!(log_level_timeout(Some(text)).is_err(), "{text}");
        }
    }
}
