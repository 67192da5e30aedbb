//! KrakenD: each route is an endpoint without transformations. API keys and prefix matching are features of its
//! commercial edition, so the endpoints are exactly the requested paths.
//!
//! This configuration is based on KrakenD's documentation only. It has not been tested with KrakenD yet.

use super::{Definition, Plan, Workload, version_after, write};
use anyhow::Result;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::Path;

pub(super) static DEFINITION: Definition = Definition {
    name: "krakend",
    programs: &["krakend", "krakend-ce"],
    install: "build cmd/krakend-ce of github.com/krakend/krakend-ce/v2",
    version: |program| version_after(program, &["version"], "Version:"),
    prepare,
};

/// Placeholder in the configuration for a list that would be large as a JSON tree.
const ENDPOINTS: &str = "@endpoints";

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    if workload.keys > 0 {
        return Ok(None);
    }
    let text = configuration(workload, address)
        .to_string()
        .replace(&format!("\"{ENDPOINTS}\""), &endpoints(workload));
    let file = write(directory, "krakend.json", &text)?;
    let mut plan = Plan::go(["run", "-c", &file]);
    // Without this setting KrakenD sends usage data to its vendor.
    plan.environment.push(("USAGE_DISABLE", "1".to_owned()));
    plan.environment.push(("GIN_MODE", "release".to_owned()));
    Ok(Some(plan))
}

/// Returns the configuration. It raises the limit of idle connections, which is 250 by default, and turns off the log
/// lines for requests.
fn configuration(workload: &Workload<'_>, address: SocketAddr) -> Value {
    let mut service = json!({
        "version": 3,
        "name": "bench",
        "listen_ip": address.ip().to_string(),
        "port": address.port(),
        "host": [format!("http://{}", workload.upstream)],
        "output_encoding": "no-op",
        "timeout": "600s",
        "idle_timeout": "600s",
        "max_idle_connections": 4096,
        "max_idle_connections_per_host": 4096,
        "idle_connection_timeout": "600s",
        "disable_compression": true,
        "disable_rest": true,
        "endpoints": ENDPOINTS,
        "extra_config": {
            "router": {"disable_access_log": true},
            "telemetry/logging": {"level": "ERROR", "stdout": true},
        },
    });
    if let Some(certificate) = workload.tls {
        service["tls"] = json!({
            "min_version": "TLS12",
            "max_version": "TLS13",
            "keys": [{
                "public_key": certificate.certificate,
                "private_key": certificate.key,
            }],
        });
    }
    service
}

fn endpoints(workload: &Workload<'_>) -> String {
    let endpoint = |path: String| {
        format!(
            r#"{{"endpoint":"{path}","output_encoding":"no-op","backend":[{{"url_pattern":"{path}","encoding":"no-op"}}]}}"#
        )
    };
    let endpoints: Vec<String> = match workload.routes {
        // The paths of the load except `/huge`, and the path that the harness requests until a peer is ready.
        1 => ["/", "/big", &crate::configuration::path(0)]
            .map(|path| endpoint(path.to_owned()))
            .into(),
        _ => workload.paths().map(endpoint).collect(),
    };
    format!("[{}]", endpoints.join(",\n"))
}
