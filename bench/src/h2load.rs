//! h2load, which makes the load of HTTP/2: the harness's own generator does not speak it.

use crate::peers;
use anyhow::{Context, Result, bail};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub const MISSING: &str = "h2load is not installed (package nghttp2-client)";

pub struct H2load(PathBuf);

/// What is sent to a TLS listener.
#[derive(Clone, Copy)]
pub struct Load {
    pub requests: usize,
    pub connections: usize,
    /// At a time, on each connection.
    pub streams: usize,
}

#[derive(Debug, PartialEq)]
pub struct Outcome {
    /// Whether that was negotiated.
    pub http2: bool,
    pub succeeded: f64,
    pub rate: f64,
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
            .context("h2load tells no requests that succeeded")?,
        rate: number_before(text, "req/s", "finished in").unwrap_or(0.0),
    })
}

/// The number in front of a word in the line that begins so.
fn number_before(text: &str, word: &str, begins: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(begins))?;
    let words = line.split([' ', ',']).filter(|word| !word.is_empty());
    let words: Vec<&str> = words.collect();
    let at = words.iter().position(|candidate| *candidate == word)?;
    words[at.checked_sub(1)?].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_h2load_prints_is_understood() {
        let text = "TLS Protocol: TLSv1.3\nApplication protocol: h2\n\nfinished in 512.10ms, 9763.70 req/s, 1.2MB/s\n\
                    requests: 5000 total, 1100 started, 5000 done, 1000 succeeded, 4000 failed, 4000 errored, 0 timeout\n";
        let expected = Outcome {
            http2: true,
            succeeded: 1000.0,
            rate: 9763.70,
        };
        assert_eq!(parse(text).ok(), Some(expected));
        assert!(parse("").is_err());
    }
}
