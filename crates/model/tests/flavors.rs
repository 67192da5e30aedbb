//! Routes by router flavor: their fields, the allowed combinations, and routes that were stored under another flavor.
//! Source: kong/db/schema/entities/routes.lua and its tests.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::schema::RouterFlavor::{Expressions, Traditional, TraditionalCompatible};
use model::schema::{Context, EntitySchema, RouterFlavor};
use model::{Object, Value};
use plugins::install as registry;
use serde_json::{Value as Json, json};
use std::time::Duration;

fn routes() -> &'static EntitySchema {
    registry().by_name("routes").unwrap()
}

fn context(flavor: RouterFlavor) -> Context {
    Context {
        flavor,
        ..Context::at(Duration::from_secs(1_790_000_000))
    }
}

fn object(json: Json) -> Object {
    serde_json::from_value(json).unwrap()
}

fn complete(flavor: RouterFlavor, input: Json) -> Result<Object, String> {
    let completed = routes().complete(object(input), &context(flavor));
    completed.map_err(|error| error.message.to_string())
}

fn shown(flavor: RouterFlavor, entity: &Object) -> Json {
    let mut built = Vec::new();
    routes().write_json_for(entity, flavor, &mut built);
    let mut stored = Vec::new();
    let bytes = model::codec::encode(entity);
    routes()
        .write_stored_json(&bytes, flavor, &mut stored)
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&built),
        String::from_utf8_lossy(&stored)
    );
    serde_json::from_slice(&built).unwrap()
}

#[track_caller]
fn refused(flavor: RouterFlavor, input: Json, wanted: &str) {
    let problem = complete(flavor, input.clone()).expect_err(&input.to_string());
    assert_eq!(problem, format!("schema violation ({wanted})"), "{input}");
}

const EXPRESSION: &str = r#"http.path == "/a""#;

#[test]
fn only_expressions_routes_have_expression_and_priority() {
    let route = complete(
        Expressions,
        json!({"expression": EXPRESSION, "priority": 3}),
    );
    let route = route.unwrap();
    let seen = shown(Expressions, &route);
    assert_eq!(
        (&seen["expression"], &seen["priority"]),
        (&json!(EXPRESSION), &json!(3))
    );
    let classic = complete(Expressions, json!({"paths": ["/a"]})).unwrap();
    let seen = shown(Expressions, &classic);
    assert_eq!(
        (&seen["expression"], &seen["priority"]),
        (&Json::Null, &json!(0))
    );
    for flavor in [Traditional, TraditionalCompatible] {
        let input = json!({"hosts": ["a"], "expression": EXPRESSION, "priority": 3});
        let problem = complete(flavor, input).unwrap_err();
        assert_eq!(
            problem,
            "2 schema violations (expression: unknown field; priority: unknown field)"
        );
    }
}

#[test]
fn a_priority_has_46_bits() {
    let of = |priority: Json| json!({"expression": EXPRESSION, "priority": priority});
    assert!(complete(Expressions, of(json!((1_u64 << 46) - 1))).is_ok());
    let wanted = "priority: value should be between 0 and 70368744177663";
    refused(Expressions, of(json!(1_u64 << 46)), wanted);
    refused(Expressions, of(json!(-1)), wanted);
    refused(
        Expressions,
        of(Json::Null),
        "priority: required field missing",
    );
}

#[test]
fn an_expression_stands_alone() {
    let names = "'methods', 'hosts', 'paths', 'headers', 'snis', 'sources' or 'destinations'";
    let classic = [
        json!({"methods": ["GET"]}),
        json!({"hosts": ["a"]}),
        json!({"paths": ["/a"]}),
        json!({"headers": {"a": ["b"]}}),
        json!({"snis": ["a"]}),
        json!({"sources": [{"ip": "10.0.0.1"}]}),
        json!({"destinations": [{"port": 1}]}),
    ];
    let with = |fields: &Json, name: &str, value: Json| {
        let mut fields = fields.clone();
        fields[name] = value;
        fields
    };
    for fields in &classic {
        let wanted = format!(
            "Router Expression failed validation: cannot set 'expression' with {names} simultaneously"
        );
        refused(
            Expressions,
            with(fields, "expression", EXPRESSION.into()),
            &wanted,
        );
    }
    // `sources` and `destinations` alone do not form a route of these protocols.
    for fields in &classic[..5] {
        let wanted = format!(
            "Router Expression failed validation: cannot set 'priority' with {names} simultaneously"
        );
        refused(Expressions, with(fields, "priority", 1.into()), &wanted);
        assert!(complete(Expressions, with(fields, "priority", 0.into())).is_ok());
    }
    refused(
        Expressions,
        json!({"expression": EXPRESSION, "regex_priority": 1}),
        "Router Expression failed validation: cannot set 'regex_priority' with 'expression' simultaneously",
    );
    let empty = json!({"expression": EXPRESSION, "paths": [], "headers": {}, "regex_priority": 0});
    assert!(complete(Expressions, empty).is_ok());
}

#[test]
fn something_must_be_matched_by() {
    let wanted = |names: &str, protocol: &str| {
        format!("must set one of {names}, 'expression' when 'protocols' is {protocol}")
    };
    let classic = "'methods', 'hosts', 'headers', 'paths'";
    refused(
        Expressions,
        json!({"protocols": ["http"]}),
        &wanted(classic, "'http'"),
    );
    refused(
        Expressions,
        json!({"protocols": ["grpcs"]}),
        &wanted("'hosts', 'headers', 'paths', 'snis'", "'grpcs'"),
    );
    refused(
        Expressions,
        json!({"protocols": ["udp"]}),
        &wanted("'sources', 'destinations', 'snis'", "'tcp', 'tls' or 'udp'"),
    );
    let named =
        json!({"protocols": ["https"], "hosts": ["a"], "sources": [{"ip": "::1"}], "snis": ["a"]});
    assert!(complete(Expressions, named.clone()).is_ok());
    assert!(complete(TraditionalCompatible, named).is_err());
}

#[test]
fn the_schema_is_that_of_the_flavor() {
    let names = |flavor| {
        let schema = routes().schema_json(flavor);
        let fields = schema["fields"].as_array().unwrap().iter();
        let names = fields.map(|field| field.as_object().unwrap().keys().next().unwrap().clone());
        names.collect::<Vec<_>>()
    };
    let classic = names(TraditionalCompatible);
    assert_eq!(names(Traditional), classic);
    let with = names(Expressions);
    assert_eq!(with[..classic.len()], classic);
    assert_eq!(with[classic.len()..], ["expression", "priority"]);
    let checks = |flavor| {
        let schema = routes().schema_json(flavor);
        schema["entity_checks"].as_array().unwrap().len()
    };
    assert_eq!(checks(Traditional) + 1, checks(Expressions));
}

#[test]
fn a_stored_expression_outlives_another_flavor() {
    let input = json!({"name": "r", "expression": EXPRESSION, "priority": 7});
    let stored = complete(Expressions, input).unwrap();
    let mut shown = shown(TraditionalCompatible, &stored);
    let fields = shown.as_object_mut().unwrap();
    assert_eq!(fields.remove("expression"), None);
    assert_eq!(fields.remove("priority"), None);
    // A change of such a route must set fields of this flavor. Removing these fields restores the route.
    let merge = |flavor, existing: &Object, patch: Json| {
        let merged = routes().merge(existing, object(patch), &context(flavor));
        merged.map_err(|error| error.message.to_string())
    };
    let problem = merge(TraditionalCompatible, &stored, json!({"tags": ["a"]})).unwrap_err();
    assert!(problem.contains("must set one of 'methods'"), "{problem}");
    let patched = merge(TraditionalCompatible, &stored, json!({"paths": ["/b"]})).unwrap();
    assert_eq!(patched.get("expression"), Some(&Value::from(EXPRESSION)));
    assert_eq!(patched.get("priority"), Some(&Value::Int(7)));
    let restored = merge(Expressions, &patched, json!({"paths": null})).unwrap();
    assert_eq!(restored, stored);
}

#[test]
fn a_stored_classic_route_has_the_default_priority_under_expressions() {
    let stored = complete(TraditionalCompatible, json!({"paths": ["/a"]})).unwrap();
    let seen = shown(Expressions, &stored);
    assert_eq!(
        (&seen["expression"], &seen["priority"]),
        (&Json::Null, &json!(0))
    );
    let patch = object(json!({"tags": ["a"]}));
    let patched = routes()
        .merge(&stored, patch, &context(Expressions))
        .unwrap();
    assert_eq!(patched.get("priority"), Some(&Value::Int(0)));
}

fn with_expression(protocol: &str, expression: &str) -> Result<Object, String> {
    let input = json!({"protocols": [protocol], "expression": expression});
    complete(Expressions, input)
}

/// Compares accepted and refused expressions with the reference. Cases with the old field name `net.port` are skipped.
/// The reference refused them, because it was given bare expressions. In a route this name is accepted.
#[test]
fn expressions_are_accepted_as_by_the_reference() {
    let text = std::fs::read_to_string("../router/tests/data/router-vectors.json").unwrap();
    let vectors: Json = serde_json::from_str(&text).unwrap();
    let cases = vectors["expression_validation"]["cases"]
        .as_array()
        .unwrap();
    for case in cases {
        let expression = case["expression"].as_str().unwrap();
        if expression.contains("net.port") || expression.is_empty() {
            continue;
        }
        let found = with_expression(case["protocol"].as_str().unwrap(), expression);
        assert_eq!(found.is_ok(), case["valid"] == true, "{case}: {found:?}");
        if let Err(problem) = found {
            let prefix = "schema violation (Router Expression failed validation: ";
            assert!(problem.starts_with(prefix), "{problem}");
        }
    }
}

#[test]
fn a_wrong_expression_is_shown_with_what_is_meant_underlined() {
    let problem =
        with_expression("http", "http.method == \"GET\" &&\nhttp.foo == \"a\"").unwrap_err();
    let lines: Vec<&str> = problem.lines().collect();
    assert_eq!(
        lines[0],
        "schema violation (Router Expression failed validation: Unknown LHS field"
    );
    assert!(problem.contains(" --> 2:1\n"), "{problem}");
    assert!(problem.contains("http.foo == \"a\"\n"), "{problem}");
    assert!(problem.contains(" ^"), "{problem}");
}

#[test]
fn an_expression_is_checked_by_the_protocols_of_its_route() {
    let http = r#"http.method == "GET" && net.src.ip == 1.2.3.4"#;
    for protocol in ["http", "https", "grpc", "grpcs"] {
        assert!(with_expression(protocol, http).is_ok(), "{protocol}");
    }
    for protocol in ["tcp", "tls", "udp", "tls_passthrough"] {
        let problem = with_expression(protocol, http).unwrap_err();
        assert!(problem.contains("Unknown LHS field"), "{problem}");
        assert!(with_expression(protocol, "net.src.port == 80").is_ok());
    }
}

#[test]
fn an_old_field_name_is_accepted_and_kept() {
    let expression = r#"http.method == "GET" && net.port == 8000"#;
    let route = with_expression("grpc", expression).unwrap();
    assert_eq!(route.get("expression"), Some(&Value::from(expression)));
    assert!(with_expression("http", "any(net.port) == 80").is_err());
}

#[test]
fn segments_of_paths_are_numbered_properly() {
    for name in ["0", "1", "20_30", "len"] {
        let literal = if name == "len" { "10" } else { "\"a\"" };
        let expression = format!("http.path.segments.{name} == {literal}");
        assert!(with_expression("grpcs", &expression).is_ok(), "{name}");
    }
    let wrong = [
        "", "abc", "a_c", "1_2_3", "1_", "_1", "2_1", "1_1", "01_2", "001_2", "1_03", "len0",
        "len_a",
    ];
    for name in wrong {
        let expression = format!("http.path.segments.{name} == \"a\"");
        assert!(with_expression("http", &expression).is_err(), "{name}");
    }
    assert!(with_expression("http", r#"http.path.segments.len == "10""#).is_err());
}

#[test]
fn expressions_of_classic_fields_are_checked() {
    let source = |ip: &str| json!({"protocols": ["tcp"], "sources": [{"ip": ip}]});
    for flavor in [TraditionalCompatible, Expressions] {
        let problem = complete(flavor, source("fd00::1/8")).unwrap_err();
        let prefix = "schema violation (Router Expression failed validation: ";
        assert!(problem.starts_with(prefix), "{problem}");
        assert!(
            problem.contains("host part of address was not zero"),
            "{problem}"
        );
        assert!(complete(flavor, source("fd00::/8")).is_ok());
        assert!(complete(flavor, source("10.0.0.1/8")).is_ok());
        let problem = complete(flavor, json!({"paths": [r"~/(?=a)"]})).unwrap_err();
        assert!(problem.contains("look-around"), "{problem}");
    }
    assert!(complete(Traditional, source("fd00::1/8")).is_ok());
    assert!(complete(Traditional, json!({"paths": [r"~/(?=a)"]})).is_ok());
}
