//! Finds the route of a request, and copies the parts of the match that later phases need. They are copied because the
//! router's scratch memory belongs to the worker, and other requests use it before the later phases run.

use super::opening::Opening;
use super::worker;
use super::{Arrival, Connection};
use crate::balance::Hashing;
use crate::protocols::Spoken;
use crate::snapshot::{RouteInfo, ServiceRef, Snapshot};
use net::http1::KnownHeader;
use net::stream::Stream;
use plugin::{Capture, Request, Response, RoutedUri, Scheme};
use router::RouteIndex;
use std::net::{IpAddr, SocketAddr};

/// The route of a request.
#[derive(Clone, Copy)]
pub(super) struct Routed {
    route: Option<RouteIndex>,
    /// Whether the search was given up because it would take too many steps.
    pub(super) is_too_costly: bool,
}

/// Request attributes that the router reads only if a route needs them.
struct Headers<'a> {
    request: &'a Request<'a>,
    arrival: &'a Arrival,
    stream: &'a Stream,
}

impl router::HeaderSource for Headers<'_> {
    fn each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        let (head, edits) = (self.request.head, &self.request.upstream.headers);
        if edits.is_empty() {
            return head
                .fields()
                .for_each(|(_, name, value)| visit(name, value));
        }
        for (_, name, value) in head.fields().filter(|(_, name, _)| !edits.drops(name)) {
            visit(name, value);
        }
        for (name, value) in edits.added() {
            visit(name.as_bytes(), value);
        }
    }

    fn destination(&self) -> Option<IpAddr> {
        self.arrival.local(self.stream)
    }
}

impl Routed {
    /// Finds the route, and stores the upstream path and the captures in `request`. Routing sees what plugins have
    /// changed in their rewrite phase, except for the path.
    pub(super) fn find(
        snapshot: &Snapshot,
        request: &mut Request<'_>,
        arrival: &Arrival,
        stream: &Stream,
    ) -> Self {
        let headers = Headers {
            request,
            arrival,
            stream,
        };
        let head = request.head;
        let asked = router::Request {
            method: request.method(),
            path: head.path_bytes(),
            host: head.host_bytes(),
            scheme: match arrival.scheme {
                Scheme::Http => router::Scheme::Http,
                Scheme::Https => router::Scheme::Https,
            },
            sni: arrival.sni.as_deref(),
            query: match &request.upstream.query {
                Some(query) => Some(query),
                None => head.query_bytes(),
            },
            source: Some(SocketAddr::new(request.client.ip, request.client.port)),
            // Only some routes need it, and it may take a system call, so the router asks `headers` for it.
            destination: None,
            port: arrival.port,
            headers: &headers,
        };
        let mut captures = Vec::new();
        let (routed, uri) = worker::with(|worker| {
            let mut uri = RoutedUri {
                bytes: worker.buffer(),
                ..RoutedUri::default()
            };
            let router = &snapshot.router;
            let found = router.find(&asked, &mut worker.router);
            let mut routed = Self {
                route: None,
                is_too_costly: found.is_err(),
            };
            if let Ok(Some(found)) = found {
                routed.route = Some(found.route);
                keep_path(snapshot, &found, worker.router.path(&asked), &mut uri);
                if router.has_captures(&found) && wants_captures(snapshot, found.route) {
                    captures = captures_of(router, &found, &asked, &mut worker.router);
                }
            }
            (routed, uri)
        });
        request.routed = uri;
        request.captures = captures;
        routed
    }

    pub(super) fn index(&self) -> Option<RouteIndex> {
        self.route
    }

    pub(super) fn route<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s RouteInfo> {
        self.route.map(|index| snapshot.route(index))
    }

    pub(super) fn service<'s>(&self, snapshot: &'s Snapshot) -> Option<ServiceRef<'s>> {
        self.route(snapshot)
            .and_then(|route| snapshot.service(route))
    }
}

fn keep_path(snapshot: &Snapshot, found: &router::Match, path: &[u8], uri: &mut RoutedUri) {
    let router = &snapshot.router;
    let base = snapshot
        .service(snapshot.route(found.route))
        .and_then(ServiceRef::path);
    router.write_upstream_uri(found, base, path, None, &mut uri.bytes);
    uri.path_length = uri.bytes.len();
    if let Some(prefix) = router.matched_prefix(found, path) {
        uri.bytes.extend_from_slice(prefix);
        uri.strips = true;
    }
}

#[cold]
fn captures_of(
    router: &router::Router,
    found: &router::Match,
    request: &router::Request<'_>,
    scratch: &mut router::Scratch,
) -> Vec<Capture> {
    let mut captures = Vec::new();
    router.captures_and_match(found, request, scratch, &mut |group, value| {
        let (name, number) = match group {
            router::Group::Name(name) => (Some(name.to_owned()), 0),
            router::Group::Number(number) => (None, number),
        };
        let value = String::from_utf8_lossy(value).into_owned();
        captures.push(Capture {
            name,
            number,
            value,
        });
    });
    captures
}

impl Connection {
    /// Returns the response to a request whose protocol its route does not serve, or `None` if the route serves it.
    pub(super) fn check_protocol(
        &self,
        route: &RouteInfo,
        opening: &Opening<'_>,
        request: &Request<'_>,
    ) -> Option<Response> {
        let told = |known| {
            opening
                .trusts_peer()
                .then(|| request.head.known(known).next())
                .flatten()
        };
        // Most routes accept requests over every protocol, so the check is skipped.
        if !route.is_particular() {
            return None;
        }
        route.refuses(&Spoken {
            scheme: told(KnownHeader::XForwardedProto).unwrap_or(request.scheme.name().as_bytes()),
            host: told(KnownHeader::XForwardedHost).unwrap_or(request.host.as_bytes()),
            target: request.head.target_bytes(),
            http2: request.http2,
            grpc_type: Request::has_grpc_type(request.head),
        })
    }
}

/// Whether a plugin may need the captures, or the load balancer hashes them to choose a target.
fn wants_captures(snapshot: &Snapshot, route: RouteIndex) -> bool {
    let route = snapshot.route(route);
    let hashing = || snapshot.service(route).and_then(ServiceRef::hashing);
    !route.plan.is_empty() || hashing().is_some_and(Hashing::wants_captures)
}
