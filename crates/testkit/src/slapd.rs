//! A real LDAP server: OpenLDAP's `slapd` (Debian package `slapd`) on free ports, with a tree that the test gives.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Time limit for starting. Even on a busy machine, it takes less.
const LIMIT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Where the server's program and its schemas are.
const PROGRAMS: [&str; 3] = ["/usr/sbin", "/usr/lib/openldap", "/usr/libexec"];
const SCHEMAS: [&str; 2] = ["/etc/ldap/schema", "/etc/openldap/schema"];

/// What to say where there is no `slapd`.
pub const MISSING: &str = "slapd is not installed (Debian package `slapd`), so tests with a real LDAP server are left out";

/// A running server. It stops when this is dropped.
#[derive(Debug)]
pub struct Slapd {
    /// LDAP, with StartTLS if the server has a certificate.
    pub address: SocketAddr,
    /// LDAP over TLS.
    pub tls: SocketAddr,
    _process: Process,
    _directory: TempDir,
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
struct Process(Child);

/// A certificate and its key, as PEM.
#[derive(Debug, Clone, Copy)]
pub struct Identity<'a> {
    pub certificate: &'a str,
    pub key: &'a str,
}

impl Slapd {
    /// Whether the server is installed.
    pub fn is_installed() -> bool {
        program().is_some()
    }

    /// Starts a server with a tree below `dc=case,dc=test`, as LDIF. Returns `None` where it is not installed. There a
    /// test must end early; in CI it fails.
    pub fn start(tree: &str, identity: Option<Identity<'_>>) -> Option<Self> {
        let Some(program) = program() else {
            assert!(std::env::var_os("CI").is_none(), "{MISSING}");
            eprintln!("note: {MISSING}");
            return None;
        };
        let directory = tempfile::tempdir().expect("a temporary directory");
        let configuration = configure(directory.path(), identity);
        load(&program, &configuration, tree);
        // Another process may take a port before the server does.
        let started = (0..5).find_map(|_| run(&program, &configuration));
        let (process, address, tls) = started.expect("the LDAP server starts");
        Some(Self {
            address,
            tls,
            _process: process,
            _directory: directory,
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let fixed = PROGRAMS.iter().map(PathBuf::from);
    let mut folders = std::env::split_paths(&path).chain(fixed);
    folders.find_map(|folder| Some(folder.join("slapd")).filter(|program| program.is_file()))
}

/// Writes the configuration. Returns its path.
fn configure(directory: &Path, identity: Option<Identity<'_>>) -> PathBuf {
    let schemas = SCHEMAS.iter().find(|folder| Path::new(folder).is_dir());
    let schemas = schemas.expect("the schemas of the LDAP server");
    let database = directory.join("database");
    fs::create_dir(&database).expect("a new folder");
    let mut text = String::new();
    for schema in ["core", "cosine", "inetorgperson"] {
        text.push_str(&format!("include {schemas}/{schema}.schema\n"));
    }
    if let Some(Identity { certificate, key }) = identity {
        for (directive, name, content) in [
            ("TLSCertificateFile", "cert.pem", certificate),
            ("TLSCertificateKeyFile", "key.pem", key),
        ] {
            let path = directory.join(name);
            fs::write(&path, content).expect("a new file");
            text.push_str(&format!("{directive} {}\n", path.display()));
        }
    }
    text.push_str("database ldif\nsuffix \"dc=case,dc=test\"\n");
    text.push_str(&format!("directory {}\n", database.display()));
    let path = directory.join("slapd.conf");
    fs::write(&path, text).expect("a new file");
    path
}

/// Loads the tree. The program adds entries to a stopped server if it is called by the name `slapadd`.
fn load(program: &Path, configuration: &Path, tree: &str) {
    let mut child = Command::new(program)
        .args(["-T", "add", "-f"])
        .arg(configuration)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the LDAP server's program runs");
    let mut input = child.stdin.take().expect("a pipe");
    input.write_all(tree.as_bytes()).expect("it reads the tree");
    drop(input);
    let status = child.wait().expect("it ends");
    assert!(status.success(), "the LDAP server refuses the tree");
}

/// Starts the server. Returns `None` if it ends at once.
fn run(program: &Path, configuration: &Path) -> Option<(Process, SocketAddr, SocketAddr)> {
    let (address, tls) = (free(), free());
    let mut command = Command::new(program);
    let listeners = format!("ldap://{address} ldaps://{tls}");
    command
        .arg("-f")
        .arg(configuration)
        .args(["-h", &listeners]);
    // In the foreground, without a log.
    let child = command.args(["-d", "0"]).spawn();
    let mut process = Process(child.expect("the LDAP server's program runs"));
    let end = Instant::now() + LIMIT;
    while Instant::now() < end {
        if TcpStream::connect(address).is_ok() {
            return Some((process, address, tls));
        }
        let ended = process.0.try_wait().expect("the state of a child");
        if ended.is_some() {
            return None;
        }
        thread::sleep(POLL_INTERVAL);
    }
    None
}

/// Returns an address that was free a moment ago.
fn free() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("a bound address")
}
