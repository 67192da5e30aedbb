//! Gives declarative configurations access to a view of the store. The trait [`Existing`] cannot return read errors, so
//! [`ExistingEntities::finish`] returns the first one. In that case the caller must discard the loaded configuration.

use crate::error::StoreError;
use crate::view::View;
use model::EntityKind;
use model::declarative::{Existing, KeyPart};
use std::cell::RefCell;
use uuid::Uuid;

/// The entities that exist at one revision, for [`model::declarative`].
#[derive(Debug)]
pub struct ExistingEntities<'v> {
    view: &'v View<'v>,
    error: RefCell<Option<StoreError>>,
}

impl<'v> ExistingEntities<'v> {
    pub fn new(view: &'v View<'v>) -> Self {
        Self {
            view,
            error: RefCell::new(None),
        }
    }

    /// Returns the first read error, if there was one.
    pub fn finish(self) -> Result<(), StoreError> {
        self.error.into_inner().map_or(Ok(()), Err)
    }

    fn keep<T>(&self, result: Result<T, StoreError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) => {
                self.error.borrow_mut().get_or_insert(error);
                None
            }
        }
    }
}

impl Existing for ExistingEntities<'_> {
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&[u8]> {
        self.keep(self.view.get(kind, id)).flatten()
    }

    fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid> {
        self.keep(self.view.id_by_unique(kind, field, value))
            .flatten()
    }

    fn id_by_cache_key(&self, kind: EntityKind, parts: &[KeyPart<'_>]) -> Option<Uuid> {
        self.keep(self.view.id_by_cache_key(kind, parts)).flatten()
    }

    fn for_each(&self, kind: EntityKind, visit: &mut dyn FnMut(Uuid, &[u8])) {
        let Some(entities) = self.keep(self.view.iter(kind)) else {
            return;
        };
        for entity in entities {
            let Some((id, bytes)) = self.keep(entity) else {
                return;
            };
            visit(id, bytes);
        }
    }
}
