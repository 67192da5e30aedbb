//! opentelemetry traces requests: it passes the trace context on to the upstream, and sends the spans of the requests that
//! are sampled to a collector, by OTLP over HTTP. Source: kong/plugins/opentelemetry/{handler,traces}.lua.
//!
//! The kinds of spans are a setting of the node (`tracing_instrumentations`). Whether a request is sampled is decided
//! before its access phase, so that a request that is not sampled costs only its header. Its spans are written in the log
//! phase, each once, into the queue of the collector.

mod checks;
mod config;
mod lines;
mod protobuf;
mod source;
mod spans;
#[cfg(test)]
mod tests;

pub(crate) use source::SOURCE;

use crate::exporter::{self, Exporter, Target};
use crate::propagation::fields::{self, Fields};
use crate::propagation::{Incoming, Outgoing, Propagation, random_span, random_trace};
use bytes::Bytes;
use compact_str::CompactString;
use config::{Config, TailSampling};
use plugin::trace::TraceId;
use plugin::{
    BuildCx, BuildError, Filtered, HeaderValue, Instrumentations, LogCx, Node, NodeIdentity,
    Phases, Plugin, PluginDef, PluginError, Request, RequestCx, ResponseCx, Scopes, Step,
};
use protobuf::Envelope;
use services::http::Body;
use services::log_lines::Tapped;
use services::queue::Text;
use spans::{Ids, Writer};
use std::cell::RefCell;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const NAME: &str = "opentelemetry";

/// Capacity above which the buffer of a worker is freed.
const KEPT_CAPACITY: usize = 64 * 1024;

thread_local! {
    /// The span that is being written. Its memory is reused, so that it is in the cache.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG);
    PluginDef::bundled::<OpenTelemetry>(NAME, 14, phases, Scopes::ALL)
}

struct OpenTelemetry {
    propagation: Propagation,
    traces: Option<Exporter<Envelope>>,
    logs: Option<Arc<Exporter<Envelope>>>,
    /// Takes the lines of the log that are about no request.
    tapped: OnceLock<Tapped>,
    sampling_rate: Option<f64>,
    tail: Option<Tail>,
    shown_id: Option<CompactString>,
    filters_heads: bool,
    /// Deprecated fields that are set, for a warning.
    deprecated: Vec<&'static str>,
}

/// Decides which requests are kept because of how they ended.
struct Tail {
    latency: Duration,
    errors: bool,
}

/// What is known about the trace of a request.
#[derive(Debug, Default)]
struct Own {
    /// Set before the access phase. It counts if the access phase of this plugin runs.
    early: Option<Decision>,
    /// Set in the access phase of this plugin, or later if it did not run.
    decision: Option<Decision>,
}

#[derive(Debug, Clone, Copy)]
struct Decision {
    incoming: Option<Incoming>,
    trace: TraceId,
    /// Whether `trace` is the client's.
    is_foreign: bool,
    root: u64,
    last_try: u64,
    sampled: bool,
}

impl Plugin for OpenTelemetry {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let (params, deprecated) = config.queue_params();
        let kinds = cx.identity.tracing.instrumentations;
        let envelope = envelope(&config, cx.identity);
        let exporter = |field, url: &Option<CompactString>, kind| {
            let url = url.as_deref();
            url.map(|url| {
                let target = Target {
                    field,
                    url,
                    content_type: "application/x-protobuf",
                    headers: config.headers.as_ref(),
                    timeouts: [
                        config.connect_timeout,
                        config.send_timeout,
                        config.read_timeout,
                    ],
                };
                let identity = (kind, config.resource_attributes.as_ref());
                Exporter::new(&target, envelope.clone(), params.clone(), identity)
            })
            .transpose()
        };
        Ok(Self {
            traces: exporter("traces_endpoint", &config.traces_endpoint, "traces")?,
            logs: exporter("logs_endpoint", &config.logs_endpoint, "logs")?.map(Arc::new),
            tapped: OnceLock::new(),
            propagation: Propagation::new(config.propagation, config.header_type, None),
            sampling_rate: config.sampling_rate,
            tail: config.tail_sampling.as_ref().and_then(tail),
            filters_heads: config.http_response_header_for_traceid.is_some()
                || kinds.intersects(Instrumentations::PLUGIN_HEADER_FILTER),
            shown_id: config.http_response_header_for_traceid,
            deprecated,
        })
    }

    /// Without an endpoint for spans, the plugin does not touch requests. The response is left alone unless it shows the
    /// trace id, or unless there is a span for that.
    fn phases(&self, defined: Phases) -> Phases {
        match self.traces {
            None => Phases::LOG,
            Some(_) if self.filters_heads => defined,
            Some(_) => defined.without(Phases::HEADER_FILTER),
        }
    }

    fn start(&self, node: &Arc<Node>) {
        for field in &self.deprecated {
            tracing::warn!(
                plugin = NAME,
                field,
                "the field is deprecated; use the fields of `queue` instead"
            );
        }
        if let Some(traces) = &self.traces {
            traces.queue(NAME, node);
        }
        if let Some(logs) = &self.logs {
            let queue = logs.queue(NAME, node).clone();
            self.tapped.get_or_init(|| Tapped::new(lines::tap(queue)));
        }
    }

    fn traces(&self) -> bool {
        self.traces.is_some()
    }

    fn begin_trace(&self, request: &Request<'_>, own: &mut Own, node: &Node) -> Instrumentations {
        let kinds = node.identity.tracing.instrumentations;
        if kinds.is_empty() {
            return Instrumentations::NONE;
        }
        let decision = self.decide(request, node);
        own.early = Some(decision);
        match decision.sampled || self.tail.is_some() {
            true => kinds,
            false => Instrumentations::NONE,
        }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let RequestCx {
            request,
            state,
            node,
            ..
        } = cx;
        // Plugins that ran meanwhile may have changed the headers of the trace.
        let early = own
            .early
            .filter(|_| !fields::are_changed(&request.upstream.headers));
        let decision = early.unwrap_or_else(|| self.decide(request, node).after(own.early));
        own.decision = Some(decision);
        let kinds = node.identity.tracing.instrumentations;
        if decision.sampled {
            state.trace.record(kinds);
        }
        state.trace.identify(decision.trace);
        let outgoing = decision.outgoing(kinds);
        let format = decision.incoming.map(|incoming| incoming.format);
        let headers = &mut request.upstream.headers;
        self.propagation
            .inject(&outgoing, format, headers, &mut state.trace);
        Ok(Step::Continue)
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        if let Some(name) = &self.shown_id {
            let trace = own.decision(cx.node).trace;
            let id = Bytes::copy_from_slice(&trace.hex());
            cx.answer.headers.add(name, HeaderValue::Bytes(id));
        }
        Ok(Filtered::Continue)
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: &mut Own) {
        if let Some(logs) = &self.logs {
            let queue = logs.queue(NAME, cx.node);
            let ids = own
                .decision
                .map(|decision| (decision.ids(), decision.sampled));
            lines::of_request(cx.request.request_id, ids, queue);
        }
        let Some(traces) = &self.traces else {
            return;
        };
        let kinds = cx.node.identity.tracing.instrumentations;
        if kinds.is_empty() {
            return;
        }
        let decision = own.decision(cx.node);
        if decision.sampled || self.tail.as_ref().is_some_and(|tail| tail.keeps(cx)) {
            let queue = traces.queue(NAME, cx.node);
            write(cx, decision.ids(), kinds, |span| {
                queue.push_text(protobuf::ENTRY, span);
            });
        }
    }
}

impl OpenTelemetry {
    fn decide(&self, request: &Request<'_>, node: &Node) -> Decision {
        let incoming = self.propagation.extract(&Fields::of(request));
        let mut decision = Decision::new(incoming);
        decision.sampled = match incoming {
            _ if node.identity.tracing.instrumentations.is_empty() => false,
            Some(Incoming {
                sampled: Some(false),
                ..
            }) => false,
            // There is no id by which the gateway could decide as others do.
            Some(Incoming {
                sampled: Some(true),
                trace: None,
                ..
            }) => true,
            _ => {
                let rate = self
                    .sampling_rate
                    .unwrap_or(node.identity.tracing.sampling_rate);
                is_sampled(decision.trace, rate)
            }
        };
        decision
    }
}

impl Own {
    /// Returns the decision. A request that ended before this plugin's access phase has a trace of its own, as in Kong.
    fn decision(&mut self, node: &Node) -> Decision {
        *self.decision.get_or_insert_with(|| {
            let mut decision = Decision::new(None);
            decision.sampled = is_sampled(decision.trace, node.identity.tracing.sampling_rate);
            decision
        })
    }
}

impl Decision {
    fn new(incoming: Option<Incoming>) -> Self {
        let foreign = incoming.and_then(|incoming| incoming.trace);
        Self {
            incoming,
            trace: foreign.unwrap_or_else(|| random_trace(false)),
            is_foreign: foreign.is_some(),
            root: random_span(),
            last_try: random_span(),
            sampled: false,
        }
    }

    /// Keeps the ids of an earlier decision if they are the gateway's own in both, so that one request has one trace.
    fn after(self, early: Option<Self>) -> Self {
        match early {
            Some(early) if !early.is_foreign && !self.is_foreign => {
                let is_told = self.incoming.is_some_and(|one| one.sampled.is_some());
                Self {
                    sampled: if is_told { self.sampled } else { early.sampled },
                    incoming: self.incoming,
                    ..early
                }
            }
            _ => self,
        }
    }

    fn ids(self) -> Ids {
        Ids {
            trace: self.trace.number,
            root: self.root,
            parent: self.parent_of_root(),
            last_try: self.last_try,
        }
    }

    fn parent_of_root(self) -> Option<u64> {
        self.incoming.filter(|_| self.is_foreign)?.span
    }

    /// What the upstream gets: the span of the last try as its parent if there is one, and otherwise the root span.
    fn outgoing(self, kinds: Instrumentations) -> Outgoing {
        let has_try = kinds.intersects(Instrumentations::BALANCER);
        Outgoing {
            trace: self.trace,
            keeps_length: self.is_foreign,
            span: if has_try { self.last_try } else { self.root },
            parent: if has_try {
                Some(self.root)
            } else {
                self.parent_of_root()
            },
            sampled: Some(self.sampled),
            debug: self.incoming.is_some_and(|incoming| incoming.debug),
        }
    }
}

impl Tail {
    fn keeps(&self, cx: &LogCx<'_, '_>) -> bool {
        let entry = cx.entry;
        self.errors && entry.status >= 500 || entry.latencies.request >= self.latency
    }
}

/// Returns `None` if nothing can be kept.
fn tail(config: &TailSampling) -> Option<Tail> {
    let errors = config.errors.unwrap_or(false);
    let latency = config
        .latency
        .map(|limit| Duration::try_from_secs_f64(limit / 1000.0).unwrap_or(Duration::MAX));
    (errors || latency.is_some()).then_some(Tail {
        latency: latency.unwrap_or(Duration::MAX),
        errors,
    })
}

/// Whether a trace is sampled: a number made of its id is compared with the rate, so that all gateways decide alike. As in
/// Kong, it is the first half of the id in little-endian order. Ids of 8 bytes have only the other half.
fn is_sampled(trace: TraceId, rate: f64) -> bool {
    let high = (trace.number >> 64) as u64;
    let number = if high == 0 { trace.number as u64 } else { high };
    const ALL: f64 = 18_446_744_073_709_551_616.0;
    rate >= 1.0 || (number.swap_bytes() as f64) < rate * ALL
}

/// Writes the spans of a request one by one.
fn write(cx: &LogCx<'_, '_>, ids: Ids, kinds: Instrumentations, push: impl FnMut(&[u8])) {
    // The buffer is taken out and put back, so that nothing is borrowed while the spans are written.
    let mut out = BUFFER.take();
    Writer {
        cx,
        ids,
        kinds,
        out: &mut out,
    }
    .write(push);
    if out.capacity() <= KEPT_CAPACITY {
        BUFFER.set(out);
    }
}

/// The resource is the node, unless the configuration says otherwise.
fn envelope(config: &Config, identity: &NodeIdentity) -> Envelope {
    let usual = [
        ("service.name", "kong"),
        ("service.instance.id", &*identity.id),
        ("service.version", plugin::BUNDLED_VERSION),
    ];
    let own = config.resource_attributes.iter().flatten();
    let own = own.map(|(key, value)| (key.as_str(), value.as_str()));
    let replaced = |key: &str| {
        let attributes = config.resource_attributes.as_ref();
        attributes.is_some_and(|attributes| attributes.contains_key(key))
    };
    Envelope::new(
        usual
            .into_iter()
            .filter(|(key, _)| !replaced(key))
            .chain(own),
    )
}

impl exporter::Format for Envelope {
    /// Each entry follows the tag that joins it to the others, so that a batch needs only the envelope in front of it.
    fn body(&self, batch: &Arc<Vec<Text>>) -> Body {
        let size = batch.iter().map(|text| text.as_ref().len()).sum();
        let start = Bytes::from(self.around(size));
        [start].into_iter().chain(Text::pieces(batch)).collect()
    }

    fn is_success(status: u16) -> bool {
        status == 200
    }
}
