//! Tests of the table of plugins.

use super::*;
use plugin::{Implementation, Lack};
use std::fmt::Write;
use std::fs;

mod configs;
mod facts;

#[test]
fn the_table_is_in_execution_order() {
    let sorted =
        bundled().is_sorted_by(|one, two| (one.priority, &one.name) > (two.priority, &two.name));
    assert!(sorted);
}

#[test]
fn the_table_is_the_registry_of_schemas() {
    let registry = install();
    let schemas: Vec<(&str, i32)> = registry
        .plugins()
        .map(|schema| (schema.name, schema.priority))
        .collect();
    let bundled = bundled();
    let table: Vec<(&str, i32)> = bundled
        .iter()
        .map(|def| (&*def.name, def.priority))
        .collect();
    assert_eq!(table, schemas);
}

/// A store of an earlier version is unreadable if a number changes.
#[test]
fn kinds_have_the_numbers_that_stores_contain() {
    let kinds = install().kinds().iter();
    let kinds: Vec<_> = kinds.map(|kind| (kind.number(), kind.name())).collect();
    assert_eq!(
        kinds,
        [
            (1, "workspaces"),
            (2, "consumers"),
            (3, "certificates"),
            (4, "ca_certificates"),
            (5, "services"),
            (6, "routes"),
            (7, "snis"),
            (8, "upstreams"),
            (9, "targets"),
            (10, "plugins"),
            (11, "tags"),
            (12, "vaults"),
            (13, "key_sets"),
            (14, "keys"),
            (15, "filter_chains"),
            (16, "parameters"),
            (17, "clustering_data_planes"),
            (32, "keyauth_credentials"),
            (33, "basicauth_credentials"),
            (34, "hmacauth_credentials"),
            (35, "jwt_secrets"),
            (36, "acls"),
            (37, "oauth2_credentials"),
            (38, "oauth2_tokens"),
            (39, "oauth2_authorization_codes"),
            (40, "sessions"),
            (41, "acme_storage"),
            (42, "ratelimiting_metrics"),
        ]
    );
}

/// Ignoring a plugin that refuses, limits or changes requests would be a security hole that nobody notices.
#[test]
fn only_plugins_that_observe_or_save_work_are_left_out_until_they_work() {
    let bundled = bundled();
    let left_out = bundled.iter().filter(|def| {
        matches!(
            def.implementation,
            Implementation::Later {
                lack: Lack::Feature,
                ..
            }
        )
    });
    let left_out: Vec<&str> = left_out.map(|def| &*def.name).collect();
    assert_eq!(left_out, ["acme"]);
}

/// Returns the text of `docs/plugins.md`, the page that lists the table for users.
fn page() -> String {
    let mut out = String::from(
        "<!-- Generated from the table of plugins in crates/plugins; a test compares. Do not edit. -->\n\n\
         # See which plugins work\n\n\
         This page is for people who want to run a configuration of Kong's. It lists Kong's bundled plugins and says what\n\
         each of them does here today. The gateway accepts and keeps the configuration of all of them.\n\n\
         - **works**: the plugin does what it does in Kong, except for the [differences](differences-from-kong.md).\n\
         - **refuses every request (500)**: the plugin is not implemented. It would check, limit or change requests or\n\
         \x20 responses, so every request that it applies to gets status 500 until it is implemented, unless an earlier\n\
         \x20 plugin answers it, such as key-auth with 401.\n\
         - **ignored**: the plugin is not implemented. Requests pass as if it were absent.\n\n\
         `silverback check kong.yml` names the plugins of a configuration that are not implemented, and those with a setting\n\
         that is not. With `--strict` it then exits with status 1. The log and responses of the Admin API name them too.\n\
         `silverback plugins` lists all plugins in the order in which they run.\n\n\
         References to vaults (`{vault://…}`) in the configuration of plugins are not resolved yet: their text is used as\n\
         the value. The same reports name the fields that have one.\n\n",
    );
    let bundled = bundled();
    let works = (bundled.iter())
        .filter(|def| matches!(def.implementation, Implementation::Ready(_)))
        .count();
    let _ = write!(
        out,
        "{works} of {} plugins work.\n\n| plugin | today | what that means |\n|---|---|---|\n",
        bundled.len()
    );
    let mut defs = bundled.to_vec();
    defs.sort_by_key(|def| def.name.clone());
    for def in defs {
        let (today, meaning) = match def.implementation {
            Implementation::Ready(_) if def.shortcoming.is_some() => {
                let meaning = "It works as in Kong, except for [some settings](differences-from-kong.md#plugins).";
                ("works", meaning)
            }
            Implementation::Ready(_) => ("works", "It works as in Kong."),
            Implementation::Later { lack, without } => match lack {
                Lack::Protection => ("refuses every request (500)", without),
                Lack::Feature => ("ignored", without),
            },
        };
        let _ = writeln!(out, "| `{}` | {today} | {meaning} |", def.name);
    }
    out
}

#[test]
fn the_generated_page_is_up_to_date() {
    // Cargo runs tests in the directory of their package.
    let path = "../../docs/plugins.md";
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(path, page()).expect("the docs folder is writable");
        return;
    }
    let committed = fs::read_to_string(path).unwrap_or_default();
    assert!(
        committed == page(),
        "docs/plugins.md is not what the table gives; run UPDATE_EXPECT=1 cargo test -p plugins"
    );
}
