//! The storage of proxy-cache while the configuration changes and while responses break off: it survives changes that
//! do not concern it, and holds only whole responses.

use super::{DATABASES, admin, apply, one_service, reload, start, workers};
use crate::http_log::wait_for;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use testkit::upstream::read_until_blank_line;
use testkit::{Client, Echo, Gateway, HttpResponse, Scripted};

const PLUGIN: &str = "5d2f3a0e-0d7b-4a35-9a52-94d1a4f6f003";

/// A route `/a` with the plugin, and with this configuration in addition to the usual one.
fn cached(url: &str, more: &Value) -> Value {
    let mut config = json!({"strategy": "memory", "cache_ttl": 3600, "content_type": ["text/plain", "application/json"]});
    for (name, value) in more.as_object().into_iter().flatten() {
        config[name] = value.clone();
    }
    let plugin = json!({"id": PLUGIN, "name": "proxy-cache", "config": config});
    one_service(
        url,
        json!([{"name": "a", "paths": ["/a"], "plugins": [plugin]}]),
    )
}

/// Requests `/a` on a new connection, and returns its cache status.
fn status(gateway: &Gateway) -> String {
    let answer = gateway.get("/a", &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    cache_status(&answer)
}

fn cache_status(answer: &HttpResponse) -> String {
    let status = answer.header("x-cache-status");
    status.unwrap_or("none").to_owned()
}

#[test]
fn stored_responses_survive_changes_through_the_admin_api_and_a_reload() {
    let echo = Echo::start();
    let gateway = start(workers(), "lmdb", &cached(&echo.url(), &json!({})));
    assert_eq!(status(&gateway), "Miss");
    let plugin = format!("/plugins/{PLUGIN}");
    let other = json!({"name": "request-transformer", "config": {"add": {"headers": ["x:y"]}}});
    let changes = [
        ("PUT", "/consumers/new", json!({}), 200),
        ("PATCH", "/services/shop", json!({"retries": 1}), 200),
        ("POST", "/plugins", other, 201),
        ("PATCH", "/routes/a", json!({"paths": ["/a", "/more"]}), 200),
        (
            "PATCH",
            &*plugin,
            json!({"config": {"cache_ttl": 7200}}),
            200,
        ),
    ];
    for (method, path, body, expected) in changes {
        admin(&gateway, method, path, &body, &[expected]);
        assert_eq!(status(&gateway), "Hit", "after {method} {path}");
    }
    reload(&gateway);
    assert_eq!(status(&gateway), "Hit", "after a reload");
    assert_eq!(echo.requests(), 1);
}

#[test]
fn stored_responses_survive_another_declarative_configuration_and_a_reload() {
    let echo = Echo::start();
    let before = cached(&echo.url(), &json!({}));
    let gateway = start(workers(), "off", &before);
    assert_eq!(status(&gateway), "Miss");
    let mut changed = cached(&echo.url(), &json!({"cache_ttl": 7200}));
    changed["consumers"] = json!([{"username": "new"}]);
    apply(&gateway, "off", &changed);
    assert_eq!(status(&gateway), "Hit");
    reload(&gateway);
    assert_eq!(status(&gateway), "Hit");
    assert_eq!(echo.requests(), 1);
}

#[test]
fn a_route_that_takes_over_a_path_does_not_get_the_responses_of_the_old_one() {
    for database in DATABASES {
        let (echo, other) = (Echo::start(), Echo::start());
        let gateway = start(workers(), database, &cached(&echo.url(), &json!({})));
        assert_eq!([status(&gateway), status(&gateway)], ["Miss", "Hit"]);
        let plugin = json!({"name": "proxy-cache", "config": {"strategy": "memory"}});
        // A route with more methods is the better match.
        let route = json!({"name": "b", "paths": ["/a"], "methods": ["GET"], "plugins": [plugin]});
        let mut configuration = cached(&echo.url(), &json!({}));
        let service = json!({"name": "other", "url": other.url(), "routes": [route]});
        let services = configuration["services"].as_array_mut().expect("a list");
        services.push(service);
        apply(&gateway, database, &configuration);
        assert_eq!([status(&gateway), status(&gateway)], ["Miss", "Hit"]);
        assert_eq!((echo.requests(), other.requests()), (1, 1), "{database}");
    }
}

/// An upstream whose first response breaks off and whose later ones are whole. It counts its responses.
fn breaking(first: &'static str, later: &'static str) -> (Scripted, Arc<AtomicUsize>) {
    let served = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&served);
    let upstream = Scripted::start(move |mut stream| {
        read_until_blank_line(&mut stream);
        let is_first = counter.fetch_add(1, Ordering::SeqCst) == 0;
        let _ = stream.write_all(if is_first { first } else { later }.as_bytes());
    });
    (upstream, served)
}

#[test]
fn a_response_that_breaks_off_is_not_stored() {
    const SIZED: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\n\r\nhalf";
    const CHUNKED: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n";
    const WHOLE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 8\r\nConnection: close\r\n\r\nhalfhalf";
    for first in [SIZED, CHUNKED] {
        let (upstream, served) = breaking(first, WHOLE);
        let url = format!("http://{}", upstream.address);
        let gateway = start(workers(), "off", &cached(&url, &json!({})));
        let mut client = Client::connect(gateway.proxy);
        client
            .send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        assert!(client.is_cut_off("GET"), "{first}");
        for expected in ["Miss", "Hit"] {
            let answer = gateway.get("/a", &[]);
            assert_eq!(cache_status(&answer), expected, "{first}");
            assert_eq!(answer.text(), "halfhalf");
        }
        assert_eq!(served.load(Ordering::SeqCst), 2);
    }
}

#[test]
fn a_client_that_leaves_in_the_middle_never_leaves_half_a_response_behind() {
    const SIZE: usize = 8_000_000;
    let echo = Echo::start();
    let gateway = start(workers(), "off", &cached(&echo.url(), &json!({})));
    let path = format!("/a/__bytes/{SIZE}");
    let mut client = TcpStream::connect(gateway.proxy).expect("it listens");
    write!(client, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it reads");
    client.read_exact(&mut [0; 100_000]).expect("a beginning");
    drop(client);
    let answer = gateway.get(&path, &[]);
    assert_eq!(answer.body.len(), SIZE);
    // A whole response is stored in the end.
    wait_for("the response is stored", || {
        let answer = gateway.get(&path, &[]);
        assert_eq!(answer.body.len(), SIZE);
        cache_status(&answer) == "Hit"
    });
}

#[test]
fn a_response_over_the_size_of_the_storage_passes_and_is_not_stored() {
    const SIZE: usize = 8_000_000;
    let echo = Echo::start();
    let memory = json!({"memory": {"dictionary_name": "kong"}});
    let gateway = start(workers(), "off", &cached(&echo.url(), &memory));
    for _ in 0..2 {
        // The zone `kong` has 5 MiB.
        let answer = gateway.get(&format!("/a/__bytes/{SIZE}"), &[]);
        assert_eq!((answer.body.len(), &*cache_status(&answer)), (SIZE, "Miss"));
    }
    assert_eq!([status(&gateway), status(&gateway)], ["Miss", "Hit"]);
}
