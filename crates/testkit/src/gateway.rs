//! Starts the real program on free ports with a prefix of its own.

use crate::http::{self, HttpResponse};
use serde_json::Value;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit for starting and stopping. Even on a busy machine, both take less.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const ADDRESSES_FILE: &str = "silverback.addresses.json";
const PID_FILE: &str = "silverback.pid";
const LOG_FILE: &str = "test.log";

/// Settings and arguments for starting a gateway.
#[derive(Debug)]
pub struct Launch {
    binary: PathBuf,
    prefix: PathBuf,
    /// The temporary prefix, which is removed with the gateway. `None` if the caller chose the prefix.
    _directory: Option<TempDir>,
    file: Option<PathBuf>,
    /// Maximum number of open files.
    open_files: Option<u32>,
    /// The settings file, if there is one.
    conf: Option<PathBuf>,
    settings: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    /// The destination of the gateway's standard error. `None` means the log file.
    errors: Option<Stdio>,
}

impl Launch {
    /// Creates a launch of the binary with a new temporary prefix and one worker, on free ports of the loopback
    /// address. [`Launch::start`] starts the gateway.
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let prefix = directory.path().to_owned();
        Self {
            _directory: Some(directory),
            ..Self::in_prefix(binary, prefix)
        }
    }

    /// Creates a launch like [`Launch::new`], but with a prefix that is kept when the gateway stops.
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

    /// Limits the number of open files.
    pub fn open_files(mut self, most: u32) -> Self {
        self.open_files = Some(most);
        self
    }

    /// Removes a setting, so that its default or the settings file applies.
    pub fn unset(mut self, name: &str) -> Self {
        self.settings.retain(|(present, _)| present != name);
        self
    }

    /// Redirects standard error, which otherwise goes to the file that [`Gateway::log`] reads.
    pub fn errors(mut self, errors: impl Into<Stdio>) -> Self {
        self.errors = Some(errors.into());
        self
    }

    /// Writes a settings file `silverback.conf` in the prefix. The test can overwrite it while the gateway runs.
    pub fn conf(mut self, text: &str) -> Self {
        let path = self.prefix.join("silverback.conf");
        fs::create_dir_all(&self.prefix).expect("the prefix can be created");
        fs::write(&path, text).expect("the prefix can be written");
        self.conf = Some(path);
        self
    }

    /// Sets an environment variable of the gateway. Commands of [`Launch::other`] do not get it.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the declarative configuration to start with. It is written to a file in the prefix immediately.
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

    /// Returns the command that starts the gateway. It does not inherit the `KONG_` and `SILVERBACK_` variables of the
    /// test's own environment, because they would change the settings.
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

    /// Returns another command of the program (`stop`, `check` …) with the same prefix, settings file and `--set`
    /// arguments. Unlike [`Launch::command`], it inherits the environment of the test unchanged.
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

    /// Starts the gateway and waits until it listens. Panics with the log if it exits instead.
    pub fn start(self) -> Gateway {
        self.try_start().unwrap_or_else(|log| {
            panic!("the gateway did not start:\n{log}");
        })
    }

    /// Starts the gateway and waits until it listens. Returns the log if it exits instead.
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

/// A running gateway. It is killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    /// The first listener of the proxy without TLS. The port is 0 if there is none.
    pub proxy: SocketAddr,
    /// The first TLS listener of the proxy.
    pub proxy_tls: Option<SocketAddr>,
    /// The first listener of the Admin API without TLS. The port is 0 if there is none.
    pub admin: SocketAddr,
    /// The first TLS listener of the Admin API.
    pub admin_tls: Option<SocketAddr>,
    /// The first listener of the Status API without TLS. The port is 0 if there is none.
    pub status: SocketAddr,
    /// The first TLS listener of the Status API.
    pub status_tls: Option<SocketAddr>,
    /// All addresses by kind of listener: `stream`, `stream_tls`, `stream_udp` and others.
    addresses: Value,
    launch: Launch,
    child: Child,
    /// The id of the process that replaced `child` in an upgrade. That process is not a child of the test process.
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

    /// Returns the addresses of one kind of listener, in the order of the settings.
    pub fn listening(&self, kind: &str) -> Vec<SocketAddr> {
        let of_kind = self.addresses[kind].as_array().into_iter().flatten();
        let texts = of_kind.filter_map(|address| address.as_str()?.parse().ok());
        texts.collect()
    }

    /// Returns the id of the process that serves: the started process, or the process of the last upgrade.
    pub fn pid(&self) -> u32 {
        self.successor.unwrap_or(self.child.id())
    }

    /// Runs the `upgrade` command with the same binary. If it fails, returns its error output.
    pub fn upgrade(&mut self) -> Result<(), String> {
        let output = self.launch.other(&["upgrade"]).output();
        let output = output.expect("the program can be run");
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let text = fs::read_to_string(self.launch.prefix.join(PID_FILE));
        let pid = text.expect("the PID file exists").trim().parse();
        self.successor = Some(pid.expect("a number"));
        Ok(())
    }

    pub fn launch(&self) -> &Launch {
        &self.launch
    }

    /// Sends a `GET` request through the proxy.
    pub fn get(&self, target: &str, headers: &[(&str, &str)]) -> HttpResponse {
        http::get(self.proxy, target, headers)
    }

    /// Sends a `GET` request to the Admin API.
    pub fn admin_get(&self, target: &str) -> HttpResponse {
        http::get(self.admin, target, &[])
    }

    /// Sends a request to the Admin API. An empty `json` sends no body.
    pub fn admin_send(&self, method: &str, target: &str, json: &str) -> HttpResponse {
        let headers: &[(&str, &str)] = match json {
            "" => &[],
            _ => &[("Content-Type", "application/json")],
        };
        http::request(self.admin, method, target, headers, json.as_bytes())
    }

    /// Posts a declarative configuration as text.
    pub fn post_config(&self, text: &str) -> HttpResponse {
        let headers = [("Content-Type", "text/yaml")];
        http::request(self.admin, "POST", "/config", &headers, text.as_bytes())
    }

    /// Returns the log so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.launch.prefix.join(LOG_FILE)).unwrap_or_default()
    }

    /// Waits until the log contains a text. Panics with the log if it does not appear in time.
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

    /// Whether the process that was started first has exited. This does not depend on the processes of later upgrades.
    pub fn first_has_ended(&mut self) -> bool {
        let status = self.child.try_wait();
        status.expect("a child can be waited for").is_some()
    }

    /// Waits until the process of the last upgrade has exited. This polls, because that process is not a child of the
    /// test process.
    pub fn wait_for_successor(&self) {
        let deadline = Instant::now() + LIMIT;
        while is_alive(self.pid()) {
            assert!(
                Instant::now() < deadline,
                "the upgraded process does not exit:\n{}",
                self.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Kills the gateway with SIGKILL, so that it stops as in a crash.
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Waits until the process that was started first exits by itself. Panics if that takes longer than a minute. See
    /// [`Gateway::wait_for_successor`] for the process of an upgrade.
    pub fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("a child can be waited for") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the gateway does not exit:\n{}",
                self.log()
            );
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits like [`Gateway::wait`], but without a time limit.
    pub fn wait_forever(&mut self) {
        let _ = self.child.wait();
    }

    /// Returns the peak resident memory of the process in bytes.
    pub fn peak_memory(&self) -> u64 {
        let path = format!("/proc/{}/status", self.pid());
        let status = fs::read_to_string(path).expect("the process runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
        number.expect("the kernel reports VmHWM") * 1024
    }

    /// Sends SIGTERM and waits until the gateway has exited. After an upgrade, this does not wait for the new process:
    /// send the signal with [`Gateway::signal`] and call [`Gateway::wait_for_successor`] instead.
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

/// Whether a process runs. A zombie does not count as running. In a container without an init process, an orphan stays
/// a zombie after it exits.
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
