//! The setting `router_flavor`: the routes that each flavor accepts, messages about wrong expressions, and a store that
//! is opened with another flavor.

use crate::{launch, launch_in};
use serde_json::{Value, json};
use testkit::{Echo, Gateway, Launch};

/// An expression with an unknown field in its second line.
const WRONG: &str = "http.method == \"GET\" &&\nhttp.pathh == \"/a\"";
/// The line of [`WRONG`] that every error message repeats. The next line of the message underlines the unknown field.
const UNDERLINED: &str = "http.pathh == \"/a\"\n";

fn expressions() -> Launch {
    launch().set("router_flavor", "expressions")
}

fn send(gateway: &Gateway, method: &str, path: &str, body: &Value) -> testkit::HttpResponse {
    gateway.admin_send(method, path, &body.to_string())
}

#[track_caller]
fn points_at_the_field(text: &str) {
    let prefix = "Router Expression failed validation: Unknown LHS field\n";
    assert!(text.contains(prefix), "{text}");
    let (_, rest) = text
        .split_once(UNDERLINED)
        .unwrap_or_else(|| panic!("{text}"));
    let marks = rest.lines().next().unwrap_or_default();
    assert!(marks.contains("^-"), "{text}");
}

#[test]
fn the_node_and_its_schemas_show_the_flavor() {
    let gateway = expressions().set("database", "lmdb").start();
    let node = gateway.admin_get("/").json();
    assert_eq!(node["configuration"]["router_flavor"], "expressions");
    let schema = gateway.admin_get("/schemas/routes").text();
    assert!(schema.contains("\"expression\":{"), "{schema}");
    let document = gateway.admin_get("/openapi.json").json();
    let fields = &document["components"]["schemas"]["RouteInput"];
    assert!(fields.to_string().contains("\"expression\""), "{fields}");
    let classic = launch().set("database", "lmdb").start();
    let schema = classic.admin_get("/schemas/routes").text();
    assert!(!schema.contains("\"expression\":{"), "{schema}");
    let route = json!({"expression": "http.path == \"/\"", "paths": ["/"]});
    let refused = send(&classic, "POST", "/routes", &route);
    assert_eq!(
        (refused.status, refused.json()["fields"].clone()),
        (400, json!({"expression": "unknown field"}))
    );
}

#[test]
fn every_way_to_write_shows_what_is_wrong_with_an_expression() {
    let gateway = expressions().set("database", "lmdb").start();
    let route = json!({"name": "r", "expression": WRONG});
    for (method, path) in [
        ("POST", "/routes"),
        ("PUT", "/routes/r"),
        ("POST", "/schemas/routes/validate"),
    ] {
        let answer = send(&gateway, method, path, &route);
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
        let error = answer.json();
        points_at_the_field(error["message"].as_str().unwrap_or_default());
        points_at_the_field(error["fields"]["@entity"][0].as_str().unwrap_or_default());
    }
    let change = json!({"action": "create", "type": "routes", "data": route});
    let answer = send(&gateway, "POST", "/changes", &json!({"changes": [change]}));
    assert_eq!(answer.status, 400, "{}", answer.text());
    let error = answer.json()["errors"][0].clone();
    assert_eq!(error["problems"][0]["path"], "changes[0].data");
    for text in [&error["problems"][0]["message"], &error["error"]["message"]] {
        points_at_the_field(text.as_str().unwrap_or_default());
    }
    let document = json!({"_format_version": "3.0", "routes": [route]});
    let answer = send(&gateway, "POST", "/import", &document);
    assert_eq!(answer.status, 400, "{}", answer.text());
    let problem = answer.json()["fields"]["routes"][0]["@entity"][0].clone();
    points_at_the_field(problem.as_str().unwrap_or_default());
    assert_eq!(gateway.admin_get("/routes").json()["data"], json!([]));
}

#[test]
fn a_configuration_shows_what_is_wrong_with_an_expression() {
    let document = json!({
        "_format_version": "3.0",
        "services": [{"name": "a", "url": "http://a.test", "routes": [{"name": "r", "expression": WRONG}]}],
    });
    let gateway = expressions().set("database", "off").start();
    let answer = gateway.post_config(&document.to_string());
    assert_eq!(answer.status, 400);
    let error = answer.json();
    let problem = &error["fields"]["services"][0]["routes"][0]["@entity"][0];
    points_at_the_field(problem.as_str().unwrap_or_default());
    let parsed = expressions().configuration(&document.to_string());
    let file = parsed.prefix().join("kong.yml");
    let output = parsed
        .other(&["config", "parse", file.to_str().expect("UTF-8")])
        .output()
        .expect("it runs");
    assert!(!output.status.success());
    points_at_the_field(&String::from_utf8_lossy(&output.stderr));
}

/// Creates a service with a classic route and an expression route.
fn both(gateway: &Gateway, echo: &Echo) {
    let classic = json!({"name": "classic", "paths": ["/classic"]});
    let expression = json!({
        "name": "expression", "expression": "http.path ^= \"/expression\" && net.port > 0", "priority": 7,
    });
    let service = json!({"name": "echo", "url": echo.url()});
    for (path, body) in [
        ("/services", service),
        ("/services/echo/routes", classic),
        ("/services/echo/routes", expression),
    ] {
        let answer = send(gateway, "POST", path, &body);
        assert_eq!(answer.status, 201, "{}", answer.text());
    }
}

#[test]
fn a_store_keeps_its_content_when_the_flavor_changes() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let start = |flavor: &str| {
        let launch = launch_in(prefix.path()).set("router_flavor", flavor);
        launch.start()
    };
    let gateway = start("expressions");
    both(&gateway, &echo);
    gateway.wait_for_log("net.dst.port");
    assert_eq!(gateway.get("/expression", &[]).status, 200);
    let stored = gateway.admin_get("/routes/expression").json();
    assert!(gateway.stop().success());
    for flavor in ["traditional_compatible", "traditional"] {
        let gateway = start(flavor);
        gateway.wait_for_log("router_flavor = expressions");
        assert_eq!(gateway.get("/classic", &[]).status, 200);
        assert_eq!(gateway.get("/expression", &[]).status, 404);
        let shown = gateway.admin_get("/routes/expression").json();
        assert_eq!(shown["expression"], Value::Null);
        assert_eq!(shown["id"], stored["id"]);
        let named = send(
            &gateway,
            "PATCH",
            "/routes/classic",
            &json!({"tags": [flavor]}),
        );
        assert_eq!(named.status, 200, "{}", named.text());
        let output = gateway.launch().other(&["export"]).output();
        let output = output.expect("it runs");
        let exported = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(exported.contains("/expression"), "{exported}");
        assert!(exported.contains("priority: 7\n"), "{exported}");
        assert!(gateway.stop().success());
    }
    let gateway = start("expressions");
    assert_eq!(gateway.admin_get("/routes/expression").json(), stored);
    assert_eq!(gateway.get("/classic", &[]).status, 200);
    assert_eq!(gateway.get("/expression", &[]).status, 200);
    let classic = gateway.admin_get("/routes/classic").json();
    assert_eq!(
        (&classic["tags"], &classic["priority"]),
        (&json!(["traditional"]), &json!(0))
    );
}

#[test]
fn routes_of_another_flavor_get_the_fields_of_this_one() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    let service = json!({"name": "echo", "url": echo.url()});
    send(&gateway, "POST", "/services", &service);
    let route = json!({"name": "r", "paths": ["/r"]});
    send(&gateway, "POST", "/services/echo/routes", &route);
    assert!(gateway.stop().success());
    let gateway = launch_in(prefix.path())
        .set("router_flavor", "expressions")
        .start();
    assert_eq!(gateway.get("/r", &[]).status, 200);
    assert_eq!(gateway.admin_get("/routes/r").json()["priority"], 0);
    let expression = json!({"paths": null, "expression": "http.path == \"/e\"", "priority": 1});
    let patched = send(&gateway, "PATCH", "/routes/r", &expression);
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(gateway.get("/e", &[]).status, 200);
    assert_eq!(gateway.get("/r", &[]).status, 404);
}
