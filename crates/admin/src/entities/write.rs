//! Creates, updates and deletes of single entities: the input is validated completely before it is known whether this
//! node takes writes at all, so that a client learns of its own mistakes first, as from Kong.
//! Source: kong/db/dao/init.lua, kong/db/strategies/off/init.lua.

use crate::body::Body;
use crate::control::{Control, Database, LoadError};
use crate::endpoints::Relation;
use crate::entities::find::{self, Found, Selector, select};
use crate::entities::{certificates, foreign, no_content, reference_to, shown, target, ttl, view};
use crate::infer::infer;
use crate::request::Call;
use crate::respond::{Answer, Failure, json_bytes};
use axum::http::StatusCode;
use model::error::brace_notation;
use model::schema::registry;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use store::{Change, ChangeSet};
use uuid::Uuid;

/// What a write is about: the entity the path names, and what the path says of it besides.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) selector: Selector,
    /// Fields that the path sets, over those of the body.
    pub(crate) fixed: Object,
    /// The SNI by which a certificate was named.
    pub(crate) sni: Option<String>,
}

impl Target {
    pub(crate) fn of(selector: Selector) -> Self {
        let fixed = match &selector {
            Selector::Id(_) => Object::new(),
            Selector::Key { field, value } => {
                Object::from_iter([(field.as_str(), Value::from(value.as_str()))])
            }
        };
        Self {
            selector,
            fixed,
            sni: None,
        }
    }
}

/// A certificate named by one of its SNIs; a PUT of an unknown one makes a new certificate.
pub(crate) fn certificate_of_sni(call: &Call<'_>, name: &str) -> Result<Target, Failure> {
    let found = find::find(call.control, &view(call)?, EntityKind::Certificates, name);
    let id = match found {
        Ok(found) => found.ok_or_else(Failure::not_found)?.id,
        Err(Failure::Message(StatusCode::NOT_FOUND, _)) if call.method == "PUT" => Uuid::new_v4(),
        Err(failure) => return Err(failure),
    };
    let mut target = Target::of(Selector::Id(id));
    target.sni = Some(name.to_owned());
    Ok(target)
}

/// What a PUT under a parent writes to; ACL groups are named within their consumer.
pub(crate) fn put_target(
    control: &dyn Control,
    kind: EntityKind,
    found: Option<&Found>,
    segment: &str,
) -> Result<Target, Failure> {
    if kind != EntityKind::Acls || find::parse_id(segment).is_some() {
        return Ok(Target::of(Selector::parse(control, kind, segment)?));
    }
    let id = found.map_or_else(Uuid::new_v4, |found| found.id);
    let mut target = Target::of(Selector::Id(id));
    target.fixed.insert("group", Value::from(segment));
    Ok(target)
}

/// An accepted write, ready to be committed.
struct Prepared {
    kind: EntityKind,
    found: Found,
    /// What has to change with it: the SNIs of a certificate, the entity that is to refer to it.
    also: Vec<Change>,
}

/// `POST /services`, `POST /services/{service}/routes`
pub(crate) async fn insert(
    call: &Call<'_>,
    kind: EntityKind,
    link: Option<(&str, Uuid)>,
) -> Answer {
    let prepared = {
        let mut input = input(call, kind, None)?;
        if let Some((field, parent)) = link {
            input.insert(field, reference_to(parent));
        }
        let prepared = prepare(call, kind, input, None)?;
        refuse_without_database(call, "create", kind, None)?;
        let id = prepared.found.id;
        if find::by_id(&view(call)?, kind, id)?.is_some() {
            return Err(primary_key_violation(id).into());
        }
        prepared
    };
    commit(call, prepared, StatusCode::CREATED).await
}

/// `PUT`: the entity is made of the body alone.
pub(crate) async fn upsert(
    call: &Call<'_>,
    kind: EntityKind,
    target: Target,
    link: Option<(&str, Uuid)>,
) -> Answer {
    let prepared = {
        let mut input = input(call, kind, None)?;
        if let Some((field, parent)) = link {
            input.insert(field, reference_to(parent));
        }
        prepare_upsert(call, kind, input, &target)?
    };
    refuse_without_database(call, "create or update", kind, Some(&target.selector))?;
    commit(call, prepared, StatusCode::OK).await
}

fn prepare_upsert(
    call: &Call<'_>,
    kind: EntityKind,
    mut input: Object,
    target: &Target,
) -> Result<Prepared, Failure> {
    let existing = select(&view(call)?, kind, &target.selector)?;
    let id = match (&target.selector, existing) {
        (Selector::Id(id), _) => *id,
        (Selector::Key { .. }, Some(found)) => found.id,
        (Selector::Key { .. }, None) => Uuid::new_v4(),
    };
    input.insert("id", Value::from(id.to_string()));
    for (field, value) in target.fixed.clone() {
        input.insert(field, value);
    }
    if kind == EntityKind::Certificates {
        certificates::add_sni_of_path(&mut input, target.sni.as_deref());
    }
    prepare(call, kind, input, Some(certificates::Mode::Replace))
}

/// `PUT /routes/{route}/service` of a route without one: makes a service and links it.
pub(crate) async fn create_referenced(call: &Call<'_>, relation: Relation, owner: Found) -> Answer {
    let target = Target::of(Selector::Id(Uuid::new_v4()));
    let mut prepared = {
        let input = input(call, relation.parent, None)?;
        prepare_upsert(call, relation.parent, input, &target)?
    };
    refuse_without_database(
        call,
        "create or update",
        relation.parent,
        Some(&target.selector),
    )?;
    let link = Object::from_iter([(relation.field, reference_to(prepared.found.id))]);
    let linked =
        registry()
            .entity(relation.child)
            .merge(&owner.entity, link, &call.control.context())?;
    prepared.also.push(put(relation.child, owner.id, &linked));
    commit(call, prepared, StatusCode::OK).await
}

/// `PATCH`
pub(crate) async fn update(call: &Call<'_>, kind: EntityKind, target: Target) -> Answer {
    let prepared = {
        let view = view(call)?;
        let existing = select(&view, kind, &target.selector)?
            .filter(|found| !find::is_expired(call.control, kind, &found.entity));
        let plugin = existing.as_ref().and_then(|found| found.entity.str("name"));
        let mut patch = input(call, kind, plugin)?;
        let Some(existing) = existing else {
            return Err(not_found(&target.selector).into());
        };
        patch.remove("id");
        foreign::resolve(&view, kind, &mut patch)?;
        let lifetime = ttl::take(call.control, kind, &mut patch)?;
        let snis = certificates::take(call.control, kind, &patch)?;
        let entity = merged(call, kind, existing.entity, patch, lifetime)?;
        let mode = certificates::Mode::Keep;
        let also = certificates::changes(call, &view, existing.id, snis, mode)?;
        Prepared {
            kind,
            found: Found {
                id: existing.id,
                entity,
            },
            also,
        }
    };
    refuse_without_database(call, "update", kind, Some(&target.selector))?;
    commit(call, prepared, StatusCode::OK).await
}

/// The entity with the patch applied. The time to live stays unless the patch has one.
fn merged(
    call: &Call<'_>,
    kind: EntityKind,
    mut base: Object,
    patch: Object,
    lifetime: Option<Option<Value>>,
) -> Result<Object, Failure> {
    let (schema, context) = (registry().entity(kind), call.control.context());
    let stored_ttl = base.remove("ttl");
    let mut entity = schema.merge(&base, patch, &context)?;
    if let Some(end) = lifetime.unwrap_or(stored_ttl) {
        entity.insert("ttl", end);
    }
    Ok(entity)
}

/// `DELETE`: what does not exist is deleted already.
pub(crate) async fn delete(call: &Call<'_>, kind: EntityKind, target: Target) -> Answer {
    let changes = {
        let view = view(call)?;
        let Some(found) = select(&view, kind, &target.selector)? else {
            return no_content();
        };
        refuse_without_database(call, "remove", kind, Some(&target.selector))?;
        certificates::check_delete(&view, kind, found.id)?;
        let mut changes = certificates::deletes(&view, kind, found.id)?;
        changes.push(Change::Delete { kind, id: found.id });
        changes
    };
    apply(call, changes).await?;
    no_content()
}

/// The body as fields of `kind`, typed.
fn input(call: &Call<'_>, kind: EntityKind, plugin: Option<&str>) -> Result<Object, Failure> {
    Ok(match call.body()? {
        Body::Form(mut fields) => {
            infer(kind, &mut fields, plugin);
            fields
        }
        Body::Json(fields) => fields,
        Body::None | Body::Yaml(_) => Object::new(),
    })
}

/// Completes and validates a whole entity.
fn prepare(
    call: &Call<'_>,
    kind: EntityKind,
    mut input: Object,
    mode: Option<certificates::Mode>,
) -> Result<Prepared, Failure> {
    let view = view(call)?;
    foreign::resolve(&view, kind, &mut input)?;
    let lifetime = ttl::take(call.control, kind, &mut input)?;
    let snis = certificates::take(call.control, kind, &input)?;
    let mut entity = registry()
        .entity(kind)
        .complete(input, &call.control.context())?;
    let id = entity
        .str("id")
        .and_then(find::parse_id)
        .ok_or_else(|| Failure::internal("a completed entity has no id"))?;
    if let Some(Some(end)) = lifetime {
        entity.insert("ttl", end);
    }
    if kind == EntityKind::Targets {
        target::normalise(&mut entity);
    }
    let mode = mode.unwrap_or(certificates::Mode::Keep);
    let also = certificates::changes(call, &view, id, snis, mode)?;
    Ok(Prepared {
        kind,
        found: Found { id, entity },
        also,
    })
}

async fn commit(call: &Call<'_>, prepared: Prepared, status: StatusCode) -> Answer {
    let Prepared {
        kind,
        found,
        mut also,
    } = prepared;
    also.insert(0, put(kind, found.id, &found.entity));
    apply(call, also).await?;
    if kind == EntityKind::Targets && call.method == "PATCH" {
        // The only answer that shows a target as it was given.
        let mut out = Vec::new();
        registry().entity(kind).write_json(&found.entity, &mut out);
        return Ok(json_bytes(status, out));
    }
    shown(call, &view(call)?, kind, &found, status)
}

fn put(kind: EntityKind, id: Uuid, entity: &Object) -> Change {
    Change::Put {
        kind,
        id,
        entity: model::codec::encode(entity),
    }
}

async fn apply(call: &Call<'_>, changes: Vec<Change>) -> Result<(), Failure> {
    let changes = ChangeSet {
        changes,
        meta: Vec::new(),
    };
    match call.control.commit(changes).await {
        Ok(_) => Ok(()),
        Err(LoadError::Invalid(error)) => Err(Failure::Error(error)),
        Err(LoadError::Unavailable) => Err(Failure::Message(
            StatusCode::NOT_IMPLEMENTED,
            "writing single entities is not available in this mode".into(),
        )),
        Err(LoadError::TooLarge) => Err(Failure::Message(
            StatusCode::INSUFFICIENT_STORAGE,
            "the store has no room for this change".into(),
        )),
        Err(error) => Err(Failure::Internal(format!("{error:?}"))),
    }
}

/// Kong's refusal without a database: how the entity was named is part of the text.
fn refuse_without_database(
    call: &Call<'_>,
    operation: &str,
    kind: EntityKind,
    selector: Option<&Selector>,
) -> Result<(), Failure> {
    if call.control.database() != Database::Off {
        return Ok(());
    }
    let by = match selector {
        Some(Selector::Key { field, .. }) => format!(" by '{field}'"),
        _ => String::new(),
    };
    let message = format!(
        "cannot {operation} '{}' entities{by} when not using a database",
        kind.name()
    );
    Err(Error::new(ErrorCode::OperationUnsupported, message).into())
}

fn primary_key_violation(id: Uuid) -> Error {
    let key = Object::from_iter([("id", Value::from(id.to_string()))]);
    let shown = brace_notation(&Value::Object(key.clone()));
    let message = format!("primary key violation on key '{shown}'");
    Error::new(ErrorCode::PrimaryKeyViolation, message).with_fields(key)
}

fn not_found(selector: &Selector) -> Error {
    let (key, by_id) = match selector {
        Selector::Id(id) => (("id", Value::from(id.to_string())), true),
        Selector::Key { field, value } => ((field.as_str(), Value::from(value.as_str())), false),
    };
    let key = Object::from_iter([key]);
    let shown = brace_notation(&Value::Object(key.clone()));
    let message = match by_id {
        true => format!("could not find the entity with primary key '{shown}'"),
        false => format!("could not find the entity with '{shown}'"),
    };
    Error::new(ErrorCode::NotFound, message).with_fields(key)
}
