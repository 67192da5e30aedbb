//! No acknowledged OAuth2 token is lost, and no refresh token works twice: when the gateway is killed ([`kills`]), and
//! when the machine fails ([`power_failures`]).

mod kills;
mod power_failures;

use crate::launch_in;
use serde_json::{Value, json};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use testkit::{Client, Echo, HttpResponse, Launch, http};

const CREDENTIAL: &str = "25377d70-0854-426d-a47a-2fb7be203832";
const SERVICE: &str = "96e61ef8-3b5c-4f0f-9d6c-0a3ee7bd1b7f";
/// The keys of the store of tokens.
const SECRET: [u8; 64] = [7; 64];

/// Returns a launch with a route `/token` that needs a token.
fn launch(prefix: &Path, echo: &Echo) -> Launch {
    let (address, keys) = (echo.url(), prefix.join("the.key"));
    let hex = |part: &[u8]| -> String { part.iter().map(|byte| format!("{byte:02x}")).collect() };
    let text = format!(
        "find {}\nseal 1 {}\n",
        hex(&SECRET[..32]),
        hex(&SECRET[32..])
    );
    std::fs::create_dir_all(prefix).expect("the prefix can be created");
    std::fs::write(&keys, text).expect("the prefix can be written");
    launch_in(prefix)
        .set("token_key_file", keys.to_str().expect("UTF-8"))
        .set("trusted_ips", "127.0.0.0/8")
        .configuration(&format!(
            r#"
_format_version: "3.0"
services:
  - id: {SERVICE}
    name: shop
    url: {address}
    routes:
      - name: token
        paths: [/token]
        plugins:
          - name: oauth2
            config:
              enable_password_grant: true
              provision_key: provision
              accept_http_if_already_terminated: true
consumers:
  - username: nora
    oauth2_credentials:
      - {{id: {CREDENTIAL}, name: app, client_id: app, client_secret: s, redirect_uris: ["https://app.test/back"]}}
"#
        ))
}

/// An access token and its refresh token.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pair {
    access: String,
    refresh: String,
}

impl Pair {
    /// Returns the pair of an answer, which must be successful.
    fn of(answer: &HttpResponse) -> Self {
        assert_eq!(answer.status, 200, "{}", answer.text());
        let answer = answer.json();
        let text = |name: &str| answer[name].as_str().expect("a text").to_owned();
        Self {
            access: text("access_token"),
            refresh: text("refresh_token"),
        }
    }
}

/// A connection to the proxy. It fails when the gateway is killed.
struct Connection(Client);

impl Connection {
    fn open(proxy: SocketAddr) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(proxy)?;
        stream.set_nodelay(true)?;
        Ok(Self(Client::over(stream)))
    }

    fn ask(&mut self, form: &str) -> io::Result<HttpResponse> {
        let headers = [
            ("X-Forwarded-Proto", "https"),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        let body = format!("client_id=app&client_secret=s&{form}");
        let request = http::encode("POST", "/token/oauth2/token", &headers, body.as_bytes());
        self.0.send(request)?;
        self.0.receive("POST")
    }

    fn issue(&mut self) -> io::Result<HttpResponse> {
        self.ask("grant_type=password&provision_key=provision&authenticated_userid=u")
    }

    fn refresh(&mut self, token: &str) -> io::Result<HttpResponse> {
        self.ask(&format!("grant_type=refresh_token&refresh_token={token}"))
    }

    /// Whether an access token opens the route.
    fn opens(&mut self, token: &str) -> bool {
        let authorization = format!("Bearer {token}");
        let headers = [("Authorization", authorization.as_str())];
        match self.0.request("GET", "/token", &headers, b"").status {
            200 => true,
            401 => false,
            status => panic!("status {status}"),
        }
    }
}

/// Returns a line of an import.
fn imported_line(pair: &Pair, number: u64) -> Value {
    let id = format!("1b6a2c58-6f2e-4f6a-8a20-{number:012x}");
    json!({"id": id, "credential": {"id": CREDENTIAL}, "service": {"id": SERVICE}, "token_type": "bearer",
        "expires_in": 0, "created_at": 1_600_000_000, "access_token": pair.access, "refresh_token": pair.refresh})
}
