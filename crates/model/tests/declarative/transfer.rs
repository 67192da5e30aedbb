//! An export represents the whole configuration. Loading it into an empty configuration restores the original. Loading
//! it into the original changes nothing. Equal configurations have equal exports.

use crate::numbers::Numbers;
use crate::running::Running;
use model::EntityKind;
use model::declarative::{ExportFormat, Format};
use serde_json::{Map, Value as Json, json};

/// Texts that a careless parser or writer of YAML or JSON handles wrongly.
const TEXTS: [&str; 24] = [
    "plain",
    "yes",
    "null",
    "~",
    "1",
    "010",
    "1.50",
    "1:30",
    "2020-01-01",
    "a: b",
    "a #b",
    "- a",
    "'",
    "\"",
    "\\",
    "{a}",
    "é",
    "😀",
    "line\nline",
    "line\nline\n",
    " lead",
    "trail ",
    "\t",
    "\u{85}\u{2028}",
];

fn text(numbers: &mut Numbers) -> &'static str {
    TEXTS[numbers.below(TEXTS.len())]
}

fn pem(name: &str) -> String {
    std::fs::read_to_string(format!("tests/data/tls/{name}")).expect("a file of the tests")
}

fn tags(numbers: &mut Numbers) -> Json {
    let tags = ["yes", "1", "team-a", "a b", "é", "~", "key: value"];
    let count = numbers.below(3);
    let tags: Vec<_> = (0..count).map(|at| tags[(at + count) % 7]).collect();
    match count {
        0 => Json::Null,
        _ => json!(tags),
    }
}

/// Returns a plugin. The plugins cover each type of setting: numbers with and without a fraction, maps, lists of
/// records, texts of several lines.
fn plugin(numbers: &mut Numbers, for_consumer: bool) -> Json {
    let plugins = [
        json!({"name": "request-termination", "config": {"status_code": 410, "message": text(numbers)}}),
        json!({"name": "rate-limiting", "config": {"minute": 5, "policy": "local"}}),
        json!({"name": "zipkin", "config": {"http_endpoint": "http://z.test/", "sample_ratio": 1.0}}),
        json!({"name": "opentelemetry", "config": {"endpoint": "http://o.test/", "sampling_rate": 0.25,
            "headers": {"x-a": "~", "x-b": "1"}}}),
        json!({"name": "http-log", "config": {"http_endpoint": "http://l.test/",
            "custom_fields_by_lua": {"long".repeat(300): "return 1\n", "of\nlines": "return 2"}}}),
        json!({"name": "statsd"}),
        // Consumers do not get the plugins below.
        json!({"name": "post-function", "config": {"access": ["-- first\nreturn 1\n", "return"]}}),
        json!({"name": "key-auth", "config": {"key_names": ["k", "yes"]}}),
        json!({"name": "acl", "config": {"allow": ["no", "10"]}}),
    ];
    let plugins = &plugins[..plugins.len() - if for_consumer { 3 } else { 0 }];
    let mut plugin = numbers.pick(plugins).clone();
    plugin["tags"] = tags(numbers);
    plugin["enabled"] = Json::from(!numbers.one_in(4));
    plugin
}

fn plugins(numbers: &mut Numbers, most: usize) -> Json {
    some_plugins(numbers, most, false)
}

fn some_plugins(numbers: &mut Numbers, most: usize, for_consumer: bool) -> Json {
    let mut plugins: Vec<Json> = Vec::new();
    for _ in 0..numbers.below(most + 1) {
        let next = plugin(numbers, for_consumer);
        if plugins.iter().all(|plugin| plugin["name"] != next["name"]) {
            plugins.push(next);
        }
    }
    Json::from(plugins)
}

fn route(numbers: &mut Numbers, name: String) -> Json {
    let mut route = json!({"paths": [format!("/{name}"), "~/\\d+$"], "plugins": plugins(numbers, 2), "tags": tags(numbers)});
    if !numbers.one_in(4) {
        route["name"] = name.into();
    }
    if numbers.one_in(2) {
        route["headers"] = json!({"x-a": ["1", "no"], "x-b": ["~*a: b"]});
    }
    route
}

fn service(numbers: &mut Numbers, name: String) -> Json {
    let routes = numbers.below(4);
    let routes: Vec<_> = (0..routes)
        .map(|at| route(numbers, format!("{name}-{at}")))
        .collect();
    let mut service = json!({"host": format!("{name}.test"), "retries": numbers.below(9), "tags": tags(numbers),
        "routes": routes, "plugins": plugins(numbers, 2)});
    if !numbers.one_in(4) {
        service["name"] = name.into();
    }
    service
}

fn consumer(numbers: &mut Numbers, name: String) -> Json {
    let odd = text(numbers);
    let mut consumer =
        json!({"username": format!("{odd}{name}"), "plugins": some_plugins(numbers, 1, true)});
    let credentials = [
        (
            "keyauth_credentials",
            json!([{"key": format!("{name}{odd}")}, {"ttl": 4_000_000_000u32}]),
        ),
        (
            "basicauth_credentials",
            json!([{"username": name, "password": odd}]),
        ),
        ("hmacauth_credentials", json!([{"username": name}])),
        ("jwt_secrets", json!([{"key": name, "algorithm": "HS256"}])),
        (
            "acls",
            json!([{"group": "yes"}, {"group": format!("{odd}{name}")}]),
        ),
        (
            "oauth2_credentials",
            json!([{"name": "app", "redirect_uris": ["http://a.test/"], "oauth2_tokens": [{"expires_in": 60}]}]),
        ),
    ];
    for (kind, credential) in credentials {
        if numbers.one_in(3) {
            consumer[kind] = credential;
        }
    }
    consumer
}

fn upstream(numbers: &mut Numbers, name: String) -> Json {
    let targets: Vec<_> = (0..numbers.below(4))
        .map(|at| json!({"target": format!("10.0.0.{at}:80"), "weight": at * 50}))
        .collect();
    json!({"name": name, "targets": targets, "tags": tags(numbers),
        "healthchecks": {"active": {"timeout": 0.5, "concurrency": 3}, "threshold": numbers.below(99)}})
}

fn configuration(numbers: &mut Numbers) -> Json {
    let mut document = Map::new();
    document.insert("_format_version".into(), "3.0".into());
    let mut add = |kind: EntityKind, make: &mut dyn FnMut(&mut Numbers, String) -> Json| {
        let entities: Vec<_> = (0..numbers.below(5))
            .map(|at| make(numbers, format!("{}-{at}", kind.name())))
            .collect();
        document.insert(kind.name().into(), entities.into());
    };
    add(EntityKind::Services, &mut service);
    add(EntityKind::Routes, &mut route);
    add(EntityKind::Consumers, &mut consumer);
    add(EntityKind::Upstreams, &mut upstream);
    add(EntityKind::Vaults, &mut |_, name| {
        let prefix = name.replace("vaults", "env");
        json!({"name": "env", "prefix": prefix, "config": {"prefix": "NO"}})
    });
    add(EntityKind::KeySets, &mut |_, name| {
        json!({"name": name, "keys": [{"name": format!("k-{name}"), "kid": name, "pem": {"public_key": null,
            "private_key": pem("rsa.key")}}]})
    });
    add(
        EntityKind::Parameters,
        &mut |numbers, name| json!({"key": name, "value": text(numbers)}),
    );
    add(
        plugins::kinds::ACME_STORAGE,
        &mut |numbers, name| json!({"key": name, "value": text(numbers)}),
    );
    if numbers.one_in(2) {
        let pair = json!({"cert": pem("rsa.crt"), "key": pem("rsa.key"), "snis": [{"name": "b.test"}, {"name": "a.test"}]});
        document.insert("certificates".into(), json!([pair]));
        document.insert("ca_certificates".into(), json!([{"cert": pem("ec.crt")}]));
    }
    document.insert("plugins".into(), plugins(numbers, 3));
    Json::from(document)
}

fn load_format(format: ExportFormat) -> Format {
    match format {
        ExportFormat::Yaml => Format::Yaml,
        ExportFormat::Json => Format::Json,
    }
}

#[test]
fn an_export_loaded_into_an_empty_configuration_restores_it() {
    let mut numbers = Numbers(0x1dea_11fe);
    for round in 0..60 {
        let mut origin = Running::default();
        let source = configuration(&mut numbers);
        let made = origin.merge(&source, 1_700_000_000);
        let made = made.unwrap_or_else(|error| panic!("round {round}: {error}\n{source}"));
        assert_eq!(made.counts.updated + made.counts.unchanged, 0);
        for format in [ExportFormat::Yaml, ExportFormat::Json] {
            let exported = origin.export(format);
            let mut copy = Running::default();
            copy.merge_text(exported.as_bytes(), load_format(format), 1_800_000_000)
                .unwrap_or_else(|error| panic!("round {round}: {error}\n{exported}"));
            assert_eq!(copy.export(format), exported, "round {round}");
            let of_workspaces = |kind: EntityKind| kind == EntityKind::Workspaces;
            for (key, entity) in &origin.entities {
                let same = copy.entities.get(key) == Some(entity);
                assert!(same || of_workspaces(key.0), "round {round}: {key:?}");
            }
            assert_eq!(copy.entities.len(), origin.entities.len());
        }
    }
}

#[test]
fn an_export_loaded_into_its_configuration_changes_nothing() {
    let mut numbers = Numbers(0xca11_ab1e);
    for round in 0..60 {
        let mut running = Running::default();
        running
            .merge(&configuration(&mut numbers), 1_700_000_000)
            .expect("accepted");
        for format in [ExportFormat::Yaml, ExportFormat::Json] {
            let exported = running.export(format);
            let again = running
                .merge_text(exported.as_bytes(), load_format(format), 1_800_000_000)
                .expect("accepted");
            assert_eq!(again.puts, [], "round {round}: {exported}");
            assert_eq!(again.counts.unchanged, running.entities.len() - 1);
        }
    }
}

#[test]
fn the_order_of_creation_does_not_show_in_an_export() {
    let mut numbers = Numbers(0x0dd_ba11);
    for _ in 0..20 {
        let mut origin = Running::default();
        origin
            .merge(&configuration(&mut numbers), 1_700_000_000)
            .expect("accepted");
        let exported = origin.export(ExportFormat::Json);
        let mut turned: Json = serde_json::from_str(&exported).expect("JSON");
        for collection in turned.as_object_mut().expect("an object").values_mut() {
            if let Json::Array(entities) = collection {
                entities.reverse();
            }
        }
        let mut copy = Running::default();
        copy.merge(&turned, 1_800_000_000).expect("accepted");
        assert_eq!(copy.export(ExportFormat::Json), exported);
    }
}

#[test]
fn entities_are_in_the_order_of_their_names() {
    let mut running = Running::default();
    running
        .merge(
            &json!({"_format_version": "3.0",
                "services": [{"name": "b", "host": "h"}, {"host": "nameless"}, {"name": "a", "host": "h"}],
                "plugins": [{"name": "statsd", "service": "b"}, {"name": "statsd"}, {"name": "statsd", "service": "a"}, {"name": "acl", "config": {"allow": ["x"]}}],
                "consumers": [{"username": "z", "keyauth_credentials": [{"key": "1"}]}, {"username": "y", "keyauth_credentials": [{"key": "3"}, {"key": "2"}]}]}),
            1_700_000_000,
        )
        .expect("accepted");
    let exported: Json = serde_json::from_str(&running.export(ExportFormat::Json)).expect("JSON");
    let kinds: Vec<&String> = exported.as_object().expect("an object").keys().collect();
    assert_eq!(
        kinds.len(),
        6,
        "two fields of the document and four collections: {kinds:?}"
    );
    let texts = |kind: &str, field: &str| -> Vec<String> {
        let entities = exported[kind].as_array().expect("a collection").iter();
        let texts = entities.map(|entity| entity[field].as_str().unwrap_or("-").to_owned());
        texts.collect()
    };
    assert_eq!(texts("services", "name"), ["a", "b", "-"]);
    assert_eq!(texts("keyauth_credentials", "key"), ["2", "3", "1"]);
    assert_eq!(
        texts("plugins", "name"),
        ["acl", "statsd", "statsd", "statsd"]
    );
    let ids = texts("services", "id");
    let services = texts("plugins", "service");
    assert_eq!(services, ["-", &ids[0], &ids[1], "-"]);
}

#[test]
fn certificates_are_readable_blocks() {
    let mut running = Running::default();
    let pair = json!({"cert": pem("rsa.crt"), "key": pem("rsa.key")});
    let document = json!({"_format_version": "3.0", "certificates": [pair]});
    running.merge(&document, 1_700_000_000).expect("accepted");
    let exported = running.export(ExportFormat::Yaml);
    assert!(
        exported.contains("\n  cert: |\n    -----BEGIN CERTIFICATE-----\n"),
        "{exported}"
    );
}
