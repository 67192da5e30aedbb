//! A second load writes only the entities that differ from the store.

use crate::running::{Running, object, options};
use model::declarative::{self, Document, ExportFormat};
use model::{EntityKind, Object, codec};
use serde_json::{Value as Json, json};

fn document(services: Json, consumers: Json) -> Json {
    json!({"_format_version": "3.0", "services": services, "consumers": consumers})
}

fn changes(document: &Document) -> Vec<(EntityKind, &'static str)> {
    let puts = document.puts.iter().map(|put| (put.kind, "put"));
    let deletes = document.deletes.iter().map(|(kind, _)| (*kind, "delete"));
    puts.chain(deletes).collect()
}

#[test]
fn the_same_document_changes_nothing() {
    let same = json!({"_format_version": "3.0",
        "services": [
            {"host": "nameless.test", "routes": [{"paths": ["/a"], "plugins": [{"name": "key-auth"}]}, {"paths": ["/a"]}]},
            {"host": "nameless.test"}, {"host": "nameless.test"},
            {"name": "named", "host": "h", "routes": [{"hosts": ["h"]}]}],
        "routes": [{"paths": ["/flat"]}, {"paths": ["/flat"]}],
        "consumers": [{"custom_id": "only"}, {"username": "al", "keyauth_credentials": [{}, {}, {"key": "own"}],
            "jwt_secrets": [{}, {"key": "k"}], "hmacauth_credentials": [{"username": "h"}],
            "basicauth_credentials": [{"username": "b", "password": "p"}],
            "oauth2_credentials": [{"name": "app", "redirect_uris": ["http://x.test/"]}]}],
    });
    let mut running = Running::default();
    let first = running.post(&same, 100).expect("accepted");
    assert_eq!(first.puts.len(), running.entities.len());
    let stored = running.entities.clone();
    for now in 101..104 {
        let again = running.post(&same, now).expect("accepted");
        assert_eq!(changes(&again), [], "at {now}");
        // This load does not use a memo.
        let again = declarative::load(object(&same), &options(now), &running).expect("accepted");
        assert_eq!(changes(&again), [], "at {now}");
    }
    assert!(running.entities == stored);
    assert_eq!(running.all(plugins::kinds::KEYAUTH_CREDENTIALS).len(), 3);
}

#[test]
fn one_change_writes_one_entity_and_keeps_its_creation() {
    let with = |path: &str| {
        document(
            json!([{"name": "a", "host": "a", "routes": [{"name": "r", "paths": [path], "plugins": [{"name": "cors"}]}]},
                {"name": "b", "host": "b"}]),
            json!([{"username": "c"}]),
        )
    };
    let mut running = Running::default();
    running.post(&with("/1"), 100).expect("accepted");
    let changed = running.post(&with("/2"), 200).expect("accepted");
    assert_eq!(changes(&changed), [(EntityKind::Routes, "put")]);
    let route: Object = codec::decode(&changed.puts[0].entity).expect("an entity");
    assert_eq!(route.get("created_at"), Some(&100.into()));
    assert_eq!(route.get("updated_at"), Some(&200.into()));
    let back = running.post(&with("/1"), 300).expect("accepted");
    assert_eq!(changes(&back), [(EntityKind::Routes, "put")]);
}

#[test]
fn missing_entities_are_deleted_children_first() {
    let mut running = Running::default();
    let full = document(
        json!([{"name": "a", "host": "a", "routes": [{"name": "r", "paths": ["/"], "plugins": [{"name": "cors"}]}]},
            {"name": "b", "host": "b"}, {"name": "c", "host": "c"}]),
        json!([{"username": "al", "keyauth_credentials": [{"key": "k"}]}, {"username": "bo"}, {"username": "cy"}]),
    );
    running.post(&full, 1).expect("accepted");
    let less = document(
        json!([{"name": "b", "host": "b"}, {"name": "c", "host": "c"}]),
        json!([{"username": "al"}, {"username": "bo"}, {"username": "cy"}]),
    );
    let changed = running.post(&less, 2).expect("accepted");
    assert_eq!(
        changes(&changed),
        [
            (plugins::kinds::KEYAUTH_CREDENTIALS, "delete"),
            (EntityKind::Plugins, "delete"),
            (EntityKind::Routes, "delete"),
            (EntityKind::Services, "delete")
        ]
    );
    let nothing = running
        .post(&json!({"_format_version": "3.0"}), 3)
        .expect("accepted");
    assert_eq!(nothing.deletes.len(), 5);
    assert_eq!(running.all(EntityKind::Workspaces).len(), 1);
}

#[test]
fn a_credential_without_key_does_not_inherit_one_that_was_given() {
    let with = |credentials: Json| {
        document(
            json!([]),
            json!([{"username": "al", "keyauth_credentials": credentials}]),
        )
    };
    let mut running = Running::default();
    running
        .post(&with(json!([{"key": "leaked"}])), 1)
        .expect("accepted");
    running.post(&with(json!([{}])), 2).expect("accepted");
    let keys = running.all(plugins::kinds::KEYAUTH_CREDENTIALS);
    assert_eq!(keys.len(), 1);
    assert_ne!(keys[0].str("key"), Some("leaked"));
}

#[test]
fn a_change_of_an_entity_is_seen_by_those_that_refer_to_it() {
    let flat = |name: &str, extra: Json| {
        json!({"_format_version": "3.0",
            "services": [{"name": name, "host": "h", "id": "11111111-2222-4333-8444-555555555555"}, extra],
            "routes": [{"name": "r1", "paths": ["/"], "service": "s"}, {"name": "r2", "paths": ["/"]}, {"name": "r3", "paths": ["/"]}]})
    };
    let mut running = Running::default();
    let extra = json!({"name": "x", "host": "x"});
    running
        .post(&flat("s", extra.clone()), 1)
        .expect("accepted");
    running
        .post(&flat("renamed", extra.clone()), 2)
        .expect_err("the route's service is gone");
    running
        .post(&flat("s", json!({"name": "s", "host": "other"})), 3)
        .expect_err("the name is taken");
    let changed = running
        .post(&flat("s", json!({"name": "y", "host": "x"})), 4)
        .expect("accepted");
    assert_eq!(
        changes(&changed),
        [
            (EntityKind::Services, "put"),
            (EntityKind::Services, "delete")
        ]
    );
}

#[test]
fn unchanged_keys_are_still_unique() {
    let with = |key: &str| {
        document(
            json!([]),
            json!([{"username": "a", "keyauth_credentials": [{"key": "k1"}]},
            {"username": "b", "keyauth_credentials": [{"key": key}]}, {"username": "c"}, {"username": "d"}]),
        )
    };
    let mut running = Running::default();
    running.post(&with("k2"), 1).expect("accepted");
    let error = running.post(&with("k1"), 2).expect_err("taken");
    assert!(
        error.message.contains("key set to 'k1' already declared"),
        "{error}"
    );
    let swapped = document(
        json!([]),
        json!([{"username": "a", "keyauth_credentials": [{"key": "k2"}]},
        {"username": "b", "keyauth_credentials": [{"key": "k1"}]}, {"username": "c"}, {"username": "d"}]),
    );
    running.post(&swapped, 3).expect("accepted");
}

#[test]
fn another_format_version_reloads_unchanged_elements() {
    let text = |version: &str| json!({"_format_version": version, "services": [{"name": "a", "host": "h", "routes": [{"name": "r", "paths": ["/\\d+"]}]}]});
    let mut running = Running::default();
    running.post(&text("3.0"), 1).expect("accepted");
    let changed = running.post(&text("2.1"), 2).expect("accepted");
    assert_eq!(changes(&changed), [(EntityKind::Routes, "put")]);
    let route: Object = codec::decode(&changed.puts[0].entity).expect("an entity");
    assert_eq!(
        serde_json::to_value(route.get("paths")).expect("json"),
        json!(["~/\\d+"])
    );
}

#[test]
fn other_changes_of_the_store_are_reverted() {
    let same = document(
        json!([{"name": "a", "host": "h"}, {"name": "b", "host": "h"}]),
        json!([]),
    );
    let mut running = Running::default();
    running.post(&same, 1).expect("accepted");
    let key = *running
        .entities
        .keys()
        .find(|(kind, _)| *kind == EntityKind::Services)
        .expect("a service");
    running.entities.remove(&key);
    running.revision += 1;
    let again = running.post(&same, 2).expect("accepted");
    assert_eq!(changes(&again), [(EntityKind::Services, "put")]);
}

#[test]
fn an_export_loads_to_the_same() {
    let source = json!({"_format_version": "3.0",
        "services": [{"name": "a", "url": "http://h.test:81/p", "tags": ["yes", "1"], "routes": [{"paths": ["~/\\d+$"],
            "headers": {"x-a": ["1", "no"]}, "plugins": [{"name": "request-termination", "config": {"message": "a: 'b'\nc"}}]}]}],
        "consumers": [{"username": "null", "basicauth_credentials": [{"username": "u", "password": "p"}]}],
        "upstreams": [{"name": "u.test", "targets": [{"target": "10.0.0.1:80"}]}],
        "plugins": [{"name": "rate-limiting", "config": {"minute": 5}}]});
    let mut running = Running::default();
    running.post(&source, 100).expect("accepted");
    let exported = running.export(ExportFormat::Yaml);
    assert!(
        exported.starts_with("_format_version: '3.0'\n_transform: false\nconsumers:\n- "),
        "{exported}"
    );
    let document =
        declarative::parse(exported.as_bytes(), declarative::Format::Yaml).expect("yaml");
    let again = declarative::load(document, &options(200), &running).expect("accepted");
    assert_eq!(changes(&again), [], "{exported}");
    assert_eq!(running.export(ExportFormat::Yaml), exported);
}

#[test]
fn a_change_within_a_long_element_is_found() {
    let with = |host: &str, path: &str| {
        let routes: Vec<Json> = (0..200)
            .map(|number| {
                let path = if number == 7 { path.to_owned() } else { format!("/{number}") };
                json!({"name": format!("route-{number}"), "paths": [path], "plugins": [{"name": "cors"}]})
            })
            .collect();
        json!({"_format_version": "2.1", "services": [{"name": "long", "host": host, "routes": routes, "plugins": [{"name": "key-auth"}]}]})
    };
    let mut running = Running::default();
    running.post(&with("a", "/x"), 1).expect("accepted");
    assert_eq!(
        changes(&running.post(&with("a", "/x"), 2).expect("accepted")),
        []
    );
    assert_eq!(
        changes(&running.post(&with("a", "/y(.)"), 3).expect("accepted")),
        [(EntityKind::Routes, "put")]
    );
    assert_eq!(
        changes(&running.post(&with("b", "/y(.)"), 4).expect("accepted")),
        [(EntityKind::Services, "put")]
    );
    let plain =
        declarative::load(object(&with("b", "/y(.)")), &options(5), &running).expect("accepted");
    assert_eq!(changes(&plain), []);
    let error = running.post(&with("b", "y"), 6).expect_err("refused");
    assert!(
        error.message.contains("{[8]={paths={\"should start with"),
        "{error}"
    );
}

#[test]
fn portions_may_refer_to_later_portions() {
    let services: Vec<Json> = (0..1500)
        .map(|number| {
            json!({"name": format!("s{number}"), "host": "upstream.test", "tags": ["some", "tags", "for", "length"],
                "routes": [{"name": format!("r{number}"), "paths": [format!("/{number}")]}]})
        })
        .collect();
    let document = |service: &str| {
        json!({"_format_version": "3.0", "services": services,
            "consumers": [{"username": "al", "plugins": [{"name": "rate-limiting", "route": "r1499", "config": {"minute": 1}}]}],
            "plugins": [{"name": "cors", "service": service}]})
    };
    let id = declarative::load(object(&document("s0")), &options(1), &Running::default())
        .expect("accepted")
        .puts
        .iter()
        .rfind(|put| put.kind == EntityKind::Services)
        .map(|put| put.id.to_string())
        .expect("a service");
    for service in ["s0", &id] {
        let mut running = Running::default();
        assert_eq!(
            running
                .post(&document(service), 1)
                .expect("accepted")
                .puts
                .len(),
            3004
        );
        let plain =
            declarative::load(object(&document(service)), &options(2), &running).expect("accepted");
        assert_eq!(changes(&plain), []);
        assert_eq!(
            changes(&running.post(&document(service), 3).expect("accepted")),
            []
        );
    }
}

#[test]
fn a_name_may_look_like_an_id() {
    let name = "11111111-2222-4333-8444-555555555555";
    let document = json!({"_format_version": "3.0",
        "services": [{"name": "other", "id": name, "host": "a"}, {"name": name, "host": "b"}],
        "routes": [{"name": "r", "paths": ["/"], "service": name}]});
    let mut running = Running::default();
    running.post(&document, 1).expect("accepted");
    let named = running
        .all(EntityKind::Services)
        .into_iter()
        .find(|service| service.str("name") == Some(name));
    let route = running.all(EntityKind::Routes).remove(0);
    let reference = route
        .get("service")
        .and_then(|service| service.as_object()?.str("id").map(str::to_owned));
    assert_eq!(reference.as_deref(), named.expect("a service").str("id"));
    assert_eq!(changes(&running.post(&document, 2).expect("accepted")), []);
}

/// Compares loads with a memo to loads without one.
#[test]
fn remembering_changes_no_outcome() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut below = |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let mut running = Running::default();
    let (mut accepted, mut refused) = (0, 0);
    let mut services: Vec<Json> = (0..8).map(|number| service(number, 0)).collect();
    let mut consumers: Vec<Json> = (0..8)
        .map(|number| json!({"username": format!("c{number}")}))
        .collect();
    let mut routes: Vec<Json> = Vec::new();
    let mut plugins: Vec<Json> = Vec::new();
    for round in 0..400 {
        let before = (
            services.clone(),
            consumers.clone(),
            routes.clone(),
            plugins.clone(),
        );
        for _ in 0..=below(2) {
            let at = below(8) as usize;
            let number = below(9);
            match below(6) {
                0 => services[at] = service(number, below(4)),
                1 => consumers[at] = json!({"username": format!("c{number}"), "keyauth_credentials": [{"key": format!("k{}", below(9))}]}),
                2 => routes.push(json!({"name": format!("f{}", below(12)), "paths": ["/"], "service": format!("s{number}")})),
                3 => plugins.push(json!({"name": "cors", "service": format!("s{number}")})),
                4 => drop(routes.pop()),
                _ => drop(plugins.pop()),
            }
        }
        let document = json!({"_format_version": "3.0", "services": services, "consumers": consumers, "routes": routes,
            "plugins": plugins});
        let plain = declarative::load(object(&document), &options(round), &running);
        let posted = running.post(&document, round);
        match (plain, posted) {
            (Ok(plain), Ok(posted)) => {
                accepted += 1;
                let sorted = |document: &Document| {
                    let mut puts: Vec<_> = document
                        .puts
                        .iter()
                        .map(|put| (put.kind, put.id, put.entity.clone()))
                        .collect();
                    let mut deletes = document.deletes.clone();
                    puts.sort();
                    deletes.sort();
                    (puts, deletes)
                };
                assert_eq!(sorted(&plain), sorted(&posted), "round {round}: {document}");
            }
            (Err(plain), Err(posted)) => {
                refused += 1;
                assert_eq!(plain, posted, "round {round}");
                (services, consumers, routes, plugins) = before;
            }
            (plain, posted) => panic!("round {round}: {plain:?} {posted:?} {document}"),
        }
    }
    assert!(accepted > 50 && refused > 50, "{accepted} {refused}");
}

fn service(number: u64, form: u64) -> Json {
    let name = format!("s{number}");
    match form {
        0 => json!({"name": name, "host": "h"}),
        1 => {
            json!({"name": name, "host": "h", "routes": [{"name": format!("r{number}"), "paths": ["/"]}]})
        }
        2 => json!({"name": name, "host": "h", "plugins": [{"name": "cors"}]}),
        _ => {
            json!({"name": name, "host": format!("h{number}"), "routes": [{"name": "shared", "paths": ["/"]}]})
        }
    }
}

#[test]
fn a_document_with_only_workspaces_is_empty() {
    let mut running = Running::default();
    let nothing = json!({"_format_version": "3.0", "workspaces": [{"name": "team"}]});
    let something = json!({"_format_version": "3.0", "workspaces": [{"name": "team"}], "consumers": [{"username": "c"}]});
    for (document, is_empty) in [
        (&json!({"_format_version": "3.0"}), true),
        (&nothing, true),
        (&nothing, true),
        (&something, false),
        (&something, false),
        (&nothing, true),
    ] {
        let loaded = running.post(document, 100).expect("accepted");
        assert_eq!(loaded.is_empty, is_empty, "{document}");
    }
}
