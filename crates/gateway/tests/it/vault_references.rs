//! Vault references in entities. Every way to write an entity warns about them, and no output repeats their text.

use crate::{launch, launch_in};
use serde_json::json;
use std::path::Path;
use std::process::Output;
use testkit::Launch;

const CONFIGURATION: &str = "_format_version: '3.0'\n\
    plugins: [{name: loggly, config: {key: '{vault://env/hidden}'}}]\n";
const NOTICE: &str = "config.key of plugin loggly is a vault reference, which is not resolved yet: its text is used as the value";
const CERTIFICATE: &str = "_format_version: '3.0'\n\
    certificates: [{id: 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1ef, cert: '{vault://env/hidden}', key: '{vault://env/hidden}'}]\n";

fn written(prefix: &Path, text: &str) -> String {
    let path = prefix.join("in.yml");
    std::fs::write(&path, text).expect("writable");
    path.to_str().expect("a path in UTF-8").to_owned()
}

/// Runs a command. Checks that neither standard output nor standard error contains the text of the reference.
fn run(launch: &Launch, words: &[&str]) -> (bool, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = launch.other(words).output().expect("it runs");
    let errors = String::from_utf8_lossy(&stderr).into_owned();
    let text = String::from_utf8_lossy(&stdout);
    assert!(!text.contains("hidden") && !errors.contains("hidden"));
    (status.success(), errors)
}

#[test]
fn check_warns_and_fails_if_it_is_strict() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let launch = launch_in(prefix.path());
    let path = written(prefix.path(), CONFIGURATION);
    let (done, errors) = run(&launch, &["check", &path]);
    assert!(
        done && errors.contains(&format!("warning: {NOTICE}\n")),
        "{errors}"
    );
    let (done, errors) = run(&launch, &["check", &path, "--strict"]);
    let problem = "error: there are warnings, which --strict does not accept\n";
    assert!(!done && errors.contains(problem), "{errors}");
    // A vault reference in `cert` is an error, because compiling the configuration parses the certificate.
    let path = written(prefix.path(), CERTIFICATE);
    let (done, errors) = run(&launch, &["check", &path]);
    let problem = "certificate 5c1dd8bb-8e4c-4f2f-a86c-5b6bd9e3c1ef: cert is a vault reference, which is not resolved yet";
    assert!(!done && errors.contains(problem), "{errors}");
    assert!(!errors.contains("its text is used"), "{errors}");
}

#[test]
fn imports_and_starts_warn() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let offline = launch_in(prefix.path());
    let path = written(prefix.path(), CONFIGURATION);
    let (done, errors) = run(&offline, &["import", &path]);
    assert!(
        done && errors.contains(&format!("warning: {NOTICE}\n")),
        "{errors}"
    );
    let stored = offline.start();
    stored.wait_for_log(NOTICE);
    let loaded = launch().configuration(CONFIGURATION).start();
    loaded.wait_for_log(NOTICE);
    let online = launch().start();
    let (done, errors) = run(online.launch(), &["import", &path]);
    assert!(
        done && errors.contains(&format!("warning: {NOTICE}\n")),
        "{errors}"
    );
    online.wait_for_log(NOTICE);
    for gateway in [&stored, &loaded, &online] {
        assert!(!gateway.log().contains("hidden"), "{}", gateway.log());
    }
}

#[test]
fn writes_by_the_admin_api_get_a_warning() {
    let gateway = launch().start();
    let warnings = |method: &str, path: &str, body: &serde_json::Value| {
        let answer = gateway.admin_send(method, path, &body.to_string());
        assert!(answer.status < 300, "{}", answer.text());
        let warnings = answer.headers.iter();
        let warnings = warnings.filter(|(name, _)| name.eq_ignore_ascii_case("warning"));
        warnings
            .map(|(_, text)| text.clone())
            .collect::<Vec<String>>()
    };
    let expected = format!("299 - \"{NOTICE}\"");
    let plugin = json!({"name": "loggly", "config": {"key": "{vault://env/hidden}"}});
    let seen = warnings("POST", "/plugins", &plugin);
    assert!(seen.contains(&expected), "{seen:?}");
    gateway.wait_for_log(NOTICE);
    let plain = json!({"config": {"key": "plain"}});
    let id = gateway.admin_get("/plugins").json()["data"][0]["id"].clone();
    let path = format!("/plugins/{}", id.as_str().expect("an id"));
    assert!(!warnings("PATCH", &path, &plain).contains(&expected));
    let key = json!({"changes": [{"action": "create", "type": "keys", "data":
        {"kid": "k", "jwk": "{vault://env/hidden}"}}]});
    let seen = warnings("POST", "/changes", &key);
    let expected = NOTICE.replace("config.key of plugin loggly", "jwk of key");
    assert_eq!(seen, [format!("299 - \"{expected}\"")]);
}

#[test]
fn a_posted_configuration_gets_a_warning() {
    let gateway = launch().set("database", "off").start();
    let body = json!({"config": CONFIGURATION}).to_string();
    let answer = gateway.admin_send("POST", "/config", &body);
    assert_eq!(answer.status, 201, "{}", answer.text());
    let expected = format!("299 - \"{NOTICE}\"");
    let warnings = answer.headers.iter();
    let mut warnings = warnings.filter(|(name, _)| name.eq_ignore_ascii_case("warning"));
    assert!(
        warnings.any(|(_, text)| *text == expected),
        "{:?}",
        answer.headers
    );
}
