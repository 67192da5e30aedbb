//! Other servers as HTTP/1.1 parsers: nginx and HAProxy in front of the strict origin, and hyper. Each reports the
//! requests that it finds in some bytes.

use super::origin::{Origin, Seen};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The parts of a request that are compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) body: Vec<u8>,
}

pub(super) trait Reader {
    fn name(&self) -> &'static str;
    /// Sends the bytes. Returns the requests that the server finds in them, and its responses. With `cut`, the client
    /// closes its sending side after the bytes.
    fn read(&self, bytes: &[u8], cut: bool) -> (Vec<Reading>, Vec<u8>);
}

/// Starts all installed readers, and prints which ones are missing. In continuous integration (`CI=true`), a missing
/// reader is a failure.
pub(super) fn readers() -> Vec<Box<dyn Reader>> {
    let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let mut readers: Vec<Box<dyn Reader>> = vec![Box::new(Hyper::start())];
    for (name, configuration) in [("nginx", NGINX), ("haproxy", HAPROXY)] {
        match Program::start(name, configuration) {
            Some(program) => readers.push(Box::new(program)),
            None if is_ci => panic!("{name} is not installed, and CI=true"),
            None => eprintln!(
                "NOTE: {name} is not installed; requests are not compared with its reading of them"
            ),
        }
    }
    readers
}

const NGINX: &str = "daemon off; master_process off; pid nginx.pid; error_log stderr crit;
events { worker_connections 512; }
http {
  access_log off; underscores_in_headers on; merge_slashes off; client_max_body_size 0; large_client_header_buffers 8 64k;
  client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi; uwsgi_temp_path uwsgi; scgi_temp_path scgi;
  server { listen @LISTEN@; location / { proxy_pass http://@ORIGIN@; proxy_http_version 1.1; proxy_ignore_client_abort on; } }
}
";

const HAPROXY: &str = "global
  tune.bufsize 65536
  tune.maxrewrite 8192
defaults
  mode http
  timeout connect 5s
  timeout client 5s
  timeout server 5s
  http-reuse never
frontend in
  bind @LISTEN@
  default_backend out
backend out
  server origin @ORIGIN@
";

/// A proxy that runs as a separate process.
struct Program {
    name: &'static str,
    address: SocketAddr,
    origin: Origin,
    child: Child,
    _directory: TempDir,
}

impl Program {
    /// Starts the proxy. Returns `None` when it is not installed.
    fn start(name: &'static str, configuration: &str) -> Option<Self> {
        let origin = Origin::start();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = free.local_addr().expect("a bound address");
        drop(free);
        let text = configuration
            .replace("@LISTEN@", &address.to_string())
            .replace("@ORIGIN@", &origin.address.to_string());
        let file = directory.path().join("test.conf");
        std::fs::write(&file, text).expect("the directory can be written");
        let mut command = Command::new(name);
        if name == "nginx" {
            command.arg("-p").arg(directory.path()).arg("-c").arg(&file);
        } else {
            command.arg("-db").arg("-f").arg(&file);
        }
        let child = command
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let program = Self {
            name,
            address,
            origin,
            child,
            _directory: directory,
        };
        let deadline = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "{name} does not listen");
            thread::sleep(Duration::from_millis(10));
        }
        Some(program)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Reader for Program {
    fn name(&self) -> &'static str {
        self.name
    }

    fn read(&self, bytes: &[u8], cut: bool) -> (Vec<Reading>, Vec<u8>) {
        self.origin.take();
        let answer = exchange(self.address, bytes, cut);
        let seen = self.origin.take().into_iter();
        let requests = seen.filter_map(|seen| match seen {
            Seen::Request(request) => Some(Reading {
                method: request.method().to_owned(),
                target: request.target().to_owned(),
                body: request.body,
            }),
            // The proxy forwarded the beginning of a request that never became complete.
            Seen::Cut => None,
            wrong @ Seen::Wrong { .. } => panic!("{} sends {wrong:?}", self.name),
        });
        (requests.collect(), answer)
    }
}

/// hyper's server, on a separate thread.
struct Hyper {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Reading>>>,
}

impl Hyper {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let seen = Arc::<Mutex<Vec<Reading>>>::default();
        let all = seen.clone();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                listener.set_nonblocking(true).expect("a listener can be");
                let listener =
                    tokio::net::TcpListener::from_std(listener).expect("a runtime is here");
                while let Ok((stream, _)) = listener.accept().await {
                    let seen = all.clone();
                    let service = service_fn(move |request| note(request, seen.clone()));
                    let io = hyper_util::rt::TokioIo::new(stream);
                    let mut builder = http1::Builder::new();
                    // A refused head ends the connection. The error does not matter here.
                    tokio::spawn(builder.half_close(true).serve_connection(io, service));
                }
            });
        });
        Self { address, seen }
    }
}

async fn note(
    request: Request<Incoming>,
    seen: Arc<Mutex<Vec<Reading>>>,
) -> Result<Response<http_body_util::Full<Bytes>>, Infallible> {
    let method = request.method().to_string();
    // Each character is one byte, as for the other readers.
    let target = request.uri().to_string();
    let target = target.bytes().map(char::from).collect();
    // A request whose body is incomplete does not count.
    if let Ok(body) = request.into_body().collect().await {
        let body = body.to_bytes().to_vec();
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.push(Reading {
            method,
            target,
            body,
        });
    }
    Ok(Response::new(Bytes::new().into()))
}

impl Reader for Hyper {
    fn name(&self) -> &'static str {
        "hyper"
    }

    fn read(&self, bytes: &[u8], cut: bool) -> (Vec<Reading>, Vec<u8>) {
        let answer = exchange(self.address, bytes, cut);
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut seen), answer)
    }
}

/// Sends everything, and reads the responses until the server closes the connection. Some servers drop the requests of
/// a client that has closed its sending side. So the client does that only if `cut` is set. Then the
/// bytes do not end with a complete request, and the server would otherwise wait for the rest.
fn exchange(address: SocketAddr, bytes: &[u8], cut: bool) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let limit = Some(Duration::from_secs(20));
    stream
        .set_read_timeout(limit)
        .expect("a limit above zero is accepted");
    // A server that refuses early may close before everything is written.
    let _ = stream.write_all(bytes);
    if cut {
        let _ = stream.shutdown(Shutdown::Write);
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}
