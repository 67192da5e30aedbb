//! Tokens as entities, and entities as rows of the store of tokens.

use crate::respond::Failure;
use model::schema::{MAX_TTL, registry};
use model::{EntityKind, Object, Value};
use store::{StoreError, View, Violation};
use tokens::{Imported, Known, Owner, Token};
use uuid::Uuid;

/// Name of the kind.
pub(super) const NAME: &str = "oauth2_tokens";
pub(super) const CREDENTIAL: &str = "credential";
pub(super) const SERVICE: &str = "service";
pub(super) const ACCESS_TOKEN: &str = "access_token";
pub(super) const REFRESH_TOKEN: &str = "refresh_token";

/// The reason why an entity is no row.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowError {
    #[error("{}", .0.message)]
    Invalid(Box<model::Error>),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<RowError> for Failure {
    fn from(error: RowError) -> Self {
        match error {
            RowError::Invalid(error) => Self::Error(error),
            RowError::Store(error) => error.into(),
        }
    }
}

/// Returns the kind that a field of tokens refers to.
fn referenced(kind: EntityKind, field: &str) -> Option<EntityKind> {
    let mut foreign = registry().entity(kind).foreign.iter();
    foreign.find(|one| one.name == field).map(|one| one.kind)
}

/// Converts a complete entity to a row. Its owners must exist.
pub(crate) fn row_of(
    view: &View<'_>,
    kind: EntityKind,
    entity: &Object,
    now: i64,
) -> Result<Imported, RowError> {
    let id = id_in(entity).unwrap_or_default();
    let credential = owner(view, kind, id, entity, CREDENTIAL)?;
    let text = |field: &str| entity.str(field).map(str::to_owned);
    let number = |field: &str| entity.get(field).and_then(Value::as_int);
    let (Some(credential), Some(access_token)) = (credential, entity.str(ACCESS_TOKEN)) else {
        let error = model::Error::new(model::ErrorCode::SchemaViolation, "it is not complete");
        return Err(RowError::Invalid(Box::new(error)));
    };
    Ok(Imported {
        id,
        access_token: Known::parse(access_token),
        refresh_token: entity.str(REFRESH_TOKEN).map(Known::parse),
        credential,
        service: owner(view, kind, id, entity, SERVICE)?,
        expires_in: number("expires_in").unwrap_or_default(),
        created_at: number("created_at").unwrap_or(now),
        ends: entity.get("ttl").and_then(|ttl| end_of(ttl, now)),
        scope: text("scope"),
        authenticated_userid: text("authenticated_userid"),
    })
}

fn id_in(entity: &Object) -> Option<Uuid> {
    Uuid::try_parse(entity.str("id")?).ok()
}

fn owner(
    view: &View<'_>,
    kind: EntityKind,
    id: Uuid,
    entity: &Object,
    field: &str,
) -> Result<Option<Owner>, RowError> {
    let reference = entity.get(field).and_then(Value::as_object);
    let (Some(parent), Some(parent_kind)) = (reference.and_then(id_in), referenced(kind, field))
    else {
        return Ok(None);
    };
    match view.created(parent_kind, parent)? {
        Some(created) => Ok(Some(Owner {
            id: parent,
            created,
        })),
        None => {
            let violation = Violation::Foreign {
                kind,
                id,
                field: field.to_owned(),
                parent_kind,
                parent,
            };
            Err(RowError::Invalid(Box::new(violation.to_error())))
        }
    }
}

/// Returns the end of a row. The Admin API shows the seconds that are left, and exports of configurations the time in
/// seconds since 1970, which is larger than any `ttl`.
fn end_of(ttl: &Value, now: i64) -> Option<i64> {
    let ttl = match ttl {
        // Rows of a database may have parts of seconds.
        Value::Float(seconds) => seconds.floor() as i64,
        other => other.as_int()?,
    };
    match ttl {
        0 => None,
        left if left <= MAX_TTL => Some(now.saturating_add(left)),
        end => Some(end),
    }
}

/// Whether the entities that a token belongs to still exist. With a deleted entity its tokens are gone too.
pub(crate) fn is_owned(
    view: &View<'_>,
    kind: EntityKind,
    token: &Token,
) -> Result<bool, StoreError> {
    let is_there = |field: &str, owner: Owner| match referenced(kind, field) {
        Some(kind) => Ok(view.created(kind, owner.id)? == Some(owner.created)),
        None => Ok::<_, StoreError>(false),
    };
    Ok(is_there(CREDENTIAL, token.credential)?
        && token
            .service
            .map_or(Ok(true), |service| is_there(SERVICE, service))?)
}

/// Converts a row to an entity. `ttl` is the time at which it ends, as in the entity tables.
pub(crate) fn entity_of(token: &Token) -> Object {
    let reference = |owner: Owner| super::super::reference_to(owner.id);
    let text = |text: &Option<String>| text.clone().map_or(Value::Null, Value::from);
    let texts = token.texts.as_ref();
    let refresh = texts.and_then(|texts| texts.refresh_token.as_ref());
    let shown =
        |made: Option<&tokens::Made>| made.map_or(Value::Null, |made| Value::from(made.0.as_str()));
    let mut entity = Object::from_iter([
        ("id", Value::from(token.id.to_string())),
        ("created_at", Value::Int(token.created_at)),
        (SERVICE, token.service.map_or(Value::Null, reference)),
        (CREDENTIAL, reference(token.credential)),
        ("token_type", Value::from("bearer")),
        ("expires_in", Value::Int(token.expires_in)),
        (ACCESS_TOKEN, shown(texts.map(|texts| &texts.access_token))),
        (REFRESH_TOKEN, shown(refresh)),
        ("authenticated_userid", text(&token.authenticated_userid)),
        ("scope", text(&token.scope)),
    ]);
    if let Some(ends) = token.ends {
        entity.push("ttl", Value::Int(ends));
    }
    entity
}
