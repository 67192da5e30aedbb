//! The look-up of entities while a request is processed: by id, by the value of a unique field, or all that reference
//! another entity. The gateway implements it with the entity tables of the store. The trait keeps the data plane
//! independent of the store.

use model::codec::DecodeError;
use model::declarative::DEFAULT_WORKSPACE;
use model::entities::Consumer;
use model::{EntityKind, Object};
use serde::de::DeserializeOwned;
use std::any::Any;
use std::sync::Arc;
use uuid::Uuid;

/// Finds entities that are not part of the snapshot. The calls block a worker, so an implementation must read local
/// data only and must not wait for the network.
pub trait Entities: Send + Sync {
    /// Returns an entity at its latest revision. An implementation may keep the decoded entity, so it must always get
    /// the same `decode` for a kind.
    fn find(&self, key: EntityKey<'_>, decode: Decode) -> Result<Option<Decoded>, LookupError>;

    /// Returns an entity and the consumer that it belongs to, both at the same revision, the latest. Only for types whose
    /// entities always belong to a consumer, such as credentials. An implementation may keep the result, so it must
    /// always get the same `decode` for a kind.
    fn find_owned(
        &self,
        key: EntityKey<'_>,
        decode: Decode,
    ) -> Result<Option<(Decoded, Arc<Consumer>)>, LookupError> {
        let _ = (key, decode);
        Err(LookupError("no owners of entities are found here".into()))
    }

    /// Returns all entities that reference another one, in the order of their ids. `decode` gets their stored forms. An
    /// implementation may keep the result, so it must always get the same `decode` for a kind and a field.
    fn find_children(&self, key: ParentKey, decode: DecodeAll) -> Result<Decoded, LookupError> {
        let _ = (key, decode);
        Err(LookupError(
            "entities are not found by reference here".into(),
        ))
    }

    /// Returns an entity with all its fields, for plugins that show it.
    fn object(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError>;

    /// Returns an entity as log records show it ([`crate::write_entity`]). Every record has up to three entities, so an
    /// implementation may keep their text until an entity of the kind changes.
    fn logged(&self, kind: EntityKind, id: Uuid) -> Result<Option<Arc<[u8]>>, LookupError> {
        let entity = self.object(kind, id)?;
        Ok(entity.map(|entity| {
            let mut text = Vec::new();
            crate::log::write_entity(kind, &entity, self.workspace(), &mut text);
            text.into()
        }))
    }

    /// Returns the id of the entity with this value of a field that the kind's schema declares unique.
    fn id_of(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<Uuid>, LookupError> {
        let _ = (kind, field, value);
        Ok(None)
    }

    /// Returns up to `most` ids of a kind, in their order, from the one after `after`.
    fn ids_after(
        &self,
        kind: EntityKind,
        after: Option<Uuid>,
        most: usize,
    ) -> Result<Vec<Uuid>, LookupError> {
        let _ = (kind, after, most);
        Ok(Vec::new())
    }

    /// Returns the revision in which an entity was created, if it exists. An entity that was deleted and made again with
    /// the same id has a later one. So what belongs to the former entity, such as its tokens, does not belong to it.
    fn created_revision(&self, kind: EntityKind, id: Uuid) -> Result<Option<u64>, LookupError> {
        Ok(self.object(kind, id)?.map(|_| 0))
    }

    /// Returns the revision of the last change of a kind, so that what was found before need not be looked up again.
    /// `None` if it is not known.
    fn last_change(&self, kind: EntityKind) -> Option<u64> {
        let _ = kind;
        None
    }

    /// Returns the id of the workspace `default`, which holds all entities.
    fn workspace(&self) -> Uuid {
        DEFAULT_WORKSPACE
    }
}

/// A decoded entity. Its type is that of [`Decode`].
pub type Decoded = Arc<dyn Any + Send + Sync>;

/// An entity, and the consumer that it belongs to.
pub type Owned<E> = (Arc<E>, Arc<Consumer>);

/// Decodes an entity from the form in which it is stored.
pub type Decode = fn(&[u8]) -> Result<Decoded, DecodeError>;

/// Names one entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntityKey<'k> {
    Id(EntityKind, Uuid),
    Unique {
        kind: EntityKind,
        /// Name of a field that the kind's schema declares unique.
        field: &'static str,
        value: &'k str,
    },
}

/// Decodes all entities that reference another one.
pub type DecodeAll = fn(&[&[u8]]) -> Result<Decoded, DecodeError>;

/// Names the entities that reference another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentKey {
    /// The kind of the entities.
    pub kind: EntityKind,
    /// Name of the field that has the reference.
    pub field: &'static str,
    /// The entity that they reference.
    pub parent: Uuid,
}

/// A struct with the fields of an entity that plugins use.
pub trait Entity: DeserializeOwned + Send + Sync + 'static {
    const KIND: EntityKind;
}

impl Entity for Consumer {
    const KIND: EntityKind = EntityKind::Consumers;
}

impl dyn Entities + '_ {
    pub fn by_id<E: Entity>(&self, id: Uuid) -> Result<Option<Arc<E>>, LookupError> {
        self.typed(EntityKey::Id(E::KIND, id))
    }

    pub fn by_unique<E: Entity>(
        &self,
        field: &'static str,
        value: &str,
    ) -> Result<Option<Arc<E>>, LookupError> {
        let kind = E::KIND;
        self.typed(EntityKey::Unique { kind, field, value })
    }

    /// Returns all entities whose reference `field` is `parent`, in the order of their ids.
    pub fn children<E: Entity>(
        &self,
        field: &'static str,
        parent: Uuid,
    ) -> Result<Arc<Vec<E>>, LookupError> {
        let kind = E::KIND;
        let key = ParentKey {
            kind,
            field,
            parent,
        };
        let found = self.find_children(key, |stored| {
            let entities = stored.iter().map(|stored| model::codec::decode(stored));
            let entities: Vec<E> = entities.collect::<Result<_, _>>()?;
            Ok(Arc::new(entities))
        })?;
        found
            .downcast()
            .map_err(|_| LookupError(TWO_STRUCTS.into()))
    }

    /// Returns an entity with this id, and the consumer that it belongs to.
    pub fn owned_by_id<E: Entity>(&self, id: Uuid) -> Result<Option<Owned<E>>, LookupError> {
        self.owned(EntityKey::Id(E::KIND, id))
    }

    /// Returns the entity with this value of a unique field, and the consumer that it belongs to.
    pub fn owned_by_unique<E: Entity>(
        &self,
        field: &'static str,
        value: &str,
    ) -> Result<Option<Owned<E>>, LookupError> {
        let kind = E::KIND;
        self.owned(EntityKey::Unique { kind, field, value })
    }

    fn typed<E: Entity>(&self, key: EntityKey<'_>) -> Result<Option<Arc<E>>, LookupError> {
        self.find(key, decode::<E>)?.map(downcast).transpose()
    }

    fn owned<E: Entity>(&self, key: EntityKey<'_>) -> Result<Option<Owned<E>>, LookupError> {
        let found = self.find_owned(key, decode::<E>)?;
        let typed = found.map(|(entity, consumer)| Ok((downcast(entity)?, consumer)));
        typed.transpose()
    }
}

fn decode<E: Entity>(stored: &[u8]) -> Result<Decoded, DecodeError> {
    let entity: E = model::codec::decode(stored)?;
    Ok(Arc::new(entity))
}

fn downcast<E: Entity>(entity: Decoded) -> Result<Arc<E>, LookupError> {
    let typed = entity.downcast();
    typed.map_err(|_| LookupError(TWO_STRUCTS.into()))
}

const TWO_STRUCTS: &str = "two plugins read an entity into different structs";

/// The store could not be read, or an entity in it could not be decoded.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookupError(#[from] pub Box<dyn std::error::Error + Send + Sync>);

/// The entities of a node without consumers and credentials: nothing is found.
pub struct NoEntities;

impl Entities for NoEntities {
    fn find(&self, _: EntityKey<'_>, _: Decode) -> Result<Option<Decoded>, LookupError> {
        Ok(None)
    }

    fn find_owned(
        &self,
        _: EntityKey<'_>,
        _: Decode,
    ) -> Result<Option<(Decoded, Arc<Consumer>)>, LookupError> {
        Ok(None)
    }

    fn find_children(&self, _: ParentKey, decode: DecodeAll) -> Result<Decoded, LookupError> {
        decode(&[]).map_err(|error| LookupError(Box::new(error)))
    }

    fn object(&self, _: EntityKind, _: Uuid) -> Result<Option<Object>, LookupError> {
        Ok(None)
    }
}
