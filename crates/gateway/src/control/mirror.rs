//! A view of the store as the declarative loader reads it. The loader has no errors of its own for a store that cannot be
//! read: the first one is kept here, and what was loaded meanwhile must be thrown away.

use model::EntityKind;
use model::declarative::Existing;
use std::cell::RefCell;
use store::{StoreError, View};
use uuid::Uuid;

pub(crate) struct Mirror<'v> {
    view: &'v View<'v>,
    error: RefCell<Option<StoreError>>,
}

impl<'v> Mirror<'v> {
    pub(crate) fn new(view: &'v View<'v>) -> Self {
        Self {
            view,
            error: RefCell::new(None),
        }
    }

    /// Whether everything that was asked could be read.
    pub(crate) fn finish(self) -> Result<(), StoreError> {
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

impl Existing for Mirror<'_> {
    fn get(&self, kind: EntityKind, id: Uuid) -> Option<&[u8]> {
        self.keep(self.view.get(kind, id)).flatten()
    }

    fn id_by_unique(&self, kind: EntityKind, field: &str, value: &str) -> Option<Uuid> {
        self.keep(self.view.id_by_unique(kind, field, value))
            .flatten()
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
