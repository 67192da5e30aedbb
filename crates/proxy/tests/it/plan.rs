//! Tests of the choice of plugin instances, compared with results recorded from Kong, and of the walk over a plan.

use crate::fixture::{Context, access_of, context, head, ready, run_access, with_chain};
use model::entities::{Consumer, ConsumerId, RouteId, ServiceId};
use plugin::trace::{DebugRequest, Decision, TraceId};
use plugin::{
    BuildCx, BuildError, Flow, LogCx, LogEntry, Origin, Phases, Plugin, PluginDef, PluginError,
    RequestBody, RequestCx, Response, ResponseBody, Scope, Scopes, Step,
};
use proxy::plugins::{Access, Instance, Instances, Plan, Planner, Plans, ScopeTable, Scoped};
use serde::de::IgnoredAny;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use uuid::Uuid;

const ACCESS: Phases = Phases::ACCESS;
const ACCESS_AND_LOG: Phases = Phases::ACCESS.with(Phases::LOG);

/// The action of a test plugin in the access phase.
enum Act {
    Pass,
    Authenticate(Uuid),
    Answer,
    /// Ends the request at once.
    Exit,
    Fail,
    Wait,
    /// Reads the body.
    Read,
    /// Leaves the request.
    Leave,
    /// Reads the body, and leaves the request then.
    ReadAndLeave,
}

struct Probe {
    label: String,
    act: Act,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Probe {
    fn note(&self, phase: &str) {
        let call = format!("{phase} {}", self.label);
        self.calls
            .lock()
            .expect("no test thread panicked")
            .push(call);
    }
}

impl Plugin for Probe {
    type Config = IgnoredAny;
    type Own = u32;

    fn build(_: IgnoredAny, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        Err(BuildError::Config(
            "probes are made by the tests".to_owned(),
        ))
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        calls: &'a mut u32,
    ) -> Result<Step<'a>, PluginError> {
        *calls += 1;
        match self.act {
            Act::Read | Act::ReadAndLeave if matches!(cx.request.body, RequestBody::Unread) => {
                self.note("asks");
                return Ok(Step::ReadBody);
            }
            Act::Read => self.note(&format!("call {calls}")),
            _ => self.note("access"),
        }
        match self.act {
            Act::Pass | Act::Read => Ok(Step::Continue),
            Act::Leave | Act::ReadAndLeave => Ok(Step::Leave),
            Act::Authenticate(id) => {
                cx.state.consumer = Some(Arc::new(consumer(id)));
                Ok(Step::Continue)
            }
            Act::Answer => Ok(Step::Respond(Response::message(418, "tea"))),
            Act::Exit => Ok(Step::Exit(Response::message(418, "tea"))),
            Act::Fail => Err(PluginError::new("broken")),
            Act::Wait => Ok(Step::wait(async move {
                self.note("waited");
                cx.request.upstream.headers.set("X-Waited", "1");
                Ok(Flow::Respond(Response::message(418, "tea")))
            })),
        }
    }

    fn log(&self, _: &mut LogCx<'_, '_>, _: &mut u32) {
        self.note("log");
    }
}

fn consumer(id: Uuid) -> Consumer {
    Consumer {
        id: ConsumerId(id),
        username: None,
        custom_id: None,
    }
}

/// Plugin instances for a plan, and the calls that they have recorded.
#[derive(Default)]
struct Bench {
    instances: Instances,
    scoped: Vec<Scoped>,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Bench {
    fn add(&mut self, order: u16, phases: Phases, label: &str, act: Act, scope: Scope) {
        let probe = Arc::new(Probe {
            label: label.to_owned(),
            act,
            calls: self.calls.clone(),
        });
        let def = Arc::new(PluginDef::bundled::<Probe>("probe", 0, phases, Scopes::ALL));
        let instance = self
            .instances
            .push(Instance::new(probe, def, phases, Arc::default()));
        self.scoped.push(Scoped {
            order,
            scope,
            instance,
        });
    }

    /// Returns the plan for requests with this route and service. Also returns the instances, to which building the
    /// plan has added the layers of consumers.
    fn plan(&self, route: Option<RouteId>, service: Option<ServiceId>) -> (Arc<Plan>, Instances) {
        let mut instances = self.instances.clone();
        let places = ScopeTable::new(&mut instances, &self.scoped);
        let mut plans = Plans::default();
        let plan = Planner::new(&instances, &places, &mut plans).plan(route, service);
        (plan, instances)
    }

    fn globals(&self) -> Arc<Plan> {
        self.plan(None, None).0
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().expect("no test thread panicked").clone()
    }

    /// Runs the access phase, and returns the response's status, the calls, and whether an instance with a log phase
    /// was picked.
    fn run(
        &self,
        route: Option<Uuid>,
        service: Option<Uuid>,
        with: Option<Uuid>,
    ) -> (Option<u16>, Vec<String>, bool) {
        let (plan, instances) = self.plan(route.map(RouteId), service.map(ServiceId));
        let request = head(&["GET / HTTP/1.1"]);
        let mut cx = context(&request, "");
        cx.state.consumer = with.map(|id| Arc::new(consumer(id)));
        let (answer, logs) = with_chain(&instances, &mut cx, |chain, request| {
            let answer = access_of(chain, &plan, request);
            (answer, chain.has(Phases::LOG))
        });
        (answer.map(|answer| answer.status), self.calls(), logs)
    }
}

/// Converts an id of the test vectors to a UUID. Such an id is a text of at most 16 bytes.
fn id(value: &Value) -> Option<Uuid> {
    let name = value.as_str()?;
    let mut bytes = [0; 16];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    Some(Uuid::from_bytes(bytes))
}

#[test]
fn the_most_specific_instance_applies_as_in_kong() {
    let text = include_str!("../data/plugin-scope-vectors.json");
    let vectors: Value = serde_json::from_str(text).expect("the vectors are JSON");
    let cases = vectors["cases"].as_array().expect("the vectors are a list");
    assert_eq!(cases.len(), 76);
    for case in cases {
        let mut bench = Bench::default();
        for one in case["configured"].as_array().expect("instances are a list") {
            let scope = Scope {
                route: id(&one["route"]).map(RouteId),
                service: id(&one["service"]).map(ServiceId),
                consumer: id(&one["consumer"]).map(ConsumerId),
            };
            let label = one["label"].as_str().expect("an instance has a label");
            bench.add(0, ACCESS, label, Act::Pass, scope);
        }
        let request = &case["request"];
        let (_, calls, _) = bench.run(
            id(&request["route"]),
            id(&request["service"]),
            id(&request["consumer"]),
        );
        let wanted: Vec<String> = case["applies"]
            .as_str()
            .map(|label| format!("access {label}"))
            .into_iter()
            .collect();
        assert_eq!(calls, wanted, "{case}");
    }
}

fn for_consumer(id: Uuid) -> Scope {
    Scope {
        consumer: Some(ConsumerId(id)),
        ..Scope::default()
    }
}

#[test]
fn only_plugins_after_the_authentication_see_the_consumer() {
    let nora = Uuid::from_u128(7);
    let mut bench = Bench::default();
    for (order, label) in [(1, "early"), (3, "late")] {
        bench.add(
            order,
            ACCESS,
            &format!("{label} for all"),
            Act::Pass,
            Scope::default(),
        );
        bench.add(
            order,
            ACCESS,
            &format!("{label} for nora"),
            Act::Pass,
            for_consumer(nora),
        );
    }
    bench.add(2, ACCESS, "auth", Act::Authenticate(nora), Scope::default());
    let (answer, calls, _) = bench.run(None, None, None);
    assert_eq!(answer, None);
    assert_eq!(
        calls,
        [
            "access early for all",
            "access auth",
            "access late for nora"
        ]
    );
}

#[test]
fn after_an_answer_later_plugins_only_log() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS, "answers", Act::Answer, Scope::default());
    bench.add(2, ACCESS_AND_LOG, "logs", Act::Pass, Scope::default());
    let (answer, calls, logs) = bench.run(None, None, None);
    assert_eq!(answer, Some(418));
    assert_eq!(calls, ["access answers"]);
    assert!(logs);
}

#[test]
fn after_an_immediate_end_later_plugins_are_not_chosen() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS, "ends", Act::Exit, Scope::default());
    bench.add(2, ACCESS_AND_LOG, "logs", Act::Pass, Scope::default());
    let (answer, calls, logs) = bench.run(None, None, None);
    assert_eq!(answer, Some(418));
    assert_eq!(calls, ["access ends"]);
    assert!(!logs);
}

#[test]
fn a_failing_plugin_ends_the_request_with_kongs_500() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS, "fails", Act::Fail, Scope::default());
    bench.add(2, ACCESS, "after", Act::Pass, Scope::default());
    let plan = bench.globals();
    let request = head(&["GET / HTTP/1.1"]);
    let mut cx = context(&request, "");
    let answer = run_access(&plan, &bench.instances, &mut cx);
    let answer = answer.expect("the failing plugin ends the request");
    assert_eq!(answer.status, 500);
    let ResponseBody::Error(Some(message)) = answer.body else {
        panic!("the body is not an error, whose format depends on the client");
    };
    assert_eq!(message, "An unexpected error occurred");
}

/// Returns the calls before the access phase pauses for the body, or `None` if it does not pause.
fn calls_before_the_body(bench: &Bench) -> Option<Vec<String>> {
    let plan = bench.globals();
    let request = head(&["GET / HTTP/1.1"]);
    let mut cx: Context<'_> = context(&request, "");
    cx.request.body = RequestBody::Unread;
    with_chain(&bench.instances, &mut cx, |chain, request| {
        let stays = &mut |_: &mut std::task::Context<'_>| Poll::Pending;
        match ready(chain.access(&plan, request, stays)) {
            Access::Done(_) => None,
            Access::NeedsBody => {
                let before = bench.calls();
                request.body = RequestBody::Whole("body".into());
                let rest = ready(chain.access(&plan, request, stays));
                assert!(matches!(rest, Access::Done(None)), "{rest:?}");
                Some(before)
            }
            Access::ClientGone => panic!("the client stays"),
        }
    })
}

#[test]
fn the_body_is_requested_just_before_the_first_plugin_that_reads_it() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS, "first", Act::Pass, Scope::default());
    bench.add(2, ACCESS, "reads", Act::Read, Scope::default());
    bench.add(3, ACCESS, "reads too", Act::Read, Scope::default());
    let before = calls_before_the_body(&bench).expect("the body is read");
    assert_eq!(before, ["access first", "asks reads"]);
    // The second call has the own state of the first.
    let calls = bench.calls();
    assert_eq!(calls[2..], ["call 2 reads", "call 1 reads too"]);
}

#[test]
fn the_body_is_not_requested_after_a_refusal_or_for_a_reader_of_another_consumer() {
    let mut refused = Bench::default();
    refused.add(1, ACCESS, "answers", Act::Answer, Scope::default());
    refused.add(2, ACCESS, "reads", Act::Read, Scope::default());
    assert_eq!(calls_before_the_body(&refused), None);
    let mut other = Bench::default();
    let nora = for_consumer(Uuid::from_u128(7));
    other.add(1, ACCESS, "reads", Act::Read, nora);
    assert_eq!(calls_before_the_body(&other), None);
}

/// Else a phase that nobody has any more would cost the request something.
#[test]
fn the_phases_of_a_plugin_that_leaves_end() {
    for (body, act) in [
        (RequestBody::Whole("body".into()), Act::Leave),
        (RequestBody::Unread, Act::ReadAndLeave),
    ] {
        let mut bench = Bench::default();
        bench.add(1, ACCESS_AND_LOG, "stays", Act::Pass, Scope::default());
        let whole = ACCESS_AND_LOG.with(Phases::RESPONSE);
        bench.add(2, whole, "leaves", act, Scope::default());
        let plan = bench.globals();
        let request = head(&["GET / HTTP/1.1"]);
        let mut cx = context(&request, "");
        cx.request.body = body;
        with_chain(&bench.instances, &mut cx, |chain, request| {
            let stays = &mut |_: &mut std::task::Context<'_>| Poll::Pending;
            while let Access::NeedsBody = ready(chain.access(&plan, request, stays)) {
                assert!(chain.has(Phases::RESPONSE));
                request.body = RequestBody::Whole("body".into());
            }
            assert!(chain.has(Phases::LOG) && !chain.has(Phases::RESPONSE));
        });
    }
}

#[test]
fn a_plugin_may_wait_and_then_answer() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS, "slow", Act::Wait, Scope::default());
    bench.add(2, ACCESS, "after", Act::Pass, Scope::default());
    let (answer, calls, _) = bench.run(None, None, None);
    assert_eq!(answer, Some(418));
    assert_eq!(calls, ["access slow", "waited slow"]);
}

#[test]
fn early_errors_are_logged_by_global_plugins_only() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS_AND_LOG, "global", Act::Pass, Scope::default());
    bench.add(
        2,
        ACCESS_AND_LOG,
        "for nora",
        Act::Pass,
        for_consumer(Uuid::from_u128(7)),
    );
    let route = Scope {
        route: Some(RouteId(Uuid::from_u128(1))),
        ..Scope::default()
    };
    bench.add(3, ACCESS_AND_LOG, "on a route", Act::Pass, route);
    let plan = bench.globals();
    let request = head(&["GET / HTTP/1.1"]);
    let mut cx = context(&request, "");
    let entry = LogEntry {
        status: 404,
        origin: Origin::Gateway,
        upstream_status: None,
        started_at: std::time::SystemTime::UNIX_EPOCH,
        latencies: plugin::Latencies::default(),
        tries: &[],
        request_size: 0,
        response_size: 0,
        response_head: &[],
        response_head_size: 0,
        upstream_path: b"",
        upstream_body: None,
        reason: None,
    };
    with_chain(&bench.instances, &mut cx, |chain, request| {
        chain.pick_defaults(&plan);
        chain.log(request, &entry);
    });
    assert_eq!(bench.calls(), ["log global"]);
}

#[test]
fn equal_plans_are_one_object() {
    let mut bench = Bench::default();
    bench.add(1, ACCESS, "global", Act::Pass, Scope::default());
    bench.add(
        2,
        ACCESS,
        "for nora",
        Act::Pass,
        for_consumer(Uuid::from_u128(7)),
    );
    let places = ScopeTable::new(&mut bench.instances, &bench.scoped);
    let mut plans = Plans::default();
    let mut planner = Planner::new(&bench.instances, &places, &mut plans);
    let one = planner.plan(Some(RouteId(Uuid::from_u128(1))), None);
    let two = planner.plan(Some(RouteId(Uuid::from_u128(2))), None);
    assert!(Arc::ptr_eq(&one, &two));
    assert_eq!(plans.len(), 1);
    plans.release(&one);
    plans.release(&two);
    assert!(plans.is_empty());
}

/// The timings of a request debug go on, but the second pass decides anew.
#[test]
fn a_decision_about_a_trace_ends_with_an_internal_redirect() {
    let head = head(&["GET / HTTP/1.1"]);
    let mut cx = context(&head, "");
    let trace = &mut cx.state.trace;
    trace.debug = Some(DebugRequest {
        is_local: true,
        logs: false,
        contact: None,
        headed: None,
    });
    trace.decision = Some(Decision {
        trace: TraceId {
            number: 1,
            is_short: false,
        },
        is_foreign: false,
        parent: None,
        format: None,
        is_told: false,
        debug: false,
        root: 1,
        last_try: 2,
        sampled: true,
        is_early: false,
    });
    with_chain(&Instances::default(), &mut cx, |chain, _| {
        assert!(chain.restart("/other".into()));
    });
    assert!(cx.state.trace.debug.is_some());
    assert_eq!(cx.state.trace.decision, None);
}
