//! The entities that plugins look up while they run: consumers, credentials and whatever else a plugin has, read from the
//! store at its newest revision. Each worker keeps what it has looked up, until an entity of the same kind changes.

mod cache;
mod logged;

use cache::Cache;
use logged::Logged;
use model::EntityKind;
use model::Object;
use model::codec;
use model::declarative::DEFAULT_WORKSPACE;
use model::entities::Consumer;
use plugin::trace::queries;
use plugin::{Decode, DecodeAll, Decoded, Entities, EntityKey, LookupError, ParentKey};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Reader, Revision, Store, StoreError, TagFilter, View};
use uuid::Uuid;

/// Look-ups for all workers. Each thread has its own reader, so workers share no lock.
#[derive(Debug)]
pub(crate) struct StoreEntities {
    store: Store,
    /// Distinguishes the readers of this store from those of another store in the same process.
    number: u64,
}

/// Reader and cache of one thread for one store.
struct Local {
    number: u64,
    reader: Reader,
    found: Cache<Found>,
    created: Cache<u64>,
    logged: Logged,
    /// The id of the workspace, and the revision at which it was read.
    workspace: Option<(Revision, Uuid)>,
    /// Buffer for the name of an entity in the cache.
    name: Vec<u8>,
}

/// A look-up that a thread keeps.
#[derive(Clone)]
struct Found {
    entity: Decoded,
    /// The consumer that the entity belongs to, if the look-up was for both.
    consumer: Option<Arc<Consumer>>,
}

impl Found {
    fn new(entity: Decoded) -> Self {
        Self {
            entity,
            consumer: None,
        }
    }

    fn into_owned(self) -> Option<(Decoded, Arc<Consumer>)> {
        Some((self.entity, self.consumer?))
    }
}

thread_local! {
    static LOCAL: RefCell<Option<Local>> = const { RefCell::new(None) };
}

static NEXT_NUMBER: AtomicU64 = AtomicU64::new(0);

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Decode(#[from] codec::DecodeError),
    #[error("the entity {0} is in an index of the store, but not in its table")]
    Missing(Uuid),
}

impl From<ReadError> for LookupError {
    fn from(error: ReadError) -> Self {
        LookupError(Box::new(error))
    }
}

impl StoreEntities {
    pub(crate) fn new(store: Store) -> Self {
        Self {
            store,
            number: NEXT_NUMBER.fetch_add(1, Ordering::Relaxed),
        }
    }

    fn with_local<T>(&self, act: impl FnOnce(&mut Local) -> T) -> T {
        LOCAL.with_borrow_mut(|slot| match slot {
            Some(local) if local.number == self.number => act(local),
            other => act(other.insert(Local {
                number: self.number,
                reader: self.store.reader(),
                found: Cache::new(),
                created: Cache::new(),
                logged: Logged::default(),
                workspace: None,
                name: Vec::new(),
            })),
        })
    }
}

fn read<T>(
    reader: &Reader,
    look: impl FnOnce(&View<'_>) -> Result<T, ReadError>,
) -> Result<T, LookupError> {
    Ok(reader.read(look).map_err(ReadError::from)??)
}

/// Returns the kind and the field of a key, for spans.
fn key_text(key: EntityKey<'_>) -> (&'static str, &'static str) {
    match key {
        EntityKey::Id(kind, _) => (kind.name(), "id"),
        EntityKey::Unique { kind, field, .. } => (kind.name(), field),
    }
}

/// Returns the stored form of an entity, and its consumer.
fn stored_owned<'v>(
    view: &'v View<'_>,
    key: EntityKey<'_>,
) -> Result<Option<store::Owned<'v>>, ReadError> {
    Ok(match key {
        EntityKey::Id(kind, id) => view.owned(kind, id)?,
        EntityKey::Unique { kind, field, value } => view.owned_by_unique(kind, field, value)?,
    })
}

/// Returns the stored form of an entity.
fn stored<'v>(view: &'v View<'_>, key: EntityKey<'_>) -> Result<Option<&'v [u8]>, ReadError> {
    let (kind, id) = match key {
        EntityKey::Id(kind, id) => (kind, Some(id)),
        EntityKey::Unique { kind, field, value } => (kind, view.id_by_unique(kind, field, value)?),
    };
    match id {
        Some(id) => Ok(view.get(kind, id)?),
        None => Ok(None),
    }
}

/// Returns the id of the workspace. It never changes while there are entities in it.
fn workspace(view: &View<'_>) -> Result<Uuid, ReadError> {
    let found = view.id_by_unique(EntityKind::Workspaces, "name", "default")?;
    Ok(found.unwrap_or(DEFAULT_WORKSPACE))
}

/// Returns the stored forms of the entities that reference another one.
fn stored_children<'v>(view: &'v View<'_>, key: ParentKey) -> Result<Vec<&'v [u8]>, ReadError> {
    let ParentKey {
        kind,
        field,
        parent,
    } = key;
    let mut found = Vec::new();
    for id in view.child_ids(kind, field, parent)? {
        let id = id?;
        found.push(view.get(kind, id)?.ok_or(ReadError::Missing(id))?);
    }
    Ok(found)
}

/// Writes what distinguishes the entities that reference another one from all other entries. An entry for one entity
/// has a `0` after the number of the kind, or a field name, whose letters are smaller than this byte.
fn write_children_name(key: ParentKey, out: &mut Vec<u8>) {
    out.clear();
    out.push(key.kind.number());
    out.push(0xff);
    out.extend_from_slice(key.field.as_bytes());
    out.push(0);
    out.extend_from_slice(key.parent.as_bytes());
}

/// Writes what distinguishes an entity from all others.
fn write_name(key: EntityKey<'_>, out: &mut Vec<u8>) {
    out.clear();
    match key {
        EntityKey::Id(kind, id) => {
            out.push(kind.number());
            out.push(0);
            out.extend_from_slice(id.as_bytes());
        }
        EntityKey::Unique { kind, field, value } => {
            out.push(kind.number());
            out.extend_from_slice(field.as_bytes());
            out.push(0);
            out.extend_from_slice(value.as_bytes());
        }
    }
}

impl Entities for StoreEntities {
    fn last_change(&self, kind: EntityKind) -> Option<u64> {
        Some(self.store.last_change(kind).0)
    }

    fn find(&self, key: EntityKey<'_>, decode: Decode) -> Result<Option<Decoded>, LookupError> {
        let (EntityKey::Id(kind, _) | EntityKey::Unique { kind, .. }) = key;
        let since = self.store.last_change(kind);
        self.with_local(|local| {
            write_name(key, &mut local.name);
            let tag = local.found.tag(&local.name);
            if let Some(found) = local.found.get(tag, since) {
                return Ok(Some(found.entity));
            }
            let (kind, field) = key_text(key);
            let reading = || {
                read(&local.reader, |view| {
                    let entity = stored(view, key)?.map(decode).transpose()?;
                    Ok((view.revision(), entity))
                })
            };
            let (revision, found) = queries::measure(format_args!("{kind} by {field}"), reading)?;
            if let Some(entity) = &found {
                local.found.put(tag, revision, Found::new(entity.clone()));
            }
            Ok(found)
        })
    }

    fn find_owned(
        &self,
        key: EntityKey<'_>,
        decode: Decode,
    ) -> Result<Option<(Decoded, Arc<Consumer>)>, LookupError> {
        let (EntityKey::Id(kind, _) | EntityKey::Unique { kind, .. }) = key;
        let consumers = self.store.last_change(EntityKind::Consumers);
        let since = self.store.last_change(kind).max(consumers);
        self.with_local(|local| {
            write_name(key, &mut local.name);
            // No text and no other name of the same length has this byte at its end.
            local.name.push(0xff);
            let tag = local.found.tag(&local.name);
            let known = local.found.get(tag, since);
            if let Some(owned) = known.and_then(Found::into_owned) {
                return Ok(Some(owned));
            }
            let (kind, field) = key_text(key);
            let reading = || {
                read(&local.reader, |view| {
                    let Some(stored) = stored_owned(view, key)? else {
                        return Ok((view.revision(), None));
                    };
                    let owned = (decode(stored.entity)?, Arc::new(stored.consumer));
                    Ok((view.revision(), Some(owned)))
                })
            };
            let (revision, found) = queries::measure(format_args!("{kind} by {field}"), reading)?;
            if let Some((entity, consumer)) = &found {
                let found = Found {
                    entity: entity.clone(),
                    consumer: Some(consumer.clone()),
                };
                local.found.put(tag, revision, found);
            }
            Ok(found)
        })
    }

    fn find_children(&self, key: ParentKey, decode: DecodeAll) -> Result<Decoded, LookupError> {
        let since = self.store.last_change(key.kind);
        self.with_local(|local| {
            write_children_name(key, &mut local.name);
            let tag = local.found.tag(&local.name);
            if let Some(found) = local.found.get(tag, since) {
                return Ok(found.entity);
            }
            let (kind, field) = (key.kind.name(), key.field);
            let reading = || {
                read(&local.reader, |view| {
                    let entities = decode(&stored_children(view, key)?)?;
                    Ok((view.revision(), entities))
                })
            };
            let (revision, found) = queries::measure(format_args!("{kind} by {field}"), reading)?;
            local.found.put(tag, revision, Found::new(found.clone()));
            Ok(found)
        })
    }

    fn object(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
        self.with_local(|local| {
            read(&local.reader, |view| {
                let entity = view.get(kind, id)?;
                Ok(entity.map(codec::decode).transpose()?)
            })
        })
    }

    fn logged(&self, kind: EntityKind, id: Uuid) -> Result<Option<Arc<[u8]>>, LookupError> {
        let since = self.store.last_change(kind);
        self.with_local(|local| {
            if let Some(text) = local.logged.get(kind, id, since) {
                return Ok(Some(text.clone()));
            }
            let (revision, workspace, entity) = read(&local.reader, |view| {
                let entity: Option<Object> = view.get(kind, id)?.map(codec::decode).transpose()?;
                Ok((view.revision(), workspace(view)?, entity))
            })?;
            Ok(entity.map(|entity| {
                let mut text = Vec::new();
                plugin::write_entity(kind, &entity, workspace, &mut text);
                let text: Arc<[u8]> = text.into();
                local.logged.put(kind, id, revision, &text);
                text
            }))
        })
    }

    fn id_of(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<Uuid>, LookupError> {
        self.with_local(|local| {
            read(&local.reader, |view| {
                Ok(view.id_by_unique(kind, field, value)?)
            })
        })
    }

    fn ids_after(
        &self,
        kind: EntityKind,
        after: Option<Uuid>,
        most: usize,
    ) -> Result<Vec<Uuid>, LookupError> {
        self.with_local(|local| {
            read(&local.reader, |view| {
                let page = view.page(kind, after, most, TagFilter::None)?;
                Ok(page.entities.iter().map(|(id, _)| *id).collect())
            })
        })
    }

    fn created_revision(&self, kind: EntityKind, id: Uuid) -> Result<Option<u64>, LookupError> {
        let since = self.store.last_change(kind);
        self.with_local(|local| {
            write_name(EntityKey::Id(kind, id), &mut local.name);
            let tag = local.created.tag(&local.name);
            if let Some(created) = local.created.get(tag, since) {
                return Ok(Some(created));
            }
            let (revision, created) = read(&local.reader, |view| {
                Ok((view.revision(), view.created(kind, id)?))
            })?;
            if let Some(created) = created {
                local.created.put(tag, revision, created);
            }
            Ok(created)
        })
    }

    fn workspace(&self) -> Uuid {
        let kind = EntityKind::Workspaces;
        let since = self.store.last_change(kind);
        self.with_local(|local| {
            if let Some((_, id)) = local.workspace.filter(|(read, _)| *read >= since) {
                return id;
            }
            let found = read(&local.reader, |view| {
                Ok((view.revision(), workspace(view)?))
            });
            local.workspace = found.ok();
            local.workspace.map_or(DEFAULT_WORKSPACE, |(_, id)| id)
        })
    }
}

#[cfg(test)]
mod tests;
