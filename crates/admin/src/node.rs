//! What the node says about itself: `/`, `/status`, `/endpoints`, `/timers`, log levels, the cache.

use crate::control::{Connections, Control, Database, DnsStatistics, LogLevel, Memory};
use crate::endpoints;
use crate::request::Call;
use crate::respond::{Answer, Failure, empty, json, message};
use axum::http::StatusCode;
use model::EntityKind;
use model::schema::registry;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// What a log level change lasts when the request does not say.
const DEFAULT_LOG_LEVEL_TIMEOUT: Duration = Duration::from_secs(60);

/// What clients of Kong read `lua_version` for is long gone; the key stays because they require it.
const LUA_VERSION: &str = "LuaJIT 2.1.20231117";

pub(crate) fn root(call: &Call<'_>) -> Answer {
    let control = call.control;
    let node = control.node();
    let pids = control.pids();
    Ok(json(
        StatusCode::OK,
        &json!({
            "tagline": "Welcome to kong",
            "version": node.kong_version,
            "edition": "community",
            "hostname": node.hostname,
            "node_id": node.id,
            "lua_version": LUA_VERSION,
            "pids": { "master": pids.master, "workers": pids.workers },
            "timers": { "running": 0, "pending": 0 },
            "plugins": {
                "available_on_server": available_plugins(control),
                "enabled_in_cluster": configured_plugins(control)?,
            },
            "configuration": configuration(control),
        }),
    ))
}

fn available_plugins(control: &dyn Control) -> Value {
    let version = &control.node().kong_version;
    let plugins = control.enabled_plugins().into_iter().filter_map(|name| {
        let schema = registry().plugin(&name)?;
        let about = json!({ "version": version, "priority": schema.priority });
        Some((name, about))
    });
    Value::Object(plugins.collect())
}

/// Names of the plugins that have at least one instance.
fn configured_plugins(control: &dyn Control) -> Result<BTreeSet<String>, Failure> {
    let view = control.store().view().map_err(Failure::internal)?;
    let mut names = BTreeSet::new();
    for entity in view.iter(EntityKind::Plugins).map_err(Failure::internal)? {
        let (_, bytes) = entity.map_err(Failure::internal)?;
        let plugin: PluginName = model::codec::decode(bytes).map_err(Failure::internal)?;
        names.insert(plugin.name);
    }
    Ok(names)
}

#[derive(serde::Deserialize)]
struct PluginName {
    name: String,
}

/// The settings, with the log level as it is now.
fn configuration(control: &dyn Control) -> Value {
    let mut settings = control.settings();
    if let Some(settings) = settings.as_object_mut() {
        settings.insert("log_level".into(), control.log_level().name().into());
    }
    settings
}

pub(crate) fn status(call: &Call<'_>) -> Answer {
    let unit = Unit::of(call.query("unit").unwrap_or("m"))?;
    let scale = match call.query("scale") {
        None => 2,
        Some(text) => text
            .parse::<usize>()
            .map_err(|_| Failure::bad_request(format!("invalid scale '{text}'")))?
            .min(15),
    };
    let control = call.control;
    let mut status = json!({
        "server": connections(control.connections()),
        "memory": memory(control, unit, scale),
    });
    match control.database() {
        Database::Off => status["configuration_hash"] = hex(control.configuration_hash()).into(),
        Database::Lmdb => status["database"] = json!({ "reachable": true }),
    }
    Ok(json(StatusCode::OK, &status))
}

fn connections(connections: Connections) -> Value {
    json!({
        "connections_active": connections.active,
        "connections_reading": connections.reading,
        "connections_writing": connections.writing,
        "connections_waiting": connections.waiting,
        "connections_accepted": connections.accepted,
        "connections_handled": connections.handled,
        "total_requests": connections.total_requests,
    })
}

/// Kong's shape: one entry per worker's Lua heap, and its shared dictionaries. Here all workers share one heap, and the
/// store is what stands beside it.
fn memory(control: &dyn Control, unit: Unit, scale: usize) -> Value {
    let Memory {
        resident,
        store_used,
        store_capacity,
    } = control.memory();
    let size = |bytes| unit.format(bytes, scale);
    json!({
        "workers_lua_vms": [{ "pid": control.pids().master, "http_allocated_gc": size(resident) }],
        "lua_shared_dicts": {
            "store": { "allocated_slabs": size(store_used), "capacity": size(store_capacity) },
        },
    })
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

    fn format(self, bytes: u64, scale: usize) -> Value {
        match self {
            Self::Bytes => bytes.into(),
            Self::Scaled(name, factor) => {
                format!("{:.scale$} {name}", bytes as f64 / factor as f64).into()
            }
        }
    }
}

pub(crate) fn endpoints(call: &Call<'_>) -> Answer {
    let paths: Vec<String> = endpoints::all(call.control.node().role)
        .into_iter()
        .map(|endpoint| endpoint.path)
        .collect();
    Ok(json(StatusCode::OK, &json!({ "data": paths })))
}

/// There are no Lua timers; the shape is what tools expect.
pub(crate) fn timers(call: &Call<'_>) -> Answer {
    let workers = call.control.pids().workers.len();
    let counters = json!({ "total": 0, "runs": 0, "running": 0, "pending": 0, "waiting": 0 });
    Ok(json(
        StatusCode::OK,
        &json!({
            "worker": { "id": 0, "count": workers },
            "stats": {
                "sys": counters,
                "timers": {},
                "flamegraph": { "running": "@@@@@@ 0\n", "pending": "@@@@@@ 0\n", "elapsed_time": "@@@@@@ 0\n" },
            },
        }),
    ))
}

pub(crate) fn dns_status(call: &Call<'_>) -> Answer {
    let Some(DnsStatistics { workers, counters }) = call.control.dns_statistics() else {
        return Ok(message(
            StatusCode::NOT_IMPLEMENTED,
            "not implemented with the legacy DNS client",
        ));
    };
    Ok(json(
        StatusCode::OK,
        &json!({ "worker": { "id": 0, "count": workers }, "stats": counters }),
    ))
}

pub(crate) fn log_level(call: &Call<'_>) -> Answer {
    let text = format!("log level: {}", call.control.log_level());
    Ok(message(StatusCode::OK, &text))
}

pub(crate) fn set_log_level(call: &Call<'_>) -> Answer {
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

/// Nothing is cached beside the store, so no key is ever found, and there is nothing to purge.
pub(crate) fn cache_key(call: &Call<'_>) -> Answer {
    match call.method {
        "GET" => Err(Failure::not_found()),
        _ => cache_purge(),
    }
}

pub(crate) fn cache_purge() -> Answer {
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(crate) fn enabled_plugins(call: &Call<'_>) -> Answer {
    let names = call.control.enabled_plugins();
    Ok(json(StatusCode::OK, &json!({ "enabled_plugins": names })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_shown_in_the_unit_asked_for() {
        let show = |unit: &str, bytes| Unit::of(unit).unwrap().format(bytes, 2);
        assert_eq!(show("m", 65_536), "0.06 MiB");
        assert_eq!(show("K", 1536), "1.50 KiB");
        assert_eq!(show("b", 7), 7);
        assert!(Unit::of("z").is_err());
    }

    #[test]
    fn a_log_level_lasts_a_minute_unless_told_otherwise() {
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
