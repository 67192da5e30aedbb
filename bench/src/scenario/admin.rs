//! `admin`: the Admin API on the embedded store. Measures writes of single entities, each of which is durable and live
//! when its response arrives. Also measures lists of up to a million entities, and the effect of ten changes per second
//! on traffic.

use super::pushes::{self, Disturbance};
use crate::configuration::{self, Plugins, Shape};
use crate::gateway::{Build, Gateway};
use crate::harness::{Harness, figure};
use crate::progress::Progress;
use crate::report::{Better, Figure, Scenario, Size};
use crate::rounds::{RATE, RESIDENT};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

const ABOUT: &str = "Consumers created by 1 to 64 concurrent clients, each durable before its response; the time until a changed route among 10,000 is live; \
                     pages of lists of up to 1,000,000 consumers, and their memory; traffic during ten changes per second.";
const HALF: (&str, &str, Better) = ("answer p50", "ms", Better::Lower);
const HIGH: (&str, &str, Better) = ("answer p99", "ms", Better::Lower);
const CPU: (&str, &str, Better) = ("CPU per write", "µs", Better::Lower);

const CLIENTS: [usize; 3] = [1, 16, 64];
const CREATES: usize = 2_000;
const ROUTES: usize = 10_000;
const CONSUMERS: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Number of requests in one sample of changes or lists.
const BATCH: usize = 100;

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "admin".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for build in harness.builds.clone() {
        creates(harness, &mut scenario, &build)?;
        changes(harness, &mut scenario, &build)?;
        lists(harness, &mut scenario, &build)?;
    }
    Ok(scenario)
}

fn shape(routes: usize, consumers: usize, plugins: Plugins) -> Shape {
    Shape {
        routes,
        consumers,
        plugins,
        changed: 0,
    }
}

fn creates(harness: &mut Harness, scenario: &mut Scenario, build: &Build) -> Result<()> {
    for clients in CLIENTS {
        let case = format!("creates, {clients} at once");
        if !harness.wants(&case) {
            continue;
        }
        let gateway =
            harness.writable(build, &shape(1, 1, Plugins::None).text(harness.upstream))?;
        let mut figures =
            [RATE, HALF, HIGH, CPU].map(|kind| figure(&case, &build.name, kind, None));
        let rounds = harness.options.rounds();
        let progress = Progress::start(&case, rounds);
        for round in 0..rounds {
            let cpu = gateway.process.cpu_time()?;
            let started = Instant::now();
            let mut times = at_once(clients, |client| {
                let mut api = Api::connect(gateway.admin)?;
                let each = CREATES / clients;
                (0..each)
                    .map(|number| {
                        let body = format!(r#"{{"username":"c{round}-{client}-{number}"}}"#);
                        api.time("POST", "/consumers", &body, 201)
                    })
                    .collect()
            })?;
            let elapsed = started.elapsed().as_secs_f64();
            let used = gateway.process.cpu_time()?.saturating_sub(cpu);
            let count = times.len() as f64;
            let samples = [
                count / elapsed,
                quantile(&mut times, 0.5),
                quantile(&mut times, 0.99),
                used.as_secs_f64() * 1e6 / count,
            ];
            push(&mut figures, samples);
            progress.step();
        }
        scenario.figures.extend(figures);
    }
    Ok(())
}

fn changes(harness: &mut Harness, scenario: &mut Scenario, build: &Build) -> Result<()> {
    let case = "one route changed at 10,000 routes, until it is live";
    let shape = shape(ROUTES, ROUTES, Plugins::KeyAuthAndTermination);
    if !harness.wants("route") || harness.options.largest < ROUTES {
        return Ok(());
    }
    let gateway = harness.writable(build, &shape.text(harness.upstream))?;
    let routes = first_ids(&gateway)?;
    let mut figures = [HALF, HIGH, CPU].map(|kind| figure(case, &build.name, kind, None));
    let mut api = Api::connect(gateway.admin)?;
    let progress = Progress::start(case, harness.options.rounds());
    for round in 0..harness.options.rounds() {
        let cpu = gateway.process.cpu_time()?;
        let mut times = Vec::with_capacity(BATCH);
        for number in 0..BATCH {
            let path = format!("/routes/{}", routes[number % routes.len()]);
            let body = format!(r#"{{"paths":["/changed/{round}/{number}"]}}"#);
            times.push(api.time("PATCH", &path, &body, 200)?);
        }
        let used = gateway.process.cpu_time()?.saturating_sub(cpu);
        let samples = [
            quantile(&mut times, 0.5),
            quantile(&mut times, 0.99),
            used.as_secs_f64() * 1e6 / BATCH as f64,
        ];
        push(&mut figures, samples);
        progress.step();
    }
    scenario.figures.extend(figures);
    drop(gateway);
    let gateway = harness.writable(build, &shape.text(harness.upstream))?;
    // No request of the load uses this route, so the changes affect traffic only through their own cost.
    let aside = r#"{"name":"aside","paths":["/aside"]}"#;
    Api::connect(gateway.admin)?.exchange("POST", "/routes", aside, 201)?;
    let disturbance = Disturbance {
        name: "ten changed routes a second",
        every: Duration::from_millis(100),
        act: &|number| {
            let body = format!(r#"{{"paths":["/aside/{number}"]}}"#);
            let mut api = Api::connect(gateway.admin)?;
            api.exchange("PATCH", "/routes/aside", &body, 200).map(drop)
        },
    };
    let requests = configuration::requests(&shape);
    pushes::disturb(
        harness,
        scenario,
        &build.name,
        &gateway,
        &requests,
        &disturbance,
    )
}

fn lists(harness: &mut Harness, scenario: &mut Scenario, build: &Build) -> Result<()> {
    for consumers in CONSUMERS {
        let case = format!("GET of 100 of {consumers} consumers");
        if !harness.wants(&case) || harness.options.largest < consumers {
            continue;
        }
        let text = shape(1, consumers, Plugins::KeyAuth).text(harness.upstream);
        let gateway = harness.writable(build, &text)?;
        drop(text);
        let size = Size {
            axis: "consumers".to_owned(),
            value: consumers as f64,
            line: "a page of 100".to_owned(),
        };
        let mut figures =
            [HALF, HIGH, CPU, RESIDENT].map(|kind| figure(&case, &build.name, kind, Some(&size)));
        let mut api = Api::connect(gateway.admin)?;
        let progress = Progress::start(&case, harness.options.rounds());
        for _ in 0..harness.options.rounds() {
            let cpu = gateway.process.cpu_time()?;
            let mut path = "/consumers?size=100".to_owned();
            let mut times = Vec::with_capacity(BATCH);
            for _ in 0..BATCH {
                let started = Instant::now();
                let page = api.exchange("GET", &path, "", 200)?;
                times.push(started.elapsed().as_secs_f64() * 1e3);
                let page: serde_json::Value = serde_json::from_slice(&page)?;
                if page["data"].as_array().map(Vec::len) != Some(100) {
                    bail!("{path} gave another number than 100");
                }
                let next = page["next"].as_str().unwrap_or("/consumers");
                path = format!(
                    "{next}{}size=100",
                    if next.contains('?') { '&' } else { '?' }
                );
            }
            let used = gateway.process.cpu_time()?.saturating_sub(cpu);
            let samples = [
                quantile(&mut times, 0.5),
                quantile(&mut times, 0.99),
                used.as_secs_f64() * 1e6 / BATCH as f64,
                gateway.process.memory()?.resident,
            ];
            push(&mut figures, samples);
            progress.step();
        }
        scenario.figures.extend(figures);
    }
    Ok(())
}

fn first_ids(gateway: &Gateway) -> Result<Vec<String>> {
    let page = Api::connect(gateway.admin)?.exchange("GET", "/routes?size=1000", "", 200)?;
    let page: serde_json::Value = serde_json::from_slice(&page)?;
    let data = page["data"].as_array().context("no list of routes")?;
    let ids = data.iter().filter_map(|route| route["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// Runs `work` in this many threads at the same time and returns all their results in one list.
fn at_once(clients: usize, work: impl Fn(usize) -> Result<Vec<f64>> + Sync) -> Result<Vec<f64>> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..clients)
            .map(|client| scope.spawn(move || work(client)))
            .collect();
        let mut all = Vec::new();
        for thread in threads {
            match thread.join() {
                Ok(times) => all.extend(times?),
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(all)
    })
}

fn quantile(times: &mut [f64], part: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * part).round() as usize]
}

fn push<const N: usize>(figures: &mut [Figure; N], samples: [f64; N]) {
    for (figure, sample) in figures.iter_mut().zip(samples) {
        figure.samples.push(sample);
    }
}

/// A persistent connection to the Admin API.
struct Api {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
}

impl Api {
    fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self {
            address,
            stream: BufReader::new(stream),
        })
    }

    /// Returns the milliseconds until the response has arrived.
    fn time(&mut self, method: &str, path: &str, body: &str, status: u16) -> Result<f64> {
        let started = Instant::now();
        self.exchange(method, path, body, status)?;
        Ok(started.elapsed().as_secs_f64() * 1e3)
    }

    fn exchange(&mut self, method: &str, path: &str, body: &str, expected: u16) -> Result<Vec<u8>> {
        let kind = match body {
            "" => "",
            _ => "Content-Type: application/json\r\n",
        };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{kind}Content-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let status: u16 = line
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .with_context(|| format!("{method} {path}: no status in {line:?}"))?;
        let mut length = 0;
        loop {
            line.clear();
            self.stream.read_line(&mut line)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            if name.eq_ignore_ascii_case("content-length") {
                length = value.trim().parse()?;
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer)?;
        if status != expected {
            bail!(
                "{method} {path} answered {status}: {}",
                String::from_utf8_lossy(&answer)
            );
        }
        Ok(answer)
    }
}
