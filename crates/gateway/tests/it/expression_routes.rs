//! Expression routes with the real binary. The tests cover the fields that expressions can match, and the captures that
//! plugins receive.

use crate::launch;
use serde_json::{Value, json};
use testkit::{Client, Gateway};

/// A configuration in which each route responds with its own name and its captures.
fn configuration(routes: &[(&str, u32, &str)]) -> String {
    let mut text = String::from("_format_version: '3.0'\nroutes:\n");
    for (name, priority, expression) in routes {
        text += &format!(
            "- {{name: {name}, priority: {priority}, expression: '{expression}', plugins: ["
        );
        text += "{name: request-termination, config: {status_code: 200, echo: true}}]}\n";
    }
    text
}

fn gateway(routes: &[(&str, u32, &str)]) -> Gateway {
    launch()
        .set("router_flavor", "expressions")
        .set("proxy_listen", "0.0.0.0:0")
        .set("trusted_ips", "127.0.0.1")
        .set("lua_max_uri_args", "3")
        .configuration(&configuration(routes))
        .start()
}

/// Sends a request and returns the name of the matched route and its captures.
fn asked(gateway: &Gateway, target: &str, headers: &[(&str, &str)]) -> (String, Value) {
    let answer = gateway.get(target, headers).json();
    let name = answer["matched_route"]["name"].as_str();
    let captured = answer["request"]["uri_captures"].clone();
    (name.unwrap_or("none").to_owned(), captured)
}

#[test]
fn routes_see_the_query_the_segments_and_both_ends() {
    let gateway = gateway(&[
        ("query", 5, r#"http.queries.mode == "full mode""#),
        (
            "segments",
            4,
            r#"http.path.segments.len == 3 && http.path.segments.1 == "b""#,
        ),
        (
            "client",
            3,
            "net.src.ip in 192.0.2.0/24 && net.src.port == 4000",
        ),
        (
            "reached",
            2,
            r#"net.dst.ip == 127.0.0.1 && http.path == "/here""#,
        ),
        ("other", 1, r#"http.path ^= "/""#),
    ]);
    let name = |target, headers| asked(&gateway, target, headers).0;
    assert_eq!(name("/a/b/c?mode=full+mode", &[]), "query");
    assert_eq!(name("/?a&b&mode=full%20mode", &[]), "query");
    assert_eq!(
        name("/?a&b&c&mode=full%20mode", &[]),
        "other",
        "beyond lua_max_uri_args"
    );
    assert_eq!(name("/a//b/c/", &[]), "segments");
    assert_eq!(name("/a", &[("X-Real-IP", "192.0.2.9:4000")]), "client");
    assert_eq!(
        name("/a", &[("X-Real-IP", "192.0.2.9")]),
        "other",
        "without a port"
    );
    assert_eq!(name("/here", &[]), "reached");
}

#[test]
fn routes_match_the_address_that_each_connection_has_reached() {
    let gateway = gateway(&[
        ("first", 2, "net.dst.ip == 127.0.0.1"),
        ("second", 1, "net.dst.ip == 127.0.0.2"),
    ]);
    for (address, name) in [([127, 0, 0, 1], "first"), ([127, 0, 0, 2], "second")] {
        let mut client = Client::connect((address, gateway.proxy.port()).into());
        for _ in 0..2 {
            let answer = client.request("GET", "/", &[], b"");
            assert_eq!(answer.json()["matched_route"]["name"], name);
        }
    }
}

#[test]
fn plugins_see_what_an_expression_captured() {
    let gateway = gateway(&[(
        "captures",
        1,
        r##"http.path ~ r#"^/u/(?<uid>\d+)/(\w+)"# && any(http.headers.x_tag) ~ "^v(?P<tag>.+)""##,
    )]);
    let headers = [("X-Tag", "none"), ("X-Tag", "v7")];
    let (name, captured) = asked(&gateway, "/u/12/abc", &headers);
    assert_eq!(name, "captures");
    assert_eq!(captured["named"]["uid"], "12");
    assert_eq!(captured["named"]["tag"], "7");
    // Groups are numbered per predicate. Group 1 of the later predicate overwrites group 1 of the earlier one.
    assert_eq!(captured["unnamed"], json!(["7", "abc"]));
    assert_eq!(asked(&gateway, "/u/12/abc", &[]).0, "none");
}

#[test]
fn expressions_come_before_classic_routes_and_change_with_the_configuration() {
    let classic = "- {name: classic, paths: [/a], methods: [GET], plugins: [{name: request-termination, config: {echo: true}}]}\n";
    let gateway = gateway(&[("hidden", 9, r#"http.path == "/b""#)]);
    let load = |expression: &str| {
        let text = configuration(&[("expression", 0, expression)]) + classic;
        assert_eq!(gateway.post_config(&text).status, 201);
    };
    load(r#"http.path ^= "/a" && net.port > 0"#);
    assert_eq!(asked(&gateway, "/a", &[]).0, "expression");
    load(r#"http.path == "/b""#);
    assert_eq!(asked(&gateway, "/a", &[]).0, "classic");
    assert_eq!(asked(&gateway, "/b", &[]).0, "expression");
}
