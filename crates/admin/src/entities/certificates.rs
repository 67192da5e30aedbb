//! Rules for certificates: `snis` is a list of names, each of which is stored as an SNI entity.
//! Source: kong/db/dao/certificates.lua, kong/db/dao/snis.lua, kong/db/dao/ca_certificates.lua.

use crate::control::Control;
use crate::entities::find;
use crate::entities::reference_to;
use crate::respond::Failure;
use model::schema::registry;
use model::{EntityKind, Error, ErrorCode, Object, Value};
use std::collections::HashSet;
use store::{Change, View};
use uuid::Uuid;

/// Treatment of the existing SNIs if the request has no `snis`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Keep,
    /// Deletes them, because a PUT replaces the whole entity.
    Replace,
}

/// Returns the `snis` of the input; null is the same as an empty list. Returns `None` if the input has no `snis`, or if
/// they are not a list of names; the schema then refuses them. An invalid name is reported before all other errors.
pub(crate) fn take(
    control: &dyn Control,
    kind: EntityKind,
    input: &Object,
) -> Result<Option<Vec<String>>, Failure> {
    let names = match (kind, input.get("snis")) {
        (EntityKind::Certificates, Some(Value::Array(names))) => names,
        (EntityKind::Certificates, Some(Value::Null)) => return Ok(Some(Vec::new())),
        _ => return Ok(None),
    };
    let names: Option<Vec<&str>> = names.iter().map(Value::as_str).collect();
    let Some(names) = names else { return Ok(None) };
    for name in &names {
        find::check_key(control, EntityKind::Snis, "name", name)?;
    }
    Ok(Some(names.into_iter().map(str::to_owned).collect()))
}

/// Adds the SNI in the path of a PUT to the list `snis` of the body. Does nothing if the body has no such list.
pub(crate) fn add_sni_of_path(input: &mut Object, sni: &str) {
    if let Some(Value::Array(names)) = input.get_mut("snis")
        && !names.iter().any(|name| name.as_str() == Some(sni))
    {
        names.push(Value::from(sni));
    }
}

/// Returns the names of a certificate's SNIs with their ids, sorted by name.
pub(crate) fn snis(view: &View<'_>, certificate: Uuid) -> Result<Vec<(String, Uuid)>, Failure> {
    let page = view.children(
        EntityKind::Snis,
        "certificate",
        certificate,
        None,
        usize::MAX,
    )?;
    let mut names = Vec::with_capacity(page.entities.len());
    for (id, bytes) in page.entities {
        let sni = find::decode(bytes)?;
        names.push((sni.str("name").unwrap_or_default().to_owned(), id));
    }
    names.sort();
    Ok(names)
}

/// Returns the changes that give a certificate exactly these SNIs.
pub(crate) fn changes(
    control: &dyn Control,
    view: &View<'_>,
    certificate: Uuid,
    given: Option<Vec<String>>,
    mode: Mode,
) -> Result<Vec<Change>, Failure> {
    let Some(given) = given.or((mode == Mode::Replace).then(Vec::new)) else {
        return Ok(Vec::new());
    };
    let existing = snis(view, certificate)?;
    let known: HashSet<&str> = existing.iter().map(|(name, _)| name.as_str()).collect();
    let mut changes = Vec::new();
    let mut seen = HashSet::new();
    for name in &given {
        if !seen.insert(name.as_str()) {
            return Err(violation(format!("{name} is duplicated")).into());
        }
        if known.contains(name.as_str()) {
            continue;
        }
        changes.push(create(control, view, certificate, name)?);
    }
    for (name, id) in &existing {
        if !seen.contains(name.as_str()) {
            changes.push(Change::Delete {
                kind: EntityKind::Snis,
                id: *id,
            });
        }
    }
    Ok(changes)
}

fn create(
    control: &dyn Control,
    view: &View<'_>,
    certificate: Uuid,
    name: &str,
) -> Result<Change, Failure> {
    const KIND: EntityKind = EntityKind::Snis;
    let input = Object::from_iter([
        ("name", Value::from(name)),
        ("certificate", reference_to(certificate)),
    ]);
    let entity = registry()
        .entity(KIND)
        .complete(input, &control.context())?;
    let taken = view.id_by_unique(KIND, "name", name)?;
    if let Some(sni) = taken
        .map(|id| find::by_id(view, KIND, id))
        .transpose()?
        .flatten()
    {
        let other = find::reference(&sni.entity, "certificate").unwrap_or_default();
        let text = format!("{name} already associated with existing certificate '{other}'");
        return Err(violation(text).into());
    }
    let id = entity
        .str("id")
        .and_then(find::parse_id)
        .ok_or_else(|| Failure::internal("a completed SNI has no id"))?;
    Ok(Change::Put {
        kind: KIND,
        id,
        entity: model::codec::encode(&entity),
    })
}

fn violation(text: String) -> Error {
    Error::schema_violation(Object::from_iter([("snis", Value::from(text))]))
}

/// Returns the changes that delete the SNIs of a deleted certificate; none for other entity types.
pub(crate) fn deletes(view: &View<'_>, kind: EntityKind, id: Uuid) -> Result<Vec<Change>, Failure> {
    if kind != EntityKind::Certificates {
        return Ok(Vec::new());
    }
    let kind = EntityKind::Snis;
    let names = snis(view, id)?;
    Ok(names
        .into_iter()
        .map(|(_, id)| Change::Delete { kind, id })
        .collect())
}

/// Refuses to delete a CA certificate that is in use. Services refer to it in an array, which has no index, so all
/// services are checked.
pub(crate) fn check_delete(view: &View<'_>, kind: EntityKind, id: Uuid) -> Result<(), Failure> {
    if kind != EntityKind::CaCertificates {
        return Ok(());
    }
    for service in view.iter(EntityKind::Services)? {
        let (service, bytes) = service?;
        let entity = find::decode(bytes)?;
        let used = entity.get("ca_certificates").and_then(Value::as_array);
        let uses = |one: &Value| one.as_str().and_then(find::parse_id) == Some(id);
        if used.is_some_and(|used| used.iter().any(uses)) {
            let text =
                format!("ca certificate {id} is still referenced by services (id = {service})");
            return Err(Error::new(ErrorCode::ReferencedByOthers, text).into());
        }
    }
    Ok(())
}
