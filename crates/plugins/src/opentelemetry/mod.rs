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
use crate::propagation::{Incoming, Outgoing, Propagation, RandomIds, fields};
use bytes::Bytes;
use collector::Signal;
use compact_str::CompactString;
use config::{Config, TailSampling};
use metrics::Exports;
use plugin::trace::{Decision, TraceId};
use plugin::{
    BuildCx, BuildError, Filtered, HeaderValue, Instrumentations, LogCx, Node, Phases, Plugin,
    PluginDef, PluginError, Request, RequestCx, RequestState, ResponseCx, Scopes, Step, Trace,
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

impl Plugin for OpenTelemetry {
    type Config = Config;
    type Own = ();

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

    fn begin_trace(&self, request: &Request<'_>, trace: &mut Trace, node: &Node) {
        let kinds = node.identity.tracing.instrumentations;
        if kinds.is_empty() {
            return;
        }
        let decision = trace.decision.insert(self.decide(request, node));
        if decision.sampled || self.tail.is_some() {
            trace.record(kinds);
        }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let RequestCx {
            request,
            state: RequestState { trace, .. },
            node,
            ..
        } = cx;
        let headers = &mut request.upstream.headers;
        // Plugins that ran meanwhile may have changed the headers of the trace.
        if trace.decision.is_none() || fields::are_changed(headers) {
            trace.decision = Some(after(trace.decision, self.decide(request, node)));
        }
        let Some(decision) = &mut trace.decision else {
            return Ok(Step::Continue);
        };
        decision.is_early = false;
        let Decision {
            trace: id,
            format,
            sampled,
            ..
        } = *decision;
        let kinds = node.identity.tracing.instrumentations;
        let outgoing = outgoing(decision, kinds);
        if sampled {
            trace.record(kinds);
        }
        trace.identify(id);
        let headers = &mut request.upstream.headers;
        self.propagation.inject(&outgoing, format, headers, trace);
        match self.is_done_with(trace) {
            true => Ok(Step::Leave),
            false => Ok(Step::Continue),
        }
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        (): &mut (),
    ) -> Result<Filtered, PluginError> {
        if let Some(name) = &self.shown_id {
            let trace = decision_of(&mut cx.state.trace, cx.node).trace;
            let id = Bytes::copy_from_slice(&trace.hex());
            cx.answer.headers.add(name, HeaderValue::Bytes(id));
        }
        Ok(Filtered::Continue)
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, (): &mut ()) {
        if let Some(logs) = &self.logs {
            let queue = logs.queue(NAME, cx.node);
            let decision = cx.state.trace.decision.as_ref();
            let decided = decision.filter(|decision| !decision.is_early);
            let ids = decided.map(|decision| (Ids::of(decision), decision.sampled));
            lines::of_request(cx.request.request_id, ids, queue);
        }
        let Some(traces) = &self.traces else {
            return;
        };
        let kinds = cx.node.identity.tracing.instrumentations;
        if kinds.is_empty() {
            return;
        }
        let decision = decision_of(&mut cx.state.trace, cx.node);
        if decision.sampled || self.tail.as_ref().is_some_and(|tail| tail.keeps(cx)) {
            let ids = Ids::of(&decision);
            let mut texts = traces.texts(NAME, cx.node);
            spans::write(cx, ids, kinds, &mut texts);
            custom::write(&cx.state.trace, ids, &mut texts);
        }
    }
}

impl OpenTelemetry {
    /// Whether nothing is left to do for a request that has its header.
    #[inline]
    fn is_done_with(&self, trace: &Trace) -> bool {
        let needs_response = self.shown_id.is_some() || self.logs.is_some() || self.tail.is_some();
        !needs_response && !trace.is_recording()
    }

    #[inline]
    fn decide(&self, request: &Request<'_>, node: &Node) -> Decision {
        match self.propagation.of_request(request) {
            None => {
                let mut decision = draw();
                decision.sampled = self.samples(&decision, node);
                decision
            }
            Some(incoming) => self.decide_with(&incoming, node),
        }
    }

    #[inline(never)]
    fn decide_with(&self, incoming: &Incoming, node: &Node) -> Decision {
        let mut decision = decision_with(incoming);
        decision.sampled = match incoming {
            _ if node.identity.tracing.instrumentations.is_empty() => false,
            Incoming {
                sampled: Some(false),
                ..
            } => false,
            // There is no id by which the gateway could decide as others do.
            Incoming {
                sampled: Some(true),
                trace: None,
                ..
            } => true,
            _ => self.samples(&decision, node),
        };
        decision
    }

    #[inline]
    fn samples(&self, decision: &Decision, node: &Node) -> bool {
        let tracing = &node.identity.tracing;
        let rate = self.sampling_rate.unwrap_or(tracing.sampling_rate);
        !tracing.instrumentations.is_empty() && is_sampled(decision.trace, rate)
    }
}

/// Returns the decision about a request. One that ended before this plugin's access phase has a trace of its own, as in
/// Kong.
fn decision_of(trace: &mut Trace, node: &Node) -> Decision {
    match trace.decision {
        Some(decision) if !decision.is_early => decision,
        _ => {
            let mut decision = draw();
            decision.sampled = is_sampled(decision.trace, node.identity.tracing.sampling_rate);
            decision.is_early = false;
            *trace.decision.insert(decision)
        }
    }
}

/// A trace of the gateway's own.
#[inline]
fn draw() -> Decision {
    let (trace, [root, last_try]) =
        RandomIds::draw(|ids| (ids.trace(false), [ids.span(), ids.span()]));
    Decision {
        trace,
        is_foreign: false,
        parent: None,
        format: None,
        is_told: false,
        debug: false,
        root,
        last_try,
        sampled: false,
        is_early: true,
    }
}

fn decision_with(incoming: &Incoming) -> Decision {
    let own = draw();
    Decision {
        trace: incoming.trace.unwrap_or(own.trace),
        is_foreign: incoming.trace.is_some(),
        parent: incoming.span.filter(|_| incoming.trace.is_some()),
        format: Some(incoming.format),
        is_told: incoming.sampled.is_some(),
        debug: incoming.debug,
        ..own
    }
}

/// Keeps the ids of an earlier decision if they are the gateway's own in both, so that one request has one trace.
#[inline(never)]
fn after(early: Option<Decision>, later: Decision) -> Decision {
    match early {
        Some(early) if !early.is_foreign && !later.is_foreign => Decision {
            trace: early.trace,
            root: early.root,
            last_try: early.last_try,
            sampled: match later.is_told {
                true => later.sampled,
                false => early.sampled,
            },
            ..later
        },
        _ => later,
    }
}

/// What the upstream gets: the span of the last try as its parent if there is one, and otherwise the root span.
#[inline]
fn outgoing(decision: &Decision, kinds: Instrumentations) -> Outgoing {
    let has_try = kinds.intersects(Instrumentations::BALANCER);
    let (span, parent) = match has_try {
        true => (decision.last_try, Some(decision.root)),
        false => (decision.root, decision.parent),
    };
    Outgoing {
        trace: decision.trace,
        keeps_length: decision.is_foreign,
        span,
        parent,
        sampled: Some(decision.sampled),
        debug: decision.debug,
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
