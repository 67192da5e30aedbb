//! The commands: exit status, and messages about wrong settings and files.

use crate::{launch, launch_in, shop};
use std::process::{Command, Output};
use testkit::Echo;

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_silverback"));
    command.args(words).output().expect("it runs")
}

/// Exit status, standard output and standard error of a command.
fn told(output: &Output) -> (i32, String, String) {
    (
        output.status.code().unwrap_or(-1),
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}

fn check(text: &str, more: &[&str]) -> (i32, String, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kong.yml");
    std::fs::write(&path, text).expect("writable");
    let path = path.to_str().expect("a path in UTF-8");
    let spelt = run(&[&["config", "parse", path], more].concat());
    let output = run(&[&["check", path], more].concat());
    assert_eq!(told(&spelt), told(&output));
    told(&output)
}

#[test]
fn check_accepts_a_good_configuration() {
    let (status, output, errors) = check(&shop(&Echo::start()), &[]);
    assert_eq!(
        (status, output.as_str(), errors.as_str()),
        (0, "parse successful\n", "")
    );
}

#[test]
fn check_without_a_file_says_that_it_checked_settings_only() {
    let (status, output, _) = told(&run(&["check"]));
    assert_eq!(status, 0);
    assert!(
        output.contains("no declarative configuration was checked"),
        "{output}"
    );
    let text = "declarative_config_string={\"_format_version\": \"3.0\"}";
    let (status, output, errors) = told(&run(&["check", "--set", "database=off", "--set", text]));
    assert_eq!(
        (status, output.as_str()),
        (0, "parse successful\n"),
        "{errors}"
    );
}

#[test]
fn check_names_the_file_of_an_error() {
    for text in ["services: [{name: a}]", "services: ["] {
        let (status, _, errors) = check(&format!("_format_version: '3.0'\n{text}\n"), &[]);
        assert_eq!(status, 1);
        assert!(errors.contains("kong.yml"), "{errors}");
    }
}

#[test]
fn check_and_start_warn_of_suspicious_plugins() {
    let text = "_format_version: '3.0'\nconsumers: [{username: c, plugins: [{name: key-auth}]}]\n\
                services: [{name: s, host: h, plugins: [{name: key-auth}]}]\n\
                plugins: [{name: key-auth, service: s}]\n";
    let (status, _, errors) = check(text, &[]);
    assert_eq!(status, 0, "{errors}");
    let gateway = launch().configuration(text).start();
    let log = gateway.log();
    for part in ["nested in consumers 'c'", "nested in services 's'"] {
        assert!(errors.contains(part), "{errors}");
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn check_points_at_errors_in_a_file_and_suggests_corrections() {
    let text = "_format_version: '3.0'\nservices:\n- name: a\n  ulr: http://a\n\
                plugins:\n- name: cors\n  config: {}\n  config: {origin: ['*']}\n";
    let (status, _, errors) = check(text, &[]);
    assert_eq!(status, 1);
    let (first, listing) = errors.split_once('\n').expect("several lines");
    assert!(
        first.starts_with("error: Failed parsing declarative config file /"),
        "{first}"
    );
    assert!(first.ends_with("/kong.yml:"), "{first}");
    let expected = "\
in 'plugins':
  - in entry 1 of 'plugins' (line 6):
    in 'config':
      in 'origin': unknown field; did you mean `origins`?
in 'services':
  - in entry 1 of 'services' (line 3):
    in 'host': required field missing
    in 'ulr': unknown field; did you mean `url`?
warning: line 8: `config` was given already in line 7; the later value is used
";
    assert_eq!(listing, expected);
    let log = launch().configuration(text).try_start();
    let log = log.map(drop).expect_err("a wrong file was started");
    assert!(
        log.contains("Failed parsing declarative config file /"),
        "{log}"
    );
    for line in expected.lines() {
        assert!(
            log.contains(line.trim_start()),
            "{line} is missing in:\n{log}"
        );
    }
}

#[test]
fn check_warns_of_a_name_given_twice() {
    let text = "_format_version: '3.0'\nservices:\n- name: a\n  host: h\n  host: i\n";
    let (status, output, errors) = check(text, &[]);
    assert_eq!((status, output.as_str()), (0, "parse successful\n"));
    assert_eq!(
        errors,
        "warning: the declarative configuration: line 5: `host` was given already in line 4; the later value is used\n"
    );
    let (status, output, errors) = check(text, &["--strict"]);
    assert_eq!((status, output.as_str()), (1, ""), "{errors}");
}

#[test]
fn check_names_plugins_that_are_not_implemented_and_where_they_are() {
    let text = "_format_version: '3.0'\n\
                services: [{name: all, url: 'http://h', routes: [\
                {name: search, paths: [/s], plugins: [{name: ai-prompt-guard, config: {allow_patterns: [a]}}]}]}]\n\
                plugins: [{name: acme, config: {account_email: a@b.test}}]\n";
    let warnings = "warning: plugin acme is not implemented: it is ignored (all requests)\n\
                    warning: plugin ai-prompt-guard is not implemented: every request it applies to (routes: search) gets 500\n";
    assert_eq!(
        check(text, &[]),
        (0, "parse successful\n".to_owned(), warnings.to_owned())
    );
    let (status, output, errors) = check(text, &["--strict"]);
    assert_eq!((status, output.as_str()), (1, ""));
    assert!(errors.starts_with(warnings), "{errors}");
    assert!(errors.contains("--strict"), "{errors}");
}

#[test]
fn check_warns_of_passwords_that_are_no_hash() {
    let text = |more: &str, password: &str| {
        format!(
            "_format_version: '3.0'\n{more}consumers:\n- username: a\n- username: b\n\
             basicauth_credentials:\n- {{username: a, password: {password}, consumer: a}}\n"
        )
    };
    let export = "_transform: false\n";
    let hash = "a".repeat(40);
    for (text, warned) in [
        (text("", "secret"), false),
        (text(export, &hash), false),
        (text(export, "secret"), true),
    ] {
        let (status, _, errors) = check(&text, &[]);
        let found = errors.contains("passwords of basic-auth that are no hash (40 hex digits): 1.");
        assert_eq!((status, found), (0, warned), "{text}\n{errors}");
    }
}

#[test]
fn check_lists_every_problem_of_a_configuration() {
    let text = "_format_version: '3.0'\nservices: [{name: a}, {name: b, host: x, port: 70000}]\n\
                routes: [{name: r, paths: [/r], service: missing}]\n";
    let (status, _, errors) = check(text, &[]);
    assert_eq!(status, 1);
    for part in [
        "Failed parsing declarative config file ",
        "kong.yml:\n",
        "in 'services':",
        "- in entry 1 of 'services' (line 2):",
        "in 'host': required field missing",
        "- in entry 2 of 'services' (line 2):",
    ] {
        assert!(errors.contains(part), "{part} is missing in:\n{errors}");
    }
}

#[test]
fn check_tells_wrong_settings_with_their_source() {
    let wrong = ["--set", "log_level=loud", "--set", "proxy_lisen=1"];
    let (status, _, errors) = check("_format_version: '3.0'\nservices: [{name: a}]\n", &wrong);
    assert_eq!(status, 1);
    for part in [
        "log_level (flag --set)",
        "did you mean proxy_listen?",
        "required field missing",
    ] {
        assert!(errors.contains(part), "{part} is missing in:\n{errors}");
    }
}

#[test]
fn check_warns_of_settings_without_effect() {
    let (status, _, errors) = check("_format_version: '3.0'\n", &["--set", "db_cache_ttl=1"]);
    assert_eq!(status, 0);
    assert!(errors.contains("warning: setting db_cache_ttl"), "{errors}");
}

#[test]
fn check_tells_certificates_that_cannot_be_used() {
    let (status, _, errors) = check(
        "_format_version: '3.0'\n",
        &[
            "--set",
            "ssl_cert=/nowhere/a.pem",
            "--set",
            "ssl_cert_key=/nowhere/b.pem",
        ],
    );
    assert_eq!(status, 1);
    assert!(
        errors.contains("ssl_cert") && errors.contains("/nowhere/a.pem"),
        "{errors}"
    );
    let pem = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/src/tls/data/ed448.pem");
    let (status, _, errors) = check(
        "_format_version: '3.0'\n",
        &[
            "--set",
            &format!("ssl_cert={pem}"),
            "--set",
            &format!("ssl_cert_key={pem}"),
        ],
    );
    assert_eq!(status, 1);
    assert!(
        errors.contains("ssl_cert") && errors.contains("Ed448"),
        "{errors}"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let (status, _, errors) = told(&run(&["check", "/nowhere/kong.yml"]));
    assert_eq!(status, 1);
    assert!(errors.contains("/nowhere/kong.yml"), "{errors}");
    let (status, _, errors) = told(&run(&["check", "--conf", "/nowhere/kong.conf"]));
    assert_eq!(status, 1);
    assert!(errors.contains("/nowhere/kong.conf"), "{errors}");
    let log = launch()
        .file("/nowhere/kong.yml")
        .try_start()
        .map(drop)
        .expect_err("refused");
    assert!(log.contains("/nowhere/kong.yml"), "{log}");
}

#[test]
fn a_file_of_another_type_is_refused_as_kong_does() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kong.txt");
    std::fs::write(&path, "_format_version: '3.0'\n").expect("writable");
    let (status, _, errors) = told(&run(&["check", path.to_str().expect("UTF-8")]));
    assert_eq!(status, 1);
    assert!(errors.contains("Accepted types: json, yaml"), "{errors}");
}

#[test]
fn version_and_usage_have_their_exit_status() {
    let version = concat!("silverback ", env!("CARGO_PKG_VERSION"), "\n");
    for word in ["version", "--version", "-V"] {
        let (status, output, _) = told(&run(&[word]));
        assert_eq!((status, output.as_str()), (0, version), "{word}");
    }
    assert_eq!(told(&run(&["no-such-command"])).0, 2);
    for words in [&["--help"][..], &["help"], &["help", "start"]] {
        let (status, output, _) = told(&run(words));
        assert_eq!((status, output.contains("Usage:")), (0, true), "{words:?}");
    }
}

#[test]
fn the_usage_of_explain_has_an_optional_method() {
    let (_, output, _) = told(&run(&["explain", "--help"]));
    assert!(output.contains("[METHOD] <URL>"), "{output}");
}

#[test]
fn the_sample_of_settings_is_a_valid_settings_file() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("kong.conf");
    std::fs::write(&path, told(&run(&["settings"])).1).expect("writable");
    let conf = path.to_str().expect("UTF-8");
    assert_eq!(told(&run(&["check", "--conf", conf])).0, 0);
}

#[test]
fn check_without_a_file_looks_into_the_store() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let prefix = directory.path();
    let words = [
        "check",
        "--prefix",
        prefix.to_str().expect("UTF-8"),
        "--set",
        "database=lmdb",
    ];
    let (status, output, errors) = told(&run(&words));
    assert_eq!(status, 0, "{errors}");
    assert!(
        output.contains("no declarative configuration was checked"),
        "{output}"
    );

    let gateway = launch_in(prefix).start();
    let write = |path: &str, body: &str| {
        let answer = gateway.admin_send("POST", path, body);
        assert_eq!(answer.status, 201, "{}", answer.text());
    };
    write("/services", r#"{"name": "a", "host": "h"}"#);
    let valid = |entities: u64, revision: u64| {
        let expected = format!(
            "the settings and the store are valid (entities: {entities}, revision: {revision})\n"
        );
        let (status, output, errors) = told(&run(&words));
        assert_eq!((status, output), (0, expected), "{errors}");
        errors
    };
    assert_eq!(valid(1, 1), "");
    write(
        "/plugins",
        r#"{"name": "ai-prompt-guard", "config": {"allow_patterns": ["a"]}}"#,
    );
    let warning = "warning: plugin ai-prompt-guard is not implemented: every request it applies to (all requests) gets 500\n";
    assert_eq!(valid(2, 2), warning);
    write("/services", r#"{"name": "b", "host": "h"}"#);
    assert!(gateway.stop().success());
    assert_eq!(valid(3, 3), warning);

    let data = prefix.join("silverback.lmdb/data.mdb");
    let file = std::fs::File::options().write(true).open(&data);
    file.and_then(|file| file.set_len(8192)).expect("writable");
    let (status, _, errors) = told(&run(&words));
    assert_eq!(status, 1);
    assert!(
        errors.contains("is damaged") && errors.contains("silverback import"),
        "{errors}"
    );
    assert!(data.exists(), "`check` must not rename the store");
}

#[test]
fn stop_without_a_gateway_fails() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let prefix = directory.path().to_str().expect("UTF-8");
    for word in ["stop", "reload"] {
        let (status, _, errors) = told(&run(&[word, "--prefix", prefix]));
        assert_eq!(status, 1);
        assert!(errors.contains("no gateway is running"), "{errors}");
        let start = format!("`silverback start --prefix {prefix}`");
        assert!(errors.contains(&start), "{errors}");
    }
}

#[test]
fn stop_stops_a_gateway_and_waits_until_it_has_exited() {
    let mut gateway = launch().set("database", "off").start();
    let output = gateway.launch().other(&["stop"]).output().expect("it runs");
    assert!(output.status.success());
    assert!(gateway.wait().success());
}

#[test]
fn plugins_are_listed_in_the_order_in_which_they_run() {
    let (status, output, errors) = told(&run(&["plugins"]));
    assert_eq!((status, errors.as_str()), (0, ""));
    assert!(output.starts_with("NAME"), "{output}");
    let (status, output, errors) = told(&run(&["plugins", "--json"]));
    assert_eq!((status, errors.as_str()), (0, ""));
    let all: serde_json::Value = serde_json::from_str(&output).expect("the output is JSON");
    let all = all.as_array().expect("the output is a list");
    let priorities = all.iter().map(|one| one["priority"].as_i64());
    assert!(priorities.rev().is_sorted());
    let key_auth = all.iter().find(|one| one["name"] == "key-auth");
    let wanted = serde_json::json!({
        "name": "key-auth", "version": "3.9.1", "priority": 1250, "phases": ["access"],
        "status": "works", "without": null,
    });
    assert_eq!(key_auth, Some(&wanted));
}
