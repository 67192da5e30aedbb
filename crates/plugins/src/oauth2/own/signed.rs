//! Signed access tokens (RFC 9068): JSON Web Tokens of the type `at+jwt`. This file reads and writes their parts.

use data_encoding::BASE64URL_NOPAD;
use plugin::PluginError;
use serde::{Deserialize, Serialize};

/// The type of the tokens. It keeps other tokens that the same key has signed from being access tokens.
const TYPE: &str = "at+jwt";
/// Maximum length of a token. Headers are limited; a token in a body could be longer.
const MAX_TOKEN: usize = 16 * 1024;

/// The parts of a token.
#[derive(Debug, PartialEq, Eq)]
pub struct Parts<'t> {
    pub header: &'t str,
    pub claims: &'t str,
    /// What the signature covers: header and claims.
    pub signed: &'t str,
    pub signature: &'t str,
}

/// Splits a token at its two dots.
pub fn split(token: &str) -> Option<Parts<'_>> {
    if token.len() > MAX_TOKEN {
        return None;
    }
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    (!claims.contains('.')).then_some(Parts {
        header,
        claims,
        signed,
        signature,
    })
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Header {
    typ: String,
    alg: String,
    kid: String,
    /// Extensions that must be understood (RFC 7515 section 4.1.11). None is.
    #[serde(default, skip_serializing)]
    crit: Option<serde::de::IgnoredAny>,
}

impl Header {
    pub(super) fn of(algorithm: &str, kid: &str) -> Self {
        Self {
            typ: TYPE.to_owned(),
            alg: algorithm.to_owned(),
            kid: kid.to_owned(),
            crit: None,
        }
    }

    /// Writes the header with the dot that follows it.
    pub(super) fn write(&self) -> String {
        let json = serde_json::to_vec(self).unwrap_or_default();
        BASE64URL_NOPAD.encode(&json) + "."
    }

    /// Reads a header of the right type.
    pub fn read(part: &str) -> Option<Self> {
        let header: Self = read(part)?;
        let name = header
            .typ
            .strip_prefix("application/")
            .unwrap_or(&header.typ);
        (name.eq_ignore_ascii_case(TYPE) && header.crit.is_none()).then_some(header)
    }

    pub(super) fn names(&self, kid: &str, algorithm: &str) -> bool {
        self.kid == kid && self.alg == algorithm
    }
}

/// The claims (RFC 9068 section 2.2).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub iss: String,
    pub exp: i64,
    /// The id of the service, or the issuer for a token that is valid for several services.
    pub aud: String,
    /// The user, or the client if there is none.
    pub sub: String,
    pub client_id: String,
    pub iat: i64,
    pub jti: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
}

impl Claims {
    pub(super) fn write(&self) -> Result<String, PluginError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| PluginError::caused_by("claims cannot be written", error))?;
        Ok(BASE64URL_NOPAD.encode(&json))
    }

    pub fn read(part: &str) -> Option<Self> {
        read(part)
    }
}

fn read<T: serde::de::DeserializeOwned>(part: &str) -> Option<T> {
    let json = BASE64URL_NOPAD.decode(part.as_bytes()).ok()?;
    serde_json::from_slice(&json).ok()
}
