//! The spans of a finished request or session: one of the gateway as the server, one of the gateway as the client of the
//! upstream, and one for each try.

use super::config::{Flavor, SpanName};
use super::model::{Annotation, Endpoint, Span, Tag, Tags, micros};
use super::{Decision, SEPARATOR, Zipkin};
use crate::exporter::Texts;
use crate::propagation::RandomIds;
use plugin::{Client, EndedStreamCx, EntityRef, LogCx, Request, Try, TryEnd};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of tags that a client may add.
const MAX_CLIENT_TAGS: usize = 64;

/// What the spans of requests and of sessions have in common.
struct Shape<'a> {
    zipkin: &'a Zipkin,
    decision: &'a Decision,
    /// Microseconds since 1970.
    started: u64,
    took: Duration,
    name: Cow<'a, str>,
    route: Option<EntityRef<'a>>,
    service: Option<EntityRef<'a>>,
    tries: &'a [Try],
}

/// The moments of a request, since its start.
struct Moments {
    access: Duration,
    upstream: Duration,
    head: Duration,
    end: Duration,
}

/// Writes the spans of a request.
pub(super) fn of_request(
    zipkin: &Zipkin,
    cx: &LogCx<'_, '_>,
    decision: &Decision,
    texts: &mut Texts<'_>,
) {
    let (request, entry) = (cx.request, cx.entry);
    let method = text(request.method_bytes());
    let path = text(request.head.path_bytes());
    let shape = Shape {
        zipkin,
        decision,
        started: since_epoch(entry.started_at),
        took: entry.latencies.request,
        name: match zipkin.span_name {
            SpanName::Method => method.clone(),
            SpanName::MethodPath => format!("{method} {path}").into(),
        },
        route: request.route,
        service: request.service,
        tries: entry.tries,
    };
    let mut tags = client_tags(zipkin, request);
    for tag in &zipkin.static_tags {
        tags.set(tag.name.as_str(), tag.value.as_str());
    }
    tags.set("http.method", method);
    tags.set("http.host", request.host);
    tags.set("http.path", path);
    tags.set("http.protocol", protocol(request));
    tags.set("http.status_code", Tag::Number(entry.status.into()));
    shape.common_tags(&mut tags, &cx.node.identity.id);
    if let Some(consumer) = &cx.state.consumer {
        tags.set("kong.consumer", Tag::Id(consumer.id.0));
    }
    if let Some(credential) = cx
        .state
        .credential
        .as_ref()
        .filter(|_| zipkin.shows_credential)
    {
        tags.set("kong.credential", Tag::Id(credential.id));
    }
    let at = |instant: Option<std::time::Instant>| {
        instant.map(|instant| instant.saturating_duration_since(request.started))
    };
    let end = entry.latencies.request;
    let access = at(decision.access_at);
    let head = at(decision.head_at).unwrap_or(end);
    let moments = access.map(|access| Moments {
        access,
        upstream: entry
            .tries
            .first()
            .map_or(head, |one| one.after)
            .max(access),
        head,
        end,
    });
    let Client { ip, port } = request.client;
    let client = Endpoint::of(None, Some(SocketAddr::new(ip, port)));
    let server = |at| cx.state.trace.server_of_try(at);
    shape.write(tags, client, server, moments.as_ref(), texts);
}

/// Writes the spans of a session.
pub(super) fn of_stream(
    zipkin: &Zipkin,
    cx: &EndedStreamCx<'_>,
    decision: &Decision,
    texts: &mut Texts<'_>,
) {
    let (session, entry) = (cx.session, cx.entry);
    let shape = Shape {
        zipkin,
        decision,
        started: since_epoch(entry.started_at),
        took: entry.latencies.request,
        name: "stream".into(),
        route: session.route,
        service: session.service,
        tries: entry.tries,
    };
    let mut tags = Tags::default();
    for tag in &zipkin.static_tags {
        tags.set(tag.name.as_str(), tag.value.as_str());
    }
    shape.common_tags(&mut tags, &cx.node.identity.id);
    let Client { ip, port } = session.client;
    let client = Endpoint::of(None, Some(SocketAddr::new(ip, port)));
    shape.write(tags, client, |_| None, None, texts);
}

impl<'a> Shape<'a> {
    fn common_tags(&self, tags: &mut Tags<'a>, node: &'a str) {
        tags.set("lc", "kong");
        tags.set("kong.node.id", node);
    }

    fn write(
        &self,
        tags: Tags<'a>,
        client: Option<Endpoint<'a>>,
        server_of_try: impl Fn(usize) -> Option<&'a str>,
        moments: Option<&Moments>,
        texts: &mut Texts<'_>,
    ) {
        let mut push = |span: &Span<'_>| {
            texts.out.push(SEPARATOR);
            // Texts and numbers can always be written.
            let _ = serde_json::to_writer(&mut texts.out, span);
            texts.end();
        };
        let whole = (Duration::ZERO, self.took);
        let mut request = self.span("", "SERVER", whole);
        (request.id, request.parent_id) = (self.decision.request, self.decision.parent);
        (request.remote_endpoint, request.tags) = (client, tags);
        let rewrite = moments.map_or(Duration::ZERO, |moments| moments.access);
        if moments.is_some() || !self.is_stream() {
            self.phase(
                &mut request,
                "rewrite",
                ("krs", "krf"),
                (Duration::ZERO, rewrite),
            );
        }
        push(&request);

        let start = moments.map_or(Duration::ZERO, |moments| moments.access);
        let mut proxy = self.span(" (proxy)", "CLIENT", (start, self.took));
        proxy.id = self.decision.proxy;
        self.entity_tags(&mut proxy.tags);
        let last = self.tries.iter().enumerate().rev();
        let last = last.clone().find(|(_, one)| one.address.is_some());
        proxy.remote_endpoint = self.server(last.and_then(|(_, one)| one.address));
        if let Some(name) = last.and_then(|(at, _)| server_of_try(at)) {
            proxy.tags.set("peer.hostname", name);
        }
        self.phases(&mut proxy, moments);
        push(&proxy);

        let contacted = self.tries.iter().filter(|one| one.address.is_some());
        let count = contacted.clone().count();
        for (number, one) in (1..).zip(contacted) {
            push(&self.attempt(one, number, number == count));
        }
    }

    fn is_stream(&self) -> bool {
        self.name == "stream"
    }

    fn attempt(&self, one: &Try, number: usize, is_last: bool) -> Span<'a> {
        let suffix = format!(" (balancer try {number})");
        let mut span = self.span(&suffix, "CLIENT", (one.after, one.after + one.took));
        let tag = Tag::Number(number as u64);
        span.tags.set("kong.balancer.try", tag);
        // The response of the last try is the request's, whatever it is, as in Kong.
        if let TryEnd::Failed(status) = one.end
            && !is_last
        {
            span.tags.set("error", "true");
            span.tags.set("kong.balancer.state", "failed");
            span.tags
                .set("http.status_code", Tag::Number(status.into()));
        }
        self.entity_tags(&mut span.tags);
        span.remote_endpoint = self.server(one.address);
        span
    }

    /// Makes a child of the request's span. `times` are since its start.
    fn span(&self, suffix: &str, kind: &'static str, times: (Duration, Duration)) -> Span<'a> {
        let (start, end) = times;
        Span {
            trace_id: self.decision.trace,
            id: RandomIds::draw(RandomIds::span),
            parent_id: Some(self.decision.request),
            name: match suffix {
                "" => self.name.clone(),
                suffix => format!("{}{suffix}", self.name).into(),
            },
            kind,
            timestamp: self.at(start),
            duration: micros(end.saturating_sub(start)),
            local_endpoint: Endpoint::named(&self.zipkin.local_service),
            remote_endpoint: None,
            tags: Tags::default(),
            annotations: Vec::new(),
        }
    }

    fn at(&self, after: Duration) -> u64 {
        self.started.saturating_add(micros(after))
    }

    fn server(&self, address: Option<SocketAddr>) -> Option<Endpoint<'a>> {
        let name = self.service.and_then(|service| service.name);
        let default = self.zipkin.default_service.as_deref();
        Endpoint::of(name.or(default.filter(|_| address.is_some())), address)
    }

    fn entity_tags(&self, tags: &mut Tags<'a>) {
        if let Some(service) = self.service {
            tags.set("kong.service", Tag::Id(service.id));
            tags.set("kong.service_name", service.name.unwrap_or_default());
        }
        if let Some(route) = self.route {
            tags.set("kong.route", Tag::Id(route.id));
            tags.set("kong.route_name", route.name.unwrap_or_default());
        }
    }

    fn phases(&self, proxy: &mut Span<'a>, moments: Option<&Moments>) {
        let Some(moments) = moments else {
            if self.is_stream() {
                let upstream = self.tries.first().map_or(self.took, |one| one.after);
                self.phase(proxy, "preread", ("kps", "kpf"), (Duration::ZERO, upstream));
            }
            return;
        };
        let Moments {
            access,
            upstream,
            head,
            end,
        } = *moments;
        self.phase(proxy, "access", ("kas", "kaf"), (access, upstream));
        self.phase(proxy, "header_filter", ("khs", "khf"), (head, head));
        self.phase(proxy, "body_filter", ("kbs", "kbf"), (head, end));
    }

    fn phase(
        &self,
        span: &mut Span<'a>,
        phase: &str,
        (begins, ends): (&'static str, &'static str),
        (start, end): (Duration, Duration),
    ) {
        match self.zipkin.flavor {
            Flavor::Annotations => {
                for (value, after) in [(begins, start), (ends, end)] {
                    let timestamp = self.at(after);
                    span.annotations.push(Annotation { value, timestamp });
                }
            }
            Flavor::Tags => {
                let took = micros(end.saturating_sub(start)) as f64 / 1000.0;
                let name = format!("kong.{phase}.duration_ms");
                span.tags.set(name, Cow::from(took.to_string()));
            }
        }
    }
}

/// The tags that the client has sent: `a=b; c=d`. They do not replace those of the gateway.
fn client_tags<'a>(zipkin: &'a Zipkin, request: &'a Request<'_>) -> Tags<'a> {
    let mut tags = Tags::default();
    let lines = request.every_header_line(zipkin.tags_header.as_str());
    for pair in lines.flat_map(|line| line.split(|byte| *byte == b';')) {
        let mut parts = pair.splitn(2, |byte| *byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            continue;
        };
        let (name, value) = (text(name.trim_ascii()), text(value.trim_ascii()));
        if !name.is_empty() && tags.len() < MAX_CLIENT_TAGS {
            tags.set(name, value);
        }
    }
    tags
}

fn protocol(request: &Request<'_>) -> &'static str {
    match request.head.version() {
        _ if request.http2 => "HTTP/2",
        net::http1::Version::Http11 => "HTTP/1.1",
        net::http1::Version::Http10 => "HTTP/1.0",
    }
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

fn since_epoch(time: SystemTime) -> u64 {
    micros(time.duration_since(UNIX_EPOCH).unwrap_or_default())
}
