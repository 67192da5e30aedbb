//! Peers: the competitors with which Silverback is compared. For each workload a peer gets a configuration that does
//! the same as Silverback's.
//!
//! Every peer is tuned in its favour:
//!
//! - It has one worker, no log lines for requests, and no telemetry.
//! - Its connections to clients and upstream stay open.
//! - Its buffers hold a response of 64 KiB, if their size can be set.
//! - It has no listeners other than the proxy's, except where the harness needs one to see that it is ready.
//!
//! The project neither bundles nor builds peers. They must be on PATH or named by an option.

mod caddy;
mod envoy;
mod haproxy;
mod kong;
mod krakend;
mod nginx;
#[cfg(test)]
mod tests;
mod traefik;

pub use crate::certificate::Certificate;

use crate::configuration;
use crate::process::{self, Process};
use anyhow::{Context, Result, bail};
use clap::Args;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time until a started peer is ready. With the largest configurations, peers take nearly this long.
const READY_LIMIT: Duration = Duration::from_secs(60);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

#[derive(Args, Clone, Debug, Default)]
#[group(id = "options_of_peers")]
pub struct Options {
    /// Use the program at PATH for this peer, instead of the one on PATH; may be repeated
    #[arg(long = "peer", value_name = "NAME=PATH", value_parser = named_path)]
    pub peers: Vec<(String, PathBuf)>,
    /// Leave out this peer; may be repeated
    #[arg(long, value_name = "NAME", value_parser = known_name)]
    pub without: Vec<String>,
    /// Measure Kong too: PATH is a script that starts Kong with the settings in its environment, and prints Kong's
    /// version if its argument is `version`
    #[arg(long, value_name = "PATH")]
    pub kong: Option<PathBuf>,
}

fn named_path(text: &str) -> Result<(String, PathBuf), String> {
    let (name, path) = text.split_once('=').ok_or("it must be NAME=PATH")?;
    if !DEFINITIONS.iter().any(|definition| definition.name == name) {
        return Err(unknown(name));
    }
    Ok((name.to_owned(), path.into()))
}

fn known_name(text: &str) -> Result<String, String> {
    if text == kong::DEFINITION.name || DEFINITIONS.iter().any(|definition| definition.name == text)
    {
        return Ok(text.to_owned());
    }
    Err(unknown(text))
}

fn unknown(name: &str) -> String {
    let known = DEFINITIONS.map(|definition| definition.name).join(", ");
    format!("unknown peer {name}; the peers are {known}")
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Http2 {
    Off,
    /// HTTP/2 with any number of requests on a connection. All measurements over HTTP/1.1 allow any number too.
    Unlimited,
    /// HTTP/2 with the peer's default limit of requests on a connection.
    UsualLimits,
}

/// The work that a gateway must do.
pub struct Workload<'a> {
    pub upstream: SocketAddr,
    /// Certificate of the listener, which then supports TLS 1.2 and 1.3; `None` for a plaintext listener.
    pub tls: Option<&'a Certificate>,
    /// HTTP/2 support of the TLS listener, in addition to HTTP/1.1. Used for some peers only.
    pub http2: Http2,
    /// Number of routes. A single route is `/`, the prefix of every path. Several routes are the prefixes
    /// `configuration::path(0..routes)`; the response to any other path is 404.
    pub routes: usize,
    /// Number of keys. With 0 there is no authentication. Otherwise the header `apikey` must be one of
    /// `configuration::key(0..keys)`, or the response is 401.
    pub keys: usize,
}

impl Workload<'_> {
    /// Returns the prefixes of the routes, if there are several.
    fn paths(&self) -> impl DoubleEndedIterator<Item = String> {
        (0..self.routes).map(configuration::path)
    }

    fn api_keys(&self) -> impl Iterator<Item = String> {
        (0..self.keys).map(configuration::key)
    }
}

/// The harness's description of a peer.
struct Definition {
    name: &'static str,
    /// Possible names of the program on PATH.
    programs: &'static [&'static str],
    install: &'static str,
    version: fn(&Path) -> Option<String>,
    prepare: fn(&Workload<'_>, SocketAddr, &Path) -> Result<Option<Plan>>,
}

static DEFINITIONS: [&Definition; 6] = [
    &nginx::DEFINITION,
    &haproxy::DEFINITION,
    &envoy::DEFINITION,
    &caddy::DEFINITION,
    &traefik::DEFINITION,
    &krakend::DEFINITION,
];

/// The command for starting a peer after its configuration has been written.
#[derive(Default)]
struct Plan {
    arguments: Vec<String>,
    environment: Vec<(&'static str, String)>,
    /// A plaintext listener that answers 200 once the configuration is loaded. Used for peers that listen before they
    /// have loaded it.
    ready: Option<SocketAddr>,
}

impl Plan {
    fn new<const N: usize>(arguments: [&str; N]) -> Self {
        Self {
            arguments: arguments.map(str::to_owned).into(),
            ..Self::default()
        }
    }

    /// Returns a plan for a Go program, which runs on a single thread. By default Go uses one thread per processor and
    /// spends time on balancing work between them.
    fn go<const N: usize>(arguments: [&str; N]) -> Self {
        Self {
            environment: vec![("GOMAXPROCS", "1".to_owned())],
            ..Self::new(arguments)
        }
    }

    /// Returns the command for the report, without the parts that differ between runs.
    fn command(&self, program: &Path, address: SocketAddr, directory: &Path) -> String {
        let environment = self.environment.iter().map(|(name, value)| {
            if value.contains(' ') {
                format!("{name}='{value}'")
            } else {
                format!("{name}={value}")
            }
        });
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        let words: Vec<String> = environment
            .chain([program.into_owned()])
            .chain(self.arguments.iter().cloned())
            .collect();
        let ready = self
            .ready
            .map_or("READY".to_owned(), |ready| ready.to_string());
        words
            .join(" ")
            .replace(&format!("{}/", directory.display()), "")
            .replace(&directory.display().to_string(), ".")
            .replace(&address.to_string(), "ADDRESS")
            .replace(&ready, "READY")
    }
}

/// An installed peer.
pub struct Peer {
    pub name: &'static str,
    pub version: String,
    program: PathBuf,
    definition: &'static Definition,
}

pub struct Started {
    pub process: Process,
    pub address: SocketAddr,
    /// The command that started it, for the report.
    pub command: String,
}

impl Peer {
    /// Writes the configuration into `directory` and starts the peer on `core`. Returns `None` if the peer cannot do
    /// the workload.
    pub fn start(
        &self,
        workload: &Workload<'_>,
        core: usize,
        directory: &Path,
    ) -> Result<Option<Started>> {
        let address = process::free_address()?;
        let Some(plan) = (self.definition.prepare)(workload, address, directory)? else {
            return Ok(None);
        };
        let log = directory.join(format!("{}.log", self.name));
        let process = Process::start(
            &self.program,
            &plan.arguments,
            &plan.environment,
            core,
            address,
            &log,
        )?;
        let plain = workload.tls.is_none().then_some(address);
        if let Some(ready) = plan.ready.or(plain) {
            wait_until_ready(ready)
                .with_context(|| format!("{}: see {}", self.name, log.display()))?;
        }
        Ok(Some(Started {
            process,
            address,
            command: plan.command(&self.program, address, directory),
        }))
    }
}

/// Waits until the peer answers 200 to a request with the first route and the first key. This proves that the peer has
/// loaded its configuration, and that the configuration works.
fn wait_until_ready(address: SocketAddr) -> Result<()> {
    let started = Instant::now();
    loop {
        let status = status_of(address, &configuration::path(0), &configuration::key(0));
        match status {
            Ok(200) => return Ok(()),
            _ if started.elapsed() < READY_LIMIT => std::thread::sleep(Duration::from_millis(20)),
            Ok(status) => bail!("it still answers {status}"),
            Err(error) => return Err(error),
        }
    }
}

/// Sends one request on a new connection and returns the status.
fn status_of(address: SocketAddr, path: &str, key: &str) -> Result<u16> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: bench.test\r\napikey: {key}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let text = String::from_utf8_lossy(&answer);
    text.split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("an answer has no status")
}

pub struct Found {
    pub peers: Vec<Peer>,
    /// Sentences for the report that say which peers are missing and how to install them.
    pub missing: Vec<String>,
}

/// Looks for every peer on this machine.
pub fn find(options: &Options) -> Found {
    let mut found = Found {
        peers: Vec::new(),
        missing: Vec::new(),
    };
    let wanted = |name: &str| !options.without.iter().any(|without| without == name);
    for definition in DEFINITIONS {
        if !wanted(definition.name) {
            found
                .missing
                .push(format!("{} was left out (--without).", definition.name));
            continue;
        }
        match find_one(definition, options) {
            Ok(peer) => found.peers.push(peer),
            Err(sentence) => found.missing.push(sentence),
        }
    }
    match &options.kong {
        Some(script) if wanted(kong::DEFINITION.name) => found.peers.push(kong::peer(script)),
        Some(_) => found
            .missing
            .push("kong was left out (--without).".to_owned()),
        None => found
            .missing
            .push(format!("kong is missing: {}.", kong::DEFINITION.install)),
    }
    found
}

fn find_one(definition: &'static Definition, options: &Options) -> Result<Peer, String> {
    let name = definition.name;
    let given = options.peers.iter().rev().find(|(given, _)| given == name);
    let program = match given {
        Some((_, path)) if path.is_file() => path.clone(),
        Some((_, path)) => return Err(format!("{name} is not at {}.", path.display())),
        None => definition
            .programs
            .iter()
            .find_map(|program| on_path(program))
            .ok_or_else(|| {
                format!(
                    "{name} is missing: {}, or give --peer {name}=PATH.",
                    definition.install
                )
            })?,
    };
    let version = (definition.version)(&program)
        .ok_or_else(|| format!("{name} at {} does not tell its version.", program.display()))?;
    Ok(Peer {
        name,
        version,
        program,
        definition,
    })
}

/// Returns the path of a program on PATH or in a usual directory.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs servers in `/usr/sbin`, which may be only on root's PATH. Programs that are built by hand are
    // usually in `/usr/local/bin`.
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/local/bin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

/// Returns the text between `before` and the next space in a program's output.
fn version_after(program: &Path, arguments: &[&str], before: &str) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let (_, after) = text.split_once(before)?;
    after.split_whitespace().next().map(str::to_owned)
}

/// Writes a configuration file of a peer and returns its path for the command line.
fn write(directory: &Path, name: &str, text: &str) -> Result<String> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path.display().to_string())
}

/// Joins the items as lines that end with `end`.
fn lines(items: impl Iterator<Item = String>, end: &str) -> String {
    items.fold(String::new(), |mut text, item| {
        text.push_str(&item);
        text.push_str(end);
        text.push('\n');
        text
    })
}
