//! Entities in memory.

use crate::entities::{Decode, DecodeAll, Decoded, Entities, EntityKey, LookupError, ParentKey};
use model::entities::Consumer;
use model::{EntityKind, Object, Value};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};
use uuid::Uuid;

/// Entities of a node for tests. They may change between two requests. Look-ups find what was put last.
#[derive(Default)]
pub struct FakeEntities(RwLock<Content>);

#[derive(Default)]
struct Content {
    entities: Vec<Stored>,
    failing: Vec<String>,
}

struct Stored {
    kind: EntityKind,
    id: Uuid,
    entity: Object,
    /// The entity as its plugin reads it. It is kept, as in the gateway.
    decoded: OnceLock<Decoded>,
}

impl Stored {
    fn decoded(&self, decode: Decode) -> Result<Decoded, LookupError> {
        if let Some(decoded) = self.decoded.get() {
            return Ok(Arc::clone(decoded));
        }
        let decoded = decode(&model::codec::encode(&self.entity));
        let decoded = decoded.map_err(|error| LookupError(Box::new(error)))?;
        Ok(Arc::clone(self.decoded.get_or_init(|| decoded)))
    }
}

impl FakeEntities {
    /// Adds an entity in its stored form, which has an `id`. Another entity with this id is replaced.
    #[must_use]
    pub fn with(self, kind: EntityKind, entity: serde_json::Value) -> Self {
        self.put(kind, entity);
        self
    }

    /// Makes look-ups of this id or value of a unique field fail, as if the store could not be read.
    #[must_use]
    pub fn failing(self, key: impl ToString) -> Self {
        self.write(|content| content.failing.push(key.to_string()));
        self
    }

    /// Adds or replaces an entity in its stored form.
    pub fn put(&self, kind: EntityKind, entity: serde_json::Value) {
        let entity: Object = serde_json::from_value(entity).expect("an entity is an object");
        let id = entity.str("id").expect("an entity has an id");
        let id = Uuid::try_parse(id).expect("the id of an entity is a UUID");
        self.remove(kind, id);
        self.write(|content| {
            content.entities.push(Stored {
                kind,
                id,
                entity,
                decoded: OnceLock::new(),
            });
        });
    }

    pub fn remove(&self, kind: EntityKind, id: Uuid) {
        self.write(|content| {
            (content.entities).retain(|stored| (stored.kind, stored.id) != (kind, id));
        });
    }

    fn write(&self, change: impl FnOnce(&mut Content)) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }

    fn read(&self) -> RwLockReadGuard<'_, Content> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Content {
    fn check(&self, key: &str) -> Result<(), LookupError> {
        match self.failing.iter().any(|failing| failing == key) {
            true => Err(LookupError("the store is broken".into())),
            false => Ok(()),
        }
    }

    fn by_id(&self, kind: EntityKind, id: Uuid) -> Result<Option<&Stored>, LookupError> {
        self.check(&id.to_string())?;
        let mut all = self.entities.iter();
        Ok(all.find(|stored| (stored.kind, stored.id) == (kind, id)))
    }

    fn find(&self, key: EntityKey<'_>) -> Result<Option<&Stored>, LookupError> {
        match key {
            EntityKey::Id(kind, id) => self.by_id(kind, id),
            EntityKey::Unique { kind, field, value } => {
                self.check(value)?;
                let mut of_kind = self.entities.iter().filter(|stored| stored.kind == kind);
                Ok(of_kind.find(|stored| stored.entity.str(field) == Some(value)))
            }
        }
    }
}

impl Entities for FakeEntities {
    fn find(&self, key: EntityKey<'_>, decode: Decode) -> Result<Option<Decoded>, LookupError> {
        let content = self.read();
        let found = content.find(key)?;
        found.map(|stored| stored.decoded(decode)).transpose()
    }

    fn find_owned(
        &self,
        key: EntityKey<'_>,
        decode: Decode,
    ) -> Result<Option<(Decoded, Arc<Consumer>)>, LookupError> {
        let content = self.read();
        let Some(stored) = content.find(key)? else {
            return Ok(None);
        };
        let missing = || LookupError("the consumer of the entity does not exist".into());
        let owner = stored.entity.get("consumer").and_then(Value::as_object);
        let owner = owner.and_then(|owner| owner.str("id")?.parse().ok());
        let owner = owner.ok_or_else(missing)?;
        let owner = content.by_id(EntityKind::Consumers, owner)?;
        let owner = owner.ok_or_else(missing)?;
        let consumer = model::codec::decode(&model::codec::encode(&owner.entity));
        let consumer: Consumer = consumer.map_err(|error| LookupError(Box::new(error)))?;
        Ok(Some((stored.decoded(decode)?, Arc::new(consumer))))
    }

    fn find_children(&self, key: ParentKey, decode: DecodeAll) -> Result<Decoded, LookupError> {
        let content = self.read();
        let parent = key.parent.to_string();
        content.check(&parent)?;
        let references = |entity: &Object| {
            let reference = entity.get(key.field).and_then(Value::as_object);
            reference.and_then(|reference| reference.str("id")) == Some(&*parent)
        };
        let all = content.entities.iter();
        let mut found: Vec<&Stored> = all
            .filter(|stored| stored.kind == key.kind && references(&stored.entity))
            .collect();
        found.sort_unstable_by_key(|stored| stored.id);
        let stored: Vec<Vec<u8>> = found
            .iter()
            .map(|stored| model::codec::encode(&stored.entity))
            .collect();
        let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        decode(&stored).map_err(|error| LookupError(Box::new(error)))
    }

    fn object(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
        Ok(self
            .read()
            .by_id(kind, id)?
            .map(|stored| stored.entity.clone()))
    }

    fn id_of(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<Uuid>, LookupError> {
        let content = self.read();
        content.check(value)?;
        let mut of_kind = content.entities.iter().filter(|stored| stored.kind == kind);
        let found = of_kind.find(|stored| stored.entity.str(field) == Some(value));
        Ok(found.map(|stored| stored.id))
    }

    fn ids_after(
        &self,
        kind: EntityKind,
        after: Option<Uuid>,
        most: usize,
    ) -> Result<Vec<Uuid>, LookupError> {
        let content = self.read();
        let of_kind = content.entities.iter().filter(|stored| stored.kind == kind);
        let mut ids: Vec<Uuid> = of_kind.map(|stored| stored.id).collect();
        ids.sort_unstable();
        ids.retain(|id| after.is_none_or(|after| *id > after));
        ids.truncate(most);
        Ok(ids)
    }
}
