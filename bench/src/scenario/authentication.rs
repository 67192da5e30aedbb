//! Cost of each authentication plugin: the same request on a single route, with valid credentials of a hundred consumers
//! in turn. Signatures are made once, before the load.

use crate::configuration::key;
use crate::harness::Harness;
use crate::load::Request;
use crate::report::Scenario;
use crate::rounds::{self, Case};
use anyhow::{Context, Result};
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use aws_lc_rs::{encoding, hmac};
use data_encoding::{BASE64, BASE64URL_NOPAD};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;

const NAME: &str = "authentication, 1 route";
pub(super) const CONSUMERS: usize = 100;
const PATH: &str = "/";
const HOST: &str = "bench.test";
/// The date of all signed requests. The plugin accepts clocks that differ by decades.
const DATE: &str = "Thu, 01 Jan 2026 00:00:00 GMT";
const CLOCK_SKEW: u64 = 10_000_000_000;

/// A configuration to compare: its plugins, and the headers that the requests of a consumer have.
struct Line {
    name: &'static str,
    plugins: Vec<Value>,
    headers: fn(&Signer, usize) -> Vec<(&'static str, String)>,
}

/// Measures the plugins next to the gateway without plugins.
pub fn measure(harness: &mut Harness, scenario: &mut Scenario) -> Result<()> {
    if !harness.wants(NAME) {
        return Ok(());
    }
    let signer = Signer::new()?;
    let case = Case {
        name: NAME.to_owned(),
        connections: harness.options.connections,
        size: None,
    };
    rounds::costs(harness, scenario, &case, &mut |harness| {
        let mut subjects = Vec::new();
        for line in lines() {
            let requests: Arc<[Request]> = (0..CONSUMERS)
                .map(|number| request(&(line.headers)(&signer, number)))
                .collect();
            if subjects.is_empty() {
                subjects.push(harness.relay(&requests)?);
            }
            let text = configuration(harness.upstream, &line.plugins, &signer).to_string();
            for mut subject in harness.silverbacks(false, &text, &requests)? {
                subject.name = format!("{}, {}", subject.name, line.name);
                subjects.push(subject);
            }
        }
        Ok(subjects)
    })
}

fn lines() -> Vec<Line> {
    let key_auth = json!({"name": "key-auth", "config": {"key_names": ["apikey"]}});
    let with_key: fn(&Signer, usize) -> _ = |_, number| vec![("apikey", key(number))];
    vec![
        Line {
            name: "no plugins",
            plugins: Vec::new(),
            headers: with_key,
        },
        Line {
            name: "key-auth",
            plugins: vec![key_auth.clone()],
            headers: with_key,
        },
        Line {
            name: "key-auth and acl",
            plugins: vec![
                key_auth,
                json!({"name": "acl", "config": {"allow": ["bench"]}}),
            ],
            headers: with_key,
        },
        Line {
            name: "basic-auth",
            plugins: vec![json!({"name": "basic-auth"})],
            headers: |_, number| {
                let pair = BASE64.encode(format!("{}:{}", user(number), key(number)).as_bytes());
                vec![("Authorization", format!("Basic {pair}"))]
            },
        },
        Line {
            name: "jwt, HS256",
            plugins: vec![json!({"name": "jwt"})],
            headers: |_, number| vec![bearer_of(number)],
        },
        Line {
            name: "jwt, RS256",
            plugins: vec![json!({"name": "jwt"})],
            headers: |signer, number| {
                let sign = |text: &[u8]| signer.sign(text);
                vec![bearer("RS256", &format!("rs-{}", user(number)), sign)]
            },
        },
        Line {
            name: "hmac-auth",
            plugins: vec![json!({"name": "hmac-auth", "config": {"clock_skew": CLOCK_SKEW}})],
            headers: |_, number| vec![("Date", DATE.to_owned()), signed(number)],
        },
    ]
}

/// Returns the token of a consumer, signed with HS256.
pub(super) fn bearer_of(number: usize) -> (&'static str, String) {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, key(number).as_bytes());
    let sign = |text: &[u8]| hmac::sign(&secret, text).as_ref().to_vec();
    bearer("HS256", &format!("hs-{}", user(number)), sign)
}

/// Returns a token without an end, whose `iss` names the credential.
fn bearer(
    algorithm: &str,
    issuer: &str,
    sign: impl Fn(&[u8]) -> Vec<u8>,
) -> (&'static str, String) {
    let part = |json: Value| BASE64URL_NOPAD.encode(json.to_string().as_bytes());
    let head = part(json!({"alg": algorithm, "typ": "JWT"}));
    let claims = part(json!({"iss": issuer, "sub": "bench"}));
    let text = format!("{head}.{claims}");
    let signature = BASE64URL_NOPAD.encode(&sign(text.as_bytes()));
    ("Authorization", format!("Bearer {text}.{signature}"))
}

/// Returns the signature of date and request line by the secret of a consumer.
fn signed(number: usize) -> (&'static str, String) {
    let secret = hmac::Key::new(hmac::HMAC_SHA256, key(number).as_bytes());
    let text = format!("date: {DATE}\nGET {PATH} HTTP/1.1");
    let signature = BASE64.encode(hmac::sign(&secret, text.as_bytes()).as_ref());
    let value = format!(
        r#"hmac username="{}", algorithm="hmac-sha256", headers="date request-line", signature="{signature}""#,
        user(number)
    );
    ("Authorization", value)
}

fn user(number: usize) -> String {
    format!("user-{number}")
}

fn request(headers: &[(&str, String)]) -> Request {
    let own = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()));
    let host = ("Host".to_owned(), HOST.to_owned());
    let headers: Vec<(String, String)> = std::iter::once(host).chain(own).collect();
    Request::with_headers(PATH, &headers)
}

/// Returns a configuration with one route, and consumers with a credential of every kind.
pub(super) fn configuration(upstream: SocketAddr, plugins: &[Value], signer: &Signer) -> Value {
    let consumer = |number: usize| {
        let user = user(number);
        json!({
            "username": user,
            "custom_id": format!("customer-{number}"),
            "keyauth_credentials": [{"key": key(number)}],
            "basicauth_credentials": [{"username": user, "password": key(number)}],
            "hmacauth_credentials": [{"username": user, "secret": key(number)}],
            "jwt_secrets": [
                {"key": format!("hs-{user}"), "secret": key(number), "algorithm": "HS256"},
                {"key": format!("rs-{user}"), "rsa_public_key": signer.public, "algorithm": "RS256"},
            ],
            "acls": [{"group": "bench"}],
        })
    };
    let consumers: Vec<Value> = (0..CONSUMERS).map(consumer).collect();
    json!({
        "_format_version": "3.0",
        "services": [{
            "name": "bench", "host": upstream.ip(), "port": upstream.port(),
            "routes": [{"name": "route", "paths": [PATH], "strip_path": false, "plugins": plugins}],
        }],
        "consumers": consumers,
    })
}

/// The RSA key of all tokens that are signed with one.
pub(super) struct Signer {
    keys: KeyPair,
    /// The public key as PEM.
    public: String,
}

impl Signer {
    pub(super) fn new() -> Result<Self> {
        let keys = KeyPair::generate(KeySize::Rsa2048).context("an RSA key cannot be made")?;
        let public: encoding::PublicKeyX509Der<'_> = keys.public_key().as_der()?;
        let text = BASE64.encode(public.as_ref());
        let lines: Vec<&str> = text
            .as_bytes()
            .chunks(64)
            .filter_map(|line| std::str::from_utf8(line).ok())
            .collect();
        let public = format!(
            "-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n",
            lines.join("\n")
        );
        Ok(Self { keys, public })
    }

    fn sign(&self, text: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.keys.public_modulus_len()];
        let random = SystemRandom::new();
        let signed = self
            .keys
            .sign(&RSA_PKCS1_SHA256, &random, text, &mut signature);
        signed.expect("an RSA key of 2048 bits signs any text");
        signature
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_credentials_of_its_own_for_each_consumer() {
        let signer = Signer::new().unwrap();
        for line in lines() {
            let headers = (0..CONSUMERS).map(|number| (line.headers)(&signer, number));
            let mut texts: Vec<_> = headers
                .map(|headers| request(&headers).bytes().to_vec())
                .collect();
            texts.sort();
            texts.dedup();
            assert_eq!(texts.len(), CONSUMERS, "{}", line.name);
        }
    }
}
