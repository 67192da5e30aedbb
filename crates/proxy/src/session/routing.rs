//! Finds the route of a request, and copies the parts of the match that later phases need. They are copied because the
//! router's scratch memory belongs to the worker, and other requests use it before the later phases run.

use super::opening::Opening;
use super::worker;
use super::{Arrival, Connection};
use crate::balance::Hashing;
use crate::plan::Plan;
use crate::protocols::Spoken;
use crate::snapshot::{RouteInfo, ServiceRef, Snapshot};
use net::http1::{KnownHeader, RequestHead};
use net::stream::Stream;
use plugin::{Capture, Client, RequestCx, Response, Scheme};
use router::RouteIndex;
use std::net::{IpAddr, SocketAddr};

/// A request's route and the parts of its match.
pub(super) struct Routed {
    route: Option<RouteIndex>,
    /// The upstream path, followed by the prefix that the route stripped.
    pub(super) uri: Vec<u8>,
    path_length: usize,
    strips: bool,
    captured: Vec<Captured>,
    /// Whether the search was given up because it would take too many steps.
    pub(super) is_too_costly: bool,
}

/// A capture group of the route's regex, and its value.
struct Captured {
    name: Option<String>,
    number: usize,
    value: String,
}

/// Request attributes that the router reads only if a route needs them.
struct Headers<'a> {
    head: &'a RequestHead,
    arrival: &'a Arrival,
    stream: &'a Stream,
}

impl router::HeaderSource for Headers<'_> {
    fn each(&self, visit: &mut dyn FnMut(&[u8], &[u8])) {
        self.head
            .fields()
            .for_each(|(_, name, value)| visit(name, value));
    }

    fn destination(&self) -> Option<IpAddr> {
        self.arrival.local(self.stream)
    }
}

impl Routed {
    pub(super) fn find(
        snapshot: &Snapshot,
        head: &RequestHead,
        arrival: &Arrival,
        client: Client,
        stream: &Stream,
    ) -> Self {
        let headers = Headers {
            head,
            arrival,
            stream,
        };
        let request = router::Request {
            method: head.method(),
            path: head.path_bytes(),
            host: head.host_bytes(),
            scheme: match arrival.scheme {
                Scheme::Http => router::Scheme::Http,
                Scheme::Https => router::Scheme::Https,
            },
            sni: arrival.sni.as_deref(),
            query: head.query_bytes(),
            source: Some(SocketAddr::new(client.ip, client.port)),
            // Only some routes need it, and it may take a system call, so the router asks `headers` for it.
            destination: None,
            port: arrival.port,
            headers: &headers,
        };
        worker::with(|worker| {
            let mut routed = Self {
                route: None,
                uri: worker.buffer(),
                path_length: 0,
                strips: false,
                captured: Vec::new(),
                is_too_costly: false,
            };
            let router = &snapshot.router;
            let found = router.find(&request, &mut worker.router);
            routed.is_too_costly = found.is_err();
            if let Ok(Some(found)) = found {
                routed.route = Some(found.route);
                routed.keep_path(snapshot, &found, worker.router.path(&request));
                if router.has_captures(&found) && wants_captures(snapshot, found.route) {
                    routed.keep_captures(router, &found, &request, &mut worker.router);
                }
            }
            routed
        })
    }

    fn keep_path(&mut self, snapshot: &Snapshot, found: &router::Match, path: &[u8]) {
        let router = &snapshot.router;
        let base = snapshot
            .service(snapshot.route(found.route))
            .and_then(ServiceRef::path);
        router.write_upstream_uri(found, base, path, None, &mut self.uri);
        self.path_length = self.uri.len();
        if let Some(prefix) = router.matched_prefix(found, path) {
            self.uri.extend_from_slice(prefix);
            self.strips = true;
        }
    }

    #[cold]
    fn keep_captures(
        &mut self,
        router: &router::Router,
        found: &router::Match,
        request: &router::Request<'_>,
        scratch: &mut router::Scratch,
    ) {
        router.captures(found, request, scratch, &mut |group, value| {
            let (name, number) = match group {
                router::Group::Name(name) => (Some(name.to_owned()), 0),
                router::Group::Number(number) => (None, number),
            };
            let value = String::from_utf8_lossy(value).into_owned();
            self.captured.push(Captured {
                name,
                number,
                value,
            });
        });
    }

    pub(super) fn captures(&self) -> Vec<Capture<'_>> {
        let captured = self.captured.iter();
        captured
            .map(|captured| Capture {
                name: captured.name.as_deref(),
                number: captured.number,
                value: &captured.value,
            })
            .collect()
    }

    pub(super) fn route<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s RouteInfo> {
        self.route.map(|index| snapshot.route(index))
    }

    pub(super) fn service<'s>(&self, snapshot: &'s Snapshot) -> Option<ServiceRef<'s>> {
        self.route(snapshot)
            .and_then(|route| snapshot.service(route))
    }

    /// Returns the plugin chain of the route, or that of requests without a route.
    pub(super) fn plan<'s>(&self, snapshot: &'s Snapshot) -> &'s Plan {
        self.route(snapshot)
            .map_or(&snapshot.globals, |route| &route.plan)
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.uri[..self.path_length]
    }

    pub(super) fn stripped(&self) -> Option<&[u8]> {
        self.strips.then(|| &self.uri[self.path_length..])
    }
}

impl Connection {
    /// Returns the response to a request whose protocol its route does not serve, or `None` if the route serves it.
    pub(super) fn check_protocol(
        &self,
        route: &RouteInfo,
        opening: &Opening<'_>,
        cx: &RequestCx<'_>,
    ) -> Option<Response> {
        let told = |known| {
            opening
                .trusts_peer()
                .then(|| cx.head.known(known).next())
                .flatten()
        };
        // Most routes accept requests over every protocol, so the check is skipped.
        if !route.is_particular() {
            return None;
        }
        route.refuses(&Spoken {
            scheme: told(KnownHeader::XForwardedProto).unwrap_or(cx.scheme.name().as_bytes()),
            host: told(KnownHeader::XForwardedHost).unwrap_or(cx.host.as_bytes()),
            target: cx.head.target(),
            http2: cx.http2,
            grpc_type: cx.has_grpc_type(),
        })
    }
}

/// Whether a plugin may need the captures, or the load balancer hashes them to choose a target.
fn wants_captures(snapshot: &Snapshot, route: RouteIndex) -> bool {
    let route = snapshot.route(route);
    let hashing = || snapshot.service(route).and_then(ServiceRef::hashing);
    !route.plan.is_empty() || hashing().is_some_and(Hashing::wants_captures)
}
