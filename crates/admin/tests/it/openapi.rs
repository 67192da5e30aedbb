//! The OpenAPI document describes all endpoints, and all responses match it.

use crate::fake::{Api, Fake};
use crate::vectors::{Exchange, replay_with_database, replay_without_database};
use admin::control::{AddressHealth, Database, TargetHealth, UpstreamHealth, Weight};
use boon::{Compiler, SchemaIndex, Schemas};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};

const LOCATION: &str = "http://gateway.test/openapi.json";

async fn document() -> Value {
    let answer = Api::lmdb().get("/openapi.json").await;
    assert_eq!(answer.status, 200);
    answer.json()
}

/// The document, and its compiled schemas.
struct Described {
    document: Value,
    compiler: Compiler,
    schemas: Schemas,
}

impl Described {
    async fn new() -> Self {
        let document = document().await;
        let mut compiler = Compiler::new();
        compiler.add_resource(LOCATION, document.clone()).unwrap();
        Self {
            document,
            compiler,
            schemas: Schemas::new(),
        }
    }

    fn schema(&mut self, pointer: &str) -> SchemaIndex {
        let escaped = pointer.replace('{', "%7B").replace('}', "%7D");
        self.compiler
            .compile(&format!("{LOCATION}#{escaped}"), &mut self.schemas)
            .unwrap()
    }

    fn check(&mut self, pointer: &str, value: &Value) -> Result<(), String> {
        let schema = self.schema(pointer);
        self.schemas
            .validate(value, schema)
            .map_err(|error| format!("{pointer}: {value}\n{error:#}"))
    }

    /// Returns the JSON pointer to the description of responses with this status. Returns `None` if the document does
    /// not describe the path or method.
    fn response(&self, method: &str, path: &str, status: u16) -> Option<Result<String, String>> {
        let path = path.split('?').next().unwrap_or_default();
        let path = path.trim_end_matches('/');
        let paths = self.document["paths"].as_object().unwrap();
        let matching = paths.keys().filter(|template| matches(template, path));
        // If several templates match, a literal segment wins over a parameter, as in the router.
        let template = matching.min_by_key(|template| template.matches('{').count())?;
        let operation = &paths[template].get(method.to_ascii_lowercase())?;
        let response = &operation["responses"][status.to_string()];
        if let Some(reference) = response["$ref"].as_str() {
            return Some(Ok(reference.trim_start_matches('#').to_owned()));
        }
        if response.is_null() {
            return Some(Err(format!("{method} {path}: {status} is not described")));
        }
        let (template, method) = (template.replace('/', "~1"), method.to_ascii_lowercase());
        Some(Ok(format!("/paths/{template}/{method}/responses/{status}")))
    }

    fn check_answer(&mut self, exchange: &Exchange) -> Option<Result<(), String>> {
        let Exchange {
            method,
            path,
            answer,
        } = exchange;
        let response = match self.response(method, path, answer.status)? {
            Ok(response) => response,
            Err(problem) => return Some(Err(problem)),
        };
        let content = &self.document.pointer(&response).unwrap()["content"];
        let kind = answer
            .header("content-type")
            .split(';')
            .next()
            .unwrap_or_default();
        if content.is_null() {
            let fine = answer.text.is_empty();
            return Some(fine.then_some(()).ok_or(format!("{response}: a body")));
        }
        if content[kind].is_null() {
            return Some(Err(format!("{response}: {kind:?} is not described")));
        }
        let kind = kind.replace('/', "~1");
        let body = answer.json();
        Some(self.check(&format!("{response}/content/{kind}/schema"), &body))
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path) = (template.trim_end_matches('/'), path);
    let segments = |text: &'_ str| text.split('/').map(str::to_owned).collect::<Vec<_>>();
    let (wanted, given) = (segments(template), segments(path));
    wanted.len() == given.len()
        && wanted
            .iter()
            .zip(&given)
            .all(|(wanted, given)| wanted == given || wanted.starts_with('{') && !given.is_empty())
}

/// Collects every `$ref` in a value.
fn references<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object {
                match value {
                    Value::String(target) if key == "$ref" => found.push(target),
                    value => references(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_reference_leads_somewhere() {
    let document = document().await;
    let mut found = Vec::new();
    references(&document, &mut found);
    assert!(found.len() > 1000);
    for target in found {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{target}");
    }
}

#[tokio::test]
async fn every_error_schema_belongs_to_a_response() {
    let document = document().await;
    let mut found = Vec::new();
    references(&document, &mut found);
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let errors: Vec<&String> = schemas
        .keys()
        .filter(|name| name.starts_with("Error"))
        .collect();
    assert!(errors.len() > 10, "{errors:?}");
    for name in errors {
        let reference = format!("#/components/schemas/{name}");
        assert!(found.contains(&&*reference), "{name}");
    }
}

#[tokio::test]
async fn every_component_schema_compiles() {
    let mut described = Described::new().await;
    let schemas = described.document["components"]["schemas"]
        .as_object()
        .unwrap();
    let names: Vec<String> = schemas.keys().cloned().collect();
    for name in names {
        described.schema(&format!("/components/schemas/{name}"));
    }
}

/// Recorded inputs with the results of their validation.
fn recorded() -> Vec<Value> {
    let text = include_str!("../../../model/tests/data/schema-vectors.json");
    let mut recorded: Value = serde_json::from_str(text).unwrap();
    serde_json::from_value(recorded["cases"].take()).unwrap()
}

/// Maps entity types to type names (`keyauth_credentials` to `KeyauthCredential`), taken from the operations that
/// create entities.
fn type_names(document: &Value) -> HashMap<String, String> {
    let operations = document["paths"].as_object().unwrap().values();
    let created = operations.filter_map(|item| item["post"].as_object());
    created
        .filter_map(|post| {
            let kind = post["tags"][0].as_str()?;
            let name = post["operationId"].as_str()?.strip_prefix("create")?;
            (!name.contains("Of")).then(|| (kind.to_owned(), name.to_owned()))
        })
        .collect()
}

#[tokio::test]
async fn accepted_inputs_match_their_schemas() {
    let mut described = Described::new().await;
    let names = type_names(&described.document);
    let (mut accepted, mut refused, mut failures) = (0, 0, Vec::new());
    for case in recorded() {
        let Some(name) = names.get(case["entity"].as_str().unwrap()) else {
            continue;
        };
        let pointer = format!("/components/schemas/{name}Input");
        let outcome = described.check(&pointer, &case["input"]);
        if case["result"]["status"] == "accepted" {
            accepted += 1;
            failures.extend(outcome.err());
        } else {
            refused += usize::from(outcome.is_err());
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    // The schemas need not refuse every input that Kong refuses.
    assert!(accepted > 60 && refused > 60, "{accepted}, {refused}");
}

/// Checks responses of paths that the document must describe.
pub(crate) async fn assert_described(exchanges: &[Exchange]) {
    let mut described = Described::new().await;
    for exchange in exchanges {
        let Exchange { method, path, .. } = exchange;
        match described.check_answer(exchange) {
            Some(outcome) => outcome.unwrap(),
            None => panic!("{method} {path} is not described"),
        }
    }
}

#[tokio::test]
async fn answers_are_as_described() {
    let mut described = Described::new().await;
    let mut exchanges = replay_without_database(&Api::off()).await.exchanges;
    exchanges.extend(replay_with_database(&Api::lmdb()).await.exchanges);
    let (mut checked, mut failures) = (0, Vec::new());
    for exchange in &exchanges {
        if let Some(outcome) = described.check_answer(exchange) {
            checked += 1;
            failures.extend(outcome.err());
        }
    }
    assert!(checked > 200, "{checked} of {}", exchanges.len());
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[tokio::test]
async fn every_path_without_parameters_answers_as_described() {
    let mut described = Described::new().await;
    let items = described.document["paths"].as_object().unwrap().iter();
    let plain = items.filter(|(path, item)| !path.contains('{') && !item["get"].is_null());
    let paths: Vec<String> = plain.map(|(path, _)| path.clone()).collect();
    assert!(paths.len() > 30);
    for api in [Api::off(), Api::lmdb()] {
        for path in &paths {
            let exchange = exchange(&api, "GET", path, &Value::Null).await;
            assert_eq!(described.check_answer(&exchange), Some(Ok(())), "{path}");
        }
    }
}

#[tokio::test]
async fn change_sets_are_answered_as_described() {
    let mut described = Described::new().await;
    let api = Api::lmdb();
    let create = json!({ "action": "create", "type": "consumers", "data": { "username": "a" } });
    let delete = json!({ "action": "delete", "type": "consumers", "key": "a" });
    let refused = json!({ "action": "create", "type": "services", "data": { "port": -1 } });
    for (body, status) in [
        (json!({ "changes": [create, delete] }), 200),
        (json!({ "changes": [refused, { "action": "none" }] }), 400),
        (json!({ "changes": 1 }), 400),
        (json!({ "changes": [create], "expected_revision": 5 }), 409),
    ] {
        let exchange = exchange(&api, "POST", "/changes", &body).await;
        assert_eq!(exchange.answer.status, status, "{}", exchange.answer.text);
        assert_eq!(described.check_answer(&exchange), Some(Ok(())));
    }
}

#[tokio::test]
async fn history_is_answered_as_described() {
    let mut described = Described::new().await;
    let api = Api::lmdb();
    for (method, name) in [("PUT", "a"), ("PATCH", "b")] {
        let consumer = json!({ "username": name });
        let written = api.json(method, "/consumers/a", &consumer).await;
        assert_eq!(written.status, 200, "{}", written.text);
    }
    api.send("DELETE", "/consumers/b", &[], "").await;
    for (method, path, status) in [
        ("GET", "/revisions?size=1", 200),
        ("GET", "/revisions?entity_type=consumers&entity_id=b", 200),
        ("GET", "/revisions?entity_type=consumers&entity_id=c", 404),
        ("GET", "/revisions/1", 200),
        ("GET", "/revisions/9", 404),
        ("GET", "/revisions/1/diff/2", 200),
        ("GET", "/revisions/3/diff/1?size=1", 200),
        ("GET", "/consumers/b/revisions", 200),
        ("GET", "/consumers/c/revisions", 404),
        ("POST", "/revisions/1/rollback", 200),
        ("GET", "/consumers/a/revisions", 200),
    ] {
        let body = if method == "POST" {
            json!({})
        } else {
            Value::Null
        };
        let exchange = exchange(&api, method, path, &body).await;
        assert_eq!(
            exchange.answer.status, status,
            "{path}: {}",
            exchange.answer.text
        );
        assert_eq!(described.check_answer(&exchange), Some(Ok(())), "{path}");
    }
}

#[tokio::test]
async fn conflicts_are_answered_as_described() {
    let mut described = Described::new().await;
    let exchange = exchange(&Api::lmdb(), "GET", "/router/conflicts", &Value::Null).await;
    assert_eq!(exchange.answer.status, 200);
    assert_eq!(described.check_answer(&exchange), Some(Ok(())));
    let answer = exchange.answer.json();
    assert_eq!(answer["ties"][0]["subsystem"], "http");
    assert_eq!(answer["ties"][1]["subsystem"], "stream");
    let stream = json!({
        "protocol": "tls",
        "sni": "a.test",
        "source": "127.0.0.1:40000",
        "destination": "127.0.0.1:9000",
    });
    assert_eq!(answer["ties"][1]["example"], stream);
}

async fn exchange(api: &Api, method: &str, path: &str, body: &Value) -> Exchange {
    let answer = match body {
        Value::Null => api.send(method, path, &[], "").await,
        body => api.json(method, path, body).await,
    };
    Exchange {
        method: method.to_owned(),
        path: path.to_owned(),
        answer,
    }
}

#[tokio::test]
async fn every_method_of_every_path_is_described_once() {
    let document = document().await;
    let mut ids = HashSet::new();
    let mut described = 0;
    for item in document["paths"].as_object().unwrap().values() {
        for operation in item.as_object().unwrap().values() {
            described += 1;
            assert!(
                ids.insert(operation["operationId"].as_str().unwrap()),
                "{operation}"
            );
        }
    }
    let api = Api::lmdb();
    let listed = api.get("/endpoints").await.json();
    let listed = listed["data"].as_array().unwrap().iter();
    let mut paths: HashSet<&str> = listed.map(|path| path.as_str().unwrap()).collect();
    // `/endpoints` lists only Kong's endpoints, so add those of Silverback from the document.
    paths.extend(
        document["paths"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str),
    );
    let mut served = 0;
    for path in paths {
        let answer = api.send("OPTIONS", path, &[], "").await;
        if answer.status == 404 {
            assert!(document["paths"][path].is_null(), "{path}");
            continue;
        }
        for method in answer.header("allow").split(", ") {
            if method == "OPTIONS" || method == "HEAD" {
                continue;
            }
            served += 1;
            let operation = &document["paths"][path][method.to_ascii_lowercase()];
            assert!(!operation.is_null(), "{method} {path}");
        }
    }
    assert_eq!(described, served);
}

#[tokio::test]
async fn writes_of_routes_say_that_they_can_warn() {
    let document = document().await;
    let warns = |method: &str, path: &str| {
        let parameters = document["paths"][path][method]["parameters"].as_array();
        let parameters = parameters.expect("a described operation");
        parameters.iter().any(|one| one["name"] == "warn")
    };
    for (method, path, expected) in [
        ("post", "/routes", true),
        ("put", "/routes/{routes}", true),
        ("patch", "/services/{services}/routes/{routes}", true),
        ("post", "/services/{services}/routes", true),
        ("put", "/plugins/{plugins}/route", true),
        ("post", "/changes", true),
        ("get", "/routes", false),
        ("delete", "/routes/{routes}", false),
        ("post", "/services", false),
        ("put", "/routes/{routes}/service", false),
    ] {
        assert_eq!(warns(method, path), expected, "{method} {path}");
    }
}

/// The health of an upstream with two targets. The first target has two addresses, and one of them is unhealthy. The
/// name of the second target has no address.
fn some_health(checked: bool) -> UpstreamHealth {
    let address = |ip: &str, available| AddressHealth {
        ip: ip.to_owned(),
        port: 80,
        weight: 50,
        available,
    };
    let target = |host: &str, dns: &str, addresses| TargetHealth {
        host: host.to_owned(),
        port: 80,
        dns: dns.to_owned(),
        node_weight: 50,
        weight: Weight {
            total: 100,
            available: 50,
        },
        addresses,
    };
    let addresses = vec![address("10.0.0.1", false), address("10.0.0.2", true)];
    UpstreamHealth {
        checked,
        healthy: true,
        weight: Weight {
            total: 100,
            available: 50,
        },
        targets: vec![
            target("a.test", "A", addresses),
            target("b.test", "dns server error: 3 name error", Vec::new()),
        ],
    }
}

#[tokio::test]
async fn health_is_answered_as_described() {
    let mut described = Described::new().await;
    for health in [None, Some(some_health(false)), Some(some_health(true))] {
        let fake = Fake::new(Database::Lmdb);
        let api = Api::new(match health.clone() {
            Some(health) => fake.with_health(health),
            None => fake,
        });
        let made = api
            .json("POST", "/upstreams", &json!({ "name": "up" }))
            .await;
        assert_eq!(made.status, 201);
        for target in ["a.test:80", "b.test:80", "c.test:80"] {
            let target = json!({ "target": target, "tags": ["t"] });
            let made = api.json("POST", "/upstreams/up/targets", &target).await;
            assert_eq!(made.status, 201, "{}", made.text);
        }
        for path in [
            "/upstreams/up/health",
            "/upstreams/up/health?size=1",
            "/upstreams/up/health?balancer_health=1",
        ] {
            let exchange = exchange(&api, "GET", path, &Value::Null).await;
            assert_eq!(exchange.answer.status, 200);
            assert_eq!(described.check_answer(&exchange), Some(Ok(())), "{path}");
        }
        let shown = api.get("/upstreams/up/health").await.json();
        let shown = shown["data"].as_array().unwrap().iter();
        let mut words: Vec<_> = shown.map(|one| one["health"].as_str().unwrap()).collect();
        // Targets that are created in the same millisecond are listed by their random ids.
        words.sort_unstable();
        let expected = match health {
            None => ["HEALTHCHECKS_OFF"; 3],
            Some(health) if health.checked => ["DNS_ERROR", "DNS_ERROR", "HEALTHY"],
            Some(_) => ["DNS_ERROR", "DNS_ERROR", "HEALTHCHECKS_OFF"],
        };
        assert_eq!(words, expected);
    }
}

#[tokio::test]
async fn the_health_of_a_target_has_kongs_shape() {
    let api = Api::new(Fake::new(Database::Lmdb).with_health(some_health(true)));
    let upstream = api
        .json("POST", "/upstreams", &json!({ "name": "up" }))
        .await;
    let target = json!({ "target": "a.test:80" });
    let made = api.json("POST", "/upstreams/up/targets", &target).await;
    let mut expected = made.json();
    let weight = json!({ "total": 100, "available": 50, "unavailable": 50 });
    let host = |addresses: Value| {
        json!({
            "host": "a.test", "port": 80, "dns": "A", "nodeWeight": 50, "weight": weight, "addresses": addresses,
        })
    };
    expected["health"] = "HEALTHY".into();
    expected["data"] = host(json!([
        { "ip": "10.0.0.1", "port": 80, "weight": 50, "health": "UNHEALTHY" },
        { "ip": "10.0.0.2", "port": 80, "weight": 50, "health": "HEALTHY" },
    ]));
    let shown = api.get("/upstreams/up/health").await.json();
    assert_eq!(shown["data"], json!([expected]));
    assert_eq!(shown["next"], Value::Null);
    let whole = api.get("/upstreams/up/health?balancer_health=1").await;
    let whole = &whole.json()["data"];
    assert_eq!(whole["id"], upstream.json()["id"]);
    assert_eq!(whole["balancer_health"], "HEALTHY");
    let hosts = &whole["details"]["hosts"];
    assert_eq!(
        hosts[0],
        host(json!([
            { "ip": "10.0.0.1", "port": 80, "weight": 50, "healthy": false },
            { "ip": "10.0.0.2", "port": 80, "weight": 50, "healthy": true },
        ]))
    );
}
