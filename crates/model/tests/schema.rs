//! Compares entities with the reference's results for the same input (`data/schema-vectors.json`,
//! `data/wire-vectors.json`).

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use model::address::{Address, Host};
use model::schema::{Context, EntitySchema, Form, RouterFlavor};
use model::{EntityKind, Object, Value, codec};
use plugins::install as registry;
use serde_json::{Value as Json, json};
use std::time::Duration;

const NOW: i64 = 1_790_000_000;

fn context(flavor: RouterFlavor) -> Context {
    Context {
        flavor,
        ..Context::at(Duration::from_millis(1_790_000_000_250))
    }
}

fn vectors(name: &str) -> Json {
    let path = format!("tests/data/{name}");
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn object(json: &Json) -> Object {
    match serde_json::from_value(json.clone()).unwrap() {
        Value::Object(object) => object,
        // Lua's encoder writes an empty table as an array.
        Value::Array(values) if values.is_empty() => Object::new(),
        other => panic!("not an object: {other:?}"),
    }
}

fn shown(schema: &EntitySchema, entity: &Object) -> Json {
    let mut text = Vec::new();
    schema.write_json(entity, &mut text);
    serde_json::from_slice(&text).unwrap()
}

/// Compares values. `<uuid>` and `<now>` match generated values, and empty lists equal empty maps.
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

/// Cuts texts whose remainder comes from a library and therefore differs.
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

fn complete(entity: &str, input: &str) -> Result<Object, model::Error> {
    let schema = registry().by_name(entity).unwrap();
    let input: Object = serde_json::from_str(input).unwrap();
    schema.complete(input, &context(RouterFlavor::default()))
}

fn merge(entity: &str, existing: &Object, patch: &str) -> Result<Object, model::Error> {
    let schema = registry().by_name(entity).unwrap();
    let patch: Object = serde_json::from_str(patch).unwrap();
    schema.merge(existing, patch, &context(RouterFlavor::default()))
}

fn message(result: Result<Object, model::Error>) -> String {
    result.unwrap_err().message
}

fn field<'a>(entity: &'a Object, path: &str) -> &'a Value {
    static NULL: Value = Value::Null;
    let mut names = path.split('.');
    let first = names.next().unwrap();
    names.fold(entity.get(first).unwrap_or(&NULL), |value, name| {
        value
            .as_object()
            .and_then(|object| object.get(name))
            .unwrap_or(&NULL)
    })
}

#[test]
fn canonical_entity_has_no_nulls_and_is_stable() {
    let entity = complete("services", r#"{"url":"https://up.test/a","tags":["x"]}"#).unwrap();
    assert!(entity.iter().all(|(_, value)| !value.is_null()));
    assert!(!entity.contains("url"));
    let again = registry()
        .by_name("services")
        .unwrap()
        .complete(entity.clone(), &context(RouterFlavor::default()));
    assert_eq!(again.unwrap(), entity);
}

#[test]
fn patch_merges_records_and_replaces_lists() {
    let input =
        r#"{"name":"rate-limiting","config":{"minute":5,"redis":{"host":"r.test"}},"tags":["a"]}"#;
    let plugin = complete("plugins", input).unwrap();
    let patch = r#"{"config":{"minute":null,"hour":9,"redis":{"port":1}},"tags":["b"],"id":"x"}"#;
    let changed = merge("plugins", &plugin, patch).unwrap();
    assert_eq!(field(&changed, "config.minute"), &Value::Null);
    assert_eq!(field(&changed, "config.hour"), &Value::Int(9));
    assert_eq!(field(&changed, "config.redis.host"), &"r.test".into());
    assert_eq!(field(&changed, "config.redis.port"), &Value::Int(1));
    assert_eq!(field(&changed, "tags"), &Value::Array(vec!["b".into()]));
    assert_eq!(field(&changed, "id"), field(&plugin, "id"));
}

#[test]
fn patch_does_not_bring_back_defaults_of_cleared_fields() {
    let service = complete("services", r#"{"host":"h.test","retries":null}"#).unwrap();
    let changed = merge("services", &service, r#"{"port":81}"#).unwrap();
    assert!(!changed.contains("retries"));
}

#[test]
fn patch_says_when_updating() {
    let consumer = complete("consumers", r#"{"username":"bob"}"#).unwrap();
    assert_eq!(
        message(merge("consumers", &consumer, r#"{"username":null}"#)),
        "schema violation (when updating, at least one of these fields must be non-empty: 'custom_id', 'username')"
    );
}

#[test]
fn patch_to_another_plugin_reports_every_field_it_does_not_have() {
    let plugin = complete(
        "plugins",
        r#"{"name":"rate-limiting","config":{"minute":5}}"#,
    )
    .unwrap();
    let text = message(merge("plugins", &plugin, r#"{"name":"cors"}"#));
    assert!(
        text.starts_with("16 schema violations (config.day: unknown field; "),
        "{text}"
    );
    assert!(text.ends_with("config.sync_rate: unknown field; config.year: unknown field)"));
}

/// hmac-auth has fields of this kind.
#[test]
fn fields_that_kong_lacks_are_shown_only_where_they_are_set() {
    let schema = registry().entity(EntityKind::Plugins);
    let shown_config = |config: &str| {
        let input = format!(r#"{{"name":"hmac-auth","config":{config}}}"#);
        let plugin = complete("plugins", &input).unwrap();
        let mut stored = Vec::new();
        let bytes = codec::encode(&plugin);
        let read = schema.write_stored_json(&bytes, RouterFlavor::default(), &mut stored);
        read.unwrap();
        let stored: Json = serde_json::from_slice(&stored).unwrap();
        let built = shown(schema, &plugin);
        assert_eq!(built, stored);
        built["config"].clone()
    };
    let plain = shown_config("{}");
    assert_eq!(plain.get("realm"), Some(&Json::Null));
    assert_eq!(plain.get("refuse_replays"), None);
    assert_eq!(shown_config(r#"{"refuse_replays":null}"#), plain);
    let set = shown_config(r#"{"refuse_replays":false}"#);
    assert_eq!(set.get("refuse_replays"), Some(&json!(false)));
    let plugin = registry().plugin("hmac-auth").expect("it is bundled");
    assert!(!plugin.schema_json().to_string().contains("refuse_replays"));
    let set = complete(
        "plugins",
        r#"{"name":"hmac-auth","config":{"refuse_replays":true}}"#,
    );
    let unset = merge(
        "plugins",
        &set.unwrap(),
        r#"{"config":{"refuse_replays":null}}"#,
    );
    assert_eq!(shown(schema, &unset.unwrap())["config"], plain);
}

#[test]
fn deprecated_setting_moves_to_its_new_place() {
    let input =
        r#"{"name":"rate-limiting","config":{"minute":5,"redis_host":"r.test","policy":"redis"}}"#;
    let plugin = complete("plugins", input).unwrap();
    assert_eq!(field(&plugin, "config.redis.host"), &"r.test".into());
    assert_eq!(field(&plugin, "config.redis_host"), &Value::Null);
    let both =
        r#"{"name":"rate-limiting","config":{"minute":5,"redis_host":"a","redis":{"host":"b"}}}"#;
    assert_eq!(
        message(complete("plugins", both)),
        "schema violation (config.redis_host: both deprecated and new field are used but their values mismatch: redis_host = a vs redis.host = b)"
    );
}

#[test]
fn nested_condition_is_reported_in_its_place() {
    let input = r#"{"name":"rate-limiting","config":{"minute":5,"policy":"redis"}}"#;
    let error = complete("plugins", input).unwrap_err();
    let fields = error.fields.unwrap();
    assert_eq!(
        field(&fields, "config.redis.host"),
        &"required field missing".into()
    );
}

#[test]
fn an_empty_name_is_wrong_by_itself_and_no_name_at_all() {
    let error = complete("consumers", r#"{"username":""}"#).unwrap_err();
    let wanted = serde_json::json!({
        "username": "length must be at least 1",
        "@entity": ["at least one of these fields must be non-empty: 'custom_id', 'username'"],
    });
    assert_eq!(serde_json::to_value(error.fields).unwrap(), wanted);
}

#[test]
fn an_empty_reference_is_wrong_by_itself_and_not_set() {
    let text = message(complete(
        "filter_chains",
        r#"{"filters":[{"name":"f"}],"service":{}}"#,
    ));
    let unset = "at least one of these fields must be non-empty: 'service', 'route'";
    assert!(text.contains(unset), "{text}");
    assert!(text.contains("service.id: missing primary key"), "{text}");
}

#[test]
fn repeated_records_of_a_set_stay_and_repeated_texts_do_not() {
    let input = r#"{"protocols":["tcp","tcp"],"sources":[{"port":1},{"port":1}]}"#;
    let route = complete("routes", input).unwrap();
    let length = |name: &str| field(&route, name).as_array().map(<[Value]>::len);
    assert_eq!((length("protocols"), length("sources")), (Some(1), Some(2)));
    let schema = registry().by_name("routes").unwrap();
    let schema = schema.json_schema(Form::Shown, RouterFlavor::default());
    let is_unique = |name: &str| schema["properties"][name].get("uniqueItems").is_some();
    assert!(is_unique("protocols") && is_unique("methods"));
    assert!(!is_unique("sources") && !is_unique("destinations"));
}

#[test]
fn vault_references_skip_validation() {
    let cert = r#"{"cert":"{vault://env/cert}","key":"{vault://env/key}"}"#;
    complete("certificates", cert).unwrap();
}

#[test]
fn passwords_are_hashed_once() {
    let input = r#"{"consumer":{"id":"4bf92f3d-0000-4000-8000-00000000abcd"},"username":"u","password":"p"}"#;
    let credential = complete("basicauth_credentials", input).unwrap();
    // printf %s p4bf92f3d-0000-4000-8000-00000000abcd | sha1sum
    assert_eq!(
        field(&credential, "password"),
        &"fa28ff1c048124c5f239c0bec983c789355dfe3d".into()
    );
    let changed = merge("basicauth_credentials", &credential, r#"{"username":"v"}"#).unwrap();
    assert_eq!(field(&changed, "password"), field(&credential, "password"));
}

#[test]
fn inputs_of_a_hash_change_only_together_with_the_secret() {
    let (alice, bob) = (
        "4bf92f3d-0000-4000-8000-00000000000a",
        "4bf92f3d-0000-4000-8000-00000000000b",
    );
    let consumer = |id: &str| format!(r#""consumer":{{"id":"{id}"}}"#);
    let existing = complete(
        "basicauth_credentials",
        &format!(r#"{{"username":"u","password":"p",{}}}"#, consumer(alice)),
    )
    .unwrap();
    let patch = |patch: &str| merge("basicauth_credentials", &existing, patch);
    assert_eq!(
        message(patch(&format!("{{{}}}", consumer(bob)))),
        "schema violation (all or none of these fields must be set: 'password', 'consumer.id')"
    );
    let moved = patch(&format!(r#"{{"password":"p",{}}}"#, consumer(bob))).unwrap();
    assert_ne!(moved.str("password"), existing.str("password"));
    for same in [
        format!("{{{}}}", consumer(&alice.to_uppercase())),
        r#"{"username":"v"}"#.to_owned(),
    ] {
        assert_eq!(
            patch(&same).unwrap().str("password"),
            existing.str("password")
        );
    }
    let plain = complete(
        "oauth2_credentials",
        &format!(r#"{{"name":"n","client_secret":"s",{}}}"#, consumer(alice)),
    )
    .unwrap();
    assert_eq!(
        message(merge(
            "oauth2_credentials",
            &plain,
            r#"{"hash_secret":true}"#
        )),
        "schema violation (all or none of these fields must be set: 'hash_secret', 'client_secret')"
    );
}

#[test]
fn oauth2_secret_is_hashed_on_demand() {
    let input = r#"{"consumer":{"id":"4bf92f3d-0000-4000-8000-00000000abcd"},"name":"n","client_secret":"s","hash_secret":true}"#;
    let credential = complete("oauth2_credentials", input).unwrap();
    let secret = credential.str("client_secret").unwrap();
    assert!(
        secret.starts_with("$pbkdf2-sha512$i=10000,l=32$"),
        "{secret}"
    );
    let plain = input.replace("true", "false");
    let credential = complete("oauth2_credentials", &plain).unwrap();
    assert_eq!(credential.str("client_secret"), Some("s"));
}

#[test]
fn unusable_shapes_are_refused_without_a_panic() {
    for input in [
        r#"{"name":1}"#,
        r#"{"name":[]}"#,
        r#"{"name":"key-auth","config":"x"}"#,
        r#"{"name":"key-auth","config":[1]}"#,
        r#"{"name":"key-auth","route":5}"#,
        r#"{"name":"key-auth","protocols":{"a":1}}"#,
        r#"{"name":"rate-limiting","config":{"redis":"x","redis_host":"y"}}"#,
        r#"{"name":"http-log","config":{"http_endpoint":"http://a","headers":{"x":[{}]}}}"#,
    ] {
        assert!(complete("plugins", input).is_err(), "{input}");
    }
    for input in [
        r#"{"paths":[{}]}"#,
        r#"{"paths":["~/("]}"#,
        r#"{"protocols":5,"paths":["/"]}"#,
        r#"{"hosts":"\u0000"}"#,
        r#"{"headers":[1]}"#,
        r#"{"service":{"id":{}}}"#,
    ] {
        assert!(complete("routes", input).is_err(), "{input}");
    }
}

#[test]
fn disabled_plugin_is_refused() {
    let mut context = context(RouterFlavor::default());
    context.plugins = model::schema::EnabledPlugins::Only(["cors".to_owned()].into());
    let schema = registry().by_name("plugins").unwrap();
    let input: Object = serde_json::from_str(r#"{"name":"key-auth"}"#).unwrap();
    assert_eq!(
        schema.complete(input, &context).unwrap_err().message,
        "schema violation (name: plugin 'key-auth' not enabled; add it to the 'plugins' configuration property)"
    );
}

#[test]
fn expressions_flavor_has_its_own_fields() {
    let schema = registry().by_name("routes").unwrap();
    let context = context(RouterFlavor::Expressions);
    let run = |text: &str| schema.complete(serde_json::from_str(text).unwrap(), &context);
    let route = run(r#"{"expression":"http.path == \"/a\"","priority":3}"#).unwrap();
    assert_eq!(route.get("priority"), Some(&Value::Int(3)));
    assert!(run(r#"{"expression":"x","paths":["/a"]}"#).is_err());
    assert!(run(r#"{"paths":["/a"]}"#).is_ok());
}

#[test]
fn plugins_come_in_execution_order() {
    let names: Vec<_> = registry().plugins().map(|plugin| plugin.name).collect();
    assert_eq!(names.len(), 45);
    assert_eq!(names.first(), Some(&"pre-function"));
    assert_eq!(names.last(), Some(&"post-function"));
    let at = |name| names.iter().position(|one| *one == name).unwrap();
    assert!(at("jwt") < at("key-auth") && at("key-auth") < at("request-termination"));
}

#[test]
fn every_plugin_shows_its_schema() {
    for plugin in registry().plugins() {
        let schema = plugin.schema_json();
        let fields = schema["fields"].as_array().unwrap();
        assert!(
            fields.iter().any(|field| field.get("config").is_some()),
            "{}",
            plugin.name
        );
        assert!(!schema.to_string().contains("\"validator\""));
    }
    let services = registry().by_name("services").unwrap();
    let services = services.schema_json(RouterFlavor::default());
    assert_eq!(
        services["entity_checks"][0],
        serde_json::json!({"conditional": {"if_field": "protocol", "if_match": {"one_of": ["tcp", "tls", "udp", "grpc", "grpcs"]},
            "then_field": "path", "then_match": {"eq": null}}})
    );
}

#[test]
fn unknown_fields_are_reported_up_to_a_number() {
    let fields = (0..50_000).map(|index| format!("\"f{index}\":1"));
    let input = format!(
        "{{\"host\":\"h\",{}}}",
        fields.collect::<Vec<_>>().join(",")
    );
    let error = complete("services", &input).unwrap_err();
    assert!(
        error
            .message
            .starts_with("100 schema violations (f0: unknown field; f1: unknown field;")
    );
    let error = complete("services", r#"{"host":"h","@entity":1}"#).unwrap_err();
    assert_eq!(error.message, "schema violation (@entity: unknown field)");
}

#[test]
fn an_entity_costs_as_much_as_it_has_fields() {
    testkit::cost::assert_linear(
        1000,
        |count| {
            let fields = (0..count).map(|index| format!("\"f{index}\":1"));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        },
        |input| drop(complete("services", &input)),
    );
}

/// Validates the defaults, because they are not validated when they are filled in.
#[test]
fn defaults_of_every_plugin_are_valid() {
    let schema = registry().by_name("plugins").unwrap();
    let context = context(RouterFlavor::default());
    let mut complete = 0;
    for plugin in registry().plugins() {
        let input = Object::from_iter([("name", Value::from(plugin.name))]);
        match schema.complete(input, &context) {
            Ok(entity) => {
                complete += 1;
                let again = schema.complete(entity.clone(), &context);
                assert_eq!(again.as_ref(), Ok(&entity), "{}", plugin.name);
                assert!(shown(schema, &entity)["config"].is_object());
            }
            Err(error) => {
                let missing = [
                    "required field missing",
                    "must be non-empty",
                    "must be true",
                ];
                assert!(
                    missing.iter().any(|text| error.message.contains(text)),
                    "{}: {error}",
                    plugin.name
                );
            }
        }
    }
    assert_eq!(complete, 20);
}
