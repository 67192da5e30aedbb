//! gRPC's interoperability tests: the client of google.golang.org/grpc calls its server through the gateway.

use super::Bench;
use super::go::Program;
use super::process::{End, Process, run_for};
use super::report::{Case, Outcome};
use super::site::{self, Certificate, Site, Speech};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const MODULE: &str = "google.golang.org/grpc";
const VERSION: &str = "v1.85.0";
const CLIENT: Program = Program {
    package: "google.golang.org/grpc/interop/client",
    version: VERSION,
};
const SERVER: Program = Program {
    package: "google.golang.org/grpc/interop/server",
    version: VERSION,
};

/// The name in the certificate of the module's test data.
const NAME: &str = "foo.test.google.fr";
/// Service config that the module's own test script uses too.
const SERVICE_CONFIG: &str =
    r#"{"loadBalancingConfig": [{"test_backend_metrics_load_balancer": {}}]}"#;
const LIMIT: Duration = Duration::from_secs(40);

/// The cases of the client that the module's own test script runs too.
const CASES: [&str; 18] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "status_code_and_message",
    "special_status_message",
    "custom_metadata",
    "unimplemented_method",
    "unimplemented_service",
    "orca_per_rpc",
    "orca_oob",
    "rpc_soak",
    "channel_soak",
];

const LEFT_OUT: [(&str, &str); 2] = [
    (
        "pick_first_unary",
        "needs a server that tells its id, which the module's does not",
    ),
    (
        "compute_engine_creds, service_account_creds, jwt_token_creds, per_rpc_creds, oauth2_auth_token, \
         google_default_credentials, compute_engine_channel_credentials",
        "need credentials of a cloud",
    ),
];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let suite = Suite {
        client: bench.go.install(&CLIENT)?,
        server: bench.go.install(&SERVER)?,
        data: bench.go.module(MODULE, VERSION)?.join("testdata"),
    };
    let mut outcomes = Vec::new();
    for (way, tls) in [("cleartext", false), ("TLS", true)] {
        eprintln!("== interop over {way}");
        outcomes.push(suite.run(way, tls, bench)?);
    }
    Ok(outcomes)
}

struct Suite {
    client: PathBuf,
    server: PathBuf,
    data: PathBuf,
}

impl Suite {
    /// Runs every case, with TLS on both sides of the gateway or on neither.
    fn run(&self, way: &'static str, tls: bool, bench: &Bench<'_>) -> Result<Outcome, String> {
        let (_server, server) = self.serve(tls)?;
        let certificate = self.certificate();
        let site = Site {
            upstream: server,
            speech: Speech::Grpc,
            tls,
            routed: "grpc, grpcs",
            plugin: None,
            certificate: Some(&certificate),
        };
        let gateway = bench.gateway.map(|program| site.start(program));
        let gateway = gateway.transpose()?;
        let address = match &gateway {
            Some(gateway) => site::listener(gateway, tls)?,
            None => server,
        };
        let left_out = LEFT_OUT.map(|(name, why)| Case::new(name, why));
        let mut outcome = Outcome {
            suite: "interop",
            version: VERSION.trim_start_matches('v').to_owned(),
            way,
            left_out: left_out.into(),
            ..Outcome::default()
        };
        let chosen = |case: &&str| bench.only.is_none_or(|only| only == *case);
        for case in CASES.into_iter().filter(chosen) {
            outcome.count(case, self.call(case, address, tls)?);
        }
        Ok(outcome)
    }

    /// Runs one case. Returns the failure if there is one.
    fn call(&self, case: &str, address: SocketAddr, tls: bool) -> Result<Option<String>, String> {
        let mut command = Command::new(&self.client);
        command
            .arg(format!("-server_host={}", address.ip()))
            .arg(format!("-server_port={}", address.port()))
            .arg(format!("-service_config_json={SERVICE_CONFIG}"))
            .arg(format!("-test_case={case}"));
        if tls {
            command
                .args(["-use_tls", "-use_test_ca"])
                .arg(format!("-ca_file={}", self.data.join("ca.pem").display()))
                .arg(format!("-server_host_override={NAME}"));
        }
        Ok(match run_for(&mut command, LIMIT)? {
            End::Status(status, _) if status.success() => None,
            End::Status(status, said) => Some(format!("{status}: {}", last_line(&said))),
            End::TooLate(said) => Some(format!("did not finish in time: {}", last_line(&said))),
        })
    }

    /// Starts the server on a free port, and reads the port from its log.
    fn serve(&self, tls: bool) -> Result<(Process, SocketAddr), String> {
        let mut command = Command::new(&self.server);
        command
            .arg("-port=0")
            .env("GRPC_GO_LOG_SEVERITY_LEVEL", "info");
        if tls {
            let Certificate { chain, key } = self.certificate();
            command
                .arg("-use_tls")
                .arg(format!("-tls_cert_file={}", chain.display()))
                .arg(format!("-tls_key_file={}", key.display()));
        }
        let (process, at) = Process::start_until(&mut command, "listening on ")?;
        let port = at.rsplit(':').next().and_then(|port| port.parse().ok());
        let port: u16 = port.ok_or_else(|| format!("the server listens on `{at}`"))?;
        Ok((process, SocketAddr::from(([127, 0, 0, 1], port))))
    }

    fn certificate(&self) -> Certificate {
        Certificate {
            chain: self.data.join("server1.pem"),
            key: self.data.join("server1.key"),
        }
    }
}

fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev();
    lines
        .find(|line| !line.trim().is_empty())
        .unwrap_or("it said nothing")
}
