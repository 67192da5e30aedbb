//! Entities against what the reference makes of the same input: `data/schema-vectors.json`, `data/wire-vectors.json`.

use model::address::{Address, Host};
use model::schema::{Context, EntitySchema, RouterFlavor, registry};
use model::{Object, Value};
use serde_json::Value as Json;
use std::time::Duration;

const NOW: i64 = 1_790_000_000;

fn context(flavor: RouterFlavor) -> Context {
    Context {
        flavor,
        ..Context::at(Duration::from_millis(1_790_000_000_250))
    }
}

fn vectors(name: &str) -> Json {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn object(json: &Json) -> Object {
    match serde_json::from_value(json.clone()).unwrap() {
        Value::Object(object) => object,
        // What Lua's encoder makes of an empty table.
        Value::Array(values) if values.is_empty() => Object::new(),
        other => panic!("not an object: {other:?}"),
    }
}

fn shown(schema: &EntitySchema, entity: &Object) -> Json {
    let mut text = Vec::new();
    schema.write_json(entity, &mut text);
    serde_json::from_slice(&text).unwrap()
}

/// Equality with `<uuid>` and `<now>` for what is generated, and empty lists and maps taken for the same.
fn matches(wanted: &Json, found: &Json) -> bool {
    match (wanted, found) {
        (Json::String(mark), Json::String(id)) if mark == "<uuid>" => {
            uuid::Uuid::try_parse(id).is_ok()
        }
        (Json::String(mark), Json::Number(time)) if mark == "<now>" => {
            time.as_f64().unwrap().trunc() == NOW as f64
        }
        (Json::Object(wanted), Json::Object(found)) => {
            wanted.len() == found.len()
                && wanted.iter().all(|(name, wanted)| {
                    found.get(name).is_some_and(|found| matches(wanted, found))
                })
        }
        (Json::Array(wanted), Json::Array(found)) => {
            wanted.len() == found.len()
                && wanted
                    .iter()
                    .zip(found)
                    .all(|(wanted, found)| matches(wanted, found))
        }
        (Json::Object(wanted), Json::Array(found)) => wanted.is_empty() && found.is_empty(),
        (Json::Array(wanted), Json::Object(found)) => wanted.is_empty() && found.is_empty(),
        (Json::Number(wanted), Json::Number(found)) => wanted.as_f64() == found.as_f64(),
        _ => wanted == found,
    }
}

/// Of these texts only the beginning is the same everywhere: the rest is that of a library.
fn cut_foreign_texts(text: &str) -> String {
    let mut text = text.to_owned();
    for prefix in ["invalid regex:", "invalid certificate:", "invalid key:"] {
        let mut kept = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once(prefix) {
            kept.push_str(before);
            kept.push_str(prefix);
            rest = after.find([';', ')']).map_or("", |end| &after[end..]);
        }
        kept.push_str(rest);
        text = kept;
    }
    text
}

fn cut_error(error: &Json) -> Json {
    match error {
        Json::String(text) => cut_foreign_texts(text).into(),
        Json::Object(entries) => Json::Object(
            entries
                .iter()
                .map(|(name, value)| (name.clone(), cut_error(value)))
                .collect(),
        ),
        other => other.clone(),
    }
}

fn verdict(case: &Json, wanted: &Json, flavor: RouterFlavor) -> Result<(), String> {
    let schema = registry()
        .by_name(case["entity"].as_str().unwrap())
        .unwrap();
    let context = context(flavor);
    let result = schema.complete(object(&case["input"]), &context);
    let id = &case["id"];
    match (wanted["status"].as_str(), result) {
        (Some("accepted"), Ok(entity)) => {
            let found = shown(schema, &entity);
            let mut wanted = wanted["entity"].clone();
            if case["input"].get("key").is_none() && case["entity"] == "keyauth_credentials" {
                wanted["key"] = found["key"].clone();
                assert_eq!(found["key"].as_str().unwrap().len(), 32);
            }
            if matches(&wanted, &found) {
                return Ok(());
            }
            Err(format!("{id}\n  wanted {wanted}\n  found  {found}"))
        }
        (Some("rejected"), Err(error)) => {
            let (wanted, found) = (cut_error(&wanted["error"]), cut_error(&error.to_json()));
            if wanted == found {
                return Ok(());
            }
            Err(format!("{id}\n  wanted {wanted}\n  found  {found}"))
        }
        (_, result) => Err(format!("{id}\n  wanted {wanted}\n  found  {result:?}")),
    }
}

#[test]
fn every_vector_gives_the_reference_result() {
    let vectors = vectors("schema-vectors.json");
    let cases = vectors["cases"].as_array().unwrap();
    let mut failures = Vec::new();
    for case in cases {
        let compatible = RouterFlavor::TraditionalCompatible;
        failures.extend(verdict(case, &case["result"], compatible).err());
        let traditional = case.get("result_flavor_traditional");
        let wanted = traditional.unwrap_or(&case["result"]);
        failures.extend(verdict(case, wanted, RouterFlavor::Traditional).err());
    }
    assert_eq!(cases.len(), 206);
    assert!(
        failures.is_empty(),
        "{} failures:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[test]
fn addresses_are_told_apart_and_normalised() {
    for case in vectors("wire-vectors.json")["addresses"]["cases"]
        .as_array()
        .unwrap()
    {
        let input = case["input"].as_str().unwrap();
        match Address::parse(input) {
            Ok(address) => {
                let kind = match address.host {
                    Host::Name(_) => "name",
                    Host::Ipv4(_) => "ipv4",
                    Host::Ipv6(_) => "ipv6",
                };
                assert_eq!(case["type"], kind, "{input}");
                assert_eq!(case["host"], address.host.to_string(), "{input}");
                assert_eq!(case["as_target"], address.as_target(), "{input}");
                assert_eq!(
                    case["port"].as_u64(),
                    address.port.map(u64::from),
                    "{input}"
                );
            }
            Err(error) => {
                assert_eq!(case["valid"], false, "{input}");
                assert_eq!(case["error"], error.to_string(), "{input}");
            }
        }
    }
}
