//! Tests of oauth2.

mod attacks;
mod authorize;
mod check;
mod clients;
mod own;
mod reading;
mod refresh;
mod secrets;
mod signed;
mod slow;
mod token;
mod turns;

use super::def;
use super::source::OAUTH2_CREDENTIALS;
use crate::testing::{NORA, OTTO, people};
use aws_lc_rs::pbkdf2;
use data_encoding::BASE64_NOPAD;
use model::EntityKind;
use plugin::testing::{Case, FakeEntities, Outcome, SERVICE};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;
use tokens::embedded::Embedded;
use tokens::{Keys, Storage, TokenStore};
use uuid::Uuid;

pub(super) const WEB: Uuid = Uuid::from_u128(0x3eb);
pub(super) const OTHER: Uuid = Uuid::from_u128(0x07e4);
const BACK: &str = "http://app.example/back";
pub(super) const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
pub(super) const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// A node with oauth2, its clients and a store of tokens.
pub(super) struct Shop {
    pub(super) case: Case,
    pub(super) entities: Arc<FakeEntities>,
    pub(super) store: Arc<dyn TokenStore>,
    directory: Arc<TempDir>,
}

/// The configuration with all grants, and these fields in addition.
pub(super) fn config(more: &Value) -> Value {
    let mut config = json!({
        "provision_key": "pk", "scopes": ["read", "write", "user.mail"],
        "enable_authorization_code": true, "enable_implicit_grant": true,
        "enable_client_credentials": true, "enable_password_grant": true,
    });
    let fields = config.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    config
}

/// The configuration of the profile of RFC 9700.
pub(super) fn strict(more: &Value) -> Value {
    let mut config = config(more);
    config["oauth2_profile"] = "rfc9700".into();
    config["issuer"] = "https://as.example".into();
    config
}

pub(super) fn shop(more: Value) -> Shop {
    Shop::new(config(&more))
}

fn client(id: Uuid, consumer: Uuid, name: &str, more: Value) -> Value {
    let mut client = json!({
        "id": id, "consumer": {"id": consumer}, "name": name, "client_id": format!("{name}-client"),
        "client_secret": format!("{name}-secret"), "hash_secret": false,
        "client_type": "confidential", "redirect_uris": [BACK],
    });
    let fields = client.as_object_mut().expect("an object");
    fields.extend(more.as_object().expect("an object").clone());
    client
}

/// Hashes a secret as Kong does, with a number of rounds.
pub(super) fn hashed(secret: &str, rounds: u32) -> String {
    let mut hash = [0; 32];
    let salt = [7; 16];
    let iterations = NonZeroU32::new(rounds).expect("there is a round");
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA512,
        iterations,
        &salt,
        secret.as_bytes(),
        &mut hash,
    );
    let (salt, hash) = (BASE64_NOPAD.encode(&salt), BASE64_NOPAD.encode(&hash));
    format!("$pbkdf2-sha512$i={rounds},l=32${salt}${hash}")
}

impl Shop {
    pub(super) fn new(config: Value) -> Self {
        crate::install();
        let id = Uuid::from_u128;
        let clients = [
            client(WEB, NORA, "web", json!({})),
            client(OTHER, OTTO, "other", json!({})),
            client(
                id(0x3e2),
                NORA,
                "multi",
                json!({"redirect_uris": ["http://one.example/1", "http://two.example/2"]}),
            ),
            client(
                id(0x3e3),
                NORA,
                "query",
                json!({"redirect_uris": ["http://app.example/back?foo=bar&code=old"]}),
            ),
            client(id(0x3e4), NORA, "nouri", json!({"redirect_uris": null})),
            client(
                id(0x3e5),
                NORA,
                "spa",
                json!({"client_type": "public", "redirect_uris": ["http://spa.example/cb"]}),
            ),
            client(
                id(0x3e6),
                NORA,
                "hash",
                json!({"hash_secret": true, "client_secret": hashed("hash-secret", 1000)}),
            ),
        ];
        let entities = people().with(EntityKind::Services, json!({"id": SERVICE}));
        for client in clients {
            entities.put(OAUTH2_CREDENTIALS, client);
        }
        let directory = Arc::new(tempfile::tempdir().expect("a directory can be made"));
        let keys = Keys::new(&[7; 64], 0);
        let store = Embedded::open(directory.path(), 1 << 28, keys, Storage::Sealed);
        let store: Arc<dyn TokenStore> = Arc::new(store.expect("a new store can be opened"));
        let entities = Arc::new(entities);
        let case = Case::new(def(), config)
            .entities(entities.clone())
            .tokens(store.clone());
        Self {
            case,
            entities,
            store,
            directory,
        }
    }

    /// The same node after a change of the configuration.
    pub(super) fn with(&self, config: Value) -> Self {
        Self {
            case: Case::new(def(), config).on(self.case.node().clone()),
            entities: self.entities.clone(),
            store: self.store.clone(),
            directory: self.directory.clone(),
        }
    }

    /// Posts parameters as JSON, over TLS.
    pub(super) async fn post(&self, path: &str, parameters: Value) -> Outcome {
        let line = format!("POST {path}");
        let request = self.case.request(&line).https(None);
        let request = request.header("Content-Type", "application/json");
        request.body(parameters.to_string()).run().await
    }

    pub(super) async fn token(&self, parameters: Value) -> Outcome {
        self.post("/oauth2/token", parameters).await
    }

    pub(super) async fn authorize(&self, more: Value) -> Outcome {
        let mut parameters = json!({
            "provision_key": "pk", "authenticated_userid": "u9", "client_id": "web-client",
            "response_type": "code", "scope": "read",
        });
        merge(&mut parameters, more);
        self.post("/oauth2/authorize", parameters).await
    }

    /// Returns a code for a client, with these parameters in addition.
    pub(super) async fn code(&self, more: Value) -> String {
        let outcome = self.authorize(more).await;
        let uri = redirect_uri(&outcome);
        let code = uri
            .split(['?', '&'])
            .find_map(|pair| pair.strip_prefix("code="));
        code.unwrap_or_else(|| panic!("no code in {uri}"))
            .to_owned()
    }

    /// Exchanges a code of the web client, with these parameters in addition.
    pub(super) async fn exchange(&self, code: &str, more: Value) -> Outcome {
        let mut parameters = json!({
            "grant_type": "authorization_code", "code": code,
            "client_id": "web-client", "client_secret": "web-secret",
        });
        merge(&mut parameters, more);
        self.token(parameters).await
    }

    /// A token of the web client by its own credentials.
    pub(super) async fn own_token(&self) -> String {
        let outcome = self.token(credentials("web", json!({}))).await;
        text(&outcome, "access_token")
    }

    /// Access and refresh token of the web client, by the password grant.
    pub(super) async fn pair(&self) -> (String, String) {
        let outcome = self.token(password("web")).await;
        (
            text(&outcome, "access_token"),
            text(&outcome, "refresh_token"),
        )
    }

    pub(super) async fn refresh(&self, refresh_token: &str) -> Outcome {
        self.refresh_of("web", refresh_token).await
    }

    pub(super) async fn refresh_of(&self, client: &str, refresh_token: &str) -> Outcome {
        let parameters = json!({
            "grant_type": "refresh_token", "refresh_token": refresh_token,
            "client_id": format!("{client}-client"), "client_secret": format!("{client}-secret"),
        });
        self.token(parameters).await
    }

    /// Uses a token.
    pub(super) async fn call(&self, token: &str) -> Outcome {
        let request = self.case.request("GET /echo");
        let header = format!("Bearer {token}");
        request.header("Authorization", header).run().await
    }

    pub(super) async fn status(&self, token: &str) -> u16 {
        self.call(token).await.client.status
    }

    pub(super) fn advance(&self, seconds: u64) {
        let clock = &self.case.node().clock;
        clock.advance(Duration::from_secs(seconds));
    }
}

pub(super) fn merge(parameters: &mut Value, more: Value) {
    let fields = parameters.as_object_mut().expect("an object");
    for (name, value) in more.as_object().expect("an object") {
        match value {
            Value::Null => {
                fields.remove(name);
            }
            value => {
                fields.insert(name.clone(), value.clone());
            }
        }
    }
}

pub(super) fn credentials(client: &str, more: Value) -> Value {
    let mut parameters = json!({
        "grant_type": "client_credentials", "scope": "read",
        "client_id": format!("{client}-client"), "client_secret": format!("{client}-secret"),
    });
    merge(&mut parameters, more);
    parameters
}

pub(super) fn password(client: &str) -> Value {
    json!({
        "grant_type": "password", "provision_key": "pk", "authenticated_userid": "u5", "scope": "write",
        "client_id": format!("{client}-client"), "client_secret": format!("{client}-secret"),
    })
}

/// A field of the answer's body.
pub(super) fn text(outcome: &Outcome, field: &str) -> String {
    let body = outcome.client.json();
    let value = body[field].as_str();
    value
        .unwrap_or_else(|| panic!("no {field} in {body}"))
        .to_owned()
}

pub(super) fn redirect_uri(outcome: &Outcome) -> String {
    text(outcome, "redirect_uri")
}

/// The status and the error of an answer.
pub(super) fn error(outcome: &Outcome) -> String {
    assert_eq!(outcome.failures, [], "{:?}", outcome.client);
    let body = outcome.client.json();
    let field = |name: &str| body[name].as_str().unwrap_or("-").to_owned();
    format!(
        "{} {}: {}",
        outcome.client.status,
        field("error"),
        field("error_description")
    )
}

pub(super) const INVALID_CLIENT: &str = "400 invalid_client: Invalid client authentication";
pub(super) const INVALID_CODE: &str = "400 invalid_request: Invalid code";
pub(super) const INVALID_REFRESH: &str = "400 invalid_request: Invalid refresh_token";
pub(super) const INVALID_TOKEN: &str =
    "401 invalid_token: The access token is invalid or has expired";
