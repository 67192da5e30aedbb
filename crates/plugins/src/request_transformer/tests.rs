use super::lua::{LuaCode, RenderError};
use super::request::Interpreter;
use super::*;
use crate::testing::{self, case};
use model::Object;
use net::http1::{Limits, RequestHead};
use plugin::{Capture, LuaSettings};
use serde_json::{Value, json};
use std::sync::Arc;

pub(super) fn transformer(config: &str) -> Result<RequestTransformer, BuildError> {
    let config = serde_json::from_str(config).expect("the configuration is JSON");
    let config = testing::config("request-transformer", config);
    let cx = BuildCx {
        identity: &plugin::NodeIdentity::default(),
        lua: &Default::default(),
        life: &Arc::default(),
    };
    RequestTransformer::build(config, &cx)
}

/// Lua code cannot run in the tests of single rules.
pub(super) struct NoLua;

impl Interpreter for NoLua {
    fn has_shared(&self) -> bool {
        false
    }

    fn render(&self, _: &LuaCode, _: &Request<'_>) -> Result<Vec<u8>, RenderError> {
        Err(super::testing::no_lua())
    }
}

/// A request as the upstream gets it: method, path, query, added headers, and body.
fn sent(config: &str, head: &str, body: Option<&str>) -> Result<String, PluginError> {
    let transformer = transformer(config).expect("it is built");
    let (head, _) = RequestHead::parse(head.as_bytes(), &Limits::default())
        .expect("well formed")
        .expect("complete");
    let mut request = Request::bare(&head);
    request.captures = vec![Capture {
        name: Some("uid".to_owned()),
        number: 0,
        value: "ann".to_owned(),
    }];
    let shared = Object::new();
    let compute = |request: &Request<'_>| {
        transformer.compute(&View {
            request,
            shared: &shared,
            interpreter: &NoLua,
        })
    };
    let mut edits = compute(&request);
    if matches!(edits, Err(NoEdits::NeedsBody)) {
        let body = body.expect("the body is read only where it is needed");
        request.body = RequestBody::Whole(Bytes::copy_from_slice(body.as_bytes()));
        edits = compute(&request);
    }
    let edits = match edits {
        Ok(edits) => edits,
        Err(NoEdits::Failed(error)) => return Err(error),
        Err(NoEdits::NeedsBody | NoEdits::Refused(_)) => panic!("the body is read once"),
    };
    edits.apply(&mut request);
    let added = request.upstream.headers.added();
    let added: Vec<String> = added
        .map(|(name, value)| format!("{name}: {}", String::from_utf8_lossy(value)))
        .collect();
    let body = request.upstream.body.unwrap_or_default();
    Ok(format!(
        "{} {}?{} [{}] {}",
        request.upstream.method.as_deref().unwrap_or("-"),
        request.upstream.path.as_deref().unwrap_or("-"),
        &request
            .upstream
            .query
            .as_deref()
            .map_or("-".into(), String::from_utf8_lossy),
        added.join(", "),
        String::from_utf8_lossy(&body)
    ))
}

const GET: &str = "GET /a?q=1&r=2 HTTP/1.1\r\nHost: a\r\nX-In: v\r\n\r\n";
const FORM: &str = "POST /a?q=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n";

#[test]
fn an_empty_configuration_takes_part_in_no_phase() {
    let empty = transformer("{}").expect("it is built");
    assert_eq!(empty.phases(Phases::ACCESS), Phases::NONE);
    let method = transformer(r#"{"http_method": "GET"}"#).expect("it is built");
    assert_eq!(method.phases(Phases::ACCESS), Phases::ACCESS);
}

#[test]
fn a_client_that_puts_a_line_break_into_a_header_gets_400() {
    let config = serde_json::json!({"add": {"headers": ["x-q:$(query_params.q)"]}});
    let case = crate::testing::case(def(), config);
    for (query, status) in [("a%0d%0ax:1", 400), ("a%00", 400), ("a%09b", 200)] {
        let outcome = case.request(&format!("GET /?q={query}")).run_now();
        assert_eq!(outcome.client.status, status, "{query}");
        assert_eq!(outcome.upstream.is_some(), status == 200);
    }
}

#[test]
fn all_parts_of_a_request_change_and_templates_see_it_as_it_was() {
    let config = r#"{
        "http_method": "PUT",
        "remove": {"headers": ["x-in"], "querystring": ["q"]},
        "replace": {"uri": "/b c/$(uri_captures.uid)/$(query_params.q)"},
        "add": {"headers": ["x-out:$(headers.x_in)"], "querystring": ["s:$(query_params.q)$(headers.x_in)"]}
    }"#;
    assert_eq!(
        sent(config, GET, None).expect("it is changed"),
        "PUT /b%20c/ann/1?r=2&s=1v [x-out: v] "
    );
}

#[test]
fn a_form_moves_to_the_query_where_the_method_has_no_body() {
    let config = r#"{"http_method": "GET", "add": {"querystring": ["z:1"]}}"#;
    assert_eq!(
        sent(config, FORM, Some("q=2&b=3")).expect("it is changed"),
        "GET -?b=3&q=1&q=2&z=1 [] "
    );
}

#[test]
fn a_rule_for_headers_may_change_the_type_of_the_body() {
    let config =
        r#"{"replace": {"headers": ["content-type:application/json"]}, "add": {"body": ["a:1"]}}"#;
    assert_eq!(
        sent(config, FORM, Some("{}")).expect("it is changed"),
        r#"- -?- [Content-Type: application/json] {"a":"1"}"#
    );
}

#[test]
fn a_body_is_read_only_for_rules_that_concern_it() {
    let config = r#"{"add": {"body": ["a:1"]}}"#;
    assert_eq!(sent(config, GET, None).expect("it passes"), "- -?- [] ");
}

#[test]
fn a_body_that_is_too_large_is_refused_only_if_rules_concern_it() {
    let status = |config: Value, content_type: &str| {
        let case = case(super::def(), config);
        let request = case.request("POST /a").header("Content-Type", content_type);
        let outcome = request.body("{}").too_large().run_now();
        (outcome.client.status, outcome.upstream.is_some())
    };
    for rule in ["remove", "rename", "replace", "add", "append"] {
        let config = || json!({rule: {"body": ["a:b"], "headers": ["x:y"]}});
        assert_eq!(status(config(), "application/json"), (413, false), "{rule}");
        assert_eq!(status(config(), "text/plain"), (200, true), "{rule}");
    }
    let config = json!({"add": {"headers": ["x:y"]}});
    assert_eq!(status(config, "application/json"), (200, true));
}

#[test]
fn json_that_only_the_upstream_can_read_is_refused() {
    let case = case(super::def(), json!({"remove": {"body": ["secret"]}}));
    let status = |value: &str| {
        let request = case
            .request("POST /a")
            .header("Content-Type", "application/json");
        let outcome = request
            .body(format!(r#"{{"secret":1,"a":{value}}}"#))
            .run_now();
        outcome.client.status
    };
    let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
    assert_eq!((status("1"), status(&nested(100))), (200, 200));
    for unreadable in [&*nested(200), &nested(100_000), "1e999", "-1e999"] {
        assert_eq!(status(unreadable), 400);
    }
    assert_eq!(status("x"), 200, "it is no JSON, and passes as in Kong");
}

#[test]
fn what_cannot_be_sent_is_an_error_of_the_request() {
    for config in [
        r#"{"http_method": "BREW"}"#,
        r#"{"replace": {"uri": "b"}}"#,
        r#"{"replace": {"uri": "$(uri_captures.none)"}}"#,
        r#"{"add": {"headers": ["a:$(headers)"]}}"#,
        r#"{"add": {"headers": ["a:$()"]}}"#,
    ] {
        assert!(sent(config, GET, None).is_err(), "{config}");
    }
}

/// Renders a template as a header for the upstream. Returns `None` if the request fails.
fn rendered(settings: LuaSettings, template: &str) -> Option<String> {
    let config = json!({"add": {"headers": [format!("x-out:{template}")]}});
    let case = case(def(), config).lua(settings);
    let call = case.request("GET /a?q=1&r=2&r=3").header("x-in", "inval");
    let outcome = call.run_now();
    let sent = outcome.upstream.as_ref()?;
    sent.header("x-out").map(str::to_owned)
}

#[test]
fn templates_that_need_lua_are_rendered_there() {
    let rendered = |template| rendered(LuaSettings::default(), template);
    for (template, wanted) in [
        ("$(1 + 1)", "2"),
        ("a$(('x'):rep(3))b$(query_params.q)", "axxxb1"),
        (
            "$(type(query_params.r) == 'table' and query_params.r[2])",
            "3",
        ),
        ("$(headers['x-in']:upper())", "INVAL"),
        ("$(headers.x_in .. (query_params.none or ''))", "inval"),
        ("$((function() shared.v = 2 return shared.v end)())", "2"),
        ("#x$(nil == false)$(1 == 1)", "#xtrue"),
        ("$(type(uri_captures))", "table"),
    ] {
        assert_eq!(rendered(template).as_deref(), Some(wanted), "{template}");
    }
    assert!(rendered("$(query_params.r)").is_some_and(|text| text.starts_with("table: ")));
    for template in [
        "$()",
        "$(1 +)",
        "$(string.sub('x', 1))",
        "$(type(os.time()))",
        "$(kong.request.get_method())",
        "$(require('cjson').null)",
        "$((function() while true do end end)())",
    ] {
        assert_eq!(rendered(template), None, "{template}");
    }
}

#[test]
fn the_settings_of_the_sandbox_reach_templates() {
    let settings = LuaSettings {
        sandbox_requires: ["cjson".to_owned()].into(),
        sandbox_environment: ["string.upper".to_owned()].into(),
        ..LuaSettings::default()
    };
    let rendered = |template| rendered(settings.clone(), template);
    assert_eq!(
        rendered("$(require('cjson').encode({1}))").as_deref(),
        Some("[1]")
    );
    assert_eq!(rendered("$(string.upper('a'))").as_deref(), Some("A"));
    assert_eq!(rendered("$(string.lower('a'))"), None);
    assert_eq!(rendered("$(require('cjson.safe'))"), None);
}

#[test]
fn templates_see_all_globals_without_the_sandbox() {
    let settings = || LuaSettings {
        untrusted: UntrustedLua::On,
        ..LuaSettings::default()
    };
    assert_eq!(
        rendered(settings(), "$(type(io))").as_deref(),
        Some("table")
    );
    let method = rendered(settings(), "$(kong.request.get_method())");
    assert_eq!(method.as_deref(), Some("GET"));
}

#[test]
fn a_template_for_the_body_or_the_query_must_be_lua() {
    crate::install();
    for (value, wanted) in [
        ("$(1 +)", "[string \"TMP\"]:1: unexpected symbol near ')'"),
        (
            "a\n$(if)",
            "[string \"TMP\"]:2: unexpected symbol near 'if'",
        ),
        // A line with `#` is Lua code in this check, but not in a request.
        ("a\n#b", "[string \"TMP\"]:3: '=' expected near 'return'"),
    ] {
        let config = json!({"add": {"querystring": [format!("x:{value}")]}});
        let error = plugin::testing::refusal(&def(), config);
        let wanted = format!("value '{value}' is not in supported format, error:{wanted}");
        // The text of the schema's errors escapes quotes and line ends.
        let error = error
            .replace("\\\"", "\"")
            .replace("\\n", "\n")
            .replace("\\\n", "\n");
        assert!(error.contains(&wanted), "{error}\n{wanted}");
    }
    // The templates of headers are compiled when a request needs them.
    let config = json!({"add": {"headers": ["x:$(1 +)"]}});
    assert!(
        case(def(), config)
            .request("GET /a")
            .run_now()
            .upstream
            .is_none()
    );
}
