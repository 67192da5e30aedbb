//! connectrpc's conformance suite. Its clients (for connect-go and grpc-go) call its reference server through the
//! gateway.
//!
//! The suite starts a server for each combination of protocol, HTTP version and TLS. It writes the server's
//! configuration to the server's input and reads the server's address from its output. Here the suite starts a stand-in
//! ([`stand_in`]) that passes the configuration to this process. This process starts the reference server with a
//! gateway in front of it, and responds with the gateway's address. Both stop when the stand-in exits for any reason.

use super::Bench;
use super::go::Program;
use super::process::Process;
use super::report::{Case, Outcome};
use super::site::{self, Certificate, Site, Speech};
use super::wire::{self, Value};
use std::io::{self, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;

/// Newest version with dependencies that the module proxy has. 1.0.7 needs connectrpc.com/connect/v2 2.0.2, which the
/// proxy refuses.
const VERSION: &str = "v1.0.6";
const RUNNER: Program = Program {
    package: "connectrpc.com/conformance/cmd/connectconformance",
    version: VERSION,
};
const SERVER: Program = Program {
    package: "connectrpc.com/conformance/cmd/referenceserver",
    version: VERSION,
};

/// How the gateway stands between the clients and the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Both speak the same protocol.
    Same,
    /// Clients of gRPC-Web call a server that only speaks gRPC, through the plugin grpc-web.
    GrpcWeb,
}

/// All features of the suite except those in `LEFT_OUT`.
const FEATURES: &str = "  versions: [HTTP_VERSION_1, HTTP_VERSION_2]
  compressions:
  - COMPRESSION_IDENTITY
  - COMPRESSION_GZIP
  - COMPRESSION_BR
  - COMPRESSION_ZSTD
  - COMPRESSION_DEFLATE
  - COMPRESSION_SNAPPY
  supportsH2c: true
  supportsTls: true
  supportsTrailers: true
  supportsHalfDuplexBidiOverHttp1: true
  supportsConnectGet: true
  supportsMessageReceiveLimit: true
";

const LEFT_OUT: [(&str, &str); 2] = [
    ("HTTP/3", "is not served"),
    (
        "TLS Client Certs",
        "the gateway ends TLS and asks clients for no certificate",
    ),
];

impl Way {
    fn suite(self) -> &'static str {
        match self {
            Self::Same => "conformance",
            Self::GrpcWeb => "grpc-web",
        }
    }

    fn features(self) -> String {
        let selected = match self {
            Self::Same => {
                "  protocols: [PROTOCOL_CONNECT, PROTOCOL_GRPC, PROTOCOL_GRPC_WEB]\n  codecs: [CODEC_PROTO, CODEC_JSON]\n"
            }
            // In JSON, Kong's form of bytes differs from that of the suite.
            Self::GrpcWeb => "  protocols: [PROTOCOL_GRPC_WEB]\n  codecs: [CODEC_PROTO]\n",
        };
        format!("features:\n{selected}{FEATURES}")
    }

    /// Returns the server's configuration for what the suite asked.
    fn server_configuration(self, asked: &[u8], fields: &[(u64, Value<'_>)]) -> Vec<u8> {
        if self == Self::Same {
            return asked.to_vec();
        }
        const REPLACED: [u64; 4] = [
            field::PROTOCOL,
            field::HTTP_VERSION,
            field::USE_TLS,
            field::CREDENTIALS,
        ];
        let mut kept = fields.to_vec();
        kept.retain(|(number, _)| !REPLACED.contains(number));
        kept.push((field::PROTOCOL, Value::Number(PROTOCOL_GRPC)));
        kept.push((field::HTTP_VERSION, Value::Number(HTTP_VERSION_2)));
        wire::encode(&kept)
    }
}

/// Numbers of the suite's enum values and message fields (server_compat.proto, config.proto).
mod field {
    pub(super) const PROTOCOL: u64 = 1;
    pub(super) const HTTP_VERSION: u64 = 2;
    pub(super) const USE_TLS: u64 = 4;
    pub(super) const CREDENTIALS: u64 = 7;
    pub(super) const CREDENTIALS_CERTIFICATE: u64 = 1;
    pub(super) const CREDENTIALS_KEY: u64 = 2;
    pub(super) const ANSWER_HOST: u64 = 1;
    pub(super) const ANSWER_PORT: u64 = 2;
    pub(super) const ANSWER_CERTIFICATE: u64 = 3;
}
const HTTP_VERSION_2: u64 = 2;
const PROTOCOL_GRPC: u64 = 2;

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    run_way(bench, Way::Same)
}

/// Runs the cases for gRPC-Web through the plugin. Without a gateway the server speaks gRPC-Web itself.
pub(super) fn run_grpc_web(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    run_way(bench, Way::GrpcWeb)
}

fn run_way(bench: &Bench<'_>, way: Way) -> Result<Vec<Outcome>, String> {
    let runner = bench.go.install(&RUNNER)?;
    let server = bench.go.install(&SERVER)?;
    let features = bench.go.folder().join(format!("{}.yaml", way.suite()));
    std::fs::write(&features, way.features())
        .map_err(|error| format!("cannot write {}: {error}", features.display()))?;
    eprintln!("== {} over cleartext and TLS", way.suite());
    let mut command = Command::new(runner);
    command.args(["--mode", "server", "--conf"]);
    command.arg(features);
    if let Some(only) = bench.only {
        command.args(["--run", only]);
    }
    command.arg("--");
    match bench.gateway {
        None => {
            command.arg(server);
        }
        Some(gateway) => {
            let myself = std::env::current_exe().map_err(|error| error.to_string())?;
            let desk = Desk {
                gateway: gateway.to_owned(),
                server,
                way,
            };
            let address = desk.open().map_err(|error| error.to_string())?;
            command
                .arg(myself)
                .args(["compat-server", &address.to_string()]);
        }
    }
    // The exit status only says whether a case failed; the output says which.
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot run connectconformance: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    Ok(vec![judge(&said, way)?])
}

fn judge(said: &str, way: Way) -> Result<Outcome, String> {
    let (passed, failed) =
        read(said).ok_or_else(|| format!("connectconformance told no result:\n{said}"))?;
    if passed + failed.len() == 0 {
        return Err("connectconformance ran no case".to_owned());
    }
    Ok(Outcome {
        suite: way.suite(),
        version: VERSION.trim_start_matches('v').to_owned(),
        way: "both",
        passed,
        failed,
        left_out: LEFT_OUT.map(|(name, why)| Case::new(name, why)).into(),
        ..Outcome::default()
    })
}

/// Parses the number of passed cases and the failed cases. The suite prints each failed case with indented details, and
/// the totals after them.
fn read(said: &str) -> Option<(usize, Vec<Case>)> {
    let mut failed: Vec<Case> = Vec::new();
    let mut sums = None;
    for line in said.lines() {
        if let Some(name) = line.strip_prefix("FAILED: ") {
            failed.push(Case::new(name.trim_end_matches(':'), ""));
        } else if let Some((case, about)) = failed.last_mut().zip(line.strip_prefix('\t')) {
            case.why.push_str(about);
            case.why.push('\n');
        } else if let Some((passed, rest)) = line.split_once(" passed, ") {
            let count = rest.strip_suffix(" failed")?.parse::<usize>().ok()?;
            sums = Some((passed.parse::<usize>().ok()?, count));
        } else if line.contains("could not be run") {
            failed.push(Case::new("cases that could not be run", line));
        }
    }
    let (passed, count) = sums?;
    (failed.len() >= count).then_some((passed, failed))
}

/// The side of this process that serves the stand-ins.
struct Desk {
    gateway: PathBuf,
    server: PathBuf,
    way: Way,
}

impl Desk {
    fn open(self) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let desk = Arc::new(self);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let desk = Arc::clone(&desk);
                thread::spawn(move || {
                    if let Err(error) = desk.attend(stream) {
                        eprintln!("conformance: {error}");
                    }
                });
            }
        });
        Ok(address)
    }

    /// Starts the server and gateway for one stand-in, and keeps them until the stand-in disconnects.
    fn attend(&self, mut stream: TcpStream) -> Result<(), String> {
        let io = |error: io::Error| error.to_string();
        let asked = wire::read_message(&mut stream).map_err(io)?;
        let folder = tempfile::tempdir().map_err(io)?;
        let started = self.start(&asked, folder.path())?;
        wire::write_message(&mut stream, &started.answer).map_err(io)?;
        // The stand-in sends nothing more. The read ends when the suite has stopped the stand-in.
        let _ = stream.read(&mut [0]);
        Ok(())
    }

    fn start(&self, asked: &[u8], folder: &Path) -> Result<Started, String> {
        let fields = wire::fields(asked).ok_or("the suite's message cannot be read")?;
        let tls = wire::number(&fields, field::USE_TLS) != 0;
        let configuration = self.way.server_configuration(asked, &fields);
        let (server, upstream) = self.start_server(&configuration)?;
        let credentials = wire::bytes(&fields, field::CREDENTIALS);
        let certificate = tls
            .then(|| write_certificate(credentials, folder))
            .transpose()?;
        let grpc = wire::number(&fields, field::PROTOCOL) == PROTOCOL_GRPC;
        let http2 = wire::number(&fields, field::HTTP_VERSION) == HTTP_VERSION_2;
        let web = self.way == Way::GrpcWeb;
        let site = Site {
            upstream,
            speech: if http2 || web {
                Speech::Grpc
            } else {
                Speech::Http
            },
            tls: tls && !web,
            routed: if grpc { "grpc, grpcs" } else { "http, https" },
            plugin: web.then_some("grpc-web"),
            certificate: certificate.as_ref(),
        };
        let gateway = site.start(&self.gateway)?;
        let address = site::listener(&gateway, tls)?;
        let mut answer = vec![
            (field::ANSWER_HOST, Value::Bytes(b"127.0.0.1")),
            (field::ANSWER_PORT, Value::Number(address.port().into())),
        ];
        let parts = wire::fields(credentials).unwrap_or_default();
        let chain = wire::bytes(&parts, field::CREDENTIALS_CERTIFICATE);
        if tls {
            answer.push((field::ANSWER_CERTIFICATE, Value::Bytes(chain)));
        }
        Ok(Started {
            answer: wire::encode(&answer),
            _gateway: gateway,
            _server: server,
        })
    }

    /// Starts the reference server in the same way as without a gateway.
    fn start_server(&self, asked: &[u8]) -> Result<(Process, SocketAddr), String> {
        let mut command = Command::new(&self.server);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = Process::start(&mut command)?;
        let (input, output) = (server.0.stdin.take(), server.0.stdout.take());
        let (mut input, mut output) = input.zip(output).ok_or("no pipes")?;
        wire::write_message(&mut input, asked).map_err(|error| error.to_string())?;
        drop(input);
        let answer = wire::read_message(&mut output)
            .map_err(|error| format!("the reference server did not start: {error}"))?;
        let fields = wire::fields(&answer).ok_or("the server's message cannot be read")?;
        let port = wire::number(&fields, field::ANSWER_PORT);
        let port = u16::try_from(port).map_err(|_| "the server reported no port")?;
        Ok((server, SocketAddr::from(([127, 0, 0, 1], port))))
    }
}

/// A reference server and its gateway, which run until this is dropped.
struct Started {
    answer: Vec<u8>,
    _gateway: testkit::Gateway,
    _server: Process,
}

fn write_certificate(credentials: &[u8], folder: &Path) -> Result<Certificate, String> {
    let parts = wire::fields(credentials).ok_or("the suite's certificate cannot be read")?;
    let write = |name: &str, number| {
        let path = folder.join(name);
        std::fs::write(&path, wire::bytes(&parts, number)).map(|()| path)
    };
    let chain = write("chain.pem", field::CREDENTIALS_CERTIFICATE);
    let key = write("key.pem", field::CREDENTIALS_KEY);
    let io = |error: io::Error| error.to_string();
    Ok(Certificate {
        chain: chain.map_err(io)?,
        key: key.map_err(io)?,
    })
}

/// Runs as the server that the suite starts: sends the suite's message to `address`, prints the response, and runs
/// until it is stopped.
pub(crate) fn stand_in(address: &str) -> Result<(), String> {
    let io = |error: io::Error| error.to_string();
    let asked = wire::read_message(&mut io::stdin().lock()).map_err(io)?;
    let mut desk = TcpStream::connect(address).map_err(io)?;
    wire::write_message(&mut desk, &asked).map_err(io)?;
    let answer = wire::read_message(&mut desk).map_err(io)?;
    wire::write_message(&mut io::stdout().lock(), &answer).map_err(io)?;
    desk.read(&mut [0]).map(|_| ()).map_err(io)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_read_with_their_reasons() {
        let said = "FAILED: Basic/HTTPVersion:2/unary/success:\n\texpecting 2 headers\n\tgot 1\n\nTotal cases: 3\n2 passed, 1 failed\n";
        let case = Case::new(
            "Basic/HTTPVersion:2/unary/success",
            "expecting 2 headers\ngot 1\n",
        );
        assert_eq!(read(said), Some((2, vec![case])));
    }

    #[test]
    fn cases_that_could_not_run_are_failures() {
        let said = "Total cases: 3\n2 passed, 0 failed\nAnother 1 could not be run due to client timing out or exiting prematurely.\n";
        let (passed, failed) = read(said).expect("there are sums");
        assert_eq!((passed, failed.len()), (2, 1));
    }

    #[test]
    fn without_sums_there_is_no_result() {
        assert_eq!(read("error: no such file\n"), None);
        assert_eq!(read("0 passed, 4 failed\n"), None);
    }
}
