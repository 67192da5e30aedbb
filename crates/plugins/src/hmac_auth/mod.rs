//! hmac-auth: admits only consumers, identified by a signature of the request. Source of the behaviour:
//! kong/plugins/hmac-auth/access.lua.

mod body;
mod config;
mod credential;
pub(crate) mod header;
mod replay;
mod signature;
pub(crate) mod source;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::Tag;
use body::{Compared, Hashing, LongBody};
use config::{Algorithm, Config};
use credential::HmacauthCredential;
use header::SignatureParams;
use plugin::auth::{self, Attempt};
use plugin::base64;
use plugin::{
    BuildCx, BuildError, Credential, HeaderValue, Node, Owned, Phases, Plugin, PluginDef,
    PluginError, Request, RequestBody, RequestCx, Response, Scopes, Step,
};
use replay::{Signatures, Use};
use signature::{MAX_SIGNED, names};
use std::sync::{Arc, OnceLock};
use uuid::Uuid;

const NAME: &str = "hmac-auth";

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<HmacAuth>(NAME, 1030, Phases::ACCESS, Scopes::NO_CONSUMER)
}

/// Default of `clock_skew`, in seconds.
const CLOCK_SKEW: f64 = 300.0;

const NO_DATE: &str = "HMAC signature cannot be verified, a valid date or x-date header is required for HMAC Authentication";
const NOT_VERIFIABLE: &str = "HMAC signature cannot be verified";
const NO_MATCH: &str = "HMAC signature does not match";
const GONE: Refusal = Refusal::Unauthorized(NOT_VERIFIABLE);
const USED: &str = "HMAC signature was used before";

/// The headers that can have the date, in the order in which they are searched.
const DATE_HEADERS: [&str; 2] = ["x-date", "date"];

struct HmacAuth {
    config: Config,
    /// Maximum distance of dates in seconds. It is checked in whole seconds, as dates have no fractions.
    skew: u64,
    /// Value of the WWW-Authenticate header.
    challenge: HeaderValue,
    /// The accepted signatures, if they count only once.
    accepted: OnceLock<Arc<Signatures>>,
    /// Hashes long bodies.
    hashing: OnceLock<Arc<Hashing>>,
}

/// The state of a request: its signature is right, and its body is being read.
#[derive(Default)]
pub(crate) struct Own(Option<Verified>);

/// A request with the right signature.
struct Verified {
    owner: Owned<HmacauthCredential>,
    /// The signature and its date. `None` if it may be used again.
    once: Option<(Tag, u64)>,
}

/// The result of the checks.
enum Checked {
    Done(Attempt),
    /// The body is long, and must be compared with its digest.
    Body(Verified, LongBody),
}

/// Why a request is refused.
enum Refusal {
    Unauthorized(&'static str),
    /// Too many signatures of the credential are remembered.
    Full,
}

impl Plugin for HmacAuth {
    type Config = Config;
    type Own = Own;

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        if config.require_signed_digest == Some(true) && !config.validate_request_body {
            let message = "it needs validate_request_body, which compares the digest";
            return Err(BuildError::field("require_signed_digest", message));
        }
        let challenge = match &config.realm {
            Some(realm) => format!("hmac realm=\"{realm}\"").into(),
            None => HeaderValue::from_static("hmac"),
        };
        // The cast keeps within the bounds of the type.
        let skew = config.clock_skew.unwrap_or(CLOCK_SKEW).floor() as u64;
        Ok(Self {
            config,
            skew,
            challenge,
            accepted: OnceLock::new(),
            hashing: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        if self.config.validate_request_body {
            let hashing = || node.shared.get_or_insert(NAME, "hashing", Hashing::new);
            self.hashing.get_or_init(hashing);
        }
        if self.refuses_replays() {
            // All plugins of the node share the table, because a signature may fit several routes.
            let table = || {
                node.shared
                    .get_or_insert(NAME, "signatures", Signatures::new)
            };
            let table = self.accepted.get_or_init(table);
            table.extend(self.skew);
            table.tend(&node.background, &node.clock);
        }
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        own: &'a mut Own,
    ) -> Result<Step<'a>, PluginError> {
        let anonymous = self.config.anonymous.as_deref();
        if auth::is_settled(&cx, anonymous) {
            return Ok(Step::Continue);
        }
        let (verified, body) = match self.check(&mut cx, own)? {
            Checked::Done(attempt) => {
                return Ok(auth::conclude(&mut cx, anonymous, attempt)?.into());
            }
            Checked::Body(verified, body) => (verified, body),
        };
        let hashing = self.hashing.get().ok_or_else(not_started)?;
        Ok(Step::wait_for_client(async move {
            let attempt = match hashing.compare(body).await? {
                false => self.refuse(Refusal::Unauthorized(NO_MATCH)),
                // This may have taken long, too.
                true if !is_current(&cx, &verified)? => self.refuse(GONE),
                true => self.admit(&mut cx, verified)?,
            };
            auth::conclude(&mut cx, anonymous, attempt)
        }))
    }

    fn needs(&self) -> Option<String> {
        Some(format!(
            "an HMAC signature in header `Authorization` or `Proxy-Authorization`, {}",
            auth::otherwise(self.config.anonymous.as_deref())
        ))
    }
}

impl HmacAuth {
    fn refuses_replays(&self) -> bool {
        self.config.refuse_replays == Some(true)
    }

    /// Checks the head first. Only if its signature is right, the body is read, and this runs again.
    fn check(&self, cx: &mut RequestCx<'_, '_>, own: &mut Own) -> Result<Checked, PluginError> {
        let refused = |refusal| Ok(Checked::Done(self.refuse(refusal)));
        let verified = match own.0.take() {
            // The body may have taken long, and the credential may be gone.
            Some(verified) if !is_current(cx, &verified)? => return refused(GONE),
            Some(verified) => verified,
            None => match self.verify(cx)? {
                Ok(verified) => verified,
                Err(refusal) => return refused(refusal),
            },
        };
        if self.config.validate_request_body {
            if matches!(cx.request.body, RequestBody::Unread) {
                own.0 = Some(verified);
                return Ok(Checked::Done(Attempt::NeedsBody));
            }
            match body::compare(cx.request) {
                Compared::Right => {}
                Compared::Wrong => return refused(Refusal::Unauthorized(NO_MATCH)),
                Compared::Later(body) => return Ok(Checked::Body(verified, body)),
            }
        }
        self.admit(cx, verified).map(Checked::Done)
    }

    /// Admits a request that has passed all other checks. Its signature is used up last, because only a request that is
    /// admitted does so.
    fn admit(
        &self,
        cx: &mut RequestCx<'_, '_>,
        verified: Verified,
    ) -> Result<Attempt, PluginError> {
        if let Some((signature, date)) = &verified.once
            && let Err(refusal) = self.use_up(cx.node, verified.owner.0.id.0, signature, *date)?
        {
            return Ok(self.refuse(refusal));
        }
        let (credential, consumer) = verified.owner;
        let id = credential.id.0;
        auth::authenticated(cx, consumer, Credential { id }, &*credential.username);
        Ok(Attempt::Succeeded)
    }

    /// Checks the signature. The order of the checks is Kong's.
    fn verify(&self, cx: &mut RequestCx<'_, '_>) -> Result<Result<Verified, Refusal>, PluginError> {
        let now = cx.node.clock.since_epoch().as_secs();
        let refused = |message| Ok(Err(Refusal::Unauthorized(message)));
        let request = &*cx.request;
        let [proxy_authorization, authorization] =
            ["Proxy-Authorization", "Authorization"].map(|name| request.header(name));
        if proxy_authorization.is_none() && authorization.is_none() {
            return refused("Unauthorized");
        }
        if self.dates(request, now).next().is_none() {
            return refused(NO_DATE);
        }
        let from_proxy = proxy_authorization.and_then(header::parse);
        let used = match from_proxy {
            Some(_) => "Proxy-Authorization",
            None => "Authorization",
        };
        let params = from_proxy.or_else(|| authorization.and_then(header::parse));
        let result = match params {
            Some(params) => self.verify_params(cx, params, now)?,
            None => Err(Refusal::Unauthorized(NOT_VERIFIABLE)),
        };
        if self.config.hide_credentials {
            cx.request.upstream.headers.remove(used);
        }
        Ok(result)
    }

    fn verify_params(
        &self,
        cx: &RequestCx<'_, '_>,
        params: SignatureParams<'_>,
        now: u64,
    ) -> Result<Result<Verified, Refusal>, PluginError> {
        let refused = |message| Ok(Err(Refusal::Unauthorized(message)));
        let Some(algorithm) = self.algorithm(params.algorithm) else {
            return refused(NOT_VERIFIABLE);
        };
        if !self.signs_enough(params.headers) {
            return refused(NOT_VERIFIABLE);
        }
        let date = self.signed_date(cx.request, params.headers, now);
        let can_be_replayed =
            date.is_none() || !self.has_only_near_dates(cx.request, params.headers, now);
        if self.refuses_replays() && can_be_replayed {
            return refused(NOT_VERIFIABLE);
        }
        // Usernames are texts, so that no credential matches invalid UTF-8.
        let Ok(username) = std::str::from_utf8(params.username) else {
            return refused(NOT_VERIFIABLE);
        };
        let owner: Option<Owned<HmacauthCredential>> =
            cx.node.entities.owned_by_unique("username", username)?;
        let Some(owner) = owner else {
            return refused(NOT_VERIFIABLE);
        };
        // Everybody could sign with an empty secret.
        let Some(secret) = &owner.0.secret else {
            return refused(NOT_VERIFIABLE);
        };
        let Some(right) = signature::sign(cx.request, params.headers, algorithm, secret) else {
            return refused(NOT_VERIFIABLE);
        };
        let given = base64::decode(params.signature).unwrap_or_default();
        if verify_slices_are_equal(right.as_ref(), &given).is_err() {
            return refused(NO_MATCH);
        }
        let once = date.filter(|_| self.refuses_replays());
        let once = once.map(|date| (right, date));
        Ok(Ok(Verified { owner, once }))
    }

    /// Returns the names and values of the date headers whose date is near enough.
    fn dates<'s>(
        &'s self,
        request: &'s Request<'_>,
        now: u64,
    ) -> impl Iterator<Item = (&'static str, u64)> {
        let dates = DATE_HEADERS.into_iter().filter_map(|name| {
            let date = signature::parse_date(request.header(name)?)?;
            Some((name, date))
        });
        dates.filter(move |(_, date)| date.abs_diff(now) <= self.skew)
    }

    /// Returns the latest signed date of the request that is near enough. Returns `None` if the client has signed no date
    /// that is near enough: anybody could give such a request another date.
    fn signed_date(&self, request: &Request<'_>, headers: &[u8], now: u64) -> Option<u64> {
        let dates = self.dates(request, now);
        let signed = dates.filter(|(name, _)| lists(headers, name));
        signed.map(|(_, date)| date).max()
    }

    /// Whether each date header that is signed is near enough. A signature with a second date, which comes near later,
    /// could be used again then.
    fn has_only_near_dates(&self, request: &Request<'_>, headers: &[u8], now: u64) -> bool {
        let mut signed = DATE_HEADERS
            .into_iter()
            .filter(|name| lists(headers, name) && request.header(name).is_some());
        signed.all(|name| self.dates(request, now).any(|(near, _)| near == name))
    }

    fn algorithm(&self, name: &[u8]) -> Option<Algorithm> {
        let allowed = self.config.algorithms.as_deref();
        let mut allowed = allowed.unwrap_or(&Algorithm::ALL).iter();
        allowed.find(|one| one.name().as_bytes() == name).copied()
    }

    /// Whether all headers are signed that must be.
    fn signs_enough(&self, headers: &[u8]) -> bool {
        if names(headers).nth(MAX_SIGNED).is_some() {
            return false;
        }
        let mut enforced = self.config.enforce_headers.iter().flatten();
        let has_enforced =
            enforced.all(|enforced| names(headers).any(|name| name == enforced.as_bytes()));
        has_enforced
            && (self.config.require_signed_digest != Some(true) || lists(headers, "digest"))
    }

    /// Notes that a signature was used. Returns a refusal if it was used before.
    fn use_up(
        &self,
        node: &Node,
        credential: Uuid,
        signature: &Tag,
        date: u64,
    ) -> Result<Result<(), Refusal>, PluginError> {
        let accepted = self.accepted.get();
        let accepted = accepted.ok_or_else(not_started)?;
        let now = node.clock.since_epoch().as_secs();
        // The date was near when the head came, but the body took longer. What is noted now would be forgotten at once.
        if now > date.saturating_add(self.skew) {
            return Ok(Err(Refusal::Unauthorized(NO_DATE)));
        }
        Ok(
            match accepted.note(credential, signature.as_ref(), date, now) {
                Use::First => Ok(()),
                Use::Again => Err(Refusal::Unauthorized(USED)),
                Use::Full => {
                    accepted.warn_of_full(credential, now);
                    Err(Refusal::Full)
                }
            },
        )
    }

    fn refuse(&self, refusal: Refusal) -> Attempt {
        match refusal {
            Refusal::Unauthorized(message) => Attempt::Refused(
                Response::error(401, message)
                    .with_header("WWW-Authenticate", self.challenge.clone()),
            ),
            Refusal::Full => Attempt::Undecided(Response::status_error(503)),
        }
    }
}

fn not_started() -> PluginError {
    PluginError::new("it was not started")
}

/// Whether the credential is still the one that the request was verified with.
fn is_current(cx: &RequestCx<'_, '_>, verified: &Verified) -> Result<bool, PluginError> {
    let known = &verified.owner.0;
    let current: Option<Owned<HmacauthCredential>> = cx.node.entities.owned_by_id(known.id.0)?;
    Ok(current.is_some_and(|(current, _)| {
        current.secret == known.secret && current.consumer == known.consumer
    }))
}

/// Whether the list of signed headers has this name, in any case.
fn lists(headers: &[u8], name: &str) -> bool {
    names(headers).any(|one| one.eq_ignore_ascii_case(name.as_bytes()))
}

#[cfg(test)]
mod tests;
