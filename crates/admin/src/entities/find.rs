//! Finds the entity that a path names: by id, by endpoint key (`/services/billing`), or by a special rule.
//! Source: kong/api/endpoints.lua (query_entity), kong/api/routes/certificates.lua, upstreams.lua.

use crate::control::Control;
use crate::endpoints::Relation;
use crate::respond::Failure;
use axum::http::StatusCode;
use model::address::DEFAULT_TARGET_PORT;
use model::schema::registry;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use store::{KeyPart, View};
use uuid::Uuid;

/// An entity as it is stored.
#[derive(Debug, Clone)]
pub(crate) struct Found {
    pub(crate) id: Uuid,
    pub(crate) entity: Object,
}

/// A path segment that names an entity. As in Kong, error messages depend on the variant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Selector {
    Id(Uuid),
    Key {
        field: String,
        value: String,
    },
    /// A certificate, by the name of one of its SNIs.
    Sni(String),
    /// A child by a field that is unique within its parent, such as an ACL group of a consumer.
    Nested {
        parent: Uuid,
        field: &'static str,
        value: String,
    },
}

impl Selector {
    /// Parses a segment. A UUID is always an id. Any other segment must be a valid endpoint key.
    pub(crate) fn parse(
        control: &dyn Control,
        kind: EntityKind,
        segment: &str,
    ) -> Result<Self, Failure> {
        if let Some(id) = parse_id(segment) {
            return Ok(Self::Id(id));
        }
        let Some(field) = registry().entity(kind).endpoint_key.as_deref() else {
            return Err(invalid_primary_key(segment).into());
        };
        check_key(control, kind, field, segment)?;
        Ok(Self::Key {
            field: field.to_owned(),
            value: segment.to_owned(),
        })
    }

    /// Parses the segment of a path such as `/services/{services}`. Certificates may be named by one of their SNIs.
    pub(crate) fn of_entity(
        control: &dyn Control,
        kind: EntityKind,
        segment: &str,
    ) -> Result<Self, Failure> {
        if kind != EntityKind::Certificates || parse_id(segment).is_some() {
            return Self::parse(control, kind, segment);
        }
        check_key(control, EntityKind::Snis, "name", segment)?;
        Ok(Self::Sni(segment.to_owned()))
    }

    /// Parses the last segment of a path such as `/consumers/{consumers}/acls/{acls}`. ACL groups, for instance, are
    /// named within their consumer.
    pub(crate) fn of_child(
        control: &dyn Control,
        kind: EntityKind,
        parent: Uuid,
        segment: &str,
    ) -> Result<Self, Failure> {
        match registry().entity(kind).nested_key.as_deref() {
            Some(field) if parse_id(segment).is_none() => Ok(Self::Nested {
                parent,
                field,
                value: segment.to_owned(),
            }),
            _ => Self::parse(control, kind, segment),
        }
    }

    /// The field that the path sets, and its value. They override the body, except for children, whose field the body may
    /// change: as in Kong, `PUT /consumers/c/acls/staff` with another `group` renames the membership.
    pub(crate) fn fixed(&self) -> Option<(&str, &str)> {
        match self {
            Self::Id(_) | Self::Sni(_) => None,
            Self::Key { field, value } => Some((field, value)),
            Self::Nested { field, value, .. } => Some((field, value)),
        }
    }
}

/// Parses an id. As in Kong, the text must have 36 characters, in upper or lower case.
pub(crate) fn parse_id(text: &str) -> Option<Uuid> {
    (text.len() == 36).then(|| Uuid::try_parse(text).ok())?
}

fn invalid_primary_key(segment: &str) -> Error {
    let message = format!("invalid primary key: '{{id=\"{segment}\"}}'");
    let fields = Object::from_iter([("id", Value::from("expected a valid UUID"))]);
    Error::new(ErrorCode::InvalidPrimaryKey, message).with_fields(fields)
}

/// Validates a key with the schema of its field.
pub(crate) fn check_key(
    control: &dyn Control,
    kind: EntityKind,
    field: &str,
    value: &str,
) -> Result<(), Failure> {
    registry()
        .entity(kind)
        .check_field(field, &Value::from(value), &control.context())
        .map_err(|problem| Failure::InvalidUnique {
            field: field.to_owned(),
            text: problem.as_str().unwrap_or_default().to_owned(),
        })
}

pub(crate) fn decode(bytes: &[u8]) -> Result<Object, Failure> {
    model::codec::decode(bytes).map_err(Failure::internal)
}

pub(crate) fn by_id(view: &View<'_>, kind: EntityKind, id: Uuid) -> Result<Option<Found>, Failure> {
    let Some(bytes) = view.get(kind, id)? else {
        return Ok(None);
    };
    let entity = decode(bytes)?;
    Ok(Some(Found { id, entity }))
}

pub(crate) fn select(
    view: &View<'_>,
    kind: EntityKind,
    selector: &Selector,
) -> Result<Option<Found>, Failure> {
    let id = match selector {
        Selector::Id(id) => Some(*id),
        Selector::Key { field, value } => view.id_by_unique(kind, field, value)?,
        Selector::Sni(name) => certificate_of_sni(view, name)?,
        Selector::Nested { parent, value, .. } => cache_key_id(view, kind, *parent, value)?,
    };
    id.map_or(Ok(None), |id| by_id(view, kind, id))
}

/// Finds the entity of a path segment, unless it has expired. Certificates are also found by the name of an SNI.
pub(crate) fn find(
    control: &dyn Control,
    view: &View<'_>,
    kind: EntityKind,
    segment: &str,
) -> Result<Option<Found>, Failure> {
    let selector = Selector::of_entity(control, kind, segment)?;
    let found = select(view, kind, &selector)?;
    if found.is_none() && matches!(selector, Selector::Sni(_)) {
        return Err(Failure::Message(
            StatusCode::NOT_FOUND,
            "SNI not found".into(),
        ));
    }
    Ok(found.filter(|found| !is_expired(control, kind, &found.entity)))
}

/// Whether an entity's time to live has ended. The stored `ttl` is the time at which it ends, in seconds since 1970.
pub(crate) fn is_expired(control: &dyn Control, kind: EntityKind, entity: &Object) -> bool {
    registry().entity(kind).ttl
        && entity
            .get("ttl")
            .and_then(Value::as_int)
            .is_some_and(|end| end <= control.context().now)
}

fn certificate_of_sni(view: &View<'_>, name: &str) -> Result<Option<Uuid>, Failure> {
    let sni = view.id_by_unique(EntityKind::Snis, "name", name)?;
    let sni = sni
        .map(|id| by_id(view, EntityKind::Snis, id))
        .transpose()?;
    Ok(sni
        .flatten()
        .and_then(|sni| reference(&sni.entity, "certificate")))
}

/// Returns the id in `{"id": …}`.
pub(crate) fn reference(entity: &Object, field: &str) -> Option<Uuid> {
    let id = entity.get(field)?.as_object()?.str("id")?;
    Uuid::try_parse(id).ok()
}

/// Finds a child of `parent` by a path segment, which is an id or an endpoint key. Targets and ACL groups are also
/// found by their name within the parent. Children of other parents are not found.
pub(crate) fn find_child(
    control: &dyn Control,
    view: &View<'_>,
    relation: Relation,
    parent: Uuid,
    segment: &str,
) -> Result<Option<Found>, Failure> {
    let Relation { child, field, .. } = relation;
    let by_cache_key = match child {
        _ if parse_id(segment).is_some() => None,
        EntityKind::Targets => Some(target_id(view, parent, segment)?),
        _ if registry().entity(child).nested_key.is_some() => {
            Some(cache_key_id(view, child, parent, segment)?)
        }
        _ => None,
    };
    let found = match by_cache_key {
        Some(Some(id)) => by_id(view, child, id)?,
        Some(None) => None,
        None => find(control, view, child, segment)?,
    };
    Ok(found.filter(|found| reference(&found.entity, field) == Some(parent)))
}

/// Finds a target by its name with or without the default port. The Admin API always stores a port, but a declarative
/// configuration stores targets as they are written.
fn target_id(view: &View<'_>, upstream: Uuid, segment: &str) -> Result<Option<Uuid>, Failure> {
    if let Some(id) = cache_key_id(view, EntityKind::Targets, upstream, segment)? {
        return Ok(Some(id));
    }
    let default_port = format!(":{DEFAULT_TARGET_PORT}");
    match segment.strip_suffix(&default_port) {
        Some(host) => cache_key_id(view, EntityKind::Targets, upstream, host),
        None => {
            let with_port = format!("{segment}{default_port}");
            cache_key_id(view, EntityKind::Targets, upstream, &with_port)
        }
    }
}

/// Finds an entity by its cache key: `(upstream, target)` for targets, `(consumer, group)` for ACLs.
fn cache_key_id(
    view: &View<'_>,
    kind: EntityKind,
    parent: Uuid,
    value: &str,
) -> Result<Option<Uuid>, Failure> {
    let parts = [KeyPart::Reference(parent), KeyPart::Text(value)];
    view.id_by_cache_key(kind, &parts)
        .map_err(Failure::internal)
}
