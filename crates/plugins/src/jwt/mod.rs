//! jwt: admits only consumers, identified by a signed JSON Web Token. Source of the behaviour:
//! kong/plugins/jwt/handler.lua.

mod algorithm;
mod config;
pub(crate) mod credential;
mod key;
mod members;
mod search;
pub(crate) mod source;
pub mod token;
mod verified;

use config::{Config, TimeClaim};
use credential::JwtSecret;
use key::verify_hmac;
use members::Member;
use model::Value;
use plugin::auth::{self, Attempt};
use plugin::{
    BuildCx, BuildError, Consumer, Credential, HeaderValue, Node, Owned, Phases, Plugin, PluginDef,
    PluginError, RequestCx, Response, Scopes, Step, redact,
};
use search::Found;
use serde::Serialize;
use std::sync::{Arc, OnceLock};
use token::{Key, Token};
use verified::{Rules, Times};

/// The name of the token in `kong.ctx.shared`.
const SHARED_TOKEN: &str = "authenticated_jwt_token";

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Jwt>("jwt", 1450, Phases::ACCESS, Scopes::NO_CONSUMER)
}

struct Jwt {
    config: Config,
    rules: Rules,
    /// Whether the configuration has rules for the times in tokens.
    needs_time: bool,
    /// Value of the WWW-Authenticate header if there is no token.
    challenge: HeaderValue,
    /// Value of the WWW-Authenticate header for a token that is refused.
    challenge_with_error: HeaderValue,
    /// The names of keys in the configuration, from the start on.
    hidden: OnceLock<redact::Hidden>,
}

/// The result of checking a token.
enum Checked {
    Refused(Response),
    Right(Arc<JwtSecret>, Arc<Consumer>),
}

impl Plugin for Jwt {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let challenge = match &config.realm {
            Some(realm) => format!("Bearer realm=\"{realm}\""),
            None => "Bearer".to_owned(),
        };
        Ok(Self {
            rules: Rules::of(&config),
            needs_time: config.verifies(TimeClaim::Exp)
                || config.verifies(TimeClaim::Nbf)
                || config.longest() > 0.0,
            config,
            challenge_with_error: format!("{challenge} error=\"invalid_token\"").into(),
            challenge: challenge.into(),
            hidden: OnceLock::new(),
        })
    }

    fn start(&self, _: &Arc<Node>) {
        let Config {
            uri_param_names,
            cookie_names,
            header_names,
            ..
        } = &self.config;
        let names = [uri_param_names, cookie_names, header_names];
        let names = names.into_iter().flatten().flatten();
        self.hidden
            .get_or_init(|| redact::learn(names.map(|name| &**name)));
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        if !self.config.run_on_preflight && cx.request.method() == "OPTIONS" {
            return Ok(Step::Continue);
        }
        let anonymous = self.config.anonymous.as_deref();
        auth::attempt(&mut cx, anonymous, |cx| {
            let attempt = self.authenticate(cx)?;
            if anonymous.is_some() && matches!(attempt, Attempt::Refused(_)) {
                forget_token(cx);
            }
            Ok(attempt)
        })
    }

    fn needs(&self) -> Option<String> {
        let config = &self.config;
        let places = [
            ("query argument", &config.uri_param_names),
            ("cookie", &config.cookie_names),
            ("header", &config.header_names),
        ];
        let places = places.iter().flat_map(|(place, names)| {
            let names = names.iter().flatten();
            names.map(move |name| format!("{place} `{name}`"))
        });
        let places: Vec<String> = places.collect();
        let preflight = if config.run_on_preflight {
            ""
        } else {
            "; OPTIONS requests need none"
        };
        Some(format!(
            "a JSON Web Token in {}, {}{preflight}",
            places.join(" or "),
            auth::otherwise(config.anonymous.as_deref())
        ))
    }
}

impl Jwt {
    fn authenticate(&self, cx: &mut RequestCx<'_, '_>) -> Result<Attempt, PluginError> {
        let token = match search::tokens(cx.request, &self.config) {
            Found::Token(token) => token,
            Found::Nothing => {
                let response = Response::message(401, "Unauthorized");
                let challenge = self.challenge.clone();
                return Ok(Attempt::Refused(
                    response.with_header("WWW-Authenticate", challenge),
                ));
            }
            Found::Several => return Ok(self.refuse("Multiple tokens provided")),
            Found::Flag => return Ok(self.refuse("Unrecognizable token")),
        };
        let (credential, consumer) = match self.check(cx, &token)? {
            Checked::Right(credential, consumer) => (credential, consumer),
            Checked::Refused(response) => return Ok(Attempt::Refused(response)),
        };
        let token = String::from_utf8(token.into_owned());
        let token = token.map_err(|_| PluginError::new("a readable token is not ASCII"))?;
        cx.state.shared.insert(SHARED_TOKEN, token.into());
        let id = credential.id.0;
        auth::authenticated(cx, consumer, Credential { id }, &*credential.key);
        Ok(Attempt::Succeeded)
    }

    /// Checks a token in the order of Kong's handler. What was found out about the same token before is not found out
    /// again.
    fn check(&self, cx: &RequestCx<'_, '_>, text: &[u8]) -> Result<Checked, PluginError> {
        if let Some(known) = verified::find(text, &self.rules)
            && let Some((credential, consumer)) = look_up(cx, &known.key)?
            && known.is_of(&credential)
        {
            return Ok(self.judge(cx, credential, consumer, &known.times));
        }
        let name = self.config.key_claim();
        let refused = |message: &str| Ok(Checked::Refused(self.refusal(message)));
        let token = match Token::read(text, name) {
            Ok(token) => token,
            Err(problem) => return refused(&problem.to_string()),
        };
        let key = match token.key() {
            Key::Absent => return refused(&format!("No mandatory '{name}' in claims")),
            Key::Invalid => return refused(&format!("Invalid '{name}' in claims")),
            Key::Text(key) => key,
        };
        let Some((credential, consumer)) = look_up(cx, key)? else {
            return refused(&format!("No credentials found for given '{name}'"));
        };
        // The algorithm of the credential decides how its key is used. The token's own word only has to agree, so that
        // no public key becomes the secret of an HMAC.
        if token.algorithm != credential.algorithm {
            return refused("Invalid algorithm");
        }
        match self.verify(&token, &credential)? {
            Some(true) => {}
            Some(false) => return refused("Invalid signature"),
            None => return refused("Invalid key/secret"),
        }
        let times = Times {
            exp: token.exp,
            nbf: token.nbf,
        };
        verified::keep(text, &self.rules, &credential, &times);
        Ok(self.judge(cx, credential, consumer, &times))
    }

    /// Judges a token whose signature is right by its times.
    fn judge(
        &self,
        cx: &RequestCx<'_, '_>,
        credential: Arc<JwtSecret>,
        consumer: Arc<Consumer>,
        times: &Times,
    ) -> Checked {
        if !self.needs_time {
            return Checked::Right(credential, consumer);
        }
        let now = cx.node.clock.since_epoch().as_secs() as f64;
        match self.check_times(times, now) {
            Some(problems) => Checked::Refused(self.challenged(Response::json(401, &problems))),
            None => Checked::Right(credential, consumer),
        }
    }

    /// Verifies the signature. Returns `None` if the credential has no key. A public key that cannot be used is a mistake
    /// of the configuration, and thus an error.
    fn verify(
        &self,
        token: &Token<'_>,
        credential: &JwtSecret,
    ) -> Result<Option<bool>, PluginError> {
        if credential.algorithm.is_symmetric() {
            let verify = |secret: &[u8]| {
                // Everybody could sign with an empty secret, to which a base64 text of padding decodes.
                let is_given = !secret.is_empty();
                is_given
                    .then(|| verify_hmac(token.algorithm, secret, token.signed, &token.signature))
            };
            let Some(secret) = &credential.secret else {
                return Ok(None);
            };
            return Ok(match self.config.secret_is_base64 {
                true => token::decode(secret.as_bytes()).and_then(|secret| verify(&secret)),
                false => verify(secret.as_bytes()),
            });
        }
        let failed = |problem: &dyn std::fmt::Display| {
            let id = credential.id.0;
            PluginError::new(format!("the credential {id} cannot be used: {problem}"))
        };
        let key = match &credential.public_key {
            None => return Ok(None),
            Some(Ok(key)) => key,
            Some(Err(problem)) => return Err(failed(problem)),
        };
        if key.is_short && self.config.accept_short_rsa_keys != Some(true) {
            return Err(failed(&SHORT_KEY));
        }
        Ok(Some(key.verify(token.signed, &token.signature)))
    }

    fn check_times(&self, times: &Times, now: f64) -> Option<TimeProblems> {
        const NO_NUMBER: &str = "must be a number";
        let config = &self.config;
        let mut problems = TimeProblems::default();
        if config.verifies(TimeClaim::Exp) {
            problems.exp = match times.exp {
                Member::Number(exp) => (exp <= now).then_some("token expired"),
                _ => Some(NO_NUMBER),
            };
        }
        if config.verifies(TimeClaim::Nbf) {
            problems.nbf = match times.nbf {
                Member::Number(nbf) => (nbf > now).then_some("token not valid yet"),
                _ => Some(NO_NUMBER),
            };
        }
        let longest = config.longest();
        if problems.is_none() && longest > 0.0 {
            let is_within = matches!(times.exp, Member::Number(exp) if exp - now <= longest);
            problems.exp = (!is_within).then_some("exceeds maximum allowed expiration");
        }
        (!problems.is_none()).then_some(problems)
    }

    fn refuse(&self, message: &str) -> Attempt {
        Attempt::Refused(self.refusal(message))
    }

    fn refusal(&self, message: &str) -> Response {
        self.challenged(Response::message(401, message))
    }

    fn challenged(&self, response: Response) -> Response {
        response.with_header("WWW-Authenticate", self.challenge_with_error.clone())
    }
}

/// Returns the credential with this key, and its consumer.
fn look_up(cx: &RequestCx<'_, '_>, key: &str) -> Result<Option<Owned<JwtSecret>>, PluginError> {
    Ok(cx.node.entities.owned_by_unique("key", key)?)
}

/// Removes the token that an earlier plugin or Lua code has shared: it is not that of the anonymous consumer.
fn forget_token(cx: &mut RequestCx<'_, '_>) {
    cx.state.shared.remove(SHARED_TOKEN);
    if cx.state.interpreter.is_some() {
        // Lua code may have the token in its own table.
        cx.state.shared.insert(SHARED_TOKEN, Value::Null);
    }
}

const SHORT_KEY: &str =
    "its RSA key has less than 2048 bits, and config.accept_short_rsa_keys is not set";

/// The body of a response to a token outside of its time.
#[derive(Default, Serialize)]
struct TimeProblems {
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nbf: Option<&'static str>,
}

impl TimeProblems {
    fn is_none(&self) -> bool {
        self.exp.is_none() && self.nbf.is_none()
    }
}

#[cfg(test)]
mod tests;
