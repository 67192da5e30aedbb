//! Upgrades: a new process takes over from the running one.

use crate::{launch, one_route, shop};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use testkit::upstream::read_until_blank_line;
use testkit::{Client, Echo, Gateway, Scripted, request};

const UPGRADES: usize = 10;
const WEBSOCKETS: usize = 30;
const CLIENTS: usize = 6;

/// Clients that send requests without a pause until they are stopped. A client panics at its first failed request.
struct Load {
    stop: Arc<AtomicBool>,
    requests: Arc<AtomicU64>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(
        clients: usize,
        client: impl Fn(&AtomicU64, &AtomicBool) + Clone + Send + 'static,
    ) -> Self {
        let (stop, requests) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let clients = (0..clients).map(|_| {
            let (client, stop, requests) = (client.clone(), stop.clone(), requests.clone());
            thread::spawn(move || client(&requests, &stop))
        });
        Self {
            clients: clients.collect(),
            stop,
            requests,
        }
    }

    fn wait_for(&self, more: u64) {
        let target = self.requests.load(Ordering::SeqCst) + more;
        while self.requests.load(Ordering::SeqCst) < target {
            assert!(
                self.clients.iter().all(|client| !client.is_finished()),
                "a client failed"
            );
            thread::yield_now();
        }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.join().expect("no request fails");
        }
    }
}

/// A client that uses each connection until the gateway closes it.
fn keep_alive_client(proxy: std::net::SocketAddr) -> impl Fn(&AtomicU64, &AtomicBool) + Clone {
    move |requests, stop| {
        let mut client = Client::connect(proxy);
        while !stop.load(Ordering::SeqCst) {
            let answer = client.request("GET", "/open", &[], b"");
            assert_eq!(answer.status, 200);
            if answer.header("connection") == Some("close") {
                client = Client::connect(proxy);
            }
            requests.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A client of the Admin API that changes a route and immediately checks the change with a request.
fn administrator(gateway: &Gateway) -> impl Fn(&AtomicU64, &AtomicBool) + Clone + use<> {
    let (admin, proxy) = (gateway.admin, gateway.proxy);
    move |changes, stop| {
        while !stop.load(Ordering::SeqCst) {
            let number = changes.load(Ordering::SeqCst);
            let body =
                format!(r#"{{"paths": ["/change-{number}"], "service": {{"name": "shop"}}}}"#);
            let headers = [("Content-Type", "application/json")];
            let changed = request(admin, "PUT", "/routes/changing", &headers, body.as_bytes());
            assert_eq!(changed.status, 200, "{}", changed.text());
            let path = format!("/change-{number}");
            assert_eq!(
                testkit::get(proxy, &path, &[]).status,
                200,
                "{path} is not live"
            );
            changes.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// An upstream that accepts every WebSocket upgrade and then echoes everything.
fn echoing_websockets() -> Scripted {
    Scripted::start(|mut stream| {
        read_until_blank_line(&mut stream);
        let head = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
        stream.write_all(head).expect("sent");
        let mut buffer = [0; 1024];
        while let Ok(read @ 1..) = stream.read(&mut buffer) {
            if stream.write_all(&buffer[..read]).is_err() {
                return;
            }
        }
    })
}

struct WebSocket(std::net::TcpStream);

impl WebSocket {
    fn open(proxy: std::net::SocketAddr) -> Self {
        let mut stream = std::net::TcpStream::connect(proxy).expect("connected");
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .expect("a limit");
        let head = "GET /socket HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
        stream.write_all(head.as_bytes()).expect("sent");
        let mut seen = Vec::new();
        while !seen.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("a head");
            seen.push(byte[0]);
        }
        assert!(
            seen.starts_with(b"HTTP/1.1 101"),
            "{}",
            String::from_utf8_lossy(&seen)
        );
        Self(stream)
    }

    fn echoes(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).expect("sent");
        let mut back = vec![0; text.len()];
        self.0
            .read_exact(&mut back)
            .expect("the upstream echoes the text");
        assert_eq!(back, text.as_bytes());
    }
}

fn put(gateway: &Gateway, path: &str, body: &str) {
    let headers = [("Content-Type", "application/json")];
    let answer = request(gateway.admin, "PUT", path, &headers, body.as_bytes());
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn ten_upgrades_under_load_lose_no_request_no_change_and_no_websocket() {
    let (echo, sockets) = (Echo::start(), echoing_websockets());
    let mut gateway = launch().set("nginx_worker_processes", "2").start();
    put(
        &gateway,
        "/services/shop",
        &format!(r#"{{"url": "{}"}}"#, echo.url()),
    );
    put(
        &gateway,
        "/services/socket",
        &format!(r#"{{"url": "http://{}"}}"#, sockets.address),
    );
    put(
        &gateway,
        "/services/shop/routes/open",
        r#"{"paths": ["/open"]}"#,
    );
    put(
        &gateway,
        "/services/socket/routes/socket",
        r#"{"paths": ["/socket"]}"#,
    );
    let mut websockets: Vec<WebSocket> = (0..WEBSOCKETS)
        .map(|_| WebSocket::open(gateway.proxy))
        .collect();
    let kept = Load::start(CLIENTS, keep_alive_client(gateway.proxy));
    let proxy = gateway.proxy;
    let fresh = Load::start(2, move |requests, stop| {
        while !stop.load(Ordering::SeqCst) {
            assert_eq!(testkit::get(proxy, "/open", &[]).status, 200);
            requests.fetch_add(1, Ordering::SeqCst);
        }
    });
    let changes = Load::start(1, administrator(&gateway));
    for number in 0..UPGRADES {
        let before = gateway.pid();
        gateway
            .upgrade()
            .unwrap_or_else(|reason| panic!("upgrade {number}: {reason}"));
        assert_ne!(gateway.pid(), before);
        // Open a WebSocket in every process. It must stay open after the process has been replaced.
        websockets.push(WebSocket::open(gateway.proxy));
        kept.wait_for(20);
        fresh.wait_for(5);
        changes.wait_for(1);
    }
    for load in [kept, fresh, changes] {
        load.stop();
    }
    assert!(
        !gateway.first_has_ended(),
        "the first process must keep its WebSockets open"
    );
    for (number, socket) in websockets.iter_mut().enumerate() {
        socket.echoes(&format!("still here {number}"));
    }
    drop(websockets);
    assert!(gateway.wait().success());
    gateway.signal("TERM");
    gateway.wait_for_successor();
}

#[test]
fn a_process_that_cannot_start_takes_nothing_over() {
    let echo = Echo::start();
    let mut gateway = launch()
        .configuration(&one_route(&echo.url(), "/before"))
        .start();
    let (pid, file) = (gateway.pid(), gateway.launch().prefix().join("kong.yml"));
    let token_file = gateway.launch().prefix().join(".request_debug_token");
    let token = || std::fs::read_to_string(&token_file).expect("readable");
    let first_token = token();
    std::fs::write(&file, "_format_version: '3.0'\nservices: [{name: a}]\n").expect("writable");
    let reason = gateway.upgrade().expect_err("it cannot be loaded");
    assert!(reason.contains("required field missing"), "{reason}");
    gateway.wait_for_log("this process keeps running");
    assert_eq!(gateway.get("/before", &[]).status, 200);
    assert_eq!(gateway.admin_get("/status").status, 200);
    assert_eq!(token(), first_token, "it is that of the process that runs");
    std::fs::write(&file, one_route(&echo.url(), "/after")).expect("writable");
    gateway.upgrade().expect("now it can");
    assert_ne!(token(), first_token);
    assert_ne!(gateway.pid(), pid);
    assert_eq!(gateway.get("/after", &[]).status, 200);
    assert_eq!(gateway.get("/before", &[]).status, 404);
    assert!(gateway.wait().success());
    assert!(
        gateway
            .launch()
            .other(&["stop"])
            .status()
            .expect("it runs")
            .success()
    );
    gateway.wait_for_successor();
    let log = gateway.log();
    assert!(log.contains("the new process serves"), "{log}");
    assert!(!log.contains("limit=None"), "{log}");
}

#[test]
fn listeners_and_workers_may_change() {
    let echo = Echo::start();
    let conf = |workers: usize, more: &str| {
        format!("proxy_listen = 127.0.0.1:0{more}\nnginx_worker_processes = {workers}\n")
    };
    let mut gateway = launch()
        .unset("proxy_listen")
        .unset("nginx_worker_processes")
        .conf(&conf(3, ", 127.0.0.1:0 ssl"))
        .configuration(&shop(&echo))
        .start();
    let path = gateway.launch().prefix().join("silverback.conf");
    let dropped = gateway.proxy_tls.expect("a TLS listener");
    let mut client = Client::connect(gateway.proxy);
    assert_eq!(client.request("GET", "/open", &[], b"").status, 200);
    for workers in [1, 4, 2] {
        std::fs::write(&path, conf(workers, "")).expect("writable");
        gateway.upgrade().expect("it takes over");
        // The kernel spreads connections over all listening sockets. Connections to a socket whose worker no longer
        // exists must be served too.
        for _ in 0..40 {
            assert_eq!(gateway.get("/open", &[]).status, 200);
        }
    }
    // The first process still serves this connection, and closes it after the next response.
    let answer = client.request("GET", "/open", &[], b"");
    assert_eq!(
        (answer.status, answer.header("connection")),
        (200, Some("close"))
    );
    assert!(gateway.wait().success());
    assert!(
        std::net::TcpStream::connect(dropped).is_err(),
        "the settings no longer contain this listener"
    );
}

#[test]
fn a_replaced_process_exits_soon_when_the_gateway_is_stopped() {
    let sockets = echoing_websockets();
    let mut gateway = launch().set("drain_timeout", "0.2").start();
    let service = format!(r#"{{"url": "http://{}"}}"#, sockets.address);
    put(&gateway, "/services/socket", &service);
    put(
        &gateway,
        "/services/socket/routes/socket",
        r#"{"paths": ["/socket"]}"#,
    );
    let mut socket = WebSocket::open(gateway.proxy);
    gateway.upgrade().expect("it takes over");
    socket.echoes("the first process serves it");
    gateway.signal("TERM");
    gateway.wait_for_successor();
    let started = Instant::now();
    assert!(gateway.wait().success());
    assert!(started.elapsed() < Duration::from_secs(30));
    assert!(matches!(socket.0.read(&mut [0]), Ok(0) | Err(_)));
}

#[test]
fn two_gateways_of_one_prefix_are_refused_after_an_upgrade_as_before() {
    let mut gateway = launch().start();
    gateway.upgrade().expect("it takes over");
    assert!(gateway.wait().success());
    let second = crate::launch_in(gateway.launch().prefix());
    let log = second
        .try_start()
        .map(drop)
        .expect_err("the prefix is taken");
    assert!(
        log.contains("already running") && log.contains(&gateway.pid().to_string()),
        "{log}"
    );
}
