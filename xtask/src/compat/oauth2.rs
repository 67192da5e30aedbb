//! Runs OAuth2 clients of other projects against the plugin oauth2. Each library goes through its grants against three
//! authorization servers of one gateway: the profile `kong`, the profile `rfc9700`, and that profile with signed access
//! tokens. The programs that use the libraries are in xtask/compat/oauth2, with their versions. They play the user's
//! browser and the operator's login page themselves.

mod libraries;
mod packages;

use super::Bench;
use super::process::{End, run_for};
use super::report::Outcome;
use crate::shell;
use libraries::{LIBRARIES, Language, Library};
use packages::Packages;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use testkit::{Echo, Gateway, Launch};

const FOLDER: &str = "xtask/compat/oauth2";
const LIMIT: Duration = Duration::from_secs(120);

/// The services of the configuration that are tested. Each is an authorization server.
const WAYS: [&str; 3] = ["kong", "rfc9700", "signed"];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: the suite oauth2 has no server of its own");
        return Ok(Vec::new());
    };
    let folder = bench.go.folder().join("oauth2");
    let go = shell::root().join(FOLDER).join("go");
    bench.go.fetch(&go, ".")?;
    let packages = Packages {
        go: bench.go.make(&go, &["build", "."], "oauth2-go")?,
        node: packages::node(&folder.join("node"))?,
        python: packages::python(&folder.join("python"))?,
    };
    let site = Site::start(gateway, &packages.go, &folder)?;
    let mut outcomes = Vec::new();
    for library in &LIBRARIES {
        let version = packages::version(library)?;
        for way in WAYS {
            eprintln!("== {} over {way}", library.name);
            outcomes.push(site.run(library, &version, way, &packages, bench.only)?);
        }
    }
    Ok(outcomes)
}

/// A gateway with the authorization servers, and what the clients must know of it.
struct Site {
    gateway: Gateway,
    /// Where the clients find the gateway, over TLS.
    server: String,
    /// The certificate authority that the clients must trust.
    authority: PathBuf,
}

impl Site {
    fn start(program: &Path, keys: &Path, folder: &Path) -> Result<Self, String> {
        let folder = folder.join("keys");
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        shell::run(Command::new(keys).arg("keys").arg(&folder))?;
        let path = |name: &str| folder.join(name).display().to_string();
        let gateway = Launch::new(program)
            .set("database", "off")
            .set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl")
            .set("ssl_cert", path("tls.pem"))
            .set("ssl_cert_key", path("tls.key"))
            // The login page reaches the gateway as if something in front of it had ended TLS.
            .set("trusted_ips", "127.0.0.1")
            .set("nginx_worker_processes", "2")
            .try_start()
            .map_err(|log| format!("the gateway did not start:\n{log}"))?;
        let address = gateway.proxy_tls.ok_or("no TLS listener")?;
        let server = format!("https://localhost:{}", address.port());
        // An issuer has a port, so the configuration follows when the ports are known.
        let answer = gateway.post_config(&configuration(&server, &folder)?);
        if answer.status != 201 {
            return Err(format!("the configuration was refused: {answer:?}"));
        }
        Ok(Self {
            gateway,
            server,
            authority: folder.join("ca.pem"),
        })
    }

    /// Runs the cases of a library against one authorization server.
    fn run(
        &self,
        library: &Library,
        version: &str,
        way: &'static str,
        packages: &Packages,
        only: Option<&str>,
    ) -> Result<Outcome, String> {
        let mut outcome = Outcome {
            suite: library.name,
            version: version.to_owned(),
            way,
            left_out: library.left_out(),
            ..Outcome::default()
        };
        let chosen = |case: &&str| only.is_none_or(|only| only == *case);
        let cases: Vec<_> = library.cases(way).filter(chosen).collect();
        if cases.is_empty() {
            return Ok(outcome);
        }
        let mut command = packages.command(library);
        command.args(&cases);
        self.describe(&mut command, way);
        let said = match run_for(&mut command, LIMIT)? {
            End::Status(_, said) | End::TooLate(said) => said,
        };
        let results = read(&said);
        for case in cases {
            let failure = match results.get(case) {
                Some(failure) => failure.clone(),
                None => Some(format!("did not run: {}", said.trim())),
            };
            outcome.count(case, failure);
        }
        Ok(outcome)
    }

    /// Tells a program about the server, in the variables that its language uses for certificate authorities.
    fn describe(&self, command: &mut Command, way: &str) {
        let back_channel = format!("http://{}", self.gateway.proxy);
        command
            .env("OAUTH2_WAY", way)
            .env("OAUTH2_SERVER", &self.server)
            .env("OAUTH2_BACK_CHANNEL", back_channel)
            .env("NO_PROXY", "localhost,127.0.0.1");
        for name in ["NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"] {
            command.env(name, &self.authority);
        }
    }
}

/// Returns the configuration with addresses and keys.
fn configuration(server: &str, keys: &Path) -> Result<String, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    // A text in JSON is one in YAML, too, and fits in a line.
    let key =
        |name: &str| read(&keys.join(name)).map(|pem| serde_json::Value::from(pem).to_string());
    let text = read(&shell::root().join(FOLDER).join("kong.yml"))?;
    Ok(text
        .replace("<upstream>", &Echo::start().url())
        .replace("<server>", server)
        .replace("<ec-key>", &key("ec.key")?)
        .replace("<rsa-key>", &key("rsa.key")?))
}

/// Reads the results of cases in the output of a program: a line in JSON for each, among other lines.
fn read(said: &str) -> BTreeMap<String, Option<String>> {
    let results = said.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let name = line.get("case")?.as_str()?.to_owned();
        let failure = match line.get("failure")? {
            serde_json::Value::Null => None,
            failure => Some(failure.as_str().unwrap_or("failed").to_owned()),
        };
        Some((name, failure))
    });
    results.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_among_other_lines() {
        let said = "a warning\n{\"case\": \"refresh\", \"failure\": null}\n12\n{\"other\": 1}\n\
            {\"case\": \"password\", \"failure\": \"401\"}\n{\"case\": \"cut off\"}\n";
        let expected = [
            ("refresh".to_owned(), None),
            ("password".to_owned(), Some("401".to_owned())),
        ];
        assert_eq!(read(said), BTreeMap::from(expected));
    }
}
