//! Traefik: each route is a router in a file. API keys are a feature of its commercial edition.
//!
//! This configuration is based on Traefik's documentation only. It has not been tested with Traefik yet.

use super::{Definition, Plan, Workload, lines, version_after, write};
use crate::process;
use anyhow::Result;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;

pub(super) static DEFINITION: Definition = Definition {
    name: "traefik",
    programs: &["traefik"],
    install: "build cmd/traefik of github.com/traefik/traefik/v3 (it has replace directives, which `go install` refuses)",
    version: |program| version_after(program, &["version"], "Version:"),
    prepare,
};

fn prepare(workload: &Workload<'_>, address: SocketAddr, directory: &Path) -> Result<Option<Plan>> {
    if workload.keys > 0 {
        return Ok(None);
    }
    // Traefik listens before it has loaded its routes. This plaintext listener answers only after they are loaded.
    let ready = process::free_address()?;
    let dynamic = write(directory, "traefik-routes.yaml", &dynamic(workload))?;
    let fixed = fixed(address, ready, &dynamic);
    let file = write(directory, "traefik.yaml", &fixed)?;
    let plan = Plan::go([&format!("--configFile={file}")]);
    Ok(Some(Plan {
        ready: Some(ready),
        ..plan
    }))
}

/// Returns the static configuration as JSON, which is also valid YAML. A read timeout of 0 sets no timer per request.
/// Traefik's faster proxy is off, because it is experimental.
fn fixed(address: SocketAddr, ready: SocketAddr, dynamic: &str) -> String {
    json!({
        "global": {"checkNewVersion": false, "sendAnonymousUsage": false},
        "log": {"level": "ERROR"},
        "entryPoints": {
            "bench": {
                "address": address.to_string(),
                "transport": {
                    "keepAliveMaxRequests": 0,
                    "respondingTimeouts": {"readTimeout": "0s", "idleTimeout": "600s"},
                },
            },
            "ready": {"address": ready.to_string()},
        },
        "serversTransport": {
            "maxIdleConnsPerHost": 4096,
            "forwardingTimeouts": {"idleConnTimeout": "600s"},
        },
        "providers": {"file": {"filename": dynamic, "watch": false}},
    })
    .to_string()
}

/// Returns the routers. Traefik tries routers with longer rules first. Routers without a middleware only add the
/// X-Forwarded headers.
fn dynamic(workload: &Workload<'_>) -> String {
    let tls = if workload.tls.is_some() {
        ", tls: {}"
    } else {
        ""
    };
    let router = |(number, path): (usize, String)| {
        format!(
            "    route-{number}: {{entryPoints: [bench], rule: \"PathPrefix(`{path}`)\", service: bench{tls}}}"
        )
    };
    let routers = match workload.routes {
        1 => router((0, "/".to_owned())) + "\n",
        _ => lines(workload.paths().enumerate().map(router), ""),
    };
    format!(
        "http:
  services:
    bench: {{loadBalancer: {{servers: [{{url: \"http://{}\"}}]}}}}
  routers:
    ready: {{entryPoints: [ready], rule: \"PathPrefix(`/`)\", service: bench}}
{routers}{}",
        workload.upstream,
        certificates(workload)
    )
}

fn certificates(workload: &Workload<'_>) -> String {
    let Some(certificate) = workload.tls else {
        return String::new();
    };
    format!(
        "tls:
  options:
    default: {{minVersion: VersionTLS12, maxVersion: VersionTLS13, alpnProtocols: [http/1.1]}}
  stores:
    default: {{defaultCertificate: {{certFile: \"{}\", keyFile: \"{}\"}}}}
",
        certificate.certificate.display(),
        certificate.key.display()
    )
}
