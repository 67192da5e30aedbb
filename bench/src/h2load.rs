//! Runs h2load, which generates the HTTP/2 load. The harness's own load generator does not support HTTP/2.

use crate::peers;
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub const MISSING: &str = "h2load is not installed (package nghttp2-client)";

pub struct H2load(PathBuf);

/// The amount of load on a TLS listener.
#[derive(Clone, Copy)]
pub struct Load {
    pub requests: usize,
    pub connections: usize,
    /// Number of concurrent streams on each connection.
    pub streams: usize,
}

#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// Whether HTTP/2 was negotiated.
    pub http2: bool,
    /// Number of requests with a 2xx or 3xx response.
    pub succeeded: f64,
    /// Total bytes of all bodies.
    pub data: f64,
    pub rate: f64,
}

impl Outcome {
    /// Returns an error text if fewer than `requests` succeeded, or if the bodies are not `body` bytes long on average.
    pub fn failure(&self, requests: usize, body: usize) -> Option<String> {
        let (requests, body) = (requests as f64, body as f64);
        if self.succeeded < requests {
            return Some(format!(
                "{} of {requests} requests failed",
                requests - self.succeeded
            ));
        }
        let expected = requests * body;
        (self.data != expected)
            .then(|| format!("the bodies had {} bytes instead of {expected}", self.data))
    }
}

impl H2load {
    pub fn find() -> Option<Self> {
        peers::on_path("h2load").map(Self)
    }

    pub fn serves_http2(&self, address: SocketAddr) -> Result<bool> {
        let once = Load {
            requests: 1,
            connections: 1,
            streams: 1,
        };
        Ok(self.run(address, once)?.http2)
    }

    pub fn run(&self, address: SocketAddr, load: Load) -> Result<Outcome> {
        let Self(program) = self;
        let output = Command::new(program)
            .args(["-n", &load.requests.to_string()])
            .args(["-c", &load.connections.to_string()])
            .args(["-m", &load.streams.to_string()])
            .arg(format!("https://{address}/"))
            .stdin(Stdio::null())
            .output()
            .context("cannot run h2load")?;
        if !output.status.success() {
            bail!("h2load: {}", String::from_utf8_lossy(&output.stderr));
        }
        parse(&String::from_utf8_lossy(&output.stdout))
    }
}

fn parse(text: &str) -> Result<Outcome> {
    Ok(Outcome {
        http2: text.lines().any(|line| line == "Application protocol: h2"),
        succeeded: number_before(text, "succeeded", "requests:")
            .context("h2load reported no number of succeeded requests")?,
        data: number_before(text, "data", "traffic:")
            .context("h2load reported no number of body bytes")?,
        rate: number_before(text, "req/s", "finished in").unwrap_or(0.0),
    })
}

/// Returns the number before `word` in the line that begins with `begins`.
fn number_before(text: &str, word: &str, begins: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(begins))?;
    let words = line
        .split([' ', ',', '(', ')'])
        .filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let at = words.iter().position(|candidate| *candidate == word)?;
    words[at.checked_sub(1)?].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_output_of_h2load_is_parsed() {
        let text = "TLS Protocol: TLSv1.3\nApplication protocol: h2\n\nfinished in 512.10ms, 9763.70 req/s, 1.2MB/s\n\
                    requests: 5000 total, 1100 started, 5000 done, 1000 succeeded, 4000 failed, 4000 errored, 0 timeout\n\
                    traffic: 537.12KB (550010) total, 12.30KB (12595) headers (space savings 90.12%), 500.00KB (512000) data\n";
        let expected = Outcome {
            http2: true,
            succeeded: 1000.0,
            data: 512_000.0,
            rate: 9763.70,
        };
        assert_eq!(parse(text).ok(), Some(expected));
        assert!(parse("").is_err());
    }

    #[test]
    fn requests_that_failed_and_bodies_that_are_missing_are_told() {
        let outcome = Outcome {
            http2: true,
            succeeded: 1000.0,
            data: 512_000.0,
            rate: 1.0,
        };
        assert_eq!(outcome.failure(1000, 512), None);
        let failed = outcome.failure(1001, 512);
        assert_eq!(failed.as_deref(), Some("1 of 1001 requests failed"));
        let empty = Outcome {
            data: 0.0,
            ..outcome
        };
        let missing = "the bodies had 0 bytes instead of 512000";
        assert_eq!(empty.failure(1000, 512).as_deref(), Some(missing));
    }
}
