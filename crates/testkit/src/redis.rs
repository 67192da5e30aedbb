//! Real Redis servers (Debian package `redis-server`) on free ports, alone, as a cluster, or with sentinels.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit for starting, for a failover, for the making of a cluster. Even on a busy machine, they take less.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// What to say where there is no `redis-server`.
pub const MISSING: &str = "redis-server is not installed (Debian package `redis-server`), so tests with a real Redis server are left out";

/// A server. It is killed when this is dropped.
#[derive(Debug)]
pub struct Redis {
    pub port: u16,
    process: Child,
    directory: TempDir,
    options: Vec<String>,
}

impl Redis {
    /// Whether the server and its client are installed.
    pub fn is_installed() -> bool {
        program("redis-server").is_some() && program("redis-cli").is_some()
    }

    /// Starts a server. Returns `None` where it is not installed. There a test must end early; in CI it fails.
    pub fn start() -> Option<Self> {
        Self::start_with(&[])
    }

    /// Starts a server with options of its command line, such as `--requirepass`. In them, `PORT` is its port and
    /// `DIR` its directory.
    pub fn start_with(options: &[&str]) -> Option<Self> {
        if !Self::is_installed() {
            assert!(std::env::var_os("CI").is_none(), "{MISSING}");
            eprintln!("note: {MISSING}");
            return None;
        }
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        let started = (0..5).find_map(|_| {
            let port = free();
            Some((port, launch(directory.path(), port, &options)?))
        });
        let (port, process) = started.expect("the Redis server starts");
        Some(Self {
            port,
            process,
            directory,
            options,
        })
    }

    /// Starts a server with TLS only.
    pub fn start_tls(certificate: &str, key: &str) -> Option<Self> {
        let files = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, content: &str| {
            let path = files.path().join(name);
            fs::write(&path, content).expect("a new file");
            path.display().to_string()
        };
        let (certificate, key) = (write("cert.pem", certificate), write("key.pem", key));
        let options = [
            "--port",
            "0",
            "--tls-port",
            "PORT",
            "--tls-auth-clients",
            "no",
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
            "--tls-ca-cert-file",
            &certificate,
        ];
        // The server has read the files when it has started.
        Self::start_with(&options)
    }

    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Runs a command of `redis-cli`, and returns its answer.
    pub fn query(&self, arguments: &[&str]) -> String {
        query(self.port, arguments)
    }

    /// Ends the server at once. What it had is lost.
    pub fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }

    /// Starts the server again on its port after [`Redis::kill`].
    pub fn restart(&mut self) {
        let process = launch(self.directory.path(), self.port, &self.options);
        self.process = process.expect("the Redis server starts again");
    }

    /// Halts the server: connections are accepted, and nothing is answered.
    pub fn halt(&self) {
        self.signal("-STOP");
    }

    /// Lets a halted server go on.
    pub fn go_on(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.process.id().to_string();
        let status = Command::new("kill").args([signal, &pid]).status();
        assert!(status.expect("kill runs").success());
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A Redis Cluster.
#[derive(Debug)]
pub struct RedisCluster {
    pub nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts a cluster of this number of masters, each with this number of replicas. Returns `None` where Redis is not
    /// installed.
    pub fn start(masters: usize, replicas: usize) -> Option<Self> {
        const OPTIONS: [&str; 6] = [
            "--cluster-enabled",
            "yes",
            "--cluster-node-timeout",
            "1500",
            "--cluster-require-full-coverage",
            "no",
        ];
        let size = masters * (1 + replicas);
        let nodes: Option<Vec<Redis>> = (0..size).map(|_| Redis::start_with(&OPTIONS)).collect();
        let cluster = Self { nodes: nodes? };
        let addresses = cluster.nodes.iter().map(|node| node.address().to_string());
        let mut command = Command::new("redis-cli");
        command
            .args(["--cluster", "create"])
            .args(addresses)
            .args(["--cluster-replicas", &replicas.to_string()]);
        let output = command.arg("--cluster-yes").output();
        let output = output.expect("redis-cli runs");
        assert!(output.status.success(), "{}", text(&output));
        for node in &cluster.nodes {
            wait("the cluster is complete", || {
                let info = node.query(&["CLUSTER", "INFO"]);
                let replication = node.query(&["INFO", "replication"]);
                let known = format!("cluster_known_nodes:{size}");
                ["cluster_state:ok", "cluster_slots_ok:16384", &known]
                    .iter()
                    .all(|line| info.contains(line))
                    && (replication.contains("role:master")
                        || replication.contains("master_link_status:up"))
            });
        }
        // A replica knows that it is one only after it has joined.
        wait("the replicas follow", || {
            cluster.replicas().count() == masters * replicas
        });
        Some(cluster)
    }

    /// The nodes that are replicas now.
    pub fn replicas(&self) -> impl Iterator<Item = &Redis> {
        let mut nodes = self.nodes.iter();
        std::iter::from_fn(move || nodes.find(|node| node.query(&["ROLE"]).starts_with("slave")))
    }
}

/// A master, a replica of it, and a sentinel that replaces the master by the replica.
#[derive(Debug)]
pub struct RedisSentinel {
    pub master: Redis,
    pub replica: Redis,
    pub sentinel: Redis,
}

impl RedisSentinel {
    /// The name of the master.
    pub const MASTER: &str = "counters";

    /// Starts the servers. Returns `None` where Redis is not installed.
    pub fn start() -> Option<Self> {
        let master = Redis::start()?;
        let port = master.port.to_string();
        let replica = Redis::start_with(&["--replicaof", "127.0.0.1", &port])?;
        wait("the replica follows", || {
            replica
                .query(&["INFO", "replication"])
                .contains("master_link_status:up")
        });
        let sentinel = Redis::start_with(&["DIR/sentinel.conf", "--sentinel"])?;
        for arguments in [
            &["SENTINEL", "MONITOR", Self::MASTER, "127.0.0.1", &port, "1"][..],
            &[
                "SENTINEL",
                "SET",
                Self::MASTER,
                "down-after-milliseconds",
                "300",
            ],
            &["SENTINEL", "SET", Self::MASTER, "failover-timeout", "3000"],
        ] {
            assert_eq!(sentinel.query(arguments), "OK");
        }
        wait("the sentinel knows the replica", || {
            sentinel
                .query(&["SENTINEL", "REPLICAS", Self::MASTER])
                .contains(&replica.port.to_string())
        });
        Some(Self {
            master,
            replica,
            sentinel,
        })
    }

    /// Kills the master, and waits until the sentinel names the replica.
    pub fn fail_over(&mut self) {
        self.master.kill();
        let port = self.replica.port.to_string();
        wait("the failover", || {
            let named = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::MASTER];
            self.sentinel.query(&named).contains(&port)
                && self.replica.query(&["ROLE"]).starts_with("master")
        });
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(name));
    programs.find(|program| program.is_file())
}

/// Starts a server and waits until it answers. Returns `None` if it ends at once: another process may take the port
/// before it does.
fn launch(directory: &Path, port: u16, options: &[String]) -> Option<Child> {
    let port_text = port.to_string();
    let place = directory.display().to_string();
    let filled = |option: &String| option.replace("PORT", &port_text).replace("DIR", &place);
    let mut options: Vec<String> = options.iter().map(filled).collect();
    // A configuration file comes first. A sentinel must have one, and writes it.
    if let Some(file) = options.first().filter(|option| option.starts_with('/')) {
        fs::write(file, "").expect("a new file");
    } else {
        options.insert(0, "-".to_owned());
    }
    let mut command = Command::new("redis-server");
    command.arg(&options[0]);
    command.args(["--port", &port_text, "--bind", "127.0.0.1", "--dir", &place]);
    command
        .args(["--save", "", "--loglevel", "warning"])
        .args(&options[1..]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = command.spawn().expect("redis-server runs");
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        // A server with a password or with TLS refuses this, and so has started as well.
        if std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Some(process);
        }
        if process.try_wait().expect("the state of a child").is_some() {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
    let _ = process.kill();
    let _ = process.wait();
    None
}

fn query(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &port.to_string()]).args(arguments);
    let output = command.output().expect("redis-cli runs");
    text(&output).trim_end().to_owned()
}

fn text(output: &Output) -> String {
    let out = String::from_utf8_lossy(&output.stdout);
    format!("{out}{}", String::from_utf8_lossy(&output.stderr))
}

fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    let end = Instant::now() + LIMIT;
    while !is_done() {
        assert!(Instant::now() < end, "{what} takes too long");
        thread::sleep(POLL_INTERVAL);
    }
}

/// Returns a port that was free a moment ago. A cluster needs the port that is larger by 10,000 as well.
fn free() -> u16 {
    loop {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        if port < 55_000 {
            return port;
        }
    }
}
