//! A real Prometheus (Debian package `prometheus`, which has promtool too) that scrapes the gateway.

use crate::shell;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What to say where there is no Prometheus.
pub(crate) const MISSING: &str =
    "prometheus and promtool are not installed (Debian package `prometheus`)";

/// Time limit for starting.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The directory with the rules and the scrape configuration that users get.
pub(crate) fn deployed() -> PathBuf {
    shell::root().join("deploy").join("prometheus")
}

pub(crate) fn is_installed() -> bool {
    ["prometheus", "promtool"].into_iter().all(|program| {
        let output = Command::new(program).arg("--version").output();
        output.is_ok_and(|output| output.status.success())
    })
}

/// Runs promtool in the directory of the rules.
pub(crate) fn promtool(words: &[&str]) -> Result<(), String> {
    shell::run(Command::new("promtool").current_dir(deployed()).args(words))
}

/// Lets promtool check a page of metrics. Returns what it says, line by line.
pub(crate) fn check_page(page: &str) -> Result<Vec<String>, String> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot run promtool: {error}"))?;
    if let Some(mut input) = child.stdin.take() {
        // If promtool has ended early, its output says why.
        let _ = input.write_all(page.as_bytes());
    }
    let output = child
        .wait_with_output()
        .map_err(|error| error.to_string())?;
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    Ok(said.lines().map(str::to_owned).collect())
}

/// A server. It is killed when this is dropped.
pub(crate) struct Prometheus {
    pub(crate) address: SocketAddr,
    process: Child,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Starts a server on this port, or on a free one for 0. It scrapes the target every second, and evaluates the
    /// rules that users get. Its files are in the directory.
    pub(crate) fn start(directory: &Path, target: SocketAddr, port: u16) -> Result<Self, String> {
        let address = TcpListener::bind(("127.0.0.1", port))
            .or_else(|_| TcpListener::bind("127.0.0.1:0"))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("no free port: {error}"))?;
        let file = directory.join("prometheus.yml");
        let rules = deployed().join("silverback.rules.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 5s }}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n- job_name: silverback\n  static_configs: [{{ targets: ['{target}'] }}]\n",
            rules.display()
        );
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let log = std::fs::File::create(directory.join("prometheus.log"))
            .map_err(|error| error.to_string())?;
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("prometheus").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=warn"])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot run prometheus: {error}"))?;
        let mut server = Self { address, process };
        server.wait_until_ready(directory)?;
        Ok(server)
    }

    fn wait_until_ready(&mut self, directory: &Path) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let listens = std::net::TcpStream::connect(self.address).is_ok();
            if listens && testkit::get(self.address, "/-/ready", &[]).status == 200 {
                return Ok(());
            }
            let ended = self.process.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                let log =
                    std::fs::read_to_string(directory.join("prometheus.log")).unwrap_or_default();
                return Err(format!("prometheus did not start:\n{log}"));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Evaluates an expression now. Returns the number of series, or the error.
    pub(crate) fn evaluate(&self, expression: &str) -> Result<usize, String> {
        let answer = self.ask(&format!("/api/v1/query?query={}", encoded(expression)));
        match (&answer["data"]["result"], answer["error"].as_str()) {
            (serde_json::Value::Array(series), None) => Ok(series.len()),
            (_, error) => Err(error.unwrap_or("no result").to_owned()),
        }
    }

    /// Asks the HTTP API.
    pub(crate) fn ask(&self, target: &str) -> serde_json::Value {
        testkit::get(self.address, target, &[]).json()
    }
}

fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        plain if plain.is_ascii_alphanumeric() => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}
