//! Tests that a snapshot that was changed step by step equals one that is built at once from the final configuration.

use crate::world::{World, id, route, service, with};
use model::EntityKind;
use plugin::{BuildCx, BuildError, Implementation, Lack, Phases, Plugin, PluginDef, Scopes};
use proxy::snapshot::{BuildSettings, Snapshot};
use router::{HeaderSource, Request, Scheme, Scratch};
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use testkit::random::Random;
use uuid::Uuid;

/// Number of random configurations, each changed step by step.
const CASES: u64 = 150;
const STEPS: usize = 16;

/// Returns a reference to a random entity of a kind, or null.
fn reference(random: &mut Random, world: &World, kind: EntityKind) -> Value {
    let ids: Vec<Uuid> = world.of(kind).map(|(id, _)| id).collect();
    if ids.is_empty() || random.one_in(3) {
        Value::Null
    } else {
        json!({"id": random.pick(&ids)})
    }
}

/// Has phases that depend on its configuration.
struct Numbered(u32);

#[derive(serde::Deserialize)]
struct Config {
    number: u32,
}

impl Plugin for Numbered {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self(config.number))
    }

    fn phases(&self, defined: Phases) -> Phases {
        if self.0 == 0 { defined } else { Phases::ACCESS }
    }
}

fn unimplemented(name: &'static str, lack: Lack) -> PluginDef {
    PluginDef {
        implementation: Implementation::Later { lack, without: "" },
        ..numbered(name)
    }
}

fn numbered(name: &'static str) -> PluginDef {
    let phases = Phases::ACCESS.with(Phases::LOG);
    PluginDef::bundled::<Numbered>(name, 1, phases, Scopes::ALL)
}

static PLUGINS: LazyLock<Vec<Arc<PluginDef>>> = LazyLock::new(|| {
    let defs = [
        numbered("equal"),
        numbered("own"),
        unimplemented("guard", Lack::Protection),
        unimplemented("feature", Lack::Feature),
    ];
    defs.into_iter().map(Arc::new).collect()
});

fn settings(flavor: router::Flavor) -> BuildSettings {
    BuildSettings {
        plugins: PLUGINS.to_vec(),
        router: router::Options {
            flavor,
            ..router::Options::default()
        },
        ..BuildSettings::default()
    }
}

/// Certificates and their keys, as PEM.
static PAIRS: LazyLock<Vec<(String, String)>> = LazyLock::new(|| {
    let pair = |name: &str| {
        let made = rcgen::generate_simple_self_signed(vec![name.to_owned()]);
        let made = made.expect("a certificate can be made");
        (made.cert.pem(), made.signing_key.serialize_pem())
    };
    ["one.test", "two.test", "three.test"].map(pair).into()
});

const HOSTS: [&str; 5] = ["a.test", "pool-1", "pool-2", "pool-3", "10.0.0.1"];
const NAMES: [&str; 5] = ["one.test", "*.test", "two.test", "TWO.test", "*"];
const PATHS: [&str; 6] = ["/", "/a", "/a/b", "~/a/(?<id>\\d+)$", "/c", "~/c.*"];

/// Creates or replaces a random entity.
fn put(world: &mut World, random: &mut Random) {
    let number = random.below(6) as u128;
    match random.below(16) {
        0..4 => {
            let entity = a_route(world, random, 100 + number);
            world.put(EntityKind::Routes, entity);
        }
        4..7 => {
            let entity = a_service(world, random, 200 + number);
            world.put(EntityKind::Services, entity);
        }
        7..10 => put_plugin(world, random, 300 + number),
        10 => put_upstream(world, random, 400 + number),
        11..13 => {
            let upstream = reference(random, world, EntityKind::Upstreams);
            if upstream.is_null() {
                return;
            }
            let target = random.pick(&["10.0.0.1:80", "10.0.0.2:81", "b.test:82", "no address!"]);
            world.put(
                EntityKind::Targets,
                json!({"id": id(500 + number), "upstream": upstream, "target": target, "weight": random.below(3) * 50}),
            );
        }
        13 => {
            let number = number % 3;
            let (cert, key) = random.pick(&PAIRS).clone();
            // A certificate with an invalid key is refused.
            let key = if random.one_in(8) {
                "no key".to_owned()
            } else {
                key
            };
            world.put(
                EntityKind::Certificates,
                json!({"id": id(600 + number), "cert": cert, "key": key}),
            );
        }
        14 => put_sni(world, random, 700 + number),
        _ => {
            let (cert, _) = random.pick(&PAIRS).clone();
            world.put(
                EntityKind::CaCertificates,
                json!({"id": id(800 + number % 3), "cert": cert}),
            );
            world.put(EntityKind::Consumers, json!({"id": id(900 + number)}));
        }
    }
}

fn a_route(world: &World, random: &mut Random, number: u128) -> Value {
    let service = reference(random, world, EntityKind::Services);
    let mut entity = route(number, None, json!({"service": service}));
    entity["created_at"] = json!(random.below(3));
    entity["paths"] = json!([random.pick(&PATHS), random.pick(&PATHS)]);
    entity["preserve_host"] = json!(random.one_in(2));
    if random.one_in(3) {
        entity["hosts"] = json!([random.pick(&["one.test", "*.test", "one.test:80"])]);
    }
    if random.one_in(4) {
        entity["methods"] = json!([random.pick(&["GET", "POST", "ODD"])]);
    }
    if random.one_in(5) {
        let (protocols, ports) = (["tcp", "tls", "udp"], [1000, 1001, 1002]);
        entity["protocols"] = json!([random.pick(&protocols)]);
        entity["destinations"] = json!([{"port": random.pick(&ports)}]);
        entity["paths"] = json!([]);
    }
    if random.one_in(3) {
        entity["name"] = json!(format!("route-{}", random.below(100)));
    }
    entity
}

fn a_service(world: &World, random: &mut Random, number: u128) -> Value {
    let entity = service(
        number,
        json!({
            "host": random.pick(&HOSTS), "retries": random.below(3), "enabled": !random.one_in(4),
            "protocol": random.pick(&["http", "https", "tcp"]),
            "client_certificate": reference(random, world, EntityKind::Certificates),
        }),
    );
    if random.one_in(2) {
        entity
    } else {
        with(
            entity,
            json!({"tls_verify": true, "ca_certificates": [id(800), id(801)], "path": "/base"}),
        )
    }
}

fn put_plugin(world: &mut World, random: &mut Random, number: u128) {
    let scope = ["route", "service", "consumer"];
    let [route, service, consumer] = [
        EntityKind::Routes,
        EntityKind::Services,
        EntityKind::Consumers,
    ]
    .map(|kind| reference(random, world, kind));
    let mut entity = json!({
        "id": id(number), "name": random.pick(&PLUGINS).name, "enabled": !random.one_in(5),
        "config": {"number": random.below(3)},
        "protocols": random.pick(&[json!(["http"]), json!(["tcp"]), json!(["http", "tcp"])]),
        "route": route, "service": service, "consumer": consumer,
    });
    for field in scope {
        if random.one_in(2) {
            entity[field] = Value::Null;
        }
    }
    // A scope can have only one plugin of each name, which the store ensures.
    let key =
        |one: &Value| ["name", "route", "service", "consumer"].map(|field| one[field].clone());
    let is_taken =
        |(id, one): (Uuid, &Value)| json!(id) != entity["id"] && key(one) == key(&entity);
    if !world.of(EntityKind::Plugins).any(is_taken) {
        world.put(EntityKind::Plugins, entity);
    }
}

fn put_upstream(world: &mut World, random: &mut Random, number: u128) {
    let name = *random.pick(&HOSTS);
    let entity = json!({
        "id": id(number), "name": name, "slots": 10,
        "algorithm": random.pick(&["round-robin", "consistent-hashing", "least-connections"]),
        "client_certificate": reference(random, world, EntityKind::Certificates),
    });
    let is_taken = |(known, one): (Uuid, &Value)| known != id(number) && one["name"] == name;
    if !world.of(EntityKind::Upstreams).any(is_taken) {
        world.put(EntityKind::Upstreams, entity);
    }
}

fn put_sni(world: &mut World, random: &mut Random, number: u128) {
    let certificate = reference(random, world, EntityKind::Certificates);
    let name = *random.pick(&NAMES);
    let is_taken = |(known, one): (Uuid, &Value)| known != id(number) && one["name"] == name;
    if !certificate.is_null() && !world.of(EntityKind::Snis).any(is_taken) {
        world.put(
            EntityKind::Snis,
            json!({"id": id(number), "name": name, "certificate": certificate}),
        );
    }
}

/// The references between entities: referring type, field, type referred to, and whether deletion cascades.
const REFERENCES: [(EntityKind, &str, EntityKind, bool); 9] = [
    (EntityKind::Plugins, "route", EntityKind::Routes, true),
    (EntityKind::Plugins, "service", EntityKind::Services, true),
    (EntityKind::Plugins, "consumer", EntityKind::Consumers, true),
    (EntityKind::Targets, "upstream", EntityKind::Upstreams, true),
    (
        EntityKind::Snis,
        "certificate",
        EntityKind::Certificates,
        true,
    ),
    (EntityKind::Routes, "service", EntityKind::Services, false),
    (
        EntityKind::Services,
        "client_certificate",
        EntityKind::Certificates,
        false,
    ),
    (
        EntityKind::Upstreams,
        "client_certificate",
        EntityKind::Certificates,
        false,
    ),
    (
        plugins::kinds::KEYAUTH_CREDENTIALS,
        "consumer",
        EntityKind::Consumers,
        true,
    ),
];

/// Deletes a random entity with its dependents, unless a reference forbids it.
fn delete(world: &mut World, random: &mut Random) {
    let kinds = [
        EntityKind::Routes,
        EntityKind::Services,
        EntityKind::Plugins,
        EntityKind::Upstreams,
        EntityKind::Targets,
        EntityKind::Certificates,
        EntityKind::Snis,
        EntityKind::CaCertificates,
        EntityKind::Consumers,
    ];
    let kind = *random.pick(&kinds);
    let ids: Vec<Uuid> = world.of(kind).map(|(id, _)| id).collect();
    if ids.is_empty() {
        return;
    }
    let victim = *random.pick(&ids);
    let mut goes = vec![(kind, victim)];
    for (child, field, parent, cascades) in REFERENCES {
        if parent != kind {
            continue;
        }
        let of_victim = |(_, one): &(Uuid, &Value)| one[field] == json!({"id": victim});
        let children = world.of(child).filter(of_victim);
        let children: Vec<_> = children.map(|(id, _)| (child, id)).collect();
        // A service may be deleted together with its routes.
        let together = child == EntityKind::Routes && random.one_in(2);
        if !cascades && !together && !children.is_empty() {
            return;
        }
        for (_, route) in children.iter().filter(|_| together) {
            let of_route = |(_, one): &(Uuid, &Value)| one["route"] == json!({"id": route});
            let plugins = world.of(EntityKind::Plugins).filter(of_route);
            goes.extend(plugins.map(|(id, _)| (EntityKind::Plugins, id)));
        }
        goes.extend(children);
    }
    for (kind, id) in goes {
        world.delete(kind, id);
    }
}

struct NoHeaders;

impl HeaderSource for NoHeaders {
    fn each(&self, _: &mut dyn FnMut(&[u8], &[u8])) {}
}

/// Returns the routes of various requests.
fn decisions(snapshot: &Snapshot) -> Vec<Option<Uuid>> {
    let mut scratch = Scratch::default();
    let mut decisions = Vec::new();
    for host in ["one.test", "x.test", "other"] {
        for path in ["/", "/a", "/a/b/c", "/a/1", "/c", "/d"] {
            for method in ["GET", "POST"] {
                let request = Request {
                    method,
                    path: path.as_bytes(),
                    host: Some(host.as_bytes()),
                    scheme: Scheme::Http,
                    sni: None,
                    query: None,
                    source: None,
                    destination: None,
                    port: 80,
                    headers: &NoHeaders,
                };
                let found = snapshot.router.matches(&request, &mut scratch);
                decisions.push(found.map(|found| snapshot.route(found.route).id.0));
            }
        }
    }
    decisions
}

fn assert_same(changed: &Snapshot, built: &Snapshot, case: u64) {
    let (changed_lines, built_lines) = (changed.describe(), built.describe());
    for (one, two) in changed_lines.iter().zip(&built_lines) {
        assert_eq!(one, two, "case {case}");
    }
    assert_eq!(changed_lines.len(), built_lines.len(), "case {case}");
    assert_eq!(decisions(changed), decisions(built), "case {case}");
}

/// Changes a configuration many times, and returns the number of accepted changes.
fn run(case: u64, flavor: router::Flavor) -> usize {
    let settings = settings(flavor);
    let mut random = Random::new(case);
    let mut world = World::default();
    let mut current = world
        .build(&settings)
        .expect("the empty configuration can be served");
    let mut accepted = 0;
    for _ in 0..STEPS {
        let before = world.clone();
        for _ in 0..=random.below(6) {
            if random.one_in(4) {
                delete(&mut world, &mut random);
            } else {
                put(&mut world, &mut random);
            }
        }
        let changed = world.update(&current, &settings);
        match (changed, world.build(&settings)) {
            (Ok(changed), Ok(built)) => {
                assert_same(&changed, &built, case);
                current = changed;
                accepted += 1;
            }
            (Err(changed), Err(built)) => {
                assert_eq!(changed.to_string(), built.to_string(), "case {case}");
                world = before;
            }
            (changed, built) => panic!("case {case}: {changed:?}, and built {built:?}"),
        }
    }
    accepted
}

fn run_all(flavor: router::Flavor) {
    let accepted: usize = (0..CASES).map(|case| run(case, flavor)).sum();
    // Most changes must be accepted, because refused changes test little.
    assert!(accepted > CASES as usize * STEPS * 3 / 4, "{accepted}");
}

#[test]
fn a_snapshot_changed_step_by_step_equals_one_built_at_once() {
    run_all(router::Flavor::TraditionalCompatible);
}

#[test]
fn a_snapshot_changed_step_by_step_equals_one_built_at_once_with_the_traditional_router() {
    run_all(router::Flavor::Traditional);
}
