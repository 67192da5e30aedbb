//! The real program, started on free ports with a prefix of its own.

use crate::http::{self, Answer};
use serde_json::Value;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any start or end takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const ADDRESSES_FILE: &str = "silverback.addresses.json";
const LOG_FILE: &str = "test.log";

/// How a gateway is to be started.
#[derive(Debug)]
pub struct Launch {
    binary: PathBuf,
    prefix: PathBuf,
    /// Removed with the gateway; absent when the prefix is the caller's.
    _directory: Option<TempDir>,
    file: Option<PathBuf>,
    settings: Vec<(String, String)>,
    variables: Vec<(String, String)>,
}

impl Launch {
    /// The binary on a fresh prefix, one worker, listening on free ports of the loopback address.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let prefix = directory.path().to_owned();
        Self {
            _directory: Some(directory),
            ..Self::in_prefix(binary, prefix)
        }
    }

    /// The same on a prefix that outlives the gateway.
    pub fn in_prefix(binary: impl Into<PathBuf>, prefix: impl Into<PathBuf>) -> Self {
        Self {
            binary: binary.into(),
            prefix: prefix.into(),
            _directory: None,
            file: None,
            settings: Vec::new(),
            variables: Vec::new(),
        }
        .set("proxy_listen", "127.0.0.1:0")
        .set("admin_listen", "127.0.0.1:0")
        .set("nginx_worker_processes", "1")
    }

    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.retain(|(present, _)| present != name);
        self.settings.push((name.to_owned(), value.into()));
        self
    }

    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts with a declarative configuration, written to a file in the prefix.
    pub fn configuration(self, text: &str) -> Self {
        let path = self.prefix.join("kong.yml");
        fs::create_dir_all(&self.prefix).expect("the prefix can be created");
        fs::write(&path, text).expect("the prefix can be written");
        self.file(path)
    }

    pub fn file(mut self, path: impl Into<PathBuf>) -> Self {
        self.file = Some(path.into());
        self
    }

    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// The command line that starts the gateway, without the variables of this process.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if name.starts_with("KONG_") || name.starts_with("SILVERBACK_") {
                command.env_remove(name.as_ref());
            }
        }
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.arg("start");
        command.args(&self.file);
        self.add_settings(&mut command);
        command
    }

    /// Another command of the program (`stop`, `check` …) with the same settings.
    pub fn other(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command.args(words);
        self.add_settings(&mut command);
        command
    }

    fn add_settings(&self, command: &mut Command) {
        command.arg("--prefix").arg(&self.prefix);
        for (name, value) in &self.settings {
            command.arg("--set").arg(format!("{name}={value}"));
        }
    }

    /// Starts and waits until it listens; panics with its log when it ends instead.
    pub fn start(self) -> Gateway {
        self.try_start().unwrap_or_else(|log| {
            panic!("the gateway did not start:\n{log}");
        })
    }

    /// Starts and waits until it listens, or gives what it said before it ended.
    pub fn try_start(self) -> Result<Gateway, String> {
        fs::create_dir_all(&self.prefix).expect("the prefix can be created");
        let addresses_file = self.prefix.join(ADDRESSES_FILE);
        let _ = fs::remove_file(&addresses_file);
        let log = self.prefix.join(LOG_FILE);
        let output = File::create(&log).expect("the prefix can be written");
        let errors = output.try_clone().expect("a file can be cloned");
        let mut command = self.command();
        let mut child = command
            .stdout(output)
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run {}: {error}", self.binary.display()));
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Ok(text) = fs::read_to_string(&addresses_file) {
                return Ok(Gateway::new(self, child, &text));
            }
            if child
                .try_wait()
                .expect("a child can be waited for")
                .is_some()
            {
                return Err(fs::read_to_string(&log).unwrap_or_default());
            }
            assert!(Instant::now() < deadline, "the gateway does not listen");
            thread::sleep(POLL_INTERVAL);
        }
    }
}

/// A running gateway; killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    /// The first plain listener of the proxy.
    pub proxy: SocketAddr,
    /// The first TLS listener of the proxy.
    pub proxy_tls: Option<SocketAddr>,
    pub admin: SocketAddr,
    /// The first TLS listener of the Admin API.
    pub admin_tls: Option<SocketAddr>,
    launch: Launch,
    child: Child,
}

impl Gateway {
    fn new(launch: Launch, child: Child, addresses: &str) -> Self {
        let addresses: Value = serde_json::from_str(addresses).expect("the addresses are JSON");
        let first = |name: &str| {
            let text = addresses[name][0].as_str()?;
            text.parse().ok()
        };
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self {
            proxy: first("proxy").unwrap_or(nowhere),
            proxy_tls: first("proxy_tls"),
            admin: first("admin").unwrap_or(nowhere),
            admin_tls: first("admin_tls"),
            launch,
            child,
        }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// `GET` through the proxy.
    pub fn get(&self, target: &str, headers: &[(&str, &str)]) -> Answer {
        http::get(self.proxy, target, headers)
    }

    /// `GET` from the Admin API.
    pub fn admin_get(&self, target: &str) -> Answer {
        http::get(self.admin, target, &[])
    }

    /// Posts a declarative configuration as text.
    pub fn post_config(&self, text: &str) -> Answer {
        let headers = [("Content-Type", "text/yaml")];
        http::request(self.admin, "POST", "/config", &headers, text.as_bytes())
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.launch.prefix.join(LOG_FILE)).unwrap_or_default()
    }

    /// Waits until the log holds a text; panics with the log when it does not come.
    pub fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + LIMIT;
        while !self.log().contains(text) {
            assert!(
                Instant::now() < deadline,
                "`{text}` does not appear in:\n{}",
                self.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.pid().to_string()])
            .status()
            .expect("kill can be run");
        assert!(status.success(), "kill -s {name} failed");
    }

    /// Kills it at once, as a crash would.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits for the process to end by itself.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the gateway does not end:\n{}",
                self.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits for the process to end by itself, however long it takes.
    pub fn wait_forever(&mut self) {
        let _ = self.child.wait();
    }

    /// The most memory that the process ever had resident, in bytes.
    pub fn peak_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.expect("the kernel tells it") * 1024
    }

    /// Asks it to end and waits until it has.
    pub fn stop(mut self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if thread::panicking() {
            let ended = self.child.try_wait();
            eprintln!("the gateway's status: {ended:?}, its log:\n{}", self.log());
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
