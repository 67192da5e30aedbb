//! Operations that build plugin chains and run their access phase.

use crate::fixtures::{
    config, consumer_id, key, key_auth, nowhere, ready, request_termination, route_id, service_id,
    snapshot,
};
use crate::operation::Operation;
use model::EntityKind;
use model::Object;
use model::entities::{Config, Consumer, ConsumerId, CredentialId, Plugin};
use net::http1::{Limits, RequestHead};
use plugin::{Decode, Decoded, Entities, EntityKey, LookupError, NoNames, Node, Request, Scope};
use plugins::credentials::KeyauthCredential;
use proxy::plugins::{
    Access, Chain, ChainMemory, InstanceIndex, Instances, Planner, Plans, ScopeTable, Scoped,
};
use proxy::snapshot::Snapshot;
use std::hint::black_box;
use std::sync::Arc;
use std::task::Poll;
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
        let consumer = consumer.clone().map(Arc::new);
        let node = Node::with_entities(Arc::new(Everyone::new()));
        let node = node.expect("a thread can be started");
        let mut kept = Some(Box::new(ChainMemory::default()));
        move || {
            let mut request = Request::bare(&head);
            let mut memory = kept.take().unwrap_or_default();
            request.upstream.headers = std::mem::take(&mut memory.upstream_headers);
            memory.state.consumer.clone_from(&consumer);
            let mut chain = Chain::new(built.instances(), &NoNames, &node);
            chain.use_memory(memory);
            run_access(&mut chain, &built, &mut request);
            black_box(&request);
            if let Some(memory) = chain.memory_mut() {
                memory.upstream_headers = request.upstream.headers;
            }
            kept = chain.take_memory();
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

/// Runs the access phase of the global plugins.
pub(crate) fn run_access(chain: &mut Chain<'_>, built: &Snapshot, request: &mut Request<'_>) {
    let mut stays = |_: &mut std::task::Context<'_>| Poll::Pending;
    let access = chain.access(&built.globals, request, &mut stays);
    assert!(
        matches!(ready(access), Access::Done(None)),
        "no plugin answers or needs the body"
    );
}

fn consumer(id: ConsumerId) -> Consumer {
    Consumer {
        id,
        username: Some("consumer-0".into()),
        custom_id: Some("customer-0".into()),
    }
}

/// Maps every key to consumer 0. Other operations measure the cost of look-ups.
struct Everyone {
    credential: Decoded,
    consumer: Arc<Consumer>,
}

impl Everyone {
    fn new() -> Self {
        Self {
            credential: Arc::new(KeyauthCredential {
                id: CredentialId(Uuid::from_u128(1)),
                consumer: consumer_id(0),
                ttl: None,
            }),
            consumer: Arc::new(consumer(consumer_id(0))),
        }
    }
}

impl Entities for Everyone {
    fn find(&self, key: EntityKey<'_>, _: Decode) -> Result<Option<Decoded>, LookupError> {
        Ok(Some(match key {
            EntityKey::Id(..) => self.consumer.clone(),
            EntityKey::Unique { .. } => self.credential.clone(),
        }))
    }

    fn find_owned(
        &self,
        _: EntityKey<'_>,
        _: Decode,
    ) -> Result<Option<(Decoded, Arc<Consumer>)>, LookupError> {
        Ok(Some((self.credential.clone(), self.consumer.clone())))
    }

    fn object(&self, _: EntityKind, _: Uuid) -> Result<Option<Object>, LookupError> {
        Ok(None)
    }
}
