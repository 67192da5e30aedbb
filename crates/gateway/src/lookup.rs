//! What plugins look up while they run, read from the store: consumers and credentials, at the newest revision.

use model::EntityKind;
use model::Object;
use model::codec;
use model::entities::{BasicauthCredential, Consumer, ConsumerId, KeyauthCredential};
use plugin::{Lookup, LookupError};
use serde::de::DeserializeOwned;
use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};
use store::{Reader, Store, StoreError, View};
use uuid::Uuid;

/// Lookups of all workers. Each thread reads through a reader of its own, which takes no lock that another worker uses.
#[derive(Debug)]
pub(crate) struct StoreLookup {
    store: Store,
    /// Tells this store's readers from those of another in the same process.
    number: u64,
}

thread_local! {
    static READER: RefCell<Option<(u64, Reader)>> = const { RefCell::new(None) };
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

    fn read<T>(
        &self,
        look: impl FnOnce(&View<'_>) -> Result<T, ReadError>,
    ) -> Result<T, LookupError> {
        READER.with_borrow_mut(|slot| {
            let reader = match slot {
                Some((number, reader)) if *number == self.number => reader,
                other => &other.insert((self.number, self.store.reader())).1,
            };
            let result = reader.read(look).map_err(ReadError::from)?;
            Ok(result?)
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
        self.read(|view| match view.id_by_unique(kind, field, value)? {
            Some(id) => decoded(view, kind, id),
            None => Ok(None),
        })
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
        self.by_unique(EntityKind::KeyauthCredentials, "key", key)
    }

    fn basicauth_credential(
        &self,
        username: &str,
    ) -> Result<Option<BasicauthCredential>, LookupError> {
        self.by_unique(EntityKind::BasicauthCredentials, "username", username)
    }

    fn consumer(&self, id: ConsumerId) -> Result<Option<Consumer>, LookupError> {
        self.by_id(EntityKind::Consumers, id.0)
    }

    fn consumer_by_username(&self, username: &str) -> Result<Option<Consumer>, LookupError> {
        self.by_unique(EntityKind::Consumers, "username", username)
    }

    fn entity(&self, kind: EntityKind, id: Uuid) -> Result<Option<Object>, LookupError> {
        self.by_id(kind, id)
    }
}
