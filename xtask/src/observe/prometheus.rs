//! A real Prometheus that scrapes the gateway: the installed one (Debian package `prometheus`, which has promtool too), or
//! one that `cargo xtask compat prometheus` has built.

use crate::shell;
use serde_json::Value;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// What to say where there is no Prometheus.
pub(crate) const MISSING: &str =
    "prometheus and promtool are not installed (Debian package `prometheus`)";

/// The name of the scrape job, which the rules expect.
pub(super) const JOB: &str = "silverback";

/// Time limit for starting.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The directory with the rules and the scrape configuration that users get.
pub(crate) fn deployed() -> PathBuf {
    shell::root().join("deploy").join("prometheus")
}

/// The programs of one version of Prometheus.
pub(crate) struct Programs {
    pub(crate) version: String,
    pub(crate) server: PathBuf,
    pub(crate) promtool: PathBuf,
}

impl Programs {
    /// Returns the programs on the PATH. `None` if one of them is missing.
    pub(crate) fn installed() -> Option<Self> {
        version_of("promtool")?;
        Some(Self {
            version: version_of("prometheus")?,
            server: "prometheus".into(),
            promtool: "promtool".into(),
        })
    }

    /// Runs promtool in the directory of the rules.
    pub(super) fn promtool(&self, words: &[&str]) -> Result<(), String> {
        let mut command = Command::new(&self.promtool);
        shell::run(command.current_dir(deployed()).args(words))
    }

    /// Lets promtool check a page of metrics. Returns what it says, line by line.
    pub(super) fn check_page(&self, page: &str) -> Result<Vec<String>, String> {
        let mut child = Command::new(&self.promtool)
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
}

/// Returns the version that a program on the PATH tells, as in `prometheus, version 2.42.0+ds (branch: ...`.
fn version_of(program: &str) -> Option<String> {
    let output = Command::new(program).arg("--version").output().ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let (_, version) = said.split_once("version ")?;
    version.split_whitespace().next().map(str::to_owned)
}

/// A server. It is killed when this is dropped.
pub(crate) struct Prometheus {
    pub(crate) address: SocketAddr,
    process: Child,
    log: PathBuf,
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Prometheus {
    /// Starts a server on this port, or on a free one for 0. It scrapes the target every second, and evaluates the
    /// rules that users get. Its files are in the directory. `job` has further lines of the scrape job.
    pub(crate) fn start(
        programs: &Programs,
        directory: &Path,
        target: SocketAddr,
        port: u16,
        job: &str,
    ) -> Result<Self, String> {
        let address = TcpListener::bind(("127.0.0.1", port))
            .or_else(|_| TcpListener::bind("127.0.0.1:0"))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| format!("no free port: {error}"))?;
        let file = directory.join("prometheus.yml");
        let rules = deployed().join("silverback.rules.yml");
        let text = format!(
            "global: {{ scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 5s }}\n\
             rule_files: ['{}']\n\
             scrape_configs:\n- job_name: {JOB}\n  static_configs: [{{ targets: ['{target}'] }}]\n{job}",
            rules.display()
        );
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        let log = directory.join("prometheus.log");
        let errors = std::fs::File::create(&log).map_err(|error| error.to_string())?;
        let process = Command::new(&programs.server)
            .arg(format!("--config.file={}", file.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                directory.join("prometheus").display()
            ))
            .arg(format!("--web.listen-address={address}"))
            .args(["--enable-feature=exemplar-storage", "--log.level=warn"])
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn()
            .map_err(|error| format!("cannot run {}: {error}", programs.server.display()))?;
        let mut server = Self {
            address,
            process,
            log,
        };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let listens = std::net::TcpStream::connect(self.address).is_ok();
            if listens && testkit::get(self.address, "/-/ready", &[]).status == 200 {
                return Ok(());
            }
            let ended = self.process.try_wait().map_err(|error| error.to_string())?;
            if ended.is_some() || Instant::now() > deadline {
                return Err(format!("prometheus did not start:\n{}", self.log()));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Returns its warnings and errors.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Evaluates an expression now. Returns the number of series, or the error.
    pub(super) fn evaluate(&self, expression: &str) -> Result<usize, String> {
        self.query(expression).map(|series| series.len())
    }

    /// Evaluates an expression now. Returns the series as the HTTP API shows them, or the error.
    pub(super) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let mut answer = self.ask(&format!("/api/v1/query?query={}", encoded(expression)));
        match (answer["data"]["result"].take(), answer["error"].as_str()) {
            (Value::Array(series), None) => Ok(series),
            (_, error) => Err(error.unwrap_or("no result").to_owned()),
        }
    }

    /// Returns the targets that it scrapes, as the HTTP API shows them.
    pub(super) fn targets(&self) -> Value {
        self.ask("/api/v1/targets")["data"]["activeTargets"].take()
    }

    /// Returns why the last scrape failed, if it did so for another reason than its time limit, which a busy machine may
    /// exceed.
    pub(super) fn scrape_error(&self) -> Option<String> {
        let target = &self.targets()[0];
        let error = target["lastError"].as_str().unwrap_or_default();
        let failed = !error.is_empty() && !error.contains("deadline exceeded");
        failed.then(|| error.to_owned())
    }

    /// Returns the rules that it evaluates, as the HTTP API shows them.
    pub(super) fn rules(&self) -> Vec<Value> {
        let answer = self.ask("/api/v1/rules");
        let groups = answer["data"]["groups"].as_array().into_iter().flatten();
        let rules = groups.flat_map(|group| group["rules"].as_array().into_iter().flatten());
        rules.cloned().collect()
    }

    /// Asks the HTTP API.
    pub(super) fn ask(&self, target: &str) -> Value {
        testkit::get(self.address, target, &[]).json()
    }
}

pub(super) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        plain if plain.is_ascii_alphanumeric() => char::from(plain).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}
