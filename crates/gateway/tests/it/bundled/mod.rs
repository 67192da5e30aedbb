//! Tests of bundled plugins from end to end: what several workers share, what survives changes of the configuration,
//! and what clients and upstreams see over real connections. The folders of the plugins have the tests of their rules.

mod cache_lifetime;
mod grpc;
mod grpc_web;
mod http2;
mod internal_redirect;
mod proxy_cache;
mod rate_limiting;
mod rate_limits_under_change;
mod request_transformer;
mod revalidation;
mod signed;
mod under_load;

use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use testkit::{Gateway, Launch};

/// Number of workers where it matters that there are several.
const WORKERS: &str = "4";

/// The settings of `database` in which the plugins must behave the same.
const DATABASES: [&str; 2] = ["off", "lmdb"];

/// A declarative configuration with one service that has these routes.
fn one_service(url: &str, routes: Value) -> Value {
    json!({
        "_format_version": "3.0", "services": [{"name": "shop", "url": url, "routes": routes}]
    })
}

/// A launch with several workers.
fn workers() -> Launch {
    crate::launch().set("nginx_worker_processes", WORKERS)
}

/// Starts a gateway that serves this configuration. Without a database it reads the configuration from its file. With
/// one, it gets the configuration by an import.
fn start(launch: Launch, database: &str, configuration: &Value) -> Gateway {
    let launch = launch.set("database", database);
    if database == "off" {
        return launch.configuration(&configuration.to_string()).start();
    }
    let gateway = launch.start();
    apply(&gateway, database, configuration);
    gateway
}

/// Applies a configuration to a running gateway. Without a database it replaces the old one, and the file of the
/// gateway stays as it was.
fn apply(gateway: &Gateway, database: &str, configuration: &Value) {
    let text = configuration.to_string();
    if database == "off" {
        let posted = gateway.post_config(&text);
        assert_eq!(posted.status, 201, "{}", posted.text());
        return;
    }
    let path = gateway.launch().prefix().join("import.json");
    fs::write(&path, text).expect("the prefix can be written");
    let path = path.to_str().expect("UTF-8");
    let mut command = gateway.launch().other(&["config", "db_import", path]);
    run(&mut command);
}

/// Makes the gateway read its settings again, and its declarative file if it has one.
fn reload(gateway: &Gateway) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_silverback"));
    let command = command.arg("reload").arg("--prefix");
    run(command.arg(gateway.launch().prefix()));
}

fn run(command: &mut Command) {
    let output = command.output().expect("the program can be run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
}

/// Sends a request to the Admin API, and expects one of these statuses.
fn admin(gateway: &Gateway, method: &str, path: &str, body: &Value, expected: &[u16]) {
    let body = match body {
        Value::Null => String::new(),
        body => body.to_string(),
    };
    let answer = gateway.admin_send(method, path, &body);
    let (status, text) = (answer.status, answer.text());
    assert!(
        expected.contains(&status),
        "{method} {path}: {status} {text}"
    );
}
