//! The configuration of jwt, after its schema has set the defaults. An explicit null in a list means an empty list.

use compact_str::CompactString;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Names of query arguments that may have the token. Default: `jwt`.
    pub(super) uri_param_names: Option<Vec<CompactString>>,
    /// Names of cookies that may have the token. Default: none.
    pub(super) cookie_names: Option<Vec<CompactString>>,
    /// Names of headers that may have the token, after `Bearer`. Default: `authorization`.
    pub(super) header_names: Option<Vec<CompactString>>,
    /// The claim with the key of the credential. If the claims do not have it, the token's header may. Default: `iss`.
    pub(super) key_claim_name: Option<CompactString>,
    /// Whether the secrets of credentials are base64url. Default: false.
    pub(super) secret_is_base64: bool,
    /// The times in the token to verify. Default: none.
    pub(super) claims_to_verify: Option<Vec<TimeClaim>>,
    /// Maximum number of seconds from now to the time in `exp`. Default: 0, which means no limit.
    pub(super) maximum_expiration: Option<f64>,
    /// Id or username of the consumer for requests without a valid token. Default: such requests are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Whether OPTIONS requests need a token too. Default: true.
    pub(super) run_on_preflight: bool,
    /// Realm in the WWW-Authenticate header. Default: none.
    pub(super) realm: Option<CompactString>,
    /// Whether RSA keys of 1,024 to 2,047 bits verify RS256 and RS512. Kong has no such field. Default: false.
    pub(super) accept_short_rsa_keys: Option<bool>,
}

/// A claim with a time (RFC 7519, sections 4.1.4 and 4.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TimeClaim {
    Exp,
    Nbf,
}

impl Config {
    pub(super) fn key_claim(&self) -> &str {
        self.key_claim_name.as_deref().unwrap_or("iss")
    }

    /// Maximum number of seconds from now to the time in `exp`; 0 for no limit.
    pub(super) fn longest(&self) -> f64 {
        self.maximum_expiration.unwrap_or(0.0)
    }

    pub(super) fn verifies(&self, claim: TimeClaim) -> bool {
        let claims = self.claims_to_verify.as_deref().unwrap_or_default();
        claims.contains(&claim)
    }
}
