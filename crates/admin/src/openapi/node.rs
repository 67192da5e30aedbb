//! The operations that do not belong to one entity type: node, schemas, routing, history, tags and whole
//! configurations.

use super::components::{Components, Fields, failure, integer, object, page_of, schema_of, text};
use super::operation::Operation;
use super::{explain, history};
use crate::changes::Applied;
use crate::endpoints::{Action, Endpoint};
use crate::node::{DnsStatus, EnabledPlugins, Paths, Root, Status, Timers};
use crate::reload::{Reload, Reloaded};
use crate::tags::Carrier;
use crate::token_transfer::Summary;
use crate::transfer::{Imported, LINES};
use model::EntityKind;
use serde_json::{Value, json};

/// Returns `None` for paths that the API treats as nonexistent, and for the endpoints of entities.
pub(super) fn describe(
    components: &mut Components,
    endpoint: &Endpoint,
    method: &str,
) -> Option<Operation> {
    let of = |tag, summary: &str| Operation::of_path(tag, method, &endpoint.path, summary);
    let message = json!({ "$ref": "#/components/schemas/Message" });
    Some(match endpoint.action {
        Action::Root => of(
            "node",
            "Get information about the node and its configuration",
        )
        .answers(200, "The node.", &schema_of::<Root>()),
        Action::Status => of("node", "Get the counters of the node")
            .query("unit", "Unit of sizes: bytes, KiB, MiB or GiB.", unit())
            .query(
                "scale",
                "Decimals of sizes.",
                json!({ "type": "integer", "minimum": 0, "default": 2 }),
            )
            .answers(
                200,
                "Connections, memory, and the state of the configuration.",
                &schema_of::<Status>(),
            ),
        Action::DnsStatus => of("node", "Get the statistics of the resolver")
            .answers(
                200,
                "The counters of the resolver.",
                &schema_of::<DnsStatus>(),
            )
            .fails(&[501]),
        Action::Ready => readiness(
            of("node", "Get readiness, or start draining"),
            method,
            &message,
        ),
        Action::Reload => of(
            "node",
            "Read the settings and the declarative file again; only over the local socket",
        )
        .takes(&[("application/json", schema_of::<Reload>())], false)
        .answers(200, "The outcome.", &schema_of::<Reloaded>())
        .fails(&[400, 403]),
        Action::Metrics => of("node", "Get the metrics of the node").answers_with(
            200,
            "Metrics in the text format of Prometheus.",
            "text/plain",
            &text(),
        ),
        Action::CpuProfile => cpu_profile(of(
            "node",
            "Measure where the node spends CPU time; not for the role read-only",
        )),
        Action::HeapProfile => {
            of("node", "Get a profile of the heap; never available").fails(&[403, 501])
        }
        Action::Endpoints => of("node", "List the paths of Kong's Admin API").answers(
            200,
            "The paths.",
            &schema_of::<Paths>(),
        ),
        Action::OpenApi => of("node", "Get this document").answers(
            200,
            "The document.",
            &json!({ "type": "object", "required": ["openapi", "paths"] }),
        ),
        Action::Changes => changes(of("configuration", "Apply several changes as one revision")),
        Action::Conflicts => explain::conflicts(of(
            "router",
            "List routes that no request can get, and pairs of routes with equal priority",
        )),
        Action::Explain => explain::explain(
            components,
            of(
                "router",
                "Explain which route a request gets, and what happens then",
            ),
        ),
        Action::Revisions => {
            history::list(components, of("history", "List revisions, newest first"))
                .query(
                    "entity_type",
                    "Only revisions that changed an entity of this type, such as `services` or `key-auths`; requires `entity_id`.",
                    text(),
                )
                .query(
                    "entity_id",
                    "The id of that entity, or its endpoint key. A key that no entity has now means the one that had it last.",
                    text(),
                )
                .fails(&[404])
        }
        Action::EntityRevisions(_) => {
            let about = of(
                "history",
                "List the revisions that changed the entity, newest first",
            );
            history::list(components, about).fails(&[404])
        }
        Action::Revision => history::show(of("history", "Get a revision and its changes")),
        Action::RevisionDiff => {
            history::diff(of("history", "Get the difference between two revisions"))
        }
        Action::Rollback => history::rollback(of(
            "history",
            "Create a revision with the content of an earlier one",
        )),
        Action::Timers => of("node", "Get the timers of the node").answers(
            200,
            "Always none.",
            &schema_of::<Timers>(),
        ),
        Action::LogLevel => {
            of("node", "Get the log level").answers(200, "The log level.", &message)
        }
        Action::SetLogLevel => of("node", "Set the log level for a limited time")
            .query(
                "timeout",
                "Seconds after which the previous level is restored; 0 for never.",
                json!({ "type": "number", "minimum": 0, "default": 60 }),
            )
            .answers(200, "The result.", &message)
            .fails(&[405]),
        Action::Cache => of("node", "Clear the cache").answers_empty(204, "Done."),
        Action::CacheKey if method == "GET" => of("node", "Get a cached value")
            .answers(200, "The value.", &json!({ "type": "object" }))
            .fails(&[404]),
        Action::CacheKey => of("node", "Forget a cached value").answers_empty(204, "Done."),
        Action::EnabledPlugins => of("plugins", "List the enabled plugins").answers(
            200,
            "Their names.",
            &schema_of::<EnabledPlugins>(),
        ),
        Action::Config => config(
            of("configuration", "Get or replace the whole configuration"),
            method,
        ),
        Action::Import => import(of(
            "configuration",
            "Add the entities of a configuration to those that exist",
        )),
        Action::Export => of("configuration", "Get all entities as one configuration")
            .query(
                "format",
                "Format of the configuration; `Accept` can select it too.",
                json!({ "type": "string", "enum": ["yaml", "json"], "default": "yaml" }),
            )
            .query(
                "oauth2_tokens",
                "Whether the OAuth2 tokens of this node are added.",
                json!({ "type": "boolean", "default": false }),
            )
            .answers_with(200, "The configuration.", "application/yaml", &text())
            .or_answers_with(200, "application/json", &json!({ "type": "object" }))
            .fails(&[507]),
        Action::ImportTokens => import_tokens(of(
            "oauth2_tokens",
            "Import OAuth2 tokens, one JSON object per line",
        )),
        Action::ExportTokens => of(
            "oauth2_tokens",
            "Get all OAuth2 tokens, one JSON object per line",
        )
        .answers_with(200, "The tokens.", LINES, &text())
        .fails(&[501, 507]),
        Action::Schema => schema(of("schemas", "Get the schema of an entity")),
        Action::PluginSchema => schema(of("schemas", "Get the schema of a plugin")),
        Action::PluginConfigSchema => {
            schema(of("schemas", "Get the fields of a plugin's configuration"))
        }
        Action::VaultSchema => schema(of("schemas", "Get the schema of a vault")),
        Action::FilterSchema => of("schemas", "Get the schema of a filter").fails(&[404]),
        Action::ValidateEntity => of("schemas", "Validate an entity without creating it")
            .takes_fields(Fields::needed(json!({ "type": "object" })))
            .answers(200, "The entity is valid.", &message)
            .fails(&[404]),
        Action::ValidatePlugin => {
            let input = components.input(EntityKind::Plugins, &[]);
            validate(
                of("schemas", "Validate a plugin without creating it"),
                input,
                &message,
            )
        }
        Action::ValidateVault => {
            let input = components.input(EntityKind::Vaults, &[]);
            validate(
                of("schemas", "Validate a vault without creating it"),
                input,
                &message,
            )
        }
        Action::Tags => tagged(
            components,
            of("tags", "List tags with the entities that have them"),
        ),
        Action::Tag => tagged(components, of("tags", "List entities that have a tag")).path(
            "tags",
            "The tag.",
            json!({ "type": "string", "minLength": 1 }),
        ),
        Action::SetTargetHealth { .. } => of(
            "targets",
            "Mark a target, or one of its addresses, as healthy or unhealthy on this node",
        )
        .path(
            "address",
            "IP and port, `10.0.0.1:80`, or a name and port from the health of the target.",
            text(),
        )
        .answers_empty(204, "Done.")
        .fails(&[404]),
        Action::ControlPlaneOnly => of("node", "Refused: the node is no control plane"),
        Action::WasmOnly => of("filter_chains", "Refused: WebAssembly is not enabled"),
        Action::Robots | Action::Disabled | Action::OfPlugin(_) => return None,
        Action::Collection(_)
        | Action::Entity(_)
        | Action::Children(_)
        | Action::Child(_)
        | Action::Referenced(_)
        | Action::AllTargets
        | Action::UpstreamHealth => return None,
    })
}

fn cpu_profile(operation: Operation) -> Operation {
    let number = |most: u32, usual: u32| json!({ "type": "integer", "minimum": 1, "maximum": most, "default": usual });
    operation
        .query("seconds", "Duration of the measurement.", number(600, 30))
        .query(
            "frequency",
            "Samples per second of CPU time.",
            number(1000, 99),
        )
        .query(
            "format",
            "`pprof` for tools, `svg` for a flame graph, `folded` for lines of text.",
            json!({ "type": "string", "enum": ["pprof", "svg", "folded"], "default": "pprof" }),
        )
        .answers_with(
            200,
            "The profile.",
            "application/octet-stream",
            &json!({ "type": "string", "format": "binary" }),
        )
        .or_answers_with(200, "image/svg+xml", &text())
        .or_answers_with(200, "text/plain", &text())
        .fails(&[400, 403, 409, 501])
}

fn changes(operation: Operation) -> Operation {
    let one_of = |names: &[&str]| json!({ "type": "string", "enum": names });
    let change = json!({
        "type": "object",
        "required": ["action", "type"],
        "additionalProperties": false,
        "properties": {
            "action": one_of(&["create", "upsert", "update", "delete"]),
            "type": { "type": "string", "description": "The entity's type, `services`." },
            "key": { "type": "string", "description": "Id or endpoint key of the entity; absent to create one." },
            "data": { "type": "object", "description": "Fields of the entity, as the entity's own endpoint accepts them." },
        },
    });
    let body = json!({
        "type": "object",
        "required": ["changes"],
        "additionalProperties": false,
        "properties": {
            "changes": { "type": "array", "items": change, "description": "Applied in this order; each change sees the results of those before it." },
            "message": { "type": "string", "description": "Reason for the changes, stored with the revision." },
            "expected_revision": { "type": "integer", "minimum": 0, "description": "Refuse unless this is the newest revision." },
            "dry_run": { "type": "boolean", "default": false, "description": "Try everything but change nothing." },
        },
    });
    let problem = object([("path", text()), ("message", text())]);
    let error = object([
        ("change", integer()),
        ("problems", json!({ "type": "array", "items": problem })),
        (
            "error",
            json!({ "type": "object", "description": "The error that the entity's own endpoint would return." }),
        ),
    ]);
    let refused = object([
        ("message", text()),
        ("errors", json!({ "type": "array", "items": error })),
    ]);
    operation
        .takes(&[("application/json", body)], true)
        .answers(
            200,
            "The revision, live on this node, and its entities.",
            &schema_of::<Applied>(),
        )
        .answers(
            400,
            "Nothing was changed.",
            &json!({ "anyOf": [refused, failure(400)] }),
        )
        .fails(&[405, 409, 507])
}

fn unit() -> Value {
    json!({ "type": "string", "enum": ["b", "B", "k", "K", "m", "M", "g", "G"], "default": "m" })
}

fn readiness(operation: Operation, method: &str, message: &Value) -> Operation {
    if method == "GET" {
        return operation
            .answers(200, "The node is ready.", message)
            .fails(&[503]);
    }
    let draining = object([("status", json!({ "type": "string", "const": "draining" }))]);
    operation
        .takes_fields(Fields::needed(draining))
        .answers_empty(204, "From now on the node is not ready.")
}

fn config(operation: Operation, method: &str) -> Operation {
    let entities = json!({
        "type": "object",
        "description": "Entities by collection and id.",
        "additionalProperties": { "type": "object", "additionalProperties": { "type": "object" } },
    });
    if method == "GET" {
        let exported = object([(
            "config",
            json!({ "type": "string", "description": "As YAML." }),
        )]);
        return operation.answers(200, "The configuration.", &exported);
    }
    let flag = json!({ "type": "string", "enum": ["0", "1"] });
    let configuration = json!({
        "type": "object",
        "description": "The configuration itself, or its text as `config`.",
        "properties": { "_format_version": text(), "config": text() },
    });
    operation
        .query(
            "check_hash",
            "With `1`, nothing is done if this text is already running.",
            flag.clone(),
        )
        .query(
            "flatten_errors",
            "With `1`, errors are also listed by entity.",
            flag,
        )
        .takes(
            &[
                ("application/json", configuration.clone()),
                ("application/yaml", text()),
                ("text/yaml", text()),
                ("application/x-www-form-urlencoded", configuration.clone()),
                ("multipart/form-data", configuration),
            ],
            true,
        )
        .answers(201, "All entities, live on this node.", &entities)
        .answers_empty(304, "The configuration is already running.")
        .fails(&[429, 501, 503, 504, 507])
}

fn import(operation: Operation) -> Operation {
    let configuration = json!({ "type": "object", "properties": { "_format_version": text() } });
    operation
        .takes(
            &[
                ("application/json", configuration),
                ("application/yaml", text()),
                ("text/yaml", text()),
            ],
            true,
        )
        .answers(200, "Counts of the imported entities, live on this node.", &schema_of::<Imported>())
        .or_answers_with(
            200,
            "application/x-ndjson",
            &json!({
                "type": "string",
                "description": "Lines of JSON with the progress. The last line has the result, or `status` and `error`.",
            }),
        )
        .fails(&[409, 503, 507])
}

fn import_tokens(operation: Operation) -> Operation {
    operation
        .query(
            "skip",
            "Number of lines at the beginning that are left out, because they are done.",
            json!({ "type": "integer", "minimum": 0, "default": 0 }),
        )
        .takes(&[(LINES, text()), ("application/json", text())], true)
        .answers(200, "What has become of the lines.", &schema_of::<Summary>())
        .or_answers_with(
            200,
            LINES,
            &json!({
                "type": "string",
                "description": "Lines of JSON with `progress`. The last line has the `summary`, and if it broke off `status` and `error`.",
            }),
        )
        .fails(&[501, 503])
}

fn schema(operation: Operation) -> Operation {
    let fields = json!({ "type": "array", "items": { "type": "object" } });
    operation
        .answers(
            200,
            "The schema.",
            &object([("fields", fields.clone()), ("entity_checks?", fields)]),
        )
        .fails(&[404])
}

fn validate(operation: Operation, input: Fields, message: &Value) -> Operation {
    operation
        .takes_fields(input)
        .answers(200, "The entity is valid.", message)
}

fn tagged(components: &mut Components, operation: Operation) -> Operation {
    let page = components.shared("TagPage", || page_of(&schema_of::<Carrier>()));
    operation.paged().answers(200, "A page of the list.", &page)
}
