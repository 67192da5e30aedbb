//! opentelemetry traces requests: it passes the trace context on to the upstream, and sends the spans of the requests that
//! are sampled to a collector, by OTLP over HTTP or gRPC. It can send log lines and metrics too. Source: kong/plugins/opentelemetry/{handler,traces}.lua.
//!
//! The kinds of spans are a setting of the node (`tracing_instrumentations`). Whether a request is sampled is decided
//! before its access phase, so that a request that is not sampled costs only its header. Its spans are written in the log
//! phase, one after the other, and copied into the queue of the collector together.

mod checks;
mod collector;
mod config;
mod custom;
mod lines;
mod metrics;
mod protobuf;
mod source;
mod spans;
#[cfg(test)]
mod tests;

pub(crate) use source::SOURCE;

use crate::exporter::Exporter;
use crate::headers::check_name;
use crate::propagation::{Format, Incoming, Outgoing, Propagation, RandomIds, fields};
use bytes::Bytes;
use collector::Signal;
use compact_str::CompactString;
use config::{Config, TailSampling};
use metrics::Exports;
use plugin::trace::TraceId;
use plugin::{
    BuildCx, BuildError, Filtered, HeaderValue, Instrumentations, LogCx, Node, Phases, Plugin,
    PluginDef, PluginError, Request, RequestCx, ResponseCx, Scopes, Step,
};
use protobuf::Envelope;
use services::log_lines::Tapped;
use spans::Ids;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

const NAME: &str = "opentelemetry";

pub(crate) fn def() -> PluginDef {
    let phases = Phases::ACCESS
        .with(Phases::HEADER_FILTER)
        .with(Phases::LOG_WITHOUT_HEAD);
    PluginDef::bundled::<OpenTelemetry>(NAME, 14, phases, Scopes::ALL)
}

struct OpenTelemetry {
    propagation: Propagation,
    traces: Option<Exporter<Envelope>>,
    logs: Option<Arc<Exporter<Envelope>>>,
    metrics: Option<Metrics>,
    /// Takes the lines of the log that are about no request.
    tapped: OnceLock<Tapped>,
    sampling_rate: Option<f64>,
    tail: Option<Tail>,
    shown_id: Option<CompactString>,
    /// Whether the header filter has a span.
    shows_filter: bool,
    /// Deprecated fields that are set, for a warning.
    deprecated: Vec<&'static str>,
}

/// The exports of metrics.
struct Metrics {
    /// Set when the plugin starts. They are dropped before the queue of the exporter. Otherwise a new plugin could find
    /// exports whose queue is gone.
    exports: OnceLock<Arc<Exports>>,
    exporter: Exporter<Envelope>,
    interval: Duration,
}

/// Decides which requests are kept because of how they ended.
struct Tail {
    latency: Duration,
    errors: bool,
}

/// What is known about the trace of a request.
#[derive(Debug, Default)]
struct Own {
    decision: Option<Decision>,
    /// Whether the decision was made before the access phases. It counts if that of this plugin runs.
    is_early: bool,
}

#[derive(Debug, Clone, Copy)]
struct Decision {
    trace: TraceId,
    /// Whether `trace` is the client's.
    is_foreign: bool,
    /// The client's span, if the trace is the client's.
    parent: Option<u64>,
    /// The format of the client's context, if it has sent one.
    format: Option<Format>,
    /// Whether the client has decided about sampling.
    is_told: bool,
    /// Whether the client asks for a debug trace.
    debug: bool,
    root: u64,
    last_try: u64,
    sampled: bool,
}

impl Plugin for OpenTelemetry {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        let shown_id = config.http_response_header_for_traceid.as_deref();
        check_name("http_response_header_for_traceid", shown_id)?;
        let (params, deprecated) = config.queue_params();
        let kinds = cx.identity.tracing.instrumentations;
        let envelope = collector::envelope(&config, cx.identity);
        let exporter = |signal, params| collector::exporter(signal, &config, &envelope, params);
        let of_metrics = metrics::queue_params(params.clone());
        let metrics = exporter(Signal::Metrics, of_metrics)?.map(|exporter| Metrics {
            exporter,
            interval: config.metrics_interval(),
            exports: OnceLock::new(),
        });
        Ok(Self {
            traces: exporter(Signal::Traces, params.clone())?,
            logs: exporter(Signal::Logs, params)?.map(Arc::new),
            metrics,
            tapped: OnceLock::new(),
            propagation: Propagation::new(config.propagation, config.header_type, None),
            sampling_rate: config.sampling_rate,
            tail: config.tail_sampling.as_ref().and_then(tail),
            shows_filter: kinds.intersects(Instrumentations::PLUGIN_HEADER_FILTER),
            shown_id: config.http_response_header_for_traceid,
            deprecated,
        })
    }

    /// Without an endpoint for spans, the plugin does not touch requests. The response is left alone unless it shows the
    /// trace id, or unless there is a span for that.
    fn phases(&self, defined: Phases) -> Phases {
        let without = defined.without(Phases::HEADER_FILTER);
        match self.traces {
            None if self.logs.is_none() => Phases::NONE,
            None => Phases::LOG_WITHOUT_HEAD,
            Some(_) if self.shown_id.is_some() => defined,
            Some(_) if self.shows_filter => without.with(Phases::HEADER_SPAN),
            Some(_) => without,
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
        if let Some(metrics) = &self.metrics {
            let Metrics {
                exporter, interval, ..
            } = metrics;
            let queue = exporter.queue(NAME, node);
            let start = || metrics::start(node, exporter.name(), queue, *interval);
            metrics.exports.get_or_init(start);
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
        let decision = own.decision.insert(self.decide(request, node));
        own.is_early = true;
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
        let decision = match &mut own.decision {
            Some(early) if !fields::are_changed(&request.upstream.headers) => early,
            early => early.insert(self.decide(request, node).after(*early)),
        };
        own.is_early = false;
        let kinds = node.identity.tracing.instrumentations;
        if decision.sampled {
            state.trace.record(kinds);
        }
        state.trace.identify(decision.trace);
        let outgoing = decision.outgoing(kinds);
        let format = decision.format;
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
            let decided = own.decision.as_ref().filter(|_| !own.is_early);
            let ids = decided.map(|decision| (decision.ids(), decision.sampled));
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
            let mut texts = traces.texts(NAME, cx.node);
            spans::write(cx, decision.ids(), kinds, &mut texts);
            custom::write(&cx.state.trace, decision.ids(), &mut texts);
        }
    }
}

impl OpenTelemetry {
    fn decide(&self, request: &Request<'_>, node: &Node) -> Decision {
        let incoming = self.propagation.of_request(request);
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
    fn decision(&mut self, node: &Node) -> &Decision {
        if std::mem::take(&mut self.is_early) {
            self.decision = None;
        }
        self.decision.get_or_insert_with(|| {
            let mut decision = Decision::new(None);
            decision.sampled = is_sampled(decision.trace, node.identity.tracing.sampling_rate);
            decision
        })
    }
}

impl Decision {
    fn new(incoming: Option<Incoming>) -> Self {
        let foreign = incoming.and_then(|incoming| incoming.trace);
        let (trace, [root, last_try]) =
            RandomIds::draw(|ids| (ids.trace(false), [ids.span(), ids.span()]));
        Self {
            parent: incoming
                .filter(|_| foreign.is_some())
                .and_then(|incoming| incoming.span),
            format: incoming.map(|incoming| incoming.format),
            is_told: incoming.is_some_and(|incoming| incoming.sampled.is_some()),
            debug: incoming.is_some_and(|incoming| incoming.debug),
            trace: foreign.unwrap_or(trace),
            is_foreign: foreign.is_some(),
            root,
            last_try,
            sampled: false,
        }
    }

    /// Keeps the ids of an earlier decision if they are the gateway's own in both, so that one request has one trace.
    fn after(self, early: Option<Self>) -> Self {
        match early {
            Some(early) if !early.is_foreign && !self.is_foreign => Self {
                trace: early.trace,
                root: early.root,
                last_try: early.last_try,
                sampled: match self.is_told {
                    true => self.sampled,
                    false => early.sampled,
                },
                ..self
            },
            _ => self,
        }
    }

    fn ids(&self) -> Ids {
        Ids {
            trace: self.trace.number,
            root: self.root,
            parent: self.parent,
            last_try: self.last_try,
        }
    }

    /// What the upstream gets: the span of the last try as its parent if there is one, and otherwise the root span.
    fn outgoing(&self, kinds: Instrumentations) -> Outgoing {
        let has_try = kinds.intersects(Instrumentations::BALANCER);
        Outgoing {
            trace: self.trace,
            keeps_length: self.is_foreign,
            span: if has_try { self.last_try } else { self.root },
            parent: if has_try {
                Some(self.root)
            } else {
                self.parent
            },
            sampled: Some(self.sampled),
            debug: self.debug,
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
