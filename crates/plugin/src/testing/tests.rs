//! Tests of the harness. Their plugin does what its configuration says, and writes its calls to a list that its own
//! state of the request keeps until the log phase.

use super::*;
use crate::def::{
    BuildCx, BuildError, Filtered, Flow, Phases, Plugin, PluginDef, PluginError, Scopes, Step,
};
use crate::log::LogCx;
use crate::request::{Request, RequestCx};
use crate::response::{Chunk, Response, ResponseCx};
use bytes::Bytes;
use model::Value;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::future::{pending, ready};
use std::sync::Arc;
use uuid::Uuid;

/// A plugin that does one thing in one phase.
struct Probe {
    config: Config,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Config {
    /// The phase and the action.
    does: Option<(String, String)>,
    /// The phases of this instance, if not all.
    phases: Option<u8>,
}

#[derive(Default)]
struct Calls(Vec<String>);

impl Probe {
    fn action(&self, phase: &str) -> &str {
        match &self.config.does {
            Some((at, action)) if at == phase => action,
            _ => "",
        }
    }

    fn step<'a>(&'a self, phase: &'static str) -> Result<Step<'a>, PluginError> {
        let response = || Response::new(418, "made").with_header("X-Made", "1");
        Ok(match self.action(phase) {
            "respond" => Step::Respond(response()),
            "exit" => Step::Exit(response()),
            "read" => Step::ReadBody,
            "wait" => Step::wait(ready(Ok(Flow::Respond(response())))),
            "wait forever" => Step::wait_for_client(pending()),
            "fail" => return Err(PluginError::caused_by("it failed", std::fmt::Error)),
            _ => Step::Continue,
        })
    }
}

impl Plugin for Probe {
    type Config = Config;
    type Own = Calls;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        match config.phases {
            Some(0) => Err(BuildError::field("phases", "none")),
            _ => Ok(Self { config }),
        }
    }

    fn phases(&self, defined: Phases) -> Phases {
        match self.config.phases {
            Some(1) => Phases::ACCESS.with(Phases::LOG),
            _ => defined,
        }
    }

    fn rewrite<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Calls,
    ) -> Result<Step<'a>, PluginError> {
        assert!(cx.request.route.is_none());
        own.0.push("rewrite".to_owned());
        self.step("rewrite")
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        own: &'a mut Calls,
    ) -> Result<Step<'a>, PluginError> {
        let name = cx.configured.name(cx.request);
        let name = name.and_then(|name| name.instance_name);
        own.0.push(format!("access {}", name.unwrap_or_default()));
        match (self.action("access"), cx.request.body_bytes()) {
            ("read", Some(body)) => own.0.push(format!("body {body:?}")),
            ("headers", _) => {
                cx.state.headers.set("X-Early", "1");
                cx.request.upstream.headers.set("X-Up", "2");
                cx.request.upstream.query = Some(b"y=2".to_vec());
            }
            _ => return self.step("access"),
        }
        Ok(Step::Continue)
    }

    fn request_body(
        &self,
        _: &Request<'_>,
        own: &mut Calls,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        own.0
            .push(format!("request_body {:?} {}", chunk.data, chunk.last));
        match self.action("request_body") {
            "fail" => Err(PluginError::new("it failed")),
            _ => Ok(()),
        }
    }

    fn response<'a>(
        &'a self,
        cx: ResponseCx<'a, '_>,
        own: &'a mut Calls,
    ) -> Result<Step<'a>, PluginError> {
        own.0
            .push(format!("response {:?}", cx.upstream_body.expect("a body")));
        self.step("response")
    }

    fn header_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Calls,
    ) -> Result<Filtered, PluginError> {
        own.0.push(format!("header_filter {}", cx.answer.status));
        match self.action("header_filter") {
            "fail" => Err(PluginError::new("it failed")),
            "replace" => Ok(Filtered::Replace(Response::new(203, "other"))),
            "no length" => {
                cx.answer.headers.remove("Content-Length");
                Ok(Filtered::Continue)
            }
            _ => Ok(Filtered::Continue),
        }
    }

    fn body_filter(
        &self,
        cx: &mut ResponseCx<'_, '_>,
        own: &mut Calls,
        chunk: &mut Chunk,
    ) -> Result<(), PluginError> {
        let trailers = cx.answer.trailers.len();
        own.0.push(format!(
            "body_filter {:?} {} {trailers}",
            chunk.data, chunk.last
        ));
        if chunk.last && self.config.does.is_some() {
            chunk.data = Bytes::from_static(b"!");
        }
        Ok(())
    }

    fn log(&self, cx: &mut LogCx<'_, '_>, own: &mut Calls) {
        own.0.push(format!("log {}", cx.entry.status));
        let calls = own.0.iter().map(|call| Value::from(call.as_str()));
        let name = cx
            .configured
            .name(cx.request)
            .expect("the plugin has an id");
        let name = name.instance_name.unwrap_or("calls");
        cx.state.shared.insert(name, Value::Array(calls.collect()));
    }
}

const ALL: Phases = Phases::REWRITE
    .with(Phases::ACCESS)
    .with(Phases::REQUEST_BODY)
    .with(Phases::HEADER_FILTER)
    .with(Phases::BODY_FILTER)
    .with(Phases::LOG);

fn probe(name: &'static str, priority: i32, phases: Phases) -> PluginDef {
    PluginDef::bundled::<Probe>(name, priority, phases, Scopes::ALL)
}

fn case(phases: Phases, phase: &str, action: &str) -> Case {
    Case::complete(probe("probe", 1, phases), json!({"does": [phase, action]}))
}

fn calls(outcome: &Outcome) -> Vec<&str> {
    calls_of(outcome, "calls")
}

fn calls_of<'o>(outcome: &'o Outcome, instance: &str) -> Vec<&'o str> {
    let calls = outcome.state.shared.get(instance);
    let calls = calls.and_then(Value::as_array).unwrap_or_default();
    calls.iter().filter_map(Value::as_str).collect()
}

#[test]
fn the_phases_run_in_order_and_the_end_of_a_body_is_a_call_of_its_own() {
    let case = Case::complete(probe("probe", 1, ALL), json!({}));
    let upstream = Upstream::new(201).header("X-Up", "a").piece("c").piece("d");
    let outcome = case
        .request("POST /a?x=1")
        .pieces(["a", "b"])
        .answered(upstream.trailer("X-End", "e"))
        .run_now();
    let wanted = [
        "rewrite",
        "access ",
        "request_body b\"a\" false",
        "request_body b\"b\" false",
        "request_body b\"\" true",
        "header_filter 201",
        "body_filter b\"c\" false 0",
        "body_filter b\"d\" false 0",
        "body_filter b\"\" true 1",
        "log 201",
    ];
    assert_eq!(calls(&outcome), wanted);
    let sent = outcome.sent();
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/a"));
    assert_eq!((sent.query.as_deref(), sent.text()), (Some("x=1"), "ab"));
    assert_eq!(outcome.client.status, 201);
    assert_eq!(outcome.client.pieces, ["c", "d"]);
    assert_eq!(outcome.client.header("x-up"), Some("a"));
    assert_eq!(outcome.client.trailers.get("x-end"), Some("e"));
    assert!(!outcome.client.is_cut);
}

#[test]
fn a_response_of_a_plugin_is_filtered_and_logged_by_all() {
    let later = probe("later", 0, ALL);
    let case = case(ALL, "access", "respond")
        .and_complete(later, json!({}))
        .named("later");
    let outcome = case.request("GET /").run_now();
    assert!(outcome.upstream.is_none());
    assert_eq!(outcome.answered_by.as_deref(), Some("probe"));
    assert_eq!(outcome.client.status, 418);
    assert_eq!(outcome.client.header("x-made"), Some("1"));
    assert_eq!(outcome.client.text(), "made!");
    assert_eq!(outcome.log.origin, crate::Origin::Plugin);
    let wanted = [
        "rewrite",
        "header_filter 418",
        "body_filter b\"made\" false 0",
        "body_filter b\"!\" true 0",
        "log 418",
    ];
    assert_eq!(calls_of(&outcome, "later"), wanted);
}

#[test]
fn after_an_exit_no_further_instance_is_chosen() {
    let later = probe("later", 0, ALL);
    let case = case(ALL, "access", "exit")
        .and_complete(later, json!({}))
        .named("later");
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.client.status, 418);
    assert_eq!(outcome.log.origin, crate::Origin::Gateway);
    assert_eq!(calls_of(&outcome, "later"), [""; 0]);
}

#[test]
fn an_end_in_rewrite_is_filtered_by_the_global_instances() {
    let route = probe("route", 0, ALL);
    let case = case(ALL, "rewrite", "respond");
    let case = case
        .and_complete(route, json!({}))
        .on_route()
        .named("route");
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.client.text(), "made!");
    assert_eq!(calls_of(&outcome, "route"), [""; 0]);
}

#[test]
fn a_body_is_read_when_a_plugin_asks_for_it() {
    let read = |call: Call<'_>| {
        let outcome = call.run_now();
        let found = calls(&outcome).join(", ");
        (found, outcome.client.status)
    };
    let case = case(Phases::ACCESS.with(Phases::LOG), "access", "read");
    let whole = read(case.request("POST /").pieces(["a", "b"]));
    assert_eq!(whole.0, "access , access , body b\"ab\", log 200");
    let none = read(case.request("GET /"));
    assert_eq!(none.0, "access , access , body b\"\", log 200");
    // A plugin that asks again gets an error.
    let large = read(case.request("POST /").body("ab").too_large());
    assert_eq!(large, ("access , access , log 500".to_owned(), 500));
    let grpc = read(case.request("POST /").body("ab").grpc());
    assert_eq!(grpc.1, 500);
}

#[test]
fn a_wait_is_awaited_and_a_wait_for_the_client_ends_with_it() {
    let waits = case(ALL, "access", "wait");
    assert_eq!(waits.request("GET /").run_now().client.status, 418);
    let forever = case(ALL, "access", "wait forever");
    let outcome = forever.request("GET /").client_leaves().run_now();
    assert_eq!((outcome.client.status, outcome.log.status), (0, 499));
    assert_eq!(calls(&outcome), ["rewrite", "access ", "log 499"]);
}

#[test]
fn a_failure_in_access_is_a_response_with_status_500() {
    for phase in ["rewrite", "access", "request_body"] {
        let case = case(ALL, phase, "fail");
        let outcome = case.request("POST /").body("a").run_now();
        assert_eq!(outcome.client.status, 500, "{phase}");
        assert_eq!(outcome.failures.len(), 1);
        assert_eq!(outcome.failures[0].phase, phase);
        assert!(outcome.upstream.is_none());
    }
    let outcome = case(ALL, "access", "fail").request("GET /").run_now();
    assert_eq!(
        outcome.failures[0].error,
        "it failed: an error occurred when formatting an argument"
    );
}

#[test]
fn a_whole_response_may_be_replaced() {
    let phases = ALL.with(Phases::RESPONSE);
    let upstream = || Upstream::new(200).piece("a").piece("b");
    let passes = case(phases, "response", "");
    let outcome = passes.request("GET /").answered(upstream()).run_now();
    assert_eq!(outcome.client.pieces, ["ab", "!"]);
    assert!(calls(&outcome).contains(&"response b\"ab\""));
    let replaces = case(phases, "response", "respond");
    let outcome = replaces.request("GET /").answered(upstream()).run_now();
    assert_eq!(outcome.client.text(), "made!");
    assert_eq!(outcome.client.status, 418);
    assert_eq!(outcome.log.upstream_body.as_deref(), Some(&b"ab"[..]));
    // gRPC is not read into memory.
    let outcome = replaces
        .request("POST /")
        .grpc()
        .answered(upstream())
        .run_now();
    assert_eq!(outcome.client.pieces, ["a", "b", "!"]);
}

#[test]
fn a_filter_that_changes_the_length_must_have_removed_it() {
    let upstream = || Upstream::new(200).body("a");
    let keeps = case(ALL, "header_filter", "");
    assert!(
        keeps
            .request("GET /")
            .answered(upstream())
            .run_now()
            .client
            .is_cut
    );
    let removes = case(ALL, "header_filter", "no length");
    let client = removes
        .request("GET /")
        .answered(upstream())
        .run_now()
        .client;
    assert!(!client.is_cut);
    assert_eq!((client.text(), client.length), ("a!", None));
}

#[test]
fn a_response_that_breaks_off_has_no_end() {
    let upstream = || Upstream::new(200).piece("a").breaks_off();
    let streams = case(ALL, "header_filter", "");
    let outcome = streams.request("GET /").answered(upstream()).run_now();
    assert!(outcome.client.is_cut);
    assert_eq!(outcome.client.pieces, ["a"]);
    assert!(!calls(&outcome).iter().any(|call| call.contains("true")));
    let whole = case(ALL.with(Phases::RESPONSE), "response", "");
    let outcome = whole.request("GET /").answered(upstream()).run_now();
    assert_eq!((outcome.client.status, outcome.client.is_cut), (502, false));
}

#[test]
fn a_header_filter_may_replace_the_response_or_fail() {
    let replaces = case(ALL, "header_filter", "replace");
    let upstream = Upstream::new(200).header("X-Kept", "1").body("a");
    let outcome = replaces.request("GET /").answered(upstream).run_now();
    assert_eq!(
        (outcome.client.status, outcome.client.text()),
        (203, "other!")
    );
    assert_eq!(outcome.client.header("x-kept"), Some("1"));
    let fails = case(ALL, "header_filter", "fail");
    let outcome = fails.request("GET /").run_now();
    assert!(outcome.client.is_cut);
    assert_eq!(outcome.failures[0].phase, "header_filter");
}

#[test]
fn responses_without_a_body_are_not_filtered() {
    let case = Case::complete(probe("probe", 1, ALL), json!({}));
    for (line, status) in [("HEAD /", 200), ("GET /", 204), ("GET /", 304)] {
        let outcome = case.request(line).answered(Upstream::new(status)).run_now();
        let wanted = format!("header_filter {status}");
        assert_eq!(calls(&outcome)[2..], [wanted, format!("log {status}")]);
    }
}

#[test]
fn changes_of_a_plugin_reach_the_upstream_and_the_client() {
    let case = case(Phases::ACCESS, "access", "headers");
    let upstream = Upstream::new(200).header("X-Early", "0");
    let outcome = case
        .request("GET /?x=1")
        .header("x-up", "1")
        .answered(upstream)
        .run_now();
    assert_eq!(outcome.sent().query.as_deref(), Some("y=2"));
    assert_eq!(
        outcome.sent().headers.all("x-up").collect::<Vec<_>>(),
        ["2"]
    );
    let early = outcome.client.headers.all("x-early");
    assert_eq!(early.collect::<Vec<_>>(), ["1", "0"]);
}

#[test]
fn a_failing_upstream_is_a_response_of_the_gateway() {
    let case = Case::complete(probe("probe", 1, ALL), json!({}));
    let outcome = case.request("GET /").upstream_fails(502).run_now();
    assert_eq!(
        (outcome.client.status, outcome.log.upstream_status),
        (502, None)
    );
    assert_eq!(outcome.log.origin, crate::Origin::Gateway);
    assert_eq!(calls(&outcome)[2], "header_filter 502");
}

#[test]
fn the_first_instance_whose_scope_contains_the_request_runs() {
    let nora = Uuid::from_u128(7);
    let def: Arc<PluginDef> = probe("probe", 1, ALL).into();
    let case = Case::complete(def.clone(), json!({"phases": 1}))
        .for_consumer(nora)
        .named("nora")
        .and_complete(def.clone(), json!({}))
        .on_route()
        .on_service()
        .named("route")
        .and_complete(def, json!({}))
        .named("global");
    let of_nora = case.request("GET /").consumer(nora, "nora").run_now();
    // The instance of the consumer has fewer phases.
    assert_eq!(
        calls_of(&of_nora, "nora"),
        ["rewrite", "access nora", "log 200"]
    );
    let of_route = case.request("GET /").run_now();
    assert_eq!(calls_of(&of_route, "route")[1], "access route");
    let elsewhere = case.request("GET /").without_service().run_now();
    assert_eq!(calls_of(&elsewhere, "global")[1], "access global");
}

#[test]
fn plugins_run_by_priority_and_name() {
    let case = Case::complete(
        probe("a", 1, Phases::ACCESS),
        json!({"does": ["access", "exit"]}),
    )
    .and_complete(
        probe("b", 1, Phases::ACCESS),
        json!({"does": ["access", "exit"]}),
    )
    .and_complete(probe("c", 2, Phases::ACCESS), json!({}));
    let outcome = case.request("GET /").run_now();
    assert_eq!(outcome.answered_by.as_deref(), Some("b"));
}

#[test]
fn entities_are_found_by_id_and_by_unique_fields_until_they_are_removed() {
    use crate::request::Consumer;
    use model::EntityKind;
    let nora = Uuid::from_u128(7);
    let entities = FakeEntities::default()
        .with(
            EntityKind::Consumers,
            json!({"id": nora, "username": "nora"}),
        )
        .failing("broken");
    let entities: &dyn crate::Entities = &entities;
    let found: Option<Arc<Consumer>> = entities.by_unique("username", "nora").expect("readable");
    assert_eq!(found.expect("found").id.0, nora);
    assert!(
        entities
            .by_id::<Consumer>(nora)
            .expect("readable")
            .is_some()
    );
    assert!(
        entities
            .by_unique::<Consumer>("username", "broken")
            .is_err()
    );
    let shown = entities
        .object(EntityKind::Consumers, nora)
        .expect("readable");
    assert_eq!(shown.expect("found").str("username"), Some("nora"));
}

#[test]
fn entities_are_found_by_what_they_reference() {
    use crate::Entity;
    #[derive(serde::Deserialize)]
    struct Owned {
        id: Uuid,
    }
    impl Entity for Owned {
        const KIND: model::EntityKind = model::EntityKind::new(60);
    }
    let owned =
        |number: u128, owner: Uuid| json!({"id": Uuid::from_u128(number), "owner": {"id": owner}});
    let owner = Uuid::from_u128(7);
    let other = Uuid::from_u128(8);
    let entities = FakeEntities::default()
        .with(Owned::KIND, owned(3, owner))
        .with(Owned::KIND, owned(2, other))
        .with(Owned::KIND, owned(1, owner))
        .failing(other);
    let entities: &dyn crate::Entities = &entities;
    let ids = |owner| {
        let found = entities.children::<Owned>("owner", owner);
        found.map(|found| found.iter().map(|one| one.id.as_u128()).collect::<Vec<_>>())
    };
    assert_eq!(ids(owner).expect("readable"), [1, 3]);
    assert_eq!(ids(Uuid::from_u128(9)).expect("readable"), []);
    assert!(ids(other).is_err());
}

#[test]
fn the_clock_of_the_node_stands_still_until_it_is_advanced() {
    let case = Case::complete(probe("probe", 1, ALL), json!({}));
    let before = case.request("GET /").run_now().log.started_at;
    assert_eq!(case.request("GET /").run_now().log.started_at, before);
    let minute = std::time::Duration::from_secs(60);
    case.node().clock.advance(minute);
    let after = case.request("GET /").run_now().log.started_at;
    assert_eq!(after, before + minute);
    // A later case may run on the node, as after a change of the configuration.
    let next = Case::complete(probe("probe", 1, ALL), json!({})).on(case.node().clone());
    assert_eq!(next.request("GET /").run_now().log.started_at, after);
}

#[test]
fn a_refused_configuration_is_explained() {
    let def = || probe("probe", 1, ALL);
    let refused = |config: Json| {
        let config = serde_json::from_value(config).expect("JSON is a value");
        let (identity, life) = Default::default();
        let cx = BuildCx {
            identity: &identity,
            lua: &Default::default(),
            life: &life,
        };
        super::case::build(&def(), &config, &cx).err()
    };
    assert_eq!(
        refused(json!({"phases": 0})).as_deref(),
        Some("phases: none")
    );
    let unknown = refused(json!({"else": 0})).expect("refused");
    assert!(unknown.contains("unknown field"), "{unknown}");
}
