//! Fuzz target for the endpoints of the plugin oauth2: whole requests, in both profiles.

use model::EntityKind;
use plugin::testing::{Case, FakeEntities, SERVICE};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::sync::Arc;
use tempfile::TempDir;
use tokens::embedded::Embedded;
use tokens::{Keys, Storage};
use tokio::runtime::{Builder, Runtime};
use uuid::Uuid;

const BACK: &str = "https://app.test/back";
const PATHS: [&str; 6] = [
    "token",
    "authorize",
    "introspect",
    "revoke",
    "jwks",
    "other",
];
const TYPES: [&str; 3] = [
    "application/x-www-form-urlencoded",
    "application/json",
    "multipart/form-data; boundary=b",
];
/// Requests after which the node and its store are made anew: the store is of limited size.
const MAX_RUNS: usize = 2_000;

/// Two plugins on nodes of their own.
struct Nodes {
    cases: [Case; 2],
    runtime: Runtime,
    runs: usize,
    _directories: [TempDir; 2],
}

thread_local! {
    static NODES: RefCell<Option<Nodes>> = const { RefCell::new(None) };
}

/// Checks a request: a byte chooses the endpoint, the content type and the profile; then comes a query, and after the first
/// line feed the body.
pub fn oauth2_request(data: &[u8]) {
    let Some((choice, rest)) = data.split_first() else {
        return;
    };
    let line_feed = rest.iter().position(|byte| *byte == b'\n');
    let (query, body) = match line_feed {
        Some(at) => (&rest[..at], &rest[at + 1..]),
        None => (&b""[..], rest),
    };
    if query.len() > 4096 || !query.iter().all(u8::is_ascii_graphic) {
        return;
    }
    let choice = usize::from(*choice);
    let path = PATHS[choice % PATHS.len()];
    let content_type = TYPES[choice / PATHS.len() % TYPES.len()];
    // Other bytes may end the request line or be refused in it. Escapes stand for them.
    let query: String = (query.iter())
        .filter(|byte| byte.is_ascii_graphic() && **byte != b'#')
        .map(|byte| char::from(*byte))
        .collect();
    NODES.with_borrow_mut(|nodes| {
        if nodes.as_ref().is_none_or(|nodes| nodes.runs >= MAX_RUNS) {
            *nodes = Some(Nodes::new());
        }
        if let Some(nodes) = nodes {
            nodes.runs += 1;
            nodes.check(
                choice / 64 % 2,
                &format!("POST /oauth2/{path}?{query}"),
                content_type,
                body,
            );
        }
    });
}

impl Nodes {
    fn new() -> Self {
        let directories = [(); 2].map(|()| tempfile::tempdir().expect("a directory can be made"));
        let cases = [0, 1].map(|profile| case(profile == 1, &directories[profile]));
        let runtime = Builder::new_current_thread().enable_all().build();
        Self {
            cases,
            runtime: runtime.expect("a runtime can be made"),
            runs: 0,
            _directories: directories,
        }
    }

    fn check(&self, profile: usize, line: &str, content_type: &str, body: &[u8]) {
        let request = self.cases[profile].request(line).https(None);
        let request = request.header("Content-Type", content_type);
        // The client proves itself, unless the parameters name another one.
        let request = request.header("Authorization", "Basic YXBwOnNlY3JldA==");
        let outcome = self.runtime.block_on(request.body(body.to_vec()).run());
        assert_eq!(outcome.failures, []);
        let client = &outcome.client;
        assert!(
            matches!(client.status, 200 | 400 | 401 | 405),
            "status {}",
            client.status
        );
        if outcome.upstream.is_some() || line.contains("/jwks") || line.contains("/other") {
            return;
        }
        let answer = client.json();
        let Some(uri) = answer.get("redirect_uri").and_then(Value::as_str) else {
            let is_error = answer.get("error").is_some();
            assert_eq!(is_error, client.status != 200, "{answer}");
            return;
        };
        let rest = uri.strip_prefix(BACK).expect("only the registered one");
        assert!(rest.starts_with('?') || rest.starts_with('#'), "{uri}");
    }
}

fn case(is_strict: bool, directory: &TempDir) -> Case {
    plugins::install();
    let id = |number| Uuid::from_u128(number);
    let credentials = EntityKind::from_name("oauth2_credentials").expect("it is installed");
    let entities = FakeEntities::default()
        .with(EntityKind::Services, json!({"id": SERVICE}))
        .with(
            EntityKind::Consumers,
            json!({"id": id(1), "username": "nora"}),
        )
        .with(
            credentials,
            json!({
                "id": id(2), "consumer": {"id": id(1)}, "name": "app", "client_id": "app",
                "client_secret": "secret", "hash_secret": false, "client_type": "confidential",
                "redirect_uris": [BACK],
            }),
        );
    let mut config = json!({
        "provision_key": "pk", "scopes": ["read", "write"], "enable_authorization_code": true,
        "enable_implicit_grant": true, "enable_client_credentials": true, "enable_password_grant": true,
        "introspection": true, "revocation": true, "issuer": "https://as.test",
    });
    if is_strict {
        config["oauth2_profile"] = "rfc9700".into();
    }
    let keys = Keys::new(&[7; 64], 0);
    let store = Embedded::open(directory.path(), 1 << 28, keys, Storage::Sealed);
    let store = Arc::new(store.expect("a new store can be opened"));
    let mut all = plugins::bundled().iter();
    let def = all.find(|def| def.name == "oauth2");
    Case::new(def.expect("it is there").clone(), config)
        .entities(entities)
        .tokens(store)
}
