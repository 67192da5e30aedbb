//! What plugins look up while they run, read from the store: consumers and credentials, at the newest revision.

mod cache;

use cache::Cache;
use model::EntityKind;
use model::Object;
use model::codec;
use model::entities::{BasicauthCredential, Consumer, ConsumerId, KeyauthCredential};
use plugin::{Lookup, LookupError};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Journal, Reader, Store, StoreError, View};
use uuid::Uuid;

/// Lookups of all workers. Each thread reads through a reader of its own, which takes no lock that another worker uses.
#[derive(Debug)]
pub(crate) struct StoreLookup {
    store: Store,
    /// Tells this store's readers from those of another in the same process.
    number: u64,
}

/// What one thread reads one store with.
struct Local {
    number: u64,
    reader: Reader,
    keys: Cache<KeyauthCredential>,
    consumers: Cache<Consumer>,
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
}

impl From<ReadError> for LookupError {
    fn from(error: ReadError) -> Self {
        LookupError(Box::new(error))
    }
}

impl StoreLookup {
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
                keys: Cache::new(),
                consumers: Cache::new(),
            })),
        })
    }

    fn read<T>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<T, ReadError>,
    ) -> Result<T, LookupError> {
        self.with_local(|local| read(&local.reader, look))
    }

    /// From the cache that `cache` names, else from the store.
    fn cached<V: Clone>(
        &self,
        key: &[u8],
        cache: impl Fn(&mut Local) -> &mut Cache<V>,
        look: impl FnOnce(&View<'_>) -> Result<Option<V>, ReadError>,
    ) -> Result<Option<V>, LookupError> {
        let head = self.store.head();
        self.with_local(|local| {
            let tag = cache(local).tag(key);
            if let Some(value) = cache(local).get(tag, head) {
                return Ok(Some(value));
            }
            let (revision, found) = read(&local.reader, |view| Ok((view.revision(), look(view)?)))?;
            if let Some(value) = &found {
                cache(local).put(tag, revision, value.clone());
            }
            Ok(found)
        })
    }

    fn by_id<T: DeserializeOwned>(
        &self,
        kind: EntityKind,
        id: Uuid,
    ) -> Result<Option<T>, LookupError> {
        self.read(|view| decoded(view, kind, id))
    }

    fn by_unique<T: DeserializeOwned>(
        &self,
        kind: EntityKind,
        field: &str,
        value: &str,
    ) -> Result<Option<T>, LookupError> {
        self.read(|view| decoded_by_unique(view, kind, field, value))
    }
}

fn read<T>(
    reader: &Reader,
    look: impl FnOnce(&View<'_>) -> Result<T, ReadError>,
) -> Result<T, LookupError> {
    Ok(reader.read(look).map_err(ReadError::from)??)
}

fn decoded_by_unique<T: DeserializeOwned>(
    view: &View<'_>,
    kind: EntityKind,
    field: &str,
    value: &str,
) -> Result<Option<T>, ReadError> {
    match view.id_by_unique(kind, field, value)? {
        Some(id) => decoded(view, kind, id),
        None => Ok(None),
    }
}

fn decoded<T: DeserializeOwned>(
    view: &View<'_>,
    kind: EntityKind,
    id: Uuid,
) -> Result<Option<T>, ReadError> {
    let entity = view.get(kind, id)?;
    Ok(entity.map(codec::decode).transpose()?)
}

impl Lookup for StoreLookup {
    fn keyauth_credential(&self, key: &str) -> Result<Option<KeyauthCredential>, LookupError> {
        self.cached(
            key.as_bytes(),
            |local| &mut local.keys,
            |view| decoded_by_unique(view, EntityKind::KeyauthCredentials, "key", key),
        )
    }

    fn basicauth_credential(
        &self,
        username: &str,
    ) -> Result<Option<BasicauthCredential>, LookupError> {
        self.by_unique(EntityKind::BasicauthCredentials, "username", username)
    }

    fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, LookupError> {
        self.cached(
            id.0.as_bytes(),
            |local| &mut local.consumers,
            |view| decoded(view, EntityKind::Consumers, id.0),
        )
    }

    fn consumer_by_username(&self, username: &str) -> Result<Option<Consumer>, LookupError> {
        self.by_unique(EntityKind::Consumers, "username", username)
    }

    fn entity(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
        self.by_id(kind, id)
    }
}
