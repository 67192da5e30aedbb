use crate::support::{assert_consistent, commit, fixture, id, put, reference};
use model::EntityKind as K;
use store::{Journal, Recovery, Revision};

#[test]
fn what_was_committed_is_there_after_reopening() {
    let fixture = fixture();
    assert_eq!(fixture.recovery, Recovery::Created);
    let route = put(
        K::Routes,
        id(2),
        &[("name", "r".into()), ("service", reference(id(1)))],
    );
    let service = put(K::Services, id(1), &[("name", "s".into())]);
    let revision = commit(&fixture.store, vec![route, service]).unwrap();
    assert_eq!(revision, Revision(1));

    let fixture = fixture.reopen();
    assert_eq!(fixture.recovery, Recovery::Opened);
    assert_eq!(fixture.store.head(), Revision(1));
    let view = fixture.store.view().unwrap();
    assert_eq!(
        view.id_by_unique(K::Routes, "name", "r").unwrap(),
        Some(id(2))
    );
    assert_eq!(view.count(K::Services).unwrap(), 1);
    assert_consistent(&fixture.store);
}
