//! Tests of the request side of the PDK, by snippets of pre-function.

use super::tests::shown;
use crate::pre_function::def;
use crate::testing::case;
use model::EntityKind;
use plugin::testing::{Case, FakeEntities, SERVICE, Upstream};
use serde_json::{Value, json};

fn ask(functions: &Case, line: &str) -> Value {
    functions.request(line).run_now().client.json()
}

fn ask_with(functions: &Case, content_type: &str, body: String) -> Value {
    let call = functions.request("POST /");
    let call = call.header("Content-Type", content_type).body(body);
    call.run_now().client.json()
}

#[test]
fn a_body_beyond_the_buffer_needs_an_allowed_size() {
    let code = "local function get(max)
          local body, err = kong.request.get_raw_body(max)
          t[#t + 1] = body and #body or err
        end
        get() get(-1) get(0) get(20000) get(19999)";
    let functions = shown(code);
    let all = |size: u64| json!([size, size, size, size, size]);
    // nginx's buffer is a quarter larger if the length is known.
    for size in [0, 8193, 10239] {
        let body = "a".repeat(size as usize);
        assert_eq!(ask_with(&functions, "text/plain", body), all(size));
    }
    let large = "request body did not fit into client body buffer, consider raising 'client_body_buffer_size'";
    let too_big = "request body file too big: 20000 > 19999";
    let expected = json!([large, large, 20000, 20000, too_big]);
    assert_eq!(
        ask_with(&functions, "text/plain", "a".repeat(20000)),
        expected
    );
}

#[test]
fn a_json_body_beyond_the_buffer_needs_an_allowed_size_and_a_form_is_not_read() {
    let code =
        "t.value, t.error = kong.request.get_body() t.again = kong.request.get_body(nil, nil, 0)
        t.args, t.args_error = kong.request.get_body('application/x-www-form-urlencoded', nil, 0)";
    let body = json!({"a": "x".repeat(20000)}).to_string();
    let found = ask_with(&shown(code), "application/json", body);
    let error = found["error"].as_str().expect("there is an error");
    assert!(error.starts_with("request body did not fit"), "{error}");
    assert_eq!(found["again"]["a"].as_str().map(str::len), Some(20000));
    let error = "request body in temp file not supported";
    assert_eq!(
        (&found["args"], &found["args_error"]),
        (&Value::Null, &json!(error))
    );
}

#[test]
fn a_body_is_read_in_rewrite() {
    let config = json!({
        "rewrite": ["kong.ctx.shared.body = kong.request.get_raw_body()"],
        "access": ["kong.response.exit(200, kong.ctx.shared.body .. kong.request.get_raw_body())"],
    });
    let functions = case(def(), config);
    let outcome = functions.request("POST /").body("ab").run_now();
    assert_eq!(outcome.client.text(), "abab");
}

#[test]
fn a_multipart_body_that_breaks_off_has_its_whole_parts() {
    let part =
        |name: &str| format!("--B\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n1\r\n");
    let functions = shown("t.value = kong.request.get_body()");
    let body = part("a") + &part("b")[..20];
    let found = ask_with(&functions, "multipart/form-data; boundary=B", body);
    assert_eq!(found["value"], json!({"a": "1"}));
}

#[test]
fn the_first_of_several_content_types_counts() {
    let functions = shown("t.value, t.error, t.type = kong.request.get_body()");
    let call = functions.request("POST /").body("{}");
    let lines = ["Content-Type: application/json", "Content-Type: text/plain"];
    let found: Value = call.lines(&lines).run_now().client.json();
    assert_eq!(found["type"], "application/json");
}

#[test]
fn an_empty_query_is_no_variable() {
    let functions = shown("t.args, t.raw = ngx.var.args, kong.request.get_raw_query()");
    assert_eq!(ask(&functions, "GET /?"), json!({"raw": ""}));
    assert_eq!(ask(&functions, "GET /??"), json!({"raw": "?", "args": "?"}));
}

#[test]
fn a_query_may_have_any_bytes() {
    let functions = case(
        def(),
        json!({"access": ["kong.service.request.set_raw_query('a=\\228 b')"]}),
    );
    let outcome = functions.request("GET /?old=1").run_now();
    // The harness shows the sent query as text.
    assert_eq!(outcome.sent().query.as_deref(), Some("a=\u{fffd} b"));
    let functions = shown(
        "kong.service.request.set_raw_query('a=\\228') t.byte = kong.request.get_query_arg('a'):byte()",
    );
    assert_eq!(ask(&functions, "GET /"), json!({"byte": 228}));
}

#[test]
fn variables_for_the_upstream_are_those_of_kong() {
    let code = "for _, name in ipairs{'x_forwarded_path', 'x_forwarded_prefix', 'connection', 'upgrade', 'via'} do
          t[name] = ngx.var['upstream_' .. name]
        end
        t.address, t.number = ngx.var.server_addr, ngx.var.connection_requests";
    let functions = shown(code);
    let own = json!({
        "x_forwarded_path": "/v/%20x", "connection": "keep-alive", "upgrade": "", "via": "1.1 kong/3.9.1",
        "address": "127.0.0.1", "number": "1",
    });
    assert_eq!(ask(&functions, "GET /v/%20x?a=1"), own);
    let block = "127.0.0.0/8".parse().expect("it is a block");
    let trusting = shown(code).trusted_ips(vec![block]);
    let lines = [
        "X-Forwarded-Path: /told?x",
        "X-Forwarded-Prefix: /p",
        "Upgrade: WebSocket",
        "Via: 1.0 a",
    ];
    let found: Value = trusting
        .request("GET /")
        .lines(&lines)
        .run_now()
        .client
        .json();
    let told = json!({
        "x_forwarded_path": "/told?x", "x_forwarded_prefix": "/p", "connection": "keep-alive, Upgrade",
        "upgrade": "websocket", "via": "1.0 a, 1.1 kong/3.9.1", "address": "127.0.0.1", "number": "1",
    });
    assert_eq!(found, told);
}

#[test]
fn variables_for_the_upstream_are_empty_before_routing() {
    let functions = case(
        def(),
        json!({
            "rewrite": ["kong.ctx.shared.path = ngx.var.upstream_x_forwarded_path"],
            "access": ["kong.response.exit(200, {path = kong.ctx.shared.path})"],
        }),
    );
    assert_eq!(ask(&functions, "GET /a"), json!({"path": ""}));
}

#[test]
fn settings_are_read_and_not_written() {
    let code = "t.port, t.prefix, t.none = kong.configuration.port, ngx.config.prefix(), kong.configuration.none == nil
        local ok, err = pcall(function() kong.configuration.port = 2 end) t.error = err
        t.copy = kong.configuration.remove_sensitive().port
        t.strategy = kong.db.strategy local _, e = kong.db.consumers:insert({}) t.write = e";
    let functions =
        shown(code).configuration(&json!({"port": 1, "prefix": "/p", "database": "lmdb"}));
    let found = ask(&functions, "GET /");
    let expected = json!({
        "port": 1, "prefix": "/p/", "none": true, "error": found["error"], "copy": 1, "strategy": "lmdb",
        "write": "[lmdb] cannot create 'consumers' entities from Lua code",
    });
    assert_eq!(found, expected);
    let error = found["error"].as_str().expect("there is an error");
    assert!(error.ends_with("cannot write to configuration"), "{error}");
}

#[test]
fn the_data_of_the_balancer_counts_tries() {
    let code = "local data = ngx.ctx.balancer_data
        kong.response.set_header('X-Tries', #data.tries .. ' ' .. data.try_count .. ' ' .. data.tries[1].ip)";
    let service = json!({"id": SERVICE, "host": "127.0.0.1", "port": 80, "protocol": "http"});
    let entities = FakeEntities::default().with(EntityKind::Services, service);
    let functions = case(def(), json!({"header_filter": [code]})).entities(entities);
    let call = functions.request("GET /").answered(Upstream::new(200));
    let call = call.state(|state| state.tried.push(([127, 0, 0, 1], 80).into()));
    let outcome = call.run_now();
    assert_eq!(outcome.client.header("x-tries"), Some("1 1 127.0.0.1"));
}
