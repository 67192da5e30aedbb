//! A gateway for a suite, with one route to one upstream.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use testkit::{Gateway, Launch};

/// The protocol between the gateway and the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speech {
    /// HTTP/1.1.
    Http,
    /// HTTP/2.
    Grpc,
}

/// Paths of PEM files.
#[derive(Debug, Clone)]
pub(super) struct Certificate {
    pub(super) chain: PathBuf,
    pub(super) key: PathBuf,
}

pub(super) struct Site<'a> {
    pub(super) upstream: SocketAddr,
    pub(super) speech: Speech,
    /// Whether the upstream uses TLS.
    pub(super) tls: bool,
    /// The route's `protocols`, as in a configuration.
    pub(super) routed: &'a str,
    /// Name of a plugin on the route, with its default configuration.
    pub(super) plugin: Option<&'a str>,
    /// Default certificate for clients whose server name has no certificate of its own.
    pub(super) certificate: Option<&'a Certificate>,
}

impl Site<'_> {
    /// Starts a gateway with a plaintext and a TLS listener, both with HTTP/2.
    pub(super) fn start(&self, program: &Path) -> Result<Gateway, String> {
        let mut launch = Launch::new(program)
            .set("proxy_listen", "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2")
            .set("nginx_worker_processes", "2");
        if let Some(certificate) = self.certificate {
            launch = launch
                .set("ssl_cert", certificate.chain.display().to_string())
                .set("ssl_cert_key", certificate.key.display().to_string());
        }
        launch
            .configuration(&self.configuration())
            .try_start()
            .map_err(|log| format!("the gateway did not start:\n{log}"))
    }

    fn configuration(&self) -> String {
        let protocol = match (self.speech, self.tls) {
            (Speech::Http, false) => "http",
            (Speech::Http, true) => "https",
            (Speech::Grpc, false) => "grpc",
            (Speech::Grpc, true) => "grpcs",
        };
        let plugin = self.plugin.map_or(String::new(), |name| {
            format!("\x20   plugins:\n\x20   - name: {name}\n")
        });
        format!(
            "_format_version: '3.0'\n\
             services:\n\
             - name: upstream\n\
             \x20 protocol: {protocol}\n\
             \x20 host: {}\n\
             \x20 port: {}\n\
             \x20 routes:\n\
             \x20 - name: all\n\
             \x20   protocols: [{}]\n\
             \x20   paths: [/]\n\
             \x20   strip_path: false\n{plugin}",
            self.upstream.ip(),
            self.upstream.port(),
            self.routed
        )
    }
}

/// Returns the address of the listener that a suite connects to.
pub(super) fn listener(gateway: &Gateway, tls: bool) -> Result<SocketAddr, String> {
    if tls {
        gateway
            .proxy_tls
            .ok_or_else(|| "no TLS listener".to_owned())
    } else {
        Ok(gateway.proxy)
    }
}
