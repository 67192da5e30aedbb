//! The text of entities in log records, kept by each worker: every record has up to three entities, and the same routes
//! and services occur again and again.

use model::EntityKind;
use std::sync::Arc;
use store::Revision;
use uuid::Uuid;

/// Number of texts. Each entity has one place, where it replaces another.
const PLACES: usize = 1024;
/// A longer text is not kept, so that a full cache takes at most 16 MiB per worker.
const LONGEST: usize = 16 * 1024;

#[derive(Default)]
pub(super) struct Logged {
    /// Empty until the first text, so that a worker without log records needs no memory.
    texts: Vec<Option<Text>>,
}

struct Text {
    kind: EntityKind,
    id: Uuid,
    revision: Revision,
    text: Arc<[u8]>,
}

impl Logged {
    /// Returns a text that was written from an entity read at revision `since` or later.
    pub(super) fn get(&self, kind: EntityKind, id: Uuid, since: Revision) -> Option<&Arc<[u8]>> {
        let found = self.texts.get(place(kind, id))?.as_ref()?;
        let is_it = found.id == id && found.kind == kind && found.revision >= since;
        is_it.then_some(&found.text)
    }

    pub(super) fn put(&mut self, kind: EntityKind, id: Uuid, revision: Revision, text: &Arc<[u8]>) {
        if text.len() > LONGEST {
            return;
        }
        if self.texts.is_empty() {
            self.texts.resize_with(PLACES, || None);
        }
        self.texts[place(kind, id)] = Some(Text {
            kind,
            id,
            revision,
            text: text.clone(),
        });
    }
}

/// Ids are random in their last bits, or numbers that follow each other. Two entities with the same place cost only
/// time.
fn place(kind: EntityKind, id: Uuid) -> usize {
    let kind = usize::from(kind.number()) * (PLACES / 8);
    (id.as_u128() as usize).wrapping_add(kind) % PLACES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_counts_until_its_entity_changes() {
        let (mut logged, id) = (Logged::default(), Uuid::from_u128(7));
        let kind = EntityKind::Routes;
        assert_eq!(logged.get(kind, id, Revision(0)), None);
        let text: Arc<[u8]> = b"{}".as_slice().into();
        logged.put(kind, id, Revision(2), &text);
        assert_eq!(logged.get(kind, id, Revision(1)), Some(&text));
        assert_eq!(logged.get(kind, id, Revision(3)), None);
        assert_eq!(logged.get(EntityKind::Services, id, Revision(1)), None);
        let other = Uuid::from_u128(7 + PLACES as u128);
        assert_eq!(logged.get(kind, other, Revision(1)), None);
    }

    #[test]
    fn long_texts_are_not_kept() {
        let (mut logged, id) = (Logged::default(), Uuid::from_u128(7));
        logged.put(
            EntityKind::Routes,
            id,
            Revision(1),
            &vec![b' '; LONGEST + 1].into(),
        );
        assert_eq!(logged.get(EntityKind::Routes, id, Revision(1)), None);
    }
}
