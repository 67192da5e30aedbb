//! The entities that a rollback restores if it does not restore all: each is named by its type and its id or name.

use super::{bad, missing};
use crate::control::{CONFIGURATION_HASH, Refusal};
use crate::endpoints;
use crate::entities::find;
use crate::respond::Failure;
use model::declarative::structured_hash;
use model::schema::registry;
use model::{EntityKind, Value};
use std::collections::BTreeMap;
use std::fmt;
use store::{Change, ChangeSet, Revision, StoreError, View};
use uuid::Uuid;

/// An entity to restore. A name means the entity that has it now and the one that had it in the restored revision.
#[derive(Debug, Clone)]
pub(super) struct Selected {
    kind: EntityKind,
    key: Key,
}

#[derive(Debug, Clone)]
enum Key {
    Id(Uuid),
    Name { field: &'static str, value: String },
}

impl fmt::Display for Selected {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = endpoints::kind_name(self.kind);
        match &self.key {
            Key::Id(id) => write!(formatter, "{kind}/{id}"),
            Key::Name { value, .. } => write!(formatter, "{kind}/{value}"),
        }
    }
}

/// Reads the field `entities` of a rollback.
pub(super) fn read(value: &Value) -> Result<Vec<Selected>, Failure> {
    let texts = match value {
        Value::Array(texts) if !texts.is_empty() => texts.iter(),
        _ => return Err(expected()),
    };
    texts
        .map(|text| parse(text.as_str().ok_or_else(expected)?))
        .collect()
}

fn expected() -> Failure {
    bad(
        "entities",
        "expected a list of <type>/<id or name>, such as services/billing",
    )
}

fn parse(text: &str) -> Result<Selected, Failure> {
    let (kind, key) = text.split_once('/').ok_or_else(expected)?;
    // Tags are not entities, but text in entities.
    let kind = endpoints::kind_named(kind, |kind| kind != EntityKind::Tags)
        .map_err(|problem| bad("entities", &problem))?;
    let key = match (
        find::parse_id(key),
        registry().entity(kind).endpoint_key.as_deref(),
    ) {
        (Some(id), _) => Key::Id(id),
        (None, Some(field)) => Key::Name {
            field,
            value: key.to_owned(),
        },
        (None, None) => {
            let problem = format!("{text}: entities of this type have no name, only an id");
            return Err(bad("entities", &problem));
        }
    };
    Ok(Selected { kind, key })
}

/// States of an entity: now, and in the restored revision.
type States<'v> = [Option<&'v [u8]>; 2];

/// Returns the changes that give the entities their state in revision `to`.
pub(super) fn changes_to(
    view: &View<'_>,
    to: Revision,
    entities: &[Selected],
) -> Result<ChangeSet, Refusal> {
    let history = view.history()?;
    let mut differing = Vec::new();
    for difference in history.diff(history.newest(), to, None).map_err(missing)? {
        differing.push(difference?);
    }
    let mut found: BTreeMap<(EntityKind, Uuid), States<'_>> = BTreeMap::new();
    for selected in entities {
        let kind = selected.kind;
        let mut is_known = false;
        let current = selected.current(view)?;
        if let Some(id) = current {
            let now = view.get(kind, id)?;
            is_known = now.is_some();
            found.entry((kind, id)).or_insert([now, now]);
        }
        for difference in differing
            .iter()
            .filter(|difference| difference.kind == kind)
        {
            if current == Some(difference.id) || selected.is(difference.id, difference.after)? {
                is_known = true;
                found.insert((kind, difference.id), [difference.before, difference.after]);
            }
        }
        if !is_known {
            let problem = format!("there is no {selected}, neither now nor in revision {to}");
            return Err(bad("entities", &problem).into());
        }
    }
    let changed = found.into_iter().filter(|(_, [now, then])| now != then);
    let changes = changed.map(|((kind, id), [_, then])| match then {
        Some(entity) => Change::Put {
            kind,
            id,
            entity: entity.to_vec(),
        },
        None => Change::Delete { kind, id },
    });
    let changes: Vec<Change> = changes.collect();
    let hash = new_hash(view, &changes)?;
    let meta = hash.map(|hash| (CONFIGURATION_HASH.to_owned(), Some(hash)));
    Ok(ChangeSet {
        changes,
        meta: meta.into_iter().collect(),
    })
}

/// Returns a hash that no document has: without a database the hash identifies the whole configuration, and a change of
/// some entities makes one that no client has sent.
fn new_hash(view: &View<'_>, changes: &[Change]) -> Result<Option<Vec<u8>>, StoreError> {
    let Some(old) = view
        .meta(CONFIGURATION_HASH)?
        .filter(|_| !changes.is_empty())
    else {
        return Ok(None);
    };
    let mut bytes = old.to_vec();
    for change in changes {
        bytes.extend_from_slice(change.id().as_bytes());
        if let Change::Put { entity, .. } = change {
            bytes.extend_from_slice(entity);
        }
    }
    Ok(Some(structured_hash(&bytes).into_bytes()))
}

impl Selected {
    /// Returns the id of the entity that is named so now.
    fn current(&self, view: &View<'_>) -> Result<Option<Uuid>, StoreError> {
        match &self.key {
            Key::Id(id) => Ok(Some(*id)),
            Key::Name { field, value } => view.id_by_unique(self.kind, field, value),
        }
    }

    /// Whether an entity with this id and state is meant.
    fn is(&self, id: Uuid, state: Option<&[u8]>) -> Result<bool, Failure> {
        match &self.key {
            Key::Id(wanted) => Ok(*wanted == id),
            Key::Name { field, value } => match state {
                Some(state) => {
                    let entity = find::decode(state)?;
                    Ok(entity.str(field) == Some(value))
                }
                None => Ok(false),
            },
        }
    }
}
