//! Decisions recorded from Kong Gateway 3.9.1, for the HTTP router.

use super::fixtures::{Sample, numbered, route};
use crate::host::{self, Host};
use crate::{Calculation, Flavor, Options, Router, Scheme, Scratch};
use compact_str::CompactString;
use expr::Group;
use model::entities::{PathHandling, Protocol, Route, RouteId};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use uuid::Uuid;

const ROUTER: &str = include_str!("../../tests/data/router-vectors.json");
const WIRE: &str = include_str!("../../tests/data/wire-vectors.json");

#[test]
fn traditional_decides_as_kong() {
    check(Flavor::Traditional, Calculation::Original, 339);
}

#[test]
fn traditional_compatible_decides_as_kong() {
    check(Flavor::TraditionalCompatible, Calculation::Original, 235);
}

#[test]
fn traditional_compatible_with_strict_decides_as_documented() {
    check(Flavor::TraditionalCompatible, Calculation::Strict, 235);
}

#[test]
fn expressions_decide_as_kong() {
    check(Flavor::Expressions, Calculation::Original, 32);
}

#[test]
fn hosts_are_split_as_kong_does() {
    let vectors: Value = serde_json::from_str(WIRE).unwrap();
    for case in list(&vectors["host_and_port"]["cases"]) {
        let input = text(&case["input"]);
        let host = Host::parse(input.as_bytes());
        let name = String::from_utf8_lossy(host.name);
        let port = host.port.unwrap_or(80);
        let with_port = match host.wildcard_name() {
            Some(_) => format!("{name}:{port}"),
            None => format!("[{name}]:{port}"),
        };
        let expected = &case["traditional"];
        assert_eq!(name, text(&expected["host"]), "{input}");
        assert_eq!(with_port, text(&expected["host_with_port"]), "{input}");
        assert_eq!(Some(host.port.is_some()), expected["had_port"].as_bool());

        let (name, port) = host::split(input.as_bytes());
        let expected = &case["atc"];
        assert_eq!(name, text(&expected["host"]).as_bytes(), "{input}");
        assert_eq!(port, expected["port"].as_i64(), "{input}");
    }
}

/// Checks every vector of a flavor with a router of its group's routes.
fn check(flavor: Flavor, calculation: Calculation, count: usize) {
    let options = Options {
        flavor,
        calculation,
        ..Options::default()
    };
    let (group_name, expect_name) = match (flavor, calculation) {
        (Flavor::Traditional, _) => ("traditional", "traditional"),
        (Flavor::Expressions, _) => ("expressions", "expressions"),
        (_, Calculation::Original) => ("traditional_compatible", "traditional_compatible"),
        (_, Calculation::Strict) => ("traditional_compatible", "traditional_compatible_64bit"),
    };
    let vectors: Value = serde_json::from_str(ROUTER).unwrap();
    let mut problems = Vec::new();
    let mut seen = 0;
    for group in list(&vectors["groups"]) {
        let in_flavor = list(&group["flavors"]).iter().any(|own| own == group_name);
        if group["subsystem"] != "http" || !in_flavor {
            continue;
        }
        let settings = list(&group["routes"]);
        let routes: Vec<_> = settings.iter().map(read_route).collect();
        let (router, errors) = Router::build(numbered(&routes), options, None);
        assert!(errors.is_empty(), "{errors:?}");
        for vector in list(&group["vectors"]) {
            seen += 1;
            let expected = match &vector["expect_by_flavor"] {
                Value::Object(by_flavor) => &by_flavor[expect_name],
                _ => &vector["expect"],
            };
            let decided = decide(&router, settings, &vector["request"]);
            if *expected != decided {
                problems.push(format!("{}: {decided}, not {expected}", vector["id"]));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
    assert_eq!(seen, count);
}

/// Returns the router's decision in the format of the vectors.
fn decide(router: &Router, settings: &[Value], request: &Value) -> Value {
    let sample = read_request(request);
    let mut scratch = Scratch::default();
    let request = sample.request();
    let found = router.matches(&request, &mut scratch);
    assert_eq!(
        found,
        router.matches_without_index(&request, &mut Scratch::default())
    );
    let Some(found) = found else {
        return Map::from_iter([("route".to_owned(), Value::Null)]).into();
    };
    let chosen = &settings[found.route.0 as usize];
    let mut decided = Map::from_iter([("route".to_owned(), chosen["name"].clone())]);
    let path = scratch.path(&request).to_vec();
    let mut uri = Vec::new();
    let service_path = chosen["service"]["path"].as_str();
    router.write_upstream_uri(&found, service_path, &path, request.query, &mut uri);
    decided.insert("upstream_uri".to_owned(), lossy(&uri));
    if let Some(prefix) = router.matched_prefix(&found, &path) {
        decided.insert("matched_prefix".to_owned(), lossy(prefix));
    }
    let mut captures = Map::new();
    router.captures(&found, &request, &mut scratch, &mut |group, value| {
        let name = match group {
            Group::Number(number) => number.to_string(),
            Group::Name(name) => name.to_owned(),
        };
        captures.insert(name, lossy(value));
    });
    if !captures.is_empty() {
        decided.insert("captures".to_owned(), captures.into());
    }
    decided.into()
}

fn read_request(request: &Value) -> Sample {
    let uri = text(&request["uri"]);
    let (path, query) = match uri.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (uri, None),
    };
    let mut headers = Vec::new();
    if let Value::Object(sent) = &request["headers"] {
        for (name, values) in sent {
            let values = list(values).iter();
            headers.extend(values.map(|value| (name.clone(), text(value).to_owned())));
        }
    }
    Sample {
        method: text(&request["method"]).to_owned(),
        path: path.to_owned(),
        host: request["host"].as_str().map(str::to_owned),
        scheme: match request["scheme"].as_str() {
            Some("https") => Scheme::Https,
            _ => Scheme::Http,
        },
        sni: request["sni"].as_str().map(str::to_owned),
        headers,
        query,
        source: None,
        destination: None,
    }
}

fn read_route(settings: &Value) -> Route {
    let headers: BTreeMap<String, Vec<CompactString>> = match &settings["headers"] {
        Value::Object(headers) => headers
            .iter()
            .map(|(name, values)| (name.clone(), texts(values)))
            .collect(),
        _ => BTreeMap::new(),
    };
    Route {
        id: RouteId(Uuid::try_parse(text(&settings["id"])).unwrap()),
        created_at: settings["created_at"].as_i64().unwrap(),
        protocols: list(&settings["protocols"])
            .iter()
            .map(|protocol| match text(protocol) {
                "http" => Protocol::Http,
                "https" => Protocol::Https,
                "grpc" => Protocol::Grpc,
                "grpcs" => Protocol::Grpcs,
                other => panic!("expected a protocol of this subsystem, not {other}"),
            })
            .collect(),
        methods: texts(&settings["methods"]),
        hosts: texts(&settings["hosts"]),
        paths: texts(&settings["paths"]),
        headers: headers
            .into_iter()
            .map(|(name, values)| (name.into(), values))
            .collect(),
        snis: texts(&settings["snis"]),
        regex_priority: settings["regex_priority"].as_i64(),
        expression: settings["expression"].as_str().map(Into::into),
        priority: settings["priority"].as_u64(),
        strip_path: settings["strip_path"].as_bool().unwrap(),
        path_handling: match settings["path_handling"].as_str() {
            Some("v1") => Some(PathHandling::V1),
            _ => Some(PathHandling::V0),
        },
        ..route(0)
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn texts(value: &Value) -> Vec<CompactString> {
    list(value).iter().map(|value| text(value).into()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn lossy(bytes: &[u8]) -> Value {
    String::from_utf8_lossy(bytes).into()
}
