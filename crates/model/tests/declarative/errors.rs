//! Errors of invalid documents: as a tree, as a flat list, and as a listing for the command line.

use crate::running::{object, options};
use model::Error;
use model::declarative::{self, Format, MAX_OF_DOCUMENT, Nothing, format_cli_errors};
use model::error::{MAX_OF_ENTITY, MORE};
use model::schema::RouterFlavor;
use serde_json::{Value as Json, json};

const ID: &str = "11111111-2222-4333-8444-555555555555";

fn refused(mut document: Json, flatten_errors: bool) -> Error {
    if document.get("_format_version").is_none() {
        document["_format_version"] = json!("3.0");
    }
    let mut options = options(1_790_000_000);
    options.flatten_errors = flatten_errors;
    declarative::load(object(&document), &options, &Nothing).expect_err("refused")
}

fn check(document: Json, expected: Json) {
    let error = refused(document.clone(), false);
    let fields = serde_json::to_value(error.fields).expect("json");
    assert_eq!(fields, expected, "{document}");
}

fn taken(kind: &str, field: &str, value: &str) -> String {
    format!("uniqueness violation: '{kind}' entity with {field} set to '{value}' already declared")
}

#[test]
fn problems_of_the_document_are_reported_together() {
    check(
        json!({
            "_format_version": null, "servces": [], "_transform": 1, "_comment": 1, "_ignore": "x", "tags": [],
            "services": 5, "consumer_groups": [], "_info": {},
        }),
        json!({
            "_format_version": "required field missing", "servces": "unknown field", "_transform": "expected a boolean",
            "_comment": "expected a string", "_ignore": "expected an array", "tags": "unknown field",
            "services": "expected an array", "consumer_groups": "unknown field", "_info": "unknown field",
        }),
    );
    check(
        json!({"_format_version": "2.0"}),
        json!({"_format_version": "expected one of: 1.1, 2.1, 3.0"}),
    );
    check(
        json!({"_format_version": 3}),
        json!({"_format_version": "expected a string"}),
    );
    let nothing =
        declarative::load(object(&json!({})), &options(1), &Nothing).expect_err("refused");
    assert_eq!(
        nothing.message,
        r#"declarative config is invalid: {_format_version="required field missing"}"#
    );
}

#[test]
fn every_problem_is_at_its_path() {
    check(
        json!({
            "services": [
                {"name": "good", "host": "h"},
                {"name": "a", "host": "h", "bogus": 1, "_comment": 5, "routes": [
                    {"name": "r1", "paths": ["/x"]},
                    {"name": "r2", "paths": ["/a", "x"], "plugins": [{"name": "key-auth"}, {"name": "nope"}]},
                    "text",
                ]},
                null,
                {"name": "b", "host": "h", "routes": 5},
            ],
            "routes": [{"name": "flat", "paths": ["/y"], "service": "missing"}],
            "consumers": [{"username": "al"}, {"username": "al"}],
            "certificates": [{"cert": "x", "key": "y", "snis": ["a.test"]}],
        }),
        json!({
            "services": [null, {
                "bogus": "unknown field", "_comment": "expected a string",
                "routes": [null, {
                    "paths": [null, "should start with: / (fixed path) or ~/ (regex path)"],
                    "plugins": [null, {"name": "plugin 'nope' not enabled; add it to the 'plugins' configuration property"}],
                }, "expected a record"],
            }, "required field missing", {"routes": "expected an array"}],
            "routes": [{"service": "invalid reference 'service: missing' (no such entry in 'services')"}],
            "consumers": [null, taken("consumers", "username", "al")],
            "certificates": [{"cert": "invalid certificate: no PEM block found",
                "key": "invalid key: not a private key in PEM", "snis": ["expected a record"]}],
        }),
    );
}

#[test]
fn references_need_an_id_or_a_name() {
    let service = json!([{"name": "a", "host": "h"}]);
    let refuse = |reference: Json, problem: Json| {
        check(
            json!({"services": service, "routes": [{"paths": ["/x"], "service": reference}]}),
            json!({"routes": [{"service": problem}]}),
        );
    };
    refuse(json!({"name": "a"}), json!({"id": "missing primary key"}));
    refuse(json!({"id": "a"}), json!({"id": "expected a valid UUID"}));
    refuse(json!(5), json!({"id": "missing primary key"}));
}

#[test]
fn dangling_references_are_keyed_by_name_or_id() {
    check(
        json!({"routes": [
            {"name": "r", "paths": ["/x"], "service": "missing"},
            {"id": ID, "paths": ["/y"], "service": {"id": ID}},
        ]}),
        json!({"routes": {
            "r": ["invalid reference 'service: missing' (no such entry in 'services')"],
            ID: [format!("invalid reference 'service: {{\"id\":\"{ID}\"}}' (no such entry in 'services')")],
        }}),
    );
    check(
        json!({"services": [{"name": "a", "host": "h",
            "plugins": [{"name": "key-auth", "id": ID, "route": "no", "instance_name": "in"}]}]}),
        json!({"plugins": {"in": ["invalid reference 'route: no' (no such entry in 'routes')"]}}),
    );
}

#[test]
fn duplicates_are_reported_where_kong_reports_them() {
    check(
        json!({"services": [{"id": ID, "host": "a"}, {"id": ID, "host": "b"}]}),
        json!({"services": [null, taken("services", "primary key", ID)]}),
    );
    check(
        json!({"consumers": [{"username": "a", "custom_id": "1"}, {"username": "b", "custom_id": "1"}]}),
        json!({"consumers": {"b": taken("consumers", "custom_id", "1")}}),
    );
    check(
        json!({"upstreams": [{"name": "u", "targets": [{"target": "h:1", "id": ID}, {"target": "h:2", "id": ID}]}]}),
        json!({"upstreams": [{"targets": [null, taken("targets", "primary key", ID)]}]}),
    );
    check(
        json!({"services": [{"name": "s", "host": "h", "routes": [{"paths": ["/"], "plugins": [
            {"name": "key-auth"}, {"name": "key-auth", "id": ID}]}]}]}),
        json!({"plugins": {ID: taken("plugins", "name, route, service, consumer", "key-auth, df10c51e-453d-532b-9aca-1e8015f680fd, null, null")}}),
    );
}

#[test]
fn flattened_errors_name_the_entity_and_leave_the_rest_in_fields() {
    let error = refused(
        json!({
            "servces": [],
            "services": [{"name": "s", "id": ID, "host": "h", "tags": ["t"], "retries": -1,
                "routes": ["text", {"name": "r", "paths": ["x", "y"], "tags": [1]}]}],
            "routes": [{"name": "flat", "paths": ["/"], "service": "missing"}],
        }),
        true,
    );
    assert_eq!(
        serde_json::to_value(&error.fields).expect("json"),
        json!({"servces": "unknown field", "services": [{"routes": ["expected a record"]}]})
    );
    let path = "should start with: / (fixed path) or ~/ (regex path)";
    assert_eq!(
        serde_json::to_value(&error.flattened_errors).expect("json"),
        json!([
            {"entity_type": "route", "entity_name": "r",
             "entity": {"name": "r", "paths": ["x", "y"], "tags": [1], "service": {"id": ID}},
             "errors": [
                {"type": "field", "field": "tags.1", "message": "expected a string"},
                {"type": "field", "field": "paths.2", "message": path},
                {"type": "field", "field": "paths.1", "message": path}]},
            {"entity_type": "service", "entity_id": ID, "entity_name": "s", "entity_tags": ["t"],
             "entity": {"name": "s", "id": ID, "host": "h", "tags": ["t"], "retries": -1},
             "errors": [{"type": "field", "field": "retries", "message": "value should be between 0 and 32767"}]},
            {"entity_type": "route", "entity_name": "flat",
             "entity": {"name": "flat", "paths": ["/"], "service": "missing"},
             "errors": [{"type": "field", "field": "service",
                "message": "invalid reference 'service: missing' (no such entry in 'services')"}]},
        ])
    );
}

#[test]
fn flattened_errors_name_entities_given_in_place_of_references() {
    let error = refused(
        json!({
            "services": [{"name": "s", "host": "h", "protocol": "https", "client_certificate": {"cert": "", "key": "", "tags": ["t"]}}],
            "routes": [{"name": "r", "paths": ["x"], "_comment": "why", "service": {"name": "s"}}],
            "plugins": [{"name": "key-auth", "service": {"id": ID, "port": 0}, "consumer": {"username": "c"}}],
        }),
        true,
    );
    assert_eq!(error.fields, Some(Default::default()));
    let too_short = "length must be at least 1";
    let field =
        |field: &str, message: &str| json!({"type": "field", "field": field, "message": message});
    let no_id = json!([field("id", "missing primary key")]);
    assert_eq!(
        serde_json::to_value(&error.flattened_errors).expect("json"),
        json!([
            {"entity_type": "certificate", "entity_tags": ["t"],
             "entity": {"cert": "", "key": "", "tags": ["t"]},
             "errors": [field("key", too_short), field("cert", too_short)]},
            {"entity_type": "service", "entity_name": "s", "entity": {"name": "s"}, "errors": no_id},
            {"entity_type": "route", "entity_name": "r",
             "entity": {"name": "r", "paths": ["x"], "_comment": "why"},
             "errors": [field("paths.1", "should start with: / (fixed path) or ~/ (regex path)")]},
            {"entity_type": "consumer", "entity": {"username": "c"}, "errors": no_id},
            {"entity_type": "plugin", "entity_name": "key-auth",
             "entity": {"name": "key-auth", "service": {"id": ID}},
             "errors": [field("service", &format!(
                "invalid reference 'service: {{\"id\":\"{ID}\",\"port\":0}}' (no such entry in 'services')"))]},
        ])
    );
}

#[test]
fn the_listing_is_indented_by_entry() {
    let text = r#"{"services": [{"name": "a"}, {"name": "b", "host": "h"},
        {"protocol": "tcp", "path": "/p", "host": "h"}]}"#;
    let error = refused(serde_json::from_str(text).expect("json"), false);
    let expected = "\
in 'services':
  - in entry 1 of 'services' (line 1):
    in 'host': required field missing
  - in entry 3 of 'services' (line 2):
    in '@entity':
      - in entry 1 of '@entity': failed conditional validation given value of field 'protocol'
    in 'path': value must be null";
    let flavor = RouterFlavor::default();
    let listing = format_cli_errors(&error, text.as_bytes(), Format::Json, flavor);
    assert_eq!(listing, expected);
}

/// Returns all texts in a tree of errors.
fn texts(errors: &Json) -> Vec<&str> {
    match errors {
        Json::Object(fields) => fields.values().flat_map(texts).collect(),
        Json::Array(elements) => elements.iter().flat_map(texts).collect(),
        Json::String(text) => vec![text],
        _ => Vec::new(),
    }
}

fn fields_of(document: Json) -> Json {
    serde_json::to_value(refused(document, false).fields).expect("json")
}

#[test]
fn a_list_of_many_bad_elements_is_reported_up_to_a_number() {
    let routes = |hosts| json!({"routes": [{"hosts": vec![1; hosts]}]});
    let all = fields_of(routes(MAX_OF_ENTITY));
    assert_eq!(texts(&all).len(), MAX_OF_ENTITY);
    assert!(!texts(&all).contains(&MORE));
    let more = fields_of(routes(3 * MAX_OF_ENTITY));
    assert_eq!(more["routes"][0]["hosts"][MAX_OF_ENTITY], MORE);
    assert_eq!(texts(&more).len(), MAX_OF_ENTITY + 1);
}

#[test]
fn many_bad_entities_are_reported_up_to_a_number() {
    let services = |count| json!({"services": vec![json!({"path": "/"}); count]});
    let all = fields_of(services(MAX_OF_DOCUMENT));
    assert_eq!(texts(&all).len(), MAX_OF_DOCUMENT);
    assert!(!texts(&all).contains(&MORE));
    let more = fields_of(services(MAX_OF_DOCUMENT + 5));
    assert_eq!(more["services"][MAX_OF_DOCUMENT], json!({"host": MORE}));
    assert_eq!(texts(&more).len(), MAX_OF_DOCUMENT + 1);
}

#[test]
fn many_elements_that_are_no_entities_are_reported_up_to_a_number() {
    let more = fields_of(json!({"services": vec![5; MAX_OF_DOCUMENT + 5]}));
    assert_eq!(more["services"][MAX_OF_DOCUMENT], MORE);
    assert_eq!(texts(&more).len(), MAX_OF_DOCUMENT + 1);
}

#[test]
fn many_duplicates_and_dangling_references_are_reported_up_to_a_number() {
    let consumers = vec![json!({"username": "a"}); MAX_OF_DOCUMENT + 5];
    let plugin = json!({"name": "key-auth", "service": "missing"});
    for document in [
        json!({"consumers": consumers}),
        json!({"plugins": vec![plugin; MAX_OF_DOCUMENT + 5]}),
    ] {
        let fields = fields_of(document);
        let texts = texts(&fields);
        assert_eq!(texts.len(), MAX_OF_DOCUMENT + 1);
        assert!(texts.contains(&MORE));
    }
}

#[test]
fn flattened_errors_are_reported_up_to_a_number() {
    let bad = json!({"name": "a", "host": "h", "tags": vec![1; 6]});
    let error = refused(json!({"services": vec![bad; MAX_OF_DOCUMENT]}), true);
    let entries = serde_json::to_value(&error.flattened_errors).expect("json");
    let entries = entries.as_array().expect("a list");
    let of_entry = |entry: &Json| entry["errors"].as_array().expect("a list").len();
    assert_eq!(
        entries.iter().map(of_entry).sum::<usize>(),
        MAX_OF_DOCUMENT + 1
    );
    let last = entries.last().map(|entry| &entry["errors"][0]["message"]);
    assert_eq!(last, Some(&json!(MORE)));
}
