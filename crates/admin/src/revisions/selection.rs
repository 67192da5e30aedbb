//! The entities that a rollback restores if it does not restore all: each is named by its type and its id or name.

use super::answer::NotRestored;
use super::{bad, missing};
use crate::control::{CONFIGURATION_HASH, Refusal};
use crate::endpoints;
use crate::entities::find;
use crate::respond::Failure;
use model::declarative::structured_hash;
use model::schema::{OnDelete, registry};
use model::{EntityKind, Object, Value};
use std::collections::BTreeMap;
use std::fmt;
use store::{Change, ChangeSet, Difference, Revision, StoreError, View};
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
    let kind = endpoints::kind_named(kind, endpoints::has_history)
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

/// Returns the changes that give the entities their state in revision `to`, and the entities that stay deleted although
/// they were deleted together with a restored one.
pub(super) fn changes_to(
    view: &View<'_>,
    to: Revision,
    entities: &[Selected],
) -> Result<(ChangeSet, Vec<NotRestored>), Refusal> {
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
    let not_restored = not_restored(&found, &differing)?;
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
    let changes = ChangeSet {
        changes,
        meta: meta.into_iter().collect(),
    };
    Ok((changes, not_restored))
}

/// Returns the entities that do not exist now and that, in the restored revision, referred to a restored one in a field
/// that deletes by cascade, directly or indirectly.
fn not_restored(
    found: &BTreeMap<(EntityKind, Uuid), States<'_>>,
    differing: &[Difference<'_>],
) -> Result<Vec<NotRestored>, Failure> {
    let mut gone: BTreeMap<(EntityKind, Uuid), Object> = BTreeMap::new();
    let mut parents: BTreeMap<(EntityKind, Uuid), Vec<(EntityKind, Uuid)>> = BTreeMap::new();
    for difference in differing {
        let key = (difference.kind, difference.id);
        if let (None, Some(then)) = (difference.before, difference.after)
            && !found.contains_key(&key)
        {
            let entity = find::decode(then)?;
            for foreign in &registry().entity(key.0).foreign {
                if foreign.on_delete == OnDelete::Cascade
                    && let Some(id) = find::reference(&entity, &foreign.name)
                {
                    parents.entry((foreign.kind, id)).or_default().push(key);
                }
            }
            gone.insert(key, entity);
        }
    }
    let restored = found
        .iter()
        .filter(|(_, [now, then])| now.is_none() && then.is_some());
    let mut pending: Vec<_> = restored.map(|(key, _)| *key).collect();
    let mut children = Vec::new();
    while let Some(parent) = pending.pop() {
        for key in parents.remove(&parent).unwrap_or_default() {
            if let Some(entity) = gone.remove(&key) {
                children.push(NotRestored::new(key, &entity));
                pending.push(key);
            }
        }
    }
    Ok(children)
}

impl NotRestored {
    fn new((kind, id): (EntityKind, Uuid), entity: &Object) -> Self {
        let field = registry().entity(kind).endpoint_key.as_deref();
        let name = field.and_then(|field| entity.str(field));
        let key = name.map_or_else(|| id.to_string(), str::to_owned);
        Self {
            kind: kind.name(),
            id,
            entity: format!("{}/{key}", endpoints::kind_name(kind)),
        }
    }
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
