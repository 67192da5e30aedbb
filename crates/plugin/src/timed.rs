//! Measures what each plugin costs (`plugin_time_metrics`). A handler that is measured is wrapped when it is built, so
//! that nothing is slower while the setting is off.

use crate::def::{Filtered, Phases, PluginError, Step, Wait};
use crate::handler::{Handler, OwnSlot};
use crate::log::LogCx;
use crate::node::Node;
use crate::request::{Request, RequestCx};
use crate::response::{Chunk, ResponseCx};
use crate::stream::{CertificateCx, EndedStreamCx, StreamCx, StreamStep};
use crate::trace::Trace;
use services::metrics::Histogram;
use services::workers::this_worker;
use std::any::Any;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

const NAME: &str = "silverback_plugin_seconds";
const HELP: &str = "Time that workers spend in a phase of a plugin, without its waits.";
const BOUNDS: [f64; 12] = [
    5e-7, 1e-6, 5e-6, 1e-5, 5e-5, 1e-4, 5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.1,
];

/// The phases by their names as labels, in the order of [`Phase`].
const PHASES: [&str; 10] = [
    "rewrite",
    "access",
    "request_body",
    "response",
    "header_filter",
    "body_filter",
    "log",
    "certificate",
    "preread",
    "log_stream",
];

#[derive(Clone, Copy)]
enum Phase {
    Rewrite,
    Access,
    RequestBody,
    Response,
    HeaderFilter,
    BodyFilter,
    Log,
    Certificate,
    Preread,
    LogStream,
}

/// A handler whose phases are measured.
pub struct Timed {
    inner: Arc<dyn Handler>,
    /// Name of the plugin.
    plugin: String,
    series: OnceLock<[Histogram; PHASES.len()]>,
}

impl Timed {
    pub fn new(inner: Arc<dyn Handler>, plugin: &str) -> Self {
        Self {
            inner,
            plugin: plugin.to_owned(),
            series: OnceLock::new(),
        }
    }

    fn run<R>(&self, phase: Phase, run: impl FnOnce() -> R) -> R {
        let mut stopwatch = self.stopwatch(phase);
        stopwatch.measure(run)
    }

    fn stopwatch(&self, phase: Phase) -> Stopwatch<'_> {
        Stopwatch {
            series: self.series.get(),
            phase,
            spent: Duration::ZERO,
        }
    }

    /// Measures a phase that may wait. Each poll of the wait counts for the phase.
    fn step<'a>(
        &'a self,
        phase: Phase,
        run: impl FnOnce() -> Result<Step<'a>, PluginError>,
    ) -> Result<Step<'a>, PluginError> {
        let mut stopwatch = self.stopwatch(phase);
        Ok(match stopwatch.measure(run)? {
            Step::Wait(Wait {
                future,
                ends_with_client,
            }) => Step::Wait(Wait {
                future: Box::pin(Polled { future, stopwatch }),
                ends_with_client,
            }),
            step => step,
        })
    }

    fn stream_step<'a>(
        &'a self,
        phase: Phase,
        run: impl FnOnce() -> Result<StreamStep<'a>, PluginError>,
    ) -> Result<StreamStep<'a>, PluginError> {
        let mut stopwatch = self.stopwatch(phase);
        Ok(match stopwatch.measure(run)? {
            StreamStep::Wait(future) => StreamStep::wait(Polled { future, stopwatch }),
            step => step,
        })
    }
}

/// The time of one run of a phase. It is counted when this is dropped, also if a wait is given up.
struct Stopwatch<'a> {
    /// `None` for an instance that was not started.
    series: Option<&'a [Histogram; PHASES.len()]>,
    phase: Phase,
    spent: Duration,
}

impl Stopwatch<'_> {
    fn measure<R>(&mut self, run: impl FnOnce() -> R) -> R {
        let begun = Instant::now();
        let result = run();
        self.spent += begun.elapsed();
        result
    }
}

impl Drop for Stopwatch<'_> {
    fn drop(&mut self) {
        if let Some(series) = self.series {
            let worker = this_worker().number();
            series[self.phase as usize].observe(worker, self.spent.as_secs_f64());
        }
    }
}

/// A wait whose polls are measured.
struct Polled<'a, R> {
    future: Pin<Box<dyn Future<Output = R> + Send + 'a>>,
    stopwatch: Stopwatch<'a>,
}

impl<R> Future for Polled<'_, R> {
    type Output = R;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<R> {
        let Self { future, stopwatch } = self.get_mut();
        stopwatch.measure(|| future.as_mut().poll(cx))
    }
}

impl Handler for Timed {
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn phases(&self, defined: Phases) -> Phases {
        self.inner.phases(defined)
    }

    fn start(&self, node: &Arc<Node>) {
        let family = node
            .metrics
            .histogram(NAME, HELP, &["plugin", "phase"], &BOUNDS);
        // The name is this module's alone, so it cannot be in conflict.
        if let Ok(family) = family {
            let phases = PHASES.map(|phase| family.with(&[&self.plugin, phase]));
            self.series.get_or_init(|| phases);
        }
        self.inner.start(node);
    }

    fn traces(&self) -> bool {
        self.inner.traces()
    }

    fn begin_trace(&self, request: &Request<'_>, trace: &mut Trace, node: &Node) {
        self.inner.begin_trace(request, trace, node);
    }

    fn rewrite<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError> {
        self.step(Phase::Rewrite, || self.inner.rewrite(cx, own))
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError> {
        self.step(Phase::Access, || self.inner.access(cx, own))
    }

    fn request_body(
        &self,
        request: &Request<'_>,
        own: OwnSlot<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        self.run(Phase::RequestBody, || {
            self.inner.request_body(request, own, chunk)
        })
    }

    fn response<'a>(
        &'a self,
        cx: ResponseCx<'a, '_>,
        own: OwnSlot<'a>,
    ) -> Result<Step<'a>, PluginError> {
        self.step(Phase::Response, || self.inner.response(cx, own))
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: OwnSlot<'_>,
    ) -> Result<Filtered, PluginError> {
        self.run(Phase::HeaderFilter, || self.inner.header_filter(cx, own))
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: OwnSlot<'_>,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        self.run(Phase::BodyFilter, || self.inner.body_filter(cx, own, chunk))
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: OwnSlot<'_>) {
        self.run(Phase::Log, || self.inner.log(cx, own));
    }

    fn certificate<'a>(&'a self, cx: CertificateCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        self.stream_step(Phase::Certificate, || self.inner.certificate(cx))
    }

    fn preread<'a>(&'a self, cx: StreamCx<'a>) -> Result<StreamStep<'a>, PluginError> {
        self.stream_step(Phase::Preread, || self.inner.preread(cx))
    }

    fn log_stream(&self, cx: &mut EndedStreamCx<'_>) {
        self.run(Phase::LogStream, || self.inner.log_stream(cx));
    }

    fn needs(&self) -> Option<String> {
        self.inner.needs()
    }
}
