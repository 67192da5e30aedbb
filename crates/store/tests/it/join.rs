//! Two processes with the same store, as during an upgrade of the program.
//!
//! The test binary starts itself as the second process, which runs the test [`child`] with a directory in its
//! environment. Without a directory, [`child`] does nothing.

use crate::support::{commit, delete, fixture, id, put};
use model::EntityKind as K;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use store::{ChangeLog, Options, Revision, Store};

const DIRECTORY: &str = "STORE_JOIN_TEST_DIRECTORY";

/// Joins the store and deletes a consumer.
#[test]
fn child() {
    let Some(directory) = std::env::var_os(DIRECTORY).map(PathBuf::from) else {
        return;
    };
    plugins::install();
    let lock = File::open(directory.join("owner.lock")).unwrap();
    let store = Store::join(&directory, Options::default(), lock).unwrap();
    commit(&store, vec![delete(K::Consumers, id(1))]).unwrap();
}

/// Runs [`child`] until it has ended.
fn delete_in_another_process(directory: &Path) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["join::child", "--exact"])
        .env(DIRECTORY, directory)
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
}

#[test]
fn a_commit_of_another_process_counts_as_a_change_of_every_type() {
    let fixture = fixture();
    let store = &fixture.store;
    commit(store, vec![put(K::Consumers, id(1), &[])]).unwrap();
    delete_in_another_process(fixture.directory.path());
    assert_eq!(store.refresh().unwrap(), Revision(2));
    assert_eq!(store.head(), Revision(2));
    assert_eq!(store.last_change(K::Consumers), Revision(2));
}

#[test]
fn a_transaction_notices_the_commit_of_another_process_even_without_own_changes() {
    for own in [Vec::new(), vec![put(K::Services, id(2), &[])]] {
        let fixture = fixture();
        let store = &fixture.store;
        commit(store, vec![put(K::Consumers, id(1), &[])]).unwrap();
        delete_in_another_process(fixture.directory.path());
        let head = commit(store, own).unwrap();
        assert_eq!(store.head(), head);
        assert_eq!(store.last_change(K::Consumers), Revision(2), "{head:?}");
        assert_eq!(store.refresh().unwrap(), head);
        assert_eq!(store.last_change(K::Consumers), Revision(2), "{head:?}");
    }
}
