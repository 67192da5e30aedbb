//! Five plugins that do almost nothing, so that the cost of running plugins can be counted without that of their work.

use crate::fixtures::{build_settings, plugin};
use crate::operation::Operation;
use crate::plans::{head, run_access};
use model::entities::{Config, Plugin as Configured};
use net::http1::{Limits, ResponseHead};
use plugin::{
    Answer, BuildCx, BuildError, Filtered, HeaderEdits, Latencies, LogCx, LogEntry, NoNames, Node,
    Origin, Phases, Plugin, PluginDef, PluginError, Request, RequestCx, ResponseCx, Scopes, Step,
};
use proxy::plugins::{Chain, ChainMemory};
use proxy::respond::ResponseSettings;
use proxy::snapshot::Snapshot;
use serde::de::IgnoredAny;
use serde_json::json;
use std::hint::black_box;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const COUNT: u32 = 1000;

pub(crate) fn operations() -> Vec<Operation> {
    vec![
        phases::<()>("plan/phases/five-plugins"),
        phases::<u64>("plan/phases/five-plugins-with-state"),
    ]
}

/// The names of the plugins, in the order in which they run.
const NAMES: [&str; 5] = ["five-1", "five-2", "five-3", "five-4", "five-5"];

/// Counts its calls, in itself and, if its own state is a number, for the request.
struct Counting<Own> {
    calls: AtomicU64,
    own: PhantomData<fn() -> Own>,
}

/// The own state of a plugin.
pub(crate) trait Count: Default + Send + 'static {
    fn count(&mut self);
}

impl Count for () {
    fn count(&mut self) {}
}

impl Count for u64 {
    fn count(&mut self) {
        *self += 1;
    }
}

impl<Own: Count> Counting<Own> {
    fn count(&self, own: &mut Own) {
        let calls = self.calls.load(Ordering::Relaxed);
        self.calls.store(calls + 1, Ordering::Relaxed);
        own.count();
    }
}

impl<Own: Count> Plugin for Counting<Own> {
    type Config = IgnoredAny;
    type Own = Own;

    fn build(_: IgnoredAny, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Ok(Self {
            calls: AtomicU64::new(0),
            own: PhantomData,
        })
    }

    fn access<'a>(
        &'a self,
        _: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        self.count(own);
        Ok(Step::Continue)
    }

    fn header_filter(
        &self,
        _: &mut ResponseCx<'_, '_>,
        own: &mut Own,
    ) -> Result<Filtered, PluginError> {
        self.count(own);
        Ok(Filtered::Continue)
    }

    fn log(&self, _: &mut LogCx<'_, '_>, own: &mut Own) {
        self.count(own);
    }
}

/// Returns the definitions of the five plugins, for the settings of a build.
pub(crate) fn definitions<Own: Count>() -> Vec<Arc<PluginDef>> {
    let phases = Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG);
    let named = NAMES.into_iter().zip([5, 4, 3, 2, 1]);
    let defs = named.map(|(name, priority)| {
        PluginDef::bundled::<Counting<Own>>(name, priority, phases, Scopes::ALL)
    });
    defs.map(Arc::new).collect()
}

/// Returns the five plugins, configured for all requests.
pub(crate) fn configured() -> Vec<Configured> {
    let numbered = NAMES.into_iter().enumerate();
    let configured = numbered.map(|(number, name)| plugin(name, number, json!({})));
    configured.collect()
}

/// Runs all phases of the five plugins for a request with a response of an upstream.
fn phases<Own: Count>(name: &str) -> Operation {
    Operation::repeat(name, COUNT, || {
        let mut settings = build_settings();
        settings.plugins = definitions::<Own>();
        let config = Config {
            plugins: configured(),
            ..Config::default()
        };
        let built = Snapshot::build(config, 1, None, &settings).expect("the plugins can be built");
        let (head, upstream) = (head(), response_head());
        let node = Node::bare().expect("a thread can be started");
        let mut memory = Some(Box::new(ChainMemory::default()));
        let responses = ResponseSettings::default();
        move || {
            let mut request = Request::bare(&head);
            let mut chain = Chain::new(built.instances(), &NoNames, &node);
            chain.use_memory(memory.take().unwrap_or_default());
            run_access(&mut chain, &built, &mut request);
            let mut answer = Answer::new(Origin::Upstream, upstream.status(), HeaderEdits::new());
            let filtered =
                chain.header_filter(&request, Some(&upstream), None, &mut answer, &responses);
            assert!(matches!(filtered, Ok(None)), "no plugin fails or answers");
            let entry = LogEntry {
                status: answer.status,
                origin: answer.origin,
                upstream_status: Some(upstream.status()),
                started_at: SystemTime::UNIX_EPOCH,
                latencies: Latencies::default(),
                tries: &[],
                request_size: 200,
                response_size: 700,
                response_head: &[],
                response_head_size: 0,
                upstream_path: b"/",
                upstream_body: None,
                reason: None,
            };
            chain.log(&request, &entry);
            black_box(&request);
            memory = chain.take_memory();
        }
    })
}

pub(crate) fn response_head() -> ResponseHead {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 512\r\n\r\n";
    let parsed = ResponseHead::parse(text.as_bytes(), false, &Limits::default());
    let (head, _) = parsed
        .expect("the head is well formed")
        .expect("the head is whole");
    head
}
