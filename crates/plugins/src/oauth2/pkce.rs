//! Proof Key for Code Exchange (RFC 7636). Source of the behaviour: kong/plugins/oauth2/access.lua.

use super::answer::Refusal;
use super::config::{Config, Pkce};
use super::credential::Oauth2Credential;
use super::parameters::Parameters;
use aws_lc_rs::digest;
use data_encoding::BASE64URL_NOPAD;
use subtle::ConstantTimeEq;
use tokens::NewCode;

/// The only method that Kong supports.
const METHOD: &str = "S256";

/// The challenge of an authorization request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    pub(super) challenge: Option<String>,
    pub(super) method: Option<String>,
}

/// Whether a client must use PKCE.
fn is_required(client: &Oauth2Credential, config: &Config) -> bool {
    let pkce = config.pkce.unwrap_or(Pkce::Lax);
    config.is_strict()
        || match client.is_public() {
            true => pkce != Pkce::None,
            false => pkce == Pkce::Strict,
        }
}

/// Reads the challenge of an authorization request. The client is not known if another error was found.
pub(super) fn challenge(
    parameters: &Parameters<'_>,
    client: Option<&Oauth2Credential>,
    config: &Config,
) -> Result<Challenge, Refusal> {
    let refuse = |description: &'static str| Err(Refusal::new("invalid_request", description));
    let given = parameters.get("code_challenge");
    let method = parameters.get("code_challenge_method");
    if !given.is_given() {
        if method.is_given() {
            return refuse("code_challenge is required when code_method is present");
        }
        return match client {
            Some(client) if is_required(client, config) => refuse(match client.is_public() {
                true => "code_challenge is required for public clients",
                false => "code_challenge is required for confidential clients",
            }),
            _ => Ok(Challenge::default()),
        };
    }
    if method.is_given()
        && !method
            .text()
            .is_some_and(|method| method.eq_ignore_ascii_case(METHOD))
    {
        return refuse("code_challenge_method is not supported, must be S256");
    }
    let Some(given) = given.text() else {
        return refuse("code_challenge is not a string");
    };
    Ok(Challenge {
        challenge: Some(normal(given)),
        method: Some(METHOD.to_owned()),
    })
}

/// Longest challenge that is kept. No verifier leads to a longer one than 43 letters, so of others the beginning is enough
/// to refuse every verifier.
const LONGEST: usize = 128;

/// Returns the challenge in base64url without padding. One that cannot be decoded stays as it is.
fn normal(challenge: &str) -> String {
    let challenge = &challenge[..challenge.floor_char_boundary(LONGEST)];
    let plain: String = challenge
        .chars()
        .map(|letter| match letter {
            '-' => '+',
            '_' => '/',
            other => other,
        })
        .collect();
    match plugin::base64::decode(plain.as_bytes()) {
        Some(bytes) => BASE64URL_NOPAD.encode(&bytes),
        None => challenge.to_owned(),
    }
}

/// Checks the verifier of a token request.
pub(super) fn verify(
    parameters: &Parameters<'_>,
    code: &NewCode,
    client: &Oauth2Credential,
    config: &Config,
) -> Result<(), Refusal> {
    let refuse = |description: &'static str| Err(Refusal::new("invalid_request", description));
    let verifier = parameters.get("code_verifier");
    // A verifier for a code without a challenge means that somebody has removed the challenge (RFC 9700 section 2.1.1).
    let is_downgraded = config.is_strict() && verifier.is_given();
    let is_checked =
        code.challenge_method.is_some() || is_required(client, config) || is_downgraded;
    if !is_checked {
        return Ok(());
    }
    if !verifier.is_given() {
        return refuse("code_verifier is required for PKCE authorization requests");
    }
    let Some(verifier) = verifier.text() else {
        return refuse("code_verifier is not a string");
    };
    if !(43..=128).contains(&verifier.len()) {
        return refuse("code_verifier must be between 43 and 128 characters");
    }
    let hash = digest::digest(&digest::SHA256, verifier.as_bytes());
    let expected = BASE64URL_NOPAD.encode(hash.as_ref());
    match &code.challenge {
        Some(challenge) if bool::from(challenge.as_bytes().ct_eq(expected.as_bytes())) => Ok(()),
        _ => Err(Refusal::new("invalid_grant", "Invalid code")),
    }
}
