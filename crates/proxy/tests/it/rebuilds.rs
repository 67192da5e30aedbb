//! Tests that a change rebuilds only the parts that it affects. The tests check how many items of each part were built.

use crate::fixture::{plugin, settings};
use crate::world::{World, id, reference, route, service, with};
use model::EntityKind;
use proxy::balance::{PickInput, Tried};
use proxy::snapshot::{BuildSettings, Part, Snapshot};
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Number of routes of each of the two services.
const ROUTES: u128 = 50;

/// A configuration with two services and their routes, an upstream for the second service, a plugin on one route of the
/// first, certificates with server names, and a stream route.
struct Bench {
    world: World,
    settings: BuildSettings,
    current: Snapshot,
}

/// Number of items built of each part.
#[derive(Debug, Default, PartialEq, Eq)]
struct Built {
    certificates: u64,
    services: u64,
    balancers: u64,
    plugins: u64,
    plans: u64,
    router: u64,
    streams: u64,
}

impl Built {
    fn of(settings: &BuildSettings) -> Self {
        let of = |part| settings.rebuilds.made(part);
        Self {
            certificates: of(Part::Certificates),
            services: of(Part::Services),
            balancers: of(Part::Balancers),
            plugins: of(Part::Plugins),
            plans: of(Part::Plans),
            router: of(Part::Router),
            streams: of(Part::Streams),
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            certificates: self.certificates - before.certificates,
            services: self.services - before.services,
            balancers: self.balancers - before.balancers,
            plugins: self.plugins - before.plugins,
            plans: self.plans - before.plans,
            router: self.router - before.router,
            streams: self.streams - before.streams,
        }
    }
}

impl Bench {
    fn new() -> Self {
        let mut world = World::default();
        world.put(EntityKind::Services, service(1, json!({})));
        world.put(EntityKind::Services, balanced());
        world.put(EntityKind::Upstreams, upstream());
        world.put(
            EntityKind::Upstreams,
            json!({"id": id(41), "name": "other"}),
        );
        world.put(EntityKind::Targets, target());
        for number in 0..ROUTES {
            world.put(EntityKind::Routes, route(100 + number, Some(1), json!({})));
            world.put(EntityKind::Routes, route(200 + number, Some(2), json!({})));
        }
        world.put(EntityKind::Routes, stream());
        world.put(EntityKind::Plugins, termination(300, "route", 100));
        world.put(EntityKind::Certificates, certificate(600));
        world.put(EntityKind::Certificates, certificate(601));
        world.put(EntityKind::Snis, sni(700, "one.test"));
        world.put(EntityKind::Snis, sni(701, "two.test"));
        let settings = settings();
        let empty = World::default()
            .build(&settings)
            .expect("the empty configuration can be served");
        let current = world
            .update(&empty, &settings)
            .expect("the configuration can be served");
        Self {
            world,
            settings,
            current,
        }
    }

    /// Makes a change and returns the number of items that the next snapshot builds.
    fn after(&mut self, change: impl FnOnce(&mut World)) -> Built {
        change(&mut self.world);
        let before = Built::of(&self.settings);
        let next = self.world.update(&self.current, &self.settings);
        self.current = next.expect("the configuration can be served");
        let built = self.world.build(&BuildSettings {
            rebuilds: Arc::default(),
            ..self.settings.clone()
        });
        let built = built.expect("the configuration can be served");
        assert_eq!(self.current.describe(), built.describe());
        Built::of(&self.settings).since(&before)
    }

    fn put(&mut self, kind: EntityKind, entity: Value) -> Built {
        self.after(|world| world.put(kind, entity))
    }
}

fn balanced() -> Value {
    service(2, json!({"host": "pool"}))
}

fn upstream() -> Value {
    json!({"id": id(40), "name": "pool"})
}

fn target() -> Value {
    json!({"id": id(50), "upstream": reference(40), "target": "10.0.0.1:80", "weight": 100})
}

fn termination(number: u128, scope: &str, of: u128) -> Value {
    let plugin = plugin(
        "request-termination",
        json!({"status_code": 503, "echo": false}),
    );
    with(plugin, json!({"id": id(number), scope: reference(of)}))
}

fn stream() -> Value {
    let of_stream = json!({"protocols": ["tcp"], "paths": [], "destinations": [{"port": 1}]});
    route(250, Some(1), of_stream)
}

fn certificate(number: u128) -> Value {
    let made = rcgen::generate_simple_self_signed(vec!["one.test".to_owned()]);
    let made = made.expect("a certificate can be made");
    json!({"id": id(number), "cert": made.cert.pem(), "key": made.signing_key.serialize_pem()})
}

fn sni(number: u128, name: &str) -> Value {
    json!({"id": id(number), "name": name, "certificate": reference(600)})
}

#[test]
fn a_route_is_put_into_the_router_and_gets_its_plan() {
    let mut bench = Bench::new();
    let one = || Built {
        plans: 1,
        router: 1,
        ..Built::default()
    };
    let moved = route(100, Some(1), json!({"paths": ["/moved"]}));
    assert_eq!(bench.put(EntityKind::Routes, moved), one());
    assert_eq!(
        bench.put(EntityKind::Routes, route(199, None, json!({}))),
        one()
    );
    let gone = bench.after(|world| {
        world.delete(EntityKind::Plugins, id(300));
        world.delete(EntityKind::Routes, id(100));
    });
    let expected = Built {
        plugins: 1,
        router: 1,
        ..Built::default()
    };
    assert_eq!(gone, expected);
    let of_stream = with(stream(), json!({"destinations": [{"port": 2}]}));
    let expected = Built {
        streams: 1,
        ..Built::default()
    };
    assert_eq!(bench.put(EntityKind::Routes, of_stream), expected);
}

#[test]
fn a_service_is_built_without_its_routes() {
    let mut bench = Bench::new();
    let router = Arc::clone(&bench.current.router);
    let one = || Built {
        services: 1,
        ..Built::default()
    };
    let changed = service(1, json!({"path": "/base"}));
    assert_eq!(bench.put(EntityKind::Services, changed), one());
    // Metrics name a service without a name by its host, so what its routes hold for metrics is made again.
    let moved = service(1, json!({"host": "b.test", "path": "/base"}));
    let expected = Built {
        streams: 1,
        ..one()
    };
    assert_eq!(bench.put(EntityKind::Services, moved), expected);
    assert_eq!(
        bench.put(
            EntityKind::Services,
            with(balanced(), json!({"path": "/b"}))
        ),
        one()
    );
    // The balancer holds the connection settings of its services.
    let expected = Built {
        balancers: 1,
        ..one()
    };
    assert_eq!(
        bench.put(
            EntityKind::Services,
            with(balanced(), json!({"retries": 1}))
        ),
        expected
    );
    assert_eq!(
        bench.put(
            EntityKind::Services,
            with(balanced(), json!({"host": "c.test"}))
        ),
        expected
    );
    assert!(Arc::ptr_eq(&router, &bench.current.router));
    // A disabled service removes its routes from the router.
    let off = with(balanced(), json!({"enabled": false}));
    let expected = Built {
        router: ROUTES as u64,
        ..one()
    };
    assert_eq!(bench.put(EntityKind::Services, off), expected);
    let expected = Built {
        plans: ROUTES as u64,
        balancers: 1,
        ..expected
    };
    assert_eq!(bench.put(EntityKind::Services, balanced()), expected);
}

#[test]
fn a_change_of_a_target_or_upstream_rebuilds_only_its_balancer() {
    let mut bench = Bench::new();
    let other = bench.current.upstreams().last().cloned();
    let one = || Built {
        balancers: 1,
        ..Built::default()
    };
    assert_eq!(
        bench.put(EntityKind::Targets, with(target(), json!({"weight": 1}))),
        one()
    );
    let moved = with(target(), json!({"upstream": reference(41)}));
    assert_eq!(
        bench.put(EntityKind::Targets, moved),
        Built {
            balancers: 2,
            ..one()
        }
    );
    assert_eq!(
        bench.after(|world| world.delete(EntityKind::Targets, id(50))),
        one()
    );
    let changed = with(upstream(), json!({"algorithm": "least-connections"}));
    assert_eq!(bench.put(EntityKind::Upstreams, changed), one());
    // The service's host no longer names the renamed upstream.
    let renamed = with(upstream(), json!({"name": "renamed"}));
    let expected = Built {
        services: 1,
        ..one()
    };
    assert_eq!(bench.put(EntityKind::Upstreams, renamed), expected);
    // The other upstream is still present after it has gained and lost a target.
    let now = bench.current.upstreams().last().cloned();
    assert_eq!(other.map(|one| one.id()), now.map(|one| one.id()));
}

#[test]
fn a_plugin_changes_the_plans_of_its_scope() {
    let mut bench = Bench::new();
    let plans = |plans| Built {
        plugins: 1,
        plans,
        ..Built::default()
    };
    assert_eq!(
        bench.put(EntityKind::Plugins, termination(301, "route", 205)),
        plans(1)
    );
    let routes = ROUTES as u64;
    assert_eq!(
        bench.put(EntityKind::Plugins, termination(302, "service", 2)),
        plans(routes)
    );
    // A global plugin changes the plans of all routes, and the plan for requests without a route.
    let global = with(termination(303, "route", 0), json!({"route": null}));
    assert_eq!(
        bench.put(EntityKind::Plugins, global),
        plans(2 * routes + 1)
    );
    // The first plugin for a consumer adds a layer to all plans. Further such plugins change only this layer.
    let of_consumer = |number: u128| termination(400 + number, "consumer", 900 + number);
    assert_eq!(
        bench.put(EntityKind::Plugins, of_consumer(0)),
        plans(2 * routes + 1)
    );
    assert_eq!(bench.put(EntityKind::Plugins, of_consumer(1)), plans(0));
    assert_eq!(
        bench.after(|world| world.delete(EntityKind::Plugins, id(400))),
        plans(0)
    );
    let last = bench.after(|world| world.delete(EntityKind::Plugins, id(401)));
    assert_eq!(last, plans(2 * routes + 1));
}

#[test]
fn a_change_of_a_certificate_or_sni_rebuilds_only_its_entries() {
    let mut bench = Bench::new();
    let names = |certificates| Built {
        certificates,
        ..Built::default()
    };
    assert_eq!(
        bench.put(EntityKind::Snis, sni(702, "three.test")),
        names(1)
    );
    // The certificate itself and its three names are rebuilt.
    assert_eq!(
        bench.put(EntityKind::Certificates, certificate(600)),
        names(4)
    );
    assert_eq!(
        bench.put(EntityKind::Certificates, certificate(601)),
        names(1)
    );
    // The service uses this certificate as client certificate too.
    let showing = service(
        1,
        json!({"protocol": "https", "client_certificate": reference(601)}),
    );
    bench.put(EntityKind::Services, showing);
    let expected = Built {
        services: 1,
        ..names(1)
    };
    assert_eq!(
        bench.put(EntityKind::Certificates, certificate(601)),
        expected
    );
    let authority = certificate(800);
    assert_eq!(
        bench.put(EntityKind::CaCertificates, authority),
        Built::default()
    );
    let trusting = json!({"protocol": "https", "tls_verify": true, "ca_certificates": [id(800)]});
    bench.put(EntityKind::Services, service(1, trusting));
    let expected = Built {
        services: 1,
        ..Built::default()
    };
    assert_eq!(
        bench.put(EntityKind::CaCertificates, certificate(800)),
        expected
    );
}

#[test]
fn consumers_and_credentials_change_nothing_at_all() {
    let mut bench = Bench::new();
    let consumer = json!({"id": id(900), "username": "nora"});
    assert_eq!(bench.put(EntityKind::Consumers, consumer), Built::default());
    let credential = json!({"id": id(901), "consumer": reference(900), "key": "k"});
    assert_eq!(
        bench.put(plugins::kinds::KEYAUTH_CREDENTIALS, credential),
        Built::default()
    );
}

#[test]
fn the_health_of_peers_survives_changes() {
    let mut bench = Bench::new();
    let health = |snapshot: &Snapshot| {
        let upstream = snapshot.upstream(model::entities::UpstreamId(id(40)));
        let upstream = upstream.expect("the upstream exists");
        let picked = upstream.pick(0, PickInput::default(), &Tried::default());
        picked.map(|visit| visit.authority.to_string()).ok()
    };
    let checked = json!({"healthchecks": {"passive": {"type": "http", "unhealthy": {"http_failures": 1, "http_statuses": [500]}}}});
    bench.put(EntityKind::Upstreams, with(upstream(), checked));
    let route = bench.current.routes().last().expect("there are routes");
    let service = bench
        .current
        .service(route)
        .expect("the route has a service");
    let chosen = service.pick(PickInput::default(), &Tried::default());
    let chosen = chosen.expect("there is a target");
    chosen.report(proxy::health::Outcome::Status(500));
    drop(chosen);
    assert_eq!(health(&bench.current), None);
    bench.put(
        EntityKind::Services,
        with(balanced(), json!({"retries": 1})),
    );
    assert_eq!(health(&bench.current), None);
    let second = json!({"id": id(51), "target": "10.0.0.2:80"});
    bench.put(EntityKind::Targets, with(target(), second));
    assert_eq!(health(&bench.current), Some("10.0.0.2".to_owned()));
}

/// Returns for each instance whether both snapshots use the same plugin object.
fn same_plugins(one: &Snapshot, two: &Snapshot) -> Vec<bool> {
    let pairs = one.instances().iter().zip(two.instances().iter());
    pairs
        .map(|(one, two)| Arc::ptr_eq(&one.plugin, &two.plugin))
        .collect()
}

#[test]
fn plugin_objects_survive_changes_of_their_scope() {
    let mut bench = Bench::new();
    let before = bench.current.clone();
    // The plugin moves to another route, and an equal one is added.
    bench.put(EntityKind::Plugins, termination(300, "route", 101));
    bench.put(EntityKind::Plugins, termination(301, "route", 100));
    assert_eq!(same_plugins(&before, &bench.current), [true]);
    let ids: Vec<Uuid> = [300, 301].map(id).into();
    bench.after(|world| {
        ids.into_iter()
            .for_each(|id| world.delete(EntityKind::Plugins, id))
    });
    assert!(bench.current.instances().is_empty());
}
