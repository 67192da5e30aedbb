//! Tests of http-log from end to end: what the log server gets, what a broken one costs, and what is sent at shutdown.

use crate::{SetOnDrop, launch};
use serde_json::json;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use testkit::http::Client;
use testkit::upstream::refusing;
use testkit::{Echo, Gateway, Scripted, Sink};

/// Time limit of waits. Even on a busy machine, they take less.
const LIMIT: Duration = Duration::from_secs(60);

/// A configuration with a service and routes, each with http-log and this configuration of it.
fn logged(echo: &Echo, routes: &[(&str, serde_json::Value)]) -> String {
    let routes: Vec<_> = routes
        .iter()
        .map(|(path, config)| {
            json!({"name": &path[1..], "paths": [path], "plugins": [{"name": "http-log", "config": config}]})
        })
        .collect();
    let service = json!({"name": "logged", "url": echo.url(), "routes": routes});
    json!({"_format_version": "3.0", "services": [service]}).to_string()
}

/// The sum of a metric's series whose labels contain this text.
pub(crate) fn metric(gateway: &Gateway, name: &str, label: &str) -> f64 {
    let page = gateway.admin_get("/metrics").text();
    let lines = page.lines().filter_map(|line| line.strip_prefix(name));
    let series = lines.filter(|rest| rest.starts_with('{') && rest.contains(label));
    let values = series.filter_map(|rest| rest.rsplit(' ').next()?.parse::<f64>().ok());
    values.sum()
}

pub(crate) fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_there() {
        assert!(Instant::now() < deadline, "{what}");
        thread::yield_now();
    }
}

#[test]
fn queued_records_are_sent_at_shutdown() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let config = json!({
        "http_endpoint": sink.url(), "queue": {"max_batch_size": 1000, "max_coalescing_delay": 3600}
    });
    let gateway = launch()
        .configuration(&logged(&echo, &[("/a", config)]))
        .start();
    for number in 0..5 {
        assert_eq!(gateway.get(&format!("/a?{number}"), &[]).status, 200);
    }
    assert!(gateway.stop().success());
    let deliveries = sink.arrived();
    assert_eq!(deliveries.len(), 1, "all records in one batch");
    let records = deliveries[0].records();
    let uris: Vec<_> = records
        .iter()
        .map(|record| &record["request"]["uri"])
        .collect();
    assert_eq!(uris, ["/a?0", "/a?1", "/a?2", "/a?3", "/a?4"]);
    assert_eq!(records[0]["route"]["name"], "a");
    assert_eq!(records[0]["service"]["name"], "logged");
    assert_eq!(records[0]["route"]["ws_id"], records[0]["workspace"]);
    assert_eq!(records[0]["tries"][0]["port"], echo.address.port());
}

#[test]
fn a_record_shows_its_entities_as_they_are_now() {
    let (echo, sink) = (Echo::start(), Sink::start(&[]));
    let configuration = |host: &str| {
        let config = json!({"http_endpoint": sink.url()});
        let plugin = json!({"name": "http-log", "config": config});
        let route = json!({"name": "a", "paths": ["/a"], "headers": {"x-host": [host]}});
        let service =
            json!({"name": "logged", "url": echo.url(), "routes": [route], "plugins": [plugin]});
        json!({"_format_version": "3.0", "services": [service]}).to_string()
    };
    let gateway = launch().configuration(&configuration("one")).start();
    for host in ["one", "one", "two"] {
        if host == "two" {
            let posted = gateway.post_config(&configuration(host));
            assert!(posted.status < 300, "{}", posted.text());
        }
        assert_eq!(gateway.get("/a", &[("x-host", host)]).status, 200);
        let record = sink.next().json();
        assert_eq!(record["route"]["headers"], json!({"x-host": [host]}));
    }
}

#[test]
fn sessions_of_streams_are_logged() {
    let sink = Sink::start(&[]);
    let upstream = Scripted::start(|mut stream| {
        let _ = io::copy(&mut stream.try_clone().expect("a socket"), &mut stream);
        let _ = stream.shutdown(Shutdown::Write);
    });
    let plugin = json!({
        "name": "http-log", "protocols": ["tcp"], "config": {"http_endpoint": sink.url()}
    });
    let route = json!({
        "name": "r", "protocols": ["tcp"], "sources": [{"ip": "127.0.0.0/8"}], "plugins": [plugin]
    });
    let service = json!({
        "name": "s", "protocol": "tcp", "host": "127.0.0.1", "port": upstream.address.port(), "routes": [route]
    });
    let configuration = json!({"_format_version": "3.0", "services": [service]});
    let gateway = launch()
        .set("stream_listen", "127.0.0.1:0")
        .configuration(&configuration.to_string())
        .start();
    let mut client = TcpStream::connect(gateway.listening("stream")[0]).expect("it listens");
    client.write_all(b"hello").expect("it reads");
    client.shutdown(Shutdown::Write).expect("it is open");
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("an answer");
    assert_eq!(answer, "hello");
    let record = sink.next().json();
    assert_eq!(record["session"]["received"], 5);
    assert_eq!(record["session"]["status"], 200);
    assert_eq!(record["upstream"], json!({"received": 5, "sent": 5}));
    assert_eq!(record["route"]["name"], "r");
    assert_eq!(record["service"]["port"], upstream.address.port());
    assert_eq!(record["tries"][0]["port"], upstream.address.port());
}

#[test]
fn a_shutdown_waits_for_a_broken_log_server_only_within_the_drain() {
    let echo = Echo::start();
    let silent = Scripted::silent();
    let config = json!({"http_endpoint": format!("http://{}", silent.address)});
    let gateway = launch()
        .set("drain_timeout", "1")
        .configuration(&logged(&echo, &[("/a", config)]))
        .start();
    assert_eq!(gateway.get("/a", &[]).status, 200);
    wait_for("the record is being sent", || silent.connections() > 0);
    assert!(gateway.stop().success());
}

#[test]
fn records_wait_while_the_log_server_is_away() {
    let echo = Echo::start();
    let mut sink = Sink::start(&[]);
    let config = json!({
        "http_endpoint": sink.url(), "queue": {"initial_retry_delay": 0.01, "max_retry_delay": 0.05}
    });
    let gateway = launch()
        .configuration(&logged(&echo, &[("/a", config)]))
        .start();
    assert_eq!(gateway.get("/a?0", &[]).status, 200);
    assert_eq!(sink.next().json()["request"]["uri"], "/a?0");
    wait_for("the gateway has the response", || {
        metric(&gateway, "silverback_queue_sent_total", "") > 0.0
    });
    sink.kill();
    for number in 1..4 {
        assert_eq!(gateway.get(&format!("/a?{number}"), &[]).status, 200);
    }
    wait_for("the record is sent again", || {
        metric(&gateway, "silverback_queue_retries_total", "") > 0.0
    });
    let sink = Sink::start_on(sink.address, &[]).expect("its port is free again");
    let uris: Vec<_> = (1..4)
        .map(|_| sink.next().json()["request"]["uri"].clone())
        .collect();
    assert_eq!(uris, ["/a?1", "/a?2", "/a?3"]);
    assert_eq!(metric(&gateway, "silverback_queue_dropped_total", ""), 0.0);
}

#[test]
fn no_request_fails_while_log_servers_are_broken_and_the_configuration_changes() {
    const CLIENTS: usize = 3;
    let echo = Echo::start();
    let failing =
        Scripted::answering(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    let silent = Scripted::silent();
    let mut dying = Sink::start(&[]);
    let to = |address: &dyn std::fmt::Display| format!("http://{address}");
    let endpoints = [
        ("/failing", to(&failing.address)),
        ("/silent", to(&silent.address)),
        ("/refusing", to(&refusing())),
        ("/dying", to(&dying.address)),
    ];
    // Each configuration has another size of batches, so that every change replaces all plugins.
    let configuration = |batch: usize| {
        let queue =
            json!({"max_entries": 3, "max_batch_size": batch, "max_coalescing_delay": 0.01});
        let routes = endpoints
            .each_ref()
            .map(|(path, url)| (*path, json!({"http_endpoint": url, "queue": queue})));
        logged(&echo, &routes)
    };
    let gateway = launch().configuration(&configuration(1)).start();
    let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let _stop = SetOnDrop(&stop);
        let (stop, answered, proxy) = (&stop, &answered, gateway.proxy);
        for _ in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::connect(proxy);
                for path in ["/failing", "/silent", "/refusing", "/dying"]
                    .iter()
                    .cycle()
                {
                    if stop.load(Ordering::SeqCst) {
                        return;
                    }
                    let answer = client.request("GET", path, &[], b"");
                    assert_eq!(answer.status, 200);
                    answered.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let answers = |more: u64| {
            let before = answered.load(Ordering::SeqCst);
            wait_for("requests are answered", || {
                answered.load(Ordering::SeqCst) >= before + more
            });
        };
        answers(50);
        dying.kill();
        for batch in 2..8 {
            let posted = gateway.post_config(&configuration(batch));
            assert!(posted.status < 300, "{}", posted.text());
            answers(50);
        }
    });
    let dropped = |address: String| {
        let label = format!("queue=\"{address}");
        metric(&gateway, "silverback_queue_dropped_total", &label)
    };
    for (path, url) in endpoints {
        assert!(dropped(url) > 0.0, "{path} counts what it drops");
    }
    let log = gateway.log();
    assert!(!log.contains("panicked"), "{log}");
}
