//! A Kong-compatible gateway under test: any build of Silverback, or Kong itself through a start script.

use crate::certificate::Certificate;
use crate::process::{self, Process};
use anyhow::{Context, Result, bail};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const ANSWER_LIMIT: Duration = Duration::from_secs(300);

/// A program that can be started as a gateway.
#[derive(Clone)]
pub struct Build {
    pub name: String,
    pub program: PathBuf,
    pub arguments: Vec<String>,
    pub version: String,
}

impl Build {
    pub fn silverback(name: &str, program: &Path) -> Result<Self> {
        let version = process::first_line_of(program, &["version"])
            .with_context(|| format!("cannot run {}", program.display()))?;
        Ok(Self {
            name: name.to_owned(),
            program: program.to_owned(),
            arguments: vec!["start".to_owned()],
            version,
        })
    }

    pub fn command(&self) -> String {
        let program = self.program.file_name().unwrap_or_default();
        format!("{} {}", program.to_string_lossy(), self.arguments.join(" "))
    }
}

/// Returns the settings of every gateway under test, except the listeners and the certificate. They are the same for
/// Silverback and Kong: one worker, no log lines for requests, an unlimited number of requests per client and upstream
/// connection, and buffers that hold a response of 64 KiB and the largest configuration.
pub fn settings(prefix: &Path, database: &str) -> Vec<(&'static str, String)> {
    let fixed = [
        ("KONG_NGINX_DAEMON", "off"),
        ("KONG_NGINX_WORKER_PROCESSES", "1"),
        ("KONG_STATUS_LISTEN", "off"),
        ("KONG_PROXY_ACCESS_LOG", "off"),
        ("KONG_ADMIN_ACCESS_LOG", "off"),
        ("KONG_ANONYMOUS_REPORTS", "off"),
        ("KONG_UPSTREAM_KEEPALIVE_POOL_SIZE", "4096"),
        ("KONG_UPSTREAM_KEEPALIVE_MAX_REQUESTS", "0"),
        ("KONG_UPSTREAM_KEEPALIVE_IDLE_TIMEOUT", "600"),
        ("KONG_NGINX_HTTP_KEEPALIVE_REQUESTS", "1000000000"),
        ("KONG_NGINX_HTTP_KEEPALIVE_TIMEOUT", "600s"),
        ("KONG_NGINX_HTTP_CLIENT_BODY_BUFFER_SIZE", "256m"),
        ("KONG_NGINX_PROXY_PROXY_BUFFER_SIZE", "64k"),
        ("KONG_NGINX_PROXY_PROXY_BUFFERS", "8 64k"),
        ("KONG_NGINX_PROXY_PROXY_BUSY_BUFFERS_SIZE", "128k"),
    ];
    let mut settings: Vec<_> = fixed
        .into_iter()
        .map(|(name, value)| (name, value.to_owned()))
        .collect();
    settings.extend([
        ("KONG_DATABASE", database.to_owned()),
        ("KONG_PREFIX", prefix.display().to_string()),
    ]);
    settings
}

/// Returns the settings that make a gateway use this certificate.
pub fn certificate_settings(certificate: &Certificate) -> [(&'static str, String); 2] {
    let path = |path: &Path| path.display().to_string();
    [
        ("KONG_SSL_CERT", path(&certificate.certificate)),
        ("KONG_SSL_CERT_KEY", path(&certificate.key)),
    ]
}

/// A running gateway with the addresses of its listeners.
pub struct Gateway {
    pub process: Process,
    prefix: PathBuf,
    pub proxy: SocketAddr,
    pub tls: SocketAddr,
    pub admin: SocketAddr,
}

impl Gateway {
    /// Starts a gateway with [`settings`], with the settings in `more`, and without a configuration.
    pub fn start(
        build: &Build,
        certificate: &Certificate,
        core: usize,
        directory: &Path,
        more: &[(&'static str, String)],
    ) -> Result<Self> {
        // The directory is not named by the port, because a later gateway of the same run may get the same port.
        let prefix = tempfile::tempdir_in(directory)?.keep();
        Self::start_in(prefix, "off", build, certificate, core, more)
    }

    /// Restarts the gateway on the same store with a new process that accepts writes of single entities.
    pub fn again_writable(
        self,
        build: &Build,
        certificate: &Certificate,
        core: usize,
    ) -> Result<Self> {
        let prefix = self.prefix.clone();
        drop(self);
        Self::start_in(prefix, "lmdb", build, certificate, core, &[])
    }

    fn start_in(
        prefix: PathBuf,
        database: &str,
        build: &Build,
        certificate: &Certificate,
        core: usize,
        more: &[(&'static str, String)],
    ) -> Result<Self> {
        let (proxy, tls, admin) = (
            process::free_address()?,
            process::free_address()?,
            process::free_address()?,
        );
        let mut environment = settings(&prefix, database);
        environment.extend([
            ("KONG_PROXY_LISTEN", format!("{proxy}, {tls} http2 ssl")),
            ("KONG_ADMIN_LISTEN", admin.to_string()),
        ]);
        environment.extend(certificate_settings(certificate));
        environment.extend_from_slice(more);
        let log = prefix.with_extension("log");
        let process = Process::start(
            &build.program,
            &build.arguments,
            &environment,
            core,
            admin,
            &log,
        )?;
        Ok(Self {
            process,
            prefix,
            proxy,
            tls,
            admin,
        })
    }

    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// Loads a configuration. Every status other than 201 is an error.
    pub fn post_config(&self, text: &str) -> Result<Posted> {
        let started = Instant::now();
        let answer = exchange(
            self.admin,
            &format!(
                "POST /config HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                self.admin,
                text.len()
            ),
            text.as_bytes(),
        )?;
        let milliseconds = started.elapsed().as_secs_f64() * 1e3;
        if answer.status != 201 {
            bail!("POST /config answered {}: {}", answer.status, answer.start);
        }
        let header = answer
            .header("x-kong-admin-latency")
            .and_then(|value| value.parse().ok())
            .context("POST /config was answered without X-Kong-Admin-Latency")?;
        Ok(Posted {
            header,
            whole: milliseconds,
        })
    }

    /// Returns the value of a sample in the Admin API's `GET /metrics`, or `None` if the sample is missing.
    pub fn metric(&self, sample: &str) -> Result<Option<f64>> {
        let answer = self.get("/metrics")?;
        if answer.status != 200 {
            return Ok(None);
        }
        Ok(sample_of(&answer.start, sample))
    }

    pub fn get(&self, path: &str) -> Result<AdminResponse> {
        self.get_with(path, "")
    }

    /// Requests a path of the Admin API with these header lines.
    pub fn get_with(&self, path: &str, headers: &str) -> Result<AdminResponse> {
        let head = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\n{headers}Connection: close\r\n\r\n",
            self.admin
        );
        exchange(self.admin, &head, b"")
    }
}

fn sample_of(text: &str, sample: &str) -> Option<f64> {
    text.lines()
        .find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '))?
        .trim()
        .parse()
        .ok()
}

/// Duration of a `POST /config` in milliseconds.
pub struct Posted {
    /// Time until the head of the response, as the gateway reports in `X-Kong-Admin-Latency`.
    pub header: f64,
    /// Time until the last byte of the response, as measured by the client.
    pub whole: f64,
}

pub struct AdminResponse {
    pub status: u16,
    head: String,
    /// The body, cut off after about one megabyte, which is enough for metrics and errors.
    pub start: String,
    /// Number of lines that are no comments, of head and body.
    pub samples: usize,
}

impl AdminResponse {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
    }
}

const KEPT: usize = 1024 * 1024;

/// Sends one request on a new connection.
pub fn exchange(address: SocketAddr, head: &str, body: &[u8]) -> Result<AdminResponse> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_nodelay(true)?;
    stream.write_all(head.as_bytes())?;
    stream.write_all(body)?;
    let mut kept = Vec::new();
    let (mut samples, mut before) = (0, b'\n');
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let read = stream.read(&mut buffer).context("no answer in time")?;
        if read == 0 {
            break;
        }
        for byte in &buffer[..read] {
            samples += usize::from(before == b'\n' && *byte != b'#');
            before = *byte;
        }
        if kept.len() < KEPT {
            kept.extend_from_slice(&buffer[..read]);
        }
    }
    let text = String::from_utf8_lossy(&kept);
    let (head, start) = text
        .split_once("\r\n\r\n")
        .with_context(|| format!("{address} did not answer"))?;
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("an answer has no status")?;
    Ok(AdminResponse {
        status,
        head: head.to_owned(),
        start: start.to_owned(),
        samples,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_found_by_its_whole_name() {
        let text = "# TYPE x summary\nx_sum{part=\"plans\"} 2\nx_sum{part=\"router\"} 0.25\n";
        assert_eq!(sample_of(text, "x_sum{part=\"router\"}"), Some(0.25));
        assert_eq!(sample_of(text, "x_sum"), None);
    }
}
