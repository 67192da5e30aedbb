//! Configures Caddy for a workload. Routes are nested by service. API keys are lists in expressions.

use super::{Definition, Plan, Workload, version_after, write};
use crate::configuration;
use crate::process;
use anyhow::Result;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

pub(super) static DEFINITION: Definition = Definition {
    name: "caddy",
    programs: &["caddy"],
    install: "go install github.com/caddyserver/caddy/v2/cmd/caddy@latest",
    version,
    prepare,
};

/// Maximum number of keys. An expression has at most 100,000 characters, so more keys would need too many expressions.
const MAX_KEYS: usize = 10_000;
const KEYS_IN_EXPRESSION: usize = 2_500;

/// Returns the version. `caddy version` prints `v2.11.9 h1:…`, or `unknown` if Caddy was installed by `go install`;
/// then the build information has the version.
fn version(program: &Path) -> Option<String> {
    let line = process::first_line_of(program, &["version"])?;
    let version = line.split_whitespace().next()?;
    if version != "unknown" {
        return Some(version.trim_start_matches('v').to_owned());
    }
    let module = version_after(
        program,
        &["build-info"],
        "\nmod\tgithub.com/caddyserver/caddy/v2\t",
    )?;
    Some(module.trim_start_matches('v').to_owned())
}

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    if workload.keys > MAX_KEYS {
        return Ok(None);
    }
    let text = configuration(workload, address).to_string();
    let file = write(directory, "caddy.json", &text)?;
    let mut plan = Plan::go(["run", "--config", &file]);
    // Caddy writes files to its user's home directory.
    for name in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"] {
        plan.environment
            .push((name, directory.display().to_string()));
    }
    Ok(Some(plan))
}

fn configuration(workload: &Workload<'_>, address: SocketAddr) -> Value {
    let mut server = json!({
        "listen": [address.to_string()],
        "protocols": ["h1"],
        "automatic_https": {"disable": true},
        "idle_timeout": "600s",
        "routes": routes(workload),
    });
    let mut tls = json!({});
    if let Some(certificate) = workload.tls {
        server["tls_connection_policies"] = json!([{
            "alpn": ["http/1.1"],
            "protocol_min": "tls1.2",
            "protocol_max": "tls1.3",
        }]);
        tls["certificates"] = json!({"load_files": [{
            "certificate": certificate.certificate,
            "key": certificate.key,
        }]});
    }
    json!({
        "admin": {"disabled": true, "config": {"persist": false}},
        "logging": {"logs": {"default": {"level": "ERROR"}}},
        "apps": {"http": {"servers": {"bench": server}}, "tls": tls},
    })
}

fn routes(workload: &Workload<'_>) -> Vec<Value> {
    let mut routes = Vec::new();
    if workload.keys > 0 {
        routes.push(json!({
            "match": [{"not": known_keys(workload)}],
            "handle": [{"handler": "static_response", "status_code": 401}],
            "terminal": true,
        }));
    }
    if workload.routes > 1 {
        routes.push(json!({"handle": [by_service(workload)]}));
        routes.push(json!({
            "match": [{"vars": {"route": [""]}}],
            "handle": [{"handler": "static_response", "status_code": 404}],
            "terminal": true,
        }));
    }
    routes.push(json!({"handle": [reverse_proxy(workload.upstream)]}));
    routes
}

/// Returns matchers for the keys. A header matcher compares one value after the other, but a list in an expression
/// becomes a hash set.
fn known_keys(workload: &Workload<'_>) -> Vec<Value> {
    let keys: Vec<String> = workload.api_keys().collect();
    if let [key] = keys.as_slice() {
        return vec![json!({"header": {"apikey": [key]}})];
    }
    keys.chunks(KEYS_IN_EXPRESSION)
        .map(|keys| {
            let list = keys.join("\",\"");
            json!({"expression": format!("{{http.request.header.apikey}} in [\"{list}\"]")})
        })
        .collect()
}

/// Returns the routes as one nested list per service, because Caddy tries the routes of a list one by one. Within a
/// list longer paths come first, because Caddy uses only the first matching route of a group.
///
/// A route only stores its name in the variable `route`. One `reverse_proxy` handles the requests of all routes,
/// because a `reverse_proxy` in each route would have its own upstream connections.
fn by_service(workload: &Workload<'_>) -> Value {
    let mut services: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for number in (0..workload.routes).rev() {
        let path = configuration::path(number);
        let service = path.rsplit_once('/').map_or("", |(service, _)| service);
        let route = json!({
            "group": "route",
            "match": [{"path": [format!("{path}*")]}],
            "handle": [{"handler": "vars", "route": format!("route-{number}")}],
        });
        services.entry(service.to_owned()).or_default().push(route);
    }
    let services: Vec<Value> = services
        .into_iter()
        .map(|(service, routes)| {
            json!({
                "group": "service",
                "match": [{"path": [format!("{service}/*")]}],
                "handle": [{"handler": "subroute", "routes": routes}],
            })
        })
        .collect();
    json!({"handler": "subroute", "routes": services})
}

/// Returns the proxy handler. Compression is off, so that Caddy requests the same from the upstream as the client does.
/// By default Caddy keeps only 32 idle connections.
fn reverse_proxy(upstream: SocketAddr) -> Value {
    json!({
        "handler": "reverse_proxy",
        "upstreams": [{"dial": upstream.to_string()}],
        "transport": {
            "protocol": "http",
            "versions": ["1.1"],
            "compression": false,
            "read_buffer_size": 65536,
            "write_buffer_size": 65536,
            "keep_alive": {
                "max_idle_conns": 4096,
                "max_idle_conns_per_host": 4096,
                "idle_timeout": "600s",
            },
        },
    })
}
