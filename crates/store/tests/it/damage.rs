//! Damaged files are detected, kept, and never served.

use crate::support::{Fixture, assert_consistent, commit, fixture, id, put, reference, tags};
use model::EntityKind as K;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use store::{
    ChangeLog, ChangeSet, Damage, Inspection, OpenError, Options, Origin, Recovery, Revision,
    Store, View,
};
use tempfile::TempDir;

/// Returns the bytes of a file with all kinds of pages: branches, leaves, long values and free pages.
fn whole_file() -> Vec<u8> {
    let Fixture {
        store, directory, ..
    } = fixture();
    let mut changes = vec![put(K::Services, id(1), &[("name", "s".into())])];
    changes.extend((0..300u128).map(|number| {
        put(
            K::Routes,
            id(100 + number),
            &[
                ("name", format!("route-{number}").into()),
                ("service", reference(id(1))),
                ("tags", tags(&["a", "b"])),
            ],
        )
    }));
    changes.push(put(
        K::Certificates,
        id(2),
        &[("cert", "certificate ".repeat(2000).as_str().into())],
    ));
    commit(&store, changes).unwrap();
    for number in 0..5 {
        let name = format!("renamed-{number}");
        commit(
            &store,
            vec![put(K::Services, id(1), &[("name", name.into())])],
        )
        .unwrap();
    }
    drop(store);
    fs::read(directory.path().join("data.mdb")).unwrap()
}

fn open_bytes(bytes: &[u8]) -> (TempDir, Store, Recovery) {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("data.mdb"), bytes).unwrap();
    let (store, recovery) = Store::open(directory.path(), Options::default()).unwrap();
    (directory, store, recovery)
}

#[test]
fn an_inspection_reads_and_changes_nothing() {
    let files = |directory: &Path| {
        let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> = entries
            .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    };
    let routes = |directory: &Path| {
        let inspection = Inspection::open(directory, Options::default()).unwrap();
        inspection.view().unwrap().count(K::Routes).unwrap()
    };
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("data.mdb");
    let bytes = whole_file();
    fs::write(&path, &bytes).unwrap();
    let before = files(directory.path());
    assert_eq!(routes(directory.path()), 300);
    assert_eq!(files(directory.path()), before);

    let cut = &bytes[..bytes.len() / 2];
    fs::write(&path, cut).unwrap();
    let refused = Inspection::open(directory.path(), Options::default());
    assert!(
        matches!(refused, Err(OpenError::Damaged { .. })),
        "{refused:?}"
    );
    assert_eq!(fs::read(&path).unwrap(), cut);

    fs::write(&path, &bytes).unwrap();
    let (_, recovery) = Store::open(directory.path(), Options::default()).unwrap();
    assert_eq!(recovery, Recovery::Opened);
}

/// Overwrites every page of a store after the two meta pages. The file keeps its length.
fn overwrite_pages(directory: &Path) {
    let path = directory.join("data.mdb");
    let length = fs::metadata(&path).unwrap().len();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let noise = vec![0x5a; usize::try_from(length).unwrap() - 8192];
    file.write_all_at(&noise, 8192).unwrap();
}

#[test]
fn an_inspection_finds_damage_under_a_process_that_has_the_store_open() {
    let directory = TempDir::new().unwrap();
    fs::write(directory.path().join("data.mdb"), whole_file()).unwrap();
    // LMDB opens a file only once in a process, so this test only holds the lock.
    let lock = fs::File::create(directory.path().join("owner.lock")).unwrap();
    lock.try_lock().unwrap();
    let inspect = || Inspection::open(directory.path(), Options::default());
    let routes = inspect().unwrap().view().unwrap().count(K::Routes).unwrap();
    assert_eq!(routes, 300);
    overwrite_pages(directory.path());
    let refused = inspect();
    let Err(OpenError::Damaged { damage, .. }) = refused else {
        panic!("{refused:?}");
    };
    assert!(matches!(damage, Damage::Page { .. }), "{damage:?}");
}

/// Asserts that the file is refused for this reason and left unchanged.
fn assert_foreign(bytes: &[u8], expected: &Damage) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("data.mdb");
    fs::write(&path, bytes).unwrap();
    for _ in 0..2 {
        let opened = Store::open(directory.path(), Options::default());
        let Err(OpenError::Foreign { reason, .. }) = opened else {
            panic!("{opened:?}");
        };
        assert_eq!(reason, *expected);
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let mut names: Vec<_> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(names, ["data.mdb", "owner.lock"]);
}

fn contents(view: &View<'_>) -> Vec<(K, Vec<u8>)> {
    let mut contents = Vec::new();
    for kind in K::all() {
        for entity in view.iter(kind).unwrap() {
            contents.push((kind, entity.unwrap().1.to_vec()));
        }
    }
    contents
}

/// If a transaction replaces a long value that it wrote itself, LMDB keeps all pages of that value, however short the
/// new value is.
#[test]
fn a_value_that_became_shorter_in_its_transaction_is_whole() {
    for shorter in [30_000, 9_000, 5_000, 1] {
        let fixture = fixture();
        let certificate = |length: usize| {
            let cert = "c".repeat(length);
            ChangeSet {
                changes: vec![put(K::Certificates, id(1), &[("cert", cert.into())])],
                meta: Vec::new(),
            }
        };
        let written = fixture.store.transact(&mut |transaction| {
            for length in [40_000, shorter] {
                transaction.apply(&certificate(length))?;
                transaction.seal(&Origin::default())?;
            }
            Ok(())
        });
        written.unwrap();
        let fixture = fixture.reopen();
        assert_eq!(fixture.recovery, Recovery::Opened, "{shorter}");
        assert_eq!(fixture.store.head(), Revision(2));
        assert_consistent(&fixture.store);
    }
}

/// Asserts that the file was set aside unchanged, and that an empty store works in its place.
fn assert_set_aside(bytes: &[u8]) {
    let (directory, store, recovery) = open_bytes(bytes);
    let Recovery::SetAside { path, aside, .. } = &recovery else {
        panic!("{recovery:?}");
    };
    assert_eq!(*path, directory.path().join("data.mdb"));
    assert!(aside.to_str().unwrap().contains("data.mdb.unreadable-"));
    assert_eq!(fs::read(aside).unwrap(), bytes);
    assert_eq!(store.head(), Revision(0));
    commit(
        &store,
        vec![put(K::Services, id(1), &[("name", "s".into())])],
    )
    .unwrap();
    assert_consistent(&store);
}

#[test]
fn a_changed_byte_is_found_or_harmless() {
    let whole = whole_file();
    let (_directory, store, recovery) = open_bytes(&whole);
    assert_eq!(recovery, Recovery::Opened);
    let expected = contents(&store.view().unwrap());
    drop(store);
    let mut set_aside = 0;
    for (at, mask) in places(whole.len()) {
        let mut bytes = whole.clone();
        bytes[at] ^= mask;
        let directory = TempDir::new().unwrap();
        fs::write(directory.path().join("data.mdb"), &bytes).unwrap();
        let (store, recovery) = match Store::open(directory.path(), Options::default()) {
            Ok(opened) => opened,
            // The byte identifies the program or the format of the file.
            Err(OpenError::Foreign { .. }) => continue,
            Err(error) => panic!("byte {at} xor {mask}: {error}"),
        };
        match recovery {
            Recovery::SetAside { .. } => {
                set_aside += 1;
                assert_eq!(store.head(), Revision(0));
            }
            // The byte was unused: the content is intact, and writing works.
            Recovery::Opened => {
                let found = contents(&store.view().unwrap());
                assert_eq!(found, expected, "byte {at} xor {mask}");
                assert_consistent(&store);
                commit(&store, vec![put(K::Consumers, id(9), &[])]).unwrap();
                assert_consistent(&store);
            }
            Recovery::Created => panic!("byte {at} xor {mask}: taken for a new store"),
        }
    }
    assert!(set_aside > 20, "{set_aside}");
}

/// Returns offsets in the file and the bits to change there. Some are in the first two pages, where every byte has a
/// meaning. The others are pseudo-random, but the same in every run.
fn places(length: usize) -> Vec<(usize, u8)> {
    let mut places: Vec<(usize, u8)> = (0..2)
        .flat_map(|page| (8..152).step_by(6).map(move |at| (page * 4096 + at, 1)))
        .collect();
    let mut state = 1u64;
    for _ in 0..100 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        let at = (state >> 20) as usize % length;
        places.push((at, 1 << (state >> 61)));
    }
    places
}

#[test]
fn a_file_that_was_cut_is_set_aside() {
    let whole = whole_file();
    for length in [
        0,
        4095,
        4096,
        8192,
        12_288,
        whole.len() / 2,
        whole.len() / 2 + 17,
    ] {
        assert_set_aside(&whole[..length]);
    }
}

#[test]
fn a_file_of_another_program_is_refused_and_kept() {
    let yaml = b"_format_version: \"3.0\"\n".repeat(1000);
    assert_foreign(&yaml, &Damage::NotLmdb);
    assert_foreign(b"short", &Damage::NotLmdb);
    assert_foreign(&[0; 8192], &Damage::NotLmdb);

    let other = TempDir::new().unwrap();
    write_foreign_lmdb(other.path());
    let bytes = fs::read(other.path().join("data.mdb")).unwrap();
    assert_foreign(&bytes, &Damage::OtherProgram);
}

#[expect(unsafe_code, reason = "LMDB is a memory map")]
fn write_foreign_lmdb(directory: &Path) {
    // SAFETY: nothing else uses the new directory.
    let env = unsafe { heed::EnvOpenOptions::new().max_dbs(1).open(directory) }.unwrap();
    let txn = env.write_txn().unwrap();
    env.create_databases_and_commit(txn, |opener, txn| {
        let table = opener.create_database::<heed::types::Str, heed::types::Str>(txn, Some("x"))?;
        table.put(txn, "key", "value")?;
        Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(()))
    })
    .unwrap();
}

#[test]
fn an_unknown_lmdb_format_is_refused_and_kept() {
    let mut bytes = whole_file();
    for page in 0..2 {
        bytes[page * 4096 + 20] = 9;
    }
    let damage = Damage::LmdbFormat {
        found: 9,
        expected: 1,
    };
    assert_foreign(&bytes, &damage);
}

#[test]
fn the_message_names_both_files_and_the_damage() {
    let error = OpenError::AfterSettingAside {
        path: "p/data.mdb".into(),
        aside: "p/data.mdb.unreadable-1".into(),
        damage: Damage::NotLmdb,
        source: Box::new(OpenError::InUse { path: "p".into() }),
    };
    let text = error.to_string();
    assert!(text.contains("p/data.mdb was set aside as p/data.mdb.unreadable-1"));
    assert!(text.contains("not an LMDB file"));
}

#[test]
fn an_empty_store_after_damage_is_reported_until_something_is_committed() {
    let whole = whole_file();
    let (directory, store, _) = open_bytes(&whole[..8192]);
    drop(store);
    let (store, recovery) = Store::open(directory.path(), Options::default()).unwrap();
    assert!(matches!(
        recovery,
        Recovery::SetAside {
            damage: Damage::Earlier,
            ..
        }
    ));
    commit(&store, vec![put(K::Consumers, id(1), &[])]).unwrap();
    drop(store);
    let (_store, recovery) = Store::open(directory.path(), Options::default()).unwrap();
    assert_eq!(recovery, Recovery::Opened);
}

#[test]
fn a_second_damaged_file_does_not_replace_the_first() {
    let whole = whole_file();
    let (first, second) = (&whole[..8192], &whole[..12_288]);
    let (directory, store, _) = open_bytes(first);
    drop(store);
    fs::write(directory.path().join("data.mdb"), second).unwrap();
    let (_store, _) = Store::open(directory.path(), Options::default()).unwrap();
    let mut kept: Vec<Vec<u8>> = fs::read_dir(directory.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.to_str().unwrap().contains("unreadable"))
        .map(|path| fs::read(path).unwrap())
        .collect();
    kept.sort();
    assert_eq!(kept, [first, second]);
}

#[test]
fn a_store_in_use_is_neither_opened_nor_touched() {
    let fixture = fixture();
    commit(&fixture.store, vec![put(K::Consumers, id(1), &[])]).unwrap();
    let second = Store::open(fixture.directory.path(), Options::default());
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    assert_consistent(&fixture.store);
}

#[test]
fn a_file_that_is_unreadable_for_other_reasons_is_not_set_aside() {
    let directory = TempDir::new().unwrap();
    // A directory at the path of the file: reading it fails for every user.
    fs::create_dir(directory.path().join("data.mdb")).unwrap();
    let opened = Store::open(directory.path(), Options::default());
    assert!(matches!(opened, Err(OpenError::Io { .. })), "{opened:?}");
    assert!(directory.path().join("data.mdb").is_dir());
}
