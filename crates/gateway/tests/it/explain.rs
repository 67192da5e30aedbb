//! Explanations of routing decisions, over the Admin API and on the command line, with and without a running gateway.

use crate::{launch, launch_in};
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;
use testkit::{Gateway, Launch};

/// Routes of several kinds: two match `GET /a/b`, one nearly does, two are for HTTPS only, and one has no service.
const CONFIGURATION: &str = r#"
_format_version: "3.0"
services:
  - name: shop
    url: http://shop.internal:8080/base
    routes:
      - {name: long, paths: [/a/b]}
      - {name: short, paths: [/a]}
      - {name: posts, paths: [/a/b], methods: [POST], headers: {x-kind: [one, two]}}
      - {name: regex, paths: ["~/users/(?<id>\\d+)"], strip_path: false, preserve_host: true}
      - {name: secure, paths: [/secure], protocols: [https]}
      - {name: moved, paths: [/moved], protocols: [https], https_redirect_status_code: 301}
routes:
  - {name: alone, paths: [/alone]}
plugins:
  - {name: key-auth, instance_name: keys}
  - {name: key-auth, route: short, config: {key_names: [k]}}
  - {name: request-termination, service: shop}
  - {name: request-termination, consumer: alice}
consumers:
  - {username: alice}
"#;

fn configured() -> Gateway {
    launch().configuration(CONFIGURATION).start()
}

fn explain(gateway: &Gateway, question: &Value) -> Value {
    let answer = gateway.admin_send("POST", "/router/explain", &question.to_string());
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn names(candidates: &Value) -> Vec<(&str, &str)> {
    let candidates = candidates.as_array().expect("an array").iter();
    let names = candidates.map(|candidate| {
        let name = candidate["route"]["name"].as_str().expect("a name");
        (name, candidate["verdict"].as_str().expect("a verdict"))
    });
    names.collect()
}

fn say(launch: &Launch, words: &[&str]) -> String {
    let output = launch.other(words).output().expect("it runs");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{words:?}: {errors}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn candidates_are_listed_in_order_with_the_reason_why_others_do_not_match() {
    let gateway = configured();
    let told = explain(
        &gateway,
        &json!({"url": "http://example.com/a//b?q=1", "headers": {"x-kind": "three"}, "closest": 1}),
    );
    assert_eq!(told["matched"]["name"], "long");
    assert_eq!(told["request"]["path"], "/a/b");
    assert_eq!(told["request"]["host"], "example.com");
    assert_eq!(
        names(&told["candidates"]),
        [
            ("posts", "fails"),
            ("long", "matches"),
            ("short", "comes_later")
        ]
    );
    let reasons = &told["candidates"][0]["reasons"];
    assert_eq!(reasons[0]["part"], "http.method == \"POST\"");
    assert_eq!(reasons[0]["found"]["http.method"], json!(["GET"]));
    assert_eq!(reasons[1]["any_of"].as_array().map(Vec::len), Some(2));
    assert_eq!(reasons[1]["found"]["http.headers.x_kind"], json!(["three"]));
    assert_eq!(told["candidates"][1]["expression"], "http.path ^= \"/a/b\"");
    assert_eq!(
        told["candidates"][1]["rank"][0],
        "priority 0x0000000020000004 (1 attribute type + a plain path of 4 bytes)",
        "{told:#}"
    );
    assert_eq!(told["closest"].as_array().map(Vec::len), Some(1));
    assert_eq!(told["upstream"]["uri"], "/base?q=1");
    assert_eq!(told["upstream"]["host"], "shop.internal:8080");
    assert_eq!(told["upstream"]["stripped"], "/a/b");
    assert_eq!(told["service"]["name"], "shop");
    assert_eq!(told["answer"], Value::Null);
}

#[test]
fn plugins_are_listed_in_order_with_their_scope() {
    let gateway = configured();
    let plugins = |question: Value| {
        let told = explain(&gateway, &question);
        let plugins = told["plugins"].as_array().expect("an array").iter();
        let each = plugins.map(|plugin| {
            let text = |name: &str| plugin[name].as_str().unwrap_or("-").to_owned();
            (text("name"), text("scope"), text("instance_name"))
        });
        each.collect::<Vec<_>>()
    };
    let plugin = |name: &str, scope: &str, instance: &str| {
        (name.to_owned(), scope.to_owned(), instance.to_owned())
    };
    assert_eq!(
        plugins(json!({"path": "/a/b"})),
        [
            plugin("key-auth", "global", "keys"),
            plugin("request-termination", "service", "-")
        ]
    );
    assert_eq!(
        plugins(json!({"path": "/a", "consumer": "alice"})),
        [
            plugin("key-auth", "route", "-"),
            plugin("request-termination", "consumer", "-")
        ]
    );
    let told = explain(&gateway, &json!({"path": "/a"}));
    assert_eq!(told["plugins"][1]["consumers"], 1);
    assert_eq!(told["plugins"][0]["phases"], json!(["access"]));
}

/// Plugins that authenticate, with settings that change what they need.
const AUTHENTICATION: &str = r#"
_format_version: "3.0"
services:
  - name: shop
    url: http://shop.internal:8080/base
    routes: [{name: long, paths: [/long]}, {name: short, paths: [/short]}, {name: free, paths: [/free]}]
consumers: [{username: guest}]
plugins:
  - {name: key-auth, service: shop}
  - {name: basic-auth, service: shop, route: long}
  - name: key-auth
    route: short
    config: {key_names: [k, other], key_in_header: false, key_in_body: true, run_on_preflight: false, anonymous: guest}
  - {name: key-auth, route: free, enabled: false}
"#;

#[test]
fn authentication_plugins_say_what_a_request_needs() {
    let gateway = launch().configuration(AUTHENTICATION).start();
    let told = say(gateway.launch(), &["explain", "http://h/long"]);
    let plugins = told.split("order they run:\n").nth(1).expect("plugins");
    let lines: Vec<&str> = plugins.lines().collect();
    let key = "  key-auth (priority 1250; access): service shop, ";
    let basic = "  basic-auth (priority 1100; access): route long and service shop, ";
    assert!(lines[0].starts_with(key), "{told}");
    assert_eq!(
        lines[1],
        "    needs a key in header or query argument `apikey`, else 401"
    );
    assert!(lines[2].starts_with(basic), "{told}");
    assert_eq!(
        lines[3],
        "    needs username and password in header `Authorization` or `Proxy-Authorization`, else 401"
    );
    assert_eq!(lines[4..6], ["", "If every plugin lets the request pass:"]);
    assert!(lines[6].starts_with("Service shop ("), "{told}");
    let told = say(gateway.launch(), &["explain", "http://h/short"]);
    let needs = "    needs a key in query argument or body field `k` or `other`, else it gets the consumer \"guest\" of \
                 `anonymous`; OPTIONS requests need none\n";
    assert!(told.contains(needs), "{told}");
}

#[test]
fn a_service_without_plugins_has_no_condition() {
    let text = AUTHENTICATION.split("plugins:").next().expect("a text");
    let gateway = launch().configuration(text).start();
    let told = say(gateway.launch(), &["explain", "http://h/long"]);
    assert!(told.contains("\n\nService shop ("), "{told}");
}

#[test]
fn the_plugin_that_answers_a_request_is_logged_at_debug() {
    let gateway = launch()
        .conf("log_level = info\n")
        .configuration(AUTHENTICATION)
        .start();
    let answer = gateway.get("/long", &[]);
    assert_eq!(answer.status, 401);
    let id = answer.header("X-Kong-Request-Id").expect("an id");
    gateway.wait_for_log(&format!(
        "DEBUG a plugin answers the request plugin=\"key-auth\" status=401 request_id=\"{id}\""
    ));
}

#[test]
fn captures_and_responses_of_the_gateway_are_shown() {
    let gateway = configured();
    let told = explain(&gateway, &json!({"url": "http://h:81/users/7/x"}));
    assert_eq!(told["captures"], json!({"1": "7", "id": "7"}));
    assert_eq!(told["upstream"]["uri"], "/base/users/7/x");
    assert_eq!(told["upstream"]["host"], "h:81");
    let answer = |question: Value| explain(&gateway, &question)["answer"].clone();
    assert_eq!(answer(json!({"path": "/nothing"}))["status"], 404);
    assert_eq!(answer(json!({"url": "http://h/secure"}))["status"], 426);
    assert_eq!(answer(json!({"url": "https://h/secure"})), Value::Null);
    let moved = answer(json!({"url": "http://H:80/moved/x?y"}));
    assert_eq!(
        (&moved["status"], &moved["location"]),
        (&json!(301), &json!("https://h/moved/x?y"))
    );
    let alone = answer(json!({"path": "/alone"}));
    assert_eq!(
        (&alone["status"], &alone["after_plugins"]),
        (&json!(503), &json!(true))
    );
}

#[test]
fn a_named_route_is_explained_on_request() {
    let gateway = configured();
    let told = explain(
        &gateway,
        &json!({"path": "/nothing", "route": "posts", "closest": 0}),
    );
    assert_eq!(told["route"]["name"], "posts");
    let reasons = told["route"]["candidates"][0]["reasons"].as_array();
    assert_eq!(reasons.map(Vec::len), Some(3), "{told:#}");
    assert_eq!(told["closest"], json!([]));
    let unknown = gateway.admin_send("POST", "/router/explain", r#"{"route": "x"}"#);
    assert_eq!(unknown.status, 400);
    assert_eq!(
        unknown.json()["fields"],
        json!({"route": "no route has the id or name x"})
    );
}

#[test]
fn a_named_route_is_printed_once() {
    let gateway = configured();
    let told = |path: &str, route: &str| {
        let url = format!("http://example.com{path}");
        say(gateway.launch(), &["explain", &url, "--route", route])
    };
    // The first is one of the closest routes, the second matches.
    let texts = [
        (told("/nothing", "posts"), "The route posts ("),
        (told("/a/b", "long"), "Tried, in this order:"),
    ];
    for ((text, heading), name) in texts.iter().zip(["posts", "long"]) {
        assert!(text.contains(heading), "{text}");
        let line = format!("  {name} (");
        let printed = text.lines().filter(|one| one.starts_with(&line));
        assert_eq!(printed.count(), 1, "{text}");
    }
}

#[test]
fn errors_in_an_explain_request_are_reported_by_field() {
    let gateway = configured();
    let answer = gateway.admin_send("POST", "/router/explain", r#"{"url": "x", "closest": "1"}"#);
    assert_eq!(answer.status, 400);
    let fields = answer.json()["fields"].clone();
    assert!(fields["url"].is_string() && fields["closest"].is_string());
}

#[test]
fn the_command_line_explains_gateway_store_and_document_alike() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let file = prefix.path().join("explained.yml");
    // Ids decide between routes of equal priority, and each load generates the missing ones. The fixed id keeps the
    // order the same for every load.
    let text = CONFIGURATION.replace(
        "name: long,",
        "name: long, id: 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1ef,",
    );
    std::fs::write(&file, &text).expect("writable");
    let file = file.to_str().expect("a path in UTF-8");
    let gateway = launch_in(prefix.path()).configuration(&text).start();
    let words = [
        "explain",
        "GET",
        "https://example.com/a/b",
        "-H",
        "x-kind: one",
    ];
    let text = say(gateway.launch(), &words);
    for part in [
        "GET https://example.com/a/b gets the route long (5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1ef)\n",
        "http.method == \"POST\" is false\n",
        "http.method is \"GET\"\n",
        "matches too, but comes later\n",
        "    position 1: priority ",
        "key-auth (priority 1250; access): global, keys ",
        "asked for /base\n",
    ] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
    let nothing = say(gateway.launch(), &["explain", "http://other.example/x"]);
    assert!(
        nothing.contains("\nNo route is a candidate for this request.\n"),
        "{nothing}"
    );
    let json_of = |launch: &Launch, more: &[&str]| -> Value {
        let words = [&words[..], &["--json"], more].concat();
        let mut told: Value = serde_json::from_str(&say(launch, &words)).expect("JSON");
        told["revision"].take();
        told
    };
    let running = json_of(gateway.launch(), &[]);
    assert_eq!(running["matched"]["name"], "long");
    gateway.stop();
    let launch = launch_in(prefix.path());
    assert_eq!(json_of(&launch, &[]), running);
    let of_document = json_of(&launch, &["--config", file]);
    assert_eq!(of_document["matched"], running["matched"]);
    assert_eq!(
        names(&of_document["candidates"]),
        names(&running["candidates"])
    );
    assert_eq!(of_document["plugins"].as_array().map(Vec::len), Some(2));
}

#[test]
fn explaining_without_gateway_and_store_fails() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let launch = launch_in(prefix.path());
    let output = launch.other(&["explain", "http://h/"]).output();
    let output = output.expect("it runs");
    assert!(!output.status.success());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    for part in ["no gateway is running", "no store in", "--config"] {
        assert!(errors.contains(part), "{errors}");
    }
}

#[test]
fn conflicts_are_listed_and_bounded() {
    let gateway = configured();
    let answer = gateway.admin_get("/router/conflicts?size=10&route=long");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let told = answer.json();
    assert!(
        told["never"].is_array() && told["ties"].is_array(),
        "{told}"
    );
    assert_eq!(gateway.admin_get("/router/conflicts?size=0").status, 400);
    assert_eq!(gateway.admin_get("/router/conflicts?route=x").status, 400);
}

/// An HTTP route (`new`) and a stream route (`some`) that can never match in any flavor, because another route always
/// matches first.
const SHADOWED: &str = r#"
_format_version: "3.0"
services:
  - name: s
    url: tcp://s.internal:25
    routes:
      - {name: old, id: 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1e2, paths: [/same], created_at: 1}
      - {name: new, id: 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1e1, paths: [/same], created_at: 2}
      - {name: all, id: 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1e4, created_at: 1,
         protocols: [tcp], destinations: [{ip: 10.0.0.0/8, port: 25}, {ip: "fd00::/8"}]}
      - {name: some, id: 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1e3, created_at: 2,
         protocols: [tcp], destinations: [{ip: 10.1.0.0/16, port: 25}]}
"#;

#[test]
fn conflicts_of_streams_are_listed_with_those_of_requests() {
    for flavor in ["traditional", "traditional_compatible", "expressions"] {
        let launch = launch().set("router_flavor", flavor);
        let gateway = launch.configuration(SHADOWED).start();
        let told = |query: &str| {
            let answer = gateway.admin_get(&format!("/router/conflicts{query}"));
            assert_eq!(answer.status, 200, "{}", answer.text());
            answer.json()
        };
        let pairs = |told: &Value| -> Vec<_> {
            let ties = told["ties"].as_array().expect("an array").iter();
            let name = |route: &Value| route["name"].as_str().expect("a name").to_owned();
            let pair = ties.map(|tie| (name(&tie["first"]), name(&tie["second"])));
            pair.collect()
        };
        let pair = |first: &str, second: &str| (first.to_owned(), second.to_owned());
        let all = told("");
        assert_eq!(
            pairs(&all),
            [pair("old", "new"), pair("all", "some")],
            "{flavor} {all:#}"
        );
        assert_eq!(all["never"].as_array().map(Vec::len), Some(2), "{all:#}");
        let never = &all["never"][1];
        assert_eq!(
            (
                &never["route"]["name"],
                &never["subsystem"],
                &never["whole"]
            ),
            (&json!("some"), &json!("stream"), &json!(true)),
        );
        assert_eq!(never["reason"], "shadowed");
        assert_eq!(never["by"][0]["name"], "all");
        assert_eq!(
            (&all["complete"], &all["undecided"]),
            (&json!(true), &json!(0))
        );
        let of_one = told("?route=some");
        assert_eq!(pairs(&of_one), [pair("all", "some")]);
        let first_only = told("?size=1");
        assert_eq!(pairs(&first_only), [pair("old", "new")]);
        assert_eq!(first_only["truncated"], true);
        // Both routes of the conflict match its example request. The gateway chooses the first one.
        let mut example = all["ties"][1]["example"].clone();
        example["route"] = json!("some");
        let explained = explain(&gateway, &example);
        assert_eq!(explained["matched"]["name"], "all", "{explained:#}");
        let verdict = &explained["route"]["candidates"][0]["verdict"];
        assert_eq!(verdict, "comes_later", "{explained:#}");
    }
}

#[test]
fn streams_are_explained_by_addresses_and_server_names() {
    let configuration = r#"
_format_version: "3.0"
services:
  - name: mail
    url: tcp://mail.internal:25
    routes:
      - {name: named, protocols: [tls], snis: [mail.example]}
      - {name: port, protocols: [tcp], destinations: [{port: 25}]}
      - {name: both, protocols: [tcp], destinations: [{port: 25}], sources: [{ip: 10.0.0.0/8}]}
"#;
    let gateway = launch().configuration(configuration).start();
    let told = explain(
        &gateway,
        &json!({"protocol": "tls", "sni": "x", "source": "192.0.2.1:9", "destination": ":25"}),
    );
    assert_eq!(told["matched"]["name"], "port", "{told:#}");
    assert_eq!(told["service"]["host"], "mail.internal");
    assert_eq!(
        names(&told["candidates"]),
        [("both", "fails"), ("named", "fails"), ("port", "matches")]
    );
    let reason = &told["candidates"][0]["reasons"][0];
    assert_eq!(reason["found"]["net.src.ip"], json!(["192.0.2.1"]));
    let told = explain(&gateway, &json!({"protocol": "tls", "sni": "Mail.example"}));
    assert_eq!(told["matched"]["name"], "named", "{told:#}");
    // The `snis` of a route do not restrict connections without TLS, here and in Kong.
    let told = explain(&gateway, &json!({"protocol": "udp", "destination": ":53"}));
    assert_eq!(told["matched"]["name"], "named", "{told:#}");
    let told = explain(
        &gateway,
        &json!({"protocol": "tls", "sni": "x", "destination": ":53"}),
    );
    assert_eq!(told["matched"], Value::Null);
    assert_eq!(told["answer"]["status"], 500);
}

#[test]
fn streams_are_explained_with_their_plugins() {
    let configuration = r#"
_format_version: "3.0"
services:
  - name: mail
    url: tcp://mail.internal:25
    routes:
      - name: guarded
        protocols: [tcp]
        destinations: [{port: 25}]
        plugins:
          - {name: ip-restriction, protocols: [tcp, http], config: {allow: [10.0.0.1]}}
          - {name: request-termination, protocols: [http]}
      - {name: open, protocols: [tcp], destinations: [{port: 26}]}
routes:
  - {name: lost, protocols: [tcp], destinations: [{port: 27}]}
"#;
    let gateway = launch().configuration(configuration).start();
    let ask = |port: u16| {
        let destination = format!(":{port}");
        explain(
            &gateway,
            &json!({"protocol": "tcp", "destination": destination}),
        )
    };
    let told = ask(25);
    let plugins = told["plugins"].as_array().expect("a list");
    let [guard] = &plugins[..] else {
        panic!("not one plugin: {told:#}");
    };
    assert_eq!(guard["name"], "ip-restriction");
    assert_eq!(guard["scope"], "route");
    assert_eq!(guard["refuses"], Value::Null);
    assert_eq!(told["answer"], Value::Null);
    let told = ask(26);
    assert_eq!(told["plugins"], json!([]));
    assert_eq!(told["answer"], Value::Null);
    assert_eq!(ask(27)["answer"]["status"], 503);
}

#[test]
fn writes_warn_of_conflicts_on_request() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    let write = |path: &str, body: &str| {
        let answer = gateway.admin_send("POST", path, body);
        assert!(answer.status < 300, "{}", answer.text());
        answer.header("warning").map(str::to_owned)
    };
    let route =
        |name: &str| format!(r#"{{"name": "{name}", "paths": ["/same"], "service": null}}"#);
    assert_eq!(write("/routes?warn=conflicts", &route("one")), None);
    let warning = write("/routes?warn=conflicts", &route("two")).expect("a warning");
    assert!(
        warning.starts_with("299 - \"") && warning.contains("one") && warning.contains("two"),
        "{warning}"
    );
    assert_eq!(write("/routes", &route("three")), None);
    let change = |name: &str, dry_run: bool| {
        json!({
            "changes": [{"action": "create", "type": "routes", "data": {"name": name, "paths": ["/same"]}}],
            "dry_run": dry_run,
        })
        .to_string()
    };
    for (name, dry_run) in [("four", true), ("five", false)] {
        let warning = write("/changes?warn=conflicts", &change(name, dry_run));
        assert!(
            warning.is_some_and(|warning| warning.contains(name)),
            "{name}"
        );
    }
    assert_eq!(gateway.admin_get("/routes/four").status, 404);
    let stream = |name: &str| {
        format!(
            r#"{{"name": "{name}", "protocols": ["tcp"], "destinations": [{{"port": 25}}], "service": null}}"#
        )
    };
    assert_eq!(write("/routes?warn=conflicts", &stream("six")), None);
    let warning = write("/routes?warn=conflicts", &stream("seven")).expect("a warning");
    assert!(
        warning.contains("stream") && warning.contains("six") && warning.contains("seven"),
        "{warning}"
    );
}

/// Many similar routes. A conflict search among them runs until it reaches its limit, so it takes long.
fn alike() -> String {
    let routes = (0..20).map(|route| {
        let hosts: Vec<_> = (0..1000).map(|host| format!("*.h{host}.test")).collect();
        json!({"name": format!("r{route}"), "hosts": hosts, "paths": ["/a", format!("~/b.*{route}")]})
    });
    let service = json!({"name": "s", "host": "h", "routes": routes.collect::<Vec<_>>()});
    json!({"_format_version": "3.0", "services": [service]}).to_string()
}

#[test]
fn an_explanation_does_not_wait_for_searches_for_conflicts() {
    let gateway = launch().configuration(&alike()).start();
    let searching: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut client = TcpStream::connect(gateway.admin).expect("it listens");
            let request = b"GET /router/conflicts HTTP/1.1\r\nHost: a\r\n\r\n";
            client.write_all(request).expect("it reads");
            client
        })
        .collect();
    let told = explain(&gateway, &json!({"path": "/a", "host": "x.h1.test"}));
    assert_eq!(told["service"]["name"], "s");
    for client in searching {
        client.set_nonblocking(true).expect("a socket");
        let answered = client.peek(&mut [0]);
        assert!(
            answered.is_err(),
            "a conflict search ended before the explanation"
        );
    }
}

#[test]
fn plugins_that_are_not_implemented_are_listed_with_what_happens() {
    let gateway = launch().configuration(
        "_format_version: '3.0'\nroutes: [{name: r, paths: [/r], plugins: [{name: grpc-gateway}]}]\n\
         plugins: [{name: acme, config: {account_email: a@b.test}}, {name: key-auth}]\n",
    );
    let gateway = gateway.start();
    let told = explain(&gateway, &json!({"path": "/r"}));
    let plugins = told["plugins"].as_array().expect("an array").iter();
    let plugins: Vec<_> = plugins
        .map(|one| {
            (
                &one["name"],
                &one["scope"],
                &one["refuses"],
                &one["ignored"],
            )
        })
        .collect();
    let (no, yes) = (&Value::Null, &Value::Bool(true));
    let (global, route) = (&json!("global"), &json!("route"));
    assert_eq!(
        plugins,
        [
            (&json!("acme"), global, no, yes),
            (&json!("key-auth"), global, no, no),
            (&json!("grpc-gateway"), route, yes, no),
        ]
    );
    let text = say(gateway.launch(), &["explain", "http://h/r"]);
    for wanted in [
        "; not implemented: every request it applies to gets 500\n",
        "; not implemented: it is ignored\n",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
}

#[test]
fn writes_of_plugins_that_are_not_implemented_get_a_warning() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path()).start();
    let write = |method: &str, path: &str, body: Value| {
        let answer = gateway.admin_send(method, path, &body.to_string());
        assert!(answer.status < 300, "{}", answer.text());
        answer.header("warning").map(str::to_owned)
    };
    let route = json!({"name": "search", "paths": ["/search"]});
    assert_eq!(write("POST", "/routes", route), None);
    let guarded = "299 - \"plugin ai-prompt-guard is not implemented: every request it applies to (routes: search) gets 500\"";
    let ignored = "299 - \"plugin acme is not implemented: it is ignored (all requests)\"";
    let id = "9e8f0c1a-55a4-4d0c-8d2e-9f7b6f1d7f10";
    let guard = json!({"name": "ai-prompt-guard", "config": {"allow_patterns": ["a"]}});
    let path = format!("/routes/search/plugins/{id}");
    assert_eq!(write("PUT", &path, guard).as_deref(), Some(guarded));
    let path = format!("/plugins/{id}");
    let deny = json!({"config": {"allow_patterns": null, "deny_patterns": ["a"]}});
    assert_eq!(write("PATCH", &path, deny).as_deref(), Some(guarded));
    let disabled = json!({"enabled": false});
    assert_eq!(write("PATCH", &path, disabled), None);
    assert_eq!(write("POST", "/plugins", json!({"name": "key-auth"})), None);
    let limit = json!({"name": "rate-limiting", "config": {"hour": 1, "policy": "cluster"}});
    let cluster = "299 - \"plugin rate-limiting does not implement the policy cluster: it counts on each node as the policy \
                   local does (all requests)\"";
    assert_eq!(write("POST", "/plugins", limit).as_deref(), Some(cluster));
    let cors = json!({"name": "cors", "config": {"credentials": true}});
    let warning = write("POST", "/plugins", cors).unwrap_or_default();
    assert!(
        warning.contains("every website may send requests with the credentials"),
        "{warning}"
    );
    let acme = json!({"name": "acme", "config": {"account_email": "a@b.test"}});
    for dry_run in [true, false] {
        let changes = json!({
            "changes": [{"action": "create", "type": "plugins", "data": acme}],
            "dry_run": dry_run,
        });
        let warning = write("POST", "/changes", changes);
        assert_eq!(warning.as_deref(), Some(ignored), "{dry_run}");
    }
}

#[test]
fn a_posted_configuration_gets_warnings() {
    let gateway = launch().set("database", "off").start();
    let answer = gateway.post_config(
        "_format_version: '3.0'\nplugins:\n- name: acme\n  config: {account_email: a@b.test}\n  name: acme\n",
    );
    assert_eq!(answer.status, 201, "{}", answer.text());
    let warnings = answer.headers.iter();
    let warnings: Vec<&str> = warnings
        .filter(|(name, _)| name.eq_ignore_ascii_case("warning"))
        .map(|(_, value)| value.as_str())
        .collect();
    assert_eq!(
        warnings,
        [
            "299 - \"the declarative configuration: line 5: `name` was given already in line 3; the later value is used\"",
            "299 - \"plugin acme is not implemented: it is ignored (all requests)\"",
        ]
    );
}
