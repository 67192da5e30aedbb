//! request-transformer between real clients and upstreams: the upstream gets the changed request in one piece, whatever
//! protocol and framing the client used.

use super::http2::Http2;
use super::{DATABASES, admin, one_service, start, workers};
use serde_json::{Value, json};
use testkit::http::encode;
use testkit::{Client, Echo, Gateway};

const PLUGIN: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f004";

/// The ways in which a client sends a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Http1,
    Chunked,
    Http2,
}

const WAYS: [Way; 3] = [Way::Http1, Way::Chunked, Way::Http2];

/// A gateway with the plugin on the route `/a`, or on the path of this route.
fn gateway(echo: &Echo, path: &str, config: &Value) -> Gateway {
    let plugin = json!({"id": PLUGIN, "name": "request-transformer", "config": config});
    let routes = json!([{"name": "a", "paths": [path], "plugins": [plugin]}]);
    let launch = workers().set("proxy_listen", "127.0.0.1:0 http2");
    start(launch, "off", &one_service(&echo.url(), routes))
}

/// Sends a request that must be answered with status 200. Returns what the upstream got.
fn send(
    gateway: &Gateway,
    way: Way,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Value {
    let answer = match way {
        Way::Http1 => testkit::request(gateway.proxy, method, path, headers, body),
        Way::Http2 => Http2::connect(gateway.proxy).request(method, path, headers, body),
        Way::Chunked => {
            let headers = [headers, &[("transfer-encoding", "chunked")]].concat();
            let mut client = Client::connect(gateway.proxy);
            let mut bytes = encode(method, path, &headers, b"");
            // Several chunks show that the plugin sees the body as a whole.
            for piece in body.chunks(7.max(body.len() / 100)) {
                bytes.extend(format!("{:x}\r\n", piece.len()).bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
            bytes.extend(b"0\r\n\r\n");
            client.send(bytes).expect("the gateway reads");
            client.receive(method).expect("a response")
        }
    };
    assert_eq!(answer.status, 200, "{way:?}: {}", answer.text());
    answer.json()
}

/// Checks that the upstream was told the length of the body that it got.
fn assert_framed(seen: &Value, way: Way) {
    let length = seen["body"].as_str().expect("a body").len().to_string();
    assert_eq!(seen["headers"]["content-length"], length, "{way:?}");
    assert_eq!(seen["headers"]["transfer-encoding"], Value::Null);
}

#[test]
fn headers_and_query_are_changed_in_the_order_of_the_rules() {
    let echo = Echo::start();
    let config = json!({
        "remove": {"headers": ["x-removed"], "querystring": ["removed"]},
        "rename": {"headers": ["x-old:x-new"], "querystring": ["old:new"]},
        "replace": {"headers": ["x-replaced:after", "x-missing:no"], "querystring": ["replaced:after"]},
        "add": {"headers": ["x-added:1", "x-new:no"], "querystring": ["added:1", "new:no"]},
        "append": {"headers": ["x-added:2"], "querystring": ["added:2"]}
    });
    let gateway = gateway(&echo, "/a", &config);
    let path = "/a?z=last&removed=1&old=moved&replaced=before";
    let headers = [
        ("x-removed", "1"),
        ("x-old", "moved"),
        ("x-replaced", "before"),
        ("x-kept", "kept"),
    ];
    for way in [Way::Http1, Way::Http2] {
        let seen = send(&gateway, way, "GET", path, &headers, b"");
        let header = |name: &str| seen["headers"][name].clone();
        assert_eq!(header("x-removed"), Value::Null);
        assert_eq!(header("x-old"), Value::Null);
        assert_eq!(header("x-missing"), Value::Null);
        assert_eq!(header("x-new"), "moved");
        assert_eq!(header("x-replaced"), "after");
        assert_eq!(header("x-added"), json!(["1", "2"]));
        assert_eq!(header("x-kept"), "kept");
        let uri = "/?added=1&added=2&new=moved&replaced=after&z=last";
        assert_eq!(seen["uri"], uri, "{way:?}");
    }
}

/// A configuration that changes the fields of a body.
fn body_rules() -> Value {
    json!({
        "remove": {"body": ["removed"]}, "rename": {"body": ["old:new"]}, "replace": {"body": ["replaced:after"]},
        "add": {"body": ["added:$(headers['x-value'])"]}
    })
}

#[test]
fn a_body_of_json_is_changed_and_framed_anew() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "/a", &body_rules());
    let body = json!({"removed": 1, "old": [true], "replaced": "before", "kept": {"deep": null}});
    let headers = [("content-type", "application/json"), ("x-value", "ü")];
    for way in WAYS {
        let seen = send(
            &gateway,
            way,
            "POST",
            "/a",
            &headers,
            body.to_string().as_bytes(),
        );
        let expected = json!({
            "new": [true], "replaced": "after", "added": "ü", "kept": {"deep": null}
        });
        assert_eq!(seen["json"], expected, "{way:?}");
        assert_framed(&seen, way);
    }
}

#[test]
fn a_form_is_changed_and_framed_anew() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "/a", &body_rules());
    let headers = [
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-value", "a&b=c d"),
    ];
    let body = b"removed=1&old=moved&replaced=before&kept=k%20k";
    for way in WAYS {
        let seen = send(&gateway, way, "POST", "/a", &headers, body);
        let expected =
            json!({"new": "moved", "replaced": "after", "added": "a&b=c d", "kept": "k k"});
        assert_eq!(seen["form"], expected, "{way:?}");
        assert_framed(&seen, way);
    }
}

#[test]
fn the_parts_of_a_multipart_body_are_changed_and_framed_anew() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "/a", &body_rules());
    let kind = "multipart/form-data; boundary=line";
    let part = |name: &str, value: &str| {
        format!("--line\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n")
    };
    let parts = [
        part("removed", "1"),
        part("old", "moved"),
        part("replaced", "before"),
        part("kept", "two\r\nlines"),
    ];
    let body = format!("{}--line--\r\n", parts.concat());
    for way in WAYS {
        let headers = [("content-type", kind), ("x-value", "v")];
        let seen = send(&gateway, way, "POST", "/a", &headers, body.as_bytes());
        let text = seen["body"].as_str().expect("a body").to_lowercase();
        let value = |name: &str| {
            let (_, rest) = text.split_once(&format!("name=\"{name}\""))?;
            let (_, rest) = rest.split_once("\r\n\r\n")?;
            Some(
                rest.split("\r\n--line")
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            )
        };
        let values = ["removed", "old", "new", "replaced", "added", "kept"].map(value);
        let expected = [
            None,
            None,
            Some("moved"),
            Some("after"),
            Some("v"),
            Some("two\r\nlines"),
        ];
        assert_eq!(
            values,
            expected.map(|value| value.map(str::to_owned)),
            "{way:?}"
        );
        assert!(text.trim_end().ends_with("--line--"));
        assert_framed(&seen, way);
    }
}

#[test]
fn a_large_body_is_changed_as_a_whole() {
    const SIZE: usize = 1_000_000;
    let echo = Echo::start();
    let gateway = gateway(&echo, "/a", &json!({"add": {"body": ["added:1"]}}));
    let body = json!({"large": "x".repeat(SIZE)}).to_string();
    let headers = [("content-type", "application/json")];
    for way in WAYS {
        let seen = send(&gateway, way, "PUT", "/a", &headers, body.as_bytes());
        assert_eq!(seen["json"]["added"], "1", "{way:?}");
        assert_eq!(seen["json"]["large"].as_str().map(str::len), Some(SIZE));
        assert_framed(&seen, way);
    }
}

#[test]
fn a_body_of_another_type_passes_unchanged() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "/a", &body_rules());
    let headers = [("content-type", "text/plain"), ("x-value", "v")];
    for way in WAYS {
        let seen = send(&gateway, way, "POST", "/a", &headers, b"old=1&removed=2");
        assert_eq!(seen["body"], "old=1&removed=2", "{way:?}");
    }
}

#[test]
fn templates_see_headers_query_and_captures_of_the_request_as_it_came() {
    let echo = Echo::start();
    let path = "~/shops/(?<shop>[a-z]+)/items/(\\d+)$";
    let config = json!({
        "remove": {"headers": ["x-user"], "querystring": ["page"]},
        "replace": {"uri": "/v2/$(uri_captures['shop'])/$(uri_captures[2])"},
        "add": {
            "headers": ["x-who:$(headers['x-user'] or 'nobody')", "x-what:$(uri_captures.shop)!"],
            "querystring": ["start:$(query_params.page or 1)"]
        }
    });
    let gateway = gateway(&echo, path, &config);
    for way in [Way::Http1, Way::Http2] {
        let user = [("x-user", "alice")];
        let seen = send(
            &gateway,
            way,
            "GET",
            "/shops/tea/items/42?page=7",
            &user,
            b"",
        );
        assert_eq!(seen["uri"], "/v2/tea/42?start=7", "{way:?}");
        let headers = &seen["headers"];
        assert_eq!(
            (&headers["x-who"], &headers["x-what"]),
            (&json!("alice"), &json!("tea!"))
        );
        assert_eq!(headers["x-user"], Value::Null);
        let seen = send(&gateway, way, "GET", "/shops/tea/items/1", &[], b"");
        assert_eq!(seen["uri"], "/v2/tea/1?start=1");
        assert_eq!(seen["headers"]["x-who"], "nobody");
    }
}

#[test]
fn a_template_that_fails_answers_500_and_the_connection_stays_usable() {
    let echo = Echo::start();
    let config = json!({"add": {"headers": ["x:$(uri_captures.a.b)"]}});
    let gateway = gateway(&echo, "/a", &config);
    let mut client = Client::connect(gateway.proxy);
    for _ in 0..2 {
        let failed = client.request("POST", "/a", &[], b"a body that nobody reads");
        assert_eq!(failed.status, 500);
        assert_eq!(failed.json()["message"], "An unexpected error occurred");
    }
    assert_eq!(echo.requests(), 0);
    gateway.wait_for_log("request-transformer");
}

#[test]
fn a_form_becomes_the_query_of_a_method_without_a_body() {
    let echo = Echo::start();
    let gateway = gateway(&echo, "/a", &json!({"http_method": "GET"}));
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    for way in WAYS {
        let seen = send(&gateway, way, "POST", "/a?x=1", &headers, b"x=2&y=3");
        assert_eq!(
            (&seen["method"], &seen["uri"]),
            (&json!("GET"), &json!("/?x=1&x=2&y=3")),
            "{way:?}"
        );
    }
}

#[test]
fn changed_rules_are_live_for_connections_that_are_open() {
    for database in DATABASES {
        let echo = Echo::start();
        let plugin = |number: usize| {
            let config = json!({"add": {"headers": [format!("x-number:{number}")]}});
            json!({"id": PLUGIN, "name": "request-transformer", "config": config})
        };
        let configuration = |number: usize| {
            let routes = json!([{"name": "a", "paths": ["/a"], "plugins": [plugin(number)]}]);
            one_service(&echo.url(), routes)
        };
        let gateway = start(workers(), database, &configuration(0));
        let mut clients: Vec<_> = (0..16).map(|_| Client::connect(gateway.proxy)).collect();
        for number in 1..20 {
            if database == "off" {
                super::apply(&gateway, database, &configuration(number));
            } else {
                let body = json!({"config": plugin(number)["config"]});
                admin(
                    &gateway,
                    "PATCH",
                    &format!("/plugins/{PLUGIN}"),
                    &body,
                    &[200],
                );
            }
            for client in &mut clients {
                let seen = client.request("GET", "/a", &[], b"").json();
                assert_eq!(
                    seen["headers"]["x-number"],
                    number.to_string(),
                    "{database}"
                );
            }
        }
    }
}
