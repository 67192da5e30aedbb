//! The log record, for requests and sessions of all kinds.

use super::*;
use crate::testing::FakeEntities;
use crate::{
    Consumer, Credential, EndedStreamCx, EntityRef, HeaderValue, LogField, LogFieldMode, NoNames,
    ScopeSet, StreamConfigured, StreamEntry, StreamProtocol, StreamSession, TlsInfo,
    ToldCredential,
};
use model::entities::ConsumerId;
use model::{EntityKind, Value};
use net::http1::{Limits, RequestHead};
use serde_json::{Value as Json, json};
use std::time::UNIX_EPOCH;
use uuid::Uuid;

const TLS: TlsInfo = TlsInfo {
    version: "TLSv1.3",
    cipher: "TLS_AES_256_GCM_SHA384",
    client_verify: "NONE",
};

fn head(text: &str) -> RequestHead {
    let parsed = RequestHead::parse(text.as_bytes(), &Limits::default()).unwrap();
    parsed.expect("the head is complete").0
}

fn reference(id: u128, name: Option<&'static str>) -> EntityRef<'static> {
    EntityRef {
        id: Uuid::from_u128(id),
        name,
    }
}

fn attempt(port: u16, end: TryEnd) -> Try {
    Try {
        address: Some(SocketAddr::from(([127, 0, 0, 1], port))),
        after: Duration::from_micros(1500),
        choosing: Duration::from_micros(2500),
        took: Duration::from_millis(5),
        end,
    }
}

fn entry() -> LogEntry<'static> {
    LogEntry {
        status: 200,
        origin: Origin::Upstream,
        upstream_status: Some(200),
        started_at: UNIX_EPOCH + Duration::from_millis(1_700_000_000_123),
        latencies: Latencies {
            request: Duration::from_millis(10),
            gateway: Duration::from_millis(1),
            upstream: Some(Duration::from_millis(7)),
            receive: Duration::from_millis(2),
        },
        tries: &[],
        request_size: 77,
        response_size: 190,
        response_head: b"",
        response_head_size: 0,
        upstream_path: b"/up",
        upstream_body: None,
        reason: None,
    }
}

/// Returns the record of a request, which `change` may change before.
fn try_record(
    text: &str,
    entities: FakeEntities,
    entry: &LogEntry<'_>,
    change: impl FnOnce(&mut Request<'_>, &mut RequestState),
) -> Result<Json, RecordError> {
    let head = head(text);
    let mut request = Request::bare(&head);
    let mut state = RequestState::default();
    change(&mut request, &mut state);
    let node = Node::with_entities(Arc::new(entities)).unwrap();
    let configured = Configured {
        scopes: ScopeSet::GLOBAL,
        consumer: None,
        plugin: 0,
        names: &NoNames,
    };
    let cx = LogCx {
        request: &request,
        state: &mut state,
        configured,
        node: &node,
        entry,
    };
    let record = cx.record()?;
    Ok(serde_json::from_slice(&record).unwrap())
}

fn record(
    text: &str,
    entry: &LogEntry<'_>,
    change: impl FnOnce(&mut Request<'_>, &mut RequestState),
) -> Json {
    try_record(text, FakeEntities::default(), entry, change).unwrap()
}

const GET: &str = "GET /a?b=1 HTTP/1.1\r\nHost: a.test\r\n\r\n";

#[test]
fn a_request_without_a_route_has_neither_tries_nor_entities() {
    let mut entry = entry();
    (entry.status, entry.origin) = (404, Origin::Gateway);
    entry.upstream_path = b"";
    entry.latencies.upstream = None;
    let expected = json!({
        "request": {
            "id": "0123456789abcdef0123456789abcdef", "uri": "/a?b=1", "url": "http://a:80/a?b=1",
            "querystring": {"b": "1"}, "method": "GET", "headers": {"host": "a.test"}, "size": 77
        },
        "upstream_uri": "", "upstream_status": "",
        "response": {"status": 404, "headers": {}, "size": 190},
        "latencies": {"kong": 1, "proxy": -1, "request": 10, "receive": 0},
        "client_ip": "127.0.0.1", "started_at": 1_700_000_000_123_u64, "source": "kong",
        "workspace": "0dc6f45b-8f8d-40d2-a504-473544ee190b", "workspace_name": "default"
    });
    assert_eq!(record(GET, &entry, |_, _| {}), expected);
}

#[test]
fn a_proxied_request_has_its_tries_and_whole_entities() {
    let id = |number: u128| Uuid::from_u128(number).to_string();
    let workspace = "0dc6f45b-8f8d-40d2-a504-473544ee190b";
    let entities = FakeEntities::default()
        .with(
            EntityKind::Routes,
            json!({"id": id(1), "hosts": ["a"], "paths": null, "service": {"id": id(2)}}),
        )
        .with(
            EntityKind::Services,
            json!({"id": id(2), "name": "s", "port": 80, "tags": []}),
        )
        .with(
            EntityKind::Consumers,
            json!({"id": id(3), "username": "bob", "custom_id": null}),
        );
    let tries = [
        attempt(81, TryEnd::Failed(502)),
        attempt(82, TryEnd::Answered(201)),
    ];
    let entry = LogEntry {
        tries: &tries,
        ..entry()
    };
    let record = try_record(GET, entities, &entry, |request, state| {
        request.route = Some(reference(1, None));
        request.service = Some(reference(2, Some("s")));
        (request.scheme, request.port) = (crate::Scheme::Https, 443);
        request.tls = Some(&TLS);
        state.consumer = Some(Arc::new(Consumer {
            id: ConsumerId(Uuid::from_u128(3)),
            username: Some("bob".into()),
            custom_id: None,
        }));
        state.credential = Some(Credential {
            id: Uuid::from_u128(4),
        });
    });
    let record = record.unwrap();
    let try_of = |port: u16| {
        json!({
            "balancer_start": 1_700_000_000_124_u64, "balancer_start_ns": 1_700_000_000_124_500_000_u64,
            "ip": "127.0.0.1", "port": port, "balancer_latency": 2, "balancer_latency_ns": 2_500_000
        })
    };
    let mut failed = try_of(81);
    (failed["state"], failed["code"]) = (json!("failed"), json!(502));
    assert_eq!(record["tries"], json!([failed, try_of(82)]));
    assert_eq!(record["upstream_status"], "502, 201");
    assert_eq!(record["upstream_uri"], "/up?b=1");
    assert_eq!(record["source"], "upstream");
    assert_eq!(
        record["latencies"],
        json!({"kong": 1, "proxy": 7, "request": 10, "receive": 2})
    );
    assert_eq!(record["request"]["url"], "https://a:443/a?b=1");
    assert_eq!(
        record["request"]["tls"],
        json!({"version": "TLSv1.3", "cipher": "TLS_AES_256_GCM_SHA384", "client_verify": "NONE"})
    );
    assert_eq!(
        record["route"],
        json!({"id": id(1), "hosts": ["a"], "service": {"id": id(2)}, "ws_id": workspace})
    );
    assert_eq!(
        record["service"],
        json!({"id": id(2), "name": "s", "port": 80, "tags": [], "ws_id": workspace})
    );
    assert_eq!(record["consumer"], json!({"id": id(3), "username": "bob"}));
    assert_eq!(record["authenticated_entity"], json!({"id": id(4)}));
}

#[test]
fn entities_that_are_gone_or_unreadable_have_their_id_and_name() {
    let (gone, broken) = (Uuid::from_u128(1), Uuid::from_u128(2));
    let entities = FakeEntities::default().failing(broken);
    let record = try_record(GET, entities, &entry(), |request, _| {
        request.route = Some(reference(1, None));
        request.service = Some(reference(2, Some("s")));
    });
    let record = record.unwrap();
    assert_eq!(record["route"], json!({"id": gone}));
    assert_eq!(record["service"], json!({"id": broken, "name": "s"}));
    assert_eq!(record["tries"], json!([]));
}

#[test]
fn a_try_without_an_address_is_not_shown() {
    let tries = [
        Try {
            address: None,
            ..attempt(1, TryEnd::Failed(503))
        },
        attempt(2, TryEnd::Abandoned),
    ];
    let entry = LogEntry {
        tries: &tries,
        ..entry()
    };
    let record = record(GET, &entry, |request, _| {
        request.route = Some(reference(1, None));
    });
    assert_eq!(record["tries"].as_array().unwrap().len(), 1);
    assert_eq!(record["upstream_status"], "-");
}

#[test]
fn headers_and_arguments_that_occur_several_times_are_lists() {
    let text = "GET /?a=1&b&a=%22&c=&a HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\nX-B: 3\r\nX-A: 4\r\n\r\n";
    let entry = LogEntry {
        response_head: b"HTTP/1.1 200 OK\r\nSet-Cookie: a\r\nset-cookie:  b \r\nX-Empty:\r\n\r\n",
        response_head_size: 0,
        ..entry()
    };
    let record = record(text, &entry, |_, _| {});
    assert_eq!(
        record["request"]["querystring"],
        json!({"a": ["1", "\"", true], "b": true, "c": ""})
    );
    assert_eq!(
        record["request"]["headers"],
        json!({"host": "a", "x-a": ["1", "2", "4"], "x-b": "3"})
    );
    assert_eq!(
        record["response"]["headers"],
        json!({"set-cookie": ["a", "b"], "x-empty": ""})
    );
}

#[test]
fn credentials_of_the_request_are_not_shown() {
    let text = "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\r\n\
        PROXY-Authorization: secret\r\nX-Authorization: kept\r\n\r\n";
    let record = record(text, &entry(), |_, _| {});
    assert_eq!(
        record["request"]["headers"],
        json!({
            "host": "a", "authorization": "REDACTED", "proxy-authorization": "REDACTED", "x-authorization": "kept"
        })
    );
}

#[test]
fn changes_of_plugins_are_shown_but_the_uri_is_the_one_received() {
    let record = record(GET, &entry(), |request, _| {
        request.upstream.method = Some("POST".into());
        request.upstream.query = Some(b"c=2".to_vec());
        let headers = &mut request.upstream.headers;
        headers.set("X-Added", HeaderValue::from(" 1\t"));
        headers.remove("host");
    });
    assert_eq!(record["request"]["uri"], "/a?b=1");
    assert_eq!(record["request"]["method"], "POST");
    assert_eq!(record["request"]["querystring"], json!({"c": "2"}));
    assert_eq!(record["request"]["headers"], json!({"x-added": " 1\t"}));
    assert_eq!(record["upstream_uri"], "/up?c=2");
}

#[test]
fn the_numbers_of_headers_and_arguments_are_limited() {
    let lines: String = (0..150)
        .map(|number| format!("X-{number}: {number}\r\n"))
        .collect();
    let args: String = (0..150).map(|number| format!("a{number}&")).collect();
    let text = format!("GET /?{args} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
    let sent = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
    let entry = LogEntry {
        response_head: sent.as_bytes(),
        response_head_size: 0,
        ..entry()
    };
    let record = record(&text, &entry, |request, _| {
        request
            .upstream
            .headers
            .set("X-Added", HeaderValue::from("1"));
    });
    let length = |value: &Json| value.as_object().unwrap().len();
    assert_eq!(length(&record["request"]["headers"]), 100);
    assert_eq!(length(&record["request"]["querystring"]), 100);
    assert_eq!(length(&record["response"]["headers"]), 100);
}

#[test]
fn any_bytes_give_valid_json() {
    let head = RequestHead::parse(
        b"GET /?a=%ff%00%22 HTTP/1.1\r\nHost: a\r\nX-A: \xff\"\\\tb\xc3\xa9\r\n\r\n",
        &Limits::default(),
    );
    let head = head.unwrap().expect("the head is complete").0;
    let request = Request::bare(&head);
    let mut state = RequestState::default();
    let (node, entry) = (Node::bare().unwrap(), entry());
    let cx = LogCx {
        request: &request,
        state: &mut state,
        configured: Configured {
            scopes: ScopeSet::GLOBAL,
            consumer: None,
            plugin: 0,
            names: &NoNames,
        },
        node: &node,
        entry: &entry,
    };
    let record: Json = serde_json::from_slice(&cx.record().unwrap()).unwrap();
    assert_eq!(record["request"]["headers"]["x-a"], "\u{fffd}\"\\\tb\u{e9}");
    assert_eq!(record["request"]["querystring"]["a"], "\u{fffd}\0\"");
}

fn field(key: &str, value: Option<Json>, mode: LogFieldMode) -> LogField {
    LogField {
        key: key.into(),
        value: value.map(|value| serde_json::from_value::<Value>(value).unwrap()),
        mode,
    }
}

fn changed(fields: Vec<LogField>) -> Result<Json, RecordError> {
    try_record(GET, FakeEntities::default(), &entry(), |request, state| {
        request.service = Some(reference(2, Some("s")));
        state.log_fields = fields;
    })
}

#[test]
fn new_fields_are_appended() {
    use LogFieldMode::{Add, Replace, Set};
    let record = changed(vec![
        field("correlation_id", Some(json!("x\"y")), Set),
        field("added", Some(json!({"a": [1, 2.5, null]})), Add),
        field("replaced", Some(json!(1)), Replace),
        field("removed", None, Set),
    ]);
    let record = record.unwrap();
    assert_eq!(record["correlation_id"], "x\"y");
    assert_eq!(record["added"], json!({"a": [1, 2.5, null]}));
    assert!(record.get("replaced").is_none() && record.get("removed").is_none());
}

#[test]
fn fields_are_set_added_replaced_and_removed_at_dotted_keys() {
    use LogFieldMode::{Add, Replace, Set};
    let record = changed(vec![
        field("mine", Some(json!(1)), Set),
        field("mine", Some(json!(2)), Set),
        field("deep.er.key", Some(json!("v")), Set),
        field("client_ip", Some(json!("hidden")), Set),
        field("source", Some(json!("x")), Add),
        field("fresh", Some(json!(true)), Add),
        field("nothing.here", Some(json!(1)), Replace),
        field("upstream_status", Some(json!("r")), Replace),
        field("request.headers", None, Set),
        field("service", None, Set),
        field(".dot", Some(json!(1)), Set),
    ]);
    let record = record.unwrap();
    assert_eq!(record["mine"], 2);
    assert_eq!(record["deep"], json!({"er": {"key": "v"}}));
    assert_eq!(record["client_ip"], "hidden");
    assert_eq!(record["source"], "upstream");
    assert_eq!(record["fresh"], true);
    assert_eq!(record["upstream_status"], "r");
    assert_eq!(record[".dot"], 1);
    assert_eq!(record["request"]["uri"], "/a?b=1");
    assert!(record["request"].get("headers").is_none());
    assert!(record.get("service").is_none() && record.get("nothing").is_none());
}

#[test]
fn a_key_below_a_value_that_is_no_object_is_an_error() {
    let error = changed(vec![field(
        "client_ip.x",
        Some(json!(1)),
        LogFieldMode::Set,
    )]);
    assert_eq!(
        error.unwrap_err().to_string(),
        "the field client_ip.x of the log record cannot be set, because client_ip is not an object"
    );
}

fn stream_record(
    tries: &[Try],
    tls: Option<&TlsInfo>,
    protocol: StreamProtocol,
    (route, records_reason): (Option<EntityRef<'_>>, bool),
) -> Json {
    let client = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 5));
    let session = StreamSession {
        protocol,
        client: crate::Client {
            ip: client.ip(),
            port: client.port(),
        },
        peer: client,
        port: 9000,
        sni: None,
        tls,
        route,
        service: None,
        slot: None,
    };
    let entry = StreamEntry {
        status: 200,
        started_at: UNIX_EPOCH + Duration::from_secs(1),
        latencies: Latencies {
            request: Duration::from_millis(30),
            gateway: Duration::from_millis(3),
            ..Latencies::default()
        },
        tries,
        received: 6,
        sent: 7,
        upstream_received: 8,
        upstream_sent: 9,
        reason: Some(crate::Reason::ReadTimeout),
    };
    let mut node = Arc::into_inner(Node::bare().unwrap()).unwrap();
    node.records_reason = records_reason;
    let node = Arc::new(node);
    let cx = EndedStreamCx {
        session: &session,
        configured: StreamConfigured {
            scope: crate::Scope::default(),
            name: None,
        },
        node: &node,
        entry: &entry,
    };
    let read = |record: &[u8]| serde_json::from_slice(record).unwrap();
    cx.with_record(&[], read).unwrap()
}

#[test]
fn a_session_has_a_record_of_its_own() {
    let answered = [attempt(81, TryEnd::Answered(200))];
    let route = Some(reference(1, Some("r")));
    let record = stream_record(&answered, None, StreamProtocol::Tcp, (route, true));
    assert_eq!(
        record["session"],
        json!({"received": 6, "sent": 7, "status": 200, "server_port": 9000})
    );
    assert_eq!(record["upstream"], json!({"received": 8, "sent": 9}));
    assert_eq!(record["latencies"], json!({"kong": 3, "session": 30}));
    assert_eq!(record["tries"][0]["port"], 81);
    assert_eq!(record["route"]["name"], "r");
    assert_eq!(record["client_ip"], "::1");
    assert_eq!(record["started_at"], 1000);
    assert_eq!(record["workspace_name"], "default");
    assert_eq!(record["reason"], "read_timeout");
}

#[test]
fn a_session_with_tls_has_no_port() {
    let record = stream_record(&[], Some(&TLS), StreamProtocol::Tls, (None, false));
    assert!(record.get("reason").is_none());
    assert_eq!(record["session"]["tls"]["version"], "TLSv1.3");
    assert!(record["session"].get("server_port").is_none());
    assert_eq!(record["upstream"], json!({}));
    assert!(record.get("tries").is_none());
}

#[test]
fn failed_tries_of_a_session_have_no_status() {
    let tries = [
        attempt(81, TryEnd::Failed(502)),
        attempt(82, TryEnd::Answered(200)),
    ];
    let route = Some(reference(1, None));
    let record = stream_record(&tries, None, StreamProtocol::Udp, (route, false));
    assert_eq!(record["tries"][0]["code"], 0);
    assert_eq!(
        record["upstream"],
        json!({"received": "0, 8", "sent": "0, 9"})
    );
}

/// Returns the response headers of the record for this head.
fn response_headers(head: &'static [u8]) -> Json {
    let entry = LogEntry {
        response_head: head,
        response_head_size: 0,
        ..entry()
    };
    record(GET, &entry, |_, _| {})["response"]["headers"].clone()
}

#[test]
fn a_body_after_the_response_head_is_not_in_the_record() {
    let head = b"HTTP/1.1 401 Unauthorized\r\nContent-Type: application/json\r\nServer: a\r\n\r\n\
        {\n  \"message\":\"No API key\",\r\n\r\n  \"request_id\":\"1\"\n}\n";
    let expected = json!({"content-type": "application/json", "server": "a"});
    assert_eq!(response_headers(head), expected);
    let cut = b"HTTP/1.1 200 OK\r\nServer: a\r\nbroken\r\nX: 1\r\n\r\n";
    assert_eq!(response_headers(cut), json!({"server": "a"}));
}

#[test]
fn values_of_response_headers_are_trimmed_and_escaped() {
    let head = b"HTTP/1.1 200 OK\r\nA:1\r\nBb: \r\nCcc:  x y \t\r\nDdddd: \xe9\r\nE-Tag: \"1\"\r\nF-long-name: z\r\n\r\n";
    let expected = json!({
        "a": "1", "bb": "", "ccc": "x y", "ddddd": "\u{fffd}", "e-tag": "\"1\"", "f-long-name": "z"
    });
    assert_eq!(response_headers(head), expected);
}

#[test]
fn a_credential_of_lua_code_is_shown_as_it_was_told() {
    let shown = |text: Option<&str>, consumer: Option<Uuid>| {
        let record = try_record(GET, FakeEntities::default(), &entry(), |_, state| {
            let told = ToldCredential::new(text.map(Into::into), consumer);
            state.credential = Some(Credential { id: told.id });
            state.told_credential = Some(told);
        });
        record.unwrap()["authenticated_entity"].clone()
    };
    let consumer = Uuid::from_u128(3);
    assert_eq!(shown(Some("a\"b"), None), json!({"id": "a\"b"}));
    assert_eq!(
        shown(Some("x"), Some(consumer)),
        json!({"id": "x", "consumer_id": consumer})
    );
    assert_eq!(
        shown(None, Some(consumer)),
        json!({"consumer_id": consumer})
    );
    assert_eq!(shown(None, None), json!({}));
}

#[test]
fn a_record_hides_credentials_if_the_node_wants_it() {
    let head = RequestHead::parse(
        b"GET /a?apikey=KEY&b=1 HTTP/1.1\r\nHost: a\r\nCookie: a=KEY\r\nX-Api-Key: KEY\r\nX-B: c\r\n\
          Referer: https://b:KEY@b/?code=KEY&\"=d#id_token=KEY\r\n\r\n",
        &Limits::default(),
    );
    let head = head.unwrap().expect("the head is complete").0;
    let request = Request::bare(&head);
    let mut state = RequestState::default();
    let entry = LogEntry {
        response_head:
            b"HTTP/1.1 200 OK\r\nSet-Cookie: s=KEY\r\nSet-Cookie: t=KEY\r\nX-D: e\r\nLocation: /cb?code=KEY\r\n\r\n",
        upstream_path: b"/up",
        ..entry()
    };
    let mut node = Node::bare().unwrap();
    Arc::get_mut(&mut node).unwrap().redacts_records = true;
    let cx = LogCx {
        request: &request,
        state: &mut state,
        configured: Configured {
            scopes: ScopeSet::GLOBAL,
            consumer: None,
            plugin: 0,
            names: &NoNames,
        },
        node: &node,
        entry: &entry,
    };
    let text = cx.record().unwrap();
    assert!(memchr::memmem::find(&text, b"KEY").is_none());
    let record: Json = serde_json::from_slice(&text).unwrap();
    let query = "?apikey=REDACTED&b=1";
    assert_eq!(record["request"]["uri"], format!("/a{query}"));
    assert_eq!(record["upstream_uri"], format!("/up{query}"));
    assert_eq!(record["request"]["querystring"]["apikey"], "REDACTED");
    assert_eq!(record["request"]["querystring"]["b"], "1");
    assert_eq!(record["request"]["headers"]["cookie"], "REDACTED");
    assert_eq!(record["request"]["headers"]["x-b"], "c");
    assert_eq!(record["response"]["headers"]["set-cookie"], "REDACTED");
    assert_eq!(record["response"]["headers"]["x-d"], "e");
    let headers = |what: &str, name: &str| record[what]["headers"][name].clone();
    let referer = "https://REDACTED@b/?code=REDACTED&\"=d#id_token=REDACTED";
    assert_eq!(headers("request", "referer"), referer);
    assert_eq!(headers("response", "location"), "/cb?code=REDACTED");
}

#[test]
fn the_reason_of_a_response_is_recorded_only_if_that_is_wanted() {
    let head = head(GET);
    let request = Request::bare(&head);
    let entry = LogEntry {
        reason: Some(crate::Reason::NoRoute),
        ..entry()
    };
    for (wanted, expected) in [(false, Json::Null), (true, "no_route".into())] {
        let node = Node::bare().unwrap();
        let mut node = Arc::into_inner(node).unwrap();
        node.records_reason = wanted;
        let cx = LogCx {
            request: &request,
            state: &mut RequestState::default(),
            configured: Configured {
                scopes: ScopeSet::GLOBAL,
                consumer: None,
                plugin: 0,
                names: &NoNames,
            },
            node: &Arc::new(node),
            entry: &entry,
        };
        let record: Json = serde_json::from_slice(&cx.record().unwrap()).unwrap();
        assert_eq!(record["reason"], expected);
    }
}

#[test]
fn a_record_is_the_same_byte_for_byte() {
    let head = head(
        "GET /orders/17?verbose=1&q=a%22b&n HTTP/1.1\r\nHost: api.example.com\r\nUser-Agent: \"curl\"/8.5.0\r\n\
         Accept: */*\r\nX-A: 1\r\nAuthorization: Bearer x\r\nx-a: caf\u{e9}\r\n\r\n",
    );
    let mut request = Request::bare(&head);
    request.route = Some(reference(1, Some("r")));
    request.service = Some(reference(2, None));
    let tries = [
        attempt(8081, TryEnd::Failed(502)),
        attempt(82, TryEnd::Answered(201)),
    ];
    let entry = LogEntry {
        response_head:
            b"HTTP/1.1 201 Created\r\nContent-Type: text/plain\r\nETag: \"1\"\r\nX-Empty:\r\n\r\n",
        tries: &tries,
        ..entry()
    };
    let node = Node::with_entities(Arc::new(FakeEntities::default())).unwrap();
    let cx = LogCx {
        request: &request,
        state: &mut RequestState::default(),
        configured: Configured {
            scopes: ScopeSet::GLOBAL,
            consumer: None,
            plugin: 0,
            names: &NoNames,
        },
        node: &node,
        entry: &entry,
    };
    let expected = concat!(
        r#"{"request":{"id":"0123456789abcdef0123456789abcdef","uri":"/orders/17?verbose=1&q=a%22b&n","url":"http://a:80/orders/17?verbose=1&q=a%22b&n""#,
        r#","querystring":{"verbose":"1","q":"a\"b","n":true}"#,
        r#","method":"GET","headers":{"host":"api.example.com","user-agent":"\"curl\"/8.5.0","accept":"*/*","x-a":["1","café"],"authorization":"REDACTED"},"size":77}"#,
        r#","upstream_uri":"/up?verbose=1&q=a%22b&n","upstream_status":"502, 201""#,
        r#","response":{"status":200,"headers":{"content-type":"text/plain","etag":"\"1\"","x-empty":""},"size":190}"#,
        r#","latencies":{"kong":1,"proxy":7,"request":10,"receive":2}"#,
        r#","tries":[{"balancer_start":1700000000124,"balancer_start_ns":1700000000124500000,"ip":"127.0.0.1","port":8081,"balancer_latency":2,"balancer_latency_ns":2500000"#,
        r#","state":"failed","code":502}"#,
        r#",{"balancer_start":1700000000124,"balancer_start_ns":1700000000124500000,"ip":"127.0.0.1","port":82,"balancer_latency":2,"balancer_latency_ns":2500000}]"#,
        r#","route":{"id":"00000000-0000-0000-0000-000000000001","name":"r"}"#,
        r#","service":{"id":"00000000-0000-0000-0000-000000000002"}"#,
        r#","client_ip":"127.0.0.1","started_at":1700000000123,"source":"upstream","workspace":"0dc6f45b-8f8d-40d2-a504-473544ee190b","workspace_name":"default"}"#,
    );
    let record = cx.record().unwrap();
    assert_eq!(std::str::from_utf8(&record).unwrap(), expected);
}

#[test]
fn a_queue_counts_about_the_size_of_a_record() {
    let id = |number: u128| Uuid::from_u128(number).to_string();
    let route =
        json!({"id": id(1), "name": "orders", "paths": ["/orders"], "hosts": ["api.example.com"]});
    let service = json!({"id": id(2), "name": "orders", "host": "orders.internal", "port": 8080});
    let entities = FakeEntities::default()
        .with(EntityKind::Routes, route)
        .with(EntityKind::Services, service);
    let node = Node::with_entities(Arc::new(entities)).unwrap();
    let tries = [attempt(80, TryEnd::Failed(502)); 1000];
    for (lines, count, query) in [
        (0, 1, 1),
        (10, 6, 1),
        (80, 1, 1),
        (1, 1000, 1),
        (1, 1, 7000),
    ] {
        let lines: String = (0..lines)
            .map(|number| format!("X-{number}: a value of usual length\r\n"))
            .collect();
        let sent = format!("HTTP/1.1 200 OK\r\n{lines}\r\n");
        let entry = LogEntry {
            tries: &tries[..count],
            response_head: sent.as_bytes(),
            ..entry()
        };
        let head = head(&format!(
            "GET /a?b={} HTTP/1.1\r\nHost: a.test\r\n{lines}\r\n",
            "1".repeat(query)
        ));
        let mut request = Request::bare(&head);
        request.route = Some(reference(1, None));
        request.service = Some(reference(2, None));
        let cx = LogCx {
            request: &request,
            state: &mut RequestState::default(),
            configured: Configured {
                scopes: ScopeSet::GLOBAL,
                consumer: None,
                plugin: 0,
                names: &NoNames,
            },
            node: &node,
            entry: &entry,
        };
        let counted = draft::Draft::new(&cx, Frame::After(b',')).bytes() as f64;
        let written = cx.record().unwrap().len() as f64;
        assert!(
            (0.8..1.2).contains(&(counted / written)),
            "{counted} of {written}"
        );
    }
}
