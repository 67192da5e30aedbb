//! The figures of the README: processor time of a request beside a byte relay and nginx, time of `POST /config`, memory.

use crate::figures::Samples;
use crate::load::{self, Request};
use crate::process::{self, Process};
use crate::{configuration, peers};
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The program that is measured has one core, everything else the other.
const SUBJECT_CORE: usize = 0;
const HARNESS_CORE: usize = 1;
const LARGE: usize = 10_000;

#[derive(Args)]
pub struct Options {
    /// The program to measure.
    #[arg(long, default_value = "target/release/silverback")]
    silverback: PathBuf,
    #[arg(long, default_value_t = 11)]
    rounds: usize,
    /// Seconds of load for each subject in each round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[arg(long, default_value_t = 64)]
    connections: usize,
    /// How often the large configuration is posted to see whether memory grows.
    #[arg(long, default_value_t = 200)]
    repeats: usize,
    /// Where to write the report as JSON.
    #[arg(long)]
    output: Option<PathBuf>,
}

/// One program under load.
struct Subject {
    name: &'static str,
    process: Process,
    address: SocketAddr,
    requests: Vec<Request>,
    cpu_microseconds: Samples,
    rate: Samples,
}

impl Subject {
    fn new(
        name: &'static str,
        process: Process,
        address: SocketAddr,
        requests: Vec<Request>,
    ) -> Self {
        Self {
            name,
            process,
            address,
            requests,
            cpu_microseconds: Samples::default(),
            rate: Samples::default(),
        }
    }

    fn measure(&mut self, connections: usize, duration: Duration) -> Result<()> {
        load::run(self.address, connections, duration / 10, &self.requests)?;
        let before = self.process.cpu_time()?;
        let outcome = load::run(self.address, connections, duration, &self.requests)?;
        let spent = self.process.cpu_time()? - before;
        if outcome.failed > 0 || outcome.requests == 0 {
            bail!("{}: {outcome}", self.name);
        }
        self.cpu_microseconds
            .push(spent.as_secs_f64() * 1e6 / outcome.requests as f64);
        self.rate
            .push(outcome.requests as f64 / outcome.elapsed.as_secs_f64());
        Ok(())
    }
}

/// A running gateway and where its two listeners are.
struct Gateway {
    process: Process,
    proxy: SocketAddr,
    admin: SocketAddr,
}

pub fn run(options: &Options) -> Result<()> {
    let directory = tempfile::tempdir()?;
    process::pin_self(HARNESS_CORE)?;
    let own = std::env::current_exe()?;
    let upstream = process::free_address()?;
    let log = directory.path().join("upstream.log");
    let arguments = ["upstream".to_owned(), upstream.to_string()];
    let _upstream = Process::start(&own, &arguments, &[], HARNESS_CORE, upstream, &log)?;

    let requests = measure_requests(options, &own, upstream, directory.path())?;
    let configuration = measure_configuration(options, upstream, directory.path())?;
    let report = json!({
        "machine": machine(),
        "options": {"rounds": options.rounds, "seconds": options.seconds, "connections": options.connections},
        "requests": requests,
        "configuration": configuration,
    });
    if let Some(path) = &options.output {
        fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn measure_requests(
    options: &Options,
    own: &Path,
    upstream: SocketAddr,
    directory: &Path,
) -> Result<Value> {
    let mut subjects = subjects(options, own, upstream, directory)?;
    let duration = Duration::from_secs_f64(options.seconds);
    for round in 0..options.rounds {
        eprintln!("round {} of {}", round + 1, options.rounds);
        let count = subjects.len();
        for offset in 0..count {
            subjects[(round + offset) % count].measure(options.connections, duration)?;
        }
    }
    let relay = subjects[0].cpu_microseconds.clone();
    let nginx = subjects
        .iter()
        .find(|subject| subject.name == "nginx")
        .map(|subject| subject.cpu_microseconds.clone());
    println!(
        "{:<44} {:>10} {:>9} {:>9} {:>10} {:>9}",
        "", "CPU µs", "× relay", "× nginx", "req/s", "RSS MiB"
    );
    let mut report = serde_json::Map::new();
    for subject in &subjects {
        let to_relay = subject.cpu_microseconds.ratio(&relay);
        let to_nginx = nginx
            .as_ref()
            .map(|nginx| subject.cpu_microseconds.ratio(nginx));
        let resident = subject.process.resident_mib()?;
        println!(
            "{:<44} {:>10.2} {:>9.2} {:>9.2} {:>10.0} {:>9.1}",
            subject.name,
            subject.cpu_microseconds.median(),
            to_relay.median(),
            to_nginx.as_ref().map_or(f64::NAN, Samples::median),
            subject.rate.median(),
            resident,
        );
        report.insert(
            subject.name.to_owned(),
            json!({
                "cpu_microseconds": subject.cpu_microseconds.to_json(),
                "times_relay": to_relay.median(),
                "times_nginx": to_nginx.as_ref().map(Samples::median),
                "requests_per_second": subject.rate.to_json(),
                "resident_mib": resident,
            }),
        );
    }
    Ok(Value::Object(report))
}

fn subjects(
    options: &Options,
    own: &Path,
    upstream: SocketAddr,
    directory: &Path,
) -> Result<Vec<Subject>> {
    let address = process::free_address()?;
    let arguments = [
        "relay".to_owned(),
        address.to_string(),
        upstream.to_string(),
    ];
    let relay = Process::start(
        own,
        &arguments,
        &[],
        SUBJECT_CORE,
        address,
        &directory.join("relay.log"),
    )?;
    let mut subjects = vec![Subject::new(
        "relay",
        relay,
        address,
        vec![Request::get("/")],
    )];
    match peers::find("nginx") {
        Some(program) => {
            let (process, address) = peers::nginx(&program, upstream, SUBJECT_CORE, directory)?;
            subjects.push(Subject::new(
                "nginx",
                process,
                address,
                vec![Request::get("/")],
            ));
        }
        None => eprintln!("nginx is not installed: measuring without it"),
    }
    let cases = [
        (
            "silverback (a) one route",
            configuration::small(upstream, false),
            vec![Request::get("/")],
        ),
        (
            "silverback (b) one route, key-auth",
            configuration::small(upstream, true),
            vec![Request::with_key("/", &configuration::key(0))],
        ),
        (
            "silverback (c) 10,000 routes, 10,000 keys",
            configuration::large(LARGE, LARGE, upstream, 0),
            (0..LARGE).map(scattered).collect(),
        ),
    ];
    for (name, text, requests) in cases {
        let gateway = start_gateway(options, directory)?;
        let posted = post_config(gateway.admin, &text)?;
        if posted.status != 201 {
            bail!("{name}: POST /config answered {}", posted.status);
        }
        subjects.push(Subject::new(name, gateway.process, gateway.proxy, requests));
    }
    Ok(subjects)
}

/// A route and a key, both far from those of the request before: the factors are primes that do not divide the count, so
/// every route and every key comes once.
fn scattered(number: usize) -> Request {
    let (route, key) = (number * 7919 % LARGE, number * 6007 % LARGE);
    Request::with_key(&configuration::path(route), &configuration::key(key))
}

fn start_gateway(options: &Options, directory: &Path) -> Result<Gateway> {
    let (proxy, admin) = (process::free_address()?, process::free_address()?);
    let prefix = directory.join(format!("silverback-{}", proxy.port()));
    fs::create_dir(&prefix)?;
    let environment = [
        ("KONG_DATABASE", "off".to_owned()),
        ("KONG_PREFIX", prefix.display().to_string()),
        ("KONG_PROXY_LISTEN", proxy.to_string()),
        ("KONG_ADMIN_LISTEN", admin.to_string()),
        ("KONG_NGINX_WORKER_PROCESSES", "1".to_owned()),
        ("KONG_PROXY_ACCESS_LOG", "off".to_owned()),
    ];
    let log = directory.join(format!("silverback-{}.log", proxy.port()));
    let process = Process::start(
        &options.silverback,
        &["start"],
        &environment,
        SUBJECT_CORE,
        admin,
        &log,
    )?;
    Ok(Gateway {
        process,
        proxy,
        admin,
    })
}

/// What `POST /config` answered.
struct Posted {
    status: u16,
    /// Until the head of the answer, as the gateway says.
    header: f64,
    /// Until the last byte of the answer, as the client sees it.
    wall: f64,
}

fn post_config(admin: SocketAddr, text: &str) -> Result<Posted> {
    let started = Instant::now();
    let mut stream = TcpStream::connect(admin)?;
    write!(
        stream,
        "POST /config HTTP/1.1\r\nHost: {admin}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    )?;
    stream.write_all(text.as_bytes())?;
    let mut head = Vec::new();
    let mut buffer = vec![0; 256 * 1024];
    let mut end = None;
    loop {
        let read = stream.read(&mut buffer)?;
        if read == 0 {
            break;
        }
        if end.is_none() {
            head.extend_from_slice(&buffer[..read]);
            end = head.windows(4).position(|window| window == b"\r\n\r\n");
        }
    }
    let wall = started.elapsed().as_secs_f64() * 1e3;
    let head = String::from_utf8_lossy(&head[..end.context("POST /config was not answered")?])
        .into_owned();
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .context("no status")?;
    let header = head
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(name, _)| name.eq_ignore_ascii_case("x-kong-admin-latency"))
        .and_then(|(_, value)| value.trim().parse().ok())
        .unwrap_or(f64::NAN);
    Ok(Posted {
        status,
        header,
        wall,
    })
}

/// Each of the three loads over several fresh gateways, then many loads into one of them.
fn measure_configuration(
    options: &Options,
    upstream: SocketAddr,
    directory: &Path,
) -> Result<Value> {
    let texts: Vec<String> = (0..3)
        .map(|changed| configuration::large(LARGE, LARGE, upstream, changed))
        .collect();
    let names = ["first", "unchanged", "one route changed"];
    let mut times: [(Samples, Samples, Samples); 3] = Default::default();
    let rounds = options.rounds.clamp(1, 7);
    let mut growth = Value::Null;
    for round in 0..rounds {
        let gateway = start_gateway(options, directory)?;
        for ((header, wall, resident), text) in
            times.iter_mut().zip([&texts[0], &texts[0], &texts[1]])
        {
            let posted = post_config(gateway.admin, text)?;
            if posted.status != 201 {
                bail!("POST /config answered {}", posted.status);
            }
            header.push(posted.header);
            wall.push(posted.wall);
            resident.push(gateway.process.resident_mib()?);
        }
        if round + 1 == rounds {
            growth = repeat(options, &gateway, &texts)?;
        }
    }
    println!(
        "\nPOST /config, {:.1} MB, 50,000 objects",
        texts[0].len() as f64 / 1e6
    );
    println!(
        "{:<44} {:>14} {:>14} {:>9}",
        "", "to answer ms", "whole ms", "RSS MiB"
    );
    let mut report = serde_json::Map::new();
    for (name, (header, wall, resident)) in names.iter().zip(&times) {
        println!(
            "{name:<44} {:>14.0} {:>14.0} {:>9.1}",
            header.median(),
            wall.median(),
            resident.median()
        );
        report.insert(
            (*name).to_owned(),
            json!({"latency_header_ms": header.to_json(), "wall_ms": wall.to_json(), "resident_mib": resident.to_json()}),
        );
    }
    println!(
        "RSS MiB over {} loads, each with one route changed: {growth}",
        options.repeats
    );
    report.insert(
        "repeats".to_owned(),
        json!({"loads": options.repeats, "resident_mib": growth}),
    );
    report.insert("bytes".to_owned(), json!(texts[0].len()));
    Ok(Value::Object(report))
}

fn repeat(options: &Options, gateway: &Gateway, texts: &[String]) -> Result<Value> {
    let mut resident = Vec::new();
    for load in 0..options.repeats {
        let posted = post_config(gateway.admin, &texts[1 + load % 2])?;
        if posted.status != 201 {
            bail!("POST /config answered {}", posted.status);
        }
        if (load + 1) % (options.repeats / 8).max(1) == 0 {
            resident.push((gateway.process.resident_mib()? * 10.0).round() / 10.0);
        }
    }
    Ok(json!(resident))
}

fn machine() -> Value {
    let read = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let model = read("/proc/cpuinfo")
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_owned());
    json!({
        "cpu": model,
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease"),
    })
}
