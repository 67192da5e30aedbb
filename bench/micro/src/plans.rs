//! Operations that build plugin chains and run their access phase.

use crate::fixtures::{
    config, consumer_id, key, key_auth, nowhere, ready, request_termination, route_id, service_id,
    snapshot,
};
use crate::operation::Operation;
use model::entities::{
    BasicauthCredential, Config, Consumer, ConsumerId, CredentialId, KeyauthCredential, Plugin,
};
use model::{EntityKind, Object};
use net::http1::{Limits, RequestHead};
use plugin::{
    Client, KeyOwner, Lookup, LookupError, RequestBody, RequestCx, Scheme, UpstreamEdits,
};
use proxy::plan::{
    Access, InstanceIndex, Instances, Picked, Planner, Plans, Scope, ScopeTable, Scoped, Walk,
};
use proxy::snapshot::Snapshot;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use uuid::Uuid;

const ROUTES: usize = 10_000;
const CONSUMERS: usize = 1000;
const COUNT: u32 = 1000;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        build("plan/build/10000/equal", Sharing::Equal),
        build("plan/build/10000/own", Sharing::Own),
        access("plan/access/none", Vec::new, None),
        access("plan/access/key-auth", || vec![key_auth(0)], None),
        access(
            "plan/access/key-auth-request-termination",
            || vec![key_auth(0), request_termination(0)],
            None,
        ),
        access(
            "plan/access/consumer/1000",
            per_consumer,
            Some(consumer(consumer_id(CONSUMERS / 2))),
        ),
    ]
}

/// Whether routes with equally configured plugins share one plugin instance. In the gateway they do if the plugin is
/// stateless.
#[derive(Clone, Copy)]
enum Sharing {
    Equal,
    Own,
}

/// Builds the chains of 10,000 routes with two plugins each, from the scopes of the plugins.
fn build(name: &str, sharing: Sharing) -> Operation {
    Operation::consume(name, 1, move || {
        let built = snapshot(config(1, nowhere()));
        let (instances, scoped) = scopes(&built, sharing);
        let run = move |()| {
            let mut instances = instances.clone();
            let places = ScopeTable::new(&mut instances, &scoped);
            let mut plans = Plans::default();
            let mut planner = Planner::new(&instances, &places, &mut plans);
            let plans =
                (0..ROUTES).map(|number| planner.plan(Some(route_id(number)), Some(service_id())));
            plans.collect::<Vec<_>>()
        };
        (|| (), run)
    })
}

/// Returns the plugin instances and scopes of 10,000 routes. The instances are clones of those in `built`, the
/// snapshot of a single route.
fn scopes(built: &Snapshot, sharing: Sharing) -> (Instances, Vec<Scoped>) {
    let mut instances = Instances::default();
    let mut scoped = Vec::new();
    for number in 0..ROUTES {
        for (order, instance) in (0..).zip(built.instances().iter()) {
            let index = match sharing {
                Sharing::Equal if number > 0 => InstanceIndex(u32::from(order)),
                _ => instances.push(instance.clone()),
            };
            scoped.push(Scoped {
                order,
                scope: Scope {
                    route: Some(route_id(number)),
                    ..Scope::default()
                },
                instance: index,
            });
        }
    }
    (instances, scoped)
}

/// Returns one global request-termination plugin, and one for each of 1,000 consumers.
fn per_consumer() -> Vec<Plugin> {
    let of_consumer = |number| Plugin {
        consumer: Some(consumer_id(number)),
        ..request_termination(number + 1)
    };
    let mut plugins: Vec<Plugin> = (0..CONSUMERS).map(of_consumer).collect();
    plugins.push(request_termination(0));
    plugins
}

/// Runs the access phase of global plugins on a request, with or without an authenticated consumer.
fn access(
    name: &str,
    plugins: impl Fn() -> Vec<Plugin> + Send + Sync + 'static,
    consumer: Option<Consumer>,
) -> Operation {
    Operation::repeat(name, COUNT, move || {
        let built = snapshot(Config {
            plugins: plugins(),
            ..Config::default()
        });
        let head = head();
        let consumer = consumer.clone();
        let mut picked = Picked::default();
        move || {
            let mut cx = context(&head);
            cx.consumer.clone_from(&consumer);
            let mut walk = Walk::new(&mut picked);
            let access = built.globals.access(built.instances(), &mut cx, &mut walk);
            assert!(ready(access) == Access::Done, "no plugin needs the body");
            assert!(walk.into_answer().is_none(), "no plugin answers");
            black_box(cx);
        }
    })
}

pub(crate) fn head() -> RequestHead {
    let text = format!(
        "GET /service-7/route-1207/users/42 HTTP/1.1\r\nHost: gateway.test\r\nUser-Agent: curl/8.5.0\r\n\
         Accept: */*\r\napikey: {}\r\n\r\n",
        key(0)
    );
    let parsed = RequestHead::parse(text.as_bytes(), &Limits::default());
    let (head, _) = parsed
        .expect("the head is well formed")
        .expect("the head is whole");
    head
}

pub(crate) fn context(head: &RequestHead) -> RequestCx<'_> {
    RequestCx {
        head,
        client: Client {
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 1234,
        },
        scheme: Scheme::Http,
        http2: false,
        host: "gateway.test",
        port: 8000,
        request_id: "0123456789abcdef0123456789abcdef",
        route: None,
        service: None,
        captures: &[],
        body: RequestBody::Unread,
        lookup: &Everyone,
        consumer: None,
        credential: None,
        upstream: UpstreamEdits::default(),
    }
}

fn consumer(id: ConsumerId) -> Consumer {
    Consumer {
        id,
        username: Some("consumer-0".into()),
        custom_id: Some("customer-0".into()),
    }
}

/// Maps every key to consumer 0. Other operations measure the cost of lookups.
struct Everyone;

impl Lookup for Everyone {
    fn key_owner(&self, _: &str) -> Result<Option<KeyOwner>, LookupError> {
        Ok(Some(KeyOwner {
            credential: KeyauthCredential {
                id: CredentialId(Uuid::from_u128(1)),
                consumer: consumer_id(0),
                ttl: None,
            },
            consumer: Some(consumer(consumer_id(0))),
        }))
    }

    fn basicauth_credential(&self, _: &str) -> Result<Option<BasicauthCredential>, LookupError> {
        Ok(None)
    }

    fn consumer(&self, _: ConsumerId) -> Result<Option<Consumer>, LookupError> {
        Ok(None)
    }

    fn consumer_by_username(&self, _: &str) -> Result<Option<Consumer>, LookupError> {
        Ok(None)
    }

    fn entity(&self, _: EntityKind, _: Uuid) -> Result<Option<Object>, LookupError> {
        Ok(None)
    }
}
