//! Compares the store with the model: all entities, all lookups, and all kept revisions.

use super::model::{Cell, Key, RULES, State};
use super::plan::{number, text};
use model::EntityKind as K;
use std::collections::BTreeMap;
use store::{Change, ChangeLog, KeyPart, Revision, Store, TagFilter, View};
use testkit::random::Random;
use uuid::Uuid;

/// Checks that the view has exactly the entities and named values of the model.
pub fn assert_content(view: &View<'_>, state: &State) {
    let mut rows = state.rows.iter();
    for rule in RULES {
        let of_kind = state
            .rows
            .range((rule.kind, Uuid::nil())..=(rule.kind, Uuid::max()));
        let mut expected = of_kind.map(|((_, id), row)| (*id, row.bytes.as_slice()));
        let mut count = 0;
        for entity in view.iter(rule.kind).unwrap() {
            let (id, bytes) = entity.unwrap();
            assert!(
                expected.next() == Some((id, bytes)),
                "{} {id}",
                rule.kind.name()
            );
            count += 1;
        }
        let missing = expected.next();
        assert!(missing.is_none(), "{missing:?} is missing");
        assert_eq!(view.count(rule.kind).unwrap(), count);
        for _ in 0..count {
            rows.next();
        }
    }
    assert!(rows.next().is_none(), "every kind has a rule");
    for name in 0..3 {
        let name = format!("name-{name}");
        let expected = state.meta.get(&name).map(Vec::as_slice);
        assert_eq!(view.meta(&name).unwrap(), expected, "{name}");
    }
}

/// Checks all lookups by unique fields, parents and tags.
pub fn assert_indexes(view: &View<'_>, state: &State) {
    assert_unique(view, state);
    assert_children(view, state);
    assert_tags(view, state);
}

fn assert_unique(view: &View<'_>, state: &State) {
    let mut taken: BTreeMap<(K, &str, &str), Uuid> = BTreeMap::new();
    for ((kind, id), row) in &state.rows {
        let rule = super::model::rule_of(*kind);
        for field in rule.unique {
            if let Some(Cell::Text(text)) = row.cells.get(*field) {
                taken.insert((*kind, field, text), *id);
            }
        }
        if !rule.together.is_empty() {
            let parts: Vec<KeyPart<'_>> = rule
                .together
                .iter()
                .map(|field| match row.cells.get(*field) {
                    Some(Cell::Text(text)) => KeyPart::Text(text),
                    Some(Cell::Parent(id)) => KeyPart::Reference(*id),
                    _ => KeyPart::Absent,
                })
                .collect();
            assert_eq!(view.id_by_cache_key(*kind, &parts).unwrap(), Some(*id));
        }
    }
    for ((kind, field, text), id) in &taken {
        assert_eq!(view.id_by_unique(*kind, field, text).unwrap(), Some(*id));
    }
    // Names that no entity has now must not be found.
    let mut random = Random::new(0);
    for rule in RULES {
        for field in rule.unique {
            let text = text(&mut random);
            let expected = taken.get(&(rule.kind, *field, text.as_str())).copied();
            let found = view.id_by_unique(rule.kind, field, &text).unwrap();
            assert_eq!(found, expected, "{} {field} {text}", rule.kind.name());
        }
    }
}

fn assert_children(view: &View<'_>, state: &State) {
    for rule in RULES {
        for (field, parent_kind, _) in rule.parents {
            let mut expected: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
            for ((kind, id), row) in &state.rows {
                if let (true, Some(parent)) = (*kind == rule.kind, row.parent(field)) {
                    expected.entry(parent).or_default().push(*id);
                }
            }
            for entity in 0..8 {
                let parent = number(*parent_kind, entity);
                let page = view.children(rule.kind, field, parent, None, 10_000);
                let found = page.unwrap().entities.into_iter().map(|(id, _)| id);
                let expected = expected.remove(&parent).unwrap_or_default();
                assert_eq!(found.collect::<Vec<_>>(), expected);
            }
            assert!(expected.is_empty(), "{expected:?}");
        }
    }
}

fn assert_tags(view: &View<'_>, state: &State) {
    let mut tagged: BTreeMap<&str, Vec<Key>> = BTreeMap::new();
    for (key, row) in &state.rows {
        for tag in row.tags() {
            let keys = tagged.entry(tag).or_default();
            if keys.last() != Some(key) {
                keys.push(*key);
            }
        }
    }
    for (tag, keys) in tagged {
        let (found, next) = view.tagged(tag, None, 10_000).unwrap();
        assert!(next.is_none());
        let found: Vec<Key> = found.iter().map(|one| (one.kind, one.id)).collect();
        assert_eq!(found, keys, "{tag}");
        let kind = keys[0].0;
        let of_kind = keys.iter().filter(|key| key.0 == kind);
        let page = view.page(kind, None, 10_000, TagFilter::All(&[tag]));
        let found = page.unwrap().entities.into_iter().map(|(id, _)| id);
        assert!(found.eq(of_kind.map(|(_, id)| *id)), "{tag}");
    }
}

/// Checks that a kept revision is unchanged, and that its changes up to the newest revision lead to the newest state.
pub fn assert_revision(store: &Store, revision: u64, state: &State, newest: &State) {
    let mut found = BTreeMap::new();
    let show = &mut |kind, id, entity: &[u8]| {
        found.insert((kind, id), entity.to_vec());
    };
    store.snapshot_at(Revision(revision), show).unwrap();
    let content = |state: &State| -> BTreeMap<Key, Vec<u8>> {
        let rows = state.rows.iter();
        rows.map(|(key, row)| (*key, row.bytes.clone())).collect()
    };
    assert!(found == content(state), "revision {revision}");
    let view = store.view().unwrap();
    let history = view.history().unwrap();
    for (kind, id) in state.rows.keys().chain(newest.rows.keys()) {
        let then = history.entity(*kind, *id, Revision(revision)).unwrap();
        let expected = state
            .rows
            .get(&(*kind, *id))
            .map(|row| row.bytes.as_slice());
        assert!(then == expected, "{} {id} at {revision}", kind.name());
    }
    let changes = store.changes_since(Revision(revision)).unwrap().change_set;
    for change in changes.changes {
        match change {
            Change::Put { kind, id, entity } => found.insert((kind, id), entity),
            Change::Delete { kind, id } => found.remove(&(kind, id)),
        };
    }
    assert!(found == content(newest), "since revision {revision}");
    let mut meta = state.meta.clone();
    for (name, value) in changes.meta {
        match value {
            Some(value) => meta.insert(name, value),
            None => meta.remove(&name),
        };
    }
    assert_eq!(meta, newest.meta, "since revision {revision}");
}
