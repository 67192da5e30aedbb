//! `GET /openapi.json`: the Admin API described by an OpenAPI 3.1 document.
//!
//! The document is generated from the definitions of the API: paths and methods from the table of [`endpoints`],
//! entities from `model::schema`, and most responses from their structs. So these parts always match the served API.
//! Texts, arguments and the other bodies are written by hand.
//!
//! To describe a new endpoint, add an arm to [`node::describe`], which does not compile without one. The arm sets
//! summary, arguments, body and responses. [`Operation::path`] describes path parameters that do not name an entity.
//! [`Components::shared`] defines schemas that several operations use.

mod components;
mod entities;
mod explain;
mod history;
mod node;
mod operation;

use crate::endpoints::{self, Action, Endpoint};
use crate::respond::json_bytes;
use crate::state::App;
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use components::Components;
use model::EntityKind;
use operation::Operation;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Returns the document, which is created at the first request. Nothing that it depends on changes while the node runs.
pub(crate) fn show(app: &App) -> Response {
    let document = app.openapi().get_or_init(|| {
        let document = document(app);
        Bytes::from(serde_json::to_vec(&document).expect("a JSON value encodes"))
    });
    json_bytes(StatusCode::OK, document.clone())
}

fn document(app: &App) -> Value {
    let (control, extensions) = (app.control(), app.extensions());
    let role = control.node().role;
    let mut components = Components::new(control.context().flavor, control.enabled_plugins());
    let (mut paths, mut tags) = (Map::new(), BTreeSet::new());
    let all = endpoints::all(role, extensions);
    for endpoint in all.into_iter().chain(endpoints::own()) {
        let mut item = Map::new();
        for &method in endpoint.methods.iter() {
            let operation = match endpoint.action {
                Action::OfPlugin(at) => extensions.map(|all| of_plugin(&all.endpoints[at], method)),
                _ => describe(&mut components, &endpoint, method),
            };
            let Some(operation) = operation else {
                continue;
            };
            let operation = if writes_routes(endpoint.action, method) {
                operation.query(
                    "warn",
                    WARN,
                    json!({ "type": "string", "enum": ["conflicts"] }),
                )
            } else {
                operation
            };
            tags.insert(operation.tag);
            item.insert(
                method.to_ascii_lowercase(),
                operation.into_json(&endpoint.path),
            );
        }
        if !item.is_empty() {
            paths.insert(endpoint.path, item.into());
        }
    }
    let tags: Vec<Value> = tags
        .into_iter()
        .map(|name| json!({ "name": name }))
        .collect();
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Silverback Admin API",
            "version": control.node().version,
            "description": ABOUT,
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "/", "description": "The listener that this document came from." }],
        "security": [{}, { "bearer": [] }, { "token": [] }, { "mutualTLS": [] }],
        "tags": tags,
        "paths": paths,
        "components": components.into_json(),
    })
}

/// Description of the query argument `warn`, which all writes of routes have.
const WARN: &str = "With `conflicts`, `Warning` headers of the response list the written route's conflicts with other routes.";

/// Whether a method of an endpoint may create or change a route.
fn writes_routes(action: Action, method: &str) -> bool {
    let kind = match action {
        Action::Collection(kind) | Action::Entity(kind) => kind,
        Action::Children(relation) | Action::Child(relation) => relation.child,
        Action::Referenced(relation) => relation.parent,
        Action::Changes => EntityKind::Routes,
        _ => return false,
    };
    kind == EntityKind::Routes && matches!(method, "POST" | "PUT" | "PATCH")
}

const ABOUT: &str = "The Admin API of Kong Gateway 3.9, with the endpoints that Silverback adds. Every path with GET supports HEAD, and \
every path supports OPTIONS. A trailing slash is ignored. Where a path accepts a key instead of an id, a UUID is always read as an id.";

/// Describes a method of a plugin's endpoint. The document does not tell the form of its response.
fn of_plugin(endpoint: &plugin::Endpoint, method: &str) -> Operation {
    let mut operations = endpoint.operations.iter();
    let known = operations.find(|operation| operation.method == method);
    let summary = known.map_or("", |operation| &*operation.summary);
    Operation::of_path("plugins", method, &endpoint.path, summary)
        .answers(200, "The response of the plugin.", &json!({}))
        .answers_empty(204, "Done; there is nothing to show.")
        .fails(&[404])
}

/// Returns `None` for paths that the API treats as nonexistent.
fn describe(components: &mut Components, endpoint: &Endpoint, method: &str) -> Option<Operation> {
    entities::describe(components, endpoint.action, method)
        .or_else(|| node::describe(components, endpoint, method))
}
