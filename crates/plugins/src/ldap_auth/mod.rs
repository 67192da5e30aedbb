//! ldap-auth: admits only users whose name and password a directory accepts. Source of the behaviour:
//! kong/plugins/ldap-auth/access.lua.

mod config;
pub(crate) mod given;
mod results;
pub(crate) mod source;

use config::Config;
use given::Given;
use plugin::auth::{self, Attempt};
use plugin::{
    BuildCx, BuildError, Credential, HeaderValue, Node, Phases, Plugin, PluginDef, PluginError,
    RequestCx, Response, Scopes, Step,
};
use results::{Key, Results};
use services::Clock;
use services::ldap::{Refusal, Server, Verdict};
use smallvec::SmallVec;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use uuid::Uuid;

const NAME: &str = "ldap-auth";
/// The headers with credentials, in the order in which they are tried.
const HEADERS: [&str; 2] = ["Proxy-Authorization", "Authorization"];
/// The ids of credentials are made in this namespace.
const CREDENTIALS: Uuid = Uuid::from_u128(0x8d3c_11f0_5a4e_4c1b_9e57_2f60_b7a4_d911);

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<LdapAuth>(NAME, 1200, Phases::ACCESS, Scopes::NO_CONSUMER)
}

struct LdapAuth {
    config: Config,
    /// Value of the WWW-Authenticate header.
    challenge: HeaderValue,
    ttl: Duration,
    /// What results depend on, apart from the credentials.
    identity: String,
    running: OnceLock<Running>,
}

/// What a started instance uses of the node.
struct Running {
    /// Instances with the same settings share the connections.
    server: Arc<Server>,
    /// All instances share the results.
    results: Arc<Results>,
    clock: Clock,
}

impl Plugin for LdapAuth {
    type Config = Config;
    type Own = ();

    fn build(config: Config, _: &BuildCx<'_>) -> Result<Self, BuildError> {
        let challenge = config.challenge().into();
        let (ttl, settings) = (config.ttl(), config.settings());
        // The debug form puts texts in quotation marks and escapes those in texts, so it is unambiguous.
        let identity = format!(
            "{settings:?} {:?} {:?} {ttl:?}",
            config.base_dn, config.attribute
        );
        Ok(Self {
            config,
            challenge,
            ttl,
            identity,
            running: OnceLock::new(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        let results = node.shared.get_or_try_insert(NAME, "results", Results::new);
        let Ok(results) = results else {
            tracing::error!(
                plugin = NAME,
                "the operating system gives no random numbers"
            );
            return;
        };
        let settings = self.config.settings();
        let key = format!("{settings:?}");
        let connect = || node.ldap.server(settings);
        self.running.get_or_init(|| Running {
            server: node.shared.get_or_insert(NAME, &key, connect),
            results,
            clock: node.clock.clone(),
        });
    }

    fn access<'a>(
        &'a self,
        mut cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        let anonymous = self.config.anonymous.as_deref();
        if auth::is_settled(&cx, anonymous) {
            return Ok(Step::Continue);
        }
        let running = self.running.get();
        let running = running.ok_or_else(|| PluginError::new("it was not started"))?;
        let mut left = self.candidates(&cx, running).into_iter();
        // What is known needs no wait.
        while let Some(candidate) = left.as_slice().first() {
            match running
                .results
                .get(&candidate.key, running.clock.since_beginning())
            {
                None => {
                    return Ok(Step::wait(async move {
                        let accepted = self.ask(running, left).await?;
                        let attempt = self.attempt(&mut cx, accepted);
                        auth::conclude(&mut cx, anonymous, attempt)
                    }));
                }
                Some(true) => break,
                Some(false) => left.next(),
            };
        }
        let accepted = left.next().map(|candidate| candidate.given);
        let attempt = self.attempt(&mut cx, accepted);
        Ok(auth::conclude(&mut cx, anonymous, attempt)?.into())
    }

    fn needs(&self) -> Option<String> {
        Some(format!(
            "username and password of the LDAP server {}:{} in header `Authorization` or `Proxy-Authorization`, {}",
            self.config.ldap_host,
            self.config.ldap_port,
            auth::otherwise(self.config.anonymous.as_deref())
        ))
    }
}

/// Credentials of a request, with the key of their result.
struct Candidate {
    given: Given,
    key: Key,
}

type Candidates = SmallVec<[Candidate; 2]>;

impl LdapAuth {
    fn candidates(&self, cx: &RequestCx<'_, '_>, running: &Running) -> Candidates {
        let given = HEADERS.into_iter().filter_map(|header| {
            let value = cx.request.header(header)?;
            given::parse(value, self.config.header_type())
        });
        let candidate = |given: Given| {
            let fields = [
                self.identity.as_bytes(),
                given.username.as_bytes(),
                &given.password,
            ];
            let key = running.results.key(&fields);
            Candidate { given, key }
        };
        given.map(candidate).collect()
    }

    /// Returns the first credentials that the directory accepts.
    async fn ask(
        &self,
        running: &Running,
        candidates: impl Iterator<Item = Candidate>,
    ) -> Result<Option<Given>, PluginError> {
        for candidate in candidates {
            if self.is_accepted(running, &candidate).await? {
                return Ok(Some(candidate.given));
            }
        }
        Ok(None)
    }

    /// Whether the directory accepts these credentials. Equal requests at the same time ask it once.
    async fn is_accepted(
        &self,
        running: &Running,
        candidate: &Candidate,
    ) -> Result<bool, PluginError> {
        let joined = running.results.check(candidate.key);
        // Another request may have finished a check just before this one began.
        if let Some(known) = running
            .results
            .get(&candidate.key, running.clock.since_beginning())
        {
            return Ok(known);
        }
        let outcome = joined.check().get_or_init(|| self.bind(running, candidate));
        match outcome.await {
            Ok(is_accepted) => Ok(*is_accepted),
            Err(error) => Err(PluginError::new(&**error)),
        }
    }

    /// Asks the directory and keeps its result.
    async fn bind(&self, running: &Running, candidate: &Candidate) -> Result<bool, Arc<str>> {
        let Given { username, password } = &candidate.given;
        let (attribute, base) = (&self.config.attribute, &self.config.base_dn);
        let name = given::distinguished_name(attribute, username, base);
        let verdict = running.server.bind(name, password.clone()).await;
        let verdict = verdict.map_err(|error| Arc::from(error.to_string()))?;
        let (is_accepted, lasts) = match &verdict {
            Verdict::Accepted => (true, true),
            Verdict::Refused(refusal) => {
                self.log(refusal);
                (false, !refusal.is_passing())
            }
        };
        if lasts {
            let now = running.clock.since_beginning();
            let results = &running.results;
            results.insert(candidate.key, is_accepted, now, self.ttl);
        }
        Ok(is_accepted)
    }

    /// Logs a refusal. Wrong credentials (invalidCredentials) are the clients' business; anything else may be a mistake of
    /// the configuration.
    fn log(&self, refusal: &Refusal) {
        const INVALID_CREDENTIALS: u32 = 49;
        let server = format_args!("{}:{}", self.config.ldap_host, self.config.ldap_port);
        let (code, diagnostic) = (refusal.code, &refusal.diagnostic);
        if code == INVALID_CREDENTIALS {
            tracing::info!(
                plugin = NAME,
                "the LDAP server {server} refuses credentials: {diagnostic:?}"
            );
        } else {
            tracing::warn!(
                plugin = NAME,
                "the LDAP server {server} refuses a bind with result code {code}: {diagnostic:?}"
            );
        }
    }

    fn attempt(&self, cx: &mut RequestCx<'_, '_>, accepted: Option<Given>) -> Attempt {
        let Some(Given { username, .. }) = accepted else {
            let response = Response::error(401, "Unauthorized");
            let response = response.with_header("WWW-Authenticate", self.challenge.clone());
            return Attempt::Refused(response);
        };
        if self.config.hide_credentials {
            for header in HEADERS {
                cx.request.upstream.headers.remove(header);
            }
        }
        let id = self.credential_id(&username);
        auth::authenticated_without_consumer(cx, Credential { id }, username);
        Attempt::Succeeded
    }

    /// Returns the id of a user: the same on all nodes and for all passwords.
    fn credential_id(&self, username: &str) -> Uuid {
        let Config {
            ldap_host,
            ldap_port,
            base_dn,
            attribute,
            ..
        } = &self.config;
        let user = format!("{ldap_host:?} {ldap_port} {base_dn:?} {attribute:?} {username:?}");
        Uuid::new_v5(&CREDENTIALS, user.as_bytes())
    }
}

#[cfg(test)]
mod tests;
