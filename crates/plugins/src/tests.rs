//! Tests of the table of plugins.

use super::*;
use plugin::{Implementation, Lack};

#[test]
fn the_table_is_in_execution_order() {
    let sorted =
        BUNDLED.is_sorted_by(|one, two| (one.priority, one.name) > (two.priority, two.name));
    assert!(sorted);
}

#[test]
fn the_table_is_the_registry_of_schemas() {
    let registry = model::schema::registry();
    let schemas: Vec<(&str, i32)> = registry
        .plugins()
        .map(|schema| (schema.name, schema.priority))
        .collect();
    let table: Vec<(&str, i32)> = BUNDLED.iter().map(|def| (def.name, def.priority)).collect();
    assert_eq!(table, schemas);
}

/// Ignoring a plugin that refuses, limits or changes anything would be a security hole that nobody notices.
#[test]
fn only_plugins_that_observe_or_save_work_are_left_out_until_they_work() {
    let left_out = BUNDLED
        .iter()
        .filter(|def| matches!(def.implementation, Implementation::Later(Lack::Feature)));
    let left_out: Vec<&str> = left_out.map(|def| def.name).collect();
    assert_eq!(
        left_out,
        [
            "correlation-id",
            "zipkin",
            "acme",
            "proxy-cache",
            "opentelemetry",
            "prometheus",
            "http-log",
            "statsd",
            "datadog",
            "file-log",
            "udp-log",
            "tcp-log",
            "loggly",
            "syslog",
        ]
    );
}
