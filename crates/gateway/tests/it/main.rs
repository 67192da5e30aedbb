//! Tests of the real binary, which listens on free ports and forwards to upstreams in the test process.

mod access_log;
mod admin_access;
mod admin_limits;
mod attacks;
mod audit;
mod balancing;
mod balancing_names;
mod bodies;
mod bundled;
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
mod http_log;
mod kills;
mod local;
mod log_files;
mod lua_soak;
mod metrics;
mod names;
mod names_under_failure;
mod no_room;
mod oauth2_tokens;
mod profiles;
mod proxy_protocol;
mod rate_limit_leases;
mod reasons;
mod recovery;
mod revisions;
mod signals;
mod slow;
mod stalls;
mod status;
mod streams;
mod tls;
mod tls_settings;
mod token_durability;
mod tracing;
mod transfer;
mod upgrade;
mod upstream_tls;
mod upstreams;
mod vault_references;
mod writes;

use std::sync::atomic::{AtomicBool, Ordering};
use testkit::{Echo, Launch};

/// Sets a flag when it is dropped, also by a panic. Threads of a scope end at the flag; without it, the scope would
/// wait for them forever, and a failed test would hang.
struct SetOnDrop<'f>(&'f AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn launch() -> Launch {
    Launch::new(env!("CARGO_BIN_EXE_silverback"))
}

/// A launch with a prefix that still exists after the gateway has stopped.
fn launch_in(prefix: &std::path::Path) -> Launch {
    Launch::in_prefix(env!("CARGO_BIN_EXE_silverback"), prefix)
}

/// A configuration with one service and three routes: `/open` for everybody, `/closed` requires alice's key, and the
/// gateway itself responds on `/gone`.
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

/// A configuration with one service and one route with this path. The short `read_timeout` keeps tests with silent
/// upstreams short.
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
