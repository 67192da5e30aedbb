//! Tests of the plugin: the queue's name and parameters, the requests to the endpoint, and what is refused.

use super::config::Config;
use super::{def, queue_name};
use crate::queue_config::queue_params;
use crate::testing::{self, case};
use plugin::testing::refusal;
use serde_json::{Value, json};
use services::queue::QueueParams;
use std::time::Duration;
use testkit::Sink;

fn config(config: Value) -> Config {
    testing::config("http-log", config)
}

fn params_of(json: Value) -> (QueueParams, Vec<&'static str>) {
    let config = config(json);
    queue_params(&config.queue, config.deprecated())
}

#[test]
fn a_record_is_sent_with_the_configured_headers() {
    let sink = Sink::start(&[]);
    let config = json!({
        "http_endpoint": format!("http://user:pass@{}/in/put?token=1", sink.address), "method": "PUT",
        "content_type": "application/json; charset=utf-8", "headers": {"X-Token": "abc"}
    });
    let case = case(def(), config);
    case.request("GET /a?x=1").run_now();
    let received = sink.next();
    assert_eq!(received.line, "PUT /in/put HTTP/1.1");
    let header = |name| received.header(name).unwrap_or("-");
    assert_eq!(header("authorization"), "Basic dXNlcjpwYXNz");
    assert_eq!(header("content-type"), "application/json; charset=utf-8");
    assert_eq!(header("x-token"), "abc");
    assert_eq!(header("host"), sink.address.to_string());
    assert_eq!(received.json()["request"]["uri"], "/a?x=1");
    assert_eq!(received.json()["response"]["status"], 200);
}

#[test]
fn several_records_are_sent_as_a_list_also_if_there_is_only_one() {
    let sink = Sink::start(&[]);
    let config = json!({
        "http_endpoint": format!("http://{}", sink.address),
        "queue": {"max_batch_size": 2, "max_coalescing_delay": 0.01}
    });
    let case = case(def(), config);
    case.request("GET /0").run_now();
    let mut uris = Vec::new();
    while uris.len() < 3 {
        let received = sink.next();
        let list = received.json();
        for record in list.as_array().expect("a list") {
            uris.push(record["request"]["uri"].as_str().unwrap().to_owned());
        }
        if uris.len() == 1 {
            case.request("GET /1").run_now();
            case.request("GET /2").run_now();
        }
    }
    assert_eq!(uris, ["/0", "/1", "/2"]);
}

#[test]
fn a_refused_record_is_sent_again() {
    let sink = Sink::start(&[500, 302]);
    let config = json!({
        "http_endpoint": format!("http://{}", sink.address),
        "queue": {"initial_retry_delay": 0.001}
    });
    let case = case(def(), config);
    case.request("GET /0").run_now();
    let bodies = [sink.next().body, sink.next().body, sink.next().body];
    assert!(bodies[0] == bodies[1] && bodies[1] == bodies[2]);
}

#[test]
fn deprecated_fields_replace_those_of_the_queue_unless_they_have_their_defaults() {
    let replaced = json!({
        "http_endpoint": "http://a", "retry_count": 3, "queue_size": 5, "flush_timeout": 0.5
    });
    let (params, deprecated) = params_of(replaced);
    assert_eq!(params.max_batch_size, 5);
    assert_eq!(params.max_coalescing_delay, Duration::from_millis(500));
    assert_eq!(deprecated, ["retry_count", "queue_size", "flush_timeout"]);
    let defaults = json!({
        "http_endpoint": "http://a", "retry_count": 10, "queue_size": 1, "flush_timeout": 2,
        "queue": {"max_batch_size": 7, "max_coalescing_delay": 3}
    });
    let (params, deprecated) = params_of(defaults);
    assert_eq!(params.max_batch_size, 7);
    assert_eq!(params.max_coalescing_delay, Duration::from_secs(3));
    assert!(deprecated.is_empty());
    let negative = json!({"http_endpoint": "http://a", "queue_size": -1, "flush_timeout": -1});
    let (params, _) = params_of(negative);
    assert_eq!(params.max_batch_size, 1);
    assert_eq!(params.max_coalescing_delay, Duration::ZERO);
}

#[test]
fn the_name_of_the_queue_is_kongs() {
    let name = |json| queue_name(&config(json));
    assert_eq!(
        name(json!({"http_endpoint": "http://a/b"})),
        "http://a/b:POST:application/json:10000:60000:nil"
    );
    let other = json!({
        "http_endpoint": "http://a/b", "timeout": 9001, "retry_count": 2, "headers": {"a": "b"},
        "queue": {"max_batch_size": 9}, "queue_size": 4
    });
    assert_eq!(name(other), "http://a/b:POST:application/json:9001:60000:2");
}

#[test]
fn wrong_values_are_refused_by_the_name_of_their_field() {
    crate::install();
    let refusal = |config| refusal(&def(), config);
    let lua = json!({"http_endpoint": "http://a", "custom_fields_by_lua": {"x": "return +"}});
    let error = refusal(lua);
    // The error is shown as JSON.
    let wanted = r#"Error parsing function: [string \"return +\"]:1: unexpected symbol near '+'"#;
    assert!(error.contains(wanted), "{error}");
    let empty = json!({"http_endpoint": "http://a", "custom_fields_by_lua": {}});
    // It can be built.
    case(def(), empty).node();
    let header = json!({"http_endpoint": "http://a", "headers": {"x": "a\nb"}});
    assert!(refusal(header).starts_with("headers.x: "));
    let vault = json!({"http_endpoint": "{vault://env/a}"});
    assert!(refusal(vault).starts_with("http_endpoint: it is a vault reference"));
}

#[test]
fn a_record_has_the_fields_that_lua_code_computes() {
    let sink = Sink::start(&[]);
    let config = json!({
        "http_endpoint": format!("http://{}", sink.address),
        "custom_fields_by_lua": {
            "env": "return 'prod'", "deep.key": "return {a = 1}", "route": "return nil",
            "method": "return kong.request.get_method()",
            // Globals end with the text that sets them.
            "seen": "local before = counter counter = 1 return tostring(before)"
        }
    });
    let case = case(def(), config);
    for _ in 0..2 {
        case.request("GET /a").run_now();
        let record = sink.next().json();
        assert_eq!(record["env"], "prod");
        assert_eq!(record["deep"], json!({"key": {"a": 1}}));
        assert_eq!(record["method"], "GET");
        assert_eq!(record["seen"], "nil");
        assert!(record.get("route").is_none());
    }
}
