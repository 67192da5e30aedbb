//! `cargo xtask demo`: goes from a clone of the repository to proxied, authenticated requests with one command.

use crate::observe::Observers;
use crate::shell::{self, cargo};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use testkit::{Echo, Gateway, HttpResponse, Launch, http};

/// Preferred ports; a free port is used if one of them is taken.
const PROXY_PORT: u16 = 8000;
const ADMIN_PORT: u16 = 8001;
const UPSTREAM_PORT: u16 = 8090;

/// Action after the requests: keep the gateway running, perhaps with what observes it, or stop it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    Stay,
    Observe,
    Stop,
}

/// An example request: its description, target and headers, and the expected status.
struct Example<'a>(&'a str, &'a str, &'a [(&'a str, &'a str)], u16);

pub(crate) fn run(then: Then) -> Result<(), String> {
    let binary = build()?;
    let stop = Stop::by_signals()?;
    let upstream = start_upstream()?;
    let mut observers = match then {
        Then::Observe => Some(Observers::prepare()?),
        Then::Stay | Then::Stop => None,
    };
    stop.check()?;
    let mut gateway = start_gateway(&binary, &upstream, observers.as_ref())?;
    stop.check()?;
    let watched = observers
        .as_mut()
        .map(|observers| observers.watch(&gateway));
    stop.check()?;
    show_requests(&gateway)?;
    if then == Then::Stop {
        gateway.stop();
        return Ok(());
    }
    say(&format!(
        "\nThe gateway is running; Ctrl-C stops it.\n  proxy      http://{}\n  Admin API  http://{}\n",
        gateway.proxy, gateway.admin
    ));
    if let Some(watched) = watched {
        say(&watched?);
    }
    stop.pass_on_to(gateway.pid())?;
    gateway.wait_forever();
    Ok(())
}

/// Receives the signals that would end this process, so that it ends what it has started: until the gateway runs, by
/// leaving [`run`], which drops it all; and then by ending the gateway. Ctrl-C reaches the gateway too, which completes its
/// requests and stops.
struct Stop(Arc<Mutex<Asked>>);

#[derive(Default)]
struct Asked {
    /// The signal that has arrived.
    signal: Option<i32>,
    /// The process of the gateway.
    gateway: Option<u32>,
}

impl Stop {
    fn by_signals() -> Result<Self, String> {
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP]);
        let mut signals = signals.map_err(|error| format!("cannot handle signals: {error}"))?;
        let stop = Self(Arc::default());
        let asked = Arc::clone(&stop.0);
        thread::spawn(move || {
            for signal in &mut signals {
                let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
                asked.signal = Some(signal);
                if let Some(pid) = asked.gateway
                    && signal != SIGINT
                {
                    let pid = pid.to_string();
                    // It may have ended.
                    let _ = Command::new("kill").args(["-TERM", &pid]).status();
                }
            }
        });
        Ok(stop)
    }

    /// Fails if a signal has arrived.
    fn check(&self) -> Result<(), String> {
        self.asked().check()
    }

    /// Lets signals end the gateway with this process id from now on. Fails if one has arrived before.
    fn pass_on_to(&self, gateway: u32) -> Result<(), String> {
        let mut asked = self.asked();
        asked.check()?;
        asked.gateway = Some(gateway);
        Ok(())
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Asked {
    fn check(&self) -> Result<(), String> {
        match self.signal {
            None => Ok(()),
            Some(signal) => Err(format!("stopped by signal {signal}")),
        }
    }
}

/// Builds the gateway with the `demo` profile, and returns its path.
pub(crate) fn build() -> Result<PathBuf, String> {
    say("Building the gateway (the first time takes a few minutes) ...");
    let words = ["build", "--package", "gateway", "--profile", "demo"];
    shell::run(&mut cargo(&words))?;
    Ok(shell::target_directory()?.join("demo").join("silverback"))
}

fn start_upstream() -> Result<Echo, String> {
    let port = free_port(UPSTREAM_PORT)?;
    let address = format!("127.0.0.1:{port}");
    Echo::start_on(&address).map_err(|error| format!("cannot listen on {address}: {error}"))
}

fn start_gateway(
    binary: &Path,
    upstream: &Echo,
    observers: Option<&Observers>,
) -> Result<Gateway, String> {
    let path = shell::root().join("demo").join("kong.yml");
    let text = std::fs::read_to_string(&path)
        .map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let written = format!("127.0.0.1:{UPSTREAM_PORT}");
    let mut text = text.replace(&written, &upstream.address.to_string());
    if let Some(observers) = observers {
        text.push_str(&observers.plugins());
    }
    let prefix = shell::target_directory()?.join("demo-prefix");
    let launch = Launch::in_prefix(binary, prefix)
        .set(
            "proxy_listen",
            format!("127.0.0.1:{}", free_port(PROXY_PORT)?),
        )
        .set(
            "admin_listen",
            format!("127.0.0.1:{}", free_port(ADMIN_PORT)?),
        )
        .set("nginx_worker_processes", "auto")
        .configuration(&text);
    let launch = match observers {
        Some(_) => launch
            .set("plugin_time_metrics", "on")
            .set("tracing_instrumentations", "all")
            .set("tracing_sampling_rate", "1"),
        None => launch,
    };
    say(&format!("Starting the gateway with {} ...", path.display()));
    launch
        .try_start()
        .map_err(|log| format!("the gateway did not start:\n{log}"))
}

fn show_requests(gateway: &Gateway) -> Result<(), String> {
    let key = [("apikey", "alice-key")];
    let steps: [Example<'_>; 5] = [
        Example("a public route", "/shop/public/1", &[], 200),
        Example(
            "a route with key-auth, without a key",
            "/shop/orders",
            &[],
            401,
        ),
        Example("the same with a key", "/shop/orders", &key, 200),
        Example(
            "a route that request-termination answers",
            "/legacy",
            &[],
            410,
        ),
        Example("no route", "/nowhere", &[], 404),
    ];
    for Example(what, target, headers, expected) in steps {
        let answer = gateway.get(target, headers);
        show(gateway.proxy, what, target, headers, &answer);
        if answer.status != expected {
            return Err(format!("expected {expected}, got {}", answer.status));
        }
    }
    let status = http::get(gateway.admin, "/status", &[]);
    show(gateway.admin, "the Admin API", "/status", &[], &status);
    Ok(())
}

fn show(at: SocketAddr, what: &str, target: &str, headers: &[(&str, &str)], answer: &HttpResponse) {
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!(" -H '{name}: {value}'"))
        .collect();
    let body: String = answer
        .text()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .take(160)
        .collect();
    say(&format!(
        "\n# {what}\n$ curl -i http://{at}{target}{headers}\n{}\n{body}",
        answer.line
    ));
}

/// Returns the preferred port, or any free port if it is taken.
fn free_port(usual: u16) -> Result<u16, String> {
    let bound =
        TcpListener::bind(("127.0.0.1", usual)).or_else(|_| TcpListener::bind("127.0.0.1:0"));
    let address = bound.and_then(|listener| listener.local_addr());
    address
        .map(|address| address.port())
        .map_err(|error| format!("no free port: {error}"))
}

fn say(text: &str) {
    // If the reader has closed the output, there is nobody to report to.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// One test, because signals reach the whole process.
    #[test]
    fn a_signal_stops_what_was_started_before_and_after_the_gateway_runs() {
        let send = |signal: &str| {
            let pid = std::process::id().to_string();
            let sent = Command::new("kill").args([signal, &pid]).status();
            assert!(sent.is_ok_and(|status| status.success()));
        };
        let stop = Stop::by_signals().expect("signals can be handled");
        let mut gateway = Command::new("sleep").arg("600").spawn().expect("it runs");
        assert!(stop.check().is_ok() && stop.pass_on_to(gateway.id()).is_ok());
        send("-TERM");
        let status = gateway.wait().expect("it ends");
        assert!(!status.success());
        let early = Stop::by_signals().expect("signals can be handled");
        send("-INT");
        let deadline = Instant::now() + Duration::from_secs(60);
        while early.check().is_ok() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(10));
        }
        assert!(early.check().is_err() && early.pass_on_to(gateway.id()).is_err());
    }
}
