//! Checks that the live snapshot stays equal to a snapshot built from the whole store, after every group of proposals.

use super::*;
use crate::control::rebuild;
use crate::entities::StoreEntities;
use admin::control::{Failure, Refusal};
use model::schema::registry;
use model::{EntityKind, Object};
use proxy::session;
use proxy::snapshot::Live;
use serde_json::{Value, json};
use std::sync::LazyLock;
use store::{ChangeLog, Options};
use tempfile::TempDir;
use testkit::random::Random;
use tokio::sync::oneshot;
use uuid::Uuid;

const GROUPS: usize = 250;

/// Number of ids for each entity type. It is so small that changes often affect the same entity.
const POOL: u64 = 5;

/// Returns null, or a reference to an entity of the pool. The entity may not exist.
fn reference(random: &mut Random, kind: EntityKind) -> Value {
    if random.one_in(3) {
        Value::Null
    } else {
        json!({"id": id(kind, random.below(POOL))})
    }
}

fn id(kind: EntityKind, number: u64) -> Uuid {
    Uuid::from_u128(u128::from(kind.number()) << 64 | u128::from(number + 1))
}

pub(in crate::control) fn writer() -> (Writer, TempDir) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let opened = Store::open(directory.path(), Options::default());
    let (store, _) = opened.expect("the store can be created");
    let build = BuildSettings {
        plugins: plugins::bundled().to_vec(),
        ..BuildSettings::default()
    };
    let empty = rebuild::empty(&build).expect("an empty configuration is valid");
    let entities = Arc::new(StoreEntities::new(store.clone()));
    let node = plugin::Node::with_entities(entities).expect("a thread can be started");
    let plane = DataPlane::new(
        Live::new(empty),
        session::SessionSettings::default(),
        node,
        build.plugins.clone(),
        1,
    );
    let writer = Writer {
        store,
        plane: Arc::new(plane),
        model: ModelSettings::default(),
        dbless: false,
        build,
        loader: Loader::new(),
        stages: Arc::default(),
    };
    (writer, directory)
}

static PAIRS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]);
        let made = made.expect("a certificate can be created");
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    ["one.test", "two.test"].map(pair).into()
});

const KINDS: [EntityKind; 9] = [
    EntityKind::Services,
    EntityKind::Routes,
    EntityKind::Plugins,
    EntityKind::Upstreams,
    EntityKind::Targets,
    EntityKind::Consumers,
    plugins::kinds::KEYAUTH_CREDENTIALS,
    EntityKind::Certificates,
    EntityKind::Snis,
];

fn entity(kind: EntityKind, random: &mut Random) -> Value {
    let name = format!("n{}.test", random.below(8));
    match kind {
        EntityKind::Services => json!({
            "name": name, "host": format!("n{}.test", random.below(8)), "retries": random.below(3),
            "protocol": random.pick(&["http", "https"]), "enabled": !random.one_in(5),
        }),
        EntityKind::Routes => json!({
            "name": name, "service": reference(random, EntityKind::Services), "preserve_host": random.one_in(2),
            "paths": [random.pick(&["/", "/a", "/a/b", "~/a/(?<id>\\d+)$", "/c"])],
            "methods": if random.one_in(3) { json!(["GET"]) } else { Value::Null },
            "hosts": if random.one_in(3) { json!([random.pick(&["one.test", "*.test"])]) } else { Value::Null },
        }),
        EntityKind::Plugins => {
            let (name, config) = match random.below(4) {
                0 => (
                    "request-termination",
                    json!({"status_code": 400 + random.below(9)}),
                ),
                1 => ("basic-auth", json!({"hide_credentials": random.one_in(2)})),
                _ => (
                    "key-auth",
                    json!({"key_names": [random.pick(&["apikey", "key"])]}),
                ),
            };
            let consumer = match name {
                "request-termination" => reference(random, EntityKind::Consumers),
                _ => Value::Null,
            };
            json!({
                "name": name, "config": config, "enabled": !random.one_in(5), "consumer": consumer,
                "service": reference(random, EntityKind::Services), "route": reference(random, EntityKind::Routes),
            })
        }
        EntityKind::Upstreams => json!({
            "name": name, "slots": 10 + random.below(3),
            "algorithm": random.pick(&["round-robin", "least-connections"]),
        }),
        EntityKind::Targets => json!({
            "upstream": {"id": id(EntityKind::Upstreams, random.below(POOL))}, "weight": random.below(3) * 50,
            "target": random.pick(&["10.0.0.1:80", "10.0.0.2:81", "b.test:82"]),
        }),
        EntityKind::Consumers => json!({"username": name}),
        plugins::kinds::KEYAUTH_CREDENTIALS => json!({
            "key": name, "consumer": {"id": id(EntityKind::Consumers, random.below(POOL))},
        }),
        EntityKind::Certificates => {
            let (cert, key) = random.pick(&PAIRS);
            json!({"cert": cert, "key": key})
        }
        _ => json!({
            "name": name, "certificate": {"id": id(EntityKind::Certificates, random.below(POOL))},
        }),
    }
}

fn change(writer: &Writer, random: &mut Random) -> Change {
    let kind = *random.pick(&KINDS);
    let id = id(kind, random.below(POOL));
    if random.one_in(4) {
        return Change::Delete { kind, id };
    }
    let mut entity = entity(kind, random);
    entity["id"] = json!(id);
    let given: Object = serde_json::from_value(entity).expect("an object");
    let context = context(&writer.model, writer.dbless);
    let complete = registry().entity(kind).complete(given, &context);
    let mut complete = complete.unwrap_or_else(|error| panic!("{kind:?}: {error:?}"));
    if kind == EntityKind::Plugins && random.one_in(8) {
        // No schema accepts this value. It can be stored, but no snapshot can be built from it.
        complete.insert("config", model::Value::from("none"));
    }
    Change::Put {
        kind,
        id,
        entity: codec::encode(&complete),
    }
}

/// Returns a proposal with several change sets, some of which may be refused. The proposal itself may fail after the
/// last change set.
fn proposal(writer: &Writer, random: &mut Random) -> Proposal {
    let sets: Vec<ChangeSet> = (0..1 + random.below(3))
        .map(|_| ChangeSet {
            changes: (0..1 + random.below(3))
                .map(|_| change(writer, random))
                .collect(),
            meta: Vec::new(),
        })
        .collect();
    let goes_on = random.one_in(2);
    let fails = random.one_in(10);
    let mut proposal = Proposal::new(Origin::program("test"), move |transaction| {
        for set in &sets {
            match transaction.apply(set) {
                Err(CommitError::Violations(_)) if goes_on => {}
                applied => applied?,
            }
        }
        if fails {
            Err(Refusal::Failure(Failure::Internal("in the end".to_owned())))
        } else {
            Ok(())
        }
    });
    proposal.dry_run = random.one_in(12);
    if random.one_in(12) {
        let ahead = random.below(2);
        proposal.expected_head = Some(Revision(writer.store.head().0 + ahead));
    }
    proposal
}

/// Number of proposals with each outcome.
#[derive(Debug, Default)]
struct Outcomes {
    done: usize,
    invalid: usize,
    unservable: usize,
    refused: usize,
    conflicts: usize,
}

impl Outcomes {
    fn count(&mut self, outcome: Result<Revision, LoadError>) {
        match outcome {
            Ok(_) => self.done += 1,
            Err(LoadError::Invalid(error)) => match error.code {
                model::ErrorCode::DeclarativeConfig => self.unservable += 1,
                _ => self.invalid += 1,
            },
            Err(LoadError::Refused(_)) => self.refused += 1,
            Err(LoadError::Conflict { .. }) => self.conflicts += 1,
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn the_live_snapshot_is_the_one_built_from_the_store() {
    plugins::install();
    let (mut writer, _directory) = writer();
    let mut random = Random::new(2026);
    let mut outcomes = Outcomes::default();
    for number in 0..GROUPS {
        let (group, answers): (Vec<_>, Vec<_>) = (0..1 + random.below(4))
            .map(|_| {
                let proposal = proposal(&writer, &mut random);
                let (answer, outcome) = oneshot::channel();
                let proposed = Proposed {
                    proposal,
                    answer,
                    slot: None,
                };
                (proposed, outcome)
            })
            .unzip();
        writer.propose(group);
        for mut answer in answers {
            let outcome = answer.try_recv();
            outcomes.count(outcome.expect("the proposal has an outcome"));
        }
        let live = writer.plane.snapshot.load();
        assert_eq!(live.revision, writer.store.head().0);
        let view = writer.store.view().expect("the store can be read");
        let whole = rebuild::whole(&view, None, &writer.build);
        let whole = whole.expect("the stored configuration can be served");
        let [live, whole] = [live.describe(), whole.describe()];
        for (live, whole) in live.iter().zip(&whole) {
            assert_eq!(live, whole, "group {number}");
        }
        assert_eq!(live.len(), whole.len(), "group {number}");
    }
    assert_eq!(writer.store.verify().expect("the store can be read"), []);
    let Outcomes {
        done,
        invalid,
        unservable,
        refused,
        conflicts,
    } = outcomes;
    assert!(done > GROUPS / 4, "{outcomes:?}");
    assert!(
        [invalid, unservable, refused, conflicts]
            .iter()
            .all(|many| *many > 0),
        "{outcomes:?}"
    );
}
