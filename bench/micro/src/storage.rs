//! Operations that write the configuration to the store and read it back, and the lookups that plugins do in the store.

use crate::config;
use crate::entities::StoreEntities;
use crate::fixtures::{consumer_id, id, key, nowhere, path, spread};
use crate::operation::Operation;
use model::declarative::{Document, Existing, Format, Loader, Nothing, Options, Source};
use model::schema::Context;
use model::{EntityKind, Object, Value, codec};
use plugin::Entities;
use plugins::credentials::KeyauthCredential;
use serde_json::json;
use std::cell::RefCell;
use std::hint::black_box;
use std::rc::Rc;
use std::time::Duration;
use store::{Change, ChangeLog, ChangeSet, ExistingEntities, Origin, Revision, Store};
use tempfile::TempDir;

const ROUTES: usize = 1000;
const CONSUMERS: usize = 10_000;
/// Number of keys used in turn.
const KEYS: usize = 1000;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        load_first(),
        load_again("load/unchanged/1000", &[Edition::First]),
        load_again("load/one-changed/1000", &[Edition::First, Edition::Second]),
        commit_all(),
        commit_one(),
        Operation::consume("store/read-config/1000", 2, || {
            let Loaded {
                directory, store, ..
            } = Loaded::new();
            let run = move |()| {
                // Moves the directory into the closure. Dropping it would delete the store.
                black_box(&directory);
                let view = store.view().expect("the store can be read");
                config::read(&view).expect("every entity can be read")
            };
            (|| (), run)
        }),
        stored_key(),
        stored_entity(),
        looked_up("lookup/key/cached", 10, 0),
        looked_up("lookup/key/first/10000", CONSUMERS, 0),
        looked_up("lookup/key/unknown/10000", KEYS, CONSUMERS),
    ]
}

/// Two configurations that differ in one route.
#[derive(Clone, Copy)]
enum Edition {
    First,
    Second,
}

/// Returns a configuration as JSON with 1,000 routes, each with key-auth and request-termination.
fn text(edition: Edition) -> Vec<u8> {
    let routes = (0..ROUTES).map(|number| {
        let code = match edition {
            Edition::Second if number == ROUTES / 2 => 301,
            _ => 426,
        };
        json!({
            "name": format!("route-{number}"),
            "paths": [path(number)],
            "strip_path": false,
            "https_redirect_status_code": code,
            "tags": [format!("team-{}", number % 50), "bench"],
            "plugins": [
                {"name": "key-auth", "config": {"key_names": ["apikey"]}},
                {"name": "request-termination", "config": {"status_code": 403, "message": "terminated", "trigger": "x-terminate"}},
            ],
        })
    });
    let routes: Vec<serde_json::Value> = routes.collect();
    let upstream = nowhere();
    let service =
        json!({"name": "bench", "host": upstream.ip(), "port": upstream.port(), "routes": routes});
    json!({"_format_version": "3.0", "services": [service]})
        .to_string()
        .into_bytes()
}

/// Returns the gateway's options, but with a fixed time.
fn options() -> Options {
    Options {
        context: Context::at(Duration::from_secs(1_700_000_000)),
        flatten_errors: false,
    }
}

fn load(loader: &mut Loader, text: &[u8], existing: &dyn Existing, revision: Revision) -> Document {
    let source = Source::Text(text, Format::Auto);
    let loaded = loader.load(source, &options(), existing, revision.0);
    loaded.expect("the configuration is valid")
}

fn change_set(document: Document) -> ChangeSet {
    let puts = document.puts.into_iter().map(|put| Change::Put {
        kind: put.kind,
        id: put.id,
        entity: put.entity,
    });
    ChangeSet {
        changes: puts.collect(),
        meta: Vec::new(),
    }
}

fn open() -> (TempDir, Store) {
    let directory = TempDir::new().expect("a temporary directory can be made");
    // The default reserves more address space than valgrind provides.
    let options = store::Options {
        max_size: 1 << 30,
        ..store::Options::default()
    };
    let (store, _) = Store::open(directory.path(), options).expect("an empty store can be opened");
    (directory, store)
}

fn commit(store: &Store, change_set: ChangeSet) -> Revision {
    let committed = store.commit(None, change_set, &Origin::default());
    committed.expect("the change set can be applied")
}

/// A store that contains the first edition, and the loader that loaded it.
struct Loaded {
    directory: TempDir,
    store: Store,
    loader: Loader,
}

impl Loaded {
    fn new() -> Self {
        let (directory, store) = open();
        let mut loader = Loader::new();
        let document = load(&mut loader, &text(Edition::First), &Nothing, store.head());
        let revision = commit(&store, change_set(document));
        loader.committed(revision.0);
        Self {
            directory,
            store,
            loader,
        }
    }

    /// Writes a document to the store. It must be the one that the loader returned last.
    fn commit(&mut self, document: Document) {
        let revision = commit(&self.store, change_set(document));
        self.loader.committed(revision.0);
    }

    fn load(&mut self, text: &[u8]) -> Document {
        let view = self.store.view().expect("the store can be read");
        let mirror = ExistingEntities::new(&view);
        let document = load(&mut self.loader, text, &mirror, view.revision());
        mirror.finish().expect("the store can be read");
        document
    }
}

fn load_first() -> Operation {
    Operation::consume("load/first/1000", 1, || {
        let text = text(Edition::First);
        let run = move |mut loader: Loader| {
            let document = load(&mut loader, &text, &Nothing, Revision(0));
            (loader, document)
        };
        (Loader::new, run)
    })
}

/// Loads these editions in turn. When an edition is loaded, the store contains the previous one.
fn load_again(name: &str, editions: &'static [Edition]) -> Operation {
    Operation::consume(name, 2, || {
        let loaded = Rc::new(RefCell::new(Loaded::new()));
        let last = Rc::new(RefCell::new(None));
        let mut texts = editions
            .iter()
            .map(|edition| text(*edition))
            .collect::<Vec<_>>();
        let make = {
            let (loaded, last) = (Rc::clone(&loaded), Rc::clone(&last));
            move || {
                if let Some(document) = last.take() {
                    loaded.borrow_mut().commit(document);
                }
                texts.rotate_right(1);
                texts[0].clone()
            }
        };
        let run = move |text: Vec<u8>| last.replace(Some(loaded.borrow_mut().load(&text)));
        (make, run)
    })
}

/// Writes a first configuration to an empty store.
fn commit_all() -> Operation {
    Operation::consume("store/commit/1000", 1, || {
        let make = || {
            let document = load(
                &mut Loader::new(),
                &text(Edition::First),
                &Nothing,
                Revision(0),
            );
            (open(), change_set(document))
        };
        let run = |((directory, store), change_set)| {
            commit(&store, change_set);
            (directory, store)
        };
        (make, run)
    })
}

/// Changes one route and changes it back.
fn commit_one() -> Operation {
    Operation::consume("store/commit/route", 20, || {
        let mut loaded = Loaded::new();
        let document = loaded.load(&text(Edition::Second));
        let id = document.puts.first().expect("one route differs").id;
        let view = loaded.store.view().expect("the store can be read");
        let before = view
            .get(EntityKind::Routes, id)
            .expect("the store can be read");
        let back = ChangeSet {
            changes: vec![Change::Put {
                kind: EntityKind::Routes,
                id,
                entity: before.expect("the route exists").to_vec(),
            }],
            meta: Vec::new(),
        };
        drop(view);
        let mut turns = [change_set(document), back].into_iter().cycle();
        let run = move |change_set| {
            // Keeps the directory of the store, which would be removed otherwise.
            black_box(&loaded.directory);
            commit(&loaded.store, change_set)
        };
        (
            move || turns.next(),
            move |next: Option<ChangeSet>| next.map(&run),
        )
    })
}

/// Returns a store with 10,000 consumers, each of which has one key.
fn people() -> (TempDir, Store) {
    stored((0..CONSUMERS).flat_map(|number| [consumer(number), credential(number)]))
}

fn stored(changes: impl IntoIterator<Item = Change>) -> (TempDir, Store) {
    let (directory, store) = open();
    let change_set = ChangeSet {
        changes: changes.into_iter().collect(),
        meta: Vec::new(),
    };
    commit(&store, change_set);
    (directory, store)
}

pub(crate) fn consumer(number: usize) -> Change {
    put(
        EntityKind::Consumers,
        consumer_id(number).0,
        [
            ("created_at", Value::from(1_700_000_000)),
            ("custom_id", format!("customer-{number}").into()),
            ("username", format!("consumer-{number}").into()),
        ],
    )
}

pub(crate) fn credential(number: usize) -> Change {
    let fields = [("key", key(number).into())];
    owned(plugins::kinds::KEYAUTH_CREDENTIALS, number, fields)
}

/// Returns an entity of a plugin that belongs to a consumer, at most one of each kind.
pub(crate) fn owned<const N: usize>(
    kind: EntityKind,
    consumer: usize,
    fields: [(&'static str, Value); N],
) -> Change {
    let mut reference = Object::new();
    reference.push("id", consumer_id(consumer).to_string().into());
    let general = [
        ("consumer", reference.into()),
        ("created_at", Value::from(1_700_000_000)),
    ];
    let id = id((usize::from(kind.number()) << 43) + consumer);
    put(kind, id, general.into_iter().chain(fields))
}

fn put(
    kind: EntityKind,
    id: uuid::Uuid,
    fields: impl IntoIterator<Item = (&'static str, Value)>,
) -> Change {
    let mut entity = Object::new();
    entity.push("id", id.to_string().into());
    for (name, value) in fields {
        entity.push(name, value);
    }
    Change::Put {
        kind,
        id,
        entity: codec::encode(&entity),
    }
}

/// Finds the id of a credential by its key, without the cache.
fn stored_key() -> Operation {
    Operation::repeat("store/key/10000", KEYS as u32, || {
        let (directory, store) = people();
        let keys: Vec<String> = spread(KEYS, CONSUMERS).map(key).collect();
        let mut next = keys.into_iter().cycle();
        let reader = store.reader();
        let kind = plugins::kinds::KEYAUTH_CREDENTIALS;
        move || {
            black_box(&directory);
            let key = next.next().expect("it goes round");
            let found = reader.read(|view| view.id_by_unique(kind, "key", &key));
            assert!(matches!(found, Ok(Ok(Some(_)))), "the key exists");
        }
    })
}

fn stored_entity() -> Operation {
    Operation::repeat("store/entity/10000", KEYS as u32, || {
        let (directory, store) = people();
        let mut next = spread(KEYS, CONSUMERS)
            .collect::<Vec<_>>()
            .into_iter()
            .cycle();
        let reader = store.reader();
        move || {
            black_box(&directory);
            let id = consumer_id(next.next().expect("it goes round")).0;
            let found = reader.read(|view| {
                let entity = view.get(EntityKind::Consumers, id);
                entity.is_ok_and(|entity| black_box(entity).is_some())
            });
            assert!(found.is_ok_and(|found| found), "the consumer exists");
        }
    })
}

/// Looks up the owner of a key as key-auth does. Uses `turns` keys in turn, starting with the key of consumer `first`.
fn looked_up(name: &str, turns: usize, first: usize) -> Operation {
    Operation::repeat(name, KEYS as u32, move || {
        let (directory, store) = people();
        let entities = StoreEntities::new(store);
        let keys: Vec<String> = (first..first + turns).map(key).collect();
        let mut next = keys.into_iter().cycle();
        move || {
            black_box(&directory);
            let key = next.next().expect("it goes round");
            let entities: &dyn Entities = &entities;
            let found = entities.owned_by_unique::<KeyauthCredential>("key", &key);
            assert!(black_box(found).is_ok(), "the store can be read");
        }
    })
}

/// Returns 10,000 consumers with keys, and the directory of their store, which must not be dropped before it.
pub(crate) fn entities() -> (TempDir, StoreEntities) {
    let (directory, store) = people();
    (directory, StoreEntities::new(store))
}

/// Returns these entities, and the directory of their store, which must not be dropped before it.
pub(crate) fn entities_of(changes: impl IntoIterator<Item = Change>) -> (TempDir, StoreEntities) {
    let (directory, store) = stored(changes);
    (directory, StoreEntities::new(store))
}
