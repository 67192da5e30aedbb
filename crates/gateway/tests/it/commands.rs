//! The commands and their exit status, and what is said about wrong settings and files.

use crate::{launch, launch_in, shop};
use std::process::{Command, Output};
use testkit::Echo;

fn run(words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_silverback"));
    command.args(words).output().expect("it runs")
}

/// Exit status, standard output, standard error.
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
fn check_and_start_warn_of_plugins_that_can_hardly_be_meant() {
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
fn check_names_plugins_that_are_not_implemented_and_where_they_are() {
    let text = "_format_version: '3.0'\n\
                services: [{name: all, url: 'http://h', routes: [\
                {name: search, paths: [/s], plugins: [{name: acl, config: {allow: [a]}}, {name: file-log, config: {path: /x}}]}]}]\n\
                plugins: [{name: prometheus}]\n";
    let warnings = "warning: plugin acl is not implemented: every request it applies to (routes: search) gets 500\n\
                    warning: plugin file-log is not implemented: it is ignored (routes: search)\n\
                    warning: plugin prometheus is not implemented: it is ignored (all requests)\n";
    assert_eq!(
        check(text, &[]),
        (0, "parse successful\n".to_owned(), warnings.to_owned())
    );
    let (status, output, errors) = check(text, &["--strict"]);
    assert_eq!((status, output.as_str()), (1, ""));
    assert!(errors.starts_with(warnings), "{errors}");
    assert!(
        errors.contains("has plugins that are not implemented"),
        "{errors}"
    );
}

#[test]
fn check_lists_every_problem_of_a_configuration() {
    let text = "_format_version: '3.0'\nservices: [{name: a}, {name: b, host: x, port: 70000}]\n\
                routes: [{name: r, paths: [/r], service: missing}]\n";
    let (status, _, errors) = check(text, &[]);
    assert_eq!(status, 1);
    for part in [
        "in 'services':",
        "- in entry 1 of 'services':",
        "in 'host': required field missing",
        "- in entry 2 of 'services':",
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
    let (status, _, errors) = check("_format_version: '3.0'\n", &["--set", "mem_cache_size=1m"]);
    assert_eq!(status, 0);
    assert!(
        errors.contains("warning: setting mem_cache_size"),
        "{errors}"
    );
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
    let pem = concat!(env!("CARGO_MANIFEST_DIR"), "/../net/src/tls/data/p521.pem");
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
        errors.contains("ssl_cert") && errors.contains("ECDSA on P-521 (secp521r1)"),
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
    let (status, output, _) = told(&run(&["version"]));
    assert_eq!((status, output.starts_with("silverback ")), (0, true));
    assert_eq!(told(&run(&["no-such-command"])).0, 2);
    assert_eq!(told(&run(&["--help"])).0, 0);
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
fn stop_without_a_gateway_fails() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = launch_in(directory.path());
    for word in ["stop", "reload"] {
        let (status, _, errors) = told(&launch.other(&[word]).output().expect("it runs"));
        assert_eq!(status, 1);
        assert!(errors.contains("no gateway is running"), "{errors}");
    }
}

#[test]
fn stop_ends_a_gateway_and_waits_for_it() {
    let mut gateway = launch().set("database", "off").start();
    let output = gateway.launch().other(&["stop"]).output().expect("it runs");
    assert!(output.status.success());
    assert!(gateway.wait().success());
}
