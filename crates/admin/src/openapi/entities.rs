//! The operations of entities, derived from entity type and method.

use super::components::{Components, page_of, pascal, schema_of, type_name};
use super::operation::Operation;
use crate::endpoints::{Action, Relation};
use crate::entities::health::{OfTarget, Whole};
use model::EntityKind;
use model::schema::{Form, registry};
use serde_json::json;

/// Error statuses of writes, apart from those of invalid input.
const WRITE: [u16; 5] = [404, 405, 409, 501, 507];

/// Returns `None` for endpoints that do not belong to entities.
pub(super) fn describe(
    components: &mut Components,
    action: Action,
    method: &str,
) -> Option<Operation> {
    Some(match action {
        Action::Collection(kind) => collection(components, kind, method),
        Action::Entity(kind) => entity(components, kind, method),
        Action::Children(relation) => children(components, relation, method),
        Action::Child(relation) => child(components, relation, method),
        Action::Referenced(relation) => referenced(components, relation, method),
        Action::AllTargets => all_targets(components),
        Action::UpstreamHealth => upstream_health(components),
        _ => return None,
    })
}

fn collection(components: &mut Components, kind: EntityKind, method: &str) -> Operation {
    let (one, all) = (type_name(kind), pascal(kind.name()));
    if method == "POST" {
        return Operation::new(
            kind.name(),
            format!("create{one}"),
            format!("Create {}", a(kind)),
        )
        .takes_fields(components.input(kind, &[]))
        .answers(
            201,
            "The entity, live on this node.",
            &components.shown(kind),
        )
        .fails(&WRITE);
    }
    let list = Operation::new(
        kind.name(),
        format!("list{all}"),
        format!("List {}", words(kind)),
    )
    .paged()
    .tagged()
    .answers(
        200,
        "A page of the list, ordered by id.",
        &components.page(kind),
    );
    match kind {
        EntityKind::Consumers => list.query(
            "custom_id",
            "Only the consumer with this custom id.",
            json!({ "type": "string", "minLength": 1 }),
        ),
        _ => list,
    }
}

fn entity(components: &mut Components, kind: EntityKind, method: &str) -> Operation {
    let one = type_name(kind);
    let key: Vec<&str> = registry()
        .entity(kind)
        .endpoint_key
        .as_deref()
        .into_iter()
        .collect();
    let operation = |verb: &str, does: &str| {
        Operation::new(
            kind.name(),
            format!("{verb}{one}"),
            format!("{does} {}", a(kind)),
        )
    };
    match method {
        "GET" => operation("get", "Get")
            .answers(200, "The entity.", &components.shown(kind))
            .fails(&[404]),
        "PUT" => operation("upsert", "Create or replace")
            .takes_fields(components.input(kind, &key))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(kind),
            )
            .fails(&WRITE),
        "PATCH" => operation("update", "Change")
            .takes_fields(components.patch(kind))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(kind),
            )
            .fails(&WRITE),
        _ => operation("delete", "Delete")
            .answers_empty(204, "The entity no longer exists.")
            .fails(&[404, 405, 501, 507]),
    }
}

fn children(components: &mut Components, relation: Relation, method: &str) -> Operation {
    let Relation {
        child,
        field,
        parent,
    } = relation;
    let of = type_name(parent);
    if method == "POST" {
        let (id, summary) = (
            format!("create{}Of{of}", type_name(child)),
            format!("Create {} of {}", a(child), a(parent)),
        );
        return Operation::new(child.name(), id, summary)
            .takes_fields(components.input(child, &[field]))
            .answers(
                201,
                "The entity, live on this node.",
                &components.shown(child),
            )
            .fails(&WRITE);
    }
    let (id, summary) = (
        format!("list{}Of{of}", pascal(child.name())),
        format!("List {} of {}", words(child), a(parent)),
    );
    Operation::new(child.name(), id, summary)
        .paged()
        .answers(200, "A page of the list.", &components.page(child))
        .fails(&[404])
}

fn child(components: &mut Components, relation: Relation, method: &str) -> Operation {
    let Relation {
        child,
        field,
        parent,
    } = relation;
    let mut known = vec![field];
    let schema = registry().entity(child);
    let key = schema.nested_key.as_ref().or(schema.endpoint_key.as_ref());
    known.extend(key.map(String::as_str));
    let operation = |verb: &str, does: &str| {
        let id = format!("{verb}{}Of{}", type_name(child), type_name(parent));
        Operation::new(
            child.name(),
            id,
            format!("{does} {} of {}", a(child), a(parent)),
        )
    };
    match (method, child) {
        ("GET", _) => operation("get", "Get")
            .answers(200, "The entity.", &components.shown(child))
            .fails(&[404]),
        // A PUT of a target changes the existing target.
        ("PUT", EntityKind::Targets) => operation("upsert", "Change")
            .takes_fields(components.patch(child))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(child),
            )
            .fails(&WRITE),
        ("PUT", _) => operation("upsert", "Create or replace")
            .takes_fields(components.input(child, &known))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(child),
            )
            .fails(&WRITE),
        ("PATCH", _) => operation("update", "Change")
            .takes_fields(components.patch(child))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(child),
            )
            .fails(&WRITE),
        _ => operation("delete", "Delete")
            .answers_empty(204, "The entity no longer exists.")
            .fails(&[404, 405, 501, 507]),
    }
}

fn referenced(components: &mut Components, relation: Relation, method: &str) -> Operation {
    let Relation {
        child,
        field,
        parent,
    } = relation;
    let operation = |verb: &str, does: &str| {
        let id = format!("{verb}{}Of{}", pascal(field), type_name(child));
        Operation::new(
            parent.name(),
            id,
            format!("{does} the `{field}` of {}", a(child)),
        )
    };
    match method {
        "GET" => operation("get", "Get")
            .answers(200, "The referenced entity.", &components.shown(parent))
            .fails(&[404]),
        "PUT" => operation("upsert", "Replace, or create and link,")
            .takes_fields(components.input(parent, &[]))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(parent),
            )
            .fails(&WRITE),
        "PATCH" => operation("update", "Change")
            .takes_fields(components.patch(parent))
            .answers(
                200,
                "The entity, live on this node.",
                &components.shown(parent),
            )
            .fails(&WRITE),
        _ => operation(
            "delete",
            "Refused: use the path of the entity itself to delete",
        )
        .fails(&[404, 405]),
    }
}

fn all_targets(components: &mut Components) -> Operation {
    let kind = EntityKind::Targets;
    Operation::new(
        kind.name(),
        "listAllTargetsOfUpstream",
        "List targets of an upstream, ordered by id",
    )
    .paged()
    .answers(200, "A page of the list.", &components.page(kind))
    .fails(&[404])
}

/// The health of each target on a page, or of the upstream as a whole.
fn upstream_health(components: &mut Components) -> Operation {
    let flavor = components.flavor();
    let target = components.shared("TargetHealth", || {
        let mut target = registry()
            .entity(EntityKind::Targets)
            .json_schema(Form::Shown, flavor);
        let more = schema_of::<OfTarget>();
        for (name, schema) in more["properties"].as_object().into_iter().flatten() {
            target["properties"][name] = schema.clone();
        }
        if let Some(required) = target["required"].as_array_mut() {
            required.extend(more["required"].as_array().into_iter().flatten().cloned());
        }
        target
    });
    let mut targets = page_of(&target);
    targets["properties"]["node_id"] = json!({ "type": "string", "format": "uuid" });
    Operation::new(
        "upstreams",
        "getUpstreamHealth",
        "Get the health of an upstream's targets",
    )
    .paged()
    .query(
        "balancer_health",
        "With `1`, the health of the upstream as a whole.",
        json!({ "type": "string", "enum": ["1", "true", "0", "false"] }),
    )
    .answers(
        200,
        "Health as this node sees it.",
        &json!({ "anyOf": [targets, schema_of::<Whole>()] }),
    )
    .fails(&[404])
}

/// Returns `key sets` for `key_sets`.
fn words(kind: EntityKind) -> String {
    kind.name().replace('_', " ")
}

/// Returns `an upstream` for `upstreams`.
fn a(kind: EntityKind) -> String {
    let plural = words(kind);
    let one = plural.strip_suffix('s').unwrap_or(&plural);
    let article = if one.starts_with(['a', 'e', 'i', 'o', 'u']) {
        "an"
    } else {
        "a"
    };
    format!("{article} {one}")
}
