//! Measures how long it takes to import and export many entities, with the store alone and with a running gateway.

use crate::configuration::key;
use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct Options {
    /// The gateway binary
    #[arg(long, default_value = "target/demo/silverback")]
    pub binary: PathBuf,
    /// Number of entities: a tenth are services, two tenths routes, one tenth plugins, three tenths consumers with a
    /// key each
    #[arg(long, default_value_t = 100_000)]
    pub entities: usize,
    /// Keep the generated file at this path
    #[arg(long)]
    pub output: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let json = directory.path().join("in.json");
    std::fs::write(&json, document(options.entities))?;
    if let Some(output) = &options.output {
        std::fs::copy(&json, output)?;
    }
    let yaml = directory.path().join("in.yml");
    let prefix = |name: &str| directory.path().join(name);
    let case = Case {
        binary: &options.binary,
        entities: options.entities,
    };
    case.measure("import JSON, store alone", &prefix("a"), "import", &[&json])?;
    case.measure("import it again", &prefix("a"), "import", &[&json])?;
    let out = Path::new("--output");
    case.measure(
        "export YAML, store alone",
        &prefix("a"),
        "export",
        &[out, &yaml],
    )?;
    case.measure("import YAML, store alone", &prefix("b"), "import", &[&yaml])?;
    let gateway = Gateway::start(&options.binary, &prefix("c"))?;
    case.measure("import JSON, running", &prefix("c"), "import", &[&json])?;
    case.measure(
        "export YAML, running",
        &prefix("c"),
        "export",
        &[out, &yaml],
    )?;
    drop(gateway);
    let gateway = Gateway::start(&options.binary, &prefix("d"))?;
    case.measure("import YAML, running", &prefix("d"), "import", &[&yaml])?;
    drop(gateway);
    Ok(())
}

struct Case<'o> {
    binary: &'o Path,
    entities: usize,
}

impl Case<'_> {
    /// Runs a command and prints its duration and the duration of each stage.
    fn measure(&self, name: &str, prefix: &Path, command: &str, words: &[&Path]) -> Result<()> {
        let begun = Instant::now();
        let mut child = silverback(self.binary, prefix, command)
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let stages = stages(&mut child)?;
        let status = child.wait()?;
        let seconds = begun.elapsed().as_secs_f64();
        if !status.success() {
            bail!("{command} failed: {stages}");
        }
        let rate = self.entities as f64 / seconds;
        println!("{name:26} {seconds:6.2} s {rate:9.0} entities/s {stages}");
        Ok(())
    }
}

/// Returns the stages that a command reports, with their durations.
fn stages(child: &mut Child) -> Result<String> {
    use std::io::{BufRead, BufReader};
    let errors = child.stderr.take().context("standard error is piped")?;
    let mut text = String::new();
    let mut begun: Option<Instant> = None;
    let mut end = |text: &mut String| {
        if let Some(begun) = begun.take() {
            let _ = write!(text, " {:.2} s", begun.elapsed().as_secs_f64());
        }
        begun = Some(Instant::now());
    };
    for line in BufReader::new(errors).lines() {
        end(&mut text);
        let _ = write!(text, "  {}", line?);
    }
    if !text.is_empty() {
        end(&mut text);
    }
    Ok(text)
}

fn silverback(binary: &Path, prefix: &Path, command: &str) -> Command {
    let mut silverback = Command::new(binary);
    silverback.args([command, "--prefix"]).arg(prefix);
    for setting in ["proxy_listen", "admin_listen", "status_listen"] {
        silverback.args(["--set", &format!("{setting}=127.0.0.1:0")]);
    }
    silverback
}

/// A gateway process that is killed when dropped.
struct Gateway(Child);

impl Gateway {
    fn start(binary: &Path, prefix: &Path) -> Result<Self> {
        let child = silverback(binary, prefix, "start")
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("cannot run {}", binary.display()))?;
        let gateway = Self(child);
        let deadline = Instant::now() + Duration::from_secs(30);
        while !prefix.join("silverback.addresses.json").exists() {
            if Instant::now() > deadline {
                bail!("the gateway did not start");
            }
            thread::sleep(Duration::from_millis(10));
        }
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a declarative document. It is flat like an export, but has no ids, like a file written by hand.
fn document(entities: usize) -> String {
    let tenth = entities / 10;
    let consumers = 3 * tenth;
    let tags = |number: usize| json!([format!("team-{}", number % 50), "bench"]);
    let mut text = "{\"_format_version\":\"3.0\"".to_owned();
    collection(&mut text, "services", tenth, |number| {
        json!({"name": format!("service-{number}"), "host": format!("s{number}.internal.test"), "port": 8080,
            "retries": 2, "tags": tags(number)})
    });
    collection(&mut text, "routes", 2 * tenth, |number| {
        json!({"name": format!("route-{number}"), "service": format!("service-{}", number / 2),
            "paths": [format!("/api/{}/route-{number}", number % 100)], "hosts": [format!("h{}.test", number % 500)],
            "methods": ["GET", "POST"], "tags": tags(number)})
    });
    collection(&mut text, "plugins", tenth, |number| {
        let route = format!("route-{}", 2 * number);
        match number % 3 {
            0 => json!({"name": "key-auth", "route": route, "config": {"key_names": ["apikey"]}}),
            1 => {
                json!({"name": "rate-limiting", "route": route, "config": {"minute": 60, "policy": "local"}})
            }
            _ => {
                json!({"name": "cors", "route": route, "config": {"origins": ["https://app.test"], "max_age": 3600}})
            }
        }
    });
    collection(
        &mut text,
        "consumers",
        consumers,
        |number| json!({"username": format!("consumer-{number}"), "custom_id": format!("customer-{number}"), "tags": tags(number)}),
    );
    collection(
        &mut text,
        "keyauth_credentials",
        consumers,
        |number| json!({"consumer": format!("consumer-{number}"), "key": key(number)}),
    );
    text.push('}');
    text
}

fn collection(text: &mut String, name: &str, count: usize, entity: impl Fn(usize) -> Value) {
    let _ = write!(text, ",\n\"{name}\":[");
    for number in 0..count {
        let comma = if number == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\n{}", entity(number));
    }
    text.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_has_as_many_entities_as_asked_for() {
        let document: Value = serde_json::from_str(&document(100)).expect("JSON");
        let collections = document.as_object().expect("an object").values();
        let counts = collections.filter_map(|value| value.as_array().map(Vec::len));
        assert_eq!(counts.sum::<usize>(), 100);
    }
}
