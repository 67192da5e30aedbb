//! Explains how a snapshot would handle a request. The result has the types of the Admin API.

use admin::explain::{
    Asked, Candidate, Explanation, GatewayAnswer, Named, Plugin, Protocol, Question, Reason, Seen,
    Service, Upstream, Verdict, unknown,
};
use model::entities::{self, Consumer, ConsumerId, RouteId, ServiceId};
use model::{EntityKind, Error, codec};
use plugin::{Implementation, Lack, Phases, PluginDef, Response, ResponseBody, Scope};
use proxy::plugins::{Plan, Planned};
use proxy::protocols::Spoken;
use proxy::snapshot::{LeadsTo, RouteInfo, ServiceRef, Snapshot, StreamRoute};
use router::{Flavor, RouteIndex, Scratch};
use std::cmp::Reverse;
use std::net::SocketAddr;
use std::sync::Arc;
use store::{KeyPart, View};
use uuid::Uuid;

/// Configured entities that are not in a snapshot: consumers, and the plugin entities from which its plugin chains were
/// built.
pub(crate) trait Configured {
    /// Returns the plugin entity with this name and scope.
    fn plugin(&self, name: &str, scope: Scope) -> Option<entities::Plugin>;

    /// Finds a consumer by id or username.
    fn consumer(&self, key: &str) -> Option<ConsumerId>;
}

/// Explains how the snapshot handles a request.
pub(crate) fn of(
    snapshot: &Snapshot,
    flavor: Flavor,
    question: &Question,
    configured: &dyn Configured,
) -> Result<Explanation, Error> {
    let consumer = question.consumer.as_deref().map(|key| {
        let found = configured.consumer(key);
        found.ok_or_else(|| unknown("consumer", key))
    });
    let explainer = Explainer {
        snapshot,
        question,
        configured,
        consumer: consumer.transpose()?,
    };
    let mut explanation = if question.protocol.is_stream() {
        explainer.stream()?
    } else {
        explainer.http()?
    };
    explanation.revision = snapshot.revision;
    explanation.flavor = flavor_name(flavor).to_owned();
    Ok(explanation)
}

fn flavor_name(flavor: Flavor) -> &'static str {
    match flavor {
        Flavor::Traditional => "traditional",
        Flavor::TraditionalCompatible => "traditional_compatible",
        Flavor::Expressions => "expressions",
    }
}

struct Explainer<'a> {
    snapshot: &'a Snapshot,
    question: &'a Question,
    configured: &'a dyn Configured,
    consumer: Option<ConsumerId>,
}

/// A matched route, with what its plugins depend on.
#[derive(Clone, Copy)]
struct Matched<'s> {
    id: RouteId,
    name: Option<&'s str>,
    plan: &'s Plan,
    is_stream: bool,
}

impl<'s> Matched<'s> {
    fn http(route: &'s RouteInfo) -> Self {
        Self {
            id: route.id,
            name: route.name.as_deref(),
            plan: &route.plan,
            is_stream: false,
        }
    }

    fn stream(route: &'s StreamRoute) -> Self {
        Self {
            id: route.id,
            name: route.name.as_deref(),
            plan: &route.plan,
            is_stream: true,
        }
    }

    /// Returns the phases of a plugin that requests or streams of the route have.
    fn phases_of(self, def: &PluginDef) -> Phases {
        match self.is_stream {
            true => {
                let of_requests = Phases::REWRITE.with(Phases::ACCESS).with(Phases::LATER);
                def.phases.without(of_requests.without(Phases::LOG))
            }
            false => def.phases.without(Phases::PREREAD),
        }
    }
}

impl Explainer<'_> {
    fn http(&self) -> Result<Explanation, Error> {
        let (snapshot, question) = (self.snapshot, self.question);
        let request = self.request();
        let router = &snapshot.router;
        let mut scratch = Scratch::default();
        let asked = (question.route.as_deref()).map(|key| {
            let found = http_route(snapshot, key);
            found.ok_or_else(|| unknown("route", key))
        });
        let asked = asked.transpose()?;
        let told = router.explain(&request, &mut scratch, self.wanted(asked));
        let name = |index| named(snapshot.route(index));
        let mut explanation = self.tried(told.tried, &name, asked.map(name));
        explanation.request.host = told.host.as_deref().map(text);
        explanation.request.path = Some(text(&told.path));
        let Some(found) = told.found else {
            explanation.answer = Some(if told.is_too_costly {
                answer_of(400, router::TOO_COSTLY)
            } else {
                answer_of(404, "no Route matched with those values")
            });
            return Ok(explanation);
        };
        router.captures(&found, &request, &mut scratch, &mut |group, value| {
            let group = match group {
                router::Group::Name(name) => name.to_owned(),
                router::Group::Number(number) => number.to_string(),
            };
            explanation.captures.insert(group, text(value));
        });
        let route = snapshot.route(found.route);
        let service = snapshot.service(route);
        explanation.matched = Some(named(route));
        explanation.service = service.map(describe_service);
        explanation.answer = self.refusal(route);
        if explanation.answer.is_some() {
            return Ok(explanation);
        }
        explanation.plugins = self.plugins(Matched::http(route), service);
        match service {
            Some(service) => {
                let path = told.path.as_slice();
                explanation.upstream = Some(self.upstream(route, service, &found, path));
            }
            None => {
                let mut answer = answer_of(503, "no Service found with those values");
                answer.after_plugins = true;
                explanation.answer = Some(answer);
            }
        }
        Ok(explanation)
    }

    fn stream(&self) -> Result<Explanation, Error> {
        let (snapshot, question) = (self.snapshot, self.question);
        let anywhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let request = router::StreamRequest {
            source: question.source.unwrap_or(anywhere),
            destination: SocketAddr::new(
                question.destination.unwrap_or(anywhere.ip()),
                question.port,
            ),
            sni: question.sni.as_deref(),
            datagrams: question.protocol == Protocol::Udp,
        };
        let asked = (question.route.as_deref()).map(|key| {
            let found = stream_route(snapshot, key);
            found.ok_or_else(|| unknown("route", key))
        });
        let asked = asked.transpose()?;
        let router = snapshot.stream_router();
        let told = router.explain(&request, self.wanted(asked));
        let route = |index: RouteIndex| &snapshot.stream_routes()[index.0 as usize];
        let name = |index| named_stream(snapshot, index);
        let mut explanation = self.tried(told.tried, &name, asked.map(name));
        let Some(found) = told.found else {
            explanation.answer = Some(closes(500, "no route matches"));
            return Ok(explanation);
        };
        explanation.matched = Some(name(found));
        let found = route(found);
        let service = snapshot.stream_service(found);
        explanation.service = service.map(describe_service);
        explanation.plugins = self.plugins(Matched::stream(found), service);
        let mut plugins = explanation.plugins.iter();
        explanation.answer = match (plugins.find(|plugin| plugin.refuses), service) {
            (Some(Plugin { name, .. }), _) => Some(closes(
                500,
                &format!("the plugin {name} is not implemented, and would have to let it in"),
            )),
            (None, None) => {
                let mut answer = closes(503, "no Service found with those values");
                answer.after_plugins = true;
                Some(answer)
            }
            (None, Some(_)) => None,
        };
        Ok(explanation)
    }

    fn wanted(&self, route: Option<RouteIndex>) -> router::Wanted {
        router::Wanted {
            limit: self.question.limit,
            closest: self.question.closest,
            route,
        }
    }

    fn request(&self) -> router::Request<'_> {
        let question = self.question;
        router::Request {
            method: &question.method,
            path: question.path.as_bytes(),
            host: question.host.as_deref().map(str::as_bytes),
            scheme: match question.protocol {
                Protocol::Https => router::Scheme::Https,
                _ => router::Scheme::Http,
            },
            sni: question.sni.as_deref(),
            query: question.query.as_deref().map(str::as_bytes),
            source: question.source,
            destination: question.destination,
            port: question.port,
            headers: &question.headers,
        }
    }

    /// Returns an explanation with the routes that the router tried. The caller adds everything that happens after the
    /// match.
    fn tried(
        &self,
        tried: router::Tried,
        name: &dyn Fn(RouteIndex) -> Named,
        asked: Option<Named>,
    ) -> Explanation {
        let candidates = |explained: Vec<router::Explained>| {
            let named = explained.into_iter().map(|one| {
                let route = name(one.route);
                candidate(one, route)
            });
            named.collect::<Vec<_>>()
        };
        let question = self.question;
        let is_http = !question.protocol.is_stream();
        Explanation {
            request: Seen {
                protocol: question.protocol.to_string(),
                method: is_http.then(|| question.method.clone()),
                sni: question.sni.clone(),
                source: question.source.map(|source| source.to_string()),
                destination: Some(match question.destination {
                    Some(address) => SocketAddr::new(address, question.port).to_string(),
                    None => format!(":{}", question.port),
                }),
                ..Seen::default()
            },
            candidates: candidates(tried.candidates),
            omitted: tried.omitted,
            closest: candidates(tried.closest),
            route: asked.map(|named| Asked {
                named,
                candidates: candidates(tried.route),
            }),
            ..Explanation::default()
        }
    }

    /// Returns the response if the route does not serve the protocol of the request.
    fn refusal(&self, route: &RouteInfo) -> Option<GatewayAnswer> {
        let question = self.question;
        let header = |wanted: &str| {
            let mut headers = question.headers.iter();
            let found = headers.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
            found.map_or("", |(_, value)| value)
        };
        let grpc_type = header("content-type").starts_with("application/grpc");
        let host = question.host.as_deref().unwrap_or_default();
        let target = match &question.query {
            Some(query) => format!("{}?{query}", question.path),
            None => question.path.clone(),
        };
        let refused = route.refuses(&Spoken {
            scheme: question.protocol.name().as_bytes(),
            host: without_port(host).to_ascii_lowercase().as_bytes(),
            target: target.as_bytes(),
            // gRPC clients always use HTTP/2.
            http2: grpc_type,
            grpc_type,
        })?;
        Some(answer(&refused))
    }

    fn plugins(&self, route: Matched<'_>, service: Option<ServiceRef<'_>>) -> Vec<Plugin> {
        let mut planned = route.plan.plugins(self.snapshot.instances());
        // A plan contains no ignored plugins, so they are added here.
        planned.extend(ignored().map(|def| Planned {
            def,
            instance: None,
            for_everyone: false,
            consumers: 0,
        }));
        planned.sort_by_key(|planned| Reverse((planned.def.priority, planned.def.name.clone())));
        let described = planned
            .iter()
            .filter_map(|planned| self.plugin(planned, route, service));
        described.collect()
    }

    /// Describes a plugin. Returns `None` if the plugin does not run for the consumer of the question, or if it is
    /// ignored and not configured in any scope of this route.
    fn plugin(
        &self,
        planned: &Planned,
        route: Matched<'_>,
        service: Option<ServiceRef<'_>>,
    ) -> Option<Plugin> {
        let def = &*planned.def;
        let ids = (route.id, service.map(|service| service.id));
        let mut scopes = scopes(ids.0, ids.1, self.consumer).into_iter();
        let found = scopes.find_map(|scope| {
            let plugin = self.configured.plugin(&def.name, scope)?;
            let applies = match route.is_stream {
                true => def.applies_to_streams(&plugin),
                false => def.applies(&plugin),
            };
            applies.then_some((plugin, scope))
        });
        let ignored = is_ignored(def);
        if found.is_none() && (ignored || self.consumer.is_some()) {
            return None;
        }
        let (plugin, scope) = found.unzip();
        Some(Plugin {
            name: def.name.to_string(),
            priority: def.priority,
            phases: route.phases_of(def).names().map(str::to_owned).collect(),
            scope: scope.map(scope_name),
            scope_names: (scope.into_iter())
                .flat_map(|scope| self.names_of(scope, route, service))
                .collect(),
            needs: planned.instance.and_then(|index| {
                let instance = self.snapshot.instances().get(index);
                instance.plugin.needs()
            }),
            id: plugin.as_ref().map(|plugin| plugin.id.0),
            instance_name: plugin
                .and_then(|plugin| plugin.instance_name.map(|name| name.to_string())),
            consumers: planned.consumers,
            refuses: !ignored && matches!(def.implementation, Implementation::Later { .. }),
            ignored,
        })
    }

    /// Returns the names of the entities of a scope, or the ids of those without a name.
    fn names_of(
        &self,
        scope: Scope,
        route: Matched<'_>,
        service: Option<ServiceRef<'_>>,
    ) -> Vec<String> {
        let name = |name: Option<&str>, id: Uuid| name.map_or(id.to_string(), str::to_owned);
        let route = scope.route.map(|id| name(route.name, id.0));
        let of_service = service.as_ref().and_then(|service| service.name.as_deref());
        let service = scope.service.map(|id| name(of_service, id.0));
        let asked = self.question.consumer.as_deref();
        let consumer = scope.consumer.map(|id| name(asked, id.0));
        [route, service, consumer].into_iter().flatten().collect()
    }

    fn upstream(
        &self,
        route: &RouteInfo,
        service: ServiceRef<'_>,
        found: &router::Match,
        path: &[u8],
    ) -> Upstream {
        let router = &self.snapshot.router;
        let query = self.question.query.as_deref().map(str::as_bytes);
        let mut uri = Vec::new();
        router.write_upstream_uri(found, service.path(), path, query, &mut uri);
        let preserved = self.question.host.clone().filter(|_| route.preserve_host);
        Upstream {
            uri: text(&uri),
            host: preserved.or_else(|| match service.leads_to() {
                LeadsTo::Host(target) => Some(target.authority.to_string()),
                // The host is unknown here: it is that of the target that the load balancer will choose.
                LeadsTo::Upstream(_) => None,
            }),
            stripped: router.matched_prefix(found, path).map(text),
        }
    }
}

/// Finds an HTTP route of the snapshot by id or name.
pub(super) fn http_route(snapshot: &Snapshot, key: &str) -> Option<RouteIndex> {
    let mut routes = snapshot.indexed_routes();
    let found = routes.find(|(_, route)| is(key, route.id, route.name.as_deref()));
    found.map(|(index, _)| index)
}

/// Finds a stream route of the snapshot by id or name.
pub(super) fn stream_route(snapshot: &Snapshot, key: &str) -> Option<RouteIndex> {
    let mut routes = (0..).map(RouteIndex).zip(snapshot.stream_routes());
    let found = routes.find(|(_, route)| is(key, route.id, route.name.as_deref()));
    found.map(|(index, _)| index)
}

/// Whether a key is the id or the name of this route.
fn is(key: &str, id: RouteId, name: Option<&str>) -> bool {
    match Uuid::try_parse(key) {
        Ok(key) => id.0 == key,
        Err(_) => name == Some(key),
    }
}

fn candidate(explained: router::Explained, route: Named) -> Candidate {
    let (verdict, reasons) = match explained.verdict {
        router::Verdict::Matches => (Verdict::Matches, Vec::new()),
        router::Verdict::ComesLater => (Verdict::ComesLater, Vec::new()),
        router::Verdict::Fails(reasons) => (Verdict::Fails, reasons),
    };
    let reasons = reasons.into_iter().map(|reason| Reason {
        part: reason.part,
        any_of: reason.any_of,
        found: reason.found.into_iter().collect(),
    });
    Candidate {
        route,
        place: explained.place,
        rank: explained.rank,
        expression: explained.expression,
        verdict,
        reasons: reasons.collect(),
    }
}

pub(super) fn named(route: &RouteInfo) -> Named {
    Named {
        id: route.id.0,
        name: route.name.as_deref().map(str::to_owned),
    }
}

/// Returns the id and the name of a stream route.
pub(super) fn named_stream(snapshot: &Snapshot, index: RouteIndex) -> Named {
    let route = &snapshot.stream_routes()[index.0 as usize];
    Named {
        id: route.id.0,
        name: route.name.as_deref().map(str::to_owned),
    }
}

fn describe_service(service: ServiceRef<'_>) -> Service {
    let (host, port, upstream) = match service.leads_to() {
        LeadsTo::Host(target) => (target.host.name(), Some(target.host.port()), None),
        LeadsTo::Upstream(upstream) => {
            let named = Named {
                id: upstream.id().0,
                name: Some(upstream.name().to_owned()),
            };
            (upstream.name(), None, Some(named))
        }
    };
    Service {
        named: Named {
            id: service.id.0,
            name: service.name.as_deref().map(str::to_owned),
        },
        protocol: format!("{:?}", service.protocol).to_ascii_lowercase(),
        host: host.to_owned(),
        port,
        upstream,
    }
}

/// Returns the scopes that a plugin may have for a route, its service and a consumer. The most specific scope is first,
/// in the order of [`proxy::plugins::Planner`].
fn scopes(route: RouteId, service: Option<ServiceId>, consumer: Option<ConsumerId>) -> Vec<Scope> {
    let scope = |of_route: bool, of_service: bool, of_consumer: bool| {
        Some(Scope {
            route: of_route.then_some(route),
            service: if of_service { Some(service?) } else { None },
            consumer: if of_consumer { Some(consumer?) } else { None },
        })
    };
    let all = [
        scope(true, true, true),
        scope(true, false, true),
        scope(false, true, true),
        scope(true, true, false),
        scope(false, false, true),
        scope(true, false, false),
        scope(false, true, false),
        scope(false, false, false),
    ];
    all.into_iter().flatten().collect()
}

fn scope_name(scope: Scope) -> String {
    let parts = [
        ("route", scope.route.is_some()),
        ("service", scope.service.is_some()),
        ("consumer", scope.consumer.is_some()),
    ];
    let parts: Vec<&str> = parts
        .into_iter()
        .filter_map(|(name, is_set)| is_set.then_some(name))
        .collect();
    if parts.is_empty() {
        "global".to_owned()
    } else {
        parts.join(" and ")
    }
}

/// The plugins that are not implemented and are ignored where they are configured.
fn ignored() -> impl Iterator<Item = Arc<PluginDef>> {
    plugins::bundled()
        .iter()
        .filter(|def| is_ignored(def))
        .cloned()
}

fn is_ignored(def: &PluginDef) -> bool {
    let Implementation::Later { lack, .. } = def.implementation else {
        return false;
    };
    lack == Lack::Feature
}

fn answer_of(status: u16, message: &str) -> GatewayAnswer {
    GatewayAnswer {
        status,
        message: message.to_owned(),
        location: None,
        after_plugins: false,
    }
}

/// Describes a stream that the gateway closes, with the status that Kong logs for it.
fn closes(status: u16, message: &str) -> GatewayAnswer {
    answer_of(status, &format!("the connection is closed: {message}"))
}

fn answer(response: &Response) -> GatewayAnswer {
    let message = match &response.body {
        ResponseBody::Error(message) => message.as_deref().unwrap_or_default().to_owned(),
        ResponseBody::Bytes(body) | ResponseBody::Json(body) | ResponseBody::Written(body) => {
            text(body)
        }
        ResponseBody::Pieces(pieces) => text(pieces.concat()),
        ResponseBody::Stored(stored) => text(stored.pieces().concat()),
        ResponseBody::ServerError | ResponseBody::Page => String::new(),
    };
    let header = |name: &str| response.headers.value(name).map(text);
    GatewayAnswer {
        location: header("Location"),
        ..answer_of(response.status, &header("grpc-message").unwrap_or(message))
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

fn text(bytes: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(bytes.as_ref()).into_owned()
}

/// The entities of the store at one revision.
pub(crate) struct InStore<'v>(pub(crate) &'v View<'v>);

impl Configured for InStore<'_> {
    fn plugin(&self, name: &str, scope: Scope) -> Option<entities::Plugin> {
        let part = |id: Option<Uuid>| id.map_or(KeyPart::Absent, KeyPart::Reference);
        let key = [
            KeyPart::Text(name),
            part(scope.route.map(|id| id.0)),
            part(scope.service.map(|id| id.0)),
            part(scope.consumer.map(|id| id.0)),
        ];
        let id = self.0.id_by_cache_key(EntityKind::Plugins, &key);
        let bytes = self.0.get(EntityKind::Plugins, id.ok()??);
        codec::decode(bytes.ok()??).ok()
    }

    fn consumer(&self, key: &str) -> Option<ConsumerId> {
        let kind = EntityKind::Consumers;
        let id = match Uuid::try_parse(key) {
            Ok(id) => self.0.get(kind, id).ok()?.map(|_| id),
            Err(_) => self.0.id_by_unique(kind, "username", key).ok()?,
        };
        id.map(ConsumerId)
    }
}

/// The entities of a declarative configuration.
#[derive(Default)]
pub(crate) struct InDocument {
    pub(crate) plugins: Vec<entities::Plugin>,
    pub(crate) consumers: Vec<Consumer>,
}

impl Configured for InDocument {
    fn plugin(&self, name: &str, scope: Scope) -> Option<entities::Plugin> {
        let mut plugins = self.plugins.iter();
        let found = plugins.find(|plugin| {
            let own = Scope {
                route: plugin.route,
                service: plugin.service,
                consumer: plugin.consumer,
            };
            plugin.name == name && own == scope
        });
        found.cloned()
    }

    fn consumer(&self, key: &str) -> Option<ConsumerId> {
        let id = Uuid::try_parse(key).ok();
        let mut consumers = self.consumers.iter();
        let found = consumers.find(|consumer| match id {
            Some(id) => consumer.id.0 == id,
            None => consumer.username.as_deref() == Some(key),
        });
        found.map(|consumer| consumer.id)
    }
}
