use super::{PAGE_HEADER, ScanError, Tree, examine, u16_at, u64_at};
use crate::{Change, ChangeLog, ChangeSet, Options, Origin, Store};
use heed::CompactionOption;
use model::{EntityKind, Object, codec};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use tempfile::TempDir;
use uuid::Uuid;

fn consumer(number: u128, name: &str) -> Change {
    let mut entity = Object::new();
    entity.push("username", name.into());
    Change::Put {
        kind: EntityKind::Consumers,
        id: Uuid::from_u128(number << 64 | number),
        entity: codec::encode(&entity),
    }
}

fn commit(store: &Store, changes: Vec<Change>) {
    let change_set = ChangeSet {
        changes,
        meta: Vec::new(),
    };
    store
        .commit(None, change_set, &Origin::default())
        .expect("the change set is sound");
}

/// Creates a small file with branch, leaf, overflow and free pages.
fn small_file() -> TempDir {
    let directory = TempDir::new().expect("a directory");
    plugins::install();
    let (store, _) = Store::open(directory.path(), Options::default()).expect("a new store");
    let names = (0..60).map(|number| consumer(number, &format!("{number}").repeat(60)));
    commit(&store, names.collect());
    commit(&store, vec![consumer(99, &"long".repeat(2000))]);
    commit(&store, vec![consumer(1, "short")]);
    directory
}

/// After any change of a byte, the scan either accepts the file with its header or reports damage. It never panics.
#[test]
fn any_changed_byte_is_accepted_or_reported() {
    let directory = small_file();
    let path = directory.path().join("data.mdb");
    let whole = fs::read(&path).expect("the file");
    let expected = examine(&path).expect("the file is whole");
    let file = File::options()
        .write(true)
        .open(&path)
        .expect("the file can be written");
    let mut found = 0;
    for at in (0..whole.len()).step_by(23) {
        for mask in [1u8, 0x80, 0xff] {
            file.write_all_at(&[whole[at] ^ mask], at as u64)
                .expect("a byte");
            match examine(&path) {
                Ok(header) => assert_eq!(header, expected, "byte {at} xor {mask}"),
                Err(ScanError::Damage(_)) => found += 1,
                Err(ScanError::Io(error)) => panic!("byte {at} xor {mask}: {error}"),
            }
        }
        file.write_all_at(&whole[at..=at], at as u64)
            .expect("a byte");
    }
    assert!(found > 1000, "{found}");
    examine(&path).expect("the file is whole again");
}

/// The checksum detects changed bytes in an entity, which do not affect the structure of the file.
#[test]
fn a_changed_byte_of_an_entity_is_found() {
    let directory = small_file();
    let path = directory.path().join("data.mdb");
    let mut bytes = fs::read(&path).expect("the file");
    let mut places = Vec::new();
    for (at, window) in bytes.windows(8).enumerate() {
        if window == b"longlong" {
            places.push(at);
        }
    }
    assert!(places.len() > 1900);
    for at in places.into_iter().step_by(500) {
        bytes[at] = b'L';
        fs::write(&path, &bytes).expect("the file can be written");
        assert!(
            matches!(examine(&path), Err(ScanError::Damage(_))),
            "byte {at}"
        );
        bytes[at] = b'l';
    }
}

/// Returns the offsets of the flags of all entries in the free list, which must be a single page.
fn flags_of_free_list(bytes: &[u8]) -> Vec<usize> {
    let meta = |page: usize| page * 4096 + 16;
    let newest = (0..2).max_by_key(|page| u64_at(bytes, meta(*page) + 128));
    let at = meta(newest.expect("two meta pages")) + 24;
    let tree = Tree::parse(&bytes[at..]);
    assert_eq!(tree.depth, 1);
    let page = tree.root as usize * 4096;
    let nodes = (PAGE_HEADER..usize::from(u16_at(bytes, page + 12))).step_by(2);
    nodes
        .map(|node| page + usize::from(u16_at(bytes, page + node)) + 4)
        .collect()
}

/// LMDB reads the free list at the first writes, and trusts the flags of its entries.
#[test]
fn a_changed_flag_in_the_free_list_is_found() {
    let directory = small_file();
    let path = directory.path().join("data.mdb");
    let mut bytes = fs::read(&path).expect("the file");
    let places = flags_of_free_list(&bytes);
    assert!(!places.is_empty());
    for at in places {
        for flag in 0..16 {
            let (at, mask) = (at + flag / 8, 1 << (flag % 8));
            bytes[at] ^= mask;
            fs::write(&path, &bytes).expect("the file can be written");
            assert!(
                matches!(examine(&path), Err(ScanError::Damage(_))),
                "byte {at} xor {mask}"
            );
            bytes[at] ^= mask;
        }
    }
    fs::write(&path, &bytes).expect("the file can be written");
    examine(&path).expect("the file is whole");
    plugins::install();
    let (store, _) = Store::open(directory.path(), Options::default()).expect("the store");
    for name in ["one", "two", "three"] {
        commit(&store, vec![consumer(1, name)]);
    }
    assert_eq!(store.verify().expect("the store"), []);
}

#[test]
fn a_misplaced_page_is_found() {
    let directory = small_file();
    let path = directory.path().join("data.mdb");
    let whole = fs::read(&path).expect("the file");
    let pages = whole.len() / 4096;
    let mut found = 0;
    for page in 2..pages {
        let mut bytes = whole.clone();
        let other = 2 + (page + 3) % (pages - 2);
        bytes.copy_within(other * 4096..(other + 1) * 4096, page * 4096);
        fs::write(&path, &bytes).expect("the file can be written");
        found += u32::from(examine(&path).is_err());
    }
    // Copies over free pages are not detected.
    assert!(found > 5, "{found} of {pages}");
}

#[test]
fn an_old_meta_page_as_the_newest_is_found() {
    let directory = small_file();
    let path = directory.path().join("data.mdb");
    let whole = fs::read(&path).expect("the file");
    let transaction = |page: usize| page * 4096 + 16 + 128;
    for page in 0..2 {
        for change in [-2i64, -1, 1, 2, 100] {
            let mut bytes = whole.clone();
            let field = &mut bytes[transaction(page)..transaction(page) + 8];
            let number = i64::from_ne_bytes(field.try_into().expect("eight bytes"));
            field.copy_from_slice(&(number + change).to_ne_bytes());
            fs::write(&path, &bytes).expect("the file can be written");
            assert!(examine(&path).is_err(), "page {page}, {change}");
        }
    }
}

#[test]
fn copies_made_by_lmdb_are_whole() {
    let directory = small_file();
    plugins::install();
    let (store, _) = Store::open(directory.path(), Options::default()).expect("the store");
    for (name, option) in [
        ("plain", CompactionOption::Disabled),
        ("compacted", CompactionOption::Enabled),
    ] {
        let copy = directory.path().join(name);
        store
            .environment()
            .env
            .copy_to_path(&copy, option)
            .expect("a copy");
        examine(&copy).expect("the copy is whole");
    }
}

#[test]
fn files_of_many_transactions_are_whole() {
    let directory = TempDir::new().expect("a directory");
    let path = directory.path().join("data.mdb");
    let mut options = Options::default();
    options.retention.bytes = 1 << 20;
    let mut state = 1u64;
    let mut random = |bound: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % bound
    };
    for round in 0..12 {
        let (store, _) = Store::open(directory.path(), options).expect("the store");
        for _ in 0..random(10) {
            // The number of changes and the length of values vary widely, so that the free list needs several pages.
            let count = 1 + random(if round % 3 == 0 { 3000 } else { 20 });
            let long = random(4) == 0;
            let changes = (0..count).map(|_| {
                let number = u128::from(random(4000));
                let length = if long { random(9000) } else { random(200) } as usize;
                match random(3) {
                    0 => Change::Delete {
                        kind: EntityKind::Consumers,
                        id: Uuid::from_u128(number << 64 | number),
                    },
                    _ => consumer(number, &format!("{number}-{}", "x".repeat(length))),
                }
            });
            commit(&store, changes.collect());
        }
        assert_eq!(store.verify().expect("the store"), []);
        drop(store);
        examine(&path).expect("the file is whole");
    }
}
