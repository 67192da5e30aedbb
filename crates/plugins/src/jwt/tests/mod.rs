//! Tests of jwt.

mod data;
mod keys;
mod reading;
mod repeated;
mod signer;
mod times;

use super::algorithm::Algorithm;
use crate::kinds::JWT_SECRETS;
use crate::testing::{NORA, people};
use plugin::testing::{Case, FakeEntities, Outcome};
use serde_json::{Value, json};
use signer::{SECRET, signer, token};
use uuid::Uuid;

/// The credential of HS256 with the key `hs`.
const HS: Uuid = Uuid::from_u128(0x1256);

/// A credential with a name as its key.
fn credential(key: &str, algorithm: Algorithm) -> Value {
    let mut credential = json!({
        "id": Uuid::new_v4(), "consumer": {"id": NORA}, "key": key, "algorithm": algorithm.name(),
    });
    if algorithm.is_symmetric() {
        credential["secret"] = SECRET.into();
    } else {
        credential["rsa_public_key"] = signer(algorithm).pem().into();
    }
    credential
}

/// The people, and a credential of nora for each algorithm, with its name as the key. That with the key `hs` is of HS256.
fn entities() -> FakeEntities {
    let mut hs = credential("hs", Algorithm::Hs256);
    hs["id"] = json!(HS);
    let entities = people().with(JWT_SECRETS, hs);
    for algorithm in Algorithm::ALL {
        entities.put(JWT_SECRETS, credential(algorithm.name(), *algorithm));
    }
    entities
}

fn case(config: Value) -> Case {
    crate::install();
    Case::new(super::def(), config).entities(entities())
}

/// Describes the outcome: the consumer of an admitted request, or else status, body and challenge.
fn shown(outcome: &Outcome) -> String {
    let client = &outcome.client;
    match &outcome.upstream {
        Some(_) => outcome.consumer().unwrap_or("nobody").to_owned(),
        None => {
            let challenge = client.header("www-authenticate").unwrap_or_default();
            format!("{} {} [{challenge}]", client.status, client.text())
        }
    }
}

fn bearing(case: &Case, token: &str) -> Outcome {
    let call = case.request("GET /echo");
    call.header("Authorization", format!("Bearer {token}"))
        .run_now()
}

/// Runs a request with a token in the header Authorization.
fn outcome(case: &Case, token: &str) -> String {
    shown(&bearing(case, token))
}

/// A refusal with the message of a body.
fn refused(message: &str) -> String {
    format!("401 {{\"message\":\"{message}\"}} [Bearer error=\"invalid_token\"]")
}

fn good() -> String {
    token(Algorithm::Hs256, &json!({"iss": "hs"}))
}

const NOTHING: &str = r#"401 {"message":"Unauthorized"} [Bearer]"#;

#[test]
fn a_token_is_searched_in_query_cookies_and_headers() {
    let good = good();
    let other = token(Algorithm::Hs256, &json!({"iss": "hs", "n": 2}));
    let several = refused("Multiple tokens provided");
    let flag = refused("Unrecognizable token");
    let all = json!({
        "uri_param_names": ["jwt", "tok_en"], "cookie_names": ["Session"],
        "header_names": ["X_Login", "authorization"],
    });
    let none = json!({"uri_param_names": [], "cookie_names": null, "header_names": []});
    let cases: [(&Value, String, Vec<String>, &str); 21] = [
        (&json!({}), "/".into(), vec![], NOTHING),
        (&json!({}), format!("/?jwt={good}"), vec![], "nora"),
        (&json!({}), format!("/?JWT={good}"), vec![], NOTHING),
        (&json!({}), format!("/?jwt=&jwt={good}"), vec![], "nora"),
        (
            &json!({}),
            format!("/?jwt={good}&jwt={good}"),
            vec![format!("Authorization: bearer {good}")],
            "nora",
        ),
        (
            &json!({}),
            format!("/?jwt={good}&jwt={other}"),
            vec![],
            &several,
        ),
        (
            &json!({}),
            format!("/?jwt={good}"),
            vec![format!("Authorization: Bearer {other}")],
            &several,
        ),
        (&json!({}), "/?jwt".into(), vec![], &flag),
        (&json!({}), "/?jwt&jwt".into(), vec![], &flag),
        (&json!({}), format!("/?jwt&jwt={good}"), vec![], &several),
        (
            &json!({}),
            "/".into(),
            vec!["Authorization: Bearer".into()],
            NOTHING,
        ),
        (
            &json!({}),
            "/".into(),
            vec![format!("Authorization: Basic {good}")],
            NOTHING,
        ),
        (
            &all,
            "/".into(),
            vec![
                format!("X-Login: Bearer {good}"),
                "X-Login: Bearer x".into(),
            ],
            "nora",
        ),
        (
            &json!({}),
            "/".into(),
            vec![format!("Cookie: jwt={good}")],
            NOTHING,
        ),
        (&all, format!("/?tok_en={good}"), vec![], "nora"),
        (
            &all,
            "/".into(),
            vec![format!("Cookie: a=1; session={good}; b=2")],
            "nora",
        ),
        (
            &all,
            "/".into(),
            vec!["Cookie: a=1".into(), format!("Cookie: Session={good}")],
            "nora",
        ),
        (&all, "/".into(), vec!["Cookie: Session=".into()], NOTHING),
        (
            &all,
            "/".into(),
            vec![format!("x-login: Bearer {good}")],
            "nora",
        ),
        (
            &all,
            "/".into(),
            vec![
                format!("X-Login: Bearer {good}"),
                format!("Authorization: Bearer {other}"),
            ],
            &several,
        ),
        (
            &none,
            format!("/?jwt={good}"),
            vec![
                format!("Authorization: Bearer {good}"),
                format!("Cookie: jwt={good}"),
            ],
            NOTHING,
        ),
    ];
    for (config, target, lines, wanted) in cases {
        let case = case(config.clone());
        let call = case.request(&format!("GET {target}"));
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let outcome = call.lines(&lines).run_now();
        assert_eq!(shown(&outcome), wanted, "{config} {target} {lines:?}");
    }
}

#[test]
fn the_upstream_gets_the_consumer_the_key_and_the_token() {
    let case = case(json!({}));
    let call = case.request("GET /?a=1").lines(&[
        "X-Consumer-Username: mine",
        "X-Credential-Identifier: mine",
        "X-Anonymous-Consumer: true",
    ]);
    let bearer = format!("Bearer {}", good());
    let outcome = call.header("Authorization", &bearer).run_now();
    let sent = outcome.sent();
    assert_eq!(sent.header("x-consumer-id"), Some(&*NORA.to_string()));
    assert_eq!(sent.header("x-consumer-username"), Some("nora"));
    assert_eq!(sent.header("x-consumer-custom-id"), Some("ext-77"));
    assert_eq!(sent.header("x-credential-identifier"), Some("hs"));
    assert_eq!(sent.header("x-anonymous-consumer"), None);
    assert_eq!(sent.header("authorization"), Some(&*bearer));
    let credential = outcome.state.credential.as_ref();
    assert_eq!(credential.map(|credential| credential.id), Some(HS));
}

#[test]
fn the_realm_is_in_every_challenge() {
    let case = case(json!({"realm": "shop"}));
    let nothing = case.request("GET /").run_now();
    let challenge = nothing.client.header("www-authenticate");
    assert_eq!(challenge, Some("Bearer realm=\"shop\""));
    let wrong = bearing(&case, "x");
    let challenge = wrong.client.header("www-authenticate");
    assert_eq!(
        challenge,
        Some("Bearer realm=\"shop\" error=\"invalid_token\"")
    );
}

#[test]
fn a_preflight_request_needs_no_token_if_the_setting_says_so() {
    let run = |config, line| shown(&case(config).request(line).run_now());
    let off = json!({"run_on_preflight": false});
    assert_eq!(run(off.clone(), "OPTIONS /"), "nobody");
    assert_eq!(run(off, "GET /"), NOTHING);
    assert_eq!(run(json!({}), "OPTIONS /"), NOTHING);
}

#[test]
fn without_a_valid_token_the_request_continues_as_the_anonymous_consumer() {
    let case = case(json!({"anonymous": "guest"}));
    let nothing = case.request("GET /").run_now();
    assert_eq!(shown(&nothing), "guest");
    assert_eq!(nothing.sent().header("x-credential-identifier"), None);
    assert_eq!(nothing.sent().header("x-anonymous-consumer"), Some("true"));
    assert!(nothing.state.shared.is_empty());
    assert_eq!(outcome(&case, "junk"), "guest");
    assert_eq!(outcome(&case, &good()), "nora");
    let broken = token(Algorithm::Hs256, &json!({"iss": "broken"}));
    assert!(outcome(&case, &broken).starts_with("500 "));
    let other = case.request("GET /").credential(Uuid::nil()).run_now();
    assert_eq!(shown(&other), "nobody");
}

#[test]
fn several_plugins_that_authenticate_must_all_agree_or_one_of_them() {
    let run = |jwt: Value, key: Value, lines: &[&str]| {
        let both = case(jwt).and(crate::key_auth::def(), key);
        shown(&both.request("GET /").lines(lines).run_now())
    };
    let bearer = format!("Authorization: Bearer {}", good());
    let both = [&*bearer, "apikey: good"];
    assert_eq!(run(json!({}), json!({}), &both), "nora");
    assert_eq!(run(json!({}), json!({}), &["apikey: good"]), NOTHING);
    assert!(run(json!({}), json!({}), &[&bearer]).starts_with("401 "));
    let guest = || json!({"anonymous": "guest"});
    for lines in [&both[..], &both[..1], &both[1..]] {
        assert_eq!(run(guest(), guest(), lines), "nora", "{lines:?}");
    }
    assert_eq!(run(guest(), guest(), &[]), "guest");
}

#[test]
fn lua_code_sees_the_token_after_the_plugin() {
    const SHOW: &str = "local t = kong.ctx.shared.authenticated_jwt_token
        kong.response.set_header('X-Seen', (kong.ctx.shared.mine or '') .. tostring(t))";
    let run = |before: &str, bearer: &str| {
        let case = case(json!({"anonymous": "guest"}));
        let case = case
            .and(crate::pre_function::def(), json!({"access": [before]}))
            .and(
                crate::post_function::def(),
                json!({"header_filter": [SHOW]}),
            );
        let outcome = bearing(&case, bearer);
        let seen = outcome.client.header("x-seen");
        seen.expect("the snippet has run").to_owned()
    };
    let good = good();
    assert_eq!(run("return", &good), good);
    assert_eq!(run("return", "junk"), "nil");
    // The table that exists already gets the token, and keeps what it has.
    let before = "kong.ctx.shared.mine = 'x' .. tostring(kong.ctx.shared.authenticated_jwt_token)";
    assert_eq!(run(before, &good), format!("xnil{good}"));
    // The anonymous consumer has no token, whoever has set one.
    let earlier = "kong.ctx.shared.authenticated_jwt_token = 'earlier'; kong.ctx.shared.mine = 'x'";
    assert_eq!(run(earlier, "junk"), "xnil");
}

#[test]
fn lua_code_can_change_the_token_that_it_sees() {
    let show =
        "kong.response.set_header('X-Seen', tostring(kong.ctx.shared.authenticated_jwt_token))";
    let case = case(json!({}));
    let remove = "kong.ctx.shared.authenticated_jwt_token = nil";
    let config = json!({"access": [remove], "header_filter": [show]});
    let case = case.and(crate::post_function::def(), config);
    let outcome = bearing(&case, &good());
    assert_eq!(outcome.client.header("x-seen"), Some("nil"));
}

#[test]
fn the_places_of_the_token_are_explained() {
    crate::install();
    let config: super::Config = crate::testing::config("jwt", json!({"run_on_preflight": false}));
    let (identity, life) = Default::default();
    let cx = plugin::BuildCx {
        identity: &identity,
        lua: &Default::default(),
        life: &life,
    };
    let plugin = <super::Jwt as plugin::Plugin>::build(config, &cx).expect("it is built");
    let needs = plugin::Plugin::needs(&plugin);
    assert_eq!(
        needs.as_deref(),
        Some(
            "a JSON Web Token in query argument `jwt` or header `authorization`, else 401; OPTIONS requests need none"
        )
    );
}

#[test]
fn the_own_field_is_left_out_until_it_is_set() {
    let registry = crate::install();
    let schema = registry.plugin("jwt").expect("a schema");
    let shows = |json: &Value| json.to_string().contains("accept_short_rsa_keys");
    assert!(!shows(&schema.schema_json()));
    assert!(shows(&schema.whole_schema_json()));
    let written = |config: Value| {
        let plugin = json!({"name": "jwt", "config": config});
        let input = serde_json::from_value(plugin).expect("it is an object");
        let plugins = registry.entity(model::EntityKind::Plugins);
        let context = model::schema::Context::at(std::time::Duration::ZERO);
        let entity = plugins.process(input, &context).expect("it is valid");
        let (mut direct, mut stored) = (Vec::new(), Vec::new());
        plugins.write_json(&entity, &mut direct);
        plugins
            .write_stored_json(
                &model::codec::encode(&entity),
                Default::default(),
                &mut stored,
            )
            .expect("it is readable");
        let read = |text: &[u8]| -> Value { serde_json::from_slice(text).expect("it is JSON") };
        assert_eq!(read(&direct), read(&stored));
        read(&direct)
    };
    assert!(!shows(&written(json!({}))));
    assert!(!shows(&written(json!({"accept_short_rsa_keys": null}))));
    let set = written(json!({"accept_short_rsa_keys": false}));
    assert_eq!(set["config"]["accept_short_rsa_keys"], json!(false));
}
