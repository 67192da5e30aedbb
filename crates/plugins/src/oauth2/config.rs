//! The configuration of oauth2, after its schema has set the defaults.

use compact_str::CompactString;
use plugin::BuildError;
use serde::Deserialize;

/// There is no `Debug`, because it would show the keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// The scopes that clients may ask for. Default: none, and what clients ask for is ignored.
    pub(super) scopes: Option<Vec<CompactString>>,
    /// Whether clients must ask for a scope. Default: false.
    pub(super) mandatory_scope: bool,
    /// What the back end of the operator proves itself with. Default: random.
    pub(super) provision_key: CompactString,
    /// Seconds that access tokens live. 0: they do not expire. Default: 7200.
    pub(super) token_expiration: f64,
    /// Default: false.
    pub(super) enable_authorization_code: bool,
    /// Default: false.
    pub(super) enable_implicit_grant: bool,
    /// Default: false.
    pub(super) enable_client_credentials: bool,
    /// Default: false.
    pub(super) enable_password_grant: bool,
    /// Whether to remove the token from the request for the upstream. Default: false.
    pub(super) hide_credentials: bool,
    /// Whether to believe the header `X-Forwarded-Proto` of trusted peers. Default: false.
    pub(super) accept_http_if_already_terminated: bool,
    /// Id or username of the consumer for requests without a valid token. Default: such requests are refused.
    pub(super) anonymous: Option<CompactString>,
    /// Whether tokens are valid for all services whose plugin sets this field. Default: false.
    pub(super) global_credentials: bool,
    /// The header with the token, and with the credentials of clients. Default: `authorization`.
    pub(super) auth_header_name: Option<CompactString>,
    /// Seconds that rows of tokens live. 0: they are kept. Default: 1209600.
    pub(super) refresh_token_ttl: f64,
    /// Whether a refresh token stays the same. Default: false.
    pub(super) reuse_refresh_token: bool,
    /// Which clients must use PKCE. Default: `lax`.
    pub(super) pkce: Option<Pkce>,
    /// Realm in the WWW-Authenticate header. Default: none.
    pub(super) realm: Option<CompactString>,

    // Kong does not have the fields from here on.
    /// Whether the plugin behaves as Kong's, or as RFC 9700 requires. Default: `kong`.
    pub(super) oauth2_profile: Option<Profile>,
    /// What follows when a refresh token is used again. Default: `refuse`; with `rfc9700` it is `revoke_family`.
    pub(super) on_refresh_replay: Option<OnReplay>,
    /// Seconds in which a refresh token may be used a second time, because the response to the first was lost. Default: 0.
    pub(super) refresh_grace: Option<i64>,
    /// Whether there is the endpoint of RFC 7662. Default: false.
    pub(super) introspection: Option<bool>,
    /// Whether there is the endpoint of RFC 7009. Default: false.
    pub(super) revocation: Option<bool>,
    /// Whether there is the endpoint of RFC 8414. Default: false.
    pub(super) metadata: Option<bool>,
    /// The URL that names this authorization server.
    pub(super) issuer: Option<CompactString>,
    /// The URL of the operator's login page, for the metadata.
    pub(super) authorization_endpoint: Option<CompactString>,
    /// A private key in PEM, with which access tokens are signed. Default: access tokens are random texts in the store.
    pub(super) signing_key: Option<String>,
    /// Public keys in PEM whose signatures are accepted too, such as the previous one.
    pub(super) verification_keys: Option<Vec<String>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Pkce {
    /// No client must.
    None,
    /// Public clients must.
    Lax,
    /// All clients must.
    Strict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Profile {
    Kong,
    Rfc9700,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnReplay {
    Refuse,
    /// The tokens that have followed from the refresh token end.
    RevokeFamily,
}

impl Config {
    /// Whether the plugin follows RFC 9700 where Kong does not.
    pub(super) fn is_strict(&self) -> bool {
        self.oauth2_profile == Some(Profile::Rfc9700)
    }

    pub(super) fn header_name(&self) -> &str {
        self.auth_header_name.as_deref().unwrap_or("authorization")
    }

    pub(super) fn allows_implicit(&self) -> bool {
        self.enable_implicit_grant && !self.is_strict()
    }

    pub(super) fn allows_password(&self) -> bool {
        self.enable_password_grant && !self.is_strict()
    }

    /// Seconds that access tokens live. A fraction counts as a whole second, so that it does not become "for ever".
    pub(super) fn expires_in(&self) -> i64 {
        seconds(self.token_expiration)
    }

    /// Seconds that the row of a token lives. `None`: it does not end.
    pub(super) fn ttl(&self) -> Option<i64> {
        let ttl = seconds(self.refresh_token_ttl);
        (ttl > 0 && self.expires_in() > 0).then_some(ttl)
    }

    pub(super) fn revokes_on_replay(&self) -> bool {
        match self.on_refresh_replay {
            Some(on_replay) => on_replay == OnReplay::RevokeFamily,
            None => self.is_strict(),
        }
    }

    /// Refuses what cannot work.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        let needs_issuer = [
            (
                self.is_strict(),
                "oauth2_profile",
                "rfc9700 needs the field issuer",
            ),
            (
                self.metadata == Some(true),
                "metadata",
                "it needs the field issuer",
            ),
            (
                self.signing_key.is_some(),
                "signing_key",
                "it needs the field issuer",
            ),
        ];
        for (is_set, field, reason) in needs_issuer {
            if is_set && self.issuer.is_none() {
                return Err(BuildError::field(field, reason));
            }
        }
        let asks_users = self.enable_authorization_code || self.allows_implicit();
        if self.metadata == Some(true) && asks_users && self.authorization_endpoint.is_none() {
            // RFC 8414 section 2: only a server without these grants has none.
            let reason =
                "the grants authorization code and implicit need the field authorization_endpoint";
            return Err(BuildError::field("metadata", reason));
        }
        if self.signing_key.is_some() && self.expires_in() == 0 {
            let reason = "signed tokens must expire: token_expiration is 0";
            return Err(BuildError::field("signing_key", reason));
        }
        if self.signing_key.is_none() && self.verification_keys.is_some() {
            let reason = "it needs the field signing_key";
            return Err(BuildError::field("verification_keys", reason));
        }
        match &self.issuer {
            Some(issuer) => check_issuer(issuer),
            None => Ok(()),
        }
    }
}

/// RFC 8414 section 2: an https URL without query and fragment.
fn check_issuer(issuer: &str) -> Result<(), BuildError> {
    let rest = issuer.strip_prefix("https://");
    let host = rest.and_then(|rest| rest.split('/').next());
    match host {
        Some(host) if !host.is_empty() && !issuer.contains(['?', '#', ' ']) => Ok(()),
        _ => Err(BuildError::field(
            "issuer",
            "it must be an https URL without query and fragment",
        )),
    }
}

fn seconds(value: f64) -> i64 {
    value.max(0.0).ceil() as i64
}
