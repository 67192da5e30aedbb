//! `oauth2`: OAuth2 tokens on the embedded store, with up to ten million of them. Tokens are issued through the token
//! endpoint, with plain and with hashed client secrets, each durable before its response; they are verified on the way to
//! the upstream, next to key-auth; they are introspected, imported, and dropped when they have ended.

use crate::gateway::{Gateway, exchange};
use crate::harness::{Harness, figure};
use crate::load::{Client, Mode, Outcome, Request, Target};
use crate::progress::Progress;
use crate::report::{Better, Figure, Scenario, Size};
use crate::rounds::{CPU, HALF, HIGH, RATE};
use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokens::embedded::Embedded;
use tokens::{Keys, NewToken, Owner, Storage, TokenStore};

const ABOUT: &str = "OAuth2 tokens on the embedded store: issued through the token endpoint, each durable before its response; verified next to key-auth; introspected, imported and dropped. \
                     Only the tokens in the store differ between sizes.";
/// Tokens in the store. The first size is always measured.
const SIZES: [usize; 3] = [100_000, 2_000_000, 10_000_000];
/// Tokens that are verified, spread evenly over the store; and keys of key-auth, for comparison.
const VERIFIED: usize = 100_000;
/// Tokens that are introspected again and again.
const HOT: usize = 64;
/// Connections that issue tokens.
const ISSUING: usize = 256;
/// Rows of an import.
const IMPORTED: usize = 200_000;
/// Seconds that the tokens live.
const LIFE: i64 = 7200;
/// Operations on the store that wait at the same time while it is filled.
const AT_ONCE: usize = 1000;

const RESIDENT: (&str, &str, Better) = ("RSS without files", "MiB", Better::Lower);
const SYNC: (&str, &str, Better) = ("time of a sync", "ms", Better::Neither);
const ROWS: (&str, &str, Better) = ("rows", "1/s", Better::Higher);
const TOTAL: (&str, &str, Better) = ("time", "ms", Better::Lower);
const LONGEST: (&str, &str, Better) = ("longest commit", "ms", Better::Lower);

const SECRET: [u8; 64] = [7; 64];
const SERVICE: u128 = 0x5e41ce;
const CREDENTIALS: [(&str, u128); 2] = [("plain", 0xc1), ("hashed", 0xc2)];

pub fn run(harness: &mut Harness) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "oauth2".to_owned(),
        about: ABOUT.to_owned(),
        ..Scenario::default()
    };
    for build in harness.builds.clone() {
        let keys = harness.directory.path().join("tokens.key");
        write_keys(&keys)?;
        let settings = [
            ("KONG_TRUSTED_IPS", "127.0.0.1/32".to_owned()),
            ("KONG_TOKEN_KEY_FILE", keys.display().to_string()),
        ];
        let start = |harness: &mut Harness| {
            let gateway = harness.gateway_with(&build, &settings)?;
            gateway.post_config(&configuration(harness.upstream))?;
            anyhow::Ok(gateway)
        };
        import(&start(harness)?, &build.name, harness, &mut scenario)?;
        let gateway = start(harness)?;
        let mut subject = Subject {
            name: build.name.clone(),
            stored: 0,
            verified: Vec::new(),
            created: revision(&gateway)?,
            gateway,
        };
        let sizes = SIZES.into_iter();
        for size in sizes.filter(|size| *size <= harness.options.largest.max(SIZES[0])) {
            subject.fill(size)?;
            subject.measure(harness, &mut scenario)?;
        }
        subject.drop_ended(&mut scenario)?;
    }
    Ok(scenario)
}

fn write_keys(path: &Path) -> Result<()> {
    let mut text = String::new();
    for (name, part) in ["find", "seal 1"].iter().zip(SECRET.chunks(32)) {
        write!(text, "{name} ")?;
        for byte in part {
            write!(text, "{byte:02x}")?;
        }
        text.push('\n');
    }
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns a configuration with a route that key-auth protects, and one that oauth2 does.
fn configuration(upstream: SocketAddr) -> String {
    let route = |path: &str, plugin: Value| json!({"name": &path[1..], "paths": [path], "strip_path": false, "plugins": [plugin]});
    let credentials = CREDENTIALS.map(|(name, id)| {
        json!({
            "id": id_of(id), "name": name, "client_id": name, "client_secret": "the secret of the client",
            "hash_secret": name == "hashed", "redirect_uris": ["https://app.test/back"],
        })
    });
    let keys: Vec<Value> = (0..VERIFIED).map(|n| json!({"key": key(n)})).collect();
    json!({
        "_format_version": "3.0",
        "services": [{
            "id": id_of(SERVICE), "name": "bench", "protocol": "http", "host": upstream.ip(), "port": upstream.port(),
            "routes": [
                route("/key", json!({"name": "key-auth", "config": {"key_names": ["apikey"]}})),
                route("/token", json!({"name": "oauth2", "config": {
                    "enable_client_credentials": true, "accept_http_if_already_terminated": true,
                    "introspection": true, "token_expiration": LIFE,
                }})),
            ],
        }],
        "consumers": [{
            "username": "bench", "keyauth_credentials": keys, "oauth2_credentials": credentials,
        }],
    })
    .to_string()
}

/// Returns a key of key-auth. It is as long as a token.
fn key(number: usize) -> String {
    format!("key{number:029}")
}

fn id_of(number: u128) -> String {
    format!(
        "00000000-0000-4000-8000-{number:012x}",
        number = number & 0xffff_ffff_ffff
    )
}

fn owner(id: u128, created: u64) -> Result<Owner> {
    let id = id_of(id).parse().context("an id")?;
    Ok(Owner { id, created })
}

/// Returns the revision in which the entities of the configuration were created.
fn revision(gateway: &Gateway) -> Result<u64> {
    let answer = gateway.get("/revisions?size=1")?;
    let page: Value = serde_json::from_str(&answer.start)?;
    page["data"][0]["revision"]
        .as_u64()
        .with_context(|| format!("no revision in {page}"))
}

fn now() -> Result<i64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(now.as_secs())?)
}

/// Imports rows as they come out of Kong.
fn import(
    gateway: &Gateway,
    subject: &str,
    harness: &Harness,
    scenario: &mut Scenario,
) -> Result<()> {
    let case = format!("import of {IMPORTED} tokens");
    if !harness.wants(&case) {
        return Ok(());
    }
    let (mut rows, now) = (String::new(), now()?);
    for number in 0..IMPORTED as u128 {
        let row = json!({
            "id": id_of(0x1_0000_0000 + number), "credential": {"id": id_of(CREDENTIALS[0].1)},
            "service": {"id": id_of(SERVICE)}, "token_type": "bearer", "expires_in": LIFE, "created_at": now,
            "access_token": format!("access{number:026x}"), "refresh_token": format!("refresh{number:025x}"),
            "ttl": 1_209_600, "scope": "read write", "authenticated_userid": "somebody",
        });
        writeln!(rows, "{row}")?;
    }
    let started = Instant::now();
    let head = format!(
        "POST /oauth2_tokens/import HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-ndjson\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        gateway.admin,
        rows.len()
    );
    let answer = exchange(gateway.admin, &head, rows.as_bytes())?;
    let took = started.elapsed().as_secs_f64();
    if answer.status != 200 || !answer.start.contains(&format!("\"imported\":{IMPORTED}")) {
        bail!("the import answered {}: {}", answer.status, answer.start);
    }
    let mut figure = figure(&case, subject, ROWS, None);
    figure.samples.push(IMPORTED as f64 / took);
    scenario.figures.push(figure);
    Ok(())
}

/// Returns a request for the token endpoint, or for that of introspection.
fn form(endpoint: &str, client: &str, more: &str) -> Request {
    let body = format!("client_id={client}&client_secret=the+secret+of+the+client&{more}");
    let headers = "X-Forwarded-Proto: https\r\nContent-Type: application/x-www-form-urlencoded\r\n";
    Request::post(&format!("/token/oauth2/{endpoint}"), headers, &body).with_any_body()
}

struct Subject {
    name: String,
    gateway: Gateway,
    /// The revision of the configuration.
    created: u64,
    /// Tokens in the store, without those that measurements have issued.
    stored: usize,
    /// Some of them.
    verified: Vec<String>,
}

impl Subject {
    fn open(&self) -> Result<Embedded> {
        let directory = self.gateway.prefix().join("tokens.lmdb");
        let keys = Keys::new(&SECRET, 1);
        Ok(Embedded::open(&directory, 1 << 40, keys, Storage::Sealed)?)
    }

    /// Issues tokens by the store itself, which the gateway has open too.
    fn fill(&mut self, size: usize) -> Result<()> {
        let store = self.open()?;
        let service = Some(owner(SERVICE, self.created)?);
        let credential = owner(CREDENTIALS[0].1, self.created)?;
        let progress = Progress::start(&format!("{size} tokens"), size / AT_ONCE);
        let every = (size / VERIFIED).max(1);
        while self.stored < size {
            let now = now()?;
            let token = || NewToken {
                credential,
                service,
                expires_in: LIFE,
                with_refresh_token: false,
                ttl: Some(1_209_600),
                scope: None,
                authenticated_userid: None,
            };
            let issued: Vec<_> = (0..AT_ONCE).map(|_| store.issue(token(), now)).collect();
            for issued in issued {
                let issued = issued.wait()?;
                if self.stored.is_multiple_of(every) {
                    self.verified.push(issued.access_token.0);
                }
                self.stored += 1;
            }
            progress.step();
        }
        Ok(())
    }

    fn measure(&self, harness: &Harness, scenario: &mut Scenario) -> Result<()> {
        let size = Size {
            axis: "tokens".to_owned(),
            value: self.stored as f64,
            line: self.name.clone(),
        };
        let stored = self.stored;
        // Neighbours in the list are far from each other in the store.
        let stride = self.verified.len() / 64;
        let bearer = |token: &String| {
            let headers = [
                ("Host".to_owned(), "bench.test".to_owned()),
                ("Authorization".to_owned(), format!("Bearer {token}")),
            ];
            Request::with_headers("/token", &headers)
        };
        let keys: Vec<Request> = (0..stride)
            .flat_map(|first| (first..VERIFIED).step_by(stride))
            .map(|number| Request::with_key("/key", &key(number)))
            .collect();
        let spread = (0..stride).flat_map(|first| self.verified.iter().skip(first).step_by(stride));
        let verify: Vec<Request> = spread.map(bearer).collect();
        let hot = self.verified.iter().rev().take(HOT);
        let hot_tokens: Vec<Request> = hot.clone().map(bearer).collect();
        let introspect: Vec<Request> = hot
            .map(|token| form("introspect", "plain", &format!("token={token}")))
            .collect();
        let issue = |client: &str| vec![form("token", client, "grant_type=client_credentials")];
        let connections = harness.options.connections;
        let cases = [
            ("key-auth, spread keys", keys, connections),
            (
                "key-auth, hot keys",
                (0..HOT)
                    .map(|number| Request::with_key("/key", &key(number)))
                    .collect(),
                connections,
            ),
            ("verify, spread tokens", verify, connections),
            ("verify, hot tokens", hot_tokens, connections),
            ("introspect, hot tokens", introspect, connections),
            ("issue, plain secret", issue("plain"), ISSUING),
            ("issue, hashed secret", issue("hashed"), ISSUING),
        ];
        let target = Target {
            address: self.gateway.proxy,
            tls: false,
        };
        let mut tracks = Vec::new();
        for (name, requests, connections) in cases {
            let name = format!("{name}, {stored} tokens");
            if !harness.wants(&name) {
                continue;
            }
            let figures = [CPU, RATE, HALF, HIGH];
            tracks.push(Track {
                client: Client::connect(&target, connections, &requests.into())?,
                figures: figures.map(|kind| figure(&name, &self.name, kind, Some(&size))),
            });
        }
        let memory = format!("memory, {stored} tokens");
        let mut resident = figure(&memory, &self.name, RESIDENT, Some(&size));
        let disk = format!("disk, {stored} tokens");
        let mut sync = figure(&disk, &self.name, SYNC, Some(&size));
        let rounds = harness.options.rounds();
        let progress = Progress::start(&format!("{stored} tokens"), rounds);
        let count = tracks.len();
        for round in 0..rounds {
            for offset in 0..count {
                tracks[(round + offset) % count].add(harness, &self.gateway)?;
            }
            resident
                .samples
                .push(self.gateway.process.memory()?.anonymous);
            sync.samples.push(time_of_sync(self.gateway.prefix())?);
            progress.step();
        }
        scenario
            .figures
            .extend(tracks.into_iter().flat_map(|track| track.figures));
        scenario.figures.extend([resident, sync]);
        Ok(())
    }

    /// Drops the tokens, at a time when all have ended, while no gateway uses the store.
    fn drop_ended(self, scenario: &mut Scenario) -> Result<()> {
        let store = self.open()?;
        drop(self.gateway);
        let later = now()? + 90 * 86_400;
        let (started, mut longest) = (Instant::now(), Duration::ZERO);
        loop {
            let begun = Instant::now();
            let goes_on = store.expire(later).wait()?;
            longest = longest.max(begun.elapsed());
            if !goes_on {
                break;
            }
        }
        let took = started.elapsed();
        let case = format!("drop of {} ended tokens", self.stored);
        for (kind, time) in [(TOTAL, took), (LONGEST, longest)] {
            let mut figure = figure(&case, &self.name, kind, None);
            figure.samples.push(time.as_secs_f64() * 1e3);
            scenario.figures.push(figure);
        }
        Ok(())
    }
}

struct Track {
    client: Client,
    figures: [Figure; 4],
}

impl Track {
    fn add(&mut self, harness: &Harness, gateway: &Gateway) -> Result<()> {
        let options = &harness.options;
        let cpu = gateway.process.cpu_time()?;
        let closed = only(
            self.client
                .run(Mode::Closed, options.sample(), options.sample())?,
        )?;
        let spent = gateway.process.cpu_time()?.saturating_sub(cpu);
        let (rate, length) = (options.rate, options.latency_sample());
        let open = only(self.client.run(Mode::Open { rate }, length, length)?)?;
        let samples = [
            spent.as_secs_f64() * 1e6 / closed.requests as f64,
            closed.rate(),
            open.quantile(0.5),
            open.quantile(0.99),
        ];
        for (figure, sample) in self.figures.iter_mut().zip(samples) {
            figure.samples.push(sample);
        }
        Ok(())
    }
}

/// Returns the outcome of a load in which no response failed.
fn only(outcomes: Vec<Outcome>) -> Result<Outcome> {
    let outcome = outcomes
        .into_iter()
        .next()
        .context("nothing was measured")?;
    if outcome.failed > 0 || outcome.requests == 0 {
        let first = outcome.first_failure.as_deref().unwrap_or("unknown");
        bail!(
            "{} of {} responses failed ({first})",
            outcome.failed,
            outcome.requests
        );
    }
    Ok(outcome)
}

/// Returns the milliseconds that the disk needs to store 4 KiB.
fn time_of_sync(directory: &Path) -> Result<f64> {
    let path = directory.join("sync");
    let mut file = File::create(&path)?;
    file.write_all(&[0; 4096])?;
    let started = Instant::now();
    file.sync_data()?;
    Ok(started.elapsed().as_secs_f64() * 1e3)
}
