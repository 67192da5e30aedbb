//! Facts about a request that are known before its route: id, client and host.

use super::worker;
use super::{Arrival, Connection};
use crate::forward::Hop;
use net::http1::RequestHead;
use plugin::{Client, Request, RequestBody, RoutedUri, UpstreamEdits};
use std::borrow::Cow;
use tokio::time::Instant;

pub(super) struct Opening<'h> {
    id: [u8; 32],
    arrival: &'h Arrival,
    /// Host of the request in lower case, without port.
    pub(super) host: Cow<'h, str>,
    client: Client,
    trusted: bool,
    connection_requests: u32,
    pub(super) started: Instant,
}

impl<'h> Opening<'h> {
    pub(super) fn new(
        connection: &mut Connection,
        head: &'h RequestHead,
        arrival: &'h Arrival,
    ) -> Self {
        connection.continued = false;
        connection.requests = connection.requests.saturating_add(1);
        connection.tries.restart(connection.now);
        connection.request_body = super::RequestBodyAt::Carry;
        let real_ip = &connection.plane.settings.real_ip;
        let peer = arrival.peer;
        let trusted = real_ip.trusts(peer.ip());
        let client = if trusted {
            real_ip.client(peer, arrival.told, head)
        } else {
            peer
        };
        Self {
            arrival,
            id: worker::with(|worker| worker.ids.next_id()),
            host: bare_host(head),
            client: Client {
                ip: client.ip(),
                port: client.port(),
            },
            trusted,
            connection_requests: connection.requests,
            started: connection.now,
        }
    }

    /// The request as plugins see it, before routing. Inlined, because the request is large and would be moved.
    #[inline(always)]
    pub(super) fn request<'r>(&'r self, head: &'r RequestHead) -> Request<'r> {
        let arrival = self.arrival;
        Request {
            head,
            client: self.client,
            peer: arrival.peer,
            local: None,
            connection_requests: self.connection_requests,
            scheme: arrival.scheme,
            http2: arrival.http2,
            is_grpc: arrival.http2 && Request::has_grpc_type(head),
            host: &self.host,
            port: arrival.port,
            request_id: self.request_id(),
            started: self.started.into_std(),
            sni: arrival.sni.as_deref(),
            tls: arrival.tls.as_deref(),
            route: None,
            service: None,
            route_path: "",
            slot: None,
            captures: Vec::new(),
            routed: RoutedUri::default(),
            body: RequestBody::Unread,
            upstream: UpstreamEdits::default(),
        }
    }

    pub(super) fn request_id(&self) -> &str {
        std::str::from_utf8(&self.id).expect("hex digits")
    }

    pub(super) fn trusts_peer(&self) -> bool {
        self.trusted
    }

    pub(super) fn hop<'a>(&'a self, stripped: Option<&'a [u8]>) -> Hop<'a> {
        Hop {
            peer: self.arrival.peer.ip(),
            client: self.client.ip,
            trusted: self.trusted,
            scheme: self.arrival.scheme,
            http2: self.arrival.http2,
            host: &self.host,
            port: self.arrival.port,
            usual: &self.arrival.forwarded,
            stripped,
        }
    }
}

/// Returns the host in lower case without its port. It is nearly always borrowed, because clients send lower case.
fn bare_host(head: &RequestHead) -> Cow<'_, str> {
    match head.host_name() {
        None => Cow::Borrowed(""),
        Some((name, false)) => Cow::Borrowed(name),
        Some((name, true)) => Cow::Owned(name.to_ascii_lowercase()),
    }
}
