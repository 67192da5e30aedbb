//! Signals and `silverback reload`: graceful shutdown, reloading, and a second gateway in the same prefix.

use crate::{launch, launch_in, one_route, shop};
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use testkit::upstream::read_until_blank_line;
use testkit::{Client, Echo, Launch};

#[test]
fn requests_in_flight_finish_after_sigterm() {
    let echo = Echo::start();
    let gateway = launch().configuration(&shop(&echo)).start();
    let mut idle = Client::connect(gateway.proxy);
    assert_eq!(idle.request("GET", "/open", &[], b"").status, 200);
    let mut busy = Client::connect(gateway.proxy);
    busy.send("GET /open/__delay/500 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    while echo.requests() < 2 {
        std::thread::yield_now();
    }
    let proxy = gateway.proxy;
    gateway.signal("TERM");
    assert_eq!(busy.receive("GET").expect("an answer").status, 200);
    assert!(busy.is_closed());
    assert!(idle.is_closed());
    let mut gateway = gateway;
    assert!(gateway.wait().success());
    assert!(std::net::TcpStream::connect(proxy).is_err());
}

#[test]
fn draining_ends_after_its_limit() {
    let echo = Echo::start();
    let mut gateway = launch()
        .set("drain_timeout", "0.1")
        .configuration(&shop(&echo))
        .start();
    let mut stuck = Client::connect(gateway.proxy);
    stuck
        .send("GET /open/__delay/20000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .expect("sent");
    while echo.requests() < 1 {
        std::thread::yield_now();
    }
    gateway.signal("TERM");
    gateway.wait();
    assert!(stuck.is_closed());
}

#[test]
fn a_second_signal_stops_the_gateway_at_once() {
    let echo = Echo::start();
    for (delay, first_step) in [
        ("3600", "still accepts connections"),
        ("0", "requests in flight"),
    ] {
        let mut gateway = launch()
            .set("drain_delay", delay)
            .set("drain_timeout", "3600")
            .configuration(&shop(&echo))
            .start();
        let before = echo.requests();
        let mut stuck = Client::connect(gateway.proxy);
        stuck
            .send("GET /open/__delay/20000 HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect("sent");
        // The Admin API answers `100 Continue` and then waits for the body, which is never sent.
        let mut writing = TcpStream::connect(gateway.admin).expect("it listens");
        writing
            .write_all(b"POST /config HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
            .expect("sent");
        read_until_blank_line(&mut writing);
        while echo.requests() == before {
            std::thread::yield_now();
        }
        gateway.signal("TERM");
        gateway.wait_for_log(first_step);
        gateway.signal("TERM");
        assert!(gateway.wait().success());
        assert!(stuck.is_closed());
    }
}

#[test]
fn an_idle_connection_to_the_admin_api_does_not_delay_the_shutdown() {
    let mut gateway = launch()
        .set("database", "off")
        .set("drain_timeout", "3600")
        .start();
    let mut idle = Client::connect(gateway.admin);
    assert_eq!(idle.request("GET", "/status", &[], b"").status, 200);
    gateway.signal("TERM");
    assert!(gateway.wait().success());
    assert!(idle.is_closed());
}

#[test]
fn sigint_and_sigquit_stop_the_gateway_too() {
    for name in ["INT", "QUIT"] {
        let mut gateway = launch().set("database", "off").start();
        gateway.signal(name);
        assert!(gateway.wait().success(), "{name}");
    }
}

#[test]
fn sighup_reads_the_file_again() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let file = prefix.path().join("kong.yml");
    let gateway = launch_in(prefix.path())
        .configuration(&one_route(&echo.url(), "/before"))
        .start();
    std::fs::write(&file, one_route(&echo.url(), "/after")).expect("writable");
    gateway.signal("HUP");
    gateway.wait_for_log("reloaded");
    assert_eq!(gateway.get("/after", &[]).status, 200);
    assert_eq!(gateway.get("/before", &[]).status, 404);
    std::fs::write(&file, "_format_version: '3.0'\nservices: [{name: a}]\n").expect("writable");
    gateway.signal("HUP");
    gateway.wait_for_log("required field missing");
    assert_eq!(gateway.get("/after", &[]).status, 200);
}

#[test]
fn sighup_takes_over_the_log_level_and_says_what_needs_a_restart() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let conf = prefix.path().join("kong.conf");
    std::fs::write(&conf, "database = off\nlog_level = error\n").expect("writable");
    let launch = launch_in(prefix.path());
    let addresses = prefix.path().join("silverback.addresses.json");
    let mut command = launch.command();
    command.arg("--conf").arg(&conf);
    let log = prefix.path().join("log");
    let output = std::fs::File::create(&log).expect("writable");
    let mut child = command.stderr(output).spawn().expect("it can be started");
    while !addresses.exists() {
        std::thread::yield_now();
    }
    std::fs::write(
        &conf,
        "database = off\nlog_level = info\nrouter_flavor = traditional\n",
    )
    .expect("writable");
    let reload = reload(prefix.path(), &[]);
    let warned = String::from_utf8_lossy(&reload.stderr);
    assert!(reload.status.success(), "{warned}");
    assert!(warned.contains("router_flavor"), "{warned}");
    let text = || std::fs::read_to_string(&log).unwrap_or_default();
    while !text().contains("settings reloaded") {
        std::thread::yield_now();
    }
    assert!(
        text().contains("router_flavor") && text().contains("restart"),
        "{}",
        text()
    );
    assert!(launch.other(&["stop"]).status().expect("it runs").success());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn reload_waits_for_the_outcome() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let file = prefix.path().join("kong.yml");
    let gateway = launch_in(prefix.path())
        .conf("log_level = info\n")
        .configuration(&one_route(&echo.url(), "/before"))
        .start();
    let reload = || reload(prefix.path(), &[]);
    std::fs::write(&file, one_route(&echo.url(), "/after")).expect("writable");
    let good = reload();
    assert!(good.status.success());
    let told = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let start = format!(
        "process {} has reloaded its settings; revision 2: ",
        gateway.pid()
    );
    assert_eq!(told(&good), format!("{start}+0 ~1 -0\n"));
    assert_eq!(told(&reload()), format!("{start}+0 ~0 -0\n"));
    assert_eq!(gateway.get("/after", &[]).status, 200);
    std::fs::write(&file, "_format_version: '3.0'\nservices: [{name: a}]\n").expect("writable");
    let wrong = text(&reload());
    assert!(wrong.contains("required field missing"), "{wrong}");
    std::fs::write(&file, one_route(&echo.url(), "/again")).expect("writable");
    assert!(reload().status.success());
    assert_eq!(gateway.get("/again", &[]).status, 200);
    let conf = prefix.path().join("silverback.conf");
    std::fs::write(conf, "log_level = loud\n").expect("writable");
    let wrong = text(&reload());
    let expected = format!(
        "error: process {} keeps its settings and its configuration: setting log_level",
        gateway.pid()
    );
    assert!(wrong.starts_with(&expected), "{wrong}");
}

#[test]
fn a_reload_with_a_wrong_declarative_file_changes_no_setting() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let file = prefix.path().join("kong.yml");
    let conf = prefix.path().join("silverback.conf");
    let gateway = launch_in(prefix.path())
        .conf("log_level = info\n")
        .configuration(&one_route(&echo.url(), "/before"))
        .start();
    let level = || gateway.admin_get("/debug/node/log-level").text();
    let before = level();
    assert!(before.contains("info"), "{before}");
    std::fs::write(&conf, "log_level = warn\n").expect("writable");
    std::fs::write(&file, "_format_version: '3.0'\nservices: [{name: a}]\n").expect("writable");
    let refused = text(&reload(prefix.path(), &[]));
    assert!(
        refused.contains("keeps its settings and its configuration"),
        "{refused}"
    );
    assert_eq!(level(), before);
    std::fs::write(&file, one_route(&echo.url(), "/after")).expect("writable");
    assert!(reload(prefix.path(), &[]).status.success());
    assert!(level().contains("warn"), "{}", level());
    assert_eq!(gateway.get("/after", &[]).status, 200);
}

#[test]
fn a_strict_reload_with_warnings_changes_nothing() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let file = prefix.path().join("kong.yml");
    let before = one_route(&echo.url(), "/before");
    let gateway = launch_in(prefix.path()).configuration(&before).start();
    let twice = format!(
        "{}consumers: [{{username: a}}, {{username: b}}]\nconsumers: []\n",
        one_route(&echo.url(), "/after")
    );
    std::fs::write(&file, &twice).expect("writable");
    let refused = reload(prefix.path(), &["--strict"]);
    let errors = text(&refused);
    assert_eq!(refused.status.code(), Some(1), "{errors}");
    for part in [
        "keeps its settings and its configuration",
        "and the 2 entities of the earlier one are dropped",
        "there are warnings, which --strict does not accept",
    ] {
        assert!(errors.contains(part), "{part} is missing in: {errors}");
    }
    assert_eq!(gateway.get("/before", &[]).status, 200);
    assert_eq!(gateway.get("/after", &[]).status, 404);
    let accepted = reload(prefix.path(), &[]);
    assert!(accepted.status.success(), "{}", text(&accepted));
    assert_eq!(gateway.get("/after", &[]).status, 200);
    std::fs::write(&file, &before).expect("writable");
    let clean = reload(prefix.path(), &["--strict"]);
    assert!(clean.status.success(), "{}", text(&clean));
    assert_eq!(gateway.get("/before", &[]).status, 200);
}

const NOT_ENABLED: &str =
    "request-termination plugin is in use but not enabled; add it to the setting plugins";

#[test]
fn plugins_in_use_must_stay_enabled() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let conf = prefix.path().join("silverback.conf");
    let gateway = launch_in(prefix.path()).conf("log_level = info\n").start();
    // A plugin entity needs its plugin in the setting `plugins` even with `enabled: false`, here and in Kong.
    let plugin = r#"{"name": "request-termination", "enabled": false}"#;
    for _ in 0..2 {
        let route = gateway.admin_send("POST", "/routes", r#"{"paths": ["/a"]}"#);
        let id = route.json()["id"].as_str().expect("an id").to_owned();
        let made = gateway.admin_send("POST", &format!("/routes/{id}/plugins"), plugin);
        assert_eq!(made.status, 201, "{}", made.text());
    }
    std::fs::write(&conf, "plugins = key-auth\n").expect("writable");
    let refused = text(&reload(prefix.path(), &[]));
    assert_eq!(refused.matches(NOT_ENABLED).count(), 1, "{refused}");
    gateway.stop();
    let refused = failure(launch_in(prefix.path()).conf("plugins = key-auth\n"));
    assert_eq!(refused.matches(NOT_ENABLED).count(), 1, "{refused}");
    let launch = launch_in(prefix.path()).conf("plugins = key-auth,request-termination\n");
    let gateway = launch.start();
    let plugins = gateway.admin_get("/plugins").json();
    for plugin in plugins["data"].as_array().expect("a list") {
        let path = format!("/plugins/{}", plugin["id"].as_str().expect("an id"));
        assert_eq!(gateway.admin_send("DELETE", &path, "").status, 204);
    }
    gateway.stop();
    let gateway = launch_in(prefix.path())
        .conf("plugins = key-auth\n")
        .start();
    let refused = gateway.admin_send("POST", "/revisions/4/rollback", "{}");
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains(NOT_ENABLED), "{}", refused.text());
}

#[test]
fn a_file_with_a_plugin_that_would_not_be_enabled_refuses_the_reload() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path())
        .conf("log_level = info\n")
        .configuration(&crate::shop(&echo))
        .start();
    let conf = prefix.path().join("silverback.conf");
    std::fs::write(conf, "plugins = key-auth\n").expect("writable");
    let refused = text(&reload(prefix.path(), &[]));
    assert!(
        refused.contains("plugin 'request-termination' not enabled"),
        "{refused}"
    );
    assert_eq!(gateway.get("/gone", &[]).status, 410);
}

#[test]
fn reload_refuses_settings_that_would_not_reach_the_gateway() {
    let gateway = launch().set("database", "off").start();
    let prefix = gateway.launch().prefix();
    let refused = text(&reload(prefix, &["--set", "log_level=debug"]));
    for part in ["log_level", "settings file"] {
        assert!(refused.contains(part), "{refused}");
    }
    let same = format!("prefix={}", prefix.display());
    assert!(reload(prefix, &["--set", &same]).status.success());
}

#[test]
fn reload_prints_warnings_about_the_declarative_file() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let gateway = launch_in(prefix.path())
        .configuration(&one_route(&echo.url(), "/before"))
        .start();
    let guarded = "plugins: [{name: ai-prompt-guard, config: {allow_patterns: [b]}}]\n";
    let twice = "_format_version: '3.0'\n_format_version: '3.0'\n";
    let warnings = "warning: the declarative configuration: line 2: `_format_version` was given already in line 1; the later value is used\n\
                    warning: plugin ai-prompt-guard is not implemented: every request it applies to (all requests) gets 500\n";
    std::fs::write(prefix.path().join("kong.yml"), format!("{twice}{guarded}")).expect("writable");
    // The second reload finds the same configuration and must print the same warnings.
    for _ in 0..2 {
        let output = reload(prefix.path(), &[]);
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), warnings);
    }
    assert_eq!(gateway.get("/before", &[]).status, 404);
}

#[test]
fn every_reload_gets_its_own_outcome() {
    let echo = Echo::start();
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let file = prefix.path().join("kong.yml");
    let gateway = launch_in(prefix.path())
        .configuration(&one_route(&echo.url(), "/p0"))
        .start();
    std::thread::scope(|scope| {
        let reloads: Vec<_> = (0..8)
            .map(|_| scope.spawn(|| reload(prefix.path(), &[])))
            .collect();
        for one in reloads {
            let output = one.join().expect("it runs");
            assert!(output.status.success(), "{}", text(&output));
        }
    });
    std::fs::write(&file, "services: 1\n").expect("writable");
    assert!(!reload(prefix.path(), &[]).status.success());
    std::fs::write(&file, one_route(&echo.url(), "/p1")).expect("writable");
    assert!(reload(prefix.path(), &[]).status.success());
    assert_eq!(gateway.get("/p1", &[]).status, 200);
}

#[test]
fn reload_accepts_only_the_settings_file_of_the_gateway() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let _gateway = launch_in(prefix.path()).conf("log_level = info\n").start();
    let other = prefix.path().join("other.conf");
    std::fs::write(&other, "log_level = debug\n").expect("writable");
    let conf = |path: &Path| {
        let path = path.to_str().expect("UTF-8");
        reload(prefix.path(), &["--conf", path])
    };
    let refused = text(&conf(&other));
    for part in ["silverback.conf", "other.conf", "without --conf"] {
        assert!(refused.contains(part), "{refused}");
    }
    assert!(
        conf(&prefix.path().join("silverback.conf"))
            .status
            .success()
    );
}

#[test]
fn reload_warns_of_variables_that_do_not_reach_the_gateway() {
    let gateway = launch().set("database", "off").start();
    let mut command = Command::new(env!("CARGO_BIN_EXE_silverback"));
    let output = command
        .arg("reload")
        .env("KONG_PREFIX", gateway.launch().prefix())
        .env("KONG_LOG_LEVEL", "debug")
        .env("KONG_NO_SETTING", "1")
        .output()
        .expect("it runs");
    let warned = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{warned}");
    assert_eq!(warned.lines().count(), 1, "{warned}");
    assert!(
        warned.starts_with("warning: environment variable KONG_LOG_LEVEL has no effect"),
        "{warned}"
    );
}

#[test]
fn only_the_local_socket_accepts_a_reload() {
    let gateway = launch().set("database", "off").start();
    let answer = gateway.admin_send("POST", "/reload", "");
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("admin.sock"), "{}", answer.text());
}

#[test]
fn reload_without_the_socket_names_the_signal() {
    let gateway = launch().set("database", "off").start();
    let prefix = gateway.launch().prefix();
    std::fs::remove_file(prefix.join("admin.sock")).expect("the socket");
    let failed = text(&reload(prefix, &[]));
    let signal = format!("`kill -HUP {}`", gateway.pid());
    assert!(failed.contains(&signal), "{failed}");
}

/// Runs `silverback reload` with this prefix and these arguments. It gets no other settings of the gateway.
fn reload(prefix: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_silverback"));
    let command = command.arg("reload").arg("--prefix").arg(prefix);
    command.args(words).output().expect("it runs")
}

#[test]
fn a_second_gateway_in_the_prefix_is_refused() {
    let gateway = launch().set("database", "off").start();
    let log = launch_in(gateway.launch().prefix())
        .set("database", "off")
        .command()
        .output()
        .map(|output| text(&output))
        .expect("it runs");
    assert!(log.contains("already running"), "{log}");
    assert!(log.contains(&gateway.pid().to_string()), "{log}");
}

#[test]
fn a_port_in_use_is_reported_with_setting_address_and_owner() {
    let occupied = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = occupied.local_addr().expect("a bound address").to_string();
    for setting in ["proxy_listen", "admin_listen"] {
        let log = failure(launch().set("database", "off").set(setting, &address));
        for part in [setting, &address, &std::process::id().to_string()] {
            assert!(log.contains(part), "{part} is missing in: {log}");
        }
    }
}

fn failure(launch: Launch) -> String {
    launch.try_start().map(drop).expect_err("it started")
}

fn text(output: &Output) -> String {
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stderr).into_owned()
}
