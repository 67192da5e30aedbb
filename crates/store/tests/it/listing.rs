//! Pages, filters, children, and keys that are too long for LMDB.

use crate::support::{assert_consistent, commit, delete, fixture, id, put, reference, tags};
use model::EntityKind as K;
use store::{Change, Store, TagFilter, Tagged, View};
use uuid::Uuid;

fn tagged_service(number: u128, with: &[&str]) -> Change {
    put(
        K::Services,
        id(number),
        &[("name", format!("s{number}").into()), ("tags", tags(with))],
    )
}

/// Returns all pages in order.
fn pages(view: &View<'_>, size: usize, filter: TagFilter<'_>) -> Vec<Vec<Uuid>> {
    let mut pages = Vec::new();
    let mut after = None;
    loop {
        let page = view.page(K::Services, after, size, filter).unwrap();
        pages.push(page.entities.iter().map(|(id, _)| *id).collect());
        match page.next {
            Some(next) => after = Some(next),
            None => return pages,
        }
    }
}

fn sorted(numbers: impl IntoIterator<Item = u128>) -> Vec<Uuid> {
    let mut ids: Vec<Uuid> = numbers.into_iter().map(id).collect();
    ids.sort();
    ids
}

fn store_with_tags() -> crate::support::Fixture {
    let fixture = fixture();
    let changes = (1..=30).map(|number| {
        let mut with = Vec::new();
        for (divisor, tag) in [(2, "two"), (3, "three"), (5, "five")] {
            if number % divisor == 0 {
                with.push(tag);
            }
        }
        tagged_service(number, &with)
    });
    commit(&fixture.store, changes.collect()).unwrap();
    fixture
}

#[test]
fn pages_are_ordered_by_id_and_together_are_all() {
    let fixture = store_with_tags();
    let view = fixture.store.view().unwrap();
    let pages = pages(&view, 7, TagFilter::None);
    assert_eq!(
        pages.iter().map(Vec::len).collect::<Vec<_>>(),
        [7, 7, 7, 7, 2]
    );
    assert_eq!(pages.concat(), sorted(1..=30));
}

#[test]
fn a_page_that_ends_with_the_collection_has_no_next() {
    let fixture = store_with_tags();
    let view = fixture.store.view().unwrap();
    assert_eq!(pages(&view, 10, TagFilter::None).len(), 3);
    assert_eq!(pages(&view, 1000, TagFilter::None).len(), 1);
    let empty = view.page(K::Routes, None, 10, TagFilter::None).unwrap();
    assert!(empty.entities.is_empty() && empty.next.is_none());
}

#[test]
fn paging_goes_on_after_an_entity_that_was_removed() {
    let fixture = store_with_tags();
    let all = sorted(1..=30);
    let first = {
        let view = fixture.store.view().unwrap();
        view.page(K::Services, None, 10, TagFilter::None)
            .unwrap()
            .next
    };
    assert_eq!(first, Some(all[9]));
    commit(&fixture.store, vec![delete(K::Services, all[9])]).unwrap();
    let view = fixture.store.view().unwrap();
    let page = view.page(K::Services, first, 10, TagFilter::None).unwrap();
    assert_eq!(page.entities[0].0, all[10]);
}

#[test]
fn tags_filter_by_all_and_by_any() {
    let fixture = store_with_tags();
    let view = fixture.store.view().unwrap();
    let check = |filter, expected: &dyn Fn(u128) -> bool| {
        let numbers = (1..=30).filter(|number| expected(*number));
        assert_eq!(pages(&view, 4, filter).concat(), sorted(numbers));
    };
    check(TagFilter::All(&["two"]), &|n| n % 2 == 0);
    check(TagFilter::All(&["two", "three"]), &|n| n % 6 == 0);
    check(TagFilter::All(&["two", "three", "five"]), &|n| n % 30 == 0);
    check(TagFilter::Any(&["five", "three"]), &|n| {
        n % 3 == 0 || n % 5 == 0
    });
    check(TagFilter::Any(&["five", "none"]), &|n| n % 5 == 0);
    check(TagFilter::All(&["two", "none"]), &|_| false);
    // A tag must match completely, not only its beginning.
    check(TagFilter::All(&["tw"]), &|_| false);
}

#[test]
fn the_list_of_tags_is_paged_over_all_kinds() {
    let fixture = fixture();
    let consumer = put(
        K::Consumers,
        id(9),
        &[("username", "u".into()), ("tags", tags(&["a", "b", "a"]))],
    );
    commit(
        &fixture.store,
        vec![
            consumer,
            tagged_service(1, &["a"]),
            tagged_service(2, &["c"]),
        ],
    )
    .unwrap();
    let view = fixture.store.view().unwrap();
    let mut found: Vec<Tagged> = Vec::new();
    loop {
        let (entries, next) = view.tags(found.last(), 1).unwrap();
        found.extend(entries);
        if next.is_none() {
            break;
        }
    }
    let entry = |tag: &str, kind, number| Tagged {
        tag: tag.into(),
        kind,
        id: id(number),
    };
    assert_eq!(
        found,
        [
            entry("a", K::Consumers, 9),
            entry("a", K::Services, 1),
            entry("b", K::Consumers, 9),
            entry("c", K::Services, 2),
        ]
    );
    let (entries, next) = view.tagged("a", None, 10).unwrap();
    assert_eq!(entries, found[..2]);
    assert_eq!(next, None);
}

#[test]
fn children_are_paged_by_id_within_their_parent() {
    let fixture = fixture();
    let mut changes: Vec<Change> = (1..=2).map(|number| tagged_service(number, &[])).collect();
    changes.extend((10..35).map(|number| {
        let parent = if number < 30 { 1 } else { 2 };
        put(K::Routes, id(number), &[("service", reference(id(parent)))])
    }));
    commit(&fixture.store, changes).unwrap();
    let view = fixture.store.view().unwrap();
    let mut found = Vec::new();
    let mut after = None;
    loop {
        let page = view
            .children(K::Routes, "service", id(1), after, 6)
            .unwrap();
        found.extend(page.entities.iter().map(|(id, _)| *id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(found, sorted(10..30));
}

fn id_of(store: &Store, name: &str) -> Option<Uuid> {
    let view = store.view().unwrap();
    view.id_by_unique(K::Consumers, "username", name).unwrap()
}

#[test]
fn names_and_tags_of_any_length_are_indexed() {
    let fixture = fixture();
    let names: Vec<String> = [1, 399, 400, 401, 511, 512, 5000, 100_000]
        .into_iter()
        .map(|length| "n".repeat(length))
        .collect();
    let changes = names.iter().enumerate().map(|(number, name)| {
        put(
            K::Consumers,
            id(number as u128),
            &[
                ("username", name.as_str().into()),
                ("tags", tags(&[name.as_str(), "short"])),
            ],
        )
    });
    commit(&fixture.store, changes.collect()).unwrap();
    for (number, name) in names.iter().enumerate() {
        let expected = id(number as u128);
        assert_eq!(id_of(&fixture.store, name), Some(expected));
        let view = fixture.store.view().unwrap();
        let filter = [name.as_str(), "short"];
        let page = view
            .page(K::Consumers, None, 10, TagFilter::All(&filter))
            .unwrap();
        assert_eq!(page.entities.len(), 1);
        let (entries, _) = view.tagged(name, None, 10).unwrap();
        assert_eq!(entries[0].tag, *name);
    }
    assert_eq!(id_of(&fixture.store, &"n".repeat(402)), None);
    let taken = put(
        K::Consumers,
        id(99),
        &[("username", names[6].as_str().into())],
    );
    assert!(commit(&fixture.store, vec![taken]).is_err());
    assert_consistent(&fixture.store);
}

#[test]
fn texts_with_the_byte_that_ends_keys_are_told_apart() {
    let fixture = fixture();
    let names = ["a", "a\0", "a\0b", "\0", ""];
    let changes = names.iter().enumerate().map(|(number, name)| {
        put(
            K::Consumers,
            id(number as u128),
            &[("username", (*name).into())],
        )
    });
    commit(&fixture.store, changes.collect()).unwrap();
    for (number, name) in names.iter().enumerate() {
        assert_eq!(id_of(&fixture.store, name), Some(id(number as u128)));
    }
}
