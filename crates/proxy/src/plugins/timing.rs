//! Records how long plugins take, for requests whose trace or debug output asks for it. The chain has a second form of
//! its loops for them, so that other requests pay nothing.

use super::chain::Picked;
use super::{Chain, Instance, Plan};
use plugin::trace::queries::{self, Query};
use plugin::trace::{Moment, PluginPhase, Span, SpanDetails, SpanKind};
use plugin::{ConfiguredNames, Instrumentations, PluginError, Request, Trace};
use std::error::Error;
use tokio::time::Instant;

/// The clock of a phase. Each plugin begins where the one before it has ended, so that the clock is read once for each.
pub(super) struct Timer {
    phase: PluginPhase,
    last: Moment,
    has_queries: bool,
    /// The reads of the store by the plugin that runs.
    queries: Vec<Query>,
}

/// A plugin that has run.
pub(super) struct Timed<'a> {
    instance: &'a Instance,
    picked: &'a Picked,
    error: Option<&'a PluginError>,
}

impl<'a> Timed<'a> {
    pub(super) fn new(
        instance: &'a Instance,
        picked: &'a Picked,
        error: Option<&'a PluginError>,
    ) -> Self {
        Self {
            instance,
            picked,
            error,
        }
    }

    /// Returns the id of the configured plugin, if it is shown, and why it has failed.
    #[cold]
    fn details(
        &self,
        shows_id: bool,
        names: &dyn ConfiguredNames,
        request: &Request<'_>,
    ) -> Box<SpanDetails> {
        let configured = self.picked.configured(names);
        let id = || configured.name(request).map(|name| name.id.0);
        Box::new(SpanDetails {
            statement: None,
            id: if shows_id { id() } else { None },
            error: self.error.map(text_of),
        })
    }
}

impl Timer {
    pub(super) fn start(phase: PluginPhase) -> Self {
        Self {
            phase,
            last: Moment::now(),
            has_queries: false,
            queries: Vec::new(),
        }
    }

    /// Records the span of a plugin that has ended.
    pub(super) fn end(
        &mut self,
        trace: &mut Trace,
        ran: &Timed<'_>,
        names: &dyn ConfiguredNames,
        request: &Request<'_>,
    ) {
        let start = trace.resume().unwrap_or(self.last);
        self.last = Moment::now();
        if !self.queries.is_empty() {
            self.add_queries(trace);
        }
        if !trace.records(self.phase.instrumentation()) {
            return;
        }
        let shows_id = trace.records(Instrumentations::IDS);
        trace.add(Span {
            kind: SpanKind::Plugin {
                phase: self.phase,
                name: ran.instance.def.name.clone(),
            },
            start,
            end: self.last,
            details: match shows_id || ran.error.is_some() {
                true => Some(ran.details(shows_id, names, request)),
                false => None,
            },
        });
    }

    #[cold]
    fn add_queries(&mut self, trace: &mut Trace) {
        for query in self.queries.drain(..) {
            trace.add(Span {
                kind: SpanKind::Query,
                start: query.start,
                end: query.end,
                details: Some(Box::new(SpanDetails {
                    statement: Some(query.statement),
                    ..SpanDetails::default()
                })),
            });
        }
    }

    /// Prepares the call of a plugin whose reads of the store have spans.
    #[inline]
    pub(super) fn call(&mut self, trace: &Trace) {
        self.has_queries = trace.records(Instrumentations::DB_QUERY);
        if self.has_queries {
            queries::start();
        }
    }

    /// Takes the reads of the store during a call, before another request can run on the thread.
    #[inline]
    pub(super) fn returned(&mut self) {
        if std::mem::take(&mut self.has_queries)
            && let Some(queries) = queries::take()
        {
            self.queries = queries;
        }
    }

    /// The plugin goes on later, and its span with it.
    pub(super) fn interrupt(&self, trace: &mut Trace) {
        let start = trace.resume().unwrap_or(self.last);
        trace.interrupt(start);
    }
}

/// The message of an error with its causes.
#[cold]
fn text_of(error: &PluginError) -> Box<str> {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.into()
}

impl Chain<'_> {
    /// Lets the plugin that traces decide about the spans of the request, and ends the span of its routing, which has
    /// begun at `since`. Returns whether the access phase is timed.
    #[inline(never)]
    pub fn begin_trace(&mut self, plan: &Plan, request: &Request<'_>, since: Instant) -> bool {
        let (instances, node) = (self.instances, self.node);
        let Some(memory) = self.memory_mut() else {
            return false;
        };
        let trace = &mut memory.state.trace;
        if let Some(instance) = plan.tracer {
            let plugin = &instances.get(instance).plugin;
            plugin.begin_trace(request, trace, node);
        }
        if !trace.is_recording() {
            return false;
        }
        if trace.records(Instrumentations::ROUTER) {
            trace.add(Span {
                kind: SpanKind::Router,
                start: Moment::of(since.into_std()),
                end: Moment::now(),
                details: None,
            });
        }
        trace.records(Instrumentations::PLUGIN_ACCESS.with(Instrumentations::DB_QUERY))
    }
}
