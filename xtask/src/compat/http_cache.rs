//! cache-tests (cache-tests.fyi) examines how a cache in front of its origin server behaves. git fetches it into the target
//! directory, because the package in npm's registry is some years older. Its own text says that it is no conformance
//! suite: some cases test what no RFC demands of a gateway. They are left out by name, with the reason. So are cases
//! whose set-up is a behaviour that the suite does not require.
//!
//! If nginx is installed, the same cases run through it, and its numbers are noted beside those of the gateway.

use super::Bench;
use super::process::{End, Process, run_for};
use super::report::{Case, Outcome};
use crate::shell;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::Launch;

const FOLDER: &str = "xtask/compat/http-cache";
const REPOSITORY: &str = "https://github.com/http-tests/cache-tests";
const COMMIT: &str = "b55b8bda3dbb8c927c04e85bd8d496a8caa3e4ba";
/// Letters of the commit in reports.
const SHOWN: usize = 8;
/// The cases wait for responses to become stale, so that they take some minutes.
const LIMIT: Duration = Duration::from_secs(900);

/// Cases that the gateway does not pass on purpose, and the reason. All other cases count, also if their set-up fails.
const LEFT_OUT: [(&[&str], &str); 6] = [
    (
        &[
            "cdn-max-age-age",
            "cdn-max-age-0",
            "cdn-max-age-0-expires",
            "cdn-max-age-long-cc-max-age",
            "cdn-private",
            "cdn-no-cache",
            "cdn-no-store-cc-fresh",
            "cdn-fresh-cc-nostore",
            "cdn-cc-invalid-sh-type-unknown",
            "cdn-cc-invalid-sh-type-wrong",
        ],
        "CDN-Cache-Control (RFC 9213) is for caches of content delivery networks",
    ),
    (
        &["headers-store-Set-Cookie", "headers-store-Set-Cookie2"],
        "a response that sets a cookie is not stored, so that no other client gets the cookie",
    ),
    (
        &["headers-store-Transfer-Encoding"],
        "the origin sends a transfer coding that does not exist, which the gateway refuses",
    ),
    (
        &[
            "stale-close-must-revalidate",
            "stale-close-proxy-revalidate",
            "stale-close-no-cache",
            "stale-close-s-maxage=2",
        ],
        "they need a cache that sends stale responses when the origin closes the connection, though nothing allows it",
    ),
    (
        &["status-499-stale"],
        "it needs a cache that stores the status 499, with which Kong closes connections",
    ),
    (
        &["partial-use-headers", "partial-use-stored-headers"],
        "they need a cache that answers a range from a whole response, which is optional",
    ),
];

pub(super) fn run(bench: &Bench<'_>) -> Result<Vec<Outcome>, String> {
    let Some(gateway) = bench.gateway else {
        eprintln!("note: http-cache has no cache of its own");
        return Ok(Vec::new());
    };
    let folder = install(&bench.go.folder().join("http-cache"))?;
    let mut serve = node(&folder);
    let (_server, port) = Process::start_until(serve.arg("serve"), "serving on ")?;
    let text = filled("kong.yml", &[("<upstream>", &port)])?;
    let gateway = Launch::new(gateway)
        .set("nginx_worker_processes", "2")
        .configuration(&text)
        .try_start()
        .map_err(|log| format!("the gateway did not start:\n{log}"))?;
    eprintln!("== http-cache");
    let said = client(&folder, &format!("http://{}", gateway.proxy))?;
    let mut outcome = judge(&said);
    outcome.notes = vec![note("the gateway", &said)];
    outcome.notes.push(match nginx(&folder, &port)? {
        Some(said) => note("nginx", &said),
        None => "nginx is not installed, so that there are no numbers of it".to_owned(),
    });
    Ok(vec![outcome])
}

/// Installs the suite, unless that was done before, and returns the directory with it.
fn install(folder: &Path) -> Result<PathBuf, String> {
    let suite = folder.join("suite");
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    fs::create_dir_all(&suite).map_err(failed)?;
    for file in ["package.json", "package-lock.json", "run.mjs"] {
        fs::copy(shell::root().join(FOLDER).join(file), folder.join(file)).map_err(failed)?;
    }
    let installed = folder.join("installed");
    if fs::read_to_string(&installed).is_ok_and(|commit| commit == COMMIT) {
        return Ok(folder.to_owned());
    }
    let git = |words: &[&str]| {
        shell::run(Command::new("git").current_dir(&suite).args(words))
            .map_err(|error| format!("{error}\nhttp-cache needs git, and {REPOSITORY}"))
    };
    git(&["init", "--quiet"])?;
    git(&["fetch", "--quiet", "--depth", "1", REPOSITORY, COMMIT])?;
    git(&["checkout", "--quiet", "FETCH_HEAD"])?;
    let mut npm = Command::new("npm");
    let words = ["ci", "--no-audit", "--no-fund", "--ignore-scripts"];
    shell::run(npm.current_dir(folder).args(words)).map_err(|error| {
        format!("{error}\nhttp-cache needs Node.js 20 or newer with npm, and npm's registry")
    })?;
    fs::write(&installed, COMMIT).map_err(failed)?;
    Ok(folder.to_owned())
}

fn node(folder: &Path) -> Command {
    let mut command = Command::new("node");
    command
        .current_dir(folder)
        .arg("--no-warnings")
        .arg("run.mjs");
    command
}

/// Returns a file of this suite with its places filled in.
fn filled(file: &str, places: &[(&str, &str)]) -> Result<String, String> {
    let path = shell::root().join(FOLDER).join(file);
    let text = fs::read_to_string(path).map_err(|error| format!("{FOLDER}/{file}: {error}"))?;
    let fill = |text: String, (place, value): &(&str, &str)| text.replace(place, value);
    Ok(places.iter().fold(text, fill))
}

/// Runs all cases against a cache, and returns what the client has written.
fn client(folder: &Path, base: &str) -> Result<String, String> {
    match run_for(node(folder).args(["test", base]), LIMIT)? {
        End::Status(status, said) if status.success() => Ok(said),
        End::Status(_, said) => Err(format!("http-cache failed:\n{said}")),
        End::TooLate(said) => Err(format!("http-cache took too long:\n{said}")),
    }
}

/// Runs the cases through nginx. `None` if it is not installed.
fn nginx(folder: &Path, upstream: &str) -> Result<Option<String>, String> {
    let has_it = Command::new("nginx").arg("-v").output();
    if !has_it.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    let own = folder.join("nginx");
    // A cache of an earlier run would change the results.
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own).map_err(|error| format!("{}: {error}", own.display()))?;
    // nginx cannot choose a free port itself.
    let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = free.map_err(|error| format!("no free port: {error}"))?;
    let (shown, port) = (own.display().to_string(), address.port().to_string());
    let places = [
        ("<folder>", &*shown),
        ("<port>", &port),
        ("<upstream>", upstream),
    ];
    let file = own.join("nginx.conf");
    fs::write(&file, filled("nginx.conf", &places)?).map_err(|error| error.to_string())?;
    let mut command = Command::new("nginx");
    command.arg("-c").arg(&file).stderr(Stdio::null());
    let _server = Process::start(&mut command)?;
    eprintln!("== http-cache through nginx");
    client(folder, &format!("http://{address}")).map(Some)
}

/// A case, as the client writes it.
#[derive(Debug)]
struct Line {
    case: String,
    kind: String,
    result: String,
    why: Option<String>,
}

fn lines(said: &str) -> impl Iterator<Item = Line> {
    said.lines().filter_map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| line.get(name)?.as_str().map(str::to_owned);
        Some(Line {
            case: text("case")?,
            kind: text("kind")?,
            result: text("result")?,
            why: text("why"),
        })
    })
}

/// Counts the required cases. The others are noted.
fn judge(said: &str) -> Outcome {
    let mut outcome = Outcome {
        suite: "cache-tests",
        version: COMMIT.chars().take(SHOWN).collect(),
        way: "HTTP/1.1",
        ..Outcome::default()
    };
    for line in lines(said).filter(|line| line.kind == "required") {
        let why = line.why.clone().unwrap_or_else(|| line.result.clone());
        let is_named = |(cases, _): &&(&[&str], &str)| cases.contains(&line.case.as_str());
        let reason = LEFT_OUT.iter().find(is_named);
        let reason = reason.map(|(_, reason)| (*reason).to_owned());
        match (line.result == "pass", reason) {
            (true, _) => outcome.count(&line.case, None),
            (false, Some(reason)) => outcome.left_out.push(Case::new(line.case, reason)),
            (false, None) => outcome.count(&line.case, Some(why)),
        }
    }
    outcome
}

/// Says how many cases of each kind a cache passes.
fn note(cache: &str, said: &str) -> String {
    let count = |kind: &str, passes: &str| {
        let all = lines(said).filter(|line| line.kind == kind).count();
        let passed = lines(said).filter(|line| line.kind == kind && line.result == passes);
        format!("{} of {all}", passed.count())
    };
    format!(
        "{cache}: {} required, {} optimal, and yes to {} questions",
        count("required", "pass"),
        count("optimal", "pass"),
        count("check", "yes")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn required_cases_count_and_others_are_noted() {
        let said = "some text\n\
            {\"case\": \"a\", \"kind\": \"required\", \"result\": \"pass\", \"why\": null}\n\
            {\"case\": \"b\", \"kind\": \"required\", \"result\": \"fail\", \"why\": \"it is\"}\n\
            {\"case\": \"cdn-private\", \"kind\": \"required\", \"result\": \"fail\", \"why\": \"it is\"}\n\
            {\"case\": \"d\", \"kind\": \"required\", \"result\": \"setup_fail\", \"why\": \"it is\"}\n\
            {\"case\": \"c\", \"kind\": \"optimal\", \"result\": \"optional_fail\", \"why\": \"x\"}\n";
        let outcome = judge(said);
        assert_eq!(outcome.passed, 1);
        // A set-up that fails may be a fault of the gateway.
        assert_eq!(
            outcome.failed,
            [Case::new("b", "it is"), Case::new("d", "it is")]
        );
        assert_eq!(outcome.left_out, [Case::new("cdn-private", LEFT_OUT[0].1)]);
        let wanted = "x: 1 of 4 required, 0 of 1 optimal, and yes to 0 of 0 questions";
        assert_eq!(note("x", said), wanted);
    }
}
