//! oauth2: issues tokens to clients, and admits requests with one. Source of the behaviour:
//! kong/plugins/oauth2/access.lua. What Kong does not have is in `own`.

mod answer;
mod authorize;
mod check;
mod checks;
pub(crate) mod client;
mod config;
pub(crate) mod credential;
mod endpoint;
mod grants;
mod issue;
mod metrics;
pub(crate) mod own;
mod parameters;
mod pkce;
pub(crate) mod redirect;
mod scope;
pub(crate) mod search;
mod secrets;
pub(crate) mod source;
mod token;
mod turns;

use bytes::Bytes;
use check::Challenges;
use config::Config;
use endpoint::Endpoint;
use metrics::Counts;
use own::keys::Keys;
use plugin::auth;
use plugin::{
    BuildCx, BuildError, Node, PerWorker, Phases, Plugin, PluginDef, PluginError, RequestCx,
    Scopes, Step, redact,
};
use secrets::Secrets;
use std::sync::{Arc, OnceLock};

const NAME: &str = "oauth2";

pub(crate) fn def() -> PluginDef {
    PluginDef::bundled::<Oauth2>(NAME, 1400, Phases::ACCESS, Scopes::NO_CONSUMER)
}

struct Oauth2 {
    config: Config,
    challenges: Challenges,
    /// The keys of signed tokens.
    keys: Option<Keys>,
    /// The document of the endpoint of RFC 8414.
    metadata: Bytes,
    secrets: OnceLock<Arc<Secrets>>,
    /// The names of keys in the configuration, from the start on.
    hidden: OnceLock<redact::Hidden>,
    counts: PerWorker<Option<Counts>>,
}

impl Plugin for Oauth2 {
    type Config = Config;
    type Own = ();

    fn build(config: Config, cx: &BuildCx<'_>) -> Result<Self, BuildError> {
        config.check()?;
        let keys = Keys::build(&config)?;
        Ok(Self {
            challenges: Challenges::new(&config),
            metadata: own::metadata::write(&config, keys.is_some()),
            keys,
            config,
            secrets: OnceLock::new(),
            hidden: OnceLock::new(),
            counts: cx.per_worker(),
        })
    }

    fn start(&self, node: &Arc<Node>) {
        self.hidden
            .get_or_init(|| redact::learn([self.config.header_name()]));
        let secrets = node.shared.get_or_try_insert(NAME, "secrets", Secrets::new);
        match secrets {
            Ok(secrets) => {
                self.secrets.get_or_init(|| secrets);
            }
            Err(_) => {
                tracing::error!(
                    plugin = NAME,
                    "the operating system gives no random numbers"
                );
            }
        }
    }

    fn access<'a>(
        &'a self,
        cx: RequestCx<'a, '_>,
        (): &'a mut (),
    ) -> Result<Step<'a>, PluginError> {
        match Endpoint::at(cx.request.head.path_bytes(), self) {
            Some(endpoint) => Ok(endpoint::serve(self, cx, endpoint)),
            None => self.authenticate(cx),
        }
    }

    fn needs(&self) -> Option<String> {
        let query = match self.config.is_strict() {
            true => "",
            false => " or argument `access_token`",
        };
        Some(format!(
            "an access token in header `{}`{query}, {}",
            self.config.header_name(),
            auth::otherwise(self.config.anonymous.as_deref())
        ))
    }
}

impl Oauth2 {
    fn secrets(&self) -> Result<&Secrets, PluginError> {
        let secrets = self.secrets.get();
        let secrets = secrets.ok_or_else(|| PluginError::new("it was not started"))?;
        Ok(secrets)
    }

    /// Counts something on this worker.
    fn count(&self, node: &Node, count: impl FnOnce(&Counts)) {
        let counts = self.counts.get(|| {
            let counts = Counts::new(node);
            counts
                .inspect_err(|error| tracing::error!(plugin = NAME, "no metrics: {error}"))
                .ok()
        });
        if let Some(counts) = &*counts {
            count(counts);
        }
    }
}

#[cfg(test)]
mod tests;
