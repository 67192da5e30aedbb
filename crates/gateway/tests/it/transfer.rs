//! Import and export on the command line, with and without a running gateway.

use crate::{launch, launch_in};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Output;
use testkit::{Echo, Launch};

fn run(launch: &Launch, words: &[&str]) -> (bool, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = launch.other(words).output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (status.success(), text(stdout), text(stderr))
}

fn exported(launch: &Launch) -> String {
    let (done, text, errors) = run(launch, &["export"]);
    assert!(done, "{errors}");
    text
}

/// Writes a file in the prefix and returns its path.
fn file(launch: &Launch, name: &str, text: &str) -> String {
    let path = launch.prefix().join(name);
    fs::write(&path, text).expect("writable");
    path.to_str().expect("UTF-8").to_owned()
}

fn import(launch: &Launch, path: &str) -> String {
    let (done, text, errors) = run(launch, &["config", "db_import", path]);
    assert!(done, "{errors}");
    text
}

#[test]
fn an_export_succeeds_when_its_reader_closes_the_pipe() {
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let offline = launch_in(prefix.path());
    let entities = "_format_version: '3.0'\nconsumers: [{username: a}]\n";
    import(&offline, &file(&offline, "kong.yml", entities));
    let gateway = launch().start();
    for launch in [&offline, gateway.launch()] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = launch.other(&["export"]);
        let output = command.stdout(writer).output().expect("it runs");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{errors}");
        assert_eq!(errors, "");
    }
}

/// The configuration of [`crate::shop`]. Its plugins and credentials change responses, so that a test sees when they
/// are live.
fn shop(echo: &Echo) -> String {
    crate::shop(echo)
}

#[test]
fn an_import_is_live_in_the_running_gateway() {
    let echo = Echo::start();
    let gateway = launch().start();
    let launch = gateway.launch();
    let path = file(launch, "in.yml", &shop(&echo));
    let (done, text, errors) = run(launch, &["import", &path]);
    assert!(done, "{errors}");
    assert_eq!(
        text,
        "import successful: 8 created, 0 updated, 0 unchanged, revision 1\n"
    );
    // Standard error is not a terminal here, so `import` prints one line per stage.
    let stages: Vec<&str> = errors.lines().collect();
    assert_eq!(
        stages,
        ["reading", "validating 8 entities", "writing", "making live"]
    );
    // The revision reports the same numbers. It contains only entities of the file, so no default workspace.
    let revision = gateway.admin_get("/revisions/1?size=1000").json();
    assert_eq!(revision["created"], 8, "{revision}");
    let changes = revision["data"].as_array().expect("a list");
    assert_eq!(changes.len(), 8, "{revision}");
    assert!(changes.iter().all(|change| change["type"] != "workspaces"));
    assert_eq!(gateway.get("/open", &[]).status, 200);
    assert_eq!(gateway.get("/closed", &[]).status, 401);
    let key = [("apikey", "alice-key")];
    assert_eq!(gateway.get("/closed", &key).status, 200);
    let again = import(launch, &path);
    assert!(again.contains("8 unchanged, revision 1"), "{again}");
}

#[test]
fn an_export_of_one_store_can_be_imported_into_another_online_and_offline() {
    let echo = Echo::start();
    let gateway = launch().start();
    let origin = gateway.launch();
    import(origin, &file(origin, "in.yml", &shop(&echo)));
    let online = exported(origin);
    assert!(online.starts_with("_format_version: '3.0'\n"), "{online}");

    let directory = tempfile::tempdir().expect("a temporary directory");
    let copy = launch_in(directory.path());
    let path = file(&copy, "out.yml", &online);
    let told = import(&copy, &path);
    assert!(told.contains("8 created"), "{told}");
    assert_eq!(exported(&copy), online, "offline");
    let told = import(&copy, &path);
    assert!(told.contains("8 unchanged, revision 1"), "{told}");
    let gateway = copy.start();
    assert_eq!(gateway.get("/open", &[]).status, 200);
    assert_eq!(exported(gateway.launch()), online, "online");
    let told = import(gateway.launch(), &path);
    assert!(told.contains("8 unchanged, revision 1"), "{told}");
    let json = run(gateway.launch(), &["export", "--format", "json"]).1;
    let path = file(gateway.launch(), "out.json", &json);
    let told = import(gateway.launch(), &path);
    assert!(told.contains("8 unchanged, revision 1"), "{told}");
}

#[test]
fn errors_are_the_same_online_and_offline_and_change_nothing() {
    let echo = Echo::start();
    let directory = tempfile::tempdir().expect("a temporary directory");
    let offline = launch_in(directory.path());
    import(&offline, &file(&offline, "in.yml", &shop(&echo)));
    let before = exported(&offline);
    let wrong = [
        (
            "unknown.yml",
            "_format_version: '3.0'\nservices: [{name: a, host: h}, {name: b, hots: h}]\n".to_owned(),
            vec![
                "Failed importing file ",
                "unknown.yml:",
                "in entry 2 of 'services' (line 2):",
                "in 'hots': unknown field; did you mean `host`?",
            ],
        ),
        (
            "dangling.yml",
            "_format_version: '3.0'\nservices: [{name: a, host: h}]\nroutes: [{name: r, paths: [/], service: nowhere}]\n"
                .to_owned(),
            vec!["invalid reference 'service: nowhere'"],
        ),
        (
            "taken.json",
            r#"{"_format_version": "3.0", "services": [{"id": "99999999-2222-4333-8444-555555555555", "name": "shop", "host": "h"}]}"#
                .to_owned(),
            vec!["name set to 'shop' already exists with id"],
        ),
        (
            "twice.yml",
            "_format_version: '3.0'\nconsumers: [{username: a}, {username: a}]\n".to_owned(),
            vec!["uniqueness violation"],
        ),
        (
            "cut.json",
            r#"{"_format_version": "3.0", "services": [{"name": "a","#.to_owned(),
            vec!["line 1, column 53: EOF while parsing a value"],
        ),
        // The schema refuses this regex, which is too large to compile.
        (
            "regex.yml",
            "_format_version: '3.0'\nroutes: [{name: r, paths: ['~/a{99999999}']}]\n".to_owned(),
            vec!["invalid regex: '/a{99999999}'"],
        ),
        // The schema accepts this certificate, but the gateway cannot serve it.
        (
            "unservable.yml",
            "_format_version: '3.0'\ncertificates: [{id: 99999999-2222-4333-8444-555555555555, cert: '{vault://env/cert}', \
             key: '{vault://env/key}'}]\n"
                .to_owned(),
            vec!["certificate 99999999-2222-4333-8444-555555555555: cert is a vault reference"],
        ),
    ];
    let mut told = Vec::new();
    for (name, text, parts) in &wrong {
        let path = file(&offline, name, text);
        let (done, output, errors) = run(&offline, &["import", &path]);
        assert!(!done && output.is_empty(), "{name}: {output}");
        for part in parts {
            assert!(errors.contains(part), "{name}: {errors}");
        }
        told.push(errors);
    }
    assert_eq!(exported(&offline), before);
    let gateway = offline.start();
    let online = gateway.launch();
    for ((name, ..), offline) in wrong.iter().zip(&told) {
        let path = online.prefix().join(name);
        let path = path.to_str().expect("UTF-8");
        let (done, _, errors) = run(online, &["import", path]);
        assert!(!done, "{name}");
        let problems = |text: &str| text.split_once("error: ").map(|(_, text)| text.to_owned());
        assert_eq!(problems(&errors), problems(offline), "{name}");
    }
    assert_eq!(exported(online), before);
    assert_eq!(gateway.get("/open", &[]).status, 200);
}

#[test]
fn files_are_for_their_owner_and_db_export_overwrites_none() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = launch_in(directory.path());
    let service = "_format_version: '3.0'\nservices: [{name: a, host: h}]\n";
    import(&launch, &file(&launch, "in.yml", service));
    let at = |name: &str| -> PathBuf { directory.path().join(name) };
    let (new, other) = (at("new.yml"), at("new.json"));
    let named = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let export = |words: &[&str]| run(&launch, words);
    let (done, _, errors) = export(&["config", "db_export", &named(&new)]);
    assert!(done, "{errors}");
    let text = fs::read_to_string(&new).expect("it was written");
    assert_eq!(text, exported(&launch));
    let mode = fs::metadata(&new).expect("there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (done, _, errors) = export(&["config", "db_export", &named(&new)]);
    assert!(!done);
    assert!(
        errors.contains("already exists.\nWill not overwrite it."),
        "{errors}"
    );
    assert!(export(&["config", "db_export", &named(&other)]).0);
    let json = fs::read_to_string(&other).expect("it was written");
    assert!(json.starts_with("{\n  \"_format_version\""), "{json}");
    // Unlike `config db_export`, `export --output` overwrites a file. This is useful for files under version control.
    fs::write(&new, "old").expect("writable");
    let (done, _, errors) = export(&["export", "--output", &named(&new)]);
    assert!(done, "{errors}");
    assert_eq!(fs::read_to_string(&new).expect("readable"), text);
    let (done, _, errors) = export(&["export", "--output", "/nowhere/a.yml"]);
    assert!(!done && errors.contains("/nowhere/a.yml"), "{errors}");
}

#[test]
fn kongs_spelling_has_kongs_default() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = launch_in(directory.path());
    let service = "_format_version: '3.0'\nservices: [{name: a, host: h}]\n";
    import(&launch, &file(&launch, "in.yml", service));
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let mut command = launch.other(&["config", "db_export"]);
    let status = command.current_dir(elsewhere.path()).status();
    assert!(status.expect("it runs").success());
    let text = fs::read_to_string(elsewhere.path().join("kong.yml"));
    assert_eq!(text.expect("it was written"), exported(&launch));
}

#[test]
fn the_revision_of_an_import_names_the_file() {
    let text = "_format_version: '3.0'\nservices: [{name: a, host: h}]\n";
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let offline = launch_in(prefix.path());
    let gateway = launch().start();
    for launch in [&offline, gateway.launch()] {
        import(launch, &file(launch, "kong.yml", text));
        let (done, shown, errors) = run(launch, &["revisions", "show", "1"]);
        assert!(done, "{errors}");
        assert!(shown.contains("  message  import of kong.yml\n"), "{shown}");
    }
}

#[test]
fn a_missing_store_or_database_is_reported() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let launch = launch_in(directory.path());
    let (done, _, errors) = run(&launch, &["export"]);
    assert!(!done && errors.contains("there is no store"), "{errors}");
    let service = "_format_version: '3.0'\nservices: [{name: a, host: h}]\n";
    let path = file(&launch, "in.yml", service);
    let (done, _, errors) = run(&launch, &["import", &path, "--set", "database=off"]);
    assert!(!done && errors.contains("database = off"), "{errors}");
    let gateway = launch.configuration(service).start();
    let (done, _, errors) = run(gateway.launch(), &["import", &path]);
    assert!(!done && errors.contains("database = off"), "{errors}");
    let text = exported(gateway.launch());
    assert!(text.contains("\n  name: a\n"), "{text}");
}

#[test]
fn an_import_prints_its_warnings_with_and_without_a_gateway() {
    let text = "_format_version: '3.0'\nservices:\n- name: a\n  host: h\n  host: i\n  \
                routes: [{name: search, paths: [/s], plugins: [{name: ai-prompt-guard, config: {allow_patterns: [b]}}]}]\n";
    let expected = "warning: the imported configuration: line 5: `host` was given already in line 4; the later value is used\n\
                    warning: plugin ai-prompt-guard is not implemented: every request it applies to (routes: search) gets 500\n";
    let prefix = tempfile::tempdir().expect("a temporary directory");
    let offline = launch_in(prefix.path());
    let gateway = launch().start();
    for launch in [&offline, gateway.launch()] {
        let (done, _, errors) = run(launch, &["import", &file(launch, "kong.yml", text)]);
        assert!(done && errors.ends_with(expected), "{errors}");
    }
}
