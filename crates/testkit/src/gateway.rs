//! The real program, started on free ports with a prefix of its own.

use crate::http::{self, Answer};
use serde_json::Value;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than any start or end takes on a busy machine.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const ADDRESSES_FILE: &str = "silverback.addresses.json";
const PID_FILE: &str = "silverback.pid";
const LOG_FILE: &str = "test.log";

/// How a gateway is to be started.
#[derive(Debug)]
pub struct Launch {
    binary: PathBuf,
    prefix: PathBuf,
    /// Removed with the gateway; absent when the prefix is the caller's.
    _directory: Option<TempDir>,
    file: Option<PathBuf>,
    /// The most files it may have open.
    open_files: Option<u32>,
    /// The settings file, when there is one.
    conf: Option<PathBuf>,
    settings: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    /// Takes the place of the log file as standard error.
    errors: Option<Stdio>,
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
            conf: None,
            open_files: None,
            settings: Vec::new(),
            variables: Vec::new(),
            errors: None,
        }
        .set("proxy_listen", "127.0.0.1:0")
        .set("admin_listen", "127.0.0.1:0")
        .set("status_listen", "127.0.0.1:0")
        .set("proxy_access_log", "off")
        .set("proxy_stream_access_log", "off")
        .set("admin_access_log", "off")
        .set("nginx_worker_processes", "1")
    }

    pub fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.retain(|(present, _)| present != name);
        self.settings.push((name.to_owned(), value.into()));
        self
    }

    /// Limits the files that it may have open.
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Leaves a setting to its default, or to the settings file.
    pub fn unset(mut self, name: &str) -> Self {
        self.settings.retain(|(present, _)| present != name);
        self
    }

    /// Gives the gateway another standard error than the file that [`Gateway::log`] reads.
    pub fn errors(mut self, errors: impl Into<Stdio>) -> Self {
        self.errors = Some(errors.into());
        self
    }

    /// Writes a settings file, which can be written anew while the gateway runs.
    pub fn conf(mut self, text: &str) -> Self {
        let path = self.prefix.join("silverback.conf");
        fs::create_dir_all(&self.prefix).expect("the prefix can be created");
        fs::write(&path, text).expect("the prefix can be written");
        self.conf = Some(path);
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
        let mut command = match self.open_files {
            None => Command::new(&self.binary),
            Some(most) => {
                let mut command = Command::new("sh");
                let script = format!("ulimit -n {most} && exec \"$0\" \"$@\"");
                command.arg("-c").arg(script).arg(&self.binary);
                command
            }
        };
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
        if let Some(conf) = &self.conf {
            command.arg("--conf").arg(conf);
        }
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
    pub fn try_start(mut self) -> Result<Gateway, String> {
        fs::create_dir_all(&self.prefix).expect("the prefix can be created");
        let addresses_file = self.prefix.join(ADDRESSES_FILE);
        let _ = fs::remove_file(&addresses_file);
        let log = self.prefix.join(LOG_FILE);
        let output = File::create(&log).expect("the prefix can be written");
        let errors = output.try_clone().expect("a file can be cloned");
        let mut child = self
            .command()
            .stdout(output)
            .stderr(self.errors.take().unwrap_or(errors.into()))
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
    pub status: SocketAddr,
    /// The first TLS listener of the Status API.
    pub status_tls: Option<SocketAddr>,
    /// All of them by what they are for: `stream`, `stream_tls`, `stream_udp` and others.
    addresses: Value,
    launch: Launch,
    child: Child,
    /// The process that has taken over from the child, which it is not one of.
    successor: Option<u32>,
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
            status: first("status").unwrap_or(nowhere),
            status_tls: first("status_tls"),
            addresses,
            launch,
            child,
            successor: None,
        }
    }

    /// The addresses of a kind, in the order of the settings.
    pub fn listening(&self, kind: &str) -> Vec<SocketAddr> {
        let of_kind = self.addresses[kind].as_array().into_iter().flatten();
        let texts = of_kind.filter_map(|address| address.as_str()?.parse().ok());
        texts.collect()
    }

    /// Of the process that serves.
    pub fn pid(&self) -> u32 {
        self.successor.unwrap_or(self.child.id())
    }

    /// Lets the binary take over from itself, by the command for it. Gives what that said when it failed.
    pub fn upgrade(&mut self) -> Result<(), String> {
        let output = self.launch.other(&["upgrade"]).output();
        let output = output.expect("the program can be run");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = fs::read_to_string(self.launch.prefix.join(PID_FILE));
        let pid = text.expect("it is there").trim().parse();
        self.successor = Some(pid.expect("a number"));
        Ok(())
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

    /// A request to the Admin API with a JSON body, or none when it is empty.
    pub fn admin_send(&self, method: &str, target: &str, json: &str) -> Answer {
        let headers: &[(&str, &str)] = match json {
            "" => &[],
            _ => &[("Content-Type", "application/json")],
        };
        http::request(self.admin, method, target, headers, json.as_bytes())
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

    /// Whether the process that was started first, and may have been replaced since, has ended.
    pub fn first_has_ended(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("a child can be waited for").is_some()
    }

    /// Waits until the process that has taken over has ended, which is nobody's child here.
    pub fn wait_for_successor(&self) {
        let deadline = Instant::now() + LIMIT;
        while is_alive(self.pid()) {
            assert!(
                Instant::now() < deadline,
                "it does not end:\n{}",
                self.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
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
        if let Some(pid) = self.successor.filter(|pid| is_alive(*pid)) {
            let _ = Command::new("kill")
                .args(["-s", "KILL", &pid.to_string()])
                .status();
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An orphan that nobody has waited for is a zombie where there is no init.
fn is_alive(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat"));
    status.is_ok_and(|status| {
        !status
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .starts_with(" Z")
    })
}
