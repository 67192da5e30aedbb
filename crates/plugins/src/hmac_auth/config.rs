//! The configuration of hmac-auth, after its schema has set the defaults.

use aws_lc_rs::hmac;
use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Whether to remove the header with the signature from the request for the upstream. Default: false.
    pub(super) hide_credentials: bool,
    /// Maximum number of seconds between the date of the request and the time of the node. Default: 300.
    pub(super) clock_skew: Option<f64>,
    /// Id or username of the consumer for requests without a valid signature. Default: such requests are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Whether to compare the body with the header `Digest`. Default: false.
    pub(super) validate_request_body: bool,
    /// Names that the list of signed headers must have. They are compared with their case. Default: none.
    pub(super) enforce_headers: Option<Vec<CompactString>>,
    /// The algorithms that a client may choose. Default: all.
    pub(super) algorithms: Option<Vec<Algorithm>>,
    /// Realm in the WWW-Authenticate header. Default: none.
    pub(super) realm: Option<CompactString>,
    /// Whether the header `Digest` must be among the signed ones, so that nobody can replace the body and its digest. Kong
    /// lacks this field. Default: false.
    #[serde(default)]
    pub(super) require_signed_digest: Option<bool>,
    /// Whether a signature is accepted only once. The date of the request must be signed then. Kong lacks this field.
    /// Default: false.
    #[serde(default)]
    pub(super) refuse_replays: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) enum Algorithm {
    #[serde(rename = "hmac-sha1")]
    Sha1,
    #[serde(rename = "hmac-sha256")]
    Sha256,
    #[serde(rename = "hmac-sha384")]
    Sha384,
    #[serde(rename = "hmac-sha512")]
    Sha512,
}

impl Algorithm {
    pub(super) const ALL: [Self; 4] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512];

    /// The name in configurations and in requests.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sha1 => "hmac-sha1",
            Self::Sha256 => "hmac-sha256",
            Self::Sha384 => "hmac-sha384",
            Self::Sha512 => "hmac-sha512",
        }
    }

    pub(super) fn hmac(self) -> hmac::Algorithm {
        match self {
            // HMAC needs no hash that resists collisions, so that SHA-1 is still good enough (RFC 6194, section 3.3).
            Self::Sha1 => hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY,
            Self::Sha256 => hmac::HMAC_SHA256,
            Self::Sha384 => hmac::HMAC_SHA384,
            Self::Sha512 => hmac::HMAC_SHA512,
        }
    }
}
