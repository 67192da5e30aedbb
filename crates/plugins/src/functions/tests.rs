//! Tests of the PDK, by snippets of pre-function.

use crate::pre_function::def;
use crate::testing::case;
use model::EntityKind;
use plugin::testing::{Case, FakeEntities, Upstream};
use plugin::{Instrumentations, Tracing};
use serde_json::{Value, json};
use uuid::Uuid;

const BOB: Uuid = Uuid::from_u128(0xb0b);

/// A snippet that answers with what it has put into `t`.
pub(super) fn shown(code: &str) -> Case {
    let code = format!("local t = {{}} {code} kong.response.exit(200, t)");
    case(def(), json!({"access": [code]}))
}

#[test]
fn a_trusted_peer_tells_what_it_has_received() {
    let code =
        "t.scheme, t.host = kong.request.get_forwarded_scheme(), kong.request.get_forwarded_host()
        t.port, t.path = kong.request.get_forwarded_port(), kong.request.get_forwarded_path()
        t.trusted = kong.ip.is_trusted('127.0.0.9')";
    let ask = |functions: Case| -> Value {
        let call = functions.request("GET /a//b");
        let told = [
            "X-Forwarded-Proto: https",
            "X-Forwarded-Host: me@B.test:81",
            "X-Forwarded-Path: /told",
        ];
        call.lines(&told).run_now().client.json()
    };
    let own =
        json!({"scheme": "http", "host": "a.test", "port": 8000, "path": "/a/b", "trusted": false});
    let told =
        json!({"scheme": "https", "host": "b.test", "port": 81, "path": "/told", "trusted": true});
    let block = "127.0.0.0/8".parse().expect("it is a block");
    assert_eq!(ask(shown(code)), own);
    assert_eq!(ask(shown(code).trusted_ips(vec![block])), told);
}

#[test]
fn the_service_gets_the_changed_request() {
    let code = "local r = kong.service.request
        r.set_path('/a b') r.set_method('PUT') r.set_query({b = {'2', true}, a = 'x y'})
        r.set_header('X-One', 1) r.add_header('X-Two', {'a', 'b'}) r.set_body({n = 1}, 'application/json')";
    let functions = case(def(), json!({"access": [code]}));
    let outcome = functions.request("POST /").body("old").run_now();
    let sent = outcome.sent();
    assert_eq!((&*sent.method, sent.text()), ("PUT", r#"{"n":1}"#));
    assert_eq!(
        (&*sent.path, sent.query.as_deref()),
        ("/a%20b", Some("a=x%20y&b=2&b"))
    );
    assert_eq!(sent.header("x-one"), Some("1"));
    assert_eq!(sent.header("content-type"), Some("application/json"));
}

#[test]
fn a_body_is_read_by_its_type() {
    let functions = shown("t.value, t.error, t.type = kong.request.get_body()");
    let ask = |content_type: &str, body: &'static str| -> Value {
        let call = functions
            .request("POST /")
            .header("Content-Type", content_type);
        call.body(body).run_now().client.json()
    };
    assert_eq!(
        ask("application/json; charset=utf-8", r#"{"a":[1]}"#)["value"],
        json!({"a": [1]})
    );
    assert_eq!(ask("application/json", "1")["error"], "invalid json body");
    let form = ask("application/x-www-form-urlencoded", "a=1&a=2&b");
    assert_eq!(form["value"], json!({"a": ["1", "2"], "b": true}));
    let part = "--B\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--B--\r\n";
    assert_eq!(
        ask("multipart/form-data; boundary=B", part)["value"],
        json!({"a": "1"})
    );
    assert_eq!(
        ask("text/plain", "x")["error"],
        "unsupported content type 'text/plain'"
    );
}

#[test]
fn entities_are_read_and_not_written() {
    let bob = json!({"id": BOB, "username": "bob", "custom_id": null});
    let code = "local c = kong.db.consumers
        t.by_name, t.by_id = c:select_by_username('bob'), kong.client.load_consumer(c:page(10)[1].id)
        t.all = 0 for row in c:each() do t.all = t.all + 1 end
        local _, e = c:insert({username = 'eve'}) t.error = e
        t.none = kong.db.nothing == nil";
    let functions = shown(code).entities(FakeEntities::default().with(EntityKind::Consumers, bob));
    let found: Value = functions.request("GET /").run_now().client.json();
    assert_eq!(found["by_name"], json!({"id": BOB, "username": "bob"}));
    assert_eq!(found["by_id"], found["by_name"]);
    assert_eq!((&found["all"], &found["none"]), (&json!(1), &json!(true)));
    let error = found["error"].as_str().expect("there is an error");
    assert!(
        error.starts_with("[off] cannot create 'consumers' entities"),
        "{error}"
    );
}

#[test]
fn an_authenticated_consumer_is_that_of_later_plugins() {
    let code = format!("kong.client.authenticate({{id = '{BOB}', username = 'bob'}}, {{id = 'x'}})
        t.same = kong.client.get_consumer().username t.credential = kong.client.get_credential().id");
    let outcome = shown(&code).request("GET /").run_now();
    assert_eq!(
        outcome.client.json(),
        json!({"same": "bob", "credential": "x"})
    );
    assert_eq!(outcome.consumer(), Some("bob"));
}

#[test]
fn nothing_follows_the_end_of_a_body() {
    let config = json!({"body_filter": ["kong.response.set_raw_body('mine')"]});
    let upstream = Upstream::new(200).piece("one").piece("two");
    let outcome = case(def(), config)
        .request("GET /")
        .answered(upstream)
        .run_now();
    assert_eq!(outcome.client.text(), "mine");
}

#[test]
fn a_whole_body_is_collected() {
    let code = "local b = kong.response.get_raw_body() if b then kong.response.set_raw_body('[' .. b .. ']') end";
    let upstream = Upstream::new(200).piece("one").piece("two");
    let functions = case(def(), json!({"body_filter": [code]}));
    assert_eq!(
        functions
            .request("GET /")
            .answered(upstream)
            .run_now()
            .client
            .text(),
        "[onetwo]"
    );
}

#[test]
fn a_body_that_is_only_read_is_sent() {
    let code = "local b = kong.response.get_raw_body() if b then kong.ctx.shared.body = b end";
    let upstream = Upstream::new(200).piece("one").piece("two");
    let functions = case(def(), json!({"body_filter": [code]}));
    let outcome = functions.request("GET /").answered(upstream).run_now();
    assert_eq!(outcome.client.text(), "onetwo");
}

#[test]
fn a_response_made_in_header_filter_replaces_the_upstreams() {
    let code = "kong.response.exit(203, {a = 1}) kong.response.set_header('X-After', '1')";
    let functions = case(def(), json!({"header_filter": [code]}));
    let outcome = functions
        .request("GET /")
        .answered(Upstream::new(200).body("theirs"))
        .run_now();
    assert_eq!(
        (outcome.client.status, outcome.client.text()),
        (203, r#"{"a":1}"#)
    );
    assert_eq!(outcome.client.header("x-after"), Some("1"));
}

/// Within a function of C, the end of a request is an error, which code can catch.
#[test]
fn a_response_whose_end_failed_reaches_no_other_request() {
    let exit = "pcall(table.sort, {2, 1}, function() kong.response.exit(200, 'of another') end)";
    let other = json!({"access": [exit], "log": [exit]});
    case(def(), other).request("GET /").run_now();
    let of_next = |config| {
        case(def(), config)
            .request("GET /")
            .answered(Upstream::new(202).body("theirs"))
            .run_now()
    };
    let outcome = of_next(json!({"header_filter": ["local x = 1"]}));
    assert_eq!(
        (outcome.client.status, outcome.client.text()),
        (202, "theirs")
    );
    let outcome = of_next(json!({"access": ["coroutine.yield()"]}));
    assert_eq!(outcome.client.text(), "theirs");
}

#[test]
fn a_status_that_no_response_has_becomes_500() {
    for code in [
        "kong.response.exit(0 / 0)",
        "ngx.exit(0 / 0)",
        "ngx.status = 1 ngx.say('x')",
        "ngx.status = 1000 ngx.say('x')",
        "ngx.status = 65536 + 200 ngx.say('x')",
        "ngx.status = -1 ngx.say('x')",
        "ngx.status = 1 / 0 ngx.say('x')",
    ] {
        let outcome = case(def(), json!({"access": [code]}))
            .request("GET /")
            .run_now();
        assert_eq!(outcome.client.status, 500, "{code}");
    }
}

#[test]
fn a_failed_rewrite_ends_the_request() {
    let config = json!({"rewrite": ["error('x')"], "access": ["kong.response.exit(200)"]});
    assert_eq!(
        case(def(), config).request("GET /").run_now().client.status,
        500
    );
}

#[test]
fn names_that_no_header_may_have_are_ignored() {
    let code = "for _, name in ipairs{'', 'a b', 'a:b', 'a\\r\\nX-Evil'} do kong.response.set_header(name, 'v') end";
    let outcome = shown(code).request("GET /").run_now();
    assert_eq!(outcome.client.header("x-evil"), None);
    assert_eq!(outcome.client.status, 200);
}

#[test]
fn log_fields_must_be_values() {
    let access =
        "kong.log.set_serialize_value('a.b', {1}) kong.log.set_serialize_value('f', tostring)";
    let log = "kong.ctx.shared.ok, kong.ctx.shared.error = pcall(kong.log.serialize)
        assert(not kong.ctx.shared.ok and kong.ctx.shared.error:find('^value must be nil'))";
    let outcome = case(def(), json!({"access": [access], "log": [log]}))
        .request("GET /")
        .run_now();
    assert_eq!(outcome.client.status, 200);
}

#[test]
fn an_exit_keeps_a_content_type_that_was_set_before() {
    let ask = |code: &str| {
        let functions = case(def(), json!({"access": [code]}));
        let outcome = functions.request("GET /").run_now();
        outcome.client.header("content-type").map(str::to_owned)
    };
    let set = "kong.response.set_header('Content-Type', 'a/b') ";
    assert_eq!(
        ask(&format!("{set} kong.response.exit(200, 'x')")).as_deref(),
        Some("a/b")
    );
    assert_eq!(ask(&format!("{set} ngx.say('x')")).as_deref(), Some("a/b"));
    assert_eq!(ask("ngx.say('x')"), None);
}

#[test]
fn additions_to_a_trace_do_not_fail_a_request_and_have_a_size_limit() {
    let code = "local root = kong.tracing.active_span()
        root:set_attribute('nan', 0/0) root:set_attribute('ok', 'yes')
        for i = 1, 8 do
            local span = kong.tracing.start_span('s' .. i)
            span:set_attribute('text', ('x'):rep(60000))
            span:finish()
        end";
    let tracing = Tracing {
        instrumentations: Instrumentations::ALL,
        sampling_rate: 1.0,
    };
    let outcome = (shown(code).tracing(tracing).request("GET /"))
        .state(|state| state.trace.record(Instrumentations::ALL))
        .run_now();
    assert_eq!(outcome.client.status, 200);
    let custom = outcome.state.trace.custom().unwrap();
    let names: Vec<_> = custom.root().attributes.keys().collect();
    assert_eq!(names, ["ok"]);
    assert_eq!(custom.spans().len(), 4);
}

#[test]
fn tracers_of_snippets_record_spans() {
    let code = "local tracer = kong.tracing.new('mine')
        local span = tracer.start_span('a', {span_kind = 3, attributes = {x = 1}})
        tracer.set_active_span(span)
        local child = tracer.start_span('b')
        child:set_attribute('k', 'v') child:add_event('e') child:record_error('no') child:set_status(2) child:finish()
        span:finish()
        t.same, t.parent = child.trace_id == span.trace_id, child.parent_id == span.span_id
        t.kind, t.events, t.status = span.kind, child.events[2].name, child.status
        t.root, t.active = tracer.get_root_span().name, tostring(tracer.active_span())
        t.bad, t.error = pcall(child.set_attribute, child, 1)
        t.sampled = tracer:get_sampling_decision(nil, 0)
        t.name, t.global = tracer.name, kong.tracing.name";
    assert_eq!(
        shown(code).request("GET /").run_now().client.json(),
        json!({
            "same": true, "parent": true, "kind": 3, "events": "exception", "status": 2, "root": "a", "active": "nil",
            "bad": false, "error": "invalid key", "sampled": false, "name": "mine", "global": "noop",
        })
    );
}
