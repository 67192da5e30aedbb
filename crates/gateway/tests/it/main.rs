//! The whole program: the real binary on free ports, in front of upstreams of this process.

mod access_log;
mod admin_access;
mod admin_limits;
mod attacks;
mod audit;
mod balancing;
mod balancing_names;
mod bodies;
mod client_certificates;
mod commands;
mod configuration;
mod conformance;
mod descriptors;
mod directives;
mod error_log;
mod events;
mod exchanges;
mod explain;
mod expression_routes;
mod expressions;
mod flavors;
mod health_checks;
mod kills;
mod local;
mod metrics;
mod names;
mod names_under_failure;
mod no_room;
mod proxy_protocol;
mod recovery;
mod revisions;
mod signals;
mod slow;
mod status;
mod streams;
mod tls;
mod tls_settings;
mod transfer;
mod upgrade;
mod upstream_tls;
mod upstreams;
mod writes;

use testkit::{Echo, Launch};

fn launch() -> Launch {
    Launch::new(env!("CARGO_BIN_EXE_silverback"))
}

/// A launch whose prefix outlives the gateway.
fn launch_in(prefix: &std::path::Path) -> Launch {
    Launch::in_prefix(env!("CARGO_BIN_EXE_silverback"), prefix)
}

/// A service in front of an upstream, with an open route `/open`, a route `/closed` that wants alice's key, and a route
/// `/gone` that is answered by the gateway.
fn shop(echo: &Echo) -> String {
    let url = echo.url();
    format!(
        r#"
_format_version: "3.0"
services:
  - name: shop
    url: {url}
    routes:
      - name: open
        paths: [/open]
      - name: closed
        paths: [/closed]
        plugins: [{{name: key-auth}}]
      - name: gone
        paths: [/gone]
        plugins:
          - name: request-termination
            config: {{status_code: 410, message: gone for good}}
consumers:
  - username: alice
    keyauth_credentials: [{{key: alice-key}}]
"#
    )
}

/// One service and one route, at a path of choice.
fn one_route(url: &str, path: &str) -> String {
    format!(
        r#"
_format_version: "3.0"
services:
  - name: one
    url: {url}
    retries: 1
    connect_timeout: 2000
    read_timeout: 300
    write_timeout: 2000
    routes: [{{name: one, paths: [{path}]}}]
"#
    )
}
