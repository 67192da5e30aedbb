//! basic-auth: admits only consumers, identified by username and password. Source of the behaviour:
//! kong/plugins/basic-auth/access.lua.

mod checks;
mod config;
pub(crate) mod credential;
pub(crate) mod source;

use config::Config;
use credential::BasicauthCredential;
use plugin::auth::{self, Attempt};
use plugin::base64;
use plugin::{
    BuildCx, BuildError, Credential, HeaderValue, Owned, Phases, Plugin, PluginDef, PluginError,
    RequestCx, Response, Scopes, Step,
};
use sha1::{Digest, Sha1};
use std::fmt::Write;
use subtle::ConstantTimeEq;

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<BasicAuth>("basic-auth", 1100, Phases::ACCESS, Scopes::NO_CONSUMER)
}

/// The credential of a username, its consumer, and the password that the request has.
type Given = (Owned<BasicauthCredential>, Vec<u8>);

struct BasicAuth {
    config: Config,
    /// Value of the WWW-Authenticate header.
    challenge: HeaderValue,
}

impl Plugin for BasicAuth {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let challenge = format!("Basic realm=\"{}\"", config.realm).into();
        Ok(Self { config, challenge })
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let anonymous = self.config.anonymous.as_deref();
        auth::attempt(&mut cx, anonymous, |cx| self.authenticate(cx))
    }

    fn needs(&self) -> Option<String> {
        Some(format!(
            "username and password in header `Authorization` or `Proxy-Authorization`, {}",
            auth::otherwise(self.config.anonymous.as_deref())
        ))
    }
}

impl BasicAuth {
    /// Checks Proxy-Authorization first. If it has no known username, Authorization is checked.
    fn authenticate(&self, cx: &mut RequestCx<'_, '_>) -> Result<Attempt, PluginError> {
        let mut found = self.examine(cx, "Proxy-Authorization")?;
        if found.is_none() {
            found = self.examine(cx, "Authorization")?;
        }
        let Some(((credential, consumer), password)) = found else {
            return Ok(self.refuse());
        };
        if !is_right(&password, &credential) {
            return Ok(self.refuse());
        }
        let id = credential.id.0;
        auth::authenticated(cx, consumer, Credential { id }, &*credential.username);
        Ok(Attempt::Succeeded)
    }

    /// Returns the credential and the given password from a header. Removes the header for the upstream if credentials
    /// are to be hidden.
    fn examine(
        &self,
        cx: &mut RequestCx<'_, '_>,
        header: &'static str,
    ) -> Result<Option<Given>, PluginError> {
        let given = cx.request.header(header).and_then(username_and_password);
        if self.config.hide_credentials {
            cx.request.upstream.headers.remove(header);
        }
        let Some((username, password)) = given else {
            return Ok(None);
        };
        let owner = cx.node.entities.owned_by_unique("username", &username)?;
        Ok(owner.map(|owner| (owner, password)))
    }

    fn refuse(&self) -> Attempt {
        let response = Response::error(401, "Unauthorized");
        Attempt::Refused(response.with_header("WWW-Authenticate", self.challenge.clone()))
    }
}

/// Parses `Basic <base64 of username:password>` anywhere in the value. The username must not be empty.
pub fn username_and_password(value: &[u8]) -> Option<(String, Vec<u8>)> {
    let at = value
        .windows(5)
        .position(|window| matches!(window, b"Basic" | b"basic"))?;
    let mut username = base64::decode(value[at + 5..].trim_ascii())?;
    let colon = username.iter().position(|&byte| byte == b':')?;
    let password = username.split_off(colon + 1);
    username.pop();
    let username = String::from_utf8(username).ok()?;
    (!username.is_empty()).then_some((username, password))
}

/// Checks a password by comparing hashes in constant time, so that response times reveal nothing about the stored hash.
fn is_right(password: &[u8], credential: &BasicauthCredential) -> bool {
    let given = hash(password, credential);
    given
        .as_bytes()
        .ct_eq(credential.password.as_bytes())
        .into()
}

/// Returns the hash in its stored form: lower-case hexadecimal SHA-1 of the password followed by the consumer's id.
fn hash(password: &[u8], credential: &BasicauthCredential) -> String {
    let mut sha1 = Sha1::new();
    sha1.update(password);
    sha1.update(credential.consumer.to_string());
    let mut text = String::with_capacity(40);
    for byte in sha1.finalize() {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests;
