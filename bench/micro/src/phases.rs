//! Five plugins that do almost nothing, so that the cost of running plugins can be counted without that of their work.

use crate::fixtures::{build_settings, plugin, ready};
use crate::operation::Operation;
use crate::plans::{context, head};
use model::entities::{Config, Plugin as Configured};
use net::http1::{Limits, ResponseHead};
use plugin::{
    BuildCx, BuildError, HeaderEdits, Implementation, Latencies, LogEntry, Origin, Phases, Plugin,
    PluginDef, PluginError, RequestCx, ResponseCx, Scopes, Sharing, Step,
};
use proxy::plan::{Access, Picked, Walk};
use proxy::snapshot::Snapshot;
use serde_json::json;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

const COUNT: u32 = 1000;

pub(crate) fn operations() -> Vec<Operation> {
    vec![phases("plan/phases/five-plugins")]
}

/// The names of the plugins, in the order in which they run.
const NAMES: [&str; 5] = ["five-1", "five-2", "five-3", "five-4", "five-5"];

static DEFINITIONS: [PluginDef; 5] = [
    define(NAMES[0], 5),
    define(NAMES[1], 4),
    define(NAMES[2], 3),
    define(NAMES[3], 2),
    define(NAMES[4], 1),
];

const fn define(name: &'static str, priority: i32) -> PluginDef {
    PluginDef {
        name,
        priority,
        phases: Phases::ACCESS.with(Phases::HEADER_FILTER).with(Phases::LOG),
        scopes: Scopes::ALL,
        sharing: Sharing::PerInstance,
        implementation: Implementation::Ready(build),
    }
}

fn build(_: &Configured, _: &BuildCx<'_>) -> Result<Arc<dyn Plugin>, BuildError> {
    Ok(Arc::new(Counting(AtomicU64::new(0))))
}

/// Counts its calls.
struct Counting(AtomicU64);

impl Counting {
    fn count(&self) {
        let calls = self.0.load(Ordering::Relaxed);
        self.0.store(calls + 1, Ordering::Relaxed);
    }
}

impl Plugin for Counting {
    fn access<'a>(&'a self, _: &'a mut RequestCx<'_>) -> Result<Step<'a>, PluginError> {
        self.count();
        Ok(Step::Continue)
    }

    fn header_filter(&self, _: &mut ResponseCx<'_>) -> Result<(), PluginError> {
        self.count();
        Ok(())
    }

    fn log(&self, _: &LogEntry<'_>) {
        self.count();
    }
}

/// Returns the definitions of the five plugins, for the settings of a build.
pub(crate) fn definitions() -> impl Iterator<Item = &'static PluginDef> {
    DEFINITIONS.iter()
}

/// Returns the five plugins, configured for all requests.
pub(crate) fn configured() -> Vec<Configured> {
    let numbered = NAMES.into_iter().enumerate();
    let configured = numbered.map(|(number, name)| plugin(name, number, json!({})));
    configured.collect()
}

/// Runs all phases of the five plugins for a request with a response of an upstream.
fn phases(name: &str) -> Operation {
    Operation::repeat(name, COUNT, || {
        let mut settings = build_settings();
        settings.plugins = definitions().collect();
        let config = Config {
            plugins: configured(),
            ..Config::default()
        };
        let built = Snapshot::build(config, 1, None, &settings).expect("the plugins can be built");
        let (head, upstream) = (head(), response_head());
        let mut picked = Picked::default();
        move || {
            let instances = built.instances();
            let mut cx = context(&head);
            let mut walk = Walk::new(&mut picked);
            let access = built.globals.access(instances, &mut cx, &mut walk);
            assert!(ready(access) == Access::Done, "no plugin needs the body");
            assert!(walk.into_answer().is_none(), "no plugin answers");
            let mut filter = ResponseCx {
                request: &cx,
                origin: Origin::Upstream,
                status: upstream.status(),
                upstream: Some(&upstream),
                headers: HeaderEdits::new(),
            };
            picked.header_filter(instances, &mut filter);
            let entry = LogEntry {
                request: &cx,
                status: filter.status,
                upstream_status: Some(upstream.status()),
                started_at: SystemTime::UNIX_EPOCH,
                latencies: Latencies::default(),
                tries: &[],
                request_size: 200,
                response_size: 700,
            };
            picked.log(instances, &entry);
            black_box(cx);
        }
    })
}

fn response_head() -> ResponseHead {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 512\r\n\r\n";
    let parsed = ResponseHead::parse(text.as_bytes(), false, &Limits::default());
    let (head, _) = parsed
        .expect("the head is well formed")
        .expect("the head is whole");
    head
}
