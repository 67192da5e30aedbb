//! zipkin traces requests and sessions: it passes the trace context on to the upstream, and sends the spans of what is
//! sampled to a Zipkin server. Source: kong/plugins/zipkin/{handler,reporter,span,request_tags}.lua.
//!
//! Its spans do not depend on `tracing_instrumentations`. They are written in the log phase, from the times that it has
//! anyway and two readings of the clock, which a request that is not sampled does without.

mod checks;
mod config;
mod model;
mod source;
mod spans;
#[cfg(test)]
mod tests;

pub(crate) use source::SOURCE;

use crate::exporter::{self, Exporter, Target};
use crate::headers::check_name;
use crate::propagation::{Format, Incoming, Outgoing, Propagation, RandomIds};
use bytes::Bytes;
use compact_str::CompactString;
use config::{Config, Flavor, SpanName, StaticTag};
use plugin::trace::TraceId;
use plugin::{
    BuildCx, BuildError, EndedStreamCx, Filtered, HeaderValue, Instrumentations, LogCx, Node,
    Phases, Plugin, PluginDef, PluginError, Request, RequestCx, ResponseCx, Scopes, Step,
};
use services::http::Body;
use services::queue::Text;
use std::sync::Arc;
use std::time::Instant;

const NAME: &str = "zipkin";
/// What comes before each span in the list of a batch.
const SEPARATOR: u8 = b',';

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::BODY_FILTER)
        .with(Phases::LOG_WITHOUT_HEAD)
        .with(Phases::PREREAD);
    PluginDef::bundled::<Zipkin>(NAME, 100_000, phases, Scopes::ALL)
}

struct Zipkin {
    exporter: Option<Exporter<List>>,
    propagation: Propagation,
    sample_ratio: f64,
    has_short_ids: bool,
    shown_id: Option<CompactString>,
    local_service: CompactString,
    default_service: Option<CompactString>,
    shows_credential: bool,
    tags_header: CompactString,
    static_tags: Box<[StaticTag]>,
    span_name: SpanName,
    flavor: Flavor,
}

#[derive(Debug, Default)]
struct Own(Option<Decision>);

/// The trace context of a request.
#[derive(Debug, Clone, Copy)]
struct Decision {
    trace: TraceId,
    /// The span of the request, which can be the client's.
    request: u64,
    parent: Option<u64>,
    /// The span of the upstream's answer, which the upstream gets.
    proxy: u64,
    sampled: bool,
    /// When the access phase began, and when the head of the response was known. Only if the request is sampled.
    access_at: Option<Instant>,
    head_at: Option<Instant>,
}

impl Plugin for Zipkin {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let shown_id = config.http_response_header_for_traceid.as_deref();
        check_name("http_response_header_for_traceid", shown_id)?;
        let exporter = config.http_endpoint.as_deref().map(|url| {
            let target = Target {
                field: "http_endpoint",
                url,
                content_type: "application/json",
                grpc: None,
                headers: None,
                timeouts: [
                    config.connect_timeout,
                    config.send_timeout,
                    config.read_timeout,
                ],
            };
            Exporter::new(&target, List, config.queue, ("spans", ()))
        });
        Ok(Self {
            exporter: exporter.transpose()?,
            propagation: Propagation::new(
                config.propagation,
                config.header_type,
                config.default_header_type,
            ),
            sample_ratio: config.sample_ratio.unwrap_or(0.001),
            has_short_ids: config.traceid_byte_count == 8,
            shown_id: config.http_response_header_for_traceid,
            local_service: config.local_service_name,
            default_service: config.default_service_name,
            shows_credential: config.include_credential,
            tags_header: config.tags_header,
            static_tags: config.static_tags.unwrap_or_default().into(),
            span_name: config.http_span_name,
            flavor: config.phase_duration_flavor,
        })
    }

    /// The body filter of Kong's plugin only reads the clock. Here the end of the response is known without it.
    fn phases(&self, defined: Phases) -> Phases {
        defined.without(Phases::BODY_FILTER)
    }

    fn start(&self, node: &Arc<Node>) {
        if let Some(exporter) = &self.exporter {
            exporter.queue(NAME, node);
        }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let RequestCx { request, state, .. } = cx;
        let incoming = self.propagation.of_request(request);
        let mut decision = self.decide(incoming);
        if decision.sampled && self.exporter.is_some() {
            decision.access_at = Some(Instant::now());
            // The names of the servers that are tried.
            state.trace.record(Instrumentations::REQUEST);
        }
        state.trace.identify(decision.trace);
        let format = incoming.map(|incoming| incoming.format);
        // Kong loses this one decision on its way to the upstream, which then decides itself.
        let loses = format == Some(Format::B3Single) && !decision.sampled;
        let outgoing = Outgoing {
            trace: decision.trace,
            keeps_length: incoming.is_some_and(|one| one.trace.is_some()) || self.has_short_ids,
            span: decision.proxy,
            parent: Some(decision.request),
            sampled: (!loses).then_some(decision.sampled),
            debug: incoming.is_some_and(|incoming| incoming.debug),
        };
        let headers = &mut request.upstream.headers;
        self.propagation
            .inject(&outgoing, format, headers, &mut state.trace);
        own.0 = Some(decision);
        Ok(Step::Continue)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        let decision = self.decision(cx.request, own);
        if decision.access_at.is_some() {
            decision.head_at = Some(Instant::now());
        }
        if let Some(name) = &self.shown_id {
            let digits = decision.trace.hex();
            let shown = if decision.trace.is_short {
                &digits[16..]
            } else {
                &digits[..]
            };
            let id = HeaderValue::Bytes(Bytes::copy_from_slice(shown));
            cx.answer.headers.set(name, id);
        }
        Ok(Filtered::Continue)
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: &mut Own) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        let decision = *self.decision(cx.request, own);
        if decision.sampled {
            let mut texts = exporter.texts(NAME, cx.node);
            spans::of_request(self, cx, &decision, &mut texts);
        }
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        let Some(exporter) = &self.exporter else {
            return;
        };
        let decision = self.decide(None);
        if decision.sampled {
            let mut texts = exporter.texts(NAME, cx.node);
            spans::of_stream(self, cx, &decision, &mut texts);
        }
    }
}

impl Zipkin {
    fn decide(&self, incoming: Option<Incoming>) -> Decision {
        let told = incoming.and_then(|incoming| incoming.sampled);
        let with_ids = incoming.filter(|incoming| incoming.trace.is_some());
        let shared = with_ids.filter(Incoming::shares_span);
        let (trace, [request, proxy]) = RandomIds::draw(|ids| {
            let trace = ids.trace(self.has_short_ids);
            (trace, [ids.span(), ids.span()])
        });
        Decision {
            trace: with_ids
                .and_then(|incoming| incoming.trace)
                .unwrap_or(trace),
            request: shared.and_then(|incoming| incoming.span).unwrap_or(request),
            parent: match shared {
                Some(incoming) => incoming.parent,
                None => with_ids.and_then(|incoming| incoming.span),
            },
            proxy,
            sampled: told.unwrap_or_else(|| is_chosen(self.sample_ratio)),
            access_at: None,
            head_at: None,
        }
    }

    /// Returns the decision. If the request ended before this plugin's access phase, it is made now.
    fn decision<'o>(&self, request: &Request<'_>, own: &'o mut Own) -> &'o mut Decision {
        own.0.get_or_insert_with(|| {
            let incoming = self.propagation.of_request(request);
            self.decide(incoming)
        })
    }
}

/// Chooses this share of the requests at random.
fn is_chosen(ratio: f64) -> bool {
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    ratio >= 1.0 || (RandomIds::draw(RandomIds::span) as f64) < ratio * ALL
}

/// A batch as a JSON list.
struct List;

impl exporter::Format for List {
    fn body(&self, batch: &Arc<Vec<Text>>) -> Body {
        // Each span follows its comma, which the first one does not have in the list.
        let spans = Text::pieces(batch).enumerate();
        let spans = spans.map(|(at, mut piece)| piece.split_off(usize::from(at == 0)));
        let start = [Bytes::from_static(b"[")].into_iter();
        start
            .chain(spans)
            .chain([Bytes::from_static(b"]")])
            .collect()
    }

    fn is_success(status: u16) -> bool {
        (200..300).contains(&status)
    }
}
