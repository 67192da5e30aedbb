//! Tests of what users see for an incorrect document: lines of entities, suggestions for unknown names, and warnings
//! about repeated names.

use crate::running::{Running, options};
use model::Error;
use model::declarative::{Document, Format, Loader, Nothing, Options, Source, format_cli_errors};
use model::schema::RouterFlavor;

fn load(text: &str, format: Format) -> Result<Document, Error> {
    let source = Source::Text(text.as_bytes(), format);
    Loader::new().load(source, &options(1), &Nothing, 0)
}

fn listing(text: &str, format: Format) -> String {
    let error = load(text, format).expect_err("refused");
    format_cli_errors(&error, text.as_bytes(), format, RouterFlavor::default())
}

fn check(text: &str, expected: &str) {
    assert_eq!(listing(text, Format::Yaml), expected, "{text}");
}

fn warnings(text: &str, format: Format) -> Vec<String> {
    load(text, format).expect("accepted").warnings
}

#[test]
fn a_text_that_cannot_be_parsed_is_described_by_line_and_column() {
    check(
        "_format_version: '3.0'\nservices: [a",
        "line 2, column 12: did not find expected ',' or ']'",
    );
    check("", "the file is empty");
    check("\n# only a comment\n", "the file is empty");
    check("just text", "expected an object");
    assert_eq!(
        listing("{\"a\": x}", Format::Json),
        "line 1, column 7: expected value"
    );
}

#[test]
fn an_unknown_plugin_is_named_with_a_similar_one() {
    check(
        "_format_version: '3.0'\nplugins:\n- name: rate-limitting\n- name: our-own-plugin\n",
        "in 'plugins':
  - in entry 1 of 'plugins' (line 3):
    in 'name': there is no plugin `rate-limitting`; did you mean `rate-limiting`?
  - in entry 2 of 'plugins' (line 4):
    in 'name': there is no plugin `our-own-plugin`",
    );
}

#[test]
fn entities_are_listed_with_their_lines() {
    check(
        "\
_format_version: '3.0'
# A comment.
services:
- name: a
  host: h
  plugins:
  - {name: key-auth}
  -
    name: cors
    tags: 1
  routes:
  - paths: [x]
- name: b
consumers: [{username: c}, {}, 1]
upstreams: [
  {
    name: u.test, targets: [{target: t},
      {}]
  }]
",
        "\
in 'consumers':
  - in entry 2 of 'consumers' (line 14):
    in '@entity':
      - in entry 1 of '@entity': at least one of these fields must be non-empty: 'custom_id', 'username'
  - in entry 3 of 'consumers' (line 14): expected a record
in 'services':
  - in entry 1 of 'services' (line 4):
    in 'plugins':
      - in entry 2 of 'plugins' (line 9):
        in 'tags': expected a set
    in 'routes':
      - in entry 1 of 'routes' (line 12):
        in 'paths':
          - in entry 1 of 'paths': should start with: / (fixed path) or ~/ (regex path)
  - in entry 2 of 'services' (line 13):
    in 'host': required field missing
in 'upstreams':
  - in entry 1 of 'upstreams' (line 16):
    in 'targets':
      - in entry 2 of 'targets' (line 18):
        in 'target': required field missing",
    );
}

#[test]
fn json_has_lines_too() {
    let text = "{\"_format_version\": \"3.0\",\n \"_comment\": \"[{\\\"\\ud83d\\ude00 \\\\n\",\n\n \"services\": [\n  \
                {\"name\": \"a\", \"host\": \"h\",\n  \"routes\":\n   [{\"paths\": [\"/\"], \"name\": true}]},\n  \"x\"]}";
    let expected = "\
in 'services':
  - in entry 1 of 'services' (line 5):
    in 'routes':
      - in entry 1 of 'routes' (line 7):
        in 'name': expected a string
  - in entry 2 of 'services' (line 8): expected a record";
    assert_eq!(listing(text, Format::Json), expected);
    assert_eq!(listing(text, Format::Auto), expected);
}

#[test]
fn problems_with_references_have_the_line_of_their_entity() {
    check(
        "_format_version: '3.0'\nroutes:\n- name: r\n  paths: [/]\n  service: nowhere\n",
        "in 'routes':\n  in 'r' (line 3):\n    - in entry 1 of 'r': invalid reference 'service: nowhere' (no such entry in 'services')",
    );
}

/// Kong reports a duplicate name as if the entity were at the top level. The index is that among its siblings.
#[test]
fn a_name_that_is_taken_has_the_line_of_an_entity_of_this_name() {
    let nested = |route: &str| {
        format!(
            "_format_version: '3.0'\nroutes:\n- {{name: a, paths: [/]}}\n- {{name: b, paths: [/]}}\n\
             services:\n- name: s\n  host: h\n  routes:\n  - {{name: {route}, paths: [/]}}\n"
        )
    };
    for route in ["a", "b"] {
        check(
            &nested(route),
            &format!(
                "in 'routes':\n  - in entry 1 of 'routes' (line {}): uniqueness violation: 'routes' entity with name set to '{route}' already declared",
                if route == "a" { 3 } else { 9 }
            ),
        );
    }
}

#[test]
fn an_entity_that_an_alias_stands_for_has_no_wrong_line() {
    check(
        "_format_version: '3.0'\n_ignore:\n- &list\n  - {name: a}\nservices: *list\n",
        "in 'services':\n  - in entry 1 of 'services':\n    in 'host': required field missing",
    );
}

#[test]
fn unknown_fields_are_listed_with_the_name_that_was_probably_meant() {
    check(
        "\
_format_version: '3.0'
servcies: []
whatever: 1
services:
- name: a
  ulr: http://a
  whatever: 1
  ruotes: []
routes:
- paths: [/]
  expresion: x
plugins:
- name: cors
  config: {orgins: ['*'], whatever: 1}
upstreams:
- name: u.test
  healthchecks:
    active: {healthy: {intervall: 1}}
",
        "\
in 'plugins':
  - in entry 1 of 'plugins' (line 13):
    in 'config':
      in 'orgins': unknown field; did you mean `origins`?
      in 'whatever': unknown field
in 'routes':
  - in entry 1 of 'routes' (line 10):
    in 'expresion': unknown field
in 'servcies': unknown field; did you mean `services`?
in 'services':
  - in entry 1 of 'services' (line 5):
    in 'host': required field missing
    in 'ruotes': unknown field; did you mean `routes`?
    in 'ulr': unknown field; did you mean `url`?
    in 'whatever': unknown field
in 'upstreams':
  - in entry 1 of 'upstreams' (line 16):
    in 'healthchecks':
      in 'active':
        in 'healthy':
          in 'intervall': unknown field; did you mean `interval`?
in 'whatever': unknown field",
    );
}

/// The responses of the Admin API must equal Kong's.
#[test]
fn answers_have_neither_lines_nor_names_that_were_meant() {
    let text = "_format_version: '3.0'\nservices: [{name: a, ulr: x}]\n";
    for flatten_errors in [false, true] {
        let options = Options {
            flatten_errors,
            ..options(1)
        };
        let source = Source::Text(text.as_bytes(), Format::Auto);
        let error = Loader::new().load(source, &options, &Nothing, 0);
        let error = format!("{:?}", error.expect_err("refused"));
        assert!(error.contains("unknown field"), "{error}");
        assert!(!error.contains("line"), "{error}");
        assert!(!error.contains("did you mean"), "{error}");
    }
}

#[test]
fn the_warning_of_a_repeated_name_counts_the_entities_that_are_dropped() {
    let text = "\
_format_version: '3.0'
services:
- name: a
  host: h
  routes:
  - {name: r, paths: [/a]}
  - {name: s, paths: [/b]}
consumers: []
services:
- name: b
  host: h
services: []
consumers: []
";
    let expected = [
        "line 9: `services` was given already in line 2; the later value is used, and the 3 entities of the earlier one are dropped",
        "line 12: `services` was given already in line 9; the later value is used, and the entity of the earlier one is dropped",
        "line 13: `consumers` was given already in line 8; the later value is used",
    ];
    assert_eq!(warnings(text, Format::Yaml), expected);
    let json = r#"{"_format_version": "3.0", "consumers": [{"username": "a"}, {"username": "b"}],
        "consumers": []}"#;
    let expected = "line 2: `consumers` was given already in line 1; the later value is used, and the 2 entities of the earlier one are dropped";
    assert_eq!(warnings(json, Format::Json), [expected]);
}

#[test]
fn a_name_given_twice_is_loaded_with_a_warning() {
    let text = "\
_format_version: '3.0'
services:
- name: a
  host: first
  routes:
  - name: r
    paths: [/a]
    paths: [/b]
  host: h
  \"host\": last
_format_version: '3.0'
";
    let expected = [
        "line 8: `paths` was given already in line 7; the later value is used",
        "line 9: `host` was given already in line 4; the later value is used",
        "line 10: `host` was given already in line 9; the later value is used",
        "line 11: `_format_version` was given already in line 1; the later value is used",
    ];
    assert_eq!(warnings(text, Format::Yaml), expected);
    let mut running = Running::default();
    let document = running
        .merge_text(text.as_bytes(), Format::Yaml, 1)
        .expect("accepted");
    assert_eq!(document.warnings, expected);
    let services = running.all(model::EntityKind::Services);
    assert_eq!(services[0].str("host"), Some("last"));
}

#[test]
fn json_is_loaded_with_the_same_warning_each_time() {
    let long = "x".repeat(5000);
    for text in [
        "{\"_format_version\": \"3.0\", \"services\": [\n{\"host\": \"a\",\n\"name\": \"s\", \"host\": \"b\"}]}".to_owned(),
        // The outline splits elements with a long text, so the next two documents take another path.
        format!(
            "{{\"_format_version\": \"3.0\", \"services\": [\n{{\"name\": \"s\", \"host\": \"h\", \"routes\": [{{\
             \"paths\": [\"/{long}\"],\n\"name\": \"r\", \"paths\": [\"/\"]}}]}}]}}"
        ),
        format!(
            "{{\"_format_version\": \"3.0\", \"services\": [\n{{\"name\": \"s\", \"host\": \"h\", \"tags\": [\"a\"],\n\
             \"path\": \"/{long}\",\"tags\": [], \"routes\": [{{\"paths\": [\"/\"]}}]}}]}}"
        ),
        "{\"_format_version\": \"3.0\",\n\"_comment\": \"\",\n \"services\": [], \"_comment\": \"\"}".to_owned(),
    ] {
        let mut running = Running::default();
        let mut loader = Loader::new();
        for revision in 0..2 {
            let source = Source::JsonBody(text.as_bytes());
            let document = loader
                .load(source, &options(1), &running, revision)
                .expect("accepted");
            let [warning] = document.warnings.as_slice() else {
                panic!("{:?}", document.warnings);
            };
            assert!(warning.starts_with("line 3: `"), "{warning}");
            assert!(warning.contains("given already in line 2;"), "{warning}");
            running.commit(&document);
            loader.committed(revision + 1);
        }
    }
}

#[test]
fn what_is_meant_to_be_replaced_is_no_repetition() {
    let text = "\
_format_version: '3.0'
_ignore: [&base {host: h, port: 1}, &other {port: 2}, [a, a]]
services:
- {<<: *base, <<: *other, name: a, port: 3}
- {port: 3, <<: *base, name: b}
- {<<: {host: x}, host: y, name: c}
";
    assert!(warnings(text, Format::Yaml).is_empty());
    let twice = text.replace("port: 3", "port: 3, port: 4");
    assert_eq!(
        warnings(&twice, Format::Yaml),
        [4, 5].map(|line| format!(
            "line {line}: `port` was given already in line {line}; the later value is used"
        ))
    );
    let later = format!("{text}---\na: 1\na: 2\n");
    assert!(warnings(&later, Format::Yaml).is_empty());
}

#[test]
fn names_given_twice_are_listed_with_the_errors() {
    check(
        "\
_format_version: '3.0'
plugins:
- name: cors
  config: {origins: ['*']}
  config: {allow: [a]}
",
        "\
in 'plugins':
  - in entry 1 of 'plugins' (line 3):
    in 'config':
      in 'allow': unknown field
warning: line 5: `config` was given already in line 4; the later value is used",
    );
}

#[test]
fn many_repetitions_are_told_with_few_words() {
    let repeated = "  \"a\\e\": 1\n".repeat(61);
    let text = format!("_format_version: '3.0'\n_ignore:\n-\n{repeated}");
    let warnings = warnings(&text, Format::Yaml);
    assert_eq!(warnings.len(), 51);
    assert_eq!(warnings[50], "and 10 more like these");
    assert!(!warnings[0].contains(char::is_control), "{warnings:?}");
}
