//! Checks of the schemas, and the transformation of client secrets to the stored form.

use aws_lc_rs::pbkdf2;
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use data_encoding::BASE64_NOPAD;
use model::schema::{Checks, Problems, Transformation, UrlParts, is_given};
use model::{Object, Value};
use std::num::NonZeroU32;

pub(super) const CHECKS: Checks = Checks {
    validators: &[
        ("oauth2_grants", |value, _| grants(value)),
        ("redirect_uri", |value, _| redirect_uri(value)),
    ],
    transformations: &[Transformation {
        name: "oauth2_secret",
        input: "client_secret",
        replaces_input: true,
        staleness,
        apply: hash_secret,
    }],
    ..Checks::NONE
};

/// Source: kong/plugins/oauth2/schema.lua.
fn grants(value: &Value) -> Result<(), Value> {
    const GRANTS: [&str; 4] = [
        "enable_authorization_code",
        "enable_implicit_grant",
        "enable_client_credentials",
        "enable_password_grant",
    ];
    let Some(config) = value.as_object() else {
        return Ok(());
    };
    let is_enabled = |grant: &&str| config.get(grant) == Some(&Value::Bool(true));
    if GRANTS.iter().any(is_enabled) {
        return Ok(());
    }
    let names = GRANTS.join(", ");
    Err(format!("at least one of these fields must be true: {names}").into())
}

/// Source: kong/plugins/oauth2/daos.lua (validate_uri).
fn redirect_uri(value: &Value) -> Result<(), Value> {
    let text = value.as_str().unwrap_or_default();
    let parts = UrlParts::split(text);
    if parts.scheme.is_none() || parts.host.is_none() {
        return Err(format!("cannot parse '{text}'").into());
    }
    if text.contains('#') {
        return Err(format!("fragment not allowed in '{text}'").into());
    }
    Ok(())
}

const PBKDF2_ROUNDS: NonZeroU32 = NonZeroU32::new(10_000).expect("not zero");

/// Replaces the client secret by its PBKDF2 hash if `hash_secret` is set. Source: kong/plugins/oauth2/secret.lua.
fn hash_secret(credential: &mut Object) -> Result<(), Problems> {
    if credential.get("hash_secret") != Some(&Value::Bool(true)) {
        return Ok(());
    }
    let Some(secret) = credential.str("client_secret") else {
        return Ok(());
    };
    let mut salt = [0; 16];
    if SystemRandom::new().fill(&mut salt).is_err() {
        let problem = Value::from("the system has no random numbers to hash it");
        return Err([("client_secret", problem)].into_iter().collect());
    }
    let mut hash = [0; 32];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA512,
        PBKDF2_ROUNDS,
        &salt,
        secret.as_bytes(),
        &mut hash,
    );
    let text = format!(
        "$pbkdf2-sha512$i={PBKDF2_ROUNDS},l={}${}${}",
        hash.len(),
        BASE64_NOPAD.encode(&salt),
        BASE64_NOPAD.encode(&hash)
    );
    credential.insert("client_secret", text.into());
    Ok(())
}

/// A patch that switches the hashing on or off must give the secret again.
fn staleness(patch: &Object, existing: &Object) -> Option<&'static str> {
    let changes =
        is_given(patch, "hash_secret") && patch.get("hash_secret") != existing.get("hash_secret");
    (changes && !is_given(patch, "client_secret")).then_some("'hash_secret', 'client_secret'")
}
